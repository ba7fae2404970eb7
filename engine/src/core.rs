//! The parts of a shard that are neither fabric nor app. Each part keeps its fields to its own
//! folder or file.

use crate::{
    app::{Drained, Parted},
    config::{Config, HEAD_ROOM},
    memory::Memory,
    pass::{Deadlines, Wishes},
    peers::Peers,
    receives::Receives,
    requester::Requester,
    responder::Responder,
    stages::{Stage, Watch},
    stats::Counters,
    turns::Turns,
    ways::Ways,
};
use stag_pools::{Buf, Class, Extent, Pool, table::Key};
use stag_protocol::{rpc::CallHeader, rpcrdma::ChunkLists};
use stag_verbs::{Cause, Limits, PeerAddress, Time};
use std::{io, time::Duration};

/// Longest time between two passes that is charged to peers while something waits. Any more is not
/// theirs.
const LATE_MAX: Duration = Duration::from_millis(100);

/// Everything apps and transports share. Sized at start, allocates nothing afterwards.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) memory: Memory,
    pub(crate) receives: Receives,
    pub(crate) peers: Peers,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    pub(crate) wishes: Wishes,
    /// Lists of the message that is being looked at.
    pub(crate) lists: ChunkLists,
    /// Padding to push.
    pub(crate) zeros: Extent,
    pub(crate) counters: Counters,
    pub(crate) ways: Ways,
    /// Calls of peers that are watched.
    pub(crate) watch: Watch,
    pub(crate) deadlines: Deadlines,
    pub(crate) now: Time,
    pub(crate) stopping: bool,
    /// Octets of items that this pass brought to apps.
    pub(crate) moved: usize,
    /// Counts of the latest connection that ended.
    pub(crate) parted: Parted,
    /// The end of the latest drain, until connections are taken again.
    pub(crate) drained: Option<Drained>,
    /// A pass is under way, so that `now` is the time.
    in_pass: bool,
    /// The app did work in this pass that no event shows.
    pub(crate) has_worked: bool,
    /// Until the next event, deadline or wish a pass has nothing to do.
    pub(crate) is_quiet: bool,
    /// Messages wait for the next pass.
    pub(crate) has_put_off: bool,
    /// The time that peers' calls take.
    pub(crate) turns: Turns,
    /// The app has calls of peers that wait for their turn.
    pub(crate) has_aside: bool,
}

impl Core {
    /// The parts of a shard whose fabric has these limits; `make` makes each of its pools, and
    /// fails as `mmap(2)` does.
    pub(crate) fn new(
        config: Config,
        limits: &Limits,
        mut make: impl FnMut(&[Class]) -> io::Result<Pool>,
    ) -> io::Result<Self> {
        let memory = Memory::new(make(&config.classes())?, &config);
        let receives = make(&[Class { slot_len: config.receive_len, count: config.receives }])?;
        let mut zeros =
            make(&[Class { slot_len: 64, count: 1 }])?.take(64).expect("the pool has one slot");
        zeros.extend(64);
        Ok(Self {
            memory,
            receives: Receives::new(receives, &config),
            peers: Peers::new(config.peers + config.streams, limits.connections, config.xid_seed),
            requester: Requester::new(&config, limits.send_queue),
            responder: Responder::new(&config),
            wishes: Wishes::new(config.inbound + config.outbound),
            lists: ChunkLists::new(),
            zeros: zeros.freeze(),
            counters: Counters::new(),
            watch: Watch::new(config.sampling, config.inbound),
            deadlines: Deadlines::new(),
            now: Time(0),
            stopping: false,
            moved: 0,
            parted: Parted::default(),
            drained: None,
            in_pass: false,
            has_worked: false,
            is_quiet: false,
            has_put_off: false,
            turns: Turns::new(config.meter.clone(), config.peers + config.streams),
            has_aside: false,
            ways: Ways::new(config.short_ways),
            config,
        })
    }

    /// Returns true if a call or a reply waits for memory or for room.
    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        self.responder.has_deferred() | self.requester.has_stuck()
    }

    /// Notes that a call of a peer leaves a stage of its way.
    #[inline]
    pub(crate) fn stamp(&mut self, call: Key, stage: Stage) {
        self.watch.stamp(call, stage, self.now);
    }

    /// Notes that the header of a call of a peer was read: its way goes on, and it has a name.
    #[inline(always)]
    pub(crate) fn stamp_parsed(&mut self, call: Key, header: &CallHeader<'_>, from: PeerAddress) {
        self.watch.stamp_parsed(call, header, from, self.now);
    }

    /// Begins a pass at `now`.
    #[inline]
    pub(crate) fn begin_pass(&mut self, now: Time) {
        // Nanoseconds are compared as they are: this is done in every pass.
        let late = now.0.saturating_sub(self.now.0) > LATE_MAX.as_nanos() as u64;
        if late | self.requester.has_unclocked() {
            self.catch_up(now, late);
        }
        self.now = now;
        self.moved = 0;
        self.in_pass = true;
        self.has_worked = false;
        self.has_aside = false;
        if self.turns.are_metered() {
            self.begin_turns();
        }
    }

    /// Returns true if a pass at `now` that finds no event has nothing to do.
    #[inline]
    pub(crate) fn is_quiet_at(&self, now: Time) -> bool {
        self.is_quiet & !self.deadlines.are_due(now)
    }

    /// Accounts for the time since the latest pass.
    #[inline(never)]
    fn catch_up(&mut self, now: Time, late: bool) {
        self.clock_calls(now);
        // While something waits nobody sleeps for so long.
        if late && self.has_deferred() {
            self.forgive(now.since(self.now).saturating_sub(LATE_MAX));
        }
    }

    /// Ends the pass.
    #[inline]
    pub(crate) const fn end_pass(&mut self) {
        self.in_pass = false;
    }

    /// Returns true if a pass is under way, so that `now` is the time.
    #[inline]
    pub(crate) const fn is_in_pass(&self) -> bool {
        self.in_pass
    }

    /// A message buffer for a transport header without payload.
    pub(crate) fn header_message(&self) -> Option<Buf> {
        let mut message = self.memory.take(HEAD_ROOM)?;
        message.reset(0);
        Some(message)
    }

    pub(crate) fn count_disconnect(&mut self, cause: Cause) {
        self.counters.disconnects.count(cause);
    }
}
