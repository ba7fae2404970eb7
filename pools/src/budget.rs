//! What a pool is made of, and what that costs (DESIGN D14).

use crate::arena::Pages;
use std::fmt;

/// `count` slots of `slot_len` octets each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Octets of one slot; rounded up to a multiple of 64 (a cache line).
    pub slot_len: usize,
    /// Slots of this length.
    pub count: usize,
}

/// What a pool holds, to be printed at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The classes, smallest slots first.
    pub classes: Vec<Class>,
    /// Octets mapped.
    pub octets: usize,
    /// What backs them.
    pub pages: Pages,
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}:", Octets(self.octets), self.pages)?;
        for (i, class) in self.classes.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma} {} x {}", class.count, Octets(class.slot_len))?;
        }
        Ok(())
    }
}

/// Octets in the largest unit that divides them or keeps one digit.
struct Octets(usize);

impl fmt::Display for Octets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n >= 1 << 20 && n % (1 << 20) == 0 => write!(f, "{} MiB", n >> 20),
            n if n >= 1 << 20 => write!(f, "{:.1} MiB", n as f64 / f64::from(1 << 20)),
            n if n >= 1 << 10 && n % (1 << 10) == 0 => write!(f, "{} KiB", n >> 10),
            n => write!(f, "{n} B"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_reads_as_a_sentence() {
        let classes = vec![Class { slot_len: 4096, count: 8 }, Class { slot_len: 100, count: 2 }];
        let budget = Budget { classes, octets: 3 << 20, pages: Pages::Base };
        assert_eq!(budget.to_string(), "3 MiB on base pages: 8 x 4 KiB, 2 x 100 B");
        assert_eq!(Octets(1_572_864).to_string(), "1.5 MiB");
    }
}
