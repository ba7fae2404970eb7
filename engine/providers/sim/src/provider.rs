//! The contract's calls: each request to a connection is checked here, moved to its queue, and
//! carried out at the next ring.

use crate::{
    Port, Sim,
    conn::{SimConn, SimState, SimWork, WorkStage, Wr},
    net::{Parcel, SimRead},
};
use stag_pools::{Access, Buf, Extent, RemoteKey, Window};
use stag_verbs::{
    Cause, Event, FabricFault, Limits, Look, Looked, PeerAddress, Provider, Qp, Refusal, Refused,
    RemoteSpan, Tag, Time,
    soft::{self, Op, Postable, Posting},
};
use std::{ops::Range, os::fd::BorrowedFd};

/// An established connection for one work request, and its end.
pub struct SimPosted<'a> {
    qp: Qp,
    sim: &'a mut Sim,
}

impl Postable for SimPosted<'_> {
    fn room(&self) -> usize {
        // RFC 5042 §6.4.3.2 [5042-15]: entries of completion queues are handed out to a limit
        self.sim.send_room(self.qp)
    }

    fn begin_invalidation(&mut self, key: RemoteKey) -> bool {
        let Sim { end, .. } = self.sim;
        let is_bound = soft::is_bound(&mut end.windows, self.qp, key);
        let begins = is_bound && !end.conn(self.qp).is_invalidating(key);
        if !begins {
            self.sim.report_unbound(self.qp, key);
        }
        begins
    }

    fn enqueue(self, tag: Tag, op: Op, from: &[RemoteSpan]) {
        let Self { qp, sim: Sim { end, .. } } = self;
        let work = match op {
            Op::Send { message, invalidate } => SimWork::Send(message, invalidate),
            Op::Write { source, to } => SimWork::Write(source, to),
            Op::Read(read) => {
                let spans = end.spans.pop();
                let mut spans = spans.unwrap_or_else(|| Vec::with_capacity(end.limits.read_spans));
                spans.extend_from_slice(from);
                SimWork::Read(SimRead { sink: read.sink, at: read.ask_at, from: spans })
            }
            Op::Invalidate { key } => SimWork::Invalidate(key),
        };
        let conn = end.conn(qp);
        conn.queue.push_back(Wr { tag, stage: WorkStage::Posted(work) });
        if !std::mem::replace(&mut conn.is_dirty, true) {
            end.dirty.push(qp);
        }
    }
}

impl Posting for Sim {
    type Postable<'a> = SimPosted<'a>;

    fn established(&mut self, qp: Qp) -> Result<SimPosted<'_>, Refusal> {
        match self.end.conns.get(qp.0).ok_or(Refusal::Gone)?.state {
            SimState::Established => Ok(SimPosted { qp, sim: self }),
            SimState::Closing | SimState::Dead => Err(Refusal::Gone),
            SimState::AwaitReply | SimState::AwaitAnswer | SimState::AwaitReady => {
                Err(Refusal::NotEstablished)
            }
        }
    }
}

impl Sim {
    /// Carries out all that is due, unless events wait.
    fn gather(&mut self, now: Time) {
        if let Some(qp) = self.end.ended.take() {
            self.end.conns.remove(qp.0);
        }
        if self.end.events.is_empty() {
            let net = &mut *self.net.borrow_mut();
            net.advance(now);
            self.end.progress(net);
        }
    }
}

impl Provider for Sim {
    type Address = Port;

    const SCHEME: &'static str = "sim";

    fn limits(&self) -> &Limits {
        &self.end.limits
    }

    fn listen(&mut self, at: &Port) -> Result<Port, FabricFault> {
        self.net.borrow_mut().listen(self.end.id, *at)
    }

    fn stop_listening(&mut self) {
        self.net.borrow_mut().stop_listening(self.end.id);
    }

