//! The state that clients of NFS 4.1 and 4.2 have at one shard: opens, byte-range locks,
//! delegations, leases, and reclaims after a restart (RFC 8881 §8–§10).
//!
//! A library without I/O. [`StateTables`] takes the requests of an operation, and returns data or a
//! [`StateFault`]; callbacks to send and records to write come out of [`StateTables::poll_work`].
//! Time is an argument: milliseconds of a clock that never steps back. Sessions, filehandles and
//! files are the caller's: a client is a [`ClientKey`] here, and a file a [`FileId`].
//!
//! The checks of READ, WRITE and GETATTR ([`StateTables::check_io`],
//! [`StateTables::check_attributes`]) allocate nothing. Every table has a size
//! ([`StateLimits`]). When one is full, the answer is NFS4ERR_DELAY, or
//! [`StateFault::AwaitRemoval`] if an expired client could make room.
#![forbid(unsafe_code)]

mod actions;
mod attributes;
mod check;
mod conflict_filter;
mod consistency;
mod delegation;
mod entry;
mod expired;
mod fact_changes;
mod hashes;
mod hosts;
mod lease;
mod limits;
mod listing;
mod lock;
mod lock_union;
mod lock_waiters;
mod open;
mod opens;
mod owners;
mod ranges;
mod recall;
mod recent;
mod recovery;
mod spans;
mod stateid;
mod tables;
#[cfg(test)]
mod tests;

pub use actions::StateWork;
pub use attributes::{AttributeOrder, AttributeSource, ChangeAndSize};
pub use check::{IoAccess, IoGrant};
pub use conflict_filter::ConflictFilter;
pub use delegation::{
    DelegationOffer, DelegationOutcome, DelegationPolicy, GivenDelegation, GrantingCall,
};
pub use entry::{ClientKey, FileId, FileRef, StateFault, StateKey};
pub use fact_changes::{FactAccess, FactChange, IoFact, StateOther, allows};
pub use lease::{COURTESY_MS, RECORDED_LEASES};
pub use limits::StateLimits;
pub use listing::{LeaseFacts, ListedKind, ListedState, StateFilter};
pub use lock::{DeniedLock, LockRequest, LockTestRequest, LockerRef, UnlockRequest};
pub use lock_union::ShadowPart;
pub use lock_waiters::{LocalWait, LockNotice};
pub use open::{Claim, DowngradeRequest, OpenRequest, Opened, StateRequest};
pub use recall::{RecallOrder, RecallScope};
pub use recent::CONTENTION_MS;
pub use stateid::{StateName, StateidKind};
pub use tables::StateTables;
