//! LOOKUP and LOOKUPP (RFC 8881 §18.13, §18.14).

use stag_protocol::nfs::{
    mount::Path as MountPath,
    v3::{FileHandle, FileKind},
    v4::{Answer, Status4},
};

use crate::v4::context::{
    CompoundContext, OpExit, OpResult,
    filehandle::{Node, PseudoHandle},
    pseudo_fs::Below,
    status::check_name,
};
use stag_nfs_store::{Status, Store};

pub(super) fn lookup<S: Store>(context: &mut CompoundContext<'_, '_, S>, name: &[u8]) -> OpResult {
    let node = context.current()?;
    check_name(name)?;
    let found = match node {
        Node::Object(_) => {
            context.check_flavor(&node)?;
            find(context, &node, name)?
        }
        // RFC 8881 §2.6.3.1.1.3 [8881-377]: the flavor has to be right for the object that is found
        Node::Pseudo(_) => {
            let found = find(context, &node, name)?;
            context.check_flavor(&found)?;
            found
        }
    };
    context.set_current(found);
    context.put(&Answer::Lookup(Ok(())))
}

/// The object of a name in a directory. If a name in the pseudo file system is an export, the path
/// crosses into another file system.
pub(super) fn find<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    directory: &Node,
    name: &[u8],
) -> OpResult<Node> {
    match directory {
        Node::Pseudo(handle) => {
            let directory = context.directory(handle)?;
            match context.nfs4.pseudo.find(directory, name).ok_or(Status4::NoEnt)? {
                Below::Directory(below) => found_directory(context, below),
                Below::Export(place) => found_export(context, place),
            }
        }
        Node::Object(directory) => match context.lookup(directory, name) {
            Ok(found) => Ok(Node::Object(found.handle)),
            Err(OpExit::Fail(Status4::NotDir)) => Err(not_a_directory(context, directory)),
            Err(stop) => Err(stop),
        },
    }
}

fn found_directory<S: Store>(
    context: &CompoundContext<'_, '_, S>,
    directory: usize,
) -> OpResult<Node> {
    if !context.sees(directory) {
        return Err(Status4::NoEnt.into());
    }
    let handle = context.nfs4.pseudo.handle_of(directory).ok_or(Status4::NoEnt)?;
    Ok(Node::Pseudo(handle))
}

fn found_export<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    place: usize,
) -> OpResult<Node> {
    // RFC 8881 §7.3 [8881-317]: an entry of the pseudo file system leads over to an export
    let found = context.export(place).map(Node::Object);
    match context.admission(place) {
        // An export is hidden from callers that its list does not admit.
        Err(Status::Acces) => Err(Status4::NoEnt.into()),
        _ => found,
    }
}

/// The status of a name in an object other than a directory (RFC 8881 §18.13.4).
pub(super) fn not_a_directory<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    object: &FileHandle,
) -> OpExit {
    status_of_kind(context.getattr(object).ok().map(|attributes| attributes.kind)).into()
}

/// The status of a name in an object of this kind, if it is known.
pub(in crate::v4) const fn status_of_kind(kind: Option<FileKind>) -> Status4 {
    match kind {
        // RFC 8881 §18.13.4 [8881-315]: a symlink is NFS4ERR_SYMLINK, other types NFS4ERR_NOTDIR
        Some(FileKind::Symlink) => Status4::Symlink,
        _ => Status4::NotDir,
    }
}

pub(super) fn lookupp<S: Store>(context: &mut CompoundContext<'_, '_, S>) -> OpResult {
    let node = context.current()?;
    let parent = match parent(context) {
        // The store refuses to look above it, so its parent is in the same export.
        Err(OpExit::Fail(Status4::Access)) => {
            context.check_flavor(&node)?;
            return Err(Status4::Access.into());
        }
        parent => parent?,
    };
    // RFC 8881 §18.14.3 [8881-384]: the flavor has to be right for the parent
    context.check_flavor(&parent)?;
    context.set_current(parent);
    context.put(&Answer::LookupP(Ok(())))
}

