//! Requests for contexts, and the end of contexts (RFC 2203 §5.2, §5.4).

use super::calls::Unserved;
use crate::{
    app::{Answer, App, CallId, Cx},
    gss::{ArrivedCall, InitDone, InitOutcome, InitRequest},
    shard::Shard,
    state::{Sender, inbound::InboundState},
};
use stag_gss::WINDOW;
use stag_pools::{Buf, table::Key};
use stag_protocol::{
    rpc::{
        Accepted, Auth, Outcome, ReplyHeader,
        gss::{GssData, InitArguments, InitResults, MajorStatus},
    },
    xdr::{Codec as _, Writer, padded},
};
use stag_verbs::Provider;

/// Octets of the reply to a request for a context, without its token: header, verifier, handle and
/// numbers.
const INIT_LEN: usize = 160;
/// Octets of the tokens that wait at a shard for a place at the acceptor.
const PUT_OFF_MAX: usize = 1 << 20;

impl<P: Provider, A: App> Shard<P, A> {
    /// Hands a request for a context to the acceptor. The reply follows when that has judged it.
    pub(super) fn begin_init(&mut self, key: Key, sender: Sender, arrived: &ArrivedCall<'_>) {
        self.core.watch.forget(key);
        let Ok(InitArguments { token }) = arrived.arguments.clone().whole() else {
            let reply = arrived.header.reply(Accepted::GarbageArgs);
            return self.answer_refusal(key, sender.peer, &reply);
        };
        let Some(gss) = &mut self.core.gss else { return };
        let request = InitRequest {
            token: token.to_vec(),
            from: sender.address,
            call: CallId(key),
            came_at: self.core.now.0,
            asked_at: std::time::Instant::now(),
            mailbox: std::sync::Arc::clone(&gss.mailbox),
        };
        self.core.inits += 1;
        if let Err(request) = gss.contexts.ask(request) {
            gss.contexts.note_crowded();
            self.put_off_init(request);
        }
    }

    /// Keeps a request until it has a place at the acceptor, or refuses it where too many are kept.
    /// One host has at most half of the places, and of the octets.
    #[cold]
    fn put_off_init(&mut self, request: InitRequest) {
        let Some(gss) = &mut self.core.gss else { return };
        let limit = gss.contexts.limits().waiting;
        let len = request.token.len();
        let of_host = gss.put_off.iter().filter(|it| it.from.is_of_host(&request.from));
        let (count, own) = of_host.fold((0, len), |(n, sum), it| (n + 1, sum + it.token.len()));
        let octets = gss.put_off_octets + len;
        let is_crowded = count >= limit.div_ceil(2) || own > PUT_OFF_MAX / 2;
        if gss.put_off.len() >= limit || octets > PUT_OFF_MAX || is_crowded {
            self.core.inits = self.core.inits.saturating_sub(1);
            return self.refuse_init(request.call.0);
        }
        gss.put_off_octets = octets;
        gss.put_off.push_back(request);
    }

    /// Refuses a request for a context, as there are too many.
    #[cold]
    fn refuse_init(&mut self, key: Key) {
        self.core.counters.stats.gss.refused += 1;
        let Some((peer, xid)) = self.core.responder.calls.get(key).map(|it| (it.peer, it.xid))
        else {
            return;
        };
        // RFC 2203 §5.2.3.2 [2203-12]: a request is refused by its results
        let results = InitResults::failed(MajorStatus::FAILURE, 0, &[]);
        match self.init_reply(xid, Auth::NONE, &results) {
            Some(message) => self.answer(CallId(key), Answer { message, item: None }),
            None => self.disconnect(peer),
        }
    }

    /// Hands requests for contexts to the acceptor that had no place for them before.
    fn retry_inits(&mut self) {
        let Some(gss) = &mut self.core.gss else { return };
        for _ in 0..gss.put_off.len() {
            let Some(request) = gss.put_off.pop_front() else { return };
            let len = request.token.len();
            // Otherwise its connection is gone.
            if self.core.responder.calls.get(request.call.0).is_some() {
                if let Err(request) = gss.contexts.ask(request) {
                    gss.put_off.push_back(request);
                    continue;
                }
            } else {
                self.core.inits = self.core.inits.saturating_sub(1);
            }
            gss.put_off_octets -= len;
        }
    }

    /// Answers requests for contexts that the acceptor has judged. Returns true if there were any.
    /// `is_due` means that waiting requests are retried even if there were none.
    pub(crate) fn answer_inits(&mut self, is_due: bool) -> bool {
        let Some(gss) = &self.core.gss else { return false };
        let done = gss.mailbox.take();
        let has_any = !done.is_empty();
        if has_any || is_due {
            self.retry_inits();
        }
        for InitDone { call, results } in done {
            let results = match results {
                InitOutcome::Crowded(request) => {
                    self.put_off_init(request);
                    continue;
                }
                InitOutcome::Granted(context, token) => Ok((context, token)),
                InitOutcome::Refused(refused) => Err(refused),
            };
            self.core.inits = self.core.inits.saturating_sub(1);
            let Some(entry) = self.core.responder.calls.get(call.0) else { continue };
            let (peer, xid) = (entry.peer, entry.xid);
            let message = match &results {
                Ok((context, token)) => {
                    self.core.counters.stats.gss.contexts += 1;
                    let mic = context.acceptor.sign_window(0);
                    let handle = &context.handle;
                    let results = InitResults {
                        handle,
                        major: MajorStatus::COMPLETE,
                        minor: 0,
                        window: WINDOW,
                        token,
                    };
                    self.init_reply(xid, Auth::gss(&mic), &results)
                }
                // RFC 2203 §5.2.3.2 [2203-12]: a request is refused by its results
                Err(refused) => {
                    self.core.counters.stats.gss.refused += 1;
                    let results = InitResults::failed(refused.major, refused.minor, &refused.token);
                    self.init_reply(xid, Auth::NONE, &results)
                }
            };
            match message {
                Some(message) => self.answer(call, Answer { message, item: None }),
                None => self.disconnect(peer),
            }
        }
        has_any
    }

    fn init_reply(
        &mut self,
        xid: stag_protocol::rpc::Xid,
        verifier: Auth<'_>,
        results: &InitResults<'_>,
    ) -> Option<Buf> {
        let len = INIT_LEN.checked_add(padded(results.token.len()))?;
        let mut message = Cx::new(&mut self.core, &mut self.provider).message(len)?;
        let mut writer = Writer::new(message.spare_mut());
        let outcome = Outcome::Accepted { verifier, status: Accepted::Success };
        ReplyHeader { xid, outcome }.emit(&mut writer).ok()?;
        results.emit(&mut writer).ok()?;
        let len = writer.len();
        message.extend(len);
        Some(message)
    }

    /// Ends a context at the wish of its client. It has neither arguments nor results under
    /// protection, whatever its service.
    pub(super) fn serve_destroy(
        &mut self,
        key: Key,
        arrived: &ArrivedCall<'_>,
        data: &GssData<'_>,
    ) -> Result<(), Unserved> {
        let protected = self.verify(arrived, data)?;
        let Some(peer) = self.core.responder.calls.get(key).map(|call| call.peer) else {
            return Ok(());
        };
        self.core.watch.forget(key);
        if let Some(gss) = &mut self.core.gss {
            gss.contexts.end(&protected.known.context);
            gss.keep(key, protected.without_body());
        }
        if let Some(call) = self.core.responder.calls.get_mut(key) {
            call.state = InboundState::AwaitProtected;
        }
        self.answer_refusal(key, peer, &arrived.header.reply(Accepted::Success));
        Ok(())
    }
}
