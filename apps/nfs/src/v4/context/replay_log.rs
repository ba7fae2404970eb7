//! The replay log of an operation that may wait.
//!
//! An operation that has to wait ends with [`OpExit::Wait`](super::OpExit::Wait), and its
//! compound is suspended with a wish, which names the event it waits for. After that event, the
//! operation runs again from its first line. Its replay log replays the earlier answers in the same
//! order, then gives the new one: each question reaches the store once, and each change is made
//! once. So the code of an operation reads as if it never waited. Four rules make that correct:
//!
//! - While there is a wish, no question is asked and no state changes: an operation that continues
//!   although it has to wait has no effect. Its results, and the filehandles that it set, are those
//!   of its last run.
//! - A check of state that passed is not repeated: actions that relied on it stay done.
//! - State changes only after the last question to the store.
//! - The decision to ask a question depends only on data that is the same in each run: the
//!   arguments, earlier answers, and facts that the replay log keeps.

use stag_engine::Time;
use stag_pools::Extent;
use stag_protocol::nfs::v3::FileHandle;

use super::{
    OpExit,
    changes_in_flight::OwnChanges,
    owner_names::AwaitedNames,
    saved_arguments::SavedArguments,
    shard_context::{HomeCall, OpenedFile},
};
use stag_nfs_store::{AclPair, Answered, Brought, StoreOutcome, StoreRequest};
use stag_nfs4_state::{ChangeAndSize, StateKey};

/// Answers that an operation may get before it waits. Beyond this number it gets NFS4ERR_DELAY
/// instead of waiting.
const ANSWERS_MAX: usize = 64;
/// Answers that a replay log has room for initially. Hardly any operation gets more.
const ANSWERS: usize = 8;

/// Event that a compound waits for.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "boxing would allocate")]
pub(crate) enum WaitFor {
    /// A call to the store, to be begun.
    Store(StoreWait),
    /// A READ that the store has deferred under the next ticket.
    Fetch,
    /// The return of recalled delegations of other clients.
    Recall,
    /// The home's part, which it is asked to execute.
    Home(HomeCall),
    /// Its next turn: it has used the core for long, and its next operation has not begun.
    Turn,
}

/// CB_GETATTR of an operation.
#[derive(Clone, Copy, Debug)]
pub(in crate::v4) struct HolderCall {
    /// The number of the callback.
    pub(in crate::v4) number: u64,
    /// The holder's delegation.
    pub(in crate::v4) state: StateKey,
    /// None until the callback is over; then the values that the holder returned, if any.
    pub(in crate::v4) told: Option<Option<ChangeAndSize>>,
    /// The operation has run again since.
    pub(in crate::v4) is_heard: bool,
}

/// A call that the store has to begin.
#[derive(Debug)]
pub(crate) struct StoreWait {
    pub(crate) operation: StoreRequest,
    /// The data that it writes.
    pub(crate) payload: Option<Extent>,
}

/// Answers and facts by which an operation runs again from its first line. It is in memory of its
/// own, which the next compound reuses: it is large, and most compounds use little of it.
#[derive(Debug, Default)]
pub(in crate::v4) struct ReplayLog {
    /// The compound's arguments in memory of their own, once it may have to wait.
    pub(in crate::v4) kept: Option<SavedArguments>,
    answers: Vec<Answered>,
    /// Answers that this run has been given.
    told: usize,
    /// Checks that passed, and the number of them that this run has reached.
    passed: u32,
    checked: u32,
    /// An answer is not in the replay log, so no later question can wait.
    has_gap: bool,
    /// The operation has created or cut a file. Its client would not ask for that again, so it gets
    /// no NFS4ERR_DELAY: the operation waits for as long as it has to.
    pub(in crate::v4) has_effect: bool,
    /// The file of an OPEN that another shard has found, and may have created.
    found: Option<OpenedFile>,
    /// There were delegations at the first look of the operation.
    sees_delegations: Option<bool>,
    /// Edition of the list of exports at the first look of the operation.
    exports_edition: Option<u64>,
    /// Data fetched for a deferred READ, which can now be executed.
    brought: Option<Option<Brought>>,
    /// The file of an OPEN that another shard has pinned for this one.
    pub(in crate::v4) pinned: Option<FileHandle>,
    /// Changes that the operation makes.
    pub(in crate::v4) changes: OwnChanges,
    /// Number of the last change that had ended at the first look of the operation.
    last_end: Option<u64>,
    /// The CB_GETATTR that was made for the operation.
    pub(in crate::v4) asked: Option<HolderCall>,
    /// Time up to which the operation waits for other shards to know of its file, once it does.
    pub(in crate::v4) announced_until: Option<Time>,
    /// Names of owners that the operation waits for.
    pub(in crate::v4) names: AwaitedNames,
    /// The access control lists in its arguments, once all names in them are known.
    pub(in crate::v4) acls: Option<Box<AclPair>>,
    /// Time up to which the operation waits for the record of its client, once it does.
    pub(in crate::v4) recorded_until: Option<Time>,
    event: Option<WaitFor>,
}

