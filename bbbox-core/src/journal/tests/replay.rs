//! What a replay returns, what it refuses to run, and repeats of a request.

use super::*;
use crate::{error::ErrorKind, id::RequestId};

/// Notes each step that really runs, then waits to be told to go on.
fn three_steps(seen: &Seen) -> impl Fn(Context, u32) -> BoxFuture<'static, Result<u32, Halt>> + use<> {
    let seen = seen.clone();
    move |cx, n| {
        let seen = seen.clone();
        Box::pin(async move {
            let mut sum = n;
            for _ in 0..3 {
                sum += cx
                    .look("add")
                    .run(async |a: Attempt| {
                        note(&seen, format!("add {}", a.tries));
                        Ok(10_u32)
                    })
                    .await?;
            }
            Ok(sum)
        })
    }
}

#[test]
fn each_step_runs_once_though_the_function_runs_for_every_retry() {
    let seen = Seen::default();
    let runs = seen.clone();
    let (journal, life) = journal(|b| {
        b.operation("count", 1, move |cx: Context, (): ()| {
            let seen = runs.clone();
            async move {
                note(&seen, "top");
                cx.write("once", |_| {
                    note(&seen, "write");
                    Ok(())
                })
                .await?;
                cx.look("flaky")
                    .run(async |a: Attempt| {
                        note(&seen, format!("flaky {}", a.tries));
                        if a.tries < 2 { Err(Error::unavailable("not yet")) } else { Ok(()) }
                    })
                    .await
            }
        })
    });
    life.live(async {
        let id = start(&journal, begin("count", &[], json!(null)));
        journal.wait(&id).await.unwrap();
    })
    .unwrap();
    assert_eq!(noted(&seen), ["top", "write", "flaky 0", "top", "flaky 1", "top", "flaky 2"]);
}

#[test]
fn a_name_used_again_is_a_step_of_its_own() {
    let seen = Seen::default();
    let (journal, life) = journal(|b| b.operation("sum", 1, three_steps(&seen)));
    let id = life
        .live(async {
            let id = start(&journal, begin("sum", &[], json!(5)));
            assert_eq!(journal.wait(&id).await.unwrap(), json!(35));
            id
        })
        .unwrap();
    let keys: Vec<String> = journal.show(&id).unwrap().unwrap().steps.into_iter().map(|s| s.key).collect();
    assert_eq!(keys, ["add", "add#1", "add#2"]);
    assert_eq!(noted(&seen).len(), 3);
}

#[test]
fn the_same_request_is_the_same_operation_and_another_one_is_refused() {
    let seen = Seen::default();
    let (journal, life) = journal(|b| b.operation("sum", 1, three_steps(&seen)));
    life.live(async {
        let ask = |args: Value, asked: Option<Value>| {
            let request = Some(RequestId::parse("r/1").unwrap());
            let begin = Begin { request, asked, ..begin("sum", &[], args) };
            journal.begin(begin, |_, id| Ok(id.clone()))
        };
        let Begun::New { id, value } = ask(json!(1), None).unwrap() else { panic!("it is new") };
        assert_eq!(id, value);
        assert_eq!(ask(json!(1), None).unwrap(), Begun::Repeat { id: id.clone() });
        journal.wait(&id).await.unwrap();
        assert_eq!(ask(json!(1), None).unwrap(), Begun::Repeat { id: id.clone() });
        // What was drawn by chance may differ, when the caller says what to compare.
        assert_eq!(ask(json!(2), Some(json!(1))).unwrap(), Begun::Repeat { id: id.clone() });
        let error = ask(json!(2), None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(id.as_str()), "{error}");
    })
    .unwrap();
    assert_eq!(noted(&seen).len(), 3);
}

#[test]
fn a_begin_whose_writes_fail_began_nothing() {
    let (journal, life) = journal(|b| b.operation("sum", 1, three_steps(&Seen::default())));
    life.live(async {
        let refused = journal.begin(begin("sum", &[], json!(1)), |_, _| -> Result<()> {
            Err(Error::refused("there is no room"))
        });
        assert_eq!(refused.unwrap_err().to_string(), "there is no room");
        assert!(journal.recent(9, |_| true).unwrap().is_empty());
    })
    .unwrap();
}

#[test]
fn everyone_who_waits_gets_the_result_also_afterwards() {
    let (journal, life) = journal(|b| {
        b.operation("sum", 1, three_steps(&Seen::default())).operation(
            "fail",
            1,
            |_cx: Context, (): ()| async {
                Err::<(), _>(Halt::from(Error::failed("no").fix("do it by hand")))
            },
        )
    });
    life.live(async {
        let id = start(&journal, begin("sum", &[], json!(1)));
        let (a, b) = futures::join!(journal.wait(&id), journal.wait(&id));
        assert_eq!((a.unwrap(), b.unwrap()), (json!(31), json!(31)));
        assert_eq!(journal.wait(&id).await.unwrap(), json!(31));
        let id = start(&journal, begin("fail", &[], json!(null)));
        let (a, b) = futures::join!(journal.wait(&id), journal.wait(&id));
        for error in [a.unwrap_err(), b.unwrap_err()] {
            assert_eq!((error.to_string().as_str(), error.how_to_fix()), ("no", Some("do it by hand")));
        }
        assert_eq!(state_of(&journal, &id), State::Failed);
        let other = OperationId::draw(|| life.random());
        assert_eq!(journal.wait(&other).await.unwrap_err().kind(), ErrorKind::Gone);
    })
    .unwrap();
}

