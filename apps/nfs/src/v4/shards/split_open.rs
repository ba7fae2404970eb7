//! Compounds that two shards execute: the one with the slots of their session, and the home.
//!
//! An OPEN goes one way: to the home and back. The shard with the slots executes it up to its first
//! question about state: it looks up or creates the file, asks which access the caller has, and
//! pins the file. Then its compound waits, and the home executes the compound up to the OPEN, for
//! which it has the file already (`OpenedFile`): it decides about state and delegation, and makes
//! no store call except to truncate a file. Its reply replaces the results written so far, and the
//! shard continues with the operations after the OPEN. An OPEN that the store refuses is complete
//! at once. If a later operation needs state, the home executes it and all the rest.
//!
//! The home makes the same checks of state as for its own OPENs. The first of them normally cannot
//! fail any more: no client may reclaim, and this one has completed its reclaims
//! (`Borrowed::may_open`).

use super::{
    channel::ArrivalEnd,
    messages::{ForwardedCompound, Unread},
};
use crate::{
    requester::CallSource,
    v4::{
        Nfs4,
        context::{
            CompoundContext, CompoundState, OpExit, OpResult,
            filehandle::Node,
            replay_log::WaitFor,
            shard_context::{ForwardedReply, HomeCall, HomeRequest, OpenedFile, PendingAtHome},
        },
        interpreter::{
            CallFacts,
            suspended::{CompoundId, SuspendedCompound},
        },
    },
};
use stag_engine::CallId;
use stag_nfs_store::{Effort, Procedures4 as _, Store};
use stag_protocol::{nfs::v4::Status4, rpc::ReplyHeader};
use std::cell::Cell;

/// The shard's side.
impl<S: Store> CompoundContext<'_, '_, S> {
    /// Begins an OPEN that the home completes.
    ///
    /// # Errors
    /// [`OpExit::NeedsHome`] if the compound cannot wait for the home: it has had no effect yet.
    pub(in crate::v4) fn begin_beside_home(&mut self) -> OpResult {
        if self.can_wait() { Ok(()) } else { Err(OpExit::NeedsHome) }
    }

    /// Lets an OPEN of `file` wait for the home, which decides its state.
    pub(in crate::v4) fn wait_for_home(&mut self, file: OpenedFile) -> OpExit {
        let slot = self.compound.slot.as_ref();
        let begun = slot.and_then(|slot| {
            self.nfs4.sessions.get(&slot.session).map(|session| session.begun(slot))
        });
        let (Some(begun), Some(part)) = (begun, self.compound.shard_facts.home) else {
            return Status4::BadSession.into();
        };
        if !self.can_wait() {
            return Status4::Delay.into();
        }
        self.act();
        let is_pinned = !self.store.waits(&file.handle, Effort::Plain)
            && self.store.now().pin(&file.handle).is_ok();
        self.compound.replay_log.wait_for(WaitFor::Home(HomeCall { part, file, is_pinned, begun }))
    }

    /// Replaces the results written so far by the home's reply. Returns true if the compound
    /// continues.
    pub(in crate::v4) fn take_from_home(
        &mut self,
        away: PendingAtHome,
        reply: &ForwardedReply,
    ) -> bool {
        let results = reply.kept().unwrap_or_default();
        self.compound.reply.truncate(ReplyHeader::LEN);
        let has_room = self.compound.reply.ensure(self.cx, results.len());
        let written = has_room && self.compound.reply.write(|writer| writer.fixed(results)).is_ok();
        let status = results.first_chunk().map(|word| u32::from_be_bytes(*word));
        let Some(status) = status.filter(|_| written) else {
            self.compound.reply.fail();
            return false;
        };
        self.compound.progress.count += 1;
        self.set_current(Node::Object(away.file));
        status == Status4::Ok as u32
            && self.compound.shard_facts.home.is_some_and(|part| !part.is_rest)
    }
}

impl Nfs4 {
    /// The compound whose home part has this name.
    pub(crate) fn split(&self, call: CallId) -> Option<CompoundId> {
        self.suspended.find(|compound| compound.at_home.is_some_and(|away| away.call == call))
    }
}

impl SuspendedCompound {
    /// The message with the home's part, from a shard.
    fn message(&self, event: HomeCall, unread: &Unread, source: CallSource) -> ForwardedCompound {
        let HomeCall { part, file, is_pinned, .. } = event;
        let CompoundState { reply, principal, request_len, caller, replay_log, .. } = &self.state;
        let kept = &replay_log.kept;
        let facts =
            CallFacts { xid: reply.xid(), principal: *principal, request_len: *request_len };
        let pieces = kept.as_ref().expect("a compound that waits keeps its arguments").pieces();
        let arguments = stag_protocol::xdr::Reader::over(&pieces);
        let pinned = Cell::new(is_pinned.then_some(file.handle));
        let mut message = ForwardedCompound::of(unread, source, *caller, facts, &arguments);
        message.asked = Some(HomeRequest { part, file, pinned });
        message
    }
}

impl ArrivalEnd {
    /// Asks the home to execute its part of a suspended compound. Suspended compounds are few, and
    /// a file may have been created: it is asked even when there is no room for others.
    pub(crate) fn ask_home(&mut self, nfs4: &mut Nfs4, id: CompoundId, event: HomeCall) {
        let Some(compound) = nfs4.suspended.get_mut(id) else {
            debug_assert!(false, "a compound waits until the home answers");
            return;
        };
        compound.at_home =
            Some(PendingAtHome { call: compound.state.source.id, file: event.file.handle });
        let begun = Some(event.begun);
        self.send_compound(compound.state.source, begun, |unread, source| {
            compound.message(event, unread, source)
        });
    }
}

/// The home's side.
impl<S: Store> CompoundContext<'_, '_, S> {
    /// Passes its file to the next operation, if that is the OPEN that another shard has begun.
    #[inline]
    pub(in crate::v4) fn begin_at_home(&mut self, place: u32) {
        if let Some(asked) = self.shard_context.asked.filter(|asked| asked.part.place == place) {
            debug_assert!(S::MAY_WAIT, "the log is cleared after each operation");
            self.compound.replay_log.begin_with(asked.file, asked.pinned.take());
        }
    }

    /// Releases the pin of an OPEN that granted nothing.
    pub(in crate::v4) fn drop_pin(&mut self) {
        if let Some(file) = self.compound.replay_log.pinned.take() {
            self.store.unpin(&file);
        }
    }
}

impl ForwardedCompound {
    /// The home's part of a compound that is not executed entirely there.
    pub(crate) const fn asked(&self) -> Option<&HomeRequest> {
        self.asked.as_ref()
    }

    /// Releases the pin of an OPEN that the home did not reach.
    pub(crate) fn drop_pin<S: Store>(&self, store: &mut S) {
        if let Some(file) = self.asked.as_ref().and_then(|asked| asked.pinned.take()) {
            store.unpin(&file);
        }
    }
}
