//! Accounts of hosts whose calls arrived at other shards and are executed here.

use super::TurnAccount;
use crate::peer_view::ClientHost;
use crate::peer_view::PeerId;
use stag_verbs::PeerAddress;

/// A caller whose connection belongs to another shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteCaller {
    /// Its address.
    pub from: PeerAddress,
    /// The shard of the connection.
    pub shard: u16,
    /// The connection at that shard.
    pub peer: PeerId,
}

/// The connection that a turn belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnHolder {
    /// A connection of this shard.
    Here(PeerId),
    /// A connection of another shard, whose host has one account here.
    Elsewhere(RemoteCaller),
}

impl From<PeerId> for TurnHolder {
    fn from(peer: PeerId) -> Self {
        Self::Here(peer)
    }
}

/// A host of other shards, and its account.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteHost {
    pub(crate) host: ClientHost,
    pub(crate) account: TurnAccount,
}

/// The hosts with recent calls.
#[derive(Debug)]
pub(crate) struct Remotes {
    hosts: Vec<RemoteHost>,
    /// The shared account of further hosts while all entries are in use.
    pub(crate) others: TurnAccount,
}

impl Remotes {
    /// Hosts with accounts of their own. All others share one.
    pub(crate) const MAX: usize = 64;

    pub(crate) fn new() -> Self {
        Self { hosts: Vec::with_capacity(Self::MAX), others: TurnAccount::default() }
    }

    /// The index of a caller's host, which may replace one without work.
    pub(crate) fn place_of(&mut self, caller: RemoteCaller, pass: u64) -> usize {
        let simulated = ClientHost::Remote(caller.shard, caller.peer);
        let host = ClientHost::of(caller.from, simulated);
        if let Some(place) = self.hosts.iter().position(|known| known.host == host) {
            return place;
        }
        let fresh = RemoteHost { host, account: TurnAccount::default() };
        if self.hosts.len() < Self::MAX {
            self.hosts.push(fresh);
            return self.hosts.len() - 1;
        }
        let is_idle =
            |known: &RemoteHost| known.account.host.is_none() && !known.account.has_work(pass);
        let idle = self.hosts.iter().position(is_idle);
        if let Some(known) = idle.and_then(|place| self.hosts.get_mut(place)) {
            *known = fresh;
        }
        idle.unwrap_or(Self::MAX)
    }

    /// The host at an index; none for the shared account.
    pub(crate) fn get(&self, place: usize) -> Option<RemoteHost> {
        self.hosts.get(place).copied()
    }

    pub(crate) fn account(&mut self, place: usize) -> &mut TurnAccount {
        match self.hosts.get_mut(place) {
            Some(known) => &mut known.account,
            None => &mut self.others,
        }
    }
}
