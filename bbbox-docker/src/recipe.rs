//! The recipe of the image of kind `linux`: its files, its hash and what its build says.

use std::collections::HashMap;

use ring::digest::{Context, SHA256};

use crate::map;

/// The label that holds the hash of the recipe that an image was built from.
pub(crate) const RECIPE: &str = "bb-box.recipe";
/// The label that says when an image was built.
pub(crate) const MADE: &str = "bb-box.made";

/// Makes the files of a base on this host. See the script itself.
pub(crate) const MAKE_BASE: &str = include_str!("../images/base/make");

macro_rules! guest {
    ($($name:literal),+ $(,)?) => {
        &[$((concat!("guest/", $name), include_str!(concat!("../images/linux/guest/", $name)))),+]
    };
}

const DOCKERFILE: &str = include_str!("../images/linux/Dockerfile");
const GUEST: &[(&str, &str)] = guest![
    "bb-box-check-headless",
    "bb-box-docker",
    "bb-box-dockerd",
    "bb-box-feature",
    "bb-box-record",
    "bb-box-start",
];

/// One build to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Build {
    pub(crate) kind: String,
    pub(crate) id: String,
    pub(crate) made: jiff::Timestamp,
    pub(crate) recipe: String,
    pub(crate) base: String,
}

impl Build {
    /// A build of `kind` on the image `base`, made now.
    pub(crate) fn new(kind: &str, recipe: String, base: String, made: jiff::Timestamp) -> Self {
        let short = recipe.get(..8).unwrap_or_default();
        let id = format!("{kind}-{}-{short}", made.strftime("%Y%m%dT%H%M%S"));
        Self { kind: kind.to_owned(), id, made, recipe, base }
    }

    /// The arguments of the recipe.
    pub(crate) fn arguments(&self) -> HashMap<String, String> {
        let made = self.made.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        // Packages come from the engine's cache for a day, and then anew.
        let packages = self.made.strftime("%Y-%m-%d").to_string();
        [
            ("BASE", &self.base),
            ("PACKAGES", &packages),
            ("KIND", &self.kind),
            ("BUILD", &self.id),
            ("MADE", &made),
            ("RECIPE", &self.recipe),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .collect()
    }

    /// The image's labels: a copy of its record that can be read without starting it.
    pub(crate) fn labels(&self) -> HashMap<String, String> {
        [
            (map::KIND, self.kind.clone()),
            (map::BUILD, self.id.clone()),
            (MADE, self.made.to_string()),
            (RECIPE, self.recipe.clone()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }
}

/// The hash of everything that goes into an image on `base`.
pub(crate) fn hash(base: &str) -> String {
    let files = GUEST.iter().copied().chain([("Dockerfile", DOCKERFILE), ("base", base)]);
    digest(files)
}

/// The hash of what goes into a base made on a host with these package sources.
pub(crate) fn base_hash(sources: &str) -> String {
    digest([("make", MAKE_BASE), ("sources", sources)].into_iter())
}

fn digest<'a>(parts: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut hash = Context::new(&SHA256);
    for (name, text) in parts {
        // Lengths keep one part's end from being read as another's beginning.
        hash.update(format!("{} {} ", name.len(), text.len()).as_bytes());
        hash.update(name.as_bytes());
        hash.update(text.as_bytes());
    }
    hash.finish().as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// The recipe's files as the tar stream that a build takes.
pub(crate) fn context() -> std::io::Result<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, text) in GUEST.iter().copied().chain([("Dockerfile", DOCKERFILE)]) {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o755);
        // The same every time, so that the engine's cache finds its layers again.
        header.set_mtime(0);
        tar.append_data(&mut header, name, text.as_bytes())?;
    }
    tar.into_inner()
}

/// How far a build is, from its line `Step 3/9 : …`.
pub(crate) fn fraction(line: &str) -> Option<f64> {
    let (at, of) = line.strip_prefix("Step ")?.split_once(' ')?.0.split_once('/')?;
    let (at, of): (u32, u32) = (at.parse().ok()?, of.parse().ok()?);
    (at >= 1 && at <= of).then(|| f64::from(at - 1) / f64::from(of))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_hash_tells_recipes_apart_and_the_context_holds_them() {
        assert_ne!(hash("debian:bookworm-slim"), hash("ubuntu:24.04"));
        assert_eq!(hash("a:b"), hash("a:b"));
        let context = context().unwrap();
        let mut tar = tar::Archive::new(context.as_slice());
        let names: Vec<_> = tar
            .entries()
            .unwrap()
            .map(|e| e.unwrap().path().unwrap().to_string_lossy().into_owned())
            .collect();
        assert!(names.contains(&"Dockerfile".to_owned()) && names.contains(&"guest/bb-box-start".to_owned()));
    }

    #[test]
    fn every_argument_of_the_recipe_is_given_and_packages_are_a_days() {
        let at = |text: &str| Build::new("linux", hash("a:b"), "a:b".to_owned(), text.parse().unwrap());
        let build = at("2026-11-30T10:00:00Z");
        for line in DOCKERFILE.lines() {
            if let Some(name) = line.strip_prefix("ARG ").map(|rest| rest.split('=').next().unwrap()) {
                assert!(build.arguments().contains_key(name), "{name}");
            }
        }
        assert_eq!(build.arguments()["PACKAGES"], at("2026-11-30T23:00:00Z").arguments()["PACKAGES"]);
        assert_ne!(build.arguments()["PACKAGES"], at("2026-12-01T00:00:00Z").arguments()["PACKAGES"]);
        assert_eq!(build.id, format!("linux-20261130T100000-{}", &hash("a:b")[..8]));
    }

    #[test]
    fn progress_is_read_from_the_steps() {
        assert_eq!(fraction("Step 1/4 : FROM x"), Some(0.0));
        assert_eq!(fraction("Step 3/4 : RUN y"), Some(0.5));
        assert_eq!(fraction("Step 5/4 : RUN y"), None);
        assert_eq!(fraction(" ---> Running in 0123"), None);
    }

    proptest! {
        #[test]
        fn reading_progress_never_panics(line: String, at: u32, of: u32) {
            for line in [line, format!("Step {at}/{of} : x")] {
                if let Some(done) = fraction(&line) {
                    prop_assert!((0.0..1.0).contains(&done));
                }
            }
        }
    }
}
