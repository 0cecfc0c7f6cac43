//! The sweep: compare what should be with what is, at every backend, and begin what mends the difference.
//!
//! It runs at start and every three minutes. It looks (`survey`), plans as a pure function (`plan`) and begins
//! journalled operations, which look again in the box's turn; so nothing is done on a listing that has become old.
//! It acts on this install's guests only, and never ends a box on one answer.

mod plan;
mod probe;
mod waits;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use plan::may_start_again;
pub(crate) use probe::{due as probe_due, keep_asking};

use crate::{
    embed::ThreadState,
    error::{Error, ErrorKind, Result},
    guest::Power,
    id::{BoxId, OperationId, ThreadId},
    journal::{Journal, State},
    life::{self, Asked},
    record::{BoxRecord, BoxState},
    records,
    registry::within,
    world::World,
};
use plan::{Action, Inventory};
use waits::{Told, Waits};

/// How often a sweep runs by itself.
pub const EVERY: Duration = Duration::from_secs(180);

/// How many guests are asked, and how many operations waited for, at a time.
const AT_A_TIME: usize = 8;
/// How long one answer of a backend or of the embedder is waited for.
const ANSWER: Duration = Duration::from_secs(30);
/// How long one operation is waited for. It goes on when this is over, and the sweep does too.
const OPERATION: Duration = Duration::from_secs(300);

/// What one sweep did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// What it did, a line each.
    pub done: Vec<String>,
    /// Guests without a record that it left as they are, and why, a line each.
    #[serde(default)]
    pub kept: Vec<String>,
    /// What it could not do or could not see, why, and what to do about it, a line each.
    pub troubles: Vec<String>,
}

