//! One shard's provider: the poll loop, doorbells, timers, and taking peers in.

use crate::{
    Address, Config, Stats, close, cm,
    conn::{Census, Conn, Shared, Spares, Standing, State, host as host_of},
    hot::Hot,
    rx,
    siw::{self, CrcLosers},
    sock::{self, Epoll, Ready},
    tx,
};
use rustix::io::Errno;
use stag_pools::{Table, Windows, table::Key};
use stag_protocol::iwarp::{fpdu, mpa};
use stag_verbs::soft::Receives;
use stag_verbs::{Cause, Event, FabricFault, Limits, Qp, Time};
use std::{collections::VecDeque, io, os::fd::OwnedFd};

/// Octets of the buffer for large reads.
pub(crate) const STAGING: usize = 256 << 10;
/// Addresses one shard listens at.
const LISTENERS: usize = 16;
/// Peers taken in from one listener before others have their turn.
const ACCEPTS: usize = 16;
/// Listeners are told from connections by this half of their epoll id, which no connection's key has at the same time as
/// an index that small: it would be its 2^32nd use of one place.
const LISTENER_ID: u64 = (u32::MAX as u64) << 32;
/// Events that come with a connection's end, beside those of its work and its windows; and with its beginning.
const EVENTS_PER_CONNECTION: usize = 4;

const _: () = assert!(STAGING >= 2 * fpdu::FPDU_MAX);

/// A software RNIC for one shard.
#[derive(Debug)]
pub struct Iwarp {
    pub(crate) conns: Table<Box<Conn>>,
    pub(crate) shared: Shared,
    /// Those whose MPA Request is not there, the oldest first.
    half_open: VecDeque<Key>,
    listeners: Vec<OwnedFd>,
    /// When to accept again after descriptors ran out.
    accept_at: Option<Time>,
    /// The earliest deadline of any connection, or earlier.
    next_deadline: Option<Time>,
    /// Connections with work whose doorbell has not been rung.
    pub(crate) posted: Vec<Key>,
    /// Connections with something to send that needs no doorbell.
    answering: Vec<Key>,
    /// Connections that are not read on until a message can wait again.
    stalled: Vec<Key>,
    /// An event was reported since the last look at the sockets.
    is_fruitful: bool,
    pub(crate) hot: Hot,
    /// The connection whose end was the last event: the engine may ask about it until it polls again.
    ended: Option<Key>,
}

impl Iwarp {
    /// A provider without connections. Fails when the kernel gives no epoll or no memory.
    ///
    /// # Panics
    /// When `limits` ask for more than 65,536 windows.
    pub fn new(mut config: Config) -> io::Result<Self> {
        let limits = &mut config.limits;
        limits.private_data_len = limits.private_data_len.min(mpa::PRIVATE_DATA_MAX);
        limits.remote_invalidation = true;
        let Limits { connections, send_queue, receives, receive_len, windows, .. } = *limits;
        // Beside those the engine knows: set-ups that have not got that far, and ends that are not over.
        let places = connections * 2 + config.half_open + config.spare;
        let works = send_queue.saturating_mul(connections);
        let events = works.saturating_add(receives + windows + EVENTS_PER_CONNECTION * places);
        let shared = Shared {
            epoll: Epoll::new()?,
            census: Census::default(),
            spares: Spares::new(places),
            spare_works: Vec::with_capacity(places),
            spare_fpdus: Vec::with_capacity(places),
            windows: Windows::new(windows, config.seed),
            crc_losers: CrcLosers::default(),
            receives: Receives::new(receives, receive_len, config.parking)?,
            events: VecDeque::with_capacity(events),
            stats: Stats::default(),
            staging: vec![0; STAGING].into(),
            scratch: Vec::new(),
            now: config.now,
            may_resume: false,
            config,
        };
        Ok(Self {
            conns: Table::new(places),
            half_open: VecDeque::with_capacity(shared.config.half_open),
            shared,
            listeners: Vec::with_capacity(LISTENERS),
            accept_at: None,
            next_deadline: None,
            posted: Vec::with_capacity(places),
            answering: Vec::with_capacity(places),
            stalled: Vec::with_capacity(places),
            is_fruitful: false,
            hot: Hot::default(),
            ended: None,
        })
    }

    /// What happened since the start.
    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// Windows that peers can use.
    pub fn windows_bound(&self) -> usize {
        self.shared.windows.bound()
    }

    /// Connections that exist for the engine, those being set up included.
    pub fn connections(&self) -> usize {
        self.shared.census.waiting + self.shared.census.taken
    }

