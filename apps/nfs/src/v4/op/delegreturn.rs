//! DELEGRETURN (RFC 8881 §18.6).

use stag_protocol::nfs::v4::{Answer, Operation, Stateid, Status4};

use crate::v4::context::{CompoundContext, OpResult};
use stag_nfs_store::Store;

pub(super) fn delegreturn<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    stateid: &Stateid,
) -> OpResult {
    let file = context.current()?.object(Status4::BadStateid)?;
    context.check_admitted(&file, Operation::DelegReturn)?;
    let request = context.state_request(&file, *stateid)?;
    context.with_state(|state, _| state.return_delegation(&request))?;
    context.nfs4.unwatch_returned(context.store);
    context.put(&Answer::DelegReturn(Ok(())))
}
