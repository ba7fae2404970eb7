//! The state of a shard that is neither fabric nor app.

use crate::{
    account::Account,
    app::{Action, Answer, CallFault, CallId, ClientName, PeerId, Token},
    config::Config,
    memory::Memory,
    options::PeerOptions,
    responder::line::{Line, Wait},
    stages::{Stage, Watch},
    stats::Counters,
};
use stag_pools::{Buf, Class, Extent, Fenced, Pool, RemoteKey, Table, table::Key};
use stag_protocol::rpcrdma::{
    Body, ChunkLists, Connection, Credits, ErrorReply, Header, PeerMemory, Side, Xid, chunk::READS_MAX,
    responder::Pull,
};
use stag_verbs::{Cause, PeerAddress, Qp, Time};
use std::{collections::VecDeque, io, time::Duration};

/// Everything apps and transports share. Sized at start, allocates nothing afterwards.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) memory: Memory,
    /// Receives have a pool of their own, so that nothing else can use them up.
    pub(crate) receives: Pool,
    pub(crate) peers: Table<Peer>,
    /// The peer of each place in the provider's connection table.
    pub(crate) by_qp: Vec<Option<(Qp, PeerId)>>,
    pub(crate) inbound: Table<Inbound>,
    /// The chunk lists of each place in `inbound`: apart, so that a call without chunks moves none.
    pub(crate) inbound_lists: Box<[ChunkLists]>,
    pub(crate) outbound: Table<Outbound>,
    /// What each call of ours offered, by place in `outbound`.
    pub(crate) offered: Box<[ChunkLists]>,
    /// Lists of the message that is being looked at.
    pub(crate) lists: ChunkLists,
    /// Lists of the reply that is being built.
    pub(crate) returned: ChunkLists,
    /// What the app asked for and did not get yet: an answer that is nothing but a message, the peer of fresh calls, and then what
    /// else it asked for.
    pub(crate) answered: Option<(CallId, Buf)>,
    pub(crate) to_start: Option<PeerId>,
    pub(crate) outbox: VecDeque<Action>,
    /// Calls of peers that wait for memory to be pulled into, or for their reply.
    pub(crate) line: Line,
    /// Calls of peers whose reply waits for room in a send queue or for memory. They go before `line`: they free memory.
    pub(crate) replies: VecDeque<Unsent>,
    /// RDMA_ERROR messages that wait for the same.
    pub(crate) errors: VecDeque<(Qp, ErrorReply)>,
    /// Something ended for which those replies and messages may wait.
    pub(crate) has_room: bool,
    /// Places for what only calls with chunks have.
    pub(crate) pulled: Spare<FabricCall>,
    pub(crate) offers: Spare<Offers>,
    /// Padding to push.
    pub(crate) zeros: Extent,
    pub(crate) counters: Counters,
    /// Calls of peers that are watched.
    pub(crate) watch: Watch,
    pub(crate) now: Time,
    /// The caller of the call that the app is looking at.
    pub(crate) serving: Option<PeerId>,
    /// Peers with calls that wait for room in a send queue, or for receives; or with an answer to their question.
    pub(crate) stuck: VecDeque<PeerId>,
    /// Receives promised to connections: their grants, and the replies they may bring.
    pub(crate) reserved: usize,
    pub(crate) next_xid: u32,
    /// Bits of an XID that say the place of its call.
    pub(crate) place_bits: u32,
    pub(crate) stopping: bool,
    pub(crate) next_expiry: Time,
    pub(crate) next_stall: Time,
    /// When those that wait for memory or room are looked at, whatever happened to them.
    pub(crate) next_look: Time,
    /// Whether a pass is under way, so that `now` is the time.
    pub(crate) in_pass: bool,
    /// Calls that were made outside of a pass: their deadline was counted from the latest one, which may be long over, and the
    /// next one counts it from its own time.
    pub(crate) unclocked: Vec<Key>,
    /// Peers whose connection is to be made again, and peers that may come back.
    pub(crate) lost: usize,
    pub(crate) absent: usize,
    jitter: u64,
}

