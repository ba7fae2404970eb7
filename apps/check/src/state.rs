//! Opens and locks of two clients of version 4 (RFC 8881 §8, §9): the state of one conflicts with
//! the other's requests, and nothing is left when they have ended.

use super::scene::{CheckScene, CheckedValue, StepResult, done, holds, same};
use stag_client::{Error, OtherClient};
use stag_protocol::nfs::{
    v3::FileHandle,
    v4::{
        Answer, AnswerSet as _, Array, Close4Args, DelegationType, KnownLockOwner, Lock4Args,
        LockFault, LockT4Args, LockType, LockU4Args, Locker, NewLockOwner, Open4Args, OpenClaim,
        OpenDowngrade4Args, OpenHow, Read4Args, Request, StateOwner, Stateid, Status4, Text, share,
    },
};
use stag_verbs::Provider;

/// The end of a compound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    /// All operations succeeded. The stateid is the last operation's, if it gives one.
    Done(Option<Stateid>),
    /// A lock is in the way: its first octet, its octets, and true if it is exclusive.
    Denied(u64, u64, bool),
    /// An operation failed.
    Failed(Status4),
}

impl Came {
    fn of(answer: &Answer<'_>) -> Self {
        match answer {
            Answer::Open(Ok(open)) => Self::Done(Some(open.stateid)),
            Answer::Lock(Ok(id)) | Answer::LockU(Ok(id)) | Answer::OpenDowngrade(Ok(id)) => {
                Self::Done(Some(*id))
            }
            Answer::Lock(Err(LockFault::Denied(lock)))
            | Answer::LockT(Err(LockFault::Denied(lock))) => {
                Self::Denied(lock.offset, lock.length, lock.kind.is_exclusive())
            }
            Answer::TestStateid(Ok(all)) => match all.items().find(|it| *it != Status4::Ok) {
                Some(status) => Self::Failed(status),
                None => Self::Done(None),
            },
            answer => match answer.status() {
                Status4::Ok => Self::Done(None),
                status => Self::Failed(status),
            },
        }
    }
}

/// One of the two clients.
struct Side {
    name: &'static str,
    client: OtherClient,
}

/// Octets of a file from one on.
#[derive(Clone, Copy)]
struct Range(u64, u64);

impl Side {
    fn new<P: Provider>(scene: &mut CheckScene<'_, P>, name: &'static str) -> CheckedValue<Self> {
        let minor = scene.client.minor_version().unwrap_or(1);
        let client = scene.client.other_client(minor);
        Ok(Self { name, client: done(format_args!("a session of client {name}"), client)? })
    }

    /// Runs operations on a file.
    fn run<P: Provider>(
        &mut self,
        scene: &mut CheckScene<'_, P>,
        file: &FileHandle,
        what: &str,
        request: Request<'_>,
    ) -> CheckedValue<Came> {
        let requests = [Request::PutFh(Text(file.octets())), request];
        let came = scene.client.compound(&mut self.client, &requests, |reply| {
            let mut came = Came::Done(None);
            for answer in reply {
                came = Came::of(&answer.map_err(Error::Garbled)?);
            }
            Ok(came)
        });
        done(format_args!("{what} by client {}", self.name), came)
    }

    /// Runs what has to give a stateid.
    fn state<P: Provider>(
        &mut self,
        scene: &mut CheckScene<'_, P>,
        file: &FileHandle,
        what: &str,
        request: Request<'_>,
    ) -> CheckedValue<Stateid> {
        match self.run(scene, file, what, request)? {
            Came::Done(Some(id)) => Ok(id),
            came => {
                let what = format!("{what} by client {}", self.name);
                holds(what, false, "a stateid", came).map(|()| Stateid::INVALID)
            }
        }
    }

    /// Runs what has to come to this end.
    fn ends<P: Provider>(
        &mut self,
        scene: &mut CheckScene<'_, P>,
        file: &FileHandle,
        what: &str,
        request: Request<'_>,
        expected: Came,
    ) -> StepResult {
        let came = self.run(scene, file, what, request)?;
        same(format_args!("{what} by client {}", self.name), &expected, &came)
    }
}

/// An OPEN of the current file.
fn open(access: u32, deny: u32, claim: OpenClaim<'static>) -> Request<'static> {
    Request::Open(Open4Args {
        seqid: 0,
        share_access: access | share::WANT_NO_DELEGATION,
        share_deny: deny,
        owner: StateOwner { client_id: 0, owner: Text(b"opener") },
        how: OpenHow::NoCreate,
        claim,
    })
}

pub(crate) fn close(open: Stateid) -> Request<'static> {
    Request::Close(Close4Args { seqid: 0, open })
}

