//! Records in: each is copied out of the peer's ring, judged, and carried out.

use crate::{
    close,
    conn::{Answer, Conn, READS_MAX, Say, Shared, State},
    link::Link,
    record::{Kind, NONSENSE, Record, Why},
    ring::{Front, RETRACTED, Source, Word},
    tx,
};
use stag_pools::{Buf, RemoteKey, Table, Violation, table::Key};
use stag_verbs::{
    Cause, Event, FabricFault, Qp, Status,
    soft::{NO_BUFFER, Op, TOO_LONG, invalidate_fault, read_fault, write_fault},
};

/// Answers that wait for room in the ring before nobody is heard who asks for connections.
pub(crate) const SAYS_MAX: usize = 1024;

/// What a look at a ring finds.
#[derive(Clone, Copy)]
pub(crate) enum Found {
    Nothing,
    /// A message of which nothing has to be known but where it goes.
    Message(Qp, Front),
    /// Something else: [`receive`] judges it.
    Other,
}

/// Looks what is in front.
#[inline]
pub(crate) fn look(key: Key, link: &mut Link, conns: &Table<Box<Conn>>, receive_len: usize) -> Found {
    let Some(theirs) = link.theirs.as_ref() else { return Found::Nothing };
    let front = match link.consumer.front(theirs) {
        Ok(Some(front)) => front,
        Ok(None) => return Found::Nothing,
        Err(_) => return Found::Other,
    };
    let word = front.word;
    if word.kind() != Kind::Send.octet() || word.len() > receive_len {
        return Found::Other;
    }
    match conns.at(word.to() as usize) {
        Some(conn) if conn.link == key && conn.state == State::Established => Found::Message(conn.qp, front),
        _ => Found::Other,
    }
}

/// Copies a message that is in front into `receive`, and goes on.
#[inline]
pub(crate) fn take(link: &mut Link, front: Front, receive: &mut Buf, shared: &mut Shared) {
    let len = front.word.len();
    let Some(theirs) = link.theirs.as_ref() else { return };
    theirs.copy_out(front.at, receive.spare_mut().get_mut(..len).expect("a receive has room for it"));
    receive.extend(len);
    shared.stats.records_received += 1;
    shared.stats.octets_out += len as u64;
    link.is_stalled = false;
    link.consumer.advance(front.word);
    if link.consumer.is_due() {
        link.tell_progress(shared);
    }
}

/// Carries out the next record of a link. False when there is none; an error ends the link.
pub(crate) fn receive(
    key: Key,
    link: &mut Link,
    conns: &mut Table<Box<Conn>>,
    shared: &mut Shared,
) -> Result<bool, Cause> {
    let Some(theirs) = link.theirs.as_ref() else { return Ok(false) };
    let Some(front) = link.consumer.front(theirs).map_err(|_| NONSENSE)? else { return Ok(false) };
    // Only what names the writer's pool is retracted, and only its word: the head still says whose it was.
    let (record, body) = Record::parse(named(front), theirs).ok_or(NONSENSE)?;
    link.is_stalled = must_wait(key, link, conns, shared, &record);
    if link.is_stalled {
        return Ok(false);
    }
    shared.stats.records_received += 1;
    if matches!(record.kind, Kind::Connect | Kind::Accept) && record.key == UNKNOWN {
        return Err(NONSENSE);
    }
    if record.kind == Kind::Connect {
        take_in(key, link, conns, shared, (&record, body))?;
    } else if record.kind == Kind::GiveUp {
        given_up(key, link, conns, shared, record.key);
    } else {
        let place = usize::try_from(record.to).unwrap_or(usize::MAX);
        let conn = conns.key_at(place).and_then(|key| conns.get_mut(key));
        let conn = conn.filter(|conn| conn.link == key).ok_or(NONSENSE)?;
        handle(conn, link, shared, (front, record, body))?;
    }
    link.consumer.advance(front.word);
    link.is_owing |= matches!(record.kind, Kind::WriteFrom | Kind::AnswerFrom);
    if link.consumer.is_due() {
        link.tell_progress(shared);
    }
    Ok(true)
}

/// Only what names the writer's pool is retracted, and only by its kind: the rest still says whose it was.
fn named(front: Front) -> Front {
    match front.word.kind() {
        RETRACTED => Front { word: front.word.become_kind(Kind::AnswerFrom.octet()), ..front },
        _ => front,
    }
}

