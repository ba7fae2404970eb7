//! Operations that have to wait: for the store, for data from a disk, for delegations.

use super::{
    CompoundContext, OpExit, OpResult,
    replay_log::{HolderCall, StoreWait, WaitFor},
    saved_arguments::SavedArguments,
    shard_context::Placement,
    state_calls::file_id,
};
use std::time::Duration;

use stag_pools::Extent;
use stag_protocol::nfs::{v3::FileHandle, v4::Status4};

use stag_nfs_store::{Answered, Effort, Store, StoreRequest};
use stag_nfs4_state::{AttributeSource, FileId};

/// Time for which a compound waits for the return of delegations. Linux clients return one within a
/// few milliseconds, and ask again a tenth of a second after NFS4ERR_DELAY.
const RECALL_PATIENCE: Duration = Duration::from_millis(100);

/// Time for which an OPEN waits until other shards know that its file may have a delegation: more
/// than a busy host needs.
const ANNOUNCE_PATIENCE: Duration = Duration::from_millis(10);

/// Time for which the first OPEN of a client waits for its record: more than a busy disk needs.
/// Linux clients ask again a tenth of a second after NFS4ERR_DELAY.
const RECORD_PATIENCE: Duration = Duration::from_secs(1);

/// Source of the answer to a question of an operation.
#[allow(clippy::large_enum_variant, reason = "it is taken apart where it is returned")]
pub(in crate::v4) enum Answerer {
    /// The replay log: the question was asked before, or waited for.
    Log(Answered),
    /// The store, at once.
    Store,
}

impl<S: Store> CompoundContext<'_, '_, S> {
    /// Finds the source of the answer to a question about these objects.
    ///
    /// # Errors
    /// [`OpExit::Wait`] when the store has to begin it: the wish is set then.
    #[inline]
    pub(in crate::v4) fn answerer<const N: usize>(
        &mut self,
        objects: [&FileHandle; N],
        effort: Effort,
        operation: impl FnOnce() -> StoreRequest,
    ) -> OpResult<Answerer> {
        self.answerer_with(objects, effort, &[], operation)
    }

    /// The same for a question that carries data.
    #[inline]
    pub(in crate::v4) fn answerer_with<const N: usize>(
        &mut self,
        objects: [&FileHandle; N],
        effort: Effort,
        octets: &[u8],
        operation: impl FnOnce() -> StoreRequest,
    ) -> OpResult<Answerer> {
        let waits = |store: &S| objects.into_iter().any(|object| store.waits(object, effort));
        self.has_changed |= effort != Effort::Plain;
        self.judge(waits, octets, operation)
    }

    /// Finds the source of the answer to a question, which the store has to begin if `waiting` says
    /// so.
    #[inline]
    pub(in crate::v4) fn judge(
        &mut self,
        waits: impl FnOnce(&S) -> bool,
        octets: &[u8],
        operation: impl FnOnce() -> StoreRequest,
    ) -> OpResult<Answerer> {
        self.compound.replay_log.go_on()?;
        if S::MAY_WAIT {
            if let Some(answer) = self.compound.replay_log.next_answer() {
                return Ok(Answerer::Log(answer));
            }
            if waits(self.store) {
                return Err(self.wait_for_store(operation(), octets));
            }
        }
        Ok(Answerer::Store)
    }

    #[cold]
    fn wait_for_store(&mut self, operation: StoreRequest, octets: &[u8]) -> OpExit {
        if !self.can_wait() {
            return Status4::Delay.into();
        }
        let payload = match self.payload(octets) {
            Ok(payload) => payload,
            Err(status) => return status.into(),
        };
        self.compound.replay_log.wait_for(WaitFor::Store(StoreWait { operation, payload }))
    }

    /// Data of an argument, in memory that can be lent.
    fn payload(&self, octets: &[u8]) -> Result<Option<Extent>, Status4> {
        if octets.is_empty() {
            return Ok(None);
        }
        let kept = self
            .compound
            .replay_log
            .kept
            .as_ref()
            .and_then(|kept| kept.share(&self.arguments, octets));
        if kept.is_some() {
            return Ok(kept);
        }
        let mut copy = self.cx.take(octets.len()).ok_or(Status4::Delay)?;
        copy.append(octets).map_err(|_| Status4::Delay)?;
        Ok(Some(copy.freeze()))
    }

