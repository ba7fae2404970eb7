//! The clients of the library (G18): one thread of this program calls NULL of the echo program.

use crate::{
    contender::{Absence, Contender, Reading},
    processor::used,
    site::{MeasuringSite, RunningServer, shown},
    stag::{ServedProgram, serve},
    way::Way,
};
use clap::{Args, ValueEnum};
use futures_util::stream::{FuturesUnordered, StreamExt};
use stag_rpc::{
    AsyncClient, CallError, Client, ClientBuilder, Clock, Config, INLINE_LEN, Procedure, RawCall,
    RawClient, SetupError,
};
use std::{
    error::Error,
    fmt, io,
    time::{Duration, Instant},
};

/// Time that a call or a connection may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Calls between two looks at the clock.
const BATCH: usize = 64;
/// Part of the time that comes before the time that counts.
const WARM_UP: f64 = 0.2;
/// Time for which a waiting client is watched.
const IDLE: Duration = Duration::from_secs(2);

/// A client of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CallerKind {
    /// `RawClient`
    Raw,
    /// `Client`
    Blocking,
    /// `AsyncClient` with a thread of its own
    Async,
    /// `AsyncClient` on the thread that polls its futures
    Local,
}

impl fmt::Display for CallerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Raw => "RawClient",
            Self::Blocking => "Client",
            Self::Async => "AsyncClient",
            Self::Local => "AsyncClient, local",
        })
    }
}

/// NULL of the echo program.
struct Null;

impl Procedure for Null {
    const PROGRAM: u32 = stag_echo::PROGRAM;
    const VERSION: u32 = stag_echo::VERSION;
    const NUMBER: u32 = 0;
    type Arguments = ();
    type Results = ();
}

/// A client and its calls.
#[derive(Clone, Debug, Args)]
pub struct Callers {
    /// Which client calls
    pub kind: CallerKind,
    /// The URL of a server of the echo program
    pub at: String,
}

impl Callers {
    /// Makes `depth` calls at a time for `seconds`. Returns calls per second.
    ///
    /// # Errors
    /// When there is no connection, or a call fails.
    pub fn rate(&self, depth: usize, seconds: f64) -> io::Result<f64> {
        let mut count = CallCount::new(seconds);
        let made = match self.kind {
            CallerKind::Raw => self.raw(depth, &mut count),
            CallerKind::Blocking => self.blocking(depth, &mut count),
            CallerKind::Async => self.asynchronous(ClientBuilder::connect_async, depth, &mut count),
            CallerKind::Local => self.asynchronous(ClientBuilder::connect_local, depth, &mut count),
        };
        made.map_err(|error| io::Error::other(error.to_string()))?;
        count.rate().ok_or_else(|| io::Error::other("too few calls ended to be counted"))
    }

    /// Waits for a call of a server that makes none. Returns hundredths of a core.
    ///
    /// # Errors
    /// When there is no connection.
    pub fn idle(&self) -> io::Result<f64> {
        let failed = |error: &dyn fmt::Display| io::Error::other(error.to_string());
        let mut client = self.builder().connect(&self.at).map_err(|error| failed(&error))?;
        client.call::<Null>(()).map_err(|error| failed(&error))?;
        let now = || used(std::process::id()).map_err(|error| failed(&error));
        client.serve_for(IDLE / 10);
        let (before, began) = (now()?, Instant::now());
        client.serve_for(IDLE);
        let used = now()?.saturating_sub(before);
        Ok(used.as_nanos() as f64 / began.elapsed().as_nanos() as f64 * 100.0)
    }

    fn builder(&self) -> ClientBuilder {
        Client::builder().timeout(PATIENCE).config(config())
    }

    fn asynchronous(
        &self,
        connect: fn(ClientBuilder, &str) -> Result<AsyncClient, SetupError>,
        depth: usize,
        count: &mut CallCount,
    ) -> Result<(), Box<dyn Error>> {
        let client = connect(self.builder(), &self.at)?;
        Ok(client.block_on(futures(&client, depth, count))?)
    }

    fn raw(&self, depth: usize, count: &mut CallCount) -> Result<(), Box<dyn Error>> {
        let mut client = RawClient::connect_url(&self.at, config(), Clock::start(), PATIENCE)?;
        let call = RawCall::new(Null::PROGRAM, Null::VERSION, Null::NUMBER);
        for _ in 0..depth {
            client.send(&call, |_| Ok(()))?;
        }
        while count.goes_on() {
            let finished = client.next_finished()?;
            finished.read_results(|_| Ok::<(), CallError>(()))?;
            client.give(finished);
            client.send(&call, |_| Ok(()))?;
        }
        Ok(())
    }

    fn blocking(&self, depth: usize, count: &mut CallCount) -> Result<(), Box<dyn Error>> {
        if depth != 1 {
            return Err("this client makes one call at a time".into());
        }
        let mut client = self.builder().connect(&self.at)?;
        while count.goes_on() {
            client.call::<Null>(())?;
        }
        Ok(())
    }
}

