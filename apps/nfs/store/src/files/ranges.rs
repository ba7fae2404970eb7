//! SEEK, ALLOCATE, DEALLOCATE, COPY and CLONE (RFC 7862 §15).

use rustix::{
    fs::{FallocateFlags, OFlags, SeekFrom, fallocate, seek},
    io::{Errno, fcntl_dupfd_cloexec},
};
use stag_nfs_os::clone::clone_range;
use stag_protocol::nfs::v3::{FileHandle, StableHow, Status};

use super::{
    Files, Intent,
    cache::{FileSlotId, OpenData},
    data::Want,
    errno::status,
};
use crate::{
    CopyDone, Failed, FilePlace, FileSpan, ObjectChange, SeekDone, SeekFor, StoreResult,
    exports::handle::FileId,
    helpers::{
        OwedCopy,
        content_copy::{CopyBudget, CopySpan, copy_span},
    },
};

/// Copies up to this length are made at once: a helper would cost more.
const SHORT_COPY: u64 = 128 << 10;

/// The files of a call on two, and the bytes concerned.
struct RangePair {
    source: FileSlotId,
    target: FileSlotId,
    span: CopySpan,
}

/// A COPY as far as a shard carries it out.
pub(super) enum CopyBegun {
    Done(StoreResult<CopyDone, ObjectChange>),
    /// The work for a helper, and the parts of the answer once its bytes are counted.
    Owed {
        work: OwedCopy,
        target: FileId,
        done: CopyDone,
    },
}

impl Files {
    pub(super) fn seek_content(
        &mut self,
        file: &FileHandle,
        offset: u64,
        what: SeekFor,
    ) -> StoreResult<SeekDone> {
        let slot = self.resolve(file, Intent::Look)?;
        let outcome = self.sought(slot, offset, what);
        outcome.map_err(|status| Failed { status, about: self.attributes(slot).ok() })
    }

    fn sought(&mut self, slot: FileSlotId, offset: u64, what: SeekFor) -> Result<SeekDone, Status> {
        let found = self.attributes(slot)?;
        self.review(slot, &found);
        let data = self.data(slot, Want::Read)?;
        // RFC 7862 §15.11.3: past the end of the file there is nothing to find
        if offset >= found.size {
            return Err(Status::NxIo);
        }
        let whence = match what {
            SeekFor::Data => SeekFrom::Data(offset),
            SeekFor::Hole => SeekFrom::Hole(offset),
        };
        match seek(data, whence) {
            Ok(place) => Ok(SeekDone { eof: place >= found.size, offset: place }),
            // No data from there to the end.
            Err(Errno::NXIO) => Ok(SeekDone { eof: true, offset: found.size }),
            Err(error) => Err(status(error)),
        }
    }

    pub(super) fn allocate_span(
        &mut self,
        file: &FileHandle,
        span: FileSpan,
        how: FallocateFlags,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        let slot = self.resolve(file, Intent::Change)?;
        let outcome = self.allocated(slot, span, how);
        self.changed(slot, outcome).map(|((), about)| about)
    }

    fn allocated(
        &mut self,
        slot: FileSlotId,
        span: FileSpan,
        how: FallocateFlags,
    ) -> Result<(), Status> {
        let before = self.attributes(slot)?;
        self.review(slot, &before);
        self.data(slot, Want::Write)?;
        if span.len == 0 {
            return Err(Status::Inval);
        }
        span.end().ok_or(Status::FBig)?;
        let change = |files: &Self| fallocate(files.cache.data(slot), how, span.offset, span.len);
        self.insist(&[slot], change).map_err(status)?;
        self.cache.get_mut(slot).unsynced = true;
        // No COMMIT follows: an acknowledged change is stable, as after a SETATTR of the size.
        self.sync_object(slot)
    }

    /// Opens both files of a COPY or CLONE and checks the bytes concerned.
    fn range_pair(
        &mut self,
        from: FilePlace,
        to: FilePlace,
        count: u64,
    ) -> Result<RangePair, Failed<ObjectChange>> {
        let source = self.resolve(&from.file, Intent::Look)?;
        let target = self.resolve_beside(&to.file, Intent::Change, Some(source))?;
        self.same_export(source, target)?;
        let before = [self.attributes(source)?, self.attributes(target)?];
        self.review(source, &before[0]);
        self.review(target, &before[1]);
        self.cache.pair(source, target);
        let opened = self
            .data(source, Want::Read)
            .map(drop)
            .and_then(|()| self.data(target, Want::Write).map(drop));
        self.cache.part();
        opened?;
        // RFC 7862 §15.2.3, §15.13.3: nothing is copied from past the source's end
        let rest = before[0].size.checked_sub(from.offset).filter(|rest| count <= *rest);
        let rest = rest.ok_or(Status::Inval)?;
        let len = if count == 0 { rest } else { count };
        FileSpan { offset: to.offset, len }.end().ok_or(Status::FBig)?;
        let span = CopySpan { from: from.offset, to: to.offset, len };
        Ok(RangePair { source, target, span })
    }

