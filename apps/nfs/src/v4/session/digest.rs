//! The digest that distinguishes a retry from another request with its slot and sequence ID (RFC
//! 8881 §2.10.6.1.3.1).

use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;
use stag_protocol::xdr::pad;

use super::SequenceFacts;

/// Limit of argument octets in the digest. It covers every compound except the end of one that
/// writes much data and has its reply kept, which no client is known to send.
const COUNTED: usize = 4_096;

/// The digest of a request. Arguments are hashed in their inline form, for a retry may come in
/// other chunks (RFC 8166 §3.5).
///
/// A request whose reply is not kept is identified by its length and the number of its operations:
/// it is not answered from the slot.
pub(super) fn digest(facts: &SequenceFacts<'_>, is_kept: bool) -> u64 {
    // Data from a chunk may lack its padding.
    let len = facts.arguments.padded_remaining();
    if !is_kept {
        return (len as u64) << 32 | u64::from(facts.operations);
    }
    // No key: a client that makes two of its requests collide harms only itself.
    let mut hasher = SipHasher13::new();
    let mut room = COUNTED;
    for octets in facts.arguments.pieces().map(|piece| piece.octets()) {
        let padding = [0; 3].get(..pad(octets.len())).unwrap_or_default();
        for octets in [octets, padding] {
            let counted = octets.get(..room).unwrap_or(octets);
            hasher.write(counted);
            room -= counted.len();
        }
    }
    hasher.write_usize(len);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::super::Principal;
    use super::*;
    use stag_protocol::xdr::{Piece, Reader};

    fn of(arguments: Reader<'_>, is_kept: bool) -> u64 {
        let principal = Principal::Anyone;
        digest(&SequenceFacts { principal, request_len: 0, operations: 3, arguments }, is_kept)
    }

    #[test]
    fn every_octet_of_a_request_whose_reply_is_kept_counts_and_its_chunks_do_not() {
        let inline: Vec<u8> = (0..64_u8).map(|at| if at == 31 { 0 } else { at }).collect();
        let whole = of(Reader::new(&inline), true);
        for at in 0..inline.len() {
            let mut other = inline.clone();
            other[at] ^= 1;
            assert_ne!(of(Reader::new(&other), true), whole, "octet {at}");
        }
        assert_ne!(of(Reader::new(&inline[..60]), true), whole);
        for end in [31, 32] {
            let (front, item) = (Piece::Inline(&inline[..16]), Piece::Chunk(&inline[16..end]));
            let pieces = [front, item, Piece::Inline(&inline[32..])];
            assert_eq!(of(Reader::over(&pieces), true), whole, "a chunk up to {end}");
        }
    }

    #[test]
    fn what_is_long_counts_by_its_beginning_and_its_length() {
        let long = vec![7; 3 * COUNTED];
        let whole = of(Reader::new(&long), true);
        assert_ne!(of(Reader::new(&long[4..]), true), whole);
        let mut other = long;
        other[COUNTED - 1] = 8;
        assert_ne!(of(Reader::new(&other), true), whole);
    }

    #[test]
    fn a_request_whose_reply_is_not_kept_counts_by_its_length() {
        assert_eq!(of(Reader::new(b"some"), false), of(Reader::new(b"more"), false));
        assert_ne!(of(Reader::new(b"some"), false), of(Reader::new(b"somewhat"), false));
    }
}
