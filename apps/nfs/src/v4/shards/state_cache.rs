//! READ and WRITE on the shard that has a client's sessions (RFC 8881 §8.2, §9.1).
//!
//! A client is *settled* on a shard if all its sessions are lent to that shard. Its opens, locks
//! and delegations stay at the home, as for every client. Before the home sends a reply that grants
//! one, it sends the shard the access that the state allows. The shard checks READ and WRITE
//! against that, and asks the home about any state it has no entry for. Before the home revokes
//! state of a client, or serves the client another way, the shard drops its entries for the client,
//! completes the requests that it has admitted, and confirms: the client is unsettled then.

use crate::{
    requester::ShardPeer,
    v4::{
        Nfs4,
        context::{CompoundContext, OpResult, state_calls::file_id},
        session::{CachedAt, RecordPhase},
    },
};
use std::collections::HashMap;

use stag_engine::Time;
use stag_protocol::{
    nfs::{
        v3::FileHandle,
        v4::{Compound, Request, Stateid, Status4},
    },
    xdr::Reader,
};

use super::messages::{ForwardedCompound, FromHome};
use stag_nfs_store::Store;
use stag_nfs4_state::{FactAccess, FactChange, FileId, IoAccess, IoFact, StateOther, allows};

/// Facts that the home has shared about the states of settled clients.
#[derive(Debug, Default)]
pub(in crate::v4) struct StateCache {
    /// Sessions of each client whose slots are here.
    sessions: HashMap<u64, u32>,
    facts: HashMap<StateOther, IoFact>,
    /// Clients that the home has asked to drop, while requests admitted for them are executing.
    leaving: Vec<u64>,
}

impl StateCache {
    /// A session of a client was lent to this shard.
    pub(in crate::v4) fn add_session(&mut self, client: u64) {
        *self.sessions.entry(client).or_default() += 1;
    }

    /// A session of a client was returned. With the last one, all facts are dropped.
    pub(in crate::v4) fn end_session(&mut self, client: u64) {
        let Some(count) = self.sessions.get_mut(&client) else { return };
        *count -= 1;
        if *count == 0 {
            self.sessions.remove(&client);
            self.forget(client);
        }
    }

    /// Returns true while the home waits until this client is dropped.
    pub(in crate::v4) fn is_leaving(&self, client: u64) -> bool {
        self.leaving.contains(&client)
    }

    fn forget(&mut self, client: u64) {
        self.facts.retain(|_, fact| fact.client != client);
    }

    /// Drops the facts about a state that its client releases.
    fn give_up(&mut self, client: u64, other: &StateOther) {
        if self.facts.get(other).is_some_and(|fact| fact.client == client) {
            self.facts.remove(other);
        }
    }

    fn take(&mut self, change: FactChange) {
        match change.fact {
            Some(fact) if self.sessions.contains_key(&fact.client) => {
                self.facts.insert(change.other, fact);
            }
            _ => drop(self.facts.remove(&change.other)),
        }
    }

    /// Returns true if a stateid gives a client an access to a file. If not, the home has to check
    /// it.
    pub(in crate::v4) fn cover(&self, asked: &Stateid, about: IoAbout) -> bool {
        let fact = self.facts.get(&asked.other);
        let fact = fact.filter(|fact| fact.is_current(asked, about.client, about.file));
        let bits = match fact.map(|fact| fact.access) {
            Some(FactAccess::Under(open)) => self.facts.get(&open).map(|open| open.access),
            access => access,
        };
        matches!(bits, Some(FactAccess::Bits(bits)) if allows(bits, about.access))
    }
}

/// An access to data.
#[derive(Clone, Copy, Debug)]
pub(in crate::v4) struct IoAbout {
    pub(in crate::v4) client: u64,
    pub(in crate::v4) file: FileId,
    pub(in crate::v4) access: IoAccess,
}

/// The home's side.
impl Nfs4 {
    /// Returns true if a client can be settled: it has one session, and no more states than the
    /// `requests` that came over that shard, which pay for the messages about them. Not while its
    /// record is being removed: it ends then, and only the home may decide for it.
    pub(in crate::v4) fn may_settle(&self, id: u64, requests: u32) -> bool {
        let client = self
            .clients
            .get(id)
            .filter(|client| client.settled == CachedAt::Nowhere && client.sessions == 1)
            .filter(|client| client.record != RecordPhase::Leaving);
        let states = client.and_then(|client| client.key).map(|key| self.state.states_of(key));
        states.is_some_and(|states| states <= requests as usize)
    }