const OWNER: StateOwner<'static> = StateOwner { client_id: 0, owner: Text(b"locker") };

/// The first LOCK of an owner.
fn first_lock(kind: LockType, open: Stateid, range: Range, reclaim: bool) -> Request<'static> {
    let owner = NewLockOwner { open_seqid: 0, open, lock_seqid: 0, owner: OWNER };
    let Range(offset, length) = range;
    Request::Lock(Lock4Args { kind, reclaim, offset, length, locker: Locker::New(owner) })
}

fn lock(kind: LockType, stateid: Stateid, Range(offset, length): Range) -> Request<'static> {
    let locker = Locker::Known(KnownLockOwner { stateid, seqid: 0 });
    Request::Lock(Lock4Args { kind, reclaim: false, offset, length, locker })
}

fn unlock(stateid: Stateid, Range(offset, length): Range) -> Request<'static> {
    Request::LockU(LockU4Args { kind: LockType::Write, seqid: 0, stateid, offset, length })
}

fn test(kind: LockType, Range(offset, length): Range) -> Request<'static> {
    Request::LockT(LockT4Args { kind, offset, length, owner: OWNER })
}

/// To the end of a file, however long it gets.
const TO_END: u64 = u64::MAX;

pub(crate) fn of_two_clients<P: Provider>(scene: &mut CheckScene<'_, P>) -> StepResult {
    let file = scene.make(scene.work, "state")?;
    let mut sides = Vec::new();
    let ran = run_sides(scene, &file, &mut sides);
    for side in sides {
        if ran.is_ok() {
            let what = format!("the end of client {}, which has nothing open", side.name);
            done(what, scene.client.end_client(side.client))?;
        } else {
            // Why the step failed is worth more than that this failed, too.
            let _ = scene.client.abandon_client(side.client);
        }
    }
    ran.and_then(|()| scene.remove(scene.work, "state"))
}

/// Makes two clients in `sides`, and has them at a file.
fn run_sides<P: Provider>(
    scene: &mut CheckScene<'_, P>,
    file: &FileHandle,
    sides: &mut Vec<Side>,
) -> StepResult {
    for name in ["A", "B"] {
        sides.push(Side::new(scene, name)?);
    }
    let [one, other] = sides.as_mut_slice() else { return Ok(()) };
    shares(scene, file, [one, other])?;
    locks(scene, file, [one, other])?;
    late_claims(scene, file, one)
}

/// Share reservations (§9.7): what an open denies, no other has.
fn shares<P: Provider>(
    scene: &mut CheckScene<'_, P>,
    file: &FileHandle,
    [one, other]: [&mut Side; 2],
) -> StepResult {
    let denied = Came::Failed(Status4::ShareDenied);
    let reading = one.state(
        scene,
        file,
        "OPEN for reading that denies writing",
        open(share::READ, share::WRITE, OpenClaim::Fh),
    )?;
    let what = "OPEN for writing, which is denied";
    other.ends(scene, file, what, open(share::WRITE, 0, OpenClaim::Fh), denied)?;
    let what = "OPEN for reading that denies reading, which another does";
    other.ends(scene, file, what, open(share::READ, share::READ, OpenClaim::Fh), denied)?;
    let theirs =
        other.state(scene, file, "OPEN for reading", open(share::READ, 0, OpenClaim::Fh))?;
    // Another OPEN of the same owner is the same state with one more number (§9.9).
    let again = one.state(
        scene,
        file,
        "OPEN by the same owner",
        open(share::READ, share::WRITE, OpenClaim::Fh),
    )?;
    same("the state of an open that is upgraded", &reading.other, &again.other)?;
    same("the number of an open that is upgraded", &reading.seqid.wrapping_add(1), &again.seqid)?;
    // To a combination that was opened (§18.18.3).
    let (share_access, share_deny) = (share::READ, share::WRITE);
    let down = OpenDowngrade4Args { open: again, seqid: 0, share_access, share_deny };
    let latest = one.state(scene, file, "OPEN_DOWNGRADE", Request::OpenDowngrade(down))?;
    // A stateid is its client's.
    let read = Read4Args { stateid: latest, offset: 0, count: 1 };
    let came = other.run(scene, file, "READ by the other's open", Request::Read(read))?;
    same("READ by the open of another client", &Came::Failed(Status4::BadStateid), &came)?;
    one.ends(scene, file, "CLOSE", close(latest), Came::Done(None))?;
    let what = "CLOSE of what is closed";
    one.ends(scene, file, what, close(latest), Came::Failed(Status4::BadStateid))?;
    let what = "OPEN for writing when nothing denies it";
    let writing = other.state(scene, file, what, open(share::WRITE, 0, OpenClaim::Fh))?;
    same("the state of the same owner's open", &theirs.other, &writing.other)?;
    other.ends(scene, file, "CLOSE", close(writing), Came::Done(None))
}

