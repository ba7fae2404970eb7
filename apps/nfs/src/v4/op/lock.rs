//! LOCK, LOCKT and LOCKU (RFC 8881 §18.10–§18.12).

use stag_protocol::{
    nfs::{
        v3::{FileHandle, FileKind},
        v4::{
            Answer, AnswerSet as _, Lock4Args, LockDenied, LockFault, LockT4Args, LockType,
            LockU4Args, Locker, Operation, StateOwner, Status4, Text, state::LockRange,
        },
    },
    xdr::NoRoom,
};

use crate::v4::{
    context::{
        CompoundContext, OpExit, OpResult,
        state_calls::{StateRefusal, file_id},
    },
    local::shown_locks::LockRefused,
};
use stag_nfs_store::{LocalLock, Store};
use stag_nfs4_state::{DeniedLock, LockRequest, LockTestRequest, LockerRef, UnlockRequest};

pub(super) fn lock<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &Lock4Args<'_>,
) -> OpResult {
    let (file, fsid) = regular(context)?;
    let locker = match &args.locker {
        Locker::New(new) => {
            LockerRef::New { open: context.stateid(new.open)?, owner: new.owner.owner.0 }
        }
        Locker::Known(known) => LockerRef::Known(context.stateid(known.stateid)?),
    };
    let request = LockRequest {
        client: context.client_key()?,
        file: file_id(&file),
        kind: args.kind,
        reclaim: args.reclaim,
        offset: args.offset,
        length: args.length,
        locker,
    };
    let locked = context.show_lock(&file, fsid, &request).and_then(|()| {
        let locked = context.try_state(|state, now| state.lock(&request, now));
        if locked.is_err_and(|blocked| !matches!(blocked, StateRefusal::Stopped(OpExit::Wait))) {
            // It was shown to local programs, but not granted.
            let range = LockRange::new(request.offset, request.length)?;
            context.nfs4.state.note_weakened(request.file, range);
        }
        Ok(locked?)
    });
    context.nfs4.show_weakened(context.store);
    match locked {
        Ok(stateid) => {
            context.set_stateid(Some(stateid));
            context.put(&Answer::Lock(Ok(stateid)))
        }
        Err(LockRefused::Blocked(StateRefusal::Denied(denied))) => {
            Err(refuse(context, Operation::Lock, &denied))
        }
        // RFC 8881 §9.11 [8881-218]: a reclaim that conflicts with another is refused as such
        Err(LockRefused::Local(_)) if request.reclaim => Err(Status4::ReclaimConflict.into()),
        Err(LockRefused::Local(local)) => {
            let now = crate::v4::milliseconds(context.cx.now());
            context.nfs4.state.queue_local_waiter(&request, now);
            Err(refuse_local(context, Operation::Lock, &local))
        }
        Err(LockRefused::Blocked(StateRefusal::Stopped(stop))) => Err(stop),
    }
}

pub(super) fn lockt<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &LockT4Args<'_>,
) -> OpResult {
    let (file, fsid) = regular(context)?;
    let request = LockTestRequest {
        client: context.client_key()?,
        file: file_id(&file),
        kind: args.kind,
        offset: args.offset,
        length: args.length,
        owner: args.owner.owner.0,
    };
    match context.try_state(|state, now| state.test_lock(&request, now)) {
        Ok(()) => {
            let exclusive = args.kind.is_exclusive();
            context.await_unwatched(&file, fsid)?;
            match context.find_local_lock(&file, args.offset, args.length, exclusive)? {
                Some(local) => Err(refuse_local(context, Operation::LockT, &local)),
                None => context.put(&Answer::LockT(Ok(()))),
            }
        }
        Err(StateRefusal::Denied(denied)) => Err(refuse(context, Operation::LockT, &denied)),
        Err(StateRefusal::Stopped(stop)) => Err(stop),
    }
}

pub(super) fn locku<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    args: &LockU4Args,
) -> OpResult {
    let file = context.current()?.object(Status4::BadStateid)?;
    context.check_admitted(&file, Operation::LockU)?;
    let locks = context.state_request(&file, args.stateid)?;
    let request = UnlockRequest { locks, offset: args.offset, length: args.length };
    let unlocked = context.with_state(|state, _| state.unlock(&request));
    context.nfs4.show_weakened(context.store);
    let stateid = unlocked?;
    context.set_stateid(Some(stateid));
    context.put(&Answer::LockU(Ok(stateid)))
}

/// The current object, which is a regular file (RFC 8881 §18.10.4), and the number of its file
/// system.
fn regular<S: Store>(context: &mut CompoundContext<'_, '_, S>) -> OpResult<(FileHandle, u64)> {
    let file = context.current()?.object(Status4::IsDir)?;
    let attributes = context.getattr(&file)?;
    match attributes.kind {
        FileKind::Regular => Ok((file, attributes.fsid)),
        FileKind::Directory => Err(Status4::IsDir.into()),
        FileKind::Symlink => Err(Status4::Symlink.into()),
        _ => Err(Status4::WrongType.into()),
    }
}

/// Writes the conflicting lock of a client.
fn refuse<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    operation: Operation,
    denied: &DeniedLock,
) -> OpExit {
    let (client_id, owner) = context.nfs4.state.lock_owner(denied.holder).unwrap_or_default();
    let answer = denial(
        operation,
        denied.range,
        denied.exclusive,
        StateOwner { client_id, owner: Text(owner) },
    );
    stop(context.compound.reply.write(|writer| answer.emit(writer)))
}

/// Writes the conflicting lock of a local program. No client has the ID 0.
fn refuse_local<S: Store>(
    context: &mut CompoundContext<'_, '_, S>,
    operation: Operation,
    local: &LocalLock,
) -> OpExit {
    let owner = StateOwner { client_id: 0, owner: Text(b"local") };
    let answer = denial(operation, local.range, local.exclusive, owner);
    stop(context.compound.reply.write(|writer| answer.emit(writer)))
}

fn denial(
    operation: Operation,
    range: LockRange,
    exclusive: bool,
    owner: StateOwner<'_>,
) -> Answer<'_> {
    let kind = if exclusive { LockType::Write } else { LockType::Read };
    let (offset, length) = (range.offset(), range.length());
    let fault = LockFault::Denied(LockDenied { offset, length, kind, owner });
    match operation {
        Operation::LockT => Answer::LockT(Err(fault)),
        _ => Answer::Lock(Err(fault)),
    }
}

fn stop(written: Result<(), NoRoom>) -> OpExit {
    match written {
        Ok(()) => OpExit::Written(Status4::Denied),
        Err(NoRoom) => Status4::ServerFault.into(),
    }
}
