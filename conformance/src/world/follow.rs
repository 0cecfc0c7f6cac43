//! The guest's side of following a job's output: what the real script does with the jobs of a simulated guest.

use bbbox::transport::Exit;
use tokio::io::{AsyncWriteExt, DuplexStream};

use super::{
    inside::Stand,
    line::{Fate, JOBS, Open},
    pause,
};

/// A job that is followed, and from where each of its streams is wanted.
pub(super) struct Following {
    job: String,
    from: [Option<usize>; 2],
}

impl Following {
    /// What a command line asks for, where it is the following of a job.
    pub(super) fn of(argv: &[String]) -> Option<Self> {
        let [shell, flag, script, name, dir, out, err] = argv else { return None };
        let job = dir.strip_prefix(JOBS)?.strip_prefix('/')?.to_owned();
        let known = shell == "/bin/sh" && flag == "-c" && name == "sh" && script.contains("bb_there out");
        known.then(|| Self { job, from: [out.parse().ok(), err.parse().ok()] })
    }

    /// Passes on what the job wrote; `None` when the connection broke.
    pub(super) async fn serve(
        self,
        open: &Open,
        fate: Fate,
        mut stdout: DuplexStream,
        mut stderr: DuplexStream,
    ) -> Option<Exit> {
        meets(fate, 0).await?;
        let whole = loop {
            let seen = open.within(|inside, now| {
                let job = inside.jobs.get(&self.job)?;
                let (out, err) = job.output(now);
                Some((job.stand(now), [out.to_vec(), err.to_vec()]))
            })?;
            match seen {
                None => return Some(Exit::Code(3)),
                Some((Stand::Runs, _)) => pause(200).await,
                Some((Stand::Lost, _)) => {
                    pause(1_500).await;
                    return Some(Exit::Code(4));
                }
                Some((Stand::Ended(_), whole)) => break whole,
            }
        };
        meets(fate, 1).await?;
        let [out, err] =
            [0, 1].map(|n| self.from[n].and_then(|from| whole[n].get(from..)).unwrap_or_default());
        let (first, second) = out.split_at(out.len() / 2);
        stdout.write_all(first).await.ok()?;
        if matches!(fate, Fate::BreaksAfter(_)) {
            return None;
        }
        meets(fate, 2).await?;
        stdout.write_all(second).await.ok()?;
        stderr.write_all(err).await.ok()?;
        open.within(|_, _| Exit::Code(0))
    }
}

/// What the connection meets at the `nth` part of it.
async fn meets(fate: Fate, nth: u64) -> Option<()> {
    match fate {
        Fate::BreaksBefore(at) if at % 3 == nth => return None,
        Fate::Stalls(at, ms) if at % 3 == nth => pause(ms).await,
        _ => {}
    }
    Some(())
}
