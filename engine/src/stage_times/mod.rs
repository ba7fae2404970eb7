//! The time of a call by stages: recv, parse, pull, app, emit, push, send.
//!
//! One call in a configured number ([`Sampling`]) is watched on its path through the shard that
//! answers it. The time between two of its stamps belongs to one stage, so the stages of a call add
//! up to its time in the shard. Only watched calls read the clock. Apps find all of this in
//! [`stages`](crate::stages).

mod calls;
mod procedures;
mod watch;

pub use calls::{CallName, WatchedCall};
pub use procedures::{ProcedureTimes, Procedures, TimeBuckets, WatchedProgram};
pub(crate) use watch::Watch;

use crate::clock::Clock;
use hdrhistogram::Histogram;

/// A section of a call's path through the shard that answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// From the beginning of the pass that found the message, or the end of the record over TCP, to
    /// the start of its handling. A header without chunks is parsed by the look itself, which is
    /// part of this stage.
    Recv,
    /// The transport header and the header of the call were validated.
    Parse,
    /// Its Read chunks were pulled; waiting for memory and for room in the send queue included.
    Pull,
    /// The app answered; a backend that answered later is included.
    App,
    /// The reply's form was planned, and its transport header built.
    Emit,
    /// The RDMA Writes of the reply were posted.
    Push,
    /// From its Send to the next doorbell, which is at the end of the pass or earlier; over TCP, to
    /// the write to the socket. Waiting for room in the send queue is included.
    Send,
}

impl Stage {
    /// All stages, in the order of a call's path.
    pub const ALL: [Self; 7] =
        [Self::Recv, Self::Parse, Self::Pull, Self::App, Self::Emit, Self::Push, Self::Send];

    /// The name of the stage.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Recv => "recv",
            Self::Parse => "parse",
            Self::Pull => "pull",
            Self::App => "app",
            Self::Emit => "emit",
            Self::Push => "push",
            Self::Send => "send",
        }
    }
}

/// Selection of calls to trace, and the clock for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampling {
    /// One call in `every` is watched; 0: none.
    pub every: u32,
    /// The clock of the times that the shard's passes get. None with virtual time, which does not
    /// advance during a pass.
    pub clock: Option<Clock>,
    /// The shard's number in its process, which distinguishes the answers of several shards.
    pub shard: u32,
    /// Programs whose procedures are counted separately; all others are counted together.
    pub programs: &'static [WatchedProgram],
}

impl Sampling {
    /// The default of a server: one call in 64 is watched.
    pub const EVERY: u32 = 64;
}

/// The longest time that is distinguished from longer ones, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;
/// Significant digits of a time: a histogram takes 30 KiB.
const DIGITS: u8 = 2;

/// The times of watched calls, by stage.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stages {
    every: u32,
    shard: u32,
    /// None if nothing is watched.
    times: Option<Box<[Histogram<u64>; Stage::ALL.len()]>>,
}

impl Stages {
    /// Empty histograms; none when `every` is 0.
    pub(crate) fn new(every: u32, shard: u32) -> Self {
        let empty = |_| {
            Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("the bounds and digits are sound")
        };
        Self { every, shard, times: (every > 0).then(|| Box::new(Stage::ALL.map(empty))) }
    }

    /// One call in this number is watched; 0: none.
    pub const fn every(&self) -> u32 {
        self.every
    }

    /// The number of the shard.
    pub const fn shard(&self) -> u32 {
        self.shard
    }

    /// Number of calls that were watched from their message to their reply.
    pub fn calls(&self) -> u64 {
        self.times(Stage::Recv).map_or(0, Histogram::len)
    }

    /// The times in `stage` of all watched calls that went through it, in nanoseconds. None if
    /// nothing is watched.
    pub fn times(&self, stage: Stage) -> Option<&Histogram<u64>> {
        self.times.as_ref()?.get(stage as usize)
    }

    /// Each stage with its times, in the order of a call's path; none if nothing is watched.
    pub fn iter(&self) -> impl Iterator<Item = (Stage, &Histogram<u64>)> {
        Stage::ALL.into_iter().filter_map(|stage| Some((stage, self.times(stage)?)))
    }

    pub(crate) fn record(&mut self, stage: Stage, nanos: u64, calls: u64) {
        if let Some(times) = self.times.as_mut().and_then(|times| times.get_mut(stage as usize)) {
            times.saturating_record_n(nanos, calls);
        }
    }

    /// Adds the counts of another shard.
    pub fn add(&mut self, other: &Self) {
        if self.times.is_none() {
            return *self = other.clone();
        }
        for (stage, more) in other.iter() {
            if let Some(times) = self.times.as_mut().and_then(|times| times.get_mut(stage as usize))
            {
                times.add(more).expect("all histograms have the same bounds");
            }
        }
    }

    /// The times since `earlier`. None if that is from another shard, or is not earlier.
    pub fn since(mut self, earlier: &Self) -> Option<Self> {
        if (self.every, self.shard) != (earlier.every, earlier.shard) {
            return None;
        }
        for (stage, before) in earlier.iter() {
            self.times.as_mut()?.get_mut(stage as usize)?.subtract(before).ok()?;
        }
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: &[(Stage, u64)]) -> Stages {
        let mut stages = Stages::new(64, 3);
        times.iter().for_each(|(stage, nanos)| stages.record(*stage, *nanos, 1));
        stages
    }

    #[test]
    fn a_stage_stands_at_its_place() {
        for (place, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, place);
            let stages = of(&[(stage, 5)]);
            let filled: Vec<_> = stages.iter().filter(|(_, times)| !times.is_empty()).collect();
            assert!(filled.len() == 1 && filled[0].0 == stage);
        }
    }

    #[test]
    fn shards_add_up() {
        let mut sum = Stages::default();
        sum.add(&Stages::default());
        assert_eq!((sum.calls(), sum.iter().count()), (0, 0));
        sum.add(&of(&[(Stage::Recv, 100), (Stage::App, 5_000)]));
        sum.add(&of(&[(Stage::Recv, 100), (Stage::Pull, 7_000)]));
        assert_eq!((sum.calls(), sum.every()), (2, 64));
        assert_eq!(sum.times(Stage::App).unwrap().len(), 1);
        assert_eq!(sum.times(Stage::Pull).unwrap().len(), 1);
        sum.add(&Stages::default());
        assert_eq!(sum.calls(), 2);
    }

    #[test]
    fn what_was_counted_before_is_taken_away() {
        let before = of(&[(Stage::Recv, 100), (Stage::App, 900_000)]);
        let mut after = before.clone();
        after.record(Stage::Recv, 200, 1);
        after.record(Stage::App, 5_000, 1);
        let between = after.clone().since(&before).unwrap();
        assert_eq!(between.calls(), 1);
        let app = between.times(Stage::App).unwrap();
        assert!(app.len() == 1 && app.max() < 5_100, "{}", app.max());
        assert!(before.clone().since(&after).is_none(), "it is not earlier");
        assert!(after.since(&Stages::new(64, 4)).is_none(), "it is of another shard");
    }

    #[test]
    fn nobody_is_watched_without_histograms() {
        let mut stages = Stages::new(0, 0);
        stages.record(Stage::App, 5, 1);
        assert!(stages.times(Stage::App).is_none());
    }
}
