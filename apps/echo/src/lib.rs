//! Echo: the smallest app. It serves one ONC RPC program with two procedures and calls it too.
//!
//! [`Echo`] is the server's side: a state machine without states. [`Caller`] is the client's side:
//! it keeps the outcomes of its calls until they are taken. [`Twin`] is both at once, and calls
//! clients back that ask for it. [`Driver`] calls them one call after the other, for measurements.
//! [`forms`] calls in every form of a message. They show all of [`App`] that a stateless service
//! needs: parse the arguments, take a buffer, write the reply in place, hand over what may travel
//! in a chunk.
#![forbid(unsafe_code)]

pub mod driver;
pub mod forms;
pub mod pattern;
mod twin;

pub use driver::Driver;
pub use twin::Twin;

use stag_engine::{
    Answer, AnswerItem, App, Call, CallFault, Cx, Outcome, PeerId, Request, RequestItem, Room,
    ShortRequest, Token, stages::service,
};
use stag_pools::{Buf, Extent};
use stag_protocol::{
    rpc::{Accepted, Auth, CallHeader, Credential, NullHeader, ReplyHeader},
    rpcrdma::Xid,
    xdr::{self, NoRoom, Reader, Writer},
};
use std::{collections::VecDeque, sync::LazyLock, time::Duration};

/// The program's number, from the range for local administration (RFC 5531 §8.3).
// draft 004 §6.2.1 [exp-31]: each program has a binding
// RFC 5531 §8.3 [5531-31]: the program number is from the local range
pub const PROGRAM: u32 = 0x2053_5441;
/// Its version.
// RFC 5531 §8.1 [5531-6]: the first version of a program is not zero
pub const VERSION: u32 = 1;
/// Does nothing.
pub const NULL: u32 = 0;
/// Takes `opaque<>` and returns it. Argument and result are DDP-eligible.
pub const ECHO: u32 = 1;
/// Takes a [`stream`]'s place, or [`UNCHECKED`], and `opaque<>`, which is DDP-eligible; returns
/// true if the stream has these octets there. The responder pulls long ones.
pub const PULL: u32 = 3;
/// Takes a [`stream`]'s place and a length; returns the stream's octets there, `opaque<>`,
/// DDP-eligible. The responder pushes long ones.
pub const PUSH: u32 = 4;
/// Takes a number that identifies the caller, and says that the caller accepts calls itself. Served
/// by [`Twin`] alone.
pub const REGISTER: u32 = 2;
/// Takes a [`driver::Drive`]; makes the requested calls in the reverse direction, and returns how
/// they ended ([`driver::Driven`]). Served by [`Driver`] alone.
pub const DRIVE: u32 = 5;
/// Called by a [`Driver`]: takes a [`driver::Lap`] and `opaque<>`; returns whether to go on and the
/// same `opaque<>`, which are DDP-eligible.
pub const LAP: u32 = 6;
/// Octets of the longest echo.
pub const ECHO_MAX: usize = 1 << 20;
/// Places at which octets of the [`stream`] may begin: octets of an earlier call that remain
/// somewhere differ from those of this one.
pub const PLACES: usize = 4_096;
/// A place that says: do not compare.
pub const UNCHECKED: u32 = u32::MAX;

/// Octets that both sides know, [`ECHO_MAX`] from each place on.
pub fn stream() -> &'static [u8] {
    static STREAM: LazyLock<Box<[u8]>> = LazyLock::new(|| {
        let mut octets = vec![0; ECHO_MAX + PLACES].into_boxed_slice();
        pattern::Pattern::new(u64::from(PROGRAM), 0).fill(0, &mut octets);
        octets
    });
    &STREAM
}

/// `len` octets of the [`stream`] at `place`; none past its end.
pub fn part(place: u32, len: usize) -> Option<&'static [u8]> {
    let place = usize::try_from(place).ok()?;
    stream().get(place..place.checked_add(len)?)
}

/// The service. It counts the calls it answered, and reports their duration ([`service`]).
#[derive(Debug, Default)]
pub struct Echo {
    calls: u64,
    /// The stream in registered memory, from the first PUSH on.
    stream: Option<Extent>,
}

/// Result of an accepted call.
enum Given {
    Nothing,
    Word(u32),
    Item(Extent),
}

