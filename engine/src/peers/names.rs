//! Peers that connected to us and are called by us (RFC 8167): readiness for calls, names, and
//! successors.
//!
//! A server cannot connect to its client. A client that the app adopted under a name keeps its
//! [`PeerId`] without a connection: [`Link::Absent`]. When the client comes back it is another peer
//! at first; once the app adopts that one under the same name, the two exchange everything that
//! belongs to a connection. The second peer then has the earlier connection, if there is one, and
//! hands the calls that were under way there over to its successor, the first peer, when that
//! connection has ended.

use crate::{
    app::{Action, App, ClientName, Cx, PeerId},
    core::Core,
    peer::{Link, Peer},
    shard::Shard,
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
            // Its calls wait for receives then.
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
        // Who has no connection any more takes none from another one.
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

    /// `known` gets the connection of `peer`, which gets the one that `known` had, to end it.
    fn exchange_connections(&mut self, known: PeerId, peer: PeerId) {
        let spare = Peer::new(Side::Server, Link::Absent { since: self.now }, self.now);
        let Some(entry) = self.peers.get_mut(peer) else { return };
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

    /// Reserves receives for calls to a peer that connected to us, as many as there are up to what
    /// is configured, and allows as many calls (DESIGN D8). False when there is none.
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
    /// Tells a TCP connection whose it is, and answers the requests of the peer that wait.
    pub(crate) fn note_move(&mut self, peer: PeerId) {
        if let Some(Link::Stream(stream)) = self.core.peers.get(peer).map(|entry| &entry.link) {
            self.streams.name(*stream, peer);
        }
        self.answer_options(peer);
    }

    /// The connection of an adopted peer is gone: it may come back.
    pub(crate) fn await_return(&mut self, peer: PeerId, cause: Cause) {
        let since = self.core.now;
        let Some(entry) = self.core.peers.get_mut(peer) else { return };
        (entry.link, entry.standing.ready, entry.life.up) = (Link::Absent { since }, false, false);
        self.core.receives.release(std::mem::take(&mut entry.life.promised));
        self.core.peers.absent += 1;
        self.take_calls_back(peer, peer);
        // The app may have ended the peer, or found it again, when it heard of calls that are over.
        if matches!(self.core.peers.get(peer), Some(Peer { link: Link::Absent { .. }, .. })) {
            self.app.on_peer_down(&mut Cx::new(&mut self.core, &mut self.provider), peer, cause);
        }
        self.empty_outbox();
    }

    /// Hands the calls of a peer over to its successor, for the connection is gone that it had
    /// before: they go out again.
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

    /// Forgets peers that were absent for too long and whom nobody calls.
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

    /// Makes a place in the table of peers, if one is only kept for somebody who may come back.
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
        self.core.peers.absent -= 1;
        self.core.peers.table.remove(peer.0);
    }
}
