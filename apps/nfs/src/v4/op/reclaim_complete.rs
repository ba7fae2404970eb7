//! RECLAIM_COMPLETE (RFC 8881 §18.51).

use stag_protocol::nfs::v4::{Answer, Status4};

use crate::{
    store::Store,
    v4::turn::{Done, Turn},
};

pub(super) fn reclaim_complete<S: Store>(turn: &mut Turn<'_, '_, S>, one_fs: bool) -> Done {
    if one_fs {
        turn.current()?;
    }
    let id = turn.client()?;
    let nfs4 = &mut *turn.nfs4;
    let client = nfs4.clients.get_mut(id).ok_or(Status4::StaleClientid)?;
    nfs4.grace.complete(&mut client.reclaim, one_fs)?;
    turn.put(&Answer::ReclaimComplete(Ok(())))
}
