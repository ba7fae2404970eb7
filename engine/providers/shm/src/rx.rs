//! Records in: each is copied out of the peer's ring, judged, and carried out.

use crate::{
    close, cm,
    conn::{LinkMessage, READS_MAX, ReadAnswer, ShmConn, ShmShared, ShmState},
    link::ShmLink,
    record::{CloseReason, NONSENSE, RecordKind, ShmRecord},
    ring::{Front, RETRACTED, RingSource, Word},
    tx,
};
use stag_pools::{AccessViolation, RemoteKey, Table, table::Key};
use stag_verbs::{
    Cause, Event, FabricFault, Look, Looked, Qp, Status,
    soft::{NO_BUFFER, Op, TOO_LONG, invalidate_fault, read_fault, write_fault},
};

/// Answers waiting for room in the ring, above which connect requests are not read.
pub(crate) const SAYS_MAX: usize = 1024;

/// A record in front of a ring.
#[derive(Clone, Copy)]
pub(crate) struct HeardRecord {
    /// Its place, and its word.
    front: Front,
    /// Content of the option message.
    pub(crate) record: ShmRecord,
    /// The place of the octets after its head.
    pub(crate) body: usize,
}

/// Octets of the peer's pools that a record names.
#[derive(Clone, Copy)]
struct PoolOctets {
    /// The number of the pool.
    pool: usize,
    /// The first octet there.
    at: usize,
    /// Number of samples.
    len: usize,
    /// The word of the record, which is another one when the peer retracted it.
    word: Word,
}

/// Looks at the ring of a link. A message of which nothing has to be known but where it goes is
/// copied to `room`; anything else in front is left to [`receive`].
#[inline(always)]
pub(crate) fn look(link: &mut ShmLink, shared: &mut ShmShared, room: &mut [u8]) -> Looked {
    let Some(rings) = &link.rings else { return Look::Other.into() };
    let word = rings.peek();
    if !word.is_none() {
        return take(word, link, shared, room);
    }
    if link.is_calm() { Look::Nothing.into() } else { Look::Other.into() }
}

/// Takes the record that begins with `word`, in front of the ring of a link, if it is a message.
// Separate from the look, most of which find nothing; rare cases are called last of all. So neither
// keeps registers for the other.
#[inline(never)]
fn take(word: Word, link: &mut ShmLink, shared: &mut ShmShared, room: &mut [u8]) -> Looked {
    let Some(rings) = &mut link.rings else { return Look::Other.into() };
    let Some(qp) = shared.lanes.message_to(word, link.place) else { return Look::Other.into() };
    if !rings.holds_message(word) {
        return Look::Other.into();
    }
    if !rings.copy_lines(word, room) {
        return take_long(qp, word, link, shared, room);
    }
    let len = word.len();
    shared.stats.records_received += 1;
    shared.stats.octets_out += len as u64;
    link.is_stalled = false;
    if rings.advance(word) {
        return tell_taken(qp, len, link, shared);
    }
    Look::Message { qp, len }.into()
}

/// Takes the message in front if it is long.
#[inline(never)]
fn take_long(
    qp: Qp,
    word: Word,
    link: &mut ShmLink,
    shared: &mut ShmShared,
    room: &mut [u8],
) -> Looked {
    let len = word.len();
    let (Some(rings), Some(room)) = (&mut link.rings, room.get_mut(..len)) else {
        return Look::Other.into();
    };
    rings.copy_front(room);
    shared.stats.records_received += 1;
    shared.stats.octets_out += len as u64;
    link.is_stalled = false;
    if rings.advance(word) {
        link.tell_progress(shared);
    }
    Look::Message { qp, len }.into()
}

/// A message was taken, and our read position is to be published to the peer.
#[cold]
#[inline(never)]
fn tell_taken(qp: Qp, len: usize, link: &mut ShmLink, shared: &mut ShmShared) -> Looked {
    link.tell_progress(shared);
    Look::Message { qp, len }.into()
}

