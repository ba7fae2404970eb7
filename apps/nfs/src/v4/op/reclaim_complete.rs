//! RECLAIM_COMPLETE (RFC 8881 §18.51).

use stag_protocol::nfs::v4::Answer;

use crate::v4::context::{Done, Turn};
use stag_nfs_store::Store;

pub(super) fn reclaim_complete<S: Store>(turn: &mut Turn<'_, '_, S>, one_fs: bool) -> Done {
    if one_fs {
        turn.current()?;
    }
    let (client, now) = (turn.client()?, turn.cx.now());
    // For one file system it changes nothing.
    if !one_fs {
        turn.nfs4.complete_reclaims(client, now)?;
    }
    turn.put(&Answer::ReclaimComplete(Ok(())))
}
