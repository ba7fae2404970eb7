//! Opens: OPEN, OPEN_DOWNGRADE and CLOSE, as far as they are about state (RFC 8881 §9.7–§9.11,
//! §18.2, §18.16, §18.18).

use crate::{
    ClientKey, DelegationOffer, DelegationOutcome, FileId, FileRef, RecallScope, StateFault,
    StateTables, StateWork, StateidKind,
    entry::{OpenEntry, StateEntry, StateKind},
    hosts::SharedTable,
    stateid::next_seqid,
    tables::OpenIndexEntry,
};
use stag_pools::{
    steps,
    table::{Key, Table},
};
use stag_protocol::nfs::v4::state::OpenShare;
use stag_protocol::nfs::v4::{DelegationType, Stateid, Status4, share};

/// The claim of an OPEN on its file (`open_claim4`). The caller refuses the two claims of a client
/// that restarted with its delegations, which are not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// No previous state: CLAIM_NULL, CLAIM_FH.
    New,
    /// A delegation of the client's: CLAIM_DELEGATE_CUR, CLAIM_DELEG_CUR_FH.
    Delegated(Stateid),
    /// An open, and a delegation of this type, from before the server restarted: CLAIM_PREVIOUS.
    Previous(DelegationType),
}

/// An OPEN of an existing regular file, after the permission of the caller was checked.
#[derive(Clone, Copy, Debug)]
pub struct OpenRequest<'a> {
    /// The client.
    pub client: ClientKey,
    /// The file.
    pub file: FileRef<'a>,
    /// The open-owner.
    pub owner: &'a [u8],
    /// Access and wants as received.
    pub access: u32,
    /// Denial as received.
    pub deny: u32,
    /// Claim.
    pub claim: Claim,
    /// Facts that decide about a delegation.
    pub offer: DelegationOffer,
    /// True if its file was created or cut for it, after [`StateTables::check_room`] had found
    /// room: a table that has become full since does not refuse it.
    pub is_promised: bool,
}

/// Result of an OPEN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The open.
    pub stateid: Stateid,
    /// True if the open-owner did not have the file open.
    pub is_new: bool,
    /// The delegation.
    pub delegation: DelegationOutcome,
}

/// A stateid that an operation refers to.
#[derive(Clone, Copy, Debug)]
pub struct StateRequest {
    /// The client of the session.
    pub client: ClientKey,
    /// The current filehandle's file.
    pub file: FileId,
    /// The stateid.
    pub stateid: Stateid,
}

/// Holder of an open that conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShareConflict {
    /// A client whose lease has not expired.
    Held,
    /// Only expired clients, of the opens examined: one of them.
    Expired(ClientKey),
}

/// Conflicting opens that are examined to find one whose client has not expired.
const OPENS_JUDGED: usize = 64;

/// Lock states without locks that one CLOSE removes at a time.
const LOCK_STATES_CLOSED: usize = 128;

/// Arguments of OPEN_DOWNGRADE.
#[derive(Clone, Copy, Debug)]
pub struct DowngradeRequest {
    /// The open.
    pub open: StateRequest,
    /// Remaining access, as received.
    pub access: u32,
    /// Remaining denial, as received.
    pub deny: u32,
}

impl StateTables {
    /// OPEN: grants the client access to a file, or more access to one that the open-owner has open
    /// already.
    ///
    /// # Errors
    /// INVAL for undefined bits, SHARE_DENIED, DELAY when a table is full, and the errors of the
    /// claim.
    pub fn open(&mut self, request: &OpenRequest<'_>, now: u64) -> Result<Opened, StateFault> {
        check_bits(request.access, request.deny)?;
        self.check_claim(request, now)?;
        self.check_shares(request)?;
        self.check_delegations(request, now)?;
        self.give_open(request, now)
    }

