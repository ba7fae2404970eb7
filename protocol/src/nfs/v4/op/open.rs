//! OPEN, OPEN_DOWNGRADE, CLOSE, and the delegations that OPEN gives (RFC 8881 §18.2, §18.16,
//! §18.18).

use crate::nfs::v4::forms::{numbers, record, union};
use crate::nfs::v4::{
    Ace, Bitmap, ChangeInfo, Name4, RawAttributes, StateOwner, Stateid, Verifier4,
};

/// Bits of `share_access` and `share_deny`, and wants (RFC 8881 §18.16.1).
pub mod share {
    /// Reading.
    pub const READ: u32 = 1;
    /// Writing.
    pub const WRITE: u32 = 2;
    /// Both.
    pub const BOTH: u32 = 3;
    /// Bits that say which delegation is wanted.
    pub const WANT_MASK: u32 = 0xff00;
    /// A read delegation is wanted.
    pub const WANT_READ_DELEGATION: u32 = 0x0100;
    /// A write delegation is wanted.
    pub const WANT_WRITE_DELEGATION: u32 = 0x0200;
    /// Any delegation is wanted.
    pub const WANT_ANY_DELEGATION: u32 = 0x0300;
    /// No delegation is wanted.
    pub const WANT_NO_DELEGATION: u32 = 0x0400;
    /// An earlier want is cancelled.
    pub const WANT_CANCEL: u32 = 0x0500;
    /// Requests a notice when a delegation becomes available.
    pub const WANT_SIGNAL: u32 = 0x1_0000;
    /// Requests that a delegation be pushed once it conflicts with no other client.
    pub const WANT_PUSH: u32 = 0x2_0000;
    /// The client would like to keep the times of the file under a delegation (RFC 9754 §5). The
    /// type of the delegation that is given says if it may.
    pub const WANT_TIMESTAMPS: u32 = 0x10_0000;
    /// All bits of wants.
    pub const WANTS: u32 = WANT_MASK | WANT_SIGNAL | WANT_PUSH | WANT_TIMESTAMPS;

    /// Returns true if an OPEN may have these bits of `share_access` and `share_deny`: some access,
    /// and no undefined bit.
    pub const fn are_valid(access: u32, deny: u32) -> bool {
        // RFC 8881 §18.16.3 [8881-205]: bits of access and denial that are not defined are refused
        access & !(BOTH | WANTS) == 0
            && access & WANT_MASK <= WANT_CANCEL
            && access & BOTH != 0
            && deny <= BOTH
    }
}

/// Flags of OPEN's results (RFC 8881 §18.16.2).
pub mod open_flag {
    /// Of version 4.0.
    pub const CONFIRM: u32 = 2;
    /// Locks behave as POSIX says.
    pub const LOCKTYPE_POSIX: u32 = 4;
    /// The file stays while it is open, even without a name.
    pub const PRESERVE_UNLINKED: u32 = 8;
    /// CB_NOTIFY_LOCK may be sent.
    pub const MAY_NOTIFY_LOCK: u32 = 0x20;
}

record! {
    /// Arguments of CLOSE.
    #[derive(Copy)]
    Close4Args {
        /// Ignored.
        seqid: u32,
        /// The open.
        open: Stateid,
    }
}

record! {
    /// Arguments of OPEN_DOWNGRADE.
    #[derive(Copy)]
    OpenDowngrade4Args {
        /// The open.
        open: Stateid,
        /// Ignored.
        seqid: u32,
        /// Access that stays.
        share_access: u32,
        /// Denial that stays.
        share_deny: u32,
    }
}

record! {
    /// Verifier and attributes of an exclusive creation (`creatverfattr`).
    #[derive(Copy)]
    ExclusiveCreate<'a> {
        /// A repeated OPEN has the same.
        verifier: Verifier4,
        /// Attributes to set: a subset of suppattr_exclcreat.
        attributes: RawAttributes<'a>,
    }
}

