//! Grant of delegations by OPEN, and their return (RFC 8881 §10.4, §18.6, §18.16).

use crate::{
    Claim, ClientKey, FileId, OpenRequest, StateFault, StateKey, StateRequest, StateTables,
    StateWork, StateidKind,
    entry::{DelegationEntry, FileEntry, StateEntry, StateKind},
    hosts::SharedTable,
};
use stag_pools::{steps, table::Key};
use stag_protocol::nfs::v4::state::{Delegation, ShareClass};
use stag_protocol::nfs::v4::{DelegationType, NoDelegation, SessionId, Stateid, Status4, share};

/// Delegations that the export of a file allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DelegationPolicy {
    /// None: other programs may change its files unseen.
    #[default]
    Never,
    /// For reading.
    Read,
    /// For reading, while no client has the file open for writing. That includes the same client,
    /// as a lease of the host conflicts with every writer.
    Watched,
    /// For reading, and for writing.
    ReadWrite,
}

/// The request of the fore channel whose reply carries a delegation. A recall that may overtake the
/// reply refers to it (RFC 8881 §2.10.6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantingCall {
    /// The session.
    pub session: SessionId,
    /// The slot.
    pub slot: u32,
    /// Sequence ID of the slot.
    pub sequence: u32,
}

/// Facts about an OPEN that decide about a delegation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelegationOffer {
    /// Delegations that the export allows.
    pub policy: DelegationPolicy,
    /// True if the client can be called back.
    pub has_back_channel: bool,
    /// True while the file is being changed, or if it was since its attributes were read.
    pub is_changing: bool,
    /// The request.
    pub call: Option<GrantingCall>,
}

/// The delegation of an OPEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenDelegation {
    /// Its key here. Set its [base](StateTables::set_delegation_base) from attributes that are read
    /// after the OPEN.
    pub state: StateKey,
    /// Its stateid.
    pub stateid: Stateid,
    /// True if it is for writing.
    pub write: bool,
}

/// Outcome of the decision about a delegation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DelegationOutcome {
    /// None, and the client did not state a want: OPEN_DELEGATE_NONE.
    None,
    /// None, and the reason: OPEN_DELEGATE_NONE_EXT.
    Refused(NoDelegation),
    /// This one.
    Given(GivenDelegation),
}

impl DelegationOutcome {
    /// None, for this reason; `asked` is the access of the OPEN.
    const fn refused(reason: NoDelegation, asked: u32) -> Self {
        // RFC 8881 §18.16.3 [8881-228]: who said what it wants hears why it does not get it
        if asked & share::WANT_MASK != 0 { Self::Refused(reason) } else { Self::None }
    }
}

/// Opens that an OPEN examines for conflicts with a delegation. A file that one client has opened
/// more often gets none.
const OPENS_JUDGED: usize = 64;

impl StateTables {
    /// Decides about a delegation for an open that was just granted.
    pub(crate) fn decide_delegation(
        &mut self,
        request: &OpenRequest<'_>,
        now: u64,
    ) -> DelegationOutcome {
        let given = match request.claim {
            Claim::Delegated(_) => Err(NoDelegation::Resource(false)), // it has one
            Claim::Previous(DelegationType::Read) => Ok(false),
            Claim::Previous(DelegationType::Write) => Ok(true),
            Claim::Previous(_) => Err(NoDelegation::NotWanted),
            Claim::New => self.may_delegate(request, now),
        };
        match given.and_then(|write| self.give_delegation(request, write, now)) {
            Ok(given) => DelegationOutcome::Given(given),
            Err(reason) => DelegationOutcome::refused(reason, request.access),
        }
    }

    /// Drops a delegation that was not sent to its client yet, since the file cannot be watched.
    /// `asked` is the access of its OPEN.
    pub fn take_back(&mut self, state: StateKey, asked: u32) -> DelegationOutcome {
        self.drop_state(state.0);
        DelegationOutcome::refused(NoDelegation::Contention(false), asked)
    }

    /// Starts to note files that lose their last delegation.
    pub fn note_undelegated(&mut self) {
        self.undelegated.get_or_insert_default();
    }

