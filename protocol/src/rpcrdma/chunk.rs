//! Chunk lists: the memory of the requester that a message names (RFC 8166 §3.4, §4.3).

mod one;

use core::fmt;

use super::PeerFault;

pub use super::intent::{Intent, MessageType};
pub use one::ReadSegment;

use one::Shape;

/// Segments in all chunks of one message. RFC 8267 §6.4.2 requires a server to accept a Position
/// Zero chunk, another Read chunk and a Write chunk of sixteen segments each; with a Reply chunk of
/// the same number that is four chunks.
// RFC 8267 §6.4.2 [8267-11]: calls of sixteen segments a chunk are accepted
pub const SEGMENTS_MAX: usize = 64;
/// Segments of one chunk that every server of NFS accepts (RFC 8267 §6.4.2). We never send more.
pub const CHUNK_SEGMENTS_MAX: usize = 16;
/// Read chunks (different positions) of one message: one for each of eight operations of a
/// COMPOUND; Linux sends one.
pub const READS_MAX: usize = 8;
/// Write chunks of one message: one for each of eight operations of a COMPOUND; Linux sends one.
pub const WRITES_MAX: usize = 8;

const _: () = assert!(SEGMENTS_MAX >= 4 * CHUNK_SEGMENTS_MAX && SEGMENTS_MAX <= u8::MAX as usize);

/// Octets of a segment on the wire.
const SEGMENT_LEN: usize = 16;
/// Octets of a read segment on the wire: the word "one more", the position, the segment.
const READ_SEGMENT_LEN: usize = 4 + 4 + SEGMENT_LEN;

/// A contiguous piece of the requester's memory (RFC 8166 §3.4.3). Handle and offset mean nothing
/// to us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Names the registered memory: an STag or an rkey.
    pub handle: u32,
    /// Octets; zero is legal and names nothing.
    pub length: u32,
    /// Offset of the segment's first octet, as the handle defines it.
    pub offset: u64,
}

impl Segment {
    const EMPTY: Self = Self { handle: 0, length: 0, offset: 0 };

    /// Refuses a segment whose end wraps around the address space.
    pub const fn check(self) -> Result<Self, PeerFault> {
        match self.offset.checked_add(self.length as u64) {
            Some(_) => Ok(self),
            None => Err(PeerFault::OffsetWraps),
        }
    }
}

/// Position of a Read chunk in the unreduced Payload stream, in octets; a multiple of four (RFC
/// 8166 §3.4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(u32);

impl Position {
    /// The position of a chunk that holds the whole payload (RFC 8166 §3.5.3).
    pub const ZERO: Self = Self(0);

    /// The position `octets` from the beginning of the RPC message; `None` unless that is a
    /// multiple of four.
    pub const fn new(octets: u32) -> Option<Self> {
        // RFC 8166 §3.4.5 [8166-17]: a position is a multiple of four
        // draft 004 §3.6.1 [exp-17]: chunks and items begin at multiples of four
        if octets.is_multiple_of(4) { Some(Self(octets)) } else { None }
    }

    /// Octets from the beginning of the RPC message.
    pub const fn octets(self) -> u32 {
        self.0
    }
}

/// All read segments of one position, in list order (RFC 8166 §3.4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadChunk<'a> {
    /// Position of the chunk's content in the payload.
    pub position: Position,
    /// Its segments; at least one.
    pub segments: &'a [Segment],
}

impl ReadChunk<'_> {
    /// Octets of the chunk. Never wraps.
    pub fn total(&self) -> u64 {
        total(self.segments)
    }
}

/// A Write chunk or the Reply chunk (RFC 8166 §3.4.6, §4.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteChunk<'a> {
    /// Its segments; none means "inline, please" (RFC 8166 §4.3.2.3).
    pub segments: &'a [Segment],
}

impl WriteChunk<'_> {
    /// Octets of the chunk: its room in a call, what was written in a reply. Never wraps.
    pub fn total(&self) -> u64 {
        total(self.segments)
    }
}

fn total(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.length)).sum()
}

/// A chunk list has no room for one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListsFull {
    /// [`SEGMENTS_MAX`] segments are there.
    Segments,
    /// [`READS_MAX`] positions or [`WRITES_MAX`] Write chunks are there.
    Chunks,
}

impl fmt::Display for ListsFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Segments => "the chunk lists hold as many segments as they can",
            Self::Chunks => "the chunk list holds as many chunks as it can",
        })
    }
}

impl core::error::Error for ListsFull {}

