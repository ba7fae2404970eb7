//! LOOKUP and LOOKUPP (RFC 8881 §18.13, §18.14).

use stag_protocol::nfs::{
    mount::Path as MountPath,
    v3::{FileHandle, FileKind},
    v4::{Answer, Status4},
};

use crate::v4::context::{
    Done, Stop, Turn,
    filehandle::{Node, PseudoHandle},
    pseudo_fs::Below,
    status::check_name,
};
use stag_nfs_store::{Status, Store};

pub(super) fn lookup<S: Store>(turn: &mut Turn<'_, '_, S>, name: &[u8]) -> Done {
    let node = turn.current()?;
    check_name(name)?;
    let found = find(turn, &node, name)?;
    turn.set_current(found);
    turn.put(&Answer::Lookup(Ok(())))
}

/// The object of a name in a directory. If a name in the pseudo file system is an export, the path
/// crosses into another file system.
pub(super) fn find<S: Store>(
    turn: &mut Turn<'_, '_, S>,
    directory: &Node,
    name: &[u8],
) -> Done<Node> {
    match directory {
        Node::Pseudo(handle) => {
            let directory = turn.directory(handle)?;
            match turn.nfs4.pseudo.find(directory, name).ok_or(Status4::NoEnt)? {
                Below::Directory(below) => found_directory(turn, below),
                Below::Export(place) => found_export(turn, place),
            }
        }
        Node::Object(directory) => match turn.lookup(directory, name) {
            Ok(found) => Ok(Node::Object(found.handle)),
            Err(Stop::Fail(Status4::NotDir)) => Err(not_a_directory(turn, directory)),
            Err(stop) => Err(stop),
        },
    }
}

fn found_directory<S: Store>(turn: &Turn<'_, '_, S>, directory: usize) -> Done<Node> {
    if !turn.sees(directory) {
        return Err(Status4::NoEnt.into());
    }
    let handle = turn.nfs4.pseudo.handle_of(directory).ok_or(Status4::NoEnt)?;
    Ok(Node::Pseudo(handle))
}

fn found_export<S: Store>(turn: &mut Turn<'_, '_, S>, place: usize) -> Done<Node> {
    // RFC 8881 §7.3 [8881-317]: an entry of the pseudo file system leads over to an export
    let found = turn.export(place).map(Node::Object);
    match turn.admission(place) {
        // An export is hidden from callers that its list does not admit.
        Err(Status::Acces) => Err(Status4::NoEnt.into()),
        _ => found,
    }
}

/// The status of a name in an object other than a directory (RFC 8881 §18.13.4).
pub(super) fn not_a_directory<S: Store>(turn: &mut Turn<'_, '_, S>, object: &FileHandle) -> Stop {
    match turn.getattr(object) {
        // RFC 8881 §18.13.4 [8881-315]: a symlink is NFS4ERR_SYMLINK, other types NFS4ERR_NOTDIR
        Ok(attributes) if attributes.kind == FileKind::Symlink => Status4::Symlink.into(),
        _ => Status4::NotDir.into(),
    }
}

pub(super) fn lookupp<S: Store>(turn: &mut Turn<'_, '_, S>) -> Done {
    let parent = parent(turn)?;
    turn.set_current(parent);
    turn.put(&Answer::LookupP(Ok(())))
}

/// The parent of the current object, which is a directory.
pub(super) fn parent<S: Store>(turn: &mut Turn<'_, '_, S>) -> Done<Node> {
    let object = match turn.current()? {
        Node::Pseudo(handle) => {
            let directory = turn.directory(&handle)?;
            // RFC 8881 §18.14.3 [8881-316]: nothing is above the root
            let above = turn.nfs4.pseudo.above(directory).ok_or(Status4::NoEnt)?;
            return Ok(Node::Pseudo(above));
        }
        Node::Object(object) => object,
    };
    turn.learn_exports();
    if let Some(export) = turn.nfs4.pseudo.export_of(&object) {
        return Ok(Node::Pseudo(turn.nfs4.pseudo.above_export(export)));
    }
    match turn.parent_of(&object) {
        Ok(found) => Ok(Node::Object(found.handle)),
        Err(Stop::Fail(Status4::NotDir)) => Err(not_a_directory(turn, &object)),
        Err(stop) => Err(stop),
    }
}

impl<S: Store> Turn<'_, '_, S> {
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
    pub(super) fn export(&mut self, place: usize) -> Done<FileHandle> {
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
        self.store.admits(name, &self.caller)
    }

    /// Looks up the handles of all exports, so that their directories are recognised.
    fn learn_exports(&mut self) {
        let mut edition = self.nfs4.pseudo.edition();
        if S::MAY_WAIT {
            // An operation that waited asks the same questions as before.
            edition = self.journal.exports_edition(edition);
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
