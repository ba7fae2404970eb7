//! OPEN (RFC 8881 §18.16): the name, the permission, then the state. After the first step that
//! cannot be undone nothing can be refused, except for a conflict over a file that was just
//! created. Before a file is created or truncated, there is room for the open. Afterwards the OPEN
//! waits for other shards and for delegations instead of failing with NFS4ERR_DELAY: its retry
//! would find the file.

use stag_protocol::nfs::v4::{
    Ace, Answer, Decimal, DelegationType, Open4Args, Open4Ok, OpenClaim, OpenDelegation, OpenHow,
    ReadDelegation, SpaceLimit, Status4, Text, WriteDelegation, open_flag, share,
};

use super::opened_file::{denies, find, prepare_existing};
use crate::v4::context::{
    CompoundContext, OpResult, filehandle::Node, shard_context::OpenedFile, state_calls::file_id,
};
use stag_nfs_store::Store;
use stag_nfs4_state::{
    Claim, DelegationOffer, DelegationOutcome, DelegationPolicy, FileId, FileRef, GivenDelegation,
    GrantingCall, OpenRequest, Opened,
};

pub(super) fn open<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &Open4Args<'_>,
) -> OpResult {
    let since = context.compound.replay_log.last_end(context.nfs4.changes.last_end());
    let claim = begin(context, args)?;
    let mut file = match context.compound.replay_log.found() {
        Some(found) => found,
        None => find(context, args, claim)?,
    };
    if context.nfs4.borrowed.is_some() {
        return Err(context.wait_for_home(file));
    }
    let is_current = file.is_new || prepare_existing(context, &mut file, args)?;
    context.compound.replay_log.has_effect |= S::MAY_WAIT && file.is_new;
    let id = file_id(&file.handle);
    let is_changing = S::MAY_WAIT && context.nfs4.changes.may_touch(id, since);
    let offer = offer(context, args, id, file.attributes.fsid, is_changing || !is_current)?;
    let request = OpenRequest {
        client: context.client_key()?,
        file: FileRef { id, handle: file.handle.octets() },
        owner: args.owner.owner.0,
        access: args.share_access,
        deny: args.share_deny,
        claim,
        offer,
        is_promised: file.is_new || file.is_cut,
    };
    let opened = grant(context, &file, &request)?;
    answer(context, &file, &request, opened)
}

/// Refuses an OPEN that may not be begun, before a file is created for it.
fn begin<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &Open4Args<'_>,
) -> OpResult<Claim> {
    context.current()?;
    check_bits(args)?;
    let claim = claim_of(args)?;
    match context.nfs4.borrowed.is_none() {
        true => context.may_open(claim)?,
        false => context.begin_beside_home()?,
    }
    if claim == Claim::Previous(DelegationType::Write)
        && !context.nfs4.recovery.had_write_delegations()
    {
        // RFC 8881 §15.1.9.4 [8881-265]: what cannot have been before the restart is no reclaim
        return Err(Status4::ReclaimBad.into());
    }
    Ok(claim)
}

/// The delegation that this OPEN may be granted, for a file of this file system. Other shards are
/// notified first, as far as it requires. `is_changing` is true if another call may be changing the
/// file.
fn offer<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &Open4Args<'_>,
    id: FileId,
    fsid: u64,
    is_changing: bool,
) -> OpResult<DelegationOffer> {
    let mut offer = context.delegation_offer(fsid);
    let may_get_one = offer.policy != DelegationPolicy::Never && offer.has_back_channel;
    let wants = args.share_access & share::WANT_MASK;
    let may_get_one = may_get_one && wants != share::WANT_NO_DELEGATION;
    if denies(args) {
        context.await_deniable(id)?;
    }
    // Another shard may be about to change it.
    let is_unknown = may_get_one && !is_changing && !context.await_announced(id)?;
    offer.is_changing = is_changing || is_unknown;
    Ok(offer)
}

/// The state, and a file that stays while there is any.
fn grant<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    file: &OpenedFile,
    request: &OpenRequest<'_>,
) -> OpResult<Opened> {
    context.keep_file(&file.handle, request.file.id);
    let opened = context.with_state(|state, now| state.open(request, now));
    if opened.is_err() && !context.nfs4.state.has_file(request.file.id) {
        context.store.unpin(&file.handle);
    }
    opened
}