impl Echo {
    /// Runs a procedure of the program.
    #[inline]
    fn run(
        &mut self,
        cx: &Cx<'_>,
        procedure: u32,
        mut arguments: Reader<'_>,
    ) -> Result<Given, Accepted> {
        let garbage = |_: xdr::Error| Accepted::GarbageArgs;
        match procedure {
            // RFC 5531 §12.1 [5531-25]: procedure 0 takes and gives nothing, for anybody
            NULL => Ok(Given::Nothing),
            ECHO => {
                let octets = arguments.item(ECHO_MAX).map_err(garbage)?;
                copy(cx, octets).map(|item| Given::Item(item.freeze())).ok_or(Accepted::SystemErr)
            }
            PULL => {
                let place = arguments.u32().map_err(garbage)?;
                let octets = arguments.item(ECHO_MAX).map_err(garbage)?;
                let is_same = place == UNCHECKED || part(place, octets.len()) == Some(octets);
                Ok(Given::Word(is_same.into()))
            }
            PUSH => {
                let place = arguments.u32().map_err(garbage)? as usize;
                let len = arguments.u32().map_err(garbage)? as usize;
                if place >= PLACES || len > ECHO_MAX {
                    return Err(Accepted::GarbageArgs);
                }
                if self.stream.is_none() {
                    self.stream = copy(cx, stream()).map(Buf::freeze);
                }
                // RFC 5531 §9 [5531-12]: a server that fails answers SYSTEM_ERR
                let stream = self.stream.as_ref().ok_or(Accepted::SystemErr)?;
                Ok(Given::Item(stream.slice(place..place + len)))
            }
            _ => Err(Accepted::ProcUnavail),
        }
    }
}

impl App for Echo {
    type Report = u64;

    fn report(&self) -> u64 {
        self.calls
    }

    fn wants_idle_passes(&self) -> bool {
        false
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        self.answer(cx, call);
    }

    #[inline(always)]
    fn on_null(&mut self, call: NullHeader) -> bool {
        let is_ours = (call.program, call.version) == (PROGRAM, VERSION);
        self.calls += u64::from(is_ours);
        is_ours
    }
}

impl Echo {
    /// Answers a call.
    #[inline(never)]
    pub(crate) fn answer(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        self.calls += 1;
        if cx.deny_other_flavor(&call) {
            return;
        }
        let (program, version) = (call.header.program, call.header.version);
        let given = match (program, version) {
            (PROGRAM, VERSION) => self.run(cx, call.header.procedure, call.arguments),
            (PROGRAM, _) => Err(Accepted::ProgMismatch { low: VERSION, high: VERSION }),
            _ if service::answer(cx, &call) => return,
            _ => Err(Accepted::ProgUnavail),
        };
        let (status, given) = given
            .map_or_else(|status| (status, Given::Nothing), |given| (Accepted::Success, given));
        let word = match &given {
            Given::Nothing => None,
            Given::Word(word) => Some(*word),
            Given::Item(item) => Some(item.len() as u32),
        };
        if status == Accepted::Success && !matches!(given, Given::Item(_)) {
            let written =
                cx.answer_short(call.id, call.header.reply(status), |to| optional(to, word));
            debug_assert_eq!(written, Ok(()), "a word fits");
            return;
        }
        let message = reply(cx, call.header.reply(status), |writer| optional(writer, word));
        let Some(message) = message else { return cx.disconnect(call.peer) };
        match given {
            Given::Item(item) => {
                let item = Some(AnswerItem::new(message.len(), item));
                cx.answer(call.id, Answer { message, item });
            }
            Given::Nothing | Given::Word(_) => cx.answer(call.id, Answer { message, item: None }),
        }
    }
}

fn copy(cx: &Cx<'_>, octets: &[u8]) -> Option<Buf> {
    let mut item = cx.take(octets.len())?;
    item.append(octets).ok()?;
    Some(item)
}

fn optional(writer: &mut Writer<'_>, word: Option<u32>) -> Result<(), NoRoom> {
    word.map_or(Ok(()), |word| writer.u32(word))
}

/// A reply with few results, without its item. None when there is no memory for it.
#[inline]
pub fn reply(
    cx: &Cx<'_>,
    header: ReplyHeader<'_>,
    write: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
) -> Option<Buf> {
    let mut message = cx.message(64)?;
    let mut writer = Writer::new(message.spare_mut());
    let written = header.emit(&mut writer).and_then(|()| write(&mut writer));
    let len = writer.len();
    debug_assert_eq!(written, Ok(()), "an echo's reply without its item has few octets");
    message.extend(len);
    Some(message)
}

/// The time that a call of a [`Caller`] may take.
const TIMEOUT: Duration = Duration::from_secs(10);

#[inline]
const fn call_header(procedure: u32) -> CallHeader<'static> {
    CallHeader {
        xid: Xid(0),
        program: PROGRAM,
        version: VERSION,
        procedure,
        credential: Credential::None,
        verifier: Auth::NONE,
    }
}

/// A call with few arguments, without its item.
#[inline]
fn request(
    cx: &Cx<'_>,
    procedure: u32,
    token: Token,
    write: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
) -> Option<Request> {
    request_of(cx, procedure, token, 0, write)
}

