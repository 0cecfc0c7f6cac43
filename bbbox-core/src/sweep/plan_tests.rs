//! What a sweep does about each thing it may see.

use super::*;
use crate::{
    guest::{Guest, StopCause},
    id::{BoxName, InstallId, KindId},
    kind::{Arch, Capabilities},
    record::Beginning,
};

fn id<T>(draw: impl FnOnce(&mut dyn FnMut() -> u64) -> T, seed: u64) -> T {
    let mut n = seed;
    draw(&mut || {
        n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        n
    })
}

fn box_id(seed: u64) -> BoxId {
    id(|next| BoxId::draw(next), seed)
}

fn guest(seed: u64, reference: &str) -> Guest {
    Guest {
        install: id(|next| InstallId::draw(next), 9),
        box_id: box_id(seed),
        reference: reference.to_owned(),
        host: None,
        address: None,
        size: Size::new(1, 2048),
        data: BTreeMap::new(),
        facts: BTreeMap::new(),
    }
}

fn record(seed: u64, state: BoxState) -> BoxRecord {
    let mut record = BoxRecord::new(Beginning {
        id: box_id(seed),
        name: BoxName::parse(format!("linux-{seed}")).unwrap(),
        thread: Some(thread()),
        kind: KindId::parse("linux").unwrap(),
        size: Size::new(1, 2048),
        made: Timestamp::UNIX_EPOCH,
    });
    record.state = state;
    record.backend = Some(backend());
    record.guest = Some(guest(seed, "g1"));
    record
}

fn thread() -> ThreadId {
    ThreadId::parse("t1").unwrap()
}

fn backend() -> BackendId {
    BackendId::parse("sim").unwrap()
}

fn offer() -> Offer {
    Offer {
        kind: KindId::parse("linux").unwrap(),
        capabilities: Capabilities::linux(Arch::X86_64, "test"),
        ready_timeout: Duration::from_secs(1),
        last: false,
    }
}

fn held(seed: u64, reference: &str) -> Held {
    let guest = guest(seed, reference);
    let record = record(seed, BoxState::Ready);
    Held { owner: record.owner(&guest.install), guest }
}

fn inventory(records: Vec<BoxRecord>, held: Vec<Held>) -> Inventory {
    Inventory {
        now: Timestamp::UNIX_EPOCH,
        powers: records.iter().map(|r| (r.id.clone(), Some(Power::Running))).collect(),
        records,
        held: [(backend(), held)].into(),
        offers: [(backend(), vec![offer()])].into(),
        busy: BTreeSet::new(),
        unknown: BTreeSet::new(),
        given_up: BTreeSet::new(),
        as_offered: BTreeSet::new(),
        threads: [(thread(), ThreadState::Live)].into(),
    }
}

