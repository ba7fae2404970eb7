//! Slots of a session at its replier: new requests and retries (RFC 8881 §2.10.6.1). The length of
//! a table is the grant of CREATE_SESSION, for the life of its session.

use super::{SequenceOrder, sequence_order};
use crate::nfs::v4::Status4;

/// State of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SlotState {
    /// No request came yet.
    #[default]
    Unused,
    /// A request is carried out.
    Busy,
    /// It was answered.
    Answered { cached: bool },
}

/// One slot, in memory of the caller's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    sequence: u32,
    state: SlotState,
    user: u32,
    digest: u64,
}

/// A request as SEQUENCE or CB_SEQUENCE describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotCall {
    /// The slot.
    pub slot: u32,
    /// Sequence ID.
    pub sequence: u32,
    /// The highest slot that the requester uses.
    pub highest_slot: u32,
    /// User that the request acts as.
    pub user: u32,
    /// Digest of the arguments; the same for all requests if they are not compared.
    pub digest: u64,
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotStep {
    /// A new one: check its limits, then [`SlotTable::start`] it.
    New,
    /// A retry of a request in progress: NFS4ERR_DELAY, or the first answer goes to the retry.
    InProgress,
    /// A retry: the cached reply.
    Replay,
    /// A retry whose reply was not cached: that of SEQUENCE, then NFS4ERR_RETRY_UNCACHED_REP.
    ReplayUncached,
}

/// The slots of a channel. `S` is memory of the caller's, an array, a slice or a box, for the
/// largest number of slots.
#[derive(Clone, Debug)]
pub struct SlotTable<S> {
    slots: S,
    /// Slots that the requester may use.
    granted: usize,
}

impl<S: AsRef<[Slot]> + AsMut<[Slot]>> SlotTable<S> {
    /// A table that grants `granted` of `slots` from the start: the value of ca_maxrequests.
    pub fn new(mut slots: S, granted: u32) -> Self {
        let len = slots.as_ref().len();
        assert!(len > 0 && u32::try_from(len).is_ok(), "a session has slots");
        slots.as_mut().fill(Slot::default());
        let granted = at(granted).clamp(1, len);
        Self { granted, slots }
    }

    /// The highest slot that the requester may use (`sr_highest_slotid`), and should use
    /// (`sr_target_highest_slotid`).
    pub const fn highest_slot(&self) -> u32 {
        (self.granted as u32).saturating_sub(1)
    }

    /// Checks a request. Nothing changes in any case: an error leaves no trace in a slot.
    pub fn check(&self, call: &SlotCall) -> Result<SlotStep, Status4> {
        // RFC 8881 §18.46.3 [8881-33]: a slot beyond the table is BADSLOT
        let slot = self.granted_slot(call.slot).ok_or(Status4::BadSlot)?;
        // RFC 8881 §18.46.3 [8881-34]: a highest slot beyond the table is BAD_HIGH_SLOT
        if call.highest_slot > self.highest_slot() {
            return Err(Status4::BadHighSlot);
        }
        match (sequence_order(slot.sequence, call.sequence), slot.state) {
            // RFC 8881 §2.10.6.1 [8881-35]: the first request of a slot has sequence ID 1
            (SequenceOrder::New, SlotState::Unused | SlotState::Answered { .. }) => {
                Ok(SlotStep::New)
            }
            (SequenceOrder::Retry, SlotState::Busy | SlotState::Answered { .. })
                // RFC 8881 §2.10.6.1.3.1 [8881-36]: a retry by another user is a false retry
                if (slot.user, slot.digest) != (call.user, call.digest) =>
            {
                Err(Status4::SeqFalseRetry)
            }
            (SequenceOrder::Retry, SlotState::Busy) => Ok(SlotStep::InProgress),
            // RFC 8881 §2.10.6.1 [8881-37]: a retry is answered from the cache
            (SequenceOrder::Retry, SlotState::Answered { cached: true }) => Ok(SlotStep::Replay),
            (SequenceOrder::Retry, SlotState::Answered { cached: false }) => {
                Ok(SlotStep::ReplayUncached)
            }
            (SequenceOrder::Misordered, _)
            | (SequenceOrder::Retry, SlotState::Unused)
            | (SequenceOrder::New, SlotState::Busy) => Err(Status4::SeqMisordered),
        }
    }

    /// Begins a request that [`SlotTable::check`] found to be new: its slot is busy until
    /// [`SlotTable::finish`].
    pub fn start(&mut self, call: &SlotCall) {
        assert_eq!(self.check(call), Ok(SlotStep::New), "only a new request begins");
        self.occupy(call);
    }

    /// Begins and ends a new request that is carried out at once and whose reply is not cached.
    /// Returns false for any other request, and changes nothing.
    #[inline]
    pub fn pass(&mut self, call: &SlotCall) -> bool {
        let is_new = self.check(call) == Ok(SlotStep::New);
        if is_new {
            self.occupy(call);
            self.finish(call.slot, false);
        }
        is_new
    }

    fn occupy(&mut self, call: &SlotCall) {
        let granted = self.granted;
        let slot =
            self.slots.as_mut().get_mut(..granted).and_then(|slots| slots.get_mut(at(call.slot)));
        let slot = slot.expect("`check` found it");
        *slot = Slot {
            sequence: call.sequence,
            state: SlotState::Busy,
            user: call.user,
            digest: call.digest,
        };
    }

