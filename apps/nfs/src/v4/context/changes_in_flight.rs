//! Pending changes in a store whose calls may wait (RFC 8881 §10.4).
//!
//! A change recalls the delegations that it conflicts with before it begins. A delegation granted
//! while the change is pending would be of a file that changes under its holder. The same goes for
//! an OPEN that looked at the file before the change and is answered after it. So each change is
//! counted from the time its call has to wait until it is complete, and OPEN grants no delegation
//! of a file that a change may have touched since the OPEN began.

use super::CompoundContext;
use stag_nfs_store::{Store, StoreRequest};
use stag_nfs4_state::FileId;

/// Groups of files by which changes are counted. A pending change of one file now and then costs
/// another file of its group a delegation.
const BUCKETS: usize = 1_024;

/// Files that an operation changes at most, and one place for names.
const SCOPES: usize = 3;

/// Files that a change may touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeScope {
    /// This one.
    File(FileId),
    /// Any: it changes the object of a name.
    Names,
}

impl ChangeScope {
    /// The files that a call of version 3 changes.
    pub(crate) fn of(operation: &StoreRequest) -> Option<Self> {
        match operation {
            StoreRequest::SetAttr { file, .. }
            | StoreRequest::Write { file, .. }
            | StoreRequest::SetAcl { file, .. }
            | StoreRequest::Link { file, .. } => {
                Some(Self::File(super::state_calls::file_id(file)))
            }
            // A CREATE may set the size of a file that exists.
            StoreRequest::Create { .. }
            | StoreRequest::Remove { .. }
            | StoreRequest::Rename { .. } => Some(Self::Names),
            _ => None,
        }
    }
}

/// Changes of a group of files.
#[derive(Clone, Copy, Debug, Default)]
struct GroupChanges {
    under_way: u32,
    /// Number of the last end of one.
    ended: u64,
}

/// Counts pending changes, and numbers their ends.
#[derive(Debug)]
pub(in crate::v4) struct ChangesInFlight {
    names: GroupChanges,
    files: Box<[GroupChanges]>,
    ends: u64,
}

impl ChangesInFlight {
    /// No pending change. Where calls never wait, there never is one.
    pub(in crate::v4) fn new(may_wait: bool) -> Self {
        let buckets = if may_wait { BUCKETS } else { 0 };
        Self {
            names: GroupChanges::default(),
            files: vec![GroupChanges::default(); buckets].into(),
            ends: 0,
        }
    }

    /// Number of the last change that ended.
    pub(in crate::v4) const fn last_end(&self) -> u64 {
        self.ends
    }

    /// A checked change has to wait.
    pub(in crate::v4) fn begin(&mut self, scope: ChangeScope) {
        if let Some(changes) = self.of(scope) {
            changes.under_way = changes.under_way.saturating_add(1);
        }
    }

    /// A change that was [begun](Self::begin) is complete.
    pub(in crate::v4) fn end(&mut self, scope: ChangeScope) {
        self.ends += 1;
        let ended = self.ends;
        if let Some(changes) = self.of(scope) {
            debug_assert!(changes.under_way > 0, "a change ends once");
            *changes = GroupChanges { under_way: changes.under_way.saturating_sub(1), ended };
        }
    }

    /// Returns true if a change may have touched a file after the end with the number `since`.
    pub(in crate::v4) fn may_touch(&self, file: FileId, since: u64) -> bool {
        let touches = |changes: &GroupChanges| changes.under_way > 0 || changes.ended > since;
        touches(&self.names) || self.files.get(bucket(file)).is_some_and(touches)
    }

    /// Returns true while a change of a file by its handle is pending, in addition to one of the
    /// requester's own if there is one.
    pub(in crate::v4) fn is_under_way(&self, file: FileId, has_own: bool) -> bool {
        let changes = self.files.get(bucket(file));
        changes.is_some_and(|changes| changes.under_way > u32::from(has_own))
    }

