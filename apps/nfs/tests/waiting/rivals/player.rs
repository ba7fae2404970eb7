//! A client like that of Linux: its session shows it what became of its state, and it reclaims its
//! state.

use super::{
    ledger::{RightId, RightKind},
    mail::{self, Other, SharedMail, rest},
    scene::Scene,
};
use crate::waiting::client4::Reply4;
use fastrand::Rng;
use stag_protocol::nfs::{
    v3::FileHandle,
    v4::{
        Answer, Bitmap, Lock4Args, LockType, Locker, NewLockOwner, OpenDelegation, Request,
        SequenceArgs, SessionId, StateOwner, Stateid, Status4, Text, sequence_flag,
    },
};
use stag_verbs::Time;
use std::{cell::RefCell, rc::Rc, time::Duration};

use super::world::LEASE;

/// The session is gone: what the client asked for may have been done.
#[derive(Clone, Copy, Debug)]
pub struct Gone;

/// A file that the client has open.
#[derive(Clone, Debug)]
pub struct Opened {
    pub file: FileHandle,
    pub access: u32,
    pub deny: u32,
    pub stateid: Stateid,
    pub right: RightId,
    pub lock: Option<Locked>,
}

/// A lock of its first octets.
#[derive(Clone, Copy, Debug)]
pub struct Locked {
    pub stateid: Stateid,
    pub excludes: bool,
    pub right: RightId,
}

/// A delegation.
#[derive(Clone, Copy, Debug)]
pub struct Delegated {
    pub file: FileHandle,
    pub writes: bool,
    pub stateid: Stateid,
    pub right: RightId,
    /// It was granted as one that is recalled.
    pub is_due: bool,
}

/// Knowledge of a client of itself.
#[derive(Debug, Default)]
pub struct PlayerState {
    /// Its incarnation.
    pub life: u8,
    pub client_id: u64,
    pub session: Option<SessionId>,
    /// The last sequence ID of each slot.
    pub sequences: [u32; 2],
    pub opens: Vec<Opened>,
    pub delegations: Vec<Delegated>,
    /// Its callbacks do not reach it.
    pub is_unreachable: bool,
    /// Some state was revoked, it is not known which.
    pub has_revoked: bool,
    /// Time up to which state may be revoked, because callbacks were not answered.
    pub doubted_until: Option<Time>,
    /// Nothing is asked before this time.
    pub silent_until: Time,
    pub is_done: bool,
}

/// See the module.
pub struct Player {
    pub number: usize,
    pub uid: u32,
    pub mail: SharedMail,
    pub scene: Rc<Scene>,
    pub dice: RefCell<Rng>,
    pub state: RefCell<PlayerState>,
    /// The connection that all calls go over for a while, if they do.
    way: RefCell<Option<usize>>,
}

/// Connections that calls go over for a while; none means either, at random.
const WAYS: [Option<usize>; 5] = [None, Some(0), Some(1), Some(1), Some(1)];

const LOCKER: StateOwner<'static> = StateOwner { client_id: 0, owner: Text(b"process") };
pub const OPENER: StateOwner<'static> = StateOwner { client_id: 0, owner: Text(b"owner") };

/// Flags that say that state was revoked.
const REVOKED: u32 = sequence_flag::EXPIRED_ALL_STATE_REVOKED
    | sequence_flag::EXPIRED_SOME_STATE_REVOKED
    | sequence_flag::ADMIN_STATE_REVOKED
    | sequence_flag::RECALLABLE_STATE_REVOKED;

impl Player {
    pub fn new(
        number: usize,
        uid: u32,
        mail: &SharedMail,
        scene: &Rc<Scene>,
        seed: u64,
    ) -> Rc<Self> {
        let dice = RefCell::new(Rng::with_seed(seed.wrapping_mul(31).wrapping_add(number as u64)));
        let state = PlayerState { life: 1, ..PlayerState::default() };
        let (mail, scene) = (Rc::clone(mail), Rc::clone(scene));
        let way = RefCell::new(WAYS[dice.borrow_mut().usize(..WAYS.len())]);
        Rc::new(Self { number, uid, mail, scene, dice, state: state.into(), way })
    }

