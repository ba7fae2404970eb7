//! 64 messages of the captures, malformed at every octet: cut, each bit flipped, each word set to
//! 0, 1, the largest value and the one below. The outcome is an error or a valid message, never a
//! panic, and nothing allocates.
//!
//! Exhaustive for the messages themselves and for every header. The contents of chunks, Writes and
//! Read Responses are changed only at every [`STRIDE`]th octet between their first [`DENSE`] octets
//! and the last [`TRAILER`].

mod fpdus;
mod messages;
mod samples;
mod set_up;

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::counting::allocations;

/// Octets from the front that are all changed, whatever they are.
const DENSE: usize = 4096;
const STRIDE: usize = 64;
/// Octets at the end that are all changed: pad and CRC of an FPDU.
const TRAILER: usize = 8;

/// Mutation of some octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    /// Only this number of octets is left.
    Cut(usize),
    /// This bit of the octet is flipped.
    Bit(usize, u8),
    /// The word that begins here has another value.
    Word(usize, u32),
}

impl Mutation {
    /// Offset of the first octet that may differ.
    fn at(self) -> usize {
        match self {
            Self::Cut(at) | Self::Bit(at, _) | Self::Word(at, _) => at,
        }
    }

    fn is_cut(self) -> bool {
        matches!(self, Self::Cut(_))
    }
}

fn is_changed(at: usize, len: usize) -> bool {
    at < DENSE || at.is_multiple_of(STRIDE) || at + TRAILER >= len
}

/// Shows every cut of `octets` to `judge`.
fn cuts(octets: &[u8], mut judge: impl FnMut(&[u8], Mutation)) {
    (0..octets.len()).for_each(|len| judge(&octets[..len], Mutation::Cut(len)));
}

/// Changes `octets` in place in every way but cuts; `len` of them count, and they are as before in
/// the end.
fn changes(octets: &mut [u8], len: usize, mut judge: impl FnMut(&[u8], Mutation)) {
    for at in (0..len).filter(|at| is_changed(*at, len)) {
        for bit in 0..8 {
            octets[at] ^= 1 << bit;
            judge(octets, Mutation::Bit(at, bit));
            octets[at] ^= 1 << bit;
        }
    }
    for at in (0..len.saturating_sub(3)).step_by(4).filter(|at| is_changed(*at, len)) {
        let word: [u8; 4] = octets[at..at + 4].try_into().unwrap();
        for value in [0, 1, u32::MAX, u32::MAX - 1] {
            octets[at..at + 4].copy_from_slice(&u32::to_be_bytes(value));
            judge(octets, Mutation::Word(at, value));
        }
        octets[at..at + 4].copy_from_slice(&word);
    }
}

/// Runs judgements, and remembers which of them panicked or allocated.
#[derive(Default)]
struct Court {
    judgements: usize,
    failures: Vec<String>,
}

impl Court {
    /// Runs `judge` and returns its result; a panic or an allocation counts as a failure, and
    /// returns `None`.
    fn hear<T>(
        &mut self,
        name: &str,
        mutation: impl Debug,
        judge: impl FnOnce() -> T,
    ) -> Option<T> {
        self.judgements += 1;
        let (verdict, count) = allocations(|| catch_unwind(AssertUnwindSafe(judge)));
        match verdict {
            Ok(verdict) if count == 0 => return Some(verdict),
            Ok(_) => self.failures.push(format!("{name}, {mutation:?}: {count} allocations")),
            Err(_) => self.failures.push(format!("{name}, {mutation:?}: a panic")),
        }
        assert!(self.failures.len() < 8, "{:#?}", self.failures);
        None
    }

    fn close(&self) {
        assert!(self.failures.is_empty(), "{:#?}", self.failures);
    }
}

#[test]
fn octets_are_changed_everywhere_and_back_again() {
    let original: Vec<u8> = (0..6000).map(|at| at as u8).collect();
    let mut octets = original.clone();
    let mut touched = vec![0; octets.len()];
    changes(&mut octets, 6000, |changed, mutation| {
        let differing = (0..6000).filter(|at| changed[*at] != original[*at]);
        differing.for_each(|at| touched[at] += usize::from(matches!(mutation, Mutation::Bit(..))));
    });
    assert_eq!(octets, original);
    for (at, count) in touched.into_iter().enumerate() {
        assert_eq!(count, if is_changed(at, 6000) { 8 } else { 0 }, "octet {at}");
    }
    let mut lens = Vec::new();
    cuts(&original, |cut, _| lens.push(cut.len()));
    assert!(lens.into_iter().eq(0..6000));
}

#[test]
fn a_panic_and_an_allocation_are_found() {
    let mut court = Court::default();
    assert_eq!(court.hear("clean", (), || 7), Some(7));
    assert_eq!(court.hear("allocates", (), || vec![1_u8]), None);
    assert_eq!(court.hear::<()>("panics", (), || std::panic::resume_unwind(Box::new(()))), None);
    assert_eq!(court.failures, ["allocates, (): 1 allocations", "panics, (): a panic"]);
}
