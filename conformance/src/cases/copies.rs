//! Files and directories through the core: they arrive unchanged, or the old ones are still there.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::Path,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bbbox::{boxes::BoxHandle, error::ErrorKind, run::JobSpec, transport::Exit};
use ring::digest::{self, SHA256, digest};
use tempfile::TempDir;
use tokio::io::AsyncWrite;

use crate::{
    ability,
    case::{Case, Cost, Stop, Verdict, ensure, ensure_eq, failed},
    home::{in_a_box, out, ran, refused},
    lab::{noise, random},
};

const LIMIT: Duration = Duration::from_secs(180);
const MIB: usize = 1024 * 1024;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "a-file-goes-in-and-comes-back-unchanged",
        promise: "a-copy-arrives-whole-or-not-at-all",
        needs: ability::linux_sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| in_a_box(lab, |handle| Box::pin(file_round_trip(handle))),
    },
    Case {
        name: "a-directory-goes-in-and-comes-back-unchanged",
        promise: "a-copy-arrives-whole-or-not-at-all",
        needs: ability::linux_sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| in_a_box(lab, |handle| Box::pin(directory_round_trip(handle))),
    },
    Case {
        name: "a-copy-that-is-cut-off-leaves-the-old-file",
        promise: "a-copy-arrives-whole-or-not-at-all",
        needs: ability::linux_sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| in_a_box(lab, |handle| Box::pin(cut_off(handle))),
    },
    Case {
        name: "a-copy-of-what-is-not-there-is-gone",
        promise: "a-copy-arrives-whole-or-not-at-all",
        needs: ability::linux_sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| in_a_box(lab, |handle| Box::pin(of_nothing(handle))),
    },
    Case {
        name: "a-gibibyte-passes-unchanged-in-little-memory",
        promise: "a-copy-arrives-whole-or-not-at-all",
        needs: ability::linux_sh,
        cost: Cost::Alone,
        limit: Duration::from_secs(400),
        body: |lab| in_a_box(lab, |handle| Box::pin(a_gibibyte(handle))),
    },
];

fn quiet(_: u64, _: Option<u64>) {}

async fn file_round_trip(handle: BoxHandle) -> Verdict {
    let (here, session) = (TempDir::new()?, handle.session()?);
    for (length, name) in [(0, "empty"), (1, "one byte"), (5 * MIB + 7, "a 'name' with $signs and\nmore")] {
        let (bytes, local) = (noise(random(), length), here.path().join("local"));
        fs::write(&local, &bytes)?;
        fs::set_permissions(&local, fs::Permissions::from_mode(0o750))?;
        let copied = session.copy_in(&local, name, &quiet).await?;
        ensure_eq!((copied.files, copied.bytes), (1, length as u64), "what a copy says that it copied");
        let spec = JobSpec::script("sha256sum <\"$NAME\"; stat -c %a \"$NAME\"").env("NAME", name);
        let seen = ran(&handle, spec).await?.stdout.whole().unwrap_or_default();
        let right = format!("{}  -\n750\n", hex(&digest(&SHA256, &bytes)));
        ensure_eq!(String::from_utf8_lossy(&seen), right, "the file in the box");
        let back = here.path().join("back");
        session.copy_out(name, &back, &quiet).await?;
        ensure!(fs::read(&back)? == bytes, "the file came back changed");
        ensure_eq!(fs::metadata(&back)?.permissions().mode() & 0o777, 0o750, "its mode");
    }
    Ok(())
}

async fn directory_round_trip(handle: BoxHandle) -> Verdict {
    let (here, session) = (TempDir::new()?, handle.session()?);
    let tree = here.path().join("tree");
    fs::create_dir_all(tree.join("deep/er"))?;
    fs::create_dir(tree.join("empty"))?;
    let odd = Path::new(OsStr::from_bytes(b"bytes \xff\xfe in a 'name'"));
    for (name, length) in [(Path::new("deep/er/large"), 2 * MIB), (Path::new("-rf"), 10), (odd, 100)] {
        fs::write(tree.join(name), noise(random(), length))?;
    }
    fs::write(tree.join("script"), "#!/bin/sh\n")?;
    fs::set_permissions(tree.join("script"), fs::Permissions::from_mode(0o755))?;
    std::os::unix::fs::symlink("deep/er/large", tree.join("link"))?;
    std::os::unix::fs::symlink("/no/such/file", tree.join("broken"))?;
    session.copy_in(&tree, "tree", &quiet).await?;
    let counts = "find tree -type f | wc -l; find tree -type d | wc -l; find tree -type l | wc -l; tree/script; echo $?";
    let counts = out(&handle, counts).await?;
    ensure_eq!(
        counts.split_whitespace().collect::<Vec<_>>(),
        ["4", "4", "2", "0"],
        "the files, directories and links"
    );
    out(&handle, "echo stays >tree/stays").await?;
    session.copy_in(&tree, "tree", &quiet).await?;
    ensure_eq!(out(&handle, "cat tree/stays").await?, "stays", "a file that was not in the copy");
    let back = here.path().join("back");
    session.copy_out("tree", &back, &quiet).await?;
    fs::remove_file(back.join("stays"))?;
    let (there, again) = (listing(&tree)?, listing(&back)?);
    ensure_eq!(again, there, "the directory that came back");
    Ok(())
}

