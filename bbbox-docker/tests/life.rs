//! A box's life on a real engine: made, used, stopped, started, resized, handed over, removed; and whose it is.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use bbbox_core::{
    ErrorKind,
    backend::{Backend, Earlier, Released, Switched},
    guest::Power,
    id::{BoxName, KindId, ThreadId},
    size::Size,
};
use bollard::{models::ContainerCreateBody, query_parameters as query};
use common::{Told, backend, install, order, sh};

fn api() -> bollard::Docker {
    bollard::Docker::connect_with_unix_defaults().unwrap()
}

#[tokio::test]
async fn a_box_lives_from_acquire_to_release() {
    let Some(docker) = backend().await else { return };
    let install = install();
    let order = order(&install);
    let told = Told::default();
    let guest = docker.acquire(&order, &told).await.unwrap();
    assert_eq!(told.all()[0], format!("claim bbbox-{}", order.owner.box_id), "{:?}", told.all());
    println!("{:#?}\n{:?}", guest, told.all());

    let command = docker.reach(&guest).await.unwrap().command;
    let (switch, resize) = (docker.switch().unwrap(), docker.resize().unwrap());
    assert_eq!(sh(&*command, "id -un; pwd; hostname; echo kept >file").await, "box\n/home/box\ntest-box");
    assert_eq!(docker.power(&guest).await.unwrap(), Some(Power::Running));

    assert_eq!(switch.stop(&guest).await.unwrap(), Switched::Done);
    assert_eq!(switch.stop(&guest).await.unwrap(), Switched::Already);
    assert_eq!(docker.power(&guest).await.unwrap(), Some(Power::Stopped));
    assert!(switch.stopped(&guest).await.unwrap().unwrap().by_guest);
    let refused = command.spawn(&common::argv(&["true"])).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused:?}");
    assert_eq!(docker.power(&guest).await.unwrap(), Some(Power::Stopped), "a spawn never starts a box");

    assert_eq!(switch.start(&guest).await.unwrap(), Switched::Done);
    assert_eq!(switch.start(&guest).await.unwrap(), Switched::Already);
    assert_eq!(sh(&*command, "cat file").await, "kept");

    let bigger = resize.resize(&guest, &Size::new(2, 768)).await.unwrap();
    assert_eq!(bigger.size, Size::new(2, 768));
    assert_eq!(docker.held(&install).await.unwrap()[0].guest.size, Size::new(2, 768));
    let room = docker.capacity(&order.owner.kind, &install).await.unwrap();
    assert_eq!(room.hosts[0].counted[&order.owner.box_id].size, Size::new(2, 768));
    let refused = resize.resize(&guest, &Size { disk_mib: Some(4096), ..guest.size }).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);

    assert_eq!(docker.release(&guest, &Told::default()).await.unwrap(), Released::Removed);
    assert_eq!(docker.release(&guest, &Told::default()).await.unwrap(), Released::AlreadyGone);
    assert_eq!(docker.power(&guest).await.unwrap(), None);
    assert_eq!(switch.start(&guest).await.unwrap_err().kind(), ErrorKind::Gone);
    assert_eq!(command.spawn(&common::argv(&["true"])).await.unwrap_err().kind(), ErrorKind::Gone);
    assert!(docker.held(&install).await.unwrap().is_empty());
    let label = std::collections::HashMap::from([("label", vec![format!("bb-box.box={}", guest.box_id)])]);
    let options = query::ListVolumesOptionsBuilder::new().filters(&label).build();
    let left = api().list_volumes(Some(options)).await.unwrap().volumes.unwrap_or_default();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_copy_of_a_box_is_released_without_the_box() {
    let Some(docker) = backend().await else { return };
    let install = install();
    let guest = docker.acquire(&order(&install), &Told::default()).await.unwrap();
    let image = format!("bbbox-test-copy:{}", guest.box_id);
    let script = format!("docker commit {} {image} && docker run -d {image} sleep 600", guest.reference);
    let made = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(made.status.success(), "{made:?}");

    let held = docker.held(&install).await.unwrap();
    let copy = held.iter().find(|held| held.guest.reference != guest.reference).unwrap().guest.clone();
    assert_eq!(held.len(), 2, "labels pass through a commit: {held:?}");
    assert_eq!(docker.release(&copy, &Told::default()).await.unwrap(), Released::Removed);
    assert_eq!(docker.release(&copy, &Told::default()).await.unwrap(), Released::AlreadyGone);
    assert_eq!(docker.power(&copy).await.unwrap(), None);
    assert_eq!(docker.power(&guest).await.unwrap(), Some(Power::Running), "the box itself stays");

    assert_eq!(docker.release(&guest, &Told::default()).await.unwrap(), Released::Removed);
    api().remove_image(&image, None::<query::RemoveImageOptions>, None).await.unwrap();
}

#[tokio::test]
async fn another_install_sees_and_touches_nothing() {
    let Some(docker) = backend().await else { return };
    let (mine, other) = (install(), install());
    let guest = docker.acquire(&order(&mine), &Told::default()).await.unwrap();
    assert!(docker.held(&other).await.unwrap().is_empty());
    let mut posing = guest.clone();
    posing.install = other.clone();
    assert_eq!(docker.power(&posing).await.unwrap(), None);
    assert_eq!(docker.release(&posing, &Told::default()).await.unwrap(), Released::AlreadyGone);
    assert_eq!(docker.switch().unwrap().stop(&posing).await.unwrap_err().kind(), ErrorKind::Gone);
    let kind = KindId::parse("linux").unwrap();
    let (ours, theirs) = (
        docker.capacity(&kind, &mine).await.unwrap().hosts.remove(0),
        docker.capacity(&kind, &other).await.unwrap().hosts.remove(0),
    );
    assert!(ours.counted.contains_key(&guest.box_id) && !theirs.counted.contains_key(&guest.box_id));
    assert!(theirs.limits[0].used >= 512, "everyone's memory is counted");
    assert_eq!(docker.power(&guest).await.unwrap(), Some(bbbox_core::guest::Power::Running));
    docker.release(&guest, &Told::default()).await.unwrap();
}

