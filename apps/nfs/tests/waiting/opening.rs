//! OPEN at a shard that is not the home: it asks the store, and the home decides about the
//! state (`stag_nfs`' `v4/opening.rs`).

use crate::waiting::{
    beside::{Scene, ask},
    client4::{CONFIG, Reply4, look, put, read, session_args},
    holders::World,
    lending::write,
};
use stag_protocol::nfs::{
    v3::FileHandle,
    v4::{
        Answer, ClientOwner, Close4Args, Commit4Args, CreateHow4, ExchangeIdArgs, Open4Args,
        OpenClaim, OpenHow, RawAttributes, Read4Args, Request, SequenceArgs, StateOwner,
        StateProtection, Stateid, Status4, Text, share,
    },
};
use std::{fs, time::Duration};

/// Accesses of an OPEN, and what it denies.
#[derive(Clone, Copy)]
pub struct Shares {
    pub access: u32,
    pub deny: u32,
}

const READS: Shares = Shares { access: share::READ, deny: 0 };
const WRITES: Shares = Shares { access: share::BOTH, deny: 0 };
/// Both, without a delegation.
const PLAIN: Shares = Shares { access: share::BOTH | share::WANT_NO_DELEGATION, deny: 0 };

fn open(claim: OpenClaim<'static>, how: OpenHow<'static>, shares: Shares) -> Request<'static> {
    Request::Open(Open4Args {
        seqid: 0,
        share_access: shares.access,
        share_deny: shares.deny,
        owner: StateOwner { client_id: 0, owner: Text(b"owner") },
        how,
        claim,
    })
}

pub fn named(name: &'static [u8], how: OpenHow<'static>, shares: Shares) -> Request<'static> {
    open(OpenClaim::Null(Text(name)), how, shares)
}

pub const fn guarded() -> OpenHow<'static> {
    OpenHow::Create(CreateHow4::Guarded(RawAttributes { mask: EMPTY, octets: &[] }))
}

/// UNCHECKED, with the size 0.
pub fn cutting() -> OpenHow<'static> {
    let mask = stag_protocol::nfs::v4::Bitmap::of([4]);
    OpenHow::Create(CreateHow4::Unchecked(RawAttributes { mask, octets: &[0; 8] }))
}

const EMPTY: stag_protocol::nfs::v4::Bitmap = stag_protocol::nfs::v4::Bitmap::EMPTY;

/// The state and the file of an OPEN that GETFH and GETATTR follow.
pub fn opened(reply: &Reply4) -> (Stateid, FileHandle) {
    let answers = reply.answers();
    let [.., Answer::Open(Ok(opened)), Answer::GetFh(Ok(handle)), Answer::GetAttr(Ok(_))] =
        &answers[..]
    else {
        panic!("{answers:?}")
    };
    (opened.stateid, FileHandle::new(handle.0).unwrap())
}

/// Times that an operation was carried out at the home, and at the second shard.
fn times(scene: &Scene, operation: &str) -> (u64, u64) {
    let times = |report: stag_nfs::Nfs4Report| *report.operations.get(operation).unwrap_or(&0);
    let home = times(scene.world.server.snapshot().app.nfs4);
    (home, times(scene.world.arrival.snapshot().app.nfs4))
}

