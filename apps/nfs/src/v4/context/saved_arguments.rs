//! Arguments of a compound that outlive the message that they came in.

use std::sync::Arc;

use stag_engine::{Cx, Pulled, config};
use stag_pools::Extent;
use stag_protocol::{
    rpcrdma::responder::PIECES_MAX,
    xdr::{Piece, Reader},
};

/// Arguments in memory of their own. Data pulled from the caller's memory stays in place; arguments
/// from the message are copied.
#[derive(Clone, Debug)]
pub(in crate::v4) struct SavedArguments {
    pieces: [Option<KeptPiece>; PIECES_MAX],
}

/// A piece of them.
#[derive(Clone, Debug)]
struct KeptPiece {
    octets: Octets,
    is_chunk: bool,
}

/// The memory of a piece.
#[derive(Clone, Debug)]
enum Octets {
    Buffer(Extent),
    /// No buffer was free.
    Heap(Arc<[u8]>),
}

impl std::ops::Deref for Octets {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Buffer(octets) => octets,
            Self::Heap(octets) => octets,
        }
    }
}

impl SavedArguments {
    /// Keeps the unread part of a reader. None when the shard has too little memory, and for more
    /// pieces than a call can have.
    pub(in crate::v4) fn of(
        cx: &Cx<'_>,
        arguments: &Reader<'_>,
        pulled: Pulled<'_>,
    ) -> Option<Self> {
        Self::with(arguments, |octets| match pulled.share(octets) {
            Some(octets) => Some(Octets::Buffer(octets)),
            None => {
                let mut copy = cx.take(octets.len())?;
                copy.append(octets).ok()?;
                Some(Octets::Buffer(copy.freeze()))
            }
        })
    }

    /// The same without a buffer, for a compound that cannot be refused any more. Its places are
    /// few ([`super::super::interpreter::suspended`]), and so is what they allocate.
    #[cold]
    pub(in crate::v4) fn on_heap(arguments: &Reader<'_>) -> Option<Self> {
        Self::with(arguments, |octets| Some(Octets::Heap(octets.into())))
    }

    #[inline]
    fn with(arguments: &Reader<'_>, mut keep: impl FnMut(&[u8]) -> Option<Octets>) -> Option<Self> {
        let mut kept = Self { pieces: [const { None }; PIECES_MAX] };
        let mut places = kept.pieces.iter_mut();
        for piece in arguments.pieces() {
            let octets = keep(piece.octets())?;
            let is_chunk = matches!(piece, Piece::Chunk(_));
            *places.next()? = Some(KeptPiece { octets, is_chunk });
        }
        Some(kept)
    }

    /// The pieces, for a reader.
    pub(in crate::v4) fn pieces(&self) -> [Piece<'_>; PIECES_MAX] {
        let mut pieces = [Piece::Inline(&[]); PIECES_MAX];
        for (piece, kept) in pieces.iter_mut().zip(self.pieces.iter().flatten()) {
            *piece = match kept.is_chunk {
                true => Piece::Chunk(&kept.octets),
                false => Piece::Inline(&kept.octets),
            };
        }
        pieces
    }

    /// The kept form of `octets`, which are within one of the pieces of `arguments`, the arguments
    /// that are kept here. None also if they are in no buffer.
    pub(in crate::v4) fn share(&self, arguments: &Reader<'_>, octets: &[u8]) -> Option<Extent> {
        let wanted = octets.as_ptr_range();
        arguments.pieces().zip(self.pieces.iter().flatten()).find_map(|(piece, kept)| {
            let there = piece.octets().as_ptr_range();
            let is_inside = there.start <= wanted.start && wanted.end <= there.end;
            let from = (wanted.start as usize).checked_sub(there.start as usize);
            let from = from.filter(|_| is_inside && !octets.is_empty())?;
            let Octets::Buffer(kept) = &kept.octets else { return None };
            let to = from.checked_add(octets.len()).filter(|to| *to <= kept.len())?;
            Some(kept.slice(from..to))
        })
    }

    /// Number of medium and large buffers that they occupy.
    pub(in crate::v4) fn buffers(&self) -> [usize; 2] {
        let lens = || {
            self.pieces.iter().flatten().filter_map(|kept| match &kept.octets {
                Octets::Buffer(octets) => Some(octets.capacity()),
                Octets::Heap(_) => None,
            })
        };
        [
            lens()
                .filter(|len| (config::MESSAGE_LEN + 1..=config::MEDIUM_LEN).contains(len))
                .count(),
            lens().filter(|len| *len > config::MEDIUM_LEN).count(),
        ]
    }
}
