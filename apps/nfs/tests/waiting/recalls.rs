//! A delegation in the way is waited for, for a moment.

use crate::{
    client4::{CONFIG, Reply4, put, request, session_args},
    requester::request as request3,
};
use stag_engine::{Answer as CallAnswer, App, Call, Config, Cx, Outcome, PeerId, Shard, Token};
use stag_nfs::{
    Gateway, Nfs4Config, Nfs4Link,
    store::memory::{Memory, MemoryConfig, MemoryExport},
    v4::state::DelegationPolicy,
};
use stag_protocol::{
    nfs::{
        v3::{self, FileHandle},
        v4::*,
    },
    rpc::{Accepted, ReplyHeader},
    xdr::Writer,
};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Limits, Time};
use std::{collections::VecDeque, time::Duration};

const LIMITS: Limits = Limits { send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };

/// A client: it keeps its replies, and takes every callback.
#[derive(Default)]
struct Holder {
    peer: Option<PeerId>,
    replies: VecDeque<(u64, Vec<u8>)>,
    /// Delegations that were recalled, and their files.
    recalled: Vec<(Stateid, Vec<u8>)>,
    /// Calls that were lost with their connections.
    lost: usize,
}

impl App for Holder {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        let requests = CallbackCompound::parse(call.arguments.clone()).unwrap();
        let mut message = cx.message(1_024).unwrap();
        let mut writer = Writer::new(message.spare_mut());
        let header = call.header.reply(Accepted::Success);
        header.emit(&mut writer).unwrap();
        let mut results = ResultsWriter::begin(&mut writer, Text(b"")).unwrap();
        for request in requests {
            let answer = match request.unwrap() {
                CallbackRequest::Sequence(args) => CallbackAnswer::Sequence(Ok(CbSequenceOk {
                    session: args.session,
                    sequence: args.sequence,
                    slot: args.slot,
                    highest_slot: args.highest_slot,
                    target_highest_slot: args.highest_slot,
                })),
                CallbackRequest::Recall(args) => {
                    self.recalled.push((args.delegation, args.file.0.to_vec()));
                    CallbackAnswer::Recall(Ok(()))
                }
                other => panic!("{other:?}"),
            };
            results.push(&answer).unwrap();
        }
        results.finish();
        let len = writer.len();
        message.extend(len);
        cx.answer(call.id, CallAnswer { message, item: None });
    }

    fn on_peer_up(&mut self, _cx: &mut Cx<'_>, peer: PeerId) {
        self.peer = Some(peer);
    }

    fn on_reply(&mut self, _cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        match outcome.reply {
            Ok(reply) => self.replies.push_back((outcome.token.0, reply.to_vec())),
            Err(_) => self.lost += 1,
        }
    }
}

/// A server in memory and two clients of it.
struct World {
    fabric: Fabric,
    server: Shard<Sim, Gateway<Memory>>,
    /// A shard that forwards to it.
    arrival: Shard<Sim, Gateway<Memory>>,
    /// The port of that shard.
    second: Port,
    /// The server makes no pass.
    is_stuck: bool,
    /// The shard that forwards makes none.
    is_arrival_stuck: bool,
    clients: [Shard<Sim, Holder>; 2],
    sessions: [SessionId; 2],
    sequences: [u32; 2],
    now: Time,
}

impl World {
    /// Each client is connected to the server, or to the shard that forwards to it.
    fn new(are_forwarded: [bool; 2]) -> Self {
        let fabric = Fabric::new(1, Faults::DELAYS);
        let export = MemoryExport { name: "memory".to_owned(), copy_of: None, read_only: false };
        let memory = MemoryConfig::new(vec![export], 4 << 20);
        let memory = || Memory::new(&memory, &mut |_| {}).unwrap();
        let mut links = Nfs4Link::all(2).into_iter();
        let nfs4 = Nfs4Config { delegations: DelegationPolicy::ReadWrite, ..CONFIG };
        let gateway = Gateway::new(memory()).with_nfs4(nfs4).with_link(links.next().unwrap());
        let forwards = Gateway::new(memory()).with_link(links.next().unwrap());
        let config = || Config { reverse_calls_max: 2, reverse_grant: 2, ..Config::small() };
        let mut server =
            Shard::new(fabric.end("server", LIMITS), gateway, config(), Box::new(|_| true))
                .unwrap();
        let port: Port = server.listen(&Port(0)).unwrap();
        let mut arrival =
            Shard::new(fabric.end("arrival", LIMITS), forwards, config(), Box::new(|_| true))
                .unwrap();
        let second: Port = arrival.listen(&Port(0)).unwrap();
        let clients = [("one", are_forwarded[0]), ("other", are_forwarded[1])];
        let clients = clients.map(|(name, is_forwarded)| {
            let end = fabric.end(name, LIMITS);
            let mut client =
                Shard::new(end, Holder::default(), config(), Box::new(|_| false)).unwrap();
            client.connect(if is_forwarded { &second } else { &port }).unwrap();
            client
        });
        let (sessions, sequences, now) = ([[0; 16]; 2], [0; 2], Time(0));
        let mut world = Self {
            fabric,
            server,
            arrival,
            second,
            is_stuck: false,
            is_arrival_stuck: false,
            clients,
            sessions,
            sequences,
            now,
        };
        while world.clients.iter().any(|client| client.app().peer.is_none()) {
            world.step();
        }
        world.open_session(0);
        world.open_session(1);
        world
    }

