//! A thread that acts as another user on files, like knfsd for each call (`nfsd_setuser`).
//!
//! The kernel checks access to files by the *thread's* file-system uid and gid, its groups and its
//! effective capabilities. glibc's wrappers change all threads of a process; here each call changes
//! the calling thread alone. Effective user and group stay the server's, so no other user may
//! signal or trace it.
//!
//! **The thread's identity** is stored in a thread-local, so that it is right for every caller, and
//! [`User::assume`] is free when nothing changes. While the thread acts as a user other than uid 0,
//! the capabilities that override permissions and quotas are not effective; [`raise`] makes single
//! ones effective for the lifetime of a guard.
//!
//! A thread inherits all this from its parent, except the stored identity: start threads before the
//! first [`User::assume`], or after [`leave`].

use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;

use rustix::fs::{Access, CWD};
use rustix::io::Errno;
use rustix::path::Arg;
use rustix::process::{Gid, getegid, geteuid, getgroups};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_groups,
};

use crate::groups::GroupList;

/// Groups of AUTH_SYS in addition to the first one, at most (RFC 5531 Appendix A).
const GROUPS_MAX: usize = 16;

/// Capabilities that override file permissions, quotas, and the space reserved to root: the set
/// that knfsd drops.
const OVERRIDES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::LINUX_IMMUTABLE)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::MAC_OVERRIDE);

/// Capabilities that a process needs to act as other users on files named by handle.
const NEEDED: [(CapabilitySet, &str); 4] = [
    (CapabilitySet::SETUID, "CAP_SETUID"),
    (CapabilitySet::SETGID, "CAP_SETGID"),
    (CapabilitySet::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
    (CapabilitySet::DAC_OVERRIDE, "CAP_DAC_OVERRIDE"),
];

/// A user with groups, as the kernel sees them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct User {
    uid: u32,
    gid: u32,
    groups_len: u8,
    groups: [Gid; GROUPS_MAX],
    /// The user's groups, if they are not those above.
    list: Option<GroupList>,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "User({}, {}, {:?})", self.uid, self.gid, self.groups())
    }
}

impl User {
    /// A user. Groups beyond the sixteenth are dropped, which only reduces rights.
    ///
    /// # Panics
    /// When a number is all ones: the kernel reads it as "leave as it is", and no user has it.
    pub fn new(uid: u32, gid: u32, others: impl IntoIterator<Item = u32>) -> Self {
        assert!(uid != u32::MAX && gid != u32::MAX, "all ones is no user and no group");
        let groups = [Gid::ROOT; GROUPS_MAX];
        let mut user = Self { uid, gid, groups_len: 0, groups, list: None };
        for (room, group) in user.groups.iter_mut().zip(others) {
            assert!(group != u32::MAX, "all ones is no group");
            *room = Gid::from_raw(group);
            user.groups_len += 1;
        }
        user
    }

    /// The same user with other groups, of any number.
    #[must_use]
    pub fn with_groups(self, list: GroupList) -> Self {
        Self { groups_len: 0, groups: [Gid::ROOT; GROUPS_MAX], list: Some(list), ..self }
    }

    /// Returns the user's number.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the user's first group.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Returns the user's other groups.
    pub fn other_groups(&self) -> impl Iterator<Item = u32> {
        self.groups().iter().map(|group| group.as_raw())
    }

    fn groups(&self) -> &[Gid] {
        if let Some(list) = self.list {
            return list.ids();
        }
        self.groups.get(..usize::from(self.groups_len)).expect("`new` counted them")
    }

    /// Makes the calling thread act as this user on files from here on; returns true if that was a
    /// change.
    ///
    /// # Errors
    /// When the kernel refuses, as for a number outside the user namespace. The thread's identity
    /// is then undefined: it must not access files until a later call succeeds.
    pub fn assume(&self) -> rustix::io::Result<bool> {
        let before = match STATE.get() {
            ThreadIdentity::Acting(acting) if acting.user == *self => return Ok(false),
            ThreadIdentity::Acting(acting) => Some(acting),
            ThreadIdentity::Own => {
                own();
                None
            }
            ThreadIdentity::Unknown => None,
        };
        STATE.set(ThreadIdentity::Unknown);
        STATE.set(ThreadIdentity::Acting(change(before.as_ref(), self)?));
        Ok(true)
    }

