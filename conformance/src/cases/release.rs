//! Giving a guest back: confirmed, safe to repeat, and possible whatever the guest is doing.

use std::time::Duration;

use bbbox::{
    backend::Released,
    error::ErrorKind,
    guest::{Guest, Power},
    id::BoxId,
};
use tokio::io::AsyncReadExt;

use crate::{
    ability,
    case::{Case, Cost, Verdict, ensure, ensure_eq, failed},
    lab::{Lab, Quiet},
};

const LIMIT: Duration = Duration::from_secs(120);

pub(super) const CASES: &[Case] = &[
    Case {
        name: "release-is-confirmed",
        promise: "release-confirms",
        needs: ability::nothing,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(is_confirmed(lab)),
    },
    Case {
        name: "release-again-is-already-gone",
        promise: "release-again-is-already-gone",
        needs: ability::nothing,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(again_is_already_gone(lab)),
    },
    Case {
        name: "release-of-what-was-never-made-is-already-gone",
        promise: "release-again-is-already-gone",
        needs: ability::nothing,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(of_what_was_never_made(lab)),
    },
    Case {
        name: "release-of-a-stopped-guest",
        promise: "release-confirms",
        needs: ability::switch,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(of_a_stopped_guest(lab)),
    },
    Case {
        name: "release-ends-what-runs-in-the-guest",
        promise: "release-confirms",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(ends_what_runs(lab)),
    },
    Case {
        name: "release-leaves-the-next-guest-nothing",
        promise: "release-confirms",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(leaves_nothing(lab)),
    },
    Case {
        name: "released-guests-are-gone-to-everything",
        promise: "power-is-read-now",
        needs: ability::nothing,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(is_gone_to_everything(lab)),
    },
    Case {
        name: "release-side-by-side-is-one-release",
        promise: "release-again-is-already-gone",
        needs: ability::nothing,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(side_by_side(lab)),
    },
];

async fn is_confirmed(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    ensure_eq!(lab.backend().release(&guest, &Quiet).await?, Released::Removed, "the first release");
    for backend in [lab.shared_backend(), lab.fresh()?] {
        ensure_eq!(backend.power(&guest).await?, None, "the power of the released guest");
        ensure!(backend.held(lab.install()).await?.is_empty(), "the released guest is listed");
    }
    Ok(())
}

async fn again_is_already_gone(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    lab.backend().release(&guest, &Quiet).await?;
    for backend in [lab.shared_backend(), lab.fresh()?] {
        ensure_eq!(backend.release(&guest, &Quiet).await?, Released::AlreadyGone, "another release");
    }
    Ok(())
}

async fn of_what_was_never_made(lab: Lab) -> Verdict {
    let order = lab.order()?;
    let mut hooks = lab.hooks();
    hooks.refuse = true;
    if let Ok(made) = lab.backend().acquire(&order, &hooks).await {
        lab.keep(&made);
        return failed("it made a guest although the claim failed");
    }
    let Some(claimed) = hooks.claimed() else { return failed("it claimed nothing") };
    ensure_eq!(lab.backend().power(&claimed).await?, None, "the power of a guest that was never made");
    let released = lab.backend().release(&claimed, &Quiet).await?;
    ensure_eq!(released, Released::AlreadyGone, "the release of a guest that was never made");
    Ok(())
}

async fn of_a_stopped_guest(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    lab.switch()?.stop(&guest).await?;
    ensure_eq!(lab.backend().power(&guest).await?, Some(Power::Stopped), "the power after a stop");
    ensure_eq!(lab.backend().release(&guest, &Quiet).await?, Released::Removed, "the release");
    ensure_eq!(lab.backend().power(&guest).await?, None, "the power after the release");
    Ok(())
}

async fn ends_what_runs(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let mut process = lab.spawn(&guest, &["sh", "-c", "echo up; exec sleep 1000"]).await?;
    let mut word = [0; 3];
    process.stdout.read_exact(&mut word).await?;
    lab.backend().release(&guest, &Quiet).await?;
    lab.see("the guest is released, and its process has not ended");
    match process.exit.await {
        Ok(exit) => ensure!(!exit.success(), "the process ended with {exit}, as if it had come to its end"),
        Err(error) => ensure!(
            matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Gone),
            "the process ended with {error:?}"
        ),
    }
    Ok(())
}

async fn leaves_nothing(lab: Lab) -> Verdict {
    let first = lab.make().await?;
    lab.sh(&first, "echo secret >~/left-behind").await?.good("writing a file")?;
    lab.backend().release(&first, &Quiet).await?;
    let next = lab.make().await?;
    let found = lab.sh(&next, "ls -A ~ && [ ! -e ~/left-behind ]").await?;
    found.good("the next box's home is without the last one's file").map(drop)
}

async fn is_gone_to_everything(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    lab.backend().release(&guest, &Quiet).await?;
    ensure_eq!(lab.backend().power(&guest).await?, None, "its power");
    if let Some(switch) = lab.backend().switch() {
        gone(switch.start(&guest).await, "start")?;
        gone(switch.stop(&guest).await, "stop")?;
        match switch.stopped(&guest).await {
            Ok(cause) => ensure_eq!(cause, None, "why a guest that is gone is stopped"),
            Err(error) => {
                ensure_eq!(error.kind(), ErrorKind::Gone, "the kind of the error {:?}", error.chain())
            }
        }
    }
    if let Some(resize) = lab.backend().resize() {
        gone(resize.resize(&guest, &guest.size).await, "resize")?;
    }
    match lab.backend().reach(&guest).await {
        Err(error) => ensure_eq!(error.kind(), ErrorKind::Gone, "the kind of the error of a reach"),
        Ok(reach) => {
            gone(reach.command.spawn(&["true".to_owned()]).await, "spawn")?;
            gone(reach.command.probe().await, "probe")?;
        }
    }
    Ok(())
}

async fn side_by_side(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let fresh = lab.fresh()?;
    let answers = tokio::join!(lab.backend().release(&guest, &Quiet), fresh.release(&guest, &Quiet));
    for answer in [answers.0, answers.1] {
        match answer {
            Ok(_) => {}
            // One of two may have to wait for the other.
            Err(error) => {
                ensure_eq!(error.kind(), ErrorKind::Busy, "the kind of the error {:?}", error.chain())
            }
        }
    }
    ensure_eq!(lab.backend().release(&guest, &Quiet).await?, Released::AlreadyGone, "a third release");
    none_of(&lab, &guest.box_id, &guest).await
}

async fn none_of(lab: &Lab, box_id: &BoxId, guest: &Guest) -> Verdict {
    ensure!(lab.held_of(box_id).await?.is_empty(), "the box's guest is still listed");
    ensure_eq!(lab.backend().power(guest).await?, None, "the guest's power");
    Ok(())
}

fn gone<T: std::fmt::Debug>(answer: bbbox::Result<T>, what: &str) -> Verdict {
    match answer {
        Ok(done) => failed(format!("a {what} of a guest that is gone was done: {done:?}")),
        Err(error) => {
            ensure_eq!(
                error.kind(),
                ErrorKind::Gone,
                "the kind of the error of a {what} ({:?})",
                error.chain()
            );
            Ok(())
        }
    }
}
