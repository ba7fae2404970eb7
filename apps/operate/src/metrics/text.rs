//! The text that Prometheus reads (its text exposition format, version 0.0.4).

use super::{Across, Kind, Metric, all, gather::Gathered, object, of, path};
use serde_json::Value;
use stag_engine::{
    Stage,
    stages::{ProcedureTimes, Procedures, TimeBuckets},
};
use std::fmt::Write;

/// The media type of the text.
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Name of the metric that shows numbers of the statistics which have no row. There are none.
const UNDECLARED: &str = "stag_undeclared";
/// Buckets end at powers of two of nanoseconds: from 1 µs to 17 s.
const POWERS: std::ops::RangeInclusive<u32> = 10..=34;

/// A label and its value.
type Label<'a> = (&'a str, &'a str);

/// All metrics of a server.
pub fn exposition(gathered: &Gathered) -> String {
    let whole = object::object(gathered);
    let (flat, procedures) = (object::flat(&whole), gathered.procedures());
    let mut text = String::new();
    for metric in all() {
        let mut lines = String::new();
        match (metric.kind, metric.across) {
            (Kind::Histogram, _) => histograms(&mut lines, metric, &procedures),
            (_, Across::Shard) => of_shards(&mut lines, metric, &whole),
            _ => of_all(&mut lines, metric, &flat, None),
        }
        if !lines.is_empty() {
            head(&mut text, metric.name, metric.kind, metric.help);
            text.push_str(&lines);
        }
    }
    undeclared(&mut text, &flat);
    text
}

fn head(text: &mut String, name: &str, kind: Kind, help: &str) {
    let help = help.replace('\\', "\\\\").replace('\n', "\\n");
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {}\n", kind.word());
}

fn of_shards(text: &mut String, metric: &Metric, whole: &Value) {
    let shards = whole.get("shards").and_then(Value::as_array).into_iter().flatten();
    for (index, shard) in shards.enumerate() {
        of_all(text, metric, shard, Some(&index.to_string()));
    }
}

fn of_all(text: &mut String, metric: &Metric, value: &Value, shard: Option<&str>) {
    for sample in metric.at.samples(value) {
        let own = sample.labels.iter().map(|(name, value)| (*name, value.as_str()));
        let labels: Vec<Label<'_>> = own.chain(shard.map(|shard| ("shard", shard))).collect();
        line(text, metric.name, &labels, metric.unit.scale(sample.value));
    }
}

fn histograms(text: &mut String, metric: &Metric, procedures: &Procedures) {
    if metric.at.0.starts_with("operations") {
        for times in procedures.operations() {
            let operation = object::operation(times.name);
            histograms_of(text, metric, &[("operation", &operation)], times);
        }
        return;
    }
    for times in procedures.iter() {
        let (program, procedure) = object::name(times.name);
        let labels = [("program", program), ("procedure", procedure.as_str())];
        histograms_of(text, metric, &labels, times);
    }
}

