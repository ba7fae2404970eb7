//! Calling peers that connected to us (RFC 8167): when that may begin, and how they are known again when they come back.
//!
//! A server cannot connect to its client. A client that the app adopted under a name keeps its [`PeerId`] without a connection:
//! [`Link::Absent`]. When it comes back it is another peer at first; once the app adopts that one under the same name, the two
//! exchange what belongs to a connection. The other one then leads to the earlier connection, if there is one, and gives
//! the calls that were under way there to its heir when that has ended.

use crate::{
    app::{Action, App, ClientName, Cx, PeerId},
    core::{Core, Link, OutboundState, Peer},
    responder::line::Wait,
    shard::Shard,
};
use stag_pools::{Table, table::Walk};
use stag_protocol::rpcrdma::Side;
use stag_verbs::{Cause, Provider};

impl Core {
    /// The upper layer said that this peer takes calls.
    pub(crate) fn ready(&mut self, peer: PeerId) {
        if let Some(entry) = self.peers.get_mut(peer.0)
            && !matches!(entry.link, Link::Absent { .. })
        {
            entry.ready = true;
            // Its calls wait for receives then.
            self.counters.stats.limits.receives += u64::from(self.free_receives() == 0);
            self.outbox.push_back(Action::Start(peer));
        }
    }

    /// See [`Cx::adopt`].
    pub(crate) fn adopt(&mut self, peer: PeerId, name: ClientName) -> PeerId {
        let known = |(key, known): (_, &Peer)| (known.name == Some(name)).then_some(PeerId(key));
        let known = self.peers.iter().find_map(known);
        let Some(entry) = self.peers.get_mut(peer.0) else { return peer };
        if let Some(heir) = entry.heir {
            return heir; // It lost its name already to another connection.
        }
        // Who has no connection any more takes none from another one.
        if entry.side == Side::Client || !entry.up || known == Some(peer) {
            return peer;
        }
        match known {
            Some(known) => {
                // draft 002 §5.4 [bidir-15]
                self.exchange_connections(known, peer);
                known
            }
            None => {
                (entry.name, entry.kept) = (Some(name), true);
                peer
            }
        }
    }

    /// `known` gets the connection of `peer`, which gets the one that `known` had, to end it.
    fn exchange_connections(&mut self, known: PeerId, peer: PeerId) {
        let spare = Peer::new(Side::Server, Link::Absent { since: self.now }, self.now);
        let Some(entry) = self.peers.get_mut(peer.0) else { return };
        let mut fresh = std::mem::replace(entry, spare);
        let Some(entry) = self.peers.get_mut(known.0) else { return };
        entry.exchange_connection(&mut fresh);
        entry.waiting.append(&mut fresh.waiting);
        let is_ready = entry.ready;
        (fresh.name, fresh.kept, fresh.heir) = (None, false, Some(known));
        let was_absent = matches!(fresh.link, Link::Absent { .. });
        if let Link::Fabric { qp, .. } = &entry.link {
            let qp = *qp;
            self.name_qp(qp, known);
        }
        if let Link::Fabric { qp, .. } = &fresh.link {
            let qp = *qp;
            self.name_qp(qp, peer);
        }
        *self.peers.get_mut(peer.0).expect("it was found above") = fresh;
        self.exchange_calls(known, peer);
        // The lines know them by their names.
        for peer in [known, peer] {
            self.line.leave(peer);
            if self.peers.get(peer.0).is_some_and(|entry| entry.wait != Wait::Nothing) {
                self.set_wait(peer, Wait::Itself);
                self.set_wait(peer, Wait::Turn);
            }
        }
        if was_absent {
            self.absent -= 1;
            self.peers.remove(peer.0);
        } else {
            self.outbox.extend([Action::Moved(peer), Action::Disconnect(peer)]);
        }
        self.outbox.push_back(Action::Moved(known));
        if is_ready {
            self.outbox.push_back(Action::Start(known));
        }
    }

    /// Calls follow their connection; those that wait for one are all for `known`.
    fn exchange_calls(&mut self, known: PeerId, peer: PeerId) {
        let other = |of: PeerId, is_tied: bool| match of {
            of if of == peer => known,
            of if of == known && is_tied => peer,
            of => of,
        };
        for (_, call) in self.inbound.iter_mut() {
            call.peer = other(call.peer, true);
        }
        for (_, call) in self.outbound.iter_mut() {
            call.peer = other(call.peer, call.state != OutboundState::AwaitCredit);
        }
    }

    /// Reserves receives for calls to a peer that connected to us, as many as there are up to what is configured, and allows as
    /// many calls (DESIGN D8). False when there is none.
    pub(crate) fn allow_calls(&mut self, peer: PeerId) -> bool {
        let free = u32::try_from(self.free_receives()).unwrap_or(u32::MAX);
        let calls = self.config.reverse_calls_max.min(free);
        let Some((_, connection)) = self.connection(peer) else { return false };
        if connection.calls().is_some() {
            return true;
        }
        if calls == 0 {
            return false;
        }
        connection.allow_calls(calls);
        self.settle_receives(peer);
        true
    }

