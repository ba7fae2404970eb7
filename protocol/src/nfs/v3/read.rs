//! READ (RFC 1813 §3.3.6).

use super::{Attributes, Failure, FileHandle};
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
    /// The octets. DDP-eligible. The wire has their number twice; results that contradict
    /// themselves are none.
    pub data: Bulk<'a>,
}

impl ReadOk<'_> {
    /// Octets from the status to the data, when the attributes are there: a server may read a file
    /// straight to `Writer::spare()[HEAD_LEN..]`, then write the result with [`Bulk::Apart`] and
    /// advance over the data.
    pub const HEAD_LEN: usize = 4 + 4 + Attributes::LEN + 4 + 4 + 4;
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
