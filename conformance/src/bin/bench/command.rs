//! Running what a user would run instead: commands on this machine.

use std::process::Stdio;

use bbbox::{Error, Result};
use tokio::{io::AsyncReadExt, process::Command};

/// Runs a command to its end; anything but success is an error with its words.
pub(crate) async fn succeed(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .await
        .map_err(|e| Error::failed(format!("could not run {program}")).because(e))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::failed(format!("{program} {}: {}", arguments.join(" "), output.status))
        .because_of(String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Runs a command and reads its output as it comes; how many bytes there were.
pub(crate) async fn drain(program: &str, arguments: &[&str]) -> Result<u64> {
    let failed = |e| Error::failed(format!("could not run {program}")).because(e);
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut bytes = 0;
    if let Some(mut stdout) = child.stdout.take() {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match stdout.read(&mut buffer).await.map_err(failed)? {
                0 => break,
                n => bytes += n as u64,
            }
        }
    }
    child.wait().await.map_err(failed)?;
    Ok(bytes)
}
