//! How a process ends: its true status, at once, and everything it started when it is killed.

use std::time::{Duration, Instant};

use bbbox::{guest::Guest, transport::Exit};
use futures::future::join_all;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use crate::{
    ability,
    case::{Case, Cost, Verdict, ensure, ensure_eq},
    lab::Lab,
};

const LIMIT: Duration = Duration::from_secs(120);
/// How long an end may take to be told that has happened.
const AT_ONCE: Duration = Duration::from_secs(10);

pub(super) const CASES: &[Case] = &[
    Case {
        name: "exit-codes-come-back",
        promise: "exit-is-true",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(codes_come_back(lab)),
    },
    Case {
        name: "a-death-by-signal-comes-back",
        promise: "exit-is-true",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(signals_come_back(lab)),
    },
    Case {
        name: "a-command-that-is-not-there-exits-127",
        promise: "exit-is-true",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(missing_is_127(lab)),
    },
    Case {
        name: "exit-comes-while-something-holds-the-output",
        promise: "exit-is-told-at-once",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(output_held(lab)),
    },
    Case {
        name: "closing-its-own-output-does-not-end-a-command",
        promise: "exit-is-told-at-once",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(output_closed(lab)),
    },
    Case {
        name: "dropping-a-process-closes-its-streams-and-no-more",
        promise: "kill-ends-what-it-started",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(dropped(lab)),
    },
    Case {
        name: "kill-ends-a-process-and-its-children",
        promise: "kill-ends-what-it-started",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(kill_ends_all(lab)),
    },
    Case {
        name: "kill-after-the-end-is-safe",
        promise: "kill-ends-what-it-started",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(kill_after_the_end(lab)),
    },
    Case {
        name: "kill-ends-no-other-process",
        promise: "kill-ends-what-it-started",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(kill_ends_no_other(lab)),
    },
];

async fn codes_come_back(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let codes = [0, 1, 2, 3, 64, 125, 126, 127, 128, 129, 130, 137, 143, 254, 255];
    let ends = codes.map(|code: u8| {
        let (lab, guest) = (&lab, &guest);
        async move { lab.sh(guest, &format!("exit {code}")).await.map(|said| said.exit) }
    });
    for (code, end) in codes.into_iter().zip(join_all(ends).await) {
        ensure_eq!(end?.shell_status(), code, "the status of exit {code}");
    }
    Ok(())
}

async fn signals_come_back(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    for (name, number) in [("HUP", 1), ("INT", 2), ("KILL", 9), ("USR1", 10), ("TERM", 15)] {
        let exit = lab.sh(&guest, &format!("kill -{name} $$; sleep 60")).await?.exit;
        // A provider may tell a signal as a shell does.
        ensure_eq!(exit.shell_status(), 128 + number, "the status of a death by {name}");
        ensure!(!exit.success(), "a death by {name} is told as a success");
    }
    Ok(())
}

async fn missing_is_127(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    for missing in ["no-such-command-anywhere", "/no/such/file", "./no-such-file"] {
        let said = lab.run(&guest, &[missing, "argument"], b"").await?;
        ensure_eq!(said.exit, Exit::Code(127), "how {missing:?} ended");
    }
    Ok(())
}

async fn output_held(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let mut process = lab.spawn(&guest, &["sh", "-c", "sleep 300 & echo $!; exit 4"]).await?;
    let began = Instant::now();
    lab.see("the command ended, something holds its output, and the exit has not come");
    ensure_eq!(process.exit.await?, Exit::Code(4), "how the command ended");
    ensure!(began.elapsed() < AT_ONCE, "the exit came after {:?}", began.elapsed());
    let mut line = String::new();
    BufReader::new(&mut process.stdout).read_line(&mut line).await?;
    let sleeper = line.trim_end().to_owned();
    ensure!(lives(&lab, &guest, &sleeper).await?, "what the command left running was ended with it");
    Ok(())
}

async fn output_closed(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let script = "exec >&- 2>&-; sleep 1; echo on >~/ran-on; exit 7";
    let said = lab.sh(&guest, script).await?;
    ensure_eq!(said.exit, Exit::Code(7), "how it ended");
    ensure_eq!(
        lab.sh(&guest, "cat ~/ran-on").await?.good("reading its file")?,
        "on",
        "what it did afterwards"
    );
    Ok(())
}

async fn dropped(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let script = "echo $$ >~/pid; while read -r line; do :; done; sleep 1; echo on >~/ran-on; exec sleep 300";
    drop(lab.spawn(&guest, &["sh", "-c", script]).await?);
    lab.until("the command runs on without its streams", || async {
        let file = lab.sh(&guest, "cat ~/ran-on").await;
        (!file.as_ref().is_ok_and(|said| said.exit.success())).then(|| format!("{file:?}"))
    })
    .await?;
    let pid = lab.sh(&guest, "cat ~/pid").await?.good("reading its ID")?;
    ensure!(lives(&lab, &guest, &pid).await?, "it ended when nobody held it");
    Ok(())
}

async fn kill_ends_all(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let script =
        "sleep 300 & sh -c 'trap \"\" TERM HUP INT; echo $$; sleep 300 & echo $!; wait' & echo $!; wait";
    let mut process = lab.spawn(&guest, &["sh", "-c", script]).await?;
    let (mut pids, mut line) = (Vec::new(), String::new());
    let mut lines = BufReader::new(&mut process.stdout);
    while pids.len() < 3 {
        line.clear();
        ensure!(lines.read_line(&mut line).await? > 0, "the command ended early");
        pids.push(line.trim_end().to_owned());
    }
    process.kill.await?;
    lab.see("it was killed, and its exit has not come");
    ensure!(!process.exit.await?.success(), "a killed command is told as a success");
    for pid in pids {
        ends(&lab, &guest, &pid).await?;
    }
    Ok(())
}

async fn kill_after_the_end(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let mut process = lab.spawn(&guest, &["sh", "-c", "echo here; exit 6"]).await?;
    let exit = process.exit.await?;
    process.kill.await?;
    ensure_eq!(exit, Exit::Code(6), "how it ended");
    let mut got = String::new();
    process.stdout.read_to_string(&mut got).await?;
    ensure_eq!(got, "here\n", "what it had written");
    Ok(())
}

async fn kill_ends_no_other(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let one = lab.spawn(&guest, &["sh", "-c", "exec sleep 300"]).await?;
    let mut other = lab.spawn(&guest, &["sh", "-c", "echo up; read -r line; echo \"$line\"; exit 8"]).await?;
    let mut word = [0; 3];
    other.stdout.read_exact(&mut word).await?;
    one.kill.await?;
    let said = crate::lab::said(other, b"still\n").await?;
    ensure_eq!((said.exit, said.text().as_str()), (Exit::Code(8), "still"), "how the other one went on");
    Ok(())
}

/// Whether the process lives, a dead one that waits to be collected not counted.
async fn lives(lab: &Lab, guest: &Guest, pid: &str) -> Verdict<bool> {
    let script = format!("kill -0 {pid} 2>/dev/null && ! grep -q '^State:.Z' /proc/{pid}/status 2>/dev/null");
    Ok(lab.sh(guest, &script).await?.exit.success())
}

async fn ends(lab: &Lab, guest: &Guest, pid: &str) -> Verdict {
    lab.until(&format!("process {pid} has ended"), || async {
        match lives(lab, guest, pid).await {
            Ok(false) => None,
            other => Some(format!("{other:?}")),
        }
    })
    .await
}
