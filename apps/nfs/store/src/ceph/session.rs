//! The store as one helper sees it: the current caller, objects by their handles, and the meaning
//! of the library's errors.

use super::{
    CephExport, CephShared,
    attributes::attributes,
    held::HeldInode,
    life::{EVICTED, LiveMount},
    rights::{all_groups, kind},
};
use crate::{
    Caller, Failed, FileAttributes, HelperStore, ObjectChange, Security, StoreCall, StoreOutcome,
    User as CallerUser,
    contract::name::{Meaning, Name},
    exports::{faults, handle::HandleKey, host_groups::SeenGroups},
    files::errno_status,
    perform,
};
use rustix::io::Errno;
use stag_ceph::{CephStat, StatMask, UserPerm, Vino};
use stag_engine::Time;
use stag_nfs_os::User;
use stag_protocol::nfs::v3::{FileHandle, FileKind, Status};
use std::{ffi::CStr, sync::Arc};

/// Purpose of a procedure's access to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallPurpose {
    /// To read its state.
    Look,
    /// To change something.
    Change,
}

/// The store as used by one thread.
pub struct CephSession {
    pub(super) shared: Arc<CephShared>,
    acting: User,
    /// The security of the current caller's call.
    security: Security,
    groups: Option<SeenGroups>,
}

/// An object named by a handle, in its current state.
pub(super) struct FoundFile {
    pub(super) live: Arc<LiveMount>,
    pub(super) export: Arc<CephExport>,
    pub(super) held: Arc<HeldInode>,
    pub(super) stat: CephStat,
}

/// A name for the library.
pub(super) struct CName([u8; 256]);

impl CName {
    pub(super) fn of(name: Name<'_>) -> Self {
        let mut octets = [0; 256];
        octets.iter_mut().zip(name.octets()).for_each(|(to, from)| *to = *from);
        Self(octets)
    }

    pub(super) fn text(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).expect("a name is at most 255 octets long")
    }
}

impl CephSession {
    pub(super) fn new(shared: Arc<CephShared>) -> Self {
        let (acting, groups) = (shared.policy.anonymous(), shared.policy.groups(true));
        Self { shared, acting, security: Security::default(), groups }
    }

    pub(super) fn set_caller(&mut self, caller: &Caller) {
        let (policy, squash) = (&self.shared.policy, self.shared.policy.squash_at(caller.address));
        let acting = policy.acting(&caller.user, squash, policy.anonymous(), self.groups.as_mut());
        // No answer for seconds: use only the claimed primary group.
        let alone = || match caller.user {
            CallerUser::Unix { uid, gid, .. } => policy.user(uid, gid, &[], squash),
            CallerUser::Anyone => policy.anonymous(),
        };
        self.acting = acting.unwrap_or_else(alone);
        self.security = caller.security;
    }

    /// The current caller.
    pub(super) fn user(&self) -> &User {
        &self.acting
    }

    /// Does something as the caller.
    pub(super) fn as_caller<T>(&self, work: impl FnOnce(&UserPerm<'_>) -> T) -> T {
        let groups = all_groups(&self.acting);
        let library = self.shared.library();
        work(&UserPerm::new(library, self.acting.uid(), self.acting.gid(), &groups))
    }

    pub(super) fn root(&self) -> UserPerm<'static> {
        UserPerm::root(self.shared.library())
    }

    /// The status for an error of a call that may be repeated.
    pub(super) fn fails(&self, live: &Arc<LiveMount>, errno: Errno) -> Status {
        if live.mount.is_lost() {
            self.shared.life.lose(live, EVICTED);
        }
        match errno {
            Errno::CONNABORTED | Errno::NOTCONN | Errno::SHUTDOWN => Status::Jukebox,
            other => errno_status(other),
        }
    }

    /// The status for an error of a change that cannot be repeated safely: NFS3ERR_IO where it may
    /// have happened.
    pub(super) fn fails_once(&self, live: &Arc<LiveMount>, errno: Errno) -> Status {
        match self.fails(live, errno) {
            Status::Jukebox => Status::Io,
            status => status,
        }
    }

