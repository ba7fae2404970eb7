//! COPY against the copy that a client makes by READ and WRITE: the ratio of their times in one run
//! is printed. `cargo test --release -p stag --test all -- --ignored --nocapture a_copy_by_the`

use crate::{
    caller4::Caller4,
    support::{Home, Server},
};
use stag_protocol::nfs::{Bulk, v3::StableHow, v4::*};
use std::{
    sync::mpsc::sync_channel,
    thread,
    time::{Duration, Instant},
};

const LEN: u64 = 48 << 20;
const PART: u32 = 1 << 20;
/// Parts that a client reads ahead.
const AHEAD: usize = 8;
const ROUNDS: usize = 5;

/// A file that a client has open.
struct Opened {
    handle: Vec<u8>,
    stateid: Stateid,
}

fn open(client: &mut Caller4, export: &[u8], name: &[u8]) -> Opened {
    let owner = StateOwner { client_id: 0, owner: Text(b"copy") };
    let open = Open4Args {
        seqid: 0,
        share_access: share::BOTH | share::WANT_NO_DELEGATION,
        share_deny: 0,
        owner,
        how: OpenHow::Create(CreateHow4::Unchecked(RawAttributes::default())),
        claim: OpenClaim::Null(Text(name)),
    };
    let directory = [Request::PutRootFh(()), Request::Lookup(Text(export))];
    let opened = client.run(&[&directory[..], &[Request::Open(open)]].concat());
    let Answer::Open(Ok(ok)) = opened.last() else { panic!("{:?}", opened.last()) };
    let find = [Request::Lookup(Text(name)), Request::GetFh(())];
    let found = client.run(&[&directory[..], &find].concat());
    let Answer::GetFh(Ok(handle)) = found.last() else { panic!("{:?}", found.last()) };
    Opened { handle: handle.0.to_vec(), stateid: ok.stateid }
}

fn read(client: &mut Caller4, file: &Opened, offset: u64) -> Vec<u8> {
    let args = Read4Args { stateid: file.stateid, offset, count: PART };
    let done = client.run(&[Request::PutFh(Text(&file.handle)), Request::Read(args)]);
    let Answer::Read(Ok(ok)) = done.last() else { panic!("{:?}", done.last()) };
    ok.data.octets().unwrap().to_vec()
}

fn write(client: &mut Caller4, file: &Opened, offset: u64, octets: &[u8]) {
    let (stateid, stable, data) = (file.stateid, StableHow::Unstable, Bulk::Inline(octets));
    let args = Write4Args { stateid, offset, stable, data };
    let done = client.run(&[Request::PutFh(Text(&file.handle)), Request::Write(args)]);
    assert_eq!(done.status(), Status4::Ok);
}

fn commit(client: &mut Caller4, file: &Opened) {
    let args = Commit4Args { offset: 0, count: 0 };
    let done = client.run(&[Request::PutFh(Text(&file.handle)), Request::Commit(args)]);
    assert_eq!(done.status(), Status4::Ok);
}

/// Times of a copy: up to the last reply, and with the COMMIT after it.
type Times = [Duration; 2];

/// The client's own copy: one connection reads ahead of another one that writes.
fn copy_by_client(pair: &mut [(Caller4, Opened, Opened); 2]) -> Times {
    let from = Instant::now();
    let [(reader, source, _), (writer, _, target)] = pair;
    let (sender, parts) = sync_channel::<(u64, Vec<u8>)>(AHEAD);
    thread::scope(|scope| {
        scope.spawn(move || {
            for offset in (0..LEN).step_by(PART as usize) {
                sender.send((offset, read(reader, source, offset))).unwrap();
            }
        });
        for (offset, octets) in parts {
            write(writer, target, offset, &octets);
        }
    });
    let copied = from.elapsed();
    commit(writer, target);
    [copied, from.elapsed()]
}

fn copy_by_server(client: &mut Caller4, source: &Opened, target: &Opened) -> Times {
    let from = Instant::now();
    let mut offset = 0;
    while offset < LEN {
        let args = Copy4Args {
            source: source.stateid,
            target: target.stateid,
            source_offset: offset,
            target_offset: offset,
            count: LEN - offset,
            consecutive: true,
            synchronous: true,
            servers: Array::of(&[]),
        };
        let done = client.run(&[
            Request::PutFh(Text(&source.handle)),
            Request::SaveFh(()),
            Request::PutFh(Text(&target.handle)),
            Request::Copy(args),
        ]);
        let Answer::Copy(Ok(ok)) = done.last() else { panic!("{:?}", done.last()) };
        assert_ne!(ok.outcome.count, 0);
        offset += ok.outcome.count;
    }
    let copied = from.elapsed();
    commit(client, target);
    [copied, from.elapsed()]
}

fn compare(server: &Server, export: &[u8]) {
    let at = server.line("TCP");
    let mut pair = ["reader", "writer"].map(|name| {
        let mut client = Caller4::mounted(&at, name);
        let source = open(&mut client, export, b"source");
        let target = open(&mut client, export, b"target");
        (client, source, target)
    });
    let octets: Vec<u8> = (0..PART).map(|at| (at % 251) as u8).collect();
    for offset in (0..LEN).step_by(PART as usize) {
        let (client, source, _) = &mut pair[0];
        write(client, source, offset, &octets);
    }
    let (client, source, _) = &mut pair[0];
    commit(client, source);
    let mut times: [Vec<Times>; 2] = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        times[0].push(copy_by_client(&mut pair));
        let (client, source, target) = &mut pair[0];
        times[1].push(copy_by_server(client, source, target));
        let last = read(client, target, LEN - u64::from(PART));
        assert!(last == octets, "the copy is whole");
    }
    let export = String::from_utf8_lossy(export);
    for (at, about) in ["copied", "with COMMIT"].into_iter().enumerate() {
        let [client, server] = times.each_ref().map(|times| {
            let mut times: Vec<_> = times.iter().map(|times| times[at]).collect();
            times.sort_unstable();
            times[ROUNDS / 2]
        });
        let ratio = client.as_secs_f64() / server.as_secs_f64();
        println!("{export}, {about}: client {client:?}, COPY {server:?}: {ratio:.2} times as fast");
    }
}

#[test]
#[ignore = "it measures, and needs a release build"]
fn a_copy_by_the_server_against_that_of_a_client() {
    let home = Home::new();
    let server = home.serve(&["data", "--nfs", "4"]);
    compare(&server, b"data");
    drop(server);
    let server = home.serve(&["--memory", "256M", "--name", "memory", "--nfs", "4"]);
    compare(&server, b"memory");
}
