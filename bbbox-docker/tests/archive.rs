//! Tar streams in and out of a box on a real engine.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use std::io::{Cursor, Read};

use bbbox_core::ErrorKind;
use common::{read, sh, with_box};

fn tar_with(name: &str, data: &[u8]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(data.len() as u64);
    header.set_mode(0o640);
    header.set_uid(1000);
    header.set_gid(1000);
    header.set_mtime(1_000_000_000);
    tar.append_data(&mut header, name, data).unwrap();
    tar.into_inner().unwrap()
}

#[tokio::test]
async fn files_go_in_with_their_owner_and_come_out_the_same() {
    with_box(|_, _, command| async move {
        let archive = command.archive().unwrap();
        let data: Vec<u8> = (0..3_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        archive.unpack("/home/box", Box::new(Cursor::new(tar_with("new file", &data)))).await.unwrap();
        assert_eq!(
            sh(&*command, "stat -c '%U:%G %a %s %Y' 'new file'").await,
            "box:box 640 3000000 1000000000"
        );

        let packed = read(archive.pack("/home/box/new file").await.unwrap()).await;
        let mut tar = tar::Archive::new(Cursor::new(packed));
        let mut entry = tar.entries().unwrap().next().unwrap().unwrap();
        assert_eq!(entry.path().unwrap().to_str(), Some("new file"));
        let mut back = Vec::new();
        entry.read_to_end(&mut back).unwrap();
        assert!(back == data);
    })
    .await;
}

#[tokio::test]
async fn what_is_not_there_is_gone() {
    with_box(|docker, guest, command| async move {
        use bbbox_core::backend::Backend;
        let archive = command.archive().unwrap();
        let error =
            archive.unpack("/no/such/dir", Box::new(Cursor::new(tar_with("x", b"x")))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Gone, "{error:?}");
        assert_eq!(archive.pack("/no/such/file").await.err().unwrap().kind(), ErrorKind::Gone);
        // A memory file system is not what these calls reach: the caller compares and falls back.
        sh(&*command, "sudo mkdir -p /run/here").await;
        let hidden = archive.unpack("/run/here", Box::new(Cursor::new(tar_with("x", b"x")))).await;
        println!("unpacking below /run: {hidden:?}");
        let seen = sh(&*command, "ls /run/here").await;
        assert!(hidden.is_err() || seen.is_empty() || seen == "x");
        docker.switch().unwrap().stop(&guest).await.unwrap();
        archive.unpack("/home/box", Box::new(Cursor::new(tar_with("while-stopped", b"x")))).await.unwrap();
    })
    .await;
}