    fn connect(&mut self, to: &Port, private_data: &[u8]) -> Result<Qp, FabricFault> {
        let is_full = self.end.conns.len() == self.end.conns.capacity();
        // RFC 5042 §6.4.1 [5042-13]: scarce resources are handed out to a limit
        if is_full || private_data.len() > self.end.limits.private_data_len {
            return Err(FabricFault::Exhausted);
        }
        let net = &mut *self.net.borrow_mut();
        let (place, is_answered) = net.link(self.end.id, *to);
        let conn =
            SimConn::new(place, SimState::AwaitReply, Vec::new(), self.end.limits.send_queue);
        let qp = Qp(self.end.conns.insert(conn).expect("the table has room"));
        net.side(place).qp = Some(qp);
        if is_answered {
            net.send(place, 0, Parcel::ConnectRequest(private_data.to_vec()));
        } else {
            let due = net.after(net.faults().delay.clone());
            self.end.conn(qp).die_at = Some((due, Cause::Fabric(FabricFault::Refused)));
            net.wake(self.end.id, due);
        }
        Ok(qp)
    }

    fn accept(&mut self, qp: Qp, private_data: &[u8]) -> Result<(), Refusal> {
        let private_data_len = self.end.limits.private_data_len;
        let conn = self.end.conns.get_mut(qp.0).ok_or(Refusal::Gone)?;
        match conn.state {
            SimState::AwaitAnswer if private_data.len() <= private_data_len => {}
            SimState::Closing | SimState::Dead => return Err(Refusal::Gone),
            _ => return Err(Refusal::Malformed),
        }
        conn.state = SimState::AwaitReady;
        let net = &mut *self.net.borrow_mut();
        net.send(conn.place, 0, Parcel::Accepted(private_data.to_vec()));
        // RFC 5044 §7.1.2: the acceptor sends only after a message from the connector. Other
        // fabrics let it send at once.
        if net.below(2) == 0 {
            let due = net.after(net.faults().delay.clone());
            conn.ready_at = Some(due);
            net.wake(self.end.id, due);
        }
        Ok(())
    }

    fn reject(&mut self, qp: Qp, private_data: &[u8]) {
        let private_data =
            private_data.get(..self.end.limits.private_data_len).unwrap_or(private_data);
        let Some(conn) = self.end.conns.get_mut(qp.0) else { return };
        if conn.state != SimState::AwaitAnswer {
            return;
        }
        conn.state = SimState::Closing;
        let net = &mut *self.net.borrow_mut();
        net.side(conn.place).deaf = true;
        net.send(conn.place, 0, Parcel::Rejected(private_data.to_vec()));
        let due = net.after(net.faults().delay.clone());
        conn.die_at = Some((due, Cause::Local));
        net.wake(self.end.id, due);
    }

    fn disconnect(&mut self, qp: Qp) {
        self.ring_one(qp);
        let Some(conn) = self.end.conns.get_mut(qp.0) else { return };
        if matches!(conn.state, SimState::Closing | SimState::Dead) {
            return;
        }
        let was_established =
            std::mem::replace(&mut conn.state, SimState::Closing) == SimState::Established;
        let net = &mut *self.net.borrow_mut();
        // A connection that was never established has no use for messages.
        net.side(conn.place).deaf = !was_established;
        let due = net.after(net.faults().delay.clone());
        if conn.die_at.is_none() {
            net.send(conn.place, 0, Parcel::Close(Cause::Peer, None));
        }
        conn.die_at = Some((due, Cause::Local));
        net.wake(self.end.id, due);
    }

    fn private_data(&self, qp: Qp) -> &[u8] {
        self.end.conns.get(qp.0).map_or(&[], |conn| &conn.private_data)
    }

    fn peer_address(&self, qp: Qp) -> Option<PeerAddress> {
        self.end.conns.get(qp.0).map(|_| PeerAddress::Simulated)
    }

    fn post_receive(&mut self, buf: Buf) -> Result<(), Buf> {
        let is_full = self.end.receives.len() >= self.end.limits.receives;
        if is_full || buf.capacity() < self.end.limits.receive_len {
            return Err(buf);
        }
        self.end.receives.push_back(buf);
        if self.end.parked > 0 {
            let mut net = self.net.borrow_mut();
            let now = net.now();
            net.wake(self.end.id, now);
        }
        Ok(())
    }

