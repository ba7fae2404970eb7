//! NFSACL version 3: access control lists, a companion protocol to NFS version 3.
//!
//! No RFC describes it: Solaris introduced it, and Linux implements it (`fs/nfsd/nfs3acl.c`,
//! `fs/nfs_common/nfsacl.c`). A list has two parts: the access list and, for a directory, the
//! default list that its new entries begin with. Nothing in it is DDP-eligible (RFC 8267 §5.2): a
//! SETACL with many entries is a long call, a GETACL has a long reply.

use core::ops::BitOr;

use crate::nfs::v3::{Attributes, Failure, FileHandle};
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer, structure};

/// The program number; it is served on the NFS port.
pub const PROGRAM: u32 = 100_227;
/// The version that accompanies NFS version 3.
pub const VERSION: u32 = 3;
/// Entries of one part at most: what Linux takes (`NFS_ACL_MAX_ENTRIES`).
pub const ENTRIES_MAX: usize = 1_024;

/// A procedure, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Procedure {
    /// Does nothing.
    Null = 0,
    /// Gives a file's lists.
    GetAcl = 1,
    /// Replaces a file's lists.
    SetAcl = 2,
}

impl Procedure {
    /// All procedures, indexed by number.
    pub const ALL: [Self; 3] = [Self::Null, Self::GetAcl, Self::SetAcl];

    /// Its number.
    pub const fn number(self) -> u32 {
        self as u32
    }
}

/// Parts of the access control lists that are requested, or given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Parts(pub u32);

impl Parts {
    /// The access list (`NFS_ACL`).
    pub const ACCESS: Self = Self(0x1);
    /// Number of entries in the access list (`NFS_ACLCNT`).
    pub const ACCESS_COUNT: Self = Self(0x2);
    /// The default list (`NFS_DFACL`).
    pub const DEFAULT: Self = Self(0x4);
    /// Number of entries in the default list (`NFS_DFACLCNT`).
    pub const DEFAULT_COUNT: Self = Self(0x8);
    /// All of them.
    pub const ALL: Self = Self(0xf);

    /// Returns true if every part of `other` is here.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Parts {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Codec<'_> for Parts {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        reader.u32().map(Self)
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u32(self.0)
    }
}

/// Subject of an entry, as the wire names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(pub u32);

impl Tag {
    /// The file's owner.
    pub const OWNER: Self = Self(0x01);
    /// The user of this number.
    pub const USER: Self = Self(0x02);
    /// The file's group.
    pub const OWNING_GROUP: Self = Self(0x04);
    /// The group of this number.
    pub const GROUP: Self = Self(0x08);
    /// The most that users and groups by number, and the owning group, get.
    pub const MASK: Self = Self(0x10);
    /// Everybody else.
    pub const OTHER: Self = Self(0x20);
    /// In every entry of a default list, combined with one of the others (`NFS_ACL_DEFAULT`).
    pub const DEFAULT: Self = Self(0x1000);
}

impl Codec<'_> for Tag {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        reader.u32().map(Self)
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u32(self.0)
    }
}

/// One entry (`aclent`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry {
    /// Subject of the entry.
    pub tag: Tag,
    /// The user or group, where the tag asks for one.
    pub id: u32,
    /// Read 4, write 2, execute 1.
    pub permissions: u32,
}

structure!(Entry { tag, id, permissions });

impl Entry {
    /// Octets on the wire.
    pub const LEN: usize = 12;
}

/// One part of a list: the number of entries, and the requested entries.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    /// Number of entries; more than are given if only the count was asked for.
    pub count: u32,
    octets: Given<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Given<'a> {
    Parsed(&'a [u8]),
    Ours(&'a [Entry]),
}

impl<'a> Entries<'a> {
    /// A part to send.
    pub fn new(entries: &'a [Entry]) -> Self {
        Self {
            count: u32::try_from(entries.len()).unwrap_or(u32::MAX),
            octets: Given::Ours(entries),
        }
    }

    /// The entries.
    pub fn iter(&self) -> impl Iterator<Item = Entry> {
        let (parsed, ours) = match self.octets {
            Given::Parsed(octets) => (octets, &[][..]),
            Given::Ours(entries) => (&[][..], entries),
        };
        let (entries, _) = parsed.as_chunks::<{ Entry::LEN }>();
        let parsed =
            entries.iter().filter_map(|octets| Entry::parse(&mut Reader::new(octets)).ok());
        parsed.chain(ours.iter().copied())
    }
}

impl PartialEq for Entries<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count && self.iter().eq(other.iter())
    }
}

impl<'a> Codec<'a> for Entries<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        let count = reader.u32()?;
        let given = usize::try_from(reader.u32()?).map_err(|_| Error::TooLong)?;
        if given > ENTRIES_MAX {
            return Err(Error::TooLong);
        }
        // No product of a bounded count and a constant wraps; every entry is a whole number of
        // words.
        Ok(Self { count, octets: Given::Parsed(reader.fixed(given * Entry::LEN)?) })
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        writer.u32(self.count)?;
        writer.u32(u32::try_from(self.iter().count()).map_err(|_| NoRoom)?)?;
        self.iter().try_for_each(|entry| entry.emit(writer))
    }
}

/// Both parts (`secattr`).
#[derive(Clone, Debug, PartialEq)]
pub struct Lists<'a> {
    /// Parts that are given.
    pub parts: Parts,
    /// Access list: users and groups with their rights.
    pub access: Entries<'a>,
    /// Default list: the entries that new objects in a directory begin with.
    pub default: Entries<'a>,
}

