//! Ranges of many owners, sorted by first byte, with the farthest last byte of each block of them:
//! a search for an overlapping range does not visit all of them.
//!
//! [`FileLocks`](crate::ranges::FileLocks) has one index of the read locks of a file and one of its
//! write locks.

use stag_pools::steps;
use stag_protocol::nfs::v4::state::LockRange;

/// Limit of spans in a block. A longer block is split.
const BLOCK_MAX: usize = 128;
/// Neighbours with at most this many spans together become one block.
const BLOCK_JOINED: usize = 96;

/// A range of one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub first: u64,
    pub last: u64,
    pub owner: u64,
}

impl Span {
    const fn key(&self) -> (u64, u64) {
        (self.first, self.owner)
    }
}

/// The farthest last byte of spans, and the farthest of any other owner.
#[derive(Clone, Copy, Debug, Default)]
struct SpanReach {
    farthest: Option<(u64, u64)>,
    of_others: Option<u64>,
}

impl SpanReach {
    fn of(spans: &[Span]) -> Self {
        spans.iter().fold(Self::default(), Self::with)
    }

    fn with(mut self, span: &Span) -> Self {
        match self.farthest {
            Some((last, owner)) if owner == span.owner => {
                self.farthest = Some((last.max(span.last), owner));
            }
            Some((last, _)) if span.last > last => {
                self.of_others = Some(last);
                self.farthest = Some((span.last, span.owner));
            }
            Some(_) => self.of_others = self.of_others.max(Some(span.last)),
            None => self.farthest = Some((span.last, span.owner)),
        }
        self
    }

    /// The farthest last byte of owners other than this one.
    fn of_others_than(&self, owner: u64) -> Option<u64> {
        match self.farthest {
            Some((_, farthest)) if farthest == owner => self.of_others,
            Some((last, _)) => Some(last),
            None => None,
        }
    }
}

/// Adjacent spans.
#[derive(Debug)]
struct Block {
    reach: SpanReach,
    /// Never empty.
    spans: Vec<Span>,
}

impl Block {
    fn new(spans: Vec<Span>) -> Self {
        Self { reach: SpanReach::of(&spans), spans }
    }

    fn key(&self) -> (u64, u64) {
        self.spans.first().map_or((u64::MAX, u64::MAX), Span::key)
    }
}

/// Spans in the order of their first bytes and owners.
#[derive(Debug, Default)]
pub(crate) struct SpanIndex {
    blocks: Vec<Block>,
}

impl SpanIndex {
    /// The block of an owner's span that begins at `first`, if there is one.
    fn block_of(&self, first: u64, owner: u64) -> usize {
        let key = (first, owner);
        self.blocks.partition_point(|block| block.key() <= key).saturating_sub(1)
    }

    /// Adds a span whose owner has no other one with the same first byte.
    pub fn insert(&mut self, span: Span) {
        let at = self.block_of(span.first, span.owner);
        let Some(block) = self.blocks.get_mut(at) else {
            return self.blocks.push(Block::new(vec![span]));
        };
        let place = block.spans.partition_point(|other| other.key() < span.key());
        block.spans.insert(place, span);
        block.reach = block.reach.with(&span);
        if block.spans.len() > BLOCK_MAX {
            let half = block.spans.split_off(BLOCK_MAX / 2);
            block.reach = SpanReach::of(&block.spans);
            self.blocks.insert(at + 1, Block::new(half));
        }
    }

    /// Removes the span of an owner that begins at `first`.
    pub fn remove(&mut self, first: u64, owner: u64) {
        let at = self.block_of(first, owner);
        let Some(block) = self.blocks.get_mut(at) else { return };
        let Ok(place) = block.spans.binary_search_by_key(&(first, owner), Span::key) else {
            return;
        };
        block.spans.remove(place);
        block.reach = SpanReach::of(&block.spans);
        if block.spans.is_empty() {
            self.blocks.remove(at);
        } else {
            self.join(at);
            self.join(at.saturating_sub(1));
        }
    }

    /// Joins this block with the next, if both are short.
    fn join(&mut self, at: usize) {
        let Some([block, next]) = self.blocks.get_mut(at..).and_then(<[_]>::first_chunk_mut) else {
            return;
        };
        if block.spans.len() + next.spans.len() <= BLOCK_JOINED {
            block.spans.append(&mut next.spans);
            block.reach = SpanReach::of(&block.spans);
            self.blocks.remove(at + 1);
        }
    }

