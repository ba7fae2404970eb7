//! Sending: work requests and answers become FPDUs, and many FPDUs become one system call.
//!
//! A short message with nothing in front of it is copied: its complete FPDU goes to the
//! connection's output as soon as it is posted, and is sent with the next doorbell. The rest takes
//! two steps. *Filling* takes the next message, segments it, and closes each segment with its CRC;
//! that fixes its position in the stream. *Sending* gathers the waiting FPDUs, with headers from
//! here and payload from its source, and passes them to the kernel, which may accept any number of
//! octets.

mod copy;
mod fill;
mod gather;
mod pieces;
#[cfg(test)]
mod tests;

use crate::{
    close,
    config::READS_MAX,
    conn::{IwarpConn, IwarpLink, IwarpShared, IwarpState, Stream},
    crc::Crc,
};
use stag_pools::RemoteKey;
use stag_protocol::iwarp::{
    fpdu::{Framed, Framer},
    mpa::Negotiated,
    rdmap::Violation,
    stream::{Message, ReadRequest, SegmentHeader},
};
use stag_verbs::{FabricFault, Qp};
use std::{collections::VecDeque, ops::Range};

pub(crate) use copy::OUTPUT_LEN;
pub(crate) use fill::fault;
use pieces::{Pieces, WorkPlace};

/// Maximum of FPDUs that one system call sends.
const FPDUS: usize = 64;
/// Octets from which on no FPDU is added to a system call: they stay in the cache between the
/// computation of the CRC and the kernel's copy.
const BATCH: usize = 256 << 10;
/// Octets that one connection sends before others have their turn.
const QUANTUM: usize = 1 << 20;
/// Token of the Read that serves as ready-to-receive indication during set-up; its answer carries
/// it.
pub(crate) const RTR_TOKEN: u64 = u64::MAX;

const _: () = assert!(READS_MAX > 0);

/// A message that is not completely segmented.
#[derive(Debug)]
struct Active {
    message: Message,
    source: MessageSource,
}

/// Source of a message's payload.
#[derive(Clone, Copy, Debug)]
enum MessageSource {
    /// A Send, or Writes to adjacent targets: the place of the next octet to segment.
    Work(WorkPlace),
    /// The window that the peer reads.
    Window(ReadRequest),
    /// No payload: a Read Request, the set-up's indication.
    Nothing,
}

/// Location of an FPDU's payload.
#[derive(Clone, Copy, Debug)]
enum FpduPayload {
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
    header: SegmentHeader,
    framed: Framed,
    wire_len: usize,
    payload: FpduPayload,
    /// Pieces of memory that hold its payload.
    pieces: usize,
    /// The Sends and Writes that end with it.
    ends: Range<u64>,
}

/// The sending half of a connection.
// In this order, the fields that short messages need come first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Transmit {
    framer: Framer,
    mulpdu: u16,
    has_markers: bool,
    /// FPDUs must not share a TCP segment with later octets.
    ends_segments: bool,
    /// Its memory is lent by the shard while there are any.
    fpdus: VecDeque<Fpdu>,
    active: Option<Active>,
    /// Octets of the first FPDU that the kernel has accepted.
    sent: usize,
    /// Octets of all waiting FPDUs, including `sent`.
    queued: usize,
    answers_in_a_row: u32,
}

/// Result of one send call to the kernel.
enum SendResult {
    All,
    Part,
    Broken,
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
    fn borrow(&mut self, spare: &mut Vec<VecDeque<Fpdu>>) {
        if self.fpdus.capacity() == 0 {
            self.fpdus = spare.pop().unwrap_or_else(|| VecDeque::with_capacity(FPDUS));
        }
    }

    /// Returns that memory, if nothing waits.
    fn give_back(&mut self, spare: &mut Vec<VecDeque<Fpdu>>) {
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
    fn push(
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

    fn is_full(&self) -> bool {
        self.queued >= BATCH || self.fpdus.len() >= FPDUS
    }
}

/// Handles a doorbell when only copies were posted, and the kernel accepts them. Returns false if
/// there is more to do.
#[inline]
pub(crate) fn send_copies(conn: &mut IwarpConn, shared: &mut IwarpShared) -> bool {
    let is_quiet = |link: &IwarpLink| link.queue.has_begun_all() && link.is_quiet();
    let is_plain =
        conn.output.len > 0 && !conn.wants_out && conn.link.as_deref().is_some_and(is_quiet);
    if !is_plain || !matches!(conn.send_output(shared), SendResult::All) {
        return false;
    }
    conn.is_posted = false;
    true
}

/// Sends as much as is allowed and the kernel accepts. Reports completed work.
pub(crate) fn flush(conn: &mut IwarpConn, shared: &mut IwarpShared) {
    let mut quantum = QUANTUM;
    conn.wants_out = false;
    if conn.output.len > 0 {
        match conn.send_output(shared) {
            SendResult::All => {}
            SendResult::Part => conn.wants_out = true,
            SendResult::Broken => return close::broken(conn, shared, FabricFault::Lost),
        }
    }
    loop {
        let Some(link) = &mut conn.link else { return };
        link.transmit.borrow(&mut shared.spare_fpdus);
        if let Err(violation) = link.fill(conn.qp.scope(), &mut shared.windows) {
            close::violate(conn, shared, violation);
            continue;
        }
        report(link, conn.qp, shared);
        if link.transmit.fpdus.is_empty() || conn.wants_out {
            break;
        }
        let before = link.transmit.queued;
        match link.send(&conn.socket, conn.qp.scope(), shared) {
            SendResult::All => quantum = quantum.saturating_sub(before),
            SendResult::Part => {
                conn.wants_out = true;
                break;
            }
            SendResult::Broken => return close::broken(conn, shared, FabricFault::Lost),
        }
        if quantum == 0 {
            // The socket is still writable, so the next look at it continues.
            conn.wants_out = !link.transmit.fpdus.is_empty()
                || link.transmit.active.is_some()
                || link.has_more();
            break;
        }
    }
    let Some(link) = &mut conn.link else { return };
    link.transmit.give_back(&mut shared.spare_fpdus);
    report(link, conn.qp, shared);
    if let IwarpState::AwaitTerminateSent { cause } = conn.state
        && link.transmit.fpdus.is_empty()
    {
        close::end_gently(conn, shared, cause);
    }
}

impl IwarpLink {
    /// Returns true if nothing waits to be sent or done.
    #[inline]
    fn is_quiet(&self) -> bool {
        let Transmit { active, fpdus, .. } = &self.transmit;
        active.is_none() && fpdus.is_empty() && !self.has_more()
    }

    /// Returns true if a message could begin.
    fn has_more(&self) -> bool {
        self.stream.next_read().is_some() || self.queue.next().is_some()
    }
}

/// Reports completed work, in order.
pub(crate) fn report(link: &mut IwarpLink, qp: Qp, shared: &mut IwarpShared) {
    while let Some(event) = link.queue.poll(qp) {
        shared.emit(event);
    }
    link.queue.give_back(&mut shared.spare_works);
}
