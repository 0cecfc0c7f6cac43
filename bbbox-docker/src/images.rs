//! Building the images that boxes come from, on the engine itself.
//!
//! A build gets the image's name only after a container of it passed the kind's own check. Boxes keep the image they
//! were made from, as a container holds it by its ID.

use std::time::Duration;

use async_trait::async_trait;
use bbbox_core::{
    Error, Result,
    backend::{BuildHooks, Image, ImageBuild, Images},
    id::KindId,
    size::Size,
};
use bollard::{body_full, models::ImageInspect, query_parameters as query};
use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use tokio_util::sync::CancellationToken;

use crate::{
    backend::{Docker, Inner},
    base::cancelled,
    exec::{self, As},
    fault::{Call, fault},
    map::{self, Labels},
    privilege::{Grant, Seen},
    recipe::{self, Build},
    start::{Spec, Started},
};

/// How old an image may get: its packages age.
const AGE: SignedDuration = SignedDuration::from_hours(7 * 24);
/// How old a trial's leftovers are when whoever made them is surely gone.
const LEFT_BEHIND: SignedDuration = SignedDuration::from_hours(6);
/// How long each part of a trial may take: until the container is ready, the kind's check, and Docker's own start.
const TRIAL_READY: Duration = Duration::from_secs(60);
const TRIAL_CHECK: Duration = Duration::from_secs(120);
const TRIAL_DOCKER: Duration = Duration::from_secs(90);
const TRIAL_SIZE: Size = Size::new(1, 1024);

#[async_trait]
impl Images for Docker {
    async fn images(&self) -> Result<Vec<Image>> {
        let kind = self.0.kind().await?;
        let name = self.0.config.image(kind.as_str());
        let found = self.0.engine.image(&name).await?;
        Ok(vec![self.0.image(kind, name, found.as_ref(), Timestamp::now())])
    }

    async fn build(
        &self,
        kind: &KindId,
        cancel: &CancellationToken,
        hooks: &dyn BuildHooks,
    ) -> Result<Image> {
        let made_here = self.0.kind().await?;
        if *kind != made_here {
            return Err(Error::invalid(format!("the engine makes no boxes of kind {kind}"))
                .fix(format!("build {made_here}")));
        }
        self.0.build(kind, cancel, hooks).await
    }
}

impl Inner {
    /// One image as it stands.
    fn image(&self, kind: KindId, name: String, found: Option<&ImageInspect>, now: Timestamp) -> Image {
        let label = |key: &str| found.and_then(|i| i.config.as_ref()?.labels.as_ref()?.get(key).cloned());
        let build =
            label(map::BUILD).zip(label(recipe::MADE).and_then(|text| text.parse::<Timestamp>().ok()));
        let build = build.map(|(id, made)| ImageBuild {
            id,
            made,
            bytes: found.and_then(|i| i.size).and_then(|size| u64::try_from(size).ok()),
        });
        let due = match (&build, found) {
            (_, None) => Some("it is not built".to_owned()),
            (None, Some(_)) => Some("it has no record of its build".to_owned()),
            (Some(_), _) if label(recipe::RECIPE) != Some(recipe::hash(&self.config.image_base)) => {
                Some("its recipe has changed".to_owned())
            }
            (Some(build), _) if now.duration_since(build.made) > AGE => {
                Some("it is older than 7 days".to_owned())
            }
            _ => None,
        };
        Image { kind, name, build, due }
    }

    async fn build(
        &self,
        kind: &KindId,
        cancel: &CancellationToken,
        hooks: &dyn BuildHooks,
    ) -> Result<Image> {
        self.sweep_images(kind).await?;
        let base = self.base(cancel, hooks).await?;
        let recipe = recipe::hash(&self.config.image_base);
        let build = Build::new(kind.as_str(), recipe, base, Timestamp::now());
        let trial_name = trial_image(kind, &build.id);
        self.build_as(&build, &trial_name, cancel, hooks).await?;
        let passed = self.try_out(&build, &trial_name, cancel, hooks).await;
        if let Err(error) = passed {
            if let Err(left) = self.engine.remove_image(&trial_name).await {
                tracing::warn!(?left, "an image that did not pass stays until a later build");
            }
            return Err(error);
        }
        let name = self.config.image(kind.as_str());
        let before = self.engine.image(&name).await?.filter(is_build).and_then(|image| image.id);
        self.engine.tag(&trial_name, &name).await?;
        self.engine.remove_image(&trial_name).await?;
        let now = self.engine.image(&name).await?;
        if let Some(before) = before.filter(|id| now.as_ref().and_then(|image| image.id.as_ref()) != Some(id))
        {
            // Stays while a box holds it.
            self.engine.remove_image(&before).await?;
        }
        Ok(self.image(kind.clone(), name, now.as_ref(), Timestamp::now()))
    }

    /// Builds the image under `name`.
    async fn build_as(
        &self,
        build: &Build,
        name: &str,
        cancel: &CancellationToken,
        hooks: &dyn BuildHooks,
    ) -> Result<()> {
        let context =
            recipe::context().map_err(|e| Error::failed("could not pack the image's recipe").because(e))?;
        let options = query::BuildImageOptionsBuilder::new()
            .t(name)
            .buildargs(&build.arguments())
            .labels(&build.labels())
            .rm(true)
            .forcerm(true)
            .build();
        let api = self.engine.transfer().await?;
        let mut stream = std::pin::pin!(api.build_image(options, None, Some(body_full(context.into()))));
        loop {
            // Dropping the stream ends the build.
            let next = tokio::select! {
                next = stream.next() => next,
                () = cancel.cancelled() => return Err(cancelled()),
            };
            let Some(info) = next else { return Ok(()) };
            let info = info.map_err(|e| fault(format!("could not build {name}"), Call::Changes, e))?;
            for line in
                info.stream.iter().flat_map(|text| text.lines()).filter(|line| !line.trim().is_empty())
            {
                if let Some(done) = recipe::fraction(line) {
                    hooks.progress("building the image", Some(done));
                }
                hooks.line(line);
            }
        }
    }

