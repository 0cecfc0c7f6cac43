//! The arguments: every verb, what all verbs take, and the help.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Parser, Subcommand};

use crate::{
    fault::{EXIT_CODES, Ended, Fault, RUN_FAILED},
    printer::Printer,
    verb,
};

/// Machines of their own for AI coding agents: containers, VMs and hosts behind one interface
#[derive(Debug, Parser)]
#[command(
    name = "bbbox",
    version,
    propagate_version = false,
    max_term_width = 110,
    after_help = "Try it: bbbox try\n\nMore about a verb: bbbox VERB --help. Exit codes: bbbox --help.",
    after_long_help = exit_codes()
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What every verb takes.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Print JSON: the answer on stdout, an error as one object on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Keep everything in this folder [default: bbbox in the user's data folder]
    #[arg(long, global = true, value_name = "DIR", env = "BBBOX_DATA", hide_env_values = true)]
    pub(crate) data: Option<PathBuf>,
}

/// What can be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Try(verb::r#try::Try),
    Kinds(verb::kinds::Kinds),
    Acquire(verb::acquire::Acquire),
    List(verb::list::List),
    Status(verb::status::Status),
    Run(verb::run::Run),
    Job(verb::job::Job),
    Copy(verb::copy::Copy),
    Stop(verb::stop::Stop),
    Start(verb::start::Start),
    Resize(verb::resize::Resize),
    Rename(verb::rename::Rename),
    Release(verb::release::Release),
    Forget(verb::forget::Forget),
    Log(verb::log::Log),
    Sweep(verb::sweep::Sweep),
    Config(verb::config::Config),
    Image(verb::image::Image),
    InstallId(verb::install_id::InstallIdArgs),
    Completions(verb::completions::Completions),
}

impl Verb {
    pub(crate) fn run(self, common: &Common, printer: Printer) -> Result<u8, Ended> {
        match self {
            Self::Try(verb) => verb.run(common, printer).map_err(Ended::from),
            Self::Kinds(verb) => verb.run(common, printer).map_err(Ended::from),
            Self::Acquire(verb) => verb.run(common, printer).map_err(Ended::from),
            Self::List(verb) => verb.run(common, printer).map_err(Ended::from),
            Self::Status(verb) => verb.run(common, printer).map_err(Ended::from),
            Self::Run(verb) => verb.run(common, printer),
            Self::Job(verb) => verb.run(common, printer),
            Self::Copy(verb) => verb.run(common, printer).map_err(Ended::from),
            Self::Stop(verb) => verb.run(common, printer).map_err(Ended::from),
            Self::Start(verb) => verb.run(common, printer).map_err(Ended::from),
            Self::Resize(verb) => verb.run(common, printer).map_err(Ended::from),
            Self::Rename(verb) => verb.run(common, printer).map_err(Ended::from),
            Self::Release(verb) => verb.run(common, printer).map_err(Ended::from),
            Self::Forget(verb) => verb.run(common, printer).map_err(Ended::from),
            Self::Log(verb) => verb.run(common, printer).map_err(Ended::from),
            Self::Sweep(verb) => verb.run(common, printer).map_err(Ended::from),
            Self::Config(verb) => verb.run(common, printer).map_err(Ended::from),
            Self::Image(verb) => verb.run(common, printer).map_err(Ended::from),
            Self::InstallId(verb) => verb.run(common, printer).map_err(Ended::from),
            Self::Completions(verb) => verb.run(printer).map_err(Ended::from),
        }
    }
}

/// Ends a call whose arguments cannot be read, or that asked for help: in JSON where that was asked for, too.
pub(crate) fn refuse(told: &clap::Error) -> ExitCode {
    if !told.use_stderr() {
        let printer = Printer::new(false);
        // What is buffered still is written with nothing more.
        let printed = told.print().map_err(Fault::stdout).and_then(|()| printer.data(&[]));
        return match printed {
            Ok(()) => ExitCode::SUCCESS,
            Err(fault) => {
                printer.fault(&fault);
                ExitCode::from(fault.exit_code())
            }
        };
    }
    let said: Vec<_> = std::env::args_os().skip(1).take_while(|word| word != "--").collect();
    if said.iter().any(|word| word == "--json") {
        let text = told.render().to_string();
        let fault = bbbox::Error::invalid(text.trim().trim_start_matches("error: ")).into();
        Printer::new(true).fault(&fault);
    } else {
        drop(told.print());
    }
    // The verb is the first word that is neither an option nor the folder.
    let folder = said.iter().position(|word| word == "--data").map(|at| at + 1);
    let verb = said
        .iter()
        .enumerate()
        .find(|(at, word)| Some(*at) != folder && !word.to_string_lossy().starts_with('-'))
        .map(|(_, word)| word);
    let run = verb.is_some_and(|verb| verb == "run");
    ExitCode::from(if run { RUN_FAILED } else { 2 })
}

/// The table of exit codes, as the help shows it.
fn exit_codes() -> String {
    let mut text = "Exit codes:".to_owned();
    for (code, words) in EXIT_CODES {
        text.push_str(&format!("\n  {code:<14} {words}"));
    }
    text.push_str("\n\nA Ctrl-C takes back what is under way; in `run` it goes to the command.\n");
    text.push_str("BBBOX_LOG=debug shows on stderr what goes on. NO_COLOR=1 keeps colours away.");
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_verb_and_every_verb_of_a_verb_shows_an_example() {
        fn without(command: &clap::Command) -> Vec<String> {
            let has_one = |verb: &clap::Command| {
                verb.get_after_help().is_some_and(|help| help.to_string().contains("Example"))
            };
            let mut wanting = Vec::new();
            for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
                if !has_one(verb) {
                    wanting.push(verb.get_name().to_owned());
                }
                wanting.extend(without(verb));
            }
            wanting
        }
        assert_eq!(without(&Cli::command()), Vec::<String>::new());
    }

    #[test]
    fn the_arguments_hold_together() {
        Cli::command().debug_assert();
    }
}
