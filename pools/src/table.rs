//! A table of fixed size whose keys go stale.

/// Names one entry of a [`Table`]. Once the entry is removed the key finds nothing, even if its
/// place is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// The place in the table, less than its capacity; a later entry may have the same one.
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// One number for the key, for interfaces that carry 64 bits.
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The key of [`to_bits`](Self::to_bits).
    pub const fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// At most `capacity` entries, found by [`Key`] in constant time. Nothing is allocated after it is
/// made; [`sparse`](Self::sparse) says when its memory is touched first.
///
/// Entries are aligned as `A`: a table of long entries that are accessed one by one uses [`Line`],
/// so that each entry begins on a cache line.
#[derive(Debug)]
pub struct Table<T, A = u8> {
    /// Places that were used, or may be at once.
    entries: Vec<Entry<T, A>>,
    /// Those of them that have no entry.
    free: Vec<u32>,
    capacity: usize,
}

/// The alignment of a cache line: 64 octets, the first eight of which [`Table`] uses.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Line;

#[derive(Debug)]
#[repr(C)]
struct Entry<T, A> {
    aligned: [A; 0],
    place: Place<T>,
}

/// A place, and the number of entries it has had. Tag and count come first, in eight octets that
/// are read with the first cache line of the value, which may be long.
#[derive(Debug)]
#[repr(u32)]
enum Place<T> {
    Free { generation: u32 },
    Used { generation: u32, value: T },
}

impl<T, A> Entry<T, A> {
    const fn free(generation: u32) -> Self {
        Self { aligned: [], place: Place::Free { generation } }
    }

    #[inline]
    const fn generation(&self) -> u32 {
        match self.place {
            Place::Free { generation } | Place::Used { generation, .. } => generation,
        }
    }

    #[inline]
    const fn value(&self) -> Option<&T> {
        match &self.place {
            Place::Used { value, .. } => Some(value),
            Place::Free { .. } => None,
        }
    }

    #[inline]
    const fn value_mut(&mut self) -> Option<&mut T> {
        match &mut self.place {
            Place::Used { value, .. } => Some(value),
            Place::Free { .. } => None,
        }
    }

    /// Takes the value out, if there is one. Its key goes stale.
    #[inline]
    fn take(&mut self) -> Option<T> {
        let next = Place::Free { generation: self.generation().wrapping_add(1) };
        match self.place {
            Place::Free { .. } => None,
            Place::Used { .. } => match std::mem::replace(&mut self.place, next) {
                Place::Used { value, .. } => Some(value),
                Place::Free { .. } => None,
            },
        }
    }

    /// Drops the value in place, as it may be long. Its key goes stale.
    #[inline]
    fn empty(&mut self) {
        self.place = Place::Free { generation: self.generation().wrapping_add(1) };
    }
}

impl<T, A> Table<T, A> {
    /// An empty table, all of whose memory has been touched: no entry causes a page fault.
    ///
    /// # Panics
    /// When `capacity` does not fit 32 bits.
    pub fn new(capacity: usize) -> Self {
        let mut table = Self::sparse(capacity);
        table.entries.extend((0..capacity).map(|_| Entry::free(0)));
        table.free.extend((0..capacity as u32).rev());
        table
    }

    /// An empty table whose memory is reserved, and touched when a place is first used: for a large
    /// table, of which most hosts need little.
    ///
    /// # Panics
    /// When `capacity` does not fit 32 bits.
    pub fn sparse(capacity: usize) -> Self {
        assert!(u32::try_from(capacity).is_ok(), "a table's size fits 32 bits");
        let (entries, free) = (Vec::with_capacity(capacity), Vec::with_capacity(capacity));
        Self { entries, free, capacity }
    }

    /// Makes the first place that was never used, if there is one, a free one.
    #[cold]
    fn open_place(&mut self) {
        if self.entries.len() < self.capacity {
            self.free.push(self.entries.len() as u32);
            self.entries.push(Entry::free(0));
        }
    }

    /// Puts `value` in a free place, or returns it when there is none.
    #[inline]
    pub fn insert(&mut self, value: T) -> Result<Key, T> {
        let Some(key) = self.next_key() else { return Err(value) };
        self.insert_next(key, || value);
        Ok(key)
    }

