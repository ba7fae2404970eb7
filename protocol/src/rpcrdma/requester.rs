//! Checks of a reply against its call's offer (RFC 8166 §3.4.6, §4.3).
//!
//! A requester discards a reply that breaks a rule (§4.5): it uses nothing of the reply, and the
//! call fails later.

use super::chunk::{WRITES_MAX, WriteChunk};
use super::{Body, ChunkLists, Header, PeerFault, Segment, Xid, incoming};

/// Location of the RPC reply message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyPayload {
    /// After the header: this many octets.
    Inline(usize),
    /// In the Reply chunk: this many octets from its front, in segment order.
    ReplyChunk(u64),
}

/// Shape of a valid reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyShape {
    /// Location of the RPC reply message, without the octets that went into Write chunks.
    pub payload: ReplyPayload,
    written: [u64; WRITES_MAX],
    write_chunks: usize,
}

impl ReplyShape {
    /// Octets written into each Write chunk of the call, in order; zero for an unused one (RFC 8166
    /// §4.3.2.2).
    pub fn written(&self) -> &[u64] {
        self.written.get(..self.write_chunks).unwrap_or_default()
    }
}

/// Checks the header of a reply, with the lists it `returned` and the `inline_len` octets after it,
/// against the lists that the call `offered`.
pub fn check_reply(
    offered: &ChunkLists,
    header: &Header,
    returned: &ChunkLists,
    inline_len: usize,
) -> Result<ReplyShape, PeerFault> {
    if let (Some(room), Some(written), Body::Msg, 1..) =
        (offered.only_write(), returned.only_write(), header.body, inline_len)
    {
        // Most replies to calls with chunks.
        let written = check_segment(room, written)?.into();
        let payload = ReplyPayload::Inline(inline_len);
        return Ok(ReplyShape {
            payload,
            written: [written, 0, 0, 0, 0, 0, 0, 0],
            write_chunks: 1,
        });
    }
    check_any(offered, header, returned, inline_len)
}

/// Checks any reply.
fn check_any(
    offered: &ChunkLists,
    header: &Header,
    returned: &ChunkLists,
    inline_len: usize,
) -> Result<ReplyShape, PeerFault> {
    if returned.reads().next().is_some() {
        return Err(PeerFault::ReadListInReply);
    }
    let write_chunks = offered.writes().count();
    // A responder without results for them may omit the whole list.
    // draft 004 §3.8.1 [exp-47]: a chunk without a result may come back or be left out
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
        // draft 004 §3.5.1 [exp-14]: a reply in an RDMA_MSG uses no Reply chunk
        (Body::Msg, 1.., _) => return Err(PeerFault::ReplyChunkUsed),
        (Body::NoMsg, len @ 1.., 0) => ReplyPayload::ReplyChunk(len),
        (Body::NoMsg, _, 1..) => return Err(PeerFault::PayloadTwice),
        (Body::Msg | Body::NoMsg, 0, _) | (Body::Error(_) | Body::Optional { .. }, ..) => {
            return Err(PeerFault::NoPayload);
        }
    };
    Ok(ReplyShape { payload, written, write_chunks })
}

/// Checks that the Reply chunk holds the reply to the call `xid` (RFC 8166 §4.2.1).
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

/// Octets that the responder reports as written: the same segments, filled from the front without a
/// gap; or no segments at all, because it has no result for them.
fn check_chunk(offered: WriteChunk<'_>, returned: WriteChunk<'_>) -> Result<u64, PeerFault> {
    if returned.segments.is_empty() {
        return Ok(0);
    }
    if offered.segments.len() != returned.segments.len() {
        return Err(PeerFault::SegmentCount);
    }
    let mut full = true;
    for (offered, returned) in offered.segments.iter().zip(returned.segments) {
        let length = check_segment(*offered, *returned)?;
        if length > 0 && !full {
            return Err(PeerFault::SegmentGap);
        }
        full &= length == offered.length;
    }
    Ok(returned.total())
}

/// Octets that the responder reports as written into one segment.
const fn check_segment(offered: Segment, returned: Segment) -> Result<u32, PeerFault> {
    if offered.handle != returned.handle || offered.offset != returned.offset {
        return Err(PeerFault::SegmentMoved);
    }
    if returned.length > offered.length {
        return Err(PeerFault::SegmentGrew);
    }
    Ok(returned.length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpcrdma::Credits;
    use fastrand::Rng;

    /// Lists of at most three segments, each from few values.
    fn lists(random: &mut Rng) -> ChunkLists {
        let mut lists = ChunkLists::new();
        let mut segment = || Segment {
            handle: random.u32(1..3),
            length: random.u32(..3) * 8,
            offset: random.u64(..2) << 40,
        };
        let segments = [segment(), segment()];
        match random.u32(..12) {
            0 => lists.begin_reply(),
            1 => lists.push_read(Default::default(), segments[0]).expect("there is room"),
            2 => {}
            _ => lists.set_only_write(segments[0]),
        }
        if random.u32(..8) == 0 {
            lists.begin_write().expect("there is room");
            lists.push_write(segments[1]).expect("there is room");
        }
        lists
    }

    #[test]
    fn a_reply_to_a_call_with_one_chunk_is_judged_as_any_other() {
        let mut random = Rng::with_seed(8);
        let (mut good, mut bad) = (0, 0);
        for _ in 0..100_000 {
            let (offered, returned) = (lists(&mut random), lists(&mut random));
            let body = if random.u32(..8) == 0 { Body::NoMsg } else { Body::Msg };
            let header = Header { xid: Xid(1), credits: Credits(1), body };
            let inline = random.usize(..3);
            let shape = check_reply(&offered, &header, &returned, inline);
            assert_eq!(shape, check_any(&offered, &header, &returned, inline));
            let is_plain = offered.only_write().is_some() && returned.only_write().is_some();
            *if shape.is_ok() { &mut good } else { &mut bad } += usize::from(is_plain);
        }
        assert!(good > 1_000 && bad > 1_000, "{good} and {bad} replies return one chunk");
    }
}
