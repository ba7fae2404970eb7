//! WRITE and COMMIT (RFC 1813 §3.3.7, §3.3.21).

use super::{Failure, FileHandle, Verifier, WccData};
use crate::nfs::Bulk;
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer, enumeration, structure};

/// Stability that written data have, or must have, before the answer; ordered from weak to strong
/// (RFC 1813 §3.3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum StableHow {
    /// Anywhere: a later COMMIT makes it stable.
    Unstable = 0,
    /// Data, and the metadata needed to find it, are on stable storage.
    DataSync = 1,
    /// Data and all metadata are on stable storage.
    FileSync = 2,
}

enumeration!(StableHow { Unstable, DataSync, FileSync });

/// Arguments of WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteArgs<'a> {
    /// The file.
    pub file: FileHandle,
    /// Offset of the first octet in the file.
    pub offset: u64,
    /// Stability that the data must have before the answer.
    pub stable: StableHow,
    /// The octets. DDP-eligible. The wire has their number twice; contradictory arguments are
    /// rejected.
    pub data: Bulk<'a>,
}

impl<'a> Codec<'a> for WriteArgs<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let (file, offset) = (Codec::parse(reader)?, reader.u64()?);
        let (count, stable) = (reader.u32()?, Codec::parse(reader)?);
        Ok(Self { file, offset, stable, data: Bulk::parse_counted(reader, count)? })
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        self.file.emit(writer)?;
        writer.u64(self.offset)?;
        writer.u32(self.data.count()?)?;
        self.stable.emit(writer)?;
        self.data.emit(writer)
    }
}

/// Results of a successful WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOk {
    /// The file before and after.
    pub wcc: WccData,
    /// Octets written.
    pub count: u32,
    /// Stability of the written octets: at least the requested one.
    pub committed: StableHow,
    /// Changes when unstable data may have been lost.
    pub verifier: Verifier,
}

structure!(WriteOk { wcc, count, committed, verifier });

/// Results of WRITE.
pub type WriteResult = Result<WriteOk, Failure<WccData>>;

/// Arguments of COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitArgs {
    /// The file.
    pub file: FileHandle,
    /// The first octet to make stable.
    pub offset: u64,
    /// Number of octets; 0 = all from `offset` on.
    pub count: u32,
}

structure!(CommitArgs { file, offset, count });

/// Results of a successful COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitOk {
    /// The file before and after.
    pub wcc: WccData,
    /// To compare with the one that WRITE gave.
    pub verifier: Verifier,
}

structure!(CommitOk { wcc, verifier });

/// Results of COMMIT.
pub type CommitResult = Result<CommitOk, Failure<WccData>>;
