//! Connections into simulated guests: they open, stall, drop and are cut, and what goes on inside goes on.
//!
//! What is started over them is the resident runner or the guard of a copy; what is sent is held to be that. The
//! runner's side of its protocol is modelled here on the guest's jobs, that of copies in `transfer`, and a test holds
//! both to what the real scripts say.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bbbox::{
    Result,
    error::{Effect, Error},
    guest::Guest,
    kind::Shell,
    route::Route,
    transport::{Exit, Process, Transport, TransportTraits},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex},
    sync::oneshot,
};

use super::{
    World,
    follow::Following,
    inside::{Inside, Stand},
    parts::Parts,
    pause,
    shell::script_of,
    transfer::Guard,
};

/// Where a guest keeps its jobs.
pub(super) const JOBS: &str = "/home/box/.local/state/bb-box/jobs";
const STREAM: usize = 256 * 1024;
/// How much output rides along with a job's end.
const INLINE: usize = 1100;

/// The way into one guest.
pub(super) struct Line {
    pub(super) world: Arc<World>,
    pub(super) cloud: usize,
    pub(super) guest: Guest,
}

/// What becomes of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Holds,
    /// It breaks when this many requests have come, before the last of them is acted on.
    BreaksBefore(u64),
    /// The same, after it was acted on and before it is answered.
    BreaksAfter(u64),
    /// It says nothing for a while from this request on.
    Stalls(u64, u64),
}

impl Fate {
    fn of(p: &mut Parts, label: &str) -> Self {
        let about = format!("line to {label}");
        let (chance, nth) = p.chance.draw(&about);
        if p.calm
            || chance % 1000 >= p.schedule.weather.line
            || p.schedule.mute.contains(&format!("{about} #{nth}"))
        {
            return Self::Holds;
        }
        let (what, at) = (chance / 1000 % 3, chance / 3000 % 6);
        let fate = match what {
            0 => Self::BreaksBefore(at),
            1 => Self::BreaksAfter(at),
            _ => Self::Stalls(at, 1_000 + chance / 18_000 % 60_000),
        };
        let words = match fate {
            Self::BreaksBefore(_) => "line breaks before",
            Self::BreaksAfter(_) => "line breaks after",
            _ => "line stalls",
        };
        p.fault(words);
        p.note("fault", &format!("{about} #{nth}: {fate:?}"));
        fate
    }
}

/// What is started over a connection.
enum Asked {
    /// What comes first on its stdin, so many bytes of it.
    Script(usize),
    Follow(Following),
}

/// One connection that is open.
pub(super) struct Open {
    world: Arc<World>,
    cloud: usize,
    birth: u64,
    boot: u32,
    cuts: u64,
    label: String,
}

impl Open {
    /// Looks into the guest while it is the same and runs.
    pub(super) fn within<T>(&self, f: impl FnOnce(&mut Inside, u64) -> T) -> Option<T> {
        self.world.with(|p| {
            if p.cuts != self.cuts {
                return None;
            }
            let now = p.now;
            let machine = p.clouds[self.cloud].guests.values_mut().find(|m| m.birth == self.birth)?;
            (machine.running && machine.inside.boot == self.boot).then(|| f(&mut machine.inside, now))
        })
    }

    pub(super) fn note(&self, words: &str) {
        self.world.with(|p| p.note(&self.label, words));
    }

    pub(super) fn problem(&self, words: &str) {
        self.world.with(|p| p.problem(words.to_owned()));
    }
}

#[async_trait]
impl Transport for Line {
    fn traits(&self) -> TransportTraits {
        TransportTraits { shell: Shell::Sh, admin: true, in_desktop_session: false, streaming: true }
    }

    async fn spawn(&self, argv: &[String]) -> Result<Process> {
        let (open, fate) = self.dial().await?;
        let asked = match (loader_len(argv), Following::of(argv)) {
            (Some(len), _) => Some(Asked::Script(len)),
            (None, following) => following.map(Asked::Follow),
        };
        let Some(asked) = asked else {
            let words = format!("a simulated guest runs what the core sends, not {argv:?}");
            return Err(Error::failed(words));
        };
        let (stdin, inner_in) = duplex(STREAM);
        let (inner_out, stdout) = duplex(STREAM);
        let (inner_err, stderr) = duplex(4096);
        let (tell, told) = oneshot::channel();
        tokio::spawn(async move {
            let ended = match asked {
                Asked::Script(len) => serve(&open, fate, len, (inner_in, inner_out, inner_err)).await,
                Asked::Follow(following) => following.serve(&open, fate, inner_out, inner_err).await,
            };
            let _ = tell.send(ended);
        });
        let exit = async move {
            match told.await {
                Ok(Some(exit)) => Ok(exit),
                _ => Err(Error::unavailable("the connection into the box broke").effect(Effect::Unknown)),
            }
        };
        Ok(Process {
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            exit: Box::pin(exit),
            kill: Box::pin(async { Ok(()) }),
        })
    }

    async fn probe(&self) -> Result<()> {
        self.dial().await.map(drop)
    }

