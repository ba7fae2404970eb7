//! Run that nodes share: the setup of each node, and the table of their results.

use crate::{
    bench::{
        options::RunOptions,
        run::{self, Point},
    },
    call::Url,
    stage_table::micros,
};
use serde_json::{Value, json};
use stag_load::{
    NodesRun, RunOutcome,
    nodes::NodeResult,
    report::model::{NODES_SCHEMA, RunSetup},
};
use std::{env, fmt::Write};

/// Columns of a node's name.
const NAME: usize = 20;

/// A run that several nodes make together.
pub struct SharedRun<'a> {
    /// The arguments of all.
    pub arguments: &'a RunOptions,
    /// The server that they call.
    pub url: &'a Url,
    /// Payload, rate and seed of all together.
    pub point: Point,
    /// Nodes that make it.
    pub nodes: usize,
}

impl SharedRun<'_> {
    /// The arguments of node `number`, and its parameters. Nodes share the rate and the calls, and
    /// draw different numbers.
    pub fn share(&self, number: usize) -> (Vec<String>, RunSetup) {
        let Self { arguments, url, point, nodes } = self;
        let seed = point.seed.wrapping_add((number as u64).wrapping_mul(super::SEED_STEP));
        let rate = point.rate.map(|rate| rate / (*nodes).max(1) as f64);
        let (all, count) = (arguments.calls, (*nodes).max(1) as u64);
        let calls =
            all.map(|calls| (calls / count + u64::from((number as u64) < calls % count)).max(1));
        let own = RunOptions { calls, ..(*arguments).clone() };
        let setup = run::setup(&own, url, Point { rate, seed, ..*point });
        let mut words = arguments.words();
        words.push(format!("--size={}", point.size));
        words.push(format!("--seed={seed}"));
        words.extend(rate.map(|rate| format!("--rate={rate}")));
        words.extend(calls.map(|calls| format!("--calls={calls}")));
        (words, setup)
    }
}

/// A row for each node.
pub fn table(run: &NodesRun) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "\n{:<NAME$} {:>10} {:>10} {:>7} {:>9} {:>9} {:>9}",
        "node", "calls/s", "calls", "failed", "p50 us", "p99 us", "clock us"
    );
    for NodeResult { node, clock, died, outcome } in &run.nodes {
        let response = |name| micros(outcome.response.percentile(name));
        let _ = writeln!(
            text,
            "{node:<NAME$} {:>10.1} {:>10} {:>7} {:>9} {:>9} {:>9}",
            outcome.calls_per_s,
            outcome.calls,
            outcome.failed,
            response("p50"),
            response("p99"),
            format!("{:+.0}", clock.ahead_us)
        );
        if let Some(why) = died {
            let _ = writeln!(text, "  MISSING: {why}; it counts until then");
        }
    }
    text
}

/// Runs of several nodes, as they are written to a file: each node's, and joined.
pub fn document(shared: &[NodesRun], outcomes: &[RunOutcome]) -> Value {
    let runs: Vec<_> = shared
        .iter()
        .map(|NodesRun { missing, nodes, .. }| json!({ "missing": missing, "nodes": nodes }))
        .collect();
    json!({
        "schema": NODES_SCHEMA,
        "version": env!("CARGO_PKG_VERSION"),
        "job": env::var("SLURM_JOB_ID").ok(),
        "runs": runs,
        "results": outcomes,
    })
}

/// A sentence about nodes that are missing from a run, if any are.
pub fn missing(shared: &[NodesRun]) -> Option<String> {
    let gone: Vec<_> = shared
        .iter()
        .flat_map(|run| &run.nodes)
        .filter_map(|node| Some(format!("{} ({})", node.node, node.died.as_ref()?)))
        .collect();
    (!gone.is_empty()).then(|| format!("nodes are missing: {}", gone.join(", ")))
}
