//! Each box's queue, and boxes whose last operation ended unknown.

use super::{toy::*, *};
use crate::error::ErrorKind;

/// A journal whose operation `hold` notes its name, waits for a go, and notes it again.
fn holds(seen: &Seen) -> (Arc<Journal>, Arc<Life>, CancellationToken) {
    let (seen, go) = (seen.clone(), CancellationToken::new());
    let gone = go.clone();
    let (journal, life) = journal(|b| {
        b.operation("hold", 1, move |cx: Context, name: String| {
            let (seen, go) = (seen.clone(), gone.clone());
            async move {
                cx.look("hold")
                    .run(async |_| {
                        note(&seen, format!("{name} in"));
                        go.cancelled().await;
                        tokio::task::yield_now().await;
                        note(&seen, format!("{name} out"));
                        Ok(())
                    })
                    .await
            }
        })
    });
    (journal, life, go)
}

#[test]
fn on_one_box_one_at_a_time_in_order_and_beside_other_boxes() {
    let seen = Seen::default();
    let (journal, life, go) = holds(&seen);
    let world = World::new();
    let (a, b) = (world.box_id(), world.box_id());
    life.live(async {
        let hold = |name: &str, boxes: &[&BoxId]| {
            let boxes: Vec<BoxId> = boxes.iter().map(|b| (*b).clone()).collect();
            start(&journal, begin("hold", &boxes, json!(name)))
        };
        let first = hold("a1", &[&a]);
        let both = hold("ab", &[&b, &a]);
        let behind = hold("b1", &[&b]);
        let free = hold("free", &[]);
        while noted(&seen).len() < 2 {
            tokio::task::yield_now().await;
        }
        let states = [&first, &both, &behind, &free].map(|id| state_of(&journal, id));
        assert_eq!(states, [State::Running, State::Queued, State::Queued, State::Running]);
        let on_a: Vec<OperationId> = journal.live(&a).unwrap().into_iter().map(|s| s.id).collect();
        assert_eq!(on_a, [first, both]);
        go.cancel();
        journal.idle().await;
        assert!(journal.live(&a).unwrap().is_empty());
    })
    .unwrap();
    let noted = noted(&seen);
    let place = |what: &str| noted.iter().position(|n| n == what).unwrap();
    assert!(place("a1 out") < place("ab in") && place("ab out") < place("b1 in"), "{noted:?}");
}

#[test]
fn many_on_one_box_from_many_threads_never_overlap() {
    let inside = Arc::new(AtomicUsize::new(0));
    let store = Arc::new(Store::memory().unwrap());
    let counted = inside.clone();
    let journal = Journal::builder(store, Arc::new(crate::env::SystemEnv))
        .operation("enter", 1, move |cx: Context, (): ()| {
            let inside = counted.clone();
            async move {
                cx.look("in")
                    .run(async |_| {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        tokio::task::yield_now().await;
                        inside.fetch_sub(1, Ordering::SeqCst);
                        Ok(())
                    })
                    .await
            }
        })
        .build();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    runtime.block_on(async {
        let box_id = World::new().box_id();
        let begun: Vec<_> = (0..64)
            .map(|_| {
                let (journal, box_id) = (journal.clone(), box_id.clone());
                tokio::spawn(async move {
                    let id = start(&journal, begin("enter", &[box_id], json!(null)));
                    journal.wait(&id).await.unwrap();
                })
            })
            .collect();
        for one in begun {
            one.await.unwrap();
        }
        journal.idle().await;
    });
    assert_eq!(inside.load(Ordering::SeqCst), 0);
    assert!(journal.recent(99, |_| true).unwrap().iter().all(|s| s.state == State::Done));
}

/// A box whose acquire ended unknown, and what may come after it.
struct Unknown {
    store: Arc<Store>,
    provider: Provider,
    journal: Arc<Journal>,
    life: Arc<Life>,
    box_id: BoxId,
}

impl Unknown {
    fn new() -> Self {
        let world = World::new();
        let (store, provider) = (Arc::new(Store::memory().unwrap()), Provider::default());
        shape(&store);
        let life = Life::new(&world, None);
        let journal = toy(&store, life.clone(), &provider);
        let box_id = world.box_id();
        provider.plan("ready", &[Fault::Broken]);
        provider.plan("destroy", &[Fault::Broken]);
        Self { store, provider, journal, life, box_id }
    }

