//! Contenders, measured side by side: ours, a rival's, or a floor that nothing can go below.

use crate::site::MeasuringSite;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Result of one measurement. A contender fills the fields that it knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The middle one of all round trips, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<f64>,
    /// 99 of 100 round trips are not longer, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<f64>,
    /// Calls, or messages, per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_per_s: Option<f64>,
    /// Octets of payload per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub octets_per_s: Option<f64>,
    /// Any other count: instructions, octets, parts of a core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<f64>,
}

impl Reading {
    /// Round trips, of samples in nanoseconds.
    pub fn of_trips(samples: &mut [f64]) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |hundredths: usize| samples.get(samples.len() * hundredths / 100).copied();
        Self { p50_ns: at(50), p99_ns: at(99), ..Self::default() }
    }

    /// A number of a kind of its own.
    pub fn counted(count: f64) -> Self {
        Self { count: Some(count), ..Self::default() }
    }
}

/// Part of a [`Reading`] that a goal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadingQuantity {
    /// The middle round trip.
    RoundTrip,
    /// p99 ÷ p50 of the round trips.
    Tail,
    /// Calls per second.
    Rate,
    /// Octets per second.
    Bandwidth,
    /// A number in this unit.
    Count(&'static str),
}

impl ReadingQuantity {
    /// The number that is compared.
    pub fn of(self, reading: &Reading) -> Option<f64> {
        match self {
            Self::RoundTrip => reading.p50_ns,
            Self::Tail => Some(reading.p99_ns? / reading.p50_ns?),
            Self::Rate => reading.calls_per_s,
            Self::Bandwidth => reading.octets_per_s,
            Self::Count(_) => reading.count,
        }
    }

    /// The quantity of timed figures with this unit.
    pub fn of_unit(unit: &str) -> Option<Self> {
        [Self::RoundTrip, Self::Tail, Self::Rate, Self::Bandwidth]
            .into_iter()
            .find(|known| known.unit() == unit)
    }

    /// Returns the unit of the number.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::RoundTrip => "ns",
            Self::Tail => "p99/p50",
            Self::Rate => "calls/s",
            Self::Bandwidth => "octets/s",
            Self::Count(unit) => unit,
        }
    }
}

/// The reason why a contender cannot be measured here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absence {
    /// A program that is not installed, and the Debian package that has it.
    Missing {
        /// The program.
        program: String,
        /// The package.
        package: String,
    },
    /// It is installed but does not work.
    Failed(String),
}

impl Absence {
    /// Something failed, in words.
    pub fn failed(why: impl fmt::Display) -> Self {
        Self::Failed(why.to_string())
    }
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { program, package } => {
                write!(f, "{program} is not installed (apt-get install {package})")
            }
            Self::Failed(why) => f.write_str(why),
        }
    }
}

/// One side of a comparison. Dropping it ends what it started.
///
/// To add one: a file of its own with a type that implements this, and a row in
/// [`goals`](crate::goals) that names it.
pub trait Contender {
    /// Returns the name of the contender in tables.
    fn name(&self) -> String;

    /// Returns the commands that one would type to see the same; shown in the results. Known from
    /// [`Contender::start`] on.
    fn commands(&self) -> Vec<String>;

    /// Returns true if it was started elsewhere: the work of its processes on this host cannot be
    /// distinguished from that of strangers.
    fn is_stranger(&self) -> bool {
        false
    }

    /// Starts what has to run before anything can be measured, on [`MeasuringSite::server`]'s core.
    /// Processes that wait between measurements sleep: both sides of a comparison are started
    /// before the first round.
    ///
    /// # Errors
    /// Why it cannot be measured here: its goal is skipped with these words.
    fn start(&mut self, _site: &MeasuringSite) -> Result<(), Absence> {
        Ok(())
    }

    /// One measurement, of about [`MeasuringSite::turn`].
    ///
    /// # Errors
    /// A sentence that names the failure: the round does not count.
    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String>;
}
