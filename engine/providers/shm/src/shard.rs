//! One shard's provider: doorbells, timers, and taking processes in.

use crate::{
    Address, Config, Stats, close,
    config::{PRIVATE_DATA_MAX, RING_MAX, RING_MIN},
    conn::{Conn, Say, Shared, State},
    link::{self, Denied, Link, Listener, Stage},
    record::NONSENSE,
    ring::LINE,
    rx, tx,
};
use rustix::{
    event::{Timespec, epoll},
    io::Errno,
};
use stag_pools::{Pool, Table, Windows, table::Key};
use stag_verbs::{Cause, Event, FabricFault, PeerAddress, Qp, Time, soft::Receives};
use std::{collections::VecDeque, fmt, io, os::fd::AsFd, time::Duration};

/// Sockets one shard listens at.
const LISTENERS: usize = 16;
/// Listeners are told from links by this half of their epoll id.
const LISTENER_ID: u64 = (u32::MAX as u64) << 32;
/// Sockets that one look reports.
const BATCH: usize = 64;
/// Processes taken in from one listener at one look.
const ACCEPTS: usize = 16;
/// How often sockets are looked at while a process is taken in: sooner than others notice, seldom enough that one which says
/// nothing costs them nothing.
const LOOK_INTERVAL_SETUP: Duration = Duration::from_micros(20);
/// Sockets that were ready at the last look.
struct Ready(Vec<epoll::Event>);

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ready({})", self.0.len())
    }
}

/// Shared memory as the fabric of one shard.
#[derive(Debug)]
pub struct Shm {
    pub(crate) conns: Table<Box<Conn>>,
    pub(crate) links: Table<Box<Link>>,
    pub(crate) shared: Shared,
    listeners: Vec<Listener>,
    /// The links that are up, in the order they are looked at, and whose turn it is.
    pub(crate) hot: Vec<Key>,
    pub(crate) turn: usize,
    /// Records that the one whose turn it is has had carried out.
    pub(crate) in_turn: usize,
    /// Connections with work whose doorbell has not been rung.
    pub(crate) posted: Vec<Key>,
    ready: Ready,
    pub(crate) next_look: Time,
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
    /// A provider without peers. Fails when the kernel gives no epoll or no memory, and when a receive does not fit the ring.
    ///
    /// # Panics
    /// When `limits` ask for more than 65,536 windows.
    pub fn new(mut config: Config) -> io::Result<Self> {
        let limits = &mut config.limits;
        limits.private_data_len = limits.private_data_len.min(PRIVATE_DATA_MAX);
        limits.remote_invalidation = true;
        let is_sane = config.ring_len.is_power_of_two()
            && (RING_MIN..=RING_MAX).contains(&config.ring_len)
            && limits.receive_len.saturating_mul(16) <= config.ring_len;
        if !is_sane {
            let why = "the ring has to be a power of two, and sixteen times as long as a receive";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        // Beside those the engine knows: ends that are not over.
        let places = limits.connections * 2;
        let works = limits.send_queue.saturating_mul(limits.connections);
        let events = works.saturating_add(limits.receives + limits.windows + 4 * places);
        let shared = Shared {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            windows: Windows::new(limits.windows, config.seed),
            receives: Receives::new(limits.receives, limits.receive_len, config.parking)?,
            events: VecDeque::with_capacity(events),
            spare_works: Vec::with_capacity(places),
            pools: Vec::with_capacity(link::POOLS_MAX),
            stats: Stats::default(),
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
            shared,
            listeners: Vec::with_capacity(LISTENERS),
            turn: 0,
            in_turn: 0,
            posted: Vec::with_capacity(places),
            ready: Ready(Vec::with_capacity(BATCH)),
            next_deadline: None,
            asleep: false,
            sleeps: 0,
            is_barred: true,
            is_roused: false,
            ended: None,
        })
    }

