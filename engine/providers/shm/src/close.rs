//! How connections end, and links with all of theirs.
//!
//! Every end passes through [`end`]: work completes, windows come back, the engine hears the cause last. The connection's
//! place is used again when both sides have said that they have nothing more to say about it.

use crate::{
    conn::{Conn, Say, Shared, State},
    link::Link,
    record::Why,
};
use stag_pools::{Table, table::Key};
use stag_verbs::{Cause, Event, FabricFault, Qp, Status, Terminate};

/// The peer broke a rule: it is told which, and the connection ends.
pub(crate) fn violate(
    conn: &mut Conn,
    link: &mut Link,
    shared: &mut Shared,
    (terminate, read): (Terminate, Option<u64>),
) {
    end(conn, link, shared, (Cause::PeerFault(terminate), None));
    say_close(conn, link, Why::told(terminate, read));
}

/// We end it, or the peer did: both sides say so.
pub(crate) fn say_close(conn: &mut Conn, link: &mut Link, why: Why) {
    conn.state = if conn.state == State::AwaitRoom { State::AwaitRoom } else { State::AwaitClose };
    link.say.push_back(Say::Close { to: conn.peer, from: conn.qp.0, why });
}

/// Gives everything back and reports the end, once. `read` is the request that the peer blames.
pub(crate) fn end(
    conn: &mut Conn,
    link: &mut Link,
    shared: &mut Shared,
    (cause, read): (Cause, Option<u64>),
) {
    if !conn.is_live() {
        return;
    }
    conn.state = State::AwaitClose;
    conn.deadline = None;
    conn.answers.clear();
    retract(conn.qp.0, link);
    flush_queue(conn, shared, (cause, read));
    let qp = conn.qp;
    let events = &mut shared.events;
    shared.receives.forget(qp, |fenced| events.push_back(Event::Unbound { qp, fenced }));
    shared.windows.close(qp.scope(), |fenced| events.push_back(Event::Unbound { qp, fenced }));
    shared.taken -= 1;
    if conn.is_known {
        shared.stats.count_end(cause);
        shared.events.push_back(Event::Disconnected { qp, cause });
    } else {
        conn.is_over = true;
    }
}

/// What the ring says of this connection's windows is void: their memory is about to be used for something else. Writes' memory
/// is kept for as long as the ring names it.
fn retract(conn: Key, link: &mut Link) {
    let (lent, producer, own) = (&mut link.lent, &link.producer, &link.own);
    lent.retain_mut(|lent| {
        if lent.conn != conn {
            return true;
        }
        lent.write = None;
        if lent.source.is_none()
            && let Some(own) = own
        {
            producer.retract(own, lent.begin);
        }
        lent.source.is_some()
    });
}

/// Completes what is pending, in order. The Read that the peer refused, or the oldest work when the fabric failed, says so.
fn flush_queue(conn: &mut Conn, shared: &mut Shared, (cause, read): (Cause, Option<u64>)) {
    let blamed = |request| conn.asked.iter().find(|asked| asked.request == request).map(|asked| asked.seq);
    let marked = match cause {
        Cause::Fabric(_) => conn.queue.oldest_pending().map(|seq| (seq, Status::Lost)),
        Cause::Terminated(terminate) => read.and_then(blamed).map(|seq| (seq, status(terminate))),
        _ => None,
    };
    let qp: Qp = conn.qp;
    for fenced in conn.queue.flush(qp, marked, |event| shared.events.push_back(event)) {
        shared.events.push_back(Event::Unbound { qp, fenced });
    }
    conn.asked.clear();
    conn.queue.give_back(&mut shared.spare_works);
}

const fn status(terminate: Terminate) -> Status {
    match terminate {
        Terminate { layer: stag_verbs::Layer::Rdmap, etype: 1, .. } => Status::RemoteAccess,
        _ => Status::RemoteOperation,
    }
}

/// The process is gone, or nothing it says can be understood: all its connections end.
pub(crate) fn end_all(
    key: Key,
    link: &mut Link,
    conns: &mut Table<Box<Conn>>,
    shared: &mut Shared,
    cause: Cause,
) {
    if cause == Cause::Fabric(FabricFault::Corrupt) {
        shared.stats.corrupt += 1;
    }
    for place in 0..conns.capacity() {
        let Some(conn) = conns.key_at(place).and_then(|key| conns.get_mut(key)) else { continue };
        if conn.link == key {
            end(conn, link, shared, (cause, None));
            conn.die(shared);
        }
    }
}
