//! UCX, by the program that measures it: `ucx_perftest`. Active messages of 64 octets, without RPC
//! and without replies.

use super::{free_port, is_listening};
use crate::{
    contender::{Absence, Contender, Reading},
    site::{MeasuringSite, RunningServer, shown},
};
use std::{
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Messages of the run that says how many make a turn.
const FIRST: u64 = 20_000;
/// Time that the server may take to listen.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between whom messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UcxTransport {
    /// Processes that share memory.
    SharedMemory,
    /// TCP sockets over loopback.
    Tcp,
}

impl UcxTransport {
    /// Returns the environment variables that choose this transport in UCX.
    const fn environment(self) -> &'static [&'static str] {
        match self {
            Self::SharedMemory => &["UCX_TLS=posix,sysv,self"],
            Self::Tcp => &["UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo"],
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::SharedMemory => "shared memory",
            Self::Tcp => "TCP",
        }
    }
}

/// Kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// A message there and one back.
    RoundTrip,
    /// Messages in one direction, as many as go.
    Rate,
}

impl Test {
    const fn name(self) -> &'static str {
        match self {
            Self::RoundTrip => "ucp_am_lat",
            Self::Rate => "ucp_am_bw",
        }
    }
}

/// A test of UCX.
#[derive(Debug)]
pub struct Ucx {
    test: Test,
    over: UcxTransport,
    program: PathBuf,
    /// Messages of one measurement.
    messages: u64,
    commands: Vec<String>,
}

impl Ucx {
    /// A test over something.
    pub fn new(test: Test, over: UcxTransport) -> Self {
        Self { test, over, program: PathBuf::new(), messages: FIRST, commands: Vec::new() }
    }

    fn command(&self, site: &MeasuringSite, core: usize, port: u16) -> Command {
        let mut command = site.on_core(core, "env");
        command.args(self.over.environment()).arg(&self.program).args(["-p", &port.to_string()]);
        command
    }

    /// Both of its processes; a server serves one client and ends.
    fn once(&mut self, site: &MeasuringSite) -> Result<UcxFigures, String> {
        let port = free_port().map_err(|error| format!("no port is free: {error}"))?;
        let mut serving = self.command(site, site.server, port);
        let mut asking = self.command(site, site.client, port);
        let messages = self.messages.to_string();
        // Six columns of which only the last line is wanted, as comma-separated values.
        asking.args(["127.0.0.1", "-t", self.test.name(), "-s", "64", "-n", &messages, "-f", "-v"]);
        self.commands = vec![shown(&serving), shown(&asking)];
        serving.stdout(Stdio::null()).stderr(Stdio::null());
        let _server = RunningServer::start(&mut serving)
            .map_err(|error| format!("{}: {error}", shown(&serving)))?;
        let began = Instant::now();
        while !is_listening(port) {
            if began.elapsed() > PATIENCE {
                return Err(format!("{} does not listen", shown(&serving)));
            }
            thread::sleep(Duration::from_millis(2));
        }
        UcxFigures::parse(&site.run(asking)?)
    }
}

impl Contender for Ucx {
    fn name(&self) -> String {
        format!("UCX active message 64 B, {}", self.over.name())
    }

    fn commands(&self) -> Vec<String> {
        self.commands.clone()
    }

    fn start(&mut self, site: &MeasuringSite) -> Result<(), Absence> {
        self.program = site.find("ucx_perftest", "ucx-utils")?;
        self.messages = FIRST;
        let figures = self.once(site).map_err(Absence::Failed)?;
        self.messages = figures.messages_in(site.turn);
        Ok(())
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        let figures = self.once(site)?;
        // The next turn is as long as it should be, in whatever state the host is.
        self.messages = figures.messages_in(site.turn);
        Ok(match self.test {
            // UCX says how long one way takes.
            Test::RoundTrip => Reading { p50_ns: Some(figures.p50_us * 2e3), ..Reading::default() },
            Test::Rate => {
                Reading { calls_per_s: Some(figures.messages_per_s), ..Reading::default() }
            }
        })
    }
}

/// Figures that `ucx_perftest -f -v` reports.
#[derive(Clone, Copy, Debug, PartialEq)]
struct UcxFigures {
    /// One way, in microseconds; of a rate, what sending costs.
    p50_us: f64,
    /// Of the whole run, in both directions when they take turns.
    messages_per_s: f64,
}

