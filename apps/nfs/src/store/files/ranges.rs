//! SEEK, ALLOCATE, DEALLOCATE, COPY and CLONE (RFC 7862 §15).

use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::Errno;
use stag_nfs_os::clone::clone_range;
use stag_protocol::nfs::v3::{FileHandle, StableHow, Status};

use super::cache::FileSlotId;
use super::data::Want;
use super::errno::status;
use super::{Files, Intent};
use crate::store::{
    CopyDone, Failed, FilePlace, FileSpan, ObjectChange, SeekDone, SeekFor, StoreResult,
    TRANSFER_MAX,
};

/// Octets that one COPY brings at most: as long as the longest READ, for nobody else is served
/// meanwhile.
const COPY_LEN: u64 = TRANSFER_MAX as u64;

/// The files of a call about two, and the octets that it is about.
struct RangePair {
    source: FileSlotId,
    target: FileSlotId,
    from: u64,
    to: u64,
    len: u64,
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
        // RFC 7862 §15.11.3: behind the end of the file there is nothing to find
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
        Ok(())
    }

    /// Opens both files of a COPY or CLONE and judges the octets that it is about.
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
        // RFC 7862 §15.2.3, §15.13.3: nothing is copied that lies behind the source's end
        let rest = before[0].size.checked_sub(from.offset).filter(|rest| count <= *rest);
        let rest = rest.ok_or(Status::Inval)?;
        let len = if count == 0 { rest } else { count };
        FileSpan { offset: to.offset, len }.end().ok_or(Status::FBig)?;
        Ok(RangePair { source, target, from: from.offset, to: to.offset, len })
    }

    pub(super) fn copy_content(
        &mut self,
        from: FilePlace,
        to: FilePlace,
        count: u64,
    ) -> StoreResult<CopyDone, ObjectChange> {
        let pair = self.range_pair(from, to, count)?;
        // RFC 7862 §15.2.3: a file is not copied to itself
        if pair.source == pair.target {
            return Err(Status::Inval.into());
        }
        let verifier = self.shared.verifier();
        let outcome = self.copied(&pair);
        let (count, file) = self.changed(pair.target, outcome)?;
        Ok(CopyDone { count, committed: StableHow::Unstable, verifier, file })
    }

    fn copied(&mut self, pair: &RangePair) -> Result<u64, Status> {
        let (mut from, mut to) = (pair.from, pair.to);
        let (len, mut done) = (pair.len.min(COPY_LEN), 0);
        self.cache.get_mut(pair.target).unsynced |= len > 0;
        while done < len {
            let wanted = usize::try_from(len - done).unwrap_or(usize::MAX);
            let (source, target) = (self.cache.data(pair.source), self.cache.data(pair.target));
            match copy_file_range(source, Some(&mut from), target, Some(&mut to), wanted) {
                // The source was cut meanwhile.
                Ok(0) => break,
                Ok(count) => done += count as u64,
                Err(Errno::INTR) => {}
                Err(_) if done > 0 => break,
                // The client reads and writes instead.
                Err(Errno::XDEV | Errno::INVAL) => return Err(Status::NotSupp),
                Err(error) => return Err(status(error)),
            }
        }
        Ok(done)
    }

    pub(super) fn clone_content(
        &mut self,
        from: FilePlace,
        to: FilePlace,
        count: u64,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        let pair = self.range_pair(from, to, count)?;
        let cloned = if pair.len == 0 {
            Ok(())
        } else {
            let (source, target) = (self.cache.data(pair.source), self.cache.data(pair.target));
            clone_range(source, pair.from, pair.len, target, pair.to)
        };
        let outcome = cloned.map_err(|error| match error {
            // File systems without it know no such request, or say so.
            Errno::NOTTY | Errno::XDEV | Errno::OPNOTSUPP => Status::NotSupp,
            error => status(error),
        });
        if outcome.is_ok() {
            self.cache.get_mut(pair.target).unsynced = true;
        }
        self.changed(pair.target, outcome).map(|((), about)| about)
    }
}
