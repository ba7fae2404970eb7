//! One end: what arrives, what completes, and how a connection dies.

use crate::{
    conn::{self, Conn, Stage, State, Work, Wr},
    net::{Item, Net, Payload, Place, Read, What},
    trace::Happened,
};
use stag_pools::{Buf, RemoteKey, Table, Violation, Windows};
use stag_verbs::soft::{NO_BUFFER, TOO_LONG, invalidate_fault, read_fault, write_fault};
use stag_verbs::{Cause, Event, FabricFault, Layer, Limits, Memory, Qp, RemoteSpan, Status, Terminate, Time};
use std::collections::VecDeque;

#[derive(Debug)]
pub(crate) struct End {
    pub(crate) id: usize,
    pub(crate) limits: Limits,
    pub(crate) conns: Table<Conn>,
    pub(crate) windows: Windows,
    pub(crate) receives: VecDeque<Buf>,
    pub(crate) events: VecDeque<Event>,
    /// Connections with work whose doorbell was not rung.
    pub(crate) dirty: Vec<Qp>,
    /// Its end was reported by the latest poll.
    pub(crate) ended: Option<Qp>,
    /// Messages that wait for a receive.
    pub(crate) parked: usize,
    /// Span lists that no Read uses.
    pub(crate) spans: Vec<Vec<RemoteSpan>>,
    /// The places of one round.
    round: Vec<Place>,
}

impl End {
    pub(crate) fn new(id: usize, limits: Limits, key_seed: [u8; 32]) -> Self {
        let per_connection = limits.send_queue + 4;
        Self {
            id,
            conns: Table::new(limits.connections),
            windows: Windows::new(limits.windows, key_seed),
            receives: VecDeque::with_capacity(limits.receives),
            events: VecDeque::with_capacity(limits.connections * per_connection + limits.receives),
            dirty: Vec::with_capacity(limits.connections),
            ended: None,
            parked: 0,
            spans: (0..limits.send_queue).map(|_| Vec::with_capacity(limits.read_spans)).collect(),
            round: Vec::with_capacity(limits.connections),
            limits,
        }
    }

    pub(crate) fn conn(&mut self, qp: Qp) -> &mut Conn {
        self.conns.get_mut(qp.0).expect("a connection is in the table until its end is reported")
    }

    /// Lets everything happen that is due, until there is an event.
    pub(crate) fn progress(&mut self, net: &mut Net) {
        while self.events.is_empty() && net.station(self.id).due.is_some_and(|due| due <= net.now()) {
            let mut round = std::mem::take(&mut self.round);
            round.clear();
            round.extend_from_slice(&net.station(self.id).places);
            let first = net.below(round.len());
            for index in 0..round.len() {
                if let Some(place) = round.get((first + index) % round.len()) {
                    self.turn(net, *place);
                }
            }
            self.round = round;
            self.set_due(net);
        }
    }

    fn set_due(&mut self, net: &mut Net) {
        let mut due: Option<Time> = None;
        for index in 0..net.station(self.id).places.len() {
            let Some(place) = net.station(self.id).places.get(index).copied() else { break };
            let shore = net.shore(place);
            let own = shore.qp.and_then(|qp| self.conns.get(qp.0)).and_then(Conn::due);
            due = [due, own, shore.due()].into_iter().flatten().min();
        }
        net.station(self.id).due = due;
    }

    /// Everything that is due at one connection.
    fn turn(&mut self, net: &mut Net, place: Place) {
        if net.shore(place).qp.is_none() {
            match net.arrive(place) {
                Some(item) => return self.meet(net, place, item),
                None => return self.forget(net, place),
            }
        }
        let qp = net.shore(place).qp.expect("it was just looked at");
        self.collect(net, qp);
        self.unpark(net, qp);
        while self.is_live(qp) {
            let Some(item) = net.arrive(place) else { break };
            self.deliver(net, qp, item);
        }
        while self.is_live(qp) && self.fetch(net, qp) {}
        if self.is_live(qp) {
            self.start(net, qp);
            self.collect(net, qp);
            self.timers(net, qp);
        }
    }

