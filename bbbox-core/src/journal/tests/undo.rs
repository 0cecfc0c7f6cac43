//! What is taken back, in which order, and what cannot be.

use super::*;
use crate::error::{Effect, ErrorKind};

/// Three steps with undos, the last without a way on; `undo` says what becomes of each undo.
fn three_undos(
    undo: impl Fn(&str, u32) -> Result<()> + Send + Sync + 'static,
) -> (Arc<Journal>, Arc<Life>, Summary, Error, Seen) {
    let seen = Seen::default();
    let undid = seen.clone();
    let undo = Arc::new(undo);
    let (journal, life) = journal(|b| {
        b.operation("build", 1, |cx: Context, (): ()| async move {
            for name in ["disk", "network"] {
                cx.step(name).undo("remove", name).run(async |_| Ok(())).await?;
            }
            cx.step("guest")
                .undo("remove", "guest")
                .undo("remove", "address")
                .run(async |_| Err::<(), _>(Error::failed("no guest").effect(Effect::Unknown)))
                .await
        })
        .undo("remove", move |tries, what: String| {
            note(&undid, format!("{what} {tries}"));
            let undo = undo.clone();
            async move { undo(&what, tries) }
        })
    });
    let (id, error) = life
        .live(async {
            let id = start(&journal, begin("build", &[], json!(null)));
            let error = journal.wait(&id).await.unwrap_err();
            (id, error)
        })
        .unwrap();
    let shown = journal.show(&id).unwrap().unwrap();
    (journal, life, shown, error, seen)
}

#[test]
fn undos_run_newest_first_and_the_error_stays() {
    let (.., shown, error, seen) = three_undos(|_, _| Ok(()));
    assert_eq!(noted(&seen), ["address 0", "guest 0", "network 0", "disk 0"]);
    assert_eq!((shown.state, error.to_string().as_str()), (State::Failed, "no guest"));
    assert_eq!(error.effect_of(), Effect::None, "all of it was taken back");
    assert!(shown.undos.iter().all(|undo| undo.state == "undone"));
    assert_eq!(shown.undos[0].payload, json!("disk"));
}

#[test]
fn an_undo_that_may_pass_is_tried_again_before_the_earlier_ones() {
    let (.., shown, _, seen) = three_undos(|what, tries| {
        if what == "network" && tries < 2 { Err(Error::unavailable("no answer")) } else { Ok(()) }
    });
    assert_eq!(noted(&seen), ["address 0", "guest 0", "network 0", "network 1", "network 2", "disk 0"]);
    assert_eq!(shown.state, State::Failed);
}

#[test]
fn a_stuck_undo_does_not_keep_the_earlier_ones_and_ends_unknown() {
    let (.., shown, error, seen) =
        three_undos(|what, _| if what == "network" { Err(Error::refused("it is in use")) } else { Ok(()) });
    assert_eq!(noted(&seen), ["address 0", "guest 0", "network 0", "disk 0"]);
    assert_eq!((shown.state, error.effect_of()), (State::Unknown, Effect::Unknown));
    assert_eq!(error.context(), [("not undone".to_owned(), "remove of network: it is in use".to_owned())]);
}

#[test]
fn an_undo_that_never_answers_is_stuck_after_eight_runs() {
    let (.., shown, _, seen) =
        three_undos(|what, _| if what == "disk" { Err(Error::unavailable("no answer")) } else { Ok(()) });
    assert_eq!(noted(&seen).iter().filter(|what| what.starts_with("disk")).count(), 8);
    assert_eq!(shown.state, State::Unknown);
}

#[test]
fn an_undo_that_panics_is_stuck_with_its_words() {
    let (.., shown, error, _) =
        three_undos(|what, _| if what == "disk" { panic!("bad {what}") } else { Ok(()) });
    assert_eq!(shown.state, State::Unknown);
    assert!(error.context()[0].1.contains("bad disk"), "{error:?}");
}

#[test]
fn an_undo_that_is_not_registered_is_stuck() {
    let (journal, life) = journal(|b| {
        b.operation("make", 1, |cx: Context, (): ()| async move {
            cx.step("make").undo("unheard-of", 1).run(async |_| Err::<(), _>(Error::failed("no"))).await
        })
    });
    life.live(async {
        let id = start(&journal, begin("make", &[], json!(null)));
        let error = journal.wait(&id).await.unwrap_err();
        assert!(error.context()[0].1.contains("does not know how to undo \"unheard-of\""), "{error:?}");
        assert_eq!(state_of(&journal, &id), State::Unknown);
    })
    .unwrap();
}

/// How an operation ends whose one step has no undo and fails with `errors`, one a run.
fn without_undo(errors: &'static [(ErrorKind, Effect)]) -> State {
    let (journal, life) = journal(|b| {
        b.operation("stop", 1, move |cx: Context, (): ()| async move {
            cx.step("stop")
                .run(async |a: Attempt| {
                    let (kind, effect) = errors[a.tries as usize];
                    Err::<(), _>(Error::new(kind, "it failed").effect(effect))
                })
                .await
        })
    });
    life.live(async {
        let id = start(&journal, begin("stop", &[], json!(null)));
        journal.wait(&id).await.unwrap_err();
        state_of(&journal, &id)
    })
    .unwrap()
}