/// Carries out the next record of a link. False when there is none; an error ends the link.
pub(crate) fn receive(
    key: Key,
    link: &mut ShmLink,
    conns: &mut Table<Box<ShmConn>>,
    shared: &mut ShmShared,
) -> Result<bool, Cause> {
    let Some(rings) = &mut link.rings else { return Ok(false) };
    let Some(front) = rings.front().map_err(|_| NONSENSE)? else { return Ok(false) };
    // Only what names the writer's pool is retracted, and only its word: the head still says whose
    // it was.
    let (record, body) = ShmRecord::parse(unretracted(front), rings.theirs()).ok_or(NONSENSE)?;
    link.is_stalled = must_wait(key, link, conns, shared, &record);
    if link.is_stalled {
        return Ok(false);
    }
    shared.stats.records_received += 1;
    if matches!(record.kind, RecordKind::Connect | RecordKind::Accept) && record.key == UNKNOWN {
        return Err(NONSENSE);
    }
    let heard = HeardRecord { front, record, body };
    if record.kind == RecordKind::Connect {
        cm::take_in(key, link, conns, shared, &heard)?;
    } else if record.kind == RecordKind::GiveUp {
        cm::given_up(key, link, conns, shared, record.key);
    } else {
        let place = usize::try_from(record.to).unwrap_or(usize::MAX);
        let conn = conns.key_at(place).and_then(|key| conns.get_mut(key));
        let conn = conn.filter(|conn| conn.link == key).ok_or(NONSENSE)?;
        handle(conn, link, shared, &heard)?;
    }
    link.is_owing |= matches!(record.kind, RecordKind::WriteFrom | RecordKind::AnswerFrom);
    if link.rings.as_mut().is_some_and(|rings| rings.advance(front.word)) {
        link.tell_progress(shared);
    }
    Ok(true)
}

/// Only what names the writer's pool is retracted, and only by its kind: the rest still says whose
/// it was.
fn unretracted(front: Front) -> Front {
    match front.word.kind() {
        RETRACTED => {
            Front { word: front.word.become_kind(RecordKind::AnswerFrom.octet()), ..front }
        }
        _ => front,
    }
}

/// Returns true if a record, and every later one of this process, has to stay in the ring: a
/// message without a receive (DESIGN D8), or a connect request of a process that does not take its
/// answers.
fn must_wait(
    key: Key,
    link: &ShmLink,
    conns: &Table<Box<ShmConn>>,
    shared: &ShmShared,
    record: &ShmRecord,
) -> bool {
    match record.kind {
        RecordKind::Connect => link.say.len() >= SAYS_MAX,
        RecordKind::Send | RecordKind::SendInvalidate if shared.receives.room() == 0 => {
            // Records to a connection that has ended are dropped.
            let conn = conns.key_at(record.to as usize).and_then(|key| conns.get(key));
            conn.is_some_and(|conn| conn.link == key && conn.state == ShmState::Established)
        }
        _ => false,
    }
}

fn handle(
    conn: &mut ShmConn,
    link: &mut ShmLink,
    shared: &mut ShmShared,
    heard: &HeardRecord,
) -> Result<(), Cause> {
    let record = &heard.record;
    match (record.kind, conn.state) {
        (RecordKind::Close, _) => closed(conn, link, shared, record),
        (RecordKind::Accept, ShmState::AwaitReply) => {
            conn.private_data = cm::copy_private_data(link, heard)?;
            conn.peer = record.key;
            conn.address = link.peer;
            conn.establish(&mut shared.lanes);
            conn.deadline = None;
            shared.events.push_back(Event::Established { qp: conn.qp });
            Ok(())
        }
        // We gave up before the answer came: a close is sent to the acceptor.
        (RecordKind::Accept, ShmState::AwaitClose) if conn.peer == UNKNOWN => {
            conn.peer = record.key;
            close::say_close(conn, link, CloseReason::GONE);
            Ok(())
        }
        (RecordKind::Reject, ShmState::AwaitReply) => {
            conn.private_data = cm::copy_private_data(link, heard)?;
            let is_shut = record.flags & 1 == 1;
            let cause = if is_shut { Cause::Fabric(FabricFault::Refused) } else { Cause::Rejected };
            close::end(conn, link, shared, cause, None);
            conn.die(shared);
            Ok(())
        }
        (RecordKind::Reject, ShmState::AwaitClose) if conn.peer == UNKNOWN => {
            conn.die(shared);
            Ok(())
        }
        (RecordKind::Connect | RecordKind::GiveUp | RecordKind::Accept | RecordKind::Reject, _)
        | (_, ShmState::AwaitReply | ShmState::AwaitAnswer) => Err(NONSENSE),
        (_, ShmState::Established) => carry_out(conn, link, shared, heard),
        // Sent by the peer before it received our end.
        (_, ShmState::AwaitClose) => Ok(()),
        (_, ShmState::AwaitRoom | ShmState::Dead) => Err(NONSENSE),
    }
}

/// The number at the peer of a connection that the peer has not answered.
pub(crate) const UNKNOWN: u32 = u32::MAX;

