//! One connection: the version it speaks, and the credits of each direction (RFC 8166 §3.3; RFC
//! 8167; draft 000 §5).

use super::form::Path;
use super::negotiation::{Negotiation, Version, Version2, Versions};
use super::option::{self, Lanes, Message, NoOption, OptionName};
use super::{
    Body, ChunkLists, ErrorBody, ErrorReply, Header, InlineThreshold, Intent, MessageType,
    NoCredit, PrivateData, RequesterCredits, ResponderCredits, Side, Xid, invalidate, short, v1,
    v2,
};
use crate::xdr::NoRoom;

/// Parameters that one end fixes before it connects or accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Role of this end: client or server.
    pub side: Side,
    /// Private data of this end.
    pub own: PrivateData,
    /// Private data of the peer; [`PrivateData::SILENT`] if it sent none.
    pub peer: PrivateData,
    /// Calls that this end makes at once; zero for a side that makes none.
    pub calls_max: u32,
    /// Calls of the peer that this end accepts at once; zero for a side that serves none.
    pub grant: u32,
}

/// The way in which replies invalidate keys of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// They invalidate none.
    None,
    /// The responder chooses a key of the call: version 1, where both ends announced it (RFC 8797
    /// §4.1).
    Chosen,
    /// The call names the key: version 2 with draft 001 §4.1.
    Named,
}

/// The state of one connection. [`handle_message`](Self::handle_message) classifies incoming
/// messages.
// In this order: the fields that short messages need come first, in one cache line.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Connection {
    /// Derived from the rest, and needed for each message.
    pub(super) short: short::Layout,
    pub(super) calls: Option<RequesterCredits>,
    pub(super) serves: Option<ResponderCredits>,
    pub(super) side: Side,
    pub(super) negotiation: Negotiation,
    own: PrivateData,
    peer: PrivateData,
    pub(super) options: Lanes,
}

// With the name of its connection and the key of its place, this fills a cache line of 64 octets.
const _: () = assert!(core::mem::offset_of!(Connection, negotiation) <= Connection::SHORT_LEN);

impl Connection {
    /// Octets at the start of a connection that short messages read and write.
    pub const SHORT_LEN: usize = 40;

    /// A fresh connection of version 1: nothing outstanding, one credit (RFC 8166 §3.3.3).
    pub fn new(setup: Setup) -> Self {
        Self::speaking(setup, Versions::One)
    }

    /// A fresh connection. A client asks its [`PeerMemory`](super::PeerMemory) which versions to
    /// try.
    pub fn speaking(setup: Setup, versions: Versions) -> Self {
        let receives = setup.own.receive.threshold(setup.own.receive);
        debug_assert!(
            !versions.include_two() || receives >= InlineThreshold::DEFAULT_V2,
            "an end that speaks version 2 receives 4096 octets (draft 000 §2.3)"
        );
        let mut connection = Self {
            side: setup.side,
            own: setup.own,
            peer: setup.peer,
            negotiation: Negotiation::new(setup.side, versions),
            calls: (setup.calls_max > 0).then(|| RequesterCredits::new(setup.calls_max)),
            serves: (setup.grant > 0).then(|| ResponderCredits::new(setup.grant)),
            options: Lanes::new(),
            short: short::Layout::default(),
        };
        connection.short = short::Layout::of(&connection);
        connection
    }

    /// The same connection without [`short`] messages: each is read and written as any other.
    #[must_use]
    pub fn without_short(self) -> Self {
        Self { short: short::Layout::OFF, ..self }
    }

    /// The version that both ends keep to; `None` while it is negotiated.
    #[inline]
    pub const fn version(&self) -> Option<Version> {
        self.negotiation.settled()
    }

    /// The version of what this end sends at this moment. A server sends nothing before the version
    /// is settled.
    #[inline]
    pub const fn sends(&self) -> Version {
        self.negotiation.sends()
    }

