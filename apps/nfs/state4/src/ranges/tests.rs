//! Locks of a file against a model of each byte, and their cost in steps.

use super::*;
use stag_pools::steps::within;

/// Locks of each owner on each byte: nothing, a read lock, a write lock.
type Model = [[Option<bool>; 5]; 3];

type Step = (u64, LockRange, Option<bool>);

fn range(first: u64, last: u64) -> LockRange {
    LockRange::between(first, last).unwrap()
}

/// Makes a whole change, `most` ranges at a time. Returns the unlocked parts.
fn change(locks: &mut FileLocks, (owner, range, kind): Step, most: usize) -> Vec<LockRange> {
    let change = locks.plan(owner, range, kind);
    let before = locks.len();
    let mut freed: Vec<_> = locks.begin(&change).collect();
    while locks.is_changing(owner) {
        locks.sweep(owner, most, |range| freed.push(range));
    }
    assert!(locks.len() <= before + change.growth(), "a change grows as it says");
    freed
}

fn lock(locks: &mut FileLocks, step: Step) -> Result<(), HeldLock> {
    let (owner, range, kind) = step;
    let asked = kind.map(|exclusive| HeldLock { owner, range, exclusive });
    match asked.and_then(|asked| locks.conflict(&asked, None)) {
        Some(conflict) => Err(conflict),
        None => {
            change(locks, step, 1);
            Ok(())
        }
    }
}

fn check(locks: &FileLocks, model: &Model) {
    let mut seen = Model::default();
    let all: Vec<_> = locks.held().collect();
    assert_eq!(all.len(), locks.len());
    for held in &all {
        for octet in held.range.offset()..=held.range.last() {
            let place = &mut seen[held.owner as usize][octet as usize];
            assert_eq!(*place, None, "locks of an owner do not overlap");
            *place = Some(held.exclusive);
        }
        let is_joined = |other: &HeldLock| {
            other != held
                && (other.owner, other.exclusive) == (held.owner, held.exclusive)
                && other.range.touches(&held.range)
        };
        assert!(!all.iter().any(is_joined), "locks that touch are one");
    }
    assert_eq!(seen, *model);
    for octet in 0..5 {
        let strongest = model.iter().filter_map(|owner| owner[octet]).max();
        let (found, last) = locks.strongest(octet as u64);
        assert_eq!(found, strongest);
        for same in octet..=last.min(4) as usize {
            assert_eq!(model.iter().filter_map(|owner| owner[same]).max(), strongest);
        }
        if strongest.is_none() {
            let from = locks.free_from(octet as u64) as usize;
            let is_free = |at: usize| model.iter().all(|owner| owner[at].is_none());
            assert!((from..octet).all(is_free) && (from == 0 || !is_free(from - 1)));
        }
    }
}

/// One step: an owner, a range, a type or unlocking.
fn steps(owners: u64, octets: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    for owner in 0..owners {
        for first in 0..octets {
            for last in first..octets {
                for kind in [None, Some(false), Some(true)] {
                    steps.push((owner, range(first, last), kind));
                }
            }
        }
    }
    steps
}

fn take(locks: &mut FileLocks, model: &mut Model, step: Step) {
    let (owner, range, kind) = step;
    let octets = || (range.offset() as usize)..=(range.last() as usize);
    let Some(exclusive) = kind else {
        let mut freed = change(locks, step, 1);
        freed.sort_unstable_by_key(LockRange::offset);
        let freed = freed.iter().flat_map(|part| part.offset()..=part.last());
        let held = octets().filter(|octet| model[owner as usize][*octet].is_some());
        assert!(freed.eq(held.map(|octet| octet as u64)), "what was locked is freed");
        octets().for_each(|octet| model[owner as usize][octet] = None);
        return check(locks, model);
    };
    let denied = (0..3).filter(|other| *other != owner as usize).any(|other| {
        octets().any(|octet| model[other][octet].is_some_and(|held| held || exclusive))
    });
    match lock(locks, step) {
        Ok(()) => {
            assert!(!denied);
            octets().for_each(|octet| model[owner as usize][octet] = Some(exclusive));
        }
        Err(held) => assert!(denied && held.owner != owner && held.range.overlaps(&range)),
    }
    check(locks, model);
}

#[test]
fn any_three_steps_of_two_owners_end_as_octets_one_by_one_say() {
    let steps = steps(2, 4);
    for first in &steps {
        for second in &steps {
            for third in &steps {
                let (mut locks, mut model) = (FileLocks::default(), Model::default());
                [first, second, third]
                    .into_iter()
                    .for_each(|step| take(&mut locks, &mut model, *step));
            }
        }
    }
}

