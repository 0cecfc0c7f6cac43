//! The calls to the engine, one function a call, typed answers. No policy, no retries.
//!
//! The connection is made at the first call: an engine that is down is an error of that call, never of the
//! constructor. Paths are built from IDs and names that were checked before, as the client library escapes nothing.

use std::{collections::HashMap, time::Duration};

use bbbox_core::{Error, Result};
use bollard::{
    API_DEFAULT_VERSION, Docker as Api,
    models::{ContainerCreateBody, ContainerUpdateBody, ImageInspect, SystemInfo, VolumeCreateRequest},
    query_parameters as query,
};
use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use tokio::sync::OnceCell;

use crate::{
    config::Host,
    fault::{self, Call, fault},
    map::{self, Container, Labels},
};

/// How long the engine may take to say who it is.
const HELLO: Duration = Duration::from_secs(10);
/// How long it may take until an answer to a question begins.
const ANSWER: Duration = Duration::from_secs(60);
/// How long a change may take whose answer comes only when it is done.
const CHANGE: Duration = Duration::from_secs(600);
/// For transfers and builds, whose length only the caller knows.
const TRANSFER: Duration = Duration::from_secs(7 * 24 * 3600);

/// How many seconds a container's processes get to end when it is stopped.
const STOP_GRACE: i32 = 10;

/// One engine.
#[derive(Debug)]
pub(crate) struct Engine {
    host: Host,
    /// What named it, where that was not the configuration.
    by: Option<&'static str>,
    api: OnceCell<Api>,
}

impl Engine {
    pub(crate) fn new(host: Host, by: Option<&'static str>) -> Self {
        Self { host, by, api: OnceCell::new() }
    }

    /// The engine's address, for people: with what named it.
    pub(crate) fn address(&self) -> String {
        let by = self.by.map(|by| format!(" (named by {by})")).unwrap_or_default();
        format!("{}{by}", self.host)
    }

    /// The client, connected at the first use.
    pub(crate) async fn api(&self) -> Result<Api> {
        let doing = || format!("could not reach the Docker Engine at {}", self.address());
        self.api
            .get_or_try_init(|| async {
                let api = match &self.host {
                    Host::Unix(path) => Api::connect_with_unix(path, ANSWER.as_secs(), API_DEFAULT_VERSION),
                    Host::Http(address) => Api::connect_with_http(
                        &format!("http://{address}"),
                        ANSWER.as_secs(),
                        API_DEFAULT_VERSION,
                    ),
                }
                .map_err(|e| fault(doing(), Call::Reads, e))?;
                let api = api.with_timeout(HELLO).negotiate_version().await;
                Ok(api.map_err(|e| fault(doing(), Call::Reads, e))?.with_timeout(ANSWER))
            })
            .await
            .cloned()
    }

    /// A call's failure. Where nothing answers, with the engine's address.
    fn fault(&self, doing: impl Into<String>, call: Call, error: bollard::errors::Error) -> Error {
        let mut doing = doing.into();
        if fault::is_silence(&error) {
            doing = format!("{doing}: the Docker Engine at {} does not answer", self.address());
        }
        fault(doing, call, error)
    }

    /// The client with the time that a change may take.
    async fn slow(&self) -> Result<Api> {
        Ok(self.api().await?.with_timeout(CHANGE))
    }

    /// The client for transfers and builds.
    pub(crate) async fn transfer(&self) -> Result<Api> {
        Ok(self.api().await?.with_timeout(TRANSFER))
    }

    pub(crate) async fn info(&self) -> Result<SystemInfo> {
        let asked = self.api().await?.info().await;
        asked.map_err(|e| self.fault("could not ask the engine about itself", Call::Reads, e))
    }

    /// The container with this ID or name; `None` only when the engine says that there is none.
    pub(crate) async fn inspect(&self, reference: &str) -> Result<Option<Container>> {
        match self.api().await?.inspect_container(reference, None::<query::InspectContainerOptions>).await {
            Ok(native) => Ok(Some(map::inspected(native))),
            Err(error) if fault::is_no_such_container(&error) => Ok(None),
            Err(error) => {
                Err(self.fault(format!("could not look at container {reference}"), Call::Reads, error))
            }
        }
    }

    /// Every container, running or not, with all of `labels` (`key` or `key=value`).
    pub(crate) async fn list(&self, labels: Vec<String>) -> Result<Vec<Container>> {
        let filters = HashMap::from([("label", labels)]);
        let options = query::ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let listed = self.api().await?.list_containers(Some(options)).await;
        let listed = listed.map_err(|e| self.fault("could not list containers", Call::Reads, e))?;
        Ok(listed.into_iter().map(map::listed).collect())
    }

    /// Creates a container and returns its ID; `None` when the name is taken.
    pub(crate) async fn create(&self, name: &str, body: ContainerCreateBody) -> Result<Option<String>> {
        let options = query::CreateContainerOptionsBuilder::new().name(name).build();
        match self.slow().await?.create_container(Some(options), body).await {
            Ok(made) => Ok(Some(made.id)),
            Err(error) if fault::says(&error, 409, "already in use") => Ok(None),
            // The image went between the look at it and this: nothing of the box's is gone.
            Err(error) if fault::says(&error, 404, "no such image") => {
                Err(Error::unavailable(format!("the image of container {name} was just removed"))
                    .because(error))
            }
            Err(error) => Err(self.fault(format!("could not make container {name}"), Call::Changes, error)),
        }
    }

