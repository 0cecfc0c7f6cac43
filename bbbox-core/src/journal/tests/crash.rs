//! The crash matrix: every operation of the toy, killed at every point, and at every point of its recovery.

use std::{collections::BTreeSet, path::Path};

use super::{toy::*, *};
use crate::store::Access;

/// One operation with the provider's faults, and how it may end.
struct Case {
    name: &'static str,
    /// What runs undisturbed before it.
    before: &'static [&'static str],
    begin: &'static [&'static str],
    faults: &'static [(&'static str, &'static [Fault])],
    /// How the operations end, with nothing cancelled and any crash.
    ends: &'static [State],
}

use Fault::{Broken, Down, Lost, Murky};

const CASES: &[Case] = &[
    Case { name: "acquire", before: &[], begin: &["acquire"], faults: &[], ends: &[State::Done] },
    Case {
        name: "acquire, replies lost",
        before: &[],
        begin: &["acquire"],
        faults: &[("create", &[Lost, Down]), ("ready", &[Down])],
        ends: &[State::Done],
    },
    Case {
        name: "acquire, never ready",
        before: &[],
        begin: &["acquire"],
        faults: &[("ready", &[Broken; 9]), ("destroy", &[Lost, Down])],
        ends: &[State::Failed],
    },
    Case {
        name: "acquire, create fails",
        before: &[],
        begin: &["acquire"],
        faults: &[("create", &[Murky; 9])],
        ends: &[State::Failed],
    },
    Case {
        name: "acquire, destroy refused",
        before: &[],
        begin: &["acquire"],
        faults: &[("ready", &[Broken; 9]), ("destroy", &[Broken; 9])],
        ends: &[State::Unknown],
    },
    Case { name: "release", before: &["acquire"], begin: &["release"], faults: &[], ends: &[State::Done] },
    Case {
        name: "release, murky",
        before: &["acquire"],
        begin: &["release"],
        faults: &[("destroy", &[Murky; 9])],
        ends: &[State::Unknown],
    },
    Case {
        name: "twins",
        before: &[],
        begin: &["twins"],
        faults: &[("finish", &[Lost])],
        ends: &[State::Done],
    },
    Case { name: "queue", before: &[], begin: &["acquire", "release"], faults: &[], ends: &[State::Done] },
];

/// A database, a provider and a clock: what outlives a process.
struct Lasting {
    database: Database,
    world: Arc<World>,
    provider: Provider,
    box_id: BoxId,
}

enum Database {
    /// Opened and closed by each life.
    File(tempfile::TempDir),
    /// The same connection for each life: what is not committed is gone all the same, and it is quicker.
    Memory(Arc<Store>),
}

/// Where files are memory, a sync costs nothing; the rules are the same.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

impl Lasting {
    fn in_file(template: &Path) -> Self {
        let folder = folder();
        std::fs::copy(template, folder.path().join("bbbox.db")).unwrap();
        Self::with(Database::File(folder))
    }

    fn in_memory() -> Self {
        let store = Store::memory().unwrap();
        shape(&store);
        Self::with(Database::Memory(Arc::new(store)))
    }

    fn with(database: Database) -> Self {
        let world = World::new();
        let box_id = world.box_id();
        Self { database, world, provider: Provider::default(), box_id }
    }

    fn store(&self, access: Access<'_>) -> Arc<Store> {
        match &self.database {
            Database::File(folder) => Arc::new(Store::open(folder.path(), access).unwrap()),
            Database::Memory(store) => store.clone(),
        }
    }

    /// A database with its shape, to copy.
    fn template(folder: &Path) -> std::path::PathBuf {
        shape(&Store::open(folder, Access::Own { command: "a test" }).unwrap());
        folder.join("bbbox.db")
    }

    /// One life: opens the store, resumes, lets `act` begin and disturb, and lives until all is quiet or it dies.
    fn live(&self, die_at: Option<usize>, act: impl FnOnce(&Arc<Journal>, &Arc<Life>)) -> (Arc<Life>, bool) {
        let life = Life::new(&self.world, die_at);
        let store = self.store(Access::Own { command: "a test" });
        let lived = life.live(async {
            let journal = toy(&store, life.clone(), &self.provider);
            journal.resume().unwrap();
            act(&journal, &life);
            journal.idle().await;
        });
        let mine = if matches!(self.database, Database::File(_)) { 1 } else { 2 };
        assert_eq!(Arc::strong_count(&store), mine, "something of a dead process lives on");
        (life, lived.is_some())
    }

    fn prepare(&self, case: &Case) {
        let (_, alive) = self.live(None, |journal, _| {
            for kind in case.before {
                start(journal, begin(kind, std::slice::from_ref(&self.box_id), on(&self.box_id)));
            }
        });
        assert!(alive);
        for (verb, faults) in case.faults {
            self.provider.plan(verb, faults);
        }
    }

    fn first(&self, case: &Case, die_at: Option<usize>) -> (Arc<Life>, bool) {
        self.live(die_at, |journal, _| self.begin_all(case, journal))
    }

