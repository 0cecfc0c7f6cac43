//! Making a box's container and removing it.

use std::{collections::HashMap, time::Instant};

use bbbox_core::{
    Error, Result,
    backend::{AcquireHooks, Order, ReleaseHooks, Released},
    error::ErrorKind,
    guest::Guest,
};
use bollard::{
    models::{
        ContainerCreateBody, HostConfig, ImageInspect, Mount, MountType, RestartPolicy, RestartPolicyNameEnum,
    },
    query_parameters as query,
};
use futures::StreamExt;

use crate::{
    backend::Inner,
    exec::{self, As},
    fault::{Call, fault},
    map::{self, Container, Phase},
    privilege::{self, Grant, Seen},
};

/// The image's start script: what a box's container runs.
const START: &str = "/usr/local/bin/bb-box-start";
/// What the start script prints once it has made `/run/bb-box/ready`.
const READY: &str = "bb-box: ready";
/// Waits for the same file, where the start script's words were missed.
const WAIT: &str = "until [ -e /run/bb-box/ready ]; do sleep 0.05; done";

/// What a start came to.
enum Started {
    Ready,
    /// The engine does not grant what the container asks for; its words.
    Refused(String),
}

impl Inner {
    pub(crate) async fn acquire(&self, order: &Order, hooks: &dyn AcquireHooks) -> Result<Guest> {
        if order.size.disk_mib.is_some() {
            return Err(Error::refused("a container shares its host's disk, so a disk size cannot be given")
                .fix("ask for the size without a disk"));
        }
        let claimed = map::claimed(&order.owner, order.size);
        hooks.claim(&claimed).await?;
        let made = self.make(order, &claimed, hooks).await;
        if order.cancel.is_cancelled() {
            self.remove(&claimed).await?;
            return Err(Error::cancelled("the acquire was taken back"));
        }
        made
    }

    /// Makes or finds the container, starts it and waits until it is ready.
    async fn make(&self, order: &Order, claimed: &Guest, hooks: &dyn AcquireHooks) -> Result<Guest> {
        let kind = order.owner.kind.as_str();
        let name = self.config.image(kind);
        let mut seen = self.grant().await?;
        loop {
            if !seen.grant.has_docker() && order.features.iter().any(|feature| feature.as_str() == "docker") {
                return Err(Error::refused("this engine does not grant what Docker inside a box needs")
                    .because_of(seen.refusal.unwrap_or_else(|| "privileged is off".to_owned())));
            }
            if order.cancel.is_cancelled() {
                return Err(Error::cancelled("the acquire was taken back"));
            }
            let image = self.engine.image(&name).await?.ok_or_else(|| {
                Error::unavailable(format!("there is no image {name} on the engine"))
                    .fix(format!("build it with bbbox image build {kind}"))
            })?;
            let began = Instant::now();
            let container = self.created(order, claimed, &image, seen.grant).await?;
            hooks.timing("container created", began.elapsed());
            // The one wait whose end is up to the box. A start that is cut off here is over once the container is removed.
            let ready = tokio::select! {
                ready = self.ready(&container, hooks) => ready?,
                () = order.cancel.cancelled() => return Err(Error::cancelled("the acquire was taken back")),
            };
            match ready {
                Started::Ready => {
                    self.granted(seen).await?;
                    return Ok(map::guest(&container, &order.owner, None));
                }
                Started::Refused(words) => {
                    self.engine.remove(&container.id).await?;
                    let Some(less) = seen.grant.less() else {
                        return Err(Error::failed("the engine does not start the box").because_of(words));
                    };
                    hooks.progress(
                        "the engine grants less than full privilege; making the box with that",
                        None,
                    );
                    seen = Seen { grant: less, refusal: seen.refusal.or(Some(words)) };
                }
            }
        }
    }

