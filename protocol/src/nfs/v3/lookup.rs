//! LOOKUP and READLINK: from a name to a file, from a link to a path (RFC 1813 §3.3.3, §3.3.5).

use super::{Attributes, DirOpArgs, Failure, FileHandle, PATH_MAX};
use crate::nfs::Bulk;
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer, structure};

/// Arguments of LOOKUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupArgs<'a> {
    /// The name.
    pub what: DirOpArgs<'a>,
}

structure!(LookupArgs<'a> { what });

/// Results of a successful LOOKUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupOk {
    /// The file of that name.
    pub object: FileHandle,
    /// Its attributes.
    pub attributes: Option<Attributes>,
    /// The directory's attributes.
    pub dir_attributes: Option<Attributes>,
}

structure!(LookupOk { object, attributes, dir_attributes });

/// Results of LOOKUP; a failure carries the directory's attributes.
pub type LookupResult = Result<LookupOk, Failure<Option<Attributes>>>;

/// Arguments of READLINK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLinkArgs {
    /// The link.
    pub symlink: FileHandle,
}

structure!(ReadLinkArgs { symlink });

/// Results of a successful READLINK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLinkOk<'a> {
    /// Of the link.
    pub attributes: Option<Attributes>,
    /// The path in it, at most [`PATH_MAX`] octets. DDP-eligible.
    pub path: Bulk<'a>,
}

impl<'a> Codec<'a> for ReadLinkOk<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Self { attributes: Codec::parse(reader)?, path: Bulk::parse_bounded(reader, PATH_MAX)? })
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        self.attributes.emit(writer)?;
        self.path.emit(writer)
    }
}

/// Results of READLINK.
pub type ReadLinkResult<'a> = Result<ReadLinkOk<'a>, Failure<Option<Attributes>>>;
