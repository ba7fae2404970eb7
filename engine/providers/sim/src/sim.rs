//! The provider: one end of the fabric in the hands of its shard.

use crate::{
    Port,
    conn::{Conn, Stage, State, Work, Wr},
    end::End,
    net::{Net, Read, What},
};
use stag_pools::{Access, Buf, Extent, RemoteKey, Window};
use stag_verbs::{
    Cause, Event, FabricFault, Limits, PeerAddress, Provider, Qp, Refusal, Refused, RemoteSpan, Tag, Time,
    soft::{self, Op, Postable, Posting},
};
use std::{cell::RefCell, fmt, ops::Range, os::fd::BorrowedFd, rc::Rc};

/// One end of a [`Fabric`](crate::Fabric).
pub struct Sim {
    net: Rc<RefCell<Net>>,
    end: End,
}

impl Sim {
    pub(crate) fn new(net: Rc<RefCell<Net>>, name: &'static str, limits: Limits) -> Self {
        let end = {
            let mut net = net.borrow_mut();
            let id = net.add_station(name, limits.connections, limits.send_queue);
            let seed = net.key_seed();
            End::new(id, limits, seed)
        };
        Self { net, end }
    }

    /// Windows a peer can use. Zero when everything came back.
    pub fn windows_bound(&self) -> usize {
        self.end.windows.bound()
    }

    /// Connections that exist, those being set up included.
    pub fn connections(&self) -> usize {
        self.end.conns.len()
    }

    /// Breaks `qp` in the fabric; both sides notice in their own time.
    pub fn lose(&mut self, qp: Qp) {
        if let Some(conn) = self.end.conns.get(qp.0).filter(|conn| conn.state != State::Dead) {
            self.net.borrow_mut().break_link(conn.place);
        }
    }

    /// Invalidating what is not bound is a bug of the engine, unless the peer did it and the engine cannot know yet.
    fn report_unbound(&self, qp: Qp, key: RemoteKey) {
        let is_news = self.end.events.iter().any(
            |event| matches!(event, Event::Received { invalidated: Some(fenced), .. } if fenced.key() == key),
        );
        let net = self.net.borrow();
        let (seed, is_lenient) = (net.seed(), net.faults().lenient);
        drop(net);
        assert!(
            is_news || is_lenient,
            "seed {seed}: local invalidation of {key:?}, which is not bound on {qp:?}"
        );
    }

    fn ring_one(&mut self, qp: Qp) {
        let Some(conn) = self.end.conns.get_mut(qp.0) else { return };
        conn.is_dirty = false;
        if conn.state == State::Established {
            conn.rung = conn.queue.len();
            self.end.start(&mut self.net.borrow_mut(), qp);
        }
    }
}

/// An established connection for one work request, and its end.
pub struct Posted<'a> {
    qp: Qp,
    sim: &'a mut Sim,
}

impl Postable for Posted<'_> {
    fn room(&self) -> usize {
        // RFC 5042 §6.4.3.2 [5042-15]
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
            Op::Send { message, invalidate } => Work::Send(message, invalidate),
            Op::Write { source, to } => Work::Write(source, to),
            Op::Read(read) => {
                let spans = end.spans.pop();
                let mut spans = spans.unwrap_or_else(|| Vec::with_capacity(end.limits.read_spans));
                spans.extend_from_slice(from);
                Work::Read(Read { sink: read.sink, at: read.ask_at, from: spans })
            }
            Op::Invalidate { key } => Work::Invalidate(key),
        };
        let conn = end.conn(qp);
        conn.queue.push_back(Wr { tag, stage: Stage::Posted(work) });
        if !std::mem::replace(&mut conn.is_dirty, true) {
            end.dirty.push(qp);
        }
    }
}

impl Posting for Sim {
    type Postable<'a> = Posted<'a>;

