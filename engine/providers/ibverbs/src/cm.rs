//! Listening and connection set-up. Queue pairs belong to a device context of our own, so they are
//! brought from state to state here, with what the connection manager says they need, and not by
//! librdmacm. All calls for that are errands (`errands`), and each step begins with the outcome of
//! the one before.

use crate::sys::{ibv_access_flags, ibv_qp_attr_mask, ibv_qp_state, rdma_cm_event_type};
use crate::{
    Ibverbs, RdmaAddress,
    conn::{IbverbsConn, IbverbsShared, IbverbsState},
    device::QueuePair,
    errands::Outcome,
    exposures::Exposures,
    rdmacm::{self, Id, ReadDepths, Terms},
    shared::{Inbox, Request, Sharers},
};
use libc::c_int;
use rustix::event::epoll;
use stag_pools::Writer;
use stag_verbs::{Cause, Event, FabricFault, LinkSettings, Qp};
use std::{
    hash::BuildHasher,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

/// Time that a peer waits before it repeats a message that found no receive: 0.64 ms. (The
/// connection manager's choice is 655 ms.)
const RNR_TIMER: u8 = 12;
/// Reject reason of InfiniBand if there is no listener.
const NO_SUCH_SERVICE: c_int = 8;
/// Reject reason of InfiniBand if the listening program rejected the request.
const BY_CONSUMER: c_int = 28;

/// Addresses one shard listens at.
pub(crate) const LISTENERS: usize = 16;
/// Listeners are distinguished from connections by this half of their identifiers' context. No
/// connection's key has it together with so small an index: that would be the 2^32nd use of one
/// place.
pub(crate) const LISTENER: u64 = (u32::MAX as u64) << 32;
/// Context of the identifier that reports the removal of a shard's device.
pub(crate) const WATCH: u64 = u64::MAX;

/// An address at which peers ask to be connected.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) at: RdmaAddress,
    /// The lower half of its identifier's context.
    number: u32,
    hold: ListenerHold,
    /// The shards that share it, if this one has it.
    sharers: Option<Arc<Sharers>>,
}

/// The identifier that listens at an address.
#[derive(Debug)]
enum ListenerHold {
    Own {
        _id: Id,
    },
    /// Another shard of this process has it, on this device or, with that one's address, on
    /// another one.
    Joined,
    /// There is none: the device is lost, or the address is not its own at the moment.
    Lost,
}

impl Listener {
    /// Releases the identifier with its device, and the place among shards as well: the first shard
    /// that has the device again listens for all. A listener for all devices stays.
    pub(crate) fn lose(&mut self) {
        if !self.at.0.ip().is_unspecified() {
            (self.hold, self.sharers) = (ListenerHold::Lost, None);
        }
    }
}

impl Ibverbs {
    pub(crate) fn listen_at(&mut self, at: RdmaAddress) -> Result<RdmaAddress, FabricFault> {
        if self.shared.is_lost {
            return Err(FabricFault::DeviceLost);
        }
        let is_free = |number: &u32| self.listeners.iter().all(|it| it.number != *number);
        let number = (0..LISTENERS as u32).find(is_free).ok_or(FabricFault::Exhausted)?;
        let mut listener = Listener { at, number, hold: ListenerHold::Lost, sharers: None };
        self.hold(&mut listener)?;
        let at = listener.at;
        self.listeners.push(listener);
        Ok(at)
    }

