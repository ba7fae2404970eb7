//! Items that may travel in a chunk of their own (DDP-eligible items, RFC 8267 §4).

use crate::xdr::{Codec, Error, NoRoom, Reader, Writer};

/// File data or a pathname: the items that RDMA may place directly.
///
/// A parsed item is always [`Bulk::Inline`], for a [`Reader`] knows the chunks as pieces of the
/// message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bulk<'a> {
    /// The octets, here.
    Inline(&'a [u8]),
    /// This many octets, stored elsewhere. Only the length word is written. Version 3 has the item
    /// last in its message, version 4 in its operation, so [`Writer::len`] then is its Position, if
    /// the writer began with the RPC message (RFC 8166 §3.4.5). No padding is written either: a
    /// chunk has none, and a caller that adds the octets by [`Writer::advance`] gets it there.
    Apart(u32),
}

impl<'a> Bulk<'a> {
    /// Octets of the item, padding not counted.
    pub fn len(&self) -> usize {
        match self {
            Self::Inline(octets) => octets.len(),
            Self::Apart(len) => usize::try_from(*len).unwrap_or(usize::MAX),
        }
    }

    /// Returns true if the item is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The octets if they are stored here, as a parsed item's always are.
    pub const fn octets(&self) -> Option<&'a [u8]> {
        match self {
            Self::Inline(octets) => Some(octets),
            Self::Apart(_) => None,
        }
    }

    /// Takes an item of at most `max` octets.
    pub(super) fn parse_bounded(reader: &mut Reader<'a>, max: usize) -> Result<Self, Error> {
        reader.item(max).map(Self::Inline)
    }

    /// Takes an item that has to have `count` octets, as the message says elsewhere.
    pub(super) fn parse_counted(reader: &mut Reader<'a>, count: u32) -> Result<Self, Error> {
        let data = Self::parse(reader)?;
        if data.count() == Ok(count) { Ok(data) } else { Err(Error::BadValue) }
    }

    /// Its length as the wire has it.
    pub(super) fn count(&self) -> Result<u32, NoRoom> {
        u32::try_from(self.len()).map_err(|_| NoRoom)
    }
}

impl<'a> Codec<'a> for Bulk<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        Self::parse_bounded(reader, usize::MAX)
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::Inline(octets) => writer.opaque(octets),
            // RFC 8166 §3.4.4.1 [8166-11]: the count of an array in a chunk stays in the payload
            Self::Apart(len) => writer.u32(*len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::{Piece, survives};

    #[test]
    fn inline_data_is_padded() {
        assert_eq!(survives!(Bulk::Inline(b""), Bulk), [0; 4]);
        assert_eq!(survives!(Bulk::Inline(b"hello"), Bulk), *b"\0\0\0\x05hello\0\0\0");
    }

    #[test]
    fn data_apart_leaves_its_length_only_and_comes_back_from_a_chunk() {
        let mut out = [0; 4];
        Bulk::Apart(5).emit(&mut Writer::new(&mut out)).unwrap();
        let pieces = [Piece::Inline(&out), Piece::Chunk(b"hello")];
        let mut reader = Reader::over(&pieces);
        assert_eq!(Bulk::parse(&mut reader), Ok(Bulk::Inline(b"hello")));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn data_apart_can_be_put_behind_its_length_without_a_copy() {
        let mut out = [0xee; 12];
        let mut writer = Writer::new(&mut out);
        writer.spare()[4..9].copy_from_slice(b"hello");
        Bulk::Apart(5).emit(&mut writer).unwrap();
        writer.advance(5).unwrap();
        assert_eq!(writer.len(), 12);
        assert_eq!(writer.advance(1), Err(NoRoom));
        assert_eq!(out, *b"\0\0\0\x05hello\0\0\0");
    }
}
