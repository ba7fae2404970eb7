//! Answering a call: the memory to pull, and the place of the reply (RFC 8166 §3.4.5, §3.4.6,
//! §4.3).

use super::chunk::{READS_MAX, Segment};
use super::{Body, ChunkLists, Header, InlineThreshold, PeerFault, Position, Procedure, wire};
use crate::xdr::Piece;

mod parts;

pub use parts::{ITEMS_MAX, ReplyItem, ReplyParts};

/// Most pieces of one call: the octets between chunks, and the chunks.
pub const PIECES_MAX: usize = 2 * READS_MAX + 1;

/// One Read chunk to pull whole, before the call is parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PullChunk {
    /// Position of the chunk in the payload; [`Position::ZERO`] for the chunk that holds the
    /// payload itself.
    pub position: Position,
    /// Octets; at most the limit that the plan was made with.
    pub len: u32,
}

impl PullChunk {
    /// The RPC message in pieces: this chunk, the only one of its call, inside the inline payload
    /// or at its end. The same as [`Pull::assemble`].
    ///
    /// # Panics
    /// When `octets` or `base` have other lengths than were planned: that is a bug of ours.
    pub fn insert<'a>(self, base: &'a [u8], octets: &'a [u8]) -> [Piece<'a>; 3] {
        assert_eq!(u32::try_from(octets.len()), Ok(self.len), "every planned octet was pulled");
        let at = usize::try_from(self.position.octets());
        let split = at.ok().and_then(|at| base.split_at_checked(at));
        let (front, back) = split.expect("`plan_pull` saw this payload");
        [Piece::Inline(front), Piece::Chunk(octets), Piece::Inline(back)]
    }
}

/// Chunks to pull for one call. Made by [`plan_pull`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pull {
    chunks: [PullChunk; READS_MAX],
    count: usize,
    long: bool,
    total: u32,
}

/// The RPC call message in pieces, for [`xdr::Reader::over`](crate::xdr::Reader::over).
#[derive(Clone, Copy, Debug)]
pub struct Pieces<'a> {
    pieces: [Piece<'a>; PIECES_MAX],
    count: usize,
}

impl<'a> Pieces<'a> {
    /// The pieces, in order.
    pub fn as_slice(&self) -> &[Piece<'a>] {
        self.pieces.get(..self.count).unwrap_or_default()
    }

    fn push(&mut self, piece: Piece<'a>) {
        let free = self.pieces.get_mut(self.count).expect("each chunk makes at most two pieces");
        *free = piece;
        self.count += 1;
    }
}

/// Checks the Read list of a call with `inline_len` octets after its header, and says what to pull:
/// at most `limit` octets in all. Every error is answered with ERR_CHUNK.
///
/// The place at which chunks meet the payload of a Long call is checked here too: its length is
/// that of its Position Zero chunk.
pub fn plan_pull(
    header: &Header,
    lists: &ChunkLists,
    inline_len: usize,
    limit: u32,
) -> Result<Pull, PeerFault> {
    let mut pull = Pull::NONE;
    let mut total = 0_u64;
    for (chunk, slot) in lists.reads().zip(&mut pull.chunks) {
        total += chunk.total();
        // RFC 8166 §8.1.4 [8166-77]: read chunks of unreasonable length get an RDMA_ERROR
        if total > u64::from(limit) {
            return Err(PeerFault::TooLong);
        }
        let len = u32::try_from(chunk.total()).map_err(|_| PeerFault::TooLong)?;
        *slot = PullChunk { position: chunk.position, len };
        pull.count += 1;
    }
    pull.total = u32::try_from(total).map_err(|_| PeerFault::TooLong)?;
    // draft 004 §3.3.1, §6.2.1 [exp-8]: a Position Zero chunk holds a payload, not an item
    // draft 004 §3.3.1, §6.2.1 [exp-33]: a Position Zero chunk may hold anything
    pull.long = pull.chunks().first().is_some_and(|chunk| chunk.position == Position::ZERO);
    let base_len = match (header.body, pull.position_zero()) {
        (Body::Msg, None) => u64::try_from(inline_len).unwrap_or(u64::MAX),
        (Body::NoMsg, Some(len)) if inline_len == 0 => u64::from(len),
        // draft 004 §3.5.1 [exp-13]: an RDMA_MSG has no Position Zero chunk
        // draft 000 §4.2 [v2-6]: a payload follows only RDMA_MSG and RDMA_OPTIONAL
        (Body::Msg | Body::NoMsg, Some(_)) => return Err(PeerFault::PayloadTwice),
        // RFC 8166 §4.2.4 [8166-33]: an RDMA_NOMSG has a list that holds its payload
        (Body::NoMsg | Body::Error(_) | Body::Optional { .. }, _) => {
            return Err(PeerFault::NoPayload);
        }
    };
    if base_len == 0 {
        return Err(PeerFault::NoPayload);
    }
    check_positions(pull.items(), base_len)?;
    Ok(pull)
}

