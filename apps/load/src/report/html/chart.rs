//! A chart as SVG, twice: for a page and for a phone. Labels never overlap; the legend is text of
//! the page.

use std::{fmt::Write, ops::RangeInclusive};

/// Lines that have colours of their own; with more lines, colours follow their order.
pub(super) const COLOURS: usize = 6;
/// Points of a line that are marked, at most.
const MARKED: usize = 40;
/// Height of a line of text, and the mean width of its characters, as parts of the size of the
/// letters.
const LEADING: f64 = 1.3;
const CHARACTER: f64 = 0.58;

/// The sizes of a rendition.
#[derive(Clone, Copy, Debug)]
struct ChartFrame {
    class: &'static str,
    width: f64,
    height: f64,
    /// Of letters.
    text: f64,
}

const FRAMES: [ChartFrame; 2] = [
    ChartFrame { class: "wide", width: 760.0, height: 340.0, text: 12.0 },
    ChartFrame { class: "narrow", width: 360.0, height: 280.0, text: 11.0 },
];

/// One line of a chart.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    pub name: String,
    pub points: Vec<ChartPoint>,
    /// Its colour.
    pub colour: Colour,
    pub is_dashed: bool,
}

/// One point of a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ChartPoint {
    pub x: f64,
    pub y: f64,
    /// Drawn hollow: it is not what was asked for.
    pub is_hollow: bool,
    /// Nothing connects it with the point before.
    pub is_apart: bool,
}

impl ChartPoint {
    /// A point like most.
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, is_hollow: false, is_apart: false }
    }
}

/// An axis, with the positions of its values.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub title: &'static str,
    pub ticks: Vec<(f64, String)>,
    pub range: (f64, f64),
    pub is_log: bool,
}

/// Title, axes and lines of a chart to draw.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub title: &'static str,
    /// Explanation that a reader of the chart needs.
    pub caption: String,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
    /// Each point is a measurement, and is marked when there are few; otherwise only lines are
    /// drawn.
    pub has_points: bool,
    /// Places on the x axis with a vertical line, and their labels.
    pub marks: Vec<(f64, String)>,
}

/// A value of the series 1, 2, 5, 10, 20 … by its place.
fn step(place: i32) -> f64 {
    let factor = [1.0, 2.0, 5.0].get(place.rem_euclid(3) as usize).copied().unwrap_or(1.0);
    factor * 10_f64.powi(place.div_euclid(3))
}

impl Axis {
    /// From a step of 1, 2, 5 … below `values` to one above.
    pub fn log(title: &'static str, values: impl Iterator<Item = f64>) -> Self {
        let (least, most) = bounds(values.filter(|value| *value > 0.0));
        let mut low = (least.log10() * 3.0).floor() as i32 + 2;
        while step(low) > least * (1.0 + 1e-9) {
            low -= 1;
        }
        let mut high = low + 1;
        while step(high) < most * (1.0 - 1e-9) {
            high += 1;
        }
        let is_long = high - low > 12;
        let ticks = (low..=high).filter(|place| !is_long || place.rem_euclid(3) == 0);
        let ticks = ticks.map(|place| (step(place), number(step(place)))).collect();
        Self { title, ticks, range: (step(low), step(high)), is_log: true }
    }

    /// From zero to above `values`.
    pub fn linear(title: &'static str, values: impl Iterator<Item = f64>) -> Self {
        let (_, high) = bounds(values);
        let mut place = ((high / 5.0).log10() * 3.0).floor() as i32;
        while high / step(place) > 6.0 {
            place += 1;
        }
        let count = (high / step(place) - 1e-9).ceil().max(1.0) as u32;
        let ticks = (0..=count).map(|tick| f64::from(tick) * step(place));
        let ticks = ticks.map(|value| (value, number(value))).collect();
        Self { title, ticks, range: (0.0, f64::from(count) * step(place)), is_log: false }
    }

    /// From one value to a higher one, with steps of 1, 2, 5 … between.
    pub fn between(title: &'static str, low: f64, high: f64) -> Self {
        let span = (high - low).max(1e-9);
        let mut place = ((span / 5.0).log10() * 3.0).floor() as i32;
        while span / step(place) > 6.0 {
            place += 1;
        }
        let first = (low / step(place) - 1e-9).ceil().max(0.0) as u64;
        let ticks = (first..).take(8).map(|tick| tick as f64 * step(place));
        let ticks = ticks.take_while(|value| *value <= high * (1.0 + 1e-9));
        let ticks = ticks.map(|value| (value, number(value))).collect();
        Self { title, ticks, range: (low, low + span), is_log: false }
    }

