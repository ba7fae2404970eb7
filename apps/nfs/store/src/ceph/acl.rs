//! POSIX access control lists of CephFS (acl(5)), which keeps them in an extended attribute.

use crate::contract::acl::{ACL_ENTRY_LEN, ACL_HEAD_LEN, AclSubject, acl_entries};

/// Bytes of the longest list that is evaluated: 64 entries. A longer list grants nothing.
pub(super) const LIST_MAX: usize = ACL_HEAD_LEN + 64 * ACL_ENTRY_LEN;

/// A user to evaluate a list for. Not the file's owner, whose rights are in the mode.
pub(super) struct AclVerdict<'a> {
    pub(super) uid: u32,
    /// All groups of the user.
    pub(super) groups: &'a [u32],
}

/// Rights (`rwx`) that a list grants to a user who does not own the file; the file's group is
/// `gid`. An unreadable list grants none.
pub(super) fn rights(list: &[u8], gid: u32, user: &AclVerdict<'_>) -> u32 {
    let Some(entries) = acl_entries(list) else { return 0 };
    let of =
        |subject| entries.clone().find(|entry| entry.subject == subject).map(|entry| entry.rights);
    let mask = of(AclSubject::Mask).unwrap_or(0o7);
    if let Some(rights) = of(AclSubject::User(user.uid)) {
        return rights & mask;
    }
    let mut matching = entries.clone().filter(|entry| match entry.subject {
        AclSubject::OwningGroup => user.groups.contains(&gid),
        AclSubject::Group(id) => user.groups.contains(&id),
        _ => false,
    });
    if let Some(first) = matching.next() {
        // POSIX requires one entry to grant everything requested. The union can exceed that when
        // two groups grant different rights, so callers ask for one right at a time.
        return matching.fold(first.rights, |all, entry| all | entry.rights) & mask;
    }
    of(AclSubject::Other).unwrap_or(0)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{Acl, AclEntry};

    /// Owner all, user 7 to read and write, group 50 to read, group 60 to write, others to search.
    pub(in crate::ceph) fn example(mask: u32) -> Vec<u8> {
        use AclSubject as S;
        let entries = [
            (S::Owner, 7),
            (S::User(7), 6),
            (S::OwningGroup, 5),
            (S::Group(50), 4),
            (S::Group(60), 2),
            (S::Mask, mask),
            (S::Other, 1),
        ];
        let entries = entries.map(|(subject, rights)| AclEntry::new(subject, rights));
        Acl::new(entries.to_vec()).unwrap().octets()
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
