//! `stag bench --top`: full-screen view of a running bench, on a terminal of 80 columns and 24
//! lines or more.

use super::show;
use crate::{
    Error, caller,
    screen::{self, Screen},
    stage_table::micros,
    stop::Stop,
};
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    text::Line,
    widgets::{Paragraph, Sparkline},
};
use stag_load::{
    Times,
    agents::NodeSecond,
    live::LiveRun,
    report::model::{RunSetup, SecondFigures},
};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Interval at which keys, signals and the end of the runs are checked.
const LOOK: Duration = Duration::from_millis(100);
/// Interval at which the clock of the view moves between reports of seconds.
const TICK: Duration = Duration::from_millis(500);
/// Nodes that have a line; more are counted.
const NODES_SHOWN: usize = 5;
/// Lines of a table of times: the head, and service and response of both spans.
const TIMES_LINES: u16 = 5;
/// Percentiles of the table of times.
const SHOWN: [&str; 4] = ["p50", "p90", "p99", "p99.9"];
const TIMES_HEADS: [&str; 7] = ["us", " samples", " p50", " p90", " p99", " p99.9", " max"];

/// A node's part of the last second, as it is drawn.
#[derive(Clone, Debug)]
struct NodeRow {
    cells: Vec<String>,
}

impl NodeRow {
    const HEADS: [&str; 6] = ["node", " calls/s", " failed", " p50 us", " p99 us", " max us"];

    fn new(second: &NodeSecond<'_>) -> Self {
        let name = second.node.to_owned();
        let cells = match (second.figures, second.gone) {
            (Some(figures), _) => vec![
                name,
                figures.calls.to_string(),
                figures.failed.to_string(),
                micros(figures.response_p50_us),
                micros(figures.response_p99_us),
                format!("{:.1}", figures.response_max_us),
            ],
            (None, Some(_)) => vec![name, "MISSING".to_owned()],
            (None, None) => vec![name, "-".to_owned()],
        };
        Self { cells }
    }
}

/// A run, as it is drawn.
#[derive(Clone, Debug)]
struct RunView {
    /// Two lines about the workload and its pace.
    head: [String; 2],
    /// Number of the run among those of this command.
    number: u32,
    setup: RunSetup,
    began: Instant,
    figures: LiveRun,
    nodes: Vec<NodeRow>,
    /// A second that could not be read.
    fault: Option<String>,
}

impl RunView {
    fn new(setup: &RunSetup, number: u32) -> Self {
        Self {
            head: show::parameters(setup, ""),
            number,
            setup: setup.clone(),
            began: Instant::now(),
            figures: LiveRun::default(),
            nodes: Vec::new(),
            fault: None,
        }
    }

    /// Returns the number of the run and its seconds: the view is redrawn when they change.
    const fn state(&self) -> (u32, u64) {
        (self.number, self.figures.seconds())
    }

