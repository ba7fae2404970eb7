//! Ways to open, write and create, and what a file system can do (RFC 1813 §3.3).

use core::ops::{BitAnd, BitOr};

use crate::xdr::{Codec, Error, NoRoom, Reader, Writer, enumeration, structure};

use super::{CreateVerifier, SetAttributes, Time};

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
    /// Write behind the end, or add names.
    pub const EXTEND: Self = Self(0x08);
    /// Delete a name.
    pub const DELETE: Self = Self(0x10);
    /// Run a file. Not for directories.
    pub const EXECUTE: Self = Self(0x20);
    /// Every right that version 3 knows.
    pub const ALL: Self = Self(0x3f);

    /// Whether every right of `other` is here.
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

/// How far written data got, or must get, before the answer; ordered from weak to strong (RFC 1813 §3.3.7).
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

/// How CREATE treats a name that exists (`createhow3`, RFC 1813 §3.3.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// Existing is fine.
    Unchecked(SetAttributes),
    /// Existing is an error.
    Guarded(SetAttributes),
    /// Existing is an error unless this very call, known by its verifier, made the file.
    Exclusive(CreateVerifier),
}

impl Codec<'_> for CreateHow {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        match reader.u32()? {
            0 => SetAttributes::parse(reader).map(Self::Unchecked),
            1 => SetAttributes::parse(reader).map(Self::Guarded),
            2 => reader.array().map(Self::Exclusive),
            _ => Err(Error::BadValue),
        }
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::Unchecked(attributes) => {
                writer.u32(0)?;
                attributes.emit(writer)
            }
            Self::Guarded(attributes) => {
                writer.u32(1)?;
                attributes.emit(writer)
            }
            Self::Exclusive(verifier) => {
                writer.u32(2)?;
                verifier.emit(writer)
            }
        }
    }
}

/// How full a file system is (`FSSTAT3resok` without the attributes, RFC 1813 §3.3.18).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsStat {
    /// Octets it holds (`tbytes`).
    pub total_octets: u64,
    /// Octets not used (`fbytes`).
    pub free_octets: u64,
    /// Octets not used that the caller may use (`abytes`).
    pub available_octets: u64,
    /// Files it holds (`tfiles`).
    pub total_files: u64,
    /// Files that can still be made (`ffiles`).
    pub free_files: u64,
    /// Files that the caller can still make (`afiles`).
    pub available_files: u64,
    /// Seconds for which all this is expected to hold; 0 = not at all (`invarsec`).
    pub unchanged_seconds: u32,
}

structure!(FsStat {
    total_octets,
    free_octets,
    available_octets,
    total_files,
    free_files,
    available_files,
    unchanged_seconds
});

/// What a file system can do (`FSINFO3resok` without the attributes, RFC 1813 §3.3.19). Sizes in octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsInfo {
    /// Largest READ (`rtmax`).
    pub read_max: u32,
    /// Preferred READ (`rtpref`).
    pub read_preferred: u32,
    /// A READ should be a multiple of this (`rtmult`).
    pub read_multiple: u32,
    /// Largest WRITE (`wtmax`).
    pub write_max: u32,
    /// Preferred WRITE (`wtpref`).
    pub write_preferred: u32,
    /// A WRITE should be a multiple of this (`wtmult`).
    pub write_multiple: u32,
    /// Preferred READDIR (`dtpref`).
    pub readdir_preferred: u32,
    /// Largest file (`maxfilesize`).
    pub file_size_max: u64,
    /// Resolution of its timestamps (`time_delta`).
    pub time_delta: Time,
    /// A sum of the constants below (`properties`).
    pub properties: u32,
}

impl FsInfo {
    /// Hard links are supported (`FSF3_LINK`).
    pub const LINK: u32 = 0x01;
    /// Symbolic links are supported (`FSF3_SYMLINK`).
    pub const SYMLINK: u32 = 0x02;
    /// PATHCONF says the same for every file (`FSF3_HOMOGENEOUS`).
    pub const HOMOGENEOUS: u32 = 0x08;
    /// SETATTR can set times (`FSF3_CANSETTIME`).
    pub const CAN_SET_TIME: u32 = 0x10;
}

structure!(FsInfo {
    read_max,
    read_preferred,
    read_multiple,
    write_max,
    write_preferred,
    write_multiple,
    readdir_preferred,
    file_size_max,
    time_delta,
    properties
});

/// How names behave (`PATHCONF3resok` without the attributes, RFC 1813 §3.3.20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathConf {
    /// Most hard links to one file (`linkmax`).
    pub link_max: u32,
    /// Octets of the longest name (`name_max`).
    pub name_max: u32,
    /// A longer name is refused, not cut.
    pub no_trunc: bool,
    /// Only a privileged user may give a file away.
    pub chown_restricted: bool,
    /// Names that differ in case only are the same.
    pub case_insensitive: bool,
    /// The case of a name is kept.
    pub case_preserving: bool,
}

structure!(PathConf { link_max, name_max, no_trunc, chown_restricted, case_insensitive, case_preserving });
