//! One connection: what an incoming message is, and what each direction may still send (RFC 8166 §3.3, §4.5; RFC 8167).

use super::v1::{self, Malformed};
use super::{
    Body, ChunkLists, Direction, ErrorBody, ErrorReply, Header, InlineThreshold, NoCredit, Offer, PeerFault,
    RequesterCredits, ResponderCredits, Side, Xid, invalidate,
};

/// What one end decides before it connects or accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Who this end is.
    pub side: Side,
    /// What this end says of itself.
    pub own: Offer,
    /// What the peer said of itself; [`Offer::SILENT`] if nothing.
    pub peer: Offer,
    /// Calls that this end makes at once; zero for a side that makes none.
    pub calls_max: u32,
    /// Calls of the peer that this end takes at once; zero for a side that serves none.
    pub grant: u32,
}

/// What an incoming message is, and what to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A call. It counts as outstanding until [`Connection::handle_replied`].
    Call {
        /// Its header; its chunks are in the lists given.
        header: Header,
        /// Forward at a server.
        direction: Direction,
        /// Octets of the header: the inline payload begins there.
        payload_at: usize,
    },
    /// A reply, to be matched by its XID and judged by [`check_reply`](super::requester::check_reply).
    Reply {
        /// Its header; its chunks are in the lists given.
        header: Header,
        /// Forward at a client.
        direction: Direction,
        /// Octets of the header: the inline payload begins there.
        payload_at: usize,
    },
    /// An RDMA_ERROR: the call of this XID failed for good.
    Error {
        /// The failed call.
        xid: Xid,
        /// Why.
        error: ErrorBody,
        /// Forward at a client.
        direction: Direction,
    },
    /// A bad call: send this. It does not count as outstanding.
    Answer(ErrorReply, PeerFault),
    /// A message to forget and to count (RFC 8166 §4.5).
    Discard(PeerFault),
    /// A breach that ends the connection.
    Close(PeerFault),
}

/// The state of one connection.
#[derive(Clone, Debug)]
pub struct Connection {
    side: Side,
    own: Offer,
    peer: Offer,
    calls: Option<RequesterCredits>,
    serves: Option<ResponderCredits>,
}

/// RPC message types (RFC 5531 §9).
const CALL: u32 = 0;
const REPLY: u32 = 1;

impl Connection {
    /// A fresh connection: nothing outstanding, one credit (RFC 8166 §3.3.3).
    pub fn new(setup: Setup) -> Self {
        Self {
            side: setup.side,
            own: setup.own,
            peer: setup.peer,
            calls: (setup.calls_max > 0).then(|| RequesterCredits::new(setup.calls_max)),
            serves: (setup.grant > 0).then(|| ResponderCredits::new(setup.grant)),
        }
    }

    /// Who this end is.
    pub const fn side(&self) -> Side {
        self.side
    }

    /// Longest message that this end sends (RFC 8797 §4.2): calls and replies alike (RFC 8167 §4.2).
    pub const fn send_threshold(&self) -> InlineThreshold {
        self.own.send.threshold(self.peer.receive)
    }

    /// Longest message that the peer sends.
    pub const fn receive_threshold(&self) -> InlineThreshold {
        self.peer.send.threshold(self.own.receive)
    }

    /// The handle that the reply to a call with these lists invalidates (RFC 8797 §4.1); none unless both sides announced it,
    /// and none in the reverse direction.
    pub fn invalidates(&self, call: &ChunkLists) -> Option<u32> {
        let both = self.own.remote_invalidation && self.peer.remote_invalidation;
        if both && self.side == Side::Server { invalidate::choose(call) } else { None }
    }

    /// Takes a credit for a call of ours.
    pub fn take_credit(&mut self) -> Result<(), NoCredit> {
        self.calls.as_mut().ok_or(NoCredit)?.take()
    }

    /// Gives the credit of a call of ours back, once it is over and the peer cannot be working on it.
    ///
    /// # Panics
    /// When no call is in flight: that is a bug of ours.
    pub fn give_credit(&mut self) {
        self.calls.as_mut().expect("only a side that calls took a credit").give();
    }

    /// Credits of our calls; none for a side that makes none.
    pub const fn calls(&self) -> Option<&RequesterCredits> {
        self.calls.as_ref()
    }

    /// Credits of the peer's calls; none for a side that serves none.
    pub const fn serves(&self) -> Option<&ResponderCredits> {
        self.serves.as_ref()
    }

    /// Counts that a call of the peer got its reply or its RDMA_ERROR.
    ///
    /// # Panics
    /// When no call is outstanding: that is a bug of ours.
    pub fn handle_replied(&mut self) {
        self.serves.as_mut().expect("only a side that serves has calls").handle_reply();
    }

    /// The credits of a side that serves, to change its grant.
    pub const fn serves_mut(&mut self) -> Option<&mut ResponderCredits> {
        self.serves.as_mut()
    }

    /// The header of a call of ours.
    pub fn call_header(&self, xid: Xid, body: Body) -> Header {
        let credits = self.calls.as_ref().map(RequesterCredits::requested).unwrap_or_default();
        Header { xid, credits, body }
    }

    /// The header of a reply of ours: it carries the grant.
    pub fn reply_header(&self, xid: Xid, body: Body) -> Header {
        let credits = self.serves.as_ref().map(ResponderCredits::granted).unwrap_or_default();
        Header { xid, credits, body }
    }

