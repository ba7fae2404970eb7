//! A file system that does not answer stops only callers that ask for its files: a FUSE file
//! system of our own hangs on command. Needs root and `/dev/fuse`; skipped, with a word, elsewhere.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::result_large_err, missing_docs)]

mod compounds;
mod fuse;
mod world;

use fuse::Fuse;
use stag_engine::{Config, Shard};
use stag_nfs::{Gateway, GatewayReport, Nfs4Config};
use stag_nfs_store::{
    Backend,
    exports::{client_rules::ExportRules, config::ExportConfig},
    files::{
        Callers, ExportSet, Files, FilesBackend, FilesConfig, RuledExport, SharedFiles,
        SlowExports, WaitingConfig,
    },
    helpers::{HelperConfig, Helpers},
};
use stag_nfs4_state::DelegationPolicy;
use stag_protocol::{
    nfs::{
        Bulk, mount,
        v3::{
            Call, CommitArgs, CreateArgs, CreateHow, DirOpArgs, FileHandle, LookupArgs, Name,
            Procedure, ReadArgs, ReadDirPlusArgs, Reply, SetAttributes, StableHow, Status,
            WriteArgs,
        },
        v4,
    },
    rpc::{Auth, AuthSys, CallHeader, Credential, Gids, ReplyHeader, Xid, record::Fragment},
    xdr::{NoRoom, Reader, Writer},
};
use stag_sim::{Fabric, Faults, Sim};
use stag_verbs::{Limits, Time};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use world::*;

/// Helpers of one export at most: three quarters of all.
const LANE: usize = 24;
const HUNG: usize = 32;

fn read(file: FileHandle, count: u32) -> Call<'static> {
    Call::Read(ReadArgs { file, offset: 0, count })
}

fn write(file: FileHandle, data: &[u8]) -> Call<'_> {
    let data = Bulk::Inline(data);
    Call::Write(WriteArgs { file, offset: 0, stable: StableHow::Unstable, data })
}

fn create(dir: FileHandle, name: &[u8]) -> Call<'_> {
    let place = DirOpArgs { dir, name: Name(name) };
    Call::Create(CreateArgs { place, how: CreateHow::Guarded(SetAttributes::default()) })
}

fn octets(reply: &[u8]) -> Result<Vec<u8>, Status> {
    match parsed(Procedure::Read, reply) {
        Reply::Read(Ok(read)) => Ok(read.data.octets().unwrap().to_vec()),
        Reply::Read(Err(failure)) => Err(failure.status),
        other => panic!("{other:?}"),
    }
}

fn status(procedure: Procedure, reply: &[u8]) -> Status {
    parsed(procedure, reply).status()
}

#[test]
fn thirty_two_hung_calls_stop_nobody_else() {
    let content = vec![7; 50_000];
    let Some(mut world) = World::new(&[("file", &content)], Callers::UNPRIVILEGED) else { return };
    let mut other = world.connect();
    let slow = world.slow;
    let file = world.lookup(&mut other, slow, b"file");
    let mut callers: Vec<_> = (0..HUNG).map(|_| world.connect()).collect();
    world.fuse.stall(|opcode| opcode == fuse::READ);
    for caller in &mut callers {
        caller.call(&read(file, 50_000));
    }
    world.pass_until("helpers hang", |world| world.fuse.held() == LANE);
    let data = world.data;
    let local = world.lookup(&mut other, data, b"file");
    for round in 0..50_u32 {
        assert_eq!(world.call(&mut other, &Call::Null).len(), ReplyHeader::LEN);
        let reply = world.call(&mut other, &read(local, 100));
        assert_eq!(octets(&reply), Ok(b"of this host".to_vec()));
        // What a helper has to sync finds one, too.
        let made = create(data, format!("{round}").as_bytes().to_vec().leak());
        assert_eq!(status(Procedure::Create, &world.call(&mut other, &made)), Status::Ok);
        let commit = Call::Commit(CommitArgs { file: local, offset: 0, count: 0 });
        assert_eq!(status(Procedure::Commit, &world.call(&mut other, &commit)), Status::Ok);
        assert!(callers.iter_mut().all(|caller| caller.reply().is_none()) || round > 0);
    }
    assert!(world.shard.buffers_in_use() > 0);
    // Calls that no helper began get this answer after two seconds, the others after five.
    let mut replies = vec![];
    for caller in &mut callers {
        replies.push(octets(&world.await_reply(caller)));
    }
    assert_eq!(replies, vec![Err(Status::Jukebox); HUNG]);
    let waiting = world.report().waiting;
    assert_eq!((waiting.withdrawn, waiting.given_up), ((HUNG - LANE) as u64, LANE as u64));
    assert_eq!(waiting.under_way, LANE as u64, "they hold their helpers and buffers");
    assert!(waiting.oldest_ms >= 5_000, "{waiting:?}");
    // A further call is refused: it does not queue after calls that hang.
    let reply = world.call(&mut other, &read(file, 50_000));
    assert_eq!(octets(&reply), Err(Status::Jukebox));
    assert_eq!(world.report().waiting.refused, 1);
    world.fuse.release();
    world.assert_empty();
    assert_eq!(octets(&world.call(&mut other, &read(file, 50_000))), Ok(content));
    let waiting = world.report().waiting;
    assert_eq!((waiting.under_way, waiting.oldest_ms), (0, 0));
}

