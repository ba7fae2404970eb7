//! The window of sequence numbers of one context (RFC 2203 §5.3.3.1), without a lock.
//!
//! Every shard that has a call of the context uses the same window. A slot holds the highest number
//! that fell into it and only grows, so each number passes once, on any shard and in any order of
//! its copies. The highest number of all decides which numbers are too old.

use core::fmt;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use stag_protocol::rpc::gss::MAXSEQ;

/// Sequence numbers that a window remembers. Calls in flight of all connections of one context fit
/// in it several times.
pub const WINDOW: u32 = 512;

/// A sequence number below [`MAXSEQ`] whose call has a verified header. Only verification makes
/// one, so a stranger does not move a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedSequence(u32);

impl VerifiedSequence {
    /// To be made after the header's checksum was verified.
    pub(crate) fn new(sequence: u32) -> Option<Self> {
        (sequence < MAXSEQ).then_some(Self(sequence))
    }

    /// The number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// A sequence number was seen before, or is below the window. Such a call gets no answer, and its
/// connection stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed;

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the sequence number was seen before, or is below the window")
    }
}

impl std::error::Error for Replayed {}

/// Sequence numbers seen in one context.
pub struct ReplayWindow {
    /// The highest number of each residue, plus one; 0 when there is none.
    slots: [AtomicU32; WINDOW as usize],
    /// The highest number, plus one.
    highest: AtomicU32,
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ReplayWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplayWindow(next {})", self.highest.load(Relaxed))
    }
}

impl ReplayWindow {
    /// A window that has seen nothing.
    pub const fn new() -> Self {
        Self { slots: [const { AtomicU32::new(0) }; WINDOW as usize], highest: AtomicU32::new(0) }
    }

