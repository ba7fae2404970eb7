//! POSIX access control lists (acl(5)), as stores keep them: sorted entries in the layout of
//! `linux/posix_acl_xattr.h`, which is that of the extended attributes [`ACCESS_LIST`] and
//! [`DEFAULT_LIST`] of Linux and CephFS.

use std::ffi::CStr;

/// The extended attribute of the list that decides about access.
pub const ACCESS_LIST: &CStr = c"system.posix_acl_access";
/// The extended attribute of the list that new objects in a directory begin with.
pub const DEFAULT_LIST: &CStr = c"system.posix_acl_default";
/// Entries of one list at most, as many as Linux takes from a client (`NFS_ACL_MAX_ENTRIES`).
pub const ACL_ENTRIES_MAX: usize = 1_024;
/// Bytes of the longest list.
pub const ACL_MAX: usize = ACL_HEAD_LEN + ACL_ENTRIES_MAX * ACL_ENTRY_LEN;
/// Bytes of both lists of an object at most, as [`AclPair`] reads them.
pub const ACL_PAIR_MAX: usize = 4 + 2 * ACL_MAX;

const VERSION: u32 = 2;
/// Bytes before the entries.
pub(crate) const ACL_HEAD_LEN: usize = 4;
/// Bytes of an entry.
pub(crate) const ACL_ENTRY_LEN: usize = 8;
/// Takes the place of the number in entries without one.
const NO_ID: u32 = u32::MAX;

/// Subject of an entry. The order is that of the entries in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AclSubject {
    /// The file's owner.
    Owner,
    /// The user of this number.
    User(u32),
    /// The file's group.
    OwningGroup,
    /// The group of this number.
    Group(u32),
    /// The maximum rights of all entries but those of the owner and of all others.
    Mask,
    /// Everybody else.
    Other,
}

impl AclSubject {
    const fn tag_and_id(self) -> (u16, u32) {
        match self {
            Self::Owner => (0x01, NO_ID),
            Self::User(id) => (0x02, id),
            Self::OwningGroup => (0x04, NO_ID),
            Self::Group(id) => (0x08, id),
            Self::Mask => (0x10, NO_ID),
            Self::Other => (0x20, NO_ID),
        }
    }

    /// The subject with this tag of the layout, which NFSACL has as well.
    pub const fn of_tag(tag: u16, id: u32) -> Option<Self> {
        Some(match tag {
            0x01 => Self::Owner,
            0x02 => Self::User(id),
            0x04 => Self::OwningGroup,
            0x08 => Self::Group(id),
            0x10 => Self::Mask,
            0x20 => Self::Other,
            _ => return None,
        })
    }
}

/// An entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AclEntry {
    /// Subject of the entry.
    pub subject: AclSubject,
    /// Its rights: read 4, write 2, execute 1.
    pub rights: u32,
}

impl AclEntry {
    /// An entry; other bits than the three rights are dropped.
    pub const fn new(subject: AclSubject, rights: u32) -> Self {
        Self { subject, rights: rights & 0o7 }
    }
}

/// The lists of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclPart {
    /// The list that decides about access.
    Access,
    /// The list of a directory that new objects in it begin with.
    Default,
}

impl AclPart {
    /// The extended attribute of this list.
    pub const fn attribute(self) -> &'static CStr {
        match self {
            Self::Access => ACCESS_LIST,
            Self::Default => DEFAULT_LIST,
        }
    }
}

/// Reads the entries of a list in their order; none if the bytes are no list.
pub fn acl_entries(list: &[u8]) -> Option<impl Iterator<Item = AclEntry> + Clone + '_> {
    let (version, entries) = list.split_first_chunk::<ACL_HEAD_LEN>()?;
    let (entries, rest) = entries.as_chunks::<ACL_ENTRY_LEN>();
    let entry = |[t0, t1, r0, r1, i0, i1, i2, i3]: &[u8; ACL_ENTRY_LEN]| {
        let id = u32::from_le_bytes([*i0, *i1, *i2, *i3]);
        let subject = AclSubject::of_tag(u16::from_le_bytes([*t0, *t1]), id)?;
        Some(AclEntry::new(subject, u32::from(u16::from_le_bytes([*r0, *r1]))))
    };
    let is_list = u32::from_le_bytes(*version) == VERSION && rest.is_empty();
    let entries = entries.iter().map(entry);
    (is_list && entries.clone().all(|entry| entry.is_some())).then(|| entries.flatten())
}

/// A list that is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidAcl;

/// A list in its order, with all entries that a list must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<AclEntry>);

impl Acl {
    /// Sorts entries into a list.
    ///
    /// # Errors
    /// Unless there is one entry each for the owner, the owning group and all others, at most one
    /// for each other subject, and a mask if there are users or groups by number.
    pub fn new(mut entries: Vec<AclEntry>) -> Result<Self, InvalidAcl> {
        entries.sort_unstable();
        let is_twice = |pair: &[AclEntry]| matches!(pair, [a, b] if a.subject == b.subject);
        let is_distinct = !entries.windows(2).any(is_twice);
        let has = |subject| entries.iter().any(|entry| entry.subject == subject);
        let has_named = entries
            .iter()
            .any(|entry| matches!(entry.subject, AclSubject::User(_) | AclSubject::Group(_)));
        let needed = [AclSubject::Owner, AclSubject::OwningGroup, AclSubject::Other];
        let is_whole = needed.into_iter().all(has) && (!has_named || has(AclSubject::Mask));
        let is_valid = is_distinct && is_whole && entries.len() <= ACL_ENTRIES_MAX;
        if is_valid { Ok(Self(entries)) } else { Err(InvalidAcl) }
    }

