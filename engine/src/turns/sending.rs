//! The cost of sending. A doorbell sends the output of many connections: messages, and the data of
//! RDMA Writes, which a software device copies then. Its time is charged to the connections by the
//! bytes that each has posted. The calls themselves cost little in comparison: a READ of 1 MiB is
//! answered in a few microseconds, and sending it takes a hundred times as long.
//!
//! On a device that fetches the data, each connection counts the same. Data that its peer does not
//! take at once is sent by a later doorbell or poll, whose time is not charged by these bytes.

use super::COST_MAX;
use crate::{
    core::Core,
    peer_view::PeerId,
    state::{Link, Payer},
};
use stag_protocol::rpcrdma::Side;
use stag_verbs::Time;

/// Bytes that take as long to copy as the system call that sends the output of one connection.
const SEND: u64 = 8 << 10;

impl Core {
    /// Records that output of a connection waits for the next doorbell, which copies `octets` of
    /// data for it.
    #[inline]
    pub(crate) fn note_posted(&mut self, peer: PeerId, octets: u64) {
        if self.turns.is_metered {
            self.note_posted_while_metered(peer, octets);
        }
    }

    #[inline(never)]
    fn note_posted_while_metered(&mut self, peer: PeerId, octets: u64) {
        let Some(entry) = self.peers.get_mut(peer) else { return };
        if entry.side == Side::Client || !matches!(entry.link, Link::Fabric(_)) {
            return;
        }
        let posted = &mut entry.turn.posted;
        if *posted == 0 {
            if self.turns.posted.len() == self.turns.posted.capacity() {
                // Connections that are gone fill the list until the doorbell.
                return;
            }
            self.turns.posted.push(peer);
            *posted = SEND;
        }
        *posted = posted.saturating_add(octets);
    }

    /// Reads the clock if the cost of the doorbell will be charged.
    #[inline]
    pub(crate) fn begin_sending(&self) -> Option<Time> {
        (!self.turns.posted.is_empty()).then(|| self.turns.clock())
    }

    /// Charges the time of a doorbell that rang at `begun` to the connections whose output it sent.
    #[inline(never)]
    pub(crate) fn charge_sending(&mut self, begun: Time) {
        let now = self.turns.clock();
        let time = now.since(begun);
        let cost = time.min(COST_MAX).as_nanos() as u64;
        // Charged here, so no idle time of this pass.
        self.turns.begun = self.turns.begun + time;
        let Self { turns, peers, .. } = self;
        let octets = |peer: &PeerId| peers.get(*peer).map_or(0, |entry| entry.turn.posted);
        let total = turns.posted.iter().map(octets).fold(0, u64::saturating_add);
        while let Some(peer) = self.turns.posted.pop() {
            let Some(entry) = self.peers.get_mut(peer) else { continue };
            let octets = std::mem::take(&mut entry.turn.posted);
            let part = u128::from(cost) * u128::from(octets) / u128::from(total.max(1));
            if self.turns.is_metered {
                let part = u64::try_from(part).unwrap_or(u64::MAX);
                self.activate(Payer::Peer(peer));
                self.add_cost(Payer::Peer(peer), part);
            }
        }
        self.turns.mark = now;
    }
}
