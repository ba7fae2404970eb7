//! A context from its creation (RFC 2203 §5.2) on.

use super::{ContextFault, ContextSource, PendingSetup};
use crate::call::CallError;
use stag_gss::InitiatorContext;
use stag_protocol::{
    rpc::{
        self, Accepted, Auth, AuthStatus, Denied, ReplyHeader,
        gss::{
            CREDENTIAL_MAX, GssCredential, GssService, HANDLE_MAX, InitArguments, InitResults,
            MajorStatus,
        },
    },
    xdr::{Codec as _, Reader},
};
use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// The first number of a context's calls.
const FIRST: u32 = 1;

/// A context that a server has granted, at its caller's end.
#[derive(Debug)]
pub struct ClientContext {
    pub(super) keys: InitiatorContext,
    handle: Vec<u8>,
    service: GssService,
    window: u32,
    tokens: AtomicU64,
}

/// A creation request that waits for its reply.
pub struct CreationRequest {
    setup: Box<dyn PendingSetup>,
    /// The arguments of the call: a token, as XDR.
    pub arguments: Vec<u8>,
}

impl fmt::Debug for CreationRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreationRequest").finish_non_exhaustive()
    }
}

impl CreationRequest {
    /// Octets of the longest results.
    pub const RESULTS_MAX: usize = 4 + HANDLE_MAX + 12 + 4 + 2_048;

    /// Octets of the verifier of a reply.
    pub const VERIFIER_MAX: usize = 8 + Auth::BODY_MAX;

    /// Gets a token from `source`.
    ///
    /// # Errors
    /// Those of `source`.
    pub fn new(source: &mut dyn ContextSource) -> Result<Self, ContextFault> {
        let (token, setup) = source.begin()?;
        let mut arguments = (token.len() as u32).to_be_bytes().to_vec();
        // RFC 2203 §5.2.2 [2203-5]: a creation request's arguments are one token
        arguments.extend_from_slice(&token);
        arguments.resize(arguments.len().next_multiple_of(4), 0);
        if token.len() > InitArguments::TOKEN_MAX {
            return Err(ContextFault(format!("a token of {} bytes is too long", token.len())));
        }
        Ok(Self { setup, arguments })
    }

    /// The body of the credential of the call, which is to procedure 0 of the program.
    pub fn credential(room: &mut [u8; CREDENTIAL_MAX]) -> Auth<'_> {
        // RFC 2203 §5.2.2 [2203-4]: a first request has an empty handle
        Auth::gss(GssCredential::Init.emit(room).unwrap_or_default())
    }

    /// Takes the reply: its calls have protection `service`.
    ///
    /// # Errors
    /// If the server refuses, or does not prove its identity.
    pub fn finish(self, reply: &[u8], service: GssService) -> Result<ClientContext, CreationFault> {
        let (verifier, results) = parse(reply)?;
        let keys = self.setup.finish(results.token);
        if results.major != MajorStatus::COMPLETE {
            let InitResults { major: MajorStatus(major), minor, .. } = results;
            let why = keys.err().map_or_else(String::new, |fault| format!(": {fault}"));
            return Err(CreationFault::Failed(ContextFault(format!(
                "the server grants no context (major status {major:#x}, minor {minor:#x}){why}"
            ))));
        }
        let keys = keys?;
        // RFC 2203 §5.2.3.1 [2203-10]: the verifier of a complete context signs the window
        keys.verify_window(results.window, &verifier).map_err(|fault| {
            ContextFault(format!("the server's verifier does not prove its identity: {fault}"))
        })?;
        if results.handle.is_empty() || results.window == 0 {
            let why = "the server's context has no handle or no window";
            return Err(ContextFault(why.into()).into());
        }
        Ok(ClientContext {
            keys,
            handle: results.handle.to_vec(),
            service,
            window: results.window,
            tokens: AtomicU64::new(0),
        })
    }
}

/// The reason why a creation request has no context as its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreationFault {
    /// The server executes no creation requests, or not over this connection.
    Refused(Refusal),
    /// It has executed the request, and grants no context, or does not prove its identity; or there
    /// is no token.
    Failed(ContextFault),
    /// There is no reply of RPCSEC_GSS.
    Call(CallError),
}

/// An answer by which a server executes no creation request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The answer, as part of a sentence.
    pub why: String,
    /// The fix, which continues the sentence; empty where none is known.
    pub fix: &'static str,
}

impl From<ContextFault> for CreationFault {
    fn from(fault: ContextFault) -> Self {
        Self::Failed(fault)
    }
}

impl From<CreationFault> for ContextFault {
    fn from(fault: CreationFault) -> Self {
        match fault {
            CreationFault::Refused(Refusal { why, fix }) => Self(format!("{why}{fix}")),
            CreationFault::Failed(fault) => fault,
            CreationFault::Call(error) => Self(error.to_string()),
        }
    }
}

/// The verifier and the results of a creation's reply.
fn parse(reply: &[u8]) -> Result<(Auth<'_>, InitResults<'_>), CreationFault> {
    let garbled = |error| ContextFault(format!("the reply to INIT cannot be decoded: {error}"));
    let refused = |why, fix| CreationFault::Refused(Refusal { why, fix });
    let mut reader = Reader::new(reply);
    let verifier = match ReplyHeader::parse(&mut reader).map_err(garbled)?.outcome {
        rpc::Outcome::Accepted { verifier, status: Accepted::Success } => verifier,
        rpc::Outcome::Accepted { status: Accepted::GarbageArgs, .. } => {
            let why = "the server does not speak RPCSEC_GSS (GARBAGE_ARGS)".to_owned();
            return Err(refused(why, ": call it without tickets"));
        }
        rpc::Outcome::Denied(Denied::AuthError(AuthStatus(status))) => {
            let why = format!("the server does not take RPCSEC_GSS (auth_stat {status})");
            return Err(refused(why, ": it may have no keytab, or no export with sec=krb5"));
        }
        outcome => return Err(refused(format!("the server refuses INIT ({outcome:?})"), "")),
    };
    let results = InitResults::parse(&mut reader).map_err(garbled)?;
    reader.finish().map_err(garbled)?;
    Ok((verifier, results))
}

impl ClientContext {
    /// Its name at the server.
    pub fn handle(&self) -> &[u8] {
        &self.handle
    }

    /// The protection of its calls.
    pub const fn service(&self) -> GssService {
        self.service
    }

    /// The sequence numbers that the server remembers: no more calls may be outstanding.
    pub const fn window(&self) -> u32 {
        self.window
    }

    /// The sequence number of the next transmission. From
    /// [`MAXSEQ`](stag_protocol::rpc::gss::MAXSEQ) on there is none, and the context has to be
    /// renewed.
    pub fn next_number(&self) -> u32 {
        self.keys.upcoming_sequence()
    }

    /// The number of the next token, which no receiver checks.
    pub(super) fn next_token(&self) -> u64 {
        self.tokens.fetch_add(1, Relaxed)
    }
}

impl ClientContext {
    /// A context of a test, without its creation.
    #[doc(hidden)]
    pub fn granted(keys: InitiatorContext, handle: &[u8], service: GssService) -> Self {
        let (handle, tokens) = (handle.to_vec(), AtomicU64::new(0));
        Self { keys, handle, service, window: FIRST, tokens }
    }
}
