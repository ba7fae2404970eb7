//! One RDMAP stream: what comes in is judged, what goes out is segmented (RFC 5040 §5, RFC 5041 §5).
//!
//! Inbound: give every ULPDU to [`Stream::handle_ulpdu`], check the memory it names, place its payload. What memory
//! refuses goes to [`Stream::refuse_write`], [`Stream::refuse_send`] or [`Stream::refuse_read`].
//!
//! Outbound: `begin_*` an operation in the order of submission, then call [`Stream::poll_segment`] until it returns `None`.
//! Segments of two messages are not interleaved: finish one message before polling the next (siw closes otherwise).
//! A Terminate may cut in at any segment border.
//!
//! Reads: `IRD` and `ORD` are the places for inbound and outbound ones; the negotiated depths are the limits in force.

use super::ddp::{self, Header, Tagged, Untagged};
use super::fpdu::{LENGTH_LEN, MULPDU_MAX, MULPDU_MIN};
use super::mpa::{Negotiated, Rtr};
use super::octets::Octets;
use super::rdmap::{Opcode, Peer, ReadHeader, TERMINATE_MAX, Terminate, Terminated, Violation};
use super::ring::Ring;

/// Which end of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Connected, and sends first.
    Initiator,
    /// Listened.
    Responder,
}

/// What one ULPDU is. Payload and header borrow the caller's octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inbound<'a> {
    /// Part of a Send: goes into the receive of its message.
    Send(SendSegment<'a>),
    /// Part of an RDMA Write: check the STag unless it is empty (RFC 5041 §5.2), then place.
    Write(WriteSegment<'a>),
    /// A Read Request, queued; [`Stream::next_read`] shows it when its turn comes.
    ReadRequest,
    /// Part of the answer to our oldest Read; it fits and follows what came before.
    ReadResponse(ReadResponseSegment<'a>),
    /// The initiator's ready-to-receive indication was a zero-length Send: no receive is used up.
    Ready,
    /// The peer gave up, and says why. Nothing may be sent any more; what follows is dropped.
    Terminated(Terminated),
    /// The stream has ended before; nothing is placed.
    Dropped,
}

/// Part of a Send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendSegment<'a> {
    /// Number of the message in its queue.
    pub msn: u32,
    /// Octets of the message before this segment.
    pub offset: u32,
    /// The message ends here: its length is `offset` plus the payload's.
    pub last: bool,
    /// The sender asks for a solicited event.
    pub solicited: bool,
    /// The STag to invalidate before the receive completes.
    pub invalidate: Option<u32>,
    /// What to place.
    pub payload: &'a [u8],
}

/// Part of an RDMA Write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteSegment<'a> {
    /// The buffer.
    pub stag: u32,
    /// Where the payload goes in it; `to` plus the payload's length does not wrap.
    pub to: u64,
    /// The message ends here.
    pub last: bool,
    /// What to place.
    pub payload: &'a [u8],
}

/// Part of the answer to our oldest Read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadResponseSegment<'a> {
    /// What [`Stream::begin_read`] was told to remember.
    pub token: u64,
    /// Octets of the answer before this segment.
    pub offset: u32,
    /// The Read is complete, and its place in the ORD free.
    pub last: bool,
    /// What to place.
    pub payload: &'a [u8],
}

/// A Read that the peer asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadRequest {
    /// Number of the request in its queue.
    pub msn: u32,
    /// What to read, and where the answer goes. With a length of zero the source is not to be checked.
    pub header: ReadHeader,
}

/// A Read of ours that is not complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutstandingRead {
    /// Number of the request in its queue; a Terminate names it.
    pub msn: u32,
    /// What [`Stream::begin_read`] was told to remember.
    pub token: u64,
    /// Octets asked for.
    pub len: u32,
    /// Octets answered so far.
    pub received: u32,
    sink_stag: u32,
    sink_to: u64,
}

/// Why tagged memory refuses a Write, or a Read its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaggedFault {
    /// No such STag, a wrong key, or one that is not valid at present.
    InvalidStag,
    /// Outside the buffer.
    Bounds,
    /// The STag does not allow it.
    Access,
    /// Another protection domain or stream.
    NotAssociated,
    /// Offset and length wrap.
    Wrap,
}

