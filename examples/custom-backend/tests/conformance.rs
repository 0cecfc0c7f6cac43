//! The backend holds what the interface promises: the suite says so, as it would for anybody's.

use std::sync::Arc;

use bbbox::{Result, backend::Backend};
use conformance::{Options, Subject};
use custom_backend::Folders;

struct Mine(tempfile::TempDir);

impl Subject for Mine {
    fn backend(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(Folders::open(self.0.path())?))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_passes_the_suite() {
    let subject = Arc::new(Mine(tempfile::tempdir().unwrap()));
    let report = conformance::run(subject, Options::default()).await;
    println!("{report}");
    assert!(report.is_good());
}
