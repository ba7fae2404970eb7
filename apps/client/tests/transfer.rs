//! Transfers against a server that is as difficult as RFC 1813 allows: it takes and returns less
//! than requested, answers in another order, and loses uncommitted data at any moment.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_client::{
    ClientConfig, Error, NfsClient,
    transfer::{
        self, FileRange, FileWriter, SizedFile, TransferFault, TransferFlow, TransferTotals,
    },
};
use stag_echo::pattern::Pattern;
use stag_engine::{Answer, App, Call, CallId, Cx, Shard};
use stag_pools::Buf;
use stag_protocol::{
    nfs::{
        Bulk,
        v3::{
            self, CommitOk, Failure, FileHandle, Procedure, ReadOk, StableHow, Status, WccData,
            WriteOk,
        },
    },
    rpc::{Accepted, CallHeader},
    xdr,
};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Limits, Time};
use std::{cell::RefCell, io, rc::Rc};

const TICK: u64 = 500;
const AT: Port = Port(700);
/// Octets of one READ or WRITE.
const PIECE: u32 = 1_000;

/// One file, and how the server treats it.
#[derive(Debug, Default)]
struct File {
    /// Content as WRITEs left it, and the content that remains when the server loses uncommitted
    /// data.
    cached: Vec<u8>,
    stable: Vec<u8>,
    /// Number of times that the server lost uncommitted data; also its verifier.
    lives: u64,
    /// Calls so far, and the calls before which all unstable data is lost.
    calls: u64,
    lost_at: Vec<u64>,
    /// Octets that one WRITE takes or one READ gives at most.
    most: usize,
    /// Stability that WRITE reports: stable when the data is committed already.
    committed: Option<StableHow>,
    /// The call that is refused, and how.
    refused: Option<(u64, Status)>,
    /// All calls after this number are asked to wait.
    delayed_behind: Option<u64>,
}

impl File {
    fn verifier(&self) -> [u8; 8] {
        self.lives.to_be_bytes()
    }

    /// Counts one more call. Returns its status if it is to be refused.
    fn count(&mut self) -> Option<Status> {
        self.calls += 1;
        if self.lost_at.contains(&self.calls) {
            self.lives += 1;
            self.cached.clone_from(&self.stable);
        }
        if self.delayed_behind.is_some_and(|calls| self.calls > calls) {
            return Some(Status::Jukebox);
        }
        self.refused.filter(|(call, _)| *call == self.calls).map(|(_, status)| status)
    }

    fn write(&mut self, offset: usize, data: &[u8]) -> WriteOk {
        let data = &data[..data.len().min(self.most)];
        self.cached.resize(self.cached.len().max(offset + data.len()), 0);
        self.cached[offset..offset + data.len()].copy_from_slice(data);
        let committed = self.committed.unwrap_or(StableHow::Unstable);
        if committed > StableHow::Unstable {
            self.stable.clone_from(&self.cached);
        }
        WriteOk {
            wcc: WccData::NONE,
            count: data.len() as u32,
            committed,
            verifier: self.verifier(),
        }
    }
}

/// Serves the file. Answers of one pass leave in reverse order.
#[derive(Debug)]
struct Difficult {
    file: Rc<RefCell<File>>,
    answers: Vec<(CallId, Buf)>,
}

impl App for Difficult {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        let mut file = self.file.borrow_mut();
        let refusal = file.count();
        let procedure = Procedure::new(call.header.procedure).unwrap();
        let nothing = Failure { status: Status::Io, attributes: WccData::NONE };
        let message = match (v3::Call::parse(procedure, call.arguments).unwrap(), refusal) {
            (v3::Call::Write(_), Some(status)) => {
                reply(cx, &call.header, &v3::Reply::Write(Err(Failure { status, ..nothing })))
            }
            (v3::Call::Commit(_), Some(status)) => {
                reply(cx, &call.header, &v3::Reply::Commit(Err(Failure { status, ..nothing })))
            }
            (v3::Call::Write(args), None) => {
                let done = file.write(args.offset as usize, args.data.octets().unwrap());
                reply(cx, &call.header, &v3::Reply::Write(Ok(done)))
            }
            (v3::Call::Commit(_), None) => {
                file.stable = file.cached.clone();
                let verifier = file.verifier();
                reply(
                    cx,
                    &call.header,
                    &v3::Reply::Commit(Ok(CommitOk { wcc: WccData::NONE, verifier })),
                )
            }
            (v3::Call::Read(args), _) => {
                let start = file.cached.len().min(args.offset as usize);
                let end = file.cached.len().min(start + file.most.min(args.count as usize));
                let data = Bulk::Inline(&file.cached[start..end]);
                let eof = end == file.cached.len();
                reply(
                    cx,
                    &call.header,
                    &v3::Reply::Read(Ok(ReadOk { attributes: None, eof, data })),
                )
            }
            (call, _) => panic!("{call:?} is not expected"),
        };
        self.answers.push((call.id, message));
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        while let Some((call, message)) = self.answers.pop() {
            cx.answer(call, Answer { message, item: None });
        }
    }
}

