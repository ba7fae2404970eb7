//! Outcome of a run, as it is written to a file and read again.

use crate::{
    compare::FLOORS_MAX,
    latency::{CallRecord, Times, at, encode},
    schedule::Arrivals,
    stages::Stages,
    steady::{self, Drift},
    workload::Workload,
};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use stag_tuning::HostDigest;

/// The version of the result format. A changed meaning of a member changes it; a new member does
/// not.
pub const SCHEMA: &str = "stag-bench/1";

/// Outages that notes list one by one.
const OUTAGES_SAID: usize = 5;

/// Parameters of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSetup {
    /// URL that was called.
    pub url: String,
    /// By which calls.
    pub workload: Workload,
    /// Octets of payload of one call; 0 when there is none.
    pub size: usize,
    /// Connections of all threads.
    pub connections: usize,
    /// Calls outstanding on each, at most.
    pub depth: usize,
    /// Threads, each with a shard and a core.
    pub cores: usize,
    /// Intended calls per second; none in a closed loop.
    pub rate: Option<f64>,
    /// Distribution of the times between calls.
    pub arrivals: Option<Arrivals>,
    /// Seconds in front that do not count.
    pub warm_up_s: f64,
    /// Seconds that count; none when calls were counted.
    pub duration_s: Option<f64>,
    /// Calls that count; none when seconds were.
    pub calls: Option<u64>,
    /// Every octet of payload was compared.
    pub verified: bool,
    /// Decides places, mixtures and the times of Poisson calls.
    pub seed: u64,
    /// Versions of RPC-over-RDMA to call by, as on the command line; none over TCP.
    #[serde(default)]
    pub rdma_version: Option<String>,
}

/// Host of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Its name.
    pub name: String,
    /// Of Linux.
    pub kernel: String,
    /// As `/proc/cpuinfo` calls it.
    pub processor: String,
    /// Number of cores that this process may use.
    pub cores: usize,
    /// Runnable threads over the last minute, at the start.
    pub load: f64,
    /// Nanoseconds of a word's round trip between two cores, before and after the run; none where
    /// it cannot be measured.
    pub floors_ns: [Option<f64>; 2],
}

/// One second of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SecondFigures {
    /// Its number.
    pub second: u64,
    /// Replies that were read in it.
    pub calls: u64,
    /// Octets of payload.
    pub octets: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Of the service times, in microseconds; none when there are too few.
    pub service_p50_us: Option<f64>,
    /// The same.
    pub service_p99_us: Option<f64>,
    /// Of the response times.
    pub response_p50_us: Option<f64>,
    /// The same.
    pub response_p99_us: Option<f64>,
    /// The longest response.
    pub response_max_us: f64,
    /// By how much the generator was late at most.
    pub lag_max_us: f64,
    /// Part of the time of all cores that was stolen from the host (`/proc/stat`); none if it is
    /// not counted.
    pub stolen: Option<f64>,
    /// All service times, as [`Times::histogram`].
    #[serde(default)]
    pub service: String,
    /// All response times.
    #[serde(default)]
    pub response: String,
    /// All times to a connection, when connections were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected: Option<String>,
}

impl SecondFigures {
    /// Summarizes the record of second `second`.
    pub fn new(second: u64, record: &CallRecord, stolen: Option<f64>) -> Self {
        let micros = |histogram: &Histogram<u64>| histogram.max() as f64 / 1e3;
        Self {
            second,
            calls: record.calls,
            octets: record.octets,
            failed: record.failed,
            service_p50_us: at(&record.service, 0.5),
            service_p99_us: at(&record.service, 0.99),
            response_p50_us: at(&record.response, 0.5),
            response_p99_us: at(&record.response, 0.99),
            response_max_us: micros(&record.response),
            lag_max_us: micros(&record.lag),
            stolen,
            service: encode(&record.service),
            response: encode(&record.response),
            connected: record.connected.as_deref().map(encode),
        }
    }
}

