//! A shard to which a client's sessions are lent carries out the compounds it may, and no others.

use crate::waiting::{
    client4::{CONFIG, Reply4, Session4, exchange_over, look, open, put, request},
    store::Pace,
    world::World,
};
use fastrand::Rng;
use stag_nfs::Nfs4Config;
use stag_nfs4_state::DelegationPolicy;
use stag_protocol::nfs::{
    Bulk,
    v3::{self, StableHow},
    v4::{
        Answer, Bitmap, Close4Args, Lock4Args, LockType, LockU4Args, Locker, NewLockOwner,
        Open4Args, OpenClaim, OpenDelegation, OpenHow, RawAttributes, Read4Args, Request,
        SetAttr4Args, StateOwner, Stateid, Status4, Text, Write4Args, sequence_flag, session_flag,
        share,
    },
};
use std::time::Duration;

/// Octets that a test writes: the store requires a version in front.
const OCTETS: [u8; 8] = [0, 0, 0, 1, 1, 1, 1, 1];

pub fn opened(reply: &Reply4) -> Option<Stateid> {
    match reply.last() {
        Answer::Open(Ok(opened)) => Some(opened.stateid),
        _ => None,
    }
}

pub const fn close(open: Stateid) -> Request<'static> {
    Request::Close(Close4Args { seqid: 0, open })
}

pub fn write(stateid: Stateid) -> Request<'static> {
    let data = Bulk::Inline(&OCTETS[..]);
    Request::Write(Write4Args { stateid, offset: 0, stable: StableHow::Unstable, data })
}

pub fn read(stateid: Stateid) -> Request<'static> {
    Request::Read(Read4Args { stateid, offset: 0, count: 8 })
}

const LOCKER: StateOwner<'static> = StateOwner { client_id: 0, owner: Text(b"locker") };

/// The first LOCK of an open's owner, exclusive, of these octets from the first on.
pub fn lock(open: Stateid, length: u64) -> Request<'static> {
    let owner = NewLockOwner { open_seqid: 0, open, lock_seqid: 0, owner: LOCKER };
    let (kind, locker) = (LockType::Write, Locker::New(owner));
    Request::Lock(Lock4Args { kind, reclaim: false, offset: 0, length, locker })
}

/// OPEN of the current file.
fn open_current(access: u32) -> Request<'static> {
    Request::Open(Open4Args {
        seqid: 0,
        share_access: access,
        share_deny: 0,
        owner: StateOwner { client_id: 0, owner: Text(b"owner") },
        how: OpenHow::NoCreate,
        claim: OpenClaim::Fh,
    })
}

/// A client that comes over the second shard, and what it has open.
pub struct Guest {
    pub session: Session4,
    pub stateid: Stateid,
}

impl Guest {
    pub fn new(world: &mut World, deny: u32) -> Self {
        let mut session = Session4::open_over(world, 0, 0, 1);
        let slow = world.slow;
        let opened = [session.next(0, true), put(&slow), open(b"file", deny)];
        let reply = exchange_over(world, 0, 1, &opened);
        let Answer::Open(Ok(opened)) = reply.last() else { panic!("{reply:?}") };
        let stateid = opened.stateid;
        Self { session, stateid }
    }

    /// An operation on the file in slot 0, over one of the connections.
    pub fn ask(&mut self, world: &mut World, connection: u64, request: Request<'_>) -> Reply4 {
        let file = world.file;
        let compound = [self.session.next(0, true), put(&file), request];
        exchange_over(world, 0, connection, &compound)
    }
}

pub fn even(config: Nfs4Config) -> World {
    let world = World::lending(1, config);
    world.shared.borrow_mut().pace = Pace::Even;
    world
}

#[test]
fn looks_and_reads_and_writes_by_a_state_need_no_message_and_changes_of_state_do() {
    let mut world = even(CONFIG);
    let mut guest = Guest::new(&mut world, 0);
    let stateid = guest.stateid;
    let (forwarded, lent) = (world.forwarded(), world.lent());
    for asked in [look(), write(stateid), read(stateid)] {
        assert_eq!(guest.ask(&mut world, 1, asked).status(), Status4::Ok);
    }
    assert_eq!((world.forwarded(), world.lent()), (forwarded, lent + 3));
    // The home judges stateids that the shard was not given.
    let unknown = Stateid { other: [9; 12], ..stateid };
    assert_eq!(guest.ask(&mut world, 1, read(unknown)).status(), Status4::BadStateid);
    assert_eq!(guest.ask(&mut world, 1, read(Stateid::ANONYMOUS)).status(), Status4::Ok);
    assert_eq!((world.forwarded(), world.lent()), (forwarded + 2, lent + 3));
    world.end();
}

