//! The application of a shard: a state machine that is told of calls, replies and peers.
//!
//! One app lives in one shard, on one core. It is never called from two places at once, never
//! waits, and gives every answer and every call to its [`Cx`], which carries them out when the app
//! returns.

pub(crate) use crate::cx::Action;
pub use crate::{
    cx::{Cx, Over, Parted},
    fault::CallFault,
    room::Room,
};

#[cfg(doc)]
use crate::HEAD_ROOM;
use crate::{
    item::{Extents, MoreItems, PlacedItem, Pulled},
    options::OptionFault,
    requester::WRITTEN_MAX,
    stream::PeerSecurity,
};
use stag_pools::{Buf, table::Key};
use stag_protocol::{
    rpc::{Accepted, CallHeader, NullHeader},
    rpcrdma::{option::health::Reply as Health, responder::ITEMS_MAX},
    xdr,
};
use stag_verbs::{Cause, PeerAddress, Time};
use std::time::Duration;

/// One peer, over whatever fabric, for as long as its connection lives. One that is kept connected
/// ([`Shard::keep_connected`](crate::Shard::keep_connected)), or that was adopted ([`Cx::adopt`]),
/// outlives its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerId(pub(crate) Key);

impl PeerId {
    /// The place of the peer in its shard's table, and how often that was taken before.
    pub const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// The peer of these bits. One that is gone, or never was, names nobody.
    pub const fn from_bits(bits: u64) -> Self {
        Self(Key::from_bits(bits))
    }
}

/// The app's name of a client that comes back over another connection: whatever its upper layer
/// knows it by, such as the client ID of NFS 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientName(pub u64);

/// A peer that was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedPeer {
    /// Its address. None where nobody could be accepted.
    pub from: Option<PeerAddress>,
    /// The way by which it came.
    pub over: Over,
    /// The limit.
    pub limit: ConnectLimit,
}

/// A limit that turns peers away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectLimit {
    /// Not even one receive is left for another connection.
    Receives,
    /// All places for peers are taken.
    Peers,
    /// The fabric takes no more connections.
    Fabric,
    /// The process has no more descriptors, or the system no memory.
    Descriptors,
    /// The shard takes nobody: it stops or drains.
    Stopping,
}

impl ConnectLimit {
    /// The limit, and what to do about it.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Receives => "no receive is left for another connection: add cores (--cores)",
            Self::Peers => "all places for connections are taken: add cores (--cores)",
            Self::Fabric => "the fabric takes no more connections: add cores (--cores)",
            Self::Descriptors => "no descriptor is left: raise the limit (ulimit -n)",
            Self::Stopping => "this server takes no connections, because it stops or drains",
        }
    }
}

/// The end of a drain, or of the same when a shard stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// The time from the order until everybody was disconnected.
    pub took: Duration,
    /// Calls that got no reply.
    pub unanswered: usize,
    /// The time of [`Config::drain`](crate::Config::drain) was over before everything was done.
    pub is_cut: bool,
}

/// One call of a peer, until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId(pub(crate) Key);

/// A number of the app's own, which it finds again in the outcome of a call that it makes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// A call that arrived whole: everything it named in Read chunks was pulled.
#[derive(Debug)]
pub struct Call<'a> {
    /// Names the call in [`Cx::answer`], at once or later.
    pub id: CallId,
    /// The caller.
    pub peer: PeerId,
    /// The caller's address.
    pub from: PeerAddress,
    /// Transaction, program, version, procedure and credential.
    pub header: CallHeader<'a>,
    /// Stands at the first octet of the arguments.
    pub arguments: xdr::Reader<'a>,
    /// The arguments that came in Read chunks, for an app that keeps them.
    pub pulled: Pulled<'a>,
}

/// A reply to be sent.
#[derive(Debug)]
pub struct Answer {
    /// The RPC reply message without its item, behind [`HEAD_ROOM`]; made by [`Cx::message`].
    pub message: Buf,
    /// The results that may travel in Write chunks.
    pub item: Option<AnswerItem>,
}

