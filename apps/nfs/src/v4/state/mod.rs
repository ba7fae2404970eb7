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

mod attributes;
mod check;
mod consistency;
mod delegation;
mod entry;
mod expired;
mod hosts;
mod lease;
mod limits;
mod lock;
mod open;
mod opens;
mod owners;
mod presence;
mod ranges;
mod recall;
mod recent;
mod recovery;
mod shadow;
mod spans;
mod stateid;
mod tables;
#[cfg(test)]
mod tests;
mod waiter;
mod watch;
mod work;

pub use attributes::{AttributeOrder, AttributeSource, ChangeAndSize};
pub use check::{IoAccess, IoGrant};
pub use delegation::{
    DelegationOffer, DelegationOutcome, DelegationPolicy, GivenDelegation, GrantingCall,
};
pub use entry::{ClientKey, FileId, FileRef, StateFault, StateKey};
pub use lease::{COURTESY_MS, RECORDED_LEASES};
pub use limits::StateLimits;
pub use lock::{DeniedLock, LockRequest, LockTestRequest, LockerRef, UnlockRequest};
pub use open::{Claim, DowngradeRequest, OpenRequest, Opened, StateRequest};
pub use presence::PresenceFilter;
pub use recall::{RecallOrder, RecallScope};
pub use recent::CONTENTION_MS;
pub use shadow::ShadowPart;
pub use stateid::{StateName, StateidKind};
pub use tables::StateTables;
pub use waiter::{LocalWait, LockNotice};
pub use watch::{FactAccess, FactChange, IoFact, StateOther, allows};
pub use work::StateWork;
