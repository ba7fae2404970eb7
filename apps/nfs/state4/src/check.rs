//! Checks of stateids: validity, the access to data that they allow, TEST_STATEID and FREE_STATEID
//! (RFC 8881 §8.2, §18.38, §18.48).

use crate::{
    ClientKey, FileId, StateFault, StateRequest, StateTables, StateidKind, entry::StateKind,
    open::ShareConflict, stateid::check_seqid,
};
use stag_pools::table::Key;
use stag_protocol::nfs::v4::{Stateid, Status4, share};

/// Direction of an access to data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoAccess {
    /// READ, SEEK, the source of COPY and CLONE.
    Read,
    /// WRITE, SETATTR of the size, ALLOCATE, DEALLOCATE, the destination of COPY and CLONE.
    Write,
}

impl IoAccess {
    const fn bits(self) -> u32 {
        match self {
            Self::Read => share::READ,
            Self::Write => share::WRITE,
        }
    }
}

/// Reason for which an access to data is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoGrant {
    /// The open, its locks or the delegation cover it.
    Covered,
    /// It is a READ by an open for writing only: the caller must have the permission to read.
    WriteOnlyOpen,
    /// The stateid is special, and no open denies the access: the caller must have the permission.
    Anonymous,
}

impl StateTables {
    /// Checks READ, WRITE, SETATTR of the size and similar operations by their stateid. CURRENT has
    /// been replaced by the current stateid before. Allocates nothing.
    ///
    /// # Errors
    /// Those of the stateid; OPENMODE; LOCKED if an open denies the access of a special stateid.
    pub fn check_io(
        &mut self,
        request: &StateRequest,
        access: IoAccess,
        now: u64,
    ) -> Result<IoGrant, StateFault> {
        if request.stateid.is_special() {
            return self.check_special(request, access, now);
        }
        let key = self.resolve(request, None)?;
        let state = self.states.get(key).ok_or(Status4::BadStateid)?;
        let granted = match &state.kind {
            StateKind::Open(open) => open.share.access(),
            StateKind::Locks(locks) => match self.states.get(locks.open).map(|open| &open.kind) {
                Some(StateKind::Open(open)) => open.share.access(),
                _ => 0,
            },
            StateKind::Delegation(held) if held.write => share::BOTH,
            StateKind::Delegation(_) => share::READ,
        };
        if granted & access.bits() != 0 {
            Ok(IoGrant::Covered)
        } else if access == IoAccess::Read {
            // RFC 8881 §9.1.2 [8881-206]: an open for writing may allow READ to who may read
            Ok(IoGrant::WriteOnlyOpen)
        } else {
            // RFC 8881 §9.1.2 [8881-207]: WRITE needs an open for writing
            Err(Status4::OpenMode.into())
        }
    }

    /// Checks an access by a special stateid.
    fn check_special(
        &mut self,
        request: &StateRequest,
        access: IoAccess,
        now: u64,
    ) -> Result<IoGrant, StateFault> {
        let is_bypass = match request.stateid {
            Stateid::ANONYMOUS => false,
            // RFC 8881 §8.2.3 [8881-208]: for WRITE it is as the anonymous one
            Stateid::READ_BYPASS => access == IoAccess::Read,
            // RFC 8881 §8.2.3 [8881-209]: all other reserved stateids are bad ones
            _ => return Err(Status4::BadStateid.into()),
        };
        self.check_grace()?;
        if !is_bypass {
            self.check_denials(request.file, access)?;
        }
        self.recall(request.file, Some(request.client), access.into(), now)?;
        Ok(IoGrant::Anonymous)
    }

    /// Checks the stateid of a SETATTR of all but the size.
    ///
    /// # Errors
    /// Those of the stateid.
    pub fn check_setattr(&self, request: &StateRequest) -> Result<(), Status4> {
        match request.stateid {
            anonymous if anonymous.is_anonymous() => Ok(()),
            // RFC 8881 §8.2.6 [8881-242]: a delegation of any kind will do, if it is valid
            _ => self.resolve(request, None).map(drop),
        }
    }

    /// Checks READ and WRITE of version 3, which has neither stateids nor a grace period.
    ///
    /// # Errors
    /// LOCKED where an open denies it, [`StateFault::AwaitRecall`], [`StateFault::AwaitRemoval`].
    pub fn check_stateless_io(
        &mut self,
        file: FileId,
        access: IoAccess,
        now: u64,
    ) -> Result<(), StateFault> {
        self.check_denials(file, access)?;
        self.recall(file, None, access.into(), now)
    }