    fn is_live(&self, qp: Qp) -> bool {
        self.conns.get(qp.0).is_some_and(|conn| conn.state != State::Dead)
    }

    /// A connect request arrives.
    fn meet(&mut self, net: &mut Net, place: Place, item: Item) {
        let What::ConnectRequest(private_data) = item.what else {
            return self.refuse(net, place);
        };
        if !net.is_listening(self.id) {
            return self.refuse(net, place);
        }
        let conn = Conn::new(place, State::AwaitAnswer, private_data, self.limits.send_queue);
        match self.conns.insert(conn) {
            Ok(key) => {
                net.shore(place).qp = Some(Qp(key));
                self.events.push_back(Event::ConnectRequest { qp: Qp(key) });
            }
            Err(_) => self.refuse(net, place),
        }
    }

    fn refuse(&mut self, net: &mut Net, place: Place) {
        net.send(place, 0, What::Close(Cause::Fabric(FabricFault::Refused), None));
        net.leave(place);
    }

    /// A connection breaks before its request arrived: nobody here ever knew it.
    fn forget(&mut self, net: &mut Net, place: Place) {
        let now = net.now();
        if net.shore(place).lost_at.is_some_and(|at| at <= now) {
            net.leave(place);
        }
    }

    /// Takes over what the fabric is done with, and reports what completed in order.
    fn collect(&mut self, net: &mut Net, qp: Qp) {
        if !self.is_live(qp) {
            return;
        }
        let now = net.now();
        let place = self.conn(qp).place;
        while net.shore(place).acks.front().is_some_and(|ack| ack.due <= now) {
            let Some(ack) = net.shore(place).acks.pop_front() else { break };
            self.conn(qp).finish(ack.seq, Stage::Done(ack.buf.map_or(Memory::Shared, Memory::Buf)));
        }
        while let Some(wr) = self.conn(qp).queue.front() {
            match wr.stage {
                Stage::Done(_) => {}
                Stage::Invalidating(_, due) if due <= now => {}
                _ => break,
            }
            let Some(Wr { tag, stage }) = self.conn(qp).pop() else { break };
            let memory = match stage {
                Stage::Done(memory) => memory,
                Stage::Invalidating(key, _) => {
                    let fenced = self.windows.invalidate(qp.scope(), key);
                    Memory::Fenced(fenced.expect("nobody else invalidates a key we are about to"))
                }
                _ => unreachable!("only finished work completes"),
            };
            net.note(self.id, place.link, Happened::Completed(tag.0));
            // RFC 5042 §6.4.3.2, §6.4.6 [5042-16] [5042-19]
            self.events.push_back(Event::Completed { qp, tag, status: Status::Success, memory });
        }
    }

    fn timers(&mut self, net: &mut Net, qp: Qp) {
        let now = net.now();
        let conn = self.conn(qp);
        if conn.ready_at.is_some_and(|at| at <= now) {
            self.establish(qp);
        }
        let conn = self.conn(qp);
        let (place, death) = (conn.place, conn.die_at);
        if let Some((_, cause)) = death.filter(|(at, _)| *at <= now) {
            self.die(net, qp, cause, None);
        } else if net.shore(place).lost_at.is_some_and(|at| at <= now) {
            self.die(net, qp, Cause::Fabric(FabricFault::Lost), None);
        }
    }

    fn establish(&mut self, qp: Qp) {
        let conn = self.conn(qp);
        conn.ready_at = None;
        if matches!(conn.state, State::AwaitReady | State::AwaitReply) {
            conn.state = State::Established;
            self.events.push_back(Event::Established { qp });
        }
    }

