//! Calls of ours that wait for a credit, a connection or send queue room (hop 1).

use crate::{
    app::{
        App, CallFault, Cx, Outcome, PeerId, Request, RequestItem, ResultRooms, SignCall, Token,
    },
    config::Config,
    core::Core,
    room::Room,
    shard::Shard,
    state::{
        Peer, Requester,
        outbound::{Outbound, OutboundState, Sent},
    },
};
use stag_pools::table::Walk;
use stag_protocol::rpcrdma::Side;
use stag_verbs::Provider;
use std::rc::Rc;

impl Core {
    /// Checks that one more call to `peer`, which already holds `own` entries, may wait.
    #[inline]
    pub(super) fn make_place(&mut self, peer: PeerId, own: usize) -> Result<(), CallFault> {
        debug_assert!(own <= 1, "it is one call");
        let Self { peers, requester: Requester { calls, .. }, config, .. } = self;
        let Some(entry) = peers.get_mut(peer) else { return Err(CallFault::NoPeer) };
        let waiting = &mut entry.calls.waiting;
        let free = calls.capacity() - calls.len() + own;
        let most = waiting_max(config, entry.side, free);
        if waiting.len() >= most {
            waiting.retain(|key| calls.get(*key).is_some());
        }
        let is_full = waiting.len() >= most || free == 0;
        if is_full { Err(CallFault::Limit) } else { Ok(()) }
    }

    /// Hop 1: adds a call of the app to the queue of its peer.
    pub(crate) fn queue_call(
        &mut self,
        peer: PeerId,
        request: &mut Option<Request>,
        rooms: Option<ResultRooms>,
    ) -> Result<(), CallFault> {
        let peer = self.peers.known_as(peer);
        self.make_place(peer, 0)?;
        let Self { peers, requester: Requester { calls, spare, .. }, .. } = self;
        let Some(entry) = peers.get_mut(peer) else { return Err(CallFault::NoPeer) };
        let key = calls.next_key().ok_or(CallFault::Limit)?;
        let Request { message, item, reply_max, result, timeout, token } =
            request.take().expect("a call is queued once");
        // RFC 5531 §5 [5531-2]: a call has a deadline, as its server may crash
        let deadline = self.now + timeout;
        let offers = (item.is_some() || result.is_some()).then(|| {
            let mut offers = spare.take();
            if let Some(RequestItem { position, octets }) = item {
                (offers.position, offers.item) = (Some(position), Some(octets));
            }
            (offers.result, offers.rooms) = (result.map(|room| room.0), rooms);
            offers
        });
        calls.insert_next(key, || Outbound {
            peer,
            token,
            xid: None,
            deadline,
            state: OutboundState::AwaitCredit,
            cancelled: false,
            message: Some(message),
            written: 0,
            sent: Sent::default(),
            reply_max,
            offers,
        });
        entry.wait_last(key);
        self.note_unclocked(key);
        self.deadlines.no_later(deadline);
        Ok(())
    }
}

impl Core {
    /// Hop 1 of a call that `signer` completes whenever it is sent. Both are taken on success.
    pub(crate) fn queue_signed(
        &mut self,
        peer: PeerId,
        request: &mut Option<Request>,
        signer: &mut Option<Rc<dyn SignCall>>,
    ) -> Result<(), CallFault> {
        let result = request.as_ref().and_then(|request| request.result.as_ref());
        let len = result.map(|room| u32::try_from(room.len()).map_err(|_| CallFault::TooLong));
        let rooms = ResultRooms::new(len.transpose()?.as_slice()).ok_or(CallFault::TooLong)?;
        self.queue_call(peer, request, Some(rooms))?;
        let peer = self.peers.known_as(peer);
        let key = self.peers.get_mut(peer).and_then(|entry| entry.calls.waiting.back().copied());
        let Requester { calls, spare, .. } = &mut self.requester;
        let call = key.and_then(|key| calls.get_mut(key)).expect("the call was queued last");
        let offers = call.offers.get_or_insert_with(|| spare.take());
        (offers.rooms, offers.signer) = (Some(rooms), signer.take());
        Ok(())
    }
}

