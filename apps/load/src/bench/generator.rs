//! The app that makes the calls of a run, and writes down how long each took.
//!
//! A turn reads no clock: it is given the time, which is later than everything that the pass before it read and earlier than
//! everything that the pass behind it sends. So a round trip lasts from before the call is written to after its reply was read
//! and compared (DESIGN D13). Nothing is allocated for a call.

use super::{
    latency::{Record, nanos},
    reverse::Laps,
    schedule::{Pace, Random, Span},
    stages::{ClientStages, Stage, Watcher},
    storm::Storm,
    unsent,
    workload::{self, Ask, Maker, Workload},
};
use crate::Error;
use stag_engine::{App, Call, CallFault, Cause, Cx, Outcome, PeerId, Sampling, Stages, Time, Token};
use stag_protocol::rpc::Accepted;
use stag_verbs::FabricFault;
use std::{collections::VecDeque, time::Duration};

/// Records kept ready for the seconds to come.
const SPARES: usize = 3;
const SECOND: Duration = Duration::from_secs(1);

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    AwaitStart,
    Running,
    /// Replies to calls that were made are waited for.
    AwaitReplies,
    Over,
}

/// A place for one call at a time.
#[derive(Clone, Copy, Debug)]
struct Slot {
    peer: usize,
    ask: Ask,
    intended: Time,
    sent: Time,
    /// Calls that it made.
    steps: u32,
    counts: bool,
}

/// What a generator noticed of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// Looks at the clock, each with one pass of the shard.
    pub turns: u64,
    /// Calls that were due and were never made: they found no place until the end, or none could succeed any more.
    pub unsent: u64,
    /// From when on no call was made, because none could succeed.
    pub gave_up: Option<Time>,
}

/// Makes calls and writes down how long they take.
#[derive(Debug)]
pub struct Generator {
    maker: Maker,
    random: Random,
    slots: Box<[Slot]>,
    free: VecDeque<u32>,
    /// Since when there is a place.
    room_at: Time,
    finished: Vec<(u32, Result<u64, Error>)>,
    peers: Vec<PeerId>,
    up: usize,
    down: Option<Cause>,
    phase: Phase,
    pace: Pace,
    span: Span,
    counted: u64,
    last: Time,
    last_reply: Time,
    /// The second that is being measured, by its number.
    second: (u64, Record),
    full: VecDeque<(u64, Record)>,
    spare: Vec<Record>,
    /// Blocks that were written.
    written: Box<[bool]>,
    failure: Option<(&'static str, Error)>,
    watch: Watch,
    /// Watches calls from stage to stage, when that was asked for.
    watcher: Option<Box<Watcher>>,
    /// What the server said of its stages.
    told: Option<Result<Stages, Error>>,
    /// Of a workload whose calls the server makes.
    laps: Option<Laps>,
    /// Of a workload whose calls have a connection each.
    storm: Option<Storm>,
}

/// The call that asks a server for its stages: no place has this number.
const ASKED: Token = Token(u64::MAX);

impl Generator {
    /// One for `connections` with `depth` places each.
    pub(super) fn new(
        maker: Maker,
        seed: u64,
        (connections, depth): (usize, usize),
        sampling: Sampling,
    ) -> Self {
        let laps = (maker.workload == Workload::Reverse).then(|| Laps::new(connections * depth));
        let storm = (maker.workload == Workload::ConnStorm).then(|| Storm::new(connections));
        // The server's calls have places of their own: one of ours asks for them.
        let places = connections * if laps.is_some() { 1 } else { depth };
        let slot = |index: usize| Slot {
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
            phase: Phase::AwaitStart,
            pace: Pace::Closed,
            span: Span { from: Time(0), until: Time(0), calls: None },
            counted: 0,
            last: Time(0),
            last_reply: Time(0),
            second: (0, Record::default()),
            full: VecDeque::with_capacity(SPARES),
            spare: (0..SPARES).map(|_| Record::default()).collect(),
            written: vec![false; blocks].into_boxed_slice(),
            failure: None,
            watch: Watch::default(),
            watcher: (sampling.every > 0).then(|| Box::new(Watcher::new(sampling, places))),
            told: None,
            laps,
            storm,
        }
    }

