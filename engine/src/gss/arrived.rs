//! A call with RPCSEC_GSS as it arrived.

use crate::item::Pulled;
use stag_protocol::{
    rpc::{CallHeader, flavor, gss::GssService},
    rpcrdma::{ChunkLists, Position},
    xdr::Reader,
};

/// A call whose header was parsed.
#[derive(Debug)]
pub(crate) struct ArrivedCall<'a> {
    /// At the start of the message.
    pub(crate) message: Reader<'a>,
    pub(crate) header: CallHeader<'a>,
    pub(crate) arguments: Reader<'a>,
    pub(crate) pulled: Pulled<'a>,
}

/// Returns true if a call with this beginning asks for integrity or privacy, and reduces arguments
/// or offers room for reduced results. `payload` begins with the RPC message.
pub(crate) fn is_reduced(lists: &ChunkLists, payload: &[u8]) -> bool {
    asks_for_protection(payload) && reduces(lists)
}

/// Returns true if a call with this beginning asks for integrity or privacy.
pub(crate) fn asks_for_protection(message: &[u8]) -> bool {
    /// Words of a call in front of its credential; those of the credential of RPCSEC_GSS in front
    /// of its service.
    const CREDENTIAL: usize = 24;
    const SERVICE: usize = 20;
    let word = |at: usize| {
        let octets = message.get(at..).and_then(<[u8]>::first_chunk);
        octets.map(|octets| u32::from_be_bytes(*octets))
    };
    word(CREDENTIAL) == Some(flavor::GSS)
        && word(CREDENTIAL + SERVICE).is_some_and(|service| service > GssService::None as u32)
}

/// Returns true if a call with these chunks reduces arguments, or offers room for reduced results.
pub(crate) fn reduces(lists: &ChunkLists) -> bool {
    lists.writes().next().is_some() || lists.reads().any(|chunk| chunk.position != Position::ZERO)
}
