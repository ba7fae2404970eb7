//! LOOKUP and LOOKUPP (RFC 8881 §18.13, §18.14).

use stag_protocol::nfs::{
    v3::{FileHandle, FileKind},
    v4::{Answer, Status4},
};

use crate::{
    store::{Status, Store},
    v4::{
        node::Node,
        status::check_name,
        turn::{Done, Stop, Turn},
    },
};

pub(super) fn lookup<S: Store>(turn: &mut Turn<'_, '_, S>, name: &[u8]) -> Done {
    let node = turn.current()?;
    check_name(name)?;
    let found = find(turn, &node, name)?;
    turn.set_current(found);
    turn.put(&Answer::Lookup(Ok(())))
}

/// The object of a name in a directory. A name in the root of all exports is an export: here a
/// path goes over to another file system.
pub(super) fn find<S: Store>(
    turn: &mut Turn<'_, '_, S>,
    directory: &Node,
    name: &[u8],
) -> Done<Node> {
    match directory {
        Node::Root => {
            // RFC 8881 §7.3 [8881-317]: an entry of the root leads over to an export
            let place = turn.nfs4.root.find(name).ok_or(Status4::NoEnt)?;
            let found = turn.export(place).map(Node::Object);
            match turn.admission(place) {
                // An export is not there for whom its list does not hold.
                Err(Status::Acces) => Err(Status4::NoEnt.into()),
                _ => found,
            }
        }
        Node::Object(directory) => match turn.lookup(directory, name) {
            Ok(found) => Ok(Node::Object(found.handle)),
            Err(Stop::Fail(Status4::NotDir)) => Err(not_a_directory(turn, directory)),
            Err(stop) => Err(stop),
        },
    }
}

/// The status of a name in something that is no directory (RFC 8881 §18.13.4).
pub(super) fn not_a_directory<S: Store>(turn: &mut Turn<'_, '_, S>, object: &FileHandle) -> Stop {
    match turn.getattr(object) {
        // RFC 8881 §18.13.4 [8881-315]: a link is told from what else is no directory
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
        // RFC 8881 §18.14.3 [8881-316]: nothing is above the root
        Node::Root => return Err(Status4::NoEnt.into()),
        Node::Object(object) => object,
    };
    turn.learn_exports();
    if turn.nfs4.root.entry_of(&object).is_some() {
        return Ok(Node::Root);
    }
    match turn.parent_of(&object) {
        Ok(found) => Ok(Node::Object(found.handle)),
        Err(Stop::Fail(Status4::NotDir)) => Err(not_a_directory(turn, &object)),
        Err(stop) => Err(stop),
    }
}

impl<S: Store> Turn<'_, '_, S> {
    /// The directory of the export at a place of the root.
    pub(super) fn export(&mut self, place: usize) -> Done<FileHandle> {
        let entry = self.nfs4.root.entry(place).ok_or(Status4::NoEnt)?;
        let mut path = [b'/'; 256];
        let len = entry.name.len() + 1;
        let room = path.get_mut(1..len).ok_or(Status4::NameTooLong)?;
        room.copy_from_slice(&entry.name);
        let handle = self.mount(path.get(..len).unwrap_or_default())?;
        self.nfs4.root.learn(place, handle);
        Ok(handle)
    }

    /// Returns true if the caller sees an export of this name.
    pub(super) fn shows(&self, name: &[u8]) -> bool {
        self.nfs4.root.find(name).is_some_and(|place| self.admission(place).is_ok())
    }

    /// Judges whether the list of the export at a place admits the caller.
    pub(super) fn admission(&self, place: usize) -> Result<(), Status> {
        let entry = self.nfs4.root.entry(place).ok_or(Status::NoEnt)?;
        let name = core::str::from_utf8(&entry.name).map_err(|_| Status::NoEnt)?;
        self.store.admits(name, &self.caller)
    }

    /// Finds out the handles of all exports, so that their directories are known for such.
    fn learn_exports(&mut self) {
        let mut edition = self.nfs4.root.edition();
        if S::MAY_WAIT {
            // An operation that waited asks for those that it asked for before.
            edition = self.journal.exports_edition(edition);
        }
        for place in 0.. {
            match self.nfs4.root.entry(place) {
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
