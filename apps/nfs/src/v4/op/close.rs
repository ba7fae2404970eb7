//! CLOSE and OPEN_DOWNGRADE (RFC 8881 §18.2, §18.18).

use stag_protocol::nfs::v4::{Answer, Close4Args, OpenDowngrade4Args, Stateid, Status4};

use crate::v4::context::{Done, Turn};
use stag_nfs_store::Store;
use stag_nfs4_state::DowngradeRequest;

pub(super) fn close<S: Store>(turn: &mut Turn<'_, '_, S>, args: &Close4Args) -> Done {
    let file = turn.current()?.object(Status4::BadStateid)?;
    turn.check_admitted(&file)?;
    let request = turn.state_request(&file, args.open)?;
    turn.with_state(|state, _| state.close(&request))?;
    // RFC 8881 §18.2.4 [8881-301]: the result, and the current stateid from now on, is invalid
    turn.set_stateid(Some(Stateid::INVALID));
    turn.put(&Answer::Close(Ok(Stateid::INVALID)))
}

pub(super) fn open_downgrade<S: Store>(
    turn: &mut Turn<'_, '_, S>,
    args: &OpenDowngrade4Args,
) -> Done {
    let file = turn.current()?.object(Status4::BadStateid)?;
    turn.check_admitted(&file)?;
    let open = turn.state_request(&file, args.open)?;
    let request = DowngradeRequest { open, access: args.share_access, deny: args.share_deny };
    let stateid = turn.with_state(|state, _| state.downgrade(&request))?;
    turn.set_stateid(Some(stateid));
    turn.put(&Answer::OpenDowngrade(Ok(stateid)))
}