    /// What happened since the start.
    pub const fn stats(&self) -> &Stats {
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
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, "no peer maps more than eight pools"));
        }
        self.shared.pools.push(pool.clone());
        Ok(())
    }

    pub(crate) fn listen_at(&mut self, at: &Address) -> Result<Address, FabricFault> {
        if self.listeners.len() == LISTENERS {
            return Err(FabricFault::Exhausted);
        }
        let listener = Listener::new(at, &self.shared.config.allow)?;
        let id = LISTENER_ID | self.listeners.len() as u64;
        link::watch(&self.shared.epoll, listener.socket.as_fd(), id)?;
        self.listeners.push(listener);
        self.shared.is_listening = true;
        Ok(at.clone())
    }

    pub(crate) fn stop(&mut self) {
        self.listeners.clear();
        self.shared.is_listening = false;
    }

    pub(crate) fn start_connect(&mut self, to: &Address, private_data: &[u8]) -> Result<Qp, FabricFault> {
        let limits = &self.shared.config.limits;
        if private_data.len() > limits.private_data_len {
            return Err(FabricFault::Os(Errno::MSGSIZE.raw_os_error()));
        }
        // RFC 5042 §6.4.1 [5042-13]
        if self.shared.taken >= limits.connections {
            return Err(FabricFault::Exhausted);
        }
        self.free_places();
        let reached = self.link_to(to);
        if let Err(fault @ (FabricFault::Exhausted | FabricFault::BadAddress)) = reached {
            return Err(fault);
        }
        // Nobody there is an end of the connection, not of the attempt to connect.
        let nowhere = Key::from_bits(u64::MAX);
        let key = reached.unwrap_or(nowhere);
        let peer = self.links.get(key).map_or(PeerAddress::Process { pid: 0, uid: 0 }, |link| link.peer);
        let send_queue = self.shared.config.limits.send_queue;
        let conn = Conn::new(Qp(Key::from_bits(0)), key, peer, State::AwaitReply, send_queue);
        let Ok(number) = self.conns.insert(Box::new(conn)) else { return Err(FabricFault::Exhausted) };
        let conn = self.conns.get_mut(number).expect("it was just put there");
        let qp = Qp(number);
        (conn.qp, conn.peer, conn.is_known) = (qp, rx::UNKNOWN, true);
        if let Err(fault) = reached {
            conn.die(&mut self.shared);
            self.shared.events.push_back(Event::Disconnected { qp, cause: Cause::Fabric(fault) });
            return Ok(qp);
        }
        let deadline = self.shared.now + self.shared.config.timeout;
        conn.deadline = Some(deadline);
        self.shared.taken += 1;
        let link = self.links.get_mut(key).expect("it was just reached");
        link.conns += 1;
        link.deadline = link.deadline.filter(|_| link.stage != Stage::Up);
        link.say.push_back(Say::Connect { from: conn.number(), private_data: private_data.into() });
        self.note_deadline(deadline);
        self.flush_link(key);
        Ok(qp)
    }

    /// The link to the server at `to`, made if there is none.
    fn link_to(&mut self, to: &Address) -> Result<Key, FabricFault> {
        let known = self.links.iter().find(|(_, link)| link.target.as_ref() == Some(to));
        if let Some((key, _)) = known {
            return Ok(key);
        }
        let link = Link::connect(to, &self.shared)?;
        self.adopt(link).ok_or(FabricFault::Exhausted)
    }

    fn adopt(&mut self, link: Link) -> Option<Key> {
        let deadline = link.deadline;
        let key = self.links.insert(Box::new(link)).ok()?;
        if self.watch_link(key).is_err() {
            self.links.remove(key);
            return None;
        }
        deadline.into_iter().for_each(|at| self.note_deadline(at));
        self.next_look = self.shared.now;
        Some(key)
    }

    /// Watches the socket of a link, if it is connected: one that is not seems to hang up all the time.
    fn watch_link(&self, key: Key) -> Result<(), FabricFault> {
        match self.links.get(key).filter(|link| link.stage != Stage::AwaitServer) {
            Some(link) => link::watch(&self.shared.epoll, link.socket.as_fd(), key.to_bits()),
            None => Ok(()),
        }
    }

    pub(crate) fn note_deadline(&mut self, at: Time) {
        self.next_deadline = Some(self.next_deadline.map_or(at, |next| next.min(at)));
    }

    /// Rings the doorbells.
    pub(crate) fn ring_all(&mut self) {
        for place in 0..self.posted.len() {
            let Some(key) = self.posted.get(place).copied() else { break };
            let Some(conn) = self.conns.get_mut(key) else { continue };
            conn.is_posted = false;
            if conn.state != State::Established {
                continue;
            }
            conn.queue.ring();
            let Some(link) = self.links.get_mut(conn.link) else { continue };
            tx::want(conn, link);
        }
        self.posted.clear();
        // From the last one on: one that ends moves only those that had their turn.
        for place in (0..self.hot.len()).rev() {
            let Some(key) = self.hot.get(place).copied() else { continue };
            let Some(link) = self.links.get_mut(key) else { continue };
            if !link.waiting.is_empty() || !link.say.is_empty() {
                self.flush_link(key);
            } else if link.is_unheard {
                link.wake(&mut self.shared);
            }
        }
    }

    /// Sends what a link's connections have to say.
    pub(crate) fn flush_link(&mut self, key: Key) {
        let Some(link) = self.links.get_mut(key) else { return };
        match tx::flush(link, &mut self.conns, &mut self.shared) {
            Ok(()) => link.wake(&mut self.shared),
            Err(_) => self.end_link(key, NONSENSE),
        }
        self.sweep_dead();
    }

    /// The link is gone, and all its connections.
    pub(crate) fn end_link(&mut self, key: Key, cause: Cause) {
        let Some(mut link) = self.links.remove(key) else { return };
        self.hot.retain(|other| *other != key);
        // Who could not be reached at all was refused.
        let cause = match cause {
            Cause::Fabric(FabricFault::Lost) if link.stage != Stage::Up && link.target.is_some() => {
                Cause::Fabric(FabricFault::Refused)
            }
            cause => cause,
        };
        close::end_all(key, &mut link, &mut self.conns, &mut self.shared, cause);
        self.sweep_dead();
    }

    /// Forgets connections whose places can be used again. One whose last event the engine has not had is forgotten then.
    pub(crate) fn sweep_dead(&mut self) {
        if std::mem::take(&mut self.shared.dead) == 0 {
            return;
        }
        let ended = self.ended;
        for place in 0..self.conns.capacity() {
            let Some(key) = self.conns.key_at(place) else { continue };
            let is_done = self.conns.get(key).is_some_and(|conn| conn.state == State::Dead && conn.is_over);
            if is_done && ended != Some(key) {
                self.forget(key);
            }
        }
    }

    /// Connections that ended keep their places until their processes confirm it. When those places are all that is left, the
    /// process that owes most of them loses its link, so that one which never confirms keeps nobody out.
    pub(crate) fn free_places(&mut self) {
        let is_full = self.conns.len() == self.conns.capacity();
        if !is_full || self.shared.taken >= self.shared.config.limits.connections {
            return;
        }
        let is_owed = |conn: &Conn| matches!(conn.state, State::AwaitClose | State::AwaitRoom);
        let owed =
            |link: Key| self.conns.iter().filter(|(_, conn)| conn.link == link && is_owed(conn)).count();
        let most = self.hot.iter().map(|key| (owed(*key), *key)).max();
        if let Some((1.., key)) = most {
            self.shared.stats.evicted += 1;
            self.end_link(key, Cause::Fabric(FabricFault::Lost));
        }
    }

    pub(crate) fn forget(&mut self, key: Key) {
        let Some(conn) = self.conns.remove(key) else { return };
        let Some(link) = self.links.get_mut(conn.link) else { return };
        link.conns -= 1;
        if link.conns == 0 && link.target.is_some() {
            let deadline = self.shared.now + self.shared.config.linger;
            link.deadline = Some(deadline);
            self.note_deadline(deadline);
        }
    }

    /// Looks at deadlines and, if it is time, at sockets.
    pub(crate) fn look_if_due(&mut self, now: Time) {
        let is_setting_up = self.hot.len() < self.links.len();
        if self.next_deadline.is_some_and(|deadline| deadline <= now) {
            self.expire(now);
        }
        if now >= self.next_look {
            let interval = self.shared.config.look_interval;
            self.next_look = now + if is_setting_up { interval.min(LOOK_INTERVAL_SETUP) } else { interval };
            self.look();
        }
    }

    /// Looks at the sockets without waiting.
    pub(crate) fn look(&mut self) {
        self.shared.stats.looks += 1;
        self.ready.0.clear();
        let looked = epoll::wait(
            &self.shared.epoll,
            rustix::buffer::spare_capacity(&mut self.ready.0),
            Some(&Timespec::default()),
        );
        debug_assert!(matches!(looked, Ok(_) | Err(Errno::INTR)), "our own descriptor: {looked:?}");
        for place in 0..self.ready.0.len() {
            let Some(event) = self.ready.0.get(place) else { break };
            // The event is packed: its field is copied out.
            let data = event.data;
            let id = data.u64();
            if id & LISTENER_ID == LISTENER_ID {
                self.accept_all((id & u64::from(u32::MAX)) as usize);
            } else {
                self.hear(Key::from_bits(id));
            }
        }
        self.try_servers();
    }

    fn hear(&mut self, key: Key) {
        let Some(link) = self.links.get_mut(key) else { return };
        if link.stage == Stage::AwaitServer {
            return;
        }
        let was_up = link.stage == Stage::Up;
        match link.readable(&mut self.shared) {
            Ok(()) if !was_up && link.stage == Stage::Up => {
                self.hot.push(key);
                self.is_roused = true;
                self.flush_link(key);
            }
            Ok(()) => self.is_roused |= was_up,
            Err(cause) => {
                // It was turned away before it said who it is.
                self.shared.stats.turned_away += u64::from(!was_up && link.target.is_none());
                self.drain(key);
                self.end_link(key, cause);
            }
        }
    }

    /// What a process said before it left counts. One that only says that it left does not go on for ever.
    fn drain(&mut self, key: Key) {
        let Some(link) = self.links.get_mut(key) else { return };
        let lines = link.theirs.as_ref().map_or(0, |theirs| theirs.len() / LINE);
        for _ in 0..lines {
            match rx::receive(key, link, &mut self.conns, &mut self.shared) {
                Ok(true) => {}
                Ok(false) | Err(_) => return,
            }
        }
    }

    /// Tries again where a server's queue was full.
    fn try_servers(&mut self) {
        if self.hot.len() == self.links.len() {
            return;
        }
        for place in 0..self.links.capacity() {
            let Some(key) = self.links.key_at(place) else { continue };
            let Some(link) = self.links.get_mut(key).filter(|link| link.stage == Stage::AwaitServer) else {
                continue;
            };
            if let Err(fault) = link.try_server(&self.shared).and_then(|()| self.watch_link(key)) {
                self.end_link(key, Cause::Fabric(fault));
            }
        }
    }

    fn accept_all(&mut self, listener: usize) {
        for _ in 0..ACCEPTS {
            let Some(listener) = self.listeners.get(listener) else { return };
            let Ok(socket) = listener.accept() else { return };
            match Link::accepted(socket, &self.shared) {
                Ok(link) => {
                    if self.adopt(link).is_none() {
                        self.shared.stats.turned_away += 1;
                    }
                }
                Err(Denied::User) => self.shared.stats.denied += 1,
                Err(Denied::Gone) => self.shared.stats.turned_away += 1,
            }
        }
    }

    /// Ends what took too long.
    fn expire(&mut self, now: Time) {
        self.next_deadline = None;
        for place in 0..self.links.capacity() {
            let Some(key) = self.links.key_at(place) else { continue };
            let Some(link) = self.links.get(key) else { continue };
            match link.deadline {
                Some(at) if at > now => self.note_deadline(at),
                // One that is up is only kept for a while after its last connection.
                Some(_) if link.stage == Stage::Up && link.conns > 0 => {}
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

    /// Ends a connection of ours, whatever it waits for.
    pub(crate) fn give_up(&mut self, key: Key, cause: Cause) {
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.is_live()) else { return };
        let link_key = conn.link;
        let Some(link) = self.links.get_mut(link_key) else { return };
        let was = conn.state;
        close::end(conn, link, &mut self.shared, (cause, None));
        match was {
            State::Established => close::say_close(conn, link, crate::record::Why::GONE),
            State::AwaitAnswer => {
                link.say.push_back(Say::Reject {
                    to: conn.peer,
                    is_shut: false,
                    private_data: Box::default(),
                });
                conn.die(&mut self.shared);
            }
            _ => {
                let number = conn.number();
                let before = link.say.len();
                link.say.retain(|say| !matches!(say, Say::Connect { from, .. } if *from == number));
                if link.say.len() < before {
                    conn.die(&mut self.shared); // the peer never hears of it
                } else {
                    link.say.push_back(Say::GiveUp { from: number });
                }
            }
        }
        self.flush_link(link_key);
    }
}

impl Drop for Shm {
    /// The links end, and nobody but this shard ever reached a window: their buffers go back to their pool. The links say
    /// that it is void what peers may be fetching, before anybody can use that memory again.
    fn drop(&mut self) {
        for (key, _) in self.conns.iter() {
            self.shared.windows.close(Qp(key).scope(), drop);
        }
    }
}
