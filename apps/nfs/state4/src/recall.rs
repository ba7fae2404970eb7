//! Recall of conflicting delegations, and their revocation (RFC 8881 §10.4.4–§10.4.6, §20.2,
//! §20.6).

use crate::{
    ClientKey, FileId, GrantingCall, IoAccess, StateFault, StateKey, StateTables, StateWork,
    entry::{DelegationEntry, StateKind},
    hosts::SharedTable,
};
use stag_pools::table::Key;
use stag_protocol::nfs::v4::state::{DelegationPhase, RecallAnswer, RecallStep};
use stag_protocol::nfs::v4::{Stateid, sequence_flag};

/// Delegations that a request conflicts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecallScope {
    /// Write delegations: the request reads.
    Writers,
    /// All: the request changes the file, its attributes or its names, or denies reading.
    All,
}

impl From<IoAccess> for RecallScope {
    fn from(access: IoAccess) -> Self {
        match access {
            IoAccess::Read => Self::Writers,
            IoAccess::Write => Self::All,
        }
    }
}

/// CB_RECALL to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecallOrder {
    /// The client.
    pub client: ClientKey,
    /// Key of the delegation here.
    pub state: StateKey,
    /// Its stateid, with the sequence ID zero that callbacks have.
    pub stateid: Stateid,
    /// Filehandle of the file.
    pub handle: Box<[u8]>,
    /// The request whose reply may still be in flight, for the referring call list.
    pub referring: Option<GrantingCall>,
}

/// Milliseconds after which the reply that carried a delegation has arrived.
const OFFER_MS: u64 = 1_000;

/// Recalls that one call of [`StateTables::handle_time`] examines.
const RECALLS_PER_TURN: usize = 64;

/// Milliseconds before its deadline from which on a delegation counts as nearly revoked: deadlines
/// are checked once a second.
const NEARLY_MS: u64 = 1_000;

/// Milliseconds between two CB_RECALL_ANY.
const RECALL_ANY_MS: u64 = 5_000;

impl StateTables {
    /// Checks a request without a stateid that reads or changes a file, its attributes or its
    /// names: SETATTR, REMOVE and RENAME (also for a file that is replaced), LINK, and operations
    /// of version 3, which have no client. Delegations of other clients are recalled.
    ///
    /// # Errors
    /// [`StateFault::AwaitRecall`], [`StateFault::AwaitRemoval`].
    pub fn recall(
        &mut self,
        file: FileId,
        client: Option<ClientKey>,
        scope: RecallScope,
        now: u64,
    ) -> Result<(), StateFault> {
        let Some(entry) = self.file(file) else { return Ok(()) };
        // RFC 8881 §10.4.4 [8881-233]: what another client does recalls, what the holder does not
        let conflicts = |client: Option<ClientKey>, holder: Key, held: &DelegationEntry| {
            client.map(|client| client.0) != Some(holder)
                && (held.write || scope == RecallScope::All)
        };
        let held = self.delegations_of(entry);
        let held = held.filter(|(_, state, held)| conflicts(client, state.client, held));
        let held: Vec<(Key, Key)> = held.map(|(key, state, _)| (key, state.client)).collect();
        let mut fault = Ok(());
        for (key, holder) in held {
            if self.is_courtesy(holder) && !self.is_nearly_revoked(StateKey(key), now) {
                fault = Err(StateFault::AwaitRemoval(ClientKey(holder)));
            } else {
                self.begin_recall(StateKey(key), now);
                fault = fault.and(Err(StateFault::AwaitRecall));
            }
        }
        fault
    }

    /// Returns true if the client's time to return a delegation is nearly over. Then only the
    /// delegation is revoked, and not all state of a client that has been silent since.
    fn is_nearly_revoked(&self, state: StateKey, now: u64) -> bool {
        let kind = self.states.get(state.0).map(|entry| &entry.kind);
        let Some(StateKind::Delegation(held)) = kind else { return false };
        match held.machine.phase() {
            DelegationPhase::AwaitReturn { deadline } => deadline <= now.saturating_add(NEARLY_MS),
            _ => false,
        }
    }

    /// Recalls all delegations of a file for a local program, or for a request that acts like one
    /// on the host. If there is a `patience`, in milliseconds, they are revoked when it is over at
    /// the latest: the program then continues.
    ///
    /// # Errors
    /// As [`recall`](Self::recall).
    pub fn recall_for_host(
        &mut self,
        file: FileId,
        patience: Option<u64>,
        now: u64,
    ) -> Result<(), StateFault> {
        let outcome = self.recall(file, None, RecallScope::All, now);
        if let Some(patience) = patience
            && let Some(entry) = self.file(file)
        {
            let held: Vec<_> = self.delegations_of(entry).map(|(key, ..)| key).collect();
            let at = now.saturating_add(patience);
            for key in held {
                if let Some(held) = self.delegation_mut(StateKey(key)) {
                    held.revoke_at.get_or_insert(at);
                }
            }
        }
        outcome
    }

    /// Recalls a delegation for a reason of the caller: memory is short, or CB_GETATTR was not
    /// answered.
    pub fn begin_recall(&mut self, state: StateKey, now: u64) {
        let place = self.recalling.len();
        let Some(held) = self.delegation_mut(state) else { return };
        if held.machine.handle_conflict() != RecallStep::SendRecall {
            return;
        }
        held.asked_at = now;
        held.recall_place = place;
        self.recalling.push(state);
        let Some(order) = self.recall_order(state, now) else { return };
        if let Some(entry) = self.states.get(state.0) {
            self.recent.add(entry.file_id, now);
        }
        self.work.push(StateWork::Recall(order));
    }