    /// Puts the value that `value` makes in the place of `key`, which is the [next
    /// one](Self::next_key). It is made in place, as an entry may be long.
    ///
    /// # Panics
    /// When the table has no such place.
    #[inline(always)]
    pub fn insert_next(&mut self, key: Key, value: impl FnOnce() -> T) {
        debug_assert_eq!(self.next_key(), Some(key), "that key was told before");
        if self.free.is_empty() {
            self.open_place();
        }
        self.free.pop();
        let entry = self.entries.get_mut(key.index()).expect("a key names a place of its table");
        let used = Place::Used { generation: key.generation, value: value() };
        // A free place has nothing to be dropped, and to look for it costs as much as the value.
        // SAFETY: a reference is valid for writes, and what stood there needs no drop.
        unsafe { std::ptr::from_mut(&mut entry.place).write(used) };
    }

    /// The entry `key` names, unless it was removed.
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        self.entries.get(key.index()).filter(|entry| entry.generation() == key.generation)?.value()
    }

    /// The entry `key` names, unless it was removed.
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.entries
            .get_mut(key.index())
            .filter(|entry| entry.generation() == key.generation)?
            .value_mut()
    }

    /// The key that the next entry gets; `None` when there is no place.
    #[inline]
    pub fn next_key(&self) -> Option<Key> {
        let Some(&index) = self.free.last() else { return self.next_unused() };
        let generation = self.entries.get(index as usize)?.generation();
        Some(Key { index, generation })
    }

    /// The key of the first place that was never used.
    #[cold]
    fn next_unused(&self) -> Option<Key> {
        let index = self.entries.len();
        (index < self.capacity).then_some(Key { index: index as u32, generation: 0 })
    }

    /// Makes the [next key](Self::next_key) stale, as if its entry had been added and removed.
    #[inline(always)]
    pub fn skip_next(&mut self) {
        if self.free.is_empty() {
            self.open_place();
        }
        let place = self.free.last().copied().unwrap_or(u32::MAX);
        if let Some(Entry { place: Place::Free { generation }, .. }) =
            self.entries.get_mut(place as usize)
        {
            *generation = generation.wrapping_add(1);
        }
    }

    /// Takes the entry `key` names out.
    #[inline]
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let is_it = |entry: &&mut Entry<T, A>| {
            entry.generation() == key.generation && entry.value().is_some()
        };
        let entry = self.entries.get_mut(key.index()).filter(is_it)?;
        self.free.push(key.index);
        entry.take() // straight to the caller: an entry may be long
    }

    /// Drops the entry that `key` names in place, as an entry may be long.
    #[inline]
    pub fn discard(&mut self, key: Key) {
        let entry = self.entries.get_mut(key.index());
        if let Some(entry) = entry.filter(|entry| entry.generation() == key.generation)
            && entry.value().is_some()
        {
            entry.empty();
            self.free.push(key.index);
        }
    }

    /// Frees the place of the entry that `key` names without dropping it: for an entry that owns
    /// nothing (any more), whose drop would read every part.
    #[inline(always)]
    pub fn forget(&mut self, key: Key) {
        let entry = self.entries.get_mut(key.index());
        if let Some(entry) = entry.filter(|entry| entry.generation() == key.generation)
            && entry.value().is_some()
        {
            let free = Place::Free { generation: key.generation.wrapping_add(1) };
            std::mem::forget(std::mem::replace(&mut entry.place, free));
            self.free.push(key.index);
        }
    }

    /// Entries in use.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Returns true if no entry is in use.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Places in the table.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Number of places that were ever used, or can be used at once: no entry is at a later place.
    pub const fn opened(&self) -> usize {
        self.entries.len()
    }

    /// All entries with their keys, by place.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| {
            let key = Key { index: index as u32, generation: entry.generation() };
            Some((key, entry.value()?))
        })
    }

    /// All entries with their keys, by place, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        self.entries.iter_mut().enumerate().filter_map(|(index, entry)| {
            let key = Key { index: index as u32, generation: entry.generation() };
            Some((key, entry.value_mut()?))
        })
    }

    /// Removes the entries for which `keep` returns false, by place.
    pub fn retain(&mut self, mut keep: impl FnMut(Key, &mut T) -> bool) {
        for (index, entry) in (0..).zip(&mut self.entries) {
            let key = Key { index, generation: entry.generation() };
            if entry.value_mut().is_some_and(|value| !keep(key, value)) {
                entry.empty();
                self.free.push(index);
            }
        }
    }

    /// The entry in place `index`, if it is in use.
    #[inline]
    pub fn at(&self, index: usize) -> Option<&T> {
        self.entries.get(index)?.value()
    }

    /// The entry in place `index` with its key, if it is in use, to be changed.
    #[inline]
    pub fn entry_at(&mut self, index: usize) -> Option<(Key, &mut T)> {
        let entry = self.entries.get_mut(index)?;
        let key = Key { index: index as u32, generation: entry.generation() };
        Some((key, entry.value_mut()?))
    }

    /// The entry in place `index`, if it is in use, to be changed.
    #[inline]
    pub fn at_mut(&mut self, index: usize) -> Option<&mut T> {
        self.entries.get_mut(index)?.value_mut()
    }

    /// The key of the entry in place `index`, if it is in use.
    #[inline]
    pub fn key_at(&self, index: usize) -> Option<Key> {
        let entry = self.entries.get(index)?;
        entry.value()?;
        Some(Key { index: index as u32, generation: entry.generation() })
    }
}