    /// TCP connections whose MPA Request is not there yet.
    pub fn half_open(&self) -> usize {
        self.shared.census.half_open
    }

    pub(crate) fn listen_at(&mut self, at: Address) -> Result<Address, FabricFault> {
        if self.listeners.len() == LISTENERS {
            return Err(FabricFault::Exhausted);
        }
        let Shared { epoll, config, stats, .. } = &mut self.shared;
        let listened = sock::listen(at.0, config).and_then(|(listener, in_use)| {
            epoll.add(&listener, LISTENER_ID | self.listeners.len() as u64, Ready::IN, stats)?;
            Ok((listener, in_use))
        });
        let (listener, in_use) = listened.map_err(|error| fault(&error))?;
        self.listeners.push(listener);
        Ok(Address(in_use))
    }

    pub(crate) fn stop(&mut self) {
        self.listeners.clear();
        self.accept_at = None;
    }

    pub(crate) fn start_connect(&mut self, to: Address, private_data: &[u8]) -> Result<Qp, FabricFault> {
        // RFC 5044 §7.1.1 [5044-44]
        if private_data.len() > self.shared.config.limits.private_data_len {
            return Err(FabricFault::Os(Errno::MSGSIZE.raw_os_error()));
        }
        if self.shared.census.taken >= self.shared.config.limits.connections {
            return Err(FabricFault::Exhausted);
        }
        let socket = sock::connect(to.0, &self.shared.config).map_err(|error| fault(&error))?;
        let initiator = mpa::Initiator::new(self.shared.crc_losers.config(&self.shared.config, to.0));
        let request = Box::new(initiator.request(private_data));
        let deadline = self.shared.now + self.shared.config.reply_timeout;
        let adopted = self.adopt(socket, to, State::AwaitTcp { initiator, request });
        let conn = adopted.ok_or(FabricFault::Exhausted)?;
        conn.is_known = true;
        conn.deadline = Some(deadline);
        let qp = conn.qp;
        self.settle(qp.0);
        Ok(qp)
    }

    /// Gives a socket a place and has it watched.
    fn adopt(&mut self, socket: OwnedFd, peer: Address, state: State) -> Option<&mut Conn> {
        self.have_place();
        // The key is known when the place is taken; the connection carries it.
        let conn = Box::new(Conn::new(Qp(Key::from_bits(0)), socket, peer.0, state));
        let key = self.conns.insert(conn).ok()?;
        let conn = self.conns.get_mut(key)?;
        conn.qp = Qp(key);
        conn.interest = conn.wanted();
        let Shared { epoll, stats, .. } = &mut self.shared;
        if epoll.add(&conn.socket, key.to_bits(), conn.interest, stats).is_err() {
            self.conns.remove(key);
            return None;
        }
        *self.shared.census.count(conn.standing()) += 1;
        self.conns.get_mut(key).map(|conn| &mut **conn)
    }

    /// When all places are in use, the oldest one that is over and lingers loses its place.
    fn have_place(&mut self) {
        if self.conns.len() < self.conns.capacity() {
            return;
        }
        let over = self.conns.iter().filter(|(_, conn)| conn.standing() == Standing::Over);
        if let Some((key, _)) = over.min_by_key(|(_, conn)| conn.deadline) {
            self.with(key, |conn, _| conn.state = State::Dead);
        }
    }

    /// Runs `act` on a connection, then brings lists, timers and epoll in line with what became of it.
    pub(crate) fn with<R>(&mut self, key: Key, act: impl FnOnce(&mut Conn, &mut Shared) -> R) -> Option<R> {
        let conn = self.conns.get_mut(key)?;
        let before = conn.standing();
        let result = act(conn, &mut self.shared);
        let after = conn.standing();
        if before != after {
            *self.shared.census.count(before) -= 1;
            *self.shared.census.count(after) += 1;
            if before == Standing::HalfOpen {
                self.half_open.retain(|other| *other != key);
            }
        }
        self.settle(key);
        Some(result)
    }

    fn settle(&mut self, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let is_dead = matches!(conn.state, State::Dead);
        if is_dead {
            conn.input.len = 0;
            conn.output.len = 0;
        }
        self.shared.spares.take_back(&mut conn.input);
        if is_dead {
            *self.shared.census.count(Standing::Over) -= 1;
            self.conns.remove(key);
            return;
        }
        if conn.wants_flush && !conn.is_listed {
            conn.is_listed = true;
            self.answering.push(key);
        }
        if conn.is_stalled && !self.stalled.contains(&key) {
            self.stalled.push(key);
        }
        if let Some(deadline) = conn.deadline {
            self.next_deadline = Some(self.next_deadline.map_or(deadline, |next| next.min(deadline)));
        }
        let wanted = conn.wanted();
        if wanted != conn.interest {
            conn.interest = wanted;
            self.shared.epoll.modify(&conn.socket, key.to_bits(), wanted, &mut self.shared.stats);
        }
    }

