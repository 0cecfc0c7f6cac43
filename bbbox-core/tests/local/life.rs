//! A guest from acquire to release, and who may touch it.

use std::{collections::BTreeSet, fs};

use bbbox_core::{
    Effect, ErrorKind,
    backend::{Backend as _, Released, Switch as _, Switched},
    capacity::LimitName,
    guest::{Guest, Power},
    id::{BoxName, InstallId, KindId, ThreadId},
    local::Isolation,
    size::Size,
    transport::Exit,
};

use crate::room::{BOTH, Hooks, Room, draw, is_zombie, processes_with, sh, signal, until, way};

#[tokio::test]
async fn a_box_from_acquire_to_release() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let local = room.local();
        let (order, hooks) = (room.order(), room.hooks());
        let guest = local.acquire(&order, &hooks).await.unwrap();
        assert_eq!(*hooks.claimed.lock().unwrap(), std::slice::from_ref(&guest));
        assert_eq!(*hooks.seen_at_claim.lock().unwrap(), 0, "something was made before the claim");
        assert_eq!(local.power(&guest).await.unwrap(), Some(Power::Running));
        let held = local.held(&room.install).await.unwrap();
        assert_eq!((&held[0].owner, &held[0].guest, held.len()), (&order.owner, &guest, 1));

        let inside = way(&local, &guest).await;
        inside.probe().await.unwrap();
        assert_eq!(
            sh(&inside, "echo kept >file; pwd -P; cd; pwd -P").await.lines().collect::<BTreeSet<_>>().len(),
            1
        );

        assert_eq!(local.stop(&guest).await.unwrap(), Switched::Done);
        assert_eq!(local.stop(&guest).await.unwrap(), Switched::Already);
        assert_eq!(local.power(&guest).await.unwrap(), Some(Power::Stopped));
        let refused = inside.spawn(&["true".to_owned()]).await.unwrap_err();
        assert_eq!((refused.kind(), refused.effect_of()), (ErrorKind::Refused, Effect::None));
        assert_eq!(inside.route(80).await.unwrap_err().kind(), ErrorKind::Refused);

        assert_eq!(local.start(&guest).await.unwrap(), Switched::Done);
        assert_eq!(local.start(&guest).await.unwrap(), Switched::Already);
        assert_eq!(sh(&inside, "cat file").await, "kept\n");

        assert_eq!(local.release(&guest, &hooks).await.unwrap(), Released::Removed);
        assert_eq!(local.release(&guest, &hooks).await.unwrap(), Released::AlreadyGone);
        assert_eq!(local.power(&guest).await.unwrap(), None);
        assert_eq!(inside.spawn(&["true".to_owned()]).await.unwrap_err().kind(), ErrorKind::Gone);
        assert_eq!(local.start(&guest).await.unwrap_err().kind(), ErrorKind::Gone);
        room.is_empty(&guest.box_id);
    }
}

#[tokio::test]
async fn installs_that_share_a_folder_see_their_own_guests_and_count_all() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, mine) = room.guest().await;
        let mut order = room.order();
        order.owner.install = InstallId::draw(draw);
        let other = room.local();
        let theirs = other.acquire(&order, &room.hooks()).await.unwrap();

        assert_eq!(local.held(&room.install).await.unwrap().len(), 1);
        let kind = KindId::parse("linux").unwrap();
        let room_left = local.capacity(&kind, &room.install).await.unwrap().hosts.remove(0);
        let used = |name| room_left.limits.iter().find(|l| l.name == name).unwrap().used;
        assert_eq!((used(LimitName::Memory), used(LimitName::Guests)), (4096, 2));
        assert_eq!(room_left.counted.keys().collect::<Vec<_>>(), [&mine.box_id]);

        // A handle that names another install, or another box, is no handle on this guest.
        let stranger = Guest { install: room.install.clone(), ..theirs.clone() };
        let mistaken = Guest { reference: theirs.reference.clone(), ..mine.clone() };
        let escaping = Guest { reference: "../..".into(), ..mine.clone() };
        for guest in [stranger, mistaken, escaping] {
            assert_eq!(local.power(&guest).await.unwrap(), None);
            assert_eq!(local.release(&guest, &room.hooks()).await.unwrap(), Released::AlreadyGone);
            assert_eq!(local.stop(&guest).await.unwrap_err().kind(), ErrorKind::Gone);
            assert_eq!(local.reach(&guest).await.unwrap_err().kind(), ErrorKind::Gone);
        }
        assert_eq!(other.power(&theirs).await.unwrap(), Some(Power::Running));
        order.owner.install = room.install.clone();
        assert_eq!(local.acquire(&order, &room.hooks()).await.unwrap_err().kind(), ErrorKind::Failed);
        other.release(&theirs, &room.hooks()).await.unwrap();
        room.end(&local, &mine).await;
    }
}

#[tokio::test]
async fn nothing_is_made_when_the_claim_fails_or_was_taken_back() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let local = room.local();
        let mut order = room.order();
        let refusing = Hooks { refuse: true, ..room.hooks() };
        assert_eq!(local.acquire(&order, &refusing).await.unwrap_err().kind(), ErrorKind::Unavailable);
        room.is_empty(&order.owner.box_id);

        order.cancel.cancel();
        assert_eq!(local.acquire(&order, &room.hooks()).await.unwrap_err().kind(), ErrorKind::Cancelled);
        room.is_empty(&order.owner.box_id);

        // Taken back while an earlier try's guest is there already.
        order.cancel = tokio_util::sync::CancellationToken::new();
        local.acquire(&order, &room.hooks()).await.unwrap();
        order.cancel.cancel();
        assert_eq!(local.acquire(&order, &room.hooks()).await.unwrap_err().kind(), ErrorKind::Cancelled);
        room.is_empty(&order.owner.box_id);
    }
}

