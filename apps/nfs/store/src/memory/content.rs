//! The content of a file: blocks of 64 KiB, each an extent, and holes.
//!
//! An extent holds the beginning of its block; the rest of the block, and a block without an
//! extent, is zeros. It is changed in place while it is not shared. While a READ is sending it, a
//! fresh one replaces it: bytes being sent never change.

use std::ops::Range;

use stag_engine::Extents;
use stag_pools::{Buf, Extent, steps};
use stag_protocol::nfs::v3::Status;

use super::{
    blocks::Blocks,
    space::{BLOCK, Need, SMALL, Space},
};
use crate::{SeekFor, WritePayload};

/// A file's bytes.
#[derive(Debug, Default)]
pub(super) struct Content {
    size: u64,
    /// Bytes of the slots it fills.
    used: u64,
    blocks: Blocks,
}

/// Bytes of one block to read or write.
struct ContentSpan {
    block: u64,
    from: usize,
    len: usize,
}

/// A stored block, with its bytes from `within` to `len`.
struct StoredBlock {
    block: u64,
    within: u64,
    len: u64,
}

/// The spans of the octets `from..to`.
fn spans(from: u64, to: u64) -> impl Iterator<Item = ContentSpan> {
    let mut at = from;
    std::iter::from_fn(move || {
        let left = to.checked_sub(at).filter(|left| *left > 0)?;
        steps::count();
        let from = (at % BLOCK as u64) as usize;
        let len = left.min((BLOCK - from) as u64) as usize;
        let block = at / BLOCK as u64;
        at += len as u64;
        Some(ContentSpan { block, from, len })
    })
}

impl Content {
    /// Returns the size in bytes.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Octets of the slots it fills.
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// At most `count` bytes from `offset` on, without a copy. Fewer when they span more than
    /// [`Extents::MAX`] extents.
    #[inline]
    pub fn read(&self, space: &Space, offset: u64, count: u32) -> Extents {
        let end = offset.saturating_add(count.into()).min(self.size);
        let (within, len) = ((offset % BLOCK as u64) as usize, end.saturating_sub(offset));
        // Nearly all reads are within one block that is stored.
        match self.blocks.get(offset / BLOCK as u64) {
            Some(block) if len > 0 && within as u64 + len <= block.len() as u64 => {
                block.slice(within..within + len as usize).into()
            }
            _ => self.read_across(space, offset, end),
        }
    }

    /// The octets `offset..end` of several blocks, or of holes.
    fn read_across(&self, space: &Space, offset: u64, end: u64) -> Extents {
        let mut octets = space.lists().take();
        for ContentSpan { block, from, len } in spans(offset, end) {
            let extent = self.blocks.get(block);
            let there = extent.map_or(0, |extent| extent.len().saturating_sub(from).min(len));
            let stored = extent.map_or_else(
                || space.zeros(0),
                |extent| {
                    let from = from.min(extent.len());
                    extent.slice(from..from + there)
                },
            );
            let pushed = octets.push(stored).and_then(|()| octets.push(space.zeros(len - there)));
            if pushed.is_err() {
                break;
            }
        }
        octets
    }

    /// Writes bytes at `offset`; they fit in a file. Returns their number: fewer when space runs
    /// out.
    ///
    /// # Errors
    /// [`Status::NoSpc`] or [`Status::Jukebox`] when there is no space for the first.
    pub fn write(
        &mut self,
        space: &Space,
        offset: u64,
        data: &WritePayload<'_>,
    ) -> Result<u32, Status> {
        let mut rest = data.octets;
        for span in spans(offset, offset + data.octets.len() as u64) {
            let (octets, behind) = rest.split_at(span.len);
            let at = data.octets.len() - rest.len();
            // Only what begins a block can become one.
            let shared = data.shared.as_ref().filter(|it| span.from == 0 && space.owns(it));
            let shared = shared.and_then(|shared| block_of(shared, at..at + span.len));
            match self.write_block(space, &span, octets, shared.as_ref()) {
                Ok(()) => rest = behind,
                Err(status) if rest.len() == data.octets.len() => return Err(status),
                Err(_) => break,
            }
        }
        let count = data.octets.len() - rest.len();
        self.size = self.size.max(offset + count as u64);
        Ok(u32::try_from(count).expect("a WRITE is at most 1 MiB"))
    }

