//! Latency histograms of round trips, and the percentiles that enough samples support.

use base64::{Engine, prelude::BASE64_STANDARD};
use hdrhistogram::{
    Histogram,
    serialization::{Deserializer, Serializer, V2DeflateSerializer},
};
use serde::{Deserialize, Serialize};
use stag_verbs::Time;
use std::time::Duration;

/// The longest distinct time, in nanoseconds: longer ones count as this.
pub const LONGEST: u64 = 60_000_000_000;
/// Significant digits of a time.
const DIGITS: u8 = 3;
/// Samples that have to be beyond a percentile before it says anything.
pub const BEYOND: f64 = 10.0;
/// The percentiles of every table.
pub const PERCENTILES: [(&str, f64); 6] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
    ("p99.999", 0.99999),
];

/// An empty histogram of nanoseconds.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("the bounds and digits are sound")
}

/// Nanoseconds as a histogram takes them.
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds from one time to a later one; none if it is not later.
#[inline]
pub(crate) const fn elapsed(from: Time, to: Time) -> u64 {
    to.0.saturating_sub(from.0)
}

/// Returns true if enough of `samples` are beyond a quantile.
pub fn is_supported(samples: u64, quantile: f64) -> bool {
    samples as f64 * (1.0 - quantile) >= BEYOND - 1e-6
}

/// The time at a quantile in microseconds, when enough samples are beyond it.
pub fn at(histogram: &Histogram<u64>, quantile: f64) -> Option<f64> {
    is_supported(histogram.len(), quantile)
        .then(|| histogram.value_at_quantile(quantile) as f64 / 1e3)
}

/// Times, in microseconds. A percentile is none when too few samples are beyond it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Number of samples.
    pub samples: u64,
    /// The shortest.
    pub min_us: f64,
    /// Their mean.
    pub mean_us: f64,
    /// Standard deviation from the mean.
    pub stdev_us: f64,
    /// The longest.
    pub max_us: f64,
    /// One for each of [`PERCENTILES`].
    pub percentiles_us: [Option<f64>; PERCENTILES.len()],
    /// All of them: an HdrHistogram of nanoseconds, V2, deflated, in base64.
    pub histogram: String,
}

impl Times {
    /// Summarizes a histogram of nanoseconds.
    pub fn new(histogram: &Histogram<u64>) -> Self {
        let is_empty = histogram.is_empty();
        let micros = |nanos: f64| if is_empty { 0.0 } else { nanos / 1e3 };
        Self {
            samples: histogram.len(),
            min_us: micros(histogram.min() as f64),
            mean_us: micros(histogram.mean()),
            stdev_us: micros(histogram.stdev()),
            max_us: micros(histogram.max() as f64),
            percentiles_us: PERCENTILES.map(|(_, quantile)| at(histogram, quantile)),
            histogram: encode(histogram),
        }
    }

    /// The histogram again.
    ///
    /// # Errors
    /// A sentence that names the fault of the text.
    pub fn histogram(&self) -> Result<Histogram<u64>, String> {
        decode(&self.histogram)
    }

    /// The time at the percentile with this name.
    pub fn percentile(&self, name: &str) -> Option<f64> {
        let place = PERCENTILES.iter().position(|(known, _)| *known == name)?;
        self.percentiles_us.get(place).copied().flatten()
    }
}

/// A histogram as other tools take it.
pub fn encode(histogram: &Histogram<u64>) -> String {
    let mut octets = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut octets)
        .expect("a vector takes any histogram of these bounds");
    BASE64_STANDARD.encode(octets)
}

/// The histogram that [`encode`] wrote.
///
/// # Errors
/// A sentence that names the fault of the text.
pub fn decode(text: &str) -> Result<Histogram<u64>, String> {
    let octets = BASE64_STANDARD.decode(text).map_err(|error| error.to_string())?;
    Deserializer::new().deserialize(&mut octets.as_slice()).map_err(|error| error.to_string())
}

