//! Placement of payload in windows, receives, and the sinks of Reads.

use crate::{
    conn::{IwarpConn, IwarpLink, IwarpShared, report, tagged_fault},
    transmit::RTR_TOKEN,
};
use stag_pools::{AccessViolation, Fenced, RemoteKey, copy_octets};
use stag_protocol::iwarp::{
    rdmap::Violation,
    stream::{ReadResponseSegment, SendFault, SendSegment, WriteSegment},
};
use stag_verbs::{Status, soft::Op};

pub(super) fn place_write(
    conn: &mut IwarpConn,
    shared: &mut IwarpShared,
    segment: &WriteSegment<'_>,
) -> Result<(), Violation> {
    let Some(link) = &mut conn.link else { return Ok(()) };
    link.is_amid_tagged = !segment.last;
    // RFC 5041 §5.2 [5041-27]: the STag and TO of an empty segment are not checked
    if segment.payload.is_empty() {
        return Ok(()); // its STag must not be checked (RFC 5041 §5.2)
    }
    let key = RemoteKey(segment.stag);
    match shared.windows.target(conn.qp.scope(), key, segment.to, segment.payload.len()) {
        Ok(target) => {
            // RFC 5041 §5.2 [5041-24]: the payload of every valid segment is placed
            copy_octets(segment.payload, target);
            shared.stats.octets_placed += segment.payload.len() as u64;
            Ok(())
        }
        // RFC 5041 §7.1 [5041-46]: a segment with an error is reported and not placed
        Err(refusal) => Err(link.stream.refuse_write(segment, tagged_fault(refusal))),
    }
}

pub(super) fn place_send(
    conn: &mut IwarpConn,
    shared: &mut IwarpShared,
    segment: &SendSegment<'_>,
) -> Result<(), Violation> {
    let Some(link) = &mut conn.link else { return Ok(()) };
    // RFC 5040 §5.3 [5040-35]: every Send, also an empty one, takes one receive
    let mut landing = match link.landing.take().or_else(|| shared.receives.land()) {
        Some(landing) => landing,
        None => return Err(link.stream.refuse_send(segment, SendFault::NoBuffer)),
    };
    // RFC 5041 §7.1 [5041-40]: an untagged segment ends inside its buffer
    if !landing.append(segment.payload, shared.receives.receive_len()) {
        link.landing = Some(landing);
        return Err(link.stream.refuse_send(segment, SendFault::TooLong));
    }
    shared.stats.octets_placed += segment.payload.len() as u64;
    // RFC 5041 §4.1, §5.4 [5041-10]: a message is delivered once its last segment is placed
    if !segment.last {
        link.landing = Some(landing);
        return Ok(());
    }
    let invalidated =
        match segment.invalidate.map(|key| invalidate(link, conn.qp.scope(), shared, key)) {
            None => None,
            Some(Ok(fenced)) => Some(fenced),
            Some(Err(fault)) => {
                link.landing = Some(landing);
                // RFC 5040 §5.3 [5040-39]: a Send invalidates its STag, or a Terminate follows
                return Err(link.stream.refuse_send(segment, fault));
            }
        };
    // RFC 5040 §5.3, §5.5 [5040-36]: sends are delivered in the order they were sent
    match shared.receives.landed(conn.qp, landing, invalidated) {
        Some(event) => shared.emit(event),
        None => shared.stats.parked += 1,
    }
    Ok(())
}

/// Handles the peer's invalidation of window `key`, before its message is visible (RFC 5040 §5.1).
fn invalidate(
    link: &IwarpLink,
    scope: stag_pools::Scope,
    shared: &mut IwarpShared,
    key: u32,
) -> Result<Fenced, SendFault> {
    let key = RemoteKey(key);
    if link.transmit.carries(key) {
        // The peer invalidates a window that it is reading, before the answer can have arrived.
        return Err(SendFault::CannotInvalidate);
    }
    if link.queue.is_invalidating(key) {
        return Err(SendFault::InvalidateUnknown); // for the peer it has gone already
    }
    // RFC 5040 §5.3 [5040-39]: a Send invalidates its STag, or a Terminate follows
    shared.windows.invalidate(scope, key).map_err(|refusal| match refusal {
        // RFC 5040 §5.3, §7.2 [5040-38]: an STag is invalidated only by its own stream
        AccessViolation::OtherScope => SendFault::CannotInvalidate,
        // RFC 5040 §7.2 [5040-58]: an unknown STag to invalidate is an error
        _ => SendFault::InvalidateUnknown,
    })
}

pub(super) fn place_answer(
    conn: &mut IwarpConn,
    shared: &mut IwarpShared,
    segment: &ReadResponseSegment<'_>,
) {
    let Some(link) = &mut conn.link else { return };
    link.is_amid_tagged = !segment.last;
    if segment.last {
        // A Read may wait for this place in the ORD.
        conn.wants_flush |= link.queue.next().is_some();
    }
    if segment.token == RTR_TOKEN {
        return;
    }
    let Some(Op::Read(read)) = link.queue.op_mut(segment.token) else {
        unreachable!("a Read stays until it is answered")
    };
    let end = read.fill_at + segment.payload.len();
    let target = read
        .sink
        .get_mut(read.fill_at..end)
        .expect("the stream checks answers against what was asked");
    // RFC 5041 §5.2 [5041-24]: the payload of every valid segment is placed
    copy_octets(segment.payload, target);
    shared.stats.octets_placed += segment.payload.len() as u64;
    let (len, is_last) = (segment.payload.len(), segment.last);
    answered(conn, shared, segment.token, len, is_last);
}

/// Records that the sink of the Read `token` holds `len` more octets of its answer.
pub(super) fn answered(
    conn: &mut IwarpConn,
    shared: &mut IwarpShared,
    token: u64,
    len: usize,
    is_last: bool,
) {
    let Some(link) = &mut conn.link else { return };
    let Some(Op::Read(read)) = link.queue.op_mut(token) else {
        unreachable!("a Read stays until it is answered")
    };
    read.fill_at += len;
    if !is_last {
        return;
    }
    read.unanswered -= 1;
    // RFC 5040 §5.5 [5040-47]: a Read completes only after its last Response
    if read.unanswered == 0 {
        // RFC 5040 §5.2.2 [5040-32]: a Read Response is reported to the upper layer
        link.queue.complete(token, Status::Success, None);
        report(link, conn.qp, shared);
    }
}
