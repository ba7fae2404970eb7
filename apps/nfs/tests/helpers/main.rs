//! READs of data that is not in memory: io_uring or helpers wait for the disk, and only calls that
//! need the data wait for them.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::result_large_err,
    dead_code,
    missing_docs
)]

mod fabric;
mod world;

use crate::gateway::client::{Client, Home, encode, pattern};
use rustix::{
    event::{EventfdFlags, eventfd},
    fs::{Advice, fadvise},
    io::{Errno, ReadWriteFlags, preadv2},
};
use stag_engine::{App, Call as Inbound, Cause, Config, Cx, PeerId, Shard};
use stag_nfs::{Gateway, GatewayReport};
use stag_nfs_store::{
    exports::config::ExportConfig,
    files::{self, Files, Ring, SharedFiles},
    helpers::{Fetch, Helpers, QUEUE_LEN},
};
use stag_protocol::{
    nfs::v3::{Call, FileHandle, GetAttrArgs, ReadArgs, Reply, Status},
    rpc::{ReplyHeader, record::Fragment},
    xdr::Reader,
};
use stag_sim::{Fabric, Faults, Sim};
use stag_verbs::{Limits, Time};
use std::{
    fs::File,
    io::{ErrorKind, IoSliceMut, Read, Write},
    net::{SocketAddr, TcpStream},
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Sender, channel},
    },
    time::{Duration, Instant},
};
use tempfile::TempDir;
use world::*;

#[test]
fn while_a_disk_is_slow_others_are_answered() {
    let (go, begun, fetch) = gated();
    let Some(mut world) = World::new(|| Helpers::start_with(1, 1, fetch).unwrap()) else { return };
    let content = pattern(100_000, 2);
    let file = world.cold("file", &content);
    let (mut reader, mut other) = (world.connect(0), world.connect(0));
    reader.read(file, 1_000, 50_000);
    world.await_fetches(&begun, 1);
    for _ in 0..50 {
        other.call(&Call::GetAttr(GetAttrArgs { object: file }));
        world.await_reply(&mut other);
        assert!(reader.reply().is_none(), "its octets are still on the disk");
    }
    assert_eq!((world.reads(0), world.report(0).nfs3["GETATTR"].calls), (0, 50));
    assert_eq!(world.shards[0].calls_in_progress().0, 1);
    go.send(()).unwrap();
    assert!(octets(&world.await_reply(&mut reader)) == Ok(content[1_000..51_000].to_vec()));
    let data = world.report(0).data;
    assert_eq!(
        (data.reads_cached, data.reads_warmed + data.reads_blocking, data.reads_direct),
        (0, 1, 0)
    );
    assert_eq!((world.reads(0), begun.load(Ordering::SeqCst)), (1, 1));
    // What is in memory needs no helper.
    reader.read(file, 1_000, 50_000);
    assert!(octets(&world.await_reply(&mut reader)) == Ok(content[1_000..51_000].to_vec()));
    world.assert_empty();
}

/// Reads all of eight files in pieces, each of them cold, by two shards in turn.
fn read_cold_files(mut world: World, did: impl Fn(&GatewayReport) -> u64) {
    let contents: Vec<_> = (0..8_usize).map(|seed| pattern(300_000 + seed * 7_777, seed)).collect();
    let files: Vec<_> = contents
        .iter()
        .enumerate()
        .map(|(n, content)| world.cold(&format!("{n}"), content))
        .collect();
    let mut callers = [world.connect(0), world.connect(1)];
    for (n, (file, content)) in files.iter().zip(&contents).enumerate() {
        for offset in (0..content.len() + 1).step_by(120_000) {
            let caller = &mut callers[(n + offset / 120_000) % 2];
            caller.read(*file, offset as u64, 120_000);
            let read = octets(&world.await_reply(caller)).unwrap();
            assert!(
                read == content[offset..content.len().min(offset + 120_000)],
                "{n} at {offset}"
            );
        }
    }
    let reports = [world.report(0), world.report(1)];
    assert!(reports.iter().all(|report| did(report) > 0), "{reports:?}");
    let total: u64 = reports.iter().map(carried_out).sum();
    assert_eq!(total, world.reads(0) + world.reads(1));
    world.assert_empty();
}