/// One peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) link: Link,
    pub(crate) address: PeerAddress,
    /// Who we are to it: a client if we connected.
    pub(crate) side: Side,
    /// Calls of ours that wait for a credit, or for the connection.
    pub(crate) waiting: VecDeque<Key>,
    /// Whether it is among the [`Core::stuck`].
    pub(crate) stuck: bool,
    /// Whether it outlives its connections: it is connected again, or may come back.
    pub(crate) kept: bool,
    /// What the app calls it.
    pub(crate) name: Option<ClientName>,
    /// Who has this peer's name and gets its calls when its connection has ended: it came back over another one.
    pub(crate) heir: Option<PeerId>,
    /// Whether it takes calls (RFC 8167 §6): always, when we connected.
    pub(crate) ready: bool,
    /// What is remembered of its versions from one connection to the next.
    pub(crate) memory: PeerMemory,
    /// Connections tried in vain since the last reply.
    pub(crate) attempts: u32,
    /// Receives this connection reserved.
    pub(crate) reserved: usize,
    /// Requests of options, and the receives among the reserved ones that they need.
    pub(crate) options: PeerOptions,
    /// Buffers that its Reads are to fill.
    pub(crate) pulling: usize,
    /// Memory that its connection keeps from others.
    pub(crate) account: Account,
    /// The first and the last of its calls that wait for memory or room, which [`Line`] joins.
    pub(crate) deferred: Option<(Key, Key)>,
    /// The event that the first of them waits for.
    pub(crate) wait: Wait,
    /// When it began to wait for that.
    pub(crate) waits_since: Time,
    /// Why we are ending its connection, if that is to be told.
    pub(crate) ending: Option<Cause>,
    /// Credits that its latest call asked for, when that was, and replies since its grant was looked at.
    pub(crate) wanted: u32,
    pub(crate) called_at: Time,
    pub(crate) replies: u32,
    /// Whether the app was told of this peer.
    pub(crate) up: bool,
    /// When it has to have answered the first message of version 2.
    pub(crate) version_by: Option<Time>,
}

/// What leads to a peer.
#[derive(Debug)]
pub(crate) enum Link {
    /// A connection of the provider. `state` is there once the peer's private data is known.
    Fabric { qp: Qp, state: Option<Connection> },
    /// None: it is tried again at this time.
    Lost { retry_at: Time },
    /// None since this time: the peer has to come back.
    Absent { since: Time },
    /// A TCP connection, by its key among the streams.
    Stream(Key),
}

/// Boxes that are in no use, as many as can be in use at once.
#[derive(Debug)]
pub(crate) struct Spare<T>(Vec<Box<T>>);

impl<T: Default> Spare<T> {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| Box::default()).collect())
    }

    pub(crate) fn take(&mut self) -> Box<T> {
        self.0.pop().expect("there is one for each call")
    }

    pub(crate) fn give(&mut self, mut value: Box<T>) {
        *value = T::default();
        self.0.push(value);
    }
}

/// A call of a peer. Short, for most calls are over as soon as they arrived: what only some have is elsewhere.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) peer: PeerId,
    pub(crate) xid: Xid,
    pub(crate) state: InboundState,
    /// Whether its header said anything in [`Core::inbound_lists`].
    pub(crate) has_lists: bool,
    /// Until it is dispatched, and only if there is something to pull.
    pub(crate) fabric: Option<Box<FabricCall>>,
}

/// A call whose chunks are pulled.
#[derive(Debug)]
pub(crate) struct FabricCall {
    pub(crate) header: Header,
    pub(crate) payload_at: usize,
    pub(crate) message: Option<Buf>,
    pub(crate) pull: Pull,
    /// What was pulled, by place in `pull.chunks()`.
    pub(crate) chunks: [Option<Buf>; READS_MAX],
    /// Reads done.
    pub(crate) pulled: usize,
    /// When it arrived.
    pub(crate) since: Time,
    /// Octets of memory that the peer holds while its Reads are under way.
    pub(crate) held: u64,
    /// Octets of memory that its reply may take.
    pub(crate) expected: u64,
}

