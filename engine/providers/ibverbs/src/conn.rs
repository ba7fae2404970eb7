//! One connection, and what all connections of a shard share.

use crate::sys::{ibv_recv_wr, ibv_send_wr, ibv_sge};
use crate::{
    config::IbverbsConfig,
    device::{DeviceAbout, MemoryRegion, QueuePair, Queues},
    errands::{Errands, Outcome},
    exposures::Exposures,
    rdmacm::{Channel, Id, ReadDepths},
    sinks::{ReadSinks, SinkLanding},
    stats::IbverbsStats,
};
use stag_pools::{Buf, Fenced, Pool, PoolPlace, RemoteKey, Writer};
use stag_verbs::{Cause, Event, Qp, Status, Time, soft::SendQueue, soft::Work};
use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    ptr,
    sync::Arc,
};

/// State of a connection, named by the event that it awaits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IbverbsState {
    /// The way to the peer.
    AwaitWay,
    /// The peer's answer.
    AwaitReply,
    /// The engine's answer to a connect request.
    AwaitAnswer,
    /// The peer's word, or its first message.
    AwaitSign,
    /// Work.
    Established,
    /// The end of work posted before we disconnected.
    AwaitDrain,
    /// The device to give everything back.
    AwaitFlush,
    /// The next poll: the end was reported, and the engine may still ask for the peer's private
    /// data.
    Over,
}

/// A work request in the device.
#[derive(Debug)]
pub(crate) struct Flight {
    /// Sequence number of the work request that it is a part of; `None` for a bind.
    pub(crate) seq: Option<u64>,
    /// Memory that receives a span of a Read if that is not the sink itself.
    pub(crate) landing: Option<SinkLanding>,
}

/// A bind that is not in the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bind {
    /// The first work request that was posted after it.
    pub(crate) before: u64,
    pub(crate) key: RemoteKey,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct IbverbsConn {
    pub(crate) qp: Qp,
    /// Destroyed first: then the device touches nothing of the rest.
    pub(crate) pair: Option<Arc<QueuePair>>,
    pub(crate) id: Option<Arc<Id>>,
    /// The number of its queue pair.
    pub(crate) number: Option<u32>,
    /// Errands that it waits for: until then the device may have more of it than is known here.
    pub(crate) errands: u32,
    pub(crate) state: IbverbsState,
    pub(crate) peer: Option<SocketAddr>,
    /// Names the service that writes into its windows.
    pub(crate) writer: Writer,
    /// Private data that the peer sent during connection set-up.
    pub(crate) private_data: Vec<u8>,
    /// Private data for the peer, kept until they are sent.
    pub(crate) ours: Vec<u8>,
    /// Reads of the peer in flight at a time, and ours.
    pub(crate) reads: ReadDepths,
    pub(crate) queue: SendQueue,
    /// Work requests posted so far: the sequence number of the next one.
    pub(crate) posted: u64,
    pub(crate) binds: VecDeque<Bind>,
    /// Binds whose doorbell was rung.
    pub(crate) binds_rung: usize,
    /// Buffers of its windows that are freed, until its end is reported.
    pub(crate) unbound: Vec<Fenced>,
    /// Work requests in the device, the oldest first.
    pub(crate) flights: VecDeque<Flight>,
    /// The number of the next flight.
    pub(crate) next_flight: u32,
    /// The first work request that failed.
    pub(crate) failed: Option<(u64, Status)>,
    /// Why it ends.
    pub(crate) cause: Option<Cause>,
    /// Time at which to stop waiting.
    pub(crate) deadline: Option<Time>,
    /// Time at which to stop waiting for the device's report that it holds no receive of this
    /// connection; `None` once it has reported so.
    pub(crate) last_receive: Option<Time>,
    /// Work of it may be in the device, or messages for it.
    pub(crate) has_work: bool,
    /// Its work is no longer waited for.
    pub(crate) is_overdue: bool,
    /// All of its completions are in the completion queue: when that is empty, it can go.
    pub(crate) is_flushed: bool,
    /// The device keeps its queue pair or a window of it: it is tried again at the deadline.
    pub(crate) is_kept: bool,
    /// The device said that it holds no receive of it.
    pub(crate) has_last: bool,
    /// Its own receives that are in the device, the oldest first, where connections share none.
    pub(crate) receives: VecDeque<u32>,
    /// The device has given one of them back without a message: it would do so with each.
    pub(crate) has_stopped: bool,
    /// Its peer agreed to the end: nothing more comes from the connection manager.
    pub(crate) is_parted: bool,
    pub(crate) is_posted: bool,
    /// It counts for the limit of connections.
    pub(crate) is_taken: bool,
}

