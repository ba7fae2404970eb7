//! One shard's provider: the poll loop, doorbells, completions and timers.

use crate::sys::{ibv_wc, ibv_wc_status};
use crate::{
    IbverbsConfig, IbverbsStats, apart,
    close::{self, go_on, release, ring},
    cm::{LISTENERS, Listener},
    config::fit,
    conn::{IbverbsConn, IbverbsShared, IbverbsState, PostedReceives, RECEIVE},
    device::DeviceAbout,
    errands::Errands,
    exposures::Exposures,
    library::Library,
    presence::{Lent, Presence, WAY_AT_START},
    rdmacm::{self, Channel},
    shared::Inbox,
    sinks::ReadSinks,
    tx,
};
use rustix::event::epoll;
use stag_pools::{Pool, Table};
use stag_verbs::{Event, Qp, Time};
use std::{
    collections::{HashMap, VecDeque},
    fmt,
    hash::RandomState,
    io,
    os::fd::OwnedFd,
    sync::{Arc, atomic::Ordering},
};

/// Completions taken at a time.
const BATCH: usize = 32;
/// Events that come with a connection's end and beginning, in addition to those of its work and its
/// windows.
const EVENTS_PER_CONNECTION: usize = 4;

/// A shard on an RDMA device.
pub struct Ibverbs {
    pub(crate) conns: Table<Box<IbverbsConn>>,
    pub(crate) listeners: Vec<Listener>,
    /// Connect requests that another shard's listener leaves to this one.
    pub(crate) inbox: Option<Arc<Inbox>>,
    /// Those of which the identifiers are being taken over.
    pub(crate) taking_over: usize,
    pub(crate) shared: IbverbsShared,
    /// Connections with work whose doorbell has not been rung.
    pub(crate) posted: Vec<Qp>,
    /// The connection whose end was the last event: the engine may ask about it until it polls
    /// again.
    ended: Option<Qp>,
    completions: Vec<ibv_wc>,
    pub(crate) look_at: Time,
    pub(crate) epoll: OwnedFd,
    pub(crate) presence: Presence,
    /// Names who writes, by addresses.
    pub(crate) writers: RandomState,
}

impl fmt::Debug for Ibverbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ibverbs").field("device", &self.about().name).finish_non_exhaustive()
    }
}

