//! Both sides at once: serves echoes, and calls registered clients over their own connections (RFC
//! 8167).

use crate::{Caller, Echo, PROGRAM, REGISTER, VERSION, reply};
use stag_engine::{Answer, App, Call, ClientName, Cx, Health, OptionFault, Outcome, PeerId, Token};
use stag_protocol::rpc::{Accepted, NullHeader};
use std::collections::VecDeque;

/// An [`Echo`] and a [`Caller`]. It records registrations and trusts every client: one that takes
/// another's number gets its calls.
#[derive(Debug, Default)]
pub struct Twin {
    echo: Echo,
    caller: Caller,
    clients: Vec<(u32, PeerId)>,
    name: Option<u32>,
    health: VecDeque<Result<Health, OptionFault>>,
}

impl Twin {
    /// The token of the calls by which it registers.
    pub const REGISTRATION: Token = Token(u64::MAX);

    /// One that registers under `name` with each peer, over each of its connections.
    pub fn named(name: u32) -> Self {
        Self { name: Some(name), ..Self::default() }
    }

    /// Its calls.
    pub const fn caller(&mut self) -> &mut Caller {
        &mut self.caller
    }

    /// Peer to call for this number: the same one for as long as the shard knows the client, on any
    /// of its connections.
    pub fn client(&self, name: u32) -> Option<PeerId> {
        self.clients.iter().find(|(known, _)| *known == name).map(|(_, peer)| *peer)
    }

    /// The oldest health answer of a peer that was not taken.
    pub fn take_health(&mut self) -> Option<Result<Health, OptionFault>> {
        self.health.pop_front()
    }

    fn register(&mut self, cx: &mut Cx<'_>, call: &Call<'_>, name: u32) {
        let peer = cx.adopt(call.peer, ClientName(name.into()));
        // A peer has one number, and a peer that is gone has none: no client makes this list longer
        // than the shard's table of peers.
        self.clients
            .retain(|(known, of)| *known != name && *of != peer && cx.whereabouts(*of).is_some());
        self.clients.push((name, peer));
        self.caller.peers.retain(|known| *known != call.peer && *known != peer);
        self.caller.peers.push(peer);
        let message = reply(cx, call.header.reply(Accepted::Success), |_| Ok(()));
        let Some(message) = message else { return cx.disconnect(peer) };
        cx.answer(call.id, Answer { message, item: None });
        // After the answer, so that the client receives that first.
        cx.ready(peer);
    }
}

impl App for Twin {
    type Report = u64;

    /// Calls answered.
    fn report(&self) -> u64 {
        self.echo.report()
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        let mut arguments = call.arguments.clone();
        match (call.header.program, call.header.version, call.header.procedure, arguments.u32()) {
            (PROGRAM, VERSION, REGISTER, Ok(name)) => self.register(cx, &call, name),
            (PROGRAM, VERSION, REGISTER, Err(_)) => cx.refuse(&call, Accepted::GarbageArgs),
            _ => self.echo.on_call(cx, call),
        }
    }

    fn on_null(&mut self, call: NullHeader) -> bool {
        self.echo.on_null(call)
    }

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        self.caller.on_reply(cx, outcome);
    }

    fn on_health(&mut self, _cx: &mut Cx<'_>, _peer: PeerId, health: Result<Health, OptionFault>) {
        self.health.push_back(health);
    }

    fn on_peer_up(&mut self, cx: &mut Cx<'_>, peer: PeerId) {
        self.caller.on_peer_up(cx, peer);
        if let Some(name) = self.name
            && !Caller::register(cx, peer, Self::REGISTRATION, name)
        {
            cx.disconnect(peer);
        }
    }

    fn on_peer_down(&mut self, cx: &mut Cx<'_>, peer: PeerId, cause: stag_engine::Cause) {
        self.caller.on_peer_down(cx, peer, cause);
    }
}
