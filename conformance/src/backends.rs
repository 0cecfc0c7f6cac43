//! The backends of this workspace as subjects.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use async_trait::async_trait;
use bbbox::{
    Result,
    backend::{Backend, BuildHooks},
    docker::{Docker, DockerConfig},
    error::Error,
    guest::Guest,
    id::BackendId,
    local::{Local, LocalConfig},
};
use clap::ValueEnum;
use conformance::{
    Subject,
    sim::{Provider, Shape},
};
use tempfile::TempDir;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

/// A backend by its name.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Name {
    /// Processes on this machine.
    Local,
    /// Containers on this machine's engine.
    Docker,
    /// A provider simulated in memory.
    Sim,
}

impl Name {
    /// The name as it is written.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Docker => "docker",
            Self::Sim => "sim",
        }
    }

    /// Which of an operation's crash points are tried: all of them where a box costs little, else one of each step,
    /// the one at which the deed is done and not yet recorded.
    pub(crate) fn crash_points(self, points: &[String]) -> Vec<(u64, String)> {
        let numbered = (1..).zip(points.iter().cloned());
        match self {
            Self::Local | Self::Sim => numbered.collect(),
            Self::Docker => {
                numbered.filter(|(_, p)| p.ends_with(" acted") || p.ends_with(" wrote")).collect()
            }
        }
    }
}

/// A handle on the provider `name` whose guests, where it keeps them in files, are below `folder`.
pub(crate) fn at(name: Name, folder: &Path) -> Result<Arc<dyn Backend>> {
    let id = BackendId::parse(name.word())?;
    match name {
        Name::Local => Ok(Arc::new(Local::open(id, LocalConfig::new(folder))?)),
        Name::Docker => Ok(Arc::new(Docker::connect(id, DockerConfig::default())?)),
        Name::Sim => Err(Error::refused("what is simulated in memory does not outlive its process")
            .fix("use local or docker")),
    }
}

/// The backend called `name`, ready to be held to its promises.
pub(crate) fn subject(name: Name) -> Result<Arc<dyn Subject>> {
    Ok(match name {
        Name::Local => Arc::new(Processes::new()?),
        Name::Docker => Arc::new(Containers),
        Name::Sim => Arc::new(Simulated(Provider::new(Shape { guests: 64, ..Shape::default() })?)),
    })
}

struct Processes(TempDir);

impl Processes {
    fn new() -> Result<Self> {
        TempDir::with_prefix("bbbox-local-")
            .map(Self)
            .map_err(|e| Error::failed("could not make a folder for guests").because(e))
    }
}

#[async_trait]
impl Subject for Processes {
    fn backend(&self) -> Result<Arc<dyn Backend>> {
        let config = LocalConfig::new(self.0.path().join("guests"));
        Ok(Arc::new(Local::open(BackendId::parse("local")?, config)?))
    }

    async fn crash(&self, guest: &Guest) -> Result<bool> {
        // A guest lives as long as its first process, whose number is the first word of this file.
        let keeper = self.0.path().join("guests").join(&guest.reference).join("keeper");
        let words = std::fs::read_to_string(&keeper)
            .map_err(|e| Error::failed(format!("could not read {}", keeper.display())).because(e))?;
        let pid = words.split(' ').next().unwrap_or_default();
        let killed = Command::new("kill").args(["-KILL", pid]).status().await;
        Ok(killed.is_ok_and(|status| status.success()))
    }
}

struct Containers;

#[async_trait]
impl Subject for Containers {
    fn backend(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(Docker::connect(BackendId::parse("docker")?, DockerConfig::default())?))
    }

    async fn prepare(&self) -> Result<()> {
        let backend = self.backend()?;
        let Some(images) = backend.images() else { return Ok(()) };
        for image in images.images().await?.into_iter().filter(|image| image.build.is_none()) {
            images.build(&image.kind, &CancellationToken::new(), &Told).await?;
        }
        Ok(())
    }

    async fn twin(&self, guest: &Guest) -> Result<Option<Guest>> {
        // Marked as a person's copy is, to which a commit passes labels on, and without an image that it would leave.
        let told = docker(&["inspect", "--format", "{{json .Config.Labels}}", &guest.reference]).await?;
        let labels: BTreeMap<String, String> = serde_json::from_str(&told)
            .map_err(|e| Error::failed(format!("could not read labels from {told:?}")).because(e))?;
        let image = docker(&["inspect", "--format", "{{.Image}}", &guest.reference]).await?;
        let mut run = vec!["run".to_owned(), "--detach".to_owned()];
        run.extend(labels.into_iter().map(|(key, value)| format!("--label={key}={value}")));
        run.extend([image.as_str(), "sleep", "600"].map(str::to_owned));
        let run: Vec<_> = run.iter().map(String::as_str).collect();
        Ok(Some(Guest { reference: docker(&run).await?, ..guest.clone() }))
    }
}

/// Runs the engine's own client, and returns what it said.
async fn docker(words: &[&str]) -> Result<String> {
    let failed = || Error::failed(format!("`docker {}` did not do it", words.join(" ")));
    let ran = Command::new("docker").args(words).output().await.map_err(|e| failed().because(e))?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).trim().to_owned());
    }
    Err(failed().because_of(String::from_utf8_lossy(&ran.stderr).trim().to_owned()))
}

/// A build's output goes with the logs.
struct Told;

impl BuildHooks for Told {
    fn line(&self, text: &str) {
        tracing::debug!(text, "building an image");
    }

    fn progress(&self, text: &str, _fraction: Option<f64>) {
        tracing::info!(text, "building an image");
    }
}

struct Simulated(Arc<Provider>);

#[async_trait]
impl Subject for Simulated {
    fn backend(&self) -> Result<Arc<dyn Backend>> {
        Ok(self.0.backend())
    }

    async fn crash(&self, guest: &Guest) -> Result<bool> {
        Ok(self.0.crash(guest))
    }

    async fn twin(&self, guest: &Guest) -> Result<Option<Guest>> {
        self.0.twin(guest)
    }

    fn boxes_at_once(&self) -> u32 {
        8
    }
}
