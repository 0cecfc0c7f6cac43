//! What can be set about one Docker Engine.
//!
//! Plain data: nothing here reads the environment, the disk or the engine.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc};

use bbbox_core::{
    Result as CoreResult,
    backend::Backend,
    config::{Amount, Problem},
    driver::{DriverDeps, Settings},
    id::{BackendId, KindId},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::variable;

/// Where the engine listens when the configuration does not say.
pub(crate) const STANDARD_SOCKET: &str = "/var/run/docker.sock";

const RESERVE_MIB: u64 = 1024;

/// One Docker Engine that boxes are made on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct DockerConfig {
    /// Where the engine listens: the path of a unix socket, `unix:///path`, or `tcp://host:port` (also written
    /// `http://`). When it is left out: the engine that `DOCKER_HOST` names, where the program lets backends read
    /// variables, as the command `bbbox` does; else `/var/run/docker.sock`.
    pub host: Option<String>,
    /// How many boxes the engine may hold, running or stopped, of every install together. No bound when it is left
    /// out.
    #[schemars(range(min = 1))]
    pub most_boxes: Option<u64>,
    /// Memory of the host that boxes never get. 1 GiB when it is left out.
    pub memory_reserve: Option<Amount>,
    /// Whether boxes get the privileges that Docker inside them needs. Without them they have no Docker inside.
    pub privileged: bool,
    /// The image that box images are built from: Debian or Ubuntu.
    pub image_base: String,
    /// The image's name by kind, where it is not `bbbox/<kind>:latest`.
    pub images: BTreeMap<KindId, String>,
    /// The folder that keeps a base image that had to be made on this host; `bb-box` in the user's cache folder when
    /// it is left out.
    pub cache: Option<PathBuf>,
}

impl Default for DockerConfig {
    fn default() -> Self {
        Self {
            host: None,
            most_boxes: None,
            memory_reserve: None,
            privileged: true,
            image_base: "debian:bookworm-slim".to_owned(),
            images: BTreeMap::new(),
            cache: None,
        }
    }
}

/// How the engine is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// A unix socket's path.
    Unix(String),
    /// `host:port`, plain HTTP.
    Http(String),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => f.write_str(path),
            Self::Http(address) => write!(f, "http://{address}"),
        }
    }
}

impl DockerConfig {
    /// Every problem that the types do not rule out.
    #[must_use]
    pub fn validate(&self) -> Vec<Problem> {
        let mut found = Vec::new();
        if let Err(why) = self.parse_host() {
            found.push(Problem::new("host", why).allowed("a socket's path, unix:///path or tcp://host:port"));
        }
        if self.most_boxes == Some(0) {
            found.push(Problem::new("most-boxes", "0 is not a budget").allowed("1 or more, or no such line"));
        }
        let mut image = |path: String, name: &str| {
            if !is_image_name(name) {
                let problem = Problem::new(path, format!("{name:?} is not an image's name"));
                found.push(problem.allowed("a name with a tag, such as debian:bookworm-slim"));
            }
        };
        image("image-base".to_owned(), &self.image_base);
        for (kind, name) in &self.images {
            image(format!("images.{kind}"), name);
        }
        for kind in self.images.keys() {
            if !crate::map::KINDS.iter().any(|(known, _)| *known == kind.as_str()) {
                let problem = Problem::new(format!("images.{kind}"), "boxes of this kind are not made here");
                found.push(problem.allowed("linux, linux-arm64"));
            }
        }
        if let Some(path) = self.cache.as_ref().filter(|path| !path.is_absolute()) {
            let problem = Problem::new("cache", format!("{} is not a whole path", path.display()));
            found.push(problem.allowed("a path that begins with /"));
        }
        found
    }

    /// What boxes never get, in MiB.
    pub(crate) fn reserve_mib(&self) -> u64 {
        self.memory_reserve.map_or(RESERVE_MIB, Amount::mib)
    }

    /// The name of `kind`'s image.
    pub(crate) fn image(&self, kind: &str) -> String {
        self.images
            .iter()
            .find(|(id, _)| id.as_str() == kind)
            .map_or_else(|| format!("bbbox/{kind}:latest"), |(_, name)| name.clone())
    }

    pub(crate) fn parse_host(&self) -> Result<Host, String> {
        read_host(self.host.as_deref().unwrap_or(STANDARD_SOCKET))
    }
}

