//! BIND_CONN_TO_SESSION (RFC 8881 §18.34).

use stag_protocol::nfs::v4::{
    Answer, BindConnArgs, BindConnOk, ChannelGrant, ChannelWish, Operation, Status4,
};

use crate::v4::context::{CompoundContext, OpResult};
use stag_nfs_store::Store;

/// Every connection from an origin of its client carries the fore channel of a session; the back
/// channel is the connection that was bound last.
pub(super) fn bind_connection<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &BindConnArgs,
) -> OpResult {
    let peer = context.peer_at();
    context.associate_by_machine(&args.session, Operation::BindConnToSession)?;
    let session = context.nfs4.sessions.get_mut(&args.session).ok_or(Status4::BadSession)?;
    let grant = match (args.wish, &mut session.callbacks) {
        (ChannelWish::Fore, _) => ChannelGrant::Fore,
        (wish, Some(callbacks)) => {
            callbacks.peer = Some(peer);
            if wish == ChannelWish::Back { ChannelGrant::Back } else { ChannelGrant::Both }
        }
        (ChannelWish::ForeOrBoth | ChannelWish::BackOrBoth, None) => ChannelGrant::Fore,
        // RFC 8881 §18.34.3 [8881-307]: a session without a back channel has none to bind
        (ChannelWish::Back, None) => return Err(Status4::Inval.into()),
    };
    if grant != ChannelGrant::Fore {
        context.nfs4.make_ready(context.cx, peer);
        context.nfs4.resume_callbacks();
        context.nfs4.tell_flags(&args.session);
    }
    let ok = BindConnOk { session: args.session, grant, rdma_mode: false };
    context.put(&Answer::BindConnToSession(Ok(ok)))
}
