//! The minimal server answers everything that `stag bench` calls, with the right octets.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_client::{ClientConfig, Error, NfsClient};
use stag_engine::clock::Clock;
use stag_iwarp::Iwarp;
use stag_load::{
    Load, LoadFiles, LoadPlan, Pace, RunSpan, To, Workload,
    workload::{NAMES, block, name},
};
use stag_peers::minimal;
use stag_protocol::nfs::v3::{CreateHow, SetAttributes, StableHow, Status};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

const BLOCK: usize = 4_096;
const BLOCKS: u64 = 16;

/// A server in a thread, ended with the value.
struct Server(SocketAddr, Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, stop) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let seen = stop.clone();
        Self(at, stop, Some(thread::spawn(move || minimal::serve(&listener, &seen).unwrap())))
    }

    fn client(&self) -> NfsClient<Iwarp> {
        let clock = Clock::start();
        let config = ClientConfig { timeout: Duration::from_secs(10), ..ClientConfig::new(7) };
        let fabric =
            Iwarp::new(stag_iwarp::IwarpConfig::new(config.limits(), [7; 32], clock.now()))
                .unwrap();
        let mut client = NfsClient::new(fabric, config, move || clock.now()).unwrap();
        client.connect_tcp(self.0).unwrap();
        client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.1.store(true, Ordering::Relaxed);
        self.2.take().unwrap().join().unwrap();
    }
}

/// A directory with the names of LOOKUP and a file of known blocks.
fn ground(client: &mut NfsClient<Iwarp>) -> LoadFiles {
    let root = client.mount("/export").unwrap();
    let dir = client.mkdir(root, b"ground", 0o700).unwrap().object.unwrap();
    let how = || CreateHow::Unchecked(SetAttributes::default());
    let file = client.create(dir, b"data", how()).unwrap().object.unwrap();
    for number in 0..NAMES {
        client.create(dir, name(number).octets(), how()).unwrap();
    }
    for number in 0..BLOCKS {
        let octets = block(number, BLOCK, false);
        client.write(file, number * BLOCK as u64, octets, StableHow::Unstable).unwrap();
    }
    client.commit(file, 0, 0).unwrap();
    LoadFiles { dir, file, blocks: BLOCKS, names: 0 }
}

#[test]
fn every_workload_runs_over_it_with_every_octet_compared() {
    let server = Server::start();
    let files = ground(&mut server.client());
    for workload in [
        Workload::Null,
        Workload::GetAttr,
        Workload::Lookup,
        Workload::Read,
        Workload::Write,
        Workload::ReadWrite,
        Workload::Commit,
        Workload::Meta,
    ] {
        let plan = LoadPlan {
            connections: 2,
            timeout: Duration::from_secs(10),
            is_nfs: true,
            files: Some(files),
            ..LoadPlan::new(workload, BLOCK, 8)
        };
        // What WRITE leaves is not what READ expects.
        if workload == Workload::Write {
            assert_eq!(server.client().getattr(files.file).unwrap().size, BLOCKS * BLOCK as u64);
        }
        let files = if matches!(workload, Workload::Write | Workload::ReadWrite | Workload::Commit)
        {
            let mut client = server.client();
            let how = CreateHow::Unchecked(SetAttributes::default());
            let name = format!("own-{workload}");
            let file = client.create(files.dir, name.as_bytes(), how).unwrap().object.unwrap();
            for number in 0..BLOCKS {
                let octets = block(number, BLOCK, false);
                client.write(file, number * BLOCK as u64, octets, StableHow::FileSync).unwrap();
            }
            LoadFiles { file, ..files }
        } else {
            files
        };
        let plan = LoadPlan { files: Some(files), ..plan };
        let clock = Clock::start();
        let fabric =
            Iwarp::new(stag_iwarp::IwarpConfig::new(plan.limits(), [3; 32], clock.now())).unwrap();
        let mut load = Load::new(fabric, &plan).unwrap();
        load.meet(&To::Tcp(server.0), || clock.now(), || false).unwrap();
        let now = clock.now();
        let span = RunSpan { from: now, until: now + Duration::from_secs(30), calls: Some(999) };
        load.begin(now, Pace::Closed, span);
        let mut calls = 0;
        load.run(
            || clock.now(),
            || false,
            |_, record| {
                calls += record.calls;
                None
            },
        );
        assert_eq!((load.generator().failure(), calls), (None, 999), "{workload}");
    }
}