impl Ibverbs {
    /// A provider without connections. Fails with [`crate::Unavailable`] inside when there is no
    /// RDMA here, and when the device has too little of something.
    pub fn new(mut config: IbverbsConfig) -> io::Result<Self> {
        let library = match config.is_apart {
            false => Library::get(),
            true => {
                apart::start()?;
                Library::apart()
            }
        };
        let library = library.map_err(|why| io::Error::new(io::ErrorKind::NotFound, why))?;
        let found = rdmacm::device_through(library, config.through, WAY_AT_START)?;
        let about = found.device.about.clone();
        let depth = fit(&mut config, &about)?;
        let limits = config.limits;
        let lent = Lent::new(&found.device, &config, depth)?;
        let channel = Channel::new(library)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let errands = Errands::start(&channel)?;
        epoll::add(&epoll, errands.fd(), epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        let places = limits.connections * 2 + config.spare;
        let works = limits.send_queue.saturating_mul(limits.connections);
        let events =
            works.saturating_add(limits.receives + limits.windows + EVENTS_PER_CONNECTION * places);
        let now = config.now;
        let shared = IbverbsShared {
            about,
            is_lost: false,
            depth,
            exposures: None,
            queues: None,
            pools: Vec::new(),
            regions: Vec::new(),
            sinks: None,
            receives: PostedReceives::new(limits.receives),
            channel,
            errands,
            events: VecDeque::with_capacity(events),
            stats: IbverbsStats::default(),
            now,
            by_number: HashMap::with_capacity(places),
            spare_works: Vec::with_capacity(places),
            chain: Vec::with_capacity(depth),
            named: Vec::with_capacity(depth),
            receive_chain: (
                Vec::with_capacity(limits.receives),
                Vec::with_capacity(limits.receives),
            ),
            taken: 0,
            waiting: 0,
            parting: Vec::new(),
            timed: Vec::with_capacity(places),
            any_flushed: false,
            config,
        };
        let mut provider = Self {
            conns: Table::new(places),
            listeners: Vec::with_capacity(LISTENERS),
            inbox: None,
            taking_over: 0,
            shared,
            posted: Vec::with_capacity(places),
            ended: None,
            completions: vec![ibv_wc::EMPTY; BATCH],
            look_at: now,
            epoll,
            presence: Presence::default(),
            writers: RandomState::new(),
        };
        let device = provider.watch(found)?;
        provider.take_up(&device, lent)?;
        Ok(provider)
    }

    /// Returns the counters since the start.
    pub fn stats(&self) -> &IbverbsStats {
        &self.shared.stats
    }

    /// The device, as it said when it was opened last.
    pub fn about(&self) -> &DeviceAbout {
        &self.shared.about
    }

    /// Octets of the longest message that travels in its work request.
    pub fn inline_max(&self) -> u32 {
        self.shared.queues.as_ref().map_or(0, |queues| queues.inline_max.load(Ordering::Relaxed))
    }

    /// Buffers that peers can reach: by windows, or by regions where the device has none.
    pub fn windows_bound(&self) -> usize {
        self.shared.exposures.as_ref().map_or(0, Exposures::in_use)
    }

    /// Returns true if the device has done all work that was posted on `qp`: windows bound there
    /// are open to the peer.
    pub fn is_drained(&self, qp: Qp) -> bool {
        let conn = self.conns.get(qp.0);
        conn.is_none_or(|conn| conn.binds.is_empty() && conn.flights.is_empty())
    }

    /// Connections that exist for the engine, those being set up included.
    pub fn connections(&self) -> usize {
        self.shared.taken + self.shared.waiting
    }

    pub(crate) fn add_pool(&mut self, pool: &Pool) -> io::Result<()> {
        self.add_region(pool)?;
        self.shared.pools.push(pool.clone());
        Ok(())
    }

    /// Runs `act` on a connection.
    pub(crate) fn with<R>(
        &mut self,
        qp: Qp,
        act: impl FnOnce(&mut IbverbsConn, &mut IbverbsShared) -> R,
    ) -> Option<R> {
        let conn = self.conns.get_mut(qp.0)?;
        Some(act(conn, &mut self.shared))
    }

    /// Work was posted to `qp`.
    pub(crate) fn note_posted(&mut self, qp: Qp) {
        if let Some(conn) = self.conns.get_mut(qp.0)
            && !conn.is_posted
        {
            conn.is_posted = true;
            self.posted.push(qp);
        }
    }

    /// Hands added receives to the device.
    pub(crate) fn post_added(&mut self) {
        if !self.shared.receives.added.is_empty() {
            self.shared.post_receives();
        }
    }

    /// Rings the doorbells. Messages may promise receives, which go first.
    pub(crate) fn ring_all(&mut self) {
        self.post_added();
        for place in 0..self.posted.len() {
            let Some(qp) = self.posted.get(place).copied() else { break };
            self.with(qp, |conn, shared| {
                conn.is_posted = false;
                if conn.state == IbverbsState::Established {
                    ring(conn, shared);
                }
            });
        }
        self.posted.clear();
    }

    pub(crate) fn poll_once(&mut self, now: Time) -> Option<Event> {
        self.shared.now = now;
        self.post_added();
        if let Some(qp) = self.ended.take() {
            self.conns.remove(qp.0);
        }
        loop {
            if let Some(event) = self.shared.events.pop_front() {
                if let Event::Disconnected { qp, .. } = &event {
                    self.ended = Some(*qp);
                }
                return Some(event);
            }
            #[cfg(test)]
            self.shared.errands.turn();
            // A connection can go when the queue was seen empty after its last completion came.
            let may_go = std::mem::take(&mut self.shared.any_flushed);
            if self.take_completions() {
                self.shared.any_flushed |= may_go;
            } else if may_go {
                self.release_flushed();
            } else if self.shared.errands.has_reports() {
                self.take_report();
            } else if now >= self.look_at {
                self.look_at = now + self.shared.config.look_interval;
                self.look();
                self.expire();
            } else {
                return None;
            }
        }
    }

    /// Handles a batch of completions. False: there was none.
    fn take_completions(&mut self) -> bool {
        let mut batch = std::mem::take(&mut self.completions);
        let queues = self.shared.queues.as_ref();
        let count = queues.map_or(0, |queues| queues.completions.poll(&mut batch));
        self.shared.stats.completions += count as u64;
        for completion in batch.iter().take(count) {
            if completion.wr_id & RECEIVE != 0 {
                self.handle_receive(completion);
            } else {
                self.handle_work(completion);
            }
        }
        self.completions = batch;
        self.wake_starved();
        count > 0
    }

    /// Continues Reads that waited for a place.
    fn wake_starved(&mut self) {
        let starved = self.shared.sinks.as_mut().map_or_else(Vec::new, ReadSinks::wake);
        for qp in starved {
            self.with(qp, |conn, shared| {
                if conn.state == IbverbsState::Established || conn.state == IbverbsState::AwaitDrain
                {
                    go_on(conn, shared);
                }
            });
        }
    }

    fn handle_work(&mut self, completion: &ibv_wc) {
        let (place, number) = ((completion.wr_id >> 32) as usize, completion.wr_id as u32);
        let Some(key) = self.conns.key_at(place) else { return };
        if completion.status != ibv_wc_status::IBV_WC_SUCCESS
            && self.conns.get(key).is_some_and(|conn| conn.failed.is_none())
        {
            // A device that failed flushes all work, and its own event says why.
            self.take_device_events();
        }
        self.with(Qp(key), |conn, shared| {
            let count = number.wrapping_sub(conn.oldest_flight()).wrapping_add(1) as usize;
            debug_assert!(count <= conn.flights.len(), "only what is in flight completes");
            let is_well = completion.status == ibv_wc_status::IBV_WC_SUCCESS;
            for _ in 0..count.min(conn.flights.len()) - usize::from(!is_well) {
                if conn.failed.is_none_or(|_| is_well) {
                    tx::landed(conn, shared);
                } else {
                    conn.flights.pop_front();
                }
            }
            if is_well {
                go_on(conn, shared);
            } else {
                close::fail(conn, shared, completion.status);
            }
        });
    }

    /// Takes what other shards and the device report.
    fn look(&mut self) {
        self.shared.stats.looks += 1;
        self.take_over();
        self.take_device_events();
        self.mend();
    }

    /// Takes what the device reports.
    fn take_device_events(&mut self) {
        while let Some(event) =
            self.shared.queues.as_ref().and_then(|queues| queues.domain.device.next_event())
        {
            self.handle_device_event(&event);
        }
    }

    /// Handles connections whose deadlines have passed.
    fn expire(&mut self) {
        let now = self.shared.now;
        let mut place = 0;
        while let Some(qp) = self.shared.timed.get(place).copied() {
            let is_timed = self.with(qp, |conn, shared| {
                close::expire(conn, shared, now);
                conn.deadline.is_some()
            });
            if is_timed == Some(true) {
                place += 1;
            } else {
                self.shared.timed.swap_remove(place);
            }
        }
        let IbverbsShared { parting, errands, .. } = &mut self.shared;
        let over = parting.extract_if(.., |(_, until)| *until <= now);
        over.for_each(|(id, _)| errands.discard(id));
    }

    /// Discards identifiers whose peers have not confirmed the end of their connection.
    pub(crate) fn leave_parting(&mut self) {
        let IbverbsShared { parting, errands, .. } = &mut self.shared;
        parting.drain(..).for_each(|(id, _)| errands.discard(id));
    }

    /// Has the device give back what it lent to connections whose work is all back.
    fn release_flushed(&mut self) {
        for place in 0..self.conns.capacity() {
            let Some(key) = self.conns.key_at(place) else { continue };
            if let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.is_flushed) {
                release(conn, &mut self.shared);
            }
        }
        if self.shared.is_lost {
            self.give_back();
        }
    }

