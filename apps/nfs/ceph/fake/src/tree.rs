//! The files: a tree in memory, with the rights that CephFS gives a user to them.

use crate::node::{FakeNode, SecondsAndNanos};
use libc::{
    E2BIG, EACCES, EEXIST, EINVAL, EISDIR, ELOOP, EMLINK, ENODATA, ENOENT, ENOTDIR, ENOTEMPTY,
    EPERM, ERANGE, ESTALE, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, S_ISGID, S_ISVTX, c_int,
};
use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

/// The root's inode number, as in every Ceph file system.
pub(crate) const ROOT: u64 = 1;
/// Octets of the largest file, inclusive: Ceph's `max_file_size`.
pub(crate) const SIZE_MAX: u64 = 1 << 40;
/// Names of the most linked file.
const LINKS_MAX: u32 = 65_000;

/// A result, or an error number.
pub(crate) type OrErrno<T> = Result<T, c_int>;

/// As whom a call is made.
#[derive(Clone, Debug)]
pub(crate) struct FakeCaller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

impl FakeCaller {
    fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// Rights, as `rwx` has them.
pub(crate) const READ: u32 = 4;
pub(crate) const WRITE: u32 = 2;
pub(crate) const SEARCH: u32 = 1;

/// Attributes to set.
#[derive(Default)]
pub(crate) struct WantedChange {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) accessed: Option<SecondsAndNanos>,
    pub(crate) modified: Option<SecondsAndNanos>,
    pub(crate) is_now: bool,
}

/// An object to be made.
pub(crate) struct NewObject<'a> {
    pub(crate) mode: u32,
    pub(crate) special: u64,
    pub(crate) target: &'a [u8],
}

/// All files.
pub(crate) struct FakeTree {
    nodes: BTreeMap<u64, FakeNode>,
    next: u64,
    last: SecondsAndNanos,
}

impl FakeTree {
    pub(crate) fn new() -> Self {
        let mut tree = Self { nodes: BTreeMap::new(), next: 0x100_0000_0000, last: (0, 0) };
        let now = tree.now();
        tree.nodes.insert(ROOT, FakeNode::new(S_IFDIR | 0o755, 0, 0, ROOT, now));
        tree
    }

    /// A time above all that were given before.
    fn now(&mut self) -> SecondsAndNanos {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = (since.as_secs() as i64, i64::from(since.subsec_nanos()));
        let (seconds, nanos) = self.last;
        let above = if nanos == 999_999_999 { (seconds + 1, 0) } else { (seconds, nanos + 1) };
        self.last = now.max(above);
        self.last
    }

    pub(crate) fn node(&self, inode: u64) -> OrErrno<&FakeNode> {
        self.nodes.get(&inode).ok_or(ESTALE)
    }

    pub(crate) fn node_mut(&mut self, inode: u64) -> OrErrno<&mut FakeNode> {
        self.nodes.get_mut(&inode).ok_or(ESTALE)
    }

    fn directory(&self, inode: u64) -> OrErrno<&FakeNode> {
        let node = self.node(inode)?;
        if node.kind() == S_IFDIR { Ok(node) } else { Err(ENOTDIR) }
    }

    /// Judges a caller by the mode's bits.
    pub(crate) fn judge(&self, inode: u64, need: u32, caller: &FakeCaller) -> OrErrno<()> {
        let node = self.node(inode)?;
        let bits = match caller.uid {
            0 => 7,
            uid if uid == node.uid => node.mode >> 6,
            _ if caller.is_in(node.gid) => node.mode >> 3,
            _ => node.mode,
        };
        if bits & need == need { Ok(()) } else { Err(EACCES) }
    }

    /// The directory of a path, as root finds it.
    pub(crate) fn walk(&self, path: &[u8]) -> OrErrno<u64> {
        let root = FakeCaller { uid: 0, gid: 0, groups: Vec::new() };
        let mut names = path.split(|octet| *octet == b'/').filter(|name| !name.is_empty());
        names.try_fold(ROOT, |inode, name| self.lookup(inode, name, &root))
    }

    pub(crate) fn lookup(&self, inode: u64, name: &[u8], caller: &FakeCaller) -> OrErrno<u64> {
        let node = self.directory(inode)?;
        self.judge(inode, SEARCH, caller)?;
        match name {
            b"." => Ok(inode),
            b".." => Ok(node.parent),
            _ => node.entries.find(name).ok_or(ENOENT),
        }
    }

    fn touch(&mut self, inode: u64) -> OrErrno<()> {
        let now = self.now();
        let node = self.node_mut(inode)?;
        (node.modified, node.changed) = (now, now);
        node.version += 1;
        Ok(())
    }

    fn changed(&mut self, inode: u64) -> OrErrno<()> {
        let now = self.now();
        let node = self.node_mut(inode)?;
        node.changed = now;
        node.version += 1;
        Ok(())
    }