#[test]
fn a_request_that_comes_another_way_brings_the_slots_back_with_their_replies() {
    let mut world = even(CONFIG);
    let mut guest = Guest::new(&mut world, 0);
    let stateid = guest.stateid;
    assert_eq!(guest.ask(&mut world, 1, write(stateid)).status(), Status4::Ok);
    // The reply is lost, and the client asks again over the home's connection.
    let file = world.file;
    let again = [guest.session.again(0, true), put(&file), write(stateid)];
    let reply = exchange_over(&mut world, 0, 0, &again);
    assert_eq!(reply.status(), Status4::Ok);
    assert_eq!((world.report().nfs4.replayed, world.shared.borrow().again), (1, 0));
    // From here on the home has them, whichever way a request comes.
    let (forwarded, lent) = (world.forwarded(), world.lent());
    for connection in [1, 0] {
        assert_eq!(guest.ask(&mut world, connection, read(stateid)).status(), Status4::Ok);
    }
    assert_eq!((world.forwarded(), world.lent()), (forwarded + 1, lent));
    world.end();
}

/// A client of the home that requests the file that the guest holds.
pub struct Rival(pub Session4);

impl Rival {
    pub fn new(world: &mut World) -> Self {
        Self(Session4::open_over(world, 1, 0, 0))
    }

    pub fn conflict(&mut self, world: &mut World) -> Status4 {
        self.open(world).status()
    }

    fn open(&mut self, world: &mut World) -> Reply4 {
        self.open_denying(world, share::BOTH)
    }

    pub fn open_denying(&mut self, world: &mut World, deny: u32) -> Reply4 {
        let slow = world.slow;
        let opened = [self.0.next(0, false), put(&slow), open(b"file", deny)];
        exchange_over(world, 1, 0, &opened)
    }

    /// The same, without waiting for the answer.
    pub fn want(&mut self, world: &mut World) {
        let slow = world.slow;
        let opened = [self.0.next(0, false), put(&slow), open(b"file", share::BOTH)];
        world.send(1, 0, |cx, token| request(cx, token, &opened));
    }

    /// An operation on the file.
    fn ask(&mut self, world: &mut World, request: Request<'_>) -> Reply4 {
        let file = world.file;
        exchange_over(world, 1, 0, &[self.0.next(0, false), put(&file), request])
    }

    /// Lets more than a lease pass, and renews its own.
    pub fn outlive(&mut self, world: &mut World, lease: Duration) {
        for _ in 0..6 {
            world.pass_time(lease / 4);
            let alive = [self.0.next(0, false), Request::PutRootFh(())];
            assert_eq!(exchange_over(world, 1, 0, &alive).status(), Status4::Ok);
        }
    }
}

#[test]
fn locks_of_clients_of_different_shards_conflict_and_data_goes_by_them_without_a_message() {
    let mut world = even(CONFIG);
    let mut guest = Guest::new(&mut world, 0);
    let mut rival = Rival::new(&mut world);
    let theirs = opened(&rival.open_denying(&mut world, 0)).expect("nothing is denied");
    let stateid = guest.stateid;
    let reply = guest.ask(&mut world, 1, lock(stateid, 100));
    let Answer::Lock(Ok(mine)) = reply.last() else { panic!("{reply:?}") };
    assert_eq!(rival.ask(&mut world, lock(theirs, 10)).status(), Status4::Denied);
    let (forwarded, lent) = (world.forwarded(), world.lent());
    for asked in [write(mine), read(mine), write(stateid)] {
        assert_eq!(guest.ask(&mut world, 1, asked).status(), Status4::Ok);
    }
    assert_eq!((world.forwarded(), world.lent()), (forwarded, lent + 3));
    let unlock =
        LockU4Args { kind: LockType::Write, seqid: 0, stateid: mine, offset: 0, length: u64::MAX };
    assert_eq!(guest.ask(&mut world, 1, Request::LockU(unlock)).status(), Status4::Ok);
    assert_eq!(rival.ask(&mut world, lock(theirs, 10)).status(), Status4::Ok);
    assert_eq!(guest.ask(&mut world, 1, lock(stateid, 1)).status(), Status4::Denied);
    world.end();
}

