//! Changing what a guest is: its size, its owner, its name.

use std::time::Duration;

use bbbox::{
    backend::Order,
    capacity::Counted,
    guest::{Guest, Owner, Power},
    id::{BoxName, ThreadId},
    size::Size,
};

use crate::{
    ability,
    case::{Case, Cost, Verdict, ensure, ensure_eq},
    lab::{Lab, Quiet},
};

const LIMIT: Duration = Duration::from_secs(120);

pub(super) const CASES: &[Case] = &[
    Case {
        name: "resize-is-seen-by-the-provider",
        promise: "resize-is-seen-and-keeps-files",
        needs: ability::resize,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(resize_is_seen(lab)),
    },
    Case {
        name: "resize-keeps-files",
        promise: "resize-is-seen-and-keeps-files",
        needs: ability::sh_resize,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(resize_keeps_files(lab)),
    },
    Case {
        name: "relabel-is-seen-by-held",
        promise: "relabel-is-seen-by-held",
        needs: ability::relabel,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(relabel_is_seen(lab)),
    },
    Case {
        name: "relabel-keeps-the-guest-working",
        promise: "relabel-is-seen-by-held",
        needs: |a| ability::relabel(a).or_else(|| ability::sh(a)),
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(relabel_keeps_it_working(lab)),
    },
    Case {
        name: "relabel-outlives-a-stop",
        promise: "relabel-is-seen-by-held",
        needs: |a| ability::relabel(a).or_else(|| ability::switch(a)),
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(relabel_outlives_a_stop(lab)),
    },
];

fn larger(size: Size) -> Size {
    Size { cores: size.cores + 1, memory_mib: size.memory_mib + 1024, ..size }
}

async fn resize(lab: &Lab, guest: &Guest, size: &Size) -> Verdict<Guest> {
    let resize = lab.resize()?;
    if resize.needs_stop() {
        lab.switch()?.stop(guest).await?;
    }
    let resized = resize.resize(guest, size).await?;
    lab.keep(&resized);
    if resize.needs_stop() {
        lab.switch()?.start(&resized).await?;
        lab.answers(&resized).await?;
    }
    Ok(resized)
}

async fn resize_is_seen(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let size = larger(guest.size);
    let resized = resize(&lab, &guest, &size).await?;
    ensure_eq!(resized.size, size, "the size of the answer");
    for _again in 0..2 {
        let held = lab.fresh()?.held(lab.install()).await?;
        ensure_eq!(held.len(), 1, "how many guests there are");
        ensure_eq!(held[0].guest.size, size, "the size in the list");
        let capacity = lab.backend().capacity(&lab.abilities().offer.kind, lab.install()).await?;
        let counted = capacity.hosts.iter().find_map(|host| host.counted.get(&guest.box_id)).copied();
        ensure_eq!(counted, Some(Counted { size, running: true }), "what the box is counted as");
        ensure_eq!(resize(&lab, &resized, &size).await?.size, size, "the size after it was asked for again");
    }
    let back = resize(&lab, &resized, &guest.size).await?;
    ensure_eq!(back.size, guest.size, "the size when it is given back");
    Ok(())
}

async fn resize_keeps_files(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    lab.sh(&guest, "echo kept >~/kept").await?.good("writing a file")?;
    let resized = resize(&lab, &guest, &larger(guest.size)).await?;
    ensure_eq!(lab.sh(&resized, "cat ~/kept").await?.good("reading the file")?, "kept", "the file");
    Ok(())
}

/// Another name and thread for the box of `order`.
fn renamed(order: &Order, word: &str) -> Verdict<Owner> {
    let tail: String = order.owner.box_id.as_str().chars().skip(2).collect();
    Ok(Owner {
        name: BoxName::parse(format!("{word}-{tail}"))?,
        thread: Some(ThreadId::parse(format!("{word}:{tail}"))?),
        ..order.owner.clone()
    })
}

async fn relabel_is_seen(lab: Lab) -> Verdict {
    let order = lab.order()?;
    let guest = lab.make_from(&order).await?;
    let mut newest = guest.clone();
    let nobodys = Owner { thread: None, ..renamed(&order, "third")? };
    for owner in [renamed(&order, "first")?, renamed(&order, "second")?, nobodys] {
        for _again in 0..2 {
            newest = lab.relabel()?.relabel(&newest, &owner).await?;
            lab.keep(&newest);
            for backend in [lab.shared_backend(), lab.fresh()?] {
                let held = backend.held(lab.install()).await?;
                ensure_eq!(held.len(), 1, "how many guests there are");
                ensure_eq!(held[0].owner, owner, "the owner in the list");
            }
        }
    }
    Ok(())
}

async fn relabel_keeps_it_working(lab: Lab) -> Verdict {
    let order = lab.order()?;
    let guest = lab.make_from(&order).await?;
    lab.sh(&guest, "echo kept >~/kept").await?.good("writing a file")?;
    let relabelled = lab.relabel()?.relabel(&guest, &renamed(&order, "other")?).await?;
    lab.keep(&relabelled);
    // A record may hold the handle from before.
    for handle in [&guest, &relabelled] {
        ensure_eq!(lab.backend().power(handle).await?, Some(Power::Running), "the power");
        ensure_eq!(lab.sh(handle, "cat ~/kept").await?.good("reading the file")?, "kept", "the file");
    }
    lab.backend().release(&guest, &Quiet).await?;
    ensure!(lab.held().await?.is_empty(), "a guest is left after its release");
    ensure_eq!(lab.backend().power(&relabelled).await?, None, "the power after the release");
    Ok(())
}

async fn relabel_outlives_a_stop(lab: Lab) -> Verdict {
    let order = lab.order()?;
    let guest = lab.make_from(&order).await?;
    let owner = renamed(&order, "other")?;
    let relabelled = lab.relabel()?.relabel(&guest, &owner).await?;
    lab.keep(&relabelled);
    lab.switch()?.stop(&relabelled).await?;
    ensure_eq!(lab.held_of(&guest.box_id).await?[0].owner, owner, "the owner of the stopped guest");
    lab.switch()?.start(&relabelled).await?;
    ensure_eq!(lab.held_of(&guest.box_id).await?[0].owner, owner, "the owner of the started guest");
    Ok(())
}
