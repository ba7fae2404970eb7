//! A call of ours: how it waits, and how it ends. Hop 1, and the second half of hop 10.

use crate::{
    app::{App, CallFault, Cx, Outcome, PeerId, Request, Token},
    config::Config,
    core::{Core, Link, Outbound, OutboundState, Peer, ReplyMemory, Sent},
    peers::names::known_as,
    requester::chunked::set_xid,
    requester::clear_behind,
    responder::pull::NOTHING,
    shard::Shard,
    work::Work,
};
use stag_pools::{
    Buf, Fenced, RemoteKey,
    table::{Key, Walk},
};
use stag_protocol::rpcrdma::{
    Connection, ErrorBody, Header, Side, Xid, plain,
    requester::{self, ReplyPayload},
};
use stag_verbs::{Cause, Provider, Qp};
use std::collections::VecDeque;

/// Work requests of one call: its windows and its Send.
const WORK: usize = Outbound::WINDOWS + 1;
/// Work requests of a usual reply: Writes of an item and of its rest, and the Send; and the Read that may come first.
const REPLY_WORK: usize = 4;

impl Core {
    /// Hop 1: a call of the app is taken to wait in the queue of its peer, or it is said why it cannot.
    pub(crate) fn queue_call(
        &mut self,
        peer: PeerId,
        request: &mut Option<Request>,
    ) -> Result<(), CallFault> {
        let Self { peers, outbound, config, .. } = self;
        let heir = peers.get(peer.0).and_then(|entry| entry.heir);
        let peer = heir.unwrap_or(peer);
        let Some(entry) = peers.get_mut(peer.0) else { return Err(CallFault::NoPeer) };
        let most = waiting_max(config, entry.side, outbound.capacity() - outbound.len());
        if entry.waiting.len() >= most {
            entry.waiting.retain(|key| outbound.get(*key).is_some());
        }
        if entry.waiting.len() >= most || outbound.len() == outbound.capacity() {
            return Err(CallFault::Limit);
        }
        let Request { message, item, reply_max, result, timeout, token } =
            request.take().expect("a call is queued once");
        // RFC 5531 §5 [5531-2]
        let deadline = self.now + timeout;
        let offers = (item.is_some() || result.is_some()).then(|| {
            let mut offers = self.offers.take();
            (offers.position, offers.item) = item.map(|item| (item.position, item.octets)).unzip();
            offers.result = result;
            offers
        });
        let call = Outbound {
            peer,
            token,
            xid: None,
            deadline,
            state: OutboundState::AwaitCredit,
            cancelled: false,
            message: Some(message),
            sent: Sent::default(),
            reply_max,
            offers,
        };
        let key = outbound.insert(call).expect("a place was seen above");
        entry.waiting.push_back(key);
        self.note_unclocked(key);
        self.next_expiry = self.next_expiry.min(deadline);
        Ok(())
    }
}

