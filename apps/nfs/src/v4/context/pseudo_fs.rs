//! The pseudo file system: read-only directories that lead from the root to the exports (RFC 8881
//! §7.3, §7.5). An export named `a/b` is an entry `b` of the directory `a`.
//!
//! Directories and entries are numbered by their paths, so that a changed list of exports renumbers
//! nothing, and handles of directories are the same after a restart.

use std::{collections::HashMap, hash::Hasher};

use siphasher::sip128::{Hasher128, SipHasher24};
use stag_protocol::nfs::v3::{DeviceNumber, FileHandle, FileKind};

use super::filehandle::PseudoHandle;
use stag_nfs_store::{FileAttributes, FileTime};

/// The number of the root.
const ROOT_NUMBER: u64 = PseudoHandle::ROOT.number();
/// The place of the root among the directories.
const ROOT: usize = 0;
/// Cookies of the entries are above this value.
const COOKIE_ABOVE: u64 = 2;

/// An export as the pseudo file system shows it.
#[derive(Debug)]
pub(in crate::v4) struct ExportEntry {
    /// Its name, with all components.
    pub(in crate::v4) name: Box<[u8]>,
    /// The number of the entry, in the pseudo file system.
    pub(in crate::v4) number: u64,
    /// The directory that the entry is in.
    directory: usize,
    /// The export's root, once it is known.
    pub(in crate::v4) handle: Option<FileHandle>,
    /// Edition of the tree in which the handle became known.
    learned: u64,
}

impl ExportEntry {
    /// Returns true if the handle of the export's root was known in this edition of the tree.
    pub(in crate::v4) const fn was_known(&self, edition: u64) -> bool {
        self.handle.is_some() && self.learned <= edition
    }
}

/// The object that an entry of a directory leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::v4) enum Below {
    /// Another directory of the pseudo file system, by its place.
    Directory(usize),
    /// The root of an export, by its place.
    Export(usize),
}

/// An entry of a directory.
#[derive(Debug)]
pub(in crate::v4) struct PseudoEntry {
    /// One component.
    pub(in crate::v4) name: Box<[u8]>,
    pub(in crate::v4) below: Below,
}

/// A directory of the pseudo file system.
#[derive(Debug)]
struct PseudoDirectory {
    handle: PseudoHandle,
    parent: usize,
    entries: Vec<PseudoEntry>,
    /// Places of all exports beneath it.
    exports: Vec<usize>,
    /// Hash of its entries: distinguishes listings of different lists of exports.
    listing: u64,
}

impl PseudoDirectory {
    const fn new(handle: PseudoHandle, parent: usize) -> Self {
        Self { handle, parent, entries: Vec::new(), exports: Vec::new(), listing: 0 }
    }

    fn find(&self, name: &[u8]) -> Option<Below> {
        self.entries.iter().find(|entry| *entry.name == *name).map(|entry| entry.below)
    }
}

/// The directories and the exports that they lead to.
#[derive(Debug)]
pub(in crate::v4) struct PseudoTree {
    /// The root is the first.
    directories: Vec<PseudoDirectory>,
    exports: Vec<ExportEntry>,
    /// Places of the exports, by the handles of their roots.
    roots: HashMap<FileHandle, usize>,
    /// Edition of the exports that it shows.
    shown: u64,
    made: FileTime,
    /// Counts handles that became known.
    edition: u64,
}

