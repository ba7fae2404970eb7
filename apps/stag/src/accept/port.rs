//! Port outage test: the device's port goes down and comes up again. Connections end with a cause,
//! and a call is answered once the port is back.

use super::{
    line::Line,
    program::{Question, Reply},
    report::{AcceptStep, StepGroup},
    steps::{Figures, StepFault, judge},
};
use crate::{caller::aside, progress::Progress, stop::Stop};
use stag_fabrics::FabricAddress;
use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// The time within which a connection has to end once the port is down. A call has 10 seconds.
const END_MAX: Duration = Duration::from_secs(30);
/// The time within which a call has to be answered once the port is up.
const BACK_MAX: Duration = Duration::from_secs(60);
/// The time that a person has for the cable.
const PERSON_MAX: Duration = Duration::from_secs(180);
/// Time between calls while the port is up.
const CALL_INTERVAL: Duration = Duration::from_millis(100);

/// The way in which the port is taken down and up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PortTest {
    /// A person is asked to pull the cable, and to put it back.
    Ask,
    /// `ip link set NAME down`, then `up`. Needs root.
    Link,
}

/// The test of the port that was asked for.
#[derive(Clone, Copy, Debug)]
pub struct PortPlan<'a> {
    /// The way.
    pub how: Option<PortTest>,
    /// The network interface, for [`PortTest::Link`].
    pub interface: Option<&'a str>,
}

/// Runs the test, or says how it is run.
pub fn group(
    at: &FabricAddress,
    plan: PortPlan<'_>,
    stop: &Stop,
    progress: &mut Progress,
) -> StepGroup {
    let mut group = StepGroup::new("port down and up");
    progress.begin(&group.name, None);
    match plan.how {
        None => group.steps.push(judge("port down and up", || {
            Err(StepFault::Skipped(
                "not asked for: add --port-test ask (a person pulls the cable), or as root \
                 --port-test link --interface NAME"
                    .to_owned(),
            ))
        })),
        Some(how) => {
            let port = LivePort { how, interface: plan.interface.unwrap_or_default(), stop };
            group.steps = port.down_and_up(at, progress);
        }
    }
    progress.end(&format!("{}: {}", group.name, group.counts()));
    group
}

/// A port whose state is changed here, or by a person.
struct LivePort<'a> {
    how: PortTest,
    interface: &'a str,
    stop: &'a Stop,
}

impl LivePort<'_> {
    fn down_and_up(&self, at: &FabricAddress, progress: &Progress) -> Vec<AcceptStep> {
        let mut line = match Line::keep_connected(at) {
            Ok(line) => line,
            Err(error) => {
                let why = error.to_string();
                return vec![judge("connect", || Err(why.into()))];
            }
        };
        let mut cause = String::new();
        let ended = judge("the connection ends when the port goes down", || {
            let (seconds, why) = self.take_down(&mut line, progress)?;
            cause = why;
            Ok(Figures::from([("ended_after_s".to_owned(), seconds)]))
        });
        // Whatever came of it, the port is up afterwards.
        let back = judge("a call is answered when the port is back", || {
            let seconds = self.bring_up(&mut line, progress)?;
            Ok(Figures::from([("answered_after_s".to_owned(), seconds)]))
        });
        let name =
            if cause.is_empty() { ended.name.clone() } else { format!("{} ({cause})", ended.name) };
        vec![AcceptStep { name, ..ended }, back]
    }

    /// Changes the port, or asks a person to do it. Returns the time that the effect may take,
    /// which is `link_max` for a change by command.
    fn change(
        &self,
        state: &str,
        words: &'static str,
        link_max: Duration,
        progress: &Progress,
    ) -> Result<Duration, StepFault> {
        match self.how {
            PortTest::Link => self.set_link(state).map(|()| link_max),
            PortTest::Ask => {
                progress.pause(|| aside(words));
                Ok(PERSON_MAX)
            }
        }
    }

    /// Takes the port down; returns the seconds until the connection ended, and the cause.
    fn take_down(&self, line: &mut Line, progress: &Progress) -> Result<(f64, String), StepFault> {
        let words = "PULL THE CABLE of the device now\n";
        let patience = self.change("down", words, END_MAX, progress)?;
        let began = Instant::now();
        let mut asked = began;
        line.start(&Question::Counts)?;
        loop {
            if let Some((cause, at)) = line.ended() {
                return Ok((at.duration_since(began).as_secs_f64(), cause.to_string()));
            }
            self.check(began, patience, "the connection did not end")?;
            // An idle connection may notice nothing.
            if line.heard().is_some() {
                asked = Instant::now();
            }
            if !line.is_asking() && asked.elapsed() > CALL_INTERVAL {
                line.start(&Question::Counts)?;
            }
            line.turn();
        }
    }

    /// Brings the port up; returns the seconds until a call was answered.
    fn bring_up(&self, line: &mut Line, progress: &Progress) -> Result<f64, StepFault> {
        let patience = self.change("up", "PUT THE CABLE BACK now\n", BACK_MAX, progress)?;
        let began = Instant::now();
        let mut last = "no answer".to_owned();
        loop {
            self.check(began, patience, &format!("no call was answered; the last one: {last}"))?;
            match line.heard() {
                Some(Ok(Reply::Counts(_))) if line.is_up() => {
                    return Ok(began.elapsed().as_secs_f64());
                }
                Some(Err(why)) => last = why,
                Some(Ok(_)) | None => {}
            }
            if !line.is_asking() {
                line.start(&Question::Counts)?;
            }
            line.turn();
        }
    }

    fn check(&self, began: Instant, patience: Duration, what: &str) -> Result<(), StepFault> {
        if self.stop.is_asked() {
            return Err(StepFault::Skipped("stopped by a signal".to_owned()));
        }
        if began.elapsed() > patience {
            return Err(format!("{what} within {} s", patience.as_secs()).into());
        }
        Ok(())
    }

    fn set_link(&self, state: &str) -> Result<(), StepFault> {
        let words = ["link", "set", "dev", self.interface, state];
        let shown = format!("ip {}", words.join(" "));
        let done = Command::new("ip").args(words).stdin(Stdio::null()).output();
        let done = done.map_err(|error| format!("{shown}: {error}; install iproute2"))?;
        if done.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&done.stderr);
        Err(format!("{shown}: {}; it needs root", said.trim()).into())
    }
}
