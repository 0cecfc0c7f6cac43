//! A process's three streams: every byte, in order, apart from each other, whatever the reader's pace.

use std::time::Duration;

use bbbox::transport::Exit;
use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    ability,
    case::{Case, Cost, Verdict, ensure, ensure_eq},
    lab::{Lab, noise, random},
};

const LIMIT: Duration = Duration::from_secs(120);
const MIB: usize = 1024 * 1024;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "every-byte-value-passes-both-ways",
        promise: "spawn-bytes",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(every_byte_value(lab)),
    },
    Case {
        name: "many-bytes-pass-both-ways-at-once",
        promise: "spawn-bytes",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(many_bytes(lab)),
    },
    Case {
        name: "a-slow-reader-loses-nothing",
        promise: "spawn-bytes",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(slow_reader(lab)),
    },
    Case {
        name: "what-was-written-before-the-exit-is-read-after-it",
        promise: "spawn-bytes",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(read_after_the_exit(lab)),
    },
    Case {
        name: "stdout-and-stderr-stay-apart-and-in-order",
        promise: "spawn-bytes",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(stay_apart(lab)),
    },
    Case {
        name: "one-stream-unread-does-not-stop-a-small-other",
        promise: "spawn-bytes",
        needs: ability::sh_live,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(one_unread(lab)),
    },
    Case {
        name: "output-comes-as-it-is-written",
        promise: "spawn-bytes",
        needs: ability::sh_live,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(comes_live(lab)),
    },
    Case {
        name: "closing-stdin-is-the-processs-end-of-input",
        promise: "spawn-bytes",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(closing_stdin(lab)),
    },
    Case {
        name: "unread-stdin-does-not-hold-a-process",
        promise: "spawn-bytes",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(unread_stdin(lab)),
    },
    Case {
        name: "each-argument-arrives-as-it-is",
        promise: "spawn-bytes",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(arguments_arrive(lab)),
    },
    Case {
        name: "three-hundred-arguments-arrive",
        promise: "spawn-bytes",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(many_arguments(lab)),
    },
    Case {
        name: "no-terminal-is-in-the-way",
        promise: "spawn-bytes",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(no_terminal(lab)),
    },
    Case {
        name: "commands-side-by-side-keep-their-streams",
        promise: "spawn-bytes",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(side_by_side(lab)),
    },
];

async fn every_byte_value(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    // What a terminal would change or act on comes in every place.
    let input: Vec<u8> = (0..=255_u8).chain((0..=255).rev()).chain(*b"\r\n\x04\x1a\x03\n").collect();
    let said = lab.run(&guest, &["cat"], &input).await?;
    ensure_eq!(said.exit, Exit::Code(0), "how cat ended");
    ensure_eq!(said.stdout, input, "what cat gave back");
    ensure!(said.stderr.is_empty(), "there is something on stderr");
    Ok(())
}

async fn many_bytes(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let input = noise(random(), 16 * MIB);
    let said = lab.run(&guest, &["cat"], &input).await?;
    ensure_eq!(said.exit, Exit::Code(0), "how cat ended");
    same(&said.stdout, &input, "16 MiB through cat")
}

