//! RECLAIM_COMPLETE (RFC 8881 §18.51).

use stag_protocol::nfs::v4::Answer;

use crate::v4::context::{CompoundContext, OpResult};
use stag_nfs_store::Store;

pub(super) fn reclaim_complete<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    one_fs: bool,
) -> OpResult {
    if one_fs {
        context.current()?;
    }
    let (client, now) = (context.client()?, context.cx.now());
    // For one file system it changes nothing.
    if !one_fs {
        context.nfs4.complete_reclaims(client, now)?;
    }
    context.put(&Answer::ReclaimComplete(Ok(())))
}
