//! `fuzz`: plays what a fuzzer makes up to the targets in `fuzz/`, one after the other.
//!
//! It needs a nightly compiler, and builds cargo-fuzz where that is missing. What the fuzzer learns stays in the target
//! folder; what is worth keeping is put into `fuzz/corpus/` by hand, and any test run plays that.

use std::{fs, process::Command};

use crate::{
    fault::{Fault, Result},
    say, setup,
};

/// How long one input may take, and how much memory.
const LIMITS: [&str; 2] = ["-timeout=20", "-rss_limit_mb=4096"];

/// What to fuzz, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Fuzz {
    /// One target, such as `runner`; each of them in turn when it is left out.
    target: Option<String>,
    /// How long each target runs.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

impl Fuzz {
    /// Runs it, up to the first target that finds something.
    pub(crate) fn run(&self) -> Result<()> {
        let all = targets()?;
        let chosen: Vec<&String> =
            all.iter().filter(|name| self.target.as_ref().is_none_or(|t| t == *name)).collect();
        if chosen.is_empty() {
            return Err(Fault::new(format!("there is no such target; there are {}", all.join(", "))));
        }
        if !succeeds(Command::new("rustup").args(["run", "nightly", "rustc", "--version"]))? {
            return Err(Fault::new(
                "there is no nightly compiler: rustup toolchain install nightly --profile minimal",
            ));
        }
        setup::fuzzer()?;
        for name in chosen {
            say::line(format!("fuzz: {name}, {} s", self.seconds));
            self.one(name)?;
        }
        Ok(())
    }

    fn one(&self, name: &str) -> Result<()> {
        let root = crate::test::root();
        let (kept, learnt) = (format!("fuzz/corpus/{name}"), format!("target/fuzz/corpus/{name}"));
        let dir = root.join(&learnt);
        fs::create_dir_all(&dir).map_err(|why| Fault::file("make", &dir, why))?;
        let mut cargo = Command::new("rustup");
        cargo.current_dir(&root).env("PATH", setup::path());
        cargo.args(["run", "nightly", "cargo", "fuzz", "run", "--fuzz-dir", "fuzz"]);
        // What comes new goes into the first folder.
        cargo.args(["--target-dir", "target/fuzz", name, &learnt, &kept, "--"]);
        cargo.arg(format!("-max_total_time={}", self.seconds)).args(LIMITS);
        if succeeds(&mut cargo)? {
            return Ok(());
        }
        Err(Fault::new(format!(
            "{name} found something, or was not built: see above. What it found is in fuzz/artifacts/{name}; once it \
             is mended, keep it in {kept}"
        )))
    }
}

/// Every target, by its file.
fn targets() -> Result<Vec<String>> {
    let dir = crate::test::root().join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&dir).map_err(|why| Fault::file("list", &dir, why))?;
    let name = |path: std::path::PathBuf| Some(path.file_stem()?.to_str()?.to_owned());
    let mut all: Vec<_> = entries.flatten().filter_map(|entry| name(entry.path())).collect();
    all.sort();
    Ok(all)
}

fn succeeds(command: &mut Command) -> Result<bool> {
    let program = command.get_program().to_string_lossy().into_owned();
    let ended = command.status().map_err(|why| Fault::new(format!("could not start {program}: {why}")))?;
    Ok(ended.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_built_and_has_inputs() {
        let root = crate::test::root();
        let manifest = fs::read_to_string(root.join("fuzz/Cargo.toml")).unwrap();
        let targets = targets().unwrap();
        assert!(!targets.is_empty());
        for name in targets {
            assert!(manifest.contains(&format!("name = \"{name}\"\n")), "{name} is not in fuzz/Cargo.toml");
            let inputs = fs::read_dir(root.join("fuzz/corpus").join(&name)).unwrap().count();
            assert!(inputs > 0, "{name} has no inputs");
        }
    }
}
