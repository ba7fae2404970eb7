//! The sending half of a connection: the message that is being segmented, and the FPDUs that wait
//! for the kernel. `tx` fills and sends them.

mod pieces;

pub(crate) use pieces::{Pieces, WorkPlace};

use crate::{config::READS_MAX, crc::Crc};
use stag_pools::RemoteKey;
use stag_protocol::iwarp::{
    fpdu::{Framed, Framer},
    mpa::Negotiated,
    rdmap::Violation,
    stream::{self, Message, ReadRequest, SegmentHeader},
};
use std::{collections::VecDeque, ops::Range};

/// Maximum of FPDUs that one system call sends.
pub(crate) const FPDUS: usize = 64;
/// Octets from which on no FPDU is added to a system call: they stay in the cache between the
/// computation of the CRC and the kernel's copy.
pub(crate) const BATCH: usize = 256 << 10;
/// Octets of copied FPDUs that wait for one doorbell: as many as one system call gathers.
pub(crate) const OUTPUT_LEN: usize = BATCH;
/// Token of the Read that serves as ready-to-receive indication during set-up; its answer carries
/// it.
pub(crate) const RTR_TOKEN: u64 = u64::MAX;

const _: () = assert!(READS_MAX > 0);

/// The stream, with room for the maximum of Reads that we negotiate.
pub(crate) type Stream = stream::Stream<{ READS_MAX as usize }, { READS_MAX as usize }>;

/// A message that is not completely segmented.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) message: Message,
    pub(crate) source: MessageSource,
}

/// Source of a message's payload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MessageSource {
    /// A Send, or Writes to adjacent targets: the place of the next octet to segment.
    Work(WorkPlace),
    /// The window that the peer reads.
    Window(ReadRequest),
    /// No payload: a Read Request, the set-up's indication.
    Nothing,
}

/// Location of an FPDU's payload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FpduPayload {
    Nothing,
    /// It may span several Writes.
    Work {
        from: WorkPlace,
        len: usize,
    },
    Window {
        key: RemoteKey,
        offset: u64,
        len: usize,
    },
}

/// One FPDU that waits for the kernel.
#[derive(Debug)]
pub(crate) struct Fpdu {
    pub(crate) header: SegmentHeader,
    pub(crate) framed: Framed,
    pub(crate) wire_len: usize,
    pub(crate) payload: FpduPayload,
    /// Pieces of memory that hold its payload.
    pub(crate) pieces: usize,
    /// The Sends and Writes that end with it.
    pub(crate) ends: Range<u64>,
}

/// The sending half of a connection.
// In this order, the fields that short messages need come first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Transmit {
    pub(crate) framer: Framer,
    pub(crate) mulpdu: u16,
    pub(crate) has_markers: bool,
    /// FPDUs must not share a TCP segment with later octets.
    pub(crate) ends_segments: bool,
    /// Its memory is lent by the shard while there are any.
    pub(crate) fpdus: VecDeque<Fpdu>,
    pub(crate) active: Option<Active>,
    /// Octets of the first FPDU that the kernel has accepted.
    pub(crate) sent: usize,
    /// Octets of all waiting FPDUs, including `sent`.
    pub(crate) queued: usize,
    pub(crate) answers_in_a_row: u32,
}

impl Transmit {
    pub(crate) fn new(negotiated: &Negotiated, mulpdu: u16, ends_segments: bool) -> Self {
        Self {
            framer: Framer::new(negotiated),
            has_markers: negotiated.send_markers,
            mulpdu,
            ends_segments,
            active: None,
            fpdus: VecDeque::new(),
            sent: 0,
            queued: 0,
            answers_in_a_row: 0,
        }
    }

    /// Takes memory for FPDUs from `spare`, enough for one system call.
    pub(crate) fn borrow(&mut self, spare: &mut Vec<VecDeque<Fpdu>>) {
        if self.fpdus.capacity() == 0 {
            self.fpdus = spare.pop().unwrap_or_else(|| VecDeque::with_capacity(FPDUS));
        }
    }

    /// Returns that memory, if nothing waits.
    pub(crate) fn give_back(&mut self, spare: &mut Vec<VecDeque<Fpdu>>) {
        if self.fpdus.is_empty() && self.fpdus.capacity() >= FPDUS {
            self.fpdus.clear(); // back to its first places, which are in the cache
            spare.push(std::mem::take(&mut self.fpdus));
        }
    }

    /// Returns true if an FPDU that is not completely sent carries octets of the window `key`.
    pub(crate) fn carries(&self, key: RemoteKey) -> bool {
        self.fpdus
            .iter()
            .any(|fpdu| matches!(fpdu.payload, FpduPayload::Window { key: of, .. } if of == key))
    }

    /// Queues the indication that an initiator owes, before everything else (RFC 6581 §9.2).
    pub(crate) fn begin_rtr(&mut self, stream: &mut Stream) {
        debug_assert!(
            self.active.is_none() && self.fpdus.is_empty(),
            "nothing is sent before the indication"
        );
        self.active = stream
            .begin_rtr(RTR_TOKEN)
            .map(|message| Active { message, source: MessageSource::Nothing });
    }

    /// Repeats the indication, unless something else is being sent. Returns true if it is queued.
    pub(crate) fn repeat_rtr(&mut self, stream: &mut Stream) -> bool {
        if self.active.is_some() || !self.fpdus.is_empty() {
            return false;
        }
        let message = stream.repeat_rtr().ok();
        self.active = message.map(|message| Active { message, source: MessageSource::Nothing });
        self.active.is_some()
    }

    /// Queues the Terminate after the waiting FPDUs. Returns false if one was sent or received
    /// before.
    pub(crate) fn terminate(&mut self, stream: &mut Stream, violation: &Violation) -> bool {
        self.active = None;
        let Some(mut message) = stream.begin_terminate(violation) else { return false };
        let Some(segment) = stream.poll_segment(&mut message, self.mulpdu) else { return false };
        self.push(segment.header, FpduPayload::Nothing, Pieces::one(&[]), 0..0);
        true
    }

    /// Closes an FPDU, which fixes its position in the stream.
    pub(crate) fn push(
        &mut self,
        header: SegmentHeader,
        payload: FpduPayload,
        octets: Pieces<'_>,
        ends: Range<u64>,
    ) {
        let pieces = octets.clone().count();
        let framed = self.framer.frame::<Crc, _>(&header, octets);
        let wire_len = framed.wire_len();
        self.queued += wire_len;
        self.fpdus.push_back(Fpdu { header, framed, wire_len, payload, pieces, ends });
    }

    pub(crate) fn is_full(&self) -> bool {
        self.queued >= BATCH || self.fpdus.len() >= FPDUS
    }
}