#[test]
fn a_write_that_hung_and_was_sent_again_is_executed_once_and_overtakes_nothing() {
    let Some(mut world) = World::new(&[("file", b"")], Callers::UNPRIVILEGED) else { return };
    let (mut first, slow) = (world.connect(), world.slow);
    let file = world.lookup(&mut first, slow, b"file");
    world.fuse.stall(|opcode| opcode == fuse::WRITE);
    let old = vec![1; 100_000];
    first.call_as(77, &write(file, &old));
    world.pass_until("the WRITE hangs", |world| world.fuse.held() == 1);
    drop(first);
    // The client comes back, twice, and sends it again.
    let mut lost = world.connect();
    lost.call_as(77, &write(file, &old));
    world.pass_until("it is known", |world| world.report().duplicates.busy == 1);
    let mut again = world.connect();
    again.call_as(77, &write(file, &old));
    world.pass_until("it is known", |world| world.report().duplicates.busy == 2);
    assert_eq!(world.fuse.held(), 1, "it is carried out once");
    world.fuse.release();
    let reply = world.await_reply(&mut again);
    assert_eq!(status(Procedure::Write, &reply), Status::Ok);
    let new = vec![2; 100_000];
    let reply = world.call(&mut again, &write(file, &new));
    assert_eq!(status(Procedure::Write, &reply), Status::Ok);
    world.assert_empty();
    let written = world.fuse.log(|log| log.writes.clone());
    assert_eq!(
        written.iter().map(|write| (write.first, write.len)).collect::<Vec<_>>(),
        [(1, 100_000), (2, 100_000)]
    );
    assert!(world.fuse.content("file") == new);
}

#[test]
fn a_create_that_hung_while_its_client_was_away_is_answered_when_it_comes_again() {
    let Some(mut world) = World::new(&[], Callers::UNPRIVILEGED) else { return };
    let (mut first, slow) = (world.connect(), world.slow);
    world.fuse.stall(|opcode| opcode == fuse::CREATE);
    first.call_as(5, &create(slow, b"made"));
    world.pass_until("the CREATE hangs", |world| world.fuse.held() == 1);
    drop(first);
    // Longer than a call that changes nothing would wait: it is not given up.
    let began = Instant::now();
    world.pass_until("time passes", |_| began.elapsed() > Duration::from_secs(6));
    world.fuse.release();
    world.assert_empty();
    let mut again = world.connect();
    again.call_as(5, &create(slow, b"made"));
    let reply = world.await_reply(&mut again);
    assert_eq!(status(Procedure::Create, &reply), Status::Ok, "not NFS3ERR_EXIST");
    assert_eq!(world.fuse.log(|log| log.creators.len()), 1);
    let report = world.report();
    assert_eq!((report.duplicates.replayed, report.waiting.given_up), (1, 0));
}

#[test]
fn helpers_act_as_their_callers() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can act as others");
    }
    let content = vec![3; 2_000];
    let Some(mut world) = World::new(&[("file", &content)], Callers::default()) else { return };
    let (mut caller, slow) = (world.connect(), world.slow);
    let reply = world.call(&mut caller, &create(slow, b"mine"));
    assert_eq!(status(Procedure::Create, &reply), Status::Ok);
    assert_eq!(world.fuse.log(|log| log.creators.clone()), [1000]);
    let file = world.lookup(&mut caller, slow, b"file");
    let reply = world.call(&mut caller, &read(file, 9_999));
    assert_eq!(octets(&reply), Ok(content));
    world.assert_empty();
}

