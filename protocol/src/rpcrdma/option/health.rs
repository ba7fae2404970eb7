//! How a peer is: an option of our own (`docs/options/health.md`).

use crate::xdr::{Codec, Error, NoRoom, Reader, Writer, structure};

/// `rdma_opttype` of the request: "Sta", and a number that no document has assigned.
pub const REQUEST: u32 = 0x5374_6101;
/// `rdma_opttype` of the answer.
pub const REPLY: u32 = 0x5374_6102;
/// No RPC payload follows either.
pub const PAYLOAD_FOLLOWS: bool = false;

/// The request. It carries nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request;

/// The state of the end that answers, when it answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Calls that this end took and did not answer yet, of all its peers.
    pub queue_depth: u32,
    /// Calls that the one who asks may have outstanding: the grant of the direction in which it calls.
    pub credits_granted: u32,
    /// Calls of the one who asks that are outstanding.
    pub credits_in_use: u32,
    /// The clock of this end: nanoseconds since 1970-01-01 UTC.
    pub time_ns: u64,
}

impl Codec<'_> for Request {
    fn parse(_: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self)
    }
    fn emit(&self, _: &mut Writer<'_>) -> Result<(), NoRoom> {
        Ok(())
    }
}

structure!(Reply { queue_depth, credits_granted, credits_in_use, time_ns });
