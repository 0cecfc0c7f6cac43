//! `bbbox acquire`: a new box.

use std::time::{Duration, Instant};

use bbbox::{
    id::{BoxName, RequestId, ThreadId},
    record::BoxRecord,
    size::SizeChoice,
};
use clap::Args;
use serde::Serialize;

use crate::{
    cli::Common,
    fault::Fault,
    folder,
    printer::Printer,
    progress::{Progress, settle},
    words,
};

/// Acquire a box: it is there, with its files, until you release it
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bbbox acquire linux\n  \
    bbbox acquire linux-docker --name dev --size large\n  \
    bbbox acquire linux --size cores=2,memory=4GiB --on local")]
pub(crate) struct Acquire {
    /// What kind of box; `bbbox kinds` lists them
    kind: String,
    /// Its name; one is made up otherwise
    #[arg(long, value_parser = |t: &str| BoxName::parse(t).map_err(words::spoken))]
    name: Option<BoxName>,
    /// A size of the kind's (small, medium, large), or cores=2,memory=4GiB,disk=20GiB
    #[arg(long, value_parser = words::size)]
    size: Option<SizeChoice>,
    /// Only on this backend; said more than once, the first with room takes it
    #[arg(long, value_name = "BACKEND")]
    on: Vec<String>,
    /// The thread that has it
    #[arg(long, value_parser = |t: &str| ThreadId::parse(t).map_err(words::spoken))]
    thread: Option<ThreadId>,
    /// Your own ID for this request: said again, it is the same box
    #[arg(long, value_name = "ID", value_parser = |t: &str| RequestId::parse(t).map_err(words::spoken))]
    request: Option<RequestId>,
}

impl Acquire {
    pub(crate) fn run(self, common: &Common, printer: Printer) -> Result<u8, Fault> {
        folder::change(common, printer, "acquire", async |boxes| {
            let (events, began) = (boxes.events(), Instant::now());
            let progress = Progress::new(printer, format!("acquiring a {} box", self.kind));
            let (operation, handle) = boxes.begin_acquire(self.request())?;
            settle(boxes, events, &operation, &progress).await?;
            let record = handle.record()?;
            let warnings = warnings(&record);
            warnings.iter().for_each(|words| printer.warn(words));
            let answer = Acquired { record: &record, warnings };
            printer.answer(&answer, || told(&record, began.elapsed()))?;
            Ok(0)
        })
    }

    fn request(&self) -> bbbox::boxes::Acquire {
        let mut ask = bbbox::boxes::Acquire::kind(&self.kind);
        if let Some(size) = &self.size {
            ask = ask.size(size.clone());
        }
        for backend in &self.on {
            ask = ask.on(backend);
        }
        if let Some(name) = &self.name {
            ask = ask.name(name.clone());
        }
        if let Some(thread) = &self.thread {
            ask = ask.thread(thread.clone());
        }
        if let Some(request) = &self.request {
            ask = ask.request(request.clone());
        }
        ask
    }
}

/// A new box, for a program.
#[derive(Serialize)]
struct Acquired<'a> {
    #[serde(flatten)]
    record: &'a BoxRecord,
    /// What is not as whoever asked may expect, in words.
    warnings: Vec<String>,
}

/// What is not as whoever asked may expect: which backends did not take the box and why, and what that means.
pub(super) fn warnings(record: &BoxRecord) -> Vec<String> {
    let mut words: Vec<_> = record.passed_over.iter().map(|why| format!("passed over {why}")).collect();
    let isolation = record.guest.as_ref().and_then(|guest| guest.facts.get("isolation"));
    if let (false, Some(backend), Some(none)) = (words.is_empty(), &record.backend, isolation)
        && none.starts_with("no ")
    {
        words.push(format!(
            "box {} is on {backend}, where nothing keeps it apart from this machine",
            record.name
        ));
    }
    words
}

/// A new box, for a person: what it is called and what to do next.
fn told(record: &BoxRecord, took: Duration) -> String {
    let on = record.backend.as_ref().map(|backend| format!(" on {backend}")).unwrap_or_default();
    let facts: String = record
        .guest
        .iter()
        .flat_map(|guest| &guest.facts)
        .map(|(name, value)| format!("  {name}: {value}\n"))
        .collect();
    format!(
        "{name} ({id}): {kind}, {size}{on}, ready in {took}\n{facts}  next: bbbox run {name} -- COMMAND",
        name = record.name,
        id = record.id,
        kind = record.kind,
        size = record.size,
        took = words::took(took),
    )
}