    /// True if the peer owes the answer to the first message, and may be called by version 1 when
    /// it does not come: only time distinguishes a slow peer from one that drops what it does not
    /// understand (draft 000 §5.2).
    #[inline]
    pub const fn may_fall_back(&self) -> bool {
        self.negotiation.may_fall_back()
    }

    /// Returns true if calls of this end may carry chunks: in the reverse direction only if the
    /// header states the direction of its message (RFC 8167 §5.3, draft 001 §2.3).
    #[inline]
    pub fn calls_with_chunks(&self) -> bool {
        self.side == Side::Client || self.sends() == Version::Two(Version2::Directed)
    }

    pub(super) const fn negotiation(&self) -> &Negotiation {
        &self.negotiation
    }

    /// Role of this end: client or server.
    #[inline]
    pub const fn side(&self) -> Side {
        self.side
    }

    /// Longest message that this end sends (RFC 8797 §4.2): calls and replies alike (RFC 8167
    /// §4.2). It changes when the version is settled.
    #[inline]
    pub fn send_threshold(&self) -> InlineThreshold {
        let negotiated = self.own.send.threshold(self.peer.receive);
        match self.version() {
            // draft 000 §2.3 [v2-2]: a silent peer takes 4096 octets inline
            Some(Version::Two(_)) => negotiated.max(InlineThreshold::DEFAULT_V2),
            // The peer may speak version 1 only, and be silent (draft 000 §5).
            // draft 000 §5 [v2-9]: the first message has at most 1024 octets
            None if self.negotiation.sends() != Version::One => InlineThreshold::DEFAULT_V1,
            // draft 000 §5.2 [v2-13]: the inline threshold changes with the version
            Some(Version::One) | None => negotiated,
        }
    }

    /// Longest message that the peer sends, whatever version will be settled.
    #[inline]
    pub fn receive_threshold(&self) -> InlineThreshold {
        let negotiated = self.peer.send.threshold(self.own.receive);
        match self.version() {
            // draft 000 §2.3 [v2-1]: messages of 4096 octets can be received
            Some(Version::Two(_)) => negotiated.max(InlineThreshold::DEFAULT_V2),
            Some(Version::One) | None => negotiated,
        }
    }

    /// Returns the limits of a call that this end makes at this moment; `segments` as in [`Path`].
    pub fn path(&self, segments: usize) -> Path {
        let header = self.negotiation.sends().header_len_min();
        Path { call: self.send_threshold(), reply: self.receive_threshold(), header, segments }
    }

    /// Completes the lists of a call of ours: the fields before them, in a version that has them.
    /// Its reply may invalidate one of its keys if this end announced that it supports that. Repeat
    /// it when the call is sent again.
    pub fn mark_call(&self, lists: &mut ChunkLists) {
        lists.set_intent(match self.negotiation.sends() {
            Version::Two(Version2::Directed) => {
                // draft 001 §4.1 [reminv-1]: a call without a key to invalidate names zero
                // draft 001 §4.1 [reminv-2]: a key that may not be invalidated is never named
                // draft 001 §2.3 [reminv-12]: a server announces it for its reverse calls
                let chosen = invalidate::choose(lists).filter(|_| self.own.remote_invalidation);
                Some(Intent { message_type: MessageType::Call, inv_handle: chosen.unwrap_or(0) })
            }
            Version::One | Version::Two(Version2::Undirected) => None,
        });
    }

