//! `bbbox status`: one box as it is now.

use bbbox::{boxes::Status as Now, guest::Power, record::BoxState};
use clap::Args;
use jiff::Timestamp;

use crate::{cli::Common, fault::Fault, folder, printer::Printer, progress::Progress, words};

/// Show a box as its provider says it is now, what is under way on it and what is wrong
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  bbbox status dev")]
pub(crate) struct Status {
    /// The box, by name or ID
    #[arg(value_name = "BOX")]
    name: String,
}

impl Status {
    pub(crate) fn run(self, common: &Common, printer: Printer) -> Result<u8, Fault> {
        folder::block_on(async {
            let handle = folder::reading(common)?.get(&self.name)?;
            let progress = Progress::new(printer, "asking the provider");
            let mut now = progress.during(handle.status()).await?;
            if is_missing(&now) && now.record.state != BoxState::Gone {
                progress.during(folder::look_again(common, &self.name)).await;
                now.record = handle.record()?;
            }
            printer.answer(&now, || told(&now))?;
            Ok(0)
        })
    }
}

/// Whether the provider says that the box's guest is not there, and nothing is under way that would explain it.
fn is_missing(now: &Now) -> bool {
    let asked = now.record.guest.is_some() && now.power_trouble.is_none();
    asked && now.power.is_none() && now.operations.is_empty()
}

fn power(power: Power) -> String {
    match power {
        Power::Paused => format!("{power}: it answers nothing until its provider is told to let it go on"),
        power => power.to_string(),
    }
}

fn told(now: &Now) -> String {
    let record = &now.record;
    let mut rows: Vec<(&str, String)> = vec![
        ("box", format!("{} ({})", record.name, record.id)),
        ("state", record.state.to_string()),
        ("kind", record.kind.to_string()),
        ("size", record.size.to_string()),
    ];
    let mut add = |name, value: Option<String>| rows.extend(value.map(|value| (name, value)));
    add("becomes", record.resize_to.map(|size| size.to_string()));
    add("backend", record.backend.as_ref().map(ToString::to_string));
    add("host", record.host.clone());
    for why in &record.passed_over {
        add("passed over", Some(why.clone()));
    }
    add("power", now.power.map(power));
    add("not known", now.power_trouble.clone());
    if is_missing(now) {
        let name = &record.name;
        add(
            "power",
            Some(format!(
                "gone: its guest was deleted outside bb-box; give up its record, too: `bbbox release {name}`"
            )),
        );
    }
    add("thread", record.thread.as_ref().map(ToString::to_string));
    let made = format!("{} ({:.0})", words::ago(record.made, Timestamp::now()), record.made);
    add("made", Some(made));
    add("trouble", record.trouble.clone());
    add("silent", record.unanswered.as_ref().map(|u| words::silent(u, Timestamp::now())));
    for operation in &now.operations {
        let why = operation.error.as_ref().map(|error| format!(": {}", error.chain())).unwrap_or_default();
        add("under way", Some(format!("{} {} ({:?}){why}", operation.kind, operation.id, operation.state)));
    }
    if let Some(guest) = &record.guest {
        for (name, value) in &guest.facts {
            add(name, Some(value.clone()));
        }
    }
    for timing in &record.timings {
        let took = words::took(std::time::Duration::from_millis(timing.ms));
        add("took", Some(format!("{took} to {}", timing.step)));
    }
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("{name:<width$}  {}\n", crate::printer::line(value))).collect()
}
