//! What does not go on or cannot be read: it is told, and neither waited for nor passed over.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use bbbox_core::{ErrorKind, backend::Backend, id::BoxId};
use common::fake::{Engine, Reply, frame, guest, kind};

/// An engine whose builds succeed, and whose containers stop answering at `stuck`: `attach`, `e1` or `e2`.
fn stuck_at(stuck: &'static str) -> Engine {
    let execs = AtomicUsize::new(0);
    Engine::start(move |method, path| {
        let hang_or = |reply: Reply, bytes: &[u8]| {
            if path.contains(stuck) { Reply::Hang(bytes.to_vec()) } else { reply }
        };
        match (method, path) {
            ("GET", "/images/json" | "/containers/json") => Some(Reply::Json(200, "[]".to_owned())),
            ("GET", "/volumes") => Some(Reply::Json(200, r#"{"Volumes":[]}"#.to_owned())),
            ("POST", "/build") => Some(Reply::Json(200, r#"{"stream":"Step 1/1 : FROM x"}"#.to_owned())),
            ("POST", "/containers/create") => {
                Some(Reply::Json(201, r#"{"Id":"c1","Warnings":[]}"#.to_owned()))
            }
            ("POST", "/containers/c1/attach") => {
                Some(hang_or(Reply::Stream(frame(1, b"bb-box: ready\n")), b""))
            }
            ("POST", "/containers/c1/start") => Some(Reply::Json(204, String::new())),
            ("POST", "/containers/c1/exec") => {
                let n = execs.fetch_add(1, Ordering::Relaxed) + 1;
                Some(Reply::Json(201, format!(r#"{{"Id":"e{n}"}}"#)))
            }
            ("POST", p) if p.starts_with("/exec/") => Some(hang_or(Reply::Stream(Vec::new()), b"")),
            ("GET", p) if p.starts_with("/exec/") => {
                let running = p.contains(stuck);
                Some(Reply::Json(200, format!(r#"{{"Running":{running},"ExitCode":0}}"#)))
            }
            ("DELETE", p) if p.starts_with("/images/") => Some(Reply::Json(200, "[]".to_owned())),
            ("DELETE", _) => Some(Reply::Json(204, String::new())),
            _ => None,
        }
    })
}

struct Quiet;

impl bbbox_core::backend::BuildHooks for Quiet {
    fn line(&self, _text: &str) {}
    fn progress(&self, _text: &str, _fraction: Option<f64>) {}
}

#[tokio::test(start_paused = true)]
async fn a_trial_that_does_not_go_on_ends_the_build_and_says_where_it_was() {
    for (stuck, words, most) in
        [("attach", "start script", 65), ("e1", "check", 125), ("e2", "Docker inside it", 95)]
    {
        let engine = stuck_at(stuck);
        let docker = engine.backend_with(true);
        let cancel = tokio_util::sync::CancellationToken::new();
        let began = tokio::time::Instant::now();
        let error = docker.images().unwrap().build(&kind(), &cancel, &Quiet).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Failed, "{error:?}");
        assert!(error.to_string().contains(words), "{error:?}");
        assert!(began.elapsed().as_secs() <= most, "{stuck}: {:?}", began.elapsed());
        let removed = engine.asked("DELETE /containers/");
        assert!(
            removed.iter().any(|line| line.starts_with("DELETE /containers/bbbox-trial-")),
            "{removed:?}"
        );
        let removed = engine.asked("DELETE /images/");
        assert_eq!(removed.len(), 1, "the image that did not pass goes, and no other: {removed:?}");
    }
}

#[tokio::test]
async fn a_container_whose_labels_cannot_be_read_is_told_and_counts() {
    let good: serde_json::Value = serde_json::from_str(include_str!("../samples/containers.json")).unwrap();
    let broken = |id: &str, label: &str, value: Option<&str>| {
        let mut row = good[0].clone();
        row["Id"] = id.into();
        let labels = row["Labels"].as_object_mut().unwrap();
        match value {
            Some(value) => drop(labels.insert(label.to_owned(), value.into())),
            None => drop(labels.remove(label)),
        }
        row
    };
    let mut rows = vec![
        good[0].clone(),
        broken("c-name", "bb-box.name", Some("Not A Name")),
        broken("c-box", "bb-box.box", None),
        broken("c-size", "bb-box.cores", Some("many")),
    ];
    rows[1]["Labels"]["bb-box.box"] = "bxanotheranoth".into();
    rows[3]["Labels"]["bb-box.box"] = "bxthethirdthir".into();
    let rows = serde_json::Value::from(rows).to_string();
    let engine = Engine::start(move |method, path| match (method, path) {
        ("GET", "/containers/json") => Some(Reply::Json(200, rows.clone())),
        ("GET", "/containers/c-size/json") => {
            Some(Reply::Json(200, include_str!("../samples/container-running.json").to_owned()))
        }
        _ => None,
    });
    let docker = engine.backend();
    let room = docker.capacity(&kind(), &guest().install).await.unwrap().hosts.remove(0);
    // The first as its note says, the second and the third as their labels do, the last as the engine holds it.
    assert_eq!(room.limits[0].used, 768 + 512 + 512 + 768);
    assert_eq!(room.limits[1].used, 4);
    let counted: Vec<_> = room.counted.keys().map(BoxId::as_str).collect();
    assert_eq!(counted, ["bxanotheranoth", "bxsamplesample", "bxthethirdthir"]);

    let log = Log::default();
    let held = {
        let _listening = tracing::subscriber::set_default(log.clone());
        docker.held(&guest().install).await.unwrap()
    };
    assert_eq!(held.len(), 1, "only what can be read has an owner");
    let told = log.0.lock().unwrap().join("\n");
    for id in ["c-name", "c-box", "c-size"] {
        assert!(told.contains(id), "{told}");
    }
}

/// Keeps what is logged as a warning.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Log {
    fn enabled(&self, of: &tracing::Metadata<'_>) -> bool {
        *of.level() <= tracing::Level::WARN
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        self.0.lock().unwrap().push(format!("{event:?}"));
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}
