//! Classification of incoming messages (RFC 8166 §4.5; RFC 8167; draft 000 §3.1, §5).

use super::negotiation::{Verdict, Version, Version2};
use super::option::{self, Message, OptionName};
use super::{
    Body, ChunkLists, Connection, Direction, ErrorBody, ErrorReply, Header, MessageType, PeerFault,
    ResponderCredits, Side, Xid, short, v1, v1::Malformed, v2,
};

/// Meaning of an incoming message, and the response to it.
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
    /// A reply, to be matched by its XID and checked by
    /// [`check_reply`](super::requester::check_reply).
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
    /// The peer does not speak version 2: send the call of this XID again, as version 1, on the
    /// same connection. It keeps its credit, and its keys are as it offered them. Use
    /// [`Connection::mark_call`], [`Connection::call_header`], [`Connection::emit`].
    Again {
        /// The call; the only one outstanding.
        xid: Xid,
    },
    /// A message of an option. A request is answered by [`Connection::answer_option`], after
    /// [`Connection::option_receives`] are posted; an answer belongs to the request of
    /// [`Connection::ask_option`].
    Option {
        /// XID of the exchange.
        xid: Xid,
        /// Content of the option message.
        message: Message,
    },
    /// The peer does not know the option that [`Connection::ask_option`] requested with this XID,
    /// or could not read the request.
    OptionRefused {
        /// XID of the exchange.
        xid: Xid,
        /// The option that was asked for.
        option: OptionName,
    },
    /// A bad call: send this. It does not count as outstanding.
    Answer(ErrorReply, PeerFault),
    /// A message to forget and to count (RFC 8166 §4.5).
    Discard(PeerFault),
    /// A breach that ends the connection.
    Close(PeerFault),
}

/// RPC message types (RFC 5531 §9).
pub(super) const CALL: u32 = 0;
pub(super) const REPLY: u32 = 1;

impl Connection {
    /// Classifies `message`, one whole received Send. `lists` is overwritten with its chunks.
    pub fn handle_message(&mut self, message: &[u8], lists: &mut ChunkLists) -> Incoming {
        let (settled, is_over) = (self.negotiation.settled(), self.negotiation.is_over());
        let incoming = self.handle_any(message, lists, settled);
        if !is_over {
            self.short = short::Layout::of(self);
        }
        incoming
    }

    fn handle_any(
        &mut self,
        message: &[u8],
        lists: &mut ChunkLists,
        settled: Option<Version>,
    ) -> Incoming {
        let version =
            settled.unwrap_or_else(|| self.negotiation.reads(self.side, version_word(message)));
        let parsed = match version {
            Version::One => v1::parse(message, lists),
            Version::Two(Version2::Directed) => v2::parse::<v2::Directed>(message, lists),
            Version::Two(Version2::Undirected) => v2::parse::<v2::Undirected>(message, lists),
        };
        let (header, payload_at) = match parsed {
            Ok(parsed) => parsed,
            Err(malformed) => return self.handle_malformed(malformed, lists),
        };
        if let Body::Error(error) = header.body {
            return self.handle_error(&header, error);
        }
        if settled.is_none() {
            self.negotiation.handle_read(self.side, version);
        }
        let payload = message.get(payload_at..).unwrap_or_default();
        // What the header says; version 1 says nothing.
        let said = lists.intent().map(|intent| intent.message_type);
        match (header.body, said) {
            (Body::Msg, _) => self.handle_inline(header, payload, payload_at, lists),
            (Body::NoMsg, Some(MessageType::Call)) => {
                self.handle_call(header, payload_at, lists, None)
            }
            (Body::NoMsg, Some(MessageType::Reply)) => self.handle_reply(header, payload_at),
            // The direction follows from the side: no chunks are accepted in the reverse direction.
            (Body::NoMsg, None) if self.side == Side::Server || lists.reads().next().is_some() => {
                self.handle_call(header, payload_at, lists, None)
            }
            (Body::NoMsg, None) => self.handle_reply(header, payload_at),
            (Body::Optional { opttype, len }, _) => {
                let info = message
                    .get(v2::OPTION_AT..)
                    .and_then(|info| info.get(..usize::try_from(len).ok()?));
                self.handle_option(header.xid, opttype, info.unwrap_or_default(), payload.len())
            }
            (Body::Error(_), _) => Incoming::Discard(PeerFault::ErrorAtResponder),
        }
    }