/// The sizes of every client: the defaults of an asynchronous one.
fn config() -> Config {
    Config {
        calls_max: 256,
        receives: 1_024,
        receive_len: INLINE_LEN,
        inbound: 1_024,
        outbound: 256,
        peers: 2,
        streams: 2,
        slots: [1_024, 32, 16],
        ..Config::default()
    }
}

async fn futures(
    client: &AsyncClient,
    depth: usize,
    count: &mut CallCount,
) -> Result<(), CallError> {
    let mut calls = FuturesUnordered::new();
    for _ in 0..depth {
        calls.push(client.call::<Null>(()));
    }
    while count.goes_on()
        && let Some(reply) = calls.next().await
    {
        reply?.results()?;
        calls.push(client.call::<Null>(()));
    }
    Ok(())
}

/// Calls that ended within the time that counts.
struct CallCount {
    /// The end of the first calls: before it, the client was made.
    began: Option<Instant>,
    warm_up: Duration,
    time: Duration,
    calls: usize,
    /// Calls and time when the time that counts began, and when it ended.
    first: Option<(usize, Instant)>,
    last: Option<(usize, Instant)>,
}

impl CallCount {
    fn new(seconds: f64) -> Self {
        let (warm_up, time) = (seconds * WARM_UP, seconds * (1.0 + WARM_UP));
        Self {
            began: None,
            warm_up: Duration::from_secs_f64(warm_up),
            time: Duration::from_secs_f64(time),
            calls: 0,
            first: None,
            last: None,
        }
    }

    /// Counts a call. Returns false when the time is over.
    fn goes_on(&mut self) -> bool {
        self.calls += 1;
        if !self.calls.is_multiple_of(BATCH) {
            return true;
        }
        let now = Instant::now();
        let passed = now.duration_since(*self.began.get_or_insert(now));
        if self.first.is_none() && passed >= self.warm_up {
            self.first = Some((self.calls, now));
        }
        if passed >= self.time {
            self.last = Some((self.calls, now));
        }
        self.last.is_none()
    }

    /// Calls per second. None if too few ended.
    fn rate(&self) -> Option<f64> {
        let ((before, began), (after, ended)) = self.first.zip(self.last)?;
        let calls = after.checked_sub(before).filter(|calls| *calls > 0)?;
        Some(calls as f64 / ended.duration_since(began).as_secs_f64())
    }
}

/// The measured figure of a client.
#[derive(Clone, Copy, Debug)]
enum CallerFigure {
    /// Calls per second, so many at a time.
    Rate(usize),
    /// Hundredths of a core while it waits.
    Idle,
}

/// A client of the library, in a process of this program.
#[derive(Debug)]
pub struct LibraryCaller {
    way: Way,
    kind: CallerKind,
    figure: CallerFigure,
    server: Option<(RunningServer, String)>,
    commands: Vec<String>,
}

impl LibraryCaller {
    /// Calls per second of a client, `depth` at a time.
    pub const fn rate(way: Way, kind: CallerKind, depth: usize) -> Self {
        Self::new(way, kind, CallerFigure::Rate(depth))
    }

    /// The part of a core that a blocking client uses while it waits.
    pub const fn idle(way: Way) -> Self {
        Self::new(way, CallerKind::Blocking, CallerFigure::Idle)
    }

    const fn new(way: Way, kind: CallerKind, figure: CallerFigure) -> Self {
        Self { way, kind, figure, server: None, commands: Vec::new() }
    }

    fn command(&self, site: &MeasuringSite, at: &str) -> std::process::Command {
        let kind = self.kind.to_possible_value().map(|kind| kind.get_name().to_owned());
        let mut command = site.part(site.client, "caller");
        command.args(kind).arg(at);
        match self.figure {
            CallerFigure::Idle => command.arg("--idle"),
            CallerFigure::Rate(depth) => command.args(["--depth", &depth.to_string()]),
        };
        command.args(["--seconds", &format!("{:.3}", site.turn.as_secs_f64())]);
        command
    }
}

impl Contender for LibraryCaller {
    fn name(&self) -> String {
        format!("{}, {}", self.kind, self.way.name())
    }

    fn commands(&self) -> Vec<String> {
        self.commands.clone()
    }

    fn start(&mut self, site: &MeasuringSite) -> Result<(), Absence> {
        let (running, at) = serve(site, self.way, ServedProgram::Echo, &mut self.commands)?;
        self.commands.push(shown(&self.command(site, &at)));
        self.server = Some((running, at));
        Ok(())
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        let (_, at) = self.server.as_ref().ok_or("it was not started")?;
        let said = site.run(self.command(site, at))?;
        let figure: f64 = said.trim().parse().map_err(|_| format!("{said:?} is no figure"))?;
        Ok(match self.figure {
            CallerFigure::Rate(_) => Reading { calls_per_s: Some(figure), ..Reading::default() },
            CallerFigure::Idle => Reading::counted(figure),
        })
    }
}
