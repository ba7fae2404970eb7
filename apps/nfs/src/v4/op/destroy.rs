//! DESTROY_SESSION and DESTROY_CLIENTID (RFC 8881 §18.37, §18.50).

use stag_protocol::nfs::v4::{Answer, SessionId, Status4};

use crate::{
    store::Store,
    v4::turn::{Done, Turn},
};

pub(super) fn destroy_session<S: Store>(turn: &mut Turn<'_, '_, S>, id: &SessionId) -> Done {
    turn.nfs4.sessions.get(id).ok_or(Status4::BadSession)?;
    turn.nfs4.end_session(id);
    turn.put(&Answer::DestroySession(Ok(())))
}

pub(super) fn destroy_clientid<S: Store>(turn: &mut Turn<'_, '_, S>, id: u64) -> Done {
    let client = turn.nfs4.clients.get(id).ok_or(Status4::StaleClientid)?;
    // RFC 8881 §18.50.3 [8881-309]: a client with sessions or state stays
    if turn.nfs4.holds_state(client) {
        return Err(Status4::ClientidBusy.into());
    }
    turn.nfs4.end_client(id);
    turn.put(&Answer::DestroyClientid(Ok(())))
}
