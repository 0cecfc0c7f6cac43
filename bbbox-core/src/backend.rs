//! The interface a provider implements.
//!
//! [`Backend`] holds what every provider must do. What only some can do is a small trait of its own, returned by
//! an accessor that is `None` by default, so that a caller sees the ability in the type and nothing answers "not
//! supported".
//!
//! Four rules hold for every method. It is **safe to repeat**: the journal runs it again after a crash. It acts
//! **only on guests that name this install and this box** at the provider, read again just before a change,
//! because providers use references again. It reports **only what could not be foreseen**: the caller has
//! validated its input. And it never **retries or waits out** a fault of the provider: the journal does.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::{
    capacity::Capacity,
    error::Result,
    guest::{Guest, Held, Owner, Power, StopCause},
    id::{BackendId, InstallId, KindId},
    kind::Capabilities,
    size::Size,
    transport::Transport,
};

/// What a backend's guests are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Nature {
    /// Made for a box and deleted with it.
    Virtual,
    /// A machine that is lent, and reset when a box is released.
    Real(Restores),
}

/// What the release of a real machine restores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Restores {
    /// The box user's home.
    Home,
    /// The whole machine.
    Machine,
}

/// One kind that a backend offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The kind.
    pub kind: KindId,
    /// What its boxes can do.
    pub capabilities: Capabilities,
    /// How long an acquire may take until its box answers; past it, the box is released again.
    pub ready_timeout: Duration,
    /// Why the offer is tried after plain ones, as when its boxes cost by the minute.
    #[serde(default)]
    pub last: bool,
}

/// What to make.
#[derive(Clone, Debug)]
pub struct Order {
    /// Whose the guest is and what it must have beyond its kind: recorded at the provider with the guest, not after it.
    pub owner: Owner,
    /// Its size.
    pub size: Size,
    /// The host that was chosen, where the backend has several.
    pub host: Option<String>,
    /// What earlier runs of the same acquire left.
    pub earlier: Earlier,
    /// Cancelled when the caller takes the acquire back. The backend then releases what it claimed and answers
    /// `Cancelled`.
    pub cancel: CancellationToken,
}

/// What earlier runs of the same call left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Earlier {
    /// The guest that was claimed.
    pub guest: Option<Guest>,
    /// The provider's task that was under way.
    pub task: Option<String>,
    /// How many runs began before this one. Above 0, the provider may already have what is to be made.
    pub tries: u32,
}

/// What a backend tells while it makes a guest.
#[async_trait]
pub trait AcquireHooks: Send + Sync {
    /// Records `guest` **before** anything of it is made or changed. When this fails, nothing may be made.
    async fn claim(&self, guest: &Guest) -> Result<()>;
    /// Records the provider's own task, as soon as there is one.
    async fn task(&self, reference: &str) -> Result<()>;
    /// Records how long a step took.
    fn timing(&self, step: &str, took: Duration);
    /// Says what goes on, with the share that is done (0 to 1) where that is known.
    fn progress(&self, text: &str, fraction: Option<f64>);
}

/// What a backend tells while it releases a guest.
#[async_trait]
pub trait ReleaseHooks: Send + Sync {
    /// Records, for a real machine, that its reset is about to begin, so that a restart finishes it.
    async fn resetting(&self) -> Result<()>;
    /// Says what goes on, with the share that is done (0 to 1) where that is known.
    fn progress(&self, text: &str, fraction: Option<f64>);
}

/// What a release did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Released {
    /// It was there and is gone.
    Removed,
    /// There was nothing of this box to remove.
    AlreadyGone,
}

/// How a guest is reached.
pub struct Reach {
    /// How commands run in it.
    pub command: std::sync::Arc<dyn Transport>,
    /// Its displays.
    pub displays: Vec<std::sync::Arc<dyn crate::display::Display>>,
}

impl std::fmt::Debug for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reach")
    }
}

/// One finding of the doctor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// A stable ID, such as `local.folder`.
    pub id: String,
    /// How it is.
    pub outcome: CheckOutcome,
    /// What was seen. Never a credential.
    pub words: String,
    /// What to do about it.
    pub fix: Option<String>,
}

/// How a check of the doctor came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckOutcome {
    /// As it should be.
    Ok,
    /// It works, and something should be looked at.
    Warning,
    /// It does not work.
    Failure,
}

/// One provider of boxes.
#[async_trait]
pub trait Backend: Send + Sync {
    /// The configured ID: the same for as long as the backend has boxes.
    fn id(&self) -> &BackendId;

    /// Where its guests are, in words for people, such as the address of a host; `None` where there is nothing to tell.
    fn place(&self) -> Option<String> {
        None
    }

    /// Whether its guests are made or lent.
    fn nature(&self) -> Nature;

