//! Calls of peers and replies without chunks, with a header of a few words: most calls and replies.

use crate::{
    app::{App, Call, CallId, Cx, PeerId},
    config::INLINE_LEN,
    core::Core,
    item::Pulled,
    shard::Shard,
    short_send::{SHORT_ROOM, SendsShort, ShortSend, send_short, send_written},
    stage_times::Stage,
    state::{
        FabricLink, Link, Peer, Responder, Sender,
        inbound::{FreshCall, Inbound, InboundState},
    },
};
use stag_pools::{Buf, table::Key};
use stag_protocol::{
    rpc::{CallHeader, NullHeader},
    rpcrdma::{MessageType, Side, Xid},
    xdr::{Reader, Writer},
};
use stag_verbs::{PeerAddress, Provider, Qp};

impl<P: Provider, A: App> Shard<P, A> {
    /// Answers a NULL call with AUTH_NONE, which the app accepted, by the general path, because the
    /// reply could not be sent at once.
    #[inline(never)]
    pub(crate) fn answer_null(&mut self, peer: PeerId, qp: Qp, header: NullHeader) {
        if let Some(key) = self.begin_fresh(peer, qp, header.xid) {
            self.core.responder.serving = Some(peer);
            let mut cx = Cx::new(&mut self.core, &mut self.provider);
            let written = cx.answer_short(CallId(key), header.reply(), |_| Ok(()));
            debug_assert_eq!(written, Ok(()), "a header fits");
            self.end_fresh();
        }
    }

    /// Passes a call without chunks to the app. Its XID was compared.
    #[inline]
    pub(crate) fn begin_short_call(&mut self, sender: Sender, qp: Qp, xid: Xid, payload: &[u8]) {
        if let Some(key) = self.begin_fresh(sender.peer, qp, xid) {
            self.serve_short(key, sender, payload);
        }
    }

    /// Has the app serve a call without chunks by its whole header.
    // Out of line: a full header is large, while a NULL call needs only a few words.
    #[inline(never)]
    fn serve_short(&mut self, key: Key, sender: Sender, payload: &[u8]) {
        let mut reader = Reader::new(payload);
        match CallHeader::parse_usual(&mut reader) {
            Some(header) => self.serve_fresh(key, sender.peer, sender.address, header, reader),
            None => {
                self.keep_fresh();
                self.hand_over(key, sender, reader, Pulled::default());
            }
        }
    }

    /// Gives a call without chunks an ID but no table entry: most are answered before they need
    /// one. None if the table is full.
    #[inline(always)]
    fn begin_fresh(&mut self, peer: PeerId, qp: Qp, xid: Xid) -> Option<Key> {
        self.core.counters.stats.responder.calls.short += 1;
        let Some(key) = self.core.responder.calls.next_key() else {
            self.refuse_place(qp);
            return None;
        };
        self.core.watch.begin_at_once(key, self.core.now);
        debug_assert!(self.core.responder.fresh.is_none(), "an app serves one call");
        self.core.responder.fresh = Some(FreshCall { key, peer, xid });
        Some(key)
    }

    /// Has the app serve a call that has an ID but no table entry.
    #[inline(always)]
    fn serve_fresh(
        &mut self,
        key: Key,
        peer: PeerId,
        from: PeerAddress,
        header: CallHeader<'_>,
        arguments: Reader<'_>,
    ) {
        self.core.stamp_parsed(key, &header, from);
        let (id, pulled) = (CallId(key), Pulled::default());
        self.core.responder.serving = Some(peer);
        let call = Call { id, peer, from, header, arguments, pulled };
        self.app.on_call(&mut Cx::new(&mut self.core, &mut self.provider), call);
        self.end_fresh();
    }

    /// Ends the app's work on a call that has an ID but no table entry.
    #[inline(always)]
    fn end_fresh(&mut self) {
        self.core.responder.serving = None;
        if self.core.responder.fresh.is_none() {
            self.core.responder.calls.skip_next();
        } else {
            self.keep_fresh();
            if let Some((call, message)) = self.core.wishes.take_answered() {
                self.answer_message(call, message);
            }
        }
        self.empty_outbox();
    }

    /// Inserts the fresh call in the entry that its ID names.
    #[inline]
    fn keep_fresh(&mut self) {
        let Some(FreshCall { key, peer, xid }) = self.core.responder.fresh.take() else { return };
        let kept = self.core.responder.calls.insert(Inbound::whole(peer, xid, self.core.now));
        debug_assert_eq!(kept.ok(), Some(key), "nothing takes a place while the app looks");
    }

    /// Sends a reply without chunks, with a header of a few words, if the fabric accepts it at
    /// once. Returns false if nothing was done.
    #[inline]
    pub(super) fn answer_short(&mut self, key: Key, message: &mut Buf) -> bool {
        let core = &mut self.core;
        let Some(&Inbound {
            peer, xid, state: InboundState::AwaitAnswer, has_lists: false, ..
        }) = core.responder.calls.get(key)
        else {
            return false;
        };
        let Some(entry) = core.peers.get_mut(peer) else { return false };
        let Link::Fabric(FabricLink { qp, state: Some(connection) }) = &mut entry.link else {
            return false;
        };
        let adapts = connection.side() == Side::Server;
        let granted = connection.serves().map_or(0, |credits| credits.granted().0);
        // A grant that may change is adapted on the general path.
        if adapts && entry.grant.is_used_up(granted)
            || !connection.short().fits_reply(message.len())
        {
            return false;
        }
        debug_assert_eq!(message.first_chunk(), Some(&xid.0.to_be_bytes()), "the reply's XID");
        // RFC 8167 §5.2 [8167-6]: a reverse reply begins with the XID of its header
        // draft 002 §5.2 [bidir-6]: a reverse reply begins with the XID of its header
        let send = ShortSend { qp: *qp, message_type: MessageType::Reply, xid };
        if !send_short(&mut self.provider, connection, send, message) {
            return false;
        }
        if adapts {
            entry.grant.count_reply();
        }
        let is_settled = !connection.handle_replied();
        core.ways.note_short();
        core.counters.stats.responder.replies.short += 1;
        core.responder.forget(key);
        core.watch.post(key, core.now);
        if !is_settled {
            core.settle_receives(peer);
        }
        true
    }
}

