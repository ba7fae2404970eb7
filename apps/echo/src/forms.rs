//! The echo program called in every form of a message (RFC 8166 §3.5), with its payload compared.
//!
//! A call whose payload is DDP-eligible travels with a Read chunk, its reply with a Write chunk;
//! one whose payload is a part of the message becomes a Long call, or has a Long reply by a Reply
//! chunk, once it does not fit inline. [`FORMS`] lists them with the form that is expected, and
//! [`call_all`] makes them one after the other.

use crate::{ECHO, ECHO_MAX, PLACES, PULL, PUSH, copy, part, request_of};
use stag_engine::{
    App, CallFault, Cx, Outcome, PeerId, Request, RequestItem, Room, Shard, Token, stats::Forms,
};
use stag_protocol::{
    rpc::{self, Accepted, ReplyHeader},
    rpcrdma::form::Form,
    xdr::{self, NoRoom, Piece, Reader, Writer, padded},
};
use stag_verbs::Provider;
use std::fmt;

/// Payload that fits inline whatever the peer takes.
const SHORT: usize = 900;
/// Payload beyond every inline threshold of ours, not a multiple of four.
const LONGER: usize = 4_097;
/// Payload beyond the first 64 KiB, not a multiple of four.
const LARGE: usize = 70_001;

/// A call of the echo program, and the expected forms of its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormCall {
    /// The messages, for people.
    pub name: &'static str,
    /// Octets of payload.
    pub len: usize,
    /// Expected form of the call.
    pub call: Form,
    /// Expected form of its reply.
    pub reply: Form,
    procedure: u32,
}

/// A form of a call and of its reply, in several sizes.
macro_rules! forms {
    ($($name:literal, $procedure:ident, $call:ident, $reply:ident: $($len:expr),+;)+) => {
        &[$($(FormCall {
            name: $name,
            len: $len,
            call: Form::$call,
            reply: Form::$reply,
            procedure: $procedure,
        }),+),+]
    };
}

/// Every form, in several sizes.
pub const FORMS: &[FormCall] = forms! {
    "short call and reply", ECHO, Short, Short: 0, 1, 3, 100, SHORT;
    "call with Read chunk", PULL, Chunked, Short: LONGER, LARGE, ECHO_MAX;
    "reply with Write chunk", PUSH, Short, Chunked: LONGER, LARGE, ECHO_MAX;
    "Read chunk and Write chunk", ECHO, Chunked, Chunked: LONGER, LARGE, ECHO_MAX;
    "Long call", PULL, Long, Short: LONGER, LARGE, ECHO_MAX;
    "Long reply (Reply chunk)", PUSH, Short, Long: LONGER, LARGE, ECHO_MAX;
    "Long call and Long reply", ECHO, Long, Long: LONGER, LARGE, ECHO_MAX;
};

impl FormCall {
    /// True if call and reply are inline, as they have to be in the reverse direction of version 1.
    pub fn is_short(&self) -> bool {
        (self.call, self.reply) == (Form::Short, Form::Short)
    }

    /// The argument is sent with the call.
    const fn sends(&self) -> bool {
        self.procedure != PUSH
    }

    /// The result is octets.
    const fn returns(&self) -> bool {
        self.procedure != PULL
    }

    /// The request, with payload from `place` of the [`stream`](crate::stream).
    fn request(&self, cx: &Cx<'_>, place: u32) -> Option<Request> {
        let octets = part(place, self.len)?;
        let inserts = self.sends() && self.call == Form::Long;
        let write = |writer: &mut Writer<'_>| {
            if self.procedure != ECHO {
                writer.u32(place)?;
            }
            if inserts {
                return writer.opaque(octets);
            }
            writer.u32(u32::try_from(self.len).map_err(|_| NoRoom)?)
        };
        let len = if inserts { padded(self.len) } else { 0 };
        let mut request = request_of(cx, self.procedure, FormCaller::TOKEN, len, write)?;
        request.reply_max = ReplyHeader::REFUSAL_LEN_MAX + 8;
        if self.sends() && !inserts {
            let position = request.message.len();
            request.item = Some(RequestItem { position, octets: copy(cx, octets)? });
        }
        if self.returns() && self.reply == Form::Long {
            request.reply_max += padded(self.len);
        } else if self.returns() {
            request.result = Some(cx.room(self.len)?);
        }
        Some(request)
    }

    /// Compares the results of a reply with the octets from `place` of the stream.
    fn judge(&self, place: u32, reply: &[u8], result: Option<&Room>) -> Result<(), FormFault> {
        let pieces = [Piece::Inline(reply), Piece::Chunk(result.map_or(&[], |result| result))];
        let mut results = Reader::over(&pieces);
        let garbled = |_: xdr::Error| FormFault::Garbled;
        let header = ReplyHeader::parse(&mut results).map_err(garbled)?;
        if header.outcome != rpc::Outcome::accepted(Accepted::Success) {
            return Err(FormFault::Refused);
        }
        if !self.returns() {
            let is_same = results.u32().map_err(garbled)? == 1;
            return if is_same { Ok(()) } else { Err(FormFault::DiffersThere) };
        }
        let found = results.item(ECHO_MAX).map_err(garbled)?;
        let expected = part(place, self.len).unwrap_or_default();
        if found.len() != expected.len() {
            return Err(FormFault::Length { found: found.len() });
        }
        match found.iter().zip(expected).position(|(found, expected)| found != expected) {
            Some(at) => Err(FormFault::Differs { at }),
            None => Ok(()),
        }
    }
}

