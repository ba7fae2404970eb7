//! Unsent calls: due calls of an open loop that were never made. They are counted, and their
//! waiting time is among the response times.
//!
//! Without them a server that dies looks as fast as it was while it lived (coordinated omission).

use crate::{
    latency::{CallRecord, nanos},
    schedule::{RunSpan, Schedule},
};

/// Calls that are recorded one by one. The number and the times of the rest follow from the rate.
const SINGLY_MAX: u32 = 1 << 20;
/// Groups, each with one time, of the calls that are not recorded one by one.
const GROUPS: u64 = 1_000;

/// Counts the calls of `schedule` that are meant for `span`, `calls` at most, and records the time
/// that each waits until the end of the span: a lower bound.
pub(super) fn leave(
    schedule: &mut Schedule,
    span: RunSpan,
    calls: u64,
    record: &mut CallRecord,
) -> u64 {
    // Without a time, a run ends with its last call.
    let end = span.until.min(schedule.after(calls));
    let (mut count, mut looked_at) = (0, 0);
    while count < calls && looked_at < SINGLY_MAX && schedule.next() < span.until {
        let due = schedule.next();
        if due >= span.from {
            count += 1;
            record.response.saturating_record(nanos(end.since(due)));
        }
        schedule.advance();
        looked_at += 1;
    }
    if looked_at < SINGLY_MAX {
        return count;
    }
    let first = schedule.next().max(span.from);
    let rest = if end < span.until {
        calls - count
    } else {
        schedule.expected(first, end).min(calls - count)
    };
    for group in 0..GROUPS {
        let part =
            |groups: u64| (u128::from(rest) * u128::from(groups) / u128::from(GROUPS)) as u64;
        // The middle of the group's calls.
        let waits = nanos(end.since(first)) / (2 * GROUPS) * (2 * (GROUPS - group) - 1);
        record.response.saturating_record_n(waits, part(group + 1) - part(group));
    }
    count + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Arrivals, SchedulePart};
    use stag_verbs::Time;
    use std::time::Duration;

    fn left(rate: f64, arrivals: Arrivals, seconds: u64, calls: Option<u64>) -> (u64, CallRecord) {
        let mut schedule = Schedule::new(Time(0), rate, arrivals, 1, SchedulePart::ALL);
        let until = Time(0) + Duration::from_secs(seconds);
        let span = RunSpan {
            from: Time(0),
            until: if calls.is_some() { Time(u64::MAX) } else { until },
            calls,
        };
        let mut record = CallRecord::default();
        (leave(&mut schedule, span, calls.unwrap_or(u64::MAX), &mut record), record)
    }

    #[test]
    fn what_is_due_until_the_end_is_counted_with_what_it_waits() {
        let (count, record) = left(400.0, Arrivals::Uniform, 2, None);
        assert_eq!((count, record.response.len()), (800, 800));
        let middle = record.response.value_at_quantile(0.5) as f64 / 1e9;
        assert!((middle - 1.0).abs() < 0.01, "{middle}");
        let (count, record) = left(400.0, Arrivals::Uniform, 0, Some(800));
        assert_eq!((count, record.response.len()), (800, 800));
    }

    #[test]
    fn more_calls_than_can_be_looked_at_are_counted_by_the_rate() {
        for arrivals in [Arrivals::Uniform, Arrivals::Poisson] {
            let (count, record) = left(1e8, arrivals, 40, None);
            assert!((count as f64 / 4e9 - 1.0).abs() < 0.001, "{count}");
            assert_eq!(record.response.len(), count);
            let middle = record.response.value_at_quantile(0.5) as f64 / 1e9;
            assert!((middle - 20.0).abs() < 0.1, "{middle}");
        }
        let (count, _) = left(1e8, Arrivals::Uniform, 0, Some(4_000_000_000));
        assert_eq!(count, 4_000_000_000);
    }
}
