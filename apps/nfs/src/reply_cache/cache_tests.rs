use super::*;
use stag_protocol::rpcrdma::Xid;
use std::collections::VecDeque;

fn key(number: u32) -> CallKey {
    // Few digests, so that chains get long; the lowest bits select the bucket.
    CallKey { xid: Xid(number), digest: [u64::from(number % 5), u64::from(number % 3)] }
}

fn reply(number: u32) -> Vec<u8> {
    vec![number as u8; 1 + number as usize % REPLY_MAX]
}

struct Shelf {
    cache: ReplyCache,
    counts: Duplicates,
}

impl Shelf {
    fn new(capacity: usize) -> Self {
        Self { cache: ReplyCache::new(capacity, 4), counts: Duplicates::default() }
    }

    /// Makes a call; returns true if it was executed. A replay must return the first reply.
    fn call(&mut self, number: u32, now: u64) -> bool {
        self.call_from(number as usize % 4, number, now)
    }

    fn call_from(&mut self, slot: usize, number: u32, now: u64) -> bool {
        let ticket = match self.cache.judge(&key(number), slot, Time(now), &mut self.counts) {
            CacheVerdict::Execute(ticket) => ticket,
            CacheVerdict::Replay(octets) => {
                assert_eq!(octets, reply(number));
                return false;
            }
            CacheVerdict::Busy => panic!("every call is finished"),
        };
        self.cache.finish(ticket, &reply(number));
        self.check();
        true
    }

    /// Follows every link.
    fn check(&self) {
        let cache = &self.cache;
        let (mut all, mut in_use) = (0, 0);
        for (slot, line) in cache.lines.iter().enumerate() {
            let (mut place, mut newer, mut len) = (line.newest, NONE, 0);
            while place != NONE {
                let entry = cache.entry(place);
                assert_eq!(
                    (entry.newer, entry.slot, cache.find(entry.key.as_ref().unwrap())),
                    (newer, slot, Some(place))
                );
                assert!(
                    newer == NONE || cache.entry(newer).born >= entry.born,
                    "the line is sorted by age"
                );
                (newer, place, len) = (place, entry.older, len + 1);
            }
            assert_eq!((line.oldest, line.len), (newer, len));
            all += len as usize;
            in_use += usize::from(len > 0);
        }
        assert_eq!((cache.len, cache.slots_in_use), (all, in_use));
        let mut free = 0;
        let mut place = cache.free;
        while place != NONE {
            (place, free) = (cache.entry(place).chained, free + 1);
        }
        assert_eq!(all + free, cache.entries.len());
        assert!(!cache.is_busy());
    }
}

#[test]
fn a_duplicate_gets_the_first_reply_until_the_cache_is_full_of_newer_ones() {
    for capacity in [1, 2, 3, 7, 64] {
        let mut shelf = Shelf::new(capacity);
        let mut kept = VecDeque::new();
        let mut random = 1_u32;
        for now in 0..3_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = (random >> 16) % (2 * capacity as u32 + 1);
            assert_eq!(
                shelf.call_from(1, number, now),
                !kept.contains(&number),
                "{capacity}, {now}"
            );
            if !kept.contains(&number) {
                kept.push_back(number);
                if kept.len() > capacity {
                    kept.pop_front();
                }
            }
        }
        assert_eq!(shelf.cache.len(), capacity);
        assert!(shelf.counts.replayed > 0 && shelf.counts.evicted > 0);
    }
}

#[test]
fn a_reply_is_kept_for_so_long_and_no_longer() {
    let age = AGE_MAX.as_nanos() as u64;
    let mut shelf = Shelf::new(4);
    assert!(shelf.call(1, 5));
    assert!(!shelf.call(1, 5 + age - 1));
    assert!(shelf.call(1, 5 + age), "it is another call by then");
    assert!(!shelf.call(1, 5 + age + age - 1));
    assert_eq!(shelf.cache.len(), 1);
}

#[test]
fn a_call_that_is_carried_out_is_neither_carried_out_nor_answered_again() {
    let mut shelf = Shelf::new(4);
    let CacheVerdict::Execute(ticket) = shelf.cache.judge(&key(1), 0, Time(0), &mut shelf.counts)
    else {
        panic!()
    };
    assert!(matches!(
        shelf.cache.judge(&key(1), 0, Time(1), &mut shelf.counts),
        CacheVerdict::Busy
    ));
    assert!(shelf.cache.is_busy());
    assert_eq!(shelf.counts.busy, 1);
    shelf.cache.finish(ticket, &reply(1));
    assert!(!shelf.call(1, 2));
}

#[test]
fn a_reply_that_comes_after_its_place_was_taken_is_forgotten() {
    let mut shelf = Shelf::new(1);
    let CacheVerdict::Execute(ticket) = shelf.cache.judge(&key(1), 0, Time(0), &mut shelf.counts)
    else {
        panic!()
    };
    assert!(shelf.call(2, 1));
    shelf.cache.finish(ticket, &reply(1));
    shelf.check();
    assert!(!shelf.call(2, 2));
    assert!(shelf.call(1, 3));
}