/// The DDP-eligible results of a reply (RFC 8166 §3.4.2): the first one, which nearly all replies
/// that have any have alone, and those after it. Each has the Write chunk of its place.
#[derive(Debug)]
pub struct AnswerItem {
    /// Octets of the message in front of the first item; its length word is the last four of them.
    pub position: usize,
    /// The first item, without padding. If there are others, it may be empty.
    pub octets: Extents,
    /// The items after it.
    pub more: MoreItems,
}

impl AnswerItem {
    /// The only item of a reply.
    #[inline]
    pub fn new(position: usize, octets: impl Into<Extents>) -> Self {
        Self { position, octets: octets.into(), more: MoreItems::default() }
    }

    /// All items with their positions, in order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Extents)> + Clone {
        let more = self.more.iter().map(|PlacedItem { position, octets }| (*position, octets));
        std::iter::once((self.position, &self.octets)).chain(more)
    }

    /// An item by its place.
    pub(crate) fn octets_of(&self, place: usize) -> Option<&Extents> {
        self.iter().nth(place).map(|(_, octets)| octets)
    }
}

/// A call to be made.
#[derive(Debug)]
pub struct Request {
    /// The RPC call message without its item, behind [`HEAD_ROOM`]; made by [`Cx::message`]. The
    /// engine puts the XID into its first word.
    pub message: Buf,
    /// The argument that may travel in a Read chunk.
    pub item: Option<RequestItem>,
    /// Octets of the longest RPC reply message without its item.
    pub reply_max: usize,
    /// The room for the DDP-eligible result, as long as the longest result ([`Cx::room`]).
    pub result: Option<Room>,
    /// The time that the reply may take, reconnections included. After it the connection is closed:
    /// a call never goes out twice on the same one.
    pub timeout: Duration,
    /// Comes back with the outcome.
    pub token: Token,
}

/// The lengths of several rooms for results in one buffer, one after the other: each is a Write
/// chunk of its own, for the DDP-eligible result of its place. [`Cx::call_for_results`] offers
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultRooms {
    lens: [u32; ITEMS_MAX],
    count: usize,
}

impl ResultRooms {
    /// Rooms of these lengths; none when there are more than a message has Write chunks, or when
    /// they are longer than a buffer can be.
    pub fn new(lens: &[u32]) -> Option<Self> {
        let mut all = [0; ITEMS_MAX];
        all.get_mut(..lens.len())?.copy_from_slice(lens);
        lens.iter().try_fold(0_u32, |total, len| total.checked_add(*len))?;
        Some(Self { lens: all, count: lens.len() })
    }

    /// Their lengths, in order.
    pub fn lens(&self) -> &[u32] {
        self.lens.get(..self.count).unwrap_or_default()
    }

    /// Octets of all of them.
    pub(crate) fn total(&self) -> usize {
        self.lens().iter().map(|len| *len as usize).sum()
    }

    /// The places of `written` octets at the beginning of each room.
    pub(crate) fn ends<'a>(&'a self, written: &'a [u32]) -> impl Iterator<Item = usize> + 'a {
        let mut at = 0;
        self.lens().iter().zip(written).filter_map(move |(len, written)| {
            let begin = at;
            at += *len as usize;
            (*written > 0).then_some(begin + *written as usize)
        })
    }
}

/// A call to be made that is nothing but a few octets: nothing belongs to it that could travel in a
/// chunk, and its longest reply fits inline.
#[derive(Clone, Copy, Debug)]
pub struct ShortRequest<'a> {
    /// Program, procedure and credential; the engine chooses the XID.
    pub header: CallHeader<'a>,
    /// As [`Request::reply_max`].
    pub reply_max: usize,
    /// As [`Request::timeout`].
    pub timeout: Duration,
    /// As [`Request::token`].
    pub token: Token,
}

impl ShortRequest<'_> {
    /// Octets of the longest call message that can be made so.
    pub const LEN_MAX: usize = WRITTEN_MAX;
}

/// A DDP-eligible argument.
#[derive(Debug)]
pub struct RequestItem {
    /// Octets of the message in front of the item; its length word is the last four of them.
    pub position: usize,
    /// The item, without padding.
    pub octets: Buf,
}

