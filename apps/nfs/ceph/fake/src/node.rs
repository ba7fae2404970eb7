//! One file or directory.

use libc::{S_IFDIR, S_IFMT, S_ISGID, S_ISUID};
use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher},
};

/// Seconds and nanoseconds.
pub(crate) type SecondsAndNanos = (i64, i64);

/// Octets that are kept together.
const BLOCK: u64 = 4_096;

/// A file or directory.
pub(crate) struct FakeNode {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) links: u32,
    pub(crate) special: u64,
    pub(crate) accessed: SecondsAndNanos,
    pub(crate) modified: SecondsAndNanos,
    pub(crate) changed: SecondsAndNanos,
    pub(crate) born: SecondsAndNanos,
    pub(crate) version: u64,
    /// The directory above a directory.
    pub(crate) parent: u64,
    pub(crate) target: Vec<u8>,
    pub(crate) content: SparseContent,
    pub(crate) entries: HashedEntries,
    pub(crate) extended: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl FakeNode {
    pub(crate) fn new(mode: u32, uid: u32, gid: u32, parent: u64, now: SecondsAndNanos) -> Self {
        Self {
            mode,
            uid,
            gid,
            links: if mode & S_IFMT == S_IFDIR { 2 } else { 1 },
            special: 0,
            accessed: now,
            modified: now,
            changed: now,
            born: now,
            version: 0,
            parent,
            target: Vec::new(),
            content: SparseContent::default(),
            entries: HashedEntries::default(),
            extended: BTreeMap::new(),
        }
    }

    /// The type's bits of the mode.
    pub(crate) fn kind(&self) -> u32 {
        self.mode & S_IFMT
    }

    pub(crate) fn size(&self) -> u64 {
        match self.target.len() as u64 {
            0 => self.content.size,
            len => len,
        }
    }

    /// Clears the mode bits that a change of owner clears.
    pub(crate) fn drop_set_id(&mut self) {
        if self.kind() != S_IFDIR {
            self.mode &= !S_ISUID;
            if self.mode & 0o010 != 0 {
                self.mode &= !S_ISGID;
            }
        }
    }
}

/// SparseContent with holes.
#[derive(Default)]
pub(crate) struct SparseContent {
    pub(crate) size: u64,
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl SparseContent {
    /// Block, place in it, and octets up to its end or that of `len`.
    fn piece(offset: u64, len: usize) -> (u64, usize, usize) {
        let place = (offset % BLOCK) as usize;
        (offset / BLOCK, place, len.min(BLOCK as usize - place))
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        let len = self.size.saturating_sub(offset).min(into.len() as u64) as usize;
        let mut done = 0;
        while done < len {
            let (block, place, count) = Self::piece(offset + done as u64, len - done);
            let to = into.iter_mut().skip(done).take(count);
            match self.blocks.get(&block) {
                Some(from) => to.zip(from.iter().skip(place)).for_each(|(to, from)| *to = *from),
                None => to.for_each(|octet| *octet = 0),
            }
            done += count;
        }
        len
    }

    pub(crate) fn write(&mut self, offset: u64, from: &[u8]) {
        let mut done = 0;
        while done < from.len() {
            let (block, place, count) = Self::piece(offset + done as u64, from.len() - done);
            let to = self.blocks.entry(block).or_insert_with(|| vec![0; BLOCK as usize]);
            let to = to.iter_mut().skip(place).take(count);
            to.zip(from.iter().skip(done)).for_each(|(to, from)| *to = *from);
            done += count;
        }
        if !from.is_empty() {
            self.size = self.size.max(offset + from.len() as u64);
        }
    }

    pub(crate) fn resize(&mut self, size: u64) {
        if size < self.size {
            let (block, place, _) = Self::piece(size, 0);
            drop(self.blocks.split_off(&(block + u64::from(place > 0))));
            if let Some(last) = self.blocks.get_mut(&block) {
                last.iter_mut().skip(place).for_each(|octet| *octet = 0);
            }
        }
        self.size = size;
    }

    /// Blocks of 512 octets.
    pub(crate) fn used(&self) -> u64 {
        self.blocks.len() as u64 * (BLOCK / 512)
    }
}

/// HashedEntries of a directory, in the order of a hash of their names.
#[derive(Default)]
pub(crate) struct HashedEntries {
    places: HashMap<Vec<u8>, u64>,
    sorted: BTreeMap<u64, (Vec<u8>, u64)>,
}

impl HashedEntries {
    /// The place of `..`; that of the directory itself is before it.
    pub(crate) const ABOVE: u64 = 2;

    pub(crate) fn find(&self, name: &[u8]) -> Option<u64> {
        let place = self.places.get(name)?;
        self.sorted.get(place).map(|(_, inode)| *inode)
    }

    pub(crate) fn add(&mut self, name: &[u8], inode: u64) {
        // The same at every run: a listing goes on where another mount began it.
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
        let mut place = (hash & ((1 << 59) - 1)) + Self::ABOVE + 1;
        while self.sorted.contains_key(&place) {
            place += 1;
        }
        self.places.insert(name.to_vec(), place);
        self.sorted.insert(place, (name.to_vec(), inode));
    }

    pub(crate) fn remove(&mut self, name: &[u8]) {
        if let Some(place) = self.places.remove(name) {
            self.sorted.remove(&place);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// The first entry after `place`.
    pub(crate) fn behind(&self, place: u64) -> Option<(u64, &[u8], u64)> {
        let (place, (name, inode)) = self.sorted.range(place + 1..).next()?;
        Some((*place, name, *inode))
    }
}
