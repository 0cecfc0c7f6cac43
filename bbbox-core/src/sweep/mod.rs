//! The sweep: compare what should be with what is, at every backend, and begin what mends the difference.
//!
//! It runs at start and every three minutes. It looks (`survey`), plans as a pure function (`plan`) and begins
//! journalled operations, which look again in the box's turn; so nothing is done on a listing that has become old.
//! It acts on this install's guests only, and never ends a box on one answer.

mod plan;
mod probe;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use serde::{Deserialize, Serialize};

pub(crate) use probe::due as probe_due;

use crate::{
    embed::ThreadState,
    error::{Error, Result},
    id::{BackendId, BoxId, ThreadId},
    journal::{Journal, State},
    life::{self, Asked},
    record::{BoxRecord, BoxState},
    records,
    world::World,
};
use plan::{Action, Inventory};

/// How often a sweep runs by itself.
pub const EVERY: Duration = Duration::from_secs(180);

/// How many guests are asked for their power at a time.
const AT_A_TIME: usize = 8;

/// What one sweep did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// What it did, a line each.
    pub done: Vec<String>,
    /// What it could not do or could not see, and why, a line each.
    pub troubles: Vec<String>,
}

/// Runs one sweep and waits for what it began.
pub(crate) async fn run(world: &Arc<World>, journal: &Arc<Journal>) -> Result<Report> {
    let mut report = Report::default();
    let inventory = survey(world, journal, &mut report).await?;
    let acts = stream::iter(plan::plan(&inventory)).map(|action| async move {
        let done = act(world, journal, &action).await;
        done.map_err(|error| format!("{action}: {}", error.chain()))
    });
    for done in acts.buffer_unordered(AT_A_TIME).collect::<Vec<_>>().await {
        match done {
            Ok(lines) => report.done.extend(lines),
            Err(trouble) => report.troubles.push(trouble),
        }
    }
    for entry in world.registry().entries() {
        if let Some(upkeep) = entry.backend.upkeep()
            && let Err(error) = upkeep.maintain(&world.install()).await
        {
            report.troubles.push(format!("upkeep of {}: {}", entry.backend.id(), error.chain()));
        }
    }
    // A week of ended operations is kept to look at.
    let week = world.env.now() - Duration::from_secs(7 * 24 * 3600);
    journal.prune(week)?;
    Ok(report)
}

/// Looks at everything, without effect.
async fn survey(world: &Arc<World>, journal: &Arc<Journal>, report: &mut Report) -> Result<Inventory> {
    let install = world.install();
    let mut held = BTreeMap::new();
    let mut offers = BTreeMap::new();
    for entry in world.registry().entries() {
        let id = entry.backend.id().clone();
        match entry.backend.held(&install).await {
            Ok(list) => {
                held.insert(id.clone(), list);
            }
            Err(error) => report.troubles.push(format!("guests of {id}: {}", error.chain())),
        }
        offers.insert(id, entry.backend.offers().await.unwrap_or_default());
    }
    // The records are read after the listings: a guest that was just claimed has its record by now.
    let records = world.store.read(records::all)?;
    let (mut busy, mut unknown, mut given_up) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let ids =
        records.iter().map(|r| r.id.clone()).chain(held.values().flatten().map(|h| h.owner.box_id.clone()));
    for id in ids.collect::<BTreeSet<BoxId>>() {
        for operation in journal.live(&id)? {
            if operation.state == State::Unknown { &mut unknown } else { &mut busy }.insert(id.clone());
        }
        if journal.history(&id)?.iter().any(life::gives_up) {
            given_up.insert(id);
        }
    }
    let powers = stream::iter(records.iter().filter(|r| !busy.contains(&r.id)).cloned().collect::<Vec<_>>())
        .map(|record| async move { power_of(world, &record).await.map(|power| (record.id.clone(), power)) })
        .buffer_unordered(AT_A_TIME)
        .filter_map(async |seen| seen)
        .collect::<Vec<_>>()
        .await;
    let mut seen = BTreeMap::new();
    for (id, power) in powers {
        match power {
            Ok(power) => {
                seen.insert(id, power);
            }
            Err(error) => report.troubles.push(format!("power of box {id}: {}", error.chain())),
        }
    }
    let threads =
        threads(world, &records, held.values().flatten().filter_map(|h| h.owner.thread.as_ref()), report)
            .await;
    Ok(Inventory {
        now: world.env.now(),
        records,
        held,
        offers,
        busy,
        unknown,
        given_up,
        powers: seen,
        threads,
    })
}

