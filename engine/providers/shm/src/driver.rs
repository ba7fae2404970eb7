//! One shard's provider: doorbells, timers, and the poll: messages straight from the ring to the
//! caller, everything else by its event.

use crate::{
    ShmConfig, ShmStats,
    cm::LISTENERS,
    config::{PRIVATE_DATA_MAX, RING_MAX, RING_MIN},
    conn::{ShmConn, ShmShared, ShmState},
    lane::Lanes,
    link::{self, LinkStage, Listener, ShmLink},
    record::NONSENSE,
    rings::LinkRings,
    rx, tx,
};
use rustix::event::epoll;
use stag_pools::{Pool, Table, Windows, table::Key};
use stag_verbs::{
    Cause, Event, FabricFault, Look, Looked, Qp, Time,
    soft::{MovedOctets, Receives},
};
use std::{collections::VecDeque, fmt, io};

/// Sockets that one look reports.
const BATCH: usize = 64;
/// Records in a row from one process while others may have said something.
const RECORDS_PER_TURN: usize = 32;
/// Records that one poll carries out when no event comes of them: a process may write them faster
/// than they are read.
const RECORDS_PER_POLL: usize = 256;
/// Sockets that were ready at the last look.
pub(crate) struct ReadySockets(pub(crate) Vec<epoll::Event>);

impl fmt::Debug for ReadySockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadySockets({})", self.0.len())
    }
}

/// Shared memory as the fabric of one shard.
#[derive(Debug)]
pub struct Shm {
    pub(crate) conns: Table<Box<ShmConn>>,
    pub(crate) links: Table<Box<ShmLink>>,
    pub(crate) shared: ShmShared,
    pub(crate) listeners: Vec<Listener>,
    /// The links that are up, in the order they are looked at, and the index of the one in turn.
    pub(crate) hot: Vec<Key>,
    pub(crate) turn: usize,
    /// Records that the link in turn has had carried out.
    pub(crate) in_turn: usize,
    /// Connections with work whose doorbell has not been rung.
    pub(crate) posted: Vec<Key>,
    pub(crate) ready: ReadySockets,
    pub(crate) next_look: Time,
    /// The wake-up that ended a sleep waits in a socket.
    pub(crate) is_unread: bool,
    /// Before this time only rings have to be looked at, and events that wait.
    pub(crate) plain_until: Time,
    /// Work was posted, or something may be to be said, since the doorbells were rung.
    pub(crate) is_loud: bool,
    /// Links or connections that are being set up, or wait for a deadline.
    pub(crate) next_deadline: Option<Time>,
    /// Not 0 while asleep; counts sleeps.
    pub(crate) asleep: bool,
    pub(crate) sleeps: u64,
    /// This sleep needs to be short: some peer may not see that we sleep.
    pub(crate) is_barred: bool,
    /// A link came up, or a peer ended our sleep, since this was last reset.
    pub(crate) is_roused: bool,
    /// The connection whose end was the last event.
    pub(crate) ended: Option<Key>,
}

