//! Build an image: have a backend make the image that its boxes of a kind come from.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Asked;
use crate::{
    backend::{BuildHooks, Image},
    error::{Error, Result},
    id::{BackendId, KindId, OperationId},
    journal::{Attempt, Begin, Context, Halt, Journal, JournalBuilder},
    world::World,
};

const KIND: &str = "image-build";

/// What a build is given.
#[derive(Debug, Serialize, Deserialize)]
struct Build {
    backend: BackendId,
    kind: KindId,
}

/// Begins to build the image of `kind` on `backend`.
pub(crate) fn begin(
    journal: &Journal,
    world: &World,
    backend: &BackendId,
    kind: &KindId,
    asked: &Asked,
) -> Result<OperationId> {
    if world.registry().backend(backend)?.images().is_none() {
        return Err(Error::refused(format!("the backend {backend} builds no images"))
            .fix("see those that do: `bbbox image list`"));
    }
    let args = serde_json::to_value(Build { backend: backend.clone(), kind: kind.clone() })
        .map_err(|e| Error::failed("could not record the build").because(e))?;
    let begin = Begin {
        kind: KIND,
        version: 1,
        request: asked.request.clone(),
        asked: None,
        boxes: Vec::new(),
        by: asked.by.clone(),
        args,
        over_unknown: false,
    };
    Ok(journal.begin(begin, |_, _| Ok(()))?.id().clone())
}

pub(super) fn register(builder: JournalBuilder, world: &Arc<World>) -> JournalBuilder {
    let world = Arc::clone(world);
    builder.operation(KIND, 1, move |cx, args| build(cx, Arc::clone(&world), args))
}

async fn build(cx: Context, world: Arc<World>, args: Build) -> Result<Image, Halt> {
    // Built again after a restart: until it is done, the old build keeps the image's name.
    cx.step("build")
        .observable()
        .attempts(1)
        .run(async |at| {
            let backend = world.registry().backend(&args.backend)?;
            let Some(images) = backend.images() else {
                return Err(Error::refused(format!("the backend {} builds no images", args.backend))
                    .fix("see which do: `bbbox image list`"));
            };
            images.build(&args.kind, &at.cancel_token(), &Told(at)).await
        })
        .await
}

/// Tells a build's lines and progress as the operation's.
struct Told(Attempt);

impl BuildHooks for Told {
    fn line(&self, text: &str) {
        self.0.progress(text, None);
    }

    fn progress(&self, text: &str, fraction: Option<f64>) {
        self.0.progress(text, fraction);
    }
}
