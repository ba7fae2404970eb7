//! Calls of peers of any form: their table entry, and their path to the app (hop 7).

use crate::{
    account::SMALL_MAX,
    app::{Answer, App, Call, CallId, Cx, PeerId},
    gss::{ArrivedCall, is_reduced},
    item::Pulled,
    shard::Shard,
    stage_times::Stage,
    state::{
        Sender,
        inbound::{Inbound, InboundState, Missing},
    },
    stats::Forms,
};
use stag_pools::{Buf, table::Key};
use stag_protocol::{
    rpc::{AuthStatus, CallHeader, Denied, Outcome, Refusal, ReplyHeader},
    rpcrdma::{Body, ChunkLists, Header, PeerFault, Xid, responder},
    xdr::{NoRoom, Reader, Writer},
};
use stag_verbs::{Provider, Qp};

/// Octets of the longest reply to a call that is not passed to an app.
const REFUSAL_LEN: usize = 64;

impl<P: Provider, A: App> Shard<P, A> {
    /// Gives a call an entry, and pulls the chunks that it names.
    pub(crate) fn begin_call(
        &mut self,
        sender: Sender,
        qp: Qp,
        header: Header,
        payload_at: usize,
        message: Buf,
    ) {
        let peer = sender.peer;
        let core = &mut self.core;
        let inline_len = message.len() - payload_at;
        if core.gss.is_some()
            && !core.lists.is_empty()
            && is_reduced(&core.lists, message.get(payload_at..).unwrap_or_default())
        {
            // RFC 8166 §8.2.2.3 [8166-70]: nothing of a protected call is reduced
            return self.refuse_call(peer, qp, header.xid, PeerFault::ReducedProtected);
        }
        if let (Body::Msg, 1.., Some(room)) = (header.body, inline_len, core.lists.only_write())
            && core.ways.are_short()
            && core.may_answer(peer, long_reply(room.length.into(), core.memory.slot_max()))
        {
            return self.begin_with_room(sender, qp, header.xid, payload_at, message);
        }
        let pull =
            match responder::plan_pull(&header, &core.lists, inline_len, core.config.payload_max) {
                Ok(pull) => pull,
                Err(fault) => return self.refuse_call(peer, qp, header.xid, fault),
            };
        let stats = &mut core.counters.stats.responder;
        stats.chunks.count(&core.lists);
        let is_whole = pull.chunks().is_empty();
        count_form(&mut stats.calls, header.body == Body::NoMsg, !is_whole);
        let has_lists = !core.lists.is_empty() || core.lists.intent().is_some();
        let expected = expected_reply(&core.lists, core.memory.slot_max());
        let goes_on = is_whole && core.may_answer(peer, expected);
        let state = if goes_on { InboundState::AwaitAnswer } else { InboundState::AwaitSink };
        let (xid, came_at) = (header.xid, core.now);
        let call = Inbound { peer, xid, state, has_lists, came_at, fabric: None };
        let Ok(key) = core.responder.calls.insert(call) else { return self.refuse_place(qp) };
        if has_lists && let Some(lists) = core.responder.lists.get_mut(key.index()) {
            lists.clone_from(&core.lists);
        }
        core.watch.begin(key, core.now);
        if goes_on {
            // Inline, and the XID was compared when it arrived.
            let payload = message.get(payload_at..).unwrap_or_default();
            self.hand_over(key, sender, Reader::new(payload), Pulled::default());
            return self.repost(message);
        }
        let mut fabric = core.responder.spare.take();
        debug_assert!(fabric.is_clear(), "a spare box is empty");
        (fabric.header, fabric.payload_at, fabric.pull) = (header, payload_at, pull);
        (fabric.message, fabric.expected) = (Some(message), expected);
        if let Some(call) = core.responder.calls.get_mut(key) {
            call.fabric = Some(fabric);
        }
        core.stamp(key, Stage::Parse);
        self.pull_or_wait(peer, key);
    }

    /// Octets of memory that the reply to a call may take.
    pub(crate) fn expected_of(&self, key: Key) -> u64 {
        let has_lists = self.core.responder.calls.get(key).is_some_and(|call| call.has_lists);
        let lists = self.core.responder.lists.get(key.index()).filter(|_| has_lists);
        lists.map_or(0, |lists| expected_reply(lists, self.core.memory.slot_max()))
    }