    /// The object named by a handle.
    ///
    /// # Errors
    /// The status of the reply.
    pub(super) fn resolve(
        &self,
        handle: &FileHandle,
        purpose: CallPurpose,
    ) -> Result<FoundFile, Status> {
        let (id, vino) = self.shared.handles.open_inode(handle)?;
        let mut exports = self.shared.exports.iter();
        let export = exports.find(|export| export.id == id).ok_or(Status::Stale)?;
        // The gateway has judged it, unless the call found the object otherwise.
        if export.security.is_some_and(|flavors| !flavors.accept(self.security)) {
            return Err(Status::Acces);
        }
        if purpose == CallPurpose::Change && export.read_only {
            return Err(Status::RoFs);
        }
        if vino.snapshot != Vino::LIVE && !self.shared.snapshots {
            return Err(Status::Stale);
        }
        let live = self.shared.life.current()?;
        let held = live.table.hold(&live.mount, vino).map_err(|errno| self.fails(&live, errno))?;
        self.look(live, Arc::clone(export), held)
    }

    /// Reads the attributes of a held file. One without a name is gone, though Ceph keeps it while
    /// held.
    pub(super) fn look(
        &self,
        live: Arc<LiveMount>,
        export: Arc<CephExport>,
        held: Arc<HeldInode>,
    ) -> Result<FoundFile, Status> {
        let stat = held.inode.attributes(StatMask::ALL, &self.root());
        let stat = stat.map_err(|errno| self.fails(&live, errno))?;
        let is_gone = stat.links == 0 && held.vino.snapshot == Vino::LIVE;
        if is_gone && !self.shared.pins.has(held.vino) {
            live.table.let_go(held.vino);
            return Err(Status::Stale);
        }
        Ok(FoundFile { live, export, held, stat })
    }

    /// The directory named by a handle.
    ///
    /// # Errors
    /// [`Status::NotDir`], or as in [`resolve`](Self::resolve).
    pub(super) fn directory(
        &self,
        handle: &FileHandle,
        purpose: CallPurpose,
    ) -> Result<FoundFile, Status> {
        let found = self.resolve(handle, purpose)?;
        if kind(&found.stat) == FileKind::Directory { Ok(found) } else { Err(Status::NotDir) }
    }

    /// The attributes of a file when it was looked up.
    pub(super) fn attributes_of(&self, file: &FoundFile) -> FileAttributes {
        attributes(&file.stat, file.export.fsid)
    }

    /// The current attributes of a file; none if they cannot be read.
    pub(super) fn after(&self, file: &FoundFile) -> Option<FileAttributes> {
        let stat = file.held.inode.attributes(StatMask::ALL, &self.root()).ok()?;
        Some(attributes(&stat, file.export.fsid))
    }

    /// The attributes of an object after an attempted change.
    pub(super) fn wcc(&self, file: &FoundFile) -> ObjectChange {
        ObjectChange { before: None, after: self.after(file) }
    }

    /// The handle of a file in an export.
    pub(super) fn handle(&self, export: &CephExport, vino: Vino) -> FileHandle {
        self.shared.handles.seal_inode(export.id, vino)
    }

    /// The file with this name in a directory, for a caller.
    ///
    /// # Errors
    /// The status of the reply.
    pub(super) fn entry(
        &self,
        directory: &FoundFile,
        name: &[u8],
        user: &UserPerm<'_>,
    ) -> Result<FoundFile, Status> {
        let name = match Meaning::of(name)? {
            Meaning::Itself => return self.again(directory),
            Meaning::Above => return self.above(directory),
            Meaning::Entry(name) => name,
        };
        self.must_be_no_snapshot(directory, name, Status::NoEnt)?;
        let found = directory.held.inode.lookup(CName::of(name).text(), user);
        let (inode, stat) = found.map_err(|errno| self.fails(&directory.live, errno))?;
        Ok(self.hold(directory, inode, stat))
    }

