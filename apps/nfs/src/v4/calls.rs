//! Store calls that operations make with the credential of the compound's caller. Each is answered
//! at once, answered from the operation's journal (`journal`), or waited for (`waits`).

use stag_protocol::nfs::v3::{
    Access, AccessArgs, CommitArgs, FileHandle, FsInfo, FsStat, GetAttrArgs, PathConf, ReadArgs,
    ReadDirPlusArgs, ReadLinkArgs, StableHow, SystemArgs,
};

use super::{
    turn::{Done, Turn},
    waits::Answerer,
};
use stag_nfs_store::{
    CommitDone, CreateMode, DeviceNode, Effort, FileAttributes, FoundObject, Lender, Linked,
    Listed, ListingStart, MadeObject, NameIn, NewAttributes, ObjectChange, OwnedName,
    Procedures as _, ReadDone, ReadSpan, ReadlinkDone, Renamed, SetDone, Store, StoreOutcome,
    StoreRequest, Visitor, WriteDone, WritePayload, make_node,
};

/// Asks the journal or the store, and notes an immediate answer of the store: all of it, or of an
/// answer with data only the failure.
macro_rules! ask {
    (@note $turn:ident $result:ident $outcome:ident) => {
        $turn.journal.note(StoreOutcome::$outcome($result))
    };
    (@note $turn:ident $result:ident $outcome:ident octets) => {
        match &$result {
            Ok(_) => $turn.journal.leave_gap(),
            Err(failed) => $turn.journal.note(StoreOutcome::$outcome(Err(*failed))),
        }
    };
    (
        $turn:ident, $answerer:expr, $outcome:ident $($octets:ident)?,
        |$store:ident, $lender:pat_param| $run:expr
    ) => {
        match $answerer {
            Answerer::Journal(mut answer) => {
                debug_assert!(
                    answer.is_failure() || matches!(answer.outcome(), StoreOutcome::$outcome(_)),
                    "each run of an operation asks the same"
                );
                let $store = &mut answer;
                let cx = &*$turn.cx;
                let $lender: &Lender<'_> = &|len| cx.take(len);
                $run
            }
            Answerer::Store => {
                $turn.act();
                let cx = &*$turn.cx;
                let $lender: &Lender<'_> = &|len| cx.take(len);
                let $store = $turn.store.now();
                let result = $run;
                if S::MAY_WAIT {
                    ask!(@note $turn result $outcome $($octets)?);
                }
                result
            }
        }
    };
}
pub(super) use ask;

impl<S: Store> Turn<'_, '_, S> {
    /// Gives the store the caller's credential, once in a compound.
    #[inline]
    pub(super) fn act(&mut self) {
        if !std::mem::replace(&mut self.has_acted, true) {
            self.store.now().act_as(&self.caller);
        }
    }

    /// The directory of an export, if its list admits the caller. The path is walked with the
    /// server's own credential, so that the next call has to set the caller's again.
    pub(super) fn mount(&mut self, path: &[u8]) -> Done<FileHandle> {
        let answerer = self.judge(|store| store.mount_waits(), path, || StoreRequest::Mount)?;
        self.act();
        let mounted = ask!(self, answerer, Mounted, |store, _| store.mount(path));
        self.has_acted = false;
        Ok(mounted?)
    }

    pub(super) fn getattr(&mut self, object: &FileHandle) -> Done<FileAttributes> {
        let operation = || StoreRequest::GetAttr(GetAttrArgs { object: *object });
        let answerer = self.answerer([object], Effort::Plain, operation)?;
        Ok(ask!(self, answerer, Attributes, |store, _| store.getattr(object))?)
    }

    pub(super) fn lookup(&mut self, directory: &FileHandle, name: &[u8]) -> Done<FoundObject> {
        let operation = || StoreRequest::Lookup(OwnedName::new(*directory, name));
        let answerer = self.answerer([directory], Effort::Plain, operation)?;
        Ok(ask!(self, answerer, Found, |store, _| store.lookup(directory, name))?)
    }

