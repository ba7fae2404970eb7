//! MOUNT version 3: from an export's path to its file handle (RFC 1813 §5).
//!
//! It runs over TCP only: nothing in it is DDP-eligible (RFC 8267 §5.1).

use core::fmt;

use super::{List, ListWriter};
use crate::nfs::v3::FileHandle;
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer, enumeration, structure};

/// The program number (RFC 1813 §5.1.2).
pub const PROGRAM: u32 = 100_005;
/// The version number (RFC 1813 §5.1.2).
pub const VERSION: u32 = 3;

/// A path on the server, of any octets (`dirpath`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Path<'a>(pub &'a [u8]);

impl Path<'_> {
    /// Octets of the longest (`MNTPATHLEN`, RFC 1813 §5.1.4).
    pub const MAX: usize = 1024;
}

/// A host, or a group of hosts (`name`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HostName<'a>(pub &'a [u8]);

impl HostName<'_> {
    /// Octets of the longest (`MNTNAMLEN`, RFC 1813 §5.1.4).
    pub const MAX: usize = 255;
}

macro_rules! bounded_string {
    ($name:ident) => {
        impl<'a> Codec<'a> for $name<'a> {
            fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
                reader.opaque(Self::MAX).map(Self)
            }
            fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
                debug_assert!(self.0.len() <= Self::MAX, "a string of the MOUNT protocol has a limit");
                writer.opaque(self.0)
            }
        }

        impl fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "\"{}\"", self.0.escape_ascii())
            }
        }
    };
}

bounded_string!(Path);
bounded_string!(HostName);

/// A procedure, by its number (RFC 1813 §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Procedure {
    /// Does nothing.
    Null = 0,
    /// Gives an export's file handle.
    Mnt = 1,
    /// Lists who has mounted what.
    Dump = 2,
    /// Takes one mount of the caller from that list.
    Umnt = 3,
    /// Takes all mounts of the caller from that list.
    UmntAll = 4,
    /// Lists the exports.
    Export = 5,
}

impl Procedure {
    /// All of them; each lies at its number.
    pub const ALL: [Self; 6] = [Self::Null, Self::Mnt, Self::Dump, Self::Umnt, Self::UmntAll, Self::Export];

    /// The procedure of this number; `None` is PROC_UNAVAIL.
    pub fn new(number: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        self as u32
    }
}

/// A call's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call<'a> {
    /// NULL has none.
    Null,
    /// The export to mount.
    Mnt(Path<'a>),
    /// DUMP has none.
    Dump,
    /// The export that the caller has left.
    Umnt(Path<'a>),
    /// UMNTALL has none.
    UmntAll,
    /// EXPORT has none.
    Export,
}

impl<'a> Call<'a> {
    /// The arguments of `procedure`, which are all that `reader` still holds.
    pub fn parse(procedure: Procedure, mut reader: Reader<'a>) -> Result<Self, Error> {
        let call = match procedure {
            Procedure::Null => Self::Null,
            Procedure::Mnt => Self::Mnt(Codec::parse(&mut reader)?),
            Procedure::Dump => Self::Dump,
            Procedure::Umnt => Self::Umnt(Codec::parse(&mut reader)?),
            Procedure::UmntAll => Self::UmntAll,
            Procedure::Export => Self::Export,
        };
        reader.finish().map(|()| call)
    }

    /// Writes the arguments behind the call header.
    pub fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::Mnt(path) | Self::Umnt(path) => path.emit(writer),
            Self::Null | Self::Dump | Self::UmntAll | Self::Export => Ok(()),
        }
    }

    /// Whose arguments they are.
    pub const fn procedure(&self) -> Procedure {
        match self {
            Self::Null => Procedure::Null,
            Self::Mnt(_) => Procedure::Mnt,
            Self::Dump => Procedure::Dump,
            Self::Umnt(_) => Procedure::Umnt,
            Self::UmntAll => Procedure::UmntAll,
            Self::Export => Procedure::Export,
        }
    }
}

/// Why MNT failed (`mountstat3` without success, RFC 1813 §5.1.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Status {
    /// Only a privileged user or the owner may do this.
    Perm = 1,
    /// There is no such export.
    NoEnt = 2,
    /// The storage failed.
    Io = 5,
    /// The caller may not mount it.
    Acces = 13,
    /// It is not a directory.
    NotDir = 20,
    /// The path is invalid.
    Inval = 22,
    /// The path is too long.
    NameTooLong = 63,
    /// The operation is not supported.
    NotSupp = 10004,
    /// The server failed.
    ServerFault = 10006,
}

