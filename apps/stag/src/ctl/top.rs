//! `stag ctl top`: a live view of a server on a terminal of 80 columns and 24 lines, or more.

use super::{
    caller::Controller,
    cells::{list, micros, octets, uptime, word},
    show::{CLIENT_HEADS, client_row, procedure_of},
};
use crate::{
    Error,
    caller::say,
    screen::{self, Screen},
    stop::Stop,
};
use ratatui::{
    Frame,
    layout::{Constraint, Layout},
    text::Line,
};
use serde_json::{Value, json};
use stag_operate::control::wire::Request;
use std::time::{Duration, Instant};

/// Interval at which signals that ask for the end are checked.
const LOOK: Duration = Duration::from_millis(100);
/// Lines of the table of procedures, its head included.
const PROCEDURE_LINES: u16 = 9;

/// The numbers of a server at one moment.
#[derive(Clone, Debug)]
struct Look {
    stats: Value,
    clients: Value,
    at: Instant,
}

impl Look {
    fn take(controller: &mut Controller) -> Result<Self, Error> {
        let stats = controller.ask(&Request::Stats)?;
        let clients = controller.ask(&Request::Clients)?;
        Ok(Self { stats, clients, at: Instant::now() })
    }
}

/// The lines and tables that are shown.
#[derive(Clone, Debug, Default)]
pub struct TopView {
    lines: Vec<String>,
    procedures: Vec<Vec<String>>,
    clients: Vec<Vec<String>>,
}

/// Shows the server every `interval` until a key or a signal ends it; once, as text, where the
/// output is no terminal.
///
/// # Errors
/// An answer of the server, or a terminal that cannot be used.
pub fn run(controller: &mut Controller, interval: Duration, once: bool) -> Result<(), Error> {
    let mut before = Look::take(controller)?;
    if once || !Screen::is_possible() {
        std::thread::sleep(interval);
        let now = Look::take(controller)?;
        let view = view(&before, &now);
        say(screen::printed(|frame| draw(frame, &view)));
        return Ok(());
    }
    let stop = Stop::by_signals()?;
    let mut screen = Screen::open()?;
    let mut shown = view(&before, &before);
    while !stop.is_asked() {
        screen.draw(|frame| draw(frame, &shown))?;
        if screen.wants_end(LOOK.min(interval))? {
            break;
        }
        if before.at.elapsed() >= interval {
            let now = Look::take(controller)?;
            shown = view(&before, &now);
            before = now;
        }
    }
    screen.close()
}

/// Numbers per second between two looks.
struct TopRates<'a> {
    before: &'a Value,
    now: &'a Value,
    seconds: f64,
}

impl TopRates<'_> {
    /// The rate of the number at `pointer`. One that was missing before was zero.
    fn of(&self, pointer: &str) -> f64 {
        let at = |value: &Value| value.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0);
        if self.seconds > 0.0 {
            (at(self.now) - at(self.before)).max(0.0) / self.seconds
        } else {
            0.0
        }
    }
}

fn view(before: &Look, now: &Look) -> TopView {
    let seconds = now.at.duration_since(before.at).as_secs_f64();
    view_of(&TopRates { before: &before.stats, now: &now.stats, seconds }, &now.clients)
}

fn view_of(rates: &TopRates<'_>, clients: &Value) -> TopView {
    let now = rates.now;
    let procedures = ["nfs3", "mount3"].into_iter().flat_map(|program| {
        let known = now.pointer(&format!("/total/app/{program}")).and_then(Value::as_object);
        known.into_iter().flatten().map(move |(name, _)| (program, name.as_str()))
    });
    let procedures = procedures.map(|(program, name)| procedure(rates, program, name));
    let mut procedures: Vec<_> = procedures.chain(version4(rates)).collect();
    procedures.sort_by(|one, other| other.0.total_cmp(&one.0));
    let mut known: Vec<_> = list(clients, "/clients").collect();
    let octets = |client: &Value| client.get("octets").and_then(Value::as_u64).unwrap_or(0);
    known.sort_by_key(|client| std::cmp::Reverse(octets(client)));
    TopView {
        lines: head(rates),
        procedures: procedures.into_iter().map(|(_, row)| row).collect(),
        clients: known.into_iter().map(client_row).collect(),
    }
}

