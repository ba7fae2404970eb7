//! Typed calls: encoding, outcomes, and decoding of results.

use crate::{
    codec::{Decoder, Encoder, XdrType},
    error::UnprovenReply,
    program::{ArgumentsOf, Procedure, ResultsOf},
    reply::copy,
};
use stag_engine::{
    CallFault, Cx, Outcome, PeerId, Request, RequestItem, Room, ShortRequest, Token,
    config::INLINE_LEN,
};
use stag_protocol::{
    rpc::{self, Accepted, Auth, AuthStatus, CallHeader, Credential, Denied, ReplyHeader, Xid},
    xdr::{self, NoRoom, Reader},
};
use std::{fmt, time::Duration};

/// Octets of a call header with this credential, when the verifier is AUTH_NONE.
#[inline]
pub(crate) fn header_len(credential: &Credential<'_>) -> usize {
    let body = match credential {
        Credential::None => 0,
        Credential::Sys(sys) => {
            20 + xdr::padded(sys.machine_name.len()) + 4 * sys.gids.list().len()
        }
        Credential::Other(auth) => xdr::padded(auth.body.len()),
        Credential::Proven(_) => 0,
    };
    40 + body
}

/// The bit of a token that marks a client's own call; calls of a service have it clear.
pub(crate) const CLIENT_TOKEN: u64 = 1 << 63;

/// The reason why a call has no results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// No reply came, for this reason.
    Failed(CallFault),
    /// The server received the call and did not execute it.
    Rejected(Accepted),
    /// The server rejected the caller's credential.
    Denied(Denied),
    /// The reply does not match this procedure.
    Garbled(xdr::Error),
    /// The arguments do not fit: one is longer than its type allows.
    TooLong,
    /// The reply does not have the protection that the call asked for.
    Unproven(UnprovenReply),
    /// There is no context of RPCSEC_GSS for the call
    /// ([`RawClient::take_context_fault`](crate::RawClient::take_context_fault)).
    NoContext,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(fault) => fault.fmt(f),
            Self::Rejected(Accepted::ProgUnavail) => {
                f.write_str("the server does not have this program")
            }
            Self::Rejected(Accepted::ProcUnavail) => {
                f.write_str("the program does not have this procedure")
            }
            Self::Rejected(Accepted::GarbageArgs) => {
                f.write_str("the server cannot decode the arguments")
            }
            Self::Rejected(Accepted::ProgMismatch { low, high }) => {
                write!(f, "the server has versions {low} to {high} of this program, and not ours")
            }
            Self::Rejected(status) => {
                write!(f, "the server did not carry out the call ({status:?})")
            }
            Self::Denied(Denied::AuthError(AuthStatus::TOO_WEAK)) => f.write_str(
                "the server does not take our credential (auth_stat 5): it may want TLS, or a \
                 ticket of Kerberos",
            ),
            Self::Denied(Denied::AuthError(AuthStatus(status))) => {
                write!(f, "the server does not take our credential (auth_stat {status})")
            }
            Self::Denied(denied) => write!(f, "the server denied the call ({denied:?})"),
            Self::Garbled(error) => write!(f, "the reply cannot be decoded: {error}"),
            Self::TooLong => f.write_str("the arguments are longer than the call has room for"),
            Self::Unproven(fault) => write!(f, "the reply cannot be trusted: {fault}"),
            Self::NoContext => f.write_str("there is no context of Kerberos with the server"),
        }
    }
}

impl std::error::Error for CallError {}

impl From<CallFault> for CallError {
    fn from(fault: CallFault) -> Self {
        Self::Failed(fault)
    }
}

/// The header of a call of `P`.
pub(crate) const fn header<P: Procedure>(credential: Credential<'_>) -> CallHeader<'_> {
    CallHeader {
        xid: Xid(0),
        program: P::PROGRAM,
        version: P::VERSION,
        procedure: P::NUMBER,
        credential,
        // RFC 5531 §A
        verifier: Auth::NONE,
    }
}

/// Encodes the arguments of a call of `P` after the content of `encoder`.
pub(crate) fn encode<'a, P: Procedure>(
    encoder: &mut Encoder<'_, 'a>,
    arguments: &ArgumentsOf<'a, P>,
) -> Result<(), NoRoom> {
    const { assert!(P::Arguments::ITEMS <= 1, "a call has one item that may travel in a chunk") };
    P::Arguments::encode(arguments, encoder)
}

/// Returns true if a call without items is made by [`Cx::call_short`]: it and its longest reply are
/// short enough.
#[inline]
pub(crate) const fn goes_short(len_max: usize, reply_max: usize) -> bool {
    len_max <= ShortRequest::LEN_MAX && reply_max <= INLINE_LEN
}

/// Octets of the longest reply to a call of `P`, without its item.
pub(crate) const fn reply_max<P: Procedure>() -> usize {
    let results = ReplyHeader::LEN + <P::Results as XdrType>::LEN_MAX;
    if results > ReplyHeader::REFUSAL_LEN_MAX { results } else { ReplyHeader::REFUSAL_LEN_MAX }
}

/// A caller's credential, timeout and token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallTerms<'a> {
    pub(crate) credential: Credential<'a>,
    pub(crate) timeout: Duration,
    pub(crate) token: Token,
}

