//! REMOVE, RENAME and LINK (RFC 8881 §18.25, §18.26, §18.9).

use stag_protocol::nfs::{
    v3::FileHandle,
    v4::{Answer, Rename4Args, Rename4Ok, Status4},
};

use super::lookup::not_a_directory;
use crate::v4::{
    attributes::change_info,
    context::{
        CompoundContext, OpExit, OpResult, changes_in_flight::ChangeScope, status::check_name,
    },
};
use stag_nfs_store::{NameIn, Store};
use stag_nfs4_state::RecallScope;

/// Directories are removed like any other object.
pub(super) fn remove<S: Store>(context: &mut CompoundContext<'_, '_, S>, name: &[u8]) -> OpResult {
    let node = context.current()?;
    check_name(name)?;
    // RFC 8881 §8.4.2.1: the name removed may be one by which a client is about to reclaim.
    context.nfs4.state.check_grace()?;
    let directory = node.object(Status4::RoFs)?;
    context.note_change(|| ChangeScope::Names);
    recall_named(context, &directory, name, NameChange::Goes)?;
    let removed = match context.remove(&directory, name) {
        Err(OpExit::Fail(Status4::IsDir | Status4::Perm)) => context.rmdir(&directory, name),
        removed => removed,
    };
    let change = removed.map_err(|stop| explain(context, &directory, stop))?;
    context.put(&Answer::Remove(Ok(change_info(&change))))
}

pub(super) fn rename<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &Rename4Args<'_>,
) -> OpResult {
    let (from, to) = (context.saved()?, context.current()?);
    check_name(args.old.0)?;
    check_name(args.new.0)?;
    context.check_saved_flavor(&from, &to)?;
    context.nfs4.state.check_grace()?;
    let (from, to) = (from.object(Status4::RoFs)?, to.object(Status4::RoFs)?);
    context.note_change(|| ChangeScope::Names);
    recall_named(context, &from, args.old.0, NameChange::Moves)?;
    recall_named(context, &to, args.new.0, NameChange::Goes)?;
    let renamed = context.rename(NameIn::new(&from, args.old.0), NameIn::new(&to, args.new.0));
    let renamed = match renamed {
        Ok(renamed) => renamed,
        Err(OpExit::Fail(Status4::NotDir)) => {
            // RFC 8881 §18.26.4: a symbolic link is no directory, but has no status of its own.
            return Err(Status4::NotDir.into());
        }
        // RFC 8881 §18.26.3 [8881-310]: an object of another kind in the way exists
        Err(OpExit::Fail(Status4::IsDir)) => return Err(Status4::Exist.into()),
        Err(stop) => return Err(stop),
    };
    let ok = Rename4Ok { source: change_info(&renamed.from), target: change_info(&renamed.to) };
    context.put(&Answer::Rename(Ok(ok)))
}

pub(super) fn link<S: Store>(context: &mut CompoundContext<'_, '_, S>, name: &[u8]) -> OpResult {
    let (file, directory) = (context.saved()?, context.current()?);
    check_name(name)?;
    context.check_saved_flavor(&file, &directory)?;
    context.nfs4.state.check_grace()?;
    let (file, directory) = (file.object(Status4::IsDir)?, directory.object(Status4::RoFs)?);
    context.recall_for_name(&file)?;
    let linked = match context.link(&file, &directory, name) {
        Ok(linked) => linked,
        Err(stop) => return Err(explain(context, &directory, stop)),
    };
    context.put(&Answer::Link(Ok(change_info(&linked.directory))))
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
    context: &mut CompoundContext<'_, '_, S>,
    directory: &FileHandle,
    name: &[u8],
    change: NameChange,
) -> OpResult {
    if !context.sees_delegations() {
        return Ok(());
    }
    match (context.lookup(directory, name), change) {
        (Ok(found), NameChange::Goes) => context.recall(&found.handle, RecallScope::All),
        (Ok(found), NameChange::Moves) => context.recall_for_name(&found.handle),
        // There is no such file, or the operation itself reports the error.
        (Err(OpExit::Fail(status)), _) if is_final(status) => Ok(()),
        (Err(stop), _) => Err(stop),
    }
}

/// Returns true if a lookup that failed with this status would fail again a moment later.
const fn is_final(status: Status4) -> bool {
    !matches!(status, Status4::Delay | Status4::Io | Status4::ServerFault)
}

/// Replaces the status for a name in an object other than a directory by a more specific one.
fn explain<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    directory: &FileHandle,
    stop: OpExit,
) -> OpExit {
    match stop {
        OpExit::Fail(Status4::NotDir) => not_a_directory(context, directory),
        stop => stop,
    }
}