    /// Ends the request of a slot: its reply is in flight. `cached` says if the reply was cached.
    pub fn finish(&mut self, slot: u32, cached: bool) {
        let slot = self.slots.as_mut().get_mut(at(slot)).expect("a request began there");
        assert_eq!(slot.state, SlotState::Busy, "a request ends once");
        slot.state = SlotState::Answered { cached };
    }

    /// Requests that are carried out.
    pub fn busy(&self) -> usize {
        self.slots.as_ref().iter().filter(|slot| slot.state == SlotState::Busy).count()
    }

    fn granted_slot(&self, slot: u32) -> Option<&Slot> {
        self.slots.as_ref().get(..self.granted)?.get(at(slot))
    }
}

fn at(slot: u32) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn call(slot: u32, sequence: u32) -> SlotCall {
        SlotCall { slot, sequence, highest_slot: slot, user: 1, digest: 2 }
    }

    #[test]
    fn every_state_of_a_slot_answers_every_sequence_id_as_the_text_says() {
        use SlotState::{Answered, Busy, Unused};
        let states = [Unused, Busy, Answered { cached: true }, Answered { cached: false }];
        for (last, state) in
            [0, 5, u32::MAX].into_iter().flat_map(|last| states.map(|state| (last, state)))
        {
            for step in [0, 1, 2, 7, u32::MAX] {
                for (user, digest) in [(1, 2), (9, 2), (1, 9)] {
                    let mut slots = [Slot::default()];
                    let table = SlotTable::new(&mut slots, u32::MAX);
                    table.slots[0] = Slot { sequence: last, state, user: 1, digest: 2 };
                    let call = SlotCall { user, digest, ..call(0, last.wrapping_add(step)) };
                    let same = (user, digest) == (1, 2);
                    let expected = match (step, state) {
                        (1, Unused | Answered { .. }) => Ok(SlotStep::New),
                        (0, Busy | Answered { .. }) if !same => Err(Status4::SeqFalseRetry),
                        (0, Busy) => Ok(SlotStep::InProgress),
                        (0, Answered { cached: true }) => Ok(SlotStep::Replay),
                        (0, Answered { cached: false }) => Ok(SlotStep::ReplayUncached),
                        _ => Err(Status4::SeqMisordered),
                    };
                    assert_eq!(table.check(&call), expected, "{state:?} {step} {user} {digest}");
                }
            }
        }
    }

    #[test]
    fn a_request_begins_once_ends_once_and_is_replayed_until_the_next() {
        let mut slots = vec![Slot::default(); 4];
        let mut table = SlotTable::new(&mut slots, u32::MAX);
        for sequence in 1..5 {
            for slot in 0..4 {
                let call = call(slot, sequence);
                assert_eq!(table.check(&call), Ok(SlotStep::New));
                table.start(&call);
                assert_eq!((table.check(&call), table.busy()), (Ok(SlotStep::InProgress), 1));
                table.finish(slot, sequence % 2 == 0);
                let replay =
                    if sequence % 2 == 0 { SlotStep::Replay } else { SlotStep::ReplayUncached };
                assert_eq!((table.check(&call), table.busy()), (Ok(replay), 0));
            }
        }
    }

    #[test]
    fn slots_beyond_the_table_are_refused() {
        let table = SlotTable::new([Slot::default(); 5], 2);
        assert_eq!(table.highest_slot(), 1);
        for slot in [2, 3, u32::MAX] {
            assert_eq!(table.check(&call(slot, 1)), Err(Status4::BadSlot));
            let high = SlotCall { highest_slot: slot, ..call(0, 1) };
            assert_eq!(table.check(&high), Err(Status4::BadHighSlot));
        }
    }

    #[test]
    fn no_order_of_requests_and_replies_loses_a_busy_slot_or_grants_beyond_the_table() {
        let mut random = fastrand::Rng::with_seed(41);
        for _ in 0..2_000 {
            let mut slots = [Slot::default(); 4];
            let mut table = SlotTable::new(&mut slots, random.u32(1..6));
            let granted = table.highest_slot();
            let mut busy = [false; 4];
            let mut next = [1_u32; 4];
            for _ in 0..60 {
                let slot = random.usize(0..4);
                match random.u32(0..8) {
                    1..4 if busy[slot] => {
                        table.finish(slot as u32, random.bool());
                        busy[slot] = false;
                    }
                    _ => {
                        let highest_slot = random.u32(slot as u32..4);
                        let asked = SlotCall { highest_slot, ..call(slot as u32, next[slot]) };
                        match table.check(&asked) {
                            Ok(step) => {
                                assert_eq!((step, busy[slot]), (SlotStep::New, false));
                                table.start(&asked);
                                busy[slot] = true;
                                next[slot] += 1;
                            }
                            Err(Status4::SeqMisordered) => assert!(busy[slot]),
                            Err(status) => {
                                let refused = [Status4::BadSlot, Status4::BadHighSlot];
                                assert!(refused.contains(&status) && asked.highest_slot > 0);
                            }
                        }
                    }
                }
                assert_eq!(table.busy(), busy.iter().filter(|busy| **busy).count());
                assert!(table.highest_slot() == granted && granted < 4);
            }
        }
    }
}
