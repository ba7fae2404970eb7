//! Joined results of generators on several nodes: histograms are added bucket by bucket, and
//! seconds by their number, so that nothing is lost or averaged. A node that died counts with the
//! seconds that it reported, and is named.

mod gaps;

use crate::{
    latency::{CallRecord, LONGEST, Times, decode, histogram},
    report::model::{
        ClientSide, ContextFigures, HostFacts, RunOutcome, RunSetup, SCHEMA, SecondFigures,
    },
};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The clock of a node, compared with the coordinator's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// Microseconds by which the node's is ahead.
    pub ahead_us: f64,
    /// Microseconds by which that may be wrong at most: half of the shortest round trip.
    pub error_us: f64,
}

/// The share of one node in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeResult {
    /// Its name, as it was given.
    pub node: String,
    /// Its clock.
    pub clock: ClockOffset,
    /// Reason why it is missing from some second on; none when it reported everything.
    pub died: Option<String>,
    /// Its measurements. Of a node that died, the seconds that it reported.
    pub outcome: RunOutcome,
}

/// A run of several nodes, as it is written to a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodesRun {
    /// Nodes that did not report everything, by name.
    pub missing: Vec<String>,
    /// Each node's share.
    pub nodes: Vec<NodeResult>,
    /// All shares together.
    pub result: RunOutcome,
}

impl NodesRun {
    /// Joins the shares of all nodes.
    ///
    /// # Errors
    /// A sentence about a share that cannot be read.
    pub fn join(nodes: Vec<NodeResult>) -> Result<Self, String> {
        let result = joined(&nodes)?;
        let missing = nodes.iter().filter(|node| node.died.is_some());
        let missing = missing.map(|node| node.node.clone()).collect();
        Ok(Self { missing, nodes, result })
    }
}

/// The share of a node that died, made of the seconds that it reported.
///
/// # Errors
/// A sentence about a second that cannot be read.
pub fn share_until(setup: RunSetup, seconds: Vec<SecondFigures>) -> Result<RunOutcome, String> {
    let mut sum = Sum::default();
    for second in &seconds {
        sum.add_second(second)?;
    }
    let elapsed_s = seconds.len() as f64;
    let per_second = |count: u64| if elapsed_s > 0.0 { count as f64 / elapsed_s } else { 0.0 };
    let all = sum.all;
    Ok(RunOutcome {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        began_unix_s: 0.0,
        setup,
        rdma_version: None,
        host: HostFacts::default(),
        elapsed_s,
        calls: all.calls,
        failed: all.failed,
        failure: None,
        gave_up_s: None,
        stopped: false,
        unsent: 0,
        left_behind: None,
        calls_per_s: per_second(all.calls),
        octets_per_s: per_second(all.octets),
        service: Times::new(&all.service),
        response: Times::new(&all.response),
        connected: all.connected.as_deref().map(Times::new),
        client: ClientSide::default(),
        check: None,
        server_cores: None,
        outages: Vec::new(),
        gaps: Vec::new(),
        turns: None,
        contexts: None,
        stages: None,
        seconds,
    })
}

/// One second of several nodes, joined; none of none.
///
/// # Errors
/// A sentence about a part that cannot be read.
pub fn join_seconds<'a>(
    parts: impl Iterator<Item = &'a SecondFigures>,
) -> Result<Option<SecondFigures>, String> {
    let mut sum = Sum::default();
    for part in parts {
        sum.add_second(part)?;
    }
    Ok(sum.seconds().into_iter().next())
}

/// Counts and times that are added up.
#[derive(Default)]
struct Sum {
    all: CallRecord,
    by_second: BTreeMap<u64, (CallRecord, Option<f64>)>,
}

impl Sum {
    fn add_second(&mut self, second: &SecondFigures) -> Result<(), String> {
        let (record, stolen) = self.by_second.entry(second.second).or_default();
        *stolen = match (*stolen, second.stolen) {
            (Some(one), Some(other)) => Some(one.max(other)),
            (one, other) => one.or(other),
        };
        for record in [record, &mut self.all] {
            add_to(record, second)?;
        }
        Ok(())
    }

    fn seconds(self) -> Vec<SecondFigures> {
        let seconds = self.by_second.into_iter();
        seconds
            .map(|(number, (record, stolen))| SecondFigures::new(number, &record, stolen))
            .collect()
    }
}

/// Adds the counts and times of one second.
///
/// # Errors
/// A sentence about a histogram that cannot be read.
pub(crate) fn add_to(record: &mut CallRecord, second: &SecondFigures) -> Result<(), String> {
    add(&mut record.service, &second.service)?;
    add(&mut record.response, &second.response)?;
    if let Some(connected) = &second.connected {
        let sum = record.connected.get_or_insert_with(|| Box::new(histogram()));
        add(sum, connected)?;
    }
    record.calls = record.calls.saturating_add(second.calls);
    record.octets = record.octets.saturating_add(second.octets);
    record.failed = record.failed.saturating_add(second.failed);
    let lag = (second.lag_max_us * 1e3).clamp(0.0, LONGEST as f64) as u64;
    if lag > record.lag.max() {
        record.lag.saturating_record(lag);
    }
    Ok(())
}

