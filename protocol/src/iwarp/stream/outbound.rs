//! Outbound half of a stream: operations begin in the order of submission and come out as segments.

use super::{Gate, OutstandingRead, ReadRequest, Stream};
use crate::iwarp::ddp::{self, Tagged, Untagged};
use crate::iwarp::fpdu::{LENGTH_LEN, MULPDU_MAX, MULPDU_MIN};
use crate::iwarp::mpa::Rtr;
use crate::iwarp::octets::Octets;
use crate::iwarp::rdmap::{Opcode, ReadHeader, TERMINATE_MAX, Violation};

/// Why an operation cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A responder sends nothing before the first FPDU, an initiator nothing before its indication.
    Gate,
    /// As many Reads as the ORD allows are outstanding. Later operations of the queue wait for one
    /// to end.
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

/// The STag of indications, which names nothing. Some adapters treat STag 0 specially.
const RTR_STAG: u32 = 1;

const HEADER_MAX: usize = LENGTH_LEN + ddp::UNTAGGED_LEN + TERMINATE_MAX;

/// ULPDU Length and DDP header of a Send that is one segment.
pub type SendHeader = [u8; LENGTH_LEN + ddp::UNTAGGED_LEN];

/// ULPDU Length and DDP header of an RDMA Write that is one segment.
pub type WriteHeader = [u8; LENGTH_LEN + ddp::TAGGED_LEN];

/// ULPDU Length, DDP header, and the RDMAP part that follows (a Read Request header, a Terminate's
/// payload).
pub type SegmentHeader = Octets<HEADER_MAX>;

