//! CLOSE and OPEN_DOWNGRADE (RFC 8881 §18.2, §18.18).

use stag_protocol::nfs::v4::{Answer, Close4Args, OpenDowngrade4Args, Operation, Stateid, Status4};

use crate::v4::context::{CompoundContext, OpResult};
use stag_nfs_store::Store;
use stag_nfs4_state::DowngradeRequest;

pub(super) fn close<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &Close4Args,
) -> OpResult {
    let file = context.current()?.object(Status4::BadStateid)?;
    context.check_admitted(&file, Operation::Close)?;
    let request = context.state_request(&file, args.open)?;
    context.with_state(|state, _| state.close(&request))?;
    // RFC 8881 §18.2.4 [8881-301]: the result, and the current stateid from now on, is invalid
    context.set_stateid(Some(Stateid::INVALID));
    context.put(&Answer::Close(Ok(Stateid::INVALID)))
}

pub(super) fn open_downgrade<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &OpenDowngrade4Args,
) -> OpResult {
    let file = context.current()?.object(Status4::BadStateid)?;
    context.check_admitted(&file, Operation::OpenDowngrade)?;
    let open = context.state_request(&file, args.open)?;
    let request = DowngradeRequest { open, access: args.share_access, deny: args.share_deny };
    let stateid = context.with_state(|state, _| state.downgrade(&request))?;
    context.set_stateid(Some(stateid));
    context.put(&Answer::OpenDowngrade(Ok(stateid)))
}
