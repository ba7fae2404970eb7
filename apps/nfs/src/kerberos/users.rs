//! The user of this host that a Kerberos principal acts as: by the map file, else by the local name
//! of krb5.conf (`auth_to_local`) and this host's name service.

use super::{
    name_service::{NameService, UserQuery},
    user_map::UserMap,
};
use stag_nfs_store::exports::host_users;
use stag_protocol::rpc::UnixUser;
use std::{
    fmt, io,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// Users of principals. The acceptor asks it, and a reload changes it.
pub struct KerberosUsers {
    names: NameService,
    map: Mutex<UserMap>,
}

/// The user of a principal, or the reason for which it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PrincipalUser {
    /// A user.
    User(UnixUser),
    /// It is a service or a host, as in `nfs/host@REALM` or `HOST$@REALM`, and the map does not
    /// have it.
    Service,
    /// krb5.conf gives it no local name: usually, its realm is not the default one.
    NoLocalName,
    /// This host has no user of its local name.
    Unknown,
    /// Its local name is root's, which only the map grants.
    Root,
}

impl PrincipalUser {
    /// The user, if there is one.
    pub(super) const fn unix(self) -> Option<UnixUser> {
        match self {
            Self::User(user) => Some(user),
            _ => None,
        }
    }

    /// The reason for which it has none, if an operator may want to change that.
    pub(super) const fn reason(self) -> Option<&'static str> {
        match self {
            Self::User(_) | Self::Service => None,
            Self::NoLocalName => Some("krb5.conf gives it no local name (auth_to_local)"),
            Self::Unknown => Some("this host has no user of its local name"),
            Self::Root => Some("its local name is root's, which only the map grants"),
        }
    }
}

impl KerberosUsers {
    /// Users by this map and by the name service of this host.
    #[must_use]
    pub fn new(map: UserMap) -> Self {
        Self::asking(map, Box::new(host_users::by_name))
    }

    /// The same with another name service.
    pub(super) fn asking(map: UserMap, query: Box<UserQuery>) -> Self {
        Self { names: NameService::new(query), map: Mutex::new(map) }
    }

    /// Takes the map that `other` has, and asks the name service again. Returns true if the map
    /// differs, so that contexts may have other users than before.
    pub fn follow(&self, other: &Self) -> bool {
        let new = other.map().clone();
        self.names.forget();
        let mut map = self.map();
        let has_changed = *map != new;
        *map = new;
        has_changed
    }

    /// The number of principals in the map.
    #[must_use]
    pub fn mapped(&self) -> usize {
        self.map().len()
    }

    /// The user of `principal`, which krb5.conf gives the name `local`.
    ///
    /// # Errors
    /// The name service failed, or has not answered yet.
    pub(super) fn of(
        &self,
        principal: &str,
        local: Option<&str>,
        now: Instant,
    ) -> io::Result<PrincipalUser> {
        if let Some(user) = self.map().user(principal) {
            return Ok(PrincipalUser::User(user));
        }
        if is_service(principal) {
            return Ok(PrincipalUser::Service);
        }
        let Some(local) = local else { return Ok(PrincipalUser::NoLocalName) };
        Ok(match self.names.user(local, now)? {
            None => PrincipalUser::Unknown,
            Some(UnixUser { uid: 0, .. }) => PrincipalUser::Root,
            Some(user) => PrincipalUser::User(user),
        })
    }

    fn map(&self) -> MutexGuard<'_, UserMap> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for KerberosUsers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KerberosUsers").field("mapped", &self.mapped()).finish_non_exhaustive()
    }
}

/// True for a name of several components, and for a host of Active Directory (`CLIENT$@REALM`). A
/// slash inside a component is escaped.
fn is_service(principal: &str) -> bool {
    let name = principal.rsplit_once('@').map_or(principal, |(name, _)| name);
    let mut is_escaped = false;
    let has_slash = name.chars().any(|c| {
        let separates = c == '/' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        separates
    });
    has_slash || name.ends_with('$')
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_nfs_store::exports::host_users::NamedUser;
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    /// Users whose name service knows alice, root and, as another name of that one, toor.
    fn users(map: UserMap) -> (KerberosUsers, Arc<AtomicU32>) {
        let asked = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&asked);
        let query = move |name: &str| {
            counted.fetch_add(1, Ordering::Relaxed);
            let user = |uid, gid| NamedUser { uid, gid, groups: (90..120).collect() };
            match name {
                "alice" => Ok(Some(user(1000, 100))),
                "root" | "toor" => Ok(Some(user(0, 0))),
                _ => Ok(None),
            }
        };
        (KerberosUsers::asking(map, Box::new(query)), asked)
    }

    fn map(text: &str) -> UserMap {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("map");
        std::fs::write(&path, text).unwrap();
        UserMap::read(&path).unwrap()
    }

    #[test]
    fn the_map_comes_first_and_then_the_local_name() {
        let (users, _) = users(map("alice@A = 5:6\nroot/admin@A = 0:0\nnfs/c@A = 7:8"));
        let now = Instant::now();
        let of = |principal: &str, local| users.of(principal, local, now).unwrap();
        let unix = |user: PrincipalUser| user.unix().map(|user| (user.uid, user.gid));
        assert_eq!(unix(of("alice@A", Some("alice"))), Some((5, 6)));
        assert_eq!(unix(of("alice@B", Some("alice"))), Some((1000, 100)));
        assert_eq!(unix(of("nfs/c@A", None)), Some((7, 8)));
        assert_eq!(unix(of("root/admin@A", None)), Some((0, 0)), "the map may grant root");
        let none = [
            ("nfs/d@A", Some("alice"), PrincipalUser::Service),
            ("host/d@A", None, PrincipalUser::Service),
            ("eve@C", None, PrincipalUser::NoLocalName),
            ("eve@A", Some("eve"), PrincipalUser::Unknown),
            ("root@A", Some("root"), PrincipalUser::Root),
            ("ann@A", Some("toor"), PrincipalUser::Root),
        ];
        for (principal, local, why) in none {
            assert_eq!(of(principal, local), why, "{principal}");
            assert_eq!(why.unix(), None);
        }
    }

    #[test]
    fn the_primary_group_is_not_repeated_and_16_others_are_taken() {
        let (users, _) = users(UserMap::default());
        let alice = users.of("alice@A", Some("alice"), Instant::now()).unwrap().unix().unwrap();
        let expected: Vec<u32> = (90..100).chain(101..107).collect();
        assert_eq!(alice.gids.list(), expected);
    }

    #[test]
    fn a_reload_takes_the_other_map_and_asks_again() {
        let (users, asked) = users(map("alice@A = 5:6"));
        let now = Instant::now();
        let uid = |principal| users.of(principal, Some("alice"), now).unwrap().unix().unwrap().uid;
        assert_eq!((uid("alice@A"), uid("x@A")), (5, 1000));
        assert!(!users.follow(&KerberosUsers::new(map("alice@A = 5:6 # the same"))));
        assert_eq!((uid("x@A"), asked.load(Ordering::Relaxed)), (1000, 2));
        assert!(users.follow(&KerberosUsers::new(map("alice@A = 7:6"))));
        assert_eq!((uid("alice@A"), users.mapped()), (7, 1));
    }

    #[test]
    fn a_name_of_several_components_and_a_host_of_active_directory_are_services() {
        for (principal, expected) in [
            ("a@A", false),
            ("a/b@A", true),
            ("a\\/b@A", false),
            ("a\\\\/b@A", true),
            ("CLIENT$@A", true),
            ("a$b@A$", false),
        ] {
            assert_eq!(is_service(principal), expected, "{principal}");
        }
    }
}