    /// Starts a container of the new image as a box would be, and runs the kind's check and Docker in it.
    async fn try_out(
        &self,
        build: &Build,
        image: &str,
        cancel: &CancellationToken,
        hooks: &dyn BuildHooks,
    ) -> Result<()> {
        hooks.progress("trying the new image out", None);
        let name = format!("bbbox-trial-{}", build.id.to_ascii_lowercase());
        let tried = tokio::select! {
            tried = self.trial(&name, image, hooks) => tried,
            () = cancel.cancelled() => Err(cancelled()),
        };
        let removed = self.engine.remove(&name).await;
        if let (Err(_), Err(left)) = (&tried, &removed) {
            tracing::warn!(%name, ?left, "a trial's container stays until a later build");
        }
        tried?;
        removed.map(drop)
    }

    async fn trial(&self, name: &str, image: &str, hooks: &dyn BuildHooks) -> Result<()> {
        let image = self.engine.image(image).await?;
        let image = image.ok_or_else(|| Error::failed("the engine built an image and does not have it"))?;
        let labels = Labels::from([(map::TRIAL.to_owned(), Timestamp::now().to_string())]);
        let spec = Spec { hostname: "trial".to_owned(), image: &image, size: TRIAL_SIZE, labels };
        // From the top, whatever is known: a new build is the time to find out anew what the engine grants.
        let mut seen = self.first_grant().await?;
        let id = loop {
            let made = self.engine.create(name, spec.body(&seen.grant)).await?;
            let id = made.ok_or_else(|| Error::failed(format!("there is a container {name} already")))?;
            match within(
                "its start script has not said that it is ready",
                TRIAL_READY,
                self.ready(&id, false),
            )
            .await?
            {
                Started::Ready(..) => break id,
                Started::Refused(words) => {
                    self.engine.remove(&id).await?;
                    let image = image.id.as_deref().unwrap_or(name);
                    seen = seen.less(words, &self.engine, image).await?;
                }
            }
        };
        let check = ["bb-box-check-headless".to_owned()];
        let checked = exec::run(&self.engine, &id, &check, As::User);
        let (exit, words) = within("its check has not ended", TRIAL_CHECK, checked).await?;
        words.lines().for_each(|line| hooks.line(line));
        if !exit.success() {
            return Err(Error::failed("the new image does not keep its kind's promises").because_of(words));
        }
        if seen.grant.has_docker() {
            let docker = ["docker", "info"].map(str::to_owned);
            let asked = exec::run(&self.engine, &id, &docker, As::User);
            let (exit, words) = within("Docker inside it has not answered", TRIAL_DOCKER, asked).await?;
            if !exit.success() {
                let words = words.lines().last().unwrap_or_default().to_owned();
                hooks.line(&format!("Docker does not run inside boxes here: {words}"));
                seen = Seen { grant: Grant::Plain, refusal: seen.refusal.or(Some(words)) };
            }
        }
        self.granted(seen).await
    }

    /// Removes what builds left behind: trials that were cut off, images that got no name, and builds that lost their
    /// name to a later one and that no box holds any more. What is young may be someone's who is at it.
    pub(crate) async fn sweep_images(&self, kind: &KindId) -> Result<()> {
        let old = |made: Option<&String>| {
            made.and_then(|text| text.parse::<Timestamp>().ok())
                .is_some_and(|made| Timestamp::now().duration_since(made) > LEFT_BEHIND)
        };
        for container in self.engine.list(vec![map::TRIAL.to_owned()]).await? {
            if old(container.labels.get(map::TRIAL)) {
                self.engine.remove(&container.id).await?;
            }
        }
        let builds = vec![format!("{}={kind}", map::KIND), recipe::MADE.to_owned()];
        for (id, named, labels) in self.engine.images(builds).await? {
            // A commit of a box has the box's labels beside the build's, and is whoever made it's to remove.
            let is_ours = !labels.contains_key(map::BOX) && old(labels.get(recipe::MADE));
            if let Some(build) = labels.get(map::BUILD).filter(|_| is_ours) {
                let left = if named { trial_image(kind, build) } else { id };
                self.engine.remove_image(&left).await?;
            }
        }
        Ok(())
    }
}

/// Whether an image is a build of bb-box's, and neither someone's own nor a copy of a box.
fn is_build(image: &ImageInspect) -> bool {
    let labels = image.config.as_ref().and_then(|config| config.labels.as_ref());
    labels.is_some_and(|labels| labels.contains_key(map::BUILD) && !labels.contains_key(map::BOX))
}

/// A part of a trial, for as long as it may take.
async fn within<T>(late: &str, most: Duration, part: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(most, part).await.unwrap_or_else(|_| {
        Err(Error::failed(format!("the new image was tried: {late} after {} s", most.as_secs()))
            .fix("see what its start script waits for; the image in use stays what it was"))
    })
}

/// What an image is called until it has passed. What had no name could not be told from others' images.
fn trial_image(kind: &KindId, build: &str) -> String {
    format!("bbbox/{kind}:{}", build.to_ascii_lowercase())
}
