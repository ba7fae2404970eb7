//! Users that the store acts as: the two modes, squashing, and the table of recent users.

use super::Squash;
use std::{fmt::Write as _, sync::Arc};

use ipnet::IpNet;
use stag_engine::PeerAddress;
use stag_nfs_os::{User, user};

use crate::{
    GroupSource, User as CallerUser,
    exports::host_groups::{GroupBook, SeenGroups, book_of_host},
    start_error::StartError,
};

/// Users whose rights a shard remembers; see [`super::rights`].
const KNOWN_MAX: usize = 64;

/// Choice between callers that act as themselves and callers that act as the server's user; logged
/// at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Privileged if the process can, else unprivileged.
    #[default]
    Auto,
    /// Every caller acts as the server's own user; no privilege is needed.
    Unprivileged,
    /// Every caller acts as the user that it names, and the kernel judges what that user may do.
    /// Needs root, or CAP_SETUID, CAP_SETGID, CAP_DAC_READ_SEARCH and CAP_DAC_OVERRIDE; to serve
    /// callers as root also the others that root uses on files.
    Privileged,
}

/// A squashing rule for the callers of one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkSquash {
    /// The network, or one address.
    pub network: IpNet,
    /// The callers of the network that act as the anonymous user.
    pub squash: Squash,
}

/// Rules for mapping callers to users. Without privilege only [`Mode`] has a meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callers {
    /// Choice between distinguishing callers and treating all as the server's user.
    pub mode: Mode,
    /// Callers that act as the anonymous user.
    pub squash: Squash,
    /// Networks with their own rule; the smallest one that contains the caller's address applies.
    pub networks: Vec<NetworkSquash>,
    /// The anonymous user's id.
    pub anon_uid: u32,
    /// The anonymous user's group.
    pub anon_gid: u32,
    /// The groups of callers that are not squashed.
    pub groups: GroupSource,
}

impl Callers {
    /// Every caller acts as the server's own user, whatever privilege the process has.
    pub const UNPRIVILEGED: Self = Self {
        mode: Mode::Unprivileged,
        squash: Squash::Root,
        networks: Vec::new(),
        anon_uid: 65_534,
        anon_gid: 65_534,
        groups: GroupSource::Client,
    };

    /// Decides on the mode. The returned sentence names it and its consequences.
    ///
    /// # Errors
    ///
    /// A sentence when privileged mode is required and unavailable, or the anonymous user is
    /// invalid.
    pub(super) fn decide(&self) -> Result<(Option<Policy>, String), StartError> {
        let policy = Policy::of(self)?;
        let why = match self.mode {
            Mode::Unprivileged => String::new(),
            Mode::Auto | Mode::Privileged => match self.lack()? {
                None => {
                    let notice = policy.notice();
                    return Ok((Some(policy), notice));
                }
                Some(lack) => format!(" ({lack})"),
            },
        };
        let uid = rustix::process::geteuid().as_raw();
        Ok((
            None,
            format!(
                "unprivileged mode{why}: every caller acts as the server's own user, uid {uid}"
            ),
        ))
    }
}

impl Callers {
    /// Returns true if callers are to act as themselves. Tests this by acting as the anonymous user
    /// for a moment.
    ///
    /// # Errors
    ///
    /// A sentence when that is required and unavailable.
    pub fn act_as_themselves(&self) -> Result<bool, StartError> {
        match self.mode {
            Mode::Unprivileged => Ok(false),
            Mode::Auto | Mode::Privileged => {
                self.check_anonymous()?;
                Ok(self.lack()?.is_none())
            }
        }
    }

    /// Checks that the anonymous user's ids are valid.
    fn check_anonymous(&self) -> Result<(), StartError> {
        if self.anon_uid != u32::MAX && self.anon_gid != u32::MAX {
            return Ok(());
        }
        let flag = if self.anon_uid == u32::MAX { "--anonuid" } else { "--anongid" };
        Err(StartError(format!("{flag}: {} is the number of no user and no group", u32::MAX)))
    }