    /// The list of an object without one: its mode.
    pub fn of_mode(mode: u32) -> Self {
        let entry = |subject, shift: u32| AclEntry::new(subject, mode >> shift);
        let entries =
            [(AclSubject::Owner, 6), (AclSubject::OwningGroup, 3), (AclSubject::Other, 0)];
        Self(entries.into_iter().map(|(subject, shift)| entry(subject, shift)).collect())
    }

    /// Reads a list; none if the bytes are no valid one.
    pub fn parse(list: &[u8]) -> Option<Self> {
        Self::new(acl_entries(list)?.collect()).ok()
    }

    /// The entries in their order.
    pub fn entries(&self) -> &[AclEntry] {
        &self.0
    }

    /// The bytes by which stores keep it.
    pub fn octets(&self) -> Vec<u8> {
        let mut octets = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            let (tag, id) = entry.subject.tag_and_id();
            octets.extend(tag.to_le_bytes());
            octets.extend((entry.rights as u16).to_le_bytes());
            octets.extend(id.to_le_bytes());
        }
        octets
    }
}

/// The lists of an object. A store passes them as bytes: the length of the access list in four
/// bytes, the access list, the default list; either is empty if there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclPair {
    /// The list that decides about access; that of the mode if the object has no other.
    pub access: Acl,
    /// The list of a directory that new objects in it begin with.
    pub default: Option<Acl>,
}

impl AclPair {
    /// Reads the lists of an object with this mode; none if the bytes are no lists.
    pub fn parse(octets: &[u8], mode: u32) -> Option<Self> {
        let (len, lists) = octets.split_first_chunk::<4>()?;
        let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
        let (access, default) = lists.split_at_checked(len)?;
        let list = |octets: &[u8]| match octets {
            [] => Some(None),
            octets => Acl::parse(octets).map(Some),
        };
        Some(Self {
            access: list(access)?.unwrap_or_else(|| Acl::of_mode(mode)),
            default: list(default)?,
        })
    }

    /// Writes both lists to the front of `room`: `read` writes one of them to the room that it is
    /// given, and returns its length. Returns the length of all.
    ///
    /// # Errors
    /// Those of `read`; `too_small` for a room without place for the length.
    pub(crate) fn fill<E>(
        room: &mut [u8],
        too_small: E,
        mut read: impl FnMut(AclPart, &mut [u8]) -> Result<usize, E>,
    ) -> Result<u32, E> {
        let Some((head, lists)) = room.split_first_chunk_mut::<4>() else { return Err(too_small) };
        let access = read(AclPart::Access, lists)?.min(lists.len());
        let default = read(AclPart::Default, lists.split_at_mut(access).1)?;
        *head = (access as u32).to_le_bytes();
        Ok((head.len() + access + default) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Vec<AclEntry> {
        use AclSubject as S;
        [(S::Other, 1), (S::Mask, 7), (S::Group(7), 4), (S::User(5), 6), (S::Owner, 7)]
            .into_iter()
            .chain([(S::OwningGroup, 5), (S::User(4), 0)])
            .map(|(subject, rights)| AclEntry::new(subject, rights))
            .collect()
    }

    #[test]
    fn a_list_is_sorted_and_survives() {
        let list = Acl::new(example()).unwrap();
        assert!(list.entries().is_sorted());
        assert_eq!(Acl::parse(&list.octets()), Some(list.clone()));
        assert_eq!(list.octets().len(), 4 + 8 * example().len());
        for cut in 0..list.octets().len() {
            assert_ne!(Acl::parse(&list.octets()[..cut]), Some(list.clone()));
        }
    }

    #[test]
    fn a_list_without_a_needed_entry_or_with_a_subject_twice_is_refused() {
        for number in 0..example().len() {
            let mut entries = example();
            let subject = entries.remove(number).subject;
            let is_needed = !matches!(subject, AclSubject::User(_) | AclSubject::Group(_));
            assert_eq!(Acl::new(entries).is_err(), is_needed, "{subject:?}");
            let twice = AclEntry::new(subject, 0);
            assert_eq!(Acl::new([example(), vec![twice]].concat()), Err(InvalidAcl));
        }
        let users = (0..1_100).map(|id| AclEntry::new(AclSubject::User(id), 0));
        assert_eq!(Acl::new(users.chain(example().into_iter().skip(5)).collect()), Err(InvalidAcl));
    }

    #[test]
    fn an_object_without_a_list_has_that_of_its_mode() {
        let pair = AclPair::parse(&[0; 4], 0o4751).unwrap();
        let rights = pair.access.entries().iter().map(|entry| entry.rights).collect::<Vec<_>>();
        assert_eq!((rights, pair.default), (vec![7, 5, 1], None));
    }

    #[test]
    fn both_lists_go_to_a_room_and_come_back() {
        let (access, default) = (Acl::of_mode(0o640), Acl::new(example()).unwrap());
        let mut room = [9; 200];
        let len = AclPair::fill(&mut room, (), |part, room| {
            let octets = match part {
                AclPart::Access => access.octets(),
                AclPart::Default => default.octets(),
            };
            room[..octets.len()].copy_from_slice(&octets);
            Ok(octets.len())
        });
        let octets = &room[..len.unwrap() as usize];
        let pair = AclPair::parse(octets, 0).unwrap();
        assert_eq!((pair.access, pair.default), (access, Some(default)));
        for cut in 0..octets.len() {
            assert!(AclPair::parse(&octets[..cut], 0).is_none_or(|pair| pair.default.is_none()));
        }
    }
}
