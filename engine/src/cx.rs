//! The actions of an app: answers, calls, memory, and names of peers.

use crate::{
    call::{Answer, Call, CallId, Request, ResultRooms, ShortRequest, SignCall, Token},
    core::Core,
    fault::CallFault,
    peer_view::{ClientName, Over, Parted, PeerId},
    room::Room,
    short_send::SendsShort,
    stage_times::Stages,
    state::{Action, Link, NextCall, TurnHolder, WrittenCall},
};
use stag_pools::Buf;
use stag_protocol::{
    rpc::{Accepted, AuthStatus, CallHeader, Credential, Denied, ReplyHeader},
    xdr::{self, NoRoom},
};
use stag_verbs::{PeerAddress, Time};
use std::{fmt, rc::Rc};

/// The interface to the shard that an app gets in each of its methods.
pub struct Cx<'a> {
    pub(crate) core: &'a mut Core,
    fabric: &'a mut dyn SendsShort,
}

impl fmt::Debug for Cx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cx").field("now", &self.now()).finish_non_exhaustive()
    }
}

impl<'a> Cx<'a> {
    pub(crate) const fn new(core: &'a mut Core, fabric: &'a mut dyn SendsShort) -> Self {
        Self { core, fabric }
    }
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

    /// Assigns a call to an operation of its program, by which it is counted in addition to its
    /// procedure: such as the READ of a COMPOUND. `operation` runs for a watched call alone.
    #[inline]
    pub fn note_operation(&mut self, call: CallId, operation: impl FnOnce() -> Option<u32>) {
        self.core.watch.note_operation(call.0, operation);
    }

    /// The address of a peer, and the transport of its connection.
    pub fn whereabouts(&self, peer: PeerId) -> Option<(PeerAddress, Over)> {
        let peer = self.core.peers.get(peer)?;
        let over = if matches!(peer.link, Link::Stream(_)) { Over::Tcp } else { Over::Fabric };
        Some((peer.address, over))
    }

    /// Counts of the connection that just ended, for
    /// [`App::on_peer_down`](crate::App::on_peer_down).
    pub const fn parted(&self) -> Parted {
        self.core.parted
    }

    /// An empty buffer for at least `len` octets, from the smallest class that has one. During a
    /// call of a newcomer, the last quarter of the medium and large buffers is not available.
    #[inline]
    pub fn take(&self, len: usize) -> Option<Buf> {
        self.core.take_for_app(len)
    }

    /// Room for a result of up to `len` octets of a call of ours.
    #[inline]
    pub fn room(&self, len: usize) -> Option<Room> {
        let mut room = self.core.room_for_app(len)?;
        room.extend(len);
        Some(Room(room))
    }

    /// As [`take`](Self::take), for a deferred call of this peer: as during the call itself.
    pub fn take_for(&self, peer: PeerId, len: usize) -> Option<Buf> {
        self.core.take_for_peer(peer, len)
    }

    /// Returns true once the current call of this holder has used the core for long enough while
    /// clients of other hosts have work. An app that can put the call aside does so
    /// ([`put_aside`](Self::put_aside)) and continues it in a later pass. Always false without
    /// [`Config::meter`](crate::Config::meter).
    #[inline]
    pub fn is_turn_over(&mut self, holder: impl Into<TurnHolder>) -> bool {
        self.core.is_turn_over(holder.into())
    }

    /// Records that a call of this holder is put aside. If the holder is a peer of this shard, no
    /// other call of it is taken until [`take_turn`](Self::take_turn) lets it continue; the app
    /// asks for that in each [`on_pass_end`](crate::App::on_pass_end).
    pub fn put_aside(&mut self, holder: impl Into<TurnHolder>) {
        self.core.put_aside(holder.into());
    }

    /// Returns true if a call of this holder that was put aside, or that another shard has sent,
    /// may continue; [`end_turn`](Self::end_turn) must follow. A peer whose connection is gone gets
    /// a turn, too.
    pub fn take_turn(&mut self, holder: impl Into<TurnHolder>) -> bool {
        self.core.take_turn(holder.into())
    }

