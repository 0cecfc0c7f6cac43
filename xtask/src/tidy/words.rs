//! Words that must not stand in the text: providers in the core, and what belongs to one machine.
//!
//! The lists are put together from halves, so that this file does not break its own rule.

use super::{Checkout, hold};

/// Providers, hypervisors, container technologies and products. The shared words of the table of kinds and the
/// reference backend, which must name the tool that it runs, stand apart.
const PROVIDERS: &[&str] = &[
    "docker",
    "dockerd",
    "podman",
    "containerd",
    "bollard",
    "proxmox",
    "lxc",
    "qemu",
    "pve",
    "hetzner",
    "hcloud",
    "tart",
    "microsandbox",
    "msb",
    "firecracker",
    "tigervnc",
    "xtigervnc",
    "wayvnc",
    "novnc",
    "sway",
    "openbox",
    "vmware",
    "virtualbox",
    "kubernetes",
    "nsc",
    "bubblewrap",
    "bwrap",
];
/// The shared words for kinds hold some of these names.
const ALIASES: &[&str] = &["linux-docker", "linux-arm64-docker", "linux-headless-docker"];
const APART: &[&str] = &["bbbox-core/src/kind/", "bbbox-core/src/local/", "bbbox-core/Cargo.toml"];

/// Hosts of registries, paths of one machine and words of a workplace.
const FOREIGN: &[&str] = &[
    concat!("deb.", "debian.org"),
    concat!("security.", "debian.org"),
    concat!("registry.", "npmjs"),
    concat!("registry-1.", "docker.io"),
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("pypi", ".org"),
    concat!("/wo", "rk/"),
    concat!("/tmp/", "wt"),
    concat!("/tmp/", "boot"),
    concat!("work", "tree"),
    concat!("sub", "agent"),
    concat!("sub-", "agent"),
    concat!("issue ", "2"),
    concat!("the ", "brief"),
];

fn providers(checkout: &Checkout) -> Vec<String> {
    let core = checkout.iter().filter(|(path, _)| {
        path.starts_with("bbbox-core/") && !APART.iter().any(|apart| path.starts_with(apart))
    });
    let mut found = Vec::new();
    for (path, text) in core {
        for (at, line) in text.lines().enumerate() {
            let line = ALIASES.iter().fold(line.to_ascii_lowercase(), |line, alias| line.replace(alias, ""));
            let mut words = line.split(|c: char| !c.is_ascii_alphanumeric());
            let word = words.find(|word| PROVIDERS.contains(word));
            found.extend(word.map(|word| format!("{path}:{}: names {word}", at + 1)));
        }
    }
    found
}

fn foreign(checkout: &Checkout) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in checkout.iter().filter(|(path, _)| !path.ends_with("Cargo.lock")) {
        for (at, line) in text.lines().enumerate() {
            let line = line.to_ascii_lowercase();
            let word = FOREIGN.iter().find(|word| line.contains(**word));
            found.extend(word.map(|word| format!("{path}:{}: {word}", at + 1)));
        }
    }
    found
}

#[test]
fn the_core_names_no_provider() {
    hold(&providers(&Checkout::here()));
}

#[test]
fn the_text_speaks_of_the_project_alone() {
    hold(&foreign(&Checkout::here()));
}

#[test]
fn what_breaks_a_rule_about_words_is_found() {
    let foreign_word = format!("see {}/notes", FOREIGN[7].trim_end_matches('/'));
    let checkout = Checkout::of(&[
        (
            "bbbox-core/src/a.rs",
            "// as Docker does\nlet docker_host = 1;\nlet started = 2;\n// `linux-docker`\n",
        ),
        ("bbbox-core/src/kind/alias.rs", "(\"linux-docker\", \"linux\")"),
        ("bbbox-docker/src/lib.rs", "//! Docker.\n"),
        ("README.md", &foreign_word),
    ]);
    assert_eq!(providers(&checkout).len(), 2);
    assert_eq!(foreign(&checkout).len(), 1);
}
