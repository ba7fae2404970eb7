//! Selection of the charts of a page, and of the lines in them.

use super::chart::{Axis, Chart, ChartPoint, Colour, Line, grouped, number};
use crate::{
    Arrivals,
    latency::BEYOND,
    report::model::{Outage, OutageGap, RunOutcome, SecondFigures},
};
use hdrhistogram::Histogram;

/// A rate below this part of the intended one was not kept, unless chance explains it.
const KEPT: f64 = 0.98;
/// Standard deviations of the number of calls that chance explains.
const CHANCE: f64 = 4.0;
/// Rates that are further apart than this are shown on a logarithmic axis.
const WIDE: f64 = 20.0;
const MICROS: &str = "µs, logarithmic";

/// All that say something.
pub(super) fn charts(outcomes: &[RunOutcome], names: &[String]) -> Result<Vec<Chart>, String> {
    let charts = [against_rate(outcomes), by_size(outcomes), by_percentile(outcomes, names)?];
    let over_time = [over_time(outcomes, names), calls_over_time(outcomes, names)];
    let bandwidth = bandwidth_by_size(outcomes);
    let [rate, size, percentile] = charts;
    let charts = [rate, size, bandwidth, percentile].into_iter().chain(over_time).flatten();
    Ok(charts.chain(gaps(outcomes, names)).collect())
}

/// Points of a histogram: x means that one in x samples is beyond, y is the time.
fn distribution(histogram: &Histogram<u64>) -> Vec<ChartPoint> {
    if histogram.is_empty() {
        return Vec::new();
    }
    // A percentile with fewer than ten samples beyond it says nothing (DESIGN D13).
    let most = (histogram.len() as f64 / BEYOND).max(1.0);
    let steps = (0..=200)
        .map(|step| 10_f64.powf(f64::from(step) / 20.0))
        .take_while(|beyond| *beyond <= most);
    let time = |beyond: f64| histogram.value_at_quantile(1.0 - 1.0 / beyond) as f64 / 1e3;
    steps.map(|beyond| ChartPoint::new(beyond, time(beyond))).collect()
}

fn by_percentile(outcomes: &[RunOutcome], names: &[String]) -> Result<Option<Chart>, String> {
    let mut lines = Vec::new();
    for (place, (name, outcome)) in names.iter().zip(outcomes).enumerate() {
        let points = distribution(&outcome.response.histogram()?);
        let name = if outcomes.len() == 1 { "response" } else { name };
        let colour = Colour { place, count: outcomes.len() };
        lines.push(Line { name: name.to_owned(), points, colour, is_dashed: false });
    }
    if let [one] = outcomes
        && one.setup.rate.is_some()
    {
        let points = distribution(&one.service.histogram()?);
        lines.push(Line {
            name: "service".to_owned(),
            points,
            colour: Colour { place: 0, count: 1 },
            is_dashed: true,
        });
    }
    if let [RunOutcome { connected: Some(connected), .. }] = outcomes {
        let points = distribution(&connected.histogram()?);
        lines.push(Line {
            name: "connected".to_owned(),
            points,
            colour: Colour { place: 0, count: 1 },
            is_dashed: true,
        });
    }
    lines.retain(|line| !line.points.is_empty());
    if lines.is_empty() {
        return Ok(None);
    }
    let [xs, ys] = Chart::values(&lines);
    let (x, y) = (Axis::nines(xs), Axis::log(MICROS, ys));
    let caption = "Each line ends where fewer than 10 samples lie beyond.".to_owned();
    let marks = Vec::new();
    Ok(Some(Chart {
        title: "Response time by percentile",
        caption,
        x,
        y,
        lines,
        has_points: false,
        marks,
    }))
}

/// Runs one after the other, each from where the one before ended: seconds, and the first of each
/// run.
fn in_turn(outcomes: &[RunOutcome]) -> Vec<f64> {
    let mut begin = 0.0;
    let mut begins = Vec::new();
    for outcome in outcomes {
        begins.push(begin);
        begin += outcome.seconds.len() as f64;
    }
    begins
}

/// A line of all runs in turn.
fn series(
    outcomes: &[RunOutcome],
    of: impl Fn(&RunOutcome, &SecondFigures) -> Option<f64>,
) -> Vec<ChartPoint> {
    let mut points = Vec::new();
    for (outcome, begin) in outcomes.iter().zip(in_turn(outcomes)) {
        let mut is_apart = true;
        for second in &outcome.seconds {
            match of(outcome, second).filter(|value| *value > 0.0) {
                // In the middle of the second that it is about.
                Some(y) => points.push(ChartPoint {
                    x: begin + second.second as f64 + 0.5,
                    y,
                    is_hollow: false,
                    is_apart: std::mem::take(&mut is_apart),
                }),
                None => is_apart = true,
            }
        }
    }
    points
}

