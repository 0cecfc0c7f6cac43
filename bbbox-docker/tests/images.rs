//! Building the image that boxes come from, on a real engine; and Docker inside a box.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use std::sync::Mutex;

use bbbox_core::{
    ErrorKind,
    backend::{Backend, BuildHooks},
    id::{BackendId, KindId},
};
use bbbox_docker::{Docker, DockerConfig};
use bollard::query_parameters as query;
use common::{run, sh, with_box};
use tokio_util::sync::CancellationToken;

#[derive(Default)]
struct Lines {
    all: Mutex<Vec<String>>,
    at: Mutex<Vec<f64>>,
    cancel_at: Option<(String, CancellationToken)>,
}

impl BuildHooks for Lines {
    fn line(&self, text: &str) {
        self.all.lock().unwrap().push(text.to_owned());
        if let Some((word, cancel)) = &self.cancel_at
            && text.contains(word)
        {
            cancel.cancel();
        }
    }
    fn progress(&self, text: &str, fraction: Option<f64>) {
        println!("{text} {fraction:?}");
        self.at.lock().unwrap().extend(fraction);
    }
}

/// A name of its own, so that the image that boxes come from stays what it is.
async fn backend() -> Option<(Docker, String)> {
    let name = format!("bbx-docker-test/linux:t{:x}", common::random());
    let kind = KindId::parse("linux").unwrap();
    let config = DockerConfig { images: [(kind, name.clone())].into(), ..DockerConfig::default() };
    let docker = Docker::connect(BackendId::parse("docker").unwrap(), config).unwrap();
    match docker.images().unwrap().images().await {
        Ok(images) => {
            assert_eq!(images[0].due.as_deref(), Some("it is not built"));
            Some((docker, name))
        }
        Err(error) => {
            println!("SKIPPED: {error:?}");
            None
        }
    }
}

#[tokio::test]
async fn an_image_is_built_tried_and_takes_its_name() {
    let Some((docker, name)) = backend().await else { return };
    let kind = KindId::parse("linux").unwrap();
    let room = docker.capacity(&kind, &common::install()).await.unwrap();
    assert!(room.hosts[0].closed.as_ref().unwrap().contains("bbbox image build linux"));
    let hooks = Lines::default();
    let images = docker.images().unwrap();
    let built = match images.build(&kind, &CancellationToken::new(), &hooks).await {
        Ok(built) => built,
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            println!("SKIPPED: {error:?}");
            return;
        }
        Err(error) => panic!("{error:?}\n{}", hooks.all.lock().unwrap().join("\n")),
    };
    println!("{built:#?}");
    assert_eq!((built.name.as_str(), &built.due), (name.as_str(), &None));
    assert_eq!(images.images().await.unwrap(), vec![built.clone()]);
    assert!(docker.capacity(&kind, &common::install()).await.unwrap().hosts[0].closed.is_none());
    assert!(hooks.at.lock().unwrap().is_sorted());

    let guest = docker.acquire(&common::order(&common::install()), &common::Told::default()).await.unwrap();
    let build = built.build.unwrap();
    assert_eq!(guest.facts["image"], build.id);
    let command = docker.reach(&guest).await.unwrap().command;
    let record = sh(&*command, "cat /usr/share/bb-box/image.json").await;
    assert!(record.contains(&build.id), "{record}");

    // What a person built from the image and gave its name has the build's labels too.
    let script = format!("printf 'FROM {name}\\nENV MINE=yes\\n' | docker build -q -t {name} -");
    let theirs = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(theirs.status.success(), "{theirs:?}");
    let theirs = String::from_utf8_lossy(&theirs.stdout).trim().to_owned();

    // Another build takes the name; the box keeps what it was made from, and the person what they made.
    let next = images.build(&kind, &CancellationToken::new(), &hooks).await.unwrap().build.unwrap();
    assert_ne!(next.id, build.id);
    let api = bollard::Docker::connect_with_unix_defaults().unwrap();
    assert_eq!(api.inspect_image(&theirs).await.unwrap().repo_tags.unwrap_or_default(), [""; 0]);
    assert_eq!(sh(&*command, "cat /usr/share/bb-box/image.json").await, record);
    docker.release(&guest, &common::Told::default()).await.unwrap();

    let own = |build: &str| format!("bbbox/linux:{}", build.to_ascii_lowercase());
    for image in [theirs, own(&build.id), name, own(&next.id)] {
        api.remove_image(&image, None::<query::RemoveImageOptions>, None).await.unwrap();
    }
}

