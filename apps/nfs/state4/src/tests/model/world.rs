//! The tables and the model, compared: each step runs one operation on both and compares the
//! answers.

use super::oracle::{CLIENTS, Expected, FILES, LockerName, OCTETS, OpenName, Oracle};
use crate::tests::*;
use fastrand::Rng;
use stag_protocol::nfs::v4::DelegationType;
use std::collections::BTreeSet;

/// Counts of the outcomes of a run: a model that never reaches an outcome shows nothing about it.
#[derive(Debug, Default)]
pub struct Seen([u64; 11]);

#[derive(Clone, Copy)]
enum Sight {
    Done,
    Failed,
    Denied,
    Recall,
    Removal,
    Delegation,
    Revoked,
    Reclaimed,
    Restart,
    Recorded,
    Forgotten,
}

impl Seen {
    fn note(&mut self, sight: Sight) {
        self.0[sight as usize] += 1;
    }

    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
    }

    pub fn assert_all(&self) {
        assert!(self.0.iter().all(|count| *count > 20), "{self:?}");
    }
}

/// A client: its key here, and its part of the records.
#[derive(Clone, Copy, Debug)]
struct Member {
    key: ClientKey,
    id: u64,
    /// The records of this moment let it reclaim after a restart.
    is_recorded: bool,
    /// The records of the last start let it reclaim in this grace period.
    is_listed: bool,
    is_complete: bool,
    renewed_at: u64,
}

