//! The connections of peers: accept, establish, lose, reconnect.

use crate::{
    app::{App, ConnectLimit, Cx, Over, Parted, PeerId, RefusedPeer},
    shard::Shard,
    state::{FabricLink, Link, Peer},
};
use stag_pools::table::Walk;
use stag_protocol::rpcrdma::{Dialects, PrivateData, Setup, Side};
use stag_verbs::{Cause, FabricFault, PeerAddress, Provider, Qp, Time};
use std::time::Duration;

/// Maximum of octets of private data that we send while connecting.
const SAID_LEN: usize = PrivateData::LEN + Dialects::LEN;

impl<P: Provider, A: App> Shard<P, A> {
    /// Connects to a server, once. [`App::on_peer_up`] or [`App::on_peer_down`] follows; calls may
    /// be made before that.
    pub fn connect(&mut self, to: &P::Address) -> Result<PeerId, FabricFault> {
        self.core.is_quiet = false;
        let wanted = self.core.config.client_receives();
        self.has_room(wanted)?;
        let qp = self.start_connecting(to)?;
        let address = self.provider.peer_address(qp).unwrap_or(PeerAddress::Simulated);
        Ok(self
            .add_peer(Side::Client, Link::Fabric(FabricLink { qp, state: None }), address, wanted)
            .expect("there was room for a peer"))
    }

    /// Connects to a server, and reconnects whenever the connection is lost: at once, then after 50
    /// ms doubling to 5 s. Calls without a reply are sent again with the same XID and fresh keys.
    /// [`Cx::disconnect`] ends it.
    pub fn keep_connected(&mut self, to: &P::Address) -> Result<PeerId, FabricFault> {
        self.core.is_quiet = false;
        let wanted = self.core.config.client_receives();
        self.has_room(wanted)?;
        let link = Link::Lost { retry_at: self.core.now };
        let peer = self.add_peer(Side::Client, link, PeerAddress::Simulated, wanted);
        let peer = peer.expect("there was room for a peer");
        if let Some(entry) = self.core.peers.get_mut(peer) {
            entry.life.kept = true;
        }
        if let Some(target) = self.targets.get_mut(peer.0.index()) {
            *target = Some(to.clone());
        }
        self.core.peers.lost += 1;
        self.retry_connection(peer);
        Ok(peer)
    }

    fn has_room(&self, receives: usize) -> Result<(), FabricFault> {
        let full = self.core.peers.len() == self.core.peers.capacity();
        // RFC 8166 §3.3.1 [8166-5]: receives for replies are reserved
        if full || !self.core.receives.fits(receives) {
            Err(FabricFault::Exhausted)
        } else {
            Ok(())
        }
    }

    fn start_connecting(&mut self, to: &P::Address) -> Result<Qp, FabricFault> {
        let mut private_data = [0; SAID_LEN];
        let announced = self.core.config.call_versions.dialects();
        let said = self.say(Side::Client, announced, &mut private_data);
        self.provider.connect(to, said)
    }

