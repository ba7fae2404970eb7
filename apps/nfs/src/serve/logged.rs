//! An app wrapper that logs connections, and reports stages where permitted.

use stag_engine::{
    App, Call, Cause, Cx, Drained, Outcome, Over, Parted, PeerAddress, PeerId, PeerSecurity,
    RefusedPeer, Time, stages::service, tls::Secured,
};
use stag_nfs_store::log_rate::EventRate;
use stag_protocol::rpc::NullHeader;
use std::collections::HashMap;
use tracing::level_filters::LevelFilter;

/// A logged app.
#[derive(Debug)]
pub struct Logged<A> {
    app: A,
    /// Scheme of the app's fabric.
    scheme: &'static str,
    /// True if any peer may query how long calls take.
    tells_stages: bool,
    peers: HashMap<PeerId, LoggedPeer>,
    /// Connections that begin and end.
    changes: EventRate,
    refusals: EventRate,
}

/// A peer whose connection was logged.
#[derive(Clone, Copy, Debug)]
struct LoggedPeer {
    over: &'static str,
    address: PeerAddress,
    since: Time,
}

impl<A> Logged<A> {
    /// Logs the connections of `app`, which is served over the fabric `scheme`.
    pub fn new(app: A, scheme: &'static str, tells_stages: bool) -> Self {
        let (changes, refusals) = (EventRate::new("connections"), EventRate::new("refusals"));
        Self { app, scheme, tells_stages, peers: HashMap::new(), changes, refusals }
    }

    /// True while suppressed log events await a report in a later pass.
    const fn has_left_out(&self) -> bool {
        self.changes.has_left_out() || self.refusals.has_left_out()
    }
}

#[cold]
fn log_call(call: &Call<'_>) {
    let header = &call.header;
    let procedure = super::procedure_name(header.program, header.version, header.procedure);
    tracing::trace!(
        target: "stag",
        peer = %call.from,
        xid = header.xid.0,
        program = header.program,
        version = header.version,
        %procedure,
        "call"
    );
}

fn log_end(known: Option<LoggedPeer>, now: Time, parted: Parted, cause: Cause) {
    let Parted { from, calls, octets } = parted;
    let Some(LoggedPeer { over, address, since }) = known else {
        let peer = from.map_or_else(|| "somebody".to_owned(), |from| from.to_string());
        return tracing::info!(target: "stag", peer, %cause, "a connection was not established");
    };
    let seconds = now.since(since).as_secs();
    tracing::info!(
        target: "stag",
        peer = %address,
        over,
        %cause,
        seconds,
        octets,
        unanswered = calls,
        "disconnected"
    );
}

// RFC 9289 §6.1 [9289-34]: the log says with which security a connection goes on
fn log_security(known: Option<&LoggedPeer>, security: &PeerSecurity) {
    let peer = known.map_or_else(|| "somebody".to_owned(), |known| known.address.to_string());
    match security {
        PeerSecurity::Clear => {
            tracing::info!(target: "stag", peer, "calls without TLS");
        }
        PeerSecurity::Secured(Secured {
            suite, certificate, names_protocol, in_kernel, ..
        }) => {
            let certificate = certificate.as_deref().unwrap_or("none");
            tracing::info!(
                target: "stag",
                peer,
                %suite,
                certificate,
                alpn = names_protocol,
                in_kernel,
                "calls inside TLS"
            );
        }
        PeerSecurity::Failed(why) => tracing::warn!(target: "stag", peer, %why, "no TLS session"),
    }
}

impl<A: App> App for Logged<A> {
    type Report = A::Report;

    fn report(&self) -> A::Report {
        self.app.report()
    }

    fn detailed_report(&self) -> A::Report {
        self.app.detailed_report()
    }

    fn wants_idle_passes(&self) -> bool {
        self.app.wants_idle_passes() || self.has_left_out()
    }

    fn idle_pass_at(&self) -> Option<Time> {
        self.app.idle_pass_at()
    }

    fn sink(&mut self, len: usize) -> Option<stag_pools::Buf> {
        self.app.sink(len)
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        // Without tracing this is one comparison.
        if LevelFilter::current() == LevelFilter::TRACE {
            log_call(&call);
        }
        if !(self.tells_stages && service::answer(cx, &call)) {
            self.app.on_call(cx, call);
        }
    }

    #[inline(always)]
    fn on_null(&mut self, call: NullHeader) -> bool {
        // If calls are logged one by one, `on_call` logs this one, too.
        LevelFilter::current() != LevelFilter::TRACE && self.app.on_null(call)
    }

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        self.app.on_reply(cx, outcome);
    }

    fn on_refused(&mut self, cx: &mut Cx<'_>, refused: RefusedPeer) {
        if self.refusals.allows(cx.now()) {
            let RefusedPeer { from, over, limit } = refused;
            let peer = from.map_or_else(|| "somebody".to_owned(), |from| from.to_string());
            let over = if over == Over::Tcp { "tcp" } else { self.scheme };
            tracing::warn!(target: "stag", peer, over, "refused: {}", limit.sentence());
        }
        self.app.on_refused(cx, refused);
    }

    fn on_peer_up(&mut self, cx: &mut Cx<'_>, peer: PeerId) {
        if let Some((address, over)) = cx.whereabouts(peer) {
            let over = if over == Over::Tcp { "tcp" } else { self.scheme };
            if self.changes.allows(cx.now()) {
                tracing::info!(target: "stag", peer = %address, over, "connected");
            }
            self.peers.insert(peer, LoggedPeer { over, address, since: cx.now() });
        }
        self.app.on_peer_up(cx, peer);
    }

    fn on_peer_down(&mut self, cx: &mut Cx<'_>, peer: PeerId, cause: Cause) {
        let known = self.peers.remove(&peer);
        if self.changes.allows(cx.now()) {
            log_end(known, cx.now(), cx.parted(), cause);
        }
        self.app.on_peer_down(cx, peer, cause);
    }

    fn on_security(&mut self, cx: &mut Cx<'_>, peer: PeerId, security: &PeerSecurity) {
        if self.changes.allows(cx.now()) {
            log_security(self.peers.get(&peer), security);
        }
        self.app.on_security(cx, peer, security);
    }

    fn on_drained(&mut self, drained: Drained) {
        let Drained { took, unanswered, is_cut } = drained;
        let seconds = took.as_secs_f64();
        tracing::info!(target: "stag", seconds, unanswered, cut = is_cut, "drained");
        self.app.on_drained(drained);
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        if self.has_left_out() {
            self.changes.settle(cx.now());
            self.refusals.settle(cx.now());
        }
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
            let mut logged = Logged::new(Idle(wants), "sim", false);
            assert_eq!(logged.wants_idle_passes(), wants);
            // A later pass reports the suppressed events.
            while logged.changes.allows(Time(0)) {}
            assert!(logged.wants_idle_passes());
        }
    }
}
