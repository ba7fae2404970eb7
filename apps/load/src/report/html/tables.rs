//! Tables around the charts: the figures, the method, and the host of the measurement.

use super::chart::{grouped, number, plain, size};
use crate::{
    latency::{PERCENTILES, Times},
    report::model::RunOutcome,
    stages::{StageTimes, Stages},
};
use jiff::Timestamp;
use std::fmt::Write;

/// Different values of one fact that are listed.
const LISTED: usize = 6;

fn micros(value: Option<f64>) -> String {
    value.map_or_else(|| "n/a".to_owned(), one_digit)
}

fn one_digit(value: f64) -> String {
    grouped(&format!("{value:.1}"))
}

fn mebibytes(octets: f64) -> f64 {
    octets / f64::from(1 << 20)
}

/// Writes the date, the host and the version of the measurement.
pub(super) fn lead(page: &mut String, outcomes: &[RunOutcome]) {
    let Some(RunOutcome { host, began_unix_s, version, .. }) = outcomes.first() else { return };
    let _ = writeln!(
        page,
        "<p class=\"lead\">{} on {}, {}; stag {}</p>",
        date(*began_unix_s),
        plain(&host.name),
        plain(&host.processor),
        plain(version)
    );
}

/// A moment in UTC, from the seconds since 1970.
fn date(unix_s: f64) -> String {
    let moment = Timestamp::from_second(unix_s.clamp(0.0, 1e11) as i64);
    moment.unwrap_or_default().strftime("%F %H:%M UTC").to_string()
}

/// Head of the table of results.
const RESULTS_HEAD: &str = "<div class=\"scroll\"><table>\n\
    <tr><th>run</th><th>calls/s</th><th>MiB/s</th>\
    <th>service<br>p50 µs</th>\
    <th>response<br>p50 µs</th><th><br>p99 µs</th><th><br>p99.9 µs</th><th><br>max \
    µs</th><th>calls</th><th>failed</th>\
    <th>unsent</th></tr>\n";

