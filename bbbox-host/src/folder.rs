//! Where everything is kept, and how it is opened: to change it, or only to read beside whoever changes it.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use bbbox::{
    Error, ErrorKind,
    boxes::{Boxes, Builder, Caller},
    driver::Variables,
};

use crate::{cli::Common, fault::Fault, printer::Printer};

/// How long a verb waits for another bbbox to be done with the folder.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the upkeep after a verb may take.
const UPKEEP: Duration = Duration::from_secs(3);

/// How long a step that is under way gets when a verb is done.
const FAREWELL: Duration = Duration::from_secs(5);

/// The data folder: what was said, else `bbbox` in the user's data folder.
pub(crate) fn path(common: &Common) -> Result<PathBuf, Fault> {
    if let Some(said) = &common.data {
        return Ok(said.clone());
    }
    below("XDG_DATA_HOME", ".local/share").map(|base| base.join("bbbox")).ok_or_else(|| {
        Error::invalid("there is no home folder to keep boxes' records in")
            .fix("give one with --data DIR")
            .into()
    })
}

/// A folder of the user's, by the variable that names it or by its usual place in the home folder.
fn below(variable: &str, usual: &str) -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(usual)))
}

/// Where what is slow to make is kept, for every data folder of this user.
fn cache() -> Option<PathBuf> {
    Some(below("XDG_CACHE_HOME", ".cache")?.join("bbbox"))
}

fn builder() -> Builder {
    let builder =
        Boxes::builder().drivers(bbbox::drivers()).variables(Variables::of_process()).caller(Caller::Command);
    match cache() {
        Some(cache) => builder.cache(cache),
        None => builder,
    }
}

/// Opens the folder to read it. Where there is none yet, it is made, so that the install has an ID to show.
pub(crate) fn reading(common: &Common) -> Result<Boxes, Fault> {
    let path = path(common)?;
    let began = Instant::now();
    loop {
        let opened = match builder().data(&path).read_only().open() {
            Err(error) if error.kind() == ErrorKind::Gone => builder().data(&path).command("bbbox").open(),
            opened => opened,
        };
        match opened {
            // Another bbbox is just making it.
            Err(error) if error.kind() == ErrorKind::Busy && began.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(25));
            }
            opened => return Ok(opened?),
        }
    }
}

/// Opens the folder to change it, waiting a while for another bbbox that has it. `doing` is for whoever waits.
async fn owning(common: &Common, printer: Printer, doing: &str) -> Result<Boxes, Fault> {
    let path = path(common)?;
    let (began, mut told) = (Instant::now(), false);
    loop {
        let opened = builder().data(&path).command(format!("bbbox {doing}")).open();
        match opened {
            Err(error) if error.kind() == ErrorKind::Busy && began.elapsed() < PATIENCE => {
                if !told && printer.watched() && began.elapsed() > Duration::from_millis(500) {
                    printer.note(&format!("waiting: {error}"));
                    told = true;
                }
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
            opened => return Ok(opened?),
        }
    }
}

/// Opens the folder to change it, does `work`, and leaves the folder in order: a step that is under way comes to its
/// end, and what an earlier bbbox left unfinished and this one did not finish goes on with the next.
pub(crate) fn change<T>(
    common: &Common,
    printer: Printer,
    doing: &str,
    work: impl AsyncFnOnce(&Boxes) -> Result<T, Fault>,
) -> Result<T, Fault> {
    block_on(async {
        let boxes = owning(common, printer, doing).await?;
        let done = work(&boxes).await;
        if done.is_ok() {
            keep_up(&boxes, printer).await;
        }
        boxes.close(FAREWELL).await;
        done
    })
}

/// Sweeps where none has for a while: between calls nobody does. What it did is told; what it could not do the next
/// one does, and `bbbox sweep` says why.
async fn keep_up(boxes: &Boxes, printer: Printer) {
    match boxes.sweep_if_due(UPKEEP).await {
        Ok(Some(report)) => {
            report.done.iter().for_each(|words| printer.note(&format!("sweep: {words}")));
            report.troubles.iter().for_each(|words| tracing::info!(words, "sweep"));
        }
        Ok(None) => {}
        Err(error) => tracing::info!(error = error.chain(), "sweep"),
    }
}

/// Passes on what a call in a box came to. Where the box's guest is gone, its record is made to say so first, unless
/// another bbbox has the folder: that one will.
pub(crate) async fn noted<T>(common: &Common, name: &str, outcome: Result<T, Fault>) -> Result<T, Fault> {
    let is_gone = |error: &Error| error.context().iter().any(|(name, _)| name == "guest");
    if matches!(&outcome, Err(Fault::Error(error)) if error.kind() == ErrorKind::Gone && is_gone(error)) {
        look_again(common, name).await;
    }
    outcome
}

/// Has the box's record say how its guest is now, where the folder is free.
pub(crate) async fn look_again(common: &Common, name: &str) {
    let looked = async {
        let boxes = builder().data(path(common)?).command("bbbox, to look at a box").open()?;
        boxes.get(name)?.check().await?;
        boxes.close(FAREWELL).await;
        Ok::<_, Fault>(())
    };
    if let Err(fault) = looked.await {
        tracing::info!(why = fault.one_line(), "the box was not looked at again");
    }
}

/// Runs a verb's future: one thread is enough for one verb, and starts in no time.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::failed("could not start").because(error))?;
    let result = runtime.block_on(future);
    // A read of stdin that nobody waits for any more must not keep the program.
    runtime.shutdown_background();
    result
}
