//! The command `sim`: seeds of the simulated world, one of them again, or the planted faults.

use std::{
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::Args;
use conformance::world::{
    Amount, Caught, Played, Progress, Swarm, hunt, planted, play, replay, shorten, swarm,
};
use serde_json::json;

use crate::print;

/// Within how many seeds a planted fault must be caught.
const WITHIN: u64 = 2_000;

#[derive(Debug, Args)]
pub(crate) struct Simulate {
    /// Plays so many seeds, and first those that once failed.
    #[arg(long, default_value_t = 500)]
    seeds: u64,
    /// Plays new seeds for so many minutes.
    #[arg(long)]
    minutes: Option<u64>,
    /// Plays one seed and prints all that happened.
    #[arg(long)]
    seed: Option<u64>,
    /// Plays one run of the corpus and prints all that happened.
    #[arg(long)]
    corpus: Option<String>,
    /// With a seed that fails: looks for a shorter run that fails like it.
    #[arg(long, requires = "seed")]
    shorten: bool,
    /// Plants a fault, or `all` one after the other, and says which seed catches it.
    #[arg(long)]
    planted: Option<String>,
    /// The last line is JSON.
    #[arg(long)]
    json: bool,
}

impl Simulate {
    pub(crate) fn run(self) -> ExitCode {
        if let Some(name) = &self.corpus {
            return match replay(name) {
                Some(played) => self.show(played),
                None => {
                    print::problem(&format!("the corpus has no run {name:?}"));
                    ExitCode::FAILURE
                }
            };
        }
        match (&self.planted, self.seed, self.minutes) {
            (Some(which), ..) => self.hunt(which),
            (None, Some(seed), _) => self.replay(seed),
            (None, None, Some(minutes)) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                self.swarm(Amount::Time(Duration::from_secs(minutes * 60), now.as_secs() * 1000))
            }
            (None, None, None) => self.swarm(Amount::Seeds(self.seeds)),
        }
    }

    fn replay(&self, seed: u64) -> ExitCode {
        let played = if self.shorten {
            let Some((played, schedule)) = shorten(seed) else {
                print::text(&format!("seed {seed} holds"));
                return ExitCode::SUCCESS;
            };
            for line in schedule {
                print::text(&line);
            }
            played
        } else {
            play(seed)
        };
        self.show(played)
    }

    fn show(&self, played: Played) -> ExitCode {
        let Played { seed, problems, trace, .. } = played;
        for line in trace.iter().chain(&problems) {
            print::text(line);
        }
        if self.json {
            print::value(&json!({ "seed": seed, "violations": problems.len(), "events": trace.len() }));
        }
        if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn swarm(&self, amount: Amount) -> ExitCode {
        let told = AtomicU64::new(0);
        let tell = |Progress { seeds, failed, seeds_per_s }: Progress| {
            if seeds / 500 > told.load(Ordering::Relaxed) {
                told.store(seeds / 500, Ordering::Relaxed);
                print::problem(&format!("{seeds} seeds, {failed} failed, {seeds_per_s:.1} a second"));
            }
        };
        let Swarm { seeds, failures, seeds_per_s, cells_hit, cells, missed, never, beyond } =
            swarm(amount, tell);
        let told = [("cannot be met", &never), ("not met", &missed), ("not in the table", &beyond)];
        for (what, cells) in told {
            for cell in cells {
                print::text(&format!("{what}: {cell}"));
            }
        }
        for failure in &failures {
            let which = match &failure.corpus {
                Some(name) => format!("corpus {name}"),
                None => format!("seed {}", failure.seed),
            };
            print::text(&format!("{which}: {}", failure.problem));
            print::text(&format!("  cargo run --release -p conformance -- sim --{which}"));
        }
        let seeds_per_s = (seeds_per_s * 10.0).round() / 10.0;
        if self.json {
            print::value(&json!({
                "seeds": seeds, "violations": failures.len(), "seeds_per_s": seeds_per_s,
                "cells_hit": cells_hit, "cells": cells, "failures": failures, "missed": missed, "never": never, "beyond": beyond,
            }));
        } else {
            print::text(&format!(
                "{seeds} seeds, {} violations, {seeds_per_s} a second, {cells_hit} of {cells} cells met",
                failures.len()
            ));
        }
        if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn hunt(&self, which: &str) -> ExitCode {
        let wanted: Vec<_> = planted().iter().filter(|(name, ..)| which == "all" || *name == which).collect();
        if wanted.is_empty() {
            let names: Vec<_> = planted().iter().map(|(name, ..)| *name).collect();
            print::problem(&format!("no fault {which:?} can be planted; there are {}", names.join(", ")));
            return ExitCode::FAILURE;
        }
        let mut all = Vec::new();
        for (name, fault, _) in wanted {
            let caught = hunt(name, *fault, WITHIN);
            print::text(&match &caught {
                Caught { seed: Some(seed), problem, .. } => {
                    format!("{name}: caught by seed {seed}: {}", problem.as_deref().unwrap_or_default())
                }
                Caught { seed: None, .. } => format!("{name}: NOT caught within {WITHIN} seeds"),
            });
            all.push(caught);
        }
        let missed = all.iter().filter(|caught| caught.seed.is_none()).count();
        if self.json {
            print::value(&json!({ "planted": all.len(), "missed": missed, "caught": all }));
        }
        if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
