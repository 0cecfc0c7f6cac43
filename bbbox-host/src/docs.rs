//! The pages that are made from the program: the CLI reference and the configuration's schema. A test says when one
//! is old; `BBBOX_WRITE_DOCS=1 cargo test -p bbbox-host docs` writes them.

use std::{fmt::Write, fs, path::Path};

use clap::{Command, CommandFactory};

use crate::cli::Cli;

fn current(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    if std::env::var_os("BBBOX_WRITE_DOCS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == text,
        "docs/{name} is not what the program says now; write it: BBBOX_WRITE_DOCS=1 cargo test -p bbbox-host docs"
    );
}

#[test]
fn the_schema_of_the_configuration_is_current() {
    let schema = serde_json::to_string_pretty(&bbbox::drivers().config_schema()).unwrap();
    current("configuration.schema.json", &format!("{schema}\n"));
}

#[test]
fn the_reference_of_the_cli_is_current() {
    let mut text = "# The command `bbbox`\n\nMade from the program's own help.\n".to_owned();
    page(&mut text, Cli::command().term_width(100).bin_name("bbbox"), "bbbox");
    current("cli.md", &text);
}

/// The help of `command` and of every verb below it.
fn page(text: &mut String, mut command: Command, name: &str) {
    command.build();
    let help = command.render_long_help().to_string();
    let lines: Vec<_> = help.lines().map(str::trim_end).collect();
    let _ = write!(text, "\n## `{name}`\n\n```text\n{}\n```\n", lines.join("\n").trim_end());
    for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
        page(text, verb.clone(), &format!("{name} {}", verb.get_name()));
    }
}

/// Every advice names a verb that there is: `bbbox VERB`, and `bbbox VERB VERB` where a verb has verbs of its own.
#[test]
fn advice_names_only_verbs_that_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut wrong = Vec::new();
    let mut seen = 0;
    for part in ["src", "bbbox-host/src", "bbbox-core/src", "bbbox-docker/src"] {
        for file in sources(&root.join(part)) {
            let text = fs::read_to_string(&file).unwrap();
            for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
                for advice in line.split("`bbbox ").skip(1) {
                    seen += 1;
                    let words: Vec<_> =
                        advice.split('`').next().unwrap_or_default().split_whitespace().collect();
                    if !is_there(&Cli::command(), &words) {
                        wrong.push(format!("{}: bbbox {}", file.display(), words.join(" ")));
                    }
                }
            }
        }
    }
    assert!(seen > 20, "only {seen} advices were found");
    assert!(wrong.is_empty(), "there is no such verb:\n{}", wrong.join("\n"));
}

fn sources(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            found.extend(sources(&entry));
        } else if entry.extension().is_some_and(|ext| ext == "rs") && !entry.ends_with("docs.rs") {
            found.push(entry);
        }
    }
    found
}

/// Whether the first of `words` is a verb of `command`, and those after it are where it has verbs of its own. Every
/// option among them must be the verb's as well.
fn is_there(command: &Command, words: &[&str]) -> bool {
    let Some((first, rest)) = words.split_first() else { return false };
    // The name of a verb that the text fills in.
    if *first == "VERB" {
        return true;
    }
    let Some(verb) = command.get_subcommands().find(|verb| verb.get_name() == *first) else { return false };
    if verb.has_subcommands() {
        return is_there(verb, rest);
    }
    let options = rest.iter().take_while(|word| **word != "--").filter_map(|word| word.strip_prefix("--"));
    let global = ["json", "data", "help"];
    options.into_iter().all(|option| {
        global.contains(&option) || verb.get_arguments().any(|argument| argument.get_long() == Some(option))
    })
}

#[test]
fn a_verb_that_is_not_there_is_found() {
    let command = Cli::command();
    for (words, there) in [
        ("sweep", true),
        ("job wait BOX JOB", true),
        ("release --force BOX", true),
        ("run BOX -- x --y", true),
        ("cancel op1", false),
        ("job cancel", false),
        ("stop --now BOX", false),
        ("", false),
    ] {
        assert_eq!(is_there(&command, &words.split_whitespace().collect::<Vec<_>>()), there, "{words}");
    }
}
