//! Log of connections and refusals, on standard error. Nothing is logged on the path of a call.

use crate::caller::aside;
use tracing::Level;
use tracing_subscriber::{filter::Targets, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// The target of everything that is logged.
const TARGET: &str = "stag";

/// Starts logging, filtered by `STAG_LOG`. A filter that means nothing is said once, and the
/// default is used.
pub fn start() {
    let wanted = std::env::var_os("STAG_LOG").unwrap_or_default();
    let filter = filter(&wanted.to_string_lossy()).unwrap_or_else(|why| {
        aside(format!("stag: STAG_LOG is ignored: {why}; info is logged\n"));
        usual()
    });
    let events = fmt::layer().with_writer(std::io::stderr).with_ansi(false).with_target(false);
    tracing_subscriber::registry().with(filter).with(events).init();
}

fn usual() -> Targets {
    Targets::new().with_default(Level::INFO)
}

/// The filter that `wanted` asks for. A word that is no level would be the name of something that
/// logs, of which there is one.
fn filter(wanted: &str) -> Result<Targets, String> {
    let write = "write error, warn, info, debug, trace or off";
    if wanted.trim().is_empty() {
        return Ok(usual());
    }
    let filter: Targets =
        wanted.parse().map_err(|error| format!("{wanted:?}: {error}; {write}"))?;
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