    /// Percentiles, by the number of samples per sample beyond: 1, 2, 10, 100 …
    pub fn nines(values: impl Iterator<Item = f64>) -> Self {
        let (_, most) = bounds(values);
        let percent = |beyond: f64| match beyond {
            beyond if beyond < 2.0 => "min".to_owned(),
            beyond => number(100.0 - 100.0 / beyond),
        };
        let powers = (1..=9).map(|power| 10_f64.powi(power));
        let high = powers.clone().find(|beyond| *beyond >= most).unwrap_or(1e9);
        let ticks = [1.0, 2.0].into_iter().chain(powers.take_while(|beyond| *beyond <= high));
        let ticks = ticks.map(|beyond| (beyond, percent(beyond))).collect();
        Self { title: "percentile", ticks, range: (1.0, high), is_log: true }
    }

    /// Sizes in octets, as they are given on the command line.
    pub fn sizes(values: impl Iterator<Item = f64> + Clone) -> Self {
        let (low, high) = bounds(values.clone());
        let mut ticks: Vec<f64> = values.collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        let ticks = ticks.into_iter().map(|octets| (octets, size(octets as u64))).collect();
        let range = if low < high { (low, high) } else { (low / 2.0, high * 2.0) };
        Self { title: "octets of payload", ticks, range, is_log: true }
    }

    /// Maps a value to its position on the axis, from 0 to 1.
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

/// A number without redundant zeros, its thousands apart.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.7}");
    grouped(text.trim_end_matches('0').trim_end_matches('.'))
}

/// Digits in groups of three in front of the point.
pub(super) fn grouped(digits: &str) -> String {
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut text = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) && whole.len() > 4 {
            text.push('\u{202f}'); // a narrow space at which no line ends
        }
        text.push(digit);
    }
    text + rest
}

/// A size as short as it can be said.
pub(super) fn size(octets: u64) -> String {
    match octets {
        octets if octets > 0 && octets.is_multiple_of(1 << 20) => format!("{}M", octets >> 20),
        octets if octets > 0 && octets.is_multiple_of(1 << 10) => format!("{}K", octets >> 10),
        octets => octets.to_string(),
    }
}

/// Text that means nothing to a browser.
pub(super) fn plain(text: &str) -> String {
    let mut plain = String::new();
    for c in text.chars() {
        match c {
            '&' => plain.push_str("&amp;"),
            '<' => plain.push_str("&lt;"),
            '>' => plain.push_str("&gt;"),
            '"' => plain.push_str("&quot;"),
            c if c.is_control() => plain.push('\u{fffd}'),
            c => plain.push(c),
        }
    }
    plain
}

/// A colour of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Colour {
    /// Its place among the colours.
    pub place: usize,
    /// Number of colours that have to differ.
    pub count: usize,
}

/// Returns the CSS colour of a line, given its place and the number of lines.
fn colour(colour: Colour) -> String {
    let Colour { place, count } = colour;
    if count <= COLOURS {
        return format!("var(--c{place})");
    }
    // From blue to red: the order of the runs is seen.
    format!("hsl({:.0} 65% 50%)", 250.0 - 250.0 * place as f64 / (count - 1) as f64)
}

/// The labels for which there is room, without overlap, each with the position of its middle.
fn placed<'a>(
    labels: impl Iterator<Item = (f64, &'a str)>,
    text: f64,
    room: RangeInclusive<f64>,
) -> Vec<(f64, &'a str)> {
    let (from, to) = room.into_inner();
    let mut free = from;
    let mut placed = Vec::new();
    for (at, label) in labels {
        let half = label.chars().count() as f64 * text * CHARACTER / 2.0;
        let middle = at.max(from + half).min(to - half);
        if middle - half >= free {
            placed.push((middle, label));
            free = middle + half + text * 0.5;
        }
    }
    placed
}

/// Position of the plot in its frame.
struct Plot<'a> {
    chart: &'a Chart,
    frame: ChartFrame,
    left: f64,
    top: f64,
    right: f64,
    base: f64,
}

impl<'a> Plot<'a> {
    fn new(chart: &'a Chart, frame: ChartFrame) -> Self {
        let widest =
            chart.y.ticks.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(1);
        let left = 10.0 + widest as f64 * frame.text * CHARACTER;
        let above = if chart.marks.is_empty() { 1.0 } else { 2.0 };
        let top = 10.0 + frame.text * LEADING * above;
        let base = frame.height - 10.0 - frame.text * LEADING * 2.0;
        Self { chart, frame, left, top, right: frame.width - 14.0, base }
    }

    fn x(&self, value: f64) -> f64 {
        self.left + self.chart.x.place(value) * (self.right - self.left)
    }

    fn y(&self, value: f64) -> f64 {
        self.base - self.chart.y.place(value) * (self.base - self.top)
    }

    fn write(&self, page: &mut String) {
        let Self { frame: ChartFrame { class, width, height, text }, chart, .. } = self;
        let _ = writeln!(
            page,
            "<svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"{}\" font-size=\"{text}\">",
            chart.title
        );
        self.write_grid(page);
        self.write_marks(page);
        chart.lines.iter().for_each(|line| self.write_line(page, line));
        page.push_str("</svg>\n");
    }