/// The peer's last word about a connection.
fn closed(
    conn: &mut ShmConn,
    link: &mut ShmLink,
    shared: &mut ShmShared,
    record: &ShmRecord,
) -> Result<(), Cause> {
    match conn.state {
        ShmState::Established | ShmState::AwaitAnswer => {
            let why = CloseReason::parse(record);
            close::end(conn, link, shared, why.cause, why.read);
            conn.state = ShmState::AwaitRoom;
            close::say_close(conn, link, CloseReason::GONE);
            Ok(())
        }
        ShmState::AwaitClose => {
            // Our own last word may still wait for room.
            let is_unsaid = link
                .say
                .iter()
                .any(|say| matches!(say, LinkMessage::Close { from, .. } if *from == conn.qp.0));
            if is_unsaid {
                conn.state = ShmState::AwaitRoom;
            } else {
                conn.die(shared);
            }
            Ok(())
        }
        ShmState::AwaitReply | ShmState::AwaitRoom | ShmState::Dead => Err(NONSENSE),
    }
}

fn carry_out(
    conn: &mut ShmConn,
    link: &mut ShmLink,
    shared: &mut ShmShared,
    heard: &HeardRecord,
) -> Result<(), Cause> {
    let HeardRecord { front, record, body } = heard;
    let body = *body;
    if front.word.kind() == RETRACTED {
        // Later records depend on it: a Read would get the answer of another one, a message
        // announce a Write that did not happen.
        retracted(conn, link, shared);
        return Ok(());
    }
    let len = usize::try_from(record.len).map_err(|_| NONSENSE)?;
    match record.kind {
        RecordKind::Send | RecordKind::SendInvalidate => message(conn, link, shared, heard, len),
        RecordKind::Write => place(conn, link, shared, heard, len),
        RecordKind::WriteFrom => {
            let named = named_by(link, heard, len)?;
            place_from(conn, link, shared, record, named)
        }
        RecordKind::Read => {
            if conn.answers.len() >= READS_MAX {
                close::violate(conn, link, shared, NO_BUFFER, None);
                return Ok(());
            }
            let (key, request) = (RemoteKey(record.key), record.more);
            if len > 0
                && let Err(violation) =
                    shared.windows.source(conn.qp.scope(), key, record.offset, len)
            {
                close::violate(conn, link, shared, read_fault(violation), Some(request));
                return Ok(());
            }
            conn.answers.push_back(ReadAnswer { key, offset: record.offset, left: len, request });
            tx::want(conn, link);
            Ok(())
        }
        RecordKind::Answer => fill(conn, link, shared, len, |link, to| {
            link.rings.as_ref()?.copy_out(body, to);
            Some(Via::Ring)
        }),
        RecordKind::AnswerFrom => {
            let named = named_by(link, heard, len)?;
            fill(conn, link, shared, len, |link, to| fetch(link, named, to).then_some(Via::Pool))
        }
        RecordKind::Connect
        | RecordKind::GiveUp
        | RecordKind::Accept
        | RecordKind::Reject
        | RecordKind::Close => Err(NONSENSE),
    }
}

fn message(
    conn: &mut ShmConn,
    link: &mut ShmLink,
    shared: &mut ShmShared,
    heard: &HeardRecord,
    len: usize,
) -> Result<(), Cause> {
    if len > shared.receives.receive_len() {
        close::violate(conn, link, shared, TOO_LONG, None);
        return Ok(());
    }
    let mut landing = shared.receives.land().expect("the caller found a place for it");
    let invalidated = match heard.record.kind {
        RecordKind::Send => None,
        _ => {
            let key = RemoteKey(heard.record.key);
            // Our own invalidation may be pending: each window ends once.
            let ended = match conn.queue.is_invalidating(key) {
                true => Err(AccessViolation::InvalidKey),
                false => shared.windows.invalidate(conn.qp.scope(), key),
            };
            match ended {
                Ok(fenced) => Some(fenced),
                Err(violation) => {
                    let event = shared.receives.abandon(landing);
                    shared.report(event);
                    close::violate(conn, link, shared, invalidate_fault(violation), None);
                    return Ok(());
                }
            }
        }
    };
    let rings = link.rings.as_ref().ok_or(NONSENSE)?;
    let limit = shared.receives.receive_len();
    let fits = landing.append_with(len, limit, |to| rings.copy_out(heard.body, to));
    assert!(fits, "its length was compared with a receive's");
    shared.stats.octets_out += len as u64;
    let event = shared.receives.landed(conn.qp, landing, invalidated);
    shared.report(event);
    Ok(())
}

