//! Every check and test, in one run.
//!
//! The parts run one after another in one target folder, the quick ones first, and the first that fails ends the run
//! with its output. What a part skipped is counted as skipped and named with its reason; nothing counts as passed
//! that did not run. The last line sums up what the parts reported.

mod count;
mod parts;

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

#[cfg(test)]
pub(crate) use self::parts::files;
use self::{
    count::Report,
    parts::{Needs, Part},
};
use crate::{
    child,
    fault::{Fault, Result},
    say,
    setup::Setup,
};

/// Sets up and runs every part.
pub(crate) fn run() -> Result<()> {
    let root = root();
    let mut setup = Setup::begin();
    let mut table = Table::default();
    let fault = parts::all(&root)?.into_iter().find_map(|part| table.run(&part, &mut setup, &root).err());
    table.print();
    let failed = fault.as_ref().map(say::fault);
    let Report { passed, failed: count, skipped, .. } = table.sum();
    say::line(format!("{passed} passed, {count} failed, {skipped} skipped"));
    match failed {
        None => Ok(()),
        Some(()) => Err(Fault::new("the run stopped at the first part that failed")),
    }
}

/// The checkout.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or_else(|| unreachable!("xtask is in it")).into()
}

/// What ran, how it came out and how long it took.
#[derive(Default)]
struct Table {
    rows: Vec<(&'static str, Report, String)>,
}

impl Table {
    fn run(&mut self, part: &Part, setup: &mut Setup, root: &Path) -> Result<()> {
        let begun = Instant::now();
        let ready = match part.needs {
            Needs::Rust => Ok(()),
            Needs::Machine => setup.machine(),
            Needs::Tools => setup.tools(),
        };
        let log = root.join("target/xtask").join(part.name.replace(' ', "-"));
        let (report, fault) = match ready {
            Ok(()) => part.run(&log),
            Err(fault) => (Report::failure(), Some(fault)),
        };
        let took = child::took(begun);
        say::line(format!("{}: {} ({took})", part.name, report.outcome()));
        self.rows.push((part.name, report, took));
        fault.map_or(Ok(()), Err)
    }

    fn print(&self) {
        say::line(format!(
            "\n{:<20} {:<8} {:>7} {:>7} {:>8} {:>10}",
            "part", "outcome", "passed", "failed", "skipped", "time"
        ));
        for (name, report, took) in &self.rows {
            let Report { passed, failed, skipped, .. } = report;
            let outcome = report.outcome();
            say::line(format!("{name:<20} {outcome:<8} {passed:>7} {failed:>7} {skipped:>8} {took:>10}"));
        }
        for (name, report, _) in &self.rows {
            for note in &report.notes {
                say::line(format!("{name}: {note}"));
            }
        }
    }

    fn sum(&self) -> Report {
        self.rows.iter().fold(Report::default(), |sum, (_, report, _)| sum.add(report))
    }
}