/// Observations of the generator about itself and its host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientSide {
    /// Delay of calls caused by the generator. None in a closed loop.
    pub lag: Times,
    /// Turns of all its threads.
    pub turns: u64,
    /// The longest time between two of them.
    pub gap_max_us: f64,
    /// Times that its threads lost their core to others.
    pub preemptions: Option<u64>,
    /// Part of the time of all cores that was stolen from the host.
    pub stolen: Option<f64>,
    /// Threads that have a core to themselves.
    pub pinned: usize,
    /// Reasons for which the generator may have caused the figures, in sentences. Empty if there
    /// are none.
    pub doubts: Vec<String>,
}

/// Time without an answer, because a connection was lost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outage {
    /// Seconds from when measuring began to the loss; below 0 in the warm-up.
    pub at_s: f64,
    /// Seconds from the loss to the next reply of that thread.
    pub lasted_s: f64,
}

/// Replies around an outage, or around several close ones: the gap, to be drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutageGap {
    /// Seconds from when measuring began to the first step.
    pub from_s: f64,
    /// Seconds of a step.
    pub step_s: f64,
    /// Replies in each step.
    pub calls: Vec<u64>,
}

impl OutageGap {
    /// Seconds from when measuring began to the end of the last step.
    pub fn until_s(&self) -> f64 {
        self.from_s + self.step_s * self.calls.len() as f64
    }
}

/// Outcome of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunOutcome {
    /// [`SCHEMA`].
    pub schema: String,
    /// Of the command.
    pub version: String,
    /// Start of the run, in seconds since 1970-01-01 UTC.
    pub began_unix_s: f64,
    /// Parameters of a run.
    pub setup: RunSetup,
    /// The version of RPC-over-RDMA in use; none over TCP, and when no server answered.
    #[serde(default)]
    pub rdma_version: Option<u32>,
    /// Host of the run.
    pub host: HostFacts,
    /// Seconds that were measured.
    pub elapsed_s: f64,
    /// Calls that had the reply they should have.
    pub calls: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Description of the first failure.
    pub failure: Option<String>,
    /// The time of the failure after which no call was made: seconds from when measuring began,
    /// below 0 in the warm-up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gave_up_s: Option<f64>,
    /// It was stopped before its end.
    #[serde(default)]
    pub stopped: bool,
    /// Calls that were due and never made, because there was no place for them in time or because
    /// the run had been ended. They are among the response times with their waiting time at the end
    /// of the run.
    pub unsent: u64,
    /// The directory that could not be removed at the server, and the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_behind: Option<String>,
    /// Replies per second.
    pub calls_per_s: f64,
    /// Octets of payload per second, both directions.
    pub octets_per_s: f64,
    /// From when a call was passed to the engine to when its reply was read: full round trips.
    pub service: Times,
    /// From when it was meant to go out.
    pub response: Times,
    /// From the start of a connection to its establishment, if connections were measured: its
    /// service time lasts to the first reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected: Option<Times>,
    /// The generator.
    pub client: ClientSide,
    /// Time spent in each stage, if it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<Stages>,
    /// State of the host's settings before the run, as `stag tune check` finds it; none of
    /// several hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<HostDigest>,
    /// Cores that the server's process kept busy, where it was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cores: Option<f64>,
    /// Outages, of a run that goes on after them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<Outage>,
    /// Replies around the first outages; none of several hosts together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<OutageGap>,
    /// Results with the same one took turns: they met the same states of their host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<String>,
    /// Second by second. The last one may be incomplete.
    pub seconds: Vec<SecondFigures>,
}