    fn established(&mut self, qp: Qp) -> Result<Posted<'_>, Refusal> {
        match self.end.conns.get(qp.0).ok_or(Refusal::Gone)?.state {
            State::Established => Ok(Posted { qp, sim: self }),
            State::Closing | State::Dead => Err(Refusal::Gone),
            State::AwaitReply | State::AwaitAnswer | State::AwaitReady => Err(Refusal::NotEstablished),
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
        // RFC 5042 §6.4.1 [5042-13]
        if is_full || private_data.len() > self.end.limits.private_data_len {
            return Err(FabricFault::Exhausted);
        }
        let net = &mut *self.net.borrow_mut();
        let (place, is_answered) = net.link(self.end.id, *to);
        let conn = Conn::new(place, State::AwaitReply, Vec::new(), self.end.limits.send_queue);
        let qp = Qp(self.end.conns.insert(conn).expect("the table has room"));
        net.shore(place).qp = Some(qp);
        if is_answered {
            net.send(place, 0, What::ConnectRequest(private_data.to_vec()));
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
            State::AwaitAnswer if private_data.len() <= private_data_len => {}
            State::Closing | State::Dead => return Err(Refusal::Gone),
            _ => return Err(Refusal::Malformed),
        }
        conn.state = State::AwaitReady;
        let net = &mut *self.net.borrow_mut();
        net.send(conn.place, 0, What::Accepted(private_data.to_vec()));
        // RFC 5044 §7.1.2: the acceptor sends after it has heard the connector. Other fabrics let it send at once.
        if net.below(2) == 0 {
            let due = net.after(net.faults().delay.clone());
            conn.ready_at = Some(due);
            net.wake(self.end.id, due);
        }
        Ok(())
    }

    fn reject(&mut self, qp: Qp, private_data: &[u8]) {
        let private_data = private_data.get(..self.end.limits.private_data_len).unwrap_or(private_data);
        let Some(conn) = self.end.conns.get_mut(qp.0) else { return };
        if conn.state != State::AwaitAnswer {
            return;
        }
        conn.state = State::Closing;
        let net = &mut *self.net.borrow_mut();
        net.shore(conn.place).deaf = true;
        net.send(conn.place, 0, What::Rejected(private_data.to_vec()));
        let due = net.after(net.faults().delay.clone());
        conn.die_at = Some((due, Cause::Local));
        net.wake(self.end.id, due);
    }

    fn disconnect(&mut self, qp: Qp) {
        self.ring_one(qp);
        let Some(conn) = self.end.conns.get_mut(qp.0) else { return };
        if matches!(conn.state, State::Closing | State::Dead) {
            return;
        }
        let was_established = std::mem::replace(&mut conn.state, State::Closing) == State::Established;
        let net = &mut *self.net.borrow_mut();
        // Nobody wants messages of a connection that was never established.
        net.shore(conn.place).deaf = !was_established;
        let due = net.after(net.faults().delay.clone());
        if conn.die_at.is_none() {
            net.send(conn.place, 0, What::Close(Cause::Peer, None));
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

    fn bind(&mut self, qp: Qp, buf: Buf, span: Range<usize>, access: Access) -> Result<Window, Refused<Buf>> {
        if let Err(why) = self.established(qp) {
            return Err(Refused { why, token: buf });
        }
        // RFC 5042 §3, §6.4.5 [5042-3] [5042-18]
        soft::bind(&mut self.end.windows, qp, buf, (span, access))
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
        let is_first = |conn: &&Conn| conn.state == State::Established && conn.started == conn.queue.len();
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
        let conn = self.end.conns.get(qp.0).filter(|conn| conn.state == State::Established);
        conn.map_or(0, |conn| self.end.limits.send_queue - conn.queue.len())
    }

    fn ring(&mut self) {
        while let Some(qp) = self.end.dirty.pop() {
            self.ring_one(qp);
        }
    }

    fn poll(&mut self, now: Time) -> Option<Event> {
        if let Some(qp) = self.end.ended.take() {
            self.end.conns.remove(qp.0);
        }
        if self.end.events.is_empty() {
            let net = &mut *self.net.borrow_mut();
            net.advance(now);
            self.end.progress(net);
        }
        let event = self.end.events.pop_front();
        if let Some(Event::Disconnected { qp, .. }) = event {
            self.end.ended = Some(qp);
        }
        event
    }

    fn arm(&mut self) -> bool {
        let net = &mut *self.net.borrow_mut();
        let is_due = net.station(self.end.id).due.is_some_and(|due| due <= net.now());
        self.end.events.is_empty() && !is_due
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn wake_at(&self) -> Option<Time> {
        let net = &mut *self.net.borrow_mut();
        if self.end.events.is_empty() { net.station(self.end.id).due } else { Some(net.now()) }
    }
}

impl Drop for Sim {
    /// Breaks every connection; the peers notice in their time. All memory goes back to its pool.
    fn drop(&mut self) {
        if std::thread::panicking() {
            // What failed may have stopped half way; a second panic would hide the first one and its seed.
            return;
        }
        let net = &mut *self.net.borrow_mut();
        net.stop_listening(self.end.id);
        while let Some(place) = net.station(self.end.id).places.last().copied() {
            net.break_link(place);
            match net.shore(place).qp {
                Some(qp) => self.end.die(net, qp, Cause::Local, None),
                None => net.leave(place),
            }
        }
        net.station(self.end.id).due = None;
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sim({} connections, {} windows)", self.connections(), self.windows_bound())
    }
}