impl Core {
    /// Sends the reply of `len` octets in the responder's room, if it answers the short call that
    /// the app is serving, if it fits inline, and if the fabric accepts it at once. Returns false
    /// if nothing was done.
    #[inline(always)]
    pub(crate) fn answer_at_once(
        &mut self,
        fabric: &mut dyn SendsShort,
        call: Key,
        len: usize,
    ) -> bool {
        let Self { responder, peers, .. } = self;
        // Field by field: reading all of it at once would stall, since it was just written field by
        // field.
        let Some(FreshCall { key, peer, xid }) = &responder.fresh else { return false };
        let (key, peer, xid) = (*key, *peer, *xid);
        if key != call {
            return false;
        }
        let Some(entry) = peers.get_mut(peer) else { return false };
        let Some(is_settled) = responder.send_written(fabric, entry, xid, len) else {
            return self.answer_with_new_grant(fabric, FreshCall { key, peer, xid }, len);
        };
        self.end_at_once(call, peer, is_settled);
        true
    }

    /// Ends the call that was answered at once. `is_settled` means that no receive is owed.
    #[inline(always)]
    fn end_at_once(&mut self, call: Key, peer: PeerId, is_settled: bool) {
        self.ways.note_short();
        self.counters.stats.responder.replies.short += 1;
        self.responder.fresh = None;
        self.stamp(call, Stage::App);
        self.watch.post(call, self.now);
        if !is_settled {
            self.settle_receives(peer);
        }
    }

    /// Sends a reply that was not sent because it uses up its peer's grant: adapts the grant first,
    /// which the reply then announces. Returns false if that was not the reason, or if nothing was
    /// sent.
    // One reply of each grant gets here. The general path would adapt the grant as well, at the
    // cost of a buffer, a table entry and a plan.
    #[cold]
    #[inline(never)]
    fn answer_with_new_grant(
        &mut self,
        fabric: &mut dyn SendsShort,
        FreshCall { key, peer, xid }: FreshCall,
        len: usize,
    ) -> bool {
        if !self.peers.get(peer).is_some_and(|entry| entry.uses_up_grant(len)) {
            return false;
        }
        self.adapt_grant(peer, 0);
        let Self { responder, peers, .. } = self;
        let Some(entry) = peers.get_mut(peer) else { return false };
        let Some(is_settled) = responder.send_written(fabric, entry, xid, len) else {
            return false;
        };
        // As on the general path, the count begins with the next reply.
        entry.grant.forget_replies();
        self.end_at_once(key, peer, is_settled);
        true
    }
}

impl Responder {
    /// Answers a NULL call with success, if its reply fits inline and the fabric accepts it at
    /// once. None if nothing was done; otherwise true if no receive is owed.
    #[inline(always)]
    pub(crate) fn answer_null_at_once(
        &mut self,
        fabric: &mut dyn SendsShort,
        entry: &mut Peer,
        header: NullHeader,
    ) -> Option<bool> {
        let mut writer = Writer::new(self.room());
        // RFC 5531 §12.1 [5531-25]: procedure 0 takes and gives nothing, for anybody
        header.reply().emit(&mut writer).ok()?;
        let len = writer.len();
        self.send_written(fabric, entry, header.xid, len)
    }

    /// Sends the reply of `len` octets in [`room`](Self::room), if it fits inline and the fabric
    /// accepts it at once. None if nothing was done; otherwise true if no receive is owed.
    #[inline(always)]
    fn send_written(
        &mut self,
        fabric: &mut dyn SendsShort,
        entry: &mut Peer,
        xid: Xid,
        len: usize,
    ) -> Option<bool> {
        let Link::Fabric(FabricLink { qp, state: Some(connection) }) = &mut entry.link else {
            return None;
        };
        debug_assert!(len <= INLINE_LEN, "the room has as many octets");
        let adapts = connection.side() == Side::Server;
        let granted = connection.serves().map_or(0, |credits| credits.granted().0);
        // A grant that may change is adapted on the general path.
        if adapts && entry.grant.is_used_up(granted) || !connection.short().fits_reply(len) {
            return None;
        }
        let octets = self.written.get_mut(..SHORT_ROOM + len)?;
        // RFC 8167 §5.2 [8167-6]: a reverse reply begins with the XID of its header
        // draft 002 §5.2 [bidir-6]: a reverse reply begins with the XID of its header
        let send = ShortSend { qp: *qp, message_type: MessageType::Reply, xid };
        if !send_written(fabric, connection, send, octets) {
            return None;
        }
        if adapts {
            entry.grant.count_reply();
        }
        Some(!connection.handle_replied())
    }
}