/// The most calls that wait for one peer, of `free` places for more. Those to a client that may stay away leave room for those to
/// others: half of what is left, so that however many stay away, one more finds a place.
fn waiting_max(config: &Config, side: Side, free: usize) -> usize {
    match side {
        Side::Client => config.outbound,
        Side::Server if config.reverse_calls_max == 0 => 0,
        Side::Server if config.outbound < 4 => 1,
        Side::Server => (config.outbound / 4).min(free / 2).max(1),
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Takes a call from the app. It goes out as soon as there is a credit for it.
    pub(crate) fn call(&mut self, peer: PeerId, request: Request) {
        let mut request = Some(request);
        match (self.core.queue_call(peer, &mut request), request) {
            (Err(fault), Some(Request { token, item, result, .. })) => {
                let (peer, item) = (self.core.known_as(peer), item.map(|item| item.octets));
                let outcome = Outcome { token, peer, reply: Err(fault), item, result };
                self.app.on_reply(&mut Cx { core: &mut self.core }, outcome);
            }
            _ => self.start_waiting(self.core.known_as(peer)),
        }
    }

    /// Tells the app that a call nobody knows of is over. Its room for a result comes back as it was.
    fn give_back(&mut self, call: Outbound, fault: CallFault) {
        let peer = self.core.known_as(call.peer);
        let Outbound { token, offers, .. } = call;
        let (item, result) = match offers {
            Some(mut offers) => {
                let back = (offers.item.take(), offers.result.take());
                self.core.offers.give(offers);
                back
            }
            None => (None, None),
        };
        let outcome = Outcome { token, peer, reply: Err(fault), item, result };
        self.app.on_reply(&mut Cx { core: &mut self.core }, outcome);
    }

    /// Gives up on a call (DESIGN D9): one that is under way keeps its memory until the peer cannot reach it.
    pub(crate) fn cancel(&mut self, peer: PeerId, token: Token) {
        let mut walk = Walk::default();
        while let Some((key, call)) = walk.next(&mut self.core.outbound) {
            if call.token != token || known_as(&self.core.peers, call.peer) != peer {
                continue;
            }
            // RFC 8166 §4.4.1 [8166-72]
            call.cancelled = true;
            if call.state == OutboundState::AwaitCredit
                && let Some(call) = self.core.outbound.remove(key)
            {
                self.give_back(call, CallFault::Cancelled);
            }
        }
    }

    /// Sends the calls that wait, in order, while there are credits and room (hop 2).
    pub(crate) fn start_waiting(&mut self, peer: PeerId) {
        let send_queue = self.provider.limits().send_queue;
        loop {
            // RFC 8167 §6: nothing is sent to a peer before it takes calls.
            // RFC 8167 §6 [8167-10], draft 002 §6 [bidir-9]
            let Some(entry) = self.core.peers.get_mut(peer.0).filter(|entry| entry.ready) else { return };
            let Some(key) = entry.waiting.front().copied() else { return };
            let waits = |call: &&mut Outbound| call.state == OutboundState::AwaitCredit;
            let Some(call) = self.core.outbound.get_mut(key).filter(waits) else {
                entry.waiting.pop_front();
                continue;
            };
            if let Link::Fabric { qp, state: Some(connection) } = &mut entry.link
                && connection.calls().is_some()
                && call.is_plain(connection)
                && room_needed(connection, send_queue) <= send_queue
            {
                if connection.take_credit().is_err() {
                    self.core.counters.stats.requester.waited_for_credit += 1;
                    return;
                }
                self.core.next_xid = self.core.next_xid.wrapping_add(1);
                let fresh = Xid(self.core.next_xid << self.core.place_bits | key.index() as u32);
                if send_plain(&mut self.provider, *qp, connection, call, fresh) {
                    let stats = &mut self.core.counters.stats.requester;
                    stats.calls.short += 1;
                    stats.versions.count(connection.sends(), connection.side().calls());
                    entry.waiting.pop_front();
                    continue;
                }
                connection.give_credit();
            }
            if let Link::Stream(stream) = entry.link {
                let most =
                    if entry.side == Side::Client { u32::MAX } else { self.core.config.reverse_calls_max };
                if !self.streams.takes_calls(stream, most) {
                    return;
                }
                if self.streams.is_clogged(stream) {
                    return self.retry_soon(peer);
                }
                entry.waiting.pop_front();
                self.send_call_by_stream(key, stream);
                continue;
            }
            let Link::Fabric { qp, state: Some(connection) } = &mut entry.link else { return };
            let qp = *qp;
            if connection.calls().is_none() && !self.core.allow_calls(peer) {
                return self.retry_soon(peer);
            }
            let Some((_, connection)) = self.core.connection(peer) else { return };
            if self.provider.send_room(qp) < room_needed(connection, send_queue) {
                return self.retry_soon(peer);
            }
            if connection.take_credit().is_err() {
                self.core.counters.stats.requester.waited_for_credit += 1;
                return;
            }
            let entry = self.core.peers.get_mut(peer.0).expect("it was found above");
            entry.waiting.pop_front();
            if let Err(fault) = self.send_call(key, peer, qp) {
                if let Some((_, connection)) = self.core.connection(peer) {
                    connection.give_credit();
                }
                if let Some(call) = self.core.outbound.remove(key) {
                    self.give_back(call, fault);
                }
            }
        }
    }

    /// What waits for this peer is looked at again in the next pass: nothing else may tell that there is room.
    pub(crate) fn retry_soon(&mut self, peer: PeerId) {
        if let Some(entry) = self.core.peers.get_mut(peer.0)
            && !std::mem::replace(&mut entry.stuck, true)
        {
            self.core.stuck.push_back(peer);
        }
    }

    /// Tries to send what found no room. True when something was sent.
    pub(crate) fn retry_stuck(&mut self) -> bool {
        let mut sent = false;
        for _ in 0..self.core.stuck.len() {
            let Some(peer) = self.core.stuck.pop_front() else { break };
            let Some(entry) = self.core.peers.get_mut(peer.0) else { continue };
            entry.stuck = false;
            let waiting = |entry: &Peer| (entry.waiting.len(), entry.options.waiting());
            let before = waiting(entry);
            self.answer_options(peer);
            self.start_waiting(peer);
            sent |= self.core.peers.get(peer.0).is_none_or(|entry| waiting(entry) != before);
        }
        sent
    }

    /// A call over TCP: everything inline, the item from where it lies.
    fn send_call_by_stream(&mut self, key: Key, stream: Key) {
        let xid = self.core.xid(key.index());
        let Some(call) = self.core.outbound.get_mut(key) else { return };
        let Some(mut message) = call.message.take() else { return };
        set_xid(&mut message, xid);
        call.xid = Some(xid);
        call.state = OutboundState::AwaitReply;
        let item = call.offers.as_mut().and_then(|offers| {
            offers.shared = offers.item.take().map(Buf::freeze);
            offers.position.zip(offers.shared.as_ref())
        });
        self.streams.send_call(stream, message, item, &self.core.zeros);
    }

    /// A reply came over TCP.
    pub(crate) fn handle_record(&mut self, peer: PeerId, xid: Xid, record: &[u8]) {
        // RFC 5531 §9 [5531-14]
        if let Some(key) = self.core.outbound_by_xid(peer, xid)
            && let Some(call) = self.core.outbound.remove(key)
        {
            let reply = if call.cancelled { Err(CallFault::Cancelled) } else { Ok(record) };
            self.tell(call, reply);
        }
        self.start_waiting(peer);
    }

    /// Tells the app of an outcome.
    fn tell(&mut self, call: Outbound, reply: Result<&[u8], CallFault>) {
        let peer = self.core.known_as(call.peer);
        let Outbound { token, offers, .. } = call;
        let (mut item, mut result) = (None, None);
        if let Some(mut offers) = offers {
            // What was sent over TCP is ours alone again, unless a part of it still waits to be sent.
            let shared = offers.shared.take();
            item = offers.item.take().or_else(|| shared?.try_into_buf().ok());
            result = offers.result.take();
            if let Some(result) = &mut result {
                result.truncate(offers.written);
                self.core.counters.stats.requester.unwritten += clear_behind(result, offers.result_filled);
            }
            self.core.offers.give(offers);
        }
        let outcome = Outcome { token, peer, reply, item, result };
        self.app.on_reply(&mut Cx { core: &mut self.core }, outcome);
        self.empty_outbox();
    }

    /// The connection of `peer` is gone, and everything that its calls had posted or exposed is back: they wait for the next one
    /// of `heir`, which is the same peer unless that came back already.
    pub(crate) fn take_calls_back(&mut self, peer: PeerId, heir: PeerId) {
        let mut again = VecDeque::new();
        let mut walk = Walk::default();
        while let Some((key, call)) = walk.next(&mut self.core.outbound) {
            if call.peer != peer || call.state == OutboundState::AwaitCredit {
                continue;
            }
            debug_assert!(call.is_fenced(), "windows end before their connection");
            call.peer = heir;
            let over = match (call.state, call.cancelled) {
                _ if call.has_ended() => None,
                (OutboundState::AwaitEnd, _) => Some(CallFault::TimedOut),
                (_, true) => Some(CallFault::Cancelled),
                (_, false) if call.message.is_none() => Some(CallFault::Disconnected(Cause::Local)),
                (_, false) => {
                    call.state = OutboundState::AwaitCredit;
                    call.offers.as_mut().into_iter().for_each(|offers| offers.reply_room = None);
                    again.push_back((call.xid, key));
                    continue;
                }
            };
            if let Some(fault) = over {
                call.end(ReplyMemory::Fault(fault), &mut self.core.offers);
            }
            self.finish_if_fenced(key);
        }
        // The oldest goes first, as it did before.
        again.make_contiguous().sort_unstable_by_key(|(xid, _)| xid.map(|xid| xid.0));
        if let Some(entry) = self.core.peers.get_mut(heir.0) {
            while let Some((_, key)) = again.pop_back() {
                entry.waiting.push_front(key);
            }
        }
    }

    /// Hop 10: a plain reply arrived. `None`: it has to be judged by what its call offered.
    #[inline]
    pub(crate) fn handle_plain_reply(&mut self, peer: PeerId, xid: Xid, message: &[u8]) -> Option<()> {
        let Some(key) = self.core.outbound_by_xid(peer, xid) else { return Some(()) };
        let call = self.core.outbound.get(key)?;
        if call.state != OutboundState::AwaitReply || call.offers.is_some() {
            return None;
        }
        let entry = self.core.peers.get_mut(peer.0)?;
        let known_as = entry.heir.unwrap_or(peer);
        entry.attempts = 0;
        if let Link::Fabric { state: Some(connection), .. } = &mut entry.link {
            connection.give_credit();
        }
        self.core.counters.stats.requester.replies.short += 1;
        // There is no window to fence, so the call is over. Its buffer goes first: the next call takes it.
        let Outbound { token, cancelled, .. } = self.core.outbound.remove(key)?;
        let payload = message.get(plain::HEADER_LEN..).unwrap_or_default();
        let reply = if cancelled { Err(CallFault::Cancelled) } else { Ok(payload) };
        let outcome = Outcome { token, peer: known_as, reply, item: None, result: None };
        self.app.on_reply(&mut Cx { core: &mut self.core }, outcome);
        self.empty_outbox();
        if self.core.peers.get(peer.0).is_some_and(|entry| !entry.waiting.is_empty()) {
            self.start_waiting(peer);
        }
        Some(())
    }

    /// Hop 10: a reply arrived.
    pub(crate) fn handle_reply(
        &mut self,
        peer: PeerId,
        header: Header,
        payload_at: usize,
        message: Buf,
        invalidated: Option<Fenced>,
    ) {
        let Some(key) = self.core.outbound_by_xid(peer, header.xid) else {
            if let Some(fenced) = invalidated {
                self.handle_stray_invalidation(peer, fenced);
            }
            return;
        };
        let mut foreign = false;
        let call = self.core.outbound.get_mut(key).expect("the key was just found");
        if let Some(fenced) = invalidated {
            self.core.counters.stats.requester.remote_invalidations += 1;
            if let Err(fenced) = call.fence(fenced) {
                foreign = true;
                self.core.deposit(peer, fenced);
            }
        }
        if foreign {
            // RFC 8797 §4.1: only a key of this call may be invalidated.
            // RFC 8797 §4.1 [8797-4]
            return self.disconnect(peer);
        }
        let call = self.core.outbound.get_mut(key).expect("the key was just found");
        if call.state != OutboundState::AwaitReply {
            return;
        }
        let offered = match &call.offers {
            Some(_) => self.core.offered.get(key.index()).expect("one for each place"),
            None => &NOTHING,
        };
        let inline = message.len() - payload_at;
        let shape = match requester::check_reply(offered, &header, &self.core.lists, inline) {
            Ok(shape) => shape,
            // RFC 8166 §4.5: a reply that cannot be understood is discarded. The call ends at its deadline.
            // RFC 8166 §4.5 [8166-46]
            Err(fault) => return self.core.counters.peer_faults.count(fault),
        };
        let written = shape.written().first().copied().unwrap_or(0);
        if let Some(offers) = &mut call.offers {
            // RFC 8166 §4.3.2.2 [8166-40]
            offers.written = usize::try_from(written).unwrap_or(0);
        }
        let stats = &mut self.core.counters.stats.requester;
        stats.write_chunks_unused += u64::from(written == 0 && offered.writes().next().is_some());
        let reply = match shape.payload {
            ReplyPayload::Inline(_) => ReplyMemory::Inline { message, payload_at },
            ReplyPayload::ReplyChunk(len) => ReplyMemory::Room(usize::try_from(len).unwrap_or(0)),
        };
        let is_inline = matches!(reply, ReplyMemory::Inline { .. });
        call.end(reply, &mut self.core.offers);
        // What a Reply chunk holds is judged when it can be read.
        if let Some(entry) = self.core.peers.get_mut(peer.0).filter(|_| is_inline) {
            entry.attempts = 0;
        }
        let replies = &mut self.core.counters.stats.requester.replies;
        match shape.payload {
            ReplyPayload::ReplyChunk(_) => replies.long += 1,
            ReplyPayload::Inline(_) if written > 0 => replies.chunked += 1,
            ReplyPayload::Inline(_) => replies.short += 1,
        }
        self.end_call(key, peer);
    }

    /// The peer does not speak version 2: the call goes again, behind whatever it had offered is dead (draft 000 §5.2).
    pub(crate) fn handle_again(&mut self, peer: PeerId, xid: Xid) {
        let stats = &mut self.core.counters.stats.requester;
        (stats.errors, stats.version_errors) = (stats.errors + 1, stats.version_errors + 1);
        let Some(key) = self.core.outbound_by_xid(peer, xid) else { return };
        let call = self.core.outbound.get_mut(key).expect("the key was just found");
        if call.state != OutboundState::AwaitReply {
            return;
        }
        call.state = OutboundState::AwaitWhole;
        let windows = call.windows();
        if let Some((qp, _)) = self.core.connection(peer) {
            windows.into_iter().flatten().for_each(|(window, _)| self.invalidate(qp, key, window));
        }
        self.go_again_if_whole(key);
    }

    /// Puts a call first that goes again, once everything it had posted and exposed is back. Until then it keeps the only credit.
    pub(crate) fn go_again_if_whole(&mut self, key: Key) {
        let whole = |call: &Outbound| call.is_fenced() && call.message.is_some();
        let Some(call) = self.core.outbound.get_mut(key).filter(|call| whole(call)) else { return };
        call.state = OutboundState::AwaitCredit;
        call.offers.as_mut().into_iter().for_each(|offers| offers.reply_room = None);
        let (peer, cancelled) = (call.peer, call.cancelled);
        if let Some((_, connection)) = self.core.connection(peer) {
            connection.give_credit();
        }
        if cancelled {
            let call = self.core.outbound.remove(key).expect("it was found above");
            self.give_back(call, CallFault::Cancelled);
        } else if let Some(entry) = self.core.peers.get_mut(peer.0) {
            entry.waiting.push_front(key);
        }
        self.start_waiting(peer);
    }

    /// The responder's transport refused a call.
    pub(crate) fn handle_refused(&mut self, peer: PeerId, xid: Xid, error: ErrorBody) {
        let stats = &mut self.core.counters.stats.requester;
        stats.errors += 1;
        stats.version_errors += u64::from(matches!(error, ErrorBody::Version { .. }));
        let Some(key) = self.core.outbound_by_xid(peer, xid) else { return };
        let call = self.core.outbound.get_mut(key).expect("the key was just found");
        if call.state == OutboundState::AwaitReply {
            // RFC 8267 §6.4.2, §6.7.2 [8267-13] [8267-14] [8267-18]
            call.end(ReplyMemory::Fault(CallFault::Refused(error)), &mut self.core.offers);
            self.end_call(key, peer);
        }
    }

    /// A key was invalidated by a message that is not the reply of its call: the connection ends (DESIGN D9).
    pub(crate) fn handle_stray_invalidation(&mut self, peer: PeerId, fenced: Fenced) {
        self.core.deposit(peer, fenced);
        self.disconnect(peer);
    }

    /// The responder is done with a call: its credit is free, and every key that is left is invalidated before the app hears
    /// of the reply (RFC 8166 §4.4.1).
    fn end_call(&mut self, key: Key, peer: PeerId) {
        let Some(call) = self.core.outbound.get_mut(key) else { return };
        call.state = OutboundState::AwaitFence;
        let windows = call.windows();
        if let Some((qp, connection)) = self.core.connection(peer) {
            connection.give_credit();
            // draft 001 §2.2 [reminv-11]
            for (window, _) in windows.into_iter().flatten() {
                self.invalidate(qp, key, window);
            }
        }
        self.finish_if_fenced(key);
        self.start_waiting(peer);
    }

    fn invalidate(&mut self, qp: Qp, call: Key, window: RemoteKey) {
        self.core.counters.stats.requester.local_invalidations += 1;
        // RFC 8166 §4.5.4 [8166-54]
        if self.provider.post_local_invalidate(qp, Work::Invalidation(call).tag(), window).is_err() {
            // RFC 8166 §4.5.4: what cannot be invalidated ends the connection, and with it the window.
            self.provider.disconnect(qp);
        }
    }

    /// Tells the app, once every key of a finished call is dead.
    pub(crate) fn finish_if_fenced(&mut self, key: Key) {
        if self.core.outbound.get(key).is_some_and(|call| call.state == OutboundState::AwaitWhole) {
            return self.go_again_if_whole(key);
        }
        // RFC 8166 §4.4.1 [8166-71]
        // draft 001 §2.2 [reminv-10]
        let done = |call: &Outbound| call.has_ended() && call.is_fenced();
        let Some(call) = self.core.outbound.get_mut(key).filter(|call| done(call)) else { return };
        if let Err(fault) = call.look_at_long_reply(&mut self.core.counters.stats.requester.unwritten) {
            self.core.counters.peer_faults.count(fault);
            let peer = call.peer;
            return self.disconnect(peer);
        }
        let Some(mut call) = self.core.outbound.remove(key) else { return };
        let offers = call.offers.as_mut().expect("it was seen above");
        let room = offers.reply_room.take();
        let reply = match offers.reply.take().expect("it was seen above") {
            _ if call.cancelled => ReplyMemory::Fault(CallFault::Cancelled),
            reply => reply,
        };
        let octets = match &reply {
            ReplyMemory::Inline { message, payload_at } => Ok(message.get(*payload_at..).unwrap_or_default()),
            ReplyMemory::Room(len) => {
                if let Some(entry) = self.core.peers.get_mut(call.peer.0) {
                    entry.attempts = 0;
                }
                Ok(room.as_deref().and_then(|room| room.get(..*len)).unwrap_or_default())
            }
            ReplyMemory::Fault(fault) => Err(*fault),
        };
        self.tell(call, octets);
    }

    /// The connection is gone and every window of it came back: its calls are over.
    pub(crate) fn fail_calls_of(&mut self, peer: PeerId, cause: Cause) {
        let mut walk = Walk::default();
        while let Some((key, call)) = walk.next(&mut self.core.outbound) {
            if call.peer != peer {
                continue;
            }
            let fault = match call.state {
                OutboundState::AwaitEnd => CallFault::TimedOut,
                _ => CallFault::Disconnected(cause),
            };
            call.end(ReplyMemory::Fault(fault), &mut self.core.offers);
            debug_assert!(call.is_fenced(), "windows end before their connection");
            self.finish_if_fenced(key);
        }
    }

    /// Ends the calls whose deadline passed: at once where nobody knows of them, else with their connection, which never
    /// carries them again (DESIGN D9).
    pub(crate) fn expire_calls(&mut self) {
        let mut walk = Walk::default();
        while let Some((key, call)) = walk.next(&mut self.core.outbound) {
            if call.deadline > self.core.now {
                self.core.next_expiry = self.core.next_expiry.min(call.deadline);
                continue;
            }
            let peer = call.peer;
            match call.state {
                OutboundState::AwaitCredit => {
                    self.core.counters.stats.requester.timeouts += 1;
                    if let Some(call) = self.core.outbound.remove(key) {
                        self.give_back(call, CallFault::TimedOut);
                    }
                }
                OutboundState::AwaitReply => {
                    call.state = OutboundState::AwaitEnd;
                    self.core.counters.stats.requester.timeouts += 1;
                    self.disconnect(peer);
                }
                OutboundState::AwaitFence | OutboundState::AwaitWhole => self.disconnect(peer),
                OutboundState::AwaitEnd | OutboundState::AwaitNext => {}
            }
        }
        self.empty_outbox();
    }
}

/// Sends a call as the plain message it is ([`Outbound::is_plain`]), with `fresh` for an XID if it has none, and if the fabric
/// takes it at once. Then its message stays here.
#[inline]
fn send_plain<P: Provider>(
    provider: &mut P,
    qp: Qp,
    connection: &Connection,
    call: &mut Outbound,
    fresh: Xid,
) -> bool {
    let (xid, Some(message)) = (call.xid.unwrap_or(fresh), &mut call.message) else { return false };
    set_xid(message, xid);
    // draft 004 §3.1.1 [exp-2]
    let room = message.prepend(plain::HEADER_LEN).expect("a message begins behind its head room");
    let room = room.first_chunk_mut().expect("it has this length");
    let sent = connection.emit_plain_call(xid, room) && provider.send_inline(qp, message, None);
    message.trim_front(plain::HEADER_LEN);
    if sent {
        (call.state, call.xid) = (OutboundState::AwaitReply, Some(xid));
    }
    sent
}

impl Outbound {
    /// Whether this call and its longest reply fit inline on `connection`, and nothing else belongs to it.
    #[inline]
    fn is_plain(&self, connection: &Connection) -> bool {
        let Some(message) = &self.message else { return false };
        self.offers.is_none() && connection.plain().fits_call(message.len(), self.reply_max)
    }
}

/// Places in the send queue that are not given away: every window that is out may need an invalidation of ours.
#[inline]
pub(crate) fn room_kept(connection: &Connection) -> usize {
    let windows = if connection.calls_with_chunks() { Outbound::WINDOWS } else { 0 };
    connection.calls().map_or(0, |credits| credits.in_flight() as usize) * windows
}

/// Places in the send queue that have to be free for one more call of ours. It leaves some to replies: a reply for which a peer
/// waits may be what our calls wait for. So a call that takes no place is not sent either where the whole queue has fewer.
#[inline]
fn room_needed(connection: &Connection, send_queue: usize) -> usize {
    let serves = connection.serves().map_or(0, |credits| credits.reserved() as usize);
    WORK + room_kept(connection) + (serves * REPLY_WORK).min(send_queue / 4)
}
