//! The simulated provider's backend: each call takes its time and may meet a fault.
//!
//! It keeps the interface's promises as well as its provider lets it: a guest is claimed before it is made, found again
//! by its owner, and changed only after it was read that it is still that box's. What it cannot know, it does not say.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bbbox::{
    Result,
    backend::{
        AcquireHooks, Backend, Check, CheckOutcome, Nature, Offer, Order, Reach, Relabel, ReleaseHooks,
        Released, Resize, Switch, Switched,
    },
    capacity::{Capacity, Counted, HostRoom, Limit, LimitName},
    config::Problem,
    driver::{Driver, DriverDeps},
    error::{Effect, Error},
    guest::{Guest, Held, Owner, Power, StopCause},
    id::{BackendId, InstallId, KindId},
    kind::{Arch, Capabilities},
    size::Size,
};
use serde_json::Value;

use super::{
    World,
    cloud::{Machine, Wish},
    fault::{Fault, Nature as Does},
    line::Line,
    parts::Parts,
    pause,
    planted::{self, Planted},
};

/// The type that the configuration names.
pub(super) const TYPE: &str = "model";

/// Builds backends over a world's providers.
pub(super) struct Models {
    pub(super) world: Arc<World>,
    pub(super) install: usize,
}

impl Driver for Models {
    fn backend_type(&self) -> &'static str {
        TYPE
    }

    fn schema(&self) -> schemars::Schema {
        schemars::json_schema!({
            "type": "object", "properties": { "cloud": { "type": "integer" } }, "required": ["cloud"]
        })
    }

    fn check(&self, fields: &Value) -> Vec<Problem> {
        match fields["cloud"].as_u64() {
            Some(_) => Vec::new(),
            None => vec![Problem::new("cloud", "is missing")],
        }
    }

    fn build(&self, id: BackendId, fields: &Value, _: &DriverDeps) -> Result<Arc<dyn Backend>> {
        let cloud = fields["cloud"].as_u64().and_then(|n| usize::try_from(n).ok());
        let cloud = cloud.ok_or_else(|| Error::invalid("no cloud is named"))?;
        Ok(Arc::new(Model { world: Arc::clone(&self.world), cloud, id, install: self.install }))
    }
}

/// A handle on one provider.
pub(super) struct Model {
    world: Arc<World>,
    cloud: usize,
    id: BackendId,
    install: usize,
}

fn lost(method: &str) -> Error {
    Error::unavailable(format!("{method}: the connection broke while it was waited for"))
        .effect(Effect::Unknown)
}

fn gone(guest: &Guest) -> Error {
    Error::gone(format!("box {} has no guest here", guest.box_id))
}

