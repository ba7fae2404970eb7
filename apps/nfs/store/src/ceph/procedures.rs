//! The procedures of NFS on a file system of Ceph.

use super::{
    names::CephEntryDetail,
    rights::granted,
    session::{CallPurpose, CephSession, FoundFile, failed, root_of},
};
use crate::{
    Caller, CommitDone, CreateMode, DeviceNode, FileAttributes, FileTime, FillRoom, FilledLink,
    FilledRead, FoundObject, Lender, Linked, Listed, ListingStart, MadeObject, NameIn,
    NewAttributes, ObjectChange, Origin, Procedures, ReadDone, ReadlinkDone, Renamed, SetDone,
    StoreResult, Visitor, WriteDone, WritePayload, contract::name::Name,
};
use stag_ceph::CephInode;
use stag_engine::Extents;
use stag_protocol::nfs::v3::{
    Access, AttributeOctets, FileHandle, FileKind, FsInfo, FsStat, PATH_MAX, PathConf, StableHow,
    Status,
};
use std::sync::Arc;

impl CephSession {
    fn mounted(&self, path: &[u8]) -> Result<FoundFile, Status> {
        let mut names = path.split(|octet| *octet == b'/').filter(|name| !name.is_empty());
        let name = names.next().ok_or(Status::NoEnt)?;
        let mut exports = self.shared.exports.iter();
        let export = exports.find(|export| export.name.as_bytes() == name);
        let export = export.ok_or(Status::NoEnt)?;
        let live = self.shared.life.current()?;
        let root = root_of(&live, export)?;
        let held = live.table.hold(&live.mount, root).map_err(|errno| self.fails(&live, errno))?;
        let mut found = self.look(Arc::clone(&live), Arc::clone(export), held)?;
        for name in names {
            if self.attributes_of(&found).kind != FileKind::Directory {
                return Err(Status::NotDir);
            }
            found = self.entry(&found, name, &self.root())?;
        }
        if self.attributes_of(&found).kind != FileKind::Directory {
            return Err(Status::NotDir);
        }
        Ok(found)
    }
}

impl FillRoom for CephSession {
    fn fill_read(
        &mut self,
        file: &FileHandle,
        offset: u64,
        room: &mut [u8],
    ) -> StoreResult<FilledRead> {
        self.read_to(file, offset, room)
    }

    fn fill_link(&mut self, link: &FileHandle, room: &mut [u8]) -> StoreResult<FilledLink> {
        self.read_link_to(link, room)
    }
}

impl Procedures for CephSession {
    fn act_as(&mut self, caller: &Caller) {
        self.set_caller(caller);
    }

    fn mount(&mut self, path: &[u8]) -> Result<FileHandle, Status> {
        let found = self.mounted(path)?;
        Ok(self.handle(&found.export, found.held.vino))
    }

    fn getattr(&mut self, file: &FileHandle) -> Result<FileAttributes, Status> {
        let found = self.resolve(file, CallPurpose::Look)?;
        Ok(self.attributes_of(&found))
    }

    fn setattr(
        &mut self,
        file: &FileHandle,
        set: &NewAttributes,
        guard: Option<FileTime>,
    ) -> StoreResult<SetDone, SetDone> {
        SetDone::of(set, self.set_attributes(file, set, guard))
    }

    fn lookup(&mut self, directory: &FileHandle, name: &[u8]) -> StoreResult<FoundObject> {
        let parent = self.directory(directory, CallPurpose::Look)?;
        let above = Some(self.attributes_of(&parent));
        let found = self.as_caller(|user| self.entry(&parent, name, user));
        let found = found.map_err(failed(above))?;
        // RFC 1813 §3.3.3 [1813-25]: a LOOKUP returns object and directory attributes
        let handle = self.handle(&found.export, found.held.vino);
        Ok(FoundObject { handle, attributes: self.attributes_of(&found), directory: above })
    }

