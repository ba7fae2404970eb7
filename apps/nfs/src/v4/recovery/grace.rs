//! Restart recovery: which clients may reclaim the state they had before this restart, the records
//! that allow it after the next one, and the grace period (RFC 8881 §8.4.2, §8.4.3).
//!
//! | acknowledged | once this is recorded |
//! |---|---|
//! | the first OPEN of a client, and the next after a lease without state | it may have state |
//! | RECLAIM_COMPLETE of a client that has reclaimed state | it keeps that |
//! | state that conflicts with an expired client's | that client's record is removed |
//! | an access that conflicts with a revoked delegation | its client may not reclaim |
//! | the first delegation to write | there are some |
//! | the first state after the grace period | its end |
//!
//! A shard blocks on none of them: the reply of RECLAIM_COMPLETE is held, that first OPEN is
//! suspended before it changes anything, and others are NFS4ERR_DELAY until then. While the storage
//! fails, RECLAIM_COMPLETE is answered, and OPEN is NFS4ERR_DELAY: no client gets state that a
//! restart would lose.
//!
//! A client without state has no record, so that no grace period waits for it: the record is
//! removed after a lease without state. So is the record of a client with state that has been
//! silent for some leases; if it comes back in the same run, it is recorded again. An OPEN of a
//! recorded client costs nothing.

use std::{collections::HashMap, time::Duration};

use stag_engine::Time;
use stag_protocol::nfs::v4::{Stateid, Status4};

use super::record_writer::{AfterRecord, RecordQueue};
use crate::{
    records::{Boot, ClientRecord, RecordChange, RecordKeeper},
    reply::ReplyWriter,
    requester::{CallSource, Requester, ShardPeer},
    v4::{
        Nfs4, milliseconds,
        session::{Client, NewClient, RecordPhase, SlotInUse},
    },
};
use stag_nfs4_state::{ClientKey, DelegationPolicy, StateKey};

/// Replies that wait for a record at most; further replies do not wait.
const HELD_MAX: usize = 256;

/// The beginning of a server that keeps records of its clients.
#[derive(Debug)]
pub struct Nfs4Records {
    /// Clients of the last boot. Its epoch is that of [`Nfs4Config`](crate::v4::Nfs4Config).
    pub boot: Boot,
    /// Keeps the records.
    pub keeper: RecordKeeper,
    /// Time for which listed clients may reclaim: a lease of the last boot at least.
    pub grace: Duration,
}

/// A reply that is sent when its client is recorded.
#[derive(Debug)]
pub(in crate::v4) struct HeldReply {
    /// The client ID.
    pub(in crate::v4) client: u64,
    /// The call, and the caller that waits for it.
    pub(in crate::v4) requester: Option<Requester>,
    pub(in crate::v4) slot: Option<SlotInUse>,
    pub(in crate::v4) reply: ReplyWriter,
}

/// Clients of the last boot, and replies that wait for records of this one.
#[derive(Debug, Default)]
pub(in crate::v4) struct Recovery {
    pub(in crate::v4) queue: RecordQueue,
    /// Clients that may reclaim and have not returned, by their owners.
    pub listed: HashMap<Box<[u8]>, ClientRecord>,
    /// The grace period that begins with the first reading of the clock.
    grace: Option<Duration>,
    /// Delegations to write may have been given before the restart.
    had_write_delegations: bool,
    /// Phase of the same record in this boot.
    pub write_delegations: RecordPhase,
    pub held: Vec<HeldReply>,
    /// The client whose completion this compound has asked to record.
    asked: Option<u64>,
    /// The end of the grace period waits until no completion is pending.
    pub ends_grace: bool,
    /// State of this gateway was ended after a takeover.
    pub is_ended: bool,
}

impl Recovery {
    /// A server that begins with these records.
    pub(in crate::v4) fn new(records: Nfs4Records) -> Self {
        let Nfs4Records { boot, keeper, grace } = records;
        let listed = boot.clients.into_iter().map(|client| (client.owner.clone(), client));
        let listed: HashMap<_, _> = listed.collect();
        Self {
            grace: Some(grace).filter(|_| !listed.is_empty()),
            listed,
            queue: RecordQueue::new(keeper),
            had_write_delegations: boot.had_write_delegations,
            ..Self::default()
        }
    }