impl PseudoTree {
    /// A tree of these exports, made `made` seconds after 1970 from edition `shown` of the exports.
    ///
    /// An export whose name is beneath that of another one is left out: the path to it leads
    /// through files of the other.
    pub(in crate::v4) fn new<'a>(
        names: impl Iterator<Item = &'a str>,
        made: u32,
        shown: u64,
    ) -> Self {
        let mut tree = Self {
            directories: vec![PseudoDirectory::new(PseudoHandle::ROOT, ROOT)],
            exports: Vec::new(),
            roots: HashMap::new(),
            shown,
            made: FileTime { seconds: made.into(), nanos: 0 },
            edition: 0,
        };
        let names: Vec<_> = names.collect();
        for name in &names {
            if !names.iter().any(|other| lies_beneath(name, other)) {
                tree.add(name);
            }
        }
        for directory in &mut tree.directories {
            let mut all = SipHasher24::new();
            for entry in &directory.entries {
                all.write(&entry.name);
                all.write_u8(0);
            }
            directory.listing = all.finish128().h1 ^ u64::from(made) << 24;
        }
        tree
    }

    fn add(&mut self, name: &str) {
        let place = self.exports.len();
        let (above, last) = name.rsplit_once('/').map_or(("", name), |(above, last)| (above, last));
        let mut path = 0;
        let mut at = ROOT;
        self.note_beneath(at, place);
        for component in above.split('/').filter(|component| !component.is_empty()) {
            path += component.len() + usize::from(path > 0);
            let here = name.get(..path).unwrap_or_default();
            at = self.directory_in(at, component, here);
            self.note_beneath(at, place);
        }
        self.enter(at, last, Below::Export(place));
        let (name, number) = (name.as_bytes().into(), number_of(name));
        self.exports.push(ExportEntry { name, number, directory: at, handle: None, learned: 0 });
    }

    fn note_beneath(&mut self, directory: usize, export: usize) {
        if let Some(directory) = self.directories.get_mut(directory) {
            directory.exports.push(export);
        }
    }

    fn enter(&mut self, directory: usize, name: &str, below: Below) {
        if let Some(directory) = self.directories.get_mut(directory) {
            directory.entries.push(PseudoEntry { name: name.as_bytes().into(), below });
        }
    }

    /// The directory of a name in another one, created if missing. No export has this name: it
    /// would have another export beneath it.
    fn directory_in(&mut self, parent: usize, name: &str, path: &str) -> usize {
        let found = self.directories.get(parent).and_then(|it| it.find(name.as_bytes()));
        if let Some(Below::Directory(found)) = found {
            return found;
        }
        let place = self.directories.len();
        let handle = PseudoHandle::numbered(number_of(path));
        self.directories.push(PseudoDirectory::new(handle, parent));
        self.enter(parent, name, Below::Directory(place));
        place
    }

    /// The place of a directory, by its handle; none if it does not exist any more.
    pub(in crate::v4) fn place_of(&self, handle: &PseudoHandle) -> Option<usize> {
        self.directories.iter().position(|directory| directory.handle == *handle)
    }

    /// The handle of a directory.
    pub(in crate::v4) fn handle_of(&self, directory: usize) -> Option<PseudoHandle> {
        self.directories.get(directory).map(|directory| directory.handle)
    }

    /// The handle of the directory above a directory; none above the root.
    pub(in crate::v4) fn above(&self, directory: usize) -> Option<PseudoHandle> {
        let parent = self.directories.get(directory).filter(|_| directory != ROOT)?.parent;
        self.handle_of(parent)
    }

    /// The handle of the directory that an export is an entry of.
    pub(in crate::v4) fn above_export(&self, export: &ExportEntry) -> PseudoHandle {
        self.handle_of(export.directory).unwrap_or(PseudoHandle::ROOT)
    }

    /// Places of all exports beneath a directory.
    pub(in crate::v4) fn beneath(&self, directory: usize) -> &[usize] {
        self.directories.get(directory).map_or(&[], |directory| &directory.exports)
    }

    /// The object that a name in a directory leads to.
    pub(in crate::v4) fn find(&self, directory: usize, name: &[u8]) -> Option<Below> {
        self.directories.get(directory)?.find(name)
    }

    /// An entry of a directory.
    pub(in crate::v4) fn entry(&self, directory: usize, entry: usize) -> Option<&PseudoEntry> {
        self.directories.get(directory)?.entries.get(entry)
    }

    /// The export at a place.
    pub(in crate::v4) fn export(&self, place: usize) -> Option<&ExportEntry> {
        self.exports.get(place)
    }

    /// Notes the handle of an export's root, which may have changed.
    pub(in crate::v4) fn learn(&mut self, place: usize, handle: FileHandle) {
        let Some(export) = self.exports.get_mut(place) else { return };
        if export.handle == Some(handle) {
            return;
        }
        self.edition += 1;
        export.learned = self.edition;
        if let Some(former) = export.handle.replace(handle) {
            self.roots.remove(&former);
        }
        self.roots.insert(handle, place);
    }

    /// Number of handles that have become known.
    pub(in crate::v4) const fn edition(&self) -> u64 {
        self.edition
    }

    /// The export that an object is the root of; none for any other object.
    pub(in crate::v4) fn export_of(&self, handle: &FileHandle) -> Option<&ExportEntry> {
        self.exports.get(*self.roots.get(handle)?)
    }

    /// The entries of a directory after a cookie. None for a cookie that it does not issue.
    pub(in crate::v4) fn behind(
        &self,
        directory: usize,
        cookie: u64,
    ) -> Option<std::ops::Range<usize>> {
        let len = self.directories.get(directory)?.entries.len();
        let from = match cookie {
            0 => 0,
            cookie => usize::try_from(cookie.checked_sub(COOKIE_ABOVE)?).ok()?,
        };
        (cookie == 0 || (1..=len).contains(&from)).then_some(from..len)
    }

    /// The cookie of an entry.
    pub(in crate::v4) const fn cookie(entry: usize) -> u64 {
        entry as u64 + 1 + COOKIE_ABOVE
    }

    /// Distinguishes listings of a directory with other entries.
    pub(in crate::v4) fn verifier(&self, directory: usize) -> [u8; 8] {
        self.directories.get(directory).map_or(0, |directory| directory.listing).to_be_bytes()
    }

    /// Attributes of a directory.
    pub(in crate::v4) fn attributes(&self, directory: usize) -> Option<FileAttributes> {
        let PseudoDirectory { handle, entries, listing, .. } = self.directories.get(directory)?;
        let links = u32::try_from(entries.len()).unwrap_or(u32::MAX).saturating_add(2);
        Some(FileAttributes {
            kind: FileKind::Directory,
            mode: 0o555,
            nlink: links,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            device: DeviceNumber::default(),
            fsid: 0,
            fileid: handle.number(),
            atime: self.made,
            mtime: self.made,
            ctime: self.made,
            birth: None,
            // The callers that may see an export may have changed, too.
            change: listing.wrapping_add(self.shown),
        })
    }
}

