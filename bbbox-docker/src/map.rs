//! Containers, volumes and labels as this project sees them, and back. Calls nothing.
//!
//! A container's labels are set at its creation and can never change. What changes later (another thread, another
//! name, another size) stands on a *note*: an empty volume of the box's whose labels hold it, in rising
//! generations. Nothing of this is kept inside the box, where the box could forge it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bbbox_core::{
    guest::{Guest, MADE as MADE_AT, Owner},
    id::{BackendId, BoxId, BoxName, InstallId, KindId, ThreadId},
    kind::Feature,
    size::Size,
};
use bollard::models::{
    ContainerInspectResponse, ContainerStateStatusEnum, ContainerSummary, ContainerSummaryStateEnum,
    SystemInfo,
};

use crate::privilege::Grant;

/// The kinds whose boxes are made here, by the engine's architecture.
pub(crate) const KINDS: &[(&str, &str)] = &[("linux", "x86_64"), ("linux-arm64", "aarch64")];

pub(crate) const BACKEND: &str = "bb-box.backend";
pub(crate) const INSTALL: &str = "bb-box.install";
pub(crate) const BOX: &str = "bb-box.box";
pub(crate) const THREAD: &str = "bb-box.thread";
pub(crate) const NAME: &str = "bb-box.name";
pub(crate) const KIND: &str = "bb-box.kind";
pub(crate) const BUILD: &str = "bb-box.build";
pub(crate) const FEATURES: &str = "bb-box.features";
pub(crate) const CORES: &str = "bb-box.cores";
pub(crate) const MEMORY: &str = "bb-box.memory-mib";
pub(crate) const DOCKER_INSIDE: &str = "bb-box.docker-inside";
pub(crate) const NOTE: &str = "bb-box.note";

/// On a note from before a resize until it is over: meanwhile only the engine knows the size.
pub(crate) const RESIZING: &str = "bb-box.resizing";

/// In a guest's data: the address of the engine it was made on, and that engine's own ID.
const ENGINE: &str = "engine";
const ENGINE_ID: &str = "engine_id";

/// On containers that are there for a moment: when they were made.
pub(crate) const TRIAL: &str = "bb-box.trial";

pub(crate) type Labels = HashMap<String, String>;

const MIB: i64 = 1024 * 1024;

/// The kind whose boxes are made on this engine.
pub(crate) fn kind(info: &SystemInfo) -> Option<KindId> {
    let arch = match info.architecture.as_deref()? {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        other => other,
    };
    let row = KINDS.iter().find(|(_, engine)| *engine == arch)?;
    KindId::parse(row.0).ok()
}

/// The name of a box's container.
pub(crate) fn container_name(id: &BoxId) -> String {
    format!("bbbox-{id}")
}

/// The name of a box's note of one generation.
pub(crate) fn note_name(id: &BoxId, generation: u64) -> String {
    format!("bbbox-note-{id}-{generation}")
}