/// Completes an OPEN that was granted its state.
fn answer<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    file: &OpenedFile,
    request: &OpenRequest<'_>,
    mut opened: Opened,
) -> OpResult {
    let OpenRequest { claim, offer, access, .. } = *request;
    let change = file.attributes.change;
    context.set_current(Node::Object(file.handle));
    context.set_stateid(Some(opened.stateid));
    let owner = Decimal::of(context.compound.caller.user.uid());
    let mut is_recalled = false;
    if offer.policy == DelegationPolicy::Watched
        && claim == Claim::New
        && let DelegationOutcome::Given(given) = &opened.delegation
        && let Some(none) = context.watch(given, &file.handle, change, access)
    {
        opened.delegation = none;
    }
    if let DelegationOutcome::Given(given) = &opened.delegation {
        context.nfs4.state.set_delegation_base(given.state, change);
        is_recalled = must_come_back(given, claim, &offer);
        if is_recalled {
            let now = crate::v4::milliseconds(context.cx.now());
            context.nfs4.state.begin_recall(given.state, now);
        }
    }
    let delegation = delegation(&opened.delegation, is_recalled, &owner);
    let ok = Open4Ok {
        stateid: opened.stateid,
        change: file.change,
        flags: open_flag::LOCKTYPE_POSIX | open_flag::MAY_NOTIFY_LOCK,
        set: file.set,
        delegation,
    };
    context.put(&Answer::Open(Ok(ok)))
}

/// Refuses arguments that are invalid in any OPEN, before a file is created for it.
fn check_bits(args: &Open4Args<'_>) -> Result<(), Status4> {
    let is_valid = share::are_valid(args.share_access, args.share_deny);
    // RFC 8881 §18.16.3: only a name can be created.
    let is_named = matches!(args.claim, OpenClaim::Null(_));
    let creates = matches!(args.how, OpenHow::Create(_));
    if is_valid && (is_named || !creates) { Ok(()) } else { Err(Status4::Inval) }
}

fn claim_of(args: &Open4Args<'_>) -> Result<Claim, Status4> {
    match &args.claim {
        OpenClaim::Null(_) | OpenClaim::Fh => Ok(Claim::New),
        OpenClaim::Previous(delegation) => Ok(Claim::Previous(*delegation)),
        OpenClaim::DelegateCur(under) => Ok(Claim::Delegated(under.delegation)),
        OpenClaim::DelegCurFh(delegation) => Ok(Claim::Delegated(*delegation)),
        OpenClaim::DelegatePrev(_) | OpenClaim::DelegPrevFh => Err(Status4::NotSupp),
    }
}

/// The delegation on the wire. The user who opened the file may use it without asking; all others
/// ask (RFC 8881 §10.4.1).
fn delegation<'a>(
    outcome: &DelegationOutcome,
    recall: bool,
    owner: &'a Decimal,
) -> OpenDelegation<'a> {
    let given = match outcome {
        DelegationOutcome::None => return OpenDelegation::None,
        DelegationOutcome::Refused(reason) => return OpenDelegation::NoneExt(reason.clone()),
        DelegationOutcome::Given(given) => given,
    };
    let data = if given.write { ACE_READ | ACE_WRITE } else { ACE_READ };
    let permissions = Ace { kind: 0, flags: 0, mask: data, who: Text(owner.text()) };
    let stateid = given.stateid;
    match given.write {
        false => OpenDelegation::Read(ReadDelegation { stateid, recall, permissions }),
        true => OpenDelegation::Write(WriteDelegation {
            stateid,
            recall,
            space_limit: SpaceLimit::Size(u64::MAX),
            permissions,
        }),
    }
}

/// Returns true for a reclaimed delegation that would not be granted any more: its client cannot be
/// called back, the exports allow none (RFC 8881 §10.4.1, §18.16.3), or the file was not watched
/// while the server was down.
fn must_come_back(given: &GivenDelegation, claim: Claim, offer: &DelegationOffer) -> bool {
    let is_allowed = match offer.policy {
        DelegationPolicy::Never => false,
        DelegationPolicy::Read => !given.write,
        DelegationPolicy::Watched => claim == Claim::New,
        DelegationPolicy::ReadWrite => true,
    };
    !offer.has_back_channel || !is_allowed
}

/// Rights of an access control entry: to read data, and to write it (RFC 8881 §6.2.1.3.1).
const ACE_READ: u32 = 1;
const ACE_WRITE: u32 = 2;

impl<S: Store> CompoundContext<'_, '_, S> {
    /// Facts that decide about a delegation for an OPEN of this compound.
    fn delegation_offer(&mut self, fsid: u64) -> DelegationOffer {
        let Some(slot) = self.compound.slot else { return DelegationOffer::default() };
        let has_back_channel = self.nfs4.has_back_channel(slot.client);
        let call = GrantingCall { session: slot.session, slot: slot.slot, sequence: slot.sequence };
        let now = self.cx.now();
        let policy = self.nfs4.delegation_policy(fsid, now);
        DelegationOffer { policy, has_back_channel, call: Some(call), is_changing: false }
    }
}
