//! The medium: what is under way between the ends, and when it is due.

use crate::{
    Faults, Port,
    trace::{Happened, Trace},
};
use stag_pools::{Buf, Extent, RemoteKey};
use stag_verbs::{Cause, FabricFault, Qp, RemoteSpan, Time};
use std::{collections::VecDeque, ops::Deref, ops::Range};

/// Octets a message under way carries.
#[derive(Debug)]
pub(crate) enum Payload {
    /// The sender's buffer, which goes back with the acknowledgement.
    Buf(Buf),
    /// The sender's extent, dropped before the acknowledgement.
    Extent(Extent),
    /// A copy: the sender has its memory back already.
    Copy(Vec<u8>),
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Buf(buf) => buf,
            Self::Extent(extent) => extent,
            Self::Copy(octets) => octets,
        }
    }
}

/// A Read under way, which takes its sink along.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) sink: Buf,
    pub(crate) at: usize,
    pub(crate) from: Vec<RemoteSpan>,
}

#[derive(Debug)]
pub(crate) enum What {
    ConnectRequest(Vec<u8>),
    Accepted(Vec<u8>),
    Rejected(Vec<u8>),
    Send(Payload, Option<RemoteKey>),
    Write(Payload, RemoteSpan),
    ReadRequest(Read),
    ReadResponse(Read),
    /// The connection ends; a Read with this sequence number is at fault.
    Close(Cause, Option<u64>),
    /// Its sender took it back.
    Void,
}

impl What {
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
            Self::ConnectRequest(octets) | Self::Accepted(octets) | Self::Rejected(octets) => octets.len(),
            Self::Send(payload, _) | Self::Write(payload, _) => payload.len(),
            Self::ReadRequest(read) | Self::ReadResponse(read) => {
                read.from.iter().map(|span| span.len as usize).sum()
            }
            Self::Close(..) | Self::Void => 0,
        }
    }
}

/// Something on its way to one end.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) due: Time,
    /// The work request, counted from 0 on its connection: of the sender, and of the receiver for a Read Response.
    pub(crate) seq: u64,
    pub(crate) what: What,
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
pub(crate) struct Shore {
    /// Whose side it is.
    pub(crate) end: usize,
    /// Known from the connect request on.
    pub(crate) qp: Option<Qp>,
    /// On its way here, in order.
    pub(crate) inbound: VecDeque<Item>,
    /// Read Requests that arrived here and whose data was not fetched yet.
    pub(crate) reading: VecDeque<Item>,
    /// What the fabric is done with and this side does not know yet.
    pub(crate) acks: VecDeque<Ack>,
    /// When this side notices that the connection broke.
    pub(crate) lost_at: Option<Time>,
    /// Nothing arrives here any more.
    pub(crate) deaf: bool,
    /// This side has ended.
    pub(crate) gone: bool,
}

impl Shore {
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

    /// When something happens here next.
    pub(crate) fn due(&self) -> Option<Time> {
        let inbound = self.inbound.front().filter(|_| !self.deaf).map(|item| item.due);
        let reading = self.reading.front().map(|item| item.due);
        let ack = self.acks.front().map(|ack| ack.due);
        [inbound, reading, ack, self.lost_at].into_iter().flatten().min()
    }
}

/// A connection, or one to be: the connector's side first.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) shores: [Shore; 2],
}

/// One side of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) link: usize,
    /// 0 for the connector, 1 for the acceptor.
    pub(crate) side: usize,
}

impl Place {
    pub(crate) const fn other(self) -> Self {
        Self { link: self.link, side: 1 - self.side }
    }
}