    /// Checks an access against the denials of opens.
    fn check_denials(&self, file: FileId, access: IoAccess) -> Result<(), StateFault> {
        // RFC 8881 §8.2.3 [8881-210]: what an open denies, the anonymous stateid does not get
        match self.share_conflict(file, access.bits(), DENY_NONE) {
            None => Ok(()),
            Some(ShareConflict::Held) => Err(Status4::Locked.into()),
            Some(ShareConflict::Expired(client)) => Err(StateFault::AwaitRemoval(client)),
        }
    }

    /// TEST_STATEID: the status that a use of each stateid would have.
    pub fn test(&self, client: ClientKey, stateid: &Stateid) -> Status4 {
        // RFC 8881 §18.48.3 [8881-211]: neither kind nor filehandle are looked at, and special
        // stateids are bad
        match self.look_up(client, stateid, None).and_then(|key| self.check_current(key, stateid)) {
            Ok(()) => Status4::Ok,
            Err(status) => status,
        }
    }

    /// FREE_STATEID: frees a stateid that has no locks any more.
    ///
    /// # Errors
    /// Those of the stateid; LOCKS_HELD while it has state.
    pub fn free(&mut self, client: ClientKey, stateid: &Stateid) -> Result<(), Status4> {
        let key = self.look_up(client, stateid, None)?;
        // RFC 8881 §18.38.3 [8881-241]: also a revoked stateid can be freed
        self.check_seqid(key, stateid)?;
        let state = self.states.get(key).ok_or(Status4::BadStateid)?;
        let is_used = match &state.kind {
            // RFC 8881 §18.38.3 [8881-212]: a stateid with valid state stays
            StateKind::Open(_) => true,
            StateKind::Locks(locks) => {
                let file = self.files.get(state.file).ok_or(Status4::ServerFault)?;
                file.locks.has_locks(locks.number)
            }
            StateKind::Delegation(held) => held.machine.is_live(),
        };
        if is_used {
            return Err(Status4::LocksHeld);
        }
        self.drop_state(key);
        Ok(())
    }

    /// The state of an operation's stateid, if it is valid for the operation.
    pub(crate) fn resolve(
        &self,
        request: &StateRequest,
        wanted: Option<StateidKind>,
    ) -> Result<Key, Status4> {
        let key = self.look_up(request.client, &request.stateid, Some(request.file))?;
        let kind = self.states.get(key).ok_or(Status4::BadStateid)?.kind.tag();
        // RFC 8881 §8.2.4 [8881-213]: a stateid of another kind than the operation needs is bad
        if wanted.is_some_and(|wanted| wanted != kind) {
            return Err(Status4::BadStateid);
        }
        self.check_current(key, &request.stateid)?;
        Ok(key)
    }

    /// The state of a stateid, if it belongs to the client.
    fn look_up(
        &self,
        client: ClientKey,
        stateid: &Stateid,
        file: Option<FileId>,
    ) -> Result<Key, Status4> {
        // RFC 8881 §8.2.4 [8881-214]: a place without state, or with a later one, makes it bad
        let key = self.find_state(stateid).ok_or(Status4::BadStateid)?;
        let state = self.states.get(key).ok_or(Status4::BadStateid)?;
        // RFC 8881 §8.2.4 [8881-215]: a stateid of another filehandle is bad
        let is_file = file.is_none_or(|file| file == state.file_id);
        // RFC 8881 §8.2.4 [8881-216]: a stateid of another client is bad
        if is_file && state.client == client.0 { Ok(key) } else { Err(Status4::BadStateid) }
    }

    /// Checks a stateid by the phase of its state, and by its sequence ID.
    fn check_current(&self, key: Key, stateid: &Stateid) -> Result<(), Status4> {
        if let Some(StateKind::Delegation(held)) = self.states.get(key).map(|state| &state.kind) {
            held.machine.check_use()?;
        }
        self.check_seqid(key, stateid)
    }

    fn check_seqid(&self, key: Key, stateid: &Stateid) -> Result<(), Status4> {
        let state = self.states.get(key).ok_or(Status4::BadStateid)?;
        check_seqid(stateid.seqid, state.seqid)
    }
}

/// I/O denies nothing to others.
const DENY_NONE: u32 = 0;
