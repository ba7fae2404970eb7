//! A server that drains or stops with 64 calls in flight, which wait for a file system that does
//! not answer yet: every one of them gets its reply. Needs root and `/dev/fuse`; skipped, with a
//! word, elsewhere.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

#[path = "../../nfs/tests/stalling/fuse.rs"]
#[allow(dead_code, reason = "another test needs the rest")]
mod fuse;
mod support;

use fuse::Fuse;
use rustix::process::Signal;
use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::TcpStream,
};
use support::{Home, PATIENCE, Server, wait_for};

/// Calls in flight.
const CALLS: u32 = 64;
const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const NFS3_OK: u32 = 0;
const NFS3ERR_JUKEBOX: u32 = 10_008;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn opaque(octets: &[u8]) -> Vec<u8> {
    let mut all = words(&[octets.len() as u32]);
    all.extend(octets);
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

fn word(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(octets[at..at + 4].try_into().unwrap())
}

/// A connection that makes calls before it takes replies.
struct Caller(TcpStream);

impl Caller {
    fn new(server: &Server) -> Self {
        let stream = TcpStream::connect(server.line("TCP")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    fn send(&mut self, xid: u32, program: u32, procedure: u32, arguments: &[u8]) {
        let header = words(&[xid, 0, 2, program, 3, procedure, 0, 0, 0, 0]);
        let message = [header, arguments.to_vec()].concat();
        let mark = words(&[0x8000_0000 | message.len() as u32]);
        self.0.write_all(&[mark, message].concat()).unwrap();
    }

    /// XID and results of the next reply.
    fn take(&mut self) -> (u32, Vec<u8>) {
        let mut mark = [0; 4];
        self.0.read_exact(&mut mark).unwrap();
        let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        self.0.read_exact(&mut reply).unwrap();
        // REPLY, MSG_ACCEPTED, an empty verifier, SUCCESS.
        assert_eq!(reply[4..24], words(&[1, 0, 0, 0, 0]));
        (word(&reply, 0), reply[24..].to_vec())
    }

    fn call(&mut self, program: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        self.send(1, program, procedure, arguments);
        self.take().1
    }

    /// The handle, as an argument, that the results of MNT or LOOKUP begin with.
    fn handle(&mut self, program: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        let results = self.call(program, procedure, arguments);
        assert_eq!(word(&results, 0), NFS3_OK);
        let len = word(&results, 4) as usize;
        opaque(&results[8..8 + len])
    }

    /// True if the server ended the connection behind its last reply.
    fn is_over(&mut self) -> bool {
        matches!(self.0.read(&mut [0; 1]), Ok(0))
    }
}

/// Calls that were put off, so far.
fn put_off(home: &Home) -> u64 {
    let output = home.run(&["ctl", "--json", "stats"]);
    let stats: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    stats["total"]["app"]["waiting"]["put_off"].as_u64().unwrap()
}

/// Has [`CALLS`] calls wait, does `end` to the server, lets the file system answer, and wants all
/// replies.
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
        // Whoever waited for long before a helper was free is asked to come again.
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
}

#[test]
fn a_server_that_drains_answers_64_calls_in_flight_and_serves_again() {
    let drain = |home: &Home, _: &Server| {
        let output = home.run(&["ctl", "drain"]);
        assert_eq!(output.status.code(), Some(0));
    };
    let Some((server, _fuse, home)) = all_are_answered(drain) else { return };
    let output = home.run(&["ctl", "resume"]);
    assert_eq!(output.status.code(), Some(0));
    let mut caller = Caller::new(&server);
    caller.handle(MOUNT, 1, &opaque(b"/slow"));
}
