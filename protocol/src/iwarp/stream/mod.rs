//! One RDMAP stream: inbound segments are checked, outbound messages are segmented (RFC 5040 §5,
//! RFC 5041 §5).
//!
//! Inbound: give every ULPDU to [`Stream::handle_ulpdu`], check the memory it names, place its
//! payload. Report refused accesses to [`Stream::refuse_write`], [`Stream::refuse_send`] or
//! [`Stream::refuse_read`]. A long tagged segment may be checked by its header first, and placed
//! while it arrives: [`Stream::foresee`].
//!
//! Outbound: `begin_*` an operation in the order of submission, then call [`Stream::poll_segment`]
//! until it returns `None`. Segments of two messages are not interleaved: finish one message before
//! polling the next (siw closes otherwise). A Terminate may cut in at any segment border.
//!
//! Reads: `IRD` and `ORD` are the places for inbound and outbound ones; the negotiated depths are
//! the limits in force.

mod inbound;
mod landing;
mod outbound;

pub use inbound::{
    Inbound, ReadResponseSegment, SendFault, SendSegment, TaggedFault, WriteSegment,
};
pub use landing::LandingPlace;
pub use outbound::{Message, Refused, Segment, SegmentHeader, SendHeader, WriteHeader};

use super::ddp::{self, Header};
pub use super::mpa::Side;

use super::mpa::{Negotiated, Rtr};
use super::rdmap::{Opcode, Peer, ReadHeader, Terminated};
use super::ring::Ring;

/// A Read that the peer asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadRequest {
    /// Number of the request in its queue.
    pub msn: u32,
    /// Source to read, and sink for the answer. If the length is zero, the source must not be
    /// checked.
    pub header: ReadHeader,
}

/// A Read of ours that is not complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutstandingRead {
    /// Number of the request in its queue; a Terminate names it.
    pub msn: u32,
    /// Token that the caller gave to [`Stream::begin_read`].
    pub token: u64,
    /// Octets asked for.
    pub len: u32,
    /// Octets answered so far.
    pub received: u32,
    sink_stag: u32,
    sink_to: u64,
}

/// Permission to send.
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

/// The Send message whose remaining segments are still to come.
#[derive(Clone, Copy, Debug)]
struct OpenSend {
    opcode: Opcode,
    invalidate: u32,
    next_offset: u32,
}

/// The state of one connection after MPA set-up.
// In this order: the fields that Sends need come first, in one cache line; the fields that only
// Reads need are long.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Stream<const IRD: usize, const ORD: usize> {
    gate: Gate,
    /// The responder treats a zero-length Send as indication only when it is the very first
    /// message.
    awaits_send_rtr: bool,
    open_tagged: Option<Opcode>,
    is_answering: bool,
    send_msn_in: u32,
    send_msn_out: u32,
    open_send: Option<OpenSend>,
    /// Its length comes first.
    inbound_reads: Ring<ReadRequest, IRD>,
    outbound_reads: Ring<OutstandingRead, ORD>,
    read_msn_in: u32,
    read_msn_out: u32,
    ird: usize,
    ord: usize,
    peer: Peer,
}

// The number of waiting Reads is the last field that a Send needs.
const _: () = assert!(
    core::mem::offset_of!(Stream<1, 1>, inbound_reads) + size_of::<usize>() <= 64,
    "Sends need one line of memory"
);

impl<const IRD: usize, const ORD: usize> Stream<IRD, ORD> {
    /// A stream after a successful set-up.
    pub fn new(negotiated: &Negotiated) -> Self {
        const { assert!(IRD >= 1 && ORD >= 1, "an indication may be a Read, in either direction") };
        debug_assert!(usize::from(negotiated.ird) <= IRD, "the IRD granted has places");
        let is_responder = negotiated.side == Side::Responder;
        Self {
            gate: match (is_responder, negotiated.rtr) {
                // RFC 5044 §7.1.2 [5044-51]: a responder sends nothing before one valid FPDU
                // arrived
                (true, _) => Gate::AwaitFpdu,
                // RFC 6581 §5 [6581-1]: no other FPDU leaves before ready-to-receive
                (false, Some(rtr)) => Gate::AwaitRtr(rtr),
                (false, None) => Gate::Open,
            },
            peer: negotiated.peer,
            // RFC 5040 §5.2.2, §6.1 [5040-31]: every Read Request that was negotiated has a place
            ird: usize::from(negotiated.ird).min(IRD),
            ord: usize::from(negotiated.ord).min(ORD),
            awaits_send_rtr: is_responder && negotiated.rtr == Some(Rtr::Send),
            send_msn_in: 1,
            read_msn_in: 1,
            // RFC 5041 §4.3 [5041-19]: message numbers start at 1, rise by one and wrap to 0
            send_msn_out: 1,
            read_msn_out: 1,
            open_send: None,
            open_tagged: None,
            inbound_reads: Ring::new(),
            is_answering: false,
            outbound_reads: Ring::new(),
        }
    }

    /// Returns true if `begin_*` may succeed: the gate is open and the stream lives.
    pub fn may_send(&self) -> bool {
        self.gate == Gate::Open
    }

    /// Returns true if the stream has ended, by either side's Terminate or a violation.
    pub fn is_ended(&self) -> bool {
        matches!(self.gate, Gate::OweTerminate | Gate::Ended)
    }

    /// Our Reads that are not complete, oldest first.
    pub fn outstanding_reads(&self) -> impl Iterator<Item = &OutstandingRead> {
        self.outbound_reads.iter()
    }

    /// Our Read that a peer's Terminate names, if it is still outstanding.
    pub fn blamed_read(&self, terminated: &Terminated) -> Option<&OutstandingRead> {
        match terminated.header? {
            Header::Untagged(header) if header.queue == ddp::QUEUE_READ => {
                self.outbound_reads.iter().find(|read| read.msn == header.msn)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iwarp::ddp::Untagged;
    use crate::iwarp::mpa::{Config, Initiator, Request};
    use crate::iwarp::octets::Octets;
    use crate::iwarp::rdmap::Terminate;

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
        for next in [
            &mut from.send_msn_out,
            &mut from.read_msn_out,
            &mut to.send_msn_in,
            &mut to.read_msn_in,
        ] {
            *next = u32::MAX;
        }
        for msn in [u32::MAX, 0, 1] {
            let mut message = from.begin_send(0, None, false).unwrap();
            let segment = from.poll_segment(&mut message, 128).unwrap();
            let Ok(Inbound::Send(segment)) = to.handle_ulpdu(&segment.header[2..]) else {
                panic!()
            };
            assert_eq!(segment.msn, msn);

            let mut message = from.begin_read(ReadHeader::default(), 0).unwrap();
            let segment = from.poll_segment(&mut message, 128).unwrap();
            assert_eq!(to.handle_ulpdu(&segment.header[2..]), Ok(Inbound::ReadRequest));
            assert_eq!(to.next_read().unwrap().msn, msn);
            let mut message = to.begin_read_response().unwrap();
            let segment = to.poll_segment(&mut message, 128).unwrap();
            assert!(matches!(
                from.handle_ulpdu(&segment.header[2..]),
                Ok(Inbound::ReadResponse(_))
            ));
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
