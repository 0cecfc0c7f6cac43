//! The part of a POSIX shell that the simulated guests understand: enough for the scripts of the actors.
//!
//! What it makes of a script is held to what a real shell makes of it, by a test that runs both.

use bbbox::transport::Exit;

/// What a script does, worked out when it is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Course {
    /// How long it runs, in milliseconds.
    pub(super) runs_ms: u64,
    pub(super) exit: Exit,
    pub(super) out: Vec<u8>,
    pub(super) err: Vec<u8>,
}

/// What `script` does. Knows `sleep`, `echo` (also to stderr), `exit`, `kill -9 $$`, and zeros as `x`.
pub(super) fn course(script: &str) -> Course {
    let mut course = Course { runs_ms: 0, exit: Exit::Code(0), out: Vec::new(), err: Vec::new() };
    for statement in script.split([';', '\n']).map(str::trim).filter(|s| !s.is_empty()) {
        let words: Vec<&str> = statement.split_ascii_whitespace().collect();
        course.exit = Exit::Code(0);
        match words.as_slice() {
            ["sleep", time] => course.runs_ms += millis(time),
            ["echo", words @ .., ">&2"] => put(&mut course.err, words),
            ["echo", words @ ..] => put(&mut course.out, words),
            ["exit", code] => {
                course.exit = Exit::Code(code.parse().unwrap_or(2));
                return course;
            }
            ["kill", "-9", "$$"] => {
                course.exit = Exit::Signal(9);
                return course;
            }
            ["head", "-c", count, "/dev/zero", "|", "tr", "'\\0'", "x"] => {
                course.out.extend(std::iter::repeat_n(b'x', count.parse().unwrap_or(0)));
            }
            other => {
                put(&mut course.err, &["sh:", other[0], "not", "found"]);
                course.exit = Exit::Code(127);
            }
        }
    }
    course
}

fn put(to: &mut Vec<u8>, words: &[&str]) {
    to.extend_from_slice(words.join(" ").as_bytes());
    to.push(b'\n');
}

fn millis(seconds: &str) -> u64 {
    let (whole, part) = seconds.split_once('.').unwrap_or((seconds, ""));
    let part = format!("{part:0<3}");
    whole.parse::<u64>().unwrap_or(0) * 1000 + part.get(..3).and_then(|p| p.parse().ok()).unwrap_or(0)
}

/// The script in a runner's SPEC, as the core writes a short one: `export bb_s='…';go …`.
pub(super) fn script_of(spec: &str) -> Option<String> {
    let text = spec.split_once("export bb_s=")?.1;
    let mut script = String::new();
    let mut rest = text;
    loop {
        if let Some(more) = rest.strip_prefix("\"$bb_n\"") {
            script.push('\n');
            rest = more;
        } else if let Some(more) = rest.strip_prefix("\\'") {
            script.push('\'');
            rest = more;
        } else if let Some(more) = rest.strip_prefix('\'') {
            let end = more.find('\'')?;
            script.push_str(&more[..end]);
            rest = &more[end + 1..];
        } else {
            return rest.starts_with(';').then_some(script);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_found_in_its_spec_and_has_its_course() {
        let spec = "export bb_s='sleep 1.5'\"$bb_n\"'echo it'\\''s >&2;exit 3';go /bin/sh -c 'x'";
        let script = script_of(spec).unwrap();
        assert_eq!(script, "sleep 1.5\necho it's >&2;exit 3");
        let Course { runs_ms, exit, out, err } = course(&script);
        assert_eq!(
            (runs_ms, exit, out.as_slice(), err.as_slice()),
            (1500, Exit::Code(3), &b""[..], &b"it's\n"[..])
        );
    }
}
