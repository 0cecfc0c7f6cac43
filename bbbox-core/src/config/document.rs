//! The document's own parts, typed: what a checked configuration is to the rest of the program.
//!
//! A backend's own fields stay data here; only its driver knows them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    WrittenSize,
    problem::{Problem, field},
};
use crate::{
    id::{BackendId, KindId},
    kind::{Os, standard},
    size::{LINUX_FLOOR_MIB, Size, Sizes},
};

/// A checked configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The backends, in the order in which they are tried.
    pub backends: Vec<BackendEntry>,
    /// What is set about kinds; a kind that is not named is on, with the standard sizes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kinds: BTreeMap<KindId, KindEntry>,
}

/// One backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackendEntry {
    /// Its ID: the same for as long as it has boxes.
    pub id: BackendId,
    /// The type of its driver.
    #[serde(rename = "type")]
    pub backend_type: String,
    /// Whether it takes new boxes. The boxes of a backend that is off keep working.
    #[serde(default = "yes")]
    pub on: bool,
    /// The type's own fields.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// What is set about one kind, over the standard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KindEntry {
    /// Whether it may be acquired. Boxes of a kind that is off keep working.
    #[serde(default = "yes")]
    pub on: bool,
    /// Sizes with names. One named as a standard size (small, medium, large) takes its place; the others stay.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub presets: BTreeMap<String, WrittenSize>,
    /// The preset that is taken when no size is asked for; medium when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// The largest size that may be asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest: Option<WrittenSize>,
}

const fn yes() -> bool {
    true
}

impl Default for KindEntry {
    fn default() -> Self {
        Self { on: true, presets: BTreeMap::new(), default: None, largest: None }
    }
}

impl Document {
    /// The backend with `id`.
    #[must_use]
    pub fn backend(&self, id: &BackendId) -> Option<&BackendEntry> {
        self.backends.iter().find(|backend| backend.id == *id)
    }

    /// Whether new boxes of `kind` may be acquired.
    #[must_use]
    pub fn kind_on(&self, kind: &KindId) -> bool {
        self.kinds.get(kind).is_none_or(|entry| entry.on)
    }

    /// The sizes `kind` allows: the standard ones with what is set over them.
    #[must_use]
    pub fn sizes(&self, kind: &KindId) -> Sizes {
        let mut sizes = Sizes::standard(standard(kind).is_some_and(|kind| kind.desktop));
        if let Some(entry) = self.kinds.get(kind) {
            sizes.presets.extend(entry.presets.iter().map(|(name, size)| (name.clone(), Size::from(*size))));
            if let Some(default) = &entry.default {
                sizes.default.clone_from(default);
            }
            if let Some(largest) = entry.largest {
                sizes.largest = largest.into();
            }
        }
        sizes
    }
}

/// What is wrong with the sizes that `entry` sets for `kind`; paths begin at the entry.
pub(super) fn check_kind(kind: &KindId, entry: &KindEntry) -> Vec<Problem> {
    let mut found = Vec::new();
    let sizes = Document { kinds: [(kind.clone(), entry.clone())].into(), ..Document::default() }.sizes(kind);
    let linux = standard(kind).is_some_and(|kind| kind.os == Os::Linux);
    let too_little = |size: &Size| linux && size.memory_mib < LINUX_FLOOR_MIB;
    for (name, size) in &sizes.presets {
        let given = entry.presets.contains_key(name);
        let path = field("presets", name);
        if given && KindId::parse(name.as_str()).is_err() {
            found.push(
                Problem::new(&path, format!("{name:?} is not a name for a size"))
                    .allowed("a lower-case letter, then up to 39 of a-z, 0-9 and '-'"),
            );
        }
        if given && too_little(size) {
            found.push(
                Problem::new(field(&path, "memory"), "is too little for Linux").allowed("at least 2 GiB"),
            );
        }
        if !size.fits_in(&sizes.largest) {
            let path = if given { path } else { "largest".to_owned() };
            found.push(
                Problem::new(
                    path,
                    format!("the size {name:?}, {size}, is above the largest, {}", sizes.largest),
                )
                .allowed(format!("a larger {:?}, or a smaller size {name:?}", "largest")),
            );
        }
    }
    if too_little(&sizes.largest) {
        found.push(Problem::new("largest.memory", "is too little for Linux").allowed("at least 2 GiB"));
    }
    if !sizes.presets.contains_key(&sizes.default) {
        let names: Vec<_> = sizes.presets.keys().map(String::as_str).collect();
        found.push(
            Problem::new("default", format!("there is no size {:?}", sizes.default))
                .allowed(names.join(", ")),
        );
    }
    found
}
