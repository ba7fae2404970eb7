//! Records out: pending work of connections, as far as the ring has room.

use crate::{
    close,
    conn::{LinkMessage, PendingRead, READS_MAX, ShmConn, ShmShared, ShmState},
    lane::send_record,
    link::{LentRecord, LinkStage, ShmLink},
    record::{LONG, RecordKind, ShmRecord},
    ring::{Broken, RecordParts, WORD},
    rings::LinkRings,
};
use stag_pools::{Table, table::Key};
use stag_verbs::{
    Memory, Status,
    soft::{Op, read_fault},
};

/// Longest part of a Write or an answer in one record.
const SEGMENT: usize = 32 << 10;
/// Shortest payload that the peer fetches from our pool: for less, looking twice costs more than
/// copying twice.
const LEND_MIN: usize = 1024;
/// Octets one connection sends before the next one has its turn.
const TURN: usize = 256 << 10;

/// Point at which sending stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendProgress {
    /// Nothing is left, or it waits for the peer's answers.
    Done,
    /// The ring is full.
    Full,
    /// It is another connection's turn.
    Turn,
}

impl ShmLink {
    /// Puts one record in the ring. `false` when it is full.
    pub(crate) fn put(
        &mut self,
        record: &ShmRecord,
        body: &[u8],
        shared: &mut ShmShared,
    ) -> Result<bool, Broken> {
        Ok(self.put_at(record, body, shared)?.is_some())
    }

    /// The same; where the record begins and ends.
    pub(crate) fn put_at(
        &mut self,
        record: &ShmRecord,
        body: &[u8],
        shared: &mut ShmShared,
    ) -> Result<Option<(u64, u64)>, Broken> {
        let Some(rings) = &mut self.rings else { return Ok(None) };
        let (word, head) = (record.word(), record.emit());
        let Some(end) = rings.put(word, RecordParts { head: head.octets(), body })? else {
            return Ok(None);
        };
        shared.stats.records_sent += 1;
        shared.stats.octets_in += body.len() as u64;
        Ok(Some((end - word.span() as u64, end)))
    }

    /// Returns true if a payload of `len` octets is fetched by the peer and not copied into the
    /// ring.
    pub(crate) const fn lends(&self, len: usize) -> bool {
        self.is_trusting && len >= LEND_MIN
    }

    /// Longest part of a payload in one record.
    pub(crate) fn segment(&self) -> usize {
        let longest = |rings: &LinkRings| rings.producer().record_max() - WORD - LONG;
        self.rings.as_ref().map_or(0, longest).min(SEGMENT)
    }

    /// Everything that ends at or before this position was read by the peer.
    fn heard_until(&self) -> u64 {
        self.rings.as_ref().map_or(0, |rings| rings.producer().head())
    }
}

/// Sends as much as possible. The caller wakes the peer.
pub(crate) fn flush(
    link: &mut ShmLink,
    conns: &mut Table<Box<ShmConn>>,
    shared: &mut ShmShared,
) -> Result<(), Broken> {
    if link.stage != LinkStage::Up {
        return Ok(());
    }
    link.is_full = !say_all(link, conns, shared)?;
    if link.is_full {
        return Ok(());
    }
    link.is_stalled = false; // answers that waited are said
    while let Some(key) = link.waiting.front().copied() {
        let Some(conn) = conns
            .get_mut(key)
            .filter(|conn| conn.is_waiting && conn.state == ShmState::Established)
        else {
            link.waiting.pop_front();
            continue;
        };
        let before = shared.stats.octets_in;
        let flow = flush_conn(conn, link, shared)?;
        shared.moved.note(conn.qp, shared.stats.octets_in.saturating_sub(before));
        report(conn, shared);
        match flow {
            SendProgress::Full => {
                link.is_full = true;
                return Ok(());
            }
            SendProgress::Turn => link.waiting.rotate_left(1),
            SendProgress::Done => {
                conn.is_waiting = false;
                link.waiting.pop_front();
            }
        }
    }
    // A broken rule that was found while sending is reported to the peer at once.
    link.is_full = !say_all(link, conns, shared)?;
    Ok(())
}

