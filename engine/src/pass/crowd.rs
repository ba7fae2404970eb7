//! Fair shares of a pass that finds many events of several connections.
//!
//! From `FEW_EVENTS` on, each connection is served at most half of the messages that it may have in
//! flight; the rest waits for the next pass. Otherwise a peer that sends more calls than its grant,
//! each answered at once, would be served at the cost of peers that keep to theirs.
//!
//! While calls are measured (`turns`), this applies to all messages of a pass, and messages of a
//! connection that has used more time than others wait, too.

use super::EVENTS_PER_PASS;
use crate::{app::App, shard::Shard};
use stag_protocol::rpcrdma::{PeerFault, Side};
use stag_verbs::{Event, Look, Looked, Provider, Qp, Time};
use std::collections::VecDeque;

/// Events of a pass that are handled in order of arrival, whatever their connection: so few delay
/// no peer.
pub(super) const FEW_EVENTS: usize = 32;
/// Least share of a connection in the rest of the pass, in messages, while others have some, too.
/// The share is half of the messages that it may have in flight, and at least this number.
const SHARE_MIN: usize = 8;
/// Value of `PassShare::put_off` once its connection is ending.
const ENDING: u32 = u32::MAX;

/// Messages that wait for a later pass, in the order of their arrival.
#[derive(Debug)]
pub(crate) struct Crowd {
    put_off: VecDeque<Event>,
    /// The connection of all messages that were judged in the pass so far.
    sole: Option<Qp>,
    /// There were messages of several connections.
    is_mixed: bool,
}

/// The share of a connection in a crowded pass.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PassShare {
    /// Number of the pass that `taken` counts.
    pass: u64,
    taken: u32,
    /// Its messages that wait; [`ENDING`] once no more are accepted.
    put_off: u32,
}

/// The facts that decide about a message.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// Number of the pass.
    pass: u64,
    /// There were messages of several connections.
    is_mixed: bool,
    /// Receives that are promised to the sender.
    promised: usize,
    /// The sender has used more time than others.
    must_wait: bool,
}

/// The time at which a message is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Now,
    Later,
    /// Never, and its sender's connection ends: more messages wait than it may have outstanding.
    Never,
    /// Never, as its sender's connection is ending.
    Dropped,
}

impl Crowd {
    /// Room for as many messages as there are receives: each message that waits keeps one.
    pub(crate) fn new(receives: usize) -> Self {
        Self { put_off: VecDeque::with_capacity(receives), sole: None, is_mixed: false }
    }

    /// Begins to judge the messages of a pass.
    fn begin(&mut self) {
        (self.sole, self.is_mixed) = (None, false);
    }

    /// Records the connection of a message. Returns true if there were messages of others.
    fn note(&mut self, qp: Qp) -> bool {
        self.is_mixed |= *self.sole.get_or_insert(qp) != qp;
        self.is_mixed
    }
}

impl PassShare {
    /// Takes one more message in pass number `pass`. Returns false if it exceeds the share of a
    /// connection that is not alone and has `promised` receives.
    fn take(&mut self, pass: u64, is_mixed: bool, promised: usize) -> bool {
        if self.pass != pass {
            (self.pass, self.taken) = (pass, 0);
        }
        let has_one = !is_mixed || (self.taken as usize) < (promised / 2).max(SHARE_MIN);
        self.taken = self.taken.saturating_add(u32::from(has_one));
        has_one
    }

    /// Judges a message that arrives in pass number `pass`. The messages of a connection stay in
    /// order.
    fn judge(&mut self, Asked { pass, is_mixed, promised, must_wait }: Asked) -> Turn {
        if self.put_off == 0 && !must_wait && self.take(pass, is_mixed, promised) {
            return Turn::Now;
        }
        if self.put_off == ENDING {
            return Turn::Dropped;
        }
        if (self.put_off as usize) >= promised {
            self.put_off = ENDING;
            return Turn::Never;
        }
        self.put_off += 1;
        Turn::Later
    }

