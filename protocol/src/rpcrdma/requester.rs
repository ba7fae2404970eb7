//! Judging a reply by what its call offered (RFC 8166 §3.4.6, §4.3).
//!
//! A requester discards a reply that breaks a rule (§4.5): nothing in it is believed, and its call fails later.

use super::chunk::{WRITES_MAX, WriteChunk};
use super::{Body, ChunkLists, Header, PeerFault, Xid, incoming};

/// Where the RPC reply message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyPayload {
    /// Behind the header: this many octets.
    Inline(usize),
    /// In the Reply chunk: this many octets from its front, in segment order.
    ReplyChunk(u64),
}

/// What a valid reply brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyShape {
    /// Where the RPC reply message is, without what went into Write chunks.
    pub payload: ReplyPayload,
    written: [u64; WRITES_MAX],
    write_chunks: usize,
}

impl ReplyShape {
    /// Octets written into each Write chunk of the call, in order; zero for an unused one (RFC 8166 §4.3.2.2).
    pub fn written(&self) -> &[u64] {
        self.written.get(..self.write_chunks).unwrap_or_default()
    }
}

/// Checks the header of a reply, with the lists it `returned` and the `inline_len` octets behind it, against the lists that
/// the call `offered`.
pub fn check_reply(
    offered: &ChunkLists,
    header: &Header,
    returned: &ChunkLists,
    inline_len: usize,
) -> Result<ReplyShape, PeerFault> {
    if returned.reads().next().is_some() {
        return Err(PeerFault::ReadListInReply);
    }
    let write_chunks = offered.writes().count();
    // A responder that has no result for them may leave the whole list out.
    // draft 004 §3.8.1 [exp-47]
    if ![0, write_chunks].contains(&returned.writes().count()) {
        return Err(PeerFault::ChunkCount);
    }
    let mut written = [0; WRITES_MAX];
    for ((offered, returned), total) in offered.writes().zip(returned.writes()).zip(&mut written) {
        *total = check_chunk(offered, returned)?;
    }
    let in_reply_chunk = match (offered.reply(), returned.reply()) {
        (_, None) => None,
        (Some(offered), Some(returned)) => Some(check_chunk(offered, returned)?),
        (None, Some(_)) => return Err(PeerFault::ChunkCount),
    };
    let payload = match (header.body, in_reply_chunk.unwrap_or(0), inline_len) {
        (Body::Msg, 0, 1..) => ReplyPayload::Inline(inline_len),
        // draft 004 §3.5.1 [exp-14]
        (Body::Msg, 1.., _) => return Err(PeerFault::ReplyChunkUsed),
        (Body::NoMsg, len @ 1.., 0) => ReplyPayload::ReplyChunk(len),
        (Body::NoMsg, _, 1..) => return Err(PeerFault::PayloadTwice),
        (Body::Msg | Body::NoMsg, 0, _) | (Body::Error(_) | Body::Optional { .. }, ..) => {
            return Err(PeerFault::NoPayload);
        }
    };
    Ok(ReplyShape { payload, written, write_chunks })
}

/// Checks that what the Reply chunk holds is the reply to the call `xid` (RFC 8166 §4.2.1).
/// [`Connection`](super::Connection) does it for inline messages.
pub fn check_message(xid: Xid, message: &[u8]) -> Result<(), PeerFault> {
    match incoming::message_type(message) {
        None => Err(PeerFault::NoPayload),
        Some((own, _)) if own != xid => Err(PeerFault::XidMismatch),
        Some((_, incoming::REPLY)) => Ok(()),
        Some((_, incoming::CALL)) => Err(PeerFault::TypeMismatch),
        Some((_, other)) => Err(PeerFault::MessageType(other)),
    }
}

/// Octets that the responder says it wrote: the same segments, filled from the front without a gap; or none of the segments,
/// because it has no result for them.
fn check_chunk(offered: WriteChunk<'_>, returned: WriteChunk<'_>) -> Result<u64, PeerFault> {
    if returned.segments.is_empty() {
        return Ok(0);
    }
    if offered.segments.len() != returned.segments.len() {
        return Err(PeerFault::SegmentCount);
    }
    let mut full = true;
    for (offered, returned) in offered.segments.iter().zip(returned.segments) {
        if (offered.handle, offered.offset) != (returned.handle, returned.offset) {
            return Err(PeerFault::SegmentMoved);
        }
        if returned.length > offered.length {
            return Err(PeerFault::SegmentGrew);
        }
        if returned.length > 0 && !full {
            return Err(PeerFault::SegmentGap);
        }
        full &= returned.length == offered.length;
    }
    Ok(returned.total())
}
