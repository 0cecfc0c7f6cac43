//! Cancelling: before, during and after what can be taken back. The crash matrix cancels at every point.

use super::{toy::*, *};
use crate::error::{Effect, ErrorKind};

/// A journal with an operation whose `wait` step waits until it is cancelled or told to go on.
fn waiting(undo: bool) -> (Arc<Journal>, Arc<Life>, CancellationToken, CancellationToken) {
    let (started, go) = (CancellationToken::new(), CancellationToken::new());
    let (tell, gone) = (started.clone(), go.clone());
    let (journal, life) = journal(|b| {
        b.operation("work", 1, move |cx: Context, (): ()| {
            let (started, go) = (tell.clone(), gone.clone());
            async move {
                let mut step = cx.step("wait");
                if undo {
                    step = step.undo("nothing", ());
                }
                step.run(async |a: Attempt| {
                    started.cancel();
                    let cancel = a.cancel_token();
                    tokio::select! {
                        biased;
                        () = cancel.cancelled() => Err(Error::cancelled("as asked")),
                        () = go.cancelled() => Ok(()),
                    }
                })
                .await?;
                cx.write("last", |_| Ok(())).await
            }
        })
        .undo("nothing", |_, (): ()| async { Ok(()) })
    });
    (journal, life, started, go)
}

