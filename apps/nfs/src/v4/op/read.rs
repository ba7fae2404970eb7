//! READ (RFC 8881 §18.22).

use stag_protocol::nfs::{
    Bulk,
    v3::FileKind,
    v4::{Answer, Read4Args, Read4Ok, Status4},
};

use crate::v4::context::{CompoundContext, OpExit, OpResult};
use stag_nfs_store::{ReadSpan, Store, TRANSFER_MAX};
use stag_nfs4_state::IoAccess;

/// The data go straight from the store's memory to the caller's memory.
pub(super) fn read<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &Read4Args,
) -> OpResult {
    let node = context.current()?;
    let file = node.object(Status4::IsDir)?;
    context.check_io(&file, args.stateid, IoAccess::Read)?;
    let span = ReadSpan { offset: args.offset, count: args.count.min(TRANSFER_MAX) };
    let done = match context.read(&file, span) {
        Ok(done) => done,
        Err(stop) => return Err(wrong_type(context, &file, stop)),
    };
    let count = u32::try_from(done.data.len()).map_err(|_| Status4::ServerFault)?;
    context.nfs4.tally.data.octets_read += u64::from(count);
    context.nfs4.tally.data.short_of_memory += u64::from(done.is_cut);
    let ok = Read4Ok { eof: done.eof, data: Bulk::Apart(count) };
    context.put(&Answer::Read(Ok(ok)))?;
    context.put_item(done.data)
}

/// The status of an operation on the content of an object other than a regular file (RFC 8881
/// §15.1.2.9, §18.22.4).
pub(super) fn wrong_type<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    object: &stag_protocol::nfs::v3::FileHandle,
    stop: OpExit,
) -> OpExit {
    let OpExit::Fail(status) = stop else { return stop };
    if !is_refined_by_kind(status) {
        return stop;
    }
    match context.getattr(object) {
        Ok(attributes) => status_of_kind(attributes.kind, status).into(),
        Err(stop) => stop,
    }
}

/// Returns true if the status to return depends on the kind of the object.
pub(in crate::v4) const fn is_refined_by_kind(status: Status4) -> bool {
    matches!(status, Status4::Inval | Status4::IsDir)
}

/// The status of an operation on the content of an object of this kind, which failed with `status`.
pub(in crate::v4) const fn status_of_kind(kind: FileKind, status: Status4) -> Status4 {
    match kind {
        FileKind::Regular => status,
        FileKind::Directory => Status4::IsDir,
        FileKind::Symlink => Status4::Symlink,
        _ => Status4::WrongType,
    }
}
