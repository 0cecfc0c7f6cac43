//! Making a guest: the claim first, one guest whatever happens, nothing left when it is taken back.

use std::time::Duration;

use bbbox::{
    backend::{Earlier, Order},
    error::ErrorKind,
    guest::{Guest, Power},
};
use futures::future::join_all;

use crate::{
    ability,
    case::{Case, Cost, Stop, Verdict, ensure, ensure_eq, failed},
    lab::{Lab, Quiet, Word},
};

const LIMIT: Duration = Duration::from_secs(120);
/// How long a request of a dropped acquire may still be on its way.
const SETTLES: Duration = Duration::from_secs(1);

pub(super) const CASES: &[Case] = &[
    Case {
        name: "acquire-claims-before-it-makes",
        promise: "acquire-claims-first",
        needs: ability::nothing,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(claims_before_it_makes(lab)),
    },
    Case {
        name: "acquire-makes-nothing-when-the-claim-fails",
        promise: "acquire-claims-first",
        needs: ability::nothing,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(makes_nothing_unclaimed(lab)),
    },
    Case {
        name: "acquire-marks-the-guest-with-its-owner",
        promise: "acquire-marks-at-creation",
        needs: ability::nothing,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(marks_its_owner(lab)),
    },
    Case {
        name: "acquire-that-is-cut-off-leaves-nothing-unmarked",
        promise: "acquire-marks-at-creation",
        needs: ability::nothing,
        cost: Cost::Alone,
        limit: Duration::from_secs(240),
        body: |lab| Box::pin(cut_off_leaves_nothing_unmarked(lab)),
    },
    Case {
        name: "acquire-returns-a-guest-that-answers",
        promise: "acquire-returns-when-it-answers",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(returns_when_it_answers(lab)),
    },
    Case {
        name: "acquire-again-is-the-same-guest",
        promise: "acquire-again-is-one-guest",
        needs: ability::nothing,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(again_is_the_same_guest(lab)),
    },
    Case {
        name: "acquire-again-makes-what-was-never-made",
        promise: "acquire-again-is-one-guest",
        needs: ability::nothing,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(again_makes_what_was_not(lab)),
    },
    Case {
        name: "acquire-again-after-it-was-cut-off-is-one-guest",
        promise: "acquire-again-is-one-guest",
        needs: ability::nothing,
        cost: Cost::Boxes(1),
        limit: Duration::from_secs(240),
        body: |lab| Box::pin(again_after_a_cut_is_one_guest(lab)),
    },
    Case {
        name: "acquire-side-by-side-makes-different-guests",
        promise: "acquire-again-is-one-guest",
        needs: ability::nothing,
        cost: Cost::Boxes(4),
        limit: LIMIT,
        body: |lab| Box::pin(side_by_side(lab)),
    },
    Case {
        name: "acquire-taken-back-before-it-begins-makes-nothing",
        promise: "acquire-taken-back-leaves-nothing",
        needs: ability::nothing,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(taken_back_before(lab)),
    },
    Case {
        name: "acquire-taken-back-at-the-claim-leaves-nothing",
        promise: "acquire-taken-back-leaves-nothing",
        needs: ability::nothing,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(taken_back_at_the_claim(lab)),
    },
    Case {
        name: "acquire-taken-back-at-any-time-leaves-nothing",
        promise: "acquire-taken-back-leaves-nothing",
        needs: ability::nothing,
        cost: Cost::Boxes(1),
        limit: Duration::from_secs(240),
        body: |lab| Box::pin(taken_back_at_any_time(lab)),
    },
];

async fn claims_before_it_makes(lab: Lab) -> Verdict {
    let order = order(&lab).await?;
    let hooks = lab.hooks();
    let guest = lab.backend().acquire(&order, &hooks).await?;
    lab.keep(&guest);
    let told = hooks.told();
    let Some(Word::Claim { guest: claimed, early }) = told.first() else {
        return failed(format!("the first word was no claim: {told:?}"));
    };
    ensure!(!early, "the provider had a guest of the box when it was claimed");
    ensure_eq!(claimed.install, order.owner.install, "the claim's install");
    ensure_eq!(claimed.box_id, order.owner.box_id, "the claim's box");
    // A claim alone must be enough to take the guest away: the last one, where it had to claim another.
    let Some(last) = hooks.claimed() else { return failed("it claimed nothing") };
    lab.backend().release(&last, &Quiet).await?;
    ensure_eq!(lab.backend().power(&guest).await?, None, "the guest after its claim was released");
    Ok(())
}

async fn makes_nothing_unclaimed(lab: Lab) -> Verdict {
    let order = order(&lab).await?;
    let mut hooks = lab.hooks();
    hooks.refuse = true;
    match lab.backend().acquire(&order, &hooks).await {
        Ok(guest) => {
            lab.keep(&guest);
            return failed("it made a guest although the claim failed");
        }
        Err(error) => ensure_eq!(error.kind(), ErrorKind::Unavailable, "the kind of the claim's own error"),
    }
    ensure!(hooks.told().len() == 1, "it went on after the claim failed: {:?}", hooks.told());
    nothing_of(&lab, &order, hooks.claimed()).await
}