impl IbverbsConn {
    pub(crate) fn new(state: IbverbsState, send_queue: usize) -> Self {
        Self {
            qp: Qp(stag_pools::table::Key::from_bits(0)),
            pair: None,
            id: None,
            number: None,
            errands: 0,
            state,
            peer: None,
            writer: Writer(0),
            private_data: Vec::new(),
            ours: Vec::new(),
            reads: ReadDepths::default(),
            queue: SendQueue::new(send_queue),
            posted: 0,
            binds: VecDeque::new(),
            binds_rung: 0,
            unbound: Vec::new(),
            flights: VecDeque::new(),
            next_flight: 0,
            failed: None,
            cause: None,
            deadline: None,
            last_receive: None,
            has_work: false,
            is_overdue: false,
            is_flushed: false,
            is_kept: false,
            has_last: false,
            receives: VecDeque::new(),
            has_stopped: false,
            is_parted: false,
            is_posted: false,
            is_taken: false,
        }
    }

    /// Returns true until the connection begins to end.
    pub(crate) const fn is_live(&self) -> bool {
        !matches!(
            self.state,
            IbverbsState::AwaitDrain | IbverbsState::AwaitFlush | IbverbsState::Over
        )
    }

    /// The number of the oldest flight.
    pub(crate) fn oldest_flight(&self) -> u32 {
        self.next_flight.wrapping_sub(self.flights.len() as u32)
    }
}

/// Receives in the device, by the number they were posted with.
#[derive(Debug)]
pub(crate) struct PostedReceives {
    posted: Box<[Option<Buf>]>,
    free: Vec<u32>,
    /// Receives that no connection has, if connections share none, and the connections that have
    /// lacked one for longest.
    pub(crate) stock: Vec<u32>,
    /// Receives for the queue that connections share, if they do, which it does not have yet.
    pub(crate) added: Vec<u32>,
    pub(crate) owed: VecDeque<Qp>,
}

impl PostedReceives {
    pub(crate) fn new(capacity: usize) -> Self {
        let count = u32::try_from(capacity).expect("a queue's size fits 32 bits");
        Self {
            posted: (0..count).map(|_| None).collect(),
            free: (0..count).rev().collect(),
            stock: Vec::with_capacity(capacity),
            added: Vec::with_capacity(capacity),
            owed: VecDeque::with_capacity(capacity),
        }
    }

    pub(crate) fn posted(&self) -> usize {
        self.posted.len() - self.free.len()
    }

    /// Returns true if one more receive fits.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    pub(crate) fn put(&mut self, buf: Buf) -> u32 {
        let number = self.free.pop().expect("the caller looked for room");
        let place =
            self.posted.get_mut(number as usize).expect("the free list names places of the queue");
        *place = Some(buf);
        number
    }

    /// The numbers of all receives.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        let numbers = (0_u32..).zip(&*self.posted);
        numbers.filter_map(|(number, buf)| buf.is_some().then_some(number)).collect()
    }

    /// The memory of a receive.
    fn place(&self, number: u32) -> PoolPlace {
        let buf = self.posted.get(number as usize).and_then(Option::as_ref);
        buf.expect("a receive has its memory until it completes").place()
    }

    pub(crate) fn take(&mut self, number: u32) -> Buf {
        let place = self.posted.get_mut(number as usize);
        let buf = place.and_then(Option::take).expect("a receive completes once");
        self.free.push(number);
        buf
    }
}

/// State that all connections of a shard share.
pub(crate) struct IbverbsShared {
    pub(crate) config: IbverbsConfig,
    /// The device, as it said when it was opened last.
    pub(crate) about: DeviceAbout,
    /// The device is lost: its objects are released, and no connection begins until it is here
    /// again.
    pub(crate) is_lost: bool,
    /// None: buffers cannot be opened to peers.
    pub(crate) exposures: Option<Exposures>,
    /// Work requests that a send queue holds.
    pub(crate) depth: usize,
    /// None: the device is lost, and has everything back.
    pub(crate) queues: Option<Queues>,
    /// Memory that the device knows, or is to know when it is here again.
    pub(crate) pools: Vec<Pool>,
    pub(crate) regions: Vec<MemoryRegion>,
    pub(crate) sinks: Option<ReadSinks>,
    /// Dropped after the queue, which the device reads.
    pub(crate) receives: PostedReceives,
    pub(crate) channel: Arc<Channel>,
    /// The thread that makes the calls which take long.
    pub(crate) errands: Errands,
    pub(crate) events: VecDeque<Event>,
    pub(crate) stats: IbverbsStats,
    pub(crate) now: Time,
    /// Connections by the number of their queue pair.
    pub(crate) by_number: HashMap<u32, Qp>,
    pub(crate) spare_works: Vec<VecDeque<Work>>,
    /// A chain while it is built: requests, and what each of them names.
    pub(crate) chain: Vec<ibv_send_wr>,
    pub(crate) named: Vec<ibv_sge>,
    /// The same of receives.
    pub(crate) receive_chain: (Vec<ibv_recv_wr>, Vec<ibv_sge>),
    /// Connections that count for the limit.
    pub(crate) taken: usize,
    /// Connect requests that the engine has not answered.
    pub(crate) waiting: usize,
    /// Identifiers of connections that are over, until their peers know.
    pub(crate) parting: Vec<(Arc<Id>, Time)>,
    /// Connections with a deadline.
    pub(crate) timed: Vec<Qp>,
    /// Some connection waits for an empty completion queue.
    pub(crate) any_flushed: bool,
}