/// Why a Send is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendFault {
    /// No receive is posted.
    NoBuffer,
    /// The message is longer than its receive.
    TooLong,
    /// The STag to invalidate does not exist.
    InvalidateUnknown,
    /// The STag to invalidate is another stream's, or of a kind that peers cannot invalidate.
    CannotInvalidate,
}

/// Why an operation cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A responder sends nothing before the first FPDU, an initiator nothing before its indication.
    Gate,
    /// As many Reads as the ORD allows are outstanding. Later operations of the queue wait behind it.
    OrdFull,
    /// The stream has ended: after a Terminate nothing is sent.
    Ended,
}

/// An operation being sent. It belongs to the stream that began it.
#[derive(Debug)]
pub struct Message {
    target: Target,
    /// Octets of payload in all.
    len: u32,
    sent: u32,
    finished: bool,
}

#[derive(Clone, Copy, Debug)]
enum Target {
    Untagged { opcode: Opcode, invalidate: u32, msn: u32 },
    Write { stag: u32, to: u64 },
    ReadResponse { stag: u32, to: u64 },
    ReadRequest { msn: u32, header: ReadHeader },
    Terminate(Violation),
}

impl Message {
    /// Octets of payload not segmented yet.
    pub const fn remaining(&self) -> u32 {
        self.len.saturating_sub(self.sent)
    }
}

const HEADER_MAX: usize = LENGTH_LEN + ddp::UNTAGGED_LEN + TERMINATE_MAX;

/// ULPDU Length, DDP header, and what RDMAP adds behind it (a Read Request header, a Terminate's payload).
pub type SegmentHeader = Octets<HEADER_MAX>;

/// One segment to be closed by [`super::fpdu::Framer::frame`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Everything before the payload.
    pub header: SegmentHeader,
    /// Octets of the operation's payload before this segment's.
    pub offset: u32,
    /// Octets of payload in this segment.
    pub len: u32,
    /// The message ends here.
    pub last: bool,
}

/// Whether we may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    /// A responder, before the first FPDU (RFC 5044 §7.1.2).
    AwaitFpdu,
    /// An initiator that owes this indication (RFC 6581 §5).
    AwaitRtr(Rtr),
    Open,
    /// A violation was found: one Terminate is due.
    OweTerminate,
    Ended,
}

/// The Send message of which segments are still to come.
#[derive(Clone, Copy, Debug)]
struct OpenSend {
    opcode: Opcode,
    invalidate: u32,
    next_offset: u32,
}

/// The state of one connection after MPA set-up.
#[derive(Clone, Debug)]
pub struct Stream<const IRD: usize, const ORD: usize> {
    gate: Gate,
    peer: Peer,
    ird: usize,
    ord: usize,
    /// The responder treats a zero-length Send as indication only when it is the very first message.
    awaits_send_rtr: bool,
    send_msn_in: u32,
    read_msn_in: u32,
    send_msn_out: u32,
    read_msn_out: u32,
    open_send: Option<OpenSend>,
    open_tagged: Option<Opcode>,
    inbound_reads: Ring<ReadRequest, IRD>,
    is_answering: bool,
    outbound_reads: Ring<OutstandingRead, ORD>,
}

impl<const IRD: usize, const ORD: usize> Stream<IRD, ORD> {
    /// A stream behind a successful set-up.
    pub fn new(negotiated: &Negotiated) -> Self {
        debug_assert!(usize::from(negotiated.ird) <= IRD, "the IRD granted has places");
        let is_responder = negotiated.side == Side::Responder;
        Self {
            gate: match (is_responder, negotiated.rtr) {
                (true, _) => Gate::AwaitFpdu,
                (false, Some(rtr)) => Gate::AwaitRtr(rtr),
                (false, None) => Gate::Open,
            },
            peer: negotiated.peer,
            ird: usize::from(negotiated.ird).min(IRD),
            ord: usize::from(negotiated.ord).min(ORD),
            awaits_send_rtr: is_responder && negotiated.rtr == Some(Rtr::Send),
            send_msn_in: 1,
            read_msn_in: 1,
            send_msn_out: 1,
            read_msn_out: 1,
            open_send: None,
            open_tagged: None,
            inbound_reads: Ring::new(),
            is_answering: false,
            outbound_reads: Ring::new(),
        }
    }

    /// Whether `begin_*` may succeed: the gate is open and the stream lives.
    pub fn may_send(&self) -> bool {
        self.gate == Gate::Open
    }

