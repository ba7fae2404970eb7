//! Owners and groups in the arguments and results of operations (RFC 8881 §5.9), and waiting for
//! their names.
//!
//! An operation looks up all names that it needs and waits once for the last one, before it has any
//! effect. If the name service does not answer in time, owners in results are numbers, and an
//! operation that was given a name gets NFS4ERR_DELAY. Nothing else waits: a listing of many
//! unknown owners waits for [`PATIENCE`] at most, and is made [`WAITS`] times more at most.

use super::{CompoundContext, OpExit, OpResult, replay_log::WaitFor, shard_context::Placement};
use crate::{
    owner_names::{OwnerKind, OwnerLookups, OwnerNumber, ShardNames},
    v4::Nfs4,
};
use stag_engine::Time;
use stag_nfs_store::{FileAttributes, Security, Store};
use stag_protocol::nfs::v4::{Bitmap, Decimal, Status4};
use std::time::Duration;

/// Time for which an operation waits for names.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time that the name service may take for one query: if it takes longer, nothing waits for it.
const LATE: Duration = Duration::from_millis(500);
/// Times that an operation waits for names: a listing may need more than may be queried at once.
const WAITS: u8 = 8;
/// Time between two looks for the answers of the name service, whose thread wakes no shard.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Names that an operation waits for, and the numbers that it has found.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::v4) struct AwaitedNames {
    /// The ticket of the last name, while it waits.
    ticket: Option<u64>,
    /// Time up to which it waits, once it does.
    until: Option<Time>,
    waits: u8,
    /// The user and the group of its arguments: they are the same in each run of the operation.
    user: Option<u32>,
    group: Option<u32>,
}

impl AwaitedNames {
    /// The number that was found for an owner in the arguments.
    const fn number(&mut self, kind: OwnerKind) -> &mut Option<u32> {
        match kind {
            OwnerKind::User => &mut self.user,
            OwnerKind::Group => &mut self.group,
        }
    }

    /// Ends the wait: the operation runs again.
    pub(in crate::v4) const fn restart(&mut self) {
        self.ticket = None;
    }

    /// The ticket of the last name, while the operation waits for it.
    pub(in crate::v4) const fn ticket(&self) -> Option<u64> {
        self.ticket
    }
}

impl Nfs4 {
    /// Returns true if owners are names in calls with this security.
    #[inline]
    pub(crate) fn names_owners(&self, security: Security) -> bool {
        self.owner_names.as_ref().is_some_and(|names| names.are_used_with(security))
    }

    /// Looks up the names of an object's owners. Returns true if there is nothing to wait for.
    pub(crate) fn has_owner_names(&mut self, asked: &Bitmap, object: &FileAttributes) -> bool {
        let mut owners = OwnerLookups::new(self.owner_names.as_deref_mut());
        owners.look_up(asked, object);
        owners.ticket.is_none()
    }

    /// Sets the time of the next look for names that compounds wait for.
    pub(crate) fn plan_names_look(&mut self, now: Time) {
        self.next_names_look = now + LOOK_INTERVAL;
    }
}

impl<S: Store> CompoundContext<'_, '_, S> {
    /// Runs `run` with the names of owners, if the caller is sent names.
    pub(in crate::v4) fn with_owners<T>(
        &mut self,
        run: impl FnOnce(&mut Self, OwnerLookups<'_>) -> T,
    ) -> T {
        // It is put back: meanwhile the rest of the context can be borrowed.
        let mut names = self.nfs4.owner_names.take();
        let security = self.compound.caller.security;
        let used: Option<&mut ShardNames> =
            names.as_deref_mut().filter(|names| names.are_used_with(security));
        let result = run(self, OwnerLookups::new(used));
        self.nfs4.owner_names = names;
        result
    }

    /// Waits until the name service has answered the query of this ticket, if there is one. Returns
    /// at once if that takes too long.
    ///
    /// # Errors
    /// [`OpExit::Wait`].
    pub(in crate::v4) fn await_names(&mut self, ticket: Option<u64>) -> OpResult {
        let now = self.cx.now();
        let names = self.compound.replay_log.names;
        if let Some(ticket) = ticket.filter(|_| names.waits < WAITS) {
            let until = names.until.unwrap_or(now + PATIENCE);
            let service = self.nfs4.owner_names.as_ref();
            let is_late = now >= until || service.is_none_or(|names| names.is_late(LATE));
            if !is_late && self.has_place_to_wait() {
                let (ticket, until, waits) = (Some(ticket), Some(until), names.waits + 1);
                self.compound.replay_log.names = AwaitedNames { ticket, until, waits, ..names };
                self.compound.recall_until = until;
                return Err(self.compound.replay_log.wait_for(WaitFor::Recall));
            }
        }
        if names.until.is_some() {
            // The recall of delegations has a time limit of its own.
            self.compound.recall_until = None;
        }
        Ok(())
    }

    /// Waits for the names of an object's owners, as far as they are `asked` for.
    ///
    /// # Errors
    /// [`OpExit::Wait`].
    pub(in crate::v4) fn await_owners(
        &mut self,
        asked: &Bitmap,
        object: &FileAttributes,
    ) -> OpResult {
        let ticket = self.with_owners(|_, mut owners| {
            owners.look_up(asked, object);
            owners.ticket
        });
        self.await_names(ticket)
    }

    /// The number of an owner in the arguments; none for an owner that is not accepted.
    ///
    /// # Errors
    /// [`OpExit::Wait`] for the name service; NFS4ERR_DELAY when it does not
    /// answer.
    pub(in crate::v4) fn owner_number(
        &mut self,
        kind: OwnerKind,
        text: &[u8],
    ) -> OpResult<Option<u32>> {
        self.compound.replay_log.go_on()?;
        let security = self.compound.caller.security;
        let names = self.nfs4.owner_names.as_mut();
        let Some(names) = names.filter(|names| names.are_used_with(security)) else {
            // RFC 8881 §5.9 [8881-327]: without a domain only numbers are known
            return Ok(Decimal::parse(text));
        };
        if let Some(number) = *self.compound.replay_log.names.number(kind) {
            return Ok(Some(number));
        }
        match names.number(kind, text, security) {
            OwnerNumber::Known(found) => {
                *self.compound.replay_log.names.number(kind) = found;
                self.await_names(None)?;
                Ok(found)
            }
            OwnerNumber::Pending(ticket) => Err(self.wait_for_owner(ticket)),
            OwnerNumber::Unavailable => Err(Status4::Delay.into()),
        }
    }

    /// Waits for the number of an owner in the arguments: [`OpExit::Wait`], or NFS4ERR_DELAY.
    pub(in crate::v4) fn wait_for_owner(&mut self, ticket: u64) -> OpExit {
        // A compound that the home may have to start again does not wait before it has found its
        // object.
        if self.shard_context.placement == Placement::All
            && let Err(exit) = self.await_names(Some(ticket))
        {
            return exit;
        }
        Status4::Delay.into()
    }
}
