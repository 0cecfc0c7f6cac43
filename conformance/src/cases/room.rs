//! Room: never more is placed than fits, however many ask at once.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bbbox::{
    boxes::{Acquire, Boxes},
    capacity::{HostRoom, LimitName},
    error::ErrorKind,
    id::BoxId,
    size::{Size, SizeChoice, Sizes},
};
use futures::{StreamExt, future::join_all, stream};

use crate::{
    ability,
    case::{Case, Cost, Stop, Verdict, ensure, ensure_eq, failed},
    faulty::{Faulty, Plan},
    home::{Home, out, refused},
    lab::Lab,
    sim::{Provider, Shape},
};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "the-last-room-goes-to-one-of-two",
        promise: "places-no-more-than-fits",
        needs: ability::sh,
        cost: Cost::Alone,
        limit: Duration::from_secs(180),
        body: |lab| Box::pin(last_room(lab)),
    },
    Case {
        name: "a-thousand-acquires-at-once-place-no-more-than-fits",
        promise: "places-no-more-than-fits",
        needs: ability::nothing,
        cost: Cost::Alone,
        limit: Duration::from_secs(240),
        body: |lab| Box::pin(a_thousand(lab)),
    },
    Case {
        name: "a-closed-host-is-told-as-it-is",
        promise: "nothing-is-left-behind",
        needs: ability::nothing,
        cost: Cost::Alone,
        limit: Duration::from_secs(60),
        body: |lab| Box::pin(closed(lab)),
    },
    Case {
        name: "forty-boxes-eight-at-a-time-leave-nothing",
        promise: "places-no-more-than-fits",
        needs: ability::sh,
        cost: Cost::Alone,
        limit: Duration::from_secs(300),
        body: |lab| Box::pin(forty(lab)),
    },
];

async fn last_room(lab: Lab) -> Verdict {
    let home = Home::new(&lab)?;
    let kind = &lab.abilities().offer.kind;
    let capacity = lab.backend().capacity(kind, lab.install()).await?;
    let free =
        |room: &HostRoom| room.limits.iter().find(|l| l.name == LimitName::Memory).and_then(|l| l.free(0));
    let [room] = capacity.hosts.as_slice() else {
        return Err(Stop::Skipped("it has several hosts, or none".to_owned()));
    };
    let Some(free) = free(room) else {
        return Err(Stop::Skipped("its memory is not limited".to_owned()));
    };
    // More than half of what is free: two do not fit.
    let size = Size { memory_mib: free / 2 + 256, ..lab.abilities().size };
    let sizes = Sizes::standard(!lab.abilities().offer.capabilities.displays.is_empty());
    if !size.fits_in(&sizes.largest) || size.memory_mib > free || size.memory_mib < 2048 {
        return Err(Stop::Skipped(format!("no box fills more than half of its {free} MiB")));
    }
    let ask = || home.request().size(SizeChoice::Custom(size));
    let answers = join_all((0..3).map(|_| home.boxes().acquire(ask()))).await;
    let mut made = Vec::new();
    for answer in answers {
        match answer {
            Ok(handle) => made.push(handle),
            Err(error) => {
                ensure_eq!(
                    error.kind(),
                    ErrorKind::NoCapacity,
                    "the kind of the refusal ({:?})",
                    error.chain()
                );
                ensure!(
                    error.chain().contains("memory is full"),
                    "it does not name what is full: {}",
                    error.chain()
                );
                ensure!(error.how_to_fix().is_some(), "it does not say what to do");
            }
        }
    }
    ensure_eq!(made.len(), 1, "how many of three that fill more than half were made");
    ensure_eq!(home.boxes().list()?.len(), 1, "how many records there are");
    for handle in made {
        handle.release(false).await?;
    }
    // What one gave back, the next takes.
    home.boxes().acquire(ask()).await?.release(false).await?;
    home.is_quiet().await
}