    pub(super) fn access(
        &mut self,
        object: &FileHandle,
        asked: Access,
    ) -> Done<(Access, FileAttributes)> {
        let operation = || StoreRequest::Access(AccessArgs { object: *object, access: asked });
        let answerer = self.answerer([object], Effort::Plain, operation)?;
        Ok(ask!(self, answerer, Access, |store, _| store.access(object, asked))?)
    }

    pub(super) fn readlink(&mut self, symlink: &FileHandle) -> Done<ReadlinkDone> {
        let operation = || StoreRequest::ReadLink(ReadLinkArgs { symlink: *symlink });
        let answerer = self.answerer([symlink], Effort::Plain, operation)?;
        Ok(ask!(self, answerer, ReadLink octets, |store, lender| store.readlink(lender, symlink))?)
    }

    /// READ. Waits for data that a disk has to supply.
    pub(super) fn read(&mut self, file: &FileHandle, span: ReadSpan) -> Done<ReadDone> {
        let ReadSpan { offset, count } = span;
        let operation = || StoreRequest::Read(ReadArgs { file: *file, offset, count });
        let answerer = self.answerer([file], Effort::Plain, operation)?;
        if S::MAY_WAIT
            && matches!(answerer, Answerer::Store)
            && let Some(done) = self.read_from_disk(file, span)?
        {
            self.journal.leave_gap();
            return Ok(done);
        }
        let read = ask!(self, answerer, Read octets, |store, lender| {
            store.read(lender, file, offset, count)
        });
        Ok(read?)
    }