/// Each chunk is inserted inside the payload or at its end, past the chunk before it (RFC 8166
/// §3.4.5).
fn check_positions(items: &[PullChunk], base_len: u64) -> Result<(), PeerFault> {
    let (mut inserted, mut earlier_base) = (0_u64, 0);
    for item in items {
        let outside = PeerFault::PositionOutside(item.position.octets());
        let base = u64::from(item.position.octets()).checked_sub(inserted).ok_or(outside)?;
        if base < earlier_base || base > base_len {
            return Err(outside);
        }
        earlier_base = base;
        // draft 004 §3.6.1 [exp-16]: after a chunk the payload continues at a multiple of four
        inserted += inserted_len(item.len);
    }
    Ok(())
}

/// Octets that a chunk takes in the unreduced payload, with or without its padding in the chunk
/// (RFC 8166 §3.4.5.2).
const fn inserted_len(len: u32) -> u64 {
    (len as u64).next_multiple_of(4)
}

impl Pull {
    /// Nothing.
    pub const NONE: Self = Self {
        chunks: [PullChunk { position: Position::ZERO, len: 0 }; READS_MAX],
        count: 0,
        long: false,
        total: 0,
    };

    /// All chunks to pull, by ascending position, as [`ChunkLists::reads`] gives them. Empty for a
    /// Short call.
    pub fn chunks(&self) -> &[PullChunk] {
        self.chunks.get(..self.count).unwrap_or_default()
    }

    /// Octets to pull in all.
    pub const fn total(&self) -> u32 {
        self.total
    }

    /// Length of the Position Zero chunk: the whole payload of a Long call.
    pub fn position_zero(&self) -> Option<u32> {
        self.long.then(|| self.chunks.first().map(|chunk| chunk.len)).flatten()
    }

    /// The chunks inserted into the payload: all but the Position Zero chunk.
    pub fn items(&self) -> &[PullChunk] {
        // draft 004 §3.4.1 [exp-10]: a Long call may have other Read chunks, too
        self.chunks().get(usize::from(self.long)..).unwrap_or_default()
    }