/// The end of a call of ours. Every key that it had offered is dead.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// As in the request.
    pub token: Token,
    /// The peer that was called.
    pub peer: PeerId,
    /// The RPC reply message, without what came by a Write chunk.
    pub reply: Result<&'a [u8], CallFault>,
    /// The argument's buffer. None when a call over TCP ended while a part of it was still being
    /// sent.
    pub item: Option<Buf>,
    /// The result's room. Its content is what came in the Write chunk; empty when the result came
    /// inline. With several [rooms](ResultRooms) each is at its place, up to the last octet that
    /// came.
    pub result: Option<Room>,
    /// Octets that came in each of several [rooms](ResultRooms); empty for any other call.
    pub written: &'a [u32],
}

/// An application: it answers calls of peers, and hears of the ends of its own.
///
/// A service that counts its calls, and a client of it:
///
/// ```
/// use stag_engine::{
///     Answer, App, Call, Config, Cx, Outcome, PeerId, Request, Shard, Time, Token,
/// };
/// use stag_protocol::{
///     rpc::{Accepted, Auth, CallHeader, Credential, ReplyHeader},
///     rpcrdma::Xid,
///     xdr::{NoRoom, Reader, Writer},
/// };
/// use stag_sim::{Fabric, Faults, Port};
/// use std::{fmt, time::Duration};
///
/// const NUMBERS: u32 = 0x2000_0001;
///
/// /// A message that `write` writes.
/// fn message(
///     cx: &Cx<'_>,
///     write: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
/// ) -> Option<stag_pools::Buf> {
///     let mut message = cx.message(256)?;
///     let mut writer = Writer::new(message.spare_mut());
///     write(&mut writer).ok()?;
///     let len = writer.len();
///     message.extend(len);
///     Some(message)
/// }
///
/// #[derive(Default)]
/// struct Counter(u64);
///
/// impl App for Counter {
///     type Report = u64;
///
///     fn report(&self) -> u64 {
///         self.0
///     }
///
///     fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
///         if call.header.program != NUMBERS {
///             return cx.refuse(&call, Accepted::ProgUnavail);
///         }
///         self.0 += 1;
///         let header = call.header.reply(Accepted::Success);
///         match message(cx, |to| header.emit(to).and_then(|()| to.u64(self.0))) {
///             Some(message) => cx.answer(call.id, Answer { message, item: None }),
///             None => cx.refuse(&call, Accepted::SystemErr),
///         }
///     }
/// }
///
/// #[derive(Default)]
/// struct Client(Option<u64>);
///
/// impl Client {
///     fn count(cx: &mut Cx<'_>, peer: PeerId) -> Option<()> {
///         let header = CallHeader {
///             xid: Xid(0), // The shard chooses one.
///             program: NUMBERS,
///             version: 1,
///             procedure: 1,
///             credential: Credential::None,
///             verifier: Auth::NONE,
///         };
///         let message = message(cx, |to| header.emit(to))?;
///         let (reply_max, timeout) = (64, Duration::from_secs(10));
///         let request =
///             Request { message, item: None, reply_max, result: None, timeout, token: Token(1) };
///         cx.call(peer, request);
///         Some(())
///     }
/// }
///
/// impl App for Client {
///     type Report = ();
///
///     fn report(&self) {}
///
///     fn on_reply(&mut self, _: &mut Cx<'_>, outcome: Outcome<'_>) {
///         let mut reader = Reader::new(outcome.reply.expect("the server answers"));
///         ReplyHeader::parse(&mut reader).expect("it is a reply");
///         self.0 = reader.u64().ok();
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let fabric = Fabric::new(1, Faults::NONE);
/// let config = Config::small();
/// let end = |name| fabric.end(name, config.limits(64));
/// let mut server =
///     Shard::new(end("server"), Counter::default(), config.clone(), Box::new(|_| true))?;
/// let at = server.listen(&Port(0))?;
/// let mut client =
///     Shard::new(end("client"), Client::default(), config.clone(), Box::new(|_| true))?;
/// let peer = client.connect(&at)?;
/// client.with_app(|_, cx| Client::count(cx, peer)).expect("there is memory");
/// let mut now = Time(0);
/// while client.app().0.is_none() {
///     if !(server.pass(now) | client.pass(now)) {
///         now = fabric.next_due().expect("the reply is under way");
///     }
/// }
/// assert_eq!(client.app().0, Some(1));
/// # Ok(())
/// # }
/// ```
pub trait App {
    /// The app's counters.
    type Report: Send + 'static;

