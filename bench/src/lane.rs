//! The least work that a NULL call over shared memory needs: a lane for short calls of
//! RPC-over-RDMA version 1 and nothing else, to compare the engine's count with
//! (docs/PERFORMANCE.md).
//!
//! Its octets, checks, credits and counters are those of the engine's short way, and each call is
//! kept until its reply. It has one kind of message, one peer for each number, one fabric, apps
//! that answer at once, and no way to any of the rest: nothing is looked up twice and nothing is
//! asked whether it is something else.

use stag_echo::{PROGRAM, VERSION};
use stag_engine::clock::Clock;
use std::{
    hint::black_box,
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
};

/// Words of a ring, and of a line of memory.
const RING: u64 = 1 << 13;
const LINE: u64 = 8;
/// Octets of the transport header (RFC 8166 §3), of a NULL's call, and of its reply (RFC 5531 §9).
const HEADER: usize = 28;
const CALL: usize = HEADER + 40;
const REPLY: usize = HEADER + 24;
const CALL_WORDS: usize = CALL.div_ceil(8);
const REPLY_WORDS: usize = REPLY.div_ceil(8);
/// Places for calls.
const PLACES: u32 = 64;
/// Credits of a connection.
const CREDITS: u32 = 32;
/// The connection that is used, of sixteen.
const LANE: usize = 3;
/// Nanoseconds that a call may take.
const TIMEOUT: u64 = 10_000_000_000;
/// The low octet of the word in front of a message.
const MESSAGE: u64 = 5;

/// One direction, in memory of both ends.
struct LaneRing {
    words: Box<[AtomicU64]>,
    /// Read up to here.
    head: AtomicU64,
    asleep: AtomicU64,
}

impl LaneRing {
    fn new() -> Rc<Self> {
        let words = (0..RING).map(|_| AtomicU64::new(0)).collect();
        Rc::new(Self { words, head: AtomicU64::new(0), asleep: AtomicU64::new(0) })
    }

    #[inline(always)]
    fn word(&self, at: u64) -> &AtomicU64 {
        self.words.get((at % RING) as usize).expect("a place in the ring")
    }

    /// The words from `at` to the end.
    #[inline(always)]
    fn from(&self, at: u64) -> &[AtomicU64] {
        self.words.get((at % RING) as usize..).unwrap_or_default()
    }
}

/// Words that a message of `len` octets takes, with the one in front of it.
#[inline(always)]
const fn span_of(len: usize) -> u64 {
    (1 + len.div_ceil(8) as u64).next_multiple_of(LINE)
}

/// A connection: all that its messages need.
#[derive(Clone)]
struct Lane {
    version: u32,
    is_live: bool,
    peer: u32,
    send_max: usize,
    receive_max: usize,
    in_flight: u32,
    limit: u32,
    outstanding: u32,
    allowed: u32,
    grant: u32,
    replies: u32,
    wanted: u32,
    called_at: u64,
}

/// A call that was sent, with its octets for a retransmission.
#[derive(Clone)]
struct LaneSlot {
    xid: u32,
    is_sent: bool,
    lane: u32,
    token: u64,
    deadline: u64,
    octets: [u8; 192],
}

/// Counters of an end.
#[derive(Default)]
struct LaneStats {
    messages: [u64; 2],
    octets: [u64; 2],
    calls: u64,
    replies: u64,
    passes: u64,
}

/// One end: a server that answers NULL, or its caller.
struct LaneEnd {
    rx: Rc<LaneRing>,
    tx: Rc<LaneRing>,
    /// Read, and said to be read; written, and known to be read.
    read: u64,
    told: u64,
    written: u64,
    known: u64,
    lanes: Vec<Lane>,
    slots: Vec<LaneSlot>,
    free: Vec<u32>,
    latest: u32,
    front: Box<[u8]>,
    stats: LaneStats,
    now: u64,
    next_look: u64,
    unheard: bool,
    /// Outcomes: good ones, others, and the token of the latest.
    done: u64,
    broken: u64,
    last: u64,
}