    /// Whether the stream has ended, by either side's Terminate or a violation.
    pub fn is_ended(&self) -> bool {
        matches!(self.gate, Gate::OweTerminate | Gate::Ended)
    }

    /// Our Reads that are not complete, oldest first.
    pub fn outstanding_reads(&self) -> impl Iterator<Item = &OutstandingRead> {
        self.outbound_reads.iter()
    }

    /// The Read of ours that a peer's Terminate complains about, if it is still outstanding.
    pub fn blamed_read(&self, terminated: &Terminated) -> Option<&OutstandingRead> {
        match terminated.header? {
            Header::Untagged(header) if header.queue == ddp::QUEUE_READ => {
                self.outbound_reads.iter().find(|read| read.msn == header.msn)
            }
            _ => None,
        }
    }
}

// Inbound.
impl<const IRD: usize, const ORD: usize> Stream<IRD, ORD> {
    /// Judges one ULPDU, as [`super::fpdu::parse`] found it. The first violation ends the stream; send its Terminate with
    /// [`Self::begin_terminate`].
    pub fn handle_ulpdu<'a>(&mut self, ulpdu: &'a [u8]) -> Result<Inbound<'a>, Violation> {
        if self.is_ended() {
            return Ok(Inbound::Dropped);
        }
        let inbound = match Header::parse(ulpdu) {
            Ok((header, payload)) => self.judge(&header, payload),
            Err(ddp::Error::Short) => Err(Terminate::MPA_LENGTH),
            Err(ddp::Error::TaggedVersion) => Err(Terminate::DDP_TAGGED_VERSION),
            Err(ddp::Error::UntaggedVersion) => Err(Terminate::DDP_UNTAGGED_VERSION),
        };
        match inbound {
            Ok(Inbound::Terminated(_)) => self.gate = Gate::Ended,
            Ok(_) if self.gate == Gate::AwaitFpdu => self.gate = Gate::Open,
            Ok(_) => {}
            Err(_) => self.gate = Gate::OweTerminate,
        }
        inbound.map_err(|cause| Violation::of_ulpdu(cause, ulpdu))
    }

    /// An FPDU was no FPDU ([`super::fpdu::parse`]): the Terminate to send.
    pub fn refuse_fpdu(&mut self, cause: Terminate) -> Violation {
        self.violated(Violation::new(cause))
    }

    /// Memory refuses a Write. RFC 5041 has no code for access rights; like siw we say that the STag is invalid.
    pub fn refuse_write(&mut self, segment: &WriteSegment<'_>, fault: TaggedFault) -> Violation {
        let cause = match fault {
            TaggedFault::InvalidStag | TaggedFault::Access => Terminate::DDP_INVALID_STAG,
            TaggedFault::Bounds => Terminate::DDP_BOUNDS,
            TaggedFault::NotAssociated => Terminate::DDP_NOT_ASSOCIATED,
            TaggedFault::Wrap => Terminate::DDP_WRAP,
        };
        let header = Tagged {
            last: segment.last,
            control: Opcode::Write.control(),
            stag: segment.stag,
            to: segment.to,
        };
        self.violated(Violation::of_segment(cause, &Header::Tagged(header), segment.payload.len()))
    }

    /// A receive, or the STag to invalidate, refuses a Send.
    pub fn refuse_send(&mut self, segment: &SendSegment<'_>, fault: SendFault) -> Violation {
        let cause = match fault {
            SendFault::NoBuffer => Terminate::DDP_NO_BUFFER,
            SendFault::TooLong => Terminate::DDP_TOO_LONG,
            SendFault::InvalidateUnknown => Terminate::RDMAP_INVALIDATE_UNKNOWN,
            SendFault::CannotInvalidate => Terminate::RDMAP_CANNOT_INVALIDATE,
        };
        let header = Untagged {
            last: segment.last,
            control: Opcode::send(segment.invalidate.is_some(), segment.solicited).control(),
            invalidate: segment.invalidate.unwrap_or(0),
            queue: ddp::QUEUE_SEND,
            msn: segment.msn,
            mo: segment.offset,
        };
        self.violated(Violation::of_segment(cause, &Header::Untagged(header), segment.payload.len()))
    }

    /// Memory refuses the source of the Read at [`Self::next_read`], before its answer or after `done` octets of it.
    pub fn refuse_read(&mut self, request: &ReadRequest, done: u32, fault: TaggedFault) -> Violation {
        let cause = match fault {
            TaggedFault::InvalidStag => Terminate::RDMAP_INVALID_STAG,
            TaggedFault::Bounds => Terminate::RDMAP_BOUNDS,
            TaggedFault::Access => Terminate::RDMAP_ACCESS,
            TaggedFault::NotAssociated => Terminate::RDMAP_NOT_ASSOCIATED,
            TaggedFault::Wrap => Terminate::RDMAP_WRAP,
        };
        self.violated(Violation::of_read(cause, request.msn, &request.header.after(done)))
    }

    /// We fail ourselves: the stream ends with a catastrophic error (RFC 5040 §7.1).
    pub fn fail(&mut self) -> Violation {
        self.violated(Violation::new(Terminate::RDMAP_LOCAL_CATASTROPHIC))
    }

    /// The first error wins (RFC 5040 §5.4).
    fn violated(&mut self, violation: Violation) -> Violation {
        if self.gate != Gate::Ended {
            self.gate = Gate::OweTerminate;
        }
        violation
    }

    fn judge<'a>(&mut self, header: &Header, payload: &'a [u8]) -> Result<Inbound<'a>, Terminate> {
        match header {
            Header::Tagged(header) => {
                let opcode = Opcode::parse(header.control)?;
                // A message of the other kind may not cut in.
                if !opcode.is_tagged() || self.open_tagged.is_some_and(|open| open != opcode) {
                    return Err(Terminate::UNEXPECTED_OPCODE);
                }
                self.awaits_send_rtr = false;
                let inbound = match opcode {
                    Opcode::ReadResponse => self.judge_read_response(header, payload)?,
                    _ => judge_write(header, payload)?,
                };
                self.open_tagged = (!header.last).then_some(opcode);
                Ok(inbound)
            }
            Header::Untagged(header) => self.judge_untagged(header, payload),
        }
    }

    fn judge_untagged<'a>(&mut self, header: &Untagged, payload: &'a [u8]) -> Result<Inbound<'a>, Terminate> {
        if header.queue > ddp::QUEUE_TERMINATE {
            return Err(Terminate::DDP_INVALID_QUEUE);
        }
        let opcode = Opcode::parse(header.control)?;
        if opcode.is_tagged() {
            return Err(Terminate::UNEXPECTED_OPCODE);
        }
        if opcode.queue() != Some(header.queue) {
            return Err(Terminate::DDP_INVALID_QUEUE);
        }
        let is_ready = self.awaits_send_rtr && header.last && payload.is_empty();
        self.awaits_send_rtr = false;
        match opcode {
            Opcode::ReadRequest => self.judge_read_request(header, payload),
            Opcode::Terminate => self.judge_terminate(header, payload),
            _ => {
                let segment = self.judge_send(opcode, header, payload)?;
                Ok(if is_ready { Inbound::Ready } else { Inbound::Send(segment) })
            }
        }
    }

    fn judge_send<'a>(
        &mut self,
        opcode: Opcode,
        header: &Untagged,
        payload: &'a [u8],
    ) -> Result<SendSegment<'a>, Terminate> {
        if header.msn != self.send_msn_in {
            let cuts_in = self.open_send.is_some() && header.msn == self.send_msn_in.wrapping_add(1);
            return Err(if cuts_in { Terminate::UNEXPECTED_OPCODE } else { Terminate::DDP_INVALID_MSN });
        }
        let open =
            self.open_send.unwrap_or(OpenSend { opcode, invalidate: header.invalidate, next_offset: 0 });
        if opcode != open.opcode {
            return Err(Terminate::UNEXPECTED_OPCODE);
        }
        if opcode.invalidates() && header.invalidate != open.invalidate {
            return Err(Terminate::RDMAP_UNSPECIFIED);
        }
        if header.mo != open.next_offset {
            return Err(Terminate::DDP_INVALID_MO);
        }
        let len = u32::try_from(payload.len()).map_err(|_| Terminate::DDP_TOO_LONG)?;
        let next_offset = header.mo.checked_add(len).ok_or(Terminate::DDP_TOO_LONG)?;
        self.open_send = (!header.last).then_some(OpenSend { next_offset, ..open });
        if header.last {
            self.send_msn_in = self.send_msn_in.wrapping_add(1);
        }
        Ok(SendSegment {
            msn: header.msn,
            offset: header.mo,
            last: header.last,
            solicited: opcode.is_solicited(),
            invalidate: opcode.invalidates().then_some(header.invalidate),
            payload,
        })
    }

    fn judge_read_request<'a>(
        &mut self,
        header: &Untagged,
        payload: &[u8],
    ) -> Result<Inbound<'a>, Terminate> {
        if self.open_send.is_some() {
            return Err(Terminate::UNEXPECTED_OPCODE);
        }
        if header.msn != self.read_msn_in {
            return Err(Terminate::DDP_INVALID_MSN);
        }
        if header.mo != 0 {
            return Err(Terminate::DDP_INVALID_MO);
        }
        let (true, Ok(octets)) = (header.last, payload.try_into()) else {
            return Err(Terminate::RDMAP_UNSPECIFIED);
        };
        let request = ReadRequest { msn: header.msn, header: ReadHeader::parse(octets) };
        if self.inbound_reads.len() >= self.ird || !self.inbound_reads.push(request) {
            return Err(Terminate::RDMAP_CATASTROPHIC_STREAM);
        }
        self.read_msn_in = self.read_msn_in.wrapping_add(1);
        Ok(Inbound::ReadRequest)
    }

    fn judge_terminate<'a>(&mut self, header: &Untagged, payload: &[u8]) -> Result<Inbound<'a>, Terminate> {
        if header.msn != 1 {
            return Err(Terminate::DDP_INVALID_MSN);
        }
        if header.mo != 0 {
            return Err(Terminate::DDP_INVALID_MO);
        }
        Terminated::parse(payload, self.peer).map(Inbound::Terminated).ok_or(Terminate::RDMAP_UNSPECIFIED)
    }

    /// The answer belongs to the oldest Read and continues where it stopped.
    fn judge_read_response<'a>(
        &mut self,
        header: &Tagged,
        payload: &'a [u8],
    ) -> Result<Inbound<'a>, Terminate> {
        let read = self.outbound_reads.front_mut().ok_or(Terminate::DDP_LOCAL_CATASTROPHIC)?;
        let offset = read.received;
        if !payload.is_empty() {
            // STag and TO of an empty segment "MUST NOT be checked" (RFC 5041 §5.2).
            if header.stag != read.sink_stag {
                return Err(Terminate::DDP_INVALID_STAG);
            }
            if header.to != read.sink_to.wrapping_add(u64::from(offset)) {
                return Err(Terminate::DDP_BOUNDS);
            }
        }
        let received = u32::try_from(payload.len()).ok().and_then(|len| offset.checked_add(len));
        match received {
            Some(received) if received <= read.len && header.last == (received == read.len) => {
                read.received = received;
            }
            _ => return Err(Terminate::DDP_BOUNDS),
        }
        let token = read.token;
        if header.last {
            self.outbound_reads.pop();
        }
        Ok(Inbound::ReadResponse(ReadResponseSegment { token, offset, last: header.last, payload }))
    }
}

