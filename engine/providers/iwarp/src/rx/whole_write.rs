//! Fast path of an RDMA Write in one segment, which changes only its window: its header is compared
//! as a whole instead of field by field.

use crate::{
    conn::{IwarpConn, IwarpShared, IwarpState},
    crc::Crc,
};
use stag_pools::{RemoteKey, copy_octets};
use stag_protocol::iwarp::{
    ddp,
    fpdu::{self, Crc32c},
};

/// Places the FPDU at the start of `octets` if it is such a Write, and returns its length. `None`,
/// with nothing changed, for every other FPDU, valid or not; those are checked field by field.
#[inline]
pub(super) fn place(
    conn: &mut IwarpConn,
    shared: &mut IwarpShared,
    octets: &[u8],
) -> Option<usize> {
    let (length, rest) = octets.split_first_chunk()?;
    let length = u16::from_be_bytes(*length);
    let link = conn.link.as_deref()?;
    let header = link.stream.whole_write(rest.first_chunk()?)?;
    if !matches!(conn.state, IwarpState::Established) {
        return None;
    }
    let consumed = fpdu::fpdu_len(length);
    let (covered, sum) = octets.get(..consumed)?.split_last_chunk()?;
    let payload = rest.get(ddp::TAGGED_LEN..usize::from(length))?;
    if payload.is_empty() {
        return None; // its STag is not to be checked
    }
    // RFC 5044 §4.4, §7.1.1, §6 [5044-31]: a ULPDU is delivered only after its CRC is verified
    if link.crc && Crc::of(covered) != u32::from_le_bytes(*sum) {
        return None;
    }
    let (scope, key) = (conn.qp.scope(), RemoteKey(header.stag));
    let target = shared.windows.target(scope, key, header.to, payload.len()).ok()?;
    // RFC 5041 §5.2 [5041-24]: the payload of every valid segment is placed
    copy_octets(payload, target);
    shared.stats.fpdus_in += 1;
    shared.stats.octets_placed += payload.len() as u64;
    Some(consumed)
}
