//! REMOVE, RMDIR, RENAME, LINK, and listings (RFC 1813 §3.3.12–3.3.17).

use super::{
    attributes::attributes,
    rights::kind,
    session::{CName, CallPurpose, CephSession, FoundFile, failed, root_of},
};
use crate::{
    Failed, FileAttributes, Linked, Listed, ListedEntry, ListingStart, NameIn, ObjectChange,
    Renamed, StoreResult, Visitor, contract::name::Name,
};
use rustix::io::Errno;
use stag_ceph::{CephDirectory, CephInode, DirectoryEntry, StatMask, UserPerm, Vino};
use stag_protocol::nfs::v3::{CookieVerifier, FileHandle, FileKind, Status};
use std::{ffi::CStr, sync::Arc};

/// Directories are ordered by a hash of the names, the same for all clients.
const VERIFIER: CookieVerifier = [0; 8];

/// A call that removes a name.
type Remove = fn(&CephInode, &CStr, &UserPerm<'_>) -> Result<(), Errno>;

/// EntryDetail of the entries of a listing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CephEntryDetail {
    Name,
    Object,
}

impl CephSession {
    /// Removes a name with `remove`.
    pub(super) fn take_away(
        &self,
        directory: &FileHandle,
        name: Result<Name<'_>, Status>,
        remove: Remove,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        let parent = self.directory(directory, CallPurpose::Change)?;
        let outcome = name.and_then(|name| {
            self.must_be_no_snapshot(&parent, name, Status::Acces)?;
            let gone = self.as_caller(|user| self.entry(&parent, name.octets(), user))?;
            let text = CName::of(name);
            let removed = self.as_caller(|user| remove(&parent.held.inode, text.text(), user));
            removed.map_err(|errno| self.fails_once(&parent.live, errno))?;
            self.let_go_if_gone(&gone);
            Ok(())
        });
        let about = self.wcc(&parent);
        outcome.map(|()| about).map_err(|status| Failed { status, about })
    }

    /// Releases a file that lost its last name: Ceph keeps it as long as a client holds it.
    fn let_go_if_gone(&self, file: &FoundFile) {
        // `look` releases a file that is gone.
        let _ = self.look(Arc::clone(&file.live), Arc::clone(&file.export), Arc::clone(&file.held));
    }

    pub(super) fn rename_entry(
        &self,
        from: NameIn<'_, &FileHandle>,
        to: NameIn<'_, &FileHandle>,
    ) -> StoreResult<Renamed, Renamed> {
        let source = self.directory(from.directory, CallPurpose::Change)?;
        let target = self.directory(to.directory, CallPurpose::Change)?;
        let places = [NameIn::new(&source, from.name), NameIn::new(&target, to.name)];
        let outcome = self.move_entry(&places);
        let about = Renamed { from: self.wcc(&source), to: self.wcc(&target) };
        outcome.map(|()| about).map_err(|status| Failed { status, about })
    }

