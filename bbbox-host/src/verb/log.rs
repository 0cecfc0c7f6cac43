//! `bbbox log`: what happened to a box.

use bbbox::store::Logged;
use clap::Args;

use crate::{
    cli::Common,
    fault::Fault,
    folder,
    printer::{Printer, table},
};

/// Show what happened to a box, oldest first
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  bbbox log dev")]
pub(crate) struct Log {
    /// The box, by name or ID; one that is released, by its ID; by its ID also for a day after it is gone
    #[arg(value_name = "BOX")]
    name: String,
    /// How many of the newest events, 1 to 10000
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    last: u32,
}

impl Log {
    pub(crate) fn run(self, common: &Common, printer: Printer) -> Result<u8, Fault> {
        folder::block_on(async {
            let events = folder::reading(common)?.log(&self.name, self.last as usize)?;
            printer.answer(&events, || told(&events))?;
            Ok(0)
        })
    }
}

fn told(events: &[Logged]) -> String {
    if events.is_empty() {
        return "Nothing is logged".to_owned();
    }
    table(
        ["WHEN", "EVENT", "WHO", "WHAT"],
        events.iter().map(|logged| {
            let event = &logged.event;
            [format!("{:.0}", event.at), event.kind.clone(), event.by.clone(), event.words.clone()]
        }),
    )
}
