//! Inodes and directories.

use crate::{FileAttributes, FileTime};
use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
    rc::Rc,
};

use stag_pools::Extent;
use stag_protocol::nfs::{
    v3::{AttributeOctets, CreateVerifier, DeviceNumber, FileKind, Status},
    v4::StatOctets,
};

use super::{
    content::Content,
    handle::{HandleClaim, HandleTag, Handles, InodeId},
    stat_cache::StatCache,
    xattrs::Xattrs,
};

/// The cookies of `.` and `..`; the entries' cookies follow.
pub(super) const COOKIE_ITSELF: u64 = 1;
pub(super) const COOKIE_ABOVE: u64 = 2;

/// Names one object can have.
pub(super) const LINKS_MAX: u32 = 65_000;

/// Metadata of an object: everything but its content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meta {
    /// Number of the export that the object belongs to.
    pub export: u32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Number of its pins: the object outlives its last name.
    pub pins: u32,
    pub atime: FileTime,
    pub mtime: FileTime,
    pub ctime: FileTime,
    /// Time of creation, in nanoseconds since 1970.
    pub born_ns: u64,
    /// Verifier by which an exclusive CREATE is recognised, until its client sets the times.
    pub verifier: Option<CreateVerifier>,
}

/// Kind of an object, with the content of that kind.
#[derive(Debug)]
pub(super) enum ObjectBody {
    Regular(Content),
    Directory(Directory),
    /// Its target.
    Symlink(Extent),
    Fifo,
    Socket,
    /// Only a number: the client's host decides what it means.
    Block(DeviceNumber),
    Character(DeviceNumber),
}

impl ObjectBody {
    pub const fn kind(&self) -> FileKind {
        match self {
            Self::Regular(_) => FileKind::Regular,
            Self::Directory(_) => FileKind::Directory,
            Self::Symlink(_) => FileKind::Symlink,
            Self::Fifo => FileKind::Fifo,
            Self::Socket => FileKind::Socket,
            Self::Block(_) => FileKind::Block,
            Self::Character(_) => FileKind::Character,
        }
    }

    /// The status for reading or writing an object without content.
    const fn without_content(&self) -> Status {
        match self {
            Self::Directory(_) => Status::IsDir,
            // RFC 1813 §3.3.6 [1813-38]: a READ of a special file or a link gets NFS3ERR_INVAL
            _ => Status::Inval,
        }
    }
}

/// An object.
#[derive(Debug)]
pub(super) struct Inode {
    pub meta: Meta,
    pub body: ObjectBody,
    /// Most have none.
    pub xattrs: Option<Box<Xattrs>>,
}

impl Inode {
    /// Creates an inode without extended attributes.
    pub const fn new(meta: Meta, body: ObjectBody) -> Self {
        Self { meta, body, xattrs: None }
    }
}

/// A name in a directory, and its inode.
#[derive(Debug)]
struct TreeEntry {
    name: Rc<[u8]>,
    inode: InodeId,
}

/// Names in the order of their cookies. A cookie is never reused, so names that come and go do not
/// move the others.
#[derive(Debug)]
pub(super) struct Directory {
    /// The parent directory; an export's root is its own.
    pub above: InodeId,
    cookies: HashMap<Rc<[u8]>, u64>,
    entries: BTreeMap<u64, TreeEntry>,
    next_cookie: u64,
}

impl Directory {
    pub fn new(above: InodeId) -> Self {
        Self {
            above,
            cookies: HashMap::new(),
            entries: BTreeMap::new(),
            next_cookie: COOKIE_ABOVE + 1,
        }
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn find(&self, name: &[u8]) -> Option<InodeId> {
        let cookie = self.cookies.get(name)?;
        self.entries.get(cookie).map(|entry| entry.inode)
    }

    /// Gives `inode` a name; returns the inode that had it.
    pub fn put(&mut self, name: &[u8], inode: InodeId) -> Option<InodeId> {
        let replaced = self.take(name);
        let name: Rc<[u8]> = name.into();
        self.cookies.insert(Rc::clone(&name), self.next_cookie);
        self.entries.insert(self.next_cookie, TreeEntry { name, inode });
        self.next_cookie += 1;
        replaced
    }

    pub fn take(&mut self, name: &[u8]) -> Option<InodeId> {
        let cookie = self.cookies.remove(name)?;
        self.entries.remove(&cookie).map(|entry| entry.inode)
    }

    /// Returns true if this directory has issued the cookie.
    pub fn knows(&self, cookie: u64) -> bool {
        cookie < self.next_cookie
    }

    /// The entries after `cookie`: cookie, name, inode.
    pub fn behind(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], InodeId)> {
        let entries = self.entries.range((Bound::Excluded(cookie), Bound::Unbounded));
        entries.map(|(cookie, entry)| (*cookie, &*entry.name, entry.inode))
    }
}