    /// OPEN_DOWNGRADE: reduces access and denial of an open to a union of what its OPENs asked for.
    ///
    /// # Errors
    /// Those of the stateid; INVAL for any other access or denial.
    pub fn downgrade(&mut self, request: &DowngradeRequest) -> Result<Stateid, StateFault> {
        let open = &request.open;
        let key = self.resolve(open, Some(StateidKind::Open))?;
        let file = self.states.get(key).ok_or(Status4::BadStateid)?.file;
        let mut share = self.share_of(key).ok_or(Status4::BadStateid)?;
        // RFC 8881 §18.18.3 [8881-203]: only access and denial that OPENs asked for can stay
        share.downgrade(request.access, request.deny).map_err(|_| Status4::Inval)?;
        self.set_share(key, share);
        self.show_presence(file);
        self.changed_open(key)
    }

    /// CLOSE: ends an open, with the lock states under it.
    ///
    /// # Errors
    /// Those of the stateid; LOCKS_HELD while locks would remain.
    pub fn close(&mut self, request: &StateRequest) -> Result<(), StateFault> {
        let key = self.resolve(request, Some(StateidKind::Open))?;
        // RFC 8881 §18.2.3 [8881-227]: an open with locks is not closed
        if self.has_locks(key) {
            return Err(Status4::LocksHeld.into());
        }
        if !self.drop_lock_states(key, LOCK_STATES_CLOSED) {
            // A retry of the same CLOSE continues with the others.
            self.work.push(StateWork::GoOn(request.file));
            return Err(StateFault::AwaitPart);
        }
        self.drop_state(key);
        Ok(())
    }

    /// Checks the claim of an OPEN.
    fn check_claim(&self, request: &OpenRequest<'_>, now: u64) -> Result<(), StateFault> {
        match request.claim {
            Claim::New => self.check_grant(request.client, now),
            Claim::Delegated(stateid) => self.check_delegated(request, stateid),
            Claim::Previous(_) => self.check_reclaim(request.client, now),
        }
    }

    /// Checks an OPEN before it cuts its file: no open may deny that.
    ///
    /// # Errors
    /// SHARE_DENIED; [`StateFault::AwaitRemoval`].
    pub fn check_cut(&self, file: FileId, access: u32, deny: u32) -> Result<(), StateFault> {
        self.judge_shares(file, access | share::WRITE, deny, false)
    }

    /// Checks for room before an OPEN creates or cuts its file, since it must not fail afterwards.
    ///
    /// # Errors
    /// DELAY when a table is full; [`StateFault::AwaitRemoval`].
    pub fn check_room(
        &self,
        client: ClientKey,
        file: Option<FileId>,
        owner: &[u8],
    ) -> Result<(), StateFault> {
        match file.and_then(|file| self.find_open(client.0, file, owner)) {
            Some(_) => Ok(()),
            None => self.judge_room(client, file, 0, false),
        }
    }

    /// Returns true if the client may have one more open, of a file that has none.
    pub fn has_room(&self, client: ClientKey) -> bool {
        self.judge_room(client, None, 0, false).is_ok()
    }

    /// Checks for a place for one more open in tables with `more` places than their limits. An
    /// exempt OPEN is not limited to the share of its client and host.
    fn judge_room(
        &self,
        client: ClientKey,
        file: Option<FileId>,
        more: usize,
        is_exempt: bool,
    ) -> Result<(), StateFault> {
        let entry = self.clients.get(client.0).ok_or(Status4::StaleClientid)?;
        let held = entry.held.of(SharedTable::Opens);
        if self.opens >= self.limits.opens + more {
            return Err(self.when_full());
        }
        let has_share = is_exempt || self.has_share(client, SharedTable::Opens);
        if !has_share || held >= self.limits.opens_per_client + more {
            return Err(self.when_over_share(client));
        }
        let crowded = file.filter(|file| {
            let opens = self.file(*file).map_or(0, |file| file.opens.len());
            opens >= self.limits.opens_per_file + more
        });
        crowded.map_or(Ok(()), |file| Err(self.when_crowded(file)))
    }

    fn check_shares(&self, request: &OpenRequest<'_>) -> Result<(), StateFault> {
        let is_reclaim = matches!(request.claim, Claim::Previous(_));
        self.judge_shares(request.file.id, request.access, request.deny, is_reclaim)
    }

