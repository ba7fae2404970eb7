//! SEQUENCE at the start of a compound (RFC 8881 §18.46), and the slot that it has begun.

use stag_nfs_store::Store;
use stag_protocol::{
    nfs::v4::{SequenceArgs, Status4},
    rpc::ReplyHeader,
};

use super::SequenceOutcome;
use crate::v4::{
    context::{CompoundContext, OpResult, shard_context::Placement},
    session::{SequenceFacts, SlotVerdict},
};

impl<S: Store> CompoundContext<'_, '_, S> {
    /// SEQUENCE (RFC 8881 §18.46), which is the first operation.
    pub(super) fn sequence(
        &mut self,
        args: &SequenceArgs,
        facts: &SequenceFacts<'_>,
    ) -> OpResult<SequenceOutcome> {
        if let Some(begun) = self.shard_context.begun {
            return self.go_on_with(begun);
        }
        self.associate(&args.session)?;
        let verdict = match self.nfs4.sessions.begin(args, facts) {
            Err(Status4::Delay) => return Ok(self.await_slots(args)),
            verdict => verdict?,
        };
        let flow = match verdict {
            SlotVerdict::New(slot) => {
                self.compound.slot = Some(slot);
                self.nfs4.renew_lease(&slot, self.cx.now());
                if self.nfs4.link.is_some() {
                    let takes_loans = self.shard_context.takes_loans;
                    self.nfs4.note_arrival(&slot.session, self.compound.source.shard, takes_loans);
                }
                if self.shard_context.placement == Placement::Begin {
                    return Ok(SequenceOutcome::NeedsHome);
                }
                SequenceOutcome::Usual
            }
            SlotVerdict::InProgress => return self.join(args),
            SlotVerdict::Replay => {
                self.nfs4.tally.replayed += 1;
                let kept = self.nfs4.sessions.kept(&args.session, args.slot).unwrap_or_default();
                self.compound.reply.truncate(ReplyHeader::LEN);
                let written = self.compound.reply.write(|writer| writer.fixed(kept));
                self.is_replay = true;
                debug_assert!(written.is_ok(), "a message has room for what a slot keeps");
                return Ok(SequenceOutcome::Replayed);
            }
            SlotVerdict::ReplayUncached => SequenceOutcome::NotKept,
        };
        let ok = self.nfs4.sequence_ok(args).ok_or(Status4::BadSession)?;
        self.put(&stag_protocol::nfs::v4::Answer::Sequence(Ok(ok)))?;
        Ok(flow)
    }

    /// Ends the request of the slot, with its reply if that has to be kept.
    pub(in crate::v4) fn release_slot(&mut self) {
        let slot = self.compound.slot.take();
        self.nfs4.free_slot(slot, &self.compound.reply);
    }
}
