//! Cells and tables of replies, as text, mostly of at most 80 columns.

use serde_json::Value;
use stag_operate::quote;
use std::fmt::Write;

/// Columns of a terminal.
pub const WIDTH: usize = 80;

/// The text of the value at `pointer`; a dash where there is none.
pub fn word(value: &Value, pointer: &str) -> String {
    match value.pointer(pointer) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => quote::line(text),
        Some(other) => other.to_string(),
    }
}

/// The members of the list that `pointer` leads to.
pub fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// Rows under a head, each column as wide as needed. Columns whose head begins with a space are
/// aligned to the right.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    table_spaced(head, rows, "  ")
}

/// The same, with `space` between columns.
pub fn table_spaced(head: &[&str], rows: &[Vec<String>], space: &str) -> String {
    let whole = table_whole(head, rows, space);
    whole.lines().fold(String::new(), |text, line| text + &cut(line, WIDTH) + "\n")
}

/// The same, with lines of any length: they are read by programs, and a terminal wraps them.
pub fn table_whole(head: &[&str], rows: &[Vec<String>], space: &str) -> String {
    let heads = head.iter().map(|head| head.trim_start().to_owned()).collect::<Vec<_>>();
    let width = |column: usize| {
        let cells = std::iter::once(&heads).chain(rows).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for row in std::iter::once(&heads).chain(rows) {
        let mut line = String::new();
        for ((cell, head), width) in row.iter().zip(head).zip(&widths) {
            let _ = match head.starts_with(' ') {
                true => write!(line, "{cell:>width$}{space}"),
                false => write!(line, "{cell:<width$}{space}"),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// The first `width` columns of a text; `…` marks a cut.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// A number of octets, by powers of 1,024.
pub fn octets(value: &Value) -> String {
    let Some(count) = value.as_f64() else { return "-".to_owned() };
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut count, mut unit) = (count, 0);
    while count >= 1_000.0 && unit + 1 < units.len() {
        (count, unit) = (count / 1_024.0, unit + 1);
    }
    let decimals = usize::from(unit > 0 && count < 10.0);
    format!("{count:.decimals$} {}", units.get(unit).unwrap_or(&""))
}

/// A number of microseconds, as `12.3 us` or longer units.
pub fn micros(value: Option<&Value>) -> String {
    let Some(micros) = value.and_then(Value::as_f64) else { return "-".to_owned() };
    match micros {
        0.0..1_000.0 => format!("{micros:.1} us"),
        1_000.0..1_000_000.0 => format!("{:.1} ms", micros / 1e3),
        _ => format!("{:.1} s", micros / 1e6),
    }
}

/// A number of seconds, as `1 d 02:03:04`.
pub fn uptime(value: Option<&Value>) -> String {
    let seconds = value.and_then(Value::as_f64).unwrap_or(0.0) as u64;
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    let days = if days > 0 { format!("{days} d ") } else { String::new() };
    format!("{days}{hours:02}:{minutes:02}:{seconds:02}")
}
