//! The latest watched calls, each with its time in every stage.

use super::Stage;
use stag_protocol::rpc::CallHeader;
use stag_verbs::{PeerAddress, Time};
use std::time::Duration;

/// Identification of a call: program, version and procedure (RFC 5531 §9), XID, and caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallName {
    /// Program.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Procedure.
    pub procedure: u32,
    /// XID.
    pub xid: u32,
    /// The caller's address.
    pub from: PeerAddress,
}

impl CallName {
    /// Returns the name of a call with this header.
    #[inline(always)]
    pub(crate) const fn of(header: &CallHeader<'_>, from: PeerAddress) -> Self {
        let CallHeader { xid, program, version, procedure, .. } = header;
        Self { program: *program, version: *version, procedure: *procedure, xid: xid.0, from }
    }
}

/// A call that was watched from its message to its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchedCall {
    /// None for a call with an unreadable header.
    pub name: Option<CallName>,
    /// The operation of its program that it was assigned to.
    pub operation: Option<u32>,
    /// The time of the pass that found its message.
    pub came_at: Time,
    /// Time by stage, in nanoseconds.
    spent: [u64; Stage::ALL.len()],
    /// A bit for each stage that it went through.
    stages: u8,
}

impl WatchedCall {
    /// A call of no operation that spent these nanoseconds in each stage whose bit is set in
    /// `stages`.
    pub(super) const fn new(
        name: Option<CallName>,
        came_at: Time,
        spent: [u64; Stage::ALL.len()],
        stages: u8,
    ) -> Self {
        Self { name, operation: None, came_at, spent, stages }
    }

    /// The time that the call spent in `stage`. None if it did not go through it.
    pub fn spent(&self, stage: Stage) -> Option<Duration> {
        let went_through = self.stages & 1 << stage as u8 != 0;
        self.spent.get(stage as usize).filter(|_| went_through).copied().map(Duration::from_nanos)
    }

    /// The time from its message to its reply.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.spent.iter().fold(0, |sum, spent| sum.saturating_add(*spent)))
    }
}

/// The latest watched calls: each new one replaces the oldest.
#[derive(Debug)]
pub(super) struct LatestCalls {
    calls: Vec<WatchedCall>,
    count: usize,
    /// Index of the oldest, once all entries are used.
    next: usize,
}

impl LatestCalls {
    /// Number of calls that a shard keeps.
    pub(super) const COUNT: usize = 256;

    /// Room for `count` calls.
    pub(super) fn new(count: usize) -> Self {
        Self { calls: Vec::with_capacity(count), count, next: 0 }
    }

    pub(super) fn push(&mut self, call: WatchedCall) {
        if self.calls.len() < self.count {
            self.calls.push(call);
        } else if let Some(oldest) = self.calls.get_mut(self.next) {
            *oldest = call;
            self.next = (self.next + 1) % self.count;
        }
    }

    /// Returns all of them, the oldest first.
    pub(super) fn in_order(&self) -> Vec<WatchedCall> {
        let (newer, older) = self.calls.split_at(self.next);
        [older, newer].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u64) -> WatchedCall {
        WatchedCall::new(None, Time(number), [number, 0, 0, 1, 0, 0, 0], 0b1001)
    }

    #[test]
    fn the_latest_calls_are_kept_in_order_and_no_more() {
        for count in [0, 1, 3] {
            let mut latest = LatestCalls::new(count);
            for number in 0..10 {
                latest.push(call(number));
                let first = (number + 1).saturating_sub(count as u64);
                let expected = (first..=number).map(call).take(count).collect::<Vec<_>>();
                assert_eq!(latest.in_order(), expected);
            }
        }
    }

    #[test]
    fn a_call_knows_the_stages_that_it_went_through() {
        let call = call(5);
        assert_eq!(call.spent(Stage::Recv), Some(Duration::from_nanos(5)));
        assert_eq!(call.spent(Stage::App), Some(Duration::from_nanos(1)));
        assert_eq!(call.spent(Stage::Pull), None);
        assert_eq!(call.total(), Duration::from_nanos(6));
    }
}
