//! The application of a shard: a state machine that is told of calls, replies and peers.
//!
//! One app lives in one shard, on one core. It is never called from two places at once, never waits, and gives every
//! answer and every call to its [`Cx`], which carries them out when the app returns.

use crate::{
    config::HEAD_ROOM,
    core::Core,
    item::{Extents, Pulled},
    options::HealthFault,
    peers::Link,
    stages::Stages,
};
use stag_pools::{Buf, table::Key};
use stag_protocol::{
    rpc::{Accepted, CallHeader, ReplyHeader},
    rpcrdma::{ErrorBody, option::health::Reply as Health},
    xdr,
};
use stag_verbs::{Cause, PeerAddress, Time};
use std::{fmt, time::Duration};

/// One peer, over whatever fabric, for as long as its connection lives. One that is kept connected
/// ([`Shard::keep_connected`](crate::Shard::keep_connected)), or that was adopted ([`Cx::adopt`]), outlives its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerId(pub(crate) Key);

/// The app's name of a client that comes back over another connection: whatever its upper layer knows it by, such as the client ID
/// of NFS 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientName(pub u64);

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
    /// The result that may travel in a Write chunk.
    pub item: Option<AnswerItem>,
}

/// A DDP-eligible result (RFC 8166 §3.4.2).
#[derive(Debug)]
pub struct AnswerItem {
    /// Octets of the message in front of the item; its length word is the last four of them.
    pub position: usize,
    /// The item, without padding.
    pub octets: Extents,
}

/// A call to be made.
#[derive(Debug)]
pub struct Request {
    /// The RPC call message without its item, behind [`HEAD_ROOM`]; made by [`Cx::message`]. The engine puts the XID into
    /// its first word.
    pub message: Buf,
    /// The argument that may travel in a Read chunk.
    pub item: Option<RequestItem>,
    /// Octets of the longest RPC reply message without its item.
    pub reply_max: usize,
    /// The buffer for the DDP-eligible result: its content is as long as the longest result.
    pub result: Option<Buf>,
    /// The time that the reply may take, reconnections included. After it the connection is closed: a call never goes out twice on
    /// the same one.
    pub timeout: Duration,
    /// Comes back with the outcome.
    pub token: Token,
}

/// A DDP-eligible argument.
#[derive(Debug)]
pub struct RequestItem {
    /// Octets of the message in front of the item; its length word is the last four of them.
    pub position: usize,
    /// The item, without padding.
    pub octets: Buf,
}

/// Why a call has no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// The connection ended; nobody knows whether the call was executed.
    Disconnected(Cause),
    /// No reply came in time; the connection is closed.
    TimedOut,
    /// The responder's transport refused the call (RFC 8166 §4.5).
    Refused(ErrorBody),
    /// No such peer, or it is not established.
    NoPeer,
    /// Too many calls wait already, or there is no memory for this one.
    Limit,
    /// The call cannot be expressed: it does not fit any form.
    TooLong,
    /// [`Cx::cancel`] was asked for; nobody knows whether the call was executed.
    Cancelled,
}

impl fmt::Display for CallFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disconnected(cause) => write!(f, "the connection ended: {cause}"),
            Self::TimedOut => f.write_str("no reply came in time"),
            Self::Refused(ErrorBody::Version { low, high }) => {
                write!(f, "the peer speaks RPC-over-RDMA versions {low} to {high} only")
            }
            Self::Refused(ErrorBody::Option) => f.write_str("the peer took the call for an option"),
            Self::Refused(ErrorBody::Chunk) => f.write_str("the peer could not use the call's chunks"),
            Self::NoPeer => f.write_str("not connected"),
            Self::Limit => f.write_str("too many calls wait, or memory is short"),
            Self::TooLong => f.write_str("the call does not fit any message form"),
            Self::Cancelled => f.write_str("the call was cancelled"),
        }
    }
}

impl std::error::Error for CallFault {}