/// Locks of ranges (§9.1 to §9.6): they conflict between clients, are split and joined, and go with
/// LOCKU.
fn locks<P: Provider>(
    scene: &mut CheckScene<'_, P>,
    file: &FileHandle,
    [one, other]: [&mut Side; 2],
) -> StepResult {
    let both = || open(share::BOTH, 0, OpenClaim::Fh);
    let [open_one, open_other] =
        [one.state(scene, file, "OPEN", both())?, other.state(scene, file, "OPEN", both())?];
    let (write, read) = (LockType::Write, LockType::Read);
    let whole = first_lock(write, open_one, Range(0, 100), false);
    let mine = one.state(scene, file, "LOCK of 0 to 100", whole)?;
    let held = Came::Denied(0, 100, true);
    let what = "LOCK of 50 to 150";
    other.ends(scene, file, what, first_lock(write, open_other, Range(50, 100), false), held)?;
    other.ends(scene, file, "LOCKT for reading", test(read, Range(99, TO_END)), held)?;
    let free = Came::Done(None);
    other.ends(scene, file, "LOCKT beside it", test(write, Range(100, TO_END)), free)?;
    one.ends(scene, file, "LOCKT of its own", test(write, Range(0, 100)), free)?;
    // A lock that is split leaves both ends.
    let mine = one.state(scene, file, "LOCKU of 40 to 60", unlock(mine, Range(40, 20)))?;
    let middle = first_lock(write, open_other, Range(40, 20), false);
    let theirs = other.state(scene, file, "LOCK of 40 to 60", middle)?;
    let what = "LOCK of 30 to 60";
    let left = Came::Denied(0, 40, true);
    other.ends(scene, file, what, lock(write, theirs, Range(30, 30)), left)?;
    let right = Came::Denied(60, 40, true);
    other.ends(scene, file, "LOCKT of 60", test(read, Range(60, 1)), right)?;
    // Readers share the range, and conflict with a writer.
    let theirs = other.state(scene, file, "LOCKU of 40 to 60", unlock(theirs, Range(40, 20)))?;
    let mine = one.state(scene, file, "LOCK for reading", lock(read, mine, Range(0, 100)))?;
    let theirs = other.state(scene, file, "LOCK for reading", lock(read, theirs, Range(0, 100)))?;
    let shared = Came::Denied(0, 100, false);
    one.ends(scene, file, "LOCK for writing", lock(write, mine, Range(0, 10)), shared)?;
    let what = "LOCK of no octet";
    one.ends(scene, file, what, lock(read, mine, Range(5, 0)), Came::Failed(Status4::Inval))?;
    other.state(scene, file, "LOCKU of all", unlock(theirs, Range(0, TO_END)))?;
    let mine = one.state(scene, file, "LOCK for writing", lock(write, mine, Range(0, 100)))?;
    // A stateid with locks is not given up.
    let stateids = [mine];
    let what = "FREE_STATEID with locks";
    one.ends(scene, file, what, Request::FreeStateid(mine), Came::Failed(Status4::LocksHeld))?;
    let tested = Request::TestStateid(Array::of(&stateids));
    one.ends(scene, file, "TEST_STATEID", tested, Came::Done(None))?;
    one.state(scene, file, "LOCKU of all", unlock(mine, Range(0, TO_END)))?;
    other.ends(scene, file, "LOCKT of all", test(write, Range(0, TO_END)), free)?;
    one.ends(scene, file, "CLOSE", close(open_one), Came::Done(None))?;
    other.ends(scene, file, "CLOSE", close(open_other), Came::Done(None))
}

/// After RECLAIM_COMPLETE nothing is reclaimed (§8.4.2.1).
fn late_claims<P: Provider>(
    scene: &mut CheckScene<'_, P>,
    file: &FileHandle,
    side: &mut Side,
) -> StepResult {
    let late = Came::Failed(Status4::NoGrace);
    let claim = open(share::READ, 0, OpenClaim::Previous(DelegationType::None));
    side.ends(scene, file, "OPEN that is reclaimed too late", claim, late)?;
    let id = side.state(scene, file, "OPEN", open(share::BOTH, 0, OpenClaim::Fh))?;
    let claim = first_lock(LockType::Write, id, Range(0, 1), true);
    side.ends(scene, file, "LOCK that is reclaimed too late", claim, late)?;
    let again = Request::ReclaimComplete(false);
    let complete = Came::Failed(Status4::CompleteAlready);
    side.ends(scene, file, "RECLAIM_COMPLETE once more", again, complete)?;
    side.ends(scene, file, "CLOSE", close(id), Came::Done(None))
}
