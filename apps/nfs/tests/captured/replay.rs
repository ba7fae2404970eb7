//! Each compound of the capture has the same outcome at a gateway, operation by operation; octets
//! that were read, names that were listed and attributes of objects are the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::Permissions,
    os::unix::fs::PermissionsExt as _,
    time::Duration,
};

use stag_engine::Config;
use stag_nfs::{Gateway, Nfs4Config};
use stag_nfs_store::memory::{Memory, MemoryConfig, MemoryExport};
use stag_nfs4_state::DelegationPolicy;
use stag_protocol::{
    nfs::v4::*,
    rpc::{Accepted, CallHeader, Outcome, ReplyHeader},
    rpcrdma::{Body, Direction},
    xdr::{Reader, Writer, pad},
};

use crate::{
    captured::{
        NFS41,
        calls::{Call, Message, capture},
        translate::Names,
    },
    gateway::{
        wire as gateway_wire,
        wire::{OverFabric, Wire},
    },
};

/// A message with an item in its place, as it would be without chunks.
fn whole(message: &Message, at: usize, item: &[u8]) -> Vec<u8> {
    let (front, back) = message.inline().split_at(at);
    [front, item, &[0; 3][..pad(item.len())], back].concat()
}

fn whole_call(call: &Call) -> Vec<u8> {
    let position = call.call.lists.reads().next().map(|chunk| chunk.position.octets() as usize);
    match (position, &call.pulled[..]) {
        (Some(at), [item]) => whole(&call.call, at, item),
        _ => call.call.inline().to_vec(),
    }
}

fn whole_reply(call: &Call) -> Vec<u8> {
    match (&call.reply.header.body, &call.written[..]) {
        (Body::NoMsg, _) => call.long_reply.clone(),
        (_, [item]) => whole(&call.reply, call.reply.inline().len(), item),
        _ => call.reply.inline().to_vec(),
    }
}

/// A compound of the capture: its RPC header, its arguments, its results.
struct Captured {
    call: Vec<u8>,
    header_len: usize,
    results: Vec<u8>,
}

impl Captured {
    fn requests(&self) -> Vec<Request<'_>> {
        let operations = Compound::parse(Reader::new(&self.call[self.header_len..])).unwrap();
        operations.map(Result::unwrap).collect()
    }

    fn answers(&self) -> Vec<Answer<'_>> {
        let results = CompoundReply::parse(Reader::new(&self.results)).unwrap();
        results.map(Result::unwrap).collect()
    }
}

fn compounds() -> Vec<Captured> {
    let capture = capture(NFS41);
    let forward = capture.calls.iter().filter(|call| call.direction == Direction::Forward);
    let all = forward.filter_map(|call| {
        let (call, reply) = (whole_call(call), whole_reply(call));
        let mut reader = Reader::new(&call);
        let header = CallHeader::parse(&mut reader).unwrap();
        let (is_compound, header_len) =
            (header.procedure == COMPOUND, call.len() - reader.remaining());
        let mut reader = Reader::new(&reply);
        ReplyHeader::parse(&mut reader).unwrap();
        let results = reply[reply.len() - reader.remaining()..].to_vec();
        is_compound.then_some(Captured { call, header_len, results })
    });
    all.collect()
}

/// The directory that was exported, as far as the capture shows what lay in it before: a file `f`,
/// and a directory `d` of many.
fn exported(compounds: &[Captured]) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    // As `/tmp`: everybody may make files there.
    std::fs::set_permissions(home.path(), Permissions::from_mode(0o1777)).unwrap();
    std::fs::create_dir(home.path().join("d")).unwrap();
    let answers = || compounds.iter().flat_map(Captured::answers);
    let content = answers().find_map(|answer| match answer {
        Answer::Read(Ok(read)) => Some(read.data.octets().unwrap().to_vec()),
        _ => None,
    });
    std::fs::write(home.path().join("f"), content.unwrap()).unwrap();
    // The first listing that goes on is that of `d`.
    for name in listings(compounds).remove(0) {
        std::fs::write(home.path().join("d").join(name), "").unwrap();
    }
    home
}

/// The names of each listing in the capture.
fn listings(compounds: &[Captured]) -> Vec<BTreeSet<String>> {
    let mut all: Vec<BTreeSet<String>> = Vec::new();
    for compound in compounds {
        for (request, answer) in compound.requests().iter().zip(compound.answers()) {
            let (Request::ReadDir(args), Answer::ReadDir(Ok(ok))) = (request, &answer) else {
                continue;
            };
            if args.cookie == 0 {
                all.push(BTreeSet::new());
            }
            all.last_mut().unwrap().extend(names_of(ok));
        }
    }
    all
}