    /// Writes `octets` to a part of a block. `shared` are the same octets in a slot of their own,
    /// if they begin the block.
    fn write_block(
        &mut self,
        space: &Space,
        span: &ContentSpan,
        octets: &[u8],
        shared: Option<&Extent>,
    ) -> Result<(), Status> {
        let end = span.from + octets.len();
        let Some(place) = self.blocks.get_mut(span.block) else {
            let fresh = match shared {
                Some(shared) => shared.clone(),
                None => {
                    let mut fresh = space.take(end, Need::Growth)?;
                    put(&mut fresh, span.from, octets);
                    fresh.freeze()
                }
            };
            self.used += fresh.capacity() as u64;
            self.blocks.insert(span.block, fresh);
            return Ok(());
        };
        let (old_capacity, old_len) = (place.capacity(), place.len());
        if let Some(shared) = shared.filter(|_| end >= old_len) {
            *place = shared.clone();
        } else {
            let old = std::mem::replace(place, space.zeros(0));
            let outcome = change(space, old, span.from, octets);
            let (extent, changed) = match outcome {
                Ok(extent) => (extent, Ok(())),
                Err((old, status)) => (old, Err(status)),
            };
            *place = extent;
            changed?;
        }
        self.used = self.used + place.capacity() as u64 - old_capacity as u64;
        Ok(())
    }

    /// Truncates the file, or extends it by a hole.
    pub fn set_size(&mut self, size: u64) {
        let (first_gone, within) = (size.div_ceil(BLOCK as u64), (size % BLOCK as u64) as usize);
        self.used -= self.blocks.cut(first_gone);
        if within > 0
            && let Some(last) = self.blocks.get_mut(size / BLOCK as u64)
            && last.len() > within
        {
            *last = last.slice(0..within);
        }
        self.size = size;
    }
}

impl Content {
    /// The offset of the first byte of data, or of a hole, from `offset` on, which is within the
    /// file; the file's size when there is none.
    pub fn seek(&self, offset: u64, what: SeekFor) -> u64 {
        let found = match what {
            SeekFor::Data => self.next_data(offset),
            SeekFor::Hole => self.next_hole(offset),
        };
        found.min(self.size)
    }

    /// Bytes that are stored from `offset` on in its block.
    pub fn stored_at(&self, offset: u64) -> u64 {
        let there = self.blocks.get(offset / BLOCK as u64).map_or(0, |block| block.len() as u64);
        let within = offset % BLOCK as u64;
        there.saturating_sub(within).min(self.size.saturating_sub(offset))
    }

    fn next_data(&self, offset: u64) -> u64 {
        let mut stored = self.stored_from(offset);
        let found = stored.find(|stored| stored.within < stored.len);
        found.map_or(self.size, |stored| stored.block * BLOCK as u64 + stored.within)
    }

    fn next_hole(&self, offset: u64) -> u64 {
        let mut at = offset;
        for StoredBlock { block, within, len } in self.stored_from(offset) {
            if block != at / BLOCK as u64 || within >= len {
                break;
            }
            at = block * BLOCK as u64 + len;
            if len < BLOCK as u64 {
                break;
            }
        }
        at
    }

    /// The stored blocks from that of `offset` on.
    fn stored_from(&self, offset: u64) -> impl Iterator<Item = StoredBlock> {
        let first = offset / BLOCK as u64;
        self.blocks.stored_from(first).map(move |(block, extent)| {
            steps::count();
            let within = if block == first { offset % BLOCK as u64 } else { 0 };
            StoredBlock { block, within, len: extent.len() as u64 }
        })
    }

    /// Reserves slots for the bytes `from..to`, without changing content, and extends the file to
    /// `to` if it is shorter. Blocks with slots keep them.
    ///
    /// # Errors
    /// [`Status::NoSpc`]; slots taken until then stay.
    pub fn allocate(&mut self, space: &Space, from: u64, to: u64) -> Result<(), Status> {
        // Refuses a request that cannot be completed.
        if to - from > space.octets().0 {
            return Err(Status::NoSpc);
        }
        for ContentSpan { block, from, len } in spans(from, to) {
            let end = from + len;
            let place = self.blocks.get_mut(block);
            let old_capacity = place.as_ref().map_or(0, |extent| extent.capacity());
            if old_capacity >= end {
                continue;
            }
            let mut fresh = space.take(end, Need::Growth)?;
            let capacity = match place {
                Some(extent) => {
                    put(&mut fresh, 0, extent);
                    *extent = fresh.freeze();
                    extent.capacity()
                }
                None => {
                    let fresh = fresh.freeze();
                    let capacity = fresh.capacity();
                    self.blocks.insert(block, fresh);
                    capacity
                }
            };
            self.used += (capacity - old_capacity) as u64;
        }
        self.size = self.size.max(to);
        Ok(())
    }

