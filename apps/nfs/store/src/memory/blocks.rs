//! The stored blocks of a file by number: a list up to the first gap, which holds nearly all of
//! them, and a tree for those past it.

use std::{collections::BTreeMap, ops::Range};

use stag_pools::{Extent, steps};

/// Blocks of one file.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// Blocks 0, 1, 2 and so on, up to the first that is not stored.
    front: Vec<Extent>,
    /// Blocks past that one. They move to the list when the gap is closed.
    behind: BTreeMap<u64, Extent>,
}

impl Blocks {
    /// A block, if it is stored.
    #[inline]
    pub fn get(&self, number: u64) -> Option<&Extent> {
        match self.front.get(usize::try_from(number).ok()?) {
            None if !self.behind.is_empty() => self.behind.get(&number),
            found => found,
        }
    }

    /// A block, if it is stored.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Extent> {
        match self.front.get_mut(usize::try_from(number).ok()?) {
            None => self.behind.get_mut(&number),
            found => found,
        }
    }

    /// Stores a block whose number has none.
    pub fn insert(&mut self, number: u64, block: Extent) {
        debug_assert!(self.get(number).is_none(), "a block is stored once");
        if number == self.front.len() as u64 {
            self.front.push(block);
        } else {
            self.behind.insert(number, block);
        }
        while let Some(next) = self.behind.first_entry()
            && *next.key() == self.front.len() as u64
        {
            self.front.push(next.remove());
        }
    }

    /// Drops the blocks from number `first` on. Returns the bytes of their slots.
    pub fn cut(&mut self, first: u64) -> u64 {
        let mut octets = 0;
        while let Some(last) = self.behind.last_entry()
            && *last.key() >= first
        {
            steps::count();
            octets += last.remove().capacity() as u64;
        }
        let kept = usize::try_from(first).unwrap_or(usize::MAX).min(self.front.len());
        octets += self.front.drain(kept..).map(freed).sum::<u64>();
        // A list takes memory for the file's current blocks, not for former ones.
        self.front.shrink_to(2 * kept);
        octets
    }

    /// The stored blocks from `number` on, and their numbers.
    pub fn stored_from(&self, number: u64) -> impl Iterator<Item = (u64, &Extent)> {
        let place = usize::try_from(number).unwrap_or(usize::MAX);
        let front = self.front.get(place..).unwrap_or_default();
        let behind = self.behind.range(number..).map(|(number, block)| (*number, block));
        front.iter().zip(number..).map(|(block, number)| (number, block)).chain(behind)
    }

    /// Drops the blocks of a range of numbers. Returns the bytes of their slots.
    pub fn take_range(&mut self, range: Range<u64>) -> u64 {
        let place = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let mut octets = 0;
        if place(range.start) < self.front.len() {
            // Blocks past a gap leave the list.
            let first = place(range.end).min(self.front.len());
            let kept = self.front.drain(first..);
            self.behind.extend((first as u64..).zip(kept).inspect(|_| steps::count()));
            let gone = self.front.drain(place(range.start)..);
            octets += gone.map(freed).sum::<u64>();
            self.front.shrink_to(2 * self.front.len());
        }
        while let Some((number, _)) = self.behind.range(range.clone()).next() {
            steps::count();
            let number = *number;
            octets += self.behind.remove(&number).map_or(0, |block| block.capacity() as u64);
        }
        octets
    }
}

/// Bytes of the slot of a block that is no longer stored.
fn freed(block: Extent) -> u64 {
    steps::count();
    block.capacity() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use stag_pools::{Class, Pool};

    #[test]
    fn blocks_are_found_as_in_a_tree_whatever_comes_and_goes() {
        let pool = Pool::new(&[Class { slot_len: 64, count: 64 }]).unwrap();
        let block = |number: u64| {
            let mut buf = pool.take(8).unwrap();
            buf.append(&number.to_be_bytes()).unwrap();
            buf.freeze()
        };
        let mut dice = Rng::with_seed(1);
        let (mut blocks, mut tree) = (Blocks::default(), BTreeMap::new());
        for _ in 0..20_000 {
            let number = dice.u64(..40);
            if dice.u8(..20) == 0 {
                let gone = tree.split_off(&number).len();
                assert_eq!(blocks.cut(number), 64 * gone as u64);
            } else if tree.insert(number, ()).is_none() {
                blocks.insert(number, block(number));
            }
            for number in 0..41 {
                let found = blocks.get(number).map(|block| block.to_vec());
                let expected = tree.get(&number).map(|()| number.to_be_bytes().to_vec());
                assert_eq!(found, expected, "block {number}");
                assert_eq!(blocks.get_mut(number).is_some(), tree.contains_key(&number));
            }
            assert!(blocks.front.capacity() <= (2 * blocks.front.len()).max(4));
            assert_eq!(pool.taken(), tree.len());
        }
    }

    #[test]
    fn the_last_block_that_can_be_is_found_and_cut() {
        let pool = Pool::new(&[Class { slot_len: 64, count: 1 }]).unwrap();
        let mut blocks = Blocks::default();
        blocks.insert(u64::MAX, pool.take(1).unwrap().freeze());
        assert!(blocks.get(u64::MAX).is_some() && blocks.get(0).is_none());
        assert_eq!((blocks.cut(u64::MAX), blocks.cut(0)), (64, 0));
    }
}
