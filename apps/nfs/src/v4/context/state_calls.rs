//! Queries of operations to the state tables (RFC 8881 §8.2).

use siphasher::sip128::{Hasher128, SipHasher13};
use stag_protocol::nfs::{
    v3::FileHandle,
    v4::{Operation, Stateid, Status4},
};
use std::{hash::Hasher, sync::Arc};

use super::{CompoundContext, OpExit, OpResult, changes_in_flight::ChangeScope};
use stag_nfs_store::{Caller, Security, Store};
use stag_nfs4_state::{
    Claim, ClientKey, ConflictFilter, DeniedLock, FileId, IoAccess, RecallScope, StateFault,
    StateRequest, StateTables,
};

/// Clients whose leases expired that one operation removes because their state conflicts.
const REMOVALS: usize = 64;

/// Reason for which the tables refused a request of an operation.
#[derive(Clone, Copy, Debug)]
pub(in crate::v4) enum StateRefusal {
    /// A lock conflicts.
    Denied(DeniedLock),
    /// Any other reason.
    Stopped(OpExit),
}

/// The identity of a file: a store makes one handle for all of its names. Only the store makes
/// handles, so that two files share a hash by chance only.
pub(in crate::v4) fn file_id(file: &FileHandle) -> FileId {
    let mut hash = SipHasher13::new();
    hash.write(file.octets());
    let both = hash.finish128();
    FileId(u128::from(both.h1) << 64 | u128::from(both.h2))
}

impl<S: Store> CompoundContext<'_, '_, S> {
    /// The client in the tables of state.
    ///
    /// # Errors
    /// NFS4ERR_OP_NOT_IN_SESSION without a session.
    pub(in crate::v4) fn client_key(&self) -> Result<ClientKey, Status4> {
        let id = self.client()?;
        let client = self.nfs4.clients.get(id).ok_or(Status4::StaleClientid)?;
        client.key.ok_or(Status4::StaleClientid)
    }

    /// Returns early if the export of a file does not admit the caller, for operations that release
    /// state and do not ask the store.
    ///
    /// # Errors
    /// NFS4ERR_ACCESS, NFS4ERR_PERM.
    pub(in crate::v4) fn check_admitted(
        &self,
        file: &FileHandle,
        operation: Operation,
    ) -> OpResult {
        let caller = self.compound.caller;
        let with = |security| self.store.admits_to(file, &Caller { security, ..caller });
        // RFC 8881 §18.35.3 [8881-393]: the machine lets state go, whatever the export asks for
        if self.may_let_go(operation) && Security::ALL.into_iter().any(|it| with(it).is_ok()) {
            return Ok(());
        }
        Ok(with(caller.security)?)
    }

    /// A stateid of an operation on a file.
    pub(in crate::v4) fn state_request(
        &self,
        file: &FileHandle,
        stateid: Stateid,
    ) -> Result<StateRequest, Status4> {
        let stateid = self.stateid(stateid)?;
        Ok(StateRequest { client: self.client_key()?, file: file_id(file), stateid })
    }

    /// Runs a request on the state tables; clients whose leases expired make way.
    pub(in crate::v4) fn try_state<T>(
        &mut self,
        mut act: impl FnMut(&mut StateTables, u64) -> Result<T, StateFault>,
    ) -> Result<T, StateRefusal> {
        self.compound.replay_log.go_on().map_err(StateRefusal::Stopped)?;
        let at = self.cx.now();
        let now = crate::v4::milliseconds(at);
        for _ in 0..REMOVALS {
            match act(&mut self.nfs4.state, now) {
                Ok(value) => return Ok(value),
                Err(StateFault::Failed(status)) => {
                    return Err(StateRefusal::Stopped(status.into()));
                }
                Err(StateFault::Denied(denied)) => return Err(StateRefusal::Denied(denied)),
                Err(StateFault::AwaitPart) => {
                    return Err(StateRefusal::Stopped(self.wait_for_part()));
                }
                // A delegation is being recalled.
                Err(StateFault::AwaitRecall) => {
                    return Err(StateRefusal::Stopped(self.wait_for_recall()));
                }
                Err(StateFault::AwaitRemoval(client)) => {
                    if !self.nfs4.remove_expired(client, at) {
                        break;
                    }
                }
                Err(StateFault::AwaitRecord) => {
                    let client =
                        self.client().map_err(|status| StateRefusal::Stopped(status.into()))?;
                    if !self.nfs4.record_client(client, at) {
                        let is_begun = self.compound.replay_log.has_effect;
                        return Err(StateRefusal::Stopped(self.wait_for_record(is_begun)));
                    }
                }
            }
        }
        Err(StateRefusal::Stopped(Status4::Delay.into()))
    }

    /// The same for requests that no lock conflicts with.
    pub(in crate::v4) fn with_state<T>(
        &mut self,
        act: impl FnMut(&mut StateTables, u64) -> Result<T, StateFault>,
    ) -> OpResult<T> {
        self.try_state(act).map_err(|blocked| match blocked {
            StateRefusal::Denied(_) => Status4::Locked.into(),
            StateRefusal::Stopped(stop) => stop,
        })
    }

