//! COPY and CLONE (RFC 7862 §15.2, §15.13).

use super::{FailureArm, FailureContent};
use crate::nfs::v3::StableHow;
use crate::nfs::v4::forms::{record, union};
use crate::nfs::v4::{Array, Owner4, Stateid, Status4, Verifier4};
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer};

record! {
    /// An address of a server (`netaddr4`).
    #[derive(Copy)]
    NetworkAddress<'a> {
        /// Network ID.
        netid: Owner4<'a>,
        /// Universal address.
        address: Owner4<'a>,
    }
}

union! {
    /// A server that has the source of a copy (`netloc4`).
    SourceServer<'a> {
        /// By its name.
        1 => Name(Owner4<'a>),
        /// By a URL.
        2 => Url(Owner4<'a>),
        /// By its address.
        3 => Address(NetworkAddress<'a>),
    }
}

record! {
    /// Arguments of COPY.
    Copy4Args<'a> {
        /// An open of the source for reading.
        source: Stateid,
        /// An open of the target for writing.
        target: Stateid,
        /// The first octet to copy.
        source_offset: u64,
        /// Its place in the target.
        target_offset: u64,
        /// Number of octets; 0 = all that follow.
        count: u64,
        /// True if octets have to be copied in their order.
        consecutive: bool,
        /// True if the copy has to be done before the answer.
        synchronous: bool,
        /// Servers that have the source; none = this one.
        servers: Array<'a, SourceServer<'a>>,
    }
}

record! {
    /// Outcome of a copy (`write_response4`).
    #[derive(Copy)]
    CopyOutcome {
        /// Names an asynchronous copy.
        callback: Option<Stateid>,
        /// Octets copied.
        count: u64,
        /// Stability of them.
        committed: StableHow,
        /// Changes when unstable data may have been lost.
        verifier: Verifier4,
    }
}

record! {
    /// Requirements on a copy (`copy_requirements4`).
    #[derive(Copy)]
    CopyManner {
        /// In the order of the octets.
        consecutive: bool,
        /// Before the answer.
        synchronous: bool,
    }
}

record! {
    /// Results of COPY.
    #[derive(Copy)]
    Copy4Ok {
        /// Outcome.
        outcome: CopyOutcome,
        /// Manner in which it was done.
        manner: CopyManner,
    }
}

/// Failure arms of COPY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFault {
    /// NFS4ERR_OFFLOAD_NO_REQS, and what the server can do.
    Requirements(CopyManner),
    /// Any other status.
    Failed(Status4),
}

impl FailureArm for CopyFault {
    fn status(&self) -> Status4 {
        match self {
            Self::Requirements(_) => Status4::OffloadNoReqs,
            Self::Failed(status) => *status,
        }
    }
}

impl FailureContent<'_> for CopyFault {
    fn parse_arm(status: Status4, reader: &mut Reader<'_>) -> Result<Self, Error> {
        match status {
            // RFC 7862 §15.2.2 [7862-3]: a refused copy comes with what the server can do
            Status4::OffloadNoReqs => Codec::parse(reader).map(Self::Requirements),
            status => Ok(Self::Failed(status)),
        }
    }
    fn emit_arm(&self, writer: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::Requirements(manner) => manner.emit(writer),
            Self::Failed(_) => Ok(()),
        }
    }
}

record! {
    /// Arguments of CLONE.
    #[derive(Copy)]
    CloneArgs {
        /// An open of the source for reading.
        source: Stateid,
        /// An open of the target for writing.
        target: Stateid,
        /// The first octet.
        source_offset: u64,
        /// Its place in the target.
        target_offset: u64,
        /// Number of octets; 0 = all that follow.
        count: u64,
    }
}
