//! The promises of copies, with real shells and real files.

use std::{
    fs::{self, Permissions},
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
        net::UnixListener,
    },
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{unpack::Stage, *};
use crate::run::{JobSpec, testing::*};

fn nothing(_: u64, _: Option<u64>) {}

fn random(bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    getrandom::fill(&mut data).unwrap();
    data
}

/// Everything below `root`: names, modes, contents, targets.
fn seen(root: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let mut all = Vec::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let held = if meta.is_symlink() {
                fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
            } else if meta.is_file() {
                fs::read(&path).unwrap()
            } else {
                dirs.push(path.clone());
                Vec::new()
            };
            all.push((path.strip_prefix(root).unwrap().to_owned(), meta.permissions().mode() & 0o777, held));
        }
    }
    all.sort();
    all
}

fn assert_no_leftovers(dirs: &[&Path]) {
    for dir in dirs {
        for (path, ..) in seen(dir) {
            assert!(!path.to_string_lossy().contains(".bb-"), "{} was left", path.display());
        }
    }
}

/// A tree with what is hard to copy.
fn tree(root: &Path) {
    fs::create_dir_all(root.join("sub/deeper")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join("plain"), "plain").unwrap();
    fs::write(root.join("none"), "").unwrap();
    fs::write(root.join("big"), random(5 << 20)).unwrap();
    let odd: [&[u8]; 8] =
        [b"-rf", b"a b'c\"d$e`f;g", b"new\nline", b"back\\slash", b"\xff\xfe", b"*", b"#x", b"~"];
    for name in odd {
        fs::write(root.join("sub").join(OsStr::from_bytes(name)), name).unwrap();
    }
    let long = "n".repeat(200);
    fs::write(root.join("sub/deeper").join(&long), "long").unwrap();
    fs::write(root.join("run"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(root.join("run"), Permissions::from_mode(0o751)).unwrap();
    symlink("/etc", root.join("out")).unwrap();
    symlink("plain", root.join("in")).unwrap();
    symlink("nowhere at all", root.join("sub/dangling")).unwrap();
    for n in 0..450 {
        fs::write(root.join("sub/deeper").join(format!("f{n}")), format!("{n}")).unwrap();
    }
    fs::create_dir(root.join("locked")).unwrap();
    fs::write(root.join("locked/inside"), "x").unwrap();
    fs::set_permissions(root.join("locked"), Permissions::from_mode(0o555)).unwrap();
}

#[tokio::test]
async fn a_file_goes_in_and_comes_back_as_it_was() {
    for shell in SHELLS {
        for local in [Local::new(shell), Local::with_archive(shell, true), Local::with_archive(shell, false)]
        {
            let session = local.session();
            let here = tempfile::tempdir().unwrap();
            let data = random((3 << 20) + 17);
            fs::write(here.path().join("a"), &data).unwrap();
            fs::set_permissions(here.path().join("a"), Permissions::from_mode(0o640)).unwrap();
            fs::write(local.home.path().join("b"), "old").unwrap();
            let last = AtomicU64::new(0);
            let progress = |n: u64, _: Option<u64>| last.store(n, Ordering::Relaxed);
            let copied = session.copy_in(&here.path().join("a"), "b", &progress).await.unwrap();
            assert_eq!((copied.files, copied.bytes), (1, data.len() as u64));
            assert!(last.load(Ordering::Relaxed) >= data.len() as u64);
            assert!(fs::read(local.home.path().join("b")).unwrap() == data);
            assert_eq!(
                fs::metadata(local.home.path().join("b")).unwrap().permissions().mode() & 0o777,
                0o640
            );
            let copied = session.copy_out("b", &here.path().join("c"), &nothing).await.unwrap();
            assert_eq!((copied.files, copied.bytes), (1, data.len() as u64));
            assert!(fs::read(here.path().join("c")).unwrap() == data);
            assert_no_leftovers(&[here.path(), local.home.path()]);
        }
    }
}

#[tokio::test]
async fn a_directory_goes_in_and_comes_back_as_it_was() {
    for shell in SHELLS {
        for local in [Local::new(shell), Local::with_archive(shell, true)] {
            let session = local.session();
            let here = tempfile::tempdir().unwrap();
            let source = here.path().join("source");
            tree(&source);
            session.copy_in(&source, "there dir", &nothing).await.unwrap();
            assert_eq!(seen(&local.home.path().join("there dir")), seen(&source));
            session.copy_out("there dir", &here.path().join("back"), &nothing).await.unwrap();
            assert_eq!(seen(&here.path().join("back")), seen(&source));
            assert_no_leftovers(&[here.path(), local.home.path()]);
        }
    }
}

#[tokio::test]
async fn a_directory_is_merged_file_by_file() {
    for shell in SHELLS {
        let local = Local::new(shell);
        let session = local.session();
        let here = tempfile::tempdir().unwrap();
        let (source, there) = (here.path().join("source"), local.home.path().join("there"));
        tree(&source);
        for root in [&there, &here.path().join("back")] {
            fs::create_dir_all(root.join("sub")).unwrap();
            fs::write(root.join("plain"), "old").unwrap();
            fs::write(root.join("sub/kept"), "kept").unwrap();
            symlink("/nowhere", root.join("none")).unwrap();
        }
        let mut want = seen(&source);
        want.push(("sub/kept".into(), 0o644, b"kept".to_vec()));
        want.sort();
        session.copy_in(&source, "there", &nothing).await.unwrap();
        assert_eq!(seen(&there), want);
        session.copy_out("there", &here.path().join("back"), &nothing).await.unwrap();
        assert_eq!(seen(&here.path().join("back")), want);
        assert_no_leftovers(&[here.path(), local.home.path()]);
    }
}

#[tokio::test]
async fn a_link_in_the_way_is_never_followed() {
    for shell in SHELLS {
        let local = Local::new(shell);
        let session = local.session();
        let (here, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let source = here.path().join("source");
        fs::create_dir_all(source.join("sub")).unwrap();
        fs::write(source.join("sub/f"), "f").unwrap();
        fs::write(source.join("g"), "g").unwrap();
        for root in [local.home.path().join("there"), here.path().join("back")] {
            fs::create_dir(&root).unwrap();
            symlink(outside.path(), root.join("sub")).unwrap();
        }
        let error = session.copy_in(&source, "there", &nothing).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert!(error.to_string().contains("there/sub is a symbolic link"), "{error}");
        fs::create_dir(local.home.path().join("other")).unwrap();
        session.copy_in(&source, "other", &nothing).await.unwrap();
        let error = session.copy_out("other", &here.path().join("back"), &nothing).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        assert!(!here.path().join("back/g").exists() && !local.home.path().join("there/g").exists());
        assert_no_leftovers(&[here.path(), local.home.path()]);
    }
}

#[tokio::test]
async fn where_a_file_goes_is_as_people_expect() {
    for shell in SHELLS {
        let local = Local::new(shell);
        let session = local.session();
        let here = tempfile::tempdir().unwrap();
        let (file, home) = (here.path().join("na me"), local.home.path());
        fs::write(&file, "x").unwrap();
        fs::create_dir(home.join("dir")).unwrap();
        session.copy_in(&file, "dir", &nothing).await.unwrap();
        session.copy_in(&file, "dir/", &nothing).await.unwrap();
        session.copy_in(&file, home.join("-abs").as_os_str().as_bytes(), &nothing).await.unwrap();
        assert_eq!(fs::read(home.join("dir/na me")).unwrap(), b"x");
        assert_eq!(fs::read(home.join("-abs")).unwrap(), b"x");
        let missing = session.copy_in(&file, "no/such", &nothing).await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::Gone);
        assert!(missing.to_string().contains("no"), "{missing}");
        assert_eq!(session.copy_in(&file, "nodir/", &nothing).await.unwrap_err().kind(), ErrorKind::Gone);
        let error = session.copy_in(Path::new("/no such file"), "x", &nothing).await.unwrap_err();
        assert!(error.to_string().contains("/no such file") && error.kind() == ErrorKind::Gone, "{error:?}");
        let error = session.copy_out("no such", &here.path().join("y"), &nothing).await.unwrap_err();
        assert!(error.to_string().contains("no such") && error.kind() == ErrorKind::Gone, "{error:?}");
        symlink("-abs", home.join("link")).unwrap();
        session.copy_out("link", here.path(), &nothing).await.unwrap();
        assert_eq!(fs::read(here.path().join("link")).unwrap(), b"x");
        assert!(!here.path().join("link").is_symlink());
        fs::create_dir(home.join("dir/taken")).unwrap();
        fs::write(here.path().join("taken"), "x").unwrap();
        let error = session.copy_in(&here.path().join("taken"), "dir", &nothing).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("dir/taken"), "{error:?}");
        assert_no_leftovers(&[here.path(), home]);
    }
}

#[tokio::test]
async fn a_cut_off_copy_leaves_the_old_file_and_nothing_else() {
    for shell in SHELLS {
        for local in [Local::new(shell), Local::with_archive(shell, true)] {
            let session = local.session();
            let here = tempfile::tempdir().unwrap();
            let source = here.path().join("source");
            fs::write(&source, random(40 << 20)).unwrap();
            fs::write(local.home.path().join("there"), "old").unwrap();
            fs::write(here.path().join("back"), "old").unwrap();
            // Dropped in the middle.
            let (begun, began) = oneshot::channel();
            let begun = std::sync::Mutex::new(Some(begun));
            let progress = |_: u64, _: Option<u64>| {
                begun.lock().unwrap().take().map(|begun| begun.send(()));
            };
            tokio::select! {
                _ = session.copy_in(&source, "there", &progress) => {}
                _ = began => {}
            }
            session.copy_in(&source, "big", &nothing).await.unwrap();
            let (begun, began) = oneshot::channel();
            let begun = std::sync::Mutex::new(Some(begun));
            let progress = |_: u64, _: Option<u64>| {
                begun.lock().unwrap().take().map(|begun| begun.send(()));
            };
            let back = here.path().join("back");
            tokio::select! {
                _ = session.copy_out("big", &back, &progress) => {}
                _ = began => {}
            }
            assert_eq!(fs::read(here.path().join("back")).unwrap(), b"old");
            let (home, here) = (local.home.path(), here.path());
            until("what was begun is gone", async || {
                let left: Vec<_> = [home, here]
                    .iter()
                    .flat_map(|dir| fs::read_dir(dir).unwrap().flatten())
                    .filter(|entry| entry.file_name().to_string_lossy().starts_with(".bb-"))
                    .map(|entry| entry.path())
                    .collect();
                (left.is_empty(), left)
            })
            .await;
            let there = fs::read(home.join("there")).unwrap();
            assert!(there == b"old" || local.archive().is_some(), "the old file stays");
        }
    }
}

#[tokio::test]
async fn what_arrives_damaged_is_not_put_in_place() {
    for shell in SHELLS {
        let local = Local::with_archive(shell, true);
        local.damage();
        let session = local.session();
        let here = tempfile::tempdir().unwrap();
        fs::create_dir(here.path().join("s")).unwrap();
        fs::write(here.path().join("s/fi le"), random(2 << 20)).unwrap();
        fs::create_dir(local.home.path().join("there")).unwrap();
        let error = session.copy_in(&here.path().join("s"), "there", &nothing).await.unwrap_err();
        assert!(error.to_string().contains("fi le is not what was sent"), "{error:?}");
        assert_eq!(fs::read_dir(local.home.path().join("there")).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn what_is_neither_file_nor_directory_nor_link_is_said_to_be_left_out() {
    let local = Local::new(SHELLS[0]);
    let here = tempfile::tempdir().unwrap();
    let _socket = UnixListener::bind(here.path().join("socket")).unwrap();
    fs::write(here.path().join("f"), "x").unwrap();
    let copied = local.session().copy_in(here.path(), "there", &nothing).await.unwrap();
    assert_eq!((copied.files, copied.skipped), (1, vec![here.path().join("socket")]));
}

#[tokio::test]
async fn a_hostile_archive_writes_nothing_outside() {
    fn entry(tar: &mut tar::Builder<Vec<u8>>, kind: tar::EntryType, name: &str, link: &str) {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(if kind == tar::EntryType::Regular { 1 } else { 0 });
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        let body: &[u8] = if kind == tar::EntryType::Regular { b"x" } else { b"" };
        tar.append(&header, body).unwrap();
    }
    use tar::EntryType::{Directory, Link, Regular, Symlink};
    let cases: [&[(tar::EntryType, &str, &str)]; 7] = [
        &[(Regular, "../evil", "")],
        &[(Regular, "/tmp/evil", "")],
        &[(Regular, "a/../../evil", "")],
        &[(Symlink, "l", "/"), (Regular, "l/evil", "")],
        &[(Symlink, "l", ".."), (Directory, "l", ""), (Regular, "l/evil", "")],
        &[(Link, "evil", "/etc/passwd")],
        &[(Regular, "a", ""), (Regular, "a/evil", "")],
    ];
    for case in cases {
        let here = tempfile::tempdir().unwrap();
        let inner = here.path().join("in");
        fs::create_dir(&inner).unwrap();
        let mut tar = tar::Builder::new(Vec::new());
        for (kind, name, link) in case {
            entry(&mut tar, *kind, name, link);
        }
        let bytes = tar.into_inner().unwrap();
        let target = Target::look(&inner.join("t"), Path::new("t"), true).unwrap();
        let mut stage = Stage::make(target, ".bb-x", true).unwrap();
        let (to, from) = pipe::to_thread();
        to.send(bytes.into()).await.unwrap();
        drop(to);
        let stage = blocking(move || {
            assert!(stage.unpack(from).is_err());
            Ok(stage)
        })
        .await
        .unwrap();
        stage.remove();
        assert_eq!(seen(here.path()).len(), 1, "{case:?}");
    }
}

/// The block that begins an entry of `size` bytes.
fn block(kind: u8, size: u64) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::new(kind));
    header.set_size(size);
    header.set_mode(0o644);
    header.as_mut_bytes()[0] = b'n';
    if kind == b'S' {
        // More blocks follow that say where the file has holes.
        header.as_mut_bytes()[482] = 1;
    }
    header.set_cksum();
    header.as_bytes().to_vec()
}

/// Unpacks a stream that begins with `first` and goes on with `then` for ever: how much of it was taken, and why no more.
async fn endless(first: Vec<u8>, then: Vec<u8>) -> (usize, Error) {
    let here = tempfile::tempdir().unwrap();
    let target = Target::look(&here.path().join("t"), Path::new("t"), true).unwrap();
    let mut stage = Stage::make(target, ".bb-x", true).unwrap();
    let (to, from) = pipe::to_thread();
    let sending = async move {
        let (mut sent, mut piece) = (0, Bytes::from(first));
        let then = Bytes::from(then);
        while to.send(piece.clone()).await.is_ok() {
            sent += piece.len();
            piece = then.clone();
        }
        sent
    };
    let unpacking = tokio::task::spawn_blocking(move || {
        let unpacked = stage.unpack(from);
        stage.remove();
        unpacked
    });
    let (sent, unpacked) = tokio::join!(sending, unpacking);
    match unpacked.unwrap() {
        Ok(()) => panic!("a stream without an end was unpacked"),
        Err(Fault::Here(error) | Fault::There(error)) => (sent, error),
    }
}

#[tokio::test]
async fn a_hostile_stream_is_refused_before_it_fills_the_memory() {
    // Names, targets, attributes and maps of holes that never end: the archive's reader would keep them all.
    for kind in *b"LKxS" {
        let mut more = vec![b'n'; 64 * 1024];
        for block in more.chunks_mut(512).filter(|_| kind == b'S') {
            block.fill(b'0');
            block[504] = 1;
        }
        let (sent, error) = endless(block(kind, 1 << 40), more).await;
        let refused = error.chain().contains("bytes before a file");
        assert!(refused && sent < 4 << 20, "{sent} bytes were taken of {:?}: {error:?}", char::from(kind));
    }
    // Entries without an end, each with a long name.
    let name = [block(b'L', 512 * 1024), vec![b'n'; 512 * 1024], block(b'3', 0)].concat();
    let (sent, error) = endless(name.clone(), name).await;
    assert!(sent < 160 << 20 && error.to_string().contains("more names"), "{sent}: {error:?}");
}

#[tokio::test]
async fn a_file_of_holes_does_not_fill_this_disk() {
    // A block that says where the file has holes, all of it but its last byte, and that it is as large as a disk.
    let mut header = tar::Header::from_byte_slice(&block(b'S', 0)).clone();
    let bytes = header.as_mut_bytes();
    bytes[482] = 0;
    bytes[386..398].copy_from_slice(b"77777777776\0");
    bytes[398..410].copy_from_slice(b"00000000000\0");
    bytes[483..495].copy_from_slice(b"77777777776\0");
    header.set_cksum();
    let here = tempfile::tempdir().unwrap();
    let target = Target::look(&here.path().join("t"), Path::new("t"), true).unwrap();
    let mut stage = Stage::make(target, ".bb-x", true).unwrap();
    let (to, from) = pipe::to_thread();
    to.send([header.as_bytes().as_slice(), &[0; 1024]].concat().into()).await.unwrap();
    drop(to);
    let unpacking = tokio::task::spawn_blocking(move || {
        let unpacked = stage.unpack(from);
        stage.remove();
        unpacked
    });
    let Err(Fault::Here(error)) = unpacking.await.unwrap() else { panic!("8 GiB of holes were written") };
    assert!(error.to_string().contains("with holes"), "{error:?}");
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn many_copies_at_once_do_not_meet() {
    let local = Local::new(SHELLS[0]);
    let session = local.session();
    let here = tempfile::tempdir().unwrap();
    let copies = (0..8).map(|n| {
        let (session, file) = (session.clone(), here.path().join(format!("f{n}")));
        async move {
            fs::write(&file, format!("{n}")).unwrap();
            session.copy_in(&file, "same", &nothing).await.unwrap();
        }
    });
    futures::future::join_all(copies).await;
    let out = session.run(&JobSpec::script("cat same"), super::super::DEFAULT_WAIT).await.unwrap();
    let text = String::from_utf8(out.ended().unwrap().stdout.head).unwrap();
    assert!(text.as_bytes()[0].is_ascii_digit(), "{text}");
}