    /// The privilege that this process lacks to act as its callers; none if it has all.
    ///
    /// # Errors
    ///
    /// A sentence when the settings cannot be met without it.
    fn lack(&self) -> Result<Option<user::Lack>, StartError> {
        let anonymous = User::new(self.anon_uid, self.anon_gid, []);
        let Err(lack) = user::check(&anonymous) else { return Ok(None) };
        if self.mode == Mode::Privileged {
            return Err(StartError(format!(
                "cannot act as its callers (--mode privileged): {lack}"
            )));
        }
        if self.groups == GroupSource::Host {
            return Err(StartError(format!(
                "cannot act as its callers, whose groups are this host's (--groups host): {lack}"
            )));
        }
        Ok(Some(lack))
    }
}

impl Default for Callers {
    fn default() -> Self {
        Self { mode: Mode::Auto, ..Self::UNPRIVILEGED }
    }
}

/// Mapping of callers to users in privileged mode.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    squash: Squash,
    /// The smallest networks first.
    networks: Box<[NetworkSquash]>,
    anonymous: User,
    /// Groups of users by the host's name service, if it is used.
    book: Option<Arc<GroupBook>>,
}

impl Policy {
    /// The mapping defined by these rules, whatever the mode.
    ///
    /// # Errors
    /// A sentence when the anonymous user is invalid, or users' groups cannot be looked up.
    pub fn of(callers: &Callers) -> Result<Self, StartError> {
        let Callers { squash, anon_uid, anon_gid, .. } = *callers;
        callers.check_anonymous()?;
        let mut networks = callers.networks.clone();
        networks.sort_by_key(|rule| core::cmp::Reverse(rule.network.prefix_len()));
        let anonymous = User::new(anon_uid, anon_gid, []);
        let book = match callers.groups {
            GroupSource::Client => None,
            GroupSource::Host => {
                let started = book_of_host();
                let started = started.map_err(|error| {
                    StartError(format!("no thread to ask for the groups of users: {error}"))
                });
                Some(Arc::new(started?))
            }
        };
        Ok(Self { squash, networks: networks.into(), anonymous, book })
    }

    /// Cache of group lookups for one store; none if they are not used. `is_patient` says that its
    /// thread may wait for an answer.
    pub fn groups(&self, is_patient: bool) -> Option<SeenGroups> {
        self.book.as_ref().map(|book| SeenGroups::new(book, is_patient))
    }

    /// Invalidates the groups of all users.
    pub fn forget_groups(&self) {
        if let Some(book) = &self.book {
            book.forget();
        }
    }

    /// User of a caller without a user.
    pub fn anonymous(&self) -> User {
        self.anonymous
    }

    /// The squashing of callers whose network has no rule of its own.
    pub fn squash(&self) -> Squash {
        self.squash
    }

    /// The squashing of callers at this address. Callers on this host over shared memory have no
    /// network address, so no network's rule applies.
    pub fn squash_at(&self, address: PeerAddress) -> Squash {
        let PeerAddress::Ip(at) = address else { return self.squash };
        let ip = at.ip().to_canonical();
        let rule = self.networks.iter().find(|rule| rule.network.contains(&ip));
        rule.map_or(self.squash, |rule| rule.squash)
    }

    /// User of a caller that claims this user, squashed like this.
    pub fn user(&self, uid: u32, gid: u32, groups: &[u32], squash: Squash) -> User {
        squashed(self.anonymous, uid, gid, groups, squash)
    }

    /// User of a caller, squashed like this, with this `anonymous` user. None while the caller's
    /// groups are unknown.
    pub fn acting(
        &self,
        caller: &CallerUser,
        squash: Squash,
        anonymous: User,
        known: Option<&mut SeenGroups>,
    ) -> Option<User> {
        let CallerUser::Unix { uid, gid, gids } = caller else { return Some(anonymous) };
        let claimed = squashed(anonymous, *uid, *gid, gids.list(), squash);
        // Root has no use for groups, and the anonymous user has none.
        let is_himself = claimed.uid() == *uid && *uid != 0 && squash != Squash::All;
        let Some(known) = known.filter(|_| is_himself) else { return Some(claimed) };
        let groups = known.of(*uid)?.map(|groups| match squash {
            Squash::None => groups.all,
            // Group 0 is root's alone.
            Squash::Root | Squash::All => groups.not_root,
        });
        Some(groups.map_or(claimed, |groups| claimed.with_groups(groups)))
    }