/// What the medium knows about an end.
#[derive(Debug)]
pub(crate) struct Station {
    name: &'static str,
    listening: Vec<Port>,
    pub(crate) places: Vec<Place>,
    /// Nothing happens there before.
    pub(crate) due: Option<Time>,
    send_queue: usize,
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, and the same on every machine.
#[derive(Debug)]
struct Random(u64);

impl Random {
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
    random: Random,
    faults: Faults,
    now: Time,
    steps: u64,
    stations: Vec<Station>,
    links: Vec<Option<Link>>,
    free: Vec<usize>,
    scratch: Vec<Vec<u8>>,
    trace: Trace,
}

impl Net {
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        Self {
            seed,
            random: Random(seed),
            faults,
            now: Time(0),
            steps: 0,
            stations: Vec::new(),
            links: Vec::new(),
            free: Vec::new(),
            scratch: (0..SCRATCH).map(|_| Vec::with_capacity(SCRATCH_LEN)).collect(),
            trace: Trace::new(),
        }
    }

    pub(crate) fn add_station(&mut self, name: &'static str, connections: usize, send_queue: usize) -> usize {
        let places = Vec::with_capacity(connections);
        self.stations.push(Station { name, listening: Vec::new(), places, due: None, send_queue });
        self.stations.len() - 1
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
        self.stations.iter().filter_map(|station| station.due).min()
    }

    pub(crate) fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    pub(crate) fn note(&mut self, end: usize, link: usize, happened: Happened) {
        let name = self.station(end).name;
        self.trace.push(self.now, name, link, happened);
    }

