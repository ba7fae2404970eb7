//! Generator: the app that makes the calls of a run, and records the time of each.
//!
//! A turn reads no clock. The time it is given is later than everything that the pass before it
//! read and earlier than everything that the pass after it sends. So a round trip lasts from before
//! the call is written to after its reply was read and compared (DESIGN D13). Nothing is allocated
//! for a call.

mod app;
mod calls;
mod contexts;
mod outage;
mod reverse;
mod sessions;
mod storm;
mod unsent;

use crate::{
    latency::{CallRecord, elapsed},
    schedule::{Pace, Random, RunSpan},
    stages::{ClientStages, Stage, Watcher},
    workload::{Ask, CallProgress, Maker, SpareItems, Workload},
};
use contexts::Contexts;
use outage::CallOutages;
pub(crate) use outage::ReplySeries;
use reverse::Laps;
pub(crate) use sessions::SessionStep;
use sessions::{Sessions, ends_sessions};
use stag_client::Error;
use stag_engine::{Cause, Cx, PeerId, Sampling, Stages, Time, Token};
use std::collections::VecDeque;
use storm::Storm;

/// Records kept ready for the seconds to come.
const SPARES: usize = 3;
/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// Phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GeneratorPhase {
    AwaitStart,
    Running,
    /// Replies to calls that were made are waited for.
    AwaitReplies,
    Over,
}

/// A place for one call at a time.
#[derive(Clone, Copy, Debug)]
struct RequestSlot {
    peer: usize,
    ask: Ask,
    intended: Time,
    sent: Time,
    /// Calls that it made.
    steps: u32,
    counts: bool,
}

/// Observations of a generator about its own work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GeneratorWatch {
    /// Clock readings, each with one pass of the shard.
    pub turns: u64,
    /// Calls that were due and never made: they found no place until the end, or no call could
    /// succeed any more.
    pub unsent: u64,
    /// Time after which no call was made, because none could succeed.
    pub gave_up: Option<Time>,
}

/// Calls that were sent together and whose replies came together, as most of one turn do.
#[derive(Clone, Copy, Debug)]
struct PendingRoundTrips {
    sent: Time,
    intended: Time,
    count: u64,
}

impl PendingRoundTrips {
    const NONE: Self = Self { sent: Time(0), intended: Time(0), count: 0 };

    /// Writes them down, as ended at `now`.
    #[inline]
    fn note(&self, record: &mut CallRecord, now: Time) {
        if self.count > 0 {
            record.calls += self.count;
            record.service.saturating_record_n(elapsed(self.sent, now), self.count);
            record.response.saturating_record_n(elapsed(self.intended, now), self.count);
        }
    }
}

/// Makes calls and writes down how long they take.
#[derive(Debug)]
pub struct Generator {
    maker: Maker,
    random: Random,
    slots: Box<[RequestSlot]>,
    free: VecDeque<u32>,
    /// Since when there is a place.
    room_at: Time,
    finished: Vec<(u32, Result<u64, Error>)>,
    peers: Vec<PeerId>,
    up: usize,
    down: Option<Cause>,
    phase: GeneratorPhase,
    pace: Pace,
    span: RunSpan,
    counted: u64,
    last: Time,
    last_reply: Time,
    /// The second that is being measured, by its number.
    second: (u64, CallRecord),
    full: VecDeque<(u64, CallRecord)>,
    spare: Vec<CallRecord>,
    /// Blocks that were written.
    written: Box<[bool]>,
    failure: Option<(&'static str, Error)>,
    watch: GeneratorWatch,
    /// Samples calls from stage to stage, if requested.
    watcher: Option<Box<Watcher>>,
    /// Stages reported by the server, until they are taken.
    told: Option<Result<Stages, Error>>,
    /// Of a workload whose calls the server makes.
    laps: Option<Laps>,
    /// Of a workload whose calls have a connection each.
    storm: Option<Storm>,
    /// Of a workload whose calls depend on earlier replies.
    progress: Option<Box<CallProgress>>,
    /// Of a workload of NFS version 4.1.
    sessions: Option<Box<Sessions>>,
    /// Of calls by tickets.
    contexts: Option<Box<Contexts>>,
    /// There were places, and no context had room for a call.
    is_held: bool,
    outages: CallOutages,
    items: SpareItems,
}

/// The call that asks a server for its stages: no place has this number.
const ASKED: Token = Token(u64::MAX);
/// A step of making or ending a session.
const ASKED_OF_SESSION: Token = Token(u64::MAX - 1);

impl Generator {
    /// One for `connections`, each with as many places as `maker` has depth.
    pub(crate) fn new(maker: Maker, seed: u64, connections: usize, sampling: Sampling) -> Self {
        let depth = maker.depth;
        let laps = (maker.workload == Workload::Reverse).then(|| Laps::new(connections * depth));
        let storm = (maker.workload == Workload::ConnStorm).then(|| Storm::new(connections));
        // The server's calls have places of their own: one call of ours requests them.
        let places = connections * if laps.is_some() { 1 } else { depth };
        let slot = |index: usize| RequestSlot {
            peer: index % connections,
            ask: Ask::Null,
            intended: Time(0),
            sent: Time(0),
            steps: 0,
            counts: false,
        };
        let blocks = maker.files.map_or(0, |files| usize::try_from(files.blocks).unwrap_or(0));
        Self {
            maker,
            random: Random::new(seed),
            slots: (0..places).map(slot).collect(),
            free: (0..u32::try_from(places).unwrap_or(u32::MAX)).collect(),
            room_at: Time(0),
            finished: Vec::with_capacity(places),
            peers: Vec::with_capacity(connections),
            up: 0,
            down: None,
            phase: GeneratorPhase::AwaitStart,
            pace: Pace::Closed,
            span: RunSpan { from: Time(0), until: Time(0), calls: None },
            counted: 0,
            last: Time(0),
            last_reply: Time(0),
            second: (0, CallRecord::default()),
            full: VecDeque::with_capacity(SPARES),
            spare: (0..SPARES).map(|_| CallRecord::default()).collect(),
            written: vec![false; blocks].into_boxed_slice(),
            failure: None,
            watch: GeneratorWatch::default(),
            watcher: (sampling.every > 0).then(|| Box::new(Watcher::new(sampling, places))),
            told: None,
            laps,
            storm,
            progress: CallProgress::new(maker.workload, places),
            sessions: None,
            contexts: None,
            is_held: false,
            outages: CallOutages::default(),
            items: SpareItems::new(maker.verify, places),
        }
    }