/// Adds a histogram as it is written; an empty text is an empty one.
fn add(sum: &mut Histogram<u64>, text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    sum.add(decode(text)?).map_err(|error| format!("a histogram has other bounds: {error}"))
}

fn joined_times<'a>(all: impl Iterator<Item = &'a Times>) -> Result<Times, String> {
    let mut sum = histogram();
    for times in all {
        add(&mut sum, &times.histogram)?;
    }
    Ok(Times::new(&sum))
}

fn joined(nodes: &[NodeResult]) -> Result<RunOutcome, String> {
    let outcomes = || nodes.iter().map(|node| &node.outcome);
    let first = outcomes().next().ok_or("no node told anything")?;
    let mut sum = Sum::default();
    for second in outcomes().flat_map(|outcome| &outcome.seconds) {
        sum.add_second(second)?;
    }
    let octets = sum.all.octets;
    let elapsed_s = outcomes().map(|outcome| outcome.elapsed_s).fold(0.0, f64::max);
    let per_second = |count: u64| if elapsed_s > 0.0 { count as f64 / elapsed_s } else { 0.0 };
    let total = |of: fn(&RunOutcome) -> u64| outcomes().map(of).fold(0, u64::saturating_add);
    let count = |of: fn(&RunOutcome) -> usize| outcomes().map(of).fold(0, usize::saturating_add);
    let told = || nodes.iter().filter(|node| node.died.is_none()).map(|node| &node.outcome);
    let calls = total(|outcome| outcome.calls);
    let connected: Vec<_> = outcomes().filter_map(|outcome| outcome.connected.as_ref()).collect();
    let setup = RunSetup {
        connections: count(|outcome| outcome.setup.connections),
        cores: count(|outcome| outcome.setup.cores),
        rate: first.setup.rate.map(|_| outcomes().filter_map(|outcome| outcome.setup.rate).sum()),
        calls: first.setup.calls.map(|_| total(|outcome| outcome.setup.calls.unwrap_or(0))),
        ..first.setup.clone()
    };
    let names: Vec<_> = nodes.iter().map(|node| node.node.as_str()).collect();
    let host = HostFacts {
        name: names.join(", "),
        cores: count(|outcome| outcome.host.cores),
        load: told().map(|outcome| outcome.host.load).fold(0.0, f64::max),
        ..told().next().unwrap_or(first).host.clone()
    };
    let began = told().map(|outcome| outcome.began_unix_s).reduce(f64::min);
    Ok(RunOutcome {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        began_unix_s: began.unwrap_or(first.began_unix_s),
        setup,
        rdma_version: outcomes().find_map(|outcome| outcome.rdma_version),
        host,
        elapsed_s,
        calls,
        failed: total(|outcome| outcome.failed),
        failure: nodes.iter().find_map(|node| {
            node.outcome.failure.as_ref().map(|failure| format!("{}: {failure}", node.node))
        }),
        gave_up_s: outcomes().filter_map(|outcome| outcome.gave_up_s).reduce(f64::min),
        stopped: outcomes().any(|outcome| outcome.stopped),
        unsent: total(|outcome| outcome.unsent),
        left_behind: nodes.iter().find_map(|node| {
            node.outcome.left_behind.as_ref().map(|left| format!("{}: {left}", node.node))
        }),
        calls_per_s: per_second(calls),
        octets_per_s: per_second(octets),
        service: joined_times(outcomes().map(|outcome| &outcome.service))?,
        response: joined_times(outcomes().map(|outcome| &outcome.response))?,
        connected: match connected.is_empty() {
            true => None,
            false => Some(joined_times(connected.into_iter())?),
        },
        client: client(nodes)?,
        check: None,
        server_cores: None,
        outages: outcomes().flat_map(|outcome| outcome.outages.clone()).collect(),
        gaps: gaps::joined(told()),
        turns: None,
        contexts: ContextFigures::sum(outcomes().map(|outcome| outcome.contexts)),
        stages: None,
        seconds: sum.seconds(),
    })
}