/// One segment to be closed by [`crate::iwarp::fpdu::Framer::frame`].
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

    /// A whole Send of one segment, as the caller has checked: its payload is `len` octets. Returns
    /// the octets before the payload.
    pub fn send_at_once(
        &mut self,
        len: u16,
        invalidate: Option<u32>,
    ) -> Result<SendHeader, Refused> {
        self.check_gate()?;
        // RFC 5040 §4.1 [5040-3]: a Send with Invalidate carries the STag to invalidate
        // RFC 5041 §4.3 [5041-18]: all segments of a message carry the same queue number
        let header = Untagged {
            last: true,
            control: Opcode::send(invalidate.is_some(), false).control(),
            // RFC 5040 §4.1 [5040-9]: an STag that is not to be invalidated is zero and ignored
            invalidate: invalidate.unwrap_or(0),
            queue: ddp::QUEUE_SEND,
            msn: take_msn(&mut self.send_msn_out),
            mo: 0,
        };
        let [d0, d1, d2, d3, d4, d5, d6, d7, d8, d9, d10, d11, d12, d13, d14, d15, d16, d17] =
            header.emit();
        let [l0, l1] = len.saturating_add(ddp::UNTAGGED_LEN as u16).to_be_bytes();
        Ok([l0, l1, d0, d1, d2, d3, d4, d5, d6, d7, d8, d9, d10, d11, d12, d13, d14, d15, d16, d17])
    }

    /// A whole RDMA Write of one segment, likewise.
    pub fn write_at_once(&self, len: u16, stag: u32, to: u64) -> Result<WriteHeader, Refused> {
        self.check_gate()?;
        // RFC 5040 §4.1, §5.1 [5040-4]: only Writes and Read Responses are tagged
        let header = Tagged { last: true, control: Opcode::Write.control(), stag, to };
        let [d0, d1, d2, d3, d4, d5, d6, d7, d8, d9, d10, d11, d12, d13] = header.emit();
        let [l0, l1] = len.saturating_add(ddp::TAGGED_LEN as u16).to_be_bytes();
        Ok([l0, l1, d0, d1, d2, d3, d4, d5, d6, d7, d8, d9, d10, d11, d12, d13])
    }

    /// Begins an RDMA Read. `token` comes back with every segment of the answer.
    pub fn begin_read(&mut self, header: ReadHeader, token: u64) -> Result<Message, Refused> {
        self.check_gate()?;
        self.read_message(header, token)
    }

    /// Begins the indication that an initiator owes before anything else (RFC 6581 §9.2); `None`
    /// when it owes none. `token` comes back with the answer when the indication is a Read.
    pub fn begin_rtr(&mut self, token: u64) -> Option<Message> {
        let Gate::AwaitRtr(rtr) = self.gate else { return None };
        self.gate = Gate::Open;
        match rtr {
            Rtr::Send => Some(self.send_message(0, None, false)),
            Rtr::Write => Some(Message::new(Target::Write { stag: RTR_STAG, to: 0 }, 0)),
            Rtr::Read => {
                let header = ReadHeader {
                    sink_stag: RTR_STAG,
                    source_stag: RTR_STAG,
                    ..ReadHeader::default()
                };
                self.read_message(header, token).ok()
            }
        }
    }

    /// Begins the indication by Write once more. To a peer that had the first it is a Write like
    /// any other: of no octets, so that no peer checks its STag (RFC 5041 §5.2).
    pub fn repeat_rtr(&mut self) -> Result<Message, Refused> {
        self.begin_write(0, RTR_STAG, 0)
    }

    /// The Read of the peer whose turn it is, not answered yet. Check its source (unless its length
    /// is zero), then [`Self::begin_read_response`] or [`Self::refuse_read`].
    pub fn next_read(&self) -> Option<ReadRequest> {
        // RFC 5040 §5.2.1 [5040-25]: read Requests are answered in order of arrival
        self.inbound_reads.front().copied().filter(|_| !self.is_answering && !self.is_ended())
    }

    /// Begins the answer to [`Self::next_read`]; its place in the IRD is free when the last segment
    /// has been polled.
    pub fn begin_read_response(&mut self) -> Option<Message> {
        // RFC 5040 §5.2.2, §5.5 [5040-33]: responses leave in the order of their Requests
        let ReadRequest { header, .. } = self.next_read()?;
        self.check_gate().ok()?;
        self.is_answering = true;
        // RFC 5040 §4.4 [5040-11]: a Read Response uses sink STag and TO of its Request
        let target = Target::ReadResponse { stag: header.sink_stag, to: header.sink_to };
        // RFC 5040 §5.2.1 [5040-30]: an empty Read gets an empty Response
        Some(Message::new(target, header.len))
    }

    /// Begins the Terminate of the first violation; `None` when one was begun or received before,
    /// or the violation is an invalid first FPDU. Its one segment goes out even before an
    /// initiator's indication, and is the last.
    pub fn begin_terminate(&mut self, violation: &Violation) -> Option<Message> {
        // RFC 5040 §7.1 [5040-54]: only the first of several errors is reported
        if self.gate == Gate::Ended {
            return None;
        }
        // RFC 5040 §5.4 [5040-40]: a Terminate has its place, whatever else is short
        self.gate = Gate::Ended;
        Some(Message::new(Target::Terminate(*violation), 0))
    }

    /// The next segment of `message`, its ULPDU at most `mulpdu` octets. Returns `None` after the
    /// last one, and for any message but the Terminate once the stream has ended.
    pub fn poll_segment(&mut self, message: &mut Message, mulpdu: u16) -> Option<Segment> {
        let is_terminate = matches!(message.target, Target::Terminate(_));
        // RFC 5040 §5.4 [5040-42]: nothing is sent after a Terminate
        // RFC 5041 §3 [5041-5]: nothing is sent on a stream that failed
        if message.finished || (self.is_ended() && !is_terminate) {
            return None;
        }
        let segment = message.segment(mulpdu);
        if segment.last && matches!(message.target, Target::ReadResponse { .. }) {
            // RFC 5040 §5.2 [5040-22]: a Read is one Request and one Response
            self.inbound_reads.pop();
            self.is_answering = false;
        }
        Some(segment)
    }

    fn check_gate(&self) -> Result<(), Refused> {
        match self.gate {
            Gate::Open => Ok(()),
            Gate::AwaitFpdu | Gate::AwaitRtr(_) => Err(Refused::Gate),
            // RFC 5040 §5.4 [5040-42]: nothing is sent after a Terminate
            Gate::OweTerminate | Gate::Ended => Err(Refused::Ended),
        }
    }

    fn send_message(&mut self, len: u32, invalidate: Option<u32>, solicited: bool) -> Message {
        let opcode = Opcode::send(invalidate.is_some(), solicited);
        // RFC 5040 §4.1 [5040-9]: an STag that is not to be invalidated is zero and ignored
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
        // RFC 5040 §6.1 [5040-48]: outstanding Read Requests keep to the ORD
        if self.outbound_reads.len() >= self.ord || !self.outbound_reads.push(read) {
            return Err(Refused::OrdFull);
        }
        // RFC 5040 §5.2.1 [5040-23]: a Read Request takes one place in its queue
        let msn = take_msn(&mut self.read_msn_out);
        Ok(Message::new(Target::ReadRequest { msn, header }, 0))
    }
}