    /// Makes an identifier listen, or joins the shard of this process whose identifier does.
    fn hold(&mut self, listener: &mut Listener) -> Result<(), FabricFault> {
        let inbox = self.open_inbox().map_err(|error| FabricFault::from(&error))?;
        let at = listener.at.0;
        if self.shared.config.elsewhere.contains(&at.ip()) {
            listener.hold = ListenerHold::Joined;
            return Ok(());
        }
        let has_sharers = listener.sharers.is_some();
        if inbox.as_ref().is_some_and(|inbox| !has_sharers && Sharers::join(at, inbox)) {
            listener.hold = ListenerHold::Joined;
            return Ok(());
        }
        let context = LISTENER | u64::from(listener.number);
        let listened = Id::new(&self.shared.channel, context).and_then(|id| {
            id.bind(at)?;
            if id.device_name().is_some_and(|name| name != self.about().name) {
                return Err(io::ErrorKind::AddrNotAvailable.into());
            }
            Ok((id.listen()?, id))
        });
        let (port, id) = listened.map_err(|error| match error.raw_os_error() {
            Some(number) => fault(number),
            None => FabricFault::from(&error),
        })?;
        let at = SocketAddr::new(at.ip(), port);
        if !has_sharers {
            listener.sharers = inbox.map(|inbox| Sharers::open(at, &inbox));
        }
        (listener.at, listener.hold) = (RdmaAddress(at), ListenerHold::Own { _id: id });
        Ok(())
    }

    /// Listens again where that ended. Returns the first address that cannot be listened at, with
    /// the reason.
    pub(crate) fn hold_again(&mut self) -> Result<(), (RdmaAddress, FabricFault)> {
        let mut listeners = std::mem::take(&mut self.listeners);
        let lost =
            listeners.iter_mut().filter(|listener| matches!(listener.hold, ListenerHold::Lost));
        let mut held = Ok(());
        for listener in lost {
            if let Err(fault) = self.hold(listener) {
                held = held.and(Err((listener.at, fault)));
            }
        }
        self.listeners = listeners;
        held
    }

    /// The address of a listener moved to another port or device, as a bond does when it fails
    /// over: it listens anew. Shards that share it stay.
    pub(crate) fn change_address(&mut self, context: u64) {
        self.shared.stats.port_events += 1;
        let number = context & !LISTENER;
        let listener = self.listeners.iter_mut().find(|it| u64::from(it.number) == number);
        if let Some(listener) = listener {
            listener.hold = ListenerHold::Lost;
        }
        self.look_at_address();
    }

    /// The inbox, if this shard shares its ports with others.
    fn open_inbox(&mut self) -> io::Result<Option<Arc<Inbox>>> {
        if self.inbox.is_none() && self.shared.config.shared_port {
            let inbox = Inbox::new(&self.about().name)?;
            let data = epoll::EventData::new_u64(0);
            epoll::add(&self.epoll, inbox.fd(), data, epoll::EventFlags::IN)?;
            self.inbox = Some(inbox);
        }
        Ok(self.inbox.clone())
    }

    /// Closes the listeners, and rejects peers that wait for this shard.
    pub(crate) fn leave_listeners(&mut self) {
        self.listeners.clear();
        if let Some(inbox) = self.inbox.take() {
            for request in inbox.close() {
                self.shared.errands.reject(Arc::new(request.id), Vec::new());
            }
        }
    }

    pub(crate) fn start_connect(
        &mut self,
        to: RdmaAddress,
        private_data: &[u8],
    ) -> Result<Qp, FabricFault> {
        let IbverbsShared { config, taken, .. } = &self.shared;
        if private_data.len() > config.limits.private_data_len {
            return Err(FabricFault::Os(libc::EMSGSIZE));
        }
        if self.shared.is_lost {
            return Err(FabricFault::DeviceLost);
        }
        // RFC 5042 §6.1.1 [5042-8]: no other stream can use a key: there is none of another host
        if self.has_other_host(Some(to.0.ip())) {
            return Err(FabricFault::NotIsolated);
        }
        // RFC 5042 §6.4.1 [5042-13]: scarce resources are handed out to a limit
        if *taken >= config.limits.connections {
            return Err(FabricFault::Exhausted);
        }
        let mut conn = IbverbsConn::new(IbverbsState::AwaitWay, config.limits.send_queue);
        conn.peer = Some(to.0);
        conn.ours = private_data.to_vec();
        conn.reads = ReadDepths { served: config.reads, asked: config.reads };
        conn.is_taken = true;
        conn.deadline = Some(self.shared.now + config.connect_timeout);
        let within = config.connect_timeout;
        let qp = self.admit(conn).ok_or(FabricFault::Exhausted)?;
        let (channel, context) = (Arc::clone(&self.shared.channel), qp.0.to_bits());
        self.with(qp, |conn, shared| {
            conn.send(shared, move || {
                let dial = || {
                    let id = Id::new(&channel, context)?;
                    id.resolve_address(to.0, within)?;
                    Ok(id)
                };
                Outcome::Dialled(dial())
            });
        });
        self.shared.taken += 1;
        Ok(qp)
    }