    /// The connection of place `peers.len()`.
    pub(crate) fn add_peer(&mut self, peer: PeerId) {
        self.peers.push(peer);
    }

    /// Number of established connections, and the cause of the last one that ended.
    pub(crate) const fn connected(&self) -> (usize, Option<Cause>) {
        (self.up, self.down)
    }

    /// Returns the peer from which the last pass brought a reply.
    pub(crate) fn heard(&self) -> Option<PeerId> {
        let (index, _) = self.finished.first()?;
        self.peers.get(self.slots.get(*index as usize)?.peer).copied()
    }

    /// From here on calls are made.
    pub(crate) fn begin(&mut self, now: Time, pace: Pace, span: RunSpan) {
        (self.pace, self.span, self.phase) = (pace, span, GeneratorPhase::Running);
        (self.last, self.room_at, self.last_reply) = (now, now, span.from);
    }

    /// No call is meant for a later time than this; outstanding calls are awaited.
    pub fn stop(&mut self, now: Time) {
        self.span.until = self.span.until.min(now);
    }

    /// Returns true once every call is over, or none can succeed.
    pub fn is_over(&self) -> bool {
        self.phase == GeneratorPhase::Over
    }

    /// The first failure: the procedure, and the error.
    pub const fn failure(&self) -> Option<(&'static str, Error)> {
        self.failure
    }

    /// Returns the generator's observations about its own work.
    pub const fn watch(&self) -> GeneratorWatch {
        self.watch
    }

    /// Returns N and the time that watched calls spent in each stage; one call in N was watched.
    pub fn stages(&self) -> Option<(u32, &ClientStages)> {
        self.watcher.as_ref().map(|watcher| (watcher.every(), watcher.stages()))
    }

    /// Returns true if a call made in this turn is watched.
    pub(crate) fn has_begun(&self) -> bool {
        self.watcher.as_ref().is_some_and(|watcher| watcher.has_begun())
    }

    /// The calls of this turn leave a stage.
    pub(crate) fn stamp_begun(&mut self, stage: Stage, now: Time) {
        if let Some(watcher) = &mut self.watcher {
            watcher.stamp_begun(stage, now);
        }
    }

    /// Asks the server at the other end of a connection for its stages.
    pub(crate) fn ask_stages(&self, cx: &mut Cx<'_>, connection: usize) -> Result<(), Error> {
        let peer = *self.peers.get(connection).ok_or(Error::NotConnected(self.down))?;
        let request = self.maker.ask_stages(cx, ASKED).ok_or(Error::NoMemory)?;
        cx.call(peer, request);
        Ok(())
    }

    /// Takes the stages reported by the server; they are returned once.
    pub(crate) fn told(&mut self) -> Option<Result<Stages, Error>> {
        self.told.take()
    }

    /// Returns one flag for each block of the generator's file: true if the block was written.
    pub fn written(&self) -> &[bool] {
        &self.written
    }

    /// Returns the start and the end of measuring. The end is the time at which the last reply of a
    /// call that counts was read, or at which calls ended.
    pub fn measured(&self) -> (Time, Time) {
        let ended = if self.span.calls.is_some() { self.span.from } else { self.span.until };
        (self.span.from, self.last_reply.max(ended))
    }

    /// A second that is over, by its number, and what was measured in it.
    pub fn take_second(&mut self) -> Option<(u64, CallRecord)> {
        self.full.pop_front()
    }