    /// RDMA_MSG: the RPC message says whether it is a call or a reply; a header that states the
    /// type has to agree.
    fn handle_inline(
        &mut self,
        header: Header,
        payload: &[u8],
        payload_at: usize,
        lists: &ChunkLists,
    ) -> Incoming {
        let said = lists.intent().map(|intent| intent.message_type);
        match (message_type(payload), said) {
            (Some((xid, CALL)), None | Some(MessageType::Call)) => {
                self.handle_call(header, payload_at, lists, Some(xid))
            }
            (Some((xid, REPLY)), None | Some(MessageType::Reply)) if xid == header.xid => {
                self.handle_reply(header, payload_at)
            }
            (Some((_, REPLY)), None | Some(MessageType::Reply)) => {
                Incoming::Discard(PeerFault::XidMismatch)
            }
            (Some((_, CALL | REPLY)), _) => self.refuse(&header, lists, PeerFault::TypeMismatch),
            (Some((_, other)), _) => self.refuse(&header, lists, PeerFault::MessageType(other)),
            // draft 000 §4.2 [v2-5]: an RDMA_MSG has a payload after its header
            (None, _) => self.refuse(&header, lists, PeerFault::NoPayload),
        }
    }

    /// Answers a call, and drops a possible reply (RFC 8166 §4.5). If the header does not say which
    /// it is, the side decides: a server receives calls.
    fn handle_malformed(&self, malformed: Malformed, lists: &ChunkLists) -> Incoming {
        let (xid, version, error, fault) = match malformed {
            Malformed::Answer { xid, version, error, fault } => (xid, version, error, fault),
            Malformed::Discard(fault) => return Incoming::Discard(fault),
        };
        // draft 000 §3.1 [v2-3]: either end refuses an option
        if let PeerFault::BadOption(opttype) | PeerFault::UnknownOption(opttype) = fault {
            return match option::is_reply(opttype) {
                true => Incoming::Discard(fault),
                false => Incoming::Answer(self.error_reply(xid, version, error), fault),
            };
        }
        let (error, call) = match (error, lists.intent()) {
            (ErrorBody::Version { .. }, _) => {
                // RFC 8166 §4.5.1 [8166-51]: an unknown version gets ERR_VERS with the range
                // draft 000 §5.2 [v2-10]: an unknown version gets ERR_VERS with our range
                let (low, high) = self.negotiation.range();
                (ErrorBody::Version { low, high }, self.side == Side::Server)
            }
            (other, Some(intent)) => (other, intent.message_type == MessageType::Call),
            (other, None) => (other, self.side == Side::Server),
        };
        // RFC 8166 §4.2.4, §4.5, §4.6.1 [8166-34]: a requester sends no RDMA_ERROR
        // RFC 8166 §4.2.4, §4.5, §4.6.1 [8166-46]: a reply with a wrong header is discarded
        // RFC 8166 §4.2.4, §4.5, §4.6.1 [8166-58]: a requester discards RDMA_MSGP
        if call {
            // RFC 8166 §4.5 [8166-45]: a call with a wrong header gets an RDMA_ERROR
            // draft 004 §7.2.1.1 [exp-44]: headers are checked, and each fault has its answer
            Incoming::Answer(self.error_reply(xid, version, error), fault)
        } else {
            Incoming::Discard(fault)
        }
    }

    /// An RDMA_ERROR can only be for our calls: errors are sent to requesters only (RFC 8166
    /// §4.2.4).
    fn handle_error(&mut self, header: &Header, error: ErrorBody) -> Incoming {
        let (xid, direction) = (header.xid, self.side.calls());
        // In any case: nothing else will arrive for this XID.
        if let Some(option) = self.options.handle_refusal(xid, self.calls.as_mut()) {
            return Incoming::OptionRefused { xid, option };
        }
        // RFC 8166 §4.2.4 [8166-35]: a responder discards an RDMA_ERROR
        let Some(calls) = &mut self.calls else {
            return Incoming::Discard(PeerFault::ErrorAtResponder);
        };
        // Until the first message is answered there is one credit, whatever an error says (draft
        // 000 §5).
        // draft 000 §5 [v2-8]: one credit until a reply other than an error arrives
        if self.negotiation.is_over() {
            calls.handle_grant(header.credits);
        }
        let verdict = match error {
            ErrorBody::Version { low, high } => self.negotiation.handle_err_vers(xid, low, high),
            ErrorBody::Chunk | ErrorBody::Option => self.negotiation.handle_error(xid),
        };
        match verdict {
            Verdict::Again => Incoming::Again { xid },
            Verdict::Failed => Incoming::Error { xid, error, direction },
        }
    }

