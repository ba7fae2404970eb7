//! A table of fixed size whose keys go stale.

/// Names one entry of a [`Table`]. Once the entry is removed the key finds nothing, also when its place is used again.
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

/// At most `capacity` entries, found by [`Key`] in constant time. Nothing is allocated after it is made.
#[derive(Debug)]
pub struct Table<T> {
    entries: Box<[Entry<T>]>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Table<T> {
    /// An empty table.
    ///
    /// # Panics
    /// When `capacity` does not fit 32 bits.
    pub fn new(capacity: usize) -> Self {
        let count = u32::try_from(capacity).expect("a table's size fits 32 bits");
        let entries = (0..count).map(|_| Entry { generation: 0, value: None }).collect();
        Self { entries, free: (0..count).rev().collect() }
    }

    /// Puts `value` in a free place, or returns it when there is none.
    #[inline]
    pub fn insert(&mut self, value: T) -> Result<Key, T> {
        let Some(index) = self.free.pop() else { return Err(value) };
        let entry = self.entries.get_mut(index as usize).expect("the free list names places of the table");
        entry.value = Some(value);
        Ok(Key { index, generation: entry.generation })
    }

    /// The entry `key` names, unless it was removed.
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        self.entries.get(key.index()).filter(|entry| entry.generation == key.generation)?.value.as_ref()
    }

    /// The entry `key` names, unless it was removed.
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.entries.get_mut(key.index()).filter(|entry| entry.generation == key.generation)?.value.as_mut()
    }

    /// Takes the entry `key` names out.
    #[inline]
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let is_it = |entry: &&mut Entry<T>| entry.generation == key.generation && entry.value.is_some();
        let entry = self.entries.get_mut(key.index()).filter(is_it)?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(key.index);
        entry.value.take() // straight to the caller: an entry may be long
    }

    /// Entries in use.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether no entry is in use.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Places in the table.
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// All entries with their keys, by place.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| {
            let key = Key { index: index as u32, generation: entry.generation };
            Some((key, entry.value.as_ref()?))
        })
    }

    /// The entry in place `index`, if it is in use.
    pub fn at(&self, index: usize) -> Option<&T> {
        self.entries.get(index)?.value.as_ref()
    }

    /// The key of the entry in place `index`, if it is in use.
    #[inline]
    pub fn key_at(&self, index: usize) -> Option<Key> {
        let entry = self.entries.get(index)?;
        entry.value.as_ref()?;
        Some(Key { index: index as u32, generation: entry.generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_key_finds_nothing_even_when_its_place_is_used_again() {
        let mut table = Table::new(1);
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
    }
}