/// Maximum of calls that wait for one peer, when `free` entries are free. Calls to a client that
/// may stay away leave half of the free entries to calls to others, so that one more call always
/// finds an entry.
fn waiting_max(config: &Config, side: Side, free: usize) -> usize {
    match side {
        Side::Client => config.outbound,
        Side::Server if config.reverse_calls_max == 0 => 0,
        Side::Server if config.outbound < 4 => 1,
        Side::Server => (config.outbound / 4).min(free / 2).max(1),
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Takes a call from the app, to be sent as soon as there is a credit for it.
    pub(crate) fn call(&mut self, peer: PeerId, request: Request, rooms: Option<ResultRooms>) {
        let mut request = Some(request);
        match (self.core.queue_call(peer, &mut request, rooms), request) {
            (Err(fault), Some(Request { token, item, result, .. })) => {
                let (peer, item) = (self.core.peers.known_as(peer), item.map(|item| item.octets));
                let outcome =
                    Outcome { token, peer, reply: Err(fault), item, result, written: &[] };
                self.app.on_reply(&mut Cx::new(&mut self.core, &mut self.provider), outcome);
            }
            _ => self.start_waiting(self.core.peers.known_as(peer)),
        }
    }

    /// The same for a call that `signer` completes whenever it is sent.
    pub(crate) fn call_signed(&mut self, peer: PeerId, request: Request, signer: Rc<dyn SignCall>) {
        let (mut request, mut signer) = (Some(request), Some(signer));
        match (self.core.queue_signed(peer, &mut request, &mut signer), request) {
            (Err(fault), Some(Request { token, item, result, .. })) => {
                let (peer, item) = (self.core.peers.known_as(peer), item.map(|item| item.octets));
                let outcome =
                    Outcome { token, peer, reply: Err(fault), item, result, written: &[] };
                self.app.on_reply(&mut Cx::new(&mut self.core, &mut self.provider), outcome);
            }
            _ => self.start_waiting(self.core.peers.known_as(peer)),
        }
    }

    /// Reports the end of an unsent call to the app, and returns its room for a result unchanged.
    pub(super) fn give_back(&mut self, call: Outbound, fault: CallFault) {
        debug_assert!(call.is_fenced(), "an unsent call has no windows");
        let peer = self.core.peers.known_as(call.peer);
        let Outbound { token, offers, .. } = call;
        let (item, result) = match offers {
            Some(mut offers) => {
                let back = (offers.item.take(), offers.result.take().map(Room));
                self.core.requester.spare.give(offers);
                back
            }
            None => (None, None),
        };
        let outcome = Outcome { token, peer, reply: Err(fault), item, result, written: &[] };
        self.app.on_reply(&mut Cx::new(&mut self.core, &mut self.provider), outcome);
    }

    /// Cancels a call (DESIGN D9): a sent one keeps its memory until the peer cannot reach it.
    pub(crate) fn cancel(&mut self, peer: PeerId, token: Token) {
        let mut walk = Walk::default();
        while let Some((key, call)) = walk.next(&mut self.core.requester.calls) {
            if call.token != token || self.core.peers.known_as(call.peer) != peer {
                continue;
            }
            // RFC 8166 §4.4.1 [8166-72]: a cancelled call keeps its memory until its keys are dead
            call.cancelled = true;
            if call.state == OutboundState::AwaitCredit
                && let Some(call) = self.core.requester.calls.remove(key)
            {
                self.give_back(call, CallFault::Cancelled);
            }
        }
    }

    /// Retries the waiting calls of this peer in the next pass: no event may announce that there is
    /// room.
    pub(crate) fn retry_soon(&mut self, peer: PeerId) {
        if let Some(entry) = self.core.peers.get_mut(peer)
            && !std::mem::replace(&mut entry.calls.stuck, true)
        {
            self.core.requester.stuck.push_back(peer);
        }
    }

    /// Tries to send the calls and answers that found no room. Returns true if something was sent.
    #[inline(never)]
    pub(crate) fn retry_stuck(&mut self) -> bool {
        let mut sent = false;
        for _ in 0..self.core.requester.stuck.len() {
            let Some(peer) = self.core.requester.stuck.pop_front() else { break };
            let Some(entry) = self.core.peers.get_mut(peer) else { continue };
            entry.calls.stuck = false;
            let waiting = |entry: &Peer| (entry.calls.waiting.len(), entry.options.waiting());
            let before = waiting(entry);
            self.answer_options(peer);
            self.start_waiting(peer);
            sent |= self.core.peers.get(peer).is_none_or(|entry| waiting(entry) != before);
        }
        sent
    }
}
