//! OPEN (RFC 8881 §18.16): the name, the permission, then the state. After the first step that
//! cannot be undone nothing can be refused, except for a conflict over a file that was just
//! created. Before a file is created or truncated, there is room for the open. Afterwards the OPEN
//! waits for other shards and for delegations instead of failing with NFS4ERR_DELAY: its retry
//! would find the file.

use stag_protocol::nfs::{
    v3::{Access, FileHandle, FileKind},
    v4::{
        Ace, Answer, Attribute, Bitmap, ChangeInfo, CreateHow4, DelegationType, Open4Args, Open4Ok,
        OpenClaim, OpenDelegation, OpenHow, ReadDelegation, SpaceLimit, Status4, Text,
        WriteDelegation, open_flag, share,
    },
};

use super::lookup::not_a_directory;
use crate::v4::{
    attributes::{Decimal, SETTABLE_EXCLUSIVELY, change_info, no_change, settable::ToSet},
    context::{
        CompoundContext, OpExit, OpResult, changes_in_flight::ChangeScope, filehandle::Node,
        state_calls::file_id, status::check_name,
    },
};
use stag_nfs_store::{CreateMode, FileAttributes, FoundObject, NameIn, NewAttributes, Store};
use stag_nfs4_state::{
    Claim, DelegationOffer, DelegationOutcome, DelegationPolicy, FileId, FileRef, GivenDelegation,
    GrantingCall, OpenRequest, Opened, RecallScope,
};

/// Attempts to find or create a file that other programs keep removing and creating.
const CREATIONS: usize = 4;

/// The file of an OPEN, before its state is decided.
struct OpenedFile {
    handle: FileHandle,
    attributes: FileAttributes,
    /// The change of the directory by the OPEN.
    change: ChangeInfo,
    /// Attributes that were set.
    set: Bitmap,
    /// The caller created it: its mode does not restrict the caller.
    is_new: bool,
    /// The OPEN has truncated it.
    is_cut: bool,
}

pub(super) fn open<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &Open4Args<'_>,
) -> OpResult {
    let node = context.current()?;
    let since = context.compound.replay_log.last_end(context.nfs4.changes.last_end());
    check_bits(args)?;
    let claim = claim_of(args)?;
    let is_home = context.nfs4.borrowed.is_none();
    match is_home {
        true => context.may_open(claim)?,
        false => context.begin_beside_home()?,
    }
    if claim == Claim::Previous(DelegationType::Write)
        && !context.nfs4.recovery.had_write_delegations()
    {
        // RFC 8881 §15.1.9.4 [8881-265]: what cannot have been before the restart is no reclaim
        return Err(Status4::ReclaimBad.into());
    }
    let mut file = match &args.claim {
        OpenClaim::Null(name) => named(context, &node, name.0, args)?,
        OpenClaim::DelegateCur(under) => named(context, &node, under.name.0, args)?,
        _ => current(context, &node)?,
    };
    check_kind(file.attributes.kind)?;
    if !file.is_new {
        check_permission(context, &file, claim, args.share_access)?;
    }
    if !is_home {
        return Err(context.wait_for_home(&file.handle));
    }
    let is_current = file.is_new || prepare_existing(context, &mut file, args)?;
    context.compound.replay_log.has_effect |= S::MAY_WAIT && file.is_new;
    let id = file_id(&file.handle);
    let is_changing = S::MAY_WAIT && context.nfs4.changes.may_touch(id, since);
    let is_changing = is_changing || !is_current;
    let mut offer = context.delegation_offer(file.attributes.fsid);
    let may_get_one = offer.policy != DelegationPolicy::Never && offer.has_back_channel;
    let wants = args.share_access & share::WANT_MASK;
    let may_get_one = may_get_one && wants != share::WANT_NO_DELEGATION;
    if denies(args) {
        context.await_deniable(id)?;
    }
    // Another shard may be about to change it.
    let is_unknown = may_get_one && !is_changing && !context.await_announced(id)?;
    offer.is_changing = is_changing || is_unknown;
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
    context.keep_file(&file.handle);
    let opened = context.with_state(|state, now| state.open(&request, now));
    if opened.is_err() && !context.nfs4.state.has_file(request.file.id) {
        context.store.unpin(&file.handle);
    }
    answer(context, &file, &request, opened?)
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

/// The current object itself.
fn current<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    node: &Node,
) -> OpResult<OpenedFile> {
    let handle = node.object(Status4::IsDir)?;
    let attributes = context.getattr(&handle)?;
    let change = no_change(attributes.change);
    Ok(OpenedFile { handle, attributes, change, set: Bitmap::EMPTY, is_new: false, is_cut: false })
}

/// Returns true for an OPEN that denies access and is no reclaim.
fn denies(args: &Open4Args<'_>) -> bool {
    let is_new = matches!(args.claim, OpenClaim::Null(_) | OpenClaim::Fh);
    is_new && args.share_deny & share::BOTH != 0
}