structure!(Lists<'a> { parts, access, default });

/// Arguments of GETACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetAclArgs {
    /// The file.
    pub object: FileHandle,
    /// Parts to give.
    pub parts: Parts,
}

structure!(GetAclArgs { object, parts });

/// Results of a successful GETACL.
#[derive(Clone, Debug, PartialEq)]
pub struct GetAclOk<'a> {
    /// Of the file.
    pub attributes: Option<Attributes>,
    /// The parts that were asked for.
    pub lists: Lists<'a>,
}

structure!(GetAclOk<'a> { attributes, lists });

/// Results of GETACL.
pub type GetAclResult<'a> = Result<GetAclOk<'a>, Failure<Option<Attributes>>>;

/// Arguments of SETACL.
#[derive(Clone, Debug, PartialEq)]
pub struct SetAclArgs<'a> {
    /// The file.
    pub object: FileHandle,
    /// Lists that replace the parts they name.
    pub lists: Lists<'a>,
}

structure!(SetAclArgs<'a> { object, lists });

/// Results of SETACL: the file's attributes, in either case.
pub type SetAclResult = Result<Option<Attributes>, Failure<Option<Attributes>>>;

/// Octets of the longest results of GETACL, and of SETACL.
pub const RESULTS_LEN_MAX: usize = 4 + 4 + Attributes::LEN + 4 + 2 * (8 + ENTRIES_MAX * Entry::LEN);
/// Octets of the longest arguments of SETACL.
pub const ARGUMENTS_LEN_MAX: usize = 4 + FileHandle::MAX + 4 + 2 * (8 + ENTRIES_MAX * Entry::LEN);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs::v3::Status;
    use crate::xdr::survives;
    use std::{vec, vec::Vec};

    fn entry(tag: Tag, id: u32, permissions: u32) -> Entry {
        Entry { tag, id, permissions }
    }

    #[test]
    fn each_procedure_lies_at_its_number() {
        assert_eq!(Procedure::ALL.map(Procedure::number), [0, 1, 2]);
    }

    #[test]
    fn lists_have_the_form_of_the_wire() {
        let access = [entry(Tag::OWNER, 0, 6), entry(Tag::USER, 1_000, 4)];
        let lists = Lists {
            parts: Parts::ACCESS | Parts::ACCESS_COUNT,
            access: Entries::new(&access),
            default: Entries::new(&[]),
        };
        let object = FileHandle::new(b"file").unwrap();
        let wire = survives!(SetAclArgs { object, lists }, SetAclArgs<'_>);
        #[rustfmt::skip]
        let expected = [
            0, 0, 0, 4, b'f', b'i', b'l', b'e', 0, 0, 0, 3,
            0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 6,
            0, 0, 0, 2, 0, 0, 3, 0xe8, 0, 0, 0, 4,
            0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(wire, expected);
        assert_eq!(
            survives!(GetAclArgs { object, parts: Parts::ALL }, GetAclArgs)[8..],
            [0, 0, 0, 15]
        );
    }

    #[test]
    fn results_are_lists_or_a_status_with_attributes() {
        let default = [entry(Tag(Tag::DEFAULT.0 | Tag::OTHER.0), 0, 0)];
        let lists =
            Lists { parts: Parts::ALL, access: Entries::new(&[]), default: Entries::new(&default) };
        survives!(Ok(GetAclOk { attributes: None, lists }), GetAclResult<'_>);
        let failure = Failure { status: Status::NotSupp, attributes: None };
        assert_eq!(survives!(Err(failure), SetAclResult), [0, 0, 0x27, 0x14, 0, 0, 0, 0]);
        survives!(Ok(None), SetAclResult);
    }

    #[test]
    fn a_count_may_come_without_entries_and_entries_have_a_limit() {
        let wire = [0, 0, 0, 7, 0, 0, 0, 0];
        let parsed = Entries::parse(&mut Reader::new(&wire)).unwrap();
        assert_eq!((parsed.count, parsed.iter().count()), (7, 0));
        let longest = vec![entry(Tag::USER, 1, 7); ENTRIES_MAX];
        let mut out = vec![0; 16_384];
        let mut writer = Writer::new(&mut out);
        Entries::new(&longest).emit(&mut writer).unwrap();
        let len = writer.len();
        let parsed = Entries::parse(&mut Reader::new(&out[..len])).unwrap();
        assert_eq!(parsed.iter().collect::<Vec<_>>(), longest);
        for given in [ENTRIES_MAX as u32 + 1, u32::MAX / 12 + 1, u32::MAX] {
            let wire = [&[0; 4], &given.to_be_bytes()[..], &[0; 64]].concat();
            assert_eq!(Entries::parse(&mut Reader::new(&wire)), Err(Error::TooLong));
        }
    }

    #[test]
    fn the_longest_messages_are_as_long_as_they_are_said_to_be() {
        let entries = vec![entry(Tag::USER, 1, 7); ENTRIES_MAX];
        let lists = Lists {
            parts: Parts::ALL,
            access: Entries::new(&entries),
            default: Entries::new(&entries),
        };
        let mut out = vec![0; 32_768];
        let mut writer = Writer::new(&mut out);
        let object = FileHandle::new(&[1; FileHandle::MAX]).unwrap();
        SetAclArgs { object, lists: lists.clone() }.emit(&mut writer).unwrap();
        assert_eq!(writer.len(), ARGUMENTS_LEN_MAX);
        let mut writer = Writer::new(&mut out);
        let without = GetAclOk { attributes: None, lists };
        GetAclResult::Ok(without).emit(&mut writer).unwrap();
        assert_eq!(writer.len(), RESULTS_LEN_MAX - Attributes::LEN);
    }
}