    /// The lists of a [`short`] call of the peer, in the version of this connection.
    pub fn empty_lists(&self) -> &'static ChunkLists {
        match self.negotiation.sends() {
            Version::Two(Version2::Directed) => ChunkLists::none_directed(),
            Version::One | Version::Two(Version2::Undirected) => ChunkLists::none(),
        }
    }

    /// Writes a header of ours, call or reply; as [`v1::emit`].
    pub fn emit(
        &self,
        header: &Header,
        lists: &ChunkLists,
        out: &mut [u8],
    ) -> Result<usize, NoRoom> {
        match self.negotiation.sends() {
            Version::One => v1::emit(header, lists, out),
            Version::Two(Version2::Directed) => v2::emit::<v2::Directed>(header, lists, out),
            Version::Two(Version2::Undirected) => v2::emit::<v2::Undirected>(header, lists, out),
        }
    }

    /// The handle that the reply to a call with these lists invalidates. In version 1 one of our
    /// choice, unless one side did not announce it (RFC 8797 §4.1), and none in the reverse
    /// direction; in version 2 the one that the call names, if it belongs to the call (draft 001
    /// §4.1). Never to be used with an error.
    pub fn invalidates(&self, call: &ChunkLists) -> Option<u32> {
        match self.negotiation.sends() {
            Version::One => {
                // RFC 8797 §4.1 [8797-5]: remote invalidation is used only if both announce it
                // draft 001 §2.1 [reminv-7]: both ends bear Send With Invalidate before it is used
                let both = self.own.remote_invalidation && self.peer.remote_invalidation;
                if both && self.side == Side::Server { invalidate::choose(call) } else { None }
            }
            Version::Two(_) => {
                let named = call.intent()?.inv_handle;
                let own = call.segments().iter().any(|segment| segment.handle == named);
                // draft 001 §4.1 [reminv-4]: the reply to a call that names zero invalidates
                // nothing
                // draft 001 §4.1 [reminv-5]: a reply invalidates the key named, if its call has it
                // draft 001 §4.1 [reminv-6]: no other key is invalidated
                (named != 0 && own).then_some(named)
            }
        }
    }

    /// The way in which replies of this end may invalidate keys of the peer; see
    /// [`invalidates`](Self::invalidates).
    pub fn invalidation(&self) -> Invalidation {
        let both = self.own.remote_invalidation && self.peer.remote_invalidation;
        match self.negotiation.sends() {
            Version::One if both && self.side == Side::Server => Invalidation::Chosen,
            Version::Two(Version2::Directed) => Invalidation::Named,
            Version::One | Version::Two(Version2::Undirected) => Invalidation::None,
        }
    }

    /// Lets a side that made no calls make up to `max` at once from here on, the first one alone as
    /// on a fresh connection; nothing changes for a side that makes calls. A server does this once
    /// its client is ready (RFC 8167 §6) and `max` receives for the replies are posted.
    pub fn allow_calls(&mut self, max: u32) {
        if self.calls.is_none() && max > 0 {
            self.calls = Some(RequesterCredits::new(max));
        }
    }

    /// Takes a credit for a call of ours. A server has none before the version is settled.
    #[inline(always)]
    pub fn take_credit(&mut self) -> Result<(), NoCredit> {
        // Where there are short messages the version is settled.
        if self.short.header_len() == 0 && self.must_not_call() {
            return Err(NoCredit);
        }
        self.calls.as_mut().ok_or(NoCredit)?.take()
    }

    /// Returns true for a server whose version is not settled.
    #[cold]
    fn must_not_call(&self) -> bool {
        self.side == Side::Server && self.version().is_none()
    }

    /// Returns the credit of a call of ours, once it is over and the peer cannot be working on it.
    ///
    /// # Panics
    /// When no call is in flight: that is a bug of ours.
    #[inline]
    pub fn give_credit(&mut self) {
        self.calls.as_mut().expect("only a side that calls took a credit").give();
    }

    /// Credits of our calls; none for a side that makes none.
    #[inline]
    pub const fn calls(&self) -> Option<&RequesterCredits> {
        self.calls.as_ref()
    }

    /// Credits of the peer's calls; none for a side that serves none.
    #[inline]
    pub const fn serves(&self) -> Option<&ResponderCredits> {
        self.serves.as_ref()
    }

    /// Counts that a call of the peer got its reply or its RDMA_ERROR. Returns true if fewer
    /// receives are reserved for its calls now.
    ///
    /// # Panics
    /// When no call is outstanding: that is a bug of ours.
    #[inline]
    pub fn handle_replied(&mut self) -> bool {
        self.serves.as_mut().expect("only a side that serves has calls").handle_reply()
    }

    /// The credits of a serving side, to change its grant.
    #[inline]
    pub const fn serves_mut(&mut self) -> Option<&mut ResponderCredits> {
        self.serves.as_mut()
    }

    /// The header of a call of ours that is sent, or sent again.
    pub fn call_header(&mut self, xid: Xid, body: Body) -> Header {
        self.negotiation.handle_call(self.side, xid);
        let credits = self.calls.as_ref().map(RequesterCredits::requested).unwrap_or_default();
        Header { xid, credits, body }
    }

    /// The header of a reply of ours: it carries the grant.
    pub fn reply_header(&self, xid: Xid, body: Body) -> Header {
        let credits = self.serves.as_ref().map(ResponderCredits::granted).unwrap_or_default();
        Header { xid, credits, body }
    }

    /// Receives that options need, beyond the receives of calls and replies: to be posted before
    /// the next option message is sent.
    pub const fn option_receives(&self) -> u32 {
        self.options.receives()
    }

    /// Reserves the sending of `request`, which [`emit_option`](Self::emit_option) then writes. No
    /// outstanding call may have the same `xid`.
    pub fn ask_option(&mut self, xid: Xid, request: &Message) -> Result<(), NoOption> {
        if !matches!(self.version(), Some(Version::Two(_))) {
            return Err(NoOption::Version);
        }
        self.options.of(request.option()).ask(xid, self.calls.as_mut())
    }

    /// The reply to the peer's `request`, which [`emit_option`](Self::emit_option) then writes. The
    /// extra receive has been posted before.
    ///
    /// # Panics
    /// When the peer did not ask: that is a bug of ours.
    pub fn answer_option(&mut self, request: &Message) -> Message {
        self.end_option(request.option(), false);
        request.answer(self).expect("only requests are answered")
    }

    /// Refuses the peer's request, for want of a receive.
    ///
    /// # Panics
    /// When the peer did not ask: that is a bug of ours.
    pub fn refuse_option(&mut self, xid: Xid, option: OptionName) -> ErrorReply {
        self.end_option(option, true);
        self.error_reply(xid, v2::VERSION, ErrorBody::Option)
    }

    fn end_option(&mut self, option: OptionName, refused: bool) {
        let serves = self.serves.as_mut().expect("only a side that serves is asked");
        self.options.of(option).handle_answered(refused, serves);
    }

    /// Writes an option message of ours.
    pub fn emit_option(
        &self,
        xid: Xid,
        message: &Message,
        out: &mut [u8],
    ) -> Result<usize, NoRoom> {
        let credits = match message.is_request() {
            true => self.calls.as_ref().map(RequesterCredits::requested),
            false => self.serves.as_ref().map(ResponderCredits::granted),
        };
        option::emit(xid, credits.unwrap_or_default(), message, out)
    }

    /// The RDMA_ERROR for a call that passed [`handle_message`](Self::handle_message) and then
    /// turned out impossible to serve (RFC 8166 §4.5.2, §4.5.3). Sending it is a reply:
    /// [`handle_replied`](Self::handle_replied) counts it.
    pub fn chunk_error(&self, xid: Xid) -> ErrorReply {
        self.error_reply(xid, self.negotiation.sends().number(), ErrorBody::Chunk)
    }

    pub(super) fn error_reply(&self, xid: Xid, version: u32, error: ErrorBody) -> ErrorReply {
        // RFC 8166 §3.3.1: no grant is zero, not even that of a side which serves nothing.
        let credits = self.serves.as_ref().map_or(super::Credits(1), ResponderCredits::granted);
        ErrorReply { xid, version, credits, error }
    }
}
