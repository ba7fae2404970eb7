//! DESTROY_SESSION and DESTROY_CLIENTID (RFC 8881 §18.37, §18.50).

use stag_protocol::nfs::v4::{Answer, Operation, SessionId, Status4};

use crate::v4::context::{CompoundContext, OpResult};
use stag_nfs_store::Store;

pub(super) fn destroy_session<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    id: &SessionId,
) -> OpResult {
    let is_bound = may_be_bound(context, id);
    context.associate_by_machine(id, Operation::DestroySession)?;
    // RFC 8881 §18.37.3 [8881-360]: a session is destroyed over a connection of its own
    if !is_bound {
        return Err(Status4::ConnNotBoundToSession.into());
    }
    context.nfs4.end_session(id);
    context.put(&Answer::DestroySession(Ok(())))
}

/// Returns true if the connection is associated with a session, may be at the shard that has its
/// slots, or replaces the last one: Linux unmounts over a new connection if the old one was idle.
fn may_be_bound<S: Store>(context: &CompoundContext<'_, '_, S>, id: &SessionId) -> bool {
    let Some(session) = context.nfs4.sessions.get(id) else { return false };
    session.bound.has(context.peer_at())
        || session.bound.is_empty()
        || session.lent_to() == Some(context.compound.source.shard)
}

pub(super) fn destroy_clientid<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    id: u64,
) -> OpResult {
    let client = context.own_client(id)?;
    context.check_machine(client, Operation::DestroyClientid)?;
    // RFC 8881 §18.50.3 [8881-309]: a client with sessions or state stays
    if context.nfs4.holds_state(client) {
        return Err(Status4::ClientidBusy.into());
    }
    context.nfs4.end_client(id);
    context.put(&Answer::DestroyClientid(Ok(())))
}