    /// Gives the memory of a second back, cleared.
    pub fn give(&mut self, record: CallRecord) {
        debug_assert!(record.calls == 0 && record.response.is_empty(), "a spare record is clear");
        self.spare.push(record);
    }

    /// Takes the number and the measurements of the second that is not over.
    pub fn take_rest(&mut self) -> (u64, CallRecord) {
        (self.second.0, std::mem::take(&mut self.second.1))
    }

    /// Returns the next time at which there is work that no event announces.
    pub fn wake_at(&self) -> Option<Time> {
        match (&self.pace, self.phase) {
            (Pace::Open(schedule), GeneratorPhase::Running) if !self.free.is_empty() => {
                Some(schedule.next())
            }
            (Pace::Open(_), GeneratorPhase::Running) => Some(self.span.until),
            _ => None,
        }
    }

    /// Records finished calls, and makes the calls that are due. True when there was something to
    /// do.
    pub(crate) fn turn(&mut self, cx: &mut Cx<'_>, now: Time) -> bool {
        self.watch.turns += 1;
        if now >= self.span.from {
            self.keep_seconds(now);
            self.second.1.gap = self.second.1.gap.max(elapsed(self.last.max(self.span.from), now));
        }
        self.last = now;
        let worked = !self.finished.is_empty();
        self.collect(cx, now);
        self.renew_contexts(cx, now);
        let made = self.storm_on(cx, now) + self.ask_for_laps(cx, now);
        let made = made
            + if self.phase == GeneratorPhase::Running && self.laps.is_none() {
                self.issue(cx, now)
            } else {
                0
            };
        if self.phase == GeneratorPhase::AwaitReplies && self.free.len() == self.slots.len() {
            self.phase = GeneratorPhase::Over;
            self.outages.close(now);
        }
        worked || made > 0
    }

    fn keep_seconds(&mut self, now: Time) {
        // In nanoseconds, unrounded: this is computed in every turn, and each second has one end.
        let number = elapsed(self.span.from, now) / SECOND;
        while self.second.0 < number {
            let next = self.spare.pop().unwrap_or_default();
            let (at, record) = &mut self.second;
            self.full.push_back((*at, std::mem::replace(record, next)));
            *at += 1;
        }
    }

    fn collect(&mut self, cx: &mut Cx<'_>, now: Time) {
        if (self.free.is_empty() || self.is_held) && !self.finished.is_empty() {
            (self.room_at, self.is_held) = (now, false);
        }
        let mut trips = PendingRoundTrips::NONE;
        let before = self.second.1.calls;
        while let Some((index, outcome)) = self.finished.pop() {
            let Some(slot) = self.slots.get(index as usize) else { continue };
            let slot = *slot;
            let record = &mut self.second.1;
            match outcome {
                Ok(octets) if slot.counts => {
                    record.octets += octets;
                    let (sent, intended) = (slot.sent, slot.intended);
                    if (sent, intended) != (trips.sent, trips.intended) {
                        trips.note(record, now);
                        trips = PendingRoundTrips { sent, intended, count: 0 };
                    }
                    trips.count += 1;
                }
                Ok(_) => {}
                Err(error) => {
                    record.failed += 1;
                    self.failure.get_or_insert((slot.ask.name(), error));
                    // A call that fails in the warm-up would always fail.
                    if error.is_fatal() || ends_sessions(&error) || !slot.counts {
                        self.give_up(now);
                    }
                }
            }
            match (&mut self.storm, self.peers.get(slot.peer)) {
                // The place is free when the connection has ended.
                (Some(storm), Some(peer)) if self.watch.gave_up.is_none() => {
                    storm.leave(*peer);
                    cx.disconnect(*peer);
                }
                (Some(storm), Some(peer)) => storm.leave(*peer),
                _ => self.free.push_back(index),
            }
        }
        if trips.count > 0 {
            trips.note(&mut self.second.1, now);
            self.last_reply = now;
            let (at, count) = (elapsed(self.span.from, now), self.second.1.calls - before);
            self.outages.answer(now, at, count);
        }
        if let Some(storm) = &self.storm
            && self.watch.gave_up.is_some()
            && self.phase != GeneratorPhase::Over
        {
            // Connections that are being made are not awaited.
            self.second.1.failed += storm.under_way() as u64;
            self.phase = GeneratorPhase::Over;
        }
    }

    /// Makes no more calls, because none can succeed. Calls that are due until the end are counted;
    /// replies to outstanding calls are awaited.
    fn give_up(&mut self, now: Time) {
        if matches!(self.phase, GeneratorPhase::Running | GeneratorPhase::AwaitReplies)
            && self.watch.gave_up.is_none()
        {
            self.watch.gave_up = Some(now);
            if self.phase == GeneratorPhase::Running {
                self.leave_rest();
            }
            if matches!(self.pace, Pace::Closed) {
                self.stop(now);
            }
        }
    }
}