#[test]
fn a_listing_comes_whole_from_a_helper() {
    let names: Vec<_> = (0..300).map(|number| format!("name-{number:04}")).collect();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), &b"x"[..])).collect();
    let Some(mut world) = World::new(&files, Callers::UNPRIVILEGED) else { return };
    let (mut caller, dir) = (world.connect(), world.slow);
    let (mut cookie, mut verifier, mut seen) = (0, [0; 8], vec![]);
    loop {
        let args = ReadDirPlusArgs { dir, cookie, verifier, dir_count: 2_000, max_count: 8_000 };
        let reply = world.call(&mut caller, &Call::ReadDirPlus(args));
        let Reply::ReadDirPlus(Ok(list)) = parsed(Procedure::ReadDirPlus, &reply) else {
            panic!("no listing")
        };
        verifier = list.verifier;
        for entry in list.entries {
            cookie = entry.entry.cookie;
            let name = String::from_utf8(entry.entry.name.0.to_vec()).unwrap();
            if !name.starts_with('.') {
                assert!(entry.attributes.is_some() && entry.handle.is_some(), "{name}");
                seen.push(name);
            }
        }
        if list.eof {
            break;
        }
    }
    assert_eq!(seen, names);
    world.assert_empty();
}

/// The verifier of a WRITE's or a COMMIT's reply, or why it failed.
fn verifier(reply: &Reply<'_>) -> Result<[u8; 8], Status> {
    match reply {
        Reply::Write(Ok(done)) => Ok(done.verifier),
        Reply::Commit(Ok(done)) => Ok(done.verifier),
        other => Err(other.status()),
    }
}

#[test]
fn a_sync_that_fails_in_a_helper_changes_the_verifier() {
    // A helper makes the whole call, or only syncs.
    for slow in [SlowExports::ByFileSystem, SlowExports::None] {
        let world = World::waiting(&[("file", b"")], Callers::UNPRIVILEGED, slow);
        let Some(mut world) = world else { return };
        let (mut caller, dir) = (world.connect(), world.slow);
        let file = world.lookup(&mut caller, dir, b"file");
        let commit = Call::Commit(CommitArgs { file, offset: 0, count: 0 });
        let mut ask = |world: &mut World, call: &Call<'_>| {
            let reply = world.call(&mut caller, call);
            verifier(&parsed(call.procedure(), &reply))
        };
        let before = ask(&mut world, &write(file, b"data")).unwrap();
        assert_eq!(ask(&mut world, &commit), Ok(before));
        assert_eq!(ask(&mut world, &write(file, b"more")), Ok(before));
        world.fuse.lose(true);
        assert_eq!(ask(&mut world, &commit), Err(Status::Io));
        world.fuse.lose(false);
        let after = ask(&mut world, &write(file, b"more")).unwrap();
        assert_ne!(after, before, "what was written before may be lost");
        assert_eq!(ask(&mut world, &commit), Ok(after));
        assert_eq!(world.report().failed_syncs, 1);
        assert_eq!(faults(&world), [("slow".to_owned(), 1)], "it blames the file system");
        world.assert_empty();
    }
}

/// Faults of file systems that are counted, by export.
fn faults(world: &World) -> Vec<(String, u64)> {
    world.report().faults.into_iter().collect()
}

#[test]
fn every_operation_that_a_dying_disk_fails_is_counted_for_its_export() {
    // A helper makes the whole call, or the shard does.
    for slow in [SlowExports::ByFileSystem, SlowExports::None] {
        let world = World::waiting(&[("file", b"data")], Callers::UNPRIVILEGED, slow);
        let Some(mut world) = world else { return };
        let (mut caller, dir) = (world.connect(), world.slow);
        let file = world.lookup(&mut caller, dir, b"file");
        assert_eq!(status(Procedure::Read, &world.call(&mut caller, &read(file, 4))), Status::Ok);
        let missing = Call::Lookup(LookupArgs { what: DirOpArgs { dir, name: Name(b"none") } });
        let reply = world.call(&mut caller, &missing);
        assert_eq!(status(Procedure::Lookup, &reply), Status::NoEnt);
        assert_eq!(faults(&world), [], "a name that is not there is no fault");
        world.fuse.fail(|opcode| [fuse::READ, fuse::WRITE, fuse::CREATE].contains(&opcode));
        for call in [read(file, 4), write(file, b"more"), create(dir, b"new")] {
            let reply = world.call(&mut caller, &call);
            assert_eq!(status(call.procedure(), &reply), Status::Io, "{:?}", call.procedure());
        }
        assert_eq!(faults(&world), [("slow".to_owned(), 3)]);
        world.fuse.fail(|_| false);
        world.assert_empty();
    }
}

