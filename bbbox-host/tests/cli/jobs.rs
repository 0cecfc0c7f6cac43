//! `run` is as if the command ran here, and what `run` leaves is found by `job`.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::json;

use crate::{Folder, Said, signal, until};

#[test]
fn streams_codes_and_input_pass_through() {
    let folder = Folder::with_box();
    let said = folder.call(&["run", "dev", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (3, "out\n", "err\n"));
    assert_eq!(folder.call(&["run", "dev", "--", "sh", "-c", "kill -SEGV $$"]).code, 128 + 11);
    assert_eq!(folder.call(&["run", "dev", "--", "no-such-command"]).code, 127);
    let input: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let said = folder.feed(&["run", "dev", "--", "sha256sum"], &input);
    let file = folder.path().join("input");
    std::fs::write(&file, &input).unwrap();
    let here = Command::new("sha256sum").stdin(File::open(file).unwrap()).output().unwrap();
    let here = Said::from(here);
    assert_eq!(said.out, here.out);
    let words = [
        "run",
        "dev",
        "--dir",
        "/",
        "-e",
        "A=b c",
        "--",
        "sh",
        "-c",
        "pwd; echo \"$A|$1|\"",
        "sh",
        "a 'b\"\n$c",
    ];
    assert_eq!(folder.ok(&words), "/\nb c|a 'b\"\n$c|\n");
    let said = folder.feed(&["run", "dev", "--script", "-"], b"echo \"from $0\" | sed s,/.*/,,; exit 4");
    assert_eq!((said.code, said.out.as_str()), (4, "from sh\n"));
}

#[test]
fn a_program_gets_every_byte_in_one_object() {
    let folder = Folder::with_box();
    let said =
        folder.call(&["run", "--json", "dev", "--", "sh", "-c", r"printf 'a\377'; printf é >&2; exit 4"]);
    let mut value: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert!(value["job"].take().as_str().is_some_and(|job| job.starts_with("jb")));
    assert_eq!(said.code, 4);
    assert_eq!(
        value,
        json!({
            "job": null, "state": "ended", "exit": { "code": 4 },
            "stdout": { "base64": "Yf8=", "total": 2 }, "stderr": { "text": "é", "total": 2 },
        })
    );
    let said = folder.call(&["run", "--json", "dev", "--", "sh", "-c", "yes äöü | head -c 98000"]);
    let value: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(value["stdout"]["total"], 98_000);
    assert!(value["stdout"]["head"]["text"].as_str().is_some_and(|text| text.starts_with("äöü\nä")));
    assert!(value["stdout"]["tail"]["text"].as_str().is_some_and(|text| text.ends_with("äöü\n")));
}

#[test]
fn the_first_ctrl_c_goes_to_the_command_and_the_second_leaves_it_as_a_job() {
    let folder = Folder::with_box();
    let script = "trap 'echo told' INT; echo up; while :; do sleep 0.1; done";
    let mut child = folder.spawn(&["run", "dev", "--", "sh", "-c", script], Stdio::null());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "up");
    signal(&child, "INT");
    assert_eq!(lines.next().unwrap().unwrap(), "told");
    signal(&child, "INT");
    let mut words = String::new();
    child.stderr.take().unwrap().read_to_string(&mut words).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(124), "{words}");
    let job = words.split_whitespace().last().unwrap().trim_end_matches('`').to_owned();
    let state = |state: &str| {
        let jobs = folder.json(&["job", "list", "dev"]);
        jobs.as_array().unwrap().iter().any(|j| j["job"] == *job && j["state"] == state)
    };
    assert!(state("running"));
    assert_eq!(folder.json(&["job", "signal", "dev", &job, "kill"])["signalled"], "sent");
    assert_eq!(folder.call(&["job", "wait", "dev", &job]).code, 128 + 9);
    assert!(state("ended"));
    assert_eq!(folder.ok(&["job", "read", "dev", &job]).lines().next(), Some("up"));
    folder.ok(&["job", "remove", "dev", &job]);
    assert_eq!(folder.call(&["job", "wait", "dev", &job]).code, 125);
}

#[test]
fn a_terminate_reaches_the_command() {
    let folder = Folder::with_box();
    let mut child = folder.spawn(&["run", "dev", "--", "sh", "-c", "echo up; exec sleep 100"], Stdio::null());
    let mut up = [0; 3];
    child.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
    signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
}

#[test]
fn much_output_that_nobody_reads_holds_up_nothing() {
    let folder = Folder::with_box();
    let words = ["run", "dev", "--", "sh", "-c", "yes | head -c 30000000"];
    let mut child = folder.spawn(&words, Stdio::null());
    let mut some = [0; 2];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    let said = Said::from(child.wait_with_output().unwrap());
    assert_eq!((said.code, said.err.as_str()), (141, ""));
}

#[test]
fn a_command_whose_reader_went_is_told_and_nothing_is_said_about_it() {
    let folder = Folder::with_box();
    let mut child = folder.spawn(&["run", "dev", "--", "yes", "gone-reader"], Stdio::null());
    let mut some = [0; 12];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    let said = Said::from(child.wait_with_output().unwrap());
    assert_eq!((said.code, said.err.as_str()), (141, ""));
    until("the end of the command", || {
        let jobs = folder.json(&["job", "list", "dev"]);
        jobs.as_array().unwrap().iter().all(|job| job["state"] == "ended").then_some(())
    });
}