enumeration!(Status { Perm, NoEnt, Io, Acces, NotDir, Inval, NameTooLong, NotSupp, ServerFault });

/// The credential flavors that a server takes for a file handle, best first (RFC 1813 §5.2.1).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Flavors<'a>(&'a [u8]);

impl Flavors<'static> {
    /// AUTH_SYS only.
    pub const SYS: Self = Flavors(&[0, 0, 0, 1]);
}

impl Flavors<'_> {
    /// The flavors.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        let (words, _) = self.0.as_chunks();
        words.iter().map(|word| u32::from_be_bytes(*word))
    }
}

impl<'a> Codec<'a> for Flavors<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let count = usize::try_from(reader.u32()?).map_err(|_| Error::TooLong)?;
        reader.fixed(count.checked_mul(4).ok_or(Error::TooLong)?).map(Self)
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u32(u32::try_from(self.0.len() / 4).map_err(|_| NoRoom)?)?;
        writer.fixed(self.0)
    }
}

impl fmt::Debug for Flavors<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// What MNT gives (`mountres3_ok`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MntOk<'a> {
    /// The export's root.
    pub handle: FileHandle,
    /// How calls for it may be authenticated.
    pub flavors: Flavors<'a>,
}

structure!(MntOk<'a> { handle, flavors });

/// Results of MNT (`mountres3`).
pub type MntResult<'a> = Result<MntOk<'a>, Status>;

impl<'a> Codec<'a> for MntResult<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        if reader.clone().u32()? == 0 {
            reader.u32()?;
            return MntOk::parse(reader).map(Ok);
        }
        Status::parse(reader).map(Err)
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Ok(mounted) => {
                writer.u32(0)?;
                mounted.emit(writer)
            }
            Err(status) => status.emit(writer),
        }
    }
}

/// One mount of one client (`mountbody`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount<'a> {
    /// The client.
    pub host: HostName<'a>,
    /// What it has mounted.
    pub directory: Path<'a>,
}

structure!(Mount<'a> { host, directory });

/// One export, and who may mount it (`exportnode`).
#[derive(Clone, Debug, PartialEq)]
pub struct Export<'a> {
    /// What is exported.
    pub directory: Path<'a>,
    /// Who may mount it; nobody named means everybody.
    pub groups: List<'a, HostName<'a>>,
}

structure!(Export<'a> { directory, groups });

/// A reply's results.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply<'a> {
    /// NULL has none.
    Null,
    /// A file handle, or why not.
    Mnt(MntResult<'a>),
    /// All mounts. A server writes them in place with a [`ListWriter`].
    Dump(List<'a, Mount<'a>>),
    /// UMNT has none.
    Umnt,
    /// UMNTALL has none.
    UmntAll,
    /// All exports. A server writes them in place with [`push_export`].
    Export(List<'a, Export<'a>>),
}

impl<'a> Reply<'a> {
    /// The results of `procedure`, which are all that `reader` still holds.
    pub fn parse(procedure: Procedure, mut reader: Reader<'a>) -> Result<Self, Error> {
        let reply = match procedure {
            Procedure::Null => Self::Null,
            Procedure::Mnt => Self::Mnt(Codec::parse(&mut reader)?),
            Procedure::Dump => Self::Dump(Codec::parse(&mut reader)?),
            Procedure::Umnt => Self::Umnt,
            Procedure::UmntAll => Self::UmntAll,
            Procedure::Export => Self::Export(Codec::parse(&mut reader)?),
        };
        reader.finish().map(|()| reply)
    }

    /// Writes the results behind the reply header.
    pub fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::Null | Self::Umnt | Self::UmntAll => Ok(()),
            Self::Mnt(result) => result.emit(writer),
            Self::Dump(mounts) => mounts.emit(writer),
            Self::Export(exports) => exports.emit(writer),
        }
    }
}

/// Adds an export to the results of EXPORT. One that does not fit leaves no trace.
pub fn push_export<'g>(
    exports: &mut ListWriter<'_, '_>,
    directory: Path<'_>,
    groups: impl IntoIterator<Item = HostName<'g>>,
) -> Result<(), NoRoom> {
    exports.push(|writer| {
        directory.emit(writer)?;
        let mut list = ListWriter::begin(writer, 0)?;
        for group in groups {
            list.push(|writer| group.emit(writer))?;
        }
        list.finish();
        Ok(())
    })
}