fn time_chart(
    outcomes: &[RunOutcome],
    names: &[String],
    title: &'static str,
    mut lines: Vec<Line>,
    y: impl FnOnce(&[Line]) -> Axis,
) -> Option<Chart> {
    lines.retain(|line| !line.points.is_empty());
    let seconds: usize = outcomes.iter().map(|outcome| outcome.seconds.len()).sum();
    if lines.iter().all(|line| line.points.len() < 2) {
        return None;
    }
    let x = Axis::linear("seconds of measuring", std::iter::once(seconds as f64));
    let marks = match outcomes {
        [_] => Vec::new(),
        _ => in_turn(outcomes).into_iter().zip(names.iter().cloned()).collect(),
    };
    let turns =
        if marks.is_empty() { "" } else { " Runs in their order, without what was between them." };
    Some(Chart {
        title,
        caption: turns.trim().to_owned(),
        x,
        y: y(&lines),
        lines,
        has_points: true,
        marks,
    })
}

fn over_time(outcomes: &[RunOutcome], names: &[String]) -> Option<Chart> {
    let line = |name: &str, colour, is_dashed, of: fn(&SecondFigures) -> Option<f64>| Line {
        name: name.to_owned(),
        points: series(outcomes, |_, second| of(second)),
        colour: Colour { place: colour, count: 3 },
        is_dashed,
    };
    let mut lines = vec![
        line("p50", 0, false, |second| second.response_p50_us),
        line("p99", 1, false, |second| second.response_p99_us),
        line("longest", 2, false, |second| Some(second.response_max_us)),
    ];
    if outcomes.iter().any(|outcome| outcome.setup.rate.is_some()) {
        lines.push(line("service p50", 0, true, |second| second.service_p50_us));
        lines.push(line("service p99", 1, true, |second| second.service_p99_us));
    }
    let y = |lines: &[Line]| {
        Axis::log(MICROS, Chart::values(lines).into_iter().nth(1).into_iter().flatten())
    };
    time_chart(outcomes, names, "Response time over time", lines, y)
}

fn calls_over_time(outcomes: &[RunOutcome], names: &[String]) -> Option<Chart> {
    // A second that is not whole has fewer.
    let whole = |outcome: &RunOutcome, second: &SecondFigures| {
        second.second < outcome.whole_seconds().len() as u64
    };
    let line = |name: &str, place, of: fn(&RunOutcome, &SecondFigures) -> Option<f64>| Line {
        name: name.to_owned(),
        points: series(outcomes, |outcome, second| {
            of(outcome, second).filter(|_| whole(outcome, second))
        }),
        colour: Colour { place, count: 2 },
        is_dashed: place > 0,
    };
    let mut lines = vec![line("calls/s", 0, |_, second| Some(second.calls as f64))];
    if outcomes.iter().any(|outcome| outcome.setup.rate.is_some()) {
        lines.push(line("meant", 1, |outcome, _| outcome.setup.rate));
    }
    let y = |lines: &[Line]| {
        Axis::linear("calls/s", Chart::values(lines).into_iter().nth(1).into_iter().flatten())
    };
    time_chart(outcomes, names, "Throughput over time", lines, y)
}

/// A chart of each gap.
fn gaps(outcomes: &[RunOutcome], names: &[String]) -> Vec<Chart> {
    let runs = names.iter().zip(outcomes);
    let charts = runs.flat_map(|(name, outcome)| {
        let whose = if outcomes.len() == 1 { String::new() } else { format!(" {name}.") };
        outcome.gaps.iter().map(move |gap| gap_chart(outcome, gap, &whose))
    });
    charts.collect()
}

/// Calls answered over time around an outage, with its beginning and end.
fn gap_chart(outcome: &RunOutcome, gap: &OutageGap, whose: &str) -> Chart {
    let point = |(number, calls): (usize, &u64)| {
        let x = gap.from_s + gap.step_s * (number as f64 + 0.5);
        ChartPoint::new(x, *calls as f64 / gap.step_s)
    };
    let lines = vec![Line {
        name: "calls answered/s".to_owned(),
        points: gap.calls.iter().enumerate().map(point).collect(),
        colour: Colour { place: 0, count: 1 },
        is_dashed: false,
    }];
    let marks = outcome.outages.iter().flat_map(|Outage { at_s, lasted_s }| {
        [(*at_s, "lost".to_owned()), (at_s + lasted_s, "answered".to_owned())]
    });
    let mut marks: Vec<_> =
        marks.filter(|(at, _)| (gap.from_s..=gap.until_s()).contains(at)).collect();
    marks.sort_by(|one, other| one.0.total_cmp(&other.0));
    let [_, ys] = Chart::values(&lines);
    Chart {
        title: "Calls answered around an outage",
        caption: format!("Steps of {} ms.{whose}", number((gap.step_s * 1e3).round())),
        x: Axis::between("seconds of measuring", gap.from_s, gap.until_s()),
        y: Axis::linear("calls/s", ys),
        lines,
        has_points: false,
        marks,
    }
}

