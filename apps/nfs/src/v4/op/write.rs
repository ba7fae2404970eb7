//! WRITE and COMMIT (RFC 8881 §18.32, §18.3).

use stag_protocol::nfs::{
    v3::StableHow,
    v4::{Answer, Commit4Args, Status4, Write4Args, Write4Ok},
};

use super::read::wrong_type;
use crate::v4::context::{CompoundContext, OpResult};
use stag_nfs_store::{Store, TRANSFER_MAX};
use stag_nfs4_state::IoAccess;

/// The data go from the pieces of the call straight to the file, or become the file. A WRITE above
/// the largest size is done in part.
pub(super) fn write<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &Write4Args<'_>,
) -> OpResult {
    let node = context.current()?;
    let file = node.object(Status4::IsDir)?;
    context.check_io(&file, args.stateid, IoAccess::Write)?;
    let octets = args.data.octets().unwrap_or_default();
    let octets = octets.get(..TRANSFER_MAX as usize).unwrap_or(octets);
    let done = match context.write_file(&file, args.offset, octets, args.stable) {
        Ok(done) => done,
        Err(stop) => return Err(wrong_type(context, &file, stop)),
    };
    context.nfs4.tally.data.octets_written += u64::from(done.count);
    context.nfs4.tally.data.unstable_writes += u64::from(done.committed == StableHow::Unstable);
    let (count, committed, verifier) = (done.count, done.committed, done.verifier);
    context.put(&Answer::Write(Ok(Write4Ok { count, committed, verifier })))
}

/// The whole file is made stable, whatever range is requested.
pub(super) fn commit<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &Commit4Args,
) -> OpResult {
    let node = context.current()?;
    let file = node.object(Status4::IsDir)?;
    // RFC 8881 §18.3.3: a range that ends beyond the largest offset is invalid.
    if args.offset.checked_add(u64::from(args.count)).is_none() {
        return Err(Status4::Inval.into());
    }
    let done = match context.commit(&file) {
        Ok(done) => done,
        Err(stop) => return Err(wrong_type(context, &file, stop)),
    };
    context.nfs4.tally.data.commits += 1;
    context.put(&Answer::Commit(Ok(done.verifier)))
}
