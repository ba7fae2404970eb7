//! The application of a shard: a state machine that receives calls, replies and peer events.
//!
//! One app belongs to one shard, on one core. It is never called concurrently and never waits. It
//! passes every answer and every call to its [`Cx`], which carries them out when the app returns.

pub use crate::{
    call::{
        Answer, AnswerItem, Call, CallId, CannotSign, Outcome, Request, RequestItem, ResultRooms,
        ShortRequest, SignCall, Token,
    },
    cx::Cx,
    fault::CallFault,
    peer_view::{
        ClientName, ConnectLimit, Drained, Over, Parted, PeerId, PeerSecurity, RefusedPeer,
    },
    room::Room,
};

use crate::option_fault::OptionFault;
use stag_pools::Buf;
use stag_protocol::{
    rpc::{Accepted, NullHeader},
    rpcrdma::option::health::Reply as Health,
};
use stag_verbs::{Cause, Time};

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
    /// may keep afterwards ([`Pulled::share`](crate::Pulled::share)). Called before the call is
    /// parsed. Without a buffer the shard's memory is used.
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
