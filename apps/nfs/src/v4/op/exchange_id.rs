//! EXCHANGE_ID (RFC 8881 §18.35).

use stag_protocol::nfs::v4::{
    Answer, ExchangeIdArgs, ExchangeIdOk, GrantedProtection, Operation, ServerOwner,
    StateProtection, Status4, Text, exchange_flag,
    state::{ConfirmedClient, ExchangeStep, exchange_id as decide, is_update},
};

use crate::v4::{
    context::{CompoundContext, OpResult},
    session::{MachineGuard, NewClient, is_machine_credential},
};
use stag_nfs_store::Store;

pub(super) fn exchange_id<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &ExchangeIdArgs<'_>,
) -> OpResult {
    let is_update = is_update(args.flags)?;
    // Another gateway has taken over the client records: this one grants no state any more.
    if context.nfs4.recovery.queue.is_taken_over {
        return Err(Status4::Delay.into());
    }
    // RFC 7862 §14.1 [7862-17]: minor version 2 defines this flag
    if context.compound.minor_version < 2 && args.flags & exchange_flag::SUPP_FENCE_OPS != 0 {
        return Err(Status4::Inval.into());
    }
    let owner = args.client.owner.0;
    let new = NewClient {
        owner,
        verifier: args.client.verifier,
        principal: context.compound.principal,
        guard: guard(context, &args.protection)?,
        host: context.nfs4.host(context.compound.source),
        mark: context.nfs4.mark(&args.client.verifier, context.compound.source),
        from: context.compound.source.from,
        now: context.cx.now(),
    };
    context.nfs4.log_move(&new, context.compound.source);
    // RFC 8881 §8.4.2.1 [8881-361]: the name of a client that may reclaim is kept
    context.nfs4.check_listed(&new, context.compound.source)?;
    context.nfs4.check_host(&new)?;
    context.nfs4.note_rival(&new);
    let confirmed = context.nfs4.clients.confirmed(owner).map(|client| {
        let facts = ConfirmedClient {
            same_verifier: client.verifier == args.client.verifier,
            same_principal: client.principal == context.compound.principal
                && client.origins.allow(&new.host),
            holds_state: context.nfs4.holds_state(client),
        };
        (client.id, facts)
    });
    if let Some(client) = context.nfs4.clients.confirmed(owner) {
        let is_same = client.principal == context.compound.principal;
        // RFC 8881 §18.35.3 [8881-390]: what is enforced needs the machine's credential
        context.check_machine(client, Operation::ExchangeId).or_else(|status| {
            // Another principal gets the answer for that.
            if is_same { Err(status) } else { Ok(()) }
        })?;
    }
    let step = decide(is_update, confirmed.map(|(_, facts)| facts));
    let former = confirmed.map(|(id, _)| id);
    let id = match (step, former) {
        (ExchangeStep::Refuse(status), _) => return Err(status.into()),
        (ExchangeStep::Confirmed | ExchangeStep::Update, Some(id)) => {
            if let Some(waiting) = context.nfs4.clients.unconfirmed(owner).map(|client| client.id) {
                context.nfs4.clients.remove(waiting);
            }
            // RFC 8881 §2.10.5: a client that sends EXCHANGE_ID over another connection may use
            // both.
            if let Some(client) = context.nfs4.clients.get_mut(id) {
                client.origins.add(new.host.origin());
            }
            id
        }
        (ExchangeStep::Create { drop_confirmed }, former) => {
            if let (true, Some(former)) = (drop_confirmed, former) {
                context.nfs4.end_client(former);
            }
            context.nfs4.clients.add(&new).ok_or(Status4::Delay)?
        }
        (ExchangeStep::Confirmed | ExchangeStep::Update, None) => {
            return Err(Status4::ServerFault.into());
        }
    };
    put(context, id)
}

/// The protection that a client asks for and gets.
///
/// # Errors
/// NFS4ERR_INVAL for a request of SP4_MACH_CRED without such a credential.
fn guard<S: Store>(
    context: &CompoundContext<'_, '_, S>,
    protection: &StateProtection<'_>,
) -> Result<Option<MachineGuard>, Status4> {
    let StateProtection::MachineCredential(asked) = protection else { return Ok(None) };
    let (principal, security) = (context.compound.principal, context.compound.caller.security);
    match is_machine_credential(principal, security) {
        true => Ok(Some(MachineGuard::granted(asked))),
        // RFC 8881 §18.35.3 [8881-391]: SP4_MACH_CRED is asked for by RPCSEC_GSS with integrity
        false => Err(Status4::Inval),
    }
}

fn put<S: Store>(context: &mut CompoundContext<'_, '_, S>, id: u64) -> OpResult {
    let client = context.nfs4.clients.get(id).ok_or(Status4::ServerFault)?;
    let confirmed = if client.is_confirmed { exchange_flag::CONFIRMED_R } else { 0 };
    let sequence = client.sequence.wrapping_add(1);
    let identity = context.nfs4.config.identity;
    let ok = ExchangeIdOk {
        client_id: id,
        sequence,
        // Linux rejects an answer without a role, or with flags that it does not know.
        flags: exchange_flag::USE_NON_PNFS | confirmed,
        // SP4_SSV needs a mechanism of its own: it is not granted.
        protection: client.guard.map_or(GrantedProtection::None, |guard| {
            GrantedProtection::MachineCredential(guard.operations())
        }),
        server: ServerOwner { minor: 0, major: Text(&identity) },
        scope: Text(&identity),
        implementation: None,
    };
    context.put(&Answer::ExchangeId(Ok(ok)))
}