#[test]
fn a_sync_that_hangs_stops_no_shard_on_any_file_system() {
    let files: &[(&str, &[u8])] = &[("file", b"")];
    let world = World::waiting(files, Callers::UNPRIVILEGED, SlowExports::None);
    let Some(mut world) = world else { return };
    let (mut first, mut other, dir) = (world.connect(), world.connect(), world.slow);
    let file = world.lookup(&mut first, dir, b"file");
    world.fuse.stall(|opcode| opcode == fuse::FSYNC);
    let data = Bulk::Inline(b"stable");
    let stable = StableHow::FileSync;
    first.call(&Call::Write(WriteArgs { file, offset: 0, stable, data }));
    world.pass_until("the sync hangs", |world| world.fuse.held() == 1);
    for _ in 0..50 {
        assert_eq!(world.call(&mut other, &Call::Null).len(), ReplyHeader::LEN);
    }
    assert!(first.reply().is_none(), "it is not stable yet");
    world.fuse.release();
    let reply = world.await_reply(&mut first);
    let Reply::Write(Ok(done)) = parsed(Procedure::Write, &reply) else { panic!("{reply:?}") };
    assert_eq!((done.count, done.committed), (6, StableHow::FileSync));
    world.assert_empty();
}

#[test]
fn a_file_system_that_may_wait_is_not_served_by_a_core_that_would_wait_for_it() {
    let home = tempfile::tempdir().unwrap();
    for name in ["data", "slow", "state"] {
        std::fs::create_dir(home.path().join(name)).unwrap();
    }
    let config = config(home.path(), Callers::UNPRIVILEGED);
    let shared = SharedFiles::open_waiting(&config, &WaitingConfig::USUAL).unwrap();
    let rules = ExportRules::default;
    let ruled = |config: &ExportConfig| RuledExport { config: config.clone(), rules: rules() };
    let exports = config.exports.iter().map(ruled).collect();
    let set = ExportSet { exports, slow: SlowExports::ByFileSystem, is_insecure: false };
    shared.replace_exports(&set).unwrap();
    let mut store = Files::open(&shared, 0).unwrap();
    assert!(store.mount(b"/slow").is_ok());
    let Some(fuse) = Fuse::mount(&home.path().join("slow"), &[]) else { return };
    assert_eq!(store.mount(b"/slow"), Err(Status::NoEnt), "no helper has a store for it");
    assert!(store.mount(b"/data").is_ok());
    drop(fuse);
    assert!(store.mount(b"/slow").is_ok());
}

#[test]
fn a_dead_file_system_over_an_export_stops_no_core() {
    let home = tempfile::tempdir().unwrap();
    for name in ["data", "slow", "state"] {
        std::fs::create_dir(home.path().join(name)).unwrap();
    }
    let config = config(home.path(), Callers::UNPRIVILEGED);
    let shared = SharedFiles::open_waiting(&config, &WaitingConfig::USUAL).unwrap();
    let mut store = Files::open(&shared, 0).unwrap();
    let before = store.mount(b"/slow").unwrap();
    let Some(fuse) = Fuse::mount(&home.path().join("slow"), &[]) else { return };
    fuse.stall(|_| true);
    for _ in 0..3 {
        assert_eq!(store.mount(b"/slow"), Ok(before), "what is there, as nothing answers");
    }
    assert!(fuse.held() <= 1, "one thread looks");
    fuse.release();
}

#[test]
fn a_start_says_which_file_system_does_not_answer() {
    let Some((home, fuse)) = homes(&[]) else { return };
    fuse.stall(|_| true);
    let began = Instant::now();
    let config = config(home.path(), Callers::UNPRIVILEGED);
    let error = SharedFiles::open_waiting(&config, &WaitingConfig::USUAL).unwrap_err();
    assert!(error.to_string().contains("/slow did not answer within 10 s"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(60));
}
