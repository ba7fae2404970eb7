//! Both ends as processes of this program. `answer` serves the echo program to a given number of
//! connections. `call` executes commands from its standard input, one a line, and answers each by
//! one line.

use super::load::{self, Until};
use crate::{
    contender::{Absence, Reading},
    site::{MeasuringSite, RunningServer, shown},
    way::Way,
};
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stag_echo::{Caller, Echo};
use stag_engine::{Config, PeerId, Shard, Token, clock::Clock, control};
use stag_fabrics::{Fabric, FabricAddress, FabricVisitor, Settings};
use stag_load::{Load, LoadPlan, Workload, schedule::Random};
use stag_verbs::{Limits, Provider};
use std::{
    io::{self, BufRead, BufReader, Write},
    process::{ChildStdin, ChildStdout, Stdio},
    time::{Duration, Instant},
};

/// Connections that are being made at a time: listeners have a queue.
const AT_ONCE: usize = 32;
/// Time that connections, or a call, may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Descriptors in addition to those of connections.
const SPARE: u64 = 64;

/// Choice of the connections that calls take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// All of them the same one: the others are idle.
    OverOne,
    /// Each the one that chance takes.
    OverAny,
}

/// Settings of one end.
#[derive(Clone, Debug, Args)]
pub struct EndSettings {
    /// The URL to listen at or connect to
    pub at: String,
    /// Connections at most
    #[arg(long, default_value_t = 8)]
    pub connections: usize,
    /// Leave CRCs out
    #[arg(long)]
    pub no_crc: bool,
}

fn other(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

/// Configuration like a file server's: receives for each connection, and many more for the busy
/// ones.
fn config(connections: usize) -> Config {
    let receives = 4_096 + connections * 2;
    Config {
        grant_first: 1,
        calls_max: if connections > 64 { 1 } else { 64 },
        reverse_grant: 0,
        reverse_calls_max: 0,
        peers: connections,
        receives,
        inbound: receives,
        slots: [4_096, 256, 192],
        ..Config::default()
    }
}

/// Every connection may need a descriptor.
fn raise_descriptors(connections: usize) -> io::Result<()> {
    let needed = connections as u64 + SPARE;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if maximum.is_some_and(|maximum| maximum < needed) {
        return Err(other(format!(
            "{needed} descriptors are needed, and {maximum:?} are allowed: raise ulimit -n"
        )));
    }
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum })?)
}

impl EndSettings {
    /// Serves until a signal ends the process.
    ///
    /// # Errors
    /// As sockets and `mmap(2)` fail.
    pub fn answer(&self) -> io::Result<()> {
        self.visit(EndTask::Answer)
    }

    /// Calls as standard input says.
    ///
    /// # Errors
    /// As sockets and `mmap(2)` fail, and when a call does.
    pub fn call(&self) -> io::Result<()> {
        self.visit(EndTask::Call)
    }

    fn visit(&self, does: EndTask) -> io::Result<()> {
        raise_descriptors(self.connections)?;
        FabricAddress::parse(&self.at).map_err(other)?.visit(EndProcess { ends: self, does })
    }

    /// Has `len` octets pushed for `seconds`, `depth` calls at a time. Returns octets per second.
    ///
    /// # Errors
    /// As sockets and `mmap(2)` fail, and when a call does.
    pub fn pull(&self, len: usize, depth: usize, seconds: f64) -> io::Result<f64> {
        let plan = load::plan(Workload::Push, len, depth);
        FabricAddress::parse(&self.at).map_err(other)?.visit(Pulling { ends: self, plan, seconds })
    }

    fn settings(&self, limits: Limits, seed: u8, clock: Clock) -> Settings {
        Settings { crc: !self.no_crc, ..Settings::new(limits, [seed; 32], clock.now()) }
    }
}

/// The task of a process.
#[derive(Clone, Copy, Debug)]
enum EndTask {
    Answer,
    Call,
}

/// One process, on the fabric of its address.
struct EndProcess<'a> {
    ends: &'a EndSettings,
    does: EndTask,
}

impl FabricVisitor for EndProcess<'_> {
    type Output = io::Result<()>;

    fn visit<P: Fabric>(self, at: P::Address) -> Self::Output {
        let (clock, config) = (Clock::start(), config(self.ends.connections));
        let limits = config.limits(256);
        match self.does {
            EndTask::Answer => {
                let settings = self.ends.settings(limits, 1, clock);
                answer(P::for_listening(settings, std::slice::from_ref(&at))?, &at, config, clock)
            }
            EndTask::Call => {
                let settings = self.ends.settings(limits, 2, clock);
                call(P::for_connecting(settings, Some(&at))?, at, config, clock)
            }
        }
    }
}