/// Whether a record stays where it is, and everything of this process behind it: a message that has nowhere to go (DESIGN D8),
/// and the wish for a connection of a process that does not take its answers.
fn must_wait(key: Key, link: &Link, conns: &Table<Box<Conn>>, shared: &Shared, record: &Record) -> bool {
    match record.kind {
        Kind::Connect => link.say.len() >= SAYS_MAX,
        Kind::Send | Kind::SendInvalidate if shared.receives.room() == 0 => {
            // What is said to a connection that has ended goes nowhere.
            let conn = conns.key_at(record.to as usize).and_then(|key| conns.get(key));
            conn.is_some_and(|conn| conn.link == key && conn.state == State::Established)
        }
        _ => false,
    }
}

/// The peer wants a connection.
fn take_in(
    key: Key,
    link: &mut Link,
    conns: &mut Table<Box<Conn>>,
    shared: &mut Shared,
    (record, body): (&Record, usize),
) -> Result<(), Cause> {
    let private_data = copy_private_data(link, record, body)?;
    let refusal = Say::Reject { to: record.key, is_shut: !shared.is_listening, private_data: Box::default() };
    if !shared.is_listening || shared.taken >= shared.config.limits.connections {
        link.say.push_back(refusal);
        return Ok(());
    }
    let conn =
        Conn::new(Qp(Key::from_bits(0)), key, link.peer, State::AwaitAnswer, shared.config.limits.send_queue);
    let Ok(number) = conns.insert(Box::new(conn)) else {
        link.say.push_back(refusal);
        return Ok(());
    };
    let conn = conns.get_mut(number).expect("it was just put there");
    conn.qp = Qp(number);
    conn.peer = record.key;
    conn.is_known = true;
    conn.private_data = private_data;
    link.conns += 1;
    shared.taken += 1;
    shared.events.push_back(Event::ConnectRequest { qp: conn.qp });
    Ok(())
}

/// The peer does not want its connection any more. When it was accepted meanwhile, the peer closes it when it hears that.
fn given_up(key: Key, link: &mut Link, conns: &mut Table<Box<Conn>>, shared: &mut Shared, peer: u32) {
    let is_meant = |conn: &Conn| conn.link == key && conn.peer == peer && conn.state == State::AwaitAnswer;
    let number = conns.iter().find(|(_, conn)| is_meant(conn)).map(|(number, _)| number);
    let Some(conn) = number.and_then(|number| conns.get_mut(number)) else { return };
    close::end(conn, link, shared, (Cause::Peer, None));
    conn.die(shared);
    link.say.push_back(Say::Reject { to: peer, is_shut: false, private_data: Box::default() });
}

fn copy_private_data(link: &Link, record: &Record, body: usize) -> Result<Box<[u8]>, Cause> {
    let len = usize::try_from(record.len).ok().filter(|len| *len <= crate::config::PRIVATE_DATA_MAX);
    let mut octets = vec![0; len.ok_or(NONSENSE)?].into_boxed_slice();
    link.theirs.as_ref().ok_or(NONSENSE)?.copy_out(body, &mut octets);
    Ok(octets)
}

fn handle(
    conn: &mut Conn,
    link: &mut Link,
    shared: &mut Shared,
    (front, record, body): (Front, Record, usize),
) -> Result<(), Cause> {
    match (record.kind, conn.state) {
        (Kind::Close, _) => closed(conn, link, shared, &record),
        (Kind::Accept, State::AwaitReply) => {
            conn.private_data = copy_private_data(link, &record, body)?;
            conn.peer = record.key;
            conn.address = link.peer;
            conn.state = State::Established;
            conn.deadline = None;
            shared.events.push_back(Event::Established { qp: conn.qp });
            Ok(())
        }
        // We gave up before the answer came: the acceptor is told.
        (Kind::Accept, State::AwaitClose) if conn.peer == UNKNOWN => {
            conn.peer = record.key;
            close::say_close(conn, link, Why::GONE);
            Ok(())
        }
        (Kind::Reject, State::AwaitReply) => {
            conn.private_data = copy_private_data(link, &record, body)?;
            let is_shut = record.flags & 1 == 1;
            let cause = if is_shut { Cause::Fabric(FabricFault::Refused) } else { Cause::Rejected };
            close::end(conn, link, shared, (cause, None));
            conn.die(shared);
            Ok(())
        }
        (Kind::Reject, State::AwaitClose) if conn.peer == UNKNOWN => {
            conn.die(shared);
            Ok(())
        }
        (Kind::Connect | Kind::GiveUp | Kind::Accept | Kind::Reject, _)
        | (_, State::AwaitReply | State::AwaitAnswer) => Err(NONSENSE),
        (_, State::Established) => carry_out(conn, link, shared, (front, record, body)),
        // What it said before it heard of the end.
        (_, State::AwaitClose) => Ok(()),
        (_, State::AwaitRoom | State::Dead) => Err(NONSENSE),
    }
}