#[tokio::test]
async fn a_name_that_is_taken_is_looked_at_and_left() {
    let Some(docker) = backend().await else { return };
    let order = order(&install());
    let name = format!("bbbox-{}", order.owner.box_id);
    let options = query::CreateContainerOptionsBuilder::new().name(&name).build();
    let body = ContainerCreateBody { image: Some("bbbox/linux:latest".into()), ..Default::default() };
    let taken = api().create_container(Some(options), body).await.unwrap().id;
    let error = docker.acquire(&order, &Told::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error:?}");
    assert!(error.how_to_fix().unwrap().contains(&taken));
    assert!(api().inspect_container(&taken, None).await.is_ok(), "it is not ours to remove");
    api().remove_container(&taken, None).await.unwrap();
}

#[tokio::test]
async fn an_acquire_that_is_run_again_finishes_the_same_guest() {
    let Some(docker) = backend().await else { return };
    let mut order = order(&install());
    let first = docker.acquire(&order, &Told::default()).await.unwrap();
    order.earlier = Earlier { guest: Some(first.clone()), task: None, tries: 1 };
    let again = docker.acquire(&order, &Told::default()).await.unwrap();
    assert_eq!(first.reference, again.reference);
    // As after a crash between the creation and the start, with only the claim recorded.
    docker.switch().unwrap().stop(&first).await.unwrap();
    let third = docker.acquire(&order, &Told::default()).await.unwrap();
    assert_eq!(third.reference, first.reference);
    let mut claimed = third.clone();
    claimed.reference = format!("bbbox-{}", order.owner.box_id);
    let command = docker.reach(&claimed).await.unwrap().command;
    assert_eq!(sh(&*command, "echo by name").await, "by name");
    assert_eq!(docker.held(&order.owner.install).await.unwrap().len(), 1);
    assert_eq!(docker.release(&claimed, &Told::default()).await.unwrap(), Released::Removed);
    assert_eq!(docker.power(&third).await.unwrap(), None);
}

#[tokio::test]
async fn a_cancelled_acquire_leaves_nothing() {
    let Some(docker) = backend().await else { return };
    let order = order(&install());
    let cancel = order.cancel.clone();
    let told = Told::default();
    let (made, ()) = tokio::join!(docker.acquire(&order, &told), async {
        while !told.all().iter().any(|line| line.starts_with("container created")) {
            tokio::task::yield_now().await;
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        cancel.cancel();
    });
    assert_eq!(made.unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(docker.held(&order.owner.install).await.unwrap().is_empty());
}

#[tokio::test]
async fn another_owner_is_seen_by_held_and_goes_with_the_box() {
    let Some(docker) = backend().await else { return };
    let install = install();
    let order = order(&install);
    let guest = docker.acquire(&order, &Told::default()).await.unwrap();
    let relabel = docker.relabel().unwrap();
    let mut owner = order.owner.clone();
    for (name, thread) in [("second", Some("thread-2")), ("third", None), ("third", None)] {
        owner.name = BoxName::parse(name).unwrap();
        owner.thread = thread.map(|t| ThreadId::parse(t).unwrap());
        relabel.relabel(&guest, &owner).await.unwrap();
        let held = docker.held(&install).await.unwrap();
        assert_eq!(held[0].owner, owner);
        assert_eq!(held[0].guest.size, order.size);
    }
    docker.resize().unwrap().resize(&guest, &Size::new(1, 640)).await.unwrap();
    assert_eq!(docker.held(&install).await.unwrap()[0].owner, owner, "a resize keeps the owner");
    // Upkeep removes the note of a box that went without bb-box, and no other.
    docker.upkeep().unwrap().maintain(&install).await.unwrap();
    assert_eq!(docker.held(&install).await.unwrap()[0].owner, owner);
    let options = query::RemoveContainerOptionsBuilder::new().force(true).v(true).build();
    api().remove_container(&guest.reference, Some(options)).await.unwrap();
    docker.upkeep().unwrap().maintain(&install).await.unwrap();
    let label = std::collections::HashMap::from([("label", vec![format!("bb-box.install={install}")])]);
    let options = query::ListVolumesOptionsBuilder::new().filters(&label).build();
    assert!(api().list_volumes(Some(options)).await.unwrap().volumes.unwrap_or_default().is_empty());
}

#[tokio::test]
async fn what_the_engine_cannot_make_is_refused_and_leaves_nothing() {
    let Some(docker) = backend().await else { return };
    let mut order = order(&install());
    order.size.disk_mib = Some(20_480);
    let told = Told::default();
    assert_eq!(docker.acquire(&order, &told).await.unwrap_err().kind(), ErrorKind::Refused);
    assert!(told.all().is_empty(), "refused before anything was claimed");
    order.size = Size::new(4096, 512);
    let error = docker.acquire(&order, &Told::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(error.chain().contains("CPUs"), "the engine's own words: {}", error.chain());
    assert!(docker.held(&order.owner.install).await.unwrap().is_empty());
}
