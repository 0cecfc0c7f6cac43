//! Errors that may pass, and those that end a step.

use super::*;
use crate::error::{Effect, ErrorKind};

/// An operation of one step that always fails with `error`, and how often it ran.
fn failing(error: Error, attempts: Option<u32>) -> (Error, usize, i64) {
    let seen = Seen::default();
    let runs = seen.clone();
    let (journal, life) = journal(|b| {
        b.operation("try", 1, move |cx: Context, (): ()| {
            let (seen, error) = (runs.clone(), error.clone());
            async move {
                let mut look = cx.look("it");
                if let Some(attempts) = attempts {
                    look = look.attempts(attempts);
                }
                look.run(async |_| {
                    note(&seen, "run");
                    Err::<(), _>(error)
                })
                .await
            }
        })
    });
    let from = life.now();
    let error = life
        .live(async {
            let id = start(&journal, begin("try", &[], json!(null)));
            journal.wait(&id).await.unwrap_err()
        })
        .unwrap();
    (error, noted(&seen).len(), life.now().duration_since(from).as_secs())
}

#[test]
fn what_may_pass_is_tried_eight_times_with_growing_waits() {
    for kind in [ErrorKind::Unavailable, ErrorKind::Busy] {
        let (error, runs, seconds) = failing(Error::new(kind, "not now"), None);
        assert_eq!((error.kind(), runs), (kind, 8));
        // 100 ms doubled seven times, and up to a quarter more of each.
        assert!((12..=16).contains(&seconds), "{seconds} s");
    }
    assert_eq!(failing(Error::unavailable("not now"), Some(2)).1, 2);
}

#[test]
fn anything_else_ends_the_step_at_once() {
    for error in [Error::failed("no"), Error::refused("no"), Error::invalid("no"), Error::gone("no")] {
        let kind = error.kind();
        let (error, runs, _) = failing(error, None);
        assert_eq!((error.kind(), runs), (kind, 1));
    }
}

#[test]
fn a_step_that_says_cancelled_ends_the_operation_as_cancelled() {
    assert_eq!(failing(Error::cancelled("taken back"), None).0.kind(), ErrorKind::Cancelled);
}

#[test]
fn a_function_may_go_another_way_and_replays_take_it_again() {
    let seen = Seen::default();
    let runs = seen.clone();
    let (journal, life) = journal(|b| {
        b.operation("place", 1, move |cx: Context, (): ()| {
            let seen = runs.clone();
            async move {
                for offer in ["first", "second"] {
                    let branch = cx.branch(offer);
                    let made = branch.step("make").undo("unmake", offer).run(async |_| {
                        note(&seen, offer);
                        if offer == "first" {
                            Err(Error::new(ErrorKind::NoCapacity, "full"))
                        } else {
                            Ok(offer.to_owned())
                        }
                    });
                    match made.await {
                        Err(halt) if halt.error().is_some_and(|e| e.kind() == ErrorKind::NoCapacity) => {}
                        other => {
                            let made = other?;
                            cx.look("later")
                                .run(async |a: Attempt| match a.tries {
                                    0 => Err(Error::unavailable("not yet")),
                                    _ => Ok(()),
                                })
                                .await?;
                            return Ok(made);
                        }
                    }
                }
                Err(Halt::from(Error::new(ErrorKind::NoCapacity, "all are full")))
            }
        })
    });
    life.live(async {
        let id = start(&journal, begin("place", &[], json!(null)));
        assert_eq!(journal.wait(&id).await.unwrap(), json!("second"));
    })
    .unwrap();
    assert_eq!(noted(&seen), ["first", "second"]);
}

#[test]
fn a_write_with_the_result_that_fails_leaves_the_effect_to_be_undone() {
    let seen = Seen::default();
    let undid = seen.clone();
    let (journal, life) = journal(|b| {
        b.operation("make", 1, |cx: Context, (): ()| async move {
            let made = cx.step("make").undo("unmake", 1).record(|tx, _: &()| {
                tx.execute_batch("CREATE TABLE half(x)")?;
                Err(Error::refused("the name is taken"))
            });
            made.run(async |_| Ok(())).await
        })
        .undo("unmake", move |_, n: u32| {
            note(&undid, format!("unmade {n}"));
            async { Ok(()) }
        })
    });
    let error = life
        .live(async {
            let id = start(&journal, begin("make", &[], json!(null)));
            journal.wait(&id).await.unwrap_err()
        })
        .unwrap();
    assert_eq!((error.to_string().as_str(), error.effect_of()), ("the name is taken", Effect::None));
    assert_eq!(noted(&seen), ["unmade 1"]);
    let half = "SELECT count(*) FROM sqlite_master WHERE name = 'half'";
    let count: i64 = journal.inner.store.read(|c| Ok(c.query_row(half, [], |r| r.get(0))?)).unwrap();
    assert_eq!(count, 0, "a part of the failed transaction stayed");
}

#[test]
fn a_decision_is_made_on_what_the_database_holds_when_it_is_recorded() {
    let (journal, life) = journal(|b| {
        b.operation("decide", 1, |cx: Context, (): ()| async move {
            cx.write("table", |tx| {
                Ok(tx.execute_batch("CREATE TABLE room(free INTEGER); INSERT INTO room VALUES(1)")?)
            })
            .await?;
            cx.decide(
                "place",
                async |a: Attempt| {
                    if a.tries < 2 { Err(Error::unavailable("no answer")) } else { Ok(41_i64) }
                },
                |tx, seen| {
                    let free: i64 = tx.query_row("SELECT free FROM room", [], |r| r.get(0))?;
                    tx.execute("UPDATE room SET free = free - 1", [])?;
                    Ok(seen + free)
                },
            )
            .await
        })
    });
    life.live(async {
        let id = start(&journal, begin("decide", &[], json!(null)));
        assert_eq!(journal.wait(&id).await.unwrap(), json!(42));
    })
    .unwrap();
    let free: i64 =
        journal.inner.store.read(|c| Ok(c.query_row("SELECT free FROM room", [], |r| r.get(0))?)).unwrap();
    assert_eq!(free, 0);
}

#[test]
fn events_tell_each_run_of_a_step_with_its_time() {
    let (journal, life) = journal(|b| {
        b.operation("make", 1, |cx: Context, (): ()| async move {
            cx.step("make")
                .run(async |a: Attempt| {
                    a.progress("copying", Some(0.5));
                    a.env().sleep(Duration::from_secs(3)).await;
                    if a.tries == 0 {
                        Err(Error::unavailable("lost").effect(Effect::Unknown))
                    } else {
                        Ok(())
                    }
                })
                .await
        })
    });
    let mut events = journal.subscribe();
    life.live(async {
        let id = start(&journal, begin("make", &[], json!(null)));
        journal.wait(&id).await.unwrap();
    })
    .unwrap();
    let mut told = Vec::new();
    while let Ok(event) = events.try_recv() {
        told.push(match event.what {
            What::Began { queued } => format!("began {queued}"),
            What::StepStarted { step, tries } => format!("{step} {tries}"),
            What::StepEnded { step, took, error, again } => {
                format!("{step} {}s {} {}", took.as_secs(), error.is_some(), again.is_some())
            }
            What::Progress { text, fraction, .. } => format!("{text} {fraction:?}"),
            What::Ended { state, .. } => format!("ended {}", state.as_str()),
            other => format!("{other:?}"),
        });
    }
    assert_eq!(
        told,
        [
            "began false",
            "make 0",
            "copying Some(0.5)",
            "make 3s true true",
            "make 1",
            "copying Some(0.5)",
            "make 3s false false",
            "ended done"
        ]
    );
}
