//! Each procedure, each way to retransmit a call, and calls that are no retransmissions.

use crate::drc::world::{Loss, Way, World, status};
use stag_nfs::reply_cache::AGE_MAX;
use stag_protocol::{
    nfs::{
        Bulk,
        v3::{
            Access, AccessArgs, Call, CommitArgs, CreateArgs, CreateHow, DirOpArgs, FileHandle,
            GetAttrArgs, LinkArgs, LookupArgs, MkDirArgs, MkNodArgs, Name, NodeKind, Procedure,
            RemoveArgs, RenameArgs, Reply, SetAttrArgs, SetAttributes, StableHow, Status,
            SymlinkArgs, SystemArgs, WriteArgs,
        },
    },
    rpc::ReplyHeader,
    xdr::Reader,
};

pub const WAYS: [Way; 5] = [Way::Short(4), Way::Short(1), Way::Long(4), Way::Long(1), Way::Tcp];

pub fn place(dir: FileHandle, name: &[u8]) -> DirOpArgs<'_> {
    DirOpArgs { dir, name: Name(name) }
}

fn attributes() -> SetAttributes {
    SetAttributes { mode: Some(0o755), ..SetAttributes::default() }
}

pub fn mkdir(dir: FileHandle, name: &[u8]) -> Call<'_> {
    Call::MkDir(MkDirArgs { place: place(dir, name), attributes: attributes() })
}

pub fn create(dir: FileHandle, name: &[u8]) -> Call<'_> {
    Call::Create(CreateArgs { place: place(dir, name), how: CreateHow::Guarded(attributes()) })
}

pub fn remove(dir: FileHandle, name: &[u8]) -> Call<'_> {
    Call::Remove(RemoveArgs { object: place(dir, name) })
}

/// The handle of what a call made.
pub fn made(procedure: Procedure, reply: &[u8]) -> FileHandle {
    match Reply::parse(procedure, Reader::new(&reply[ReplyHeader::LEN..])).unwrap() {
        Reply::Create(Ok(made)) | Reply::MkDir(Ok(made)) => made.object.unwrap(),
        other => panic!("{other:?}"),
    }
}

fn made_file(world: &mut World, name: &[u8]) -> FileHandle {
    let call = create(world.root, name);
    made(Procedure::Create, &world.call(0, &call))
}

/// Each procedure whose second execution fails, or does harm. What they need is made.
fn calls(world: &mut World) -> Vec<Call<'static>> {
    let root = world.root;
    let file = made_file(world, b"file");
    for name in [&b"removed"[..], b"old"] {
        made_file(world, name);
    }
    let made_dir = mkdir(root, b"gone");
    world.call(0, &made_dir);
    let reply = world.call(0, &Call::GetAttr(GetAttrArgs { object: file }));
    let guard =
        match Reply::parse(Procedure::GetAttr, Reader::new(&reply[ReplyHeader::LEN..])).unwrap() {
            Reply::GetAttr(Ok(found)) => found.ctime,
            other => panic!("{other:?}"),
        };
    let path = Bulk::Inline(b"where it leads");
    let cut = SetAttributes { size: Some(3), ..SetAttributes::default() };
    vec![
        create(root, b"created"),
        mkdir(root, b"directory"),
        Call::Symlink(SymlinkArgs {
            place: place(root, b"link"),
            attributes: SetAttributes::default(),
            path,
        }),
        Call::MkNod(MkNodArgs { place: place(root, b"fifo"), what: NodeKind::Fifo(attributes()) }),
        remove(root, b"removed"),
        Call::RmDir(RemoveArgs { object: place(root, b"gone") }),
        Call::Rename(RenameArgs { from: place(root, b"old"), to: place(root, b"renamed") }),
        Call::SetAttr(SetAttrArgs { object: file, attributes: cut, guard: Some(guard) }),
        Call::Link(LinkArgs { file, link: place(root, b"second") }),
        Call::SetAttr(SetAttrArgs { object: file, attributes: cut, guard: None }),
    ]
}

