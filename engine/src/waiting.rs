//! The time that a shard polls without work before it sleeps (DESIGN D10).

use stag_verbs::Time;
use std::{fmt, sync::Arc, time::Duration};

/// Time for which a core polls without work before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spin {
    /// Always this long.
    For(Duration),
    /// Adapted to the gaps between arrivals: at most [`LEARNED_MAX`](Self::LEARNED_MAX), and hardly
    /// at all if arrivals are far apart.
    Learned,
}

impl Spin {
    /// Longest adapted time.
    pub const LEARNED_MAX: Duration = Duration::from_micros(1 << (GAPS - 2));
}

/// Is notified when a shard has slept for [`REST_AFTER`], and when it works again. Called on the
/// shard's thread.
pub trait RestListener: fmt::Debug + Send + Sync {
    /// The shard works: at its start, and after a rest.
    fn on_work(&self);

    /// The shard rests: after a sleep of [`REST_AFTER`], and at its end.
    fn on_rest(&self);
}

/// Sleep after which a shard rests.
pub const REST_AFTER: Duration = Duration::from_millis(50);

/// Classes of gaps: class `n` ends at 2^n microseconds, the last one is unbounded.
const GAPS: usize = 14;
/// Cost of one wake-up in microseconds of polling: the system's own time, and the delay of the call
/// that ends a sleep. Polling for longer costs more than the sleep would have.
const WAKE_UP: u64 = 500;
/// Gaps after which the time is adapted again.
const LESSON: u32 = 16;
/// Gaps after which older ones count half.
const MEMORY: u32 = 256;
/// Time until the first adaptation, as long as the usual fixed one.
const UNLEARNED: Duration = Duration::from_micros(100);
/// Class of the shortest adapted time, 4 µs: shorter ones end before a pass does.
const SHORTEST: usize = 2;

/// Decides when a shard without work sleeps.
#[derive(Debug)]
pub(crate) struct Patience {
    spin: Duration,
    learned: Option<Learned>,
    /// Start of polling without work, or end of a sleep.
    since: Time,
    /// The latest sleep ended by timeout, which is no reason to poll.
    timed_out: bool,
}

impl Patience {
    pub(crate) fn new(spin: Spin, now: Time) -> Self {
        let (spin, learned) = match spin {
            Spin::For(spin) => (spin, None),
            Spin::Learned => (UNLEARNED, Some(Learned::new(now))),
        };
        Self { spin, learned, since: now, timed_out: false }
    }

    /// Records a pass at `now` that found work.
    #[inline]
    pub(crate) fn note_work(&mut self, now: Time) {
        if let Some(learned) = &mut self.learned
            && let Some(spin) = learned.note_work(now)
        {
            self.spin = spin;
        }
        self.since = now;
        self.timed_out = false;
    }

    /// Records a pass at `now` that found none. Returns true if it is time to sleep.
    #[inline]
    pub(crate) fn is_over(&mut self, now: Time) -> bool {
        if let Some(learned) = &mut self.learned {
            learned.is_idle = true;
        }
        self.timed_out || now.since(self.since) >= self.spin
    }

    /// Records the end of a sleep at `now`.
    pub(crate) const fn note_woken(&mut self, now: Time, timed_out: bool) {
        self.since = now;
        self.timed_out = timed_out;
    }
}

/// The state that was last reported to a shard's listener.
#[derive(Debug)]
pub(crate) struct Rest {
    listener: Option<Arc<dyn RestListener>>,
    is_resting: bool,
}

impl Rest {
    /// Starts in the working state.
    pub(crate) fn new(listener: Option<Arc<dyn RestListener>>) -> Self {
        listener.iter().for_each(|listener| listener.on_work());
        Self { listener, is_resting: false }
    }

    /// The length of a sleep after which rest is reported; none without a listener, and while
    /// resting.
    pub(crate) fn first_sleep(&self) -> Option<Duration> {
        self.listener.as_ref().filter(|_| !self.is_resting).map(|_| REST_AFTER)
    }