/// Sends pending messages about connections before the messages of those connections. Returns false
/// if the ring is full.
#[inline]
fn say_all(
    link: &mut ShmLink,
    conns: &mut Table<Box<ShmConn>>,
    shared: &mut ShmShared,
) -> Result<bool, Broken> {
    // Connections come and go much less often than their messages.
    if link.say.is_empty() { Ok(true) } else { say_some(link, conns, shared) }
}

fn say_some(
    link: &mut ShmLink,
    conns: &mut Table<Box<ShmConn>>,
    shared: &mut ShmShared,
) -> Result<bool, Broken> {
    while let Some(say) = link.say.pop_front() {
        let (record, body): (_, &[u8]) = match &say {
            LinkMessage::Connect { from, private_data } => {
                (ShmRecord { key: *from, ..ShmRecord::new(RecordKind::Connect, 0) }, private_data)
            }
            LinkMessage::Accept { to, from, private_data } => {
                (ShmRecord { key: *from, ..ShmRecord::new(RecordKind::Accept, *to) }, private_data)
            }
            LinkMessage::Reject { to, is_shut, private_data } => (
                ShmRecord { flags: u32::from(*is_shut), ..ShmRecord::new(RecordKind::Reject, *to) },
                private_data,
            ),
            LinkMessage::GiveUp { from } => {
                (ShmRecord { key: *from, ..ShmRecord::new(RecordKind::GiveUp, 0) }, &[])
            }
            LinkMessage::Close { to, why, .. } => (why.record(*to), &[]),
        };
        let record = ShmRecord { len: body.len() as u32, ..record };
        if !link.put(&record, body, shared)? {
            link.say.push_front(say);
            return Ok(false);
        }
        if let LinkMessage::Close { from, .. } = say
            && let Some(conn) = conns.get_mut(from)
            && conn.state == ShmState::AwaitRoom
        {
            conn.die(shared);
        }
    }
    Ok(true)
}

/// Reports what is done, in order, and gives the queue's memory back when nothing is pending. From
/// here on messages go at once, if nothing that was posted has to begin before them.
pub(crate) fn report(conn: &mut ShmConn, shared: &mut ShmShared) {
    while let Some(event) = conn.queue.poll(conn.qp) {
        // RFC 5042 §6.4.3.2, §6.4.6 [5042-16]: a shared completion queue does not overflow
        // RFC 5042 §6.4.3.2, §6.4.6 [5042-19]: a full event queue affects no other stream
        shared.events.push_back(event);
    }
    conn.queue.give_back(&mut shared.spare_works);
    conn.note(&mut shared.lanes);
}

fn flush_conn(
    conn: &mut ShmConn,
    link: &mut ShmLink,
    shared: &mut ShmShared,
) -> Result<SendProgress, Broken> {
    let mut turn = TURN;
    while let Some(answer) = conn.answers.front().copied() {
        match send_answer(conn, link, shared, answer, &mut turn)? {
            SendProgress::Done if conn.state != ShmState::Established => {
                return Ok(SendProgress::Done);
            }
            SendProgress::Done => {}
            flow => return Ok(flow),
        }
    }
    while let Some((seq, op)) = conn.queue.next() {
        let sent = match op {
            Op::Send { message, invalidate } => {
                let record = send_record(conn.peer, message, *invalidate);
                let is_sent = link.put(&record, message, shared)?;
                turn = turn.saturating_sub(message.len());
                if is_sent {
                    conn.queue.begin();
                    conn.queue.complete(seq, Status::Success, None);
                }
                if is_sent { SendProgress::Done } else { SendProgress::Full }
            }
            Op::Write { .. } => send_write(conn, link, shared, seq, &mut turn)?,
            Op::Read(_) => {
                if conn.asked.len() >= READS_MAX {
                    return Ok(SendProgress::Done); // an answer goes on with it
                }
                send_read(conn, link, shared, seq)?
            }
            Op::Invalidate { key } => {
                let key = *key;
                if conn.lent_until > link.heard_until() {
                    // The peer still fetches from it; its progress goes on with this.
                    return Ok(SendProgress::Done);
                }
                let fenced = shared.windows.invalidate(conn.qp.scope(), key);
                let fenced = fenced
                    .expect("it was bound when this was posted, and the peer cannot end it since");
                conn.queue.begin();
                conn.queue.complete(seq, Status::Success, Some(Memory::Fenced(fenced)));
                SendProgress::Done
            }
        };
        if sent != SendProgress::Done {
            return Ok(sent);
        }
        if turn == 0 {
            return Ok(SendProgress::Turn);
        }
    }
    Ok(SendProgress::Done)
}

