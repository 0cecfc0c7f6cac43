//! One process: the installs are opened over their stores, the actors go on where they were, until all is done or the
//! process dies.

use std::sync::Arc;

use bbbox::{
    Result,
    boxes::{Boxes, Caller},
    config::{BackendEntry, Document, Draft},
    driver::Drivers,
    id::BackendId,
};
use tokio::runtime::{Builder, Runtime};

use super::{
    World,
    action::Configured,
    backend::{Models, TYPE},
    clock::Clock,
    threads::Around,
};

/// A runtime whose clock stands still and goes on by itself when everything waits.
pub(super) fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap_or_else(|error| panic!("a runtime without input and output can always be made: {error}"))
}

/// Opens install `n` over its store.
pub(super) fn open(world: &Arc<World>, n: usize, upkeep: bool) -> Result<Boxes> {
    let (store, id) = world.with(|p| (p.installs[n].store.clone(), p.installs[n].id.clone()));
    let models = Models { world: Arc::clone(world), install: n };
    let mut builder = Boxes::builder()
        .memory(&store)
        .drivers(Drivers::new().and(Arc::new(models)))
        .embedder(Arc::new(Around { world: Arc::clone(world), install: n }))
        .caller(Caller::Person)
        .env(Arc::new(Clock { world: Arc::clone(world), install: n }));
    if upkeep {
        builder = builder.upkeep();
    }
    let boxes = builder.open()?;
    if boxes.install_id() != id {
        boxes.set_install_id(&id)?;
    }
    if boxes.configuration()?.revision == 0 {
        configure(world, &boxes, None)?;
    }
    Ok(boxes)
}

/// Puts every backend into the configuration, but for what `change` says of one.
pub(super) fn configure(world: &Arc<World>, boxes: &Boxes, change: Option<(u64, Configured)>) -> Result<()> {
    let ids: Vec<BackendId> = world.with(|p| p.clouds.iter().map(|cloud| cloud.id.clone()).collect());
    let mut backends = Vec::new();
    for (n, id) in (0_u64..).zip(ids) {
        let set = change.filter(|(which, _)| *which == n).map_or(Configured::On, |(_, to)| to);
        if set == Configured::Out {
            continue;
        }
        let fields = [("cloud".to_owned(), n.into())].into_iter().collect();
        backends.push(BackendEntry { id, backend_type: TYPE.to_owned(), on: set == Configured::On, fields });
    }
    let revision = Some(boxes.configuration()?.revision);
    let document = Document { backends, ..Document::default() };
    boxes.configure(&Draft { document, revision }).map(drop)
}