    fn handle_reply(&mut self, header: Header, payload_at: usize) -> Incoming {
        let Some(calls) = &mut self.calls else {
            return Incoming::Discard(PeerFault::UnexpectedReply);
        };
        self.negotiation.handle_reply(header.xid);
        if self.negotiation.settled().is_some() {
            calls.handle_grant(header.credits);
        }
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
        // RFC 8167 §5.3 [8167-8]: a reverse call with chunks gets ERR_CHUNK
        // draft 002 §5.3 [bidir-8]: a reverse call with chunks gets ERR_CHUNK
        if direction == Direction::Reverse && lists.intent().is_none() && !lists.is_empty() {
            return Incoming::Answer(self.chunk_error(header.xid), PeerFault::ReverseChunks);
        }
        if self.serves.is_none() {
            return Incoming::Discard(PeerFault::UnexpectedCall);
        }
        // RFC 8166 §4.2.1 [8166-31]: the header has the XID of its RPC message
        if xid.is_some_and(|xid| xid != header.xid) {
            return Incoming::Answer(self.chunk_error(header.xid), PeerFault::XidMismatch);
        }
        match self.serves.as_mut().map(ResponderCredits::handle_call) {
            Some(Err(fault)) => Incoming::Close(fault),
            // draft 000 §4.2 [v2-7]: the reverse direction is supported
            Some(Ok(())) | None => {
                self.negotiation.handle_called();
                Incoming::Call { header, direction, payload_at }
            }
        }
    }

    /// An RDMA_OPTIONAL carries no direction: its type says whether it asks or answers. Its credit
    /// word is not used (RFC 8167 §4.1).
    fn handle_option(
        &mut self,
        xid: Xid,
        opttype: u32,
        info: &[u8],
        payload_len: usize,
    ) -> Incoming {
        // RFC 8167 §4.1 [8167-1]: the credits of a message without direction are ignored
        // draft 002 §4.1 [bidir-1]: the credits of a message without direction are ignored
        let (error, fault) = match option::parse(opttype, info, payload_len) {
            Ok(message) if message.is_request() => match &mut self.serves {
                Some(serves) => match self.options.of(message.option()).handle_request(serves) {
                    Ok(()) => return Incoming::Option { xid, message },
                    Err(fault) => return Incoming::Close(fault),
                },
                // An end that accepts no calls has no receive for this either.
                None => (ErrorBody::Option, PeerFault::UnknownOption(opttype)),
            },
            Ok(message) => {
                let lane = self.options.of(message.option());
                return match lane.handle_answer(xid, false, self.calls.as_mut()) {
                    true => Incoming::Option { xid, message },
                    false => Incoming::Discard(PeerFault::UnexpectedOption(opttype)),
                };
            }
            Err(fault) if option::is_reply(opttype) => return Incoming::Discard(fault),
            // draft 000 §3.1 [v2-3]: an unknown option gets INVAL_OPTION
            Err(fault @ PeerFault::UnknownOption(_)) => (ErrorBody::Option, fault),
            Err(fault) => (ErrorBody::Chunk, fault),
        };
        Incoming::Answer(self.error_reply(xid, v2::VERSION, error), fault)
    }

    /// Refuses a message that is neither call nor reply, or both, like one with an unreadable
    /// header.
    fn refuse(&self, header: &Header, lists: &ChunkLists, fault: PeerFault) -> Incoming {
        let (xid, version) = (header.xid, self.negotiation.sends().number());
        self.handle_malformed(
            Malformed::Answer { xid, version, error: ErrorBody::Chunk, fault },
            lists,
        )
    }
}

/// The second word of a message.
fn version_word(message: &[u8]) -> Option<u32> {
    message.get(4..)?.first_chunk().map(|octets| u32::from_be_bytes(*octets))
}

/// The XID and the message type of an RPC message (RFC 5531 §9).
pub(super) fn message_type(payload: &[u8]) -> Option<(Xid, u32)> {
    let [x0, x1, x2, x3, t0, t1, t2, t3] = *payload.first_chunk()?;
    Some((Xid(u32::from_be_bytes([x0, x1, x2, x3])), u32::from_be_bytes([t0, t1, t2, t3])))
}