    /// Listens to what a container's first process prints; ends when that ends.
    pub(crate) async fn attach(
        &self,
        id: &str,
    ) -> Result<impl Stream<Item = Result<Bytes, bollard::errors::Error>> + use<>> {
        let options = query::AttachContainerOptionsBuilder::new().stream(true).stdout(true).build();
        let attached = self.api().await?.attach_container(id, Some(options)).await;
        let attached = attached
            .map_err(|e| self.fault(format!("could not listen to container {id}"), Call::Reads, e))?;
        Ok(attached.output.map_ok(bollard::container::LogOutput::into_bytes))
    }

    /// Starts a container. One that runs is left as it is.
    pub(crate) async fn start(&self, id: &str) -> Result<()> {
        let started = self.slow().await?.start_container(id, None::<query::StartContainerOptions>).await;
        started.map_err(|e| self.fault(format!("could not start container {id}"), Call::Changes, e))
    }

    /// Stops a container, first asking and then killing. One that is stopped is left as it is.
    pub(crate) async fn stop(&self, id: &str) -> Result<()> {
        let options = query::StopContainerOptionsBuilder::new().t(STOP_GRACE).build();
        let stopped = self.slow().await?.stop_container(id, Some(options)).await;
        stopped.map_err(|e| self.fault(format!("could not stop container {id}"), Call::Changes, e))
    }

    /// Removes a container by force, with its anonymous volumes. False when there was none.
    pub(crate) async fn remove(&self, id: &str) -> Result<bool> {
        let options = query::RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        match self.slow().await?.remove_container(id, Some(options)).await {
            Ok(()) => Ok(true),
            Err(error) if fault::is_no_such_container(&error) => Ok(false),
            // Someone else is removing it: whether it goes is for the caller to look at.
            Err(error) if fault::says(&error, 409, "already in progress") => Ok(true),
            Err(error) => Err(self.fault(format!("could not remove container {id}"), Call::Changes, error)),
        }
    }

    pub(crate) async fn update(&self, id: &str, body: ContainerUpdateBody) -> Result<()> {
        let updated = self.slow().await?.update_container(id, body).await;
        updated
            .map_err(|e| self.fault(format!("could not change the size of container {id}"), Call::Changes, e))
    }

    /// The labels of every volume that has all of `labels`, with its name.
    pub(crate) async fn volumes(&self, labels: Vec<String>) -> Result<Vec<(String, Labels)>> {
        let filters = HashMap::from([("label", labels)]);
        let options = query::ListVolumesOptionsBuilder::new().filters(&filters).build();
        let listed = self.api().await?.list_volumes(Some(options)).await;
        let listed = listed.map_err(|e| self.fault("could not list volumes", Call::Reads, e))?;
        Ok(listed.volumes.unwrap_or_default().into_iter().map(|v| (v.name, v.labels)).collect())
    }

    /// Creates an empty volume. One of that name stays as it is.
    pub(crate) async fn create_volume(&self, name: &str, labels: Labels) -> Result<()> {
        let body = VolumeCreateRequest {
            name: Some(name.to_owned()),
            labels: Some(labels),
            ..VolumeCreateRequest::default()
        };
        let made = self.slow().await?.create_volume(body).await;
        made.map(drop).map_err(|e| self.fault(format!("could not make volume {name}"), Call::Changes, e))
    }

    /// Removes a volume, or finds that there is none.
    pub(crate) async fn remove_volume(&self, name: &str) -> Result<()> {
        match self.slow().await?.remove_volume(name, None::<query::RemoveVolumeOptions>).await {
            Ok(()) => Ok(()),
            Err(error) if fault::says(&error, 404, "no such volume") => Ok(()),
            Err(error) => Err(self.fault(format!("could not remove volume {name}"), Call::Changes, error)),
        }
    }

    /// An image by name or ID; `None` when there is none.
    pub(crate) async fn image(&self, name: &str) -> Result<Option<ImageInspect>> {
        match self.api().await?.inspect_image(name).await {
            Ok(image) => Ok(Some(image)),
            Err(error) if fault::says(&error, 404, "no such image") => Ok(None),
            Err(error) => Err(self.fault(format!("could not look at image {name}"), Call::Reads, error)),
        }
    }

    /// The names and the labels of every image that has all of `labels`.
    pub(crate) async fn images(&self, labels: Vec<String>) -> Result<Vec<(Vec<String>, Labels)>> {
        let filters = HashMap::from([("label", labels)]);
        let options = query::ListImagesOptionsBuilder::new().filters(&filters).build();
        let listed = self.api().await?.list_images(Some(options)).await;
        let listed = listed.map_err(|e| self.fault("could not list images", Call::Reads, e))?;
        Ok(listed.into_iter().map(|image| (image.repo_tags, image.labels)).collect())
    }

    /// Gives the image `from` the name `to`, a repository with a tag, too.
    pub(crate) async fn tag(&self, from: &str, to: &str) -> Result<()> {
        let (repository, tag) = to.rsplit_once(':').unwrap_or((to, "latest"));
        let options = query::TagImageOptionsBuilder::new().repo(repository).tag(tag).build();
        let tagged = self.slow().await?.tag_image(from, Some(options)).await;
        tagged.map_err(|e| self.fault(format!("could not name image {from} {to}"), Call::Changes, e))
    }

    /// Takes a name from an image, or removes one by its ID. What is in use stays, and what is not there is fine.
    pub(crate) async fn remove_image(&self, name: &str) -> Result<()> {
        match self.slow().await?.remove_image(name, None::<query::RemoveImageOptions>, None).await {
            Ok(_) => Ok(()),
            Err(error) if fault::says(&error, 404, "no such image") || fault::says(&error, 409, "") => Ok(()),
            Err(error) => Err(self.fault(format!("could not remove image {name}"), Call::Changes, error)),
        }
    }
}
