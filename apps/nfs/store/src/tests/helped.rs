//! A store whose calls are all executed like a helper's: as owned operations, with lent memory, to
//! outcomes that are answered later.

use stag_protocol::nfs::v3::{
    Access, AccessArgs, CommitArgs, DeviceNumber, FileHandle, FileKind, FsInfo, FsStat,
    GetAttrArgs, PathConf, ReadArgs, ReadDirArgs, ReadDirPlusArgs, ReadLinkArgs, StableHow,
    SystemArgs, Verifier,
};
use std::io;

use stag_engine::PeerAddress;
use stag_nfs_os::{OctetsKeeper, RoomKeeper};
use stag_pools::{Class, Extent, Pool};

use crate::*;

/// See the module.
pub(super) struct Helped<S> {
    pub(super) store: S,
    caller: Caller,
    pool: Pool,
}

impl<S: FillRoom> Helped<S> {
    pub(super) fn new(store: S) -> Self {
        let caller =
            Caller { user: User::Anyone, address: PeerAddress::Simulated, is_proven: true };
        let pool = Pool::new(&[Class { slot_len: 1 << 20, count: 4 }]).unwrap();
        Self { store, caller, pool }
    }

    /// Executes a call as a helper does; returns the store that answers it.
    fn answered(&mut self, operation: StoreRequest) -> Answered {
        self.carry_out(operation, &[])
    }

    fn carry_out(&mut self, operation: StoreRequest, octets: &[u8]) -> Answered {
        let mut copy = self.pool.take(octets.len()).unwrap();
        copy.append(octets).unwrap();
        let (payload_keeper, payload) = OctetsKeeper::lend(copy.freeze());
        let buf = self.pool.take(operation.room_len()).unwrap();
        let (room_keeper, room) = RoomKeeper::lend(buf, operation.room_len());
        let (room, payload) = (Some(room), Some(payload));
        let mut call = StoreCall { caller: self.caller, operation, room, payload };
        let outcome = perform(&mut self.store, &mut call);
        drop(payload_keeper.regain(call.payload.unwrap()));
        Answered::new(outcome, Some(room_keeper.regain(call.room.unwrap())))
    }
}

fn at(directory: &FileHandle, name: &[u8]) -> OwnedName {
    OwnedName::new(*directory, name)
}

impl<S: FillRoom + Store> Store for Helped<S> {
    type Now = Self;

    fn now(&mut self) -> &mut Self {
        self
    }

    fn exports(&self) -> impl Iterator<Item = &str> {
        self.store.exports()
    }

    fn verifier(&self) -> Verifier {
        self.store.verifier()
    }

    fn export_roots(&self) -> Vec<ExportRoot> {
        self.store.export_roots()
    }

    fn unpin(&mut self, file: &FileHandle) {
        self.store.unpin(file);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.store.flush()
    }

    fn pool(&self) -> Option<&Pool> {
        self.store.pool()
    }
}

impl<S: FillRoom> Procedures for Helped<S> {
    fn act_as(&mut self, caller: &Caller) {
        self.caller = *caller;
    }

    fn mount(&mut self, path: &[u8]) -> Result<FileHandle, Status> {
        self.carry_out(StoreRequest::Mount, path).mount(path)
    }

    fn getattr(&mut self, file: &FileHandle) -> Result<FileAttributes, Status> {
        self.answered(StoreRequest::GetAttr(GetAttrArgs { object: *file })).getattr(file)
    }

    fn setattr(
        &mut self,
        file: &FileHandle,
        set: &NewAttributes,
        guard: Option<FileTime>,
    ) -> StoreResult<SetDone, SetDone> {
        let operation = StoreRequest::SetAttr { file: *file, set: *set, guard };
        self.answered(operation).setattr(file, set, guard)
    }

    fn lookup(&mut self, directory: &FileHandle, name: &[u8]) -> StoreResult<FoundObject> {
        self.answered(StoreRequest::Lookup(at(directory, name))).lookup(directory, name)
    }

