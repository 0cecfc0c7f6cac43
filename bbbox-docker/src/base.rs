//! The base that a box image is built on: the configured image where it can be had, else one made on this host.

use std::{path::PathBuf, process::Stdio};

use bbbox_core::{Error, Result, backend::BuildHooks, error::ErrorKind};
use bollard::{body_try_stream, models::CreateImageInfo, query_parameters as query};
use futures::{Stream, StreamExt};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio_util::{io::ReaderStream, sync::CancellationToken};

use crate::{
    backend::Inner,
    config::Host,
    fault::{Call, fault},
    recipe,
};

const REPOSITORY: &str = "bbbox/base";

impl Inner {
    /// The name of an image on the engine to build on.
    ///
    /// # Errors
    /// `Unavailable` when the configured image is not there, no registry answers and none can be made here.
    pub(crate) async fn base(&self, cancel: &CancellationToken, hooks: &dyn BuildHooks) -> Result<String> {
        let wanted = &self.config.image_base;
        if self.engine.image(wanted).await?.is_some() {
            return Ok(wanted.clone());
        }
        hooks.progress(&format!("pulling {wanted}"), None);
        let refused = match self.pull(wanted, cancel, hooks).await {
            Ok(()) => return Ok(wanted.clone()),
            Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error),
            Err(error) => error,
        };
        hooks.line(&format!("{wanted} cannot be pulled: {}", refused.chain()));
        if let Err(why) = self.can_make_base() {
            return Err(Error::unavailable(format!(
                "{wanted} is not on the engine and cannot be pulled, and no base can be made here: {why}"
            ))
            .fix("load a Debian or Ubuntu image into the engine and name it as `image-base`")
            .because(refused));
        }
        self.make_base(cancel, hooks).await
    }

    async fn pull(&self, name: &str, cancel: &CancellationToken, hooks: &dyn BuildHooks) -> Result<()> {
        // Without its tag, every tag there is would be pulled; the configuration's check asks for one.
        let (image, tag) = name.rsplit_once(':').unwrap_or((name, "latest"));
        let options = query::CreateImageOptionsBuilder::new().from_image(image).tag(tag).build();
        let api = self.engine.transfer().await?;
        let stream = api.create_image(Some(options), None, None);
        followed(stream, cancel, hooks).await.map_err(|e| match e {
            Followed::Cancelled => cancelled(),
            Followed::Failed(error) => fault(format!("could not pull {name}"), Call::Changes, error),
        })
    }

    /// Whether a base can be made here at all, or why not.
    fn can_make_base(&self) -> Result<(), String> {
        if !matches!(self.host, Host::Unix(_)) {
            return Err("the engine is on another host".to_owned());
        }
        if !is_root() {
            return Err("making one needs root".to_owned());
        }
        let there =
            ["/usr/sbin/debootstrap", "/usr/bin/debootstrap"].iter().any(|p| PathBuf::from(p).exists());
        if there { Ok(()) } else { Err("debootstrap is not installed".to_owned()) }
    }

    /// Makes a base from this host's own packages, or takes one that was made so before: from the engine, else from
    /// the cache.
    async fn make_base(&self, cancel: &CancellationToken, hooks: &dyn BuildHooks) -> Result<String> {
        let tag = recipe::base_hash(&package_sources().await);
        let name = format!("{REPOSITORY}:{tag}");
        if self.engine.image(&name).await?.is_some() {
            hooks.line(&format!("building on {name}, made on this host before"));
            return Ok(name);
        }
        let cache = self.cache()?;
        let tar = cache.join(format!("base-{tag}.tar"));
        if tokio::fs::try_exists(&tar).await.unwrap_or(false) {
            hooks.line(&format!("building on {}, made before", tar.display()));
        } else {
            hooks.progress("making a base from this host's packages; this takes minutes", None);
            make(&cache.join(format!("base-{tag}.work")), &tar, cancel, hooks).await?;
        }
        hooks.progress("importing the base", None);
        let file = tokio::fs::File::open(&tar)
            .await
            .map_err(|e| Error::failed(format!("could not read {}", tar.display())).because(e))?;
        let body = body_try_stream(ReaderStream::with_capacity(file, 1 << 20));
        let options =
            query::CreateImageOptionsBuilder::new().from_src("-").repo(REPOSITORY).tag(&tag).build();
        let api = self.engine.transfer().await?;
        followed(api.create_image(Some(options), Some(body), None), cancel, hooks).await.map_err(
            |e| match e {
                Followed::Cancelled => cancelled(),
                Followed::Failed(error) => {
                    fault(format!("could not import {}", tar.display()), Call::Changes, error)
                }
            },
        )?;
        Ok(name)
    }

    /// The folder of bases that were made: the configured one, else `bb-box` in the user's cache.
    fn cache(&self) -> Result<PathBuf> {
        let set = self.config.cache.clone();
        set.or_else(|| std::env::home_dir().map(|home| home.join(".cache/bb-box"))).ok_or_else(|| {
            Error::failed("there is no folder to keep a base in")
                .fix("set `cache` in the backend's configuration")
        })
    }
}