/// A name in the current directory, whose file is created if the OPEN allows it.
fn named<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    node: &Node,
    name: &[u8],
    args: &Open4Args<'_>,
) -> OpResult<OpenedFile> {
    check_name(name)?;
    let how = &args.how;
    let directory = match node {
        Node::Pseudo(handle) => {
            let directory = context.directory(handle)?;
            return Err(match context.shows(directory, name) {
                true => Status4::IsDir,
                false if matches!(how, OpenHow::Create(_)) => Status4::RoFs,
                false => Status4::NoEnt,
            }
            .into());
        }
        Node::Object(directory) => *directory,
    };
    let named = match how {
        OpenHow::NoCreate => found(context, &directory, name),
        OpenHow::Create(CreateHow4::Unchecked(raw)) => {
            let set = ToSet::of(raw)?;
            found_or_made(context, NameIn::new(&directory, name), &set, args)
        }
        OpenHow::Create(CreateHow4::Guarded(raw)) => {
            let set = ToSet::of(raw)?;
            made(context, NameIn::new(&directory, name), &set, args)
        }
        OpenHow::Create(CreateHow4::Exclusive(verifier)) => {
            context.await_place(args)?;
            made_once(context, &directory, name, *verifier, &ToSet::default())
        }
        OpenHow::Create(CreateHow4::Exclusive41(exclusive)) => {
            let set = ToSet::of(&exclusive.attributes)?;
            // RFC 8881 §18.16.3: attributes outside suppattr_exclcreat are invalid here.
            if !set.mask.is_subset(&SETTABLE_EXCLUSIVELY) {
                return Err(Status4::Inval.into());
            }
            context.await_place(args)?;
            made_once(context, &directory, name, exclusive.verifier, &set)
        }
    };
    match named {
        Err(OpExit::Fail(Status4::NotDir)) => Err(not_a_directory(context, &directory)),
        named => named,
    }
}

fn found<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    directory: &FileHandle,
    name: &[u8],
) -> OpResult<OpenedFile> {
    let FoundObject { handle, attributes, directory } = context.lookup(directory, name)?;
    let change = no_change(directory.map_or(0, |above| above.change));
    Ok(OpenedFile { handle, attributes, change, set: Bitmap::EMPTY, is_new: false, is_cut: false })
}

/// UNCHECKED4: a file that is created meanwhile is opened.
fn found_or_made<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    at: NameIn<'_, &FileHandle>,
    set: &ToSet,
    args: &Open4Args<'_>,
) -> OpResult<OpenedFile> {
    for _ in 0..CREATIONS {
        match found(context, at.directory, at.name) {
            Err(OpExit::Fail(Status4::NoEnt)) => {}
            // RFC 8881 §18.16.3: of an existing file, only the size is set, and to 0.
            found => return found,
        }
        match made(context, at, set, args) {
            Err(OpExit::Fail(Status4::Exist)) => {}
            made => return made,
        }
    }
    Err(Status4::Delay.into())
}

fn made<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    at: NameIn<'_, &FileHandle>,
    set: &ToSet,
    args: &Open4Args<'_>,
) -> OpResult<OpenedFile> {
    context.await_place(args)?;
    let mode = CreateMode::Guarded(set.attributes);
    let made = context.create(at.directory, at.name, &mode)?;
    Ok(OpenedFile {
        handle: made.handle,
        attributes: made.attributes,
        change: change_info(&made.directory),
        set: set.mask,
        is_new: true,
        is_cut: false,
    })
}

/// EXCLUSIVE4 and EXCLUSIVE4_1: the verifier is stored in the times of the file until its client
/// sets them, so they are reported as set, too.
fn made_once<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    directory: &FileHandle,
    name: &[u8],
    verifier: [u8; 8],
    set: &ToSet,
) -> OpResult<OpenedFile> {
    let mode = CreateMode::Exclusive { verifier, set: set.attributes };
    let made = context.create(directory, name, &mode)?;
    let mut all = set.mask;
    all.insert(Attribute::TimeAccessSet as u32);
    all.insert(Attribute::TimeModifySet as u32);
    Ok(OpenedFile {
        handle: made.handle,
        attributes: made.attributes,
        change: change_info(&made.directory),
        set: all,
        is_new: true,
        is_cut: false,
    })
}

/// Checks that the kind is a regular file: OPEN accepts no other (RFC 8881 §18.16.4).
const fn check_kind(kind: FileKind) -> Result<(), Status4> {
    match kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Status4::IsDir),
        FileKind::Symlink => Err(Status4::Symlink),
        _ => Err(Status4::WrongType),
    }
}

