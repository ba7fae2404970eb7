//! The oracle: rights that clients certainly have, and all operations on files.
//!
//! A right is certain from the reply that grants it until its client gives it up, and for a lease
//! after the last request that renewed it (RFC 8881 §8.3); a server that is killed takes none away
//! (§8.4.2.1). No two certain rights of different clients conflict, and no client makes a change
//! that the right of another denies.

use super::{scene::Looks, world::LEASE};
use stag_protocol::nfs::{v3::FileHandle, v4::share};
use stag_verbs::Time;
use std::{
    collections::{BTreeSet, VecDeque},
    fmt,
};

/// Lines of the story that a failure prints.
const STORY: usize = 400;

/// A right of a client to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RightKind {
    /// An open with access and denial.
    Open(u32, u32),
    /// A lock of the file's first octets; true if it excludes those of all others.
    Lock(bool),
    /// A delegation; true if it is one to write.
    Delegation(bool),
}

impl RightKind {
    /// Returns true if different clients cannot have both.
    fn conflicts(self, other: Self) -> bool {
        let has = |access: u32, deny: u32| access & deny & share::BOTH != 0;
        match (self, other) {
            (Self::Open(access, deny), Self::Open(other_access, other_deny)) => {
                has(access, other_deny) || has(other_access, deny)
            }
            (Self::Lock(excludes), Self::Lock(other)) => excludes || other,
            (Self::Delegation(writes), Self::Delegation(other)) => writes || other,
            (Self::Delegation(true), Self::Open(..)) | (Self::Open(..), Self::Delegation(true)) => {
                true
            }
            (Self::Delegation(false), Self::Open(access, deny))
            | (Self::Open(access, deny), Self::Delegation(false)) => {
                has(access, share::WRITE) || has(deny, share::READ)
            }
            (Self::Lock(_), _) | (_, Self::Lock(_)) => false,
        }
    }

    /// Returns true if no other client may do this to the file.
    fn forbids(self, deed: Deed) -> bool {
        match (self, deed) {
            (Self::Delegation(_), _) => true,
            (Self::Open(_, deny), Deed::Write) => deny & share::WRITE != 0,
            (Self::Open(..), Deed::Change) | (Self::Lock(_), _) => false,
        }
    }
}

/// An operation on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Of its content.
    Write,
    /// Of its attributes or its names.
    Change,
}

/// Names a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RightId(u64);

impl RightId {
    /// Of no right.
    pub const NONE: Self = Self(u64::MAX);
}

#[derive(Clone, Copy, Debug)]
struct Right {
    id: RightId,
    client: usize,
    file: FileHandle,
    kind: RightKind,
    until: Time,
    /// The server knows of it by a record that a kill leaves.
    outlives_kills: bool,
    /// The file of a delegation, as it was looked at last.
    seen: Option<Looks>,
}

/// Numbers of a play, to see that it had what it is about.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub opens: u64,
    pub denied: u64,
    pub locks: u64,
    pub delegations: u64,
    pub recalled: u64,
    pub reclaimed: u64,
    pub refused_reclaims: u64,
    pub deeds: u64,
    pub kills: u64,
    pub losses: u64,
    pub forwarded: u64,
    pub lent: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.opens += other.opens;
        self.denied += other.denied;
        self.locks += other.locks;
        self.delegations += other.delegations;
        self.recalled += other.recalled;
        self.reclaimed += other.reclaimed;
        self.refused_reclaims += other.refused_reclaims;
        self.deeds += other.deeds;
        self.kills += other.kills;
        self.losses += other.losses;
        self.forwarded += other.forwarded;
        self.lent += other.lent;
    }
}

/// See the module.
#[derive(Default)]
pub struct Ledger {
    pub now: Time,
    rights: Vec<Right>,
    granted: u64,
    numbers: u64,
    /// Clients some of whose state may be revoked.
    doubted: BTreeSet<usize>,
    /// Clients that are about to change something.
    pub acting: BTreeSet<usize>,
    /// Clients whose next change takes longer than a lease.
    pub hanging: BTreeSet<usize>,
    /// The time at which the server was killed last.
    killed: Option<Time>,
    story: VecDeque<String>,
    pub counts: Counts,
}

impl Ledger {
    /// A number that was not used before.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Adds a line to the story.
    pub fn tell(&mut self, line: impl fmt::Display) {
        if self.story.len() == STORY {
            self.story.pop_front();
        }
        self.story.push_back(format!("{:>12} {line}", self.now.0 / 1_000));
    }

