//! Store calls that operations make with the credential of the compound's caller. Each is answered
//! at once, answered from the operation's replay log (`replay_log`), or waited for (`waiting`).

use stag_protocol::nfs::{
    v3::{
        Access, AccessArgs, CommitArgs, FileHandle, FsInfo, FsStat, GetAttrArgs, PathConf,
        ReadArgs, ReadDirPlusArgs, ReadLinkArgs, StableHow, SystemArgs,
    },
    v4::{Stateid, Status4},
};

use super::{CompoundContext, OpExit, OpResult, state_calls::file_id, waiting::Answerer};
use stag_nfs_store::{
    CommitDone, CopyDone, CreateMode, DeviceNode, Effort, FileAttributes, FilePlace, FileSpan,
    FoundObject, Lender, Linked, Listed, ListingStart, MadeObject, NameIn, NewAttributes,
    ObjectChange, OwnedName, Procedures as _, Procedures4 as _, ReadDone, ReadSpan, ReadlinkDone,
    Renamed, SeekDone, SeekFor, SetDone, Store, StoreLimits, StoreOutcome, StoreRequest, Visitor,
    WriteDone, WritePayload, XattrMode, make_node,
};
use stag_nfs4_state::IoAccess;
use stag_pools::Extent;

/// Asks the replay log or the store, and notes an immediate answer of the store: all of it, or of
/// an answer with data only the failure.
macro_rules! ask {
    (@note $context:ident $result:ident $outcome:ident) => {
        $context.compound.replay_log.note(StoreOutcome::$outcome($result))
    };
    (@note $context:ident $result:ident $outcome:ident octets) => {
        match &$result {
            Ok(_) => $context.compound.replay_log.leave_gap(),
            Err(failed) => $context.compound.replay_log.note(StoreOutcome::$outcome(Err(*failed))),
        }
    };
    (
        $context:ident, $answerer:expr, $outcome:ident $($octets:ident)?,
        |$store:ident, $lender:pat_param| $run:expr
    ) => {
        match $answerer {
            Answerer::Log(mut answer) => {
                debug_assert!(
                    answer.is_failure() || matches!(answer.outcome(), StoreOutcome::$outcome(_)),
                    "each run of an operation asks the same"
                );
                let $store = &mut answer;
                let cx = &*$context.cx;
                let $lender: &Lender<'_> = &|len| cx.take(len);
                $run
            }
            Answerer::Store => {
                $context.act();
                let cx = &*$context.cx;
                let $lender: &Lender<'_> = &|len| cx.take(len);
                let $store = $context.store.now();
                let result = $run;
                if S::MAY_WAIT {
                    ask!(@note $context result $outcome $($octets)?);
                }
                result
            }
        }
    };
}

impl<S: Store> CompoundContext<'_, '_, S> {
    /// Gives the store the caller's credential, once in a compound.
    #[inline]
    pub(in crate::v4) fn act(&mut self) {
        if !std::mem::replace(&mut self.has_acted, true) {
            self.store.now().act_as(&self.compound.caller);
        }
    }

    /// The directory of an export, if its list admits the caller. The path is walked with the
    /// server's own credential, so that the next call has to set the caller's again.
    pub(in crate::v4) fn mount(&mut self, path: &[u8]) -> OpResult<FileHandle> {
        let answerer = self.judge(|store| store.mount_waits(), path, || StoreRequest::Mount)?;
        self.act();
        let mounted = ask!(self, answerer, Mounted, |store, _| store.mount(path));
        self.has_acted = false;
        Ok(mounted?)
    }

    pub(in crate::v4) fn getattr(&mut self, object: &FileHandle) -> OpResult<FileAttributes> {
        let operation = || StoreRequest::GetAttr(GetAttrArgs { object: *object });
        let answerer = self.answerer([object], Effort::Plain, operation)?;
        Ok(ask!(self, answerer, Attributes, |store, _| store.getattr(object))?)
    }

