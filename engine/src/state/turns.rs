//! The accounts of a shard by which its core is shared (see `turns`).

mod remote;

pub(crate) use remote::Remotes;
pub use remote::{RemoteCaller, TurnHolder};

use crate::{
    clock::Meter,
    peer_view::{ClientHost, PeerId},
};
use stag_verbs::{Qp, Time};
use std::{sync::Arc, time::Duration};

/// Time after its latest call for which a connection is waited for, if its previous gap was
/// shorter.
const GRACE: Duration = Duration::from_micros(200);
/// Minimum number of passes for which it is waited for: a pass may take longer than the time.
const GRACE_PASSES: u64 = 4;

/// The account that a call is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payer {
    /// The account of a connection, or the shared account of short-lived connections if it is gone.
    Peer(PeerId),
    /// The shared account of short-lived connections.
    Passers,
    /// The account at this index of [`Remotes`].
    Remote(usize),
}

/// The account of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TurnAccount {
    /// Nanoseconds that it used, from the base of all accounts.
    pub(crate) spent: u64,
    /// The time and the number of the pass in which it was served last.
    pub(crate) served_at: Time,
    pub(crate) served_in: u64,
    /// The pass in which it last had to wait; 0 once it was served.
    pub(crate) waits_in: u64,
    /// The pass in which the app last put a call of it aside; 0 once that call continues.
    pub(crate) aside_in: u64,
    /// It has output that was posted since the latest doorbell.
    pub(crate) has_posted: bool,
    /// It called again soon after its latest reply.
    pub(crate) is_brisk: bool,
    /// The index of its host, while it is active.
    pub(crate) host: Option<u32>,
}

impl TurnAccount {
    pub(crate) fn is_fresh(&self, now: Time, pass: u64) -> bool {
        now.since(self.served_at) <= GRACE || pass.saturating_sub(self.served_in) <= GRACE_PASSES
    }

    /// Returns true if it has waiting work.
    pub(crate) const fn has_work(&self, pass: u64) -> bool {
        let latest = if self.waits_in > self.aside_in { self.waits_in } else { self.aside_in };
        latest > 0 && latest + 1 >= pass
    }

    /// Returns true if a call of it was put aside.
    pub(crate) const fn has_aside(&self, pass: u64) -> bool {
        self.aside_in > 0 && self.aside_in + 1 >= pass
    }
}

/// An account with recent work, and the index of its host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActivePayer {
    pub(crate) payer: Payer,
    pub(crate) host: u32,
}

/// A host and the number of its active accounts; the entry is free if that is zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActiveHost {
    pub(crate) host: ClientHost,
    pub(crate) connections: u32,
}

/// The accounts of a shard; see the module.
#[derive(Debug)]
pub(crate) struct Turns {
    pub(crate) meter: Option<Arc<dyn Meter>>,
    pub(crate) active: Vec<ActivePayer>,
    pub(crate) hosts: Vec<ActiveHost>,
    /// Hosts with active accounts.
    pub(crate) count: usize,
    /// The connection that was served last while nothing was measured.
    pub(crate) latest: Option<PeerId>,
    /// The same over the fabric, checked for each message.
    pub(crate) latest_qp: Option<Qp>,
    /// The same for hosts of other shards.
    pub(crate) latest_remote: Option<usize>,
    /// Calls are measured.
    pub(crate) is_metered: bool,
    pub(crate) metered_until: Time,
    /// The lowest account of all connections that are waited for.
    pub(crate) floor: u64,
    /// Time up to which everything is charged.
    pub(crate) mark: Time,
    /// Start of the latest measured pass, and a flag that something was charged since.
    pub(crate) begun: Time,
    pub(crate) has_served: bool,
    /// The account of short-lived connections: the cost of making and ending one, and calls whose
    /// connection is gone.
    pub(crate) passers: TurnAccount,
    pub(crate) remotes: Remotes,
    /// Connections with output that is sent at the next doorbell.
    pub(crate) posted: Vec<PeerId>,
    /// Weights of connections in the time that is being shared out.
    pub(crate) moved: Vec<(PeerId, u64)>,
    /// The provider has notes of octets that it moved before calls were measured.
    pub(crate) is_moved_stale: bool,
    /// Replies of this shard at the latest charge.
    pub(crate) replies: u64,
}

impl Turns {
    /// Accounts for this number of peers.
    pub(crate) fn new(meter: Option<Arc<dyn Meter>>, peers: usize) -> Self {
        Self {
            meter,
            active: Vec::with_capacity(peers + Remotes::MAX),
            hosts: Vec::with_capacity(peers + Remotes::MAX),
            count: 0,
            latest: None,
            latest_qp: None,
            latest_remote: None,
            is_metered: false,
            metered_until: Time(0),
            floor: 0,
            mark: Time(0),
            begun: Time(0),
            has_served: false,
            passers: TurnAccount::default(),
            remotes: Remotes::new(),
            posted: Vec::with_capacity(peers),
            moved: Vec::with_capacity(2 * peers),
            is_moved_stale: false,
            replies: 0,
        }
    }

    /// Adds to the weight of a connection in the time that is being shared out.
    pub(crate) fn add_moved(&mut self, peer: PeerId, weight: u64) {
        if self.moved.len() < self.moved.capacity() {
            self.moved.push((peer, weight));
        }
    }

    /// Returns true while calls are measured.
    #[inline(always)]
    pub(crate) const fn are_metered(&self) -> bool {
        self.is_metered
    }

    pub(crate) fn clock(&self) -> Time {
        self.meter.as_ref().map_or(self.mark, |meter| meter.now())
    }

    /// The accounts that several callers share. They are never active.
    pub(crate) const fn shared(&self) -> [TurnAccount; 2] {
        [self.passers, self.remotes.others]
    }

    /// Adds an account to the active ones.
    pub(crate) fn activate(&mut self, payer: Payer, host: ClientHost) -> u32 {
        let is_it = |known: &ActiveHost| known.connections > 0 && known.host == host;
        let free = |known: &ActiveHost| known.connections == 0;
        let place = self.hosts.iter().position(is_it);
        let place = place.or_else(|| self.hosts.iter().position(free)).unwrap_or_else(|| {
            self.hosts.push(ActiveHost { host, connections: 0 });
            self.hosts.len() - 1
        });
        if let Some(known) = self.hosts.get_mut(place) {
            self.count += usize::from(known.connections == 0);
            *known = ActiveHost { host, connections: known.connections + 1 };
        }
        debug_assert!(self.count <= self.hosts.len(), "a host with active accounts has an entry");
        debug_assert!(self.active.len() < self.active.capacity(), "an account is active once");
        self.active.push(ActivePayer { payer, host: place as u32 });
        place as u32
    }

    pub(crate) fn deactivate(hosts: &mut [ActiveHost], count: &mut usize, host: u32) {
        if let Some(known) = hosts.get_mut(host as usize) {
            debug_assert!(known.connections > 0, "an active account is counted at its host");
            known.connections = known.connections.saturating_sub(1);
            *count -= usize::from(known.connections == 0);
        }
    }

    /// The number of active connections of a host, by which its time is multiplied.
    pub(crate) fn weight(&self, host: Option<u32>) -> u64 {
        let known = host.and_then(|host| self.hosts.get(host as usize));
        known.map_or(1, |known| known.connections.max(1).into())
    }
}
