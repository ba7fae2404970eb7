//! The shard's state without fabric and app: pools, peer and call tables, deferred work, counters.
//! Each part keeps its fields private to its own folder or file.

use crate::{
    config::{Config, HEAD_ROOM, INLINE_LEN},
    gss::ShardGss,
    memory::Memory,
    peer_view::{Drained, Parted},
    stage_times::{Stage, Watch},
    state::{Deadlines, Peers, Receives, Requester, Responder, Turns, Wishes},
    stats::Counters,
    tcp::STAGING_LEN,
    ways::Ways,
};
use stag_pools::{Buf, Class, Extent, Pool, table::Key};
use stag_protocol::{rpc::CallHeader, rpcrdma::ChunkLists};
use stag_verbs::{Cause, Limits, PeerAddress, Time};
use std::{io, time::Duration};

/// Longest interval between two passes that is charged to peers while something is deferred. Any
/// excess is not the peers' fault.
const LATE_MAX: Duration = Duration::from_millis(100);

/// State that apps and transports share. Sized at start; allocates nothing afterwards.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) memory: Memory,
    pub(crate) receives: Receives,
    pub(crate) peers: Peers,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    pub(crate) wishes: Wishes,
    /// Chunk lists of the current message.
    pub(crate) lists: ChunkLists,
    /// Padding to push.
    pub(crate) zeros: Extent,
    pub(crate) counters: Counters,
    pub(crate) ways: Ways,
    /// Watched calls of peers.
    pub(crate) watch: Watch,
    pub(crate) deadlines: Deadlines,
    pub(crate) now: Time,
    pub(crate) stopping: bool,
    /// Octets of items that this pass delivered to apps.
    pub(crate) moved: usize,
    /// Work since the doorbells were rung: an event, and each reply that was not sent at once. Not
    /// counted are calls whose replies have payload in chunks.
    pub(crate) unsent: u32,
    /// Counts of the connection that ended last.
    pub(crate) parted: Parted,
    /// The result of the latest drain, until connections are accepted again.
    pub(crate) drained: Option<Drained>,
    /// A pass is running, so `now` is current.
    in_pass: bool,
    /// The app did work in this pass that no event shows.
    pub(crate) has_worked: bool,
    /// A pass has nothing to do until the next event, deadline or wish.
    pub(crate) is_quiet: bool,
    /// Messages are put off to the next pass.
    pub(crate) has_put_off: bool,
    /// Time accounting of the peers' calls.
    pub(crate) turns: Turns,
    /// The app has put aside calls of peers, which wait for their turn.
    pub(crate) has_aside: bool,
    /// Contexts of RPCSEC_GSS, if peers may have any.
    pub(crate) gss: Option<Box<ShardGss>>,
    /// Requests for contexts that wait for the acceptor.
    pub(crate) inits: usize,
    /// Protected calls and replies that wait for their next step, or for memory.
    pub(crate) protecting: usize,
}

impl Core {
    /// The state of a shard whose fabric has these limits. `make` makes each of its pools, and
    /// fails as `mmap(2)` does.
    pub(crate) fn new(
        config: Config,
        limits: &Limits,
        mut make: impl FnMut(&[Class]) -> io::Result<Pool>,
    ) -> io::Result<Self> {
        let room = INLINE_LEN.max(STAGING_LEN);
        let gss = config.gss.clone().map(|contexts| ShardGss::new(contexts, config.inbound, room));
        let mut memory = Memory::new(make(&config.classes())?, &config);
        if gss.is_some() {
            memory = memory.with_protect_room(&mut make)?;
        }
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
            unsent: 0,
            parted: Parted::default(),
            drained: None,
            in_pass: false,
            has_worked: false,
            is_quiet: false,
            has_put_off: false,
            turns: Turns::new(config.meter.clone(), config.peers + config.streams),
            has_aside: false,
            gss: gss.transpose()?.map(Box::new),
            inits: 0,
            protecting: 0,
            ways: Ways::new(config.short_ways),
            config,
        })
    }

    /// Returns true if a call or a reply waits for memory, for room in a send queue, for a
    /// context, or for its protection.
    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        self.responder.has_deferred()
            | self.requester.has_stuck()
            | (self.inits + self.protecting > 0)
    }

    /// Records that a call of a peer leaves a stage.
    #[inline]
    pub(crate) fn stamp(&mut self, call: Key, stage: Stage) {
        self.watch.stamp(call, stage, self.now);
    }

    /// Records that the header of a call of a peer was parsed, which also identifies the call.
    #[inline(always)]
    pub(crate) fn stamp_parsed(&mut self, call: Key, header: &CallHeader<'_>, from: PeerAddress) {
        self.watch.stamp_parsed(call, header, from, self.now);
    }

    /// Begins a pass at `now`.
    #[inline]
    pub(crate) fn begin_pass(&mut self, now: Time) {
        // Compares plain nanoseconds, because this runs in every pass.
        let late = now.0.saturating_sub(self.now.0) > LATE_MAX.as_nanos() as u64;
        if late | self.requester.has_unclocked() {
            self.catch_up(now, late);
        }
        debug_assert!(!self.in_pass, "a pass ends before the next one begins");
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
        // No shard sleeps for so long while work is deferred.
        if late && self.has_deferred() {
            self.forgive(now.since(self.now).saturating_sub(LATE_MAX));
        }
    }

    /// Ends the pass.
    #[inline]
    pub(crate) const fn end_pass(&mut self) {
        debug_assert!(self.in_pass, "a pass ends once");
        self.in_pass = false;
    }

    /// Returns true if a pass is running, so that `now` is current.
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
