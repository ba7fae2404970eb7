//! Inbound half of a stream: every ULPDU is checked, and a refused memory access becomes a
//! Terminate.

use super::{Gate, OpenSend, OutstandingRead, ReadRequest, Stream};
use crate::iwarp::ddp::{self, Header, Tagged, Untagged};
use crate::iwarp::rdmap::{Opcode, ReadHeader, Terminate, Terminated, Violation};

/// Meaning of one ULPDU. Payload and header borrow the caller's octets.
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
    /// The peer ended the stream, and says why. Nothing may be sent any more; later octets are
    /// dropped.
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
    /// Octets to place.
    pub payload: &'a [u8],
}

/// Part of an RDMA Write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteSegment<'a> {
    /// The buffer.
    pub stag: u32,
    /// Offset in the tagged buffer at which the payload goes; `to` plus the payload's length does
    /// not wrap.
    pub to: u64,
    /// The message ends here.
    pub last: bool,
    /// Octets to place.
    pub payload: &'a [u8],
}

/// Part of the answer to our oldest Read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadResponseSegment<'a> {
    /// Token that the caller gave to [`Stream::begin_read`].
    pub token: u64,
    /// Octets of the answer before this segment.
    pub offset: u32,
    /// The Read is complete, and its place in the ORD free.
    pub last: bool,
    /// Octets to place.
    pub payload: &'a [u8],
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

