//! [`Store`] and its procedures for [`Memory`].

use stag_protocol::nfs::{
    v3::{
        Access, AttributeOctets, CookieVerifier, FileHandle, FileKind, FsInfo, FsStat, PathConf,
        StableHow, Status, Time,
    },
    v4::StatOctets,
};

use super::{
    Intent, Memory,
    handle::InodeId,
    tree::{COOKIE_ABOVE, COOKIE_ITSELF, LINKS_MAX, ObjectBody},
};
use crate::{
    Caller, CommitDone, CreateMode, DeviceNode, Failed, FileAttributes, FileTime, FoundObject,
    Lender, Linked, Listed, ListedEntry, ListingStart, MadeObject, NameIn, NewAttributes,
    ObjectChange, Origin, Procedures, ReadDone, ReadlinkDone, Renamed, SetDone, Store, StoreResult,
    TRANSFER_MAX, Visitor, WriteDone, WritePayload,
    contract::name::{Meaning, NAME_MAX, Name},
};

/// A directory's cookies stay valid as long as its handle.
const VERIFIER: CookieVerifier = [0; 8];
/// Bytes of directory entries that a client should request at once.
const READDIR_PREFERRED: u32 = 32 << 10;

type Object = (FileHandle, FileAttributes);

impl Memory {
    pub(super) fn object(&self, id: InodeId) -> Result<Object, Status> {
        Ok((self.handle(id)?, self.attributes(id)?))
    }

    pub(super) fn above(&self, directory: InodeId) -> Result<InodeId, Status> {
        Ok(self.inodes.get(directory)?.directory()?.above)
    }

    fn found(&self, directory: InodeId, name: &[u8]) -> Result<Object, Status> {
        match Meaning::of(name)? {
            Meaning::Entry(name) => self.object(self.entry(directory, name)?),
            Meaning::Itself => self.object(directory),
            Meaning::Above => self.object(self.above(directory)?),
        }
    }

