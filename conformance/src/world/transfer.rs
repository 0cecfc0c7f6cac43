//! The guest's side of a copy: what the real scripts do with files of a simulated guest's home.
//!
//! Files go in or come out, checked by their sums, and each is put in place at one moment.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
};

use bbbox::transport::Exit;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};

use super::{
    line::{Fate, Open},
    pause,
};

/// A guest's home.
const HOME: &str = "/home/box";

/// What a copy talks to in the guest.
pub(super) struct Guard<'a> {
    pub(super) open: &'a Open,
    pub(super) fate: Fate,
    pub(super) stdin: BufReader<DuplexStream>,
    pub(super) stdout: DuplexStream,
    pub(super) stderr: DuplexStream,
}

impl Guard<'_> {
    /// Does what the script asks for; `None` when the connection broke.
    pub(super) async fn serve(self, script: &str) -> Option<Exit> {
        let asked = variables(script);
        self.meets(0).await?;
        match (asked.get("bb_target"), asked.get("bb_source")) {
            (Some(target), None) => self.take(target, &asked).await,
            (None, Some(source)) => self.give(source).await,
            _ => None,
        }
    }

    /// What the connection meets at the `nth` part of the copy.
    async fn meets(&self, nth: u64) -> Option<()> {
        match self.fate {
            Fate::BreaksBefore(at) if at % 3 == nth => None,
            Fate::Stalls(at, ms) if at % 3 == nth => {
                pause(ms).await;
                Some(())
            }
            _ => Some(()),
        }
    }

    async fn say(&mut self, text: &str) -> Option<()> {
        self.stdout.write_all(text.as_bytes()).await.ok()
    }

    async fn refuse(&mut self, code: u8, words: &str) -> Option<Exit> {
        self.stderr.write_all(format!("{words}\n").as_bytes()).await.ok()?;
        Some(Exit::Code(code))
    }

    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.stdin.read_line(&mut line).await.ok()?;
        (read > 0).then(|| line.trim_end().to_owned())
    }

    async fn take(mut self, target: &str, asked: &BTreeMap<String, String>) -> Option<Exit> {
        let of = |name: &str| asked.get(name).map(String::as_str).unwrap_or_default();
        let dir = of("bb_dir");
        if dir != "." && dir != HOME {
            return self.refuse(3, &format!("there is no directory {dir} in the box")).await;
        }
        let ready = format!("ready 1000 1000 {HOME}/{}\n", of("bb_stage"));
        self.say(&ready).await?;
        if self.line().await? != "tar" {
            return Some(Exit::Code(1));
        }
        let mut archive = Vec::new();
        self.stdin.read_to_end(&mut archive).await.ok()?;
        self.meets(1).await?;
        pause(8).await;
        let Some((files, list)) = unpacked(&archive) else {
            return self.refuse(6, "what was sent is not complete").await;
        };
        if let Some((name, _)) = files.iter().find(|(_, bytes)| !list.contains(&sum(bytes))) {
            return self.refuse(5, &format!("{name} is not what was sent")).await;
        }
        let top = of("bb_last");
        for (nth, (name, bytes)) in files.into_iter().enumerate() {
            if nth > 0 {
                pause(2).await;
            }
            // Of one file, the name is its place.
            let name = name.strip_prefix('d').map(|below| format!("{top}{below}"))?;
            self.open.within(|inside, now| inside.put(&name, bytes, now))?;
            self.open.note(&format!("has a new file {name} of {target}"));
        }
        if matches!(self.fate, Fate::BreaksAfter(_)) {
            return None;
        }
        self.meets(2).await?;
        self.say("done\n").await?;
        Some(Exit::Code(0))
    }

    async fn give(mut self, source: &str) -> Option<Exit> {
        let name = source.trim_start_matches(HOME).trim_start_matches('/').to_owned();
        if self.open.within(|inside, _| !inside.below(&name).is_empty())? {
            return self.give_tree(&name).await;
        }
        let file = |inside: &super::inside::Inside| inside.file(&name).map(<[u8]>::to_vec);
        let Some(there) = self.open.within(|inside, _| file(inside))? else {
            return self.refuse(3, &format!("there is no {source} in the box")).await;
        };
        let ready = format!("ready file {} {HOME}/{name}\n", there.len());
        self.say(&ready).await?;
        while let Some(asked) = self.line().await {
            let now = self.open.within(|inside, _| file(inside))??;
            match asked.as_str() {
                "sum" => {
                    self.stderr.write_all(format!("bb_sum {}\n", sum(&now)).as_bytes()).await.ok()?;
                }
                "tar" => {
                    self.meets(1).await?;
                    self.send(&packed(&name, &now)?).await?;
                }
                other => {
                    self.open.problem(&format!("a copy asks its guard for {other:?}"));
                    return None;
                }
            }
            pause(3).await;
        }
        self.open.within(|_, _| Exit::Code(0))
    }
}

