//! Moving tar streams in and out of a box through the engine, without a process in the box.
//!
//! The engine reads and writes the container's own files and its volumes. It does not see memory file systems:
//! what is below `/run` in the box, and anything the box mounted itself, is not what these calls reach. Nothing is
//! lost when a caller compares what arrived, as the trait asks.

use std::io;

use async_trait::async_trait;
use bbbox_core::{
    Error, Result,
    transport::{Archive, Source},
};
use bollard::{body_try_stream, query_parameters as query};
use futures::StreamExt;
use tokio_util::io::{ReaderStream, StreamReader};

use crate::{
    fault::{Call, fault},
    transport::ExecTransport,
};

/// How much of an archive is read at once.
const CHUNK: usize = 256 * 1024;

#[async_trait]
impl Archive for ExecTransport {
    async fn unpack(&self, dir: &str, tar: Source) -> Result<()> {
        let container = self.container().await?;
        let options = query::UploadToContainerOptionsBuilder::new().path(dir).build();
        let body = body_try_stream(ReaderStream::with_capacity(tar, CHUNK));
        let sent = self.engine.transfer().await?.upload_to_container(&container, Some(options), body).await;
        sent.map_err(|e| fault(format!("could not unpack files into {dir}"), Call::Changes, e))
    }

    async fn pack(&self, path: &str) -> Result<Source> {
        let container = self.container().await?;
        let options = query::DownloadFromContainerOptionsBuilder::new().path(path).build();
        let failed = |e| fault(format!("could not pack {path}"), Call::Reads, e);
        let api = self.engine.transfer().await?;
        let mut stream = Box::pin(api.download_from_container(&container, Some(options)));
        // The first piece tells whether there is such a path at all.
        let first = match stream.next().await {
            Some(first) => first.map_err(failed)?,
            None => return Err(Error::failed(format!("could not pack {path}: the engine sent nothing"))),
        };
        let rest = stream.map(|piece| piece.map_err(io::Error::other));
        let whole = futures::stream::once(std::future::ready(Ok(first))).chain(rest);
        Ok(Box::new(StreamReader::new(Box::pin(whole))))
    }
}