/// The end of a call of ours. Every key that it had offered is dead.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// As in the request.
    pub token: Token,
    /// The peer that was called.
    pub peer: PeerId,
    /// The RPC reply message, without what came by a Write chunk.
    pub reply: Result<&'a [u8], CallFault>,
    /// The argument's buffer. None when a call over TCP ended while a part of it was still being sent.
    pub item: Option<Buf>,
    /// The result's buffer. Its content is what came in the Write chunk; empty when the result came inline.
    pub result: Option<Buf>,
}

/// An application.
pub trait App {
    /// The app's counters.
    type Report: Send + 'static;

    /// The counters as they are.
    fn report(&self) -> Self::Report;

    /// A peer calls: one that connected to us, or one to which we connected (RFC 8167). Answer by [`Cx::answer`], in this call or
    /// later; a call that is never answered keeps its credit. An app that serves nothing need not write this.
    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        cx.refuse(&call, Accepted::ProgUnavail);
    }

    /// A buffer of the app's own for `len` octets of an argument that comes in a Read chunk, which the app may then keep
    /// ([`Pulled::share`]). Asked for before the call is looked at; with none the shard's memory serves.
    fn sink(&mut self, _len: usize) -> Option<Buf> {
        None
    }

    /// A call of ours is over.
    fn on_reply(&mut self, _cx: &mut Cx<'_>, _outcome: Outcome<'_>) {}

    /// The health of a peer that [`Cx::ask_health`] asked, or the reason why it is not known.
    fn on_health(&mut self, _cx: &mut Cx<'_>, _peer: PeerId, _health: Result<Health, HealthFault>) {}

    /// A connection to a peer stands. If we made it, the peer can be called; if the peer did, only once [`Cx::ready`] says so.
    fn on_peer_up(&mut self, _cx: &mut Cx<'_>, _peer: PeerId) {}

    /// A peer is gone, and with it its calls that were not answered. Calls to a peer that is kept connected, or was adopted, wait
    /// for the next connection; that a connection could not be made is told here, too.
    fn on_peer_down(&mut self, _cx: &mut Cx<'_>, _peer: PeerId, _cause: Cause) {}

    /// The pass is over, and nothing of what it produced has left yet: the place to make records durable together.
    fn on_pass_end(&mut self, _cx: &mut Cx<'_>) {}
}

/// Over what a peer is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// RPC over RDMA, on the shard's fabric.
    Fabric,
    /// RPC over TCP.
    Tcp,
}

/// The actions of an app while it is told something.
#[derive(Debug)]
pub struct Cx<'a> {
    pub(crate) core: &'a mut Core,
}

/// Something an app asked for.
#[derive(Debug)]
pub(crate) enum Action {
    Answer(CallId, Answer),
    Call(PeerId, Request),
    /// This peer has the connection that another one had.
    Moved(PeerId),
    /// Send what waits for this peer.
    Start(PeerId),
    Cancel(PeerId, Token),
    AskHealth(PeerId),
    /// End this peer's connection, but not the peer.
    EndConnection(PeerId),
    Disconnect(PeerId),
}

impl Cx<'_> {
    /// The time of this pass.
    pub const fn now(&self) -> Time {
        self.core.now
    }

    /// The times of watched calls of peers, by stage.
    pub const fn stages(&self) -> &Stages {
        self.core.watch.stages()
    }

    /// The address of a peer, and the kind of its connection.
    pub fn whereabouts(&self, peer: PeerId) -> Option<(PeerAddress, Over)> {
        let peer = self.core.peers.get(peer)?;
        let over = if matches!(peer.link, Link::Stream(_)) { Over::Tcp } else { Over::Fabric };
        Some((peer.address, over))
    }

    /// An empty buffer for at least `len` octets, from the smallest class that has one. While the app looks at a call
    /// of a newcomer, the last quarter of the medium and large ones is not for it.
    #[inline]
    pub fn take(&self, len: usize) -> Option<Buf> {
        self.core.take_for_app(len)
    }

    /// An empty message buffer with room for headers in front, and for at least `len` octets.
    #[inline]
    pub fn message(&self, len: usize) -> Option<Buf> {
        let mut buf = self.core.take_for_app(HEAD_ROOM.checked_add(len)?)?;
        buf.reset(HEAD_ROOM);
        Some(buf)
    }

    /// Sends the reply to a call. When the caller is gone meanwhile, nothing happens.
    #[inline]
    pub fn answer(&mut self, call: CallId, answer: Answer) {
        self.core.wishes.answer(call, answer);
    }

    /// Refuses a call without results, for an answer that needs none. Without memory for it the caller's connection ends, which is
    /// made again, or may come back, as after any other end.
    pub fn refuse(&mut self, call: &Call<'_>, why: Accepted) {
        let message = self.message(ReplyHeader::REFUSAL_LEN_MAX).and_then(|mut message| {
            let mut writer = xdr::Writer::new(message.spare_mut());
            call.header.reply(why).emit(&mut writer).ok()?;
            let len = writer.len();
            message.extend(len);
            Some(message)
        });
        match message {
            Some(message) => self.answer(call.id, Answer { message, item: None }),
            None => self.core.wishes.ask(Action::EndConnection(call.peer)),
        }
    }

    /// Calls a peer. The outcome comes by [`App::on_reply`], exactly once.
    ///
    /// A peer that connected to us is called in the reverse direction (RFC 8167) over its own connection: the call waits until
    /// [`ready`](Self::ready) was said of it, and on version 1 it ends with [`CallFault::TooLong`] unless it and its longest reply
    /// fit inline.
    #[inline]
    pub fn call(&mut self, peer: PeerId, request: Request) {
        let mut request = Some(request);
        if self.core.wishes.may_queue(peer) && self.core.queue_call(peer, &mut request).is_ok() {
            self.core.wishes.start(peer);
        }
        // If it is over at once, that is told when the app has returned.
        if let Some(request) = request {
            self.core.wishes.ask(Action::Call(peer, request));
        }
    }

    /// Marks a connected client ready for reverse calls; until then they queue (RFC 8167 §6). Repeat after each reconnect, when its
    /// upper layer has asked for calls.
    pub fn ready(&mut self, peer: PeerId) {
        self.core.ready(peer);
    }

    /// Gives a peer that connected to us a name by which it is known again when it comes over another connection, and returns the
    /// peer to call from here on: the one that got this name first.
    ///
    /// Calls to it survive its connections: those that wait when a connection is lost, or that have no reply, wait for the next
    /// one that is adopted under this name, until their deadline; they go out again with the same XID (RFC 8167 §5.4). A connection
    /// that had the name before is closed. [`disconnect`](Self::disconnect) ends it. Over TCP, calls without a reply end with
    /// their connection. A peer whose connection is gone stays who it is.
    ///
    /// Whoever is given a name takes over the calls of whoever had it, and that one's connection ends. So a name is never what a
    /// client merely claims, where clients do not trust each other: the app gives it once its upper layer knows who that is, as
    /// NFS 4 does by a client ID with its verifier and principal.
    pub fn adopt(&mut self, peer: PeerId, name: ClientName) -> PeerId {
        self.core.adopt(peer, name)
    }

    /// Asks a peer about our calls: how many it grants, and how many it took and did not answer yet. [`App::on_health`]
    /// hears of it, once. Only with peers that speak version 2, one at a time; the first time it takes a credit, later it works
    /// though none is free (`docs/options/health.md`).
    pub fn ask_health(&mut self, peer: PeerId) {
        self.core.wishes.ask(Action::AskHealth(peer));
    }

    /// Gives up on a call. Its outcome is [`CallFault::Cancelled`] as soon as the peer can no longer reach its memory: at
    /// once when it was not sent, else with its reply, or when its deadline ends the connection (DESIGN D9).
    pub fn cancel(&mut self, peer: PeerId, call: Token) {
        self.core.wishes.ask(Action::Cancel(peer, call));
    }

    /// Ends a peer's connection, for good.
    pub fn disconnect(&mut self, peer: PeerId) {
        self.core.wishes.ask(Action::Disconnect(peer));
    }
}
