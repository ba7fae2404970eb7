//! One page that shows results: charts as inline SVG, without scripts and without anything from elsewhere.

use super::outcome::Outcome;
use hdrhistogram::Histogram;
use std::fmt::Write;

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 320.0;
/// Around the plot: left, top, right, bottom.
const MARGIN: [f64; 4] = [80.0, 16.0, 230.0, 44.0];
/// Between the lines of the legend, which stands to the right of the plot.
const LEGEND_STEP: f64 = 18.0;
/// Letters of a name in the legend that fit beside the plot.
const NAME_MAX: usize = 32;
const COLOURS: [&str; 8] =
    ["#0b6e99", "#d1495b", "#3b8c4a", "#a05195", "#e08e1b", "#5b6c7d", "#7b4b2a", "#1f3a93"];
const STYLE: &str = "body{font:15px/1.4 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222;background:#fff}\
    table{border-collapse:collapse}td,th{padding:.15em .7em;text-align:right;border-bottom:1px solid #ddd}\
    td:first-child,th:first-child{text-align:left}svg{max-width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:#222}\
    .note{color:#8a1c1c}";

/// One line of a chart.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// An axis, with where its values lie.
struct Axis {
    title: &'static str,
    ticks: Vec<(f64, String)>,
    range: (f64, f64),
    is_log: bool,
}

impl Axis {
    /// Powers of ten around `values`.
    fn log(title: &'static str, values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = bounds(values.filter(|value| *value > 0.0));
        let (low, high) =
            (low.log10().floor() as i32, (high.log10().ceil() as i32).max(low.log10().floor() as i32 + 1));
        let ticks = (low..=high).map(|power| (10_f64.powi(power), number(10_f64.powi(power)))).collect();
        Self { title, ticks, range: (10_f64.powi(low), 10_f64.powi(high)), is_log: true }
    }

    /// From zero to above `values`.
    fn linear(title: &'static str, values: impl Iterator<Item = f64>) -> Self {
        let (_, high) = bounds(values);
        let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * 10_f64.powf((high / 5.0).log10().floor()));
        let step = step.into_iter().find(|step| high / step <= 6.0).unwrap_or(high);
        let count = (high / step).ceil().max(1.0) as u32;
        let ticks =
            (0..=count).map(|tick| (f64::from(tick) * step, number(f64::from(tick) * step))).collect();
        Self { title, ticks, range: (0.0, f64::from(count) * step), is_log: false }
    }

    /// Where a value lies, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let (low, high) = self.range;
        let part = match self.is_log {
            true => (value.max(low) / low).log10() / (high / low).log10(),
            false => (value - low) / (high - low),
        };
        part.clamp(0.0, 1.0)
    }
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) =
        values.fold((f64::MAX, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    if high > 0.0 { (low.min(high), high) } else { (1.0, 1.0) }
}

/// A number without zeros that say nothing.
fn number(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Text that means nothing to a browser.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for c in text.chars() {
        match c {
            '&' => plain.push_str("&amp;"),
            '<' => plain.push_str("&lt;"),
            '>' => plain.push_str("&gt;"),
            '"' => plain.push_str("&quot;"),
            c => plain.push(c),
        }
    }
    plain
}

fn chart(page: &mut String, title: &str, (x, y): (&Axis, &Axis), lines: &[Line]) {
    let [left, top, right, bottom] = MARGIN;
    let (wide, high) = (WIDTH - left - right, HEIGHT - top - bottom);
    let at = |(a, b): (f64, f64)| (left + x.place(a) * wide, top + (1.0 - y.place(b)) * high);
    // A long ladder's legend goes on below the plot.
    let all = HEIGHT.max(top + LEGEND_STEP * lines.len() as f64 + top);
    let _ = write!(
        page,
        "<h2>{title}</h2>\n<svg viewBox=\"0 0 {WIDTH} {all}\" width=\"{WIDTH}\" height=\"{all}\" role=\"img\" aria-label=\"{title}\">\n"
    );
    let (end, base) = (left + wide, top + high);
    for (value, label) in &x.ticks {
        let (px, _) = at((*value, 0.0));
        let _ = writeln!(
            page,
            "<path d=\"M{px:.1} {top}V{base}\" stroke=\"#e3e3e3\"/><text x=\"{px:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            base + 16.0
        );
    }
    for (value, label) in &y.ticks {
        let py = top + (1.0 - y.place(*value)) * high;
        let _ = writeln!(
            page,
            "<path d=\"M{left} {py:.1}H{end}\" stroke=\"#e3e3e3\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            left - 6.0,
            py + 4.0
        );
    }
    let _ = writeln!(
        page,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text><text transform=\"translate(14 {:.1}) rotate(-90)\" \
         text-anchor=\"middle\">{}</text>",
        left + wide / 2.0,
        HEIGHT - 8.0,
        x.title,
        top + high / 2.0,
        y.title
    );
    for (number, (line, colour)) in lines.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let mut path = String::new();
        for point in &line.points {
            let (px, py) = at(*point);
            let _ = write!(path, "{}{px:.1} {py:.1}", if path.is_empty() { 'M' } else { 'L' });
            if line.points.len() < 40 {
                let _ = writeln!(page, "<circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"2.5\" fill=\"{colour}\"/>");
            }
        }
        let py = top + 12.0 + LEGEND_STEP * number as f64;
        // Colours come again; then the lines are dashed, more finely each time.
        let dash = match number / COLOURS.len() {
            0 => String::new(),
            turn => format!(" stroke-dasharray=\"{} 2\"", 10_usize.saturating_sub(2 * turn).max(1)),
        };
        let _ = writeln!(
            page,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"{dash}/>\
             <path d=\"M{:.1} {py:.1}h16\" stroke=\"{colour}\" stroke-width=\"3\"{dash}/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            end + 8.0,
            end + 28.0,
            py + 4.0,
            plain(&shortened(&line.name))
        );
    }
    page.push_str("</svg>\n");
}

