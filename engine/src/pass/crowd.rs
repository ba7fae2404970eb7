//! A pass that finds many events, of several connections: from then on none has more of it than
//! half of the messages that it may have on their way, and the rest waits for the next pass. A peer
//! that sends more calls than it was granted, while each of them is answered at once, would else be
//! served at the cost of those that keep to their grants.

use super::EVENTS_PER_PASS;
use crate::{app::App, shard::Shard};
use stag_protocol::rpcrdma::{PeerFault, Side};
use stag_verbs::{Event, Look, Looked, Provider, Qp, Time};
use std::collections::VecDeque;

/// Events of a pass that are taken as they come, whoever sent them: nobody has to wait for so few.
pub(super) const FEW_EVENTS: usize = 32;
/// Messages of a connection that are handled in what then follows, while others have some, too: a
/// half of those that it may have on their way, and no fewer than this.
const SHARE_MIN: usize = 8;
/// Stands in a share for the number of messages that wait, once its connection is ending.
const ENDING: u32 = u32::MAX;
/// Messages that are put off, of all connections together.
const PUT_OFF_MAX: usize = 256;

/// Messages that wait for a later pass, in the order of their arrival.
#[derive(Debug)]
pub(crate) struct Crowd {
    put_off: VecDeque<Event>,
    /// The connection that all messages are of which were judged in the pass.
    sole: Option<Qp>,
    /// There were messages of several.
    is_mixed: bool,
}

/// The part that a connection has of a crowded pass.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PassShare {
    /// Number of the pass that `taken` is of.
    pass: u64,
    taken: u32,
    /// Its messages that wait; [`ENDING`] once no other is taken.
    put_off: u32,
}

/// The moment at which a message is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Now,
    Later,
    /// Never, and its sender's connection ends: more wait than it may have outstanding.
    Never,
    /// Never, as its sender's connection is ending.
    Dropped,
}

impl Crowd {
    pub(crate) fn new() -> Self {
        Self { put_off: VecDeque::with_capacity(PUT_OFF_MAX + 1), sole: None, is_mixed: false }
    }

    /// Begins to judge the messages of a pass.
    fn begin(&mut self) {
        (self.sole, self.is_mixed) = (None, false);
    }

    /// Notes a message of a connection. Returns true if there were some of others.
    fn note(&mut self, qp: Qp) -> bool {
        self.is_mixed |= *self.sole.get_or_insert(qp) != qp;
        self.is_mixed
    }

    /// Returns true if no other message can wait.
    fn is_full(&self) -> bool {
        self.put_off.len() >= PUT_OFF_MAX
    }
}

impl PassShare {
    /// Takes one more message in pass number `pass`. False if that is more than the share of a
    /// connection that is not alone, and to which so many receives are promised.
    fn take(&mut self, pass: u64, is_mixed: bool, promised: usize) -> bool {
        if self.pass != pass {
            (self.pass, self.taken) = (pass, 0);
        }
        let has_one = !is_mixed || (self.taken as usize) < (promised / 2).max(SHARE_MIN);
        self.taken = self.taken.saturating_add(u32::from(has_one));
        has_one
    }