    /// Judges a message that was put off.
    fn judge_again(&mut self, Asked { pass, is_mixed, promised, must_wait }: Asked) -> Turn {
        if self.put_off == ENDING {
            return Turn::Dropped;
        }
        if must_wait || !self.take(pass, is_mixed, promised) {
            return Turn::Later;
        }
        self.put_off = self.put_off.saturating_sub(1);
        Turn::Now
    }
}

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
                Turn::Now => self.handle_one_of_crowd(event),
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
            match self.provider.look(now, front).look() {
                Look::Message { qp, len } => {
                    self.take_looked_at(qp, front.get(..len).unwrap_or_default());
                }
                Look::Nothing => break,
                Look::Other => {
                    let Some(event) = self.provider.poll(now) else { break };
                    match self.turn_of_event(&event) {
                        Turn::Now => self.handle_one_of_crowd(event),
                        turn => self.set_aside(turn, event),
                    }
                }
            }
            events += 1;
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
            (Turn::Later, _) => self.crowd.put_off.push_back(event),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of a connection among others, to which two receives are promised.
    const fn in_pass(pass: u64) -> Asked {
        Asked { pass, is_mixed: true, promised: 2, must_wait: false }
    }

    #[test]
    fn a_connection_among_others_has_its_share_of_each_pass_and_the_rest_keeps_its_order() {
        let mut share = PassShare::default();
        for _ in 0..SHARE_MIN {
            assert_eq!(share.judge(in_pass(1)), Turn::Now);
        }
        let turns: Vec<_> = (0..2).map(|_| share.judge(in_pass(1))).collect();
        assert_eq!(turns, [Turn::Later; 2]);
        // Earlier messages go first, so later ones wait, too.
        assert_eq!(share.judge_again(in_pass(1)), Turn::Later);
        assert_eq!(share.judge_again(in_pass(2)), Turn::Now);
        assert_eq!(share.judge(in_pass(2)), Turn::Later);
        assert_eq!(share.judge_again(in_pass(2)), Turn::Now);
        assert_eq!(share.judge_again(in_pass(2)), Turn::Now);
        assert_eq!(share.judge(in_pass(2)), Turn::Now);
    }

    #[test]
    fn a_connection_that_had_more_time_than_others_waits_and_keeps_its_order() {
        let mut share = PassShare::default();
        let late = |pass| Asked { must_wait: true, ..in_pass(pass) };
        assert_eq!(share.judge(late(1)), Turn::Later);
        assert_eq!(share.judge_again(late(2)), Turn::Later);
        // Its turn comes in the middle of a pass.
        assert_eq!(share.judge(in_pass(2)), Turn::Later);
        let again = [share.judge_again(in_pass(3)), share.judge_again(in_pass(3))];
        assert_eq!((again, share.judge(in_pass(3))), ([Turn::Now; 2], Turn::Now));
    }

    #[test]
    fn a_connection_ends_once_more_messages_wait_than_it_may_have_outstanding() {
        let mut share = PassShare { pass: 1, taken: SHARE_MIN as u32, put_off: 0 };
        let turns: Vec<_> = (0..4).map(|_| share.judge(in_pass(1))).collect();
        assert_eq!(turns, [Turn::Later, Turn::Later, Turn::Never, Turn::Dropped]);
        let alone = Asked { is_mixed: false, ..in_pass(2) };
        assert_eq!(share.judge_again(alone), Turn::Dropped);
    }

    #[test]
    fn a_connection_alone_is_served_as_it_comes() {
        let (mut crowd, mut share) = (Crowd::new(8), PassShare::default());
        let [own, other] = [1, 2].map(|bits| Qp(stag_pools::table::Key::from_bits(bits)));
        crowd.begin();
        for _ in 0..3 * SHARE_MIN {
            let is_mixed = crowd.note(own);
            let alone = Asked { is_mixed, promised: 1, ..in_pass(1) };
            assert_eq!(share.judge(alone), Turn::Now);
        }
        assert!(crowd.note(other));
        let is_mixed = crowd.note(own);
        assert_eq!(share.judge(Asked { is_mixed, promised: 1, ..in_pass(1) }), Turn::Later);
    }
}
