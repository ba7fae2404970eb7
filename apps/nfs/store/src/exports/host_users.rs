//! Users of this host by their names, from its name service (getpwnam(3), getgrouplist(3)). Calls
//! wait for that service, so no shard makes them; the thread that accepts Kerberos contexts does.

use nix::{
    errno::Errno,
    unistd::{Gid, User, getgrouplist},
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
    let found = match User::from_name(name) {
        // Some name services answer so about unknown users (getpwnam(3)).
        Err(Errno::ENOENT | Errno::ESRCH) => None,
        found => found?,
    };
    let Some(user) = found else { return Ok(None) };
    let groups = getgrouplist(&CString::new(user.name)?, user.gid)?;
    let groups = groups.into_iter().map(Gid::as_raw).collect();
    Ok(Some(NamedUser { uid: user.uid.as_raw(), gid: user.gid.as_raw(), groups }))
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
        }
    }
}
