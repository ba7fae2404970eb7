//! The opens of one file by their share access and deny: a conflict is found without visiting all
//! of them (RFC 8881 §9.7).

use stag_pools::table::Key;
use stag_protocol::nfs::v4::share;
use stag_protocol::nfs::v4::state::ShareClass;

/// Opens of a file, sorted by class.
#[derive(Debug, Default)]
pub(crate) struct FileOpens {
    opens: Vec<Key>,
    /// Opens of each class.
    counts: [u32; ShareClass::COUNT],
}

impl FileOpens {
    /// Number of opens.
    pub const fn len(&self) -> usize {
        self.opens.len()
    }

    /// Returns true if there are none.
    pub const fn is_empty(&self) -> bool {
        self.opens.is_empty()
    }

    /// All opens.
    pub fn iter(&self) -> impl Iterator<Item = Key> {
        self.opens.iter().copied()
    }

    /// The opens of the classes for which `is_meant` is true.
    pub fn of(&self, is_meant: impl Fn(ShareClass) -> bool) -> impl Iterator<Item = Key> {
        let mut end = 0;
        let classes = ShareClass::all().zip(self.counts).filter(|(_, count)| *count > 0);
        let parts = classes.filter_map(move |(class, count)| {
            let begin = end;
            end += count as usize;
            is_meant(class).then(|| self.opens.get(begin..end).unwrap_or_default())
        });
        parts.flatten().copied()
    }

    /// Returns true if an open denies something.
    pub fn any_denies(&self) -> bool {
        ShareClass::all().zip(self.counts).any(|(class, count)| count > 0 && class.deny() != 0)
    }

    /// Returns true if an open is for writing.
    pub fn any_writes(&self) -> bool {
        let mut counts = ShareClass::all().zip(self.counts);
        counts.any(|(class, count)| count > 0 && class.access() & share::WRITE != 0)
    }

    /// Adds an open. `moved` is called with each open whose place changes, and its new place.
    pub fn insert(&mut self, open: Key, class: ShareClass, mut moved: impl FnMut(Key, usize)) {
        let mut hole = self.opens.len();
        self.opens.push(open);
        // The first open of each later class moves to the end of its class.
        for later in ShareClass::all().rev().take_while(|later| *later != class) {
            let count = self.count(later) as usize;
            if count > 0 {
                self.opens.swap(hole, hole - count);
                self.opens.get(hole).into_iter().for_each(|open| moved(*open, hole));
                hole -= count;
            }
        }
        moved(open, hole);
        if let Some(count) = self.counts.get_mut(class.index()) {
            *count += 1;
        }
    }

    /// Removes the open at `place`, which has this class.
    pub fn remove(&mut self, place: usize, class: ShareClass, mut moved: impl FnMut(Key, usize)) {
        let (mut hole, mut end) = (place, 0);
        // The last open of this class and of each later one fills the gap before it.
        for (at, count) in ShareClass::all().zip(self.counts) {
            end += count as usize;
            if at.index() < class.index() || count == 0 {
                continue;
            }
            if hole != end - 1 {
                self.opens.swap(hole, end - 1);
                self.opens.get(hole).into_iter().for_each(|open| moved(*open, hole));
            }
            hole = end - 1;
        }
        self.opens.pop();
        if let Some(count) = self.counts.get_mut(class.index()) {
            *count -= 1;
        }
    }

    fn count(&self, class: ShareClass) -> u32 {
        self.counts.get(class.index()).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn opens_are_with_their_class_whatever_comes_and_goes() {
        let mut random = fastrand::Rng::with_seed(16);
        let (mut opens, mut places) = (FileOpens::default(), BTreeMap::new());
        let mut classes = BTreeMap::new();
        let all: Vec<_> = ShareClass::all().collect();
        for step in 0..4_000_u64 {
            let key = Key::from_bits(random.u64(..60));
            match classes.remove(&key) {
                Some(class) => {
                    let place = places[&key];
                    opens.remove(place, class, |key, place| {
                        places.insert(key, place);
                    });
                    places.remove(&key);
                }
                None => {
                    let class = all[random.usize(..if step % 2 == 0 { 3 } else { 16 })];
                    opens.insert(key, class, |key, place| {
                        places.insert(key, place);
                    });
                    classes.insert(key, class);
                }
            }
            assert_eq!(opens.len(), classes.len());
            for (at, key) in opens.iter().enumerate() {
                assert_eq!(places.get(&key), Some(&at));
            }
            let (access, deny) = (random.u32(..4), random.u32(..4));
            let mut found: Vec<_> = opens.of(|class| class.conflicts(access, deny)).collect();
            found.sort_unstable();
            let conflicts = classes.iter().filter(|(_, class)| class.conflicts(access, deny));
            assert!(found.into_iter().eq(conflicts.map(|(key, _)| *key)));
            assert_eq!(opens.any_denies(), classes.values().any(|class| class.deny() != 0));
            assert_eq!(opens.any_writes(), classes.values().any(|class| class.access() & 2 != 0));
        }
    }
}
