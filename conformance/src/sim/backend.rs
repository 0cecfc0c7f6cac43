//! The simulated provider's backend: each call takes its time, then acts at one moment.

use std::{fs, sync::Arc, time::Duration};

use async_trait::async_trait;
use bbbox::{
    Result,
    backend::{
        AcquireHooks, Backend, Check, CheckOutcome, Nature, Offer, Order, Reach, Relabel, ReleaseHooks,
        Released, Resize, Switch, Switched,
    },
    capacity::{Capacity, Counted, HostRoom, Limit, LimitName},
    error::{Error, ErrorKind},
    guest::{Guest, Held, Owner, Power, StopCause},
    id::{BackendId, InstallId, KindId},
    kind::{Arch, Capabilities},
    size::Size,
};

use super::{Machine, Provider, handle, owned, transport::Inside};

/// A handle on a provider.
#[derive(Debug)]
pub(super) struct Sim(pub(super) Arc<Provider>);

impl Sim {
    async fn call(&self) {
        tokio::time::sleep(self.0.shape.call).await;
    }

    /// Makes the order's guest at `reference`, unless somebody took it meanwhile.
    fn make(&self, order: &Order, reference: u64) -> Result<bool> {
        let mut state = self.0.state();
        if state.guests.contains_key(&reference) {
            return Ok(false);
        }
        if state.guests.len() as u64 >= self.0.shape.guests {
            return Err(Error::new(
                ErrorKind::NoCapacity,
                format!("there are {} guests already", state.guests.len()),
            ));
        }
        state.fits(&self.0.shape, &order.size)?;
        state.made += 1;
        let machine = Machine {
            owner: order.owner.clone(),
            size: order.size,
            running: true,
            by_guest: false,
            birth: state.made,
        };
        fs::create_dir(self.0.home(&machine))
            .map_err(|e| Error::failed("could not make a guest's home").because(e))?;
        state.guests.insert(reference, machine);
        state.note_most();
        Ok(true)
    }

    fn of_order(&self, order: &Order) -> Option<Guest> {
        let state = self.0.state();
        let mine = |machine: &Machine| {
            machine.owner.install == order.owner.install && machine.owner.box_id == order.owner.box_id
        };
        state
            .guests
            .iter()
            .find(|(_, machine)| mine(machine))
            .map(|(reference, machine)| handle(*reference, machine))
    }

    async fn made(&self, order: &Order, hooks: &dyn AcquireHooks) -> Result<Guest> {
        loop {
            self.call().await;
            if order.cancel.is_cancelled() {
                return Err(Error::cancelled("the acquire was taken back"));
            }
            if let Some(there) = self.of_order(order) {
                hooks.claim(&there).await?;
                self.start(&there).await?;
                return Ok(there);
            }
            let reference = self.0.state().lowest_free();
            let claim = Machine {
                owner: order.owner.clone(),
                size: order.size,
                running: true,
                by_guest: false,
                birth: 0,
            };
            let guest = handle(reference, &claim);
            hooks.claim(&guest).await?;
            self.call().await;
            if self.make(order, reference)? {
                hooks.task(&format!("make-{reference}")).await?;
                tokio::select! {
                    () = order.cancel.cancelled() => return Err(Error::cancelled("the acquire was taken back")),
                    () = tokio::time::sleep(self.0.shape.make) => return Ok(guest),
                }
            }
        }
    }

    fn must_own<T>(&self, guest: &Guest, with: impl FnOnce(&mut Machine) -> T) -> Result<T> {
        owned(&mut self.0.state(), guest)
            .map(with)
            .ok_or_else(|| Error::gone(format!("box {} has no guest here", guest.box_id)))
    }

    async fn end(&self, machine: &Machine) -> Result<()> {
        super::transport::end_all(&self.0.home(machine), None).await
    }
}

#[async_trait]
impl Backend for Sim {
    fn id(&self) -> &BackendId {
        &self.0.id
    }

    fn nature(&self) -> Nature {
        Nature::Virtual
    }

    async fn offers(&self) -> Result<Vec<Offer>> {
        self.call().await;
        let (kind, arch) = match std::env::consts::ARCH {
            "aarch64" => ("linux-arm64", Arch::Arm64),
            _ => ("linux", Arch::X86_64),
        };
        let mut capabilities = Capabilities::linux(arch, "process, no isolation");
        if let Some(command) = &mut capabilities.command {
            command.admin = super::transport::is_root();
        }
        let ready_timeout = Duration::from_secs(30);
        Ok(vec![Offer { kind: KindId::parse(kind)?, capabilities, ready_timeout, last: false }])
    }

    async fn capacity(&self, _kind: &KindId, install: &InstallId) -> Result<Capacity> {
        self.call().await;
        let state = self.0.state();
        let limit = |name, used, total| Limit { name, used, total: Some(total), reserve: 0 };
        let mine = state.guests.values().filter(|machine| machine.owner.install == *install);
        let counted = mine
            .map(|machine| {
                (machine.owner.box_id.clone(), Counted { size: machine.size, running: machine.running })
            })
            .collect();
        let limits = vec![
            limit(LimitName::Memory, state.memory(), self.0.shape.memory_mib),
            limit(LimitName::Guests, state.guests.len() as u64, self.0.shape.guests),
        ];
        Ok(Capacity { hosts: vec![HostRoom { host: None, limits, counted, closed: None }] })
    }