#[test]
fn a_long_step_sees_the_token_and_the_operation_ends_cancelled() {
    let (journal, life, started, _) = waiting(true);
    life.live(async {
        let id = start(&journal, begin("work", &[], json!(null)));
        started.cancelled().await;
        assert!(journal.cancel(&id).unwrap());
        assert_eq!(journal.wait(&id).await.unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(state_of(&journal, &id), State::Cancelled);
        assert!(!journal.cancel(&id).unwrap());
    })
    .unwrap();
}

#[test]
fn past_an_effect_without_undo_it_is_too_late() {
    let (journal, life, started, go) = waiting(false);
    life.live(async {
        let id = start(&journal, begin("work", &[], json!(null)));
        started.cancelled().await;
        assert!(!journal.cancel(&id).unwrap());
        go.cancel();
        journal.wait(&id).await.unwrap();
        assert_eq!(state_of(&journal, &id), State::Done);
    })
    .unwrap();
}

#[test]
fn a_wait_between_tries_is_cut_short() {
    let (journal, life) = journal(|b| {
        b.operation("work", 1, |cx: Context, (): ()| async move {
            cx.step("try").run(async |_| Err::<(), _>(Error::unavailable("nothing was done"))).await
        })
    });
    life.live(async {
        let mut events = journal.subscribe();
        let id = start(&journal, begin("work", &[], json!(null)));
        while !matches!(events.recv().await.unwrap().what, What::StepEnded { .. }) {}
        // The step has no undo, but it did nothing yet.
        assert!(journal.cancel(&id).unwrap());
        assert_eq!(journal.wait(&id).await.unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(journal.show(&id).unwrap().unwrap().steps[0].tries, 1);
    })
    .unwrap();
}

#[test]
fn a_queued_operation_ends_without_having_run() {
    let (journal, life, started, go) = waiting(true);
    life.live(async {
        let box_id = World::new().box_id();
        let first = start(&journal, begin("work", std::slice::from_ref(&box_id), json!(null)));
        let second = start(&journal, begin("work", std::slice::from_ref(&box_id), json!(null)));
        started.cancelled().await;
        assert!(journal.cancel(&second).unwrap());
        assert_eq!(journal.wait(&second).await.unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(state_of(&journal, &first), State::Running);
        assert!(journal.show(&second).unwrap().unwrap().steps.is_empty());
        go.cancel();
        journal.wait(&first).await.unwrap();
    })
    .unwrap();
}

#[test]
fn an_end_says_whether_the_operation_ever_got_its_turn() {
    let ends = Seen::default();
    let (told, refuse) = (ends.clone(), Arc::new(AtomicUsize::new(0)));
    let refuses = refuse.clone();
    let (tell, go) = (CancellationToken::new(), CancellationToken::new());
    let (told_started, goes) = (tell.clone(), go.clone());
    let (journal, life) = journal(|b| {
        b.operation("work", 1, move |cx: Context, fails: bool| {
            let (tell, go) = (told_started.clone(), goes.clone());
            async move {
                let effect = if fails { Effect::Unknown } else { Effect::None };
                cx.step("wait")
                    .run(async |_| {
                        tell.cancel();
                        go.cancelled().await;
                        Err::<(), _>(Error::failed("no").effect(effect))
                    })
                    .await
            }
        })
        .on_end(move |_, end| {
            if !end.ran && refuses.load(Ordering::Relaxed) > 0 {
                return Err(Error::failed("not now"));
            }
            note(&told, format!("{} ran {}", end.state.as_str(), end.ran));
            Ok(())
        })
    });
    life.live(async {
        let box_id = World::new().box_id();
        let work = |fails: bool| start(&journal, begin("work", std::slice::from_ref(&box_id), json!(fails)));
        let (first, second, third, fourth) = (work(false), work(true), work(true), work(true));
        tell.cancelled().await;
        // One whose end cannot be recorded stands still in the queue, and goes on there, not beside the first.
        refuse.store(1, Ordering::Relaxed);
        journal.cancel(&fourth).unwrap();
        journal.wait(&fourth).await.unwrap_err();
        assert_eq!(state_of(&journal, &fourth), State::Suspended);
        refuse.store(0, Ordering::Relaxed);
        journal.resume().unwrap();
        assert_eq!(journal.wait(&fourth).await.unwrap_err().kind(), ErrorKind::Cancelled);
        go.cancel();
        for id in [&first, &second, &third] {
            journal.wait(id).await.unwrap_err();
        }
    })
    .unwrap();
    // The second left the box unknown, so the third was refused.
    assert_eq!(
        noted(&ends),
        ["cancelled ran false", "failed ran true", "unknown ran true", "failed ran false"]
    );
}

#[test]
fn what_cannot_be_ended_is_given_up_at_the_second_cancel_and_who_waits_behind_it_is_told() {
    let undone = Seen::default();
    let undid = undone.clone();
    let (journal, life) = journal(|b| {
        b.operation("make", 1, |cx: Context, fails: bool| async move {
            let made = cx.step("make").undo("unmake", ());
            made.run(async |_| if fails { Err(Error::failed("no")) } else { Ok(()) }).await
        })
        .undo("unmake", move |_, (): ()| {
            note(&undid, "unmade");
            async { Ok(()) }
        })
        .on_end(|_, end| {
            if end.args == json!(true) { Err(Error::failed("its arguments do not parse")) } else { Ok(()) }
        })
    });
    life.live(async {
        let box_id = World::new().box_id();
        let make = |fails: bool| start(&journal, begin("make", std::slice::from_ref(&box_id), json!(fails)));
        let (first, second, third) = (make(true), make(false), make(false));
        let waits = [&second, &third].map(|id| {
            let (journal, id) = (journal.clone(), id.clone());
            tokio::spawn(async move { journal.wait(&id).await })
        });
        for (wait, id) in waits.into_iter().zip([&second, &third]) {
            let error = wait.await.unwrap().unwrap_err();
            assert_eq!((error.kind(), error.effect_of()), (ErrorKind::Busy, Effect::Unknown));
            let words =
                format!("make {id} is queued behind make {first}, which stands still: make {first} stands");
            assert!(error.chain().starts_with(&words), "{}", error.chain());
            assert!(error.chain().ends_with("its arguments do not parse"), "{}", error.chain());
            assert!(error.how_to_fix().unwrap().contains(&format!("began make {first}")), "{error:?}");
        }
        // It failed and was taken back: only its end is missing.
        assert_eq!(state_of(&journal, &first), State::Suspended);
        journal.resume().unwrap();
        journal.idle().await;
        assert_eq!(state_of(&journal, &first), State::Suspended);
        assert!(journal.cancel(&first).unwrap());
        let error = journal.wait(&first).await.unwrap_err();
        assert_eq!((error.to_string().as_str(), error.effect_of()), ("no", Effect::Unknown));
        assert_eq!(state_of(&journal, &first), State::Unknown);
        // Those behind it are not held up: they are refused, as on any box that is unknown.
        assert_eq!(journal.wait(&second).await.unwrap_err().kind(), ErrorKind::Refused);
        assert_eq!(journal.wait(&third).await.unwrap_err().kind(), ErrorKind::Refused);
    })
    .unwrap();
    assert_eq!(noted(&undone), ["unmade"]);
}

#[test]
fn what_fails_after_a_cancel_is_called_cancelled() {
    let (tell, started) = (CancellationToken::new(), CancellationToken::new());
    let began = tell.clone();
    let (journal, life) = journal(|b| {
        b.operation("work", 1, move |cx: Context, (): ()| {
            let tell = tell.clone();
            async move {
                cx.step("wait")
                    .undo("nothing", ())
                    .run(async |a: Attempt| {
                        tell.cancel();
                        a.cancel_token().cancelled().await;
                        Err::<(), _>(Error::failed("the connection was cut"))
                    })
                    .await
            }
        })
        .undo("nothing", |_, (): ()| async { Ok(()) })
    });
    drop(started);
    let error = life
        .live(async {
            let id = start(&journal, begin("work", &[], json!(null)));
            began.cancelled().await;
            assert!(journal.cancel(&id).unwrap());
            journal.wait(&id).await.unwrap_err()
        })
        .unwrap();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(error.chain(), "work was cancelled: the connection was cut");
}

#[test]
fn a_cancel_outlives_the_process_and_a_step_in_flight_is_brought_to_its_end_first() {
    let world = World::new();
    let store = Arc::new(Store::memory().unwrap());
    shape(&store);
    let provider = Provider::default();
    let box_id = world.box_id();
    // The first life dies between the provider's deed and its record, with the cancel asked for meanwhile.
    let first = Life::new(&world, Some(5));
    let died = first.live(async {
        let journal = toy(&store, first.clone(), &provider);
        let id = start(&journal, begin("acquire", std::slice::from_ref(&box_id), on(&box_id)));
        let (weak, of) = (Arc::downgrade(&journal), id.clone());
        let cancel = move |n, _: &str| {
            if n == 4
                && let Some(journal) = weak.upgrade()
            {
                assert!(journal.cancel(&of).unwrap());
            }
        };
        assert!(first.at_point.set(Box::new(cancel)).is_ok());
        journal.idle().await;
    });
    assert!(died.is_none());
    assert_eq!(first.names.lock().unwrap()[4], "provider created");
    assert_eq!(provider.guests().len(), 1);
    let second = Life::new(&world, None);
    second
        .live(async {
            let journal = toy(&store, second.clone(), &provider);
            journal.resume().unwrap();
            journal.idle().await;
            let ended = journal.recent(1, |_| true).unwrap().pop().unwrap();
            assert_eq!((ended.state, ended.cancel), (State::Cancelled, true));
            let shown = journal.show(&ended.id).unwrap().unwrap();
            assert_eq!((shown.steps[1].state.as_str(), shown.steps[1].tries), ("done", 2));
        })
        .unwrap();
    assert_eq!(broken(&store, &provider), None);
}

#[test]
fn a_cancel_in_one_branch_lets_the_step_in_flight_in_another_come_to_its_end() {
    let world = World::new();
    let store = Arc::new(Store::memory().unwrap());
    let seen = Seen::default();
    let build = |life: &Arc<Life>, hang: bool| {
        let (did, undid) = (seen.clone(), seen.clone());
        Journal::builder(store.clone(), life.clone())
            .operation("work", 1, move |cx: Context, (): ()| {
                let seen = did.clone();
                async move {
                    let (left, right) = (cx.branch("left"), cx.branch("right"));
                    let left = async {
                        left.step("a").undo("back", "a").run(async |_| Ok(())).await?;
                        left.step("b")
                            .undo("back", "b")
                            .run(async |_| {
                                note(&seen, "b");
                                Ok(())
                            })
                            .await
                    };
                    let right = right.step("c").undo("back", "c").run(async |a: Attempt| {
                        note(&seen, format!("c {}", a.tries));
                        if hang { std::future::pending().await } else { Ok(()) }
                    });
                    let (left, right) = futures::join!(left, right);
                    left.and(right)
                }
            })
            .undo("back", move |_, what: String| {
                note(&undid, format!("{what} back"));
                async { Ok(()) }
            })
            .build()
    };
    // The first life dies when `b` is about to begin, with `c` under way.
    let first = Life::new(&world, None);
    first
        .live(async {
            let journal = build(&first, true);
            let (weak, tell) = (Arc::downgrade(&journal), CancellationToken::new());
            let asked = tell.clone();
            let cancel = move |_, at: &str| {
                if at == "work left/b intend"
                    && let Some(journal) = weak.upgrade()
                {
                    let id = journal.recent(1, |_| true).unwrap()[0].id.clone();
                    assert!(journal.cancel(&id).unwrap());
                    tell.cancel();
                }
            };
            assert!(first.at_point.set(Box::new(cancel)).is_ok());
            start(&journal, begin("work", &[], json!(null)));
            asked.cancelled().await;
        })
        .unwrap();
    let second = Life::new(&world, None);
    second
        .live(async {
            let journal = build(&second, false);
            journal.resume().unwrap();
            journal.idle().await;
            assert_eq!(journal.recent(1, |_| true).unwrap()[0].state, State::Cancelled);
        })
        .unwrap();
    assert_eq!(noted(&seen), ["c 0", "c 1", "c back", "a back"]);
}

#[test]
fn an_end_whose_records_panic_stands_still_and_holds_up_no_close() {
    let (journal, life) = journal(|b| {
        b.operation("one", 1, |cx: Context, n: u32| async move { cx.write("n", |_| Ok(n)).await })
            .on_end(|_, end| if end.ran { panic!("no record") } else { Ok(()) })
    });
    life.live(async {
        let id = start(&journal, begin("one", &[], json!(1)));
        let error = journal.wait(&id).await.unwrap_err();
        assert!(error.chain().ends_with("it panicked: no record"), "{}", error.chain());
        assert_eq!(state_of(&journal, &id), State::Suspended);
        assert_eq!(journal.close(std::time::Duration::from_secs(1)).await, 0);
    })
    .unwrap();
}