/// READs by where their octets were.
fn carried_out(GatewayReport { data, .. }: &GatewayReport) -> u64 {
    data.reads_cached + data.reads_brought + data.reads_warmed + data.reads_blocking
}

#[test]
fn what_the_disk_brings_is_what_was_written_in_two_shards() {
    let Some(world) = World::new(|| Helpers::start(2).unwrap()) else { return };
    read_cold_files(world, |report| report.data.reads_warmed);
}

#[test]
fn what_a_ring_brings_is_what_was_written_in_two_shards() {
    let idle =
        |_: BorrowedFd<'_>, _: u64, _: &mut [u8]| panic!("one READ at a time needs no helper");
    let Some(world) = World::with_rings(1, || Helpers::start_with(2, 1, Arc::new(idle)).unwrap())
    else {
        return;
    };
    read_cold_files(world, |report| report.data.reads_brought);
}

#[test]
fn a_full_ring_leaves_the_rest_to_helpers() {
    let Some(mut world) = World::with_rings(2, || Helpers::start(1).unwrap()) else { return };
    let contents: Vec<_> = (0..24).map(|seed| pattern(60_000, seed)).collect();
    let files: Vec<_> = contents
        .iter()
        .enumerate()
        .map(|(n, content)| world.cold(&format!("{n}"), content))
        .collect();
    let mut callers: Vec<_> = files.iter().map(|_| world.connect(0)).collect();
    (0..100).for_each(|_| world.pass());
    for (caller, file) in callers.iter_mut().zip(&files) {
        caller.read(*file, 0, 60_000);
    }
    for (caller, content) in callers.iter_mut().zip(&contents) {
        assert!(octets(&world.await_reply(caller)).as_ref() == Ok(content));
    }
    let report = world.report(0);
    assert!(report.data.reads_brought > 0 && report.data.reads_warmed > 0, "{report:?}");
    assert_eq!(carried_out(&report), 24);
    world.assert_empty();
}

#[test]
fn a_connection_that_dies_while_a_ring_reads_leaves_nothing_behind() {
    let Some(mut world) = World::with_rings(4, || Helpers::start(1).unwrap()) else { return };
    for round in 0..40 {
        let content = pattern(400_000, round);
        let file = world.cold("file", &content);
        let mut gone = world.connect(0);
        gone.call(&Call::GetAttr(GetAttrArgs { object: file }));
        gone.read(file, 0, 400_000);
        // Further and further into the READ.
        (0..round / 4 + 2).for_each(|_| world.pass());
        drop(gone);
        let mut caller = world.connect(0);
        caller.read(file, 100_000, 200_000);
        assert!(octets(&world.await_reply(&mut caller)).unwrap() == content[100_000..300_000]);
        drop(caller);
    }
    assert!(world.report(0).data.reads_brought > 0, "{:?}", world.report(0).data);
    let began = Instant::now();
    while world.shards[0].calls_in_progress().0 > 0 || world.shards[0].buffers_in_use() > 0 {
        world.pass();
        assert!(began.elapsed() < Duration::from_secs(60), "something is left");
    }
}

#[test]
fn a_file_that_is_removed_or_cut_while_a_ring_reads_is_answered() {
    let Some(mut world) = World::with_rings(4, || Helpers::start(1).unwrap()) else { return };
    let mut caller = world.connect(0);
    for round in 0..40 {
        let content = pattern(300_000, round);
        let name = format!("{round}");
        let file = world.cold(&name, &content);
        caller.read(file, 0, 300_000);
        (0..round / 4).for_each(|_| world.pass());
        let path = world.home.path().join("data").join(name);
        if round % 2 == 0 {
            std::fs::remove_file(path).unwrap();
        } else {
            File::options().write(true).open(path).unwrap().set_len(1_000).unwrap();
        }
        let read = octets(&world.await_reply(&mut caller));
        let is_stale = read == Err(Status::Stale) && round % 2 == 0;
        assert!(
            is_stale || read.is_ok_and(|read| read == content || read == content[..1_000]),
            "{round}"
        );
    }
    world.assert_empty();
}

