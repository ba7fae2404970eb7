//! Statistics as one JSON object, written as a whole (`--stats`, `stag ctl stats`).

use super::{Across, gather::Gathered, of, process};
use serde_json::{Map, Value, json};
use stag_engine::{Stage, Stages, stages::ProcedureTimes, stages::TimeBuckets};
use stag_load::stages::{ServerStages, StageTimes};
use stag_protocol::nfs::{mount, v3, v4};
use stag_verbs::Count;

/// The object: facts about the process, each shard, and all together.
pub fn object(gathered: &Gathered) -> Value {
    let (mut total, mut stages) = (Value::Null, Stages::default());
    let mut all = Vec::with_capacity(gathered.shards.len());
    for (core, counted) in &gathered.shards {
        let mut shard = json!(counted);
        if let Value::Object(members) = &mut shard {
            let (scheme, counts) = &counted.fabric;
            members.insert((*scheme).to_owned(), fabric(counts));
        }
        add(&mut total, &shard, &mut Vec::new());
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
    let times = gathered.procedures();
    let procedures: Vec<_> = times.iter().map(procedure_object).collect();
    let operations: Vec<_> = times.operations().map(operation_object).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "build": { env!("CARGO_PKG_VERSION"): { gathered.commit: 1 } },
        "uptime_s": (gathered.uptime.as_secs_f64() * 1_000.0).round() / 1_000.0,
        "draining": u8::from(gathered.is_draining),
        "outages": gathered.outages,
        "process": process::read(),
        "memory": gathered.memory,
        "log": gathered.log,
        "exports": gathered.exports,
        "shards": all,
        "total": total,
        "procedures": procedures,
        "operations": operations,
    })
}

/// The members of `object` for all shards together and for the process, in one object: the places
/// of metrics begin there.
pub fn flat(object: &Value) -> Value {
    let all = object.as_object().into_iter().flatten();
    let own = all.filter(|(name, _)| !matches!(name.as_str(), "shards" | "total"));
    let total = object.get("total").and_then(Value::as_object).into_iter().flatten();
    let members = own.chain(total).map(|(name, value)| (name.clone(), value.clone()));
    Value::Object(members.collect::<Map<_, _>>())
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

/// Formats the times of one procedure.
fn procedure_object(times: &ProcedureTimes) -> Value {
    let (program, procedure) = name(times.name);
    json!({ "program": program, "procedure": procedure, "stages": times_object(times) })
}

/// Formats the times of one operation.
fn operation_object(times: &ProcedureTimes) -> Value {
    let (program, _) = name(times.name);
    json!({
        "program": program,
        "operation": operation(times.name),
        "stages": times_object(times),
    })
}

/// Formats times by stage; the percentiles are the ends of buckets.
fn times_object(times: &ProcedureTimes) -> Vec<Value> {
    let of = |name: &str, times: &TimeBuckets| {
        let micros = |hundredths| times.percentile(hundredths).map(|nanos| nanos as f64 / 1e3);
        json!({
            "stage": name,
            "samples": times.len(),
            "p50_us": micros(50),
            "p99_us": micros(99),
        })
    };
    let stages = Stage::ALL.into_iter().zip(&times.stages);
    let stages = stages.filter(|(_, times)| !times.is_empty());
    let stages = stages.map(|(stage, times)| of(stage.name(), times));
    stages.chain([of("total", &times.total)]).collect()
}

/// The word for an operation of version 4, the only program that has any.
pub fn operation(operation: Option<(u32, u32, u32)>) -> String {
    let number = operation.map_or(0, |(_, _, number)| number);
    stag_nfs::v4::operation_name(number)
}

/// The words for a procedure: those of the specification, where the server has its program.
pub fn name(procedure: Option<(u32, u32, u32)>) -> (&'static str, String) {
    let Some((program, version, number)) = procedure else {
        return ("other", "other".to_owned());
    };
    let word = match (program, version) {
        (v3::PROGRAM, v3::VERSION) => "nfs3",
        (v3::PROGRAM, v4::VERSION) => "nfs4",
        (mount::PROGRAM, mount::VERSION) => "mount3",
        _ => "other",
    };
    (word, stag_nfs::serve::procedure_name(program, version, number))
}

/// Adds `more` to `sum`, member by member; `keys` lead there.
fn add<'a>(sum: &mut Value, more: &'a Value, keys: &mut Vec<&'a str>) {
    match (&mut *sum, more) {
        (Value::Null, more) => *sum = more.clone(),
        (Value::Object(members), Value::Object(others)) => {
            for (name, other) in others {
                keys.push(name);
                add(members.entry(name.clone()).or_insert(Value::Null), other, keys);
                keys.pop();
            }
        }
        (Value::Number(one), Value::Number(other)) => {
            let (one, other) = (one.as_u64().unwrap_or(0), other.as_u64().unwrap_or(0));
            let is_largest = of(keys).is_some_and(|metric| metric.across == Across::Largest);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_sums_and_keep_what_only_one_shard_has() {
        let grant = |grant| json!({"responder": {"grant": grant}});
        let one = json!({"calls": {"READ": 3}, "engine": grant(64), "causes": {"a": 1}, "t": "x"});
        let two = json!({"calls": {"READ": 4, "WRITE": 5}, "engine": grant(32), "causes": {}});
        let mut total = Value::Null;
        add(&mut total, &one, &mut Vec::new());
        assert_eq!(total, one);
        add(&mut total, &two, &mut Vec::new());
        let expected = json!({
            "calls": {"READ": 7, "WRITE": 5}, "engine": grant(64), "causes": {"a": 1}, "t": "x"
        });
        assert_eq!(total, expected);
    }

    #[test]
    fn procedures_have_the_names_of_their_specification() {
        let named = |program, number| name(Some((program, 3, number)));
        assert_eq!(name(Some((v3::PROGRAM, 4, 1))), ("nfs4", "COMPOUND".to_owned()));
        assert_eq!(name(Some((v3::PROGRAM, 5, 1))), ("other", "1".to_owned()));
        assert_eq!(named(v3::PROGRAM, 17), ("nfs3", "READDIRPLUS".to_owned()));
        assert_eq!(named(mount::PROGRAM, 1), ("mount3", "MNT".to_owned()));
        assert_eq!(named(v3::PROGRAM, 99), ("nfs3", "99".to_owned()));
        assert_eq!(name(None), ("other", "other".to_owned()));
    }
}
