//! A reply on its way out: hop 10 of a call's life.

use crate::{
    account::SMALL_MAX,
    app::{Answer, App, CallId},
    config::HEAD_ROOM,
    core::{Inbound, InboundState, Link},
    requester::calls::room_kept,
    responder::pull::{NOTHING, count_form, remote},
    shard::Shard,
    stages::Stage,
    work::Work,
};
use stag_pools::{Buf, Extent, RemoteKey, table::Key};
use stag_protocol::{
    rpcrdma::{
        Body, ChunkLists, Connection, Header, PeerFault, Procedure, Segment, Side, plain,
        responder::{self, Part, Push, ReplyParts, ReplyPlan},
    },
    xdr::pad,
};
use stag_verbs::{Provider, Qp, Refused};
use std::ops::Range;

/// The memory that a reply keeps beyond its message until it was sent, in the 32 bits that [`Work`]
/// has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bulk {
    /// Pages of [`Bulk::PAGE`] octets in buffers that nobody else can use until then.
    held: u16,
    /// Lines of [`Bulk::LINE`] octets that the peer gets.
    pushed: u16,
}

impl Bulk {
    const PAGE: u64 = 4_096;
    const LINE: u64 = 64;

    /// The memory of a reply that is not sent yet. None for a reply without long buffers.
    pub(crate) fn of(answer: &Answer) -> Option<Self> {
        let long = |capacity: usize| if capacity > SMALL_MAX { capacity as u64 } else { 0 };
        let items = answer.item.iter().flat_map(|item| item.octets.iter());
        let held = long(answer.message.capacity()) + items.map(|part| long(part.capacity())).sum::<u64>();
        let item = answer.item.as_ref().map_or(0, |item| item.octets.len());
        let pushed = (answer.message.len() + item) as u64;
        let most = |count: u64| u16::try_from(count).unwrap_or(u16::MAX);
        (held > 0).then(|| Self { held: most(held.div_ceil(Self::PAGE)), pushed: most(pushed / Self::LINE) })
    }