impl Shm {
    /// A provider without peers. Fails when the kernel gives no epoll or no memory, and when a
    /// receive does not fit the ring.
    ///
    /// # Panics
    /// When `limits` ask for more than 65,536 windows.
    pub fn new(mut config: ShmConfig) -> io::Result<Self> {
        let limits = &mut config.limits;
        limits.private_data_len = limits.private_data_len.min(PRIVATE_DATA_MAX);
        (limits.sends_invalidation, limits.bears_invalidation) = (true, true);
        let is_sane = config.ring_len.is_power_of_two()
            && (RING_MIN..=RING_MAX).contains(&config.ring_len)
            && limits.receive_len.saturating_mul(16) <= config.ring_len;
        if !is_sane {
            let why = "the ring has to be a power of two, and sixteen times as long as a receive";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        // In addition to those the engine knows: ends that are not over.
        let places = limits.connections * 2;
        let works = limits.send_queue.saturating_mul(limits.connections);
        let events = works.saturating_add(limits.receives + limits.windows + 4 * places);
        let shared = ShmShared {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            windows: Windows::new(limits.windows, config.seed),
            lanes: Lanes::new(places),
            receives: Receives::new(limits.receives, limits.receive_len, config.parking)?,
            events: VecDeque::with_capacity(events),
            spare_works: Vec::with_capacity(places),
            pools: Vec::with_capacity(link::POOLS_MAX),
            stats: ShmStats::default(),
            moved: MovedOctets::new(2 * places),
            now: config.now,
            is_listening: false,
            taken: 0,
            dead: 0,
            config,
        };
        Ok(Self {
            conns: Table::new(places),
            links: Table::new(shared.config.links),
            hot: Vec::with_capacity(shared.config.links),
            next_look: shared.now,
            is_unread: false,
            plain_until: Time(0),
            is_loud: false,
            shared,
            listeners: Vec::with_capacity(LISTENERS),
            turn: 0,
            in_turn: 0,
            posted: Vec::with_capacity(places),
            ready: ReadySockets(Vec::with_capacity(BATCH)),
            next_deadline: None,
            asleep: false,
            sleeps: 0,
            is_barred: true,
            is_roused: false,
            ended: None,
        })
    }

    /// Returns the counters since the start.
    pub const fn stats(&self) -> &ShmStats {
        &self.shared.stats
    }

    /// Windows that peers can use.
    pub fn windows_bound(&self) -> usize {
        self.shared.windows.bound()
    }

    /// Connections that exist for the engine, those being set up included.
    pub const fn connections(&self) -> usize {
        self.shared.taken
    }

    /// Processes at the other ends.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    pub(crate) fn add_pool(&mut self, pool: &Pool) -> io::Result<()> {
        if pool.file().is_none() {
            return Ok(()); // its content goes through the ring
        }
        if self.shared.pools.len() == link::POOLS_MAX {
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                "no peer maps more than eight pools",
            ));
        }
        self.shared.pools.push(pool.clone());
        Ok(())
    }

    pub(crate) fn note_deadline(&mut self, at: Time) {
        self.plain_until = self.plain_until.min(at);
        self.next_deadline = Some(self.next_deadline.map_or(at, |next| next.min(at)));
    }

    /// Rings the doorbells.
    pub(crate) fn ring_all(&mut self) {
        for place in 0..self.posted.len() {
            let Some(key) = self.posted.get(place).copied() else { break };
            let Some(conn) = self.conns.get_mut(key) else { continue };
            conn.is_posted = false;
            if conn.state != ShmState::Established {
                continue;
            }
            conn.queue.ring();
            let Some(link) = self.links.get_mut(conn.link) else { continue };
            tx::want(conn, link);
        }
        self.posted.clear();
        // Backwards: a link that ends here moves only links that had their turn.
        for place in (0..self.hot.len()).rev() {
            let Some(key) = self.hot.get(place).copied() else { continue };
            let Some(link) = self.links.get_mut(key) else { continue };
            if !link.waiting.is_empty() || !link.say.is_empty() {
                self.flush_link(key);
            }
        }
    }

    /// Sends pending work of a link's connections.
    pub(crate) fn flush_link(&mut self, key: Key) {
        let Some(link) = self.links.get_mut(key) else { return };
        match tx::flush(link, &mut self.conns, &mut self.shared) {
            Ok(()) => link.wake(&mut self.shared),
            Err(_) => self.end_link(key, NONSENSE),
        }
        self.sweep_dead();
    }

    /// Ends links and connections whose deadlines have passed.
    pub(crate) fn expire(&mut self, now: Time) {
        self.next_deadline = None;
        for place in 0..self.links.capacity() {
            let Some(key) = self.links.key_at(place) else { continue };
            let Some(link) = self.links.get(key) else { continue };
            match link.deadline {
                Some(at) if at > now => self.note_deadline(at),
                // One that is up is only kept for a while after its last connection.
                Some(_) if link.stage == LinkStage::Up && link.conns > 0 => {}
                Some(_) => {
                    self.shared.stats.turned_away += u64::from(link.target.is_none());
                    self.end_link(key, Cause::Fabric(FabricFault::TimedOut));
                }
                None => {}
            }
        }
        for place in 0..self.conns.capacity() {
            let Some(key) = self.conns.key_at(place) else { continue };
            match self.conns.get(key).and_then(|conn| conn.deadline) {
                Some(at) if at > now => self.note_deadline(at),
                Some(_) => self.give_up(key, Cause::Fabric(FabricFault::TimedOut)),
                None => {}
            }
        }
    }
}

impl Shm {
    /// The next event. A message or nothing is found out by a [look](Self::look_once).
    #[inline]
    pub(crate) fn poll_once(&mut self, now: Time) -> Option<Event> {
        let receive = if self.is_plain(now) { self.shared.receives.take_ready() } else { None };
        let Some(mut buf) = receive else { return self.poll_all(now) };
        let found = self.look_once(now, buf.spare_mut());
        if let Look::Message { qp, len } = found.look() {
            buf.extend(len);
            return Some(Event::Received { qp, buf, invalidated: None });
        }
        let kept = self.shared.receives.add(buf);
        debug_assert!(kept.is_ok(), "it was there before");
        if found.is_nothing() { None } else { self.poll_all(now) }
    }

    /// A message, or nothing; everything else is left to [`poll_once`](Self::poll_once).
    #[inline]
    pub(crate) fn look_once(&mut self, now: Time, room: &mut [u8]) -> Looked {
        self.shared.now = now;
        if !self.is_plain(now) || !self.shared.receives.is_ready() {
            return Look::Other.into();
        }
        // With one process at the other end, the usual case, no other waits for a turn.
        if let [key] = self.hot.as_slice() {
            return self.look_at(*key, room);
        }
        self.look_around(room)
    }

    /// Looks at the rings of several processes in turn.
    #[inline(never)]
    fn look_around(&mut self, room: &mut [u8]) -> Looked {
        if self.in_turn >= RECORDS_PER_TURN {
            self.next_turn();
        }
        let mut found = Look::Nothing;
        for _ in 0..self.hot.len() {
            let Some(key) = self.hot.get(self.turn).copied() else { return Look::Other.into() };
            match self.look_at(key, room).look() {
                Look::Nothing => {}
                // It has something to do other than its ring, and others may have a message.
                Look::Other if !self.has_front(key) => found = Look::Other,
                Look::Other => return Look::Other.into(),
                message => {
                    self.in_turn += 1;
                    return message.into();
                }
            }
            self.next_turn();
        }
        found.into()
    }

