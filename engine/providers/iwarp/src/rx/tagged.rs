//! Long tagged FPDUs, whose payload lands in its window or sink as it arrives (docs/landing.md).
//!
//! The header is read first, and checked: operation, STag, access, bounds, scope. After that one
//! read brings the rest of the payload directly to its place, the trailer, and the first octets of
//! what follows. Then the CRC of the landed octets is verified. An FPDU that proves wrong ends the
//! connection; until its CRC was verified, its window is not returned.

use super::{AHEAD, answered};
use crate::{
    arrival::{Arrival, HEAD, TRAILER_MAX},
    close,
    conn::{IwarpConn, IwarpLink, IwarpShared, IwarpState},
    sock::{self, SocketResult},
};
use stag_pools::{RemoteKey, copy_octets};
use stag_protocol::iwarp::{
    ddp::{self, Header},
    fpdu,
    rdmap::{Terminate, Violation},
    stream::{Inbound, LandingPlace},
};
use std::io::IoSliceMut;

/// Minimum of missing payload octets for landing: fewer are copied. The read before has brought up
/// to [`AHEAD`].
const LANDING_MIN: usize = (16 << 10) - AHEAD;
/// Reads after a landed FPDU that bring one FPDU and [`AHEAD`] octets each, before they become
/// large again: the following FPDUs are likely to land, too.
const HEADERS_FIRST: u8 = 4;

/// Begins to land the FPDU whose first part is in `octets`. Returns false, and does nothing, if it
/// has to be complete before it is checked.
pub(super) fn begin(conn: &mut IwarpConn, shared: &mut IwarpShared, octets: &[u8]) -> bool {
    let Some((head, part)) = octets.split_first_chunk::<HEAD>() else { return false };
    let (length, header) = head.split_at(fpdu::LENGTH_LEN);
    let ulpdu_len = length.iter().fold(0, |len, octet| len << 8 | usize::from(*octet));
    let len = ulpdu_len.saturating_sub(ddp::TAGGED_LEN);
    // The first FPDU is whole and valid before anything is done (RFC 5044 §7.1.2); no window is
    // open before that.
    if len < part.len() + LANDING_MIN || !matches!(conn.state, IwarpState::Established) {
        return false;
    }
    let (Ok((Header::Tagged(header), _)), Some(link)) = (Header::parse(header), &mut conn.link)
    else {
        return false;
    };
    let Some(place) = link.stream.foresee(&header, len) else { return false };
    let trailer = [0; TRAILER_MAX];
    let mut arrival = Arrival { head: *head, header, place, len, arrived: 0, trailer };
    // A segment with an error is refused once it is complete.
    let Ok(room) = arrival.room(&mut link.queue, &mut shared.windows, conn.qp.scope()) else {
        return false;
    };
    let (front, _) = room.split_at_mut(part.len()); // the part is shorter than the payload
    // RFC 5041 §5.2 [5041-24]: the payload of every valid segment is placed
    copy_octets(part, front);
    shared.stats.octets_placed += part.len() as u64;
    arrival.count(part.len(), &mut shared.windows, conn.qp.scope());
    link.arrival = Some(arrival);
    true
}

/// Reads the rest of the FPDU to its place, and what follows it to the shared buffer.
pub(super) fn fetch(conn: &mut IwarpConn, shared: &mut IwarpShared) -> SocketResult {
    let IwarpShared { windows, staging, stats, .. } = shared;
    let Some(IwarpLink { queue, arrival: Some(arrival), .. }) = conn.link.as_deref_mut() else {
        return SocketResult::WouldBlock;
    };
    let room = arrival.room(queue, windows, conn.qp.scope()).expect(Arrival::STAYS);
    let room = room.get_mut(arrival.arrived..).unwrap_or_default();
    let trailer = arrival.arrived.saturating_sub(arrival.len)..arrival.end() - arrival.len;
    let trailer = arrival.trailer.get_mut(trailer).unwrap_or_default();
    let (next, _) = staging.split_at_mut(AHEAD); // the shared buffer holds many FPDUs
    let pieces = &mut [IoSliceMut::new(room), IoSliceMut::new(trailer), IoSliceMut::new(next)];
    sock::receive_pieces(&conn.socket, pieces, stats)
}

/// Counts the `octets` that [`fetch`] has read. Returns the number of them that are in the shared
/// buffer, after the FPDU.
pub(super) fn landed(conn: &mut IwarpConn, shared: &mut IwarpShared, octets: usize) -> usize {
    let Some(arrival) = conn.link.as_mut().and_then(|link| link.arrival.as_mut()) else {
        return 0;
    };
    let own = octets.min(arrival.end() - arrival.arrived);
    let payload = own.min(arrival.len.saturating_sub(arrival.arrived));
    shared.stats.octets_landed += payload as u64;
    arrival.count(payload, &mut shared.windows, conn.qp.scope());
    arrival.arrived += own - payload;
    if arrival.arrived == arrival.end() {
        finish(conn, shared);
    }
    octets - own
}

/// Handles a complete FPDU: it counts if its CRC is right.
fn finish(conn: &mut IwarpConn, shared: &mut IwarpShared) {
    let Some(link) = &mut conn.link else { return };
    let Some(arrival) = &mut link.arrival else { return };
    let scope = conn.qp.scope();
    let payload = arrival.room(&mut link.queue, &mut shared.windows, scope).expect(Arrival::STAYS);
    // RFC 5044 §4.4, §6, §8 [5044-26]: a wrong CRC makes the FPDU invalid
    // RFC 5044 §4.4, §7.1.1 [5044-21]: a CRC that the peer asked for is used to the end
    if link.crc && !arrival.is_right(payload) {
        shared.stats.crc_errors += 1;
        // The arrival stays, and the window with it, until the connection is gone.
        let violation = link.stream.refuse_fpdu(Terminate::MPA_CRC);
        return close::violate(conn, shared, violation);
    }
    shared.stats.fpdus_in += 1;
    let judged = link.stream.handle_landed(&arrival.header, payload);
    let token = match judged {
        Ok(Inbound::ReadResponse(segment)) => Some(segment.token),
        Ok(_) => None,
        Err(violation) => return close::violate(conn, shared, violation),
    };
    let (len, is_last) = (arrival.len, arrival.header.last);
    link.arrival = None;
    link.is_amid_tagged = !is_last;
    link.headers_first = HEADERS_FIRST;
    if let Some(token) = token {
        // A Read may wait for this place in the ORD.
        conn.wants_flush |= is_last && link.queue.next().is_some();
        answered(conn, shared, token, len, is_last);
    }
}

impl IwarpLink {
    /// The window in which an unverified FPDU lands.
    pub(crate) fn landing_window(&self) -> Option<RemoteKey> {
        let arrival = self.arrival.as_ref()?;
        (arrival.place == LandingPlace::Window).then_some(RemoteKey(arrival.header.stag))
    }

    /// Returns true if an unverified FPDU lands in the window `key`.
    pub(crate) fn lands_in(&self, key: RemoteKey) -> bool {
        self.landing_window() == Some(key)
    }

    /// Handles the end of a window in which an unverified FPDU lands: its buffer would hold
    /// unverified octets. The Terminate is the one that the whole FPDU would get afterwards. Does
    /// nothing if the stream has ended: then all windows end with the connection.
    pub(crate) fn refuse_arrival(&mut self) -> Result<(), Violation> {
        match &self.arrival {
            Some(arrival) if !self.stream.is_ended() => {
                Err(self.stream.refuse_landing(&arrival.header, arrival.len))
            }
            _ => Ok(()),
        }
    }
}
