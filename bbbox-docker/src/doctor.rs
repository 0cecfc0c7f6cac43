//! The doctor's checks of one engine.

use bbbox_core::backend::{Check, CheckOutcome, Images};
use bollard::models::SystemInfo;

use crate::{
    backend::{Docker, Inner},
    privilege::Grant,
};

fn check(id: &str, outcome: CheckOutcome, words: impl Into<String>, fix: Option<&str>) -> Check {
    Check { id: format!("docker.{id}"), outcome, words: words.into(), fix: fix.map(str::to_owned) }
}

impl Docker {
    pub(crate) async fn checks(&self) -> Vec<Check> {
        // What was learned before may be why someone asks.
        self.0.forget();
        let info = match self.0.info().await {
            Ok(info) => info,
            Err(error) => {
                let fix = error.how_to_fix().map(str::to_owned);
                return vec![check("engine", CheckOutcome::Failure, error.chain(), fix.as_deref())];
            }
        };
        let address = self.0.engine.address();
        let mut checks = vec![check("engine", CheckOutcome::Ok, format!("it answers at {address}"), None)];
        checks.push(version(&info));
        checks.push(self.0.memory(&info));
        checks.push(self.0.privileges().await);
        match self.images().await {
            Err(error) => checks.push(check("image", CheckOutcome::Failure, error.chain(), None)),
            Ok(images) => checks.extend(images.into_iter().map(|image| {
                let fix = format!("build it: `bbbox image build {}`", image.kind);
                match (image.due, image.build) {
                    (None, Some(build)) => check(
                        "image",
                        CheckOutcome::Ok,
                        format!("{} is build {}", image.name, build.id),
                        None,
                    ),
                    (why, build) => {
                        let outcome =
                            if build.is_some() { CheckOutcome::Warning } else { CheckOutcome::Failure };
                        let why = why.unwrap_or_default();
                        check("image", outcome, format!("{}: {why}", image.name), Some(&fix))
                    }
                }
            })),
        }
        checks
    }
}

/// Engines since 20.10 are known to work.
fn version(info: &SystemInfo) -> Check {
    let version = info.server_version.clone().unwrap_or_default();
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or_default());
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    if (major, minor) >= (20, 10) {
        check("version", CheckOutcome::Ok, format!("it is version {version}"), None)
    } else {
        let words = format!("it is version {version:?}; only 20.10 and newer are known to work");
        check("version", CheckOutcome::Warning, words, Some("update the Docker Engine"))
    }
}

impl Inner {
    fn memory(&self, info: &SystemInfo) -> Check {
        let total =
            info.mem_total.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or_default() / (1024 * 1024);
        let free = total.saturating_sub(self.config.reserve_mib());
        let words = format!("{free} of the host's {total} MiB of memory are for boxes");
        let limits = info.memory_limit.unwrap_or_default() && info.cpu_cfs_quota.unwrap_or_default();
        if !limits {
            let fix = "turn on the kernel's memory and cpu control groups";
            return check(
                "memory",
                CheckOutcome::Failure,
                "the engine cannot hold a box to its size",
                Some(fix),
            );
        }
        if free < 2048 {
            let fix = "lower `memory-reserve`, or use a host with more memory";
            return check("memory", CheckOutcome::Warning, words, Some(fix));
        }
        check("memory", CheckOutcome::Ok, words, None)
    }

    async fn privileges(&self) -> Check {
        let seen = match self.grant().await {
            Ok(seen) => seen,
            Err(error) => return check("privileges", CheckOutcome::Failure, error.chain(), None),
        };
        let said = seen.refusal.map(|words| format!("; the engine said: {words}")).unwrap_or_default();
        match seen.grant {
            Grant::Privileged => check(
                "privileges",
                CheckOutcome::Ok,
                "boxes get full privilege, and Docker runs inside them",
                None,
            ),
            Grant::AllBut(lacks) => {
                let lacks = lacks.join(", ");
                let words = format!(
                    "boxes get every capability but {lacks}, which the engine itself lacks; Docker runs inside them{said}"
                );
                let fix = format!("run the engine where it has {lacks}, if something in a box needs that");
                check("privileges", CheckOutcome::Warning, words, Some(&fix))
            }
            Grant::Plain if !self.config.privileged => check(
                "privileges",
                CheckOutcome::Ok,
                "privileged is off, so Docker does not run inside boxes",
                None,
            ),
            Grant::Plain => check(
                "privileges",
                CheckOutcome::Warning,
                format!("boxes get no privileges, so Docker does not run inside them{said}"),
                Some(
                    "use an engine that grants privileges and build the image again, which finds out anew; or set `privileged = false`",
                ),
            ),
        }
    }
}
