//! The oracle about callers: what each was told is held to what was true, and a refusal to what allows it.
//!
//! Between the beginning and the end of a call others act too, so a rule asks whether the answer may be true at some
//! moment of the call. Where that cannot be known, it holds the answer for allowed.

use std::{collections::BTreeMap, sync::Arc};

use bbbox::{
    Error, ErrorKind,
    id::{BoxId, JobId, OperationId},
    record::BoxRecord,
    run::{Copied, JobState, RunResult},
    transport::Exit,
};

use super::{
    World,
    action::Action,
    copies::{Bytes, names_nothing},
    fate::{Fate, Job, Told},
    inside::Stand,
    parts::Parts,
    shell::course,
    threads::thread,
};

/// For how long after a fault something may still fail for it, in milliseconds.
const SHADOW: u64 = 1_200_000;

/// What a call answered.
#[derive(Debug)]
pub(super) enum Answer {
    /// There was nothing to ask about.
    Nothing,
    Begun,
    Done,
    Acquired {
        slot: usize,
        id: BoxId,
    },
    Cancelled(bool),
    Ran(RunResult),
    Launched,
    Waited(Job, RunResult),
    Looked(Job, JobState),
    Listed(Vec<BoxRecord>),
    CopiedIn(Copied),
    /// What arrived.
    CopiedOut(Bytes),
    /// What arrived of a directory, by the names in it.
    TreeOut(BTreeMap<String, Bytes>),
    /// How a script that was passed through ended, and what came of its two streams.
    Streamed(Exit, Bytes, Bytes),
    /// The offset that was come to, and what came.
    Followed(Job, u64, Bytes),
}

/// The slot that an action is about.
pub(super) fn slot_of(action: &Action) -> Option<usize> {
    match action {
        Action::Acquire { slot, .. }
        | Action::Again { slot }
        | Action::Cancel { slot }
        | Action::Run { slot, .. }
        | Action::Launch { slot, .. }
        | Action::Wait { slot }
        | Action::Look { slot }
        | Action::Signal { slot }
        | Action::Stream { slot, .. }
        | Action::Follow { slot }
        | Action::CopyTreeIn { slot, .. }
        | Action::CopyTreeOut { slot }
        | Action::CopyIn { slot, .. }
        | Action::CopyOut { slot }
        | Action::Start { slot }
        | Action::Stop { slot, .. }
        | Action::Resize { slot, .. }
        | Action::Rename { slot, .. }
        | Action::HandTo { slot, .. }
        | Action::Release { slot, .. }
        | Action::Forget { slot }
        | Action::Check { slot } => Some(*slot),
        _ => None,
    }
}

/// Whether an action changes a box.
fn changes(action: &Action) -> bool {
    matches!(
        action,
        Action::Acquire { .. }
            | Action::Start { .. }
            | Action::Stop { .. }
            | Action::Resize { .. }
            | Action::Rename { .. }
            | Action::HandTo { .. }
            | Action::Release { .. }
            | Action::Forget { .. }
            | Action::Check { .. }
    )
}

/// One call that is under way.
pub(super) struct Call {
    began: u64,
    install: usize,
    thread: Option<u64>,
    slot: Option<usize>,
}

impl Call {
    /// Notes what becomes possible with the call.
    pub(super) fn begin(world: &Arc<World>, install: usize, caller: Option<u64>, action: &Action) -> Self {
        let slot = slot_of(action);
        world.with(|p| {
            let now = p.now;
            if let Some(fate) = slot.and_then(|slot| p.fates.all.get_mut(&slot)) {
                fate.foresee(action, caller);
                if changes(action) {
                    fate.changing += 1;
                    fate.changed = now;
                }
            }
            if matches!(action, Action::Configure { .. } | Action::Restart) {
                p.fault("happens");
            }
            Self { began: p.now, install, thread: caller, slot }
        })
    }

    /// Judges the answer.
    pub(super) fn end(self, world: &World, action: &Action, answer: Result<Answer, Option<Error>>) {
        world.with(|p| {
            match &answer {
                Ok(answer) => p.judge_answer(&self, action, answer),
                Err(Some(error)) => p.judge_error(&self, action, error),
                Err(None) => p.problem(format!("{action:?} does not end")),
            }
            let now = p.now;
            if let Some(fate) = self.slot.and_then(|slot| p.fates.all.get_mut(&slot)) {
                if changes(action) && !matches!(action, Action::Acquire { .. }) {
                    fate.changing = fate.changing.saturating_sub(1);
                }
                if changes(action) {
                    fate.changed = now;
                }
            }
        });
    }
}

