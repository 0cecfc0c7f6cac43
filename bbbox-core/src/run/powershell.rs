//! Command lines for boxes whose shell is PowerShell 7: text only, nothing here runs anything.
//!
//! A script goes base64-encoded as UTF-16LE (`-EncodedCommand`), so no quoting of any shell in between can change
//! it, and it ends with the exit code that sh would give. One too long for a Windows command line goes to a file
//! first. OpenSSH for Windows ends everything that a command started when the command exits, so what is to live on
//! is started outside the session ([`detached`]). No part of this has run on Windows yet.

use crate::error::{Error, Result};

/// The longest command line of `cmd.exe`, which OpenSSH for Windows hands every command to: 8191 characters
/// (Microsoft, "Command prompt line string limitation").
const LONGEST_LINE: usize = 8191;

const PROGRAM: &str = "pwsh.exe";
const OPTIONS: [&str; 4] = ["-NoLogo", "-NoProfile", "-NonInteractive", "-EncodedCommand"];

/// How a script is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// As one command line.
    Line(Vec<String>),
    /// As a file: `write` reads the script's bytes from its stdin, then `run` runs it and deletes the file.
    File {
        /// Writes its stdin to the file.
        write: Vec<String>,
        /// Runs the file, and deletes it whatever comes of it.
        run: Vec<String>,
    },
}

/// `text` as one literal of PowerShell.
///
/// PowerShell takes the typographic single quotes for `'` as well, so each of them is doubled.
#[must_use]
pub fn literal(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('\'');
    for c in text.chars() {
        if matches!(c, '\'' | '\u{2018}' | '\u{2019}' | '\u{201a}' | '\u{201b}') {
            quoted.push(c);
        }
        quoted.push(c);
    }
    quoted.push('\'');
    quoted
}

/// A command and its arguments as a script.
///
/// # Errors
/// `Invalid` when there is no command, or a word holds a NUL character.
pub fn command(argv: &[String]) -> Result<String> {
    if argv.first().is_none_or(String::is_empty) {
        return Err(Error::invalid("a command needs a program to run").fix("give it as the first word"));
    }
    if argv.iter().any(|word| word.contains('\0')) {
        return Err(Error::invalid("a word of a command cannot hold a NUL character"));
    }
    let words: Vec<_> = argv.iter().map(|word| literal(word)).collect();
    Ok(format!("& {}", words.join(" ")))
}

/// How `script` is sent so that it runs whole and exits as sh would. `file` is a path in the box for a script that is
/// too long for a command line; it is not there yet.
#[must_use]
pub fn send(script: &str, file: &str) -> Sent {
    let line = encoded(&exits_as_sh_would(&format!("& {{\n{script}\n}}")));
    if line.iter().map(|word| word.len() + 1).sum::<usize>() <= LONGEST_LINE {
        return Sent::Line(line);
    }
    let path = literal(file);
    let write = format!(
        "$in = [Console]::OpenStandardInput()\n\
         $out = [IO.File]::Open({path}, [IO.FileMode]::CreateNew)\n\
         try {{ $in.CopyTo($out) }} finally {{ $out.Close() }}"
    );
    // Read as text and made a block: a file's own `exit` and errors then count as the script's.
    let run = format!(
        "$text = [IO.File]::ReadAllText({path})\n\
         [IO.File]::Delete({path})\n\
         & ([ScriptBlock]::Create($text))"
    );
    Sent::File { write: encoded(&exits_as_sh_would(&write)), run: encoded(&exits_as_sh_would(&run)) }
}

/// A script that starts `script` outside the session that runs it, hidden, and prints its process ID.
///
/// A process that WMI starts is no child of the session's, so it outlives it.
#[must_use]
pub fn detached(script: &str) -> String {
    let line = encoded(&exits_as_sh_would(&format!("& {{\n{script}\n}}"))).join(" ");
    format!(
        "$start = New-CimInstance -ClassName Win32_ProcessStartup -ClientOnly -Property @{{ ShowWindow = [uint16]0 }}\n\
         $made = Invoke-CimMethod -ClassName Win32_Process -MethodName Create -Arguments @{{ CommandLine = {}; \
         ProcessStartupInformation = $start }}\n\
         if ($made.ReturnValue -ne 0) {{ throw \"the process was not started: $($made.ReturnValue)\" }}\n\
         $made.ProcessId",
        literal(&line)
    )
}

/// Wraps `body`, which runs in place, so that the exit code is what sh would give: the last program's own, 1 after a
/// command that failed without one, 127 for a command that is not there.
fn exits_as_sh_would(body: &str) -> String {
    format!(
        "$ProgressPreference = 'SilentlyContinue'\n\
         [Console]::OutputEncoding = $OutputEncoding = [Text.UTF8Encoding]::new($false)\n\
         $global:LASTEXITCODE = 0\n\
         try {{\n{body}\n$ok = $?\n}} catch [Management.Automation.CommandNotFoundException] {{\n\
         [Console]::Error.WriteLine($_)\nexit 127\n}} catch {{\n\
         [Console]::Error.WriteLine($_)\nexit 1\n}}\n\
         if (-not $ok -and $LASTEXITCODE -eq 0) {{ exit 1 }}\n\
         exit $LASTEXITCODE"
    )
}

