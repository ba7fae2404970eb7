//! Distance of the slow calls from the median while a server runs at half of its peak (G12).

use crate::{
    contender::{Absence, Contender, Reading},
    site::{MeasuringSite, RunningServer, shown},
    stag::{ServedProgram, StagBench, serve},
    way::Way,
};

/// Calls at a time of the closed loop that finds the peak.
const DEPTH: usize = 32;

/// Round trips of an open loop at half of the peak, which each round finds again: from when a call
/// was meant to go out.
#[derive(Debug)]
pub struct HalfOfPeak {
    way: Way,
    server: Option<(RunningServer, String)>,
    commands: Vec<String>,
}

impl HalfOfPeak {
    /// Of a server that is called this way.
    pub const fn new(way: Way) -> Self {
        Self { way, server: None, commands: Vec::new() }
    }
}

impl Contender for HalfOfPeak {
    fn name(&self) -> String {
        format!("Stag, {}", self.way.name())
    }

    fn commands(&self) -> Vec<String> {
        self.commands.clone()
    }

    fn start(&mut self, site: &MeasuringSite) -> Result<(), Absence> {
        self.server = Some(serve(site, self.way, ServedProgram::Echo, &mut self.commands)?);
        Ok(())
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        let (_, url) = self.server.as_ref().ok_or("it was not started")?;
        let peak = StagBench::new(&format!("--workload null --depth {DEPTH}"));
        let rate = peak.run(site, url)?.calls_per_s.ok_or("the closed loop made no calls")? / 2.0;
        let options = format!("--workload null --rate {rate:.0} --arrivals uniform --depth 256");
        let half = StagBench::new(&options).by_response();
        self.commands.truncate(1);
        self.commands.extend([&peak, &half].map(|bench| shown(&bench.command(site, url))));
        half.run(site, url)
    }
}