/// A call with few arguments and `len` octets more, without its item.
#[inline]
fn request_of(
    cx: &Cx<'_>,
    procedure: u32,
    token: Token,
    len: usize,
    write: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
) -> Option<Request> {
    let mut message = cx.message(64 + len)?;
    let mut writer = Writer::new(message.spare_mut());
    let written = call_header(procedure).emit(&mut writer).and_then(|()| write(&mut writer));
    let len = writer.len();
    debug_assert_eq!(written, Ok(()), "an echo's call without its item has few octets");
    message.extend(len);
    let (reply_max, timeout) = (ReplyHeader::REFUSAL_LEN_MAX, TIMEOUT);
    Some(Request { message, item: None, reply_max, result: None, timeout, token })
}

/// Outcome of a call of a [`Caller`].
#[derive(Debug)]
pub struct Done {
    /// As the call was made with.
    pub token: Token,
    /// The echo, or why there is none.
    pub echo: Result<Option<Room>, CallFault>,
}

/// The calling side. It keeps outcomes in order of arrival.
#[derive(Debug, Default)]
pub struct Caller {
    done: VecDeque<Done>,
    peers: Vec<PeerId>,
    broken: u64,
}

impl Caller {
    /// Makes room for outcomes, so that nothing is allocated while calls run.
    pub fn with_capacity(outcomes: usize) -> Self {
        Self { done: VecDeque::with_capacity(outcomes), ..Self::default() }
    }

    /// Calls ECHO with `octets`, or NULL without. False when there is no memory for it.
    pub fn call(cx: &mut Cx<'_>, peer: PeerId, token: Token, octets: Option<&[u8]>) -> bool {
        let Some(octets) = octets else {
            let (reply_max, timeout) = (ReplyHeader::REFUSAL_LEN_MAX, TIMEOUT);
            let request = ShortRequest { header: call_header(NULL), reply_max, timeout, token };
            return cx.call_short(peer, &request, |_| Ok(())).is_ok();
        };
        let len = octets.len() as u32;
        let Some(mut request) = request(cx, ECHO, token, |writer| writer.u32(len)) else {
            return false;
        };
        let position = request.message.len();
        let Some(item) = copy(cx, octets) else { return false };
        let Some(result) = cx.room(octets.len()) else { return false };
        request.item = Some(RequestItem { position, octets: item });
        request.result = Some(result);
        cx.call(peer, request);
        true
    }

    /// Calls REGISTER. False when there is no memory for it.
    pub fn register(cx: &mut Cx<'_>, peer: PeerId, token: Token, name: u32) -> bool {
        let request = request(cx, REGISTER, token, |writer| writer.u32(name));
        request.map(|request| cx.call(peer, request)).is_some()
    }

    /// The oldest outcome that was not taken.
    pub fn take(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    /// Peers that are up.
    pub fn peers(&self) -> &[PeerId] {
        &self.peers
    }

    /// Takes a reply that is not plain success without an echo.
    #[inline(never)]
    fn on_any_reply(&mut self, outcome: Outcome<'_>) {
        let echo = match outcome.reply {
            Ok(reply) => echo(reply, outcome.result).ok_or_else(|| {
                self.broken += 1;
                CallFault::TooLong
            }),
            Err(fault) => Err(fault),
        };
        self.done.push_back(Done { token: outcome.token, echo });
    }
}

/// The echo in a reply: it came in a Write chunk, or inline.
fn echo(reply: &[u8], result: Option<Room>) -> Option<Option<Room>> {
    let mut reader = Reader::new(reply);
    let header = ReplyHeader::parse(&mut reader).ok()?;
    if header.outcome != stag_protocol::rpc::Outcome::accepted(Accepted::Success) {
        return None;
    }
    let Some(mut result) = result else { return Some(None) };
    let len = reader.u32().ok()? as usize;
    if result.len() != len || reader.remaining() > 0 {
        let inline = reader.fixed(len).ok()?;
        if !result.replace(inline) {
            return None;
        }
    }
    reader.finish().ok()?;
    Some(Some(result))
}

impl App for Caller {
    type Report = u64;

    /// Replies that could not be understood.
    fn report(&self) -> u64 {
        self.broken
    }

    fn wants_idle_passes(&self) -> bool {
        false
    }

    #[inline(always)]
    fn on_reply(&mut self, _cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        let Outcome { token, reply: Ok(reply), item: None, result: None, .. } = outcome else {
            return self.on_any_reply(outcome);
        };
        if ReplyHeader::parse_success(&mut Reader::new(reply)).is_none() {
            return self.on_any_reply(outcome);
        }
        // None of it needs a drop, and finding that out would be a call.
        std::mem::forget(outcome);
        self.done.push_back(Done { token, echo: Ok(None) });
    }

    fn on_peer_up(&mut self, _cx: &mut Cx<'_>, peer: PeerId) {
        self.peers.push(peer);
    }

    fn on_peer_down(&mut self, _cx: &mut Cx<'_>, peer: PeerId, _cause: stag_engine::Cause) {
        self.peers.retain(|known| *known != peer);
    }
}