    fn move_entry(&self, [from, to]: &[NameIn<'_, &FoundFile>; 2]) -> Result<(), Status> {
        let name = Name::of(from.name, Status::Inval, Status::Inval)?;
        let new_name = Name::of(to.name, Status::Inval, Status::Inval)?;
        for (place, name) in [(from, name), (to, new_name)] {
            self.must_be_no_snapshot(place.directory, name, Status::Acces)?;
        }
        if from.directory.export.id != to.directory.export.id {
            return Err(Status::XDev);
        }
        let (source, target) = (from.directory, to.directory);
        // Both are looked up first. POSIX requires a no-op if both are one file, where libcephfs
        // (16.2) loses the name; and a rename that fails there because its source is missing leaves
        // the new name locked in this client.
        let moved = self.as_caller(|user| self.entry(source, from.name, user))?;
        let replaced = match self.as_caller(|user| self.entry(target, to.name, user)) {
            Ok(found) if found.held.vino == moved.held.vino => return Ok(()),
            Ok(found) => Some(found),
            Err(Status::NoEnt | Status::Stale) => None,
            Err(status) => return Err(status),
        };
        let (text, new_text) = (CName::of(name), CName::of(new_name));
        let (old, new) = (&source.held.inode, &target.held.inode);
        let renamed = self.as_caller(|user| old.rename(text.text(), new, new_text.text(), user));
        renamed.map_err(|errno| match (errno, &replaced) {
            (Errno::NOTEMPTY, Some(replaced)) => self.why_not_replaced(source, &moved, replaced),
            _ => self.rename_failed(source, errno),
        })?;
        if let Some(replaced) = replaced {
            self.let_go_if_gone(&replaced);
        }
        Ok(())
    }

    /// The status of a failed rename. If a metadata server refused it because another client
    /// removed the name in between, libcephfs (16.2) blocks lookups of the new name forever: only a
    /// new mount helps.
    fn rename_failed(&self, source: &FoundFile, errno: Errno) -> Status {
        let is_judged_here = matches!(
            errno,
            Errno::ACCESS
                | Errno::PERM
                | Errno::NOTDIR
                | Errno::ISDIR
                | Errno::NOTEMPTY
                | Errno::INVAL
                | Errno::NAMETOOLONG
                | Errno::XDEV
                | Errno::DQUOT
                | Errno::ROFS
        );
        if !is_judged_here {
            self.shared.life.lose(&source.live, "a rename left a name locked in the client");
        }
        self.fails_once(&source.live, errno)
    }

    /// The status for a directory that was not replaced because it has entries. Ceph reports that
    /// also where POSIX requires EISDIR because the source is no directory.
    fn why_not_replaced(
        &self,
        source: &FoundFile,
        moved: &FoundFile,
        replaced: &FoundFile,
    ) -> Status {
        let is_directory = kind(&moved.stat) == FileKind::Directory;
        if is_directory || self.lies_under(source, replaced).unwrap_or(true) {
            return Status::NotEmpty;
        }
        Status::IsDir
    }

    pub(super) fn link_file(
        &self,
        file: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> StoreResult<Linked, Linked> {
        let file = self.resolve(file, CallPurpose::Change)?;
        let parent = self.directory(directory, CallPurpose::Change)?;
        let outcome = self.add_name(&file, &parent, name);
        let about = Linked { file: self.after(&file), directory: self.wcc(&parent) };
        outcome.map(|()| about).map_err(|status| Failed { status, about })
    }

    fn add_name(&self, file: &FoundFile, parent: &FoundFile, name: &[u8]) -> Result<(), Status> {
        let name = Name::of(name, Status::Exist, Status::Exist)?;
        self.must_be_no_snapshot(parent, name, Status::Acces)?;
        if kind(&file.stat) == FileKind::Directory {
            return Err(Status::Inval);
        }
        if file.export.id != parent.export.id {
            return Err(Status::XDev);
        }
        // Pinned and without a name: as on Linux it cannot be linked again.
        if file.stat.links == 0 {
            return Err(Status::Stale);
        }
        let text = CName::of(name);
        let linked =
            self.as_caller(|user| file.held.inode.link(&parent.held.inode, text.text(), user));
        linked.map_err(|errno| self.fails_once(&parent.live, errno))
    }

    pub(super) fn list(
        &self,
        directory: &FileHandle,
        place: ListingStart,
        detail: CephEntryDetail,
        visit: &mut Visitor<'_>,
    ) -> StoreResult<Listed> {
        let found = self.directory(directory, CallPurpose::Look)?;
        let about = failed(Some(self.attributes_of(&found)));
        // RFC 1813 §3.3.16 [1813-82]: a stale cookie or wrong verifier gets NFS3ERR_BAD_COOKIE
        if place.cookie != 0 && place.verifier != VERIFIER {
            return Err(about(Status::BadCookie));
        }
        let open = self.as_caller(|user| found.held.inode.open_directory(user));
        let mut open = open.map_err(|errno| about(self.fails(&found.live, errno)))?;
        open.seek(place.cookie).map_err(|_| about(Status::BadCookie))?;
        let eof = self.list_entries(&found, &mut open, detail, visit).map_err(&about)?;
        let attributes = self.after(&found).ok_or(Status::Jukebox)?;
        Ok(Listed { eof, verifier: VERIFIER, attributes })
    }

    /// Visits entries until none is left or `visit` refuses one; true if none is left.
    fn list_entries(
        &self,
        found: &FoundFile,
        open: &mut CephDirectory,
        detail: CephEntryDetail,
        visit: &mut Visitor<'_>,
    ) -> Result<bool, Status> {
        loop {
            let next =
                open.next(StatMask::INODE).map_err(|errno| self.fails(&found.live, errno))?;
            // RFC 1813 §3.3.16 [1813-81]: eof is TRUE exactly if no entry is left
            let Some(entry) = next else { return Ok(true) };
            if !visit(&self.describe(found, &entry, detail)?) {
                return Ok(false);
            }
        }
    }

    fn describe<'a>(
        &self,
        directory: &FoundFile,
        entry: &DirectoryEntry<'a>,
        detail: CephEntryDetail,
    ) -> Result<ListedEntry<'a>, Status> {
        let DirectoryEntry { name, next, attributes: stat } = *entry;
        let own = directory.held.vino;
        let is_root = own == root_of(&directory.live, &directory.export)?;
        // The parent of an export's root is that root.
        if name == b"." || (name == b".." && is_root) {
            let object = (self.handle(&directory.export, own), self.attributes_of(directory));
            let object = (detail == CephEntryDetail::Object).then_some(object);
            return Ok(ListedEntry { fileid: own.inode, name, cookie: next, kind: None, object });
        }
        // RFC 1813 §3.3.17 [1813-88]: handle and attributes of an entry match LOOKUP or are absent
        let vino = Vino { inode: stat.inode, snapshot: stat.device };
        let is_told = detail == CephEntryDetail::Object && name != b"..";
        let object = if is_told { self.listed_object(directory, vino) } else { None };
        Ok(ListedEntry { fileid: stat.inode, name, cookie: next, kind: Some(kind(&stat)), object })
    }

    /// Handle and attributes of an entry. The attributes are queried: a listing brings the metadata
    /// server's copy, which lacks what another client wrote since it got the file's capabilities.
    fn listed_object(
        &self,
        directory: &FoundFile,
        vino: Vino,
    ) -> Option<(FileHandle, FileAttributes)> {
        let inode = directory.live.mount.inode(vino).ok()?;
        let stat = inode.attributes(StatMask::ALL, &self.root()).ok()?;
        let is_there = stat.links > 0 || vino.snapshot != Vino::LIVE;
        let object =
            || (self.handle(&directory.export, vino), attributes(&stat, directory.export.fsid));
        is_there.then(object)
    }
}