#[test]
fn large_items_pass_in_both_directions() {
    let server = Server::start();
    let mut client = server.client();
    let root = client.mount("/export").unwrap();
    let how = CreateHow::Unchecked(SetAttributes::default());
    let file = client.create(root, b"large", how).unwrap().object.unwrap();
    let octets = block(3, 1 << 20, false);
    assert_eq!(client.write(file, 5, octets, StableHow::FileSync).unwrap().count, 1 << 20);
    let mut room = vec![1; 1 << 20];
    let done = client.read(file, 5, &mut room).unwrap();
    assert_eq!((done.count, done.eof, room == octets), (1 << 20, true, true));
    let done = client.read(file, 1 << 20, &mut room).unwrap();
    assert_eq!((done.count, done.eof), (5, true));
}

#[test]
fn names_come_and_go() {
    let server = Server::start();
    let mut client = server.client();
    let root = client.mount("/export").unwrap();
    let names: Vec<Vec<u8>> =
        (0..200).map(|number| format!("name-{number:03}").into_bytes()).collect();
    for name in &names {
        client.create(root, name, CreateHow::Unchecked(SetAttributes::default())).unwrap();
    }
    // In many pages.
    let listed: Vec<_> =
        client.readdir(root, 1_024).unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(listed, names);
    for name in &names {
        client.remove(root, name).unwrap();
        assert_eq!(client.lookup(root, name).unwrap_err(), Error::Nfs(Status::NoEnt));
    }
    assert!(client.readdir(root, 1_024).unwrap().is_empty());
}

/// A call of NULL, XID 1, cut into the octets that it is sent in.
const NULL: [u8; 44] = [
    0x80, 0, 0, 40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0x86, 0xa3, 0, 0, 0, 3, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

#[test]
fn a_call_may_come_in_any_pieces() {
    let server = Server::start();
    let mut socket = TcpStream::connect(server.0).unwrap();
    socket.set_nodelay(true).unwrap();
    for cut in 1..NULL.len() {
        let (first, second) = NULL.split_at(cut);
        socket.write_all(first).unwrap();
        thread::sleep(Duration::from_millis(1));
        socket.write_all(second).unwrap();
        let mut reply = [0; 28];
        socket.read_exact(&mut reply).unwrap();
        assert_eq!(
            (reply[..4].to_vec(), reply[7], reply[27]),
            (vec![0x80, 0, 0, 24], 1, 0),
            "{cut}"
        );
    }
}

#[test]
fn who_breaks_a_rule_loses_the_connection_and_nobody_else_does() {
    let server = Server::start();
    let mut good = server.client();
    // A fragment that is not the last; one that is longer than any record.
    for word in [[0, 0, 0, 40], [0xff, 0xff, 0xff, 0xff]] {
        let mut bad = TcpStream::connect(server.0).unwrap();
        bad.write_all(&word).unwrap();
        bad.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert!(matches!(bad.read(&mut [0]), Ok(0) | Err(_)), "{word:?}");
        good.null().unwrap();
    }
    // What is no call is not answered; what has arguments that make no sense is refused.
    assert!(matches!(good.call_empty(100_003, 3, 1), Err(Error::Rejected(_))));
    assert!(matches!(good.call_empty(100_003, 4, 1), Err(Error::Rejected(_))));
    good.null().unwrap();
}
