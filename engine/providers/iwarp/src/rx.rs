//! Receiving: octets become FPDUs, which are checked (length, CRC, DDP, RDMAP, window) and only
//! then placed. The payload of long tagged FPDUs is placed as it arrives, and counts once the CRC
//! was verified ([`tagged`]).
//!
//! Reads are large and go to a buffer that all connections share; the rest of an incomplete FPDU
//! stays with its connection. A read never brings more Sends than there are receives and parking
//! places, unless all of its octets fit in the connection's own buffer, where messages can wait.

mod next_send;
mod place;
mod tagged;
mod whole_write;

pub(crate) use next_send::next_send;

use crate::{
    arrival::HEAD,
    close, cm,
    conn::{IwarpConn, IwarpLink, IwarpShared, IwarpState, SEND_FPDU_MIN, STAGING},
    crc::Crc,
    sock::{self, Ready, SocketResult},
};
use place::{answered, place_answer, place_send, place_write};
use stag_protocol::iwarp::{
    ddp::{self, Header},
    fpdu,
    rdmap::Terminate,
    stream::Inbound,
};
use stag_verbs::{Cause, Event, FabricFault};
use std::ops::Range;

/// Octets that a read brings past what is awaited: the header of the next FPDU, and all of a
/// short one. 64 KiB do not fit one FPDU: what is left of them is a short one, and often the next
/// message comes after it. If the next FPDU lands, up to 2 KiB of its payload are copied.
const AHEAD: usize = 2 << 10;
/// FPDUs that land before other connections have their turn.
const LANDINGS: usize = STAGING / fpdu::FPDU_MAX + 1;
/// Reads after a reset, each of at least one octet: far more than are needed for octets that the
/// peer sent before.
const DRAIN_READS: usize = 64;

/// Handles a socket that may have octets for us, or has ended.
pub(crate) fn readable(conn: &mut IwarpConn, shared: &mut IwarpShared, ready: Ready) {
    if conn.is_stalled {
        // It is not watched for octets, so both directions ended or it broke.
        debug_assert!(ready.intersects(Ready::HUP | Ready::ERR), "{ready:?}");
        return close::end_now(conn, shared, Cause::Fabric(FabricFault::Lost));
    }
    let fetched = fetch(conn, shared);
    use_fetched(conn, shared, fetched);
}

/// Reads the input, to the place where [`use_fetched`] expects it.
#[inline]
pub(crate) fn fetch(conn: &mut IwarpConn, shared: &mut IwarpShared) -> SocketResult {
    if conn.is_between_fpdus() { fetch_between(conn, shared) } else { fetch_rest(conn, shared) }
}

/// Reads the input of a connection that is between two FPDUs to the shared buffer.
#[inline(always)]
pub(crate) fn fetch_between(conn: &IwarpConn, shared: &mut IwarpShared) -> SocketResult {
    let limit = large(shared);
    let IwarpShared { staging, stats, .. } = shared;
    let (room, _) = staging.split_at_mut(limit); // which is no more than the shared buffer
    sock::receive(&conn.socket, room, stats)
}

/// Octets of a large read.
#[inline]
fn large(shared: &IwarpShared) -> usize {
    if shared.has_few_receives {
        return fpdu::FPDU_MAX;
    }
    let sends = shared.receives.room().saturating_mul(SEND_FPDU_MIN);
    sends.clamp(fpdu::FPDU_MAX, STAGING)
}

/// Reads the rest of an incomplete frame or FPDU, and the octets after it.
#[inline(never)]
fn fetch_rest(conn: &mut IwarpConn, shared: &mut IwarpShared) -> SocketResult {
    if !conn.is_established() {
        return receive_own(conn, shared);
    }
    match &conn.link {
        Some(link) if link.arrival.is_some() => tagged::fetch(conn, shared),
        Some(link) if link.headers_first > 0 => {
            // At most as much as the connection can keep itself, in case it has to wait.
            let end = conn.own_end();
            // Of an FPDU that may land, no more than the header.
            let ahead = if end == HEAD { HEAD } else { AHEAD };
            let limit = (end + ahead).min(fpdu::FPDU_MAX);
            receive_staged(conn, shared, limit)
        }
        _ => {
            let limit = large(shared);
            receive_staged(conn, shared, limit)
        }
    }
}