    /// An operation that changes one name of a directory.
    fn take_away(
        &mut self,
        directory: &FileHandle,
        name: Result<Name<'_>, Status>,
        take: impl FnOnce(&mut Self, InodeId, Name<'_>) -> Result<(), Status>,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        let parent = self.directory(directory, Intent::Change)?;
        let before = self.attributes(parent)?;
        let outcome = name.and_then(|name| take(self, parent, name));
        self.changed(parent, &before, outcome).map(|((), wcc)| wcc)
    }

    fn list(
        &self,
        directory: &FileHandle,
        place: ListingStart,
        visit: &mut dyn FnMut(&Self, InodeId, ListedEntry<'_>) -> Result<bool, Status>,
    ) -> StoreResult<Listed> {
        let id = self.directory(directory, Intent::Look)?;
        let attributes = self.attributes(id)?;
        let listed = self.list_entries(id, place, visit);
        match listed {
            Ok(eof) => Ok(Listed { eof, verifier: VERIFIER, attributes }),
            Err(status) => Err(Failed { status, about: Some(attributes) }),
        }
    }

    fn list_entries(
        &self,
        id: InodeId,
        place: ListingStart,
        visit: &mut dyn FnMut(&Self, InodeId, ListedEntry<'_>) -> Result<bool, Status>,
    ) -> Result<bool, Status> {
        let directory = self.inodes.get(id)?.directory()?;
        // RFC 1813 §3.3.16 [1813-82]: a stale cookie or wrong verifier gets NFS3ERR_BAD_COOKIE
        if !directory.knows(place.cookie) || (place.cookie != 0 && place.verifier != VERIFIER) {
            return Err(Status::BadCookie);
        }
        let dots = [(COOKIE_ITSELF, &b"."[..], id), (COOKIE_ABOVE, b"..", directory.above)];
        let dots = dots.into_iter().filter(|(cookie, ..)| *cookie > place.cookie);
        // RFC 1813 §3.3.16 [1813-83]: an entry that stays is listed exactly once
        for (cookie, name, id) in dots.chain(directory.behind(place.cookie.max(COOKIE_ABOVE))) {
            let kind = Some(self.inodes.get(id)?.body.kind());
            // RFC 1813 §3.3.16 [1813-84]: no entry has file number zero
            let entry = ListedEntry { fileid: id.number, name, cookie, kind, object: None };
            if !visit(self, id, entry)? {
                return Ok(false);
            }
        }
        // RFC 1813 §3.3.16 [1813-81]: eof is TRUE exactly if no entry is left
        Ok(true)
    }

    /// Adds an object's attributes to information on its file system.
    fn known<T>(&self, object: &FileHandle, about: T) -> StoreResult<(T, FileAttributes)> {
        let id = self.resolve(object, Intent::Look)?;
        Ok((about, self.attributes(id)?))
    }
}

impl Procedures for Memory {
    fn act_as(&mut self, caller: &Caller) {
        self.set_caller(&caller.user);
    }

    fn mount(&mut self, path: &[u8]) -> Result<FileHandle, Status> {
        let mut names = path.split(|octet| *octet == b'/').filter(|name| !name.is_empty());
        let name = names.next().ok_or(Status::NoEnt)?;
        let export = self.exports.iter().find(|export| export.name.as_bytes() == name);
        let mut handle = self.handle(export.ok_or(Status::NoEnt)?.root)?;
        for name in names {
            let directory = self.directory(&handle, Intent::Look)?;
            handle = self.found(directory, name)?.0;
        }
        self.directory(&handle, Intent::Look)?;
        Ok(handle)
    }

    fn getattr(&mut self, file: &FileHandle) -> Result<FileAttributes, Status> {
        let id = self.resolve(file, Intent::Look)?;
        self.attributes(id)
    }

    fn getattr_octets(&mut self, file: &FileHandle) -> Result<AttributeOctets, Status> {
        let id = self.resolve(file, Intent::Look)?;
        self.attribute_octets(id)
    }

    fn stat_octets(&mut self, file: &FileHandle) -> Result<StatOctets, Status> {
        let id = self.resolve(file, Intent::Look)?;
        self.stat_octets(id)
    }

    fn setattr(
        &mut self,
        file: &FileHandle,
        set: &NewAttributes,
        guard: Option<FileTime>,
    ) -> StoreResult<SetDone, SetDone> {
        let id = self.resolve(file, Intent::Change)?;
        let before = self.attributes(id)?;
        // RFC 1813 §3.3.2 [1813-21]: a guard that differs from ctime gets NFS3ERR_NOT_SYNC
        let outcome = if guard.is_some_and(|ctime| ctime != before.ctime.in_32_bits()) {
            Err(Status::NotSync)
        } else {
            self.apply(id, set)
        };
        SetDone::of(set, self.changed(id, &before, outcome).map(|((), about)| about))
    }

    fn lookup(&mut self, directory: &FileHandle, name: &[u8]) -> StoreResult<FoundObject> {
        let id = self.directory(directory, Intent::Look)?;
        let above = Some(self.attributes(id)?);
        match self.found(id, name) {
            // RFC 1813 §3.3.3 [1813-25]: a LOOKUP returns object and directory attributes
            Ok((handle, attributes)) => Ok(FoundObject { handle, attributes, directory: above }),
            Err(status) => Err(Failed { status, about: above }),
        }
    }

    /// Every caller has every right that the kind of the object allows. Exceptions: no changes on a
    /// read-only export, and execution only if some class of users has it.
    fn access(
        &mut self,
        file: &FileHandle,
        asked: Access,
    ) -> StoreResult<(Access, FileAttributes)> {
        let id = self.resolve(file, Intent::Look)?;
        let attributes = self.attributes(id)?;
        let change = Access::MODIFY | Access::EXTEND;
        let (look, change) = match attributes.kind {
            FileKind::Directory => (Access::READ | Access::LOOKUP, change | Access::DELETE),
            _ if attributes.mode & 0o111 != 0 => (Access::READ | Access::EXECUTE, change),
            _ => (Access::READ, change),
        };
        let is_read_only = self.export_of(self.inodes.get(id)?).read_only;
        // RFC 1813 §3.3.4 [1813-31]: an ACCESS reply holds for this credential and export
        let rights = if is_read_only { look } else { look | change };
        let all = [
            Access::READ,
            Access::LOOKUP,
            Access::MODIFY,
            Access::EXTEND,
            Access::DELETE,
            Access::EXECUTE,
        ];
        // RFC 1813 §3.3.4 [1813-30]: an ACCESS reply grants only rights that were asked for
        let both =
            all.into_iter().filter(|right| asked.contains(*right) && rights.contains(*right));
        // RFC 1813 §3.3.4 [1813-29]: an ACCESS check that is made gets NFS3_OK, whatever it finds
        Ok((both.fold(Access::NONE, |granted, right| granted | right), attributes))
    }

    fn readlink(&mut self, _lender: &Lender<'_>, file: &FileHandle) -> StoreResult<ReadlinkDone> {
        let id = self.resolve(file, Intent::Look)?;
        let attributes = self.attributes(id)?;
        match &self.inodes.get(id)?.body {
            ObjectBody::Symlink(target) => Ok(ReadlinkDone { target: target.clone(), attributes }),
            // RFC 1813 §3.3.5 [1813-32]: a READLINK of anything but a link gets NFS3ERR_INVAL
            _ => Err(Failed { status: Status::Inval, about: Some(attributes) }),
        }
    }

    fn read(
        &mut self,
        _lender: &Lender<'_>,
        file: &FileHandle,
        offset: u64,
        count: u32,
    ) -> StoreResult<ReadDone> {
        let id = self.resolve(file, Intent::Look)?;
        let now = self.now();
        let content = match self.inodes.get(id)?.content() {
            Ok(content) => content,
            Err(status) => return Err(Failed { status, about: self.attributes(id).ok() }),
        };
        // RFC 1813 §3.3.6 [1813-36]: a READ at or past the end returns no octets and eof
        let octets = content.read(&self.space, offset, count);
        // RFC 1813 §3.3.6 [1813-35]: eof is TRUE exactly if the octets reach the end of file
        let eof = offset.saturating_add(octets.len() as u64) >= content.size();
        self.inodes.note_access(id, now)?;
        let attributes = self.attribute_octets(id)?;
        Ok(ReadDone { data: octets, is_cut: false, origin: Origin::Memory, eof, attributes })
    }

    fn write(
        &mut self,
        file: &FileHandle,
        offset: u64,
        data: WritePayload<'_>,
        stable: StableHow,
    ) -> StoreResult<WriteDone, ObjectChange> {
        let id = self.resolve(file, Intent::Change)?;
        let before = self.attributes(id)?;
        let now = self.now();
        let inode = self.inodes.get_mut(id)?;
        let end = offset.checked_add(data.octets.len() as u64);
        let is_too_big = end.is_none_or(|end| i64::try_from(end).is_err());
        let written = match inode.content_mut() {
            // RFC 1813 §3.3.7 [1813-51]: a WRITE past the largest offset gets NFS3ERR_FBIG
            Ok(_) if is_too_big => Err(Status::FBig),
            Ok(_) if data.octets.is_empty() => Ok(0),
            // RFC 1813 §3.3.7 [1813-48]: a partial WRITE succeeds with the count that it wrote
            Ok(content) => content.write(&self.space, offset, &data),
            Err(status) => Err(status),
        };
        // RFC 1813 §3.3.7 [1813-49]: an empty WRITE leaves mtime unchanged
        if written.is_ok_and(|count| count > 0) {
            (inode.meta.mtime, inode.meta.ctime) = (now, now);
            self.drop_set_id(id)?;
        }
        let (count, file) = self.changed(id, &before, written)?;
        // RFC 1813 §3.3.7 [1813-43]: committed is never weaker than the stability asked for
        Ok(WriteDone { count, committed: stable, verifier: self.verifier(), file })
    }

    /// A no-op: written data lasts as long as this process, and the verifier shows its end.
    fn commit(&mut self, file: &FileHandle) -> StoreResult<CommitDone, ObjectChange> {
        let id = self.resolve(file, Intent::Change)?;
        let before = self.attributes(id)?;
        let outcome = self.inodes.get_mut(id)?.content_mut().map(|_| ());
        let ((), file) = self.changed(id, &before, outcome)?;
        // RFC 1813 §3.3.21 [1813-98]: a COMMIT returns the verifier that holds after its sync
        Ok(CommitDone { verifier: self.verifier(), file })
    }

    fn create(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        how: &CreateMode,
    ) -> StoreResult<MadeObject, ObjectChange> {
        let (asked, mut is_new) = (how.attributes(), true);
        let made = self.make(directory, name, asked, |memory, parent, name| {
            let created = memory.create_in(parent, name, how)?;
            is_new = created.is_new;
            Ok(created.id)
        })?;
        match how {
            CreateMode::Unchecked(set) if !is_new => Ok(made.found(set)),
            _ => Ok(MadeObject { is_new, ..made }),
        }
    }

    fn mkdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange> {
        self.make(directory, name, set, |memory, parent, name| memory.mkdir_in(parent, name, set))
    }

    fn symlink(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        target: &[u8],
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange> {
        self.make(directory, name, set, |memory, parent, name| {
            memory.symlink_in(parent, name, target, set)
        })
    }

    fn mknod(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        node: DeviceNode,
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange> {
        self.make(directory, name, set, |memory, parent, name| {
            memory.mknod_in(parent, name, node, set)
        })
    }

    fn remove(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
    ) -> StoreResult<ObjectChange, ObjectChange> {
        self.take_away(directory, Name::of(name, Status::Acces, Status::Acces), Self::remove_from)
    }

    fn rmdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
    ) -> StoreResult<ObjectChange, ObjectChange> {
        // RFC 1813 §3.3.13 [1813-69]: a RMDIR of . gets NFS3ERR_INVAL, of .. NFS3ERR_EXIST
        self.take_away(directory, Name::of(name, Status::Inval, Status::Exist), Self::rmdir_from)
    }

    fn rename(
        &mut self,
        from: NameIn<'_, &FileHandle>,
        to: NameIn<'_, &FileHandle>,
    ) -> StoreResult<Renamed, Renamed> {
        let source = self.directory(from.directory, Intent::Change)?;
        let target = self.directory(to.directory, Intent::Change)?;
        let before = (self.attributes(source)?, self.attributes(target)?);
        let outcome =
            self.rename_entry(NameIn::new(source, from.name), NameIn::new(target, to.name));
        let about = Renamed { from: self.wcc(source, &before.0), to: self.wcc(target, &before.1) };
        outcome.map(|()| about).map_err(|status| Failed { status, about })
    }

    fn link(
        &mut self,
        file: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> StoreResult<Linked, Linked> {
        let id = self.resolve(file, Intent::Change)?;
        let parent = self.directory(directory, Intent::Change)?;
        let before = self.attributes(parent)?;
        let outcome = self.link_entry(id, parent, name);
        let about = Linked { file: self.attributes(id).ok(), directory: self.wcc(parent, &before) };
        outcome.map(|()| about).map_err(|status| Failed { status, about })
    }

    fn readdir(
        &mut self,
        directory: &FileHandle,
        place: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> StoreResult<Listed> {
        self.list(directory, place, &mut |_, _, entry| Ok(visit(&entry)))
    }

    /// `..` is listed without handle and attributes, except at an export's root.
    fn readdirplus(
        &mut self,
        directory: &FileHandle,
        place: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> StoreResult<Listed> {
        let itself = self.directory(directory, Intent::Look)?;
        self.list(directory, place, &mut |memory, id, entry| {
            let is_above = entry.name == b".." && id != itself;
            // RFC 1813 §3.3.17 [1813-88]: handle and attributes of an entry match LOOKUP or are
            // absent
            let object = if is_above { None } else { Some(memory.object(id)?) };
            Ok(visit(&ListedEntry { object, ..entry }))
        })
    }

    fn fsstat(&mut self, object: &FileHandle) -> StoreResult<(FsStat, FileAttributes)> {
        // RFC 1813 §3.3.18 [1813-89]: an FSSTAT counts octets and files: all, free, available
        let (total_octets, free_octets, available_octets) = self.space.octets();
        let (total, free) = self.inodes.room();
        let fsstat = FsStat {
            total_octets,
            free_octets,
            available_octets,
            total_files: total as u64,
            free_files: free as u64,
            available_files: free as u64,
            unchanged_seconds: 0,
        };
        self.known(object, fsstat)
    }

    fn fsinfo(&mut self, object: &FileHandle) -> StoreResult<(FsInfo, FileAttributes)> {
        let fsinfo = FsInfo {
            read_max: TRANSFER_MAX,
            // RFC 1813 §3.3.19 [1813-90]: the preferred sizes are the largest ones
            read_preferred: TRANSFER_MAX,
            read_multiple: 4096,
            write_max: TRANSFER_MAX,
            write_preferred: TRANSFER_MAX,
            write_multiple: 4096,
            readdir_preferred: READDIR_PREFERRED,
            file_size_max: i64::MAX as u64,
            // RFC 1813 §3.3.19 [1813-91]: times are kept to the accuracy of time_delta
            time_delta: Time { seconds: 0, nanos: 1 },
            // RFC 1813 §3.3.19 [1813-92]: the FSINFO properties describe what is supported
            properties: FsInfo::LINK | FsInfo::SYMLINK | FsInfo::HOMOGENEOUS | FsInfo::CAN_SET_TIME,
        };
        self.known(object, fsinfo)
    }

    fn pathconf(&mut self, object: &FileHandle) -> StoreResult<(PathConf, FileAttributes)> {
        let pathconf = PathConf {
            link_max: LINKS_MAX,
            name_max: NAME_MAX as u32,
            // RFC 1813 §3.3.20 [1813-95]: names are never cut, and their case is kept and compared
            no_trunc: true,
            // RFC 1813 §3.3.20 [1813-96]: chown_restricted says if only root gives files away
            chown_restricted: false,
            case_insensitive: false,
            case_preserving: true,
        };
        self.known(object, pathconf)
    }
}