/// Makes a call of `P`, written in place. A short one is sent at once if possible.
pub(crate) fn make<'v, P: Procedure>(
    cx: &mut Cx<'_>,
    peer: PeerId,
    terms: &CallTerms<'_>,
    arguments: &ArgumentsOf<'v, P>,
) -> Result<(), CallError> {
    let CallTerms { credential, timeout, token } = *terms;
    let (header, reply_max) = (header::<P>(credential), reply_max::<P>());
    let len_max = header_len(&credential) + P::Arguments::LEN_MAX;
    let has_items = P::Arguments::ITEMS + P::Results::ITEMS > 0;
    if !has_items && goes_short(len_max, reply_max) {
        let request = ShortRequest { header, reply_max, timeout, token };
        let write = |encoder: &mut Encoder<'_, 'v>| encode::<P>(encoder, arguments);
        let sent = cx.call_short(peer, &request, |to| Encoder::behind(to, write));
        return sent.map_err(|NoRoom| CallError::TooLong);
    }
    let none = CallError::Failed(CallFault::Limit);
    let mut message = cx.message(len_max).ok_or(none)?;
    let mut encoder = Encoder::new(message.spare_mut());
    let written = header.emit(encoder.writer()).and_then(|()| encode::<P>(&mut encoder, arguments));
    written.map_err(|NoRoom| CallError::TooLong)?;
    let (len, item) = encoder.finish();
    message.extend(len);
    let item = match item {
        Some((position, octets)) => {
            Some(RequestItem { position, octets: copy(cx, &octets).ok_or(none)? })
        }
        None => None,
    };
    let result = room_for_item(cx, P::Results::ITEM_MAX)?;
    cx.call(peer, Request { message, item, reply_max, result, timeout, token });
    Ok(())
}

/// Room for an item of a reply; none if it has no item.
pub(crate) fn room_for_item(cx: &Cx<'_>, len: usize) -> Result<Option<Room>, CallFault> {
    if len == 0 {
        return Ok(None);
    }
    cx.room(len).map(Some).ok_or(CallFault::Limit)
}

/// Parses the header of a reply (RFC 5531 §9); `reader` is then at the results.
///
/// # Errors
/// If the header reports that there are no results.
pub fn accepted(reader: &mut Reader<'_>) -> Result<(), CallError> {
    match ReplyHeader::parse(reader).map_err(CallError::Garbled)?.outcome {
        rpc::Outcome::Accepted { status: Accepted::Success, .. } => Ok(()),
        rpc::Outcome::Accepted { status, .. } => Err(CallError::Rejected(status)),
        rpc::Outcome::Denied(denied) => Err(CallError::Denied(denied)),
    }
}

/// The octets of a reply, inline and in chunks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyOctets<'a> {
    /// The RPC reply message, which came inline or in a Reply chunk.
    pub(crate) message: &'a [u8],
    /// The item that came in a Write chunk; empty if it came in the message.
    pub(crate) chunk: &'a [u8],
}

impl<'a> ReplyOctets<'a> {
    /// Parses the header of a successful reply; returns the offset of its results.
    pub(crate) fn results_at(self) -> Result<usize, CallError> {
        let mut reader = Reader::new(self.message);
        accepted(&mut reader)?;
        Ok(self.message.len() - reader.remaining())
    }

    /// The results, which begin at `at`.
    pub(crate) fn results_from<T: XdrType>(self, at: usize) -> Result<T::Of<'a>, CallError> {
        const { assert!(T::ITEMS <= 1, "a reply has one item that may travel in a chunk") };
        let message = self.message.get(at..).unwrap_or_default();
        let mut decoder = Decoder::with_chunk(message, self.chunk);
        let results = T::decode(&mut decoder).map_err(CallError::Garbled)?;
        decoder.finish().map_err(CallError::Garbled)?;
        Ok(results)
    }

    /// The results.
    pub(crate) fn results<T: XdrType>(self) -> Result<T::Of<'a>, CallError> {
        self.results_from::<T>(self.results_at()?)
    }
}

/// Calls a peer from inside a service. The outcome comes by `on_reply` of the service, exactly
/// once. It carries `token`, which must be below 2^63.
///
/// A peer that connected to this server is called over its own connection (RFC 8167); see
/// [`Cx::ready`].
///
/// # Errors
/// If there is no memory for the call, or an argument is too long. Then no outcome follows.
pub fn call<P: Procedure>(
    cx: &mut Cx<'_>,
    peer: PeerId,
    arguments: ArgumentsOf<'_, P>,
    timeout: Duration,
    token: u64,
) -> Result<(), CallError> {
    let (credential, token) = (Credential::None, Token(token & !CLIENT_TOKEN));
    make::<P>(cx, peer, &CallTerms { credential, timeout, token }, &arguments)
}

/// The end of a call that a service made.
#[derive(Debug)]
pub struct CallOutcome<'a>(Outcome<'a>);

impl<'a> CallOutcome<'a> {
    pub(crate) const fn new(outcome: Outcome<'a>) -> Self {
        Self(outcome)
    }

    /// The token that the call was made with.
    pub const fn token(&self) -> u64 {
        self.0.token.0
    }

    /// The peer that was called.
    pub const fn peer(&self) -> PeerId {
        self.0.peer
    }

    /// The results, if the call was one of `P`, whether they came inline or in a chunk.
    ///
    /// # Errors
    /// If there are none.
    pub fn results<P: Procedure>(&self) -> Result<ResultsOf<'_, P>, CallError> {
        let chunk = self.0.result.as_deref().unwrap_or_default();
        ReplyOctets { message: self.0.reply?, chunk }.results::<P::Results>()
    }
}
