//! TEST_STATEID and FREE_STATEID (RFC 8881 §18.48, §18.38).

use stag_protocol::{
    nfs::v4::{Array, Operation, Stateid, Status4},
    xdr::Codec as _,
};

use crate::v4::context::{CompoundContext, OpResult};
use stag_nfs_store::Store;

pub(super) fn test_stateid<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    stateids: &Array<'_, Stateid>,
) -> OpResult {
    let client = context.client_key()?;
    let count = u32::try_from(stateids.len()).map_err(|_| Status4::BadXdr)?;
    let state = &context.nfs4.state;
    let written = context.compound.reply.write(|writer| {
        writer.words([Operation::TestStateid as u32, Status4::Ok as u32, count])?;
        stateids.items().try_for_each(|stateid| state.test(client, &stateid).emit(writer))
    });
    written.map_err(|_| Status4::ServerFault.into())
}

pub(super) fn free_stateid<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    stateid: &Stateid,
) -> OpResult {
    let stateid = context.stateid(*stateid)?;
    let client = context.client_key()?;
    context.nfs4.free_stateid(client, &stateid, context.cx.now())?;
    context.put(&stag_protocol::nfs::v4::Answer::FreeStateid(Ok(())))
}