fn encoded(script: &str) -> Vec<String> {
    let bytes: Vec<u8> = script.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let words = [PROGRAM].into_iter().chain(OPTIONS).map(str::to_owned);
    words.chain([base64(&bytes)]).collect()
}

/// Standard base64 with padding (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut group = [0_u8; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What PowerShell makes of an encoded command line.
    fn decoded(line: &[String]) -> String {
        let text = line.last().unwrap();
        let mut bits = Vec::new();
        for letter in text.bytes().filter(|b| *b != b'=') {
            let value = match letter {
                b'A'..=b'Z' => letter - b'A',
                b'a'..=b'z' => letter - b'a' + 26,
                b'0'..=b'9' => letter - b'0' + 52,
                b'+' => 62,
                _ => 63,
            };
            bits.extend((0..6).rev().map(|n| value >> n & 1));
        }
        let bytes: Vec<u8> = bits.chunks_exact(8).map(|b| b.iter().fold(0, |n, bit| n << 1 | bit)).collect();
        let units: Vec<u16> = bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
        String::from_utf16(&units).unwrap()
    }

    /// What PowerShell makes of a literal.
    fn read(literal: &str) -> String {
        let inner: Vec<char> = literal.chars().collect();
        let mut text = String::new();
        let mut chars = inner[1..inner.len() - 1].iter();
        while let Some(c) = chars.next() {
            if "'\u{2018}\u{2019}\u{201a}\u{201b}".contains(*c) {
                assert_eq!(chars.next(), Some(c), "a quote that stands alone ends the literal");
            }
            text.push(*c);
        }
        text
    }

    proptest! {
        #[test]
        fn a_literal_is_read_as_it_was(text: String) {
            prop_assert_eq!(read(&literal(&text)), text);
        }

        #[test]
        fn a_short_script_arrives_as_it_was(script in "[^\0]{0,200}") {
            let Sent::Line(line) = send(&script, r"C:\s.ps1") else { return Err(TestCaseError::fail("a file")) };
            let body = format!("& {{\n{script}\n}}");
            prop_assert!(decoded(&line).contains(&body));
            prop_assert!(line[5].bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b)));
        }
    }

    #[test]
    fn base64_is_the_standard_one() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn a_script_exits_as_sh_would() {
        let Sent::Line(line) = send("cmd /c exit 7", "f") else { panic!("a file") };
        assert_eq!(line[..5], ["pwsh.exe", "-NoLogo", "-NoProfile", "-NonInteractive", "-EncodedCommand"]);
        let text = decoded(&line);
        for part in [
            "$global:LASTEXITCODE = 0",
            "try {\n& {\ncmd /c exit 7\n}\n$ok = $?\n}",
            "CommandNotFoundException] {\n[Console]::Error.WriteLine($_)\nexit 127\n}",
            "if (-not $ok -and $LASTEXITCODE -eq 0) { exit 1 }\nexit $LASTEXITCODE",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
    }

    #[test]
    fn a_script_too_long_for_a_command_line_goes_to_a_file() {
        let script = "echo x\n".repeat(1000);
        let Sent::File { write, run } = send(&script, r"C:\Users\o'box\s.ps1") else { panic!("a line") };
        assert!(
            decoded(&write).contains(r"[IO.File]::Open('C:\Users\o''box\s.ps1', [IO.FileMode]::CreateNew)")
        );
        let run = decoded(&run);
        let (read, delete) = (run.find("ReadAllText").unwrap(), run.find("Delete").unwrap());
        assert!(read < delete && delete < run.find("ScriptBlock").unwrap(), "{run}");
        assert!(!run.contains("echo x"));
    }

    #[test]
    fn a_command_s_words_are_literals() {
        let argv: Vec<_> = ["C:\\a b\\x.exe", "$env:X; rm", "it's", "`n"].map(str::to_owned).to_vec();
        assert_eq!(command(&argv).unwrap(), "& 'C:\\a b\\x.exe' '$env:X; rm' 'it''s' '`n'");
        assert!(command(&[]).is_err());
    }

    #[test]
    fn what_is_detached_is_no_child_of_the_session() {
        let text = detached("Start-Sleep 60");
        assert!(text.contains("Invoke-CimMethod -ClassName Win32_Process -MethodName Create"), "{text}");
        assert!(text.contains("CommandLine = 'pwsh.exe -NoLogo"), "{text}");
    }
}