impl Report {
    /// The report, or the failure of a sweep that could not see or do everything.
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

/// A line of trouble: what could not be done or seen, why, and what to do about it.
fn trouble(what: impl fmt::Display, error: &Error) -> String {
    match error.how_to_fix() {
        Some(_) => format!("{what}: {}", error.in_a_line()),
        None => format!("{what}: {} (mend what it names, then `bbbox sweep`)", error.chain()),
    }
}

/// Runs one sweep and waits for what it began.
pub(crate) async fn run(world: &Arc<World>, journal: &Arc<Journal>) -> Result<Report> {
    run_telling(world, journal, &|_| {}).await
}

/// As [`run`], and tells whom it waits for.
pub(crate) async fn run_telling(
    world: &Arc<World>,
    journal: &Arc<Journal>,
    told: Told<'_>,
) -> Result<Report> {
    let mut report = Report::default();
    let waits = Waits::new(told);
    let inventory = survey(world, journal, &waits, &mut report).await?;
    let plan = plan::plan(&inventory);
    report.kept = plan.kept;
    let waits = &waits;
    let acts = stream::iter(plan.actions).map(|action| async move {
        let done = waits.on(action.to_string(), act(world, journal, &action)).await;
        done.map_err(|error| trouble(action, &error))
    });
    for done in acts.buffer_unordered(AT_A_TIME).collect::<Vec<_>>().await {
        match done {
            Ok(lines) => report.done.extend(lines),
            Err(trouble) => report.troubles.push(trouble),
        }
    }
    for entry in world.registry().entries() {
        if let Some(upkeep) = entry.backend.upkeep()
            && let Err(error) = waits
                .on(
                    entry.backend.id().to_string(),
                    within(&*world.env, OPERATION, upkeep.maintain(&world.install())),
                )
                .await
        {
            report.troubles.push(trouble(format!("upkeep of {}", entry.backend.id()), &error));
        }
    }
    // A week of ended operations is kept to look at.
    let week = world.env.now() - Duration::from_secs(7 * 24 * 3600);
    journal.prune(week)?;
    Ok(report)
}

/// Runs a sweep where none was begun like this within [`EVERY`], and asks boxes that are silent and due; for `limit` at
/// most. What it began goes on.
pub(crate) async fn run_if_due(
    world: &Arc<World>,
    journal: &Arc<Journal>,
    limit: Duration,
) -> Result<Option<Report>> {
    let now = world.env.now();
    // A clock that was set back must not put it off for ever.
    let is_recent = |at: Timestamp| at <= now && now < at + EVERY;
    let due = world.store.write(|tx| {
        if records::swept(tx)?.is_some_and(is_recent) {
            return Ok(false);
        }
        records::set_swept(tx, now).map(|()| true)
    })?;
    if !due {
        return Ok(None);
    }
    let swept = async {
        let report = run(world, journal).await;
        probe::ask(world).await;
        report
    };
    within(&*world.env, limit, swept).await.map(Some)
}

/// Looks at everything, without effect.
async fn survey(
    world: &Arc<World>,
    journal: &Arc<Journal>,
    waits: &Waits<'_>,
    report: &mut Report,
) -> Result<Inventory> {
    let install = world.install();
    let registry = world.registry();
    for (id, error) in registry.broken() {
        report.troubles.push(trouble(format!("backend {id}"), error));
    }
    let (mut held, mut offers) = (BTreeMap::new(), BTreeMap::new());
    let listings = stream::iter(registry.entries().cloned()).map(|entry| {
        let install = install.clone();
        async move {
            let id = entry.backend.id();
            let listing =
                waits.on(id.to_string(), within(&*world.env, ANSWER, entry.backend.held(&install))).await;
            let offered = waits.on(id.to_string(), within(&*world.env, ANSWER, entry.backend.offers())).await;
            (id.clone(), listing, offered)
        }
    });
    for (id, listing, offered) in listings.buffer_unordered(AT_A_TIME).collect::<Vec<_>>().await {
        match listing {
            Ok(guests) => drop(held.insert(id.clone(), guests)),
            Err(error) => report.troubles.push(trouble(format!("guests of {id}"), &error)),
        }
        match offered {
            Ok(offered) => drop(offers.insert(id, offered)),
            Err(error) => report.troubles.push(trouble(format!("offers of {id}"), &error)),
        }
    }
    // The records are read after the listings: a guest that was just claimed has its record by now.
    let records = world.store.read(records::all)?;
    report.troubles.extend(records.iter().filter_map(|record| registry.without_backend(record)));
    let (mut busy, mut unknown, mut given_up) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let ids =
        records.iter().map(|r| r.id.clone()).chain(held.values().flatten().map(|h| h.owner.box_id.clone()));
    for id in ids.collect::<BTreeSet<BoxId>>() {
        for operation in journal.live(&id)? {
            if operation.state == State::Suspended {
                let why = operation.error.unwrap_or_else(|| Error::failed("why is not recorded"));
                let what = operation.kind.replace('-', " ");
                report.troubles.push(trouble(
                    format!("box {id}: nothing else is done to it until its {what} ends"),
                    &why,
                ));
            }
            if operation.state == State::Unknown { &mut unknown } else { &mut busy }.insert(id.clone());
        }
        if journal.history(&id)?.iter().any(life::gives_up) {
            given_up.insert(id);
        }
    }
    let powers =
        powers(world, waits, records.iter().filter(|r| !busy.contains(&r.id)).cloned().collect(), report)
            .await;
    let owners = held.values().flatten().filter_map(|h| h.owner.thread.clone());
    let threads = records.iter().filter_map(|r| r.thread.clone()).chain(owners).collect();
    let threads = threads_of(world, waits, threads, report).await;
    let as_offered = BTreeSet::new();
    let now = world.env.now();
    let mut inventory =
        Inventory { now, records, held, offers, busy, unknown, given_up, powers, as_offered, threads };
    let differing = inventory.records.iter().filter(|record| inventory.differing(record).is_some());
    inventory.as_offered = as_offered_now(world, waits, differing.cloned().collect(), report).await;
    Ok(inventory)
}

/// Those of `records` whose guest comes from what its kind is offered from now.
async fn as_offered_now(
    world: &Arc<World>,
    waits: &Waits<'_>,
    records: Vec<BoxRecord>,
    report: &mut Report,
) -> BTreeSet<BoxId> {
    let asked = stream::iter(records).map(|record| async move {
        let (guest, backend) = (record.guest.as_ref()?, world.backend_of(&record).ok()?);
        let answer =
            waits.on(backend.id().to_string(), within(&*world.env, ANSWER, backend.as_offered(guest))).await;
        Some((record, answer))
    });
    let mut found = BTreeSet::new();
    for (record, answer) in asked.buffer_unordered(AT_A_TIME).collect::<Vec<_>>().await.into_iter().flatten()
    {
        match answer {
            Ok(Some(true)) => drop(found.insert(record.id)),
            Ok(Some(false) | None) => {}
            // What is gone is the check's to find.
            Err(error) if error.kind() == ErrorKind::Gone => {}
            Err(error) => report.troubles.push(trouble(format!("what box {} can do", record.name), &error)),
        }
    }
    found
}

/// What each record's backend says about its guest now.
async fn powers(
    world: &Arc<World>,
    waits: &Waits<'_>,
    records: Vec<BoxRecord>,
    report: &mut Report,
) -> BTreeMap<BoxId, Option<Power>> {
    let asked = stream::iter(records).map(|record| async move {
        // A record without a guest, or without a backend that is configured, has nobody to ask.
        let (guest, backend) = (record.guest.as_ref()?, world.backend_of(&record).ok()?);
        let power =
            waits.on(backend.id().to_string(), within(&*world.env, ANSWER, backend.power(guest))).await;
        Some((record.id.clone(), power))
    });
    let mut powers = BTreeMap::new();
    for (id, power) in asked.buffer_unordered(AT_A_TIME).collect::<Vec<_>>().await.into_iter().flatten() {
        match power {
            Ok(power) => drop(powers.insert(id, power)),
            Err(error) => report.troubles.push(trouble(format!("power of box {id}"), &error)),
        }
    }
    powers
}

/// How each thread stands, where the embedder says so now.
async fn threads_of(
    world: &World,
    waits: &Waits<'_>,
    ids: BTreeSet<ThreadId>,
    report: &mut Report,
) -> BTreeMap<ThreadId, ThreadState> {
    let asked = stream::iter(ids).map(|id| async move {
        let asked = within(&*world.env, ANSWER, world.embedder.thread(&id));
        let state = waits.on(format!("thread {id}"), asked).await;
        (id, state)
    });
    let mut threads = BTreeMap::new();
    for (id, state) in asked.buffer_unordered(AT_A_TIME).collect::<Vec<_>>().await {
        match state {
            Ok(state) => drop(threads.insert(id, state)),
            Err(error) => report.troubles.push(trouble(format!("thread {id}"), &error)),
        }
    }
    threads
}

/// Begins what `action` says, waits for its end, and says what was done.
async fn act(world: &Arc<World>, journal: &Arc<Journal>, action: &Action) -> Result<Vec<String>> {
    let asked = Asked::by_itself;
    let operation = match action {
        Action::ThreadEnded { box_id, thread, first } => {
            world.store.write(|tx| {
                records::change(tx, box_id, |r| {
                    // What was found is about this thread, and the box may be another's by now.
                    if r.thread.as_ref() == Some(thread) {
                        r.thread_ended = *first;
                    }
                })
            })?;
            return Ok(Vec::new());
        }
        Action::Refresh { box_id, guest, capabilities } => {
            let changed = world.store.write(|tx| {
                let is_its = |r: &BoxRecord| r.guest.as_ref().is_some_and(|its| its.reference == *guest);
                if !records::get(tx, box_id)?.is_some_and(|record| is_its(&record)) {
                    return Ok(false);
                }
                records::change(tx, box_id, |r| r.capabilities = Some((**capabilities).clone()))?;
                Ok(true)
            })?;
            return Ok(if changed { vec![action.to_string()] } else { Vec::new() });
        }
        Action::Release { box_id, only, why } => {
            let operation = life::begin_release(journal, world, box_id, &asked(why), only.clone())?;
            // Meanwhile the box may have become one to keep.
            let released = finish(world, journal, &operation).await? != Value::Bool(false);
            return Ok(if released { vec![action.to_string()] } else { Vec::new() });
        }
        Action::StartAgain { box_id } => {
            life::begin_start(journal, world, box_id, &asked("it stopped by itself"), true)?
        }
        Action::Check { box_id, size } => {
            let by = asked("a sweep saw a difference");
            let operation = life::begin_check(journal, world, box_id, &by, *size)?;
            finish(world, journal, &operation).await?;
            return after_check(world, journal, box_id).await;
        }
        Action::Adopt(adopt) => life::begin_adopt(journal, adopt, &asked("its record was lost"))?,
        Action::Stray(stray) => life::begin_stray(journal, stray, &asked(&stray.why))?,
    };
    finish(world, journal, &operation).await?;
    Ok(vec![action.to_string()])
}

async fn finish(world: &World, journal: &Journal, operation: &OperationId) -> Result<Value> {
    within(&*world.env, OPERATION, journal.wait(operation)).await
}

/// Tells a thread that its box is gone, and starts a box again that had stopped without choosing to.
async fn after_check(world: &Arc<World>, journal: &Arc<Journal>, box_id: &BoxId) -> Result<Vec<String>> {
    let Some(record) = world.find(box_id)? else { return Ok(Vec::new()) };
    let mut done = vec![format!("box {} is {}", record.name, record.state)];
    if let (BoxState::Gone, Some(thread)) = (record.state, &record.thread) {
        let words = format!("your box {} is gone: its guest was deleted outside bb-box", record.name);
        within(&*world.env, ANSWER, world.embedder.tell(thread, &words)).await?;
    }
    if may_start_again(&record, world.env.now()) {
        let by = Asked::by_itself("it stopped by itself");
        let operation = life::begin_start(journal, world, box_id, &by, true)?;
        finish(world, journal, &operation).await?;
        done.push(format!("started box {} again", record.name));
    }
    Ok(done)
}

/// Keeps sweeping, every three minutes and when it is nudged, until it is dropped.
pub(crate) async fn keep_up(world: Arc<World>, journal: Arc<Journal>) {
    loop {
        match run(&world, &journal).await {
            Ok(report) => log(&report),
            Err(error) => tracing::warn!(error = error.chain(), "a sweep could not run"),
        }
        tokio::select! {
            biased;
            () = world.env.sleep(EVERY) => {}
            () = world.nudge.notified() => {}
        }
    }
}

fn log(report: &Report) {
    for line in &report.done {
        tracing::info!(line, "sweep");
    }
    for line in &report.kept {
        tracing::info!(line, "sweep keeps");
    }
    for line in &report.troubles {
        tracing::warn!(line, "sweep");
    }
}
