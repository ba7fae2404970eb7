//! Receiving: octets become FPDUs, FPDUs are checked (length, CRC, DDP, RDMAP, window) and only then placed.
//!
//! Reads are large and go to a buffer that all connections share; what is left of an FPDU stays with its connection. A read
//! never brings more Sends than there are receives and parking places, unless all that it brings has room in the connection's
//! own buffer, where messages can wait.

use crate::{
    close, cm,
    conn::{Conn, Link, Shared, State},
    crc::Crc,
    shard::STAGING,
    sock::{self, Moved, Ready},
    tx::{self, RTR_TOKEN},
};
use stag_pools::{Fenced, RemoteKey, Violation as Refusal};
use stag_protocol::iwarp::{
    ddp::{self, Header},
    fpdu,
    rdmap::{Terminate, Violation},
    stream::{Inbound, ReadResponseSegment, SendFault, SendSegment, WriteSegment},
};
use stag_verbs::soft::Op;
use stag_verbs::{Cause, Event, FabricFault, Status};

/// Octets of the shortest FPDU that begins a message: length, untagged header, CRC, a multiple of four.
const SEND_FPDU_MIN: usize = fpdu::fpdu_len(ddp::UNTAGGED_LEN as u16);

/// The socket may have something for us.
/// Whether it had.
pub(crate) fn readable(conn: &mut Conn, shared: &mut Shared, ready: Ready) -> bool {
    if conn.is_stalled {
        // It is not watched for octets, so both directions ended or it broke.
        debug_assert!(ready.intersects(Ready::HUP | Ready::ERR), "{ready:?}");
        close::end_now(conn, shared, Cause::Fabric(FabricFault::Lost));
        return true;
    }
    let moved = if conn.is_established() {
        let sends = shared.receives.room().saturating_mul(SEND_FPDU_MIN);
        receive_staged(conn, shared, sends.clamp(fpdu::FPDU_MAX, STAGING))
    } else {
        let moved = receive_own(conn, shared);
        if matches!(moved, Moved::Octets(_)) {
            use_input(conn, shared);
        }
        moved
    };
    match moved {
        Moved::Octets(_) | Moved::WouldBlock => {}
        Moved::End => close::finished(conn, shared),
        Moved::Broken(error) => close::broken(conn, shared, FabricFault::from(&error.into())),
    }
    moved != Moved::WouldBlock
}

/// Reads behind what the connection has already.
pub(crate) fn receive_own(conn: &mut Conn, shared: &mut Shared) -> Moved {
    shared.spares.lend(&mut conn.input);
    let room = conn.input.octets.get_mut(conn.input.len..).unwrap_or_default();
    if room.is_empty() {
        return Moved::WouldBlock; // only a peer that talks into our set-up answer gets here
    }
    let moved = sock::receive(&conn.socket, room, &mut shared.stats);
    if let Moved::Octets(octets) = moved {
        conn.input.len += octets;
    }
    moved
}

/// Uses what is in the connection's own buffer.
pub(crate) fn use_input(conn: &mut Conn, shared: &mut Shared) {
    match conn.state {
        State::AwaitReply { .. } | State::AwaitRequest | State::AwaitAnswer { .. } => cm::frame(conn, shared),
        State::AwaitFpdu | State::AwaitSign { .. } | State::Established => {
            let octets = std::mem::take(&mut conn.input.octets);
            let used = place_all(conn, shared, octets.get(..conn.input.len).unwrap_or_default());
            conn.input.octets = octets;
            conn.input.consume(used);
        }
        State::AwaitTcp { .. } | State::AwaitTerminateSent { .. } | State::AwaitEnd | State::Dead => {
            conn.input.len = 0;
        }
    }
}

/// Reads up to `limit` octets: first the rest of the FPDU that the connection holds a part of, where that is, and what
/// follows to the shared buffer. So only the parts of one FPDU are ever moved.
fn receive_staged(conn: &mut Conn, shared: &mut Shared, limit: usize) -> Moved {
    let mut staging = std::mem::take(&mut shared.staging);
    let held = conn.input.len;
    let needed = conn.needed();
    let own = conn.input.octets.get_mut(held..needed).unwrap_or_default();
    let own_len = own.len();
    let room = staging.get_mut(..limit - needed).expect("an FPDU is no longer than the limit");
    let moved = sock::receive_two(&conn.socket, own, room, &mut shared.stats);
    if let Moved::Octets(octets) = moved {
        let first = octets.min(own_len);
        conn.input.len += first;
        let mut rest = staging.get(..octets - first).expect("the kernel fills no more than the room");
        finish_held(conn, shared, &mut rest);
        let used = if conn.input.len == 0 { place_all(conn, shared, rest) } else { 0 };
        keep(conn, shared, rest.get(used..).unwrap_or_default());
    }
    shared.staging = staging;
    moved
}