    /// Writes our private data to `octets`: the data of RFC 8797, and the further features that we
    /// announce.
    fn say<'a>(&self, side: Side, dialects: Dialects, octets: &'a mut [u8; SAID_LEN]) -> &'a [u8] {
        if !self.core.config.private_data {
            return &[];
        }
        self.private_data.of(side).emit(octets.first_chunk_mut().expect("it goes first"));
        dialects.emit(octets.last_chunk_mut().expect("it goes last"));
        // RFC 8797 §4: version 1 of the format is exactly eight octets.
        octets
            .get(..if dialects.directed { SAID_LEN } else { PrivateData::LEN })
            .unwrap_or_default()
    }

    /// Retries lost connections that are due.
    pub(crate) fn retry_connections(&mut self) {
        let mut walk = Walk::default();
        while self.core.peers.has_lost()
            && let Some((peer, entry)) = self.core.peers.next(&mut walk)
        {
            // RFC 8167 §5.4 [8167-9]: a client reconnects so that its server can call
            // draft 002 §5.4 [bidir-17]: a client reconnects so that its server can call
            if matches!(entry.link, Link::Lost { .. }) {
                self.retry_connection(peer);
            }
        }
        if let Some(retry_at) = self.core.peers.retry_at() {
            self.core.deadlines.no_later(retry_at);
        }
    }

    /// Retries a lost connection if it is due.
    pub(crate) fn retry_connection(&mut self, peer: PeerId) {
        let now = self.core.now;
        let due = |entry: &Peer| matches!(entry.link, Link::Lost { retry_at } if retry_at <= now);
        if !self.core.peers.get(peer).is_some_and(due) {
            return;
        }
        let target = self.targets.get(peer.0.index()).cloned().flatten();
        let Some(target) = target else { return };
        let connected = self.start_connecting(&target);
        let Some(entry) = self.core.peers.get_mut(peer) else { return };
        match connected {
            Ok(qp) => {
                entry.link = Link::Fabric(FabricLink { qp, state: None });
                entry.address = self.provider.peer_address(qp).unwrap_or(PeerAddress::Simulated);
                self.core.peers.name_qp(qp, peer);
                debug_assert!(self.core.peers.lost > 0, "a lost connection is counted");
                self.core.peers.lost -= 1;
            }
            Err(fault) => self.postpone_connection(peer, Cause::Fabric(fault)),
        }
    }

    /// Schedules the next attempt to connect.
    fn postpone_connection(&mut self, peer: PeerId, cause: Cause) {
        let Some(attempts) = self
            .core
            .peers
            .get(peer)
            .filter(|peer| peer.life.kept)
            .map(|peer| peer.standing.attempts)
        else {
            return;
        };
        let retry_at = self.core.now + self.core.peers.pause(attempts);
        if let Some(entry) = self.core.peers.get_mut(peer) {
            (entry.standing.attempts, entry.life.up) = (attempts.saturating_add(1), false);
            entry.link = Link::Lost { retry_at };
        }
        self.core.deadlines.no_later(retry_at);
        self.app.on_peer_down(&mut Cx::new(&mut self.core, &mut self.provider), peer, cause);
    }

    /// Accepts a connection if a grant of one fits the receives (DESIGN D8).
    pub(crate) fn handle_connect_request(&mut self, qp: Qp) {
        let address = self.provider.peer_address(qp).unwrap_or(PeerAddress::Simulated);
        let stats = &mut self.core.counters.stats;
        if self.core.stopping || !(self.admission)(address) {
            stats.connections.refused += 1;
            self.provider.reject(qp, &[]);
            return self.tell_stopping(address, Over::Fabric);
        }
        let Some(grant) = self.core.first_grant() else {
            self.core.counters.stats.limits.receives += 1;
            self.provider.reject(qp, &[]);
            self.tell_refused(Some(address), Over::Fabric, ConnectLimit::Receives);
            return self.make_room();
        };
        let theirs = self.provider.private_data(qp);
        let (peer, dialects) = (PrivateData::find(theirs), Dialects::find(theirs));
        let setup = Setup {
            side: Side::Server,
            own: self.private_data.of(Side::Server),
            peer,
            calls_max: 0,
            grant,
        };
        let versions = self.core.config.serve_versions;
        let state = Some(self.core.ways.connection(setup, versions.agreed(dialects)));
        let link = Link::Fabric(FabricLink { qp, state });
        if self.add_peer(Side::Server, link, address, grant as usize).is_none() {
            self.core.counters.stats.limits.peers += 1;
            self.provider.reject(qp, &[]);
            self.tell_refused(Some(address), Over::Fabric, ConnectLimit::Peers);
            return self.make_room();
        }
        let mut private_data = [0; SAID_LEN];
        // A client that announces nothing reads only RFC 8797's eight octets.
        let announced = Dialects { directed: dialects.directed && versions.dialects().directed };
        let said = self.say(Side::Server, announced, &mut private_data);
        if self.provider.accept(qp, said).is_err() {
            // The provider has no place for it: disconnect an idle peer, so that a retry succeeds.
            self.core.counters.stats.limits.peers += 1;
            self.tell_refused(Some(address), Over::Fabric, ConnectLimit::Fabric);
            self.make_room();
        } else {
            let stats = &mut self.core.counters.stats;
            stats.connections.fabric += 1;
            stats.responder.grant = stats.responder.grant.max(grant);
        }
    }

    /// Reports to the app a connection that a limit refused.
    #[cold]
    pub(crate) fn tell_refused(
        &mut self,
        from: Option<PeerAddress>,
        over: Over,
        limit: ConnectLimit,
    ) {
        let refused = RefusedPeer { from, over, limit };
        self.app.on_refused(&mut Cx::new(&mut self.core, &mut self.provider), refused);
    }

    /// Reports to the app a connection that was refused because the shard stops or drains. Refusals
    /// by the access list are reported by the admission.
    #[cold]
    pub(crate) fn tell_stopping(&mut self, from: PeerAddress, over: Over) {
        if self.core.stopping {
            self.tell_refused(Some(from), over, ConnectLimit::Stopping);
        }
    }

    pub(crate) fn handle_established(&mut self, qp: Qp) {
        let Some(peer) = self.core.peers.of_qp(qp) else { return };
        // RFC 8797 §4 [8797-1]: the private data of a peer hold for one connection
        let theirs = self.provider.private_data(qp);
        let (theirs, dialects) = (PrivateData::find(theirs), Dialects::find(theirs));
        let (calls_max, grant) = (self.core.config.calls_max, self.core.config.reverse_grant);
        let Some(entry) = self.core.peers.get_mut(peer) else { return };
        entry.life.up = true;
        if let Link::Fabric(FabricLink { state: state @ None, .. }) = &mut entry.link {
            let setup = Setup {
                side: Side::Client,
                own: self.private_data.of(Side::Client),
                peer: theirs,
                calls_max,
                grant,
            };
            let versions = entry
                .life
                .memory
                .versions(self.core.config.call_versions, since_start(self.core.now));
            *state = Some(self.core.ways.connection(setup, versions.agreed(dialects)));
        }
        self.app.on_peer_up(&mut Cx::new(&mut self.core, &mut self.provider), peer);
        self.empty_outbox();
        self.start_waiting(peer);
    }

    /// Handles the end of a connection.
    pub(crate) fn handle_disconnected(&mut self, qp: Qp, cause: Cause) {
        let Some(peer) = self.core.peers.of_qp(qp) else { return };
        self.core.peers.forget_qp(qp);
        self.handle_connection_end(peer, cause);
    }

    /// Handles the loss of a peer's connection. Its calls end; our calls to it end, too, unless
    /// there will be another connection.
    pub(crate) fn handle_connection_end(&mut self, peer: PeerId, cause: Cause) {
        let Some(entry) = self.core.peers.get_mut(peer) else { return };
        debug_assert!(
            matches!(entry.link, Link::Fabric(_) | Link::Stream(_)),
            "a connection ends once"
        );
        // If the shard ended the connection, the fabric or socket does not have the reason.
        let cause = entry.take_ending().unwrap_or(cause);
        if let Link::Fabric(FabricLink { state: Some(connection), .. }) = &entry.link {
            entry.life.memory.handle_lost(connection, since_start(self.core.now));
        }
        let (octets, from) = (entry.served.octets().moved, Some(entry.address));
        self.core.count_disconnect(cause);
        let of_it = self.core.responder.in_progress().filter(|(caller, _)| *caller == peer);
        self.core.parted = Parted { from, calls: of_it.count(), octets };
        self.drop_calls_from(peer);
        self.end_all_asking(peer, cause);
        let Some(entry) = self.core.peers.get(peer) else { return };
        let (successor, side, kept) =
            (entry.life.successor, entry.side, entry.life.kept && !self.core.stopping);
        match (successor, side) {
            (Some(successor), _) => self.hand_calls_over(peer, successor, cause),
            (None, _) if !kept => self.remove_peer(peer, cause),
            (None, Side::Client) => self.connect_again(peer, cause),
            (None, Side::Server) => self.await_return(peer, cause),
        }
    }

    fn connect_again(&mut self, peer: PeerId, cause: Cause) {
        let Some(entry) = self.core.peers.get_mut(peer) else { return };
        entry.link = Link::Lost { retry_at: Time(u64::MAX) };
        self.core.peers.lost += 1;
        // The app may end the peer when it gets the outcomes of ended calls.
        self.take_calls_back(peer, peer);
        self.postpone_connection(peer, cause);
        self.empty_outbox();
        self.retry_connection(peer);
    }

    fn remove_peer(&mut self, peer: PeerId, cause: Cause) {
        let Some(entry) = self.core.peers.table.remove(peer.0) else { return };
        if let Some(target) = self.targets.get_mut(peer.0.index()) {
            *target = None;
        }
        self.core.receives.release(entry.life.promised);
        self.fail_calls_of(peer, cause);
        self.app.on_peer_down(&mut Cx::new(&mut self.core, &mut self.provider), peer, cause);
        self.empty_outbox();
    }

    /// Drops the calls of a peer that came over the connection which has ended.
    fn drop_calls_from(&mut self, peer: PeerId) {
        self.core.forget_calls_from(peer);
        if let Some(entry) = self.core.peers.get_mut(peer) {
            entry.grant.forget_replies();
            entry.take_ending();
            entry.life.up = false;
            let receives = entry.options.forget();
            debug_assert!(receives <= entry.life.promised, "those of options are among all others");
            entry.life.promised -= receives;
            self.core.receives.release(receives);
        }
    }

    pub(crate) fn add_peer(
        &mut self,
        side: Side,
        link: Link,
        address: PeerAddress,
        promised: usize,
    ) -> Option<PeerId> {
        if self.core.peers.len() == self.core.peers.capacity() {
            self.forget_one_absent();
        }
        debug_assert!(
            promised == 0 || self.core.receives.fits(promised),
            "a connection is accepted when its receives are there"
        );
        let mut peer = Peer { address, ..Peer::new(side, link, self.core.now) };
        peer.life.promised = promised;
        let id = PeerId(self.core.peers.table.insert(peer).ok()?);
        self.core.receives.promise(promised);
        self.core.peers.name_link(id);
        Some(id)
    }

    /// Returns true if a client may connect over TCP.
    pub(crate) fn admits_stream(&self, address: PeerAddress) -> bool {
        let admission = self.stream_admission.as_ref().unwrap_or(&self.admission);
        !self.core.stopping && admission(address)
    }

    /// Starts to end a connection; the rest happens once it has ended.
    pub(crate) fn disconnect(&mut self, peer: PeerId) {
        match self.core.peers.get(peer).map(|peer| &peer.link) {
            Some(Link::Fabric(FabricLink { qp, .. })) => self.provider.disconnect(*qp),
            Some(Link::Stream(key)) => self.streams.close(*key),
            Some(Link::Lost { .. } | Link::Absent { .. }) | None => {}
        }
    }

    /// Ends a peer permanently: its connection is not re-established.
    pub(crate) fn end_peer(&mut self, peer: PeerId) {
        let Some(entry) = self.core.peers.get_mut(peer) else { return };
        (entry.life.kept, entry.life.name) = (false, None);
        match entry.link {
            Link::Lost { .. } => self.core.peers.lost -= 1,
            Link::Absent { .. } => self.core.peers.absent -= 1,
            Link::Fabric(_) | Link::Stream(_) => return self.disconnect(peer),
        }
        self.core.count_disconnect(Cause::Local);
        self.remove_peer(peer, Cause::Local);
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Disconnects peers that do not answer the first message of version 2: on the next connection
    /// their calls use version 1. Only peers that will be reconnected: others have nothing to fall
    /// back to.
    pub(crate) fn end_silent(&mut self) {
        let mut walk = Walk::default();
        while let Some((peer, entry)) = self.core.peers.next(&mut walk) {
            let Some(by) = entry.calls.version_by() else { continue };
            let awaits = matches!(
                &entry.link,
                Link::Fabric(FabricLink { state: Some(state), .. }) if state.may_fall_back()
            );
            if awaits && self.core.now < by {
                self.core.deadlines.no_later(by);
                continue;
            }
            entry.calls.forget_version();
            if awaits && entry.life.kept {
                self.core.counters.stats.requester.version_silences += 1;
                // draft 000 §5.2 [v2-12]: a connection lost while negotiating counts as version 1
                // draft 000 §5.2 [v2-26]: a dropped first message counts as version 1
                self.disconnect(peer);
            }
        }
    }
}

fn since_start(now: Time) -> Duration {
    now.since(Time(0))
}