impl Model {
    /// One call: on its way, the deed at one moment, and on its way back.
    async fn call<T: Send + 'static>(
        &self,
        method: &str,
        about: &str,
        does: Does,
        deed: impl FnOnce(&mut Parts, bool) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let key = format!("{} {method}", self.id);
        let (fault, there, back) = self.world.with(|p| {
            let fault = p.fault_for(method, &format!("{about} at {}", self.id), does);
            (fault, p.chance.between(&key, 1, 12), p.chance.between(&key, 0, 6))
        });
        pause(there).await;
        match fault {
            Some(Fault::Refused) => Err(Error::unavailable(format!("{method}: too many requests"))),
            Some(Fault::Broken) => Err(Error::failed(format!("{method}: internal error 500"))),
            Some(Fault::Lost) => {
                drop(self.world.with(|p| deed(p, false)));
                pause(back + 500).await;
                Err(lost(method))
            }
            Some(Fault::Late(ms)) => {
                pause(2_000).await;
                self.world.with(|p| {
                    let at = p.now + ms;
                    p.clouds[self.cloud].loose = true;
                    p.clouds[self.cloud].later(at, Box::new(move |p| drop(deed(p, true))));
                });
                Err(lost(method))
            }
            Some(Fault::Slow(ms)) => {
                pause(ms).await;
                let done = self.world.with(|p| deed(p, false));
                pause(back).await;
                done
            }
            Some(Fault::Partial) | None => {
                let done = self.world.with(|p| deed(p, false));
                pause(back).await;
                done
            }
        }
    }

    /// A call about one guest, on whose host it waits while that is down.
    async fn on_guest<T: Send + 'static>(
        &self,
        method: &str,
        guest: &Guest,
        does: Does,
        deed: impl FnOnce(&mut Parts, usize, Option<Machine>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (label, own) = (self.world.with(|p| p.label(guest)), guest.clone());
        let c = self.cloud;
        self.call(method, &label, does, move |p, _| {
            let machine = p.clouds[c].owned(&own).cloned();
            if let Some(machine) = &machine
                && p.clouds[c].hosts[machine.host].down_until > p.now
            {
                return Err(Error::unavailable("its host does not answer"));
            }
            deed(p, c, machine)
        })
        .await
    }

    /// The guest of an order's box, read by its owner.
    async fn find(&self, order: &Order) -> Result<Option<Guest>> {
        let (install, box_id) = (order.owner.install.clone(), order.owner.box_id.clone());
        let (c, about) = (self.cloud, self.world.with(|p| p.fates.label(&box_id)));
        self.call("find", &about, Does::Reads, move |p, _| {
            let cloud = &p.clouds[c];
            Ok(cloud.of_box(&install, &box_id).map(|machine| cloud.handle(machine)))
        })
        .await
    }

    async fn made(&self, order: &Order, hooks: &dyn AcquireHooks) -> Result<Guest> {
        let about = self.world.with(|p| p.fates.label(&order.owner.box_id));
        let host = self.host_of(order)?;
        let mut claimed = order.earlier.guest.as_ref().filter(|_| order.earlier.tries > 0).cloned();
        loop {
            if order.cancel.is_cancelled() {
                return Err(Error::cancelled("the acquire was taken back"));
            }
            if let Some(there) = self.find(order).await? {
                hooks.claim(&there).await?;
                self.start(&there).await?;
                self.boot(order).await?;
                return Ok(there);
            }
            // What an earlier run claimed is made, and nothing else: its request may still be under way.
            let reference = match claimed.take().and_then(|guest| guest.reference.parse().ok()) {
                Some(reference) => reference,
                None => self.world.with(|p| p.clouds[self.cloud].lowest_free()),
            };
            // Some providers make a guest and find only when they start it that there is no room.
            let running = !self.needs_stop();
            let (owner, size) = (order.owner.clone(), order.size);
            let wish = Wish { cloud: self.cloud, host, reference, owner, size, running };
            let guest = self.world.with(|p| p.claim_of(&wish));
            let first = !planted::is(Planted::ClaimAfterCreate);
            if first {
                hooks.claim(&guest).await?;
            }
            self.world.with(|p| p.judge_create(self.install, &wish));
            let id = self.id.clone();
            let made = self
                .call("create", &about, Does::Changes, move |p, late| p.create("backend", &wish, late))
                .await
                .map_err(|error| error.at("backend", id))?;
            if !first {
                hooks.claim(&guest).await?;
            }
            if made {
                hooks.task(&format!("create-{reference}")).await?;
                if !running {
                    self.start(&guest).await?;
                }
                self.boot(order).await?;
                return Ok(guest);
            }
        }
    }

    async fn boot(&self, order: &Order) -> Result<()> {
        let ms = self.world.with(|p| p.schedule.shape.make_ms);
        tokio::select! {
            biased;
            () = order.cancel.cancelled() => Err(Error::cancelled("the acquire was taken back")),
            () = pause(ms) => Ok(()),
        }
    }

    fn host_of(&self, order: &Order) -> Result<usize> {
        let found = self.world.with(|p| p.clouds[self.cloud].hosts.iter().position(|h| h.name == order.host));
        found.ok_or_else(|| Error::failed(format!("there is no host {:?}", order.host)))
    }

    async fn remove(&self, guest: &Guest) -> Result<Released> {
        let (who, own) = (self.install, guest.clone());
        self.on_guest("delete", guest, Does::Changes, move |p, c, machine| {
            let machine = match machine {
                // Planted: whatever has the reference now is deleted.
                None if planted::is(Planted::BlindDelete) => {
                    let reference = own.reference.parse().unwrap_or_default();
                    p.clouds[c].guests.get(&reference).cloned()
                }
                machine => machine,
            };
            let Some(machine) = machine else { return Ok(Released::AlreadyGone) };
            p.judge_delete(who, c, &own, &machine);
            p.delete("backend", c, machine.birth);
            Ok(Released::Removed)
        })
        .await
    }

    async fn turn(&self, guest: &Guest, on: bool) -> Result<Switched> {
        let own = guest.clone();
        let method = if on { "start" } else { "stop" };
        if on {
            self.world.with(|p| p.judge_start(self.install, guest));
        }
        self.on_guest(method, guest, Does::Changes, move |p, c, machine| {
            let machine = machine.ok_or_else(|| gone(&own))?;
            let changed = p.power("backend", c, machine.birth, on)?;
            Ok(if changed == Some(true) { Switched::Done } else { Switched::Already })
        })
        .await
    }
}