    /// A session of a client was lent. Settles the client if it [may](Self::may_settle) be, and
    /// sends the shard the facts about its states.
    pub(in crate::v4) fn settle(&mut self, id: u64, shard: u16, requests: u32) {
        if self.may_settle(id, requests)
            && let Some(client) = self.clients.get_mut(id)
            && let Some(key) = client.key
        {
            client.settled = CachedAt::At(shard);
            self.state.watch();
            self.state.note_all(key);
        }
    }

    /// Returns true if no other shard checks READ and WRITE of a client. Otherwise the shard that
    /// does is asked to drop it: try again.
    pub(in crate::v4) fn unsettle(&mut self, id: u64) -> bool {
        let Some(client) = self.clients.get_mut(id) else { return true };
        match client.settled {
            CachedAt::Nowhere => true,
            CachedAt::Leaving => false,
            CachedAt::At(shard) => {
                client.settled = CachedAt::Leaving;
                self.tell(shard, FromHome::Unsettle(id));
                false
            }
        }
    }

    /// Returns true if creating a session over this connection leaves its client settled where it
    /// is. Otherwise as [`unsettle`](Self::unsettle).
    pub(in crate::v4) fn may_join(&mut self, id: u64, at: ShardPeer, takes_loans: bool) -> bool {
        let settled = self.clients.get(id).map_or(CachedAt::Nowhere, |client| client.settled);
        (takes_loans && settled == CachedAt::At(at.shard)) || self.unsettle(id)
    }

    /// Returns true if no other shard checks READ and WRITE of a client.
    pub(in crate::v4) fn is_unsettled(&self, id: u64) -> bool {
        self.clients.get(id).is_none_or(|client| client.settled == CachedAt::Nowhere)
    }

    /// The shard of a client has dropped it.
    pub(crate) fn take_unsettled(&mut self, id: u64, now: Time) {
        let client = self.clients.get_mut(id);
        let key = client.and_then(|client| {
            client.settled = CachedAt::Nowhere;
            client.key
        });
        if let Some(key) = key.filter(|key| self.state.is_to_go(*key)) {
            self.remove_expired(key, now);
        }
        self.revoke_waiting(now);
    }

    /// Sends shards the access that the states of their clients allow. Called before any reply is
    /// sent that grants state.
    pub(in crate::v4) fn tell_facts(&mut self) {
        for change in self.state.take_changes() {
            let settled = self.clients.get(change.client).map(|client| client.settled);
            if let Some(CachedAt::At(shard)) = settled {
                self.tell(shard, FromHome::Fact(change));
            }
        }
    }
}

/// The side of the shard with the sessions.
impl Nfs4 {
    /// Takes a fact about a state from the home.
    pub(crate) fn take_fact(&mut self, change: FactChange) {
        if let Some(borrowed) = &mut self.borrowed
            && !borrowed.told.is_leaving(change.client)
        {
            borrowed.told.take(change);
        }
    }

    /// The home asks to drop a client.
    pub(crate) fn begin_unsettle(&mut self, client: u64) {
        if let Some(borrowed) = &mut self.borrowed {
            borrowed.told.forget(client);
            borrowed.told.leaving.push(client);
        }
    }

    /// The next dropped client that has no admitted requests executing any more.
    pub(crate) fn next_unsettled(&mut self) -> Option<u64> {
        let leaving = &mut self.borrowed.as_mut()?.told.leaving;
        let suspended = &self.suspended;
        let place = leaving.iter().position(|client| !suspended.is_io_of(*client))?;
        Some(leaving.swap_remove(place))
    }

    /// The home is about to execute a compound. The states of its client that it releases give no
    /// access here any more. Returns true if requests admitted by these states are executing:
    /// nothing changes then unless the compound `may_wait`.
    pub(crate) fn give_up(&mut self, operations: &Compound<'_>, may_wait: bool) -> bool {
        let Some(borrowed) = &mut self.borrowed else { return false };
        let mut states = given_up(operations.clone());
        let is_busy = states.any(|stateid| self.suspended.is_io_by(&stateid.other));
        let client = match operations.clone().next() {
            Some(Ok(Request::Sequence(args))) => self.sessions.get(&args.session),
            _ => None,
        };
        if let Some(client) = client.filter(|_| !is_busy || may_wait).map(|it| it.client) {
            for stateid in given_up(operations.clone()) {
                borrowed.told.give_up(client, &stateid.other);
            }
        }
        is_busy
    }

