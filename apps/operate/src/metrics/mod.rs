//! Metrics: one row of a table declares each, with its name, its unit, its meaning, and its place
//! in the statistics. The rows define the text that Prometheus reads (`GET /metrics`, `http`),
//! the way in which shards add up ([`object`]), and the page `docs/metrics.md`.

mod gather;
pub(crate) mod http;
pub mod object;
pub mod path;
mod process;
mod table;
#[cfg(test)]
mod tests;
mod text;

pub use gather::{Gathered, NoAnswer, Readiness, ShardEnd, ShardHandle, ShardPlace, Shards};

use path::Path;
use stag_engine::Command;

/// Behaviour of a metric over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows; its name ends with `_total`.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Times of watched calls, in buckets.
    Histogram,
}

impl Kind {
    /// The word of the exposition format.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Unit of a metric. Prometheus' are base units, and part of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    Count,
    /// Octets.
    Bytes,
    /// Seconds.
    Seconds,
    /// Milliseconds in the statistics, seconds in the metric.
    Millis,
}

impl Unit {
    /// The part of a name that says the unit.
    #[cfg(test)]
    pub const fn suffix(self) -> Option<&'static str> {
        match self {
            Self::Count => None,
            Self::Bytes => Some("_bytes"),
            Self::Seconds | Self::Millis => Some("_seconds"),
        }
    }

    /// Converts a number of the statistics to the base unit.
    pub fn scale(self, value: f64) -> f64 {
        if self == Self::Millis { value / 1_000.0 } else { value }
    }
}

/// The way in which the numbers of several shards become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Across {
    /// They are added.
    Sum,
    /// All say the same, or the largest is meant.
    Largest,
    /// Each keeps its own, with the label `shard`; in the statistics' total they are added.
    Shard,
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name, by Prometheus' rules.
    pub name: &'static str,
    /// Behaviour over time.
    pub kind: Kind,
    /// Unit.
    pub unit: Unit,
    /// Its place in the statistics.
    pub at: Path,
    /// The way in which shards add up.
    pub across: Across,
    /// Meaning, in one sentence.
    pub help: &'static str,
}

impl Metric {
    const fn new(kind: Kind, name: &'static str, at: &'static str, help: &'static str) -> Self {
        let (unit, across) = (Unit::Count, Across::Sum);
        Self { name, kind, unit, at: Path(at), across, help }
    }

    const fn counter(name: &'static str, at: &'static str, help: &'static str) -> Self {
        Self::new(Kind::Counter, name, at, help)
    }

    const fn gauge(name: &'static str, at: &'static str, help: &'static str) -> Self {
        Self::new(Kind::Gauge, name, at, help)
    }

    const fn histogram(name: &'static str, at: &'static str, help: &'static str) -> Self {
        Self { unit: Unit::Seconds, ..Self::new(Kind::Histogram, name, at, help) }
    }

    const fn in_unit(self, unit: Unit) -> Self {
        Self { unit, ..self }
    }

    const fn across(self, across: Across) -> Self {
        Self { across, ..self }
    }
}

/// Asks `shards` for the text that Prometheus reads.
///
/// # Errors
/// A sentence about a shard that does not answer.
pub fn scrape(shards: &Shards) -> Result<String, String> {
    let gathered = shards.gather(Command::Snapshot).map_err(|silent| silent.to_string())?;
    Ok(text::exposition(&gathered))
}

/// Sentences about what is missing, for `GET /ready`.
///
/// # Errors
/// The same, while no client can connect.
pub fn ready(shards: &Shards) -> Result<String, String> {
    let Readiness { is_ready, missing } = shards.readiness();
    let missing = missing.join("\n");
    match is_ready {
        true if missing.is_empty() => Ok("ready".to_owned()),
        true => Ok(format!("ready; {missing}")),
        false => Err(missing),
    }
}

/// All metrics, in the order in which they are shown.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    table::FAMILIES.iter().flat_map(|family| family.metrics)
}

/// The metric of the number at `keys` of the statistics.
pub fn of(keys: &[&str]) -> Option<&'static Metric> {
    all().find(|metric| metric.at.matches(keys))
}
