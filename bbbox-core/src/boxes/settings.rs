//! The configuration through [`Boxes`]: show, check, apply.

use super::Boxes;
use crate::{
    config::{self, Applied, Change, Draft, Stored},
    driver::Drivers,
    error::Result,
    records,
};

impl Boxes {
    /// The types of backends that this program has, for checking documents against.
    #[must_use]
    pub fn drivers(&self) -> &Drivers {
        &self.shared.settings.drivers
    }

    /// The configuration that holds, with its revision.
    ///
    /// # Errors
    /// `Failed` when the store cannot be read.
    pub fn configuration(&self) -> Result<Stored> {
        self.shared.world.store.read(|db| config::load(db, self.drivers()))
    }

    /// Puts a checked document in place of the one that holds, and says which boxes it leaves without their backend.
    ///
    /// # Errors
    /// `Busy` when it was changed since the draft's revision; nothing changes then.
    pub fn configure(&self, draft: &Draft) -> Result<Applied> {
        self.person_only("changes the configuration")?;
        self.may_change()?;
        let _one_at_a_time =
            self.shared.settings.changing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let change = Change { at: self.shared.world.env.now(), by: self.caller.words() };
        let stored =
            self.shared.world.store.write(|db| config::save_if(db, draft, &change, self.drivers()))?;
        self.shared.settings.set_document(stored.document.clone());
        self.shared.world.set_registry(self.shared.settings.registry());
        // What the backends offer now may be more or less.
        self.shared.world.nudge.notify_one();
        Ok(Applied { stored, warnings: self.left_alone()? })
    }

    /// Boxes whose backend is not configured, each in words.
    fn left_alone(&self) -> Result<Vec<String>> {
        let world = &self.shared.world;
        let registry = world.registry();
        let records = world.store.read(records::all)?;
        Ok(records.iter().filter_map(|record| registry.without_backend(record)).collect())
    }
}
