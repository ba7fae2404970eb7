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
        Done, Stop, Turn,
        state_calls::{Blocked, file_id},
    },
    local::export_locks::LockRefused,
};
use stag_nfs_store::{LocalLock, Store};
use stag_nfs4_state::{DeniedLock, LockRequest, LockTestRequest, LockerRef, UnlockRequest};

pub(super) fn lock<S: Store>(turn: &mut Turn<'_, '_, S>, args: &Lock4Args<'_>) -> Done {
    let (file, fsid) = regular(turn)?;
    let locker = match &args.locker {
        Locker::New(new) => {
            LockerRef::New { open: turn.stateid(new.open)?, owner: new.owner.owner.0 }
        }
        Locker::Known(known) => LockerRef::Known(turn.stateid(known.stateid)?),
    };
    let request = LockRequest {
        client: turn.client_key()?,
        file: file_id(&file),
        kind: args.kind,
        reclaim: args.reclaim,
        offset: args.offset,
        length: args.length,
        locker,
    };
    let locked = turn.show_lock(&file, fsid, &request).and_then(|()| {
        let locked = turn.try_state(|state, now| state.lock(&request, now));
        if locked.is_err_and(|blocked| !matches!(blocked, Blocked::Stopped(Stop::Wait))) {
            // It was shown to local programs, but not granted.
            let range = LockRange::new(request.offset, request.length)?;
            turn.nfs4.state.note_weakened(request.file, range);
        }
        Ok(locked?)
    });
    turn.nfs4.show_weakened(turn.store);
    match locked {
        Ok(stateid) => {
            turn.set_stateid(Some(stateid));
            turn.put(&Answer::Lock(Ok(stateid)))
        }
        Err(LockRefused::Blocked(Blocked::Denied(denied))) => {
            Err(refuse(turn, Operation::Lock, &denied))
        }
        // RFC 8881 §9.11 [8881-218]: a reclaim that conflicts with another is refused as such
        Err(LockRefused::Local(_)) if request.reclaim => Err(Status4::ReclaimConflict.into()),
        Err(LockRefused::Local(local)) => {
            let now = crate::v4::milliseconds(turn.cx.now());
            turn.nfs4.state.queue_local_waiter(&request, now);
            Err(refuse_local(turn, Operation::Lock, &local))
        }
        Err(LockRefused::Blocked(Blocked::Stopped(stop))) => Err(stop),
    }
}

pub(super) fn lockt<S: Store>(turn: &mut Turn<'_, '_, S>, args: &LockT4Args<'_>) -> Done {
    let (file, fsid) = regular(turn)?;
    let request = LockTestRequest {
        client: turn.client_key()?,
        file: file_id(&file),
        kind: args.kind,
        offset: args.offset,
        length: args.length,
        owner: args.owner.owner.0,
    };
    match turn.try_state(|state, now| state.test_lock(&request, now)) {
        Ok(()) => {
            let exclusive = args.kind.is_exclusive();
            turn.await_unwatched(&file, fsid)?;
            match turn.find_local_lock(&file, args.offset, args.length, exclusive)? {
                Some(local) => Err(refuse_local(turn, Operation::LockT, &local)),
                None => turn.put(&Answer::LockT(Ok(()))),
            }
        }
        Err(Blocked::Denied(denied)) => Err(refuse(turn, Operation::LockT, &denied)),
        Err(Blocked::Stopped(stop)) => Err(stop),
    }
}

pub(super) fn locku<S: Store>(turn: &mut Turn<'_, '_, S>, args: &LockU4Args) -> Done {
    let file = turn.current()?.object(Status4::BadStateid)?;
    turn.check_admitted(&file)?;
    let locks = turn.state_request(&file, args.stateid)?;
    let request = UnlockRequest { locks, offset: args.offset, length: args.length };
    let unlocked = turn.with_state(|state, _| state.unlock(&request));
    turn.nfs4.show_weakened(turn.store);
    let stateid = unlocked?;
    turn.set_stateid(Some(stateid));
    turn.put(&Answer::LockU(Ok(stateid)))
}

/// The current object, which is a regular file (RFC 8881 §18.10.4), and the number of its file
/// system.
fn regular<S: Store>(turn: &mut Turn<'_, '_, S>) -> Done<(FileHandle, u64)> {
    let file = turn.current()?.object(Status4::IsDir)?;
    let attributes = turn.getattr(&file)?;
    match attributes.kind {
        FileKind::Regular => Ok((file, attributes.fsid)),
        FileKind::Directory => Err(Status4::IsDir.into()),
        FileKind::Symlink => Err(Status4::Symlink.into()),
        _ => Err(Status4::WrongType.into()),
    }
}

/// Writes the conflicting lock of a client.
fn refuse<S: Store>(turn: &mut Turn<'_, '_, S>, operation: Operation, denied: &DeniedLock) -> Stop {
    let (client_id, owner) = turn.nfs4.state.lock_owner(denied.holder).unwrap_or_default();
    let answer = denial(
        operation,
        denied.range,
        denied.exclusive,
        StateOwner { client_id, owner: Text(owner) },
    );
    stop(turn.reply.write(|writer| answer.emit(writer)))
}

/// Writes the conflicting lock of a local program. No client has the ID 0.
fn refuse_local<S: Store>(
    turn: &mut Turn<'_, '_, S>,
    operation: Operation,
    local: &LocalLock,
) -> Stop {
    let owner = StateOwner { client_id: 0, owner: Text(b"local") };
    let answer = denial(operation, local.range, local.exclusive, owner);
    stop(turn.reply.write(|writer| answer.emit(writer)))
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

fn stop(written: Result<(), NoRoom>) -> Stop {
    match written {
        Ok(()) => Stop::Written(Status4::Denied),
        Err(NoRoom) => Status4::ServerFault.into(),
    }
}