    /// The CB_RECALL for a delegation, if sent at this time.
    pub fn recall_order(&self, state: StateKey, now: u64) -> Option<RecallOrder> {
        let entry = self.states.get(state.0)?;
        let StateKind::Delegation(held) = &entry.kind else { return None };
        let is_young = now.saturating_sub(held.given_at) < OFFER_MS;
        Some(RecallOrder {
            client: ClientKey(entry.client),
            state,
            // RFC 8881 §8.2.2 [8881-234]: a stateid of a callback has the sequence ID zero
            stateid: self.name(state.0, entry).stateid(0),
            handle: self.files.get(entry.file)?.handle.clone(),
            // RFC 8881 §2.10.6.3 [8881-235]: a recall names the call that it may have overtaken
            referring: held.call.filter(|_| is_young && held.machine.is_live()),
        })
    }

    /// CB_RECALL was sent for the first time: the client has the time of a lease from here on.
    pub fn handle_recall_sent(&mut self, state: StateKey, now: u64) {
        let lease = self.lease;
        if let Some(held) = self.delegation_mut(state) {
            held.machine.handle_recall_sent(now, lease);
        }
    }

    /// Handles the outcome of CB_RECALL. Returns true if it has to be sent again after a moment.
    pub fn handle_recall_answer(&mut self, state: StateKey, answer: RecallAnswer) -> bool {
        let step = self.delegation_mut(state).map(|held| held.machine.handle_recall_answer(answer));
        step == Some(RecallStep::SendAgain)
    }

    /// Revokes a delegation, after it was recorded that its client may not reclaim. Requests that
    /// wait for it are resumed. Its stateid remains until the client frees it.
    pub fn revoke(&mut self, state: StateKey) {
        let Some(held) = self.delegation_mut(state) else { return };
        if held.machine.revoke() != RecallStep::RevokedGoOn {
            return;
        }
        self.note_gone(state.0);
        let Some(entry) = self.states.get(state.0) else { return };
        let (file, file_id, client) = (entry.file, entry.file_id, entry.client);
        if let Some(client) = self.clients.get_mut(client) {
            client.revoked += 1;
        }
        self.show_presence(file);
        self.note_ended(file_id);
        self.work.push(StateWork::GoOn(file_id));
    }

    /// Delegations of all clients, revoked ones included.
    pub const fn delegation_count(&self) -> usize {
        self.delegations
    }

    /// Flags of SEQUENCE's reply that report revoked state to a client.
    pub fn sequence_flags(&self, client: ClientKey) -> u32 {
        match self.clients.get(client.0) {
            // RFC 8881 §10.4.5 [8881-236]: SEQUENCE reports revoked delegations until the client
            // has freed all of them
            Some(client) if client.revoked > 0 => sequence_flag::RECALLABLE_STATE_REVOKED,
            _ => 0,
        }
    }

    /// Examines some recalls, in turns, as time passes.
    pub(crate) fn expire_recalls(&mut self, now: u64) {
        for _ in 0..RECALLS_PER_TURN.min(self.recalling.len()) {
            let turn = self.next_recall.checked_rem(self.recalling.len()).unwrap_or(0);
            self.next_recall = turn + 1;
            let Some(state) = self.recalling.get(turn).copied() else { return };
            if !self.expire_recall(state, now) {
                self.forget_recall(state, turn);
                self.next_recall = turn;
            }
        }
    }

    /// Removes a recall, which is at `place`, from the list.
    pub(crate) fn forget_recall(&mut self, state: StateKey, place: usize) {
        if self.recalling.get(place) != Some(&state) {
            return;
        }
        self.recalling.swap_remove(place);
        if let Some(moved) = self.recalling.get(place).copied()
            && let Some(moved) = self.delegation_mut(moved)
        {
            moved.recall_place = place;
        }
    }

    /// Returns false if the recall is over.
    fn expire_recall(&mut self, state: StateKey, now: u64) -> bool {
        let lease = self.lease;
        let Some(held) = self.delegation_mut(state) else { return false };
        let is_late = held.revoke_at.is_some_and(|at| now >= at);
        match held.machine.phase() {
            // The local program waits no longer, whatever time the client has.
            DelegationPhase::AwaitRecallSent | DelegationPhase::AwaitReturn { .. } if is_late => {
                if !std::mem::replace(&mut held.is_revoke_asked, true) {
                    self.work.push(StateWork::Revoke(state));
                }
            }
            // No back channel for a lease: the client's time begins although no recall was sent.
            DelegationPhase::AwaitRecallSent if now.saturating_sub(held.asked_at) >= lease => {
                held.machine.handle_recall_sent(now, lease);
            }
            // RFC 8881 §10.4.5 [8881-237]: a delegation is revoked when its time is over
            DelegationPhase::AwaitReturn { deadline } if now >= deadline => {
                if !std::mem::replace(&mut held.is_revoke_asked, true) {
                    self.work.push(StateWork::Revoke(state));
                }
            }
            DelegationPhase::AwaitRecallSent | DelegationPhase::AwaitReturn { .. } => {}
            _ => return false,
        }
        true
    }

    /// Asks the client with the most delegations to return half of them when few places are left.
    pub(crate) fn recall_any(&mut self, now: u64) {
        let is_full = self.delegations > self.limits.delegations / 4 * 3;
        if !is_full || now < self.next_recall_any {
            return;
        }
        let most =
            self.clients.iter().max_by_key(|(_, client)| client.held.of(SharedTable::Delegations));
        if let Some((key, client)) = most {
            let keep =
                u32::try_from(client.held.of(SharedTable::Delegations) / 2).unwrap_or(u32::MAX);
            self.next_recall_any = now.saturating_add(RECALL_ANY_MS);
            self.work.push(StateWork::RecallAny { client: ClientKey(key), keep });
        }
    }
}
