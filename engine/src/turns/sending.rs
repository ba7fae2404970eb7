//! The cost of moving data. A doorbell sends the output of many connections: messages, and the data
//! of RDMA Writes, which a software device copies then. A poll places data that has arrived, and
//! sends what a peer did not take at the doorbell. A call itself costs little in comparison: a READ
//! of 1 MiB is answered in a few microseconds, and sending it takes a hundred times as long.
//!
//! The time is shared out among the connections by the octets that the provider has moved for each
//! ([`Provider::take_moved`]), whenever it moves them. On a device that moves the data itself, each
//! connection with output counts the same.

use super::COST_MAX;
use crate::{
    core::Core,
    peer_view::PeerId,
    state::{Link, Payer},
};
use stag_protocol::rpcrdma::Side;
use stag_verbs::{Provider, Time};

/// Octets that take as long to copy as the system call that sends the output of one connection.
const SEND: u64 = 8 << 10;

impl Core {
    /// Records that output of a connection waits for the next doorbell.
    #[inline]
    pub(crate) fn note_posted(&mut self, peer: PeerId) {
        if self.turns.is_metered {
            self.note_posted_while_metered(peer);
        }
    }

    #[inline(never)]
    fn note_posted_while_metered(&mut self, peer: PeerId) {
        let Some(entry) = self.peers.get_mut(peer) else { return };
        if entry.side == Side::Client || !matches!(entry.link, Link::Fabric(_)) {
            return;
        }
        // Connections that are gone fill the list until the doorbell.
        let has_room = self.turns.posted.len() < self.turns.posted.capacity();
        if has_room && !std::mem::replace(&mut entry.turn.has_posted, true) {
            self.turns.posted.push(peer);
        }
    }

    /// Reads the clock if the cost of the doorbell will be charged.
    #[inline]
    pub(crate) fn begin_sending(&self) -> Option<Time> {
        (!self.turns.posted.is_empty()).then(|| self.turns.clock())
    }

    /// Charges the time of a doorbell that rang at `begun` to the connections whose output it sent.
    #[inline(never)]
    pub(crate) fn charge_sending(&mut self, begun: Time, provider: &mut impl Provider) {
        while let Some(peer) = self.turns.posted.pop() {
            if let Some(entry) = self.peers.get_mut(peer) {
                entry.turn.has_posted = false;
                self.turns.add_moved(peer, SEND);
            }
        }
        self.charge_moved(begun, provider);
    }

    /// Charges the time since the latest charge to connections whose data a poll has moved, if it
    /// has.
    #[inline]
    pub(crate) fn charge_poll(&mut self, provider: &mut impl Provider) {
        if self.turns.is_metered {
            self.charge_moved(self.turns.mark, provider);
        }
    }

    #[inline(never)]
    fn charge_moved(&mut self, begun: Time, provider: &mut impl Provider) {
        let Self { turns, peers, .. } = self;
        let mut has_moved = !turns.moved.is_empty();
        // The first numbers are of a time that is charged to no connection.
        let is_stale = std::mem::take(&mut turns.is_moved_stale);
        provider.take_moved(&mut |qp, octets| {
            has_moved = true;
            // The data of our own calls are charged to no client.
            let peer = peers
                .of_qp(qp)
                .filter(|peer| peers.get(*peer).is_some_and(|entry| entry.side == Side::Server));
            if let Some(peer) = peer.filter(|_| !is_stale) {
                turns.add_moved(peer, octets.saturating_add(SEND));
            }
        });
        if !has_moved {
            return;
        }
        let now = turns.clock();
        let time = now.since(begun);
        let cost = time.min(COST_MAX).as_nanos() as u64;
        // Charged here, so no idle time of this pass.
        turns.begun = turns.begun + time;
        turns.mark = now;
        let total = turns.moved.iter().fold(0, |sum: u64, (_, weight)| sum.saturating_add(*weight));
        while let Some((peer, weight)) = self.turns.moved.pop() {
            let part = u128::from(cost) * u128::from(weight) / u128::from(total.max(1));
            if self.turns.is_metered && self.peers.get(peer).is_some() {
                let part = u64::try_from(part).unwrap_or(u64::MAX);
                self.activate(Payer::Peer(peer));
                self.add_cost(Payer::Peer(peer), part);
            }
        }
    }
}
