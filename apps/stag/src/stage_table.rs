//! Table of the times in each stage of a call, of `stag bench` and of servers that report them when
//! they stop.

use stag_load::{
    Times,
    stages::{ServerStages, StageTimes, Stages},
};
use std::fmt::Write;

/// Writes the time spent in each stage, in the order of a call's way: here, and at the server.
pub fn both_ends(text: &mut String, stages: &Stages) {
    let _ = writeln!(text, "\nstages here, 1 call in {}", stages.every);
    heading(text);
    stages.client.iter().for_each(|StageTimes { stage, times }| row(text, stage, times));
    if let Some(server) = &stages.server {
        let shards = if server.shards == 1 { "shard" } else { "shards" };
        let _ = writeln!(
            text,
            "stages at the server, 1 call in {}, {} {shards}",
            server.every, server.shards
        );
        server_stages(text, server);
    }
}

/// A server's stages.
fn server_stages(text: &mut String, server: &ServerStages) {
    server.stages.iter().for_each(|StageTimes { stage, times }| row(text, stage, times));
}

/// Formats the stages that a server reports when it stops; empty when it watched no call.
pub fn served(stages: &stag_engine::Stages) -> String {
    let mut text = String::new();
    if stages.calls() > 0 {
        let _ = writeln!(text, "stages, 1 call in {}", stages.every());
        heading(&mut text);
        server_stages(&mut text, &ServerStages::from(stages));
    }
    text
}

/// Percentiles of a row; the longest ones are in the JSON.
const OF_ROWS: [&str; 4] = ["p50", "p90", "p99", "p99.9"];

fn heading(text: &mut String) {
    let _ = write!(text, "{:<9} {:>10} {:>9}", "us", "samples", "mean");
    OF_ROWS.iter().for_each(|name| text.push_str(&format!(" {name:>9}")));
    let _ = writeln!(text, " {:>9}", "max");
}

fn row(text: &mut String, name: &str, times: &Times) {
    let Times { samples, mean_us, max_us, .. } = times;
    let _ = write!(text, "{name:<9} {samples:>10} {mean_us:>9.1}");
    OF_ROWS.iter().for_each(|name| {
        text.push_str(&format!(" {:>9}", micros(times.percentile(name))));
    });
    let _ = writeln!(text, " {max_us:>9.1}");
}

/// A time as tables have it.
pub fn micros(value: Option<f64>) -> String {
    value.map_or_else(|| "n/a".to_owned(), |value| format!("{value:.1}"))
}
