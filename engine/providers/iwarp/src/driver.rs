//! One shard's provider: the poll loop, doorbells and timers.

use crate::{
    IwarpAddress, IwarpConfig, IwarpStats,
    accept::{LISTENER_ID, LISTENERS},
    close, cm,
    conn::{Census, ConnStanding, IwarpConn, IwarpShared, IwarpState, Spares},
    hot::Hot,
    look::Brought,
    rx,
    siw::{self, CrcLosers},
    sock::{Epoll, Ready},
    tx,
};
use stag_pools::{Table, Windows, table::Key};
use stag_protocol::iwarp::{fpdu, mpa};
use stag_verbs::soft::Receives;
use stag_verbs::{Cause, Event, FabricFault, Limits, Qp, Time};
use std::{collections::VecDeque, io, os::fd::OwnedFd};

/// Octets of the buffer for large reads.
pub(crate) const STAGING: usize = 256 << 10;
/// Events of a connection's beginning and end, in addition to those of its work and its windows.
const EVENTS_PER_CONNECTION: usize = 4;

const _: () = assert!(STAGING >= 2 * fpdu::FPDU_MAX);

/// The look for input that a poll still has to make.
#[derive(Clone, Copy, Debug, Default)]
enum NextLook {
    /// It has looked.
    #[default]
    None,
    /// At the hot connection, or at all sockets if it is their turn.
    HotOrAll,
    /// At all sockets.
    All,
}

/// A software RNIC for one shard.
#[derive(Debug)]
pub struct Iwarp {
    pub(crate) conns: Table<Box<IwarpConn>>,
    pub(crate) shared: IwarpShared,
    /// Connections without a complete MPA Request, the oldest first.
    pub(crate) half_open: VecDeque<Key>,
    pub(crate) listeners: Vec<OwnedFd>,
    /// Time to accept connections again after descriptors ran out.
    pub(crate) accept_at: Option<Time>,
    /// The earliest deadline of any connection, or earlier.
    next_deadline: Option<Time>,
    /// Connections with work whose doorbell has not been rung.
    pub(crate) posted: Vec<Key>,
    /// Connections with FPDUs to send that need no doorbell.
    answering: Vec<Key>,
    /// Connections that are not read until another message can wait.
    stalled: Vec<Key>,
    /// An event or a message was reported since the last look at the sockets.
    pub(crate) is_fruitful: bool,
    /// Until this time, once all events are reported, the only work is to look for input.
    pub(crate) quiet_until: Time,
    pub(crate) brought: Brought,
    pub(crate) hot: Hot,
    /// The connection whose end was the last event: the engine may query it until the next poll.
    ended: Option<Key>,
}