    /// A READ that may need a disk: the second attempt, with the data that was fetched, or the
    /// first. None when it cannot be deferred.
    fn read_from_disk(&mut self, file: &FileHandle, span: ReadSpan) -> Done<Option<ReadDone>> {
        if let Some(brought) = self.journal.take_brought() {
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

    pub(super) fn write_file(
        &mut self,
        file: &FileHandle,
        offset: u64,
        octets: &[u8],
        stable: StableHow,
    ) -> Done<WriteDone> {
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

    pub(super) fn commit(&mut self, file: &FileHandle) -> Done<CommitDone> {
        let operation = || StoreRequest::Commit(CommitArgs { file: *file, offset: 0, count: 0 });
        let answerer = self.answerer([file], Effort::Sync, operation)?;
        Ok(ask!(self, answerer, Committed, |store, _| store.commit(file))?)
    }

    pub(super) fn setattr(&mut self, object: &FileHandle, set: &NewAttributes) -> Done<SetDone> {
        let operation = || StoreRequest::SetAttr { file: *object, set: *set, guard: None };
        let answerer = self.answerer([object], Effort::Change, operation)?;
        Ok(ask!(self, answerer, Set, |store, _| store.setattr(object, set, None))?)
    }

    pub(super) fn create(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        how: &CreateMode,
    ) -> Done<MadeObject> {
        let operation = || StoreRequest::Create(OwnedName::new(*directory, name), *how);
        let answerer = self.answerer([directory], Effort::Change, operation)?;
        Ok(ask!(self, answerer, Made, |store, _| store.create(directory, name, how))?)
    }

    pub(super) fn mkdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        set: &NewAttributes,
    ) -> Done<MadeObject> {
        let operation = || StoreRequest::MkDir(OwnedName::new(*directory, name), *set);
        let answerer = self.answerer([directory], Effort::Change, operation)?;
        Ok(ask!(self, answerer, Made, |store, _| store.mkdir(directory, name, set))?)
    }

    pub(super) fn symlink(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        target: &[u8],
        set: &NewAttributes,
    ) -> Done<MadeObject> {
        let operation = || StoreRequest::Symlink(OwnedName::new(*directory, name), *set);
        let answerer = self.answerer_with([directory], Effort::Change, target, operation)?;
        Ok(ask!(self, answerer, Made, |store, _| store.symlink(directory, name, target, set))?)
    }

    pub(super) fn make_node(
        &mut self,
        place: NameIn<'_, &FileHandle>,
        node: DeviceNode,
        set: &NewAttributes,
    ) -> Done<MadeObject> {
        let NameIn { directory, name } = place;
        let operation = || StoreRequest::MkNod(OwnedName::new(*directory, name), node, *set);
        let answerer = self.answerer([directory], Effort::Change, operation)?;
        Ok(ask!(self, answerer, Made, |store, _| make_node(store, place, node, set))?)
    }

    pub(super) fn remove(&mut self, directory: &FileHandle, name: &[u8]) -> Done<ObjectChange> {
        let operation = || StoreRequest::Remove(OwnedName::new(*directory, name));
        let answerer = self.answerer([directory], Effort::Change, operation)?;
        Ok(ask!(self, answerer, Changed, |store, _| store.remove(directory, name))?)
    }

    pub(super) fn rmdir(&mut self, directory: &FileHandle, name: &[u8]) -> Done<ObjectChange> {
        let operation = || StoreRequest::RmDir(OwnedName::new(*directory, name));
        let answerer = self.answerer([directory], Effort::Change, operation)?;
        Ok(ask!(self, answerer, Changed, |store, _| store.rmdir(directory, name))?)
    }

    pub(super) fn rename(
        &mut self,
        from: NameIn<'_, &FileHandle>,
        to: NameIn<'_, &FileHandle>,
    ) -> Done<Renamed> {
        let owned = |at: NameIn<'_, &FileHandle>| OwnedName::new(*at.directory, at.name);
        let operation = || StoreRequest::Rename(owned(from), owned(to));
        let answerer = self.answerer([from.directory, to.directory], Effort::Change, operation)?;
        Ok(ask!(self, answerer, Renamed, |store, _| store.rename(from, to))?)
    }

    pub(super) fn link(
        &mut self,
        file: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> Done<Linked> {
        let operation = || StoreRequest::Link(*file, OwnedName::new(*directory, name));
        let answerer = self.answerer([file, directory], Effort::Change, operation)?;
        Ok(ask!(self, answerer, Linked, |store, _| store.link(file, directory, name))?)
    }

    /// Shows the entries of a directory with their objects to `visit`.
    pub(super) fn list(
        &mut self,
        args: &ReadDirPlusArgs,
        start: ListingStart,
        visit: &mut Visitor<'_>,
    ) -> Done<Listed> {
        let operation = || StoreRequest::ReadDirPlus(*args);
        let answerer = self.answerer([&args.dir], Effort::Plain, operation)?;
        match answerer {
            Answerer::Journal(mut answer) => Ok(answer.readdirplus(&args.dir, start, visit)?),
            Answerer::Store => {
                self.act();
                if S::MAY_WAIT {
                    self.journal.leave_gap();
                }
                Ok(self.store.now().readdirplus(&args.dir, start, visit)?)
            }
        }
    }

    pub(super) fn fsstat(&mut self, object: &FileHandle) -> Done<FsStat> {
        let operation = || StoreRequest::FsStat(SystemArgs { object: *object });
        let answerer = self.answerer([object], Effort::Plain, operation)?;
        Ok(ask!(self, answerer, FsStat, |store, _| store.fsstat(object))?.0)
    }

    pub(super) fn fsinfo(&mut self, object: &FileHandle) -> Done<FsInfo> {
        let operation = || StoreRequest::FsInfo(SystemArgs { object: *object });
        let answerer = self.answerer([object], Effort::Plain, operation)?;
        Ok(ask!(self, answerer, FsInfo, |store, _| store.fsinfo(object))?.0)
    }

    pub(super) fn pathconf(&mut self, object: &FileHandle) -> Done<PathConf> {
        let operation = || StoreRequest::PathConf(SystemArgs { object: *object });
        let answerer = self.answerer([object], Effort::Plain, operation)?;
        Ok(ask!(self, answerer, PathConf, |store, _| store.pathconf(object))?.0)
    }
}