    /// Joins the pulled chunks to the RPC message. `base` is the inline payload or the content of
    /// the Position Zero chunk; `items` are the contents of [`items`](Self::items), in their order.
    ///
    /// # Panics
    /// When `items` or `base` have other lengths than were planned: that is a bug of ours.
    pub fn assemble<'a>(&self, base: &'a [u8], items: &[&'a [u8]]) -> Pieces<'a> {
        assert_eq!(items.len(), self.items().len(), "every planned chunk was pulled");
        let mut pieces = Pieces { pieces: [Piece::Inline(&[]); PIECES_MAX], count: 0 };
        let (mut rest, mut inserted, mut taken) = (base, 0, 0);
        for (item, octets) in self.items().iter().zip(items) {
            assert_eq!(u32::try_from(octets.len()), Ok(item.len), "every planned octet was pulled");
            let at = u64::from(item.position.octets()) - inserted;
            let before =
                usize::try_from(at - taken).expect("`plan_pull` compared it with the payload");
            let (front, back) =
                rest.split_at_checked(before).expect("`plan_pull` saw this payload");
            pieces.push(Piece::Inline(front));
            pieces.push(Piece::Chunk(octets));
            (rest, taken) = (back, at);
            inserted += inserted_len(item.len);
        }
        pieces.push(Piece::Inline(rest));
        pieces
    }
}

/// Checks that the RPC message pulled for a Long call names its header's transaction (RFC 8166
/// §4.2.1, §4.5.2); ERR_CHUNK when not. [`Connection`](super::Connection) does it for inline
/// messages.
pub fn check_xid(header: &Header, payload: &[u8]) -> Result<(), PeerFault> {
    match payload.first_chunk() {
        None => Err(PeerFault::NoPayload),
        Some(octets) if u32::from_be_bytes(*octets) == header.xid.0 => Ok(()),
        Some(_) => Err(PeerFault::XidMismatch),
    }
}

/// Policy for the use of a Reply chunk that was offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyPolicy {
    /// Only for replies that do not fit inline (RFC 8166 §4.3.3).
    #[default]
    Inline,
    /// Whenever it is large enough, as Linux's server does.
    Chunk,
}

/// A part of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The message without its items.
    Message,
    /// The item with this index.
    Item(usize),
    /// Up to three zero octets that follow an item.
    Pad,
}

/// A piece of the payload stream: `len` octets of `part`, beginning `from` octets into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadPiece {
    /// Part of the reply that the octets come from.
    pub part: Part,
    /// Octets of the part before them.
    pub from: u32,
    /// Octets.
    pub len: u32,
}

/// One RDMA Write: `target.length` octets of `part`, beginning `from` octets into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Push {
    /// Part of the reply that the octets come from.
    pub part: Part,
    /// Octets of the part before them.
    pub from: u32,
    /// Target in the requester's memory.
    pub target: Segment,
}

/// Plan for one outgoing reply. Made by [`plan_reply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyPlan {
    parts: ReplyParts,
    /// RDMA_MSG, or RDMA_NOMSG when the Reply chunk takes the payload.
    pub procedure: Procedure,
    /// Octets of the transport header.
    pub header_len: usize,
    /// A bit for each item that goes into the Write chunk of its index.
    in_chunks: u8,
}

const _: () = assert!(ITEMS_MAX <= u8::BITS as usize);

/// Decides where each part of a reply goes, before anything is written, and leaves in `returned`
/// the lists of the reply's header.
///
/// Each item goes into the Write chunk of its index if there is one with segments; the rest goes
/// inline if it fits `threshold` with its header, else into the Reply chunk. Every error means that
/// no reply can be sent with the chunks offered: ERR_CHUNK (RFC 8166 §4.5.3); `returned` is
/// undefined then.
pub fn plan_reply(
    call: &ChunkLists,
    parts: ReplyParts,
    threshold: InlineThreshold,
    policy: ReplyPolicy,
    returned: &mut ChunkLists,
) -> Result<ReplyPlan, PeerFault> {
    debug_assert!(parts.message().is_multiple_of(4), "XDR items are padded");
    returned.return_unused(call);
    let header_len = wire::header_len(returned);
    let in_chunks = fill_writes(call, &parts, returned)?;
    let mut plan = ReplyPlan { parts, procedure: Procedure::Msg, header_len, in_chunks };
    let payload = plan.payload_len();
    let room = u64::try_from(threshold.octets().saturating_sub(header_len)).unwrap_or(u64::MAX);
    let offered = call.reply().filter(|chunk| chunk.total() >= payload);
    match (offered, payload <= room) {
        // RFC 8166 §3.5.3 [8166-28]: a reply too long for inline goes into the Reply chunk
        // draft 004 §4.3.1 [exp-26]: a Reply chunk is for a reply that does not fit inline
        (Some(chunk), fits) if policy == ReplyPolicy::Chunk || !fits => {
            if header_len > threshold.octets() {
                return Err(PeerFault::NoReplyChunk);
            }
            let filled = returned.fill_reply(chunk, payload);
            debug_assert!(filled, "the room was compared before");
            plan.procedure = Procedure::NoMsg;
            Ok(plan)
        }
        (_, true) => Ok(plan),
        // RFC 8166 §4.5.3 [8166-73]: a reply without room is an RDMA_ERROR, and writes nothing
        (_, false) if call.reply().is_some() => Err(PeerFault::ReplyChunkTooSmall),
        (_, false) => Err(PeerFault::NoReplyChunk),
    }
}

