//! Many connections: the time of a call among them (G10), and the memory that an idle one costs a
//! server (G11).

use super::ends::{self, Calls, Processes};
use crate::{
    contender::{Absence, Contender, Reading},
    site::{MeasuringSite, RunningServer, shown},
    way::Way,
};
use std::fs;

/// One call at a time, over some of as many connections as there are.
#[derive(Debug)]
pub struct Among {
    way: Way,
    calls: Calls,
    connections: usize,
    processes: Option<Processes>,
}

impl Among {
    /// Measures calls among `connections` connections.
    pub const fn new(way: Way, calls: Calls, connections: usize) -> Self {
        Self { way, calls, connections, processes: None }
    }
}

impl Contender for Among {
    fn name(&self) -> String {
        match self.connections {
            1 => "Stag with 1 connection".to_owned(),
            many => format!("Stag with {many} connections"),
        }
    }

    fn commands(&self) -> Vec<String> {
        self.processes.as_ref().map(|processes| processes.commands.clone()).unwrap_or_default()
    }

    fn start(&mut self, site: &MeasuringSite) -> Result<(), Absence> {
        // Both sides are made alike, but for how many connections are made.
        let mut processes = Processes::start(site, self.way, self.connections.max(8))?;
        processes.connect(self.connections).map_err(Absence::Failed)?;
        self.processes = Some(processes);
        Ok(())
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        self.processes.as_mut().ok_or("it was not started")?.measure(self.calls, site)
    }
}

/// Octets of a server's memory that each of many idle connections has. All of its pools are touched
/// when it starts.
#[derive(Debug)]
pub struct IdleMemory {
    way: Way,
    connections: usize,
    commands: Vec<String>,
}

impl IdleMemory {
    /// Measures the memory of each of `connections` connections.
    pub const fn new(way: Way, connections: usize) -> Self {
        Self { way, connections, commands: Vec::new() }
    }
}

impl Contender for IdleMemory {
    fn name(&self) -> String {
        format!("Stag, {}", self.way.name())
    }

    fn commands(&self) -> Vec<String> {
        self.commands.clone()
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        let started = Processes::start(site, self.way, self.connections + 64);
        let mut processes = started.map_err(|absence| absence.to_string())?;
        self.commands.clone_from(&processes.commands);
        // What happens once happens here: code is loaded, each kind of table has its first entry.
        processes.connect(32)?;
        processes.measure(Calls::OverAny, site)?;
        let before = resident(&processes.server)?;
        processes.connect(self.connections)?;
        let after = resident(&processes.server)?;
        Ok(Reading::counted(after.saturating_sub(before) as f64 / self.connections as f64))
    }
}

/// Octets that a process has touched.
fn resident(process: &RunningServer) -> Result<u64, String> {
    let file = format!("/proc/{}/smaps_rollup", process.id());
    let rollup = fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib * 1_024).ok_or_else(|| format!("{file} does not say how much is resident"))
}

/// 1 MiB pushed into Write chunks, with or without CRCs (the second part of G6).
#[derive(Debug)]
pub struct Pushed {
    way: Way,
    depth: usize,
    server: Option<(RunningServer, String)>,
    commands: Vec<String>,
}

impl Pushed {
    /// Makes `depth` calls at a time.
    pub const fn new(way: Way, depth: usize) -> Self {
        Self { way, depth, server: None, commands: Vec::new() }
    }

    fn command(&self, site: &MeasuringSite, at: &str) -> std::process::Command {
        let mut command = site.part(site.client, "pull");
        command.args(ends::arguments(self.way, at, 8)).args(["--depth", &self.depth.to_string()]);
        command.args(["--seconds", &format!("{:.3}", site.turn.as_secs_f64())]);
        command
    }
}

impl Contender for Pushed {
    fn name(&self) -> String {
        format!("Stag, {}", self.way.name())
    }

    fn commands(&self) -> Vec<String> {
        self.commands.clone()
    }

    fn start(&mut self, site: &MeasuringSite) -> Result<(), Absence> {
        let (running, at, typed) = ends::start_server(site, self.way, 8)?;
        self.commands = vec![typed, shown(&self.command(site, &at))];
        self.server = Some((running, at));
        Ok(())
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        let (_, at) = self.server.as_ref().ok_or("it was not started")?;
        let said = site.run(self.command(site, at))?;
        let rate = said.trim().parse().map_err(|_| format!("{said:?} is no rate"))?;
        Ok(Reading { octets_per_s: Some(rate), ..Reading::default() })
    }
}
