//! What the simulated world needs of the core: a store that outlives the value over it, a single thread, and faults
//! that are planted to see whether they are found.
//!
//! This module is in no build that anybody uses: it needs the feature `simulation`, which the suite alone asks for.

use std::{cell::Cell, fmt, sync::Arc};

use crate::{error::Result, id::BoxId, record::BoxRecord, records, store::Store};

/// More pages than any database has.
const NO_LIMIT: i64 = 1_073_741_823;

/// An install's store in memory, which outlives the [`Boxes`](crate::boxes::Boxes) over it: what a disk is to a process.
#[derive(Clone)]
pub struct Memory(pub(crate) Arc<Store>);

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}

impl Memory {
    /// An empty one.
    ///
    /// # Errors
    /// `Failed` when SQLite has no memory.
    pub fn new() -> Result<Self> {
        Ok(Self(Arc::new(Store::memory()?)))
    }

    /// A box's record as it is now.
    ///
    /// # Errors
    /// `Failed` when it cannot be read.
    pub fn record(&self, id: &BoxId) -> Result<Option<BoxRecord>> {
        self.0.read(|db| records::get(db, id))
    }

    /// Has it take nothing more, as on a full disk, or all again.
    ///
    /// # Errors
    /// `Failed` when SQLite refuses.
    pub fn fill(&self, full: bool) -> Result<()> {
        self.0.read(|db| {
            let pages =
                if full { db.query_row("PRAGMA page_count", [], |row| row.get(0))? } else { NO_LIMIT };
            db.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |row| row.get::<_, i64>(0))?;
            Ok(())
        })
    }
}

/// A fault in the core. One holds for the thread that planted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A release believes one listing.
    OneListing,
    /// A resize that failed keeps what it had reserved.
    ReservationKept,
    /// Placing a box does not count what the records hold.
    SharedRoom,
    /// A cancel is honoured after an effect that nothing takes back.
    LateCancel,
    /// A repeated request is another one.
    RequestTwice,
    /// Reaching into a stopped box starts it.
    ReachStarts,
    /// A thread that was found ended once ends its boxes.
    OneAnswer,
    /// A job whose connection was lost is said to have ended well.
    GuessedExit,
    /// An acquire that failed leaves the guest that it made.
    NothingUndone,
    /// A provider that does not answer is said to have no guest.
    SilenceIsGone,
    /// A lost answer of a start or a stop is taken for success.
    LostIsDone,
    /// The room of a resize is taken once it is done.
    ResizeAtEnd,
    /// A copy whose end is not known is said to have done nothing.
    UnsureIsNone,
    /// What was seen in the future, before the clock was set back, is waited for.
    FutureWaits,
    /// An acquire that goes on at the next host leaves what it made at the one before.
    NothingUnmade,
    /// A release forgets its box whatever its provider says.
    ForgetsAnyway,
}

thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    static ALONE: Cell<bool> = const { Cell::new(false) };
}

/// Whether all that is done for this thread is done by it: other threads come when they like, and no seed decides that.
pub fn play_alone(on: bool) {
    ALONE.set(on);
}

/// Whether this thread plays alone.
pub(crate) fn alone() -> bool {
    ALONE.get()
}

/// Plants a fault in this thread, or takes it out.
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Whether `bug` is planted in this thread.
pub(crate) fn is(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}
