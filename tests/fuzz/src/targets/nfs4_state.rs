//! The state of version 4 under clients that do as they like: any operation of any client by any
//! stateid, with late callbacks and expiries in between.

use stag_nfs4_state::{
    AttributeSource, ChangeAndSize, Claim, ClientKey, DelegationOffer, DelegationOutcome,
    DelegationPolicy, DowngradeRequest, FileId, FileRef, IoAccess, LockRequest, LockTestRequest,
    LockerRef, OpenRequest, RecallScope, StateFault, StateKey, StateLimits, StateRequest,
    StateTables, StateWork, UnlockRequest,
};
use stag_pools::steps;
use stag_protocol::nfs::v4::state::{LockRange, RecallAnswer};
use stag_protocol::nfs::v4::{DelegationType, LockType, Stateid, Status4};
use std::collections::BTreeSet;

use super::{InputVerdict, STEPS_PER_MESSAGE};

/// Octets of a step.
pub const STEP: usize = 12;
/// Steps of an input that are taken.
const STEPS_MAX: usize = 256;

const LEASE: u64 = 90_000;

/// Few places, so that inputs fill them.
const LIMITS: StateLimits = StateLimits {
    clients: 4,
    opens: 12,
    opens_per_client: 8,
    opens_per_file: 6,
    opens_promised: 2,
    lock_states: 8,
    lock_states_per_file: 4,
    ranges: 12,
    ranges_per_client: 8,
    ranges_per_file: 6,
    waiters: 4,
    waiters_per_file: 2,
    delegations: 6,
    delegations_per_client: 4,
    delegations_per_file: 2,
};

/// Offsets and lengths.
const NUMBERS: [u64; 8] = [0, 1, 2, 7, 1 << 63, u64::MAX - 2, u64::MAX - 1, u64::MAX];

/// One step, as its octets say.
struct Step<'a>(&'a [u8; STEP]);

impl Step<'_> {
    fn octet(&self, at: usize) -> usize {
        self.0[at].into()
    }

    fn number(&self, at: usize) -> u64 {
        NUMBERS[self.octet(at) % NUMBERS.len()]
    }

    fn file(&self) -> FileRef<'static> {
        FileRef { id: FileId(self.octet(2) as u128 % 3), handle: b"handle" }
    }

    fn owner(&self) -> &[u8] {
        [&b""[..], b"a", b"b", &[0; 1024]][self.octet(3) % 4]
    }

    fn kind(&self) -> LockType {
        [LockType::Read, LockType::Write, LockType::ReadWait, LockType::WriteWait]
            [self.octet(6) % 4]
    }

    fn access(&self) -> IoAccess {
        if self.0[6] & 1 == 0 { IoAccess::Read } else { IoAccess::Write }
    }
}

struct World {
    tables: StateTables,
    clients: Vec<ClientKey>,
    /// Every stateid that was ever given, and the special ones.
    stateids: Vec<Stateid>,
    states: Vec<StateKey>,
    now: u64,
    seen: BTreeSet<u32>,
}

/// Steps of clients. No step panics, and the tables agree after each; a client that is gone leaves
/// no state.
pub fn state(input: &[u8]) -> InputVerdict {
    let (steps, rest) = input.as_chunks::<STEP>();
    if steps.is_empty() || !rest.is_empty() {
        return InputVerdict::refused(&steps.first());
    }
    let mut world = World::new(input.first().is_some_and(|octet| octet & 1 == 1));
    for step in steps.iter().take(STEPS_MAX) {
        steps::limit(Some(STEPS_PER_MESSAGE));
        let status = world.take(&Step(step)).err().map_or(0, |fault| fault.status() as u32);
        steps::limit(None);
        world.seen.insert(status);
        world.tables.assert_consistent();
    }
    for client in world.clients {
        world.tables.release_client(client);
        world.tables.assert_consistent();
        assert_eq!(world.tables.states_of(client), 0);
    }
    assert_eq!(world.tables.waiting().count(), 0);
    InputVerdict::accepted(world.seen)
}

impl World {
    fn new(in_grace: bool) -> Self {
        let mut tables = StateTables::new(0, 1, LEASE, LIMITS);
        if in_grace {
            tables.begin_grace(2, LEASE);
        }
        let add = |tables: &mut StateTables, id| tables.add_client(id, in_grace, 0);
        let clients = (0..3).filter_map(|id| add(&mut tables, id)).collect();
        let special =
            [Stateid::ANONYMOUS, Stateid::READ_BYPASS, Stateid::CURRENT, Stateid::INVALID];
        let (stateids, states, seen) = (special.to_vec(), Vec::new(), BTreeSet::new());
        let mut world = Self { tables, clients, stateids, states, now: 0, seen };
        if !in_grace {
            for client in world.clients.clone() {
                let _fresh = world.tables.complete_reclaims(client, false);
            }
        }
        world
    }