impl Fate {
    fn foresee(&mut self, action: &Action, caller: Option<u64>) {
        match action {
            Action::Release { .. } => self.may_end_by("release"),
            Action::Forget { .. } => self.may_end_by("forget"),
            Action::Cancel { .. } if self.told != Some(Told::Ready) => self.may_end_by("cancel"),
            Action::Stop { .. } => self.may_be_off = true,
            Action::HandTo { thread: Some(to), .. } if caller.is_none() => {
                self.threads.insert(thread(*to).to_string());
            }
            // Nobody's: no agent sees it then.
            Action::HandTo { thread: None, .. } if caller.is_none() => {
                _ = self.threads.insert("-".to_owned())
            }
            Action::Rename { name, .. } => drop(self.names.insert(name.clone())),
            Action::Resize { memory_gib, .. } => self.most_mib = self.most_mib.max(memory_gib * 1024),
            _ => {}
        }
    }
}

impl Parts {
    fn shadowed(&self, call: &Call) -> bool {
        self.last_fault.is_some_and(|at| at + SHADOW >= call.began)
    }

    /// A request that is said again is the same box, unless the store forgot it.
    pub(super) fn judge_again(&mut self, fate: &Fate, id: &BoxId, operation: &OperationId) {
        if (*id != fate.id || *operation != fate.operation) && !self.installs[fate.install].lost {
            self.problem(format!("request {} was box {} and is box {id} now", fate.slot, fate.id));
        }
    }

    fn judge_answer(&mut self, call: &Call, action: &Action, answer: &Answer) {
        let fate = call.slot.and_then(|slot| self.fates.all.get(&slot)).cloned();
        self.judge_copy(action, call.began, answer);
        match (answer, fate) {
            (Answer::Acquired { slot, id }, Some(fate)) if *id == fate.id => self.acquired(*slot),
            (Answer::Cancelled(false), Some(fate)) => {
                if let Some(fate) = self.fates.all.get_mut(&fate.slot) {
                    fate.not_ended_by("cancel");
                }
            }
            (Answer::Ran(RunResult::Ended(ended)), Some(fate)) => {
                let Action::Run { script, .. } = action else { return };
                self.judge_exit(&fate, script, ended.exit, ended.stdout.total, false);
                self.judge_alive(&fate, action);
            }
            (Answer::Streamed(exit, out, err), Some(fate)) => {
                let Action::Stream { script, .. } = action else { return };
                self.judge_exit(&fate, script, *exit, out.0.len() as u64, false);
                self.judge_bytes(&fate, script, (out, Some(err)), false);
            }
            (Answer::Followed(job, until, out), Some(fate)) => {
                let signalled = self.signalled(&fate, job);
                self.judge_bytes(&fate, &job.script, (out, None), signalled);
                if *until != out.0.len() as u64 {
                    let brought = out.0.len();
                    self.problem(format!("b{}: {brought} bytes came and were told as {until}", fate.slot));
                }
            }
            (Answer::Waited(job, RunResult::Ended(ended)), Some(fate)) => {
                self.judge_exit(
                    &fate,
                    &job.script,
                    ended.exit,
                    ended.stdout.total,
                    self.signalled(&fate, job),
                );
            }
            (Answer::Looked(job, state), Some(fate)) => self.judge_look(&fate, job, *state),
            (Answer::Done, Some(fate)) => self.judge_done(call, action, &fate),
            (Answer::Listed(records), _) => self.judge_list(call, records),
            _ => {}
        }
    }

    fn acquired(&mut self, slot: usize) {
        let now = self.now;
        if let Some(fate) = self.fates.all.get_mut(&slot) {
            fate.told = Some(Told::Ready);
            fate.told_at.get_or_insert(now);
        }
    }

    fn signalled(&self, fate: &Fate, job: &Job) -> bool {
        let now = self.fates.all.get(&fate.slot);
        now.is_some_and(|f| f.jobs.iter().any(|j| j.id == job.id && j.signalled))
    }

    /// *Only the box says that a job ended*, and how.
    fn judge_exit(&mut self, fate: &Fate, script: &str, exit: Exit, out: u64, signalled: bool) {
        let course = course(script);
        let as_written = exit == course.exit && out == course.out.len() as u64;
        if as_written || (signalled && exit == Exit::Signal(15)) {
            return;
        }
        let label = format!("b{}", fate.slot);
        let words = format!("{label}: {script:?} ends with {} and was told as {exit}", course.exit);
        self.problem(words);
    }