/// The labels that say whose something is.
pub(crate) fn owner_labels(backend: &BackendId, owner: &Owner, size: &Size) -> Labels {
    let mut labels: Labels = [
        (BACKEND, backend.to_string()),
        (INSTALL, owner.install.to_string()),
        (BOX, owner.box_id.to_string()),
        (NAME, owner.name.to_string()),
        (KIND, owner.kind.to_string()),
        (CORES, size.cores.to_string()),
        (MEMORY, size.memory_mib.to_string()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect();
    if let Some(thread) = &owner.thread {
        labels.insert(THREAD.to_owned(), thread.to_string());
    }
    if !owner.features.is_empty() {
        let features: Vec<_> = owner.features.iter().map(Feature::as_str).collect();
        labels.insert(FEATURES.to_owned(), features.join(","));
    }
    labels
}

/// The owner that `labels` name; `None` when they are not a box's with its size.
pub(crate) fn owner(labels: &Labels) -> Option<Owner> {
    let text = |key: &str| labels.get(key).cloned();
    size(labels)?;
    Some(Owner {
        install: InstallId::parse(text(INSTALL)?).ok()?,
        box_id: BoxId::parse(text(BOX)?).ok()?,
        thread: match text(THREAD) {
            Some(thread) => Some(ThreadId::parse(thread).ok()?),
            None => None,
        },
        name: BoxName::parse(text(NAME)?).ok()?,
        kind: KindId::parse(text(KIND)?).ok()?,
        features: text(FEATURES).map_or_else(
            || Some(BTreeSet::new()),
            |words| words.split(',').map(|word| Feature::parse(word).ok()).collect(),
        )?,
    })
}

/// The box of `install` that `labels` name, whether or not the rest of them can be read.
pub(crate) fn box_of(labels: &Labels, install: &InstallId) -> Option<BoxId> {
    (labels.get(INSTALL)? == install.as_str()).then(|| BoxId::parse(labels.get(BOX)?).ok()).flatten()
}

/// The size that `labels` name.
pub(crate) fn size(labels: &Labels) -> Option<Size> {
    whole(Size::new(labels.get(CORES)?.parse().ok()?, labels.get(MEMORY)?.parse().ok()?))
}

/// A size of something: what anybody wrote on a label, or set at the engine, may be none.
fn whole(size: Size) -> Option<Size> {
    (size.cores > 0 && size.memory_mib > 0).then_some(size)
}

/// The generation of a note, or `None` when `labels` are not a note's.
pub(crate) fn generation(labels: &Labels) -> Option<u64> {
    labels.get(NOTE)?.parse().ok()
}

/// The newest note of each box among the labels of `volumes`.
pub(crate) fn newest_notes(volumes: impl IntoIterator<Item = Labels>) -> HashMap<String, Labels> {
    let mut newest: HashMap<String, Labels> = HashMap::new();
    for labels in volumes {
        let (Some(id), Some(this)) = (labels.get(BOX).cloned(), generation(&labels)) else { continue };
        if newest.get(&id).and_then(generation).is_none_or(|other| other < this) {
            newest.insert(id, labels);
        }
    }
    newest
}

/// A container as far as this crate needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) labels: Labels,
    pub(crate) image: String,
    pub(crate) phase: Phase,
    /// The size it is held to; `None` when it was listed and not asked for.
    pub(crate) size: Option<Size>,
    /// When it was made, in seconds since 1970; `None` when it was not listed.
    pub(crate) created: Option<i64>,
    /// How it ended, if it did: the code, the engine's own error, and whether memory ran out.
    pub(crate) ended: Option<Ended>,
}

/// Whether a container runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Created,
    Running,
    Stopped,
    Paused,
    /// Restarting, being removed, or something newer than this code.
    Between,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) code: i64,
    pub(crate) error: String,
    pub(crate) out_of_memory: bool,
}

impl Container {
    /// Whether Docker runs inside, as it was made.
    pub(crate) fn has_docker(&self) -> bool {
        self.labels.get(DOCKER_INSIDE).is_some_and(|words| *words != Grant::Plain.words())
    }

    /// Whether the container is `guest`'s box.
    pub(crate) fn is(&self, guest: &Guest) -> bool {
        self.labels.get(INSTALL).map(String::as_str) == Some(guest.install.as_str())
            && self.labels.get(BOX).map(String::as_str) == Some(guest.box_id.as_str())
    }
}

/// Reads an inspection.
pub(crate) fn inspected(native: ContainerInspectResponse) -> Container {
    let state = native.state.unwrap_or_default();
    let phase = match state.status {
        Some(ContainerStateStatusEnum::CREATED) => Phase::Created,
        Some(ContainerStateStatusEnum::RUNNING) => Phase::Running,
        Some(ContainerStateStatusEnum::EXITED | ContainerStateStatusEnum::DEAD) => Phase::Stopped,
        Some(ContainerStateStatusEnum::PAUSED) => Phase::Paused,
        _ => Phase::Between,
    };
    let size = native.host_config.and_then(|held| {
        let cores = u32::try_from(held.nano_cpus? / 1_000_000_000).ok()?;
        let memory = u64::try_from(held.memory? / MIB).ok()?;
        whole(Size::new(cores, memory))
    });
    Container {
        id: native.id.unwrap_or_default(),
        labels: native.config.and_then(|config| config.labels).unwrap_or_default(),
        image: native.image.unwrap_or_default(),
        phase,
        size,
        created: None,
        ended: (phase == Phase::Stopped).then(|| Ended {
            code: state.exit_code.unwrap_or_default(),
            error: state.error.unwrap_or_default(),
            out_of_memory: state.oom_killed.unwrap_or_default(),
        }),
    }
}