/// Groups of runs that differ only in the load they offer.
fn groups<K: PartialEq>(
    outcomes: &[RunOutcome],
    key: impl Fn(&RunOutcome) -> K,
) -> Vec<(K, Vec<&RunOutcome>)> {
    let mut groups: Vec<(K, Vec<&RunOutcome>)> = Vec::new();
    for outcome in outcomes {
        let key = key(outcome);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(outcome),
            None => groups.push((key, vec![outcome])),
        }
    }
    groups
}

/// Returns the load that a run offers: calls per second, or calls outstanding at a time.
fn offered(outcome: &RunOutcome) -> f64 {
    let setup = &outcome.setup;
    setup.rate.unwrap_or((setup.connections * setup.depth) as f64)
}

/// True if a run made the calls it was meant to. The number of calls at Poisson times varies by
/// chance; one more or less may be at either end.
fn is_kept(outcome: &RunOutcome) -> bool {
    let Some(rate) = outcome.setup.rate else { return outcome.unsent == 0 };
    let meant = rate * outcome.elapsed_s;
    let deviation =
        if outcome.setup.arrivals == Some(Arrivals::Poisson) { meant.sqrt() } else { 0.0 };
    let missing = meant - outcome.calls_per_s * outcome.elapsed_s;
    outcome.unsent == 0 && missing <= (meant * (1.0 - KEPT)).max(1.0 + CHANCE * deviation)
}

fn percentile(outcome: &RunOutcome, name: &str, is_service: bool) -> Option<f64> {
    let times = if is_service { &outcome.service } else { &outcome.response };
    times.percentile(name)
}

/// A percentile, of which time, and how its line is drawn.
#[derive(Clone, Copy)]
struct Of {
    of: &'static str,
    is_service: bool,
    is_dashed: bool,
}

/// The lines of groups of runs: several percentiles of one group, or two of several.
fn percentiles(
    groups: &[(String, Vec<&RunOutcome>)],
    x: impl Fn(&RunOutcome) -> f64,
    is_open: bool,
) -> Vec<Line> {
    let line =
        |name: String, group: &[&RunOutcome], colour, Of { of, is_service, is_dashed }: Of| {
            let point = |outcome: &&RunOutcome| {
                let y = percentile(outcome, of, is_service)?;
                Some(ChartPoint { is_hollow: !is_kept(outcome), ..ChartPoint::new(x(outcome), y) })
            };
            Line { name, points: group.iter().filter_map(point).collect(), colour, is_dashed }
        };
    let mut lines = Vec::new();
    if let [(_, group)] = groups {
        for (place, of) in ["p50", "p99", "p99.9"].into_iter().enumerate() {
            lines.push(line(
                of.to_owned(),
                group,
                Colour { place, count: 3 },
                Of { of, is_service: false, is_dashed: false },
            ));
        }
        if is_open {
            lines.push(line(
                "service p50".to_owned(),
                group,
                Colour { place: 0, count: 3 },
                Of { of: "p50", is_service: true, is_dashed: true },
            ));
            lines.push(line(
                "service p99".to_owned(),
                group,
                Colour { place: 1, count: 3 },
                Of { of: "p99", is_service: true, is_dashed: true },
            ));
        }
    } else {
        for (place, (name, group)) in groups.iter().enumerate() {
            let colour = Colour { place, count: groups.len() };
            lines.push(line(
                format!("{name} p99"),
                group,
                colour,
                Of { of: "p99", is_service: false, is_dashed: false },
            ));
            lines.push(line(
                format!("{name} p50"),
                group,
                colour,
                Of { of: "p50", is_service: false, is_dashed: true },
            ));
        }
    }
    lines.retain(|line| !line.points.is_empty());
    lines
}