/// A host that takes nothing now is not one that is full: nothing is there to be released.
async fn closed(lab: Lab) -> Verdict {
    let mut home = Home::new(&lab)?;
    let why = "its image is not built; build it";
    home.restart_with(Some(Arc::new(Faulty::new(lab.fresh()?, Plan::calm()).closed(why)))).await?;
    let asked = home.boxes().acquire(home.request()).await;
    let error = refused(asked, ErrorKind::Unavailable, "an acquire where every host is closed")?;
    ensure!(error.chain().contains(why), "it does not say why: {}", error.chain());
    let fix = error.how_to_fix().unwrap_or_default();
    ensure!(fix.contains("mend what is named"), "what it says to do: {fix}");
    home.is_quiet().await
}

/// Boxes come and go, each used once: every one has a guest of its own, and none is left.
async fn forty(lab: Lab) -> Verdict {
    const BOXES: usize = 40;
    let home = Home::new(&lab)?;
    let memory = lab.abilities().size.memory_mib;
    let capacity = lab.backend().capacity(&lab.abilities().offer.kind, lab.install()).await?;
    let fit = |room: &HostRoom| {
        let free =
            room.limits.iter().filter(|limit| limit.name == LimitName::Memory).filter_map(|l| l.free(0));
        free.min().map_or(8, |free| free / memory)
    };
    let at_once = capacity.hosts.iter().map(fit).sum::<u64>().min(8);
    if at_once < 2 {
        return Err(Stop::Skipped(format!("it has room for {at_once} boxes")));
    }
    let home = &home;
    let life = |number: usize| async move {
        let handle = home.acquire().await?;
        let said = out(&handle, &format!("[ ! -e mark ] && echo {number} >mark && cat mark")).await?;
        ensure_eq!(said, number.to_string(), "what box {number} holds");
        handle.release(false).await?;
        Ok::<_, Stop>(handle.id().clone())
    };
    let lives = stream::iter((0..BOXES).map(life)).buffer_unordered(at_once as usize);
    let ids: BTreeSet<BoxId> = lives.collect::<Vec<_>>().await.into_iter().collect::<Verdict<_>>()?;
    ensure_eq!(ids.len(), BOXES, "how many boxes there were");
    ensure_eq!(home.boxes().list()?.len(), 0, "how many records are left");
    home.is_quiet().await
}

/// On a simulated provider, as no real one has the room to ask a thousand times.
async fn a_thousand(_lab: Lab) -> Verdict {
    const FIT: u64 = 24;
    let memory_mib = FIT * 2048 + 1024;
    let provider = Provider::new(Shape { guests: 1000, memory_mib, ..Shape::default() })?;
    let boxes = Boxes::builder().backend(provider.backend()).open()?;
    let kind = boxes.kinds().await.kinds.first().map(|view| view.kind.name);
    let Some(kind) = kind else { return failed("the simulated provider offers nothing") };
    let ask = || Acquire::kind(kind).size(SizeChoice::Custom(Size::new(1, 2048)));
    let answers = join_all((0..1000).map(|_| boxes.acquire(ask()))).await;
    let mut made = Vec::new();
    for answer in answers {
        match answer {
            Ok(handle) => made.push(handle),
            Err(error) => {
                ensure_eq!(
                    error.kind(),
                    ErrorKind::NoCapacity,
                    "the kind of a refusal ({:?})",
                    error.chain()
                );
            }
        }
    }
    ensure_eq!(made.len() as u64, FIT, "how many were made");
    ensure_eq!(provider.guests() as u64, FIT, "how many guests there are");
    ensure!(provider.most_memory_at_once() <= memory_mib, "more memory was in use than there is");
    ensure_eq!(boxes.list()?.len() as u64, FIT, "how many records there are");
    for released in join_all(made.iter().map(|handle| handle.release(false))).await {
        released?;
    }
    ensure_eq!(provider.guests(), 0, "how many guests are left");
    Ok(())
}
