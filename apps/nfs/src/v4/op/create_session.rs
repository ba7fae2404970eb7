//! CREATE_SESSION (RFC 8881 §18.36).
//!
//! Checks that Linux makes of the reply determine it: at least eight operations in the fore
//! channel, and in the back channel exactly the sizes that were asked for.

use stag_protocol::nfs::v4::{
    Answer, Array, CallbackSecurity, ChannelAttributes, CreateSessionArgs, CreateSessionOk,
    Operation, Status4, session_flag,
    state::{SequenceOrder, sequence_order},
};

use crate::v4::{
    context::{CompoundContext, OpResult},
    session::{BackChannel, CELL_LEN, SESSIONS_OF_CLIENT},
};
use stag_nfs_store::{Store, TRANSFER_MAX};

/// Octets of the longest call and reply: the largest READ or WRITE with its surroundings.
const MESSAGE_MAX: u32 = TRANSFER_MAX + 4_096;
/// Minimum of octets of a useful call or reply of the fore channel.
const MESSAGE_MIN: u32 = 200;
/// The same for the back channel: CB_SEQUENCE and CB_RECALL with the longest handle.
const CALLBACK_MIN: u32 = 400;
/// Operations of one compound.
const OPERATIONS_MAX: u32 = 64;
/// Callbacks at a time.
const CALLBACKS_MAX: u32 = 16;
/// Flags that a client may set.
const FLAGS: u32 = session_flag::PERSIST | session_flag::CONN_BACK_CHAN | session_flag::CONN_RDMA;

pub(super) fn create_session<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &CreateSessionArgs<'_>,
) -> OpResult {
    // A request that is invalid for any session changes nothing, not even the client's sequence.
    let wanted = WantedChannels::of(args)?;
    let client = context.own_client(args.client_id)?;
    context.check_machine(client, Operation::CreateSession)?;
    let age = context.cx.now().since(client.made);
    if !client.is_confirmed && age > context.nfs4.config.lease {
        // RFC 8881 §18.35.4: an unconfirmed record ends after a lease.
        context.nfs4.clients.remove(args.client_id);
        return Err(Status4::StaleClientid.into());
    }
    match sequence_order(client.sequence, args.sequence) {
        SequenceOrder::New => {}
        // RFC 8881 §18.36.4 [8881-304]: a retry gets the reply of the first time
        SequenceOrder::Retry => match client.created {
            Some(Ok(ok)) => return context.put(&Answer::CreateSession(Ok(ok))),
            Some(Err(status)) => return Err(status.into()),
            None => return Err(Status4::SeqMisordered.into()),
        },
        SequenceOrder::Misordered => return Err(Status4::SeqMisordered.into()),
    }
    // RFC 8881 §18.36.4 [8881-305]: only the user that made the record confirms it
    if !client.is_confirmed && client.principal != context.compound.principal {
        return Err(Status4::ClidInUse.into());
    }
    let created = make(context, args, wanted);
    // RFC 8881 §2.10.6.2: NFS4ERR_DELAY is not kept.
    if created == Err(Status4::Delay) {
        return Err(Status4::Delay.into());
    }
    if let Some(client) = context.nfs4.clients.get_mut(args.client_id) {
        (client.sequence, client.created) = (args.sequence, Some(created));
    }
    context.put(&Answer::CreateSession(Ok(created?)))
}

/// A session with the sizes that can be granted.
struct WantedChannels {
    fore: ChannelAttributes,
    back: ChannelAttributes,
    /// The connection should carry callbacks.
    is_back: bool,
}

impl WantedChannels {
    fn of(args: &CreateSessionArgs<'_>) -> Result<Self, Status4> {
        if args.flags & !FLAGS != 0 {
            return Err(Status4::Inval);
        }
        let is_back = args.flags & session_flag::CONN_BACK_CHAN != 0;
        Ok(Self { fore: fore_channel(&args.fore)?, back: back_channel(&args.back)?, is_back })
    }
}