pub struct World {
    random: Rng,
    tables: StateTables,
    members: [Member; CLIENTS],
    oracle: Oracle,
    /// The state from before the restart that is not reclaimed yet.
    claimable: Oracle,
    in_grace: bool,
    grace_ends_at: u64,
    /// The end of the grace period is being recorded.
    is_recording: bool,
    now: u64,
    epoch: u16,
    next_id: u64,
    pub seen: Seen,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut tables = StateTables::new(1, 1, LEASE, SMALL);
        let members = [0, 1, 2].map(|id| {
            let key = tables.add_client(id, false, 0).unwrap();
            tables.await_record(key);
            tables.complete_reclaims(key, false).unwrap();
            let is_recorded = false;
            let (is_listed, is_complete) = (false, true);
            Member { key, id, is_recorded, is_listed, is_complete, renewed_at: 0 }
        });
        Self {
            random: Rng::with_seed(seed),
            tables,
            members,
            oracle: Oracle::default(),
            claimable: Oracle::default(),
            in_grace: false,
            grace_ends_at: 0,
            is_recording: false,
            now: 0,
            epoch: 1,
            next_id: 10,
            seen: Seen::default(),
        }
    }

    /// Executes one step, and checks all that follows from it.
    pub fn step(&mut self, about: &str) {
        let client = self.random.usize(..CLIENTS);
        self.renew(client);
        match self.random.u32(0..100) {
            0..25 => self.open(client, about),
            25..35 => self.close(client, about),
            35..40 => self.downgrade(client, about),
            40..62 => self.lock(client, about),
            62..70 => self.unlock(client, about),
            70..78 => self.io(client, about),
            78..84 => self.return_delegation(client, about),
            84..88 => self.foreign_stateid(client, about),
            88..92 => self.complete(client, about),
            92..97 => self.pass_time(about),
            97 => self.restart(),
            _ => self.reclaim(client, about),
        }
        self.work(about);
        self.tables.assert_consistent();
    }

    /// SEQUENCE.
    fn renew(&mut self, client: usize) {
        let member = &mut self.members[client];
        assert!(self.tables.renew(member.key, self.now));
        member.renewed_at = self.now;
        self.oracle.courtesy.remove(&client);
    }

    /// Compares the answer to a request for new state, for which the client has to be recorded.
    /// Reclaims need only the records of the last start.
    fn agree_recorded<T: std::fmt::Debug>(
        &mut self,
        client: usize,
        mut ask: impl FnMut(&mut StateTables) -> Result<T, StateFault>,
        expected: Expected,
        about: &str,
    ) -> Option<T> {
        let mut answer = ask(&mut self.tables);
        if matches!(answer, Err(StateFault::AwaitRecord)) {
            let member = &mut self.members[client];
            assert!(!member.is_recorded && member.is_complete, "{about}");
            member.is_recorded = true;
            self.tables.handle_recorded(member.key);
            self.seen.note(Sight::Recorded);
            answer = ask(&mut self.tables);
        }
        self.agree(answer, expected, about)
    }

    /// Compares an answer. Returns it if both succeed; removes expired clients otherwise.
    fn agree<T: std::fmt::Debug>(
        &mut self,
        answer: Result<T, StateFault>,
        expected: Expected,
        about: &str,
    ) -> Option<T> {
        let place = |key: ClientKey| self.members.iter().position(|member| member.key == key);
        let fault = match answer {
            Ok(done) => {
                assert_eq!(expected, Expected::Done, "{about}: {done:?}");
                self.seen.note(Sight::Done);
                return Some(done);
            }
            Err(fault) => fault,
        };
        let sight = match (fault, &expected) {
            (StateFault::Failed(status), Expected::Failed(want)) if status == *want => {
                Sight::Failed
            }
            (StateFault::Denied(_), Expected::Denied) => Sight::Denied,
            (StateFault::AwaitRecall, Expected::Recall) => Sight::Recall,
            (StateFault::AwaitRemoval(key), Expected::Removal(of)) => {
                let client = place(key).expect("it is there");
                assert!(of.contains(&client), "{about}: {client} is not one of {of:?}");
                self.release(client);
                Sight::Removal
            }
            _ => panic!("{about}: {fault:?}, expected {expected:?}"),
        };
        self.seen.note(sight);
        None
    }

    /// A client ends, and comes back as another incarnation. Its record is removed first.
    fn release(&mut self, client: usize) {
        self.tables.release_client(self.members[client].key);
        self.oracle.release(client);
        self.claimable.release(client);
        self.next_id += 1;
        let id = self.next_id;
        let key = self.tables.add_client(id, false, self.now).unwrap();
        self.tables.await_record(key);
        let (is_recorded, is_listed, is_complete) = (false, false, false);
        let renewed_at = self.now;
        self.members[client] = Member { key, id, is_recorded, is_listed, is_complete, renewed_at };
    }

    /// The refusal that denies a client new state.
    fn grace(&self, client: usize) -> Option<Expected> {
        let is_kept = self.in_grace || !self.members[client].is_complete;
        is_kept.then_some(Expected::Failed(Status4::Grace))
    }

    fn request<'a>(&self, name: OpenName, access: u32, deny: u32, claim: Claim) -> OpenRequest<'a> {
        OpenRequest {
            client: self.members[name.client].key,
            file: file_ref(name.file),
            owner: OWNERS[name.owner],
            access,
            deny,
            claim,
            offer: DelegationOffer {
                policy: DelegationPolicy::ReadWrite,
                has_back_channel: true,
                is_changing: false,
                call: None,
            },
            is_promised: false,
        }
    }

    fn on(&self, client: usize, file: usize, stateid: Stateid) -> StateRequest {
        StateRequest { client: self.members[client].key, file: file_ref(file).id, stateid }
    }

    fn open(&mut self, client: usize, about: &str) {
        let (file, owner) = (self.random.usize(..FILES), self.random.usize(..2));
        let name = OpenName { client, file, owner };
        let access = self.random.u32(1..4);
        let deny = if self.random.u32(0..4) == 0 { self.random.u32(0..4) } else { 0 };
        let own = self.oracle.delegations.get(&(client, file)).cloned();
        let claim = match own {
            Some(ref held) if self.random.bool() => Claim::Delegated(held.stateid),
            _ => Claim::New,
        };
        let mut expected = match (claim, own) {
            (Claim::Delegated(_), Some(held)) if !held.write && access & WRITE != 0 => {
                Expected::Failed(Status4::OpenMode)
            }
            (Claim::Delegated(_), _) => Expected::Done,
            _ => self.grace(client).unwrap_or(Expected::Done),
        };
        if expected == Expected::Done {
            expected = self.oracle.share(file, access, deny, Status4::ShareDenied);
        }
        if expected == Expected::Done {
            let all = access & WRITE != 0 || deny & READ != 0;
            expected = self.oracle.recall(file, client, all, self.now);
        }
        let (request, now) = (self.request(name, access, deny, claim), self.now);
        let ask = |tables: &mut StateTables| tables.open(&request, now);
        let Some(opened) = self.agree_recorded(client, ask, expected, about) else { return };
        assert_eq!(opened.is_new, !self.oracle.opens.contains_key(&name), "{about}");
        self.enter_open(name, access, deny, &opened);
        let expected = match claim {
            Claim::New => self.oracle.delegation(name, access, self.now),
            _ => None,
        };
        let given = match opened.delegation {
            DelegationOutcome::Given(given) => Some(given),
            _ => None,
        };
        assert_eq!(given.map(|given| given.write), expected, "{about}");
        if let Some(GivenDelegation { state, stateid, write }) = given {
            self.seen.note(Sight::Delegation);
            let is_recalled = false;
            let held = super::oracle::ModelDelegation { stateid, state, write, is_recalled };
            self.oracle.delegations.insert((client, file), held);
        }
    }

    fn enter_open(&mut self, name: OpenName, access: u32, deny: u32, opened: &Opened) {
        let open = self.oracle.opens.entry(name).or_insert_with(|| super::oracle::ModelOpen {
            stateid: Stateid { seqid: 0, ..opened.stateid },
            accesses: BTreeSet::new(),
            denials: BTreeSet::new(),
        });
        let next = Stateid { seqid: open.stateid.seqid + 1, ..open.stateid };
        assert_eq!(opened.stateid, next);
        open.stateid = next;
        open.accesses.insert(access);
        open.denials.insert(deny);
    }

    /// An open of a client, if it has one.
    fn any_open(&mut self, client: usize) -> Option<OpenName> {
        let names: Vec<OpenName> =
            self.oracle.opens.keys().filter(|name| name.client == client).copied().collect();
        (!names.is_empty()).then(|| names[self.random.usize(..names.len())])
    }

    /// Sometimes returns an older stateid, with its expected status.
    fn maybe_older(&mut self, stateid: Stateid) -> (Stateid, Option<Expected>) {
        match self.random.u32(0..12) {
            0 if stateid.seqid > 1 => {
                let older = Stateid { seqid: stateid.seqid - 1, ..stateid };
                (older, Some(Expected::Failed(Status4::OldStateid)))
            }
            1 => {
                let later = Stateid { seqid: stateid.seqid + 1, ..stateid };
                (later, Some(Expected::Failed(Status4::BadStateid)))
            }
            2 => (Stateid { seqid: 0, ..stateid }, None),
            _ => (stateid, None),
        }
    }

    fn close(&mut self, client: usize, about: &str) {
        let Some(name) = self.any_open(client) else { return };
        let (stateid, fault) = self.maybe_older(self.oracle.opens[&name].stateid);
        let held = || Expected::Failed(Status4::LocksHeld);
        let locked = self.oracle.is_locked(name);
        let expected = fault.unwrap_or_else(|| if locked { held() } else { Expected::Done });
        let answer = self.tables.close(&self.on(client, name.file, stateid));
        if self.agree(answer, expected, about).is_some() {
            self.oracle.close(name);
        }
    }

    fn downgrade(&mut self, client: usize, about: &str) {
        let Some(name) = self.any_open(client) else { return };
        let (access, deny) = (self.random.u32(1..4), self.random.u32(0..4));
        let (stateid, fault) = self.maybe_older(self.oracle.opens[&name].stateid);
        let open = self.oracle.opens.get_mut(&name).expect("it is there");
        let within = |asked: &BTreeSet<u32>, kept: u32| -> BTreeSet<u32> {
            asked.iter().copied().filter(|bits| bits & !kept == 0).collect()
        };
        let union = |bits: &BTreeSet<u32>| bits.iter().fold(0, |all, one| all | one);
        let (accesses, denials) = (within(&open.accesses, access), within(&open.denials, deny));
        // Denying nothing must have been asked for, too.
        let fits = !accesses.is_empty() && union(&accesses) == access && union(&denials) == deny;
        let expected =
            fault.unwrap_or(if fits { Expected::Done } else { Expected::Failed(Status4::Inval) });
        if expected == Expected::Done {
            open.stateid.seqid += 1;
            (open.accesses, open.denials) = (accesses, denials);
        }
        let next = open.stateid;
        let open = self.on(client, name.file, stateid);
        let answer = self.tables.downgrade(&DowngradeRequest { open, access, deny });
        if let Some(stateid) = self.agree(answer, expected, about) {
            assert_eq!(stateid, next, "{about}");
        }
    }

    /// A range: model octets, offset and length.
    fn range(&mut self) -> (std::ops::Range<usize>, u64, u64) {
        let first = self.random.usize(..OCTETS - 1);
        if self.random.u32(0..4) == 0 {
            return (first..OCTETS, first as u64, u64::MAX);
        }
        let last = self.random.usize(first + 1..OCTETS);
        (first..last, first as u64, (last - first) as u64)
    }

    fn lock(&mut self, client: usize, about: &str) {
        let Some(open) = self.any_open(client) else { return };
        let owner = self.random.usize(..2);
        let (octets, offset, length) = self.range();
        let write = self.random.bool();
        let kinds = if write {
            [LockType::Write, LockType::WriteWait]
        } else {
            [LockType::Read, LockType::ReadWait]
        };
        let kind = kinds[self.random.usize(..2)];
        let name = LockerName { client, file: open.file, owner };
        let known = self.oracle.locks.get(&(open, owner)).copied();
        let (locker, fault) = match known {
            Some(stateid) if self.random.bool() => {
                let (stateid, fault) = self.maybe_older(stateid);
                (LockerRef::Known(stateid), fault)
            }
            _ => {
                let (stateid, fault) = self.maybe_older(self.oracle.opens[&open].stateid);
                (LockerRef::New { open: stateid, owner: OWNERS[owner] }, fault)
            }
        };
        let needed = if write { WRITE } else { READ };
        let has_mode = self.oracle.opens[&open].access() & needed != 0;
        let mode = (!has_mode).then_some(Expected::Failed(Status4::OpenMode));
        let expected = fault
            .or(mode)
            .or_else(|| self.grace(client))
            .unwrap_or_else(|| self.oracle.lock(name, octets.clone(), write));
        let request = LockRequest {
            client: self.members[client].key,
            file: file_ref(open.file).id,
            kind,
            reclaim: false,
            offset,
            length,
            locker,
        };
        let now = self.now;
        let ask = |tables: &mut StateTables| tables.lock(&request, now);
        if let Some(stateid) = self.agree_recorded(client, ask, expected, about) {
            self.enter_lock(open, owner, octets, Some(write), stateid);
        }
    }

    fn enter_lock(
        &mut self,
        open: OpenName,
        owner: usize,
        octets: std::ops::Range<usize>,
        lock: Option<bool>,
        stateid: Stateid,
    ) {
        let before = self.oracle.locks.insert((open, owner), stateid);
        assert_eq!(stateid.seqid, before.map_or(1, |before| before.seqid + 1));
        let name = LockerName { client: open.client, file: open.file, owner };
        let held = self.oracle.octets.entry(name).or_insert([None; OCTETS]);
        held[octets].fill(lock);
    }

    fn unlock(&mut self, client: usize, about: &str) {
        let names = self.oracle.locks.iter().filter(|((open, _), _)| open.client == client);
        let names: Vec<_> = names.map(|(name, stateid)| (*name, *stateid)).collect();
        if names.is_empty() {
            return;
        }
        let ((open, owner), stateid) = names[self.random.usize(..names.len())];
        let (octets, offset, length) = self.range();
        let (stateid, fault) = self.maybe_older(stateid);
        let locks = self.on(client, open.file, stateid);
        let answer = self.tables.unlock(&UnlockRequest { locks, offset, length });
        if let Some(stateid) = self.agree(answer, fault.unwrap_or(Expected::Done), about) {
            self.enter_lock(open, owner, octets, None, stateid);
        }
    }

    /// I/O by a special stateid, or by an open.
    fn io(&mut self, client: usize, about: &str) {
        let (access, bits) =
            if self.random.bool() { (IoAccess::Read, READ) } else { (IoAccess::Write, WRITE) };
        if let Some(name) = self.any_open(client).filter(|_| self.random.bool()) {
            let (stateid, fault) = self.maybe_older(self.oracle.opens[&name].stateid);
            let may = self.oracle.opens[&name].access() & bits != 0 || access == IoAccess::Read;
            let mode = (!may).then_some(Expected::Failed(Status4::OpenMode));
            let expected = fault.or(mode).unwrap_or(Expected::Done);
            let request = self.on(client, name.file, stateid);
            let answer = self.tables.check_io(&request, access, self.now);
            self.agree(answer, expected, about);
            return;
        }
        let file = self.random.usize(..FILES);
        let mut expected = Expected::Done;
        if self.in_grace {
            expected = Expected::Failed(Status4::Grace);
        }
        if expected == Expected::Done {
            expected = self.oracle.share(file, bits, 0, Status4::Locked);
        }
        if expected == Expected::Done {
            expected = self.oracle.recall(file, client, access == IoAccess::Write, self.now);
        }
        let request = self.on(client, file, Stateid::ANONYMOUS);
        let answer = self.tables.check_io(&request, access, self.now);
        self.agree(answer, expected, about);
    }

    fn return_delegation(&mut self, client: usize, about: &str) {
        let file = self.random.usize(..FILES);
        let Some(held) = self.oracle.delegations.remove(&(client, file)) else { return };
        let answer = self.tables.return_delegation(&self.on(client, file, held.stateid));
        self.agree(answer, Expected::Done, about);
    }

    /// A client that uses another client's stateid has it refused.
    fn foreign_stateid(&mut self, client: usize, about: &str) {
        let other = (client + 1) % CLIENTS;
        let Some(name) = self.any_open(other) else { return };
        let request = self.on(client, name.file, self.oracle.opens[&name].stateid);
        let bad = Expected::Failed(Status4::BadStateid);
        let closed = self.tables.close(&request);
        self.agree(closed, bad.clone(), about);
        let judged = self.tables.check_io(&request, IoAccess::Read, self.now);
        self.agree(judged, bad, about);
    }

    /// RECLAIM_COMPLETE: all state that was not reclaimed is lost.
    fn complete(&mut self, client: usize, about: &str) {
        let member = &mut self.members[client];
        let answer = self.tables.complete_reclaims(member.key, false).map_err(StateFault::Failed);
        let is_again = std::mem::replace(&mut member.is_complete, true);
        if !is_again {
            // A client that has reclaimed nothing is not recorded.
            member.is_recorded = self.tables.states_of(member.key) > 0;
            match member.is_recorded {
                true => self.tables.handle_recorded(member.key),
                false => self.tables.await_record(member.key),
            }
        }
        let expected = match is_again {
            true => Expected::Failed(Status4::CompleteAlready),
            false => Expected::Done,
        };
        self.agree(answer, expected, about);
        if !is_again {
            self.claimable.release(client);
        }
    }

    fn pass_time(&mut self, about: &str) {
        let renewing = self.random.u32(0..8);
        for _ in 0..self.random.u32(1..4) {
            self.now += self.random.u64(1..=LEASE);
            for client in (0..CLIENTS).filter(|client| renewing >> client & 1 == 1) {
                self.renew(client);
            }
            self.tables.handle_time(self.now);
            for client in 0..CLIENTS {
                if self.now - self.members[client].renewed_at > LEASE {
                    self.oracle.courtesy.insert(client);
                }
            }
            self.work(about);
        }
    }

    /// Does the work that the tables ask for.
    fn work(&mut self, about: &str) {
        self.tables.handle_time(self.now);
        if self.is_recording && self.random.bool() {
            self.record_end(about);
            self.tables.handle_grace_recorded();
        }
        while let Some(work) = self.tables.poll_work() {
            match work {
                StateWork::Recall(order) => self.tables.handle_recall_sent(order.state, self.now),
                StateWork::Revoke(state) => self.revoke(state, about),
                StateWork::Expired(key) => {
                    let client = self.members.iter().position(|member| member.key == key);
                    let client = client.expect("it is there");
                    assert!(self.oracle.courtesy.contains(&client), "{about}");
                    let has_state = self.oracle.has_state(client);
                    let idle = self.now - self.members[client].renewed_at;
                    assert!(!has_state || idle > COURTESY_MS, "{about}");
                    self.release(client);
                }
                StateWork::Stateless(key) => {
                    let place = |member: &Member| member.key == key;
                    let client = self.members.iter().position(place).expect("it is there");
                    assert!(!self.oracle.has_state(client), "{about}");
                    assert!(!self.oracle.courtesy.contains(&client), "{about}");
                    self.tables.await_record(key);
                    self.members[client].is_recorded = false;
                    self.seen.note(Sight::Forgotten);
                }
                StateWork::Silent(key) => {
                    let place = |member: &Member| member.key == key;
                    let client = self.members.iter().position(place).expect("it is there");
                    assert!(self.oracle.courtesy.contains(&client), "{about}");
                    let idle = self.now - self.members[client].renewed_at;
                    assert!(idle > RECORDED_LEASES * LEASE, "{about}");
                    self.tables.await_record(key);
                    self.members[client].is_recorded = false;
                }
                StateWork::Returned(key) => {
                    let place = |member: &Member| member.key == key;
                    let client = self.members.iter().position(place).expect("it is there");
                    self.tables.handle_recorded(key);
                    self.members[client].is_recorded = true;
                }
                StateWork::EndGrace => {
                    assert!(!self.is_recording && self.in_grace, "{about}");
                    self.is_recording = true;
                }
                StateWork::NotifyLock(_) | StateWork::RecallAny { .. } | StateWork::GoOn(_) => {}
            }
        }
    }

    /// Records the end of the grace period: a client that has not completed its reclaims lost its
    /// state.
    fn record_end(&mut self, about: &str) {
        assert!(self.is_recording, "{about}");
        (self.is_recording, self.in_grace) = (false, false);
        for member in &mut self.members {
            member.is_recorded &= member.is_complete;
            member.is_listed = false;
        }
        self.claimable = Oracle::default();
    }

    fn revoke(&mut self, state: StateKey, about: &str) {
        let mut held = self.oracle.delegations.iter();
        let held =
            held.find(|(_, held)| held.state == state).map(|(name, held)| (*name, held.clone()));
        let (name, held) = held.unwrap_or_else(|| panic!("{about}: a delegation that nobody has"));
        assert!(held.is_recalled, "{about}");
        self.tables.revoke(state);
        self.oracle.delegations.remove(&name);
        // The client's record allows reclaims again once it has freed the delegation.
        let key = self.members[name.0].key;
        assert_eq!(self.tables.test(key, &held.stateid), Status4::DelegRevoked, "{about}");
        assert_ne!(self.tables.sequence_flags(key), 0);
        assert_eq!(self.tables.free(key, &held.stateid), Ok(()), "{about}");
        assert_eq!(self.tables.sequence_flags(key), 0);
        self.seen.note(Sight::Revoked);
    }

    /// The server dies, and starts with its records.
    fn restart(&mut self) {
        self.seen.note(Sight::Restart);
        self.epoch += 1;
        if self.is_recording && self.random.bool() {
            self.record_end("written, and killed before it could tell");
        }
        self.is_recording = false;
        // A client may reclaim its state, and its earlier state that is not reclaimed yet.
        let mut claimable = std::mem::take(&mut self.claimable);
        claimable.opens.append(&mut self.oracle.opens);
        claimable.octets.append(&mut self.oracle.octets);
        claimable.locks.append(&mut self.oracle.locks);
        self.claimable = claimable;
        self.oracle = Oracle::default();
        self.tables = StateTables::new(1, self.epoch, LEASE, SMALL);
        let listed = self.members.iter().filter(|member| member.is_recorded).count();
        self.grace_ends_at = self.now + LEASE;
        self.tables.begin_grace(listed as u32, self.grace_ends_at);
        self.in_grace = listed > 0;
        for member in &mut self.members {
            let is_listed = member.is_recorded;
            member.key = self.tables.add_client(member.id, is_listed, self.now).unwrap();
            self.tables.await_record(member.key);
            member.is_listed = is_listed;
            member.is_complete = false;
            member.renewed_at = self.now;
        }
    }

    /// A client reclaims an open with the locks under it, or tries to.
    fn reclaim(&mut self, client: usize, about: &str) {
        let names = self.claimable.opens.keys().filter(|name| name.client == client);
        let names: Vec<OpenName> = names.copied().collect();
        let may = self.in_grace
            && !self.is_recording
            && self.now < self.grace_ends_at
            && self.members[client].is_listed
            && !self.members[client].is_complete;
        let refused = Expected::Failed(Status4::NoGrace);
        let Some(name) = names.first().copied() else {
            let name = OpenName { client, file: 0, owner: 0 };
            if !may {
                let claim = Claim::Previous(DelegationType::None);
                let answer = self.tables.open(&self.request(name, READ, 0, claim), self.now);
                self.agree(answer, refused, about);
            }
            return;
        };
        let open = self.claimable.opens[&name].clone();
        let claim = Claim::Previous(DelegationType::None);
        let request = self.request(name, open.access(), open.deny(), claim);
        let answer = self.tables.open(&request, self.now);
        let expected = if may { Expected::Done } else { refused };
        let Some(opened) = self.agree(answer, expected, about) else { return };
        self.seen.note(Sight::Reclaimed);
        self.claimable.opens.remove(&name);
        self.enter_open(name, open.access(), open.deny(), &opened);
        let locks = self.claimable.locks.keys().filter(|(open, _)| *open == name);
        for (_, owner) in locks.copied().collect::<Vec<_>>() {
            self.reclaim_locks(name, owner, opened.stateid, about);
        }
    }

    fn reclaim_locks(&mut self, open: OpenName, owner: usize, stateid: Stateid, about: &str) {
        self.claimable.locks.remove(&(open, owner));
        let name = LockerName { client: open.client, file: open.file, owner };
        let Some(held) = self.claimable.octets.get(&name).copied() else { return };
        let access = self.oracle.opens[&open].access();
        for (octet, lock) in held.into_iter().enumerate() {
            let Some(write) = lock else { continue };
            // A lock of another open of the owner, or from before a downgrade: this open does not
            // have access for it.
            if access & if write { WRITE } else { READ } == 0 {
                continue;
            }
            let request = LockRequest {
                client: self.members[open.client].key,
                file: file_ref(open.file).id,
                kind: if write { LockType::Write } else { LockType::Read },
                reclaim: true,
                offset: octet as u64,
                length: if octet + 1 == OCTETS { u64::MAX } else { 1 },
                locker: LockerRef::New { open: stateid, owner: OWNERS[owner] },
            };
            let answer = self.tables.lock(&request, self.now);
            let Some(stateid) = self.agree(answer, Expected::Done, about) else { return };
            self.enter_lock(open, owner, octet..octet + 1, Some(write), stateid);
        }
    }
}

const OWNERS: [&[u8]; 2] = [b"first", b"second"];

fn file_ref(file: usize) -> FileRef<'static> {
    FileRef { id: FileId(file as u128 + 1), handle: b"handle" }
}
