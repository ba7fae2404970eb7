//! The medium: data in flight between the ends, and the times at which it is due.

use crate::{
    Faults, Port,
    trace::{Happened, Trace},
};
use stag_pools::{Buf, Extent, RemoteKey};
use stag_verbs::{Cause, FabricFault, Qp, RemoteSpan, Time};
use std::{collections::VecDeque, ops::Deref, ops::Range};

/// Octets that a message in flight carries.
#[derive(Debug)]
pub(crate) enum SimPayload {
    /// The sender's buffer, which goes back with the acknowledgement.
    Buf(Buf),
    /// The sender's extent, dropped before the acknowledgement.
    Extent(Extent),
    /// A copy: the sender has its memory back already.
    Copy(Vec<u8>),
}

impl Deref for SimPayload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Buf(buf) => buf,
            Self::Extent(extent) => extent,
            Self::Copy(octets) => octets,
        }
    }
}

/// A Read in flight, which takes its sink along.
#[derive(Debug)]
pub(crate) struct SimRead {
    pub(crate) sink: Buf,
    pub(crate) at: usize,
    pub(crate) from: Vec<RemoteSpan>,
}

#[derive(Debug)]
pub(crate) enum Parcel {
    ConnectRequest(Vec<u8>),
    Accepted(Vec<u8>),
    Rejected(Vec<u8>),
    Send(SimPayload, Option<RemoteKey>),
    Write(SimPayload, RemoteSpan),
    ReadRequest(SimRead),
    ReadResponse(SimRead),
    /// The connection ends; a Read with this sequence number is at fault.
    Close(Cause, Option<u64>),
    /// Its sender took it back.
    Void,
}

impl Parcel {
    fn name(&self) -> &'static str {
        match self {
            Self::ConnectRequest(_) => "ConnectRequest",
            Self::Accepted(_) => "Accepted",
            Self::Rejected(_) => "Rejected",
            Self::Send(_, None) => "Send",
            Self::Send(_, Some(_)) => "SendInvalidate",
            Self::Write(..) => "Write",
            Self::ReadRequest(_) => "ReadRequest",
            Self::ReadResponse(_) => "ReadResponse",
            Self::Close(..) => "Close",
            Self::Void => "Void",
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::ConnectRequest(octets) | Self::Accepted(octets) | Self::Rejected(octets) => {
                octets.len()
            }
            Self::Send(payload, _) | Self::Write(payload, _) => payload.len(),
            Self::ReadRequest(read) | Self::ReadResponse(read) => {
                read.from.iter().map(|span| span.len as usize).sum()
            }
            Self::Close(..) | Self::Void => 0,
        }
    }
}

/// A parcel in flight to one end.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) due: Time,
    /// The work request, counted from 0 on its connection: of the sender, and of the receiver for a
    /// Read Response.
    pub(crate) seq: u64,
    pub(crate) what: Parcel,
}

/// The fabric is done with a Send or a Write.
#[derive(Debug)]
pub(crate) struct Ack {
    pub(crate) due: Time,
    pub(crate) seq: u64,
    /// A Send's message.
    pub(crate) buf: Option<Buf>,
}

/// One side of a connection, as the medium sees it.
#[derive(Debug)]
pub(crate) struct LinkSide {
    /// Index of the end that this side belongs to.
    pub(crate) end: usize,
    /// Known from the connect request on.
    pub(crate) qp: Option<Qp>,
    /// In flight to this side, in order.
    pub(crate) inbound: VecDeque<InFlight>,
    /// Read Requests that arrived here and whose data was not fetched yet.
    pub(crate) reading: VecDeque<InFlight>,
    /// Acknowledgements of the fabric that this side has not seen yet.
    pub(crate) acks: VecDeque<Ack>,
    /// Time at which this side notices that the connection broke.
    pub(crate) lost_at: Option<Time>,
    /// Nothing arrives here any more.
    pub(crate) deaf: bool,
    /// This side has ended.
    pub(crate) gone: bool,
}

impl LinkSide {
    fn new(end: usize, qp: Option<Qp>, room: usize) -> Self {
        Self {
            end,
            qp,
            inbound: VecDeque::with_capacity(2 * room + 8),
            reading: VecDeque::with_capacity(room),
            acks: VecDeque::with_capacity(room),
            lost_at: None,
            deaf: false,
            gone: false,
        }
    }

    /// Returns the time of the next event on this side.
    pub(crate) fn due(&self) -> Option<Time> {
        let inbound = self.inbound.front().filter(|_| !self.deaf).map(|item| item.due);
        let reading = self.reading.front().map(|item| item.due);
        let ack = self.acks.front().map(|ack| ack.due);
        [inbound, reading, ack, self.lost_at].into_iter().flatten().min()
    }
}

/// A connection, or one to be: the connector's side first.
#[derive(Debug)]
pub(crate) struct SimLink {
    pub(crate) sides: [LinkSide; 2],
}

/// One side of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SideId {
    pub(crate) link: usize,
    /// 0 for the connector, 1 for the acceptor.
    pub(crate) side: usize,
}

impl SideId {
    pub(crate) const fn other(self) -> Self {
        Self { link: self.link, side: 1 - self.side }
    }
}