    /// The counters as they are.
    fn report(&self) -> Self::Report;

    /// The counters, with what takes too long to tell each time: for those who ask by
    /// [`Command::Detail`](crate::control::Command::Detail).
    fn detailed_report(&self) -> Self::Report {
        self.report()
    }

    /// A peer calls: one that connected to us, or one to which we connected (RFC 8167). Answer by
    /// [`Cx::answer`], in this call or later; a call that is never answered keeps its credit. An
    /// app that serves nothing need not write this.
    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        cx.refuse(&call, Accepted::ProgUnavail);
    }

    /// A peer calls procedure 0 of a program in nobody's name (AUTH_NONE), as who asks for no more
    /// than a sign of life does (RFC 5531 §12.1). If the app returns true, the shard answers with
    /// success, and that was all; else the call comes to [`on_call`](Self::on_call), as all others
    /// do and as one of these may: an app answers it there, too. It is an app's choice: a `Call` is
    /// long, and making one costs more than answering this.
    #[inline(always)]
    fn on_null(&mut self, _call: NullHeader) -> bool {
        false
    }

    /// A buffer of the app's own for `len` octets of an argument that comes in a Read chunk, which
    /// the app may then keep ([`Pulled::share`]). Asked for before the call is looked at; with none
    /// the shard's memory serves.
    fn sink(&mut self, _len: usize) -> Option<Buf> {
        None
    }

    /// A call of ours is over.
    fn on_reply(&mut self, _cx: &mut Cx<'_>, _outcome: Outcome<'_>) {}

    /// The health of a peer that [`Cx::ask_health`] asked, or the reason why it is not known.
    fn on_health(&mut self, _cx: &mut Cx<'_>, _peer: PeerId, _health: Result<Health, OptionFault>) {
    }

    /// A connection to a peer stands. If we made it, the peer can be called; if the peer did, only
    /// once [`Cx::ready`] says so.
    fn on_peer_up(&mut self, _cx: &mut Cx<'_>, _peer: PeerId) {}

    /// A peer is gone, and with it its calls that were not answered. Calls to a peer that is kept
    /// connected, or was adopted, wait for the next connection; that a connection could not be made
    /// is told here, too.
    fn on_peer_down(&mut self, _cx: &mut Cx<'_>, _peer: PeerId, _cause: Cause) {}

    /// Somebody was turned away by a limit of the shard; who is not in the list of clients, the
    /// [`Admission`](crate::Admission) tells.
    fn on_refused(&mut self, _cx: &mut Cx<'_>, _refused: RefusedPeer) {}

    /// A connection over TCP got TLS, or failed to; or a peer calls without that could have it.
    /// Nothing is told where there is no TLS (`Config::serve_tls`, `Config::call_tls`).
    fn on_security(&mut self, _cx: &mut Cx<'_>, _peer: PeerId, _security: &PeerSecurity) {}

    /// The shard drained, or did so in order to stop: everybody is disconnected.
    fn on_drained(&mut self, _drained: Drained) {}

    /// Returns true if [`on_pass_end`](Self::on_pass_end) is to be called in passes, too, in which
    /// nothing happened: because other threads leave work for the app, or time alone brings it
    /// some. An app without either spares its shard most of each pass that finds nothing; the time
    /// of [`Cx::now`] outside of a pass is then that of the latest pass which found something.
    fn wants_idle_passes(&self) -> bool {
        true
    }

    /// The time at which a shard that sleeps is to make such a pass. Without one it makes a pass a
    /// second at least. Asked for before each sleep.
    fn idle_pass_at(&self) -> Option<Time> {
        None
    }

    /// The pass is over, and nothing of what it produced has left a socket yet: the place to make
    /// records durable together. A short reply over shared memory may be with its caller already;
    /// an app that must not answer before a record is durable makes it durable before it answers.
    fn on_pass_end(&mut self, _cx: &mut Cx<'_>) {}
}