async fn marks_its_owner(lab: Lab) -> Verdict {
    let order = order(&lab).await?;
    let guest = lab.make_from(&order).await?;
    for backend in [lab.shared_backend(), lab.fresh()?] {
        let held = backend.held(lab.install()).await?;
        let [one] = held.as_slice() else {
            return failed(format!("the provider lists {} guests for one box", held.len()));
        };
        ensure_eq!(one.owner, order.owner, "the owner at the provider");
        ensure_eq!(one.guest.reference, guest.reference, "the reference in the list");
        ensure_eq!(one.guest.size, order.size, "the size in the list");
        ensure_eq!(
            backend.power(&one.guest).await?,
            Some(Power::Running),
            "the power of the guest as listed"
        );
    }
    Ok(())
}

/// Cuts an acquire off at several moments: whatever the provider counts then, it lists by its owner.
async fn cut_off_leaves_nothing_unmarked(lab: Lab) -> Verdict {
    let before = counted(&lab).await?;
    if before.is_none() {
        return Err(Stop::Skipped("its capacity counts no guests".to_owned()));
    }
    for after in moments() {
        let order = order(&lab).await?;
        cut_off(&lab, &order, after).await?;
        // Counted first: what comes late is in the list then.
        let now = counted(&lab).await?;
        let held = lab.held().await?.len() as u64;
        ensure!(
            now <= before.map(|before| before + held),
            "cut off after {after:?}, the provider counts {now:?} guests where it counted {before:?}, and lists {held}"
        );
        for held in lab.held().await? {
            ensure_eq!(held.owner, order.owner, "the owner of what was made before it was cut off");
            lab.backend().release(&held.guest, &Quiet).await?;
        }
        lab.clear().await?;
        ensure_eq!(
            counted(&lab).await?,
            before,
            "the guests that are counted after a release, cut off after {after:?}"
        );
    }
    Ok(())
}

async fn returns_when_it_answers(lab: Lab) -> Verdict {
    let order = order(&lab).await?;
    let began = std::time::Instant::now();
    let guest = lab.make_from(&order).await?;
    ensure!(
        began.elapsed() <= lab.abilities().offer.ready_timeout,
        "its commands answered after {:?}, later than its ready timeout",
        began.elapsed()
    );
    ensure_eq!(lab.sh(&guest, "echo here").await?.good("a first command")?, "here", "a first command");
    ensure_eq!(guest.size, order.size, "the guest's size");
    ensure_eq!(
        (&guest.install, &guest.box_id),
        (&order.owner.install, &order.owner.box_id),
        "whose the guest is"
    );
    Ok(())
}

async fn again_is_the_same_guest(lab: Lab) -> Verdict {
    let mut order = order(&lab).await?;
    let guest = lab.make_from(&order).await?;
    for (tries, earlier) in [(1, None), (2, Some(guest.clone()))] {
        order.earlier = Earlier { guest: earlier, task: None, tries };
        let again = lab.fresh()?.acquire(&order, &lab.hooks()).await?;
        lab.keep(&again);
        one_guest(&lab, &order, &again).await?;
    }
    ensure_eq!(
        lab.backend().power(&guest).await?,
        Some(Power::Running),
        "the power of the first answer's guest"
    );
    Ok(())
}

async fn again_makes_what_was_not(lab: Lab) -> Verdict {
    let mut order = order(&lab).await?;
    order.earlier.tries = 3;
    let guest = lab.make_from(&order).await?;
    one_guest(&lab, &order, &guest).await
}

async fn again_after_a_cut_is_one_guest(lab: Lab) -> Verdict {
    for after in moments() {
        let mut order = order(&lab).await?;
        let claimed = cut_off(&lab, &order, after).await?;
        order.earlier = Earlier { guest: claimed, task: None, tries: 1 };
        let guest = again(&lab, &mut order).await?;
        lab.keep(&guest);
        lab.answers(&guest).await?;
        one_guest(&lab, &order, &guest).await?;
        lab.clear().await?;
    }
    Ok(())
}

/// Runs an acquire again as a journal does: a provider that is busy with what was cut off is asked once more.
async fn again(lab: &Lab, order: &mut Order) -> Verdict<Guest> {
    loop {
        match lab.fresh()?.acquire(order, &lab.hooks()).await {
            Err(error)
                if matches!(error.kind(), ErrorKind::Busy | ErrorKind::Unavailable)
                    && order.earlier.tries < 6 =>
            {
                lab.see(error.chain());
                tokio::time::sleep(Duration::from_millis(100) * 2_u32.pow(order.earlier.tries)).await;
                order.earlier.tries += 1;
            }
            answer => return Ok(answer?),
        }
    }
}

