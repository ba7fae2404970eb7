//! Gateway of the demo: this binary as a child process, on a temporary directory that is removed at
//! every kind of end.

use crate::{Error, args::address, caller::aside, signals};
use rustix::{
    fs::OFlags,
    process::{Pid, Signal, kill_process},
};
use serde_json::Value;
use signal_hook::{consts::SIGUSR1, iterator::Signals};
use stag_fabrics::FabricAddress;
use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::{fs::OpenOptionsExt, process::CommandExt},
    path::PathBuf,
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Time that a server may take to be ready, or to write its counters.
const PATIENCE: Duration = Duration::from_secs(20);
/// Interval at which the demo looks for a file.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// Exit code of a command that a signal ended, as shells have it for SIGINT.
const INTERRUPTED: i32 = 130;

/// Resources that have to be gone when the demo ends.
#[derive(Debug, Default)]
struct Held {
    child: Option<Child>,
    home: Option<TempDir>,
}

/// The child and the directory. The last owner, or an interrupt, removes them.
#[derive(Clone, Debug)]
pub struct Custody(Arc<Mutex<Held>>);

/// A server that is ready.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Address at which the server is called.
    pub at: FabricAddress,
    /// From the start of the process to READY.
    pub start: Duration,
}

impl Custody {
    /// A directory of our own, and a thread that cleans up when a signal comes.
    pub fn new() -> Result<Self, Error> {
        let home = tempfile::Builder::new().prefix("stag-demo-").tempdir();
        let home = home.map_err(|error| {
            Error::failure(format!("cannot make a temporary directory: {error}"))
        })?;
        let custody = Self(Arc::new(Mutex::new(Held { child: None, home: Some(home) })));
        let failed =
            |error: std::io::Error| Error::failure(format!("cannot wait for signals: {error}"));
        signals::ignore(signals::strays().into_iter().chain([SIGUSR1])).map_err(failed)?;
        let mut signals = Signals::new(signals::stopping()).map_err(failed)?;
        let held = custody.clone();
        let wait = move || {
            if signals.forever().next().is_some() {
                held.clear();
                aside("stag: interrupted; the server of the demo and its directory are gone\n");
                std::process::exit(INTERRUPTED);
            }
        };
        thread::Builder::new().name("signals".to_owned()).spawn(wait).map_err(failed)?;
        Ok(custody)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> Result<PathBuf, Error> {
        let held = self.held();
        let home = held.home.as_ref().ok_or_else(|| Error::failure("the demo was interrupted"))?;
        Ok(home.path().join(name))
    }

    /// Starts `stag serve` with `arguments`, which share `state` with earlier servers, at `at`, and
    /// waits until it is ready.
    pub fn start(
        &self,
        arguments: &[String],
        state: &str,
        at: &FabricAddress,
    ) -> Result<Ready, Error> {
        let began = Instant::now();
        let failed =
            |error: std::io::Error| Error::failure(format!("cannot start the server: {error}"));
        let (state, stats, log) =
            (self.path(state)?, self.path("stats.json")?, self.path("server.log")?);
        let mut options = File::options();
        options.create(true).append(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let log = options.open(log).map_err(failed)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg("serve").args(arguments).arg("--while-stdin").arg("--stats").arg(stats);
        // A store in memory keeps nothing for a restart.
        if !arguments.iter().any(|it| it == "--memory") {
            command.arg("--state-dir").arg(state);
        }
        command.args(["--listen", &at.to_string(), "--tcp", "none"]);
        command.env_remove("NOTIFY_SOCKET").env("STAG_LOG", "warn");
        // In a process group of its own it does not get the terminal's Ctrl-C; it stops when its
        // standard input, which we hold open, is closed.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).process_group(0);
        let mut held = self.held();
        if held.home.is_none() {
            return Err(Error::failure("the demo was interrupted"));
        }
        let mut child = command.spawn().map_err(failed)?;
        let out = child.stdout.take();
        held.child = Some(child);
        drop(held);
        let at = out.and_then(|out| listening(&lines(out))).ok_or_else(|| {
            Error::failure(format!("the server of the demo does not start: {}", self.last_words()))
        })?;
        Ok(Ready { at, start: began.elapsed() })
    }

    /// Kills the server (SIGKILL) and waits until it is gone.
    pub fn kill(&self) {
        if let Some(mut child) = self.held().child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Returns the exit status of a server that ended by itself.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.held().child.as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    /// Returns the counters of the running server so far.
    pub fn counters(&self) -> Result<Value, Error> {
        let file = self.path("stats.json")?;
        let _ = fs::remove_file(&file);
        if let Some(child) = &self.held().child {
            let _ = kill_process(Pid::from_child(child), Signal::USR1);
        }
        let start = Instant::now();
        while !file.exists() {
            if start.elapsed() > PATIENCE {
                return Err(Error::failure("the server of the demo writes no counters"));
            }
            thread::sleep(LOOK_INTERVAL);
        }
        let text = fs::read(&file).unwrap_or_default();
        serde_json::from_slice(&text).map_err(|error| {
            Error::failure(format!("the server's counters cannot be read: {error}"))
        })
    }

    /// The last lines of the server's log, in one.
    pub fn last_words(&self) -> String {
        let log = self.path("server.log").and_then(|path| {
            fs::read_to_string(path).map_err(|error| Error::failure(error.to_string()))
        });
        let log = log.unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(3).collect();
        if lines.is_empty() {
            "it says nothing".to_owned()
        } else {
            lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
        }
    }

    /// Returns true if the server and its directory were removed, because a signal came or the demo
    /// was aborted. The thread that removed them ends the process and says why.
    pub fn is_cleared(&self) -> bool {
        self.held().home.is_none()
    }

    /// Removes the server and the directory. Nothing is started any more.
    pub fn clear(&self) {
        let mut held = self.held();
        if let Some(mut child) = held.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        drop(held.home.take());
    }
}

/// Reads lines in a thread, so that waiting for them can time out. It reads to the end, so that the
/// server never blocks on its output.
fn lines(out: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    receiver
}

/// The address in the READY block.
fn listening(lines: &Receiver<String>) -> Option<FabricAddress> {
    let end = Instant::now() + PATIENCE;
    let mut at = None;
    loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) if line == "END" => return at,
            Ok(line) => at = at.or_else(|| address::listen(line.strip_prefix("LISTEN ")?).ok()),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
        }
    }
}
