//! Making a box's container and removing it.

use std::time::{Duration, Instant};

use bbbox_core::{
    Error, Result,
    backend::{AcquireHooks, Order, ReleaseHooks, Released},
    error::ErrorKind,
    guest::Guest,
};

use crate::{
    backend::Inner,
    map::{self, Container, Phase},
    privilege::Grant,
    start::{Spec, Started},
};

impl Inner {
    pub(crate) async fn acquire(&self, order: &Order, hooks: &dyn AcquireHooks) -> Result<Guest> {
        if order.size.disk_mib.is_some() {
            return Err(Error::refused("a container shares its host's disk, so a disk size cannot be given")
                .fix("ask for the size without a disk"));
        }
        let claimed = self.placed(map::claimed(&order.owner, order.size)).await?;
        hooks.claim(&claimed).await?;
        let made = self.make(order, &claimed, hooks).await;
        if order.cancel.is_cancelled() {
            self.remove(&claimed).await?;
            return Err(taken_back());
        }
        made
    }

    /// Makes or finds the container, starts it and waits until it is ready.
    async fn make(&self, order: &Order, claimed: &Guest, hooks: &dyn AcquireHooks) -> Result<Guest> {
        let kind = order.owner.kind.as_str();
        let name = self.config.image(kind);
        let (mut seen, _finding) = tokio::select! {
            found = self.grant_to_ask() => found?,
            () = order.cancel.cancelled() => return Err(taken_back()),
        };
        loop {
            if !seen.grant.has_docker()
                && order.owner.features.iter().any(|feature| feature.as_str() == "docker")
            {
                let why = seen.refusal.clone().unwrap_or_else(|| "privileged is off".to_owned());
                self.granted(seen).await?;
                return Err(Error::refused("this engine does not grant what Docker inside a box needs")
                    .because_of(why));
            }
            if order.cancel.is_cancelled() {
                return Err(taken_back());
            }
            let image = self.engine.image(&name).await?.ok_or_else(|| {
                Error::unavailable(format!("there is no image {name} on the engine"))
                    .fix(format!("build it: `bbbox image build {kind}`"))
            })?;
            let spec = Spec {
                hostname: order.owner.name.to_string(),
                image: &image,
                size: order.size,
                labels: map::owner_labels(&self.id, &order.owner, &order.size),
            };
            let began = Instant::now();
            let container = self.created(claimed, &spec, &seen.grant).await?;
            hooks.timing("container created", began.elapsed());
            // The one wait whose end is up to the box. A start that is cut off here is over once the container is
            // removed.
            let started = tokio::select! {
                started = self.ready(&container.id, container.phase == Phase::Running) => started?,
                () = order.cancel.cancelled() => return Err(taken_back()),
            };
            match started {
                Started::Ready(started, ready) => {
                    hooks.timing("container started", started);
                    hooks.timing("box ready", ready);
                    self.granted(seen).await?;
                    return Ok(map::moved(map::guest(&container, &order.owner), claimed));
                }
                Started::Refused(words) => {
                    self.engine.remove(&container.id).await?;
                    let image = image.id.as_deref().unwrap_or(&name);
                    seen = seen.less(words, &self.engine, image).await?;
                    hooks.progress("the engine grants less than was asked; making the box with that", None);
                }
            }
        }
    }

    /// The container of the claimed guest, made now or by an earlier run.
    async fn created(&self, claimed: &Guest, spec: &Spec<'_>, grant: &Grant) -> Result<Container> {
        let name = &claimed.reference;
        let body = spec.body(grant);
        let labels = body.labels.clone().unwrap_or_default();
        if let Some(id) = self.engine.create(name, body).await? {
            let image = spec.image.id.clone().unwrap_or_default();
            return Ok(Container {
                id,
                labels,
                image,
                phase: Phase::Created,
                size: Some(spec.size),
                created: None,
                ended: None,
            });
        }
        match self.engine.inspect(name).await? {
            Some(container) if container.is(claimed) => Ok(container),
            Some(container) => Err(Error::new(
                ErrorKind::Busy,
                format!("the name {name} is taken by a container that is not this box's"),
            )
            .fix(format!("look at container {} and remove it if nobody needs it", container.id))),
            None => {
                Err(Error::new(ErrorKind::Busy, format!("a container named {name} was just being removed")))
            }
        }
    }

    pub(crate) async fn release(&self, guest: &Guest, hooks: &dyn ReleaseHooks) -> Result<Released> {
        hooks.progress("removing the container", None);
        self.remove(guest).await
    }

    /// Removes the guest's container and confirms that it is gone. The box's notes go with its last container.
    async fn remove(&self, guest: &Guest) -> Result<Released> {
        let mut released = Released::AlreadyGone;
        if let Some(container) = self.find(guest).await? {
            self.engine.remove(&container.id).await?;
            self.confirm_gone(&container.id).await?;
            released = Released::Removed;
        }
        let of_box =
            vec![format!("{}={}", map::INSTALL, guest.install), format!("{}={}", map::BOX, guest.box_id)];
        if !self.engine.list(of_box.clone()).await?.is_empty() {
            return Ok(released);
        }
        for (name, labels) in self.engine.volumes(of_box).await? {
            if map::generation(&labels).is_some() {
                self.engine.remove_volume(&name).await?;
            }
        }
        Ok(released)
    }

    /// Waits until the engine says that the container is not there: another's removal may be under way.
    async fn confirm_gone(&self, id: &str) -> Result<()> {
        let mut pause = Duration::from_millis(20);
        for _ in 0..40 {
            if self.engine.inspect(id).await?.is_none() {
                return Ok(());
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
        Err(Error::new(ErrorKind::Busy, format!("the engine is still removing container {id}")))
    }
}

fn taken_back() -> Error {
    Error::cancelled("the acquire was taken back")
}