/// A reply that could not be sent yet.
#[derive(Debug)]
pub(crate) struct Unsent {
    pub(crate) call: Key,
    pub(crate) answer: Answer,
    /// Octets that its peer holds because it waits, beyond what every reply of its size holds.
    pub(crate) held: u64,
}

/// What a call of a peer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InboundState {
    /// Memory or send queue room for its Reads, or its peer's share for its reply.
    AwaitSink,
    /// The peer's memory.
    AwaitPull,
    /// The app.
    AwaitAnswer,
    /// Room in the send queue for its reply, which is among the [`Core::replies`].
    AwaitRoom,
}

/// A call of ours. Its message, item and result are here, except while the provider has them.
#[derive(Debug)]
pub(crate) struct Outbound {
    pub(crate) peer: PeerId,
    pub(crate) token: Token,
    /// Chosen when it is sent for the first time; the same when it is sent again (RFC 8166 §4.2.1).
    pub(crate) xid: Option<Xid>,
    pub(crate) deadline: Time,
    pub(crate) state: OutboundState,
    /// Nobody wants the reply any more.
    pub(crate) cancelled: bool,
    /// The RPC message; away from the Send until its completion.
    pub(crate) message: Option<Buf>,
    pub(crate) sent: Sent,
    pub(crate) reply_max: usize,
    /// Only if it has an item, or room for a result or for a long reply, or ended before the app hears of it.
    pub(crate) offers: Option<Box<Offers>>,
}

// It is moved when it begins and when it ends.
const _: () = assert!(size_of::<Outbound>() <= 128);

/// What a call of ours may offer in chunks.
#[derive(Debug, Default)]
pub(crate) struct Offers {
    /// Octets of the message in front of the item.
    pub(crate) position: Option<usize>,
    pub(crate) item: Option<Buf>,
    /// The item while it is sent over TCP.
    pub(crate) shared: Option<Extent>,
    pub(crate) result: Option<Buf>,
    /// Windows that are not fenced yet, and what they had exposed.
    pub(crate) windows: [Option<(RemoteKey, Role)>; Outbound::WINDOWS],
    pub(crate) reply_room: Option<Buf>,
    /// Octets that came in the Write chunk, as the reply says.
    pub(crate) written: usize,
    /// Octets at the front of the result's room, and of the reply's, that are not an earlier owner's ([`Fenced::filled`]).
    pub(crate) result_filled: usize,
    pub(crate) reply_filled: usize,
    pub(crate) reply: Option<ReplyMemory>,
}

/// What was done to the message that is being sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Octets of transport header in front of it.
    pub(crate) header_len: u32,
    /// Octets of the item, with its padding, that were inserted.
    pub(crate) inserted: u32,
    /// The message travels in a chunk; what is sent is a header alone.
    pub(crate) long: bool,
}

/// What a window of a call exposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The argument.
    Item,
    /// The whole call message.
    Message,
    /// The room for the result.
    Result,
    /// The room for the whole reply.
    ReplyRoom,
}

/// How a call of ours ended.
#[derive(Debug)]
pub(crate) enum ReplyMemory {
    /// The RPC message stands behind the header of a receive.
    Inline { message: Buf, payload_at: usize },
    /// It is in the reply room: this many octets.
    Room(usize),
    /// There is none.
    Fault(CallFault),
}

/// What a call of ours waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutboundState {
    /// A credit, and a connection.
    AwaitCredit,
    /// The reply.
    AwaitReply,
    /// The last window's fence.
    AwaitFence,
    /// The last window's fence, and its own message, to go out again on the same connection.
    AwaitWhole,
    /// The end of the connection, for its reply cannot be used and its keys are dead. It goes again over the next one, if any.
    AwaitNext,
    /// The end of the connection, because its deadline passed.
    AwaitEnd,
}

/// Longest pause between two attempts to connect, and the first one that is not zero.
const PAUSE_MAX: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Time between two passes for which peers answer while something waits. Any more is not theirs.
const LATE_MAX: Duration = Duration::from_millis(100);