    pub(crate) fn make(
        &mut self,
        parent: u64,
        name: &[u8],
        wanted: &NewObject<'_>,
        caller: &FakeCaller,
    ) -> OrErrno<u64> {
        match self.lookup(parent, name, caller) {
            Ok(_) => return Err(EEXIST),
            Err(ENOENT) => {}
            Err(error) => return Err(error),
        }
        self.judge(parent, WRITE, caller)?;
        let above = self.node(parent)?;
        let (mut mode, mut gid) = (wanted.mode, caller.gid);
        if above.mode & S_ISGID != 0 {
            gid = above.gid;
            if mode & S_IFMT == S_IFDIR {
                mode |= S_ISGID;
            }
        }
        let (now, inode) = (self.now(), self.next);
        self.next += 1;
        let mut node = FakeNode::new(mode, caller.uid, gid, parent, now);
        node.special = wanted.special;
        node.target = wanted.target.to_vec();
        self.nodes.insert(inode, node);
        let above = self.node_mut(parent)?;
        above.entries.add(name, inode);
        above.links += u32::from(wanted.mode & S_IFMT == S_IFDIR);
        self.touch(parent)?;
        Ok(inode)
    }

    pub(crate) fn link(
        &mut self,
        inode: u64,
        parent: u64,
        name: &[u8],
        caller: &FakeCaller,
    ) -> OrErrno<()> {
        if self.node(inode)?.kind() == S_IFDIR {
            return Err(EPERM);
        }
        match self.lookup(parent, name, caller) {
            Ok(_) => return Err(EEXIST),
            Err(ENOENT) => {}
            Err(error) => return Err(error),
        }
        self.judge(parent, WRITE, caller)?;
        if self.node(inode)?.links >= LINKS_MAX {
            return Err(EMLINK);
        }
        self.node_mut(inode)?.links += 1;
        self.node_mut(parent)?.entries.add(name, inode);
        self.changed(inode)?;
        self.touch(parent)
    }

    /// Refuses to take a name out of a directory that others may write but whose entries are their
    /// owners'.
    fn judge_removal(&self, parent: u64, inode: u64, caller: &FakeCaller) -> OrErrno<()> {
        self.judge(parent, WRITE | SEARCH, caller)?;
        let (above, node) = (self.node(parent)?, self.node(inode)?);
        let is_free = above.mode & S_ISVTX == 0
            || caller.uid == 0
            || [above.uid, node.uid].contains(&caller.uid);
        if is_free { Ok(()) } else { Err(EPERM) }
    }

    pub(crate) fn unlink(&mut self, parent: u64, name: &[u8], caller: &FakeCaller) -> OrErrno<u64> {
        let inode = self.lookup(parent, name, caller)?;
        if self.node(inode)?.kind() == S_IFDIR {
            return Err(EISDIR);
        }
        self.judge_removal(parent, inode, caller)?;
        self.node_mut(parent)?.entries.remove(name);
        self.node_mut(inode)?.links -= 1;
        self.changed(inode)?;
        self.touch(parent)?;
        Ok(inode)
    }

    pub(crate) fn rmdir(&mut self, parent: u64, name: &[u8], caller: &FakeCaller) -> OrErrno<u64> {
        let inode = self.lookup(parent, name, caller)?;
        if name == b"." {
            return Err(EINVAL);
        }
        let node = self.directory(inode)?;
        self.judge_removal(parent, inode, caller)?;
        if name == b".." || !node.entries.is_empty() {
            return Err(ENOTEMPTY);
        }
        let above = self.node_mut(parent)?;
        above.entries.remove(name);
        above.links -= 1;
        self.node_mut(inode)?.links = 0;
        self.changed(inode)?;
        self.touch(parent)?;
        Ok(inode)
    }

    fn is_below(&self, mut inode: u64, above: u64) -> bool {
        loop {
            if inode == above {
                return true;
            }
            match self.nodes.get(&inode) {
                Some(node) if inode != ROOT => inode = node.parent,
                _ => return false,
            }
        }
    }

    /// Renames, and returns the object that lost its name, if one did.
    pub(crate) fn rename(
        &mut self,
        from: [u64; 2],
        names: [&[u8]; 2],
        caller: &FakeCaller,
    ) -> OrErrno<Option<u64>> {
        let ([old, new], [old_name, new_name]) = (from, names);
        let inode = self.lookup(old, old_name, caller)?;
        self.judge_removal(old, inode, caller)?;
        self.judge(new, WRITE | SEARCH, caller)?;
        let is_directory = self.node(inode)?.kind() == S_IFDIR;
        if is_directory && self.is_below(new, inode) {
            return Err(EINVAL);
        }
        let replaced = match self.lookup(new, new_name, caller) {
            Ok(found) if found == inode => return Ok(None),
            Ok(found) => Some(found),
            Err(ENOENT) => None,
            Err(error) => return Err(error),
        };
        if let Some(found) = replaced {
            let node = self.node(found)?;
            match (is_directory, node.kind() == S_IFDIR) {
                (_, true) if !node.entries.is_empty() => return Err(ENOTEMPTY),
                (true, false) => return Err(ENOTDIR),
                (false, true) => return Err(EISDIR),
                _ => {}
            }
            self.judge_removal(new, found, caller)?;
            let above = self.node_mut(new)?;
            above.entries.remove(new_name);
            above.links -= u32::from(is_directory);
            let node = self.node_mut(found)?;
            node.links = if is_directory { 0 } else { node.links - 1 };
            self.changed(found)?;
        }
        self.node_mut(old)?.entries.remove(old_name);
        self.node_mut(new)?.entries.add(new_name, inode);
        if is_directory {
            self.node_mut(inode)?.parent = new;
            self.node_mut(old)?.links -= 1;
            self.node_mut(new)?.links += 1;
        }
        self.changed(inode)?;
        self.touch(old)?;
        self.touch(new)?;
        Ok(replaced)
    }