    async fn acquire(&self, order: &Order, hooks: &dyn AcquireHooks) -> Result<Guest> {
        let made = self.made(order, hooks).await;
        if order.cancel.is_cancelled() {
            if let Some(guest) = self.of_order(order) {
                self.release_now(&guest).await?;
            }
            return Err(Error::cancelled("the acquire was taken back"));
        }
        made
    }

    async fn release(&self, guest: &Guest, _hooks: &dyn ReleaseHooks) -> Result<Released> {
        self.release_now(guest).await
    }

    async fn power(&self, guest: &Guest) -> Result<Option<Power>> {
        self.call().await;
        let power = |machine: Machine| if machine.running { Power::Running } else { Power::Stopped };
        Ok(self.0.machine(guest).map(power))
    }

    async fn held(&self, install: &InstallId) -> Result<Vec<Held>> {
        self.call().await;
        let state = self.0.state();
        let mine = state.guests.iter().filter(|(_, machine)| machine.owner.install == *install);
        Ok(mine
            .map(|(n, machine)| Held { owner: machine.owner.clone(), guest: handle(*n, machine) })
            .collect())
    }

    async fn as_offered(&self, guest: &Guest) -> Result<Option<bool>> {
        self.call().await;
        self.must_own(guest, |_| Some(true))
    }

    async fn reach(&self, guest: &Guest) -> Result<Reach> {
        let inside = Inside { provider: Arc::clone(&self.0), guest: guest.clone() };
        Ok(Reach { command: Arc::new(inside), displays: Vec::new() })
    }

    async fn doctor(&self) -> Vec<Check> {
        let words = format!("{} guests in {}", self.0.guests(), self.0.dir.path().display());
        vec![Check { id: "sim.folder".to_owned(), outcome: CheckOutcome::Ok, words, fix: None }]
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

impl Sim {
    async fn release_now(&self, guest: &Guest) -> Result<Released> {
        self.call().await;
        // Nothing more starts in it, then what runs ends, then it is gone.
        let Some(machine) = owned(&mut self.0.state(), guest).map(|machine| {
            machine.running = false;
            machine.clone()
        }) else {
            return Ok(Released::AlreadyGone);
        };
        self.end(&machine).await?;
        let mut state = self.0.state();
        if owned(&mut state, guest).is_none() {
            return Ok(Released::AlreadyGone);
        }
        fs::remove_dir_all(self.0.home(&machine))
            .map_err(|e| Error::failed("could not remove a guest's home").because(e))?;
        state.guests.retain(|_, other| other.birth != machine.birth);
        Ok(Released::Removed)
    }
}

#[async_trait]
impl Switch for Sim {
    async fn start(&self, guest: &Guest) -> Result<Switched> {
        self.call().await;
        let mut state = self.0.state();
        let Some(machine) = owned(&mut state, guest).cloned() else {
            return Err(Error::gone(format!("box {} has no guest here", guest.box_id)));
        };
        if machine.running {
            return Ok(Switched::Already);
        }
        state.fits(&self.0.shape, &machine.size)?;
        if let Some(machine) = owned(&mut state, guest) {
            (machine.running, machine.by_guest) = (true, false);
        }
        state.note_most();
        Ok(Switched::Done)
    }

    async fn stop(&self, guest: &Guest) -> Result<Switched> {
        self.call().await;
        let (ran, machine) =
            self.must_own(guest, |machine| (std::mem::take(&mut machine.running), machine.clone()))?;
        self.end(&machine).await?;
        Ok(if ran { Switched::Done } else { Switched::Already })
    }

    async fn stopped(&self, guest: &Guest) -> Result<Option<StopCause>> {
        self.call().await;
        let stopped = self.0.machine(guest).filter(|machine| !machine.running);
        Ok(stopped.map(|machine| StopCause {
            by_guest: machine.by_guest,
            words: if machine.by_guest {
                "it was shut down from inside"
            } else {
                "it was stopped from outside"
            }
            .to_owned(),
        }))
    }
}

#[async_trait]
impl Resize for Sim {
    async fn resize(&self, guest: &Guest, size: &Size) -> Result<Guest> {
        self.call().await;
        let reference = guest.reference.parse().unwrap_or_default();
        let (running, same) = self.must_own(guest, |machine| (machine.running, machine.size == *size))?;
        if running && !same {
            return Err(Error::refused("a running guest is not resized").fix("stop it first"));
        }
        self.must_own(guest, |machine| {
            machine.size = *size;
            handle(reference, machine)
        })
    }

    fn needs_stop(&self) -> bool {
        true
    }
}

#[async_trait]
impl Relabel for Sim {
    async fn relabel(&self, guest: &Guest, owner: &Owner) -> Result<Guest> {
        self.call().await;
        let reference = guest.reference.parse().unwrap_or_default();
        self.must_own(guest, |machine| {
            machine.owner = owner.clone();
            handle(reference, machine)
        })
    }
}
