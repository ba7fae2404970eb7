//! The app in the shard: it keeps how calls ended until somebody takes the outcomes.

use stag_engine::{App, CallFault, Cause, Cx, Health, HealthFault, Outcome, PeerId, Time, Token};
use stag_pools::Buf;
use std::collections::VecDeque;

/// How a call ended.
#[derive(Debug)]
pub struct Done {
    /// As the call was made with.
    pub token: Token,
    /// The RPC reply message without what came in a Write chunk, or why there is none.
    pub reply: Result<Vec<u8>, CallFault>,
    /// What came in the Write chunk; empty when the result came inline, none when none was offered.
    pub result: Option<Buf>,
}

/// How a connection that is kept was lost and made again, in the shard's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Times that it was lost.
    pub losses: u64,
    /// When it was noticed to be lost last.
    pub lost_at: Option<Time>,
    /// When it was there again after that.
    pub up_at: Option<Time>,
    /// When the first reply came after that.
    pub answered_at: Option<Time>,
}

/// Keeps outcomes in order of arrival. Serves nothing.
#[derive(Debug, Default)]
pub struct Caller {
    done: VecDeque<Done>,
    up: Option<PeerId>,
    down: Option<(PeerId, Cause)>,
    replies: u64,
    recovery: Recovery,
    health: Option<Result<Health, HealthFault>>,
    /// Memory of replies that were looked at, for the next ones.
    spare: Vec<Vec<u8>>,
}

impl Caller {
    /// The oldest outcome that nobody took.
    pub fn take(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    /// How the peer is that was asked, or why nobody knows.
    pub const fn take_health(&mut self) -> Option<Result<Health, HealthFault>> {
        self.health.take()
    }

    /// Takes back the memory of a reply.
    pub fn give(&mut self, mut reply: Vec<u8>) {
        reply.clear();
        self.spare.push(reply);
    }

    /// The peer, while it can be called.
    pub const fn peer(&self) -> Option<PeerId> {
        self.up
    }

    /// How often a connection was lost, and how the last loss was overcome.
    pub const fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// The last connection that ended, or could not be made, and why.
    pub const fn ended(&self) -> Option<(PeerId, Cause)> {
        self.down
    }
}

impl App for Caller {
    type Report = u64;

    /// Replies that came.
    fn report(&self) -> u64 {
        self.replies
    }

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        if self.recovery.up_at.is_some() && outcome.reply.is_ok() {
            self.recovery.answered_at.get_or_insert(cx.now());
        }
        let reply = outcome.reply.map(|octets| {
            self.replies += 1;
            let mut reply = self.spare.pop().unwrap_or_default();
            reply.extend_from_slice(octets);
            reply
        });
        self.done.push_back(Done { token: outcome.token, reply, result: outcome.result });
    }

    fn on_health(&mut self, _cx: &mut Cx<'_>, _peer: PeerId, health: Result<Health, HealthFault>) {
        self.health = Some(health);
    }

    fn on_peer_up(&mut self, cx: &mut Cx<'_>, peer: PeerId) {
        if self.recovery.lost_at.is_some() {
            self.recovery.up_at.get_or_insert(cx.now());
        }
        self.up = Some(peer);
    }

    fn on_peer_down(&mut self, cx: &mut Cx<'_>, peer: PeerId, cause: Cause) {
        self.down = Some((peer, cause));
        if self.up == Some(peer) {
            let losses = self.recovery.losses + 1;
            self.recovery = Recovery { losses, lost_at: Some(cx.now()), ..Recovery::default() };
            self.up = None;
        }
    }
}