    fn deliver(&mut self, net: &mut Net, qp: Qp, item: Item) {
        let Item { seq, what, .. } = item;
        match what {
            What::Accepted(private_data) => {
                self.conn(qp).private_data = private_data;
                self.establish(qp);
            }
            What::Rejected(private_data) => {
                self.conn(qp).private_data = private_data;
                self.die(net, qp, Cause::Rejected, None);
            }
            What::Close(cause, blame) => self.die(net, qp, cause, blame),
            What::Send(payload, invalidate) => {
                self.establish(qp);
                self.receive(net, qp, Item { seq, due: item.due, what: What::Send(payload, invalidate) });
            }
            What::Write(payload, to) => {
                self.establish(qp);
                self.write(net, qp, seq, payload, to);
            }
            What::ReadRequest(read) => {
                self.establish(qp);
                let due = net.after(net.faults().fetch_delay.clone());
                let shore = net.shore(self.conn(qp).place);
                let due = shore.reading.back().map_or(due, |ahead| ahead.due.max(due));
                shore.reading.push_back(Item { due, seq, what: What::ReadRequest(read) });
            }
            What::ReadResponse(read) => {
                let Read { sink, from, .. } = read;
                self.recycle(from);
                self.conn(qp).finish(seq, Stage::Done(Memory::Buf(sink)));
            }
            What::ConnectRequest(_) => unreachable!("a connection begins once"),
            What::Void => {}
        }
    }

    fn recycle(&mut self, mut from: Vec<RemoteSpan>) {
        from.clear();
        if self.spans.len() < self.limits.send_queue {
            self.spans.push(from);
        }
    }

    /// A message arrives: it takes a receive, or waits for one behind the others of its connection.
    fn receive(&mut self, net: &mut Net, qp: Qp, item: Item) {
        let Item { due, seq, what: What::Send(payload, invalidate) } = item else { return };
        let place = self.conn(qp).place;
        if payload.len() > self.limits.receive_len {
            self.settle(net, place, seq, payload);
            return self.violation(net, qp, TOO_LONG, None);
        }
        if !self.receives.is_empty() && self.conn(qp).parked.is_empty() {
            return self.take(net, qp, seq, payload, invalidate);
        }
        let len = payload.len();
        let copy = match payload {
            Payload::Copy(octets) => Payload::Copy(octets),
            payload => {
                let copy = net.copy(&payload);
                self.settle(net, place, seq, payload);
                copy
            }
        };
        if self.conn(qp).parked.len() >= net.faults().parked {
            self.settle(net, place, seq, copy);
            return self.violation(net, qp, NO_BUFFER, None);
        }
        net.note(self.id, place.link, Happened::Parked(len));
        self.parked += 1;
        self.conn(qp).parked.push_back(Item { due, seq, what: What::Send(copy, invalidate) });
    }

    /// Messages that waited get the receives that were posted since.
    fn unpark(&mut self, net: &mut Net, qp: Qp) {
        while self.parked > 0 && !self.receives.is_empty() && self.is_live(qp) {
            let Some(Item { seq, what: What::Send(payload, invalidate), .. }) =
                self.conn(qp).parked.pop_front()
            else {
                break;
            };
            self.parked -= 1;
            self.take(net, qp, seq, payload, invalidate);
        }
    }

    /// Puts a message in the oldest receive; the invalidation comes first (RFC 5040 §5.1).
    fn take(&mut self, net: &mut Net, qp: Qp, seq: u64, payload: Payload, invalidate: Option<RemoteKey>) {
        let place = self.conn(qp).place;
        let invalidated = match invalidate.map(|key| self.invalidate(qp, key)).transpose() {
            Ok(invalidated) => invalidated,
            Err(violation) => {
                self.settle(net, place, seq, payload);
                return self.violation(net, qp, invalidate_fault(violation), None);
            }
        };
        let mut buf = self.receives.pop_front().expect("the caller found a receive");
        buf.reset(0);
        buf.append(&payload).expect("a receive holds `receive_len` octets, and the message is no longer");
        self.settle(net, place, seq, payload);
        self.events.push_back(Event::Received { qp, buf, invalidated });
    }

    fn invalidate(&mut self, qp: Qp, key: RemoteKey) -> Result<stag_pools::Fenced, Violation> {
        if self.conn(qp).is_invalidating(key) {
            return Err(Violation::InvalidKey);
        }
        self.windows.invalidate(qp.scope(), key)
    }

    fn write(&mut self, net: &mut Net, qp: Qp, seq: u64, payload: Payload, to: RemoteSpan) {
        // RFC 5041 §5.2: key and offset of an empty segment are not looked at.
        let placed = if payload.is_empty() {
            Ok(())
        } else {
            let target = self.windows.target(qp.scope(), to.key, to.offset, payload.len());
            target.map(|octets| octets.copy_from_slice(&payload))
        };
        let place = self.conn(qp).place;
        self.settle(net, place, seq, payload);
        if let Err(violation) = placed {
            self.violation(net, qp, write_fault(violation), None);
        }
    }

