//! DELEGRETURN (RFC 8881 §18.6).

use stag_protocol::nfs::v4::{Answer, Stateid, Status4};

use crate::v4::context::{Done, Turn};
use stag_nfs_store::Store;

pub(super) fn delegreturn<S: Store>(turn: &mut Turn<'_, '_, S>, stateid: &Stateid) -> Done {
    let file = turn.current()?.object(Status4::BadStateid)?;
    turn.check_admitted(&file)?;
    let request = turn.state_request(&file, *stateid)?;
    turn.with_state(|state, _| state.return_delegation(&request))?;
    turn.nfs4.unwatch_returned(turn.store);
    turn.put(&Answer::DelegReturn(Ok(())))
}
