//! An app whose connections are logged, and that tells its stages where it may.

use stag_engine::{App, Call, Cause, Cx, Outcome, Over, PeerAddress, PeerId, stages::service};
use std::collections::HashMap;

/// A logged app.
#[derive(Debug)]
pub struct Logged<A> {
    app: A,
    /// Scheme of the app's fabric.
    scheme: &'static str,
    /// True if any peer that asks is told how long calls take.
    tells_stages: bool,
    peers: HashMap<PeerId, (&'static str, PeerAddress)>,
}

impl<A> Logged<A> {
    /// Logs the connections of `app`, which is served over the fabric `scheme`.
    pub fn new(app: A, scheme: &'static str, tells_stages: bool) -> Self {
        Self { app, scheme, tells_stages, peers: HashMap::new() }
    }
}

impl<A: App> App for Logged<A> {
    type Report = A::Report;

    fn report(&self) -> A::Report {
        self.app.report()
    }

    fn wants_idle_passes(&self) -> bool {
        self.app.wants_idle_passes()
    }

    fn sink(&mut self, len: usize) -> Option<stag_pools::Buf> {
        self.app.sink(len)
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        if !(self.tells_stages && service::answer(cx, &call)) {
            self.app.on_call(cx, call);
        }
    }

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        self.app.on_reply(cx, outcome);
    }

    fn on_peer_up(&mut self, cx: &mut Cx<'_>, peer: PeerId) {
        if let Some((address, over)) = cx.whereabouts(peer) {
            let over = if over == Over::Tcp { "tcp" } else { self.scheme };
            tracing::info!(target: "stag", peer = %address, over, "connected");
            self.peers.insert(peer, (over, address));
        }
        self.app.on_peer_up(cx, peer);
    }

    fn on_peer_down(&mut self, cx: &mut Cx<'_>, peer: PeerId, cause: Cause) {
        match self.peers.remove(&peer) {
            Some((over, address)) => {
                tracing::info!(target: "stag", peer = %address, over, %cause, "disconnected");
            }
            None => tracing::info!(target: "stag", %cause, "a connection was not established"),
        }
        self.app.on_peer_down(cx, peer, cause);
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        self.app.on_pass_end(cx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Idle(bool);

    impl App for Idle {
        type Report = ();

        fn report(&self) {}

        fn wants_idle_passes(&self) -> bool {
            self.0
        }

        fn on_call(&mut self, _: &mut Cx<'_>, _: Call<'_>) {}
    }

    #[test]
    fn idle_passes_are_made_for_the_app_that_is_logged_alone() {
        for wants in [false, true] {
            assert_eq!(Logged::new(Idle(wants), "sim", false).wants_idle_passes(), wants);
        }
    }
}