fn reply(cx: &Cx<'_>, header: &CallHeader<'_>, results: &v3::Reply<'_>) -> Buf {
    let mut message = cx.message(2_048).unwrap();
    let mut writer = xdr::Writer::new(message.spare_mut());
    header.reply(Accepted::Success).emit(&mut writer).unwrap();
    results.emit(&mut writer).unwrap();
    let len = writer.len();
    message.extend(len);
    message
}

/// A client connected to a server with this file.
fn client(file: File) -> (NfsClient<Sim>, Rc<RefCell<File>>) {
    client_at(file, TICK)
}

/// The same, where each look at the clock takes `tick` nanoseconds.
fn client_at(file: File, tick: u64) -> (NfsClient<Sim>, Rc<RefCell<File>>) {
    let fabric = Fabric::new(1, Faults::NONE);
    let file = Rc::new(RefCell::new(file));
    let limits = Limits { windows: 256, receives: 256, ..stag_sim::LIMITS };
    let config = stag_engine::Config { grant: 8, ..stag_engine::Config::small() };
    let app = Difficult { file: Rc::clone(&file), answers: Vec::new() };
    let mut server =
        Shard::new(fabric.end("server", limits), app, config, Box::new(|_| true)).unwrap();
    server.listen(&AT).unwrap();
    let config = ClientConfig { user: (1, 1), ..ClientConfig::new(7) };
    let mut time = 0;
    let end = fabric.end("client", config.limits());
    let now = move || {
        time += tick;
        server.pass(Time(time));
        Time(time)
    };
    let mut client = NfsClient::new(end, config, now).unwrap();
    client.connect(&AT).unwrap();
    (client, file)
}

fn handle() -> FileHandle {
    FileHandle::new(b"it").unwrap()
}

fn content(len: usize) -> Vec<u8> {
    let mut octets = vec![0; len];
    Pattern::new(3, 3).fill(0, &mut octets);
    octets
}

fn put(
    client: &mut NfsClient<Sim>,
    len: usize,
    depth: usize,
) -> Result<TransferTotals, transfer::TransferFailure> {
    let octets = content(len);
    let mut source = |offset: u64, room: &mut [u8]| {
        let start = offset as usize;
        room.copy_from_slice(
            octets.get(start..start + room.len()).ok_or(io::ErrorKind::UnexpectedEof)?,
        );
        Ok(())
    };
    transfer::put(
        client,
        SizedFile { file: handle(), len: len as u64 },
        TransferFlow::new(depth, PIECE),
        &mut source,
        &mut |_| {},
    )
}

#[test]
fn what_a_server_loses_before_any_of_its_calls_is_written_again() {
    let len = 9_500;
    for depth in [1, 4] {
        // Ten WRITEs and a COMMIT, each of which may find that the server lost data; and the calls
        // that follow from that.
        for lost_at in 1..=12 {
            let (mut client, file) =
                client(File { lost_at: vec![lost_at], most: 9_999, ..File::default() });
            let moved = put(&mut client, len, depth).unwrap();
            assert!(file.borrow().stable == content(len), "depth {depth}, lost at {lost_at}");
            let is_lost = (2..=11).contains(&lost_at);
            assert_eq!(moved.replayed > 0, is_lost, "depth {depth}, lost at {lost_at}: {moved:?}");
            if lost_at == 11 {
                assert_eq!(moved.replayed, len as u64, "COMMIT found it");
            }
        }
    }
}

#[test]
fn a_server_may_lose_what_it_has_again_and_again() {
    for first in 1..=14 {
        for second in first + 1..=24 {
            let lost_at = vec![first, second, second + 3];
            let (mut client, file) = client(File { lost_at, most: 700, ..File::default() });
            put(&mut client, 7_001, 3).unwrap();
            assert!(file.borrow().stable == content(7_001), "lost at {first} and {second}");
        }
    }
}

#[test]
fn a_server_that_never_keeps_anything_is_given_up() {
    let (mut client, _) =
        client(File { lost_at: (1..9_999).collect(), most: 9_999, ..File::default() });
    let failure = put(&mut client, 3_000, 2).unwrap_err();
    assert!(matches!(failure.why, TransferFault::Unsettled), "{failure}");
    assert_eq!(
        failure.to_string(),
        "keeping what is written: the write verifier changed 100 times"
    );
}

#[test]
fn what_is_stable_already_needs_no_commit_and_is_not_written_again() {
    let committed = Some(StableHow::FileSync);
    let (mut client, file) =
        client(File { committed, lost_at: vec![3, 5], most: 9_999, ..File::default() });
    let moved = put(&mut client, 8_000, 2).unwrap();
    assert_eq!(moved, TransferTotals { octets: 8_000, calls: 8, replayed: 0 });
    assert!(file.borrow().stable == content(8_000));
}

