//! What is run until it dies: one operation of a box, on a box made for it.

use std::{path::Path, sync::Arc, time::Duration};

use bbbox::{
    Error, ErrorKind, Result,
    backend::Backend,
    boxes::{Acquire, BoxHandle, Boxes},
    env::Env,
    id::{BoxName, KindId},
};
use clap::ValueEnum;

use super::wrap::{Fault, Misbehaving};

/// The kind whose boxes are used.
pub(crate) const KIND: &str = "linux";

/// One operation, and what it is run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    Acquire,
    AcquireFails,
    AcquireCancelled,
    Stop,
    Start,
    Resize,
    Rename,
    Release,
    ReleaseStopped,
    Check,
    Adopt,
    ReleaseStray,
    Forget,
    ImageBuild,
}

impl Scenario {
    pub(crate) const ALL: [Self; 14] = [
        Self::Acquire,
        Self::AcquireFails,
        Self::AcquireCancelled,
        Self::Stop,
        Self::Start,
        Self::Resize,
        Self::Rename,
        Self::Release,
        Self::ReleaseStopped,
        Self::Check,
        Self::Adopt,
        Self::ReleaseStray,
        Self::Forget,
        Self::ImageBuild,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::AcquireFails => "acquire-fails",
            Self::AcquireCancelled => "acquire-cancelled",
            Self::Stop => "stop",
            Self::Start => "start",
            Self::Resize => "resize",
            Self::Rename => "rename",
            Self::Release => "release",
            Self::ReleaseStopped => "release-stopped",
            Self::Check => "check",
            Self::Adopt => "adopt",
            Self::ReleaseStray => "release-stray",
            Self::Forget => "forget",
            Self::ImageBuild => "image-build",
        }
    }

    /// Why the operation does not apply to `backend`, if it does not.
    pub(crate) fn unmet(self, backend: &dyn Backend) -> Option<String> {
        let without_images = self == Self::ImageBuild && backend.images().is_none();
        without_images.then(|| "its backend builds no images".to_owned())
    }

    /// Makes what the operation needs, calls `arm`, and runs it to its end.
    pub(crate) async fn play(
        self,
        backend: &Arc<dyn Backend>,
        data: &Path,
        env: Arc<dyn Env>,
        arm: impl FnOnce(),
    ) -> Result<()> {
        match self {
            Self::Acquire => {
                let boxes = open(data, Some(backend), &env).await?;
                arm();
                acquire(&boxes).await?;
                boxes.idle().await;
            }
            Self::AcquireFails => {
                let failing = misbehaving(backend, Fault::FailsOnceMade);
                let boxes = open(data, Some(&failing), &env).await?;
                arm();
                must_fail(acquire(&boxes).await)?;
                boxes.idle().await;
            }
            Self::AcquireCancelled => {
                let boxes = open(data, Some(backend), &env).await?;
                arm();
                let (operation, _) = boxes.begin_acquire(small()?)?;
                boxes.cancel(&operation)?;
                must_fail(boxes.wait(&operation).await)?;
                boxes.idle().await;
            }
            Self::Adopt => {
                // The store is lost: another folder takes the install's ID.
                let lost = open(&data.join("lost"), Some(backend), &env).await?;
                acquire(&lost).await?;
                let boxes = open(data, Some(backend), &env).await?;
                boxes.set_install_id(&lost.install_id())?;
                arm();
                boxes.sweep().await?.into_result()?;
            }
            Self::ReleaseStray => {
                let keeping = misbehaving(backend, Fault::KeepsWhatItReleases);
                {
                    let boxes = open(data, Some(&keeping), &env).await?;
                    acquire(&boxes).await?.release(true).await?;
                    boxes.idle().await;
                }
                let boxes = open(data, Some(backend), &env).await?;
                arm();
                boxes.sweep().await?.into_result()?;
            }
            Self::Forget => {
                let id = {
                    let boxes = open(data, Some(backend), &env).await?;
                    acquire(&boxes).await?.id().clone()
                };
                let boxes = open(data, None, &env).await?;
                let handle = boxes.get(id.as_str())?;
                arm();
                handle.forget().await?;
                boxes.idle().await;
            }
            Self::ImageBuild => {
                let boxes = open(data, Some(backend), &env).await?;
                arm();
                let operation = boxes.begin_image_build(backend.id(), &KindId::parse(KIND)?)?;
                boxes.wait(&operation).await?;
                boxes.idle().await;
            }
            _ => {
                let boxes = open(data, Some(backend), &env).await?;
                let handle = acquire(&boxes).await?;
                self.on_a_box(backend, &boxes, &handle, arm).await?;
                boxes.idle().await;
            }
        }
        Ok(())
    }

    async fn on_a_box(
        self,
        backend: &Arc<dyn Backend>,
        boxes: &Boxes,
        handle: &BoxHandle,
        arm: impl FnOnce(),
    ) -> Result<()> {
        match self {
            Self::Stop => {
                arm();
                handle.stop(true).await
            }
            Self::Start => {
                handle.stop(true).await?;
                arm();
                handle.start().await
            }
            Self::Resize => {
                arm();
                handle.resize(&"medium".parse()?).await
            }
            Self::Rename => {
                arm();
                handle.rename(BoxName::parse("renamed")?).await
            }
            Self::ReleaseStopped => {
                handle.stop(true).await?;
                arm();
                handle.release(true).await
            }
            Self::Check => {
                let guest = handle.record()?.guest;
                let (Some(switch), Some(guest)) = (backend.switch(), guest) else {
                    return Err(Error::failed("the box cannot be stopped by hand"));
                };
                switch.stop(&guest).await?;
                arm();
                boxes.sweep().await.map(drop)
            }
            _ => {
                arm();
                handle.release(true).await
            }
        }
    }
}

fn misbehaving(backend: &Arc<dyn Backend>, fault: Fault) -> Arc<dyn Backend> {
    Arc::new(Misbehaving { backend: Arc::clone(backend), fault })
}

fn small() -> Result<Acquire> {
    Ok(Acquire::kind(KIND).size("small".parse()?))
}

pub(super) async fn acquire(boxes: &Boxes) -> Result<BoxHandle> {
    boxes.acquire(small()?).await
}

fn must_fail<T>(result: Result<T>) -> Result<()> {
    match result {
        Ok(_) => Err(Error::failed("it succeeded where it must fail")),
        Err(_) => Ok(()),
    }
}

/// Opens the folder, waiting a moment for the value that had it before.
pub(crate) async fn open(
    data: &Path,
    backend: Option<&Arc<dyn Backend>>,
    env: &Arc<dyn Env>,
) -> Result<Boxes> {
    for _ in 0..100 {
        let mut builder = Boxes::builder().data(data).env(Arc::clone(env));
        if let Some(backend) = backend {
            builder = builder.backend(Arc::clone(backend));
        }
        match builder.open() {
            Err(error) if error.kind() == ErrorKind::Busy => {
                tokio::time::sleep(Duration::from_millis(50)).await
            }
            opened => return opened,
        }
    }
    Err(Error::failed(format!("{} stays in use", data.display())))
}
