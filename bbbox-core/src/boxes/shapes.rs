//! What programs read as JSON, held to what it was: each public value with every field filled.

use std::collections::{BTreeMap, BTreeSet};

use insta::assert_json_snapshot;
use jiff::Timestamp;
use serde_json::json;

use super::{BackendImage, KindOffer, KindView, Status};
use crate::{
    backend::{Check, CheckOutcome, Image, ImageBuild},
    error::{Effect, Error},
    guest::{Guest, Power, StopCause},
    id::{BackendId, BoxId, BoxName, InstallId, KindId, OperationId, ThreadId},
    journal::{State, StepSummary, Summary, UndoSummary},
    kind::{Arch, Capabilities, ComputerUse, DisplayAbility, DisplayProtocol, Feature, standard},
    record::{Beginning, BoxRecord, BoxState, Timing, Unanswered},
    size::{Size, Sizes},
    store::{LogEvent, Logged},
    sweep::Report,
};

const AT: Timestamp = Timestamp::UNIX_EPOCH;

fn kind() -> KindId {
    KindId::parse("linux").unwrap()
}

fn box_id() -> BoxId {
    BoxId::parse("bx000000000001").unwrap()
}

fn backend() -> BackendId {
    BackendId::parse("one").unwrap()
}

fn features() -> BTreeSet<Feature> {
    [Feature::parse("extra").unwrap()].into()
}

fn error() -> Error {
    Error::unavailable("it does not answer")
        .effect(Effect::Unknown)
        .at("box", box_id())
        .fix("try again")
        .because_of("its own words")
}

fn size() -> Size {
    Size { disk_mib: Some(8192), ..Size::new(2, 4096) }
}

fn capabilities() -> Capabilities {
    Capabilities {
        features: features(),
        displays: vec![DisplayAbility {
            id: "main".to_owned(),
            protocol: DisplayProtocol::Rfb,
            resizable: true,
        }],
        computer_use: Some(ComputerUse {
            driver: "driver".to_owned(),
            version: "1".to_owned(),
            socket: "/run/socket".to_owned(),
        }),
        ..Capabilities::linux(Arch::X86_64, "process")
    }
}

fn record() -> BoxRecord {
    let guest = Guest {
        install: InstallId::parse("in000000000001").unwrap(),
        box_id: box_id(),
        reference: "reference".to_owned(),
        host: Some("host".to_owned()),
        address: Some([10, 0, 0, 1].into()),
        size: size(),
        data: BTreeMap::from([("key".to_owned(), "value".to_owned())]),
        facts: BTreeMap::from([("isolation".to_owned(), "none".to_owned())]),
    };
    BoxRecord {
        features: features(),
        resize_to: Some(size()),
        state: BoxState::Ready,
        backend: Some(backend()),
        host: guest.host.clone(),
        guest: Some(guest),
        capabilities: Some(capabilities()),
        passed_over: vec!["words".to_owned()],
        timings: vec![Timing { step: "made".to_owned(), ms: 5 }],
        trouble: Some("words".to_owned()),
        before: Some(BoxState::Stopped),
        stopped_by: Some(StopCause { by_guest: true, words: "words".to_owned() }),
        started_again: Some(AT),
        thread_ended: Some(AT),
        unanswered: Some(Unanswered { since: AT, tries: 1, next: AT, words: "words".to_owned() }),
        ..BoxRecord::new(Beginning {
            id: box_id(),
            name: BoxName::parse("dev").unwrap(),
            thread: Some(ThreadId::parse("thread").unwrap()),
            kind: kind(),
            size: size(),
            made: AT,
        })
    }
}

fn operation() -> Summary {
    Summary {
        id: OperationId::parse("op000000000001").unwrap(),
        kind: "start".to_owned(),
        version: 1,
        boxes: vec![box_id()],
        by: "by you".to_owned(),
        args: json!({ "box": box_id() }),
        state: State::Undoing,
        cancel: true,
        error: Some(error()),
        result: Some(json!(null)),
        began: AT,
        ended: Some(AT),
        steps: vec![StepSummary {
            key: "make".to_owned(),
            state: "done".to_owned(),
            tries: 1,
            task: Some("task".to_owned()),
            error: Some(error()),
            began: AT,
            ended: Some(AT),
        }],
        undos: vec![UndoSummary {
            step: "make".to_owned(),
            kind: "release-guest".to_owned(),
            payload: json!("payload"),
            state: "armed".to_owned(),
            failures: 1,
            error: Some(error()),
        }],
    }
}

#[test]
fn what_programs_read_as_json_keeps_its_shape() {
    let status = Status {
        record: record(),
        power: Some(Power::Running),
        power_trouble: Some("words".to_owned()),
        operations: vec![operation()],
    };
    assert_json_snapshot!("status", status);
    let event = LogEvent {
        at: AT,
        box_id: box_id(),
        kind: "ready".to_owned(),
        by: "by you".to_owned(),
        words: "words".to_owned(),
        operation: Some(operation().id),
    };
    let image = Image {
        kind: kind(),
        name: "image".to_owned(),
        build: Some(ImageBuild { id: "build".to_owned(), made: AT, bytes: Some(1) }),
        due: Some("words".to_owned()),
    };
    let view = KindView {
        kind: *standard(&kind()).unwrap(),
        on: true,
        sizes: Sizes::standard(false),
        offers: vec![KindOffer {
            backend: backend(),
            on: true,
            place: Some("words".to_owned()),
            transport: Some("process".to_owned()),
            features: features(),
            ready_seconds: 30,
            disagrees: vec!["os".to_owned()],
        }],
    };
    let words = || vec!["words".to_owned()];
    let others = json!({
        "logged": Logged { seq: 1, event },
        "image": BackendImage { backend: backend(), image },
        "kind": view,
        "report": Report { done: words(), kept: words(), troubles: words() },
        "check": Check {
            id: "one.folder".to_owned(),
            outcome: CheckOutcome::Warning,
            words: "words".to_owned(),
            fix: Some("words".to_owned()),
        },
    });
    assert_json_snapshot!("others", others);
}
