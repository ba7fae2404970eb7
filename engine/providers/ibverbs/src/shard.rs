//! One shard's provider: the poll loop, completions, and who hears of what the connection manager and the device report.

use crate::{
    Address, Config, Stats,
    close::{self, UNSPECIFIED, end, finish, go_on, ring},
    cm::{self, Channel, Id},
    conn::{Conn, RECEIVE, Receives, Shared, State},
    connect,
    device::{About, Completions, Domain, QueuePair, Queues, Region, SharedQueue, event},
    events,
    library::Library,
    memory,
    sinks::Sinks,
    tx,
    windows::Windows,
};
use libc::c_int;
use rdma_sys::{ibv_wc, ibv_wc_status, imm_data_invalidated_rkey_union_t, rdma_cm_event_type as kind};
use rustix::event::epoll;
use stag_pools::{Pool, RemoteKey, Table, table::Key};
use stag_verbs::{
    Cause, Event, FabricFault, Qp, Time,
    soft::{TOO_LONG, invalidate_fault},
};
use std::{
    collections::{HashMap, VecDeque},
    fmt, io,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    rc::Rc,
    time::Duration,
};

/// Completions taken at a time.
const BATCH: usize = 32;
/// Addresses one shard listens at.
const LISTENERS: usize = 16;
/// Listeners are told from connections by this half of what their identifiers say, which no connection's key has at the same time
/// as an index that small: it would be its 2^32nd use of one place.
const LISTENER: u64 = (u32::MAX as u64) << 32;
/// Octets of private data a connect request has room for on InfiniBand: 92 without the address.
const PRIVATE_DATA_MAX: usize = 56;
/// How long an identifier waits for the peer's agreement to the end.
const PARTING: Duration = Duration::from_secs(2);
/// Events that come with a connection's end and beginning, beside those of its work and its windows.
const EVENTS_PER_CONNECTION: usize = 4;

/// A shard on an RDMA device.
pub struct Ibverbs {
    pub(crate) conns: Table<Box<Conn>>,
    /// Identifiers of connections that are over, until their peers know.
    parting: Vec<(Id, Time)>,
    pub(crate) listeners: Vec<Id>,
    pub(crate) shared: Shared,
    /// Connections with work whose doorbell has not been rung.
    pub(crate) posted: Vec<Qp>,
    /// The connection whose end was the last event: the engine may ask about it until it polls again.
    ended: Option<Qp>,
    completions: Vec<ibv_wc>,
    look_at: Time,
    pub(crate) epoll: OwnedFd,
}

impl fmt::Debug for Ibverbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ibverbs").field("device", &self.about().name).finish_non_exhaustive()
    }
}

fn no_completion() -> ibv_wc {
    ibv_wc {
        wr_id: 0,
        status: 0,
        opcode: 0,
        vendor_err: 0,
        byte_len: 0,
        imm_data_invalidated_rkey_union: imm_data_invalidated_rkey_union_t { invalidated_rkey: 0 },
        qp_num: 0,
        src_qp: 0,
        wc_flags: 0,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    }
}

/// Lowers the limits to what the device has; what cannot be lowered is an error. Returns the depth of send queues.
fn fit(config: &mut Config, about: &About) -> io::Result<usize> {
    let too_few = |what: &str, has: usize, wanted: usize| {
        let text = format!("{} has {has} {what} and {wanted} are wanted", about.name);
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    };
    let depth = config.queue_depth.min(about.queue_depth).max(1);
    let limits = &mut config.limits;
    if limits.receives > about.receives {
        return too_few("receives", about.receives, limits.receives);
    }
    if about.has_windows && limits.windows > about.windows {
        return too_few("windows", about.windows, limits.windows);
    }
    // DESIGN D8: one completion queue holds whatever its send queues and receives bring; that is the limit of connections.
    let held = about.completions.saturating_sub(limits.receives) / depth;
    if held == 0 {
        return too_few("completions", about.completions, limits.receives + depth);
    }
    limits.connections = limits.connections.min(held).min(about.queue_pairs.saturating_sub(1));
    limits.private_data_len = limits.private_data_len.min(PRIVATE_DATA_MAX);
    limits.windows = if about.has_windows { limits.windows } else { 0 };
    limits.remote_invalidation = about.has_windows;
    config.reads = config.reads.min(about.reads);
    Ok(depth)
}

/// An address of this host that belongs to an RDMA device, and what that device says of itself. An error says why there is none.
pub fn address_here() -> io::Result<(IpAddr, About)> {
    let library = Library::get().map_err(|why| io::Error::new(io::ErrorKind::NotFound, why))?;
    let (ip, device) = cm::address_here(library)?;
    Ok((ip, device.about.clone()))
}

