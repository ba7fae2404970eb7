//! The option that asks a peer about its health (`docs/options/health.md`).

use crate::{
    app::{App, Cx, PeerId},
    option_fault::OptionFault,
    shard::Shard,
    state::Action,
};
use stag_protocol::rpcrdma::option::{Exchange, Message, health};
use stag_verbs::Provider;
use std::time::Duration;

/// The time that a peer may take to answer. After that its connection is closed.
pub const HEALTH_MAX: Duration = Duration::from_secs(10);

impl Cx<'_> {
    /// Asks a peer for the state of our calls: the number that it grants, and the number that it
    /// received and has not answered. [`App::on_health`] gets the answer once. Only with peers that
    /// speak version 2, one request at a time. The first request takes a credit; later ones work
    /// without a free credit (`docs/options/health.md`).
    pub fn ask_health(&mut self, peer: PeerId) {
        let request = Message::Health(Exchange::Request(health::Request));
        self.core.wishes.ask(Action::Ask(peer, request));
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Reports the health of a peer to the app, or why it is not known.
    pub(super) fn tell_health(&mut self, peer: PeerId, answer: Result<Message, OptionFault>) {
        let health = match answer {
            Ok(Message::Health(Exchange::Reply(health))) => Ok(health),
            Ok(_) => return,
            Err(fault) => Err(fault),
        };
        self.app.on_health(&mut Cx::new(&mut self.core, &mut self.provider), peer, health);
        self.empty_outbox();
    }
}