    /// Returns true if the calling thread acts as this user.
    pub fn is_current(&self) -> bool {
        matches!(STATE.get(), ThreadIdentity::Acting(acting) if acting.user == *self)
    }
}

/// Reason why a process cannot act as others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// A capability is missing, by name.
    Capability(&'static str),
    /// The kernel refuses the change, or the check of others' rights.
    Refused(Errno),
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capability(name) => write!(f, "{name} is missing"),
            Self::Refused(error) => {
                write!(f, "acting as another user, or asking what he may do, is refused: {error}")
            }
        }
    }
}

impl std::error::Error for Lack {}

/// Checks that this process can act as other users, by acting as `user`. The thread is the server's
/// own again afterwards.
///
/// # Errors
/// The missing capability.
pub fn check(user: &User) -> Result<(), Lack> {
    let sets = capabilities(None).map_err(Lack::Refused)?;
    if let Some((_, name)) = NEEDED.iter().find(|(needed, _)| !sets.permitted.contains(*needed)) {
        return Err(Lack::Capability(name));
    }
    let outcome = user
        .assume()
        .and_then(|_| raise(CapabilitySet::DAC_READ_SEARCH).map(drop))
        .and_then(|()| may(CWD, c"/", Access::EXISTS));
    leave().and(outcome).map_err(Lack::Refused)
}

/// Asks the kernel for a right of the thread's user to a file; follows a symbolic link.
///
/// Without `faccessat2`, on old kernels or under a seccomp filter, other wrappers check the
/// process' *real* user instead, who may be root; this one fails.
///
/// # Errors
/// [`Errno::ACCESS`] without the right, [`Errno::NOSYS`] before Linux 5.8, and those of a lookup.
pub fn may(directory: impl AsFd, name: impl Arg, need: Access) -> rustix::io::Result<()> {
    let directory = directory.as_fd().as_raw_fd();
    name.into_with_c_str(|name| {
        let (name, need) = (name.as_ptr(), need.bits());
        // SAFETY: `name` ends with a zero and lives through the call; the descriptor is open
        // because it is borrowed.
        let answer =
            unsafe { libc::syscall(libc::SYS_faccessat2, directory, name, need, libc::AT_EACCESS) };
        crate::returned(answer).map(drop)
    })
}

/// Makes the calling thread the server's own again.
///
/// # Errors
/// When the kernel refuses; the thread must not access files then.
pub fn leave() -> rustix::io::Result<()> {
    if let ThreadIdentity::Own = STATE.get() {
        return Ok(());
    }
    STATE.set(ThreadIdentity::Unknown);
    let own = own();
    set_thread_groups(&own.groups)?;
    set_gid(own.gid)?;
    set_uid(own.uid)?;
    let sets = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective: own.effective, ..sets })?;
    STATE.set(ThreadIdentity::Own);
    Ok(())
}

/// Makes capabilities of the process effective until the guard is dropped. Makes no system call if
/// they are already.
///
/// # Errors
/// [`Errno::PERM`] when the process lacks them, or the thread's identity is unknown.
pub fn raise(wanted: CapabilitySet) -> rustix::io::Result<Raised> {
    let before = match STATE.get() {
        ThreadIdentity::Own => None,
        ThreadIdentity::Unknown => return Err(Errno::PERM),
        ThreadIdentity::Acting(ActingUser { sets, .. }) if sets.effective.contains(wanted) => None,
        ThreadIdentity::Acting(ActingUser { user, sets }) => {
            let raised = CapabilitySets { effective: sets.effective.union(wanted), ..sets };
            set_capabilities(None, raised)?;
            // A nested guard finds them effective, and leaves them so.
            STATE.set(ThreadIdentity::Acting(ActingUser { user, sets: raised }));
            Some(ActingUser { user, sets })
        }
    };
    Ok(Raised { before, of_this_thread: PhantomData })
}