    fn of(&mut self, scope: ChangeScope) -> Option<&mut GroupChanges> {
        match scope {
            ChangeScope::File(file) => self.files.get_mut(bucket(file)),
            ChangeScope::Names => Some(&mut self.names),
        }
    }
}

/// The group of a file, whose identity is a hash.
const fn bucket(file: FileId) -> usize {
    file.0 as usize % BUCKETS
}

/// The changes of an operation that may wait.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::v4) struct OwnChanges {
    scopes: [Option<ChangeScope>; SCOPES],
    /// The first of them are counted as pending.
    counted: usize,
}

impl OwnChanges {
    /// Forgets all: none is counted.
    pub(in crate::v4) fn clear(&mut self) {
        debug_assert_eq!(self.counted, 0, "changes that are counted end");
        self.scopes.iter_mut().for_each(|place| *place = None);
        self.counted = 0;
    }

    /// The operation was checked, and is about to make this change.
    pub(in crate::v4) fn add(&mut self, scope: ChangeScope) {
        if self.scopes.contains(&Some(scope)) {
            return;
        }
        let free = self.scopes.iter_mut().find(|place| place.is_none());
        debug_assert!(free.is_some(), "an operation changes no more");
        if let Some(free) = free {
            *free = Some(scope);
        }
    }

    /// The operation has to wait: its changes are pending from here on.
    pub(in crate::v4) fn begin(&mut self, all: &mut ChangesInFlight) {
        let more = self.scopes.iter().flatten().skip(self.counted);
        self.counted += more.map(|scope| all.begin(*scope)).count();
    }

    /// Returns true if this change is counted as pending.
    pub(in crate::v4) fn are_counted(&self, scope: ChangeScope) -> bool {
        self.scopes.iter().take(self.counted).any(|counted| *counted == Some(scope))
    }

    /// The operation is complete.
    pub(in crate::v4) fn end(&mut self, all: &mut ChangesInFlight) {
        let Self { scopes, counted } = std::mem::take(self);
        scopes.iter().flatten().take(counted).for_each(|scope| all.end(*scope));
    }
}

impl<S: Store> CompoundContext<'_, '_, S> {
    /// Notes a change that the operation is about to make.
    #[inline]
    pub(in crate::v4) fn note_change(&mut self, scope: impl FnOnce() -> ChangeScope) {
        if S::MAY_WAIT {
            self.compound.replay_log.changes.add(scope());
        }
    }

    /// Ends the changes of a completed operation.
    #[inline]
    pub(in crate::v4) fn end_changes(&mut self) {
        if S::MAY_WAIT {
            self.compound.replay_log.changes.end(&mut self.nfs4.changes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId(7);
    const OTHER: FileId = FileId(8);

    #[test]
    fn a_change_touches_its_file_while_it_is_under_way_and_for_those_who_looked_before_its_end() {
        let mut all = ChangesInFlight::new(true);
        let mut own = OwnChanges::default();
        own.add(ChangeScope::File(FILE));
        own.add(ChangeScope::File(FILE));
        assert!(!all.may_touch(FILE, all.last_end()), "it is not under way");
        own.begin(&mut all);
        own.begin(&mut all);
        let before = all.last_end();
        assert!(all.may_touch(FILE, before) && !all.may_touch(OTHER, before));
        own.end(&mut all);
        own.end(&mut all);
        assert!(all.may_touch(FILE, before) && !all.may_touch(OTHER, before));
        assert!(!all.may_touch(FILE, all.last_end()), "who looks later sees it");
    }

    #[test]
    fn a_change_of_names_touches_all_files() {
        let mut all = ChangesInFlight::new(true);
        let before = all.last_end();
        all.begin(ChangeScope::Names);
        assert!(all.may_touch(FILE, before) && all.may_touch(OTHER, before));
        all.end(ChangeScope::Names);
        assert!(all.may_touch(FILE, before) && !all.may_touch(FILE, all.last_end()));
    }
}
