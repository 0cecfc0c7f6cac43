//! What a box's container is made of, and starting one until it says that it is ready.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use bbbox_core::{Error, Result, size::Size};
use bollard::models::{
    ContainerCreateBody, HostConfig, ImageInspect, Mount, MountType, RestartPolicy, RestartPolicyNameEnum,
};
use futures::StreamExt;

use crate::{
    backend::Inner,
    exec::{self, As},
    map::{self, Labels},
    privilege::{self, Grant},
};

/// The image's start script: what a box's container runs.
const START: &str = "/usr/local/bin/bb-box-start";
/// What the start script prints once it has made `/run/bb-box/ready`.
const READY: &str = "bb-box: ready";
/// Waits for the same file, where the start script's words were missed.
const WAIT: &str = "until [ -e /run/bb-box/ready ]; do sleep 0.05; done";

/// One container to make.
#[derive(Debug)]
pub(crate) struct Spec<'a> {
    pub(crate) hostname: String,
    pub(crate) image: &'a ImageInspect,
    pub(crate) size: Size,
    pub(crate) labels: Labels,
}

impl Spec<'_> {
    /// The container as the engine takes it, with what `grant` gives it.
    pub(crate) fn body(&self, grant: &Grant) -> ContainerCreateBody {
        let mut labels = self.labels.clone();
        labels.insert(map::DOCKER_INSIDE.to_owned(), grant.words());
        let build =
            self.image.config.as_ref().and_then(|c| c.labels.as_ref()).and_then(|l| l.get(map::BUILD));
        if let Some(build) = build {
            labels.insert(map::BUILD.to_owned(), build.clone());
        }
        let (nano_cpus, memory) = map::limits(&self.size);
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
            hostname: Some(self.hostname.clone()),
            image: self.image.id.clone(),
            cmd: Some(vec![START.to_owned()]),
            entrypoint: Some(Vec::new()),
            env: Some(env),
            labels: Some(labels),
            host_config: Some(host),
            ..ContainerCreateBody::default()
        }
    }
}

/// What a start came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Started {
    /// It is ready: how long the engine took to start it, and then the box to be ready.
    Ready(Duration, Duration),
    /// The engine does not grant what the container asks for; its words.
    Refused(String),
}

impl Inner {
    /// Starts a container, unless it `runs` already, and returns once it is ready.
    pub(crate) async fn ready(&self, id: &str, runs: bool) -> Result<Started> {
        let began = Instant::now();
        // Listened to before the start: the start script's word comes at once, and costs no command in the box.
        let mut output = self.engine.attach(id).await?;
        if let Err(error) = self.engine.start(id).await {
            let words = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            return if privilege::is_refusal(&words) { Ok(Started::Refused(words)) } else { Err(error) };
        }
        let started = began.elapsed();
        let ready = || Ok(Started::Ready(started, began.elapsed().saturating_sub(started)));
        let mut said = String::new();
        if !runs {
            while let Some(Ok(piece)) = output.next().await {
                said.push_str(&String::from_utf8_lossy(&piece));
                if said.contains(READY) {
                    return ready();
                }
                said.truncate(said.floor_char_boundary(64 * 1024));
            }
        }
        let wait = ["sh", "-c", WAIT].map(str::to_owned);
        match exec::run(&self.engine, id, &wait, As::Root).await {
            Ok((exit, _)) if exit.success() => ready(),
            Ok((_, words)) => Err(Error::failed("the box did not get ready").because_of(words)),
            Err(error) => Err(error.at("start script", said.trim())),
        }
    }
}