/// An inode in the table.
#[derive(Debug)]
pub(super) struct PlacedInode {
    number: u64,
    /// Tag of its handle, valid as long as the inode exists.
    tag: HandleTag,
    inode: Inode,
    /// Its encoded attributes, if they are current.
    octets: Option<AttributeOctets>,
}

/// All inodes, up to a limit. The table grows as inodes are made.
#[derive(Debug)]
pub(super) struct Inodes {
    places: Vec<Option<PlacedInode>>,
    stats: StatCache,
    free: Vec<u32>,
    next_number: u64,
    limit: usize,
}

impl Inodes {
    pub fn new(limit: usize) -> Self {
        Self {
            places: Vec::new(),
            stats: StatCache::new(),
            free: Vec::new(),
            next_number: 1,
            limit,
        }
    }

    /// Maximum number of inodes, and the number that can still be made.
    pub fn room(&self) -> (usize, usize) {
        (self.limit, self.limit - (self.places.len() - self.free.len()))
    }

    /// The id of the inode that `add` makes next.
    ///
    /// # Errors
    /// [`Status::NoSpc`] at the limit.
    pub fn next(&self) -> Result<InodeId, Status> {
        let index = match self.free.last() {
            Some(index) => *index,
            None if self.places.len() < self.limit => {
                u32::try_from(self.places.len()).map_err(|_| Status::NoSpc)?
            }
            None => return Err(Status::NoSpc),
        };
        Ok(InodeId { index, number: self.next_number })
    }

    /// Adds an inode to the table, and makes its handle.
    ///
    /// # Errors
    /// [`Status::NoSpc`] at the limit.
    pub fn add(&mut self, handles: &Handles, inode: Inode) -> Result<InodeId, Status> {
        let id = self.next()?;
        self.next_number += 1;
        let tag = handles.tag(id);
        let place = Some(PlacedInode { number: id.number, tag, inode, octets: None });
        if self.free.pop().is_some() {
            *self.places.get_mut(id.index as usize).expect("a free place is in the table") = place;
        } else {
            self.places.push(place);
        }
        Ok(id)
    }

    /// Removes an inode from the table.
    pub fn remove(&mut self, id: InodeId) -> Option<Inode> {
        let place = self.places.get_mut(id.index as usize)?;
        let place = place.take_if(|place| place.number == id.number)?;
        self.free.push(id.index);
        Some(place.inode)
    }

    /// The inode whose handle this is; `None` for any invalid handle.
    pub fn claimed(&self, claim: HandleClaim) -> Option<&Inode> {
        let place = self.place(claim.inode)?;
        // RFC 1813 §2.6 [1813-7]: a handle that is not ours gets NFS3ERR_BADHANDLE
        place.tag.is(claim.tag).then_some(&place.inode)
    }

    /// The parts of an inode's handle.
    ///
    /// # Errors
    /// [`Status::Stale`] when it is gone.
    pub fn claim(&self, id: InodeId) -> Result<HandleClaim, Status> {
        let place = self.place(id).ok_or(Status::Stale)?;
        Ok(HandleClaim { inode: id, tag: place.tag })
    }

    /// # Errors
    /// [`Status::Stale`] when it is gone.
    pub fn get(&self, id: InodeId) -> Result<&Inode, Status> {
        self.place(id).map(|place| &place.inode).ok_or(Status::Stale)
    }

    /// An inode to change; drops its encoded attributes.
    ///
    /// # Errors
    /// [`Status::Stale`] when it is gone.
    pub fn get_mut(&mut self, id: InodeId) -> Result<&mut Inode, Status> {
        self.stats.forget(id);
        let place = self.place_mut(id)?;
        place.octets = None;
        Ok(&mut place.inode)
    }

    /// Records a read of an inode's content.
    ///
    /// # Errors
    /// [`Status::Stale`] when it is gone.
    pub fn note_access(&mut self, id: InodeId, now: FileTime) -> Result<(), Status> {
        let place = self.place_mut(id)?;
        place.inode.meta.atime = now;
        if let Some(octets) = &mut place.octets {
            octets.set_atime(now.into());
        }
        self.stats.set_time_access(id, now.into());
        Ok(())
    }

