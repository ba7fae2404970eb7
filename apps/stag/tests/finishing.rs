//! A server that drains or stops with 64 calls in flight: every one of them gets its reply. Tests
//! in which they wait for a file system that does not answer yet need root and `/dev/fuse`; they
//! are skipped, with a message, elsewhere.

use crate::caller::{Caller, MOUNT, NFS, NFS3_OK, opaque, word, words};
use crate::fuse::{self, Fuse};
use crate::support::{Home, Server, wait_for};
use rustix::process::Signal;
use std::{collections::BTreeSet, fs};

/// Calls in flight: WRITEs of a directory that answers at once, and READs of one that does not.
const CALLS: u32 = 64;
const NFS3ERR_JUKEBOX: u32 = 10_008;

/// Calls that were put off, so far.
fn put_off(home: &Home) -> u64 {
    let output = home.run(&["ctl", "--json", "stats"]);
    let stats: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    stats["total"]["app"]["waiting"]["put_off"].as_u64().unwrap()
}

/// Has [`CALLS`] calls wait, does `end` to the server, lets the file system answer, and requires
/// all replies.
fn all_are_answered(end: impl FnOnce(&Home, &Server)) -> Option<(Server, Fuse, Home)> {
    let home = Home::new();
    fs::create_dir(home.path("slow")).unwrap();
    let fuse = Fuse::mount(&home.path("slow"), &[("file", b"octets")])?;
    let server = home.serve(&["slow", "--drain", "50"]);
    let mut caller = Caller::new(&server);
    let root = caller.handle(MOUNT, 1, &opaque(b"/slow"));
    let file = caller.handle(NFS, 3, &[root, opaque(b"file")].concat());
    fuse.stall(|opcode| opcode == fuse::READ);
    let read = [file, words(&[0, 0, 6])].concat();
    let before = put_off(&home);
    for xid in 0..CALLS {
        caller.send(100 + xid, NFS, 6, &read);
    }
    wait_for("calls in flight", || put_off(&home) >= before + u64::from(CALLS));
    end(&home, &server);
    fuse.release();
    let mut answered = BTreeSet::new();
    for _ in 0..CALLS {
        let (xid, results) = caller.take();
        // The client of a call that waited long for a free helper is asked to retry.
        assert!(matches!(word(&results, 0), NFS3_OK | NFS3ERR_JUKEBOX), "{results:?}");
        answered.insert(xid);
    }
    assert_eq!(answered, (100..100 + CALLS).collect(), "each call has its reply");
    assert!(caller.is_over(), "the connection ends behind the last reply");
    Some((server, fuse, home))
}

#[test]
fn a_server_that_is_told_to_stop_answers_64_calls_in_flight() {
    let stop = |_: &Home, server: &Server| server.signal(Signal::TERM);
    let Some((mut server, _fuse, _home)) = all_are_answered(stop) else { return };
    assert_eq!(server.wait(), Some(0), "{}", server.err());
    ended_by_itself(&server);
}

/// Requires the server to log that its drain ended with all calls answered, and not by its
/// deadline; prints the time.
fn ended_by_itself(server: &Server) {
    server.wait_for_err(" drained ");
    let err = server.err();
    let drained: Vec<_> = err.lines().filter(|line| line.contains(" drained ")).collect();
    assert_eq!(drained.len(), 1, "{err}");
    assert!(drained[0].contains("unanswered=0 cut=false"), "{}", drained[0]);
    println!("{}", drained[0]);
}

/// Keeps [`CALLS`] WRITEs in flight over TCP, and does `end` to the server in the middle. Calls
/// that it took are answered. Calls that it did not take are not executed, so that a client can
/// repeat them.
fn none_is_lost_amid(end: impl FnOnce(&Home, &Server)) -> (Server, Home) {
    let home = Home::new();
    fs::write(home.path("data/file"), "").unwrap();
    // With the default time for a drain.
    let server = home.serve(&["data"]);
    let mut caller = Caller::new(&server);
    let root = caller.handle(MOUNT, 1, &opaque(b"/data"));
    let file = caller.handle(NFS, 3, &[root, opaque(b"file")].concat());
    let write = |caller: &mut Caller, xid: u32| {
        let place = words(&[0, 4 * xid, 4, 0]);
        caller.send(xid, NFS, 7, &[file.clone(), place, opaque(&words(&[xid]))].concat());
    };
    let mut answered = BTreeSet::new();
    let mut take = |caller: &mut Caller| {
        let Some((xid, results)) = caller.take_or_end() else { return false };
        assert_eq!(word(&results, 0), NFS3_OK);
        answered.insert(xid)
    };
    (0..CALLS).for_each(|xid| write(&mut caller, xid));
    for xid in CALLS..8 * CALLS {
        assert!(take(&mut caller));
        write(&mut caller, xid);
    }
    end(&home, &server);
    while take(&mut caller) {}
    drop(caller);
    let last = answered.len() as u32;
    assert_eq!(answered, (0..last).collect(), "the replies have no gap");
    let written = fs::read(home.path("data/file")).unwrap();
    let answered = words(&(0..last).collect::<Vec<_>>());
    let (done, told) = (written.len(), answered.len());
    assert!(written == answered, "{told} octets answered, {done} written: {}", server.err());
    (server, home)
}

#[test]
fn a_stop_amid_64_writes_loses_none_and_does_not_wait_for_its_time_to_be_over() {
    let (mut server, _home) = none_is_lost_amid(|_, server| server.signal(Signal::TERM));
    assert_eq!(server.wait(), Some(0), "{}", server.err());
    ended_by_itself(&server);
}

#[test]
fn a_drain_amid_64_writes_loses_none_and_does_not_wait_for_its_time_to_be_over() {
    let (server, _home) = none_is_lost_amid(|home, _| {
        let output = home.run(&["ctl", "drain"]);
        assert_eq!(output.status.code(), Some(0));
    });
    ended_by_itself(&server);
}

#[test]
fn a_server_that_drains_answers_64_calls_in_flight_and_serves_again() {
    let drain = |home: &Home, _: &Server| {
        let output = home.run(&["ctl", "drain"]);
        assert_eq!(output.status.code(), Some(0));
    };
    let Some((server, _fuse, home)) = all_are_answered(drain) else { return };
    ended_by_itself(&server);
    let output = home.run(&["ctl", "resume"]);
    assert_eq!(output.status.code(), Some(0));
    let mut caller = Caller::new(&server);
    caller.handle(MOUNT, 1, &opaque(b"/slow"));
}