/// Reads an engine's address.
pub(crate) fn read_host(host: &str) -> Result<Host, String> {
    if let Some(address) = host.strip_prefix("tcp://").or_else(|| host.strip_prefix("http://")) {
        let address = address.trim_end_matches('/');
        let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        let plain = !address.contains(['/', '@', '?', '#']) && !address.contains(char::is_whitespace);
        return match port {
            Some(_) if plain => Ok(Host::Http(address.to_owned())),
            _ => Err(format!("{host:?} has no host and port")),
        };
    }
    let path = host.strip_prefix("unix://").unwrap_or(host);
    if path.starts_with('/') && path.len() > 1 {
        Ok(Host::Unix(path.to_owned()))
    } else {
        Err(format!("{host:?} is not an engine's address"))
    }
}

impl Settings for DockerConfig {
    const TYPE: &'static str = "docker";

    fn validate(&self) -> Vec<Problem> {
        Self::validate(self)
    }

    fn alone(&self) -> Option<String> {
        match self.parse_host().ok()? {
            Host::Unix(path) => Some(format!("the engine at {path}")),
            Host::Http(address) => Some(format!("the engine at {address}")),
        }
    }

    fn build(mut self, id: BackendId, deps: &DriverDeps) -> CoreResult<Arc<dyn Backend>> {
        self.cache.get_or_insert_with(|| deps.cache_dir.clone());
        let named = if self.host.is_none() { variable::engine(&id, &deps.variables)? } else { None };
        let by = named.is_some().then_some(variable::DOCKER_HOST);
        self.host = self.host.or(named);
        Ok(Arc::new(crate::Docker::named(id, self, by)?))
    }
}

/// Whether `name` may stand in an API path as it is: a repository with a tag.
fn is_image_name(name: &str) -> bool {
    let part = |text: &str, extra: &[u8]| {
        text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || extra.contains(&b))
    };
    name.len() <= 255
        && name.rsplit_once(':').is_some_and(|(repository, tag)| {
            part(tag, b"._-") && repository.split('/').all(|word| part(word, b"._-:"))
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with_host(host: &str) -> DockerConfig {
        DockerConfig { host: Some(host.to_owned()), ..DockerConfig::default() }
    }

    #[test]
    fn hosts_are_read_as_people_write_them() {
        let unix = |path: &str| Ok(Host::Unix(path.to_owned()));
        assert_eq!(DockerConfig::default().parse_host(), unix(STANDARD_SOCKET));
        assert_eq!(with_host("/run/user/1000/docker.sock").parse_host(), unix("/run/user/1000/docker.sock"));
        assert_eq!(with_host("unix:///a/b").parse_host(), unix("/a/b"));
        for host in ["tcp://10.0.0.1:2375", "http://10.0.0.1:2375/"] {
            assert_eq!(with_host(host).parse_host(), Ok(Host::Http("10.0.0.1:2375".to_owned())));
        }
        for bad in [
            "",
            "docker.sock",
            "unix://",
            "tcp://host",
            "https://h:1",
            "ssh://h",
            "tcp://u@h:1",
            "tcp://h:1/x",
        ] {
            assert!(with_host(bad).parse_host().is_err(), "{bad}");
        }
    }

    #[test]
    fn every_problem_is_told_with_its_field() {
        let config = DockerConfig {
            host: Some("nowhere".to_owned()),
            most_boxes: Some(0),
            image_base: "debian".to_owned(),
            images: [(KindId::parse("beos").unwrap(), "../x:y".to_owned())].into(),
            cache: Some("here".into()),
            ..DockerConfig::default()
        };
        let found = config.validate();
        for field in ["host", "most-boxes", "image-base", "images.beos", "cache"] {
            assert!(found.iter().any(|problem| problem.path == field), "{field} in {found:?}");
        }
        assert!(DockerConfig::default().validate().is_empty());
    }

    #[test]
    fn an_unknown_field_is_refused() {
        assert!(serde_json::from_str::<DockerConfig>(r#"{"sockets": 1}"#).is_err());
    }

    proptest! {
        #[test]
        fn reading_a_host_never_panics(text: String) {
            let _ = with_host(&text).parse_host();
        }

        #[test]
        fn an_image_name_never_leaves_its_place_in_a_path(name: String) {
            if is_image_name(&name) {
                prop_assert!(!name.contains("..") || !name.split('/').any(|p| p.starts_with('.')));
                prop_assert!(!name.contains(['?', '#', '%', ' ']));
            }
        }
    }
}