impl Peer {
    /// A peer without receives of its own.
    pub(crate) fn new(side: Side, link: Link, now: Time) -> Self {
        Self {
            link,
            address: PeerAddress::Simulated,
            side,
            waiting: VecDeque::new(),
            stuck: false,
            kept: false,
            name: None,
            heir: None,
            ready: side == Side::Client,
            memory: PeerMemory::new(),
            attempts: 0,
            reserved: 0,
            options: PeerOptions::default(),
            pulling: 0,
            account: Account::new(now),
            deferred: None,
            wait: Wait::Nothing,
            waits_since: now,
            ending: None,
            wanted: 0,
            called_at: now,
            replies: 0,
            up: false,
            version_by: None,
        }
    }
}

impl Outbound {
    /// An argument or a whole message, and room for a result or for a reply.
    pub(crate) const WINDOWS: usize = 2;

    /// Puts a fenced window's buffer where it belongs. It comes back when the call has no such window.
    pub(crate) fn fence(&mut self, fenced: Fenced) -> Result<(), Fenced> {
        let (key, filled) = (fenced.key(), fenced.filled());
        let Some(offers) = &mut self.offers else { return Err(fenced) };
        let window = offers.windows.iter_mut().find(|window| window.is_some_and(|(known, _)| known == key));
        let Some((_, role)) = window.and_then(Option::take) else { return Err(fenced) };
        let buf = fenced.into_buf();
        match role {
            Role::Item => offers.item = Some(buf),
            // A copy: the message itself stayed here.
            Role::Message => drop(buf),
            Role::Result => (offers.result, offers.result_filled) = (Some(buf), filled),
            Role::ReplyRoom => (offers.reply_room, offers.reply_filled) = (Some(buf), filled),
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn is_fenced(&self) -> bool {
        self.offers.as_ref().is_none_or(|offers| offers.windows.iter().all(Option::is_none))
    }

    /// Whether it is known how it ended.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.offers.as_ref().is_some_and(|offers| offers.reply.is_some())
    }

    /// Notes how it ended, if that is not known.
    pub(crate) fn end(&mut self, reply: ReplyMemory, spare: &mut Spare<Offers>) {
        self.offers.get_or_insert_with(|| spare.take()).reply.get_or_insert(reply);
    }

    /// What it had bound and is not fenced.
    pub(crate) fn windows(&self) -> [Option<(RemoteKey, Role)>; Self::WINDOWS] {
        self.offers.as_ref().map_or([None; Self::WINDOWS], |offers| offers.windows)
    }
}

impl Default for FabricCall {
    /// Of no call.
    fn default() -> Self {
        let header = Header { xid: Xid(0), credits: Credits(0), body: Body::Msg };
        let chunks = [const { None }; READS_MAX];
        Self {
            header,
            payload_at: 0,
            message: None,
            pull: Pull::NONE,
            chunks,
            pulled: 0,
            since: Time(0),
            held: 0,
            expected: 0,
        }
    }
}

impl Core {
    /// Takes the shard's memory. Fails as `mmap(2)` does.
    /// Everything of a shard whose fabric holds so many connections; `make` makes each of its pools.
    pub(crate) fn new(
        config: Config,
        connections: usize,
        mut make: impl FnMut(&[Class]) -> io::Result<Pool>,
    ) -> io::Result<Self> {
        let memory = Memory::new(make(&config.classes())?, &config);
        let receives = make(&[Class { slot_len: config.receive_len, count: config.receives }])?;
        let mut zeros = make(&[Class { slot_len: 64, count: 1 }])?.take(64).expect("the pool has one slot");
        zeros.extend(64);
        let lists = |count: usize| (0..count).map(|_| ChunkLists::new()).collect::<Box<[_]>>();
        Ok(Self {
            memory,
            receives,
            peers: Table::new(config.peers + config.streams),
            by_qp: vec![None; connections],
            inbound: Table::new(config.inbound),
            inbound_lists: lists(config.inbound),
            outbound: Table::new(config.outbound),
            offered: lists(config.outbound),
            lists: ChunkLists::new(),
            returned: ChunkLists::new(),
            answered: None,
            to_start: None,
            outbox: VecDeque::with_capacity(config.inbound + config.outbound),
            line: Line::new(config.inbound, config.peers + config.streams),
            replies: VecDeque::with_capacity(config.inbound),
            errors: VecDeque::with_capacity(config.inbound),
            has_room: false,
            pulled: Spare::new(config.inbound),
            offers: Spare::new(config.outbound),
            stuck: VecDeque::with_capacity(config.peers),
            zeros: zeros.freeze(),
            counters: Counters::new(),
            watch: Watch::new(config.sampling, config.inbound),
            now: Time(0),
            serving: None,
            reserved: 0,
            next_xid: config.xid_seed,
            place_bits: config.outbound.max(2).next_power_of_two().trailing_zeros(),
            stopping: false,
            next_expiry: Time(0),
            next_stall: Time(0),
            next_look: Time(0),
            in_pass: false,
            unclocked: Vec::with_capacity(config.outbound),
            lost: 0,
            absent: 0,
            jitter: config.xid_seed.into(),
            config,
        })
    }