/// Observations of the generators about themselves, and the ones that are missing.
fn client(nodes: &[NodeResult]) -> Result<ClientSide, String> {
    let sides = || nodes.iter().map(|node| &node.outcome.client);
    let mut doubts: Vec<_> = nodes
        .iter()
        .filter_map(|node| {
            let died = node.died.as_ref()?;
            Some(format!(
                "node {} is missing: {died}; {} seconds of it count",
                node.node,
                node.outcome.seconds.len()
            ))
        })
        .collect();
    for NodeResult { node, outcome, .. } in nodes {
        doubts.extend(outcome.client.doubts.iter().map(|doubt| format!("{node}: {doubt}")));
    }
    let pinned = |node: &NodeResult| match node.died {
        // Unknown, and it is missing anyway.
        Some(_) => node.outcome.setup.cores,
        None => node.outcome.client.pinned,
    };
    Ok(ClientSide {
        lag: joined_times(sides().map(|side| &side.lag))?,
        turns: sides().map(|side| side.turns).fold(0, u64::saturating_add),
        gap_max_us: sides().map(|side| side.gap_max_us).fold(0.0, f64::max),
        preemptions: sides().filter_map(|side| side.preemptions).reduce(u64::saturating_add),
        stolen: sides().filter_map(|side| side.stolen).reduce(f64::max),
        pinned: nodes.iter().map(pinned).sum(),
        doubts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arrivals, Workload};

    fn setup(rate: f64) -> RunSetup {
        RunSetup {
            url: "tcp://127.0.0.1:1".to_owned(),
            workload: Workload::Null,
            size: 0,
            connections: 2,
            depth: 4,
            cores: 1,
            rate: Some(rate),
            arrivals: Some(Arrivals::Uniform),
            warm_up_s: 0.0,
            duration_s: Some(3.0),
            calls: None,
            verified: false,
            seed: 1,
            names: None,
            rdma_version: None,
            sec: None,
        }
    }

    /// The seconds of a node whose calls take `nanos` and a little more each time.
    fn seconds(count: u64, calls: u64, nanos: u64) -> Vec<SecondFigures> {
        let second = |number| {
            let mut record = CallRecord::default();
            for call in 0..calls {
                record.service.record(nanos + call).unwrap();
                record.response.record(2 * nanos + call * call).unwrap();
            }
            (record.calls, record.octets) = (calls, calls * 10);
            SecondFigures::new(number, &record, Some(0.01 * nanos as f64 / 1e6))
        };
        (0..count).map(second).collect()
    }

    fn node(name: &str, died: Option<&str>, seconds: Vec<SecondFigures>) -> NodeResult {
        let outcome = share_until(setup(500.0), seconds).unwrap();
        let (node, died) = (name.to_owned(), died.map(str::to_owned));
        NodeResult { node, clock: ClockOffset::default(), died, outcome }
    }

    #[test]
    fn the_joined_result_is_the_sum_of_its_parts() {
        let (one, other) = (seconds(3, 1_000, 5_000), seconds(3, 400, 900_000));
        let parts = vec![node("a", None, one), node("b", None, other)];
        let run = NodesRun::join(parts.clone()).unwrap();
        assert!(run.missing.is_empty());
        let result = &run.result;
        assert_eq!((result.calls, result.elapsed_s, result.seconds.len()), (4_200, 3.0, 3));
        assert_eq!((result.calls_per_s, result.octets_per_s), (1_400.0, 14_000.0));
        assert_eq!((result.setup.connections, result.setup.cores), (4, 2));
        assert_eq!(result.setup.rate, Some(1_000.0));
        type Of = fn(&RunOutcome) -> &Times;
        for of in [(|outcome| &outcome.service) as Of, |outcome| &outcome.response] {
            let mut sum = of(&parts[0].outcome).histogram().unwrap();
            sum.add(of(&parts[1].outcome).histogram().unwrap()).unwrap();
            assert_eq!(of(result).histogram().unwrap(), sum, "bucket by bucket");
        }
        for (number, second) in result.seconds.iter().enumerate() {
            assert_eq!((second.second, second.calls), (number as u64, 1_400));
            let mut sum = decode(&parts[0].outcome.seconds[number].response).unwrap();
            sum.add(decode(&parts[1].outcome.seconds[number].response).unwrap()).unwrap();
            assert_eq!(decode(&second.response).unwrap(), sum);
        }
        assert_eq!(result.notes(), ["2 of 2 threads of the generator had no core to themselves"]);
    }

    #[test]
    fn a_node_that_died_counts_with_its_seconds_and_is_named() {
        let parts = vec![
            node("a", None, seconds(3, 1_000, 5_000)),
            node("b", Some("the connection ended"), seconds(1, 400, 900_000)),
        ];
        let run = NodesRun::join(parts).unwrap();
        assert_eq!(run.missing, ["b"]);
        assert_eq!((run.result.calls, run.result.response.samples), (3_400, 3_400));
        assert_eq!(run.result.seconds.iter().map(|second| second.calls).sum::<u64>(), 3_400);
        let notes = run.result.notes().join("\n");
        assert!(
            notes.contains("node b is missing: the connection ended; 1 seconds of it count"),
            "{notes}"
        );
    }

    #[test]
    fn a_histogram_that_cannot_be_read_is_said() {
        let mut part = node("a", None, seconds(1, 10, 1_000));
        part.outcome.seconds[0].service = "!".to_owned();
        assert!(NodesRun::join(vec![part]).is_err());
        assert!(NodesRun::join(Vec::new()).is_err());
    }
}