impl<const IRD: usize, const ORD: usize> Stream<IRD, ORD> {
    /// Checks one ULPDU, as [`crate::iwarp::fpdu::parse`] found it. The first violation ends the
    /// stream; send its Terminate with [`Self::begin_terminate`].
    pub fn handle_ulpdu<'a>(&mut self, ulpdu: &'a [u8]) -> Result<Inbound<'a>, Violation> {
        if self.is_ended() {
            // RFC 5041 §7.1 [5041-47]: segments after an error are dropped silently
            // RFC 5044 §8 [5044-56]: nothing is delivered after an error
            return Ok(Inbound::Dropped);
        }
        // RFC 5040 §7.2 [5040-55]: every field of a DDP segment is validated
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
        // RFC 5040 §7.1 [5040-53]: a Terminate carries the headers that caused it
        inbound.map_err(|cause| Violation::of_ulpdu(cause, ulpdu))
    }

    /// Returns true if `header` is, octet for octet, that of a plain Send in one segment, the next
    /// of its queue. If its length and its CRC are right and memory accepts it, then
    /// [`handle_next_send`](Self::handle_next_send) does all that [`Self::handle_ulpdu`] would.
    #[inline]
    pub fn is_next_send(&self, header: &[u8; ddp::UNTAGGED_LEN]) -> bool {
        // RFC 5040 §7.2 [5040-55]: every field of a DDP segment is validated
        const NEXT: [u8; ddp::UNTAGGED_LEN] = Untagged {
            last: true,
            control: Opcode::Send.control(),
            invalidate: 0,
            queue: ddp::QUEUE_SEND,
            msn: 0,
            mo: 0,
        }
        .emit();
        // Its number is the only word that changes.
        let [i0, i1, i2, i3, i4, i5, i6, i7, i8, i9, n0, n1, n2, n3, o0, o1, o2, o3] = *header;
        let [k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, _, _, _, _, p0, p1, p2, p3] = NEXT;
        let is_next = u64::from_ne_bytes([i0, i1, i2, i3, i4, i5, i6, i7])
            == u64::from_ne_bytes([k0, k1, k2, k3, k4, k5, k6, k7])
            && u16::from_ne_bytes([i8, i9]) == u16::from_ne_bytes([k8, k9])
            && u32::from_be_bytes([n0, n1, n2, n3]) == self.send_msn_in
            && u32::from_ne_bytes([o0, o1, o2, o3]) == u32::from_ne_bytes([p0, p1, p2, p3]);
        let is_plain = self.gate == Gate::Open && self.open_send.is_none();
        is_next && is_plain && !self.awaits_send_rtr
    }

    /// Counts the Send for which [`is_next_send`](Self::is_next_send) was true as placed and
    /// delivered.
    #[inline]
    pub fn handle_next_send(&mut self) {
        debug_assert!(self.open_send.is_none(), "a Send in one segment is foretold between two");
        // RFC 5041 §5.3 [5041-29]: a message is delivered at most once
        self.send_msn_in = self.send_msn_in.wrapping_add(1);
    }

    /// Returns the header of an RDMA Write in one segment, if `header` begins octet for octet as
    /// that of one, and such a Write is allowed now. If its length and its CRC are right and memory
    /// accepts it, then [`Self::handle_ulpdu`] would change nothing.
    #[inline]
    pub fn whole_write(&self, header: &[u8; ddp::TAGGED_LEN]) -> Option<Tagged> {
        // RFC 5040 §7.2 [5040-55]: every field of a DDP segment is validated
        const WHOLE: [u8; ddp::TAGGED_LEN] =
            Tagged { last: true, control: Opcode::Write.control(), stag: 0, to: 0 }.emit();
        let is_plain = self.gate == Gate::Open && self.open_tagged.is_none();
        let ([first, second, ..], [ddp, rdmap, ..]) = (header, WHOLE);
        let is_whole = [*first, *second] == [ddp, rdmap] && is_plain && !self.awaits_send_rtr;
        is_whole.then(|| Tagged::parse(header))
    }

    /// Returns the Terminate for an invalid FPDU ([`crate::iwarp::fpdu::parse`]). A responder does
    /// not send it if the FPDU was the first (RFC 5044 §7.1.2).
    pub fn refuse_fpdu(&mut self, cause: Terminate) -> Violation {
        self.violated(Violation::new(cause))
    }

    /// Memory refuses a Write. RFC 5041 has no code for access rights; like siw we say that the
    /// STag is invalid.
    pub fn refuse_write(&mut self, segment: &WriteSegment<'_>, fault: TaggedFault) -> Violation {
        let header = Tagged {
            last: segment.last,
            control: Opcode::Write.control(),
            stag: segment.stag,
            to: segment.to,
        };
        self.refuse_tagged(&header, segment.payload.len(), fault)
    }

    /// Memory refuses the payload of `len` octets after the header of a Write.
    pub(super) fn refuse_tagged(
        &mut self,
        header: &Tagged,
        len: usize,
        fault: TaggedFault,
    ) -> Violation {
        let cause = match fault {
            TaggedFault::InvalidStag | TaggedFault::Access => Terminate::DDP_INVALID_STAG,
            TaggedFault::Bounds => Terminate::DDP_BOUNDS,
            TaggedFault::NotAssociated => Terminate::DDP_NOT_ASSOCIATED,
            TaggedFault::Wrap => Terminate::DDP_WRAP,
        };
        self.violated(Violation::of_segment(cause, &Header::Tagged(*header), len))
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
        self.violated(Violation::of_segment(
            cause,
            &Header::Untagged(header),
            segment.payload.len(),
        ))
    }

    /// Memory refuses the source of the Read at [`Self::next_read`], before its answer or after
    /// `done` octets of it.
    pub fn refuse_read(
        &mut self,
        request: &ReadRequest,
        done: u32,
        fault: TaggedFault,
    ) -> Violation {
        let cause = match fault {
            TaggedFault::InvalidStag => Terminate::RDMAP_INVALID_STAG,
            TaggedFault::Bounds => Terminate::RDMAP_BOUNDS,
            TaggedFault::Access => Terminate::RDMAP_ACCESS,
            TaggedFault::NotAssociated => Terminate::RDMAP_NOT_ASSOCIATED,
            TaggedFault::Wrap => Terminate::RDMAP_WRAP,
        };
        // RFC 5040 §7.1 [5040-53]: a Terminate carries the headers that caused it
        self.violated(Violation::of_read(cause, request.msn, &request.header.after(done)))
    }

    /// Ends the stream for an error of our own, with a catastrophic error (RFC 5040 §7.1).
    pub fn fail(&mut self) -> Violation {
        // RFC 5040 §7.1 [5040-52]: a local error is reported by a Terminate without headers
        self.violated(Violation::new(Terminate::RDMAP_LOCAL_CATASTROPHIC))
    }

    /// The first error is the one reported (RFC 5040 §7.1).
    pub(super) fn violated(&mut self, violation: Violation) -> Violation {
        self.gate = match self.gate {
            // Before a valid FPDU we send none, not even a Terminate (RFC 5044 §7.1.2). [5044-51]
            Gate::Ended | Gate::AwaitFpdu => Gate::Ended,
            _ => Gate::OweTerminate,
        };
        violation
    }

    pub(super) fn judge<'a>(
        &mut self,
        header: &Header,
        payload: &'a [u8],
    ) -> Result<Inbound<'a>, Terminate> {
        match header {
            Header::Tagged(header) => {
                let opcode = Opcode::parse(header.control)?;
                // A message of the other kind may not cut in.
                // RFC 5040 §7.2 [5040-56]: an opcode that is unknown or out of place is an error
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

    fn judge_untagged<'a>(
        &mut self,
        header: &Untagged,
        payload: &'a [u8],
    ) -> Result<Inbound<'a>, Terminate> {
        // RFC 5041 §7.1 [5041-37]: the queue number of an untagged segment is known
        if header.queue > ddp::QUEUE_TERMINATE {
            return Err(Terminate::DDP_INVALID_QUEUE);
        }
        let opcode = Opcode::parse(header.control)?;
        // RFC 5040 §7.2 [5040-56]: an opcode that is unknown or out of place is an error
        if opcode.is_tagged() {
            return Err(Terminate::UNEXPECTED_OPCODE);
        }
        // RFC 5041 §7.1 [5041-37]: the queue number of an untagged segment is known
        if opcode.queue() != Some(header.queue) {
            return Err(Terminate::DDP_INVALID_QUEUE);
        }
        // RFC 6581 §9.2 [6581-18]: at least one indication is supported
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
        // RFC 5041 §5.3, §7.1 [5041-30]: messages are delivered in the order they were sent
        // RFC 5041 §5.3, §7.1 [5041-41]: the message number is the next of its queue
        if header.msn != self.send_msn_in {
            let cuts_in =
                self.open_send.is_some() && header.msn == self.send_msn_in.wrapping_add(1);
            return Err(if cuts_in {
                Terminate::UNEXPECTED_OPCODE
            } else {
                Terminate::DDP_INVALID_MSN
            });
        }
        let open = self.open_send.unwrap_or(OpenSend {
            opcode,
            invalidate: header.invalidate,
            next_offset: 0,
        });
        if opcode != open.opcode {
            return Err(Terminate::UNEXPECTED_OPCODE);
        }
        if opcode.invalidates() && header.invalidate != open.invalidate {
            return Err(Terminate::RDMAP_UNSPECIFIED);
        }
        // RFC 5041 §7.1 [5041-39]: an MO continues its message
        if header.mo != open.next_offset {
            return Err(Terminate::DDP_INVALID_MO);
        }
        let len = u32::try_from(payload.len()).map_err(|_| Terminate::DDP_TOO_LONG)?;
        // RFC 5041 §5.2 [5041-22]: a message is shorter than 2^32 octets
        let next_offset = header.mo.checked_add(len).ok_or(Terminate::DDP_TOO_LONG)?;
        self.open_send = (!header.last).then_some(OpenSend { next_offset, ..open });
        if header.last {
            // RFC 5041 §5.3 [5041-29]: a message is delivered at most once
            self.send_msn_in = self.send_msn_in.wrapping_add(1);
        }
        Ok(SendSegment {
            msn: header.msn,
            offset: header.mo,
            last: header.last,
            solicited: opcode.is_solicited(),
            // RFC 5040 §4.1 [5040-9]: an STag that is not to be invalidated is zero and ignored
            // RFC 5041 §4.2, §4.3, §5.4 [5041-15]: octets of the upper layer travel unchanged
            invalidate: opcode.invalidates().then_some(header.invalidate),
            payload,
        })
    }

    fn judge_read_request<'a>(
        &mut self,
        header: &Untagged,
        payload: &[u8],
    ) -> Result<Inbound<'a>, Terminate> {
        // RFC 5040 §5.5 [5040-44]: a Read Request starts only after all messages before it
        if self.open_send.is_some() {
            return Err(Terminate::UNEXPECTED_OPCODE);
        }
        // RFC 5041 §7.1 [5041-41]: the message number is the next of its queue
        if header.msn != self.read_msn_in {
            return Err(Terminate::DDP_INVALID_MSN);
        }
        // RFC 5041 §7.1 [5041-39]: an MO continues its message
        if header.mo != 0 {
            return Err(Terminate::DDP_INVALID_MO);
        }
        let (true, Ok(octets)) = (header.last, payload.try_into()) else {
            return Err(Terminate::RDMAP_UNSPECIFIED);
        };
        let request = ReadRequest { msn: header.msn, header: ReadHeader::parse(octets) };
        // RFC 5040 §8.1.2 [5040-74]: each stream has its own places for Read Requests
        // RFC 5042 §6.4.3.3, §A [5042-17]: each stream has its own places for Read Requests
        // RFC 5042 §6.4.3.3, §A [5042-25]: upper layers share no places for Read Requests
        // RFC 5040 §5.5, §6.1 [5040-44]: a Read Request starts only after all messages before it
        // RFC 5040 §5.5, §6.1 [5040-49]: a Read Request above the IRD is refused
        if self.inbound_reads.len() >= self.ird || !self.inbound_reads.push(request) {
            return Err(Terminate::RDMAP_CATASTROPHIC_STREAM);
        }
        // RFC 5040 §5.2.1 [5040-23]: a Read Request takes one place in its queue
        self.read_msn_in = self.read_msn_in.wrapping_add(1);
        Ok(Inbound::ReadRequest)
    }

    fn judge_terminate<'a>(
        &mut self,
        header: &Untagged,
        payload: &[u8],
    ) -> Result<Inbound<'a>, Terminate> {
        // RFC 5041 §7.1 [5041-41]: the message number is the next of its queue
        if header.msn != 1 {
            return Err(Terminate::DDP_INVALID_MSN);
        }
        if header.mo != 0 {
            return Err(Terminate::DDP_INVALID_MO);
        }
        Terminated::parse(payload, self.peer)
            .map(Inbound::Terminated)
            .ok_or(Terminate::RDMAP_UNSPECIFIED)
    }

    /// The answer belongs to the oldest Read and continues where it stopped.
    fn judge_read_response<'a>(
        &mut self,
        header: &Tagged,
        payload: &'a [u8],
    ) -> Result<Inbound<'a>, Terminate> {
        // RFC 5040 §5.5 [5040-43]: read Responses are delivered in order
        let read = self.outbound_reads.front_mut().ok_or(Terminate::DDP_LOCAL_CATASTROPHIC)?;
        let offset = read.received;
        read.received = answered(read, header, payload.len())?;
        let token = read.token;
        if header.last {
            self.outbound_reads.pop();
        }
        Ok(Inbound::ReadResponse(ReadResponseSegment { token, offset, last: header.last, payload }))
    }
}

