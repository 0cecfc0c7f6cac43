use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::{
    env::{Env, SystemEnv},
    error::{Error, Result},
    id::BoxId,
    store::Store,
};

async fn hello(cx: Context, name: String) -> Result<String, Halt> {
    let claim = cx.write("claim", |_| Ok(7_u32)).await?;
    let made: String = cx
        .step("create")
        .undo("destroy", claim)
        .record(|_tx, value: &String| if value.is_empty() { Err(Error::failed("empty")) } else { Ok(()) })
        .run(async |a: Attempt| {
            a.env().sleep(std::time::Duration::from_millis(1)).await;
            Ok(format!("{name}-{claim}-{}", a.tries))
        })
        .await?;
    let more: u32 = cx.decide("place", async |_a| Ok(1), |_tx, seen: u32| Ok(seen + 1)).await?;
    Ok(format!("{made}-{more}"))
}

#[tokio::test]
async fn it_runs() {
    let store = Arc::new(Store::memory().unwrap());
    let journal = Journal::builder(store, Arc::new(SystemEnv))
        .operation("hello", 1, hello)
        .undo("destroy", |_cx, _claim: u32| async { Ok(()) })
        .build();
    let boxes = vec![BoxId::draw(|| SystemEnv.random())];
    let begun = journal
        .begin(
            Begin {
                kind: "hello",
                version: 1,
                request: None,
                asked: None,
                boxes,
                by: "a test".into(),
                args: json!("box"),
                over_unknown: false,
            },
            |_, _| Ok(()),
        )
        .unwrap();
    assert_eq!(journal.wait(begun.id()).await.unwrap(), json!("box-7-0-2"));
}