/// The histograms of one procedure or operation.
fn histograms_of(text: &mut String, metric: &Metric, labels: &[Label<'_>], times: &ProcedureTimes) {
    if !metric.at.0.ends_with(".stages") {
        return histogram(text, metric.name, labels, &times.total, 1);
    }
    for (stage, times) in Stage::ALL.into_iter().zip(&times.stages) {
        if !times.is_empty() {
            let labels: Vec<_> = labels.iter().copied().chain([("stage", stage.name())]).collect();
            histogram(text, metric.name, &labels, times, 2);
        }
    }
}

fn histogram(
    text: &mut String,
    name: &str,
    labels: &[Label<'_>],
    times: &TimeBuckets,
    step: usize,
) {
    let bucket = format!("{name}_bucket");
    let mut bucket = |end: &str, count: u64| {
        let labels: Vec<_> = labels.iter().copied().chain([("le", end)]).collect();
        line(text, &bucket, &labels, count as f64);
    };
    for power in POWERS.step_by(step) {
        bucket(&((1_u64 << power) as f64 / 1e9).to_string(), times.below(power));
    }
    bucket("+Inf", times.len());
    line(text, &format!("{name}_sum"), labels, times.sum() as f64 / 1e9);
    line(text, &format!("{name}_count"), labels, times.len() as f64);
}

fn undeclared(text: &mut String, flat: &Value) {
    let numbers = path::numbers(flat);
    let mut unknown = numbers.iter().filter(|(keys, _)| of(keys).is_none()).peekable();
    if unknown.peek().is_some() {
        head(text, UNDECLARED, Kind::Gauge, "Numbers of the statistics without a metric.");
    }
    for (keys, value) in unknown {
        line(text, UNDECLARED, &[("path", &keys.join("."))], *value);
    }
}

fn line(text: &mut String, name: &str, labels: &[Label<'_>], value: f64) {
    text.push_str(name);
    for (place, (label, value)) in labels.iter().enumerate() {
        let _ =
            write!(text, "{}{label}=\"{}\"", if place == 0 { '{' } else { ',' }, escaped(value));
    }
    let end = if labels.is_empty() { "" } else { "}" };
    let _ = writeln!(text, "{end} {value}");
}

/// The value of a label as it is written.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{exports::Space, metrics::tests::validate::validate};
    use serde_json::json;
    use stag_engine::{Stats, stats::Snapshot};
    use stag_nfs::GatewayReport;
    use std::time::Duration;

    fn gathered() -> Gathered {
        let mut engine = Stats::default();
        engine.connections.live = 3;
        engine.responder.grant = 64;
        engine.disconnects.insert("a \"cause\"\\ of\nlines".to_owned(), 1);
        let shard = |engine: &Stats| Snapshot {
            engine: engine.clone(),
            fabric: ("sim", stag_verbs::Count::group([("odd", 5.into())])),
            stages: Default::default(),
            procedures: Default::default(),
            detail: None,
            app: GatewayReport::default(),
        };
        let space = Space {
            size_bytes: 4_096,
            available_bytes: 1_024,
            inodes: Some(7),
            available_inodes: Some(3),
        };
        Gathered {
            uptime: Duration::from_millis(1_500),
            commit: "1234",
            is_draining: false,
            outages: 0,
            memory: json!({"buffers": 4_096}),
            log: json!({"written": 1, "lost": 0}),
            exports: [("/a.b".to_owned(), space)].into(),
            shards: vec![(Some(0), shard(&engine)), (None, shard(&engine))],
        }
    }

    #[test]
    fn numbers_of_shards_are_added_kept_apart_or_compared() {
        let text = exposition(&gathered());
        validate(&text).unwrap();
        for line in [
            "stag_uptime_seconds 1.5",
            "stag_connections{shard=\"0\"} 3",
            "stag_connections{shard=\"1\"} 3",
            "stag_rdma_grant_credits 64",
            "stag_disconnects_total{cause=\"a \\\"cause\\\"\\\\ of\\nlines\"} 2",
            "stag_memory_bytes{part=\"buffers\"} 4096",
            "stag_export_available_bytes{export=\"/a.b\"} 1024",
            "stag_export_available_inodes{export=\"/a.b\"} 3",
            "stag_undeclared{path=\"sim.odd\"} 10",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }

    #[test]
    fn a_bucket_has_all_times_that_are_not_longer() {
        let mut text = String::new();
        let times = TimeBuckets::default();
        head(&mut text, "stag_x_seconds", Kind::Histogram, "Times.");
        histogram(&mut text, "stag_x_seconds", &[("stage", "app")], &times, 2);
        validate(&text).unwrap();
        assert!(text.contains("stag_x_seconds_bucket{stage=\"app\",le=\"0.000001024\"} 0\n"));
        assert!(text.contains("stag_x_seconds_bucket{stage=\"app\",le=\"+Inf\"} 0\n"));
    }
}
