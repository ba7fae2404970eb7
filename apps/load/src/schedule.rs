//! Schedule of the calls of an open loop, independent of the server's speed.

use stag_verbs::Time;
use std::time::Duration;

/// Distribution of the times between calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Arrivals {
    /// All the same.
    #[default]
    Uniform,
    /// Like independent callers: exponential, from the seed.
    Poisson,
    /// This many at once, and then none for as long as they would have taken.
    Burst(u32),
}

/// Calls of a burst at most.
const BURST_MAX: u32 = 1 << 20;

impl std::str::FromStr for Arrivals {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let burst =
            |count: &str| count.parse().ok().filter(|count| (1..=BURST_MAX).contains(count));
        match text {
            "uniform" => Ok(Self::Uniform),
            "poisson" => Ok(Self::Poisson),
            _ => text
                .strip_prefix("burst:")
                .and_then(burst)
                .map(Self::Burst)
                .ok_or("write uniform, poisson or burst:N, with 1 to 1048576 calls"),
        }
    }
}

impl TryFrom<String> for Arrivals {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Arrivals> for String {
    fn from(arrivals: Arrivals) -> Self {
        arrivals.to_string()
    }
}

impl std::fmt::Display for Arrivals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Poisson => f.write_str("poisson"),
            Self::Burst(count) => write!(f, "burst:{count}"),
        }
    }
}

/// Rule for the times at which calls go out.
#[derive(Clone, Debug)]
pub enum Pace {
    /// Each when an earlier one is over.
    Closed,
    /// Each at its time, independent of earlier ones. A call that finds no place waits for one, and
    /// its waiting time counts.
    Open(Schedule),
}

/// Time from which calls count, and time until which they are made.
#[derive(Clone, Copy, Debug)]
pub struct RunSpan {
    /// The first call that counts is meant for this time, or a later one. Earlier ones are made
    /// alike.
    pub from: Time,
    /// None is meant for this time or a later one.
    pub until: Time,
    /// Calls that count, at most.
    pub calls: Option<u64>,
}

/// Random numbers that a seed decides (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 when that is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { ((self.word() as u128 * bound as u128) >> 64) as u64 }
    }

    /// Above 0, at most 1.
    fn unit(&mut self) -> f64 {
        ((self.word() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
    }
}

/// Intended send times. They depend only on the parameters of the schedule: a late call does not
/// move the next one.
#[derive(Clone, Debug)]
pub struct Schedule {
    start: Time,
    /// Nanoseconds between calls, on average.
    mean: f64,
    /// Nanoseconds from `start` to the next call.
    at: f64,
    /// Calls taken, for a uniform schedule, which multiplies instead of accumulating rounding
    /// errors.
    taken: u64,
    /// Fraction of `mean` before the first call of a uniform schedule.
    phase: f64,
    arrivals: Arrivals,
    random: Random,
}

/// The part of one generator in a schedule that several share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulePart {
    /// Its number, from 0 on.
    pub part: usize,
    /// The number of generators.
    pub parts: usize,
}

impl SchedulePart {
    /// All of a schedule, for a single generator.
    pub const ALL: Self = Self { part: 0, parts: 1 };
}

impl Schedule {
    /// `rate` calls per second from `start` on, by one of `parts` generators that together make
    /// `rate * parts`: `part` says which, so that uniform ones alternate.
    ///
    /// # Panics
    /// When the rate is not above 0.
    pub fn new(start: Time, rate: f64, arrivals: Arrivals, seed: u64, part: SchedulePart) -> Self {
        let SchedulePart { part, parts } = part;
        assert!(rate > 0.0, "a rate is above 0");
        let phase = part as f64 / parts.max(1) as f64;
        let random = Random::new(seed ^ (part as u64).wrapping_mul(0xa076_1d64_78bd_642f));
        let mut schedule =
            Self { start, mean: 1e9 / rate, at: 0.0, taken: 0, phase, arrivals, random };
        schedule.at = schedule.first();
        schedule
    }

    fn first(&mut self) -> f64 {
        match self.arrivals {
            Arrivals::Uniform | Arrivals::Burst(_) => self.phase * self.mean,
            Arrivals::Poisson => self.gap(),
        }
    }

    fn gap(&mut self) -> f64 {
        -self.random.unit().ln() * self.mean
    }

    /// Returns the time at which the next call is meant to go out.
    pub fn next(&self) -> Time {
        self.start + Duration::from_nanos(self.at as u64)
    }

