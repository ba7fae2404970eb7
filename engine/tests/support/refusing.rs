//! A fabric that can be set to refuse local invalidations, or receives, notes its doorbells, and
//! spends time on what they send.

use stag_pools::{Access, Buf, Extent, RemoteKey, Window};
use stag_sim::{Port, Sim};
use stag_verbs::{
    Event, FabricFault, Limits, PeerAddress, Provider, Qp, Refusal, Refused, RemoteSpan, Tag, Time,
    soft::MovedOctets,
};
use std::{
    cell::{Cell, RefCell},
    ops::Range,
    os::fd::BorrowedFd,
    rc::Rc,
};

pub struct Refusing {
    sim: Sim,
    refuses: Rc<Cell<bool>>,
    refuses_receives: Rc<Cell<bool>>,
    /// The receives that were posted at each doorbell.
    rings: Rc<RefCell<Vec<usize>>>,
    /// Octets of RDMA Writes that were posted, and not sent yet.
    written: Vec<(Qp, u64)>,
    moved: MovedOctets,
    /// When they are sent.
    sent_by: SentBy,
    /// Spends the time that this takes.
    spend: Box<dyn Fn(u64)>,
}

/// The call of the provider that sends the data of RDMA Writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentBy {
    Doorbell,
    /// The peer does not take them at once.
    Poll,
}

impl Refusing {
    pub fn new(sim: Sim, refuses: Rc<Cell<bool>>) -> Self {
        let (refuses_receives, rings, spend) = (Rc::default(), Rc::default(), Box::new(|_| ()));
        let (written, moved, sent_by) = (Vec::new(), MovedOctets::new(64), SentBy::Doorbell);
        Self { sim, refuses, refuses_receives, rings, written, moved, sent_by, spend }
    }

    pub fn of_receives(sim: Sim, refuses_receives: Rc<Cell<bool>>) -> Self {
        Self { refuses_receives, ..Self::new(sim, Rc::default()) }
    }

    /// One that refuses nothing, and notes the receives that are posted at each doorbell.
    pub fn noting(sim: Sim, rings: Rc<RefCell<Vec<usize>>>) -> Self {
        Self { rings, ..Self::new(sim, Rc::default()) }
    }

    /// One that refuses nothing, and calls `spend` with the octets of the RDMA Writes that are
    /// sent.
    pub fn spending(sim: Sim, sent_by: SentBy, spend: impl Fn(u64) + 'static) -> Self {
        Self { sent_by, spend: Box::new(spend), ..Self::new(sim, Rc::default()) }
    }

    fn send(&mut self) {
        for (qp, octets) in self.written.drain(..) {
            (self.spend)(octets);
            self.moved.note(qp, octets);
        }
    }
}

impl Provider for Refusing {
    type Address = Port;

    const SCHEME: &'static str = "sim";

    fn limits(&self) -> &Limits {
        self.sim.limits()
    }

    fn listen(&mut self, at: &Port) -> Result<Port, FabricFault> {
        self.sim.listen(at)
    }

    fn stop_listening(&mut self) {
        self.sim.stop_listening();
    }

    fn connect(&mut self, to: &Port, private_data: &[u8]) -> Result<Qp, FabricFault> {
        self.sim.connect(to, private_data)
    }

    fn accept(&mut self, qp: Qp, private_data: &[u8]) -> Result<(), Refusal> {
        self.sim.accept(qp, private_data)
    }

    fn reject(&mut self, qp: Qp, private_data: &[u8]) {
        self.sim.reject(qp, private_data);
    }

    fn disconnect(&mut self, qp: Qp) {
        self.sim.disconnect(qp);
    }

    fn private_data(&self, qp: Qp) -> &[u8] {
        self.sim.private_data(qp)
    }

    fn peer_address(&self, qp: Qp) -> Option<PeerAddress> {
        self.sim.peer_address(qp)
    }

    fn post_receive(&mut self, buf: Buf) -> Result<(), Buf> {
        if self.refuses_receives.get() { Err(buf) } else { self.sim.post_receive(buf) }
    }

    fn receives_posted(&self) -> usize {
        self.sim.receives_posted()
    }

    fn bind(
        &mut self,
        qp: Qp,
        buf: Buf,
        span: Range<usize>,
        access: Access,
    ) -> Result<Window, Refused<Buf>> {
        self.sim.bind(qp, buf, span, access)
    }

    fn post_send(
        &mut self,
        qp: Qp,
        tag: Tag,
        message: Buf,
        invalidate: Option<RemoteKey>,
    ) -> Result<(), Refused<Buf>> {
        self.sim.post_send(qp, tag, message, invalidate)
    }

    fn send_inline(&mut self, qp: Qp, message: &[u8], invalidate: Option<RemoteKey>) -> bool {
        self.sim.send_inline(qp, message, invalidate)
    }

    fn post_write(
        &mut self,
        qp: Qp,
        tag: Tag,
        source: Extent,
        to: RemoteSpan,
    ) -> Result<(), Refused<Extent>> {
        self.written.push((qp, to.len.into()));
        self.sim.post_write(qp, tag, source, to)
    }

    fn post_read(
        &mut self,
        qp: Qp,
        tag: Tag,
        sink: Buf,
        at: usize,
        from: &[RemoteSpan],
    ) -> Result<(), Refused<Buf>> {
        self.sim.post_read(qp, tag, sink, at, from)
    }

    fn post_local_invalidate(&mut self, qp: Qp, tag: Tag, key: RemoteKey) -> Result<(), Refusal> {
        if self.refuses.get() {
            Err(Refusal::SendQueueFull)
        } else {
            self.sim.post_local_invalidate(qp, tag, key)
        }
    }

    fn send_room(&self, qp: Qp) -> usize {
        self.sim.send_room(qp)
    }

    fn ring(&mut self) {
        self.rings.borrow_mut().push(self.sim.receives_posted());
        if self.sent_by == SentBy::Doorbell {
            self.send();
        }
        self.sim.ring();
    }

    fn poll(&mut self, now: Time) -> Option<Event> {
        if self.sent_by == SentBy::Poll {
            self.send();
        }
        self.sim.poll(now)
    }

    fn arm(&mut self) -> bool {
        self.sim.arm()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.sim.wait_fd()
    }

    fn wake_at(&self) -> Option<Time> {
        self.sim.wake_at()
    }

    fn take_moved(&mut self, each: &mut dyn FnMut(Qp, u64)) {
        self.moved.take(each);
    }
}
