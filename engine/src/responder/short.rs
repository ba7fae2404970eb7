//! Calls of peers and replies without chunks, with the header of a few words: most of both.

use super::inbound::{FreshCall, Inbound, InboundState};
use crate::{
    app::{App, Call, CallId, Cx, PeerId},
    core::Core,
    item::Pulled,
    peer::{FabricLink, Link, Sender},
    shard::Shard,
    short_send::{SHORT_ROOM, SendsShort, ShortSend, send_short, send_written},
    stages::Stage,
};
use stag_pools::{Buf, table::Key};
use stag_protocol::{
    rpc::CallHeader,
    rpcrdma::{MessageType, Side, Xid},
    xdr::Reader,
};
use stag_verbs::{PeerAddress, Provider, Qp};

impl<P: Provider, A: App> Shard<P, A> {
    /// Hands a call without chunks to the app: its transaction was compared. It gets a place if it
    /// is not answered at once.
    #[inline(always)]
    pub(crate) fn begin_short_call(&mut self, sender: Sender, qp: Qp, xid: Xid, payload: &[u8]) {
        self.core.counters.stats.responder.calls.short += 1;
        let Some(key) = self.core.responder.calls.next_key() else {
            return self.refuse_place(qp);
        };
        self.core.watch.begin_at_once(key, self.core.now);
        let mut reader = Reader::new(payload);
        self.core.responder.fresh = Some(FreshCall { key, peer: sender.peer, xid });
        match CallHeader::parse_nobody(&mut reader) {
            Some(header) => self.serve_fresh(key, sender.peer, sender.address, header, reader),
            None => self.begin_user_call(key, sender, reader),
        }
    }

    /// The same of a call that names somebody, as nearly all others do.
    // By itself: its header is long, and the one of nobody is a few words.
    #[inline(never)]
    fn begin_user_call(&mut self, key: Key, sender: Sender, mut reader: Reader<'_>) {
        match CallHeader::parse_user(&mut reader) {
            Some(header) => self.serve_fresh(key, sender.peer, sender.address, header, reader),
            None => {
                self.keep_fresh();
                self.hand_over(key, sender, reader, Pulled::default());
            }
        }
    }

    /// Has the app serve a call that has a name and no place.
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

    /// Gives the fresh call the place that its name promises.
    #[inline]
    fn keep_fresh(&mut self) {
        let Some(FreshCall { key, peer, xid }) = self.core.responder.fresh.take() else { return };
        let kept = self.core.responder.calls.insert(Inbound::whole(peer, xid, self.core.now));
        debug_assert_eq!(kept.ok(), Some(key), "nothing takes a place while the app looks");
    }

    /// Sends a reply without chunks, with the header of a few words, if the fabric takes it at
    /// once. Returns false when nothing was done.
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
        // A grant that may change is looked at where all replies are sent.
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
    /// Sends the reply of `len` octets that was written to the responder's room, if it answers the
    /// call that the app is looking at, and that came short; if it fits inline; and if the fabric
    /// takes it at once. Returns false when nothing was done.
    #[inline(always)]
    pub(crate) fn answer_at_once(
        &mut self,
        fabric: &mut dyn SendsShort,
        call: Key,
        len: usize,
    ) -> bool {
        let Self { responder, peers, counters, .. } = self;
        // By its parts: all of it would be read at once, and was just written by parts.
        let Some(FreshCall { key, peer, xid }) = &responder.fresh else { return false };
        let (key, peer, xid) = (*key, *peer, *xid);
        if key != call {
            return false;
        }
        let Some(entry) = peers.get_mut(peer) else { return false };
        let Link::Fabric(FabricLink { qp, state: Some(connection) }) = &mut entry.link else {
            return false;
        };
        let adapts = connection.side() == Side::Server;
        let granted = connection.serves().map_or(0, |credits| credits.granted().0);
        // A grant that may change is looked at where all replies are sent.
        if adapts && entry.grant.is_used_up(granted) || !connection.short().fits_reply(len) {
            return false;
        }
        let octets = responder.written.get_mut(..SHORT_ROOM + len).unwrap_or_default();
        // RFC 8167 §5.2 [8167-6]: a reverse reply begins with the XID of its header
        // draft 002 §5.2 [bidir-6]: a reverse reply begins with the XID of its header
        let send = ShortSend { qp: *qp, message_type: MessageType::Reply, xid };
        if !send_written(fabric, connection, send, octets) {
            return false;
        }
        if adapts {
            entry.grant.count_reply();
        }
        let is_settled = !connection.handle_replied();
        counters.stats.responder.replies.short += 1;
        responder.fresh = None;
        self.stamp(call, Stage::App);
        self.watch.post(call, self.now);
        if !is_settled {
            self.settle_receives(peer);
        }
        true
    }
}
