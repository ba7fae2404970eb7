//! The accounts of a shard: of its connections, and of hosts of other shards.

use super::{
    ActiveHost, ActivePayer, COST_MAX, ClientHost, Meter, Payer, Remotes, TurnAccount, Turns,
};
use crate::peers::Peers;
use stag_verbs::Time;
use std::sync::Arc;

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
        }
    }

    /// Returns true while calls are measured.
    #[inline(always)]
    pub(crate) const fn are_metered(&self) -> bool {
        self.is_metered
    }

    pub(super) fn clock(&self) -> Time {
        self.meter.as_ref().map_or(self.mark, |meter| meter.now())
    }

    /// The account of a payer.
    pub(super) fn account<'a>(
        &'a mut self,
        peers: &'a mut Peers,
        payer: Payer,
    ) -> &'a mut TurnAccount {
        match payer {
            Payer::Peer(peer) => match peers.get_mut(peer) {
                Some(entry) => &mut entry.turn,
                None => &mut self.passers,
            },
            Payer::Passers => &mut self.passers,
            Payer::Remote(place) => self.remotes.account(place),
        }
    }

    /// The account of a payer; none if its connection is gone.
    pub(super) fn known(&self, peers: &Peers, payer: Payer) -> Option<TurnAccount> {
        match payer {
            Payer::Peer(peer) => peers.get(peer).map(|entry| entry.turn),
            Payer::Passers => None,
            Payer::Remote(place) => self.remotes.get(place).map(|known| known.account),
        }
    }

    /// The accounts that several callers share. They are never active.
    pub(super) const fn shared(&self) -> [TurnAccount; 2] {
        [self.passers, self.remotes.others]
    }

    /// The host of a payer; none if its connection is gone.
    pub(super) fn host_of(&self, peers: &Peers, payer: Payer) -> Option<ClientHost> {
        match payer {
            Payer::Peer(peer) => {
                peers.get(peer).map(|entry| ClientHost::of(entry.address, ClientHost::Peer(peer)))
            }
            Payer::Passers => None,
            Payer::Remote(place) => self.remotes.get(place).map(|known| known.host),
        }
    }

    /// Adds an account to the active ones.
    pub(super) fn activate(&mut self, payer: Payer, host: ClientHost) -> u32 {
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
        self.active.push(ActivePayer { payer, host: place as u32 });
        place as u32
    }

    pub(super) fn deactivate(hosts: &mut [ActiveHost], count: &mut usize, host: u32) {
        if let Some(known) = hosts.get_mut(host as usize) {
            known.connections = known.connections.saturating_sub(1);
            *count -= usize::from(known.connections == 0);
        }
    }

    /// The number of active connections of a host, by which its time is multiplied.
    pub(super) fn weight(&self, host: Option<u32>) -> u64 {
        let known = host.and_then(|host| self.hosts.get(host as usize));
        known.map_or(1, |known| known.connections.max(1).into())
    }

    /// Charges the idle time since the latest measured pass to the connections that were waited
    /// for.
    pub(super) fn charge_idle(&mut self, peers: &mut Peers, now: Time, pass: u64) {
        let idle = now.since(self.begun).min(COST_MAX).as_nanos() as u64;
        let awaited = |account: &TurnAccount| {
            account.is_brisk && account.is_fresh(now, pass) && !account.has_work(pass)
        };
        let known = |active: &ActivePayer| self.known(peers, active.payer);
        let count = self.active.iter().filter_map(known).filter(|account| awaited(account)).count();
        let has_waiting = self.has_waiting(peers, pass);
        let Some(each) = idle.checked_div(count as u64).filter(|_| has_waiting) else { return };
        for place in 0..self.active.len() {
            let Some(ActivePayer { payer, .. }) = self.active.get(place).copied() else { break };
            if self.known(peers, payer).is_some_and(|account| awaited(&account)) {
                self.account(peers, payer).spent += each;
            }
        }
    }

    pub(super) fn has_waiting(&self, peers: &Peers, pass: u64) -> bool {
        let known = |active: &ActivePayer| self.known(peers, active.payer);
        let mut accounts = self.active.iter().filter_map(known);
        let has_work = |account: &TurnAccount| account.has_work(pass);
        self.shared().iter().any(has_work) || accounts.any(|account| has_work(&account))
    }

    /// Removes connections that have had no work for a while, and finds the lowest account.
    pub(super) fn review(&mut self, peers: &mut Peers, now: Time, pass: u64) {
        let Self { active, hosts, count, remotes, .. } = self;
        let mut floor = None::<u64>;
        active.retain(|active| {
            let account = match active.payer {
                Payer::Peer(peer) => peers.get_mut(peer).map(|entry| &mut entry.turn),
                Payer::Passers => None,
                Payer::Remote(place) => Some(remotes.account(place)),
            };
            let Some(account) = account else {
                Self::deactivate(hosts, count, active.host);
                return false;
            };
            let (is_fresh, has_work) = (account.is_fresh(now, pass), account.has_work(pass));
            if has_work || is_fresh && account.is_brisk {
                floor = Some(floor.map_or(account.spent, |least| least.min(account.spent)));
            }
            if !has_work && !is_fresh {
                account.host = None;
                Self::deactivate(hosts, count, active.host);
            }
            has_work || is_fresh
        });
        for account in self.shared().iter().filter(|account| account.has_work(pass)) {
            floor = Some(floor.map_or(account.spent, |least| least.min(account.spent)));
        }
        // Accounts begin at the floor, so it never falls.
        self.floor = floor.unwrap_or(self.floor).max(self.floor);
    }
}