    pub fn below(&self, end: usize) -> usize {
        self.dice.borrow_mut().usize(..end)
    }

    pub fn now(&self) -> Time {
        mail::now(&self.mail)
    }

    pub async fn rest(&self, most: u64) {
        let time = self.dice.borrow_mut().u64(1..=most);
        rest(&self.mail, Duration::from_millis(time)).await;
    }

    pub fn tell(&self, line: impl std::fmt::Display) {
        self.scene.ledger.borrow_mut().tell(format_args!("client {}: {line}", self.number));
    }

    /// The connection of the next call.
    fn connection(&self) -> usize {
        if self.below(100) == 0 {
            *self.way.borrow_mut() = WAYS[self.below(WAYS.len())];
        }
        let way = *self.way.borrow();
        way.unwrap_or_else(|| self.below(2))
    }

    pub async fn send(&self, requests: &[Request<'_>]) -> Option<Reply4> {
        let octets = mail::compound(self.uid, requests);
        let connection = self.connection();
        let asked: Vec<_> = requests.iter().map(|it| format!("{:?}", it.operation())).collect();
        self.tell(format_args!("{} over {connection}", asked.join(" ")));
        let reply = mail::call(&self.mail, connection, octets).await;
        reply.ok().map(|reply| Reply4::of(&reply))
    }

    /// Makes a compound in a slot, until it is known how it ended.
    pub async fn run(&self, slot: usize, requests: &[Request<'_>]) -> Result<(Reply4, Time), Gone> {
        let session = self.state.borrow().session.ok_or(Gone)?;
        let sequence = {
            let sequences = &mut self.state.borrow_mut().sequences;
            sequences[slot] += 1;
            sequences[slot]
        };
        let first = self.now();
        let slot = slot as u32;
        let begin = SequenceArgs { session, sequence, slot, highest_slot: 1, cache_this: true };
        let all: Vec<_> =
            [Request::Sequence(begin)].into_iter().chain(requests.iter().cloned()).collect();
        loop {
            if self.state.borrow().session != Some(session) {
                return Err(Gone);
            }
            let Some(reply) = self.send(&all).await else {
                self.rest(500).await;
                continue;
            };
            self.tell(format_args!("{:?} in slot {slot}", reply.status()));
            if self.state.borrow().session != Some(session) {
                return Err(Gone);
            }
            match reply.answers().first() {
                Some(Answer::Sequence(Ok(begun))) => {
                    self.take_flags(begun.flags);
                    if begun.flags & REVOKED == 0 {
                        self.renew(first + LEASE);
                        self.trust(first);
                    }
                }
                Some(Answer::Sequence(Err(Status4::Delay))) => {
                    self.rest(200).await;
                    continue;
                }
                Some(Answer::Sequence(Err(Status4::BadSession))) => {
                    self.tell("its session is gone");
                    self.state.borrow_mut().session = None;
                    return Err(Gone);
                }
                other => panic!("{other:?}: {}", self.story()),
            }
            return Ok((reply, first));
        }
    }

    pub fn story(&self) -> String {
        self.scene.ledger.borrow().story()
    }

    fn take_flags(&self, flags: u32) {
        let down = sequence_flag::CB_PATH_DOWN | sequence_flag::CB_PATH_DOWN_SESSION;
        let mut state = self.state.borrow_mut();
        state.is_unreachable = flags & down != 0;
        state.has_revoked |= flags & REVOKED != 0;
    }

    /// Its delegations may be revoked: callbacks were not answered, or nothing was returned.
    pub fn doubt(&self) {
        self.scene.ledger.borrow_mut().doubt(self.number);
        self.state.borrow_mut().doubted_until = Some(self.now() + LEASE * 2);
    }

    fn trust(&self, asked: Time) {
        let doubt = &mut self.state.borrow_mut().doubted_until;
        if doubt.take_if(|until| *until < asked).is_some() {
            self.scene.ledger.borrow_mut().trust(self.number);
        }
    }

    fn renew(&self, until: Time) {
        let state = self.state.borrow();
        let mut ledger = self.scene.ledger.borrow_mut();
        for open in &state.opens {
            ledger.renew(open.right, until);
            open.lock.iter().for_each(|lock| ledger.renew(lock.right, until));
        }
        state.delegations.iter().for_each(|delegated| ledger.renew(delegated.right, until));
    }

    pub fn is_certain(&self, right: RightId) -> bool {
        self.scene.ledger.borrow().is_certain(right)
    }

    pub fn release(&self, right: RightId) {
        self.scene.ledger.borrow_mut().release(right);
    }

    /// A state is refused: it was taken away, which may only be if it is not certain.
    pub fn lose(&self, other: Other, status: Status4) {
        let mut state = self.state.borrow_mut();
        let lost: Vec<_> = state.opens.extract_if(.., |open| open.stateid.other == other).collect();
        let rights = lost.iter().flat_map(|open| [Some(open.right), open.lock.map(|it| it.right)]);
        let mut rights: Vec<_> = rights.flatten().collect();
        for open in &mut state.opens {
            rights.extend(open.lock.take_if(|lock| lock.stateid.other == other).map(|it| it.right));
        }
        let gone = state.delegations.extract_if(.., |it| it.stateid.other == other);
        rights.extend(gone.map(|it| it.right));
        self.mail.borrow_mut().known.retain(|known| *known != other);
        for right in rights {
            assert!(!self.is_certain(right), "{right:?}: {status:?}\n{}", self.story());
            self.release(right);
        }
    }

    /// Forgets all that it has: it is another incarnation from here on.
    pub fn reboot(&self) {
        self.tell("boots anew");
        let state = &mut *self.state.borrow_mut();
        state.life += 1;
        state.session = None;
        for open in state.opens.drain(..) {
            self.release(open.right);
            open.lock.iter().for_each(|lock| self.release(lock.right));
        }
        state.delegations.drain(..).for_each(|delegated| self.release(delegated.right));
        let mail = &mut *self.mail.borrow_mut();
        mail.known.clear();
        mail.held.clear();
        mail.recalled.clear();
    }

    /// Takes note of a delegation.
    pub fn keep(&self, delegated: Delegated) {
        let state = &mut *self.state.borrow_mut();
        let mail = &mut *self.mail.borrow_mut();
        let other = delegated.stateid.other;
        state.delegations.retain(|it| it.stateid.other != other);
        state.delegations.push(delegated);
        if !mail.known.contains(&other) {
            mail.known.push(other);
        }
        if delegated.writes {
            let looks = (self.scene.look)(&delegated.file);
            let told = looks.map_or((0, 0), |looks| (looks.change, looks.size));
            mail.held.insert(delegated.file.octets().to_vec(), told);
        }
        if delegated.is_due {
            mail.recalled.push_back(other);
        }
    }
}

/// LOCK of the first octets of a file, by a lock-owner that the open may not have seen.
pub fn lock_request(open: Stateid, excludes: bool, reclaim: bool) -> Request<'static> {
    let owner = NewLockOwner { open_seqid: 0, open, lock_seqid: 0, owner: LOCKER };
    let kind = if excludes { LockType::Write } else { LockType::Read };
    Request::Lock(Lock4Args { kind, reclaim, offset: 0, length: 10, locker: Locker::New(owner) })
}

/// The delegation of an OPEN, whose file and right are to be filled in.
pub fn given_of(given: &OpenDelegation<'_>) -> Option<Delegated> {
    let (writes, stateid, is_due) = match given {
        OpenDelegation::Read(given) => (false, given.stateid, given.recall),
        OpenDelegation::Write(given) => (true, given.stateid, given.recall),
        _ => return None,
    };
    let file = FileHandle::new(&[0]).unwrap();
    Some(Delegated { file, writes, stateid, right: RightId::NONE, is_due })
}

/// GETATTR of change attribute, size and mode.
pub fn look() -> Request<'static> {
    Request::GetAttr(Bitmap::of([3, 4, 33]))
}

/// The right that a delegation is.
pub const fn right_of(delegated: &Delegated) -> RightKind {
    RightKind::Delegation(delegated.writes)
}
