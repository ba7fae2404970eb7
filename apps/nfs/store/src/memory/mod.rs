//! The in-memory store, which ends with the process: files are extents in the memory of a pool
//! (DESIGN D2).
//!
//! **READ pushes directly from them**, without a copy. A WRITE changes a block of 64 KiB in place
//! while it is not shared; while a READ is sending it, a fresh one replaces it, so that bytes being
//! sent never change and never hold another file's data. A WRITE's data in a Read chunk is pulled
//! to memory of the store: to a block, which becomes the file's if it begins with the WRITE and
//! holds all of it, or, for more than half a MiB, to adjacent blocks, each of which becomes the
//! file's if the WRITE begins a block. Otherwise the data is copied once.
//!
//! **Memory is not stable storage.** A WRITE reports the requested stability, but lasts only as
//! long as this process. COMMIT is a no-op. A restart begins empty (or with the directory it was
//! filled from): the write verifier changes, and every earlier handle gets NFS3ERR_STALE, so that
//! no client takes lost data for written.
//!
//! **Space is limited.** Content and targets of links fill [`MemoryConfig::capacity`] bytes in
//! slots of 4 KiB (one part in 16) and 64 KiB, and there are at most [`MemoryConfig::inodes`]
//! objects and twice as many names. Beyond that calls get NFS3ERR_NOSPC, and stored data stays. A
//! hole takes no slot. Overwriting data that is being sent takes a slot from a reserve of 1 MiB
//! beyond the capacity; when that is used up too, NFS3ERR_JUKEBOX.
//!
//! **Every caller has all rights**, as with [`crate::files`] in unprivileged mode: owner and mode
//! are stored but not enforced, and new objects belong to the caller. Access control of connections
//! is the only protection. As on every file system, a change of owner or content clears the set-uid
//! and set-gid bits, and only a member of a file's group sets the latter.
//!
//! GETATTR, LOOKUP and READ allocate nothing, nor does a WRITE to existing blocks. The table of
//! inodes (at most 320 bytes each), the names of a directory and the blocks of a file grow with the
//! tree, by doubling or by nodes. That memory is in addition to the capacity, and so are extended
//! attributes, which take a sixteenth of it at most.

mod blocks;
mod content;
mod copy;
mod handle;
mod home_shard;
mod namespace;
mod procedures;
mod procedures4;
mod ranges;
mod space;
mod stat_cache;
mod tree;
mod xattrs;

use crate::{
    ExportRoot, Failed, FileAttributes, FileTime, HostTurns, ObjectChange, Store, User,
    exports::security::SecurityFlavors, start_error::StartError,
};
use std::{io, path::PathBuf};

pub use copy::Progress;
use handle::{Handles, InodeId};
pub use home_shard::{GuestMail, HomeMail, MemoryMail};
use procfs::process::Process;
use rustix::time::{ClockId, clock_gettime};
use space::Space;
use stag_engine::PeerAddress;
use stag_pools::{Budget, Buf, Pool};
use stag_protocol::{
    nfs::{
        v3::{AttributeOctets, FileHandle, Status, Verifier},
        v4::StatOctets,
    },
    rpc::Gids,
};
use tree::{Directory, Inode, Inodes, Meta, ObjectBody};

/// Bytes of memory per object for the default limit on objects.
const OCTETS_PER_INODE: usize = 4 << 10;
/// Objects at least.
const INODES_MIN: usize = 1024;
/// Smallest capacity, in octets.
pub const CAPACITY_MIN: usize = 1 << 20;
/// Largest default capacity, in bytes.
const CAPACITY_DEFAULT_MAX: usize = 1 << 30;
/// The user and group of AUTH_NONE.
const NOBODY: u32 = 65_534;

/// A tree to export.
#[derive(Clone, Debug)]
pub struct MemoryExport {
    /// The name clients mount it by, without the leading slash.
    pub name: String,
    /// The directory to copy initial content from; empty if none.
    pub copy_of: Option<PathBuf>,
    /// True if every change is refused with NFS3ERR_ROFS.
    pub read_only: bool,
}

