//! A box in ten lines: acquire it, run a command in it, release it.
//!
//! `cargo run --example embed --features local`
//!
//! Backends come from the features that the program chooses: `bbbox::drivers()` in place of the line `.with(…)` takes
//! all that it was built with.

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use bbbox::{
    boxes::{Acquire, Boxes},
    local::LocalConfig,
    run::JobSpec,
};

#[tokio::main]
async fn main() -> bbbox::Result<()> {
    let boxes = Boxes::builder().data("target/embed").with::<LocalConfig>().open()?;
    let machine = boxes.acquire(Acquire::kind("linux")).await?;
    let result = machine.run(JobSpec::script("echo hello from $(uname -n)")).await?;
    if let Some(ended) = result.ended() {
        println!("{}: {}", ended.exit, String::from_utf8_lossy(&ended.stdout.head));
    }
    machine.release(false).await
}

#[test]
fn it_runs() {
    main().unwrap();
}
