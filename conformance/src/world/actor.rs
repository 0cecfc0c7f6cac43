//! Who acts: people and agents, each one thing after the other, through the public interface.
//!
//! An actor asks, and hands what it was told to `verdict`. It outlives the process: when that dies under it, it never
//! learns how the call ended, and goes on with its next action in the next process.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bbbox::{
    Error, Result,
    boxes::{Acquire, BoxHandle, Boxes},
    id::{BoxName, RequestId},
    run::{JobSpec, Signal, Stream},
    size::{Size, SizeChoice},
};

use tokio::task::JoinSet;

use super::{
    World,
    action::{Action, Step},
    copies,
    fate::{Fate, Job},
    generate::{ACTORS, install_of},
    hand, life, pause,
    threads::thread,
    verdict::{Answer, Call},
};

/// Longer than any call may take once nothing fails.
const PATIENCE: Duration = Duration::from_secs(3 * 3600);

/// One actor in one process.
#[derive(Clone)]
pub(super) struct Actor {
    pub(super) world: Arc<World>,
    pub(super) number: usize,
    /// Each install's boxes in this process.
    pub(super) installs: Vec<Boxes>,
}

impl Actor {
    fn install(&self) -> usize {
        let installs = self.world.with(|p| p.schedule.shape.installs);
        install_of(self.number, installs)
    }

    /// The thread that it is the agent of; `None` for the person.
    fn thread(&self) -> Option<u64> {
        match self.number {
            1 => Some(0),
            2 => Some(1),
            _ => None,
        }
    }

    fn boxes(&self) -> Boxes {
        let boxes = self.installs[self.install()].clone();
        match self.thread() {
            Some(n) => boxes.for_thread(thread(n)),
            None => boxes,
        }
    }

    /// Does what is left of its part.
    pub(super) async fn go_on(self) {
        let steps: Vec<(usize, Step)> = self.world.with(|p| {
            let own =
                p.schedule.steps.iter().cloned().enumerate().filter(|(_, step)| step.actor == self.number);
            own.filter(|(n, _)| !p.begun.contains(n)).collect()
        });
        for (n, step) in steps {
            pause(step.pause_ms).await;
            if self.world.with(|p| p.dying || !p.begun.insert(n)) {
                return;
            }
            self.act(&step.action).await;
        }
    }

    async fn act(&self, action: &Action) {
        let Action::Both { first, second } = action else { return self.act_once(action).await };
        let mut both = JoinSet::new();
        for action in [first, second] {
            let (actor, action) = (self.clone(), action.clone());
            both.spawn(async move { actor.act_once(&action).await });
        }
        while let Some(done) = both.join_next().await {
            if let Err(error) = done {
                self.world.with(|p| p.problem(format!("an action ended: {error}")));
            }
        }
    }

    async fn act_once(&self, action: &Action) {
        let who = format!("a{}", self.number);
        self.world.with(|p| {
            p.set_here(&format!("{} call", action.name()));
            p.note(&who, &format!("{action:?}"));
        });
        if action.is_nature() {
            hand::apply(&self.world, self.install(), action);
            return;
        }
        let call = Call::begin(&self.world, self.install(), self.thread(), action);
        let ended = tokio::time::timeout(PATIENCE, self.ask(action)).await;
        let answer = ended.unwrap_or(Err(None));
        let words = match &answer {
            Ok(answer) => format!("{} -> {answer:?}", action.name()),
            Err(Some(error)) => format!("{} -> {:?}: {}", action.name(), error.kind(), error.chain()),
            Err(None) => format!("{} does not end", action.name()),
        };
        self.world.with(|p| {
            // Where copies come from has another name each time.
            let words = match p.here.as_ref().and_then(|dir| dir.path().to_str()) {
                Some(here) => words.replace(here, "here"),
                None => words,
            };
            p.note(&who, &words);
        });
        call.end(&self.world, action, answer);
    }

