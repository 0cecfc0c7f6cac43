//! What an earlier try, a used-again number or a hostile box left behind harms nothing.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    process::{Command, Stdio},
    time::Duration,
};

use bbbox_core::{
    ErrorKind,
    backend::{Backend as _, CheckOutcome, Released, Switch as _, Switched},
    guest::{Guest, Power},
    id::{BackendId, BoxId, InstallId, KindId},
    local::{Isolation, Local, LocalConfig},
    size::Size,
};
use proptest::prelude::*;

use crate::room::{BOTH, Room, draw, processes_of, sh, until, way};

/// Run by the test below in a process of its own, which that kills.
#[tokio::test]
async fn a_maker_that_is_killed() {
    let Ok(said) = std::env::var("BBBOX_TEST_MAKER") else { return };
    let words: Vec<_> = said.split('|').collect();
    let room = Room {
        dir: tempfile::tempdir().unwrap(),
        isolation: if words[0] == "none" { Isolation::None } else { Isolation::Auto },
        install: InstallId::parse(words[2]).unwrap(),
    };
    let config = LocalConfig { isolation: room.isolation, ..LocalConfig::new(words[1]) };
    let local = Local::open(BackendId::parse("local").unwrap(), config).unwrap();
    let mut order = room.order();
    order.owner.box_id = BoxId::parse(words[3]).unwrap();
    let guest = local.acquire(&order, &room.hooks()).await.unwrap();
    loop {
        local.stop(&guest).await.unwrap();
        local.start(&guest).await.unwrap();
        local.release(&guest, &room.hooks()).await.unwrap();
        local.acquire(&order, &room.hooks()).await.unwrap();
    }
}

#[tokio::test]
async fn whenever_its_maker_is_killed_a_box_can_be_finished_and_removed() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let local = room.local();
        local.offers().await.unwrap();
        let word = if isolation == Isolation::None { "none" } else { "auto" };
        for step in 0..40_u64 {
            let mut order = room.order();
            let maker = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "crash::a_maker_that_is_killed"])
                .env(
                    "BBBOX_TEST_MAKER",
                    format!("{word}|{}|{}|{}", room.dir.path().display(), room.install, order.owner.box_id),
                )
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let mut maker = maker.unwrap();
            // At a different moment each time: while it starts, makes, stops, starts, removes.
            tokio::time::sleep(Duration::from_micros(step * 2_300)).await;
            maker.kill().unwrap();
            maker.wait().unwrap();

            order.earlier.tries = 1;
            if step % 2 == 0 {
                let guest = local.acquire(&order, &room.hooks()).await.unwrap();
                assert_eq!(local.held(&room.install).await.unwrap().len(), 1);
                way(&local, &guest).await.probe().await.unwrap();
                let first = processes_of(&guest.box_id);
                assert!(first.contains(&room.keeper(&guest)), "step {step}: {first:?}");
                assert_eq!(local.release(&guest, &room.hooks()).await.unwrap(), Released::Removed);
            } else {
                let guest = Guest {
                    install: order.owner.install.clone(),
                    box_id: order.owner.box_id.clone(),
                    reference: order.owner.box_id.to_string(),
                    host: None,
                    address: None,
                    size: order.size,
                    data: Default::default(),
                    facts: Default::default(),
                };
                local.release(&guest, &room.hooks()).await.unwrap();
                assert_eq!(local.power(&guest).await.unwrap(), None);
            }
            // A child that the maker left between fork and exec still shows the maker's own environment.
            until("the maker's children are gone", || processes_of(&order.owner.box_id).is_empty()).await;
            room.is_empty(&order.owner.box_id);
        }
    }
}

#[tokio::test]
async fn a_pid_that_is_used_again_is_not_the_guest() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, guest) = room.guest().await;
        local.stop(&guest).await.unwrap();
        // The record names a living process: this one. Only its start time tells.
        let record = room.folder(&guest).join("keeper");
        let text = fs::read_to_string(&record).unwrap();
        let (line, rest) = text.split_once('\n').unwrap();
        let words: Vec<_> = line.split(' ').collect();
        fs::write(&record, format!("{} {} {}\n{rest}", std::process::id(), words[1], words[2])).unwrap();
        assert_eq!(local.power(&guest).await.unwrap(), Some(Power::Stopped));
        assert_eq!(local.stop(&guest).await.unwrap(), Switched::Already);
        room.end(&local, &guest).await;
    }
}