    /// What was passed on is what the script says: a part of it only where that was ended.
    fn judge_bytes(&mut self, fate: &Fate, script: &str, (out, err): (&Bytes, Option<&Bytes>), ended: bool) {
        let course = course(script);
        let whole = out.0 == course.out && err.is_none_or(|err| err.0 == course.err);
        let part = ended && course.out.starts_with(&out.0);
        if !(whole || part) {
            self.problem(format!("b{}: of {script:?} {out:?} and {err:?} came", fate.slot));
        }
    }

    /// What was done to a box that must be gone was not done.
    fn judge_alive(&mut self, fate: &Fate, action: &Action) {
        if fate.released && !self.installs[fate.install].lost {
            self.problem(format!("{} of b{} succeeded after its release", action.name(), fate.slot));
        }
    }

    fn judge_look(&mut self, fate: &Fate, job: &Job, state: JobState) {
        let Some(truth) = self.stand(fate, &job.id) else { return };
        let fits = match (state, truth) {
            (JobState::Ended(exit), Stand::Ended(real)) => exit == real,
            (JobState::Lost, Stand::Lost) => true,
            // It may have ended since it was looked at.
            (JobState::Running | JobState::Starting, _) => true,
            _ => false,
        };
        if !fits {
            self.problem(format!("b{}: job {} is {truth:?} and was told as {state:?}", fate.slot, job.id));
        }
    }

    /// How a job of a box stands in its guest.
    fn stand(&self, fate: &Fate, job: &JobId) -> Option<Stand> {
        let install = &self.installs[fate.install].id;
        let machine = self.clouds.iter().find_map(|cloud| cloud.of_box(install, &fate.id))?;
        machine.inside.jobs.get(job.as_str()).map(|job| job.stand(self.now))
    }

    fn judge_done(&mut self, call: &Call, action: &Action, fate: &Fate) {
        let install = self.installs[fate.install].id.clone();
        // Of guests that were marked alike by hand, nobody knows which is meant.
        let others = fate.by_hand || fate.changing > 1 || fate.changed > call.began;
        let its = self.clouds.iter().flat_map(|cloud| cloud.guests.values());
        let its: Vec<_> = its.filter(|m| m.is(&install, &fate.id) && !m.unasked).collect();
        let first = its.first();
        let running = first.is_some_and(|m| m.running);
        let size = first.map(|m| m.size.memory_mib);
        let slot = fate.slot;
        let wrong = match action {
            Action::Release { .. } if !its.is_empty() => {
                Some("its release is told and its guest is there".to_owned())
            }
            Action::Stop { .. } if running && !others => {
                Some("its stop is told and its guest runs".to_owned())
            }
            Action::Start { .. } if first.is_some() && !running && !others && !fate.may_be_off => {
                Some("its start is told and its guest is off".to_owned())
            }
            Action::Resize { memory_gib, .. }
                if size.is_some_and(|is| is != memory_gib * 1024) && !others =>
            {
                Some(format!("its resize to {memory_gib} GiB is told and it has {size:?}"))
            }
            _ => None,
        };
        if let Some(words) = wrong {
            self.problem(format!("b{slot}: {words}"));
        }
        if let (Action::Release { .. }, Some(fate)) = (action, self.fates.all.get_mut(&slot)) {
            fate.released = true;
        }
    }

    /// *An agent sees its own*, and the person everything.
    fn judge_list(&mut self, call: &Call, records: &[BoxRecord]) {
        if let Some(own) = call.thread.map(thread) {
            if let Some(other) = records.iter().find(|r| r.thread.as_ref() != Some(&own)) {
                self.problem(format!("the agent in {own} sees box {}", other.name));
            }
            return;
        }
        let lost = self.installs[call.install].lost;
        let missing = self.fates.all.values().find(|fate| {
            fate.install == call.install
                && fate.must_live()
                && !lost
                && !fate.threads.iter().any(|t| self.threads.found_ended(fate.install, t))
                && !records.iter().any(|r| r.id == fate.id)
        });
        if let Some(fate) = missing {
            let words = format!("b{} is not in the list and nobody ended it", fate.slot);
            self.problem(words);
        }
    }
}