#[tokio::test]
async fn acquires_of_one_box_at_once_make_one_guest() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, order) = (room.local(), room.order());
        local.offers().await.unwrap();
        let first = local.acquire(&order, &room.hooks()).await.unwrap();
        local.stop(&first).await.unwrap();
        let again = (0..8).map(|_| async { local.start(&first).await.unwrap() });
        let done: Vec<_> = futures::future::join_all(again).await;
        assert_eq!(done.iter().filter(|s| **s == Switched::Done).count(), 1, "{done:?}");
        room.end(&local, &first).await;
    }
}

#[tokio::test]
async fn releases_of_one_box_at_once_remove_it_once() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, guest) = room.guest().await;
        let again = (0..8).map(|_| async { local.release(&guest, &room.hooks()).await.unwrap() });
        let done: Vec<_> = futures::future::join_all(again).await;
        assert_eq!(done.iter().filter(|r| **r == Released::Removed).count(), 1, "{done:?}");
        room.is_empty(&guest.box_id);
    }
}

#[tokio::test]
async fn a_stop_ends_everything_that_runs_in_the_box() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, guest) = room.guest().await;
        let inside = way(&local, &guest).await;
        let script = "setsid sh -c 'trap \"\" TERM HUP; echo $$ >daemon; exec sleep 4242' >/dev/null 2>&1 </dev/null & \
                      nohup sleep 4243 >/dev/null 2>&1 & until [ -s daemon ]; do :; done";
        sh(&inside, script).await;
        let kept = inside.spawn(&["sleep".to_owned(), "4244".to_owned()]).await.unwrap();
        let running = |n: &str| !processes_with(&format!("sleep\0{n}\0")).is_empty();
        until("the daemons run", || ["4242", "4243", "4244"].iter().all(|n| running(n))).await;
        local.stop(&guest).await.unwrap();
        for n in ["4242", "4243", "4244"] {
            assert!(!running(n), "sleep {n} outlived the stop");
        }
        assert_eq!(kept.exit.await.unwrap(), Exit::Signal(9));
        room.end(&local, &guest).await;
    }
}

#[tokio::test]
async fn a_keeper_that_is_killed_from_outside_was_not_the_guests_choice() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, guest) = room.guest().await;
        assert_eq!(local.stopped(&guest).await.unwrap(), None);
        signal(room.keeper(&guest), "KILL");
        until("the keeper ends", || is_zombie(room.keeper(&guest))).await;
        assert_eq!(local.power(&guest).await.unwrap(), Some(Power::Stopped));
        let cause = local.stopped(&guest).await.unwrap().unwrap();
        assert!(!cause.by_guest, "{cause:?}");
        assert_eq!(local.start(&guest).await.unwrap(), Switched::Done);
        assert_eq!(local.power(&guest).await.unwrap(), Some(Power::Running));
        room.end(&local, &guest).await;
    }
}

#[tokio::test]
async fn a_shutdown_from_inside_was_the_guests_choice() {
    for isolation in BOTH {
        let room = Room::new(isolation);
        let (local, guest) = room.guest().await;
        let pid = if guest.facts["isolation"].contains("no isolation") { room.keeper(&guest) } else { 1 };
        let inside = way(&local, &guest).await;
        let _ = inside.spawn(&["kill".to_owned(), pid.to_string()]).await.unwrap().exit.await;
        until("the keeper ends", || is_zombie(room.keeper(&guest))).await;
        assert_eq!(local.power(&guest).await.unwrap(), Some(Power::Stopped));
        assert!(local.stopped(&guest).await.unwrap().unwrap().by_guest);
        // A machine that restarts shuts everything down too, and then the guest chose nothing.
        let ended = room.folder(&guest).join("ended");
        assert_eq!(fs::read_to_string(&ended).unwrap().trim().len(), 36);
        fs::write(&ended, "another-start\n").unwrap();
        assert!(!local.stopped(&guest).await.unwrap().unwrap().by_guest);
        local.start(&guest).await.unwrap();
        room.end(&local, &guest).await;
    }
}

#[tokio::test]
async fn another_name_thread_and_size_are_recorded() {
    let room = Room::new(Isolation::Auto);
    let (local, guest) = room.guest().await;
    let mut owner = local.held(&room.install).await.unwrap().remove(0).owner;
    owner.name = BoxName::parse("cobalt").unwrap();
    owner.thread = Some(ThreadId::parse("t-1").unwrap());
    for _ in 0..2 {
        local.relabel().unwrap().relabel(&guest, &owner).await.unwrap();
        local.resize().unwrap().resize(&guest, &Size::new(2, 4096)).await.unwrap();
    }
    let held = local.held(&room.install).await.unwrap().remove(0);
    assert_eq!((held.owner, held.guest.size), (owner, Size::new(2, 4096)));
    let kind = KindId::parse("linux").unwrap();
    let room_left = local.capacity(&kind, &room.install).await.unwrap().hosts.remove(0);
    assert_eq!(room_left.limits[0].used, 4096);
    local.stop(&guest).await.unwrap();
    let room_left = local.capacity(&kind, &room.install).await.unwrap().hosts.remove(0);
    assert_eq!((room_left.limits[0].used, room_left.limits[1].used), (0, 1));
    room.end(&local, &guest).await;
}