#[test]
fn replies_move_by_slot_and_keep_their_age() {
    let (mut from, mut to) = (Shelf::new(16), Shelf::new(16));
    (0..16).for_each(|number| assert!(from.call(number, u64::from(number) * 10)));
    (100..108).for_each(|number| assert!(to.call(number, u64::from(number - 100) * 20 + 5)));
    let moved = from.cache.take(2);
    from.check();
    assert_eq!((moved.len(), from.cache.len()), (4, 12));
    to.cache.put(2, moved, &mut to.counts);
    to.check();
    assert_eq!((to.cache.len(), to.counts.evicted), (12, 0));
    for number in [2, 6, 10, 14] {
        assert!(!to.call(number, 200), "it is there");
    }
    (100..108).for_each(|number| assert!(!to.call(number, 200), "what was there still is"));
    assert!(from.cache.take(2).is_empty());
    assert!(from.call(2, 200), "it is no longer there");
}

#[test]
fn a_full_cache_keeps_the_newest_of_both_where_a_slot_has_its_part() {
    for capacity in 1..=12 {
        for (shift, count) in [(0, 4), (35, 4), (75, 4), (200, 4), (35, 1)] {
            let (mut from, mut to) = (Shelf::new(16), Shelf::new(capacity));
            (0..count).for_each(|i| assert!(from.call(i * 4, u64::from(i) * 10 + shift)));
            let own = (0..capacity as u32)
                .map(|i| (400 + i * 4, u64::from(i) * 10 + 1))
                .collect::<Vec<_>>();
            own.iter().for_each(|(number, born)| assert!(to.call(*number, *born)));
            let moved = from.cache.take(0);
            to.cache.put(0, moved, &mut to.counts);
            to.check();
            let mut all = (0..count)
                .map(|i| (i * 4, u64::from(i) * 10 + shift))
                .chain(own)
                .collect::<Vec<_>>();
            all.sort_by_key(|(_, born)| *born);
            let kept = all.split_off(all.len().saturating_sub(capacity));
            for (number, _) in kept {
                assert!(
                    to.cache.find(&key(number)).is_some(),
                    "capacity {capacity}, shift {shift}: {number}"
                );
            }
            assert_eq!((to.cache.len(), to.counts.evicted), (capacity, u64::from(count)));
        }
    }
}

#[test]
fn what_is_there_twice_stays_once() {
    let (mut from, mut to) = (Shelf::new(4), Shelf::new(4));
    assert!(from.call(1, 1) && to.call(1, 2));
    to.cache.put(1, from.cache.take(1), &mut to.counts);
    to.check();
    assert_eq!(to.cache.len(), 1);
}

#[test]
fn an_entry_is_little_more_than_its_reply() {
    assert!(size_of::<ReplyEntry>() <= REPLY_MAX + 64, "{}", size_of::<ReplyEntry>());
}

#[test]
fn the_memory_is_what_the_budget_says() {
    let octets = ReplyCache::octets(4096, 256);
    assert!((1 << 20..2 << 20).contains(&octets), "{octets}");
    let cache = ReplyCache::new(4096, 256);
    assert_eq!(
        size_of_val(&*cache.entries) + 4 * cache.buckets.len() + size_of_val(&*cache.lines),
        octets
    );
}

#[test]
fn one_host_may_fill_the_cache_and_pushes_no_reply_of_others_out() {
    let mut shelf = Shelf::new(64);
    (0..200).for_each(|number| assert!(shelf.call_from(0, number, 1)));
    assert_eq!(shelf.cache.line(0).len, 64, "one host alone has all of it");
    (1_000..1_010).for_each(|number| assert!(shelf.call_from(1, number, 2)));
    (200..700).for_each(|number| assert!(shelf.call_from(0, number, 3)));
    (1_000..1_010).for_each(|number| assert!(!shelf.call_from(1, number, 4), "it is kept"));
    // Hosts that keep calling have equal shares.
    (2_000..2_200).for_each(|number| assert!(shelf.call_from(1, number, 5)));
    (3_000..3_200).for_each(|number| assert!(shelf.call_from(2, number, 5)));
    let parts: Vec<_> = (0..3).map(|slot| shelf.cache.line(slot).len).collect();
    assert_eq!(parts, [21, 21, 22]);
    shelf.check();
}

#[test]
fn replies_that_move_push_no_more_out_than_the_part_of_their_host() {
    let (mut from, mut to) = (Shelf::new(64), Shelf::new(64));
    (0..64).for_each(|number| assert!(from.call_from(0, number, 100)));
    (100..116).for_each(|number| assert!(to.call_from(1, number, 1)));
    (200..248).for_each(|number| assert!(to.call_from(2, number, 2)));
    to.cache.put(0, from.cache.take(0), &mut to.counts);
    to.check();
    let parts: Vec<_> = (0..3).map(|slot| to.cache.line(slot).len).collect();
    assert_eq!(parts, [22, 16, 26]);
    (100..116).for_each(|number| assert!(!to.call_from(1, number, 200), "it is kept"));
}

#[test]
fn replies_that_are_too_old_for_any_call_go_first() {
    let mut shelf = Shelf::new(64);
    (0..32).for_each(|number| assert!(shelf.call_from(1, number, 1)));
    (100..132).for_each(|number| assert!(shelf.call_from(2, number, 1)));
    let now = 2 + AGE_MAX.as_nanos() as u64;
    (200..300).for_each(|number| assert!(shelf.call_from(0, number, now)));
    assert!(shelf.cache.line(0).len > 56, "{}", shelf.cache.line(0).len);
}