/// Uses the octets that [`fetch`] has read, and reads on while one FPDU after the other lands.
/// Everything that is read is used.
pub(crate) fn use_fetched(
    conn: &mut IwarpConn,
    shared: &mut IwarpShared,
    mut fetched: SocketResult,
) {
    for left in (0..LANDINGS).rev() {
        let lands_on = match fetched {
            SocketResult::Octets(octets) => use_octets(conn, shared, octets),
            SocketResult::WouldBlock => false,
            SocketResult::End => return close::finished(conn, shared),
            SocketResult::Broken(error) => {
                return broken(conn, shared, FabricFault::from(&error.into()));
            }
        };
        if !lands_on || left == 0 {
            return;
        }
        fetched = fetch(conn, shared);
    }
}

/// Handles a broken connection. Octets that the peer sent before may still be in the socket. A
/// Terminate among them is the better cause.
// RFC 5041 §3 [5041-2]: an accepted segment is transferred, or an error reported
// RFC 5044 §8 [5044-55]: the end or loss of the TCP connection is reported
pub(crate) fn broken(conn: &mut IwarpConn, shared: &mut IwarpShared, fault: FabricFault) {
    for _ in 0..DRAIN_READS {
        if !conn.is_established() || conn.is_stalled {
            break;
        }
        match fetch(conn, shared) {
            fetched @ SocketResult::Octets(_) => use_fetched(conn, shared, fetched),
            _ => break,
        }
    }
    if !conn.is_established() && conn.is_live() && !conn.is_terminating() {
        shared.stats.handshakes.lost += 1;
    }
    let cause = match &conn.state {
        IwarpState::AwaitTerminateSent { cause } => *cause,
        _ => Cause::Fabric(fault),
    };
    close::end(conn, shared, cause);
    conn.state = IwarpState::Dead;
}

/// Returns true if one FPDU has landed and the next one lands, of which more has probably arrived.
fn use_octets(conn: &mut IwarpConn, shared: &mut IwarpShared, octets: usize) -> bool {
    if !conn.is_established() {
        conn.input.len += octets;
        use_input(conn, shared);
        return false;
    }
    if !conn.is_landing() {
        let own = conn.own_end().saturating_sub(conn.input.len).min(octets);
        conn.input.len += own;
        use_staged(conn, shared, 0..octets - own);
        return false;
    }
    let behind = tagged::landed(conn, shared, octets);
    if behind > 0 {
        use_staged(conn, shared, 0..behind);
    }
    // A connection that ended is not read any more: its Terminate goes first.
    behind == AHEAD && conn.is_established() && conn.is_landing()
}

/// Reads after the connection's present input, without counting the new octets yet.
pub(crate) fn receive_own(conn: &mut IwarpConn, shared: &mut IwarpShared) -> SocketResult {
    shared.spares.lend(&mut conn.input);
    let room = conn.input.octets.get_mut(conn.input.len..).unwrap_or_default();
    if room.is_empty() {
        return SocketResult::WouldBlock; // only a peer that talks into our set-up answer gets here
    }
    sock::receive(&conn.socket, room, &mut shared.stats)
}

/// Uses the octets in the connection's own buffer.
pub(crate) fn use_input(conn: &mut IwarpConn, shared: &mut IwarpShared) {
    match conn.state {
        IwarpState::AwaitReply { .. }
        | IwarpState::AwaitRequest
        | IwarpState::AwaitAnswer { .. } => {
            if cm::frame(conn, shared) {
                use_input(conn, shared);
            }
        }
        IwarpState::AwaitFpdu | IwarpState::AwaitSign { .. } | IwarpState::Established => {
            let octets = std::mem::take(&mut conn.input.octets);
            let used = place_all(conn, shared, octets.get(..conn.input.len).unwrap_or_default());
            conn.input.octets = octets;
            conn.input.consume(used);
        }
        IwarpState::AwaitTcp { .. }
        | IwarpState::AwaitTerminateSent { .. }
        | IwarpState::AwaitEnd
        | IwarpState::Dead => {
            conn.input.len = 0;
        }
    }
}

