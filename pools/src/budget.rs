//! Composition of a pool, and its cost (DESIGN D14).

use crate::{
    arena::Pages,
    host::{HUGE_PAGE, HostMemory},
};
use std::fmt;

/// `count` slots of `slot_len` octets each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Octets of one slot; rounded up to a multiple of 64 (a cache line).
    pub slot_len: usize,
    /// Slots of this length.
    pub count: usize,
}

/// Content of a pool, to be printed at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The classes, smallest slots first.
    pub classes: Vec<Class>,
    /// Octets mapped.
    pub octets: usize,
    /// Pages that back the pool.
    pub pages: Pages,
    /// The NUMA node they are preferred on, where the host has more than one.
    pub node: Option<u32>,
}

impl Budget {
    /// Returns the command that would lift this pool to a higher rung of the page ladder, with the
    /// number that all pools of this process on this node need. `None` if there is nothing to gain:
    /// on reserved huge pages, for less than one of them, and if the kernel has none.
    pub fn advice(&self) -> Option<String> {
        if self.octets < HUGE_PAGE {
            return None;
        }
        HostMemory::here().advice(self.pages, self.node)
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", Octets(self.octets), self.pages)?;
        if let Some(node) = self.node {
            write!(f, " of node {node}")?;
        }
        f.write_str(":")?;
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
        let budget = Budget { classes, octets: 3 << 20, pages: Pages::Base, node: None };
        assert_eq!(budget.to_string(), "3 MiB on base pages: 8 x 4 KiB, 2 x 100 B");
        let near = Budget { pages: Pages::HugeMemfd, node: Some(1), ..budget };
        assert_eq!(near.to_string(), "3 MiB on huge pages (memfd) of node 1: 8 x 4 KiB, 2 x 100 B");
        assert_eq!(Octets(1_572_864).to_string(), "1.5 MiB");
    }
    #[test]
    fn nothing_lifts_what_is_small_or_on_reserved_pages() {
        let class = Class { slot_len: 64, count: 1 };
        let small = Budget { classes: vec![class], octets: 4096, pages: Pages::Base, node: None };
        assert_eq!(small.advice(), None);
        for pages in [Pages::HugeMemfd, Pages::HugePrivate] {
            assert_eq!(Budget { octets: HUGE_PAGE, pages, ..small.clone() }.advice(), None);
        }
    }
}
