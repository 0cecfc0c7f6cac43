//! What a backend says of itself and of what it holds: offers, lists, capacity, doctor.

use std::{collections::BTreeSet, time::Duration};

use bbbox::{
    backend::CheckOutcome,
    capacity::{Capacity, Counted, LimitName},
    guest::Guest,
    kind::{Arch, Os, Shell, disagreements, standard},
};

use crate::{
    ability,
    case::{Case, Cost, Stop, Verdict, ensure, ensure_eq, failed},
    lab::Lab,
};

const LIMIT: Duration = Duration::from_secs(120);

pub(super) const CASES: &[Case] = &[
    Case {
        name: "offers-are-standard-kinds-and-agree",
        promise: "offers-are-of-known-kinds",
        needs: ability::nothing,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(offers_agree(lab)),
    },
    Case {
        name: "offers-system-and-architecture-are-the-boxs",
        promise: "offers-are-of-known-kinds",
        needs: ability::linux_sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(offers_are_true(lab)),
    },
    Case {
        name: "offers-administrator-is-the-boxs",
        promise: "offers-are-of-known-kinds",
        needs: ability::admin,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(offers_admin(lab)),
    },
    Case {
        name: "offers-docker-is-in-the-box",
        promise: "offers-are-of-known-kinds",
        needs: ability::docker_inside,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(offers_docker(lab)),
    },
    Case {
        name: "held-lists-exactly-this-installs-guests",
        promise: "held-is-this-installs",
        needs: ability::nothing,
        cost: Cost::Boxes(3),
        limit: LIMIT,
        body: |lab| Box::pin(held_is_this_installs(lab)),
    },
    Case {
        name: "held-lists-a-stopped-guest",
        promise: "held-is-this-installs",
        needs: ability::switch,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(held_lists_stopped(lab)),
    },
    Case {
        name: "capacity-counts-every-installs-guests",
        promise: "capacity-counts-what-it-lists",
        needs: ability::nothing,
        cost: Cost::Alone,
        limit: LIMIT,
        body: |lab| Box::pin(capacity_counts(lab)),
    },
    Case {
        name: "capacity-counts-a-stopped-guest-as-stopped",
        promise: "capacity-counts-what-it-lists",
        needs: ability::switch,
        cost: Cost::Alone,
        limit: LIMIT,
        body: |lab| Box::pin(capacity_counts_stopped(lab)),
    },
    Case {
        name: "doctor-finds-no-failure",
        promise: "doctor-checks-the-setup",
        needs: ability::nothing,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(doctor_finds_none(lab)),
    },
];

async fn offers_agree(lab: Lab) -> Verdict {
    let offers = lab.backend().offers().await?;
    let mut kinds = BTreeSet::new();
    for offer in &offers {
        ensure!(kinds.insert(offer.kind.clone()), "it offers {} twice", offer.kind);
        let Some(kind) = standard(&offer.kind) else {
            return failed(format!("it offers {}, which is no standard kind", offer.kind));
        };
        let differs = disagreements(kind, &offer.capabilities, None);
        ensure!(differs.is_empty(), "its offer of {} differs from the kind in {differs:?}", offer.kind);
        ensure!(!offer.ready_timeout.is_zero(), "its offer of {} gives no time to get ready", offer.kind);
    }
    ensure_eq!(lab.fresh()?.offers().await?, offers, "the offers of a fresh handle");
    Ok(())
}

async fn offers_are_true(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let uname = lab.sh(&guest, "uname -sm").await?.good("uname")?;
    let declared = &lab.abilities().offer.capabilities;
    let right = match (declared.os, declared.arch) {
        (Os::Linux, Arch::X86_64) => "Linux x86_64",
        (Os::Linux, Arch::Arm64) => "Linux aarch64",
        other => return Err(Stop::Skipped(format!("there is no check for {other:?}"))),
    };
    ensure_eq!(uname, right, "the box's system");
    let traits = lab.transport(&guest).await?.traits();
    let Some(command) = &declared.command else { return failed("it declares no commands") };
    ensure_eq!(traits.shell, Shell::Sh, "the transport's shell");
    ensure_eq!(traits.admin, command.admin, "whether the transport's user may become administrator");
    ensure_eq!(traits.streaming, command.streaming, "whether the transport's output comes as it is written");
    ensure_eq!(
        traits.in_desktop_session,
        command.in_desktop_session,
        "whether commands are in the desktop session"
    );
    Ok(())
}