/// The number at the peer of a connection that the peer has not answered.
pub(crate) const UNKNOWN: u32 = u32::MAX;

/// The peer's last word about a connection.
fn closed(conn: &mut Conn, link: &mut Link, shared: &mut Shared, record: &Record) -> Result<(), Cause> {
    match conn.state {
        State::Established | State::AwaitAnswer => {
            let why = Why::parse(record);
            close::end(conn, link, shared, (why.cause, why.read));
            conn.state = State::AwaitRoom;
            close::say_close(conn, link, Why::GONE);
            Ok(())
        }
        State::AwaitClose => {
            // Our own last word may still wait for room.
            let is_unsaid =
                link.say.iter().any(|say| matches!(say, Say::Close { from, .. } if *from == conn.qp.0));
            if is_unsaid {
                conn.state = State::AwaitRoom;
            } else {
                conn.die(shared);
            }
            Ok(())
        }
        State::AwaitReply | State::AwaitRoom | State::Dead => Err(NONSENSE),
    }
}

fn carry_out(
    conn: &mut Conn,
    link: &mut Link,
    shared: &mut Shared,
    (front, record, body): (Front, Record, usize),
) -> Result<(), Cause> {
    if front.word.kind() == RETRACTED {
        // What comes behind it counts on it: a Read would get the answer of another one, a message tell of a Write that
        // was none.
        retracted(conn, link, shared);
        return Ok(());
    }
    let len = usize::try_from(record.len).map_err(|_| NONSENSE)?;
    match record.kind {
        Kind::Send | Kind::SendInvalidate => message(conn, link, shared, (&record, body, len)),
        Kind::Write => {
            let whole = usize::try_from(record.more).unwrap_or(usize::MAX).max(len);
            place(conn, link, shared, (&record, len, whole), |theirs, to| {
                theirs.copy_out(body, to);
                true
            })
        }
        Kind::WriteFrom => {
            let (pool, at) = lent(link, &record, len)?;
            place_from(conn, link, shared, (&record, len, (pool, at, front.word)))
        }
        Kind::Read => {
            if conn.answers.len() >= READS_MAX {
                close::violate(conn, link, shared, (NO_BUFFER, None));
                return Ok(());
            }
            let (key, request) = (RemoteKey(record.key), record.more);
            if len > 0
                && let Err(violation) = shared.windows.source(conn.qp.scope(), key, record.offset, len)
            {
                close::violate(conn, link, shared, (read_fault(violation), Some(request)));
                return Ok(());
            }
            conn.answers.push_back(Answer { key, offset: record.offset, left: len, request });
            tx::want(conn, link);
            Ok(())
        }
        Kind::Answer => fill(
            conn,
            link,
            shared,
            (len, |link: &Link, to: &mut [u8]| {
                let Some(theirs) = &link.theirs else { return None };
                theirs.copy_out(body, to);
                Some(Via::Ring)
            }),
        ),
        Kind::AnswerFrom => {
            let (pool, at) = lent(link, &record, len)?;
            fill(
                conn,
                link,
                shared,
                (len, |link: &Link, to: &mut [u8]| {
                    fetch(link, (pool, at, front.word), to).then_some(Via::Pool)
                }),
            )
        }
        Kind::Connect | Kind::GiveUp | Kind::Accept | Kind::Reject | Kind::Close => Err(NONSENSE),
    }
}