#[tokio::test]
async fn a_build_that_is_taken_back_leaves_the_name_as_it_was() {
    let Some((docker, _)) = backend().await else { return };
    let kind = KindId::parse("linux").unwrap();
    let cancel = CancellationToken::new();
    let hooks = Lines { cancel_at: Some(("Step 2/".into(), cancel.clone())), ..Lines::default() };
    let images = docker.images().unwrap();
    match images.build(&kind, &cancel, &hooks).await {
        Err(error) if error.kind() == ErrorKind::Unavailable => return println!("SKIPPED: {error:?}"),
        other => assert_eq!(other.unwrap_err().kind(), ErrorKind::Cancelled),
    }
    assert_eq!(images.images().await.unwrap()[0].due.as_deref(), Some("it is not built"));
}

#[tokio::test]
async fn docker_runs_inside_a_box() {
    with_box(|docker, _, command| async move {
        let offer = docker.offers().await.unwrap().remove(0);
        if !offer.capabilities.has("docker") {
            return println!("SKIPPED: the engine does not grant what Docker inside a box needs");
        }
        assert_eq!(sh(&*command, "bb-box-feature").await, "docker");
        // A root of a few files from the box itself, as no registry need be there.
        let script = "set -e; mkdir -p r/bin r/lib r/lib64; cp /bin/dash r/bin/sh; cp /bin/cat r/bin
            for lib in $(ldd /bin/cat | grep -o '/[^ ]*'); do mkdir -p r$(dirname $lib); cp -L $lib r$lib; done
            tar -C r -c . | docker import - tiny >/dev/null";
        sh(&*command, script).await;
        let ran = run(&*command, &["docker", "run", "--rm", "-m", "64m", "tiny", "/bin/sh", "-c", "echo inside; exit 5"]).await;
        println!("{}", String::from_utf8_lossy(&ran.err));
        assert_eq!(String::from_utf8_lossy(&ran.out), "inside\n");
        assert_eq!(ran.exit.shell_status(), 5);
        let inner = "docker run -d tiny /bin/cat /dev/zero >/dev/null; cat /sys/fs/cgroup/memory/memory.limit_in_bytes \
             2>/dev/null || cat /sys/fs/cgroup/memory.max";
        assert_eq!(sh(&*command, inner).await, (512 * 1024 * 1024).to_string(), "only the box's own part is seen");
    })
    .await;
}

#[tokio::test]
async fn a_box_without_privileges_has_no_docker_and_says_so() {
    let config = DockerConfig { privileged: false, ..DockerConfig::default() };
    let Some(docker) = common::backend_with(config).await else { return };
    assert!(!docker.offers().await.unwrap()[0].capabilities.has("docker"));
    let mut order = common::order(&common::install());
    let guest = docker.acquire(&order, &common::Told::default()).await.unwrap();
    assert_eq!(guest.facts["docker"], "none");
    let command = docker.reach(&guest).await.unwrap().command;
    let ran = run(&*command, &["bb-box-feature", "docker"]).await;
    assert!(!ran.exit.success());
    // Without privileges, too, a process can be ended: also what it runs as root.
    let process = command.spawn(&common::argv(&["sh", "-c", "sudo sleep 1005; :"])).await.unwrap();
    while sh(&*command, "pgrep -fxc 'sleep 1005' || :").await == "0" {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    process.kill.await.unwrap();
    assert_eq!(process.exit.await.unwrap().shell_status(), 137);
    assert_eq!(sh(&*command, "pgrep -fxc 'sleep 1005' || :").await, "0");
    docker.release(&guest, &common::Told::default()).await.unwrap();
    order.owner.features.insert(bbbox_core::kind::Feature::parse("docker").unwrap());
    let error = docker.acquire(&order, &common::Told::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(docker.held(&order.owner.install).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_doctor_looks_at_each_part() {
    let Some(docker) = common::backend().await else { return };
    let checks = docker.doctor().await;
    println!("{checks:#?}");
    let ids: Vec<_> = checks.iter().map(|check| check.id.as_str()).collect();
    assert_eq!(
        ids,
        ["docker.engine", "docker.version", "docker.memory", "docker.privileges", "docker.image"]
    );
}
