//! View of a run in progress: each second is added as it comes.

use crate::{
    latency::{CallRecord, Times, decode},
    nodes::add_to,
    report::model::SecondFigures,
};
use hdrhistogram::Histogram;
use std::collections::VecDeque;

/// Seconds that are kept for a view of the run's history.
pub const HISTORY_S: usize = 300;

/// The figures of one second that a view of the run draws.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LivePoint {
    /// Replies in it.
    pub calls: u64,
    /// The 99th percentile of its response times in microseconds; the longest one where fewer than
    /// ten samples are beyond.
    pub p99_us: f64,
}

/// A run as far as it got.
#[derive(Clone, Debug, Default)]
pub struct LiveRun {
    all: CallRecord,
    last: Option<SecondFigures>,
    points: VecDeque<LivePoint>,
    seconds: u64,
}

impl LiveRun {
    /// Adds the next second.
    ///
    /// # Errors
    /// A sentence about a histogram that cannot be read.
    pub fn add(&mut self, second: &SecondFigures) -> Result<(), String> {
        add_to(&mut self.all, second)?;
        if self.points.len() == HISTORY_S {
            self.points.pop_front();
        }
        let p99_us = second.response_p99_us.unwrap_or(second.response_max_us);
        self.points.push_back(LivePoint { calls: second.calls, p99_us });
        self.last = Some(second.clone());
        self.seconds = self.seconds.saturating_add(1);
        Ok(())
    }

    /// The second that came last.
    pub const fn last(&self) -> Option<&SecondFigures> {
        self.last.as_ref()
    }

    /// Service and response times of the latest second; empty if it cannot be read.
    pub fn last_times(&self) -> [Times; 2] {
        let times = |text: &String| {
            decode(text).map(|histogram: Histogram<u64>| Times::new(&histogram)).unwrap_or_default()
        };
        let last = self.last.as_ref();
        [
            last.map(|second| times(&second.service)).unwrap_or_default(),
            last.map(|second| times(&second.response)).unwrap_or_default(),
        ]
    }

    /// Service and response times of all seconds.
    pub fn all_times(&self) -> [Times; 2] {
        [&self.all.service, &self.all.response].map(Times::new)
    }

    /// The last [`HISTORY_S`] seconds, the oldest first.
    pub fn points(&self) -> impl ExactSizeIterator<Item = &LivePoint> {
        self.points.iter()
    }

    /// Seconds that were added.
    pub const fn seconds(&self) -> u64 {
        self.seconds
    }

    /// Replies, and calls that failed, of all seconds.
    pub const fn calls(&self) -> (u64, u64) {
        (self.all.calls, self.all.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(number: u64, calls: u64) -> SecondFigures {
        let mut record = CallRecord::default();
        for call in 1..=calls {
            record.service.record(call * 1_000).unwrap();
            record.response.record(call * 2_000).unwrap();
        }
        record.calls = calls;
        SecondFigures::new(number, &record, None)
    }

    #[test]
    fn the_sum_has_every_call_and_the_last_second_stands_alone() {
        let mut run = LiveRun::default();
        assert_eq!((run.last_times(), run.all_times()[0].samples), (Default::default(), 0));
        for number in 0..3 {
            run.add(&second(number, 1_000 * (number + 1))).unwrap();
        }
        assert_eq!((run.seconds(), run.calls()), (3, (6_000, 0)));
        assert_eq!(run.last_times().map(|times| times.samples), [3_000, 3_000]);
        let all = run.all_times();
        assert_eq!(all.each_ref().map(|times| times.samples), [6_000, 6_000]);
        assert!((all[1].max_us / (2.0 * all[0].max_us) - 1.0).abs() < 0.01, "{all:?}");
        let calls: Vec<_> = run.points().map(|point| point.calls).collect();
        assert_eq!(calls, [1_000, 2_000, 3_000]);
    }

    #[test]
    fn the_history_is_bounded_and_has_the_latest_seconds() {
        let mut run = LiveRun::default();
        let count = HISTORY_S as u64 + 20;
        for number in 0..count {
            run.add(&SecondFigures { calls: number, ..second(number, 0) }).unwrap();
        }
        assert_eq!((run.points().len(), run.seconds()), (HISTORY_S, count));
        assert_eq!(run.points().next().unwrap().calls, 20);
    }

    #[test]
    fn a_histogram_that_cannot_be_read_is_said() {
        let broken = SecondFigures { service: "!".to_owned(), ..second(0, 10) };
        assert!(LiveRun::default().add(&broken).is_err());
    }
}