    /// Rings the doorbells.
    pub(crate) fn ring_all(&mut self) {
        for place in 0..self.posted.len() {
            let Some(key) = self.posted.get(place).copied() else { break };
            self.with(key, |conn, shared| {
                conn.is_posted = false;
                if let Some(link) = &mut conn.link {
                    link.queue.ring();
                    flush(conn, shared);
                }
            });
        }
        self.posted.clear();
    }

    /// Sends answers, Terminates and Reads that waited.
    fn answer_all(&mut self) {
        // One that ends can let another go on, which is then at the end of this list.
        let mut place = 0;
        while let Some(key) = self.answering.get(place).copied() {
            place += 1;
            self.with(key, |conn, shared| {
                conn.is_listed = false;
                if conn.wants_flush {
                    flush(conn, shared);
                }
            });
        }
        self.answering.clear();
    }

    /// Goes on with connections whose messages had nowhere to go.
    fn resume_all(&mut self) {
        if !std::mem::take(&mut self.shared.may_resume) || self.stalled.is_empty() {
            return;
        }
        for _ in 0..self.stalled.len() {
            let key = self.stalled.remove(0);
            self.with(key, |conn, shared| {
                if std::mem::take(&mut conn.is_stalled) {
                    rx::use_input(conn, shared);
                }
            });
        }
    }

    pub(crate) fn poll_once(&mut self, now: Time) -> Option<Event> {
        self.shared.now = now;
        if self.ended.is_none()
            && let Some(event) = self.shared.next_event()
        {
            return Some(self.hand_over(event));
        }
        if let Some(conn) = self.ended.take().and_then(|key| self.conns.get_mut(key)) {
            conn.is_over = true;
        }
        if self.next_deadline.is_some_and(|deadline| deadline <= now) || self.accept_at.is_some() {
            self.expire(now);
        }
        let mut may_look = true;
        loop {
            if let Some(event) = self.shared.next_event() {
                return Some(self.hand_over(event));
            }
            self.resume_all();
            if let Some((id, ready)) = self.shared.epoll.next() {
                self.handle_ready(id, ready);
            } else if !self.answering.is_empty() {
                self.answer_all();
            } else if self.shared.events.is_empty()
                // A look that brought something is followed by a ring before the next one.
                && (std::mem::take(&mut self.is_fruitful) || !std::mem::take(&mut may_look) || !self.look())
            {
                return None;
            }
        }
    }

    fn hand_over(&mut self, event: Event) -> Event {
        self.is_fruitful = true;
        if let Event::Disconnected { qp, .. } = &event {
            self.ended = Some(qp.0);
        }
        event
    }

    /// Looks whether something arrived.
    fn look(&mut self) -> bool {
        self.ask_hot().unwrap_or_else(|| self.look_at_all())
    }

    /// Looks which sockets are ready. True when there is one.
    fn look_at_all(&mut self) -> bool {
        let Shared { epoll, stats, .. } = &mut self.shared;
        epoll.look(stats)
    }

