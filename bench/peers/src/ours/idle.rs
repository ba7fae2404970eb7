//! A server that nobody calls: what its core does (G13).

use crate::{
    contender::{Absence, Contender, Reading},
    site::{MeasuringSite, RunningServer},
    stag::{ServedProgram, serve},
    way::Way,
};
use std::{
    fs, thread,
    time::{Duration, Instant},
};

/// Time for which the server is watched.
const TIME: Duration = Duration::from_secs(2);
/// Time that the server may take to fall asleep.
const SETTLE: Duration = Duration::from_millis(200);

/// Hundredths of a core that a server of ours uses while it is idle.
#[derive(Debug)]
pub struct IdleServer {
    way: Way,
    server: Option<(RunningServer, String)>,
    commands: Vec<String>,
}

impl IdleServer {
    /// A server that is called this way.
    pub const fn new(way: Way) -> Self {
        Self { way, server: None, commands: Vec::new() }
    }
}

impl Contender for IdleServer {
    fn name(&self) -> String {
        format!("Stag, {}", self.way.name())
    }

    fn commands(&self) -> Vec<String> {
        self.commands.clone()
    }

    fn start(&mut self, site: &MeasuringSite) -> Result<(), Absence> {
        self.server = Some(serve(site, self.way, ServedProgram::Memory, &mut self.commands)?);
        thread::sleep(SETTLE);
        Ok(())
    }

    fn measure(&mut self, _site: &MeasuringSite) -> Result<Reading, String> {
        let (running, _) = self.server.as_ref().ok_or("it was not started")?;
        let (before, began) = (used(running)?, Instant::now());
        thread::sleep(TIME);
        let used = used(running)?.saturating_sub(before);
        Ok(Reading::counted(used.as_nanos() as f64 / began.elapsed().as_nanos() as f64 * 100.0))
    }
}

/// Time that all threads of a process had a core.
fn used(process: &RunningServer) -> Result<Duration, String> {
    let folder = format!("/proc/{}/task", process.id());
    let threads = fs::read_dir(&folder).map_err(|error| format!("{folder}: {error}"))?;
    let times = threads.flatten().filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    });
    Ok(times.sum())
}
