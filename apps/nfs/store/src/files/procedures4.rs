//! Version 4 procedures of [`Files`], and reads into given buffers.

use rustix::fs::FallocateFlags;
use stag_pools::Extent;
use stag_protocol::nfs::v3::FileHandle;

use super::{Files, Intent};
use crate::{
    ACL_PAIR_MAX, AclPart, CopyDone, Failed, FilePlace, FileSpan, FillRoom, FilledLink, FilledRead,
    FoundObject, Lender, ObjectChange, Procedures4, SeekDone, SeekFor, Status, StoreLimits,
    StoreResult, XATTR_MAX, XattrMode, call::execute::filled_extent,
};

impl Procedures4 for Files {
    fn lookupp(&mut self, directory: &FileHandle) -> StoreResult<FoundObject> {
        self.noting("LOOKUPP", directory, |files| {
            let slot = files.directory(directory, Intent::Look)?;
            let attributes = files.attributes(slot)?;
            let failed = |status| Failed { status, about: Some(attributes) };
            let identity = files.cache.get(slot).identity;
            if identity == files.export_of(slot).identity() {
                return Err(failed(Status::NoEnt));
            }
            let above = files.above(slot).map_err(failed)?;
            let found = files.attributes(above).map_err(failed)?;
            let handle = files.handle_of(above);
            Ok(FoundObject { handle, attributes: found, directory: Some(attributes) })
        })
    }

    fn pin(&mut self, file: &FileHandle) -> Result<(), Status> {
        self.noting("OPEN", file, |files| files.pin_file(file))
    }

    fn seek(&mut self, file: &FileHandle, at: u64, what: SeekFor) -> StoreResult<SeekDone> {
        self.noting("SEEK", file, |files| files.seek_content(file, at, what))
    }

    fn allocate(
        &mut self,
        file: &FileHandle,
        span: FileSpan,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        self.noting("ALLOCATE", file, |files| {
            files.allocate_span(file, span, FallocateFlags::empty())
        })
    }

    fn deallocate(
        &mut self,
        file: &FileHandle,
        span: FileSpan,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        self.noting("DEALLOCATE", file, |files| {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            files.allocate_span(file, span, hole)
        })
    }

    fn copy(
        &mut self,
        from: FilePlace,
        to: FilePlace,
        count: u64,
    ) -> StoreResult<CopyDone, ObjectChange> {
        self.noting("COPY", &to.file, |files| files.copy_content(from, to, count))
    }

    fn clone_range(
        &mut self,
        from: FilePlace,
        to: FilePlace,
        count: u64,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        self.noting("CLONE", &to.file, |files| files.clone_content(from, to, count))
    }

    fn get_xattr(
        &mut self,
        lender: &Lender<'_>,
        file: &FileHandle,
        name: &[u8],
    ) -> StoreResult<Extent> {
        self.noting("GETXATTR", file, |files| {
            filled_extent(lender, XATTR_MAX, |room| files.xattr_to(file, name, room))
        })
    }

    fn list_xattrs(&mut self, lender: &Lender<'_>, file: &FileHandle) -> StoreResult<Extent> {
        self.noting("LISTXATTRS", file, |files| {
            filled_extent(lender, XATTR_MAX, |room| files.xattr_names_to(file, room))
        })
    }

    fn set_xattr(
        &mut self,
        file: &FileHandle,
        name: &[u8],
        value: &[u8],
        how: XattrMode,
    ) -> StoreResult<ObjectChange, ObjectChange> {
        self.noting("SETXATTR", file, |files| files.put_xattr(file, name, value, how))
    }

    fn remove_xattr(
        &mut self,
        file: &FileHandle,
        name: &[u8],
    ) -> StoreResult<ObjectChange, ObjectChange> {
        self.noting("REMOVEXATTR", file, |files| files.take_xattr(file, name))
    }

    fn get_acls(&mut self, lender: &Lender<'_>, file: &FileHandle) -> StoreResult<Extent> {
        self.noting("GETACL", file, |files| {
            filled_extent(lender, ACL_PAIR_MAX, |room| files.acls_to(file, room))
        })
    }

    fn set_acl(
        &mut self,
        file: &FileHandle,
        part: AclPart,
        list: &[u8],
    ) -> StoreResult<ObjectChange, ObjectChange> {
        self.noting("SETACL", file, |files| files.put_acl(file, part, list))
    }

    fn limits(&mut self, object: &FileHandle) -> Result<StoreLimits, Status> {
        self.noting("GETATTR", object, |files| {
            let slot = files.resolve(object, Intent::Look)?;
            let limits = files.export_of(slot).limits();
            Ok(StoreLimits {
                clone_block: limits.clone_block,
                has_xattrs: limits.has_xattrs,
                has_acls: limits.has_acls,
                time_delta_ns: limits.grain.delta_ns(),
                // Setting the clock back moves the times back, too.
                change_grows: false,
            })
        })
    }
}

impl FillRoom for Files {
    fn fill_read(
        &mut self,
        file: &FileHandle,
        offset: u64,
        room: &mut [u8],
    ) -> StoreResult<FilledRead> {
        self.noting("READ", file, |files| {
            let done = Files::read(files, file, offset, room)?;
            Ok(FilledRead { count: done.count, eof: done.eof, attributes: done.attributes })
        })
    }

    fn fill_link(&mut self, link: &FileHandle, room: &mut [u8]) -> StoreResult<FilledLink> {
        self.noting("READLINK", link, |files| {
            let done = Files::readlink(files, link, room)?;
            Ok(FilledLink { count: done.count, attributes: done.attributes })
        })
    }

    fn fill_xattr(&mut self, file: &FileHandle, name: &[u8], room: &mut [u8]) -> StoreResult<u32> {
        self.noting("GETXATTR", file, |files| files.xattr_to(file, name, room))
    }

    fn fill_xattr_names(&mut self, file: &FileHandle, room: &mut [u8]) -> StoreResult<u32> {
        self.noting("LISTXATTRS", file, |files| files.xattr_names_to(file, room))
    }

    fn fill_acls(&mut self, file: &FileHandle, room: &mut [u8]) -> StoreResult<u32> {
        self.noting("GETACL", file, |files| files.acls_to(file, room))
    }
}