    /// `Err(None)` stands for a call that does not end.
    async fn ask(&self, action: &Action) -> std::result::Result<Answer, Option<Error>> {
        Ok(match action {
            Action::Acquire { slot, memory_gib, on, waits } => {
                let fate = self.begin_acquire(*slot, *memory_gib, on.clone())?;
                if !waits {
                    return Ok(Answer::Begun);
                }
                self.finish_acquire(*slot, &fate).await?
            }
            Action::Again { slot } => self.again(*slot).await?,
            Action::Cancel { slot } => match self.fate(*slot) {
                Some(fate) => Answer::Cancelled(self.boxes().cancel(&fate.operation)?),
                None => Answer::Nothing,
            },
            Action::List => Answer::Listed(self.boxes().list()?),
            Action::Sweep => {
                self.installs[self.install()].sweep().await?;
                Answer::Done
            }
            Action::Configure { backend, to } => {
                life::configure(&self.world, &self.installs[self.install()], Some((*backend, *to)))?;
                Answer::Done
            }
            Action::Restart => {
                for boxes in &self.installs {
                    boxes.close(Duration::from_secs(2)).await;
                }
                self.world.die("it was closed in order");
                Answer::Done
            }
            _ => match self.slot_of(action).and_then(|slot| self.fate(slot)) {
                Some(fate) => self.on_box(action, &fate).await?,
                None => Answer::Nothing,
            },
        })
    }

    fn slot_of(&self, action: &Action) -> Option<usize> {
        super::verdict::slot_of(action)
    }

    fn fate(&self, slot: usize) -> Option<Fate> {
        self.world.with(|p| p.fates.all.get(&slot).cloned())
    }

    fn order(&self, slot: usize, size: Size, on: Option<&String>) -> Result<Acquire> {
        let request = RequestId::parse(format!("request-{slot}"))?;
        let mut order = Acquire::kind("linux").size(SizeChoice::Custom(size)).request(request);
        if let Some(on) = on {
            order = order.on(on);
        }
        Ok(order)
    }

    /// Begins the acquire of a slot and notes what is known of it, at one moment.
    fn begin_acquire(&self, slot: usize, memory_gib: u64, on: Option<String>) -> Result<Fate> {
        let size = Size::new(1, memory_gib * 1024);
        let (operation, handle) = self.boxes().begin_acquire(self.order(slot, size, on.as_ref())?)?;
        let threads: BTreeSet<String> = self.thread().map(|n| thread(n).to_string()).into_iter().collect();
        let fate = Fate {
            slot,
            install: self.install(),
            id: handle.id().clone(),
            operation,
            size,
            on,
            by: self.thread(),
            threads,
            told: None,
            told_at: None,
            may_end: BTreeMap::new(),
            released: false,
            may_be_off: false,
            changed: self.world.with(|p| p.now),
            changing: 0,
            names: BTreeSet::new(),
            jobs: Vec::new(),
            by_hand: false,
            most_mib: size.memory_mib,
        };
        self.world.with(|p| p.fates.add(fate.clone()));
        Ok(fate)
    }

    async fn finish_acquire(&self, slot: usize, fate: &Fate) -> Result<Answer> {
        self.boxes().wait(&fate.operation).await?;
        Ok(Answer::Acquired { slot, id: fate.id.clone() })
    }

    /// Says an acquire again, as its own caller.
    async fn again(&self, slot: usize) -> Result<Answer> {
        let Some(fate) = self.fate(slot) else { return Ok(Answer::Nothing) };
        let own = self.installs[fate.install].clone();
        let boxes = match fate.by {
            Some(n) => own.for_thread(thread(n)),
            None => own,
        };
        let order = self.order(slot, fate.size, fate.on.as_ref())?;
        let (operation, handle) = boxes.begin_acquire(order)?;
        self.world.with(|p| p.judge_again(&fate, handle.id(), &operation));
        boxes.wait(&operation).await?;
        Ok(Answer::Acquired { slot, id: handle.id().clone() })
    }

