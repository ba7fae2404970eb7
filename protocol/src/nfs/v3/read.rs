//! READ (RFC 1813 §3.3.6).

use super::{Attributes, Failure, FileHandle};
use crate::nfs::Bulk;
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer, structure};

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

structure!(ReadArgs { file, offset, count });

/// What READ gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOk<'a> {
    /// Of the file. Optional on the wire, but a Linux client that offered a Write chunk puts the data in the wrong place
    /// when they are missing: a server always sends them.
    pub attributes: Option<Attributes>,
    /// Whether the last octet is the file's last.
    pub eof: bool,
    /// The octets. DDP-eligible. The wire has their number twice; results that contradict themselves are none.
    pub data: Bulk<'a>,
}

impl ReadOk<'_> {
    /// Octets from the status to the data, when the attributes are there: a server may read a file straight to
    /// `Writer::spare()[HEAD_LEN..]`, then write the result with [`Bulk::Apart`] and advance over the data.
    pub const HEAD_LEN: usize = 4 + 4 + Attributes::LEN + 4 + 4 + 4;
}

impl<'a> Codec<'a> for ReadOk<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let attributes = Codec::parse(reader)?;
        let (count, eof) = (reader.u32()?, reader.bool()?);
        Ok(Self { attributes, eof, data: Bulk::parse_counted(reader, count)? })
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        self.attributes.emit(writer)?;
        writer.u32(self.data.count()?)?;
        writer.bool(self.eof)?;
        self.data.emit(writer)
    }
}

/// Results of READ.
pub type ReadResult<'a> = Result<ReadOk<'a>, Failure<Option<Attributes>>>;
