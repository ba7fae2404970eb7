//! Calls of peers and replies without chunks, with the header of a few words: most of both.

use super::inbound::{Inbound, InboundState};
use crate::{
    app::{App, Call, CallId, Cx},
    item::Pulled,
    peers::Link,
    shard::{Sender, Shard},
    stages::Stage,
};
use stag_pools::{Buf, table::Key};
use stag_protocol::{
    rpc::CallHeader,
    rpcrdma::{Connection, Side, Xid, plain},
    xdr::Reader,
};
use stag_verbs::{Provider, Qp};

impl<P: Provider, A: App> Shard<P, A> {
    /// Gives a call without chunks a place, and hands it to the app: its transaction was compared.
    #[inline]
    pub(crate) fn begin_short_call(&mut self, sender: Sender, qp: Qp, xid: Xid, message: &[u8]) {
        self.core.counters.stats.responder.calls.short += 1;
        let Sender { peer, address: from } = sender;
        let Ok(key) = self.core.responder.calls.insert(Inbound::whole(peer, xid)) else {
            return self.refuse_place(qp);
        };
        self.core.watch.begin_at_once(key, self.core.now);
        let mut reader = Reader::new(message.get(plain::HEADER_LEN..).unwrap_or_default());
        // Nearly all callers of such calls are nobody in particular, and nearly all calls are answered at once.
        let Some(header) = CallHeader::parse_usual(&mut reader) else {
            return self.hand_over(key, sender, reader, Pulled::default());
        };
        self.core.stamp(key, Stage::Parse);
        let (id, pulled) = (CallId(key), Pulled::default());
        let call = Call { id, peer, from, header, arguments: reader, pulled };
        self.core.responder.serving = Some(peer);
        self.app.on_call(&mut Cx { core: &mut self.core }, call);
        self.core.responder.serving = None;
        if let Some((call, message)) = self.core.wishes.take_answered() {
            self.answer_message(call, message);
        }
        self.empty_outbox();
    }

    /// Sends a reply without chunks, with the header of a few words, if the fabric takes it at once. Returns false when nothing was
    /// done.
    #[inline]
    pub(super) fn answer_short(&mut self, key: Key, message: &mut Buf) -> bool {
        let core = &mut self.core;
        let Some(&Inbound { peer, xid, state: InboundState::AwaitAnswer, has_lists: false, .. }) =
            core.responder.calls.get(key)
        else {
            return false;
        };
        let Some(entry) = core.peers.get_mut(peer) else { return false };
        let Link::Fabric { qp, state: Some(connection) } = &mut entry.link else { return false };
        let adapts = connection.side() == Side::Server;
        let granted = connection.serves().map_or(0, |credits| credits.granted().0);
        // A grant that may change is looked at where all replies are sent.
        if adapts && entry.grant.is_used_up(granted) || !connection.plain().fits_reply(message.len()) {
            return false;
        }
        debug_assert_eq!(message.first_chunk(), Some(&xid.0.to_be_bytes()), "the reply's XID");
        let room = message.prepend(plain::HEADER_LEN).expect("a message begins behind its head room");
        let room = room.first_chunk_mut().expect("it has this length");
        // RFC 8167 §5.2 [8167-6], draft 002 §5.2 [bidir-6]
        if !(connection.emit_plain_reply(xid, room) && self.provider.send_inline(*qp, message, None)) {
            message.trim_front(plain::HEADER_LEN);
            return false;
        }
        if adapts {
            entry.grant.count_reply();
        }
        let reserved = |connection: &Connection| connection.serves().map(|credits| credits.reserved());
        let before = reserved(connection);
        connection.handle_replied();
        let is_settled = reserved(connection) == before;
        core.counters.stats.responder.replies.short += 1;
        core.responder.forget(key);
        core.watch.post(key, core.now);
        if !is_settled {
            core.settle_receives(peer);
        }
        true
    }
}