fn message(
    conn: &mut Conn,
    link: &mut Link,
    shared: &mut Shared,
    (record, body, len): (&Record, usize, usize),
) -> Result<(), Cause> {
    if len > shared.receives.receive_len() {
        close::violate(conn, link, shared, (TOO_LONG, None));
        return Ok(());
    }
    let mut landing = shared.receives.land().expect("the caller found a place for it");
    let invalidated = match record.kind {
        Kind::Send => None,
        _ => {
            let key = RemoteKey(record.key);
            // Our own invalidation may be under way: each window ends once.
            let ended = match conn.queue.is_invalidating(key) {
                true => Err(Violation::InvalidKey),
                false => shared.windows.invalidate(conn.qp.scope(), key),
            };
            match ended {
                Ok(fenced) => Some(fenced),
                Err(violation) => {
                    let event = shared.receives.abandon(landing);
                    shared.report(event);
                    close::violate(conn, link, shared, (invalidate_fault(violation), None));
                    return Ok(());
                }
            }
        }
    };
    let theirs = link.theirs.as_ref().ok_or(NONSENSE)?;
    let limit = shared.receives.receive_len();
    let fits = landing.append_with(len, limit, |to| theirs.copy_out(body, to));
    assert!(fits, "its length was compared with a receive's");
    shared.stats.octets_out += len as u64;
    let event = shared.receives.landed(conn.qp, landing, invalidated);
    shared.report(event);
    Ok(())
}

/// Places a part of a Write whose rest, this part included, is `whole` octets long.
fn place(
    conn: &mut Conn,
    link: &mut Link,
    shared: &mut Shared,
    (record, len, whole): (&Record, usize, usize),
    copy: impl FnOnce(&crate::segment::Theirs, &mut [u8]) -> bool,
) -> Result<(), Cause> {
    let key = RemoteKey(record.key);
    match shared.windows.target_front(conn.qp.scope(), key, record.offset, whole, len) {
        Ok(target) => {
            let target = target.get_mut(..len).ok_or(NONSENSE)?;
            let theirs = link.theirs.as_ref().ok_or(NONSENSE)?;
            copy(theirs, target);
            shared.stats.octets_out += len as u64;
        }
        Err(violation) => close::violate(conn, link, shared, (write_fault(violation), None)),
    }
    Ok(())
}

/// Places a whole Write from the peer's pool.
fn place_from(
    conn: &mut Conn,
    link: &mut Link,
    shared: &mut Shared,
    (record, len, from): (&Record, usize, (usize, usize, Word)),
) -> Result<(), Cause> {
    let target = shared.windows.target(conn.qp.scope(), RemoteKey(record.key), record.offset, len);
    match target {
        Ok(target) => {
            shared.stats.octets_fetched += len as u64;
            if !fetch(link, from, target) {
                retracted(conn, link, shared);
            }
        }
        Err(violation) => close::violate(conn, link, shared, (write_fault(violation), None)),
    }
    Ok(())
}

/// The part of the peer's pools that a record names.
fn lent(link: &Link, record: &Record, len: usize) -> Result<(usize, usize), Cause> {
    let number = usize::try_from(record.flags).map_err(|_| NONSENSE)?;
    let at = usize::try_from(record.more).map_err(|_| NONSENSE)?;
    let pool = link.pools.get(number).ok_or(NONSENSE)?;
    let end = at.checked_add(len).ok_or(NONSENSE)?;
    if end <= pool.len() { Ok((number, at)) } else { Err(NONSENSE) }
}

/// Copies what the record in front names. False when the record was retracted meanwhile: what was copied is anything.
fn fetch(link: &Link, (pool, at, word): (usize, usize, Word), to: &mut [u8]) -> bool {
    let (Some(pool), Some(theirs)) = (link.pools.get(pool), &link.theirs) else { return false };
    pool.copy_out(at, to);
    link.consumer.is_still(theirs, word)
}

/// The peer ended the connection before what it named was copied.
fn retracted(conn: &mut Conn, link: &mut Link, shared: &mut Shared) {
    close::end(conn, link, shared, (Cause::Fabric(FabricFault::Lost), None));
    close::say_close(conn, link, Why::GONE);
}

/// Where payload came from.
enum Via {
    Ring,
    Pool,
}

/// Puts a part of the oldest answer where it goes. `copy` gives none when the peer took it back meanwhile.
fn fill(
    conn: &mut Conn,
    link: &mut Link,
    shared: &mut Shared,
    (len, copy): (usize, impl FnOnce(&Link, &mut [u8]) -> Option<Via>),
) -> Result<(), Cause> {
    let asked = conn.asked.front_mut().ok_or(NONSENSE)?;
    asked.left = asked.left.checked_sub(len).ok_or(NONSENSE)?;
    let (seq, is_whole) = (asked.seq, asked.left == 0);
    let Some(Op::Read(read)) = conn.queue.op_mut(seq) else { unreachable!("answers belong to Reads") };
    let sink = read.sink.get_mut(read.fill_at..read.fill_at + len).expect("the spans fit the sink");
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
