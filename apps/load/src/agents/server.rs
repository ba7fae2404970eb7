//! An agent: waits for coordinators, and makes the runs that they ask for.

use super::{
    AgentError,
    greeting::Greetings,
    unix_ns,
    wire::{AgentWord, ControlLine, CoordinatorWord, LineFault, SharedToken, say as tell},
};
use crate::{RunOutcome, run::RunHooks};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Interval at which an agent checks for a stop.
const LOOK: Duration = Duration::from_millis(100);
/// The same while connections are being greeted.
const LOOK_GREETING: Duration = Duration::from_millis(5);
/// Time that a coordinator may be silent between runs.
const IDLE_MAX: Duration = Duration::from_secs(3_600);
/// Time from an agent's Ready to its start signal: other nodes may still be connecting.
const BEGIN_MAX: Duration = Duration::from_secs(300);

/// Runs that an agent can make.
pub trait AgentWork {
    /// A run that was checked.
    type Run;

    /// Reads the words of a run.
    ///
    /// # Errors
    /// A sentence about words that are no run, or not one that a coordinator may ask for.
    fn prepare(&self, words: &[String]) -> Result<Self::Run, String>;

    /// Makes a run. It ends early once `stop` is set.
    ///
    /// # Errors
    /// A sentence when nothing was measured.
    fn make(
        &self,
        run: Self::Run,
        stop: &Arc<AtomicBool>,
        hooks: &mut RunHooks<'_>,
    ) -> Result<RunOutcome, String>;
}

/// An agent.
#[derive(Debug)]
pub struct AgentServer<'a, W> {
    /// Coordinators connect to it.
    pub listener: &'a TcpListener,
    /// Proves that a coordinator may ask for runs.
    pub token: &'a SharedToken,
    /// Ends the agent once it is set.
    pub stop: &'a AtomicBool,
    /// Ends the agent after one coordinator.
    pub once: bool,
    /// Makes the runs.
    pub work: W,
    /// Called with each line for people, which may contain words of a peer.
    pub note: fn(&str),
}

impl<W: AgentWork> AgentServer<'_, W> {
    /// Serves coordinators, one after the other, until it is stopped.
    ///
    /// # Errors
    /// A sentence about a socket that can no longer be used.
    pub fn serve(&self) -> Result<(), AgentError> {
        let Self { listener, token, stop, once, note, .. } = *self;
        thread::scope(|scope| {
            let mut greetings = Greetings::new();
            let mut refusals = Refusals::default();
            let mut is_over = false;
            let mut outcome = Ok(());
            while !stop.load(Ordering::Relaxed) && !is_over && outcome.is_ok() {
                if await_connection(listener, greetings.is_empty()) {
                    outcome = listener
                        .accept()
                        .and_then(|(stream, from)| greetings.begin(scope, stream, from, token));
                }
                while let Some((from, greeted)) = greetings.next() {
                    match greeted.and_then(|line| self.hear(line)) {
                        Ok(runs) => {
                            note(&format!("coordinator {from}: {runs} runs"));
                            is_over |= once;
                        }
                        Err(why) => refusals.note(from, &why, note),
                    }
                }
            }
            greetings.end();
            outcome
                .map_err(|error| AgentError::failure(format!("no coordinator is heard: {error}")))
        })
    }

    /// Carries out one coordinator's messages until it disconnects. Returns the number of runs.
    fn hear(&self, mut line: ControlLine) -> Result<u32, String> {
        let mut runs = 0;
        let mut silent_at = Instant::now() + IDLE_MAX;
        while !self.stop.load(Ordering::Relaxed) {
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
                    let last = match self.run_once(&words, &mut line) {
                        Ok(outcome) => AgentWord::Over { outcome: Box::new(outcome) },
                        Err(error) => AgentWord::Failed { why: error },
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
    fn run_once(&self, words: &[String], line: &mut ControlLine) -> Result<RunOutcome, String> {
        let run = self.work.prepare(words)?;
        let speaker = line.speaker().map_err(|error| error.to_string())?;
        let (own, is_over) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
        let (begins, begin) = channel();
        let mut outcome = thread::scope(|scope| {
            let listener = Listener { line, own: &own, all: self.stop, is_over: &is_over };
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
                    let figures = Box::new(second.clone());
                    let _ = tell(&speaker, &AgentWord::Second { figures });
                },
            };
            let outcome = self.work.make(run, &own, &mut hooks);
            is_over.store(true, Ordering::Relaxed);
            outcome
        })?;
        outcome.seconds.clear();
        Ok(outcome)
    }
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
    fn note(&mut self, from: SocketAddr, why: &str, note: fn(&str)) {
        if self.logged_at.is_some_and(|at| at.elapsed() < Duration::from_secs(1)) {
            self.left_out += 1;
            return;
        }
        let others = match std::mem::take(&mut self.left_out) {
            0 => String::new(),
            left_out => format!(" ({left_out} more before it)"),
        };
        note(&format!("coordinator {from}: {why}{others}"));
        self.logged_at = Some(Instant::now());
    }
}

