//! One shard's software RNIC: its connections, and what every change of one entails. `driver` polls
//! it.

use crate::{
    IwarpAddress, IwarpConfig, IwarpStats,
    conn::{
        Census, ConnStanding, IwarpConn, IwarpShared, IwarpState, STAGING, Spares, has_few_receives,
    },
    crc_losers::CrcLosers,
    input::{Brought, Hot},
    sock::Epoll,
    transmit::OUTPUT_LEN,
};
use stag_pools::{Table, Windows, table::Key};
use stag_protocol::iwarp::{fpdu, mpa};
use stag_verbs::soft::{MovedOctets, Receives};
use stag_verbs::{Limits, Qp, Time};
use std::{collections::VecDeque, io, os::fd::OwnedFd};

/// Maximum of addresses that one shard listens at.
pub(crate) const LISTENERS: usize = 16;
/// Events of a connection's beginning and end, in addition to those of its work and its windows.
const EVENTS_PER_CONNECTION: usize = 4;

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
    pub(crate) next_deadline: Option<Time>,
    /// Connections with work whose doorbell has not been rung.
    pub(crate) posted: Vec<Key>,
    /// Connections with FPDUs to send that need no doorbell.
    pub(crate) answering: Vec<Key>,
    /// Connections that are not read until another message can wait.
    pub(crate) stalled: Vec<Key>,
    /// An event or a message was reported since the last look at the sockets.
    pub(crate) is_fruitful: bool,
    /// Until this time, once all events are reported, the only work is to look for input.
    pub(crate) quiet_until: Time,
    pub(crate) brought: Brought,
    pub(crate) hot: Hot,
    /// The connection whose end was the last event: the engine may query it until the next poll.
    pub(crate) ended: Option<Key>,
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
            output_spares: Spares::new(places, OUTPUT_LEN),
            spare_works: Vec::with_capacity(places),
            spare_fpdus: Vec::with_capacity(places),
            windows: Windows::new(windows, config.seed),
            crc_losers: CrcLosers::default(),
            receives: Receives::new(receives, receive_len, config.parking)?,
            events: VecDeque::with_capacity(events),
            stats: IwarpStats::default(),
            moved: MovedOctets::new(2 * places),
            staging: vec![0; STAGING].into(),
            scratch: Vec::new(),
            now: config.now,
            may_resume: false,
            has_few_receives: has_few_receives(&config),
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
