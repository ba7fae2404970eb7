//! Sending: work requests and answers become FPDUs, many FPDUs become one system call.
//!
//! A short message with nothing in front of it is copied: its FPDU goes to the connection's output, whole, as soon as it is posted,
//! and leaves with the next doorbell. The rest takes two steps. *Filling* takes the next message, segments it, and closes each segment with its CRC: from there on its place
//! in the stream is fixed. *Sending* gathers the FPDUs that wait, headers from here and payload from where it lies, and
//! hands them to the kernel, which may take any number of octets.

use crate::{
    close,
    config::READS_MAX,
    conn::{Conn, Link, Shared, State, Stream},
    crc::Crc,
    sock::{self, Moved},
    stats::Stats,
};
use stag_pools::{RemoteKey, Scope, Violation as Refusal, Windows};
use stag_protocol::iwarp::{
    ddp,
    fpdu::{self, Framed, Framer, Part},
    mpa::Negotiated,
    rdmap::{ReadHeader, Violation},
    stream::{Message, ReadRequest, Refused, SegmentHeader, TaggedFault},
};
use stag_verbs::soft::{Op, Read, SendQueue};
use stag_verbs::{FabricFault, Memory, Qp, RemoteSpan, Status};
use std::{collections::VecDeque, io::IoSlice, os::fd::OwnedFd};

/// FPDUs one system call sends.
const FPDUS: usize = 64;
/// Pieces of memory one system call gathers: header, payload and trailer of each.
const PIECES: usize = 3 * FPDUS;
/// FPDUs that take no more than a few pieces.
const FEW: usize = 6;
/// Octets at which no FPDU is added to a system call: they stay in the cache between the CRC's pass and the kernel's copy.
const BATCH: usize = 256 << 10;
/// Octets of the longest message that is copied to be sent: about what copying costs less than gathering does.
const COPIED_MAX: usize = 8 << 10;
/// Octets one connection sends before others have their turn.
const QUANTUM: usize = 1 << 20;
/// Answers to Reads between two work requests, when both wait.
const ANSWERS_IN_A_ROW: u32 = 4;
/// What the answer to the set-up's Read indication is known by.
pub(crate) const RTR_TOKEN: u64 = u64::MAX;

const _: () = assert!(PIECES <= 1024, "the kernel's limit (UIO_MAXIOV)");
const _: () = assert!(READS_MAX > 0);

/// A message of which segments are still to be made.
#[derive(Debug)]
struct Active {
    message: Message,
    source: Source,
}

/// Where a message's payload comes from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// This Send or Write.
    Work(u64),
    /// The window that the peer reads.
    Window(ReadRequest),
    /// It has none: a Read Request, the set-up's indication.
    Nothing,
}

/// Where an FPDU's payload lies.
#[derive(Clone, Copy, Debug)]
enum Payload {
    Nothing,
    Work { seq: u64, at: usize, len: usize },
    Window { key: RemoteKey, offset: u64, len: usize },
}

/// One FPDU that waits for the kernel.
#[derive(Debug)]
pub(crate) struct Fpdu {
    header: SegmentHeader,
    framed: Framed,
    wire_len: usize,
    payload: Payload,
    /// The Send or Write that ends with it.
    ends: Option<u64>,
}

/// The sending half of a connection.
#[derive(Debug)]
pub(crate) struct Transmit {
    framer: Framer,
    has_markers: bool,
    mulpdu: u16,
    /// FPDUs must not share a TCP segment with what follows.
    ends_segments: bool,
    active: Option<Active>,
    /// Its memory is lent by the shard while there are any.
    fpdus: VecDeque<Fpdu>,
    /// Octets of the first FPDU that the kernel has.
    sent: usize,
    /// Octets of all FPDUs that wait, `sent` included.
    queued: usize,
    answers_in_a_row: u32,
}

/// What one call to the kernel did.
enum Sent {
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

    /// Takes memory for FPDUs from `spare`, as much as one system call needs.
    fn borrow(&mut self, spare: &mut Vec<VecDeque<Fpdu>>) {
        if self.fpdus.capacity() == 0 {
            self.fpdus = spare.pop().unwrap_or_else(|| VecDeque::with_capacity(FPDUS));
        }
    }