    fn access(
        &mut self,
        file: &FileHandle,
        asked: Access,
    ) -> StoreResult<(Access, FileAttributes)> {
        let args = AccessArgs { object: *file, access: asked };
        self.answered(StoreRequest::Access(args)).access(file, asked)
    }

    fn readlink(&mut self, lender: &Lender<'_>, file: &FileHandle) -> StoreResult<ReadlinkDone> {
        self.answered(StoreRequest::ReadLink(ReadLinkArgs { symlink: *file }))
            .readlink(lender, file)
    }

    fn read(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        offset: u64,
        count: u32,
    ) -> StoreResult<ReadDone> {
        let args = ReadArgs { file: *file, offset, count };
        self.answered(StoreRequest::Read(args)).read(lender, file, offset, count)
    }

    fn write(
        &mut self,
        file: &FileHandle,
        offset: u64,
        data: WritePayload<'_>,
        stable: StableHow,
    ) -> StoreResult<WriteDone, ObjectChange> {
        let operation = StoreRequest::Write { file: *file, offset, stable };
        self.carry_out(operation, data.octets).write(file, offset, data, stable)
    }

    fn commit(&mut self, file: &FileHandle) -> StoreResult<CommitDone, ObjectChange> {
        let args = CommitArgs { file: *file, offset: 0, count: 0 };
        self.answered(StoreRequest::Commit(args)).commit(file)
    }

    fn create(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        how: &CreateMode,
    ) -> StoreResult<MadeObject, ObjectChange> {
        self.answered(StoreRequest::Create(at(directory, name), *how)).create(directory, name, how)
    }

    fn mkdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange> {
        self.answered(StoreRequest::MkDir(at(directory, name), *set)).mkdir(directory, name, set)
    }

