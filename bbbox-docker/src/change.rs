//! Changing a box that exists: stopping and starting it, its size, whose it is, and what upkeep removes.

use std::collections::HashSet;

use async_trait::async_trait;
use bbbox_core::{
    Error, Result,
    backend::{Relabel, Resize, Switch, Switched, Upkeep},
    error::{Effect, ErrorKind},
    guest::{Guest, Owner, StopCause},
    id::InstallId,
    size::Size,
};
use bollard::models::ContainerUpdateBody;

use crate::{
    backend::{Docker, Inner},
    map::{self, Container, Labels, Phase},
};

#[async_trait]
impl Switch for Docker {
    async fn start(&self, guest: &Guest) -> Result<Switched> {
        let container = self.0.need(guest).await?;
        if container.phase == Phase::Running {
            return Ok(Switched::Already);
        }
        self.0.engine.start(&container.id).await?;
        Ok(Switched::Done)
    }

    async fn stop(&self, guest: &Guest) -> Result<Switched> {
        let container = self.0.need(guest).await?;
        if matches!(container.phase, Phase::Stopped | Phase::Created) {
            return Ok(Switched::Already);
        }
        self.0.engine.stop(&container.id).await?;
        Ok(Switched::Done)
    }

    async fn stopped(&self, guest: &Guest) -> Result<Option<StopCause>> {
        Ok(self.0.need(guest).await?.ended.map(|ended| {
            // The engine starts a box again by itself whenever its processes end, whatever ended them, unless a
            // person or a program told it to stop the box. So a box that stays stopped was stopped on purpose,
            // or the engine could not start it.
            if ended.error.is_empty() {
                let memory = if ended.out_of_memory { " after it ran out of memory" } else { "" };
                let words = format!("it was stopped through the engine{memory} (exit code {})", ended.code);
                StopCause { by_guest: true, words }
            } else {
                StopCause { by_guest: false, words: ended.error }
            }
        }))
    }
}

#[async_trait]
impl Resize for Docker {
    async fn resize(&self, guest: &Guest, size: &Size) -> Result<Guest> {
        if size.disk_mib.is_some() {
            return Err(Error::refused("a container shares its host's disk, so a disk size cannot be given")
                .fix("ask for the size without a disk"));
        }
        let mut container = self.0.need(guest).await?;
        let recorded = self.0.recorded(guest, &container).await?;
        if container.size != Some(*size) {
            // Noted first: what is counted is true from here on, wherever this is cut off.
            let underway = Note { owner: &recorded, size, resizing: true };
            let noted = self.0.write_note(guest, &container, &underway).await;
            noted.map_err(|error| error.effect(Effect::None))?;
            let (nano_cpus, memory) = map::limits(size);
            let body = ContainerUpdateBody {
                nano_cpus: Some(nano_cpus),
                memory: Some(memory),
                memory_swap: Some(memory),
                ..ContainerUpdateBody::default()
            };
            self.0.engine.update(&container.id, body).await.map_err(|error| too_small(error, size))?;
            container.size = Some(*size);
        }
        let over = Note { owner: &recorded, size, resizing: false };
        let noted = self.0.write_note(guest, &container, &over).await;
        noted.map_err(|error| error.effect(Effect::Applied))?;
        Ok(map::moved(map::guest(&container, &recorded), guest))
    }

    fn needs_stop(&self) -> bool {
        false
    }
}

/// The engine's failure to lower the memory below what is in use, as the rule it is.
fn too_small(error: Error, size: &Size) -> Error {
    if error.kind() == ErrorKind::Failed && error.chain().contains("memory") {
        return Error::refused(format!("the box cannot be made {size}: it uses more memory than that"))
            .fix("end what runs in the box, or stop it first")
            .because(error);
    }
    error
}

#[async_trait]
impl Relabel for Docker {
    async fn relabel(&self, guest: &Guest, owner: &Owner) -> Result<Guest> {
        let container = self.0.need(guest).await?;
        let size = container.size.or_else(|| map::size(&container.labels)).unwrap_or(guest.size);
        self.0.write_note(guest, &container, &Note { owner, size: &size, resizing: false }).await?;
        Ok(map::moved(map::guest(&container, owner), guest))
    }
}

#[async_trait]
impl Upkeep for Docker {
    async fn maintain(&self, install: &InstallId) -> Result<()> {
        self.0.forget();
        let mine = || vec![format!("{}={install}", map::INSTALL), format!("{}={}", map::BACKEND, self.0.id)];
        // The notes first: a box that is made meanwhile has none in this list.
        let notes = self.0.engine.volumes(mine()).await?;
        let live: HashSet<String> = self.0.engine.list(mine()).await?.iter().filter_map(box_of).collect();
        for (name, labels) in notes {
            let orphan = labels.get(map::BOX).is_some_and(|id| !live.contains(id));
            if orphan && map::generation(&labels).is_some() {
                self.0.engine.remove_volume(&name).await?;
            }
        }
        self.0.sweep_images(&self.0.kind().await?).await
    }
}

fn box_of(container: &Container) -> Option<String> {
    container.labels.get(map::BOX).cloned()
}

/// What is to be noted of a box.
struct Note<'a> {
    owner: &'a Owner,
    size: &'a Size,
    /// Whether the engine is about to be told the size.
    resizing: bool,
}

impl Note<'_> {
    /// Whether `labels` say the same.
    fn is(&self, labels: &Labels) -> bool {
        map::owner(labels).as_ref() == Some(self.owner)
            && map::size(labels).as_ref() == Some(self.size)
            && labels.contains_key(map::RESIZING) == self.resizing
    }
}

impl Inner {
    /// The owner as it stands at the engine now.
    async fn recorded(&self, guest: &Guest, container: &Container) -> Result<Owner> {
        let notes = self.notes(of_box(guest)).await?;
        let newest = notes.get(guest.box_id.as_str()).and_then(map::owner);
        newest.or_else(|| map::owner(&container.labels)).ok_or_else(|| {
            Error::failed(format!("container {} has labels that are not a box's", container.id))
        })
    }

    /// Notes what holds now. Labels cannot be changed, so a note of the next generation is
    /// made first and the older ones go after it: whenever this is cut off, one of them holds.
    async fn write_note(&self, guest: &Guest, container: &Container, note: &Note<'_>) -> Result<()> {
        let mut wanted = map::owner_labels(&self.id, note.owner, note.size);
        if note.resizing {
            wanted.insert(map::RESIZING.to_owned(), "yes".to_owned());
        }
        let notes: Vec<(String, Labels)> = self
            .engine
            .volumes(of_box(guest))
            .await?
            .into_iter()
            .filter(|(_, labels)| map::generation(labels).is_some())
            .collect();
        let newest = notes.iter().max_by_key(|(_, labels)| map::generation(labels));
        let says_so = note.is(newest.map_or(&container.labels, |(_, labels)| labels));
        let keep = if says_so {
            newest.map(|(name, _)| name.clone())
        } else {
            let next = newest.and_then(|(_, labels)| map::generation(labels)).unwrap_or_default() + 1;
            wanted.insert(map::NOTE.to_owned(), next.to_string());
            let name = map::note_name(&guest.box_id, next);
            self.engine.create_volume(&name, wanted).await?;
            Some(name)
        };
        for (name, _) in notes {
            if Some(&name) != keep.as_ref() {
                self.engine.remove_volume(&name).await?;
            }
        }
        Ok(())
    }
}

fn of_box(guest: &Guest) -> Vec<String> {
    vec![format!("{}={}", map::INSTALL, guest.install), format!("{}={}", map::BOX, guest.box_id)]
}