impl fmt::Display for FormCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} octets", self.name, self.len)
    }
}

/// Reason for which a call in some form failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormFault {
    /// There is no reply.
    Call(CallFault),
    /// The server refused the call.
    Refused,
    /// The reply cannot be read.
    Garbled,
    /// The server got other octets than were sent.
    DiffersThere,
    /// The reply has another number of octets.
    Length {
        /// The number in the reply.
        found: usize,
    },
    /// The reply has other octets.
    Differs {
        /// The first one that differs.
        at: usize,
    },
    /// The messages had other forms.
    Form {
        /// The call's, if it went out once.
        call: Option<Form>,
        /// The reply's, if one came.
        reply: Option<Form>,
    },
    /// There is no memory to make the call.
    NoMemory,
}

impl fmt::Display for FormFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |form: &Option<Form>| match form {
            Some(Form::Short) => "short",
            Some(Form::Chunked) => "chunked",
            Some(Form::Long) => "long",
            None => "none",
        };
        match self {
            Self::Call(fault) => fault.fmt(f),
            Self::Refused => f.write_str("the server refused the call"),
            Self::Garbled => f.write_str("the reply cannot be read"),
            Self::DiffersThere => f.write_str("the server got other octets than were sent"),
            Self::Length { found } => write!(f, "the reply has {found} octets"),
            Self::Differs { at } => write!(f, "octet {at} of the reply differs"),
            Self::Form { call, reply } => write!(
                f,
                "the messages went in other forms: call {}, reply {}",
                name(call),
                name(reply)
            ),
            Self::NoMemory => f.write_str("no memory for the call"),
        }
    }
}

impl std::error::Error for FormFault {}

/// A caller with one call of a form at a time.
#[derive(Debug, Default)]
pub struct FormCaller {
    asked: Option<FormCall>,
    place: u32,
    end: Option<Result<(), FormFault>>,
    peers: Vec<PeerId>,
    compared: u64,
}

impl FormCaller {
    /// The token of its calls, for an app that makes others as well.
    pub const TOKEN: Token = Token(u64::MAX - 1);

    /// Calls a peer. The end is [taken](Self::take) later.
    pub fn call(&mut self, cx: &mut Cx<'_>, peer: PeerId, form: FormCall) {
        // Octets of an earlier call that remain somewhere differ from those of this one.
        self.place = (self.place + 8) % PLACES as u32;
        self.asked = Some(form);
        self.end = None;
        match form.request(cx, self.place) {
            Some(request) => cx.call(peer, request),
            None => self.end = Some(Err(FormFault::NoMemory)),
        }
    }

    /// The end of the call, once it is over.
    pub fn take(&mut self) -> Option<Result<(), FormFault>> {
        self.end.take()
    }

    /// Peers that are up.
    pub fn peers(&self) -> &[PeerId] {
        &self.peers
    }

    /// Judges the outcome of its call.
    pub fn handle_outcome(&mut self, outcome: &Outcome<'_>) {
        let Some(asked) = self.asked.take() else { return };
        let judged = match outcome.reply {
            Ok(reply) => asked.judge(self.place, reply, outcome.result.as_ref()),
            Err(fault) => Err(FormFault::Call(fault)),
        };
        self.compared += u64::from(judged.is_ok());
        self.end = Some(judged);
    }
}

impl AsMut<Self> for FormCaller {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

impl App for FormCaller {
    type Report = u64;

    /// Calls whose payload was compared and is the same.
    fn report(&self) -> u64 {
        self.compared
    }

    fn wants_idle_passes(&self) -> bool {
        false
    }

    fn on_reply(&mut self, _cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        self.handle_outcome(&outcome);
    }

    fn on_peer_up(&mut self, _cx: &mut Cx<'_>, peer: PeerId) {
        self.peers.push(peer);
    }