fn judge_write<'a>(header: &Tagged, payload: &'a [u8]) -> Result<Inbound<'a>, Terminate> {
    let last_octet = (payload.len() as u64).saturating_sub(1);
    if header.to.checked_add(last_octet).is_none() {
        return Err(Terminate::DDP_WRAP);
    }
    Ok(Inbound::Write(WriteSegment { stag: header.stag, to: header.to, last: header.last, payload }))
}

// Outbound.
impl<const IRD: usize, const ORD: usize> Stream<IRD, ORD> {
    /// Begins a Send of `len` octets.
    pub fn begin_send(
        &mut self,
        len: u32,
        invalidate: Option<u32>,
        solicited: bool,
    ) -> Result<Message, Refused> {
        self.check_gate()?;
        Ok(self.send_message(len, invalidate, solicited))
    }

    /// Begins an RDMA Write of `len` octets.
    pub fn begin_write(&mut self, len: u32, stag: u32, to: u64) -> Result<Message, Refused> {
        self.check_gate()?;
        Ok(Message::new(Target::Write { stag, to }, len))
    }

    /// Begins an RDMA Read. `token` comes back with every segment of the answer.
    pub fn begin_read(&mut self, header: ReadHeader, token: u64) -> Result<Message, Refused> {
        self.check_gate()?;
        self.read_message(header, token)
    }