impl Ibverbs {
    /// A provider without connections. Fails with [`crate::Unavailable`] inside when there is no RDMA here, and when the device has
    /// too little of something.
    pub fn new(mut config: Config) -> io::Result<Self> {
        let library = Library::get().map_err(|why| io::Error::new(io::ErrorKind::NotFound, why))?;
        let device = cm::device_through(library, config.through)?;
        let depth = fit(&mut config, &device.about)?;
        let limits = config.limits;
        let domain = Domain::new(&device)?;
        let completions = Completions::new(&device, limits.receives + limits.connections * depth)?;
        let receives = SharedQueue::new(&domain, limits.receives)?;
        let windows =
            if device.about.has_windows { Some(Windows::new(&domain, limits.windows)?) } else { None };
        let wants_sinks = device.about.wants_sinks || config.always_sinks;
        let sinks = if wants_sinks { Some(Sinks::new(&domain, &config.sinks)?) } else { None };
        let channel = Channel::new(library)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for fd in [completions.fd(), device.fd(), channel.fd()] {
            epoll::add(&epoll, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        let places = limits.connections * 2 + config.spare;
        let works = limits.send_queue.saturating_mul(limits.connections);
        let events = works.saturating_add(limits.receives + limits.windows + EVENTS_PER_CONNECTION * places);
        let now = config.now;
        let shared = Shared {
            windows,
            queues: Queues { domain, completions, receives, depth },
            regions: Vec::new(),
            sinks,
            receives: Receives::new(limits.receives),
            channel,
            events: VecDeque::with_capacity(events),
            stats: Stats::default(),
            now,
            by_number: HashMap::with_capacity(places),
            spare_works: Vec::with_capacity(places),
            chain: Vec::with_capacity(depth),
            named: Vec::with_capacity(depth),
            taken: 0,
            waiting: 0,
            timed: Vec::with_capacity(places),
            any_flushed: false,
            config,
        };
        Ok(Self {
            conns: Table::new(places),
            parting: Vec::new(),
            listeners: Vec::with_capacity(LISTENERS),
            shared,
            posted: Vec::with_capacity(places),
            ended: None,
            completions: (0..BATCH).map(|_| no_completion()).collect(),
            look_at: now,
            epoll,
        })
    }

    /// What happened since the start.
    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// The device.
    pub fn about(&self) -> &About {
        &self.shared.queues.domain.device.about
    }

    /// Windows that peers can use.
    pub fn windows_bound(&self) -> usize {
        self.shared.windows.as_ref().map_or(0, Windows::in_use)
    }

    /// Connections that exist for the engine, those being set up included.
    pub fn connections(&self) -> usize {
        self.shared.taken + self.shared.waiting
    }

    pub(crate) fn add_pool(&mut self, pool: &Pool) -> io::Result<()> {
        let (_, len) = pool.span();
        memory::check(len)?;
        let region =
            Region::new(&self.shared.queues.domain, pool).map_err(|error| memory::explain(error, len))?;
        self.shared.regions.push(region);
        Ok(())
    }

    pub(crate) fn listen_at(&mut self, at: Address) -> Result<Address, FabricFault> {
        if self.listeners.len() == LISTENERS {
            return Err(FabricFault::Exhausted);
        }
        let listened = Id::new(&self.shared.channel, LISTENER | self.listeners.len() as u64).and_then(|id| {
            id.bind(at.0)?;
            if id.device_name().is_some_and(|name| name != self.about().name) {
                return Err(io::ErrorKind::AddrNotAvailable.into());
            }
            Ok((id.listen()?, id))
        });
        let (port, id) = listened.map_err(|error| match error.raw_os_error() {
            Some(number) => connect::fault(number),
            None => FabricFault::from(&error),
        })?;
        self.listeners.push(id);
        Ok(Address(SocketAddr::new(at.0.ip(), port)))
    }

    pub(crate) fn start_connect(&mut self, to: Address, private_data: &[u8]) -> Result<Qp, FabricFault> {
        let Shared { config, taken, .. } = &self.shared;
        if private_data.len() > config.limits.private_data_len {
            return Err(FabricFault::Os(libc::EMSGSIZE));
        }
        // RFC 5042 §6.4.1 [5042-13]
        if *taken >= config.limits.connections {
            return Err(FabricFault::Exhausted);
        }
        let mut id = Id::new(&self.shared.channel, 0).map_err(|error| FabricFault::from(&error))?;
        let mut conn = Conn::new(State::AwaitWay, config.limits.send_queue);
        conn.peer = Some(to.0);
        conn.ours = private_data.to_vec();
        conn.reads = (config.reads, config.reads);
        conn.is_taken = true;
        conn.deadline = Some(self.shared.now + config.connect_timeout);
        let within = config.connect_timeout;
        let key = self.conns.insert(Box::new(conn)).map_err(|_| FabricFault::Exhausted)?;
        id.set_context(key.to_bits());
        let resolving = id.resolve_address(to.0, within);
        let conn = self.conns.get_mut(key).expect("it was just put there");
        conn.qp = Qp(key);
        conn.id = Some(id);
        self.shared.taken += 1;
        self.shared.timed.push(Qp(key));
        if let Err(error) = resolving {
            let fault = match error.raw_os_error() {
                Some(libc::ENETUNREACH | libc::EHOSTUNREACH) | None => FabricFault::Refused,
                Some(number) => connect::fault(number),
            };
            end(conn, &mut self.shared, Cause::Fabric(fault));
        }
        self.look_at = self.shared.now;
        Ok(Qp(key))
    }

    /// Runs `act` on a connection.
    pub(crate) fn with<R>(&mut self, qp: Qp, act: impl FnOnce(&mut Conn, &mut Shared) -> R) -> Option<R> {
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

    /// Rings the doorbells.
    pub(crate) fn ring_all(&mut self) {
        for place in 0..self.posted.len() {
            let Some(qp) = self.posted.get(place).copied() else { break };
            self.with(qp, |conn, shared| {
                conn.is_posted = false;
                if conn.state == State::Established {
                    ring(conn, shared);
                }
            });
        }
        self.posted.clear();
    }

    pub(crate) fn poll_once(&mut self, now: Time) -> Option<Event> {
        self.shared.now = now;
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
            // A connection can go when the queue was seen empty after its last completion came.
            let may_go = std::mem::take(&mut self.shared.any_flushed);
            if self.take_completions() {
                self.shared.any_flushed |= may_go;
            } else if may_go {
                self.finish_flushed();
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
        let count = self.shared.queues.completions.poll(&mut batch);
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

    /// Reads that waited for a place go on.
    fn wake_starved(&mut self) {
        let starved = self.shared.sinks.as_mut().map_or_else(Vec::new, Sinks::wake);
        for qp in starved {
            self.with(qp, |conn, shared| {
                if conn.state == State::Established || conn.state == State::AwaitDrain {
                    go_on(conn, shared);
                }
            });
        }
    }

    fn handle_work(&mut self, completion: &ibv_wc) {
        let (place, number) = ((completion.wr_id >> 32) as usize, completion.wr_id as u32);
        let Some(key) = self.conns.key_at(place) else { return };
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

    fn handle_receive(&mut self, completion: &ibv_wc) {
        let shared = &mut self.shared;
        let mut buf = shared.receives.take((completion.wr_id & !RECEIVE) as u32);
        let qp = shared.by_number.get(&completion.qp_num).copied();
        let conn = qp.and_then(|qp| self.conns.get_mut(qp.0));
        let is_well = completion.status == ibv_wc_status::IBV_WC_SUCCESS;
        let Some(conn) = conn.filter(|conn| is_well && conn.state != State::Over) else {
            let qp = qp.filter(|_| completion.status != ibv_wc_status::IBV_WC_WR_FLUSH_ERR);
            return self.put_back(buf, qp, completion.status);
        };
        let mut invalidated = None;
        if completion.wc_flags & shared.queues.domain.device.about.invalidation_flags != 0 {
            // SAFETY: the flag says that this part of the union was filled.
            let key = RemoteKey(unsafe { completion.imm_data_invalidated_rkey_union.invalidated_rkey });
            let windows = shared.windows.as_mut();
            invalidated = windows.and_then(|windows| windows.invalidated_by_peer(conn.qp.scope(), key));
            if invalidated.is_none() {
                // Not this peer's to invalidate, or being invalidated by us: a device should have refused it.
                let fault = invalidate_fault(stag_pools::Violation::OtherScope);
                end(conn, shared, Cause::PeerFault(fault));
                return self.put_back(buf, None, completion.status);
            }
            shared.stats.remote_invalidations += 1;
        }
        let len = (completion.byte_len as usize).min(buf.spare_len());
        buf.extend(len);
        if conn.state == State::AwaitSign {
            connect::established(conn, shared);
        }
        shared.events.push_back(Event::Received { qp: conn.qp, buf, invalidated });
    }

    /// A receive that brought no message is posted again (the contract: it stays with the shared queue).
    fn put_back(&mut self, buf: stag_pools::Buf, qp: Option<Qp>, status: u32) {
        self.shared.stats.receives_failed += 1;
        let posted = self.shared.post_receive(buf);
        debug_assert!(posted.is_ok(), "the receive had its place before");
        if let Some(qp) = qp {
            let fault = if status == ibv_wc_status::IBV_WC_LOC_LEN_ERR { TOO_LONG } else { UNSPECIFIED };
            self.with(qp, |conn, shared| end(conn, shared, Cause::PeerFault(fault)));
        }
    }

    /// Takes what the connection manager and the device report beside completions.
    fn look(&mut self) {
        self.shared.stats.looks += 1;
        let channel = Rc::clone(&self.shared.channel);
        while let Some(event) = channel.next() {
            self.handle_connection_event(event);
        }
        let device = Rc::clone(&self.shared.queues.domain.device);
        while let Some((number, context)) = device.next_event() {
            self.handle_device_event(number, Qp(Key::from_bits(context.addr() as u64)));
        }
    }

    fn handle_connection_event(&mut self, event: cm::Event) {
        if event.kind == kind::RDMA_CM_EVENT_CONNECT_REQUEST {
            return self.handle_request(event);
        }
        if event.context & LISTENER == LISTENER {
            if event.kind == kind::RDMA_CM_EVENT_DEVICE_REMOVAL {
                self.listeners.retain(|id| !id.is(event.id));
            }
            self.shared.stats.port_events += 1;
            return;
        }
        let qp = Qp(Key::from_bits(event.context));
        let is_known = self.with(qp, |conn, shared| {
            let is_its = conn.id.as_ref().is_some_and(|id| id.is(event.id));
            if is_its {
                events::handle_connection_event(conn, shared, &event);
            }
            is_its
        });
        if is_known != Some(true)
            && matches!(
                event.kind,
                kind::RDMA_CM_EVENT_DISCONNECTED
                    | kind::RDMA_CM_EVENT_TIMEWAIT_EXIT
                    | kind::RDMA_CM_EVENT_DEVICE_REMOVAL
            )
        {
            self.parting.retain(|(id, _)| !id.is(event.id));
        }
    }

    fn handle_request(&mut self, event: cm::Event) {
        // SAFETY: it came with a connect request of this channel, and events are taken once.
        let mut id = unsafe { Id::adopt(&self.shared.channel, event.id) };
        let Shared { config, taken, waiting, .. } = &self.shared;
        let has_place = taken + waiting < config.limits.connections + config.spare;
        let is_ours = id.device_name().is_some_and(|name| name == self.about().name);
        let mut conn = Box::new(Conn::new(State::AwaitAnswer, config.limits.send_queue));
        conn.peer = id.peer();
        conn.private_data = event.private_data;
        // The kernel does not tell programs of a peer that gives up before it is answered (`ucma_event_handler`).
        conn.deadline = Some(self.shared.now + self.shared.config.connect_timeout);
        connect::agree(&mut conn, &self.shared, event.reads);
        let key = if has_place && is_ours { self.conns.insert(conn).ok() } else { None };
        let Some(key) = key else {
            self.shared.stats.shed += 1;
            return id.reject(&[]);
        };
        id.set_context(key.to_bits());
        let conn = self.conns.get_mut(key).expect("it was just put there");
        conn.qp = Qp(key);
        conn.id = Some(id);
        self.shared.waiting += 1;
        self.shared.timed.push(Qp(key));
        self.shared.events.push_back(Event::ConnectRequest { qp: Qp(key) });
    }

    fn handle_device_event(&mut self, number: c_int, qp: Qp) {
        match number {
            event::LAST_WQE | event::QP_ACCESS | event::QP_REQUEST | event::QP_FATAL | event::ESTABLISHED => {
                self.with(qp, |conn, shared| events::handle_pair_event(conn, shared, number));
            }
            // What is under way is lost.
            event::DEVICE_FATAL | event::CQ_ERROR | event::SRQ_ERROR => {
                for place in 0..self.conns.capacity() {
                    let Some(key) = self.conns.key_at(place) else { continue };
                    self.with(Qp(key), |conn, shared| end(conn, shared, Cause::Fabric(FabricFault::Lost)));
                }
            }
            // Connections outlive a port that comes back soon enough; else their retries end them.
            event::PORT_ERROR | event::PORT_ACTIVE | event::GID_CHANGE => self.shared.stats.port_events += 1,
            _ => {}
        }
    }

    /// Ends what has waited too long.
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
        self.parting.retain(|(_, until)| *until > now);
    }

    /// Reports the end of every connection whose work is all back.
    fn finish_flushed(&mut self) {
        for place in 0..self.conns.capacity() {
            let Some(key) = self.conns.key_at(place) else { continue };
            let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.is_flushed) else { continue };
            conn.is_flushed = false;
            if !finish(conn, &mut self.shared) {
                continue;
            }
            if let Some(id) = conn.id.take().filter(|_| !conn.is_parted) {
                self.parting.push((id, self.shared.now + PARTING));
            }
        }
    }

    /// Makes the queue wake us up. False: something is there.
    pub(crate) fn is_idle(&mut self) -> bool {
        if !self.shared.events.is_empty() || self.shared.any_flushed || self.ended.is_some() {
            return false;
        }
        self.shared.queues.completions.quench();
        self.shared.queues.completions.arm();
        // What else may have come keeps its descriptor readable.
        self.look_at = self.shared.now;
        !self.take_completions()
    }

    pub(crate) fn next_timer(&self) -> Option<Time> {
        let timed = self.shared.timed.iter().filter_map(|qp| self.conns.get(qp.0).map(|conn| &**conn));
        let deadline = |conn: &Conn| conn.last_receive.or(conn.deadline);
        timed.filter_map(deadline).min()
    }
}

impl Drop for Ibverbs {
    fn drop(&mut self) {
        for place in 0..self.conns.capacity() {
            let Some(conn) = self.conns.key_at(place).and_then(|key| self.conns.get_mut(key)) else {
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
        self.shared.windows = None;
        let mut kept = 0;
        for place in 0..self.conns.capacity() {
            let Some(key) = self.conns.key_at(place) else { continue };
            let pair = self.conns.get_mut(key).and_then(|conn| conn.pair.take());
            let Some(Err(pair)) = pair.map(QueuePair::destroy) else { continue };
            // The device may still reach what was posted there: it is nobody's for as long as this process lives.
            std::mem::forget((pair, self.conns.remove(key)));
            kept += 1;
        }
        if kept > 0 {
            std::mem::forget(std::mem::replace(&mut self.shared.receives, Receives::new(0)));
            eprintln!(
                "stag-ibverbs: {} kept {kept} queue pairs that were to go; their memory is out of use until this process ends",
                self.about().name
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Through;
    use stag_verbs::Limits;

    const LIMITS: Limits = Limits {
        connections: 1_024,
        send_queue: 256,
        receives: 4_160,
        receive_len: 4_096,
        windows: 32,
        read_spans: 64,
        private_data_len: 196,
        remote_invalidation: true,
    };

    fn fitted(change: impl FnOnce(&mut About)) -> io::Result<(Limits, usize)> {
        let mut about = About {
            name: "dev0".to_owned(),
            is_iwarp: false,
            has_windows: true,
            queue_pairs: 65_536,
            queue_depth: 16_384,
            completions: 32_767,
            receives: 32_768,
            windows: 1_024,
            reads: 16,
            invalidation_flags: 0,
            wants_sinks: false,
        };
        change(&mut about);
        let mut config = Config::new(LIMITS, Through::Local(IpAddr::from([0, 0, 0, 0])), Time(0));
        let depth = fit(&mut config, &about)?;
        Ok((config.limits, depth))
    }

    #[test]
    fn connections_are_as_many_as_one_completion_queue_holds() {
        let (limits, depth) = fitted(|_| {}).unwrap();
        assert_eq!((limits.connections, depth), (223, 128));
        assert!(limits.receives + limits.connections * depth <= 32_767);
        let (limits, depth) = fitted(|about| about.queue_depth = 16).unwrap();
        assert_eq!((limits.connections, depth), (1_024, 16));
        assert_eq!(fitted(|about| about.queue_pairs = 9).unwrap().0.connections, 8);
        assert_eq!(limits.private_data_len, PRIVATE_DATA_MAX);
    }

    #[test]
    fn a_device_without_windows_announces_no_remote_invalidation() {
        let (limits, _) = fitted(|about| (about.has_windows, about.windows) = (false, 0)).unwrap();
        assert_eq!((limits.windows, limits.remote_invalidation), (0, false));
        let (limits, _) = fitted(|_| {}).unwrap();
        assert_eq!((limits.windows, limits.remote_invalidation), (32, true));
    }

    #[test]
    fn a_device_that_has_too_little_says_of_what() {
        for (change, what) in [
            ((|about| about.receives = 4_159) as fn(&mut About), "4159 receives"),
            (|about| about.windows = 31, "31 windows"),
            (|about| about.completions = 4_160, "4160 completions"),
        ] {
            let error = fitted(change).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
