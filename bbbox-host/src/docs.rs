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