impl Guard<'_> {
    /// Sends an archive in two parts: between them it may break, or meet what happens to the box.
    async fn send(&mut self, archive: &[u8]) -> Option<()> {
        let (first, second) = archive.split_at(archive.len() / 2);
        self.stdout.write_all(first).await.ok()?;
        if matches!(self.fate, Fate::BreaksAfter(_)) {
            return None;
        }
        self.meets(2).await?;
        self.stdout.write_all(second).await.ok()
    }

    async fn give_tree(mut self, top: &str) -> Option<Exit> {
        self.say(&format!("ready dir 0 {HOME}/{top}\n")).await?;
        while let Some(asked) = self.line().await {
            match asked.as_str() {
                "tar" => {
                    self.meets(1).await?;
                    let files = self.files(top)?;
                    self.send(&packed_tree(&files)?).await?;
                }
                "list" => {
                    let mut list = String::new();
                    self.stdin.read_to_string(&mut list).await.ok()?;
                    if !list.ends_with("bb_all=yes\n") {
                        return Some(Exit::Code(6));
                    }
                    let now = self.files(top)?;
                    let changed = listed(&list)
                        .into_iter()
                        .find(|(name, said)| now.get(name).is_none_or(|b| sum(b) != *said));
                    if let Some((name, _)) = changed {
                        return self.refuse(5, &format!("./{name} is not what was sent")).await;
                    }
                }
                other => {
                    self.open.problem(&format!("a copy asks its guard for {other:?}"));
                    return None;
                }
            }
            pause(3).await;
        }
        self.open.within(|_, _| Exit::Code(0))
    }

    /// What is in a directory now, by the names below it.
    fn files(&self, top: &str) -> Option<BTreeMap<String, Vec<u8>>> {
        self.open.within(|inside, _| {
            let below = |name: String| {
                let bytes = inside.file(&name)?.to_vec();
                Some((name.strip_prefix(top)?.trim_start_matches('/').to_owned(), bytes))
            };
            inside.below(top).into_iter().filter_map(below).collect()
        })
    }
}

/// The files of a list with their sums.
fn listed(list: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for line in list.lines() {
        let Some((sums, names)) = line.strip_prefix("bb_w='").and_then(|rest| rest.split_once("'; bb_many "))
        else {
            continue;
        };
        let words: Vec<&str> = sums.split(' ').collect();
        let names = names.split(' ').map(|name| name.trim_matches('\'').trim_start_matches("./").to_owned());
        all.extend(names.zip(words.chunks(2).map(|pair| pair.join(" "))));
    }
    all
}

/// The words that stand before a copy's script, a line each.
fn variables(script: &str) -> BTreeMap<String, String> {
    let words = script.lines().take_while(|line| line.starts_with("bb_"));
    let parts = words.filter_map(|line| line.split_once('='));
    parts.map(|(name, word)| (name.to_owned(), word.trim_matches('\'').to_owned())).collect()
}

/// CRC and size, as POSIX cksum prints them.
fn sum(bytes: &[u8]) -> String {
    const TABLE: [u32; 256] = table();
    let size = bytes.len().to_le_bytes();
    let size = &size[..size.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)];
    let crc = bytes.iter().chain(size).fold(0_u32, |crc, byte| {
        let [first, ..] = crc.to_be_bytes();
        (crc << 8) ^ TABLE[usize::from(first ^ byte)]
    });
    format!("{} {}", !crc, bytes.len())
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        let mut crc = (n as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000_0000 == 0 { crc << 1 } else { (crc << 1) ^ 0x04c1_1db7 };
            bit += 1;
        }
        table[n] = crc;
        n += 1;
    }
    table
}

/// The files, by their names from `d` on, and the list of a copy's stream, when that is complete.
fn unpacked(archive: &[u8]) -> Option<(BTreeMap<String, Vec<u8>>, String)> {
    let (mut files, mut list) = (BTreeMap::new(), None);
    for entry in tar::Archive::new(archive).entries().ok()? {
        let mut entry = entry.ok()?;
        let name = entry.path().ok()?.to_str()?.trim_end_matches('/').to_owned();
        let is_dir = entry.header().entry_type().is_dir();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).ok()?;
        match name.as_str() {
            "m" => list = String::from_utf8(bytes).ok(),
            _ if is_dir => {}
            _ if name == "d" || name.starts_with("d/") => drop(files.insert(name, bytes)),
            _ => return None,
        }
    }
    list.filter(|list| list.ends_with("bb_all=yes\n") && !files.is_empty()).map(|list| (files, list))
}

fn packed_tree(files: &BTreeMap<String, Vec<u8>>) -> Option<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    let dirs = files.keys().filter_map(|name| name.rsplit_once('/')).map(|(dir, _)| format!("./{dir}"));
    let dirs: BTreeSet<String> = dirs.chain([".".to_owned()]).collect();
    for dir in dirs {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_size(0);
        header.set_mode(0o755);
        tar.append_data(&mut header, dir, std::io::empty()).ok()?;
    }
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, format!("./{name}"), bytes.as_slice()).ok()?;
    }
    tar.into_inner().ok()
}

fn packed(name: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, format!("./{name}"), bytes).ok()?;
    tar.into_inner().ok()
}