    async fn on_box(&self, action: &Action, fate: &Fate) -> Result<Answer> {
        let boxes = self.boxes();
        let handle = boxes.get(fate.id.as_str())?;
        match action {
            Action::Run { script, .. } => {
                Ok(Answer::Ran(handle.run(JobSpec::script(script.as_str())).await?))
            }
            Action::Launch { script, .. } => {
                let job = handle.session()?.start(&JobSpec::script(script.as_str())).await?;
                self.world.with(|p| {
                    if let Some(fate) = p.fates.all.get_mut(&fate.slot) {
                        fate.jobs.push(Job { id: job.clone(), script: script.clone(), signalled: false });
                    }
                });
                Ok(Answer::Launched)
            }
            Action::Stream { script, .. } => {
                let (mut out, mut err) = (Vec::new(), Vec::new());
                let spec = JobSpec::script(script.as_str());
                let exit = handle.session()?.stream(&spec, None, &mut out, &mut err).await?;
                Ok(Answer::Streamed(exit, out.into(), err.into()))
            }
            Action::CopyTreeIn { tag, .. } => copies::tree_in(&self.world, &handle, *tag).await,
            Action::CopyTreeOut { slot } => {
                let now = self.world.with(|p| p.now);
                copies::tree_out(&self.world, &handle, *slot, now).await
            }
            Action::CopyIn { to, tag, len, .. } => {
                copies::copy_in(&self.world, &handle, to, (*tag, *len)).await
            }
            Action::CopyOut { slot } => {
                let now = self.world.with(|p| p.now);
                copies::copy_out(&self.world, &handle, *slot, now).await
            }
            Action::Wait { .. } | Action::Look { .. } | Action::Signal { .. } | Action::Follow { .. } => {
                self.on_job(action, fate, &handle).await
            }
            _ => self.change(action, &handle).await.map(|()| Answer::Done),
        }
    }

    async fn on_job(&self, action: &Action, fate: &Fate, handle: &BoxHandle) -> Result<Answer> {
        let Some(job) = fate.jobs.last() else { return Ok(Answer::Nothing) };
        let session = handle.session()?;
        match action {
            Action::Wait { .. } => {
                let result = session.wait(&job.id, Duration::from_secs(120)).await?;
                Ok(Answer::Waited(job.clone(), result))
            }
            Action::Look { .. } => Ok(Answer::Looked(job.clone(), session.job(&job.id).await?)),
            Action::Follow { .. } => {
                let mut out = Vec::new();
                let until = session.follow(&job.id, Stream::Stdout, 0, &mut out).await?;
                Ok(Answer::Followed(job.clone(), until, out.into()))
            }
            _ => {
                self.world.with(|p| {
                    let of_slot = p.fates.all.get_mut(&fate.slot);
                    for other in of_slot.into_iter().flat_map(|f| &mut f.jobs).filter(|j| j.id == job.id) {
                        other.signalled = true;
                    }
                });
                session.signal(&job.id, Signal::Terminate).await?;
                Ok(Answer::Done)
            }
        }
    }

    async fn change(&self, action: &Action, handle: &BoxHandle) -> Result<()> {
        match action {
            Action::Start { .. } => handle.start().await,
            Action::Stop { force, .. } => handle.stop(*force).await,
            Action::Resize { memory_gib, .. } => {
                handle.resize(&SizeChoice::Custom(Size::new(1, memory_gib * 1024))).await
            }
            Action::Rename { name, .. } => handle.rename(BoxName::parse(name.as_str())?).await,
            Action::HandTo { thread: to, .. } => handle.hand_to(to.map(thread)).await,
            Action::Release { force, .. } => handle.release(*force).await,
            Action::Forget { .. } => handle.forget().await,
            Action::Check { .. } => handle.check().await,
            other => Err(Error::failed(format!("{other:?} is nothing that is done to a box"))),
        }
    }
}

/// Every actor of a process.
pub(super) fn all(world: &Arc<World>, installs: &[Boxes]) -> Vec<Actor> {
    let actor = |number| Actor { world: Arc::clone(world), number, installs: installs.to_vec() };
    (0..ACTORS).map(actor).collect()
}
