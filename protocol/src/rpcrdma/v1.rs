//! Version 1 of RPC-over-RDMA: the header as bytes (RFC 8166 §4.1.2).

use super::{ChunkLists, Header, wire};
use crate::xdr::NoRoom;

pub use super::wire::{
    ERROR_LEN_MAX, FIXED_LEN, HEADER_LEN_MIN, Malformed, emit_error, header_len,
};

/// The version number.
// RFC 8166 §4.2.2 [8166-32]: the version word of version 1 is one
pub const VERSION: u32 = 1;

/// The layout of RFC 8166.
#[derive(Clone, Copy, Debug)]
pub enum Rfc8166 {}

impl wire::Dialect for Rfc8166 {
    const VERSION: u32 = VERSION;
    const INTENT: bool = false;
}

/// Parses the header at the front of `message`: its meaning and its length in octets; the payload
/// of RDMA_MSG begins there.
///
/// `lists` is overwritten: with the message's chunks, or with none when it carries none or has no
/// meaning.
pub fn parse(message: &[u8], lists: &mut ChunkLists) -> Result<(Header, usize), Malformed> {
    wire::parse::<Rfc8166>(message, lists)
}

/// Writes the header at the front of `out` and returns its length; an RDMA_ERROR ignores `lists`.
pub fn emit(header: &Header, lists: &ChunkLists, out: &mut [u8]) -> Result<usize, NoRoom> {
    wire::emit::<Rfc8166>(header, lists, out)
}