    /// The container of this order, made now or by an earlier run.
    async fn created(
        &self,
        order: &Order,
        claimed: &Guest,
        image: &ImageInspect,
        grant: Grant,
    ) -> Result<Container> {
        let name = map::container_name(&order.owner.box_id);
        let body = self.body(order, image, grant);
        let labels = body.labels.clone().unwrap_or_default();
        if let Some(id) = self.engine.create(&name, body).await? {
            let image = image.id.clone().unwrap_or_default();
            let size = Some(order.size);
            return Ok(Container { id, labels, image, phase: Phase::Created, size, ended: None });
        }
        match self.engine.inspect(&name).await? {
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

    fn body(&self, order: &Order, image: &ImageInspect, grant: Grant) -> ContainerCreateBody {
        let mut labels = map::owner_labels(&self.id, &order.owner, &order.size);
        labels.insert(map::DOCKER_INSIDE.to_owned(), grant.words().to_owned());
        let build = image.config.as_ref().and_then(|c| c.labels.as_ref()).and_then(|l| l.get(map::BUILD));
        if let Some(build) = build {
            labels.insert(map::BUILD.to_owned(), build.clone());
        }
        let (nano_cpus, memory) = map::limits(&order.size);
        let mut host = HostConfig {
            init: Some(true),
            nano_cpus: Some(nano_cpus),
            memory: Some(memory),
            memory_swap: Some(memory),
            tmpfs: Some(HashMap::from([("/run".to_owned(), "rw,exec,nosuid,nodev,mode=755".to_owned())])),
            restart_policy: Some(RestartPolicy {
                name: Some(RestartPolicyNameEnum::UNLESS_STOPPED),
                maximum_retry_count: None,
            }),
            ..HostConfig::default()
        };
        grant.apply(&mut host);
        let mut env = Vec::new();
        if grant.has_docker() {
            env.push("BB_BOX_FEATURES=docker".to_owned());
            // A volume without a name: it goes with the container, and overlays can be made on it.
            host.mounts = Some(vec![Mount {
                target: Some("/var/lib/docker".to_owned()),
                typ: Some(MountType::VOLUME),
                ..Mount::default()
            }]);
        }
        ContainerCreateBody {
            hostname: Some(order.owner.name.to_string()),
            image: image.id.clone(),
            cmd: Some(vec![START.to_owned()]),
            entrypoint: Some(Vec::new()),
            env: Some(env),
            labels: Some(labels),
            host_config: Some(host),
            ..ContainerCreateBody::default()
        }
    }

    /// Starts the container and returns once it is ready.
    async fn ready(&self, container: &Container, hooks: &dyn AcquireHooks) -> Result<Started> {
        let began = Instant::now();
        // Listened to before the start: the start script's word comes at once, and costs no command in the box.
        let options = query::AttachContainerOptionsBuilder::new().stream(true).stdout(true).build();
        let attached = self.engine.api().await?.attach_container(&container.id, Some(options)).await;
        let mut output =
            attached.map_err(|e| fault("could not listen to the box's start", Call::Reads, e))?.output;
        if let Err(error) = self.engine.start(&container.id).await {
            let words = error.chain();
            return if privilege::is_refusal(&words) { Ok(Started::Refused(words)) } else { Err(error) };
        }
        hooks.timing("container started", began.elapsed());
        let mut said = String::new();
        if container.phase != Phase::Running {
            while let Some(Ok(piece)) = output.next().await {
                said.push_str(&String::from_utf8_lossy(&piece.into_bytes()));
                if said.contains(READY) {
                    hooks.timing("box ready", began.elapsed());
                    return Ok(Started::Ready);
                }
                said.truncate(64 * 1024);
            }
        }
        let wait = ["sh", "-c", WAIT].map(str::to_owned);
        match exec::run(&self.engine, &container.id, &wait, As::Root).await {
            Ok((exit, _)) if exit.success() => {
                hooks.timing("box ready", began.elapsed());
                Ok(Started::Ready)
            }
            Ok((_, words)) => Err(Error::failed("the box did not get ready").because_of(words)),
            Err(error) => Err(error.at("start script", said.trim())),
        }
    }

    pub(crate) async fn release(&self, guest: &Guest, hooks: &dyn ReleaseHooks) -> Result<Released> {
        hooks.progress("removing the container", None);
        self.remove(guest).await
    }

    /// Removes the guest's container and notes, and confirms that it is gone: by its ID and by its name.
    async fn remove(&self, guest: &Guest) -> Result<Released> {
        let mut released = Released::AlreadyGone;
        // Twice at most: an interrupted acquire may have made a container beside the one that the reference names.
        while let Some(container) = self.find(guest).await? {
            self.engine.remove(&container.id).await?;
            self.confirm_gone(&container.id).await?;
            released = Released::Removed;
        }
        let of_box =
            vec![format!("{}={}", map::INSTALL, guest.install), format!("{}={}", map::BOX, guest.box_id)];
        for (name, labels) in self.engine.volumes(of_box).await? {
            if map::generation(&labels).is_some() {
                self.engine.remove_volume(&name).await?;
            }
        }
        Ok(released)
    }

    /// Waits until the engine says that the container is not there: another's removal may be under way.
    async fn confirm_gone(&self, id: &str) -> Result<()> {
        let mut pause = std::time::Duration::from_millis(20);
        for _ in 0..40 {
            if self.engine.inspect(id).await?.is_none() {
                return Ok(());
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(std::time::Duration::from_secs(1));
        }
        Err(Error::new(ErrorKind::Busy, format!("the engine is still removing container {id}")))
    }
}