/// Longer than any operation takes.
pub const LEASE: Duration = Duration::from_secs(60);

#[test]
fn what_an_expired_client_has_is_given_away_only_when_its_writes_are_over() {
    let mut world = even(Nfs4Config { lease: LEASE, ..CONFIG });
    let mut guest = Guest::new(&mut world, share::BOTH);
    let stateid = guest.stateid;
    let mut rival = Rival::new(&mut world);
    // Requests that the home does not see renew the lease.
    for _ in 0..4 {
        world.pass_time(LEASE / 2);
        assert_eq!(guest.ask(&mut world, 1, write(stateid)).status(), Status4::Ok);
        assert_eq!(rival.conflict(&mut world), Status4::ShareDenied);
    }
    // A WRITE that was let through is in progress.
    world.shared.borrow_mut().pace = Pace::NoChange;
    let file = world.file;
    let late = [guest.session.next(0, true), put(&file), write(stateid)];
    world.send(0, 1, |cx, token| request(cx, token, &late));
    rival.outlive(&mut world, LEASE);
    for _ in 0..20 {
        assert_eq!(rival.conflict(&mut world), Status4::Delay, "the WRITE is not over");
        world.pass_time(Duration::from_millis(50));
    }
    world.shared.borrow_mut().pace = Pace::Even;
    world.pass_time(Duration::from_millis(100));
    assert_eq!(rival.conflict(&mut world), Status4::Ok);
    while world.take(0).is_none() {
        world.step();
    }
    assert_eq!(guest.ask(&mut world, 1, read(stateid)).status(), Status4::BadSession);
    world.end();
}

/// Flags of SEQUENCE.
fn flags(reply: &Reply4) -> u32 {
    match reply.answers().first() {
        Some(Answer::Sequence(Ok(begun))) => begun.flags,
        _ => panic!("{reply:?}"),
    }
}

/// A client of the second shard that takes no callbacks and has a delegation of the file, and
/// another client.
pub struct Deaf {
    pub world: World,
    pub session: Session4,
    pub opened: Stateid,
    pub given: Stateid,
    pub rival: Rival,
}

impl Deaf {
    /// It opened the file for this.
    pub fn new(access: u32) -> Self {
        let delegations = DelegationPolicy::ReadWrite;
        let mut world = even(Nfs4Config { lease: LEASE, delegations, ..CONFIG });
        world.refuse_callbacks(0);
        let mut session = Session4::open_over(&mut world, 0, session_flag::CONN_BACK_CHAN, 1);
        let file = world.file;
        let both = (0..100).find_map(|_| {
            let opening = [session.next(0, true), put(&file), open_current(access)];
            match exchange_over(&mut world, 0, 1, &opening).last() {
                Answer::Open(Ok(opened)) => match opened.delegation {
                    OpenDelegation::Read(given) => Some((opened.stateid, given.stateid)),
                    OpenDelegation::Write(given) => Some((opened.stateid, given.stateid)),
                    _ => None,
                },
                _ => None,
            }
        });
        let (opened, given) = both.expect("nobody else has it open");
        let rival = Rival::new(&mut world);
        Self { world, session, opened, given, rival }
    }
}

#[test]
fn a_delegation_that_was_revoked_is_shown_beside_the_home_until_it_is_freed() {
    let Deaf { mut world, mut session, given, mut rival, .. } = Deaf::new(share::READ);
    // It is recalled, and does not come back.
    let mut look = |world: &mut World, last: Option<Request<'static>>| {
        let asked = [Some(session.next(0, true)), Some(Request::PutRootFh(())), last];
        let asked: Vec<_> = asked.into_iter().flatten().collect();
        let reply = exchange_over(world, 0, 1, &asked);
        assert_eq!(reply.status(), Status4::Ok);
        flags(&reply) & sequence_flag::RECALLABLE_STATE_REVOKED != 0
    };
    let mut waited = 0;
    while opened(&rival.open_denying(&mut world, 0)).is_none() {
        look(&mut world, None);
        world.pass_time(LEASE / 16);
        waited += 1;
        assert!(waited < 100, "it is revoked");
    }
    world.pass_time(Duration::from_secs(2));
    let lent = world.lent();
    assert!(look(&mut world, None) && world.lent() > lent);
    look(&mut world, Some(Request::FreeStateid(given)));
    assert!(!look(&mut world, None), "the request behind it shows that");
    world.end();
}

