//! `bbbox try`: the main job once, on what this machine has, each step with its time.

use std::{
    future::Future,
    path::Path,
    time::{Duration, Instant},
};

use bbbox::{
    Error, ErrorKind,
    boxes::{Acquire, BoxHandle, Boxes},
    env::{Env, SystemEnv},
    id::{BackendId, KindId},
    run::{Ended, JobSpec, RunResult, Session},
};
use clap::Args;
use serde::Serialize;

use crate::{
    cli::Common,
    fault::Fault,
    folder,
    printer::{Printer, line},
    progress::{Progress, settle},
    signals::Ends,
    words,
};

/// Try bb-box: acquire a box, use it, stop and start it, release it, each step with its time
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  bbbox try\n\nIt takes the first backend that answers, builds its image where \
    that is missing, and leaves nothing behind but that image."
)]
pub(crate) struct Try {
    /// Only on this backend
    #[arg(long, value_name = "BACKEND", value_parser = |t: &str| BackendId::parse(t).map_err(words::spoken))]
    on: Option<BackendId>,
}

/// How much is copied in and out: 4 MiB.
const COPIED: u64 = 4 << 20;

/// What was done, for a program.
#[derive(Debug, Default, Serialize)]
struct Report {
    backend: Option<BackendId>,
    steps: Vec<Step>,
    /// What is not as whoever tries may expect, in words.
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Step {
    step: &'static str,
    ms: u64,
    words: String,
}

/// The steps as they are taken.
struct Steps<'a> {
    printer: Printer,
    common: &'a Common,
    boxes: &'a Boxes,
    report: Report,
}

impl Try {
    pub(crate) fn run(self, common: &Common, printer: Printer) -> Result<u8, Fault> {
        folder::change(common, printer, "try", async |boxes| {
            let mut steps = Steps { printer, common, boxes, report: Report::default() };
            let able = steps.choose(self.on.as_ref()).await?;
            let began = Instant::now();
            let handle = steps.acquire(&able).await?;
            let mut ends = Ends::listen();
            // From here on whatever fails, this program's own output too, the box is given back first.
            let used = tokio::select! {
                biased;
                used = async {
                    let backend = steps.acquired(&handle, began.elapsed())?;
                    steps.use_it(&handle).await.map(|()| backend)
                } => used,
                // What was made is taken back all the same.
                () = ends.next() => Err(Error::cancelled("the try was interrupted").into()),
            };
            let released = steps.release(&handle).await;
            let backend = used.and_then(|backend| released.map(|()| backend))?;
            printer.answer(&steps.report, || format!("All of it works, on {backend}."))?;
            Ok(0)
        })
    }
}

