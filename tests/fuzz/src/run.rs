//! Giving many inputs to one target.

use std::{
    collections::HashSet,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
};

use stag_pools::steps;

use crate::{
    corpus,
    mutate::mutate,
    random::FuzzRandom,
    table::FuzzTarget,
    targets::{InputVerdict, forget},
};

/// Inputs that are changed further, at most.
const POOL_MAX: usize = 4096;

/// An input for which a property does not hold.
#[derive(Clone, Debug)]
pub struct InputFailure {
    /// The target's name.
    pub target: &'static str,
    /// The seed of the session and how many inputs came before; none for an input that no session
    /// made.
    pub origin: Option<(u64, u64)>,
    /// The input.
    pub input: Vec<u8>,
    /// Message of the panic.
    pub message: String,
}

impl fmt::Display for InputFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.target, self.message)?;
        if let Some((seed, number)) = self.origin {
            write!(f, "; seed {seed}, input {number}")?;
        }
        write!(f, "; {} octets: ", self.input.len())?;
        self.input.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

/// Gives one input to a target.
///
/// # Errors
/// When a property does not hold.
pub fn attempt(target: &FuzzTarget, input: &[u8]) -> Result<InputVerdict, InputFailure> {
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.check)(input)));
    steps::limit(None);
    outcome.map_err(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let message =
            said.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned();
        InputFailure { target: target.name, origin: None, input: input.to_vec(), message }
    })
}

/// One after the other, inputs that follow from a seed: those of the corpus, some made from a
/// structure, and changes of all of them. An input that leads to an outcome not seen before is
/// changed further.
#[derive(Debug)]
pub struct Session {
    target: &'static FuzzTarget,
    seed: u64,
    random: FuzzRandom,
    pool: Vec<Vec<u8>>,
    seen: HashSet<InputVerdict>,
    input: Vec<u8>,
    /// Inputs given so far.
    pub executions: u64,
    /// Inputs that meant something.
    pub accepted: u64,
}

impl Session {
    /// The session of `seed`.
    pub fn new(target: &'static FuzzTarget, seed: u64) -> Self {
        forget();
        let mut random = FuzzRandom::new(seed);
        let mut pool: Vec<_> =
            corpus::corpus(target.name).into_iter().map(|entry| entry.octets).collect();
        pool.extend((0..16).map(|_| (target.make)(&mut random)));
        let (seen, input) = (HashSet::new(), Vec::new());
        Self { target, seed, random, pool, seen, input, executions: 0, accepted: 0 }
    }

    /// Outcomes seen so far.
    pub fn outcomes(&self) -> usize {
        self.seen.len()
    }

    /// Gives `count` inputs.
    ///
    /// # Errors
    /// At the first input for which a property does not hold.
    pub fn run(&mut self, count: u64) -> Result<(), InputFailure> {
        (0..count).try_for_each(|_| self.step())
    }

    fn step(&mut self) -> Result<(), InputFailure> {
        let number = self.executions;
        self.next_input(usize::try_from(number).unwrap_or(usize::MAX));
        self.executions += 1;
        let verdict = attempt(self.target, &self.input)
            .map_err(|failure| InputFailure { origin: Some((self.seed, number)), ..failure })?;
        self.accepted += u64::from(matches!(verdict, InputVerdict::Accepted(_)));
        if self.seen.insert(verdict) && self.pool.len() < POOL_MAX {
            self.pool.push(self.input.clone());
        }
        Ok(())
    }

    fn next_input(&mut self, number: usize) {
        let random = &mut self.random;
        if let Some(whole) = self.pool.get(number) {
            return self.input.clone_from(whole);
        }
        if random.one_in(8) {
            self.input = (self.target.make)(random);
            return;
        }
        let (from, other) = (random.below(self.pool.len()), random.below(self.pool.len()));
        self.input.clone_from(&self.pool[from]);
        mutate(random, self.target.shape, &mut self.input, &self.pool[other]);
    }
}

/// A shorter or plainer input that fails too.
pub fn shrink(target: &FuzzTarget, failure: InputFailure) -> InputFailure {
    let mut best = failure;
    let mut size = best.input.len().next_power_of_two();
    while size > 0 {
        let mut at = 0;
        while at < best.input.len() {
            let end = (at + size).min(best.input.len());
            let mut without = best.input.clone();
            without.drain(at..end);
            let mut zeroed = best.input.clone();
            zeroed[at..end].fill(0);
            let smaller = [without, zeroed].into_iter().filter(|input| *input != best.input);
            match smaller.map(|input| attempt(target, &input)).find_map(Result::err) {
                Some(failure) if failure.input.len() < best.input.len() => best = failure,
                Some(failure) => {
                    best = failure;
                    at = end;
                }
                None => at = end,
            }
        }
        size /= 2;
    }
    best
}
