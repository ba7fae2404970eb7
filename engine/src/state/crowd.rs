//! Messages that wait for a later pass, and the share of a connection in a crowded one.

use stag_verbs::{Event, Qp};
use std::collections::VecDeque;

/// Least share of a connection in the rest of the pass, in messages, while others have some, too.
/// The share is half of the messages that it may have in flight, and at least this number.
const SHARE_MIN: usize = 8;
/// Value of `PassShare::put_off` once its connection is ending.
const ENDING: u32 = u32::MAX;

/// Messages that wait for a later pass, in the order of their arrival.
#[derive(Debug)]
pub(crate) struct Crowd {
    pub(crate) put_off: VecDeque<Event>,
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
pub(crate) struct Asked {
    /// Number of the pass.
    pub(crate) pass: u64,
    /// There were messages of several connections.
    pub(crate) is_mixed: bool,
    /// Receives that are promised to the sender.
    pub(crate) promised: usize,
    /// The sender has used more time than others.
    pub(crate) must_wait: bool,
}

/// The time at which a message is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
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
    pub(crate) fn begin(&mut self) {
        (self.sole, self.is_mixed) = (None, false);
    }

    /// Records the connection of a message. Returns true if there were messages of others.
    pub(crate) fn note(&mut self, qp: Qp) -> bool {
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
    pub(crate) fn judge(&mut self, Asked { pass, is_mixed, promised, must_wait }: Asked) -> Turn {
        debug_assert!(promised > 0, "a connection may have a message in flight");
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
    pub(crate) fn judge_again(
        &mut self,
        Asked { pass, is_mixed, promised, must_wait }: Asked,
    ) -> Turn {
        if self.put_off == ENDING {
            return Turn::Dropped;
        }
        debug_assert!(self.put_off > 0, "a message that waits is counted");
        if must_wait || !self.take(pass, is_mixed, promised) {
            return Turn::Later;
        }
        self.put_off = self.put_off.saturating_sub(1);
        Turn::Now
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
