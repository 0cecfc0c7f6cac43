//! How quickly the command itself starts.

use std::{path::PathBuf, sync::Arc, time::Duration};

use bbbox::{
    Error, Result,
    boxes::{Acquire, Boxes},
    id::BackendId,
    local::{Local, LocalConfig},
};

use crate::{
    command::succeed,
    measure::{Figure, timed, within},
};

const ROUNDS: usize = 40;
const BOXES: usize = 100;

/// Measures the start of `bbbox --version` and of `bbbox list` with 100 boxes.
pub(crate) async fn measure(wanted: &dyn Fn(&str) -> bool, tell: &mut dyn FnMut(Figure)) -> Result<()> {
    let program = program()?;
    if wanted("cli-version") {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            times.push(timed(succeed(&program, &["--version"])).await?);
        }
        tell(within("cli-version", &times, Duration::from_millis(15)));
    }
    if wanted("cli-list-100-boxes") {
        let data = tempfile::tempdir().map_err(|e| Error::failed("could not make a folder").because(e))?;
        let folder = data.path().display().to_string();
        let boxes = fill(data.path()).await?;
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            times.push(timed(succeed(&program, &["list", "--data", &folder])).await?);
        }
        tell(within("cli-list-100-boxes", &times, Duration::from_millis(40)));
        for record in boxes.list()? {
            boxes.get(record.id.as_str())?.release(true).await?;
        }
    }
    Ok(())
}

/// The release build of the command, which stands beside this program.
fn program() -> Result<String> {
    let own = std::env::current_exe().map_err(|e| Error::failed("could not find this program").because(e))?;
    let program: PathBuf = own.with_file_name("bbbox");
    if program.exists() {
        return Ok(program.display().to_string());
    }
    Err(Error::failed(format!("{} is not built", program.display()))
        .fix("cargo build --release -p bbbox-host"))
}

async fn fill(data: &std::path::Path) -> Result<Boxes> {
    let mut config = LocalConfig::new(data.join("local"));
    config.memory = Some("1024 GiB".parse()?);
    let local = Local::open(BackendId::parse("local")?, config)?;
    let boxes = Boxes::builder().data(data).backend(Arc::new(local)).open()?;
    for _ in 0..BOXES {
        boxes.acquire(Acquire::kind("linux").size("small".parse()?)).await?;
    }
    Ok(boxes)
}