/// Configuration of the store.
#[derive(Clone, Debug)]
pub struct MemoryConfig {
    /// The trees to serve.
    pub exports: Vec<MemoryExport>,
    /// Octets that content may fill.
    pub capacity: usize,
    /// Objects at most.
    pub inodes: usize,
    /// True if processes that share memory with this one may map the content for reading.
    pub shared: bool,
    /// Security flavors that all exports accept; every flavor if none are given.
    pub security: Option<SecurityFlavors>,
}

impl MemoryConfig {
    /// `capacity` octets, and an object for every 4 KiB of them.
    pub fn new(exports: Vec<MemoryExport>, capacity: usize) -> Self {
        Self {
            exports,
            capacity,
            inodes: (capacity / OCTETS_PER_INODE).max(INODES_MIN),
            shared: false,
            security: None,
        }
    }

    /// The default capacity: an eighth of the host's memory, at most 1 GiB.
    pub fn default_capacity() -> usize {
        (Self::host_memory() / 8).clamp(CAPACITY_MIN, CAPACITY_DEFAULT_MAX)
    }

    /// Maximum memory of a process here in bytes: the host's, or the limit of its control group
    /// (version 2).
    pub fn host_memory() -> usize {
        let info = rustix::system::sysinfo();
        let unit = usize::try_from(info.mem_unit.max(1)).unwrap_or(1);
        let total = usize::try_from(info.totalram).unwrap_or(usize::MAX).saturating_mul(unit);
        let groups = Process::myself().and_then(|process| process.cgroups());
        let group = groups.into_iter().flatten().find(|group| group.hierarchy == 0);
        let group = group.map(|group| group.pathname).unwrap_or_default();
        let group = group.trim_start_matches('/');
        let limits = std::path::Path::new(group).ancestors().filter_map(|above| {
            let file = std::path::Path::new("/sys/fs/cgroup").join(above).join("memory.max");
            // "max" means no limit and does not parse.
            std::fs::read_to_string(file).ok()?.trim().parse::<usize>().ok()
        });
        limits.fold(total, usize::min)
    }
}

/// An export being served.
#[derive(Debug)]
struct ExportedTree {
    name: String,
    root: InodeId,
    read_only: bool,
    fsid: u64,
}

/// Intent of an operation: to look, or to change something. A read-only export refuses changes
/// before they take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intent {
    Look,
    Change,
}

/// The store of one shard: its memory stays on the thread that made it, and other shards are its
/// guests ([`MemoryMail`]).
#[derive(Debug)]
pub struct Memory {
    // Files are dropped before the memory that holds them.
    inodes: Inodes,
    names: usize,
    /// Bytes that extended attributes take.
    xattr_octets: u64,
    exports: Vec<ExportedTree>,
    handles: Handles,
    space: Space,
    caller: (u32, u32),
    groups: Gids,
    last_time: FileTime,
    guests: Option<HomeMail>,
    security: Option<SecurityFlavors>,
}

