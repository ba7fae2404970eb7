//! Model of a result: the outcome of a run, as it is written to a file and read again.

use crate::{
    latency::{CallRecord, Times, at, encode},
    schedule::Arrivals,
    stages::Stages,
    workload::Workload,
};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use stag_tuning::HostDigest;

/// The version of the result format. A changed meaning of a member changes it; a new member does
/// not.
pub const SCHEMA: &str = "stag-bench/1";
/// The same of the format for several nodes.
pub const NODES_SCHEMA: &str = "stag-bench-nodes/1";
/// The same of the format for two servers.
pub const VERSUS_SCHEMA: &str = "stag-bench-versus/1";
/// Largest accepted ratio between the floors of two runs; runs that took turns may differ more.
pub const FLOORS_MAX: f64 = 1.3;

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
    /// Names in the directory that is listed; none if none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<u32>,
    /// Versions of RPC-over-RDMA to call by, as on the command line; none over TCP.
    #[serde(default)]
    pub rdma_version: Option<String>,
    /// Protection of calls by a ticket of Kerberos: krb5, krb5i or krb5p; none by AUTH_SYS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sec: Option<String>,
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

/// Contexts of RPCSEC_GSS that a run used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextFigures {
    /// Contexts that the server granted, the ones in place of others included.
    pub created: u64,
    /// Contexts that replaced one which the server had no more, or whose numbers were used up.
    pub renewed: u64,
    /// Contexts created over TCP, because the server refused that over RDMA.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub over_tcp: u64,
}

/// Returns true if there were none.
#[allow(clippy::trivially_copy_pass_by_ref)] // as serde passes it
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl ContextFigures {
    /// All of them together; none of none.
    pub fn sum(all: impl IntoIterator<Item = Option<Self>>) -> Option<Self> {
        all.into_iter().flatten().reduce(|sum, one| Self {
            created: sum.created.saturating_add(one.created),
            renewed: sum.renewed.saturating_add(one.renewed),
            over_tcp: sum.over_tcp.saturating_add(one.over_tcp),
        })
    }
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
    /// Contexts of calls by a ticket of Kerberos.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contexts: Option<ContextFigures>,
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
        let is_known = |schema: &str| [VERSUS_SCHEMA, NODES_SCHEMA].contains(&schema);
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
        struct ResultForm {
            schema: String,
        }
        let form: ResultForm = serde_json::from_str(text)
            .map_err(|_| "it is no result of 'stag bench --json'".to_owned())?;
        if form.schema != SCHEMA {
            return Err(format!(
                "its schema is {:?}, and this version reads {SCHEMA:?}",
                form.schema
            ));
        }
        serde_json::from_str(text).map_err(|error| error.to_string())
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
    fn what_is_no_result_is_refused() {
        for text in ["", "{}", "[1]", "{\"schema\": 1}"] {
            assert!(RunOutcome::parse(text).unwrap_err().contains("no result"), "{text}");
        }
        let other = RunOutcome::parse("{\"schema\": \"stag-bench/99\"}").unwrap_err();
        assert!(other.contains("stag-bench/99") && other.contains(SCHEMA), "{other}");
    }
}