    fn notice(&self) -> String {
        let (uid, gid) = (self.anonymous.uid(), self.anonymous.gid());
        let said = |squash| match squash {
            Squash::Root => format!("root as {uid}:{gid}"),
            Squash::None => "root as root".to_owned(),
            Squash::All => format!("but all as {uid}:{gid}"),
        };
        let mut notice = format!(
            "privileged mode: each caller acts as the user and groups that its client names \
             (AUTH_SYS, which proves nothing), {}",
            said(self.squash)
        );
        if self.book.is_some() {
            notice += "; users that this host knows, with the groups that it knows them by";
        }
        for NetworkSquash { network, squash } in &self.networks {
            let _ = write!(notice, "; from {network}, {}", said(*squash));
        }
        notice
    }
}

/// The user that a caller with this user, group and other groups acts as.
fn squashed(anonymous: User, uid: u32, gid: u32, groups: &[u32], squash: Squash) -> User {
    if squash == Squash::All {
        return anonymous;
    }
    // All ones is no user's number: a caller that claims it claims no user.
    // RFC 1813 §4.4 [1813-102]: user 0 becomes nobody unless configured otherwise
    let is_squashed = |id: u32| id == u32::MAX || (id == 0 && squash == Squash::Root);
    let uid = if is_squashed(uid) { anonymous.uid() } else { uid };
    let group = |gid: u32| if is_squashed(gid) { anonymous.gid() } else { gid };
    User::new(uid, group(gid), groups.iter().copied().map(group))
}

/// Identifies a user with its groups; never reused, even after the user is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Serial(u64);

/// User that a store acts as in privileged mode.
#[derive(Debug, Default)]
pub(super) struct Acting {
    current: Option<(User, Serial)>,
    known: Vec<(User, Serial)>,
    serials: u64,
    switches: u64,
    awaits_groups: bool,
}

impl Acting {
    /// No user yet; allocates all memory it ever needs.
    pub fn new() -> Self {
        Self { known: Vec::with_capacity(KNOWN_MAX), ..Self::default() }
    }

    /// Makes the calling thread act as `user`, without a system call if it already does.
    ///
    /// # Errors
    /// When the kernel refuses: the store then acts as no user.
    pub fn become_user(&mut self, user: &User) -> rustix::io::Result<()> {
        match user.assume() {
            Ok(false) => {}
            Ok(true) => self.switches += 1,
            Err(error) => {
                (self.current, self.awaits_groups) = (None, false);
                return Err(error);
            }
        }
        self.awaits_groups = false;
        if self.current.is_none_or(|(current, _)| current != *user) {
            self.current = Some((*user, self.serial_of(user)));
        }
        Ok(())
    }

    /// Makes the store act as no user until the next caller, because this caller's groups are
    /// unknown yet.
    pub fn await_groups(&mut self) {
        (self.current, self.awaits_groups) = (None, true);
    }

    /// Returns true if the store acts as no user because of groups that are unknown yet.
    pub fn awaits_groups(&self) -> bool {
        self.awaits_groups
    }

    /// User that the store acts as; none before the first call, and after one that failed.
    pub fn current(&self) -> Option<(User, Serial)> {
        let current = self.current.filter(|(user, _)| user.is_current());
        debug_assert_eq!(
            current.is_some(),
            self.current.is_some(),
            "each call says for whom it is made"
        );
        current
    }

    /// Returns the number of times that another user was assumed.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    fn serial_of(&mut self, user: &User) -> Serial {
        if let Some((_, serial)) = self.known.iter().find(|(known, _)| known == user) {
            return *serial;
        }
        let serial = Serial(self.serials);
        if self.known.len() < KNOWN_MAX {
            self.known.push((*user, serial));
        } else {
            // The user met longest ago makes room. Its serial is not reused, and a new serial means
            // a new check of rights.
            let place = usize::try_from(self.serials).unwrap_or(0) % KNOWN_MAX;
            *self.known.get_mut(place).expect("the remainder is in range") = (*user, serial);
        }
        self.serials += 1;
        serial
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(squash: Squash) -> Policy {
        Policy {
            squash,
            networks: Box::default(),
            anonymous: User::new(65_534, 65_533, []),
            book: None,
        }
    }