/// Reads one row of a listing.
pub(crate) fn listed(native: ContainerSummary) -> Container {
    Container {
        id: native.id.unwrap_or_default(),
        labels: native.labels.unwrap_or_default(),
        image: native.image_id.unwrap_or_default(),
        phase: match native.state {
            Some(ContainerSummaryStateEnum::CREATED) => Phase::Created,
            Some(ContainerSummaryStateEnum::RUNNING) => Phase::Running,
            Some(ContainerSummaryStateEnum::EXITED | ContainerSummaryStateEnum::DEAD) => Phase::Stopped,
            Some(ContainerSummaryStateEnum::PAUSED) => Phase::Paused,
            _ => Phase::Between,
        },
        size: None,
        created: native.created,
        ended: None,
    }
}

/// The guest that `container` is.
pub(crate) fn guest(container: &Container, owner: &Owner) -> Guest {
    // Labels are checked before there is an owner.
    let size = container.size.or_else(|| size(&container.labels));
    let mut facts = BTreeMap::from([("isolation".to_owned(), "container".to_owned())]);
    if let Some(build) = container.labels.get(BUILD) {
        facts.insert("image".to_owned(), build.clone());
    }
    if let Some(inside) = container.labels.get(DOCKER_INSIDE) {
        facts.insert("docker".to_owned(), inside.clone());
    }
    Guest {
        install: owner.install.clone(),
        box_id: owner.box_id.clone(),
        reference: container.id.clone(),
        host: None,
        address: None,
        size: size.unwrap_or(Size::new(1, 0)),
        data: BTreeMap::from([("image_id".to_owned(), container.image.clone())]),
        facts,
    }
}

/// The guest that is claimed before there is a container: its reference is the name the container will have.
pub(crate) fn claimed(owner: &Owner, size: Size) -> Guest {
    Guest {
        install: owner.install.clone(),
        box_id: owner.box_id.clone(),
        reference: container_name(&owner.box_id),
        host: None,
        address: None,
        size,
        data: BTreeMap::new(),
        facts: BTreeMap::new(),
    }
}

/// The engine that `guest` was made on: its address then, and its own ID.
pub(crate) fn place(guest: &Guest) -> Option<(&str, &str)> {
    Some((guest.data.get(ENGINE)?, guest.data.get(ENGINE_ID)?))
}

/// Records when `container` was made, as a listing says, on its guest.
pub(crate) fn set_made(guest: &mut Guest, container: &Container) {
    if let Some(made) = container.created.and_then(|made| jiff::Timestamp::from_second(made).ok()) {
        guest.data.insert(MADE_AT.to_owned(), made.to_string());
    }
}

/// Records the engine that `guest` is on.
pub(crate) fn set_place(guest: &mut Guest, address: &str, id: &str) {
    guest.data.insert(ENGINE.to_owned(), address.to_owned());
    guest.data.insert(ENGINE_ID.to_owned(), id.to_owned());
}

/// `guest` with the place that is recorded of it as it was `before`.
pub(crate) fn moved(mut guest: Guest, before: &Guest) -> Guest {
    if let Some((address, id)) = place(before) {
        set_place(&mut guest, address, id);
    }
    guest
}

/// `size` as the engine takes it: CPUs in billionths, memory in bytes.
pub(crate) fn limits(size: &Size) -> (i64, i64) {
    let memory = i64::try_from(size.memory_mib).unwrap_or(i64::MAX).saturating_mul(MIB);
    (i64::from(size.cores) * 1_000_000_000, memory)
}

#[cfg(test)]
mod tests {
    use bollard::models::VolumeListResponse;
    use proptest::prelude::*;

    use super::*;

    fn running() -> Container {
        inspected(serde_json::from_str(include_str!("../samples/container-running.json")).unwrap())
    }

    #[test]
    fn a_container_is_read_as_the_engine_shows_it() {
        let container = running();
        assert_eq!((container.phase, container.size), (Phase::Running, Some(Size::new(2, 768))));
        assert_eq!(container.id.len(), 64);
        let made = owner(&container.labels).unwrap();
        assert_eq!((made.box_id.as_str(), made.name.as_str()), ("bxsamplesample", "sample"));
        assert_eq!(size(&container.labels), Some(Size::new(1, 512)), "labels stay what they were");

        let stopped: Container =
            inspected(serde_json::from_str(include_str!("../samples/container-stopped.json")).unwrap());
        assert_eq!(stopped.phase, Phase::Stopped);
        assert_eq!(stopped.ended, Some(Ended { code: 0, error: String::new(), out_of_memory: false }));
    }