    async fn route(&self, port: u16) -> Result<Route> {
        self.dial().await?;
        Ok(Route::Tcp { host: "127.0.0.1".to_owned(), port })
    }
}

impl Line {
    async fn dial(&self) -> Result<(Open, Fate)> {
        let label = self.world.with(|p| p.label(&self.guest));
        let ms = self.world.with(|p| p.chance.between("dial", 5, 40));
        pause(ms).await;
        let guest = self.guest.clone();
        self.world.with(|p| {
            let now = p.now;
            let cloud = &mut p.clouds[self.cloud];
            let down = cloud.owned(&guest).map(|m| m.host).is_some_and(|h| cloud.hosts[h].down_until > now);
            let Some(machine) = cloud.owned(&guest) else {
                return Err(Error::gone(format!("box {} has no guest here", guest.box_id)));
            };
            if down {
                return Err(Error::unavailable("its host does not answer"));
            }
            if !machine.running {
                return Err(Error::refused(format!("box {} is stopped", guest.box_id)).fix("start it"));
            }
            if machine.inside.up_at > now {
                return Err(Error::unavailable("the guest is still booting"));
            }
            let open = Open {
                world: Arc::clone(&self.world),
                cloud: self.cloud,
                birth: machine.birth,
                boot: machine.inside.boot,
                cuts: p.cuts,
                label: label.clone(),
            };
            Ok((open, Fate::of(p, &label)))
        })
    }
}

/// How many bytes of its stdin the loader reads.
fn loader_len(argv: &[String]) -> Option<usize> {
    let [shell, flag, text] = argv else { return None };
    if shell != "/bin/sh" || flag != "-c" {
        return None;
    }
    text.split_once("dd bs=1 count=")?.1.split(' ').next()?.parse().ok()
}

/// The guest's side of one connection; how it ended, `None` when the connection broke.
async fn serve(
    open: &Open,
    fate: Fate,
    len: usize,
    (stdin, stdout, stderr): (DuplexStream, DuplexStream, DuplexStream),
) -> Option<Exit> {
    let mut stdin = BufReader::with_capacity(STREAM, stdin);
    let mut script = vec![0; len];
    stdin.read_exact(&mut script).await.ok()?;
    let script = String::from_utf8_lossy(&script).into_owned();
    if script.starts_with("bb_target=") || script.starts_with("bb_source=") {
        return Guard { open, fate, stdin, stdout, stderr }.serve(&script).await;
    }
    let nonce = script.strip_prefix("bb_nonce=").and_then(|rest| rest.split_once('\n'));
    match nonce {
        Some((nonce, runner)) if runner.contains("bb_say \"$bb_nonce hello 1 $$ $bb_jobs\"") => {
            serve_runner(open, fate, nonce, stdin, stdout).await.then_some(Exit::Code(0))
        }
        _ => {
            open.problem("neither the runner nor a copy was started in a box");
            None
        }
    }
}

/// The runner's side of one connection; `true` when it ended in order.
async fn serve_runner(
    open: &Open,
    fate: Fate,
    nonce: &str,
    mut stdin: BufReader<DuplexStream>,
    mut stdout: DuplexStream,
) -> bool {
    pause(20).await;
    let mut runner = Runner { open, watched: Vec::new(), spec: None };
    if stdout.write_all(format!("{nonce} hello 1 99 {JOBS}\n").as_bytes()).await.is_err() {
        return false;
    }
    let (mut requests, mut line) = (0, Vec::new());
    loop {
        // A read that is given up for a tick leaves what it read in `line`.
        let came = tokio::select! {
            biased;
            came = stdin.read_until(b'\n', &mut line) => came.unwrap_or(0),
            said = runner.tick() => {
                match said {
                    None => return false,
                    Some(said) if stdout.write_all(said.as_bytes()).await.is_err() => return false,
                    Some(_) => continue,
                }
            }
        };
        if came == 0 {
            return true;
        }
        // What `spec` and `body` bring is bytes.
        let text = String::from_utf8_lossy(&std::mem::take(&mut line)).trim_end_matches('\n').to_owned();
        if let Some(count) = text.strip_prefix("spec ").or_else(|| text.strip_prefix("body ")) {
            let mut bytes = vec![0; count.parse().unwrap_or(0)];
            if stdin.read_exact(&mut bytes).await.is_err() {
                return false;
            }
            runner.spec = Some(String::from_utf8_lossy(&bytes).into_owned());
            continue;
        }
        match fate {
            Fate::BreaksBefore(at) if at == requests => return false,
            Fate::Stalls(at, ms) if at == requests => pause(ms).await,
            _ => {}
        }
        let Some(said) = runner.ask(&text) else { return false };
        if fate == Fate::BreaksAfter(requests) {
            return false;
        }
        requests += 1;
        if stdout.write_all(said.as_bytes()).await.is_err() {
            return false;
        }
    }
}

/// What the runner of one connection knows.
struct Runner<'a> {
    open: &'a Open,
    /// Jobs whose ends it is to tell.
    watched: Vec<String>,
    /// The SPEC that came as counted bytes.
    spec: Option<String>,
}