#[async_trait]
impl Backend for Model {
    fn id(&self) -> &BackendId {
        &self.id
    }

    fn nature(&self) -> Nature {
        Nature::Virtual
    }

    async fn offers(&self) -> Result<Vec<Offer>> {
        self.call("offers", "all", Does::Reads, |_, _| Ok(())).await?;
        let capabilities = Capabilities::linux(Arch::X86_64, "simulated");
        let ready_timeout = Duration::from_secs(90);
        Ok(vec![Offer { kind: KindId::parse("linux")?, capabilities, ready_timeout, last: false }])
    }

    async fn capacity(&self, _: &KindId, install: &InstallId) -> Result<Capacity> {
        let (c, install) = (self.cloud, install.clone());
        self.call("capacity", "all", Does::Reads, move |p, _| {
            let cloud = &p.clouds[c];
            let hosts = cloud.hosts.iter().enumerate().map(|(n, host)| {
                let here = || cloud.guests.values().filter(|m| m.host == n);
                let memory = Limit {
                    name: LimitName::Memory,
                    used: cloud.memory(n),
                    total: Some(host.memory_mib),
                    reserve: 0,
                };
                let counted = here()
                    .filter(|m| m.owner.install == install)
                    .map(|m| (m.owner.box_id.clone(), Counted { size: m.size, running: m.running }));
                HostRoom {
                    host: host.name.clone(),
                    limits: vec![memory],
                    counted: counted.collect(),
                    closed: (host.down_until > p.now).then(|| "it is down".to_owned()),
                }
            });
            Ok(Capacity { hosts: hosts.collect() })
        })
        .await
    }

    async fn acquire(&self, order: &Order, hooks: &dyn AcquireHooks) -> Result<Guest> {
        let made = self.made(order, hooks).await;
        if order.cancel.is_cancelled() {
            if let Some(guest) = self.find(order).await? {
                self.remove(&guest).await?;
            }
            return Err(Error::cancelled("the acquire was taken back"));
        }
        made
    }

    async fn release(&self, guest: &Guest, _: &dyn ReleaseHooks) -> Result<Released> {
        self.remove(guest).await
    }

    async fn power(&self, guest: &Guest) -> Result<Option<Power>> {
        self.on_guest("power", guest, Does::Reads, |_, _, machine| {
            Ok(machine.map(|m| if m.running { Power::Running } else { Power::Stopped }))
        })
        .await
    }