/// Walks a [`Table`] that may change between two steps: unlike [`Table::iter_mut`], it borrows the
/// table for one step at a time. An entry that is inserted meanwhile is visited if its place is
/// still ahead.
#[derive(Debug, Default)]
pub struct Walk(usize);

impl Walk {
    /// The next entry in use, by place.
    pub fn next<'t, T, A>(&mut self, table: &'t mut Table<T, A>) -> Option<(Key, &'t mut T)> {
        let mut ahead = table.entries.iter_mut().enumerate().skip(self.0);
        let (index, entry) = ahead.find(|(_, entry)| entry.value().is_some())?;
        self.0 = index + 1;
        Some((Key { index: index as u32, generation: entry.generation() }, entry.value_mut()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letters() -> (Table<char>, [Key; 3]) {
        let mut table = Table::<_>::new(4);
        let keys = ['a', 'b', 'c'].map(|letter| table.insert(letter).unwrap());
        (table, keys)
    }

    #[test]
    fn a_sparse_table_gives_the_keys_that_another_one_gives_and_never_moves() {
        let (mut full, mut sparse) = (Table::<u32>::new(20), Table::<u32>::sparse(20));
        let place = sparse.entries.as_ptr();
        let mut keys: Vec<Key> = Vec::new();
        let mut dice = 1_u32;
        for value in 0..3_000 {
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let at = (dice >> 8) as usize % 20;
            match dice >> 29 {
                0 => {
                    full.skip_next();
                    sparse.skip_next();
                }
                1 | 2 if at < keys.len() => {
                    let key = keys.swap_remove(at);
                    assert!(full.remove(key).is_some_and(|it| sparse.remove(key) == Some(it)));
                }
                // In phases, so that the table is sometimes full and sometimes nearly empty.
                3 | 4 if value / 100 % 2 == 1 => keys.drain(..keys.len().min(3)).for_each(|key| {
                    full.discard(key);
                    sparse.discard(key);
                }),
                _ => {
                    assert_eq!(full.next_key(), sparse.next_key());
                    let inserted = full.insert(value);
                    assert_eq!(sparse.insert(value), inserted);
                    keys.extend(inserted);
                }
            }
            assert_eq!((full.len(), full.capacity()), (sparse.len(), sparse.capacity()));
            assert!(full.iter().eq(sparse.iter()));
        }
        assert_eq!((sparse.opened(), sparse.entries.as_ptr()), (20, place));
        assert_eq!(Table::<u32>::sparse(0).insert(1), Err(1));
    }

    #[test]
    fn every_entry_can_be_changed() {
        let (mut table, keys) = letters();
        table.remove(keys[1]);
        let changed = table.iter_mut().map(|(key, letter)| {
            letter.make_ascii_uppercase();
            key
        });
        assert_eq!(changed.collect::<Vec<_>>(), [keys[0], keys[2]]);
        assert_eq!(table.iter().collect::<Vec<_>>(), [(keys[0], &'A'), (keys[2], &'C')]);
    }

    #[test]
    fn entries_that_are_not_kept_are_removed_and_their_keys_go_stale() {
        let (mut table, keys) = letters();
        let mut seen = Vec::new();
        table.retain(|key, letter| {
            seen.push(key);
            *letter == 'b'
        });
        assert_eq!((seen.as_slice(), table.len()), (&keys[..], 1));
        assert_eq!((table.get(keys[0]), table.get(keys[1])), (None, Some(&'b')));
        let fresh = table.insert('d').unwrap();
        assert_eq!((fresh.index(), table.get(keys[2])), (keys[2].index(), None));
        assert_ne!(fresh, keys[2]);
    }

    #[test]
    fn an_entry_takes_the_key_that_was_asked_for_and_one_that_is_forgotten_is_not_dropped() {
        let mut table = Table::<std::rc::Rc<u8>>::new(1);
        let owned = std::rc::Rc::new(7);
        let key = table.next_key().unwrap();
        table.insert_next(key, || std::rc::Rc::clone(&owned));
        assert_eq!((table.get(key), table.next_key()), (Some(&owned), None));
        table.forget(Key { generation: key.generation + 1, ..key });
        assert!(table.get(key).is_some(), "that was another entry");
        table.forget(key);
        table.forget(key);
        assert_eq!((table.get(key), table.len()), (None, 0));
        assert_eq!(std::rc::Rc::strong_count(&owned), 2, "its drop was left out");
        let next = table.next_key().unwrap();
        table.insert_next(next, || std::rc::Rc::clone(&owned));
        assert!(table.get(key).is_none() && table.get(next).is_some() && next != key);
    }

    #[test]
    fn a_key_that_is_skipped_finds_nothing() {
        let (mut table, _) = letters();
        let skipped = table.next_key().unwrap();
        table.skip_next();
        assert_eq!(table.get(skipped), None);
        let next = table.next_key();
        assert_eq!(table.insert('d').ok(), next);
        assert_eq!((next.map(Key::index), table.get(skipped)), (Some(skipped.index()), None));
        assert_eq!(table.next_key(), None);
        table.skip_next();
    }

    #[test]
    fn a_walk_meets_what_is_there_when_it_gets_there() {
        let (mut table, keys) = letters();
        let mut walk = Walk::default();
        assert_eq!(walk.next(&mut table), Some((keys[0], &mut 'a')));
        table.remove(keys[0]);
        table.remove(keys[1]);
        assert_eq!(walk.next(&mut table), Some((keys[2], &mut 'c')));
        for passed in [keys[1], keys[0]] {
            assert_eq!(table.insert('x').map(Key::index), Ok(passed.index()));
        }
        assert_eq!(walk.next(&mut table), None, "it does not go back");
        let last = table.insert('d').unwrap();
        assert_eq!(walk.next(&mut table), Some((last, &mut 'd')));
        assert_eq!(walk.next(&mut table), None);
    }

    #[test]
    fn a_removed_key_finds_nothing_even_when_its_place_is_used_again() {
        let mut table = Table::<_>::new(1);
        let first = table.insert('a').unwrap();
        assert_eq!(table.insert('b'), Err('b'));
        assert_eq!(table.remove(first), Some('a'));
        let second = table.insert('c').unwrap();
        assert_eq!(first.index(), second.index());
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(second), Some(&'c'));
        assert_eq!(Key::from_bits(second.to_bits()), second);
        assert_eq!(table.iter().collect::<Vec<_>>(), [(second, &'c')]);
        assert_eq!((table.key_at(0), table.at(0)), (Some(second), Some(&'c')));
        assert_eq!((table.key_at(1), table.at(1)), (None, None));
        assert_eq!(table.at_mut(0), Some(&mut 'c'));
        assert_eq!(table.at_mut(1), None);
    }
}