    #[test]
    fn the_smallest_network_of_a_caller_decides_how_it_is_squashed() {
        let rule =
            |network: &str, squash| NetworkSquash { network: network.parse().unwrap(), squash };
        let networks = vec![
            rule("10.0.0.0/8", Squash::All),
            rule("10.1.0.5/32", Squash::None),
            rule("fd00::/8", Squash::None),
            rule("10.1.0.0/16", Squash::Root),
        ];
        let callers = Callers { mode: Mode::Privileged, networks, ..Callers::default() };
        let Ok((Some(policy), notice)) = callers.decide() else {
            return println!("skipped: callers cannot act as themselves");
        };
        assert!(notice.contains("; from 10.1.0.5/32, root as root; from "), "{notice}");
        let at = |address: &str| policy.squash_at(PeerAddress::Ip(address.parse().unwrap()));
        assert_eq!(at("10.1.0.5:1"), Squash::None);
        assert_eq!(at("[::ffff:10.1.0.5]:1"), Squash::None);
        assert_eq!(at("10.1.0.6:1"), Squash::Root);
        assert_eq!(at("10.2.0.6:1"), Squash::All);
        assert_eq!(at("[fd00::1]:1"), Squash::None);
        assert_eq!(at("192.0.2.1:1"), Squash::Root, "the rule of all others");
        assert_eq!(policy.squash_at(PeerAddress::Simulated), Squash::Root);
    }

    #[test]
    fn root_and_his_group_are_squashed_unless_told_otherwise() {
        let policy = policy(Squash::Root);
        let root = |uid, gid, groups: &[u32]| policy.user(uid, gid, groups, Squash::Root);
        assert_eq!(root(0, 0, &[0, 7, 0]), User::new(65_534, 65_533, [65_533, 7, 65_533]));
        assert_eq!(root(5, 0, &[]), User::new(5, 65_533, []));
        assert_eq!(root(5, 6, &[7, 8]), User::new(5, 6, [7, 8]));
        assert_eq!(policy.user(0, 0, &[0], Squash::None), User::new(0, 0, [0]));
        assert_eq!(policy.user(5, 6, &[7, 8], Squash::All), policy.anonymous());
    }

    #[test]
    fn the_number_of_nobody_is_the_anonymous_user_even_when_nobody_is_squashed() {
        for squash in [Squash::Root, Squash::None, Squash::All] {
            let policy = policy(squash);
            let user = policy.user(u32::MAX, u32::MAX, &[], squash);
            assert_eq!(user, policy.anonymous());
            let user = policy.user(5, 6, &[u32::MAX], squash);
            assert!(squash == Squash::All || user == User::new(5, 6, [65_533]));
        }
    }

    #[test]
    fn a_serial_is_never_another_users() {
        let mut acting = Acting::new();
        let capacity = acting.known.capacity();
        let serials: Vec<_> =
            (0..200).map(|uid| acting.serial_of(&User::new(uid, 0, []))).collect();
        let distinct: std::collections::HashSet<_> =
            serials.iter().map(|serial| serial.0).collect();
        assert_eq!(distinct.len(), 200);
        assert_eq!(acting.serial_of(&User::new(199, 0, [])), serials[199]);
        assert_ne!(acting.serial_of(&User::new(199, 0, [1])), serials[199]);
        assert_ne!(acting.serial_of(&User::new(0, 0, [])), serials[0], "forgotten, so a new one");
        assert_eq!(acting.known.capacity(), capacity);
    }

    #[test]
    fn an_anonymous_user_that_is_nobody_stops_the_start() {
        let callers = Callers { anon_uid: u32::MAX, ..Callers::default() };
        assert!(callers.decide().is_err());
    }

    #[test]
    fn privileged_mode_is_refused_to_whoever_lacks_what_it_needs() {
        let callers = Callers { mode: Mode::Privileged, ..Callers::default() };
        match callers.decide() {
            Ok((policy, notice)) => {
                assert!(policy.is_some() && notice.contains("privileged mode"), "{notice}");
            }
            Err(error) => {
                assert!(error.to_string().contains("cannot act as its callers"), "{error}");
                let (policy, notice) = Callers::default().decide().unwrap();
                assert!(policy.is_none() && notice.contains("is missing"), "{notice}");
            }
        }
        assert!(Callers::UNPRIVILEGED.decide().unwrap().0.is_none());
    }
}