    fn add(&mut self, second: &SecondFigures, nodes: &[NodeSecond<'_>]) {
        self.fault = self.figures.add(second).err();
        self.nodes = nodes.iter().map(NodeRow::new).collect();
    }

    /// Says how far the run is, `elapsed` after it began.
    fn progress(&self, elapsed: Duration) -> String {
        let RunSetup { warm_up_s, duration_s, calls, .. } = &self.setup;
        let until = match (duration_s, calls) {
            (_, Some(calls)) => format!(" of {calls} calls"),
            (Some(seconds), None) => format!(" of {seconds} s"),
            (None, None) => String::new(),
        };
        let run = self.number;
        match self.figures.seconds() {
            0 => format!(
                "run {run}   {:.0} s: connecting, then {warm_up_s} s of warm-up, then \
                 measuring{until}",
                elapsed.as_secs_f64().floor()
            ),
            seconds => format!("run {run}   measured {seconds} s{until}"),
        }
    }

    /// Rates of the last second, and of all.
    fn rates(&self) -> String {
        let Some(last) = self.figures.last() else { return String::new() };
        let (calls, failed) = self.figures.calls();
        let mean = calls as f64 / self.figures.seconds().max(1) as f64;
        let mib = last.octets as f64 / f64::from(1 << 20);
        let stolen =
            last.stolen.map_or_else(String::new, |part| format!("   stolen {:.1} %", part * 100.0));
        format!(
            "calls/s {}   mean {mean:.0}   MiB/s {mib:.1}   failed {failed}   lag max {:.1} \
             us{stolen}",
            last.calls, last.lag_max_us
        )
    }

    fn lines(&self, elapsed: Duration) -> Vec<String> {
        let [what, how] = &self.head;
        // The table at the end also says whether the payload was compared.
        let how = how.split("; payload").next().unwrap_or_default().to_owned();
        let mut lines = vec![what.clone(), how];
        lines.push(String::new());
        lines.push(self.progress(elapsed));
        lines.push(match &self.fault {
            Some(fault) => format!("a second cannot be read: {fault}"),
            None => self.rates(),
        });
        lines
    }

    fn times(&self) -> Vec<Vec<String>> {
        let row = |name: &str, times: &Times| {
            let mut cells = vec![name.to_owned(), times.samples.to_string()];
            cells.extend(SHOWN.iter().map(|percentile| micros(times.percentile(percentile))));
            cells.push(format!("{:.1}", times.max_us));
            cells
        };
        let [service, response] = self.figures.last_times();
        let [all_service, all_response] = self.figures.all_times();
        vec![
            row("service, last second", &service),
            row("response, last second", &response),
            row("service, all", &all_service),
            row("response, all", &all_response),
        ]
    }
}

fn draw(frame: &mut Frame<'_>, view: &RunView, elapsed: Duration) {
    let lines = view.lines(elapsed);
    let nodes = match view.nodes.len() {
        0 => 0,
        count => count.min(NODES_SHOWN) + 2,
    };
    let areas = Layout::vertical([
        Constraint::Length(u16::try_from(lines.len()).unwrap_or(0) + 1),
        Constraint::Length(TIMES_LINES + 1),
        Constraint::Length(u16::try_from(nodes).unwrap_or(0)),
        Constraint::Fill(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ]);
    let [head, times, nodes, calls, p99, keys] = areas.areas(frame.area());
    let text: Vec<_> = lines.iter().map(|line| Line::raw(line.as_str())).collect();
    frame.render_widget(Paragraph::new(text), head);
    screen::table(frame, times, &TIMES_HEADS, &view.times());
    draw_nodes(frame, nodes, &view.nodes);
    let points = view.figures.points();
    draw_history(frame, calls, "calls/s", points.map(|point| point.calls).collect(), Worst::Lowest);
    let points = view.figures.points().map(|point| point.p99_us as u64).collect();
    draw_history(frame, p99, "p99 of the response, us", points, Worst::Highest);
    screen::bold(frame, keys, "q or Ctrl-C ends the run; what was measured until then is printed");
}

fn draw_nodes(frame: &mut Frame<'_>, area: Rect, nodes: &[NodeRow]) {
    if nodes.is_empty() {
        return;
    }
    let mut rows: Vec<_> = nodes.iter().take(NODES_SHOWN).map(|row| row.cells.clone()).collect();
    if let Some(more) = nodes.len().checked_sub(NODES_SHOWN).filter(|more| *more > 0)
        && let Some(last) = rows.last_mut()
    {
        *last = vec![format!("{} more nodes", more + 1)];
    }
    screen::table(frame, area, &NodeRow::HEADS, &rows);
}

/// The value that represents the seconds of a column: a short outage is visible in a long run, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worst {
    Lowest,
    Highest,
}

impl Worst {
    /// Returns the worst of some values.
    fn of(self, values: &[u64]) -> u64 {
        let values = values.iter().copied();
        match self {
            Self::Lowest => values.min(),
            Self::Highest => values.max(),
        }
        .unwrap_or(0)
    }
}

/// Draws a quantity over the last minutes, from zero to its highest value.
fn draw_history(frame: &mut Frame<'_>, area: Rect, name: &str, values: Vec<u64>, worst: Worst) {
    let [title, plot] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(area);
    let (each, bars) = fit(&values, usize::from(plot.width), worst);
    let most = bars.iter().copied().max().unwrap_or(0);
    let span = match (each, worst) {
        (1, _) => "1 s".to_owned(),
        (_, Worst::Lowest) => format!("the lowest of {each} s"),
        (_, Worst::Highest) => format!("the highest of {each} s"),
    };
    frame.render_widget(Line::raw(format!("{name}, up to {most}; a column is {span}")), title);
    frame.render_widget(Sparkline::default().data(&bars).max(most.max(1)), plot);
}

/// Joins values so that they fit `columns`: seconds in a column, and the worst value of each.
/// Columns begin at the first value, so that a bar does not change once it is full.
fn fit(values: &[u64], columns: usize, worst: Worst) -> (usize, Vec<u64>) {
    let each = values.len().div_ceil(columns.max(1)).max(1);
    (each, values.chunks(each).map(|part| worst.of(part)).collect())
}

/// The view on a terminal, drawn by a thread of its own until the runs are over or are to end.
#[derive(Debug)]
pub struct LiveScreen {
    view: Arc<Mutex<Option<RunView>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl LiveScreen {
    /// Opens the terminal. Returns `None` where standard output is no terminal, or cannot be used:
    /// seconds are then printed as lines. A key that ends the view asks for `stop`.
    pub fn open(stop: &Stop) -> Option<Self> {
        if !Screen::is_possible() {
            return None;
        }
        let (view, is_over) = (Arc::default(), Arc::<AtomicBool>::default());
        let drawer = Drawer { view: Arc::clone(&view), is_over: Arc::clone(&is_over) };
        let stop = stop.clone();
        let opened = Screen::open().and_then(|screen| {
            let thread = thread::Builder::new().name("view".to_owned());
            thread
                .spawn(move || drawer.run(screen, &stop))
                .map_err(|error| Error::failure(format!("no thread for --top: {error}")))
        });
        match opened {
            Ok(thread) => Some(Self { view, is_over, thread: Some(thread) }),
            Err(error) => {
                caller::aside(format!("note: --top: {error}\n"));
                None
            }
        }
    }

    /// Another run begins.
    pub fn begin(&self, setup: &RunSetup) {
        let mut view = lock(&self.view);
        let number = view.as_ref().map_or(1, |view| view.number + 1);
        *view = Some(RunView::new(setup, number));
    }

    /// A second is over.
    pub fn show(&self, second: &SecondFigures, nodes: &[NodeSecond<'_>]) {
        if let Some(view) = &mut *lock(&self.view) {
            view.add(second, nodes);
        }
    }
}

impl Drop for LiveScreen {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            caller::aside(format!("note: --top: {error}\n"));
        }
    }
}

/// Locks the view. A thread that panicked while it held the lock leaves usable data.
fn lock(view: &Mutex<Option<RunView>>) -> MutexGuard<'_, Option<RunView>> {
    view.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The part of the view that its thread has.
struct Drawer {
    view: Arc<Mutex<Option<RunView>>>,
    is_over: Arc<AtomicBool>,
}

impl Drawer {
    /// Draws changes, and restores the terminal as soon as the runs are to end, because a second
    /// signal exits at once.
    fn run(self, mut screen: Screen, stop: &Stop) -> Result<(), Error> {
        let (mut drawn, mut drawn_at) = (None, None::<Instant>);
        while !self.is_over.load(Ordering::Relaxed) && !stop.is_asked() {
            let is_due = drawn_at.is_none_or(|at| at.elapsed() >= TICK);
            if let Some(view) = self.view_unless(drawn.filter(|_| !is_due)) {
                screen.draw(|frame| draw(frame, &view, view.began.elapsed()))?;
                (drawn, drawn_at) = (Some(view.state()), Some(Instant::now()));
            }
            if screen.wants_end(LOOK)? {
                stop.ask();
            }
        }
        screen.close()
    }