    pub(in crate::v4) fn lookup(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
    ) -> OpResult<FoundObject> {
        let operation = || StoreRequest::Lookup(OwnedName::new(*directory, name));
        let answerer = self.answerer([directory], Effort::Plain, operation)?;
        Ok(ask!(self, answerer, Found, |store, _| store.lookup(directory, name))?)
    }

    pub(in crate::v4) fn access(
        &mut self,
        object: &FileHandle,
        asked: Access,
    ) -> OpResult<(Access, FileAttributes)> {
        let operation = || StoreRequest::Access(AccessArgs { object: *object, access: asked });
        let answerer = self.answerer([object], Effort::Plain, operation)?;
        Ok(ask!(self, answerer, Access, |store, _| store.access(object, asked))?)
    }

    pub(in crate::v4) fn readlink(&mut self, symlink: &FileHandle) -> OpResult<ReadlinkDone> {
        let operation = || StoreRequest::ReadLink(ReadLinkArgs { symlink: *symlink });
        let answerer = self.answerer([symlink], Effort::Plain, operation)?;
        Ok(ask!(self, answerer, ReadLink octets, |store, lender| store.readlink(lender, symlink))?)
    }

    /// READ. Waits for data that a disk has to supply.
    pub(in crate::v4) fn read(&mut self, file: &FileHandle, span: ReadSpan) -> OpResult<ReadDone> {
        let ReadSpan { offset, count } = span;
        let operation = || StoreRequest::Read(ReadArgs { file: *file, offset, count });
        let answerer = self.answerer([file], Effort::Plain, operation)?;
        if S::MAY_WAIT
            && matches!(answerer, Answerer::Store)
            && let Some(done) = self.read_from_disk(file, span)?
        {
            self.compound.replay_log.leave_gap();
            return Ok(done);
        }
        let read = ask!(self, answerer, Read octets, |store, lender| {
            store.read(lender, file, offset, count)
        });
        Ok(read?)
    }

    /// A READ that may need a disk: the second attempt, with the data that was fetched, or the
    /// first. None when it cannot be deferred.
    fn read_from_disk(&mut self, file: &FileHandle, span: ReadSpan) -> OpResult<Option<ReadDone>> {
        if let Some(brought) = self.compound.replay_log.take_brought() {
            self.act();
            let cx = &*self.cx;
            let done = self.store.now().end_read(&|len| cx.take(len), file, span, brought)?;
            return Ok(Some(done));
        }
        let Some(ticket) = self.means.read_ticket.filter(|_| self.can_wait()) else {
            return Ok(None);
        };
        self.act();
        let cx = &*self.cx;
        match self.store.now().begin_read(&|len| cx.take(len), file, span, ticket)? {
            Some(done) => Ok(Some(done)),
            None => Err(self.wait_for_fetch()),
        }
    }

    pub(in crate::v4) fn write_file(
        &mut self,
        file: &FileHandle,
        offset: u64,
        octets: &[u8],
        stable: StableHow,
    ) -> OpResult<WriteDone> {
        let effort = if stable == StableHow::Unstable { Effort::Plain } else { Effort::Sync };
        let operation = || StoreRequest::Write { file: *file, offset, stable };
        let answerer = self.answerer_with([file], effort, octets, operation)?;
        self.has_changed = true;
        let shared = self.pulled.share(octets);
        let payload = WritePayload { octets, shared };
        let written = ask!(self, answerer, Written, |store, _| {
            store.write(file, offset, payload, stable)
        });
        Ok(written?)
    }

    pub(in crate::v4) fn commit(&mut self, file: &FileHandle) -> OpResult<CommitDone> {
        let operation = || StoreRequest::Commit(CommitArgs { file: *file, offset: 0, count: 0 });
        let answerer = self.answerer([file], Effort::Sync, operation)?;
        Ok(ask!(self, answerer, Committed, |store, _| store.commit(file))?)
    }

    pub(in crate::v4) fn setattr(
        &mut self,
        object: &FileHandle,
        set: &NewAttributes,
    ) -> OpResult<SetDone> {
        let operation = || StoreRequest::SetAttr { file: *object, set: *set, guard: None };
        let answerer = self.answerer([object], Effort::Change, operation)?;
        Ok(ask!(self, answerer, Set, |store, _| store.setattr(object, set, None))?)
    }