fn take_msn(next: &mut u32) -> u32 {
    let msn = *next;
    // RFC 5041 §4.3 [5041-19]: message numbers start at 1, rise by one and wrap to 0
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
        // RFC 5041 §3 [5041-1]: the largest segment follows the MULPDU of the moment
        // RFC 5044 §3 [5044-5]: no ULPDU is longer than 64,768 octets
        let room = usize::from(mulpdu.clamp(MULPDU_MIN, MULPDU_MAX)) - header_len;
        let offset = self.sent;
        let len = self.remaining().min(room as u32); // `room <= MULPDU_MAX` [5041-21]
        // RFC 5041 §5.2 [5041-23]: all octets of a message are sent
        self.sent += len;
        // RFC 5041 §4.1 [5041-9]: only the last segment of a message has flag L
        let last = self.sent == self.len;
        // RFC 5041 §5.2 [5041-26]: a message without payload is exactly one segment
        self.finished = last;
        Segment { header: self.header(offset, len, last), offset, len, last }
    }

    fn header(&self, offset: u32, len: u32, last: bool) -> SegmentHeader {
        // RFC 5040 §3.1, §6.1 [5040-1]: each RDMA message travels in DDP segments
        let mut octets = SegmentHeader::of(&[&[0; LENGTH_LEN]]);
        let untagged = |opcode: Opcode, invalidate, queue, msn| {
            // RFC 5041 §4.2, §4.3, §5.4, §5.2 [5041-15]: octets of the upper layer travel unchanged
            // RFC 5041 §4.2, §4.3, §5.4, §5.2 [5041-20]: an MO is the offset of the segment in its
            // message
            Untagged { last, control: opcode.control(), invalidate, queue, msn, mo: offset }.emit()
        };
        let tagged = |opcode: Opcode, stag, to: u64| {
            // The sink is the peer's responsibility: its offset may wrap.
            // RFC 5041 §5.2 [5041-25]: a TO is the first TO of the message plus the offset
            let to = to.wrapping_add(u64::from(offset));
            // RFC 5041 §4.2 [5041-16]: all segments of a message carry the same STag
            Tagged { last, control: opcode.control(), stag, to }.emit()
        };
        match self.target {
            Target::Untagged { opcode, invalidate, msn } => {
                // RFC 5040 §4.1 [5040-3]: a Send with Invalidate carries the STag to invalidate
                // RFC 5041 §4.3 [5041-18]: all segments of a message carry the same queue number
                octets.push(&untagged(opcode, invalidate, ddp::QUEUE_SEND, msn));
            }
            // RFC 5040 §4.1, §5.1 [5040-4]: only Writes and Read Responses are tagged
            Target::Write { stag, to } => octets.push(&tagged(Opcode::Write, stag, to)),
            // RFC 5040 §5.2.2 [5040-34]: one Read Response goes to one tagged buffer
            Target::ReadResponse { stag, to } => {
                octets.push(&tagged(Opcode::ReadResponse, stag, to))
            }
            Target::ReadRequest { msn, header } => {
                octets.push(&untagged(Opcode::ReadRequest, 0, ddp::QUEUE_READ, msn));
                octets.push(&header.emit());
            }
            Target::Terminate(violation) => {
                // RFC 5040 §4.1, §5.2.1, §5.3, §5.4 [5040-6]: sends use queue 0, Read Requests 1,
                // the Terminate 2
                octets.push(&untagged(Opcode::Terminate, 0, ddp::QUEUE_TERMINATE, 1));
                octets.push(violation.payload());
            }
        }
        let ulpdu_len = octets.len() - LENGTH_LEN + len as usize;
        octets.set_length(ulpdu_len as u16); // at most MULPDU_MAX
        octets
    }
}
