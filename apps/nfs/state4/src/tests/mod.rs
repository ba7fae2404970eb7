//! Tests of the tables through operations of clients.

mod crowds;
mod delegations;
mod grace;
mod leases;
mod listing;
mod locks;
mod model;
mod opens;
mod shares;
mod watched;

use crate::*;
use stag_protocol::nfs::v4::{LockType, Stateid, Status4, share};

pub const READ: u32 = share::READ;
pub const WRITE: u32 = share::WRITE;
pub const BOTH: u32 = share::BOTH;
/// Milliseconds of a lease.
pub const LEASE: u64 = 90_000;
/// The file that most tests use.
pub const FILE: FileId = FileId(7);

/// The tables of a shard with three clients that have nothing to reclaim.
pub struct Fixture {
    pub tables: StateTables,
    pub clients: [ClientKey; 3],
    pub now: u64,
}

/// Few places in each table.
pub const SMALL: StateLimits = StateLimits {
    clients: 8,
    opens: 64,
    opens_per_client: 32,
    opens_per_file: 32,
    opens_promised: 2,
    lock_states: 32,
    lock_states_per_file: 16,
    ranges: 64,
    ranges_per_client: 32,
    ranges_per_file: 32,
    waiters: 8,
    waiters_per_file: 4,
    delegations: 8,
    delegations_per_client: 4,
    delegations_per_file: 3,
};

impl Fixture {
    pub fn new() -> Self {
        Self::with(SMALL)
    }

    pub fn with(limits: StateLimits) -> Self {
        let mut tables = StateTables::new(3, 1, LEASE, limits);
        let clients = [11, 12, 13].map(|id| {
            let client = tables.add_client(id, false, 0).unwrap();
            tables.complete_reclaims(client, false).unwrap();
            client
        });
        Self { tables, clients, now: 0 }
    }

    /// An OPEN of a file by an open-owner of client `client`.
    pub fn open_file(
        &mut self,
        client: usize,
        file: FileId,
        owner: &str,
        access: u32,
        deny: u32,
    ) -> Result<Opened, StateFault> {
        let request = OpenRequest {
            client: self.clients[client],
            file: FileRef { id: file, handle: b"handle" },
            owner: owner.as_bytes(),
            access,
            deny,
            claim: Claim::New,
            offer: DelegationOffer::default(),
            is_promised: false,
        };
        let opened = self.tables.open(&request, self.now);
        self.tables.assert_consistent();
        opened
    }

    /// An OPEN that succeeds, of [`FILE`].
    pub fn open(&mut self, client: usize, owner: &str, access: u32, deny: u32) -> Stateid {
        self.open_file(client, FILE, owner, access, deny).unwrap().stateid
    }

    /// A request for a stateid on [`FILE`].
    pub fn on(&self, client: usize, stateid: Stateid) -> StateRequest {
        StateRequest { client: self.clients[client], file: FILE, stateid }
    }

    pub fn close(&mut self, client: usize, stateid: Stateid) -> Result<(), StateFault> {
        let request = self.on(client, stateid);
        let closed = self.tables.close(&request);
        self.tables.assert_consistent();
        closed
    }

    pub fn io(
        &mut self,
        client: usize,
        stateid: Stateid,
        access: IoAccess,
    ) -> Result<IoGrant, StateFault> {
        let request = self.on(client, stateid);
        self.tables.check_io(&request, access, self.now)
    }

    /// A LOCK of [`FILE`].
    pub fn lock(
        &mut self,
        client: usize,
        locker: LockerRef<'_>,
        kind: LockType,
        offset: u64,
        length: u64,
    ) -> Result<Stateid, StateFault> {
        let client = self.clients[client];
        let request =
            LockRequest { client, file: FILE, kind, reclaim: false, offset, length, locker };
        let checked = self.tables.check_lock(&request, self.now);
        let locked = self.tables.lock(&request, self.now);
        assert_eq!(checked, locked.map(|_| ()), "a check tells what comes");
        self.tables.assert_consistent();
        locked
    }

    pub fn unlock(
        &mut self,
        client: usize,
        stateid: Stateid,
        offset: u64,
        length: u64,
    ) -> Result<Stateid, StateFault> {
        let locks = self.on(client, stateid);
        let unlocked = self.tables.unlock(&UnlockRequest { locks, offset, length });
        self.tables.assert_consistent();
        unlocked
    }

    /// All work that the tables ask for.
    pub fn work(&mut self) -> Vec<StateWork> {
        std::iter::from_fn(|| self.tables.poll_work()).collect()
    }
}

/// A failure with a status.
pub fn failed<T>(status: Status4) -> Result<T, StateFault> {
    Err(StateFault::Failed(status))
}

/// A lock-owner without a stateid.
pub fn by(open: Stateid, owner: &str) -> LockerRef<'_> {
    LockerRef::New { open, owner: owner.as_bytes() }
}