#[test]
fn without_an_undo_an_operation_fails_only_when_nothing_can_have_happened() {
    use {Effect as E, ErrorKind as K};
    assert_eq!(without_undo(&[(K::Failed, E::None)]), State::Failed);
    assert_eq!(without_undo(&[(K::Failed, E::Unknown)]), State::Unknown);
    assert_eq!(without_undo(&[(K::Failed, E::Applied)]), State::Unknown);
    // The last run did nothing, but an earlier one may have.
    assert_eq!(without_undo(&[(K::Unavailable, E::Unknown), (K::Failed, E::None)]), State::Unknown);
    assert_eq!(without_undo(&[(K::Unavailable, E::None), (K::Failed, E::None)]), State::Failed);
}

#[test]
fn the_end_is_told_in_the_transaction_that_ends_it() {
    let ends = Seen::default();
    let told = ends.clone();
    let refuse = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let refuses = refuse.clone();
    let (journal, life) = journal(|b| {
        b.operation("one", 1, |cx: Context, n: u32| async move { cx.write("n", |_| Ok(n + 1)).await }).on_end(
            move |tx, end| {
                tx.execute_batch("CREATE TABLE IF NOT EXISTS ends(x)")?;
                if refuses.load(Ordering::Relaxed) {
                    return Err(Error::failed("the record is gone"));
                }
                note(&told, format!("{} {:?} {:?}", end.kind, end.state, end.result));
                Ok(())
            },
        )
    });
    life.live(async {
        let id = start(&journal, begin("one", &[], json!(4)));
        let error = journal.wait(&id).await.unwrap_err();
        assert!(error.to_string().contains("its end could not be recorded: the record is gone"), "{error}");
        assert_eq!(state_of(&journal, &id), State::Suspended);
        refuse.store(false, Ordering::Relaxed);
        journal.resume().unwrap();
        assert_eq!(journal.wait(&id).await.unwrap(), json!(5));
    })
    .unwrap();
    assert_eq!(noted(&ends), ["one Done Some(Number(5))"]);
}

#[test]
fn a_run_that_a_crash_cut_off_may_have_had_an_effect() {
    let world = World::new();
    let store = Arc::new(Store::memory().unwrap());
    // Dies when the step is begun, or before that.
    for (die_at, ends) in [(1, State::Unknown), (0, State::Failed)] {
        let build = |life: &Arc<Life>| {
            Journal::builder(store.clone(), life.clone())
                .operation("stop", 1, |cx: Context, (): ()| async move {
                    cx.step("stop").run(async |_| Err::<(), _>(Error::failed("nothing was done"))).await
                })
                .build()
        };
        let first = Life::new(&world, Some(die_at));
        let died = first.live(async {
            let journal = build(&first);
            start(&journal, begin("stop", &[], json!(null)));
            journal.idle().await;
        });
        assert!(died.is_none());
        let second = Life::new(&world, None);
        second
            .live(async {
                let journal = build(&second);
                journal.resume().unwrap();
                journal.idle().await;
                assert_eq!(journal.recent(1, |_| true).unwrap()[0].state, ends);
            })
            .unwrap();
    }
}

#[test]
fn a_failed_look_after_what_was_taken_back_had_no_effect() {
    let (journal, life) = journal(|b| {
        b.operation("make", 1, |cx: Context, (): ()| async move {
            cx.step("make").undo("unmake", ()).run(async |_| Ok(())).await?;
            let cut = || Error::failed("the connection was cut").effect(Effect::Unknown);
            cx.look("ready").run(async |_| Err::<(), _>(cut())).await
        })
        .undo("unmake", |_, (): ()| async { Ok(()) })
    });
    life.live(async {
        let id = start(&journal, begin("make", &[], json!(null)));
        let error = journal.wait(&id).await.unwrap_err();
        assert_eq!((state_of(&journal, &id), error.effect_of()), (State::Failed, Effect::None));
    })
    .unwrap();
}

#[test]
fn an_effect_that_can_be_read_back_leaves_nothing_unknown() {
    let (journal, life) = journal(|b| {
        b.operation("start", 1, |cx: Context, (): ()| async move {
            let start = cx.step("start").observable();
            start.run(async |_| Err::<(), _>(Error::failed("no").effect(Effect::Unknown))).await
        })
    });
    let box_id = World::new().box_id();
    life.live(async {
        let id = start(&journal, begin("start", std::slice::from_ref(&box_id), json!(null)));
        // Nothing took it back: whoever asked looks before trying again.
        assert_eq!(journal.wait(&id).await.unwrap_err().effect_of(), Effect::Unknown);
        assert_eq!(state_of(&journal, &id), State::Failed);
        assert!(journal.live(&box_id).unwrap().is_empty());
        assert_eq!(journal.history(&box_id).unwrap().len(), 1);
    })
    .unwrap();
}
