//! Users and groups of this host by names and numbers, from its name service (getpwnam(3),
//! getpwuid(3), getgrnam(3), getgrgid(3), getgrouplist(3)). Calls wait for that service, so no
//! shard makes them: the thread that accepts Kerberos contexts does, and the thread of a
//! [`HostBook`](super::host_book::HostBook).

use nix::{
    errno::Errno,
    unistd::{Gid, Group, Uid, User, getgrouplist},
};
use std::{ffi::CString, io};

/// A user with its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedUser {
    /// The user.
    pub uid: u32,
    /// Its primary group.
    pub gid: u32,
    /// All its groups, the primary one included.
    pub groups: Vec<u32>,
}

/// The user `name`; none if this host has no such user.
///
/// # Errors
/// Failures of the name service.
pub fn by_name(name: &str) -> io::Result<Option<NamedUser>> {
    let found = known(User::from_name(name))?;
    let Some(user) = found else { return Ok(None) };
    let groups = getgrouplist(&CString::new(user.name)?, user.gid)?;
    let groups = groups.into_iter().map(Gid::as_raw).collect();
    Ok(Some(NamedUser { uid: user.uid.as_raw(), gid: user.gid.as_raw(), groups }))
}

/// The number of the user `name`; none if this host has no such user.
///
/// # Errors
/// Failures of the name service.
pub fn uid_of(name: &str) -> io::Result<Option<u32>> {
    Ok(known(User::from_name(name))?.map(|user| user.uid.as_raw()))
}

/// The number of the group `name`; none if this host has no such group.
///
/// # Errors
/// Failures of the name service.
pub fn gid_of(name: &str) -> io::Result<Option<u32>> {
    Ok(known(Group::from_name(name))?.map(|group| group.gid.as_raw()))
}

/// The name of a user; none if this host has no such user.
///
/// # Errors
/// Failures of the name service.
pub fn name_of_user(uid: u32) -> io::Result<Option<String>> {
    Ok(known(User::from_uid(Uid::from_raw(uid)))?.map(|user| user.name))
}

/// The name of a group; none if this host has no such group.
///
/// # Errors
/// Failures of the name service.
pub fn name_of_group(gid: u32) -> io::Result<Option<String>> {
    Ok(known(Group::from_gid(Gid::from_raw(gid)))?.map(|group| group.name))
}

/// An answer of the name service.
fn known<T>(found: nix::Result<Option<T>>) -> io::Result<Option<T>> {
    match found {
        // Some name services answer so about unknown names and numbers (getpwnam(3)).
        Err(Errno::ENOENT | Errno::ESRCH) => Ok(None),
        found => Ok(found?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_and_a_name_that_is_none_is_not() {
        let root = by_name("root").unwrap().unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0));
        for name in ["", "no-such-user-here", "a\0b", "a:b"] {
            assert_eq!(by_name(name).unwrap(), None, "{name:?}");
            assert_eq!((uid_of(name).unwrap(), gid_of(name).unwrap()), (None, None), "{name:?}");
        }
    }

    #[test]
    fn names_and_numbers_of_root_lead_to_each_other() {
        assert_eq!(name_of_user(0).unwrap().as_deref(), Some("root"));
        assert_eq!(uid_of("root").unwrap(), Some(0));
        let group = name_of_group(0).unwrap().expect("every host has a group 0");
        assert_eq!(gid_of(&group).unwrap(), Some(0));
        let free = 3_999_999_999;
        assert_eq!((name_of_user(free).unwrap(), name_of_group(free).unwrap()), (None, None));
    }
}
