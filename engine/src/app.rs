//! The application of a shard: a state machine that receives calls, replies and peer events.
//!
//! One app belongs to one shard, on one core. It is never called concurrently and never waits. It
//! passes every answer and every call to its [`Cx`], which carries them out when the app returns.

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

/// One peer, over any transport, for the lifetime of its connection. A peer that is kept connected
/// ([`Shard::keep_connected`](crate::Shard::keep_connected)) or was adopted ([`Cx::adopt`])
/// outlives its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerId(pub(crate) Key);

impl PeerId {
    /// The index of the peer in its shard's table, and the generation of that entry.
    pub const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// The peer with these bits. If it is gone or never existed, the ID matches no peer.
    pub const fn from_bits(bits: u64) -> Self {
        Self(Key::from_bits(bits))
    }
}

/// The app's name for a client that may reconnect: an identifier of its upper layer, such as the
/// client ID of NFS 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientName(pub u64);

/// A peer that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedPeer {
    /// Its address. None if the connection could not even be accepted.
    pub from: Option<PeerAddress>,
    /// The transport that it used.
    pub over: Over,
    /// The limit.
    pub limit: ConnectLimit,
}

/// A limit that causes peers to be refused.
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
    /// The shard accepts no peers: it stops or drains.
    Stopping,
}

impl ConnectLimit {
    /// The limit, and advice on raising it.
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

/// The result of a drain, whether ordered or part of stopping the shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// The time from the order until all peers were disconnected.
    pub took: Duration,
    /// Calls that got no reply.
    pub unanswered: usize,
    /// The time limit [`Config::drain`](crate::Config::drain) ended before all work was done.
    pub is_cut: bool,
}

/// One call of a peer, until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId(pub(crate) Key);

/// The app's own number for a call that it makes, returned in the outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// A call that arrived completely, with its Read chunks pulled.
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
    /// Positioned at the first octet of the arguments.
    pub arguments: xdr::Reader<'a>,
    /// The arguments that came in Read chunks, for an app that keeps them.
    pub pulled: Pulled<'a>,
}

/// A reply to be sent.
#[derive(Debug)]
pub struct Answer {
    /// The RPC reply message without its item, after [`HEAD_ROOM`]; made by [`Cx::message`].
    pub message: Buf,
    /// The results that may travel in Write chunks.
    pub item: Option<AnswerItem>,
}

/// The DDP-eligible results of a reply (RFC 8166 §3.4.2): the first, which is nearly always the
/// only one, and any further ones. Each goes to the Write chunk of the same index.
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

    /// An item by its index.
    pub(crate) fn octets_of(&self, place: usize) -> Option<&Extents> {
        self.iter().nth(place).map(|(_, octets)| octets)
    }
}

/// A call to be made.
#[derive(Debug)]
pub struct Request {
    /// The RPC call message without its item, after [`HEAD_ROOM`]; made by [`Cx::message`]. The
    /// engine writes the XID into its first word.
    pub message: Buf,
    /// The argument that may travel in a Read chunk.
    pub item: Option<RequestItem>,
    /// Octets of the longest RPC reply message without its item.
    pub reply_max: usize,
    /// The room for the DDP-eligible result, as long as the longest result ([`Cx::room`]).
    pub result: Option<Room>,
    /// The time that the reply may take, reconnections included. When it expires the connection is
    /// closed: a call is never repeated on the same connection.
    pub timeout: Duration,
    /// Returned with the outcome.
    pub token: Token,
}

/// The lengths of several result rooms, stored one after the other in one buffer. Each is a Write
/// chunk for the DDP-eligible result of the same index. [`Cx::call_for_results`] offers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultRooms {
    lens: [u32; ITEMS_MAX],
    count: usize,
}

impl ResultRooms {
    /// Rooms of these lengths. None if there are more than a message has Write chunks, or if they
    /// are longer than a buffer can be.
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

    /// The end offsets of `written` octets at the beginning of each room.
    pub(crate) fn ends<'a>(&'a self, written: &'a [u32]) -> impl Iterator<Item = usize> + 'a {
        let mut at = 0;
        self.lens().iter().zip(written).filter_map(move |(len, written)| {
            let begin = at;
            at += *len as usize;
            (*written > 0).then_some(begin + *written as usize)
        })
    }
}

/// A short call: it has no argument or result that could travel in a chunk, and its longest reply
/// fits inline.
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

