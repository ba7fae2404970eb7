//! Stores of files, accessed through the trait [`Store`]. [`files`] serves directories of this
//! host, [`ceph`] those of a Ceph file system, and [`memory`] ends with the process.
//!
//! Operations use attributes and changes that belong to no version of NFS ([`FileAttributes`],
//! [`NewAttributes`], [`ObjectChange`]); the code of each version converts, and adds the wire
//! format. Handles and other common types are those of [`stag_protocol::nfs::v3`]. Content travels
//! in extents, so that a store with files in memory needs no copy.
//!
//! | module | what |
//! |---|---|
//! | [`contract`] | the procedures of a store, their arguments and results |
//! | [`call`] | a procedure as a value, for whatever executes it elsewhere |
//! | [`exports`] | what is exported, to whom, under which file handle; the state directory |
//! | [`helpers`] | threads that wait for file systems |
//! | [`files`], [`memory`], [`ceph`] | the stores |
//! | `remote` | a store whose calls are all executed elsewhere ([`RemoteStore`]) |
//! | [`shard_mailbox`] | inboxes for messages between threads |
#![forbid(unsafe_code)]
#![allow(
    clippy::result_large_err,
    reason = "a reply that fails carries attributes like one that succeeds; boxing would allocate"
)]

pub mod call;
pub mod ceph;
pub mod contract;
pub mod exports;
pub mod files;
pub mod helpers;
pub mod log_rate;
pub mod memory;
mod remote;
pub mod shard_mailbox;
mod start_error;

pub use call::answered::Answered;
pub use call::arguments::{Lend, LentArgument, Own, OwnedName, OwnedNameIn};
pub use call::execute::{Backend, FillRoom, HelperStore, perform};
pub use call::outcome::{
    Begun, FilledLink, FilledListing, FilledRead, StoreCallDone, StoreOutcome,
};
pub use call::request::{Effort, StoreCall, StoreRequest, objects};
pub use call::store::{HostTurns, Store};
pub use contract::acl::{
    ACL_ENTRIES_MAX, ACL_MAX, ACL_PAIR_MAX, Acl, AclEntry, AclPair, AclPart, AclSubject, InvalidAcl,
};
pub use contract::caller::{
    Caller, DeviceNode, Lender, NameIn, ReadSpan, Security, StoreResult, TRANSFER_MAX, User,
    Visitor, WritePayload,
};
pub use contract::extensions::{
    COPY_MAX, CopyDone, ExportRoot, FilePlace, FileSpan, LocalLock, SeekDone, SeekFor, SetDone,
    SetMask, StoreLimits, TouchedFile, XATTR_MAX, XATTR_NAME_MAX, XattrMode,
};
pub use contract::procedures::{Procedures, Procedures4};
pub use contract::results::{
    Brought, CommitDone, Failed, Fetched, FoundObject, LISTING_MAX, Linked, Listed, ListedEntry,
    ListingStart, MadeObject, Origin, ReadDone, ReadlinkDone, Renamed, StoreAnswer, WriteDone,
};
pub use contract::tickets::{ReadTicket, TICKETS, WaitTicket};
pub use contract::types::{
    BeforeChange, CreateMode, FileAttributes, FileTime, NewAttributes, NewTime, ObjectChange,
};
pub use contract::version4::emit_stat;
pub use exports::host_groups::GroupSource;
pub use remote::RemoteStore;
pub use start_error::StartError;

/// All types that the [table of procedures](store_procedures) names: who expands it imports them.
pub mod procedure_types {
    pub use crate::call::{
        arguments::{LentArgument, OwnedName, OwnedNameIn},
        request::Effort,
    };
    pub use crate::contract::procedures::types::*;
}

/// The status of an operation of a store: version 3's, whose names and numbers version 4 shares.
pub use stag_protocol::nfs::v3::Status;

#[cfg(test)]
mod tests;