fn head(rates: &TopRates<'_>) -> Vec<String> {
    let now = rates.now;
    let state = if now.pointer("/draining").and_then(Value::as_u64) == Some(1) {
        "draining"
    } else {
        "serving"
    };
    let per_second = |pointer: &str| octets(&json!(rates.of(pointer)));
    let of_files = |way: &str| {
        let of = |data: &str| rates.of(&format!("/total/app/{data}/{way}"));
        octets(&json!(of("data") + of("nfs4/data")))
    };
    let sum = |pointers: &[&str]| pointers.iter().map(|pointer| rates.of(pointer)).sum::<f64>();
    let rdma =
        ["short", "chunked", "long"].map(|form| format!("/total/engine/responder/calls/{form}"));
    let rdma = sum(&rdma.each_ref().map(String::as_str));
    let cores = rates.of("/process/cpu_ms") / 1e3;
    let resident = octets(now.pointer("/process/resident_bytes").unwrap_or(&Value::Null));
    vec![
        format!(
            "stag {}   {state}   up {}   {} connections   {cores:.2} cores   {resident}",
            word(now, "/version"),
            uptime(now.get("uptime_s")),
            word(now, "/total/engine/connections/live"),
        ),
        format!(
            "calls/s   RDMA {rdma:.0}   TCP {:.0}   refused {:.0}   waiting {}",
            rates.of("/total/engine/stream/calls"),
            sum(&["program", "version", "procedure", "arguments", "credential"]
                .map(|why| format!("/total/app/refused/{why}"))
                .each_ref()
                .map(String::as_str)),
            word(now, "/total/app/waiting/under_way"),
        ),
        format!(
            "octets/s  READ {}   WRITE {}   pulled {}   pushed {}",
            of_files("octets_read"),
            of_files("octets_written"),
            per_second("/total/engine/responder/pulled"),
            per_second("/total/engine/responder/pushed"),
        ),
    ]
}

/// A row of the table of procedures, and the rate by which it is sorted.
fn procedure(rates: &TopRates<'_>, program: &str, name: &str) -> (f64, Vec<String>) {
    let at = format!("/total/app/{program}/{name}");
    let calls = rates.of(&format!("{at}/calls"));
    let errors = format!("{:.0}", errors(rates, &format!("{at}/errors")));
    row(rates, program, name, calls, errors)
}

/// The rows of NFS version 4, of a server that has served it: its compounds, and their operations.
/// A failure of an operation ends its compound.
fn version4(rates: &TopRates<'_>) -> Vec<(f64, Vec<String>)> {
    const AT: &str = "/total/app/nfs4";
    let compounds = format!("{AT}/compounds");
    if rates.now.pointer(&compounds).and_then(Value::as_u64).unwrap_or(0) == 0 {
        return Vec::new();
    }
    let operations = format!("{AT}/operations");
    let known = rates.now.pointer(&operations).and_then(Value::as_object).into_iter().flatten();
    let mut all_failed = 0.0;
    let operations: Vec<_> = known
        .map(|(name, _)| {
            let calls = rates.of(&format!("{operations}/{name}"));
            let failed = errors(rates, &format!("{AT}/errors/{name}"));
            all_failed += failed;
            row(rates, "nfs4", name, calls, format!("{failed:.0}"))
        })
        .collect();
    let all_failed = format!("{all_failed:.0}");
    let whole = row(rates, "nfs4", "COMPOUND", rates.of(&compounds), all_failed);
    // The compounds come first even when there are no calls.
    [whole].into_iter().chain(operations).collect()
}

/// The sum of the rates of the numbers in the object at `pointer`.
fn errors(rates: &TopRates<'_>, pointer: &str) -> f64 {
    let known = rates.now.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    let rates = known.map(|(status, _)| rates.of(&format!("{pointer}/{status}")));
    // An empty sum is negative zero, which would be visible.
    rates.fold(0.0, |sum, rate| sum + rate)
}