impl Runner<'_> {
    /// Waits until one of the jobs it looks after has ended, and tells; `None` when the guest is off or the line cut.
    async fn tick(&mut self) -> Option<String> {
        loop {
            let watched = &self.watched;
            let next = self.open.within(|inside, now| {
                let told = watched
                    .iter()
                    .position(|id| inside.jobs.get(id).is_none_or(|job| job.stand(now) != Stand::Runs));
                let soonest = watched.iter().filter_map(|id| inside.jobs.get(id)).map(|job| job.ends()).min();
                (told, soonest.map(|at| at.saturating_sub(now).max(1)))
            })?;
            match next {
                (Some(at), _) => {
                    let id = self.watched.remove(at);
                    return self.open.within(|inside, now| end(inside, &id, now));
                }
                // Whether the guest still runs is looked at now and then, as a broken connection shows late.
                (None, soonest) => {
                    tokio::time::sleep(Duration::from_millis(soonest.unwrap_or(400).min(400))).await
                }
            }
        }
    }

    /// The answer to one request; `None` when the guest is off or the line cut.
    fn ask(&mut self, request: &str) -> Option<String> {
        let mut words = request.splitn(4, ' ');
        let mut word = || words.next().unwrap_or_default().to_owned();
        let (verb, id, more, rest) = (word(), word(), word(), word());
        match verb.as_str() {
            "ping" => self.open.within(|_, _| format!("P {id}\n")),
            "run" => self.run(&id, &rest),
            "st" => self.open.within(|inside, now| state(inside, &id, now)),
            "list" => self.open.within(|inside, now| {
                let ids: Vec<String> = inside.jobs.keys().cloned().collect();
                let states: String = ids.iter().map(|id| state(inside, id, now)).collect();
                format!("{states}L end\n")
            }),
            "watch" => {
                self.watched.push(id);
                Some(String::new())
            }
            "kill" => {
                let signal = match more.as_str() {
                    "INT" => 2,
                    "KILL" => 9,
                    _ => 15,
                };
                self.open.within(|inside, now| {
                    let done = if inside.kill(&id, signal, now) { "ok" } else { "gone" };
                    format!("K {id} {done}\n")
                })
            }
            "get" => {
                let (skip, count) = rest.split_once(' ')?;
                let (skip, count) = (skip.parse::<usize>().ok()?, count.parse::<usize>().ok()?);
                self.open.within(|inside, now| get(inside, &id, &more, skip, count, now))
            }
            "rm" => self.open.within(|inside, _| {
                for id in request.split(' ').skip(1) {
                    inside.forget(id);
                }
                String::new()
            }),
            "pre" | "tidy" => self.open.within(|_, _| String::new()),
            _ => Some(String::new()),
        }
    }

    fn run(&mut self, id: &str, spec: &str) -> Option<String> {
        let brought = self.spec.take();
        let spec = if spec == "-" { brought.unwrap_or_default() } else { spec.to_owned() };
        let script = script_of(&spec).unwrap_or_default();
        let launched = self.open.within(|inside, now| inside.launch(id, &script, now))?;
        if !launched {
            return Some(format!("E {id} exists\n"));
        }
        self.watched.push(id.to_owned());
        let label = &self.open.label;
        self.open.world.with(|p| {
            p.note(label, &format!("launches job {id}: {script}"));
            p.launched(&script);
        });
        Some(String::new())
    }
}

fn status(stand: Stand) -> String {
    match stand {
        Stand::Ended(Exit::Code(code)) => code.to_string(),
        Stand::Ended(Exit::Signal(signal)) => format!("s{signal}"),
        Stand::Lost | Stand::Runs => "lost".to_owned(),
    }
}

fn state(inside: &Inside, id: &str, now: u64) -> String {
    match inside.jobs.get(id).map(|job| (job.stand(now), job.pid)) {
        None => format!("S {id} none\n"),
        Some((Stand::Runs, pid)) => format!("S {id} run {pid}\n"),
        Some((Stand::Lost, _)) => format!("S {id} lost\n"),
        Some((stand, _)) => format!("S {id} done {}\n", status(stand)),
    }
}

fn end(inside: &Inside, id: &str, now: u64) -> String {
    let Some(job) = inside.jobs.get(id) else { return format!("D {id} lost I -/-\n") };
    let (out, err) = job.output(now);
    let status = status(job.stand(now));
    if out.len() + err.len() > INLINE {
        return format!("D {id} {status} B {} {}\n", out.len(), err.len());
    }
    format!("D {id} {status} I {}/{}\n", hex(out), hex(err))
}

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".to_owned();
    }
    let pairs: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
    pairs.join(" ")
}

fn get(inside: &Inside, id: &str, file: &str, skip: usize, count: usize, now: u64) -> String {
    let (out, err) = inside.jobs.get(id).map_or((&[][..], &[][..]), |job| job.output(now));
    let whole = if file == "out" { out } else { err };
    let from = (skip * 4096).min(whole.len());
    let piece = &whole[from..(from + count * 4096).min(whole.len())];
    let lines: String = piece.chunks(16).map(|chunk| format!(" {}\n", hex(chunk))).collect();
    format!("{lines}G {id} {file} {}\n", whole.len())
}
