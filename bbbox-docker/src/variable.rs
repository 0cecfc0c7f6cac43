//! The engine that `DOCKER_HOST` names: taken where the configuration names none, as Docker's own command takes it.
//!
//! It is read through what the program lets its backends read, and nowhere else.

use bbbox_core::{Error, Result, driver::Variables, id::BackendId};

use crate::config::{Host, STANDARD_SOCKET, read_host};

/// The variable that Docker's own command reads.
pub(crate) const DOCKER_HOST: &str = "DOCKER_HOST";

/// Set, it has Docker's own command speak TLS, which is not spoken here.
const TLS: &str = "DOCKER_TLS_VERIFY";

/// The port that Docker's own command takes where `tcp://` names none.
const PORT: u16 = 2375;

/// The address that `DOCKER_HOST` names, in the form of the configuration; `None` where it is not set.
pub(crate) fn engine(id: &BackendId, variables: &Variables) -> Result<Option<String>> {
    let Some(value) = variables.get(DOCKER_HOST) else { return Ok(None) };
    let shown = value.to_string_lossy().into_owned();
    let cannot = |why: String| {
        Error::invalid(format!("backend {id}: {DOCKER_HOST} names an engine that cannot be used here: {why}"))
            .fix(format!(
                "set {DOCKER_HOST} to unix:///path or tcp://host:port, unset it for {STANDARD_SOCKET}, or name the \
                 engine as the backend's `host` in the configuration"
            ))
    };
    let Some(text) = value.to_str() else { return Err(cannot(format!("{shown:?} is not UTF-8"))) };
    if let Some((scheme @ ("ssh" | "https" | "npipe" | "fd"), _)) = text.split_once("://") {
        return Err(cannot(format!("{text:?} is reached by {scheme}")));
    }
    let with_port = match text.strip_prefix("tcp://").map(|address| address.trim_end_matches('/')) {
        Some(address) if !address.is_empty() && !has_port(address) => format!("tcp://{address}:{PORT}"),
        _ => text.to_owned(),
    };
    match read_host(&with_port) {
        Ok(Host::Http(_)) if variables.get(TLS).is_some() => {
            Err(cannot(format!("{TLS} is set, and {text:?} is asked without TLS")))
        }
        Ok(_) => Ok(Some(with_port)),
        Err(why) => Err(cannot(why)),
    }
}

/// Whether a port follows the host; the colons in the brackets of an address are its own.
fn has_port(address: &str) -> bool {
    address.rsplit(']').next().is_some_and(|rest| rest.contains(':'))
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, os::unix::ffi::OsStringExt};

    use super::*;

    fn read(host: &str, tls: &str) -> Result<Option<String>> {
        let (host, tls) = (host.to_owned(), tls.to_owned());
        let look = move |name: &str| match name {
            DOCKER_HOST => Some(host.clone().into()),
            TLS => Some(tls.clone().into()),
            _ => None,
        };
        engine(&BackendId::parse("docker").unwrap(), &Variables::from_fn(look))
    }

    #[test]
    fn the_variable_is_read_as_dockers_own_command_reads_it() {
        for (said, meant) in [
            ("unix:///run/user/1000/docker.sock", "unix:///run/user/1000/docker.sock"),
            ("tcp://10.0.0.1:2376", "tcp://10.0.0.1:2376"),
            ("tcp://10.0.0.1", "tcp://10.0.0.1:2375"),
            ("tcp://[::1]", "tcp://[::1]:2375"),
            ("tcp://[::1]:9", "tcp://[::1]:9"),
        ] {
            assert_eq!(read(said, "").unwrap().as_deref(), Some(meant));
        }
        assert_eq!(read("", "1").unwrap(), None);
        assert_eq!(engine(&BackendId::parse("docker").unwrap(), &Variables::default()).unwrap(), None);
    }

    #[test]
    fn what_cannot_be_used_names_the_variable_and_what_can() {
        for (said, tls) in
            [("ssh://h", ""), ("https://h:1", ""), ("nowhere", ""), ("tcp://h:1/x", ""), ("tcp://h", "1")]
        {
            let error = read(said, tls).unwrap_err();
            assert!(error.to_string().contains(DOCKER_HOST) && error.to_string().contains(said), "{error}");
            assert!(error.how_to_fix().is_some_and(|fix| fix.contains("unix:///path")), "{error:?}");
        }
        let look = |_: &str| Some(OsString::from_vec(b"unix:///\xff".to_vec()));
        let error = engine(&BackendId::parse("docker").unwrap(), &Variables::from_fn(look)).unwrap_err();
        assert!(error.to_string().contains("not UTF-8"), "{error}");
    }
}
