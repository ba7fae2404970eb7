//! Verifiers and protection of replies (RFC 2203 §5.3.3.2).

use super::widened::{NoRoomYet, Widened};
use crate::{
    app::{Answer, AnswerItem, App, CallId},
    core::Core,
    gss::{AT_ONCE, ProtectedCall, ProtectedReply, ReplyStep, StepWork, Unprotectable},
    memory::Lane,
    shard::Shard,
    state::inbound::InboundState,
};
use stag_gss::MicToken;
use stag_pools::{Buf, table::Key};
use stag_protocol::{
    rpc::{Auth, ReplyHeader, gss::GssService},
    xdr::{Codec as _, Writer, padded},
};
use stag_verbs::Provider;

/// Octets of an accepted reply in front of its verifier.
const VERIFIER_AT: usize = 12;
/// Octets of it in front of its status, if the verifier is AUTH_NONE, as apps write it.
pub(super) const STATUS_AT: usize = ReplyHeader::LEN - 4;

/// The kind of a reply that an app made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyKind {
    Denied,
    /// It has no results under protection.
    Refused,
    Success,
}

impl ReplyKind {
    fn of(message: &[u8]) -> Self {
        let word = |at: usize| message.get(at..).and_then(<[u8]>::first_chunk::<4>);
        match (word(8), word(STATUS_AT)) {
            (Some([0, 0, 0, 0]), Some([0, 0, 0, 0])) => Self::Success,
            (Some([0, 0, 0, 0]), _) => Self::Refused,
            _ => Self::Denied,
        }
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Protects the reply to a protected call, as its call was, and lets it go on. None: it goes on
    /// in a later pass, or its connection ends.
    #[inline(never)]
    pub(crate) fn protect(&mut self, id: CallId, answer: Answer) -> Option<Answer> {
        let call = self.core.responder.calls.get_mut(id.0)?;
        call.state = InboundState::AwaitAnswer;
        let gss = self.core.gss.as_mut()?;
        let protected = gss.take(id.0);
        debug_assert!(protected.is_some(), "a protected call is kept until its reply");
        // Replies that wait have their turn first.
        let may_take = gss.waiting.is_empty();
        let reply = ProtectedReply { protected: protected?, answer };
        match self.begin_reply(id.0, reply, may_take) {
            Ok(answer) => answer,
            Err(reply) => {
                self.begin_waiting(id.0, reply);
                None
            }
        }
    }

    /// Begins to protect a reply; returns it if it is whole. A long one goes on in later passes.
    /// Fails with the reply if there is no memory for it.
    pub(super) fn begin_reply(
        &mut self,
        key: Key,
        reply: ProtectedReply,
        may_take: bool,
    ) -> Result<Option<Answer>, ProtectedReply> {
        let ProtectedReply { protected, answer } = reply;
        let peer = self.core.responder.calls.get(key).map(|call| call.peer);
        let lane = peer.filter(|_| may_take).map(|peer| self.core.lane(peer));
        let begun = self.core.widen_reply(&protected, answer, lane);
        let begun = match begun {
            Ok(widened) => self.core.begin_protection(&protected, widened),
            Err(NoRoomYet::Waits(answer)) => return Err(ProtectedReply { protected, answer }),
            Err(NoRoomYet::Never) => Err(Unprotectable),
        };
        match begun {
            Ok((answer, None)) => return Ok(Some(answer)),
            Ok((answer, Some(step))) => {
                let reply = ProtectedReply { protected, answer };
                self.begin_steps(key, StepWork::Protect(reply, step));
            }
            Err(Unprotectable) => self.drop_unprotectable(key),
        }
        Ok(None)
    }

    /// Ends the connection of a call whose reply cannot be protected.
    pub(super) fn drop_unprotectable(&mut self, key: Key) {
        self.core.counters.stats.gss.unprotectable += 1;
        if let Some(peer) = self.core.responder.calls.get(key).map(|call| call.peer) {
            // RFC 2203 §5.3.3.4.4 [2203-30]: results that cannot be protected are not sent
            self.disconnect(peer);
        }
    }
}

/// A reply with room for its protection.
struct WidenedReply {
    answer: Answer,
    kind: ReplyKind,
    service: GssService,
}

impl Core {
    fn widen_reply(
        &self,
        protected: &ProtectedCall,
        answer: Answer,
        lane: Option<Lane>,
    ) -> Result<WidenedReply, NoRoomYet> {
        let kind = ReplyKind::of(&answer.message);
        let service = match kind {
            ReplyKind::Success if protected.has_body => protected.call.service(),
            _ => GssService::None,
        };
        if kind == ReplyKind::Denied {
            return Ok(WidenedReply { answer, kind, service });
        }
        let keys = protected.known.context.acceptor.keys();
        let widened = Widened {
            verifier: padded(keys.mic_len()),
            room: keys.room(service),
            // RFC 8166 §8.2.2.2 [8166-78], §8.2.2.3 [8166-79]: a sealed reply travels whole, and
            // authentication leaves items where they are
            takes_items: service == GssService::Privacy,
        };
        let mut answer = widened.apply(&self.memory, lane, answer)?;
        shift_items(&mut answer, widened.shift());
        Ok(WidenedReply { answer, kind, service })
    }

    /// Makes the verifier, and begins to protect the results. A reply that is not long is whole
    /// then.
    fn begin_protection(
        &mut self,
        protected: &ProtectedCall,
        widened: WidenedReply,
    ) -> Result<(Answer, Option<ReplyStep>), Unprotectable> {
        let WidenedReply { mut answer, kind, service } = widened;
        if kind == ReplyKind::Denied {
            return Ok((answer, None));
        }
        let acceptor = &protected.known.context.acceptor;
        let token = u64::from(protected.call.sequence());
        put_verifier(&mut answer.message, &acceptor.sign_reply(&protected.call, token));
        let mut step = match service {
            GssService::None => return Ok((answer, None)),
            GssService::Integrity => ReplyStep::begin_sign(protected, &mut answer)?,
            GssService::Privacy => {
                let confounder = self.gss.as_mut().map(|gss| gss.confounder());
                let confounder = confounder.ok_or(Unprotectable)?;
                ReplyStep::begin_seal(protected, &mut answer.message, &confounder)?
            }
        };
        let items: usize =
            answer.item.iter().flat_map(AnswerItem::iter).map(|(_, octets)| octets.len()).sum();
        if answer.message.len() + items > AT_ONCE {
            return Ok((answer, Some(step)));
        }
        step.advance(protected, &mut answer, usize::MAX)?;
        Ok((answer, None))
    }
}

/// Writes the verifier in front of the status, where room was made.
fn put_verifier(message: &mut Buf, mic: &MicToken) {
    let room = message.get_mut(VERIFIER_AT..).unwrap_or_default();
    let written = Auth::gss(mic).emit(&mut Writer::new(room));
    debug_assert!(written.is_ok(), "widened replies have room for it");
}

/// Moves the positions of items that stay outside the message.
fn shift_items(answer: &mut Answer, by: usize) {
    if let Some(item) = &mut answer.item {
        item.position += by;
        item.more.iter_mut().for_each(|item| item.position += by);
    }
}
