//! Incarnations of a client: the first session of a new one confirms it and ends the previous one
//! (RFC 8881 §18.36.4).

use stag_engine::Time;
use stag_protocol::nfs::v4::Status4;

use super::Session;
use crate::v4::{Nfs4, milliseconds};

/// States of an ended client that one pass drops, however many locks one file has.
pub(in crate::v4) const RELEASES: usize = 128;

impl Nfs4 {
    /// Ends a client: its sessions, its state, its record.
    pub(in crate::v4) fn end_client(&mut self, id: u64) {
        let sessions: Vec<_> = self.sessions.of(id).map(Session::id).collect();
        for session in &sessions {
            self.end_session(session);
        }
        // A shard where it is settled drops it.
        self.unsettle(id);
        let Some(client) = self.clients.remove(id) else { return };
        if let Some(key) = client.key
            && !self.state.release_some(key, RELEASES)
        {
            self.state.begin_release(key);
            self.leaving.push_back(key);
        }
        self.record_gone(&client);
    }

    /// Returns true if the tables of state have a place for one more client once this one is ended.
    fn has_place_after(&self, former: u64) -> bool {
        let key = self.clients.get(former).and_then(|client| client.key);
        let is_gone_at_once = |key| self.state.is_small(key, RELEASES);
        self.state.has_place_for_client() || key.is_some_and(is_gone_at_once)
    }

    /// Drops some more of the state of ended clients.
    pub(in crate::v4) fn release_leaving(&mut self) {
        if let Some(key) = self.leaving.front()
            && self.state.release_some(*key, RELEASES)
        {
            self.leaving.pop_front();
        }
    }

    /// Counts a new session of a client, with its slots. The first confirms the client, and ends
    /// the record of an earlier incarnation. If the tables of state have no place, nothing changes.
    pub(in crate::v4) fn confirm(&mut self, id: u64, slots: u32, now: Time) -> Result<(), Status4> {
        let client = self.clients.get(id).ok_or(Status4::StaleClientid)?;
        let host = client.host;
        if !client.is_confirmed {
            let former = self.clients.confirmed(&client.owner);
            let former = former.map(|former| (former.id, former.verifier));
            if let Some((former, _)) = former {
                // Every reason to refuse the session is checked before the end of the former
                // incarnation.
                if !self.has_place_after(former) || !self.unsettle(former) {
                    return Err(Status4::Delay);
                }
                self.end_client(former);
            }
            let key = self.state.add_client(id, false, milliseconds(now)).ok_or(Status4::Delay)?;
            self.state.set_host(key, host.number());
            if self.recovery.queue.is_kept() {
                self.state.await_record(key);
            }
            if self.take_listed(id) {
                self.state.allow_reclaims(key);
            }
            self.clients.confirm(id, Some(key));
            if let Some(client) = self.clients.get_mut(id) {
                client.former = former.map(|(_, verifier)| verifier);
            }
        }
        self.clients.count_session(id, slots);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        records::OriginMark,
        v4::{
            Nfs4Config, StateAnswer, StateQuestion,
            session::{NewClient, Principal, RecordPhase},
        },
    };
    use stag_engine::PeerAddress;
    use stag_nfs_store::memory::{Memory, MemoryConfig, MemoryExport};
    use stag_nfs4_state::{
        Claim, DelegationOffer, DelegationPolicy, FileId, FileRef, OpenRequest, StateLimits,
        StateTables,
    };
    use std::{sync::mpsc::TryRecvError, time::Duration};

    fn store() -> Memory {
        let memory = MemoryConfig::new(
            vec![MemoryExport { name: "m".to_owned(), copy_of: None, read_only: false }],
            1 << 20,
        );
        Memory::new(&memory, &mut |_| {}).unwrap()
    }

    fn nfs4() -> Nfs4 {
        let config = Nfs4Config {
            lease: Duration::from_secs(90),
            epoch: 7,
            identity: [5; 16],
            delegations: DelegationPolicy::Never,
            started: 1_000,
            key: [3; 16],
            cluster: None,
        };
        let mut nfs4 = Nfs4::new(config, &store());
        let limits = StateLimits { clients: 2, ..StateLimits::default() };
        nfs4.state = StateTables::new(0, 7, 90_000, limits);
        nfs4
    }

