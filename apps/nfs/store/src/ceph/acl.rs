//! POSIX access control lists, as CephFS keeps them in an extended attribute (acl(5), and the
//! layout of `linux/posix_acl_xattr.h`).

use std::ffi::CStr;

/// The extended attribute of the access ACL.
pub(super) const ACCESS_LIST: &CStr = c"system.posix_acl_access";
/// Bytes of the longest list that is evaluated: 64 entries. A longer list grants nothing.
pub(super) const LIST_MAX: usize = 4 + 64 * ENTRY_LEN;

const VERSION: u32 = 2;
const ENTRY_LEN: usize = 8;

const USER: u16 = 0x02;
const GROUP_OF_FILE: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// A user to evaluate a list for. Not the file's owner, whose rights are in the mode.
pub(super) struct AclVerdict<'a> {
    pub(super) uid: u32,
    /// All groups of the user.
    pub(super) groups: &'a [u32],
}

#[derive(Clone, Copy)]
struct AclEntry {
    tag: u16,
    rights: u32,
    id: u32,
}

/// Rights (`rwx`) that a list grants to a user who does not own the file; the file's group is
/// `gid`. An unreadable list grants none.
pub(super) fn rights(list: &[u8], gid: u32, user: &AclVerdict<'_>) -> u32 {
    let Some(entries) = parse(list) else { return 0 };
    let first = |tag| entries.clone().find(|entry| entry.tag == tag).map(|entry| entry.rights);
    let mask = first(MASK).unwrap_or(0o7);
    if let Some(named) = entries.clone().find(|it| it.tag == USER && it.id == user.uid) {
        return named.rights & mask;
    }
    let is_in = |entry: &AclEntry| match entry.tag {
        GROUP_OF_FILE => user.groups.contains(&gid),
        GROUP => user.groups.contains(&entry.id),
        _ => false,
    };
    let mut matching = entries.clone().filter(is_in).peekable();
    if matching.peek().is_some() {
        // POSIX requires one entry to grant everything requested. The union can exceed that when
        // two groups grant different rights, so callers ask for one right at a time.
        return matching.fold(0, |all, entry| all | entry.rights) & mask;
    }
    first(OTHER).unwrap_or(0)
}

fn parse(list: &[u8]) -> Option<impl Iterator<Item = AclEntry> + Clone + '_> {
    let (version, entries) = list.split_first_chunk::<4>()?;
    let (entries, rest) = entries.as_chunks::<ENTRY_LEN>();
    if u32::from_le_bytes(*version) != VERSION || !rest.is_empty() {
        return None;
    }
    Some(entries.iter().map(|[t0, t1, r0, r1, i0, i1, i2, i3]| AclEntry {
        tag: u16::from_le_bytes([*t0, *t1]),
        rights: u32::from(u16::from_le_bytes([*r0, *r1])) & 0o7,
        id: u32::from_le_bytes([*i0, *i1, *i2, *i3]),
    }))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const OWNER: u16 = 0x01;

    /// A list as it is stored.
    pub(in crate::ceph) fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut octets = VERSION.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            octets.extend(tag.to_le_bytes());
            octets.extend(rights.to_le_bytes());
            octets.extend(id.to_le_bytes());
        }
        octets
    }

    /// Owner all, user 7 to read and write, group 50 to read, group 60 to write, others to search.
    pub(in crate::ceph) fn example(mask: u16) -> Vec<u8> {
        let none = u32::MAX;
        list(&[
            (OWNER, 7, none),
            (USER, 6, 7),
            (GROUP_OF_FILE, 5, none),
            (GROUP, 4, 50),
            (GROUP, 2, 60),
            (MASK, mask, none),
            (OTHER, 1, none),
        ])
    }

    fn judged(list: &[u8], uid: u32, groups: &[u32]) -> u32 {
        rights(list, 40, &AclVerdict { uid, groups })
    }

    #[test]
    fn a_list_gives_what_acl_5_says() {
        let all = example(7);
        assert_eq!(judged(&all, 7, &[50, 60]), 6, "his own entry decides");
        assert_eq!(judged(&all, 8, &[40]), 5, "the file's group");
        assert_eq!(judged(&all, 8, &[50]), 4);
        assert_eq!(judged(&all, 8, &[50, 60]), 6);
        assert_eq!(judged(&all, 8, &[70]), 1, "others");
        let masked = example(4);
        assert_eq!(judged(&masked, 7, &[]), 4);
        assert_eq!(judged(&masked, 8, &[60]), 0, "a group that matches, though it gives nothing");
        assert_eq!(judged(&masked, 8, &[70]), 1, "the mask is not for others");
    }

    #[test]
    fn a_list_that_is_damaged_gives_nothing() {
        let good = example(7);
        for cut in 0..good.len() {
            let all = judged(&good[..cut], 9, &[70]);
            assert!(all == 0 || cut == good.len(), "{cut} octets");
        }
        let mut other = good;
        other[0] = 3;
        assert_eq!(judged(&other, 7, &[]), 0);
    }
}
