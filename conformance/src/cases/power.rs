//! Stopping and starting: the disk stays, the answers are true, nothing starts a box but a start.

use std::time::Duration;

use bbbox::{
    backend::Switched,
    error::ErrorKind,
    guest::{Guest, Power},
};
use tokio::io::AsyncReadExt;

use crate::{
    ability,
    case::{Case, Cost, Stop, Verdict, ensure, ensure_eq, failed},
    lab::Lab,
};

const LIMIT: Duration = Duration::from_secs(120);

pub(super) const CASES: &[Case] = &[
    Case {
        name: "stop-keeps-files",
        promise: "stop-keeps-the-disk",
        needs: ability::sh_switch,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(keeps_files(lab)),
    },
    Case {
        name: "switch-says-what-it-did",
        promise: "switch-says-what-it-did",
        needs: ability::switch,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(says_what_it_did(lab)),
    },
    Case {
        name: "power-is-what-the-provider-says-now",
        promise: "power-is-read-now",
        needs: ability::switch,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(power_is_read_now(lab)),
    },
    Case {
        name: "stop-ends-what-runs-in-the-guest",
        promise: "stop-keeps-the-disk",
        needs: ability::sh_switch,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(stop_ends_what_runs(lab)),
    },
    Case {
        name: "spawn-does-not-start-a-stopped-box",
        promise: "spawn-never-starts-a-box",
        needs: ability::sh_switch,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(nothing_starts_it(lab)),
    },
    Case {
        name: "start-makes-an-old-handle-work-again",
        promise: "probe-dials-afresh",
        needs: ability::sh_switch,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(old_handles_work(lab)),
    },
    Case {
        name: "a-guest-ended-by-a-fault-did-not-choose-it",
        promise: "stopped-tells-who-chose-it",
        needs: ability::switch,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(ended_by_a_fault(lab)),
    },
    Case {
        name: "a-guest-shut-down-from-inside-chose-it",
        promise: "stopped-tells-who-chose-it",
        needs: ability::sh_switch,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(shut_down_from_inside(lab)),
    },
];

async fn keeps_files(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    lab.sh(&guest, "printf 'kept\\n' >~/kept && chmod 640 ~/kept && sync").await?.good("writing a file")?;
    for round in 1..=2 {
        lab.switch()?.stop(&guest).await?;
        lab.switch()?.start(&guest).await?;
        lab.answers(&guest).await?;
        let file = lab.sh(&guest, "cat ~/kept && stat -c %a ~/kept").await?.good("reading the file")?;
        ensure_eq!(file, "kept\n640", "the file and its mode after stop and start {round}");
    }
    Ok(())
}

async fn says_what_it_did(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let switch = lab.switch()?;
    ensure_eq!(switch.start(&guest).await?, Switched::Already, "a start of a guest that runs");
    ensure_eq!(switch.stop(&guest).await?, Switched::Done, "a stop of a guest that runs");
    ensure_eq!(switch.stop(&guest).await?, Switched::Already, "a stop of a stopped guest");
    ensure_eq!(switch.start(&guest).await?, Switched::Done, "a start of a stopped guest");
    ensure_eq!(switch.start(&guest).await?, Switched::Already, "a start of a started guest");
    Ok(())
}

async fn power_is_read_now(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    // What one handle changed, the other sees at once.
    let fresh = lab.fresh()?;
    ensure_eq!(fresh.power(&guest).await?, Some(Power::Running), "the power of a new guest");
    lab.switch()?.stop(&guest).await?;
    ensure_eq!(fresh.power(&guest).await?, Some(Power::Stopped), "the power of a stopped guest");
    lab.switch()?.start(&guest).await?;
    ensure_eq!(fresh.power(&guest).await?, Some(Power::Running), "the power of a started guest");
    Ok(())
}

async fn stop_ends_what_runs(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let mut process = lab.spawn(&guest, &["sh", "-c", "echo up; exec sleep 1000"]).await?;
    let mut word = [0; 3];
    process.stdout.read_exact(&mut word).await?;
    lab.switch()?.stop(&guest).await?;
    lab.see("the guest is stopped, and its process has not ended");
    match process.exit.await {
        Ok(exit) => ensure!(!exit.success(), "the process ended with {exit}, as if it had come to its end"),
        Err(error) => {
            ensure_eq!(error.kind(), ErrorKind::Unavailable, "the kind of the error {:?}", error.chain())
        }
    }
    Ok(())
}

