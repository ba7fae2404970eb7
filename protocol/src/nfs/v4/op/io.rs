//! READ, WRITE, COMMIT, and version 4.2's operations on ranges and extended attributes (RFC 8881
//! §18, RFC 7862 §15, RFC 8276 §8.4).

use crate::nfs::Bulk;
use crate::nfs::v3::StableHow;
use crate::nfs::v4::forms::{numbers, record};
use crate::nfs::v4::{Array, Bitmap, Name4, Stateid, Verifier4};
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer};

record! {
    /// Arguments of READ (RFC 8881 §18.22.1).
    #[derive(Copy)]
    Read4Args {
        /// The open, lock or delegation.
        stateid: Stateid,
        /// The first octet wanted.
        offset: u64,
        /// Octets wanted.
        count: u32,
    }
}

record! {
    /// Results of READ.
    #[derive(Copy)]
    Read4Ok<'a> {
        /// True if the last octet is the file's last.
        eof: bool,
        /// The octets. DDP-eligible.
        data: Bulk<'a>,
    }
}

record! {
    /// Arguments of WRITE (RFC 8881 §18.32.1).
    #[derive(Copy)]
    Write4Args<'a> {
        /// The open, lock or delegation.
        stateid: Stateid,
        /// Offset of the first octet.
        offset: u64,
        /// Stability that the data must have before the answer.
        stable: StableHow,
        /// The octets. DDP-eligible.
        data: Bulk<'a>,
    }
}

record! {
    /// Results of WRITE.
    #[derive(Copy)]
    Write4Ok {
        /// Octets written.
        count: u32,
        /// Stability of them.
        committed: StableHow,
        /// Changes when unstable data may have been lost.
        verifier: Verifier4,
    }
}

record! {
    /// Arguments of COMMIT (RFC 8881 §18.3.1).
    #[derive(Copy)]
    Commit4Args {
        /// The first octet to make stable.
        offset: u64,
        /// Number of octets; 0 = all from `offset` on.
        count: u32,
    }
}

record! {
    /// Arguments of ALLOCATE and DEALLOCATE (RFC 7862 §15.1.1, §15.4.1).
    #[derive(Copy)]
    FileRange {
        /// An open for writing.
        stateid: Stateid,
        /// The first octet.
        offset: u64,
        /// Number of octets.
        length: u64,
    }
}

record! {
    /// Arguments of IO_ADVISE (RFC 7862 §15.5.1).
    IoAdviseArgs {
        /// The open, lock or delegation.
        stateid: Stateid,
        /// The first octet.
        offset: u64,
        /// Number of octets; 0 = all from `offset` on.
        count: u64,
        /// Hints.
        hints: Bitmap,
    }
}

/// Content of a part of a file (`data_content4`, RFC 7862 §6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileContent {
    /// Data.
    Data,
    /// A hole.
    Hole,
    /// An unknown kind: NFS4ERR_UNION_NOTSUPP.
    Other(u32),
}

impl Codec<'_> for FileContent {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(match reader.u32()? {
            0 => Self::Data,
            1 => Self::Hole,
            // RFC 7862 §11.1.1.1 [7862-2]: an arm that we do not know has a status of its own
            other => Self::Other(other),
        })
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u32(match self {
            Self::Data => 0,
            Self::Hole => 1,
            Self::Other(other) => *other,
        })
    }
}

record! {
    /// Arguments of SEEK (RFC 7862 §15.11.1).
    #[derive(Copy)]
    SeekArgs {
        /// An open for reading.
        stateid: Stateid,
        /// Offset at which the search begins.
        offset: u64,
        /// Content to find.
        what: FileContent,
    }
}

record! {
    /// Results of SEEK.
    #[derive(Copy)]
    SeekOk {
        /// True if the file ends there.
        eof: bool,
        /// Offset of the content.
        offset: u64,
    }
}

numbers! {
    /// Condition under which SETXATTR sets (`setxattr_option4`).
    SetXattrHow {
        /// Always.
        Either = 0,
        /// Only if there is no such attribute.
        Create = 1,
        /// Only if there is one.
        Replace = 2,
    }
}

/// Octets of the longest value of an extended attribute that is parsed: Linux' limit.
pub const XATTR_LEN_MAX: usize = 65_536;

/// The value of an extended attribute (RFC 8276 §8.3).
pub type XattrValue<'a> = crate::nfs::v4::Text<'a, XATTR_LEN_MAX>;

record! {
    /// Arguments of SETXATTR (RFC 8276 §8.4.2.1).
    #[derive(Copy)]
    SetXattrArgs<'a> {
        /// Condition.
        how: SetXattrHow,
        /// Name without the namespace.
        name: Name4<'a>,
        /// Value.
        value: XattrValue<'a>,
    }
}

record! {
    /// Arguments of LISTXATTRS (RFC 8276 §8.4.3.1).
    #[derive(Copy)]
    ListXattrsArgs {
        /// Place to go on; 0 = at the beginning.
        cookie: u64,
        /// Octets of the results after the status at most.
        max_count: u32,
    }
}

record! {
    /// Results of LISTXATTRS.
    ListXattrsOk<'a> {
        /// Position from which the names after the last one are read.
        cookie: u64,
        /// Names.
        names: Array<'a, Name4<'a>>,
        /// True if there are no more.
        eof: bool,
    }
}