impl IbverbsShared {
    /// Names `len` octets of a pool for the device. None: the pool is not registered.
    pub(crate) fn name(&self, place: PoolPlace, len: usize) -> Option<ibv_sge> {
        let region = self.regions.iter().find(|region| region.id == place.pool)?;
        Some(region.name(place.at, len))
    }

    /// The device has no queue that connections share: each has receives of its own.
    pub(crate) const fn has_own_receives(&self) -> bool {
        self.config.limits.receives_each.is_some()
    }

    /// Returns true if the memory at `place` belongs to a pool that is registered with the device.
    pub(crate) fn knows(&self, place: PoolPlace) -> bool {
        self.pools.iter().any(|pool| pool.id() == place.pool)
    }

    /// Keeps the memory of a receive, and numbers it. Returns the buffer when there is no room.
    pub(crate) fn keep_receive(&mut self, mut buf: Buf) -> Result<u32, Buf> {
        let is_long = buf.capacity() >= self.config.limits.receive_len;
        if !self.receives.has_room() || !is_long || !self.knows(buf.place()) {
            return Err(buf);
        }
        buf.reset(0);
        Ok(self.receives.put(buf))
    }

    fn name_receive(&self, number: u32) -> ibv_sge {
        let named = self.name(self.receives.place(number), self.config.limits.receive_len);
        named.expect("a receive's pool is registered")
    }

    /// Hands the receives that were added to the queue that all connections share: one chain, one
    /// doorbell. What the device does not take is tried again.
    pub(crate) fn post_receives(&mut self) {
        let Some(queue) = self.queues.as_ref().and_then(|queues| queues.receives.as_ref()) else {
            return;
        };
        let (mut chain, mut named) = std::mem::take(&mut self.receive_chain);
        chain.clear();
        named.clear();
        named.extend(self.receives.added.iter().map(|number| self.name_receive(*number)));
        for (number, at) in self.receives.added.iter().zip(&mut named) {
            let wr_id = RECEIVE | u64::from(*number);
            chain.push(ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list: at, num_sge: 1 });
        }
        let mut next = ptr::null_mut();
        for request in chain.iter_mut().rev() {
            request.next = next;
            next = request;
        }
        // SAFETY: requests are linked in their order. The buffers are in `receives` until the
        // receives complete; they are inside their region, and are that long.
        let taken = match unsafe { queue.post(&mut chain) } {
            Ok(()) => chain.len(),
            Err((taken, _)) => taken,
        };
        self.receives.added.drain(..taken);
        self.stats.receive_chains += 1;
        self.receive_chain = (chain, named);
    }
}

impl IbverbsConn {
    /// Has the thread of errands do something that this connection waits for.
    pub(crate) fn send(
        &mut self,
        shared: &IbverbsShared,
        errand: impl FnOnce() -> Outcome + Send + 'static,
    ) {
        self.errands += 1;
        shared.errands.send_for(self.qp, errand);
    }

    /// Returns true while more messages may come.
    pub(crate) const fn takes_receives(&self) -> bool {
        self.is_live() && !self.has_stopped
    }

    /// Hands a receive to the device for this connection alone. False: it takes none.
    pub(crate) fn post_receive(&mut self, shared: &IbverbsShared, number: u32) -> bool {
        let Some(pair) = self.pair.as_ref().filter(|_| self.takes_receives()) else {
            return false;
        };
        let at = shared.name_receive(number);
        // SAFETY: as of a shared queue: the queue pair is destroyed before its receives are taken
        // back.
        let posted = unsafe { pair.post_receive(RECEIVE | u64::from(number), at) };
        if posted.is_ok() {
            self.receives.push_back(number);
        }
        posted.is_ok()
    }

    /// Gives it its receives from the stock, once it has a queue pair.
    pub(crate) fn fill_receives(&mut self, shared: &mut IbverbsShared) {
        let each = shared.config.limits.receives_each.unwrap_or(0);
        self.receives.reserve(each);
        for _ in 0..each {
            match shared.receives.stock.pop() {
                Some(number) if self.post_receive(shared, number) => {}
                Some(number) => shared.receives.stock.push(number),
                None => shared.receives.owed.push_back(self.qp),
            }
        }
    }
}

/// The bit of a work request's number that marks a receive.
pub(crate) const RECEIVE: u64 = 1 << 63;