#[inline(always)]
fn words<const N: usize>(octets: &[u8]) -> Option<[u32; N]> {
    let (chunks, _) = octets.get(..4 * N)?.as_chunks::<4>();
    let chunks: &[[u8; 4]; N] = chunks.try_into().ok()?;
    Some(chunks.map(u32::from_be_bytes))
}

#[inline(always)]
fn put<const N: usize>(octets: &mut [u8], values: [u32; N]) -> Option<()> {
    let (room, _) = octets.as_chunks_mut::<4>();
    *room.first_chunk_mut::<N>()? = values.map(u32::to_be_bytes);
    Some(())
}

/// Copies whole words out of a ring.
#[inline(always)]
fn copy_out<const WORDS: usize>(from: &[AtomicU64], to: &mut [u8]) -> Option<()> {
    let from: &[AtomicU64; WORDS] = from.first_chunk()?;
    let (to, _) = to.as_chunks_mut::<8>();
    let to: &mut [[u8; 8]; WORDS] = to.first_chunk_mut()?;
    for (octets, word) in to.iter_mut().zip(from) {
        *octets = word.load(Ordering::Relaxed).to_le_bytes();
    }
    Some(())
}

impl LaneEnd {
    fn new(rx: &Rc<LaneRing>, tx: &Rc<LaneRing>) -> Self {
        let lane = Lane {
            version: 1,
            is_live: true,
            peer: LANE as u32,
            send_max: 4_068,
            receive_max: 4_068,
            in_flight: 0,
            limit: 1,
            outstanding: 0,
            allowed: CREDITS,
            grant: CREDITS,
            replies: 0,
            wanted: 0,
            called_at: 0,
        };
        let slot =
            LaneSlot { xid: 0, is_sent: false, lane: 0, token: 0, deadline: 0, octets: [0; 192] };
        Self {
            rx: Rc::clone(rx),
            tx: Rc::clone(tx),
            read: 0,
            told: 0,
            written: 0,
            known: 0,
            lanes: vec![lane; 16],
            slots: vec![slot; PLACES as usize],
            free: (0..PLACES).rev().collect(),
            latest: 7,
            front: vec![0; 4_096].into_boxed_slice(),
            stats: LaneStats::default(),
            now: 0,
            next_look: u64::MAX,
            unheard: false,
            done: 0,
            broken: 0,
            last: 0,
        }
    }

    /// Makes a call, which leaves at once.
    #[inline(never)]
    fn call(&mut self, token: u64) -> Option<()> {
        let lane = self.lanes.get_mut(LANE)?;
        if !lane.is_live || lane.in_flight >= lane.limit || REPLY > lane.receive_max {
            return None;
        }
        let place = self.free.pop()?;
        let slot = self.slots.get_mut(place as usize)?;
        self.latest = self.latest.wrapping_add(1);
        let xid = (self.latest * PLACES) | place;
        put(&mut slot.octets, [xid, lane.version, CREDITS, 0, 0, 0, 0])?;
        put(slot.octets.get_mut(HEADER..)?, [xid, 0, 2, PROGRAM, VERSION, 0, 0, 0, 0, 0])?;
        if CALL > lane.send_max {
            return None;
        }
        lane.in_flight += 1;
        let to = lane.peer;
        (slot.xid, slot.is_sent, slot.lane) = (xid, true, LANE as u32);
        (slot.token, slot.deadline) = (token, self.now + TIMEOUT);
        self.next_look = self.next_look.min(slot.deadline);
        self.stats.calls += 1;
        let octets: &[_; CALL_WORDS] = slot.octets.as_chunks::<8>().0.first_chunk()?;
        send(&self.tx, &mut self.written, &mut self.known, octets, to)?;
        self.count_sent(CALL);
        Some(())
    }

    #[inline(always)]
    fn count_sent(&mut self, octets: usize) {
        self.unheard = true;
        let ([_, messages], [_, sum]) = (&mut self.stats.messages, &mut self.stats.octets);
        *messages += 1;
        *sum += octets as u64;
    }

