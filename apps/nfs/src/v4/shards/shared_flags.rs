//! Facts that the home shares with all shards, which read them without a message (`channel`).

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use super::slot_lease::LeaseFlags;
use stag_nfs4_state::{ConflictFilter, FileId};

/// See the module.
#[derive(Debug)]
pub(in crate::v4) struct SharedFlags {
    conflicts: AtomicU8,
    presence: Arc<ConflictFilter>,
    /// Facts about lent sessions, some of which are reported to the home.
    pub(in crate::v4) loans: LeaseFlags,
}

impl SharedFlags {
    /// Returns true if there may be a delegation of a file, or of any if `file` is none.
    pub(in crate::v4) fn may_conflict(&self, file: Option<FileId>) -> bool {
        self.conflicts.load(Ordering::Relaxed) & (SOME_PRESENCE | SPOILS_RECLAIMS) != 0
            && file.is_none_or(|file| self.presence.may_conflict(file))
    }

    /// Returns true if any change by version 3 may spoil reclaims.
    pub(in crate::v4) fn spoil_reclaims(&self) -> bool {
        self.conflicts.load(Ordering::Relaxed) & SPOILS_RECLAIMS != 0
    }

    /// Returns true in the grace period, in which the home makes all changes. When it is over, the
    /// filter shows the delegations that were reclaimed.
    pub(in crate::v4) fn is_in_grace(&self) -> bool {
        self.conflicts.load(Ordering::Acquire) & IN_GRACE != 0
    }

    /// Publishes to all shards in which cases they have to ask.
    pub(in crate::v4) fn tell(&self, conflicts: Conflicts) {
        let Conflicts { has_presence, spoils_reclaims, in_grace } = conflicts;
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        let all = bit(has_presence, SOME_PRESENCE)
            | bit(spoils_reclaims, SPOILS_RECLAIMS)
            | bit(in_grace, IN_GRACE);
        if self.conflicts.load(Ordering::Relaxed) != all {
            self.conflicts.store(all, Ordering::Release);
        }
    }

    /// The filter that all shards look at.
    pub(in crate::v4) fn presence(&self) -> Arc<ConflictFilter> {
        Arc::clone(&self.presence)
    }
}

/// Cases in which a change without a stateid may conflict.
#[derive(Clone, Copy, Debug)]
pub(in crate::v4) struct Conflicts {
    /// Some file has delegations or denies something.
    pub(in crate::v4) has_presence: bool,
    /// Version 3 may spoil reclaims.
    pub(in crate::v4) spoils_reclaims: bool,
    /// Clients may reclaim state.
    pub(in crate::v4) in_grace: bool,
}

/// Some file has delegations or denies something.
const SOME_PRESENCE: u8 = 1;
/// Any change may spoil reclaims.
const SPOILS_RECLAIMS: u8 = 2;
/// Clients may reclaim state.
const IN_GRACE: u8 = 4;

impl Default for SharedFlags {
    fn default() -> Self {
        // Until the home has published its facts, it is asked about everything.
        let conflicts = AtomicU8::new(SOME_PRESENCE | SPOILS_RECLAIMS | IN_GRACE);
        Self { conflicts, presence: Arc::default(), loans: LeaseFlags::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_the_grace_period_version_4_changes_nothing_beside_the_home_and_version_3_may() {
        let facts = SharedFlags::default();
        assert!(facts.is_in_grace() && facts.may_conflict(None), "nothing is known yet");
        let mut told = Conflicts { has_presence: false, spoils_reclaims: false, in_grace: true };
        facts.tell(told);
        assert!(facts.is_in_grace() && !facts.may_conflict(None) && !facts.spoil_reclaims());
        told.in_grace = false;
        facts.tell(told);
        assert!(!facts.is_in_grace() && !facts.may_conflict(None));
        told.has_presence = true;
        facts.tell(told);
        assert!(facts.may_conflict(None));
        assert!(!facts.may_conflict(Some(FileId(1))), "the filter shows none");
        told.spoils_reclaims = true;
        facts.tell(told);
        assert!(facts.spoil_reclaims());
    }
}
