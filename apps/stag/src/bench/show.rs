//! Bench results as text.

use crate::stage_table::{both_ends, micros};
use stag_load::{
    RunOutcome, Times,
    compare::Change,
    ladder::Promise,
    latency::PERCENTILES,
    report::model::{OutageGap, RunSetup, SecondFigures},
    versus::{Ratio, Round},
};
use std::fmt::Write;

/// One second, in one line.
pub fn live(second: &SecondFigures) -> String {
    let SecondFigures {
        second,
        calls,
        failed,
        response_p50_us,
        response_p99_us,
        response_max_us,
        ..
    } = second;
    let mut line = format!(
        "{:>5} s {calls:>10} calls/s  p50 {:>8} p99 {:>8} max {response_max_us:>9.1} us",
        second + 1,
        micros(*response_p50_us),
        micros(*response_p99_us)
    );
    if *failed > 0 {
        let _ = write!(line, " {failed} FAILED");
    }
    line
}

/// Formats the outcome of one run or several.
pub fn table(outcomes: &[RunOutcome]) -> String {
    let mut text = String::new();
    match outcomes {
        [one] => single(&mut text, one),
        several => ladder(&mut text, several),
    }
    for outcome in outcomes {
        let mut notes = outcome.notes();
        if outcomes.len() > 1 {
            notes.iter_mut().for_each(|note| *note = format!("{}: {note}", step(&outcome.setup)));
        }
        notes.iter().for_each(|note| text.push_str(&format!("note: {note}\n")));
    }
    text
}

/// The RPC-over-RDMA version in use, and the contexts, to be appended to the URL.
fn version(outcome: &RunOutcome) -> String {
    let version = outcome
        .rdma_version
        .map_or_else(String::new, |version| format!(", RPC-over-RDMA version {version}"));
    let contexts = outcome.contexts.map_or_else(String::new, |contexts| {
        let s = if contexts.created == 1 { "" } else { "s" };
        let renewed = match contexts.renewed {
            0 => String::new(),
            renewed => format!(", {renewed} of them renewed"),
        };
        let over_tcp = if contexts.over_tcp == 0 { "" } else { " created over TCP" };
        format!(", {} context{s}{over_tcp}{renewed}", contexts.created)
    });
    format!("{version}{contexts}")
}

fn head(outcome: &RunOutcome) -> String {
    let [what, how] = parameters(&outcome.setup, &version(outcome));
    format!("{what}\n{how}\n\n")
}

/// Returns two lines about what is measured, and how. `spoken` is appended to the URL.
pub fn parameters(setup: &RunSetup, spoken: &str) -> [String; 2] {
    let RunSetup { url, workload, size, connections, depth, cores, .. } = setup;
    let payload = if *size > 0 { format!(" of {size} octets") } else { String::new() };
    let pace = match (setup.rate, setup.arrivals) {
        (Some(rate), Some(arrivals)) => {
            format!("open loop of {rate} calls/s, {arrivals}")
        }
        _ => "closed loop".to_owned(),
    };
    let by = setup.sec.as_ref().map_or_else(String::new, |sec| format!(" by {sec}"));
    let s = |count: &usize| if *count == 1 { "" } else { "s" };
    let compared = match (setup.workload.has_payload(), setup.verified) {
        (false, _) => "none",
        (true, true) => "verified",
        (true, false) => "NOT verified",
    };
    [
        format!("{workload}{payload} to {url}{by}{spoken}"),
        format!(
            "{pace}; {connections} connection{}, depth {depth}, {cores} core{}; payload {compared}",
            s(connections),
            s(cores),
        ),
    ]
}