    async fn held(&self, install: &InstallId) -> Result<Vec<Held>> {
        let (c, install) = (self.cloud, install.clone());
        let key = format!("{} part", self.id);
        // A listing may be old, and a fault leaves out part of it: nothing may be decided on one alone.
        let part = self.world.with(|p| p.fault_for("list", self.id.as_str(), Does::Lists));
        self.call("held", "all", Does::Reads, move |p, _| {
            let then = p.now.saturating_sub(if p.calm { 0 } else { p.schedule.shape.lag_ms });
            let cloud = &p.clouds[c];
            let mine: Vec<Machine> =
                cloud.as_of(then).filter(|m| m.owner.install == install).cloned().collect();
            let mut held: Vec<Held> =
                mine.iter().map(|m| Held { owner: m.owner.clone(), guest: cloud.handle(m) }).collect();
            if part == Some(Fault::Partial) {
                held.retain(|_| p.chance.draw(&key).0 % 2 == 0);
            }
            Ok(held)
        })
        .await
    }

    async fn reach(&self, guest: &Guest) -> Result<Reach> {
        let line = Line { world: Arc::clone(&self.world), cloud: self.cloud, guest: guest.clone() };
        Ok(Reach { command: Arc::new(line), displays: Vec::new() })
    }

    async fn doctor(&self) -> Vec<Check> {
        let words = format!("{} is simulated", self.id);
        vec![Check { id: "model.world".to_owned(), outcome: CheckOutcome::Ok, words, fix: None }]
    }

    fn switch(&self) -> Option<&dyn Switch> {
        Some(self)
    }

    fn resize(&self) -> Option<&dyn Resize> {
        Some(self)
    }

    fn relabel(&self) -> Option<&dyn Relabel> {
        Some(self)
    }
}

#[async_trait]
impl Switch for Model {
    async fn start(&self, guest: &Guest) -> Result<Switched> {
        self.turn(guest, true).await
    }

    async fn stop(&self, guest: &Guest) -> Result<Switched> {
        self.turn(guest, false).await
    }

    async fn stopped(&self, guest: &Guest) -> Result<Option<StopCause>> {
        self.on_guest("stopped", guest, Does::Reads, |_, _, machine| {
            Ok(machine.filter(|m| !m.running).map(|m| StopCause {
                by_guest: m.by_guest,
                words: if m.by_guest { "it shut itself down" } else { "it went off" }.to_owned(),
            }))
        })
        .await
    }
}

#[async_trait]
impl Resize for Model {
    async fn resize(&self, guest: &Guest, size: &Size) -> Result<Guest> {
        let (own, size) = (guest.clone(), *size);
        // What it takes is taken at its end.
        pause(self.world.with(|p| p.schedule.shape.make_ms)).await;
        self.on_guest("resize", guest, Does::Changes, move |p, c, machine| {
            let machine = machine.ok_or_else(|| gone(&own))?;
            if p.clouds[c].needs_stop && machine.running && machine.size != size {
                return Err(Error::refused("a running guest is not resized").fix("stop it first"));
            }
            if machine.running {
                p.clouds[c].fits(machine.host, size.memory_mib.saturating_sub(machine.size.memory_mib))?;
            }
            p.grow("backend", c, machine.birth, size);
            Ok(Guest { size, ..own })
        })
        .await
    }

    fn needs_stop(&self) -> bool {
        self.world.with(|p| p.clouds[self.cloud].needs_stop)
    }
}

#[async_trait]
impl Relabel for Model {
    async fn relabel(&self, guest: &Guest, owner: &Owner) -> Result<Guest> {
        let (own, owner) = (guest.clone(), owner.clone());
        self.on_guest("relabel", guest, Does::Changes, move |p, c, machine| {
            let machine = machine.ok_or_else(|| gone(&own))?;
            p.relabel("backend", c, machine.birth, &owner);
            Ok(own)
        })
        .await
    }
}
