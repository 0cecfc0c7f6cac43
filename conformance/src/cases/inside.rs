//! The rest of reaching inside: where commands run, probes, ports and whole files.

use std::{sync::Arc, time::Duration};

use bbbox::{
    error::ErrorKind,
    guest::Guest,
    transport::{Archive, Transport},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    ability,
    case::{Case, Cost, Stop, Verdict, ensure, ensure_eq, failed},
    lab::{Lab, noise, random},
};

const LIMIT: Duration = Duration::from_secs(120);

pub(super) const CASES: &[Case] = &[
    Case {
        name: "commands-run-at-home",
        promise: "spawn-is-at-home",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(at_home(lab)),
    },
    Case {
        name: "what-is-written-stays-between-commands",
        promise: "spawn-is-at-home",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(files_stay(lab)),
    },
    Case {
        name: "a-fresh-handle-reaches-the-box",
        promise: "reach-needs-the-handle-alone",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(fresh_handle(lab)),
    },
    Case {
        name: "a-probe-works-and-runs-nothing",
        promise: "probe-dials-afresh",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(probe_works(lab)),
    },
    Case {
        name: "a-route-reaches-a-port-of-the-box",
        promise: "route-reaches-a-port",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(route_reaches(lab)),
    },
    Case {
        name: "a-route-to-a-silent-port-ends",
        promise: "route-reaches-a-port",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(silent_port(lab)),
    },
    Case {
        name: "an-archive-goes-in-and-comes-back",
        promise: "archive-moves-files-whole",
        needs: ability::linux_sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(archive_round_trip(lab)),
    },
    Case {
        name: "an-archive-of-what-is-not-there-is-gone",
        promise: "archive-moves-files-whole",
        needs: ability::linux_sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(archive_of_nothing(lab)),
    },
];

async fn at_home(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let script = "[ \"$PWD\" -ef \"$HOME\" ] && [ -w . ] && [ -O . ] && echo \"${HOME:+home} ${USER:+user}\"";
    ensure_eq!(lab.sh(&guest, script).await?.good("looking at where it runs")?, "home user", "where it runs");
    Ok(())
}

async fn files_stay(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    lab.sh(&guest, "mkdir -p 'a dir' && echo one >'a dir/file'").await?.good("writing")?;
    ensure_eq!(lab.sh(&guest, "cat 'a dir/file'").await?.good("reading")?, "one", "the file");
    Ok(())
}

async fn fresh_handle(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    // As after a restart: the handle went through a record, and the listing gives another.
    let text = serde_json::to_string(&guest).map_err(|e| Stop::Failed(e.to_string()))?;
    let recorded: Guest = serde_json::from_str(&text).map_err(|e| Stop::Failed(e.to_string()))?;
    let Some(listed) = lab.held_of(&guest.box_id).await?.pop() else { return failed("it is not listed") };
    for handle in [recorded, listed.guest] {
        let reach = lab.fresh()?.reach(&handle).await?;
        let process = reach.command.spawn(&["echo".to_owned(), "here".to_owned()]).await?;
        ensure_eq!(crate::lab::said(process, b"").await?.text(), "here", "a command through a fresh handle");
    }
    Ok(())
}

async fn probe_works(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let transport = lab.transport(&guest).await?;
    let before = lab.sh(&guest, "ls -A ~").await?.good("listing home")?;
    for _ in 0..3 {
        transport.probe().await?;
    }
    ensure_eq!(lab.sh(&guest, "ls -A ~").await?.good("listing home")?, before, "the home after three probes");
    Ok(())
}

/// Starts something in the box that sends each connection's bytes back; returns its port.
async fn echo_server(lab: &Lab, guest: &Guest) -> Verdict<u16> {
    let python = "import socket,threading\n\
        s=socket.socket();s.bind((\"127.0.0.1\",0));s.listen(8);print(s.getsockname()[1],flush=True)\n\
        def serve(c):\n while 1:\n  d=c.recv(65536)\n  if not d: break\n  c.sendall(d)\n c.shutdown(1)\n\
        while 1:\n threading.Thread(target=serve,args=(s.accept()[0],),daemon=True).start()";
    // A port of its own, as boxes may share the network of their host.
    let port = 20_000 + random() % 20_000;
    let script = format!(
        "if command -v python3 >/dev/null; then exec python3 -c '{python}'\n\
         elif command -v socat >/dev/null; then echo {port}; exec socat TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr EXEC:cat\n\
         else echo none; fi"
    );
    let mut process = lab.spawn(guest, &["sh", "-c", &script]).await?;
    let mut line = String::new();
    tokio::io::AsyncBufReadExt::read_line(&mut tokio::io::BufReader::new(&mut process.stdout), &mut line)
        .await?;
    // It runs on when it is dropped.
    line.trim_end()
        .parse()
        .map_err(|_| Stop::Skipped("its boxes have neither python3 nor socat to listen with".to_owned()))
}

async fn route_reaches(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let port = echo_server(&lab, &guest).await?;
    let transport = lab.transport(&guest).await?;
    lab.until("the port answers", || async {
        echoes(&transport, port, b"first").await.err().map(|e| format!("{e:?}"))
    })
    .await?;
    let bytes = noise(random(), 3 * 1024 * 1024);
    let (one, two) = tokio::join!(echoes(&transport, port, &bytes), echoes(&transport, port, b"small"));
    one.and(two)
}