    /// Charges a holder for the time since [`take_turn`](Self::take_turn). For work without a turn,
    /// the time is counted from the latest charge or the beginning of
    /// [`on_pass_end`](crate::App::on_pass_end).
    pub fn end_turn(&mut self, holder: impl Into<TurnHolder>) {
        self.core.end_turn(holder.into());
    }

    /// Notes that the app did work in this pass: the shard does not go idle.
    pub const fn note_work(&mut self) {
        self.core.has_worked = true;
    }

    /// An empty message buffer with room for headers in front, and for at least `len` octets.
    #[inline]
    pub fn message(&self, len: usize) -> Option<Buf> {
        self.core.message_for_app(len)
    }

    /// Sends the reply to a call. Does nothing if the caller is gone.
    ///
    /// ```
    /// use stag_engine::{Answer, Call, Cx};
    /// use stag_protocol::{rpc::Accepted, xdr::Writer};
    ///
    /// /// Answers a call by a number.
    /// fn answer(cx: &mut Cx<'_>, call: &Call<'_>, number: u32) {
    ///     let Some(mut message) = cx.message(64) else {
    ///         return cx.refuse(call, Accepted::SystemErr);
    ///     };
    ///     let mut writer = Writer::new(message.spare_mut());
    ///     let header = call.header.reply(Accepted::Success);
    ///     let whole = header.emit(&mut writer).and_then(|()| writer.u32(number));
    ///     whole.expect("64 octets hold both");
    ///     let len = writer.len();
    ///     message.extend(len);
    ///     cx.answer(call.id, Answer { message, item: None });
    /// }
    /// ```
    #[inline]
    pub fn answer(&mut self, call: CallId, answer: Answer) {
        self.core.wishes.answer(call, answer);
    }

