//! Lists with one chunk of one segment, the form of nearly all nonempty lists; and the length of
//! lists.

use super::{ChunkLists, Intent, Position, READ_SEGMENT_LEN, SEGMENT_LEN, Segment};

/// Numbers of chunks of each kind, and of all segments. Together they identify common lists by one
/// comparison.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(4))]
pub(super) struct Shape {
    pub(super) reads: u8,
    pub(super) writes: u8,
    /// One if there is a Reply chunk.
    pub(super) replies: u8,
    pub(super) segments: u8,
}

impl Shape {
    pub(super) const EMPTY: Self = Self { reads: 0, writes: 0, replies: 0, segments: 0 };
    const ONE_WRITE: Self = Self { writes: 1, segments: 1, ..Self::EMPTY };
    const ONE_READ: Self = Self { reads: 1, segments: 1, ..Self::EMPTY };
    const ONE_REPLY: Self = Self { replies: 1, segments: 1, ..Self::EMPTY };

    #[inline]
    pub(super) const fn is(self, other: Self) -> bool {
        self.to_bits() == other.to_bits()
    }

    /// Octets of the three lists on the wire, if they have this shape with one segment at most.
    #[inline]
    pub(super) const fn lists_len(self) -> Option<usize> {
        // A Write chunk adds a count, a Read chunk a position.
        if self.is(Self::ONE_WRITE) || self.is(Self::ONE_READ) {
            Some(12 + 8 + SEGMENT_LEN)
        } else if self.is(Self::EMPTY) {
            Some(12)
        } else {
            None
        }
    }

    #[inline]
    const fn to_bits(self) -> u32 {
        u32::from_ne_bytes([self.reads, self.writes, self.replies, self.segments])
    }
}

/// A Read chunk of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSegment {
    /// Position of its content in the payload.
    pub position: Position,
    /// Its only segment.
    pub segment: Segment,
}

impl ChunkLists {
    /// The segment of the Write chunk, if that is the only chunk and has no other segment.
    #[inline]
    pub const fn only_write(&self) -> Option<Segment> {
        let [segment, ..] = self.segments;
        if self.shape.is(Shape::ONE_WRITE) { Some(segment) } else { None }
    }

    /// The Read chunk, if that is the only chunk and has one segment.
    #[inline]
    pub const fn only_read(&self) -> Option<ReadSegment> {
        let ([position, ..], [segment, ..]) = (self.positions, self.segments);
        if self.shape.is(Shape::ONE_READ) { Some(ReadSegment { position, segment }) } else { None }
    }

    /// Octets that the three lists, and the fields before them, take on the wire; 12 without chunks
    /// in version 1.
    #[inline]
    pub const fn encoded_len(&self) -> usize {
        let intent = if self.message_type.is_some() { Intent::LEN } else { 0 };
        match self.shape.lists_len() {
            Some(lists) => intent + lists,
            None => intent + self.lists_len(),
        }
    }

    /// Octets of any three lists.
    const fn lists_len(&self) -> usize {
        let reads = self.read_segments();
        let others = self.shape.segments as usize - reads;
        let counts = self.shape.writes as usize * 8 + self.shape.replies as usize * 4;
        12 + reads * READ_SEGMENT_LEN + counts + others * SEGMENT_LEN
    }

    /// Replaces all chunks by one Write chunk of one segment.
    #[inline]
    pub const fn set_only_write(&mut self, segment: Segment) {
        self.shape = Shape::ONE_WRITE;
        let ([count, ..], [only, ..]) = (&mut self.writes, &mut self.segments);
        (*count, *only) = (1, segment);
    }

    /// Replaces all chunks by one Read chunk of one segment.
    #[inline]
    pub const fn set_only_read(&mut self, chunk: ReadSegment) {
        self.shape = Shape::ONE_READ;
        let ([count, ..], [only, ..]) = (&mut self.reads, &mut self.segments);
        (*count, *only) = (1, chunk.segment);
        let [at, ..] = &mut self.positions;
        *at = chunk.position;
    }

    /// Replaces all chunks by a Reply chunk of one segment.
    #[inline]
    pub(in super::super) const fn set_only_reply(&mut self, segment: Segment) {
        (self.shape, self.reply_segments) = (Shape::ONE_REPLY, 1);
        let [only, ..] = &mut self.segments;
        *only = segment;
    }
}