    /// Opens both files of a COPY, which have to differ.
    fn copy_pair(
        &mut self,
        from: FilePlace,
        to: FilePlace,
        count: u64,
    ) -> Result<RangePair, Failed<ObjectChange>> {
        let pair = self.range_pair(from, to, count)?;
        // RFC 7862 §15.2.3: a file is not copied to itself
        if pair.source == pair.target {
            return Err(Status::Inval.into());
        }
        Ok(pair)
    }

    pub(super) fn copy_content(
        &mut self,
        from: FilePlace,
        to: FilePlace,
        count: u64,
    ) -> StoreResult<CopyDone, ObjectChange> {
        let pair = self.copy_pair(from, to, count)?;
        self.copied(&pair)
    }

    /// Makes a short copy, or leaves a long one to a helper.
    pub(super) fn begin_copy(&mut self, from: FilePlace, to: FilePlace, count: u64) -> CopyBegun {
        let pair = match self.copy_pair(from, to, count) {
            Ok(pair) => pair,
            Err(failed) => return CopyBegun::Done(Err(failed)),
        };
        let data = |slot| fcntl_dupfd_cloexec(self.cache.data(slot), 0);
        let files = (data(pair.source), data(pair.target));
        let (Ok(source), Ok(target)) = files else {
            return CopyBegun::Done(self.copied(&pair));
        };
        if pair.span.len <= SHORT_COPY {
            return CopyBegun::Done(self.copied(&pair));
        }
        self.cache.get_mut(pair.target).unsynced = true;
        let user = self.acting.current().map(|(user, _)| user);
        let (committed, verifier) = (StableHow::Unstable, self.shared.verifier());
        CopyBegun::Owed {
            work: OwedCopy { source, target, span: pair.span, user },
            target: self.cache.get(pair.target).identity.file,
            done: CopyDone { count: 0, committed, verifier, file: ObjectChange::default() },
        }
    }

    fn copied(&mut self, pair: &RangePair) -> StoreResult<CopyDone, ObjectChange> {
        let verifier = self.shared.verifier();
        self.cache.get_mut(pair.target).unsynced |= pair.span.len > 0;
        let (source, target) = (self.cache.data(pair.source), self.cache.data(pair.target));
        let budget = if self.is_helpers { CopyBudget::HELPER } else { CopyBudget::SHARD };
        let outcome = copy_span(source, target, pair.span, budget).map_err(copy_status);
        let (count, file) = self.changed(pair.target, outcome)?;
        Ok(CopyDone { count, committed: StableHow::Unstable, verifier, file })
    }

    /// The answer to a COPY made by a helper. The rights were checked before it began.
    pub(super) fn end_copy(
        &mut self,
        target: FileId,
        done: CopyDone,
        copied: rustix::io::Result<u64>,
    ) -> StoreResult<CopyDone, ObjectChange> {
        let slot = self.cache.look_for(target);
        if let Some(slot) = slot {
            // A COMMIT in between has not covered the last bytes.
            self.cache.get_mut(slot).unsynced = true;
            if self.cache.get(slot).data.is_none()
                && let Ok(fd) = self.reopen_to_sync(slot)
            {
                self.exchange(slot, OpenData::new(fd, OFlags::RDONLY));
            }
        }
        let after = slot.and_then(|slot| self.attributes(slot).ok());
        let file = ObjectChange { after, ..done.file };
        match copied {
            Ok(count) => Ok(CopyDone { count, file, ..done }),
            Err(error) => Err(Failed { status: copy_status(error), about: file }),
        }
    }

    pub(super) fn clone_content(
        &mut self,
        from: FilePlace,
        to: FilePlace,
        count: u64,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        let pair = self.range_pair(from, to, count)?;
        let CopySpan { from, to, len } = pair.span;
        let cloned = if len == 0 {
            Ok(())
        } else {
            let (source, target) = (self.cache.data(pair.source), self.cache.data(pair.target));
            clone_range(source, from, len, target, to)
        };
        let outcome = cloned.map_err(|error| match error {
            // File systems without it do not support the request, or say so.
            Errno::NOTTY | Errno::XDEV | Errno::OPNOTSUPP => Status::NotSupp,
            error => status(error),
        });
        let outcome = outcome.and_then(|()| {
            self.cache.get_mut(pair.target).unsynced = true;
            // Its answer has no verifier by which a loss would show.
            self.sync_object(pair.target)
        });
        self.changed(pair.target, outcome).map(|((), about)| about)
    }
}

/// The status of a failed copy. If the file system cannot copy, the client reads and writes.
fn copy_status(error: Errno) -> Status {
    match error {
        Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP => Status::NotSupp,
        error => status(error),
    }
}