    /// The first span of another owner that overlaps a range, after a given one.
    pub fn overlap(&self, owner: u64, range: LockRange, past: Option<Span>) -> Option<Span> {
        let past = past.map(|span| span.key());
        let begin = past.map_or(0, |(first, owner)| self.block_of(first, owner));
        for block in self.blocks.get(begin..)? {
            steps::count();
            if block.key().0 > range.last() {
                return None;
            }
            if block.reach.of_others_than(owner).is_none_or(|last| last < range.offset()) {
                continue;
            }
            let found = block.spans.iter().find(|span| {
                span.owner != owner
                    && span.first <= range.last()
                    && span.last >= range.offset()
                    && past.is_none_or(|past| span.key() > past)
            });
            if found.is_some() {
                return found.copied();
            }
        }
        None
    }

    /// The farthest last byte of the spans that begin at `at` or before.
    pub fn reach(&self, at: u64) -> Option<u64> {
        let mut farthest = None;
        for block in &self.blocks {
            steps::count();
            if block.key().0 > at {
                break;
            }
            let is_whole = block.spans.last().is_some_and(|span| span.first <= at);
            let begun = || block.spans.iter().take_while(|span| span.first <= at);
            farthest = farthest.max(match is_whole {
                true => block.reach.farthest.map(|(last, _)| last),
                false => begun().map(|span| span.last).max(),
            });
        }
        farthest
    }

    /// The first byte of the next span that begins after `at`.
    pub fn next_first(&self, at: u64) -> Option<u64> {
        let block = self.block_of(at, u64::MAX);
        let blocks = self.blocks.get(block..)?.iter().take(2);
        let mut spans = blocks.flat_map(|block| {
            let place = block.spans.partition_point(|span| span.first <= at);
            block.spans.get(place).map(|span| span.first)
        });
        spans.next()
    }

    /// All spans.
    #[cfg(test)]
    fn iter(&self) -> impl Iterator<Item = &Span> {
        self.blocks.iter().flat_map(|block| &block.spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn spans_are_found_as_by_a_walk_over_all_of_them() {
        let mut random = fastrand::Rng::with_seed(37);
        for size in [3_u64, 40, 1_200] {
            let (mut index, mut model) = (SpanIndex::default(), BTreeMap::new());
            for step in 0..6_000_u64 {
                let (first, owner) = (random.u64(..size), random.u64(..4));
                let last = first + random.u64(..1 + size / 8);
                let grows = step % 2_000 < 1_500;
                if model.remove(&(first, owner)).is_some() {
                    index.remove(first, owner);
                } else if grows {
                    model.insert((first, owner), last);
                    index.insert(Span { first, last, owner });
                }
                let (from, other) = (random.u64(..size), random.u64(..5));
                let range = LockRange::between(from, from + random.u64(..size)).unwrap();
                let overlaps = |&(&(first, owner), &last): &(&(u64, u64), &u64)| {
                    owner != other && first <= range.last() && last >= range.offset()
                };
                let span = |(&(first, owner), &last)| Span { first, last, owner };
                let mut found = model.iter().filter(overlaps).map(span);
                let one = found.next();
                assert_eq!(index.overlap(other, range, None), one);
                if one.is_some() {
                    assert_eq!(index.overlap(other, range, one), found.next());
                }
                let begun = model.range(..=(from, u64::MAX)).map(|(_, last)| *last);
                assert_eq!(index.reach(from), begun.max());
                let next = model.range((from, u64::MAX)..).map(|((first, _), _)| *first);
                assert_eq!(index.next_first(from), next.clone().find(|first| *first > from));
            }
            assert!(
                index.iter().copied().eq(model
                    .iter()
                    .map(|(&(first, owner), &last)| { Span { first, last, owner } }))
            );
            let pairs = index.blocks.windows(2);
            assert!(pairs.into_iter().all(|pair| {
                pair[0].spans.len() + pair[1].spans.len() > BLOCK_JOINED - BLOCK_MAX / 2
            }));
        }
    }
}
