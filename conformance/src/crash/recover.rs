//! After a death: restart, sweep until quiet, and what must hold then.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use bbbox::{
    Error, Result,
    backend::Backend,
    boxes::Boxes,
    env::{Env, SystemEnv},
    guest::Power,
    id::{BoxId, InstallId},
    journal::State,
    record::BoxState,
    run::{JobSpec, RunResult},
};

use super::scenario::{Scenario, acquire, open};

/// How many sweeps may find something to do.
const SWEEPS: usize = 6;

/// Opens what a death left, lets it recover, and says what does not hold.
pub(super) async fn check(
    scenario: Scenario,
    backend: &Arc<dyn Backend>,
    data: &Path,
    bystander: &InstallId,
) -> Result<Vec<String>> {
    let env: Arc<dyn Env> = Arc::new(SystemEnv);
    if scenario == Scenario::Forget {
        forget_again(data, &env).await?;
    }
    let boxes = open(data, Some(backend), &env).await?;
    boxes.idle().await;
    let mut problems = Vec::new();
    settle(&boxes, &mut problems).await?;
    if scenario == Scenario::ImageBuild {
        built(&boxes, &mut problems).await?;
    }
    let install = boxes.install_id();
    as_recorded(&boxes, backend, &install, &mut problems).await?;
    untouched(backend, bystander, &mut problems).await?;
    for record in boxes.list()? {
        let handle = boxes.get(record.id.as_str())?;
        handle.release(true).await?;
        let events = handle.log(200)?;
        if events.last().is_none_or(|last| last.event.kind != "released") {
            problems.push(format!("the log of box {} does not end with its release", record.id));
        }
    }
    for held in backend.held(&install).await? {
        problems.push(format!("guest {} is left after every box was released", held.guest.reference));
    }
    Ok(problems)
}

/// A forget that was cut short can be asked for again while its backend is not configured.
async fn forget_again(data: &Path, env: &Arc<dyn Env>) -> Result<()> {
    let boxes = open(data, None, env).await?;
    boxes.idle().await;
    for record in boxes.list()? {
        boxes.get(record.id.as_str())?.forget().await?;
    }
    boxes.idle().await;
    Ok(())
}

/// A build that began came to its end, and boxes can be made from what is there.
async fn built(boxes: &Boxes, problems: &mut Vec<String>) -> Result<()> {
    for operation in boxes.operations(100)? {
        if operation.kind == "image-build" && operation.state != State::Done {
            problems.push(format!("the build is {}: {:?}", operation.state.as_str(), operation.error));
        }
    }
    let (images, troubles) = boxes.images().await;
    problems.extend(troubles);
    for image in images.into_iter().filter(|found| found.image.build.is_none()) {
        problems.push(format!("the image {} is not there any more", image.image.name));
    }
    acquire(boxes).await.map(drop)
}

/// Sweeps until a sweep finds nothing to do.
async fn settle(boxes: &Boxes, problems: &mut Vec<String>) -> Result<()> {
    let mut last = None;
    for _ in 0..SWEEPS {
        let report = boxes.sweep().await?;
        if report.done.is_empty() && report.troubles.is_empty() {
            return Ok(());
        }
        last = Some(report);
    }
    problems.push(format!("it does not become quiet: {last:?}"));
    Ok(())
}

/// No guest without a record, no record without a guest, one guest a box, and each box works as its record says.
async fn as_recorded(
    boxes: &Boxes,
    backend: &Arc<dyn Backend>,
    install: &InstallId,
    problems: &mut Vec<String>,
) -> Result<()> {
    let held = backend.held(install).await?;
    let mut with_guest: BTreeSet<BoxId> = BTreeSet::new();
    for guest in &held {
        if !with_guest.insert(guest.owner.box_id.clone()) {
            problems.push(format!("two guests act as box {}", guest.owner.box_id));
        }
    }
    for record in boxes.list()? {
        let handle = boxes.get(record.id.as_str())?;
        let status = handle.status().await?;
        if !with_guest.remove(&record.id) {
            problems.push(format!("box {} is {} and has no guest", record.id, record.state));
        }
        if !status.operations.is_empty() {
            problems.push(format!("box {} is held by {:?}", record.id, status.operations));
        }
        match (record.state, status.power) {
            (BoxState::Stopped, Some(Power::Stopped)) => {}
            (BoxState::Ready, Some(Power::Running)) => {
                let ran = handle.run(JobSpec::script("echo here")).await;
                let works =
                    matches!(&ran, Ok(RunResult::Ended(e)) if e.stdout.whole().as_deref() == Some(b"here\n"));
                if !works {
                    problems.push(format!("box {} does not work: {ran:?}", record.id));
                }
            }
            (state, power) => problems.push(format!("box {} is {state} and its guest {power:?}", record.id)),
        }
        if handle.log(100)?.is_empty() {
            problems.push(format!("the log of box {} tells nothing", record.id));
        }
    }
    problems.extend(with_guest.into_iter().map(|id| format!("the guest of box {id} has no record")));
    Ok(())
}

/// The other install's one guest is there and runs.
async fn untouched(
    backend: &Arc<dyn Backend>,
    bystander: &InstallId,
    problems: &mut Vec<String>,
) -> Result<()> {
    let held = backend.held(bystander).await?;
    let [only] = held.as_slice() else {
        problems.push(format!("the other install has {} guests", held.len()));
        return Ok(());
    };
    match backend.power(&only.guest).await {
        Ok(Some(Power::Running)) => Ok(()),
        Ok(power) => {
            problems.push(format!("the other install's guest is {power:?}"));
            Ok(())
        }
        Err(error) => Err(Error::failed("the other install's guest cannot be asked").because(error)),
    }
}