    fn symlink(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        target: &[u8],
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange> {
        let operation = StoreRequest::Symlink(at(directory, name), *set);
        self.carry_out(operation, target).symlink(directory, name, target, set)
    }

    fn mknod(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        kind: FileKind,
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange> {
        // A device has a number, which the call states.
        if matches!(kind, FileKind::Character | FileKind::Block) {
            return self.store.mknod(directory, name, kind, set);
        }
        let node = DeviceNode { kind, device: DeviceNumber::default() };
        self.answered(StoreRequest::MkNod(at(directory, name), node, *set))
            .mknod(directory, name, kind, set)
    }

    fn mknod_device(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        node: DeviceNode,
        set: &NewAttributes,
    ) -> StoreResult<MadeObject, ObjectChange> {
        // Other kinds have none.
        if !matches!(node.kind, FileKind::Character | FileKind::Block) {
            return self.store.mknod_device(directory, name, node, set);
        }
        self.answered(StoreRequest::MkNod(at(directory, name), node, *set))
            .mknod_device(directory, name, node, set)
    }

    fn remove(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
    ) -> StoreResult<ObjectChange, ObjectChange> {
        self.answered(StoreRequest::Remove(at(directory, name))).remove(directory, name)
    }

    fn rmdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
    ) -> StoreResult<ObjectChange, ObjectChange> {
        self.answered(StoreRequest::RmDir(at(directory, name))).rmdir(directory, name)
    }

    fn rename(
        &mut self,
        from: NameIn<'_, &FileHandle>,
        to: NameIn<'_, &FileHandle>,
    ) -> StoreResult<Renamed, Renamed> {
        let (old, new) = (at(from.directory, from.name), at(to.directory, to.name));
        self.answered(StoreRequest::Rename(old, new)).rename(from, to)
    }

    fn link(
        &mut self,
        file: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> StoreResult<Linked, Linked> {
        self.answered(StoreRequest::Link(*file, at(directory, name))).link(file, directory, name)
    }

    fn readdir(
        &mut self,
        directory: &FileHandle,
        place: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> StoreResult<Listed> {
        let (cookie, verifier) = (place.cookie, place.verifier);
        let args = ReadDirArgs { dir: *directory, cookie, verifier, count: 8_000 };
        self.answered(StoreRequest::ReadDir(args)).readdir(directory, place, visit)
    }

    fn readdirplus(
        &mut self,
        directory: &FileHandle,
        place: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> StoreResult<Listed> {
        let (cookie, verifier) = (place.cookie, place.verifier);
        let (dir_count, max_count) = (LISTING_MAX, LISTING_MAX);
        let args = ReadDirPlusArgs { dir: *directory, cookie, verifier, dir_count, max_count };
        self.answered(StoreRequest::ReadDirPlus(args)).readdirplus(directory, place, visit)
    }

    fn fsstat(&mut self, object: &FileHandle) -> StoreResult<(FsStat, FileAttributes)> {
        self.answered(StoreRequest::FsStat(SystemArgs { object: *object })).fsstat(object)
    }

    fn fsinfo(&mut self, object: &FileHandle) -> StoreResult<(FsInfo, FileAttributes)> {
        self.answered(StoreRequest::FsInfo(SystemArgs { object: *object })).fsinfo(object)
    }

    fn pathconf(&mut self, object: &FileHandle) -> StoreResult<(PathConf, FileAttributes)> {
        self.answered(StoreRequest::PathConf(SystemArgs { object: *object })).pathconf(object)
    }
}

impl<S: FillRoom> Procedures4 for Helped<S> {
    fn lookupp(&mut self, directory: &FileHandle) -> StoreResult<FoundObject> {
        self.answered(StoreRequest::LookupParent(*directory)).lookupp(directory)
    }

    fn pin(&mut self, file: &FileHandle) -> Result<(), Status> {
        self.answered(StoreRequest::Pin(*file)).pin(file)
    }

    fn seek(&mut self, file: &FileHandle, offset: u64, what: SeekFor) -> StoreResult<SeekDone> {
        self.answered(StoreRequest::Seek(*file, offset, what)).seek(file, offset, what)
    }

    fn allocate(
        &mut self,
        file: &FileHandle,
        span: FileSpan,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        self.answered(StoreRequest::Allocate(*file, span)).allocate(file, span)
    }

    fn deallocate(
        &mut self,
        file: &FileHandle,
        span: FileSpan,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        self.answered(StoreRequest::Deallocate(*file, span)).deallocate(file, span)
    }

    fn copy(
        &mut self,
        from: FilePlace,
        to: FilePlace,
        count: u64,
    ) -> StoreResult<CopyDone, ObjectChange> {
        self.answered(StoreRequest::Copy { from, to, count }).copy(from, to, count)
    }

    fn clone_range(
        &mut self,
        from: FilePlace,
        to: FilePlace,
        count: u64,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        self.answered(StoreRequest::Clone { from, to, count }).clone_range(from, to, count)
    }

    fn get_xattr(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        name: &[u8],
    ) -> StoreResult<Extent> {
        self.answered(StoreRequest::GetXattr(at(file, name))).get_xattr(lender, file, name)
    }

    fn list_xattrs(&mut self, lender: &Lender<'_>, file: &FileHandle) -> StoreResult<Extent> {
        self.answered(StoreRequest::ListXattrs(*file)).list_xattrs(lender, file)
    }

    fn set_xattr(
        &mut self,
        file: &FileHandle,
        name: &[u8],
        value: &[u8],
        how: XattrMode,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        let operation = StoreRequest::SetXattr(at(file, name), how);
        self.carry_out(operation, value).set_xattr(file, name, value, how)
    }

    fn remove_xattr(
        &mut self,
        file: &FileHandle,
        name: &[u8],
    ) -> StoreResult<ObjectChange, ObjectChange> {
        self.answered(StoreRequest::RemoveXattr(at(file, name))).remove_xattr(file, name)
    }

    fn limits(&mut self, object: &FileHandle) -> Result<StoreLimits, Status> {
        self.answered(StoreRequest::Limits(*object)).limits(object)
    }
}