impl ReplayLog {
    /// Clears everything: the next compound begins.
    // One entry after the other, because an assignment of all would copy two kilobytes.
    #[inline]
    pub(in crate::v4) fn reset(&mut self) {
        self.changes.clear();
        // It asserts that there is neither an event nor a pin.
        self.clear();
        (self.event, self.pinned, self.kept) = (None, None, None);
    }

    /// Clears all entries: the next operation begins.
    pub(in crate::v4) fn clear(&mut self) {
        self.answers.clear();
        (self.told, self.passed, self.checked, self.has_gap) = (0, 0, 0, false);
        (self.has_effect, self.found) = (false, None);
        (self.sees_delegations, self.exports_edition, self.brought) = (None, None, None);
        (self.last_end, self.asked, self.announced_until) = (None, None, None);
        (self.recorded_until, self.acls) = (None, None);
        self.names = AwaitedNames::default();
        debug_assert!(self.event.is_none(), "an operation that waits is not over");
        debug_assert!(self.pinned.is_none(), "an OPEN takes its pin");
    }

    /// Returns true if the store has answered a question of the operation.
    pub(in crate::v4) const fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Notes the file that another shard has found, before the OPEN runs here for the first time.
    pub(in crate::v4) const fn begin_with(
        &mut self,
        found: OpenedFile,
        pinned: Option<FileHandle>,
    ) {
        (self.found, self.pinned) = (Some(found), pinned);
    }

    /// The file of an OPEN that another shard has found.
    pub(in crate::v4) const fn found(&self) -> Option<OpenedFile> {
        self.found
    }

    /// The operation runs again, from its first line.
    pub(in crate::v4) fn restart(&mut self) {
        (self.told, self.checked) = (0, 0);
        self.names.restart();
        debug_assert!(self.event.is_none(), "what it waited for is there");
    }

    /// Returns true while there is a wish.
    #[inline]
    pub(in crate::v4) const fn is_waiting(&self) -> bool {
        self.event.is_some()
    }

    /// Returns early if there is a wish.
    ///
    /// # Errors
    /// [`OpExit::Wait`].
    #[inline]
    pub(in crate::v4) const fn go_on(&self) -> Result<(), OpExit> {
        if self.is_waiting() { Err(OpExit::Wait) } else { Ok(()) }
    }

    /// Returns true if the operation may wait here.
    pub(in crate::v4) const fn may_wait(&self) -> bool {
        !self.has_gap && self.answers.len() < ANSWERS_MAX
    }

    /// Sets the wish.
    pub(in crate::v4) fn wait_for(&mut self, event: WaitFor) -> OpExit {
        debug_assert!(self.event.is_none(), "an operation waits for one thing");
        self.event = Some(event);
        OpExit::Wait
    }

    /// Takes the wish.
    pub(in crate::v4) fn take_event(&mut self) -> Option<WaitFor> {
        self.event.take()
    }

    /// Returns true if the next question was asked before.
    pub(in crate::v4) const fn knows_next(&self) -> bool {
        self.told < self.answers.len()
    }