    pub(crate) const fn to_bits(self) -> u32 {
        (self.held as u32) << 16 | self.pushed as u32
    }

    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self { held: (bits >> 16) as u16, pushed: bits as u16 }
    }

    pub(crate) const fn held(self) -> u64 {
        self.held as u64 * Self::PAGE
    }

    pub(crate) const fn pushed(self) -> u64 {
        self.pushed as u64 * Self::LINE
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Hop 10: the reply goes to whoever called.
    pub(crate) fn answer(&mut self, id: CallId, answer: Answer) {
        let Some(call) = self.core.inbound.get(id.0) else { return };
        debug_assert_eq!(call.state, InboundState::AwaitAnswer, "a call is answered once");
        let (peer, xid) = (call.peer, call.xid);
        self.core.stamp(id.0, Stage::App);
        match self.core.peers.get(peer.0).map(|peer| &peer.link) {
            Some(Link::Stream(stream)) => {
                let stream = *stream;
                self.core.forget_inbound(id.0);
                self.streams.answer(stream, answer, &self.core.zeros);
                self.core.watch.post(id.0, self.core.now);
            }
            Some(Link::Fabric { .. }) => {
                debug_assert_eq!(answer.message.first_chunk(), Some(&xid.0.to_be_bytes()), "the reply's XID");
                if answer.item.is_some() || answer.message.capacity() > SMALL_MAX {
                    self.core.hold_reply(peer, &answer);
                }
                if let Err(answer) = self.answer_fabric(id.0, answer) {
                    self.core.counters.stats.limits.send_queue += 1;
                    self.core.stamp(id.0, Stage::Emit);
                    self.core.keep_unsent(peer, id.0, answer);
                }
            }
            Some(Link::Lost { .. } | Link::Absent { .. }) | None => self.core.forget_inbound(id.0),
        }
    }

    /// The same of a reply that is nothing but a message: it leaves at once if its call had no
    /// chunks, it fits inline, and the fabric takes it as a copy.
    #[inline]
    pub(crate) fn answer_message(&mut self, id: CallId, mut message: Buf) {
        self.core.stamp(id.0, Stage::App);
        if !self.answer_plain(id.0, &mut message) {
            self.answer(id, Answer { message, item: None });
        }
    }

    #[inline]
    fn answer_plain(&mut self, key: Key, message: &mut Buf) -> bool {
        let core = &mut self.core;
        let Some(&Inbound { peer, xid, state: InboundState::AwaitAnswer, has_lists: false, .. }) =
            core.inbound.get(key)
        else {
            return false;
        };
        let Some(entry) = core.peers.get_mut(peer.0) else { return false };
        let Link::Fabric { qp, state: Some(connection) } = &mut entry.link else { return false };
        let adapts = connection.side() == Side::Server;
        let granted = connection.serves().map_or(0, |credits| credits.granted().0);
        // A grant that may change is looked at where all replies are sent.
        if adapts && entry.replies + 1 >= granted || !connection.plain().fits_reply(message.len()) {
            return false;
        }
        debug_assert_eq!(message.first_chunk(), Some(&xid.0.to_be_bytes()), "the reply's XID");
        let room = message.prepend(plain::HEADER_LEN).expect("a message begins behind its head room");
        let room = room.first_chunk_mut().expect("it has this length");
        // RFC 8167 §5.2 [8167-6], draft 002 §5.2 [bidir-6]
        if !(connection.emit_plain_reply(xid, room) && self.provider.send_inline(*qp, message, None)) {
            message.trim_front(plain::HEADER_LEN);
            return false;
        }
        entry.replies += u32::from(adapts);
        let reserved = |connection: &Connection| connection.serves().map(|credits| credits.reserved());
        let before = reserved(connection);
        connection.handle_replied();
        let is_settled = reserved(connection) == before;
        core.counters.stats.responder.replies.short += 1;
        core.forget_inbound(key);
        core.watch.post(key, core.now);
        if !is_settled {
            core.settle_receives(peer);
        }
        true
    }

    /// Sends a reply in whatever form fits. It comes back when the send queue or the pool has no
    /// room for it.
    pub(crate) fn answer_fabric(&mut self, key: Key, mut answer: Answer) -> Result<(), Answer> {
        let core = &mut self.core;
        let Some(call) = core.inbound.get(key) else { return Ok(()) };
        let (peer, xid, has_lists) = (call.peer, call.xid, call.has_lists);
        let lists = lists_of(has_lists, &core.inbound_lists, key);
        let Some(Link::Fabric { qp, state: Some(connection) }) =
            core.peers.get_mut(peer.0).map(|peer| &mut peer.link)
        else {
            return Ok(());
        };
        let qp = *qp;
        let parts = parts_of(&answer);
        let (threshold, policy) = (connection.send_threshold(), core.config.reply_policy);
        let kept = room_kept(connection);
        let plan = match responder::plan_reply(lists, parts, threshold, policy, &mut core.returned) {
            Ok(plan) => plan,
            Err(fault) => {
                let header =
                    Header { xid, credits: connection.reply_header(xid, Body::Msg).credits, body: Body::Msg };
                core.let_reply_go(peer, &answer);
                core.forget_inbound(key);
                self.refuse_call(peer, qp, header, fault);
                return Ok(());
            }
        };
        let pushes = if plan.has_pushes() { count_writes(&plan, &core.returned, &answer) } else { 0 };
        if pushes + kept >= self.provider.limits().send_queue {
            // It would never fit: an error is all that can be sent (RFC 8166 §4.5.4).
            let credits = connection.reply_header(xid, Body::Msg).credits;
            core.let_reply_go(peer, &answer);
            core.forget_inbound(key);
            self.refuse_call(peer, qp, Header { xid, credits, body: Body::Msg }, PeerFault::TooManySegments);
            return Ok(());
        }
        let long = plan.procedure == Procedure::NoMsg;
        let header_only = if long { core.memory.take(HEAD_ROOM) } else { None };
        if self.provider.send_room(qp) < pushes + 1 + kept || header_only.is_some() != long {
            return Err(answer);
        }
        // The reply goes out: it tells the grant.
        core.adapt_grant(peer);
        let lists = lists_of(has_lists, &core.inbound_lists, key);
        let Some(Link::Fabric { state: Some(connection), .. }) =
            core.peers.get_mut(peer.0).map(|peer| &mut peer.link)
        else {
            return Ok(());
        };
        // RFC 8167 §5.2 [8167-6], draft 002 §5.2 [bidir-6]
        let header = connection.reply_header(xid, if long { Body::NoMsg } else { Body::Msg });
        let remote = self.provider.limits().remote_invalidation;
        let invalidate = connection.invalidates(lists).filter(|_| remote).map(RemoteKey);
        connection.handle_replied();
        let stats = &mut core.counters.stats.responder;
        count_form(&mut stats.replies, long, plan.item_in_chunk);
        stats.remote_invalidations += u64::from(invalidate.is_some());
        stats.reply_chunks_spared += u64::from(!long && lists.reply().is_some());
        stats.writes += pushes as u64;

        let bulk = Bulk::of(&answer);
        let item = answer.item.take();
        let (mut message, payload) = match header_only {
            Some(mut message) => {
                message.reset(plan.header_len);
                (message, Some(answer.message.freeze()))
            }
            None => {
                let mut message = answer.message;
                if let Some(item) = item.as_ref().filter(|_| !plan.item_in_chunk) {
                    insert_parts(&mut message, item.position, item.octets.iter().map(|part| &part[..]));
                }
                (message, None)
            }
        };
        if pushes > 0 {
            core.watch.stamp(key, Stage::Emit, core.now);
        }
        let planned = if pushes > 0 { Some(plan.pushes(&core.returned)) } else { None };
        for push in planned.into_iter().flatten() {
            let span = span_of(push);
            let behind = |at: usize| at + span.start..at + span.end;
            stats.pushed += u64::from(push.target.length);
            let provider = &mut self.provider;
            let posted = match (push.part, &payload, &item) {
                (Part::Head, Some(payload), _) => push_one(provider, qp, payload.slice(span), push.target),
                (Part::Tail, Some(payload), _) => {
                    push_one(provider, qp, payload.slice(behind(parts.head as usize)), push.target)
                }
                (Part::Item, _, Some(item)) => push_all(provider, qp, item.octets.slices(span), push.target),
                (Part::Pad, ..) => push_one(provider, qp, core.zeros.slice(span), push.target),
                _ => unreachable!("the plan pushes parts that the reply has"),
            };
            if posted.is_err() {
                return Ok(()); // The connection is dying; its end removes the call.
            }
        }
        if pushes > 0 {
            core.watch.stamp(key, Stage::Push, core.now);
        }
        let room = message.prepend(plan.header_len).expect("a message begins behind its head room");
        let emitted = connection.emit(&header, &core.returned, room);
        debug_assert_eq!(emitted, Ok(plan.header_len), "the plan knows its header");
        let is_sent = self.provider.send_inline(qp, &message, invalidate);
        let work = bulk.map_or(Work::Untracked, Work::BulkReply);
        if is_sent || self.provider.post_send(qp, work.tag(), message, invalidate).is_ok() {
            core.forget_inbound(key);
            core.watch.post(key, core.now);
        }
        core.settle_receives(peer);
        if let Some(bulk) = bulk.filter(|_| is_sent) {
            core.end_bulk(peer, bulk);
        }
        Ok(())
    }
}

