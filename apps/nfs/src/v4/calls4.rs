//! Store calls that only operations of version 4 make (RFC 7862, RFC 8276).

use stag_pools::Extent;
use stag_protocol::nfs::{
    v3::FileHandle,
    v4::{Stateid, Status4},
};

use super::{
    calls::ask,
    stateids::file_id,
    turn::{Done, Stop, Turn},
    waits::Answerer,
};
use stag_nfs_store::{
    CopyDone, Effort, FilePlace, FileSpan, FoundObject, Lender, ObjectChange, OwnedName,
    Procedures4 as _, SeekDone, SeekFor, Store, StoreLimits, StoreOutcome, StoreRequest, XattrMode,
};
use stag_nfs4_state::IoAccess;

impl<S: Store> Turn<'_, '_, S> {
    pub(super) fn parent_of(&mut self, directory: &FileHandle) -> Done<FoundObject> {
        let operation = || StoreRequest::LookupParent(*directory);
        let answerer = self.answerer([directory], Effort::Plain, operation)?;
        Ok(ask!(self, answerer, Found, |store, _| store.lookupp(directory))?)
    }

    /// Keeps a file after its last name is removed, as long as a client has state of it. If that is
    /// not possible, it goes with its last name.
    pub(super) fn pin(&mut self, file: &FileHandle) {
        let is_pinned = self.journal.pinned.take_if(|pinned| pinned == file).is_some();
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

    pub(super) fn seek(&mut self, file: &FileHandle, offset: u64, what: SeekFor) -> Done<SeekDone> {
        let operation = || StoreRequest::Seek(*file, offset, what);
        let answerer = self.answerer([file], Effort::Plain, operation)?;
        Ok(ask!(self, answerer, Sought, |store, _| store.seek(file, offset, what))?)
    }

    pub(super) fn allocate(&mut self, file: &FileHandle, span: FileSpan) -> Done<ObjectChange> {
        let operation = || StoreRequest::Allocate(*file, span);
        let answerer = self.answerer([file], Effort::Change, operation)?;
        Ok(ask!(self, answerer, Changed, |store, _| store.allocate(file, span))?)
    }

    pub(super) fn deallocate(&mut self, file: &FileHandle, span: FileSpan) -> Done<ObjectChange> {
        let operation = || StoreRequest::Deallocate(*file, span);
        let answerer = self.answerer([file], Effort::Change, operation)?;
        Ok(ask!(self, answerer, Changed, |store, _| store.deallocate(file, span))?)
    }

    pub(super) fn copy_octets(
        &mut self,
        from: FilePlace,
        to: FilePlace,
        count: u64,
    ) -> Done<CopyDone> {
        let operation = || StoreRequest::Copy { from, to, count };
        let answerer = self.answerer([&from.file, &to.file], Effort::Long, operation)?;
        Ok(ask!(self, answerer, Copied, |store, _| store.copy(from, to, count))?)
    }

    pub(super) fn clone_octets(
        &mut self,
        from: FilePlace,
        to: FilePlace,
        count: u64,
    ) -> Done<ObjectChange> {
        let operation = || StoreRequest::Clone { from, to, count };
        let answerer = self.answerer([&from.file, &to.file], Effort::Change, operation)?;
        Ok(ask!(self, answerer, Changed, |store, _| store.clone_range(from, to, count))?)
    }

    pub(super) fn get_xattr(&mut self, file: &FileHandle, name: &[u8]) -> Done<Extent> {
        let operation = || StoreRequest::GetXattr(OwnedName::new(*file, name));
        let answerer = self.answerer([file], Effort::Plain, operation)?;
        ask!(self, answerer, Xattr octets, |store, lender| store.get_xattr(lender, file, name))
            .map_err(of_xattr)
    }

    pub(super) fn list_xattrs(&mut self, file: &FileHandle) -> Done<Extent> {
        let operation = || StoreRequest::ListXattrs(*file);
        let answerer = self.answerer([file], Effort::Plain, operation)?;
        ask!(self, answerer, Xattr octets, |store, lender| store.list_xattrs(lender, file))
            .map_err(of_xattr)
    }

    pub(super) fn set_xattr(
        &mut self,
        file: &FileHandle,
        name: &[u8],
        value: &[u8],
        how: XattrMode,
    ) -> Done<ObjectChange> {
        let operation = || StoreRequest::SetXattr(OwnedName::new(*file, name), how);
        let answerer = self.answerer_with([file], Effort::Change, value, operation)?;
        ask!(self, answerer, Changed, |store, _| store.set_xattr(file, name, value, how))
            .map_err(of_xattr)
    }

    pub(super) fn remove_xattr(&mut self, file: &FileHandle, name: &[u8]) -> Done<ObjectChange> {
        let operation = || StoreRequest::RemoveXattr(OwnedName::new(*file, name));
        let answerer = self.answerer([file], Effort::Change, operation)?;
        ask!(self, answerer, Changed, |store, _| store.remove_xattr(file, name)).map_err(of_xattr)
    }

    pub(super) fn limits(&mut self, object: &FileHandle) -> Done<StoreLimits> {
        let operation = || StoreRequest::Limits(*object);
        let answerer = self.answerer([object], Effort::Plain, operation)?;
        Ok(ask!(self, answerer, Limits, |store, _| store.limits(object))?)
    }

    /// The saved and the current file of a copy, both checked by their stateids (RFC 7862 §15.2.3).
    pub(super) fn both_files(
        &mut self,
        source: Stateid,
        target: Stateid,
    ) -> Done<(FileHandle, FileHandle)> {
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
fn of_xattr<About>(failed: stag_nfs_store::Failed<About>) -> Stop {
    match Stop::from(failed.status) {
        // RFC 8276 §8.4.1.3 [8276-2]: an attribute that is not there has a status of its own
        Stop::Fail(Status4::NoEnt) => Status4::NoXattr.into(),
        Stop::Fail(Status4::TooSmall) => Status4::Xattr2Big.into(),
        stop => stop,
    }
}
