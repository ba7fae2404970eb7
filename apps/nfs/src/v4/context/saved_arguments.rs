//! Arguments of a compound that outlive the message that they came in.

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
    octets: Extent,
    is_chunk: bool,
}

impl SavedArguments {
    /// Keeps the unread part of a reader. None when the shard has too little memory, and for more
    /// pieces than a call can have.
    pub(in crate::v4) fn of(
        cx: &Cx<'_>,
        arguments: &Reader<'_>,
        pulled: Pulled<'_>,
    ) -> Option<Self> {
        let mut kept = Self { pieces: [const { None }; PIECES_MAX] };
        let mut places = kept.pieces.iter_mut();
        for piece in arguments.pieces() {
            let octets = match pulled.share(piece.octets()) {
                Some(octets) => octets,
                None => {
                    let mut copy = cx.take(piece.octets().len())?;
                    copy.append(piece.octets()).ok()?;
                    copy.freeze()
                }
            };
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
    /// that are kept here.
    pub(in crate::v4) fn share(&self, arguments: &Reader<'_>, octets: &[u8]) -> Option<Extent> {
        let wanted = octets.as_ptr_range();
        arguments.pieces().zip(self.pieces.iter().flatten()).find_map(|(piece, kept)| {
            let there = piece.octets().as_ptr_range();
            let is_inside = there.start <= wanted.start && wanted.end <= there.end;
            let from = (wanted.start as usize).checked_sub(there.start as usize);
            let from = from.filter(|_| is_inside && !octets.is_empty())?;
            let to = from.checked_add(octets.len()).filter(|to| *to <= kept.octets.len())?;
            Some(kept.octets.slice(from..to))
        })
    }

    /// Number of medium and large buffers that they occupy.
    pub(in crate::v4) fn buffers(&self) -> [usize; 2] {
        let lens = || self.pieces.iter().flatten().map(|kept| kept.octets.capacity());
        [
            lens()
                .filter(|len| (config::MESSAGE_LEN + 1..=config::MEDIUM_LEN).contains(len))
                .count(),
            lens().filter(|len| *len > config::MEDIUM_LEN).count(),
        ]
    }
}