    /// The story up to here, times in microseconds.
    pub fn story(&self) -> String {
        self.story.iter().fold(String::new(), |all, line| all + line + "\n")
    }

    fn certain(&self) -> impl Iterator<Item = &Right> {
        self.rights.iter().filter(|right| right.until > self.now)
    }

    /// A client has learned that it has a right, for a lease from when it asked for it.
    pub fn grant(
        &mut self,
        client: usize,
        file: FileHandle,
        kind: RightKind,
        until: Time,
    ) -> RightId {
        let id = RightId(self.granted);
        self.granted += 1;
        self.tell(format_args!("client {client} has {id:?} {kind:?} of {}", short(&file)));
        let outlives_kills = !self.doubted.contains(&client);
        let right = Right { id, client, file, kind, until, outlives_kills, seen: None };
        if until > self.now {
            let other = self
                .certain()
                .find(|it| it.client != client && it.file == file && it.kind.conflicts(kind));
            assert!(other.is_none(), "{right:?} beside {other:?}\n{}", self.story());
        }
        // The reply may come from a server that was killed after it.
        let is_lost = !outlives_kills && self.killed.is_some_and(|killed| until <= killed + LEASE);
        // A delegation that a client in doubt gets may be recalled, and not come back.
        if outlives_kills || !(is_lost || matches!(kind, RightKind::Delegation(_))) {
            self.rights.push(right);
        }
        id
    }

    /// A client gives a right up, or has lost it.
    pub fn release(&mut self, id: RightId) {
        if self.rights.iter().any(|right| right.id == id) {
            self.tell(format_args!("{id:?} is given up"));
        }
        self.rights.retain(|right| right.id != id);
    }

    /// A request of its client has renewed a right.
    pub fn renew(&mut self, id: RightId, until: Time) {
        if let Some(right) = self.rights.iter_mut().find(|right| right.id == id) {
            right.until = right.until.max(until);
        }
    }

    /// Returns true if its client certainly has a right.
    pub fn is_certain(&self, id: RightId) -> bool {
        self.certain().any(|right| right.id == id)
    }

    /// A client answers no callbacks, or returns nothing: its delegations may be revoked, and until
    /// it knows which were, it may reclaim nothing (RFC 8881 §8.4.3).
    pub fn doubt(&mut self, client: usize) {
        self.doubted.insert(client);
        self.rights.retain(|right| {
            right.client != client || !matches!(right.kind, RightKind::Delegation(_))
        });
        for right in self.rights.iter_mut().filter(|right| right.client == client) {
            right.outlives_kills = false;
        }
    }

    /// It has freed all that was revoked, and will lose no more.
    pub fn trust(&mut self, client: usize) {
        self.doubted.remove(&client);
        for right in self.rights.iter_mut().filter(|right| right.client == client) {
            right.outlives_kills = true;
        }
    }

    /// The server was killed.
    pub fn kill(&mut self) {
        self.tell("the server is killed");
        self.killed = Some(self.now);
        self.counts.kills += 1;
        self.rights.retain(|right| right.outlives_kills);
    }

    /// Looks at the files under delegations: only the holder has changed one.
    pub fn look(&mut self, look: impl Fn(&FileHandle) -> Option<Looks>) {
        let now = self.now;
        let mut changed = None;
        for right in self.rights.iter_mut().filter(|right| right.until > now) {
            if !matches!(right.kind, RightKind::Delegation(_)) {
                continue;
            }
            let has = look(&right.file);
            let before = std::mem::replace(&mut right.seen, has);
            // A file without a name goes when the server is killed.
            let is_gone = before.is_none() || has.is_none();
            if before != has && !is_gone && !self.acting.contains(&right.client) {
                changed = Some((*right, before));
            }
        }
        assert!(changed.is_none(), "{changed:?} looks otherwise\n{}", self.story());
    }

    /// Records a deed of `who` to a file.
    pub fn note(&mut self, who: usize, file: &FileHandle, deed: Deed) {
        self.tell(format_args!("{deed:?} of {} by {who}", short(file)));
        self.counts.deeds += 1;
        let other =
            self.certain().find(|it| it.client != who && it.file == *file && it.kind.forbids(deed));
        assert!(other.is_none(), "{deed:?} by {who} in spite of {other:?}\n{}", self.story());
    }
}

/// The end of a handle.
pub fn short(file: &FileHandle) -> String {
    let octets = file.octets();
    octets[octets.len().saturating_sub(8)..].iter().map(|octet| format!("{octet:02x}")).collect()
}