    /// Answers a call by `header` and results; `results` writes them directly into the send buffer.
    /// A reply to a call that arrived short is sent at once.
    ///
    /// # Errors
    /// If header and results are longer than an inline message; nothing was done.
    ///
    /// ```
    /// use stag_engine::{Call, Cx};
    /// use stag_protocol::rpc::Accepted;
    ///
    /// /// Answers a call by a number.
    /// fn answer(cx: &mut Cx<'_>, call: &Call<'_>, number: u32) {
    ///     let header = call.header.reply(Accepted::Success);
    ///     cx.answer_short(call.id, header, |results| results.u32(number)).expect("a number fits");
    /// }
    /// ```
    #[inline(always)]
    pub fn answer_short(
        &mut self,
        call: CallId,
        header: ReplyHeader<'_>,
        results: impl FnOnce(&mut xdr::Writer<'_>) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        if !self.try_answer_short(call, header, results)?
            && let Some(peer) = self.core.responder.caller(call.0)
        {
            self.core.wishes.ask(Action::EndConnection(peer));
        }
        Ok(())
    }

    /// As [`answer_short`](Self::answer_short), for an app that handles a lack of memory. Returns
    /// false if there is none for a reply that cannot be sent at once: the call is still open.
    ///
    /// # Errors
    /// As [`answer_short`](Self::answer_short).
    #[inline(always)]
    pub fn try_answer_short(
        &mut self,
        call: CallId,
        header: ReplyHeader<'_>,
        results: impl FnOnce(&mut xdr::Writer<'_>) -> Result<(), NoRoom>,
    ) -> Result<bool, NoRoom> {
        let mut writer = xdr::Writer::new(self.core.responder.room());
        header.emit(&mut writer)?;
        results(&mut writer)?;
        let len = writer.len();
        Ok(self.core.answer_at_once(self.fabric, call.0, len) || self.answer_written(call, len))
    }

    /// Answers a call by the message in the responder's room. Returns false if there is no memory
    /// for it.
    #[inline(never)]
    fn answer_written(&mut self, call: CallId, len: usize) -> bool {
        let message = self.message(len).and_then(|mut message| {
            message.append(self.core.responder.room().get(..len)?).ok()?;
            Some(message)
        });
        let Some(message) = message else { return false };
        self.answer(call, Answer { message, item: None });
        true
    }

    /// Refuses a call, by an answer without results. If there is no memory for it, the caller's
    /// connection ends; it may be re-established, as after any other end.
    pub fn refuse(&mut self, call: &Call<'_>, why: Accepted) {
        self.refuse_by(call, call.header.reply(why));
    }

    /// Denies a call with AUTH_TOOWEAK if its credential is neither AUTH_NONE nor AUTH_SYS,
    /// whatever the procedure: control messages of RPCSEC_GSS use procedure 0. Returns false for
    /// all other calls, which are still to be answered.
    pub fn deny_other_flavor(&mut self, call: &Call<'_>) -> bool {
        let is_other = matches!(call.header.credential, Credential::Other(_));
        if is_other {
            self.deny(call, AuthStatus::TOO_WEAK);
        }
        is_other
    }

    /// Denies a call because of its caller (RFC 5531 §9).
    pub fn deny(&mut self, call: &Call<'_>, status: AuthStatus) {
        self.refuse_by(call, call.header.deny(Denied::AuthError(status)));
    }

    fn refuse_by(&mut self, call: &Call<'_>, header: ReplyHeader<'_>) {
        let message = self.message(ReplyHeader::REFUSAL_LEN_MAX).and_then(|mut message| {
            let mut writer = xdr::Writer::new(message.spare_mut());
            header.emit(&mut writer).ok()?;
            let len = writer.len();
            message.extend(len);
            Some(message)
        });
        match message {
            Some(message) => self.answer(call.id, Answer { message, item: None }),
            None => self.core.wishes.ask(Action::EndConnection(call.peer)),
        }
    }

    /// Calls a peer. The outcome comes by [`crate::App::on_reply`], exactly once.
    ///
    /// A peer that connected to us is called in the reverse direction (RFC 8167) over its own
    /// connection: the call waits until [`ready`](Self::ready) was said of it, and on version 1 it
    /// ends with [`CallFault::TooLong`] unless it and its longest reply fit inline.
    ///
    /// A call to an address without a server:
    ///
    /// ```
    /// use stag_echo::Caller;
    /// use stag_engine::{CallFault, Config, Shard, Time, Token};
    /// use stag_sim::{Fabric, Faults, Port};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (fabric, config) = (Fabric::new(1, Faults::NONE), Config::small());
    /// let end = fabric.end("client", config.limits(64));
    /// let mut client = Shard::new(end, Caller::default(), config, Box::new(|_| true))?;
    /// let peer = client.connect(&Port(9))?;
    /// // Builds a request, and hands it over by `Cx::call`.
    /// client.with_app(|_, cx| Caller::call(cx, peer, Token(1), None));
    /// let done = loop {
    ///     if let Some(done) = client.with_app(|caller, _| caller.take()) {
    ///         break done;
    ///     }
    ///     if !client.pass(fabric.now()) {
    ///         client.pass(fabric.next_due().expect("the refusal is under way"));
    ///     }
    /// };
    /// assert!(matches!(done.echo, Err(CallFault::Disconnected(_))));
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn call(&mut self, peer: PeerId, request: Request) {
        self.call_any(peer, request, None);
    }

    /// Calls a peer as [`call`](Self::call) does, with room for several results: a Write chunk for
    /// each, in order (RFC 8166 §4.3.2). A result of NFS 4 is the data of a READ, or the path of a
    /// READLINK (RFC 8267 §6.4.1). The rooms are in the buffer `request.result`, one after the
    /// other.
    ///
    /// # Panics
    /// When that buffer is not as long as all rooms: that is a bug of the app.
    pub fn call_for_results(&mut self, peer: PeerId, request: Request, rooms: ResultRooms) {
        let len = request.result.as_ref().map_or(0, |result| result.len());
        assert_eq!(len, rooms.total(), "the rooms are the result's buffer");
        self.call_any(peer, request, Some(rooms));
    }

    #[inline]
    fn call_any(&mut self, peer: PeerId, request: Request, rooms: Option<ResultRooms>) {
        let mut request = Some(request);
        if self.core.wishes.may_queue(peer)
            && self.core.queue_call(peer, &mut request, rooms).is_ok()
        {
            self.core.wishes.start(peer);
        }
        // If it fails at once, the outcome is reported after the app has returned.
        if let Some(request) = request {
            self.core.wishes.ask(Action::Call(peer, request, rooms));
        }
    }

    /// Calls a peer as [`call`](Self::call) does, by a message that `signer` completes each time it
    /// is sent.
    pub fn call_signed(&mut self, peer: PeerId, request: Request, signer: Rc<dyn SignCall>) {
        let mut request = Some(request);
        let mut signer = Some(signer);
        if self.core.wishes.may_queue(peer)
            && self.core.queue_signed(peer, &mut request, &mut signer).is_ok()
        {
            self.core.wishes.start(peer);
        }
        if let (Some(request), Some(signer)) = (request, signer) {
            self.core.wishes.ask(Action::CallSigned(peer, request, signer));
        }
    }

    /// Calls a peer as [`call`](Self::call) does, by a short message; `arguments` writes directly
    /// into the send buffer. The call is sent at once if possible, and queued otherwise. No pending
    /// call may have the same token.
    ///
    /// # Errors
    /// When header and arguments do not fit [`ShortRequest::LEN_MAX`] octets; nothing was done.
    #[inline]
    pub fn call_short(
        &mut self,
        peer: PeerId,
        request: &ShortRequest<'_>,
        arguments: impl FnOnce(&mut xdr::Writer<'_>) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        let Some(NextCall { key, xid, room }) = self.core.requester.next_call() else {
            self.core.wishes.ask(Action::Fail(peer, request.token, CallFault::Limit));
            return Ok(());
        };
        let mut writer = xdr::Writer::new(room);
        CallHeader { xid, ..request.header }.emit(&mut writer)?;
        arguments(&mut writer)?;
        let len = writer.len();
        let may_go = self.core.wishes.is_empty();
        let &ShortRequest { token, reply_max, timeout, .. } = request;
        // RFC 5531 §5 [5531-2]: a call has a deadline, as its server may crash
        let deadline = self.core.now + timeout;
        // Made again on the rare path, so that the first one stays in registers.
        let call = || WrittenCall { key, xid, len, token, reply_max, deadline };
        if !may_go || !self.core.call_at_once(self.fabric, peer, call()) {
            self.core.queue_written(peer, call());
        }
        Ok(())
    }

    /// Marks a connected client ready for reverse calls; until then they queue (RFC 8167 §6).
    /// Repeat after each reconnect, when its upper layer has asked for calls.
    pub fn ready(&mut self, peer: PeerId) {
        self.core.ready(peer);
    }

    /// Gives a peer that connected to us a name by which it is recognized on a later connection.
    /// Returns the peer to call from here on: the one that got this name first.
    ///
    /// Calls to it survive its connections: queued calls, and those without a reply, wait for the
    /// next connection that is adopted under this name, until their deadline. They are sent again
    /// with the same XID (RFC 8167 §5.4). An older connection with this name is closed.
    /// [`disconnect`](Self::disconnect) ends the peer. Over TCP, calls without a reply end with
    /// their connection. A peer without a connection keeps its ID.
    ///
    /// `name` must be authenticated: the newest connection inherits pending calls, and the old one
    /// is closed. If clients do not trust each other, the app assigns it only after its upper layer
    /// has verified the client, as NFS 4 does by a client ID with its verifier and principal.
    pub fn adopt(&mut self, peer: PeerId, name: ClientName) -> PeerId {
        self.core.adopt(peer, name)
    }

    /// Cancels a call. Its outcome is [`CallFault::Cancelled`] as soon as the peer can no longer
    /// reach its memory: at once if it was not sent, otherwise with its reply, or when its deadline
    /// ends the connection (DESIGN D9).
    pub fn cancel(&mut self, peer: PeerId, call: Token) {
        self.core.wishes.ask(Action::Cancel(peer, call));
    }

    /// Ends a peer's connection permanently.
    pub fn disconnect(&mut self, peer: PeerId) {
        self.core.wishes.ask(Action::Disconnect(peer));
    }
}
