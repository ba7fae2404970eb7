//! Programs of perftest, for figures to compare with ours: a server on the other host, and a
//! measuring client here. Both use the connection manager (`-R`), as Stag does.

use super::{
    line::Line,
    place::DEVICES,
    program::{Question, Reply},
    report::StepGroup,
    steps::{Figures, StepFault, judge},
};
use crate::progress::Progress;
use rustix::fs::{Access, access};
use serde::{Deserialize, Serialize};
use stag_fabrics::FabricAddress;
use stag_protocol::rpcrdma::Versions;
use std::{
    env,
    io::Read,
    net::IpAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// The port at which the programs meet.
const PORT: u16 = 18_516;
/// The time that one program may take.
const RUN_MAX: Duration = Duration::from_secs(30);
/// The time from the start of a waiting program until it listens.
const START: Duration = Duration::from_millis(700);
/// The time that the program of the previous run may take to end on the server.
const BUSY_MAX: Duration = Duration::from_secs(5);
/// Time between two looks at a program.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Octets of the output that is read.
const OUTPUT_MAX: u64 = 1 << 16;
/// The command that installs it.
const INSTALL: &str = "apt-get install perftest";

/// A program of perftest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tool {
    /// `ib_send_lat`: half of the round trip of a Send.
    SendLat,
    /// `ib_read_bw`: RDMA Reads.
    ReadBw,
    /// `ib_write_bw`: RDMA Writes.
    WriteBw,
}

/// The programs, and the octets of each message.
const RUNS: [(Tool, u32); 8] = [
    (Tool::SendLat, 64),
    (Tool::SendLat, 4_096),
    (Tool::ReadBw, 4_096),
    (Tool::ReadBw, 65_536),
    (Tool::ReadBw, 1 << 20),
    (Tool::WriteBw, 4_096),
    (Tool::WriteBw, 65_536),
    (Tool::WriteBw, 1 << 20),
];

impl Tool {
    /// Name of the program.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SendLat => "ib_send_lat",
            Self::ReadBw => "ib_read_bw",
            Self::WriteBw => "ib_write_bw",
        }
    }

    /// The program, if it is installed.
    fn installed(self) -> Option<PathBuf> {
        let paths = env::var_os("PATH")?;
        let mut found = env::split_paths(&paths).map(|folder| folder.join(self.name()));
        found.find(|path| access(path, Access::EXEC_OK).is_ok() && path.is_file())
    }

    /// The figures in its output for messages of `size` octets.
    fn figures(self, size: u32, output: &str) -> Option<Figures> {
        let row = output.lines().find_map(|line| {
            let words: Vec<f64> = line.split_whitespace().map_while(|it| it.parse().ok()).collect();
            (words.len() >= 4 && words.first() == Some(&f64::from(size))).then_some(words)
        })?;
        let of = |name: &str, column: usize| Some((name.to_owned(), *row.get(column)?));
        let columns = match self {
            // Size, iterations, least, most, typical.
            Self::SendLat => vec![of("half_trip_min_us", 2)?, of("half_trip_typical_us", 4)?],
            // Size, iterations, peak, average.
            Self::ReadBw | Self::WriteBw => vec![of("MiB_per_s", 3)?],
        };
        Some(columns.into_iter().collect())
    }
}

/// A run of a program, as the server has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRun {
    /// The program.
    pub tool: Tool,
    /// Octets of a message.
    pub size: u32,
}

/// The answer of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToolStart {
    /// It waits.
    Started,
    /// Another one runs there.
    Busy,
    /// It is not installed there.
    Missing,
    /// It cannot be started, for this reason.
    Failed(String),
}

impl ToolRun {
    fn command(self, program: &Path) -> Command {
        let iterations = if self.size > 65_536 { "500" } else { "2000" };
        let mut command = Command::new(program);
        command.args(["-R", "-F", "-n", iterations, "-s"]).arg(self.size.to_string());
        command.args(["-p", &PORT.to_string()]).stdin(Stdio::null());
        command
    }

    /// Starts the waiting program. It ends with its peer, or after [`RUN_MAX`]. There is one at a
    /// time.
    pub fn start_waiting(self) -> ToolStart {
        let Some(program) = self.tool.installed() else { return ToolStart::Missing };
        let Some(turn) = ToolTurn::take() else { return ToolStart::Busy };
        let mut command = self.command(&program);
        let spawned = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let watch = |mut child: Child| {
            thread::Builder::new().name("perftest".to_owned()).spawn(move || {
                end(&mut child);
                drop(turn);
            })
        };
        match spawned.and_then(watch) {
            Ok(_) => ToolStart::Started,
            Err(error) => ToolStart::Failed(format!("{}: {error}", self.tool.name())),
        }
    }

