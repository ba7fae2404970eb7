//! A delegation in the way is waited for, for a moment.

use crate::client4::{CONFIG, Reply4, put, request, session_args};
use stag_engine::{Answer as CallAnswer, App, Call, Config, Cx, Outcome, PeerId, Shard, Token};
use stag_nfs::{
    Gateway, Nfs4Config, Nfs4Link,
    store::memory::{Memory, MemoryConfig, MemoryExport},
    v4::state::DelegationPolicy,
};
use stag_protocol::{
    nfs::{v3::FileHandle, v4::*},
    rpc::Accepted,
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
        self.replies.push_back((outcome.token.0, outcome.reply.unwrap().to_vec()));
    }
}

/// A server in memory and two clients of it.
struct World {
    fabric: Fabric,
    server: Shard<Sim, Gateway<Memory>>,
    /// A shard that forwards to it.
    arrival: Shard<Sim, Gateway<Memory>>,
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
        let mut world = Self { fabric, server, arrival, clients, sessions, sequences, now };
        while world.clients.iter().any(|client| client.app().peer.is_none()) {
            world.step();
        }
        world.open_session(0);
        world.open_session(1);
        world
    }

    fn step(&mut self) {
        let mut any = self.server.pass(self.now) | self.arrival.pass(self.now);
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

    /// Opens a file for reading by the first client, which is given a delegation of it.
    fn delegate(&mut self) -> (Stateid, FileHandle) {
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
        let OpenDelegation::Read(given) = &opened.delegation else { panic!("{opened:?}") };
        (given.stateid, FileHandle::new(handle.0).unwrap())
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