    /// Gives that memory back, if nothing waits.
    fn give_back(&mut self, spare: &mut Vec<VecDeque<Fpdu>>) {
        if self.fpdus.is_empty() && self.fpdus.capacity() >= FPDUS {
            self.fpdus.clear(); // back to its first places, which are in the cache
            spare.push(std::mem::take(&mut self.fpdus));
        }
    }

    /// Whether an FPDU that is not sent whole carries octets of the window `key`.
    pub(crate) fn carries(&self, key: RemoteKey) -> bool {
        self.fpdus.iter().any(|fpdu| matches!(fpdu.payload, Payload::Window { key: of, .. } if of == key))
    }

    /// The indication that an initiator owes, before everything else (RFC 6581 §9.2).
    pub(crate) fn begin_rtr(&mut self, stream: &mut Stream) {
        debug_assert!(
            self.active.is_none() && self.fpdus.is_empty(),
            "nothing is sent before the indication"
        );
        self.active = stream.begin_rtr(RTR_TOKEN).map(|message| Active { message, source: Source::Nothing });
    }

    /// Says the indication once more, if nothing else is on its way. Whether it does.
    pub(crate) fn repeat_rtr(&mut self, stream: &mut Stream) -> bool {
        if self.active.is_some() || !self.fpdus.is_empty() {
            return false;
        }
        let message = stream.repeat_rtr().ok();
        self.active = message.map(|message| Active { message, source: Source::Nothing });
        self.active.is_some()
    }

    /// Puts the Terminate behind the FPDUs that wait. False when one was sent or received before.
    pub(crate) fn terminate(&mut self, stream: &mut Stream, violation: &Violation) -> bool {
        self.active = None;
        let Some(mut message) = stream.begin_terminate(violation) else { return false };
        let Some(segment) = stream.poll_segment(&mut message, self.mulpdu) else { return false };
        let framed = self.framer.frame::<Crc, _>(&segment.header, [&[][..]]);
        self.push(segment.header, framed, Payload::Nothing, None);
        true
    }

    fn push(&mut self, header: SegmentHeader, framed: Framed, payload: Payload, ends: Option<u64>) {
        let wire_len = framed.wire_len();
        self.queued += wire_len;
        self.fpdus.push_back(Fpdu { header, framed, wire_len, payload, ends });
    }

    fn is_full(&self) -> bool {
        self.queued >= BATCH || self.fpdus.len() >= FPDUS
    }
}

// Copying.
impl Conn {
    /// Sends a copy of `message` with the next doorbell, if everything before it is on its way.
    pub(crate) fn copy_send(
        &mut self,
        shared: &mut Shared,
        message: &[u8],
        invalidate: Option<RemoteKey>,
    ) -> bool {
        if !self.may_copy(message.len() + ddp::UNTAGGED_LEN) {
            return false;
        }
        self.copy(shared, message, |link, len| link.stream.send_at_once(len, invalidate.map(|key| key.0)))
    }

    /// The same for a Write, whose completion follows at once: nothing before it may be pending.
    pub(crate) fn copy_write(&mut self, shared: &mut Shared, source: &[u8], to: RemoteSpan) -> bool {
        let is_first = self.link.as_ref().is_some_and(|link| link.queue.is_empty());
        if !is_first || !self.may_copy(source.len() + ddp::TAGGED_LEN) {
            return false;
        }
        self.copy(shared, source, |link, len| link.stream.write_at_once(len, to.key.0, to.offset))
    }

    /// Whether one segment takes an ULPDU of `ulpdu_len`, and nothing that was posted, or has begun, waits in front of it.
    fn may_copy(&self, ulpdu_len: usize) -> bool {
        let Some(link) = self.link.as_deref().filter(|_| self.may_send()) else { return false };
        let Transmit { mulpdu, active, fpdus, has_markers, .. } = &link.transmit;
        let is_short = ulpdu_len <= COPIED_MAX.min(usize::from(*mulpdu));
        is_short && link.queue.has_begun_all() && active.is_none() && fpdus.is_empty() && !has_markers
    }

