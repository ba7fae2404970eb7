//! Byte-range locks (RFC 8881 §18.10–§18.12).

use super::{FailureArm, FailureContent};
use crate::nfs::v4::forms::{numbers, record};
use crate::nfs::v4::{StateOwner, Stateid, Status4};
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer};

numbers! {
    /// Type of a lock (`nfs_lock_type4`).
    LockType {
        /// Shared.
        Read = 1,
        /// Exclusive.
        Write = 2,
        /// Shared, and the client waits for it.
        ReadWait = 3,
        /// Exclusive, and the client waits for it.
        WriteWait = 4,
    }
}

impl LockType {
    /// Returns true if the lock is exclusive.
    pub const fn is_exclusive(self) -> bool {
        matches!(self, Self::Write | Self::WriteWait)
    }
}

record! {
    /// A lock-owner that has no locks on the file yet (`open_to_lock_owner4`). The two sequence
    /// numbers are of version 4.0 and ignored.
    NewLockOwner<'a> {
        /// Ignored.
        open_seqid: u32,
        /// The open.
        open: Stateid,
        /// Ignored.
        lock_seqid: u32,
        /// The lock-owner.
        owner: StateOwner<'a>,
    }
}

record! {
    /// A lock-owner that has locks on the file (`exist_lock_owner4`).
    #[derive(Copy)]
    KnownLockOwner {
        /// Its locks.
        stateid: Stateid,
        /// Ignored.
        seqid: u32,
    }
}

/// The owner of a lock to make (`locker4`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Locker<'a> {
    /// It has no locks on the file yet.
    New(NewLockOwner<'a>),
    /// It has.
    Known(KnownLockOwner),
}

impl<'a> Codec<'a> for Locker<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, Error> {
        if reader.bool()? {
            Codec::parse(reader).map(Self::New)
        } else {
            Codec::parse(reader).map(Self::Known)
        }
    }
    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::New(owner) => {
                writer.bool(true)?;
                owner.emit(writer)
            }
            Self::Known(owner) => {
                writer.bool(false)?;
                owner.emit(writer)
            }
        }
    }
}

record! {
    /// Arguments of LOCK.
    Lock4Args<'a> {
        /// Type.
        kind: LockType,
        /// True if the lock was held before the server restarted.
        reclaim: bool,
        /// The first octet.
        offset: u64,
        /// Number of octets; all ones = to the end of the file, even as it grows.
        length: u64,
        /// Owner.
        locker: Locker<'a>,
    }
}

record! {
    /// A lock that conflicts (`LOCK4denied`).
    LockDenied<'a> {
        /// The first octet.
        offset: u64,
        /// Number of octets; all ones = to the end.
        length: u64,
        /// Type.
        kind: LockType,
        /// Owner.
        owner: StateOwner<'a>,
    }
}

/// Failure arms of LOCK and LOCKT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockFault<'a> {
    /// NFS4ERR_DENIED, and a lock that conflicts.
    Denied(LockDenied<'a>),
    /// Any other status.
    Failed(Status4),
}

impl FailureArm for LockFault<'_> {
    fn status(&self) -> Status4 {
        match self {
            Self::Denied(_) => Status4::Denied,
            Self::Failed(status) => *status,
        }
    }
}

impl<'a> FailureContent<'a> for LockFault<'a> {
    fn parse_arm(status: Status4, reader: &mut Reader<'a>) -> Result<Self, Error> {
        match status {
            // RFC 8881 §18.10.2 [8881-13]: a denied lock comes with the lock that conflicts
            Status4::Denied => Codec::parse(reader).map(Self::Denied),
            status => Ok(Self::Failed(status)),
        }
    }
    fn emit_arm(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::Denied(denied) => denied.emit(writer),
            Self::Failed(_) => Ok(()),
        }
    }
}

record! {
    /// Arguments of LOCKT.
    LockT4Args<'a> {
        /// Type.
        kind: LockType,
        /// The first octet.
        offset: u64,
        /// Number of octets; all ones = to the end.
        length: u64,
        /// Owner that asks: its own locks do not conflict.
        owner: StateOwner<'a>,
    }
}

record! {
    /// Arguments of LOCKU.
    #[derive(Copy)]
    LockU4Args {
        /// Type; it has no meaning.
        kind: LockType,
        /// Ignored.
        seqid: u32,
        /// The owner's locks.
        stateid: Stateid,
        /// The first octet.
        offset: u64,
        /// Number of octets; all ones = to the end.
        length: u64,
    }
}