async fn cut_off(handle: BoxHandle) -> Verdict {
    let (here, session) = (TempDir::new()?, handle.session()?);
    let (local, back) = (here.path().join("local"), here.path().join("back"));
    let bytes = noise(random(), 48 * MIB);
    fs::write(&local, &bytes)?;
    out(&handle, "mkdir place").await?;
    let (mut old, mut new) = (0, 0);
    for after in [0, 20, 80, 250, 600].map(Duration::from_millis) {
        out(&handle, "echo old >place/file").await?;
        drop(tokio::time::timeout(after, session.copy_in(&local, "place/file", &quiet)).await);
        // The old file or the whole new one, and nothing beside it.
        let clean = "until [ \"$(ls -A place)\" = file ]; do sleep 0.1; done; sha256sum <place/file";
        let sum = out(&handle, clean).await?;
        match sum.split_whitespace().next() {
            Some(sum) if sum == hex(&digest(&SHA256, b"old\n")) => old += 1,
            Some(sum) if sum == hex(&digest(&SHA256, &bytes)) => new += 1,
            _ => return failed(format!("cut off after {after:?}, a copy in left another file")),
        }
    }
    ensure!(old > 0, "none of {new} copies in was cut off");
    session.copy_in(&local, "place/file", &quiet).await?;
    for after in [0, 20, 80, 250, 600].map(Duration::from_millis) {
        fs::write(&back, "old")?;
        drop(tokio::time::timeout(after, session.copy_out("place/file", &back, &quiet)).await);
        let left = fs::read(&back)?;
        ensure!(
            left == b"old" || left == bytes,
            "cut off after {after:?}, a copy out left {} bytes",
            left.len()
        );
    }
    session.copy_out("place/file", &back, &quiet).await?;
    ensure!(fs::read(&back)? == bytes, "the file came back changed");
    let left: Vec<_> = fs::read_dir(here.path())?.flatten().map(|entry| entry.file_name()).collect();
    ensure_eq!(left.len(), 2, "what is left beside the copies out: {left:?}");
    Ok(())
}

async fn of_nothing(handle: BoxHandle) -> Verdict {
    let (here, session) = (TempDir::new()?, handle.session()?);
    let local = here.path().join("local");
    refused(
        session.copy_out("no/such/file", &local, &quiet).await,
        ErrorKind::Gone,
        "a copy out of nothing",
    )?;
    ensure!(!local.exists(), "a copy out of nothing made something");
    refused(session.copy_in(&local, "file", &quiet).await, ErrorKind::Gone, "a copy in of nothing")?;
    fs::write(&local, "x")?;
    let answer = session.copy_in(&local, "no/such/dir/file", &quiet).await;
    refused(answer, ErrorKind::Gone, "a copy into a directory that is not there")?;
    ensure_eq!(out(&handle, "ls").await?, "", "what is in the home after all that");
    Ok(())
}

/// 1 GiB of random bytes: through a run's output, out of the box and into it again.
async fn a_gibibyte(handle: BoxHandle) -> Verdict {
    let (here, session) = (TempDir::new()?, handle.session()?);
    let room = "[ $(($(df -Pk . | awk 'NR==2{print $4}') / 1024)) -gt 4096 ]";
    if !ran(&handle, JobSpec::script(room)).await?.exit.success() {
        return Err(Stop::Skipped("its boxes have less than 4 GiB free".to_owned()));
    }
    let sum = out(&handle, "head -c 1073741824 /dev/urandom >data && sha256sum <data").await?;
    let right = sum.split_whitespace().next().unwrap_or_default().to_owned();
    let before = memory("VmRSS");
    // From here on the peak is this case's own.
    drop(fs::write("/proc/self/clear_refs", "5"));

    let (mut stdout, mut stderr) = (Hashing(digest::Context::new(&SHA256)), Vec::new());
    let exit = session.stream(&JobSpec::script("cat data"), None, &mut stdout, &mut stderr).await?;
    ensure_eq!((exit, stderr.len()), (Exit::Code(0), 0), "how the run ended");
    ensure_eq!(hex(&stdout.0.finish()), right, "the bytes of the run's output");
    let local = here.path().join("local");
    session.copy_out("data", &local, &quiet).await?;
    session.copy_in(&local, "again", &quiet).await?;
    let again = out(&handle, "rm data; sha256sum <again").await?;
    ensure!(again.starts_with(&right), "what was copied out and in again is another: {again}");
    if let (Some(before), Some(peak)) = (before, memory("VmHWM")) {
        let more = peak.saturating_sub(before) / 1024;
        ensure!(more < 64, "it took {more} MiB of memory");
    }
    Ok(())
}

/// A figure of this process's memory in KiB, where the system tells it.
fn memory(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim_start_matches(':').trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Hashes what is written to it.
struct Hashing(digest::Context);

impl AsyncWrite for Hashing {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.0.update(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn hex(sum: &digest::Digest) -> String {
    sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Each entry below `dir` with its kind, its mode and what it holds.
fn listing(dir: &Path) -> Verdict<Vec<(Vec<u8>, String, String)>> {
    let (mut found, mut todo) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(&next)? {
            let path = entry?.path();
            let meta = fs::symlink_metadata(&path)?;
            let holds = if meta.is_symlink() {
                fs::read_link(&path)?.display().to_string()
            } else if meta.is_dir() {
                todo.push(path.clone());
                String::new()
            } else {
                hex(&digest(&SHA256, &fs::read(&path)?))
            };
            let name = path.strip_prefix(dir).unwrap_or(&path).as_os_str().as_bytes().to_vec();
            let mode = if meta.is_symlink() { 0 } else { meta.permissions().mode() & 0o777 };
            found.push((name, format!("{:?} {mode:o}", meta.file_type().is_dir()), holds));
        }
    }
    found.sort();
    Ok(found)
}