/// A generator that has octets pushed to it.
struct Pulling<'a> {
    ends: &'a EndSettings,
    plan: LoadPlan,
    seconds: f64,
}

impl FabricVisitor for Pulling<'_> {
    type Output = io::Result<f64>;

    fn visit<P: Fabric>(self, at: P::Address) -> Self::Output {
        let Self { ends, plan, seconds } = self;
        let clock = Clock::start();
        let fabric = P::for_connecting(ends.settings(plan.limits(), 2, clock), Some(&at))?;
        let done = load::run(Load::new(fabric, &plan)?, at, clock, Until::seconds(seconds))?;
        Ok(done.octets as f64 / done.seconds)
    }
}

fn answer<P: Provider>(fabric: P, at: &P::Address, config: Config, clock: Clock) -> io::Result<()> {
    let mut shard = Shard::new(fabric, Echo::default(), config, Box::new(|_| true))?;
    println!("LISTEN {}", shard.listen(at).map_err(other)?);
    // It gets no commands: it ends by a signal.
    let (control, _handle) = control::pair()?;
    shard.run(&control, move || clock.now())
}

/// The calling end: connections, and one call at a time over one of them.
struct Calling<P: Provider> {
    shard: Shard<P, Caller>,
    clock: Clock,
    peers: Vec<PeerId>,
    random: Random,
}

fn call<P: Provider>(fabric: P, at: P::Address, config: Config, clock: Clock) -> io::Result<()> {
    let shard = Shard::new(fabric, Caller::with_capacity(8), config, Box::new(|_| false))?;
    let mut calling = Calling { shard, clock, peers: Vec::new(), random: Random::new(1) };
    for line in io::stdin().lines() {
        let line = line?;
        let (word, number) =
            line.split_once(' ').ok_or_else(|| other(format!("{line:?} is no command")))?;
        let number: f64 = number.parse().map_err(other)?;
        let said = match word {
            // Makes this number of further connections, and a call over each.
            "connect" => {
                calling.connect(&at, number as usize)?;
                calling.peers.len().to_string()
            }
            "one" | "any" => {
                let calls = if word == "one" { Calls::OverOne } else { Calls::OverAny };
                let Reading { p50_ns, p99_ns, .. } =
                    calling.measure(calls, Duration::from_secs_f64(number))?;
                format!("{} {}", p50_ns.unwrap_or(f64::NAN), p99_ns.unwrap_or(f64::NAN))
            }
            _ => return Err(other(format!("{word:?} is no command"))),
        };
        println!("{said}");
        io::stdout().flush()?;
    }
    Ok(())
}

impl<P: Provider> Calling<P> {
    fn connect(&mut self, at: &P::Address, more: usize) -> io::Result<()> {
        let wanted = self.peers.len() + more;
        while self.peers.len() < wanted {
            let batch = AT_ONCE.min(wanted - self.peers.len());
            let known = self.peers.len();
            for _ in 0..batch {
                self.peers.push(self.shard.connect(at).map_err(other)?);
            }
            self.wait(|shard| shard.app().peers().len() >= known + batch)?;
        }
        let first = wanted - more;
        for place in first..wanted {
            self.once(place)?;
        }
        Ok(())
    }

    fn wait(&mut self, mut done: impl FnMut(&Shard<P, Caller>) -> bool) -> io::Result<()> {
        let (began, mut passes) = (Instant::now(), 0_u32);
        while !done(&self.shard) {
            if !self.shard.pass(self.clock.now()) {
                std::hint::spin_loop();
            }
            passes = passes.wrapping_add(1);
            if passes.is_multiple_of(4_096) && began.elapsed() > PATIENCE {
                return Err(other(format!(
                    "{} of {} connections stand",
                    self.shard.app().peers().len(),
                    self.peers.len()
                )));
            }
        }
        Ok(())
    }

