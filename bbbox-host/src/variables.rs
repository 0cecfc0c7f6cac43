//! Variables for a command in a box, as people give them: `NAME=VALUE`, `NAME` with its value from here, or a file of
//! such lines. A value never stands in an error.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
};

use bbbox::Error;

use crate::{fault::Fault, verb};

/// A variable's name, and its value as bytes.
pub(crate) type Variable = (String, Vec<u8>);

/// One argument.
pub(crate) fn of_word(word: &OsStr) -> Result<Variable, Fault> {
    Ok(read(word.as_bytes(), |name| std::env::var_os(name))?)
}

/// Each line of `file`.
pub(crate) fn of_file(file: &Path) -> Result<Vec<Variable>, Fault> {
    let bytes = verb::read_bytes(file)?;
    let lines = bytes.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let said = lines.enumerate().filter(|(_, line)| {
        let line = line.trim_ascii_start();
        !line.is_empty() && !line.starts_with(b"#")
    });
    said.map(|(at, line)| {
        let place = format!("{} line {}", verb::file_name(file), at + 1);
        read(line.trim_ascii_start(), |name| std::env::var_os(name))
            .map_err(|error| error.at("in", place).into())
    })
    .collect()
}

fn read(text: &[u8], here: impl Fn(&OsStr) -> Option<OsString>) -> Result<Variable, Error> {
    let mut parts = text.splitn(2, |byte| *byte == b'=');
    let (name, value) = (parts.next().unwrap_or_default(), parts.next());
    // Where a name cannot be read, the whole may be a value that was given in the wrong place.
    let shown = std::str::from_utf8(name).ok().filter(|name| !name.is_empty());
    let Some(shown) = shown.filter(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'))
    else {
        return Err(Error::invalid("a variable has no name that can be used")
            .fix("write NAME=VALUE, or NAME to take its value from here"));
    };
    let value = match value {
        Some(value) => value.to_vec(),
        None => here(OsStr::new(shown))
            .ok_or_else(|| {
                Error::invalid(format!("the variable {shown} is not set here"))
                    .fix(format!("set it and export it, or write {shown}=VALUE"))
            })?
            .into_vec(),
    };
    Ok((shown.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_alone_takes_its_value_from_here_and_a_value_is_in_no_error() {
        let here = |name: &OsStr| (name == "TOKEN").then(|| OsString::from_vec(b"s\xff".to_vec()));
        let good = |text: &str| read(text.as_bytes(), here).unwrap();
        assert_eq!(good("A=b=c"), ("A".to_owned(), b"b=c".to_vec()));
        assert_eq!(good("A="), ("A".to_owned(), Vec::new()));
        assert_eq!(good("TOKEN"), ("TOKEN".to_owned(), b"s\xff".to_vec()));
        let error = read(b"OTHER", here).unwrap_err();
        assert_eq!(error.to_string(), "the variable OTHER is not set here");
        for wrong in ["=secret", "my secret", "se-cret=x"] {
            let error = read(wrong.as_bytes(), here).unwrap_err();
            assert!(!format!("{error:?}").contains("cret"), "{error:?}");
        }
    }
}