fn single(text: &mut String, outcome: &RunOutcome) {
    text.push_str(&head(outcome));
    let RunOutcome { elapsed_s, calls, failed, unsent, calls_per_s, octets_per_s, .. } = outcome;
    let _ = writeln!(
        text,
        "{:>12} {:>12} {:>12} {:>10} {:>10} {:>10}\n{calls_per_s:>12.1} {:>12.1} {calls:>12} \
         {failed:>10} {unsent:>10} {elapsed_s:>10.2}\n",
        "calls/s",
        "MiB/s",
        "calls",
        "failed",
        "unsent",
        "seconds",
        octets_per_s / f64::from(1 << 20),
    );
    let lag = outcome.setup.rate.map(|_| ("send lag", &outcome.client.lag));
    let connected = outcome.connected.as_ref().map(|connected| ("connected", connected));
    let times = [("service", &outcome.service), ("response", &outcome.response)];
    columns(text, &connected.into_iter().chain(times).chain(lag).collect::<Vec<_>>());
    outcome.gaps.iter().for_each(|known| gap(text, known));
    outcome.stages.iter().for_each(|known| both_ends(text, known));
    text.push_str("Full round trips. n/a: fewer than 10 samples lie beyond.\n");
    if let Some(cores) = outcome.server_cores {
        let each = calls_per_s / cores.max(1e-9);
        let _ = writeln!(text, "server: {cores:.2} cores busy, {each:.0} calls/s for each");
    }
    if let Some(check) = &outcome.check {
        let _ = writeln!(text, "host: {check} ('stag tune check')");
    }
}

/// Columns of a gap.
const GAP_COLUMNS: usize = 78;
/// Parts of the highest column: none answered, a few, more.
const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws the replies around an outage in a line.
fn gap(text: &mut String, gap: &OutageGap) {
    let each = gap.calls.len().div_ceil(GAP_COLUMNS).max(1);
    let sums: Vec<u64> = gap
        .calls
        .chunks(each)
        .map(|part| part.iter().fold(0, |sum: u64, calls| sum.saturating_add(*calls)))
        .collect();
    let most = sums.iter().copied().max().unwrap_or(0).max(1);
    let column = gap.step_s * each as f64;
    let _ = writeln!(
        text,
        "calls answered from {:.3} s to {:.3} s, {:.0} ms a column, {most} in the highest",
        gap.from_s,
        gap.until_s(),
        column * 1e3
    );
    let height = |sum: u64| {
        let part = sum as f64 / most as f64 * (HEIGHTS.len() - 1) as f64;
        HEIGHTS.get(part.ceil() as usize).copied().unwrap_or('█')
    };
    let _ = writeln!(text, "|{}|", sums.into_iter().map(height).collect::<String>());
}

/// Writes times below each other, a column for each: all percentiles fit a terminal.
fn columns(text: &mut String, all: &[(&str, &Times)]) {
    let _ = write!(text, "{:<9}", "us");
    all.iter().for_each(|(name, _)| text.push_str(&format!(" {name:>12}")));
    let mut line = |name: &str, of: &dyn Fn(&Times) -> String| {
        let _ = write!(text, "\n{name:<9}");
        all.iter().for_each(|(_, times)| text.push_str(&format!(" {:>12}", of(times))));
    };
    line("samples", &|times| times.samples.to_string());
    line("min", &|times| format!("{:.1}", times.min_us));
    line("mean", &|times| format!("{:.1}", times.mean_us));
    for (name, _) in PERCENTILES {
        line(name, &|times| micros(times.percentile(name)));
    }
    line("max", &|times| format!("{:.1}", times.max_us));
    text.push('\n');
}

/// Formats the parameters that distinguish a run of a ladder from the others.
fn step(setup: &RunSetup) -> String {
    match setup.rate {
        Some(rate) => format!("{} octets, {rate} calls/s", setup.size),
        None => format!("{} octets", setup.size),
    }
}

fn ladder(text: &mut String, outcomes: &[RunOutcome]) {
    let Some(first) = outcomes.first() else { return };
    let RunSetup { url, workload, connections, depth, cores, .. } = &first.setup;
    let spoken = version(first);
    let _ = writeln!(
        text,
        "{workload} to {url}{spoken}; connections {connections}, depth {depth}, cores {cores}\n"
    );
    for heads in [
        ["octets", "meant/s", "calls/s", "MiB/s", "service", "response", "response", "response"],
        ["", "", "", "", "p50 us", "p50 us", "p99 us", "p99.9 us"],
    ] {
        let [size, meant, calls, mib, service, p50, p99, p999] = heads;
        let unsent = if size.is_empty() { "" } else { "unsent" };
        let _ = writeln!(
            text,
            "{size:>7} {meant:>9} {calls:>9} {mib:>7} {service:>8} {p50:>8} {p99:>8} {p999:>8} \
             {unsent:>8}"
        );
    }
    for outcome in outcomes {
        let response = |name: &str| micros(outcome.response.percentile(name));
        let _ = writeln!(
            text,
            "{:>7} {:>9} {:>9.0} {:>7.1} {:>8} {:>8} {:>8} {:>8} {:>8}",
            outcome.setup.size,
            outcome.setup.rate.map_or_else(|| "closed".to_owned(), |rate| format!("{rate:.0}")),
            outcome.calls_per_s,
            outcome.octets_per_s / f64::from(1 << 20),
            micros(outcome.service.percentile("p50")),
            response("p50"),
            response("p99"),
            response("p99.9"),
            outcome.unsent
        );
    }
    text.push_str("Full round trips. n/a: fewer than 10 samples lie beyond.\n");
}

