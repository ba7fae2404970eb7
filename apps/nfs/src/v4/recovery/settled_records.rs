//! Steps that follow once their records are stable, and replies that waited for them.

use stag_engine::{Cx, Time};
use stag_protocol::rpc::ReplyHeader;

use super::{grace::HeldReply, record_writer::AfterRecord};
use crate::{
    records::RecordChange,
    reply::ReplyWriter,
    requester::OWN,
    v4::{
        Nfs4,
        session::{CLIENTS, RecordPhase, SlotInUse, reply_data::take_data_out},
    },
};

impl Nfs4 {
    /// Takes the steps whose records are stable.
    pub(in crate::v4) fn settle_records(&mut self, now: Time) {
        loop {
            // The end must not be recorded before a completion, which it would erase. Completions
            // requested later follow it in the queue.
            if self.recovery.ends_grace && self.recovery.queue.len() == 0 {
                self.recovery.ends_grace = false;
                self.recovery.queue.push(RecordChange::EndGrace, AfterRecord::EndGrace);
            }
            self.recovery.queue.exchange(now);
            let Some(after) = self.recovery.queue.next_stable() else { break };
            self.follow(after);
        }
        if self.recovery.queue.is_taken_over {
            self.end_all();
        }
    }

    fn follow(&mut self, after: AfterRecord) {
        match after {
            AfterRecord::Nothing => {}
            AfterRecord::Grant(id) => {
                let Some(client) = self.clients.get_mut(id) else { return };
                if client.record == RecordPhase::Asked {
                    client.record = RecordPhase::Stable;
                }
                if let Some(key) = client.key {
                    self.state.handle_recorded(key);
                }
                // Its shard may begin OPENs, and the OPENs that wait here are resumed.
                self.tell_client_flags(id);
                self.suspended.note_return();
            }
            AfterRecord::End(key) => {
                if let Some(id) = self.state.client_id(key) {
                    self.end_client(id);
                }
            }
            AfterRecord::Revoke(state) => self.state.revoke(state),
            AfterRecord::WriteDelegations => {
                self.recovery.write_delegations = RecordPhase::Stable;
            }
            AfterRecord::EndGrace => {
                self.recovery.listed.clear();
                self.state.handle_grace_recorded();
            }
        }
    }

    /// Ends all clients: another gateway has their records, and may grant their state to other
    /// clients.
    fn end_all(&mut self) {
        if std::mem::replace(&mut self.recovery.is_ended, true) {
            return;
        }
        for place in 0..CLIENTS {
            if let Some(id) = self.clients.nth(place).map(|client| client.id) {
                self.end_client(id);
            }
        }
    }

    /// Takes steps, and sends the replies that waited for them. Called once in a pass.
    pub(in crate::v4) fn tend_records(&mut self, cx: &mut Cx<'_>) {
        if !self.recovery.has_work() && !self.recovery.ends_grace {
            return;
        }
        self.settle_records(cx.now());
        let is_failing = self.recovery.queue.is_failing || self.recovery.queue.is_taken_over;
        let clients = &self.clients;
        let is_awaited = |held: &HeldReply| {
            let client = clients.get(held.client);
            !is_failing && client.is_some_and(|client| client.record == RecordPhase::Asked)
        };
        let done = self.recovery.held.extract_if(.., |held| !is_awaited(held));
        for held in done.collect::<Vec<_>>() {
            let HeldReply { requester, slot, reply, .. } = held;
            self.free_slot(slot, &reply);
            if let Some(requester) = requester {
                let is_kept = slot.is_some_and(|slot| slot.cache_this) && requester.shard == OWN;
                let take = |message: &mut _| {
                    is_kept.then(|| take_data_out(message, cx, &self.item_lists)).flatten()
                };
                let answer = reply.finish_kept(take);
                self.answer(cx, requester, answer);
            }
        }
    }

    /// Ends the request of a slot, with its reply if that has to be kept.
    pub(in crate::v4) fn free_slot(&mut self, slot: Option<SlotInUse>, reply: &ReplyWriter) {
        let Some(slot) = slot else { return };
        if slot.is_lent {
            // FREE_STATEID may have cleared the reason for a flag (RFC 8881 §18.46.3): the next
            // request shows that.
            return self.tell_flags(&slot.session);
        }
        let is_kept = slot.cache_this && !reply.has_item();
        let kept = reply.message().get(ReplyHeader::LEN..).filter(|_| is_kept);
        self.sessions.finish(&slot, kept);
    }
}