/// A name that fits the legend.
fn shortened(name: &str) -> String {
    match name.chars().count() {
        0..=NAME_MAX => name.to_owned(),
        _ => name.chars().take(NAME_MAX - 1).chain(['…']).collect(),
    }
}

/// What tells a run from the others.
fn name(outcome: &Outcome, number: usize) -> String {
    let setup = &outcome.setup;
    let size = if setup.size > 0 { format!(" {} B", setup.size) } else { String::new() };
    let rate = setup.rate.map_or_else(|| format!("depth {}", setup.depth), |rate| format!("{rate:.0}/s"));
    format!("{}:{size} {rate}", number + 1)
}

fn names(outcomes: &[Outcome]) -> Vec<String> {
    outcomes.iter().enumerate().map(|(number, outcome)| name(outcome, number)).collect()
}

/// A page of all `outcomes`.
///
/// # Errors
/// What is wrong with a histogram.
pub fn page(outcomes: &[Outcome]) -> Result<String, String> {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <link rel=\"icon\" href=\"data:,\"><title>stag bench</title><style>{STYLE}</style></head><body>\n<h1>stag bench</h1>\n"
    );
    table(&mut page, outcomes);
    by_percentile(&mut page, outcomes)?;
    over_time(&mut page, outcomes);
    if outcomes.len() > 1 {
        against_rate(&mut page, outcomes);
    }
    page.push_str("<p>Times are full round trips.</p>\n</body></html>\n");
    Ok(page)
}