    /// Who the app knows this peer as.
    pub(crate) fn known_as(&self, peer: PeerId) -> PeerId {
        known_as(&self.peers, peer)
    }
}

/// The successor of a peer whose name went to another connection; else the peer itself.
pub(crate) fn known_as(peers: &Table<Peer>, peer: PeerId) -> PeerId {
    peers.get(peer.0).and_then(|entry| entry.heir).unwrap_or(peer)
}

impl Peer {
    /// Exchanges what belongs to the connection, not to the peer.
    fn exchange_connection(&mut self, with: &mut Self) {
        use std::mem::swap;
        swap(&mut self.link, &mut with.link);
        swap(&mut self.address, &mut with.address);
        swap(&mut self.reserved, &mut with.reserved);
        swap(&mut self.options, &mut with.options);
        swap(&mut self.pulling, &mut with.pulling);
        swap(&mut self.account, &mut with.account);
        swap(&mut self.deferred, &mut with.deferred);
        swap(&mut self.wait, &mut with.wait);
        swap(&mut self.waits_since, &mut with.waits_since);
        swap(&mut self.ending, &mut with.ending);
        swap(&mut self.wanted, &mut with.wanted);
        swap(&mut self.called_at, &mut with.called_at);
        swap(&mut self.replies, &mut with.replies);
        swap(&mut self.ready, &mut with.ready);
        swap(&mut self.up, &mut with.up);
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Tells a TCP connection whose it is, and answers the requests of the peer that wait.
    pub(crate) fn note_move(&mut self, peer: PeerId) {
        if let Some(Link::Stream(stream)) = self.core.peers.get(peer.0).map(|entry| &entry.link) {
            self.streams.name(*stream, peer);
        }
        self.answer_options(peer);
    }

    /// The connection of an adopted peer is gone: it may come back.
    pub(crate) fn await_return(&mut self, peer: PeerId, cause: Cause) {
        self.core.absent += 1;
        let since = self.core.now;
        let entry = self.core.peers.get_mut(peer.0).expect("an adopted peer stays");
        (entry.link, entry.ready, entry.up) = (Link::Absent { since }, false, false);
        self.core.reserved -= std::mem::take(&mut entry.reserved);
        self.take_calls_back(peer, peer);
        // The app may have ended the peer, or found it again, when it heard of calls that are over.
        if matches!(self.core.peers.get(peer.0), Some(Peer { link: Link::Absent { .. }, .. })) {
            self.app.on_peer_down(&mut Cx { core: &mut self.core }, peer, cause);
        }
        self.empty_outbox();
    }

    /// The connection is gone that a peer had before it came back over another one: its calls go out again over that.
    pub(crate) fn bequeath(&mut self, peer: PeerId, heir: PeerId, cause: Cause) {
        if self.core.peers.get(heir.0).is_some() {
            self.take_calls_back(peer, heir);
        } else {
            self.fail_calls_of(peer, cause);
        }
        if let Some(entry) = self.core.peers.remove(peer.0) {
            self.core.reserved -= entry.reserved;
        }
        self.empty_outbox();
        self.start_waiting(heir);
    }

    /// Forgets peers that were absent for too long and whom nobody calls.
    pub(crate) fn forget_absent(&mut self) {
        if self.core.absent == 0 {
            return;
        }
        let mut walk = Walk::default();
        while let Some((key, entry)) = walk.next(&mut self.core.peers) {
            let Link::Absent { since } = entry.link else { continue };
            let peer = PeerId(key);
            if self.core.now.since(since) >= self.core.config.absence && !self.core.is_called(peer) {
                self.forget(peer);
            }
        }
    }

    /// Makes a place in the table of peers, if one is only kept for somebody who may come back.
    pub(crate) fn forget_one_absent(&mut self) {
        let absent = self.core.peers.iter().filter_map(|(key, peer)| match peer.link {
            Link::Absent { since } => Some((since, PeerId(key))),
            _ => None,
        });
        let longest = absent.filter(|(_, peer)| !self.core.is_called(*peer)).min_by_key(|(since, _)| *since);
        if let Some((_, peer)) = longest {
            self.forget(peer);
        }
    }

    fn forget(&mut self, peer: PeerId) {
        self.core.absent -= 1;
        self.core.peers.remove(peer.0);
    }
}

impl Core {
    /// Whether a call of ours waits for this peer.
    fn is_called(&self, peer: PeerId) -> bool {
        self.outbound.iter().any(|(_, call)| call.peer == peer)
    }
}