    /// The connection of place `peers.len()`.
    pub(super) fn add_peer(&mut self, peer: PeerId) {
        self.peers.push(peer);
    }

    /// Connections that stand, and why the last one that does not ended.
    pub(super) const fn connected(&self) -> (usize, Option<Cause>) {
        (self.up, self.down)
    }

    /// Whom the last pass brought a reply from.
    pub(super) fn heard(&self) -> Option<PeerId> {
        let (index, _) = self.finished.first()?;
        self.peers.get(self.slots.get(*index as usize)?.peer).copied()
    }

    /// From here on calls are made.
    pub(super) fn begin(&mut self, now: Time, pace: Pace, span: Span) {
        (self.pace, self.span, self.phase) = (pace, span, Phase::Running);
        (self.last, self.room_at, self.last_reply) = (now, now, span.from);
    }

    /// No call is meant for a later time than this; those under way are waited for.
    pub fn stop(&mut self, now: Time) {
        self.span.until = self.span.until.min(now);
    }

    /// Whether every call is over, or none can succeed.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// The first failure: what was called, and why it failed.
    pub const fn failure(&self) -> Option<(&'static str, Error)> {
        self.failure
    }

    /// What it noticed of itself.
    pub const fn watch(&self) -> Watch {
        self.watch
    }

    /// How long watched calls were in each stage, and that one call in so many was watched.
    pub fn stages(&self) -> Option<(u32, &ClientStages)> {
        self.watcher.as_ref().map(|watcher| (watcher.every(), watcher.stages()))
    }

    /// Whether a call that was made in this turn is watched.
    pub(super) fn has_begun(&self) -> bool {
        self.watcher.as_ref().is_some_and(|watcher| watcher.has_begun())
    }

    /// The calls of this turn leave a stage.
    pub(super) fn stamp_begun(&mut self, stage: Stage, now: Time) {
        self.watcher.iter_mut().for_each(|watcher| watcher.stamp_begun(stage, now));
    }

    /// Asks the server at the other end of a connection for its stages.
    pub(super) fn ask_stages(&self, cx: &mut Cx<'_>, connection: usize) -> Result<(), Error> {
        let peer = *self.peers.get(connection).ok_or(Error::NotConnected(self.down))?;
        let request = self.maker.ask_stages(cx, ASKED).ok_or(Error::NoMemory)?;
        cx.call(peer, request);
        Ok(())
    }

    /// What it said, once.
    pub(super) fn told(&mut self) -> Option<Result<Stages, Error>> {
        self.told.take()
    }

    /// Which blocks of its file were written.
    pub fn written(&self) -> &[bool] {
        &self.written
    }

    /// When measuring began, and when the last reply of a call that counts was read, or calls ended.
    pub fn measured(&self) -> (Time, Time) {
        let ended = if self.span.calls.is_some() { self.span.from } else { self.span.until };
        (self.span.from, self.last_reply.max(ended))
    }

    /// A second that is over, by its number, and what was measured in it.
    pub fn take_second(&mut self) -> Option<(u64, Record)> {
        self.full.pop_front()
    }

    /// Gives the memory of a second back, cleared.
    pub fn give(&mut self, record: Record) {
        debug_assert!(record.calls == 0 && record.response.is_empty(), "a spare record is clear");
        self.spare.push(record);
    }

    /// What is measured of the second that is not over.
    pub fn take_rest(&mut self) -> (u64, Record) {
        (self.second.0, std::mem::take(&mut self.second.1))
    }

    /// When there is something to do that no event announces.
    pub fn wake_at(&self) -> Option<Time> {
        match (&self.pace, self.phase) {
            (Pace::Open(schedule), Phase::Running) if !self.free.is_empty() => Some(schedule.next()),
            (Pace::Open(_), Phase::Running) => Some(self.span.until),
            _ => None,
        }
    }

