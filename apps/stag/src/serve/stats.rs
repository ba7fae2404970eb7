//! Statistics as one JSON object, written as a whole.

use super::plan::plain;
use crate::Error;
use serde_json::{Value, json};
use stag_engine::{Stages, stats::Snapshot};
use stag_load::stages::{ServerStages, StageTimes};
use stag_nfs::GatewayReport;
use stag_verbs::Count;
use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

/// Members that say the same for every shard, or are kept by all together: their total is the
/// largest, not the sum.
const LARGEST: [&str; 2] = ["grant", "failed_syncs"];

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

/// Replaces `file` by `value`: who reads it meanwhile sees the old object or the new one.
pub fn write(file: &Path, value: &Value) -> std::io::Result<()> {
    let draft = draft(file);
    let written = File::create(&draft)
        .and_then(|mut out| {
            serde_json::to_writer_pretty(&mut out, value)?;
            out.write_all(b"\n")
        })
        .and_then(|()| fs::rename(&draft, file));
    if written.is_err() {
        // Half an object helps nobody; the error that matters is the first one.
        let _ = fs::remove_file(&draft);
    }
    written
}

/// Checks that `file` can be written later, before anything starts.
pub fn check(file: &Path) -> Result<(), Error> {
    let shown = file.display();
    let bad = |why: String| Error::usage(format!("cannot write statistics to {shown}: {why}"));
    if file.is_dir() {
        return Err(bad("it is a directory; give the name of a file in it".to_owned()));
    }
    let draft = draft(file);
    File::create(&draft).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            bad("its directory does not exist; make it, or give another file".to_owned())
        }
        _ => bad(plain(&error)),
    })?;
    fs::remove_file(&draft).map_err(|error| bad(plain(&error)))
}

/// The name under which statistics are written before they take the place of the old ones.
fn draft(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    file.with_file_name(name)
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

    #[test]
    fn a_file_is_replaced_as_a_whole_and_no_draft_stays() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("stats.json");
        check(&file).unwrap();
        assert!(!file.exists());
        for value in [json!({"a": 1}), json!({"a": 2})] {
            write(&file, &value).unwrap();
            assert_eq!(serde_json::from_slice::<Value>(&fs::read(&file).unwrap()).unwrap(), value);
        }
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
        assert!(check(home.path()).unwrap_err().to_string().contains("is a directory"));
        assert!(
            check(&home.path().join("no/file")).unwrap_err().to_string().contains("does not exist")
        );
        assert!(write(&home.path().join("no/file"), &json!(1)).is_err());
    }
}