fn make<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &CreateSessionArgs<'_>,
    WantedChannels { fore, back, is_back }: WantedChannels,
) -> Result<CreateSessionOk, Status4> {
    let peer = context.peer_at();
    let nfs4 = &mut *context.nfs4;
    let client = nfs4.clients.get(args.client_id).ok_or(Status4::StaleClientid)?;
    if client.sessions >= SESSIONS_OF_CLIENT {
        return Err(Status4::Delay);
    }
    if !nfs4.may_join(args.client_id, peer, context.shard_context.takes_loans) {
        return Err(Status4::Delay);
    }
    let slots = nfs4.sessions.grant(fore.requests_max).ok_or(Status4::Delay)?;
    let slots = nfs4.clients.share_of_slots(args.client_id, slots, nfs4.sessions.room());
    let slots = slots.ok_or(Status4::Delay)?;
    let fore = ChannelAttributes { requests_max: slots, ..fore };
    let program = args.program;
    let callbacks = is_back
        .then(|| BackChannel::new(program, callback_user(&args.security), peer, back.requests_max));
    let minor_version = context.compound.minor_version;
    let session = nfs4.sessions.add(args.client_id, minor_version, fore, callbacks);
    let session = session.ok_or(Status4::Delay)?;
    if let Err(status) = nfs4.confirm(args.client_id, slots, context.cx.now()) {
        nfs4.sessions.remove(&session);
        return Err(status);
    }
    if let Some(session) = nfs4.sessions.get_mut(&session) {
        session.bound.add(peer);
    }
    if is_back {
        // RFC 8267 §6.5.2 [8267-15]: callbacks are calls in the reverse direction (RFC 8167)
        nfs4.make_ready(context.cx, peer);
        nfs4.resume_callbacks();
    }
    if context.shard_context.takes_loans {
        context.nfs4.lend(&session, peer);
    }
    // No session survives a restart, and no connection is switched to RDMA.
    let flags = args.flags & session_flag::CONN_BACK_CHAN;
    Ok(CreateSessionOk { session, sequence: args.sequence, flags, fore, back })
}

/// The user of callbacks: AUTH_SYS if the client offers it.
pub(super) fn callback_user(security: &Array<'_, CallbackSecurity<'_>>) -> Option<(u32, u32)> {
    security.items().find_map(|security| match security {
        CallbackSecurity::Sys(sys) => Some((sys.uid, sys.gid)),
        CallbackSecurity::None | CallbackSecurity::Gss(_) => None,
    })
}

fn fore_channel(asked: &ChannelAttributes) -> Result<ChannelAttributes, Status4> {
    // RFC 8881 §18.36.3 [8881-306]: sizes that are good for nothing are TOOSMALL
    if asked.request_max < MESSAGE_MIN || asked.response_max < MESSAGE_MIN {
        return Err(Status4::TooSmall);
    }
    if asked.operations_max == 0 || asked.requests_max == 0 {
        return Err(Status4::Inval);
    }
    Ok(ChannelAttributes {
        header_pad: 0,
        request_max: asked.request_max.min(MESSAGE_MAX),
        response_max: asked.response_max.min(MESSAGE_MAX),
        response_cached_max: asked.response_cached_max.min(CELL_LEN as u32),
        operations_max: asked.operations_max.min(OPERATIONS_MAX),
        requests_max: asked.requests_max,
        rdma_ird: None,
    })
}

fn back_channel(asked: &ChannelAttributes) -> Result<ChannelAttributes, Status4> {
    if asked.request_max < CALLBACK_MIN
        || asked.response_max < MESSAGE_MIN
        || asked.operations_max < 2
    {
        return Err(Status4::TooSmall);
    }
    Ok(ChannelAttributes {
        response_cached_max: 0,
        requests_max: asked.requests_max.clamp(1, CALLBACKS_MAX),
        header_pad: 0,
        rdma_ird: None,
        ..*asked
    })
}