    /// Begins the indication that an initiator owes before anything else (RFC 6581 §9.2); `None` when it owes none.
    /// `token` comes back with the answer when the indication is a Read.
    pub fn begin_rtr(&mut self, token: u64) -> Option<Message> {
        let Gate::AwaitRtr(rtr) = self.gate else { return None };
        self.gate = Gate::Open;
        match rtr {
            Rtr::Send => Some(self.send_message(0, None, false)),
            // Some adapters treat STag 0 specially, hence 1.
            Rtr::Write => Some(Message::new(Target::Write { stag: 1, to: 0 }, 0)),
            Rtr::Read => {
                let header = ReadHeader { sink_stag: 1, source_stag: 1, ..ReadHeader::default() };
                self.read_message(header, token).ok()
            }
        }
    }

    /// The Read of the peer whose turn it is, not answered yet. Check its source (unless its length is zero), then
    /// [`Self::begin_read_response`] or [`Self::refuse_read`].
    pub fn next_read(&self) -> Option<ReadRequest> {
        self.inbound_reads.front().copied().filter(|_| !self.is_answering && !self.is_ended())
    }

    /// Begins the answer to [`Self::next_read`]; its place in the IRD is free when the last segment has been polled.
    pub fn begin_read_response(&mut self) -> Option<Message> {
        let ReadRequest { header, .. } = self.next_read()?;
        self.check_gate().ok()?;
        self.is_answering = true;
        let target = Target::ReadResponse { stag: header.sink_stag, to: header.sink_to };
        Some(Message::new(target, header.len))
    }