    /// Holds an inode returned by a call on a directory.
    pub(super) fn hold(
        &self,
        directory: &FoundFile,
        inode: stag_ceph::CephInode,
        stat: CephStat,
    ) -> FoundFile {
        let live = Arc::clone(&directory.live);
        let vino = Vino { inode: stat.inode, snapshot: stat.device };
        let held = live.table.add(HeldInode::new(vino, inode));
        FoundFile { live, export: Arc::clone(&directory.export), held, stat }
    }

    fn again(&self, file: &FoundFile) -> Result<FoundFile, Status> {
        self.look(Arc::clone(&file.live), Arc::clone(&file.export), Arc::clone(&file.held))
    }

    /// The parent directory; an export's root is its own parent. A directory moved out of the
    /// export has none.
    fn above(&self, directory: &FoundFile) -> Result<FoundFile, Status> {
        let root = root_of(&directory.live, &directory.export)?;
        if directory.held.vino == root {
            return self.again(directory);
        }
        let parent = self.parent(directory)?;
        if self.is_under(&parent, root)? { Ok(parent) } else { Err(Status::Stale) }
    }

    /// Returns true if a directory is `high` or below it.
    pub(super) fn lies_under(&self, low: &FoundFile, high: &FoundFile) -> Result<bool, Status> {
        self.is_under(low, high.held.vino)
    }

    fn is_under(&self, low: &FoundFile, high: Vino) -> Result<bool, Status> {
        let mut here = self.again(low)?;
        while here.held.vino != high {
            let next = self.parent(&here)?;
            if next.held.vino == here.held.vino {
                return Ok(false);
            }
            here = next;
        }
        Ok(true)
    }

    fn parent(&self, directory: &FoundFile) -> Result<FoundFile, Status> {
        let found = directory.held.inode.lookup(c"..", &self.root());
        let (inode, stat) = found.map_err(|errno| self.fails(&directory.live, errno))?;
        Ok(self.hold(directory, inode, stat))
    }

    /// Refuses the name of the snapshot directory unless snapshots are served.
    pub(super) fn must_be_no_snapshot(
        &self,
        directory: &FoundFile,
        name: Name<'_>,
        refusal: Status,
    ) -> Result<(), Status> {
        let is_asked = self.shared.snapshots;
        if !is_asked && name.octets() == directory.live.snapshots.as_bytes() {
            return Err(refusal);
        }
        Ok(())
    }
}

impl CephShared {
    fn library(&self) -> &'static stag_ceph::Library {
        self.life.library()
    }
}

impl HelperStore for CephSession {
    fn perform(&mut self, call: &mut StoreCall) -> StoreOutcome {
        let outcome = perform(self, call);
        self.report_noted(call);
        self.give_back();
        outcome
    }

    fn tidy(&mut self, _now: Time) {
        self.shared.faults.settle_with_the_log();
    }

    fn wants_tidying(&self) -> bool {
        self.shared.faults.owes_the_log()
    }
}

impl CephSession {
    /// Reports a fault of the cluster that the call met.
    fn report_noted(&self, call: &StoreCall) {
        let Some(fault) = faults::take() else { return };
        let [one, other] = call.operation.objects();
        let id = other.or(one).as_ref().and_then(HandleKey::claimed_export);
        let export = self.shared.exports.iter().find(|export| Some(export.id) == id);
        let is_usual = matches!(fault.errno, Errno::STALE | Errno::ROFS);
        if let Some(export) = export.filter(|_| !is_usual) {
            self.shared.faults.report(&export.name, call.operation.label(), fault);
        }
    }

    /// Releases what the metadata servers recall.
    fn give_back(&self) {
        drop(self.shared.pins.take_gone());
        if let Ok(live) = self.shared.life.current() {
            live.table.give_back(live.mount.take_released());
        }
    }
}

/// The exported directory.
pub(super) fn root_of(live: &LiveMount, export: &CephExport) -> Result<Vino, Status> {
    live.roots.get(export.place).copied().ok_or(Status::Stale)
}

/// A failure with the attributes of its object.
pub(super) fn failed(
    about: Option<FileAttributes>,
) -> impl Fn(Status) -> Failed<Option<FileAttributes>> {
    move |status| Failed { status, about }
}
