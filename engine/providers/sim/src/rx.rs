//! Arrivals: messages find receives, Writes and Reads find windows.

use crate::{
    conn::WorkStage,
    end::SimEnd,
    net::{InFlight, Net, Parcel, SideId, SimPayload, SimRead},
    trace::Happened,
};
use stag_pools::{AccessViolation, RemoteKey};
use stag_verbs::{
    Cause, Event, Memory, Qp, RemoteSpan, Terminate,
    soft::{NO_BUFFER, TOO_LONG, invalidate_fault, read_fault, write_fault},
};

impl SimEnd {
    pub(crate) fn deliver(&mut self, net: &mut Net, qp: Qp, item: InFlight) {
        let InFlight { seq, what, .. } = item;
        match what {
            Parcel::Accepted(private_data) => {
                self.conn(qp).private_data = private_data;
                self.establish(qp);
            }
            Parcel::Rejected(private_data) => {
                self.conn(qp).private_data = private_data;
                self.die(net, qp, Cause::Rejected, None);
            }
            Parcel::Close(cause, blame) => self.die(net, qp, cause, blame),
            Parcel::Send(payload, invalidate) => {
                self.establish(qp);
                self.receive(
                    net,
                    qp,
                    InFlight { seq, due: item.due, what: Parcel::Send(payload, invalidate) },
                );
            }
            Parcel::Write(payload, to) => {
                self.establish(qp);
                self.write(net, qp, seq, payload, to);
            }
            Parcel::ReadRequest(read) => {
                self.establish(qp);
                let due = net.after(net.faults().fetch_delay.clone());
                let side = net.side(self.conn(qp).place);
                let due = side.reading.back().map_or(due, |ahead| ahead.due.max(due));
                side.reading.push_back(InFlight { due, seq, what: Parcel::ReadRequest(read) });
            }
            Parcel::ReadResponse(read) => {
                let SimRead { sink, from, .. } = read;
                self.recycle(from);
                self.conn(qp).finish(seq, WorkStage::Done(Memory::Buf(sink)));
            }
            Parcel::ConnectRequest(_) => unreachable!("a connection begins once"),
            Parcel::Void => {}
        }
    }

    pub(crate) fn recycle(&mut self, mut from: Vec<RemoteSpan>) {
        from.clear();
        if self.spans.len() < self.limits.send_queue {
            self.spans.push(from);
        }
    }

    /// A message arrives: it takes a receive, or queues for one after earlier ones of its
    /// connection.
    pub(crate) fn receive(&mut self, net: &mut Net, qp: Qp, item: InFlight) {
        let InFlight { due, seq, what: Parcel::Send(payload, invalidate) } = item else { return };
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
            SimPayload::Copy(octets) => SimPayload::Copy(octets),
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
        self.conn(qp).parked.push_back(InFlight { due, seq, what: Parcel::Send(copy, invalidate) });
    }

    /// Messages that waited get the receives that were posted since.
    pub(crate) fn unpark(&mut self, net: &mut Net, qp: Qp) {
        while self.parked > 0 && !self.receives.is_empty() && self.is_live(qp) {
            let Some(InFlight { seq, what: Parcel::Send(payload, invalidate), .. }) =
                self.conn(qp).parked.pop_front()
            else {
                break;
            };
            self.parked -= 1;
            self.take(net, qp, seq, payload, invalidate);
        }
    }

    /// Puts a message in the oldest receive; the invalidation comes first (RFC 5040 §5.1).
    pub(crate) fn take(
        &mut self,
        net: &mut Net,
        qp: Qp,
        seq: u64,
        payload: SimPayload,
        invalidate: Option<RemoteKey>,
    ) {
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
        buf.append(&payload)
            .expect("a receive holds `receive_len` octets, and the message is no longer");
        self.settle(net, place, seq, payload);
        self.events.push_back(Event::Received { qp, buf, invalidated });
    }

    pub(crate) fn invalidate(
        &mut self,
        qp: Qp,
        key: RemoteKey,
    ) -> Result<stag_pools::Fenced, AccessViolation> {
        if self.conn(qp).is_invalidating(key) {
            return Err(AccessViolation::InvalidKey);
        }
        self.windows.invalidate(qp.scope(), key)
    }

    pub(crate) fn write(
        &mut self,
        net: &mut Net,
        qp: Qp,
        seq: u64,
        payload: SimPayload,
        to: RemoteSpan,
    ) {
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
    pub(crate) fn settle(&mut self, net: &mut Net, place: SideId, seq: u64, payload: SimPayload) {
        match payload {
            SimPayload::Copy(octets) => net.give_copy(octets),
            SimPayload::Buf(buf) => net.acknowledge(place.other(), seq, Some(buf)),
            SimPayload::Extent(extent) => {
                drop(extent);
                net.acknowledge(place.other(), seq, None);
            }
        }
    }

    /// Answers the oldest Read Request that is due. False: there is none.
    pub(crate) fn fetch(&mut self, net: &mut Net, qp: Qp) -> bool {
        let place = self.conn(qp).place;
        let now = net.now();
        if net.side(place).reading.front().is_none_or(|item| item.due > now) {
            return false;
        }
        let Some(item) = net.side(place).reading.pop_front() else { return false };
        let InFlight { due, seq, what: Parcel::ReadRequest(mut read) } = item else { return true };
        match self.gather(qp, &mut read) {
            Ok(()) => net.send(place, seq, Parcel::ReadResponse(read)),
            Err(violation) => {
                // The requester finds its sink there when it takes its memory back.
                net.side(place).reading.push_front(InFlight {
                    due,
                    seq,
                    what: Parcel::ReadRequest(read),
                });
                self.violation(net, qp, read_fault(violation), Some(seq));
            }
        }
        true
    }

    pub(crate) fn gather(&mut self, qp: Qp, read: &mut SimRead) -> Result<(), AccessViolation> {
        let mut sink = read.sink.get_mut(read.at..).expect("`post_read` checked the sink");
        for span in &read.from {
            let len = span.len as usize;
            let (part, rest) = sink.split_at_mut(len);
            if len > 0 {
                part.copy_from_slice(self.windows.source(
                    qp.scope(),
                    span.key,
                    span.offset,
                    len,
                )?);
            }
            sink = rest;
        }
        Ok(())
    }

    /// The peer broke a rule: a Terminate is sent to it, and the connection is dead.
    pub(crate) fn violation(
        &mut self,
        net: &mut Net,
        qp: Qp,
        terminate: Terminate,
        blame: Option<u64>,
    ) {
        let place = self.conn(qp).place;
        net.send(place, 0, Parcel::Close(Cause::Terminated(terminate), blame));
        self.die(net, qp, Cause::PeerFault(terminate), None);
    }
}
