//! Queue of changes to client records for version 4, and the steps that follow when each is stable
//! (RFC 8881 §8.4.3).
//!
//! One batch is outstanding at a time, and a failed batch is retried before any later one. So a
//! client whose completion is not yet recorded is not forgotten when the grace period ends after
//! it, and the removal of a record cannot take a later record with it.

use std::{collections::VecDeque, time::Duration};

use stag_engine::Time;

use crate::records::{ChangeFault, ChangeTicket, RecordChange, RecordKeeper};
use stag_nfs4_state::{ClientKey, StateKey};

/// Time after which a failed batch is retried.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Limit of changes in one batch.
const BATCH_MAX: usize = 1_024;
/// Queued changes at most before clients get NFS4ERR_DELAY for theirs. Changes that the server has
/// to record itself are bounded by the tables of clients and of delegations.
const WAITING_MAX: usize = 16_384;

/// A step that is taken when a change is stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::v4) enum AfterRecord {
    /// None.
    Nothing,
    /// The client of this ID may have state.
    Grant(u64),
    /// The client ends, with its state.
    End(ClientKey),
    /// The delegation is revoked.
    Revoke(StateKey),
    /// Delegations to write may be granted.
    WriteDelegations,
    /// The grace period is over.
    EndGrace,
}

/// A change that is not stable yet.
#[derive(Debug)]
struct QueuedChange {
    change: RecordChange,
    after: AfterRecord,
}

/// The changes. Without a keeper no record survives the server, and all are stable at once.
#[derive(Debug, Default)]
pub(in crate::v4) struct RecordQueue {
    keeper: Option<RecordKeeper>,
    waiting: VecDeque<QueuedChange>,
    sent: Vec<QueuedChange>,
    under_way: Option<ChangeTicket>,
    /// Steps whose changes are stable.
    stable: VecDeque<AfterRecord>,
    /// Changes are sent one by one, because one of the last batch could not be made.
    is_single: bool,
    next_try: Time,
    /// Batches that failed.
    pub(in crate::v4) failed: u64,
    /// The last batch failed.
    pub(in crate::v4) is_failing: bool,
    /// Another gateway has the records: this one must grant no state.
    pub(in crate::v4) is_taken_over: bool,
}

impl RecordQueue {
    /// A queue of a keeper whose records were begun.
    pub(in crate::v4) fn new(keeper: RecordKeeper) -> Self {
        Self { keeper: Some(keeper), ..Self::default() }
    }

    /// Returns true if clients have to be recorded.
    pub(in crate::v4) const fn is_kept(&self) -> bool {
        self.keeper.is_some() || self.is_taken_over
    }

    /// Returns true if a client's change has a place.
    pub(in crate::v4) fn has_room(&self) -> bool {
        self.waiting.len() < WAITING_MAX
    }

    /// Number of changes that are not stable.
    pub(in crate::v4) fn len(&self) -> usize {
        self.waiting.len() + self.sent.len()
    }

    /// Adds a change after all others.
    pub(in crate::v4) fn push(&mut self, change: RecordChange, after: AfterRecord) {
        if self.is_taken_over {
            return;
        }
        if self.keeper.is_some() {
            self.waiting.push_back(QueuedChange { change, after });
        } else {
            self.stable.push_back(after);
        }
    }

    /// Takes outcomes, and sends the next batches.
    pub(in crate::v4) fn exchange(&mut self, now: Time) {
        loop {
            self.take_outcome(now);
            if !self.send(now) {
                return;
            }
        }
    }

    /// Returns true if a queued change revokes a delegation that `is_it` selects.
    pub(in crate::v4) fn revokes(&self, is_it: impl Fn(StateKey) -> bool) -> bool {
        let queued = self.waiting.iter().chain(&self.sent).map(|queued| &queued.after);
        let mut steps = queued.chain(&self.stable);
        steps.any(|after| matches!(after, AfterRecord::Revoke(state) if is_it(*state)))
    }

