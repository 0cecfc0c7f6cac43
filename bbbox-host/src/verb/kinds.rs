//! `bbbox kinds`: what can be acquired.

use bbbox::{
    boxes::{BackendView, KindView, Kinds as View},
    kind,
};
use clap::Args;

use crate::{
    cli::Common,
    fault::Fault,
    folder,
    printer::{Printer, line, table},
    progress::Progress,
};

/// List the kinds of boxes that can be acquired, their sizes and who offers them
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  bbbox kinds --json | jq -r '.kinds[].kind'")]
pub(crate) struct Kinds {}

impl Kinds {
    pub(crate) fn run(self, common: &Common, printer: Printer) -> Result<u8, Fault> {
        folder::block_on(async {
            let boxes = folder::reading(common)?;
            let progress = Progress::new(printer, "asking the backends");
            let kinds = progress.during(boxes.kinds()).await;
            printer.answer(&kinds, || told(&kinds))?;
            Ok(0)
        })
    }
}

fn told(view: &View) -> String {
    let mut text = if view.kinds.is_empty() {
        "No backend offers a kind now. Look at the backends: `bbbox config show`".to_owned()
    } else {
        let table = table(["KIND", "PROMISE", "SIZES", "LARGEST", "OFFERED BY"], view.kinds.iter().map(row));
        format!("{table}\n\nOther words: {}", aliases(&view.kinds))
    };
    text.push_str(&backends(&view.backends));
    for trouble in &view.troubles {
        text.push_str(&format!("\nDoes not answer: {}", crate::printer::lines(trouble)));
    }
    text
}

fn row(view: &KindView) -> [String; 5] {
    let mut sizes: Vec<_> = view.sizes.presets.iter().collect();
    sizes.sort_by_key(|(_, size)| (size.memory_mib, size.cores));
    let sizes = sizes.into_iter().map(|(name, size)| format!("{name} ({size})"));
    [
        if view.on { view.kind.name.to_owned() } else { format!("{} (off)", view.kind.name) },
        view.kind.promise.to_owned(),
        sizes.collect::<Vec<_>>().join("; "),
        view.sizes.largest.to_string(),
        view.offers.iter().map(offer).collect::<Vec<_>>().join("; "),
    ]
}

/// The backends in the order in which they are tried, and where each has its boxes.
fn backends(backends: &[BackendView]) -> String {
    let mut text = String::new();
    for backend in backends.iter().filter(|backend| backend.trouble.is_none()) {
        let off = if backend.on { "" } else { " (off)" };
        let place = backend.place.as_ref().map(|place| format!(": {place}")).unwrap_or_default();
        text.push_str(&format!("\n  {}", line(&format!("{}{off}{place}", backend.id))));
    }
    if backends.iter().filter(|backend| backend.on).count() > 1 {
        text.push_str(
            "\nEach counts its own boxes only: two on one machine may promise more memory than it has.",
        );
    }
    if text.is_empty() { text } else { format!("\n\nBackends, in the order in which they are tried:{text}") }
}

/// The other words for the kinds that are offered.
fn aliases(kinds: &[KindView]) -> String {
    kind::aliases()
        .filter(|(_, of, _)| kinds.iter().any(|view| view.kind.name == *of))
        .map(|(alias, of, feature)| match feature {
            Some(feature) => format!("{alias} ({of} with {feature})"),
            None => format!("{alias} ({of})"),
        })
        .collect::<Vec<_>>()
        .join(", ")
}

fn offer(offer: &bbbox::boxes::KindOffer) -> String {
    let mut text = offer.backend.to_string();
    if !offer.on {
        text.push_str(" (off)");
    }
    if !offer.features.is_empty() {
        let features: Vec<_> = offer.features.iter().map(ToString::to_string).collect();
        text.push_str(&format!(" with {}", features.join(", ")));
    }
    text
}