/// Runs the script that makes a base's files.
async fn make(
    work: &std::path::Path,
    tar: &std::path::Path,
    cancel: &CancellationToken,
    hooks: &dyn BuildHooks,
) -> Result<()> {
    let failed = |e: std::io::Error| Error::failed("could not make a base on this host").because(e);
    if let Some(folder) = tar.parent() {
        tokio::fs::create_dir_all(folder).await.map_err(failed)?;
    }
    let mut child = tokio::process::Command::new("sh")
        .args(["-c", &format!("exec 2>&1; {}", recipe::MAKE_BASE), "make"])
        .args([work, tar])
        // Held open: when it ends, with this process or with this call, the script and all it started end.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let hold = child.stdin.take();
    let mut last = String::new();
    if let Some(output) = child.stdout.take() {
        let mut lines = BufReader::new(output).lines();
        loop {
            tokio::select! {
                line = lines.next_line() => match line.map_err(failed)? {
                    Some(line) => { hooks.line(&line); last = line; }
                    None => break,
                },
                () = cancel.cancelled() => {
                    drop(hold);
                    child.wait().await.map_err(failed)?;
                    return Err(cancelled());
                }
            }
        }
    }
    let status = child.wait().await.map_err(failed)?;
    drop(hold);
    if status.success() {
        return Ok(());
    }
    Err(Error::failed(format!("could not make a base on this host ({status})")).because_of(last))
}

/// What this host's packages come from: part of what a base is.
async fn package_sources() -> String {
    let mut text = tokio::fs::read_to_string("/etc/os-release").await.unwrap_or_default();
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(mut folder) = tokio::fs::read_dir("/etc/apt/sources.list.d").await {
        while let Ok(Some(entry)) = folder.next_entry().await {
            files.push(entry.path());
        }
    }
    files.sort();
    for file in files {
        text.push_str(&tokio::fs::read_to_string(file).await.unwrap_or_default());
    }
    text
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

/// Why a stream of progress ended early.
enum Followed {
    Cancelled,
    Failed(bollard::errors::Error),
}

pub(crate) fn cancelled() -> Error {
    Error::cancelled("the build was taken back")
}

/// Passes a pull's or an import's progress on, to its end. Dropping the stream ends the engine's work.
async fn followed(
    stream: impl Stream<Item = Result<CreateImageInfo, bollard::errors::Error>>,
    cancel: &CancellationToken,
    hooks: &dyn BuildHooks,
) -> Result<(), Followed> {
    let mut stream = std::pin::pin!(stream);
    loop {
        let next = tokio::select! {
            next = stream.next() => next,
            () = cancel.cancelled() => return Err(Followed::Cancelled),
        };
        match next {
            None => return Ok(()),
            Some(Err(error)) => return Err(Followed::Failed(error)),
            Some(Ok(info)) => {
                // A layer's progress comes many times a second: only what is not a count is a line.
                if let Some(status) = info.status.filter(|_| info.progress_detail.is_none()) {
                    hooks.line(&status);
                }
            }
        }
    }
}
