//! FSSTAT, FSINFO and PATHCONF: space, limits and properties of a file system (RFC 1813
//! §3.3.18–3.3.20).

use super::{Attributes, Failure, FileHandle, Time};
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer, structure};

/// Arguments of FSSTAT, FSINFO and PATHCONF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemArgs {
    /// The root of a file system for FSSTAT and FSINFO, any file for PATHCONF.
    pub object: FileHandle,
}

structure!(SystemArgs { object });

/// Results of a successful FSSTAT, FSINFO or PATHCONF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemOk<T> {
    /// Of the file asked about.
    pub attributes: Option<Attributes>,
    /// Answer to the question: [`FsStat`], [`FsInfo`] or [`PathConf`].
    pub about: T,
}

impl<'a, T: Codec<'a>> Codec<'a> for SystemOk<T> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Self { attributes: Codec::parse(reader)?, about: T::parse(reader)? })
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        self.attributes.emit(writer)?;
        self.about.emit(writer)
    }
}

/// Results of FSSTAT.
pub type FsStatResult = Result<SystemOk<FsStat>, Failure<Option<Attributes>>>;
/// Results of FSINFO.
pub type FsInfoResult = Result<SystemOk<FsInfo>, Failure<Option<Attributes>>>;
/// Results of PATHCONF.
pub type PathConfResult = Result<SystemOk<PathConf>, Failure<Option<Attributes>>>;

/// Space and files of a file system: total, free and available (`FSSTAT3resok` without the
/// attributes, RFC 1813 §3.3.18).
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

/// Limits and properties of a file system (`FSINFO3resok` without the attributes, RFC 1813
/// §3.3.19). Sizes in octets.
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

/// Rules for names in a file system (`PATHCONF3resok` without the attributes, RFC 1813 §3.3.20).
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

structure!(PathConf {
    link_max,
    name_max,
    no_trunc,
    chown_restricted,
    case_insensitive,
    case_preserving
});