    /// About when the call that is `calls` after the next one is meant to go out.
    pub(super) fn after(&self, calls: u64) -> Time {
        Time(self.next().0.saturating_add((calls as f64 * self.mean) as u64))
    }

    /// Number of calls due from `first` to `end`, by the rate.
    pub(super) fn expected(&self, first: Time, end: Time) -> u64 {
        (end.since(first).as_nanos() as f64 / self.mean).round() as u64
    }

    /// Advances to the call after the next one.
    pub fn advance(&mut self) {
        self.taken += 1;
        self.at = match self.arrivals {
            Arrivals::Uniform => (self.taken as f64 + self.phase) * self.mean,
            Arrivals::Burst(count) => {
                let count = u64::from(count.max(1));
                ((self.taken / count * count) as f64 + self.phase) * self.mean
            }
            Arrivals::Poisson => self.at + self.gap(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(schedule: &mut Schedule, count: usize) -> Vec<u64> {
        let mut times = Vec::new();
        for _ in 0..count {
            times.push(schedule.next().0);
            schedule.advance();
        }
        times
    }

    #[test]
    fn uniform_calls_are_equally_far_apart_and_do_not_drift() {
        let mut schedule = Schedule::new(Time(500), 3.0, Arrivals::Uniform, 1, SchedulePart::ALL);
        let times = times(&mut schedule, 3_000_001);
        assert_eq!(&times[..3], &[500, 500 + 333_333_333, 500 + 666_666_666]);
        assert_eq!(times[3_000_000], 500 + 1_000_000_000_000_000);
    }

    #[test]
    fn uniform_parts_alternate() {
        let mut parts: Vec<_> = (0..4)
            .map(|part| {
                Schedule::new(Time(0), 250.0, Arrivals::Uniform, 1, SchedulePart { part, parts: 4 })
            })
            .collect();
        let mut all: Vec<_> = parts.iter_mut().flat_map(|part| times(part, 100)).collect();
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[1] - pair[0] == 1_000_000));
    }

    #[test]
    fn bursts_come_together_and_keep_the_rate() {
        let mut schedule =
            Schedule::new(Time(500), 1_000.0, Arrivals::Burst(4), 1, SchedulePart::ALL);
        let times = times(&mut schedule, 4_000);
        assert_eq!(times[..5], [500, 500, 500, 500, 4_000_500]);
        assert!(times.chunks(4).all(|burst| burst.iter().all(|time| *time == burst[0])));
        assert_eq!(times[3_996], 500 + 3_996_000_000);
    }

    #[test]
    fn arrivals_are_written_as_they_are_read() {
        for arrivals in [Arrivals::Uniform, Arrivals::Poisson, Arrivals::Burst(16)] {
            assert_eq!(arrivals.to_string().parse(), Ok(arrivals));
            let text = serde_json::to_string(&arrivals).unwrap();
            assert_eq!(serde_json::from_str::<Arrivals>(&text).unwrap(), arrivals);
        }
        for wrong in ["", "burst", "burst:0", "burst:x", "burst:2000000", "Uniform"] {
            assert!(wrong.parse::<Arrivals>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn poisson_calls_have_the_rate_and_the_spread_of_an_exponential() {
        let mut schedule = Schedule::new(Time(0), 1_000.0, Arrivals::Poisson, 7, SchedulePart::ALL);
        let times = times(&mut schedule, 200_001);
        let gaps: Vec<_> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e6).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!(
            (mean - 1.0).abs() < 0.01 && (variance.sqrt() - 1.0).abs() < 0.02,
            "{mean} {variance}"
        );
        let short = gaps.iter().filter(|gap| **gap < std::f64::consts::LN_2).count() as f64;
        assert!((short / gaps.len() as f64 - 0.5).abs() < 0.01);
    }

    #[test]
    fn a_seed_decides_everything() {
        let of = |seed, part| {
            times(
                &mut Schedule::new(
                    Time(0),
                    9.0,
                    Arrivals::Poisson,
                    seed,
                    SchedulePart { part, parts: 2 },
                ),
                50,
            )
        };
        assert_eq!(of(1, 0), of(1, 0));
        assert_ne!(of(1, 0), of(2, 0));
        assert_ne!(of(1, 0), of(1, 1));
    }

    #[test]
    fn numbers_below_a_bound_reach_all_of_it() {
        let mut random = Random::new(3);
        let mut seen = [0; 10];
        (0..10_000).for_each(|_| seen[random.below(10) as usize] += 1);
        assert!(seen.iter().all(|count| (900..1_100).contains(count)), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }
}