    fn receives_posted(&self) -> usize {
        self.end.receives.len()
    }

    fn bind(
        &mut self,
        qp: Qp,
        buf: Buf,
        span: Range<usize>,
        access: Access,
    ) -> Result<Window, Refused<Buf>> {
        if let Err(why) = self.established(qp) {
            return Err(Refused { why, token: buf });
        }
        // RFC 5042 §3, §6.4.5 [5042-3]: streams do not trust each other: keys have one scope
        // RFC 5042 §3, §6.4.5 [5042-18]: no STag is usable by two streams
        soft::bind(&mut self.end.windows, qp, buf, span, access)
    }

    fn post_send(
        &mut self,
        qp: Qp,
        tag: Tag,
        message: Buf,
        invalidate: Option<RemoteKey>,
    ) -> Result<(), Refused<Buf>> {
        self.enqueue_send(qp, tag, message, invalidate)
    }

    fn send_inline(&mut self, qp: Qp, message: &[u8], invalidate: Option<RemoteKey>) -> bool {
        let is_first = |conn: &&SimConn| {
            conn.state == SimState::Established && conn.started == conn.queue.len()
        };
        let Some(conn) = self.end.conns.get(qp.0).filter(is_first) else { return false };
        self.net.borrow_mut().send_inline(conn.place, message, invalidate)
    }

    fn post_write(
        &mut self,
        qp: Qp,
        tag: Tag,
        source: Extent,
        to: RemoteSpan,
    ) -> Result<(), Refused<Extent>> {
        self.enqueue_write(qp, tag, source, to)
    }

    fn post_read(
        &mut self,
        qp: Qp,
        tag: Tag,
        sink: Buf,
        at: usize,
        from: &[RemoteSpan],
    ) -> Result<(), Refused<Buf>> {
        self.enqueue_read(qp, tag, sink, at, from)
    }

    fn post_local_invalidate(&mut self, qp: Qp, tag: Tag, key: RemoteKey) -> Result<(), Refusal> {
        self.enqueue_invalidation(qp, tag, key)
    }

    fn send_room(&self, qp: Qp) -> usize {
        let conn = self.end.conns.get(qp.0).filter(|conn| conn.state == SimState::Established);
        conn.map_or(0, |conn| self.end.limits.send_queue - conn.queue.len())
    }

    fn ring(&mut self) {
        while let Some(qp) = self.end.dirty.pop() {
            self.ring_one(qp);
        }
    }

    /// Returns every other eligible message without a poll, so that a seed shows both ways.
    fn look(&mut self, now: Time, room: &mut [u8]) -> Looked {
        self.gather(now);
        let (qp, len) = match self.end.events.front() {
            None => return Look::Nothing.into(),
            Some(Event::Received { qp, buf, invalidated: None }) => (*qp, buf.len()),
            Some(_) => return Look::Other.into(),
        };
        self.end.looks = !self.end.looks;
        if self.end.looks {
            return Look::Other.into();
        }
        let Some(room) = room.get_mut(..len) else { return Look::Other.into() };
        if let Some(Event::Received { mut buf, .. }) = self.end.events.pop_front() {
            room.copy_from_slice(&buf);
            buf.reset(0);
            self.end.receives.push_front(buf);
        }
        Look::Message { qp, len }.into()
    }

    fn take_receive(&mut self) -> Option<Buf> {
        self.end.receives.pop_front()
    }

    fn poll(&mut self, now: Time) -> Option<Event> {
        self.gather(now);
        let event = self.end.events.pop_front();
        if let Some(Event::Disconnected { qp, .. }) = event {
            self.end.ended = Some(qp);
        }
        event
    }

    fn arm(&mut self) -> bool {
        let net = &mut *self.net.borrow_mut();
        let is_due = net.entry(self.end.id).due.is_some_and(|due| due <= net.now());
        self.end.events.is_empty() && !is_due
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wake_at(&self) -> Option<Time> {
        let net = &mut *self.net.borrow_mut();
        if self.end.events.is_empty() { net.entry(self.end.id).due } else { Some(net.now()) }
    }
}
