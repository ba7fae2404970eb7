//! Ours, as a user runs it: `stag echo` or `stag serve` on one core, `stag bench` on another.

use crate::{
    contender::{Absence, Contender, Reading},
    files_place::FilesPlace,
    processor::ProcessWatch,
    site::{MeasuringSite, RunningServer, is_root, shown},
    way::{IWARP, Way},
};
use stag_load::RunOutcome;
use std::{process::Command, time::Duration};

/// Program that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedProgram {
    /// The echo program.
    Echo,
    /// NFS, files in memory.
    Memory,
    /// NFS, a directory of files.
    Files(FilesPlace),
}

impl ServedProgram {
    /// Name of the export; none of a program that has none.
    const fn export(self) -> Option<&'static str> {
        match self {
            Self::Echo => None,
            Self::Memory => Some("memory"),
            Self::Files(_) => Some("files"),
        }
    }
}

/// A run of `stag bench`.
#[derive(Clone, Debug)]
pub struct StagBench {
    /// The workload, its size and its depth, as options.
    options: Vec<String>,
    times: BenchTimes,
    /// The server's time is asked for, too.
    by_processor: bool,
}

/// Times of a run that are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BenchTimes {
    /// From when a call was made.
    Service,
    /// From when it was meant to be.
    Response,
}

impl StagBench {
    /// These options, parted by blanks. Round trips are service times: from when a call was made.
    pub fn new(options: &str) -> Self {
        Self {
            options: options.split_whitespace().map(str::to_owned).collect(),
            times: BenchTimes::Service,
            by_processor: false,
        }
    }

    /// The same; [`run_on`](Self::run_on) then counts the microseconds for which the server's
    /// threads had a core, for each call.
    #[must_use]
    pub fn by_processor(self) -> Self {
        Self { by_processor: true, ..self }
    }

    /// The same with response times: from when a call was meant to be made.
    #[must_use]
    pub fn by_response(self) -> Self {
        Self { times: BenchTimes::Response, ..self }
    }

    /// Returns true if the calls are of NFS version 4.
    pub fn is_nfs4(&self) -> bool {
        self.options.iter().any(|option| option.starts_with("nfs4:"))
    }

    /// Against `url`, on the client's core.
    pub fn command(&self, site: &MeasuringSite, url: &str) -> Command {
        let mut command = site.on_core(site.client, &site.stag);
        let seconds = |part: f64| format!("{:.3}", site.turn.as_secs_f64() * part);
        command.args(["bench", url]).args(&self.options);
        command.args(["--warm-up", &seconds(0.2), "--duration", &seconds(1.0), "--json", "-"]);
        command
    }

    /// Runs once against `url`, and returns the reading.
    ///
    /// # Errors
    /// When a call fails, or the result cannot be read.
    pub fn run(&self, site: &MeasuringSite, url: &str) -> Result<Reading, String> {
        let outcome = RunOutcome::parse(&site.run(self.command(site, url))?)?;
        Ok(self.reading(&outcome))
    }

    /// As [`run`](Self::run), and watches the server's process meanwhile if it is asked for.
    ///
    /// # Errors
    /// As [`run`](Self::run), and when the server does not live all the time.
    pub fn run_on(
        &self,
        site: &MeasuringSite,
        url: &str,
        server: &RunningServer,
    ) -> Result<Reading, String> {
        if !self.by_processor {
            return self.run(site, url);
        }
        let watch = ProcessWatch::begin(server.id());
        let outcome = RunOutcome::parse(&site.run(self.command(site, url))?)?;
        let seconds = |seconds: f64| Duration::from_secs_f64(seconds.clamp(0.0, 1e11));
        let began = seconds(outcome.began_unix_s + outcome.setup.warm_up_s);
        let used = watch.used_between(began, began + seconds(outcome.elapsed_s))?;
        let count = used.as_secs_f64() * 1e6 / outcome.calls.max(1) as f64;
        Ok(Reading { count: Some(count), ..self.reading(&outcome) })
    }