    /// One pass. Returns true if a message arrived.
    #[inline(never)]
    fn pass(&mut self, now: u64) -> bool {
        self.now = now;
        self.stats.passes += 1;
        let mut events = 0;
        while events < 256 {
            let found = look(&self.rx, &mut self.read, &mut self.told, &mut self.front);
            let Some(Found { to, len }) = found else { break };
            events += 1;
            let ([messages, _], [sum, _]) = (&mut self.stats.messages, &mut self.stats.octets);
            *messages += 1;
            *sum += len as u64;
            if self.handle(to, len).is_none() {
                self.broken += 1;
            }
        }
        if now >= self.next_look {
            self.next_look = black_box(u64::MAX);
        }
        if self.unheard {
            self.unheard = false;
            black_box(self.rx.asleep.load(Ordering::Acquire));
        }
        events > 0
    }

    /// Judges a message, and answers a call.
    #[inline(never)]
    fn handle(&mut self, to: u32, len: usize) -> Option<()> {
        let lane = self.lanes.get_mut(to as usize).filter(|lane| lane.is_live)?;
        let octets = self.front.get(..len)?;
        let [xid, version, credits, procedure, reads, writes, reply, own, kind] = words(octets)?;
        if version != lane.version || (procedure | reads | writes | reply) != 0 || own != xid {
            return None;
        }
        let message = octets.get(HEADER..)?;
        if kind == 1 {
            lane.limit = credits.clamp(1, CREDITS);
            let slot = self.slots.get_mut((xid % PLACES) as usize)?;
            if slot.xid != xid || !slot.is_sent || slot.lane != to {
                return None;
            }
            slot.is_sent = false;
            lane.in_flight -= 1;
            self.free.push(xid % PLACES);
            self.stats.replies += 1;
            let is_good = words::<6>(message)? == [xid, 1, 0, 0, 0, 0];
            (self.done, self.last) = (self.done + u64::from(is_good), slot.token);
            return is_good.then_some(());
        }
        if lane.outstanding >= lane.allowed {
            return None;
        }
        lane.outstanding += 1;
        (lane.wanted, lane.called_at) = (credits, self.now);
        let [_, _, rpc, program, of, null, credential @ ..] = words::<10>(message)?;
        if (rpc, program, of, null) != (2, PROGRAM, VERSION, 0) || credential != [0; 4] {
            return None;
        }
        lane.replies = if lane.replies + 1 >= lane.grant { 0 } else { lane.replies + 1 };
        let mut octets = [0; 8 * REPLY_WORDS];
        put(&mut octets, [xid, lane.version, lane.grant, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0])?;
        lane.outstanding -= 1;
        lane.allowed = lane.allowed.saturating_sub(1).max(lane.grant);
        let to = lane.peer;
        let octets: &[_; REPLY_WORDS] = octets.as_chunks::<8>().0.first_chunk()?;
        send(&self.tx, &mut self.written, &mut self.known, octets, to)?;
        self.stats.replies += 1;
        self.count_sent(REPLY);
        Some(())
    }
}

/// Puts a message into a ring. `None`: it is full.
#[inline(never)]
fn send<const WORDS: usize>(
    ring: &LaneRing,
    written: &mut u64,
    known: &mut u64,
    octets: &[[u8; 8]; WORDS],
    to: u32,
) -> Option<()> {
    let span = (1 + WORDS as u64).next_multiple_of(LINE);
    if *written % RING + span > RING {
        // The rest of the ring is skipped.
        ring.word(0).store(0, Ordering::Release);
        ring.word(*written).store(0xfe, Ordering::Release);
        *written = written.next_multiple_of(RING);
    }
    if *written + span + LINE > *known + RING {
        *known = ring.head.load(Ordering::Acquire);
        (*written + span + LINE <= *known + RING).then_some(())?;
    }
    let room: &[AtomicU64; WORDS] = ring.from(*written + 1).first_chunk()?;
    for (word, octets) in room.iter().zip(octets) {
        word.store(u64::from_le_bytes(*octets), Ordering::Relaxed);
    }
    // The next word is no message before this one says that it is one.
    ring.word(*written + span).store(0, Ordering::Release);
    let len = if WORDS == CALL_WORDS { CALL } else { REPLY };
    let word = (u64::from(to) << 32) | ((len as u64) << 8) | MESSAGE;
    ring.word(*written).store(word, Ordering::Release);
    *written += span;
    Some(())
}

