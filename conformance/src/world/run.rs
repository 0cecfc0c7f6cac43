//! One seed from its beginning to its end: lives of the process, one after the other, and then quiet.

use std::{collections::BTreeSet, sync::Arc};

use bbbox::journal::What;
use bbbox::{
    boxes::Boxes,
    guest::Owner,
    id::{BackendId, BoxId, BoxName, InstallId, KindId},
    simulation::Memory,
    size::Size,
};
use tokio::task::JoinSet;

use super::{
    World,
    action::Schedule,
    actor,
    chance::number,
    cloud::{Cloud, Host, Wish},
    generate, life,
    parts::{Install, Parts},
    settle,
};

/// More lives than a schedule has deaths.
const LIVES: u32 = 60;
/// Memory of the guest that belongs to somebody else, in MiB.
const STRANGER: u64 = 2048;

/// What a seed came to.
#[derive(Debug)]
pub struct Played {
    /// The seed.
    pub seed: u64,
    /// What does not hold, in the order in which it was seen.
    pub problems: Vec<String>,
    /// Everything that happened, a line each.
    pub trace: Vec<String>,
    /// Operation, step and fault of each fault that was met.
    pub met: BTreeSet<String>,
    /// The crash points that were passed.
    pub points: BTreeSet<String>,
}

/// A seed whose run did not hold.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The run of the corpus, where it is one.
    pub corpus: Option<String>,
    /// The first thing that did not hold.
    pub problem: String,
}

/// Plays a seed.
#[must_use]
pub fn play(seed: u64) -> Played {
    run(&generate::schedule(seed))
}

/// Plays a schedule.
pub(super) fn run(schedule: &Schedule) -> Played {
    bbbox::simulation::play_alone(true);
    let played = play_out(schedule);
    bbbox::simulation::play_alone(false);
    played
}

fn play_out(schedule: &Schedule) -> Played {
    let world = begin(schedule);
    for _ in 0..LIVES {
        let runtime = life::runtime();
        let done = runtime.block_on(async {
            let done = live(&world).await;
            world.with(Parts::end_life);
            done
        });
        // Every task of the process ends here, wherever it waits.
        drop(runtime);
        if done {
            return world.with(Parts::played);
        }
    }
    world.with(|p| {
        p.problem("the process dies again and again".to_owned());
        p.played()
    })
}

impl Parts {
    fn played(&mut self) -> Played {
        Played {
            seed: self.schedule.seed,
            problems: std::mem::take(&mut self.problems),
            trace: std::mem::take(&mut self.trace),
            met: std::mem::take(&mut self.met),
            points: std::mem::take(&mut self.points),
        }
    }
}

/// The world of a schedule at its beginning.
pub(super) fn begin(schedule: &Schedule) -> Arc<World> {
    let world = World::new(parts(schedule));
    stranger(&world);
    world
}

fn parts(schedule: &Schedule) -> Parts {
    let shape = &schedule.shape;
    let host = |name: Option<String>, more: u64| Host {
        name,
        memory_mib: shape.memory_gib * 1024 + more,
        down_until: 0,
    };
    let hosts = match shape.hosts {
        1 => vec![host(None, STRANGER)],
        n => (0..n).map(|h| host(Some(format!("host{h}")), STRANGER)).collect(),
    };
    let id = |text: &str| BackendId::parse(text).unwrap_or_else(|_| unreachable!("{text} is a backend's ID"));
    let mut clouds = vec![Cloud::new(id("alpha"), hosts, shape.enforces, shape.needs_stop)];
    if shape.second {
        clouds.push(Cloud::new(id("beta"), vec![host(None, 0)], !shape.enforces, false));
    }
    let mut nth = 0;
    let mut draw = || {
        nth += 1;
        number(schedule.seed, "install", nth)
    };
    let installs = (0..shape.installs)
        .map(|_| Install {
            id: InstallId::draw(&mut draw),
            store: Memory::new().unwrap_or_else(|e| panic!("a store in memory: {}", e.chain())),
            lost: false,
            full: false,
        })
        .collect();
    Parts::new(Arc::new(schedule.clone()), clouds, installs)
}