    fn step(&mut self) {
        let mut any = !self.is_arrival_stuck && self.arrival.pass(self.now);
        if !self.is_stuck {
            any |= self.server.pass(self.now);
        }
        for client in &mut self.clients {
            any |= client.pass(self.now);
        }
        let soon = self.now + Duration::from_millis(1);
        let next = if any { self.now + Duration::from_nanos(100) } else { soon };
        self.now = self.fabric.next_due().map_or(next, |due| due.min(next)).max(self.now);
    }

    fn send(&mut self, client: usize, requests: &[Request<'_>]) {
        self.clients[client].with_app(|app, cx| {
            let peer = app.peer.unwrap();
            let call = request(cx, Token(0), requests);
            cx.call(peer, call);
        });
    }

    /// A call of version 3 by the second client: the status of its reply.
    fn exchange3(&mut self, call: &v3::Call<'_>) -> u32 {
        self.clients[1].with_app(|app, cx| {
            let (peer, call) = (app.peer.unwrap(), request3(cx, Token(0), call));
            cx.call(peer, call);
        });
        loop {
            self.step();
            let reply = self.clients[1].with_app(|app, _| app.replies.pop_front());
            if let Some((_, reply)) = reply {
                let status = reply[ReplyHeader::LEN..].first_chunk().unwrap();
                return u32::from_be_bytes(*status);
            }
        }
    }

    fn take(&mut self, client: usize) -> Option<Reply4> {
        let (_, reply) = self.clients[client].with_app(|app, _| app.replies.pop_front())?;
        Some(Reply4::of(&reply))
    }

    fn exchange(&mut self, client: usize, requests: &[Request<'_>]) -> Reply4 {
        self.send(client, requests);
        loop {
            self.step();
            if let Some(reply) = self.take(client) {
                return reply;
            }
        }
    }

    fn open_session(&mut self, client: usize) {
        let owner = [client as u8; 4];
        let args = ExchangeIdArgs {
            client: ClientOwner { verifier: [1; 8], owner: Text(&owner) },
            flags: 0,
            protection: StateProtection::None,
            implementation: None,
        };
        let reply = self.exchange(client, &[Request::ExchangeId(args)]);
        let Answer::ExchangeId(Ok(known)) = reply.last() else { panic!("{reply:?}") };
        let create = CreateSessionArgs {
            flags: session_flag::CONN_BACK_CHAN,
            ..session_args(known.client_id, known.sequence)
        };
        let reply = self.exchange(client, &[Request::CreateSession(create)]);
        let Answer::CreateSession(Ok(made)) = reply.last() else { panic!("{reply:?}") };
        self.sessions[client] = made.session;
        let complete = [self.sequence(client), Request::ReclaimComplete(false)];
        assert_eq!(self.exchange(client, &complete).status(), Status4::Ok);
    }

    fn sequence(&mut self, client: usize) -> Request<'static> {
        self.sequences[client] += 1;
        let (session, sequence) = (self.sessions[client], self.sequences[client]);
        let (slot, highest_slot, cache_this) = (0, 0, true);
        Request::Sequence(SequenceArgs { session, sequence, slot, highest_slot, cache_this })
    }

    /// Opens a file for reading by the first client: the delegation that it got, if any.
    fn open_for_reading(&mut self) -> (Option<Stateid>, FileHandle) {
        let requests = [
            self.sequence(0),
            Request::PutRootFh(()),
            Request::Lookup(Text(b"memory")),
            open(share::READ, OpenHow::Create(CreateHow4::Unchecked(RawAttributes::default()))),
            Request::GetFh(()),
        ];
        let reply = self.exchange(0, &requests);
        let answers = reply.answers();
        let [.., Answer::Open(Ok(opened)), Answer::GetFh(Ok(handle))] = &answers[..] else {
            panic!("{answers:?}")
        };
        let given = match &opened.delegation {
            OpenDelegation::Read(given) => Some(given.stateid),
            _ => None,
        };
        (given, FileHandle::new(handle.0).unwrap())
    }

    /// Opens a file for reading by the first client, which is given a delegation of it once the
    /// other shard has heard that it may be.
    fn delegate(&mut self) -> (Stateid, FileHandle) {
        for _ in 0..100 {
            if let (Some(given), file) = self.open_for_reading() {
                return (given, file);
            }
        }
        panic!("no delegation is given");
    }

    /// The second client opens it to write, which the delegation is in the way of.
    fn conflict(&mut self) -> Time {
        let requests = [
            self.sequence(1),
            Request::PutRootFh(()),
            Request::Lookup(Text(b"memory")),
            open(share::BOTH, OpenHow::NoCreate),
        ];
        self.send(1, &requests);
        let began = self.now;
        while self.clients[0].app().recalled.is_empty() {
            self.step();
        }
        assert_eq!(self.server.snapshot().app.nfs4.suspended, 1, "it waits");
        assert!(self.take(1).is_none());
        began
    }
}

fn open(access: u32, how: OpenHow<'static>) -> Request<'static> {
    Request::Open(Open4Args {
        seqid: 0,
        share_access: access,
        share_deny: 0,
        owner: StateOwner { client_id: 0, owner: Text(b"owner") },
        how,
        claim: OpenClaim::Null(Text(b"file")),
    })
}

#[test]
fn an_open_goes_on_when_the_delegation_in_its_way_is_returned() {
    for are_forwarded in [[false, false], [false, true], [true, false], [true, true]] {
        go_on_when_returned(are_forwarded);
    }
}

fn go_on_when_returned(are_forwarded: [bool; 2]) {
    let mut world = World::new(are_forwarded);
    let (delegation, file) = world.delegate();
    let began = world.conflict();
    let returned = [world.sequence(0), put(&file), Request::DelegReturn(delegation)];
    assert_eq!(world.exchange(0, &returned).status(), Status4::Ok);
    let reply = loop {
        if let Some(reply) = world.take(1) {
            break reply;
        }
        world.step();
    };
    assert_eq!(reply.status(), Status4::Ok, "{reply:?}");
    assert!(world.now.since(began) < Duration::from_millis(100), "it did not wait on");
    let report = world.server.snapshot().app.nfs4;
    assert_eq!((report.suspended, report.suspensions, report.busy_slots), (0, 1, 0));
    assert_eq!(world.clients[0].app().recalled[0].1, file.octets());
    let forwarded = world.arrival.snapshot().app.nfs4.forwarded;
    let count = are_forwarded.iter().filter(|is_forwarded| **is_forwarded).count();
    assert!((forwarded > 0) == (count > 0), "{forwarded} were forwarded");
}

#[test]
fn a_delegation_that_does_not_come_back_in_time_is_asked_for_again() {
    let mut world = World::new([false, true]);
    let (delegation, file) = world.delegate();
    let began = world.conflict();
    let reply = loop {
        if let Some(reply) = world.take(1) {
            break reply;
        }
        world.step();
    };
    let waited = world.now.since(began);
    assert_eq!((reply.status(), reply.answers().len()), (Status4::Delay, 4), "{reply:?}");
    assert!(waited >= Duration::from_millis(100) && waited < Duration::from_millis(200));
    // The same question again, when it is back.
    let returned = [world.sequence(0), put(&file), Request::DelegReturn(delegation)];
    assert_eq!(world.exchange(0, &returned).status(), Status4::Ok);
    let requests = [
        world.sequence(1),
        Request::PutRootFh(()),
        Request::Lookup(Text(b"memory")),
        open(share::BOTH, OpenHow::NoCreate),
    ];
    assert_eq!(world.exchange(1, &requests).status(), Status4::Ok);
    assert_eq!(world.server.snapshot().app.nfs4.busy_slots, 0);
}

#[test]
fn version_3_on_another_shard_asks_the_home_before_it_changes_what_is_delegated() {
    let mut world = World::new([false, true]);
    let (delegation, file) = world.delegate();
    let set = v3::Call::SetAttr(v3::SetAttrArgs {
        object: file,
        attributes: v3::SetAttributes { mode: Some(0o600), ..v3::SetAttributes::default() },
        guard: None,
    });
    assert_eq!(world.exchange3(&set), v3::Status::Jukebox as u32, "it has to come back first");
    while world.clients[0].app().recalled.is_empty() {
        world.step();
    }
    let asked = |world: &World| world.arrival.snapshot().app.nfs4.asked_home;
    assert_eq!(asked(&world), 1);
    // A name that no delegation is behind: the verdict is that it may be, and the shard's own store
    // is asked, which does not know handles of the other one's.
    let root = [
        world.sequence(0),
        Request::PutRootFh(()),
        Request::Lookup(Text(b"memory")),
        Request::GetFh(()),
    ];
    let reply = world.exchange(0, &root);
    let Answer::GetFh(Ok(handle)) = reply.last() else { panic!("{reply:?}") };
    let dir = FileHandle::new(handle.0).unwrap();
    let remove = v3::Call::Remove(v3::RemoveArgs {
        object: v3::DirOpArgs { dir, name: v3::Name(b"nothing") },
    });
    let unknown = [v3::Status::Stale as u32, v3::Status::BadHandle as u32];
    assert!(unknown.contains(&world.exchange3(&remove)));
    assert_eq!(asked(&world), 2);
    // With the delegation gone, another one may be given at any moment, until a change is let
    // through. Then nobody has to be asked.
    let returned = [world.sequence(0), put(&file), Request::DelegReturn(delegation)];
    assert_eq!(world.exchange(0, &returned).status(), Status4::Ok);
    for _ in 0..3 {
        assert!(unknown.contains(&world.exchange3(&set)));
        assert_eq!(asked(&world), 3);
    }
}

/// A SETATTR of the mode, which is in the way of every delegation.
fn change(file: FileHandle) -> v3::Call<'static> {
    v3::Call::SetAttr(v3::SetAttrArgs {
        object: file,
        attributes: v3::SetAttributes { mode: Some(0o600), ..v3::SetAttributes::default() },
        guard: None,
    })
}

#[test]
fn no_delegation_is_given_before_every_shard_knows_that_it_has_to_ask() {
    let mut world = World::new([false, true]);
    // Nothing is on its way to a shard that does not look: its time would not go on.
    for _ in 0..1_000 {
        world.step();
    }
    world.is_arrival_stuck = true;
    for _ in 0..20 {
        assert_eq!(world.open_for_reading().0, None, "the other shard may be changing it");
    }
    world.is_arrival_stuck = false;
    let (_, file) = world.delegate();
    assert_eq!(world.exchange3(&change(file)), v3::Status::Jukebox as u32);
}

#[test]
fn a_change_that_was_let_through_is_done_before_a_delegation_is_given() {
    let mut world = World::new([false, true]);
    let (delegation, file) = world.delegate();
    let returned = [world.sequence(0), put(&file), Request::DelegReturn(delegation)];
    assert_eq!(world.exchange(0, &returned).status(), Status4::Ok);
    let asked = |world: &World| world.arrival.snapshot().app.nfs4.asked_home;
    let before = asked(&world);
    world.clients[1].with_app(|app, cx| {
        let (peer, call) = (app.peer.unwrap(), request3(cx, Token(0), &change(file)));
        cx.call(peer, call);
    });
    while asked(&world) == before {
        world.step();
    }
    // The home lets it through, and the shard does not come to carry it out.
    world.is_arrival_stuck = true;
    for _ in 0..20 {
        assert_eq!(world.open_for_reading().0, None, "a change is on its way");
    }
    assert!(world.clients[1].app().replies.is_empty());
    world.is_arrival_stuck = false;
    world.delegate();
    while world.clients[1].app().replies.is_empty() {
        world.step();
    }
    assert_eq!(asked(&world), before + 1);
}

#[test]
fn clients_that_come_and_go_while_the_home_is_busy_fill_no_memory() {
    let mut world = World::new([false, true]);
    let before = world.arrival.snapshot().app.nfs4.forwarded;
    let first = world.sequences[1];
    world.is_stuck = true;
    let (mut delayed, mut lost) = (0, 0);
    for _ in 0..200 {
        let root = [world.sequence(1), Request::PutRootFh(())];
        world.send(1, &root);
        // The call is taken, and refused at once or not at all.
        for _ in 0..50 {
            world.step();
        }
        match world.take(1) {
            Some(reply) => {
                assert_eq!(reply.status(), Status4::Delay);
                delayed += 1;
            }
            None => lost += 1,
        }
        let second = world.second;
        world.clients[1].with_app(|app, cx| cx.disconnect(app.peer.take().unwrap()));
        for _ in 0..50 {
            world.step();
        }
        world.clients[1].connect(&second).unwrap();
        while world.clients[1].app().peer.is_none() {
            world.step();
        }
    }
    assert_eq!((lost, delayed), (128, 72), "so many lie in boxes");
    assert_eq!(world.arrival.snapshot().app.nfs4.forwarded - before, 128);
    assert_eq!(world.clients[1].app().lost, 128);
    // The home carries them out in their order. Nobody waits for their replies, and the slot goes
    // on.
    world.is_stuck = false;
    for _ in 0..1_000 {
        world.step();
    }
    world.sequences[1] = first + 128;
    let root = [world.sequence(1), Request::PutRootFh(())];
    assert_eq!(world.exchange(1, &root).status(), Status4::Ok);
}
