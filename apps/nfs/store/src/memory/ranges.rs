//! SEEK, ALLOCATE, DEALLOCATE and COPY on files in memory (RFC 7862 §15). CLONE is not supported: a
//! slot shared by two files could not be changed when the store is full.

use stag_protocol::nfs::v3::{FileHandle, StableHow};

use super::{Intent, Memory, handle::InodeId};
use crate::{
    COPY_MAX, CopyDone, Failed, FileAttributes, FilePlace, FileSpan, ObjectChange, SeekDone,
    SeekFor, Status, Store as _, StoreResult, WritePayload,
};

/// Pieces of data and holes per COPY at most.
const PIECES_MAX: u32 = 256;

/// Bytes that were copied from one block, or left out.
enum CopiedPiece {
    Data(u64),
    Hole(u64),
}

impl Memory {
    pub(super) fn seek_content(
        &self,
        file: &FileHandle,
        offset: u64,
        what: SeekFor,
    ) -> StoreResult<SeekDone> {
        let id = self.resolve(file, Intent::Look)?;
        let attributes = self.attributes(id)?;
        let about = |status| Failed { status, about: Some(attributes) };
        let content = self.inodes.get(id)?.content().map_err(about)?;
        // RFC 7862 §15.11.3 [7862-11]: a SEEK at or past the end of the file is NFS4ERR_NXIO
        if offset >= content.size() {
            return Err(about(Status::NxIo));
        }
        let found = content.seek(offset, what);
        Ok(SeekDone { eof: found == content.size(), offset: found })
    }

    /// Changes the slots of a span of a file by `change`.
    pub(super) fn change_span(
        &mut self,
        file: &FileHandle,
        span: FileSpan,
        change: impl FnOnce(&mut Self, InodeId, u64, u64) -> Result<(), Status>,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        let id = self.resolve(file, Intent::Change)?;
        let before = self.attributes(id)?;
        let outcome = self.changed_span(id, span, change);
        self.changed(id, &before, outcome).map(|((), about)| about)
    }

    fn changed_span(
        &mut self,
        id: InodeId,
        span: FileSpan,
        change: impl FnOnce(&mut Self, InodeId, u64, u64) -> Result<(), Status>,
    ) -> Result<(), Status> {
        self.inodes.get(id)?.content()?;
        if span.len == 0 {
            return Err(Status::Inval);
        }
        let end = span.end().ok_or(Status::FBig)?;
        change(self, id, span.offset, end)?;
        self.note_change(id)
    }

    /// Records a change of content.
    fn note_change(&mut self, id: InodeId) -> Result<(), Status> {
        let now = self.now();
        let meta = &mut self.inodes.get_mut(id)?.meta;
        (meta.mtime, meta.ctime) = (now, now);
        self.drop_set_id(id)
    }

    pub(super) fn allocate_in(&mut self, id: InodeId, from: u64, to: u64) -> Result<(), Status> {
        self.inodes.get_mut(id)?.content_mut()?.allocate(&self.space, from, to)
    }

    pub(super) fn punch_in(&mut self, id: InodeId, from: u64, to: u64) -> Result<(), Status> {
        self.inodes.get_mut(id)?.content_mut()?.punch(&self.space, from, to)
    }

    pub(super) fn copy_range(
        &mut self,
        from: FilePlace,
        to: FilePlace,
        count: u64,
    ) -> StoreResult<CopyDone, ObjectChange> {
        let source = self.resolve(&from.file, Intent::Look)?;
        let target = self.resolve(&to.file, Intent::Change)?;
        let before: FileAttributes = self.attributes(target)?;
        let outcome = self.span_to_copy(source, target, from.offset, count).and_then(|len| {
            self.copy_octets(source, from.offset, target, FileSpan { offset: to.offset, len })
        });
        let (count, file) = self.changed(target, &before, outcome)?;
        Ok(CopyDone { count, committed: StableHow::FileSync, verifier: self.verifier(), file })
    }

    /// The bytes that a COPY may copy.
    fn span_to_copy(
        &self,
        source: InodeId,
        target: InodeId,
        offset: u64,
        count: u64,
    ) -> Result<u64, Status> {
        self.must_share_export(source, target)?;
        self.inodes.get(target)?.content()?;
        let size = self.inodes.get(source)?.content()?.size();
        // RFC 7862 §15.2.3: no copy from a file to itself, nor from past its end
        let rest = size.checked_sub(offset).filter(|rest| count <= *rest).ok_or(Status::Inval)?;
        if source == target {
            return Err(Status::Inval);
        }
        Ok(if count == 0 { rest } else { count })
    }

    fn copy_octets(
        &mut self,
        source: InodeId,
        offset: u64,
        target: InodeId,
        span: FileSpan,
    ) -> Result<u64, Status> {
        span.end().ok_or(Status::FBig)?;
        let (mut octets, mut done) = (COPY_MAX, 0);
        for _ in 0..PIECES_MAX {
            if done >= span.len || octets == 0 {
                break;
            }
            let rest = FileSpan { offset: span.offset + done, len: span.len - done };
            match self.copy_piece(source, offset + done, target, rest) {
                Ok(CopiedPiece::Hole(0) | CopiedPiece::Data(0)) => break,
                Ok(CopiedPiece::Hole(count)) => done += count,
                Ok(CopiedPiece::Data(count)) => {
                    done += count;
                    octets = octets.saturating_sub(count);
                }
                Err(status) if done == 0 => return Err(status),
                Err(_) => break,
            }
        }
        self.copied(target, done)
    }

    /// Copies the bytes at `offset` that are stored in one block, or leaves a hole up to the next
    /// stored byte.
    fn copy_piece(
        &mut self,
        source: InodeId,
        offset: u64,
        target: InodeId,
        span: FileSpan,
    ) -> Result<CopiedPiece, Status> {
        let content = self.inodes.get(source)?.content()?;
        let data = content.seek(offset, SeekFor::Data);
        let to = span.offset;
        if data > offset {
            let len = span.len.min(data - offset);
            let content = self.inodes.get_mut(target)?.content_mut()?;
            content.punch(&self.space, to, to + len)?;
            content.set_size(content.size().max(to + len));
            return Ok(CopiedPiece::Hole(len));
        }
        let len = content.stored_at(offset).min(span.len);
        let octets = content.read(&self.space, offset, u32::try_from(len).unwrap_or(u32::MAX));
        let content = self.inodes.get_mut(target)?.content_mut()?;
        let mut done = 0;
        for part in octets.iter() {
            match content.write(&self.space, to + done, &WritePayload::from(&part[..])) {
                Ok(count) => {
                    done += u64::from(count);
                    if (count as usize) < part.len() {
                        break;
                    }
                }
                Err(status) if done == 0 => return Err(status),
                Err(_) => break,
            }
        }
        Ok(CopiedPiece::Data(done))
    }

    fn copied(&mut self, target: InodeId, done: u64) -> Result<u64, Status> {
        if done > 0 {
            self.note_change(target)?;
        }
        Ok(done)
    }
}
