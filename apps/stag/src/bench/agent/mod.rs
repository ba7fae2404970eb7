//! `stag bench --agent`: load generator that a coordinator on another host runs.
//!
//! It serves one coordinator and makes one run at a time; others wait. A coordinator that
//! disconnects ends its run. A connection without the token keeps no coordinator waiting.

mod coordinator;
mod greeting;
mod shared_run;
mod slurm;
mod wire;

pub use coordinator::{NodeSecond, Nodes};
pub use shared_run::{SharedRun, document, missing, table};
pub use slurm::run as run_by_rank;

use super::{
    check,
    options::{BenchOptions, RunOptions},
    run::{self, Point, RunHooks},
};
use crate::{
    Error,
    call::Url,
    caller::{self, aside, say},
    stop::Stop,
};
use greeting::Greetings;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use stag_load::RunOutcome;
use stag_operate::quote;
use std::{
    ffi::OsString,
    io,
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use wire::{AgentWord, ControlLine, CoordinatorWord, LineFault, SharedToken, say as tell};

/// The port of agents, unless another one is given.
pub const PORT: u16 = 20_051;
/// Interval at which an agent checks for a stop.
const LOOK: Duration = Duration::from_millis(100);
/// The same while connections are being greeted.
const LOOK_GREETING: Duration = Duration::from_millis(5);
/// Time that a coordinator may be silent between runs.
const IDLE_MAX: Duration = Duration::from_secs(3_600);
/// Time from an agent's Ready to its start signal: other nodes may still be connecting.
const BEGIN_MAX: Duration = Duration::from_secs(300);

/// Serves coordinators until a signal comes; one of them with `--once`.
pub fn serve(arguments: &RunOptions, at: SocketAddr) -> Result<(), Error> {
    let stop = Stop::by_signals()?;
    let token = SharedToken::read(token_file(arguments)?)?;
    let failed = |error: io::Error| {
        Error::usage(format!("cannot listen on {at}: {}; --agent=IP:PORT", crate::plain(&error)))
    };
    let listener = TcpListener::bind(at).map_err(failed)?;
    let at = listener.local_addr().map_err(failed)?;
    say(format!("AGENT {at}\nEND\n"));
    hear_all(&listener, &token, &stop, arguments.once)
}

/// Serves coordinators, one after the other, until a signal comes; a single one if `once`.
fn hear_all(
    listener: &TcpListener,
    token: &SharedToken,
    stop: &Stop,
    once: bool,
) -> Result<(), Error> {
    thread::scope(|scope| {
        let mut greetings = Greetings::new();
        let mut refusals = Refusals::default();
        let mut is_over = false;
        let mut outcome = Ok(());
        while !stop.is_asked() && !is_over && outcome.is_ok() {
            if await_connection(listener, greetings.is_empty()) {
                outcome = listener
                    .accept()
                    .and_then(|(stream, from)| greetings.begin(scope, stream, from, token));
            }
            while let Some((from, greeted)) = greetings.next() {
                match greeted.and_then(|line| hear(line, stop)) {
                    Ok(runs) => {
                        aside(format!("coordinator {from}: {runs} runs\n"));
                        is_over |= once;
                    }
                    Err(why) => refusals.note(from, &why),
                }
            }
        }
        greetings.end();
        outcome.map_err(|error| Error::failure(format!("no coordinator is heard: {error}")))
    })
}

/// Waits for a connection, a short time while others are being greeted. Returns true if there is
/// one.
fn await_connection(listener: &TcpListener, is_idle: bool) -> bool {
    let time = if is_idle { LOOK } else { LOOK_GREETING };
    let look = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
    let mut ready = [PollFd::new(listener, PollFlags::IN)];
    // Interrupted by a signal, or no connection: the caller checks the flag again.
    poll(&mut ready, Some(&look)).is_ok_and(|count| count > 0)
}

/// Connections that were no coordinators, of which one in a second is logged.
#[derive(Debug, Default)]
struct Refusals {
    logged_at: Option<Instant>,
    left_out: u64,
}

impl Refusals {
    fn note(&mut self, from: SocketAddr, why: &str) {
        if self.logged_at.is_some_and(|at| at.elapsed() < Duration::from_secs(1)) {
            self.left_out += 1;
            return;
        }
        let others = match std::mem::take(&mut self.left_out) {
            0 => String::new(),
            left_out => format!(" ({left_out} more before it)"),
        };
        aside(format!("coordinator {from}: {}{others}\n", quote::line(why)));
        self.logged_at = Some(Instant::now());
    }
}

/// The file with the token.
pub fn token_file(arguments: &RunOptions) -> Result<&Path, Error> {
    arguments.token_file.as_deref().ok_or_else(|| {
        Error::usage(
            "agents and their coordinator need --token-file FILE, the same content on every node: \
             (umask 077; openssl rand -hex 32 > FILE)",
        )
    })
}

/// Carries out one coordinator's messages until it disconnects. Returns the number of runs.
fn hear(mut line: ControlLine, stop: &Stop) -> Result<u32, String> {
    let mut runs = 0;
    let mut silent_at = Instant::now() + IDLE_MAX;
    while !stop.is_asked() {
        let word = match line.hear(Instant::now() + LOOK) {
            Err(LineFault::Silent) if Instant::now() < silent_at => continue,
            Err(LineFault::Ended) => break,
            Err(fault) => return Err(fault.to_string()),
            Ok(word) => word,
        };
        match word {
            CoordinatorWord::Clock => {
                let unix_ns = unix_ns(SystemTime::now());
                line.say(&AgentWord::Clock { unix_ns }).map_err(|error| error.to_string())?;
            }
            CoordinatorWord::Run { words } => {
                runs += 1;
                let last = match run_once(&words, &mut line, stop) {
                    Ok(outcome) => AgentWord::Over { outcome: Box::new(outcome) },
                    Err(error) => AgentWord::Failed { why: error.to_string() },
                };
                line.say(&last).map_err(|error| error.to_string())?;
            }
            CoordinatorWord::Stop => {}
            CoordinatorWord::Hello { .. } | CoordinatorWord::Begin { .. } => {
                return Err("it said something out of turn".to_owned());
            }
        }
        silent_at = Instant::now() + IDLE_MAX;
    }
    Ok(runs)
}

/// Makes one run. Its seconds are sent as they end, and are not in the outcome.
fn run_once(words: &[String], line: &mut ControlLine, stop: &Stop) -> Result<RunOutcome, Error> {
    let arguments = parse(words)?;
    let url = arguments.url.as_deref().ok_or_else(|| Error::usage("a URL is missing"))?;
    let url = Url::parse(url)?;
    check(&arguments, &url)?;
    let first = |rates: &super::options::List<f64>| rates.0.first().copied();
    let point = Point {
        size: super::sizes(&arguments).first().copied().unwrap_or(super::SIZE),
        rate: arguments.rate.as_ref().and_then(first),
        seed: match arguments.seed {
            Some(seed) => seed,
            None => u64::from_ne_bytes(caller::random()?),
        },
    };
    let network = |error: io::Error| Error::failure(error.to_string());
    let speaker = line.speaker().map_err(network)?;
    let (own, is_over) = (Stop::default(), AtomicBool::new(false));
    let (begins, begin) = channel();
    let setup = run::setup(&arguments, &url, point);
    let mut outcome = thread::scope(|scope| {
        let listener = Listener { line, own: &own, all: stop, is_over: &is_over };
        scope.spawn(move || {
            listener.listen(|at| {
                let _ = begins.send(at);
            });
        });
        let mut hooks = RunHooks {
            begin: &mut || {
                tell(&speaker, &AgentWord::Ready).ok()?;
                await_begin(&begin, &own)
            },
            live: &mut |second| {
                // The listener notices if the coordinator is gone.
                let _ = tell(&speaker, &AgentWord::Second { figures: Box::new(second.clone()) });
            },
        };
        let outcome = run::run(&arguments, &url, &own, setup, &mut hooks);
        is_over.store(true, Ordering::Relaxed);
        outcome
    })?;
    outcome.seconds.clear();
    Ok(outcome)
}

/// Receives messages of the coordinator while a run is made.
struct Listener<'a> {
    line: &'a mut ControlLine,
    own: &'a Stop,
    all: &'a Stop,
    is_over: &'a AtomicBool,
}