#[test]
fn a_run_that_passed_everything_on_leaves_nothing_in_the_box() {
    let folder = Folder::with_box();
    assert_eq!(folder.call(&["run", "dev", "--", "sh", "-c", "seq 100000; exit 3"]).code, 3);
    folder.json(&["run", "dev", "--", "echo", "hi"]);
    let mut child = folder.spawn(&["run", "dev", "--", "yes", "gone-reader"], Stdio::null());
    child.stdout.take().unwrap().read_exact(&mut [0; 12]).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(141));
    // The one that counts is there itself.
    let count = ["run", "dev", "--", "sh", "-c", "ls ~/.local/state/bb-box/jobs | wc -l"];
    until("the box has no job but this", || (folder.ok(&count).trim() == "1").then_some(()));
    let long = folder.json(&["run", "dev", "--", "seq", "100000"]);
    let job = long["job"].as_str().unwrap();
    assert!(folder.ok(&["job", "read", "dev", job]).ends_with("100000\n"), "what a result leaves out stays");
}

#[test]
fn what_a_command_leaves_running_does_not_hold_it_and_a_limit_leaves_it_as_a_job() {
    let folder = Folder::with_box();
    let began = Instant::now();
    assert_eq!(folder.call(&["run", "dev", "--", "sh", "-c", "(sleep 60; echo late) & exit 6"]).code, 6);
    assert!(began.elapsed() < Duration::from_secs(30));
    let said = folder.call(&["run", "dev", "--wait", "1", "--", "sleep", "60"]);
    assert_eq!(said.code, 124);
    assert!(said.err.contains("bbbox job wait dev jb"), "{said:?}");
    let job = folder.ok(&["run", "dev", "--detach", "--", "sh", "-c", "echo one; echo two >&2; exit 2"]);
    let job = job.trim();
    assert_eq!(folder.call(&["job", "wait", "dev", job]).code, 2);
    assert_eq!(folder.ok(&["job", "read", "dev", job, "--follow"]), "one\n");
    let piece = folder.json(&["job", "read", "dev", job, "--stderr", "--offset", "1"]);
    assert_eq!(piece, json!({ "text": "wo\n", "offset": 1, "next": 4, "total": 4 }));
}

#[test]
fn a_box_that_does_not_answer_is_shown_so_until_it_does() {
    let folder = Folder::with_box();
    if folder.json(&["status", "dev"])["capabilities"]["command"]["transport"] != "process" {
        println!("SKIPPED: boxes are not kept apart here, and this fills a folder that others use too");
        return;
    }
    let full = "rm -rf ~/.local; for at in ~/.local /tmp/bb-box-0 /dev/shm/bb-box-0; do : >$at; done";
    folder.call(&["run", "dev", "--", "sh", "-c", full]);
    assert_eq!(folder.call(&["job", "list", "dev"]).code, 5, "a box without room for jobs runs none");
    let silent = folder.json(&["status", "dev"])["unanswered"].clone();
    assert!(silent["words"].as_str().is_some_and(|words| !words.is_empty()), "{silent}");
    assert!(folder.ok(&["list"]).contains("does not answer"));
    let file = folder.path().join("file");
    std::fs::write(&file, "here").unwrap();
    folder.ok(&["copy", file.to_str().unwrap(), "dev:file"]);
    assert!(folder.json(&["status", "dev"])["unanswered"].is_null());
}

#[test]
fn a_secret_goes_into_a_command_without_an_argument() {
    let folder = Folder::with_box();
    let file = folder.path().join("variables");
    std::fs::write(&file, "# of the project\n\nA=1\nB=2\nTOKEN\n").unwrap();
    let file = file.to_str().unwrap();
    let shown = ["--", "sh", "-c", "echo $A $B $TOKEN"];
    let words: Vec<_> = ["run", "dev", "--env-file", file, "-e", "B=3"].into_iter().chain(shown).collect();
    let said = Said::from(folder.command(&words).env("TOKEN", "secret").output().unwrap());
    assert_eq!((said.code, said.out.as_str()), (0, "1 3 secret\n"), "{said:?}");
    let said = Said::from(folder.command(&words).env_remove("TOKEN").output().unwrap());
    assert_eq!(said.code, 125);
    assert!(
        said.err.contains("the variable TOKEN is not set here") && said.err.contains("line 5"),
        "{said:?}"
    );
}

#[test]
fn a_script_for_another_interpreter_is_refused_with_what_to_do() {
    let folder = Folder::with_box();
    let said = folder.feed(&["run", "dev", "--script", "-"], b"#!/usr/bin/env python3\nprint(1)\n");
    assert_eq!(said.code, 125, "{said:?}");
    assert!(
        said.err.contains("stdin is for /usr/bin/env python3") && said.err.contains("`bbbox copy"),
        "{said:?}"
    );
}

#[test]
fn what_starts_a_box_or_a_command_passes_no_ignored_signal_on() {
    let folder = Folder::new();
    let ignoring = |words: &[&str]| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "trap '' HUP INT QUIT USR1; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_bbbox")]);
        shell.args(words).env("BBBOX_DATA", folder.path()).env_remove("BBBOX_LOG").stdin(Stdio::null());
        Said::from(shell.output().unwrap())
    };
    let made = ignoring(&["acquire", "linux", "--name", "dev"]);
    assert_eq!(made.code, 0, "{made:?}");
    for (signal, code) in [("HUP", 129), ("INT", 130), ("QUIT", 131), ("USR1", 138)] {
        let words = ["run", "dev", "--", "sh", "-c", "kill -$0 $$; sleep 5", signal];
        assert_eq!(ignoring(&words).code, code, "{signal}");
        assert_eq!(folder.call(&words).code, code, "{signal} in a box that an ignoring program started");
    }
}