/// The chunk lists of a call.
fn lists_of(has_lists: bool, all: &[ChunkLists], key: Key) -> &ChunkLists {
    if has_lists { all.get(key.index()).expect("one for each place") } else { &NOTHING }
}

/// RDMA Writes that take a reply's parts to their chunks.
fn count_writes(plan: &ReplyPlan, returned: &ChunkLists, answer: &Answer) -> usize {
    let writes = plan.pushes(returned).map(|push| match (push.part, &answer.item) {
        (Part::Item, Some(item)) => item.octets.slices(span_of(push)).count(),
        _ => 1,
    });
    writes.sum()
}

/// The octets of its part that are pushed.
fn span_of(push: Push) -> Range<usize> {
    push.from as usize..(push.from + push.target.length) as usize
}

fn push_one<P: Provider>(
    provider: &mut P,
    qp: Qp,
    source: Extent,
    target: Segment,
) -> Result<(), Refused<Extent>> {
    provider.post_write(qp, Work::Untracked.tag(), source, remote(target))
}

/// Pushes extents one behind the other: together they are as long as `target`.
fn push_all<P: Provider>(
    provider: &mut P,
    qp: Qp,
    sources: impl Iterator<Item = Extent>,
    mut target: Segment,
) -> Result<(), Refused<Extent>> {
    for source in sources {
        let len = source.len() as u32;
        push_one(provider, qp, source, Segment { length: len, ..target })?;
        // The end of the segment does not wrap: it was checked when it was parsed.
        target.offset += u64::from(len);
        target.length -= len;
    }
    debug_assert_eq!(target.length, 0, "the item has every octet that is pushed");
    Ok(())
}