    /// Returns true if a record is in front of the ring of a link.
    fn has_front(&self, key: Key) -> bool {
        let link = self.links.get(key);
        link.is_some_and(|link| link.rings.as_ref().is_some_and(LinkRings::is_fruitful))
    }

    /// Looks at the ring of one process.
    #[inline(always)]
    fn look_at(&mut self, key: Key, room: &mut [u8]) -> Looked {
        // A link that ends leaves the list at once.
        let Some(link) = self.links.at_mut(key.index()) else { return Look::Other.into() };
        rx::look(link, &mut self.shared, room)
    }

    /// Returns true if nothing but rings has to be looked at.
    #[inline]
    fn is_plain(&self, now: Time) -> bool {
        (now < self.plain_until) & self.shared.events.is_empty()
    }

    /// Looks at nothing but rings until sockets or deadlines are due, or until something happens.
    fn settle(&mut self) {
        let is_plain = !self.asleep && self.ended.is_none();
        let until = self.next_deadline.map_or(self.next_look, |at| at.min(self.next_look));
        self.plain_until = if is_plain { until } else { Time(0) };
    }

    /// Returns true if the sockets or the deadlines are due.
    fn is_due(&self, now: Time) -> bool {
        now >= self.next_look || self.next_deadline.is_some_and(|at| at <= now)
    }

    /// Another process has its turn.
    #[inline]
    fn next_turn(&mut self) {
        let next = self.turn + 1;
        (self.turn, self.in_turn) = (if next < self.hot.len() { next } else { 0 }, 0);
    }

    /// The next event, whatever it is.
    #[inline(never)]
    fn poll_all(&mut self, now: Time) -> Option<Event> {
        self.shared.now = now;
        self.plain_until = Time(0);
        self.is_loud = true;
        self.rise();
        if let Some(key) = self.ended.take()
            && let Some(conn) = self.conns.get_mut(key)
        {
            conn.is_over = true;
            if conn.state == ShmState::Dead {
                self.forget(key);
            }
        }
        // A process that always has a message delays the work of others no longer than this.
        if self.is_due(now) {
            self.go_on();
            self.look_if_due(now);
        }
        let mut records = 0;
        loop {
            if let Some(event) = self.shared.next_event() {
                if let Event::Disconnected { qp, .. } = &event {
                    self.ended = Some(qp.0);
                }
                self.settle();
                return Some(event);
            }
            let has_received = records < RECORDS_PER_POLL && self.receive_one();
            records += usize::from(has_received);
            if !has_received && !self.go_on() {
                self.settle();
                return None;
            }
        }
    }

    /// Carries out one record of some link. False when there is none.
    fn receive_one(&mut self) -> bool {
        self.free_places();
        if self.in_turn >= RECORDS_PER_TURN {
            self.next_turn();
        }
        for _ in 0..self.hot.len() {
            let Some(key) = self.hot.get(self.turn).copied() else {
                self.next_turn(); // a link is gone
                continue;
            };
            let Some(link) = self.links.get_mut(key) else { return false };
            match rx::receive(key, link, &mut self.conns, &mut self.shared) {
                // The same link again: its records belong together.
                Ok(true) => {
                    self.in_turn += 1;
                    self.sweep_dead();
                    return true;
                }
                Ok(false) => self.next_turn(),
                Err(cause) => {
                    self.end_link(key, cause);
                    return true;
                }
            }
        }
        false
    }

    /// Nothing more has arrived: publishes how far we read to peers, and continues waiting work.
    /// True when something did.
    pub(crate) fn go_on(&mut self) -> bool {
        let mut has_moved = false;
        // Backwards: a link that ends here moves only links that had their turn.
        for place in (0..self.hot.len()).rev() {
            let Some(key) = self.hot.get(place).copied() else { continue };
            let Some(link) = self.links.get_mut(key) else { continue };
            link.pay(&mut self.shared);
            let progress = tx::progress(link, &mut self.conns, &mut self.shared);
            let wants = !link.say.is_empty() || !link.waiting.is_empty();
            match progress {
                Ok(has_room) if wants && (has_room || !link.is_full) => {
                    has_moved = true;
                    self.flush_link(key);
                }
                Ok(has_room) => has_moved |= has_room,
                Err(_) => {
                    has_moved = true;
                    self.end_link(key, NONSENSE);
                }
            }
        }
        has_moved && !self.shared.events.is_empty()
    }
}

impl Drop for Shm {
    /// The links end. Only this shard ever reached a window, so the windows' buffers go back to
    /// their pool. The links mark as void the memory that peers may be fetching, before it can be
    /// used again.
    fn drop(&mut self) {
        for (key, _) in self.conns.iter() {
            self.shared.windows.close(Qp(key).scope(), drop);
        }
    }
}
