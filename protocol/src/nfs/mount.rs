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
                // RFC 1813 §5.1.4 [1813-106]: a path of MOUNT has at most 1024 octets, a name 255
                reader.opaque(Self::MAX).map(Self)
            }
            fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
                debug_assert!(
                    self.0.len() <= Self::MAX,
                    "a string of the MOUNT protocol has a limit"
                );
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
    /// All procedures, indexed by number.
    pub const ALL: [Self; 6] =
        [Self::Null, Self::Mnt, Self::Dump, Self::Umnt, Self::UmntAll, Self::Export];

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

    /// Writes the arguments, which follow the call header.
    pub fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::Mnt(path) | Self::Umnt(path) => path.emit(writer),
            Self::Null | Self::Dump | Self::UmntAll | Self::Export => Ok(()),
        }
    }

    /// Procedure that these arguments belong to.
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

/// The credential flavors that a server accepts for a file handle, best first (RFC 1813 §5.2.1).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Flavors<'a>(&'a [u8]);

impl Flavors<'static> {
    /// AUTH_SYS only.
    pub const SYS: Self = Flavors(&[0, 0, 0, 1]);
}

impl<'a> Flavors<'a> {
    /// Flavors whose numbers are these octets, four for each.
    pub const fn over(words: &'a [[u8; 4]]) -> Self {
        Self(words.as_flattened())
    }
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

/// Results of a successful MNT (`mountres3_ok`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MntOk<'a> {
    /// The export's root.
    pub handle: FileHandle,
    /// Authentication flavors that the export accepts.
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
    /// Directory that the host has mounted.
    pub directory: Path<'a>,
}

