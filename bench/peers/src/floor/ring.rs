//! The floor of shared memory: two threads, a ring of call slots and a ring of reply slots.
//!
//! A slot has its number and its octets side by side, so that one look says whether it is full: the
//! octets of a NULL call (68) need two cache lines with it, those of its reply (52) one. Waiting
//! pauses the core, which is faster here than looking as often as it can.

use crate::{
    contender::{Contender, Reading},
    floor,
    site::{MeasuringSite, Seats},
};
use crossbeam_utils::CachePadded;
use std::{
    hint::{black_box, spin_loop},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Words of the octets of a NULL call over RPC-over-RDMA: a transport header of 28, a call header
/// of 40.
pub const CALL: usize = 9;
/// Words of its reply's octets: 28 and 24.
pub const REPLY: usize = 7;
/// Slots of a ring.
const SLOTS: usize = 64;
/// Round trips between two looks at the clock.
const BATCH: u32 = 16;
/// Samples at most.
const SAMPLES: usize = 1 << 20;
/// Looks at a slot before the thread yields its core: far more than a round trip takes.
const LOOKS: u32 = 1 << 12;

/// Octets, preceded by the number of the message that they hold.
#[derive(Debug)]
struct FloorSlot<const WORDS: usize> {
    number: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// Slots that one thread fills and another one empties, in order.
#[derive(Debug)]
pub struct FloorRing<const WORDS: usize>(Box<[CachePadded<FloorSlot<WORDS>>]>);

impl<const WORDS: usize> Default for FloorRing<WORDS> {
    fn default() -> Self {
        // Neighbours do not disturb each other.
        let slot = |_| {
            CachePadded::new(FloorSlot {
                number: AtomicU64::new(0),
                words: [const { AtomicU64::new(0) }; WORDS],
            })
        };
        Self((0..SLOTS).map(slot).collect())
    }
}

impl<const WORDS: usize> FloorRing<WORDS> {
    fn slot(&self, number: u64) -> &FloorSlot<WORDS> {
        self.0.get(number as usize % SLOTS).expect("a ring has all its slots")
    }

    /// Fills the slot of message `number`, from 1 on. Not more than its slots ahead of
    /// [`FloorRing::take`].
    pub fn put(&self, number: u64, words: &[u64; WORDS]) {
        let slot = self.slot(number);
        for (to, word) in slot.words.iter().zip(words) {
            to.store(*word, Ordering::Relaxed);
        }
        slot.number.store(number, Ordering::Release);
    }

    /// Waits for message `number`.
    pub fn take(&self, number: u64) -> [u64; WORDS] {
        let slot = self.slot(number);
        let mut looks = 0_u32;
        while slot.number.load(Ordering::Acquire) != number {
            spin_loop();
            looks += 1;
            // The other thread may have no core.
            if looks.is_multiple_of(LOOKS) {
                thread::yield_now();
            }
        }
        let mut words = [0; WORDS];
        for (word, from) in words.iter_mut().zip(&slot.words) {
            *word = from.load(Ordering::Relaxed);
        }
        words
    }
}

/// First word of the last call, after which the answering thread ends.
const END: u64 = u64::MAX;

/// Answers calls until the last: the first word of a reply is that of its call.
fn answer(calls: &FloorRing<CALL>, replies: &FloorRing<REPLY>) {
    for number in 1.. {
        let [first, ..] = black_box(calls.take(number));
        let mut reply = [number; REPLY];
        reply[0] = first;
        replies.put(number, &reply);
        if first == END {
            return;
        }
    }
}

/// Selection of the round trips that are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// Several together: the clock's time is in none.
    Batches,
    /// Each: the clock's time is in all.
    Each,
    /// Each of an open loop at half of the ring's peak rate, evenly spaced, measured from the time
    /// when the call was due. A thread that is stopped for a moment delays all calls that were due
    /// in it.
    Open,
}

/// The side that asks.
struct Asker<'a> {
    calls: &'a FloorRing<CALL>,
    replies: &'a FloorRing<REPLY>,
    number: u64,
    samples: Vec<f64>,
}

impl Asker<'_> {
    fn call(&mut self) {
        self.number += 1;
        self.calls.put(self.number, &[self.number; CALL]);
        let [first, ..] = black_box(self.replies.take(self.number));
        debug_assert_eq!(first, self.number, "replies come in order");
    }

    /// Makes one call after the other, `batch` of them between two looks at the clock.
    fn closed(&mut self, time: Duration, batch: u32) {
        self.samples.clear();
        let began = Instant::now();
        let mut last = began;
        while self.samples.len() < SAMPLES && last.duration_since(began) < time {
            (0..batch).for_each(|_| self.call());
            let now = Instant::now();
            self.samples.push(now.duration_since(last).as_nanos() as f64 / f64::from(batch));
            last = now;
        }
    }

    /// Makes a call every `gap`, measured from its due time; a call that is late goes out at once.
    fn open(&mut self, time: Duration, gap: Duration) {
        self.samples.clear();
        let (began, mut meant) = (Instant::now(), Duration::ZERO);
        while self.samples.len() < SAMPLES && meant < time {
            while began.elapsed() < meant {
                spin_loop();
            }
            self.call();
            self.samples.push((began.elapsed() - meant).as_nanos() as f64);
            meant += gap;
        }
    }
}