/// State of an end in the simulated network.
#[derive(Debug)]
pub(crate) struct EndEntry {
    name: &'static str,
    listening: Vec<Port>,
    pub(crate) places: Vec<SideId>,
    /// Nothing happens there before.
    pub(crate) due: Option<Time>,
    send_queue: usize,
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, and the same on every machine.
#[derive(Debug)]
struct SimRandom(u64);

impl SimRandom {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// Copies of this length or less are made without allocating.
const SCRATCH_LEN: usize = 4096;
const SCRATCH: usize = 64;
/// Octets of the longest message that is sent as a copy when that is asked for.
const INLINE_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Net {
    seed: u64,
    random: SimRandom,
    faults: Faults,
    now: Time,
    steps: u64,
    ends: Vec<EndEntry>,
    links: Vec<Option<SimLink>>,
    free: Vec<usize>,
    scratch: Vec<Vec<u8>>,
    trace: Trace,
}

impl Net {
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        Self {
            seed,
            random: SimRandom(seed),
            faults,
            now: Time(0),
            steps: 0,
            ends: Vec::new(),
            links: Vec::new(),
            free: Vec::new(),
            scratch: (0..SCRATCH).map(|_| Vec::with_capacity(SCRATCH_LEN)).collect(),
            trace: Trace::new(),
        }
    }

    pub(crate) fn add_end(
        &mut self,
        name: &'static str,
        connections: usize,
        send_queue: usize,
    ) -> usize {
        let places = Vec::with_capacity(connections);
        self.ends.push(EndEntry { name, listening: Vec::new(), places, due: None, send_queue });
        self.ends.len() - 1
    }

    pub(crate) const fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) const fn now(&self) -> Time {
        self.now
    }

    pub(crate) const fn steps(&self) -> u64 {
        self.steps
    }

    pub(crate) const fn faults(&self) -> &Faults {
        &self.faults
    }

    pub(crate) fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    pub(crate) fn trace(&self) -> String {
        self.trace.to_string()
    }

    pub(crate) fn next_due(&self) -> Option<Time> {
        self.ends.iter().filter_map(|entry| entry.due).min()
    }

    pub(crate) fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    pub(crate) fn note(&mut self, end: usize, link: usize, happened: Happened) {
        let name = self.entry(end).name;
        self.trace.push(self.now, name, link, happened);
    }