    pub(crate) fn set(
        &mut self,
        inode: u64,
        change: &WantedChange,
        caller: &FakeCaller,
    ) -> OrErrno<()> {
        self.judge_change(inode, change, caller)?;
        let now = self.now();
        let node = self.node_mut(inode)?;
        if let Some(size) = change.size {
            if node.kind() == S_IFDIR {
                return Err(EISDIR);
            }
            if size > SIZE_MAX {
                return Err(libc::EFBIG);
            }
            node.content.resize(size);
            node.modified = now;
        }
        if let Some(mode) = change.mode {
            node.mode = node.kind() | (mode & 0o7777);
        }
        if change.uid.is_some() || change.gid.is_some() {
            node.drop_set_id();
        }
        node.uid = change.uid.unwrap_or(node.uid);
        node.gid = change.gid.unwrap_or(node.gid);
        node.accessed = change.accessed.unwrap_or(node.accessed);
        node.modified = change.modified.unwrap_or(node.modified);
        node.changed = now;
        node.version += 1;
        Ok(())
    }

    fn judge_change(&self, inode: u64, change: &WantedChange, caller: &FakeCaller) -> OrErrno<()> {
        if caller.uid == 0 {
            return Ok(());
        }
        let node = self.node(inode)?;
        if change.size.is_some() {
            self.judge(inode, WRITE, caller)?;
        }
        let is_owner = caller.uid == node.uid;
        let gives_away = change.uid.is_some_and(|uid| uid != node.uid);
        let strange = change.gid.is_some_and(|gid| gid != node.gid && !caller.is_in(gid));
        let sets_rights = change.mode.is_some() || change.uid.is_some() || change.gid.is_some();
        if gives_away || strange || (sets_rights && !is_owner) {
            return Err(EPERM);
        }
        let sets_times = change.accessed.is_some() || change.modified.is_some();
        match sets_times && !is_owner {
            true if change.is_now => self.judge(inode, WRITE, caller),
            true => Err(EPERM),
            false => Ok(()),
        }
    }

    pub(crate) fn open(&self, inode: u64, writes: bool, caller: &FakeCaller) -> OrErrno<()> {
        match self.node(inode)?.kind() {
            S_IFLNK => return Err(ELOOP),
            S_IFDIR if writes => return Err(EISDIR),
            _ => {}
        }
        self.judge(inode, READ | if writes { WRITE } else { 0 }, caller)
    }

    pub(crate) fn read(&self, inode: u64, offset: u64, into: &mut [u8]) -> OrErrno<usize> {
        let node = self.node(inode)?;
        if node.kind() != S_IFREG {
            return Err(if node.kind() == S_IFDIR { EISDIR } else { EINVAL });
        }
        Ok(node.content.read(offset, into))
    }

    pub(crate) fn write(&mut self, inode: u64, offset: u64, from: &[u8]) -> OrErrno<()> {
        let end = offset.checked_add(from.len() as u64).filter(|end| *end <= SIZE_MAX);
        end.ok_or(libc::EFBIG)?;
        self.node_mut(inode)?.content.write(offset, from);
        self.touch(inode)
    }

    pub(crate) fn extended(&self, inode: u64, name: &[u8], into: &mut [u8]) -> OrErrno<usize> {
        let value = self.node(inode)?.extended.get(name).ok_or(ENODATA)?;
        if into.is_empty() {
            return Ok(value.len());
        }
        into.get_mut(..value.len()).ok_or(ERANGE)?.copy_from_slice(value);
        Ok(value.len())
    }

    pub(crate) fn set_extended(
        &mut self,
        inode: u64,
        name: &[u8],
        value: &[u8],
        caller: &FakeCaller,
    ) -> OrErrno<()> {
        if value.len() > 65_536 {
            return Err(E2BIG);
        }
        if caller.uid != 0 && caller.uid != self.node(inode)?.uid {
            return Err(EPERM);
        }
        self.node_mut(inode)?.extended.insert(name.to_vec(), value.to_vec());
        self.changed(inode)
    }

    /// Forgets a file without a name; the caller has checked that no client holds it.
    pub(crate) fn forget(&mut self, inode: u64) {
        if self.nodes.get(&inode).is_some_and(|node| node.links == 0) {
            self.nodes.remove(&inode);
        }
    }

    pub(crate) fn files(&self) -> u64 {
        self.nodes.len() as u64
    }
}
