//! A store whose calls all take the way through a helper's hands: as owned operations, with lent
//! memory, to outcomes that are answered later.

use std::io;

use stag_engine::PeerAddress;
use stag_nfs_os::{OctetsKeeper, RoomKeeper};
use stag_pools::{Class, Pool};
use stag_protocol::nfs::{
    Bulk,
    v3::{
        AccessArgs, Call, CommitArgs, CreateArgs, DirOpArgs, GetAttrArgs, LinkArgs, LookupArgs,
        MkDirArgs, MkNodArgs, Name, NodeKind, ReadArgs, ReadDirArgs, ReadDirPlusArgs, ReadLinkArgs,
        RemoveArgs, RenameArgs, SetAttrArgs, SymlinkArgs, SystemArgs, WriteArgs,
    },
};

use super::super::*;

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

    /// Carries out a call as a helper does, and gives the store that answers it.
    fn answered(&mut self, call: &Call<'_>) -> Answered {
        let octets = match call {
            Call::Write(args) => args.data.octets().unwrap(),
            Call::Symlink(args) => args.path.octets().unwrap(),
            _ => &[],
        };
        self.carry_out(StoreOperation::of(call).unwrap(), octets)
    }

    fn carry_out(&mut self, operation: StoreOperation, octets: &[u8]) -> Answered {
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

const fn at<'a>(dir: &FileHandle, name: &'a [u8]) -> DirOpArgs<'a> {
    DirOpArgs { dir: *dir, name: Name(name) }
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
        self.carry_out(StoreOperation::Mount, path).mount(path)
    }

    fn getattr(&mut self, file: &FileHandle) -> Result<Attributes, Status> {
        self.answered(&Call::GetAttr(GetAttrArgs { object: *file })).getattr(file)
    }

    fn setattr(
        &mut self,
        file: &FileHandle,
        set: &SetAttributes,
        guard: Option<Time>,
    ) -> StoreResult<WccData, WccData> {
        let args = SetAttrArgs { object: *file, attributes: *set, guard };
        self.answered(&Call::SetAttr(args)).setattr(file, set, guard)
    }

    fn lookup(&mut self, directory: &FileHandle, name: &[u8]) -> StoreResult<FoundObject> {
        let args = LookupArgs { what: at(directory, name) };
        self.answered(&Call::Lookup(args)).lookup(directory, name)
    }

    fn access(&mut self, file: &FileHandle, asked: Access) -> StoreResult<(Access, Attributes)> {
        let args = AccessArgs { object: *file, access: asked };
        self.answered(&Call::Access(args)).access(file, asked)
    }

    fn readlink(&mut self, lender: &Lender<'_>, file: &FileHandle) -> StoreResult<ReadlinkDone> {
        self.answered(&Call::ReadLink(ReadLinkArgs { symlink: *file })).readlink(lender, file)
    }

    fn read(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        offset: u64,
        count: u32,
    ) -> StoreResult<ReadDone> {
        let args = ReadArgs { file: *file, offset, count };
        self.answered(&Call::Read(args)).read(lender, file, offset, count)
    }

    fn write(
        &mut self,
        file: &FileHandle,
        offset: u64,
        data: WritePayload<'_>,
        stable: StableHow,
    ) -> StoreResult<WriteDone, WccData> {
        let args = WriteArgs { file: *file, offset, stable, data: Bulk::Inline(data.octets) };
        self.answered(&Call::Write(args)).write(file, offset, data, stable)
    }

    fn commit(&mut self, file: &FileHandle) -> StoreResult<CommitDone, WccData> {
        let args = CommitArgs { file: *file, offset: 0, count: 0 };
        self.answered(&Call::Commit(args)).commit(file)
    }

    fn create(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        how: &CreateHow,
    ) -> StoreResult<MadeObject, WccData> {
        let args = CreateArgs { place: at(directory, name), how: *how };
        self.answered(&Call::Create(args)).create(directory, name, how)
    }

    fn mkdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        set: &SetAttributes,
    ) -> StoreResult<MadeObject, WccData> {
        let args = MkDirArgs { place: at(directory, name), attributes: *set };
        self.answered(&Call::MkDir(args)).mkdir(directory, name, set)
    }

    fn symlink(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> StoreResult<MadeObject, WccData> {
        let (place, path) = (at(directory, name), Bulk::Inline(target));
        let args = SymlinkArgs { place, attributes: *set, path };
        self.answered(&Call::Symlink(args)).symlink(directory, name, target, set)
    }

    fn mknod(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        kind: FileKind,
        set: &SetAttributes,
    ) -> StoreResult<MadeObject, WccData> {
        let what = match kind {
            FileKind::Socket => NodeKind::Socket(*set),
            FileKind::Fifo => NodeKind::Fifo(*set),
            FileKind::Regular => NodeKind::Regular,
            FileKind::Directory => NodeKind::Directory,
            FileKind::Symlink => NodeKind::Symlink,
            // A call says which device.
            FileKind::Character | FileKind::Block => {
                return self.store.mknod(directory, name, kind, set);
            }
        };
        let args = MkNodArgs { place: at(directory, name), what };
        self.answered(&Call::MkNod(args)).mknod(directory, name, kind, set)
    }

    fn mknod_device(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        node: DeviceNode,
        set: &SetAttributes,
    ) -> StoreResult<MadeObject, WccData> {
        let what = match node.kind {
            FileKind::Character => NodeKind::Character(*set, node.device),
            FileKind::Block => NodeKind::Block(*set, node.device),
            // A call has no device for others.
            _ => return self.store.mknod_device(directory, name, node, set),
        };
        let args = MkNodArgs { place: at(directory, name), what };
        self.answered(&Call::MkNod(args)).mknod_device(directory, name, node, set)
    }

    fn remove(&mut self, directory: &FileHandle, name: &[u8]) -> StoreResult<WccData, WccData> {
        let args = RemoveArgs { object: at(directory, name) };
        self.answered(&Call::Remove(args)).remove(directory, name)
    }

    fn rmdir(&mut self, directory: &FileHandle, name: &[u8]) -> StoreResult<WccData, WccData> {
        let args = RemoveArgs { object: at(directory, name) };
        self.answered(&Call::RmDir(args)).rmdir(directory, name)
    }

    fn rename(
        &mut self,
        from: NameIn<'_, &FileHandle>,
        to: NameIn<'_, &FileHandle>,
    ) -> StoreResult<Renamed, Renamed> {
        let args =
            RenameArgs { from: at(from.directory, from.name), to: at(to.directory, to.name) };
        self.answered(&Call::Rename(args)).rename(from, to)
    }

    fn link(
        &mut self,
        file: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> StoreResult<Linked, Linked> {
        let args = LinkArgs { file: *file, link: at(directory, name) };
        self.answered(&Call::Link(args)).link(file, directory, name)
    }

    fn readdir(
        &mut self,
        directory: &FileHandle,
        place: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> StoreResult<Listed> {
        let (cookie, verifier) = (place.cookie, place.verifier);
        let args = ReadDirArgs { dir: *directory, cookie, verifier, count: 8_000 };
        self.answered(&Call::ReadDir(args)).readdir(directory, place, visit)
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
        self.answered(&Call::ReadDirPlus(args)).readdirplus(directory, place, visit)
    }

    fn fsstat(&mut self, object: &FileHandle) -> StoreResult<(FsStat, Attributes)> {
        self.answered(&Call::FsStat(SystemArgs { object: *object })).fsstat(object)
    }

    fn fsinfo(&mut self, object: &FileHandle) -> StoreResult<(FsInfo, Attributes)> {
        self.answered(&Call::FsInfo(SystemArgs { object: *object })).fsinfo(object)
    }

    fn pathconf(&mut self, object: &FileHandle) -> StoreResult<(PathConf, Attributes)> {
        self.answered(&Call::PathConf(SystemArgs { object: *object })).pathconf(object)
    }
}
