//! What a container may do, so that Docker runs inside it: all that the engine grants.
//!
//! Full privilege comes first. An engine on a hardened or nested host may itself lack a capability, and then refuses
//! that; the container then gets every capability by name that such hosts do grant. What this engine turned out to
//! grant is noted at the engine, as the labels of an empty volume, so that no later box finds out again.

use bbbox_core::{Error, Result};
use bollard::models::{HostConfig, SystemInfo};

use crate::{client::Engine, map::Labels};

/// The engine's note about what it grants.
const NOTE: &str = "bbbox-engine";
const GRANTS: &str = "bb-box.grants";
const REFUSAL: &str = "bb-box.refusal";
const ENGINE: &str = "bb-box.engine";

/// Every capability that engines since 20.10 know by name, but SYS_RESOURCE: the one that nested hosts take away.
const CAPABILITIES: &[&str] = &[
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "AUDIT_WRITE",
    "BLOCK_SUSPEND",
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "IPC_OWNER",
    "KILL",
    "LEASE",
    "LINUX_IMMUTABLE",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "MKNOD",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYSLOG",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_CHROOT",
    "SYS_MODULE",
    "SYS_NICE",
    "SYS_PACCT",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "WAKE_ALARM",
];

/// What a container gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// Full privilege.
    Privileged,
    /// Every capability but SYS_RESOURCE.
    Named,
    /// What any container gets. Docker does not run inside.
    Plain,
}

impl Grant {
    const ALL: [Self; 3] = [Self::Privileged, Self::Named, Self::Plain];

    /// As it stands on labels.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Named => "named",
            Self::Plain => "plain",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|grant| grant.as_str() == word)
    }

    /// Whether Docker runs inside.
    pub(crate) fn has_docker(self) -> bool {
        self != Self::Plain
    }

    /// What comes next when the engine refuses this.
    pub(crate) fn less(self) -> Option<Self> {
        match self {
            Self::Privileged => Some(Self::Named),
            Self::Named => Some(Self::Plain),
            Self::Plain => None,
        }
    }

    /// What people see about it.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Privileged => "inside, with full privilege",
            Self::Named => "inside, with every capability but SYS_RESOURCE, which this engine does not grant",
            Self::Plain => "none",
        }
    }

    /// Puts it into `host`.
    pub(crate) fn apply(self, host: &mut HostConfig) {
        match self {
            Self::Privileged => host.privileged = Some(true),
            Self::Named => {
                host.cap_add = Some(CAPABILITIES.iter().map(|name| (*name).to_owned()).collect());
                host.security_opt =
                    Some(["seccomp=unconfined", "apparmor=unconfined"].map(str::to_owned).into());
                host.masked_paths = Some(Vec::new());
                host.readonly_paths = Some(Vec::new());
                host.device_cgroup_rules = Some(vec!["a *:* rwm".to_owned()]);
            }
            Self::Plain => {}
        }
    }
}

/// Whether the engine's `words` about a start mean that it may not grant what the container asks for.
pub(crate) fn is_refusal(words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    words.contains("operation not permitted")
        && ["apply caps", "bounding set", "capabilit", "mount", "device", "cgroup"]
            .iter()
            .any(|w| words.contains(w))
        || words.contains("unknown capability")
        || words.contains("privileged mode is incompatible")
}

/// Whether the engine runs without root, where Docker does not run inside its containers.
pub(crate) fn is_rootless(info: &SystemInfo) -> bool {
    info.security_options.iter().flatten().any(|option| option.contains("name=rootless"))
}

/// Names this engine on this host: after an upgrade, everything is tried again.
fn identity(info: &SystemInfo) -> String {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{} {} {}", text(&info.id), text(&info.server_version), text(&info.kernel_version))
}

/// What the engine was seen to grant, and its words if it refused more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) grant: Grant,
    pub(crate) refusal: Option<String>,
}

impl Seen {
    /// What to ask for after the engine refused this with `words`.
    ///
    /// # Errors
    /// `Failed` when there is nothing less.
    pub(crate) fn less(&self, words: String) -> Result<Self> {
        match self.grant.less() {
            Some(grant) => Ok(Self { grant, refusal: self.refusal.clone().or(Some(words)) }),
            None => Err(Error::failed("the engine does not start the box").because_of(words)),
        }
    }
}

/// Reads what was noted about this engine.
pub(crate) async fn noted(engine: &Engine, info: &SystemInfo) -> Result<Option<Seen>> {
    let volumes = engine.volumes(vec![format!("{ENGINE}={}", identity(info))]).await?;
    Ok(volumes.into_iter().find(|(name, _)| name == NOTE).and_then(|(_, labels)| {
        Some(Seen { grant: Grant::parse(labels.get(GRANTS)?)?, refusal: labels.get(REFUSAL).cloned() })
    }))
}

/// Notes that the engine refused more than `seen`. Best effort: without the note, the next one finds out again.
pub(crate) async fn note(engine: &Engine, info: &SystemInfo, seen: &Seen) {
    let mut labels: Labels = [(ENGINE, identity(info)), (GRANTS, seen.grant.as_str().to_owned())]
        .map(|(k, v)| (k.to_owned(), v))
        .into();
    if let Some(words) = &seen.refusal {
        labels.insert(REFUSAL.to_owned(), words.clone());
    }
    let noted = async {
        engine.remove_volume(NOTE).await?;
        engine.create_volume(NOTE, labels).await
    };
    if let Err(error) = noted.await {
        tracing::warn!(?error, "could not note what the engine grants");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_of_a_nested_engine_is_seen_for_what_it_is() {
        assert!(is_refusal(include_str!("../samples/privileged-refused.txt")));
        assert!(is_refusal("invalid CapAdd: unknown capability: \"CAP_BPF\""));
        assert!(!is_refusal(
            "OCI runtime create failed: exec: \"bb-box-start\": executable file not found in $PATH"
        ));
        assert!(!is_refusal("no space left on device"));
    }

    #[test]
    fn less_and_less_is_asked_for() {
        let mut grant = Grant::Privileged;
        while let Some(less) = grant.less() {
            assert_eq!(Grant::parse(grant.as_str()), Some(grant));
            grant = less;
        }
        assert!(!grant.has_docker());
    }
}
