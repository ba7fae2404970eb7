//! The two ends of a context: calls and replies of RPCSEC_GSS (RFC 2203 §5.3).

use core::{fmt, ops::Range};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use stag_protocol::rpc::{
    Auth, AuthStatus, flavor,
    gss::{CredentialFault, GssCredential, GssData, GssService, MAXSEQ, signed_credential},
};

use crate::{
    BodyFault, CONFOUNDER, ContextKey, ContextKeys, GssRole, MicToken, Protection, ReplayWindow,
    Replayed, TokenFault, VerifiedSequence, WINDOW, WrongBuffer, WrongKeyLen,
};

/// Reason for which a server does not take a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// The verifier does not prove the header.
    Verifier(TokenFault),
    /// The verified octets are not the header of a call inside a context.
    Header,
    /// The sequence number is [`MAXSEQ`] or above.
    Sequence,
    /// The sequence number was seen before, or is below the window.
    Replayed,
}

impl CallFault {
    /// Status of the denied reply; `None` if there is no answer at all.
    pub const fn status(self) -> Option<AuthStatus> {
        match self {
            // RFC 2203 §5.3.3.4.2 [2203-29]: a wrong header checksum gets CREDPROBLEM
            Self::Verifier(_) => Some(AuthStatus::GSS_CREDENTIAL_PROBLEM),
            Self::Header => Some(AuthStatus::GSS_CREDENTIAL_PROBLEM),
            // RFC 2203 §5.3.3.3 [2203-25]: a number that is too high gets CTXPROBLEM
            Self::Sequence => Some(AuthStatus::GSS_CONTEXT_PROBLEM),
            // RFC 2203 §5.3.3.1 [2203-21]: a number that was seen is discarded in silence
            Self::Replayed => None,
        }
    }
}

impl fmt::Display for CallFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verifier(fault) => write!(f, "verifier: {fault}"),
            Self::Header => f.write_str("the header is not that of a call inside a context"),
            Self::Sequence => f.write_str("the context's sequence numbers are used up"),
            Self::Replayed => Replayed.fmt(f),
        }
    }
}

impl std::error::Error for CallFault {}

/// A call whose header is verified and whose number was never seen before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedCall {
    sequence: VerifiedSequence,
    service: GssService,
}

impl VerifiedCall {
    /// Its sequence number.
    pub const fn sequence(&self) -> u32 {
        self.sequence.number()
    }

    /// Its service, which the reply has too.
    pub const fn service(&self) -> GssService {
        self.service
    }

    /// Parameters of its results.
    pub const fn protection(&self, token_sequence: u64) -> Protection {
        Protection { service: self.service, sequence: self.sequence(), token_sequence }
    }
}

/// A server's end of a context. All shards share it.
#[derive(Debug)]
pub struct AcceptorContext {
    keys: ContextKeys,
    window: ReplayWindow,
}

impl AcceptorContext {
    /// The end that granted the context with this key.
    pub fn new(key: &ContextKey<'_>) -> Result<Self, WrongKeyLen> {
        let keys = ContextKeys::new(key, GssRole::Acceptor)?;
        Ok(Self { keys, window: ReplayWindow::new() })
    }

    /// Its keys, for work in steps.
    pub const fn keys(&self) -> &ContextKeys {
        &self.keys
    }

    /// Body of the verifier of the reply that completes the context, whose results have
    /// [`WINDOW`] for a window.
    pub fn sign_window(&self, token_sequence: u64) -> MicToken {
        // RFC 2203 §5.2.3.1 [2203-10]: the verifier of a complete context signs the window
        self.keys.mic(token_sequence, [&WINDOW.to_be_bytes()[..]])
    }

    /// Verifies the header of a call of this context, then takes its sequence number. `header` is
    /// its octets up to the end of the credential
    /// ([`signed_header`](stag_protocol::rpc::gss::signed_header)). Number and service are read
    /// from these octets, so that they are the ones that the client signed.
    pub fn verify_call(
        &self,
        header: &[u8],
        verifier: &Auth<'_>,
    ) -> Result<VerifiedCall, CallFault> {
        let (sequence, service) = verify_header(&self.keys, header, verifier)?;
        self.window.accept(sequence).map_err(|Replayed| CallFault::Replayed)?;
        Ok(VerifiedCall { sequence, service })
    }

    /// Verifies and opens the arguments of a call: returns where in `body` they are. `body` is all
    /// that follows the header. The answer to a fault is GARBAGE_ARGS with a verifier.
    ///
    /// For DATA only: DESTROY has neither arguments nor results under protection, with any service.
    /// Linux sends none.
    pub fn open_arguments(
        &self,
        call: &VerifiedCall,
        body: &mut [u8],
    ) -> Result<Range<usize>, BodyFault> {
        self.keys.unprotect(call.service, call.sequence(), body)
    }

    /// The same for arguments with integrity, which stay as they are.
    pub fn verify_arguments(
        &self,
        call: &VerifiedCall,
        body: &[u8],
    ) -> Result<Range<usize>, BodyFault> {
        self.keys.verify_integrity(call.sequence(), body)
    }