#[test]
fn every_procedure_comes_back_every_way_and_gets_its_first_reply() {
    for first in WAYS {
        let mut world = World::new(1, 1, 64);
        for (xid, call) in calls(&mut world).iter().enumerate() {
            let octets = world.encode(xid as u32 + 7, call);
            let executions = world.executions();
            assert_eq!(world.attempt(0, first, Loss::Reply, &octets), None, "the reply is lost");
            assert_eq!(world.executions(), executions + 1);
            let replies = WAYS.map(|way| world.attempt(0, way, Loss::Never, &octets).unwrap());
            let procedure = call.procedure();
            assert_eq!(status(&replies[0]), Status::Ok, "{procedure:?}");
            assert!(replies.iter().all(|reply| *reply == replies[0]), "{procedure:?}");
            assert!(Reply::parse(procedure, Reader::new(&replies[0][ReplyHeader::LEN..])).is_ok());
            assert_eq!(world.executions(), executions + 1, "{procedure:?} is carried out once");
        }
        let counts = world.report(0).duplicates;
        assert_eq!((counts.replayed, counts.evicted, counts.busy), (10 * 5, 0, 0));
        world.assert_empty();
    }
}

#[test]
fn a_truncation_that_comes_again_takes_nothing() {
    let mut world = World::new(2, 1, 64);
    let file = made_file(&mut world, b"file");
    let attributes = SetAttributes { size: Some(0), ..SetAttributes::default() };
    let cut =
        world.encode(5, &Call::SetAttr(SetAttrArgs { object: file, attributes, guard: None }));
    assert_eq!(world.attempt(0, Way::Tcp, Loss::Reply, &cut), None);
    let data = Bulk::Inline(b"written");
    world.call(6, &Call::Write(WriteArgs { file, offset: 0, stable: StableHow::FileSync, data }));
    assert_eq!(status(&world.attempt(0, Way::Short(4), Loss::Never, &cut).unwrap()), Status::Ok);
    assert_eq!(std::fs::read(world.home.path().join("data/file")).unwrap(), b"written");
}

#[test]
fn a_failure_is_replayed_like_a_success() {
    let mut world = World::new(3, 1, 64);
    let octets = world.encode(5, &remove(world.root, b"name"));
    let reply = world.attempt(0, Way::Tcp, Loss::Never, &octets).unwrap();
    assert_eq!(status(&reply), Status::NoEnt);
    made_file(&mut world, b"name");
    assert_eq!(world.attempt(0, Way::Tcp, Loss::Never, &octets), Some(reply));
    assert!(world.home.path().join("data/name").exists());
}

#[test]
fn another_name_another_xid_another_user_or_another_client_is_another_call() {
    let mut world = World::new(4, 1, 64);
    let root = world.root;
    assert_eq!(status(&world.call(1, &mkdir(root, b"name"))), Status::Ok);
    assert_eq!(
        status(&world.call(1, &mkdir(root, b"nome"))),
        Status::Ok,
        "an XID that was used before"
    );
    assert_eq!(status(&world.call(2, &mkdir(root, b"name"))), Status::Exist);
    assert_eq!(status(&world.call(1, &remove(root, b"name"))), Status::IsDir, "another procedure");
    world.uid = 1001;
    assert_eq!(status(&world.call(1, &mkdir(root, b"name"))), Status::Exist);
    world.uid = 1000;
    world.address = "10.0.0.2:900";
    assert_eq!(status(&world.call(1, &mkdir(root, b"name"))), Status::Exist);
    world.address = "10.0.0.1:17";
    assert_eq!(
        status(&world.call(1, &mkdir(root, b"name"))),
        Status::Ok,
        "only the port is another"
    );
    world.address = "[::ffff:10.0.0.1]:17";
    let octets = world.encode(1, &mkdir(root, b"name"));
    assert_eq!(status(&world.attempt(0, Way::Tcp, Loss::Never, &octets).unwrap()), Status::Ok);
}

/// Two hosts that a router shows under one address, both with XIDs that begin at 1.
#[test]
fn a_host_behind_the_same_address_is_not_answered_with_the_reply_to_another() {
    let mut world = World::new(7, 1, 64);
    let root = world.root;
    assert_eq!(status(&world.call(1, &mkdir(root, b"name"))), Status::Ok);
    world.machine = "another";
    assert_eq!(status(&world.call(1, &mkdir(root, b"name"))), Status::Exist);
    assert_eq!(
        status(&world.call(1, &mkdir(root, b"other"))),
        Status::Ok,
        "other arguments under the same XID"
    );
    world.machine = "client";
    assert_eq!(
        status(&world.call(1, &mkdir(root, b"name"))),
        Status::Ok,
        "the first one's reply is kept"
    );
    assert_eq!((world.executions(), world.replays()), (3, 1));
}