    /// Makes a hole of the bytes `from..to` within the file: whole blocks release their slots,
    /// parts of others become zeros.
    ///
    /// # Errors
    /// As in [`write`](Self::write), for a part of a block that is being sent.
    pub fn punch(&mut self, space: &Space, from: u64, to: u64) -> Result<(), Status> {
        let to = to.min(self.size);
        if from >= to {
            return Ok(());
        }
        let block = BLOCK as u64;
        // A file may have 2^47 blocks, nearly all of them holes: only its two ends are visited.
        let head = from.next_multiple_of(block).min(to);
        let tail = (to / block * block).max(head);
        for span in spans(from, head).chain(spans(tail, to)) {
            self.clear(space, &span)?;
        }
        if head < tail {
            self.used -= self.blocks.take_range(head / block..tail / block);
        }
        Ok(())
    }

    /// Zeroes a part of a block, as far as it is stored.
    fn clear(&mut self, space: &Space, span: &ContentSpan) -> Result<(), Status> {
        let there = self.blocks.get(span.block).map_or(0, |block| block.len());
        let len = there.saturating_sub(span.from).min(span.len);
        if len == 0 {
            return Ok(());
        }
        let zeros = space.zeros(len);
        let span = ContentSpan { len, ..*span };
        self.write_block(space, &span, &zeros, None)
    }
}

/// The octets `span` of an item as a block that a file can keep: they begin a slot that is no
/// longer than they need. An item of one block has a slot of its own in any case.
fn block_of(item: &Extent, span: Range<usize>) -> Option<Extent> {
    let is_whole = span.len() == item.len();
    let part = item.slice(span);
    let is_alone = part.begins_slot() && part.capacity() <= BLOCK;
    let fits = is_alone && (is_whole || part.len() > SMALL);
    fits.then_some(part)
}

/// Puts `octets` at `from` of an old block: in place if it is not shared and its slot is long
/// enough. Returns the old block when there is no space.
fn change(
    space: &Space,
    old: Extent,
    from: usize,
    octets: &[u8],
) -> Result<Extent, (Extent, Status)> {
    let end = (from + octets.len()).max(old.len());
    let is_growth = end > SMALL && old.capacity() < end;
    match old.try_into_buf() {
        Ok(mut buf) if buf.len() + buf.spare_len() >= end => {
            put(&mut buf, from, octets);
            Ok(buf.freeze())
        }
        unfit => {
            let old = unfit.map_or_else(|old| old, Buf::freeze);
            let need = if is_growth { Need::Growth } else { Need::Change };
            let mut fresh = match space.take(end, need) {
                Ok(fresh) => fresh,
                Err(status) => return Err((old, status)),
            };
            // Only bytes that stay are copied.
            let keep = if from == 0 { 0 } else { old.len().min(from) };
            put(&mut fresh, 0, old.get(..keep).unwrap_or_default());
            put(&mut fresh, from, octets);
            if let Some(tail) = old.get(from + octets.len()..) {
                put(&mut fresh, from + octets.len(), tail);
            }
            Ok(fresh.freeze())
        }
    }
}

