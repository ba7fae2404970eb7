//! Stage times: the time that calls spend in each stage, at the generator, and at the server if it
//! can be asked.

use crate::latency::{Times, histogram, nanos};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use stag_engine::{Sampling, Time};
use std::{collections::BTreeSet, time::Duration};

/// Stage times of the calls of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stages {
    /// The generator sampled one call in this number.
    pub every: u32,
    /// At the generator, in the order of a call's way: queue, emit, send, reply, verify. They add
    /// up to the response time.
    pub client: Vec<StageTimes>,
    /// At the server.
    pub server: Option<ServerStages>,
    /// Why the server's are not known.
    #[serde(default)]
    pub unasked: Option<String>,
}

/// Stage times that servers reported for the duration of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerStages {
    /// The server sampled one call in this number.
    pub every: u32,
    /// Shards that the run's connections reached; their times are merged.
    pub shards: usize,
    /// In the order of a call's way: recv, parse, pull, app, emit, push, send. A stage has a sample
    /// of each watched call that went through it: pull of those with Read chunks, push of those
    /// whose reply was pushed.
    pub stages: Vec<StageTimes>,
}

/// One stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageTimes {
    /// Its name.
    pub stage: String,
    /// Times that calls spent in the stage.
    #[serde(flatten)]
    pub times: Times,
}

impl StageTimes {
    /// Summarizes a histogram of the nanoseconds spent in a stage.
    pub fn new(stage: &str, times: &Histogram<u64>) -> Self {
        Self { stage: stage.to_owned(), times: Times::new(times) }
    }
}

impl From<&stag_engine::Stages> for ServerStages {
    fn from(stages: &stag_engine::Stages) -> Self {
        let times = stages.iter().map(|(stage, times)| StageTimes::new(stage.name(), times));
        Self { every: stages.every(), shards: 1, stages: times.collect() }
    }
}

/// A part of a call's way at the generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// From the intended send time to when it was written: it waited for a place, or for its turn.
    Queue,
    /// It was written and posted, with all calls of its turn; windows were bound.
    Emit,
    /// Until the doorbell at the end of the turn.
    Send,
    /// Until its reply was looked at. Waiting for a credit is included.
    Reply,
    /// The reply was compared with what it should be.
    Verify,
}

impl Stage {
    const ALL: [Self; 5] = [Self::Queue, Self::Emit, Self::Send, Self::Reply, Self::Verify];

    const fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Emit => "emit",
            Self::Send => "send",
            Self::Reply => "reply",
            Self::Verify => "verify",
        }
    }
}

/// Time that watched calls spent in each stage at a generator.
#[derive(Clone, Debug)]
pub struct ClientStages([Histogram<u64>; Stage::ALL.len()]);

impl Default for ClientStages {
    fn default() -> Self {
        Self(Stage::ALL.map(|_| histogram()))
    }
}

impl ClientStages {
    /// Adds what another generator measured.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(&other.0) {
            sum.add(more).expect("all histograms have the same bounds");
        }
    }

    /// In the order of a call's way.
    pub fn times(&self) -> Vec<StageTimes> {
        let times = Stage::ALL.into_iter().zip(&self.0);
        times.map(|(stage, times)| StageTimes::new(stage.name(), times)).collect()
    }
}

/// Samples one call in a number, at a generator.
#[derive(Debug)]
pub(super) struct Watcher {
    sampling: Sampling,
    /// Calls to skip before the next sampled one.
    until: u32,
    /// By place.
    marks: Box<[Option<Mark>]>,
    /// Places of the calls that were made in this turn.
    begun: Vec<u32>,
    stages: ClientStages,
}

/// A call that is watched.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Time,
    spent: [Duration; Stage::ALL.len()],
}

impl Watcher {
    /// For this number of places.
    pub(super) fn new(sampling: Sampling, places: usize) -> Self {
        Self {
            sampling,
            until: sampling.every.saturating_sub(1),
            marks: vec![None; places].into_boxed_slice(),
            begun: Vec::with_capacity(places),
            stages: ClientStages::default(),
        }
    }

    pub(super) const fn stages(&self) -> &ClientStages {
        &self.stages
    }

    pub(super) const fn every(&self) -> u32 {
        self.sampling.every
    }

    /// Returns true if a call of this turn is watched.
    pub(super) const fn has_begun(&self) -> bool {
        !self.begun.is_empty()
    }

    /// Handles a call of a place that is about to be written; it was meant for `intended`.
    pub(super) fn begin(&mut self, place: u32, intended: Time, now: Time) {
        match self.until.checked_sub(1) {
            Some(until) => return self.until = until,
            None => self.until = self.sampling.every.saturating_sub(1),
        }
        if let Some(mark) = self.marks.get_mut(place as usize) {
            *mark = Some(Mark { at: intended, spent: Default::default() });
            self.begun.push(place);
        }
        self.stamp(place, Stage::Queue, now);
    }

