//! Version 2 of RPC-over-RDMA: the header as bytes (draft 000 §4.2), in two dialects that nothing
//! on the wire distinguishes.
//!
//! Header, procedures, options and error codes are those of draft 000
//! (draft-cel-nfsv4-rpcrdma-version-two-00). [`Directed`] has the chunk lists of draft 001 §4.1
//! (draft-cel-nfsv4-reminv-design-00), [`Undirected`] those of draft 000. `docs/version-2.md` says
//! why.

use super::{ChunkLists, Header, wire};
use crate::xdr::NoRoom;

pub use super::wire::{
    Dialect, ERROR_LEN_MAX, FIXED_LEN, Malformed, OPTION_AT, emit_error, header_len,
};

/// The version number.
pub const VERSION: u32 = 2;

/// Chunk lists as draft 001 §4.1 has them: call or reply, the key to invalidate, then the three
/// lists.
#[derive(Clone, Copy, Debug)]
pub enum Directed {}

impl Dialect for Directed {
    const VERSION: u32 = VERSION;
    const INTENT: bool = true;
}

/// Chunk lists as draft 000 §4.2 has them: the three lists.
#[derive(Clone, Copy, Debug)]
pub enum Undirected {}

impl Dialect for Undirected {
    const VERSION: u32 = VERSION;
    const INTENT: bool = false;
}

/// Parses the header at the front of `message`: its meaning and its length in octets; the payload
/// begins there.
///
/// `lists` is overwritten: with the message's chunks, or with none when it carries none or has no
/// meaning; its intent is set as soon as it could be read. The content of an RDMA_OPTIONAL begins
/// at [`OPTION_AT`].
pub fn parse<D: Dialect>(
    message: &[u8],
    lists: &mut ChunkLists,
) -> Result<(Header, usize), Malformed> {
    const { assert!(D::VERSION == VERSION) };
    wire::parse::<D>(message, lists)
}

/// Writes the header at the front of `out` and returns its length; an RDMA_ERROR ignores `lists`.
/// [`option::emit`](super::option::emit) writes options.
pub fn emit<D: Dialect>(
    header: &Header,
    lists: &ChunkLists,
    out: &mut [u8],
) -> Result<usize, NoRoom> {
    const { assert!(D::VERSION == VERSION) };
    wire::emit::<D>(header, lists, out)
}