structure!(Mount<'a> { host, directory });

/// One export, and who may mount it (`exportnode`).
#[derive(Clone, Debug, PartialEq)]
pub struct Export<'a> {
    /// Directory that is exported.
    pub directory: Path<'a>,
    /// Hosts that may mount the directory; an empty list admits all.
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

    /// Writes the results, which follow the reply header.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::survives;
    use std::vec::Vec;

    #[test]
    fn each_procedure_lies_at_its_number_and_there_are_no_more() {
        for (number, procedure) in (0..).zip(Procedure::ALL) {
            assert_eq!((procedure.number(), Procedure::new(number)), (number, Some(procedure)));
        }
        assert_eq!(Procedure::new(6), None);
    }

    #[test]
    fn every_call_survives_a_round_trip_and_no_cut_does() {
        let path = Path(b"/export/home");
        let calls = [
            Call::Null,
            Call::Mnt(path),
            Call::Dump,
            Call::Umnt(path),
            Call::UmntAll,
            Call::Export,
        ];
        for call in calls {
            let mut out = [0xee; 64];
            let mut writer = Writer::new(&mut out);
            call.emit(&mut writer).unwrap();
            let len = writer.len();
            assert_eq!(Call::parse(call.procedure(), Reader::new(&out[..len])), Ok(call));
            assert_eq!(
                Call::parse(call.procedure(), Reader::new(&out[..len + 4])),
                Err(Error::Trailing)
            );
            for cut in 0..len {
                assert_eq!(
                    Call::parse(call.procedure(), Reader::new(&out[..cut])),
                    Err(Error::Short)
                );
            }
        }
    }

    #[test]
    fn a_path_has_at_most_1024_octets_and_a_host_255() {
        survives!(Path(&[b'p'; 1024]), Path<'_>);
        survives!(HostName(&[b'h'; 255]), HostName<'_>);
        let long = |len: u32| [&len.to_be_bytes()[..], &[b'x'; 1028]].concat();
        assert_eq!(Path::parse(&mut Reader::new(&long(1025))), Err(Error::TooLong));
        assert_eq!(HostName::parse(&mut Reader::new(&long(256))), Err(Error::TooLong));
    }

    #[test]
    fn a_mount_gives_a_handle_and_flavors_or_says_why_not() {
        let handle = FileHandle::new(b"root").unwrap();
        let wire = survives!(Ok(MntOk { handle, flavors: Flavors::SYS }), MntResult<'_>);
        #[rustfmt::skip]
        let expected = [
            0, 0, 0, 0, 0, 0, 0, 4, b'r', b'o', b'o', b't', 0, 0, 0, 1, 0, 0, 0, 1,
        ];
        assert_eq!(wire, expected);
        assert_eq!(survives!(Err(Status::Acces), MntResult<'_>), [0, 0, 0, 13]);
        assert_eq!(MntResult::parse(&mut Reader::new(&[0, 0, 0, 3])), Err(Error::BadValue));

        let flavors = [0, 0, 0, 2, 0, 5, 0xf3, 0x73, 0, 0, 0, 1];
        let flavors = Flavors::parse(&mut Reader::new(&flavors)).unwrap();
        assert_eq!(flavors.iter().collect::<Vec<_>>(), [390_003, 1]);
        survives!(Ok(MntOk { handle, flavors }), MntResult<'_>);
        for count in [3, u32::MAX / 4 + 2, u32::MAX] {
            assert!(
                Flavors::parse(&mut Reader::new(&[&count.to_be_bytes()[..], &[0; 8]].concat()))
                    .is_err()
            );
        }
    }

    #[test]
    fn mounts_are_listed_in_place() {
        let mounts = [
            Mount { host: HostName(b"a"), directory: Path(b"/x") },
            Mount { host: HostName(b""), directory: Path(b"/y") },
        ];
        let mut out = [0xee; 256];
        let mut writer = Writer::new(&mut out);
        let mut list = ListWriter::begin(&mut writer, 0).unwrap();
        for mount in &mounts {
            list.push(|writer| mount.emit(writer)).unwrap();
        }
        let len = list.finish().len();
        let Ok(Reply::Dump(list)) = Reply::parse(Procedure::Dump, Reader::new(&out[..len])) else {
            panic!("two mounts are a list of mounts");
        };
        assert_eq!(list.clone().collect::<Vec<_>>(), mounts);
        assert_eq!(survives!(list, List<'_, Mount<'_>>), out[..len]);
    }

    #[test]
    fn exports_are_listed_in_place_and_one_that_does_not_fit_leaves_no_trace() {
        let hosts = [HostName(b"10.0.0.0/8"), HostName(b"node")];
        for room in 0..80 {
            let mut out = [0xee; 80];
            let mut writer = Writer::new(&mut out[..room]);
            let Ok(mut list) = ListWriter::begin(&mut writer, 0) else {
                assert!(room < 4);
                continue;
            };
            let fitted = [
                push_export(&mut list, Path(b"/all"), []).is_ok(),
                push_export(&mut list, Path(b"/some"), hosts).is_ok(),
            ];
            let len = list.finish().len();
            assert_eq!(fitted, [room >= 16 + 4, room >= 16 + 52 + 4], "room for {room}");
            let Ok(Reply::Export(exports)) =
                Reply::parse(Procedure::Export, Reader::new(&out[..len]))
            else {
                panic!("what was written is a list of exports, room for {room}");
            };
            assert_eq!(exports.len(), fitted.iter().filter(|fits| **fits).count());
        }
        let mut out = [0xee; 128];
        let mut writer = Writer::new(&mut out);
        let mut list = ListWriter::begin(&mut writer, 0).unwrap();
        push_export(&mut list, Path(b"/all"), []).unwrap();
        push_export(&mut list, Path(b"/some"), hosts).unwrap();
        let len = list.finish().len();
        let exports = List::<Export<'_>>::parse(&mut Reader::new(&out[..len])).unwrap();
        let read =
            exports.clone().map(|export| (export.directory, export.groups.collect::<Vec<_>>()));
        assert_eq!(
            read.collect::<Vec<_>>(),
            [(Path(b"/all"), Vec::new()), (Path(b"/some"), hosts.to_vec())]
        );
        assert_eq!(survives!(exports, List<'_, Export<'_>>), out[..len]);
    }

    #[test]
    fn every_reply_is_parsed_whole_and_nothing_may_follow() {
        for (procedure, wire) in [
            (Procedure::Null, 0),
            (Procedure::Umnt, 0),
            (Procedure::UmntAll, 0),
            (Procedure::Dump, 4),
        ] {
            let octets = [0; 8];
            let reply = Reply::parse(procedure, Reader::new(&octets[..wire])).unwrap();
            let mut out = [0xee; 8];
            let mut writer = Writer::new(&mut out);
            reply.emit(&mut writer).unwrap();
            assert_eq!(writer.len(), wire);
            assert_eq!(
                Reply::parse(procedure, Reader::new(&octets[..wire + 4])),
                Err(Error::Trailing)
            );
        }
    }
}