    fn reading(&self, outcome: &RunOutcome) -> Reading {
        let times = match self.times {
            BenchTimes::Service => &outcome.service,
            BenchTimes::Response => &outcome.response,
        };
        let nanos = |name| times.percentile(name).map(|micros| micros * 1e3);
        Reading {
            p50_ns: nanos("p50"),
            p99_ns: nanos("p99"),
            calls_per_s: Some(outcome.calls_per_s),
            octets_per_s: Some(outcome.octets_per_s).filter(|octets| *octets > 0.0),
            count: None,
        }
    }
}

/// Ours.
#[derive(Debug)]
pub struct Stag {
    way: Way,
    served: ServedProgram,
    bench: StagBench,
    /// The server, and where it is.
    server: Option<(RunningServer, String)>,
    commands: Vec<String>,
}

impl Stag {
    /// `stag bench` with these options by `way`.
    pub fn new(way: Way, served: ServedProgram, options: &str) -> Self {
        Self { way, served, bench: StagBench::new(options), server: None, commands: Vec::new() }
    }

    /// The URL of what is measured, and the server's process. None before it was started.
    pub fn server(&self) -> Option<(&str, u32)> {
        self.server.as_ref().map(|(running, url)| (url.as_str(), running.id()))
    }
}

/// Starts a server of ours on the server's core; and the URL by which it is called.
///
/// # Errors
/// When it does not start.
pub fn serve(
    site: &MeasuringSite,
    way: Way,
    served: ServedProgram,
    commands: &mut Vec<String>,
) -> Result<(RunningServer, String), Absence> {
    let mut command = site.on_core(site.server, &site.stag);
    let url = way.listen(site);
    let tcp = url.strip_prefix("tcp://");
    // A server listens on a fabric in any case.
    let (listen, sign) = match tcp {
        Some(_) => (IWARP.listen(site), "TCP "),
        None => (url.clone(), "LISTEN "),
    };
    match served {
        ServedProgram::Echo => command.args(["echo"]),
        ServedProgram::Memory => command.args(["serve", "--memory", "256M"]),
        ServedProgram::Files(place) => {
            let directory = place.directory(site)?;
            commands.push(directory.remark());
            command.arg("serve").arg(&directory.files).args(["--name", "files"]);
            // The caller is root as well, and NFS-Ganesha has all callers act as root.
            command.args(is_root().then_some(["--squash", "none"]).into_iter().flatten());
            command.arg("--state-dir").arg(&directory.state)
        }
    };
    command.args(["--listen", &listen, "--tcp", tcp.unwrap_or("none")]);
    command.args(way.inline.iter().flat_map(|len| ["--inline", len]));
    commands.push(shown(&command));
    let (running, at) = site.serve(command, |line| line.strip_prefix(sign).map(str::to_owned))?;
    let at = if tcp.is_some() { format!("tcp://{at}") } else { at };
    let url = match (served.export(), at.split_once('?')) {
        (None, _) => at,
        // A socket's export comes after a colon and before the query.
        (Some(export), Some((socket, query))) => format!("{socket}:/{export}?{query}"),
        (Some(export), None) if at.starts_with("shm") => format!("{at}:/{export}"),
        (Some(export), None) => format!("{at}/{export}"),
    };
    Ok((running, url))
}

impl Contender for Stag {
    fn name(&self) -> String {
        match self.served {
            ServedProgram::Echo | ServedProgram::Memory => format!("Stag, {}", self.way.name()),
            ServedProgram::Files(place) => {
                format!("Stag, {}, files on {}", self.way.name(), place.name())
            }
        }
    }

    fn commands(&self) -> Vec<String> {
        self.commands.clone()
    }

    fn start(&mut self, site: &MeasuringSite) -> Result<(), Absence> {
        let (running, url) = serve(site, self.way, self.served, &mut self.commands)?;
        self.commands.push(shown(&self.bench.command(site, &url)));
        self.server = Some((running, url));
        Ok(())
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        let (_, url) = self.server.as_ref().ok_or("it was not started")?;
        self.bench.run(site, url)
    }
}