impl Steps<'_> {
    /// Takes a step: says its words and its time once it is done.
    async fn step<T>(
        &mut self,
        name: &'static str,
        work: impl Future<Output = Result<(T, String), Fault>>,
    ) -> Result<T, Fault> {
        let began = Instant::now();
        let progress = Progress::new(self.printer, name);
        let (value, said) = progress.during(work).await?;
        self.done(name, began.elapsed(), said)?;
        Ok(value)
    }

    fn done(&mut self, name: &'static str, took: Duration, said: String) -> Result<(), Fault> {
        if !self.printer.json() {
            let text = format!("{name:<8} {:>8}  {}\n", words::took(took), line(&said));
            self.printer.data(text.as_bytes())?;
        }
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        self.report.steps.push(Step { step: name, ms, words: said });
        Ok(())
    }

    /// Says each of `words` that was not said yet.
    fn warn(&mut self, words: impl IntoIterator<Item = String>) {
        for words in words {
            if !self.report.warnings.contains(&words) {
                self.printer.warn(&words);
                self.report.warnings.push(words);
            }
        }
    }

    /// The backends that offer plain Linux and answer, in order. The first one's image is built where it is missing.
    async fn choose(&mut self, only: Option<&BackendId>) -> Result<Vec<BackendId>, Fault> {
        let began = Instant::now();
        let there = self.boxes.backends();
        if let Some(only) = only.filter(|only| there.iter().all(|backend| backend.id != **only)) {
            let names: Vec<_> = there.iter().map(|backend| backend.id.as_str()).collect();
            return Err(Error::invalid(format!("there is no backend {only}"))
                .fix(format!("use one of {}, or leave --on out", names.join(", ")))
                .into());
        }
        let kinds = self.boxes.kinds().await;
        let kind = KindId::parse("linux")?;
        let offers =
            kinds.kinds.iter().filter(|view| view.kind.name == kind.as_str()).flat_map(|v| &v.offers);
        let able: Vec<_> = offers
            .filter(|offer| offer.on && only.is_none_or(|only| *only == offer.backend))
            .map(|offer| offer.backend.clone())
            .collect();
        let (images, _) = self.boxes.images().await;
        let mut passed: Vec<String> = kinds.troubles.clone();
        for (at, backend) in able.iter().enumerate() {
            let missing = images
                .iter()
                .any(|on| on.backend == *backend && on.image.kind == kind && on.image.build.is_none());
            if missing && let Err(fault) = self.build_image(backend, &kind).await {
                passed.push(format!("{backend}: {}", fault.one_line()));
                continue;
            }
            let why: String = passed.iter().map(|why| format!("; passed over {why}")).collect();
            self.done("choose", began.elapsed(), format!("{backend}{why}"))?;
            self.warn(passed.into_iter().map(|why| format!("passed over {why}")));
            return Ok(able[at..].to_vec());
        }
        Err(Error::unavailable("no backend can make a Linux box now")
            .fix("look at `bbbox kinds`, and at what `bbbox config show` says")
            .because_of(passed.join("; "))
            .into())
    }

    async fn build_image(&mut self, backend: &BackendId, kind: &KindId) -> Result<(), Fault> {
        let began = Instant::now();
        let events = self.boxes.events();
        let operation = self.boxes.begin_image_build(backend, kind)?;
        let progress = Progress::new(self.printer, format!("building the image of {kind} on {backend}"));
        settle(self.boxes, events, &operation, &progress).await?;
        self.done("image", began.elapsed(), format!("built on {backend}"))
    }

    /// A box on the first of `able` that has room.
    async fn acquire(&mut self, able: &[BackendId]) -> Result<BoxHandle, Fault> {
        let events = self.boxes.events();
        let ask = able.iter().fold(Acquire::kind("linux"), |ask, backend| ask.on(backend.as_str()));
        let (operation, handle) = self.boxes.begin_acquire(ask)?;
        let progress = Progress::new(self.printer, "acquiring a box");
        settle(self.boxes, events, &operation, &progress).await?;
        Ok(handle)
    }

    /// Says what the box is, and gives the backend it is on.
    fn acquired(&mut self, handle: &BoxHandle, took: Duration) -> Result<BackendId, Fault> {
        let record = handle.record()?;
        let backend = record.backend.clone().ok_or_else(|| Error::failed("the new box names no backend"))?;
        self.report.backend = Some(backend.clone());
        self.warn(super::acquire::warnings(&record));
        let facts = record.guest.iter().flat_map(|guest| &guest.facts);
        let facts: String = facts.map(|(name, value)| format!(", {name} {value}")).collect();
        let said = format!("{} on {backend} with {}{facts}", record.name, record.size);
        self.done("acquire", took, said)?;
        Ok(backend)
    }

    async fn use_it(&mut self, handle: &BoxHandle) -> Result<(), Fault> {
        let session = handle.session()?;
        let script = "echo \"$(uname -sm), $(nproc) cores seen\"; echo said >&2; exit 7";
        self.step("run", async {
            let ended = run(&session, JobSpec::script(script)).await?;
            let out = ended.stdout.whole().unwrap_or_default();
            expect("the exit code", &ended.exit.shell_status(), &7)?;
            expect("stderr", &ended.stderr.whole().unwrap_or_default(), &b"said\n".to_vec())?;
            Ok(((), String::from_utf8_lossy(&out).trim().to_owned()))
        })
        .await?;
        self.copy(&session).await?;
        self.job(handle).await?;
        self.stop_and_start(handle).await
    }

    /// A file into the box and back, by way of a folder that goes with it.
    async fn copy(&mut self, session: &Session) -> Result<(), Fault> {
        let here = folder::path(self.common)?.join("try");
        let unmade = |error| Fault::file("use", &here.display().to_string(), error);
        let bytes: Vec<u8> = (0..COPIED / 8).flat_map(|_| SystemEnv.random().to_le_bytes()).collect();
        std::fs::create_dir_all(&here)
            .and_then(|()| std::fs::write(here.join("in"), &bytes))
            .map_err(unmade)?;
        let copied = self.copy_both_ways(session, &here, &bytes).await;
        std::fs::remove_dir_all(&here).map_err(unmade)?;
        copied
    }

    async fn copy_both_ways(&mut self, session: &Session, here: &Path, bytes: &[u8]) -> Result<(), Fault> {
        let size = words::bytes(COPIED);
        self.step("copy in", async {
            session.copy_in(&here.join("in"), "try-copied", &|_, _| {}).await?;
            Ok(((), size.clone()))
        })
        .await?;
        self.step("copy out", async {
            session.copy_out("try-copied", &here.join("out"), &|_, _| {}).await?;
            let back = std::fs::read(here.join("out")).unwrap_or_default();
            expect("whether the file came back the same", &(back == bytes), &true)?;
            Ok(((), format!("{size}, the same as went in")))
        })
        .await
    }

    /// A job that is found again by someone who did not start it.
    async fn job(&mut self, handle: &BoxHandle) -> Result<(), Fault> {
        let (common, id) = (self.common, handle.id().to_string());
        let session = handle.session()?;
        self.step("job", async {
            let job = session.start(&JobSpec::script("sleep 1; echo still here")).await?;
            // Nothing of whoever started it is used any more.
            let other = folder::reading(common)?.get(&id)?.session()?;
            let RunResult::Ended(ended) = other.wait(&job, Duration::from_secs(60)).await? else {
                return Err(Error::failed("the job did not end").at("job", &job).into());
            };
            expect("the job's output", &ended.stdout.whole().unwrap_or_default(), &b"still here\n".to_vec())?;
            Ok(((), format!("{job} outlived who started it")))
        })
        .await
    }

    /// Stops and starts, where the backend can.
    async fn stop_and_start(&mut self, handle: &BoxHandle) -> Result<(), Fault> {
        let session = handle.session()?;
        run(&session, JobSpec::script("echo kept > try-kept")).await?;
        let stopped = self
            .step("stop", async {
                match handle.stop(false).await {
                    Ok(()) => Ok((true, "its disk stays".to_owned())),
                    Err(error) if error.kind() == ErrorKind::Refused => Ok((false, error.to_string())),
                    Err(error) => Err(error.into()),
                }
            })
            .await?;
        if !stopped {
            return Ok(());
        }
        self.step("start", async {
            handle.start().await?;
            let ended = run(&handle.session()?, JobSpec::argv(["cat", "try-kept"])).await?;
            expect("the file", &ended.stdout.whole().unwrap_or_default(), &b"kept\n".to_vec())?;
            Ok(((), "the file that it had is there".to_owned()))
        })
        .await
    }

    async fn release(&mut self, handle: &BoxHandle) -> Result<(), Fault> {
        self.step("release", async {
            handle.release(false).await?;
            Ok(((), "nothing of it is left".to_owned()))
        })
        .await
    }
}

async fn run(session: &Session, spec: JobSpec) -> Result<Ended, Fault> {
    let result = session.run(&spec, Duration::from_secs(60)).await?;
    result.ended().ok_or_else(|| Error::failed("a short command took longer than a minute").into())
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, seen: &T, wanted: &T) -> Result<(), Fault> {
    if seen == wanted {
        Ok(())
    } else {
        Err(Error::failed(format!("{what} is {seen:?}, and should be {wanted:?}")).into())
    }
}
