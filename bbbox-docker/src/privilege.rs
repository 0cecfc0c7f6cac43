//! What a container may do, so that Docker runs inside it: all that the engine grants.
//!
//! Full privilege comes first. An engine on a hardened or nested host may itself lack a capability, and then refuses
//! that; what it lacks is then read from its own processes, and containers get every other one by name. What this
//! engine turned out to grant is noted at the engine, as the labels of an empty volume, so that no later box finds out
//! again.

use bbbox_core::{Error, Result};
use bollard::models::{ContainerCreateBody, HostConfig, SystemInfo};
use futures::StreamExt;

use crate::{
    client::Engine,
    exec,
    map::{self, Labels},
};

/// The engine's note about what it grants.
const NOTE: &str = "bbbox-engine";
const GRANTS: &str = "bb-box.grants";
const REFUSAL: &str = "bb-box.refusal";
const ENGINE: &str = "bb-box.engine";

/// The kernel's capabilities by their number, without those that engines since 20.10 may not know by name: PERFMON,
/// BPF and CHECKPOINT_RESTORE.
const CAPABILITIES: [&str; 38] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
];

/// Prints, for the host's first process and the engine's, the capabilities that they and what they start may have.
const LOOK: &str = r#"
for status in /proc/[0-9]*/status; do
    name=
    while read -r key value; do
        case $key in
        Name:) name=$value ;;
        CapBnd:) case $status:$name in /proc/1/*|*:dockerd|*:containerd) echo "$value" ;; esac ;;
        esac
    done 2>/dev/null <"$status"
done
"#;

/// What a container gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// Full privilege.
    Privileged,
    /// Every capability but these, which the engine itself lacks.
    AllBut(Vec<String>),
    /// What any container gets. Docker does not run inside.
    Plain,
}

impl Grant {
    /// As it stands on a label.
    fn to_label(&self) -> String {
        match self {
            Self::Privileged => "privileged".to_owned(),
            Self::AllBut(lacks) => format!("all but {}", lacks.join(" ")),
            Self::Plain => "plain".to_owned(),
        }
    }

    fn parse(label: &str) -> Option<Self> {
        match label {
            "privileged" => Some(Self::Privileged),
            "plain" => Some(Self::Plain),
            other => {
                let lacks = other.strip_prefix("all but ")?.split(' ').filter(|name| !name.is_empty());
                Some(Self::AllBut(lacks.map(str::to_owned).collect()))
            }
        }
    }

    /// Whether Docker runs inside.
    pub(crate) fn has_docker(&self) -> bool {
        *self != Self::Plain
    }

    /// What people see about it.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Privileged => "inside, with full privilege".to_owned(),
            Self::AllBut(lacks) => {
                format!("inside, with every capability but {}, which the engine lacks", lacks.join(", "))
            }
            Self::Plain => "none".to_owned(),
        }
    }

    /// Puts it into `host`.
    pub(crate) fn apply(&self, host: &mut HostConfig) {
        match self {
            Self::Privileged => host.privileged = Some(true),
            Self::AllBut(lacks) => {
                let granted = CAPABILITIES.iter().filter(|name| !lacks.iter().any(|lack| lack == *name));
                host.cap_add = Some(granted.map(|name| (*name).to_owned()).collect());
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

/// The capabilities that every process in `words`, what [`LOOK`] printed, is without; `None` when it printed none.
fn lacking(words: &str) -> Option<Vec<String>> {
    let sets = words.lines().filter_map(|line| u64::from_str_radix(line.trim(), 16).ok());
    let had = sets.reduce(|a, b| a & b)?;
    let missing = CAPABILITIES.iter().enumerate().filter(|(bit, _)| had & (1 << bit) == 0);
    Some(missing.map(|(_, name)| (*name).to_owned()).collect())
}

/// Reads `words` as each thing that an engine may say of privilege, for [`crate::fuzzing`].
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn read(words: &str) {
    if let Some(grant) = Grant::parse(words) {
        grant.apply(&mut HostConfig::default());
        assert_eq!(Grant::parse(&grant.to_label()), Some(grant));
    }
    assert!(lacking(words).is_none_or(|names| names.iter().all(|name| CAPABILITIES.contains(&&**name))));
    let _ = is_refusal(words);
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
    /// What to ask for after the engine refused this with `words`, told from its own processes by a container of
    /// `image` that is there for a moment.
    ///
    /// # Errors
    /// `Failed` when there is nothing less; the engine's, when it does not answer.
    pub(crate) async fn less(&self, words: String, engine: &Engine, image: &str) -> Result<Self> {
        let refusal = self.refusal.clone().or_else(|| Some(words.clone()));
        match &self.grant {
            Grant::Privileged => {
                let lacks = look(engine, image).await?;
                // One that lacks nothing has another reason, and asking for each by name would meet it again.
                let grant = lacks.filter(|lacks| !lacks.is_empty()).map_or(Grant::Plain, Grant::AllBut);
                Ok(Self { grant, refusal })
            }
            Grant::AllBut(_) => Ok(Self { grant: Grant::Plain, refusal }),
            Grant::Plain => Err(Error::failed("the engine does not start the box").because_of(words)),
        }
    }
}

/// Reads what the engine lacks, in the host's process list.
async fn look(engine: &Engine, image: &str) -> Result<Option<Vec<String>>> {
    let body = ContainerCreateBody {
        image: Some(image.to_owned()),
        cmd: Some(["sh", "-c", LOOK].map(str::to_owned).into()),
        entrypoint: Some(Vec::new()),
        labels: Some(Labels::from([(map::TRIAL.to_owned(), jiff::Timestamp::now().to_string())])),
        host_config: Some(HostConfig { pid_mode: Some("host".to_owned()), ..HostConfig::default() }),
        ..ContainerCreateBody::default()
    };
    let name = format!("bbbox-look-{}", exec::random_word());
    let Some(id) = engine.create(&name, body).await? else { return Ok(None) };
    let looked = async {
        let mut output = engine.attach(&id).await?;
        engine.start(&id).await?;
        let mut words = String::new();
        while let Some(Ok(piece)) = output.next().await {
            words.push_str(&String::from_utf8_lossy(&piece));
        }
        Ok(lacking(&words))
    };
    let looked = looked.await;
    engine.remove(&id).await?;
    looked
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
    let mut labels: Labels =
        [(ENGINE, identity(info)), (GRANTS, seen.grant.to_label())].map(|(k, v)| (k.to_owned(), v)).into();
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
    fn what_an_engine_lacks_is_read_from_its_processes() {
        // The host's first process has everything, the engine is without SYS_RESOURCE.
        let words = "000001ffffffffff\n000001fffeffffff\n";
        assert_eq!(lacking(words), Some(vec!["SYS_RESOURCE".to_owned()]));
        assert_eq!(lacking("000001ffffffffff\n"), Some(Vec::new()));
        assert_eq!(lacking("nothing here"), None);
    }

    #[test]
    fn a_grant_is_read_back_from_its_label_and_asks_for_no_more() {
        let lacks = vec!["SYS_RESOURCE".to_owned(), "SYS_MODULE".to_owned()];
        for grant in [Grant::Privileged, Grant::AllBut(lacks), Grant::AllBut(Vec::new()), Grant::Plain] {
            assert_eq!(Grant::parse(&grant.to_label()), Some(grant.clone()));
            let mut host = HostConfig::default();
            grant.apply(&mut host);
            let asked = host.cap_add.unwrap_or_default();
            match &grant {
                Grant::AllBut(lacks) => assert_eq!(asked.len(), CAPABILITIES.len() - lacks.len()),
                _ => assert!(asked.is_empty()),
            }
            assert_eq!(host.privileged, (grant == Grant::Privileged).then_some(true));
        }
    }

    proptest::proptest! {
        #[test]
        fn anything_a_host_prints_is_read_without_a_panic(words: String) {
            let _ = (lacking(&words), Grant::parse(&words), is_refusal(&words));
        }
    }
}