/// Reads up to `limit` octets: first the rest of the incomplete FPDU, into the connection's buffer,
/// then the following octets into the shared buffer. So only the parts of one FPDU are ever moved.
fn receive_staged(conn: &mut IwarpConn, shared: &mut IwarpShared, limit: usize) -> SocketResult {
    let IwarpShared { staging, stats, .. } = shared;
    let end = conn.own_end();
    let own = conn.input.octets.get_mut(conn.input.len..end).unwrap_or_default();
    let room = staging.get_mut(..limit - end).expect("an FPDU is no longer than the limit");
    sock::receive_two(&conn.socket, own, room, stats)
}

/// Uses these octets of the shared buffer, which follow the connection's own ones.
pub(crate) fn use_staged(conn: &mut IwarpConn, shared: &mut IwarpShared, octets: Range<usize>) {
    let staging = std::mem::take(&mut shared.staging);
    let mut rest = staging.get(octets).expect("the kernel fills no more than the room");
    if let Some(link) = &mut conn.link {
        link.headers_first = link.headers_first.saturating_sub(1);
    }
    finish_held(conn, shared, &mut rest);
    let used = if conn.input.len == 0 { place_all(conn, shared, rest) } else { 0 };
    let rest = rest.get(used..).unwrap_or_default();
    if !rest.is_empty() || conn.input.len > 0 {
        keep(conn, shared, rest);
    }
    shared.staging = staging;
}

/// Keeps the start of an incomplete FPDU, and messages that wait for a receive.
fn keep(conn: &mut IwarpConn, shared: &mut IwarpShared, rest: &[u8]) {
    if !conn.is_established() || (!conn.is_stalled && begin_landing(conn, shared, rest)) {
        return;
    }
    if !rest.is_empty() {
        shared.spares.lend(&mut conn.input);
        let held = conn.input.len;
        let kept = conn.input.octets.get_mut(held..held + rest.len());
        kept.expect("what is left is less than an FPDU, or all that was read is")
            .copy_from_slice(rest);
        shared.stats.octets_moved += rest.len() as u64;
        conn.input.len = held + rest.len();
    }
}

/// Begins to land the FPDU whose start is in `rest` or in the connection's buffer. Returns false if
/// it has to be kept.
fn begin_landing(conn: &mut IwarpConn, shared: &mut IwarpShared, rest: &[u8]) -> bool {
    if conn.input.len == 0 || !rest.is_empty() {
        return conn.input.len == 0 && tagged::begin(conn, shared, rest);
    }
    let mut held = std::mem::take(&mut conn.input);
    let lands = tagged::begin(conn, shared, held.content());
    if lands {
        held.len = 0;
    }
    conn.input = held;
    lands
}

/// Completes the FPDU in the connection's buffer from the start of `rest`, as far as possible.
fn finish_held(conn: &mut IwarpConn, shared: &mut IwarpShared, rest: &mut &[u8]) {
    while conn.input.len > 0 {
        use_input(conn, shared);
        let held = conn.input.len;
        let missing = conn.needed().saturating_sub(held).min(rest.len());
        if held == 0 || missing == 0 {
            return;
        }
        let (more, behind) = rest.split_at(missing);
        let room = conn
            .input
            .octets
            .get_mut(held..held + missing)
            .expect("the buffer holds the longest FPDU");
        // RFC 5044 §5.1, §A.4 [5044-29]: an FPDU may begin anywhere in a TCP segment
        room.copy_from_slice(more);
        shared.stats.octets_moved += missing as u64;
        conn.input.len += missing;
        *rest = behind;
    }
}