/// The figures.
pub(super) fn results(page: &mut String, outcomes: &[RunOutcome], names: &[String]) {
    if let [one] = outcomes {
        tiles(page, one);
        return single(page, one);
    }
    page.push_str(RESULTS_HEAD);
    for (name, outcome) in names.iter().zip(outcomes) {
        let RunOutcome {
            calls_per_s, octets_per_s, calls, failed, unsent, service, response, ..
        } = outcome;
        let _ = write!(page, "<tr><td class=\"run\">{}</td>", plain(name));
        let times = ["p50", "p99", "p99.9"].map(|of| micros(response.percentile(of)));
        let [p50, p99, p999] = times;
        let (rate, mib) = (one_digit(*calls_per_s), one_digit(mebibytes(*octets_per_s)));
        let (service, max) = (micros(service.percentile("p50")), one_digit(response.max_us));
        for cell in [rate, mib, service, p50, p99, p999, max] {
            let _ = write!(page, "<td>{cell}</td>");
        }
        for count in [calls, failed, unsent] {
            let _ = write!(page, "<td>{}</td>", grouped(&count.to_string()));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

/// Writes the figures that most readers look for.
fn tiles(page: &mut String, outcome: &RunOutcome) {
    let mut tiles = vec![(grouped(&format!("{:.0}", outcome.calls_per_s)), "calls/s")];
    if outcome.setup.workload.has_payload() {
        tiles.push((one_digit(mebibytes(outcome.octets_per_s)), "MiB/s of payload"));
    }
    let times =
        [("p50", "µs response p50"), ("p99", "µs response p99"), ("p99.9", "µs response p99.9")];
    tiles.extend(times.map(|(of, label)| (micros(outcome.response.percentile(of)), label)));
    tiles.push((grouped(&outcome.failed.to_string()), "calls failed"));
    if outcome.setup.rate.is_some() {
        tiles.push((grouped(&outcome.unsent.to_string()), "calls not made in time"));
    }
    page.push_str("<ul class=\"tiles\">\n");
    for (value, label) in tiles {
        let _ = writeln!(page, "<li><b>{value}</b><span>{label}</span></li>");
    }
    page.push_str("</ul>\n");
}

/// The head of a table of times.
fn times_head(page: &mut String, first: &str) {
    let _ = write!(
        page,
        "<div class=\"scroll\"><table>\n<tr><th>{first}</th><th>samples</th><th>min</th>\
         <th>mean</th>"
    );
    PERCENTILES.iter().for_each(|(name, _)| page.push_str(&format!("<th>{name}</th>")));
    page.push_str("<th>max</th>");
}

fn times_row(page: &mut String, name: &str, times: &Times) {
    let Times { samples, min_us, mean_us, max_us, percentiles_us, .. } = times;
    let _ = write!(page, "<tr><td>{}</td><td>{}</td>", plain(name), grouped(&samples.to_string()));
    for cell in [min_us, mean_us] {
        let _ = write!(page, "<td>{}</td>", one_digit(*cell));
    }
    percentiles_us.iter().for_each(|value| page.push_str(&format!("<td>{}</td>", micros(*value))));
    let _ = write!(page, "<td>{}</td>", one_digit(*max_us));
}

fn single(page: &mut String, outcome: &RunOutcome) {
    times_head(page, "µs");
    page.push_str("</tr>\n");
    let mut rows = vec![("service", &outcome.service), ("response", &outcome.response)];
    rows.extend(outcome.connected.iter().map(|connected| ("connected", connected)));
    if outcome.setup.rate.is_some() {
        rows.push(("send lag", &outcome.client.lag));
    }
    for (name, times) in rows {
        times_row(page, name, times);
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

/// Writes the time spent in each stage, if runs recorded it.
pub(super) fn stages(page: &mut String, outcomes: &[RunOutcome], names: &[String]) {
    let known = || {
        names
            .iter()
            .zip(outcomes)
            .filter_map(|(name, outcome)| Some((name, outcome.stages.as_ref()?)))
    };
    let Some((_, first)) = known().next() else { return };
    page.push_str("<section>\n<h2>Where the time went</h2>\n");
    if outcomes.len() == 1 {
        stages_of(page, first);
    } else {
        let all = |stages: &Stages| -> Vec<StageTimes> {
            let server = stages.server.iter().flat_map(|server| server.stages.clone());
            stages.client.iter().cloned().chain(server).collect()
        };
        let mut columns: Vec<String> = Vec::new();
        for stage in known().flat_map(|(_, stages)| all(stages)) {
            if !columns.contains(&stage.stage) {
                columns.push(stage.stage);
            }
        }
        page.push_str("<div class=\"scroll\"><table>\n<tr><th>mean, µs</th>");
        columns.iter().for_each(|stage| page.push_str(&format!("<th>{}</th>", plain(stage))));
        for (name, stages) in known() {
            let all = all(stages);
            let _ = write!(page, "</tr>\n<tr><td class=\"run\">{}</td>", plain(name));
            for stage in &columns {
                let mean =
                    all.iter().find(|known| known.stage == *stage).map(|known| known.times.mean_us);
                let _ = write!(page, "<td>{}</td>", micros(mean));
            }
        }
        page.push_str("</tr>\n</table></div>\n");
    }
    page.push_str("</section>\n");
}

fn stages_of(page: &mut String, stages: &Stages) {
    stage_table(page, "at the generator, µs", &stages.client);
    let _ = writeln!(page, "<p class=\"lead\">One call in {} was watched.</p>", stages.every);
    if let Some(server) = &stages.server {
        stage_table(page, "at the server, µs", &server.stages);
        let _ = writeln!(
            page,
            "<p class=\"lead\">One call in {} was watched; shards: {}.</p>",
            server.every, server.shards
        );
    }
}

/// A row for each stage; its bar is its part of the time of all.
fn stage_table(page: &mut String, title: &str, stages: &[StageTimes]) {
    let mut seen = stages.iter().filter(|stage| stage.times.samples > 0).peekable();
    if seen.peek().is_none() {
        return;
    }
    let _ = writeln!(
        page,
        "<div class=\"scroll\"><table>\n<tr><th>{title}</th><th>samples</th><th>mean</th>\
         <th>p50</th><th>p90</th><th>p99</th>\
         <th>max</th><th>part of all</th></tr>"
    );
    let spent = |times: &Times| times.mean_us * times.samples as f64;
    let all: f64 = stages.iter().map(|stage| spent(&stage.times)).sum();
    for StageTimes { stage, times } in seen {
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{}</td>",
            plain(stage),
            grouped(&times.samples.to_string())
        );
        let percentiles = ["p50", "p90", "p99"].map(|of| times.percentile(of));
        for time in [Some(times.mean_us)].into_iter().chain(percentiles).chain([Some(times.max_us)])
        {
            let _ = write!(page, "<td>{}</td>", micros(time));
        }
        let percent = if all > 0.0 { spent(times) / all * 100.0 } else { 0.0 };
        let _ = writeln!(
            page,
            "<td class=\"share\" title=\"{percent:.1} %\"><span class=\"bar\" \
             style=\"width:{percent:.1}%\"></span></td></tr>"
        );
    }
    page.push_str("</table></div>\n");
}

/// Something that is known of every run.
type Fact = (&'static str, fn(&RunOutcome) -> String);

/// Facts about the method of the measurement.
const CONFIGURATION: [Fact; 15] = [
    ("server", |outcome| outcome.setup.url.clone()),
    ("workload", |outcome| outcome.setup.workload.to_string()),
    ("payload", |outcome| match (outcome.setup.workload.has_payload(), outcome.setup.verified) {
        (false, _) => "none".to_owned(),
        (true, true) => format!("{}, every octet compared", size(outcome.setup.size as u64)),
        (true, false) => format!("{}, NOT compared", size(outcome.setup.size as u64)),
    }),
    ("loop", |outcome| match (outcome.setup.rate, outcome.setup.arrivals) {
        (Some(rate), Some(arrivals)) => {
            format!("open, {} calls/s, {arrivals}", number(rate))
        }
        _ => "closed".to_owned(),
    }),
    ("RPC-over-RDMA", |outcome| {
        outcome
            .rdma_version
            .map_or_else(|| "none".to_owned(), |version| format!("version {version}"))
    }),
    ("protection of calls", |outcome| {
        outcome.setup.sec.clone().unwrap_or_else(|| "none".to_owned())
    }),
    ("connections", |outcome| outcome.setup.connections.to_string()),
    ("depth", |outcome| outcome.setup.depth.to_string()),
    ("cores of the generator", |outcome| outcome.setup.cores.to_string()),
    ("warm-up", |outcome| format!("{} s", number(outcome.setup.warm_up_s))),
    ("measured", |outcome| format!("{} s", one_digit(outcome.elapsed_s))),
    ("calls", |outcome| grouped(&outcome.calls.to_string())),
    ("seed", |outcome| outcome.setup.seed.to_string()),
    ("began", |outcome| date(outcome.began_unix_s)),
    ("command, schema", |outcome| format!("stag {}, {}", outcome.version, outcome.schema)),
];

/// Facts about the host of the measurement, and about the state of the generator.
const HOST: [Fact; 11] = [
    ("host", |outcome| outcome.host.name.clone()),
    ("processor", |outcome| outcome.host.processor.clone()),
    ("cores", |outcome| outcome.host.cores.to_string()),
    ("kernel", |outcome| format!("Linux {}", outcome.host.kernel)),
    ("load average before", |outcome| number(outcome.host.load)),
    ("a word there and back between two cores, before and after", |outcome| {
        let [before, after] = outcome
            .host
            .floors_ns
            .map(|floor| floor.map_or_else(|| "n/a".to_owned(), |nanos| format!("{nanos:.0} ns")));
        format!("{before}, {after}")
    }),
    ("time that others took from the host", |outcome| {
        outcome
            .client
            .stolen
            .map_or_else(|| "n/a".to_owned(), |part| format!("{:.1} %", part * 100.0))
    }),
    ("generator: threads with a core of their own", |outcome| {
        format!("{} of {}", outcome.client.pinned, outcome.setup.cores)
    }),
    ("generator: times a thread lost its core", |outcome| {
        outcome
            .client
            .preemptions
            .map_or_else(|| "n/a".to_owned(), |times| grouped(&times.to_string()))
    }),
    ("generator: longest time between two looks", |outcome| {
        format!("{} µs", one_digit(outcome.client.gap_max_us))
    }),
    ("generator: send lag, p99", |outcome| match outcome.setup.rate {
        Some(_) => format!("{} µs", micros(outcome.client.lag.percentile("p99"))),
        None => "closed loop".to_owned(),
    }),
];

/// Writes the facts about the method and the host of the measurement.
pub(super) fn facts(page: &mut String, outcomes: &[RunOutcome]) {
    page.push_str("<section>\n<h2>How and where it was measured</h2>\n<div class=\"facts\">\n");
    for facts in [&CONFIGURATION[..], &HOST[..]] {
        page.push_str("<table>\n");
        for (name, of) in facts {
            let _ = writeln!(
                page,
                "<tr><td>{name}</td><td>{}</td></tr>",
                plain(&values(outcomes, *of))
            );
        }
        page.push_str("</table>\n");
    }
    page.push_str("</div>\n</section>\n");
}

/// Joins the values of a fact: the one that all runs share, or the different ones.
fn values(outcomes: &[RunOutcome], of: fn(&RunOutcome) -> String) -> String {
    let mut values: Vec<String> = Vec::new();
    for value in outcomes.iter().map(of).filter(|value| !value.is_empty()) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    match values.as_slice() {
        [first, .., last] if values.len() > LISTED => {
            format!("{first} … {last} ({} values)", values.len())
        }
        few => few.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        let moments =
            [0.0, 951_782_400.0, 951_868_799.0, 1_735_689_599.0, 1_795_182_960.0, 4_107_542_400.0];
        let expected = [
            "1970-01-01 00:00 UTC",
            "2000-02-29 00:00 UTC",
            "2000-02-29 23:59 UTC",
            "2024-12-31 23:59 UTC",
            "2026-11-20 13:56 UTC",
            "2100-03-01 00:00 UTC",
        ];
        assert_eq!(moments.map(date), expected);
        assert_eq!((date(-1.0), date(f64::NAN)), (date(0.0), date(0.0)));
    }
}