    /// The next file whose last unrevoked delegation has ended, and which still has none.
    pub fn next_undelegated(&mut self) -> Option<FileId> {
        while let Some(file) = self.undelegated.as_mut()?.pop() {
            if !self.is_delegated(file) {
                return Some(file);
            }
        }
        None
    }

    fn is_delegated(&self, file: FileId) -> bool {
        self.file(file).is_some_and(|file| self.delegations_of(file).next().is_some())
    }

    /// A delegation of a file was returned or revoked.
    pub(crate) fn note_ended(&mut self, file: FileId) {
        if let Some(undelegated) = &mut self.undelegated {
            undelegated.push(file);
        }
    }

    /// The kind of delegation that an open may have: true for writing.
    fn may_delegate(&self, request: &OpenRequest<'_>, now: u64) -> Result<bool, NoDelegation> {
        let wanted = request.access & share::WANT_MASK;
        match wanted {
            // RFC 8881 §18.16.3 [8881-229]: who wants none gets none
            share::WANT_NO_DELEGATION => return Err(NoDelegation::NotWanted),
            share::WANT_CANCEL => return Err(NoDelegation::Cancelled),
            _ => {}
        }
        let write = match request.access & share::BOTH {
            share::READ => false,
            // The holder of one for writing also reads through it, so it needs both accesses.
            share::BOTH => true,
            _ => return Err(NoDelegation::Resource(false)),
        };
        let allows = match request.offer.policy {
            DelegationPolicy::Never => false,
            DelegationPolicy::Read | DelegationPolicy::Watched => !write,
            DelegationPolicy::ReadWrite => true,
        };
        let file = self.file(request.file.id).ok_or(NoDelegation::Resource(false))?;
        if !allows || !request.offer.has_back_channel || self.check_grace().is_err() {
            return Err(NoDelegation::Resource(false));
        }
        // A pending change has recalled all delegations that there were.
        let is_watched = request.offer.policy == DelegationPolicy::Watched;
        let is_changing = request.offer.is_changing
            || self.recent.has(request.file.id, now)
            || is_watched && file.opens.any_writes();
        if is_changing || self.is_contended(file, request.client, write, OPENS_JUDGED) {
            return Err(NoDelegation::Contention(false));
        }
        Ok(write)
    }

    /// Returns true if other clients have the file open in a way that a delegation does not allow,
    /// or hold a delegation that excludes it, or if more than `most` opens would have to be
    /// examined.
    pub(crate) fn is_contended(
        &self,
        file: &FileEntry,
        client: ClientKey,
        write: bool,
        most: usize,
    ) -> bool {
        // RFC 8881 §10.4 [8881-230]: one for writing needs that no other client has the file open,
        // one for reading that none has it open for writing
        let is_excluded = |class: ShareClass| write || class.access() & share::WRITE != 0;
        let is_open = file.opens.of(is_excluded).enumerate().any(|(number, open)| {
            steps::count();
            number >= most || self.states.get(open).map(|state| state.client) != Some(client.0)
        });
        let is_delegated = self.delegations_of(file).any(|(_, state, held)| {
            state.client != client.0 && (write || held.write || held.is_recalled())
        });
        is_open || is_delegated
    }