    fn client(&self, step: &Step<'_>) -> ClientKey {
        self.clients[step.octet(1) % self.clients.len()]
    }

    /// A stateid that was given, as it is or changed.
    fn stateid(&self, step: &Step<'_>) -> Stateid {
        let from_end = step.octet(4) % self.stateids.len();
        let mut stateid = self.stateids[self.stateids.len() - 1 - from_end];
        match step.octet(5) {
            0..160 => stateid.seqid = 0,
            160..224 => {}
            change => {
                stateid.seqid = stateid.seqid.wrapping_add(step.octet(6) as u32);
                stateid.other[change % 12] ^= step.0[7];
            }
        }
        stateid
    }

    fn request(&self, step: &Step<'_>) -> StateRequest {
        let (client, stateid) = (self.client(step), self.stateid(step));
        StateRequest { client, file: step.file().id, stateid }
    }

    fn state(&self, step: &Step<'_>) -> Option<StateKey> {
        self.states.get(step.octet(4).checked_rem(self.states.len())?).copied()
    }

    fn keep(&mut self, stateid: Stateid) {
        self.stateids.push(stateid);
    }

    fn take(&mut self, step: &Step<'_>) -> Result<(), StateFault> {
        match step.octet(0) / 16 {
            0..=4 => self.open(step),
            5 => {
                let (open, access, deny) = (self.request(step), step.octet(6), step.octet(7));
                let (access, deny) = (access as u32 % 5, deny as u32 % 5);
                let request = DowngradeRequest { open, access, deny };
                let stateid = self.tables.downgrade(&request)?;
                self.keep(stateid);
                Ok(())
            }
            6 => self.tables.close(&self.request(step)),
            7 | 8 => self.lock(step),
            9 => {
                let (offset, length) = (step.number(8), step.number(9));
                let request = UnlockRequest { locks: self.request(step), offset, length };
                let stateid = self.tables.unlock(&request)?;
                self.keep(stateid);
                Ok(())
            }
            10 => self.look(step),
            11 => self.tables.return_delegation(&self.request(step)),
            12 => {
                let (client, stateid) = (self.client(step), self.stateid(step));
                let tested = self.tables.test(client, &stateid);
                let freed = self.tables.free(client, &stateid);
                // Whatever is not valid and not revoked has nothing to be freed.
                assert!(freed.is_err() || [Status4::Ok, Status4::DelegRevoked].contains(&tested));
                Ok(freed?)
            }
            13 => self.call_back(step),
            14 => self.pass(step),
            _ => self.end(step),
        }
    }

    fn open(&mut self, step: &Step<'_>) -> Result<(), StateFault> {
        let claim = match step.octet(8) % 8 {
            0 => Claim::Delegated(self.stateid(step)),
            1 => Claim::Previous(DelegationType::None),
            2 => Claim::Previous(DelegationType::Read),
            3 => Claim::Previous(DelegationType::Write),
            _ => Claim::New,
        };
        let policies =
            [DelegationPolicy::Never, DelegationPolicy::Read, DelegationPolicy::ReadWrite];
        let request = OpenRequest {
            client: self.client(step),
            file: step.file(),
            owner: step.owner(),
            access: (step.octet(6) as u32 % 5) | (u32::from(step.0[9] & 7) << 8),
            deny: (step.octet(7) as u32 % 8).saturating_sub(4),
            claim,
            offer: DelegationOffer {
                policy: policies[step.octet(10) % 3],
                has_back_channel: step.0[11] & 1 != 0,
                call: None,
                is_changing: step.0[11] & 6 == 2,
            },
            is_promised: step.0[11] & 24 == 8,
        };
        let opened = self.tables.open(&request, self.now)?;
        self.keep(opened.stateid);
        if let DelegationOutcome::Given(given) = opened.delegation {
            self.keep(given.stateid);
            self.states.push(given.state);
            self.tables.set_delegation_base(given.state, step.number(8));
        }
        Ok(())
    }

