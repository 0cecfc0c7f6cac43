//! An environment that ends the process at a chosen crash point.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bbbox::env::{Env, SystemEnv};
use futures::future::BoxFuture;
use jiff::Timestamp;

/// The system's environment, with an end.
pub(crate) struct CrashEnv {
    /// The point to die at, counted from 1 once armed.
    at: Option<u64>,
    armed: AtomicBool,
    passed: Mutex<Vec<String>>,
}

impl CrashEnv {
    pub(crate) fn new(at: Option<u64>) -> Self {
        Self { at, armed: AtomicBool::new(false), passed: Mutex::default() }
    }

    /// Counts points from now on.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// The points that were passed since it was armed.
    pub(crate) fn passed(&self) -> Vec<String> {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Env for CrashEnv {
    fn now(&self) -> Timestamp {
        SystemEnv.now()
    }

    fn elapsed(&self) -> Duration {
        SystemEnv.elapsed()
    }

    fn random(&self) -> u64 {
        SystemEnv.random()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        SystemEnv.sleep(time)
    }

    fn point(&self, at: &str) -> BoxFuture<'static, ()> {
        if self.armed.load(Ordering::SeqCst) {
            let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
            passed.push(at.to_owned());
            if self.at == Some(passed.len() as u64) {
                std::process::abort();
            }
        }
        Box::pin(std::future::ready(()))
    }
}
