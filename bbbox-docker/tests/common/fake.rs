//! An engine that answers by a script over a socket of its own.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use bbbox_core::{
    guest::Guest,
    id::{BackendId, BoxId, InstallId, KindId},
    size::Size,
};
use bbbox_docker::{Docker, DockerConfig};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
};

/// What the engine does with a request.
pub(crate) enum Reply {
    Json(u16, String),
    Text(u16, &'static str),
    /// It never answers.
    Silence,
    /// It closes the connection without an answer.
    Cut,
    /// It takes an exec's streams on, sends these bytes and closes.
    Stream(Vec<u8>),
    /// It takes an exec's streams on, sends these bytes and then nothing for ever.
    Hang(Vec<u8>),
}

type Script = Arc<dyn Fn(&str, &str) -> Reply + Send + Sync>;

/// An engine that answers by a script, with a real engine's recorded answers where the script has none of its own.
pub(crate) struct Engine {
    _folder: tempfile::TempDir,
    socket: PathBuf,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Engine {
    pub(crate) fn start(script: impl Fn(&str, &str) -> Option<Reply> + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("engine.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let log = Arc::clone(&asked);
        let script: Script =
            Arc::new(move |method, path| script(method, path).unwrap_or_else(|| recorded(method, path)));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&script), Arc::clone(&log)));
            }
        });
        Self { _folder: folder, socket, asked }
    }

    pub(crate) fn backend(&self) -> Docker {
        self.backend_with(false)
    }

    pub(crate) fn backend_with(&self, privileged: bool) -> Docker {
        let host = Some(self.socket.to_str().unwrap().to_owned());
        let config = DockerConfig { host, privileged, ..DockerConfig::default() };
        Docker::connect(BackendId::parse("docker").unwrap(), config).unwrap()
    }

    /// The requests that begin with `what`, with their bodies.
    pub(crate) fn asked(&self, what: &str) -> Vec<String> {
        self.asked.lock().unwrap().iter().filter(|line| line.starts_with(what)).cloned().collect()
    }
}

/// What a real engine answered.
fn recorded(method: &str, path: &str) -> Reply {
    let json = |text: &str| Reply::Json(200, text.to_owned());
    match (method, path) {
        ("GET", "/version") => json(include_str!("../../samples/version.json")),
        ("GET", "/info") => json(include_str!("../../samples/info.json")),
        ("GET", "/containers/json") => json(include_str!("../../samples/containers.json")),
        ("GET", "/volumes") => json(include_str!("../../samples/volumes.json")),
        ("GET", p) if p.starts_with("/images/") => json(include_str!("../../samples/image.json")),
        ("GET", p) if p.ends_with("/json") && p.contains(&guest().reference) => {
            json(include_str!("../../samples/container-running.json"))
        }
        ("GET", p) if p.starts_with("/containers/") => {
            Reply::Json(404, include_str!("../../samples/container-none.json").to_owned())
        }
        ("POST", p) if p.ends_with("/exec") => Reply::Json(201, r#"{"Id":"e1"}"#.to_owned()),
        _ => Reply::Json(404, r#"{"message":"page not found"}"#.to_owned()),
    }
}

/// The guest of the recorded answers.
pub(crate) fn guest() -> Guest {
    let container: serde_json::Value =
        serde_json::from_str(include_str!("../../samples/container-running.json")).unwrap();
    Guest {
        install: InstallId::parse("insampleinsamp").unwrap(),
        box_id: BoxId::parse("bxsamplesample").unwrap(),
        reference: container["Id"].as_str().unwrap().to_owned(),
        host: None,
        address: None,
        size: Size::new(2, 768),
        data: Default::default(),
        facts: Default::default(),
    }
}

const UPGRADED: &[u8] = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n";

async fn answer(mut stream: UnixStream, script: Script, log: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let mut words = head.split_whitespace();
    let (method, target) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
    // The body is part of the request: an engine that answers before it has read it is another case.
    let length =
        head.lines().find_map(|l| l.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned));
    let mut body = vec![0; length.map_or(0, |n| n.parse().unwrap())];
    stream.read_exact(&mut body).await.unwrap();
    let path = target.split('?').next().unwrap();
    log.lock().unwrap().push(format!("{method} {path} {}", String::from_utf8_lossy(&body)));
    let (status, kind, body) = match script(&method, path) {
        Reply::Json(status, body) => (status, "application/json", body.into_bytes()),
        Reply::Text(status, body) => (status, "text/html", body.as_bytes().to_vec()),
        Reply::Silence => return std::future::pending().await,
        Reply::Cut => return,
        Reply::Stream(bytes) => {
            let _ = stream.write_all(&[UPGRADED, &bytes].concat()).await;
            return;
        }
        Reply::Hang(bytes) => {
            let _ = stream.write_all(&[UPGRADED, &bytes].concat()).await;
            return std::future::pending().await;
        }
    };
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(&[head.as_bytes(), &body].concat()).await;
}

pub(crate) fn kind() -> KindId {
    KindId::parse("linux").unwrap()
}

/// One frame of an exec's output.
pub(crate) fn frame(stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[stream, 0, 0, 0], &length[..], payload].concat()
}