fn parts_of(answer: &Answer) -> ReplyParts {
    let len = answer.message.len();
    let position = answer.item.as_ref().map_or(len, |item| item.position);
    debug_assert!(position <= len, "the item lies in its message");
    let item = answer.item.as_ref().map_or(0, |item| item.octets.len());
    ReplyParts { head: position as u32, item: item as u32, tail: (len - position) as u32 }
}

/// Puts an item and its padding where they belong in the payload stream.
///
/// # Panics
/// When the message has no room for it: its sender compared the lengths with the inline threshold.
pub(crate) fn insert_item(message: &mut Buf, position: usize, item: &[u8]) {
    insert_parts(message, position, std::iter::once(item));
}

/// [`insert_item`] of an item that lies in several places.
fn insert_parts<'a>(message: &mut Buf, position: usize, parts: impl Iterator<Item = &'a [u8]> + Clone) {
    let len = parts.clone().map(<[u8]>::len).sum::<usize>();
    let (old, padding) = (message.len(), pad(len));
    message.extend(len + padding);
    message.copy_within(position..old, position + len + padding);
    let mut rest = message.get_mut(position..).expect("the item lies in its message");
    for part in parts {
        let (octets, behind) = rest.split_at_mut_checked(part.len()).expect("it was extended");
        octets.copy_from_slice(part);
        rest = behind;
    }
    // RFC 8166 §3.5.3 [8166-29]
    rest.iter_mut().take(padding).for_each(|octet| *octet = 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LARGE_LEN;
    use stag_pools::{Class, Pool};

    #[test]
    fn a_tag_tells_the_buffers_that_are_held_and_the_octets_that_leave() {
        let classes = [SMALL_MAX, LARGE_LEN].map(|slot_len| Class { slot_len, count: 1 });
        let pool = Pool::new(&classes).unwrap();
        let answer = |capacity: usize, len: usize| {
            let mut message = pool.take(capacity).unwrap();
            message.reset(0);
            message.extend(len);
            Answer { message, item: None }
        };
        assert_eq!(Bulk::of(&answer(SMALL_MAX, 1_000)), None);
        // A short reply in a long buffer earns its octets, and a long one nearly all.
        for len in [64, 1_024, LARGE_LEN] {
            let bulk = Bulk::of(&answer(LARGE_LEN, len)).unwrap();
            assert_eq!(Bulk::from_bits(bulk.to_bits()), bulk);
            assert!(bulk.held() >= LARGE_LEN as u64 && bulk.held() < (LARGE_LEN + 4_096) as u64);
            assert_eq!(bulk.pushed(), len as u64);
        }
    }
}