    /// Returns true while anything waits for a record, or the grace period has not begun.
    pub(in crate::v4) fn has_work(&self) -> bool {
        self.queue.len() > 0 || !self.held.is_empty() || self.grace.is_some()
    }

    /// Returns true if a client could have had a delegation to write before the restart.
    pub(in crate::v4) const fn had_write_delegations(&self) -> bool {
        self.had_write_delegations
    }

    /// Notes that the reply of the compound waits for the record of this client.
    pub(in crate::v4) const fn hold_reply(&mut self, client: u64) {
        self.asked = Some(client);
    }

    /// The client whose record the reply of the compound waits for. Few replies wait, and none
    /// while recording fails.
    pub(in crate::v4) fn take_held_client(&mut self) -> Option<u64> {
        let client = self.asked.take()?;
        (self.held.len() < HELD_MAX && !self.queue.is_failing).then_some(client)
    }

    /// The same for a compound that waits for something else first.
    pub(in crate::v4) const fn take_asked(&mut self) -> Option<u64> {
        self.asked.take()
    }

    /// Keeps a reply until its client is recorded.
    pub(in crate::v4) fn hold(&mut self, held: HeldReply) {
        self.held.push(held);
    }

    /// Replies to a disconnected peer only free their slots when they may.
    pub(in crate::v4) fn forget_peer(&mut self, at: ShardPeer) {
        for held in &mut self.held {
            // A slot at another shard waits for the reply in any case.
            let is_lent = held.slot.is_some_and(|slot| slot.is_lent);
            held.requester.take_if(|requester| requester.at() == at && !is_lent);
        }
    }
}

fn record_of(client: &Client) -> ClientRecord {
    ClientRecord {
        owner: client.owner.clone(),
        verifier: client.verifier,
        principal: client.principal,
        origin: client.mark,
    }
}

impl Nfs4 {
    /// Begins the grace period, if there is one and it has not begun.
    pub(in crate::v4) fn begin_grace(&mut self, now: Time) {
        if let Some(grace) = self.recovery.grace.take() {
            let listed = u32::try_from(self.recovery.listed.len()).unwrap_or(u32::MAX);
            // RFC 8881 §8.4.2.1 [8881-261]: reclaims have a lease's time at least
            self.state.begin_grace(listed, milliseconds(now + grace));
        }
    }

    /// Checks whether an owner may get a client ID while clients reclaim. An owner that had state
    /// before the restart belongs to its user and to its host, which is known by its verifier, or
    /// else by its address.
    ///
    /// # Errors
    /// NFS4ERR_CLID_INUSE for another user; NFS4ERR_DELAY for another host, as it may be the same
    /// client that restarted.
    pub(in crate::v4) fn check_listed(
        &self,
        new: &NewClient<'_>,
        source: CallSource,
    ) -> Result<(), Status4> {
        let Some(listed) = self.recovery.listed.get(new.owner) else { return Ok(()) };
        // RFC 8881 §8.4.2.1 [8881-262]: no other principal reclaims by a client's name
        if !listed.principal.is_of(new.principal) {
            return Err(Status4::ClidInUse);
        }
        let is_same_host = listed.verifier == new.verifier
            || listed.origin.allows(self.mark(&listed.verifier, source));
        if is_same_host { Ok(()) } else { Err(Status4::Delay) }
    }

    /// Returns true if the records list a confirmed client: it is the one that had state.
    pub(in crate::v4) fn take_listed(&mut self, id: u64) -> bool {
        let Some(client) = self.clients.get(id) else { return false };
        let Some(listed) = self.recovery.listed.get(&client.owner) else { return false };
        debug_assert!(listed.principal.is_of(client.principal), "EXCHANGE_ID judged it");
        let is_same = listed.verifier == client.verifier;
        let owner = client.owner.clone();
        self.recovery.listed.remove(&owner);
        if is_same {
            if let Some(client) = self.clients.get_mut(id) {
                client.record = RecordPhase::Stable;
            }
        } else {
            // It restarted, and has lost its state.
            self.state.forget_listed();
            self.recovery.queue.push(RecordChange::Remove(owner), AfterRecord::Nothing);
        }
        is_same
    }