async fn offers_admin(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let user =
        lab.sh(&guest, r#"[ "$(id -u)" = 0 ] && id -u || sudo -n id -u"#).await?.good("becoming root")?;
    ensure_eq!(user, "0", "the administrator's user ID");
    Ok(())
}

async fn offers_docker(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let version =
        lab.sh(&guest, "docker version --format '{{.Server.Version}}'").await?.good("docker version")?;
    ensure!(!version.is_empty(), "the engine in the box has no version");
    Ok(())
}

async fn held_is_this_installs(lab: Lab) -> Verdict {
    let mine = [lab.make().await?, lab.make().await?];
    let theirs = lab.make_from(&lab.order_of(lab.other())?).await?;
    for backend in [lab.shared_backend(), lab.fresh()?] {
        let list = async |install| -> Verdict<BTreeSet<String>> {
            Ok(backend.held(install).await?.into_iter().map(|held| held.guest.reference).collect())
        };
        let own: BTreeSet<_> = mine.iter().map(|guest| guest.reference.clone()).collect();
        ensure_eq!(list(lab.install()).await?, own, "this install's guests");
        ensure_eq!(list(lab.other()).await?, [theirs.reference.clone()].into(), "the other install's guests");
    }
    Ok(())
}

async fn held_lists_stopped(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    lab.switch()?.stop(&guest).await?;
    ensure_eq!(lab.held_of(&guest.box_id).await?.len(), 1, "how many guests of the stopped box are listed");
    Ok(())
}

async fn capacity_counts(lab: Lab) -> Verdict {
    let before = capacity(&lab).await?;
    let mine = lab.make().await?;
    let theirs = lab.make_from(&lab.order_of(lab.other())?).await?;
    let after = capacity(&lab).await?;
    for name in [LimitName::Guests, LimitName::Memory, LimitName::Disk, LimitName::Cpu, LimitName::Machines] {
        let (Some(was), Some(is)) = (used(&before, name), used(&after, name)) else { continue };
        let need = name.need(&mine.size, true) + name.need(&theirs.size, true);
        ensure_eq!(is.saturating_sub(was), need, "how much more {name} is used with two more guests");
    }
    let counted: Vec<_> = after.hosts.iter().flat_map(|host| &host.counted).collect();
    let [(box_id, as_counted)] = counted.as_slice() else {
        return failed(format!("it counts {} boxes of an install that has one", counted.len()));
    };
    ensure_eq!(**box_id, mine.box_id, "the box that is counted");
    ensure_eq!(**as_counted, Counted { size: mine.size, running: true }, "what the box is counted as");
    let place =
        after.hosts.iter().find(|host| host.counted.contains_key(&mine.box_id)).map(|host| &host.host);
    ensure_eq!(place, Some(&mine.host), "the host that counts the box");
    Ok(())
}

async fn capacity_counts_stopped(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let running = capacity(&lab).await?;
    lab.switch()?.stop(&guest).await?;
    let stopped = capacity(&lab).await?;
    ensure_eq!(
        as_counted(&stopped, &guest),
        Some(Counted { size: guest.size, running: false }),
        "the stopped box"
    );
    for name in [LimitName::Guests, LimitName::Memory, LimitName::Disk, LimitName::Cpu] {
        let (Some(was), Some(is)) = (used(&running, name), used(&stopped, name)) else { continue };
        let freed = name.need(&guest.size, true) - name.need(&guest.size, false);
        ensure_eq!(was.saturating_sub(is), freed, "how much {name} a stop freed");
    }
    Ok(())
}

async fn doctor_finds_none(lab: Lab) -> Verdict {
    let checks = lab.backend().doctor().await;
    ensure!(!checks.is_empty(), "the doctor checks nothing");
    let mut ids = BTreeSet::new();
    for check in &checks {
        ensure!(ids.insert(&check.id), "two checks are called {}", check.id);
        ensure!(!check.words.is_empty(), "{} does not say what was seen", check.id);
        ensure!(
            check.outcome == CheckOutcome::Ok || check.fix.is_some(),
            "{} found {:?} and does not say what to do",
            check.id,
            check.words
        );
        ensure!(check.outcome != CheckOutcome::Failure, "{} failed: {}", check.id, check.words);
    }
    Ok(())
}

async fn capacity(lab: &Lab) -> Verdict<Capacity> {
    Ok(lab.backend().capacity(&lab.abilities().offer.kind, lab.install()).await?)
}

/// What is used of a limit on all hosts; `None` where it is not limited.
fn used(capacity: &Capacity, name: LimitName) -> Option<u64> {
    let limits = capacity.hosts.iter().flat_map(|host| &host.limits).filter(|limit| limit.name == name);
    limits.map(|limit| limit.used).reduce(|a, b| a + b)
}

fn as_counted(capacity: &Capacity, guest: &Guest) -> Option<Counted> {
    capacity.hosts.iter().find_map(|host| host.counted.get(&guest.box_id)).copied()
}