    /// The next step whose change is stable.
    pub(in crate::v4) fn next_stable(&mut self) -> Option<AfterRecord> {
        self.stable.pop_front()
    }

    fn take_outcome(&mut self, now: Time) {
        let Some(keeper) = self.keeper.as_mut().filter(|_| self.under_way.is_some()) else {
            return;
        };
        let Some(done) = keeper.next_done() else { return };
        debug_assert_eq!(Some(done.ticket), self.under_way, "one batch is under way");
        self.under_way = None;
        self.is_failing = done.outcome.is_err();
        match done.outcome {
            Ok(_) => {
                self.is_single = false;
                self.stable.extend(self.sent.drain(..).map(|queued| queued.after));
            }
            Err(fault) => self.take_fault(fault, now),
        }
    }

    fn take_fault(&mut self, fault: ChangeFault, now: Time) {
        self.failed += 1;
        let is_alone = self.sent.len() == 1;
        match fault {
            ChangeFault::TakenOver => {
                self.is_taken_over = true;
                self.keeper = None;
                self.sent.clear();
                self.waiting.clear();
            }
            // A change that cannot be made does not stop the others: it is found first.
            ChangeFault::Full | ChangeFault::Unfit if !is_alone => {
                self.is_single = true;
                self.put_back();
            }
            ChangeFault::Unfit => self.sent.clear(),
            ChangeFault::Full => {
                self.waiting.extend(self.sent.drain(..));
                self.next_try = now + AGAIN_AFTER;
            }
            ChangeFault::Storage => {
                self.put_back();
                self.next_try = now + AGAIN_AFTER;
            }
        }
    }

    fn put_back(&mut self) {
        for queued in self.sent.drain(..).rev() {
            self.waiting.push_front(queued);
        }
    }

    /// Sends the next batch. Returns true if there was one.
    fn send(&mut self, now: Time) -> bool {
        let Some(keeper) = &mut self.keeper else { return false };
        if self.under_way.is_some() || self.waiting.is_empty() || now < self.next_try {
            return false;
        }
        let count = if self.is_single { 1 } else { self.waiting.len().min(BATCH_MAX) };
        let changes = self.waiting.iter().take(count).map(|queued| queued.change.clone());
        self.under_way = keeper.change_all(changes.collect());
        if self.under_way.is_some() {
            self.sent.extend(self.waiting.drain(..count));
        }
        self.under_way.is_some()
    }

    /// Drops the completions of a client that has ended, unless they were sent already. Returns
    /// true if there were some.
    pub(in crate::v4) fn forget(&mut self, client: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|queued| queued.after != AfterRecord::Grant(client));
        self.waiting.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{Boot, ClientRecord, OriginMark, Principal, RecordError, Records};
    use std::sync::{Arc, Mutex};

    type ToldFault = fn(&[RecordChange]) -> Option<RecordError>;

    /// Records that fail on request.
    #[derive(Default)]
    struct ToldRecords {
        applied: Vec<Vec<RecordChange>>,
        fails: Option<ToldFault>,
    }

    #[derive(Clone, Default)]
    struct SharedRecords(Arc<Mutex<ToldRecords>>);

    impl Records for SharedRecords {
        fn begin(&mut self) -> Result<Boot, RecordError> {
            Ok(Boot::default())
        }

        fn apply(&mut self, changes: &[RecordChange]) -> Result<(), RecordError> {
            let mut told = self.0.lock().unwrap();
            if let Some(error) = told.fails.and_then(|fails| fails(changes)) {
                return Err(error);
            }
            told.applied.push(changes.to_vec());
            Ok(())
        }

        fn take_over(&mut self, _: &str) -> Result<Vec<ClientRecord>, RecordError> {
            Ok(Vec::new())
        }
    }

    fn queue() -> (RecordQueue, SharedRecords) {
        let records = SharedRecords::default();
        let keeper = RecordKeeper::without_thread(Box::new(records.clone()));
        (RecordQueue::new(keeper), records)
    }

