//! The calls that operations make to the store, as the caller of their compound.

use stag_protocol::nfs::v3::{
    Access, FileHandle, FsInfo, FsStat, PathConf, ReadDirPlusArgs, StableHow,
};

use super::turn::{Done, Turn};
use crate::store::{
    CommitDone, CreateMode, DeviceNode, FileAttributes, FoundObject, Lender, Linked, Listed,
    ListingStart, MadeObject, NameIn, NewAttributes, ObjectChange, Procedures, ReadDone, ReadSpan,
    ReadlinkDone, Renamed, SetDone, Store, Visitor, WriteDone, WritePayload, make_node,
};

impl<S: Store> Turn<'_, '_, S> {
    /// Lets the store carry out a call.
    fn ask<T>(&mut self, run: impl FnOnce(&mut dyn Procedures, &Lender<'_>) -> T) -> Done<T> {
        self.act();
        let cx = &*self.cx;
        Ok(run(self.store.now(), &|len| cx.take(len)))
    }

    /// Tells the store who calls, once in a compound.
    pub(super) fn act(&mut self) {
        if !std::mem::replace(&mut self.has_acted, true) {
            self.store.now().act_as(&self.caller);
        }
    }

    /// The directory of an export, for whom its list admits. The store itself looks for it, so that
    /// it has to be told again who calls.
    pub(super) fn mount(&mut self, path: &[u8]) -> Done<FileHandle> {
        self.act();
        let mounted = self.store.now().mount(path);
        self.has_acted = false;
        Ok(mounted?)
    }

    pub(super) fn getattr(&mut self, object: &FileHandle) -> Done<FileAttributes> {
        Ok(self.ask(|store, _| store.getattr(object))??)
    }

    pub(super) fn lookup(&mut self, directory: &FileHandle, name: &[u8]) -> Done<FoundObject> {
        Ok(self.ask(|store, _| store.lookup(directory, name))??)
    }

    pub(super) fn access(
        &mut self,
        object: &FileHandle,
        asked: Access,
    ) -> Done<(Access, FileAttributes)> {
        Ok(self.ask(|store, _| store.access(object, asked))??)
    }

    pub(super) fn readlink(&mut self, symlink: &FileHandle) -> Done<ReadlinkDone> {
        Ok(self.ask(|store, lender| store.readlink(lender, symlink))??)
    }

    pub(super) fn read(&mut self, file: &FileHandle, span: ReadSpan) -> Done<ReadDone> {
        let ReadSpan { offset, count } = span;
        Ok(self.ask(|store, lender| store.read(lender, file, offset, count))??)
    }

    pub(super) fn write_file(
        &mut self,
        file: &FileHandle,
        offset: u64,
        octets: &[u8],
        stable: StableHow,
    ) -> Done<WriteDone> {
        let payload = WritePayload { octets, shared: self.pulled.share(octets) };
        Ok(self.ask(|store, _| store.write(file, offset, payload, stable))??)
    }

    pub(super) fn commit(&mut self, file: &FileHandle) -> Done<CommitDone> {
        Ok(self.ask(|store, _| store.commit(file))??)
    }

    pub(super) fn setattr(&mut self, object: &FileHandle, set: &NewAttributes) -> Done<SetDone> {
        Ok(self.ask(|store, _| store.setattr(object, set, None))??)
    }

    pub(super) fn create(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        how: &CreateMode,
    ) -> Done<MadeObject> {
        Ok(self.ask(|store, _| store.create(directory, name, how))??)
    }

    pub(super) fn mkdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        set: &NewAttributes,
    ) -> Done<MadeObject> {
        Ok(self.ask(|store, _| store.mkdir(directory, name, set))??)
    }

    pub(super) fn symlink(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        target: &[u8],
        set: &NewAttributes,
    ) -> Done<MadeObject> {
        Ok(self.ask(|store, _| store.symlink(directory, name, target, set))??)
    }

    pub(super) fn make_node(
        &mut self,
        place: NameIn<'_, &FileHandle>,
        node: DeviceNode,
        set: &NewAttributes,
    ) -> Done<MadeObject> {
        Ok(self.ask(|store, _| make_node(store, place, node, set))??)
    }

    pub(super) fn remove(&mut self, directory: &FileHandle, name: &[u8]) -> Done<ObjectChange> {
        Ok(self.ask(|store, _| store.remove(directory, name))??)
    }

    pub(super) fn rmdir(&mut self, directory: &FileHandle, name: &[u8]) -> Done<ObjectChange> {
        Ok(self.ask(|store, _| store.rmdir(directory, name))??)
    }

    pub(super) fn rename(
        &mut self,
        from: NameIn<'_, &FileHandle>,
        to: NameIn<'_, &FileHandle>,
    ) -> Done<Renamed> {
        Ok(self.ask(|store, _| store.rename(from, to))??)
    }

    pub(super) fn link(
        &mut self,
        file: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> Done<Linked> {
        Ok(self.ask(|store, _| store.link(file, directory, name))??)
    }

    /// Shows the entries of a directory with their objects to `visit`.
    pub(super) fn list(
        &mut self,
        args: &ReadDirPlusArgs,
        start: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> Done<Listed> {
        Ok(self.ask(|store, _| store.readdirplus(&args.dir, start, visit))??)
    }

    pub(super) fn fsstat(&mut self, object: &FileHandle) -> Done<FsStat> {
        Ok(self.ask(|store, _| store.fsstat(object))??.0)
    }

    pub(super) fn fsinfo(&mut self, object: &FileHandle) -> Done<FsInfo> {
        Ok(self.ask(|store, _| store.fsinfo(object))??.0)
    }

    pub(super) fn pathconf(&mut self, object: &FileHandle) -> Done<PathConf> {
        Ok(self.ask(|store, _| store.pathconf(object))??.0)
    }
}