/// Places a part of a Write, of `len` octets.
fn place(
    conn: &mut ShmConn,
    link: &mut ShmLink,
    shared: &mut ShmShared,
    heard: &HeardRecord,
    len: usize,
) -> Result<(), Cause> {
    let record = &heard.record;
    let key = RemoteKey(record.key);
    // The rest of the Write, this part included.
    let whole = usize::try_from(record.more).unwrap_or(usize::MAX).max(len);
    match shared.windows.target_front(conn.qp.scope(), key, record.offset, whole, len) {
        Ok(target) => {
            let target = target.get_mut(..len).ok_or(NONSENSE)?;
            let rings = link.rings.as_ref().ok_or(NONSENSE)?;
            rings.copy_out(heard.body, target);
            shared.stats.octets_out += len as u64;
            shared.moved.note(conn.qp, len as u64);
        }
        Err(violation) => close::violate(conn, link, shared, write_fault(violation), None),
    }
    Ok(())
}

/// Places a whole Write from the peer's pool.
fn place_from(
    conn: &mut ShmConn,
    link: &mut ShmLink,
    shared: &mut ShmShared,
    record: &ShmRecord,
    named: PoolOctets,
) -> Result<(), Cause> {
    let key = RemoteKey(record.key);
    let target = shared.windows.target(conn.qp.scope(), key, record.offset, named.len);
    match target {
        Ok(target) => {
            shared.stats.octets_fetched += named.len as u64;
            shared.moved.note(conn.qp, named.len as u64);
            if !fetch(link, named, target) {
                retracted(conn, link, shared);
            }
        }
        Err(violation) => close::violate(conn, link, shared, write_fault(violation), None),
    }
    Ok(())
}

/// The part of the peer's pools that a record names.
fn named_by(link: &ShmLink, heard: &HeardRecord, len: usize) -> Result<PoolOctets, Cause> {
    let HeardRecord { front, record, .. } = heard;
    let number = usize::try_from(record.flags).map_err(|_| NONSENSE)?;
    let at = usize::try_from(record.more).map_err(|_| NONSENSE)?;
    let pool = link.pools.get(number).ok_or(NONSENSE)?;
    let end = at.checked_add(len).ok_or(NONSENSE)?;
    if end > pool.len() {
        return Err(NONSENSE);
    }
    Ok(PoolOctets { pool: number, at, len, word: front.word })
}

/// Copies what the record in front names. False when the record was retracted meanwhile: what was
/// copied is anything.
fn fetch(link: &ShmLink, named: PoolOctets, to: &mut [u8]) -> bool {
    let (Some(pool), Some(rings)) = (link.pools.get(named.pool), &link.rings) else {
        return false;
    };
    pool.copy_out(named.at, to);
    rings.is_still(named.word)
}

/// The peer ended the connection before what it named was copied.
fn retracted(conn: &mut ShmConn, link: &mut ShmLink, shared: &mut ShmShared) {
    close::end(conn, link, shared, Cause::Fabric(FabricFault::Lost), None);
    close::say_close(conn, link, CloseReason::GONE);
}

/// Origin of a payload.
enum Via {
    Ring,
    Pool,
}

/// Puts a part of the oldest answer where it goes. `copy` gives none when the peer took it back
/// meanwhile.
fn fill(
    conn: &mut ShmConn,
    link: &mut ShmLink,
    shared: &mut ShmShared,
    len: usize,
    copy: impl FnOnce(&ShmLink, &mut [u8]) -> Option<Via>,
) -> Result<(), Cause> {
    let asked = conn.asked.front_mut().ok_or(NONSENSE)?;
    asked.left = asked.left.checked_sub(len).ok_or(NONSENSE)?;
    let (seq, is_whole) = (asked.seq, asked.left == 0);
    let Some(Op::Read(read)) = conn.queue.op_mut(seq) else {
        unreachable!("answers belong to Reads")
    };
    let sink = read.sink.get_mut(read.fill_at..read.fill_at + len).expect("the spans fit the sink");
    shared.moved.note(conn.qp, len as u64);
    match copy(link, sink) {
        Some(Via::Ring) => shared.stats.octets_out += len as u64,
        Some(Via::Pool) => shared.stats.octets_fetched += len as u64,
        None => {
            retracted(conn, link, shared);
            return Ok(());
        }
    }
    read.fill_at += len;
    if is_whole {
        read.unanswered -= 1;
        let is_done = read.unanswered == 0;
        conn.asked.pop_front();
        if is_done {
            conn.queue.complete(seq, Status::Success, None);
            tx::report(conn, shared);
        }
        tx::want(conn, link); // a Read behind it may have waited
    }
    Ok(())
}
