//! Entries of the tables: clients, states and files, with their keys.

use crate::{
    DeniedLock, GrantingCall, StateidKind, hosts::HeldPlaces, lock_waiters::LockWaiter,
    opens::FileOpens, ranges::FileLocks,
};
use stag_pools::table::Key;
use stag_protocol::nfs::v4::Status4;
use stag_protocol::nfs::v4::state::{Delegation, DelegationPhase, OpenShare, ReclaimState};

/// Identifies a client of the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientKey(pub(crate) Key);

/// Identifies a state of the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateKey(pub(crate) Key);

/// The identity of a file, chosen by the caller: the same for all names and filehandles of a file,
/// and different for every other file. A hash, so that the values of many files are spread evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u128);

/// A file of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRef<'a> {
    /// Its identity.
    pub id: FileId,
    /// The filehandle for callbacks.
    pub handle: &'a [u8],
}

/// Reason for not executing an operation; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateFault {
    /// The operation fails with this status.
    Failed(Status4),
    /// NFS4ERR_DENIED: this lock conflicts.
    Denied(DeniedLock),
    /// Delegations conflict, and were recalled. [`StateWork::GoOn`](crate::StateWork::GoOn) signals
    /// when to retry; answer NFS4ERR_DELAY if that takes long.
    AwaitRecall,
    /// The operation changes much state, and has changed a part of it. Retry in a later pass, at
    /// the latest after [`StateWork::GoOn`](crate::StateWork::GoOn).
    AwaitPart,
    /// State of a client whose lease expired conflicts. Record that it may not reclaim, release it
    /// by [`StateTables::release_client`](crate::StateTables::release_client), and retry.
    AwaitRemoval(ClientKey),
    /// The client may get state once it is recorded. Record it, [confirm
    /// that](crate::StateTables::handle_recorded), and retry.
    AwaitRecord,
}

impl StateFault {
    /// The status for a caller who does not wait.
    pub const fn status(&self) -> Status4 {
        match self {
            Self::Failed(status) => *status,
            Self::Denied(_) => Status4::Denied,
            Self::AwaitRecall | Self::AwaitPart | Self::AwaitRemoval(_) | Self::AwaitRecord => {
                Status4::Delay
            }
        }
    }
}

impl From<Status4> for StateFault {
    fn from(status: Status4) -> Self {
        Self::Failed(status)
    }
}

/// A client.
#[derive(Debug)]
pub(crate) struct ClientEntry {
    /// Client ID on the wire.
    pub id: u64,
    /// Its states, in no order.
    pub states: Vec<Key>,
    /// Its places in each table; revoked delegations count.
    pub held: HeldPlaces,
    /// Its entry in the table of hosts with shares.
    pub host: Option<Key>,
    /// Revoked delegations that it has not freed.
    pub revoked: usize,
    /// Its right to reclaim.
    pub reclaim: ReclaimState,
    /// Its record, which lets it reclaim its state after a restart.
    pub record: EntryRecord,
    /// It was granted state since the last check of its lease.
    pub was_given: bool,
    /// Time of the last check that found it with state, or granted some since.
    pub had_state_at: u64,
    /// Time of its last SEQUENCE.
    pub renewed_at: u64,
    /// Phase of its lease.
    pub phase: LeasePhase,
}

/// The record of a client, as far as it affects new state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryRecord {
    /// No records are kept.
    Needless,
    /// There is none.
    Missing,
    /// There is one.
    Stable,
}

/// Phase of a client's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeasePhase {
    /// It has not expired, or that was not noticed yet.
    Active,
    /// It has expired; its state is kept until it conflicts with another client.
    Courtesy,
    /// The caller was asked to release the client.
    AwaitRelease,
}

impl ClientEntry {
    pub fn new(id: u64, reclaim: ReclaimState, now: u64) -> Self {
        Self {
            id,
            states: Vec::new(),
            held: HeldPlaces::default(),
            host: None,
            revoked: 0,
            reclaim,
            record: EntryRecord::Needless,
            was_given: false,
            had_state_at: now,
            renewed_at: now,
            phase: LeasePhase::Active,
        }
    }
}

/// A state: the referent of a stateid.
#[derive(Debug)]
pub(crate) struct StateEntry {
    /// The client that has it.
    pub client: Key,
    /// Its file.
    pub file: Key,
    /// The identity of the file.
    pub file_id: FileId,
    /// The seal of its name.
    pub seal: u64,
    /// The current sequence ID.
    pub seqid: u32,
    /// Place in the list of its client.
    pub place: usize,
    /// The kind, with its data.
    pub kind: StateKind,
}

