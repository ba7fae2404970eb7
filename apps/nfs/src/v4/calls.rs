//! The calls that operations make to the store, as the caller of their compound.

use stag_protocol::nfs::{
    Bulk,
    v3::{
        Access, AccessArgs, Attributes, Call, CommitArgs, CreateArgs, CreateHow, DirOpArgs,
        FileHandle, FsInfo, FsStat, GetAttrArgs, LinkArgs, LookupArgs, MkDirArgs, MkNodArgs, Name,
        NodeKind, PathConf, ReadArgs, ReadDirPlusArgs, ReadLinkArgs, RemoveArgs, RenameArgs,
        SetAttrArgs, SetAttributes, StableHow, SymlinkArgs, SystemArgs, WccData, WriteArgs,
    },
};

use super::turn::{Done, Turn};
use crate::store::{
    CommitDone, FoundObject, Lender, Linked, Listed, ListingStart, MadeObject, NameIn, Procedures,
    ReadDone, ReadSpan, ReadlinkDone, Renamed, Store, Visitor, WriteDone, WritePayload, make_node,
};

fn at<'a>(dir: &FileHandle, name: &'a [u8]) -> DirOpArgs<'a> {
    DirOpArgs { dir: *dir, name: Name(name) }
}

impl<S: Store> Turn<'_, '_, S> {
    /// Lets the store carry out a call: `run` does it.
    fn ask<T>(
        &mut self,
        _call: &Call<'_>,
        run: impl FnOnce(&mut dyn Procedures, &Lender<'_>) -> T,
    ) -> Done<T> {
        if !std::mem::replace(&mut self.has_acted, true) {
            self.store.now().act_as(&self.caller);
        }
        let cx = &*self.cx;
        Ok(run(self.store.now(), &|len| cx.take(len)))
    }

    /// The directory of an export.
    pub(super) fn mount(&mut self, path: &[u8]) -> Done<FileHandle> {
        Ok(self.store.now().mount(path)?)
    }

    pub(super) fn getattr(&mut self, object: &FileHandle) -> Done<Attributes> {
        let call = Call::GetAttr(GetAttrArgs { object: *object });
        Ok(self.ask(&call, |store, _| store.getattr(object))??)
    }

    pub(super) fn lookup(&mut self, directory: &FileHandle, name: &[u8]) -> Done<FoundObject> {
        let call = Call::Lookup(LookupArgs { what: at(directory, name) });
        Ok(self.ask(&call, |store, _| store.lookup(directory, name))??)
    }

    pub(super) fn access(
        &mut self,
        object: &FileHandle,
        asked: Access,
    ) -> Done<(Access, Attributes)> {
        let call = Call::Access(AccessArgs { object: *object, access: asked });
        Ok(self.ask(&call, |store, _| store.access(object, asked))??)
    }

    pub(super) fn readlink(&mut self, symlink: &FileHandle) -> Done<ReadlinkDone> {
        let call = Call::ReadLink(ReadLinkArgs { symlink: *symlink });
        Ok(self.ask(&call, |store, lender| store.readlink(lender, symlink))??)
    }

    pub(super) fn read(&mut self, file: &FileHandle, span: ReadSpan) -> Done<ReadDone> {
        let ReadSpan { offset, count } = span;
        let call = Call::Read(ReadArgs { file: *file, offset, count });
        Ok(self.ask(&call, |store, lender| store.read(lender, file, offset, count))??)
    }

    pub(super) fn write_file(
        &mut self,
        file: &FileHandle,
        offset: u64,
        octets: &[u8],
        stable: StableHow,
    ) -> Done<WriteDone> {
        let data = Bulk::Inline(octets);
        let call = Call::Write(WriteArgs { file: *file, offset, stable, data });
        let payload = WritePayload { octets, shared: self.pulled.share(octets) };
        Ok(self.ask(&call, |store, _| store.write(file, offset, payload, stable))??)
    }

    pub(super) fn commit(&mut self, file: &FileHandle) -> Done<CommitDone> {
        let call = Call::Commit(CommitArgs { file: *file, offset: 0, count: 0 });
        Ok(self.ask(&call, |store, _| store.commit(file))??)
    }

    pub(super) fn setattr(&mut self, object: &FileHandle, set: &SetAttributes) -> Done<WccData> {
        let call = Call::SetAttr(SetAttrArgs { object: *object, attributes: *set, guard: None });
        Ok(self.ask(&call, |store, _| store.setattr(object, set, None))??)
    }

    pub(super) fn create(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        how: &CreateHow,
    ) -> Done<MadeObject> {
        let call = Call::Create(CreateArgs { place: at(directory, name), how: *how });
        Ok(self.ask(&call, |store, _| store.create(directory, name, how))??)
    }

    pub(super) fn mkdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        set: &SetAttributes,
    ) -> Done<MadeObject> {
        let call = Call::MkDir(MkDirArgs { place: at(directory, name), attributes: *set });
        Ok(self.ask(&call, |store, _| store.mkdir(directory, name, set))??)
    }