    /// Waits for the READ that the store has deferred, whose compound [can wait](Self::can_wait).
    pub(in crate::v4) fn wait_for_fetch(&mut self) -> OpExit {
        self.compound.replay_log.wait_for(WaitFor::Fetch)
    }

    /// Waits for recalled delegations of other clients, or for confirmations of other shards. The
    /// wait is short, unless the operation [has an effect](super::replay_log::Log::has_effect)
    /// already, and never follows a change that would be made again.
    pub(in crate::v4) fn wait_for_recall(&mut self) -> OpExit {
        let until = self.cx.now() + RECALL_PATIENCE;
        match self.compound.replay_log.has_effect {
            // It checks again after each of these intervals.
            true => self.compound.recall_until = Some(until),
            false => drop(self.compound.recall_until.get_or_insert(until)),
        }
        match self.has_patience() {
            true => self.compound.replay_log.wait_for(WaitFor::Recall),
            false => Status4::Delay.into(),
        }
    }

    /// Waits for the rest of a change of which each pass makes a part, however long that takes.
    pub(in crate::v4) fn wait_for_part(&mut self) -> OpExit {
        self.compound.recall_until = None;
        self.wait_for_recall()
    }

    /// Waits until the client of the compound is recorded: for a moment, or without limit if the
    /// operation `is_begun` and cannot be refused any more.
    pub(in crate::v4) fn wait_for_record(&mut self, is_begun: bool) -> OpExit {
        let now = self.cx.now();
        let until = *self.compound.replay_log.recorded_until.get_or_insert(now + RECORD_PATIENCE);
        let is_late = now >= until || self.nfs4.recovery.queue.is_failing;
        if is_late && !is_begun || !self.can_wait() {
            return Status4::Delay.into();
        }
        let until = if now >= until { now + RECORD_PATIENCE } else { until };
        (self.compound.replay_log.recorded_until, self.compound.recall_until) =
            (Some(until), Some(until));
        self.compound.replay_log.wait_for(WaitFor::Recall)
    }

    /// Makes the compound wait for its next turn after `count` operations, once it has used the
    /// core for long while other clients have work. Not if another shard may have to start it
    /// again, nor before an OPEN whose file another shard has found.
    #[inline]
    pub(in crate::v4) fn ends_slice(&mut self, count: u32) -> bool {
        self.cx.is_turn_over(self.compound.source.turn_holder()) && self.wait_for_turn(count)
    }

    #[cold]
    fn wait_for_turn(&mut self, count: u32) -> bool {
        let shard_context = &self.shard_context;
        let is_asked = shard_context.asked.is_some_and(|asked| count <= asked.part.place);
        let waits = shard_context.placement == Placement::All && !is_asked && self.can_wait();
        if waits {
            let _ = self.compound.replay_log.wait_for(WaitFor::Turn);
        }
        waits
    }

    fn has_patience(&mut self) -> bool {
        let is_done_once = S::MAY_WAIT || !self.has_changed;
        let is_over = self.compound.recall_until.is_some_and(|until| self.cx.now() >= until);
        is_done_once && !is_over && self.can_wait()
    }

    /// Returns true if other shards allow a delegation of a file. They normally answer within
    /// microseconds, and one that does not is not waited for.
    ///
    /// # Errors
    /// [`OpExit::Wait`] for their answer.
    pub(in crate::v4) fn await_announced(&mut self, file: FileId) -> OpResult<bool> {
        let is_known = self.nfs4.is_announced(file);
        let now = self.cx.now();
        let until = self.compound.replay_log.announced_until;
        let is_over = until.is_some_and(|until| now >= until);
        if is_known || is_over || self.nfs4.is_announcement_late() {
            if until.is_some() {
                // The recall has a time limit of its own.
                self.compound.recall_until = None;
            }
            if is_over && !is_known {
                self.nfs4.note_late_announcement();
            }
            return Ok(is_known);
        }
        let until = until.unwrap_or(now + ANNOUNCE_PATIENCE);
        (self.compound.replay_log.announced_until, self.compound.recall_until) =
            (Some(until), Some(until));
        match self.has_patience() {
            true => Err(self.compound.replay_log.wait_for(WaitFor::Recall)),
            false => Ok(false),
        }
    }

