//! A call with RPCSEC_GSS, until the app has it.

use super::arguments::{Opened, open_integrity};
use crate::{
    app::{App, Call, CallId, Cx, PeerId},
    gss::{ArrivedCall, OpeningFault, ProtectedCall, reduces},
    shard::Shard,
    state::{Link, Sender, inbound::InboundState},
};
use stag_pools::table::Key;
use stag_protocol::{
    rpc::{
        Accepted, AuthStatus, CallHeader, Credential, ProvenUser,
        gss::{GssCredential, GssData, GssService, signed_header},
    },
    rpcrdma::PeerFault,
};
use stag_verbs::Provider;

/// Reason for which a call does not reach the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unserved {
    /// It is denied.
    Denied(AuthStatus),
    /// It gets no answer.
    Silent,
    /// Its arguments, or results, would travel in chunks of their own.
    Reduced,
}

impl From<AuthStatus> for Unserved {
    fn from(status: AuthStatus) -> Self {
        Self::Denied(status)
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Handles a call with RPCSEC_GSS whose message others may read, or that is not kept, over RDMA
    /// and over TCP ([exp-46]).
    #[inline(never)]
    pub(crate) fn hand_over_protected(
        &mut self,
        key: Key,
        sender: Sender,
        arrived: &ArrivedCall<'_>,
    ) {
        if let Some(protected) = self.judge_protected(key, sender, arrived) {
            // RFC 8881 §2.2.1.1 [8881-363]: each service of RPCSEC_GSS is there
            match protected.call.service() {
                GssService::None => {
                    let opened =
                        Opened { arguments: arrived.arguments.clone(), pulled: arrived.pulled };
                    self.serve_opened(key, sender, &arrived.header, protected, Ok(opened));
                }
                GssService::Integrity => {
                    let opened = open_integrity(&protected, arrived);
                    self.serve_opened(key, sender, &arrived.header, protected, opened);
                }
                GssService::Privacy => self.serve_private(key, sender, arrived, protected),
            }
        }
        self.empty_outbox();
    }

    /// Verifies the header of a call with RPCSEC_GSS. Returns the call if it goes to the app; any
    /// other has been answered, or is dropped.
    pub(super) fn judge_protected(
        &mut self,
        key: Key,
        sender: Sender,
        arrived: &ArrivedCall<'_>,
    ) -> Option<ProtectedCall> {
        let judged = match arrived.header.credential.gss() {
            Some(Ok(GssCredential::Data(data))) => self.verify_data(key, arrived, &data),
            // RFC 2203 §5.4 [2203-31]: a context is destroyed by a call of procedure 0
            Some(Ok(GssCredential::Destroy(data))) if arrived.header.procedure == 0 => {
                self.serve_destroy(key, arrived, &data).map(|()| None)
            }
            // RFC 2203 §5.2.3.1 [2203-11]: a call of procedure 0 creates a context
            Some(Ok(GssCredential::Init)) if arrived.header.procedure == 0 => {
                self.begin_init(key, sender, arrived);
                Ok(None)
            }
            Some(Err(fault)) => Err(fault.status().into()),
            // Kerberos needs one round, so that no client has a reason to continue.
            Some(Ok(_)) | None => Err(AuthStatus::BAD_CREDENTIAL.into()),
        };
        match judged {
            Ok(protected) => return protected,
            Err(Unserved::Denied(status)) => {
                self.core.watch.forget(key);
                self.core.counters.stats.gss.denied += 1;
                self.deny(key, sender.peer, arrived.header.xid, status);
            }
            Err(Unserved::Silent) => self.drop_in_silence(key, sender.peer),
            Err(Unserved::Reduced) => self.refuse_reduced(key, sender.peer),
        }
        None
    }

    /// Verifies the header of a call inside a context, and takes its number.
    pub(super) fn verify(
        &mut self,
        arrived: &ArrivedCall<'_>,
        data: &GssData<'_>,
    ) -> Result<ProtectedCall, Unserved> {
        let now = self.core.now;
        let gss = self.core.gss.as_mut().ok_or(AuthStatus::TOO_WEAK)?;
        // RFC 2203 §5.3.3.3 [2203-27]: an unknown context gets CREDPROBLEM
        let known = gss.find(data.handle, now).ok_or(AuthStatus::GSS_CREDENTIAL_PROBLEM)?;
        // RFC 2203 §5.3.3.3 [2203-33]: the context of a ticket that has ended gets CTXPROBLEM
        if known.is_expired(now) {
            gss.contexts.end(&known.context);
            return Err(AuthStatus::GSS_CONTEXT_PROBLEM.into());
        }
        let signed = signed_header(&arrived.message).ok_or(AuthStatus::GSS_CREDENTIAL_PROBLEM)?;
        let call = known.context.acceptor.verify_call(signed, &arrived.header.verifier);
        let call = call.map_err(|fault| fault.status().map_or(Unserved::Silent, Into::into))?;
        known.context.note_use(now.0, data.service);
        Ok(ProtectedCall { known, call, has_body: true })
    }

    fn verify_data(
        &mut self,
        key: Key,
        arrived: &ArrivedCall<'_>,
        data: &GssData<'_>,
    ) -> Result<Option<ProtectedCall>, Unserved> {
        if data.service > GssService::None && self.is_reduced_call(key) {
            return Err(Unserved::Reduced);
        }
        let protected = self.verify(arrived, data)?;
        self.core.counters.stats.gss.calls += 1;
        Ok(Some(protected))
    }

    /// Passes a call with opened arguments to the app, or refuses it.
    pub(super) fn serve_opened(
        &mut self,
        key: Key,
        sender: Sender,
        header: &CallHeader<'_>,
        protected: ProtectedCall,
        opened: Result<Opened<'_>, OpeningFault>,
    ) {
        let Some(gss) = &mut self.core.gss else { return };
        let (context, service) = (std::rc::Rc::clone(&protected.known), protected.call.service());
        gss.keep(key, protected);
        if let Some(call) = self.core.responder.calls.get_mut(key) {
            call.state = InboundState::AwaitProtected;
        }
        let Opened { arguments, pulled } = match opened {
            Ok(opened) => opened,
            // RFC 2203 §5.3.3.4.2 [2203-34]: a wrong body gets GARBAGE_ARGS
            Err(OpeningFault) => {
                self.core.counters.stats.gss.garbage += 1;
                self.core.watch.forget(key);
                let reply = header.reply(Accepted::GarbageArgs);
                return self.answer_refusal(key, sender.peer, &reply);
            }
        };
        let context = &context.context;
        let user = ProvenUser {
            identity: context.identity,
            principal: &context.principal,
            service,
            unix: context.unix,
        };
        let credential = Credential::Proven(&user);
        let Sender { peer, address: from } = sender;
        let header = CallHeader { credential, ..*header };
        self.core.stamp_parsed(key, &header, from);
        let call = Call { id: CallId(key), peer, from, header, arguments, pulled };
        debug_assert!(self.core.responder.serving.is_none(), "an app serves one call");
        self.core.responder.serving = Some(peer);
        self.app.on_call(&mut Cx::new(&mut self.core, &mut self.provider), call);
        self.core.responder.serving = None;
    }

    /// Returns true if a call came with chunks that reduce it or its results.
    fn is_reduced_call(&self, key: Key) -> bool {
        let responder = &self.core.responder;
        let has_lists = responder.calls.get(key).is_some_and(|call| call.has_lists);
        has_lists && responder.lists.get(key.index()).is_some_and(reduces)
    }

    /// Refuses a call whose arguments or results would be reduced although they are protected.
    fn refuse_reduced(&mut self, key: Key, peer: PeerId) {
        let Some(call) = self.core.responder.calls.get(key) else { return };
        let xid = call.xid;
        self.core.watch.forget(key);
        self.core.responder.forget(key);
        if let Some((qp, _)) = self.core.peers.connection(peer) {
            // RFC 8166 §8.2.2.3 [8166-70]: nothing of a protected call is reduced
            self.refuse_call(peer, qp, xid, PeerFault::ReducedProtected);
        }
    }

    /// Ends a call that gets no answer. Its connection stays.
    fn drop_in_silence(&mut self, key: Key, peer: PeerId) {
        self.core.counters.stats.gss.replayed += 1;
        self.core.watch.forget(key);
        self.core.responder.forget(key);
        match self.core.peers.get_mut(peer).map(|entry| &mut entry.link) {
            Some(Link::Stream(stream)) => {
                let stream = *stream;
                if let Some(stream) = self.streams.connections.get_mut(stream) {
                    stream.calls = stream.calls.saturating_sub(1);
                }
                self.streams.queue(stream);
            }
            Some(Link::Fabric(_)) => {
                // Its credit is free, as if it had been answered.
                if let Some((_, connection)) = self.core.peers.connection(peer)
                    && connection.handle_replied()
                {
                    self.core.settle_receives(peer);
                }
            }
            Some(Link::Lost { .. } | Link::Absent { .. }) | None => {}
        }
    }
}