    fn give_delegation(
        &mut self,
        request: &OpenRequest<'_>,
        write: bool,
        now: u64,
    ) -> Result<GivenDelegation, NoDelegation> {
        let short = NoDelegation::Resource(false);
        let client = self.clients.get(request.client.0).ok_or(NoDelegation::NotWanted)?;
        let is_reclaim = matches!(request.claim, Claim::Previous(_));
        let is_full = self.delegations >= self.limits.delegations
            || client.held.of(SharedTable::Delegations) >= self.limits.delegations_per_client
            || !is_reclaim && !self.has_share(request.client, SharedTable::Delegations);
        let is_full_or_held = self.file(request.file.id).is_none_or(|file| {
            file.delegations.len() >= self.limits.delegations_per_file
                || self.delegations_of(file).any(|(_, state, _)| state.client == request.client.0)
        });
        let file = self.find_file(request.file.id).filter(|_| !is_full && !is_full_or_held);
        let Some(file) = file else { return Err(short) };
        let entry = DelegationEntry {
            machine: Delegation::new(),
            write,
            change: 0,
            is_modified: false,
            asked_at: 0,
            is_revoke_asked: false,
            revoke_at: None,
            given_at: now,
            call: request.offer.call,
            recall_place: 0,
        };
        let kind = StateKind::Delegation(entry);
        let Ok(state) = self.add_state(request.client, file, kind) else { return Err(short) };
        self.delegations += 1;
        self.count_places(request.client.0, SharedTable::Delegations, 1, 0);
        if let Some(file) = self.files.get_mut(file) {
            file.delegations.push(state.0);
        }
        self.show_presence(file);
        match self.stateid(state) {
            Some(stateid) => Ok(GivenDelegation { state, stateid, write }),
            None => Err(short),
        }
    }

    /// DELEGRETURN. Requests that wait for it are resumed.
    ///
    /// # Errors
    /// Those of the stateid; DELEG_REVOKED.
    pub fn return_delegation(&mut self, request: &StateRequest) -> Result<(), StateFault> {
        let key = self.resolve(request, Some(StateidKind::Delegation))?;
        self.drop_state(key);
        Ok(())
    }

    /// Checks CLAIM_DELEGATE_CUR and CLAIM_DELEG_CUR_FH by their delegation.
    pub(crate) fn check_delegated(
        &self,
        request: &OpenRequest<'_>,
        stateid: Stateid,
    ) -> Result<(), StateFault> {
        let named = StateRequest { client: request.client, file: request.file.id, stateid };
        // RFC 8881 §18.16.3 [8881-231]: the delegation of such a claim is the client's own
        let key = self.resolve(&named, Some(StateidKind::Delegation))?;
        let state = self.states.get(key).ok_or(Status4::BadStateid)?;
        match &state.kind {
            StateKind::Delegation(held) if held.write || request.access & share::WRITE == 0 => {
                Ok(())
            }
            // RFC 8881 §18.16.3 [8881-232]: one for reading does not cover an open for writing
            _ => Err(Status4::OpenMode.into()),
        }
    }

    /// The client that holds a delegation.
    pub fn holder(&self, state: StateKey) -> Option<ClientKey> {
        self.states.get(state.0).map(|state| ClientKey(state.client))
    }

    /// The delegations of a file that are not revoked.
    pub(crate) fn delegations_of(
        &self,
        file: &FileEntry,
    ) -> impl Iterator<Item = (Key, &StateEntry, &DelegationEntry)> {
        file.delegations.iter().filter_map(|key| {
            let state = self.states.get(*key)?;
            match &state.kind {
                StateKind::Delegation(held) if held.machine.is_live() => Some((*key, state, held)),
                _ => None,
            }
        })
    }

    /// The delegation with this key.
    pub(crate) fn delegation_mut(&mut self, state: StateKey) -> Option<&mut DelegationEntry> {
        match &mut self.states.get_mut(state.0)?.kind {
            StateKind::Delegation(held) => Some(held),
            _ => None,
        }
    }

    /// Removes an ended delegation from its file.
    pub(crate) fn end_delegation(&mut self, key: Key, entry: &StateEntry) {
        let StateKind::Delegation(held) = &entry.kind else { return };
        self.delegations -= 1;
        self.count_places(entry.client, SharedTable::Delegations, 0, 1);
        if let Some(client) = self.clients.get_mut(entry.client) {
            client.revoked -= usize::from(!held.machine.is_live());
        }
        if let Some(file) = self.files.get_mut(entry.file) {
            file.delegations.retain(|one| *one != key);
        }
        self.show_presence(entry.file);
        self.note_ended(entry.file_id);
        if held.is_recalled() {
            self.forget_recall(StateKey(key), held.recall_place);
            self.work.push(StateWork::GoOn(entry.file_id));
        }
    }
}