    /// Writes down what was finished, and makes the calls that are due. True when there was something to do.
    pub(super) fn turn(&mut self, cx: &mut Cx<'_>, now: Time) -> bool {
        self.watch.turns += 1;
        if now >= self.span.from {
            self.keep_seconds(now);
            self.second.1.gap = self.second.1.gap.max(nanos(now.since(self.last.max(self.span.from))));
        }
        self.last = now;
        let worked = !self.finished.is_empty();
        self.collect(cx, now);
        let made = self.storm_on(cx, now) + self.ask_for_laps(cx, now);
        let made =
            made + if self.phase == Phase::Running && self.laps.is_none() { self.issue(cx, now) } else { 0 };
        if self.phase == Phase::AwaitReplies && self.free.len() == self.slots.len() {
            self.phase = Phase::Over;
        }
        worked || made > 0
    }

    fn keep_seconds(&mut self, now: Time) {
        let number = now.since(self.span.from).as_nanos() / SECOND.as_nanos();
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        while self.second.0 < number {
            let next = self.spare.pop().unwrap_or_default();
            let (at, record) = &mut self.second;
            self.full.push_back((*at, std::mem::replace(record, next)));
            *at += 1;
        }
    }

    fn collect(&mut self, cx: &mut Cx<'_>, now: Time) {
        if self.free.is_empty() && !self.finished.is_empty() {
            self.room_at = now;
        }
        while let Some((index, outcome)) = self.finished.pop() {
            let Some(slot) = self.slots.get(index as usize).copied() else { continue };
            let record = &mut self.second.1;
            match outcome {
                Ok(octets) if slot.counts => {
                    record.calls += 1;
                    record.octets += octets;
                    record.service.saturating_record(nanos(now.since(slot.sent)));
                    record.response.saturating_record(nanos(now.since(slot.intended)));
                    self.last_reply = now;
                }
                Ok(_) => {}
                Err(error) => {
                    record.failed += 1;
                    self.failure.get_or_insert((slot.ask.name(), error));
                    // A call that fails in the warm-up would always fail.
                    if error.is_fatal() || !slot.counts {
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
        if let Some(storm) = &self.storm
            && self.watch.gave_up.is_some()
            && self.phase != Phase::Over
        {
            // Nobody waits for connections that are being made.
            self.second.1.failed += storm.under_way() as u64;
            self.phase = Phase::Over;
        }
    }

    /// Makes no more calls, because none can succeed. Those that are due until the end are counted; replies to those under way are
    /// waited for.
    fn give_up(&mut self, now: Time) {
        if matches!(self.phase, Phase::Running | Phase::AwaitReplies) && self.watch.gave_up.is_none() {
            self.watch.gave_up = Some(now);
            if self.phase == Phase::Running {
                self.leave_rest();
            }
            if matches!(self.pace, Pace::Closed) {
                self.stop(now);
            }
        }
    }

    /// Goes on with connections: those that stand are called over, the places of those that have ended are free. How many.
    fn storm_on(&mut self, cx: &mut Cx<'_>, now: Time) -> u64 {
        let mut count = 0;
        while let Some(index) = self.storm.as_mut().and_then(Storm::take_up) {
            count += 1;
            let Some(slot) = self.slots.get(index as usize).copied() else { continue };
            if slot.counts {
                self.second.1.connected(nanos(now.since(slot.sent)));
            }
            self.send(cx, index, slot);
        }
        while let Some(index) = self.storm.as_mut().and_then(Storm::take_ended) {
            count += 1;
            if self.free.is_empty() {
                self.room_at = now;
            }
            self.free.push_back(index);
        }
        count
    }

    /// A place whose connection is to be made.
    pub(super) fn next_connection(&mut self) -> Option<u32> {
        self.storm.as_mut()?.next()
    }

    /// What came of making the connection of a place.
    pub(super) fn note_connection(&mut self, index: u32, peer: Result<PeerId, FabricFault>) {
        let Some(storm) = &mut self.storm else { return };
        match peer {
            Ok(peer) => {
                storm.note(peer, index);
                match self.peers.get_mut(index as usize) {
                    Some(place) => *place = peer,
                    // Places are used in order at first.
                    None => self.peers.push(peer),
                }
            }
            Err(fault) => self.finished.push((index, Err(Error::Fabric(fault)))),
        }
    }

    /// Asks the server to call over each connection, behind a NULL; notices when it has to end, and when it does not call. How many
    /// calls were made for it.
    fn ask_for_laps(&mut self, cx: &mut Cx<'_>, now: Time) -> u64 {
        let Some(laps) = &mut self.laps else { return 0 };
        if matches!(self.phase, Phase::AwaitStart | Phase::Over) {
            return 0;
        }
        let heard_at = *laps.heard_at.get_or_insert(now);
        if now.since(heard_at) > self.maker.timeout {
            return self.fail("LAP", Error::Call(CallFault::TimedOut));
        }
        if self.phase == Phase::Running && (now >= self.span.until || self.is_enough()) {
            self.phase = Phase::AwaitReplies;
        }
        let mut made = 0;
        while self.phase == Phase::Running
            && let Some(index) = self.free.pop_front()
        {
            if self.slots.get(index as usize).is_some_and(|slot| slot.steps > 1) {
                return self.fail("DRIVE", Error::Nonsense("the server ended its calls by itself"));
            }
            self.call(cx, index, (now, now));
            made += 1;
        }
        made
    }

    /// Nothing more is done, for this reason unless there is an earlier one.
    fn fail(&mut self, what: &'static str, error: Error) -> u64 {
        self.failure.get_or_insert((what, error));
        self.phase = Phase::Over;
        0
    }

    /// All calls that count were made.
    fn is_enough(&self) -> bool {
        self.span.calls.is_some_and(|calls| self.counted >= calls)
    }

    /// Answers a call of the server, and writes down how long the one before it took.
    fn answer(&mut self, cx: &mut Cx<'_>, call: &Call<'_>) {
        let (now, is_enough) = (cx.now(), self.is_enough());
        let goes_on =
            self.phase == Phase::Running && now < self.span.until && !is_enough && self.failure.is_none();
        let Some(laps) = &mut self.laps else { return };
        laps.heard_at = Some(now);
        match laps.answer(cx, call, &self.maker, (now >= self.span.from, goes_on)) {
            Ok(Some(took)) if !is_enough => {
                let record = &mut self.second.1;
                record.calls += 1;
                record.octets += 2 * self.maker.len as u64;
                record.service.saturating_record(took);
                record.response.saturating_record(took);
                self.counted += 1;
                self.last_reply = now;
            }
            Ok(_) => {}
            Err(error) => {
                self.failure.get_or_insert(("LAP", error));
                cx.refuse(call, Accepted::GarbageArgs);
            }
        }
    }

    /// Makes the calls that are due. How many those were.
    fn issue(&mut self, cx: &mut Cx<'_>, now: Time) -> u64 {
        let mut made = 0;
        while let Some(index) = self.free.front().copied() {
            let intended = match &self.pace {
                Pace::Closed => now,
                Pace::Open(schedule) if schedule.next() > now && now < self.span.until => return made,
                Pace::Open(schedule) => schedule.next(),
            };
            if intended >= self.span.until || self.is_enough() {
                self.phase = Phase::AwaitReplies;
                return made;
            }
            if let Pace::Open(schedule) = &mut self.pace {
                schedule.advance();
            }
            self.free.pop_front();
            self.call(cx, index, (intended, now));
            made += 1;
            if self.phase == Phase::Over {
                return made;
            }
        }
        if now >= self.span.until {
            self.leave_rest();
        }
        made
    }

    /// Counts the calls that are due until the end and are not made.
    fn leave_rest(&mut self) {
        if let Pace::Open(schedule) = &mut self.pace {
            let calls = self.span.calls.map_or(u64::MAX, |calls| calls.saturating_sub(self.counted));
            self.watch.unsent += unsent::leave(schedule, self.span, calls, &mut self.second.1);
        }
        self.phase = Phase::AwaitReplies;
    }

    fn call(&mut self, cx: &mut Cx<'_>, index: u32, (intended, now): (Time, Time)) {
        let Some(slot) = self.slots.get_mut(index as usize) else { return };
        let ask = self.maker.ask(&mut self.random, index, slot.steps);
        let counts = intended >= self.span.from && self.laps.is_none();
        *slot = Slot { ask, intended, sent: now, steps: slot.steps.wrapping_add(1), counts, ..*slot };
        if counts {
            self.counted += 1;
            // In a closed loop a call is due when it is made.
            if matches!(self.pace, Pace::Open(_)) {
                let due = intended.max(self.room_at);
                self.second.1.lag.saturating_record(nanos(now.since(due)));
            }
        }
        if let Ask::Write { block } = ask
            && let Some(written) = usize::try_from(block).ok().and_then(|block| self.written.get_mut(block))
        {
            *written = true;
        }
        if counts && let Some(watcher) = &mut self.watcher {
            watcher.begin(index, intended, now);
        }
        let slot = *slot;
        match &mut self.storm {
            Some(storm) => storm.begin(index),
            None => self.send(cx, index, slot),
        }
    }

    fn send(&mut self, cx: &mut Cx<'_>, index: u32, Slot { ask, peer, .. }: Slot) {
        match (self.maker.request(cx, ask, Token(index.into())), self.peers.get(peer)) {
            (Some(request), Some(peer)) => cx.call(*peer, request),
            _ => {
                self.failure.get_or_insert((ask.name(), Error::NoMemory));
                self.phase = Phase::Over;
            }
        }
    }
}

impl App for Generator {
    type Report = ();

    fn report(&self) {}

    /// The server calls.
    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        let (program, version, procedure) = (call.header.program, call.header.version, call.header.procedure);
        let lap = (stag_echo::PROGRAM, stag_echo::VERSION, stag_echo::LAP);
        if self.laps.is_some() && (program, version, procedure) == lap {
            self.answer(cx, &call);
        } else {
            cx.refuse(&call, Accepted::ProgUnavail);
        }
    }

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        let index = u32::try_from(outcome.token.0).unwrap_or(u32::MAX);
        let octets = outcome.result.as_deref().unwrap_or_default();
        let Some(slot) = self.slots.get(index as usize) else {
            let told = outcome.reply.map_err(Error::Call);
            return self.told = Some(told.and_then(|reply| workload::stages(reply, octets)));
        };
        if let Some(watcher) = &mut self.watcher {
            watcher.stamp(index, Stage::Reply, cx.now());
        }
        let result = match outcome.reply {
            Ok(reply) => self.maker.check(slot.ask, reply, octets),
            Err(CallFault::NoPeer) => Err(Error::NotConnected(self.down)),
            Err(fault) => Err(Error::Call(fault)),
        };
        if let Some(watcher) = &mut self.watcher {
            watcher.stamp(index, Stage::Verify, cx.now());
            watcher.end(index, result.is_ok());
        }
        self.finished.push((index, result));
    }

    fn on_peer_up(&mut self, _cx: &mut Cx<'_>, peer: PeerId) {
        match &mut self.storm {
            Some(storm) => storm.handle_up(peer),
            None => self.up += 1,
        }
    }

    fn on_peer_down(&mut self, cx: &mut Cx<'_>, peer: PeerId, cause: Cause) {
        if let Some(storm) = &mut self.storm {
            // Its call ended with this cause before, if it was made.
            if let Some(index) = storm.handle_down(peer)
                && !self.finished.iter().any(|(known, _)| *known == index)
            {
                self.finished.push((index, Err(Error::NotConnected(Some(cause)))));
            }
            return;
        }
        self.up = self.up.saturating_sub(1);
        self.down = Some(cause);
        if self.phase == Phase::Running {
            self.failure.get_or_insert(("the connection", Error::NotConnected(Some(cause))));
            self.give_up(cx.now());
        }
    }
}