    /// Body of the verifier of an accepted reply, of any status.
    pub fn sign_reply(&self, call: &VerifiedCall, token_sequence: u64) -> MicToken {
        // RFC 2203 §5.3.3.2 [2203-23]: an accepted reply's verifier signs the call's number
        self.keys.mic(token_sequence, [&call.sequence().to_be_bytes()[..]])
    }

    /// Protects the results of a successful call in `body`; see [`ContextKeys::begin_protect`]. A
    /// reply that cannot be protected is not sent.
    pub fn protect_results(
        &self,
        call: &VerifiedCall,
        token_sequence: u64,
        body: &mut [u8],
        confounder: &[u8; CONFOUNDER],
    ) -> Result<(), WrongBuffer> {
        // RFC 2203 §5.3.3.2 [2203-24]: results have the service and the number of their call
        self.keys.protect(&call.protection(token_sequence), body, confounder)
    }
}

/// The checksum first, so that a stranger gets no [`VerifiedSequence`].
fn verify_header(
    keys: &ContextKeys,
    header: &[u8],
    verifier: &Auth<'_>,
) -> Result<(VerifiedSequence, GssService), CallFault> {
    if verifier.flavor != flavor::GSS {
        return Err(CallFault::Verifier(TokenFault::Kind));
    }
    // RFC 2203 §5.3.3.1 [2203-22]: the window moves only by calls with a verified header
    keys.verify_mic(verifier.body, [header]).map_err(CallFault::Verifier)?;
    let GssData { sequence, service, .. } = match signed_credential(header) {
        Some(Ok(GssCredential::Data(data) | GssCredential::Destroy(data))) => data,
        Some(Err(CredentialFault::Sequence(_))) => return Err(CallFault::Sequence),
        _ => return Err(CallFault::Header),
    };
    let sequence = VerifiedSequence::new(sequence).ok_or(CallFault::Sequence)?;
    Ok((sequence, service))
}

/// A client's end of a context.
#[derive(Debug)]
pub struct InitiatorContext {
    keys: ContextKeys,
    next: AtomicU32,
}

impl InitiatorContext {
    /// The end that asked for the context with this key. The first call has the number `first`.
    pub fn new(key: &ContextKey<'_>, first: u32) -> Result<Self, WrongKeyLen> {
        let keys = ContextKeys::new(key, GssRole::Initiator)?;
        Ok(Self { keys, next: AtomicU32::new(first) })
    }

    /// Its keys, for work in steps.
    pub const fn keys(&self) -> &ContextKeys {
        &self.keys
    }

    /// The number of the next transmission: each has a new one, retransmissions as well. `None`
    /// when the numbers are used up, and the context has to be renewed.
    pub fn next_sequence(&self) -> Option<u32> {
        // RFC 2203 §5.3.1 [2203-13]: sequence numbers are below MAXSEQ
        // RFC 2203 §5.3.3.1 [2203-14]: each transmission has a higher number
        let next = |number: u32| (number < MAXSEQ).then_some(number.saturating_add(1));
        self.next.fetch_update(Relaxed, Relaxed, next).ok()
    }

    /// The number that [`Self::next_sequence`] gives next, unless it has reached
    /// [`MAXSEQ`].
    pub fn upcoming_sequence(&self) -> u32 {
        self.next.load(Relaxed)
    }

    /// Verifies the verifier of the reply that completed the context.
    pub fn verify_window(&self, window: u32, verifier: &Auth<'_>) -> Result<(), TokenFault> {
        self.verify_number(window, verifier)
    }

    /// Body of the verifier of a call. `header` is its octets up to the end of the credential.
    pub fn sign_call(&self, header: &[u8], token_sequence: u64) -> MicToken {
        // RFC 2203 §5.3.1 [2203-15]: the verifier covers the header up to the credential's end
        self.keys.mic(token_sequence, [header])
    }

    /// Protects the arguments of a call in `body`; see [`ContextKeys::begin_protect`].
    pub fn protect_arguments(
        &self,
        protection: &Protection,
        body: &mut [u8],
        confounder: &[u8; CONFOUNDER],
    ) -> Result<(), WrongBuffer> {
        self.keys.protect(protection, body, confounder)
    }

    /// The number that the verifier of an accepted reply belongs to, of those with which the call
    /// was sent: the transmission that the server answered. Most recent numbers are best first.
    pub fn verify_reply(
        &self,
        verifier: &Auth<'_>,
        outstanding: &[u32],
    ) -> Result<u32, TokenFault> {
        let mut fault = TokenFault::Checksum;
        for sequence in outstanding {
            match self.verify_number(*sequence, verifier) {
                Ok(()) => return Ok(*sequence),
                Err(found) => fault = found,
            }
        }
        Err(fault)
    }

    /// Verifies and opens the results of a successful call: returns where in `body` they are.
    /// `sequence` is the number that [`InitiatorContext::verify_reply`] found.
    pub fn open_results(
        &self,
        service: GssService,
        sequence: u32,
        body: &mut [u8],
    ) -> Result<Range<usize>, BodyFault> {
        self.keys.unprotect(service, sequence, body)
    }

    fn verify_number(&self, number: u32, verifier: &Auth<'_>) -> Result<(), TokenFault> {
        if verifier.flavor != flavor::GSS {
            return Err(TokenFault::Kind);
        }
        self.keys.verify_mic(verifier.body, [&number.to_be_bytes()[..]])
    }
}