/// Kinds of state.
#[derive(Debug)]
pub(crate) enum StateKind {
    Open(OpenEntry),
    Locks(LockEntry),
    Delegation(DelegationEntry),
}

impl StateKind {
    pub const fn tag(&self) -> StateidKind {
        match self {
            Self::Open(_) => StateidKind::Open,
            Self::Locks(_) => StateidKind::Locks,
            Self::Delegation(_) => StateidKind::Delegation,
        }
    }

    /// Returns true for a delegation that is not revoked.
    pub const fn is_live(&self) -> bool {
        matches!(self, Self::Delegation(held) if held.machine.is_live())
    }

    /// Returns true for a delegation for writing.
    pub const fn is_to_write(&self) -> bool {
        matches!(self, Self::Delegation(held) if held.write)
    }
}

/// An open.
#[derive(Debug)]
pub(crate) struct OpenEntry {
    /// The open-owner.
    pub owner: Box<[u8]>,
    /// Access and denial.
    pub share: OpenShare,
    /// Place among the opens of its file.
    pub place: usize,
    /// The lock states under it.
    pub locks: Vec<Key>,
}

/// The locks of one lock-owner under one open.
#[derive(Debug)]
pub(crate) struct LockEntry {
    /// The open.
    pub open: Key,
    /// The lock-owner.
    pub owner: Box<[u8]>,
    /// The lock-owner in the table of ranges: the same for all of its opens of the file.
    pub number: u64,
    /// Place among the lock states under the open.
    pub place: usize,
    /// Place among the lock states of the lock-owner.
    pub place_of_owner: usize,
}

/// A lock-owner of a file.
#[derive(Debug)]
pub(crate) struct LockOwner {
    /// Its name in the index of lock-owners.
    pub hash: u128,
    /// Its lock states: one for each open of the file that it has locks under.
    pub states: Vec<Key>,
    /// Its locked ranges.
    pub ranges: usize,
}

/// A delegation.
#[derive(Debug)]
pub(crate) struct DelegationEntry {
    /// Its life.
    pub machine: Delegation,
    /// True if it is for writing.
    pub write: bool,
    /// Change attribute of the file: that of the grant, then the last one that was reported.
    pub change: u64,
    /// True once the holder has reported a change.
    pub is_modified: bool,
    /// Time of the conflict that recalled it.
    pub asked_at: u64,
    /// True if the caller was asked to revoke it.
    pub is_revoke_asked: bool,
    /// Time at which it is revoked though its client has more time: a local program that waits for
    /// it waits no longer.
    pub revoke_at: Option<u64>,
    /// Time of the grant.
    pub given_at: u64,
    /// The request whose reply carried it.
    pub call: Option<GrantingCall>,
    /// Place in the list of recalls, once it is recalled.
    pub recall_place: usize,
}

impl DelegationEntry {
    /// Returns true while a request waits for its return.
    pub const fn is_recalled(&self) -> bool {
        matches!(
            self.machine.phase(),
            DelegationPhase::AwaitRecallSent | DelegationPhase::AwaitReturn { .. }
        )
    }
}

/// A file with state.
#[derive(Debug)]
pub(crate) struct FileEntry {
    /// Its identity.
    pub id: FileId,
    /// The filehandle for callbacks.
    pub handle: Box<[u8]>,
    /// Its opens.
    pub opens: FileOpens,
    /// Number of its lock states.
    pub lock_states: usize,
    /// Its locked ranges.
    pub locks: FileLocks,
    /// Requests that wait for locks, in the order of their arrival.
    pub waiters: Vec<LockWaiter>,
    /// True if it is in the list of files whose waiters have to be notified.
    pub is_unlocked: bool,
    /// True if it is in the list of files that have waiters.
    pub is_waited_for: bool,
    /// Its delegations, including revoked ones.
    pub delegations: Vec<Key>,
    /// True if the presence filter counts it.
    pub is_present: bool,
    /// True if it counts as one with a delegation for writing.
    pub is_held: bool,
}

impl FileEntry {
    pub fn new(file: &FileRef<'_>) -> Self {
        Self {
            id: file.id,
            handle: file.handle.into(),
            opens: FileOpens::default(),
            lock_states: 0,
            locks: FileLocks::default(),
            waiters: Vec::new(),
            is_unlocked: false,
            is_waited_for: false,
            delegations: Vec::new(),
            is_present: false,
            is_held: false,
        }
    }

    /// Returns true if no client has state of it.
    pub fn is_empty(&self) -> bool {
        self.opens.is_empty() && self.delegations.is_empty()
    }
}