    /// 32 octets for a table of windows.
    pub(crate) fn key_seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        seed.chunks_exact_mut(8)
            .for_each(|word| word.copy_from_slice(&self.random.next().to_le_bytes()));
        seed
    }

    pub(crate) fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.random.below(1_000_000) < u64::from(per_million)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound.max(1) as u64) as usize
    }

    /// A time in `range` from the present one.
    pub(crate) fn after(&mut self, range: Range<u64>) -> Time {
        let late = range.start + self.random.below(range.end.saturating_sub(range.start).max(1));
        Time(self.now.0.saturating_add(late))
    }

    pub(crate) fn entry(&mut self, end: usize) -> &mut EndEntry {
        self.ends.get_mut(end).expect("ends are never removed")
    }

    /// Something happens at `end` at `due`.
    pub(crate) fn wake(&mut self, end: usize, due: Time) {
        if let Some(entry) = self.ends.get_mut(end) {
            entry.due = Some(entry.due.map_or(due, |earlier| earlier.min(due)));
        }
    }

    pub(crate) fn listen(&mut self, end: usize, at: Port) -> Result<Port, FabricFault> {
        let taken = |port: &Port| self.ends.iter().any(|entry| entry.listening.contains(port));
        let port = match at {
            Port(0) => {
                (1..=u16::MAX).map(Port).find(|port| !taken(port)).ok_or(FabricFault::Exhausted)?
            }
            port if taken(&port) => return Err(FabricFault::AddressInUse),
            port => port,
        };
        self.entry(end).listening.push(port);
        Ok(port)
    }

    pub(crate) fn stop_listening(&mut self, end: usize) {
        self.entry(end).listening.clear();
    }

    pub(crate) fn is_listening(&mut self, end: usize) -> bool {
        !self.entry(end).listening.is_empty()
    }

    /// Makes a connection from `end` towards the listener at `to`. False: none, or it is refused.
    pub(crate) fn link(&mut self, end: usize, to: Port) -> (SideId, bool) {
        let listener = self.ends.iter().position(|entry| entry.listening.contains(&to));
        let listener = if self.chance(self.faults.refused) { None } else { listener };
        let room = |entry: Option<&EndEntry>| entry.map_or(0, |entry| entry.send_queue);
        let room = room(self.ends.get(end)).max(room(listener.and_then(|l| self.ends.get(l))));
        let mut far = LinkSide::new(listener.unwrap_or(usize::MAX), None, room);
        far.gone = listener.is_none();
        let link = SimLink { sides: [LinkSide::new(end, None, room), far] };
        let index = self.free.pop().unwrap_or(self.links.len());
        match self.links.get_mut(index) {
            Some(place) => *place = Some(link),
            None => self.links.push(Some(link)),
        }
        let place = SideId { link: index, side: 0 };
        self.entry(end).places.push(place);
        if let Some(listener) = listener {
            self.entry(listener).places.push(place.other());
        }
        (place, listener.is_some())
    }

    pub(crate) fn side(&mut self, place: SideId) -> &mut LinkSide {
        let link = self.links.get_mut(place.link).and_then(Option::as_mut);
        link.and_then(|link| link.sides.get_mut(place.side))
            .expect("a link lives until both sides are gone")
    }

    /// Sends `what` from `place` to the other side.
    pub(crate) fn send(&mut self, place: SideId, seq: u64, what: Parcel) {
        let due = self.after(self.faults.delay.clone());
        let far = self.side(place.other());
        let due = far.inbound.back().map_or(due, |ahead| ahead.due.max(due));
        far.inbound.push_back(InFlight { due, seq, what });
        let (end, hears) = (far.end, !far.deaf && !far.gone);
        if hears {
            self.wake(end, due);
        }
    }

    /// Reports to the side at `place` that the fabric is done with its work request.
    pub(crate) fn acknowledge(&mut self, place: SideId, seq: u64, buf: Option<Buf>) {
        let due = self.after(self.faults.completion_delay.clone());
        let side = self.side(place);
        let due = side.acks.back().map_or(due, |ahead| ahead.due.max(due));
        side.acks.push_back(Ack { due, seq, buf });
        let end = side.end;
        self.wake(end, due);
    }

    /// The next thing that arrives at `place`, unless the connection breaks there.
    pub(crate) fn arrive(&mut self, place: SideId) -> Option<InFlight> {
        let now = self.now;
        let side = self.side(place);
        let until = side.lost_at.map_or(now, |lost| lost.min(now));
        if side.deaf || side.inbound.front()?.due > until {
            return None;
        }
        let (step, lost, at) = (self.steps, self.faults.lost, self.faults.lost_at);
        self.steps += 1;
        if self.chance(lost) || at == Some(step) {
            self.side(place).deaf = true;
            self.break_link(place);
            return None;
        }
        let item = self.side(place).inbound.pop_front()?;
        let end = self.side(place).end;
        self.note(end, place.link, Happened::Arrived(item.what.name(), item.what.len()));
        Some(item)
    }

    /// The connection is lost; both sides notice in their own time.
    pub(crate) fn break_link(&mut self, place: SideId) {
        for place in [place, place.other()] {
            let due = self.after(self.faults.delay.clone());
            let side = self.side(place);
            if side.gone || side.lost_at.is_some() {
                continue;
            }
            side.lost_at = Some(due);
            let end = side.end;
            self.wake(end, due);
            self.note(end, place.link, Happened::Broke);
        }
    }

    /// Ends the side at `place`. The link goes with its second side.
    pub(crate) fn leave(&mut self, place: SideId) {
        let side = self.side(place);
        side.gone = true;
        let end = side.end;
        self.entry(end).places.retain(|other| *other != place);
        if self.side(place.other()).gone {
            if let Some(link) = self.links.get_mut(place.link) {
                *link = None;
            }
            self.free.push(place.link);
        }
    }

    /// Returns the payload that travels: `payload` itself, or a copy if the sender gets its memory
    /// back early.
    pub(crate) fn load(
        &mut self,
        place: SideId,
        seq: u64,
        payload: SimPayload,
        early: u32,
    ) -> SimPayload {
        if payload.len() > SCRATCH_LEN || self.scratch.is_empty() || !self.chance(early) {
            return payload;
        }
        let copy = self.copy(&payload);
        match payload {
            SimPayload::Buf(buf) => self.acknowledge(place, seq, Some(buf)),
            SimPayload::Extent(extent) => {
                drop(extent);
                self.acknowledge(place, seq, None);
            }
            SimPayload::Copy(_) => unreachable!("what is posted is not a copy"),
        }
        copy
    }

    /// Sends a copy of `octets` from `place` at once, if they are few, the way has room, and chance
    /// has it so.
    pub(crate) fn send_inline(
        &mut self,
        place: SideId,
        octets: &[u8],
        invalidate: Option<RemoteKey>,
    ) -> bool {
        let inbound = &self.side(place.other()).inbound;
        let has_room = inbound.len() < inbound.capacity() && !self.scratch.is_empty();
        if !has_room || octets.len() > INLINE_MAX || !self.chance(self.faults.inline) {
            return false;
        }
        let copy = self.copy(octets);
        // A Send without a completion needs no number.
        self.send(place, u64::MAX, Parcel::Send(copy, invalidate));
        true
    }

    pub(crate) fn copy(&mut self, octets: &[u8]) -> SimPayload {
        let mut copy = self.scratch.pop().unwrap_or_else(|| Vec::with_capacity(SCRATCH_LEN));
        copy.extend_from_slice(octets);
        SimPayload::Copy(copy)
    }

    pub(crate) fn give_copy(&mut self, mut copy: Vec<u8>) {
        copy.clear();
        if self.scratch.len() < SCRATCH {
            self.scratch.push(copy);
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("stag-sim: seed {}, {} arrivals", self.seed, self.steps);
        }
    }
}
