//! The highest rate at which a server keeps a promise, by bisection.

use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// A promise: a percentile of the response times is at most a given time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Promise {
    /// The percentile, as tables name it.
    pub percentile: String,
    /// Microseconds that it may take.
    pub at_most_us: f64,
}

/// Next step of the search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LadderStep {
    /// Try this rate.
    Try(f64),
    /// It is over: the highest rate that was tried and kept, if any did.
    Over(Option<f64>),
}

/// Looks for the highest rate. It doubles the rate until it is not kept, and then halves the
/// interval.
#[derive(Clone, Debug)]
pub struct Search {
    kept: Option<f64>,
    broken: Option<f64>,
    next: f64,
    /// The highest and the lowest rate to be tried.
    bounds: (f64, f64),
    /// The search ends when the interval is a smaller part than this of the rate.
    within: f64,
}

impl Search {
    /// Begins with `first`; the result is exact to the part `within`.
    pub fn new(first: f64, bounds: RangeInclusive<f64>, within: f64) -> Self {
        let (lowest, highest) = bounds.into_inner();
        Self {
            kept: None,
            broken: None,
            next: first.clamp(lowest, highest),
            bounds: (lowest, highest),
            within,
        }
    }

    /// The next rate to try.
    pub fn step(&self) -> LadderStep {
        let (lowest, highest) = self.bounds;
        match (self.kept, self.broken) {
            (Some(kept), Some(broken)) if broken / kept - 1.0 <= self.within => {
                LadderStep::Over(Some(kept))
            }
            (Some(kept), None) if kept >= highest => LadderStep::Over(Some(kept)),
            (None, Some(broken)) if broken <= lowest => LadderStep::Over(None),
            _ => LadderStep::Try(self.next),
        }
    }

    /// Records whether the rate that [`Search::step`] gave was kept.
    pub fn note(&mut self, is_kept: bool) {
        let (lowest, highest) = self.bounds;
        let place = if is_kept { &mut self.kept } else { &mut self.broken };
        *place = Some(self.next);
        self.next = match (self.kept, self.broken) {
            // Rates are far apart, so the middle is that of their logarithms.
            (Some(kept), Some(broken)) => (kept * broken).sqrt(),
            (Some(kept), None) => (kept * 2.0).min(highest),
            (None, Some(broken)) => (broken / 2.0).max(lowest),
            (None, None) => self.next,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The search on a server that keeps every rate up to `limit`; returns the number of tries,
    /// too.
    fn search(first: f64, limit: f64) -> (Option<f64>, u32) {
        let (mut search, mut tries) = (Search::new(first, 1.0..=1e6, 0.05), 0);
        loop {
            match search.step() {
                LadderStep::Try(rate) => search.note(rate <= limit),
                LadderStep::Over(found) => return (found, tries),
            }
            tries += 1;
            assert!(tries < 60, "it never ends");
        }
    }

    #[test]
    fn the_highest_rate_is_found_from_anywhere_to_a_twentieth() {
        for first in [1.0, 37.0, 1_000.0, 999_999.0] {
            for limit in [1.0, 2.5, 999.0, 12_345.0, 654_321.0] {
                let (found, tries) = search(first, limit);
                let found = found.unwrap();
                assert!(found <= limit && limit / found <= 1.05, "{first} {limit}: {found}");
                assert!(tries <= 30, "{tries}");
            }
        }
    }

    #[test]
    fn what_is_never_and_what_is_always_kept_ends_the_search() {
        assert_eq!(search(1_000.0, 0.5).0, None);
        assert_eq!(search(1_000.0, 1e9).0, Some(1e6));
    }
}