/// Uses all complete FPDUs at the start of `octets`. Returns the number of octets used.
fn place_all(conn: &mut IwarpConn, shared: &mut IwarpShared, octets: &[u8]) -> usize {
    let mut used = 0;
    while conn.is_established() {
        let rest = octets.get(used..).unwrap_or_default();
        // RFC 5041 §3 [5041-7]: no segment is delivered twice
        if let Some(consumed) = place_foreseen(conn, shared, rest) {
            used += consumed;
            continue;
        }
        let Some(link) = &mut conn.link else { break };
        // RFC 5044 §4.4, §7.1.1, §6 [5044-21]: a CRC that the peer asked for is used to the end
        // RFC 5044 §4.4, §7.1.1, §6 [5044-31]: a ULPDU is delivered only after its CRC is verified
        match fpdu::parse::<Crc>(rest, link.crc) {
            Ok(fpdu::Parsed::NeedMore(_)) => return used,
            Ok(fpdu::Parsed::Fpdu { ulpdu, consumed }) => {
                // RFC 5044 §3, §4.3 [5044-6]: a validated ULPDU is delivered whole, without framing
                let ulpdu = rest.get(ulpdu).unwrap_or_default();
                // RFC 5041 §7.1 [5041-38]: a segment without a receive stays unread in TCP
                if shared.receives.room() == 0 && link.landing.is_none() && is_send(ulpdu) {
                    conn.is_stalled = true;
                    conn.deadline = None; // its first message is there: that it waits is our doing
                    shared.stats.stalled += 1;
                    return used;
                }
                // RFC 5041 §3 [5041-7]: no segment is delivered twice
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

/// Places the FPDU at the start of `octets` if it is of one of the most frequent kinds.
#[inline]
fn place_foreseen(conn: &mut IwarpConn, shared: &mut IwarpShared, octets: &[u8]) -> Option<usize> {
    match octets.get(fpdu::LENGTH_LEN) {
        Some(control) if ddp::header_len(*control) == ddp::TAGGED_LEN => {
            whole_write::place(conn, shared, octets)
        }
        _ => next_send::place(conn, shared, octets),
    }
}

/// Returns true if a segment needs a receive.
fn is_send(ulpdu: &[u8]) -> bool {
    // RFC 5040 §5.4 [5040-40]: a Terminate has its place, whatever else is short
    matches!(
        Header::parse(ulpdu),
        Ok((Header::Untagged(header), _)) if header.queue == ddp::QUEUE_SEND
    )
}

fn handle_ulpdu(conn: &mut IwarpConn, shared: &mut IwarpShared, ulpdu: &[u8]) {
    let Some(link) = &mut conn.link else { return };
    let inbound = match link.stream.handle_ulpdu(ulpdu) {
        Ok(inbound) => inbound,
        Err(violation) => return close::violate(conn, shared, violation),
    };
    if let Inbound::Terminated(message) = &inbound {
        return close::terminated(conn, shared, message);
    }
    if !matches!(conn.state, IwarpState::Established) {
        if matches!(conn.state, IwarpState::AwaitFpdu) {
            // RFC 6581 §9.2 [6581-18]: at least one indication is supported
            shared.emit(Event::Established { qp: conn.qp });
        }
        conn.state = IwarpState::Established;
        conn.deadline = None;
    }
    let placed = match &inbound {
        Inbound::Send(segment) => place_send(conn, shared, segment),
        // RFC 5040 §5.1 [5040-19]: a Write is placed and not delivered
        Inbound::Write(segment) => place_write(conn, shared, segment),
        Inbound::ReadResponse(segment) => {
            place_answer(conn, shared, segment);
            Ok(())
        }
        // RFC 5040 §5.2.1 [5040-24]: a Read Request is answered here and not delivered
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

impl IwarpConn {
    /// Minimum length of the FPDU at the start of the input; 0 if the input is empty.
    fn needed(&self) -> usize {
        let crc = self.link.as_ref().is_some_and(|link| link.crc);
        match fpdu::parse::<Crc>(self.input.content(), crc) {
            Ok(fpdu::Parsed::NeedMore(octets)) if self.input.len > 0 => octets,
            _ => self.input.len,
        }
    }

    /// Returns true if an FPDU lands as it arrives.
    fn is_landing(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.arrival.is_some())
    }

    /// Returns true if its input can be read without being used at once.
    #[inline]
    pub(crate) fn may_bring(&self) -> bool {
        !self.is_stalled && self.is_between_fpdus()
    }

    /// Returns true if the next octet begins an FPDU, of which nothing is known.
    #[inline]
    fn is_between_fpdus(&self) -> bool {
        let is_free = |link: &IwarpLink| link.arrival.is_none() && link.headers_first == 0;
        self.input.len == 0
            && matches!(self.state, IwarpState::Established)
            && self.link.as_deref().is_some_and(is_free)
    }

    /// Length of its own buffer up to which the next read fills it.
    fn own_end(&self) -> usize {
        if self.input.len == 0 {
            return 0;
        }
        let is_head = (1..HEAD).contains(&self.input.len);
        match &self.link {
            Some(link) if link.headers_first > 0 && is_head => HEAD,
            _ => self.needed(),
        }
    }
}