    fn write_grid(&self, page: &mut String) {
        let Self { chart, frame, left, top, right, base } = self;
        let text = frame.text;
        let (title, below) = (top - text * 0.8, base + text * LEADING);
        let _ = writeln!(
            page,
            "<text x=\"2\" y=\"{title:.1}\" class=\"axis\">{}</text>",
            chart.y.title
        );
        for (value, label) in &chart.y.ticks {
            let y = self.y(*value);
            let _ = writeln!(
                page,
                "<path d=\"M{left:.1} {y:.1}H{right:.1}\" class=\"grid\"/><text x=\"{:.1}\" \
                 y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                left - 5.0,
                y + text * 0.35
            );
        }
        for (value, _) in &chart.x.ticks {
            let x = self.x(*value);
            let _ = writeln!(page, "<path d=\"M{x:.1} {top:.1}V{base:.1}\" class=\"grid\"/>");
        }
        let labels = chart.x.ticks.iter().map(|(value, label)| (self.x(*value), label.as_str()));
        for (x, label) in placed(labels, text, 0.0..=frame.width) {
            let _ = writeln!(
                page,
                "<text x=\"{x:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{label}</text>"
            );
        }
        let _ = writeln!(
            page,
            "<text x=\"{right:.1}\" y=\"{:.1}\" text-anchor=\"end\" class=\"axis\">{}</text>",
            frame.height - text * 0.5,
            chart.x.title
        );
    }

    fn write_marks(&self, page: &mut String) {
        let Self { chart, frame, top, base, .. } = self;
        for (value, _) in &chart.marks {
            let x = self.x(*value);
            let _ = writeln!(page, "<path d=\"M{x:.1} {top:.1}V{base:.1}\" class=\"mark\"/>");
        }
        let labels = chart.marks.iter().map(|(value, label)| (self.x(*value), label.as_str()));
        // The title of the axis is left of them.
        let from = self.left + chart.y.title.chars().count() as f64 * frame.text * CHARACTER;
        for (x, label) in placed(labels, frame.text, from.min(frame.width / 2.0)..=frame.width) {
            let y = top - frame.text * 0.8;
            let _ = writeln!(
                page,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>",
                plain(label)
            );
        }
    }

    fn write_line(&self, page: &mut String, line: &Line) {
        let colour = colour(line.colour);
        let dashes = if line.is_dashed { " stroke-dasharray=\"6 4\"" } else { "" };
        let mut path = String::new();
        for point in &line.points {
            let letter = if path.is_empty() || point.is_apart { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{:.1} {:.1}", self.x(point.x), self.y(point.y));
        }
        let _ =
            writeln!(page, "<path d=\"{path}\" class=\"line\" style=\"stroke:{colour}\"{dashes}/>");
        if !self.chart.has_points || line.points.len() > MARKED {
            return;
        }
        for point in &line.points {
            let (x, y) = (self.x(point.x), self.y(point.y));
            let fill = if point.is_hollow { "var(--paper)" } else { &colour };
            let _ = writeln!(
                page,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" \
                 style=\"fill:{fill};stroke:{colour}\"><title>{}: {} at {}</title></circle>",
                plain(&line.name),
                number((point.y * 1e3).round() / 1e3),
                number((point.x * 1e3).round() / 1e3)
            );
        }
    }
}

impl Chart {
    /// Writes it.
    pub fn write(&self, page: &mut String) {
        let _ = writeln!(page, "<figure>\n<h2>{}</h2>", self.title);
        page.push_str("<ul class=\"legend\">\n");
        for line in &self.lines {
            let dashes = if line.is_dashed { " stroke-dasharray=\"6 4\"" } else { "" };
            let _ = writeln!(
                page,
                "<li><svg width=\"26\" height=\"10\" aria-hidden=\"true\"><path d=\"M1 5H25\" \
                 class=\"line\" style=\"stroke:{}\"{dashes}/></svg>{}</li>",
                colour(line.colour),
                plain(&line.name)
            );
        }
        page.push_str("</ul>\n");
        FRAMES.iter().for_each(|frame| Plot::new(self, *frame).write(page));
        if !self.caption.is_empty() {
            let _ = writeln!(page, "<figcaption>{}</figcaption>", plain(&self.caption));
        }
        page.push_str("</figure>\n");
    }

    /// All x values, and all y values.
    pub fn values(lines: &[Line]) -> [impl Iterator<Item = f64> + Clone; 2] {
        let all = |of: fn(&ChartPoint) -> f64| {
            lines.iter().flat_map(move |line| line.points.iter().map(of))
        };
        [all(|point| point.x), all(|point| point.y)]
    }
}

#[cfg(test)]
mod tests;