impl UcxFigures {
    /// Reads a line of names and the last line of numbers. Names have changed from release to
    /// release, so that columns are found by what they end in.
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("ucx_perftest does not say what it should: {:?}", text.trim());
        let mut names = None;
        let mut found = None;
        for line in text.lines() {
            let fields: Vec<_> = line.split(',').map(str::trim).collect();
            match &names {
                None if fields.first() == Some(&"iterations") => names = Some(fields),
                Some(names) if names.len() == fields.len() => found = Some((names.clone(), fields)),
                _ => {}
            }
        }
        let (names, fields) = found.ok_or_else(wrong)?;
        let column = |ending: &str| {
            let place = names.iter().position(|name| name.ends_with(ending))?;
            fields
                .get(place)?
                .parse()
                .ok()
                .filter(|number: &f64| number.is_finite() && *number > 0.0)
        };
        let p50_us = column("_lat").ok_or_else(wrong)?;
        let messages_per_s = column("overall_mr").ok_or_else(wrong)?;
        Ok(Self { p50_us, messages_per_s })
    }

    /// Messages that take so long at this rate.
    fn messages_in(&self, turn: Duration) -> u64 {
        (self.messages_per_s * turn.as_secs_f64()).clamp(1_000.0, 1e9) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n";

    #[test]
    fn the_final_line_of_release_1_13_is_read() {
        let text = format!("{HEADER}9000000,0.181,0.346,0.385,176.31,158.54,2888683,2597504\n");
        assert_eq!(
            UcxFigures::parse(&text),
            Ok(UcxFigures { p50_us: 0.181, messages_per_s: 2_597_504.0 })
        );
    }

    #[test]
    fn lines_on_the_way_and_warnings_are_passed_over() {
        let text = format!(
            "[1795184162.1] [vm:12116:0] ucp_context.c:1014 UCX  WARN  transport 'x' is not \
             available\n{HEADER}\
             [thread 0]43897,3.270,11.389,11.389,5.36,5.36,87803,87803\n\
             50000,3.274,13.382,11.632,4.56,5.25,74726,85967\n"
        );
        assert_eq!(
            UcxFigures::parse(&text),
            Ok(UcxFigures { p50_us: 3.274, messages_per_s: 85_967.0 })
        );
    }

    #[test]
    fn columns_of_earlier_releases_are_found() {
        let text = "iterations,typical_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,\
                    overall_mr\n\
                    1000,1.5,2,2,3,3,4,5\n";
        assert_eq!(UcxFigures::parse(text), Ok(UcxFigures { p50_us: 1.5, messages_per_s: 5.0 }));
    }

    #[test]
    fn what_is_no_result_is_refused_with_what_came() {
        for text in [
            "",
            HEADER,
            "9000000,0.181,0.346,0.385,176.31,158.54,2888683,2597504\n",
            &format!("{HEADER}9000000,0.181,0.346\n"),
            &format!("{HEADER}9000000,x,0.346,0.385,176.31,158.54,2888683,2597504\n"),
            &format!("{HEADER}9000000,0.181,0.346,0.385,176.31,158.54,2888683,0\n"),
            &format!("{HEADER}9000000,0.181,0.346,0.385,176.31,158.54,2888683,inf\n"),
            "Waiting for connection...\nAccepted connection from 127.0.0.1:51296\n",
        ] {
            let error = UcxFigures::parse(text).unwrap_err();
            assert!(error.contains("does not say what it should"), "{error}");
        }
    }

    #[test]
    fn a_turn_is_as_long_as_the_rate_before_it_says() {
        let figures = |messages_per_s| UcxFigures { p50_us: 1.0, messages_per_s };
        assert_eq!(figures(5e6).messages_in(Duration::from_millis(600)), 3_000_000);
        assert_eq!(figures(1.0).messages_in(Duration::from_millis(600)), 1_000);
    }

    #[test]
    fn commands_can_be_typed() {
        let Ok(site) = MeasuringSite::new(Duration::ZERO) else {
            return println!("skipped: this process may use one core");
        };
        let mut ucx = Ucx::new(Test::Rate, UcxTransport::Tcp);
        ucx.program = "ucx_perftest".into();
        let typed = shown(&ucx.command(&site, 0, 7));
        assert_eq!(typed, "taskset -c 0 env UCX_TLS=tcp,self UCX_NET_DEVICES=lo ucx_perftest -p 7");
    }
}