/// The highest rate that keeps a promise.
pub fn promised(promise: &Promise, rate: Option<f64>) -> String {
    let Promise { percentile, at_most_us } = promise;
    match rate {
        Some(rate) => {
            format!(
                "highest rate with {percentile} of at most {at_most_us} us: {rate:.1} calls/s\n"
            )
        }
        None => format!("no rate that was tried keeps {percentile} at {at_most_us} us\n"),
    }
}

/// Formats the outcome of rounds against two servers.
pub fn versus(urls: [&str; 2], rounds: &[Round], ratios: &[Ratio]) -> String {
    let [one, other] = urls;
    let mut text = rounds.first().map(|round| head(&round.before)).unwrap_or_default();
    let counted = rounds.iter().filter(|round| round.counts()).count();
    let _ = writeln!(text, "A {one}\nB {other}\n{counted} of {} rounds count", rounds.len());
    let floors = rounds.iter().filter_map(Round::floors);
    if let Some((low, high)) = floors.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))
    {
        let _ = writeln!(
            text,
            "floors (a word's round trip between two cores) from {low:.0} to {high:.0} ns"
        );
    }
    let _ = writeln!(
        text,
        "\n{:<15} {:>10} {:>10} {:>7} {:>7} {:>7} {:>7}  B is",
        "middle", "A", "B", "B/A", "lowest", "highest", "p"
    );
    for Ratio { quantity, before, after, ratio, lowest, highest, p, verdict, .. } in ratios {
        let verdict = format!("{verdict:?}").to_lowercase();
        let _ = writeln!(
            text,
            "{quantity:<15} {before:>10.1} {after:>10.1} {ratio:>7.3} {lowest:>7.3} \
             {highest:>7.3} {p:>7.4}  {verdict}"
        );
    }
    text
}

/// Formats the changes between two runs.
pub fn changes(changes: &[Change]) -> String {
    let mut text = format!(
        "{:<15} {:>10} {:>10} {:>8} {:>16} {:>7}  verdict\n",
        "per second", "before", "after", "change %", "95 % of it", "p"
    );
    for Change { quantity, before, after, change, interval, p, verdict } in changes {
        let (percent, verdict) = (change * 100.0, format!("{verdict:?}").to_lowercase());
        let [low, high] = interval.map(|change| change * 100.0);
        let interval = format!("{low:+.1} to {high:+.1}");
        let _ = writeln!(
            text,
            "{quantity:<15} {before:>10.1} {after:>10.1} {percent:>+8.1} {interval:>16} {p:>7.4}  \
             {verdict}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_a_line_of_80_columns_whose_blanks_are_the_outage() {
        let draw = |calls: Vec<u64>| {
            let mut text = String::new();
            gap(&mut text, &OutageGap { from_s: 1.0, step_s: 0.02, calls });
            text
        };
        assert_eq!(
            draw(vec![8, 8, 0, 0, 1, 4]),
            "calls answered from 1.000 s to 1.120 s, 20 ms a column, 8 in the highest\n|██  ▁▄|\n"
        );
        let long = draw((0..200).map(|step| u64::from(!(50..150).contains(&step))).collect());
        assert!(long.contains("60 ms a column, 3 in the highest"), "{long}");
        assert!(long.lines().all(|line| line.chars().count() <= 80), "{long}");
        assert!(draw(vec![0, 0]).ends_with("|  |\n") && draw(vec![]).ends_with("||\n"));
        assert!(draw(vec![u64::MAX, 1]).ends_with("|█▁|\n"));
    }
}
