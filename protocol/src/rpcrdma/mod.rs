//! RPC-over-RDMA (RFC 8166, RFC 8167, RFC 8797): what a message means, in any version and in both
//! roles.
//!
//! [`v1`] and [`v2`] join bytes and meaning: one [`Header`] and its [`ChunkLists`], the same in
//! both versions. [`Connection`] classifies incoming messages and counts credits; [`form`] and
//! [`requester`] serve the side that calls, [`responder`] and [`invalidate`] the side that answers.
//! Nothing here allocates, waits or copies payload.

pub mod chunk;
pub mod cm_private;
pub mod connection;
pub mod credit;
mod fault;
pub mod form;
mod incoming;
mod intent;
pub mod invalidate;
mod negotiation;
mod one_chunk;
pub mod option;
pub mod requester;
pub mod responder;
pub mod short;
pub mod v1;
pub mod v2;
mod wire;

pub use chunk::{
    ChunkLists, Intent, ListsFull, MessageType, Position, ReadChunk, ReadSegment, Segment,
    WriteChunk,
};
pub use cm_private::{Dialects, InlineSize, InlineThreshold, PrivateData};
pub use connection::{Connection, Invalidation, Setup};
pub use credit::{NoCredit, RequesterCredits, ResponderCredits};
pub use fault::PeerFault;
pub use incoming::Incoming;
pub use negotiation::{PeerMemory, Version, Version2, Versions};
pub use short::ShortMessage;
pub use wire::{emit_error, header_len};

/// Port of NFS over RDMA (RFC 8166 §9, RFC 8267 §9).
pub const NFS_PORT: u16 = 20049;

/// Names one transaction of one direction on one connection; equal to the XID of the RPC message
/// (RFC 8166 §4.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xid(pub u32);

/// Direction of a call (RFC 8167 §2.1, §2.2). The two directions have their own XIDs and their own
/// credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The client calls, the server answers.
    Forward,
    /// The server calls, the client answers.
    #[doc(alias = "backward")]
    Reverse,
}

/// Role of this end of the connection: client or server (RFC 8167 §2).
// A word, so that the values it never has mark an empty `Option<Connection>`, or an empty option of
// whatever contains one, in a cache line that is read anyhow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Side {
    /// This end connected.
    Client,
    /// This end listened.
    Server,
}

impl Side {
    /// The direction of the calls that this side makes.
    pub const fn calls(self) -> Direction {
        match self {
            Self::Client => Direction::Forward,
            Self::Server => Direction::Reverse,
        }
    }

    /// The direction of the calls that this side answers.
    pub const fn serves(self) -> Direction {
        match self {
            Self::Client => Direction::Reverse,
            Self::Server => Direction::Forward,
        }
    }
}

/// The credit word of a header: requested in a call, granted in a reply (RFC 8166 §4.2.3). Raw, as
/// the peer sent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Credits(pub u32);

/// Procedure of a header (RFC 8166 §4.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Procedure {
    /// RDMA_MSG: the payload follows the header.
    Msg,
    /// RDMA_NOMSG: chunks hold the payload.
    NoMsg,
    /// RDMA_ERROR: no payload.
    Error,
    /// RDMA_OPTIONAL: one of the messages in [`option`] (draft 000 §3.1).
    Optional,
}

/// Content of a header beyond its fixed fields. The chunk lists of a message are separate, in
/// [`ChunkLists`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// RDMA_MSG: the payload follows the header.
    Msg,
    /// RDMA_NOMSG: chunks hold the payload.
    NoMsg,
    /// RDMA_ERROR: why there will be no reply.
    Error(ErrorBody),
    /// RDMA_OPTIONAL, whose content begins at [`v2::OPTION_AT`] (draft 000 §3.1).
    Optional {
        /// Number of the option: `rdma_opttype`.
        opttype: u32,
        /// Octets of its content, without padding.
        len: u32,
    },
}

/// Why a call has no reply (RFC 8166 §4.5, draft 000 §4.2). Permanent: the same call fails again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorBody {
    /// ERR_VERS: the responder speaks other versions, `low` to `high` inclusive (§4.5.1).
    Version {
        /// Lowest version spoken.
        low: u32,
        /// Highest version spoken.
        high: u32,
    },
    /// The header cannot be parsed, or no reply can be sent with the chunks given (§4.5.2, §4.5.3):
    /// ERR_CHUNK in version 1, BAD_HEADER in version 2, the same number in both.
    Chunk,
    /// INVAL_OPTION: the responder does not know or does not support the option (draft 000 §3.1).
    Option,
}

/// A transport header, in any version.
///
/// Direction and invalidation of a version 2 header are in its lists: [`ChunkLists::intent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The transaction.
    pub xid: Xid,
    /// Credits requested by a call, granted by a reply.
    pub credits: Credits,
    /// Content after the fixed fields.
    pub body: Body,
}

impl Header {
    /// The kind of message.
    pub const fn procedure(&self) -> Procedure {
        match self.body {
            Body::Msg => Procedure::Msg,
            Body::NoMsg => Procedure::NoMsg,
            Body::Error(_) => Procedure::Error,
            Body::Optional { .. } => Procedure::Optional,
        }
    }
}

/// An RDMA_ERROR message to send; `version` echoes the failing call's, even an unknown one (RFC
/// 8166 §4.5). [`emit_error`] writes it: its layout is the same in all versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorReply {
    /// The failing call.
    pub xid: Xid,
    /// The version word of the failing call.
    pub version: u32,
    /// The grant, as in any reply.
    pub credits: Credits,
    /// Why.
    pub error: ErrorBody,
}
