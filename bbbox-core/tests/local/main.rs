//! The reference backend, with real processes: each test runs with namespaces (where the machine grants them) and
//! without, and where it runs as root all of them run once more as an ordinary user.

#![cfg(all(feature = "local", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod crash;
mod life;
mod room;
mod spawn;

use std::{fs, os::unix::fs::PermissionsExt as _, process::Command, sync::Arc};

use bbbox_core::{
    ErrorKind,
    driver::{DriverDeps, Drivers, Settings as _},
    env::SystemEnv,
    id::BackendId,
    local::{Local, LocalConfig},
};

#[test]
fn a_configuration_says_every_problem() {
    let config: LocalConfig =
        serde_json::from_str(r#"{"dir":"here","memory":"4 GiB","most-boxes":0,"isolation":"none"}"#).unwrap();
    assert_eq!(config.validate().len(), 2, "{:?}", config.validate());
    let error = Local::open(BackendId::parse("local").unwrap(), config).unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("most-boxes"), "{error}");
    assert!(serde_json::from_str::<LocalConfig>(r#"{"dir":"/x","sise":1}"#).is_err());
    assert!(LocalConfig::new("/x").validate().is_empty());
}

#[test]
fn unconfigured_it_keeps_its_guests_below_the_programs_folder() {
    let data = tempfile::tempdir().unwrap();
    let drivers = Drivers::new().with::<LocalConfig>();
    let deps = DriverDeps {
        data_dir: data.path().to_owned(),
        cache_dir: data.path().join("cache"),
        env: Arc::new(SystemEnv),
        variables: bbbox_core::driver::Variables::default(),
    };
    let backend = drivers.build(&drivers.default_document().backends[0], &deps).unwrap();
    assert_eq!(backend.id().as_str(), "local");
    assert!(data.path().join("local").is_dir());
}

/// Root has powers that would hide a fault: everything again without them, in user namespaces.
#[test]
fn all_of_this_holds_for_an_ordinary_user() {
    if !rustix::process::getuid().is_root() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = place.path().join("tests");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let done = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"])
        .arg(&program)
        .args(["--test-threads=2"])
        .env("TMPDIR", place.path())
        .env("HOME", place.path())
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}