impl Listener<'_> {
    fn listen(self, mut begin: impl FnMut(u64)) {
        while !self.is_over.load(Ordering::Relaxed) {
            match self.line.hear(Instant::now() + LOOK) {
                Ok(CoordinatorWord::Begin { at_unix_ns }) => begin(at_unix_ns),
                Err(LineFault::Silent) if !self.all.is_asked() => {}
                // It is stopped, gone, or talks nonsense.
                _ => return self.own.flag().store(true, Ordering::Relaxed),
            }
        }
    }
}

/// Waits for the coordinator to give the time of the first call. Returns the time until then.
fn await_begin(begin: &Receiver<u64>, stop: &Stop) -> Option<Duration> {
    let patience = Instant::now() + BEGIN_MAX;
    while !stop.is_asked() && Instant::now() < patience {
        if let Ok(at) = begin.recv_timeout(LOOK) {
            let at = UNIX_EPOCH.checked_add(Duration::from_nanos(at))?;
            let left = at.duration_since(SystemTime::now()).unwrap_or_default();
            return (left <= BEGIN_MAX).then_some(left);
        }
    }
    None
}

/// The arguments of a run, from a coordinator. None of them may write a file here.
fn parse(words: &[String]) -> Result<RunOptions, Error> {
    match BenchOptions::read(words.iter().map(OsString::from)).map_err(Error::usage)? {
        BenchOptions { what: None, run } if is_harmless(&run) => Ok(run),
        _ => Err(Error::usage("an agent makes runs, and nothing else")),
    }
}