    /// Runs the measuring program against the one that waits at `server`.
    fn measure(self, program: &Path, server: IpAddr) -> Result<Figures, StepFault> {
        let name = self.tool.name();
        let mut command = self.command(program);
        command.arg(server.to_string()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let readers = [
            thread::spawn(move || out.map(read).unwrap_or_default()),
            thread::spawn(move || err.map(read).unwrap_or_default()),
        ];
        let is_done = end(&mut child);
        let [out, err] = readers.map(|reader| reader.join().unwrap_or_default());
        if !is_done {
            return Err(format!("{name} did not end within {} s", RUN_MAX.as_secs()).into());
        }
        self.tool.figures(self.size, &out).ok_or_else(|| {
            let said = err.lines().chain(out.lines()).find(|line| !line.trim().is_empty());
            format!("{name} measured nothing: {}", said.unwrap_or("it said nothing")).into()
        })
    }
}

/// The turn of a program that waits on this host.
struct ToolTurn;

impl ToolTurn {
    /// Takes it, if no other program has it.
    fn take() -> Option<Self> {
        (!RUNS_HERE.swap(true, Ordering::Relaxed)).then_some(Self)
    }
}

impl Drop for ToolTurn {
    fn drop(&mut self) {
        RUNS_HERE.store(false, Ordering::Relaxed);
    }
}

/// A program that waits runs on this host.
static RUNS_HERE: AtomicBool = AtomicBool::new(false);

/// Asks again while the program of the last run has not ended there.
fn while_busy<E>(mut ask: impl FnMut() -> Result<Reply, E>) -> Result<Reply, E> {
    let began = Instant::now();
    loop {
        let reply = ask()?;
        let is_busy = matches!(reply, Reply::Perftest(ToolStart::Busy));
        if !is_busy || began.elapsed() > BUSY_MAX {
            return Ok(reply);
        }
        thread::sleep(LOOK_INTERVAL);
    }
}

/// Waits for the end of a program, and kills it when its time is over; true if it ended by itself.
fn end(child: &mut Child) -> bool {
    let began = Instant::now();
    while began.elapsed() < RUN_MAX {
        match child.try_wait() {
            Ok(None) => thread::sleep(LOOK_INTERVAL),
            ended => return ended.is_ok(),
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

fn read(from: impl Read) -> String {
    let mut octets = Vec::new();
    // A part of the output has the figures as well.
    let _ = from.take(OUTPUT_MAX).read_to_end(&mut octets);
    String::from_utf8_lossy(&octets).into_owned()
}

/// Runs all programs that both ends have.
pub fn group(at: &FabricAddress, progress: &mut Progress) -> StepGroup {
    let mut group = StepGroup::new("perftest");
    progress.begin(&group.name, None);
    for (tool, size) in RUNS {
        let run = ToolRun { tool, size };
        let step = || {
            let server = at.ip().filter(|_| at.info().scheme == DEVICES).ok_or_else(|| {
                let scheme = at.info().scheme;
                StepFault::Skipped(format!("perftest measures rdma://, and this is {scheme}://"))
            })?;
            let missing = |end: &str| {
                StepFault::Skipped(format!("perftest is not installed {end}: {INSTALL}"))
            };
            let program = tool.installed().ok_or_else(|| missing("here"))?;
            let mut line = Line::connect(at, Versions::One).map_err(|error| error.to_string())?;
            let asked = || line.ask(&Question::Perftest(run));
            match while_busy(asked)? {
                Reply::Perftest(ToolStart::Started) => {}
                Reply::Perftest(ToolStart::Missing) => return Err(missing("at the server")),
                other => return Err(format!("the server says {other:?}").into()),
            }
            thread::sleep(START);
            run.measure(&program, server.ip())
        };
        group.steps.push(judge(format!("{} {size}", tool.name()), step));
    }
    progress.end(&format!("{}: {}", group.name, group.counts()));
    group
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, net::Ipv4Addr};

    #[test]
    fn one_program_waits_at_a_time() {
        let turn = ToolTurn::take().unwrap();
        assert!(ToolTurn::take().is_none());
        drop(turn);
        assert!(ToolTurn::take().is_some());
    }

    #[test]
    fn a_server_that_is_busy_is_asked_again() {
        let mut replies = [ToolStart::Busy, ToolStart::Busy, ToolStart::Missing].into_iter();
        let reply = while_busy(|| Ok::<_, ()>(Reply::Perftest(replies.next().unwrap())));
        assert!(matches!(reply, Ok(Reply::Perftest(ToolStart::Missing))), "{reply:?}");
    }

    /// As perftest prints it.
    const SEND_LAT: &str = "
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]
 64      1000          0.87           4.32         0.92               0.93           0.05
---------------------------------------------------------------------------------------
";
    const READ_BW: &str = "
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      1000             11013.20            11012.35\t\t   0.176198
";

    fn program(home: &Path, text: &str) -> PathBuf {
        let path = home.join("tool");
        // Written by another process: a file that this process has open for writing, as any child
        // of a concurrent test then has, cannot be executed.
        let script = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\"; chmod 755 \"$0\"";
        let made = Command::new("sh").args(["-c", script]).arg(&path).arg(text).status().unwrap();
        assert!(made.success());
        path
    }

    #[test]
    fn figures_are_read_from_the_line_of_their_size() {
        let of = |tool: Tool, size, output: &str| tool.figures(size, output);
        let latency = of(Tool::SendLat, 64, SEND_LAT).unwrap();
        assert_eq!((latency["half_trip_min_us"], latency["half_trip_typical_us"]), (0.87, 0.92));
        assert_eq!(of(Tool::ReadBw, 65_536, READ_BW).unwrap()["MiB_per_s"], 11_012.35);
        assert_eq!(of(Tool::ReadBw, 4_096, READ_BW), None);
        assert_eq!(of(Tool::WriteBw, 64, "64 1000"), None);
    }

    #[test]
    fn a_program_that_measures_nothing_has_failed_with_its_words() {
        let home = tempfile::tempdir().unwrap();
        let run = ToolRun { tool: Tool::ReadBw, size: 65_536 };
        let to = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let says = program(home.path(), "echo 65536 1000 1.0 2.5 0.1; echo \"$@\" > \"$0.words\"");
        assert_eq!(run.measure(&says, to).unwrap()["MiB_per_s"], 2.5);
        let words = fs::read_to_string(home.path().join("tool.words")).unwrap();
        assert_eq!(words, "-R -F -n 2000 -s 65536 -p 18516 127.0.0.1\n");
        let fails = program(home.path(), "echo no device >&2; exit 1");
        let failed = run.measure(&fails, to).unwrap_err();
        let expected = "ib_read_bw measured nothing: no device".to_owned();
        assert_eq!(failed, StepFault::Failed(expected));
    }
}