/// Puts `octets` at `from` of a buffer with room for them, after zeros up to `from`.
fn put(buf: &mut Buf, from: usize, octets: &[u8]) {
    let (old, end) = (buf.len(), from + octets.len());
    if end > old {
        buf.extend(end - old);
    }
    if let Some(gap) = buf.get_mut(old..from) {
        gap.fill(0);
    }
    buf.get_mut(from..end).expect("the buffer was taken for as many").copy_from_slice(octets);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Octets of the largest file.
    const LARGEST: u64 = i64::MAX as u64;

    fn written(space: &Space, places: &[u64]) -> Content {
        let mut content = Content::default();
        for at in places {
            content.write(space, *at, &WritePayload::from(&b"octets"[..])).unwrap();
        }
        content.set_size(LARGEST);
        content
    }

    fn found(content: &Content) -> Vec<u64> {
        let (mut at, mut found) = (0, Vec::new());
        while at < LARGEST {
            let data = content.seek(at, SeekFor::Data);
            found.extend((data < LARGEST).then_some(data));
            at = content.seek(data.min(LARGEST - 1), SeekFor::Hole).max(data);
        }
        found
    }

    #[test]
    fn a_hole_of_any_length_takes_as_many_steps_as_there_is_data() {
        let space = Space::new(16 << 20, false).unwrap();
        let block = BLOCK as u64;
        for (from, to) in [
            (0, LARGEST),
            (1, LARGEST),
            (5, LARGEST - 5),
            (block, 1 << 62),
            (block + 1, (1 << 62) + 1),
            (7 * block + 3, 7 * block + 9),
            (7 * block, 9 * block),
            (1 << 61, 1 << 62),
        ] {
            let places = [0, 7 * block, 8 * block, 1 << 40, (1 << 62) - block];
            let mut content = written(&space, &places);
            steps::within(16, || content.punch(&space, from, to).unwrap());
            // The remains of six bytes at each place.
            let stays = places.iter().filter(|at| !(from <= **at && **at + 6 <= to));
            let mut expected: Vec<_> = stays.copied().collect();
            let inside = expected.iter_mut().find(|at| from <= **at && **at < to);
            assert_eq!(inside, None, "no place is cut in its front here");
            let left = found(&content);
            expected.retain(|at| left.contains(at));
            assert_eq!(steps::within(64, || found(&content)), expected, "{from}..{to}");
            for at in places {
                let octets = content.read(&space, at, 6);
                let octets: Vec<u8> = octets.iter().flat_map(|part| part.to_vec()).collect();
                let kept = (at..at + 6).zip(*b"octets");
                let kept = kept.map(|(at, it)| if (from..to).contains(&at) { 0 } else { it });
                assert!(octets.into_iter().eq(kept), "{from}..{to} at {at}");
            }
        }
    }

    #[test]
    fn no_operation_takes_more_steps_than_there_are_blocks_in_the_file() {
        let space = Space::new(16 << 20, false).unwrap();
        let block = BLOCK as u64;
        let places: Vec<_> = (0..32).chain(100..132).map(|number| number * block).collect();
        let full = |content: &mut Content| {
            for at in &places {
                content.write(&space, *at, &WritePayload::from(&[1; BLOCK][..])).unwrap();
            }
            content.set_size(LARGEST);
        };
        let mut content = Content::default();
        full(&mut content);
        let stored = places.len() as u64;
        let seek =
            |content: &Content, at, what| steps::within(stored + 1, || content.seek(at, what));
        assert_eq!(seek(&content, 0, SeekFor::Hole), 32 * block);
        assert_eq!(seek(&content, 32 * block, SeekFor::Data), 100 * block);
        assert_eq!(seek(&content, 100 * block + 7, SeekFor::Hole), 132 * block);
        assert_eq!(seek(&content, 132 * block, SeekFor::Data), LARGEST);
        assert_eq!(seek(&content, 1 << 62, SeekFor::Hole), 1 << 62);
        // A request for more than the store holds is refused at once, wherever it is.
        for from in [0, 1 << 40, LARGEST - (1 << 60)] {
            let to = from + (1 << 59);
            let refused = steps::within(0, || content.allocate(&space, from, to));
            assert_eq!(refused, Err(Status::NoSpc));
        }
        // Blocks without bytes are skipped like others.
        let mut empty = Content::default();
        steps::within(16, || empty.allocate(&space, 0, 16 * block)).unwrap();
        empty.set_size(LARGEST);
        assert_eq!(steps::within(17, || empty.seek(0, SeekFor::Data)), LARGEST);
        steps::within(17, || empty.set_size(0));
        steps::within(stored + 2, || content.punch(&space, 1, LARGEST - 1)).unwrap();
        assert_eq!(content.used(), block, "what is left holds the first octet");
        full(&mut content);
        steps::within(stored + 1, || content.set_size(5));
        steps::within(1, || content.set_size(LARGEST));
        steps::within(2, || content.set_size(0));
        assert_eq!((content.used(), space.taken()), (0, 0));
    }

    #[test]
    #[should_panic(expected = "more steps than its budget")]
    fn a_budget_of_steps_ends_a_walk_over_the_blocks_of_a_hole() {
        // A filter over all blocks of a huge file exceeds the limit of steps.
        let whole = 0..(1 << 62) / BLOCK as u64;
        steps::within(100_000, || {
            spans(0, 1 << 62).filter(|span| !whole.contains(&span.block)).count()
        });
    }
}
