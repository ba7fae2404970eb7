//! TEST_STATEID and FREE_STATEID (RFC 8881 §18.48, §18.38).

use stag_protocol::{
    nfs::v4::{Array, Operation, Stateid, Status4},
    xdr::Codec as _,
};

use crate::v4::context::{Done, Turn};
use stag_nfs_store::Store;

pub(super) fn test_stateid<S: Store>(
    turn: &mut Turn<'_, '_, S>,
    stateids: &Array<'_, Stateid>,
) -> Done {
    let client = turn.client_key()?;
    let count = u32::try_from(stateids.len()).map_err(|_| Status4::BadXdr)?;
    let state = &turn.nfs4.state;
    let written = turn.reply.write(|writer| {
        writer.words([Operation::TestStateid as u32, Status4::Ok as u32, count])?;
        stateids.items().try_for_each(|stateid| state.test(client, &stateid).emit(writer))
    });
    written.map_err(|_| Status4::ServerFault.into())
}

pub(super) fn free_stateid<S: Store>(turn: &mut Turn<'_, '_, S>, stateid: &Stateid) -> Done {
    let stateid = turn.stateid(*stateid)?;
    let client = turn.client_key()?;
    turn.nfs4.free_stateid(client, &stateid, turn.cx.now())?;
    turn.put(&stag_protocol::nfs::v4::Answer::FreeStateid(Ok(())))
}