/// The parent of the current object, which is a directory.
pub(super) fn parent<S: Store>(context: &mut CompoundContext<'_, '_, S>) -> OpResult<Node> {
    let object = match context.current()? {
        Node::Pseudo(handle) => {
            let directory = context.directory(&handle)?;
            // RFC 8881 §18.14.3 [8881-316]: nothing is above the root
            let above = context.nfs4.pseudo.above(directory).ok_or(Status4::NoEnt)?;
            return Ok(Node::Pseudo(above));
        }
        Node::Object(object) => object,
    };
    context.learn_exports();
    if let Some(export) = context.nfs4.pseudo.export_of(&object) {
        return Ok(Node::Pseudo(context.nfs4.pseudo.above_export(export)));
    }
    match context.lookupp(&object) {
        Ok(found) => Ok(Node::Object(found.handle)),
        Err(OpExit::Fail(Status4::NotDir)) => Err(not_a_directory(context, &object)),
        Err(stop) => Err(stop),
    }
}

impl<S: Store> CompoundContext<'_, '_, S> {
    /// The place of a directory of the pseudo file system, by its handle.
    ///
    /// # Errors
    /// NFS4ERR_STALE when it has no exports beneath it any more, NFS4ERR_ACCESS when the caller may
    /// see none of them.
    pub(in crate::v4) fn directory(&self, handle: &PseudoHandle) -> Result<usize, Status4> {
        let place = self.nfs4.pseudo.place_of(handle).ok_or(Status4::Stale)?;
        let is_open = *handle == PseudoHandle::ROOT || self.sees(place);
        is_open.then_some(place).ok_or(Status4::Access)
    }

    /// Returns true if the caller sees an export beneath a directory of the pseudo file system.
    pub(super) fn sees(&self, directory: usize) -> bool {
        let exports = self.nfs4.pseudo.beneath(directory);
        exports.iter().any(|place| self.admission(*place).is_ok())
    }

    /// The root of the export at a place.
    pub(super) fn export(&mut self, place: usize) -> OpResult<FileHandle> {
        let entry = self.nfs4.pseudo.export(place).ok_or(Status4::NoEnt)?;
        let mut path = [b'/'; MountPath::MAX];
        let len = entry.name.len() + 1;
        let room = path.get_mut(1..len).ok_or(Status4::NameTooLong)?;
        room.copy_from_slice(&entry.name);
        let handle = self.mount(path.get(..len).unwrap_or_default())?;
        self.nfs4.pseudo.learn(place, handle);
        Ok(handle)
    }

    /// Returns true if the caller sees an entry of this name in a directory of the pseudo file
    /// system.
    pub(super) fn shows(&self, directory: usize, name: &[u8]) -> bool {
        match self.nfs4.pseudo.find(directory, name) {
            Some(Below::Export(place)) => self.admission(place).is_ok(),
            Some(Below::Directory(below)) => self.sees(below),
            None => false,
        }
    }

    /// Checks that the list of the export at a place admits the caller.
    pub(super) fn admission(&self, place: usize) -> Result<(), Status> {
        let entry = self.nfs4.pseudo.export(place).ok_or(Status::NoEnt)?;
        let name = core::str::from_utf8(&entry.name).map_err(|_| Status::NoEnt)?;
        self.store.admits(name, &self.compound.caller)
    }

    /// Looks up the handles of all exports, so that their directories are recognised.
    fn learn_exports(&mut self) {
        let mut edition = self.nfs4.pseudo.edition();
        if S::MAY_WAIT {
            // An operation that waited asks the same questions as before.
            edition = self.compound.replay_log.exports_edition(edition);
        }
        for place in 0.. {
            match self.nfs4.pseudo.export(place) {
                None => return,
                Some(entry) if !entry.was_known(edition) => {
                    // An export that cannot be opened is not the current directory.
                    let _ = self.export(place);
                }
                Some(_) => {}
            }
        }
    }
}