    pub(in crate::v4) fn create(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        how: &CreateMode,
    ) -> OpResult<MadeObject> {
        let operation = || StoreRequest::Create(OwnedName::new(*directory, name), *how);
        let answerer = self.answerer([directory], Effort::Change, operation)?;
        Ok(ask!(self, answerer, Made, |store, _| store.create(directory, name, how))?)
    }

    pub(in crate::v4) fn mkdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        set: &NewAttributes,
    ) -> OpResult<MadeObject> {
        let operation = || StoreRequest::MkDir(OwnedName::new(*directory, name), *set);
        let answerer = self.answerer([directory], Effort::Change, operation)?;
        Ok(ask!(self, answerer, Made, |store, _| store.mkdir(directory, name, set))?)
    }

    pub(in crate::v4) fn symlink(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        target: &[u8],
        set: &NewAttributes,
    ) -> OpResult<MadeObject> {
        let operation = || StoreRequest::Symlink(OwnedName::new(*directory, name), *set);
        let answerer = self.answerer_with([directory], Effort::Change, target, operation)?;
        Ok(ask!(self, answerer, Made, |store, _| store.symlink(directory, name, target, set))?)
    }

    pub(in crate::v4) fn make_node(
        &mut self,
        place: NameIn<'_, &FileHandle>,
        node: DeviceNode,
        set: &NewAttributes,
    ) -> OpResult<MadeObject> {
        let NameIn { directory, name } = place;
        let operation = || StoreRequest::MkNod(OwnedName::new(*directory, name), node, *set);
        let answerer = self.answerer([directory], Effort::Change, operation)?;
        Ok(ask!(self, answerer, Made, |store, _| make_node(store, place, node, set))?)
    }

    pub(in crate::v4) fn remove(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
    ) -> OpResult<ObjectChange> {
        let operation = || StoreRequest::Remove(OwnedName::new(*directory, name));
        let answerer = self.answerer([directory], Effort::Change, operation)?;
        Ok(ask!(self, answerer, Changed, |store, _| store.remove(directory, name))?)
    }

    pub(in crate::v4) fn rmdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
    ) -> OpResult<ObjectChange> {
        let operation = || StoreRequest::RmDir(OwnedName::new(*directory, name));
        let answerer = self.answerer([directory], Effort::Change, operation)?;
        Ok(ask!(self, answerer, Changed, |store, _| store.rmdir(directory, name))?)
    }

    pub(in crate::v4) fn rename(
        &mut self,
        from: NameIn<'_, &FileHandle>,
        to: NameIn<'_, &FileHandle>,
    ) -> OpResult<Renamed> {
        let owned = |at: NameIn<'_, &FileHandle>| OwnedName::new(*at.directory, at.name);
        let operation = || StoreRequest::Rename(owned(from), owned(to));
        let answerer = self.answerer([from.directory, to.directory], Effort::Change, operation)?;
        Ok(ask!(self, answerer, Renamed, |store, _| store.rename(from, to))?)
    }

    pub(in crate::v4) fn link(
        &mut self,
        file: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> OpResult<Linked> {
        let operation = || StoreRequest::Link(*file, OwnedName::new(*directory, name));
        let answerer = self.answerer([file, directory], Effort::Change, operation)?;
        Ok(ask!(self, answerer, Linked, |store, _| store.link(file, directory, name))?)
    }

    /// Shows the entries of a directory with their objects to `visit`.
    pub(in crate::v4) fn list(
        &mut self,
        args: &ReadDirPlusArgs,
        start: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> OpResult<Listed> {
        let operation = || StoreRequest::ReadDirPlus(*args);
        let answerer = self.answerer([&args.dir], Effort::Plain, operation)?;
        match answerer {
            Answerer::Log(mut answer) => Ok(answer.readdirplus(&args.dir, start, visit)?),
            Answerer::Store => {
                self.act();
                if S::MAY_WAIT {
                    self.compound.replay_log.leave_gap();
                }
                Ok(self.store.now().readdirplus(&args.dir, start, visit)?)
            }
        }
    }

    pub(in crate::v4) fn fsstat(&mut self, object: &FileHandle) -> OpResult<FsStat> {
        let operation = || StoreRequest::FsStat(SystemArgs { object: *object });
        let answerer = self.answerer([object], Effort::Plain, operation)?;
        Ok(ask!(self, answerer, FsStat, |store, _| store.fsstat(object))?.0)
    }

    pub(in crate::v4) fn fsinfo(&mut self, object: &FileHandle) -> OpResult<FsInfo> {
        let operation = || StoreRequest::FsInfo(SystemArgs { object: *object });
        let answerer = self.answerer([object], Effort::Plain, operation)?;
        Ok(ask!(self, answerer, FsInfo, |store, _| store.fsinfo(object))?.0)
    }

    pub(in crate::v4) fn pathconf(&mut self, object: &FileHandle) -> OpResult<PathConf> {
        let operation = || StoreRequest::PathConf(SystemArgs { object: *object });
        let answerer = self.answerer([object], Effort::Plain, operation)?;
        Ok(ask!(self, answerer, PathConf, |store, _| store.pathconf(object))?.0)
    }
}

impl<S: Store> CompoundContext<'_, '_, S> {
    pub(in crate::v4) fn parent_of(&mut self, directory: &FileHandle) -> OpResult<FoundObject> {
        let operation = || StoreRequest::LookupParent(*directory);
        let answerer = self.answerer([directory], Effort::Plain, operation)?;
        Ok(ask!(self, answerer, Found, |store, _| store.lookupp(directory))?)
    }

    /// Keeps a file after its last name is removed, as long as a client has state of it. If that is
    /// not possible, it goes with its last name.
    pub(in crate::v4) fn pin(&mut self, file: &FileHandle) {
        let is_pinned = self.compound.replay_log.pinned.take_if(|pinned| pinned == file).is_some();
        match (self.nfs4.state.has_file(file_id(file)), is_pinned) {
            (true, true) => return self.store.unpin(file),
            (true, false) | (false, true) => return,
            (false, false) => {}
        }
        self.act();
        // Where calls may wait, the file is not kept: the call to pin it would wait.
        let waits = S::MAY_WAIT && self.store.waits(file, Effort::Plain);
        if waits || self.store.now().pin(file).is_err() {
            self.nfs4.tally.unpinned += 1;
        }
    }

    pub(in crate::v4) fn seek(
        &mut self,
        file: &FileHandle,
        offset: u64,
        what: SeekFor,
    ) -> OpResult<SeekDone> {
        let operation = || StoreRequest::Seek(*file, offset, what);
        let answerer = self.answerer([file], Effort::Plain, operation)?;
        Ok(ask!(self, answerer, Sought, |store, _| store.seek(file, offset, what))?)
    }

    pub(in crate::v4) fn allocate(
        &mut self,
        file: &FileHandle,
        span: FileSpan,
    ) -> OpResult<ObjectChange> {
        let operation = || StoreRequest::Allocate(*file, span);
        let answerer = self.answerer([file], Effort::Change, operation)?;
        Ok(ask!(self, answerer, Changed, |store, _| store.allocate(file, span))?)
    }

    pub(in crate::v4) fn deallocate(
        &mut self,
        file: &FileHandle,
        span: FileSpan,
    ) -> OpResult<ObjectChange> {
        let operation = || StoreRequest::Deallocate(*file, span);
        let answerer = self.answerer([file], Effort::Change, operation)?;
        Ok(ask!(self, answerer, Changed, |store, _| store.deallocate(file, span))?)
    }

    pub(in crate::v4) fn copy_octets(
        &mut self,
        from: FilePlace,
        to: FilePlace,
        count: u64,
    ) -> OpResult<CopyDone> {
        let operation = || StoreRequest::Copy { from, to, count };
        let answerer = self.answerer([&from.file, &to.file], Effort::Long, operation)?;
        Ok(ask!(self, answerer, Copied, |store, _| store.copy(from, to, count))?)
    }

    pub(in crate::v4) fn clone_octets(
        &mut self,
        from: FilePlace,
        to: FilePlace,
        count: u64,
    ) -> OpResult<ObjectChange> {
        let operation = || StoreRequest::Clone { from, to, count };
        let answerer = self.answerer([&from.file, &to.file], Effort::Change, operation)?;
        Ok(ask!(self, answerer, Changed, |store, _| store.clone_range(from, to, count))?)
    }

    pub(in crate::v4) fn get_xattr(&mut self, file: &FileHandle, name: &[u8]) -> OpResult<Extent> {
        let operation = || StoreRequest::GetXattr(OwnedName::new(*file, name));
        let answerer = self.answerer([file], Effort::Plain, operation)?;
        ask!(self, answerer, Xattr octets, |store, lender| store.get_xattr(lender, file, name))
            .map_err(of_xattr)
    }

    pub(in crate::v4) fn list_xattrs(&mut self, file: &FileHandle) -> OpResult<Extent> {
        let operation = || StoreRequest::ListXattrs(*file);
        let answerer = self.answerer([file], Effort::Plain, operation)?;
        ask!(self, answerer, Xattr octets, |store, lender| store.list_xattrs(lender, file))
            .map_err(of_xattr)
    }

    pub(in crate::v4) fn set_xattr(
        &mut self,
        file: &FileHandle,
        name: &[u8],
        value: &[u8],
        how: XattrMode,
    ) -> OpResult<ObjectChange> {
        let operation = || StoreRequest::SetXattr(OwnedName::new(*file, name), how);
        let answerer = self.answerer_with([file], Effort::Change, value, operation)?;
        ask!(self, answerer, Changed, |store, _| store.set_xattr(file, name, value, how))
            .map_err(of_xattr)
    }

    pub(in crate::v4) fn remove_xattr(
        &mut self,
        file: &FileHandle,
        name: &[u8],
    ) -> OpResult<ObjectChange> {
        let operation = || StoreRequest::RemoveXattr(OwnedName::new(*file, name));
        let answerer = self.answerer([file], Effort::Change, operation)?;
        ask!(self, answerer, Changed, |store, _| store.remove_xattr(file, name)).map_err(of_xattr)
    }

    pub(in crate::v4) fn limits(&mut self, object: &FileHandle) -> OpResult<StoreLimits> {
        let operation = || StoreRequest::Limits(*object);
        let answerer = self.answerer([object], Effort::Plain, operation)?;
        Ok(ask!(self, answerer, Limits, |store, _| store.limits(object))?)
    }

    /// The saved and the current file of a copy, both checked by their stateids (RFC 7862 §15.2.3).
    pub(in crate::v4) fn both_files(
        &mut self,
        source: Stateid,
        target: Stateid,
    ) -> OpResult<(FileHandle, FileHandle)> {
        let from = self.saved()?.object(Status4::IsDir)?;
        let to = self.current()?.object(Status4::IsDir)?;
        let source = match source {
            // The current stateid of the source was saved with its filehandle.
            Stateid::CURRENT => self.saved_stateid().ok_or(Status4::BadStateid)?,
            source => source,
        };
        // RFC 7862 §15.2.3 [7862-13]: both stateids have to cover what is done with their files
        self.check_io(&from, source, IoAccess::Read)?;
        self.check_io(&to, target, IoAccess::Write)?;
        Ok((from, to))
    }
}

/// Statuses of extended attributes (RFC 8276 §8.5), for which stores return other ones.
fn of_xattr<About>(failed: stag_nfs_store::Failed<About>) -> OpExit {
    match OpExit::from(failed.status) {
        // RFC 8276 §8.4.1.3 [8276-2]: an attribute that is not there has a status of its own
        OpExit::Fail(Status4::NoEnt) => Status4::NoXattr.into(),
        OpExit::Fail(Status4::TooSmall) => Status4::Xattr2Big.into(),
        stop => stop,
    }
}