    fn access(
        &mut self,
        file: &FileHandle,
        asked: Access,
    ) -> StoreResult<(Access, FileAttributes)> {
        let found = self.resolve(file, CallPurpose::Look)?;
        let attributes = self.attributes_of(&found);
        let rights = self.rights_of(&found).map_err(failed(Some(attributes)))?;
        let rights = granted(&found.stat, rights, found.export.read_only);
        // RFC 1813 §3.3.4 [1813-30]: an ACCESS reply grants only rights that were asked for
        // RFC 1813 §3.3.4 [1813-29]: an ACCESS check that is made gets NFS3_OK, whatever it finds
        Ok((Access(asked.0 & rights.0), attributes))
    }

    fn readlink(&mut self, lender: &Lender<'_>, file: &FileHandle) -> StoreResult<ReadlinkDone> {
        let mut target = lender(PATH_MAX).ok_or(Status::Jukebox)?;
        let room = target.spare_mut().get_mut(..PATH_MAX).ok_or(Status::Jukebox)?;
        let done = self.read_link_to(file, room)?;
        target.extend(done.count as usize);
        Ok(ReadlinkDone { target: target.freeze(), attributes: done.attributes })
    }

    fn read(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        offset: u64,
        count: u32,
    ) -> StoreResult<ReadDone> {
        let mut octets = lender(count as usize).ok_or(Status::Jukebox)?;
        let room = octets.spare_mut().get_mut(..count as usize).ok_or(Status::Jukebox)?;
        let FilledRead { count, eof, attributes } = self.read_to(file, offset, room)?;
        octets.extend(count as usize);
        Ok(ReadDone {
            data: Extents::from(octets.freeze()),
            is_cut: false,
            origin: Origin::Unknown,
            eof,
            attributes: AttributeOctets::from(&attributes),
        })
    }

    fn write(
        &mut self,
        file: &FileHandle,
        offset: u64,
        data: WritePayload<'_>,
        stable: StableHow,
    ) -> StoreResult<WriteDone, ObjectChange> {
        self.write_from(file, offset, data.octets, stable)
    }

    fn commit(&mut self, file: &FileHandle) -> StoreResult<CommitDone, ObjectChange> {
        self.commit_file(file)
    }

    fn create(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        how: &CreateMode,
    ) -> StoreResult<MadeObject, ObjectChange> {
        self.create_file(directory, name, how)
    }

    fn mkdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange> {
        self.make_directory(directory, name, set)
    }

    fn symlink(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        target: &[u8],
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange> {
        self.make_symlink(directory, name, target, set)
    }

    fn mknod(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        node: DeviceNode,
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange> {
        self.make_special(directory, name, node, set)
    }

    fn remove(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
    ) -> StoreResult<ObjectChange, ObjectChange> {
        let name = Name::of(name, Status::Acces, Status::Acces);
        self.take_away(directory, name, CephInode::unlink)
    }

    fn rmdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
    ) -> StoreResult<ObjectChange, ObjectChange> {
        // RFC 1813 §3.3.13 [1813-69]: a RMDIR of . gets NFS3ERR_INVAL, of .. NFS3ERR_EXIST
        let name = Name::of(name, Status::Inval, Status::Exist);
        self.take_away(directory, name, CephInode::remove_directory)
    }

    fn rename(
        &mut self,
        from: NameIn<'_, &FileHandle>,
        to: NameIn<'_, &FileHandle>,
    ) -> StoreResult<Renamed, Renamed> {
        self.rename_entry(from, to)
    }

    fn link(
        &mut self,
        file: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> StoreResult<Linked, Linked> {
        self.link_file(file, directory, name)
    }

    fn readdir(
        &mut self,
        directory: &FileHandle,
        place: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> StoreResult<Listed> {
        self.list(directory, place, CephEntryDetail::Name, visit)
    }

    fn readdirplus(
        &mut self,
        directory: &FileHandle,
        place: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> StoreResult<Listed> {
        self.list(directory, place, CephEntryDetail::Object, visit)
    }

    fn fsstat(&mut self, object: &FileHandle) -> StoreResult<(FsStat, FileAttributes)> {
        self.system_space(object)
    }

    fn fsinfo(&mut self, object: &FileHandle) -> StoreResult<(FsInfo, FileAttributes)> {
        self.system_info(object)
    }

    fn pathconf(&mut self, object: &FileHandle) -> StoreResult<(PathConf, FileAttributes)> {
        self.path_limits(object)
    }
}