    fn on_peer_down(&mut self, _cx: &mut Cx<'_>, peer: PeerId, _cause: stag_engine::Cause) {
        self.peers.retain(|known| *known != peer);
    }
}

/// A call in some form, and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormEnd {
    /// The call.
    pub form: FormCall,
    /// Success means that the payload is the same and that the messages had the expected forms.
    pub end: Result<(), FormFault>,
}

/// Calls `peer` in all [`FORMS`], one after the other. `turn` makes passes of the shard, and of its
/// peer if that has no thread of its own. Time has to advance in it, because a lost call ends only
/// by its deadline.
pub fn call_all<P: Provider, A: App + AsMut<FormCaller>>(
    client: &mut Shard<P, A>,
    peer: PeerId,
    mut turn: impl FnMut(&mut Shard<P, A>),
) -> Vec<FormEnd> {
    let mut ends = Vec::with_capacity(FORMS.len());
    for form in FORMS {
        let counts = |client: &Shard<P, A>| client.snapshot().engine.requester;
        let before = counts(client);
        client.with_app(|app, cx| app.as_mut().call(cx, peer, *form));
        let end = loop {
            if let Some(end) = client.with_app(|app, _| app.as_mut().take()) {
                break end;
            }
            turn(client);
        };
        let after = counts(client);
        let (call, reply) =
            (taken(before.calls, after.calls), taken(before.replies, after.replies));
        let end = match end {
            Ok(()) if (call, reply) != (Some(form.call), Some(form.reply)) => {
                Err(FormFault::Form { call, reply })
            }
            end => end,
        };
        ends.push(FormEnd { form: *form, end });
    }
    ends
}

/// The form of the only message between two counts; none if there was none, or several.
fn taken(before: Forms, after: Forms) -> Option<Form> {
    let more = [
        (after.short - before.short, Form::Short),
        (after.chunked - before.chunked, Form::Chunked),
        (after.long - before.long, Form::Long),
    ];
    match more.iter().map(|(count, _)| count).sum() {
        1 => more.iter().find(|(count, _)| *count == 1).map(|(_, form)| *form),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_there_in_several_sizes() {
        for call in [Form::Short, Form::Chunked, Form::Long] {
            assert!(FORMS.iter().filter(|form| form.call == call).count() >= 3, "{call:?}");
            assert!(FORMS.iter().filter(|form| form.reply == call).count() >= 3, "{call:?}");
        }
        let names: std::collections::HashSet<_> = FORMS.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), FORMS.len());
    }

    /// A reply with these results after its header.
    fn reply(status: Accepted, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut octets = vec![0; 8_192];
        let mut writer = Writer::new(&mut octets);
        crate::call_header(ECHO).reply(status).emit(&mut writer).unwrap();
        write(&mut writer);
        let len = writer.len();
        octets.truncate(len);
        octets
    }

    #[test]
    fn every_octet_of_a_reply_is_compared() {
        let form = FORMS.iter().find(|form| form.procedure == ECHO && form.len == 100).unwrap();
        let judge = |octets: &[u8]| {
            let reply = reply(Accepted::Success, |writer| writer.opaque(octets).unwrap());
            form.judge(8, &reply, None)
        };
        let mut octets = part(8, 100).unwrap().to_vec();
        assert_eq!(judge(&octets), Ok(()));
        assert_eq!(judge(&octets[..99]), Err(FormFault::Length { found: 99 }));
        for at in 0..octets.len() {
            octets[at] ^= 1;
            assert_eq!(judge(&octets), Err(FormFault::Differs { at }));
            octets[at] ^= 1;
        }
        assert_eq!(judge(part(16, 100).unwrap()), Err(FormFault::Differs { at: 0 }));
    }

    #[test]
    fn a_reply_that_is_none_of_octets_has_a_reason_of_its_own() {
        let pull = FORMS.iter().find(|form| form.procedure == PULL).unwrap();
        let judge = |status, word: u32| {
            pull.judge(8, &reply(status, |writer| writer.u32(word).unwrap()), None)
        };
        assert_eq!(judge(Accepted::Success, 1), Ok(()));
        assert_eq!(judge(Accepted::Success, 0), Err(FormFault::DiffersThere));
        assert_eq!(judge(Accepted::SystemErr, 1), Err(FormFault::Refused));
        assert_eq!(pull.judge(8, b"nothing", None), Err(FormFault::Garbled));
    }

    #[test]
    fn only_one_message_has_a_form() {
        let forms = |short, chunked, long| Forms { short, chunked, long };
        assert_eq!(taken(forms(1, 1, 1), forms(1, 2, 1)), Some(Form::Chunked));
        assert_eq!(taken(forms(1, 1, 1), forms(1, 1, 1)), None);
        assert_eq!(taken(forms(1, 1, 1), forms(2, 1, 2)), None);
    }
}