    fn copy<const N: usize>(
        &mut self,
        shared: &mut Shared,
        payload: &[u8],
        header: impl FnOnce(&mut Link, u16) -> Result<[u8; N], Refused>,
    ) -> bool {
        shared.spares.lend(&mut self.output);
        let Some(link) = self.link.as_deref_mut() else { return false };
        let Some(room) = self.output.octets.get_mut(self.output.len..) else { return false };
        // A header takes its number for good, so the room is looked at first.
        if room.len() < fpdu::fpdu_len((N + payload.len()) as u16) {
            return false;
        }
        let Ok(header) = header(link, payload.len() as u16) else { return false }; // `may_copy`: at most the MULPDU
        let written = link.transmit.framer.write::<Crc>(&header, payload, room);
        self.output.len += written.expect("there is room, and there are no markers");
        shared.stats.fpdus_out += 1;
        shared.stats.octets_copied += payload.len() as u64;
        true
    }

    /// Hands the output to the kernel, once.
    fn send_output(&mut self, shared: &mut Shared) -> Sent {
        let ends_segments = self.link.as_ref().is_some_and(|link| link.transmit.ends_segments);
        let Shared { stats, spares, .. } = shared;
        let taken = match sock::send_one(&self.socket, self.output.content(), ends_segments, stats) {
            Moved::Octets(taken) => taken,
            Moved::WouldBlock | Moved::End => 0,
            Moved::Broken(_) => return Sent::Broken,
        };
        self.output.consume(taken);
        if self.output.len > 0 {
            stats.sendmsg_short += 1;
            return Sent::Part;
        }
        spares.take_back(&mut self.output);
        Sent::All
    }
}

// Filling.
impl Link {
    /// Makes FPDUs of what may be sent, until a system call is full.
    fn fill(&mut self, scope: Scope, windows: &mut Windows) -> Result<(), Violation> {
        while !self.transmit.is_full() && self.do_silent(scope, windows) {
            if self.transmit.active.is_none() && !self.begin_next() {
                break;
            }
            self.add_segment(scope, windows)?;
        }
        Ok(())
    }

    /// Begins the next message: answers first, but every few of them a work request that waits. False: nothing may begin.
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
        // RFC 5040 §5.2.1 [5040-27]
        let message = self.stream.begin_read_response();
        self.transmit.active = message.map(|message| Active { message, source: Source::Window(request) });
        self.transmit.active.is_some()
    }

    /// Begins the next work request whose doorbell is rung.
    fn begin_work(&mut self) -> bool {
        let Some((seq, op)) = self.queue.next() else { return false };
        let (message, source) = match op {
            Op::Send { message, invalidate } => {
                let invalidate = invalidate.map(|key| key.0);
                (self.stream.begin_send(message.len() as u32, invalidate, false), Source::Work(seq))
            }
            // RFC 5040 §5.1 [5040-21]
            Op::Write { to, .. } => (self.stream.begin_write(to.len, to.key.0, to.offset), Source::Work(seq)),
            Op::Read(read) => {
                let header = read_header(seq, read, &self.queue);
                (self.stream.begin_read(header, seq), Source::Nothing)
            }
            Op::Invalidate { .. } => unreachable!("silent work is done before anything begins"),
        };
        // Reads beyond the ORD wait, and everything behind them (siw does the same).
        let Ok(message) = message else { return false };
        match source {
            Source::Nothing => self.queue.begin_read(),
            _ => self.queue.begin(),
        }
        self.transmit.active = Some(Active { message, source });
        true
    }

    /// Does the work whose turn it is and that sends nothing: local invalidations above all, also in the middle of an answer: a peer that reads on gets a
    /// Terminate. False when one waits for FPDUs that carry its window.
    fn do_silent(&mut self, scope: Scope, windows: &mut Windows) -> bool {
        if matches!(self.transmit.active, Some(Active { source: Source::Work(_), .. })) {
            return true;
        }
        loop {
            let (seq, key) = match self.queue.next() {
                Some((seq, Op::Invalidate { key })) => (seq, *key),
                Some((seq, Op::Read(read))) if read.unanswered == 0 => {
                    self.queue.begin();
                    self.queue.complete(seq, Status::Success, None); // it has no span
                    continue;
                }
                _ => return true,
            };
            if self.transmit.carries(key) {
                return false;
            }
            self.queue.begin();
            let fenced =
                windows.invalidate(scope, key).expect("nobody else invalidates a key we are about to");
            self.queue.complete(seq, Status::Success, Some(Memory::Fenced(fenced)));
        }
    }

    /// Closes the next segment of the active message. Errors: the peer reads what it may not.
    fn add_segment(&mut self, scope: Scope, windows: &mut Windows) -> Result<(), Violation> {
        let Self { stream, queue, transmit, .. } = self;
        let Some(active) = &mut transmit.active else { return Ok(()) };
        let Some(segment) = stream.poll_segment(&mut active.message, transmit.mulpdu) else {
            transmit.active = None;
            return Ok(());
        };
        let (at, len, source) = (segment.offset as usize, segment.len as usize, active.source);
        let (payload, octets) = match source {
            Source::Work(seq) => {
                let octets = queue.payload(seq).get(at..at + len);
                (Payload::Work { seq, at, len }, octets.expect("a message is segmented by its own length"))
            }
            // RFC 5040 §5.2.1 [5040-29]
            Source::Window(request) if request.header.len > 0 => {
                let key = RemoteKey(request.header.source_stag);
                let offset = request.header.source_to.wrapping_add(u64::from(segment.offset));
                // The first segment's turn is the whole source's (RFC 5040 §7.2): nothing leaves of a Read that ends outside.
                let judged = if at == 0 { request.header.len as usize } else { len };
                // RFC 5040 §5.2.1, §7.2 [5040-28]
                match windows.source(scope, key, offset, judged) {
                    Ok(octets) => (
                        Payload::Window { key, offset, len },
                        octets.get(..len).expect("a segment is no longer than its message"),
                    ),
                    Err(refusal) => {
                        transmit.active = None;
                        return Err(stream.refuse_read(&request, segment.offset, fault(refusal)));
                    }
                }
            }
            _ => (Payload::Nothing, &[][..]),
        };
        let framed = transmit.framer.frame::<Crc, _>(&segment.header, [octets]);
        let mut ends = None;
        if segment.last {
            transmit.active = None;
            ends = if let Source::Work(seq) = source { Some(seq) } else { None };
        }
        transmit.push(segment.header, framed, payload, ends);
        Ok(())
    }
}

