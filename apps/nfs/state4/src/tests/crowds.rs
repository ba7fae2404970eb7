//! Crowded files: the work of one operation, or one pass, is bounded for a file with thousands of
//! ranges, opens and lock-owners.

use super::*;
use stag_pools::steps::within;
use stag_protocol::nfs::v4::state::LockRange;

const RANGES: u64 = 16_000;
/// Limit of steps of an operation that asks or changes one thing.
const ONE: u64 = 1_500;
/// Limit of steps of an operation, or a pass, that does a part of something large: each removed
/// range is looked up in a few places.
const PART: u64 = 2_000;

/// Tables with the limits of a server. The consistency check after each step, which visits all
/// entries, is left out.
struct Crowd(Fixture);

impl Crowd {
    fn new() -> Self {
        Self(Fixture::with(StateLimits::default()))
    }

    fn open(&mut self, client: usize, owner: u64, access: u32, deny: u32) -> Opened {
        self.try_open(client, owner, access, deny).unwrap()
    }

    fn try_open(
        &mut self,
        client: usize,
        owner: u64,
        access: u32,
        deny: u32,
    ) -> Result<Opened, StateFault> {
        let request = OpenRequest {
            client: self.0.clients[client],
            file: FileRef { id: FILE, handle: b"handle" },
            owner: &owner.to_be_bytes(),
            access,
            deny,
            claim: Claim::New,
            offer: DelegationOffer::default(),
            is_promised: false,
        };
        within(ONE, || self.0.tables.open(&request, 0))
    }

    fn lock(
        &mut self,
        client: usize,
        locker: LockerRef<'_>,
        kind: LockType,
        offset: u64,
        length: u64,
    ) -> Result<Stateid, StateFault> {
        let client = self.0.clients[client];
        let request =
            LockRequest { client, file: FILE, kind, reclaim: false, offset, length, locker };
        within(PART, || self.0.tables.lock(&request, 0))
    }

    fn unlock_all(&mut self, client: usize, stateid: Stateid) -> Result<Stateid, StateFault> {
        let locks = self.0.on(client, stateid);
        let request = UnlockRequest { locks, offset: 0, length: u64::MAX };
        within(PART, || self.0.tables.unlock(&request))
    }

    fn test(&mut self, client: usize, owner: &[u8], kind: LockType) -> Result<(), StateFault> {
        let client = self.0.clients[client];
        let request =
            LockTestRequest { client, file: FILE, kind, offset: 0, length: u64::MAX, owner };
        within(ONE, || self.0.tables.test_lock(&request, 0))
    }

    /// Runs a pass. Returns the number of parts that a store would have shown.
    fn pass(&mut self) -> usize {
        within(PART, || self.0.tables.sweep_ranges());
        let mut shown: Option<LockRange> = None;
        let mut parts = 0;
        while let Some((file, range)) = self.0.tables.next_weakened() {
            let is_shown =
                |one: LockRange| one.offset() <= range.offset() && range.last() <= one.last();
            if !shown.is_some_and(is_shown) {
                let part = within(ONE, || self.0.tables.shadow_part(file, range, &mut 8));
                shown = part.lock.is_none().then_some(part.range);
                parts += 1;
            }
        }
        parts
    }

    /// Locks of one owner, separated by gaps.
    fn locked(&mut self, kind: LockType) -> (Stateid, Stateid) {
        let open = self.open(0, 1, BOTH, 0).stateid;
        let mut locks = self.lock(0, by(open, "p"), kind, 0, 1).unwrap();
        for at in 1..RANGES {
            locks = self.lock(0, LockerRef::Known(locks), kind, 2 * at, 1).unwrap();
        }
        (open, locks)
    }
}

#[test]
fn an_unlock_of_thousands_of_ranges_goes_in_parts_and_is_one_for_its_client() {
    let mut crowd = Crowd::new();
    let (_, locks) = crowd.locked(LockType::Write);
    let other = crowd.open(1, 1, BOTH, 0).stateid;
    let mut passes = 0;
    let mut parts = 0;
    let unlocked = loop {
        match crowd.unlock_all(0, locks) {
            Ok(unlocked) => break unlocked,
            Err(fault) => assert_eq!(fault, StateFault::AwaitPart),
        }
        parts += crowd.pass();
        passes += 1;
        assert!(passes < 100, "each pass takes a part away");
    };
    assert!(passes > 20, "{passes}");
    assert!(parts <= 2 * passes, "a free part is shown in one piece: {parts}");
    assert_eq!(unlocked.seqid, locks.seqid + 1);
    assert!(crowd.0.work().contains(&StateWork::GoOn(FILE)), "the compound that waits goes on");
    crowd.lock(1, by(other, "q"), LockType::Write, 0, u64::MAX).unwrap();
    crowd.0.tables.assert_consistent();
}

