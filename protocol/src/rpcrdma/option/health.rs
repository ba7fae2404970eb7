//! Health option: reports the state of a peer, an option of our own (`docs/options/health.md`).

use crate::rpcrdma::Connection;
use crate::xdr::{Codec, Error, NoRoom, Reader, Writer, structure};

// draft 000 §3.2 [v2-15]: each option documents purpose, XDR and errors
/// `rdma_opttype` of the request: "Sta", and a number that no document has assigned.
pub const REQUEST: u32 = 0x5374_6101;
/// `rdma_opttype` of the answer.
pub const REPLY: u32 = 0x5374_6102;
/// No RPC payload follows either.
pub const PAYLOAD_FOLLOWS: bool = false;

/// The request. It carries nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request;

/// The answering end's own counts for the requesting peer, at the time of the answer. Nothing about
/// other peers, nor about its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Calls that the requesting peer may have outstanding: the grant of the direction in which it
    /// calls.
    pub credits_granted: u32,
    /// Calls of the requesting peer that this end received and did not answer yet.
    pub credits_in_use: u32,
}

/// The credits of `connection` for the calls of its peer.
pub(super) fn answer(_: &Request, connection: &Connection) -> Reply {
    connection.serves().map_or_else(Reply::default, |credits| Reply {
        credits_granted: credits.granted().0,
        credits_in_use: credits.outstanding(),
    })
}

impl Codec<'_> for Request {
    fn parse(_: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self)
    }
    fn emit(&self, _: &mut Writer<'_>) -> Result<(), NoRoom> {
        Ok(())
    }
}

structure!(Reply { credits_granted, credits_in_use });