    /// Gives a connection its place and its name. None: there is no place.
    fn admit(&mut self, conn: IbverbsConn) -> Option<Qp> {
        // One service may see again what it wrote by way of another connection. Zero is no writer.
        let writer = Writer(self.writers.hash_one(conn.peer) | 1);
        let qp = Qp(self.conns.insert(Box::new(conn)).ok()?);
        self.with(qp, |conn, _| (conn.qp, conn.writer) = (qp, writer));
        self.shared.timed.push(qp);
        Some(qp)
    }

    /// The request that an event brings, if it brings one.
    pub(crate) fn request_of(&self, event: &rdmacm::Event) -> Option<Request> {
        if event.kind != rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST {
            return None;
        }
        // SAFETY: it came with a connect request of this channel, and events are taken once.
        let id = unsafe { Id::adopt(&self.shared.channel, event.id) };
        let (device, private_data) = (event.device.clone(), event.private_data.clone());
        Some(Request { device, id, private_data, reads: event.reads })
    }

    /// A peer asks for a connection: leaves it to the shard that is to have it.
    pub(crate) fn hand_on(&mut self, event: &rdmacm::Event) {
        let Some(request) = self.request_of(event) else { return };
        let number = event.context & !LISTENER;
        let listener = self.listeners.iter().find(|it| u64::from(it.number) == number);
        match listener.and_then(|listener| listener.sharers.as_ref()) {
            None => self.handle_request(request),
            Some(sharers) => {
                let steering = self.shared.config.steering.as_ref();
                if let Err(request) = sharers.put(request, steering) {
                    self.shed(request);
                }
            }
        }
    }

    /// Rejects a peer that finds no place.
    fn shed(&mut self, request: Request) {
        self.shared.stats.shed += 1;
        self.shared.errands.reject(Arc::new(request.id), Vec::new());
    }

    /// Takes over peers that a listener left to this shard.
    pub(crate) fn take_over(&mut self) {
        let Some(inbox) = self.inbox.clone() else { return };
        while let Some(request) = inbox.take(self.connections() + self.taking_over) {
            // An identifier of this channel stays with it.
            if request.id.is_of(&self.shared.channel) {
                self.handle_request(request);
            } else {
                self.taking_over += 1;
                self.shared.errands.take_over(request);
            }
        }
    }

    /// Returns true if keys of this shard open memory to all its connections, and one of them
    /// is to another host than `ip`.
    fn has_other_host(&self, ip: Option<IpAddr>) -> bool {
        let conns = || (0..self.conns.capacity()).filter_map(|at| self.conns.key_at(at));
        let peers = || conns().filter_map(|key| self.conns.get(key)).filter_map(|conn| conn.peer);
        self.shared.exposures.as_ref().is_some_and(Exposures::are_shared)
            && peers().any(|peer| Some(peer.ip()) != ip)
    }

    pub(crate) fn handle_request(&mut self, request: Request) {
        let IbverbsShared { config, taken, waiting, .. } = &self.shared;
        let peer = request.id.peer();
        let has_place =
            taken + waiting < config.limits.connections + config.spare && !self.shared.is_lost;
        let is_apart = !self.has_other_host(peer.map(|peer| peer.ip()));
        let is_ours = request.device.as_ref().is_some_and(|name| *name == self.about().name);
        if !(has_place && is_ours && is_apart) {
            return self.shed(request);
        }
        let mut conn = IbverbsConn::new(IbverbsState::AwaitAnswer, config.limits.send_queue);
        conn.peer = peer;
        // The kernel does not notify programs of a peer that gives up before it is answered
        // (`ucma_event_handler`).
        conn.deadline = Some(self.shared.now + self.shared.config.accept_timeout);
        agree(&mut conn, &self.shared, request.reads);
        let Some(qp) = self.admit(conn) else { return self.shed(request) };
        let id = Arc::new(request.id);
        let named = Arc::clone(&id);
        // SAFETY: the thread of errands is the one that reads the events of its channel.
        self.shared.errands.send(move || unsafe { named.set_context(qp.0.to_bits()) });
        self.with(qp, |conn, _| {
            (conn.id, conn.private_data) = (Some(id), request.private_data);
        });
        self.shared.waiting += 1;
        self.shared.events.push_back(Event::ConnectRequest { qp });
    }
}

