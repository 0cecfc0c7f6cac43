//! How commands and streams reach one box: through the engine's exec, so that the box needs no network.

use std::sync::Arc;

use async_trait::async_trait;
use bbbox_core::{
    Error, ErrorKind, Result,
    guest::Guest,
    kind::Shell,
    route::Route,
    transport::{Archive, Process, Transport, TransportTraits},
};

use crate::{
    backend::Inner,
    client::Engine,
    exec::{self, As},
};

/// The command transport of one box.
#[derive(Debug)]
pub(crate) struct ExecTransport {
    pub(crate) docker: Arc<Inner>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) guest: Guest,
}

impl ExecTransport {
    /// The ID of the box's container. IDs are never used again, so one that was returned by an acquire needs no
    /// second look; a name does.
    pub(crate) async fn container(&self) -> Result<String> {
        let reference = &self.guest.reference;
        if reference.len() == 64 && reference.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(reference.clone());
        }
        let found = self.engine.inspect(reference).await?.filter(|container| container.is(&self.guest));
        found
            .map(|container| container.id)
            .ok_or_else(|| Error::gone(format!("box {} has no container here", self.guest.box_id)))
    }

    /// Starts a process in the container. One that is missing here may be another engine's.
    async fn exec(&self, argv: &[String]) -> Result<Process> {
        let spawned = async { exec::spawn(&self.engine, &self.container().await?, argv, As::User).await };
        match spawned.await {
            Err(error) if error.kind() == ErrorKind::Gone => {
                self.docker.must_be_here(&self.guest).await?;
                Err(error)
            }
            spawned => spawned,
        }
    }
}

#[async_trait]
impl Transport for ExecTransport {
    fn traits(&self) -> TransportTraits {
        TransportTraits { shell: Shell::Sh, admin: true, in_desktop_session: false, streaming: true }
    }

    async fn spawn(&self, argv: &[String]) -> Result<Process> {
        self.exec(argv).await
    }

    async fn probe(&self) -> Result<()> {
        let argv = ["true".to_owned()];
        let (exit, words) = exec::run(&self.engine, &self.container().await?, &argv, As::User).await?;
        if exit.success() {
            return Ok(());
        }
        Err(Error::unavailable("the box does not run commands").because_of(words))
    }

    async fn route(&self, port: u16) -> Result<Route> {
        // Without a long -t, socat would end half a second after one side's end and lose the rest of the other's.
        let argv = ["socat", "-t", "86400", "-", &format!("TCP:127.0.0.1:{port}")].map(str::to_owned);
        let process = self.exec(&argv).await?;
        Ok(Route::Stream(Box::new(tokio::io::join(process.stdout, process.stdin))))
    }

    fn archive(&self) -> Option<&dyn Archive> {
        Some(self)
    }
}
