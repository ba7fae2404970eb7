//! Trace of the latest events, kept in a ring of fixed size.

use stag_verbs::{Cause, Time};
use std::fmt::{self, Write as _};

/// Lines kept.
const KEPT: usize = 2_048;

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    /// Something of this name and length arrived.
    Arrived(&'static str, usize),
    /// A message found no receive.
    Parked(usize),
    /// The work with this tag completed.
    Completed(u64),
    /// The connection broke in the fabric.
    Broke,
    /// The connection ended here.
    Ended(Cause),
}

#[derive(Clone, Copy, Debug)]
struct TraceLine {
    at: Time,
    end: &'static str,
    link: usize,
    happened: Happened,
}

#[derive(Debug)]
pub(crate) struct Trace {
    lines: Vec<TraceLine>,
    /// All lines ever written.
    count: usize,
}

impl Trace {
    pub(crate) fn new() -> Self {
        Self { lines: Vec::with_capacity(KEPT), count: 0 }
    }

    pub(crate) fn push(&mut self, at: Time, end: &'static str, link: usize, happened: Happened) {
        let line = TraceLine { at, end, link, happened };
        match self.lines.get_mut(self.count % KEPT) {
            Some(oldest) => *oldest = line,
            None => self.lines.push(line),
        }
        self.count += 1;
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (young, old) = self.lines.split_at(self.count % KEPT.min(self.lines.len().max(1)));
        for TraceLine { at, end, link, happened } in old.iter().chain(young) {
            write!(f, "{:>12} {end:>8} #{link} ", at.0)?;
            match happened {
                Happened::Arrived(what, len) => writeln!(f, "{what} {len}")?,
                Happened::Parked(len) => writeln!(f, "no receive for Send {len}")?,
                Happened::Completed(tag) => writeln!(f, "completed {tag}")?,
                Happened::Broke => f.write_str("broke\n")?,
                Happened::Ended(cause) => writeln!(f, "ended: {cause}")?,
            }
        }
        f.write_char('\n')
    }
}