impl RunOutcome {
    /// Reads the results in a file: one, a list of them, the two of `stag bench versus`, or the
    /// joined ones of several nodes.
    ///
    /// # Errors
    /// A sentence that names the fault of the text.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, String> {
        /// The form of several runs, with whole results in it.
        #[derive(Deserialize)]
        struct Several<'a> {
            schema: String,
            #[serde(borrow)]
            results: Vec<&'a serde_json::value::RawValue>,
        }
        let is_known =
            |schema: &str| [crate::versus::SCHEMA, crate::nodes::SCHEMA].contains(&schema);
        let all = match serde_json::from_str::<Several<'_>>(text) {
            Ok(several) if is_known(&several.schema) => Ok(several.results),
            _ => serde_json::from_str(text),
        };
        match all {
            Ok(all) => all.into_iter().map(|one| Self::parse(one.get())).collect(),
            Err(_) => Self::parse(text).map(|one| vec![one]),
        }
    }

    /// Reads a result.
    ///
    /// # Errors
    /// A sentence that names the fault of the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Form {
            schema: String,
        }
        let form: Form = serde_json::from_str(text)
            .map_err(|_| "it is no result of 'stag bench --json'".to_owned())?;
        if form.schema != SCHEMA {
            return Err(format!(
                "its schema is {:?}, and this version reads {SCHEMA:?}",
                form.schema
            ));
        }
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// Returns the caveats that the figures alone do not show, in sentences: reasons for which the
    /// generator or the host may have caused them, and what they leave out.
    pub fn notes(&self) -> Vec<String> {
        let Self { client, setup, unsent, failed, .. } = self;
        let mut notes = Vec::new();
        if self.stopped {
            notes.push(format!("stopped early, after {:.2} seconds that count", self.elapsed_s));
        }
        notes.extend_from_slice(&client.doubts);
        if client.pinned < setup.cores {
            notes.push(format!(
                "{} of {} threads of the generator had no core to themselves",
                setup.cores - client.pinned,
                setup.cores
            ));
        }
        if let [Some(before), Some(after)] = self.host.floors_ns
            && before.max(after) > before.min(after) * FLOORS_MAX
        {
            notes.push(format!(
                "the host changed: a word took {before:.0} ns from one core to another and back \
                 before the run, and {after:.0} ns after it"
            ));
        }
        if let Some(Drift { quantity, change }) = steady::drift(self) {
            notes.push(format!(
                "the run was not steady: {quantity} changed by {:+.0} % from its first third to \
                 its last; a longer --warm-up may help",
                change * 100.0
            ));
        }
        for Outage { at_s, lasted_s } in self.outages.iter().take(OUTAGES_SAID) {
            notes.push(format!(
                "a connection was lost {at_s:.3} s after measuring began, and the next reply came \
                 {:.1} ms later",
                lasted_s * 1e3
            ));
        }
        if self.outages.len() > OUTAGES_SAID {
            notes.push(format!("{} outages in all", self.outages.len()));
        }
        if let Some(at) = self.gave_up_s {
            let when = if at < 0.0 {
                format!("{:.2} s before measuring began", -at)
            } else {
                format!("in second {} ({at:.2} s after measuring began)", at as u64 + 1)
            };
            let due = match setup.rate {
                Some(_) => format!(
                    ": {unsent} calls that were due were never made, and count among the response \
                     times with what they would have \
                     waited until the end, a lower bound"
                ),
                None => String::new(),
            };
            notes.push(format!("the run failed {when}, and made no more calls{due}"));
        } else if *unsent > 0 {
            notes.push(format!(
                "{unsent} calls were due and could not be made in time: the server, or --depth, \
                 is too small for this rate; among \
                 the response times they count with what they had waited"
            ));
        }
        if setup.workload.has_payload() && !setup.verified {
            notes.push("the payload was not compared".to_owned());
        }
        notes.extend(self.stages.iter().filter_map(|stages| stages.unasked.clone()));
        if self.connected.is_some() {
            notes.push(
                "each call has a connection of its own: connected is until that stood, service \
                 until the reply to NULL"
                    .to_owned(),
            );
        }
        if self.setup.workload == Workload::Reverse {
            notes.push(
                "the server called: it measured the times, and this side answered".to_owned(),
            );
        }
        if let Some(failure) = &self.failure {
            notes.push(format!("{failed} calls failed; the first: {failure}"));
        }
        notes.extend(self.left_behind.clone());
        notes
    }

    /// Seconds that are whole.
    pub fn whole_seconds(&self) -> &[SecondFigures] {
        let whole = self.elapsed_s.floor() as usize;
        self.seconds.get(..whole.min(self.seconds.len())).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_figures_do_not_say_is_noted() {
        let well = RunOutcome {
            schema: SCHEMA.to_owned(),
            version: String::new(),
            began_unix_s: 0.0,
            setup: RunSetup {
                url: String::new(),
                workload: Workload::Read,
                size: 1,
                connections: 1,
                depth: 1,
                cores: 2,
                rate: None,
                arrivals: None,
                warm_up_s: 0.0,
                duration_s: None,
                calls: Some(1),
                verified: true,
                seed: 0,
                rdma_version: None,
            },
            rdma_version: None,
            host: HostFacts { floors_ns: [Some(100.0), Some(129.0)], ..HostFacts::default() },
            elapsed_s: 1.0,
            stopped: false,
            calls: 1,
            failed: 0,
            failure: None,
            gave_up_s: None,
            unsent: 0,
            left_behind: None,
            calls_per_s: 1.0,
            octets_per_s: 1.0,
            service: Times::default(),
            response: Times::default(),
            connected: None,
            check: None,
            server_cores: None,
            outages: Vec::new(),
            gaps: Vec::new(),
            turns: None,
            client: ClientSide { pinned: 2, ..ClientSide::default() },
            stages: None,
            seconds: Vec::new(),
        };
        assert_eq!(well.notes(), Vec::<String>::new());
        let note = |change: fn(&mut RunOutcome)| {
            let mut outcome = well.clone();
            change(&mut outcome);
            <[String; 1]>::try_from(outcome.notes()).unwrap()[0].clone()
        };
        assert_eq!(note(|outcome| outcome.client.doubts.push("why".to_owned())), "why");
        assert!(note(|outcome| outcome.client.pinned = 1).contains("1 of 2 threads"));
        assert!(note(|outcome| outcome.host.floors_ns[1] = Some(131.0)).contains("100 ns"));
        assert!(note(|outcome| outcome.connected = Some(Times::default())).contains("of its own"));
        assert!(note(|outcome| outcome.stopped = true).contains("stopped early, after 1.00"));
        assert!(note(|outcome| outcome.unsent = 7).starts_with("7 calls were due"));
        assert!(note(|outcome| outcome.gave_up_s = Some(1.204)).contains("in second 2 (1.20 s"));
        assert!(note(|outcome| outcome.gave_up_s = Some(-0.5)).contains("0.50 s before"));
        let died = |outcome: &mut RunOutcome| {
            (outcome.gave_up_s, outcome.unsent, outcome.setup.rate) = (Some(0.0), 7, Some(9.0));
        };
        assert!(note(died).contains("7 calls that were due were never made"));
        assert_eq!(note(|outcome| outcome.left_behind = Some("left".to_owned())), "left");
        assert!(note(|outcome| outcome.setup.verified = false).contains("not compared"));
        assert!(
            note(|outcome| (outcome.failed, outcome.failure) = (3, Some("READ".to_owned())))
                .contains("3 calls failed")
        );
    }

    #[test]
    fn what_is_no_result_is_refused() {
        for text in ["", "{}", "[1]", "{\"schema\": 1}"] {
            assert!(RunOutcome::parse(text).unwrap_err().contains("no result"), "{text}");
        }
        let other = RunOutcome::parse("{\"schema\": \"stag-bench/99\"}").unwrap_err();
        assert!(other.contains("stag-bench/99") && other.contains(SCHEMA), "{other}");
    }
}