impl Memory {
    /// Allocates all memory for content, and fills it with copies of the directories that the
    /// exports name. Calls `progress` after each object copied.
    ///
    /// # Errors
    ///
    /// A sentence for the administrator: no memory, an invalid name, a directory that cannot be
    /// read or does not fit.
    pub fn new(
        config: &MemoryConfig,
        progress: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<Self, StartError> {
        if config.capacity < CAPACITY_MIN {
            return Err(StartError(format!(
                "the memory store needs at least {CAPACITY_MIN} octets"
            )));
        }
        let space = Space::new(config.capacity, config.shared).map_err(|error| {
            StartError(format!("cannot take {} octets of memory: {error}", config.capacity))
        })?;
        let handles =
            Handles::draw().map_err(|error| StartError(format!("cannot draw a key: {error}")))?;
        let mut memory = Self {
            inodes: Inodes::new(config.inodes.max(1)),
            names: 0,
            xattr_octets: 0,
            exports: Vec::with_capacity(config.exports.len()),
            handles,
            space,
            caller: (NOBODY, NOBODY),
            groups: Gids::default(),
            last_time: FileTime::default(),
            guests: None,
            security: config.security,
        };
        for export in &config.exports {
            memory.add_export(export, progress)?;
        }
        Ok(memory)
    }

    fn add_export(
        &mut self,
        config: &MemoryExport,
        progress: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<(), StartError> {
        crate::exports::config::check_name(&config.name)?;
        if self.exports.iter().any(|export| export.name == config.name) {
            return Err(StartError(format!("two exports have the name {}", config.name)));
        }
        let export = u32::try_from(self.exports.len()).expect("exports come from a command line");
        let full = |_| StartError("the memory store has no inode for every export".to_owned());
        let itself = self.inodes.next().map_err(full)?;
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let meta = self.fresh_meta(export, 0o755, uid.as_raw(), gid.as_raw());
        let body = ObjectBody::Directory(Directory::new(itself));
        let root = self
            .inodes
            .add(&self.handles, Inode::new(Meta { nlink: 2, ..meta }, body))
            .map_err(full)?;
        let instance = u64::from_be_bytes(self.handles.instance());
        let fsid = instance.wrapping_add(export.into());
        self.exports.push(ExportedTree {
            name: config.name.clone(),
            root,
            read_only: config.read_only,
            fsid,
        });
        match &config.copy_of {
            Some(directory) => self.copy_tree(directory, root, progress),
            None => Ok(()),
        }
    }

    /// Sentences to print at the start: the store's weaknesses.
    pub fn notices(&self) -> Vec<String> {
        vec![
            "the memory store keeps nothing: when this process ends, every file is gone".to_owned(),
            "the memory store judges no rights: whoever may mount may read and change every file"
                .to_owned(),
        ]
    }

    /// Returns the memory that the store takes, for content only.
    pub fn budget(&self) -> Budget {
        self.space.budget()
    }

    /// Objects that can be made at most.
    pub fn inodes(&self) -> usize {
        self.inodes.room().0
    }

    /// Bytes that content may fill, and bytes that are free.
    pub fn capacity(&self) -> (u64, u64) {
        let (total, free, _) = self.space.octets();
        (total, free)
    }

    /// The time, later than every earlier one, so that each change shows.
    fn now(&mut self) -> FileTime {
        let clock = clock_gettime(ClockId::Realtime);
        let (seconds, nanos) = (clock.tv_sec, u32::try_from(clock.tv_nsec).unwrap_or(0));
        let last = self.last_time;
        let next = if last.nanos < 999_999_999 {
            FileTime { nanos: last.nanos + 1, ..last }
        } else {
            FileTime { seconds: last.seconds.saturating_add(1), nanos: 0 }
        };
        self.last_time = next.max(FileTime { seconds, nanos });
        self.last_time
    }

    fn fresh_meta(&mut self, export: u32, mode: u32, uid: u32, gid: u32) -> Meta {
        let now = self.now();
        Meta {
            export,
            mode,
            nlink: 1,
            uid,
            gid,
            pins: 0,
            atime: now,
            mtime: now,
            ctime: now,
            born_ns: now.wrapping_nanos(),
            verifier: None,
        }
    }

    fn export_of(&self, inode: &Inode) -> &ExportedTree {
        export_of(&self.exports, inode)
    }

    /// The inode that a handle names.
    ///
    /// # Errors
    ///
    /// [`Status::BadHandle`] for a handle that is not ours, [`Status::Stale`] for an
    /// object that is gone, [`Status::RoFs`] for a change on a read-only export.
    fn resolve(&self, handle: &FileHandle, intent: Intent) -> Result<InodeId, Status> {
        let claim = self.handles.take_apart(handle)?;
        let Some(inode) = self.inodes.claimed(claim) else {
            return Err(self.handles.refusal(claim));
        };
        if intent == Intent::Change && self.export_of(inode).read_only {
            return Err(Status::RoFs);
        }
        Ok(claim.inode)
    }

    /// The handle of an object.
    fn handle(&self, id: InodeId) -> Result<FileHandle, Status> {
        Ok(self.handles.seal(self.inodes.claim(id)?))
    }

    /// The directory that a handle names.
    ///
    /// # Errors
    /// As [`Memory::resolve`], and [`Status::NotDir`].
    fn directory(&self, handle: &FileHandle, intent: Intent) -> Result<InodeId, Status> {
        let id = self.resolve(handle, intent)?;
        // RFC 1813 §3.3.3 [1813-26]: a LOOKUP in a non-directory gets NFS3ERR_NOTDIR
        self.inodes.get(id)?.directory().map(|_| id)
    }

    fn attributes(&self, id: InodeId) -> Result<FileAttributes, Status> {
        let inode = self.inodes.get(id)?;
        Ok(inode.attributes(id, self.export_of(inode).fsid))
    }

    /// The same as octets of a reply of version 3.
    fn attribute_octets(&mut self, id: InodeId) -> Result<AttributeOctets, Status> {
        let Self { inodes, exports, .. } = self;
        inodes.octets(id, |inode| inode.attributes(id, export_of(exports, inode).fsid))
    }

    /// The same as octets of a reply of version 4.
    fn stat_octets(&mut self, id: InodeId) -> Result<StatOctets, Status> {
        let Self { inodes, exports, .. } = self;
        inodes.stat_octets(id, |inode| inode.attributes(id, export_of(exports, inode).fsid))
    }

    /// Adds the attributes from before and after a change to its outcome.
    fn changed<T>(
        &self,
        id: InodeId,
        before: &FileAttributes,
        outcome: Result<T, Status>,
    ) -> Result<(T, ObjectChange), Failed<ObjectChange>> {
        let wcc = self.wcc(id, before);
        outcome.map(|value| (value, wcc)).map_err(|status| Failed { status, about: wcc })
    }

    fn wcc(&self, id: InodeId, before: &FileAttributes) -> ObjectChange {
        // RFC 1813 §3.1 [1813-13]: a reply carries attributes, also if the call failed
        ObjectChange { before: Some(before.into()), after: self.attributes(id).ok() }
    }

    fn set_caller(&mut self, user: &User) {
        (self.caller, self.groups) = match user {
            User::Anyone => ((NOBODY, NOBODY), Gids::default()),
            User::Unix { uid, gid, gids } => ((*uid, *gid), *gids),
        };
    }

    /// The mode of a non-directory after the caller changed its content or owner: the set-id bits
    /// that grant rights are cleared.
    fn without_set_id(&self, mode: u32) -> u32 {
        let kept = if mode & 0o0010 == 0 { 0o2000 } else { 0 };
        mode & (0o1777 | kept)
    }

    /// True if the caller may set set-group-id for this group.
    fn is_in_group(&self, gid: u32) -> bool {
        let (uid, own) = self.caller;
        uid == 0 || own == gid || self.groups.list().contains(&gid)
    }
}

/// The export that an inode belongs to.
fn export_of<'a>(exports: &'a [ExportedTree], inode: &Inode) -> &'a ExportedTree {
    exports.get(inode.meta.export as usize).expect("an inode belongs to an export")
}