    /// Pulls the chunks of a call that has just arrived, or queues it after deferred calls of its
    /// peer.
    fn pull_or_wait(&mut self, peer: PeerId, key: Key) {
        let missing = match self.core.first_deferred(peer) {
            Some(_) => None,
            None => match self.pull(key, false) {
                Ok(()) => return,
                Err(missing) => Some(missing),
            },
        };
        self.core.defer(peer, key);
        let limits = &mut self.core.counters.stats.limits;
        match missing {
            Some(Missing::Memory(_) | Missing::Buffers) => limits.memory += 1,
            Some(Missing::Share) => limits.share += 1,
            Some(Missing::Room) => limits.send_queue += 1,
            None => return,
        }
        self.core.await_missing(peer, missing);
    }

    /// Ends the connection of a call without an entry. The table has one for every receive, so only
    /// a peer that exceeds its grant gets here.
    #[cold]
    pub(super) fn refuse_place(&mut self, qp: Qp) {
        self.core.counters.stats.limits.calls += 1;
        self.provider.disconnect(qp);
    }

    /// Answers a call by RDMA_ERROR.
    pub(crate) fn refuse_call(&mut self, peer: PeerId, qp: Qp, xid: Xid, fault: PeerFault) {
        self.core.counters.peer_faults.count(fault);
        let Some((_, connection)) = self.core.peers.connection(peer) else { return };
        connection.handle_replied();
        let reply = connection.chunk_error(xid);
        self.core.settle_receives(peer);
        self.send_error(qp, &reply);
    }

    /// Passes a complete RPC message to the app, or answers it if it is not a call that an app
    /// could understand.
    pub(crate) fn hand_over(
        &mut self,
        key: Key,
        sender: Sender,
        mut reader: Reader<'_>,
        pulled: Pulled<'_>,
    ) {
        let Sender { peer, address: from } = sender;
        self.core.moved += pulled.len();
        let message = reader.clone();
        match CallHeader::parse(&mut reader) {
            Ok(header) if self.core.gss.is_some() && header.credential.gss().is_some() => {
                let arrived = ArrivedCall { message, header, arguments: reader, pulled };
                return self.hand_over_protected(key, sender, &arrived);
            }
            Ok(header) => {
                self.core.stamp_parsed(key, &header, from);
                let call = Call { id: CallId(key), peer, from, header, arguments: reader, pulled };
                debug_assert!(self.core.responder.serving.is_none(), "an app serves one call");
                self.core.responder.serving = Some(peer);
                self.app.on_call(&mut Cx::new(&mut self.core, &mut self.provider), call);
                self.core.responder.serving = None;
            }
            Err(Refusal::Answer(reply)) => {
                self.core.watch.forget(key);
                self.answer_refusal(key, peer, &reply);
            }
            // No reply is possible, so none can return the credit: the connection ends.
            Err(Refusal::Discard) => self.disconnect(peer),
        }
        self.empty_outbox();
    }

    /// Denies a call because of its credential, without passing it to the app.
    pub(crate) fn deny(&mut self, key: Key, peer: PeerId, xid: Xid, status: AuthStatus) {
        let outcome = Outcome::Denied(Denied::AuthError(status));
        self.answer_refusal(key, peer, &ReplyHeader { xid, outcome });
        self.empty_outbox();
    }

    pub(crate) fn answer_refusal(&mut self, key: Key, peer: PeerId, reply: &ReplyHeader<'_>) {
        match self.refusal(|writer| reply.emit(writer)) {
            Some(message) => self.answer(CallId(key), Answer { message, item: None }),
            None => self.disconnect(peer),
        }
    }

    /// A message with the reply to a call that no app could understand.
    fn refusal(&mut self, emit: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>) -> Option<Buf> {
        let mut message = Cx::new(&mut self.core, &mut self.provider).message(REFUSAL_LEN)?;
        let mut writer = Writer::new(message.spare_mut());
        emit(&mut writer).ok()?;
        let len = writer.len();
        message.extend(len);
        Some(message)
    }
}

/// Octets of memory, in one buffer of at most `slot_max`, that the reply to a call with these
/// chunks may take; 0 if a message slot suffices.
fn expected_reply(lists: &ChunkLists, slot_max: usize) -> u64 {
    let writes = lists.writes().flat_map(|chunk| chunk.segments.iter());
    let all = writes.chain(lists.reply().into_iter().flat_map(|chunk| chunk.segments.iter()));
    long_reply(all.map(|segment| u64::from(segment.length)).sum(), slot_max)
}

/// The same for chunks of `offered` octets.
fn long_reply(offered: u64, slot_max: usize) -> u64 {
    let offered = offered.min(slot_max as u64);
    if offered > SMALL_MAX as u64 { offered } else { 0 }
}

pub(super) fn count_form(forms: &mut Forms, long: bool, chunked: bool) {
    *match (long, chunked) {
        (true, _) => &mut forms.long,
        (false, true) => &mut forms.chunked,
        (false, false) => &mut forms.short,
    } += 1;
}
