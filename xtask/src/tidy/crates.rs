//! What crates may depend on, and what each must declare.

use toml::{Table, Value};

use super::{Checkout, hold};

/// `(crate, what it may use of this workspace)`. A crate that is not here has no place in the map.
const ARROWS: &[(&str, &[&str])] = &[
    ("bbbox-core", &[]),
    ("bbbox-relay", &["bbbox-core"]),
    ("bbbox-docker", &["bbbox-core"]),
    ("bbbox-proxmox", &["bbbox-core"]),
    ("bbbox-msb", &["bbbox-core"]),
    ("bbbox-sshpool", &["bbbox-core"]),
    ("bbbox-tart", &["bbbox-core"]),
    // Their hosts run a Docker Engine, so they use that backend's host type.
    ("bbbox-hetzner", &["bbbox-core", "bbbox-docker"]),
    ("bbbox-namespace", &["bbbox-core", "bbbox-docker"]),
    (
        "bbbox",
        &[
            "bbbox-core",
            "bbbox-docker",
            "bbbox-proxmox",
            "bbbox-msb",
            "bbbox-sshpool",
            "bbbox-tart",
            "bbbox-hetzner",
            "bbbox-namespace",
        ],
    ),
    ("bbbox-host", &["bbbox", "bbbox-relay"]),
    ("conformance", &["bbbox"]),
    ("xtask", &[]),
    // Apart from the workspace, as what starts a target is not free of `unsafe`.
    ("bbbox-fuzz", &["bbbox-core", "bbbox-docker"]),
];

fn manifests(checkout: &Checkout) -> Vec<(&str, Table)> {
    let manifests =
        checkout.iter().filter(|(path, _)| path.ends_with("Cargo.toml") && !path.starts_with("examples/"));
    manifests.map(|(path, text)| (path, text.parse().unwrap_or_else(|e| panic!("{path}: {e}")))).collect()
}

fn arrows(checkout: &Checkout) -> Vec<String> {
    let mut broken = Vec::new();
    for (path, manifest) in manifests(checkout) {
        let name = manifest["package"]["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
            broken.push(format!("{path}: {name} has no place in the map of dependencies"));
            continue;
        };
        for section in ["dependencies", "build-dependencies"] {
            let used = manifest.get(section).and_then(Value::as_table);
            for used in used.into_iter().flat_map(Table::keys) {
                if ARROWS.iter().any(|(known, _)| known == used) && !allowed.contains(&&**used) {
                    broken.push(format!("{path}: {name} must not use {used}"));
                }
            }
        }
    }
    broken
}

fn lints(checkout: &Checkout) -> Vec<String> {
    let inherits = |manifest: &Table| {
        manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(Value::as_bool) == Some(true)
    };
    let members = manifests(checkout).into_iter().filter(|(path, _)| !path.starts_with("fuzz/"));
    let bare = members.filter(|(_, manifest)| !inherits(manifest));
    bare.map(|(path, _)| format!("{path}: does not inherit the workspace's lints")).collect()
}

/// Features that are for tests alone, and the one crate that may ask for each.
const FOR_TESTS: &[(&str, &str)] =
    &[("simulation", "conformance/Cargo.toml"), ("fuzzing", "fuzz/Cargo.toml")];

/// The faults that can be planted, and what the fuzz targets call, are in no program that anybody uses.
fn for_tests(checkout: &Checkout) -> Vec<String> {
    let asks = |manifest: &Table, feature: &str| {
        let tables =
            ["dependencies", "build-dependencies"].into_iter().filter_map(|table| manifest.get(table));
        let used =
            tables.filter_map(Value::as_table).flat_map(Table::values).filter_map(|of| of.get("features"));
        let default = manifest.get("features").and_then(|features| features.get("default"));
        used.chain(default).filter_map(Value::as_array).flatten().any(|f| f.as_str() == Some(feature))
    };
    let mut broken = Vec::new();
    for (path, manifest) in manifests(checkout) {
        let asked = FOR_TESTS.iter().filter(|(feature, only)| path != *only && asks(&manifest, feature));
        broken.extend(asked.map(|(feature, only)| format!("{path}: only {only} asks for {feature}")));
    }
    broken
}

/// Rust checks only what it is told to, so each library crate must tell it.
fn documented(checkout: &Checkout) -> Vec<String> {
    let libraries =
        checkout.rust().filter(|(path, _)| path.ends_with("src/lib.rs") && !path.starts_with("examples/"));
    let silent = libraries.filter(|(_, text)| !text.lines().any(|line| line == "#![deny(missing_docs)]"));
    silent.map(|(path, _)| format!("{path}: does not deny missing docs")).collect()
}

#[test]
fn dependencies_follow_the_arrows() {
    hold(&arrows(&Checkout::here()));
}

#[test]
fn what_is_for_tests_alone_is_in_no_program() {
    hold(&for_tests(&Checkout::here()));
}

#[test]
fn every_crate_inherits_the_lints() {
    hold(&lints(&Checkout::here()));
}

#[test]
fn every_library_denies_missing_docs() {
    hold(&documented(&Checkout::here()));
}

#[test]
fn what_breaks_a_rule_about_crates_is_found() {
    let checkout = Checkout::of(&[
        ("a/Cargo.toml", "[package]\nname = 'bbbox-core'\n[dependencies]\nbbbox-docker = { path = '.' }"),
        ("b/Cargo.toml", "[package]\nname = 'stranger'\n[lints]\nworkspace = true"),
        ("a/src/lib.rs", "//! A page.\n"),
    ]);
    assert_eq!(arrows(&checkout).len(), 2);
    assert_eq!(lints(&checkout).len(), 1);
    assert_eq!(documented(&checkout).len(), 1);
    let product =
        |feature: &str| format!("[dependencies]\nbbbox = {{ workspace = true, features = ['{feature}'] }}");
    for (feature, only) in FOR_TESTS {
        assert_eq!(for_tests(&Checkout::of(&[("bbbox-host/Cargo.toml", &product(feature))])).len(), 1);
        assert_eq!(for_tests(&Checkout::of(&[(*only, &product(feature))])).len(), 0);
    }
}
