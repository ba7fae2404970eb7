//! SEEK, ALLOCATE, DEALLOCATE, IO_ADVISE, COPY and CLONE (RFC 7862 §15).

use stag_protocol::nfs::v4::{
    Answer, Bitmap, CloneArgs, Copy4Args, Copy4Ok, CopyManner, CopyOutcome, FileContent, FileRange,
    IoAdviseArgs, SeekArgs, SeekOk, Status4,
};

use super::read::wrong_type;
use crate::v4::context::{CompoundContext, OpResult};
use stag_nfs_store::{FilePlace, FileSpan, SeekFor, Store};
use stag_nfs4_state::IoAccess;

pub(super) fn seek<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &SeekArgs,
) -> OpResult {
    let file = context.current()?.object(Status4::IsDir)?;
    let what = match args.what {
        FileContent::Data => SeekFor::Data,
        FileContent::Hole => SeekFor::Hole,
        // RFC 7862 §15.11.3 [7862-10]: content of another kind is not known here
        FileContent::Other(_) => return Err(Status4::UnionNotSupp.into()),
    };
    context.check_io(&file, args.stateid, IoAccess::Read)?;
    let done = match context.seek(&file, args.offset, what) {
        Ok(done) => done,
        Err(stop) => return Err(wrong_type(context, &file, stop)),
    };
    context.put(&Answer::Seek(Ok(SeekOk { eof: done.eof, offset: done.offset })))
}

pub(super) fn allocate<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &FileRange,
) -> OpResult {
    let file = context.current()?.object(Status4::IsDir)?;
    // RFC 7862 §15.1.3 [7862-15]: room is taken by who may write
    context.check_io(&file, args.stateid, IoAccess::Write)?;
    let span = FileSpan { offset: args.offset, len: args.length };
    if let Err(stop) = context.allocate(&file, span) {
        return Err(wrong_type(context, &file, stop));
    }
    context.put(&Answer::Allocate(Ok(())))
}

pub(super) fn deallocate<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &FileRange,
) -> OpResult {
    let file = context.current()?.object(Status4::IsDir)?;
    // RFC 7862 §15.4.3 [7862-16]: room is given back by who may write
    context.check_io(&file, args.stateid, IoAccess::Write)?;
    let span = FileSpan { offset: args.offset, len: args.length };
    if let Err(stop) = context.deallocate(&file, span) {
        return Err(wrong_type(context, &file, stop));
    }
    context.put(&Answer::Deallocate(Ok(())))
}

/// No hint is followed, and the reply reports that (RFC 7862 §15.5.3).
pub(super) fn io_advise<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &IoAdviseArgs,
) -> OpResult {
    let file = context.current()?.object(Status4::IsDir)?;
    context.check_io(&file, args.stateid, IoAccess::Read)?;
    // RFC 7862 §15.5.3 [7862-14]: the answer names the hints that are followed
    context.put(&Answer::IoAdvise(Ok(Bitmap::EMPTY)))
}

/// A copy is complete when it is answered; a long one is done in part, and the client asks for the
/// rest (RFC 7862 §15.2.3).
pub(super) fn copy<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &Copy4Args<'_>,
) -> OpResult {
    // RFC 7862 §15.2.3 [7862-12]: octets of another server are not fetched
    if !args.servers.is_empty() {
        return Err(Status4::NotSupp.into());
    }
    let (from, to) = context.both_files(args.source, args.target)?;
    let from = FilePlace { file: from, offset: args.source_offset };
    let place = FilePlace { file: to, offset: args.target_offset };
    let done = match context.copy(from, place, args.count) {
        Ok(done) => done,
        Err(stop) => return Err(wrong_type(context, &to, stop)),
    };
    let outcome = CopyOutcome {
        callback: None,
        count: done.count,
        committed: done.committed,
        verifier: done.verifier,
    };
    let manner = CopyManner { consecutive: true, synchronous: true };
    context.put(&Answer::Copy(Ok(Copy4Ok { outcome, manner })))
}

pub(super) fn clone<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &CloneArgs,
) -> OpResult {
    let (from, to) = context.both_files(args.source, args.target)?;
    let from = FilePlace { file: from, offset: args.source_offset };
    let place = FilePlace { file: to, offset: args.target_offset };
    if let Err(stop) = context.clone_range(from, place, args.count) {
        return Err(wrong_type(context, &to, stop));
    }
    context.put(&Answer::Clone(Ok(())))
}