/// What the next Read Request of the work request `seq` asks for. The sink's STag names the work request; peers cannot
/// write to it, because windows are another table.
fn read_header(seq: u64, read: &Read, queue: &SendQueue) -> ReadHeader {
    // RFC 5040 §5.2.1 [5040-26]
    let span = queue.next_span().expect("a Read that is not begun has spans");
    ReadHeader {
        sink_stag: 1 << 31 | seq as u32,
        sink_to: read.ask_at as u64,
        len: span.len,
        source_stag: span.key.0,
        source_to: span.offset,
    }
}

pub(crate) const fn fault(refusal: Refusal) -> TaggedFault {
    match refusal {
        Refusal::InvalidKey => TaggedFault::InvalidStag,
        Refusal::OtherScope => TaggedFault::NotAssociated,
        Refusal::Access => TaggedFault::Access,
        Refusal::Wrap => TaggedFault::Wrap,
        Refusal::Bounds => TaggedFault::Bounds,
    }
}

// Sending.
impl Link {
    /// Hands FPDUs that wait to the kernel, once.
    fn send(&mut self, socket: &OwnedFd, scope: Scope, shared: &mut Shared) -> Sent {
        let Shared { windows, stats, scratch, .. } = shared;
        let (moved, offered) = if self.transmit.has_markers {
            self.send_marked(socket, scope, windows, scratch, stats)
        } else {
            self.send_gathered(socket, scope, windows, stats)
        };
        let taken = match moved {
            Moved::Octets(taken) => taken,
            Moved::WouldBlock | Moved::End => 0,
            Moved::Broken(_) => return Sent::Broken,
        };
        self.consume(taken, stats);
        if taken < offered {
            stats.sendmsg_short += 1;
            return Sent::Part;
        }
        Sent::All
    }

    /// Header, payload and trailer of each FPDU from where they lie.
    fn send_gathered(
        &self,
        socket: &OwnedFd,
        scope: Scope,
        windows: &mut Windows,
        stats: &mut Stats,
    ) -> (Moved, usize) {
        let (window, whole) = self.transmit.window_run(scope, windows);
        // Pieces that are not used cost as much as those that are.
        if whole <= FEW {
            self.send_pieces::<{ 3 * FEW }>(socket, &window, whole, stats)
        } else {
            self.send_pieces::<PIECES>(socket, &window, whole, stats)
        }
    }