/// Returns true if the name of an export continues below all components of another one.
fn lies_beneath(name: &str, other: &str) -> bool {
    name.strip_prefix(other).is_some_and(|rest| rest.starts_with('/'))
}

/// The number of a path below the root.
fn number_of(path: &str) -> u64 {
    let mut hash = SipHasher24::new();
    hash.write(path.as_bytes());
    // The root's own number is no entry's, and the value is positive for clients that use signed
    // numbers.
    (hash.finish128().h1 >> 1).max(ROOT_NUMBER + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(names: &[&str]) -> PseudoTree {
        PseudoTree::new(names.iter().copied(), 7, 0)
    }

    fn export<'t>(tree: &'t PseudoTree, path: &str) -> Option<&'t ExportEntry> {
        let mut at = Below::Directory(ROOT);
        for name in path.split('/') {
            let Below::Directory(directory) = at else { return None };
            at = tree.find(directory, name.as_bytes())?;
        }
        match at {
            Below::Export(place) => tree.export(place),
            Below::Directory(_) => None,
        }
    }

    #[test]
    fn an_entry_has_its_number_whatever_stands_beside_it() {
        let (few, many) = (tree(&["b"]), tree(&["a", "b", "c"]));
        let number = |tree: &PseudoTree, name| export(tree, name).unwrap().number;
        assert_eq!(number(&few, "b"), number(&many, "b"));
        assert_ne!(number(&many, "a"), number(&many, "b"));
        let change = |tree: &PseudoTree| tree.attributes(ROOT).unwrap().change;
        assert_ne!(change(&few), change(&many));
    }

    #[test]
    fn every_cookie_goes_on_behind_its_entry_and_no_other_is_taken() {
        let root = tree(&["a", "b"]);
        assert_eq!(root.behind(ROOT, 0), Some(0..2));
        assert_eq!(root.behind(ROOT, PseudoTree::cookie(0)), Some(1..2));
        assert_eq!(root.behind(ROOT, PseudoTree::cookie(1)), Some(2..2));
        for cookie in [1, 2, 5, u64::MAX] {
            assert_eq!(root.behind(ROOT, cookie), None, "{cookie}");
        }
        assert!(PseudoTree::cookie(0) > 2, "1 and 2 stand for . and ..");
        assert_eq!(root.behind(1, 0), None, "there is no other directory");
    }

    #[test]
    fn a_directory_that_was_made_again_is_found_by_its_new_handle() {
        let mut root = tree(&["a"]);
        let handles = [1, 2].map(|octet| FileHandle::new(&[octet; 32]).unwrap());
        for handle in handles {
            root.learn(0, handle);
        }
        assert!(root.export_of(&handles[0]).is_none());
        assert_eq!(&*root.export_of(&handles[1]).unwrap().name, b"a");
    }

    #[test]
    fn names_of_several_components_share_the_directories_that_lead_to_them() {
        let names = ["a/b/c", "d", "a/e", "a/b/f"];
        let tree = tree(&names);
        for name in names {
            assert_eq!(&*export(&tree, name).unwrap().name, name.as_bytes());
        }
        assert_eq!(tree.directories.len(), 3, "the root, a and a/b");
        assert_eq!(tree.directories[ROOT].entries.len(), 2);
        let Some(Below::Directory(a)) = tree.find(ROOT, b"a") else { panic!("a is no directory") };
        let Some(Below::Directory(b)) = tree.find(a, b"b") else { panic!("a/b is no directory") };
        assert_eq!((tree.beneath(a), tree.beneath(b)), (&[0, 2, 3][..], &[0, 3][..]));
        assert_eq!((tree.above(b), tree.above(a)), (tree.handle_of(a), tree.handle_of(ROOT)));
        assert_eq!(tree.above(ROOT), None);
        assert_eq!(tree.above_export(export(&tree, "a/b/f").unwrap()), tree.handle_of(b).unwrap());
        let numbers = [ROOT, a, b].map(|place| tree.attributes(place).unwrap().fileid);
        assert!(numbers[0] == ROOT_NUMBER && numbers[1] != numbers[2]);
    }

    #[test]
    fn a_directory_keeps_its_handle_while_a_list_of_exports_leads_through_it() {
        let (before, after) = (tree(&["a/b", "a/c"]), tree(&["x", "a/c"]));
        let handle = |tree: &PseudoTree| match tree.find(ROOT, b"a") {
            Some(Below::Directory(place)) => tree.handle_of(place).unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(handle(&before), handle(&after));
        let place = after.place_of(&handle(&before)).unwrap();
        assert_ne!(before.verifier(place), after.verifier(place));
        assert_eq!(tree(&["a", "x"]).place_of(&handle(&before)), None, "it is an export there");
    }

    #[test]
    fn an_export_beneath_the_name_of_another_is_left_out_in_any_order() {
        for names in [["a", "a/b", "ab/c"], ["a/b", "ab/c", "a"]] {
            let tree = tree(&names);
            assert_eq!(tree.exports.len(), 2);
            assert!(export(&tree, "a").is_some() && export(&tree, "ab/c").is_some());
        }
    }
}
