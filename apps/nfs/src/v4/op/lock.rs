//! LOCK, LOCKT and LOCKU (RFC 8881 §18.10–§18.12).

use stag_protocol::nfs::{
    v3::{FileHandle, FileKind},
    v4::{
        Answer, AnswerSet as _, Lock4Args, LockDenied, LockFault, LockT4Args, LockType, LockU4Args,
        Locker, Operation, StateOwner, Status4, Text,
    },
};

use crate::{
    store::Store,
    v4::{
        state::{DeniedLock, LockRequest, LockTestRequest, LockerRef, UnlockRequest},
        stateids::{Blocked, file_id},
        turn::{Done, Stop, Turn},
    },
};

pub(super) fn lock<S: Store>(turn: &mut Turn<'_, '_, S>, args: &Lock4Args<'_>) -> Done {
    let file = regular(turn)?;
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
    match turn.try_state(|state, now| state.lock(&request, now)) {
        Ok(stateid) => {
            turn.set_stateid(Some(stateid));
            turn.put(&Answer::Lock(Ok(stateid)))
        }
        Err(Blocked::Denied(denied)) => Err(refuse(turn, Operation::Lock, &denied)),
        Err(Blocked::Stopped(stop)) => Err(stop),
    }
}

pub(super) fn lockt<S: Store>(turn: &mut Turn<'_, '_, S>, args: &LockT4Args<'_>) -> Done {
    let file = regular(turn)?;
    let request = LockTestRequest {
        client: turn.client_key()?,
        file: file_id(&file),
        kind: args.kind,
        offset: args.offset,
        length: args.length,
        owner: args.owner.owner.0,
    };
    match turn.try_state(|state, now| state.test_lock(&request, now)) {
        Ok(()) => turn.put(&Answer::LockT(Ok(()))),
        Err(Blocked::Denied(denied)) => Err(refuse(turn, Operation::LockT, &denied)),
        Err(Blocked::Stopped(stop)) => Err(stop),
    }
}

pub(super) fn locku<S: Store>(turn: &mut Turn<'_, '_, S>, args: &LockU4Args) -> Done {
    let file = turn.current()?.object(Status4::BadStateid)?;
    let locks = turn.state_request(&file, args.stateid)?;
    let request = UnlockRequest { locks, offset: args.offset, length: args.length };
    let stateid = turn.with_state(|state, _| state.unlock(&request))?;
    turn.set_stateid(Some(stateid));
    turn.put(&Answer::LockU(Ok(stateid)))
}

/// The current object, which is a regular file (RFC 8881 §18.10.4).
fn regular<S: Store>(turn: &mut Turn<'_, '_, S>) -> Done<FileHandle> {
    let file = turn.current()?.object(Status4::IsDir)?;
    match turn.getattr(&file)?.kind {
        FileKind::Regular => Ok(file),
        FileKind::Directory => Err(Status4::IsDir.into()),
        FileKind::Symlink => Err(Status4::Symlink.into()),
        _ => Err(Status4::WrongType.into()),
    }
}

/// Writes the lock that is in the way.
fn refuse<S: Store>(turn: &mut Turn<'_, '_, S>, operation: Operation, denied: &DeniedLock) -> Stop {
    let (client_id, owner) = turn.nfs4.state.lock_owner(denied.holder).unwrap_or_default();
    let kind = if denied.exclusive { LockType::Write } else { LockType::Read };
    let fault = LockFault::Denied(LockDenied {
        offset: denied.range.offset(),
        length: denied.range.length(),
        kind,
        owner: StateOwner { client_id, owner: Text(owner) },
    });
    let answer = match operation {
        Operation::LockT => Answer::LockT(Err(fault)),
        _ => Answer::Lock(Err(fault)),
    };
    match turn.reply.write(|writer| answer.emit(writer)) {
        Ok(()) => Stop::Written(Status4::Denied),
        Err(_) => Status4::ServerFault.into(),
    }
}