#[test]
fn no_delegation_is_given_while_a_change_hangs_at_another_shard() {
    let mode = v3::SetAttributes { mode: Some(0o600), ..v3::SetAttributes::default() };
    // An odd number goes to the second shard, which asks no other: nothing conflicts.
    hang_by(
        |_| (),
        |world, ()| {
            let (object, attributes) = (world.file, mode);
            let args = v3::SetAttrArgs { object, attributes, guard: None };
            world.call(1, 1, &v3::Call::SetAttr(args));
        },
    );
    hang_by(
        |world| Session4::open_over(world, 1, 0, 1),
        |world, mut session| {
            let attributes = RawAttributes { mask: Bitmap::of([33]), octets: &[0, 0, 1, 0x80] };
            let stateid = Stateid::ANONYMOUS;
            let (file, forwarded) = (world.file, world.forwarded());
            let set = Request::SetAttr(SetAttr4Args { stateid, attributes });
            let change = [session.next(0, true), put(&file), set];
            world.send(1, 1, |cx, token| request(cx, token, &change));
            world.pass_time(Duration::from_millis(20));
            assert_eq!(world.forwarded(), forwarded);
        },
    );
}

fn hang_by<T>(prepare: impl FnOnce(&mut World) -> T, change: impl FnOnce(&mut World, T)) {
    let delegations = DelegationPolicy::ReadWrite;
    let mut world = even(Nfs4Config { delegations, ..CONFIG });
    let prepared = prepare(&mut world);
    let mut session = Session4::open_over(&mut world, 0, session_flag::CONN_BACK_CHAN, 0);
    let file = world.file;
    let mut want = |world: &mut World| {
        let reading = [session.next(0, true), put(&file), open_current(share::READ)];
        match exchange_over(world, 0, 0, &reading).last() {
            Answer::Open(Ok(opened)) => Some(matches!(opened.delegation, OpenDelegation::Read(_))),
            Answer::Open(Err(Status4::Delay)) => None,
            other => panic!("{other:?}"),
        }
    };
    world.shared.borrow_mut().pace = Pace::NoChange;
    while world.take(1).is_some() {}
    change(&mut world, prepared);
    world.pass_time(Duration::from_millis(50));
    let mut opened = 0;
    for _ in 0..40 {
        let is_given = want(&mut world);
        assert_ne!(is_given, Some(true), "what its holder would keep is being changed");
        opened += u32::from(is_given.is_some());
        world.pass_time(Duration::from_millis(5));
    }
    assert!(opened > 2, "{opened} opens went through");
    assert!(world.take(1).is_none(), "it hangs");
    world.shared.borrow_mut().pace = Pace::Even;
    let given = (0..100).any(|_| {
        world.pass_time(Duration::from_millis(5));
        want(&mut world) == Some(true)
    });
    assert!(given && world.take(1).is_some());
    world.end();
}

#[test]
fn a_shard_that_reads_no_messages_keeps_what_its_client_has() {
    let mut world = even(Nfs4Config { lease: LEASE, ..CONFIG });
    Guest::new(&mut world, share::BOTH);
    let mut rival = Rival::new(&mut world);
    rival.outlive(&mut world, LEASE);
    world.stuck_until = u64::MAX;
    for _ in 0..20 {
        let status = rival.conflict(&mut world);
        assert_eq!(status, Status4::Delay, "its shard may still read and write");
    }
    world.stuck_until = 0;
    world.pass_time(Duration::from_millis(100));
    assert_eq!(rival.conflict(&mut world), Status4::Ok);
    world.end();
}

