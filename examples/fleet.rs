//! A fleet: one script on many boxes side by side, each with its own, all gone at the end.
//!
//! `cargo run --example fleet --features local -- 8 'uname -n; sleep 1'`
//!
//! What stands out is what is missing: no list of what to clean up, no limit on how many begin at once. Boxes wait for
//! nobody, and one that fails is released like the others.

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use std::{env::args, process::ExitCode};

use bbbox::{
    Error, Result,
    boxes::{Acquire, Boxes},
    local::LocalConfig,
    run::{Ended, JobSpec},
};
use futures::future::join_all;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let many = args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(4);
    let script = args().nth(2).unwrap_or_else(|| "uname -n".to_owned());
    let boxes = Boxes::builder().data("target/fleet").with::<LocalConfig>().open()?;

    let mut good = true;
    for (number, outcome) in fleet(&boxes, many, &script).await.into_iter().enumerate() {
        match outcome {
            Ok(ended) => {
                good &= ended.exit.success();
                println!(
                    "box {number}: {}: {}",
                    ended.exit,
                    String::from_utf8_lossy(&ended.stdout.head).trim_end()
                );
            }
            Err(error) => {
                good = false;
                println!("box {number}: {}", error.chain());
            }
        }
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs `script` on `many` boxes at once.
async fn fleet(boxes: &Boxes, many: usize, script: &str) -> Vec<Result<Ended>> {
    join_all((0..many).map(|_| one(boxes, script))).await
}

/// Runs `script` on a box of its own, and releases the box whatever came of it.
async fn one(boxes: &Boxes, script: &str) -> Result<Ended> {
    let machine = boxes.acquire(Acquire::kind("linux").size("small".parse()?)).await?;
    let result = machine.run(JobSpec::script(script)).await;
    machine.release(true).await?;
    result?.ended().ok_or_else(|| Error::failed("the script runs on"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[tokio::test]
    async fn each_script_has_a_box_of_its_own_and_none_is_left() {
        let boxes = Boxes::builder().data("target/fleet-test").with::<LocalConfig>().open().unwrap();
        let outcomes = fleet(&boxes, 4, "[ -e seen ] && exit 9; echo $$ >seen; uname -n; pwd").await;
        let names: BTreeSet<_> = outcomes.into_iter().map(|ended| ended.unwrap().stdout.head).collect();
        assert_eq!(names.len(), 4, "{names:?}");
        assert!(boxes.list().unwrap().is_empty());
    }
}