    /// Reports that the shard rests.
    pub(crate) fn rest(&mut self) {
        if !std::mem::replace(&mut self.is_resting, true) {
            self.listener.iter().for_each(|listener| listener.on_rest());
        }
    }

    /// Reports that the shard works.
    #[inline]
    pub(crate) fn work(&mut self) {
        if std::mem::take(&mut self.is_resting) {
            self.listener.iter().for_each(|listener| listener.on_work());
        }
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        self.rest();
    }
}

/// Statistics of the gaps between arrivals.
#[derive(Debug)]
struct Learned {
    /// The time of the latest work.
    worked: Time,
    /// A pass after it found nothing.
    is_idle: bool,
    gaps: [u32; GAPS],
    /// Gaps in the classes, and since the latest adaptation.
    total: u32,
    fresh: u32,
}

impl Learned {
    const fn new(now: Time) -> Self {
        Self { worked: now, is_idle: false, gaps: [0; GAPS], total: 0, fresh: 0 }
    }

    /// Records work at `now`; returns the time to poll if it has changed.
    #[inline]
    fn note_work(&mut self, now: Time) -> Option<Duration> {
        let gap = now.since(self.worked);
        self.worked = now;
        // Consecutive passes with work have no gap between them.
        std::mem::take(&mut self.is_idle).then(|| self.note_gap(gap)).flatten()
    }

    fn note_gap(&mut self, gap: Duration) -> Option<Duration> {
        let class = class_of(gap);
        if let Some(count) = self.gaps.get_mut(class) {
            *count += 1;
        }
        self.total += 1;
        self.fresh += 1;
        if self.fresh < LESSON {
            return None;
        }
        self.fresh = 0;
        let best = Duration::from_micros(1 << self.best());
        if self.total >= MEMORY {
            self.gaps.iter_mut().for_each(|count| *count /= 2);
            self.total = self.gaps.iter().sum();
        }
        Some(best)
    }

    /// The class whose end is the cheapest limit: polling in all gaps, plus a wake-up for each
    /// longer gap.
    fn best(&self) -> usize {
        (SHORTEST..GAPS - 1).min_by_key(|class| self.cost(*class)).unwrap_or(SHORTEST)
    }

    /// The cost, in quarters of microseconds, of polling to the end of class `until`.
    fn cost(&self, until: usize) -> u64 {
        let of = |(class, count): (usize, &u32)| {
            // Gaps of a class are in its upper half, so that three quarters of its end represent
            // them.
            let each = if class <= until { 3 << class } else { 4 * ((1 << until) + WAKE_UP) };
            each * u64::from(*count)
        };
        self.gaps.iter().enumerate().map(of).sum()
    }
}