#[test]
fn a_client_that_restarts_gets_a_session_when_the_shard_of_its_former_life_has_forgotten_it() {
    let mut world = even(CONFIG);
    let guest = Guest::new(&mut world, share::BOTH);
    let mut again = Session4::restart(&mut world, 0);
    let slow = world.slow;
    let opened = [again.next(0, true), put(&slow), open(b"file", share::BOTH)];
    let reply = exchange_over(&mut world, 0, 0, &opened);
    assert_eq!(reply.status(), Status4::Ok, "what it had is gone");
    let Guest { mut session, .. } = guest;
    let file = world.file;
    let late = [session.next(0, true), put(&file), look()];
    assert_eq!(exchange_over(&mut world, 0, 1, &late).status(), Status4::BadSession);
    world.end();
}

/// One of two clients of different shards has the file open at a time; no other writes it.
fn exclude(seed: u64) -> u64 {
    let mut dice = Rng::with_seed(seed);
    let mut world = World::lending(seed, CONFIG);
    world.shared.borrow_mut().pace = Pace::Even;
    let mut guest = Guest::new(&mut world, share::BOTH);
    let mut rival = Rival::new(&mut world);
    let (mut mine, mut version) = (guest.stateid, 1);
    for _ in 0..10 {
        let file = world.file;
        let late = |world: &World, dice: &mut Rng| world.steps() + dice.u64(..300);
        for _ in 0..dice.usize(..3) {
            world.stuck_until = late(&world, &mut dice);
            let octets = [[0, 0, 0, version], [1; 4]].concat();
            let data = Bulk::Inline(&octets[..]);
            let stable = StableHow::Unstable;
            let write = Request::Write(Write4Args { stateid: mine, offset: 0, stable, data });
            assert_eq!(guest.ask(&mut world, 1, write).status(), Status4::Ok);
            version += 1;
            assert_eq!(rival.conflict(&mut world), Status4::ShareDenied);
        }
        // It is closed while the other one asks for it, and messages are late.
        world.stuck_until = late(&world, &mut dice);
        let closed = [guest.session.next(0, true), put(&file), close(mine)];
        world.send(0, 1, |cx, token| request(cx, token, &closed));
        let theirs = loop {
            let reply = rival.open(&mut world);
            match opened(&reply) {
                Some(stateid) => break stateid,
                None => assert_eq!(reply.status(), Status4::ShareDenied),
            }
        };
        // Before its own CLOSE is answered, nothing is written by what it closes.
        let late_write = [guest.session.next(1, true), put(&file), write(mine)];
        let reply = exchange_skipping(&mut world, &late_write);
        assert_eq!(reply.status(), Status4::BadStateid);
        let closed = [rival.0.next(0, false), put(&file), close(theirs)];
        assert_eq!(exchange_over(&mut world, 1, 0, &closed).status(), Status4::Ok);
        world.stuck_until = late(&world, &mut dice);
        let slow = world.slow;
        let again = [guest.session.next(0, true), put(&slow), open(b"file", share::BOTH)];
        mine = opened(&exchange_over(&mut world, 0, 1, &again)).expect("nobody has it");
    }
    let lent = world.lent();
    world.stuck_until = 0;
    world.end();
    assert_eq!((world.report().nfs4.busy_slots, world.lent_busy()), (0, 0));
    lent
}

/// Makes a call over the second shard; the reply to an earlier one may come before or after, and
/// is taken, too.
fn exchange_skipping(world: &mut World, requests: &[Request<'_>]) -> Reply4 {
    world.send(0, 3, |cx, token| request(cx, token, requests));
    let mut reply = None;
    // That before may be here already.
    let mut left = 2;
    while left > 0 {
        match world.take(0) {
            Some((3, octets)) => {
                reply = Some(Reply4::of(&octets));
                left -= 1;
            }
            Some((_, octets)) => {
                assert_eq!(Reply4::of(&octets).status(), Status4::Ok, "CLOSE");
                left -= 1;
            }
            None => world.step(),
        }
    }
    reply.expect("both are answered")
}

#[test]
fn clients_of_different_shards_exclude_each_other_however_late_messages_are() {
    let lent: u64 = (0..20).map(exclude).sum();
    assert!(lent > 100, "{lent} compounds were carried out beside the home");
}
