//! Site of measurements: a core for each side, a directory for sockets, and the programs that it
//! starts and ends.

use crate::{
    contender::Absence,
    mounts::{self, SHARED_MEMORY},
};
use rustix::{
    process::{Pid, Signal, kill_process},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use std::{
    env,
    ffi::OsStr,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Prefix of the name of a site's directory.
const HOME: &str = "stag-peers-";
/// Attempts of an ending process to remove a directory.
const REMOVALS: usize = 20;
/// Time that a program may take to end once asked to.
const PATIENCE: Duration = Duration::from_secs(3);

/// The cores of the two ends of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Seats {
    /// Core of the end that answers.
    pub server: usize,
    /// Core of the end that asks.
    pub client: usize,
}

/// Site of measurements.
#[derive(Debug)]
pub struct MeasuringSite {
    /// The core of the side that answers.
    pub server: usize,
    /// The core of the side that calls.
    pub client: usize,
    /// Duration of one measurement.
    pub turn: Duration,
    /// `stag`, of this source.
    pub stag: PathBuf,
    own: PathBuf,
    home: TempDir,
    /// A directory like it on tmpfs, if there is one.
    tmpfs: Option<TempDir>,
}

impl MeasuringSite {
    /// The first and the last core that this process may use, and the programs next to it.
    ///
    /// # Errors
    /// When there are fewer than two cores, or no place for files.
    pub fn new(turn: Duration) -> Result<Self, String> {
        let cores = cores();
        let (Some(server), Some(client)) = (cores.first().copied(), cores.last().copied()) else {
            return Err("this process may use no core".to_owned());
        };
        if server == client {
            return Err(
                "two cores are needed, one for each side, and this process may use one".to_owned()
            );
        }
        let own =
            env::current_exe().map_err(|error| format!("this program cannot be found: {error}"))?;
        let home = TempDir::with_prefix(HOME)
            .map_err(|error| format!("no temporary directory: {error}"))?;
        let shared_memory = Path::new(SHARED_MEMORY);
        let is_tmpfs = mounts::file_system(shared_memory).is_some_and(|it| it == "tmpfs");
        let tmpfs = is_tmpfs.then(|| TempDir::with_prefix_in(HOME, shared_memory).ok()).flatten();
        Ok(Self { server, client, turn, stag: own.with_file_name("stag"), own, home, tmpfs })
    }

    /// A program of this source.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.own.with_file_name(name)
    }

    /// Has SIGINT, SIGTERM and SIGHUP end this process and remove its directories. What it started
    /// ends with it.
    ///
    /// # Errors
    /// As `sigaction(2)` and threads fail.
    pub fn remove_on_signals(&self) -> io::Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let homes: Vec<_> =
            [Some(self.home()), self.tmpfs()].into_iter().flatten().map(Path::to_owned).collect();
        let wait = move || {
            let Some(signal) = signals.forever().next() else { return };
            // A server that still starts may add a file meanwhile.
            for _ in 0..REMOVALS {
                homes.iter().for_each(|home| drop(std::fs::remove_dir_all(home)));
                if homes.iter().all(|home| !home.exists()) {
                    break;
                }
                thread::sleep(Duration::from_millis(20));
            }
            std::process::exit(128 + signal);
        };
        thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop)
    }

    /// The cores of the two ends.
    pub const fn seats(&self) -> Seats {
        Seats { server: self.server, client: self.client }
    }

    /// A directory that goes with the site, for sockets and configurations.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// The same on tmpfs; none if this host has none in [`SHARED_MEMORY`].
    pub fn tmpfs(&self) -> Option<&Path> {
        self.tmpfs.as_ref().map(TempDir::path)
    }

    /// Finds a program, or says which package has it.
    ///
    /// # Errors
    /// [`Absence::Missing`].
    pub fn find(&self, program: &str, package: &str) -> Result<PathBuf, Absence> {
        let paths = env::var_os("PATH").unwrap_or_default();
        // Daemons are where a user's path may not lead.
        let all =
            env::split_paths(&paths).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
        all.map(|path| path.join(program)).find(|file| file.is_file()).ok_or_else(|| {
            Absence::Missing { program: program.to_owned(), package: package.to_owned() }
        })
    }

    /// A command that runs on one core, and ends when this process does.
    pub fn on_core(&self, core: usize, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(&self.own);
        command.arg("seat").arg(core.to_string()).arg("--").arg(program).stdin(Stdio::null());
        command
    }

    /// A part of this program, as a process on one core.
    pub fn part(&self, core: usize, name: &str) -> Command {
        let mut command = self.on_core(core, &self.own);
        command.arg(name);
        command
    }

    /// Starts a server on its core, and waits until its standard output has a line for which
    /// `ready` gives something.
    ///
    /// # Errors
    ///
    /// When it does not start, or ends before that line. What it says on standard error is
    /// in the words.
    pub fn serve<T>(
        &self,
        mut command: Command,
        mut ready: impl FnMut(&str) -> Option<T>,
    ) -> Result<(RunningServer, T), Absence> {
        let said = self.home().join(format!("stderr-{}", unique()));
        let file = std::fs::File::create(&said).map_err(Absence::failed)?;
        command.stdout(Stdio::piped()).stderr(file);
        let mut running = RunningServer::start(&mut command).map_err(Absence::failed)?;
        let mut lines =
            BufReader::new(running.stdout().ok_or_else(|| Absence::failed("no pipe"))?).lines();
        let found = lines.by_ref().map_while(Result::ok).find_map(|line| ready(&line));
        let Some(found) = found else {
            let said = std::fs::read_to_string(&said).unwrap_or_default();
            return Err(Absence::failed(format!(
                "{} ended: {}",
                shown(&command),
                last_line(&said)
            )));
        };
        // Its later output is drained, so that it never blocks on a full pipe.
        thread::spawn(move || lines.for_each(drop));
        Ok((running, found))
    }

    /// Runs a program to its end; its standard output.
    ///
    /// # Errors
    /// When it cannot run or fails, with its last line on standard error.
    pub fn run(&self, mut command: Command) -> Result<String, String> {
        let output = command.output().map_err(|error| format!("{}: {error}", shown(&command)))?;
        if output.status.success() {
            return String::from_utf8(output.stdout)
                .map_err(|_| "its output is no text".to_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("{} failed: {}", shown(&command), last_line(&said)))
    }
}