    /// Asks the holder of another client's write delegation for change attribute and size, if only
    /// it knows them. None if the store knows them.
    ///
    /// # Errors
    /// [`OpExit::Wait`] until the holder has answered; NFS4ERR_DELAY while a delegation is recalled
    /// whose holder did not.
    pub(in crate::v4) fn ask_holder(
        &mut self,
        object: &FileHandle,
    ) -> OpResult<Option<HolderCall>> {
        if !self.sees_delegations() {
            return Ok(None);
        }
        if self.nfs4.borrowed.is_some() {
            // For an object that the arguments refer to, `shards::placement` has asked the filter.
            return match self.compound.shard_facts.looks_up {
                true => self.check_beside(object).map(|()| None),
                false => Ok(None),
            };
        }
        self.compound.replay_log.go_on()?;
        if let Some(asked) = &mut self.compound.replay_log.asked {
            asked.is_heard = asked.told.is_some();
        }
        if let Some(asked) =
            self.compound.replay_log.asked.filter(|asked| matches!(asked.told, Some(Some(_))))
        {
            return Ok(Some(asked));
        }
        let (file, client) = (file_id(object), Some(self.client_key()?));
        let source = self.with_state(|state, _| state.check_attributes(file, client))?;
        let AttributeSource::Holder(order) = source else { return Ok(None) };
        let state = order.state;
        let has_failed = self.compound.replay_log.asked.is_some_and(|asked| asked.told.is_some());
        let is_over = self.compound.recall_until.is_some_and(|until| self.cx.now() >= until);
        let holder = self.nfs4.state.client_id(order.client);
        let can_ask = holder.is_some_and(|holder| self.nfs4.has_back_channel(holder));
        if has_failed || is_over || !can_ask || !self.can_wait() {
            // RFC 8881 §10.4.3: it is recalled, and its holder writes its data back.
            let now = crate::v4::milliseconds(self.cx.now());
            self.nfs4.state.begin_recall(state, now);
        } else if self.compound.replay_log.asked.is_none() {
            let number = self.nfs4.ask_holder(order);
            self.compound.replay_log.asked =
                Some(HolderCall { number, state, told: None, is_heard: false });
        }
        Err(self.wait_for_recall())
    }

    /// Returns true if the compound can be suspended: its arguments are kept then.
    pub(in crate::v4) fn can_wait(&mut self) -> bool {
        self.compound.replay_log.may_wait() && self.has_place_to_wait()
    }

    /// The same for an operation that asks nothing more, or has asked nothing yet: answers that its
    /// replay log lacks are asked for again.
    pub(in crate::v4) fn has_place_to_wait(&mut self) -> bool {
        let Some(slot) = self.compound.slot else { return false };
        let (client, from) = (slot.client, self.compound.source.from);
        let has_effect =
            self.compound.replay_log.has_effect || self.compound.replay_log.found().is_some();
        let has_room = match has_effect {
            true => self.nfs4.suspended.has_reserve(),
            false => self.nfs4.suspended.has_room(client, from),
        };
        if !has_room {
            return false;
        }
        if self.compound.replay_log.kept.is_none() {
            let kept = SavedArguments::of(self.cx, &self.arguments, self.pulled);
            let limits = self.means.limits;
            let suspended = &self.nfs4.suspended;
            self.compound.replay_log.kept = match has_effect {
                true => kept.or_else(|| SavedArguments::on_heap(&self.arguments)),
                false => kept.filter(|kept| suspended.may_hold(kept, limits)),
            };
        }
        self.compound.replay_log.kept.is_some()
    }

    /// Makes a check of state, unless it has passed in an earlier run of the operation: actions
    /// that relied on it stay done.
    pub(in crate::v4) fn check_once(
        &mut self,
        check: impl FnOnce(&mut Self) -> OpResult,
    ) -> OpResult {
        self.compound.replay_log.go_on()?;
        if S::MAY_WAIT && self.compound.replay_log.has_passed() {
            return Ok(());
        }
        check(self)?;
        if S::MAY_WAIT {
            self.compound.replay_log.pass();
        }
        Ok(())
    }
}