    fn lock(&mut self, step: &Step<'_>) -> Result<(), StateFault> {
        let stateid = self.stateid(step);
        let locker = match step.octet(10) % 2 {
            0 => LockerRef::New { open: stateid, owner: step.owner() },
            _ => LockerRef::Known(stateid),
        };
        let request = LockRequest {
            client: self.client(step),
            file: step.file().id,
            kind: step.kind(),
            reclaim: step.octet(11) < 32,
            offset: step.number(8),
            length: step.number(9),
            locker,
        };
        let checked = self.tables.check_lock(&request, self.now);
        let locked = self.tables.lock(&request, self.now);
        // A full table is seen when the lock is made.
        assert!(locked.is_err() || checked.is_ok());
        self.keep(locked?);
        Ok(())
    }

    /// Questions and accesses, which give nothing.
    fn look(&mut self, step: &Step<'_>) -> Result<(), StateFault> {
        let (client, file, now) = (self.client(step), step.file().id, self.now);
        let scope = RecallScope::from(step.access());
        match step.octet(7) % 6 {
            0 | 1 => self.tables.check_io(&self.request(step), step.access(), now).map(drop),
            2 => self.tables.check_stateless_io(file, step.access(), now),
            3 => self.tables.recall(file, Some(client), scope, now),
            4 => {
                let (offset, length) = (step.number(8), step.number(9));
                let (kind, owner) = (step.kind(), step.owner());
                let test = LockTestRequest { client, file, kind, offset, length, owner };
                self.tables.test_lock(&test, now)
            }
            _ => {
                self.tables.sweep_ranges();
                if let Ok(range) = LockRange::new(step.number(8), step.number(9)) {
                    let mut rest = Some(range);
                    while let Some(range) = rest {
                        let part = self.tables.shadow_part(file, range, &mut 2);
                        assert!(part.range.overlaps(&range), "each part goes on");
                        rest = range.behind(&part.range);
                    }
                }
                match self.tables.check_attributes(file, Some(client))? {
                    AttributeSource::Store => {}
                    AttributeSource::Holder(order) => {
                        let told = ChangeAndSize { change: step.number(8), size: step.number(9) };
                        let here = ChangeAndSize { change: step.number(10), size: 0 };
                        let _report = self.tables.handle_attributes(order.state, told, here);
                    }
                }
                Ok(())
            }
        }
    }

    /// The fate of callbacks, at any time and in any order.
    fn call_back(&mut self, step: &Step<'_>) -> Result<(), StateFault> {
        let Some(state) = self.state(step) else { return Ok(()) };
        let answers = [RecallAnswer::Accepted, RecallAnswer::Unknown, RecallAnswer::Failed];
        match step.octet(6) % 5 {
            0 => self.tables.handle_recall_sent(state, self.now),
            1 => drop(self.tables.handle_recall_answer(state, answers[step.octet(7) % 3])),
            2 => self.tables.begin_recall(state, self.now),
            3 => self.tables.revoke(state),
            _ => drop(self.tables.recall_order(state, self.now)),
        }
        Ok(())
    }

    /// Time passes, and what is asked for is done, or a part of it.
    fn pass(&mut self, step: &Step<'_>) -> Result<(), StateFault> {
        self.now = self.now.saturating_add(step.octet(6) as u64 * 1_000);
        for (at, client) in self.clients.iter().enumerate() {
            if step.0[7] >> at & 1 == 1 {
                self.tables.renew(*client, self.now);
            }
        }
        self.tables.handle_time(self.now);
        for _ in 0..step.octet(8) {
            match self.tables.poll_work() {
                Some(StateWork::Recall(order)) => {
                    self.tables.handle_recall_sent(order.state, self.now);
                }
                Some(StateWork::Revoke(state)) => self.tables.revoke(state),
                Some(StateWork::Expired(client)) => self.tables.release_client(client),
                Some(StateWork::EndGrace) => self.tables.handle_grace_recorded(),
                Some(_) => {}
                None => break,
            }
        }
        Ok(())
    }

    /// A client completes its reclaims, or goes and comes back as another.
    fn end(&mut self, step: &Step<'_>) -> Result<(), StateFault> {
        let client = self.client(step);
        if step.octet(6) >= 64 {
            return Ok(self.tables.complete_reclaims(client, step.octet(6) % 4 == 3)?);
        }
        self.tables.release_client(client);
        let place = step.octet(1) % self.clients.len();
        if let Some(key) = self.tables.add_client(step.octet(7) as u64, false, self.now) {
            self.clients[place] = key;
            if step.octet(8) > 32 {
                self.tables.complete_reclaims(key, false)?;
            }
        }
        Ok(())
    }
}
