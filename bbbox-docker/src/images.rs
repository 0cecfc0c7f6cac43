//! Building the images that boxes come from, on the engine itself.
//!
//! A build gets the image's name only after a container of it passed the kind's own check. Boxes keep the image they
//! were made from, as a container holds it by its ID. Each build has a name of its own too, and is removed by that.

use std::time::Duration;

use async_trait::async_trait;
use bbbox_core::{
    Error, Result,
    backend::{BuildHooks, Image, ImageBuild, Images},
    id::KindId,
    size::Size,
};
use bollard::{body_full, query_parameters as query};
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
        Ok(vec![self.0.image_now(&kind, &name).await?])
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
    async fn image_now(&self, kind: &KindId, name: &str) -> Result<Image> {
        let (found, now) = (self.engine.image(name).await?, Timestamp::now());
        let found = found.as_ref();
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
        Ok(Image { kind: kind.clone(), name: name.to_owned(), build, due })
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
        let own_name = own_name(kind, &build.id);
        self.build_as(&build, &own_name, cancel, hooks).await?;
        let passed = self.try_out(&build, &own_name, cancel, hooks).await;
        if let Err(error) = passed {
            if let Err(left) = self.engine.remove_image(&own_name).await {
                tracing::warn!(?left, "an image that did not pass stays until a later build");
            }
            return Err(error);
        }
        let name = self.config.image(kind.as_str());
        let before = self.image_now(kind, &name).await?.build;
        self.engine.tag(&own_name, &name).await?;
        if let Some(before) = before {
            self.drop_builds(kind, |labels| labels.get(map::BUILD) == Some(&before.id)).await?;
        }
        self.image_now(kind, &name).await
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

    /// Removes what builds left behind: trials that were cut off, and builds that lost the image's name to a later one
    /// or never got it, and that no box holds any more. What is young may be someone's who is at it.
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
        self.drop_builds(kind, |labels| old(labels.get(recipe::MADE))).await
    }

    /// Removes the builds whose labels `are` so and that have no name but their own. One that a box holds stays.
    ///
    /// Only by that name: labels pass on to a commit of a box and to what is built `FROM` an image, and such an image
    /// is whoever made it's, with a name or without.
    async fn drop_builds(&self, kind: &KindId, are: impl Fn(&Labels) -> bool) -> Result<()> {
        let builds = vec![format!("{}={kind}", map::KIND), recipe::MADE.to_owned()];
        for (names, labels) in self.engine.images(builds).await? {
            let Some(build) = labels.get(map::BUILD).filter(|_| are(&labels)) else { continue };
            let own = own_name(kind, build);
            if names == [own.as_str()] {
                self.engine.remove_image(&own).await?;
            }
        }
        Ok(())
    }
}

/// A part of a trial, for as long as it may take.
async fn within<T>(late: &str, most: Duration, part: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(most, part).await.unwrap_or_else(|_| {
        Err(Error::failed(format!("the new image was tried: {late} after {} s", most.as_secs()))
            .fix("see what its start script waits for; the image in use stays what it was"))
    })
}

/// What a build is called for as long as it is there: while it is tried, beside the image's name, and after it lost
/// that. What has no name cannot be told from others' images.
fn own_name(kind: &KindId, build: &str) -> String {
    format!("bbbox/{kind}:{}", build.to_ascii_lowercase())
}