/// A guest of somebody else, whom nobody here may touch.
fn stranger(world: &World) {
    world.with(|p| {
        let mut nth = 0;
        let seed = p.schedule.seed;
        let mut draw = || {
            nth += 1;
            number(seed, "stranger", nth)
        };
        let (Ok(name), Ok(kind)) = (BoxName::parse("stranger"), KindId::parse("linux")) else { return };
        let owner = Owner {
            install: InstallId::draw(&mut draw),
            box_id: BoxId::draw(&mut draw),
            thread: None,
            name,
            kind,
            features: BTreeSet::new(),
        };
        p.stranger = Some(owner.clone());
        let wish =
            Wish { cloud: 0, host: 0, reference: 100, owner, size: Size::new(1, STRANGER), running: true };
        if let Err(error) = p.create("stranger", &wish, true) {
            p.problem(format!("the stranger's guest: {}", error.chain()));
        }
    });
}

/// One life of the process; whether everything is done.
async fn live(world: &Arc<World>) -> bool {
    let dead = world.begin_life();
    tokio::select! {
        biased;
        () = dead.cancelled() => false,
        () = all(world) => true,
    }
}

async fn all(world: &Arc<World>) {
    let Some(installs) = open(world).await else { return };
    for boxes in &installs {
        tokio::spawn(listen(Arc::clone(world), boxes.events()));
    }
    let mut tasks = JoinSet::new();
    for actor in actor::all(world, &installs) {
        tasks.spawn(actor.go_on());
    }
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            world.with(|p| p.problem(format!("an actor ended: {error}")));
        }
    }
    if world.with(|p| p.dying) {
        // Its end is told to whoever waits above.
        std::future::pending::<()>().await;
    }
    settle::settle(world, &installs).await;
}

/// Writes what operations do into the trace.
async fn listen(world: Arc<World>, mut events: bbbox::boxes::Events) {
    while let Ok(event) = events.recv().await {
        let words = match &event.what {
            What::Began { queued } => format!("begins{}", if *queued { ", queued" } else { "" }),
            What::StepStarted { step, tries } => format!("{step}, try {tries}"),
            What::StepEnded { step, error: None, .. } => format!("{step} is done"),
            What::StepEnded { step, error: Some(error), again, .. } => {
                format!("{step}: {}{}", error.chain(), if again.is_some() { "; again" } else { "" })
            }
            What::Undoing { cause } => format!("is taken back: {}", cause.chain()),
            What::Undo { kind, step, error, .. } => {
                format!(
                    "{kind} of {step}: {}",
                    error.as_ref().map_or("undone".to_owned(), bbbox::Error::chain)
                )
            }
            What::Suspended { error } => format!("stands still: {}", error.chain()),
            What::Ended { state, .. } => format!("ends {}", state.as_str()),
            _ => continue,
        };
        world.with(|p| {
            let label = event.boxes.first().map(|id| p.fates.label(id)).unwrap_or_default();
            p.note(&label, &format!("{}: {words}", event.kind));
        });
    }
}

/// Opens every install. One whose store is full is tried again.
async fn open(world: &Arc<World>) -> Option<Vec<Boxes>> {
    let (count, upkeep) = world.with(|p| (p.installs.len(), p.schedule.shape.upkeep));
    let mut installs = Vec::new();
    for n in 0..count {
        loop {
            match life::open(world, n, upkeep) {
                Ok(boxes) => {
                    installs.push(boxes);
                    break;
                }
                Err(_) if world.with(|p| p.installs[n].full) => super::pause(1_000).await,
                Err(error) => {
                    world.with(|p| p.problem(format!("install {n} does not open: {}", error.chain())));
                    return None;
                }
            }
        }
    }
    Some(installs)
}