/// What a refusal may be for.
impl Parts {
    fn judge_error(&mut self, call: &Call, action: &Action, error: &Error) {
        if matches!(action, Action::Acquire { .. } | Action::Again { .. })
            && let Some(fate) = call.slot.and_then(|slot| self.fates.all.get_mut(&slot))
            && fate.told.is_none()
            && ends(error)
        {
            fate.told = Some(Told::Failed(error.kind()));
        }
        if let (Action::Release { .. }, ErrorKind::Refused, Some(slot)) = (action, error.kind(), call.slot)
            && error.chain().contains("is working on box")
            && let Some(fate) = self.fates.all.get_mut(&slot)
        {
            fate.not_ended_by("release");
        }
        if let (Action::Forget { .. }, ErrorKind::Refused, Some(slot)) = (action, error.kind(), call.slot)
            && let Some(fate) = self.fates.all.get_mut(&slot)
        {
            fate.not_ended_by("forget");
        }
        self.judge_no_copy(action, error);
        if names_nothing(action, error) || self.changed_under(action, call.began, error) {
            return;
        }
        let fate = call.slot.and_then(|slot| self.fates.all.get(&slot)).cloned();
        // A provider that is named and taken out of the configuration is none any more.
        let named = matches!(action, Action::Acquire { on: Some(_), .. } | Action::Again { .. });
        let never = match error.kind() {
            ErrorKind::Invalid => !named,
            ErrorKind::Gone | ErrorKind::Denied => true,
            _ => false,
        };
        if self.shadowed(call) && !never {
            return;
        }
        if !self.may_refuse(call, action, fate.as_ref(), error) {
            let slot = call.slot.map(|slot| format!(" of b{slot}")).unwrap_or_default();
            self.problem(format!("{}{slot} is refused without a reason: {}", action.name(), error.chain()));
        }
    }

    /// Whether an error may be, though no fault is near.
    fn may_refuse(&self, call: &Call, action: &Action, fate: Option<&Fate>, error: &Error) -> bool {
        let Some(fate) = fate else {
            // An acquire that could not begin, or a box that nobody acquired.
            return match error.kind() {
                ErrorKind::NoCapacity | ErrorKind::Gone => true,
                ErrorKind::Refused => call.thread.is_some(),
                _ => false,
            };
        };
        let lost = self.installs[fate.install].lost;
        let seen = call.thread.is_none_or(|n| {
            let own = thread(n).to_string();
            fate.threads.len() == 1 && fate.threads.contains(&own)
        });
        let thread_ended = fate.threads.iter().any(|t| self.threads.found_ended(fate.install, t));
        let busy = fate.changing > 0 || fate.changed >= call.began || fate.told != Some(Told::Ready);
        let may_end = !fate.may_end.is_empty() || thread_ended;
        match error.kind() {
            ErrorKind::Gone => !seen || !fate.must_live() || thread_ended || lost,
            ErrorKind::Busy | ErrorKind::Cancelled => {
                busy || may_end || matches!(action, Action::Rename { .. })
            }
            ErrorKind::Refused => match action {
                _ if action.is_inside() => busy || may_end || fate.may_be_off || lost,
                Action::Acquire { .. } | Action::Again { .. } => false,
                _ => true,
            },
            ErrorKind::NoCapacity => match action {
                Action::Acquire { .. } | Action::Again { .. } => self.may_be_full(fate),
                _ => true,
            },
            // A call into a box that is stopped or ended meanwhile loses contact.
            ErrorKind::Unavailable | ErrorKind::Failed => {
                (action.is_inside() && (busy || may_end || fate.may_be_off))
                    || matches!(action, Action::Sweep)
            }
            _ => false,
        }
    }

    /// Whether what everybody may have held meanwhile leaves no room for a box of this size.
    fn may_be_full(&self, fate: &Fate) -> bool {
        let all: u64 = self.fates.all.values().filter(|f| f.slot != fate.slot).map(|f| f.most_mib).sum();
        let copies = self.clouds.iter().flat_map(|c| c.guests.values()).filter(|m| m.unasked);
        let all = all + copies.map(|m| m.size.memory_mib).sum::<u64>();
        let largest = self.clouds.iter().flat_map(|c| &c.hosts).map(|h| h.memory_mib).min().unwrap_or(0);
        all + fate.size.memory_mib > largest
    }
}

/// Whether an error is an acquire's end, rather than of whoever waited for it.
fn ends(error: &Error) -> bool {
    !error.chain().contains("this process is closing") && !error.chain().contains("stands still")
}
