//! A server that receives no calls: the time that its core is busy (G13).

use crate::{
    contender::{Absence, Contender, Reading},
    processor::used,
    site::{MeasuringSite, RunningServer},
    stag::{ServedProgram, serve},
    way::Way,
};
use std::{
    thread,
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
        let (before, began) = (used(running.id())?, Instant::now());
        thread::sleep(TIME);
        let used = used(running.id())?.saturating_sub(before);
        Ok(Reading::counted(used.as_nanos() as f64 / began.elapsed().as_nanos() as f64 * 100.0))
    }
}
