//! GETATTR, SETATTR and ACCESS: a file's attributes and a caller's access rights (RFC 1813 §3.3.1,
//! §3.3.2, §3.3.4).

use core::ops::{BitAnd, BitOr};

use super::{Attributes, Failure, FileHandle, SetAttributes, Time, WccData};
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer, structure};

/// Arguments of GETATTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetAttrArgs {
    /// The file.
    pub object: FileHandle,
}

structure!(GetAttrArgs { object });

/// Results of GETATTR.
pub type GetAttrResult = Result<Attributes, Failure<()>>;

/// Arguments of SETATTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetAttrArgs {
    /// The file.
    pub object: FileHandle,
    /// Attributes to change.
    pub attributes: SetAttributes,
    /// The ctime the file must have, else NFS3ERR_NOT_SYNC (`sattrguard3`).
    pub guard: Option<Time>,
}

structure!(SetAttrArgs { object, attributes, guard });

/// Results of SETATTR.
pub type SetAttrResult = Result<WccData, Failure<WccData>>;

/// Rights a client asks about, or has (RFC 1813 §3.3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access(pub u32);

impl Access {
    /// No right at all.
    pub const NONE: Self = Self(0);
    /// Read the content of a file or directory.
    pub const READ: Self = Self(0x01);
    /// Look up a name in a directory.
    pub const LOOKUP: Self = Self(0x02);
    /// Change content that exists.
    pub const MODIFY: Self = Self(0x04);
    /// Write past the end, or add names.
    pub const EXTEND: Self = Self(0x08);
    /// Delete a name.
    pub const DELETE: Self = Self(0x10);
    /// Run a file. Not for directories.
    pub const EXECUTE: Self = Self(0x20);
    /// Every right that version 3 knows.
    pub const ALL: Self = Self(0x3f);

    /// Returns true if every right of `other` is here.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Access {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Access {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Codec<'_> for Access {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        reader.u32().map(Self)
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u32(self.0)
    }
}

/// Arguments of ACCESS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessArgs {
    /// The file.
    pub object: FileHandle,
    /// The rights asked about.
    pub access: Access,
}

structure!(AccessArgs { object, access });

/// Results of a successful ACCESS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessOk {
    /// Of the file.
    pub attributes: Option<Attributes>,
    /// The subset of the requested rights that the caller has.
    pub access: Access,
}

structure!(AccessOk { attributes, access });

/// Results of ACCESS.
pub type AccessResult = Result<AccessOk, Failure<Option<Attributes>>>;