impl From<ListsFull> for PeerFault {
    fn from(full: ListsFull) -> Self {
        match full {
            ListsFull::Segments => Self::TooManySegments,
            ListsFull::Chunks => Self::TooManyChunks,
        }
    }
}

/// The Read list, the Write list and the Reply chunk of one message; and, in version 2, the fields
/// before them.
///
/// All chunks share one array of segments: first the Read chunks by ascending position, then the
/// Write chunks in order, then the Reply chunk. Only the part in use is ever copied, compared or
/// written, so a message without chunks costs nothing.
// In this order the fields that one chunk of one segment needs share a cache line.
#[derive(Debug)]
#[repr(C)]
pub struct ChunkLists {
    shape: Shape,
    reply_segments: u8,
    message_type: Option<MessageType>,
    /// Number of the shared segments that each Read chunk has; `writes` counts those of Write
    /// chunks.
    reads: [u8; READS_MAX],
    writes: [u8; WRITES_MAX],
    inv_handle: u32,
    segments: [Segment; SEGMENTS_MAX],
    positions: [Position; READS_MAX],
}

// Each outstanding call has two of these.
const _: () = assert!(size_of::<ChunkLists>() <= 1088);

impl Default for ChunkLists {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for ChunkLists {
    fn clone(&self) -> Self {
        let mut lists = Self::new();
        lists.clone_from(self);
        lists
    }

    fn clone_from(&mut self, from: &Self) {
        if let Some(segment) = from.only_write() {
            (self.inv_handle, self.message_type) = (from.inv_handle, from.message_type);
            return self.set_only_write(segment);
        }
        let used = usize::from(from.shape.segments);
        if let (Some(to), Some(from)) = (self.segments.get_mut(..used), from.segments.get(..used)) {
            to.copy_from_slice(from);
        }
        (self.positions, self.reads, self.writes) = (from.positions, from.reads, from.writes);
        (self.inv_handle, self.message_type) = (from.inv_handle, from.message_type);
        (self.shape, self.reply_segments) = (from.shape, from.reply_segments);
    }
}

impl PartialEq for ChunkLists {
    fn eq(&self, other: &Self) -> bool {
        self.intent() == other.intent() && self.same_chunks(other)
    }
}

impl Eq for ChunkLists {}

static NONE: ChunkLists = ChunkLists::new();
static NONE_DIRECTED: ChunkLists =
    ChunkLists { message_type: Some(MessageType::Call), ..ChunkLists::new() };

impl ChunkLists {
    /// The lists of a message without chunks, whose header does not say its direction.
    pub fn none() -> &'static Self {
        &NONE
    }

