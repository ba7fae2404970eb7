//! Payload in place: one message may carry the octets of several Writes.

use stag_verbs::soft::SendQueue;
use std::ops::Range;

/// A position in the octets that work requests transmit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkPlace {
    /// The work request.
    pub(crate) seq: u64,
    /// Octets of its payload before this position.
    pub(crate) at: usize,
}

impl WorkPlace {
    /// Advances by the `len` octets of one segment. Returns the work requests whose last octet is
    /// in it; one without payload ends with its empty segment.
    pub(crate) fn advance(&mut self, queue: &SendQueue, mut len: usize) -> Range<u64> {
        let first = self.seq;
        loop {
            let left = queue.payload(self.seq).len() - self.at;
            if left > len {
                self.at += len;
                break;
            }
            len -= left;
            *self = Self { seq: self.seq + 1, at: 0 };
            if len == 0 {
                break;
            }
        }
        first..self.seq
    }
}

/// The payload of one FPDU, piece by piece. No piece is empty.
#[derive(Clone, Debug)]
pub(crate) struct Pieces<'a> {
    source: PieceSource<'a>,
    /// Octets that are left.
    left: usize,
}

#[derive(Clone, Debug)]
enum PieceSource<'a> {
    One(&'a [u8]),
    Works(&'a SendQueue, WorkPlace),
}

impl<'a> Pieces<'a> {
    /// All of `octets`.
    pub(crate) fn one(octets: &'a [u8]) -> Self {
        Self { source: PieceSource::One(octets), left: octets.len() }
    }

    /// The `len` octets of work requests that begin at `from`.
    pub(crate) fn of_work(queue: &'a SendQueue, from: WorkPlace, len: usize) -> Self {
        Self { source: PieceSource::Works(queue, from), left: len }
    }

    /// The octets `range` of the payload.
    pub(crate) fn part(self, range: Range<usize>) -> impl Iterator<Item = &'a [u8]> {
        let (mut skip, mut left) = (range.start, range.len());
        self.map(move |piece| {
            let (skipped, piece) = piece.split_at(skip.min(piece.len()));
            skip -= skipped.len();
            let (piece, _) = piece.split_at(left.min(piece.len()));
            left -= piece.len();
            piece
        })
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.left == 0 {
            return None;
        }
        let piece = match &mut self.source {
            PieceSource::One(octets) => octets,
            PieceSource::Works(queue, place) => {
                let rest = queue.payload(place.seq).get(place.at..).unwrap_or_default();
                *place = WorkPlace { seq: place.seq + 1, at: 0 };
                rest
            }
        };
        assert!(!piece.is_empty(), "work stays until its last FPDU is sent");
        let (piece, _) = piece.split_at(self.left.min(piece.len()));
        self.left -= piece.len();
        Some(piece)
    }
}
