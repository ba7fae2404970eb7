//! BACKCHANNEL_CTL (RFC 8881 §18.33).

use stag_protocol::nfs::v4::{Answer, BackchannelCtlArgs, Status4};

use super::create_session::callback_user;
use crate::v4::context::{CompoundContext, OpResult};
use stag_nfs_store::Store;

pub(super) fn backchannel_ctl<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &BackchannelCtlArgs<'_>,
) -> OpResult {
    let slot = context.compound.slot.ok_or(Status4::OpNotInSession)?;
    let session = context.nfs4.sessions.get_mut(&slot.session).ok_or(Status4::BadSession)?;
    let back = session.callbacks.as_mut().ok_or(Status4::Inval)?;
    (back.program, back.user) = (args.program, callback_user(&args.security));
    context.put(&Answer::BackchannelCtl(Ok(())))
}