    /// The kinds it offers now.
    ///
    /// - *Promise* `offers-are-of-known-kinds`: each is a standard kind and does what it declares.
    /// - *Errors*: `Unavailable` when the provider must be asked and does not answer.
    async fn offers(&self) -> Result<Vec<Offer>>;

    /// What there is room for, for a box of `kind`.
    ///
    /// - *Promise* `capacity-counts-what-it-lists`: `used` counts everyone's guests, and `counted` exactly those of
    ///   `install` that `used` includes.
    /// - *Errors*: `Unavailable`. A host that takes nothing now is not an error: its `closed` says why.
    async fn capacity(&self, kind: &KindId, install: &InstallId) -> Result<Capacity>;

    /// Makes or claims a guest, starts it, and returns once its transport should answer.
    ///
    /// - *Promise* `acquire-claims-first`: `hooks.claim` is awaited before anything is made or changed.
    ///   `acquire-marks-at-creation`: the owner is at the provider as soon as the guest is.
    ///   `acquire-returns-when-it-answers`: within the offer's time, its commands answer soon after.
    ///   `acquire-again-is-one-guest`: a box never has two. `acquire-taken-back-leaves-nothing`: once `order.cancel` is
    ///   cancelled, it answers `Cancelled` and the provider has no guest of the box.
    /// - *Again*: with what `order.earlier` says, finishes the same guest; never makes a second one.
    /// - *If dropped*: what was claimed may be there; `release` removes it.
    /// - *Errors*: `NoCapacity` when the provider itself is full, `Unavailable`, `Cancelled`, `Failed`.
    async fn acquire(&self, order: &Order, hooks: &dyn AcquireHooks) -> Result<Guest>;

    /// Deletes a virtual guest with all it keeps, or resets a real machine and returns it to its pool.
    ///
    /// - *Promise* `release-confirms`: success means that the provider confirmed that the guest is gone, asked by its
    ///   identity; a guest that is not this box's is left alone and counts as already gone.
    ///   `acts-only-on-its-own`: so it is with every method that takes a [`Guest`].
    ///   `release-again-is-already-gone`: also when nothing was ever made.
    /// - *Again*: `AlreadyGone`.
    /// - *If dropped*: it may be gone.
    /// - *Errors*: any but `Gone`. Only "not found, asked by identity" counts as gone.
    async fn release(&self, guest: &Guest, hooks: &dyn ReleaseHooks) -> Result<Released>;

    /// Whether the guest runs, read from the provider now; `None` when it is gone or another's.
    ///
    /// - *Promise* `power-is-read-now`: what any handle changed is seen at once.
    /// - *Errors*: `Unavailable`.
    async fn power(&self, guest: &Guest) -> Result<Option<Power>>;

    /// Every guest that `install` holds here, with the owner recorded at the provider.
    ///
    /// - *Promise* `held-is-this-installs`: no other install's guest is in it. A listing may lag: nothing is decided on
    ///   it alone.
    /// - *Errors*: `Unavailable`; never a part of the list.
    async fn held(&self, install: &InstallId) -> Result<Vec<Held>>;

    /// Whether the guest comes from what its kind is offered from now, so that it can do what the offer says; `None`
    /// where the backend cannot tell.
    ///
    /// - *Promise* `a-new-guest-is-as-offered`.
    /// - *Errors*: `Gone`, `Unavailable`.
    async fn as_offered(&self, guest: &Guest) -> Result<Option<bool>> {
        let _ = guest;
        Ok(None)
    }

    /// How to reach the guest. Makes no connection yet.
    ///
    /// - *Promise* `reach-needs-the-handle-alone`: a recorded or listed guest is enough, after a restart too.
    /// - *Errors*: `Gone`, `Unavailable`.
    async fn reach(&self, guest: &Guest) -> Result<Reach>;

    /// Checks the setup end to end. Never prints a credential.
    ///
    /// - *Promise* `doctor-checks-the-setup`: no failure where boxes can be made, and what to do about anything else.
    async fn doctor(&self) -> Vec<Check>;

    /// Stopping and starting, where the provider can.
    fn switch(&self) -> Option<&dyn Switch> {
        None
    }

    /// Changing a guest's size, where the provider can.
    fn resize(&self) -> Option<&dyn Resize> {
        None
    }

    /// Recording another owner or name on a guest, where the provider can.
    fn relabel(&self) -> Option<&dyn Relabel> {
        None
    }

    /// Regular upkeep, where there is any.
    fn upkeep(&self) -> Option<&dyn Upkeep> {
        None
    }

    /// A real pool's machines.
    fn machines(&self) -> Option<&dyn Machines> {
        None
    }

    /// The images that its boxes come from, where it builds them itself.
    fn images(&self) -> Option<&dyn Images> {
        None
    }
}

/// What starting or stopping did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switched {
    /// It was changed.
    Done,
    /// It was so already.
    Already,
}

