//! A toy provider, the operations on it, and what must hold once all is quiet.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use rusqlite::params;
use serde::Deserialize;

use super::*;
use crate::error::Effect;

/// What a call to the provider does besides its work.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// Nothing: this call is as it should be.
    None,
    /// It refuses for now and did nothing.
    Down,
    /// It did its work, and the reply is lost.
    Lost,
    /// It fails for good and did nothing.
    Broken,
    /// It fails for good and may have done its work. It did not.
    Murky,
}

#[derive(Debug, Default)]
struct Inside {
    /// Each guest's claim. The same claim twice is a guest that was made twice.
    guests: Vec<String>,
    next_task: u32,
    /// Each task's name, the claim it copies to, and whether it did.
    tasks: Vec<(String, String, bool)>,
    faults: Vec<(&'static str, VecDeque<Fault>)>,
}

/// The provider: it outlives every life of the process.
#[derive(Clone, Debug, Default)]
pub(super) struct Provider(Arc<Mutex<Inside>>);

impl Provider {
    /// Each call of `verb` meets the next fault, until there are none left.
    pub(super) fn plan(&self, verb: &'static str, faults: &[Fault]) {
        self.0.lock().unwrap().faults.push((verb, faults.iter().copied().collect()));
    }

    /// Forgets the faults that are left.
    pub(super) fn mend(&self) {
        self.0.lock().unwrap().faults.clear();
    }

    pub(super) fn guests(&self) -> Vec<String> {
        self.0.lock().unwrap().guests.clone()
    }

    fn call(&self, verb: &str, work: impl FnOnce(&mut Inside)) -> Result<()> {
        let mut inside = self.0.lock().unwrap();
        let fault = inside.faults.iter_mut().find(|(v, _)| *v == verb).and_then(|(_, left)| left.pop_front());
        let down = || Error::unavailable(format!("{verb}: no answer"));
        match fault {
            None | Some(Fault::None) => work(&mut inside),
            Some(Fault::Down) => return Err(down()),
            Some(Fault::Lost) => {
                work(&mut inside);
                return Err(down().effect(Effect::Unknown));
            }
            Some(Fault::Broken) => return Err(Error::failed(format!("{verb}: it is broken"))),
            Some(Fault::Murky) => {
                return Err(Error::failed(format!("{verb}: it is broken")).effect(Effect::Unknown));
            }
        }
        Ok(())
    }

    /// Makes a guest. Only a caller who knows that an earlier run may have made it looks for it first.
    pub(super) fn create(&self, claim: &str, tries: u32) -> Result<()> {
        self.call("create", |inside| {
            if tries == 0 || !inside.guests.iter().any(|guest| guest == claim) {
                inside.guests.push(claim.to_owned());
            }
        })
    }

    pub(super) fn destroy(&self, claim: &str) -> Result<()> {
        self.call("destroy", |inside| inside.guests.retain(|guest| guest != claim))
    }

    pub(super) fn ready(&self) -> Result<()> {
        self.call("ready", |_| {})
    }

    /// Starts copying as a task, which makes a guest once.
    pub(super) fn copy_task(&self, claim: &str) -> Result<String> {
        let mut name = String::new();
        self.call("copy", |inside| {
            inside.next_task += 1;
            name = format!("task-{}", inside.next_task);
            inside.tasks.push((name.clone(), claim.to_owned(), false));
        })?;
        Ok(name)
    }