    /// Records that a call leaves a stage; nothing if it is not sampled.
    pub(super) fn stamp(&mut self, place: u32, stage: Stage, now: Time) {
        let Self { sampling, marks, .. } = self;
        if let Some(Some(mark)) = marks.get_mut(place as usize) {
            let at = sampling.clock.map_or(now, |clock| clock.now());
            if let Some(spent) = mark.spent.get_mut(stage as usize) {
                *spent = at.since(mark.at);
            }
            mark.at = at;
        }
    }

    /// The calls of this turn leave a stage.
    pub(super) fn stamp_begun(&mut self, stage: Stage, now: Time) {
        for place in 0..self.begun.len() {
            let Some(place) = self.begun.get(place).copied() else { return };
            self.stamp(place, stage, now);
        }
        if stage == Stage::Send {
            self.begun.clear();
        }
    }

    /// Ends a call; it counts if it was answered correctly.
    pub(super) fn end(&mut self, place: u32, counts: bool) {
        let mark = self.marks.get_mut(place as usize).and_then(Option::take);
        for (times, spent) in
            self.stages.0.iter_mut().zip(mark.filter(|_| counts).iter().flat_map(|mark| mark.spent))
        {
            times.saturating_record(nanos(spent));
        }
    }
}

/// Subtracts the stage times that shards reported before a run from those reported after it, and
/// merges the differences. Each report covers every connection that reached the shard. None when no
/// reports belong together, as with a server that was restarted in between.
pub fn between(
    before: &[stag_engine::Stages],
    after: &[stag_engine::Stages],
) -> Option<ServerStages> {
    let (mut sum, mut shards) = (stag_engine::Stages::default(), 0);
    for shard in after.iter().map(stag_engine::Stages::shard).collect::<BTreeSet<_>>() {
        let of = |said: &&stag_engine::Stages| said.shard() == shard;
        let first = before.iter().filter(of).min_by_key(|said| said.calls())?;
        let last = after.iter().filter(of).max_by_key(|said| said.calls())?;
        sum.add(&last.clone().since(first)?);
        shards += 1;
    }
    (shards > 0).then(|| ServerStages { shards, ..ServerStages::from(&sum) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_read_as_they_are_written() {
        let mut times = histogram();
        times.record(7_000).unwrap();
        let stage = |name: &str| StageTimes { stage: name.to_owned(), times: Times::new(&times) };
        let server =
            Some(ServerStages { every: 64, shards: 2, stages: vec![stage("recv"), stage("app")] });
        let stages = Stages { every: 32, client: vec![stage("queue")], server, unasked: None };
        let value = serde_json::to_value(&stages).unwrap();
        assert_eq!(value["server"]["stages"][1]["stage"], "app");
        assert_eq!(value["server"]["stages"][1]["samples"], 1);
        assert_eq!(serde_json::from_value::<Stages>(value).unwrap(), stages);
    }

    #[test]
    fn the_stages_of_a_watched_call_add_up_to_its_time() {
        let sampling = Sampling { every: 2, ..Sampling::default() };
        let mut watcher = Watcher::new(sampling, 4);
        for call in 0..10 {
            watcher.begin(1, Time(1_000), Time(1_500));
            assert_eq!(watcher.has_begun(), call % 2 == 1);
            watcher.stamp_begun(Stage::Emit, Time(1_600));
            watcher.stamp_begun(Stage::Send, Time(1_900));
            watcher.stamp(1, Stage::Reply, Time(2_900));
            watcher.stamp(1, Stage::Verify, Time(2_950));
            watcher.end(1, call != 9);
        }
        let sums = watcher.stages().0.iter().map(|times| (times.len(), times.max()));
        assert!(
            sums.eq([(4, 500), (4, 100), (4, 300), (4, 1_000), (4, 50)]),
            "{:?}",
            watcher.stages()
        );
    }

    #[test]
    fn what_shards_say_is_the_difference_between_their_answers() {
        // Answers of two shards, the first of which was asked over two connections.
        let said = |shard: u8, calls: u8| {
            let times =
                [&[0, 0, 0, 1][..], &1_000_u64.to_be_bytes(), &u64::from(calls).to_be_bytes()]
                    .concat();
            let octets = [&[0, 0, 0, shard, 0, 0, 0, 64][..], &times.repeat(7)].concat();
            stag_engine::stages::service::parse(&octets).unwrap()
        };
        let before = [said(0, 5), said(1, 1), said(0, 5)];
        let between = |after: &[_]| super::between(&before, after);
        let server = between(&[said(0, 7), said(1, 11), said(0, 8)]).unwrap();
        assert_eq!((server.shards, server.every, server.stages.len()), (2, 64, 7));
        assert!(server.stages.iter().all(|stage| stage.times.samples == 13));
        assert_eq!(between(&[]), None);
        assert_eq!(between(&[said(2, 9)]), None, "nobody asked it before");
        assert_eq!(between(&[said(0, 4)]), None, "it began again");
    }
}