async fn nothing_starts_it(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    lab.switch()?.stop(&guest).await?;
    let transport = lab.transport(&guest).await?;
    refused(transport.spawn(&["true".to_owned()]).await, "spawn")?;
    refused(transport.probe().await, "probe")?;
    if let Ok(route) = transport.route(22).await {
        ensure!(route.open().await.is_err(), "a route into a stopped box opened");
    }
    ensure_eq!(lab.backend().power(&guest).await?, Some(Power::Stopped), "the power after all that");
    Ok(())
}

async fn old_handles_work(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let transport = lab.transport(&guest).await?;
    transport.probe().await?;
    lab.switch()?.stop(&guest).await?;
    refused(transport.probe().await, "probe")?;
    lab.switch()?.start(&guest).await?;
    lab.until("the old handle works", || async { transport.probe().await.err().map(|e| e.chain()) }).await?;
    let process = transport.spawn(&["echo".to_owned(), "here".to_owned()]).await?;
    ensure_eq!(crate::lab::said(process, b"").await?.text(), "here", "a command through the old handle");
    Ok(())
}

async fn ended_by_a_fault(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    lab.crash(&guest).await?;
    let stopped = || async {
        let power = lab.backend().power(&guest).await;
        (!matches!(power, Ok(Some(Power::Stopped)))).then(|| format!("its power is {power:?}"))
    };
    lab.until("it is stopped", stopped).await?;
    match lab.switch()?.stopped(&guest).await? {
        None => Err(Stop::Skipped("its provider cannot tell why a guest is stopped".to_owned())),
        Some(cause) => {
            ensure!(!cause.by_guest, "it says that the guest chose it: {}", cause.words);
            ensure!(!cause.words.is_empty(), "it says nothing for people");
            Ok(())
        }
    }
}

async fn shut_down_from_inside(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    // Where a box shares its host's processes, the first of them is the host's.
    let own = lab.sh(&guest, "readlink /proc/self/ns/pid").await?.text();
    let hosts = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    if own.is_empty() || hosts.as_os_str() == own.as_str() {
        return Err(Stop::Skipped("its boxes have no first process of their own".to_owned()));
    }
    let shut_down = "if [ \"$(id -u)\" = 0 ]; then kill -TERM 1; else sudo -n kill -TERM 1; fi";
    // The command may go down with the box.
    drop(lab.sh(&guest, shut_down).await);
    if !stops_within(&lab, &guest, Duration::from_secs(15)).await? {
        return Err(Stop::Skipped(
            "its boxes do not shut down when their first process is asked to end".to_owned(),
        ));
    }
    match lab.switch()?.stopped(&guest).await? {
        None => Err(Stop::Skipped("its provider cannot tell why a guest is stopped".to_owned())),
        Some(cause) => {
            ensure!(cause.by_guest, "it says that the guest did not choose it: {}", cause.words);
            lab.switch()?.start(&guest).await?;
            lab.answers(&guest).await
        }
    }
}

/// Whether the guest comes to a stop, and stays there for a moment.
async fn stops_within(lab: &Lab, guest: &Guest, time: Duration) -> Verdict<bool> {
    let stopped = || async { matches!(lab.backend().power(guest).await, Ok(Some(Power::Stopped))) };
    let stops = lab.until("it stops", || async { (!stopped().await).then(|| "it runs".to_owned()) });
    if tokio::time::timeout(time, stops).await.is_err() {
        return Ok(false);
    }
    // A provider may start it again by itself.
    tokio::time::sleep(Duration::from_millis(500)).await;
    Ok(stopped().await)
}

fn refused<T: std::fmt::Debug>(answer: bbbox::Result<T>, what: &str) -> Verdict {
    match answer {
        Ok(_) => failed(format!("a {what} in a stopped box was done")),
        Err(error) => {
            ensure_eq!(
                error.kind(),
                ErrorKind::Refused,
                "the kind of the error of a {what} ({:?})",
                error.chain()
            );
            Ok(())
        }
    }
}
