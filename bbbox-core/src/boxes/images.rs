//! The images that boxes come from, where backends build them.

use futures::future::join_all;
use serde::Serialize;

use super::Boxes;
use crate::{
    backend::Image,
    error::Result,
    id::{BackendId, KindId, OperationId},
    life,
    registry::{ANSWER, told, within},
};

/// One backend's image of a kind.
#[derive(Clone, Debug, Serialize)]
pub struct BackendImage {
    /// The backend.
    pub backend: BackendId,
    /// The image.
    #[serde(flatten)]
    pub image: Image,
}

impl Boxes {
    /// Every image that a backend builds itself, and the words of backends that did not answer or cannot be used.
    pub async fn images(&self) -> (Vec<BackendImage>, Vec<String>) {
        let (mut images, mut troubles) = (Vec::new(), Vec::new());
        let (registry, env) = (self.shared.world.registry(), &*self.shared.world.env);
        let asked = registry.entries().filter_map(|entry| {
            let able = entry.backend.images()?;
            Some(async move { (entry.backend.id(), within(env, ANSWER, able.images()).await) })
        });
        for (backend, list) in join_all(asked).await {
            match list {
                Ok(list) => {
                    images.extend(
                        list.into_iter().map(|image| BackendImage { backend: backend.clone(), image }),
                    );
                }
                Err(error) => troubles.push(told(backend, &error)),
            }
        }
        troubles.extend(registry.broken().iter().map(|(id, error)| told(id, error)));
        (images, troubles)
    }

    /// Begins to build the image of `kind` on `backend`; [`Self::events`] tells its lines, [`Self::wait`] its end.
    ///
    /// # Errors
    /// `Refused` when the backend is not configured or builds no images.
    pub fn begin_image_build(&self, backend: &BackendId, kind: &KindId) -> Result<OperationId> {
        self.person_only("builds images")?;
        self.may_change()?;
        life::begin_image_build(&self.shared.journal, &self.shared.world, backend, kind, &self.asked())
    }
}