/// Sends the rest of the oldest answer, or a turn of it.
fn send_answer(
    conn: &mut ShmConn,
    link: &mut ShmLink,
    shared: &mut ShmShared,
    mut answer: crate::conn::ReadAnswer,
    turn: &mut usize,
) -> Result<SendProgress, Broken> {
    let record = ShmRecord::new(RecordKind::Answer, conn.peer);
    loop {
        let lent = link.lends(answer.left);
        let len = if lent { answer.left } else { answer.left.min(link.segment()) };
        let scope = conn.qp.scope();
        // A Read of nothing needs no window (RFC 5040 §5.3).
        let source = if answer.left == 0 {
            Ok((&[][..], None))
        } else {
            let place = shared.windows.source_place(scope, answer.key, answer.offset, len);
            let number = place.ok().and_then(|place| Some((shared.pool_number(place)?, place.at)));
            shared
                .windows
                .source(scope, answer.key, answer.offset, len)
                .map(|octets| (octets, number))
        };
        let (octets, named) = match source {
            Ok(found) => found,
            Err(violation) => {
                close::violate(conn, link, shared, read_fault(violation), Some(answer.request));
                return Ok(SendProgress::Done);
            }
        };
        let put = match named.filter(|_| lent) {
            Some((pool, at)) => {
                let from = ShmRecord {
                    kind: RecordKind::AnswerFrom,
                    flags: pool,
                    more: at as u64,
                    len: len as u32,
                    ..record
                };
                link.put_at(&from, &[], shared)?.inspect(|(begin, end)| {
                    conn.lent_until = *end;
                    link.lent.push_back(LentRecord {
                        begin: *begin,
                        end: *end,
                        conn: conn.qp.0,
                        write: None,
                        source: None,
                    });
                })
            }
            None => {
                let len = octets.len().min(link.segment());
                let Some(rings) = &mut link.rings else { return Ok(SendProgress::Full) };
                let octets = octets.get(..len).expect("it was just made no longer");
                let part = ShmRecord { len: len as u32, ..record };
                let head = part.emit();
                let parts = RecordParts { head: head.octets(), body: octets };
                let put = rings.put(part.word(), parts)?;
                shared.stats.records_sent += u64::from(put.is_some());
                shared.stats.octets_in += if put.is_some() { len as u64 } else { 0 };
                answer.left -= if put.is_some() { len } else { 0 };
                answer.offset += if put.is_some() { len as u64 } else { 0 };
                *turn = turn.saturating_sub(len);
                put.map(|end| (end, end))
            }
        };
        if put.is_none() {
            keep(conn, answer);
            return Ok(SendProgress::Full);
        }
        if answer.left == 0 || named.is_some_and(|_| lent) {
            conn.answers.pop_front();
            return Ok(SendProgress::Done);
        }
        if *turn == 0 {
            keep(conn, answer);
            return Ok(SendProgress::Turn);
        }
    }
}

fn keep(conn: &mut ShmConn, answer: crate::conn::ReadAnswer) {
    *conn.answers.front_mut().expect("it is being answered") = answer;
}

