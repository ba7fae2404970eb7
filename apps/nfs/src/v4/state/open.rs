//! Opens: OPEN, OPEN_DOWNGRADE and CLOSE, as far as they are about state (RFC 8881 §9.7–§9.11,
//! §18.2, §18.16, §18.18).

use super::entry::{OpenEntry, StateEntry, StateKind};
use super::stateid::next_seqid;
use super::tables::OpenIndexEntry;
use super::{
    ClientKey, DelegationOffer, DelegationOutcome, FileId, FileRef, RecallScope, StateFault,
    StateTables, StateidKind,
};
use stag_pools::table::Key;
use stag_protocol::nfs::v4::state::{OpenShare, ShareFault};
use stag_protocol::nfs::v4::{DelegationType, Stateid, Status4, share};

/// The claim of an OPEN on its file (`open_claim4`). The two claims of a client that restarted with
/// its delegations are not supported, and the caller refuses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Nothing: CLAIM_NULL, CLAIM_FH.
    New,
    /// A delegation of the client's: CLAIM_DELEGATE_CUR, CLAIM_DELEG_CUR_FH.
    Delegated(Stateid),
    /// An open, and such a delegation, of before the server restarted: CLAIM_PREVIOUS.
    Previous(DelegationType),
}

/// An OPEN of a regular file that exists, after the permission of the caller was checked.
#[derive(Clone, Copy, Debug)]
pub struct OpenRequest<'a> {
    /// The client.
    pub client: ClientKey,
    /// The file.
    pub file: FileRef<'a>,
    /// The open-owner.
    pub owner: &'a [u8],
    /// Access and wants as they came.
    pub access: u32,
    /// Denial as it came.
    pub deny: u32,
    /// Claim.
    pub claim: Claim,
    /// Facts about a delegation.
    pub offer: DelegationOffer,
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

/// A stateid that an operation names.
#[derive(Clone, Copy, Debug)]
pub struct StateRequest {
    /// The client of the session.
    pub client: ClientKey,
    /// The current filehandle's file.
    pub file: FileId,
    /// The stateid.
    pub stateid: Stateid,
}

/// Arguments of OPEN_DOWNGRADE.
#[derive(Clone, Copy, Debug)]
pub struct DowngradeRequest {
    /// The open.
    pub open: StateRequest,
    /// Access that stays, as it came.
    pub access: u32,
    /// Denial that stays, as it came.
    pub deny: u32,
}

impl StateTables {
    /// OPEN: gives the client access to a file, or more access to one that the open-owner has open
    /// already.
    ///
    /// # Errors
    /// INVAL for bits that are not defined, SHARE_DENIED, DELAY when a table is full, and what the
    /// claim is refused with.
    pub fn open(&mut self, request: &OpenRequest<'_>, now: u64) -> Result<Opened, StateFault> {
        check_bits(request.access, request.deny)?;
        self.check_claim(request, now)?;
        self.check_shares(request)?;
        self.check_delegations(request, now)?;
        self.give_open(request, now)
    }

    /// OPEN_DOWNGRADE: takes access and denial of an open away, down to what some of its OPENs
    /// asked for.
    ///
    /// # Errors
    /// Those of the stateid; INVAL for any other access or denial.
    pub fn downgrade(&mut self, request: &DowngradeRequest) -> Result<Stateid, StateFault> {
        let open = &request.open;
        let key = self.resolve(open, Some(StateidKind::Open))?;
        let state = self.states.get(key).ok_or(Status4::BadStateid)?;
        let file = self.files.get_mut(state.file).ok_or(Status4::ServerFault)?;
        // RFC 8881 §18.18.3 [8881-203]: only access and denial that OPENs asked for can stay
        file.shares.downgrade(key.to_bits(), request.access, request.deny).map_err(status_of)?;
        let file = state.file;
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
        if self.has_locks(request.file, key) {
            return Err(Status4::LocksHeld.into());
        }
        self.drop_state(key);
        Ok(())
    }

    /// Judges the claim of an OPEN.
    fn check_claim(&self, request: &OpenRequest<'_>, now: u64) -> Result<(), StateFault> {
        match request.claim {
            Claim::New => self.check_grant(request.client, now),
            Claim::Delegated(stateid) => self.check_delegated(request, stateid),
            Claim::Previous(_) => self.check_reclaim(request.client, now),
        }
    }

    /// Judges an OPEN before it cuts its file, which no open may deny.
    ///
    /// # Errors
    /// SHARE_DENIED; [`StateFault::AwaitRemoval`].
    pub fn check_cut(&self, file: FileId, access: u32, deny: u32) -> Result<(), StateFault> {
        self.judge_shares(file, access | share::WRITE, deny, false)
    }

    fn check_shares(&self, request: &OpenRequest<'_>) -> Result<(), StateFault> {
        let is_reclaim = matches!(request.claim, Claim::Previous(_));
        self.judge_shares(request.file.id, request.access, request.deny, is_reclaim)
    }

    /// Judges the bits of an OPEN against all opens of the file.
    fn judge_shares(
        &self,
        file: FileId,
        access: u32,
        deny: u32,
        is_reclaim: bool,
    ) -> Result<(), StateFault> {
        let Some(file) = self.file(file) else { return Ok(()) };
        let mut expired = None;
        for open in file.shares.conflicts(access & share::BOTH, deny) {
            let Some(holder) = self.states.get(Key::from_bits(open)) else { continue };
            if self.is_courtesy(holder.client) {
                expired = Some(ClientKey(holder.client));
            } else if is_reclaim {
                // RFC 8881 §9.11 [8881-226]: a reclaim that conflicts with another is refused
                return Err(Status4::ReclaimConflict.into());
            } else {
                return Err(Status4::ShareDenied.into());
            }
        }
        expired.map_or(Ok(()), |client| Err(StateFault::AwaitRemoval(client)))
    }

