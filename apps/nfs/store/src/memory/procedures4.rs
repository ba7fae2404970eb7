//! Version 4 procedures of [`Memory`], and reads into given buffers.

use stag_pools::Extent;
use stag_protocol::nfs::v3::FileHandle;

use super::{Intent, Memory};
use crate::{
    CopyDone, Failed, FilePlace, FileSpan, FillRoom, FilledLink, FilledRead, FoundObject, Lender,
    ObjectChange, Procedures, Procedures4, SeekDone, SeekFor, Status, StoreLimits, StoreResult,
    TRANSFER_MAX, XATTR_MAX, XattrMode, call::execute::filled_extent,
};

impl Memory {
    fn parent_of(&self, directory: &FileHandle) -> StoreResult<FoundObject> {
        let id = self.directory(directory, Intent::Look)?;
        let attributes = self.attributes(id)?;
        let failed = |status| Failed { status, about: Some(attributes) };
        let above = self.above(id).map_err(failed)?;
        if above == id {
            return Err(failed(Status::NoEnt));
        }
        let (handle, found) = self.object(above).map_err(failed)?;
        Ok(FoundObject { handle, attributes: found, directory: Some(attributes) })
    }
}

impl Procedures4 for Memory {
    fn lookupp(&mut self, directory: &FileHandle) -> StoreResult<FoundObject> {
        self.parent_of(directory)
    }

    fn pin(&mut self, file: &FileHandle) -> Result<(), Status> {
        self.pin_file(file)
    }

    fn seek(&mut self, file: &FileHandle, at: u64, what: SeekFor) -> StoreResult<SeekDone> {
        self.seek_content(file, at, what)
    }

    fn allocate(
        &mut self,
        file: &FileHandle,
        span: FileSpan,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        self.change_span(file, span, Self::allocate_in)
    }

    fn deallocate(
        &mut self,
        file: &FileHandle,
        span: FileSpan,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        self.change_span(file, span, Self::punch_in)
    }

    fn copy(
        &mut self,
        from: FilePlace,
        to: FilePlace,
        count: u64,
    ) -> StoreResult<CopyDone, ObjectChange> {
        self.copy_range(from, to, count)
    }

    fn get_xattr(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        name: &[u8],
    ) -> StoreResult<Extent> {
        filled_extent(lender, XATTR_MAX, |room| self.fill_xattr(file, name, room))
    }

    fn list_xattrs(&mut self, lender: &Lender<'_>, file: &FileHandle) -> StoreResult<Extent> {
        filled_extent(lender, XATTR_MAX, |room| self.fill_xattr_names(file, room))
    }

    fn set_xattr(
        &mut self,
        file: &FileHandle,
        name: &[u8],
        value: &[u8],
        how: XattrMode,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        self.change_xattr(file, name, Some(value), how)
    }

    fn remove_xattr(
        &mut self,
        file: &FileHandle,
        name: &[u8],
    ) -> StoreResult<ObjectChange, ObjectChange> {
        self.change_xattr(file, name, None, XattrMode::Replace)
    }

    fn limits(&mut self, object: &FileHandle) -> Result<StoreLimits, Status> {
        self.resolve(object, Intent::Look)?;
        Ok(StoreLimits {
            clone_block: None,
            has_xattrs: true,
            has_acls: false,
            time_delta_ns: 1,
            change_grows: true,
        })
    }
}

/// For the calls of guests, which copy the bytes.
impl FillRoom for Memory {
    fn fill_read(
        &mut self,
        file: &FileHandle,
        offset: u64,
        room: &mut [u8],
    ) -> StoreResult<FilledRead> {
        let count = u32::try_from(room.len()).unwrap_or(TRANSFER_MAX);
        let done = self.read(&|_| None, file, offset, count)?;
        let mut filled = 0;
        for extent in done.data.iter() {
            let to = room.get_mut(filled..).unwrap_or_default();
            let len = extent.len().min(to.len());
            let (to, from) = (to.split_at_mut(len).0, extent.split_at(len).0);
            to.copy_from_slice(from);
            filled += len;
        }
        let (count, attributes) = (done.data.len() as u32, self.getattr(file)?);
        Ok(FilledRead { count, eof: done.eof, attributes })
    }

    fn fill_link(&mut self, link: &FileHandle, room: &mut [u8]) -> StoreResult<FilledLink> {
        let done = self.readlink(&|_| None, link)?;
        room.iter_mut().zip(done.target.iter()).for_each(|(to, from)| *to = *from);
        Ok(FilledLink { count: done.target.len() as u32, attributes: done.attributes })
    }

    fn fill_xattr(&mut self, file: &FileHandle, name: &[u8], room: &mut [u8]) -> StoreResult<u32> {
        self.xattr(file, name, |value| {
            let room = room.get_mut(..value.len()).ok_or(Status::TooSmall)?;
            room.copy_from_slice(value);
            Ok(value.len() as u32)
        })
    }

    fn fill_xattr_names(&mut self, file: &FileHandle, room: &mut [u8]) -> StoreResult<u32> {
        let mut len = 0;
        self.xattr_names(file, &mut |name| {
            let end = len + name.len();
            let place = room.get_mut(len..=end).ok_or(Status::TooSmall)?;
            let (text, zero) = place.split_at_mut(name.len());
            text.copy_from_slice(name);
            zero.fill(0);
            len = end + 1;
            Ok(())
        })?;
        Ok(len as u32)
    }
}