/// Sends the rest of the Write in front, or a turn of it.
fn send_write(
    conn: &mut ShmConn,
    link: &mut ShmLink,
    shared: &mut ShmShared,
    seq: u64,
    turn: &mut usize,
) -> Result<SendProgress, Broken> {
    loop {
        let Some(Op::Write { source, to }) = conn.queue.op(seq) else {
            unreachable!("a Write is in front")
        };
        let left = source.len() - conn.written;
        if left == 0 {
            conn.written = 0;
            conn.queue.begin();
            conn.queue.complete(seq, Status::Success, None);
            return Ok(SendProgress::Done);
        }
        let record = ShmRecord { key: to.key.0, ..ShmRecord::new(RecordKind::Write, conn.peer) };
        let named =
            shared.pool_number(source.place()).filter(|_| link.lends(left) && conn.written == 0);
        if let Some(pool) = named {
            let more = source.place().at as u64;
            let len = source.len() as u32;
            let from = ShmRecord {
                kind: RecordKind::WriteFrom,
                len,
                flags: pool,
                offset: to.offset,
                more,
                ..record
            };
            let Some((begin, end)) = link.put_at(&from, &[], shared)? else {
                return Ok(SendProgress::Full);
            };
            let source = Some(source.clone());
            link.lent.push_back(LentRecord {
                begin,
                end,
                conn: conn.qp.0,
                write: Some(seq),
                source,
            });
            conn.queue.begin();
            return Ok(SendProgress::Done);
        }
        let len = left.min(link.segment());
        let part =
            source.get(conn.written..conn.written + len).expect("the rest is at least as long");
        let offset = to.offset.wrapping_add(conn.written as u64);
        let record = ShmRecord { len: len as u32, offset, more: left as u64, ..record };
        if !link.put(&record, part, shared)? {
            return Ok(SendProgress::Full);
        }
        conn.written += len;
        *turn = turn.saturating_sub(len);
        if *turn == 0 && conn.written < source.len() {
            return Ok(SendProgress::Turn);
        }
    }
}

/// Asks for the next span of the Read in front.
fn send_read(
    conn: &mut ShmConn,
    link: &mut ShmLink,
    shared: &mut ShmShared,
    seq: u64,
) -> Result<SendProgress, Broken> {
    let Some(Op::Read(read)) = conn.queue.op(seq) else { unreachable!("a Read is in front") };
    if read.unasked == 0 {
        conn.queue.begin();
        conn.queue.complete(seq, Status::Success, None);
        return Ok(SendProgress::Done);
    }
    let span = conn.queue.next_span().expect("a Read keeps its spans until they are asked for");
    let record = ShmRecord {
        len: span.len,
        key: span.key.0,
        offset: span.offset,
        more: conn.requests,
        ..ShmRecord::new(RecordKind::Read, conn.peer)
    };
    if !link.put(&record, &[], shared)? {
        return Ok(SendProgress::Full);
    }
    conn.asked.push_back(PendingRead { request: conn.requests, seq, left: span.len as usize });
    conn.requests += 1;
    conn.queue.begin_read();
    Ok(SendProgress::Done)
}

/// The peer has read on: what the ring named is ours alone again, and what waited for that goes on.
pub(crate) fn progress(
    link: &mut ShmLink,
    conns: &mut Table<Box<ShmConn>>,
    shared: &mut ShmShared,
) -> Result<bool, Broken> {
    let Some(rings) = &mut link.rings else { return Ok(false) };
    if (link.lent.is_empty() && link.waiting.is_empty() && link.say.is_empty())
        || !rings.look_for_room()?
    {
        return Ok(false);
    }
    while let Some(lent) = link.lent.front().filter(|lent| lent.end <= link.heard_until()) {
        let (key, write): (Key, _) = (lent.conn, lent.write);
        link.lent.pop_front();
        let Some(conn) = conns.get_mut(key) else { continue };
        if let Some(seq) = write {
            conn.queue.complete(seq, Status::Success, None);
            report(conn, shared);
        }
        // An invalidation may have waited for this.
        if !conn.queue.has_begun_all() {
            want(conn, link);
        }
    }
    Ok(true)
}

/// The connection has something to send.
pub(crate) fn want(conn: &mut ShmConn, link: &mut ShmLink) {
    if !conn.is_waiting && conn.state == ShmState::Established {
        conn.is_waiting = true;
        link.waiting.push_back(conn.qp.0);
    }
}
