//! Outages: connections that were lost and made again, the time without an answer, and the replies
//! over time.

use super::Generator;
use stag_verbs::Time;

/// Outages that are recorded; more are counted in the last one.
const OUTAGES_MAX: usize = 256;

/// Nanoseconds of a step of [`ReplySeries`], at first.
const STEP: u64 = 10_000_000;
/// Steps of it: five minutes, then more seconds in fewer of them.
const STEPS: usize = 1 << 15;

/// Replies of calls that count over time, in steps of equal length. Its memory is allocated once:
/// when a run outlasts it, steps are merged in pairs.
#[derive(Clone, Debug)]
pub struct ReplySeries {
    step: u64,
    counts: Box<[u32]>,
}

impl ReplySeries {
    pub(crate) fn new() -> Self {
        Self { step: STEP, counts: vec![0; STEPS].into_boxed_slice() }
    }

    /// Adds `count` replies, `at` nanoseconds after measuring began.
    pub(crate) fn note(&mut self, at: u64, count: u64) {
        let last = self.counts.len().saturating_sub(1) as u64;
        while at / self.step > last {
            self.join_pairs();
        }
        let place = usize::try_from(at / self.step).unwrap_or(usize::MAX);
        if let Some(sum) = self.counts.get_mut(place) {
            *sum = sum.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        }
    }

    #[cold]
    fn join_pairs(&mut self) {
        for place in 0..self.counts.len() {
            let pair = self.counts.iter().skip(place * 2).take(2);
            let sum = pair.fold(0_u32, |sum, count| sum.saturating_add(*count));
            if let Some(count) = self.counts.get_mut(place) {
                *count = sum;
            }
        }
        self.step = self.step.saturating_mul(2);
    }

    /// Nanoseconds of a step: 10 ms, or that doubled several times.
    pub const fn step(&self) -> u64 {
        self.step
    }

    /// Replies from one time to a later one, in nanoseconds since measuring began and whole steps.
    pub fn between(&self, from: u64, to: u64) -> u64 {
        let place = |at: u64| usize::try_from(at / self.step).unwrap_or(usize::MAX);
        let counts = self.counts.iter().take(place(to)).skip(place(from));
        counts.fold(0, |sum, count| sum.saturating_add((*count).into()))
    }
}

/// Losses of connections, when the run goes on after them.
#[derive(Debug, Default)]
pub(super) struct CallOutages {
    /// Connections are made again: a loss does not end the run.
    pub(super) is_wanted: bool,
    open: Option<Time>,
    all: Vec<(Time, Time)>,
    replies: Option<ReplySeries>,
}

impl CallOutages {
    pub(super) fn new(is_wanted: bool) -> Self {
        let all = Vec::with_capacity(if is_wanted { OUTAGES_MAX } else { 0 });
        Self { is_wanted, open: None, all, replies: is_wanted.then(ReplySeries::new) }
    }

    /// Handles the loss of a connection, or a failed attempt to make it again.
    pub(super) fn lose(&mut self, now: Time) {
        self.open.get_or_insert(now);
    }

    /// `count` calls were answered, `at` nanoseconds after measuring began: an outage, if there is
    /// one, is over.
    #[inline]
    pub(super) fn answer(&mut self, now: Time, at: u64, count: u64) {
        if self.open.is_some() {
            self.close(now);
        }
        if let Some(replies) = &mut self.replies {
            replies.note(at, count);
        }
    }

    /// The run is over.
    #[cold]
    pub(super) fn close(&mut self, now: Time) {
        let Some(from) = self.open.take() else { return };
        if self.all.len() < OUTAGES_MAX {
            self.all.push((from, now));
        } else if let Some((_, until)) = self.all.last_mut() {
            *until = now;
        }
    }

    /// Returns the start and the end of each.
    fn all(&self) -> &[(Time, Time)] {
        &self.all
    }
}

impl Generator {
    /// Makes lost connections again, instead of ending the run.
    pub(crate) fn keep_on(&mut self) {
        self.outages = CallOutages::new(true);
    }

    /// Start and end of each time without an answer because a connection was lost.
    pub fn outages(&self) -> &[(Time, Time)] {
        self.outages.all()
    }

    /// Replies over time; none of a run that ends with a connection.
    pub(crate) const fn replies(&self) -> Option<&ReplySeries> {
        self.outages.replies.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_lasts_from_the_first_loss_to_the_next_answer() {
        let mut outages = CallOutages::new(true);
        outages.answer(Time(5), 5, 1);
        outages.lose(Time(10));
        outages.lose(Time(20));
        outages.answer(Time(35), 35, 1);
        outages.answer(Time(40), 40, 1);
        outages.lose(Time(50));
        outages.close(Time(60));
        assert_eq!(outages.all(), [(Time(10), Time(35)), (Time(50), Time(60))]);
        for at in 0..1_000 {
            outages.lose(Time(100 + at * 2));
            outages.answer(Time(101 + at * 2), 0, 1);
        }
        assert_eq!(outages.all().len(), OUTAGES_MAX);
        assert_eq!(outages.all().last().unwrap().1, Time(2_099));
    }

    #[test]
    fn replies_over_time_keep_their_sum_when_a_run_outlasts_the_series() {
        let mut series = ReplySeries::new();
        let end = STEP * STEPS as u64;
        for (at, count) in [(0, 1), (STEP - 1, 2), (STEP, 4), (end - 1, 8)] {
            series.note(at, count);
        }
        assert_eq!((series.step(), series.between(0, STEP)), (STEP, 3));
        assert_eq!((series.between(STEP, 2 * STEP), series.between(0, end)), (4, 15));
        series.note(end, 16);
        assert_eq!((series.step(), series.between(0, 2 * STEP)), (2 * STEP, 7));
        assert_eq!((series.between(0, end), series.between(0, 2 * end)), (15, 31));
        series.note(u64::MAX, u64::MAX);
        assert_eq!(series.between(0, u64::MAX - series.step()), 31);
    }
}
