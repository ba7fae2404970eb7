//! Messages and Writes that are sent at once, with all that messages have to know of their
//! connection: one short record for each, indexed by its number.

use crate::{
    conn::{ShmConn, ShmShared, ShmState},
    copy::SHORT,
    link::{LentRecord, ShmLink},
    record::{RecordKind, ShmRecord},
    ring::Word,
};
use stag_pools::{Extent, RemoteKey, table::Key};
use stag_verbs::{Event, Memory, Qp, RemoteSpan, Status, Tag, soft::Op};

/// Longest Write that is copied into the ring as soon as it is posted.
const COPY_MAX: usize = 8 << 10;

/// One connection, as messages see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(16))]
pub(crate) struct Lane {
    qp: Qp,
    /// Its number at the peer.
    peer: u32,
    /// Place of its link, and in the lowest bit whether work that was posted has not begun.
    way: u32,
}

// Four in a line of memory, and none in two: with many connections, that line is all that a message
// finds cold here.
const _: () = assert!(size_of::<Lane>() == 16);

impl Lane {
    /// No connection that takes messages is there.
    pub(crate) const SHUT: Self = Self { qp: Qp(Key::from_bits(u64::MAX)), peer: 0, way: u32::MAX };

    /// The lane of an established connection. A message goes at once unless other work is before
    /// it.
    pub(crate) const fn new(qp: Qp, link: Key, peer: u32, is_behind: bool) -> Self {
        assert!(link.index() < LINKS_MAX, "a shard has fewer links");
        Self { qp, peer, way: (link.index() as u32) << 1 | is_behind as u32 }
    }

    /// Place of its link.
    #[inline]
    pub(crate) const fn link(self) -> usize {
        (self.way >> 1) as usize
    }

    /// Its number at the other end.
    pub(crate) const fn peer(self) -> u32 {
        self.peer
    }

    /// The connection, which is in this place. Its number is not read here: in a crowd a look-up by
    /// it would wait for this line of memory.
    #[inline(always)]
    const fn at(self, place: u32) -> Qp {
        let generation = self.qp.0.to_bits() >> u32::BITS;
        Qp(Key::from_bits(generation << u32::BITS | place as u64))
    }

    /// The word of a message of `len` octets to the other end.
    #[inline]
    pub(crate) const fn word(self, len: usize) -> Word {
        Word::new(RecordKind::Send.octet(), len, self.peer)
    }
}

/// The lanes of all connections of a shard. Every change of their state is in here at once.
#[derive(Debug)]
pub(crate) struct Lanes(Box<[Lane]>);

/// Links are identified by 31 bits, all set for none.
const LINKS_MAX: usize = (u32::MAX >> 1) as usize;

impl Lanes {
    /// Lanes of `places` connections, all shut.
    pub(crate) fn new(places: usize) -> Self {
        Self(vec![Lane::SHUT; places].into_boxed_slice())
    }

    pub(crate) fn set(&mut self, qp: Qp, lane: Lane) {
        if let Some(place) = self.0.get_mut(qp.0.index()) {
            *place = lane;
        }
    }

    /// Work was posted that has not begun: later messages wait for it.
    #[inline]
    pub(crate) fn hold(&mut self, qp: Qp) {
        if let Some(lane) = self.0.get_mut(qp.0.index()) {
            lane.way |= 1;
        }
    }

    /// The connection that `word` is for, if it is the word of a message from the link at this
    /// place and the connection takes it.
    #[inline(always)]
    pub(crate) fn message_to(&self, word: Word, link: usize) -> Option<Qp> {
        let lane = self.0.get(word.to() as usize)?;
        let is_message = word.kind() == RecordKind::Send.octet();
        (is_message && lane.link() == link).then(|| lane.at(word.to()))
    }

    /// The lane of `qp`, if a message may go at once.
    #[inline(always)]
    pub(crate) fn free(&self, qp: Qp) -> Option<Lane> {
        let lane = *self.0.get(qp.0.index())?;
        (lane.qp == qp && lane.way & 1 == 0).then_some(lane)
    }

    /// The lane in a place.
    #[cfg(test)]
    pub(crate) fn at(&self, place: usize) -> Lane {
        self.0.get(place).copied().unwrap_or(Lane::SHUT)
    }
}