    /// The answer to the next question, if it was asked before.
    pub(in crate::v4) fn next_answer(&mut self) -> Option<Answered> {
        let answer = self.answers.get(self.told)?.clone();
        self.told += 1;
        Some(answer)
    }

    /// Notes an answer that the store gave at once.
    pub(in crate::v4) fn note(&mut self, outcome: StoreOutcome) {
        debug_assert_eq!(self.told, self.answers.len(), "questions have an order");
        self.add(Answered::new(outcome, None));
        self.told = self.answers.len();
    }

    /// Adds the awaited answer.
    pub(in crate::v4) fn add(&mut self, answer: Answered) {
        if self.answers.capacity() == 0 {
            self.answers.reserve_exact(ANSWERS);
        }
        if self.answers.len() < ANSWERS_MAX {
            self.answers.push(answer);
        } else {
            self.has_gap = true;
        }
    }

    /// Leaves an answer unrecorded, as its data is stored elsewhere.
    pub(in crate::v4) const fn leave_gap(&mut self) {
        self.has_gap = true;
    }

    /// Stores the data fetched for a deferred READ.
    pub(in crate::v4) fn bring(&mut self, brought: Option<Brought>) {
        self.brought = Some(brought);
    }

    /// Takes the fetched data.
    pub(in crate::v4) fn take_brought(&mut self) -> Option<Option<Brought>> {
        self.brought.take()
    }

    /// Returns true if there were delegations at the first look of the operation.
    pub(in crate::v4) fn sees_delegations(&mut self, are_there: bool) -> bool {
        *self.sees_delegations.get_or_insert(are_there)
    }

    /// Edition of the list of exports at the first look of the operation.
    pub(in crate::v4) fn exports_edition(&mut self, edition: u64) -> u64 {
        *self.exports_edition.get_or_insert(edition)
    }

    /// Number of the last change that had ended at the first look of the operation.
    pub(in crate::v4) fn last_end(&mut self, ended: u64) -> u64 {
        *self.last_end.get_or_insert(ended)
    }

    /// Returns true if the next check has passed before.
    pub(in crate::v4) const fn has_passed(&mut self) -> bool {
        let has_passed = self.checked < self.passed;
        self.checked += has_passed as u32;
        has_passed
    }

    /// Notes that a check passed.
    pub(in crate::v4) const fn pass(&mut self) {
        (self.passed, self.checked) = (self.passed + 1, self.checked + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_nfs_store::Status;

    #[test]
    fn a_second_run_is_told_what_the_first_was_told_and_then_what_it_waited_for() {
        let mut replay_log = ReplayLog::default();
        assert!(replay_log.next_answer().is_none() && !replay_log.has_passed());
        replay_log.pass();
        replay_log.note(StoreOutcome::Attributes(Err(Status::Stale)));
        assert!(replay_log.next_answer().is_none(), "the next question is a new one");
        assert_eq!(replay_log.wait_for(WaitFor::Recall), OpExit::Wait);
        assert_eq!(replay_log.go_on(), Err(OpExit::Wait));
        assert!(replay_log.take_event().is_some() && replay_log.go_on().is_ok());
        replay_log.add(Answered::failed(Status::Jukebox));
        replay_log.restart();
        assert!(replay_log.has_passed() && !replay_log.has_passed(), "one check passed");
        assert!(replay_log.next_answer().is_some() && replay_log.next_answer().is_some());
        assert!(replay_log.next_answer().is_none());
        replay_log.clear();
        assert!(replay_log.next_answer().is_none() && !replay_log.has_passed());
    }

    #[test]
    fn behind_an_answer_that_is_not_noted_nothing_waits() {
        let mut replay_log = ReplayLog::default();
        replay_log.leave_gap();
        assert!(!replay_log.may_wait());
        replay_log.clear();
        for _ in 0..ANSWERS_MAX {
            assert!(replay_log.may_wait());
            replay_log.note(StoreOutcome::Attributes(Err(Status::Stale)));
        }
        assert!(!replay_log.may_wait());
        replay_log.note(StoreOutcome::Attributes(Err(Status::Stale)));
        assert!(!replay_log.may_wait() && replay_log.answers.len() == ANSWERS_MAX);
    }
}