/// Returns true if this process acts as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The cores that this process may use.
pub fn cores() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
}

/// Pins this thread.
///
/// # Errors
/// As `sched_setaffinity(2)`.
pub fn pin(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    if core >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// A command as one would type it: a core is that of `taskset`.
pub fn shown(command: &Command) -> String {
    let words: Vec<_> = [command.get_program()].into_iter().chain(command.get_args()).collect();
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let words = match words.split_first() {
        Some((_, [seat, core, dashes, rest @ ..])) if seat == "seat" && dashes == "--" => {
            let taskset = ["taskset".into(), "-c".into(), core.clone()];
            taskset.into_iter().chain(rest.iter().cloned()).collect()
        }
        _ => words,
    };
    // The name is enough for a program next to this one.
    let short = |word: &str| match word.rsplit_once("/release/") {
        Some((_, name)) if !word.contains("://") => name.to_owned(),
        _ if word.contains(['?', '&', ' ', '*']) => format!("'{word}'"),
        _ => word.to_owned(),
    };
    words.iter().map(|word| short(&somewhere(word))).collect::<Vec<_>>().join(" ")
}

/// A word with a place in a site's directory, which is gone when it is read.
fn somewhere(word: &str) -> String {
    let place = word
        .split_once(&format!("/{HOME}"))
        .and_then(|(above, rest)| Some((above, rest.split_once('/')?.1)));
    place.map_or_else(|| word.to_owned(), |(above, name)| format!("{above}/{name}"))
}

fn last_line(text: &str) -> &str {
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing")
}

/// A number that no other call gets.
pub fn unique() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A program that runs until this is dropped.
#[derive(Debug)]
pub struct RunningServer(Child);

impl RunningServer {
    /// Starts it. Fails as `fork(2)` and `exec(2)` do.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        command.spawn().map(Self)
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Its standard input and output, when they are pipes that have not been taken yet.
    pub fn pipes(&mut self) -> Option<(ChildStdin, ChildStdout)> {
        Some((self.0.stdin.take()?, self.0.stdout.take()?))
    }

    fn stdout(&mut self) -> Option<ChildStdout> {
        self.0.stdout.take()
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let began = Instant::now();
        while let Ok(None) = self.0.try_wait() {
            if began.elapsed() > PATIENCE {
                let _ = self.0.kill();
                let _ = self.0.wait();
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Takes a core, asks to be ended with the process that started this one, and becomes another
/// program. It comes back with an error only.
pub fn become_seated(core: usize, program: &[std::ffi::OsString]) -> io::Error {
    use std::os::unix::process::CommandExt;
    let Some((program, arguments)) = program.split_first() else {
        return io::ErrorKind::InvalidInput.into();
    };
    let prepared = pin(core)
        .and_then(|()| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?));
    match prepared {
        Ok(()) => Command::new(program).args(arguments).exec(),
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        let mut command = Command::new("/a/target/release/stag-peers");
        command.args([
            "seat",
            "3",
            "--",
            "/a/target/release/stag",
            "echo",
            "--listen",
            "shm:///tmp/x?trust=uid",
        ]);
        assert_eq!(shown(&command), "taskset -c 3 stag echo --listen 'shm:///tmp/x?trust=uid'");
        let mut command = Command::new("stag");
        command.arg("bench").arg("shm:///tmp/stag-peers-x1Y2/0.sock:/memory");
        assert_eq!(shown(&command), "stag bench shm:///tmp/0.sock:/memory");
        let mut command = Command::new("ganesha.nfsd");
        command.args(["-f", "a file"]);
        assert_eq!(shown(&command), "ganesha.nfsd -f 'a file'");
    }

    #[test]
    fn what_is_not_installed_is_named_with_its_package() {
        let Ok(site) = MeasuringSite::new(Duration::ZERO) else {
            return println!("skipped: this process may use one core");
        };
        assert!(site.find("sh", "dash").is_ok());
        let absence = site.find("no-such-program", "its-package").unwrap_err();
        assert_eq!(
            absence.to_string(),
            "no-such-program is not installed (apt-get install its-package)"
        );
    }

    #[test]
    fn a_program_that_does_not_get_ready_is_quoted() {
        let Ok(site) = MeasuringSite::new(Duration::ZERO) else {
            return println!("skipped: this process may use one core");
        };
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo it breaks >&2"]);
        let absence = site.serve(command, |line| line.strip_prefix("READY").map(drop)).unwrap_err();
        assert!(absence.to_string().ends_with("ended: it breaks"), "{absence}");
        let mut command = Command::new("sh");
        command.args(["-c", "echo no; exit 3"]);
        assert!(site.run(command).unwrap_err().ends_with("failed: it said nothing"));
    }

    #[test]
    fn a_program_ends_with_the_value() {
        let Ok(site) = MeasuringSite::new(Duration::ZERO) else {
            return println!("skipped: this process may use one core");
        };
        let mut command = Command::new("sh");
        command.args(["-c", "echo READY; exec sleep 60"]);
        let (running, ()) = site.serve(command, |line| (line == "READY").then_some(())).unwrap();
        let folder = PathBuf::from(format!("/proc/{}", running.id()));
        assert!(folder.exists());
        drop(running);
        assert!(!folder.exists());
    }
}