    /// One call of NULL.
    fn once(&mut self, place: usize) -> io::Result<()> {
        let peer = *self.peers.get(place).ok_or_else(|| other("there is no such connection"))?;
        if !self.shard.with_app(|_, cx| Caller::call(cx, peer, Token(0), None)) {
            return Err(other("no memory for a call"));
        }
        let mut outcome = None;
        let (began, mut passes) = (Instant::now(), 0_u32);
        while outcome.is_none() {
            self.shard.pass(self.clock.now());
            outcome = self.shard.with_app(|app, _| app.take());
            passes = passes.wrapping_add(1);
            if passes.is_multiple_of(4_096) && began.elapsed() > PATIENCE {
                return Err(other("a call was not answered"));
            }
        }
        match outcome.map(|done| done.echo) {
            Some(Ok(_)) => Ok(()),
            outcome => Err(other(format!("a call failed: {outcome:?}"))),
        }
    }

    fn measure(&mut self, calls: Calls, time: Duration) -> io::Result<Reading> {
        let mut trips = Vec::new();
        let began = Instant::now();
        let mut last = began;
        while last.duration_since(began) < time {
            let place = match calls {
                Calls::OverOne => self.peers.len() / 2,
                Calls::OverAny => self.random.below(self.peers.len() as u64) as usize,
            };
            self.once(place)?;
            let now = Instant::now();
            trips.push(now.duration_since(last).as_nanos() as f64);
            last = now;
        }
        Ok(Reading::of_trips(&mut trips))
    }
}

/// Both processes, from the side that measures.
#[derive(Debug)]
pub struct Processes {
    /// The server.
    pub server: RunningServer,
    client: RunningServer,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    /// Command lines of the processes that were started.
    pub commands: Vec<String>,
}

/// The arguments of one end.
pub fn arguments(way: Way, at: &str, connections: usize) -> Vec<String> {
    let mut arguments = vec![at.to_owned(), "--connections".to_owned(), connections.to_string()];
    if !way.crc {
        arguments.push("--no-crc".to_owned());
    }
    arguments
}

/// Starts a server for `connections` connections. Returns it, its address and its command line.
///
/// # Errors
/// When it does not start.
pub fn start_server(
    site: &MeasuringSite,
    way: Way,
    connections: usize,
) -> Result<(RunningServer, String, String), Absence> {
    let mut command = site.part(site.server, "answer");
    command.args(arguments(way, &way.listen(site), connections));
    let typed = shown(&command);
    let (running, at) =
        site.serve(command, |line| line.strip_prefix("LISTEN ").map(str::to_owned))?;
    Ok((running, at, typed))
}

impl Processes {
    /// Starts both ends for `connections` connections, none of which is made yet.
    ///
    /// # Errors
    /// When one does not start.
    pub fn start(site: &MeasuringSite, way: Way, connections: usize) -> Result<Self, Absence> {
        let (server, at, typed) = start_server(site, way, connections)?;
        let mut command = site.part(site.client, "call");
        command.args(arguments(way, &at, connections));
        let commands = vec![typed, shown(&command)];
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut client = RunningServer::start(&mut command).map_err(Absence::failed)?;
        let (to, from) = client.pipes().ok_or_else(|| Absence::failed("no pipes"))?;
        Ok(Self { server, client, to, from: BufReader::new(from), commands })
    }

    fn ask(&mut self, line: &str) -> Result<String, String> {
        let mut answer = String::new();
        let asked = writeln!(self.to, "{line}").and_then(|()| self.from.read_line(&mut answer));
        match asked {
            Ok(1..) => Ok(answer.trim().to_owned()),
            _ => Err(format!(
                "process {}, which calls, ended: see its words above",
                self.client.id()
            )),
        }
    }

    /// Makes `more` connections in addition, with one call over each.
    ///
    /// # Errors
    /// When they cannot be made.
    pub fn connect(&mut self, more: usize) -> Result<(), String> {
        self.ask(&format!("connect {more}")).map(drop)
    }

    /// Calls for about as long as a turn lasts.
    ///
    /// # Errors
    /// When a call fails.
    pub fn measure(&mut self, calls: Calls, site: &MeasuringSite) -> Result<Reading, String> {
        let word = if calls == Calls::OverOne { "one" } else { "any" };
        let said = self.ask(&format!("{word} {}", site.turn.as_secs_f64()))?;
        let numbers = said
            .split_once(' ')
            .and_then(|(p50, p99)| Some((p50.parse().ok()?, p99.parse().ok()?)));
        let (p50, p99) = numbers.ok_or_else(|| format!("{said:?} is no measurement"))?;
        Ok(Reading { p50_ns: Some(p50), p99_ns: Some(p99), ..Reading::default() })
    }
}