    /// The lists of a call without chunks, whose header says that it is one (draft 001 §4.1).
    pub(super) fn none_directed() -> &'static Self {
        &NONE_DIRECTED
    }

    /// No chunks.
    pub const fn new() -> Self {
        Self {
            shape: Shape::EMPTY,
            reply_segments: 0,
            message_type: None,
            reads: [0; READS_MAX],
            writes: [0; WRITES_MAX],
            inv_handle: 0,
            segments: [Segment::EMPTY; SEGMENTS_MAX],
            positions: [Position::ZERO; READS_MAX],
        }
    }

    /// Forgets all chunks, and the intent.
    pub const fn clear(&mut self) {
        self.clear_chunks();
        self.message_type = None;
    }

    /// Forgets all chunks.
    pub const fn clear_chunks(&mut self) {
        self.shape = Shape::EMPTY;
    }

    /// Returns the fields that precede the lists; `None` if the header of the message has none.
    #[inline]
    pub fn intent(&self) -> Option<Intent> {
        let message_type = self.message_type?;
        Some(Intent { message_type, inv_handle: self.inv_handle })
    }

    /// Sets the fields before the lists. They count in [`encoded_len`](Self::encoded_len).
    #[inline]
    pub fn set_intent(&mut self, intent: Option<Intent>) {
        self.message_type = intent.map(|intent| intent.message_type);
        self.inv_handle = intent.map_or(0, |intent| intent.inv_handle);
    }

    /// Returns true if both name the same chunks, whatever precedes the lists.
    pub fn same_chunks(&self, other: &Self) -> bool {
        self.reads().eq(other.reads())
            && self.writes().eq(other.writes())
            && self.reply() == other.reply()
    }

    /// Returns true if all three lists are marked not present.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        // Without chunks there are no segments.
        self.shape.is(Shape::EMPTY)
    }

    /// The Read chunks, by ascending position.
    pub fn reads(&self) -> impl Iterator<Item = ReadChunk<'_>> {
        let mut at = 0;
        self.read_counts().iter().zip(&self.positions).map(move |(count, position)| {
            let segments = self.span(at, *count);
            at += usize::from(*count);
            ReadChunk { position: *position, segments }
        })
    }

    /// The Write chunks, in order.
    pub fn writes(&self) -> impl Iterator<Item = WriteChunk<'_>> {
        let mut at = self.read_segments();
        self.write_counts().iter().map(move |count| {
            let segments = self.span(at, *count);
            at += usize::from(*count);
            WriteChunk { segments }
        })
    }

    /// The Reply chunk.
    pub fn reply(&self) -> Option<WriteChunk<'_>> {
        let count = self.reply_count()?;
        Some(WriteChunk { segments: self.span(usize::from(self.shape.segments - count), count) })
    }

    /// The segments of all chunks: Read, Write, Reply.
    #[inline]
    pub fn segments(&self) -> &[Segment] {
        self.span(0, self.shape.segments)
    }

    /// Adds a segment at the end of the Read chunk of `position`, in any order of positions.
    pub fn push_read(&mut self, position: Position, segment: Segment) -> Result<(), ListsFull> {
        let (mut index, mut at) = (0_usize, 0);
        // draft 004 §3.2.1 [exp-7]: positions do not descend in a Read list
        for chunk in self.reads().take_while(|chunk| chunk.position <= position) {
            index += 1;
            at += chunk.segments.len();
        }
        // draft 004 §3.2.1 [exp-6]: a Read chunk is all read segments of one position
        let known =
            index.checked_sub(1).filter(|last| self.positions.get(*last) == Some(&position));
        if known.is_none() && usize::from(self.shape.reads) == READS_MAX {
            return Err(ListsFull::Chunks);
        }
        self.insert(at, segment)?;
        if known.is_none() {
            let behind = index..usize::from(self.shape.reads);
            self.reads.copy_within(behind.clone(), index + 1);
            self.positions.copy_within(behind, index + 1);
            self.shape.reads += 1;
            if let (Some(at), Some(count)) =
                (self.positions.get_mut(index), self.reads.get_mut(index))
            {
                (*at, *count) = (position, 0);
            }
        }
        if let Some(count) = self.reads.get_mut(known.unwrap_or(index)) {
            *count += 1;
        }
        Ok(())
    }

    /// Adds a Write chunk without segments at the end of the Write list.
    #[inline]
    pub fn begin_write(&mut self) -> Result<(), ListsFull> {
        let count = self.writes.get_mut(usize::from(self.shape.writes)).ok_or(ListsFull::Chunks)?;
        *count = 0;
        self.shape.writes += 1;
        Ok(())
    }

    /// Adds a segment at the end of the last Write chunk.
    ///
    /// # Panics
    /// When [`begin_write`](Self::begin_write) was not called.
    #[inline]
    pub fn push_write(&mut self, segment: Segment) -> Result<(), ListsFull> {
        let last =
            usize::from(self.shape.writes).checked_sub(1).expect("`begin_write` comes first");
        let behind = usize::from(self.reply_count().unwrap_or(0));
        self.insert(usize::from(self.shape.segments) - behind, segment)?;
        if let Some(count) = self.writes.get_mut(last) {
            *count += 1;
        }
        Ok(())
    }

    /// Adds a Reply chunk without segments, in place of any other.
    pub fn begin_reply(&mut self) {
        self.shape.segments -= self.reply_count().unwrap_or(0);
        (self.shape.replies, self.reply_segments) = (1, 0);
    }

    /// Adds a segment at the end of the Reply chunk.
    ///
    /// # Panics
    /// When [`begin_reply`](Self::begin_reply) was not called.
    pub fn push_reply(&mut self, segment: Segment) -> Result<(), ListsFull> {
        assert!(self.shape.replies == 1, "`begin_reply` comes first");
        self.insert(usize::from(self.shape.segments), segment)?;
        self.reply_segments += 1;
        Ok(())
    }

    /// Becomes the lists that a reply to `call` returns before anything is written: the same Write
    /// and Reply chunks with all lengths zero, and no Read list (RFC 8166 §3.4.6, §4.3.1, §4.3.3).
    /// The call's fields for invalidation are copied (draft 001 §4.1).
    pub fn return_unused(&mut self, call: &Self) {
        self.clear();
        // RFC 8166 §4.3.1 [8166-36]: the Read list of a reply is empty
        let returned = call.segments().get(call.read_segments()..).unwrap_or_default();
        for (to, from) in self.segments.iter_mut().zip(returned) {
            // RFC 8166 §4.3.2.2 [8166-39]: an unused Write chunk comes back with lengths of zero
            // draft 004 §3.8.1 [exp-20]: an unused Write chunk comes back with lengths of zero
            *to = Segment { length: 0, ..*from };
        }
        // RFC 8166 §3.4.6 [8166-22]: a reply returns every Write chunk with all its segments
        // draft 004 §3.8.1 [exp-21]: the number of segments of a chunk never changes
        self.writes = call.writes;
        // RFC 8166 §4.3.3 [8166-43]: a reply returns the Reply chunk of its call
        self.reply_segments = call.reply_segments;
        self.message_type = call.message_type.map(|_| MessageType::Reply);
        // draft 001 §4.1 [reminv-3]: a reply repeats the key of its call
        self.inv_handle = call.inv_handle;
        let reads = u8::try_from(call.read_segments()).expect("never above all segments");
        self.shape = Shape { reads: 0, segments: call.shape.segments - reads, ..call.shape };
    }

    /// Sets the lengths of Write chunk `index` to say that `written` octets fill it from its front;
    /// `offered` is the corresponding chunk of the call. Returns false, with nothing changed, if
    /// they do not fit or there is no such chunk.
    pub fn fill_write(&mut self, index: usize, offered: WriteChunk<'_>, written: u64) -> bool {
        let Some(count) = self.write_counts().get(index).copied() else { return false };
        let before: usize =
            self.write_counts().iter().take(index).map(|count| usize::from(*count)).sum();
        let at = self.read_segments() + before;
        self.fill(at, count, offered.segments, written)
    }

    /// Sets the lengths of the Reply chunk; as [`fill_write`](Self::fill_write).
    pub fn fill_reply(&mut self, offered: WriteChunk<'_>, written: u64) -> bool {
        let Some(count) = self.reply_count() else { return false };
        self.fill(usize::from(self.shape.segments - count), count, offered.segments, written)
    }

    fn fill(&mut self, at: usize, count: u8, offered: &[Segment], written: u64) -> bool {
        if written > total(offered) || offered.len() != usize::from(count) {
            return false;
        }
        let mut left = written;
        let own = self.segments.iter_mut().skip(at).take(usize::from(count));
        for (segment, offered) in own.zip(offered) {
            let taken = left.min(u64::from(offered.length));
            segment.length = u32::try_from(taken).unwrap_or(offered.length);
            left -= taken;
        }
        debug_assert_eq!(left, 0, "the total was compared before");
        true
    }

    /// Opens a gap at `at` in the shared array and puts `segment` there.
    #[inline]
    fn insert(&mut self, at: usize, segment: Segment) -> Result<(), ListsFull> {
        let used = usize::from(self.shape.segments);
        debug_assert!(at <= used, "a segment goes before or behind others");
        if used == SEGMENTS_MAX {
            // RFC 8267 §6.4.2 [8267-12]: a call with too many segments gets ERR_CHUNK
            return Err(ListsFull::Segments);
        }
        if at < used {
            self.segments.copy_within(at..used, at + 1);
        }
        *self.segments.get_mut(at).ok_or(ListsFull::Segments)? = segment;
        self.shape.segments += 1;
        Ok(())
    }

    /// Number of [`segments`](Self::segments) in each chunk: Read chunks with their positions,
    /// Write chunks, the Reply chunk.
    pub(super) fn counts(&self) -> (impl Iterator<Item = (&u8, &Position)>, &[u8], Option<u8>) {
        (self.read_counts().iter().zip(&self.positions), self.write_counts(), self.reply_count())
    }

    /// Segments of the Reply chunk, if there is one.
    #[inline]
    const fn reply_count(&self) -> Option<u8> {
        if self.shape.replies > 0 { Some(self.reply_segments) } else { None }
    }

    fn read_counts(&self) -> &[u8] {
        self.reads.get(..usize::from(self.shape.reads)).unwrap_or_default()
    }

    fn write_counts(&self) -> &[u8] {
        self.writes.get(..usize::from(self.shape.writes)).unwrap_or_default()
    }

    fn span(&self, at: usize, count: u8) -> &[Segment] {
        self.segments.get(at..at + usize::from(count)).unwrap_or_default()
    }

    /// Segments of the Read list: all that are no Write or Reply segments.
    const fn read_segments(&self) -> usize {
        let mut others = if self.shape.replies > 0 { self.reply_segments as usize } else { 0 };
        let (mut counts, mut left) = (self.writes.as_slice(), self.shape.writes);
        while let (Some((count, rest)), 1..) = (counts.split_first(), left) {
            others += *count as usize;
            (counts, left) = (rest, left - 1);
        }
        self.shape.segments as usize - others
    }
}
