//! `stag bench --slurm JOB.toml`: one command for all tasks of a Slurm step, whose roles follow
//! from their ranks. The first ranks serve, the others are agents, and the first agent is also the
//! coordinator.
//!
//! Tasks meet in a directory that all nodes share, such as a job's working directory: each writes
//! its listen address there. A task that does not find the others in time ends, and says what it
//! waited for.

use super::agent::hear_all;
use crate::{
    Error, caller,
    replace::{self, Draft},
    stop::Stop,
};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use stag_load::agents::SharedToken;
use std::{
    env, fs, io,
    net::TcpListener,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use toml::{Table, Value};

/// Time for the other tasks to get going.
const MEET_MAX: Duration = Duration::from_secs(120);
/// Interval at which tasks look for each other.
const LOOK: Duration = Duration::from_millis(100);
/// Time for a server to end in order.
const END_MAX: Duration = Duration::from_secs(20);

/// The part of a job file other than the options of a run.
#[derive(Debug, PartialEq)]
struct Roles {
    /// Ranks that serve.
    servers: usize,
    /// Arguments of `stag` on them.
    serve: Vec<String>,
    /// URL to call, with `{server}` for the host of the first server.
    url: String,
}

/// A task's place in its step.
#[derive(Clone, Debug, PartialEq)]
struct Task {
    job: String,
    rank: usize,
    tasks: usize,
    host: String,
}

impl Roles {
    /// Reads the roles from a job file; the run reads the other options.
    fn parse(text: &str) -> Result<Self, String> {
        let table: Table =
            text.parse().map_err(|error: toml::de::Error| error.message().replace('\n', "; "))?;
        let url = table.get("url").and_then(Value::as_str).ok_or("url is missing")?.to_owned();
        let servers = match table.get("servers") {
            None => 1,
            Some(Value::Integer(count)) => {
                usize::try_from(*count).map_err(|_| "servers is a number of ranks")?
            }
            Some(_) => return Err("servers is a number of ranks".to_owned()),
        };
        let serve = match table.get("serve") {
            None if servers == 0 => Vec::new(),
            Some(Value::Array(words)) => {
                let words = words.iter().map(|word| word.as_str().map(str::to_owned));
                words.collect::<Option<Vec<_>>>().ok_or("serve is a list of texts")?
            }
            _ => {
                return Err(
                    "serve is missing: the arguments of 'stag' on ranks that serve, as in \
                            serve = ['serve', '--memory', '1G', '--listen', \
                            'iwarp://0.0.0.0:20049']"
                        .to_owned(),
                );
            }
        };
        Ok(Self { servers, serve, url })
    }
}

impl Task {
    /// This task, as Slurm's environment has it.
    fn here() -> Result<Self, Error> {
        let of = |name: &str| {
            env::var(name).map_err(|_| {
                Error::usage(format!(
                    "{name} is not set: start it as 'srun stag bench --slurm FILE'"
                ))
            })
        };
        let number = |name: &str| {
            of(name)?.parse().map_err(|_| Error::usage(format!("{name} is no number")))
        };
        let step = env::var("SLURM_STEP_ID").unwrap_or_default();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let host = env::var("STAG_HOST").unwrap_or(host);
        let job = format!("{}.{step}", of("SLURM_JOB_ID")?);
        Ok(Self { job, rank: number("SLURM_PROCID")?, tasks: number("SLURM_NTASKS")?, host })
    }
}

/// Does what this task's rank is for.
pub fn run(file: &Path) -> Result<(), Error> {
    let wrong = |why: String| Error::usage(format!("{}: {why}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| wrong(crate::plain(&error)))?;
    let roles = Roles::parse(&text).map_err(wrong)?;
    let task = Task::here()?;
    if task.tasks <= roles.servers {
        return Err(wrong(format!(
            "{} ranks serve, and the step has {} tasks: none is left to measure",
            roles.servers, task.tasks
        )));
    }
    let (home, file) = (PathBuf::from(format!("stag-{}", task.job)), file.to_owned());
    let meeting = Meeting { home, file, task, roles };
    make_private(&meeting.home)
        .map_err(|error| wrong(format!("{}: {}", meeting.home.display(), crate::plain(&error))))?;
    let stop = Stop::by_signals()?;
    match meeting.task.rank {
        rank if rank < meeting.roles.servers => meeting.serve(&stop),
        rank if rank == meeting.roles.servers => meeting.coordinate(&stop),
        _ => meeting.be_agent(&stop),
    }
}

/// Makes `directory`, unless another task has. Its files hold a token and addresses, so it must not
/// belong to another user.
fn make_private(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let found = fs::symlink_metadata(directory)?;
    if found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o002 == 0 {
        return Ok(());
    }
    let why = "it belongs to another user, or all users can write to it: start the step elsewhere";
    Err(io::Error::other(why))
}

/// The place where the tasks of a step meet.
struct Meeting {
    home: PathBuf,
    file: PathBuf,
    task: Task,
    roles: Roles,
}

impl Meeting {
    /// Serves until the run is over.
    fn serve(&self, stop: &Stop) -> Result<(), Error> {
        let ready = self.home.join(format!("ready-{}", self.task.rank));
        let mut command = self.stag(&self.roles.serve)?;
        let child = command.arg("--ready-file").arg(&ready).stdout(Stdio::null()).spawn();
        let mut server = EndingChild(child.map_err(failed)?);
        let ended = self.await_file(stop, None, "the server", || {
            ready.exists() || matches!(server.0.try_wait(), Ok(Some(_)))
        });
        ended?;
        self.say(&format!("server-{}", self.task.rank), &self.task.host)?;
        let done = self.home.join("done");
        // A run may take any time; if the coordinator is killed, the step ends.
        self.await_file(stop, Some(Duration::MAX), "the end of the run", || {
            done.exists() || matches!(server.0.try_wait(), Ok(Some(_)))
        })?;
        match server.0.try_wait() {
            Ok(Some(status)) if !done.exists() => Err(Error::failure(format!(
                "the server of rank {} ended: {status}",
                self.task.rank
            ))),
            _ => Ok(()),
        }
    }

    /// Waits for a coordinator, and makes its runs.
    fn be_agent(&self, stop: &Stop) -> Result<(), Error> {
        let token = self.home.join("token");
        self.await_file(stop, None, "the coordinator", || token.exists())?;
        let token = SharedToken::read(&token)?;
        let listener = TcpListener::bind("0.0.0.0:0").map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        self.say(&format!("agent-{}", self.task.rank), &format!("{}:{port}", self.task.host))?;
        hear_all(&listener, &token, stop, true)
    }

    /// Has all agents make the run, an own one among them.
    fn coordinate(&self, stop: &Stop) -> Result<(), Error> {
        let token = self.home.join("token");
        let random: String =
            caller::random::<32>()?.iter().map(|octet| format!("{octet:02x}")).collect();
        // Under its name it is whole.
        let made = Draft::of(&token, 0o600);
        made.and_then(|made| made.replace(true, |out| out.write_all(random.as_bytes())))
            .map_err(failed)?;
        let done = Done(self.home.clone());
        thread::scope(|scope| {
            let own = scope.spawn(|| self.be_agent(stop));
            let run = self.run_all(stop, &token);
            // If the run failed, the coordinator may never have connected: stop the own agent.
            if run.is_err() {
                stop.flag().store(true, std::sync::atomic::Ordering::Relaxed);
            }
            let own = own.join().unwrap_or_else(|_| Err(Error::failure("the agent panicked")));
            drop(done);
            run.and(own)
        })
    }

    fn run_all(&self, stop: &Stop, token: &Path) -> Result<(), Error> {
        let (servers, tasks) = (self.roles.servers, self.task.tasks);
        let names = |kind: &str, ranks: std::ops::Range<usize>| {
            let files: Vec<_> =
                ranks.map(|rank| self.home.join(format!("{kind}-{rank}"))).collect();
            self.await_file(stop, None, &format!("every {kind} task"), || {
                files.iter().all(|file| file.exists())
            })?;
            files.iter().map(fs::read_to_string).collect::<Result<Vec<_>, _>>().map_err(failed)
        };
        let server = names("server", 0..servers)?.into_iter().next().unwrap_or_default();
        let nodes = names("agent", servers..tasks)?.join(",");
        let mut command = self.stag(&["bench".to_owned()])?;
        command.arg(self.roles.url.replace("{server}", &server)).arg("--job").arg(&self.file);
        command.arg("--nodes").arg(nodes).arg("--token-file").arg(token);
        let mut bench = EndingChild(command.spawn().map_err(failed)?);
        let status = loop {
            if let Some(status) = bench.0.try_wait().map_err(failed)? {
                break status;
            }
            if stop.is_asked() {
                return Err(Error::Stopped("stopped by a signal".to_owned()));
            }
            thread::sleep(LOOK);
        };
        match status.success() {
            true => Ok(()),
            false => Err(Error::failure("the run failed: its own sentence says why")),
        }
    }

    /// This program again.
    fn stag(&self, arguments: &[String]) -> Result<Command, Error> {
        let own = env::current_exe().map_err(failed)?;
        let mut command = Command::new(own);
        command.args(arguments.iter().map(|word| word.replace("{host}", &self.task.host)));
        command.stdin(Stdio::null());
        Ok(command)
    }

    fn say(&self, name: &str, text: &str) -> Result<(), Error> {
        let written = replace::write(&self.home.join(name), |out| out.write_all(text.as_bytes()));
        written.map_err(failed)
    }

    fn await_file(
        &self,
        stop: &Stop,
        patience: Option<Duration>,
        what: &str,
        mut is_there: impl FnMut() -> bool,
    ) -> Result<(), Error> {
        let (began, patience) = (Instant::now(), patience.unwrap_or(MEET_MAX));
        while !is_there() {
            if stop.is_asked() {
                return Err(Error::Stopped(format!("stopped while waiting for {what}")));
            }
            if began.elapsed() > patience {
                return Err(Error::failure(format!(
                    "rank {} waited {} s for {what} in {}: do all nodes have this directory?",
                    self.task.rank,
                    patience.as_secs(),
                    self.home.display()
                )));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// Signals to the servers that the run is over, on any exit.
struct Done(PathBuf);

impl Drop for Done {
    fn drop(&mut self) {
        let _ = replace::write_unsynced(&self.0.join("done"), |_| Ok(()));
        let _ = fs::remove_file(self.0.join("token"));
    }
}

/// A child that is ended in order.
struct EndingChild(Child);

impl Drop for EndingChild {
    fn drop(&mut self) {
        let began = Instant::now();
        while let Ok(None) = self.0.try_wait() {
            let signal = if began.elapsed() < END_MAX { Signal::TERM } else { Signal::KILL };
            let _ = kill_process(Pid::from_child(&self.0), signal);
            thread::sleep(LOOK);
        }
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::failure(crate::plain(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_and_the_options_of_the_run_stand_in_one_file() {
        let roles = Roles::parse(
            "servers = 2\nserve = ['serve', '--memory', '1G']\nurl = 'tcp://{server}:2049/x'\n\
             rate = '5K'\n",
        )
        .unwrap();
        assert_eq!((roles.servers, roles.serve.len()), (2, 3));
        assert_eq!(roles.url, "tcp://{server}:2049/x");
        let none = Roles::parse("servers = 0\nurl = 'tcp://gw:2049/x'").unwrap();
        assert_eq!((none.servers, none.serve.len()), (0, 0));
        for (text, part) in [
            ("servers = 1", "url is missing"),
            ("url = 'x'", "serve is missing"),
            ("url = 'x'\nservers = -1", "a number of ranks"),
            ("url = 'x'\nservers = 'two'", "a number of ranks"),
            ("url = 'x'\nserve = [1]", "a list of texts"),
            ("serve = ", ""),
        ] {
            let why = Roles::parse(text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