    /// EXCHANGE_ID of an incarnation: its client ID.
    fn exchange(nfs4: &mut Nfs4, owner: &[u8], incarnation: u8) -> u64 {
        let from = PeerAddress::Simulated;
        let new = NewClient {
            owner,
            verifier: [incarnation; 8],
            principal: Principal::Unix(0),
            guard: None,
            host: nfs4.names.host(from, None),
            mark: OriginMark::default(),
            from,
            now: Time(0),
        };
        nfs4.clients.add(&new).unwrap()
    }

    /// The first session of an incarnation, which ends again.
    fn begin(nfs4: &mut Nfs4, id: u64) {
        nfs4.confirm(id, 1, Time(0)).unwrap();
        nfs4.clients.count_session_end(id, 1);
    }

    fn open(nfs4: &mut Nfs4, id: u64, file: u128) {
        let request = OpenRequest {
            client: nfs4.clients.get(id).unwrap().key.unwrap(),
            file: FileRef { id: FileId(file), handle: b"handle" },
            owner: b"owner",
            access: 1,
            deny: 0,
            claim: Claim::New,
            offer: DelegationOffer::default(),
            is_promised: false,
        };
        nfs4.state.open(&request, 0).unwrap();
    }

    #[test]
    fn a_session_that_is_put_off_ends_no_former_incarnation() {
        let mut nfs4 = nfs4();
        let first = exchange(&mut nfs4, b"one", 1);
        begin(&mut nfs4, first);
        let other = exchange(&mut nfs4, b"other", 1);
        begin(&mut nfs4, other);
        nfs4.state.complete_reclaims(nfs4.clients.get(first).unwrap().key.unwrap(), false).unwrap();
        (0..2 * RELEASES as u128).for_each(|file| open(&mut nfs4, first, file));
        // The table is full, and the place of the former one would not be free at once.
        let second = exchange(&mut nfs4, b"one", 2);
        assert_eq!(nfs4.confirm(second, 1, Time(0)), Err(Status4::Delay));
        let former = nfs4.clients.get(first).expect("it goes on");
        assert_eq!(nfs4.state.states_of(former.key.unwrap()), 2 * RELEASES);
        // With a place, it is replaced.
        let key = nfs4.clients.remove(other).unwrap().key.unwrap();
        nfs4.state.release_client(key);
        nfs4.confirm(second, 1, Time(0)).unwrap();
        assert!(nfs4.clients.get(first).is_none());
    }

    #[test]
    fn an_incarnation_takes_the_place_of_the_former_one_in_a_full_table() {
        let mut nfs4 = nfs4();
        for owner in [b"one".as_slice(), b"other"] {
            let id = exchange(&mut nfs4, owner, 1);
            begin(&mut nfs4, id);
        }
        let second = exchange(&mut nfs4, b"one", 2);
        nfs4.confirm(second, 1, Time(0)).unwrap();
        let third = exchange(&mut nfs4, b"third", 1);
        assert_eq!(nfs4.confirm(third, 1, Time(0)), Err(Status4::Delay));
    }

    #[test]
    fn a_client_that_is_being_ended_is_ended_once_and_settled_nowhere() {
        let mut nfs4 = nfs4();
        let id = exchange(&mut nfs4, b"one", 1);
        nfs4.confirm(id, 1, Time(0)).unwrap();
        assert!(nfs4.may_settle(id, 1));
        // Its record is being removed.
        nfs4.clients.get_mut(id).unwrap().record = RecordPhase::Leaving;
        assert!(!nfs4.may_settle(id, 1));
        let desk = nfs4.desk();
        let orders = [0, 1].map(|_| desk.ask(StateQuestion::Expire { client: id }).unwrap());
        nfs4.answer_desk(&store(), Time(0));
        let answers = orders.each_ref().map(|order| order.try_recv());
        assert_eq!(answers, [Err(TryRecvError::Disconnected), Err(TryRecvError::Empty)]);
        nfs4.clients.count_session_end(id, 1);
        nfs4.end_client(id);
        nfs4.answer_desk(&store(), Time(0));
        assert_eq!(orders[1].try_recv(), Ok(StateAnswer::Expired));
    }
}