    pub(super) fn symlink(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> Done<MadeObject> {
        let path = Bulk::Inline(target);
        let place = at(directory, name);
        let call = Call::Symlink(SymlinkArgs { place, attributes: *set, path });
        Ok(self.ask(&call, |store, _| store.symlink(directory, name, target, set))??)
    }

    pub(super) fn make_node(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        what: NodeKind,
    ) -> Done<MadeObject> {
        let args = MkNodArgs { place: at(directory, name), what };
        Ok(self.ask(&Call::MkNod(args), |store, _| make_node(store, &args))??)
    }

    pub(super) fn remove(&mut self, directory: &FileHandle, name: &[u8]) -> Done<WccData> {
        let call = Call::Remove(RemoveArgs { object: at(directory, name) });
        Ok(self.ask(&call, |store, _| store.remove(directory, name))??)
    }

    pub(super) fn rmdir(&mut self, directory: &FileHandle, name: &[u8]) -> Done<WccData> {
        let call = Call::RmDir(RemoveArgs { object: at(directory, name) });
        Ok(self.ask(&call, |store, _| store.rmdir(directory, name))??)
    }

    pub(super) fn rename(
        &mut self,
        from: NameIn<'_, &FileHandle>,
        to: NameIn<'_, &FileHandle>,
    ) -> Done<Renamed> {
        let (old, new) = (at(from.directory, from.name), at(to.directory, to.name));
        let call = Call::Rename(RenameArgs { from: old, to: new });
        Ok(self.ask(&call, |store, _| store.rename(from, to))??)
    }

    pub(super) fn link(
        &mut self,
        file: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> Done<Linked> {
        let call = Call::Link(LinkArgs { file: *file, link: at(directory, name) });
        Ok(self.ask(&call, |store, _| store.link(file, directory, name))??)
    }

    /// Shows the entries of a directory with their objects to `visit`.
    pub(super) fn list(
        &mut self,
        args: &ReadDirPlusArgs,
        start: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> Done<Listed> {
        let call = Call::ReadDirPlus(*args);
        Ok(self.ask(&call, |store, _| store.readdirplus(&args.dir, start, visit))??)
    }

    pub(super) fn fsstat(&mut self, object: &FileHandle) -> Done<FsStat> {
        let call = Call::FsStat(SystemArgs { object: *object });
        Ok(self.ask(&call, |store, _| store.fsstat(object))??.0)
    }

    pub(super) fn fsinfo(&mut self, object: &FileHandle) -> Done<FsInfo> {
        let call = Call::FsInfo(SystemArgs { object: *object });
        Ok(self.ask(&call, |store, _| store.fsinfo(object))??.0)
    }

    pub(super) fn pathconf(&mut self, object: &FileHandle) -> Done<PathConf> {
        let call = Call::PathConf(SystemArgs { object: *object });
        Ok(self.ask(&call, |store, _| store.pathconf(object))??.0)
    }
}
