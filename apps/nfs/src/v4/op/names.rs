//! REMOVE, RENAME and LINK (RFC 8881 §18.25, §18.26, §18.9).

use stag_protocol::nfs::{
    v3::FileHandle,
    v4::{Answer, Rename4Args, Rename4Ok, Status4},
};

use super::lookup::not_a_directory;
use crate::v4::{
    attributes::change_info,
    context::{Done, Stop, Turn, changes_in_flight::ChangeScope, status::check_name},
};
use stag_nfs_store::{NameIn, Store};
use stag_nfs4_state::RecallScope;

/// Directories are removed like any other object.
pub(super) fn remove<S: Store>(turn: &mut Turn<'_, '_, S>, name: &[u8]) -> Done {
    let node = turn.current()?;
    check_name(name)?;
    // RFC 8881 §8.4.2.1: the name removed may be one by which a client is about to reclaim.
    turn.nfs4.state.check_grace()?;
    let directory = node.object(Status4::RoFs)?;
    turn.note_change(|| ChangeScope::Names);
    recall_named(turn, &directory, name, NameChange::Goes)?;
    let removed = match turn.remove(&directory, name) {
        Err(Stop::Fail(Status4::IsDir | Status4::Perm)) => turn.rmdir(&directory, name),
        removed => removed,
    };
    let change = removed.map_err(|stop| explain(turn, &directory, stop))?;
    turn.put(&Answer::Remove(Ok(change_info(&change))))
}

pub(super) fn rename<S: Store>(turn: &mut Turn<'_, '_, S>, args: &Rename4Args<'_>) -> Done {
    let (from, to) = (turn.saved()?, turn.current()?);
    check_name(args.old.0)?;
    check_name(args.new.0)?;
    turn.nfs4.state.check_grace()?;
    let (from, to) = (from.object(Status4::RoFs)?, to.object(Status4::RoFs)?);
    turn.note_change(|| ChangeScope::Names);
    recall_named(turn, &from, args.old.0, NameChange::Moves)?;
    recall_named(turn, &to, args.new.0, NameChange::Goes)?;
    let renamed = turn.rename(NameIn::new(&from, args.old.0), NameIn::new(&to, args.new.0));
    let renamed = match renamed {
        Ok(renamed) => renamed,
        Err(Stop::Fail(Status4::NotDir)) => {
            // RFC 8881 §18.26.4: a symbolic link is no directory, but has no status of its own.
            return Err(Status4::NotDir.into());
        }
        // RFC 8881 §18.26.3 [8881-310]: an object of another kind in the way exists
        Err(Stop::Fail(Status4::IsDir)) => return Err(Status4::Exist.into()),
        Err(stop) => return Err(stop),
    };
    let ok = Rename4Ok { source: change_info(&renamed.from), target: change_info(&renamed.to) };
    turn.put(&Answer::Rename(Ok(ok)))
}

pub(super) fn link<S: Store>(turn: &mut Turn<'_, '_, S>, name: &[u8]) -> Done {
    let (file, directory) = (turn.saved()?, turn.current()?);
    check_name(name)?;
    turn.nfs4.state.check_grace()?;
    let (file, directory) = (file.object(Status4::IsDir)?, directory.object(Status4::RoFs)?);
    turn.recall_for_name(&file)?;
    let linked = match turn.link(&file, &directory, name) {
        Ok(linked) => linked,
        Err(stop) => return Err(explain(turn, &directory, stop)),
    };
    turn.put(&Answer::Link(Ok(change_info(&linked.directory))))
}

/// Fate of a name.
#[derive(Clone, Copy)]
enum NameChange {
    Goes,
    /// Its file gets another name.
    Moves,
}

/// Recalls the delegations of the file that has a name, if there is one.
fn recall_named<S: Store>(
    turn: &mut Turn<'_, '_, S>,
    directory: &FileHandle,
    name: &[u8],
    change: NameChange,
) -> Done {
    if !turn.sees_delegations() {
        return Ok(());
    }
    match (turn.lookup(directory, name), change) {
        (Ok(found), NameChange::Goes) => turn.recall(&found.handle, RecallScope::All),
        (Ok(found), NameChange::Moves) => turn.recall_for_name(&found.handle),
        // There is no such file, or the operation itself reports the error.
        (Err(Stop::Fail(status)), _) if is_final(status) => Ok(()),
        (Err(stop), _) => Err(stop),
    }
}

/// Returns true if a lookup that failed with this status would fail again a moment later.
const fn is_final(status: Status4) -> bool {
    !matches!(status, Status4::Delay | Status4::Io | Status4::ServerFault)
}

/// Replaces the status for a name in an object other than a directory by a more specific one.
fn explain<S: Store>(turn: &mut Turn<'_, '_, S>, directory: &FileHandle, stop: Stop) -> Stop {
    match stop {
        Stop::Fail(Status4::NotDir) => not_a_directory(turn, directory),
        stop => stop,
    }
}