/// Receives messages of the coordinator while a run is made.
struct Listener<'a> {
    line: &'a mut ControlLine,
    own: &'a AtomicBool,
    all: &'a AtomicBool,
    is_over: &'a AtomicBool,
}

impl Listener<'_> {
    fn listen(self, mut begin: impl FnMut(u64)) {
        while !self.is_over.load(Ordering::Relaxed) {
            match self.line.hear(Instant::now() + LOOK) {
                Ok(CoordinatorWord::Begin { at_unix_ns }) => begin(at_unix_ns),
                Err(LineFault::Silent) if !self.all.load(Ordering::Relaxed) => {}
                // It is stopped, gone, or talks nonsense.
                _ => return self.own.store(true, Ordering::Relaxed),
            }
        }
    }
}

/// Waits for the coordinator to give the time of the first call. Returns the time until then.
fn await_begin(begin: &Receiver<u64>, stop: &AtomicBool) -> Option<Duration> {
    let patience = Instant::now() + BEGIN_MAX;
    while !stop.load(Ordering::Relaxed) && Instant::now() < patience {
        if let Ok(at) = begin.recv_timeout(LOOK) {
            let at = UNIX_EPOCH.checked_add(Duration::from_nanos(at))?;
            let left = at.duration_since(SystemTime::now()).unwrap_or_default();
            return (left <= BEGIN_MAX).then_some(left);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    /// Refuses every run.
    struct NoRuns;

    impl AgentWork for NoRuns {
        type Run = ();

        fn prepare(&self, _words: &[String]) -> Result<(), String> {
            Err("no runs".to_owned())
        }

        fn make(
            &self,
            (): (),
            _stop: &Arc<AtomicBool>,
            _hooks: &mut RunHooks<'_>,
        ) -> Result<RunOutcome, String> {
            unreachable!("none is prepared")
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
        let served = thread::spawn(move || {
            let stop = AtomicBool::new(false);
            let (listener, token, note) = (&listener, &agent, |_: &str| {});
            AgentServer { listener, token, stop: &stop, once: true, work: NoRuns, note }.serve()
        });
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
        let stop = AtomicBool::new(false);
        begins.send(unix_ns(SystemTime::now() + Duration::from_secs(60))).unwrap();
        assert!(await_begin(&begin, &stop).unwrap() > Duration::from_secs(50));
        begins.send(u64::MAX).unwrap();
        assert_eq!(await_begin(&begin, &stop), None, "it would never begin");
        begins.send(0).unwrap();
        assert_eq!(await_begin(&begin, &stop), Some(Duration::ZERO));
        stop.store(true, Ordering::Relaxed);
        assert_eq!(await_begin(&begin, &stop), None);
    }
}
