//! DESTROY_SESSION and DESTROY_CLIENTID (RFC 8881 §18.37, §18.50).

use stag_protocol::nfs::v4::{Answer, SessionId, Status4};

use crate::v4::context::{Done, Turn};
use stag_nfs_store::Store;

pub(super) fn destroy_session<S: Store>(turn: &mut Turn<'_, '_, S>, id: &SessionId) -> Done {
    let is_bound = may_be_bound(turn, id);
    turn.associate(id)?;
    // RFC 8881 §18.37.3 [8881-360]: a session is destroyed over a connection of its own
    if !is_bound {
        return Err(Status4::ConnNotBoundToSession.into());
    }
    turn.nfs4.end_session(id);
    turn.put(&Answer::DestroySession(Ok(())))
}

/// Returns true if the connection is associated with a session, may be at the shard that has its
/// slots, or replaces the last one: Linux unmounts over a new connection if the old one was idle.
fn may_be_bound<S: Store>(turn: &Turn<'_, '_, S>, id: &SessionId) -> bool {
    let Some(session) = turn.nfs4.sessions.get(id) else { return false };
    session.bound.has(turn.peer_at())
        || session.bound.is_empty()
        || session.lent_to() == Some(turn.source.shard)
}

pub(super) fn destroy_clientid<S: Store>(turn: &mut Turn<'_, '_, S>, id: u64) -> Done {
    let client = turn.own_client(id)?;
    // RFC 8881 §18.50.3 [8881-309]: a client with sessions or state stays
    if turn.nfs4.holds_state(client) {
        return Err(Status4::ClientidBusy.into());
    }
    turn.nfs4.end_client(id);
    turn.put(&Answer::DestroyClientid(Ok(())))
}