/// Keeps capabilities effective while it lives; see [`raise`]. No other user may be assumed
/// meanwhile.
#[derive(Debug)]
#[must_use = "what was raised falls with the guard"]
pub struct Raised {
    before: Option<ActingUser>,
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for Raised {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            debug_assert!(before.user.is_current(), "a guard ends before another user is assumed");
            set_capabilities(None, before.sets).expect("giving up a capability is always allowed");
            STATE.set(ThreadIdentity::Acting(before));
        }
    }
}

/// User that a thread acts as, and its capabilities.
#[derive(Clone, Copy, Debug)]
struct ActingUser {
    user: User,
    sets: CapabilitySets,
}

#[derive(Clone, Copy)]
enum ThreadIdentity {
    Own,
    Acting(ActingUser),
    Unknown,
}

thread_local! {
    static STATE: Cell<ThreadIdentity> = const { Cell::new(ThreadIdentity::Own) };
}

/// The server itself.
struct Own {
    uid: u32,
    gid: u32,
    groups: Box<[Gid]>,
    effective: CapabilitySet,
}

fn own() -> &'static Own {
    static OWN: OnceLock<Own> = OnceLock::new();
    OWN.get_or_init(|| Own {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        groups: getgroups().map(Vec::into_boxed_slice).unwrap_or_default(),
        effective: capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective),
    })
}

/// Changes only the differences from `before`; everything if that is unknown.
fn change(before: Option<&ActingUser>, user: &User) -> rustix::io::Result<ActingUser> {
    let sets = match before {
        Some(acting) => acting.sets,
        None => capabilities(None)?,
    };
    let was = before.map(|acting| acting.user);
    if was.is_none_or(|was| was.groups() != user.groups()) {
        set_thread_groups(user.groups())?;
    }
    if was.is_none_or(|was| was.gid != user.gid) {
        set_gid(user.gid)?;
    }
    if was.is_none_or(|was| was.uid != user.uid) {
        set_uid(user.uid)?;
    }
    let effective =
        if user.uid == 0 { sets.permitted } else { sets.permitted.difference(OVERRIDES) };
    let sets = CapabilitySets { effective, ..sets };
    // The kernel itself changes them when the uid becomes 0, or is no longer 0, but not all of
    // them.
    if was.is_none_or(|was| (was.uid == 0) != (user.uid == 0)) {
        set_capabilities(None, sets)?;
    }
    Ok(ActingUser { user: *user, sets })
}

fn set_uid(uid: u32) -> rustix::io::Result<()> {
    set_id(libc::SYS_setfsuid, uid)
}

fn set_gid(gid: u32) -> rustix::io::Result<()> {
    set_id(libc::SYS_setfsgid, gid)
}

