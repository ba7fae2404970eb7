//! Filling: the next message is segmented into FPDUs, which fixes their positions in the stream.

use super::QUANTUM;
use crate::{
    conn::{IwarpLink, tagged_fault},
    transmit::{Active, FpduPayload, MessageSource, Pieces, WorkPlace},
};
use stag_pools::{RemoteKey, Scope, Windows};
use stag_protocol::iwarp::rdmap::{ReadHeader, Violation};
use stag_verbs::{
    Memory, Status,
    soft::{Op, Read, SendQueue},
};

/// Answers to Reads between two messages of work requests, if both wait.
const ANSWERS_IN_A_ROW: u32 = 4;
/// Octets of the longest message that joins several Writes: answers to Reads, and invalidations,
/// have to wait for its end.
const JOINED_MAX: u32 = QUANTUM as u32;

impl IwarpLink {
    /// Makes FPDUs of everything that may be sent, until a system call is full.
    pub(super) fn fill(&mut self, scope: Scope, windows: &mut Windows) -> Result<(), Violation> {
        while !self.transmit.is_full() && self.complete_local_work(scope, windows)? {
            if self.transmit.active.is_none() && !self.begin_next() {
                break;
            }
            self.add_segment(scope, windows)?;
        }
        Ok(())
    }

    /// Begins the next message: answers first, but after a few of them a waiting work request.
    /// Returns false if nothing may begin.
    fn begin_next(&mut self) -> bool {
        if self.transmit.answers_in_a_row < ANSWERS_IN_A_ROW && self.begin_answer() {
            self.transmit.answers_in_a_row += 1;
            return true;
        }
        if self.begin_work() {
            self.transmit.answers_in_a_row = 0;
            return true;
        }
        self.begin_answer()
    }

    fn begin_answer(&mut self) -> bool {
        let Some(request) = self.stream.next_read() else { return false };
        // RFC 5040 §5.2.1 [5040-27]: a valid Read Request gets its Response
        let message = self.stream.begin_read_response();
        self.transmit.active =
            message.map(|message| Active { message, source: MessageSource::Window(request) });
        self.transmit.active.is_some()
    }

    /// Begins the next work request whose doorbell was rung, and the following Writes that the same
    /// message can carry.
    fn begin_work(&mut self) -> bool {
        let Some((seq, op)) = self.queue.next() else { return false };
        let whole = MessageSource::Work(WorkPlace { seq, at: 0 });
        let mut works = 1;
        let (message, source) = match op {
            Op::Send { message, invalidate } => {
                let invalidate = invalidate.map(|key| key.0);
                (self.stream.begin_send(message.len() as u32, invalidate, false), whole)
            }
            // RFC 5040 §5.1 [5040-21]: one Write goes to one tagged buffer
            Op::Write { to, .. } => {
                let (writes, len) = self.queue.contiguous_writes(JOINED_MAX);
                works = writes;
                (self.stream.begin_write(len, to.key.0, to.offset), whole)
            }
            Op::Read(read) => {
                let header = read_header(seq, read, &self.queue);
                (self.stream.begin_read(header, seq), MessageSource::Nothing)
            }
            Op::Invalidate { .. } => unreachable!("silent work is done before anything begins"),
        };
        // Reads beyond the ORD wait, and so does everything after them (siw does the same).
        let Ok(message) = message else { return false };
        match source {
            MessageSource::Nothing => self.queue.begin_read(),
            _ => (0..works).for_each(|_| self.queue.begin()),
        }
        self.transmit.active = Some(Active { message, source });
        true
    }

    /// Completes work that is due and sends nothing: above all local invalidations, even in the
    /// middle of an answer; a peer that reads on gets a Terminate. Returns false if an invalidation
    /// waits for FPDUs that carry its window, or for the end of the stream. Fails if an FPDU lands
    /// in the window that ends.
    fn complete_local_work(
        &mut self,
        scope: Scope,
        windows: &mut Windows,
    ) -> Result<bool, Violation> {
        if matches!(self.transmit.active, Some(Active { source: MessageSource::Work(_), .. })) {
            return Ok(true);
        }
        loop {
            let (seq, key) = match self.queue.next() {
                Some((seq, Op::Invalidate { key })) => (seq, *key),
                Some((seq, Op::Read(read))) if read.unanswered == 0 => {
                    self.queue.begin();
                    self.queue.complete(seq, Status::Success, None); // it has no span
                    continue;
                }
                _ => return Ok(true),
            };
            if self.transmit.carries(key) {
                return Ok(false);
            }
            // RFC 5044 §4.4, §7.1.1, §6 [5044-31]: a ULPDU is delivered only after its CRC is
            // verified
            if self.lands_in(key) {
                return self.refuse_arrival().map(|()| false);
            }
            self.queue.begin();
            let fenced = windows
                .invalidate(scope, key)
                .expect("nobody else invalidates a key we are about to");
            self.queue.complete(seq, Status::Success, Some(Memory::Fenced(fenced)));
        }
    }

    /// Closes the next segment of the active message. Fails if the peer reads memory that it may
    /// not.
    fn add_segment(&mut self, scope: Scope, windows: &mut Windows) -> Result<(), Violation> {
        let Self { stream, queue, transmit, .. } = self;
        let Some(active) = &mut transmit.active else { return Ok(()) };
        let Some(segment) = stream.poll_segment(&mut active.message, transmit.mulpdu) else {
            transmit.active = None;
            return Ok(());
        };
        let (at, len) = (segment.offset as usize, segment.len as usize);
        let mut ends = 0..0;
        let (payload, octets) = match &mut active.source {
            MessageSource::Work(place) => {
                let from = *place;
                ends = place.advance(queue, len);
                (FpduPayload::Work { from, len }, Pieces::of_work(queue, from, len))
            }
            // RFC 5040 §5.2.1 [5040-29]: the source of an empty Read is not validated
            MessageSource::Window(request) if request.header.len > 0 => {
                let request = *request;
                let key = RemoteKey(request.header.source_stag);
                let offset = request.header.source_to.wrapping_add(u64::from(segment.offset));
                // The first segment is checked for the whole source (RFC 5040 §7.2): nothing is
                // sent for a Read that ends outside.
                let judged = if at == 0 { request.header.len as usize } else { len };
                // RFC 5040 §5.2.1, §7.2 [5040-28]: the source of a Read is validated to its end
                match windows.source(scope, key, offset, judged) {
                    Ok(octets) => {
                        let octets = octets.get(..len);
                        let octets = octets.expect("a segment is no longer than its message");
                        (FpduPayload::Window { key, offset, len }, Pieces::one(octets))
                    }
                    Err(refusal) => {
                        transmit.active = None;
                        return Err(stream.refuse_read(
                            &request,
                            segment.offset,
                            tagged_fault(refusal),
                        ));
                    }
                }
            }
            _ => (FpduPayload::Nothing, Pieces::one(&[])),
        };
        if segment.last {
            transmit.active = None;
        }
        transmit.push(segment.header, payload, octets, ends);
        Ok(())
    }
}

/// Builds the next Read Request of the work request `seq`. The sink's STag identifies the work
/// request; peers cannot write to it, because windows are in another table.
fn read_header(seq: u64, read: &Read, queue: &SendQueue) -> ReadHeader {
    // RFC 5040 §5.2.1 [5040-26]: a Read Request names one buffer; more take more Requests
    let span = queue.next_span().expect("a Read that is not begun has spans");
    ReadHeader {
        sink_stag: 1 << 31 | seq as u32,
        sink_to: read.ask_at as u64,
        len: span.len,
        source_stag: span.key.0,
        source_to: span.offset,
    }
}