/// A message that was copied to the front.
struct Found {
    to: u32,
    len: usize,
}

/// Takes the message in front of a ring, copied out before anything of it is judged.
#[inline(never)]
fn look(ring: &LaneRing, read: &mut u64, told: &mut u64, front: &mut [u8]) -> Option<Found> {
    let mut word = ring.word(*read).load(Ordering::Acquire);
    if word == 0 {
        return None;
    }
    if word & 0xff != MESSAGE {
        *read = read.next_multiple_of(RING);
        word = ring.word(*read).load(Ordering::Acquire);
        (word & 0xff == MESSAGE).then_some(())?;
    }
    let (to, len) = ((word >> 32) as u32, (word as u32 >> 8) as usize);
    let here = ring.from(*read + 1);
    match len {
        CALL => copy_out::<CALL_WORDS>(here, front)?,
        REPLY => copy_out::<REPLY_WORDS>(here, front)?,
        _ => return None,
    }
    *read += span_of(len);
    if *read - *told >= RING / 4 {
        ring.head.store(*read, Ordering::Release);
        *told = *read;
    }
    Some(Found { to, len })
}

/// Both ends, in one thread.
pub struct Lanes {
    client: LaneEnd,
    server: LaneEnd,
    clock: Clock,
}

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lanes").field("done", &self.client.done).finish_non_exhaustive()
    }
}

impl Default for Lanes {
    fn default() -> Self {
        Self::new()
    }
}

impl Lanes {
    /// Two ends that are connected.
    pub fn new() -> Self {
        let (there, back) = (LaneRing::new(), LaneRing::new());
        let (client, server) = (LaneEnd::new(&back, &there), LaneEnd::new(&there, &back));
        Self { client, server, clock: Clock::start() }
    }

    /// Makes `calls` NULL calls, `depth` of them at a time: the next ones go out when all of these
    /// are answered.
    ///
    /// # Panics
    /// When a call has another outcome than success.
    pub fn calls(&mut self, calls: u64, depth: u64) {
        let mut called = 0;
        while called < calls {
            let (until, begun) = (calls.min(called + depth), called);
            let done = self.client.done;
            while called < until && self.client.call(called).is_some() {
                called += 1;
            }
            while self.client.done < done + called - begun {
                let now = self.clock.now().0;
                self.client.pass(now);
                self.server.pass(now);
            }
        }
        let broken = self.client.broken + self.server.broken;
        assert_eq!((broken, self.client.last), (0, calls - 1), "each call is answered");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_answered_over_several_laps_of_the_ring() {
        for depth in [1, 7, 16, 64] {
            let mut lanes = Lanes::new();
            lanes.calls(5_000, depth);
            assert_eq!((lanes.client.stats.calls, lanes.server.stats.replies), (5_000, 5_000));
            assert_eq!(lanes.client.stats.octets, [5_000 * 52, 5_000 * 68]);
            assert_eq!(lanes.client.stats.messages, [5_000; 2]);
        }
    }

    #[test]
    fn a_message_that_is_none_of_a_call_is_counted_and_answered_by_nothing() {
        let mut lanes = Lanes::new();
        let LaneEnd { tx, written, known, .. } = &mut lanes.client;
        send(tx, written, known, &[[0; 8]; CALL_WORDS], LANE as u32).unwrap();
        send(tx, written, known, &[[0; 8]; CALL_WORDS], 99).unwrap();
        assert!(lanes.server.pass(1));
        assert_eq!((lanes.server.broken, lanes.server.stats.replies), (2, 0));
    }
}