    /// Gives the sender of `payload` its memory back.
    fn settle(&mut self, net: &mut Net, place: Place, seq: u64, payload: Payload) {
        match payload {
            Payload::Copy(octets) => net.give_copy(octets),
            Payload::Buf(buf) => net.acknowledge(place.other(), seq, Some(buf)),
            Payload::Extent(extent) => {
                drop(extent);
                net.acknowledge(place.other(), seq, None);
            }
        }
    }

    /// Answers the oldest Read Request that is due. False: there is none.
    fn fetch(&mut self, net: &mut Net, qp: Qp) -> bool {
        let place = self.conn(qp).place;
        let now = net.now();
        if net.shore(place).reading.front().is_none_or(|item| item.due > now) {
            return false;
        }
        let Some(item) = net.shore(place).reading.pop_front() else { return false };
        let Item { due, seq, what: What::ReadRequest(mut read) } = item else { return true };
        match self.gather(qp, &mut read) {
            Ok(()) => net.send(place, seq, What::ReadResponse(read)),
            Err(violation) => {
                // The requester finds its sink there when it takes its memory back.
                net.shore(place).reading.push_front(Item { due, seq, what: What::ReadRequest(read) });
                self.violation(net, qp, read_fault(violation), Some(seq));
            }
        }
        true
    }

    fn gather(&mut self, qp: Qp, read: &mut Read) -> Result<(), Violation> {
        let mut sink = read.sink.get_mut(read.at..).expect("`post_read` checked the sink");
        for span in &read.from {
            let len = span.len as usize;
            let (part, rest) = sink.split_at_mut(len);
            if len > 0 {
                part.copy_from_slice(self.windows.source(qp.scope(), span.key, span.offset, len)?);
            }
            sink = rest;
        }
        Ok(())
    }

    /// The peer broke a rule: it is told, and the connection is dead.
    fn violation(&mut self, net: &mut Net, qp: Qp, terminate: Terminate, blame: Option<u64>) {
        let place = self.conn(qp).place;
        net.send(place, 0, What::Close(Cause::Terminated(terminate), blame));
        self.die(net, qp, Cause::PeerFault(terminate), None);
    }

    /// Puts on the way what was rung, as far as the limit of Reads allows.
    pub(crate) fn start(&mut self, net: &mut Net, qp: Qp) {
        let reads_max = net.faults().reads;
        let early = net.faults().early;
        let id = self.id;
        let conn = self.conn(qp);
        while conn.started < conn.rung {
            let seq = conn.first_seq + conn.started as u64;
            let (reads, place) = (conn.reads, conn.place);
            let Some(wr) = conn.queue.get_mut(conn.started) else { break };
            if reads >= reads_max && matches!(wr.stage, Stage::Posted(Work::Read(_))) {
                break;
            }
            conn.started += 1;
            match std::mem::replace(&mut wr.stage, Stage::Flying { is_read: false }) {
                Stage::Posted(Work::Send(message, invalidate)) => {
                    let payload = net.load(place, seq, Payload::Buf(message), early);
                    net.send(place, seq, What::Send(payload, invalidate));
                }
                Stage::Posted(Work::Write(source, to)) => {
                    let payload = net.load(place, seq, Payload::Extent(source), early);
                    net.send(place, seq, What::Write(payload, to));
                }
                Stage::Posted(Work::Read(read)) => {
                    wr.stage = Stage::Flying { is_read: true };
                    conn.reads += 1;
                    net.send(place, seq, What::ReadRequest(read));
                }
                Stage::Posted(Work::Invalidate(key)) => {
                    let due = net.after(net.faults().completion_delay.clone());
                    wr.stage = Stage::Invalidating(key, due);
                    net.wake(id, due);
                }
                _ => unreachable!("work starts once"),
            }
        }
    }

