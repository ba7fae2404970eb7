//! Grants: the calls that each peer may have outstanding (DESIGN D8). Receives are shared, and
//! grants follow use.
//!
//! A connection is accepted when a grant of one fits. Using up a grant doubles it with the next
//! reply, capped by the peer's request and a quarter of all receives; another quarter stays
//! unpromised. When receives are short, grants above the fair share are halved with each round.
//! When nothing is left for a newcomer, the peer that has been idle for longest loses its
//! connection. When the fabric accepts fewer receives than are promised, the peers with the most
//! lose theirs.

use crate::{
    app::{App, PeerId},
    core::Core,
    shard::Shard,
    state::{FabricLink, Link},
};
use stag_protocol::rpcrdma::Side;
use stag_verbs::{Provider, Time};
use std::time::Duration;

/// A peer may be disconnected in favour of a newcomer only after it has been idle for this long.
const IDLE_MIN: Duration = Duration::from_secs(10);

/// The inputs for a decision about one grant.
#[derive(Clone, Copy, Debug)]
struct PeerGrant {
    /// The current grant.
    granted: u32,
    /// The credits that the peer requested in its latest call.
    wanted: u32,
    /// The limit of every grant.
    max: u32,
    /// Receives available for growth: unpromised ones beyond the reserve for newcomers. Zero means
    /// that receives are short.
    free: u32,
    /// Receives for each peer if all had equal shares.
    fair: u32,
}

impl PeerGrant {
    /// The grant to announce from the next reply on.
    fn next(self) -> u32 {
        let Self { granted, wanted, max, free, fair } = self;
        let grant = if free > 0 {
            let doubled = granted.saturating_mul(2).min(wanted);
            doubled.clamp(granted, granted.saturating_add(free))
        } else if granted > fair {
            (granted / 2).max(fair)
        } else {
            granted
        };
        // RFC 5040 §8.1.2 [5040-75]: no peer takes more receives than its fair share
        // RFC 5041 §8.3.2 [5041-58]: no peer takes more receives than its fair share
        // RFC 5042 §6.4.3.1 [5042-14]: no peer takes more than its fair share of receives
        let grant = grant.min(max).max(1);
        debug_assert!(grant == 1 || grant <= max, "no grant is above the limit");
        grant
    }
}

impl Core {
    /// The grant for a new connection; none if not even one call fits. It is a small part of the
    /// free receives, since more connections may follow.
    pub(crate) fn first_grant(&self) -> Option<u32> {
        let part = u32::try_from(self.receives.free() / 8).unwrap_or(u32::MAX);
        let first = self.config.grant_first.min(self.config.grant).min(part).max(1);
        self.receives.fits(first as usize).then_some(first)
    }

    /// Adapts a peer's grant before a reply that announces it and pushes `pushed` octets.
    pub(crate) fn adapt_grant(&mut self, peer: PeerId, pushed: u64) {
        let whole = |receives: usize| u32::try_from(receives).unwrap_or(u32::MAX);
        let quarter = self.receives.count() / 4;
        let grant = PeerGrant {
            granted: 0,
            wanted: 0,
            max: self.config.grant.min(whole(quarter)).max(1),
            // RFC 8166 §3.3.1 [8166-4]: receives are posted before a higher grant is sent
            // draft 004 §4.4.1 [exp-27]: all grants together never exceed the receives
            // draft 002 §4.3.2 [bidir-13]: no more credits are granted than receives are posted
            free: whole(self.receives.free().saturating_sub(quarter)),
            fair: whole(self.receives.count() / self.peers.len().max(1)),
        };
        let Some(entry) = self.peers.get_mut(peer) else { return };
        entry.served.count_octets(pushed);
        let Link::Fabric(FabricLink { state: Some(connection), .. }) = &mut entry.link else {
            return;
        };
        if connection.side() == Side::Client {
            return; // What a server may call is small, and fixed.
        }
        let Some(credits) = connection.serves_mut() else { return };
        let granted = credits.granted().0;
        if !entry.grant.is_used_up(granted) {
            return entry.grant.count_reply();
        }
        entry.grant.forget_replies();
        let next = PeerGrant { granted, wanted: entry.grant.latest().wanted, ..grant }.next();
        if next != granted {
            credits.set_grant(next);
            self.counters.stats.responder.grant = self.counters.stats.responder.grant.max(next);
            self.settle_receives(peer);
        }
    }