    /// Notes the peer behind a connection. A provider may number its connections beyond those it can have at once, because
    /// some are still ending; the table grows then, at a connection's start and never on a call's way.
    pub(crate) fn name_qp(&mut self, qp: Qp, peer: PeerId) {
        let place = qp.0.index();
        if place >= self.by_qp.len() {
            self.by_qp.resize(place + 1, None);
        }
        if let Some(entry) = self.by_qp.get_mut(place) {
            *entry = Some((qp, peer));
        }
    }

    /// Whether a call or a reply waits for memory or for room.
    pub(crate) fn has_deferred(&self) -> bool {
        let has_answers = !self.replies.is_empty() || !self.errors.is_empty();
        has_answers || !self.line.is_empty() || !self.stuck.is_empty()
    }

    /// Forgets replies whose calls are gone.
    pub(crate) fn forget_replies(&mut self) {
        let Self { replies, inbound, .. } = self;
        replies.retain(|unsent| inbound.get(unsent.call).is_some());
    }

    /// A call of a peer is over, one way or another.
    #[inline]
    pub(crate) fn forget_inbound(&mut self, key: Key) {
        if let Some(Inbound { fabric: Some(fabric), .. }) = self.inbound.remove(key) {
            self.pulled.give(fabric);
        }
    }

    /// Forgets the calls that came over a peer's connection, for it is over.
    pub(crate) fn forget_calls_from(&mut self, peer: PeerId) {
        let Self { inbound, pulled, .. } = self;
        inbound.retain(|_, call| {
            if call.peer != peer {
                return true;
            }
            if let Some(fabric) = call.fabric.take() {
                pulled.give(fabric);
            }
            false
        });
    }

    /// The peer behind a connection of the provider.
    #[inline]
    pub(crate) fn peer_of(&self, qp: Qp) -> Option<PeerId> {
        self.by_qp
            .get(qp.0.index())
            .copied()
            .flatten()
            .filter(|(known, _)| *known == qp)
            .map(|(_, peer)| peer)
    }

    /// The connection of a fabric peer.
    pub(crate) fn connection(&mut self, peer: PeerId) -> Option<(Qp, &mut Connection)> {
        match &mut self.peers.get_mut(peer.0)?.link {
            Link::Fabric { qp, state: Some(state) } => Some((*qp, state)),
            Link::Fabric { state: None, .. } | Link::Lost { .. } | Link::Absent { .. } | Link::Stream(_) => {
                None
            }
        }
    }

    /// Puts a fenced window's buffer into the call of `peer` that had bound it. None when no call had.
    pub(crate) fn deposit(&mut self, peer: PeerId, mut fenced: Fenced) -> Option<Key> {
        for (key, call) in self.outbound.iter_mut().filter(|(_, call)| call.peer == peer) {
            match call.fence(fenced) {
                Ok(()) => return Some(key),
                Err(back) => fenced = back,
            }
        }
        None
    }

