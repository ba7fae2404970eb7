//! Log on standard error: connections and refusals, and the server's own messages.
//!
//! Nothing is logged on the path of a call unless the level is trace. A server's threads hand their
//! lines to a bounded queue (`queue`), so that no shard waits for the reader of the log.

mod queue;

pub use queue::Flush;

use queue::Lines;
use serde_json::{Value, json};
use std::sync::{Mutex, OnceLock, PoisonError};
use tracing::Level;
use tracing_subscriber::{
    Layer, Registry, filter::Targets, fmt, layer::SubscriberExt, reload, util::SubscriberInitExt,
};

/// The target of everything that is logged.
const TARGET: &str = "stag";

/// The environment variable of a filter.
pub const VARIABLE: &str = "STAG_LOG";

/// Form of the lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people: time, level, sentence, facts.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The filter in use, to be changed while the process runs.
struct Filtering {
    handle: reload::Handle<Targets, Registry>,
    text: Mutex<String>,
}

static FILTERING: OnceLock<Filtering> = OnceLock::new();

/// Starts the log of a command that is no server, filtered by `STAG_LOG`.
///
/// # Errors
/// A sentence about an invalid filter, with the valid words.
pub fn start() -> Result<(), String> {
    let wanted = from_environment();
    let filter = filter(&wanted).map_err(|why| format!("STAG_LOG: {why}"))?;
    install(filter, &wanted, LogFormat::Text, Lines::direct());
    Ok(())
}

/// Starts the log of a server: filtered by `wanted`, else by `STAG_LOG`. Dropping the returned
/// value writes all lines and ends the log.
///
/// # Errors
/// A sentence about an invalid filter, with the valid words.
pub fn start_server(wanted: Option<&str>, format: LogFormat) -> Result<Flush, String> {
    let (filter, wanted) = filter_of_server(wanted)?;
    let (lines, flush) = Lines::queued(queue::is_journal());
    install(filter, &wanted, format, lines);
    Ok(flush)
}

/// The filter of the environment; empty if there is none.
pub fn from_environment() -> String {
    std::env::var_os(VARIABLE).unwrap_or_default().to_string_lossy().into_owned()
}

fn install(filter: Targets, text: &str, format: LogFormat, lines: Lines) {
    let (filter, handle) = reload::Layer::new(filter);
    let text = if text.trim().is_empty() { "info" } else { text.trim() };
    let filtering = Filtering { handle, text: Mutex::new(text.to_owned()) };
    // A second start keeps the first filter's handle; the log itself refuses it as well.
    let _ = FILTERING.set(filtering);
    let is_timed = !lines.is_for_journal();
    let events = fmt::layer().with_writer(lines).with_ansi(false).with_target(false);
    let events = match (format, is_timed) {
        (LogFormat::Json, _) => events.json().flatten_event(true).boxed(),
        (LogFormat::Text, true) => events.boxed(),
        // The journal has times of its own.
        (LogFormat::Text, false) => events.without_time().boxed(),
    };
    tracing_subscriber::registry().with(filter).with(events).init();
}

/// Checks the filter that a server would have.
///
/// # Errors
/// A sentence about an invalid one, with the valid words.
pub fn check(wanted: Option<&str>) -> Result<(), String> {
    filter_of_server(wanted).map(drop)
}

/// The filter of a server, with its text.
fn filter_of_server(wanted: Option<&str>) -> Result<(Targets, String), String> {
    let (wanted, from) = match wanted {
        Some(wanted) => (wanted.to_owned(), "--log"),
        None => (from_environment(), VARIABLE),
    };
    let filter = filter(&wanted).map_err(|why| format!("{from}: {why}"))?;
    Ok((filter, wanted))
}

/// Filters by `wanted` from here on; without it nothing changes. Returns the filter in use.
///
/// # Errors
/// A sentence about an invalid filter, with the valid words.
pub fn change(wanted: Option<&str>) -> Result<Value, String> {
    if let Some(wanted) = wanted {
        let Some(Filtering { handle, text }) = FILTERING.get() else {
            return Err("nothing is logged by this process".to_owned());
        };
        let new = filter(wanted)?;
        handle.reload(new).map_err(|error| format!("the filter stays: {error}"))?;
        wanted.trim().clone_into(&mut text.lock().unwrap_or_else(PoisonError::into_inner));
        tracing::info!(target: TARGET, filter = wanted, "the log is filtered anew");
    }
    Ok(json!({ "filter": filter_text() }))
}

/// The filter in use.
pub fn filter_text() -> String {
    let text = FILTERING.get().map(|it| it.text.lock().unwrap_or_else(PoisonError::into_inner));
    text.map_or_else(|| "off".to_owned(), |text| text.clone())
}

/// Events that were written and lost since the start, for the statistics.
pub fn counted() -> Value {
    let (written, lost) = queue::counted();
    json!({ "written": written, "lost": lost })
}

fn usual() -> Targets {
    Targets::new().with_default(Level::INFO)
}

/// The filter for `wanted`. A word that is no level would be the name of a log target, of which
/// there is one.
fn filter(wanted: &str) -> Result<Targets, String> {
    let write = "write error, warn, info, debug, trace or off";
    if wanted.trim().is_empty() {
        return Ok(usual());
    }
    let filter: Targets =
        wanted.trim().parse().map_err(|error| format!("{wanted:?}: {error}; {write}"))?;
    match filter.iter().find(|(target, _)| *target != TARGET) {
        Some((other, _)) => Err(format!("{other:?} is no level: {write}")),
        None => Ok(filter),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_taken_and_other_words_are_named() {
        for (wanted, level) in [
            ("", Some(Level::INFO)),
            ("error", Some(Level::ERROR)),
            ("DEBUG", Some(Level::DEBUG)),
            ("off", None),
            ("stag=trace", Some(Level::TRACE)),
            ("warn,stag=debug", Some(Level::DEBUG)),
        ] {
            let filter = filter(wanted).unwrap();
            for one in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE] {
                assert_eq!(
                    filter.would_enable(TARGET, &one),
                    level.is_some_and(|level| one <= level),
                    "{wanted}"
                );
            }
        }
        for (wanted, part) in [
            ("bogus", "\"bogus\" is no level: write error, warn, info"),
            ("info,bogus", "\"bogus\" is no level"),
            ("bogus=info", "\"bogus\" is no level"),
            ("stag=loud", "write error, warn"),
            ("=", "write error, warn"),
        ] {
            let why = filter(wanted).unwrap_err();
            assert!(why.contains(part), "{wanted}: {why}");
        }
    }
}