    /// Checks an access to a file by a stateid. The store checks the caller's rights in any case.
    pub(in crate::v4) fn check_io(
        &mut self,
        file: &FileHandle,
        stateid: Stateid,
        access: IoAccess,
    ) -> OpResult {
        if access == IoAccess::Write {
            self.note_change(|| ChangeScope::File(file_id(file)));
        }
        self.check_once(|context| {
            let request = match context.state_request(file, stateid) {
                // The home has its clients.
                Err(_) if context.nfs4.borrowed.is_some() => {
                    return context.check_told(file, context.stateid(stateid)?, access);
                }
                request => request?,
            };
            if request.stateid.is_special() {
                context.nfs4.state.check_grace()?;
            }
            context.with_state(|state, now| state.check_io(&request, access, now)).map(drop)
        })
    }

    /// Checks the stateid of a SETATTR of all but the size. Only the home gets one of a state.
    ///
    /// # Errors
    /// Those of the stateid.
    pub(in crate::v4) fn check_setattr(&mut self, file: &FileHandle, stateid: Stateid) -> OpResult {
        if stateid.is_anonymous() {
            return Ok(());
        }
        self.check_once(|context| {
            let request = context.state_request(file, stateid)?;
            context.nfs4.state.check_setattr(&request)?;
            Ok(())
        })
    }

    /// Recalls the delegations of other clients that conflict with a request, and waits for them
    /// for a moment.
    ///
    /// # Errors
    /// [`OpExit::Wait`], and then NFS4ERR_DELAY, while a recall is outstanding.
    pub(in crate::v4) fn recall(&mut self, object: &FileHandle, scope: RecallScope) -> OpResult {
        if scope == RecallScope::All {
            self.note_change(|| ChangeScope::File(file_id(object)));
        }
        if !self.sees_delegations() {
            return Ok(());
        }
        if self.nfs4.borrowed.is_some() {
            return self.check_beside(object);
        }
        self.check_once(|context| {
            let (file, client) = (file_id(object), Some(context.client_key()?));
            context.with_state(|state, now| state.recall(file, client, scope, now))
        })
    }

    /// The same for a file that gets one more name. Other shards look up a name, and then change
    /// its object, without asking. So the file has no delegation at this moment, not even one of
    /// the caller's, and gets none before they have finished.
    ///
    /// # Errors
    /// As [`recall`](Self::recall).
    pub(in crate::v4) fn recall_for_name(&mut self, object: &FileHandle) -> OpResult {
        if self.nfs4.link.is_none() {
            return self.recall(object, RecallScope::All);
        }
        let file = file_id(object);
        self.note_change(|| ChangeScope::File(file));
        self.check_once(|context| {
            context.with_state(|state, now| state.recall(file, None, RecallScope::All, now))?;
            context.nfs4.withdraw(file);
            Ok(())
        })
    }

    /// On a shard other than the home, checks whether a delegation of an object may conflict.
    ///
    /// # Errors
    /// [`OpExit::NeedsHome`] if there may be one.
    pub(in crate::v4) fn check_beside(&mut self, object: &FileHandle) -> OpResult {
        self.check_once(|context| match &context.nfs4.borrowed {
            Some(borrowed) if borrowed.may_conflict(object) => Err(OpExit::NeedsHome),
            _ => Ok(()),
        })
    }

    /// Shows the files that have a write delegation, if there are any.
    pub(in crate::v4) fn held_files(&self) -> Option<Arc<ConflictFilter>> {
        match &self.nfs4.borrowed {
            Some(borrowed) => borrowed.held_files(),
            None => self.nfs4.state.held_files(),
        }
    }

    /// Returns true if there are delegations: every run of an operation gets the result of the
    /// first.
    #[inline]
    pub(in crate::v4) fn sees_delegations(&mut self) -> bool {
        let are_there = match &self.nfs4.borrowed {
            Some(borrowed) => borrowed.sees_conflicts(),
            // Files that may get a delegation count, too, where other shards change names.
            None if self.nfs4.link.is_some() => self.nfs4.state.has_presence(),
            None => self.nfs4.state.delegation_count() > 0,
        };
        if S::MAY_WAIT { self.compound.replay_log.sees_delegations(are_there) } else { are_there }
    }

    /// Returns early from an OPEN that the tables would refuse for any file. The first one of a
    /// client waits until the client is recorded.
    ///
    /// # Errors
    /// NFS4ERR_GRACE, NFS4ERR_NO_GRACE, NFS4ERR_BAD_STATEID; [`OpExit::Wait`].
    pub(in crate::v4) fn may_open(&mut self, claim: Claim) -> OpResult {
        self.compound.replay_log.go_on()?;
        let at = self.cx.now();
        let (client, now) = (self.client_key()?, crate::v4::milliseconds(at));
        let judged = match claim {
            Claim::New => self.nfs4.state.check_grant(client, now),
            Claim::Previous(_) => self.nfs4.state.check_reclaim(client, now),
            Claim::Delegated(_) => Ok(()),
        };
        match judged {
            Ok(()) => {}
            Err(StateFault::AwaitRecord) => {
                if !self.nfs4.record_client(self.client()?, at) {
                    // The file may have been created, here or by the shard that has found it.
                    let log = &self.compound.replay_log;
                    let is_begun = log.has_answers() || log.found().is_some();
                    return Err(self.wait_for_record(is_begun));
                }
            }
            Err(fault) => return Err(fault.status().into()),
        }
        if self.compound.replay_log.recorded_until.take().is_some() {
            // The recall has a time limit of its own.
            self.compound.recall_until = None;
        }
        Ok(())
    }
}