    #[test]
    fn a_note_holds_over_the_labels() {
        let listing: Vec<ContainerSummary> =
            serde_json::from_str(include_str!("../samples/containers.json")).unwrap();
        let volumes: VolumeListResponse =
            serde_json::from_str(include_str!("../samples/volumes.json")).unwrap();
        let container = listed(listing.into_iter().next().unwrap());
        assert_eq!((container.phase, container.size), (Phase::Running, None));
        let notes = newest_notes(volumes.volumes.unwrap().into_iter().map(|volume| volume.labels));
        let note = &notes["bxsamplesample"];
        let now = owner(note).unwrap();
        assert_eq!(now.name.as_str(), "renamed");
        let said = Container { size: size(note), ..container.clone() };
        let guest = guest(&said, &now);
        assert_eq!(guest.size, Size::new(2, 768));
        assert_eq!(guest, super::guest(&running(), &now), "both ways of asking say the same");
        assert!(container.is(&guest));
        let mut with_time = guest.clone();
        set_made(&mut with_time, &container);
        assert_eq!(with_time.made().map(|at| at.as_second()), container.created);
        assert!(container.created.is_some(), "a listing says when");
        let mut other = guest;
        other.install = InstallId::parse("inotherotherot").unwrap();
        assert!(!container.is(&other));
    }

    #[test]
    fn no_cores_and_no_memory_are_no_size_and_too_much_is_the_most() {
        let labels = |cores: &str, memory: &str| {
            Labels::from([(CORES.to_owned(), cores.to_owned()), (MEMORY.to_owned(), memory.to_owned())])
        };
        assert_eq!(size(&labels("1", "512")), Some(Size::new(1, 512)));
        for (cores, memory) in [("0", "512"), ("1", "0"), ("-1", "512")] {
            assert_eq!(size(&labels(cores, memory)), None, "{cores} {memory}");
        }
        let mut native: ContainerInspectResponse =
            serde_json::from_str(include_str!("../samples/container-running.json")).unwrap();
        native.host_config.as_mut().unwrap().nano_cpus = Some(500_000_000);
        assert_eq!(inspected(native).size, None, "half a core that somebody set is no size of a box");
        for memory in [i64::MAX as u64 / 1024, u64::MAX] {
            assert_eq!(limits(&Size::new(1, memory)).1, i64::MAX);
        }
    }

    #[test]
    fn the_newest_note_wins_whatever_the_order() {
        let note = |generation: &str| {
            Labels::from([(BOX.to_owned(), "b".to_owned()), (NOTE.to_owned(), generation.to_owned())])
        };
        for order in [["9", "10", "junk"], ["10", "junk", "9"]] {
            assert_eq!(newest_notes(order.map(note))["b"][NOTE], "10");
        }
    }

    #[test]
    fn the_engines_architecture_names_the_kind() {
        let mut info: SystemInfo = serde_json::from_str(include_str!("../samples/info.json")).unwrap();
        assert_eq!(kind(&info).unwrap().as_str(), "linux");
        for (architecture, expected) in
            [("aarch64", Some("linux-arm64")), ("arm64", Some("linux-arm64")), ("riscv64", None)]
        {
            info.architecture = Some(architecture.to_owned());
            assert_eq!(kind(&info).as_ref().map(KindId::as_str), expected);
        }
    }

    proptest! {
        #[test]
        fn labels_of_anyone_never_panic(labels in proptest::collection::hash_map(
            prop_oneof![Just(INSTALL), Just(BOX), Just(THREAD), Just(NAME), Just(KIND), Just(CORES), Just(MEMORY), Just(NOTE), Just(FEATURES)]
                .prop_map(str::to_owned),
            prop_oneof![any::<String>(), Just("bxsamplesample".to_owned()), Just("insampleinsamp".to_owned()), Just("7".to_owned())],
            0..8,
        )) {
            let _ = (owner(&labels), size(&labels), generation(&labels));
            newest_notes([labels]);
        }

        #[test]
        fn an_owner_comes_back_from_its_labels(cores in 1_u32..256, memory in 128_u64..4_194_304, thread in any::<bool>(), features in proptest::collection::btree_set("[a-z0-9-]{1,40}", 0..4)) {
            let mut made = owner(&running().labels).unwrap();
            if !thread {
                made.thread = None;
            }
            made.features = features.into_iter().map(|word| Feature::parse(word).unwrap()).collect();
            let backend = BackendId::parse("docker").unwrap();
            let labels = owner_labels(&backend, &made, &Size::new(cores, memory));
            prop_assert_eq!(owner(&labels), Some(made));
            prop_assert_eq!(size(&labels), Some(Size::new(cores, memory)));
        }
    }
}