    /// Makes the queue wake us up. False: something is there.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.post_added();
        let IbverbsShared { events, any_flushed, errands, .. } = &self.shared;
        if !events.is_empty() || *any_flushed || errands.has_reports() || self.ended.is_some() {
            return false;
        }
        if let Some(queues) = &self.shared.queues {
            queues.completions.quench();
            queues.completions.arm();
        }
        // What else may have come keeps its descriptor readable.
        self.look_at = self.shared.now;
        !self.take_completions()
    }

    pub(crate) fn next_timer(&self) -> Option<Time> {
        let timed =
            self.shared.timed.iter().filter_map(|qp| self.conns.get(qp.0).map(|conn| &**conn));
        let deadline = |conn: &IbverbsConn| conn.last_receive.or(conn.deadline);
        timed.filter_map(deadline).chain(self.presence.next()).min()
    }
}

impl Drop for Ibverbs {
    fn drop(&mut self) {
        self.leave_listeners();
        // Outcomes that are still to come begin nothing.
        for place in 0..self.conns.capacity() {
            let key = self.conns.key_at(place);
            if let Some(conn) = key.and_then(|key| self.conns.get_mut(key)) {
                conn.state = IbverbsState::Over;
            }
        }
        self.finish_errands();
        for place in 0..self.conns.capacity() {
            let Some(conn) = self.conns.key_at(place).and_then(|key| self.conns.get_mut(key))
            else {
                continue;
            };
            if let Some(pair) = &conn.pair {
                pair.stop();
            }
            if let Some(id) = &conn.id {
                id.disconnect();
            }
        }
        // Bound windows hold their queue pairs.
        self.shared.exposures = None;
        let mut kept = 0;
        for place in 0..self.conns.capacity() {
            let Some(key) = self.conns.key_at(place) else { continue };
            let pair = self.conns.get_mut(key).and_then(|conn| conn.pair.take());
            let Some(pair) = pair.and_then(close::destroy) else { continue };
            // The device may still reach what was posted there: that memory stays allocated for as
            // long as this process lives.
            std::mem::forget((pair, self.conns.remove(key)));
            kept += 1;
        }
        if kept > 0 {
            std::mem::forget(std::mem::replace(&mut self.shared.receives, PostedReceives::new(0)));
            eprintln!(
                "stag-ibverbs: {} kept {kept} queue pairs that were to go; their memory is out of \
                 use until this process ends",
                self.about().name
            );
        }
    }
}
