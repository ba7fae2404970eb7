//! Reverse calls (RFC 8167) to peers that connected to us: readiness, names, and successors.
//!
//! A server cannot connect to its client. A client that the app adopted under a name keeps its
//! [`PeerId`] without a connection: [`Link::Absent`]. When the client comes back it is a new peer
//! at first. Once the app adopts that one under the same name, the two peers exchange all state
//! that belongs to a connection. The second peer then has the earlier connection, if there is one.
//! When that has ended, the calls in flight on it go to the successor, the first peer.

use crate::{
    app::{App, ClientName, Cx, PeerId},
    core::Core,
    shard::Shard,
    state::{Action, Link, Peer},
};
use stag_pools::table::Walk;
use stag_protocol::rpcrdma::Side;
use stag_verbs::{Cause, Provider};

impl Core {
    /// Marks a peer ready for our calls, as its upper layer announced.
    pub(crate) fn ready(&mut self, peer: PeerId) {
        if let Some(entry) = self.peers.get_mut(peer)
            && !matches!(entry.link, Link::Absent { .. })
        {
            entry.standing.ready = true;
            // The calls then wait for receives.
            self.counters.stats.limits.receives += u64::from(self.receives.free() == 0);
            self.wishes.ask(Action::Start(peer));
        }
    }

    /// See [`Cx::adopt`].
    pub(crate) fn adopt(&mut self, peer: PeerId, name: ClientName) -> PeerId {
        let known = self
            .peers
            .iter()
            .find(|(_, known)| known.life.name == Some(name))
            .map(|(peer, _)| peer);
        let Some(entry) = self.peers.get_mut(peer) else { return peer };
        if let Some(successor) = entry.life.successor {
            return successor; // It lost its name already to another connection.
        }
        // A peer without a connection has none to exchange.
        if entry.side == Side::Client || !entry.life.up || known == Some(peer) {
            return peer;
        }
        match known {
            Some(known) => {
                // draft 002 §5.4 [bidir-15]: reverse calls survive a reconnection with their XIDs
                self.exchange_connections(known, peer);
                known
            }
            None => {
                (entry.life.name, entry.life.kept) = (Some(name), true);
                peer
            }
        }
    }

    /// Gives `known` the connection of `peer`, and `peer` the old one of `known`, to end it.
    fn exchange_connections(&mut self, known: PeerId, peer: PeerId) {
        let spare = Peer::new(Side::Server, Link::Absent { since: self.now }, self.now);
        let Some(entry) = self.peers.get_mut(peer) else { return };
        debug_assert_ne!(known, peer, "two peers exchange their connections");
        let mut fresh = std::mem::replace(entry, spare);
        let Some(entry) = self.peers.get_mut(known) else { return };
        entry.exchange_connection(&mut fresh);
        entry.calls.take_over(&mut fresh.calls);
        entry.note_waiting();
        let is_ready = entry.standing.ready;
        (fresh.life.name, fresh.life.kept) = (None, false);
        fresh.give_way(known);
        let was_absent = matches!(fresh.link, Link::Absent { .. });
        if let Some(entry) = self.peers.get_mut(peer) {
            *entry = fresh;
        }
        for peer in [known, peer] {
            self.peers.name_link(peer);
        }
        self.requester.exchange_peers(known, peer);
        self.responder.exchange_peers(known, peer);
        for peer in [known, peer] {
            self.wait_anew(peer);
        }
        if was_absent {
            self.peers.absent -= 1;
            self.peers.table.remove(peer.0);
        } else {
            self.wishes.ask(Action::Moved(peer));
            self.wishes.ask(Action::Disconnect(peer));
        }
        self.wishes.ask(Action::Moved(known));
        if is_ready {
            self.wishes.ask(Action::Start(known));
        }
    }

    /// Reserves receives for calls to a peer that connected to us, up to the configured number, and
    /// allows that number of calls (DESIGN D8). Returns false if no receive is free.
    pub(crate) fn allow_calls(&mut self, peer: PeerId) -> bool {
        let Some((_, connection)) = self.peers.connection(peer) else { return false };
        if connection.calls().is_some() {
            return true;
        }
        let free = u32::try_from(self.receives.free()).unwrap_or(u32::MAX);
        let calls = self.config.reverse_calls_max.min(free);
        if calls == 0 {
            return false;
        }
        connection.allow_calls(calls);
        self.settle_receives(peer);
        true
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Updates the owner of a TCP connection, and answers the peer's pending requests.
    pub(crate) fn note_move(&mut self, peer: PeerId) {
        if let Some(Link::Stream(stream)) = self.core.peers.get(peer).map(|entry| &entry.link) {
            self.streams.name(*stream, peer);
        }
        self.answer_options(peer);
    }

    /// Handles the loss of an adopted peer's connection: it may come back.
    pub(crate) fn await_return(&mut self, peer: PeerId, cause: Cause) {
        let since = self.core.now;
        let Some(entry) = self.core.peers.get_mut(peer) else { return };
        (entry.link, entry.standing.ready, entry.life.up) = (Link::Absent { since }, false, false);
        self.core.receives.release(std::mem::take(&mut entry.life.promised));
        self.core.peers.absent += 1;
        self.take_calls_back(peer, peer);
        // The app may have ended the peer, or found it again, while it got the outcomes of ended
        // calls.
        if matches!(self.core.peers.get(peer), Some(Peer { link: Link::Absent { .. }, .. })) {
            self.app.on_peer_down(&mut Cx::new(&mut self.core, &mut self.provider), peer, cause);
        }
        self.empty_outbox();
    }

    /// Hands the calls of a peer, whose earlier connection is gone, over to its successor, which
    /// sends them again.
    pub(super) fn hand_calls_over(&mut self, peer: PeerId, successor: PeerId, cause: Cause) {
        if self.core.peers.get(successor).is_some() {
            self.take_calls_back(peer, successor);
        } else {
            self.fail_calls_of(peer, cause);
        }
        if let Some(entry) = self.core.peers.table.remove(peer.0) {
            self.core.receives.release(entry.life.promised);
        }
        self.empty_outbox();
        self.start_waiting(successor);
    }

    /// Removes peers that were absent for too long and have no pending calls.
    pub(crate) fn forget_absent(&mut self) {
        if self.core.peers.absent == 0 {
            return;
        }
        let mut walk = Walk::default();
        while let Some((peer, entry)) = self.core.peers.next(&mut walk) {
            let Link::Absent { since } = entry.link else { continue };
            if self.core.now.since(since) >= self.core.config.absence
                && !self.core.requester.has_calls_to(peer)
            {
                self.forget(peer);
            }
        }
    }

    /// Frees an entry of the peer table that is kept for an absent peer, if there is one.
    pub(crate) fn forget_one_absent(&mut self) {
        let absent = self.core.peers.iter().filter_map(|(peer, entry)| match entry.link {
            Link::Absent { since } => Some((since, peer)),
            _ => None,
        });
        let uncalled = absent.filter(|(_, peer)| !self.core.requester.has_calls_to(*peer));
        let longest = uncalled.min_by_key(|(since, _)| *since);
        if let Some((_, peer)) = longest {
            self.forget(peer);
        }
    }

    fn forget(&mut self, peer: PeerId) {
        debug_assert!(self.core.peers.absent > 0, "an absent peer is counted");
        self.core.peers.absent -= 1;
        self.core.peers.table.remove(peer.0);
    }
}