pub fn look_behind(directory: &FileHandle, open: Request<'static>) -> Vec<Request<'static>> {
    let directory = Box::leak(Box::new(*directory));
    vec![put(directory), open, Request::GetFh(()), look()]
}

#[test]
fn the_home_carries_out_nothing_but_the_open_and_the_shard_goes_on_behind_it() {
    let mut scene = Scene::new();
    let directory = scene.directory;
    let requests = look_behind(&directory, named(b"made", guarded(), WRITES));
    let (before, handles) = (scene.counts(), times(&scene, "GetFh"));
    let opens = times(&scene, "Open");
    let (state, file) = opened(&ask(&mut scene.world, 1, &requests));
    assert_eq!(scene.counts(), (before.0 + 1, before.1 + 1), "one message; it counts here");
    assert_eq!(times(&scene, "GetFh"), (handles.0, handles.1 + 1));
    assert_eq!(times(&scene, "Open"), (opens.0 + 1, opens.1));
    assert_eq!(scene.names(), ["made"]);
    // The shard was notified of the state.
    let forwarded = scene.counts().0;
    let reads = |state| match read(0, 10) {
        Request::Read(args) => Request::Read(Read4Args { stateid: state, ..args }),
        _ => unreachable!(),
    };
    let reply = ask(&mut scene.world, 1, &[put(&file), reads(state)]);
    assert!(matches!(reply.last(), Answer::Read(Ok(_))), "{reply:?}");
    assert_eq!(scene.counts().0, forwarded);
    // It is found there now, by its name and by its handle.
    for open in
        [named(b"made", OpenHow::NoCreate, READS), open(OpenClaim::Fh, OpenHow::NoCreate, READS)]
    {
        let object = if matches!(&open, Request::Open(args) if args.claim == OpenClaim::Fh) {
            file
        } else {
            directory
        };
        let (_, found) = opened(&ask(&mut scene.world, 1, &look_behind(&object, open)));
        assert_eq!(found, file);
    }
    assert_eq!((scene.counts().0, times(&scene, "GetFh").0), (forwarded + 2, handles.0));
}

#[test]
fn what_needs_state_behind_an_open_is_the_homes() {
    let mut scene = Scene::new();
    let directory = scene.directory;
    let looks = times(&scene, "GetAttr");
    // A CLOSE after an OPEN needs the stateid that the OPEN gives.
    let mut requests = look_behind(&directory, named(b"made", guarded(), PLAIN));
    requests.push(Request::Close(Close4Args { seqid: 0, open: Stateid::CURRENT }));
    let (forwarded, compounds) = scene.counts();
    let reply = ask(&mut scene.world, 1, &requests);
    assert_eq!((reply.status(), reply.answers().len()), (Status4::Ok, 6));
    assert_eq!(scene.counts(), (forwarded + 1, compounds + 1));
    assert_eq!(times(&scene, "GetAttr"), (looks.0 + 1, looks.1));
    assert_eq!(scene.names(), ["made"]);
    // Made here, it is refused here.
    let reply = ask(&mut scene.world, 1, &requests);
    assert_eq!((reply.status(), scene.counts().0), (Status4::Exist, forwarded + 1));
    // Octets are stored apart from a reply that its slot does not keep.
    fs::write(scene.home.path().join("export/made"), b"octets").unwrap();
    let open = named(b"made", OpenHow::NoCreate, PLAIN);
    let Request::Read(args) = read(0, 100) else { unreachable!() };
    let read = Request::Read(Read4Args { stateid: Stateid::CURRENT, ..args });
    let Request::Sequence(args) = scene.world.sequence(1) else { unreachable!() };
    let mut requests = vec![Request::Sequence(SequenceArgs { cache_this: false, ..args })];
    requests.extend(look_behind(&directory, open));
    requests.push(read);
    let reply = scene.world.exchange(1, &requests);
    let answers = reply.answers();
    let [.., Answer::Open(Ok(open)), _, _, Answer::Read(Ok(done))] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!(done.data.octets(), Some(b"octets".as_slice()));
    // With the last state the file goes that has no name any more.
    let Answer::GetFh(Ok(handle)) = &answers[3] else { panic!("{answers:?}") };
    let file = FileHandle::new(handle.0).unwrap();
    let open = open.stateid;
    let remove = [put(&directory), Request::Remove(Text(b"made"))];
    assert_eq!(ask(&mut scene.world, 1, &remove).status(), Status4::Ok);
    let close = [put(&file), Request::Close(Close4Args { seqid: 0, open }), look()];
    assert_eq!(ask(&mut scene.world, 1, &close).status(), Status4::Ok);
    assert_eq!(ask(&mut scene.world, 1, &[put(&file), look()]).status(), Status4::Stale);
}

#[test]
fn what_the_store_refuses_is_refused_without_the_home() {
    let mut scene = Scene::new();
    let directory = scene.directory;
    fs::write(scene.home.path().join("export/file"), b"octets").unwrap();
    fs::create_dir(scene.home.path().join("export/inner")).unwrap();
    let cases = [
        (named(b"none", OpenHow::NoCreate, READS), Status4::NoEnt),
        (named(b"file", guarded(), READS), Status4::Exist),
        (named(b"inner", OpenHow::NoCreate, READS), Status4::IsDir),
    ];
    let before = scene.counts();
    let count = cases.len() as u64;
    for (open, status) in cases {
        let reply = ask(&mut scene.world, 1, &look_behind(&directory, open));
        assert_eq!(reply.status(), status, "{reply:?}");
    }
    assert_eq!(scene.counts(), (before.0, before.1 + count));
}

#[test]
fn what_the_home_refuses_is_refused_and_pins_nothing() {
    let mut scene = Scene::new();
    let directory = scene.directory;
    fs::write(scene.home.path().join("export/file"), b"octets").unwrap();
    let none = share::WANT_NO_DELEGATION;
    let denies = Shares { access: share::READ | none, deny: share::WRITE };
    let mut first = look_behind(&directory, named(b"file", OpenHow::NoCreate, denies));
    let reply = loop {
        // The other shard has to be notified first.
        let reply = ask(&mut scene.world, 0, &first);
        if reply.status() != Status4::Delay {
            break reply;
        }
    };
    let (state, file) = opened(&reply);
    for how in [OpenHow::NoCreate, cutting()] {
        let second = look_behind(&directory, named(b"file", how, WRITES));
        let reply = ask(&mut scene.world, 1, &second);
        assert_eq!(reply.status(), Status4::ShareDenied, "{reply:?}");
        assert!(matches!(reply.last(), Answer::Open(Err(_))));
        assert_eq!(fs::read(scene.home.path().join("export/file")).unwrap(), b"octets");
    }
    // With the last state of it the file is let go: without a name it is gone.
    first = vec![put(&file), Request::Close(Close4Args { seqid: 0, open: state })];
    assert_eq!(ask(&mut scene.world, 0, &first).status(), Status4::Ok);
    let second = look_behind(&directory, named(b"file", cutting(), PLAIN));
    let (state, _) = opened(&ask(&mut scene.world, 1, &second));
    assert_eq!(fs::read(scene.home.path().join("export/file")).unwrap(), b"");
    let remove = [put(&directory), Request::Remove(Text(b"file"))];
    assert_eq!(ask(&mut scene.world, 1, &remove).status(), Status4::Ok);
    let look_again = [put(&file), look()];
    assert_eq!(ask(&mut scene.world, 1, &look_again).status(), Status4::Ok, "it is open");
    let close = [put(&file), Request::Close(Close4Args { seqid: 0, open: state })];
    assert_eq!(ask(&mut scene.world, 1, &close).status(), Status4::Ok);
    assert_eq!(ask(&mut scene.world, 1, &look_again).status(), Status4::Stale);
}

#[test]
fn a_delegation_in_its_way_is_waited_for_and_one_may_be_given() {
    let mut scene = Scene::new();
    let directory = scene.directory;
    let (given, file) = scene.world.delegate();
    scene.world.close();
    let requests = look_behind(&directory, named(b"file", OpenHow::NoCreate, WRITES));
    let reply = ask(&mut scene.world, 1, &requests);
    assert_eq!(reply.status(), Status4::Delay, "{reply:?}");
    assert_eq!(scene.world.clients[0].app().recalled[0].0.other, given.other);
    let back = [put(&file), Request::DelegReturn(given)];
    assert_eq!(ask(&mut scene.world, 0, &back).status(), Status4::Ok);
    opened(&ask(&mut scene.world, 1, &requests));
    // A file without a waiter gets a delegation at once: all shards have been notified by then.
    let requests = look_behind(&directory, named(b"free", OpenHow::NoCreate, WRITES));
    fs::write(scene.home.path().join("export/free"), b"octets").unwrap();
    let reply = ask(&mut scene.world, 1, &requests);
    opened(&reply);
    let answers = reply.answers();
    let Some(Answer::Open(Ok(open))) = answers.get(2) else { panic!("{answers:?}") };
    let write = matches!(open.delegation, stag_protocol::nfs::v4::OpenDelegation::Write(_));
    assert!(write, "{:?}", open.delegation);
}

/// The shard that has made a file keeps it open to write it, which no lease can be beside.
#[test]
fn a_file_that_a_shard_has_made_is_watched_soon() {
    let mut scene = Scene::of(World::watching);
    let directory = scene.directory;
    let requests = look_behind(&directory, named(b"file", guarded(), PLAIN));
    let (open, file) = opened(&ask(&mut scene.world, 1, &requests));
    assert_eq!(ask(&mut scene.world, 1, &[put(&file), write(open)]).status(), Status4::Ok);
    let commit = Request::Commit(Commit4Args { offset: 0, count: 0 });
    assert_eq!(ask(&mut scene.world, 1, &[put(&file), commit]).status(), Status4::Ok);
    let close = Request::Close(Close4Args { seqid: 0, open });
    assert_eq!(ask(&mut scene.world, 1, &[put(&file), close, look()]).status(), Status4::Ok);
    let tries = (0..10).take_while(|_| scene.world.open_existing().is_none()).count();
    assert!(tries <= 2, "{tries}");
}

#[test]
fn behind_a_look_at_something_the_home_carries_out_all() {
    let mut scene = Scene::new();
    let directory = scene.directory;
    fs::write(scene.home.path().join("export/file"), b"octets").unwrap();
    let open = || named(b"file", OpenHow::NoCreate, READS);
    let cases = [
        vec![put(&directory), look(), open(), Request::GetFh(())],
        vec![Request::PutRootFh(()), Request::Lookup(Text(b"data")), open(), Request::GetFh(())],
    ];
    for requests in cases {
        let handles = times(&scene, "GetFh");
        let reply = ask(&mut scene.world, 1, &requests);
        assert_eq!(reply.status(), Status4::Ok, "{reply:?}");
        assert_eq!(times(&scene, "GetFh"), (handles.0 + 1, handles.1));
    }
}

/// Nothing is made for a client that may not be given state yet (RFC 8881 §18.51.3).
#[test]
fn a_client_that_has_not_completed_its_reclaims_makes_no_file() {
    let mut scene = Scene::new();
    let directory = scene.directory;
    let args = ExchangeIdArgs {
        client: ClientOwner { verifier: [1; 8], owner: Text(b"new") },
        flags: 0,
        protection: StateProtection::None,
        implementation: None,
    };
    let reply = scene.world.exchange(1, &[Request::ExchangeId(args)]);
    let Answer::ExchangeId(Ok(known)) = reply.last() else { panic!("{reply:?}") };
    let create = Request::CreateSession(session_args(known.client_id, known.sequence));
    let reply = scene.world.exchange(1, &[create]);
    let Answer::CreateSession(Ok(made)) = reply.last() else { panic!("{reply:?}") };
    let session = made.session;
    let ask = |scene: &mut Scene, sequence, requests: &[Request<'static>]| {
        let sequence =
            SequenceArgs { session, sequence, slot: 0, highest_slot: 0, cache_this: true };
        let all: Vec<_> =
            std::iter::once(Request::Sequence(sequence)).chain(requests.iter().cloned()).collect();
        scene.world.exchange(1, &all)
    };
    let requests = look_behind(&directory, named(b"early", guarded(), WRITES));
    assert_eq!(ask(&mut scene, 1, &requests).status(), Status4::Grace);
    assert!(scene.names().is_empty(), "{:?}", scene.names());
    let complete = [Request::ReclaimComplete(false)];
    assert_eq!(ask(&mut scene, 2, &complete).status(), Status4::Ok);
    let handles = times(&scene, "GetFh");
    assert_eq!(ask(&mut scene, 3, &requests).status(), Status4::Ok);
    assert_eq!(times(&scene, "GetFh"), (handles.0, handles.1 + 1), "the shard was told at once");
}

/// A client that a restart would forget makes no file at a shard that cannot record it.
#[test]
fn the_first_open_of_a_client_is_the_homes_which_records_it() {
    let mut scene = Scene::of(World::recording);
    let directory = scene.directory;
    let mut handles = times(&scene, "GetFh");
    let mut opens_at = |scene: &mut Scene, name: &'static [u8], home: u64| {
        let requests = look_behind(&directory, named(name, guarded(), PLAIN));
        let (open, file) = opened(&ask(&mut scene.world, 1, &requests));
        handles = (handles.0 + home, handles.1 + 1 - home);
        assert_eq!(times(scene, "GetFh"), handles);
        let close = [put(&file), Request::Close(Close4Args { seqid: 0, open })];
        assert_eq!(ask(&mut scene.world, 1, &close).status(), Status4::Ok);
    };
    opens_at(&mut scene, b"one", 1);
    opens_at(&mut scene, b"two", 0);
    opens_at(&mut scene, b"three", 0);
    // It is forgotten when it has had no state for a lease.
    let until = scene.world.now + 2 * CONFIG.lease;
    while scene.world.now < until {
        let next = (scene.world.now + CONFIG.lease / 8).min(until);
        while scene.world.now < next {
            scene.world.now = scene.world.now + Duration::from_millis(500);
            scene.world.step();
        }
        for client in [0, 1] {
            assert_eq!(ask(&mut scene.world, client, &[]).status(), Status4::Ok);
        }
    }
    opens_at(&mut scene, b"four", 1);
    opens_at(&mut scene, b"five", 0);
}