/// An operation that made a guest and then waits until `old` is asked to go on.
fn half_done(journal: &Journal, life: &Arc<Life>) -> OperationId {
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    life.live(async {
        let before = upgraded(journal, life, |b| {
            b.operation("work", 1, move |cx: Context, (): ()| {
                let stop = stopped.clone();
                async move {
                    cx.step("make").undo("unmake", "it").run(async |_| Ok("made".to_owned())).await?;
                    cx.look("then")
                        .run(async |_| {
                            stop.cancel();
                            std::future::pending::<Result<()>>().await
                        })
                        .await
                }
            })
        });
        let id = start(&before, begin("work", &[], json!(null)));
        stop.cancelled().await;
        id
    })
    .unwrap()
}

/// Resumes a half-done operation with another function, and says how it stands and what ran.
fn with_new_code<F, Fut>(version: u32, f: F) -> (Arc<Journal>, Arc<Life>, OperationId, String, Seen)
where
    F: Fn(Context, Seen) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Halt>> + Send + 'static,
{
    let seen = Seen::default();
    let (old, life) = journal(|b| b);
    let id = half_done(&old, &life);
    let (did, undid) = (seen.clone(), seen.clone());
    let new = upgraded(&old, &life, |b| {
        b.operation("work", version, move |cx, (): ()| f(cx, did.clone())).undo(
            "unmake",
            move |_, it: String| {
                note(&undid, format!("unmade {it}"));
                async { Ok(()) }
            },
        )
    });
    let words = life
        .live(async {
            assert_eq!(new.resume().unwrap(), 1);
            new.idle().await;
            new.wait(&id).await.unwrap_err().to_string()
        })
        .unwrap();
    (new, life, id, words, seen)
}

#[test]
fn a_function_that_does_not_fit_the_record_runs_nothing_and_stands_still() {
    let (journal, life, id, words, seen) = with_new_code(1, |cx, seen| async move {
        let run = cx.step("renamed").run(async |_| {
            note(&seen, "renamed");
            Ok(())
        });
        run.await
    });
    assert!(words.contains("step renamed comes before the recorded step make"), "{words}");
    assert_eq!((state_of(&journal, &id), noted(&seen).len()), (State::Suspended, 0));
    // Cancelled, it is taken back without the function.
    life.live(async {
        assert!(journal.cancel(&id).unwrap());
        assert_eq!(journal.wait(&id).await.unwrap_err().kind(), ErrorKind::Cancelled);
    })
    .unwrap();
    assert_eq!((state_of(&journal, &id), noted(&seen)), (State::Cancelled, vec!["unmade it".to_owned()]));
}

#[test]
fn a_function_that_forgot_a_step_stands_still() {
    let (.., words, seen) = with_new_code(1, |cx, _| async move {
        cx.step("make").undo("unmake", "it").run(async |_| Ok(String::new())).await.map(drop)
    });
    assert!(words.contains("the recorded step then is not asked for any more"), "{words}");
    assert!(noted(&seen).is_empty());
}

#[test]
fn a_result_of_another_type_stands_still() {
    let (.., words, _) = with_new_code(1, |cx, _| async move {
        cx.step("make").undo("unmake", "it").run(async |_| Ok(7_u32)).await.map(drop)
    });
    assert!(words.contains("the result of step make"), "{words}");
}

#[test]
fn a_version_that_is_not_registered_stands_still() {
    let (.., words, _) = with_new_code(2, |_, _| async { Ok(()) });
    assert!(words.contains("this program has no work of version 1"), "{words}");
}

#[test]
fn a_panic_stands_still_until_better_code_resumes_it() {
    let (journal, life, id, words, seen) = with_new_code(1, |cx, _| async move {
        let made: String = cx.step("make").undo("unmake", "it").run(async |_| Ok(String::new())).await?;
        panic!("it was {made}")
    });
    assert!(words.contains("it panicked: it was made"), "{words}");
    assert_eq!(state_of(&journal, &id), State::Suspended);
    let better = upgraded(&journal, &life, |b| {
        b.operation("work", 1, |cx: Context, (): ()| async move {
            let made: String = cx.step("make").undo("unmake", "it").run(async |_| Ok(String::new())).await?;
            cx.look("then").run(async |_| Ok(())).await?;
            Ok(made)
        })
    });
    life.live(async {
        better.resume().unwrap();
        assert_eq!(better.wait(&id).await.unwrap(), json!("made"));
    })
    .unwrap();
    assert!(noted(&seen).is_empty());
}

#[test]
fn arguments_that_do_not_parse_stand_still() {
    let (journal, life) = journal(|b| b.operation("sum", 1, three_steps(&Seen::default())));
    life.live(async {
        let id = start(&journal, begin("sum", &[], json!("five")));
        let error = journal.wait(&id).await.unwrap_err();
        assert!(error.to_string().contains("its arguments"), "{error}");
        assert!(error.how_to_fix().is_some_and(|fix| fix.contains("takes it back")), "{error:?}");
    })
    .unwrap();
}

#[test]
fn a_function_cannot_drop_what_must_stop_it() {
    let (journal, life) = journal(|b| {
        b.operation("stubborn", 1, |cx: Context, (): ()| async move {
            let flaky = cx.look("flaky").run(async |a: Attempt| match a.tries {
                0 => Err(Error::unavailable("not yet")),
                tries => Ok(tries),
            });
            // An author who swallows everything still does not get past a step that is to be tried again.
            let first = flaky.await.unwrap_or(99);
            let second = cx.write("after", |_| Ok(1_u32)).await.unwrap_or(99);
            Ok(first + second)
        })
    });
    life.live(async {
        let id = start(&journal, begin("stubborn", &[], json!(null)));
        assert_eq!(journal.wait(&id).await.unwrap(), json!(2));
    })
    .unwrap();
}