/// Octets of the answer to `read` that have arrived with this segment, if it continues it.
pub(super) fn answered(
    read: &OutstandingRead,
    header: &Tagged,
    len: usize,
) -> Result<u32, Terminate> {
    // RFC 5041 §5.2 [5041-27]: the STag and TO of an empty segment are not checked
    if len > 0 {
        // STag and TO of an empty segment "MUST NOT be checked" (RFC 5041 §5.2).
        if header.stag != read.sink_stag {
            return Err(Terminate::DDP_INVALID_STAG);
        }
        if header.to != read.sink_to.wrapping_add(u64::from(read.received)) {
            return Err(Terminate::DDP_BOUNDS);
        }
    }
    let received = u32::try_from(len).ok().and_then(|len| read.received.checked_add(len));
    received
        .filter(|received| *received <= read.len && header.last == (*received == read.len))
        .ok_or(Terminate::DDP_BOUNDS)
}

fn judge_write<'a>(header: &Tagged, payload: &'a [u8]) -> Result<Inbound<'a>, Terminate> {
    // RFC 5041 §7.1: the sum does not wrap, not even to zero. [5041-45]
    if header.to.checked_add(payload.len() as u64).is_none() {
        return Err(Terminate::DDP_WRAP);
    }
    Ok(Inbound::Write(WriteSegment {
        stag: header.stag,
        to: header.to,
        last: header.last,
        payload,
    }))
}
