//! Outcomes of calls, as their owner takes them.

use super::{FinishedCall, MARGIN, RawClient, protected::UnsentCall};
use crate::call::CallError;
use stag_engine::CallFault;
use stag_verbs::Provider;

/// The next event that an owner of calls waits for.
enum NextOutcome {
    Finished(FinishedCall),
    /// A call has to be made again, in another context.
    Again(Box<UnsentCall>),
    /// Another condition of the owner is met.
    Until,
}

impl<P: Provider> RawClient<P> {
    /// Waits for the next outcome of any call.
    ///
    /// # Errors
    /// [`CallFault::TimedOut`] if none comes within the time of a call.
    pub fn next_finished(&mut self) -> Result<FinishedCall, CallError> {
        let next = self.next_finished_or(|| false)?;
        next.ok_or(CallError::Failed(CallFault::TimedOut))
    }

    /// Waits for the next outcome of a call, or until `until` is true after calls of the server;
    /// then there is none.
    ///
    /// # Errors
    /// As [`next_finished`](Self::next_finished).
    pub fn next_finished_or(
        &mut self,
        mut until: impl FnMut() -> bool,
    ) -> Result<Option<FinishedCall>, CallError> {
        let limit = self.timeout.saturating_add(MARGIN);
        loop {
            if let Some(finished) = self.finished() {
                return Ok(Some(finished));
            }
            let next = self.wait(limit, |keeper| {
                if let Some(finished) = keeper.done.pop_front() {
                    return Some(NextOutcome::Finished(finished));
                }
                match keeper.again.pop() {
                    Some(again) => Some(NextOutcome::Again(Box::new(again))),
                    None => until().then_some(NextOutcome::Until),
                }
            });
            match next.ok_or(CallError::Failed(CallFault::TimedOut))? {
                NextOutcome::Finished(finished) => return Ok(Some(finished)),
                NextOutcome::Again(call) => self.make_again(*call),
                NextOutcome::Until => return Ok(None),
            }
        }
    }

    /// An outcome that is there. Without a pass: calls made since the last one leave together.
    fn finished(&mut self) -> Option<FinishedCall> {
        self.shard.with_app(|door, _| door.outcomes.done.pop_front())
    }

    /// Drops all untaken outcomes.
    pub(crate) fn drop_finished(&mut self) {
        while let Some(finished) = self.finished() {
            self.give(finished);
        }
    }

    /// Takes the memory of an outcome for reuse.
    pub fn give(&mut self, finished: FinishedCall) {
        if let Ok(mut reply) = finished.reply {
            reply.clear();
            self.shard.with_app(|door, _| door.outcomes.spare.push(reply));
        }
    }
}
