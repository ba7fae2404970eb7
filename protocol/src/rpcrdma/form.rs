//! Form of a call, and the memory it offers for its reply (RFC 8166 §3.5, §4.3).

use super::chunk::{CHUNK_SEGMENTS_MAX, WRITES_MAX};
use super::{InlineThreshold, Position};
use crate::xdr::{NoRoom, padded};

/// Form in which an RPC message travels (RFC 8166 §3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The whole message follows the header (§3.5.1).
    Short,
    /// A DDP-eligible item travels in a chunk, the rest follows the header (§3.5.2).
    Chunked,
    /// The whole message travels in a chunk (§3.5.3).
    Long,
}

/// The DDP-eligible item of a message: variable-length opaque data whose length word stays in the
/// payload stream (RFC 8166 §3.4.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Position of its first octet in the unreduced RPC message.
    pub position: Position,
    /// Its octets, without padding.
    pub len: u32,
}

/// Sizes of a call and its reply that a caller knows before the call goes out, in octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSizes {
    /// The whole RPC call message: the item and its padding are counted in.
    pub call: usize,
    /// The argument that may travel in a Read chunk; also `None` if the security flavour forbids
    /// reduction (RFC 8166 §8.2.2).
    pub item: Option<Item>,
    /// The longest RPC reply message without its DDP-eligible item (but with that item's length
    /// word).
    pub reply_rest_max: usize,
    /// The longest DDP-eligible items of the reply, together; zero when it has none.
    pub reply_item_max: u32,
    /// The number of those items, if there are several: each has a Write chunk of its own.
    pub reply_items: usize,
}

/// Limits on the messages of one connection, in the direction of a call:
/// [`Connection::path`](super::Connection::path).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Longest message to the responder; 1024 while the peer is unknown (RFC 8166 §3.3.3).
    pub call: InlineThreshold,
    /// Longest message from the responder.
    pub reply: InlineThreshold,
    /// Octets of a header without chunks, in the version that the connection speaks.
    pub header: usize,
    /// Segments that one chunk of ours needs at most; from 1 to [`CHUNK_SEGMENTS_MAX`].
    pub segments: usize,
}

/// Chunk that the call offers for its reply. Never a Write chunk and a Reply chunk together, which
/// Linux and Ganesha cannot handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyOffer {
    /// Nothing: the longest reply fits inline.
    Nothing,
    /// One Write chunk of this many octets, without room for padding (RFC 8166 §3.4.6.2); or one
    /// for each item, with this many octets together.
    WriteChunk(u32),
    /// A Reply chunk of this many octets, padding included (RFC 8166 §3.5.3, §4.3.3).
    ReplyChunk(u32),
}

/// Form in which the arguments of a call travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOffer {
    /// RDMA_MSG, all of the call inline.
    Nothing,
    /// RDMA_MSG, the item and its padding taken out of the payload; the chunk holds the item
    /// without padding (RFC 8166 §3.4.5.2).
    ReadChunk(Item),
    /// RDMA_NOMSG, a Position Zero Read chunk of this many octets, padding included (RFC 8166
    /// §3.5.3).
    PositionZero(u32),
}

/// Plan for one outgoing call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallPlan {
    /// Form in which the arguments travel.
    pub call: CallOffer,
    /// Chunk offered for the reply.
    pub reply: ReplyOffer,
}

impl CallPlan {
    /// That of a call that travels inline, as its reply does.
    pub const INLINE: Self = Self { call: CallOffer::Nothing, reply: ReplyOffer::Nothing };

    /// The call's form.
    pub const fn form(&self) -> Form {
        match self.call {
            CallOffer::Nothing => Form::Short,
            CallOffer::ReadChunk(_) => Form::Chunked,
            CallOffer::PositionZero(_) => Form::Long,
        }
    }
}

/// Octets of a plain segment, and of a read segment, on the wire (RFC 8166 §4.7).
const SEGMENT_LEN: usize = 16;
const READ_SEGMENT_LEN: usize = 24;