    /// Judges an OPEN against the delegations of others, which are recalled.
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
                DelegationType::Read => self.is_contended(file, request.client, false),
                DelegationType::Write => self.is_contended(file, request.client, true),
                _ => false,
            };
            let is_refused = conflicts || is_taken;
            return if is_refused { Err(Status4::ReclaimConflict.into()) } else { Ok(()) };
        }
        self.recall(request.file.id, Some(request.client), scope, now)
    }

    /// Enters an OPEN that nothing conflicts with.
    fn give_open(&mut self, request: &OpenRequest<'_>, now: u64) -> Result<Opened, StateFault> {
        let known = self.find_open(request.client.0, request.file.id, request.owner);
        let key = match known {
            Some(key) => key,
            None => self.add_open(request)?,
        };
        let place = self.states.get(key).ok_or(Status4::ServerFault)?.file;
        let file = self.files.get_mut(place).ok_or(Status4::ServerFault)?;
        let entered = file.shares.open(key.to_bits(), request.access, request.deny);
        let is_new = known.is_none();
        if let Err(fault) = entered {
            // `check_shares` saw no conflict, and `add_open` made room.
            if is_new {
                self.drop_state(key);
            }
            return Err(status_of(fault).into());
        }
        let stateid = if is_new { self.refresh_open(key)? } else { self.changed_open(key)? };
        if request.deny != 0 {
            self.show_presence(place);
        }
        let delegation = self.decide_delegation(request, now);
        Ok(Opened { stateid, is_new, delegation })
    }

    /// Adds an open without access, and makes room for it in the share table.
    fn add_open(&mut self, request: &OpenRequest<'_>) -> Result<Key, StateFault> {
        let client = self.clients.get(request.client.0).ok_or(Status4::StaleClientid)?;
        let of_file = self.file(request.file.id).map_or(0, |file| file.shares.opens().len());
        let is_full = self.opens >= self.limits.opens
            || client.opens >= self.limits.opens_per_client
            || of_file >= self.limits.opens_per_file;
        if is_full {
            return Err(self.when_full());
        }
        let file = self.add_file(&request.file)?;
        let kind = StateKind::Open(OpenEntry { owner: request.owner.into(), access: 0 });
        let added = self.add_state(request.client, file, kind);
        let key = added.map_err(|status| {
            self.sweep_file(file);
            self.refusal(status)
        })?;
        self.opens += 1;
        let (client, owner) = (request.client.0, request.owner);
        let indexed = OpenIndexEntry { client, file: request.file.id, owner };
        self.index_open(&indexed, Some(key.0));
        if let Some(client) = self.clients.get_mut(request.client.0) {
            client.opens += 1;
        }
        if let Some(file) = self.files.get_mut(file) {
            file.shares.table_mut().resize(of_file + 1, OpenShare::default());
        }
        Ok(key.0)
    }

    /// Gives the stateid of an open that was changed: its sequence ID rises.
    fn changed_open(&mut self, key: Key) -> Result<Stateid, StateFault> {
        let state = self.states.get_mut(key).ok_or(Status4::BadStateid)?;
        // RFC 8881 §9.9 [8881-204]: it rises also when access and denial stay the same
        state.seqid = next_seqid(state.seqid);
        self.refresh_open(key)
    }

    /// Copies the access of an open from the share table, and gives its stateid.
    fn refresh_open(&mut self, key: Key) -> Result<Stateid, StateFault> {
        let state = self.states.get_mut(key).ok_or(Status4::BadStateid)?;
        let file = self.files.get(state.file).ok_or(Status4::ServerFault)?;
        if let (StateKind::Open(open), Some(share)) =
            (&mut state.kind, file.shares.get(key.to_bits()))
        {
            open.access = share.access();
        }
        self.note_changed(key);
        Ok(self.stateid(super::StateKey(key)).ok_or(Status4::BadStateid)?)
    }

    /// Takes an open that is gone out of its file.
    pub(super) fn end_open(&mut self, key: Key, entry: &StateEntry) {
        self.opens -= 1;
        if let StateKind::Open(open) = &entry.kind {
            let OpenEntry { owner, .. } = open;
            let indexed = OpenIndexEntry { client: entry.client, file: entry.file_id, owner };
            self.index_open(&indexed, None);
        }
        if let Some(client) = self.clients.get_mut(entry.client) {
            client.opens -= 1;
        }
        self.drop_waiters_of(entry.file, entry.client);
        let under = self.lock_states(entry.file_id).filter(|(_, _, locks)| locks.open == key);
        let under: Vec<Key> = under.map(|(key, ..)| key).collect();
        under.into_iter().for_each(|locks| self.drop_state(locks));
        let Some(file) = self.files.get_mut(entry.file) else { return };
        let denied = file.shares.get(key.to_bits()).is_some_and(|share| share.deny() != 0);
        // An open whose OPEN was refused at the end is not in the table yet.
        let _unknown = file.shares.close(key.to_bits());
        if denied {
            self.show_presence(entry.file);
        }
    }
}

/// Refuses bits that no OPEN may have.
const fn check_bits(access: u32, deny: u32) -> Result<(), Status4> {
    if share::are_valid(access, deny) { Ok(()) } else { Err(Status4::Inval) }
}

const fn status_of(fault: ShareFault) -> Status4 {
    match fault {
        ShareFault::Invalid => Status4::Inval,
        ShareFault::Denied(_) => Status4::ShareDenied,
        ShareFault::Unknown => Status4::BadStateid,
        ShareFault::Full => Status4::Delay,
    }
}