    /// Returns true if requests admitted by states that a compound releases are executing.
    pub(crate) fn is_behind_io(&self, compound: &ForwardedCompound) -> bool {
        let pieces = compound.pieces();
        let operations = Compound::parse(Reader::over(&pieces));
        let mut stateids = operations.into_iter().flat_map(given_up);
        stateids.any(|stateid| self.suspended.is_io_by(&stateid.other))
    }
}

/// The states that a compound releases or downgrades.
fn given_up(operations: Compound<'_>) -> impl Iterator<Item = Stateid> {
    operations.filter_map(|request| match request {
        Ok(Request::Close(args)) => Some(args.open),
        Ok(Request::OpenDowngrade(args)) => Some(args.open),
        Ok(Request::DelegReturn(stateid)) => Some(stateid),
        _ => None,
    })
}

impl<S: Store> CompoundContext<'_, '_, S> {
    /// Checks an access to a file by a client of the home, using the facts that the home has
    /// shared.
    #[cold]
    pub(in crate::v4) fn check_told(
        &self,
        file: &FileHandle,
        stateid: Stateid,
        access: IoAccess,
    ) -> OpResult {
        let about = IoAbout { client: self.client()?, file: file_id(file), access };
        let told = self.nfs4.borrowed.as_ref().map(|borrowed| &borrowed.told);
        match told.is_some_and(|told| told.cover(&stateid, about)) {
            true => Ok(()),
            // It changed since the compound arrived: the home checks the retry.
            false => Err(Status4::Delay.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_protocol::nfs::v4::share;

    const CLIENT: u64 = 7;
    const FILE: FileId = FileId(1);

    fn told(other: u8, access: FactAccess) -> FactChange {
        let fact = IoFact { client: CLIENT, file: FILE, seqid: 3, access };
        FactChange { client: CLIENT, other: [other; 12], fact: Some(fact) }
    }

    fn covers(facts: &StateCache, other: u8, seqid: u32, access: IoAccess) -> bool {
        let stateid = Stateid { seqid, other: [other; 12] };
        facts.cover(&stateid, IoAbout { client: CLIENT, file: FILE, access })
    }

    #[test]
    fn only_what_was_told_of_this_client_and_file_is_let_through() {
        let mut facts = StateCache::default();
        facts.take(told(1, FactAccess::Bits(share::READ)));
        assert!(!covers(&facts, 1, 3, IoAccess::Read), "a client without a session here");
        facts.add_session(CLIENT);
        facts.take(told(1, FactAccess::Bits(share::READ)));
        facts.take(told(2, FactAccess::Bits(share::BOTH)));
        facts.take(told(3, FactAccess::Under([2; 12])));
        for (other, may_write) in [(1, false), (2, true), (3, true)] {
            for seqid in [0, 3] {
                assert!(covers(&facts, other, seqid, IoAccess::Read));
                assert_eq!(covers(&facts, other, seqid, IoAccess::Write), may_write);
            }
            assert!(!covers(&facts, other, 2, IoAccess::Read), "an older sequence ID");
        }
        let stateid = Stateid { seqid: 0, other: [2; 12] };
        for (client, file) in [(8, FILE), (CLIENT, FileId(2))] {
            assert!(!facts.cover(&stateid, IoAbout { client, file, access: IoAccess::Read }));
        }
        facts.take(FactChange { client: CLIENT, other: [2; 12], fact: None });
        assert!(!covers(&facts, 2, 0, IoAccess::Read));
        assert!(!covers(&facts, 3, 0, IoAccess::Read), "locks give what their open gives");
    }

    #[test]
    fn with_its_last_session_a_client_is_forgotten() {
        let mut facts = StateCache::default();
        facts.add_session(CLIENT);
        facts.add_session(CLIENT);
        facts.take(told(1, FactAccess::Bits(share::BOTH)));
        facts.end_session(CLIENT);
        assert!(covers(&facts, 1, 3, IoAccess::Write));
        facts.end_session(CLIENT);
        assert!(facts.facts.is_empty() && facts.sessions.is_empty());
    }
}