/// Fills the Write chunks of a reply with its items, and returns a bit for each item in a chunk.
fn fill_writes(
    call: &ChunkLists,
    parts: &ReplyParts,
    returned: &mut ChunkLists,
) -> Result<u8, PeerFault> {
    let mut in_chunks = 0;
    // RFC 8166 §4.3.2, §4.3.2.2, §4.3.2.3 [8166-37]: eligible results go into the Write chunks
    // offered
    // RFC 8166 §4.3.2, §4.3.2.2, §4.3.2.3 [8166-38]: the first result takes the first Write chunk
    // RFC 8267 §6.4.1 [8267-5]: the first READ takes the first Write chunk, the next one the next
    // RFC 8267 §6.4.1 [8267-6]: a READ whose Write chunk has segments returns its data there
    for (index, (item, chunk)) in parts.items().iter().zip(call.writes()).enumerate() {
        // RFC 8166 §4.3.2, §4.3.2.2, §4.3.2.3 [8166-41]: the result of an empty Write chunk goes
        // inline
        // RFC 8267 §6.4.1 [8267-7]: so does that of a READ
        if item.len == 0 || chunk.segments.is_empty() {
            continue;
        }
        // RFC 8166 §3.4.6.2 [8166-25]: a returned Write chunk is as long as its item
        // RFC 8166 §3.4.6.2 [8166-24]: padding is never written into a Write chunk
        // draft 004 §3.7.1 [exp-18]: no padding is written into a Write chunk
        if !returned.fill_write(index, chunk, item.len.into()) {
            return Err(PeerFault::WriteChunkTooSmall);
        }
        in_chunks |= 1 << index;
    }
    Ok(in_chunks)
}

/// The segment that a reply of `item` octets returns if the only chunk of its call is a Write chunk
/// of this segment; the same as by [`plan_reply`].
pub const fn fill_one_write(offered: Segment, item: u32) -> Result<Segment, PeerFault> {
    if item > offered.length {
        return Err(PeerFault::WriteChunkTooSmall);
    }
    // RFC 8166 §3.4.6.2 [8166-25]: a returned Write chunk is as long as its item
    // RFC 8166 §4.3.2.2 [8166-39]: an unused Write chunk comes back with lengths of zero
    // draft 004 §3.8.1 [exp-20]: an unused Write chunk comes back with lengths of zero
    Ok(Segment { length: item, ..offered })
}

/// Checks that a reply fits inline, where `room` octets are left after its header, when its item
/// goes into a Write chunk or there is none: the rest is a message of `len` octets.
pub const fn check_inline(len: usize, room: usize) -> Result<(), PeerFault> {
    // RFC 8166 §4.5.3 [8166-73]: a reply without room is an RDMA_ERROR, and writes nothing
    if len > room {
        return Err(PeerFault::NoReplyChunk);
    }
    Ok(())
}

impl ReplyPlan {
    /// Octets of the payload stream without the items that go into Write chunks.
    fn payload_len(&self) -> u64 {
        self.payload().map(|piece| u64::from(piece.len)).sum()
    }