/// Measurements of one second, or of all seconds.
#[derive(Clone, Debug)]
pub struct CallRecord {
    /// From when a call was passed to the engine to when its reply was read.
    pub service: Histogram<u64>,
    /// From when it was meant to go out.
    pub response: Histogram<u64>,
    /// From the start of a connection to its establishment, for a workload that makes them.
    pub connected: Option<Box<Histogram<u64>>>,
    /// Delays caused by the generator itself: from when a call was due and had a place to when it
    /// was passed to the engine.
    pub lag: Histogram<u64>,
    /// Replies with what was asked for.
    pub calls: u64,
    /// Octets of payload that they moved, in both directions.
    pub octets: u64,
    /// Calls that failed.
    pub failed: u64,
    /// The longest time between two turns of the generator, in nanoseconds.
    pub gap: u64,
}

impl Default for CallRecord {
    fn default() -> Self {
        let [service, response, lag] = [(); 3].map(|()| histogram());
        Self { service, response, connected: None, lag, calls: 0, octets: 0, failed: 0, gap: 0 }
    }
}

impl CallRecord {
    /// Forgets everything.
    pub fn clear(&mut self) {
        [&mut self.service, &mut self.response, &mut self.lag]
            .into_iter()
            .for_each(Histogram::reset);
        if let Some(connected) = &mut self.connected {
            connected.reset();
        }
        (self.calls, self.octets, self.failed, self.gap) = (0, 0, 0, 0);
    }

    /// A connection took so long.
    pub fn connected(&mut self, nanos: u64) {
        self.connected.get_or_insert_with(|| Box::new(histogram())).saturating_record(nanos);
    }

    /// Adds what another one holds.
    pub fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.service, &other.service),
            (&mut self.response, &other.response),
            (&mut self.lag, &other.lag),
        ];
        for (sum, more) in sums {
            sum.add(more).expect("all histograms have the same bounds");
        }
        if let Some(more) = &other.connected {
            let sum = self.connected.get_or_insert_with(|| Box::new(histogram()));
            sum.add(&**more).expect("all histograms have the same bounds");
        }
        self.calls += other.calls;
        self.octets += other.octets;
        self.failed += other.failed;
        self.gap = self.gap.max(other.gap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(samples: u64) -> Histogram<u64> {
        let mut histogram = histogram();
        (1..=samples).for_each(|number| histogram.record(number * 1_000).unwrap());
        histogram
    }

    #[test]
    fn a_percentile_needs_ten_samples_beyond_it() {
        let known = |samples| Times::new(&of(samples)).percentiles_us.iter().flatten().count();
        let steps =
            [(19, 0), (20, 1), (99, 1), (100, 2), (999, 2), (1_000, 3), (9_999, 3), (10_000, 4)];
        for (samples, expected) in steps {
            assert_eq!(known(samples), expected, "{samples} samples");
        }
        assert_eq!((known(99_999), known(100_000), known(999_999), known(1_000_000)), (4, 5, 5, 6));
    }

    #[test]
    fn percentiles_are_those_of_the_samples_to_a_thousandth() {
        let times = Times::new(&of(100_000));
        for (name, expected) in
            [("p50", 50_000.0), ("p90", 90_000.0), ("p99", 99_000.0), ("p99.99", 99_990.0)]
        {
            let came = times.percentile(name).unwrap();
            assert!((came / expected - 1.0).abs() < 0.001, "{name}: {came}");
        }
        assert_eq!(times.percentile("p42"), None);
    }

    #[test]
    fn a_histogram_survives_its_text() {
        let histogram = of(5_000);
        let times = Times::new(&histogram);
        assert_eq!(times.histogram().unwrap(), histogram);
        assert!(Times { histogram: "!".to_owned(), ..times }.histogram().is_err());
    }

    #[test]
    fn records_add_up() {
        let mut one = CallRecord::default();
        one.service.record(1_000).unwrap();
        (one.calls, one.gap) = (1, 5);
        let mut sum = one.clone();
        sum.add(&one);
        assert_eq!((sum.calls, sum.service.len(), sum.gap), (2, 2, 5));
        sum.clear();
        assert_eq!((sum.calls, sum.service.len(), sum.gap), (0, 0, 0));
    }

    #[test]
    fn nothing_is_said_of_no_samples() {
        let times = Times::new(&histogram());
        assert_eq!((times.samples, times.min_us, times.max_us), (0, 0.0, 0.0));
        assert!(times.percentiles_us.iter().all(Option::is_none));
    }
}
