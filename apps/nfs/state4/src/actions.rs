//! Work that the tables ask their caller to do: callbacks to send, and records to write.

use crate::{ClientKey, FileId, LockNotice, RecallOrder, StateKey, StateTables};
use std::collections::VecDeque;

/// Work for the caller. It owns all its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateWork {
    /// Send CB_NOTIFY_LOCK. The loss of one only delays the client.
    NotifyLock(LockNotice),
    /// Send CB_RECALL, and report its progress by [`StateTables::handle_recall_sent`] and
    /// [`StateTables::handle_recall_answer`].
    Recall(RecallOrder),
    /// Send CB_RECALL_ANY: the client should keep at most `keep` delegations.
    RecallAny {
        /// The client.
        client: ClientKey,
        /// Delegations to keep.
        keep: u32,
    },
    /// A delegation was not returned in time: record that its client may not reclaim, then
    /// [revoke](StateTables::revoke) it.
    Revoke(StateKey),
    /// A delegation of the file was returned or revoked: retry the requests that wait for it.
    GoOn(FileId),
    /// The client's lease expired, and it has no state to keep or its state was kept long enough:
    /// remove its record, then [release](StateTables::release_client) it.
    Expired(ClientKey),
    /// The client is recorded and has had no state for a lease: remove its record, then [confirm
    /// that](StateTables::await_record).
    Stateless(ClientKey),
    /// The client is recorded and expired some leases ago, and its state is kept. Remove its
    /// record, then [confirm that](StateTables::await_record).
    Silent(ClientKey),
    /// A client whose record was removed has come back and still has its state: record it, then
    /// [confirm that](StateTables::handle_recorded).
    Returned(ClientKey),
    /// The grace period is over: record that, then [confirm
    /// it](StateTables::handle_grace_recorded). No client gets new state before.
    EndGrace,
}

/// Work in the order in which it came up. It is bounded by the tables: a notice removes its request
/// from the queue of its file, and all work is done in each pass.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue(VecDeque<StateWork>);

impl WorkQueue {
    pub fn push(&mut self, work: StateWork) {
        self.0.push_back(work);
    }
}

impl StateTables {
    /// The next work. Work that is no longer due is skipped: that of a client or a delegation that
    /// is gone.
    pub fn poll_work(&mut self) -> Option<StateWork> {
        self.tell_waiters();
        loop {
            let work = self.work.0.pop_front()?;
            let is_there = |client: ClientKey| self.clients.get(client.0).is_some();
            let is_due = match &work {
                StateWork::NotifyLock(notice) => is_there(notice.client),
                StateWork::RecallAny { client, .. } => is_there(*client),
                // A client that has renewed its lease meanwhile is kept.
                StateWork::Expired(client) => self.is_to_go(*client),
                StateWork::Stateless(client) => self.is_recorded_without_state(*client),
                StateWork::Silent(client) => self.is_recorded_and_expired(*client),
                StateWork::Returned(client) => is_there(*client),
                StateWork::Recall(RecallOrder { state, .. }) | StateWork::Revoke(state) => {
                    self.states.get(state.0).is_some_and(|state| state.kind.is_live())
                }
                StateWork::GoOn(_) | StateWork::EndGrace => true,
            };
            if is_due {
                return Some(work);
            }
        }
    }
}