    /// RECLAIM_COMPLETE for all file systems. A client that has reclaimed state keeps it once that
    /// is recorded; the record of one that has none is removed.
    ///
    /// # Errors
    /// NFS4ERR_COMPLETE_ALREADY; NFS4ERR_DELAY when too many records wait.
    pub(in crate::v4) fn complete_reclaims(&mut self, id: u64, now: Time) -> Result<(), Status4> {
        let client = self.clients.get(id).ok_or(Status4::StaleClientid)?;
        let key = client.key.ok_or(Status4::StaleClientid)?;
        if !self.recovery.queue.has_room() {
            return Err(Status4::Delay);
        }
        self.state.complete_reclaims(key, false)?;
        if self.state.states_of(key) == 0 {
            self.drop_record(id, now);
        } else if !self.record_client(id, now) {
            self.recovery.hold_reply(id);
        }
        self.tell_client_flags(id);
        if self.state.awaited_reclaims() == Some(0) {
            // Others wait for the end of the grace period.
            self.renew_lent(now);
            self.state.handle_time(milliseconds(now));
        }
        Ok(())
    }

    /// Has a client recorded before it gets state. Returns true if it is recorded.
    pub(in crate::v4) fn record_client(&mut self, id: u64, now: Time) -> bool {
        if !self.recovery.queue.is_kept() {
            return true;
        }
        let Some(client) = self.clients.get_mut(id) else { return false };
        // A record of an earlier boot would be removed at the end of the grace period.
        let is_new = matches!(client.record, RecordPhase::None | RecordPhase::Stable);
        if is_new && self.recovery.queue.has_room() {
            client.record = RecordPhase::Asked;
            let change = RecordChange::Complete(record_of(client));
            self.recovery.queue.push(change, AfterRecord::Grant(id));
            self.settle_records(now);
        }
        self.clients.get(id).is_some_and(|client| client.record == RecordPhase::Stable)
    }

    /// A client has had no state for a lease, or is silent: no grace period should wait for it. A
    /// client with an operation that waits may be about to get some.
    pub(in crate::v4) fn forget_record(&mut self, key: ClientKey, now: Time) {
        let Some(id) = self.state.client_id(key) else { return };
        let waits =
            self.suspended.find(|compound| compound.is_in(|slot| slot.client == id)).is_some();
        if waits || !self.recovery.queue.has_room() {
            return;
        }
        if self.drop_record(id, now) {
            self.state.await_record(key);
            // OPENs begin at the home again.
            self.tell_client_flags(id);
        }
    }

    /// Drops the record of a client; no reply waits for that. Returns true if there was one.
    fn drop_record(&mut self, id: u64, now: Time) -> bool {
        let client = self.clients.get_mut(id);
        let Some(client) = client.filter(|client| client.record == RecordPhase::Stable) else {
            return false;
        };
        client.record = RecordPhase::None;
        let change = RecordChange::Remove(client.owner.clone());
        self.recovery.queue.push(change, AfterRecord::Nothing);
        self.settle_records(now);
        true
    }

    /// Removes the record of a client that has ended with its state. No reply waits for that.
    pub(in crate::v4) fn record_gone(&mut self, client: &Client) {
        let was_asked = self.recovery.queue.forget(client.id);
        let is_recorded = client.record == RecordPhase::Stable;
        if is_recorded || (client.record == RecordPhase::Asked && !was_asked) {
            let change = RecordChange::Remove(client.owner.clone());
            self.recovery.queue.push(change, AfterRecord::Nothing);
        }
    }

    /// Ends a client whose lease expired, because its state conflicts with a request: at once if it
    /// is not recorded, or after its record is changed. Returns true when it is gone, or is not
    /// expired.
    pub(in crate::v4) fn remove_expired(&mut self, key: ClientKey, now: Time) -> bool {
        if self.is_renewed(key, now) {
            return true;
        }
        let id = self.state.client_id(key);
        let Some(client) = id.and_then(|id| self.clients.get_mut(id)) else {
            return self.state.release_some(key, crate::v4::session::incarnations::RELEASES);
        };
        let id = client.id;
        if !self.bring_home(id) {
            return false;
        }
        let Some(client) = self.clients.get_mut(id) else { return false };
        match client.record {
            RecordPhase::Leaving => return false,
            RecordPhase::None => {
                self.end_client(id);
                return self.state.client_id(key).is_none();
            }
            RecordPhase::Asked | RecordPhase::Stable => {}
        }
        client.record = RecordPhase::Leaving;
        // RFC 8881 §8.4.3 [8881-263]: a client that lost its state reclaims none of it, and this is
        // recorded before another gets any
        let change = RecordChange::Remove(client.owner.clone());
        self.recovery.queue.push(change, AfterRecord::End(key));
        self.settle_records(now);
        self.state.client_id(key).is_none()
    }

