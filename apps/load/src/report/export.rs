//! Results in the formats of other tools.

use super::model::RunOutcome;
use crate::{latency::Times, workload::Workload};
use hdrhistogram::{
    Histogram,
    serialization::{
        V2DeflateSerializer,
        interval_log::{IntervalLogWriterBuilder, Tag},
    },
};
use serde_json::{Value, json};
use std::{
    fmt::Write,
    time::{Duration, UNIX_EPOCH},
};

/// Steps of a percentile distribution for each halving of the remaining samples.
const STEPS: u32 = 5;

/// The response times as a percentile distribution (`.hgrm`), in microseconds.
///
/// # Errors
/// A sentence that names the fault of the histogram.
pub fn hgrm(times: &Times) -> Result<String, String> {
    let histogram = times.histogram()?;
    let mut text = format!(
        "{:>12} {:>14} {:>10} {:>14}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    let mut total = 0;
    for step in histogram.iter_quantiles(STEPS) {
        total += step.count_since_last_iteration();
        let (value, quantile) =
            (step.value_iterated_to() as f64 / 1e3, step.quantile_iterated_to());
        let beyond = if quantile < 1.0 {
            format!(" {:>14.2}", 1.0 / (1.0 - quantile))
        } else {
            String::new()
        };
        let _ = writeln!(text, "{value:>12.3} {quantile:>2.12} {total:>10}{beyond}");
    }
    let micros = |nanos: f64| nanos / 1e3;
    let _ = write!(
        text,
        "#[Mean    = {:>12.3}, StdDeviation   = {:>12.3}]\n#[Max     = {:>12.3}, Total count    = \
         {:>12}]\n\
         #[Buckets = {:>12}, SubBuckets     = {:>12}]\n",
        micros(histogram.mean()),
        micros(histogram.stdev()),
        micros(histogram.max() as f64),
        histogram.len(),
        histogram.buckets(),
        2_048
    );
    Ok(text)
}

/// An interval log (HdrHistogram, V2): a line for each second and time, in nanoseconds; their
/// maxima in milliseconds.
///
/// # Errors
/// A sentence that names the fault of a histogram.
pub fn log(outcome: &RunOutcome) -> Result<Vec<u8>, String> {
    let (mut octets, mut serializer) = (Vec::new(), V2DeflateSerializer::new());
    let began = UNIX_EPOCH + Duration::from_secs_f64(outcome.began_unix_s.clamp(0.0, 1e11));
    let failed = |error: &dyn std::fmt::Debug| format!("{error:?}");
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("times of stag bench, in nanoseconds")
        .with_start_time(began)
        .with_max_value_divisor(1e6)
        .begin_log_with(&mut octets, &mut serializer)
        .map_err(|error| failed(&error))?;
    for second in &outcome.seconds {
        let start = Duration::from_secs(second.second);
        let len = (outcome.elapsed_s - second.second as f64).clamp(0.0, 1.0);
        let connected = second.connected.as_ref().map(|text| ("connected", text));
        for (name, text) in [("response", &second.response), ("service", &second.service)]
            .into_iter()
            .chain(connected)
        {
            let histogram: Histogram<u64> = crate::latency::decode(text)?;
            let tag = Tag::new(name);
            log.write_histogram(&histogram, start, Duration::from_secs_f64(len), tag)
                .map_err(|error| failed(&error))?;
        }
    }
    Ok(octets)
}

/// As the latency tests of perftest write results: of half round trips, in microseconds.
pub fn perftest(outcomes: &[RunOutcome]) -> String {
    let mut text = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    \
                    t_avg[usec]    t_stdev[usec]   \
                    99% percentile[usec]   99.9% percentile[usec]\n"
        .to_owned();
    for outcome in outcomes {
        let Times { min_us, mean_us, max_us, stdev_us, .. } = &outcome.service;
        let half = |name: &str| {
            let micros = outcome.service.percentile(name);
            micros.map_or_else(|| "n/a".to_owned(), |micros| format!("{:.2}", micros / 2.0))
        };
        let _ = writeln!(
            text,
            " {:<7} {:<10}  {:<13.2}  {:<12.2}  {:<15}  {:<13.2}  {:<13.2}  {:<22}  {:<22}",
            outcome.setup.size,
            outcome.service.samples,
            min_us / 2.0,
            max_us / 2.0,
            half("p50"),
            mean_us / 2.0,
            stdev_us / 2.0,
            half("p99"),
            half("p99.9"),
        );
    }
    text
}

/// As `fio --output-format=json` writes results: `slat` is the send lag, `clat` the service time,
/// `lat` the response time.
pub fn fio(outcomes: &[RunOutcome]) -> Value {
    let jobs: Vec<_> = outcomes.iter().map(job).collect();
    let began = outcomes.first().map_or(0.0, |outcome| outcome.began_unix_s);
    json!({
        "fio version": format!("stag-bench-{}", env!("CARGO_PKG_VERSION")),
        "timestamp": began as u64,
        "timestamp_ms": (began * 1e3) as u64,
        "jobs": jobs,
    })
}

fn job(outcome: &RunOutcome) -> Value {
    let setup = &outcome.setup;
    let moves = json!({
        "io_bytes": (outcome.octets_per_s * outcome.elapsed_s).round() as u64,
        "io_kbytes": (outcome.octets_per_s * outcome.elapsed_s / 1024.0).round() as u64,
        "bw_bytes": outcome.octets_per_s.round() as u64,
        "bw": (outcome.octets_per_s / 1024.0).round() as u64,
        "iops": outcome.calls_per_s,
        "runtime": (outcome.elapsed_s * 1e3).round() as u64,
        "total_ios": outcome.calls,
        "slat_ns": nanos(&outcome.client.lag),
        "clat_ns": nanos(&outcome.service),
        "lat_ns": nanos(&outcome.response),
    });
    let is_write =
        matches!(setup.workload.by_nfs3(), Workload::Pull | Workload::Write | Workload::Commit);
    let (read, write) = if is_write { (json!({}), moves) } else { (moves, json!({})) };
    json!({
        "jobname": setup.workload,
        "groupid": 0,
        "error": i32::from(outcome.failed > 0),
        "elapsed": outcome.elapsed_s.ceil() as u64,
        "job options": {
            "filename": setup.url, "bs": setup.size,
            "iodepth": setup.depth, "numjobs": setup.connections,
        },
        "read": read,
        "write": write,
    })
}

fn nanos(times: &Times) -> Value {
    let whole = |micros: f64| (micros * 1e3).round();
    let known = crate::latency::PERCENTILES.iter().zip(&times.percentiles_us);
    let percentiles: serde_json::Map<_, _> = known
        .filter_map(|((_, quantile), micros)| {
            Some((format!("{:.6}", quantile * 100.0), json!(whole((*micros)?))))
        })
        .collect();
    json!({
        "min": whole(times.min_us),
        "max": whole(times.max_us),
        "mean": times.mean_us * 1e3,
        "stddev": times.stdev_us * 1e3,
        "N": times.samples,
        "percentile": percentiles,
    })
}