fn table(page: &mut String, outcomes: &[Outcome]) {
    if let Some(Outcome { setup, host, .. }) = outcomes.first() {
        let _ = writeln!(
            page,
            "<p>{} to {}; {} connections, {} cores; on {}, {}, Linux {}</p>",
            setup.workload,
            plain(&setup.url),
            setup.connections,
            setup.cores,
            plain(&host.name),
            plain(&host.processor),
            plain(&host.kernel)
        );
    }
    page.push_str(
        "<table><tr><th>run</th><th>calls/s</th><th>MiB/s</th><th>calls</th><th>failed</th><th>unsent</th>\
         <th>service p50 µs</th><th>response p50 µs</th><th>p99 µs</th><th>p99.9 µs</th><th>max µs</th></tr>\n",
    );
    let micros = |value: Option<f64>| value.map_or_else(|| "n/a".to_owned(), |value| format!("{value:.1}"));
    for (name, outcome) in names(outcomes).iter().zip(outcomes) {
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{:.1}</td><td>{:.1}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
            plain(name),
            outcome.calls_per_s,
            outcome.octets_per_s / f64::from(1 << 20),
            outcome.calls,
            outcome.failed,
            outcome.unsent,
            micros(outcome.service.percentile("p50"))
        );
        for percentile in ["p50", "p99", "p99.9"] {
            let _ = write!(page, "<td>{}</td>", micros(outcome.response.percentile(percentile)));
        }
        let _ = writeln!(page, "<td>{:.1}</td></tr>", outcome.response.max_us);
    }
    page.push_str("</table>\n");
    for (name, outcome) in names(outcomes).iter().zip(outcomes) {
        for doubt in &outcome.client.doubts {
            let _ = writeln!(page, "<p class=\"note\">{}: {}</p>", plain(name), plain(doubt));
        }
    }
}

/// Points of a histogram: 1 in so many is beyond, and the time.
fn distribution(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    // What has no ten samples beyond it says nothing (DESIGN D13).
    let most = (histogram.len() as f64 / super::latency::BEYOND).max(1.0);
    let steps =
        (0..=200).map(|step| 10_f64.powf(f64::from(step) / 20.0)).take_while(|beyond| *beyond <= most);
    steps.map(|beyond| (beyond, histogram.value_at_quantile(1.0 - 1.0 / beyond) as f64 / 1e3)).collect()
}

fn by_percentile(page: &mut String, outcomes: &[Outcome]) -> Result<(), String> {
    let mut lines = Vec::new();
    for (name, outcome) in names(outcomes).into_iter().zip(outcomes) {
        lines.push(Line { name, points: distribution(&outcome.response.histogram()?) });
        if outcomes.len() == 1 {
            lines.push(Line {
                name: "service".to_owned(),
                points: distribution(&outcome.service.histogram()?),
            });
        }
    }
    let points = || lines.iter().flat_map(|line| &line.points);
    let mut x = Axis::log("percentile", points().map(|point| point.0));
    let percentile =
        |beyond: f64| if beyond <= 1.0 { "min".to_owned() } else { format!("{}", 100.0 - 100.0 / beyond) };
    x.ticks.iter_mut().for_each(|(beyond, label)| *label = percentile(*beyond).chars().take(8).collect());
    let y = Axis::log("µs", points().map(|point| point.1));
    chart(page, "Response time by percentile", (&x, &y), &lines);
    Ok(())
}

fn over_time(page: &mut String, outcomes: &[Outcome]) {
    let mut lines = Vec::new();
    for (name, outcome) in names(outcomes).iter().zip(outcomes) {
        let series = |of: fn(&super::outcome::Second) -> Option<f64>| {
            outcome
                .seconds
                .iter()
                .filter_map(|second| Some((second.second as f64 + 1.0, of(second)?)))
                .collect()
        };
        lines.push(Line { name: format!("{name} p50"), points: series(|second| second.response_p50_us) });
        if outcomes.len() == 1 {
            lines.push(Line { name: "p99".to_owned(), points: series(|second| second.response_p99_us) });
            let max = series(|second| Some(second.response_max_us).filter(|max| *max > 0.0));
            lines.push(Line { name: "max".to_owned(), points: max });
        }
    }
    let points = || lines.iter().flat_map(|line| &line.points);
    let axes = (
        Axis::linear("seconds", points().map(|point| point.0)),
        Axis::log("µs", points().map(|point| point.1)),
    );
    chart(page, "Response time over time", (&axes.0, &axes.1), &lines);
}

