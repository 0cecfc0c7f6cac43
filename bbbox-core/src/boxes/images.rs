//! The images that boxes come from, where backends build them.

use serde::Serialize;

use super::Boxes;
use crate::{
    backend::Image,
    error::Result,
    id::{BackendId, KindId, OperationId},
    life::{self, Asked},
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
    /// Every image that a backend builds itself, and the words of backends that did not answer.
    pub async fn images(&self) -> (Vec<BackendImage>, Vec<String>) {
        let (mut images, mut troubles) = (Vec::new(), Vec::new());
        for entry in self.shared.world.registry().entries() {
            let backend = entry.backend.id();
            let Some(able) = entry.backend.images() else { continue };
            match able.images().await {
                Ok(list) => {
                    images.extend(
                        list.into_iter().map(|image| BackendImage { backend: backend.clone(), image }),
                    );
                }
                Err(error) => troubles.push(format!("{backend}: {}", error.chain())),
            }
        }
        (images, troubles)
    }

    /// Begins to build the image of `kind` on `backend`; [`Self::events`] tells its lines, [`Self::wait`] its end.
    ///
    /// # Errors
    /// `Refused` when the backend is not configured or builds no images.
    pub fn begin_image_build(&self, backend: &BackendId, kind: &KindId) -> Result<OperationId> {
        self.person_only("builds images")?;
        self.may_change()?;
        let asked = Asked { by: self.caller.words(), request: None };
        life::begin_image_build(&self.shared.journal, &self.shared.world, backend, kind, &asked)
    }
}