#[test]
fn every_length_goes_and_comes_whole_whatever_a_server_gives_at_a_time() {
    for most in [1, 7, 999, 1_000] {
        for len in [0, 1, 6, 7, 8, 999, 1_000, 1_001, 1_999, 2_000, 2_001, 5_003] {
            if most < 7 && len > 1_001 {
                continue;
            }
            let (mut client, file) = client(File { most, ..File::default() });
            put(&mut client, len, 4).unwrap();
            assert!(file.borrow().stable == content(len), "{len} octets, {most} at a time");
            // The length that is known beforehand may be wrong, as when another client writes.
            for known in [0, 1, len / 2, len, len + 1, 4 * len + 3_000] {
                let mut came = Vec::new();
                let mut sink = |offset: u64, octets: &[u8]| {
                    assert_eq!(offset as usize, came.len(), "in order");
                    came.extend_from_slice(octets);
                    Ok(())
                };
                let source = SizedFile { file: handle(), len: known as u64 };
                let moved = transfer::get(
                    &mut client,
                    source,
                    TransferFlow::new(4, PIECE),
                    &mut sink,
                    &mut |_| {},
                )
                .unwrap();
                assert!(came == content(len), "{len} octets, {most} at a time, {known} expected");
                assert_eq!(moved.octets, len as u64);
            }
        }
    }
}

#[test]
fn a_failure_names_the_step_and_the_status_and_the_client_goes_on() {
    for (refused, step) in
        [(1, "WRITE of 1000 octets at 0"), (3, "WRITE of 1000 octets at 2000"), (5, "COMMIT")]
    {
        let refused = Some((refused, Status::NoSpc));
        let (mut client, file) = client(File { refused, most: 9_999, ..File::default() });
        let failure = put(&mut client, 4_000, 1).unwrap_err();
        assert!(matches!(failure.why, TransferFault::Call(Error::Nfs(Status::NoSpc))), "{failure}");
        assert_eq!(failure.to_string(), format!("{step}: no space is left (NoSpc)"));
        put(&mut client, 4_000, 4).unwrap();
        assert!(file.borrow().stable == content(4_000));
    }
    // With several outstanding, the results of the others are dropped.
    let refused = Some((2, Status::Io));
    let (mut client, file) = client(File { refused, most: 9_999, ..File::default() });
    put(&mut client, 9_000, 4).unwrap_err();
    put(&mut client, 9_000, 4).unwrap();
    assert!(file.borrow().stable == content(9_000));
}

#[test]
fn a_server_that_needs_more_time_gets_it() {
    for call in [1, 4, 8] {
        let refused = Some((call, Status::Jukebox));
        // Waits are seconds: at microseconds a look at the clock would take them for real.
        let file = File { refused, most: 9_999, ..File::default() };
        let (mut client, file) = client_at(file, 1_000_000);
        let moved = put(&mut client, 8_000, 3).unwrap();
        assert!(file.borrow().stable == content(8_000), "refused at {call}");
        assert_eq!(moved, TransferTotals { octets: 8_000, calls: 10, replayed: 0 });
    }
}

#[test]
fn a_source_or_sink_that_fails_is_ours_to_blame() {
    let (mut client, _) = client(File { most: 9_999, ..File::default() });
    put(&mut client, 3_000, 2).unwrap();
    let mut source = |_, _: &mut [u8]| Err(io::Error::other("gone"));
    let failure = FileWriter::new(handle(), TransferFlow::new(2, PIECE))
        .write(&mut client, FileRange { offset: 500, len: 10 }, &mut source, &mut |_| {})
        .unwrap_err();
    assert_eq!(failure.to_string(), "reading 10 octets at 500 to send: gone");
    let mut sink = |_, _: &[u8]| Err(io::Error::other("full"));
    let failure = transfer::get(
        &mut client,
        SizedFile { file: handle(), len: 3_000 },
        TransferFlow::new(2, PIECE),
        &mut sink,
        &mut |_| {},
    )
    .unwrap_err();
    assert_eq!(failure.to_string(), "storing 1000 octets at 0: full");
}

#[test]
fn a_server_that_only_asks_for_time_gets_three_minutes_and_that_is_told_once() {
    let file = File { most: 1_000, delayed_behind: Some(0), ..File::default() };
    let (mut client, file) = client_at(file, 20_000_000);
    let told = Rc::new(RefCell::new(Vec::new()));
    let tells = Rc::clone(&told);
    client.tell_waits(move |longest| tells.borrow_mut().push(longest));
    let start = client.now();
    assert_eq!(client.commit(handle(), 0, 0), Err(Error::Nfs(Status::Jukebox)));
    let waited = client.now().since(start);
    assert!((180..190).contains(&waited.as_secs()), "{waited:?}");
    assert_eq!(*told.borrow(), [std::time::Duration::from_secs(180)]);
    // Once it does something, it has all its time again.
    file.borrow_mut().delayed_behind = None;
    client.commit(handle(), 0, 0).unwrap();
    let behind = file.borrow().calls + 3;
    file.borrow_mut().delayed_behind = Some(behind);
    for _ in 0..3 {
        client.commit(handle(), 0, 0).unwrap();
    }
    assert_eq!(client.commit(handle(), 0, 0), Err(Error::Nfs(Status::Jukebox)));
    assert_eq!(told.borrow().len(), 2);
}