/// `setfsuid` and `setfsgid` report no error; called with an invalid number, they change nothing
/// and return the current one.
fn set_id(call: libc::c_long, id: u32) -> rustix::io::Result<()> {
    // SAFETY: both calls take a number and touch no memory of ours.
    unsafe { libc::syscall(call, libc::c_ulong::from(id)) };
    // SAFETY: as above.
    let in_force = unsafe { libc::syscall(call, libc::c_ulong::from(u32::MAX)) };
    if in_force == libc::c_long::from(id) { Ok(()) } else { Err(Errno::PERM) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

    const ALICE: u32 = 1_001;
    const BOB: u32 = 1_002;
    const STAFF: u32 = 2_001;

    fn alone(uid: u32) -> User {
        User::new(uid, uid, [])
    }

    fn may_switch() -> bool {
        match check(&alone(ALICE)) {
            Ok(()) => true,
            Err(lack) => {
                eprintln!("skipped: {lack}");
                false
            }
        }
    }

    /// A directory that everyone may use.
    fn common() -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).unwrap();
        home
    }

    #[test]
    fn what_a_thread_makes_belongs_to_whom_it_acts_as_and_other_threads_stay_what_they_are() {
        if !may_switch() {
            return;
        }
        let home = common();
        let owner = |name: &str| {
            let path = home.path().join(name);
            File::create(&path).unwrap();
            let found = fs::metadata(path).unwrap();
            (found.uid(), found.gid())
        };
        assert!(User::new(ALICE, STAFF, []).assume().unwrap());
        assert_eq!(owner("a"), (ALICE, STAFF));
        assert!(!User::new(ALICE, STAFF, []).assume().unwrap(), "nothing changes");
        assert!(alone(BOB).assume().unwrap());
        assert_eq!(owner("b"), (BOB, BOB));
        assert_eq!(geteuid().as_raw(), 0, "only what decides about files changes");
        leave().unwrap();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                alone(ALICE).assume().unwrap();
                owner("c")
            });
            assert_eq!(other.join().unwrap(), (ALICE, ALICE));
        });
        assert_eq!(owner("d"), (0, 0));
    }

    #[test]
    fn groups_open_what_they_may_and_only_while_they_are_held() {
        if !may_switch() {
            return;
        }
        let home = common();
        let path = home.path().join("f");
        fs::write(&path, b"x").unwrap();
        chown(&path, Some(BOB), Some(STAFF)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o040)).unwrap();
        let may = |user: User| {
            user.assume().unwrap();
            let may_read = fs::read(&path).is_ok();
            assert_eq!(may(CWD, &path, Access::READ_OK).is_ok(), may_read, "{user:?}");
            may_read
        };
        let many = (5_000..).take(15).chain([STAFF]);
        let users = [
            (alone(ALICE), false),
            (User::new(ALICE, STAFF, []), true),
            (User::new(ALICE, ALICE, [7, STAFF]), true),
            (User::new(ALICE, ALICE, [7]), false),
            (User::new(ALICE, ALICE, many), true),
            (alone(BOB), false),
            (alone(0), true),
            (alone(ALICE), false),
        ];
        // From each to each, without being the server's own between them.
        for (before, _) in users {
            for (user, expected) in users {
                before.assume().unwrap();
                assert_eq!(may(user), expected, "{user:?} after {before:?}");
            }
        }
        leave().unwrap();
    }

    #[test]
    fn rights_that_override_are_there_while_they_are_raised_and_for_uid_0() {
        if !may_switch() {
            return;
        }
        let home = common();
        let path = home.path().join("f");
        fs::write(&path, b"x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
        alone(ALICE).assume().unwrap();
        assert!(fs::read(&path).is_err());
        {
            let _raised = raise(CapabilitySet::DAC_READ_SEARCH).unwrap();
            assert!(fs::read(&path).is_ok() && fs::write(&path, b"y").is_err());
            let _more = raise(CapabilitySet::DAC_OVERRIDE).unwrap();
            assert!(fs::write(&path, b"y").is_ok());
            drop(raise(CapabilitySet::DAC_OVERRIDE).unwrap());
            assert!(fs::write(&path, b"y").is_ok(), "a guard within a guard takes nothing away");
        }
        assert!(fs::read(&path).is_err());
        alone(0).assume().unwrap();
        assert!(fs::write(&path, b"z").is_ok());
        alone(BOB).assume().unwrap();
        assert!(fs::read(&path).is_err());
        let effective = capabilities(None).unwrap().effective;
        assert!(!effective.intersects(OVERRIDES), "{effective:?}");
        leave().unwrap();
        assert!(fs::read(&path).is_ok());
    }

    #[test]
    fn whoever_has_no_right_to_act_as_others_is_told() {
        if may_switch() {
            let refused = std::thread::spawn(|| {
                own();
                set_capabilities(
                    None,
                    CapabilitySets {
                        effective: CapabilitySet::empty(),
                        permitted: CapabilitySet::empty(),
                        inheritable: CapabilitySet::empty(),
                    },
                )
                .unwrap();
                assert!(alone(ALICE).assume().is_err());
                assert!(!alone(ALICE).is_current() && raise(CapabilitySet::CHOWN).is_err());
                check(&alone(ALICE))
            });
            assert_eq!(refused.join().unwrap(), Err(Lack::Capability("CAP_SETUID")));
        } else {
            assert!(check(&alone(ALICE)).is_err());
        }
    }

    #[test]
    fn a_seventeenth_group_is_left_out() {
        let user = User::new(1, 2, 3..100);
        assert_eq!(user.groups().len(), GROUPS_MAX);
        assert_eq!((user.uid(), user.gid()), (1, 2));
        assert_eq!(user, User::new(1, 2, 3..19));
    }
}
