//! What a backend declares, and the reasons for which a case does not apply to it.

use bbbox::{
    backend::{Backend, Nature, Offer},
    error::{Error, Result},
    kind::{Os, Shell},
    size::{Size, Sizes},
};

/// What the backend under test declares.
#[derive(Clone, Debug)]
pub struct Abilities {
    /// The offer that the cases use: the first with a POSIX shell, else the first.
    pub offer: Offer,
    /// The size of the cases' boxes.
    pub size: Size,
    /// Whether its guests are made, not lent.
    pub made: bool,
    /// Whether it stops and starts.
    pub switch: bool,
    /// Whether it resizes.
    pub resize: bool,
    /// Whether it records another owner.
    pub relabel: bool,
}

impl Abilities {
    /// Asks `backend`.
    ///
    /// # Errors
    /// The backend's, and `Failed` when it offers nothing.
    pub(crate) async fn of(backend: &dyn Backend) -> Result<Self> {
        let mut offers = backend.offers().await?;
        let best = offers.iter().position(|o| shell(o) == Some(Shell::Sh)).unwrap_or_default();
        if offers.is_empty() {
            return Err(Error::failed(format!("the backend {} offers no kind", backend.id())));
        }
        let offer = offers.swap_remove(best);
        let sizes = Sizes::standard(!offer.capabilities.displays.is_empty());
        let size = sizes.presets.get("small").copied().unwrap_or(sizes.largest);
        Ok(Self {
            size,
            made: backend.nature() == Nature::Virtual,
            switch: backend.switch().is_some(),
            resize: backend.resize().is_some(),
            relabel: backend.relabel().is_some(),
            offer,
        })
    }
}

fn shell(offer: &Offer) -> Option<Shell> {
    offer.capabilities.command.as_ref().map(|c| c.shell)
}

/// Why a case does not apply, or nothing.
pub(crate) type Unmet = Option<String>;

fn unless(met: bool, reason: &str) -> Unmet {
    (!met).then(|| reason.to_owned())
}

/// Applies to every backend.
pub(crate) fn nothing(_: &Abilities) -> Unmet {
    None
}

/// It stops and starts.
pub(crate) fn switch(a: &Abilities) -> Unmet {
    unless(a.switch, "it declares no stop and start")
}

/// It resizes.
pub(crate) fn resize(a: &Abilities) -> Unmet {
    unless(a.resize, "it declares no resize")
}

/// It relabels.
pub(crate) fn relabel(a: &Abilities) -> Unmet {
    unless(a.relabel, "it declares no relabel")
}

/// Commands are POSIX sh.
pub(crate) fn sh(a: &Abilities) -> Unmet {
    match &a.offer.capabilities.command {
        None => Some("its offer declares no commands".to_owned()),
        Some(command) => unless(command.shell == Shell::Sh, "its offer's shell is not POSIX sh"),
    }
}

/// Commands are POSIX sh and come as they are written.
pub(crate) fn sh_live(a: &Abilities) -> Unmet {
    let streaming = a.offer.capabilities.command.as_ref().is_some_and(|c| c.streaming);
    sh(a).or_else(|| unless(streaming, "its offer declares that output does not come as it is written"))
}

/// Commands are POSIX sh on Linux.
pub(crate) fn linux_sh(a: &Abilities) -> Unmet {
    sh(a).or_else(|| unless(a.offer.capabilities.os == Os::Linux, "its offer is not Linux"))
}

/// Commands are POSIX sh, and it stops and starts.
pub(crate) fn sh_switch(a: &Abilities) -> Unmet {
    sh(a).or_else(|| switch(a))
}

/// Commands are POSIX sh, and it resizes.
pub(crate) fn sh_resize(a: &Abilities) -> Unmet {
    sh(a).or_else(|| resize(a))
}

/// Its boxes have a Docker Engine of their own.
pub(crate) fn docker_inside(a: &Abilities) -> Unmet {
    sh(a).or_else(|| {
        unless(a.offer.capabilities.has("docker"), "its offer does not declare the feature docker")
    })
}

/// The user of its boxes may become administrator.
pub(crate) fn admin(a: &Abilities) -> Unmet {
    let admin = a.offer.capabilities.command.as_ref().is_some_and(|c| c.admin);
    linux_sh(a).or_else(|| unless(admin, "its offer declares no administrator"))
}
