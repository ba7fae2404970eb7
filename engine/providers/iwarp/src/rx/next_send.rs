//! The message that nearly every connection receives most: a plain Send in one FPDU, the next of
//! its queue, for which a receive is posted. All words of its header are known before it arrives.

use crate::{
    conn::{IwarpConn, IwarpShared, IwarpState},
    crc::Crc,
    stats::IwarpStats,
};
use stag_protocol::iwarp::{
    ddp,
    fpdu::{self, Crc32c},
};
use stag_verbs::Event;

/// The next Send, found right as a whole.
pub(crate) struct NextSend<'a> {
    pub(crate) payload: &'a [u8],
    /// Octets of its FPDU.
    pub(crate) consumed: usize,
}

/// Finds the FPDU at the start of `octets` if it is the next Send and fits a receive. `None` for
/// every other FPDU, also for a wrong one: those are judged field by field.
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
    // RFC 5044 §5.2, §6 [5044-30]: the length field tells the end of an FPDU
    let consumed = fpdu::fpdu_len(length);
    let (covered, sum) = octets.get(..consumed)?.split_last_chunk()?;
    let payload = rest.get(ddp::UNTAGGED_LEN..usize::from(length))?;
    // RFC 5041 §7.1 [5041-40]: the end of an untagged segment lies in its buffer
    if payload.len() > receive_len {
        return None;
    }
    // RFC 5044 §4.4, §7.1.1, §6 [5044-31]: a ULPDU is delivered only after its CRC is verified
    if link.crc && Crc::of(covered) != u32::from_le_bytes(*sum) {
        return None;
    }
    Some(NextSend { payload, consumed })
}

/// Places the FPDU at the start of `octets` if it is the next Send, and returns its length. `None`,
/// with nothing changed, for every other FPDU.
#[inline]
pub(super) fn place(
    conn: &mut IwarpConn,
    shared: &mut IwarpShared,
    octets: &[u8],
) -> Option<usize> {
    let NextSend { payload, consumed } = next_send(conn, shared.receives.receive_len(), octets)?;
    // RFC 5040 §5.3 [5040-35]: every Send, also an empty one, takes one receive
    let mut buf = shared.receives.take_ready()?;
    buf.append(payload).expect("every receive is as long as the longest message");
    conn.took_next_send(&mut shared.stats, payload.len());
    shared.emit(Event::Received { qp: conn.qp, buf, invalidated: None });
    Some(consumed)
}

impl IwarpConn {
    /// The next Send, of `len` octets, is where it belongs.
    #[inline]
    pub(crate) fn took_next_send(&mut self, stats: &mut IwarpStats, len: usize) {
        if let Some(link) = &mut self.link {
            link.stream.handle_next_send();
        }
        stats.fpdus_in += 1;
        stats.octets_placed += len as u64;
    }
}