    /// Waits for a copy task's end.
    pub(super) fn finish(&self, task: &str) -> Result<()> {
        self.call("finish", |inside| {
            let Inside { tasks, guests, .. } = inside;
            if let Some((_, claim, done)) = tasks.iter_mut().find(|(name, _, done)| name == task && !done) {
                guests.push(claim.clone());
                *done = true;
            }
        })
    }
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OneBox {
    #[serde(rename = "box")]
    box_id: BoxId,
}

pub(super) fn on(box_id: &BoxId) -> Value {
    json!({ "box": box_id })
}

/// Claims, makes, waits, publishes.
async fn acquire(cx: Context, provider: Provider, args: OneBox) -> Result<String, Halt> {
    let id = cx.id().clone();
    let claim = cx
        .write("claim", |tx| {
            tx.execute(
                "INSERT INTO claims(claim, box, operation, state) VALUES(?1, ?2, ?3, 'held')",
                params![format!("claim-{id}"), args.box_id.as_str(), id.as_str()],
            )?;
            Ok(format!("claim-{id}"))
        })
        .await?;
    cx.step("create")
        .undo("destroy", &claim)
        .record(|tx, _: &()| {
            Ok(tx.execute("UPDATE claims SET state = 'made' WHERE claim = ?1", [&claim]).map(drop)?)
        })
        .run(async |a: Attempt| {
            let made = provider.create(&claim, a.tries);
            a.env().point("provider created").await;
            made
        })
        .await?;
    cx.look("ready").run(async |_| provider.ready()).await?;
    cx.write("publish", |tx| {
        Ok(tx.execute("UPDATE claims SET state = 'running' WHERE claim = ?1", [&claim]).map(drop)?)
    })
    .await?;
    Ok(claim)
}

/// Destroys the box's guest: there is no way back.
async fn release(cx: Context, provider: Provider, args: OneBox) -> Result<(), Halt> {
    let claims: Vec<String> = cx
        .write("find", |tx| {
            let mut find = tx.prepare_cached("SELECT claim FROM claims WHERE box = ?1 ORDER BY claim")?;
            let claims = find.query_map([args.box_id.as_str()], |r| r.get(0))?;
            Ok(claims.collect::<rusqlite::Result<_>>()?)
        })
        .await?;
    cx.step("destroy")
        .run(async |a: Attempt| {
            let mut effect = Effect::None;
            for claim in &claims {
                provider.destroy(claim).map_err(|error| match error.effect_of() {
                    Effect::None => error.effect(effect),
                    _ => error,
                })?;
                effect = Effect::Applied;
                a.env().point("provider destroyed").await;
            }
            Ok(())
        })
        .await?;
    cx.write("forget", |tx| {
        Ok(tx.execute("DELETE FROM claims WHERE box = ?1", [args.box_id.as_str()]).map(drop)?)
    })
    .await
}

/// Two copies side by side, each a task of the provider's, then one write.
async fn twins(cx: Context, provider: Provider, args: OneBox) -> Result<(), Halt> {
    let one = |name: &'static str| {
        let (cx, provider, box_id) = (cx.branch(name), provider.clone(), args.box_id.clone());
        async move {
            let id = cx.id().clone();
            let claim = format!("{name}-{id}");
            cx.write("claim", |tx| {
                let sql = "INSERT INTO claims(claim, box, operation, state) VALUES(?1, ?2, ?3, 'held')";
                Ok(tx.execute(sql, params![claim, box_id.as_str(), id.as_str()]).map(drop)?)
            })
            .await?;
            cx.step("copy")
                .undo("destroy", &claim)
                .run(async |a: Attempt| {
                    let task = match a.task.clone() {
                        Some(task) => task,
                        None => {
                            let task = provider.copy_task(&claim)?;
                            a.save_task(&task).await?;
                            task
                        }
                    };
                    provider.finish(&task)
                })
                .await
        }
    };
    let (left, right) = futures::join!(one("left"), one("right"));
    left.and(right)?;
    cx.write("publish", |tx| {
        let sql = "UPDATE claims SET state = 'running' WHERE operation = ?1";
        Ok(tx.execute(sql, [cx.id().as_str()]).map(drop)?)
    })
    .await
}

/// A journal with the toy's operations.
pub(super) fn toy(store: &Arc<Store>, env: Arc<dyn Env>, provider: &Provider) -> Arc<Journal> {
    let (p1, p2, p3, p4) = (provider.clone(), provider.clone(), provider.clone(), provider.clone());
    Journal::builder(store.clone(), env)
        .operation("acquire", 1, move |cx, args| acquire(cx, p1.clone(), args))
        .operation("release", 1, move |cx, args| release(cx, p2.clone(), args))
        .operation("twins", 1, move |cx, args| twins(cx, p3.clone(), args))
        .undo("destroy", move |_, claim: String| {
            let provider = p4.clone();
            async move { provider.destroy(&claim) }
        })
        .on_end(|tx, end| {
            let sql = match end.state {
                State::Failed | State::Cancelled => "DELETE FROM claims WHERE operation = ?1",
                State::Unknown if end.kind == "release" => {
                    let sql = "UPDATE claims SET state = 'unknown' WHERE box = ?1";
                    return Ok(tx.execute(sql, [end.args["box"].as_str()]).map(drop)?);
                }
                State::Unknown => "UPDATE claims SET state = 'unknown' WHERE operation = ?1",
                _ => return Ok(()),
            };
            Ok(tx.execute(sql, [end.id.as_str()]).map(drop)?)
        })
        .build()
}

/// The toy's own table.
pub(super) fn shape(store: &Store) {
    let sql = "CREATE TABLE claims(claim TEXT PRIMARY KEY, box TEXT NOT NULL, operation TEXT NOT NULL,
        state TEXT NOT NULL) STRICT";
    store.write(|tx| Ok(tx.execute_batch(sql)?)).unwrap();
}

/// What must hold once nothing is under way: the first thing that does not.
pub(super) fn broken(store: &Store, provider: &Provider) -> Option<String> {
    let strings = |sql: &str| -> Vec<String> {
        let all =
            store.read(|c| Ok(c.prepare(sql)?.query_map([], |r| r.get(0))?.collect::<Result<_, _>>()?));
        all.unwrap()
    };
    let none = [
        ("an operation has not ended", "SELECT id || ' ' || state FROM operations WHERE ended IS NULL"),
        (
            "an ended operation holds a box",
            "SELECT id FROM operations JOIN operation_boxes ON operation = n
             WHERE holds = 1 AND state <> 'unknown'",
        ),
        (
            "an undo of a settled operation is armed",
            "SELECT id FROM operations JOIN undos ON operation = operations.n
             WHERE undos.state = 'armed' AND operations.state <> 'done'",
        ),
        (
            "a step of a settled operation is under way",
            "SELECT id || ' ' || key FROM operations JOIN steps ON operation = n
             WHERE steps.state = 'started' AND operations.state <> 'unknown'",
        ),
        ("a claim was left behind", "SELECT claim FROM claims WHERE state NOT IN ('running', 'unknown')"),
    ];
    for (what, sql) in none {
        if let Some(first) = strings(sql).first() {
            return Some(format!("{what}: {first}"));
        }
    }
    let mut guests = provider.guests();
    guests.sort();
    let before = guests.len();
    guests.dedup();
    if guests.len() != before {
        return Some(format!("a guest was made twice: {guests:?}"));
    }
    let known = strings("SELECT claim FROM claims");
    if let Some(leaked) = guests.iter().find(|guest| !known.contains(guest)) {
        return Some(format!("a guest has no record: {leaked}"));
    }
    let running = strings("SELECT claim FROM claims WHERE state = 'running'");
    if let Some(gone) = running.iter().find(|claim| !guests.contains(claim)) {
        return Some(format!("a record has no guest: {gone}"));
    }
    None
}