    /// Checks the bits of an OPEN against all opens of the file.
    fn judge_shares(
        &self,
        file: FileId,
        access: u32,
        deny: u32,
        is_reclaim: bool,
    ) -> Result<(), StateFault> {
        match self.share_conflict(file, access & share::BOTH, deny) {
            None => Ok(()),
            Some(ShareConflict::Expired(client)) => Err(StateFault::AwaitRemoval(client)),
            // RFC 8881 §9.11 [8881-226]: a reclaim that conflicts with another is refused
            Some(ShareConflict::Held) if is_reclaim => Err(Status4::ReclaimConflict.into()),
            Some(ShareConflict::Held) => Err(Status4::ShareDenied.into()),
        }
    }

    /// Looks for an open that conflicts with this access and denial. Of opens of expired clients it
    /// examines a few.
    pub(crate) fn share_conflict(
        &self,
        file: FileId,
        access: u32,
        deny: u32,
    ) -> Option<ShareConflict> {
        let file = self.file(file)?;
        let mut expired = None;
        for open in file.opens.of(|class| class.conflicts(access, deny)).take(OPENS_JUDGED) {
            steps::count();
            let Some(holder) = self.states.get(open) else { continue };
            if !self.is_courtesy(holder.client) {
                return Some(ShareConflict::Held);
            }
            expired = Some(ShareConflict::Expired(ClientKey(holder.client)));
        }
        expired
    }

    /// Checks an OPEN against the delegations of other clients, which are recalled.
    fn check_delegations(&mut self, request: &OpenRequest<'_>, now: u64) -> Result<(), StateFault> {
        // RFC 8881 §10.4 [8881-240]: an open for writing, or that denies reading, ends delegations
        // for reading, and any open those for writing
        let is_change = request.access & share::WRITE != 0 || request.deny & share::READ != 0;
        let scope = if is_change { RecallScope::All } else { RecallScope::Writers };
        if let Claim::Previous(delegation) = request.claim {
            let Some(file) = self.file(request.file.id) else { return Ok(()) };
            let conflicts = self.delegations_of(file).any(|(_, state, held)| {
                state.client != request.client.0 && (held.write || is_change)
            });
            let is_taken = match delegation {
                DelegationType::Read => self.is_contended(file, request.client, false, usize::MAX),
                DelegationType::Write => self.is_contended(file, request.client, true, usize::MAX),
                _ => false,
            };
            let is_refused = conflicts || is_taken;
            return if is_refused { Err(Status4::ReclaimConflict.into()) } else { Ok(()) };
        }
        self.recall(request.file.id, Some(request.client), scope, now)
    }

    /// Enters an OPEN without conflicts.
    fn give_open(&mut self, request: &OpenRequest<'_>, now: u64) -> Result<Opened, StateFault> {
        let known = self.find_open(request.client.0, request.file.id, request.owner);
        let is_new = known.is_none();
        let mut share = known.and_then(|key| self.share_of(key)).unwrap_or_default();
        share.open(request.access, request.deny).map_err(|_| Status4::Inval)?;
        let stateid = match known {
            Some(key) => {
                self.set_share(key, share);
                self.changed_open(key)?
            }
            None => self.add_open(request, share)?,
        };
        if request.deny != 0
            && let Some(place) = self.find_file(request.file.id)
        {
            self.show_presence(place);
        }
        let delegation = self.decide_delegation(request, now);
        Ok(Opened { stateid, is_new, delegation })
    }