    /// Judges a message that comes in pass number `pass`. The messages of a connection stay in
    /// their order.
    fn judge(&mut self, pass: u64, is_mixed: bool, promised: usize) -> Turn {
        if self.put_off == 0 && self.take(pass, is_mixed, promised) {
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
    fn judge_again(&mut self, pass: u64, is_mixed: bool, promised: usize) -> Turn {
        if self.put_off == ENDING {
            return Turn::Dropped;
        }
        if !self.take(pass, is_mixed, promised) {
            return Turn::Later;
        }
        self.put_off = self.put_off.saturating_sub(1);
        Turn::Now
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Begins a pass while messages of earlier ones wait: handles those whose turn it is, then what
    /// the first look found. Such a pass is crowded, whatever else comes.
    #[inline(never)]
    pub(super) fn take_put_off(&mut self, front: &[u8], found: Looked) -> usize {
        self.crowd.begin();
        for _ in 0..self.crowd.put_off.len() {
            let Some(event) = self.crowd.put_off.pop_front() else { break };
            let Event::Received { qp, .. } = &event else { continue };
            let pass = self.core.counters.stats.passes.total;
            let has_room = !self.has_moved_enough();
            let is_mixed = self.crowd.note(*qp);
            // None: its connection ended, and nobody waits for an answer.
            let Some((share, promised)) = self.share_of(*qp) else { continue };
            let turn = match has_room {
                true => share.judge_again(pass, is_mixed, promised),
                false => Turn::Later,
            };
            match turn {
                Turn::Now => self.handle_one_of_crowd(event),
                turn => self.set_aside(turn, event),
            }
        }
        if let Look::Message { qp, len } = found.look() {
            self.take_looked_at(qp, front.get(..len).unwrap_or_default());
        }
        self.core.has_put_off = !self.crowd.put_off.is_empty();
        FEW_EVENTS
    }

    /// Goes on with a pass that has had so many events. How many it then has had.
    #[inline(never)]
    pub(super) fn take_crowd(&mut self, front: &mut [u8], now: Time, mut events: usize) -> usize {
        if !self.core.has_put_off {
            self.crowd.begin();
        }
        while events < EVENTS_PER_PASS && !self.has_moved_enough() && !self.crowd.is_full() {
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

    // Apart from the calls in the loop of passes with few events, which they stay a part of.
    #[inline(never)]
    fn handle_one_of_crowd(&mut self, event: Event) {
        self.handle_event(event);
    }

    #[inline(never)]
    fn handle_looked_at_of_crowd(&mut self, qp: Qp, message: &[u8]) {
        self.handle_looked_at(qp, message);
    }

    fn turn_of_event(&mut self, event: &Event) -> Turn {
        match event {
            Event::Received { qp, .. } => self.turn_of(*qp),
            _ => Turn::Now,
        }
    }

    /// Judges a message of a crowded pass.
    fn turn_of(&mut self, qp: Qp) -> Turn {
        let pass = self.core.counters.stats.passes.total;
        let is_mixed = self.crowd.note(qp);
        match self.share_of(qp) {
            Some((share, promised)) => share.judge(pass, is_mixed, promised),
            None => Turn::Now,
        }
    }

    /// Does not handle a message now.
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

    /// The share of a connection, and the receives that are promised to it: so many messages may be
    /// on their way from it. None for connections that we made ourselves.
    fn share_of(&mut self, qp: Qp) -> Option<(&mut PassShare, usize)> {
        let (_, entry) = self.core.peers.of_qp_mut(qp)?;
        let promised = entry.life.promised().max(1);
        (entry.side == Side::Server).then_some((&mut entry.share, promised))
    }

    /// Ends the connection of a peer that has more messages on their way than it may.
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

    #[test]
    fn a_connection_among_others_has_its_share_of_each_pass_and_the_rest_keeps_its_order() {
        let mut share = PassShare::default();
        for _ in 0..SHARE_MIN {
            assert_eq!(share.judge(1, true, 2), Turn::Now);
        }
        let turns: Vec<_> = (0..2).map(|_| share.judge(1, true, 2)).collect();
        assert_eq!(turns, [Turn::Later; 2]);
        // Those that came first go first, so the others wait, too.
        assert_eq!(share.judge_again(1, true, 2), Turn::Later);
        assert_eq!(share.judge_again(2, true, 2), Turn::Now);
        assert_eq!(share.judge(2, true, 2), Turn::Later);
        assert_eq!(share.judge_again(2, true, 2), Turn::Now);
        assert_eq!(share.judge_again(2, true, 2), Turn::Now);
        assert_eq!(share.judge(2, true, 2), Turn::Now);
    }

    #[test]
    fn a_connection_ends_once_more_messages_wait_than_it_may_have_outstanding() {
        let mut share = PassShare { pass: 1, taken: SHARE_MIN as u32, put_off: 0 };
        let turns: Vec<_> = (0..4).map(|_| share.judge(1, true, 2)).collect();
        assert_eq!(turns, [Turn::Later, Turn::Later, Turn::Never, Turn::Dropped]);
        assert_eq!(share.judge_again(2, false, 2), Turn::Dropped);
    }

    #[test]
    fn a_connection_alone_is_served_as_it_comes() {
        let (mut crowd, mut share) = (Crowd::new(), PassShare::default());
        let [own, other] = [1, 2].map(|bits| Qp(stag_pools::table::Key::from_bits(bits)));
        crowd.begin();
        for _ in 0..3 * SHARE_MIN {
            let is_mixed = crowd.note(own);
            assert_eq!(share.judge(1, is_mixed, 1), Turn::Now);
        }
        assert!(crowd.note(other));
        let is_mixed = crowd.note(own);
        assert_eq!(share.judge(1, is_mixed, 1), Turn::Later);
    }
}