fn against_rate(page: &mut String, outcomes: &[Outcome]) {
    let line = |name: &str| {
        let point = |outcome: &Outcome| Some((outcome.calls_per_s, outcome.response.percentile(name)?));
        let mut points: Vec<_> = outcomes.iter().filter_map(point).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        Line { name: name.to_owned(), points }
    };
    let lines = ["p50", "p99", "p99.9"].map(line);
    let points = || lines.iter().flat_map(|line| &line.points);
    let axes = (
        Axis::linear("calls/s", points().map(|point| point.0)),
        Axis::log("µs", points().map(|point| point.1)),
    );
    chart(page, "Response time against throughput", (&axes.0, &axes.1), &lines);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_what_they_show() {
        for values in [
            vec![],
            vec![0.0],
            vec![5.0],
            vec![0.003, 70_000.0],
            vec![10.0, 10.0],
            vec![2.0],
            vec![3_000_000.0],
        ] {
            for axis in [Axis::log("", values.iter().copied()), Axis::linear("", values.iter().copied())] {
                assert!((2..=20).contains(&axis.ticks.len()), "{values:?}: {:?}", axis.ticks);
                let labels: std::collections::BTreeSet<_> =
                    axis.ticks.iter().map(|(_, label)| label).collect();
                assert_eq!(labels.len(), axis.ticks.len(), "{values:?}: {labels:?}");
                let (low, high) = axis.range;
                let positive = values.iter().filter(|value| **value > 0.0 || !axis.is_log);
                assert!(
                    positive.clone().all(|value| (low..=high).contains(value)),
                    "{values:?} {low} {high}"
                );
                assert!(positive.map(|value| axis.place(*value)).all(|place| (0.0..=1.0).contains(&place)));
            }
        }
    }

    #[test]
    fn every_name_of_a_long_ladder_stands_within_its_chart_and_no_two_lines_look_alike() {
        for count in [1, 14, 15, 17, 64] {
            let long = "a name that is longer than what stands beside a plot";
            let name = |number| format!("{number}: {}", if number % 2 == 0 { long } else { "short" });
            let line =
                |number| Line { name: name(number), points: vec![(1.0, 1.0), (2.0, f64::from(number))] };
            let lines: Vec<_> = (0..count).map(line).collect();
            let axis = || Axis::linear("", [1.0, 64.0].into_iter());
            let mut page = String::new();
            chart(&mut page, "title", (&axis(), &axis()), &lines);
            let after = |text: &str, mark: &str| {
                let rest = text.split_once(mark).unwrap().1;
                rest[..rest.find('"').unwrap()].parse::<f64>().unwrap()
            };
            let (wide, high) = (after(&page, " width=\""), after(&page, " height=\""));
            let legend: Vec<_> = page.lines().filter(|line| line.contains("stroke-width=\"3\"")).collect();
            assert_eq!(legend.len(), lines.len());
            let mut looks = std::collections::BTreeSet::new();
            for entry in legend {
                let (sample, text) = entry.split_once("<text ").unwrap();
                assert!(after(text, "y=\"") + 4.0 < high, "{count}: {entry}");
                let letters = text.split_once('>').unwrap().1.split_once('<').unwrap().0.chars().count();
                // A letter is some six units wide.
                assert!(after(text, "x=\"") + letters as f64 * 6.2 <= wide, "{entry}");
                looks.insert(sample.rsplit_once("stroke=").unwrap().1.to_owned());
            }
            assert_eq!(looks.len(), lines.len().min(6 * COLOURS.len()), "{looks:?}");
        }
    }

    #[test]
    fn numbers_have_the_digits_that_they_need() {
        let numbers = [0.0, 0.5, 1.5, 10.0, 1_000.0, 0.001].map(number);
        assert_eq!(numbers, ["0", "0.5", "1.5", "10", "1000", "0.001"]);
    }

    #[test]
    fn a_name_from_elsewhere_is_only_text() {
        assert_eq!(plain("<script>\"&\""), "&lt;script&gt;&quot;&amp;&quot;");
    }
}