fn names_of(listing: &ReadDir4Ok<'_>) -> Vec<String> {
    let name = |entry: Entry4<'_>| String::from_utf8(entry.name.0.to_vec()).unwrap();
    listing.entries.clone().map(name).collect()
}

/// Our server.
struct Ours {
    wire: OverFabric<Gateway<Memory>>,
    names: Names,
    /// The names of each listing.
    listings: Vec<BTreeSet<String>>,
    /// Sequence ID of the last request of our own.
    sequence: u32,
    /// The operations whose outcome differs, with both statuses, and how often.
    other: BTreeMap<String, usize>,
}

impl Ours {
    fn new(directory: &std::path::Path) -> Self {
        let copy_of = Some(directory.to_owned());
        let export = MemoryExport { name: "memory".to_owned(), copy_of, read_only: false };
        let memory = MemoryConfig::new(vec![export], 16 << 20);
        let config = Nfs4Config {
            lease: Duration::from_secs(90),
            epoch: 7,
            identity: [5; 16],
            // When a server gives them is its own business: without them all the rest is the same.
            delegations: DelegationPolicy::Never,
            started: 1_000,
            key: [3; 16],
            cluster: None,
        };
        let gateway = Gateway::new(Memory::new(&memory, &mut |_| ()).unwrap()).with_nfs4(config);
        let wire = OverFabric::new(gateway, Config::small());
        let (names, listings, sequence, other) = Default::default();
        Self { wire, names, listings, sequence, other }
    }

    /// Plays a compound. Linux exported the root itself: ours is one step below.
    fn play(&mut self, captured: &Captured) {
        let (requests, answers) = (captured.requests(), captured.answers());
        // It came in a period of grace, which ours has not.
        let is_put_off = answers.last().is_some_and(|last| last.status() == Status4::Grace);
        let is_return = |request: &Request<'_>| matches!(request, Request::DelegReturn(_));
        let took = match requests.iter().position(is_return) {
            _ if is_put_off => 1,
            Some(place) => place,
            None => requests.len(),
        };
        let mut ours = Vec::new();
        for request in requests.iter().take(took) {
            ours.push(self.names.translated(request));
            if matches!(request, Request::PutRootFh(())) {
                ours.push(Request::Lookup(Text(b"memory")));
            }
        }
        let octets = encode(captured, &ours);
        let reply = self.exchange(&octets);
        let results = CompoundReply::parse(Reader::new(&reply)).unwrap();
        let mut results = results.map(Result::unwrap);
        for (request, theirs) in requests.iter().zip(&answers).take(took) {
            let Some(answer) = results.next() else { break };
            if matches!(request, Request::PutRootFh(())) {
                assert_eq!(results.next().unwrap().status(), Status4::Ok);
            }
            self.compare(request, theirs, &answer);
            self.names.learn(theirs, &answer);
        }
        if let (Some(Request::ReadDir(args)), Some(Answer::ReadDir(Ok(ok)))) =
            (requests.last(), answers.last())
            && ok.eof
        {
            self.list_to_the_end(captured, &requests[1], args);
        }
    }

    /// Requests the rest of a listing: our directory pages are shorter than those of Linux.
    fn list_to_the_end(&mut self, captured: &Captured, put: &Request<'_>, args: &ReadDir4Args) {
        while let Some((cookie, verifier)) = self.names.listed {
            // A slot that the client of the capture does not use.
            self.sequence += 1;
            let sequence = Request::Sequence(SequenceArgs {
                session: [0; 16],
                sequence: self.sequence,
                slot: 40,
                highest_slot: 40,
                cache_this: false,
            });
            let list = Request::ReadDir(ReadDir4Args { cookie, verifier, ..args.clone() });
            let requests = [sequence, put.clone(), list.clone()];
            let ours: Vec<_> =
                requests.iter().map(|request| self.names.translated(request)).collect();
            let octets = encode(captured, &ours);
            let reply = self.exchange(&octets);
            let results = CompoundReply::parse(Reader::new(&reply)).unwrap();
            let page = results.map(Result::unwrap).last().unwrap();
            self.compare(&list, &page, &page);
            self.names.learn(&page, &page);
        }
    }

    fn exchange(&mut self, octets: &[u8]) -> Vec<u8> {
        let result_max = 0;
        let (item, reply_max) = (None, 1 << 20);
        let reply =
            self.wire.exchange(gateway_wire::Message { octets, item, reply_max, result_max });
        let reply = reply.unwrap();
        let outcome = ReplyHeader::parse(&mut Reader::new(&reply)).unwrap().outcome;
        assert_eq!(outcome, Outcome::accepted(Accepted::Success));
        reply[ReplyHeader::LEN..].to_vec()
    }