    fn send_pieces<const N: usize>(
        &self,
        socket: &OwnedFd,
        window: &WindowRun<'_>,
        whole: usize,
        stats: &mut Stats,
    ) -> (Moved, usize) {
        let mut pieces = [IoSlice::new(&[]); N];
        let (used, offered) = self.gather(window, whole, &mut pieces);
        let pieces = pieces.get(..used).unwrap_or_default();
        (sock::send(socket, pieces, self.transmit.ends_segments, stats), offered)
    }

    /// The pieces of the first `whole` FPDUs that the kernel does not have, and their number and octets.
    fn gather<'a>(
        &'a self,
        window: &WindowRun<'a>,
        whole: usize,
        pieces: &mut [IoSlice<'a>],
    ) -> (usize, usize) {
        let mut free = pieces.iter_mut();
        let (mut skip, mut offered, mut used) = (self.transmit.sent, 0, 0);
        for fpdu in self.transmit.fpdus.iter().take(whole) {
            let payload = window.octets(fpdu, &self.queue);
            for octets in [&fpdu.header[..], payload, &fpdu.framed.trailer[..]] {
                let dropped = skip.min(octets.len());
                skip -= dropped;
                let octets = octets.get(dropped..).unwrap_or_default();
                if !octets.is_empty()
                    && let Some(piece) = free.next()
                {
                    *piece = IoSlice::new(octets);
                    offered += octets.len();
                    used += 1;
                }
            }
        }
        (used, offered)
    }
}

// Sending, continued: with markers, and what the kernel took.
impl Link {
    /// Markers lie every 512 octets: the FPDUs are put together in one piece.
    fn send_marked(
        &self,
        socket: &OwnedFd,
        scope: Scope,
        windows: &mut Windows,
        scratch: &mut Vec<u8>,
        stats: &mut Stats,
    ) -> (Moved, usize) {
        let (window, whole) = self.transmit.window_run(scope, windows);
        scratch.clear();
        for fpdu in self.transmit.fpdus.iter().take(whole) {
            let payload = window.octets(fpdu, &self.queue);
            for part in fpdu.framed.parts() {
                match part {
                    Part::Marker(marker) => scratch.extend_from_slice(&marker),
                    Part::Header(range) => {
                        scratch.extend_from_slice(fpdu.header.get(range).unwrap_or_default())
                    }
                    Part::Payload(range) => {
                        stats.octets_gathered += range.len() as u64;
                        scratch.extend_from_slice(payload.get(range).unwrap_or_default());
                    }
                    Part::Trailer(range) => {
                        scratch.extend_from_slice(fpdu.framed.trailer.get(range).unwrap_or_default());
                    }
                }
            }
        }
        let rest = scratch.get(self.transmit.sent..).unwrap_or_default();
        (sock::send(socket, &[IoSlice::new(rest)], self.transmit.ends_segments, stats), rest.len())
    }

    /// The kernel took `octets` more: what is sent whole is done.
    fn consume(&mut self, octets: usize, stats: &mut Stats) {
        let Self { queue, transmit, .. } = self;
        transmit.sent += octets;
        while let Some(fpdu) = transmit.fpdus.front() {
            // RFC 5040 §5.5 [5040-45]
            if transmit.sent < fpdu.wire_len {
                return;
            }
            transmit.sent -= fpdu.wire_len;
            transmit.queued -= fpdu.wire_len;
            stats.fpdus_out += 1;
            if let Some(seq) = fpdu.ends {
                queue.complete(seq, Status::Success, None);
            }
            transmit.fpdus.pop_front();
        }
        debug_assert_eq!((transmit.sent, transmit.queued), (0, 0), "nothing waits, nothing is half sent");
    }
}

/// The part of one window that a system call sends from.
struct WindowRun<'a> {
    offset: u64,
    octets: &'a [u8],
}