    /// The encoded attributes of an inode; calls `make` if they are outdated.
    ///
    /// # Errors
    /// [`Status::Stale`] when it is gone.
    pub fn octets(
        &mut self,
        id: InodeId,
        make: impl Fn(&Inode) -> FileAttributes,
    ) -> Result<AttributeOctets, Status> {
        let place = self.place_mut(id)?;
        let fresh = || AttributeOctets::from(&make(&place.inode));
        debug_assert!(
            place.octets.is_none_or(|octets| octets == fresh()),
            "attributes that are kept are those of the inode"
        );
        Ok(*place.octets.get_or_insert_with(fresh))
    }

    /// The same for version 4.
    ///
    /// # Errors
    /// [`Status::Stale`] when it is gone.
    pub fn stat_octets(
        &mut self,
        id: InodeId,
        make: impl Fn(&Inode) -> FileAttributes,
    ) -> Result<StatOctets, Status> {
        let Self { places, stats, .. } = self;
        let place = places.get(id.index as usize).and_then(Option::as_ref);
        let place = place.filter(|place| place.number == id.number).ok_or(Status::Stale)?;
        let fresh = || StatOctets::from(&make(&place.inode));
        let octets = stats.get_or_make(id, fresh);
        debug_assert_eq!(*octets, fresh(), "attributes that are kept are those of the inode");
        Ok(*octets)
    }

    fn place_mut(&mut self, id: InodeId) -> Result<&mut PlacedInode, Status> {
        let place = self.places.get_mut(id.index as usize).and_then(Option::as_mut);
        place.filter(|place| place.number == id.number).ok_or(Status::Stale)
    }

    fn place(&self, id: InodeId) -> Option<&PlacedInode> {
        // RFC 1813 §2.6 [1813-5]: equal handles name one object, also if an inode is reused
        let place = self.places.get(id.index as usize)?.as_ref();
        place.filter(|place| place.number == id.number)
    }
}

impl Inode {
    /// All attributes, of an object on the file system `fsid`.
    pub fn attributes(&self, id: InodeId, fsid: u64) -> FileAttributes {
        let meta = &self.meta;
        let (size, used) = match &self.body {
            ObjectBody::Regular(content) => (content.size(), content.used()),
            ObjectBody::Symlink(target) => (target.len() as u64, target.capacity() as u64),
            // One unit for each entry, so that a client sees changes in the size.
            ObjectBody::Directory(directory) => (32 * (2 + directory.len() as u64), 0),
            ObjectBody::Fifo
            | ObjectBody::Socket
            | ObjectBody::Block(_)
            | ObjectBody::Character(_) => (0, 0),
        };
        let device = match self.body {
            ObjectBody::Block(device) | ObjectBody::Character(device) => device,
            _ => DeviceNumber::default(),
        };
        FileAttributes {
            kind: self.body.kind(),
            mode: meta.mode,
            nlink: meta.nlink,
            uid: meta.uid,
            gid: meta.gid,
            size,
            used,
            device,
            fsid,
            fileid: id.number,
            atime: meta.atime,
            mtime: meta.mtime,
            ctime: meta.ctime,
            birth: Some(FileTime::of_nanos(meta.born_ns)),
            // No two changes have the same time, even if the clock goes back.
            change: meta.ctime.wrapping_nanos(),
        }
    }

    /// # Errors
    /// [`Status::NotDir`].
    pub fn directory(&self) -> Result<&Directory, Status> {
        if let ObjectBody::Directory(directory) = &self.body {
            Ok(directory)
        } else {
            Err(Status::NotDir)
        }
    }

    /// # Errors
    /// [`Status::NotDir`].
    pub fn directory_mut(&mut self) -> Result<&mut Directory, Status> {
        if let ObjectBody::Directory(directory) = &mut self.body {
            Ok(directory)
        } else {
            Err(Status::NotDir)
        }
    }

    /// # Errors
    /// As [`Inode::content_mut`].
    pub fn content(&self) -> Result<&Content, Status> {
        match &self.body {
            ObjectBody::Regular(content) => Ok(content),
            other => Err(other.without_content()),
        }
    }

    /// # Errors
    /// [`Status::IsDir`] for a directory, [`Status::Inval`] for any other object but a regular
    /// file.
    pub fn content_mut(&mut self) -> Result<&mut Content, Status> {
        match &mut self.body {
            ObjectBody::Regular(content) => Ok(content),
            other => Err(other.without_content()),
        }
    }
}