    /// Whether the next poll has nothing to do, as far as the kernel knows.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.cool();
        self.answer_all();
        self.is_fruitful = false;
        let has_work = !self.shared.events.is_empty()
            || self.shared.epoll.has_next()
            || (self.shared.may_resume && !self.stalled.is_empty());
        !has_work && !self.look_at_all()
    }

    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.next_deadline.into_iter().chain(self.accept_at).min()
    }

    fn handle_ready(&mut self, id: u64, ready: Ready) {
        if id & LISTENER_ID == LISTENER_ID {
            return self.accept_peers((id & u64::from(u32::MAX)) as usize);
        }
        if ready.contains(Ready::IN) {
            self.note_ready(Key::from_bits(id));
        }
        self.with(Key::from_bits(id), |conn, shared| {
            if matches!(conn.state, State::AwaitTcp { .. }) {
                return cm::tcp_ready(conn, shared);
            }
            if ready.intersects(Ready::IN | Ready::HUP | Ready::ERR | Ready::RDHUP) {
                rx::readable(conn, shared, ready);
            }
            if ready.contains(Ready::OUT) && conn.wants_out {
                flush(conn, shared);
            }
        });
    }

    fn accept_peers(&mut self, listener: usize) {
        for _ in 0..ACCEPTS {
            let Some(listener) = self.listeners.get(listener) else { return };
            match sock::accept(listener) {
                Ok((socket, Some(peer))) => self.take_in(socket, Address(peer)),
                Ok((_, None)) | Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO) => {}
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    return self.pause_accepting();
                }
                Err(_) => return,
            }
        }
    }

    fn take_in(&mut self, socket: OwnedFd, peer: Address) {
        self.shared.stats.accepted += 1;
        if sock::tune(&socket, peer.0, &self.shared.config).is_err() {
            self.shared.stats.handshakes.lost += 1;
            return;
        }
        self.shed_half_open(peer);
        let Shared { config, now, .. } = &self.shared;
        // RFC 5042 §6.4.1 [5042-13]
        let (may_enter, deadline) = (self.half_open.len() < config.half_open, *now + config.request_timeout);
        let adopted = if may_enter { self.adopt(socket, peer, State::AwaitRequest) } else { None };
        let Some(conn) = adopted else {
            self.shared.stats.handshakes.displaced += 1;
            return; // closing the socket is the answer
        };
        conn.deadline = Some(deadline);
        let key = conn.qp.0;
        self.half_open.push_back(key);
        self.settle(key);
    }

    /// Makes place for a newcomer from `peer` among the half-open: a peer that means it sends its Request at once, so the
    /// oldest ones are silent. A host with more than its share loses its own, and cannot push others out.
    fn shed_half_open(&mut self, peer: Address) {
        if self.half_open.len() < self.shared.config.half_open {
            return;
        }
        let share = self.shared.config.half_open / 4;
        let host = |key: &Key| self.conns.get(*key).map(|conn| host_of(conn.peer));
        let held = |of: u64| self.half_open.iter().filter(|key| host(key) == Some(of)).count();
        let newcomer = host_of(peer.0);
        let greedy = self
            .half_open
            .iter()
            .find(|key| host(key).is_some_and(|host| held(host) + usize::from(host == newcomer) > share));
        if let Some(key) = greedy.or(self.half_open.front()).copied() {
            self.shared.stats.handshakes.displaced += 1;
            self.with(key, |conn, _| conn.state = State::Dead);
        }
    }

    /// Descriptors ran out: peers wait in the kernel for a moment, or the listeners would be ready all the time.
    fn pause_accepting(&mut self) {
        self.shared.stats.accept_paused += 1;
        self.accept_at = Some(self.shared.now + self.shared.config.accept_pause);
        self.watch_listeners(Ready::empty());
    }

    fn watch_listeners(&mut self, interest: Ready) {
        let Shared { epoll, stats, .. } = &mut self.shared;
        for (index, listener) in self.listeners.iter().enumerate() {
            epoll.modify(listener, LISTENER_ID | index as u64, interest, stats);
        }
    }

    /// Gives up what has waited too long.
    fn expire(&mut self, now: Time) {
        if self.accept_at.is_some_and(|at| at <= now) {
            self.accept_at = None;
            self.watch_listeners(Ready::IN);
        }
        if self.next_deadline.is_none_or(|deadline| deadline > now) {
            return;
        }
        self.next_deadline = None;
        for place in 0..self.conns.capacity() {
            let Some(key) = self.conns.key_at(place) else { continue };
            // Also sets the earliest deadline of those that go on.
            self.with(key, |conn, shared| {
                if conn.deadline.is_some_and(|deadline| deadline <= now) {
                    give_up(conn, shared);
                }
            });
        }
    }
}

impl Drop for Iwarp {
    /// The sockets close, so nobody can reach a window any more: their buffers go back to their pool.
    fn drop(&mut self) {
        for (key, _) in self.conns.iter() {
            self.shared.windows.close(Qp(key).scope(), drop);
        }
    }
}

fn flush(conn: &mut Conn, shared: &mut Shared) {
    conn.wants_flush = false;
    tx::flush(conn, shared);
}

fn give_up(conn: &mut Conn, shared: &mut Shared) {
    let cause = match conn.state {
        State::AwaitTerminateSent { cause } => cause,
        State::AwaitEnd | State::Dead => Cause::Local,
        State::AwaitSign { pause } => return siw::nudge(conn, shared, pause),
        _ => {
            // RFC 6581 §9.3 [6581-25]
            shared.stats.handshakes.timed_out += 1;
            Cause::Fabric(FabricFault::TimedOut)
        }
    };
    close::end_now(conn, shared, cause);
}

/// Descriptors that run out are a limit of ours.
fn fault(error: &io::Error) -> FabricFault {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS) => FabricFault::Exhausted,
        _ => FabricFault::from(error),
    }
}