    /// Begins the Terminate of the first violation; `None` when one was begun or received before. Its one segment goes
    /// out even through a closed gate, and is the last.
    pub fn begin_terminate(&mut self, violation: &Violation) -> Option<Message> {
        if self.gate == Gate::Ended {
            return None;
        }
        self.gate = Gate::Ended;
        Some(Message::new(Target::Terminate(*violation), 0))
    }

    /// The next segment of `message`, its ULPDU at most `mulpdu` octets; `None` behind its last one, and for any message but
    /// the Terminate once the stream has ended.
    pub fn poll_segment(&mut self, message: &mut Message, mulpdu: u16) -> Option<Segment> {
        let is_terminate = matches!(message.target, Target::Terminate(_));
        if message.finished || (self.is_ended() && !is_terminate) {
            return None;
        }
        let segment = message.segment(mulpdu);
        if segment.last && matches!(message.target, Target::ReadResponse { .. }) {
            self.inbound_reads.pop();
            self.is_answering = false;
        }
        Some(segment)
    }

    fn check_gate(&self) -> Result<(), Refused> {
        match self.gate {
            Gate::Open => Ok(()),
            Gate::AwaitFpdu | Gate::AwaitRtr(_) => Err(Refused::Gate),
            Gate::OweTerminate | Gate::Ended => Err(Refused::Ended),
        }
    }

    fn send_message(&mut self, len: u32, invalidate: Option<u32>, solicited: bool) -> Message {
        let opcode = Opcode::send(invalidate.is_some(), solicited);
        let invalidate = invalidate.unwrap_or(0);
        let msn = take_msn(&mut self.send_msn_out);
        Message::new(Target::Untagged { opcode, invalidate, msn }, len)
    }

    fn read_message(&mut self, header: ReadHeader, token: u64) -> Result<Message, Refused> {
        let read = OutstandingRead {
            msn: self.read_msn_out,
            token,
            len: header.len,
            received: 0,
            sink_stag: header.sink_stag,
            sink_to: header.sink_to,
        };
        if self.outbound_reads.len() >= self.ord || !self.outbound_reads.push(read) {
            return Err(Refused::OrdFull);
        }
        let msn = take_msn(&mut self.read_msn_out);
        Ok(Message::new(Target::ReadRequest { msn, header }, 0))
    }
}

fn take_msn(next: &mut u32) -> u32 {
    let msn = *next;
    *next = msn.wrapping_add(1);
    msn
}

impl Message {
    const fn new(target: Target, len: u32) -> Self {
        Self { target, len, sent: 0, finished: false }
    }

    /// A message without payload is one segment, too.
    fn segment(&mut self, mulpdu: u16) -> Segment {
        let header_len = match self.target {
            Target::Write { .. } | Target::ReadResponse { .. } => ddp::TAGGED_LEN,
            _ => ddp::UNTAGGED_LEN,
        };
        let room = usize::from(mulpdu.clamp(MULPDU_MIN, MULPDU_MAX)) - header_len;
        let offset = self.sent;
        let len = self.remaining().min(room as u32); // `room <= MULPDU_MAX`
        self.sent += len;
        let last = self.sent == self.len;
        self.finished = last;
        Segment { header: self.header(offset, len, last), offset, len, last }
    }

