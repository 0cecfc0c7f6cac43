//! The end of a copy from a box: the thread that holds its stage unpacks into it and places it at the box's word.
//!
//! It removes the stage when no word comes: also when whoever asked is gone.

use tokio::sync::oneshot::{self, Receiver, Sender};

use super::{
    Copied,
    guard::Fault,
    list::Sum,
    pipe::Arrived,
    unpack::{Stage, Target},
    work::on_a_thread,
};
use crate::error::Result;

/// What was unpacked: the list by which the box checks it, and the sum of the one file.
type Unpacked = Result<(Vec<u8>, Option<Sum>), Fault>;

/// One copy's thread.
pub(super) struct Landing {
    target: Target,
    nonce: String,
    is_dir: bool,
    tell: Sender<Unpacked>,
    wait: Receiver<()>,
    finish: Sender<Result<Copied>>,
}

/// What is heard of it, and what it is told.
pub(super) struct Landed {
    pub(super) told: Receiver<Unpacked>,
    pub(super) verdict: Sender<()>,
    pub(super) done: Receiver<Result<Copied>>,
}

impl Landing {
    /// Begins to unpack what comes. `nonce` is a name that nobody guesses.
    pub(super) fn begin(target: Target, nonce: String, is_dir: bool, from: Arrived) -> Landed {
        let ((tell, told), (verdict, wait), (finish, done)) =
            (oneshot::channel(), oneshot::channel(), oneshot::channel());
        let landing = Self { target, nonce, is_dir, tell, wait, finish };
        let landed = Landed { told, verdict, done };
        #[cfg(feature = "simulation")]
        if crate::simulation::alone() {
            tokio::spawn(landing.run_alone(from));
            return landed;
        }
        on_a_thread(move || landing.run(from));
        landed
    }

    fn run(self, from: Arrived) {
        let Some((stage, wait, finish)) = self.unpack(from) else { return };
        end(stage, wait.blocking_recv().is_ok(), finish);
    }

    /// The same where one thread does all: it begins once everything is there.
    #[cfg(feature = "simulation")]
    async fn run_alone(self, from: Arrived) {
        let from = from.gathered().await;
        let Some((stage, wait, finish)) = self.unpack(from) else { return };
        end(stage, wait.await.is_ok(), finish);
    }

    /// Unpacks and tells; a stage is left when that was heard.
    fn unpack(self, from: Arrived) -> Option<(Stage, Receiver<()>, Sender<Result<Copied>>)> {
        let mut stage = match Stage::make(self.target, &self.nonce, self.is_dir) {
            Ok(stage) => stage,
            Err(error) => {
                let _ = self.tell.send(Err(error.into()));
                return None;
            }
        };
        let unpacked = stage.unpack(from).and_then(|()| Ok((stage.list()?, stage.only_sum())));
        let good = unpacked.is_ok();
        let heard = self.tell.send(unpacked).is_ok();
        if good && heard {
            return Some((stage, self.wait, self.finish));
        }
        stage.remove();
        None
    }
}

/// Places the stage if it `may`, and removes it.
fn end(mut stage: Stage, may: bool, finish: Sender<Result<Copied>>) {
    if !may {
        return stage.remove();
    }
    let placed = stage.place().map(|()| Copied {
        files: stage.count(),
        bytes: stage.bytes(),
        skipped: std::mem::take(&mut stage.skipped),
    });
    stage.remove();
    let _ = finish.send(placed);
}