/// The end of a call of ours. All keys that it offered have been invalidated.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// As in the request.
    pub token: Token,
    /// The peer that was called.
    pub peer: PeerId,
    /// The RPC reply message, without the octets that came in a Write chunk.
    pub reply: Result<&'a [u8], CallFault>,
    /// The argument's buffer. None if a call over TCP ended while part of the buffer was still
    /// being sent.
    pub item: Option<Buf>,
    /// The result's room. It holds the octets that came in the Write chunk, and is empty when the
    /// result came inline. With several [rooms](ResultRooms) each result is at the offset of its
    /// room, and the buffer ends at the last octet received.
    pub result: Option<Room>,
    /// Octets that came in each of several [rooms](ResultRooms); empty for any other call.
    pub written: &'a [u32],
}

/// An application: it answers calls of peers, and receives the outcomes of its own calls.
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

    /// The current counters.
    fn report(&self) -> Self::Report;

    /// The counters, including costly ones that are not collected each time: for
    /// [`Command::Detail`](crate::control::Command::Detail).
    fn detailed_report(&self) -> Self::Report {
        self.report()
    }

    /// Handles a call of a peer, either one that connected to us or one to which we connected (RFC
    /// 8167). Answer by [`Cx::answer`], in this call or later; an unanswered call keeps its credit.
    /// An app without a service need not implement this.
    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        cx.refuse(&call, Accepted::ProgUnavail);
    }

    /// Handles a call to procedure 0 with AUTH_NONE, as a ping uses it (RFC 5531 §12.1). If the app
    /// returns true, the shard replies with success and the call is complete. Otherwise the call
    /// goes to [`on_call`](Self::on_call); that can also happen without this method being asked, so
    /// the app answers procedure 0 there as well. The method exists because a `Call` is long:
    /// making one costs more than answering a ping.
    #[inline(always)]
    fn on_null(&mut self, _call: NullHeader) -> bool {
        false
    }

    /// Provides the app's own buffer for `len` octets of an argument in a Read chunk, which the app
    /// may keep afterwards ([`Pulled::share`]). Called before the call is parsed. Without a buffer
    /// the shard's memory is used.
    fn sink(&mut self, _len: usize) -> Option<Buf> {
        None
    }

    /// A call of ours is over.
    fn on_reply(&mut self, _cx: &mut Cx<'_>, _outcome: Outcome<'_>) {}

    /// The health of a peer that [`Cx::ask_health`] asked, or the reason why it is not known.
    fn on_health(&mut self, _cx: &mut Cx<'_>, _peer: PeerId, _health: Result<Health, OptionFault>) {
    }

    /// A connection to a peer is established. If we connected, the peer can be called at once; if
    /// the peer connected, only after [`Cx::ready`].
    fn on_peer_up(&mut self, _cx: &mut Cx<'_>, _peer: PeerId) {}

    /// A peer is gone, and its unanswered calls with it. Calls to a peer that is kept connected or
    /// was adopted wait for the next connection; a failed attempt to connect is reported here, too.
    fn on_peer_down(&mut self, _cx: &mut Cx<'_>, _peer: PeerId, _cause: Cause) {}

    /// A limit of the shard refused a connection. Clients that the access list refuses are reported
    /// by the [`Admission`](crate::Admission).
    fn on_refused(&mut self, _cx: &mut Cx<'_>, _refused: RefusedPeer) {}

    /// A connection over TCP negotiated TLS or failed to, or a peer that could have TLS calls
    /// without it. Not called where TLS is not configured (`Config::serve_tls`,
    /// `Config::call_tls`).
    fn on_security(&mut self, _cx: &mut Cx<'_>, _peer: PeerId, _security: &PeerSecurity) {}

    /// The shard has drained, on order or in order to stop: all peers are disconnected.
    fn on_drained(&mut self, _drained: Drained) {}

    /// Returns true if [`on_pass_end`](Self::on_pass_end) is to be called in idle passes, too,
    /// because other threads or the passage of time leave work for the app. Without idle passes the
    /// shard saves most of the cost of a pass that finds no event; [`Cx::now`] outside of a pass is
    /// then the time of the latest pass that found one.
    fn wants_idle_passes(&self) -> bool {
        true
    }

    /// The time at which a sleeping shard is to make an idle pass. Asked before each sleep; without
    /// it the shard makes a pass at least once a second.
    fn idle_pass_at(&self) -> Option<Time> {
        None
    }

    /// Ends a pass, before any of its output has left a socket: the place to make records durable
    /// together. A short reply over shared memory may have reached its caller already, so an app
    /// that must not answer before a record is durable makes it durable before it answers.
    fn on_pass_end(&mut self, _cx: &mut Cx<'_>) {}
}