/// Puts a message of a connection with nothing posted in front of it into the ring, and wakes the
/// peer. False when others wait there for room, or when it has none.
// Whatever is rare is called last of all, so that nothing is kept across a call.
#[inline(always)]
pub(crate) fn send_at_once(
    lane: Lane,
    link: &mut ShmLink,
    shared: &mut ShmShared,
    message: &[u8],
    invalidate: Option<RemoteKey>,
) -> bool {
    if invalidate.is_none()
        && SHORT.contains(&message.len())
        && link.is_open()
        && let Some(rings) = &mut link.rings
        && rings.put_short(lane.word(message.len()), message)
    {
        shared.stats.records_sent += 1;
        shared.stats.octets_in += message.len() as u64;
        return if rings.must_wake() { link.end_sleep(shared) } else { true };
    }
    send_any(lane.peer(), link, shared, message, invalidate)
}

/// The same for any message: a long one, one that invalidates a key, or one for which the ring has
/// to be asked for room.
#[inline(never)]
fn send_any(
    to: u32,
    link: &mut ShmLink,
    shared: &mut ShmShared,
    message: &[u8],
    invalidate: Option<RemoteKey>,
) -> bool {
    if !link.is_open() || shared.is_long(message) {
        return false;
    }
    // The next look at a broken ring finds it broken again, and ends the link.
    let record = send_record(to, message, invalidate);
    let is_sent = link.put(&record, message, shared).unwrap_or(false);
    if is_sent {
        link.wake(shared);
    }
    is_sent
}

/// Puts a Write of a connection with no earlier work posted into the ring, so that later messages
/// may be sent at once, too. The Write goes by its place in our pool, or, if short, as a copy,
/// which completes it. False when others wait there for room, or when it has none.
pub(crate) fn write_at_once(
    conn: &mut ShmConn,
    link: &mut ShmLink,
    shared: &mut ShmShared,
    tag: Tag,
    source: &Extent,
    to: RemoteSpan,
) -> bool {
    if conn.state != ShmState::Established
        || !conn.queue.has_begun_all()
        || conn.queue.room() == 0
        || !link.is_open()
        || source.is_empty()
    {
        return false;
    }
    let record = ShmRecord {
        key: to.key.0,
        len: to.len,
        offset: to.offset,
        ..ShmRecord::new(RecordKind::Write, conn.peer)
    };
    let pool = shared.pool_number(source.place()).filter(|_| link.lends(source.len()));
    let is_put = match pool {
        Some(pool) => {
            let more = source.place().at as u64;
            let from = ShmRecord { kind: RecordKind::WriteFrom, flags: pool, more, ..record };
            lend_write(conn, link, shared, &from, tag, source, to)
        }
        None => copy_write(conn, link, shared, &record, tag, source),
    };
    if is_put {
        link.wake(shared);
    }
    is_put
}

/// Names the memory of a Write in the ring. It is done when the peer has read on.
// The next look at a broken ring finds it broken again, and ends the link.
fn lend_write(
    conn: &mut ShmConn,
    link: &mut ShmLink,
    shared: &mut ShmShared,
    record: &ShmRecord,
    tag: Tag,
    source: &Extent,
    to: RemoteSpan,
) -> bool {
    let Ok(Some((begin, end))) = link.put_at(record, &[], shared) else { return false };
    conn.queue.borrow(&mut shared.spare_works);
    let op = Op::Write { source: source.clone(), to };
    let (write, source) = (Some(conn.queue.post_begun(tag, op)), Some(source.clone()));
    link.lent.push_back(LentRecord { begin, end, conn: conn.qp.0, write, source });
    true
}

/// Copies a short Write into the ring, if its completion may be reported at once.
fn copy_write(
    conn: &ShmConn,
    link: &mut ShmLink,
    shared: &mut ShmShared,
    record: &ShmRecord,
    tag: Tag,
    octets: &[u8],
) -> bool {
    if octets.len() > COPY_MAX.min(link.segment()) || !conn.queue.is_empty() {
        return false;
    }
    let record = ShmRecord { more: octets.len() as u64, ..*record };
    let is_put = link.put(&record, octets, shared).unwrap_or(false);
    if is_put {
        let (status, memory) = (Status::Success, Memory::Shared);
        shared.events.push_back(Event::Completed { qp: conn.qp, tag, status, memory });
    }
    is_put
}

/// The record of a message to the connection that is `to` at the other end.
pub(crate) fn send_record(to: u32, message: &[u8], invalidate: Option<RemoteKey>) -> ShmRecord {
    let len = message.len() as u32;
    match invalidate {
        None => ShmRecord { len, ..ShmRecord::new(RecordKind::Send, to) },
        Some(RemoteKey(key)) => {
            ShmRecord { len, key, ..ShmRecord::new(RecordKind::SendInvalidate, to) }
        }
    }
}
