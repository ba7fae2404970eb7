//! Reclaims after a restart, and the end of the grace period (RFC 8881 §8.4.2, §8.4.3, §18.51).

use crate::{
    ClientKey, StateFault, StateTables,
    entry::{ClientEntry, EntryRecord},
};
use stag_protocol::nfs::v4::Status4;
use stag_protocol::nfs::v4::state::{Grace, ReclaimState};

/// The grace period, and the record of its end.
#[derive(Debug)]
pub(crate) struct Recovery {
    grace: Grace,
    record: GraceRecord,
}

/// The stable record of the clients that may reclaim after the next restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GraceRecord {
    /// It is from the last start.
    LastStart,
    /// The caller was asked to write one for this start.
    AwaitWritten,
    /// It is from this start.
    ThisStart,
}

impl Recovery {
    /// No grace period: no client had state.
    pub const fn none() -> Self {
        Self { grace: Grace::begin(0, 0), record: GraceRecord::ThisStart }
    }

    pub const fn forget(&mut self, client: &mut ReclaimState) {
        self.grace.forget(client);
    }

    /// Returns true once, when the grace period is over and its record has to be written.
    pub const fn must_record(&mut self, now: u64) -> bool {
        let must = matches!(self.record, GraceRecord::LastStart) && !self.grace.is_on(now);
        if must {
            self.record = GraceRecord::AwaitWritten;
        }
        must
    }

    /// Number of listed clients that are awaited, if there is a grace period.
    pub fn awaited(&self) -> Option<u32> {
        (!self.is_over()).then(|| self.grace.awaited())
    }

    /// The time at which the grace period ends at the latest, while clients may reclaim.
    const fn ends_at(&self) -> Option<u64> {
        match self.record {
            GraceRecord::LastStart => Some(self.grace.ends_at()),
            GraceRecord::AwaitWritten | GraceRecord::ThisStart => None,
        }
    }

    const fn is_over(&self) -> bool {
        matches!(self.record, GraceRecord::ThisStart)
    }
}

impl StateTables {
    /// Begins the grace period of a server whose records list `listed` clients, until `ends_at` at
    /// the latest. It ends as soon as all of them have completed their reclaims.
    pub const fn begin_grace(&mut self, listed: u32, ends_at: u64) {
        if listed > 0 {
            self.recovery =
                Recovery { grace: Grace::begin(listed, ends_at), record: GraceRecord::LastStart };
        }
    }

    /// The end of the grace period is recorded: clients that have not completed their reclaims may
    /// not reclaim after another restart.
    pub const fn handle_grace_recorded(&mut self) {
        self.recovery.record = GraceRecord::ThisStart;
    }

    /// Number of listed clients that are awaited; none when the grace period is over.
    pub fn awaited_reclaims(&self) -> Option<u32> {
        self.recovery.awaited()
    }

    /// The time at which the grace period ends at the latest; none unless clients may reclaim.
    pub const fn grace_ends_at(&self) -> Option<u64> {
        self.recovery.ends_at()
    }

    /// Ends the grace period before its time: the next [`StateTables::handle_time`] has its end
    /// recorded. Clients that have not completed their reclaims lose what they had.
    pub const fn cut_grace(&mut self) {
        self.recovery.grace.end();
    }

    /// The records list a client that was added: it may reclaim.
    pub fn allow_reclaims(&mut self, client: ClientKey) {
        if let Some(client) = self.clients.get_mut(client.0) {
            client.reclaim.listed = true;
        }
    }

    /// A listed client will not reclaim: it has restarted itself.
    pub const fn forget_listed(&mut self) {
        self.recovery.forget(&mut ReclaimState { listed: true, complete: false });
    }

    /// A client is not recorded, or no longer: until it is, it gets state only by reclaims.
    pub fn await_record(&mut self, client: ClientKey) {
        if let Some(client) = self.clients.get_mut(client.0) {
            client.record = EntryRecord::Missing;
        }
    }

    /// A client is recorded, and can reclaim the state it gets from here on after a restart.
    pub fn handle_recorded(&mut self, client: ClientKey) {
        if let Some(client) = self.clients.get_mut(client.0) {
            client.record = EntryRecord::Stable;
        }
    }

    /// RECLAIM_COMPLETE. For one file system it changes nothing.
    ///
    /// # Errors
    /// COMPLETE_ALREADY.
    pub fn complete_reclaims(&mut self, client: ClientKey, one_fs: bool) -> Result<(), Status4> {
        let client = self.clients.get_mut(client.0).ok_or(Status4::StaleClientid)?;
        self.recovery.grace.complete(&mut client.reclaim, one_fs)
    }

    /// Checks any operation that the grace period holds back: REMOVE, RENAME, LINK, SETATTR of the
    /// size, I/O by special stateids.
    ///
    /// # Errors
    /// GRACE.
    pub const fn check_grace(&self) -> Result<(), Status4> {
        // RFC 8881 §8.4.2.1 [8881-223]: in the grace period nothing may spoil a reclaim
        if self.recovery.is_over() { Ok(()) } else { Err(Status4::Grace) }
    }

    /// Checks a request for new state.
    ///
    /// # Errors
    /// GRACE; [`StateFault::AwaitRecord`].
    pub fn check_grant(&self, client: ClientKey, now: u64) -> Result<(), StateFault> {
        let client = self.clients.get(client.0).ok_or(Status4::StaleClientid)?;
        self.recovery.grace.grant(&client.reclaim, now)?;
        // RFC 8881 §8.4.3 [8881-224]: who may not reclaim is recorded before others get state
        self.check_grace()?;
        // RFC 8881 §8.4.3 [8881-260]: a client is recorded before it is given what it may reclaim
        match client.record {
            EntryRecord::Missing => Err(StateFault::AwaitRecord),
            EntryRecord::Needless | EntryRecord::Stable => Ok(()),
        }
    }

    /// Returns true if a client may be granted state whenever no other may reclaim: it has
    /// completed its reclaims, and is recorded.
    pub fn is_complete(&self, client: ClientKey) -> bool {
        let is_it = |it: &ClientEntry| it.reclaim.complete && it.record != EntryRecord::Missing;
        self.clients.get(client.0).is_some_and(is_it)
    }

    /// Checks a reclaim.
    pub fn check_reclaim(&self, client: ClientKey, now: u64) -> Result<(), StateFault> {
        let client = self.clients.get(client.0).ok_or(Status4::StaleClientid)?;
        Ok(self.recovery.grace.reclaim(&client.reclaim, now)?)
    }
}