    /// Takes a number if it is in the window or above it, and was not seen before.
    ///
    /// One locked instruction, and one more for a number higher than all before. No order between
    /// threads is needed: a window says nothing about other memory.
    #[inline]
    pub fn accept(&self, sequence: VerifiedSequence) -> Result<(), Replayed> {
        let number = sequence.number() + 1;
        let highest = self.highest.load(Relaxed);
        // RFC 2203 §5.3.3.1 [2203-20]: a number below the window is discarded in silence
        if number.saturating_add(WINDOW) <= highest {
            return Err(Replayed);
        }
        let at = usize::try_from(number % WINDOW).map_err(|_| Replayed)?;
        let slot = self.slots.get(at).ok_or(Replayed)?;
        // RFC 2203 §5.3.3.1 [2203-21]: a number that was seen is discarded in silence
        if slot.fetch_max(number, Relaxed) >= number {
            return Err(Replayed);
        }
        if number > highest {
            // RFC 2203 §5.3.3.1 [2203-18]: a higher number moves the window forward
            self.highest.fetch_max(number, Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::{Barrier, atomic::AtomicUsize};
    use std::thread;

    fn accept(window: &ReplayWindow, sequence: u32) -> bool {
        window.accept(VerifiedSequence::new(sequence).unwrap()).is_ok()
    }

    #[test]
    fn a_number_passes_once() {
        let window = ReplayWindow::new();
        for sequence in 0..2_000 {
            assert!(accept(&window, sequence), "{sequence}");
            assert!(!accept(&window, sequence), "{sequence} again");
        }
    }

    #[test]
    fn the_window_has_512_numbers_and_moves_by_the_highest() {
        let window = ReplayWindow::new();
        assert!(accept(&window, 10_000));
        assert!(!accept(&window, 10_000 - 512), "below");
        assert!(accept(&window, 10_000 - 511), "the lowest");
        assert!(accept(&window, 9_700));
        assert!(accept(&window, 10_001));
        assert!(!accept(&window, 10_001 - 512), "which was the lowest");
        assert!(accept(&window, 10_001 - 511));
        // A call far ahead drops all that is open.
        assert!(accept(&window, 20_000));
        for sequence in 10_002..20_000 - 511 {
            assert!(!accept(&window, sequence), "{sequence}");
        }
        for sequence in 20_000 - 511..20_000 {
            assert!(accept(&window, sequence), "{sequence}");
        }
    }

    #[test]
    fn the_first_and_the_last_number_are_like_all_others() {
        let window = ReplayWindow::new();
        assert!(accept(&window, 5) && accept(&window, 0) && !accept(&window, 0));
        assert!(accept(&window, MAXSEQ - 1) && !accept(&window, MAXSEQ - 1));
        assert!(accept(&window, MAXSEQ - 512) && !accept(&window, MAXSEQ - 513));
        assert_eq!(VerifiedSequence::new(MAXSEQ), None);
        assert_eq!(VerifiedSequence::new(u32::MAX), None);
    }

    #[test]
    fn any_order_gives_what_the_specification_says() {
        for seed in 0..50 {
            let mut random = fastrand::Rng::with_seed(seed);
            let window = ReplayWindow::new();
            let (mut seen, mut highest) = (HashSet::new(), None);
            for _ in 0..5_000 {
                let base = highest.unwrap_or(0_u32);
                let sequence =
                    base.saturating_add(random.u32(..40)).saturating_sub(random.u32(..700));
                let in_window = highest.is_none_or(|highest| sequence + WINDOW > highest);
                let expected = in_window && seen.insert(sequence);
                assert_eq!(accept(&window, sequence), expected, "{sequence} of {highest:?}");
                if expected {
                    highest = highest.max(Some(sequence));
                }
            }
        }
    }

    /// Every interleaving of the steps of several calls: load, slot, highest.
    #[test]
    fn no_interleaving_lets_a_number_pass_twice() {
        #[derive(Clone, Default)]
        struct Model {
            slots: [u32; 4],
            highest: u32,
        }
        #[derive(Clone, Copy, PartialEq)]
        enum Step {
            Load,
            Slot(u32),
            Highest,
            Done(bool),
        }
        fn run(model: &Model, calls: [(u32, Step); 3], outcomes: &mut HashSet<[bool; 3]>) {
            let mut is_done = true;
            for at in 0..3 {
                let (mut model, mut calls) = (model.clone(), calls);
                let (number, step) = &mut calls[at];
                let slot = &mut model.slots[*number as usize % 4];
                *step = match *step {
                    Step::Done(_) => continue,
                    Step::Load if *number + 4 <= model.highest => Step::Done(false),
                    Step::Load => Step::Slot(model.highest),
                    Step::Slot(_) if *slot >= *number => Step::Done(false),
                    Step::Slot(highest) => {
                        *slot = *number;
                        if *number > highest { Step::Highest } else { Step::Done(true) }
                    }
                    Step::Highest => {
                        model.highest = model.highest.max(*number);
                        Step::Done(true)
                    }
                };
                is_done = false;
                run(&model, calls, outcomes);
            }
            if is_done {
                outcomes.insert(calls.map(|(_, step)| step == Step::Done(true)));
            }
        }
        for numbers in (0..1_000).map(|n| [1 + n / 100, 1 + n / 10 % 10, 1 + n % 10]) {
            let mut outcomes = HashSet::new();
            run(&Model::default(), numbers.map(|n| (n, Step::Load)), &mut outcomes);
            for outcome in outcomes {
                let accepted = numbers.iter().zip(outcome).filter(|(_, accepted)| *accepted);
                let accepted: Vec<u32> = accepted.map(|(number, _)| *number).collect();
                let distinct: HashSet<u32> = accepted.iter().copied().collect();
                assert_eq!(accepted.len(), distinct.len(), "{numbers:?}: {accepted:?}");
                let highest = numbers.into_iter().max().unwrap();
                assert!(distinct.contains(&highest), "{numbers:?}: {accepted:?}");
            }
        }
    }

    #[test]
    fn of_copies_on_several_threads_one_passes() {
        // Threads meet after each block, so that no number falls below the window.
        const BLOCK: usize = 256;
        const NUMBERS: usize = 80 * BLOCK;
        const { assert!(BLOCK < WINDOW as usize) };
        const THREADS: usize = 4;
        let (window, meet) = (ReplayWindow::new(), Barrier::new(THREADS));
        let passed: Vec<AtomicUsize> = (0..NUMBERS).map(|_| AtomicUsize::new(0)).collect();
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (window, passed, meet) = (&window, &passed, &meet);
                scope.spawn(move || {
                    for (sequence, count) in passed.iter().enumerate() {
                        if sequence % BLOCK == 0 {
                            meet.wait();
                        }
                        if thread % 2 == 0 || sequence % 3 > 0 {
                            let is_new = accept(window, sequence as u32);
                            count.fetch_add(usize::from(is_new), Relaxed);
                        }
                    }
                });
            }
        });
        let wrong = passed.iter().position(|count| count.load(Relaxed) != 1);
        assert_eq!(wrong, None, "each number passes once");
    }
}