#[tokio::test]
async fn a_release_removes_any_tree_and_follows_no_link() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, guest) = room.guest().await;
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("precious"), "x").unwrap();
        let home = room.folder(&guest).join("home");
        symlink(outside.path(), home.join("link")).unwrap();
        symlink(outside.path().join("precious"), home.join("file")).unwrap();
        symlink("/", home.join("root")).unwrap();
        let inside = way(&local, &guest).await;
        let script = "mkdir -p ro/deep/er none && echo x >ro/deep/er/x && echo x >none/x && ln -s .. ro/deep/up && \
                      chmod 0 none && chmod 555 ro/deep/er ro/deep ro && \
                      for i in 1 2 3 4 5 6 7 8 9 0; do mkdir -p \"$i/\n $i\" && : >\"$i/\n $i/-rf\"; done && \
                      i=0; while [ $i -lt 1500 ]; do mkdir d && cd d || exit; i=$((i+1)); done";
        sh(&inside, script).await;
        room.end(&local, &guest).await;
        assert_eq!(fs::read_to_string(outside.path().join("precious")).unwrap(), "x");
    }
}

#[tokio::test]
async fn a_home_that_became_a_link_takes_nothing_with_it() {
    let room = Room::new(Isolation::None);
    let (local, guest) = room.guest().await;
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("precious"), "x").unwrap();
    fs::set_permissions(outside.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let folder = room.folder(&guest);
    fs::remove_dir(folder.join("home")).unwrap();
    symlink(outside.path(), folder.join("home")).unwrap();
    room.end(&local, &guest).await;
    assert!(outside.path().join("precious").exists());
    assert_eq!(fs::metadata(outside.path()).unwrap().permissions().mode() & 0o777, 0o555);
}

#[tokio::test]
async fn a_listing_that_cannot_be_read_whole_is_no_listing() {
    let room = Room::new(Isolation::None);
    let (local, guest) = room.guest().await;
    let away = tempfile::tempdir().unwrap();
    let away_to = away.path().join("away");
    fs::rename(room.dir.path(), &away_to).unwrap();
    assert_eq!(local.held(&room.install).await.unwrap_err().kind(), ErrorKind::Unavailable);
    fs::rename(&away_to, room.dir.path()).unwrap();
    room.end(&local, &guest).await;
}

#[tokio::test]
async fn a_guest_that_does_not_say_whose_it_is_is_nobodys_and_takes_room() {
    let room = Room::new(Isolation::None);
    let (local, guest) = room.guest().await;
    let other = local.acquire(&room.order(), &room.hooks()).await.unwrap();
    let owner = room.folder(&guest).join("owner.json");
    let good = fs::read(&owner).unwrap();
    fs::write(&owner, "{").unwrap();
    let held = local.held(&room.install).await.unwrap();
    assert_eq!(held.into_iter().map(|held| held.guest).collect::<Vec<_>>(), vec![other.clone()]);
    let capacity = local.capacity(&KindId::parse("linux").unwrap(), &room.install).await.unwrap();
    let host = &capacity.hosts[0];
    assert_eq!(host.limits.iter().map(|limit| limit.used).collect::<Vec<_>>(), [2 * 2048, 2]);
    assert_eq!(host.counted.keys().collect::<Vec<_>>(), [&other.box_id]);
    let error = local.power(&guest).await.unwrap_err();
    assert!(error.how_to_fix().is_some(), "{error:?}");
    assert!(local.release(&guest, &room.hooks()).await.is_err(), "not knowing whose it is is not gone");
    assert!(room.folder(&guest).join("home").is_dir(), "it was touched");
    let checks = local.doctor().await;
    let folder = checks.iter().find(|check| check.id == "local.folder").unwrap();
    assert!(folder.outcome == CheckOutcome::Warning && folder.words.contains("owner.json"), "{folder:?}");
    fs::write(&owner, good).unwrap();
    assert_eq!(local.release(&other, &room.hooks()).await.unwrap(), Released::Removed);
    room.end(&local, &guest).await;
}

proptest! {
    #[test]
    fn no_reference_leaves_the_folder(reference in ".{0,40}|(\\.\\./){0,3}bx[a-z0-9]{12}") {
        let room = Room::new(Isolation::None);
        let guest = Guest {
            install: room.install.clone(), box_id: BoxId::draw(draw), reference, host: None, address: None,
            size: Size::new(1, 2048), data: Default::default(), facts: Default::default(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let local = room.local();
        prop_assert_eq!(runtime.block_on(local.power(&guest)).unwrap(), None);
        prop_assert_eq!(runtime.block_on(local.release(&guest, &room.hooks())).unwrap(), Released::AlreadyGone);
    }
}