#[test]
fn a_full_queue_makes_the_shard_wait_itself() {
    const SURPLUS: usize = 10;
    let (go, begun, fetch) = gated();
    let Some(mut world) = World::new(|| Helpers::start_with(1, 1, fetch).unwrap()) else { return };
    let contents: Vec<_> = (0..1 + QUEUE_LEN + SURPLUS).map(|seed| pattern(5_000, seed)).collect();
    let files: Vec<_> = contents
        .iter()
        .enumerate()
        .map(|(n, content)| world.cold(&format!("{n}"), content))
        .collect();
    let mut callers = vec![];
    for _ in &files {
        callers.push(world.connect(0));
        world.pass();
    }
    for (n, (caller, file)) in callers.iter_mut().zip(&files).enumerate() {
        caller.read(*file, 0, 5_000);
        if n == 0 {
            world.await_fetches(&begun, 1);
        }
    }
    let began = Instant::now();
    while world.reads(0) < SURPLUS as u64 && began.elapsed() < Duration::from_secs(10) {
        world.pass();
    }
    (0..100).for_each(|_| world.pass());
    assert_eq!((world.reads(0), begun.load(Ordering::SeqCst)), (SURPLUS as u64, 1));
    // The look at memory made the system read ahead, so a file may be there when the shard turns to
    // it again.
    let data = world.report(0).data;
    assert_eq!(data.reads_blocking + data.reads_cached, SURPLUS as u64);
    drop(go);
    for (caller, content) in callers.iter_mut().zip(&contents) {
        assert!(octets(&world.await_reply(caller)).as_ref() == Ok(content));
    }
    assert!(world.report(0).data.reads_warmed > 0);
    world.assert_empty();
}

#[test]
fn a_connection_that_dies_leaves_nothing_behind() {
    let (go, begun, fetch) = gated();
    let Some(mut world) = World::new(|| Helpers::start_with(1, 1, fetch).unwrap()) else { return };
    let content = pattern(9_000, 4);
    let file = world.cold("file", &content);
    let mut gone = world.connect(0);
    gone.call(&Call::GetAttr(GetAttrArgs { object: file }));
    gone.read(file, 0, 9_000);
    world.await_fetches(&begun, 1);
    // Closed with an unread reply, it is reset.
    drop(gone);
    let began = Instant::now();
    while world.shards[0].calls_in_progress().0 > 0 {
        world.pass();
        assert!(began.elapsed() < Duration::from_secs(60), "the connection does not end");
    }
    drop(go);
    let mut caller = world.connect(0);
    for _ in 0..300 {
        caller.read(file, 0, 9_000);
        assert!(octets(&world.await_reply(&mut caller)).as_ref() == Ok(&content));
    }
    assert_eq!(world.reads(0), 300, "the READ of the one who is gone was not carried out");
    world.assert_empty();
}

#[test]
fn octets_that_are_gone_again_are_waited_for() {
    let forget = |file: BorrowedFd<'_>, offset: u64, scratch: &mut [u8]| {
        bring(file, offset, scratch);
        fadvise(file, 0, None, Advice::DontNeed).unwrap();
    };
    let helpers = || Helpers::start_with(1, 1, Arc::new(forget)).unwrap();
    let Some(mut world) = World::with(0, 2, helpers) else {
        return;
    };
    let content = pattern(200_000, 5);
    let file = world.cold("file", &content);
    let mut caller = world.connect(0);
    caller.read(file, 0, 200_000);
    assert!(octets(&world.await_reply(&mut caller)).as_ref() == Ok(&content));
    let data = world.report(0).data;
    assert_eq!((data.reads_cached, data.reads_warmed, data.reads_blocking), (0, 0, 1));
    world.assert_empty();
}

#[test]
fn a_file_that_is_removed_while_the_disk_brings_it_is_stale_or_still_there() {
    let (go, begun, fetch) = gated();
    let Some(mut world) = World::new(|| Helpers::start_with(1, 1, fetch).unwrap()) else { return };
    let content = pattern(9_000, 6);
    let file = world.cold("file", &content);
    let mut caller = world.connect(0);
    caller.read(file, 0, 9_000);
    world.await_fetches(&begun, 1);
    std::fs::remove_file(world.home.path().join("data/file")).unwrap();
    drop(go);
    let read = octets(&world.await_reply(&mut caller));
    assert!(read == Err(Status::Stale) || read.as_ref() == Ok(&content));
    world.assert_empty();
}