/// A row with the rates of calls and of errors, and the times of watched calls.
fn row(
    rates: &TopRates<'_>,
    program: &str,
    name: &str,
    calls: f64,
    errors: String,
) -> (f64, Vec<String>) {
    let mut timed = list(rates.now, "/procedures").chain(list(rates.now, "/operations"));
    let times = timed.find(|it| word(it, "/program") == program && procedure_of(it) == name);
    let total =
        times.and_then(|times| list(times, "/stages").find(|it| word(it, "/stage") == "total"));
    let of = |percentile: &str| micros(total.and_then(|total| total.get(percentile)));
    let row = vec![
        program.to_owned(),
        name.to_owned(),
        format!("{calls:.0}"),
        errors,
        of("p50_us"),
        of("p99_us"),
    ];
    (calls, row)
}

fn draw(frame: &mut Frame<'_>, view: &TopView) {
    let lines = u16::try_from(view.lines.len()).unwrap_or(0);
    let areas = Layout::vertical([
        Constraint::Length(lines + 1),
        Constraint::Length(PROCEDURE_LINES),
        Constraint::Min(2),
        Constraint::Length(1),
    ]);
    let [head, procedures, clients, keys] = areas.areas(frame.area());
    let text: Vec<_> = view.lines.iter().map(|line| Line::raw(line.as_str())).collect();
    frame.render_widget(ratatui::widgets::Paragraph::new(text), head);
    let heads = ["program", "procedure", " calls/s", " errors/s", " p50", " p99"];
    screen::table(frame, procedures, &heads, &view.procedures);
    screen::table(frame, clients, &CLIENT_HEADS, &view.clients);
    screen::bold(frame, keys, "q ends; p50 and p99 since the start, of watched calls");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The picture of the documentation.
    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/top.txt");

    fn stats(factor: u64) -> Value {
        let calls = |calls: u64| json!({"calls": calls * factor, "errors": {}});
        let times = |name: &str, p50: f64, p99: f64| {
            json!({"program": "nfs3", "procedure": name, "stages": [
                {"stage": "total", "samples": 100, "p50_us": p50, "p99_us": p99}]})
        };
        json!({
            "version": "0.1.0", "uptime_s": 93_784.5, "draining": 0,
            "process": {"cpu_ms": 1_840 * factor, "resident_bytes": 612_368_384_u64},
            "total": {
                "engine": {
                    "connections": {"live": 3},
                    "responder": {
                        "calls": {"short": 180_000 * factor, "chunked": 20_480 * factor, "long": 3},
                        "pulled": 83_886_080 * factor, "pushed": 671_088_640 * factor,
                    },
                    "stream": {"calls": 95 * factor},
                },
                "app": {
                    "nfs3": {
                        "READ": calls(163_840), "GETATTR": calls(12_000), "WRITE": calls(20_480),
                        "LOOKUP": {
                            "calls": 3_000 * factor, "errors": {"NFS3ERR_NOENT": 40 * factor},
                        },
                        "ACCESS": calls(680), "COMMIT": calls(90), "READDIRPLUS": calls(12),
                        "FSINFO": calls(0), "NULL": calls(0),
                    },
                    "mount3": {"MNT": calls(1)},
                    "refused": {"arguments": 0},
                    "data": {
                        "octets_read": 671_088_640 * factor, "octets_written": 83_886_080 * factor,
                    },
                    "waiting": {"under_way": 2},
                },
            },
            "procedures": [times("READ", 7.168, 16.384), times("GETATTR", 3.584, 7.168),
                times("WRITE", 12.288, 28.672), times("LOOKUP", 4.096, 10.24),
                times("COMMIT", 1_835.008, 4_194.304)],
        })
    }

    fn clients() -> Value {
        let rdma = |granted: u64, used: u64, version: u64, invalidation: &str| {
            json!({"version": version, "invalidation": invalidation,
                "credits": {"requested": 128, "granted": granted, "used": used},
                "inline": {"send": 4_096, "receive": 4_096}})
        };
        json!({"clients": [
            {"id": "0.0.1", "peer": "10.1.0.21:47702", "via": "iwarp",
             "rdma": rdma(64, 31, 1, "any"),
             "calls": 31, "oldest_ms": 0.2, "octets": 71_200_000_000_u64},
            {"id": "0.2.7", "peer": "10.1.0.22:50210", "via": "iwarp",
             "rdma": rdma(16, 2, 2, "named"),
             "calls": 2, "oldest_ms": 12.5, "octets": 9_100_000_000_u64},
            {"id": "0.1.1", "peer": "10.1.0.9:701", "via": "tcp", "rdma": null,
             "calls": 0, "oldest_ms": null, "octets": 1_400_000},
        ]})
    }

    fn shown(rates: &TopRates<'_>, clients: &Value) -> String {
        let view = view_of(rates, clients);
        screen::printed(|frame| draw(frame, &view))
    }

    #[test]
    fn the_picture_in_the_documentation_is_what_is_shown() {
        let rates = TopRates { before: &stats(1), now: &stats(2), seconds: 1.0 };
        let text = shown(&rates, &clients());
        if std::env::var_os("STAG_PAGES").is_some() {
            fs::write(FILE, &text).unwrap();
        }
        let found = fs::read_to_string(FILE).unwrap_or_default();
        assert_eq!(text, found, "docs/top.txt is old: STAG_PAGES=1 cargo test -p stag picture");
    }

    #[test]
    fn version_4_is_shown_by_compounds_and_operations_where_it_was_called() {
        let of = |factor: u64| {
            let mut stats = stats(factor);
            stats["total"]["app"]["nfs4"] = json!({
                "compounds": 500_000 * factor,
                "data": {"octets_read": 1_342_177_280 * factor, "octets_written": 0},
                "operations": {"Sequence": 499_000 * factor, "Read": 400_000 * factor, "Open": 7},
                "errors": {
                    "Read": {"NFS4ERR_STALE": 20 * factor, "NFS4ERR_DELAY": 10 * factor},
                    "Open": {"NFS4ERR_NOENT": 10 * factor},
                },
            });
            let times = |p50: f64, p99: f64| {
                json!([
                    {"stage": "total", "samples": 9, "p50_us": p50, "p99_us": p99},
                ])
            };
            stats["procedures"] = json!([
                {"program": "nfs4", "procedure": "COMPOUND", "stages": times(7.168, 16.384)},
            ]);
            stats["operations"] =
                json!([{"program": "nfs4", "operation": "Read", "stages": times(8.192, 28.672)}]);
            stats
        };
        let rates = TopRates { before: &of(1), now: &of(2), seconds: 2.0 };
        let text = shown(&rates, &clients());
        let rows: Vec<Vec<_>> = text.lines().map(|it| it.split_whitespace().collect()).collect();
        let place = rows.iter().position(|row| row.first() == Some(&"program")).unwrap();
        let expected = [
            &["nfs4", "COMPOUND", "250000", "20", "7.2", "us", "16.4", "us"][..],
            &["nfs4", "Sequence", "249500", "0", "-", "-"],
            &["nfs4", "Read", "200000", "15", "8.2", "us", "28.7", "us"],
        ];
        assert_eq!(rows[place + 1..place + 4], expected, "{text}");
        assert!(text.contains("READ 960 MiB   WRITE 40 MiB "), "of both versions: {text}");
        let rows = version4(&TopRates { before: &of(0), now: &of(0), seconds: 1.0 });
        assert!(rows.is_empty(), "nobody called");
    }

    #[test]
    fn a_view_has_24_lines_of_80_columns_whatever_a_server_says() {
        let many = json!({"clients": vec![clients()["clients"][0].clone(); 2_000]});
        for (now, clients) in [(stats(2), many), (Value::Null, Value::Null)] {
            let rates = TopRates { before: &Value::Null, now: &now, seconds: 0.0 };
            let text = shown(&rates, &clients);
            assert_eq!(text.lines().count(), 24);
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
    }
}
