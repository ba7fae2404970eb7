//! One shard: a fabric, an app, and the loop that joins them.

use crate::{
    app::{Action, App, Cx, PeerId},
    config::{Config, HEAD_ROOM, INLINE_LEN},
    control::{Command, Control},
    core::{Core, Link},
    responder::reply::Bulk,
    stats::Snapshot,
    stream::Streams,
    work::Work,
};
use rustix::{
    event::{Timespec, epoll},
    fd::OwnedFd,
};
use stag_pools::{Budget, Buf, Fenced, Pool, table::Walk};
use stag_protocol::rpcrdma::{
    self, ErrorBody, ErrorReply, InlineSize, Offer, Version,
    chunk::{READS_MAX, SEGMENTS_MAX},
};
use stag_verbs::{
    Event, FabricFault, Memory, PeerAddress, Provider, Qp, Refusal, Refused, Status, Tag, Time,
};
use std::{fmt, io, net::SocketAddr, time::Duration};

/// Says whether a peer may connect.
pub type Admission = Box<dyn Fn(PeerAddress) -> bool>;

/// Events handled before the rest of a pass gets its turn.
const EVENTS_PER_PASS: usize = 256;
/// Longest time between two looks at deadlines; a look happens earlier when one is known to be due.
const EXPIRY_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// How long a stopping shard waits for callers over TCP to close.
const FAREWELL: Duration = Duration::from_millis(200);
/// Longest sleep while something waits for memory or for room in a queue.
const DEFERRED_MAX: Duration = Duration::from_millis(1);
/// Longest sleep: a bound on the damage of a wake-up that was missed.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// A fabric, an app and everything between them, on one core.
pub struct Shard<P: Provider, A: App> {
    pub(crate) provider: P,
    pub(crate) app: A,
    pub(crate) core: Core,
    pub(crate) streams: Streams,
    pub(crate) admission: Admission,
    /// The same over TCP, if it differs.
    pub(crate) stream_admission: Option<Admission>,
    pub(crate) offer: Offer,
    /// Where each peer that is kept connected is, by its place among the peers.
    pub(crate) targets: Box<[Option<P::Address>]>,
}

