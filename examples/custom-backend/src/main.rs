//! The backend in use: a box from it runs a command.
//!
//! `cargo run -- /tmp/boxes 'echo hello; pwd'`

use std::{env::args, sync::Arc};

use bbbox::{
    Error, Result,
    boxes::{Acquire, Boxes},
    run::JobSpec,
};
use custom_backend::Folders;

#[tokio::main]
async fn main() -> Result<()> {
    let mut words = args().skip(1);
    let (Some(dir), Some(script)) = (words.next(), words.next()) else {
        return Err(Error::invalid("this needs a folder and a script").fix("say both"));
    };
    let boxes = Boxes::builder().backend(Arc::new(Folders::open(dir)?)).open()?;
    let machine = boxes.acquire(Acquire::kind(custom_backend::kind())).await?;
    let result = machine.run(JobSpec::script(script)).await;
    machine.release(false).await?;
    if let Some(ended) = result?.ended() {
        print!("{}", String::from_utf8_lossy(&ended.stdout.head));
        println!("{}", ended.exit);
    }
    Ok(())
}