/// The class of a gap.
fn class_of(gap: Duration) -> usize {
    let micros = gap.as_nanos().div_ceil(1_000).max(1);
    // The smallest power of two that is not below.
    let class = (micros - 1).checked_ilog2().map_or(0, |below| below as usize + 1);
    class.min(GAPS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: u64 = 1_000;

    #[derive(Debug, Default)]
    struct Heard(std::sync::Mutex<String>);

    impl RestListener for Heard {
        fn on_work(&self) {
            self.0.lock().unwrap().push('w');
        }

        fn on_rest(&self) {
            self.0.lock().unwrap().push('r');
        }
    }

    #[test]
    fn each_change_is_told_once_and_a_shard_that_ends_rests() {
        let heard = Arc::new(Heard::default());
        let mut rest = Rest::new(Some(Arc::clone(&heard) as Arc<dyn RestListener>));
        assert_eq!(rest.first_sleep(), Some(REST_AFTER));
        rest.work();
        (0..2).for_each(|_| rest.rest());
        assert_eq!(rest.first_sleep(), None);
        (0..2).for_each(|_| rest.work());
        drop(rest);
        assert_eq!(*heard.0.lock().unwrap(), "wrwr");
        assert_eq!(Rest::new(None).first_sleep(), None);
    }

    /// Simulates work at the ends of these gaps, in microseconds, with a pass that finds nothing in
    /// each.
    fn learn(patience: &mut Patience, gaps: impl IntoIterator<Item = u64>) {
        for gap in gaps {
            let now = Time(patience.since.0 + gap * MICROSECOND);
            patience.is_over(Time(now.0 - 1));
            patience.note_work(now);
        }
    }

    /// Gaps of an open loop with this mean, from a fixed seed.
    fn poisson(mean: f64, count: usize) -> Vec<u64> {
        let mut seed = 1_u64;
        let gap = |_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let uniform = ((seed >> 11) + 1) as f64 / (1_u64 << 53) as f64;
            (-mean * uniform.ln()).ceil() as u64
        };
        (0..count).map(gap).collect()
    }

    #[test]
    fn a_gap_is_in_the_class_that_ends_behind_it() {
        for (micros, class) in
            [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (4_096, 12), (4_097, 13)]
        {
            assert_eq!(class_of(Duration::from_micros(micros)), class, "{micros}");
        }
        assert_eq!(class_of(Duration::from_nanos(1_001)), 1);
        assert_eq!(class_of(Duration::MAX), GAPS - 1);
        assert_eq!(Spin::LEARNED_MAX, Duration::from_micros(4_096));
    }

    #[test]
    fn a_tenth_of_a_cores_load_is_polled_for_so_that_one_call_in_a_thousand_meets_a_sleep() {
        // Calls of 5 µs, one in 50 µs.
        let mut patience = Patience::new(Spin::Learned, Time(0));
        let gaps = poisson(50.0, 4_000);
        learn(&mut patience, gaps.iter().copied());
        let late = gaps.iter().filter(|gap| Duration::from_micros(**gap) > patience.spin).count();
        assert!(late <= gaps.len() / 1_000, "{late} of {} meet {patience:?}", gaps.len());
    }

    #[test]
    fn arrivals_far_apart_are_not_polled_for() {
        for mean in [5_000.0, 60_000.0, 1e6] {
            let mut patience = Patience::new(Spin::Learned, Time(0));
            learn(&mut patience, poisson(mean, 500));
            // Below a hundredth of a core.
            assert!(patience.spin.as_micros() as f64 <= mean / 100.0, "{mean}: {patience:?}");
        }
    }

    #[test]
    fn of_bursts_the_gaps_inside_are_polled_for_and_those_between_are_not() {
        let mut patience = Patience::new(Spin::Learned, Time(0));
        learn(&mut patience, (0..1_000).map(|call| if call % 50 == 0 { 100_000 } else { 20 }));
        assert!(patience.spin.as_micros() >= 20 && patience.spin.as_micros() <= 64, "{patience:?}");
    }

    #[test]
    fn what_changes_is_learned_within_a_few_hundred_gaps() {
        let mut patience = Patience::new(Spin::Learned, Time(0));
        learn(&mut patience, poisson(50.0, 1_000));
        let busy = patience.spin;
        learn(&mut patience, poisson(60_000.0, 600));
        assert!(busy.as_micros() >= 256 && patience.spin.as_micros() <= 64, "{patience:?}");
        learn(&mut patience, poisson(50.0, 600));
        assert!(patience.spin >= busy / 2, "{patience:?}");
    }

    #[test]
    fn passes_that_follow_each_other_with_work_teach_nothing() {
        let mut patience = Patience::new(Spin::Learned, Time(0));
        (1..10_000).for_each(|pass| patience.note_work(Time(pass * MICROSECOND)));
        assert_eq!(patience.spin, UNLEARNED);
    }

    #[test]
    fn a_sleep_that_timed_out_is_followed_by_one_pass_and_another_by_polling() {
        let at = |micros: u64| Time(micros * MICROSECOND);
        for (timed_out, sleeps) in [(true, true), (false, false)] {
            let mut patience = Patience::new(Spin::For(Duration::from_micros(100)), at(0));
            assert!(!patience.is_over(at(99)) && patience.is_over(at(100)));
            patience.note_woken(at(1_000), timed_out);
            assert_eq!(patience.is_over(at(1_001)), sleeps);
            patience.note_work(at(1_002));
            assert!(!patience.is_over(at(1_003)), "work is polled for again");
        }
    }
}