    fn header(&self, offset: u32, len: u32, last: bool) -> SegmentHeader {
        let mut octets = SegmentHeader::of(&[&[0; LENGTH_LEN]]);
        let untagged = |opcode: Opcode, invalidate, queue, msn| {
            Untagged { last, control: opcode.control(), invalidate, queue, msn, mo: offset }.emit()
        };
        let tagged = |opcode: Opcode, stag, to: u64| {
            // A sink is the peer's own business: its offset may wrap.
            let to = to.wrapping_add(u64::from(offset));
            Tagged { last, control: opcode.control(), stag, to }.emit()
        };
        match self.target {
            Target::Untagged { opcode, invalidate, msn } => {
                octets.push(&untagged(opcode, invalidate, ddp::QUEUE_SEND, msn));
            }
            Target::Write { stag, to } => octets.push(&tagged(Opcode::Write, stag, to)),
            Target::ReadResponse { stag, to } => octets.push(&tagged(Opcode::ReadResponse, stag, to)),
            Target::ReadRequest { msn, header } => {
                octets.push(&untagged(Opcode::ReadRequest, 0, ddp::QUEUE_READ, msn));
                octets.push(&header.emit());
            }
            Target::Terminate(violation) => {
                octets.push(&untagged(Opcode::Terminate, 0, ddp::QUEUE_TERMINATE, 1));
                octets.push(violation.payload());
            }
        }
        let ulpdu_len = octets.len() - LENGTH_LEN + len as usize;
        octets.set_length(ulpdu_len as u16); // at most MULPDU_MAX
        octets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iwarp::mpa::{Config, Initiator, Request};

    fn open() -> Stream<2, 2> {
        let config = Config { rtr: None, ird: 2, ord: 2, ..Config::default() };
        let request = Initiator::new(config).request(b"");
        let request = Request::parse(&request).unwrap().unwrap();
        let mut stream = Stream::new(&request.accept(&config, b"").1);
        stream.gate = Gate::Open;
        stream
    }

    // Checklist 40: 2^32 messages take too long to send.
    #[test]
    fn message_numbers_wrap_to_zero_in_every_queue() {
        let (mut from, mut to) = (open(), open());
        for next in [&mut from.send_msn_out, &mut from.read_msn_out, &mut to.send_msn_in, &mut to.read_msn_in]
        {
            *next = u32::MAX;
        }
        for msn in [u32::MAX, 0, 1] {
            let mut message = from.begin_send(0, None, false).unwrap();
            let segment = from.poll_segment(&mut message, 128).unwrap();
            let Ok(Inbound::Send(segment)) = to.handle_ulpdu(&segment.header[2..]) else { panic!() };
            assert_eq!(segment.msn, msn);

            let mut message = from.begin_read(ReadHeader::default(), 0).unwrap();
            let segment = from.poll_segment(&mut message, 128).unwrap();
            assert_eq!(to.handle_ulpdu(&segment.header[2..]), Ok(Inbound::ReadRequest));
            assert_eq!(to.next_read().unwrap().msn, msn);
            let mut message = to.begin_read_response().unwrap();
            let segment = to.poll_segment(&mut message, 128).unwrap();
            assert!(matches!(from.handle_ulpdu(&segment.header[2..]), Ok(Inbound::ReadResponse(_))));
        }
    }

    #[test]
    fn a_message_longer_than_the_offset_can_say_is_too_long() {
        let mut stream = open();
        let opcode = Opcode::Send;
        stream.open_send = Some(OpenSend { opcode, invalidate: 0, next_offset: u32::MAX - 1 });
        let header = Untagged {
            last: false,
            control: opcode.control(),
            invalidate: 0,
            queue: ddp::QUEUE_SEND,
            msn: 1,
            mo: u32::MAX - 1,
        };
        let one = Octets::<20>::of(&[&header.emit(), b"x"]);
        assert!(matches!(stream.clone().handle_ulpdu(&one), Ok(Inbound::Send(_))));
        let two = Octets::<20>::of(&[&header.emit(), b"xy"]);
        assert_eq!(stream.handle_ulpdu(&two).unwrap_err().terminate, Terminate::DDP_TOO_LONG);
    }
}
