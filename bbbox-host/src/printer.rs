//! The one way anything leaves this program: data on stdout, everything else on stderr.
//!
//! In JSON a verb prints one value; for people, lines and tables. Nothing a box or a provider said can move a
//! person's cursor: control and direction marks are shown, not sent. It knows no verb.

use std::io::{self, IsTerminal, Write};

use anstream::AutoStream;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use crate::fault::Fault;

/// Where a verb's answer and its notes go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer {
    json: bool,
}

impl Printer {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether a program reads.
    pub(crate) fn json(self) -> bool {
        self.json
    }

    /// Whether a person watches stderr: progress is only for them.
    pub(crate) fn watched(self) -> bool {
        !self.json && io::stderr().is_terminal()
    }

    /// Prints a verb's answer: `value` for a program, the text that `human` makes for a person.
    pub(crate) fn answer<T: Serialize>(self, value: &T, human: impl FnOnce() -> String) -> Result<(), Fault> {
        if self.json {
            let mut text = serde_json::to_string(value).map_err(Fault::json)?;
            text.push('\n');
            self.data(text.as_bytes())
        } else {
            let mut text = human();
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            let mut out = AutoStream::auto(io::stdout()).lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Fault::stdout)
        }
    }

    /// Writes bytes to stdout as they are.
    pub(crate) fn data(self, bytes: &[u8]) -> Result<(), Fault> {
        let mut out = io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush()).map_err(Fault::stdout)
    }

    /// stdout and stderr for what a command in a box writes, as it comes.
    pub(crate) fn streams(self) -> (tokio::io::Stdout, tokio::io::Stderr) {
        (tokio::io::stdout(), tokio::io::stderr())
    }

    /// Tells a person something beside the answer.
    pub(crate) fn note(self, text: &str) {
        if !self.json {
            to_stderr(&format!("{}\n", lines(text)));
        }
    }

    /// Tells a person what they should know beside an answer that is as it was asked for; a program finds it in the
    /// answer itself.
    pub(crate) fn warn(self, words: &str) {
        if !self.json {
            to_stderr(&format!("\u{1b}[33mwarning:\u{1b}[0m {}\n", lines(words)));
        }
    }

    /// Says what went wrong, in the form that was asked for.
    pub(crate) fn fault(self, fault: &Fault) {
        if self.json {
            to_stderr(&format!("{}\n", fault.to_json()));
        } else {
            to_stderr(&fault.to_text());
        }
    }
}

/// Nothing is left to tell when stderr itself is gone.
fn to_stderr(text: &str) {
    let mut out = AutoStream::auto(io::stderr()).lock();
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// A table for people: a head and rows, as wide as the terminal or the text, no lines drawn.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(head);
    for row in rows {
        table.add_row(row.map(|cell| line(&cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let text = table.to_string();
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// `text` on one line, whatever it holds: marks that would move the cursor or turn the text are shown as escapes.
pub(crate) fn line(text: &str) -> String {
    shown(text, false)
}

/// As [`line`], and its line breaks stay.
pub(crate) fn lines(text: &str) -> String {
    shown(text, true)
}

fn shown(text: &str, keep_breaks: bool) -> String {
    let turns =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if (keep_breaks && c == '\n') || !(c.is_control() || turns(c)) {
            out.push(c);
        } else {
            out.extend(c.escape_default());
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_box_said_cannot_move_a_cursor() {
        assert_eq!(line("a\x1b[2Jb\r\nc\u{202e}d\u{9b}"), "a\\u{1b}[2Jb\\r\\nc\\u{202e}d\\u{9b}");
        assert_eq!(lines("häuser\nund türen"), "häuser\nund türen");
    }

    #[test]
    fn a_table_has_a_head_and_no_trailing_space() {
        let text = table(["NAME", "STATE"], [["one".to_owned(), "ready".to_owned()]]);
        assert_eq!(text, "NAME  STATE\none   ready");
    }
}