impl<P: Provider, A: App> fmt::Debug for Shard<P, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard").field("peers", &self.core.peers.len()).finish_non_exhaustive()
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// A shard with its memory taken and its receives posted. Fails as `mmap(2)` and `epoll_create(2)` do.
    ///
    /// # Panics
    /// When the provider cannot hold what `config` promises: that is a mistake of whoever made both.
    pub fn new(mut provider: P, app: A, config: Config, admission: Admission) -> io::Result<Self> {
        let config = config.settled();
        let limits = provider.limits();
        assert!(config.receives <= limits.receives, "the provider holds every receive");
        assert!(config.receive_len >= limits.receive_len, "a receive is as long as the provider says");
        let two = config.serve_versions.include_two() || config.call_versions.include_two();
        assert!(!two || config.receive_len >= 4_096, "version 2 takes messages of 4,096 octets");
        assert!(config.inbound >= config.receives, "every call that can arrive has a place");
        // A device without windows answers; calls of ours through it have to fit inline (DESIGN D1).
        let has_windows = config.outbound * 2 <= limits.windows || limits.windows == 0;
        assert!(has_windows, "every call of ours has its windows");
        assert!(limits.read_spans >= SEGMENTS_MAX, "one Read takes every segment that a call may name");
        assert!(config.inbound.max(config.outbound) <= Work::PLACES_MAX, "a tag names every call");
        assert!(limits.send_queue > READS_MAX, "the Reads of a call fit the send queue");
        let size = |len: usize| InlineSize::at_most(u32::try_from(len).unwrap_or(u32::MAX));
        let offer = match config.private_data {
            true => Offer {
                // draft 001 §2.1 [reminv-8]
                remote_invalidation: limits.remote_invalidation,
                send: size(INLINE_LEN),
                receive: size(config.receive_len),
            },
            false => Offer::SILENT,
        };
        let connections = limits.connections;
        let make = if provider.wants_shared_pools() { Pool::shared } else { Pool::new };
        let core = Core::new(config, connections, |classes| {
            let pool = make(classes)?;
            provider.register(&pool)?;
            Ok(pool)
        })?;
        let streams = Streams::new(core.config.streams, core.config.slots[0])?;
        let targets = (0..core.peers.capacity()).map(|_| None).collect();
        let mut shard =
            Self { provider, app, core, streams, admission, stream_admission: None, offer, targets };
        shard.replenish();
        Ok(shard)
    }

    /// Makes a pool of the app's own known to the fabric, before it serves anybody: a device reaches nothing else. Fails as
    /// [`Provider::register`] does.
    pub fn register(&mut self, pool: &Pool) -> io::Result<()> {
        self.provider.register(pool)
    }

    /// Waits for peers of the fabric at `at`; returns the address in use.
    pub fn listen(&mut self, at: &P::Address) -> Result<P::Address, FabricFault> {
        self.provider.listen(at)
    }

    /// Decides by `admission` who may connect over TCP, instead of as over the fabric.
    pub fn admit_streams_by(&mut self, admission: Admission) {
        self.stream_admission = Some(admission);
    }

    /// Waits for callers over TCP at `at`; returns the address in use. `shared` lets several shards wait at one address.
    pub fn listen_tcp(&mut self, at: SocketAddr, shared: bool) -> io::Result<SocketAddr> {
        self.streams.listen(at, shared)
    }

    /// The app.
    pub const fn app(&self) -> &A {
        &self.app
    }

    /// The app and what it can do, from outside of a pass.
    pub fn with_app<R>(&mut self, run: impl FnOnce(&mut A, &mut Cx<'_>) -> R) -> R {
        let result = run(&mut self.app, &mut Cx { core: &mut self.core });
        self.empty_outbox();
        result
    }

    /// The fabric, for its own counters.
    pub const fn provider(&self) -> &P {
        &self.provider
    }

    /// What the shard's memory costs: its buffers, and its receives.
    pub fn budgets(&self) -> [Budget; 2] {
        [self.core.memory.budget(), self.core.receives.budget()]
    }

    /// Buffers that somebody holds, receives posted excepted. Zero when nothing is in progress.
    pub fn buffers_in_use(&self) -> usize {
        self.core.memory.taken() + self.core.receives.taken() - self.provider.receives_posted()
    }

    /// Calls that are not over: of peers, and of ours.
    pub fn calls_in_progress(&self) -> (usize, usize) {
        (self.core.inbound.len(), self.core.outbound.len())
    }

    /// Receives promised to connections that live: grants, and replies to our own calls.
    pub const fn receives_promised(&self) -> usize {
        self.core.reserved
    }

    /// The version of RPC-over-RDMA that a peer's connection keeps to, once that is settled. None over TCP.
    pub fn version(&self, peer: PeerId) -> Option<Version> {
        match &self.core.peers.get(peer.0)?.link {
            Link::Fabric { state: Some(connection), .. } => connection.version(),
            _ => None,
        }
    }

    /// The counters.
    pub fn snapshot(&self) -> Snapshot<A::Report> {
        let mut engine = self.core.counters.snapshot();
        engine.connections.live = self.core.peers.iter().filter(|(_, peer)| peer.up).count() as u64;
        let fabric = (P::SCHEME, self.provider.counts());
        let stages = self.core.watch.stages().clone();
        Snapshot { engine, fabric, stages, app: self.app.report() }
    }

    /// One turn: everything that can be done without waiting. True when there was something to do.
    pub fn pass(&mut self, now: Time) -> bool {
        self.core.begin_pass(now);
        self.core.counters.stats.passes.total += 1;
        let mut events = 0;
        while events < EVENTS_PER_PASS
            && let Some(event) = self.provider.poll(now)
        {
            self.handle_event(event);
            events += 1;
        }
        let deferred = self.core.has_deferred() && self.retry_deferred() | self.retry_stuck();
        let has_streams = self.streams.are_in_use();
        let octets = has_streams && self.poll_streams(now);
        self.app.on_pass_end(&mut Cx { core: &mut self.core });
        self.empty_outbox();
        self.expire();
        self.replenish();
        let sent = has_streams && self.flush_streams();
        self.empty_outbox();
        // Last, so that whatever the pass produced leaves before the core may sleep.
        self.provider.ring();
        self.core.watch.ring(self.core.now);
        self.core.in_pass = false;
        events > 0 || deferred || octets || sent
    }

    /// Runs until told to stop. Spins while there is work, then sleeps (DESIGN D10).
    pub fn run(&mut self, control: &Control<Snapshot<A::Report>>, now: impl Fn() -> Time) -> io::Result<()> {
        let sleeper = Sleeper::new(self, control)?;
        let mut busy_at = now();
        loop {
            let time = now();
            let worked = self.pass(time);
            if worked {
                busy_at = time;
            } else {
                std::hint::spin_loop();
            }
            let commands = control.look();
            if commands & Command::Snapshot as u32 != 0 {
                control.send(self.snapshot());
            }
            if commands & Command::Stop as u32 != 0 {
                return self.stop(now);
            }
            if !worked && time.since(busy_at) >= self.core.config.spin && self.provider.arm() {
                self.core.counters.stats.passes.sleeps += 1;
                sleeper.sleep(self.sleep_for(now()))?;
                control.awake();
                busy_at = now();
            }
        }
    }

    /// Takes no more peers and no more calls, lets those in progress finish for a while, sends what was answered, and
    /// disconnects everybody.
    fn stop(&mut self, now: impl Fn() -> Time) -> io::Result<()> {
        self.core.stopping = true;
        self.provider.stop_listening();
        self.streams.stop();
        let until = now() + self.core.config.drain;
        while (!self.core.inbound.is_empty() || self.streams.has_output()) && now() < until {
            self.pass(now());
            std::thread::yield_now();
        }
        // Callers over TCP see the end behind their last reply; they close, or a moment passes.
        self.streams.say_end();
        let until = now() + self.core.config.drain.min(FAREWELL);
        while !self.streams.is_empty() && now() < until {
            self.pass(now());
            std::thread::yield_now();
        }
        let peers: Vec<_> = self.core.peers.iter().map(|(key, _)| PeerId(key)).collect();
        peers.into_iter().for_each(|peer| self.end_peer(peer));
        let until = now() + self.core.config.drain;
        while !self.core.peers.is_empty() && now() < until {
            self.pass(now());
            std::thread::yield_now();
        }
        Ok(())
    }

    fn sleep_for(&self, now: Time) -> Duration {
        // What waits for memory or for room is tried again soon, whatever frees it.
        let longest = if self.core.has_deferred() { DEFERRED_MAX } else { SLEEP_MAX };
        self.wake_at().map_or(longest, |at| at.since(now).min(longest))
    }

    #[inline]
    fn handle_event(&mut self, event: Event) {
        match event {
            Event::ConnectRequest { qp } => self.handle_connect_request(qp),
            Event::Established { qp } => self.handle_established(qp),
            Event::Received { qp, buf, invalidated } => self.handle_received(qp, buf, invalidated),
            Event::Completed { qp, tag, status, memory } => self.handle_completed(qp, tag, status, memory),
            Event::Unbound { qp, fenced } => self.handle_fenced(qp, fenced),
            Event::Disconnected { qp, cause } => self.handle_disconnected(qp, cause),
        }
    }

    fn handle_completed(&mut self, qp: Qp, tag: Tag, status: Status, memory: Memory) {
        if self.core.has_deferred() {
            self.core.note_room(qp);
        }
        match (Work::of(tag), memory) {
            (_, Memory::Fenced(fenced)) => self.handle_fenced(qp, fenced),
            (Work::BulkReply(bulk), Memory::Buf(_)) => self.handle_bulk_sent(qp, bulk),
            (Work::Call(key), Memory::Buf(message)) => self.handle_call_sent(key, message),
            (Work::Read(key), Memory::Buf(sink)) => self.handle_pulled(qp, key, status, sink),
            // A reply that was sent gives its buffer back by being dropped.
            (Work::Untracked | Work::Invalidation(_), Memory::Buf(_)) => {}
            // An extent was given back already, and a flushed invalidation proves nothing.
            (_, Memory::Shared | Memory::Bound) => {}
        }
    }

    /// Does what the app asked for, until it asks for nothing more.
    #[inline]
    pub(crate) fn empty_outbox(&mut self) {
        // Most of the time it asks for nothing, and this is asked several times for each call.
        if self.core.has_wishes() {
            self.do_actions();
        }
    }

    #[inline(never)]
    fn do_actions(&mut self) {
        loop {
            // What was noted beside the outbox was asked for before all that is in it.
            if let Some((call, message)) = self.core.answered.take() {
                self.answer_message(call, message);
                continue;
            }
            if let Some(peer) = self.core.to_start.take() {
                self.start_waiting(self.core.known_as(peer));
                continue;
            }
            let Some(action) = self.core.outbox.pop_front() else { return };
            match action {
                Action::Answer(call, answer) => self.answer(call, answer),
                Action::Call(peer, request) => self.call(peer, request),
                Action::Moved(peer) => self.note_move(peer),
                Action::Start(peer) => self.start_waiting(peer),
                Action::Cancel(peer, token) => self.cancel(peer, token),
                Action::AskHealth(peer) => self.ask_health(peer),
                Action::EndConnection(peer) => self.disconnect(peer),
                Action::Disconnect(peer) => self.end_peer(peer),
            }
        }
    }

    /// Sends an RDMA_ERROR: the call must not stay open (RFC 8166 §4.5.4). It waits for memory and for room as replies do.
    pub(crate) fn send_error(&mut self, qp: Qp, reply: &ErrorReply) {
        let Some(mut message) = self.header_message() else { return self.keep_error(qp, reply) };
        let Ok(len) = rpcrdma::emit_error(reply, message.spare_mut()) else {
            return self.provider.disconnect(qp);
        };
        message.extend(len);
        match self.provider.post_send(qp, Work::Untracked.tag(), message, None) {
            Ok(()) => {
                let stats = &mut self.core.counters.stats.responder;
                stats.errors += 1;
                stats.version_errors += u64::from(matches!(reply.error, ErrorBody::Version { .. }));
            }
            Err(Refused { why: Refusal::SendQueueFull, .. }) => self.keep_error(qp, reply),
            Err(_) => self.provider.disconnect(qp),
        }
    }

    /// Has an error wait. There is a place for every call; only a peer that gets more than one for a call finds none.
    fn keep_error(&mut self, qp: Qp, reply: &ErrorReply) {
        if self.core.errors.len() == self.core.errors.capacity() {
            return self.provider.disconnect(qp);
        }
        self.core.counters.stats.limits.send_queue += 1;
        self.core.errors.push_back((qp, *reply));
    }

    /// A message buffer for a transport header without payload.
    pub(crate) fn header_message(&self) -> Option<Buf> {
        let mut message = self.core.memory.take(HEAD_ROOM)?;
        message.reset(0);
        Some(message)
    }

    /// A long reply has left: its peer gives back what it held.
    fn handle_bulk_sent(&mut self, qp: Qp, bulk: Bulk) {
        if let Some(peer) = self.core.peer_of(qp) {
            self.core.end_bulk(peer, bulk);
        }
    }

    fn handle_fenced(&mut self, qp: Qp, fenced: Fenced) {
        let Some(peer) = self.core.peer_of(qp) else { return };
        if let Some(call) = self.core.deposit(peer, fenced) {
            self.finish_if_fenced(call);
        }
    }

    /// Keeps every receive posted that no call holds, and the promise of DESIGN D8 with it.
    fn replenish(&mut self) {
        // draft 002 §4.3.1 [bidir-12]
        while let Some(buf) = self.core.receives.take(self.core.config.receive_len) {
            if let Err(back) = self.provider.post_receive(buf) {
                drop(back);
                // draft 004 §4.5.1 [exp-28]
                if self.core.receives.taken() < self.core.reserved {
                    self.withdraw_promises();
                }
                break;
            }
        }
        debug_assert!(
            self.core.receives.taken() >= self.core.reserved || self.core.receives.available(1) > 0,
            "a promise that no receive covers"
        );
    }

    /// Looks at deadlines and at connections to be made again, when the first of them is due.
    #[inline]
    fn expire(&mut self) {
        if self.core.now >= self.core.next_expiry.min(self.core.next_stall) {
            self.look_at_deadlines();
        }
    }

    fn look_at_deadlines(&mut self) {
        let idle = self.core.outbound.is_empty() && self.core.lost == 0 && self.core.inbound.is_empty();
        if self.core.now >= self.core.next_stall {
            self.core.next_stall = self.core.now + EXPIRY_INTERVAL_MAX;
            self.end_stalled();
            self.forget_absent();
            self.end_unanswered();
            self.core.watch.forget_dead(&self.core.inbound);
        }
        if idle || self.core.now < self.core.next_expiry {
            return;
        }
        self.core.next_expiry = self.core.now + EXPIRY_INTERVAL_MAX;
        self.expire_calls();
        self.end_silent();
        if self.core.lost > 0 {
            let mut walk = Walk::default();
            while let Some((key, entry)) = walk.next(&mut self.core.peers) {
                if !matches!(entry.link, Link::Lost { .. }) {
                    continue;
                }
                // RFC 8167 §5.4 [8167-9]
                // draft 002 §5.4 [bidir-17]
                self.retry_connection(PeerId(key));
                if let Some(Link::Lost { retry_at }) = self.core.peers.get(key).map(|peer| &peer.link) {
                    self.core.next_expiry = self.core.next_expiry.min(*retry_at);
                }
            }
        }
    }

    /// When to make a pass even if nothing arrives.
    pub fn wake_at(&self) -> Option<Time> {
        let waiting = self.core.lost > 0 || !self.core.outbound.is_empty();
        let expiry = waiting.then_some(self.core.next_expiry);
        [self.provider.wake_at(), self.streams.wake_at(), expiry].into_iter().flatten().min()
    }
}

/// Everything a shard waits for, in one descriptor.
struct Sleeper {
    epoll: OwnedFd,
}

impl Sleeper {
    fn new<P: Provider, A: App>(
        shard: &Shard<P, A>,
        control: &Control<Snapshot<A::Report>>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let fds = [shard.provider.wait_fd(), Some(shard.streams.wait_fd()), Some(control.wake_fd())];
        for fd in fds.into_iter().flatten() {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(Self { epoll })
    }

    fn sleep(&self, longest: Duration) -> io::Result<()> {
        let timeout = Timespec {
            tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: longest.subsec_nanos().into(),
        };
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