#[test]
fn an_upgrade_and_a_downgrade_of_thousands_of_ranges_hold_from_the_first_part() {
    for (before, after) in [(LockType::Read, LockType::Write), (LockType::Write, LockType::Read)] {
        let mut crowd = Crowd::new();
        let (_, locks) = crowd.locked(before);
        let other = crowd.open(1, 1, BOTH, 0).stateid;
        let mut locked = crowd.lock(0, LockerRef::Known(locks), after, 0, u64::MAX);
        let gap = crowd.lock(1, by(other, "q"), LockType::Write, 2 * RANGES + 5, 1);
        assert!(matches!(gap, Err(StateFault::Denied(_))), "{gap:?}");
        let mut passes = 0;
        while crowd.0.tables.has_ranges_to_go() {
            crowd.pass();
            passes += 1;
        }
        assert!((20..100).contains(&passes), "{passes}");
        if locked == Err(StateFault::AwaitPart) {
            assert_eq!(after, LockType::Read, "a write lock waits for nothing");
            locked = crowd.lock(0, LockerRef::Known(locks), after, 0, u64::MAX);
        }
        assert_eq!(locked.unwrap().seqid, locks.seqid + 1);
        crowd.0.tables.assert_consistent();
        assert_eq!(crowd.0.tables.file(FILE).unwrap().locks.len(), 1);
    }
}

#[test]
fn a_test_of_thousands_of_ranges_takes_few_steps() {
    let mut crowd = Crowd::new();
    let (open, _) = crowd.locked(LockType::Read);
    assert_eq!(crowd.test(0, b"p", LockType::Write), Ok(()));
    assert_eq!(crowd.test(1, b"q", LockType::Read), Ok(()));
    assert!(matches!(crowd.test(1, b"q", LockType::Write), Err(StateFault::Denied(_))));
    let close = crowd.0.on(0, open);
    within(ONE, || assert_eq!(crowd.0.tables.close(&close), failed(Status4::LocksHeld)));
}

#[test]
fn a_file_and_a_client_have_so_many_ranges_and_not_one_more() {
    let mut crowd = Crowd::new();
    let (_, mut locks) = crowd.locked(LockType::Read);
    let limit = StateLimits::default().ranges_per_file as u64;
    for at in RANGES..limit {
        locks = crowd.lock(0, LockerRef::Known(locks), LockType::Read, 2 * at, 1).unwrap();
    }
    let one_more = crowd.lock(0, LockerRef::Known(locks), LockType::Read, 2 * limit, 1);
    assert_eq!(one_more, failed(Status4::ServerFault), "RFC 8881 §15.2 allows it");
    let joined = crowd.lock(0, LockerRef::Known(locks), LockType::Read, 1, 1);
    assert!(joined.is_ok(), "one that joins two makes room");
}

#[test]
fn the_end_of_a_client_with_thousands_of_ranges_goes_in_parts() {
    let mut crowd = Crowd::new();
    crowd.locked(LockType::Write);
    let client = crowd.0.clients[0];
    crowd.0.tables.begin_release(client);
    let mut parts = 0;
    while !within(PART, || crowd.0.tables.release_some(client, 128)) {
        parts += 1;
    }
    assert!(parts as u64 >= RANGES / 128, "{parts}");
    crowd.0.tables.assert_consistent();
}

#[test]
fn opens_of_a_crowded_file_take_few_steps() {
    let mut crowd = Crowd::new();
    let opens: Vec<_> = (0..8_000).map(|owner| crowd.open(0, owner, BOTH, 0).stateid).collect();
    for owner in 0..8_000 {
        assert!(crowd.open(1, owner, READ, 0).is_new);
    }
    assert_eq!(crowd.try_open(2, 1, READ, READ).unwrap_err(), Status4::ShareDenied.into());
    let again = crowd.open(0, 17, READ, 0);
    assert!(!again.is_new);
    let delegated = crowd.0.tables.file(FILE).unwrap();
    assert!(crowd.0.tables.is_contended(delegated, crowd.0.clients[0], true, 64));
    for stateid in opens {
        let close = crowd.0.on(0, Stateid { seqid: 0, ..stateid });
        within(ONE, || crowd.0.tables.close(&close)).unwrap();
    }
    crowd.0.tables.assert_consistent();
}

#[test]
fn a_close_of_thousands_of_lock_owners_goes_in_parts() {
    let mut crowd = Crowd::new();
    let open = crowd.open(0, 1, BOTH, 0).stateid;
    for owner in 0..4_096 {
        let name = format!("owner {owner}");
        let locks = crowd.lock(0, by(open, &name), LockType::Write, 7, 1).unwrap();
        crowd.unlock_all(0, locks).unwrap();
    }
    let close = crowd.0.on(0, open);
    let mut parts = 0;
    while let Err(fault) = within(PART, || crowd.0.tables.close(&close)) {
        assert_eq!(fault, StateFault::AwaitPart);
        assert!(crowd.0.work().contains(&StateWork::GoOn(FILE)), "it goes on at once");
        parts += 1;
    }
    assert!(parts >= 20, "{parts}");
    crowd.0.tables.assert_consistent();
    assert_eq!(crowd.0.tables.states_of(crowd.0.clients[0]), 0);
}