#[test]
fn long_runs_of_three_owners_end_as_octets_one_by_one_say() {
    let steps = steps(3, 5);
    let mut random = fastrand::Rng::with_seed(9);
    for _ in 0..2_000 {
        let (mut locks, mut model) = (FileLocks::default(), Model::default());
        for _ in 0..30 {
            take(&mut locks, &mut model, steps[random.usize(..steps.len())]);
        }
        let owner = random.u64(0..3);
        let count = locks.held().filter(|held| held.owner == owner).count();
        assert_eq!(locks.has_locks(owner), count > 0);
        assert_eq!(locks.release(owner, usize::MAX, |_| {}), count);
        model[owner as usize] = Default::default();
        check(&locks, &model);
    }
}

#[test]
fn every_conflict_is_found_one_after_the_other() {
    let mut random = fastrand::Rng::with_seed(4);
    for _ in 0..500 {
        let mut locks = FileLocks::default();
        for _ in 0..random.usize(..30) {
            let first = random.u64(..40);
            let kind = Some(random.u8(..4) == 0);
            let _denied =
                lock(&mut locks, (random.u64(..4), range(first, first + random.u64(..6)), kind));
        }
        let first = random.u64(..40);
        let range = range(first, first + random.u64(..20));
        let asked = HeldLock { owner: random.u64(..5), range, exclusive: random.bool() };
        let conflicts = |held: &HeldLock| {
            held.owner != asked.owner
                && held.range.overlaps(&asked.range)
                && (held.exclusive || asked.exclusive)
        };
        let mut expected: Vec<_> = locks.held().filter(conflicts).collect();
        expected.sort_unstable_by_key(|held| (!held.exclusive, held.range.offset(), held.owner));
        let mut past = None;
        let found = std::iter::from_fn(|| {
            past = locks.conflict(&asked, past);
            past
        });
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}

/// Two owners with `count` read locks each, separated by gaps.
fn crowded(count: u64) -> FileLocks {
    let mut locks = FileLocks::default();
    for at in 0..count {
        for owner in [1, 2] {
            change(&mut locks, (owner, range(10 * at, 10 * at + owner), Some(false)), 1);
        }
    }
    locks
}

#[test]
fn among_sixteen_thousand_ranges_each_question_takes_a_few_hundred_steps() {
    const COUNT: u64 = 8_192;
    let mut locks = crowded(COUNT);
    let whole = range(0, u64::MAX);
    let asked = |owner, exclusive| HeldLock { owner, range: whole, exclusive };
    within(512, || assert_eq!(locks.conflict(&asked(1, false), None), None));
    within(512, || assert!(locks.conflict(&asked(1, true), None).is_some()));
    // The last range of another owner, after all ranges of the asking one.
    within(512, || locks.release(2, 256, |_| {}));
    while locks.has_locks(2) {
        locks.release(2, 256, |_| {});
    }
    change(&mut locks, (3, range(10 * COUNT, 10 * COUNT), Some(true)), 1);
    let found = within(512, || locks.conflict(&asked(1, true), None)).unwrap();
    assert_eq!(found.owner, 3);
    for at in [0, 5 * COUNT, 10 * COUNT, u64::MAX] {
        within(1_024, || (locks.strongest(at), locks.free_from(at)));
    }
}

#[test]
fn a_change_of_thousands_of_ranges_goes_in_steps_and_holds_from_the_first() {
    const COUNT: usize = 8_192;
    for kind in [None, Some(false), Some(true)] {
        let mut locks = crowded(COUNT as u64);
        while locks.has_locks(2) {
            locks.release(2, 1_000, |_| {});
        }
        let whole = range(3, u64::MAX);
        within(1_024, || {
            let change = locks.plan(1, whole, kind);
            assert_eq!(change.growth(), 0);
            locks.begin(&change).for_each(drop);
        });
        assert!(locks.is_changing(1) && !locks.is_changing(2));
        let asked = HeldLock { owner: 2, range: range(u64::MAX, u64::MAX), exclusive: true };
        assert_eq!(locks.conflict(&asked, None).is_some(), kind.is_some());
        let mut rounds = 0;
        while locks.is_changing(1) {
            let count = within(1_024, || locks.sweep(1, 256, |_| {}));
            assert!(count <= 256);
            rounds += 1;
        }
        assert!((COUNT / 256..=COUNT / 256 + 1).contains(&rounds), "{rounds}");
        assert_eq!(locks.len(), 1 + usize::from(kind.is_some()));
    }
}