impl Iwarp {
    /// A provider without connections. Fails if the kernel provides no epoll or no memory.
    ///
    /// # Panics
    /// If `limits` request more than 65,536 windows.
    pub fn new(mut config: IwarpConfig) -> io::Result<Self> {
        let limits = &mut config.limits;
        limits.private_data_len = limits.private_data_len.min(mpa::PRIVATE_DATA_MAX);
        (limits.sends_invalidation, limits.bears_invalidation) = (true, true);
        let Limits { connections, send_queue, receives, receive_len, windows, .. } = *limits;
        // In addition to the engine's connections: set-ups that are not reported yet, and lingering
        // ones.
        let places = connections * 2 + config.half_open + config.spare;
        let works = send_queue.saturating_mul(connections);
        let events = works.saturating_add(receives + windows + EVENTS_PER_CONNECTION * places);
        let shared = IwarpShared {
            epoll: Epoll::new()?,
            census: Census::default(),
            spares: Spares::new(places, fpdu::FPDU_MAX),
            output_spares: Spares::new(places, tx::OUTPUT_LEN),
            spare_works: Vec::with_capacity(places),
            spare_fpdus: Vec::with_capacity(places),
            windows: Windows::new(windows, config.seed),
            crc_losers: CrcLosers::default(),
            receives: Receives::new(receives, receive_len, config.parking)?,
            events: VecDeque::with_capacity(events),
            stats: IwarpStats::default(),
            staging: vec![0; STAGING].into(),
            scratch: Vec::new(),
            now: config.now,
            may_resume: false,
            has_few_receives: rx::has_few_receives(&config),
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
            quiet_until: Time(0),
            brought: Brought::default(),
            hot: Hot::default(),
            ended: None,
        })
    }

    /// Returns the counters since the start.
    pub fn stats(&self) -> &IwarpStats {
        &self.shared.stats
    }

    /// Windows that peers can use.
    pub fn windows_bound(&self) -> usize {
        self.shared.windows.bound()
    }

    /// Connections that were reported to the engine, including those in set-up.
    pub fn connections(&self) -> usize {
        self.shared.census.waiting + self.shared.census.taken
    }

    /// TCP connections without a complete MPA Request.
    pub fn half_open(&self) -> usize {
        self.shared.census.half_open
    }

    /// Adds a socket to the table and to epoll.
    pub(crate) fn adopt(
        &mut self,
        socket: OwnedFd,
        peer: IwarpAddress,
        state: IwarpState,
    ) -> Option<&mut IwarpConn> {
        self.have_place();
        // The key is known once the entry is taken; the connection stores it.
        let conn = Box::new(IwarpConn::new(Qp(Key::from_bits(0)), socket, peer.0, state));
        let key = self.conns.insert(conn).ok()?;
        let conn = self.conns.get_mut(key)?;
        conn.qp = Qp(key);
        conn.interest = conn.wanted();
        let IwarpShared { epoll, stats, .. } = &mut self.shared;
        if epoll.add(&conn.socket, key.to_bits(), conn.interest, stats).is_err() {
            self.conns.remove(key);
            return None;
        }
        *self.shared.census.count(conn.standing()) += 1;
        self.conns.get_mut(key).map(|conn| &mut **conn)
    }

    /// Frees an entry if all are in use, by removing the oldest lingering connection that has
    /// ended.
    fn have_place(&mut self) {
        if self.conns.len() < self.conns.capacity() {
            return;
        }
        let over = self.conns.iter().filter(|(_, conn)| conn.standing() == ConnStanding::Over);
        if let Some((key, _)) = over.min_by_key(|(_, conn)| conn.deadline) {
            self.with(key, |conn, _| conn.state = IwarpState::Dead);
        }
    }

    /// Runs `act` on a connection, then updates lists, timers and epoll for its new state.
    pub(crate) fn with<R>(
        &mut self,
        key: Key,
        act: impl FnOnce(&mut IwarpConn, &mut IwarpShared) -> R,
    ) -> Option<R> {
        let conn = self.conns.get_mut(key)?;
        let before = conn.standing();
        let result = act(conn, &mut self.shared);
        let after = conn.standing();
        if before != after {
            *self.shared.census.count(before) -= 1;
            *self.shared.census.count(after) += 1;
            if before == ConnStanding::HalfOpen {
                self.half_open.retain(|other| *other != key);
            }
        }
        self.settle(key);
        Some(result)
    }

    pub(crate) fn settle(&mut self, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let is_dead = matches!(conn.state, IwarpState::Dead);
        if is_dead {
            conn.input.len = 0;
            conn.output.len = 0;
        }
        self.shared.spares.take_back(&mut conn.input);
        if is_dead {
            *self.shared.census.count(ConnStanding::Over) -= 1;
            self.conns.remove(key);
            return;
        }
        if conn.wants_flush && !conn.is_listed {
            conn.is_listed = true;
            self.answering.push(key);
            self.quiet_until = Time(0);
        }
        if conn.is_stalled && !self.stalled.contains(&key) {
            self.stalled.push(key);
            self.quiet_until = Time(0);
        }
        if let Some(deadline) = conn.deadline {
            self.quiet_until = self.quiet_until.min(deadline);
            self.next_deadline =
                Some(self.next_deadline.map_or(deadline, |next| next.min(deadline)));
        }
        let wanted = conn.wanted();
        if wanted != conn.interest {
            conn.interest = wanted;
            self.shared.epoll.modify(&conn.socket, key.to_bits(), wanted, &mut self.shared.stats);
        }
    }

    /// Rings the doorbells.
    #[inline]
    pub(crate) fn ring_all(&mut self) {
        if !self.posted.is_empty() {
            self.ring_posted();
        }
    }

    #[inline(never)]
    fn ring_posted(&mut self) {
        for place in 0..self.posted.len() {
            let Some(key) = self.posted.get(place).copied() else { break };
            if self.conns.get_mut(key).is_some_and(|conn| tx::send_copies(conn, &mut self.shared)) {
                continue; // the connection is as it was: there is nothing to settle
            }
            // A connection found broken is read once more, into the shared buffer.
            self.use_brought();
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
        // The end of one may let another continue, which is then at the end of this list.
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

    /// Continues connections with messages that had no receive.
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

    #[inline]
    pub(crate) fn poll_once(&mut self, now: Time) -> Option<Event> {
        self.shared.now = now;
        if self.ended.is_none()
            && let Some(event) = self.shared.next_event()
        {
            return Some(self.hand_over(event));
        }
        if self.use_brought() {
            return self.poll_all(now, NextLook::None);
        }
        if !self.is_quiet(now) || self.shared.epoll.has_next() {
            return self.poll_all(now, NextLook::HotOrAll);
        }
        self.shared.may_resume = false; // nobody is stalled
        // After a look that found input, the engine rings before the next look.
        if std::mem::take(&mut self.is_fruitful) {
            return None;
        }
        match self.ask_hot() {
            Some(false) => None,
            Some(true) => self.poll_all(now, NextLook::None),
            None => self.poll_all(now, NextLook::All),
        }
    }

    /// Returns true if, once all events are reported, the only work is to look for input.
    #[inline]
    pub(crate) fn is_quiet(&self, now: Time) -> bool {
        now < self.quiet_until
    }

    /// Updates the time until which it is quiet.
    fn note_quiet(&mut self) {
        let owes_nothing =
            self.ended.is_none() && self.answering.is_empty() && self.stalled.is_empty();
        let is_quiet = owes_nothing && self.accept_at.is_none();
        self.quiet_until =
            if is_quiet { self.next_deadline.unwrap_or(Time(u64::MAX)) } else { Time(0) };
    }

    /// Works until there is an event, and looks for input at most once.
    fn poll_all(&mut self, now: Time, mut next_look: NextLook) -> Option<Event> {
        if let Some(conn) = self.ended.take().and_then(|key| self.conns.get_mut(key)) {
            conn.is_over = true;
        }
        if self.next_deadline.is_some_and(|deadline| deadline <= now) || self.accept_at.is_some() {
            self.expire(now);
        }
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
                // After a look that found input, the engine rings before the next look.
                && (std::mem::take(&mut self.is_fruitful)
                    || !self.look(std::mem::take(&mut next_look)))
            {
                self.note_quiet();
                return None;
            }
        }
    }

    fn hand_over(&mut self, event: Event) -> Event {
        self.is_fruitful = true;
        if let Event::Disconnected { qp, .. } = &event {
            self.ended = Some(qp.0);
            self.quiet_until = Time(0);
        }
        event
    }

    /// Looks for input.
    fn look(&mut self, at: NextLook) -> bool {
        match at {
            NextLook::None => false,
            NextLook::HotOrAll => self.ask_hot().unwrap_or_else(|| self.look_at_all()),
            NextLook::All => self.look_at_all(),
        }
    }

    /// Looks for ready sockets. Returns true if there is one.
    pub(crate) fn look_at_all(&mut self) -> bool {
        let IwarpShared { epoll, stats, .. } = &mut self.shared;
        epoll.look(stats)
    }

    /// Returns true if the next poll has nothing to do, according to the kernel.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.use_brought();
        let only = self.hot.only();
        self.cool();
        self.answer_all();
        self.is_fruitful = false;
        let has_work = !self.shared.events.is_empty()
            || self.shared.epoll.has_next()
            || (self.shared.may_resume && !self.stalled.is_empty());
        let is_idle = !has_work && !self.look_at_all();
        if is_idle {
            self.hot.expect(only);
        }
        is_idle
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
            if matches!(conn.state, IwarpState::AwaitTcp { .. }) {
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

    /// Handles expired deadlines.
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
            // Also sets the earliest deadline of the remaining ones.
            self.with(key, |conn, shared| {
                if conn.deadline.is_some_and(|deadline| deadline <= now) {
                    give_up(conn, shared);
                }
            });
        }
    }
}

impl Drop for Iwarp {
    /// Closes the sockets, so no peer can reach a window any more: their buffers return to their
    /// pool.
    fn drop(&mut self) {
        for (key, _) in self.conns.iter() {
            self.shared.windows.close(Qp(key).scope(), drop);
        }
    }
}

fn flush(conn: &mut IwarpConn, shared: &mut IwarpShared) {
    conn.wants_flush = false;
    tx::flush(conn, shared);
}

fn give_up(conn: &mut IwarpConn, shared: &mut IwarpShared) {
    let cause = match conn.state {
        IwarpState::AwaitTerminateSent { cause } => cause,
        IwarpState::AwaitEnd | IwarpState::Dead => Cause::Local,
        IwarpState::AwaitSign { pause } => return siw::nudge(conn, shared, pause),
        _ => {
            // RFC 6581 §9.3 [6581-25]: a deviation: limits and timeouts send no Terminate
            shared.stats.handshakes.timed_out += 1;
            Cause::Fabric(FabricFault::TimedOut)
        }
    };
    close::end_now(conn, shared, cause);
}