    /// Copies the view, unless it is in this state. Nothing waits for a slow terminal.
    fn view_unless(&self, drawn: Option<(u32, u64)>) -> Option<RunView> {
        let view = lock(&self.view);
        view.as_ref().filter(|view| Some(view.state()) != drawn).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_load::{Arrivals, CallRecord, Workload};
    use std::fs;

    /// The picture of the documentation.
    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bench-top.txt");

    fn setup() -> RunSetup {
        RunSetup {
            url: "iwarp://gw1:20049/data".to_owned(),
            workload: Workload::Read,
            size: 4_096,
            connections: 8,
            depth: 64,
            cores: 2,
            rate: Some(100_000.0),
            arrivals: Some(Arrivals::Poisson),
            warm_up_s: 2.0,
            duration_s: Some(300.0),
            calls: None,
            verified: true,
            seed: 1,
            names: None,
            rdma_version: Some("1".to_owned()),
            sec: None,
        }
    }

    fn second(number: u64, calls: u64) -> SecondFigures {
        let mut record = CallRecord::default();
        for call in 0..calls {
            let service = 20_000 + call % 1_000 * 17 + call % 997 / 996 * 900_000;
            record.service.record(service).unwrap();
            record.response.record(service + call % 100 * 300).unwrap();
        }
        (record.calls, record.octets) = (calls, calls * 4_096);
        record.lag.record(41_300).unwrap();
        SecondFigures::new(number, &record, Some(0.002))
    }

    fn shown(view: &RunView) -> String {
        screen::printed(|frame| draw(frame, view, Duration::from_millis(1_500)))
    }

    /// A run of three minutes, with a dip in its second minute.
    fn long() -> RunView {
        let mut view = RunView::new(&setup(), 1);
        for number in 0..180 {
            let calls = if (70..76).contains(&number) { 200 } else { 1_900 + number * 37 % 100 };
            let second = second(number, calls);
            let half = SecondFigures { calls: calls / 2, ..second.clone() };
            let part = |node| NodeSecond { node, figures: Some(&half), gone: None };
            let gone = Some("the connection ended, in second 9");
            let last = NodeSecond { node: "n3", figures: None, gone };
            view.add(&second, &[part("n1"), part("n2"), last]);
        }
        view
    }

    #[test]
    fn the_picture_in_the_documentation_is_what_bench_shows() {
        let text = shown(&long());
        if std::env::var_os("STAG_PAGES").is_some() {
            fs::write(FILE, &text).unwrap();
        }
        let found = fs::read_to_string(FILE).unwrap_or_default();
        assert_eq!(
            text, found,
            "docs/bench-top.txt is old: STAG_PAGES=1 cargo test -p stag picture"
        );
    }

    #[test]
    fn a_view_of_a_run_fits_24_lines_of_80_columns_from_its_beginning() {
        let mut many = long();
        let names: Vec<_> = (0..40).map(|number| format!("node{number}")).collect();
        let nodes = names.iter().map(|node| NodeSecond { node, figures: None, gone: None });
        many.add(&second(180, 10), &nodes.collect::<Vec<_>>());
        let fresh = RunView::new(&setup(), 3);
        let mut broken = RunView::new(&setup(), 1);
        broken.add(&SecondFigures { service: "!".to_owned(), ..second(0, 5) }, &[]);
        for (view, words) in [
            (&many, "36 more nodes"),
            (&fresh, "run 3   1 s: connecting, then 2 s of warm-up"),
            (&broken, "a second cannot be read"),
        ] {
            let text = shown(view);
            assert_eq!(text.lines().count(), usize::from(screen::SIZE.1));
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            assert!(text.contains(words) && text.contains("q or Ctrl-C ends"), "{text}");
        }
    }

    #[test]
    fn a_column_of_several_seconds_has_the_worst_of_them() {
        assert_eq!(fit(&[1, 5, 2], 80, Worst::Highest), (1, vec![1, 5, 2]));
        assert_eq!(fit(&[1, 5, 2, 9, 3], 3, Worst::Highest), (2, vec![5, 9, 3]));
        assert_eq!(fit(&[1, 5, 2, 9, 3], 3, Worst::Lowest), (2, vec![1, 2, 3]));
        assert_eq!(fit(&[], 80, Worst::Lowest), (1, vec![]));
        assert_eq!(fit(&[7, 8], 0, Worst::Lowest), (2, vec![7]));
    }

    #[test]
    fn each_run_of_a_ladder_begins_anew_with_its_number() {
        let screen = LiveScreen { view: Arc::default(), is_over: Arc::default(), thread: None };
        screen.begin(&setup());
        screen.show(&second(0, 50), &[]);
        assert_eq!(lock(&screen.view).as_ref().unwrap().state(), (1, 1));
        screen.begin(&setup());
        assert_eq!(lock(&screen.view).as_ref().unwrap().state(), (2, 0));
    }
}