    /// A call of a peer leaves a stage of its way.
    #[inline]
    pub(crate) fn stamp(&mut self, call: Key, stage: Stage) {
        self.watch.stamp(call, stage, self.now);
    }

    /// Notes a call that is made outside of a pass.
    #[inline]
    pub(crate) fn note_unclocked(&mut self, key: Key) {
        if self.in_pass {
            return;
        }
        let Self { unclocked, outbound, .. } = self;
        if unclocked.len() == unclocked.capacity() {
            // Those that were given up since the latest pass; there is a place for every other one.
            unclocked.retain(|key| outbound.get(*key).is_some());
        }
        unclocked.push(key);
    }

    /// Begins a pass at `now`, from which calls made since the latest pass count their time.
    pub(crate) fn begin_pass(&mut self, now: Time) {
        // Nanoseconds are compared as they are: this is done in every pass.
        let late = now.0.saturating_sub(self.now.0) > LATE_MAX.as_nanos() as u64;
        while let Some(key) = self.unclocked.pop() {
            let passed = now.since(self.now);
            let Some(call) = self.outbound.get_mut(key) else { continue };
            call.deadline = call.deadline + passed;
            if call.state == OutboundState::AwaitReply
                && let Some(Peer { version_by: Some(by), .. }) = self.peers.get_mut(call.peer.0)
            {
                *by = *by + passed;
            }
        }
        // While something waits nobody sleeps for so long.
        if late && self.has_deferred() {
            self.forgive(now.since(self.now).saturating_sub(LATE_MAX));
        }
        self.now = now;
        self.in_pass = true;
    }

    /// How long to wait before attempt `attempts` to connect: not at all, then 50 ms doubling to 5 s, a quarter of it by chance, so
    /// that clients of one server do not come back together.
    pub(crate) fn pause(&mut self, attempts: u32) -> Duration {
        let Some(doublings) = attempts.checked_sub(1) else { return Duration::ZERO };
        let pause = PAUSE_MIN.saturating_mul(1 << doublings.min(7)).min(PAUSE_MAX);
        // A linear congruential step (Knuth): good enough to spread clients, and a seed repeats it.
        self.jitter =
            self.jitter.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let quarter = pause / 4;
        pause - quarter + quarter.mul_f64((self.jitter >> 40) as f64 / f64::from(1 << 24))
    }

    /// A fresh XID that leads back to `place` (RFC 8166 §4.2.1).
    #[inline]
    pub(crate) fn xid(&mut self, place: usize) -> Xid {
        self.next_xid = self.next_xid.wrapping_add(1);
        Xid(self.next_xid << self.place_bits | place as u32)
    }

    /// The call of `peer` that has this XID and was sent.
    #[inline]
    pub(crate) fn outbound_by_xid(&self, peer: PeerId, xid: Xid) -> Option<Key> {
        let place = (xid.0 & ((1 << self.place_bits) - 1)) as usize;
        let key = self.outbound.key_at(place)?;
        let call = self.outbound.get(key)?;
        (call.peer == peer && call.xid == Some(xid) && call.state != OutboundState::AwaitCredit)
            .then_some(key)
    }

    /// Whether `wanted` more receives can be promised.
    pub(crate) fn fits_receives(&self, wanted: usize) -> bool {
        wanted <= self.free_receives()
    }

    /// Receives that are promised to nobody.
    pub(crate) fn free_receives(&self) -> usize {
        self.config.receives.saturating_sub(self.reserved + Self::SLACK)
    }

    /// Receives beyond every promise: for RDMA_ERROR messages and for garbage.
    const SLACK: usize = 8;

    /// Whether the app asked for something.
    #[inline]
    pub(crate) fn has_wishes(&self) -> bool {
        self.answered.is_some() || self.to_start.is_some() || !self.outbox.is_empty()
    }

    pub(crate) fn count_disconnect(&mut self, cause: Cause) {
        self.counters.disconnects.count(cause);
    }
}