    fn complete(owner: u8) -> RecordChange {
        let principal = Principal::Unix(0);
        let (owner, origin) = ([owner].into(), OriginMark::default());
        RecordChange::Complete(ClientRecord { owner, verifier: [0; 8], principal, origin })
    }

    fn remove(owner: u8) -> RecordChange {
        RecordChange::Remove([owner].into())
    }

    fn stable(queue: &mut RecordQueue, now: u64) -> Vec<AfterRecord> {
        queue.exchange(Time(now * 1_000_000_000));
        std::iter::from_fn(|| queue.next_stable()).collect()
    }

    #[test]
    fn without_a_keeper_everything_is_stable_at_once() {
        let mut queue = RecordQueue::default();
        queue.push(complete(1), AfterRecord::Grant(1));
        assert_eq!(queue.next_stable(), Some(AfterRecord::Grant(1)));
        assert_eq!((queue.len(), queue.next_stable()), (0, None));
    }

    #[test]
    fn what_failed_is_tried_again_after_a_second_before_anything_behind_it() {
        let (mut queue, records) = queue();
        records.0.lock().unwrap().fails = Some(|_| Some(no_space()));
        queue.push(remove(1), AfterRecord::Nothing);
        queue.push(complete(1), AfterRecord::Grant(1));
        assert_eq!(stable(&mut queue, 1), []);
        queue.push(RecordChange::EndGrace, AfterRecord::EndGrace);
        records.0.lock().unwrap().fails = None;
        assert_eq!((stable(&mut queue, 1), queue.failed, queue.is_failing), (vec![], 1, true));
        let after = [AfterRecord::Nothing, AfterRecord::Grant(1), AfterRecord::EndGrace];
        assert_eq!(stable(&mut queue, 2), after);
        let applied = records.0.lock().unwrap().applied.concat();
        assert_eq!(applied, [remove(1), complete(1), RecordChange::EndGrace]);
        assert!(!queue.is_failing && queue.len() == 0);
    }

    fn no_space() -> RecordError {
        std::io::Error::from(std::io::ErrorKind::StorageFull).into()
    }

    #[test]
    fn a_client_that_finds_no_place_keeps_nobody_else_from_theirs() {
        let (mut queue, records) = queue();
        let full =
            |changes: &[RecordChange]| changes.contains(&complete(2)).then_some(RecordError::Full);
        records.0.lock().unwrap().fails = Some(full);
        for owner in 1..4 {
            queue.push(complete(owner), AfterRecord::Grant(owner.into()));
        }
        queue.push(remove(1), AfterRecord::Nothing);
        let mut done = stable(&mut queue, 1);
        done.extend(stable(&mut queue, 2));
        assert_eq!(done, [AfterRecord::Grant(1), AfterRecord::Grant(3), AfterRecord::Nothing]);
        assert_eq!(queue.len(), 1, "it waits for a place");
        records.0.lock().unwrap().fails = None;
        assert_eq!(stable(&mut queue, 9), [AfterRecord::Grant(2)]);
    }

    #[test]
    fn a_completion_of_a_client_that_is_gone_is_not_asked_for() {
        let (mut queue, records) = queue();
        queue.push(complete(1), AfterRecord::Grant(1));
        queue.push(complete(2), AfterRecord::Grant(2));
        assert!(queue.forget(1) && !queue.forget(1));
        assert_eq!(stable(&mut queue, 1), [AfterRecord::Grant(2)]);
        assert_eq!(records.0.lock().unwrap().applied, [[complete(2)]]);
    }

    #[test]
    fn after_a_takeover_nothing_is_asked_for_and_nothing_is_stable() {
        let (mut queue, records) = queue();
        records.0.lock().unwrap().fails = Some(|_| Some(RecordError::TakenOver));
        queue.push(complete(1), AfterRecord::Grant(1));
        assert_eq!(stable(&mut queue, 1), []);
        assert!(queue.is_taken_over && queue.len() == 0);
    }
}
