//! Operations that change names: CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK (RFC
//! 1813 §3.3.8–3.3.15), and SETATTR.

use stag_protocol::nfs::v3::{FileHandle, FileKind, Status};

use super::{
    Intent, Memory,
    content::Content,
    handle::InodeId,
    space::Need,
    tree::{Directory, Inode, LINKS_MAX, Meta, ObjectBody},
};
use crate::{
    CreateMode, DeviceNode, Failed, FileTime, MadeObject, NameIn, NewAttributes, NewTime,
    ObjectChange, contract::name::Name,
};

const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// Octets of a link's longest target, as on Linux.
const TARGET_MAX: usize = 4095;
/// Average number of names per inode, at most.
const NAMES_PER_INODE: usize = 2;

/// The file that a CREATE returns.
pub(super) struct CreatedFile {
    pub id: InodeId,
    /// False if it existed before.
    pub is_new: bool,
}

impl Memory {
    /// Makes an object in a directory with `make` and the attributes in `asked`.
    pub(super) fn make(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        asked: &NewAttributes,
        make: impl FnOnce(&mut Self, InodeId, Name<'_>) -> Result<InodeId, Status>,
    ) -> Result<MadeObject, Failed<ObjectChange>> {
        let parent = self.directory(directory, Intent::Change)?;
        let before = self.attributes(parent)?;
        // RFC 1813 §3.3.9 [1813-64]: a MKDIR of . or .. gets NFS3ERR_EXIST
        let outcome = Name::of(name, Status::Exist, Status::Exist).and_then(|name| {
            let id = make(self, parent, name)?;
            self.object(id)
        });
        let ((handle, attributes), directory) = self.changed(parent, &before, outcome)?;
        Ok(MadeObject::new(handle, attributes, directory, asked))
    }

    pub(super) fn create_in(
        &mut self,
        parent: InodeId,
        name: Name<'_>,
        how: &CreateMode,
    ) -> Result<CreatedFile, Status> {
        let Some(found) = self.find(parent, name)? else {
            let id = match how {
                CreateMode::Unchecked(set) | CreateMode::Guarded(set) => {
                    let mut content = Content::default();
                    content.set_size(checked_size(set.size.unwrap_or(0))?);
                    self.add(parent, name, ObjectBody::Regular(content), set)?
                }
                CreateMode::Exclusive { verifier, set } => {
                    let set = NewAttributes {
                        size: None,
                        atime: NewTime::Keep,
                        mtime: NewTime::Keep,
                        ..*set
                    };
                    let id =
                        self.add(parent, name, ObjectBody::Regular(Content::default()), &set)?;
                    self.inodes.get_mut(id)?.meta.verifier = Some(*verifier);
                    id
                }
            };
            return Ok(CreatedFile { id, is_new: true });
        };
        let existing = CreatedFile { id: found, is_new: false };
        let inode = self.inodes.get_mut(found)?;
        // RFC 1813 §3.3.8 [1813-61]: a CREATE over another kind of object gets NFS3ERR_EXIST
        let Ok(content) = inode.content_mut() else { return Err(Status::Exist) };
        let is_empty = content.size() == 0;
        match how {
            // RFC 1813 §3.3.8 [1813-58]: an EXCLUSIVE CREATE succeeds again with the same verifier
            CreateMode::Exclusive { verifier, .. }
                if is_empty && inode.meta.verifier == Some(*verifier) =>
            {
                Ok(existing)
            }
            // RFC 1813 §3.3.8 [1813-56]: a GUARDED CREATE of an existing name gets NFS3ERR_EXIST
            CreateMode::Exclusive { .. } | CreateMode::Guarded(_) => Err(Status::Exist),
            CreateMode::Unchecked(set) => {
                // For an existing file, only the size is set.
                // RFC 1813 §3.3.8 [1813-55]: an UNCHECKED CREATE of an existing file sets its size
                // only
                set.size.map_or(Ok(()), |size| self.set_size(found, size)).map(|()| existing)
            }
        }
    }

    pub(super) fn mkdir_in(
        &mut self,
        parent: InodeId,
        name: Name<'_>,
        set: &NewAttributes,
    ) -> Result<InodeId, Status> {
        self.must_be_free(parent, name)?;
        if self.inodes.get(parent)?.meta.nlink >= LINKS_MAX {
            return Err(Status::MLink);
        }
        self.add(parent, name, ObjectBody::Directory(Directory::new(parent)), set)
    }

    pub(super) fn symlink_in(
        &mut self,
        parent: InodeId,
        name: Name<'_>,
        target: &[u8],
        set: &NewAttributes,
    ) -> Result<InodeId, Status> {
        if target.is_empty() || target.contains(&0) {
            return Err(Status::Inval);
        }
        if target.len() > TARGET_MAX {
            return Err(Status::NameTooLong);
        }
        self.must_be_free(parent, name)?;
        let mut copy = self.space.take(target.len(), Need::Growth)?;
        copy.append(target).expect("the buffer was taken for as many");
        // RFC 1813 §3.3.10 [1813-65]: a symbolic link is never visible without its target
        self.add(parent, name, ObjectBody::Symlink(copy.freeze()), set)
    }

    pub(super) fn mknod_in(
        &mut self,
        parent: InodeId,
        name: Name<'_>,
        DeviceNode { kind, device }: DeviceNode,
        set: &NewAttributes,
    ) -> Result<InodeId, Status> {
        let body = match kind {
            FileKind::Fifo => ObjectBody::Fifo,
            FileKind::Socket => ObjectBody::Socket,
            FileKind::Block => ObjectBody::Block(device),
            FileKind::Character => ObjectBody::Character(device),
            // RFC 1813 §3.3.11 [1813-66]: a MKNOD of a file, directory or link gets NFS3ERR_BADTYPE
            FileKind::Regular | FileKind::Directory | FileKind::Symlink => {
                return Err(Status::BadType);
            }
        };
        self.must_be_free(parent, name)?;
        self.add(parent, name, body, set)
    }

    fn must_be_free(&self, parent: InodeId, name: Name<'_>) -> Result<(), Status> {
        if self.find(parent, name)?.is_some() { Err(Status::Exist) } else { Ok(()) }
    }

    /// The object with this name, if any.
    pub(super) fn find(
        &self,
        directory: InodeId,
        name: Name<'_>,
    ) -> Result<Option<InodeId>, Status> {
        Ok(self.inodes.get(directory)?.directory()?.find(name.octets()))
    }

    /// The object with this name.
    ///
    /// # Errors
    /// [`Status::NoEnt`] when there is none.
    pub(super) fn entry(&self, directory: InodeId, name: Name<'_>) -> Result<InodeId, Status> {
        self.find(directory, name)?.ok_or(Status::NoEnt)
    }

    /// Adds an object under a free name; on error, nothing is added.
    pub(super) fn add(
        &mut self,
        parent: InodeId,
        name: Name<'_>,
        body: ObjectBody,
        set: &NewAttributes,
    ) -> Result<InodeId, Status> {
        let times = times(set)?;
        self.must_have_room_for_a_name()?;
        let above = self.inodes.get(parent)?.meta;
        let is_directory = matches!(body, ObjectBody::Directory(_));
        let inherited = if is_directory { above.mode & 0o2000 } else { 0 };
        let mode = match body {
            ObjectBody::Symlink(_) => 0o777,
            ObjectBody::Directory(_) => {
                set.masked_mode().unwrap_or(DIRECTORY_MODE) & 0o7777 | inherited
            }
            // RFC 1813 §3.3.8 [1813-63]: a new object has the attributes asked for
            _ => set.masked_mode().unwrap_or(FILE_MODE) & 0o7777,
        };
        check_owner(set)?;
        let gid = if above.mode & 0o2000 == 0 { self.caller.1 } else { above.gid };
        let (uid, gid) = (set.uid.unwrap_or(self.caller.0), set.gid.unwrap_or(gid));
        let meta = self.fresh_meta(above.export, mode, uid, gid);
        let nlink = if is_directory { 2 } else { 1 };
        let meta = Meta { nlink, ..apply_times(meta, times, meta.ctime) };
        let id = self.inodes.add(&self.handles, Inode::new(meta, body))?;
        self.put_name(parent, name, id)?;
        Ok(id)
    }

    fn must_have_room_for_a_name(&self) -> Result<(), Status> {
        let limit = self.inodes.room().0 * NAMES_PER_INODE;
        if self.names < limit { Ok(()) } else { Err(Status::NoSpc) }
    }

    /// Puts a name in a directory and counts it.
    fn put_name(&mut self, directory: InodeId, name: Name<'_>, id: InodeId) -> Result<(), Status> {
        let is_directory = matches!(self.inodes.get(id)?.body, ObjectBody::Directory(_));
        let now = self.now();
        let inode = self.inodes.get_mut(directory)?;
        let replaced = inode.directory_mut()?.put(name.octets(), id);
        debug_assert!(replaced.is_none(), "the name was free");
        inode.meta.nlink += u32::from(is_directory);
        (inode.meta.mtime, inode.meta.ctime) = (now, now);
        self.names += 1;
        Ok(())
    }

    /// Removes a name from a directory.
    fn take_name(&mut self, directory: InodeId, name: Name<'_>) -> Result<InodeId, Status> {
        let now = self.now();
        let inode = self.inodes.get_mut(directory)?;
        let id = inode.directory_mut()?.take(name.octets()).ok_or(Status::NoEnt)?;
        (inode.meta.mtime, inode.meta.ctime) = (now, now);
        self.names -= 1;
        if matches!(self.inodes.get(id)?.body, ObjectBody::Directory(_)) {
            self.inodes.get_mut(directory)?.meta.nlink -= 1;
        }
        Ok(id)
    }

    /// Removes the name of `id`, and the object with its last one.
    pub(super) fn unlink(
        &mut self,
        directory: InodeId,
        name: Name<'_>,
        id: InodeId,
    ) -> Result<(), Status> {
        let taken = self.take_name(directory, name)?;
        debug_assert_eq!(taken, id, "the name was looked up");
        let now = self.now();
        let inode = self.inodes.get_mut(id)?;
        inode.meta.ctime = now;
        inode.meta.nlink -= 1;
        let is_directory = matches!(inode.body, ObjectBody::Directory(_));
        if is_directory || (inode.meta.nlink == 0 && inode.meta.pins == 0) {
            self.forget(id);
        }
        Ok(())
    }

    /// Removes an object from the store, with all its content.
    fn forget(&mut self, id: InodeId) {
        let xattrs = self.inodes.remove(id).and_then(|inode| inode.xattrs);
        self.xattr_octets -= xattrs.map_or(0, |xattrs| xattrs.weight()) as u64;
    }

    pub(super) fn pin_file(&mut self, file: &FileHandle) -> Result<(), Status> {
        let id = self.resolve(file, Intent::Look)?;
        self.inodes.get(id)?.content()?;
        let meta = &mut self.inodes.get_mut(id)?.meta;
        meta.pins = meta.pins.checked_add(1).ok_or(Status::Jukebox)?;
        Ok(())
    }

    pub(super) fn unpin_file(&mut self, file: &FileHandle) {
        let Ok(id) = self.resolve(file, Intent::Look) else { return };
        let Ok(Inode { meta, .. }) = self.inodes.get_mut(id) else { return };
        meta.pins = meta.pins.saturating_sub(1);
        if meta.pins == 0 && meta.nlink == 0 {
            self.forget(id);
        }
    }

    pub(super) fn remove_from(&mut self, parent: InodeId, name: Name<'_>) -> Result<(), Status> {
        let id = self.entry(parent, name)?;
        if self.inodes.get(id)?.directory().is_ok() {
            // RFC 1813 §3.3.12 [1813-68]: a REMOVE of a directory gets NFS3ERR_ISDIR
            return Err(Status::IsDir);
        }
        self.unlink(parent, name, id)
    }

    pub(super) fn rmdir_from(&mut self, parent: InodeId, name: Name<'_>) -> Result<(), Status> {
        let id = self.entry(parent, name)?;
        self.must_be_empty(id)?;
        self.unlink(parent, name, id)
    }

    fn must_be_empty(&self, id: InodeId) -> Result<(), Status> {
        // RFC 1813 §3.3.13 [1813-70]: a RMDIR of a directory with entries gets NFS3ERR_NOTEMPTY
        if self.inodes.get(id)?.directory()?.len() == 0 { Ok(()) } else { Err(Status::NotEmpty) }
    }

    pub(super) fn must_share_export(&self, a: InodeId, b: InodeId) -> Result<(), Status> {
        let export = |id| self.inodes.get(id).map(|inode| inode.meta.export);
        // RFC 1813 §3.3.14 [1813-72]: a RENAME between file systems gets NFS3ERR_XDEV
        if export(a)? == export(b)? { Ok(()) } else { Err(Status::XDev) }
    }

    pub(super) fn rename_entry(
        &mut self,
        from: NameIn<'_, InodeId>,
        to: NameIn<'_, InodeId>,
    ) -> Result<(), Status> {
        let (NameIn { directory: source, name }, target) = (from, to.directory);
        let name = Name::of(name, Status::Inval, Status::Inval)?;
        // RFC 1813 §3.3.14 [1813-75]: a RENAME of . or .. gets NFS3ERR_INVAL
        let new_name = Name::of(to.name, Status::Inval, Status::Inval)?;
        self.must_share_export(source, target)?;
        let id = self.entry(source, name)?;
        let is_directory = self.inodes.get(id)?.directory().is_ok();
        if is_directory && self.lies_in(target, id)? {
            return Err(Status::Inval);
        }
        if let Some(replaced) = self.find(target, new_name)? {
            if replaced == id {
                // RFC 1813 §3.3.14 [1813-76]: a RENAME between two names of one file does nothing
                return Ok(()); // Two names of one file: both stay (RFC 1813 §3.3.14).
            }
            // RFC 1813 §3.3.14 [1813-73]: a RENAME replaces only its own sort, and empty
            // directories
            match (is_directory, self.inodes.get(replaced)?.directory().is_ok()) {
                (true, false) => return Err(Status::NotDir),
                (true, true) => self.must_be_empty(replaced)?,
                (false, true) if self.lies_in(source, replaced)? => return Err(Status::NotEmpty),
                (false, true) => return Err(Status::IsDir),
                (false, false) => {}
            }
            self.unlink(target, new_name, replaced)?;
        }
        self.take_name(source, name)?;
        self.put_name(target, new_name, id)?;
        let now = self.now();
        let inode = self.inodes.get_mut(id)?;
        inode.meta.ctime = now;
        if let ObjectBody::Directory(directory) = &mut inode.body {
            directory.above = target;
        }
        Ok(())
    }

    /// Returns true if a directory is `other`, or is below it.
    fn lies_in(&self, directory: InodeId, other: InodeId) -> Result<bool, Status> {
        let mut here = directory;
        loop {
            if here == other {
                return Ok(true);
            }
            let above = self.inodes.get(here)?.directory()?.above;
            if above == here {
                return Ok(false);
            }
            here = above;
        }
    }

    pub(super) fn link_entry(
        &mut self,
        id: InodeId,
        parent: InodeId,
        name: &[u8],
    ) -> Result<(), Status> {
        let name = Name::of(name, Status::Exist, Status::Exist)?;
        // RFC 1813 §3.3.15 [1813-79]: a LINK between file systems gets NFS3ERR_XDEV
        self.must_share_export(id, parent)?;
        let inode = self.inodes.get(id)?;
        if inode.directory().is_ok() {
            return Err(Status::Inval);
        }
        // As on Linux, a file that lost its last name cannot be linked again.
        if inode.meta.nlink == 0 {
            return Err(Status::Stale);
        }
        if inode.meta.nlink >= LINKS_MAX {
            return Err(Status::MLink);
        }
        self.must_be_free(parent, name)?;
        self.must_have_room_for_a_name()?;
        self.put_name(parent, name, id)?;
        let now = self.now();
        let meta = &mut self.inodes.get_mut(id)?.meta;
        // RFC 1813 §3.3.15 [1813-78]: a LINK adds one to nlink and names the same file
        meta.nlink += 1;
        meta.ctime = now;
        Ok(())
    }

    /// Sets all attributes, or none if one of them is refused.
    pub(super) fn apply(&mut self, id: InodeId, set: &NewAttributes) -> Result<(), Status> {
        let times = times(set)?;
        check_owner(set)?;
        if set.mode.is_some() && matches!(self.inodes.get(id)?.body, ObjectBody::Symlink(_)) {
            return Err(Status::NotSupp); // A link has none.
        }
        if let Some(size) = set.size {
            self.set_size(id, size)?;
        }
        let now = self.now();
        let meta = &mut self.inodes.get_mut(id)?.meta;
        *meta = apply_times(*meta, times, now);
        meta.uid = set.uid.unwrap_or(meta.uid);
        meta.gid = set.gid.unwrap_or(meta.gid);
        meta.ctime = now;
        let (gid, is_directory) = (meta.gid, self.inodes.get(id)?.directory().is_ok());
        let set_gid = if self.is_in_group(gid) { 0o2000 } else { 0 };
        let is_given = (set.uid.is_some() || set.gid.is_some()) && !is_directory;
        let mode = self.inodes.get(id)?.meta.mode;
        let kept = if is_given { self.without_set_id(mode) } else { mode };
        self.inodes.get_mut(id)?.meta.mode =
            set.mode.map_or(kept, |mode| mode & (0o5777 | set_gid));
        Ok(())
    }

    fn set_size(&mut self, id: InodeId, size: u64) -> Result<(), Status> {
        let now = self.now();
        let inode = self.inodes.get_mut(id)?;
        let content = inode.content_mut()?;
        // RFC 1813 §3.3.2 [1813-22]: a new size cuts the file or extends it by zeros
        content.set_size(checked_size(size)?);
        (inode.meta.mtime, inode.meta.ctime) = (now, now);
        self.drop_set_id(id)
    }

    /// Clears set-id bits after a change of content, unless root made it.
    pub(super) fn drop_set_id(&mut self, id: InodeId) -> Result<(), Status> {
        if self.caller.0 != 0 {
            let mode = self.without_set_id(self.inodes.get(id)?.meta.mode);
            self.inodes.get_mut(id)?.meta.mode = mode;
        }
        Ok(())
    }
}

/// # Errors
/// [`Status::FBig`] for a size that no offset reaches.
fn checked_size(size: u64) -> Result<u64, Status> {
    if i64::try_from(size).is_ok() { Ok(size) } else { Err(Status::FBig) }
}

/// The times of access and of change to set.
type TimesToSet = (NewTime, NewTime);

/// # Errors
/// [`Status::Inval`] for an invalid time.
fn times(set: &NewAttributes) -> Result<TimesToSet, Status> {
    let is_none = |time| matches!(time, NewTime::Client(time) if !time.is_valid());
    if is_none(set.atime) || is_none(set.mtime) {
        Err(Status::Inval)
    } else {
        Ok((set.atime, set.mtime))
    }
}

fn apply_times(meta: Meta, (atime, mtime): TimesToSet, now: FileTime) -> Meta {
    let choose = |old, set| match set {
        // RFC 1813 §3.3.2 [1813-23]: attributes that SETATTR does not name stay unchanged
        NewTime::Keep => old,
        // RFC 1813 §3.3.2 [1813-24]: a time is set to the server's or to the client's
        NewTime::Server => now,
        NewTime::Client(time) => time,
    };
    let kept = (atime, mtime) == (NewTime::Keep, NewTime::Keep);
    Meta {
        atime: choose(meta.atime, atime),
        mtime: choose(meta.mtime, mtime),
        verifier: meta.verifier.filter(|_| kept),
        ..meta
    }
}

/// All ones means "unchanged" to the system; no user can have that number.
fn check_owner(set: &NewAttributes) -> Result<(), Status> {
    if set.uid == Some(u32::MAX) || set.gid == Some(u32::MAX) { Err(Status::Inval) } else { Ok(()) }
}