    /// Adds an open.
    fn add_open(
        &mut self,
        request: &OpenRequest<'_>,
        share: OpenShare,
    ) -> Result<Stateid, StateFault> {
        let more = if request.is_promised { self.limits.opens_promised } else { 0 };
        let is_exempt = request.is_promised || matches!(request.claim, Claim::Previous(_));
        self.judge_room(request.client, Some(request.file.id), more, is_exempt)?;
        let file = self.add_file(&request.file)?;
        let owner = request.owner.into();
        let kind = StateKind::Open(OpenEntry { owner, share, place: 0, locks: Vec::new() });
        let added = self.add_state(request.client, file, kind);
        let key = added.map_err(|status| {
            self.sweep_file(file);
            self.refusal(status)
        })?;
        self.opens += 1;
        let (client, owner) = (request.client.0, request.owner);
        let indexed = OpenIndexEntry { client, file: request.file.id, owner };
        self.index_open(&indexed, Some(key.0));
        self.count_places(request.client.0, SharedTable::Opens, 1, 0);
        if let Some(file) = self.files.get_mut(file) {
            file.opens.insert(key.0, share.class(), |key, place| {
                set_place(&mut self.states, key, place);
            });
        }
        self.refresh_open(key.0)
    }

    /// The error when a file has its maximum of opens: an expired client that has it open may make
    /// room. Only a few of its opens are examined.
    fn when_crowded(&self, file: FileId) -> StateFault {
        let opens = self.file(file).into_iter().flat_map(|file| file.opens.iter());
        let mut holders = opens.take(OPENS_JUDGED).filter_map(|key| self.states.get(key));
        let expired = holders.find(|state| self.is_courtesy(state.client));
        expired.map_or(StateFault::Failed(Status4::Delay), |state| {
            StateFault::AwaitRemoval(ClientKey(state.client))
        })
    }

    /// Access and denial of an open.
    fn share_of(&self, key: Key) -> Option<OpenShare> {
        match &self.states.get(key)?.kind {
            StateKind::Open(open) => Some(open.share),
            _ => None,
        }
    }

    /// Changes access and denial of an open.
    fn set_share(&mut self, key: Key, share: OpenShare) {
        let Some(state) = self.states.get_mut(key) else { return };
        let StateKind::Open(open) = &mut state.kind else { return };
        let (before, place) = (open.share.class(), open.place);
        open.share = share;
        if let Some(file) = self.files.get_mut(state.file)
            && before != share.class()
        {
            let mut moved = |key, place| set_place(&mut self.states, key, place);
            file.opens.remove(place, before, &mut moved);
            file.opens.insert(key, share.class(), moved);
        }
    }

    /// Returns the stateid of a changed open, with the next sequence ID.
    fn changed_open(&mut self, key: Key) -> Result<Stateid, StateFault> {
        let state = self.states.get_mut(key).ok_or(Status4::BadStateid)?;
        // RFC 8881 §9.9 [8881-204]: it rises also when access and denial stay the same
        state.seqid = next_seqid(state.seqid);
        self.refresh_open(key)
    }

    /// Returns the stateid of an open, and notes its access for other shards.
    fn refresh_open(&mut self, key: Key) -> Result<Stateid, StateFault> {
        self.note_changed(key);
        Ok(self.stateid(crate::StateKey(key)).ok_or(Status4::BadStateid)?)
    }

    /// Removes an ended open from its file.
    pub(crate) fn end_open(&mut self, entry: &StateEntry) {
        let StateKind::Open(OpenEntry { owner, share, place, locks }) = &entry.kind else { return };
        self.opens -= 1;
        let indexed = OpenIndexEntry { client: entry.client, file: entry.file_id, owner };
        self.index_open(&indexed, None);
        self.count_places(entry.client, SharedTable::Opens, 0, 1);
        self.drop_waiters_of(entry.file, entry.client);
        locks.iter().for_each(|locks| self.drop_state(*locks));
        let Some(file) = self.files.get_mut(entry.file) else { return };
        file.opens.remove(*place, share.class(), |key, place| {
            set_place(&mut self.states, key, place);
        });
        if share.deny() != 0 {
            self.show_presence(entry.file);
        }
    }
}

/// Refuses bits that are invalid in any OPEN.
const fn check_bits(access: u32, deny: u32) -> Result<(), Status4> {
    if share::are_valid(access, deny) { Ok(()) } else { Err(Status4::Inval) }
}

/// Notes the place of an open among those of its file.
fn set_place(states: &mut Table<StateEntry>, key: Key, place: usize) {
    if let Some(StateKind::Open(open)) = states.get_mut(key).map(|state| &mut state.kind) {
        open.place = place;
    }
}