/// Round trips between two cores, in nanoseconds, for `time`.
///
/// # Errors
/// When a core cannot be taken.
pub fn trips(seats: Seats, time: Duration, sample: Sample) -> Result<Vec<f64>, String> {
    let (calls, replies) = (FloorRing::<CALL>::default(), FloorRing::<REPLY>::default());
    let ask = || {
        // Touched before, so that no page fault occurs during the measurement.
        let mut asker =
            Asker { calls: &calls, replies: &replies, number: 0, samples: vec![1.0; SAMPLES] };
        match sample {
            Sample::Batches => asker.closed(time, BATCH),
            Sample::Each => asker.closed(time, 1),
            Sample::Open => {
                asker.closed(time / 4, BATCH);
                let each = asker.samples.iter().sum::<f64>() / asker.samples.len().max(1) as f64;
                asker.open(time, Duration::from_nanos((each * 2.0).ceil() as u64));
            }
        }
        calls.put(asker.number + 1, &[END; CALL]);
        asker.samples
    };
    floor::pair(seats, || answer(&calls, &replies), ask)
}

/// The ring as one side of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct RingFloor(pub Sample);

impl Contender for RingFloor {
    fn name(&self) -> String {
        match self.0 {
            Sample::Batches | Sample::Each => "two-thread ring".to_owned(),
            Sample::Open => "two-thread ring, half of its peak".to_owned(),
        }
    }

    fn commands(&self) -> Vec<String> {
        vec![
            "two threads of stag-peers: a ring with slots of 68 and 52 octets, PAUSE while it waits"
                .to_owned(),
        ]
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        Ok(Reading::of_trips(&mut trips(site.seats(), site.turn / 2, self.0)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_passes_whole_and_in_order() {
        const MESSAGES: u64 = 5_000;
        let ring = FloorRing::<CALL>::default();
        let taken = FloorRing::<1>::default();
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=MESSAGES {
                    // No more ahead than there are slots.
                    if number > SLOTS as u64 {
                        taken.take(number - SLOTS as u64);
                    }
                    ring.put(number, &std::array::from_fn(|word| number * 100 + word as u64));
                }
            });
            for number in 1..=MESSAGES {
                let words = ring.take(number);
                assert_eq!(
                    words,
                    std::array::from_fn(|word| number * 100 + word as u64),
                    "{number}"
                );
                taken.put(number, &[number]);
            }
        });
    }

    #[test]
    fn every_call_is_answered_with_its_first_word() {
        let (calls, replies) = (FloorRing::<CALL>::default(), FloorRing::<REPLY>::default());
        thread::scope(|scope| {
            scope.spawn(|| answer(&calls, &replies));
            for number in 1..=1_000 {
                calls.put(number, &[number * 7; CALL]);
                let mut reply = [number; REPLY];
                reply[0] = number * 7;
                assert_eq!(replies.take(number), reply);
            }
            calls.put(1_001, &[END; CALL]);
        });
    }

    #[test]
    fn every_way_of_sampling_gives_times() {
        let cores = crate::site::cores();
        let (Some(first), Some(last)) = (cores.first(), cores.last()) else { return };
        for sample in [Sample::Batches, Sample::Each, Sample::Open] {
            let trips =
                trips(Seats { server: *first, client: *last }, Duration::from_millis(20), sample)
                    .unwrap();
            assert!(!trips.is_empty() && trips.iter().all(|nanos| *nanos >= 0.0), "{sample:?}");
        }
    }

    #[test]
    fn a_slot_has_as_many_lines_as_its_octets_need() {
        // No slot shares a line with the slot before or after it.
        let line = align_of::<CachePadded<FloorSlot<CALL>>>();
        assert!(line.is_multiple_of(64), "{line}");
        assert_eq!((size_of::<FloorSlot<CALL>>(), size_of::<FloorSlot<REPLY>>()), (80, 64));
        // With its number, within two lines and within one.
        assert_eq!(((CALL + 1) * 8).div_ceil(64), 2);
        assert_eq!(((REPLY + 1) * 8).div_ceil(64), 1);
    }
}