#[test]
fn a_host_that_begins_anew_with_the_same_calls_gets_replies_of_its_former_life_for_two_minutes() {
    let mut world = World::new(8, 1, 64);
    let root = world.root;
    assert_eq!(status(&world.call(1, &mkdir(root, b"name"))), Status::Ok);
    std::fs::remove_dir(world.home.path().join("data/name")).unwrap();
    world.rest(std::time::Duration::from_secs(120));
    assert_eq!(status(&world.call(1, &mkdir(root, b"name"))), Status::Ok);
    assert!(world.home.path().join("data/name").exists(), "it was carried out");
}

#[test]
fn the_cache_forgets_the_oldest_and_what_is_too_old() {
    let mut world = World::new(5, 1, 8);
    let root = world.root;
    let names: Vec<_> = (0..9_u32).map(|number| format!("name-{number}").into_bytes()).collect();
    for (xid, name) in names.iter().enumerate() {
        assert_eq!(status(&world.call(xid as u32, &mkdir(root, name))), Status::Ok);
    }
    assert_eq!((world.report(0).duplicates.kept, world.report(0).duplicates.evicted), (8, 1));
    for (xid, name) in names.iter().enumerate().skip(1) {
        assert_eq!(
            status(&world.call(xid as u32, &mkdir(root, name))),
            Status::Ok,
            "{xid} is kept"
        );
    }
    world.rest(AGE_MAX);
    assert_eq!(status(&world.call(8, &mkdir(root, &names[8]))), Status::Exist, "it is too old");
    assert_eq!(status(&world.call(0, &mkdir(root, &names[0]))), Status::Exist, "it was pushed out");
    assert_eq!(world.report(0).duplicates.kept, 8);
}

#[test]
fn what_may_be_repeated_is_not_kept() {
    let mut world = World::new(6, 1, 8);
    let file = made_file(&mut world, b"file");
    let kept = world.report(0).duplicates.kept;
    let data = Bulk::Inline(b"12345");
    let write = Call::Write(WriteArgs { file, offset: 0, stable: StableHow::Unstable, data });
    for call in [write, Call::GetAttr(GetAttrArgs { object: file })] {
        let executions = world.executions();
        (0..3).for_each(|_| assert_eq!(status(&world.call(9, &call)), Status::Ok));
        assert_eq!(world.executions(), executions + 3);
    }
    assert_eq!((world.report(0).duplicates.kept, world.replays()), (kept, 0));
}

/// A call of each procedure whose results are written where they are sent from, and of some that
/// reach no procedure.
fn small_calls(world: &mut World) -> Vec<Vec<u8>> {
    let object = made_file(world, b"small");
    let missing = FileHandle::new(&[7; 30]).unwrap();
    let access = Access::ALL;
    let calls = [
        Call::Null,
        Call::GetAttr(GetAttrArgs { object }),
        Call::GetAttr(GetAttrArgs { object: missing }),
        Call::Lookup(LookupArgs { what: place(world.root, b"small") }),
        Call::Lookup(LookupArgs { what: place(world.root, b"nothing") }),
        Call::Access(AccessArgs { object, access }),
        Call::FsInfo(SystemArgs { object }),
        Call::FsStat(SystemArgs { object: missing }),
        Call::PathConf(SystemArgs { object }),
        Call::Commit(CommitArgs { file: object, offset: 0, count: 0 }),
    ];
    let mut calls: Vec<_> = calls.iter().map(|call| world.encode(77, call)).collect();
    let (mut unknown, mut garbled) = (calls[0].clone(), calls[1].clone());
    unknown[20..24].copy_from_slice(&99_u32.to_be_bytes());
    garbled.truncate(garbled.len() - 4);
    calls.extend([unknown, garbled]);
    calls
}

#[test]
fn a_small_reply_has_the_same_octets_whichever_way_it_goes() {
    let mut world = World::new(1, 1, 64);
    for octets in small_calls(&mut world) {
        let replies = WAYS.map(|way| world.attempt(0, way, Loss::Never, &octets).unwrap());
        assert!(replies[0].len() >= ReplyHeader::LEN && replies[0].starts_with(&octets[..4]));
        for (way, reply) in WAYS.iter().zip(&replies) {
            assert_eq!(*reply, replies[0], "{way:?}");
        }
    }
    world.assert_empty();
}