/// Chooses the form of a call. The header counts in the threshold. [`NoRoom`] when even the header
/// of a Long call does not fit the threshold, or a message is longer than a chunk can express.
pub fn plan_call(sizes: &CallSizes, path: &Path) -> Result<CallPlan, NoRoom> {
    debug_assert!(sizes.reply_items <= WRITES_MAX, "a call has few Write chunks");
    debug_assert!(
        (1..=CHUNK_SEGMENTS_MAX).contains(&path.segments),
        "a chunk has one to sixteen segments"
    );
    let reply = plan_reply_offer(sizes, path)?;
    let call = plan_call_offer(sizes, path, header_len(reply, sizes, path))?;
    Ok(CallPlan { call, reply })
}

/// Octets of a header with that offer and no Read list. The same in the call and in its reply.
const fn header_len(offer: ReplyOffer, sizes: &CallSizes, path: &Path) -> usize {
    match offer {
        ReplyOffer::Nothing => path.header,
        ReplyOffer::WriteChunk(_) => {
            path.header + write_chunks(sizes) * (8 + path.segments * SEGMENT_LEN)
        }
        ReplyOffer::ReplyChunk(_) => path.header + 4 + path.segments * SEGMENT_LEN,
    }
}

/// Write chunks for the items of a reply that has any.
const fn write_chunks(sizes: &CallSizes) -> usize {
    if sizes.reply_items > 1 { sizes.reply_items } else { 1 }
}

fn plan_reply_offer(sizes: &CallSizes, path: &Path) -> Result<ReplyOffer, NoRoom> {
    let item = usize::try_from(sizes.reply_item_max).map_err(|_| NoRoom)?;
    // Each item but the last may have three octets of padding more.
    let items = padded(item.saturating_add(3 * (write_chunks(sizes) - 1)));
    let whole = sizes.reply_rest_max.checked_add(items).ok_or(NoRoom)?;
    let fits = |offer, payload: usize| {
        header_len(offer, sizes, path).saturating_add(payload) <= path.reply.octets()
    };
    // RFC 8166 §3.4.6 [8166-21]: a Write chunk has room for the longest result
    let write_chunk = ReplyOffer::WriteChunk(sizes.reply_item_max);
    if fits(ReplyOffer::Nothing, whole) {
        Ok(ReplyOffer::Nothing)
    } else if item > 0 && fits(write_chunk, sizes.reply_rest_max) {
        Ok(write_chunk)
    } else {
        // RFC 8166 §4.3.3 [8166-42]: a Reply chunk is offered if the longest reply needs it
        // draft 004 §4.3.1 [exp-26]: a Reply chunk is for a reply that does not fit inline
        Ok(ReplyOffer::ReplyChunk(u32::try_from(whole).map_err(|_| NoRoom)?))
    }
}

fn plan_call_offer(sizes: &CallSizes, path: &Path, header: usize) -> Result<CallOffer, NoRoom> {
    let chunked_header = header + path.segments * READ_SEGMENT_LEN;
    // draft 004 §4.1.1 [exp-23]: the header counts in the inline threshold
    let fits = |header: usize, payload: usize| header.saturating_add(payload) <= path.call.octets();
    if fits(header, sizes.call) {
        return Ok(CallOffer::Nothing);
    }
    if let Some(item) = sizes.item {
        let in_chunk = usize::try_from(item.len).map(padded).map_err(|_| NoRoom)?;
        debug_assert!(in_chunk <= sizes.call, "the item is a part of the call");
        if fits(chunked_header, sizes.call.saturating_sub(in_chunk)) {
            return Ok(CallOffer::ReadChunk(item));
        }
    }
    if !fits(chunked_header, 0) {
        return Err(NoRoom);
    }
    // RFC 8166 §3.5.3 [8166-26]: a payload too long for inline travels in a chunk
    // draft 004 §6.3.1 [exp-35]: programs work whatever the inline threshold is
    Ok(CallOffer::PositionZero(u32::try_from(sizes.call).map_err(|_| NoRoom)?))
}