    /// Notes what differs, and goes on.
    fn must_be(&mut self, is_same: bool, request: &Request<'_>, what: &str) {
        if !is_same {
            let line = format!("{:?}: {what}", request.operation());
            *self.other.entry(line).or_default() += 1;
        }
    }

    fn compare(&mut self, request: &Request<'_>, theirs: &Answer<'_>, ours: &Answer<'_>) {
        let (captured, status) = (theirs.status(), ours.status());
        self.must_be(captured == status, request, &format!("{captured:?} {status:?}"));
        match (theirs, ours) {
            (Answer::Read(Ok(theirs)), Answer::Read(Ok(ours))) => {
                self.must_be(ours == theirs, request, "data");
            }
            (Answer::Write(Ok(theirs)), Answer::Write(Ok(ours))) => {
                self.must_be(ours.count == theirs.count, request, "octets written");
            }
            (Answer::Access(Ok(theirs)), Answer::Access(Ok(ours))) => {
                self.must_be(ours == theirs, request, &format!("{theirs:x?} {ours:x?}"));
            }
            (Answer::Open(Ok(theirs)), Answer::Open(Ok(ours))) => {
                let is_same = times_as_told(&ours.set) == times_as_told(&theirs.set);
                self.must_be(is_same, request, &format!("{:?} {:?}", theirs.set, ours.set));
            }
            (Answer::GetAttr(Ok(theirs)), Answer::GetAttr(Ok(ours))) => {
                let [theirs, ours] = [theirs, ours].map(|raw| told(&raw.values().unwrap()));
                self.must_be(theirs == ours, request, "attributes");
            }
            (Answer::ReadDir(Ok(_)), Answer::ReadDir(Ok(ok))) => {
                let Request::ReadDir(args) = request else { panic!("{request:?}") };
                if args.cookie == 0 {
                    self.listings.push(BTreeSet::new());
                }
                self.listings.last_mut().unwrap().extend(names_of(ok));
            }
            _ => {}
        }
    }
}

/// The attributes that hold the verifier of an exclusive creation may be named by the numbers to
/// read them or to set them: Linux accepts both.
fn times_as_told(set: &Bitmap) -> Vec<u32> {
    let told = |number| match number {
        48 => 47,
        54 => 53,
        number => number,
    };
    let mut told: Vec<_> = set.numbers().map(told).collect();
    told.sort_unstable();
    told
}

/// Attributes that do not depend on who serves the object.
fn told(values: &AttributeValues<'_>) -> String {
    let is_file = values.kind == Some(FileKind4::Regular);
    let of_file = is_file.then_some((values.size, values.num_links));
    // The captured server was root's; what another user's server makes belongs to that user.
    let is_root = rustix::process::geteuid().is_root();
    let owners = is_root.then_some((values.owner, values.owner_group));
    format!("{:?} {:?} {owners:?} {of_file:?}", values.kind, values.mode)
}

/// The octets of a call with these operations, by the caller of the captured one.
fn encode(captured: &Captured, requests: &[Request<'_>]) -> Vec<u8> {
    let mut octets = vec![0; 2 << 20];
    let mut writer = Writer::new(&mut octets);
    writer.fixed(&captured.call[..captured.header_len]).unwrap();
    let head = CompoundHead { tag: Text(b""), minor_version: 1, operations: requests.len() as u32 };
    stag_protocol::xdr::Codec::emit(&head, &mut writer).unwrap();
    requests.iter().try_for_each(|request| request.emit(&mut writer)).unwrap();
    let len = writer.len();
    octets.truncate(len);
    octets
}

#[test]
fn what_linux_asked_its_own_server_has_the_same_outcome_here() {
    let compounds = compounds();
    let home = exported(&compounds);
    let mut ours = Ours::new(home.path());
    compounds.iter().for_each(|captured| ours.play(captured));
    // At the end a program of the captured host changed a file, which has no counterpart here.
    let expected = [("GetAttr: attributes", 1), ("Read: data", 1)];
    assert_eq!(ours.other, expected.map(|(line, count)| (line.to_owned(), count)).into());
    assert!(ours.listings == listings(&compounds), "every listing has the same names");
    let report = ours.wire.report().nfs4;
    assert_eq!((report.clients, report.sessions, report.busy_slots), (0, 0, 0));
}