#[cfg(test)]
mod tests;

impl Store for Memory {
    type Now = Self;

    fn now(&mut self) -> &mut Self {
        self
    }

    fn exports(&self) -> impl Iterator<Item = &str> {
        self.exports.iter().map(|export| export.name.as_str())
    }

    fn export_roots(&self) -> Vec<ExportRoot> {
        let roots = self.exports.iter().zip(0..).map(|(export, id)| ExportRoot {
            name: export.name.clone(),
            id,
            fsid: export.fsid,
            is_read_only: export.read_only,
            root: self.handle(export.root).ok(),
        });
        roots.collect()
    }

    fn has_security(&self) -> bool {
        self.security.is_some()
    }

    fn flavors(&self, _export: &str, _address: PeerAddress) -> Option<SecurityFlavors> {
        self.security
    }

    fn flavors_of(&self, _object: &FileHandle, _address: PeerAddress) -> Option<SecurityFlavors> {
        self.security
    }

    fn unpin(&mut self, file: &FileHandle) {
        self.unpin_file(file);
    }

    fn verifier(&self) -> Verifier {
        // RFC 1813 §3.3.7 [1813-45]: the write verifier stays while no unstable data is lost
        self.handles.instance()
    }

    /// Handles end with this process: there is nothing to write.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn serve_others(&mut self, turns: &mut dyn HostTurns) -> bool {
        self.has_messages() && self.serve_guests(turns)
    }

    fn wants_idle_passes(&self) -> bool {
        self.has_messages()
    }

    fn sink(&self, len: usize) -> Option<Buf> {
        self.space.sink(len)
    }

    fn pool(&self) -> Option<&Pool> {
        Some(self.space.pool())
    }
}