const fn is_harmless(run: &RunOptions) -> bool {
    run.json.is_none()
        && run.job.is_none()
        && run.agent.is_none()
        && run.token_file.is_none()
        && run.nodes.is_none()
        && run.start.is_none()
        && run.slurm.is_none()
}

/// Nanoseconds since 1970.
fn unix_ns(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_coordinator_can_have_runs_made_and_no_files_written() {
        let run = parse(&words("tcp://127.0.0.1:1/x --workload nfs3:read --rate 5K")).unwrap();
        assert_eq!(run.rate.unwrap().0, [5_000.0]);
        for refused in [
            "tcp://127.0.0.1:1/x --json /etc/passwd",
            "tcp://127.0.0.1:1/x --job /etc/shadow",
            "--agent",
            "tcp://127.0.0.1:1/x --nodes other",
            "report /etc/shadow --html /x",
            "tcp://127.0.0.1:1/x --workload nonsense",
        ] {
            assert!(parse(&words(refused)).is_err(), "{refused}");
        }
    }

    #[test]
    fn silent_strangers_keep_no_coordinator_waiting() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("token");
        std::fs::write(&file, "a secret of sixteen\n").unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
        let [agent, coordinator] = [(); 2].map(|()| SharedToken::read(&file).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let served = thread::spawn(move || hear_all(&listener, &agent, &Stop::default(), true));
        let strangers: Vec<_> = (0..40).map(|_| TcpStream::connect(at).unwrap()).collect();
        let mut line = ControlLine::new(TcpStream::connect(at).unwrap()).unwrap();
        line.greet(&coordinator).unwrap();
        line.say(&CoordinatorWord::Clock).unwrap();
        let clock = line.hear(Instant::now() + BEGIN_MAX);
        assert!(matches!(clock, Ok(AgentWord::Clock { .. })), "{clock:?}");
        drop(line);
        served.join().unwrap().unwrap();
        drop(strangers);
    }

    #[test]
    fn a_run_that_nobody_begins_is_not_made() {
        let (begins, begin) = channel();
        let stop = Stop::default();
        begins.send(unix_ns(SystemTime::now() + Duration::from_secs(60))).unwrap();
        assert!(await_begin(&begin, &stop).unwrap() > Duration::from_secs(50));
        begins.send(u64::MAX).unwrap();
        assert_eq!(await_begin(&begin, &stop), None, "it would never begin");
        begins.send(0).unwrap();
        assert_eq!(await_begin(&begin, &stop), Some(Duration::ZERO));
        stop.flag().store(true, Ordering::Relaxed);
        assert_eq!(await_begin(&begin, &stop), None);
    }
}