/// Has the queue pair made, in the state in which it takes receives.
fn make_pair(conn: &mut IbverbsConn, shared: &IbverbsShared) -> io::Result<()> {
    let (Some(queues), Some(id)) = (&shared.queues, &conn.id) else {
        return Err(io::ErrorKind::NotConnected.into());
    };
    let (queues, id, context) = (queues.clone(), Arc::clone(id), conn.qp.0.to_bits());
    conn.send(shared, move || {
        let make = || {
            let pair = QueuePair::new(&queues, context)?;
            initialise(&id, &pair)?;
            Ok(Arc::new(pair))
        };
        Outcome::Made(make())
    });
    Ok(())
}

/// Takes a queue pair that was made, and begins the next step of the set-up.
pub(crate) fn made(
    conn: &mut IbverbsConn,
    shared: &mut IbverbsShared,
    pair: Arc<QueuePair>,
) -> io::Result<()> {
    let number = pair.number();
    shared.by_number.insert(number, conn.qp);
    conn.number = Some(number);
    conn.flights.reserve(shared.depth);
    conn.binds.reserve(shared.depth);
    conn.pair = Some(Arc::clone(&pair));
    conn.fill_receives(shared);
    let Some(id) = conn.id.clone() else { return Err(io::ErrorKind::NotConnected.into()) };
    let terms = Terms { number, reads: conn.reads, rnr_retry: shared.config.rnr_retry };
    let (said, link) = (std::mem::take(&mut conn.ours), shared.config.link);
    let is_iwarp = shared.about.is_iwarp;
    match conn.state {
        IbverbsState::AwaitReply => {
            conn.send(shared, move || Outcome::Said(id.connect(terms, &said)));
        }
        IbverbsState::AwaitSign => conn.send(shared, move || {
            let ready = if is_iwarp { Ok(()) } else { make_ready(&id, &pair, terms.reads, &link) };
            Outcome::Said(ready.and_then(|()| id.accept(terms, &said)))
        }),
        _ => {}
    }
    Ok(())
}

fn initialise(id: &Id, pair: &QueuePair) -> io::Result<()> {
    let (mut attr, mask) = id.attr(ibv_qp_state::IBV_QPS_INIT)?;
    // What a peer may do is said by each window; the queue pair only has to allow both.
    let access =
        ibv_access_flags::IBV_ACCESS_REMOTE_WRITE | ibv_access_flags::IBV_ACCESS_REMOTE_READ;
    attr.qp_access_flags |= access;
    pair.modify(&mut attr, mask)
}

/// Returns true if a mask of attributes selects this one.
const fn has(mask: c_int, attribute: u32) -> bool {
    mask & attribute as c_int != 0
}