impl<'a> WindowRun<'a> {
    /// The payload of `fpdu`, which is in this run when it comes from a window.
    fn octets(&self, fpdu: &Fpdu, queue: &'a SendQueue) -> &'a [u8] {
        match fpdu.payload {
            Payload::Nothing => &[],
            Payload::Work { seq, at, len } => {
                queue.payload(seq).get(at..at + len).expect("work stays until its last FPDU is sent")
            }
            Payload::Window { offset, len, .. } => {
                let at = (offset - self.offset) as usize;
                self.octets.get(at..at + len).expect("the run spans the FPDUs it was made for")
            }
        }
    }
}

impl Transmit {
    /// The octets of a window that the FPDUs waiting carry, and how many FPDUs can be sent with it: a table of windows
    /// lends one window at a time.
    fn window_run<'w>(&self, scope: Scope, windows: &'w mut Windows) -> (WindowRun<'w>, usize) {
        let mut run: Option<(RemoteKey, u64, u64)> = None;
        let mut whole = 0;
        for fpdu in &self.fpdus {
            if let Payload::Window { key, offset, len } = fpdu.payload {
                run = match run {
                    None => Some((key, offset, offset + len as u64)),
                    Some((of, start, end)) if of == key && end == offset => {
                        Some((of, start, end + len as u64))
                    }
                    Some(_) => break,
                };
            }
            whole += 1;
        }
        let Some((key, offset, end)) = run else {
            return (WindowRun { offset: 0, octets: &[] }, whole);
        };
        let octets = windows.source(scope, key, offset, (end - offset) as usize);
        (WindowRun { offset, octets: octets.expect("a window stays while FPDUs carry it") }, whole)
    }
}

/// Sends what may be sent and the kernel takes. Reports what is done.
pub(crate) fn flush(conn: &mut Conn, shared: &mut Shared) {
    let mut quantum = QUANTUM;
    conn.wants_out = false;
    if conn.output.len > 0 {
        match conn.send_output(shared) {
            Sent::All if conn.link.as_ref().is_some_and(|link| link.is_quiet()) => return,
            Sent::All => {}
            Sent::Part => conn.wants_out = true,
            Sent::Broken => return close::broken(conn, shared, FabricFault::Lost),
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
            Sent::All => quantum = quantum.saturating_sub(before),
            Sent::Part => {
                conn.wants_out = true;
                break;
            }
            Sent::Broken => return close::broken(conn, shared, FabricFault::Lost),
        }
        if quantum == 0 {
            // The socket is still writable, so the next look at it goes on.
            conn.wants_out =
                !link.transmit.fpdus.is_empty() || link.transmit.active.is_some() || link.has_more();
            break;
        }
    }
    let Some(link) = &mut conn.link else { return };
    link.transmit.give_back(&mut shared.spare_fpdus);
    report(link, conn.qp, shared);
    if let State::AwaitTerminateSent { cause } = conn.state
        && link.transmit.fpdus.is_empty()
    {
        close::end_gently(conn, shared, cause);
    }
}

impl Link {
    /// Whether nothing waits to be sent or done.
    fn is_quiet(&self) -> bool {
        let Transmit { active, fpdus, .. } = &self.transmit;
        active.is_none() && fpdus.is_empty() && !self.has_more()
    }

    /// Whether a message could begin.
    fn has_more(&self) -> bool {
        self.stream.next_read().is_some() || self.queue.next().is_some()
    }
}

