//! The file of an OPEN (RFC 8881 §18.16.3): found by its name or created, its kind and the rights
//! of the caller checked, truncated if the OPEN asks for that.

use stag_protocol::nfs::{
    v3::{Access, FileHandle, FileKind},
    v4::{Attribute, Bitmap, CreateHow4, Open4Args, OpenClaim, OpenHow, Status4, share},
};

use super::lookup::not_a_directory;
use crate::v4::{
    attributes::{SETTABLE_EXCLUSIVELY, change_info, no_change, settable::ToSet},
    context::{
        CompoundContext, OpExit, OpResult, changes_in_flight::ChangeScope, filehandle::Node,
        shard_context::OpenedFile, state_calls::file_id, status::check_name,
    },
};
use stag_nfs_store::{CreateMode, FoundObject, NameIn, NewAttributes, Store};
use stag_nfs4_state::{Claim, FileId, RecallScope};

/// Attempts to find or create a file that other programs keep removing and creating.
const CREATIONS: usize = 4;

/// The file, which may have to be created, and which the caller may open.
pub(super) fn find<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &Open4Args<'_>,
    claim: Claim,
) -> OpResult<OpenedFile> {
    let node = context.current()?;
    let file = match &args.claim {
        OpenClaim::Null(name) => named(context, &node, name.0, args)?,
        OpenClaim::DelegateCur(under) => named(context, &node, under.name.0, args)?,
        _ => current(context, &node)?,
    };
    check_kind(file.attributes.kind)?;
    if !file.is_new {
        check_permission(context, &file, claim, args.share_access)?;
    }
    Ok(file)
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
pub(super) fn denies(args: &Open4Args<'_>) -> bool {
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
        Node::Object(directory) => {
            context.check_flavor(node)?;
            *directory
        }
    };
    let named = match how {
        OpenHow::NoCreate => found(context, &directory, name),
        OpenHow::Create(CreateHow4::Unchecked(raw)) => {
            let set = context.settable(raw)?;
            found_or_made(context, NameIn::new(&directory, name), &set, args)
        }
        OpenHow::Create(CreateHow4::Guarded(raw)) => {
            let set = context.settable(raw)?;
            made(context, NameIn::new(&directory, name), &set, args)
        }
        OpenHow::Create(CreateHow4::Exclusive(verifier)) => {
            context.await_place(args)?;
            made_once(context, &directory, name, *verifier, &ToSet::default())
        }
        OpenHow::Create(CreateHow4::Exclusive41(exclusive)) => {
            let set = context.settable(&exclusive.attributes)?;
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
    let acls = match &args.how {
        OpenHow::Create(CreateHow4::Unchecked(raw) | CreateHow4::Guarded(raw)) => {
            context.acls_to_set(raw, false)?
        }
        _ => None,
    };
    let mode = CreateMode::Guarded(set.attributes);
    let made = context.create(at.directory, at.name, &mode)?;
    let set = context.set_acls_of_new(&made.handle, acls.as_deref(), false, set.mask)?;
    Ok(OpenedFile {
        handle: made.handle,
        attributes: made.attributes,
        change: change_info(&made.directory),
        set,
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
pub(super) fn prepare_existing<S: Store>(
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
    if ToSet::of(raw)?.0.attributes.size != Some(0) {
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

impl<S: Store> CompoundContext<'_, '_, S> {
    /// Makes sure that an OPEN can be granted its state, before its file is created for it.
    ///
    /// # Errors
    /// NFS4ERR_DELAY when a table is full, or when the OPEN may have to wait and cannot.
    fn await_place(&mut self, args: &Open4Args<'_>) -> OpResult {
        // The file may be created already. To OPENs on other shards the home reports in advance if
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
    pub(super) fn await_deniable(&mut self, file: FileId) -> OpResult {
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
}
