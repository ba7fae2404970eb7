//! Outcomes of calls that wait to be taken, and the state of the connection.

use super::protected::{SentCall, UnsentCall};
use crate::{
    app::CallEnds,
    call::{CallError, accepted},
    gss::ReplyVerdict,
};
use stag_engine::{CallFault, Cause, Health, OptionFault, Outcome, PeerId, Room, Time, Token};
use stag_pools::Buf;
use stag_protocol::xdr::{Piece, Reader};
use std::collections::VecDeque;

/// Outcome of a call of a [`RawClient`](super::RawClient).
#[derive(Debug)]
pub struct FinishedCall {
    /// The token that the call was made with.
    pub token: Token,
    /// The RPC reply message without the item that came in a Write chunk, or the reason why there
    /// is none.
    pub reply: Result<Vec<u8>, CallFault>,
    /// Content of the Write chunk; empty if the result came inline, none if no chunk was offered.
    pub result: Option<Room>,
    /// The reason why a call in a context has no results, although it may have a reply.
    pub(super) fault: Option<CallError>,
}

impl FinishedCall {
    /// The reason why a call in a context has no results, although it may have a reply.
    pub(crate) const fn fault(&self) -> Option<CallError> {
        self.fault
    }

    /// Content of the Write chunk, if the reply used one.
    pub(crate) fn chunk(&self) -> &[u8] {
        self.result.as_deref().unwrap_or_default()
    }

    /// Passes the results to `read`, whether they came inline or in a chunk (RFC 5531 §9).
    ///
    /// # Errors
    /// If there are none, or if `read` fails.
    pub fn read_results<T, E: From<CallError>>(
        &self,
        read: impl FnOnce(Reader<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        if let Some(fault) = self.fault {
            return Err(fault.into());
        }
        let reply = self.reply.as_ref().map_err(|fault| CallError::Failed(*fault))?;
        let pieces = [Piece::Inline(reply), Piece::Chunk(self.chunk())];
        let mut results = Reader::over(&pieces);
        accepted(&mut results)?;
        read(results)
    }
}

/// Losses and recoveries of a kept connection, in the shard's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Number of losses.
    pub losses: u64,
    /// Time at which the last loss was noticed.
    pub lost_at: Option<Time>,
    /// Time at which the connection was up again after the last loss.
    pub up_at: Option<Time>,
    /// Time of the first reply after the connection was up again.
    pub answered_at: Option<Time>,
}

/// Keeps outcomes in order of arrival until they are taken.
#[derive(Debug, Default)]
pub(crate) struct CallKeeper {
    pub(super) done: VecDeque<FinishedCall>,
    pub(super) up: Option<PeerId>,
    pub(super) down: Option<(PeerId, Cause)>,
    pub(super) recovery: Recovery,
    pub(super) health: Option<(PeerId, Result<Health, OptionFault>)>,
    /// Buffers of replies that were taken, for reuse.
    pub(super) spare: Vec<Vec<u8>>,
    /// Outstanding calls in contexts of RPCSEC_GSS.
    pub(super) protected: Vec<SentCall>,
    /// Calls that have to be made again, in another context.
    pub(super) again: Vec<UnsentCall>,
}

impl CallKeeper {
    /// Takes the outcome of this call.
    pub(super) fn take(&mut self, token: Token) -> Option<FinishedCall> {
        let at = self.done.iter().position(|done| done.token == token)?;
        self.done.remove(at)
    }

    /// Judges the reply to a call in a context. None: the call has to be made again, or its outcome
    /// matters to no one.
    fn finish_protected(
        &mut self,
        call: SentCall,
        mut finished: FinishedCall,
        item: Option<Buf>,
    ) -> Option<FinishedCall> {
        if call.is_destroy {
            return None;
        }
        let Ok(reply) = &mut finished.reply else { return Some(finished) };
        match call.message.open(reply) {
            ReplyVerdict::Taken => {}
            ReplyVerdict::NoContext if !call.is_repeated => {
                reply.clear();
                self.spare.push(std::mem::take(reply));
                self.again.push(UnsentCall { call, item });
                return None;
            }
            // The denial is the outcome.
            ReplyVerdict::NoContext => {}
            ReplyVerdict::Unproven(fault) => {
                reply.clear();
                finished.result = None;
                finished.fault = Some(CallError::Unproven(fault));
            }
        }
        Some(finished)
    }
}

impl CallEnds for CallKeeper {
    fn on_reply(&mut self, now: Time, outcome: Outcome<'_>) {
        if self.recovery.up_at.is_some() && outcome.reply.is_ok() {
            self.recovery.answered_at.get_or_insert(now);
        }
        let reply = outcome.reply.map(|octets| {
            let mut reply = self.spare.pop().unwrap_or_default();
            reply.extend_from_slice(octets);
            reply
        });
        let Outcome { token, result, item, .. } = outcome;
        let finished = FinishedCall { token, reply, result, fault: None };
        let protected = self.protected.iter().position(|call| call.token == token);
        let finished = match protected.map(|at| self.protected.swap_remove(at)) {
            Some(call) => self.finish_protected(call, finished, item),
            None => Some(finished),
        };
        self.done.extend(finished);
    }

    fn on_health(&mut self, peer: PeerId, health: Result<Health, OptionFault>) {
        self.health = Some((peer, health));
    }

    fn on_peer_up(&mut self, now: Time, peer: PeerId) {
        if self.recovery.lost_at.is_some() {
            self.recovery.up_at.get_or_insert(now);
        }
        self.up = Some(peer);
    }

    fn on_peer_down(&mut self, now: Time, peer: PeerId, cause: Cause) {
        self.down = Some((peer, cause));
        if self.up == Some(peer) {
            let losses = self.recovery.losses + 1;
            self.recovery = Recovery { losses, lost_at: Some(now), ..Recovery::default() };
            self.up = None;
        }
    }
}
