//! Store calls that operations make with the credential of the compound's caller. Each is answered
//! at once, answered from the operation's replay log (`replay_log`), or waited for (`waiting`).

use stag_protocol::nfs::{
    v3::{ReadArgs, ReadDirPlusArgs, ReadLinkArgs},
    v4::{Stateid, Status4},
};

use super::{CompoundContext, OpResult, waiting::Answerer};
use stag_nfs_store::{
    Lender, Listed, ListingStart, Own, Procedures as _, Procedures4 as _, ReadDone, ReadSpan,
    ReadlinkDone, Store, StoreAnswer, StoreOutcome, StoreRequest, Visitor, procedure_types::*,
};
use stag_nfs4_state::{FileId, IoAccess};
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

/// Makes the methods that call the [procedures](stag_nfs_store::store_procedures) of the table.
macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        $variant:ident: $label:literal, $effort:expr, $touch:ident, [$($object:expr),*];
        fn $method:ident($($arg:ident: $lent:ty as $owned:ty),*) -> $result:ty as $outcome:ident;
    )*) => {
        #[allow(dead_code, reason = "no operation has to call each procedure")]
        impl<S: Store> CompoundContext<'_, '_, S> {
            $(
                pub(in crate::v4) fn $method(
                    &mut self,
                    $($arg: $lent),*
                ) -> OpResult<<$result as StoreAnswer>::Done> {
                    let operation =
                        || StoreRequest::$variant { $($arg: Own::<$owned>::own(&$arg)),* };
                    let payload = [$(Own::<$owned>::lent(&$arg)),*].into_iter().flatten().next();
                    let payload = payload.unwrap_or_default();
                    let objects = [$($object),*];
                    let answerer = self.answerer_with(objects, $effort, payload, operation)?;
                    Ok(ask!(self, answerer, $outcome, |store, _| store.$method($($arg),*))?)
                }
            )*
        }
    };
}

stag_nfs_store::store_procedures!(all calls);

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
        self.has_changed = true;
        let payload = WritePayload { octets, shared: self.pulled.share(octets) };
        self.write(file, offset, payload, stable)
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
}

impl<S: Store> CompoundContext<'_, '_, S> {
    /// Keeps a file after its last name is removed, as long as a client has state of it. If that is
    /// not possible, it goes with its last name.
    pub(in crate::v4) fn keep_file(&mut self, file: &FileHandle, id: FileId) {
        let is_pinned = self.compound.replay_log.pinned.take_if(|pinned| pinned == file).is_some();
        match (self.nfs4.state.has_file(id), is_pinned) {
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

    pub(in crate::v4) fn get_xattr(&mut self, file: &FileHandle, name: &[u8]) -> OpResult<Extent> {
        let operation = || StoreRequest::GetXattr { file: *file, name: OwnedName::new(name) };
        let answerer = self.answerer([file], Effort::Plain, operation)?;
        let value = ask!(self, answerer, Xattr octets, |store, lender| {
            store.get_xattr(lender, file, name)
        });
        Ok(value?)
    }

    pub(in crate::v4) fn list_xattrs(&mut self, file: &FileHandle) -> OpResult<Extent> {
        let operation = || StoreRequest::ListXattrs(*file);
        let answerer = self.answerer([file], Effort::Plain, operation)?;
        Ok(ask!(self, answerer, Xattr octets, |store, lender| store.list_xattrs(lender, file))?)
    }

    pub(in crate::v4) fn get_acls(&mut self, object: &FileHandle) -> OpResult<Extent> {
        let operation = || StoreRequest::GetAcls(*object);
        let answerer = self.answerer([object], Effort::Plain, operation)?;
        Ok(ask!(self, answerer, Xattr octets, |store, lender| store.get_acls(lender, object))?)
    }

    /// The saved and the current file of a copy, both checked by their stateids (RFC 7862 §15.2.3).
    pub(in crate::v4) fn both_files(
        &mut self,
        source: Stateid,
        target: Stateid,
    ) -> OpResult<(FileHandle, FileHandle)> {
        let saved = self.saved()?;
        // COPY and CLONE have no status for a wrong flavor.
        if self.refuses(&saved) {
            return Err(Status4::Access.into());
        }
        let from = saved.object(Status4::IsDir)?;
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