/// Keeps the start of an FPDU whose rest is to come, and what waits for a receive.
fn keep(conn: &mut Conn, shared: &mut Shared, rest: &[u8]) {
    if !rest.is_empty() && conn.is_established() {
        shared.spares.lend(&mut conn.input);
        let held = conn.input.len;
        let kept = conn.input.octets.get_mut(held..held + rest.len());
        kept.expect("what is left is less than an FPDU, or all that was read is").copy_from_slice(rest);
        shared.stats.octets_moved += rest.len() as u64;
        conn.input.len = held + rest.len();
    }
}

/// Completes the FPDU that the connection holds a part of from the start of `rest`, as far as that goes.
fn finish_held(conn: &mut Conn, shared: &mut Shared, rest: &mut &[u8]) {
    while conn.input.len > 0 {
        use_input(conn, shared);
        let held = conn.input.len;
        let missing = conn.needed().saturating_sub(held).min(rest.len());
        if held == 0 || missing == 0 {
            return;
        }
        let (more, behind) = rest.split_at(missing);
        let room =
            conn.input.octets.get_mut(held..held + missing).expect("the buffer holds the longest FPDU");
        // RFC 5044 §5.1, §A.4 [5044-29]
        room.copy_from_slice(more);
        shared.stats.octets_moved += missing as u64;
        conn.input.len += missing;
        *rest = behind;
    }
}

/// Uses all whole FPDUs at the start of `octets`. Returns how many octets are used up.
fn place_all(conn: &mut Conn, shared: &mut Shared, octets: &[u8]) -> usize {
    let mut used = 0;
    while conn.is_established()
        && let Some(link) = &mut conn.link
    {
        let rest = octets.get(used..).unwrap_or_default();
        // RFC 5044 §4.4, §7.1.1, §6 [5044-21] [5044-31]
        match fpdu::parse::<Crc>(rest, link.crc) {
            Ok(fpdu::Parsed::NeedMore(_)) => return used,
            Ok(fpdu::Parsed::Fpdu { ulpdu, consumed }) => {
                // RFC 5044 §3, §4.3 [5044-6]
                let ulpdu = rest.get(ulpdu).unwrap_or_default();
                // RFC 5041 §7.1 [5041-38]
                if shared.receives.room() == 0 && link.landing.is_none() && is_send(ulpdu) {
                    conn.is_stalled = true;
                    conn.deadline = None; // its first message is there: that it waits is our doing
                    shared.stats.stalled += 1;
                    return used;
                }
                // RFC 5041 §3 [5041-7]
                used += consumed;
                shared.stats.fpdus_in += 1;
                handle_ulpdu(conn, shared, ulpdu);
            }
            Err(cause) => {
                shared.stats.crc_errors += u64::from(cause == Terminate::MPA_CRC);
                let violation = link.stream.refuse_fpdu(cause);
                close::violate(conn, shared, violation);
            }
        }
    }
    octets.len() // a connection that ends has no use for the rest
}

/// Whether a segment needs a receive.
fn is_send(ulpdu: &[u8]) -> bool {
    // RFC 5040 §5.4 [5040-40]
    matches!(Header::parse(ulpdu), Ok((Header::Untagged(header), _)) if header.queue == ddp::QUEUE_SEND)
}

fn handle_ulpdu(conn: &mut Conn, shared: &mut Shared, ulpdu: &[u8]) {
    let Some(link) = &mut conn.link else { return };
    let inbound = match link.stream.handle_ulpdu(ulpdu) {
        Ok(inbound) => inbound,
        Err(violation) => return close::violate(conn, shared, violation),
    };
    if let Inbound::Terminated(message) = &inbound {
        return close::terminated(conn, shared, message);
    }
    if !matches!(conn.state, State::Established) {
        if matches!(conn.state, State::AwaitFpdu) {
            // RFC 6581 §9.2 [6581-18]
            shared.emit(Event::Established { qp: conn.qp });
        }
        conn.state = State::Established;
        conn.deadline = None;
    }
    let placed = match &inbound {
        Inbound::Send(segment) => place_send(conn, shared, segment),
        // RFC 5040 §5.1 [5040-19]
        Inbound::Write(segment) => place_write(conn, shared, segment),
        Inbound::ReadResponse(segment) => {
            place_answer(conn, shared, segment);
            Ok(())
        }
        // RFC 5040 §5.2.1 [5040-24]
        Inbound::ReadRequest => {
            conn.wants_flush = true;
            Ok(())
        }
        Inbound::Ready | Inbound::Dropped | Inbound::Terminated(_) => Ok(()),
    };
    if let Err(violation) = placed {
        close::violate(conn, shared, violation);
    }
}

impl Conn {
    /// Octets that the FPDU at the start of the input has at least; as many as there are when the input is empty.
    fn needed(&self) -> usize {
        let crc = self.link.as_ref().is_some_and(|link| link.crc);
        match fpdu::parse::<Crc>(self.input.content(), crc) {
            Ok(fpdu::Parsed::NeedMore(octets)) if self.input.len > 0 => octets,
            _ => self.input.len,
        }
    }
}

