//! A pass that finds many events, of several connections: from then on none has more of it than
//! half of the messages that it may have on their way, and the rest waits for the next pass. A peer
//! that sends more calls than it was granted, while each of them is answered at once, would else be
//! served at the cost of those that keep to their grants.
//!
//! While calls are measured (`turns`), all messages of a pass are judged so, and those of a
//! connection that had more time than others wait, too.

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

/// Facts that a message is judged by.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// Number of the pass.
    pass: u64,
    /// There were messages of several connections.
    is_mixed: bool,
    /// Receives that are promised to the sender.
    promised: usize,
    /// The sender had more time than others.
    must_wait: bool,
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
    /// Room for as many messages as there are receives: each that waits keeps one.
    pub(crate) fn new(receives: usize) -> Self {
        Self { put_off: VecDeque::with_capacity(receives), sole: None, is_mixed: false }
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
    /// Begins a pass while messages of earlier ones wait, or calls are measured: handles messages
    /// with a turn, then what the first look found. Such a pass is crowded, whatever else comes.
    /// Returns the number of messages.
    #[inline(never)]
    pub(super) fn take_put_off(&mut self, front: &[u8], found: Looked) -> usize {
        self.crowd.begin();
        let waiting = self.crowd.put_off.len();
        for _ in 0..waiting {
            let Some(event) = self.crowd.put_off.pop_front() else { break };
            let Event::Received { qp, .. } = &event else { continue };
            let has_room = !self.has_moved_enough();
            // None: its connection ended, and nobody waits for an answer.
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

    /// Goes on with a pass that has had so many events. How many it then has had.
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

    // Apart from the calls in the loop of passes with few events, which they stay a part of.
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

    /// The share of a connection, and what its message is judged by: among that the receives that
    /// are promised to it, as many as may be on their way from it. None for connections that we
    /// made ourselves.
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
        // Those that came first go first, so the others wait, too.
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
