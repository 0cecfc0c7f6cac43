//! The suite itself: it passes on a provider that keeps its promises, and finds one that breaks them.

use std::sync::Arc;

use bbbox::{Result, backend::Backend};
use conformance::{
    Options, Outcome, Subject,
    sim::{Provider, Shape},
};

struct Simulated(Arc<Provider>);

impl Subject for Simulated {
    fn backend(&self) -> Result<Arc<dyn Backend>> {
        Ok(self.0.backend())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_simulated_provider_keeps_every_promise_it_declares() {
    let provider = Provider::new(Shape::default()).unwrap();
    let report = conformance::run(Arc::new(Simulated(Arc::clone(&provider))), Options::default()).await;
    assert!(report.is_good(), "{report}");
    assert_eq!(provider.guests(), 0);
    assert!(report.cases.iter().all(|case| case.outcome != Outcome::Skipped || case.reason.is_some()));
}
