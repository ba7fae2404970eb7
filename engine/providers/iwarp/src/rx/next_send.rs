//! Fast path of the most frequent message: a plain Send in one FPDU, next in its queue, with a
//! posted receive. All words of its header are known before it arrives.

use crate::{
    conn::{IwarpConn, IwarpShared, IwarpState},
    crc::Crc,
    stats::IwarpStats,
};
use stag_pools::copy_octets;
use stag_protocol::iwarp::{
    ddp,
    fpdu::{self, Crc32c},
};
use stag_verbs::Event;

/// Octets of the length field and an untagged header.
const HEAD: usize = fpdu::LENGTH_LEN + ddp::UNTAGGED_LEN;

/// The next Send, complete. Its CRC is not verified yet.
pub(crate) struct NextSend<'a> {
    /// Its octets up to the CRC field.
    covered: &'a [u8],
    payload: &'a [u8],
    /// The CRC field, if CRCs are used.
    sum: Option<u32>,
    /// Octets of its FPDU.
    pub(crate) consumed: usize,
}

impl NextSend<'_> {
    /// Octets of the message.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.payload.len()
    }

    /// Copies the message to `room`, which has its length. Returns false if its CRC is wrong: then
    /// the content of `room` must not be used.
    #[inline(always)]
    #[must_use]
    pub(crate) fn copy_to(&self, room: &mut [u8]) -> bool {
        if self.payload.len() >= fpdu::TOGETHER {
            return self.copy_long_to(room);
        }
        if self.sum.is_some_and(|sum| Crc::of(self.covered) != sum) {
            return false;
        }
        room.copy_from_slice(self.payload);
        true
    }

    #[inline(never)]
    fn copy_long_to(&self, room: &mut [u8]) -> bool {
        let Some(sum) = self.sum else {
            copy_octets(self.payload, room);
            return true;
        };
        let (head, body) = self.covered.split_at(HEAD);
        let (_, pad) = body.split_at(self.payload.len());
        Crc::copied(head, self.payload, room, pad) == sum
    }
}

/// Finds the FPDU at the start of `octets` if it has the header of the next Send and fits a
/// receive. `None` for every other FPDU; those are checked field by field, as is one with a wrong
/// CRC.
#[inline]
pub(crate) fn next_send<'a>(
    conn: &IwarpConn,
    receive_len: usize,
    octets: &'a [u8],
) -> Option<NextSend<'a>> {
    let (length, rest) = octets.split_first_chunk()?;
    let length = u16::from_be_bytes(*length);
    let header = rest.first_chunk()?;
    let link = conn.link.as_deref()?;
    let is_plain = matches!(conn.state, IwarpState::Established) && link.landing.is_none();
    if !is_plain || !link.stream.is_next_send(header) {
        return None;
    }
    let consumed = fpdu::fpdu_len(length);
    let (covered, sum) = octets.get(..consumed)?.split_last_chunk()?;
    let payload = rest.get(ddp::UNTAGGED_LEN..usize::from(length))?;
    // RFC 5041 §7.1 [5041-40]: an untagged segment ends inside its buffer
    if payload.len() > receive_len {
        return None;
    }
    let sum = link.crc.then_some(u32::from_le_bytes(*sum));
    Some(NextSend { covered, payload, sum, consumed })
}

/// Places the FPDU at the start of `octets` if it is the next Send, and returns its length. `None`,
/// with nothing changed, for every other FPDU.
#[inline]
pub(super) fn place(
    conn: &mut IwarpConn,
    shared: &mut IwarpShared,
    octets: &[u8],
) -> Option<usize> {
    let send = next_send(conn, shared.receives.receive_len(), octets)?;
    // RFC 5040 §5.3 [5040-35]: every Send, also an empty one, takes one receive
    let mut buf = shared.receives.take_ready()?;
    let room = buf.spare_mut().get_mut(..send.len());
    // RFC 5044 §4.4, §7.1.1, §6 [5044-31]: a ULPDU is delivered only after its CRC is verified
    if !send.copy_to(room.expect("every receive is as long as the longest message")) {
        shared.receives.add(buf).expect("the receive had its place before");
        return None;
    }
    buf.extend(send.len());
    conn.took_next_send(&mut shared.stats, send.len());
    shared.emit(Event::Received { qp: conn.qp, buf, invalidated: None });
    Some(send.consumed)
}

impl IwarpConn {
    /// Counts the next Send, of `len` octets, after it was placed.
    #[inline]
    pub(crate) fn took_next_send(&mut self, stats: &mut IwarpStats, len: usize) {
        if let Some(link) = &mut self.link {
            link.stream.handle_next_send();
        }
        stats.fpdus_in += 1;
        stats.octets_placed += len as u64;
    }
}
