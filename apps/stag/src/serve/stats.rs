//! Statistics as one JSON object, written as a whole.

use crate::replace;
use serde_json::{Value, json};
use stag_engine::{Stages, stats::Snapshot};
use stag_load::stages::{ServerStages, StageTimes};
use stag_nfs::GatewayReport;
use stag_verbs::Count;
use std::{io, path::Path, time::Duration};

/// Members that say the same for every shard, or are kept by all together: their total is the
/// largest, not the sum.
const LARGEST: [&str; 3] = ["grant", "failed_syncs", "oldest_ms"];

/// The object. `shards` are the cores and what was counted there.
pub fn object(uptime: Duration, shards: &[(Option<usize>, Snapshot<GatewayReport>)]) -> Value {
    let (mut total, mut stages) = (Value::Null, Stages::default());
    let mut all = Vec::with_capacity(shards.len());
    for (core, counted) in shards {
        let mut shard = json!(counted);
        if let Value::Object(members) = &mut shard {
            let (scheme, counts) = &counted.fabric;
            members.insert((*scheme).to_owned(), fabric(counts));
        }
        add(&mut total, &shard, "");
        stages.add(&counted.stages);
        if let Value::Object(members) = &mut shard {
            members.insert("core".to_owned(), json!(core));
            members.insert("stages".to_owned(), stages_object(&counted.stages));
        }
        all.push(shard);
    }
    if let Value::Object(members) = &mut total {
        members.insert("stages".to_owned(), stages_object(&stages));
    }
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_s": (uptime.as_secs_f64() * 1_000.0).round() / 1_000.0,
        "shards": all,
        "total": total,
    })
}

/// Formats the times that watched calls spent in each stage; a percentile is null without enough
/// samples.
fn stages_object(stages: &Stages) -> Value {
    let of = |StageTimes { stage, times }: StageTimes| {
        json!({
            "stage": stage,
            "samples": times.samples,
            "p50_us": times.percentile("p50"),
            "p99_us": times.percentile("p99"),
            "max_us": times.max_us,
        })
    };
    let known = ServerStages::from(stages).stages.into_iter().map(of).collect::<Vec<_>>();
    json!({ "every": stages.every(), "calls": stages.calls(), "stages": known })
}

/// Adds `more` to `sum`, member by member.
fn add(sum: &mut Value, more: &Value, name: &str) {
    match (&mut *sum, more) {
        (Value::Null, more) => *sum = more.clone(),
        (Value::Object(members), Value::Object(others)) => {
            for (name, other) in others {
                add(members.entry(name.clone()).or_insert(Value::Null), other, name);
            }
        }
        (Value::Number(one), Value::Number(other)) => {
            let (one, other) = (one.as_u64().unwrap_or(0), other.as_u64().unwrap_or(0));
            let is_largest = LARGEST.contains(&name);
            *sum = json!(if is_largest { one.max(other) } else { one.saturating_add(other) });
        }
        _ => {}
    }
}

/// The counters of the fabric.
fn fabric(count: &Count) -> Value {
    match count {
        Count::Number(number) => json!(number),
        Count::Group(members) => Value::Object(
            members
                .iter()
                .map(|(name, count)| (name.clone().into_owned(), fabric(count)))
                .collect(),
        ),
    }
}

/// Replaces `file` by `value`: a reader sees the old object or the new one.
pub fn write(file: &Path, value: &Value) -> io::Result<()> {
    replace::write(file, |out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        out.write_all(b"\n")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_sums_and_keep_what_only_one_shard_has() {
        let one = json!({"calls": {"READ": 3}, "grant": 64, "causes": {"a": 1}, "text": "x"});
        let two = json!({"calls": {"READ": 4, "WRITE": 5}, "grant": 64, "causes": {}, "text": "x"});
        let mut total = Value::Null;
        add(&mut total, &one, "");
        assert_eq!(total, one);
        add(&mut total, &two, "");
        let expected =
            json!({"calls": {"READ": 7, "WRITE": 5}, "grant": 64, "causes": {"a": 1}, "text": "x"});
        assert_eq!(total, expected);
    }
}
