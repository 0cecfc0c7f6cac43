//! The crash matrix: for every operation, die at every point, restart, sweep until quiet, and check what must hold.
//!
//! A child process of this program makes a box and runs one operation on it; at the chosen crash point it ends
//! itself with `abort`, as a power cut would. This process then opens what the child left, lets it recover, and
//! holds it to the invariants ([`recover`]). A guest of another install stands beside all of it and must not be
//! touched.

mod env;
mod recover;
mod scenario;
mod wrap;

use std::{
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use bbbox::{
    Error, Result,
    boxes::{Acquire, Boxes},
};
use clap::Args;
use conformance::{Outcome, Report, Told};
use futures::{StreamExt, stream};
use tokio::process::Command;

use crate::{backends, print};
use scenario::Scenario;

/// How long a child and the recovery from its death may take.
const LIMIT: Duration = Duration::from_secs(180);
/// How many deaths are tried at a time.
const AT_A_TIME: usize = 3;

/// Dies at every crash point of every operation and checks what comes of it.
#[derive(Debug, Args)]
pub(crate) struct Crash {
    /// The backend.
    #[arg(long)]
    backend: backends::Name,
    /// One JSON object a death, then the counts.
    #[arg(long)]
    json: bool,
    /// Only operations whose name holds this.
    #[arg(long)]
    only: Option<String>,
}

/// One run of a scenario in a process that dies: this program starts it.
#[derive(Debug, Args)]
pub(crate) struct Child {
    #[arg(long)]
    backend: backends::Name,
    /// Where the provider keeps its guests.
    #[arg(long)]
    provider: PathBuf,
    /// The data folder.
    #[arg(long)]
    data: PathBuf,
    #[arg(long)]
    scenario: Scenario,
    /// The crash point to die at, from 1; none is a run to the end.
    #[arg(long)]
    at: Option<u64>,
    /// Where to write the names of the points that were passed.
    #[arg(long)]
    points: PathBuf,
}

impl Child {
    /// Runs the scenario; where it comes to its end, writes the points that it passed.
    pub(crate) async fn run(self) -> Result<()> {
        let points = self.points.clone();
        let env = Arc::new(env::CrashEnv::new(self.at));
        let backend = backends::at(self.backend, &self.provider)?;
        let armed = Arc::clone(&env);
        let given: Arc<dyn bbbox::env::Env> = Arc::<env::CrashEnv>::clone(&env);
        self.scenario.play(&backend, &self.data, given, move || armed.arm()).await?;
        std::fs::write(&points, env.passed().join("\n")).map_err(|e| unwritten(&points, e))
    }
}

fn unwritten(path: &Path, error: std::io::Error) -> Error {
    Error::failed(format!("could not write {}", path.display())).because(error)
}

impl Crash {
    pub(crate) async fn run(self) -> ExitCode {
        match self.all().await {
            Ok(report) => {
                if self.json {
                    print::counts(&report)
                } else {
                    print::table(&report)
                }
                if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
            }
            Err(error) => {
                print::problem(&format!("{error:?}"));
                ExitCode::FAILURE
            }
        }
    }

    async fn all(&self) -> Result<Report> {
        let subject = backends::subject(self.backend)?;
        subject.prepare().await?;
        let root = tempfile::tempdir().map_err(|e| Error::failed("could not make a folder").because(e))?;
        let provider = root.path().join("provider");
        let backend = backends::at(self.backend, &provider)?;
        let bystanders =
            Boxes::builder().data(root.path().join("bystander")).backend(Arc::clone(&backend)).open()?;
        let bystander = bystanders.acquire(Acquire::kind(scenario::KIND).size("small".parse()?)).await?;
        let place = Place { root: root.path().to_owned(), provider, bystander: bystanders.install_id() };
        let mut told = Vec::new();
        for scenario in Scenario::ALL {
            if self.only.as_ref().is_none_or(|only| scenario.name().contains(only.as_str())) {
                told.extend(self.deaths(&place, scenario).await);
            }
        }
        bystander.release(true).await?;
        Ok(Report::from(told))
    }

    /// Every death of one operation that is tried here.
    async fn deaths(&self, place: &Place, scenario: Scenario) -> Vec<Told> {
        let unmet = backends::at(self.backend, &place.provider)
            .map_or_else(|error| Some(error.chain()), |backend| scenario.unmet(&*backend));
        if let Some(reason) = unmet {
            let name = scenario.name().to_owned();
            return vec![self.tell(Told { name, outcome: Outcome::Skipped, reason: Some(reason), ..told() })];
        }
        let whole = self.death(place, scenario, None, "run to its end").await;
        let points = match std::fs::read_to_string(place.points(scenario)) {
            Ok(text) => text.lines().map(str::to_owned).collect::<Vec<_>>(),
            Err(_) => return vec![whole],
        };
        let chosen = self.backend.crash_points(&points);
        let deaths = stream::iter(chosen)
            .map(|(at, name)| async move { self.death(place, scenario, Some(at), &name).await });
        let mut told = vec![whole];
        told.extend(deaths.buffered(AT_A_TIME).collect::<Vec<_>>().await);
        told
    }

    /// One death and what comes of it.
    async fn death(&self, place: &Place, scenario: Scenario, at: Option<u64>, point: &str) -> Told {
        let began = Instant::now();
        let tried = tokio::time::timeout(LIMIT, self.die_and_recover(place, scenario, at)).await;
        let (outcome, reason) = match tried {
            Ok(Ok(problems)) if problems.is_empty() => (Outcome::Passed, None),
            Ok(Ok(problems)) => (Outcome::Failed, Some(problems.join("; "))),
            Ok(Err(error)) => (Outcome::Failed, Some(error.chain())),
            Err(_) => (Outcome::Failed, Some(format!("it took longer than {} s", LIMIT.as_secs()))),
        };
        let place = at.map_or_else(|| "0".to_owned(), |at| at.to_string());
        self.tell(Told {
            name: format!("{}-{place} ({point})", scenario.name()),
            outcome,
            reason,
            ms: began.elapsed().as_millis().try_into().unwrap_or(u64::MAX),
            ..told()
        })
    }

    fn tell(&self, told: Told) -> Told {
        if self.json {
            print::line(&told);
        } else {
            print::brief(&told);
        }
        told
    }

    async fn die_and_recover(
        &self,
        place: &Place,
        scenario: Scenario,
        at: Option<u64>,
    ) -> Result<Vec<String>> {
        let data = place.root.join(format!("{}-{}", scenario.name(), at.unwrap_or(0)));
        let own =
            std::env::current_exe().map_err(|e| Error::failed("could not find this program").because(e))?;
        let mut child = Command::new(own);
        child
            .args(["crash-child", "--backend", self.backend.word(), "--scenario", scenario.name()])
            .arg("--provider")
            .arg(&place.provider)
            .arg("--data")
            .arg(&data)
            .arg("--points")
            .arg(place.points(scenario));
        if let Some(at) = at {
            child.args(["--at", &at.to_string()]);
        }
        let output = child
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|e| Error::failed("could not start a child").because(e))?;
        let died = std::os::unix::process::ExitStatusExt::signal(&output.status).is_some();
        if !output.status.success() && !died {
            return Err(Error::failed("the child could not do it")
                .because_of(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        let backend = backends::at(self.backend, &place.provider)?;
        let mut problems = recover::check(scenario, &backend, &data, &place.bystander).await?;
        if at.is_none() && died {
            problems.push("it died on its way to the end".to_owned());
        }
        Ok(problems)
    }
}

/// A death that nothing came of yet.
fn told() -> Told {
    Told {
        name: String::new(),
        promise: "recovers-from-any-death".to_owned(),
        outcome: Outcome::Passed,
        reason: None,
        ms: 0,
    }
}

/// Where everything of one matrix is.
struct Place {
    root: PathBuf,
    provider: PathBuf,
    bystander: bbbox::id::InstallId,
}

impl Place {
    fn points(&self, scenario: Scenario) -> PathBuf {
        self.root.join(format!("{}.points", scenario.name()))
    }
}
