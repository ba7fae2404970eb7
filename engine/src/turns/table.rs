//! The accounts of a shard: of its connections, and of hosts of other shards.

use super::COST_MAX;
use crate::{
    peer_view::ClientHost,
    state::{ActivePayer, Payer, Peers, TurnAccount, Turns},
};
use stag_verbs::Time;

impl Turns {
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
