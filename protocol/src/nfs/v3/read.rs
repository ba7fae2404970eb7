//! READ (RFC 1813 §3.3.6).

use super::{Attributes, Failure, FileHandle, FileKind, Status};
use crate::nfs::Bulk;
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer, boolean, halves, hyper};

/// Arguments of READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadArgs {
    /// The file.
    pub file: FileHandle,
    /// The first octet wanted.
    pub offset: u64,
    /// Octets wanted.
    pub count: u32,
}

impl Codec<'_> for ReadArgs {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        let file = Codec::parse(reader)?;
        let [high, low, count] = reader.words()?;
        Ok(Self { file, offset: hyper(high, low), count })
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        self.file.emit(writer)?;
        let [high, low] = halves(self.offset);
        writer.words([high, low, self.count])
    }
}

/// Results of a successful READ, with attributes in one form or the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOk<'a, A = Attributes> {
    /// Of the file. Optional on the wire, but a Linux client that offered a Write chunk puts the
    /// data in the wrong place when they are missing: a server always sends them.
    pub attributes: Option<A>,
    /// True if the last octet is the file's last.
    pub eof: bool,
    /// The octets. DDP-eligible. The wire has their number twice; contradictory results are
    /// rejected.
    pub data: Bulk<'a>,
}

impl ReadOk<'_> {
    /// Octets from the status to the data, when the attributes are there: a server may read a file
    /// straight to `Writer::spare()[HEAD_LEN..]`, then write the result with [`Bulk::Apart`] and
    /// advance over the data.
    pub const HEAD_LEN: usize = 4 + 4 + Attributes::LEN + 4 + 4 + 4;
}

impl<'a> ReadOk<'a> {
    /// The data of a successful READ, for a client that needs nothing else: of results from the
    /// status on that have all attributes, as nearly all do. `None` for any other results, of which
    /// nothing is read.
    #[inline]
    pub fn usual_data(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
        let (head, rest) = reader.here().split_first_chunk::<{ ReadOk::HEAD_LEN }>()?;
        let (words, _) = head.as_chunks::<4>();
        let [status, follows, kind, .., count, eof, len] = words else { return None };
        let [status, follows, kind] = [status, follows, kind].map(|word| u32::from_be_bytes(*word));
        let [count, eof, len] = [count, eof, len].map(|word| u32::from_be_bytes(*word));
        let is_usual = status == Status::Ok as u32
            && follows == 1
            && (FileKind::Regular as u32..=FileKind::Fifo as u32).contains(&kind)
            && eof <= 1
            && count == len;
        if !is_usual {
            return None;
        }
        let mut behind = reader.clone();
        behind.go_on(rest);
        let data = behind.item_of(usize::try_from(len).ok()?).ok()?;
        *reader = behind;
        Some(data)
    }
}

impl<'a, A: Codec<'a>> Codec<'a> for ReadOk<'a, A> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let attributes = Codec::parse(reader)?;
        let [count, eof] = reader.words()?;
        Ok(Self { attributes, eof: boolean(eof)?, data: Bulk::parse_counted(reader, count)? })
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        self.attributes.emit(writer)?;
        let (count, eof) = (self.data.count()?, u32::from(self.eof));
        match self.data {
            // RFC 8166 §3.4.4.1 [8166-11]: the count of an array in a chunk stays in the payload
            Bulk::Apart(_) => writer.words([count, eof, count]),
            Bulk::Inline(octets) => {
                writer.words([count, eof])?;
                writer.opaque(octets)
            }
        }
    }
}

/// Results of READ.
pub type ReadResult<'a> = Result<ReadOk<'a>, Failure<Option<Attributes>>>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{nfs::v3::attributes::tests::attributes, xdr::Piece};
    use std::vec::Vec;

    /// Results of a READ of five octets, without those and changed.
    fn results(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let attributes = Some(attributes());
        let results: ReadResult<'_> = Ok(ReadOk { attributes, eof: true, data: Bulk::Apart(5) });
        let mut octets = [0; ReadOk::HEAD_LEN];
        results.emit(&mut Writer::new(&mut octets)).unwrap();
        change(&mut octets);
        octets.to_vec()
    }

    #[test]
    fn the_data_of_usual_results_is_what_parsing_finds() {
        let head = results(|_| ());
        let inline = [&head[..], b"hello\0\0\0"].concat();
        let [apart, whole] = [
            [Piece::Inline(&head), Piece::Chunk(b"hello")],
            [Piece::Inline(&inline), Piece::Chunk(b"")],
        ];
        for pieces in [&apart, &whole] {
            let mut reader = Reader::over(pieces);
            assert_eq!(ReadOk::usual_data(&mut reader), Some(&b"hello"[..]));
            assert_eq!(reader.finish(), Ok(()));
            let parsed: ReadResult<'_> = Reader::over(pieces).whole().unwrap();
            assert_eq!(parsed.unwrap().data, Bulk::Inline(b"hello"));
        }
    }

    #[test]
    fn other_results_have_no_usual_data_and_nothing_of_them_is_read() {
        let end = ReadOk::HEAD_LEN;
        // Status, attributes, kind, end of the file, either count.
        for at in [3, 7, 11, end - 5, end - 9, end - 1] {
            let head = results(|octets| octets[at] = 9);
            let pieces = [Piece::Inline(&head), Piece::Chunk(b"hello")];
            let mut reader = Reader::over(&pieces);
            assert_eq!(ReadOk::usual_data(&mut reader), None, "octet {at}");
            assert_eq!(reader.remaining(), end + 5);
        }
        let head = results(|_| ());
        for pieces in [&[Piece::Inline(&head[..end - 1])][..], &[Piece::Inline(&head)]] {
            assert_eq!(ReadOk::usual_data(&mut Reader::over(pieces)), None);
        }
    }
}
