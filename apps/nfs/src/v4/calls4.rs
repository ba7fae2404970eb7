//! The calls that operations of version 4 alone make to the store (RFC 7862, RFC 8276).

use stag_pools::Extent;
use stag_protocol::nfs::{
    v3::FileHandle,
    v4::{Stateid, Status4},
};

use super::{
    state::IoAccess,
    stateids::file_id,
    turn::{Done, Stop, Turn},
};
use crate::store::{
    CopyDone, FilePlace, FileSpan, FoundObject, Lender, ObjectChange, Procedures4, SeekDone,
    SeekFor, Store, StoreLimits, XattrMode,
};

impl<S: Store> Turn<'_, '_, S> {
    /// Lets the store carry out a call.
    fn ask4<T>(&mut self, run: impl FnOnce(&mut dyn Procedures4, &Lender<'_>) -> T) -> T {
        self.act();
        let cx = &*self.cx;
        run(self.store.now(), &|len| cx.take(len))
    }

    pub(super) fn parent_of(&mut self, directory: &FileHandle) -> Done<FoundObject> {
        Ok(self.ask4(|store, _| store.lookupp(directory))?)
    }

    /// Keeps a file although its last name goes, until nobody has state of it. Where that cannot
    /// be, it goes with its last name.
    pub(super) fn pin(&mut self, file: &FileHandle) {
        if !self.nfs4.state.has_file(file_id(file))
            && self.ask4(|store, _| store.pin(file)).is_err()
        {
            self.nfs4.tally.unpinned += 1;
        }
    }

    pub(super) fn seek(&mut self, file: &FileHandle, offset: u64, what: SeekFor) -> Done<SeekDone> {
        Ok(self.ask4(|store, _| store.seek(file, offset, what))?)
    }

    pub(super) fn allocate(&mut self, file: &FileHandle, span: FileSpan) -> Done<ObjectChange> {
        Ok(self.ask4(|store, _| store.allocate(file, span))?)
    }

    pub(super) fn deallocate(&mut self, file: &FileHandle, span: FileSpan) -> Done<ObjectChange> {
        Ok(self.ask4(|store, _| store.deallocate(file, span))?)
    }

    pub(super) fn copy_octets(
        &mut self,
        from: FilePlace,
        to: FilePlace,
        count: u64,
    ) -> Done<CopyDone> {
        Ok(self.ask4(|store, _| store.copy(from, to, count))?)
    }

    pub(super) fn clone_octets(
        &mut self,
        from: FilePlace,
        to: FilePlace,
        count: u64,
    ) -> Done<ObjectChange> {
        Ok(self.ask4(|store, _| store.clone_range(from, to, count))?)
    }

    pub(super) fn get_xattr(&mut self, file: &FileHandle, name: &[u8]) -> Done<Extent> {
        self.ask4(|store, lender| store.get_xattr(lender, file, name)).map_err(of_xattr)
    }

    pub(super) fn list_xattrs(&mut self, file: &FileHandle) -> Done<Extent> {
        self.ask4(|store, lender| store.list_xattrs(lender, file)).map_err(of_xattr)
    }

    pub(super) fn set_xattr(
        &mut self,
        file: &FileHandle,
        name: &[u8],
        value: &[u8],
        how: XattrMode,
    ) -> Done<ObjectChange> {
        self.ask4(|store, _| store.set_xattr(file, name, value, how)).map_err(of_xattr)
    }

    pub(super) fn remove_xattr(&mut self, file: &FileHandle, name: &[u8]) -> Done<ObjectChange> {
        self.ask4(|store, _| store.remove_xattr(file, name)).map_err(of_xattr)
    }

    pub(super) fn limits(&mut self, object: &FileHandle) -> Done<StoreLimits> {
        Ok(self.ask4(|store, _| store.limits(object))?)
    }

    /// The saved and the current file of a copy, both judged by their stateids (RFC 7862 §15.2.3).
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
        self.check_io(&from, source, IoAccess::Read)?;
        self.check_io(&to, target, IoAccess::Write)?;
        Ok((from, to))
    }
}

/// Statuses of extended attributes (RFC 8276 §8.5), which stores tell by others.
fn of_xattr<About>(failed: crate::store::Failed<About>) -> Stop {
    match Stop::from(failed.status) {
        Stop::Fail(Status4::NoEnt) => Status4::NoXattr.into(),
        Stop::Fail(Status4::TooSmall) => Status4::Xattr2Big.into(),
        stop => stop,
    }
}