fn words(inventory: &Inventory) -> Vec<String> {
    plan(inventory)
        .actions
        .iter()
        .map(|a| format!("{a:?}").split([' ', '(']).next().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn what_is_as_it_should_be_is_left_alone() {
    assert!(words(&inventory(vec![record(1, BoxState::Ready)], vec![held(1, "g1")])).is_empty());
}

#[test]
fn a_thread_must_be_found_ended_twice_and_not_at_once() {
    let mut seen = inventory(vec![record(1, BoxState::Ready)], vec![]);
    seen.threads.insert(thread(), ThreadState::Ended);
    assert_eq!(words(&seen), ["ThreadEnded"]);
    seen.records[0].thread_ended = Some(seen.now);
    assert!(words(&seen).is_empty(), "a second answer at the same time is no second answer");
    seen.now += BETWEEN_ANSWERS;
    assert_eq!(words(&seen), ["Release"]);
    // A thread that lives after all takes the first answer back.
    seen.threads.insert(thread(), ThreadState::Live);
    assert_eq!(words(&seen), ["ThreadEnded"]);
    // Also while something is under way on its box.
    seen.busy.insert(box_id(1));
    assert_eq!(words(&seen), ["ThreadEnded"]);
    seen.threads.insert(thread(), ThreadState::Ended);
    assert!(words(&seen).is_empty());
}

#[test]
fn a_thread_that_is_not_known_now_releases_nothing() {
    let mut seen = inventory(vec![record(1, BoxState::Ready)], vec![held(2, "g2")]);
    seen.records[0].thread_ended = Some(Timestamp::UNIX_EPOCH);
    seen.threads.clear();
    assert!(words(&seen).is_empty());
}

#[test]
fn a_box_with_an_operation_under_way_is_left_alone() {
    let mut seen = inventory(vec![record(1, BoxState::Releasing)], vec![held(1, "another")]);
    seen.busy.insert(box_id(1));
    assert!(words(&seen).is_empty());
}

#[test]
fn an_unfinished_release_is_finished_and_an_acquire_is_left_to_the_journal() {
    assert_eq!(words(&inventory(vec![record(1, BoxState::Releasing)], vec![held(1, "g1")])), ["Release"]);
    for state in [BoxState::Acquiring, BoxState::Requested] {
        assert!(words(&inventory(vec![record(1, state)], vec![held(1, "g1")])).is_empty(), "{state}");
    }
    // While its backend does not answer, a release would only be waited for.
    let mut silent = inventory(vec![record(1, BoxState::Releasing)], vec![]);
    silent.held.clear();
    assert!(words(&silent).is_empty());
}

#[test]
fn a_state_changes_only_where_the_guest_says_otherwise() {
    for (state, power, checked) in [
        (BoxState::Ready, Some(Power::Running), false),
        (BoxState::Ready, Some(Power::Unknown), false),
        (BoxState::Ready, Some(Power::Stopped), true),
        (BoxState::Ready, None, true),
        (BoxState::Stopped, Some(Power::Stopped), false),
        (BoxState::Stopped, Some(Power::Running), true),
        (BoxState::Stopped, None, true),
        (BoxState::Gone, Some(Power::Running), false),
        (BoxState::Gone, None, false),
    ] {
        let mut seen = inventory(vec![record(1, state)], vec![]);
        seen.powers.insert(box_id(1), power);
        assert_eq!(words(&seen) == ["Check"], checked, "{state} {power:?}");
    }
    // A backend that did not answer says nothing about its guests.
    let mut seen = inventory(vec![record(1, BoxState::Ready)], vec![]);
    seen.powers.clear();
    assert!(words(&seen).is_empty());
}

#[test]
fn a_guest_without_a_record_is_restored_unless_its_box_was_released() {
    let mut seen = inventory(vec![], vec![held(1, "g1")]);
    assert_eq!(words(&seen), ["Adopt"]);
    seen.given_up.insert(box_id(1));
    assert_eq!(words(&seen), ["Stray"]);
    seen.given_up.clear();
    seen.offers.clear();
    assert!(words(&seen).is_empty(), "what the box can do is not known now");
    assert!(plan(&seen).kept[0].contains("is not known now"), "{:?}", plan(&seen).kept);
    seen.offers.insert(backend(), vec![]);
    assert!(plan(&seen).kept[0].contains("does not offer linux"), "{:?}", plan(&seen).kept);
    seen.threads.clear();
    assert!(plan(&seen).kept[0].starts_with("kept guest g1 of box bx"), "{:?}", plan(&seen).kept);
    assert!(plan(&inventory(vec![record(1, BoxState::Ready)], vec![held(1, "g1")])).kept.is_empty());
}

#[test]
fn a_box_gets_what_its_kind_is_offered_with_where_its_guest_comes_from_that() {
    let mut old = record(1, BoxState::Ready);
    old.capabilities = Some(Capabilities::linux(Arch::X86_64, "another"));
    let mut seen = inventory(vec![old], vec![held(1, "g1")]);
    assert!(words(&seen).is_empty(), "its guest may come from what was offered before");
    seen.as_offered.insert(box_id(1));
    assert_eq!(words(&seen), ["Refresh"]);
    seen.records[0].state = BoxState::Acquiring;
    assert!(words(&seen).is_empty(), "what is being made gets it when it is made");
    seen.records[0].state = BoxState::Stopped;
    seen.records[0].capabilities = Some(offer().capabilities);
    seen.powers.insert(box_id(1), Some(Power::Stopped));
    assert!(words(&seen).is_empty());
}

#[test]
fn a_guest_is_never_deleted_on_one_answer_about_its_thread() {
    let mut seen = inventory(vec![], vec![held(1, "g1")]);
    seen.threads.insert(thread(), ThreadState::Ended);
    let actions = plan(&seen).actions;
    let [Action::Adopt(adopt)] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!(adopt.thread_ended, Some(seen.now));
}

#[test]
fn a_reference_means_something_only_at_its_backend() {
    let mut seen = inventory(vec![record(1, BoxState::Ready)], vec![held(1, "g1")]);
    seen.held.insert(BackendId::parse("another").unwrap(), vec![held(1, "g1")]);
    assert_eq!(words(&seen), ["Stray"]);
}

#[test]
fn a_guest_whose_box_holds_another_or_none_is_released() {
    assert_eq!(
        words(&inventory(vec![record(1, BoxState::Ready)], vec![held(1, "g1"), held(1, "g2")])),
        ["Stray"]
    );
    let mut none = record(1, BoxState::Ready);
    none.guest = None;
    assert_eq!(words(&inventory(vec![none], vec![held(1, "g1")])), ["Stray"]);
}

#[test]
fn a_guest_of_a_box_that_is_gone_is_released_once_it_is_seen_to_be_there() {
    let mut seen = inventory(vec![record(1, BoxState::Gone)], vec![held(1, "g1")]);
    seen.powers.clear();
    assert!(words(&seen).is_empty(), "the listing may be old");
    seen.powers.insert(box_id(1), None);
    assert!(words(&seen).is_empty(), "it is gone");
    seen.powers.insert(box_id(1), Some(Power::Running));
    assert_eq!(words(&seen), ["Stray"]);
}

#[test]
fn a_size_that_the_record_does_not_know_of_is_looked_at() {
    let mut grown = held(1, "g1");
    grown.guest.size = Size::new(1, 4096);
    assert_eq!(words(&inventory(vec![record(1, BoxState::Ready)], vec![grown])), ["Check"]);
    let mut unknown = record(1, BoxState::Ready);
    unknown.resize_to = Some(Size::new(1, 4096));
    assert_eq!(words(&inventory(vec![unknown], vec![held(1, "g1")])), ["Check"]);
}

#[test]
fn a_box_is_started_again_once_in_ten_minutes_and_never_against_its_will() {
    let cause = |by_guest| Some(StopCause { by_guest, words: String::new() });
    let mut stopped = record(1, BoxState::Stopped);
    let now = Timestamp::UNIX_EPOCH + Duration::from_secs(600);
    assert!(!may_start_again(&stopped, now), "somebody stopped it");
    stopped.stopped_by = cause(true);
    assert!(!may_start_again(&stopped, now));
    stopped.stopped_by = cause(false);
    assert!(may_start_again(&stopped, now));
    stopped.started_again = Some(Timestamp::UNIX_EPOCH + Duration::from_secs(1));
    assert!(!may_start_again(&stopped, now));
    stopped.started_again = Some(Timestamp::UNIX_EPOCH);
    assert!(may_start_again(&stopped, now));
    stopped.state = BoxState::Ready;
    assert!(!may_start_again(&stopped, now));
    // Also when bb-box itself was restarted in between.
    let mut down = record(1, BoxState::Stopped);
    down.stopped_by = cause(false);
    let mut seen = inventory(vec![down], vec![held(1, "g1")]);
    seen.powers.insert(box_id(1), Some(Power::Stopped));
    assert_eq!(words(&seen), ["StartAgain"]);
}
