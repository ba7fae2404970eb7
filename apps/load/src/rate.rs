//! Calls per second and full round trips: from before a call is written to after its reply is read
//! (DESIGN D13).

use crate::latency;
use hdrhistogram::Histogram;
use serde::Serialize;
use stag_client::{Error, NfsClient};
use stag_protocol::nfs::v3::FileHandle;
use stag_verbs::{Provider, Time};
use std::{collections::HashMap, time::Duration};

/// Calls whose round trips are not counted, because one-time costs occur in them.
const WARM_UP: u64 = 20;

/// Round trips. A percentile is none when too few samples are beyond it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RoundTrips {
    /// Number of samples.
    pub samples: u64,
    /// The middle one, in microseconds, as all of these.
    pub p50_us: Option<f64>,
    /// Nine of ten are not longer.
    pub p90_us: Option<f64>,
    /// 99 of 100.
    pub p99_us: Option<f64>,
    /// 999 of 1,000.
    pub p999_us: Option<f64>,
    /// The longest.
    pub max_us: f64,
}

impl RoundTrips {
    fn new(histogram: &Histogram<u64>) -> Self {
        let micros = |nanos: u64| nanos as f64 / 1_000.0;
        let at = |quantile: f64| latency::at(histogram, quantile);
        Self {
            samples: histogram.len(),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: micros(histogram.max()),
        }
    }
}

/// Rate and round trips that were measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rate {
    /// Calls outstanding at a time.
    pub depth: usize,
    /// Calls per second.
    pub calls_per_s: f64,
    /// Full round trips.
    pub round_trips: RoundTrips,
}

/// Samples of one measurement.
struct Samples {
    histogram: Histogram<u64>,
    depth: usize,
    calls: u64,
    start: Time,
}

impl Samples {
    fn new(depth: usize, start: Time) -> Self {
        let histogram = latency::histogram();
        Self { histogram, depth, calls: 0, start }
    }

    fn add(&mut self, began: Time, now: Time) {
        self.calls += 1;
        if self.calls == WARM_UP {
            self.start = now;
        } else if self.calls > WARM_UP {
            self.histogram.saturating_record(latency::nanos(now.since(began)));
        }
    }

    fn is_over(&self, now: Time, at_least: Duration) -> bool {
        self.calls > WARM_UP && now.since(self.start) >= at_least
    }

    fn rate(&self, now: Time) -> Rate {
        let seconds = now.since(self.start).as_secs_f64();
        let calls_per_s = if seconds > 0.0 { self.histogram.len() as f64 / seconds } else { 0.0 };
        Rate { depth: self.depth, calls_per_s, round_trips: RoundTrips::new(&self.histogram) }
    }
}

/// Makes one call after the other until `at_least` is over.
///
/// # Errors
/// The first of `call`.
pub fn one_by_one<P: Provider>(
    client: &mut NfsClient<P>,
    at_least: Duration,
    mut call: impl FnMut(&mut NfsClient<P>, u64) -> Result<(), Error>,
) -> Result<Rate, Error> {
    let mut samples = Samples::new(1, client.now());
    let mut now = samples.start;
    while !samples.is_over(now, at_least) {
        let began = client.now();
        call(client, samples.calls)?;
        now = client.now();
        samples.add(began, now);
    }
    Ok(samples.rate(now))
}

/// READs to be made, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Reads {
    /// The file.
    pub file: FileHandle,
    /// Octets of it that are read repeatedly, from its beginning on.
    pub span: u64,
    /// Octets of one READ.
    pub count: u32,
    /// READs outstanding at a time.
    pub depth: usize,
}

/// Makes READs until `at_least` is over.
///
/// # Errors
/// The first that a READ gives.
pub fn reads<P: Provider>(
    client: &mut NfsClient<P>,
    reads: Reads,
    at_least: Duration,
) -> Result<Rate, Error> {
    let Reads { file, span, count, depth } = reads;
    let mut samples = Samples::new(depth, client.now());
    let mut room = vec![0; usize::try_from(count).unwrap_or(0)];
    let mut outstanding = HashMap::new();
    let (mut now, mut begun) = (samples.start, 0_u64);
    let places = (span / u64::from(count.max(1))).max(1);
    loop {
        let is_over = samples.is_over(now, at_least);
        while !is_over && outstanding.len() < depth {
            let began = client.now();
            let ticket = client.begin_read(file, begun % places * u64::from(count), count)?;
            outstanding.insert(ticket, began);
            begun += 1;
        }
        if outstanding.is_empty() {
            return Ok(samples.rate(now));
        }
        let finished = client.finish()?;
        let Some(began) = outstanding.remove(&finished.ticket()) else { continue };
        client.finish_read(finished, &mut room)?;
        now = client.now();
        samples.add(began, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(samples: u64) -> RoundTrips {
        let mut histogram = latency::histogram();
        (1..=samples).for_each(|number| histogram.record(number * 1_000).unwrap());
        RoundTrips::new(&histogram)
    }

    #[test]
    fn a_percentile_needs_ten_samples_beyond_it() {
        let known = |samples| {
            let trips = of(samples);
            [trips.p50_us, trips.p90_us, trips.p99_us, trips.p999_us].map(|value| value.is_some())
        };
        assert_eq!(known(0), [false; 4]);
        assert_eq!(known(19), [false; 4]);
        assert_eq!(known(20), [true, false, false, false]);
        assert_eq!(known(99), [true, false, false, false]);
        assert_eq!(known(100), [true, true, false, false]);
        assert_eq!(known(999), [true, true, false, false]);
        assert_eq!(known(1_000), [true, true, true, false]);
        assert_eq!(known(9_999), [true, true, true, false]);
        assert_eq!(known(10_000), [true; 4]);
    }

    #[test]
    fn percentiles_are_those_of_the_samples() {
        let trips = of(1_000);
        assert_eq!(trips.samples, 1_000);
        for (expected, came) in [
            (500.0, trips.p50_us.unwrap()),
            (990.0, trips.p99_us.unwrap()),
            (1_000.0, trips.max_us),
        ] {
            assert!((expected - came).abs() <= 1.0, "{expected} {came}");
        }
    }
}
