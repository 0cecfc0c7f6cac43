//! A reference proves nothing: another install's guest, or another box's, is never touched.

use std::time::Duration;

use bbbox::{
    backend::{Backend, Released},
    error::ErrorKind,
    guest::{Guest, Power},
    id::BoxId,
};

use crate::{
    ability,
    case::{Case, Cost, Stop, Verdict, ensure, ensure_eq, failed},
    lab::{Lab, Quiet, random},
};

const LIMIT: Duration = Duration::from_secs(120);

pub(super) const CASES: &[Case] = &[
    Case {
        name: "another-installs-guest-is-not-released",
        promise: "acts-only-on-its-own",
        needs: ability::nothing,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(is_not_released(lab, another_install)),
    },
    Case {
        name: "another-boxs-guest-is-not-released",
        promise: "acts-only-on-its-own",
        needs: ability::nothing,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(is_not_released(lab, another_box)),
    },
    Case {
        name: "a-new-guest-is-as-offered",
        promise: "a-new-guest-is-as-offered",
        needs: ability::nothing,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(new_is_as_offered(lab)),
    },
    Case {
        name: "another-installs-guest-is-not-switched",
        promise: "acts-only-on-its-own",
        needs: ability::switch,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(is_not_switched(lab, another_install)),
    },
    Case {
        name: "another-boxs-guest-is-not-switched",
        promise: "acts-only-on-its-own",
        needs: ability::switch,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(is_not_switched(lab, another_box)),
    },
    Case {
        name: "another-installs-guest-is-not-resized",
        promise: "acts-only-on-its-own",
        needs: ability::resize,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(is_not_resized(lab)),
    },
    Case {
        name: "another-installs-guest-is-not-relabelled",
        promise: "acts-only-on-its-own",
        needs: ability::relabel,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(is_not_relabelled(lab)),
    },
    Case {
        name: "a-handle-whose-reference-was-used-again-runs-no-commands",
        promise: "acts-only-on-its-own",
        needs: ability::sh,
        cost: Cost::Boxes(2),
        limit: LIMIT,
        body: |lab| Box::pin(runs_no_commands(lab)),
    },
    Case {
        name: "another-boxs-acquire-leaves-a-guest-alone",
        promise: "acts-only-on-its-own",
        needs: ability::nothing,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(acquire_leaves_it_alone(lab)),
    },
];

/// The same reference, as another install would hold it.
fn another_install(lab: &Lab, guest: &Guest) -> Guest {
    Guest { install: lab.other().clone(), ..guest.clone() }
}

/// The same reference, as it would be held after it was used again for another box.
fn another_box(_: &Lab, guest: &Guest) -> Guest {
    Guest { box_id: BoxId::draw(random), ..guest.clone() }
}

type Claim = fn(&Lab, &Guest) -> Guest;

async fn is_not_released(lab: Lab, claim: Claim) -> Verdict {
    let guest = lab.make().await?;
    let theirs = claim(&lab, &guest);
    ensure_eq!(lab.backend().power(&theirs).await?, None, "the power of a guest that is not its own");
    let released = lab.backend().release(&theirs, &Quiet).await?;
    ensure_eq!(released, Released::AlreadyGone, "a release of a guest that is not its own");
    still_there(&lab, &guest, Power::Running).await
}

async fn new_is_as_offered(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let theirs = another_install(&lab, &guest);
    match lab.backend().as_offered(&guest).await? {
        None => return Err(Stop::Skipped("it cannot tell what a guest comes from".to_owned())),
        Some(as_offered) => {
            ensure!(as_offered, "a guest that was just made does not come from what is offered")
        }
    }
    is_gone(lab.backend().as_offered(&theirs).await, "a question about what another's guest comes from")
}

async fn is_not_switched(lab: Lab, claim: Claim) -> Verdict {
    let guest = lab.make().await?;
    let theirs = claim(&lab, &guest);
    is_gone(lab.switch()?.stop(&theirs).await, "stop")?;
    still_there(&lab, &guest, Power::Running).await?;
    lab.switch()?.stop(&guest).await?;
    is_gone(lab.switch()?.start(&theirs).await, "start")?;
    still_there(&lab, &guest, Power::Stopped).await
}

async fn is_not_resized(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let larger = bbbox::size::Size { memory_mib: guest.size.memory_mib + 512, ..guest.size };
    is_gone(lab.resize()?.resize(&another_install(&lab, &guest), &larger).await, "resize")?;
    ensure_eq!(lab.held_of(&guest.box_id).await?[0].guest.size, guest.size, "the guest's size");
    still_there(&lab, &guest, Power::Running).await
}

async fn is_not_relabelled(lab: Lab) -> Verdict {
    let order = lab.order()?;
    let guest = lab.make_from(&order).await?;
    let theirs = another_install(&lab, &guest);
    let taken = bbbox::guest::Owner { install: lab.other().clone(), ..order.owner.clone() };
    is_gone(lab.relabel()?.relabel(&theirs, &taken).await, "relabel")?;
    ensure!(lab.backend().held(lab.other()).await?.is_empty(), "the other install holds the guest now");
    ensure_eq!(lab.held_of(&guest.box_id).await?[0].owner, order.owner, "the owner at the provider");
    still_there(&lab, &guest, Power::Running).await
}

async fn runs_no_commands(lab: Lab) -> Verdict {
    let old = lab.make().await?;
    let transport = lab.transport(&old).await?;
    lab.backend().release(&old, &Quiet).await?;
    // Where references are used again, the next guests have it.
    let next = [lab.make().await?, lab.make().await?];
    let argv = ["true".to_owned()];
    is_gone(transport.spawn(&argv).await, "spawn through a transport from before")?;
    match lab.backend().reach(&old).await {
        Err(error) => ensure_eq!(error.kind(), ErrorKind::Gone, "the kind of the error of a reach"),
        Ok(reach) => is_gone(reach.command.spawn(&argv).await, "spawn")?,
    }
    for guest in &next {
        still_there(&lab, guest, Power::Running).await?;
    }
    Ok(())
}

async fn acquire_leaves_it_alone(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let mut order = lab.order()?;
    // The record of the new box names a guest that is another box's by now.
    order.earlier.guest = Some(Guest { box_id: order.owner.box_id.clone(), ..guest.clone() });
    order.earlier.tries = 1;
    let made = lab.make_from(&order).await?;
    ensure!(made.reference != guest.reference, "a new box was given another box's guest");
    still_there(&lab, &guest, Power::Running).await
}

fn is_gone<T: std::fmt::Debug>(answer: bbbox::Result<T>, what: &str) -> Verdict {
    match answer {
        Ok(done) => failed(format!("a {what} of a guest that is not its own was done: {done:?}")),
        Err(error) => {
            ensure_eq!(error.kind(), ErrorKind::Gone, "the kind of the error of a {what}");
            Ok(())
        }
    }
}

async fn still_there(lab: &Lab, guest: &Guest, power: Power) -> Verdict {
    let fresh: std::sync::Arc<dyn Backend> = lab.fresh()?;
    ensure_eq!(fresh.power(guest).await?, Some(power), "the power of the guest itself");
    Ok(())
}
