//! The end of a run: nothing fails any more, and everything must come to rest, in a bounded time, as it should be.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bbbox::{
    boxes::{BoxHandle, Boxes},
    embed::ThreadState,
    id::BoxId,
    record::{BoxRecord, BoxState},
    run::{JobSpec, RunResult},
};

use super::{World, cloud::Machine, life, parts::Parts, pause};

/// How many sweeps may find something to do, three minutes apart.
const SWEEPS: usize = 14;
/// How long operations may go on once nothing fails.
const REST: Duration = Duration::from_secs(3600);

/// Brings the world to rest and checks what must hold then.
pub(super) async fn settle(world: &Arc<World>, installs: &[Boxes]) {
    world.with(Parts::calm_down);
    for (n, boxes) in installs.iter().enumerate() {
        if let Err(error) = life::configure(world, boxes, None) {
            world.with(|p| p.problem(format!("install {n} cannot be configured: {}", error.chain())));
        }
    }
    // What was to happen late has happened then.
    pause(300_000).await;
    if !world.with(|p| p.clouds.iter().all(super::cloud::Cloud::is_still)) {
        world.with(|p| p.problem("a provider is not still".to_owned()));
    }
    for (n, boxes) in installs.iter().enumerate() {
        rest(world, n, boxes).await;
    }
    if !world.with(|p| p.problems.is_empty()) {
        return;
    }
    for (n, boxes) in installs.iter().enumerate() {
        check(world, n, boxes).await;
    }
    world.with(Parts::judge_stranger);
    if !world.with(|p| p.problems.is_empty()) {
        return;
    }
    for (n, boxes) in installs.iter().enumerate() {
        end(world, n, boxes).await;
    }
}

impl Parts {
    fn calm_down(&mut self) {
        self.calm = true;
        self.note("world", "nothing fails any more");
        for cloud in &mut self.clouds {
            for host in &mut cloud.hosts {
                host.down_until = 0;
            }
        }
        for install in 0..self.installs.len() {
            self.empty(install);
        }
    }

    /// The guests that an install has in truth, with their providers.
    fn guests(&self, install: usize) -> Vec<(usize, Machine)> {
        let id = &self.installs[install].id;
        let all =
            self.clouds.iter().enumerate().flat_map(|(c, cloud)| cloud.guests.values().map(move |m| (c, m)));
        all.filter(|(_, m)| m.owner.install == *id).map(|(c, m)| (c, m.clone())).collect()
    }

    fn judge_stranger(&mut self) {
        let there = self.clouds[0].guests.get(&100).is_some_and(|m| m.birth == 1);
        if !there {
            self.problem("the stranger's guest was touched".to_owned());
        }
        // What somebody marked as the stranger's is the stranger's.
        let disowned = self.clouds.iter().flat_map(|cloud| &cloud.past);
        let touched =
            disowned.filter(|m| self.stranger.as_ref().is_some_and(|s| s.install == m.owner.install));
        if touched.count() > 0 {
            self.problem("a guest that became the stranger's was deleted".to_owned());
        }
    }
}

/// Operations end, and sweeps come to find nothing to do.
async fn rest(world: &World, n: usize, boxes: &Boxes) {
    if tokio::time::timeout(REST, boxes.idle()).await.is_err() {
        let live = boxes.operations(20).unwrap_or_default();
        let live: Vec<String> =
            live.iter().filter(|o| !o.state.ended()).map(|o| format!("{} {:?}", o.kind, o.state)).collect();
        world.with(|p| p.problem(format!("install {n} does not come to rest: {live:?}")));
        return;
    }
    let (mut quiet, mut last) = (0, String::new());
    for _ in 0..SWEEPS {
        pause(181_000).await;
        match boxes.sweep().await {
            Ok(report) if report.done.is_empty() && report.troubles.is_empty() => quiet += 1,
            Ok(report) => {
                quiet = 0;
                last = format!("{report:?}");
            }
            Err(error) => {
                quiet = 0;
                last = error.chain();
            }
        }
        if quiet == 2 {
            return;
        }
    }
    world.with(|p| p.problem(format!("install {n} does not become quiet: {last}")));
}

/// Records, guests, operations and what callers were told agree.
async fn check(world: &World, n: usize, boxes: &Boxes) {
    let records = match boxes.list() {
        Ok(records) => records,
        Err(error) => {
            return world.with(|p| p.problem(format!("install {n} has no list: {}", error.chain())));
        }
    };
    for record in &records {
        match boxes.get(record.id.as_str()) {
            Ok(handle) => check_box(world, n, record, &handle).await,
            Err(error) => {
                world.with(|p| p.problem(format!("a listed box is not there: {}", error.chain())));
            }
        }
    }
    let known: BTreeSet<&BoxId> = records.iter().map(|r| &r.id).collect();
    world.with(|p| {
        for (_, machine) in p.guests(n) {
            if !known.contains(&machine.owner.box_id) {
                let label = p.fates.label(&machine.owner.box_id);
                p.problem(format!("the guest {} of {label} has no record", machine.reference));
            }
        }
        p.judge_fates(n, &records);
    });
    told(world, n, boxes, &known);
}

