//! The root of all exports: a read-only directory with an entry for each (RFC 8881 §7.3, §7.5).
//!
//! Entries are numbered by their names, so that a changed list of exports renumbers nothing.

use std::collections::HashMap;

use siphasher::sip128::{Hasher128, SipHasher24};
use stag_protocol::nfs::v3::{DeviceNumber, FileHandle, FileKind};

use crate::store::{FileAttributes, FileTime};
use std::hash::Hasher;

/// The number of the root.
pub(super) const ROOT_NUMBER: u64 = 1;
/// Cookies of the entries are above.
const COOKIE_ABOVE: u64 = 2;

/// An export as the root shows it.
#[derive(Debug)]
pub(super) struct ExportEntry {
    /// Its name.
    pub(super) name: Box<[u8]>,
    /// The number of the entry, in the root's file system.
    pub(super) number: u64,
    /// The directory's handle, once it is known.
    pub(super) handle: Option<FileHandle>,
    /// Edition in which it came to be known.
    learned: u64,
}

impl ExportEntry {
    /// Returns true if the directory's handle was known in this edition of the root.
    pub(super) const fn was_known(&self, edition: u64) -> bool {
        self.handle.is_some() && self.learned <= edition
    }
}

/// The root.
#[derive(Debug)]
pub(super) struct PseudoRoot {
    entries: Vec<ExportEntry>,
    /// The exports' directories.
    roots: HashMap<FileHandle, usize>,
    /// Tells listings of other lists of exports apart.
    listing: u64,
    change: u64,
    made: FileTime,
    /// Counts handles that came to be known.
    edition: u64,
}

impl PseudoRoot {
    /// A root with these exports, made `made` seconds after 1970 and changed `edition` times.
    pub(super) fn new<'a>(names: impl Iterator<Item = &'a str>, made: u32, edition: u64) -> Self {
        let mut all = SipHasher24::new();
        let entry = |name: &str| {
            let mut hash = SipHasher24::new();
            hash.write(name.as_bytes());
            all.write(name.as_bytes());
            all.write_u8(0);
            // The root's own number is no entry's, and a signed number is positive for everybody.
            let number = (hash.finish128().h1 >> 1).max(ROOT_NUMBER + 1);
            ExportEntry { name: name.as_bytes().into(), number, handle: None, learned: 0 }
        };
        let entries: Vec<_> = names.map(entry).collect();
        let listing = all.finish128().h1 ^ u64::from(made) << 24;
        // Who is shown an export may have changed, too.
        let change = listing.wrapping_add(edition);
        let made = FileTime { seconds: made.into(), nanos: 0 };
        Self { entries, roots: HashMap::new(), listing, change, made, edition: 0 }
    }

    /// The place of an export, by its name.
    pub(super) fn find(&self, name: &[u8]) -> Option<usize> {
        self.entries.iter().position(|entry| *entry.name == *name)
    }

    /// The export at a place.
    pub(super) fn entry(&self, place: usize) -> Option<&ExportEntry> {
        self.entries.get(place)
    }

    /// Notes the handle of an export's directory, which may be another one than before.
    pub(super) fn learn(&mut self, place: usize, handle: FileHandle) {
        let Some(entry) = self.entries.get_mut(place) else { return };
        if entry.handle == Some(handle) {
            return;
        }
        self.edition += 1;
        entry.learned = self.edition;
        if let Some(former) = entry.handle.replace(handle) {
            self.roots.remove(&former);
        }
        self.roots.insert(handle, place);
    }

    /// Number of the handles that came to be known so far.
    pub(super) const fn edition(&self) -> u64 {
        self.edition
    }

    /// The entry of an export's directory; none for any other object.
    pub(super) fn entry_of(&self, handle: &FileHandle) -> Option<&ExportEntry> {
        self.entries.get(*self.roots.get(handle)?)
    }

    /// Places of the entries behind a cookie. None for a cookie that the root does not give.
    pub(super) fn behind(&self, cookie: u64) -> Option<std::ops::Range<usize>> {
        let from = match cookie {
            0 => 0,
            cookie => usize::try_from(cookie.checked_sub(COOKIE_ABOVE)?).ok()?,
        };
        (cookie == 0 || (1..=self.entries.len()).contains(&from))
            .then_some(from..self.entries.len())
    }

    /// The cookie of the entry at a place.
    pub(super) const fn cookie(place: usize) -> u64 {
        place as u64 + 1 + COOKIE_ABOVE
    }

    /// Tells listings of other lists of exports apart.
    pub(super) const fn verifier(&self) -> [u8; 8] {
        self.listing.to_be_bytes()
    }

    /// Attributes of the root.
    pub(super) fn attributes(&self) -> FileAttributes {
        let links = u32::try_from(self.entries.len()).unwrap_or(u32::MAX).saturating_add(2);
        FileAttributes {
            kind: FileKind::Directory,
            mode: 0o555,
            nlink: links,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            device: DeviceNumber::default(),
            fsid: 0,
            fileid: ROOT_NUMBER,
            atime: self.made,
            mtime: self.made,
            ctime: self.made,
            birth: None,
            change: self.change,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_its_number_whatever_stands_beside_it() {
        let (few, many) = (["b"], ["a", "b", "c"]);
        let few = PseudoRoot::new(few.into_iter(), 7, 0);
        let many = PseudoRoot::new(many.into_iter(), 7, 0);
        let number = |root: &PseudoRoot, name| root.entry(root.find(name).unwrap()).unwrap().number;
        assert_eq!(number(&few, b"b"), number(&many, b"b"));
        assert_ne!(number(&many, b"a"), number(&many, b"b"));
        assert_ne!(few.attributes().change, many.attributes().change);
    }

    #[test]
    fn every_cookie_goes_on_behind_its_entry_and_no_other_is_taken() {
        let root = PseudoRoot::new(["a", "b"].into_iter(), 7, 0);
        assert_eq!(root.behind(0), Some(0..2));
        assert_eq!(root.behind(PseudoRoot::cookie(0)), Some(1..2));
        assert_eq!(root.behind(PseudoRoot::cookie(1)), Some(2..2));
        for cookie in [1, 2, 5, u64::MAX] {
            assert_eq!(root.behind(cookie), None, "{cookie}");
        }
        assert!(PseudoRoot::cookie(0) > 2, "1 and 2 stand for . and ..");
    }

    #[test]
    fn a_directory_that_was_made_again_is_found_by_its_new_handle() {
        let mut root = PseudoRoot::new(["a"].into_iter(), 7, 0);
        let handles = [1, 2].map(|octet| FileHandle::new(&[octet; 32]).unwrap());
        for handle in handles {
            root.learn(0, handle);
        }
        assert!(root.entry_of(&handles[0]).is_none());
        assert_eq!(&*root.entry_of(&handles[1]).unwrap().name, b"a");
    }
}