    /// 32 octets for a table of windows.
    pub(crate) fn key_seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        seed.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&self.random.next().to_le_bytes()));
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

    pub(crate) fn station(&mut self, end: usize) -> &mut Station {
        self.stations.get_mut(end).expect("stations are never removed")
    }

    /// Something happens at `end` at `due`.
    pub(crate) fn wake(&mut self, end: usize, due: Time) {
        if let Some(station) = self.stations.get_mut(end) {
            station.due = Some(station.due.map_or(due, |earlier| earlier.min(due)));
        }
    }

    pub(crate) fn listen(&mut self, end: usize, at: Port) -> Result<Port, FabricFault> {
        let taken = |port: &Port| self.stations.iter().any(|station| station.listening.contains(port));
        let port = match at {
            Port(0) => (1..=u16::MAX).map(Port).find(|port| !taken(port)).ok_or(FabricFault::Exhausted)?,
            port if taken(&port) => return Err(FabricFault::AddressInUse),
            port => port,
        };
        self.station(end).listening.push(port);
        Ok(port)
    }

    pub(crate) fn stop_listening(&mut self, end: usize) {
        self.station(end).listening.clear();
    }

    pub(crate) fn is_listening(&mut self, end: usize) -> bool {
        !self.station(end).listening.is_empty()
    }

    /// Makes a connection to be, from `end` towards whoever listens at `to`. `None`: nobody does.
    pub(crate) fn link(&mut self, end: usize, to: Port) -> (Place, bool) {
        let listener = self.stations.iter().position(|station| station.listening.contains(&to));
        let listener = if self.chance(self.faults.refused) { None } else { listener };
        let room = |station: Option<&Station>| station.map_or(0, |station| station.send_queue);
        let room = room(self.stations.get(end)).max(room(listener.and_then(|l| self.stations.get(l))));
        let mut far = Shore::new(listener.unwrap_or(usize::MAX), None, room);
        far.gone = listener.is_none();
        let link = Link { shores: [Shore::new(end, None, room), far] };
        let index = self.free.pop().unwrap_or(self.links.len());
        match self.links.get_mut(index) {
            Some(place) => *place = Some(link),
            None => self.links.push(Some(link)),
        }
        let place = Place { link: index, side: 0 };
        self.station(end).places.push(place);
        if let Some(listener) = listener {
            self.station(listener).places.push(place.other());
        }
        (place, listener.is_some())
    }

    pub(crate) fn shore(&mut self, place: Place) -> &mut Shore {
        let link = self.links.get_mut(place.link).and_then(Option::as_mut);
        link.and_then(|link| link.shores.get_mut(place.side)).expect("a link lives until both sides are gone")
    }

    /// Sends `what` from `place` to the other side.
    pub(crate) fn send(&mut self, place: Place, seq: u64, what: What) {
        let due = self.after(self.faults.delay.clone());
        let far = self.shore(place.other());
        let due = far.inbound.back().map_or(due, |ahead| ahead.due.max(due));
        far.inbound.push_back(Item { due, seq, what });
        let (end, hears) = (far.end, !far.deaf && !far.gone);
        if hears {
            self.wake(end, due);
        }
    }

    /// Tells the side at `place` that the fabric is done with its work request.
    pub(crate) fn acknowledge(&mut self, place: Place, seq: u64, buf: Option<Buf>) {
        let due = self.after(self.faults.completion_delay.clone());
        let shore = self.shore(place);
        let due = shore.acks.back().map_or(due, |ahead| ahead.due.max(due));
        shore.acks.push_back(Ack { due, seq, buf });
        let end = shore.end;
        self.wake(end, due);
    }

    /// The next thing that arrives at `place`, unless the connection breaks there.
    pub(crate) fn arrive(&mut self, place: Place) -> Option<Item> {
        let now = self.now;
        let shore = self.shore(place);
        let until = shore.lost_at.map_or(now, |lost| lost.min(now));
        if shore.deaf || shore.inbound.front()?.due > until {
            return None;
        }
        let (step, lost, at) = (self.steps, self.faults.lost, self.faults.lost_at);
        self.steps += 1;
        if self.chance(lost) || at == Some(step) {
            self.shore(place).deaf = true;
            self.break_link(place);
            return None;
        }
        let item = self.shore(place).inbound.pop_front()?;
        let end = self.shore(place).end;
        self.note(end, place.link, Happened::Arrived(item.what.name(), item.what.len()));
        Some(item)
    }

    /// The connection is lost; both sides notice in their own time.
    pub(crate) fn break_link(&mut self, place: Place) {
        for place in [place, place.other()] {
            let due = self.after(self.faults.delay.clone());
            let shore = self.shore(place);
            if shore.gone || shore.lost_at.is_some() {
                continue;
            }
            shore.lost_at = Some(due);
            let end = shore.end;
            self.wake(end, due);
            self.note(end, place.link, Happened::Broke);
        }
    }

    /// Ends the side at `place`. The link goes with its second side.
    pub(crate) fn leave(&mut self, place: Place) {
        let shore = self.shore(place);
        shore.gone = true;
        let end = shore.end;
        self.station(end).places.retain(|other| *other != place);
        if self.shore(place.other()).gone {
            if let Some(link) = self.links.get_mut(place.link) {
                *link = None;
            }
            self.free.push(place.link);
        }
    }

    /// What goes on its way for `payload`: itself, or a copy when the sender is to have its memory back early.
    pub(crate) fn load(&mut self, place: Place, seq: u64, payload: Payload, early: u32) -> Payload {
        if payload.len() > SCRATCH_LEN || self.scratch.is_empty() || !self.chance(early) {
            return payload;
        }
        let copy = self.copy(&payload);
        match payload {
            Payload::Buf(buf) => self.acknowledge(place, seq, Some(buf)),
            Payload::Extent(extent) => {
                drop(extent);
                self.acknowledge(place, seq, None);
            }
            Payload::Copy(_) => unreachable!("what is posted is not a copy"),
        }
        copy
    }

    /// Sends a copy of `octets` from `place` at once, if they are few, the way has room, and chance has it so.
    pub(crate) fn send_inline(&mut self, place: Place, octets: &[u8], invalidate: Option<RemoteKey>) -> bool {
        let inbound = &self.shore(place.other()).inbound;
        let has_room = inbound.len() < inbound.capacity() && !self.scratch.is_empty();
        if !has_room || octets.len() > INLINE_MAX || !self.chance(self.faults.inline) {
            return false;
        }
        let copy = self.copy(octets);
        // Nobody asks for the number of what has no completion.
        self.send(place, u64::MAX, What::Send(copy, invalidate));
        true
    }

    pub(crate) fn copy(&mut self, octets: &[u8]) -> Payload {
        let mut copy = self.scratch.pop().unwrap_or_else(|| Vec::with_capacity(SCRATCH_LEN));
        copy.extend_from_slice(octets);
        Payload::Copy(copy)
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
