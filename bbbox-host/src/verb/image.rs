//! `bbbox image`: what boxes are made from, where a backend builds it itself.

use bbbox::{
    Error,
    boxes::BackendImage,
    id::{BackendId, KindId},
    kind::Wanted,
};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::json;

use crate::{
    cli::Common,
    fault::Fault,
    folder,
    printer::{Printer, table},
    progress::{Progress, settle},
    words,
};

/// List the images that boxes are made from, or build one
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bbbox image list\n  bbbox image build linux --on docker")]
pub(crate) struct Image {
    #[command(subcommand)]
    doing: Doing,
}

#[derive(Debug, Subcommand)]
enum Doing {
    /// List each backend's images and which should be built again
    #[command(after_help = "Example:\n  bbbox image list")]
    List,
    /// Build a kind's image; it takes its name only once it passed its check
    #[command(after_help = "Example:\n  bbbox image build linux --on docker")]
    Build {
        /// The kind whose boxes come from it
        kind: String,
        /// The backend to build it on, where several build it
        #[arg(long, value_name = "BACKEND", value_parser = |t: &str| BackendId::parse(t).map_err(words::spoken))]
        on: Option<BackendId>,
    },
}

impl Image {
    pub(crate) fn run(self, common: &Common, printer: Printer) -> Result<u8, Fault> {
        match self.doing {
            Doing::List => list(common, printer),
            Doing::Build { kind, on } => build(&kind, on, common, printer),
        }
    }
}

fn list(common: &Common, printer: Printer) -> Result<u8, Fault> {
    folder::block_on(async {
        let boxes = folder::reading(common)?;
        let progress = Progress::new(printer, "asking the backends");
        let (images, troubles) = progress.during(boxes.images()).await;
        troubles.iter().for_each(|trouble| printer.warn(trouble));
        printer.answer(&json!({ "images": images, "warnings": troubles }), || told(&images))?;
        Ok(0)
    })
}

fn told(images: &[BackendImage]) -> String {
    if images.is_empty() {
        return "No backend that answers builds images".to_owned();
    }
    let now = Timestamp::now();
    table(
        ["KIND", "BACKEND", "IMAGE", "BUILT", "SIZE", "DUE"],
        images.iter().map(|on| {
            let build = on.image.build.as_ref();
            [
                on.image.kind.to_string(),
                on.backend.to_string(),
                on.image.name.clone(),
                build.map_or_else(|| "-".to_owned(), |build| words::ago(build.made, now)),
                build.and_then(|build| build.bytes).map_or_else(|| "-".to_owned(), words::bytes),
                on.image.due.clone().unwrap_or_default(),
            ]
        }),
    )
}

fn build(kind: &str, on: Option<BackendId>, common: &Common, printer: Printer) -> Result<u8, Fault> {
    let kind = Wanted::parse(kind)?.kind;
    folder::change(common, printer, "image build", async |boxes| {
        let backend = match on {
            Some(backend) => backend,
            None => {
                let (images, troubles) = boxes.images().await;
                the_one(&images, &troubles, &kind)?
            }
        };
        let events = boxes.events();
        let operation = boxes.begin_image_build(&backend, &kind)?;
        let progress = Progress::new(printer, format!("building the image of {kind} on {backend}"));
        settle(boxes, events, &operation, &progress).await?;
        let built = boxes.images().await.0;
        let built = built.iter().find(|on| on.backend == backend && on.image.kind == kind);
        printer.answer(&built, || match built {
            Some(on) => format!("{} on {backend} is built", on.image.name),
            None => format!("the image of {kind} on {backend} is built"),
        })?;
        Ok(0)
    })
}

/// The backend that builds `kind`'s image, when there is one and no other.
fn the_one(images: &[BackendImage], troubles: &[String], kind: &KindId) -> Result<BackendId, Fault> {
    let able: Vec<_> = images.iter().filter(|on| on.image.kind == *kind).map(|on| &on.backend).collect();
    match able.as_slice() {
        [one] => Ok((*one).clone()),
        // One that is silent now may be the one.
        [] if !troubles.is_empty() => {
            Err(Error::unavailable(format!("no backend that answers builds an image of {kind}"))
                .because_of(troubles.join("; "))
                .fix("mend what is named, then try again; see `bbbox image list`")
                .into())
        }
        [] => Err(Error::invalid(format!("no backend that answers builds an image of {kind}"))
            .fix("see `bbbox image list`")
            .into()),
        many => {
            let names: Vec<_> = many.iter().map(ToString::to_string).collect();
            Err(Error::invalid(format!("several backends build the image of {kind}"))
                .fix(format!("say which with --on: {}", names.join(", ")))
                .into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_that_is_silent_may_be_the_one_that_builds() {
        let kind = KindId::parse("linux").unwrap();
        assert_eq!(the_one(&[], &[], &kind).unwrap_err().exit_code(), 2);
        let fault = the_one(&[], &["one: it does not answer".to_owned()], &kind).unwrap_err();
        assert_eq!(fault.exit_code(), 5);
        assert!(fault.one_line().contains("one: it does not answer"));
    }
}