/// Asks the store for the caller's rights. A program that may be executed may be read. An owner may
/// have had the file open for more than its mode allows, and reclaims that; the store checks the
/// owner's READs and WRITEs.
fn check_permission<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    file: &OpenedFile,
    claim: Claim,
    access: u32,
) -> OpResult {
    let OpenedFile { handle: file, attributes, .. } = file;
    if matches!(claim, Claim::Previous(_)) && attributes.uid == context.compound.caller.user.uid() {
        return Ok(());
    }
    let asked = Access::READ | Access::MODIFY | Access::EXECUTE;
    let (granted, _) = context.access(file, asked)?;
    let reads = access & share::READ != 0;
    if reads && !granted.contains(Access::READ) && !granted.contains(Access::EXECUTE) {
        return Err(Status4::Access.into());
    }
    if access & share::WRITE != 0 && !granted.contains(Access::MODIFY) {
        // An empty change distinguishes a read-only export from a missing right.
        let changed = context.setattr(file, &NewAttributes::default(), None);
        let is_read_only = matches!(changed, Err(OpExit::Fail(Status4::RoFs)));
        return Err(if is_read_only { Status4::RoFs } else { Status4::Access }.into());
    }
    Ok(())
}

/// Prepares an existing file, and truncates it if the OPEN creates it with the size 0. Returns
/// false if its attributes are not known any more.
fn prepare_existing<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    file: &mut OpenedFile,
    args: &Open4Args<'_>,
) -> OpResult<bool> {
    if args.share_access & share::WRITE != 0 {
        context.await_unwatched(&file.handle, file.attributes.fsid)?;
    }
    file.is_cut = truncate(context, file, args)?;
    if !file.is_cut {
        return Ok(true);
    }
    context.compound.replay_log.has_effect = S::MAY_WAIT;
    // The change is complete: an OPEN that waits for changes by others does not wait for this one.
    context.end_changes();
    // The base for later reports of the holder of a delegation.
    match context.getattr(&file.handle) {
        Ok(attributes) => file.attributes = attributes,
        // Without it there is no delegation.
        Err(OpExit::Fail(Status4::Delay)) => return Ok(false),
        Err(stop) => return Err(stop),
    }
    Ok(true)
}

/// Truncates an existing file, if the OPEN creates it with the size 0. Returns true if it did.
fn truncate<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    file: &OpenedFile,
    args: &Open4Args<'_>,
) -> OpResult<bool> {
    let OpenHow::Create(CreateHow4::Unchecked(raw)) = &args.how else { return Ok(false) };
    if ToSet::of(raw)?.attributes.size != Some(0) {
        return Ok(false);
    }
    // RFC 8881 §18.16.3: access that an open denies is refused before any data are lost.
    let (id, access, deny) = (file_id(&file.handle), args.share_access, args.share_deny);
    let (client, owner) = (context.client_key()?, args.owner.owner.0);
    context.check_once(|context| {
        context.with_state(|state, _| {
            state.check_cut(id, access, deny)?;
            state.check_room(client, Some(id), owner)
        })
    })?;
    if denies(args) {
        context.check_once(|context| context.await_deniable(id))?;
    }
    context.recall(&file.handle, RecallScope::All)?;
    let set = NewAttributes { size: Some(0), ..NewAttributes::default() };
    context.setattr(&file.handle, &set, None).map(|_| true)
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
    /// Makes sure that an OPEN can be granted its state, before its file is created for it.
    ///
    /// # Errors
    /// NFS4ERR_DELAY when a table is full, or when the OPEN may have to wait and cannot.
    fn await_place(&mut self, args: &Open4Args<'_>) -> OpResult {
        // The file may be created already. For OPENs on other shards the home reports in advance if
        // there is room (`shards::slot_lease`), and that they can wait was checked, too.
        if self.compound.replay_log.knows_next() || self.nfs4.borrowed.is_some() {
            return Ok(());
        }
        let (client, owner) = (self.client_key()?, args.owner.owner.0);
        self.with_state(|state, _| state.check_room(client, None, owner))?;
        let may_wait = S::MAY_WAIT && self.nfs4.link.is_some() && denies(args);
        // Once the file is there, no other compound takes the place before this OPEN needs it.
        let has_place = self.nfs4.suspended.has_reserve() && (!may_wait || self.can_wait());
        if has_place { Ok(()) } else { Err(Status4::Delay.into()) }
    }

    /// Waits until an OPEN may deny access to a file.
    ///
    /// # Errors
    /// [`OpExit::Wait`]; NFS4ERR_DELAY, but not once the OPEN has an effect.
    fn await_deniable(&mut self, file: FileId) -> OpResult {
        if self.may_deny(file) || (self.compound.replay_log.has_effect && !self.can_wait()) {
            return Ok(());
        }
        Err(self.wait_for_recall())
    }

    /// Returns true if no pending operation on a file conflicts with the denial of an OPEN: calls
    /// without a state that were admitted earlier are complete, on this shard and on all others.
    fn may_deny(&mut self, file: FileId) -> bool {
        // Such calls are complete where calls never wait, except a call on another shard on a file
        // that this OPEN has just created, which cannot wait for that.
        if !S::MAY_WAIT && self.has_changed {
            return true;
        }
        let is_own = self.compound.replay_log.changes.are_counted(ChangeScope::File(file));
        let is_known = self.nfs4.is_announced(file);
        is_known && !(S::MAY_WAIT && self.nfs4.changes.is_under_way(file, is_own))
    }

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