/// Sends bytes to the port through a route of its own and reads them back.
async fn echoes(transport: &Arc<dyn Transport>, port: u16, bytes: &[u8]) -> Verdict {
    let stream = transport.route(port).await?.open().await?;
    let (mut from, mut to) = tokio::io::split(stream);
    let mut back = Vec::new();
    let send = async {
        to.write_all(bytes).await?;
        to.shutdown().await
    };
    let (sent, read) = tokio::join!(send, from.read_to_end(&mut back));
    sent?;
    read?;
    ensure!(back == bytes, "{} of {} bytes came back through a route", back.len(), bytes.len());
    Ok(())
}

async fn silent_port(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let transport = lab.transport(&guest).await?;
    let opened = async { transport.route(1).await?.open().await };
    // Either way: that nothing listens shows as an error or as a stream that is at its end.
    if let Ok(mut stream) = opened.await {
        let mut byte = [0];
        lab.see("a stream to a port where nothing listens neither ends nor fails");
        let read = stream.read(&mut byte).await;
        ensure!(read.as_ref().map_or(true, |n| *n == 0), "a port where nothing listens sent something");
    }
    Ok(())
}

async fn archive_round_trip(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let transport = lab.transport(&guest).await?;
    let archive = offered(&*transport)?;
    let home = lab.sh(&guest, "pwd").await?.good("asking for home")?;
    let (bytes, name) = (noise(random(), 3_000_000), "a 'name' with $signs");
    let user = lab.sh(&guest, "id -u").await?.good("asking for the user")?.parse().unwrap_or_default();
    let tar = tar_of(name, user, &bytes);
    archive.unpack(&home, Box::new(std::io::Cursor::new(tar))).await?;
    let sum = lab.run(&guest, &["sh", "-c", "cksum <\"$1\"; stat -c %a \"$1\"", "script", name], b"").await?;
    let sum = sum.good("reading what was unpacked")?;
    ensure!(sum.contains(&bytes.len().to_string()), "the unpacked file is of another size: {sum}");
    ensure!(sum.ends_with("640"), "the unpacked file has another mode: {sum}");
    let mut back = Vec::new();
    archive.pack(&format!("{home}/{name}")).await?.read_to_end(&mut back).await?;
    ensure_eq!(one_entry(&back).map(|(name, _)| name), Some(name.to_owned()), "the packed entry's name");
    ensure!(one_entry(&back).is_some_and(|(_, content)| content == bytes), "the file came back changed");
    Ok(())
}

async fn archive_of_nothing(lab: Lab) -> Verdict {
    let guest = lab.make().await?;
    let transport = lab.transport(&guest).await?;
    let archive = offered(&*transport)?;
    match archive.pack("/no/such/file").await {
        Ok(_) => return failed("it packed a file that is not there"),
        Err(error) => ensure_eq!(error.kind(), ErrorKind::Gone, "the kind of the error of a pack"),
    }
    let tar = std::io::Cursor::new(tar_of("file", 0, b"x"));
    match archive.unpack("/no/such/dir", Box::new(tar)).await {
        Ok(()) => failed("it unpacked into a directory that is not there"),
        Err(error) => {
            ensure_eq!(error.kind(), ErrorKind::Gone, "the kind of the error of an unpack");
            Ok(())
        }
    }
}

fn offered(transport: &dyn Transport) -> Verdict<&dyn Archive> {
    transport.archive().ok_or_else(|| Stop::Skipped("its transport offers no archive".to_owned()))
}

/// A tar of one file of `user`'s with mode 640, as the POSIX format has it.
fn tar_of(name: &str, user: u32, content: &[u8]) -> Vec<u8> {
    let mut head = [0_u8; 512];
    let mut put = |at: usize, text: &[u8]| head[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, b"0000640\0");
    put(108, format!("{user:07o}\0").as_bytes());
    put(116, b"0000000\0");
    put(124, format!("{:011o}\0", content.len()).as_bytes());
    put(136, b"14000000000\0");
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
    head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let padding = content.len().next_multiple_of(512) - content.len();
    [&head[..], content, &vec![0; padding], &[0; 1024]].concat()
}

/// The name and content of a tar's one regular entry; extended headers before it are passed over.
fn one_entry(tar: &[u8]) -> Option<(String, Vec<u8>)> {
    let mut at = 0;
    loop {
        let head = tar.get(at..at + 512)?;
        let text = |range: std::ops::Range<usize>| {
            let field = &head[range];
            String::from_utf8_lossy(field.split(|b| *b == 0).next().unwrap_or_default()).trim().to_owned()
        };
        let size = usize::from_str_radix(&text(124..136), 8).ok()?;
        if matches!(head[156], b'0' | 0) {
            return Some((text(0..100), tar.get(at + 512..at + 512 + size)?.to_vec()));
        }
        at += 512 + size.next_multiple_of(512);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tar_is_read_back_as_it_was_written() {
        let content = noise(7, 1000);
        assert_eq!(one_entry(&tar_of("a 'b' $c", 1000, &content)), Some(("a 'b' $c".to_owned(), content)));
        assert_eq!(one_entry(&[0; 1024]), None);
    }
}
