//! Two clients of a server of two shards: the first one gets delegations, and requests of the
//! other one conflict with them.

use crate::waiting::{
    client4::{CONFIG, Reply4, request, session_args},
    requester::request as request3,
};
use stag_engine::{Answer as CallAnswer, App, Call, Config, Cx, Outcome, PeerId, Shard, Token};
use stag_nfs::{
    Gateway, Nfs4Config, Nfs4Link, Nfs4Records,
    records::{FileHome, RecordKeeper, RecordLog, Records as _},
};
use stag_nfs_store::{
    Store,
    exports::config::ExportConfig,
    files::{Callers, Files, FilesConfig, SharedFiles},
    memory::{Memory, MemoryConfig, MemoryExport},
};
use stag_nfs4_state::DelegationPolicy;
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
use std::{collections::VecDeque, path::Path, time::Duration};

const LIMITS: Limits = Limits { send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };

/// A client: it keeps its replies, and takes every callback.
#[derive(Default)]
pub struct Holder {
    pub peer: Option<PeerId>,
    pub replies: VecDeque<(u64, Vec<u8>)>,
    /// Delegations that were recalled, and their files.
    pub recalled: Vec<(Stateid, Vec<u8>)>,
    /// Notices that a lock may be free.
    pub notices: usize,
    /// Calls that were lost with their connections.
    pub lost: usize,
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
                CallbackRequest::NotifyLock(_) => {
                    self.notices += 1;
                    CallbackAnswer::NotifyLock(Ok(()))
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

/// A server of two shards, and two clients of it.
pub struct World<S: Store> {
    fabric: Fabric,
    pub server: Shard<Sim, Gateway<S>>,
    /// The other one: it forwards, or has sessions lent.
    pub arrival: Shard<Sim, Gateway<S>>,
    export: &'static [u8],
    /// The port of that shard.
    pub second: Port,
    /// The server makes no pass.
    pub is_stuck: bool,
    /// The other shard makes none.
    pub is_arrival_stuck: bool,
    pub clients: [Shard<Sim, Holder>; 2],
    sessions: [SessionId; 2],
    pub sequences: [u32; 2],
    /// The last open of the first client.
    opened: Option<(Stateid, FileHandle)>,
    pub now: Time,
}

impl World<Memory> {
    /// A server in memory. Each client is connected to it, or to a shard that forwards.
    pub fn new(are_forwarded: [bool; 2]) -> Self {
        Self::leasing(are_forwarded, CONFIG.lease)
    }

    /// The same with leases that last so long.
    pub fn leasing(are_forwarded: [bool; 2], lease: Duration) -> Self {
        let export = MemoryExport { name: "memory".to_owned(), copy_of: None, read_only: false };
        let memory = MemoryConfig::new(vec![export], 4 << 20);
        let memory = || Memory::new(&memory, &mut |_| {}).unwrap();
        let nfs4 = Nfs4Config { delegations: DelegationPolicy::ReadWrite, lease, ..CONFIG };
        let gateways = [Gateway::new(memory()).with_nfs4(nfs4), Gateway::new(memory())];
        Self::of(gateways, b"memory", are_forwarded)
    }
}

impl World<Files> {
    /// A server of files. The first client is connected to the home, the other one to a shard that
    /// has its session lent.
    pub fn lending(directory: &Path) -> Self {
        Self::sharing(directory, CONFIG, |home, exports| home.with_exclusive(exports))
    }

    /// The same, but programs of the host may change the files.
    pub fn watching(directory: &Path) -> Self {
        Self::sharing(directory, CONFIG, |home, exports| home.with_watched(exports).unwrap())
    }

    /// The same as [`lending`](Self::lending), with records of clients.
    pub fn recording(directory: &Path) -> Self {
        let state = directory.join("records");
        std::fs::create_dir_all(&state).unwrap();
        let mut records = RecordLog::new(FileHome::new(state));
        let boot = records.begin().unwrap();
        let config = Nfs4Config { epoch: boot.epoch, ..CONFIG };
        let keeper = RecordKeeper::without_thread(Box::new(records));
        let records = Nfs4Records { boot, keeper, grace: CONFIG.lease };
        Self::sharing(directory, config, |home, _| home.with_records(records))
    }

    fn sharing(
        directory: &Path,
        nfs4: Nfs4Config,
        home: impl FnOnce(Gateway<Files>, &[String]) -> Gateway<Files>,
    ) -> Self {
        let path = directory.join("export");
        std::fs::create_dir_all(&path).unwrap();
        let config = FilesConfig {
            state_dir: directory.join("state"),
            exports: vec![ExportConfig {
                name: "data".to_owned(),
                path,
                read_only: false,
                is_mountpoint: false,
            }],
            shards: 2,
            sync_directories: false,
            callers: Callers::UNPRIVILEGED,
            open_files: Some(64),
            cluster: None,
        };
        let shared = SharedFiles::open(&config).unwrap();
        let exports = ["data".to_owned()];
        let [first, second] = [0, 1].map(|shard| {
            let files = Files::open(&shared, shard).unwrap();
            Gateway::new(files).with_nfs4(nfs4)
        });
        Self::of([home(first, &exports), second], b"data", [false, true])
    }
}

impl<S: Store> World<S> {
    fn of(gateways: [Gateway<S>; 2], export: &'static [u8], are_forwarded: [bool; 2]) -> Self {
        let fabric = Fabric::new(1, Faults::DELAYS);
        let mut links = Nfs4Link::all(2).into_iter();
        let [gateway, forwards] = gateways.map(|it| it.with_link(links.next().unwrap()));
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
            export,
            second,
            is_stuck: false,
            is_arrival_stuck: false,
            clients,
            sessions,
            sequences,
            opened: None,
            now,
        };
        while world.clients.iter().any(|client| client.app().peer.is_none()) {
            world.step();
        }
        world.open_session(0);
        world.open_session(1);
        world
    }

    pub fn step(&mut self) {
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

    pub fn send(&mut self, client: usize, requests: &[Request<'_>]) {
        self.clients[client].with_app(|app, cx| {
            let peer = app.peer.unwrap();
            let call = request(cx, Token(0), requests);
            cx.call(peer, call);
        });
    }

    /// A call of version 3 by the second client: the status of its reply.
    pub fn exchange3(&mut self, call: &v3::Call<'_>) -> u32 {
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

    pub fn take(&mut self, client: usize) -> Option<Reply4> {
        let (_, reply) = self.clients[client].with_app(|app, _| app.replies.pop_front())?;
        Some(Reply4::of(&reply))
    }

    pub fn exchange(&mut self, client: usize, requests: &[Request<'_>]) -> Reply4 {
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

    pub fn sequence(&mut self, client: usize) -> Request<'static> {
        self.sequences[client] += 1;
        let (session, sequence) = (self.sessions[client], self.sequences[client]);
        let (slot, highest_slot, cache_this) = (0, 0, true);
        Request::Sequence(SequenceArgs { session, sequence, slot, highest_slot, cache_this })
    }

    /// Opens a file for reading by the first client: the delegation that it got, if any.
    pub fn open_for_reading(&mut self) -> (Option<Stateid>, FileHandle) {
        self.open_as(share::READ, OpenHow::Create(CreateHow4::Unchecked(RawAttributes::default())))
    }

    /// Makes the file, without a wish for a delegation.
    pub fn make_file(&mut self) {
        let how = OpenHow::Create(CreateHow4::Unchecked(RawAttributes::default()));
        self.open_as(share::READ | share::WANT_NO_DELEGATION, how);
        self.close();
    }

    /// Closes what the first client opened last.
    pub fn close(&mut self) {
        let (open, file) = self.opened.take().expect("it is open");
        let handle = Request::PutFh(Text(file.octets()));
        let requests = [self.sequence(0), handle, Request::Close(Close4Args { seqid: 0, open })];
        assert_eq!(self.exchange(0, &requests).status(), Status4::Ok);
    }

    /// The same of a file that is there.
    pub fn open_existing(&mut self) -> Option<Stateid> {
        self.open_as(share::READ, OpenHow::NoCreate).0
    }

    fn open_as(&mut self, access: u32, how: OpenHow<'static>) -> (Option<Stateid>, FileHandle) {
        let requests = [
            self.sequence(0),
            Request::PutRootFh(()),
            Request::Lookup(Text(self.export)),
            open(access, how),
            Request::GetFh(()),
        ];
        let reply = self.exchange(0, &requests);
        let answers = reply.answers();
        let [.., Answer::Open(Ok(opened)), Answer::GetFh(Ok(handle))] = &answers[..] else {
            panic!("{answers:?}")
        };
        let file = FileHandle::new(handle.0).unwrap();
        self.opened = Some((opened.stateid, file));
        let given = match &opened.delegation {
            OpenDelegation::Read(given) => Some(given.stateid),
            OpenDelegation::Write(given) => Some(given.stateid),
            _ => None,
        };
        (given, file)
    }

    /// Opens a file for reading by the first client, which is given a delegation of it once the
    /// other shard was notified that it may be.
    pub fn delegate(&mut self) -> (Stateid, FileHandle) {
        self.delegate_for(share::READ)
    }

    /// The same of a file that is opened for this.
    pub fn delegate_for(&mut self, access: u32) -> (Stateid, FileHandle) {
        let make = OpenHow::Create(CreateHow4::Unchecked(RawAttributes::default()));
        for _ in 0..100 {
            if let (Some(given), file) = self.open_as(access, make.clone()) {
                return (given, file);
            }
        }
        panic!("no delegation is given");
    }

    /// The second client opens it to write, which conflicts with the delegation.
    pub fn conflict(&mut self) -> Time {
        let requests = [
            self.sequence(1),
            Request::PutRootFh(()),
            Request::Lookup(Text(self.export)),
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

pub fn open(access: u32, how: OpenHow<'static>) -> Request<'static> {
    open_denying(access, 0, how)
}

pub fn open_denying(access: u32, deny: u32, how: OpenHow<'static>) -> Request<'static> {
    Request::Open(Open4Args {
        seqid: 0,
        share_access: access,
        share_deny: deny,
        owner: StateOwner { client_id: 0, owner: Text(b"owner") },
        how,
        claim: OpenClaim::Null(Text(b"file")),
    })
}
