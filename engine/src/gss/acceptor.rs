//! Set-up of contexts, which belongs to the program: [`ContextAcceptor`].

use stag_gss::AcceptorContext;
use stag_protocol::rpc::{UnixUser, gss::MajorStatus};
use stag_verbs::PeerAddress;

/// Accepts contexts of RPCSEC_GSS. Called on a thread of its own, which may wait for files and for
/// the host's name service.
pub trait ContextAcceptor: Send {
    /// Judges the token of a client's INIT (RFC 2203 §5.2.2).
    ///
    /// # Errors
    /// The results that the client gets instead of a context.
    fn accept(
        &mut self,
        token: &[u8],
        from: PeerAddress,
    ) -> Result<AcceptedContext, RefusedContext>;
}

/// A context that was accepted.
#[derive(Debug)]
pub struct AcceptedContext {
    /// Its keys and its window.
    pub context: AcceptorContext,
    /// The token for the client; empty if it did not ask for mutual authentication.
    pub token: Vec<u8>,
    /// The client's principal, as in `alice@REALM`.
    pub principal: String,
    /// The user of this host that the principal maps to.
    pub unix: Option<UnixUser>,
    /// The end of the ticket, in seconds since 1970-01-01 00:00:00 UTC.
    pub ends: u64,
}

/// Results of an INIT that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedContext {
    /// The major status, an error.
    pub major: MajorStatus,
    /// The mechanism's status.
    pub minor: u32,
    /// The mechanism's error message for the client, which may be empty.
    pub token: Vec<u8>,
}