    /// Ends a connection: all memory comes back, everything pending completes, and `Disconnected` is the last event.
    pub(crate) fn die(&mut self, net: &mut Net, qp: Qp, cause: Cause, blame: Option<u64>) {
        let conn = self.conn(qp);
        let place = conn.place;
        let cause = conn.die_at.map_or(cause, |(_, first)| first);
        conn.state = State::Dead;
        conn.die_at = None;
        conn.ready_at = None;
        take_back(net, conn, cause);
        let parked = std::mem::take(&mut conn.parked);
        self.parked -= parked.len();
        drop(parked);
        self.flush(net, qp, cause, blame);
        let events = &mut self.events;
        self.windows.close(qp.scope(), |fenced| events.push_back(Event::Unbound { qp, fenced }));
        net.note(self.id, place.link, Happened::Ended(cause));
        self.events.push_back(Event::Disconnected { qp, cause });
        net.leave(place);
    }

    fn flush(&mut self, net: &mut Net, qp: Qp, cause: Cause, blame: Option<u64>) {
        let conn = self.conn(qp);
        let (link, mut seq) = (conn.place.link, conn.first_seq);
        let mut undone = None;
        while let Some(Wr { tag, stage }) = self.conn(qp).pop() {
            let (done, memory) = Conn::flush(stage);
            let status = match undone {
                None if done => Status::Success,
                None => conn::first_undone(cause),
                Some(()) => Status::Flushed,
            };
            if status != Status::Success {
                undone = Some(());
            }
            let status = if blame == Some(seq) && !done { blamed(cause) } else { status };
            seq += 1;
            net.note(self.id, link, Happened::Completed(tag.0));
            self.events.push_back(Event::Completed { qp, tag, status, memory });
        }
    }
}

/// The status of the Read that a Terminate names.
const fn blamed(cause: Cause) -> Status {
    match cause {
        Cause::Terminated(Terminate { layer: Layer::Rdmap, etype: 1, .. }) => Status::RemoteAccess,
        Cause::Terminated(_) => Status::RemoteOperation,
        _ => Status::Flushed,
    }
}

/// Takes the memory of the dying `conn` out of the fabric. Messages and Writes that were rung out go on as copies.
fn take_back(net: &mut Net, conn: &mut Conn, cause: Cause) {
    let place = conn.place;
    while let Some(ack) = net.shore(place).acks.pop_front() {
        conn.finish(ack.seq, Stage::Done(ack.buf.map_or(Memory::Shared, Memory::Buf)));
    }
    for item in &mut net.shore(place).inbound {
        match std::mem::replace(&mut item.what, What::Void) {
            What::ReadResponse(read) => conn.finish(item.seq, Stage::TakenBack(Memory::Buf(read.sink))),
            what => item.what = what,
        }
    }
    let far = net.shore(place.other());
    let mut inbound = std::mem::take(&mut far.inbound);
    let mut reading = std::mem::take(&mut far.reading);
    for item in reading.iter_mut().chain(&mut inbound) {
        let what = std::mem::replace(&mut item.what, What::Void);
        item.what = match what {
            What::Send(payload, key) => What::Send(take_copy(net, conn, item.seq, payload, cause), key),
            What::Write(payload, to) => What::Write(take_copy(net, conn, item.seq, payload, cause), to),
            What::ReadRequest(read) => {
                conn.finish(item.seq, Stage::TakenBack(Memory::Buf(read.sink)));
                What::Void
            }
            what => what,
        };
    }
    let far = net.shore(place.other());
    far.inbound = inbound;
    far.reading = reading;
}

/// Replaces `payload` by a copy and gives the memory to its work request, which is done when we end in order.
fn take_copy(net: &mut Net, conn: &mut Conn, seq: u64, payload: Payload, cause: Cause) -> Payload {
    let (copy, memory) = match payload {
        Payload::Copy(_) => return payload,
        Payload::Buf(buf) => (net.copy(&buf), Memory::Buf(buf)),
        Payload::Extent(extent) => (net.copy(&extent), Memory::Shared),
    };
    let is_sent = cause == Cause::Local;
    conn.finish(seq, if is_sent { Stage::Done(memory) } else { Stage::TakenBack(memory) });
    copy
}