async fn slow_reader(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let (input, mut got) = (noise(random(), 2 * MIB), Vec::new());
    let mut process = lab.spawn(&guest, &["cat"]).await?;
    let feed = async {
        process.stdin.write_all(&input).await?;
        process.stdin.shutdown().await
    };
    let read = async {
        let mut part = vec![0; 16 * 1024];
        loop {
            let n = process.stdout.read(&mut part).await?;
            if n == 0 {
                return std::io::Result::Ok(());
            }
            got.extend_from_slice(&part[..n]);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let (fed, read) = tokio::join!(feed, read);
    fed?;
    read?;
    ensure_eq!(process.exit.await?, Exit::Code(0), "how cat ended");
    same(&got, &input, "2 MiB to a slow reader")
}

async fn read_after_the_exit(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    // Small enough for any pipe, and more than the 48 KiB that a careless end loses.
    let script = "i=0; while [ $i -lt 600 ]; do printf '%099d\\n' $i; i=$((i+1)); done; exit 3";
    let mut process = lab.spawn(&guest, &["sh", "-c", script]).await?;
    lab.see("nobody reads, and the process has not ended");
    ensure_eq!(process.exit.await?, Exit::Code(3), "how it ended before anyone read");
    let mut got = String::new();
    process.stdout.read_to_string(&mut got).await?;
    let right: String = (0..600).map(|n| format!("{n:099}\n")).collect();
    same(got.as_bytes(), right.as_bytes(), "what was written before the exit")
}

async fn stay_apart(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let script = "i=0; while [ $i -lt 5000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
    let said = lab.sh(&guest, script).await?;
    let lines = |word: &str| (0..5000).map(|n| format!("{word} {n}\n")).collect::<String>();
    same(&said.stdout, lines("out").as_bytes(), "stdout")?;
    same(&said.stderr, lines("err").as_bytes(), "stderr")
}

async fn one_unread(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let script = "printf '%01000d' 0 >&2; echo here; read -r line; echo got $line";
    let mut process = lab.spawn(&guest, &["sh", "-c", script]).await?;
    let mut word = [0; 5];
    lab.see("stderr is unread, and stdout has not come");
    process.stdout.read_exact(&mut word).await?;
    ensure_eq!(&word, b"here\n", "the first line");
    process.stdin.write_all(b"this\n").await?;
    let said = crate::lab::said(process, b"").await?;
    ensure_eq!(said.text(), "got this", "the second line");
    ensure_eq!(said.stderr.len(), 1000, "how much stderr came");
    Ok(())
}

async fn comes_live(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let script = "while read -r line; do echo \"<$line>\"; done";
    let mut process = lab.spawn(&guest, &["sh", "-c", script]).await?;
    for round in 0..50 {
        process.stdin.write_all(format!("{round}\n").as_bytes()).await?;
        process.stdin.flush().await?;
        let right = format!("<{round}>\n");
        let mut got = vec![0; right.len()];
        lab.see(format!("the answer to line {round} has not come while the process waits for the next"));
        process.stdout.read_exact(&mut got).await?;
        ensure_eq!(String::from_utf8_lossy(&got), right, "the answer to a line");
    }
    ensure_eq!(
        crate::lab::said(process, b"").await?.exit,
        Exit::Code(0),
        "how it ended at the end of its input"
    );
    Ok(())
}

async fn closing_stdin(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let said = lab.run(&guest, &["sh", "-c", "wc -c; echo done; echo late >&2"], &noise(1, 100_000)).await?;
    ensure_eq!(said.text().replace(' ', ""), "100000\ndone", "what was counted");
    // Output goes on after the input's end.
    ensure_eq!(said.stderr, b"late\n", "what came after the end of the input");
    Ok(())
}

async fn unread_stdin(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let said = lab.run(&guest, &["sh", "-c", "exit 5"], &noise(1, 4 * MIB)).await?;
    ensure_eq!(said.exit, Exit::Code(5), "how a process ended that read nothing of 4 MiB");
    Ok(())
}

async fn arguments_arrive(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let words = [
        "plain",
        "",
        " two  spaces ",
        "tab\tnew\nline\r\n",
        "'single' \"double\" `back`",
        "$HOME ${HOME} $(id) $$ !! %s %n",
        "back\\slash \\n \\\\",
        "* ? [a] {b,c} ~ # ; & | < > ( )",
        "-rf",
        "--",
        "grüße 世界 \u{202e}right-to-left \u{1f600}",
        "\u{1}\u{1b}[31m\u{7f}",
        "a=b",
    ];
    let mut argv = vec!["printf", "%s\\0"];
    argv.extend(words);
    let said = lab.run(&guest, &argv, b"").await?;
    let right: Vec<u8> = words.iter().flat_map(|word| word.bytes().chain([0])).collect();
    ensure_eq!(String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&right), "the arguments");
    Ok(())
}

async fn many_arguments(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let words: Vec<String> = (0..300).map(|n| format!("word {n} of 'many' ${n}")).collect();
    let mut argv = vec!["sh", "-c", "printf '%s\\n' \"$#\" \"$@\"", "script"];
    argv.extend(words.iter().map(String::as_str));
    let text = lab.run(&guest, &argv, b"").await?.good("printing 300 arguments")?;
    let right: Vec<_> = ["300"].into_iter().chain(words.iter().map(String::as_str)).collect();
    ensure_eq!(text.lines().collect::<Vec<_>>(), right, "the arguments");
    Ok(())
}

async fn no_terminal(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let script = "for n in 0 1 2; do if [ -t $n ]; then echo $n; fi; done; (: </dev/tty) 2>/dev/null && echo tty; true";
    ensure_eq!(
        lab.sh(&guest, script).await?.good("looking for a terminal")?,
        "",
        "the streams that are terminals"
    );
    Ok(())
}

async fn side_by_side(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let each = (0..12_u64).map(|n| {
        let (lab, guest) = (&lab, &guest);
        async move {
            let input = noise(n + 1, 200_000);
            let said = lab.run(guest, &["sh", "-c", &format!("cat; exit {n}")], &input).await?;
            ensure_eq!(said.exit, Exit::Code(n as u8), "how command {n} ended");
            same(&said.stdout, &input, &format!("the output of command {n}"))
        }
    });
    join_all(each).await.into_iter().collect()
}

/// Both are the same; says where they part, as they may be long.
fn same(seen: &[u8], right: &[u8], what: &str) -> Verdict {
    let at = seen.iter().zip(right).position(|(a, b)| a != b);
    ensure!(
        seen == right,
        "{what}: {} bytes came of {}, and the first that differs is {:?}",
        seen.len(),
        right.len(),
        at.or(Some(seen.len().min(right.len())))
    );
    Ok(())
}
