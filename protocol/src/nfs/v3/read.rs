//! READ (RFC 1813 §3.3.6).

use super::{Attributes, Failure, FileHandle};
use crate::nfs::Bulk;
use crate::xdr::structure;

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
    /// Octets of `data`. The wire says it twice, and whoever uses a peer's value checks that both agree.
    pub count: u32,
    /// Whether the last octet is the file's last.
    pub eof: bool,
    /// The octets. DDP-eligible.
    pub data: Bulk<'a>,
}

impl ReadOk<'_> {
    /// Octets from the status to the data, when the attributes are there: a server may read a file straight to
    /// `Writer::spare()[HEAD_LEN..]`, then write the result with [`Bulk::Apart`] and advance over the data.
    pub const HEAD_LEN: usize = 4 + 4 + Attributes::LEN + 4 + 4 + 4;
}

structure!(ReadOk<'a> { attributes, count, eof, data });

/// Results of READ.
pub type ReadResult<'a> = Result<ReadOk<'a>, Failure<Option<Attributes>>>;