/// The power of a record's guest; `None` when there is nothing to ask.
async fn power_of(world: &World, record: &BoxRecord) -> Option<Result<Option<crate::guest::Power>>> {
    let guest = record.guest.as_ref()?;
    let backend = world.backend_of(record).ok()?;
    Some(backend.power(guest).await)
}

async fn threads<'a>(
    world: &World,
    records: &'a [BoxRecord],
    more: impl Iterator<Item = &'a ThreadId>,
    report: &mut Report,
) -> BTreeMap<ThreadId, ThreadState> {
    let ids: BTreeSet<&ThreadId> = records.iter().filter_map(|r| r.thread.as_ref()).chain(more).collect();
    let mut threads = BTreeMap::new();
    for id in ids {
        match world.embedder.thread(id).await {
            Ok(state) => {
                threads.insert(id.clone(), state);
            }
            Err(error) => report.troubles.push(format!("thread {id}: {}", error.chain())),
        }
    }
    threads
}

/// Begins what `action` says, waits for its end, and says what was done.
async fn act(world: &Arc<World>, journal: &Arc<Journal>, action: &Action) -> Result<Vec<String>> {
    let asked = |why: &str| Asked { by: format!("by bb-box: {why}"), request: None };
    let operation = match action {
        Action::ThreadEnded { box_id, first } => {
            world.store.write(|tx| records::change(tx, box_id, |r| r.thread_ended = *first))?;
            return Ok(Vec::new());
        }
        Action::Release { box_id, why } => life::begin_release(journal, world, box_id, &asked(why))?,
        Action::Check { box_id } => {
            let operation = life::begin_check(journal, world, box_id, &asked("a sweep saw a difference"))?;
            journal.wait(&operation).await?;
            return after_check(world, journal, box_id).await;
        }
        Action::Adopt(adopt) => life::begin_adopt(journal, adopt, &asked("its record was lost"))?,
        Action::Stray(stray) => life::begin_stray(journal, stray, &asked(&stray.why))?,
    };
    journal.wait(&operation).await?;
    Ok(vec![action.to_string()])
}

/// Starts a box again that had stopped without choosing to, unless that was done less than ten minutes ago.
async fn after_check(world: &Arc<World>, journal: &Arc<Journal>, box_id: &BoxId) -> Result<Vec<String>> {
    let Some(record) = world.find(box_id)? else { return Ok(Vec::new()) };
    let mut done = vec![format!("box {} is {}", record.name, record.state)];
    if record.state == BoxState::Gone {
        if let Some(thread) = &record.thread {
            let words = format!("your box {} is gone: its guest was deleted outside bb-box", record.name);
            world.embedder.tell(thread, &words).await?;
        }
        return Ok(done);
    }
    if record.state != BoxState::Stopped || record.trouble.is_none() {
        return Ok(done);
    }
    let (Some(guest), Ok(backend)) = (&record.guest, world.backend_of(&record)) else { return Ok(done) };
    let Some(switch) = backend.switch() else { return Ok(done) };
    let cause = switch.stopped(guest).await?;
    if plan::may_start_again(&record, cause.as_ref(), world.env.now()) {
        let by = Asked { by: "by bb-box: it stopped by itself".to_owned(), request: None };
        let operation = life::begin_start(journal, world, box_id, &by, true)?;
        journal.wait(&operation).await?;
        done.push(format!("started box {} again", record.name));
    }
    Ok(done)
}

/// Keeps sweeping and asking boxes that do not answer, until it is dropped.
pub(crate) async fn keep_up(world: Arc<World>, journal: Arc<Journal>) {
    let mut next = world.env.now();
    loop {
        if world.env.now() >= next {
            match run(&world, &journal).await {
                Ok(report) => log(&report),
                Err(error) => tracing::warn!(error = error.chain(), "a sweep could not run"),
            }
            next = world.env.now() + EVERY;
        }
        probe::ask(&world).await;
        world.env.sleep(Duration::from_secs(5)).await;
    }
}

fn log(report: &Report) {
    for line in &report.done {
        tracing::info!(line, "sweep");
    }
    for line in &report.troubles {
        tracing::warn!(line, "sweep");
    }
}

/// The error of a sweep that could not see everything.
impl Report {
    /// Fails when something could not be seen or done.
    ///
    /// # Errors
    /// `Failed` with each trouble's words.
    pub fn into_result(self) -> Result<Self> {
        if self.troubles.is_empty() {
            return Ok(self);
        }
        Err(Error::failed("the sweep could not see or do everything").because_of(self.troubles.join("; ")))
    }
}

/// Where a listing's guests are, by backend.
type Listings = BTreeMap<BackendId, Vec<crate::guest::Held>>;