/// Brings the queue pair to where it sends and receives.
fn make_ready(id: &Id, pair: &QueuePair, reads: ReadDepths, link: &LinkSettings) -> io::Result<()> {
    initialise(id, pair)?;
    let (mut attr, mask) = id.attr(ibv_qp_state::IBV_QPS_RTR)?;
    attr.max_dest_rd_atomic = reads.served;
    attr.min_rnr_timer = RNR_TIMER;
    if has(mask, ibv_qp_attr_mask::IBV_QP_AV) {
        attr.ah_attr.traffic_class = link.traffic_class.unwrap_or(attr.ah_attr.traffic_class);
    }
    pair.modify(&mut attr, mask)?;
    let (mut attr, mask) = id.attr(ibv_qp_state::IBV_QPS_RTS)?;
    if has(mask, ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC) {
        attr.max_rd_atomic = reads.asked;
    }
    if has(mask, ibv_qp_attr_mask::IBV_QP_TIMEOUT) {
        attr.timeout = link.ack_timeout.unwrap_or(attr.timeout);
    }
    if has(mask, ibv_qp_attr_mask::IBV_QP_RETRY_CNT) {
        attr.retry_cnt = link.retries.unwrap_or(attr.retry_cnt);
    }
    pair.modify(&mut attr, mask)
}

/// The way to the peer is known: asks it.
pub(crate) fn ask(conn: &mut IbverbsConn, shared: &IbverbsShared) -> io::Result<()> {
    conn.state = IbverbsState::AwaitReply;
    make_pair(conn, shared)
}

/// Takes the peer of a connect request.
pub(crate) fn accept(
    conn: &mut IbverbsConn,
    shared: &IbverbsShared,
    private_data: &[u8],
) -> io::Result<()> {
    conn.state = IbverbsState::AwaitSign;
    conn.deadline = Some(shared.now + shared.config.accept_timeout);
    conn.ours = private_data.to_vec();
    make_pair(conn, shared)
}

/// Lowers the number of Reads to what the peer takes and offers.
pub(crate) fn agree(conn: &mut IbverbsConn, shared: &IbverbsShared, offered: ReadDepths) {
    let ours = shared.config.reads;
    conn.reads = ReadDepths { served: ours.min(offered.served), asked: ours.min(offered.asked) };
}

/// The peer accepted, and waits until we are ready.
pub(crate) fn answered(conn: &mut IbverbsConn, shared: &IbverbsShared) -> io::Result<()> {
    let (Some(id), Some(pair)) = (conn.id.clone(), conn.pair.clone()) else {
        return Err(io::ErrorKind::NotConnected.into());
    };
    let (reads, link) = (conn.reads, shared.config.link);
    conn.send(shared, move || {
        let ready = make_ready(&id, &pair, reads, &link);
        Outcome::Ready(ready.and_then(|()| id.establish()))
    });
    Ok(())
}

/// Work can begin.
pub(crate) fn established(conn: &mut IbverbsConn, shared: &mut IbverbsShared) {
    conn.state = IbverbsState::Established;
    conn.deadline = None;
    shared.events.push_back(Event::Established { qp: conn.qp });
}

/// Why no way to a peer is looked for.
pub(crate) fn no_way(error: &io::Error) -> FabricFault {
    match error.raw_os_error() {
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH) | None => FabricFault::Refused,
        Some(number) => fault(number),
    }
}

/// Why a connect request of ours failed.
pub(crate) fn refusal(is_iwarp: bool, status: c_int) -> Cause {
    match status {
        BY_CONSUMER if !is_iwarp => Cause::Rejected,
        NO_SUCH_SERVICE if !is_iwarp => Cause::Fabric(FabricFault::Refused),
        status if is_iwarp && -status == libc::ECONNRESET => Cause::Rejected,
        status => Cause::Fabric(fault(status)),
    }
}

/// Translates a status that is an error number, with or without its sign, into a fault of the
/// fabric.
pub(crate) fn fault(status: c_int) -> FabricFault {
    match status.abs() {
        libc::ENODEV | libc::EADDRNOTAVAIL => FabricFault::BadAddress,
        number => FabricFault::from(&io::Error::from_raw_os_error(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_say_who_refused() {
        assert_eq!(refusal(false, 8), Cause::Fabric(FabricFault::Refused));
        assert_eq!(refusal(false, 28), Cause::Rejected);
        assert_eq!(refusal(true, -libc::ECONNREFUSED), Cause::Fabric(FabricFault::Refused));
        assert_eq!(refusal(true, -libc::ECONNRESET), Cause::Rejected);
        assert_eq!(fault(-libc::ETIMEDOUT), FabricFault::TimedOut);
    }
}
