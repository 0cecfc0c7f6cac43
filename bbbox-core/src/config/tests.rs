//! The configuration as people write it: what holds, what is refused and how it is said, what is stored. It opens
//! no backend: its drivers are only forms.

use std::sync::Arc;

use proptest::prelude::*;
use rusqlite::Connection;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::*;
use crate::{
    backend::Backend,
    driver::{DriverDeps, Drivers, Settings},
    error::{Error, ErrorKind, Result},
    id::{BackendId, KindId},
    size::Size,
};

/// Any JSON whose fields are called as the pattern `names` says. Every number reads back as it was written.
pub(super) fn any_json(names: &'static str) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i32>().prop_map(|n| Value::from(f64::from(n) / 4.0)),
        "[a-z]{0,6}|.*".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names, inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct Farm {
    /// Where it is.
    address: Option<String>,
    /// How many boxes at most.
    #[schemars(range(min = 1, max = 100))]
    most_boxes: Option<u32>,
    /// Memory kept for the host; 1 GiB when it is left out.
    memory_reserve: Option<Amount>,
    /// How boxes are kept apart.
    isolation: Isolation,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Isolation {
    /// As well as it can be.
    #[default]
    Auto,
    /// Not at all.
    None,
}

impl Settings for Farm {
    const TYPE: &'static str = "farm";

    fn validate(&self) -> Vec<Problem> {
        match &self.address {
            Some(address) if !address.starts_with("tcp:") => {
                vec![Problem::new("address", format!("is {address:?}")).allowed("tcp:HOST:PORT")]
            }
            _ => Vec::new(),
        }
    }

    fn alone(&self) -> Option<String> {
        Some(self.address.clone().unwrap_or_else(|| "this machine".to_owned()))
    }

    fn build(self, id: BackendId, _deps: &DriverDeps) -> Result<Arc<dyn Backend>> {
        Err(Error::failed(format!("{id} is only a form")))
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Yard {
    /// Its machines.
    #[allow(dead_code, reason = "only its schema is looked at")]
    machines: Vec<String>,
}

impl Settings for Yard {
    const TYPE: &'static str = "yard";

    fn validate(&self) -> Vec<Problem> {
        Vec::new()
    }

    fn build(self, id: BackendId, _deps: &DriverDeps) -> Result<Arc<dyn Backend>> {
        Err(Error::failed(format!("{id} is only a form")))
    }
}

fn drivers() -> Drivers {
    Drivers::new().with::<Farm>().with::<Yard>()
}

fn linux() -> KindId {
    KindId::parse("linux").unwrap()
}

fn said(text: &str) -> Vec<String> {
    match check_text(text, &drivers()) {
        Ok(draft) => vec![format!("{draft:?}")],
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

const WHOLE: &str = r#"
revision = 7

[[backends]]
id = "one"
type = "farm"
address = "tcp:one:1"
memory-reserve = "2048 MiB"

[[backends]]
id = "two"
type = "yard"
on = false
machines = ["a", "b"]

[kinds.linux]
presets.tiny = { cores = 1, memory = "2 GiB", disk = "10 GiB" }
default = "tiny"
largest = { cores = 8, memory = "16 GiB" }

[kinds.macos]
on = false
"#;

#[test]
fn a_whole_document_is_read_in_order_and_its_sizes_stand_over_the_standard() {
    let draft = check_text(WHOLE, &drivers()).unwrap();
    let document = &draft.document;
    assert_eq!(draft.revision, Some(7));
    let ids: Vec<_> = document.backends.iter().map(|b| (b.id.as_str(), b.on)).collect();
    assert_eq!(ids, [("one", true), ("two", false)]);
    let sizes = document.sizes(&linux());
    assert_eq!(sizes.presets.keys().collect::<Vec<_>>(), ["large", "medium", "small", "tiny"]);
    assert_eq!(
        sizes.resolve(None, crate::kind::Os::Linux).unwrap(),
        Size { cores: 1, memory_mib: 2048, disk_mib: Some(10240) }
    );
    assert!(!document.kind_on(&KindId::parse("macos").unwrap()));
    assert!(document.kind_on(&KindId::parse("linux-arm64").unwrap()));
}

#[test]
fn it_reads_back_from_toml_and_from_json() {
    let draft = check_text(WHOLE, &drivers()).unwrap();
    assert_eq!(check_text(&draft.to_toml(), &drivers()).unwrap(), draft);
    assert_eq!(check_text(&draft.to_json().to_string(), &drivers()).unwrap(), draft);
    assert_eq!(check_value(draft.to_json(), &drivers()).unwrap(), draft);
}

#[test]
fn nothing_configured_is_each_type_that_works_without_fields() {
    let draft = check_text("", &drivers()).unwrap();
    assert_eq!(draft.document, drivers().default_document());
    assert_eq!(draft.to_toml(), "[[backends]]\nid = \"farm\"\ntype = \"farm\"\non = true\n");
    assert_eq!(check_text("backends = []", &drivers()).unwrap().document.backends, []);
}

#[test]
fn every_problem_is_said_at_once_with_line_path_and_what_is_allowed() {
    let text = r#"backend = 1
[[backends]]
id = "One"
type = "farm"
most-boxes = 0
memory-reserve = 2048
isolation = "auot"

[[backends]]
type = "barn"

[[backends]]
id = "three"
type = "yard"
machine = ["a"]

[kinds.linux]
presets.small = { cores = 1, memory = "1 GiB" }
presets.Big = { cores = 64, memory = "2 GiB" }
default = "big"

[kinds.beos]
on = "yes"
"#;
    assert_eq!(
        said(text),
        [
            "line 1, column 1: backend: there is no field \"backend\"; did you mean \"backends\"?; \
             allowed: backends, kinds, revision",
            "line 3, column 1: backends[0].id: is \"One\"; \
             allowed: a lower-case letter, then up to 39 of a-z, 0-9 and '-'",
            "line 5, column 1: backends[0].most-boxes: is 0; allowed: a whole number from 1 to 100",
            "line 6, column 1: backends[0].memory-reserve: is 2048; \
             allowed: an amount such as \"512 MiB\" or \"4 GiB\", up to 64 TiB",
            "line 7, column 1: backends[0].isolation: is \"auot\"; did you mean \"auto\"?; \
             allowed: one of \"auto\", \"none\"",
            "line 10, column 1: backends[1].type: is \"barn\"; allowed: one of \"farm\", \"yard\"",
            "line 12, column 1: backends[2].machines: is missing; allowed: a list, each of it text",
            "line 15, column 1: backends[2].machine: there is no field \"machine\"; \
             did you mean \"machines\"?; allowed: id, machines, on, type",
            "line 18, column 30: kinds.linux.presets.small.memory: is too little for Linux; \
             allowed: at least 2 GiB",
            "line 19, column 9: kinds.linux.presets.Big: \"Big\" is not a name for a size; \
             allowed: a lower-case letter, then up to 39 of a-z, 0-9 and '-'",
            "line 19, column 9: kinds.linux.presets.Big: the size \"Big\", 64 cores, 2 GiB, is above the \
             largest, 32 cores, 128 GiB, 1024 GiB disk; allowed: a larger \"largest\", or a smaller size \"Big\"",
            "line 20, column 1: kinds.linux.default: there is no size \"big\"; \
             allowed: Big, large, medium, small",
            "line 22, column 8: kinds.beos: there is no field \"beos\"; allowed: linux, linux-arm64, \
             linux-arm64-desktop-cpu, linux-desktop, linux-desktop-cpu, linux-desktop-wayland-cpu, macos, \
             macos-desktop, windows-arm64-desktop, windows-desktop",
        ]
        .map(str::to_owned)
    );
}

#[test]
fn two_backends_may_share_neither_their_id_nor_their_host() {
    let text = "[[backends]]\nid = \"a\"\ntype = \"farm\"\n\
                [[backends]]\nid = \"a\"\ntype = \"farm\"\n\
                [[backends]]\nid = \"c\"\ntype = \"farm\"\naddress = \"udp\"\n";
    assert_eq!(
        said(text),
        [
            "line 4, column 1: backends[1]: this machine is what backends[0] uses already; \
             allowed: one farm backend for it",
            "line 5, column 1: backends[1].id: \"a\" is backends[0] already; \
             allowed: an ID of its own for each backend",
            "line 10, column 1: backends[2].address: is \"udp\"; allowed: tcp:HOST:PORT",
        ]
        .map(str::to_owned)
    );
}

#[test]
fn a_backend_without_a_type_is_told_the_types() {
    let problems = check_value(json!({ "backends": [{ "id": "a" }] }), &drivers()).unwrap_err();
    assert_eq!(problems.to_string(), "backends[0].type: is missing; allowed: one of \"farm\", \"yard\"");
}

#[test]
fn a_null_is_a_field_left_out() {
    let value = json!({ "backends": [{ "id": "a", "type": "farm", "address": null }], "kinds": null });
    let draft = check_value(value, &drivers()).unwrap();
    assert!(draft.document.backends[0].fields.is_empty());
}

#[test]
fn each_field_of_the_published_schema_says_what_it_is() {
    let schema = drivers().config_schema();
    let mut bare = Vec::new();
    undescribed(&schema, "", &mut bare);
    assert_eq!(bare, [""; 0]);
}

/// Every property of a schema that has no description.
fn undescribed(schema: &Value, path: &str, bare: &mut Vec<String>) {
    for (name, inner) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let at = format!("{path}/{name}");
        if inner.get("description").is_none() {
            bare.push(at.clone());
        }
        undescribed(inner, &at, bare);
    }
    for inner in schema.pointer("/items/oneOf").and_then(Value::as_array).into_iter().flatten() {
        undescribed(inner, path, bare);
    }
}

#[test]
fn a_driver_of_this_program_is_found_by_type_and_another_is_refused_with_the_types() {
    let deps = DriverDeps {
        data_dir: "/nowhere".into(),
        cache_dir: "/nowhere".into(),
        env: Arc::new(crate::env::SystemEnv),
        variables: crate::driver::Variables::default(),
    };
    let mut entry = drivers().default_document().backends.remove(0);
    assert!(drivers().build(&entry, &deps).err().unwrap().to_string().contains("farm is only a form"));
    entry.backend_type = "barn".to_owned();
    let error = drivers().build(&entry, &deps).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.how_to_fix().unwrap().ends_with("farm, yard"));
}

fn database() -> Connection {
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch(include_str!("../store/migrations/003-configuration.sql")).unwrap();
    db
}

fn by(who: &str) -> Change {
    Change { at: "2026-11-30T12:00:00Z".parse().unwrap(), by: who.to_owned() }
}

#[test]
fn a_document_is_stored_only_over_the_revision_it_was_made_from() {
    let (db, drivers) = (database(), drivers());
    let first = load(&db, &drivers).unwrap();
    assert_eq!((first.revision, &first.changed), (0, &None));
    assert_eq!(first.document, drivers.default_document());

    let mut draft = check_text(WHOLE, &drivers).unwrap();
    assert_eq!(save_if(&db, &draft, &by("by you"), &drivers).unwrap_err().kind(), ErrorKind::Busy);
    draft.revision = None;
    let stored = save_if(&db, &draft, &by("by you"), &drivers).unwrap();
    assert_eq!(stored.revision, 1);
    assert_eq!(load(&db, &drivers).unwrap(), stored);

    // Two people change revision 1: the second is told, and what the first said stands.
    let mut theirs = stored.draft();
    theirs.document.kinds.remove(&linux());
    let mut mine = stored.draft();
    mine.document.backends[0].on = false;
    save_if(&db, &theirs, &by("by a bbbox command"), &drivers).unwrap();
    let error = save_if(&db, &mine, &by("by you"), &drivers).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the configuration is at revision 2, changed by a bbbox command at 2026-11-30T12:00:00Z, and this document \
         was made from revision 1; they differ in backends[0].on, kinds.linux"
    );
    assert!(error.how_to_fix().unwrap().contains("`revision = 2`"));
    assert_eq!(load(&db, &drivers).unwrap().document, theirs.document);
}

#[test]
fn a_document_without_a_revision_never_overwrites_and_the_same_again_changes_nothing() {
    let (db, drivers) = (database(), drivers());
    let mut draft = check_text("", &drivers).unwrap();
    assert_eq!(save_if(&db, &draft, &by("by you"), &drivers).unwrap().revision, 1);
    assert_eq!(save_if(&db, &draft, &by("by you"), &drivers).unwrap().revision, 1);
    draft.document.backends.clear();
    let error = save_if(&db, &draft, &by("by you"), &drivers).unwrap_err();
    assert!(error.to_string().contains("does not say which revision"), "{error}");
    assert_eq!(load(&db, &drivers).unwrap().revision, 1);
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (0_u64..5).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "farm|yard|one|two|medium|auto|[1-9] GiB|tcp:.*".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 5, |inner| {
        let names = "backends|kinds|revision|id|type|on|address|most-boxes|memory-reserve|machines|linux|macos|presets\
                     |small|default|largest|cores|memory|.*";
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names, inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Documents that are mostly right, so that checks often pass.
fn likely_document() -> impl Strategy<Value = Value> {
    let size = (1_u32..9, 2_u32..17, prop::option::of(1_u32..50)).prop_map(|(cores, memory, disk)| {
        json!({ "cores": cores, "memory": format!("{memory} GiB"), "disk": disk.map(|d| format!("{d} GiB")) })
    });
    let kind = (any::<bool>(), prop::collection::btree_map("[a-z]{1,5}|small", size, 0..3))
        .prop_map(|(on, presets)| json!({ "on": on, "presets": presets }));
    let backend = prop_oneof![
        ("[a-z]{1,9}", "tcp:.*", 1_u32..101).prop_map(
            |(id, address, most)| json!({ "id": id, "type": "farm", "address": address, "most-boxes": most })
        ),
        ("[a-z]{1,9}", prop::collection::vec(any::<String>(), 0..3))
            .prop_map(|(id, machines)| json!({ "id": id, "type": "yard", "machines": machines })),
    ];
    (
        prop::collection::vec(backend, 0..3),
        prop::collection::btree_map("linux|macos|linux-desktop", kind, 0..3),
        prop::option::of(0_u64..9),
    )
        .prop_map(|(backends, kinds, revision)| json!({ "backends": backends, "kinds": kinds, "revision": revision }))
}

proptest! {
    #[test]
    fn no_document_makes_a_check_panic(value in any_value(), text: String) {
        let _ = check_value(value, &drivers());
        let _ = check_text(&text, &drivers());
    }

    #[test]
    fn what_is_checked_reads_back_the_same_from_both_forms(value in likely_document()) {
        if let Ok(draft) = check_value(value, &drivers()) {
            prop_assert_eq!(&check_text(&draft.to_toml(), &drivers()).unwrap(), &draft);
            prop_assert_eq!(&check_value(draft.to_json(), &drivers()).unwrap(), &draft);
        }
    }
}

#[cfg(feature = "local")]
#[test]
fn a_wrong_field_puts_no_rule_for_another_off_to_a_second_round() {
    let text = "[[backends]]\nid = \"one\"\ntype = \"local\"\nmemry = 1\ndir = \"here\"\n\n\
                [[backends]]\nid = \"two\"\ntype = \"local\"\nmost-boxes = 0\ndir = \"there\"\n";
    let problems = check_text(text, &Drivers::new().with::<crate::local::LocalConfig>()).unwrap_err();
    let said: Vec<_> = problems.iter().map(ToString::to_string).collect();
    for path in ["backends[0].memry", "backends[0].dir", "backends[1].most-boxes", "backends[1].dir"] {
        assert!(said.iter().any(|words| words.contains(path)), "{path} is not among {said:#?}");
    }
}