/// One box is as its record says, nothing holds it, and it works.
async fn check_box(world: &World, n: usize, record: &BoxRecord, handle: &BoxHandle) {
    let operations = handle.status().await.map(|status| status.operations).unwrap_or_default();
    world.with(|p| {
        let label = p.fates.label(&record.id);
        if let Some(operation) = operations.first() {
            p.problem(format!(
                "{label} is held by {} {:?} {:?}",
                operation.kind, operation.state, operation.error
            ));
        }
        p.judge_record(n, &label, record);
    });
    if record.state != BoxState::Ready {
        return;
    }
    let ran = handle.run(JobSpec::script("echo here")).await;
    let works = matches!(&ran, Ok(RunResult::Ended(e)) if e.stdout.whole().as_deref() == Some(b"here\n"));
    if !works {
        world.with(|p| {
            let label = p.fates.label(&record.id);
            p.problem(format!("{label} is ready and does not work: {ran:?}"));
        });
    }
}

impl Parts {
    fn judge_record(&mut self, n: usize, label: &str, record: &BoxRecord) {
        let mut wrong = Vec::new();
        let guests: Vec<(usize, Machine)> =
            self.guests(n).into_iter().filter(|(_, m)| m.owner.box_id == record.id).collect();
        let its = guests.iter().find(|(c, m)| {
            record.backend.as_ref() == Some(&self.clouds[*c].id)
                && record.guest.as_ref().is_some_and(|g| g.reference == m.reference.to_string())
        });
        let running = its.map(|(_, m)| m.running);
        match (record.state, running) {
            (BoxState::Ready, Some(true)) | (BoxState::Stopped, Some(false)) => {}
            (BoxState::Gone, None) if guests.is_empty() => {
                let fate = self.fates.of(&record.id);
                // A store that was lost does not know what its install had begun to delete.
                let lost = self.installs[n].lost;
                if !lost && fate.is_some_and(|fate| !fate.may_end.contains_key("deleted by hand")) {
                    wrong.push("is gone, and nobody outside deleted it".to_owned());
                }
            }
            (state, running) => wrong.push(format!("is {state}, and its guest's running is {running:?}")),
        }
        if guests.len() > 1 {
            wrong.push(format!("has {} guests", guests.len()));
        }
        if let Some(to) = record.resize_to {
            wrong.push(format!("holds the room of {to} for a resize that is over"));
        }
        let size = its.map(|(_, m)| m.size).filter(|size| *size != record.size);
        if let Some(size) = size {
            wrong.push(format!("is {} in its record and {size} at its provider", record.size));
        }
        let ended = record.thread.as_ref().filter(|t| self.threads.of(t.as_str()) == ThreadState::Ended);
        if let Some(thread) = ended {
            wrong.push(format!("is there, and its thread {thread} ended"));
        }
        for words in wrong {
            self.problem(format!("{label} {words}"));
        }
    }

    /// What callers were told holds.
    fn judge_fates(&mut self, n: usize, records: &[BoxRecord]) {
        let mut wrong = Vec::new();
        let lost = self.installs[n].lost;
        for fate in self.fates.all.values().filter(|fate| fate.install == n) {
            let there = records.iter().any(|record| record.id == fate.id);
            let ended = fate.threads.iter().any(|t| self.threads.found_ended(n, t));
            if fate.must_live() && !there && !ended {
                wrong.push(format!("b{} was ready, nobody ended it, and it is not there", fate.slot));
            }
            if fate.must_be_gone() && there && !lost {
                let why = if fate.released { "was released" } else { "failed" };
                wrong.push(format!("b{} {why}, and it is there", fate.slot));
            }
        }
        for words in wrong {
            self.problem(words);
        }
    }
}

/// The log of a box that is gone tells its end.
fn told(world: &World, n: usize, boxes: &Boxes, known: &BTreeSet<&BoxId>) {
    let gone: Vec<(usize, BoxId)> = world.with(|p| {
        let lost = p.installs[n].lost;
        let own = p.fates.all.values().filter(|fate| fate.install == n && !lost);
        own.filter(|fate| !known.contains(&fate.id)).map(|fate| (fate.slot, fate.id.clone())).collect()
    });
    for (slot, id) in gone {
        let last =
            boxes.log(id.as_str(), 100).ok().and_then(|events| events.last().map(|e| e.event.kind.clone()));
        let ends = ["released", "forgotten", "acquire-failed", "stray-released"];
        if !last.as_deref().is_some_and(|last| ends.contains(&last)) {
            world.with(|p| p.problem(format!("b{slot} is gone, and its log ends with {last:?}")));
        }
    }
}

/// Everything is released, and nothing is left.
async fn end(world: &World, n: usize, boxes: &Boxes) {
    world.with(|p| p.fates.all.values_mut().for_each(|fate| fate.may_end_by("the end")));
    for record in boxes.list().unwrap_or_default() {
        let released = match boxes.get(record.id.as_str()) {
            Ok(handle) => handle.release(true).await,
            Err(error) => Err(error),
        };
        if let Err(error) = released {
            world.with(|p| {
                let label = p.fates.label(&record.id);
                p.problem(format!("{label} cannot be released at the end: {}", error.chain()));
            });
        }
    }
    let left = world.with(|p| p.guests(n).len());
    if left > 0 {
        world.with(|p| {
            p.problem(format!("{left} guests of install {n} are left after all boxes were released"))
        });
    }
}