    fn begin_all(&self, case: &Case, journal: &Journal) {
        for kind in case.begin {
            start(journal, begin(kind, std::slice::from_ref(&self.box_id), on(&self.box_id)));
        }
    }

    /// What the case's operations ended as, with a check of everything else.
    fn check(&self, case: &Case, what: &str) -> Vec<State> {
        let store = self.store(Access::Read);
        if let Some(broken) = broken(&store, &self.provider) {
            panic!("{}, {what}: {broken}", case.name);
        }
        let life = Life::new(&self.world, None);
        let journal = toy(&store, life, &self.provider);
        let mut ended: Vec<State> =
            journal.recent(case.begin.len(), |_| true).unwrap().iter().map(|s| s.state).collect();
        ended.reverse();
        ended
    }
}

fn killed_everywhere(case: &Case) {
    let templates = folder();
    let template = Lasting::template(templates.path());
    let calm = Lasting::in_memory();
    calm.prepare(case);
    let points = calm.first(case, None).0.points();
    assert!(calm.check(case, "undisturbed").iter().all(|state| case.ends.contains(state)), "{}", case.name);
    assert!(points >= 6, "{} has only {points} points", case.name);

    let (mut pairs, mut before) = (0, String::new());
    for k in 0..points {
        assert!(!killed_at(case, &Lasting::in_file(&template), k, usize::MAX).1, "{k}");
        // The recovery is killed at each of its points, until it has none left.
        for k2 in 0.. {
            let (left, killed) = killed_at(case, &Lasting::in_memory(), k, k2);
            // A death that leaves the same as a death at the point before has the same recoveries.
            if !killed || left == before {
                before = left;
                break;
            }
            pairs += 1;
        }
    }
    assert!(pairs >= points, "{}: the recoveries were killed {pairs} times", case.name);
}

/// Kills a case at point `k` and its recovery at point `k2`, and checks what the next recovery leaves. Says what the
/// first death left, and whether the first recovery has a point `k2`.
fn killed_at(case: &Case, lasting: &Lasting, k: usize, k2: usize) -> (String, bool) {
    lasting.prepare(case);
    let (first, alive) = lasting.first(case, Some(k));
    assert!(!alive, "{}: point {k} was not met", case.name);
    let changes = lasting.store(Access::Read).read(|c| Ok(c.total_changes())).unwrap();
    let left = format!("{changes} {:?}", lasting.provider);
    let (second, alive) = lasting.live(Some(k2), |_, _| {});
    if !alive {
        assert!(lasting.live(None, |_, _| {}).1);
    }
    let at = |life: &Life, k: usize| life.names.lock().unwrap().get(k).cloned().unwrap_or_default();
    let what = format!("killed at {k} ({}) and {k2} ({})", at(&first, k), at(&second, k2));
    let ended = lasting.check(case, &what);
    assert!(ended.iter().all(|state| case.ends.contains(state)), "{}, {what}: {ended:?}", case.name);
    (left, !alive)
}

fn cancelled_everywhere(case: &Case) {
    let mut seen = BTreeSet::new();
    for k in 0.. {
        let lasting = Lasting::in_memory();
        lasting.prepare(case);
        let (life, alive) = lasting.live(None, |journal, life| {
            lasting.begin_all(case, journal);
            let all: Vec<OperationId> =
                journal.recent(case.begin.len(), |_| true).unwrap().into_iter().map(|s| s.id).collect();
            let journal = Arc::downgrade(journal);
            let cancel = move |n, _: &str| {
                if n == k
                    && let Some(journal) = journal.upgrade()
                {
                    for id in &all {
                        let _ = journal.cancel(id).unwrap();
                    }
                }
            };
            assert!(life.at_point.set(Box::new(cancel)).is_ok());
        });
        assert!(alive);
        let at = life.names.lock().unwrap().get(k).cloned().unwrap_or_default();
        let ended = lasting.check(case, &format!("cancelled at {k} ({at})"));
        for state in ended {
            assert!(
                state == State::Cancelled || case.ends.contains(&state),
                "{} at {at}: {state:?}",
                case.name
            );
            seen.insert(state.as_str());
        }
        if k >= life.points() {
            break;
        }
    }
    assert!(seen.contains("cancelled"), "{}: {seen:?}", case.name);
}

fn case(name: &str) -> &'static Case {
    CASES.iter().find(|case| case.name == name).unwrap()
}

macro_rules! cases {
    ($($test:ident: $name:literal,)*) => {
        mod killed { $(#[test] fn $test() { super::killed_everywhere(super::case($name)); })* }
        mod cancelled { $(#[test] fn $test() { super::cancelled_everywhere(super::case($name)); })* }
        #[test]
        fn every_case_is_a_test() {
            assert_eq!([$($name),*].as_slice(), CASES.iter().map(|case| case.name).collect::<Vec<_>>());
        }
    };
}

cases! {
    acquire: "acquire",
    acquire_with_lost_replies: "acquire, replies lost",
    acquire_never_ready: "acquire, never ready",
    acquire_create_fails: "acquire, create fails",
    acquire_destroy_refused: "acquire, destroy refused",
    release: "release",
    release_murky: "release, murky",
    twins: "twins",
    queue: "queue",
}