/// Reports the work that ended, in order.
pub(crate) fn report(link: &mut Link, qp: Qp, shared: &mut Shared) {
    while let Some(event) = link.queue.poll(qp) {
        shared.emit(event);
    }
    link.queue.give_back(&mut shared.spare_works);
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_pools::{Access, Buf, Class, Pool, table::Key};
    use stag_protocol::iwarp::{mpa::Revision, rdmap::Peer, stream::Side};
    use stag_verbs::Tag;

    const QP: Qp = Qp(Key::from_bits(1));

    fn negotiated() -> Negotiated {
        Negotiated {
            side: Side::Initiator,
            revision: Revision::Two,
            crc: true,
            send_markers: false,
            ird: 8,
            ord: 8,
            rtr: None,
            peer: Peer::Hardware,
            offered: None,
        }
    }

    fn link(mulpdu: u16) -> Link {
        Link {
            stream: Stream::new(&negotiated()),
            crc: true,
            peer: Peer::Hardware,
            may_read: true,
            queue: SendQueue::new(32),
            transmit: Transmit::new(&negotiated(), mulpdu, false),
            landing: None,
            is_amid_tagged: false,
            blamed: None,
        }
    }

    fn buf(pool: &Pool, octets: &[u8]) -> Buf {
        let mut buf = pool.take(octets.len().max(1)).unwrap();
        buf.append(octets).unwrap();
        buf
    }

    /// All octets that wait, as the kernel would get them.
    fn waiting(link: &Link, windows: &mut Windows) -> Vec<u8> {
        let (window, whole) = link.transmit.window_run(QP.scope(), windows);
        let mut pieces = [IoSlice::new(&[]); PIECES];
        let (used, offered) = link.gather(&window, whole, &mut pieces);
        let octets: Vec<u8> = pieces[..used].iter().flat_map(|piece| piece.iter().copied()).collect();
        assert_eq!(octets.len(), offered);
        octets
    }

    /// A Send, a Write and a Read Request of the peer, each in several FPDUs.
    fn loaded(windows: &mut Windows) -> Link {
        let pool = Pool::new(&[Class { slot_len: 4096, count: 4 }]).unwrap();
        let octets: Vec<u8> = (0..700_u32).map(|i| (i * 7) as u8).collect();
        let window =
            windows.bind(QP.scope(), buf(&pool, &octets).expose(0..700, Access::RemoteRead)).unwrap();
        let mut link = link(200);
        let to = RemoteSpan { key: RemoteKey(7), offset: 9, len: 700 };
        link.queue.post(Tag(1), Op::Send { message: buf(&pool, &octets[..301]), invalidate: None }, &[]);
        link.queue.post(Tag(2), Op::Write { source: buf(&pool, &octets).freeze(), to }, &[]);
        link.queue.ring();
        let header = ReadHeader {
            sink_stag: 1,
            sink_to: 2,
            len: 700,
            source_stag: window.key.0,
            source_to: window.offset,
        };
        let request = stag_protocol::iwarp::ddp::Untagged {
            last: true,
            control: 0x41,
            invalidate: 0,
            queue: 1,
            msn: 1,
            mo: 0,
        };
        let ulpdu = [&request.emit()[..], &header.emit()].concat();
        link.stream.handle_ulpdu(&ulpdu).unwrap();
        link.fill(QP.scope(), windows).unwrap();
        link
    }

    #[test]
    fn a_send_goes_on_at_every_octet_where_the_kernel_stopped() {
        let whole = {
            let mut windows = Windows::new(4, [1; 32]);
            waiting(&loaded(&mut windows), &mut windows)
        };
        let mut windows = Windows::new(4, [1; 32]);
        let mut link = loaded(&mut windows);
        let mut stats = Stats::default();
        let mut tags = Vec::new();
        for sent in 0..whole.len() {
            assert_eq!(waiting(&link, &mut windows), whole[sent..], "behind {sent} octets");
            let ends = link.transmit.fpdus.front().filter(|fpdu| link.transmit.sent + 1 == fpdu.wire_len);
            let ends = ends.is_some_and(|fpdu| fpdu.ends.is_some());
            link.consume(1, &mut stats);
            // Work is complete with the last octet that the kernel takes of it, not before.
            let before = tags.len();
            while let Some(stag_verbs::Event::Completed { tag, status, .. }) = link.queue.poll(QP) {
                assert_eq!(status, Status::Success);
                tags.push(tag);
            }
            assert_eq!(tags.len() > before, ends, "behind {} octets", sent + 1);
        }
        assert!(link.transmit.fpdus.is_empty());
        assert_eq!(tags, [Tag(1), Tag(2)]);
        let mut rest = &whole[..];
        while let Ok(fpdu::Parsed::Fpdu { consumed, .. }) = fpdu::parse::<Crc>(rest, true) {
            rest = &rest[consumed..];
        }
        assert!(rest.is_empty(), "what is sent is whole FPDUs with the right CRCs");
    }

    #[test]
    fn answers_leave_room_for_work_and_work_for_answers() {
        let mut windows = Windows::new(4, [1; 32]);
        let pool = Pool::new(&[Class { slot_len: 64, count: 32 }]).unwrap();
        let mut link = link(200);
        for tag in 0..4 {
            link.queue.post(Tag(tag), Op::Send { message: buf(&pool, b"work"), invalidate: None }, &[]);
        }
        link.queue.ring();
        for msn in 1..=8 {
            let request = stag_protocol::iwarp::ddp::Untagged {
                last: true,
                control: 0x41,
                invalidate: 0,
                queue: 1,
                msn,
                mo: 0,
            };
            let ulpdu = [&request.emit()[..], &ReadHeader::default().emit()].concat();
            link.stream.handle_ulpdu(&ulpdu).unwrap();
        }
        link.fill(QP.scope(), &mut windows).unwrap();
        let order: String =
            link.transmit.fpdus.iter().map(|fpdu| if fpdu.ends.is_some() { 'w' } else { 'a' }).collect();
        assert_eq!(order, "aaaawaaaawww");
    }
}