    /// Revokes a delegation that was not returned in time, once that is recorded.
    pub(in crate::v4) fn revoke_recorded(&mut self, state: StateKey, now: Time) {
        self.revoke_unheard(state, &self.speaking(), now);
    }

    /// Revokes delegations whose clients are unsettled and have no queued requests.
    pub(crate) fn revoke_waiting(&mut self, now: Time) {
        // Both the delegations and the requests may be many.
        let speaking = self.speaking();
        for state in std::mem::take(&mut self.revocations) {
            // Delegations of other clients are put back.
            self.revoke_unheard(state, &speaking, now);
        }
    }

    /// Revokes a delegation, unless its client has a queued request, which may return it.
    fn revoke_unheard(&mut self, state: StateKey, speaking: &[u64], now: Time) {
        let client = self.state.holder(state).and_then(|key| self.state.client_id(key));
        if client.is_some_and(|id| !self.unsettle(id) || speaking.contains(&id)) {
            return self.revocations.push(state);
        }
        let client = client.and_then(|id| self.clients.get(id));
        match client.filter(|client| client.record != RecordPhase::None) {
            Some(client) => {
                // RFC 8881 §8.4.3 [8881-264]: so does a client whose delegation is revoked
                let change = RecordChange::Forbid(client.owner.clone());
                self.recovery.queue.push(change, AfterRecord::Revoke(state));
                self.settle_records(now);
            }
            None => self.state.revoke(state),
        }
    }

    /// FREE_STATEID: by freeing its last revoked delegation a client acknowledges its loss, and may
    /// reclaim the rest after a restart.
    ///
    /// # Errors
    /// As [`StateTables::free`](stag_nfs4_state::StateTables::free); NFS4ERR_DELAY when too many
    /// records wait.
    pub(in crate::v4) fn free_stateid(
        &mut self,
        key: ClientKey,
        stateid: &Stateid,
        now: Time,
    ) -> Result<(), Status4> {
        let had_revoked = self.state.sequence_flags(key) != 0;
        if had_revoked && !self.recovery.queue.has_room() {
            return Err(Status4::Delay);
        }
        self.state.free(key, stateid)?;
        if !had_revoked || self.state.sequence_flags(key) != 0 {
            return Ok(());
        }
        // For the next one to be revoked, reclaims were forbidden already.
        if self.recovery.queue.revokes(|state| self.state.holder(state) == Some(key)) {
            return Ok(());
        }
        let client = self.state.client_id(key).and_then(|id| self.clients.get(id));
        if let Some(client) = client.filter(|client| client.record == RecordPhase::Stable) {
            // RFC 8881 §8.4.3 [8881-264]: until the client has acknowledged it by FREE_STATEID
            let change = RecordChange::Allow(client.owner.clone());
            self.recovery.queue.push(change, AfterRecord::Nothing);
            self.settle_records(now);
        }
        Ok(())
    }

    /// The grace period is over, which is recorded before any client gets new state.
    pub(in crate::v4) fn end_grace(&mut self, now: Time) {
        self.recovery.ends_grace = true;
        self.settle_records(now);
    }

    /// Delegations that may be granted for files of a file system: none to write before it is
    /// recorded that there are some.
    pub(in crate::v4) fn delegation_policy(&mut self, fsid: u64, now: Time) -> DelegationPolicy {
        let policy = match self.exclusive.contains(&fsid) {
            true => DelegationPolicy::ReadWrite,
            false if self.watches(fsid) => DelegationPolicy::Watched,
            false => self.config.delegations,
        };
        if policy != DelegationPolicy::ReadWrite {
            return policy;
        }
        if self.recovery.write_delegations == RecordPhase::None {
            self.recovery.write_delegations = RecordPhase::Asked;
            let change = RecordChange::WriteDelegations;
            self.recovery.queue.push(change, AfterRecord::WriteDelegations);
            self.settle_records(now);
        }
        match self.recovery.write_delegations {
            RecordPhase::Stable => policy,
            _ => DelegationPolicy::Read,
        }
    }
}
