//! Ends of connections: all memory comes back, even while messages are in flight.

use crate::{
    conn::{self, SimConn, SimState, WorkStage, Wr},
    end::SimEnd,
    net::{Net, Parcel, SimPayload},
    trace::Happened,
};
use stag_verbs::{Cause, Event, Layer, Memory, Qp, Status, Terminate};

impl SimEnd {
    /// Ends a connection: all memory comes back, everything pending completes, and `Disconnected`
    /// is the last event.
    pub(crate) fn die(&mut self, net: &mut Net, qp: Qp, cause: Cause, blame: Option<u64>) {
        let conn = self.conn(qp);
        let place = conn.place;
        let cause = conn.die_at.map_or(cause, |(_, first)| first);
        conn.state = SimState::Dead;
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

    pub(crate) fn flush(&mut self, net: &mut Net, qp: Qp, cause: Cause, blame: Option<u64>) {
        let conn = self.conn(qp);
        let (link, mut seq) = (conn.place.link, conn.first_seq);
        let mut undone = None;
        while let Some(Wr { tag, stage }) = self.conn(qp).pop() {
            let (done, memory) = SimConn::flush(stage);
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

/// Takes the memory of the dying `conn` out of the fabric. Messages and Writes that were rung out
/// go on as copies.
fn take_back(net: &mut Net, conn: &mut SimConn, cause: Cause) {
    let place = conn.place;
    while let Some(ack) = net.side(place).acks.pop_front() {
        conn.finish(ack.seq, WorkStage::Done(ack.buf.map_or(Memory::Shared, Memory::Buf)));
    }
    for item in &mut net.side(place).inbound {
        match std::mem::replace(&mut item.what, Parcel::Void) {
            Parcel::ReadResponse(read) => {
                conn.finish(item.seq, WorkStage::TakenBack(Memory::Buf(read.sink)))
            }
            what => item.what = what,
        }
    }
    let far = net.side(place.other());
    let mut inbound = std::mem::take(&mut far.inbound);
    let mut reading = std::mem::take(&mut far.reading);
    for item in reading.iter_mut().chain(&mut inbound) {
        let what = std::mem::replace(&mut item.what, Parcel::Void);
        item.what = match what {
            Parcel::Send(payload, key) => {
                Parcel::Send(take_copy(net, conn, item.seq, payload, cause), key)
            }
            Parcel::Write(payload, to) => {
                Parcel::Write(take_copy(net, conn, item.seq, payload, cause), to)
            }
            Parcel::ReadRequest(read) => {
                conn.finish(item.seq, WorkStage::TakenBack(Memory::Buf(read.sink)));
                Parcel::Void
            }
            what => what,
        };
    }
    let far = net.side(place.other());
    far.inbound = inbound;
    far.reading = reading;
}

/// Replaces `payload` by a copy and gives the memory to its work request, which is done when we end
/// in order.
fn take_copy(
    net: &mut Net,
    conn: &mut SimConn,
    seq: u64,
    payload: SimPayload,
    cause: Cause,
) -> SimPayload {
    let (copy, memory) = match payload {
        SimPayload::Copy(_) => return payload,
        SimPayload::Buf(buf) => (net.copy(&buf), Memory::Buf(buf)),
        SimPayload::Extent(extent) => (net.copy(&extent), Memory::Shared),
    };
    let is_sent = cause == Cause::Local;
    conn.finish(seq, if is_sent { WorkStage::Done(memory) } else { WorkStage::TakenBack(memory) });
    copy
}