/// Stopping a guest keeps its disk and frees its memory.
#[async_trait]
pub trait Switch: Send + Sync {
    /// Starts a stopped guest.
    ///
    /// - *Promise* `switch-says-what-it-did`: whether this call changed anything.
    /// - *Again*: `Already`.
    /// - *Errors*: `Gone` when the guest is gone or another's, `NoCapacity`, `Unavailable`, `Failed`.
    async fn start(&self, guest: &Guest) -> Result<Switched>;

    /// Stops a running guest and keeps its disk.
    ///
    /// - *Promise* `stop-keeps-the-disk`.
    /// - *Again*: `Already`.
    /// - *Errors*: `Gone`, `Unavailable`, `Failed`.
    async fn stop(&self, guest: &Guest) -> Result<Switched>;

    /// Why a guest is stopped that bb-box did not stop; `None` when the provider cannot tell.
    ///
    /// - *Promise* `stopped-tells-who-chose-it`: a shutdown from inside is the guest's choice, nothing else is.
    async fn stopped(&self, guest: &Guest) -> Result<Option<StopCause>>;
}

/// Changing the size of a guest.
#[async_trait]
pub trait Resize: Send + Sync {
    /// Gives the guest `size`. Its files stay; `needs_stop` says whether it must be stopped for it.
    ///
    /// - *Promise* `resize-is-seen-and-keeps-files`: `held` and `capacity` know the new size.
    /// - *Again*: nothing changes.
    /// - *Errors*: `Refused` with the rule when this size cannot be made, `Gone`, `Unavailable`, `Failed`.
    async fn resize(&self, guest: &Guest, size: &Size) -> Result<Guest>;

    /// Whether a guest must be stopped to be resized.
    fn needs_stop(&self) -> bool;
}

/// Recording another owner on a guest.
#[async_trait]
pub trait Relabel: Send + Sync {
    /// Records `owner` on the guest: the same install and box, another thread or name.
    ///
    /// - *Promise* `relabel-is-seen-by-held`.
    /// - *Again*: nothing changes.
    /// - *Errors*: `Gone`, `Unavailable`, `Failed`.
    async fn relabel(&self, guest: &Guest, owner: &Owner) -> Result<Guest>;
}

/// Upkeep at each sweep and when the configuration changes.
#[async_trait]
pub trait Upkeep: Send + Sync {
    /// Does what is due. Removes only what provably belongs to `install` and to no live guest.
    ///
    /// - *Again*: does what is due then.
    async fn maintain(&self, install: &InstallId) -> Result<()>;
}

/// One machine of a real pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name in the configuration.
    pub name: String,
    /// How it stands, in words.
    pub state: String,
    /// Why it is out of service, if it is.
    pub out_of_service: Option<String>,
}

/// A real pool.
#[async_trait]
pub trait Machines: Send + Sync {
    /// Every machine and how it stands.
    async fn members(&self) -> Result<Vec<Machine>>;
    /// Puts back a machine that the operator mended.
    async fn return_to_service(&self, name: &str) -> Result<()>;
}

/// One image as it stands at the provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The kind whose boxes come from it.
    pub kind: KindId,
    /// The provider's name for it, such as a tag.
    pub name: String,
    /// The build it is, if there is one.
    pub build: Option<ImageBuild>,
    /// Why it should be built again, if it should.
    pub due: Option<String>,
}

/// One build of an image, as its record says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageBuild {
    /// The build's ID.
    pub id: String,
    /// When it was made.
    pub made: jiff::Timestamp,
    /// Bytes it takes at the provider, where that is known.
    pub bytes: Option<u64>,
}

/// What a build tells.
pub trait BuildHooks: Send + Sync {
    /// One line of the build's own output.
    fn line(&self, text: &str);
    /// Says what goes on, with the share that is done (0 to 1) where that is known.
    fn progress(&self, text: &str, fraction: Option<f64>);
}

/// Building the images that boxes come from.
#[async_trait]
pub trait Images: Send + Sync {
    /// Each kind's image and whether it must be built again.
    async fn images(&self) -> Result<Vec<Image>>;

    /// Builds `kind`'s image. Boxes that run keep what they were made from; the new build takes the image's name
    /// only once it passed the kind's check.
    ///
    /// - *Again*: builds again; what is unchanged may come from the provider's cache.
    /// - *If dropped*: the old build keeps the name.
    async fn build(&self, kind: &KindId, cancel: &CancellationToken, hooks: &dyn BuildHooks)
    -> Result<Image>;
}

/// The traits stay usable as objects.
const _: fn(&dyn Backend, &dyn Switch, &dyn Resize, &dyn Relabel) = |_, _, _, _| {};
const _: fn(&dyn Upkeep, &dyn Machines, &dyn Images) = |_, _, _| {};