    /// Adjusts the receives promised to a peer to the number of messages that its connection may
    /// bring.
    pub(crate) fn settle_receives(&mut self, peer: PeerId) {
        let Some(entry) = self.peers.get_mut(peer) else { return };
        let Link::Fabric(FabricLink { state: Some(connection), .. }) = &entry.link else { return };
        let serves = connection.serves().map_or(0, |credits| credits.reserved() as usize);
        // draft 002 §4.3.2 [bidir-14]: each reverse call has a receive for its reply
        let calls = connection.calls().map_or(0, |credits| credits.requested().0 as usize);
        // draft 002 §4.3 [bidir-10]: a receive is posted before its message may arrive
        let promised = serves + calls + entry.options.receives();
        self.receives.release(entry.life.promised);
        self.receives.promise(promised);
        entry.life.promised = promised;
    }
}

impl<P: Provider, A: App> Shard<P, A> {
    /// Disconnects the peer that has been idle for longest, if there is one, so that a newcomer
    /// finds room when it retries.
    pub(crate) fn make_room(&mut self) {
        let now = self.core.now;
        let idle = |calls: u32, last: Time| calls == 0 && now.since(last) >= IDLE_MIN;
        let oldest = self
            .core
            .peers
            .iter()
            .filter_map(|(key, peer)| {
                let Link::Fabric(FabricLink { state: Some(connection), .. }) = &peer.link else {
                    return None;
                };
                let in_flight = connection.calls().map_or(0, |credits| credits.in_flight());
                let outstanding = connection.serves()?.outstanding() + in_flight;
                if connection.side() == Side::Client {
                    return None; // We connected, for a reason of our own.
                }
                let called_at = peer.grant.latest().called_at;
                idle(outstanding, called_at).then_some((called_at, key))
            })
            .min_by_key(|(called_at, peer)| (*called_at, peer.0));
        if let Some((_, peer)) = oldest {
            self.core.counters.stats.limits.idle_disconnected += 1;
            self.disconnect(peer);
        }
    }

    /// Ends the connections with the most receives until those posted, or held by calls, cover all
    /// that others were promised. Needed when the fabric refuses a receive: a message that finds
    /// none would wait for ever.
    #[cold]
    #[inline(never)]
    pub(crate) fn withdraw_promises(&mut self) {
        while self.core.receives.are_short() {
            let promised = self.core.peers.iter_mut().filter(|(_, entry)| entry.life.promised > 0);
            let Some((peer, entry)) =
                promised.max_by_key(|(peer, entry)| (entry.life.promised, peer.0))
            else {
                return;
            };
            self.core.receives.release(std::mem::take(&mut entry.life.promised));
            entry.options.forget(); // They were among the promised ones.
            self.core.counters.stats.limits.promises += 1;
            self.disconnect(peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::grant_use::GrantUse;
    use stag_protocol::rpcrdma::Credits;

    const GRANT: PeerGrant = PeerGrant { granted: 8, wanted: 128, max: 64, free: 1_000, fair: 4 };

    #[test]
    fn a_grant_doubles_and_never_exceeds_a_limit() {
        assert_eq!(GRANT.next(), 16);
        assert_eq!(PeerGrant { wanted: 10, ..GRANT }.next(), 10);
        assert_eq!(PeerGrant { wanted: 0, ..GRANT }.next(), 8);
        assert_eq!(PeerGrant { max: 12, ..GRANT }.next(), 12);
        assert_eq!(PeerGrant { free: 3, ..GRANT }.next(), 11);
        assert_eq!(PeerGrant { granted: 1, ..GRANT }.next(), 2);
        let most = PeerGrant { granted: u32::MAX, wanted: u32::MAX, max: u32::MAX, ..GRANT };
        assert_eq!(most.next(), u32::MAX);
    }

    #[test]
    fn a_grant_of_one_that_suffices_is_not_looked_at() {
        for (granted, wanted, free, fair) in
            [(1, 0, 9, 4), (1, 1, 9, 4), (1, 1, 0, 4), (1, 1, 0, 0)]
        {
            let (mut used, grant) =
                (GrantUse::new(Time(0)), PeerGrant { granted, wanted, free, fair, ..GRANT });
            used.note_call(Credits(wanted), Time(0));
            assert!(!used.is_used_up(granted) && grant.next() == granted, "{grant:?}");
        }
        let mut used = GrantUse::new(Time(0));
        used.note_call(Credits(2), Time(0));
        assert!(used.is_used_up(1) && !used.is_used_up(2));
        used.count_reply();
        assert!(used.is_used_up(2));
    }

    #[test]
    fn grants_above_the_fair_share_shrink_to_it_when_receives_are_short() {
        let short = PeerGrant { free: 0, ..GRANT };
        assert_eq!(short.next(), 4);
        assert_eq!(PeerGrant { granted: 6, ..short }.next(), 4);
        assert_eq!(PeerGrant { granted: 64, ..short }.next(), 32);
        assert_eq!(PeerGrant { granted: 3, ..short }.next(), 3);
        assert_eq!(PeerGrant { granted: 1, fair: 0, ..short }.next(), 1);
    }
}