fn against_rate(outcomes: &[RunOutcome]) -> Option<Chart> {
    let grouped_by = groups(outcomes, |outcome| {
        let setup = &outcome.setup;
        (setup.url.clone(), setup.workload, setup.size, setup.rate.is_some())
    });
    let mut ladders: Vec<(String, Vec<&RunOutcome>)> = Vec::new();
    for ((url, workload, size, is_open), mut group) in grouped_by {
        group.sort_by(|one, other| offered(one).total_cmp(&offered(other)));
        let is_ladder =
            group.windows(2).any(|pair| matches!(pair, [a, b] if offered(a) < offered(b)));
        let all = |same: fn(&RunOutcome, &RunOutcome) -> bool| {
            outcomes.windows(2).all(|pair| matches!(pair, [a, b] if same(a, b)))
        };
        let mut name = vec![if is_open { "open" } else { "closed" }.to_owned()];
        if !all(|a, b| a.setup.workload == b.setup.workload) {
            name.push(workload.to_string());
        }
        if !all(|a, b| a.setup.size == b.setup.size) {
            name.push(super::chart::size(size as u64));
        }
        if !all(|a, b| a.setup.url == b.setup.url) {
            name.push(url);
        }
        if is_ladder {
            ladders.push((name.join(" "), group));
        }
    }
    let is_open = outcomes.iter().any(|outcome| outcome.setup.rate.is_some());
    let lines = percentiles(&ladders, |outcome| outcome.calls_per_s, is_open);
    if lines.iter().all(|line| line.points.len() < 2) {
        return None;
    }
    let [xs, ys] = Chart::values(&lines);
    let (least, most) =
        xs.clone().fold((f64::MAX, 0.0_f64), |(least, most), x| (least.min(x), most.max(x)));
    let x = match most > least * WIDE {
        true => Axis::log("calls/s that were answered, logarithmic", xs),
        false => Axis::linear("calls/s that were answered", xs),
    };
    let y = Axis::log(MICROS, ys);
    let broken = outcomes.iter().filter(|outcome| !is_kept(outcome)).count();
    let caption = match broken {
        0 => String::new(),
        _ => format!(
            "Hollow: the rate that was meant was not kept ({} of {} runs).",
            broken,
            outcomes.len()
        ),
    };
    Some(Chart {
        title: "Response time against throughput",
        caption,
        x,
        y,
        lines,
        has_points: true,
        marks: Vec::new(),
    })
}

/// Groups of runs that differ in their sizes.
fn ladders_of_sizes(outcomes: &[RunOutcome]) -> Vec<(String, Vec<&RunOutcome>)> {
    let groups = groups(outcomes, |outcome| {
        let setup = &outcome.setup;
        let pace = setup
            .rate
            .map_or_else(String::new, |rate| format!("{}/s", grouped(&format!("{rate:.0}"))));
        (setup.url.clone(), setup.workload, pace, setup.connections, setup.depth)
    });
    let count = groups.len();
    let mut ladders = Vec::new();
    for ((url, workload, pace, connections, depth), mut group) in groups {
        group.sort_by_key(|outcome| outcome.setup.size);
        let is_ladder =
            group.windows(2).any(|pair| matches!(pair, [a, b] if a.setup.size < b.setup.size));
        let is_sized = group.iter().all(|outcome| outcome.setup.size > 0);
        let name = if count == 1 {
            String::new()
        } else {
            format!("{workload} {url} {pace} {connections}×{depth}")
        };
        if is_ladder && is_sized {
            ladders.push((name, group));
        }
    }
    ladders
}

fn by_size(outcomes: &[RunOutcome]) -> Option<Chart> {
    let is_open = outcomes.iter().any(|outcome| outcome.setup.rate.is_some());
    let lines =
        percentiles(&ladders_of_sizes(outcomes), |outcome| outcome.setup.size as f64, is_open);
    if lines.is_empty() {
        return None;
    }
    let [xs, ys] = Chart::values(&lines);
    let (x, y) = (Axis::sizes(xs), Axis::log(MICROS, ys));
    Some(Chart {
        title: "Response time by size",
        caption: String::new(),
        x,
        y,
        lines,
        has_points: true,
        marks: Vec::new(),
    })
}

fn bandwidth_by_size(outcomes: &[RunOutcome]) -> Option<Chart> {
    let ladders = ladders_of_sizes(outcomes);
    let count = ladders.len();
    let line = |(place, (name, group)): (usize, (String, Vec<&RunOutcome>))| {
        let mib = |outcome: &RunOutcome| outcome.octets_per_s / f64::from(1 << 20);
        let points = group
            .iter()
            .map(|outcome| ChartPoint::new(outcome.setup.size as f64, mib(outcome)))
            .collect();
        Line {
            name: format!("MiB/s {name}").trim().to_owned(),
            points,
            colour: Colour { place, count },
            is_dashed: false,
        }
    };
    let lines: Vec<_> = ladders.into_iter().enumerate().map(line).collect();
    if lines.is_empty() {
        return None;
    }
    let [xs, ys] = Chart::values(&lines);
    let (x, y) = (Axis::sizes(xs), Axis::linear("MiB/s", ys));
    Some(Chart {
        title: "Payload by size",
        caption: String::new(),
        x,
        y,
        lines,
        has_points: true,
        marks: Vec::new(),
    })
}