async fn side_by_side(lab: Lab) -> Verdict {
    let made = join_all((0..4).map(|_| lab.make())).await.into_iter().collect::<Verdict<Vec<_>>>()?;
    let mut references: Vec<_> = made.iter().map(|guest| &guest.reference).collect();
    references.sort();
    references.dedup();
    ensure_eq!(references.len(), made.len(), "how many guests four acquires made");
    ensure_eq!(lab.held().await?.len(), made.len(), "how many guests are listed");
    Ok(())
}

async fn taken_back_before(lab: Lab) -> Verdict {
    let order = order(&lab).await?;
    order.cancel.cancel();
    let hooks = lab.hooks();
    let answer = lab.backend().acquire(&order, &hooks).await;
    cancelled(answer)?;
    nothing_of(&lab, &order, hooks.claimed()).await
}

async fn taken_back_at_the_claim(lab: Lab) -> Verdict {
    let order = order(&lab).await?;
    let mut hooks = lab.hooks();
    hooks.cancel_at_claim = Some(order.cancel.clone());
    let answer = lab.backend().acquire(&order, &hooks).await;
    cancelled(answer)?;
    nothing_of(&lab, &order, hooks.claimed()).await
}

async fn taken_back_at_any_time(lab: Lab) -> Verdict {
    for after in moments() {
        let order = order(&lab).await?;
        let hooks = lab.hooks();
        let acquire = lab.backend().acquire(&order, &hooks);
        let cancel = async {
            tokio::time::sleep(after).await;
            order.cancel.cancel();
        };
        let (answer, ()) = tokio::join!(acquire, cancel);
        match answer {
            // It was done first.
            Ok(guest) => {
                lab.keep(&guest);
                one_guest(&lab, &order, &guest).await?;
                lab.clear().await?;
            }
            answer => {
                cancelled(answer)?;
                nothing_of(&lab, &order, hooks.claimed()).await?;
            }
        }
    }
    Ok(())
}

/// An order with a host, where the backend names hosts.
async fn order(lab: &Lab) -> Verdict<Order> {
    let host = lab.host(lab.install()).await?;
    Ok(Order { host, ..lab.order()? })
}

/// Moments at which an acquire is cut off or taken back: closer together at its beginning.
fn moments() -> impl Iterator<Item = Duration> {
    [0, 5, 20, 60, 150, 400].into_iter().map(Duration::from_millis)
}

/// Drops an acquire after a while, and returns what it had claimed.
async fn cut_off(lab: &Lab, order: &Order, after: Duration) -> Verdict<Option<Guest>> {
    let hooks = lab.hooks();
    match tokio::time::timeout(after, lab.backend().acquire(order, &hooks)).await {
        Ok(done) => lab.keep(&done?),
        // What it had asked the provider for may still come.
        Err(_) => {
            let came = lab.until("the guest comes", || async {
                let none = lab.held_of(&order.owner.box_id).await.is_ok_and(|held| held.is_empty());
                none.then(|| "it has not".to_owned())
            });
            drop(tokio::time::timeout(SETTLES, came).await);
        }
    }
    Ok(hooks.claimed())
}

/// How many guests of everyone the provider counts, where it counts them.
async fn counted(lab: &Lab) -> Verdict<Option<u64>> {
    use bbbox::capacity::LimitName;
    let capacity = lab.backend().capacity(&lab.abilities().offer.kind, lab.install()).await?;
    let limits = capacity.hosts.iter().flat_map(|host| &host.limits);
    let used: Vec<_> = limits.filter(|l| l.name == LimitName::Guests).map(|l| l.used).collect();
    Ok((!used.is_empty()).then(|| used.iter().sum()))
}

fn cancelled(answer: bbbox::Result<Guest>) -> Verdict {
    match answer {
        Ok(guest) => failed(format!("it made {} although it was taken back", guest.reference)),
        Err(error) => {
            ensure_eq!(error.kind(), ErrorKind::Cancelled, "the kind of the error {:?}", error.chain());
            Ok(())
        }
    }
}

/// The provider has one guest of the order's box: this one.
async fn one_guest(lab: &Lab, order: &Order, guest: &Guest) -> Verdict {
    let held = lab.held_of(&order.owner.box_id).await?;
    let references: Vec<_> = held.iter().map(|held| held.guest.reference.as_str()).collect();
    ensure_eq!(references, [guest.reference.as_str()], "the guests of the box");
    ensure_eq!(held[0].owner, order.owner, "the owner at the provider");
    Ok(())
}

/// The provider has nothing of the order's box.
async fn nothing_of(lab: &Lab, order: &Order, claimed: Option<Guest>) -> Verdict {
    let held = lab.held_of(&order.owner.box_id).await?;
    ensure!(held.is_empty(), "it left {:?}", held.iter().map(|h| &h.guest.reference).collect::<Vec<_>>());
    if let Some(claimed) = claimed {
        ensure_eq!(lab.backend().power(&claimed).await?, None, "the power of what was claimed");
    }
    Ok(())
}