fn place_write(conn: &mut Conn, shared: &mut Shared, segment: &WriteSegment<'_>) -> Result<(), Violation> {
    let Some(link) = &mut conn.link else { return Ok(()) };
    link.is_amid_tagged = !segment.last;
    // RFC 5041 §5.2 [5041-27]
    if segment.payload.is_empty() {
        return Ok(()); // its STag must not be checked (RFC 5041 §5.2)
    }
    let key = RemoteKey(segment.stag);
    match shared.windows.target(conn.qp.scope(), key, segment.to, segment.payload.len()) {
        Ok(target) => {
            // RFC 5041 §5.2 [5041-24]
            target.copy_from_slice(segment.payload);
            shared.stats.octets_placed += segment.payload.len() as u64;
            Ok(())
        }
        // RFC 5041 §7.1 [5041-46]
        Err(refusal) => Err(link.stream.refuse_write(segment, tx::fault(refusal))),
    }
}

fn place_send(conn: &mut Conn, shared: &mut Shared, segment: &SendSegment<'_>) -> Result<(), Violation> {
    let Some(link) = &mut conn.link else { return Ok(()) };
    // RFC 5040 §5.3 [5040-35]
    let mut landing = match link.landing.take().or_else(|| shared.receives.land()) {
        Some(landing) => landing,
        None => return Err(link.stream.refuse_send(segment, SendFault::NoBuffer)),
    };
    // RFC 5041 §7.1 [5041-40]
    if !landing.append(segment.payload, shared.receives.receive_len()) {
        link.landing = Some(landing);
        return Err(link.stream.refuse_send(segment, SendFault::TooLong));
    }
    shared.stats.octets_placed += segment.payload.len() as u64;
    // RFC 5041 §4.1, §5.4 [5041-10]
    if !segment.last {
        link.landing = Some(landing);
        return Ok(());
    }
    let invalidated = match segment.invalidate.map(|key| invalidate(link, conn.qp.scope(), shared, key)) {
        None => None,
        Some(Ok(fenced)) => Some(fenced),
        Some(Err(fault)) => {
            link.landing = Some(landing);
            // RFC 5040 §5.3 [5040-39]
            return Err(link.stream.refuse_send(segment, fault));
        }
    };
    // RFC 5040 §5.3, §5.5 [5040-36]
    match shared.receives.landed(conn.qp, landing, invalidated) {
        Some(event) => shared.emit(event),
        None => shared.stats.parked += 1,
    }
    Ok(())
}

/// The peer invalidates the window `key`, before its message can be seen (RFC 5040 §5.1).
fn invalidate(
    link: &Link,
    scope: stag_pools::Scope,
    shared: &mut Shared,
    key: u32,
) -> Result<Fenced, SendFault> {
    let key = RemoteKey(key);
    if link.transmit.carries(key) {
        // The peer invalidates what it is reading itself, before the answer can be there.
        return Err(SendFault::CannotInvalidate);
    }
    if link.queue.is_invalidating(key) {
        return Err(SendFault::InvalidateUnknown); // for the peer it has gone already
    }
    // RFC 5040 §5.3 [5040-39]
    shared.windows.invalidate(scope, key).map_err(|refusal| match refusal {
        // RFC 5040 §5.3, §7.2 [5040-38]
        Refusal::OtherScope => SendFault::CannotInvalidate,
        // RFC 5040 §7.2 [5040-58]
        _ => SendFault::InvalidateUnknown,
    })
}

fn place_answer(conn: &mut Conn, shared: &mut Shared, segment: &ReadResponseSegment<'_>) {
    let Some(link) = &mut conn.link else { return };
    link.is_amid_tagged = !segment.last;
    if segment.last {
        conn.wants_flush |= link.queue.next().is_some(); // a Read may wait for this place in the ORD
    }
    if segment.token == RTR_TOKEN {
        return;
    }
    let Some(Op::Read(read)) = link.queue.op_mut(segment.token) else {
        unreachable!("a Read stays until it is answered")
    };
    let end = read.fill_at + segment.payload.len();
    let target =
        read.sink.get_mut(read.fill_at..end).expect("the stream checks answers against what was asked");
    // RFC 5041 §5.2 [5041-24]
    target.copy_from_slice(segment.payload);
    shared.stats.octets_placed += segment.payload.len() as u64;
    read.fill_at = end;
    if !segment.last {
        return;
    }
    read.unanswered -= 1;
    // RFC 5040 §5.5 [5040-47]
    if read.unanswered == 0 {
        // RFC 5040 §5.2.2 [5040-32]
        link.queue.complete(segment.token, Status::Success, None);
        tx::report(link, conn.qp, shared);
    }
}
