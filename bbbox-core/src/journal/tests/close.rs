//! Closing, and a disk that is full for a while.

use super::{toy::*, *};
use crate::{error::ErrorKind, store::Access};

#[test]
fn closing_ends_the_step_that_runs_begins_no_other_and_the_next_process_goes_on() {
    let world = World::new();
    let store = Arc::new(Store::memory().unwrap());
    shape(&store);
    let (provider, box_id) = (Provider::default(), world.box_id());
    let first = Life::new(&world, None);
    let id = first
        .live(async {
            let journal = toy(&store, first.clone(), &provider);
            let id = start(&journal, begin("acquire", std::slice::from_ref(&box_id), on(&box_id)));
            let waiter = tokio::spawn({
                let (journal, id) = (journal.clone(), id.clone());
                async move { journal.wait(&id).await }
            });
            while provider.guests().is_empty() {
                tokio::task::yield_now().await;
            }
            assert_eq!(journal.close(Duration::MAX).await, 0);
            assert_eq!(waiter.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
            let refused = journal.begin(begin("acquire", &[], on(&box_id)), |_, _| Ok(()));
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unavailable);
            let shown = journal.show(&id).unwrap().unwrap();
            assert_eq!(shown.state, State::Running);
            let steps: Vec<_> = shown.steps.iter().map(|s| (s.key.as_str(), s.state.as_str())).collect();
            assert_eq!(steps, [("claim", "done"), ("create", "done")]);
            id
        })
        .unwrap();
    let second = Life::new(&world, None);
    second
        .live(async {
            let journal = toy(&store, second.clone(), &provider);
            assert_eq!(journal.resume().unwrap(), 1);
            journal.wait(&id).await.unwrap();
        })
        .unwrap();
    assert_eq!(broken(&store, &provider), None);
}

#[test]
fn a_wait_between_tries_does_not_hold_a_close_up() {
    let (journal, life) = journal(|b| {
        b.operation("work", 1, |cx: Context, (): ()| async move {
            cx.look("never")
                .attempts(u32::MAX)
                .run(async |_| Err::<(), _>(Error::unavailable("no answer")))
                .await
        })
    });
    life.live(async {
        let mut events = journal.subscribe();
        let id = start(&journal, begin("work", &[], json!(null)));
        while !matches!(events.recv().await.unwrap().what, What::StepEnded { .. }) {}
        assert_eq!(journal.close(Duration::MAX).await, 0);
        assert_eq!(state_of(&journal, &id), State::Running);
    })
    .unwrap();
}

#[test]
fn while_the_disk_is_full_an_operation_waits_and_then_goes_on() {
    let (journal, life) = journal(|b| {
        b.operation("work", 1, |cx: Context, (): ()| async move {
            let big: String =
                cx.step("big").undo("nothing", ()).run(async |_| Ok("x".repeat(200_000))).await?;
            cx.write("last", |_| Ok(big.len())).await
        })
    });
    let store = journal.inner.store.clone();
    let pages = {
        let store = store.clone();
        move |most: u32| {
            let sql = format!("PRAGMA max_page_count = {most}");
            store.read(|c| Ok(c.query_row(&sql, [], |r| r.get::<_, u32>(0))?)).unwrap()
        }
    };
    let (fill, filled) = (pages.clone(), CancellationToken::new());
    let told = filled.clone();
    let at_point = move |_, at: &str| {
        if at == "work big acted" && !told.is_cancelled() {
            fill(1);
            told.cancel();
        }
    };
    assert!(life.at_point.set(Box::new(at_point)).is_ok());
    life.live(async {
        let id = start(&journal, begin("work", &[], json!(null)));
        filled.cancelled().await;
        let from = life.now();
        while life.now().duration_since(from).as_secs() < 600 {
            tokio::task::yield_now().await;
        }
        assert_eq!(state_of(&journal, &id), State::Running);
        pages(100_000);
        assert_eq!(journal.wait(&id).await.unwrap(), json!(200_000));
        let tries = journal.show(&id).unwrap().unwrap().steps[0].tries;
        assert!(tries > 10, "{tries}");
    })
    .unwrap();
}

#[test]
fn what_does_not_end_in_time_is_cut_off_and_the_folder_is_free_for_the_next_process() {
    let (world, folder) = (World::new(), tempfile::tempdir().unwrap());
    let runs = Seen::default();
    let open = |life: &Arc<Life>, ends: bool| {
        let store = Arc::new(Store::open(folder.path(), Access::Own { command: "a test" }).unwrap());
        let (weak, runs) = (Arc::downgrade(&store), runs.clone());
        let journal = Journal::builder(store, life.clone())
            .operation("work", 1, move |cx: Context, (): ()| {
                let runs = runs.clone();
                async move {
                    cx.step("wait")
                        .run(async |a: Attempt| {
                            note(&runs, format!("run {}", a.tries));
                            if ends { Ok(()) } else { std::future::pending().await }
                        })
                        .await
                }
            })
            .build();
        (journal, weak)
    };
    let first = Life::new(&world, None);
    let id = first
        .live(async {
            let (journal, store) = open(&first, false);
            let id = start(&journal, begin("work", &[], json!(null)));
            while noted(&runs).is_empty() {
                tokio::task::yield_now().await;
            }
            let from = first.now();
            assert_eq!(journal.close(Duration::from_secs(5)).await, 1);
            assert_eq!(first.now().duration_since(from).as_secs(), 5);
            assert_eq!(state_of(&journal, &id), State::Running);
            drop(journal);
            while store.strong_count() > 0 {
                tokio::task::yield_now().await;
            }
            id
        })
        .unwrap();
    let second = Life::new(&world, None);
    second
        .live(async {
            let (journal, _) = open(&second, true);
            assert_eq!(journal.resume().unwrap(), 1);
            journal.wait(&id).await.unwrap();
        })
        .unwrap();
    assert_eq!(noted(&runs), ["run 0", "run 1"]);
}