union! {
    /// Manner of creating a file (`createhow4`).
    CreateHow4<'a> {
        /// With or without a file of that name.
        0 => Unchecked(RawAttributes<'a>),
        /// Only if it does not exist.
        1 => Guarded(RawAttributes<'a>),
        /// Once for each verifier; its attributes are set later.
        2 => Exclusive(Verifier4),
        /// Once for each verifier, with attributes.
        3 => Exclusive41(ExclusiveCreate<'a>),
    }
}

union! {
    /// Says if a file that does not exist is made (`openflag4`).
    OpenHow<'a> {
        /// It is not.
        0 => NoCreate,
        /// It is.
        1 => Create(CreateHow4<'a>),
    }
}

numbers! {
    /// Type of a delegation (`open_delegation_type4`).
    DelegationType {
        /// No delegation.
        None = 0,
        /// For reading.
        Read = 1,
        /// For reading and writing.
        Write = 2,
        /// No delegation, and why.
        NoneExt = 3,
    }
}

record! {
    /// A file that is opened under a delegation of its client (`open_claim_delegate_cur4`).
    #[derive(Copy)]
    DelegatedName<'a> {
        /// The delegation.
        delegation: Stateid,
        /// Name of the file.
        name: Name4<'a>,
    }
}

union! {
    /// The file, and the client's claim to it (`open_claim4`).
    OpenClaim<'a> {
        /// A file of the current directory.
        0 => Null(Name4<'a>),
        /// The current file was open before the server restarted, with such a delegation.
        1 => Previous(DelegationType),
        /// A file of the current directory, under a delegation.
        2 => DelegateCur(DelegatedName<'a>),
        /// Under a delegation from before the client restarted. We answer NFS4ERR_NOTSUPP.
        3 => DelegatePrev(Name4<'a>),
        /// The current file.
        4 => Fh,
        /// The current file, under a delegation.
        5 => DelegCurFh(Stateid),
        /// As `DelegatePrev`, the current file.
        6 => DelegPrevFh,
    }
}

record! {
    /// Arguments of OPEN.
    Open4Args<'a> {
        /// Ignored.
        seqid: u32,
        /// Access, and wants ([`share`]).
        share_access: u32,
        /// Denial.
        share_deny: u32,
        /// The open-owner.
        owner: StateOwner<'a>,
        /// Says if a file may be made.
        how: OpenHow<'a>,
        /// The file.
        claim: OpenClaim<'a>,
    }
}

record! {
    /// A delegation for reading.
    ReadDelegation<'a> {
        /// Its name.
        stateid: Stateid,
        /// True if it is recalled already.
        recall: bool,
        /// Users who need no ACCESS.
        permissions: Ace<'a>,
    }
}

record! {
    /// Limit by blocks (`nfs_modified_limit4`).
    #[derive(Copy)]
    BlockLimit {
        /// Blocks.
        blocks: u32,
        /// Octets of each.
        octets: u32,
    }
}

union! {
    /// Data that the client may keep unwritten when it closes the file (`nfs_space_limit4`).
    SpaceLimit {
        /// As far as the file has at most this size.
        1 => Size(u64),
        /// Up to this number of blocks.
        2 => Blocks(BlockLimit),
    }
}

record! {
    /// A delegation for writing.
    WriteDelegation<'a> {
        /// Its name.
        stateid: Stateid,
        /// True if it is recalled already.
        recall: bool,
        /// Data that may stay unwritten.
        space_limit: SpaceLimit,
        /// Users who need no ACCESS.
        permissions: Ace<'a>,
    }
}

union! {
    /// Reason for giving no delegation (`open_none_delegation4`).
    NoDelegation {
        /// It was not wanted.
        0 => NotWanted,
        /// There is contention; true if the server pushes a delegation later.
        1 => Contention(bool),
        /// Resources are short; true if the server signals when they are not.
        2 => Resource(bool),
        /// Not for files of this type.
        3 => FileType,
        /// Not for writing files of this type.
        4 => WriteFileType,
        /// A delegation cannot be upgraded.
        5 => Upgrade,
        /// A delegation cannot be downgraded.
        6 => Downgrade,
        /// The want was cancelled.
        7 => Cancelled,
        /// The object is a directory.
        8 => Directory,
    }
}

union! {
    /// The delegation that OPEN gives (`open_delegation4`).
    OpenDelegation<'a> {
        /// None.
        0 => None,
        /// For reading.
        1 => Read(ReadDelegation<'a>),
        /// For reading and writing.
        2 => Write(WriteDelegation<'a>),
        /// None, and why.
        3 => NoneExt(NoDelegation),
    }
}

record! {
    /// Results of OPEN.
    Open4Ok<'a> {
        /// The open.
        stateid: Stateid,
        /// The directory before and after.
        change: ChangeInfo,
        /// Flags ([`open_flag`]).
        flags: u32,
        /// Attributes that were set.
        set: Bitmap,
        /// The delegation.
        delegation: OpenDelegation<'a>,
    }
}