    fn ask(&self, kind: &'static str, over_unknown: bool) -> Result<OperationId> {
        let begin =
            Begin { over_unknown, ..begin(kind, std::slice::from_ref(&self.box_id), on(&self.box_id)) };
        Ok(self.journal.begin(begin, |_, _| Ok(()))?.id().clone())
    }
}

#[test]
fn only_an_operation_over_unknown_may_run_on_a_box_that_ended_unknown() {
    let t = Unknown::new();
    t.life
        .live(async {
            let acquire = t.ask("acquire", false).unwrap();
            // Queued before it was known: it never runs, and says why.
            let queued = t.ask("twins", false).unwrap();
            t.journal.idle().await;
            assert_eq!(state_of(&t.journal, &acquire), State::Unknown);
            assert_eq!(t.journal.wait(&queued).await.unwrap_err().kind(), ErrorKind::Refused);
            assert_eq!(t.journal.live(&t.box_id).unwrap().len(), 1);
            let refused = t.ask("twins", false).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Refused);
            assert!(refused.to_string().contains(acquire.as_str()), "{refused}");

            let release = t.ask("release", true).unwrap();
            t.journal.wait(&release).await.unwrap();
            assert!(t.journal.live(&t.box_id).unwrap().is_empty());
            let again = t.ask("acquire", false).unwrap();
            t.journal.wait(&again).await.unwrap();
        })
        .unwrap();
    assert_eq!(broken(&t.store, &t.provider), None);
}

#[test]
fn a_release_that_was_queued_behind_it_takes_over() {
    let t = Unknown::new();
    t.life
        .live(async {
            t.ask("acquire", false).unwrap();
            let release = t.ask("release", true).unwrap();
            t.journal.wait(&release).await.unwrap();
        })
        .unwrap();
    assert_eq!(broken(&t.store, &t.provider), None);
    assert!(t.provider.guests().is_empty());
}

#[test]
fn a_release_that_comes_to_nothing_leaves_the_box_unknown() {
    let t = Unknown::new();
    t.life
        .live(async {
            let acquire = t.ask("acquire", false).unwrap();
            t.journal.idle().await;
            t.provider.mend();
            t.provider.plan("destroy", &[Fault::Broken]);
            let release = t.ask("release", true).unwrap();
            t.journal.wait(&release).await.unwrap_err();
            assert_eq!(state_of(&t.journal, &release), State::Failed);
            let holds: Vec<OperationId> =
                t.journal.live(&t.box_id).unwrap().into_iter().map(|s| s.id).collect();
            assert_eq!(holds, [acquire]);
            assert_eq!(t.ask("twins", false).unwrap_err().kind(), ErrorKind::Refused);
        })
        .unwrap();
}

#[test]
fn pruning_keeps_what_is_live_and_what_holds_a_box() {
    let t = Unknown::new();
    t.life
        .live(async {
            let acquire = t.ask("acquire", false).unwrap();
            t.journal.idle().await;
            let other = World::of(99).box_id();
            let done = start(&t.journal, begin("acquire", std::slice::from_ref(&other), on(&other)));
            t.journal.wait(&done).await.unwrap();
            assert_eq!(t.journal.prune(t.life.now()).unwrap(), 0, "it ended just now");
            t.life.sleep(Duration::from_secs(1)).await;
            assert_eq!(t.journal.prune(t.life.now()).unwrap(), 1);
            assert!(t.journal.show(&done).unwrap().is_none());
            assert_eq!(state_of(&t.journal, &acquire), State::Unknown);
            let left: i64 = t
                .store
                .read(|c| Ok(c.query_row("SELECT count(DISTINCT operation) FROM steps", [], |r| r.get(0))?))
                .unwrap();
            assert_eq!(left, 1, "the steps of a pruned operation stayed");
        })
        .unwrap();
}

#[test]
fn a_second_resume_drives_nothing_twice() {
    let seen = Seen::default();
    let (journal, life, go) = holds(&seen);
    life.live(async {
        let id = start(&journal, begin("hold", &[], json!("x")));
        while noted(&seen).is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!((journal.resume().unwrap(), journal.resume().unwrap()), (1, 1));
        go.cancel();
        journal.wait(&id).await.unwrap();
        journal.idle().await;
    })
    .unwrap();
    assert_eq!(noted(&seen), ["x in", "x out"]);
}