    /// The pieces of the payload stream, which goes inline or into the Reply chunk, in order; some
    /// are empty. A reduced item takes its padding out of the stream (RFC 8166 §3.4.4.4); otherwise
    /// the stream holds both (§3.5.3).
    pub fn payload(&self) -> impl Iterator<Item = PayloadPiece> + use<> {
        let (plan, count) = (*self, self.parts.items().len());
        let at = move |index: usize| match plan.parts.items().get(index) {
            Some(item) => item.position,
            None => plan.parts.message(),
        };
        (0..=count).flat_map(move |index| {
            let from = index.checked_sub(1).map_or(0, at);
            let len = at(index).saturating_sub(from);
            // RFC 8166 §3.4.4.4 [8166-15]: the padding of an item leaves the payload with it
            let item = if plan.is_in_chunk(index) { 0 } else { plan.item_len(index) };
            // RFC 8166 §3.5.3 [8166-29]: a chunk of a whole payload includes the padding
            [
                PayloadPiece { part: Part::Message, from, len },
                PayloadPiece { part: Part::Item(index), from: 0, len: item },
                PayloadPiece { part: Part::Pad, from: 0, len: pad_len(item) },
            ]
        })
    }

    /// Octets of an item; zero if there is no such item.
    fn item_len(&self, index: usize) -> u32 {
        self.parts.items().get(index).map_or(0, |item| item.len)
    }

    /// Returns true if this item goes into the Write chunk of its index.
    pub const fn is_in_chunk(&self, item: usize) -> bool {
        item < ITEMS_MAX && (self.in_chunks >> item) & 1 == 1
    }

    /// Returns true if an item goes into a Write chunk.
    pub const fn is_reduced(&self) -> bool {
        self.in_chunks != 0
    }

    /// Returns true if the reply needs an RDMA Write.
    pub const fn has_pushes(&self) -> bool {
        self.is_reduced() || matches!(self.procedure, Procedure::NoMsg)
    }

    /// The RDMA Writes to perform before the reply is sent, in order; `returned` are the lists that
    /// [`plan_reply`] left.
    pub fn pushes<'a>(&self, returned: &'a ChunkLists) -> impl Iterator<Item = Push> + use<'a> {
        let plan = *self;
        let in_writes = returned.writes().enumerate().flat_map(move |(index, chunk)| {
            let len = if plan.is_in_chunk(index) { plan.item_len(index) } else { 0 };
            let item = PayloadPiece { part: Part::Item(index), from: 0, len };
            Scatter::new(core::iter::once(item), chunk.segments)
        });
        let is_long = plan.procedure == Procedure::NoMsg;
        let payload = is_long.then(|| plan.payload()).into_iter().flatten();
        let in_reply = returned.reply().map_or(&[][..], |chunk| chunk.segments);
        in_writes.chain(Scatter::new(payload, in_reply))
    }
}

/// Octets from `item` to the next multiple of four (RFC 4506 §3).
const fn pad_len(item: u32) -> u32 {
    item.wrapping_neg() & 3
}

/// Spreads pieces one after another over the written lengths of segments.
struct Scatter<'a, I> {
    pieces: I,
    /// The rest of the piece that is being laid out.
    piece: PayloadPiece,
    segments: &'a [Segment],
    at: u32,
}

impl<'a, I> Scatter<'a, I> {
    const fn new(pieces: I, segments: &'a [Segment]) -> Self {
        let piece = PayloadPiece { part: Part::Message, from: 0, len: 0 };
        Self { pieces, piece, segments, at: 0 }
    }
}

impl<I: Iterator<Item = PayloadPiece>> Iterator for Scatter<'_, I> {
    type Item = Push;

    fn next(&mut self) -> Option<Push> {
        while self.piece.len == 0 {
            self.piece = self.pieces.next()?;
        }
        let segment = loop {
            let (segment, rest) = self.segments.split_first()?;
            if self.at < segment.length {
                break segment;
            }
            (self.segments, self.at) = (rest, 0);
        };
        let PayloadPiece { part, from, len } = self.piece;
        let length = len.min(segment.length - self.at);
        // `Segment::check` ensured that the end of the segment does not wrap.
        let offset = segment.offset + u64::from(self.at);
        self.piece = PayloadPiece { part, from: from + length, len: len - length };
        self.at += length;
        Some(Push { part, from, target: Segment { handle: segment.handle, length, offset } })
    }
}