    /// The RDMA_ERROR for a call that passed [`handle_message`](Self::handle_message) and then turned out impossible to serve
    /// (RFC 8166 §4.5.2, §4.5.3). Sending it is a reply: [`handle_replied`](Self::handle_replied) counts it.
    pub fn chunk_error(&self, xid: Xid) -> ErrorReply {
        self.error_reply(xid, v1::VERSION, ErrorBody::Chunk)
    }

    fn error_reply(&self, xid: Xid, version: u32, error: ErrorBody) -> ErrorReply {
        // RFC 8166 §3.3.1: no grant is zero, not even that of a side which serves nothing.
        let credits = self.serves.as_ref().map_or(super::Credits(1), ResponderCredits::granted);
        ErrorReply { xid, version, credits, error }
    }

    /// Says what `message`, one whole received Send, is. `lists` is overwritten with its chunks.
    pub fn handle_message(&mut self, message: &[u8], lists: &mut ChunkLists) -> Incoming {
        let (header, payload_at) = match v1::parse(message, lists) {
            Ok(parsed) => parsed,
            Err(malformed) => return self.handle_malformed(malformed),
        };
        let payload = message.get(payload_at..).unwrap_or_default();
        match (header.body, self.side) {
            (Body::Error(error), _) => self.handle_error(&header, error),
            (Body::Msg, _) => match message_type(payload) {
                Some((xid, CALL)) => self.handle_call(header, payload_at, lists, Some(xid)),
                Some((xid, REPLY)) if xid == header.xid => self.handle_reply(header, payload_at),
                Some((_, REPLY)) => Incoming::Discard(PeerFault::XidMismatch),
                Some((_, other)) => self.refuse(&header, PeerFault::MessageType(other)),
                None => self.refuse(&header, PeerFault::NoPayload),
            },
            // Which way an RDMA_NOMSG goes follows from the side: no chunks are taken in the reverse direction.
            (Body::NoMsg, Side::Server) => self.handle_call(header, payload_at, lists, None),
            (Body::NoMsg, Side::Client) if lists.reads().next().is_some() => {
                self.handle_call(header, payload_at, lists, None)
            }
            (Body::NoMsg, Side::Client) => self.handle_reply(header, payload_at),
        }
    }

    /// A server answers; a client takes what it cannot read for a reply (RFC 8166 §4.5).
    fn handle_malformed(&self, malformed: Malformed) -> Incoming {
        match (malformed, self.side) {
            (Malformed::Answer { xid, version, error, fault }, Side::Server) => {
                Incoming::Answer(self.error_reply(xid, version, error), fault)
            }
            (Malformed::Answer { fault, .. }, Side::Client) | (Malformed::Discard(fault), _) => {
                Incoming::Discard(fault)
            }
        }
    }

    /// An RDMA_ERROR can only be for our calls: nobody else is told of errors (RFC 8166 §4.2.4).
    fn handle_error(&mut self, header: &Header, error: ErrorBody) -> Incoming {
        let Some(calls) = &mut self.calls else { return Incoming::Discard(PeerFault::ErrorAtResponder) };
        calls.handle_grant(header.credits);
        Incoming::Error { xid: header.xid, error, direction: self.side.calls() }
    }

    fn handle_reply(&mut self, header: Header, payload_at: usize) -> Incoming {
        let Some(calls) = &mut self.calls else { return Incoming::Discard(PeerFault::UnexpectedReply) };
        calls.handle_grant(header.credits);
        Incoming::Reply { header, direction: self.side.calls(), payload_at }
    }

    /// `xid` is that of the RPC message, when it is inline.
    fn handle_call(
        &mut self,
        header: Header,
        payload_at: usize,
        lists: &ChunkLists,
        xid: Option<Xid>,
    ) -> Incoming {
        let direction = self.side.serves();
        if direction == Direction::Reverse && !lists.is_empty() {
            let reply = self.error_reply(header.xid, v1::VERSION, ErrorBody::Chunk);
            return Incoming::Answer(reply, PeerFault::ReverseChunks); // RFC 8167 §5.3
        }
        if self.serves.is_none() {
            return Incoming::Discard(PeerFault::UnexpectedCall);
        }
        if xid.is_some_and(|xid| xid != header.xid) {
            let reply = self.error_reply(header.xid, v1::VERSION, ErrorBody::Chunk);
            return Incoming::Answer(reply, PeerFault::XidMismatch);
        }
        match self.serves.as_mut().map(ResponderCredits::handle_call) {
            Some(Err(fault)) => Incoming::Close(fault),
            Some(Ok(())) | None => Incoming::Call { header, direction, payload_at },
        }
    }

    /// A message that is neither call nor reply: as one whose header cannot be read.
    fn refuse(&self, header: &Header, fault: PeerFault) -> Incoming {
        let (xid, version, error) = (header.xid, v1::VERSION, ErrorBody::Chunk);
        self.handle_malformed(Malformed::Answer { xid, version, error, fault })
    }
}

/// The XID and the message type of an RPC message (RFC 5531 §9).
fn message_type(payload: &[u8]) -> Option<(Xid, u32)> {
    let [x0, x1, x2, x3, t0, t1, t2, t3] = *payload.first_chunk()?;
    Some((Xid(u32::from_be_bytes([x0, x1, x2, x3])), u32::from_be_bytes([t0, t1, t2, t3])))
}
