//! Fair shares of a pass that finds many events of several connections.
//!
//! From `FEW_EVENTS` on, each connection is served at most half of the messages that it may have in
//! flight; the rest waits for the next pass. Otherwise a peer that sends more calls than its grant,
//! each answered at once, would be served at the cost of peers that keep to theirs.
//!
//! While calls are measured (`turns`), this applies to all messages of a pass, and messages of a
//! connection that has used more time than others wait, too.

use super::EVENTS_PER_PASS;
use crate::{
    app::App,
    shard::Shard,
    state::{Asked, PassShare, Turn},
};
use stag_protocol::rpcrdma::{PeerFault, Side};
use stag_verbs::{Event, Look, Looked, Provider, Qp, Time};

/// Events of a pass that are handled in order of arrival, whatever their connection: so few delay
/// no peer.
pub(super) const FEW_EVENTS: usize = 32;

impl<P: Provider, A: App> Shard<P, A> {
    /// Begins a pass while messages of earlier ones wait, or calls are measured: handles the
    /// waiting messages whose turn it is, then the result of the first look. Such a pass counts as
    /// crowded. Returns the number of messages.
    #[inline(never)]
    pub(super) fn take_put_off(&mut self, front: &[u8], found: Looked) -> usize {
        self.crowd.begin();
        let waiting = self.crowd.put_off.len();
        for _ in 0..waiting {
            let Some(event) = self.crowd.put_off.pop_front() else { break };
            let Event::Received { qp, .. } = &event else { continue };
            let has_room = !self.has_moved_enough();
            // None: its connection has ended, and no answer is needed.
            let Some((share, asked)) = self.share_of(*qp) else { continue };
            let turn = match has_room {
                true => share.judge_again(asked),
                false => Turn::Later,
            };
            match turn {
                Turn::Now => {
                    self.ring_if_due();
                    self.handle_one_of_crowd(event);
                    self.core.unsent += 1;
                }
                turn => self.set_aside(turn, event),
            }
        }
        let mut events = waiting;
        if let Look::Message { qp, len } = found.look() {
            self.take_looked_at(qp, front.get(..len).unwrap_or_default());
            events += 1;
        }
        self.core.has_put_off = !self.crowd.put_off.is_empty();
        events
    }

    /// Continues a pass that has handled `events` events; returns the new number.
    #[inline(never)]
    pub(super) fn take_crowd(&mut self, front: &mut [u8], now: Time, mut events: usize) -> usize {
        if !self.core.has_put_off {
            self.crowd.begin();
        }
        while events < EVENTS_PER_PASS && !self.has_moved_enough() {
            self.ring_if_due();
            match self.provider.look(now, front).look() {
                Look::Message { qp, len } => {
                    self.take_looked_at(qp, front.get(..len).unwrap_or_default());
                }
                Look::Nothing => break,
                Look::Other => {
                    let event = self.provider.poll(now);
                    self.core.charge_poll(&mut self.provider);
                    let Some(event) = event else { break };
                    match self.turn_of_event(&event) {
                        Turn::Now => self.handle_one_of_crowd(event),
                        turn => self.set_aside(turn, event),
                    }
                }
            }
            events += 1;
            self.core.unsent += 1;
        }
        self.core.has_put_off = !self.crowd.put_off.is_empty();
        events
    }

    /// Handles a message that a look found, or puts it off.
    fn take_looked_at(&mut self, qp: Qp, message: &[u8]) {
        match self.turn_of(qp) {
            Turn::Now => self.handle_looked_at_of_crowd(qp, message),
            turn => self.set_aside_looked_at(turn, qp, message),
        }
    }

    // Kept out of line, so that the loop of passes with few events stays inlined.
    #[inline(never)]
    fn handle_one_of_crowd(&mut self, event: Event) {
        let peer = self.core.peers.of_qp(event.qp());
        self.handle_event(event);
        if let Some(peer) = peer {
            self.core.charge(peer);
        }
    }

    #[inline(never)]
    fn handle_looked_at_of_crowd(&mut self, qp: Qp, message: &[u8]) {
        let peer = self.core.peers.of_qp(qp);
        self.handle_looked_at(qp, message);
        if let Some(peer) = peer {
            self.core.charge(peer);
        }
    }

    fn turn_of_event(&mut self, event: &Event) -> Turn {
        match event {
            Event::Received { qp, .. } => self.turn_of(*qp),
            _ => Turn::Now,
        }
    }

    /// Judges a message of a crowded pass.
    fn turn_of(&mut self, qp: Qp) -> Turn {
        match self.share_of(qp) {
            Some((share, asked)) => share.judge(asked),
            None => Turn::Now,
        }
    }

    /// Puts a message off, or drops it.
    #[cold]
    fn set_aside(&mut self, turn: Turn, event: Event) {
        match (turn, &event) {
            (Turn::Later, _) => {
                let waiting = &self.crowd.put_off;
                debug_assert!(waiting.len() < waiting.capacity(), "each one keeps a receive");
                self.crowd.put_off.push_back(event);
            }
            (Turn::Never, Event::Received { qp, .. }) => self.end_flooder(*qp),
            _ => {}
        }
    }

    /// The same for a message that a look found.
    #[cold]
    fn set_aside_looked_at(&mut self, turn: Turn, qp: Qp, message: &[u8]) {
        match turn {
            Turn::Later => {
                let Some(buf) = self.receive_of_look(qp, message) else { return };
                self.crowd.put_off.push_back(Event::Received { qp, buf, invalidated: None });
            }
            Turn::Never => self.end_flooder(qp),
            Turn::Now | Turn::Dropped => {}
        }
    }

    /// The share of a connection, and the facts that decide about its message. The receives
    /// promised to a connection are the number of messages that it may have in flight. None for
    /// connections that we made ourselves.
    fn share_of(&mut self, qp: Qp) -> Option<(&mut PassShare, Asked)> {
        let pass = self.core.counters.stats.passes.total;
        let is_mixed = self.crowd.note(qp);
        let peer = self.core.peers.of_qp(qp)?;
        let is_server = self.core.peers.get(peer)?.side == Side::Server;
        let must_wait = is_server && self.core.must_wait(peer);
        let entry = self.core.peers.get_mut(peer)?;
        let promised = entry.life.promised().max(1);
        is_server.then_some((&mut entry.share, Asked { pass, is_mixed, promised, must_wait }))
    }

    /// Ends the connection of a peer with more messages in flight than it may have.
    #[cold]
    fn end_flooder(&mut self, qp: Qp) {
        // RFC 5042 §6.4.3.1 [5042-14]: no peer takes more than its fair share of receives
        self.core.counters.peer_faults.count(PeerFault::CreditsExceeded);
        self.provider.disconnect(qp);
    }
}
