//! Shares of the core next to a client that makes one kind of operation as fast as it can: each
//! operation of versions 3 and 4, over memory and over a directory, at prices from a few
//! microseconds to more than half a millisecond. The operations are real, and the core's time is
//! virtual: each operation takes its price.

use crate::gateway::{
    client::{self as v3, Home, place},
    nfs4::client::{CONFIG, Reply4, encode, memory, open_args, session_args, write_args},
};
use stag_engine::{
    App, Call, Cause, Config, Cx, Meter, Outcome, PeerId, PeerSecurity, Request as CallRequest,
    Shard, Token,
};
use stag_nfs::{Gateway, GatewayReport, store::Store};
use stag_pools::Buf;
use stag_protocol::{
    nfs::{
        v3::{
            Access, AccessArgs, Call as Call3, CommitArgs, FileHandle, GetAttrArgs, LookupArgs,
            ReadArgs, ReadDirPlusArgs, SystemArgs,
        },
        v4::*,
    },
    rpc::NullHeader,
};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Limits, Time};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

const LIMITS: Limits =
    Limits { connections: 32, send_queue: 128, receives: 512, windows: 256, ..stag_sim::LIMITS };
const ONE_WAY: Faults =
    Faults { delay: 10_000..10_001, completion_delay: 100..101, ..Faults::NONE };
/// Clients next to the one.
const CLIENTS: usize = 15;
/// Calls that each client has outstanding, and those of the one.
const DEPTH: usize = 8;
const SLOTS: usize = 8;
/// Operations of a compound in addition to SEQUENCE and PUTFH, at most.
const OPERATIONS: usize = 14;
/// Nanoseconds of the core for a call of a client, and for a pass.
const PRICE: u64 = 2_000;
const PASS: u64 = 100;
/// Virtual time that is measured, and the time before it.
const MEASURED: u64 = 64_000_000;
const BEFORE: u64 = 12_000_000;
/// Prices of the operation, in nanoseconds.
const PRICES: [u64; 3] = [5_000, 80_000, 600_000];
const PATIENCE: Duration = Duration::from_secs(3_600);

/// The core's time. While the operation is carried out, each look at the clock finds that one
/// more was.
#[derive(Debug, Default)]
struct CoreTime {
    now: AtomicU64,
    price: AtomicU64,
    /// The next look begins a turn: nothing was carried out before it.
    begins: AtomicBool,
}

impl CoreTime {
    fn spend(&self, nanoseconds: u64) {
        self.now.fetch_add(nanoseconds, Relaxed);
    }

    fn at(&self) -> Time {
        Time(self.now.load(Relaxed))
    }
}

impl Meter for CoreTime {
    fn now(&self) -> Time {
        if !self.begins.swap(false, Relaxed) {
            self.spend(self.price.load(Relaxed));
        }
        self.at()
    }
}

/// A gateway whose operations have a price. The peer that came first makes the costly ones.
struct Priced<S> {
    gateway: Gateway<S>,
    time: Arc<CoreTime>,
    price: u64,
    first: Option<PeerId>,
    /// Passes in which a compound went on that was put aside.
    slices: u64,
}

impl<S: Store> App for Priced<S> {
    type Report = GatewayReport;

    fn report(&self) -> GatewayReport {
        self.gateway.report()
    }

    fn wants_idle_passes(&self) -> bool {
        self.gateway.wants_idle_passes()
    }

    fn idle_pass_at(&self) -> Option<Time> {
        self.gateway.idle_pass_at()
    }

    fn on_null(&mut self, call: NullHeader) -> bool {
        self.gateway.on_null(call)
    }

    fn sink(&mut self, len: usize) -> Option<Buf> {
        self.gateway.sink(len)
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        let price = if self.first == Some(call.peer) { self.price } else { 0 };
        self.time.price.store(price, Relaxed);
        self.gateway.on_call(cx, call);
        self.time.price.store(0, Relaxed);
        self.time.spend(if price > 0 { price } else { PRICE });
    }

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        self.gateway.on_reply(cx, outcome);
    }

    fn on_peer_up(&mut self, cx: &mut Cx<'_>, peer: PeerId) {
        self.first.get_or_insert(peer);
        self.gateway.on_peer_up(cx, peer);
    }

    fn on_peer_down(&mut self, cx: &mut Cx<'_>, peer: PeerId, cause: Cause) {
        self.gateway.on_peer_down(cx, peer, cause);
    }

    fn on_security(&mut self, cx: &mut Cx<'_>, peer: PeerId, security: &PeerSecurity) {
        self.gateway.on_security(cx, peer, security);
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        self.time.price.store(self.price, Relaxed);
        self.time.begins.store(true, Relaxed);
        self.gateway.on_pass_end(cx);
        self.time.price.store(0, Relaxed);
        self.slices += u64::from(!self.time.begins.swap(false, Relaxed));
    }
}

/// Keeps replies.
#[derive(Default)]
struct Caller(VecDeque<(Token, Vec<u8>)>);

impl App for Caller {
    type Report = ();

    fn report(&self) {}

    fn on_reply(&mut self, _: &mut Cx<'_>, outcome: Outcome<'_>) {
        self.0.push_back((outcome.token, outcome.reply.unwrap().to_vec()));
    }
}

struct World<S: Store> {
    fabric: Fabric,
    server: Shard<Sim, Priced<S>>,
    time: Arc<CoreTime>,
    /// The one, and the other clients.
    callers: Vec<(Shard<Sim, Caller>, PeerId)>,
}

impl<S: Store> World<S> {
    fn new(gateway: Gateway<S>) -> Self {
        let (fabric, time) = (Fabric::new(5, ONE_WAY), Arc::new(CoreTime::default()));
        let admit = || Box::new(|_| true) as Box<_>;
        let config = Config {
            meter: Some(Arc::clone(&time) as Arc<dyn Meter>),
            grant: SLOTS as u32,
            grant_first: SLOTS as u32,
            receives: 512,
            inbound: 512,
            peers: 32,
            ..Config::small()
        };
        let app = Priced { gateway, time: Arc::clone(&time), price: 0, first: None, slices: 0 };
        let mut server = Shard::new(fabric.end("server", LIMITS), app, config, admit()).unwrap();
        let port = server.listen(&Port(0)).unwrap();
        let sizes = Config { calls_max: 16, slots: [64, 8, 4], receives: 64, ..Config::small() };
        let mut world = Self { fabric, server, time, callers: Vec::new() };
        for _ in 0..=CLIENTS {
            let end = world.fabric.end("client", LIMITS);
            let mut caller = Shard::new(end, Caller::default(), sizes.clone(), admit()).unwrap();
            let peer = caller.connect(&port).unwrap();
            world.callers.push((caller, peer));
            world.run_for(100_000);
        }
        world
    }

    fn send(&mut self, caller: usize, token: u64, octets: &[u8]) {
        let (now, (shard, peer)) = (self.time.at(), &mut self.callers[caller]);
        shard.with_app_at(now, |_, cx| {
            let mut message = cx.message(octets.len()).unwrap();
            message.append(octets).unwrap();
            let (token, timeout) = (Token(token), PATIENCE);
            let (item, result, reply_max) = (None, None, 12_000);
            cx.call(*peer, CallRequest { message, item, reply_max, result, timeout, token });
        });
    }

    fn take(&mut self, caller: usize) -> Option<(Token, Vec<u8>)> {
        let now = self.time.at();
        self.callers[caller].0.with_app_at(now, |app, _| app.0.pop_front())
    }

    fn step(&mut self) {
        let mut worked = self.server.pass(self.time.at());
        for (caller, _) in &mut self.callers {
            worked |= caller.pass(self.time.at());
        }
        match self.fabric.next_due() {
            Some(due) if !worked => {
                self.time.spend(due.0.saturating_sub(self.time.at().0).clamp(1, 20_000));
            }
            _ => self.time.spend(PASS),
        }
    }

    fn run_for(&mut self, time: u64) {
        let until = self.time.at().0 + time;
        while self.time.at().0 < until {
            self.step();
        }
    }

    /// A compound of the one, and its reply.
    fn exchange(&mut self, requests: &[Request<'_>]) -> Reply4 {
        self.send(0, 0, &encode(v3::user(), 2, requests));
        loop {
            if let Some((_, reply)) = self.take(0) {
                return Reply4(reply[stag_protocol::rpc::ReplyHeader::LEN..].to_vec());
            }
            self.step();
        }
    }
}

/// The session of the one, and what its operations are about.
struct Attack {
    session: SessionId,
    sequences: [u32; SLOTS],
    root: Vec<u8>,
    file: Vec<u8>,
    open: Stateid,
    lock: Stateid,
    /// Another file.
    other: Vec<u8>,
    other_open: Stateid,
}

fn sequence(session: SessionId, slot: usize, sequence: u32) -> Request<'static> {
    let (slot, highest_slot) = (slot as u32, SLOTS as u32 - 1);
    Request::Sequence(SequenceArgs { session, sequence, slot, highest_slot, cache_this: false })
}

fn handle(octets: &[u8]) -> Request<'_> {
    Request::PutFh(Text(octets))
}

impl Attack {
    fn new<S: Store>(world: &mut World<S>, export: &[u8]) -> Self {
        let client = ClientOwner { verifier: [1; 8], owner: Text(b"the one") };
        let protection = StateProtection::None;
        let args = ExchangeIdArgs { client, flags: 0, protection, implementation: None };
        let known = world.exchange(&[Request::ExchangeId(args)]);
        let Answer::ExchangeId(Ok(known)) = known.last() else { panic!("{known:?}") };
        let args = session_args(known.client_id, known.sequence);
        let made = world.exchange(&[Request::CreateSession(args)]);
        let Answer::CreateSession(Ok(made)) = made.last() else { panic!("{made:?}") };
        let mut this = Self {
            session: made.session,
            sequences: [0; SLOTS],
            root: Vec::new(),
            file: Vec::new(),
            open: Stateid::ANONYMOUS,
            lock: Stateid::ANONYMOUS,
            other: Vec::new(),
            other_open: Stateid::ANONYMOUS,
        };
        assert_eq!(this.run(world, vec![Request::ReclaimComplete(false)]).status(), Status4::Ok);
        let walk = vec![Request::PutRootFh(()), Request::Lookup(Text(export)), Request::GetFh(())];
        let root = this.run(world, walk);
        let Answer::GetFh(Ok(found)) = root.last() else { panic!("{root:?}") };
        this.root = found.0.to_vec();
        let root = this.root.clone();
        for name in [&b"f"[..], b"other"] {
            let open = Request::Open(open_args(name, share::BOTH, true));
            let opened = this.run(world, vec![handle(&root), open, Request::GetFh(())]);
            let answers = opened.answers();
            let [.., Answer::Open(Ok(open)), Answer::GetFh(Ok(found))] = &answers[..] else {
                panic!("{opened:?}")
            };
            // Whatever its sequence is when it is used.
            let open = Stateid { seqid: 0, ..open.stateid };
            let found = found.0.to_vec();
            let write = write_args(open, 0, &[7; 2_000]);
            let written = this.run(world, vec![handle(&found), write]);
            assert_eq!(written.status(), Status4::Ok);
            match name {
                b"f" => (this.open, this.file) = (open, found),
                _ => (this.other_open, this.other) = (open, found),
            }
        }
        let (open, file) = (this.open, this.file.clone());
        let owner = StateOwner { client_id: 0, owner: Text(b"one") };
        let new = NewLockOwner { open_seqid: 0, open, lock_seqid: 0, owner };
        let locker = Locker::New(new);
        let (kind, reclaim, offset, length) = (LockType::Write, false, 0, 10);
        let lock = Request::Lock(Lock4Args { kind, reclaim, offset, length, locker });
        let locked = this.run(world, vec![handle(&file), lock]);
        let Answer::Lock(Ok(lock)) = locked.last() else { panic!("{locked:?}") };
        this.lock = Stateid { seqid: 0, ..lock };
        this
    }

    /// A compound after a SEQUENCE of the first slot.
    fn run<S: Store>(&mut self, world: &mut World<S>, requests: Vec<Request<'_>>) -> Reply4 {
        self.sequences[0] += 1;
        let first = sequence(self.session, 0, self.sequences[0]);
        world.exchange(&[vec![first], requests].concat())
    }

    /// The next compound in a slot: as many repetitions of `unit` as there is room.
    fn compound(&mut self, slot: usize, unit: &[Request<'_>]) -> Vec<u8> {
        self.sequences[slot] += 1;
        let file = self.file.clone();
        let mut all = vec![sequence(self.session, slot, self.sequences[slot]), handle(&file)];
        let times = OPERATIONS / unit.len().max(1);
        all.extend(unit.iter().cycle().take(unit.len() * times).cloned());
        encode(v3::user(), 2, &all)
    }
}

/// The stateid of the operation before.
const CURRENT: Stateid = Stateid::CURRENT;

/// The operations of version 4 that one compound repeats, each where it can be.
fn units(of: &Attack) -> Vec<(&'static str, Vec<Request<'_>>)> {
    let (open, root, name) = (of.open, handle(&of.root), Text(b"f" as &[u8]));
    let owner = StateOwner { client_id: 0, owner: Text(b"two") };
    let range = FileRange { stateid: open, offset: 0, length: 1_000 };
    let locker = Locker::Known(KnownLockOwner { stateid: of.lock, seqid: 0 });
    let (kind, reclaim) = (LockType::Write, false);
    let lock = Lock4Args { kind, reclaim, offset: 0, length: 10, locker };
    let list = ReadDir4Args {
        cookie: 0,
        verifier: [0; 8],
        dir_count: 700,
        max_count: 700,
        attributes: Bitmap::of([1, 20]),
    };
    let directory = Create4Args {
        kind: CreateKind::Directory,
        name: Text(b"made"),
        attributes: RawAttributes::default(),
    };
    let opens = Request::Open(open_args(b"f", share::BOTH, false));
    let both = |first, second| vec![root.clone(), first, root.clone(), second];
    let names = |old, new| Request::Rename(Rename4Args { old: Text(old), new: Text(new) });
    let set = SetAttr4Args { stateid: open, attributes: RawAttributes::default() };
    let less = OpenDowngrade4Args { open: CURRENT, seqid: 0, share_access: 3, share_deny: 0 };
    let seek = SeekArgs { stateid: open, offset: 0, what: FileContent::Data };
    let copy = Copy4Args {
        source: of.other_open,
        target: open,
        source_offset: 0,
        target_offset: 4_096,
        count: 1_000,
        consecutive: true,
        synchronous: true,
        servers: Array::of(&[]),
    };
    let advise = IoAdviseArgs { stateid: open, offset: 0, count: 9, hints: Bitmap::EMPTY };
    let look = Request::GetAttr(Bitmap::of([1, 3, 4, 20, 33, 35, 36, 53]));
    let unlock = LockU4Args { kind, seqid: 0, stateid: CURRENT, offset: 0, length: 10 };
    vec![
        ("SEQUENCE", vec![]),
        ("ACCESS", vec![Request::Access(Access4Args { rights: 0x3f })]),
        ("GETATTR", vec![look]),
        ("GETFH", vec![Request::GetFh(())]),
        ("PUTFH", vec![root.clone()]),
        ("PUTROOTFH", vec![Request::PutRootFh(())]),
        ("SAVEFH, RESTOREFH", vec![Request::SaveFh(()), Request::RestoreFh(())]),
        ("LOOKUP", vec![root.clone(), Request::Lookup(name)]),
        ("OPEN", vec![root.clone(), opens.clone()]),
        ("OPEN, OPEN_DOWNGRADE", vec![root.clone(), opens, Request::OpenDowngrade(less)]),
        ("READ", vec![Request::Read(Read4Args { stateid: open, offset: 0, count: 64 })]),
        ("WRITE", vec![write_args(open, 0, &[1; 64])]),
        ("COMMIT", vec![Request::Commit(Commit4Args { offset: 0, count: 0 })]),
        ("READDIR", vec![root.clone(), Request::ReadDir(list)]),
        ("CREATE, REMOVE", both(Request::Create(directory), Request::Remove(Text(b"made")))),
        (
            "LINK, REMOVE",
            vec![
                handle(&of.file),
                Request::SaveFh(()),
                root.clone(),
                Request::Link(Text(b"linked")),
                Request::Remove(Text(b"linked")),
            ],
        ),
        (
            "RENAME",
            vec![
                root.clone(),
                Request::SaveFh(()),
                names(b"other", b"renamed"),
                names(b"renamed", b"other"),
            ],
        ),
        ("SETATTR", vec![Request::SetAttr(set)]),
        ("SECINFO", vec![root.clone(), Request::SecInfo(name)]),
        ("LOCK, LOCKU", vec![Request::Lock(lock), Request::LockU(unlock)]),
        ("LOCKT", vec![Request::LockT(LockT4Args { kind, offset: 100, length: 10, owner })]),
        ("SEEK", vec![Request::Seek(seek)]),
        ("ALLOCATE", vec![Request::Allocate(range)]),
        ("DEALLOCATE", vec![Request::Deallocate(range)]),
        (
            "COPY",
            vec![handle(&of.other), Request::SaveFh(()), handle(&of.file), Request::Copy(copy)],
        ),
        ("IO_ADVISE", vec![Request::IoAdvise(advise)]),
        ("LISTXATTRS", vec![Request::ListXattrs(ListXattrsArgs { cookie: 0, max_count: 256 })]),
    ]
}

/// Calls of version 3.
fn calls(of: &Attack) -> Vec<(&'static str, Call3<'static>)> {
    let [root, file] = [&of.root, &of.file].map(|octets| FileHandle::new(octets).unwrap());
    let listing = ReadDirPlusArgs {
        dir: root,
        cookie: 0,
        verifier: Default::default(),
        dir_count: 1_000,
        max_count: 1_000,
    };
    vec![
        ("GETATTR of 3", Call3::GetAttr(GetAttrArgs { object: file })),
        ("LOOKUP of 3", Call3::Lookup(LookupArgs { what: place(root, b"f") })),
        ("ACCESS of 3", Call3::Access(AccessArgs { object: file, access: Access(0x3f) })),
        ("READ of 3", Call3::Read(ReadArgs { file, offset: 0, count: 64 })),
        ("READDIRPLUS of 3", Call3::ReadDirPlus(listing)),
        ("FSSTAT of 3", Call3::FsStat(SystemArgs { object: root })),
        ("COMMIT of 3", Call3::Commit(CommitArgs { file, offset: 0, count: 0 })),
    ]
}

/// Makes the next call in a slot.
type Make<'a> = &'a mut dyn FnMut(&mut Attack, usize) -> Vec<u8>;

/// Has the clients call all the time, and the one by `make`: replies to the clients, and to it.
fn measure<S: Store>(
    world: &mut World<S>,
    attack: &mut Attack,
    mut make: Option<Make<'_>>,
) -> (u64, u64) {
    let root = FileHandle::new(&attack.root).unwrap();
    let (look, _) = v3::encode(&Call3::GetAttr(GetAttrArgs { object: root }));
    for client in 1..=CLIENTS {
        (0..DEPTH).for_each(|_| world.send(client, 0, &look));
    }
    if let Some(make) = &mut make {
        for slot in 0..SLOTS {
            let octets = make(attack, slot);
            world.send(0, slot as u64, &octets);
        }
    }
    let (begun, mut replies, mut of_it) = (world.time.at().0, 0, 0);
    let mut are_due = true;
    while are_due || world.callers.iter().any(|(caller, _)| caller.calls_in_progress().1 > 0) {
        let spent = world.time.at().0 - begun;
        are_due = spent < BEFORE + MEASURED;
        let counts = u64::from((BEFORE..BEFORE + MEASURED).contains(&spent));
        world.step();
        for client in 1..=CLIENTS {
            while world.take(client).is_some() {
                replies += counts;
                if are_due {
                    world.send(client, 0, &look);
                }
            }
        }
        while let Some((Token(slot), _)) = world.take(0) {
            of_it += counts;
            if let Some(make) = make.as_mut().filter(|_| are_due) {
                let octets = make(attack, slot as usize);
                world.send(0, slot, &octets);
            }
        }
    }
    (replies, of_it)
}

/// The lowest ratio of each operation, of what the clients keep to their share.
fn table<S: Store>(gateway: Gateway<S>, export: &[u8]) -> Vec<(String, f64)> {
    let mut world = World::new(gateway.with_nfs4(CONFIG));
    let mut attack = Attack::new(&mut world, export);
    let (alone, _) = measure(&mut world, &mut attack, None);
    assert!(alone > MEASURED / PRICE / 2, "the core is busy: {alone}");
    let share = alone as f64 * CLIENTS as f64 / (CLIENTS + 1) as f64;
    let mut rows = Vec::new();
    let names: Vec<_> = units(&attack).iter().map(|(name, _)| *name).collect();
    for (place, name) in names.iter().enumerate() {
        let mut make = |attack: &mut Attack, slot: usize| {
            let (root, file) = (attack.root.clone(), attack.file.clone());
            let of = Attack { root, file, other: attack.other.clone(), ..*attack };
            attack.compound(slot, &units(&of)[place].1)
        };
        let first = make(&mut attack, 0);
        world.send(0, 0, &first);
        let reply = loop {
            match world.take(0) {
                Some((_, reply)) => break Reply4(reply[24..].to_vec()),
                None => world.step(),
            }
        };
        let is_served = reply.status() == Status4::Ok
            || *name == "LISTXATTRS" && reply.status() == Status4::NotSupp;
        assert!(is_served, "{name}: {:?}", reply.answers());
        rows.push((*name, lowest(&mut world, &mut attack, &mut make, share)));
    }
    for (name, call) in calls(&attack) {
        let (octets, _) = v3::encode(&call);
        let mut make = |_: &mut Attack, _: usize| octets.clone();
        rows.push((name, lowest(&mut world, &mut attack, &mut make, share)));
    }
    rows.into_iter().map(|(name, ratio)| (name.to_owned(), ratio)).collect()
}

fn lowest<S: Store>(world: &mut World<S>, attack: &mut Attack, make: Make<'_>, share: f64) -> f64 {
    let ratios = PRICES.map(|price| {
        world.server.with_app(|app, _| app.price = price);
        let (replies, of_it) = measure(world, attack, Some(&mut *make));
        world.server.with_app(|app, _| app.price = 0);
        // A compound takes its time; what is served of it shows in the ratio.
        assert!(of_it > 0 || price > PRICES[0], "it is served, too");
        replies as f64 / share
    });
    ratios.into_iter().fold(f64::INFINITY, f64::min)
}

fn assert_fair(store: &str, rows: &[(String, f64)]) {
    for (operation, ratio) in rows {
        println!("| {operation} | {store} | {ratio:.2} |");
    }
    let unfair: Vec<_> = rows.iter().filter(|(_, ratio)| *ratio < 0.9).collect();
    assert!(unfair.is_empty(), "{store}: {unfair:?}");
}

#[test]
fn fifteen_clients_keep_nine_tenths_of_their_share_next_to_any_operation_on_memory() {
    assert_fair("memory", &table(Gateway::new(memory()), b"memory"));
}

#[test]
fn fifteen_clients_keep_nine_tenths_of_their_share_next_to_any_operation_on_a_directory() {
    let home = Home::new();
    assert_fair("directory", &table(home.gateway(), b"data"));
}

/// A compound whose every operation is a slice of its own, next to a client that keeps the core
/// measured: its replies.
fn in_slices<S: Store>(gateway: Gateway<S>, export: &[u8], price: u64) -> Vec<String> {
    let mut world = World::new(gateway.with_nfs4(CONFIG));
    let mut attack = Attack::new(&mut world, export);
    let root = FileHandle::new(&attack.root).unwrap();
    let (look, _) = v3::encode(&Call3::GetAttr(GetAttrArgs { object: root }));
    let ask = |world: &mut World<S>, octets: &[u8]| {
        world.send(1, 0, &look);
        world.send(0, 0, octets);
        let mut passes = 0;
        loop {
            passes += 1;
            assert!(passes < 1_000_000, "a compound that was put aside goes on");
            if world.take(1).is_some() {
                world.send(1, 0, &look);
            }
            if let Some((_, reply)) = world.take(0) {
                return reply;
            }
            world.step();
        }
    };
    world.server.with_app(|app, _| app.price = price);
    let (file, own) = (attack.file.clone(), attack.root.clone());
    let (open, size) = (attack.open, Request::GetAttr(Bitmap::of([4])));
    let mut replies = Vec::new();
    for round in 0..4_u8 {
        attack.sequences[0] += 1;
        let first = SequenceArgs {
            session: attack.session,
            sequence: attack.sequences[0],
            slot: 0,
            highest_slot: 7,
            cache_this: true,
        };
        let part = [round; 100];
        let compound = encode(
            v3::user(),
            2,
            &[
                Request::Sequence(first),
                handle(&file),
                write_args(open, 0, &part),
                size.clone(),
                write_args(open, 50, &part[..60]),
                Request::Read(Read4Args { stateid: open, offset: 0, count: 120 }),
                handle(&own),
                Request::Lookup(Text(b"f")),
                size.clone(),
                Request::Lookup(Text(b"nothing")),
                size.clone(),
            ],
        );
        let reply = ask(&mut world, &compound);
        // Sent again, it gets the reply that it got.
        assert_eq!(ask(&mut world, &compound)[4..], reply[4..]);
        replies.extend(Reply4(reply[24..].to_vec()).answers().iter().skip(1).map(told));
    }
    let suspended = world.server.app().gateway.report().nfs4.suspensions;
    assert_eq!(suspended, 0, "nothing waits but for its turn");
    let slices = world.server.app().slices;
    assert_eq!(slices >= 4 * 4, price > 0, "{slices} slices");
    replies
}

/// An answer without what differs from server to server.
fn told(answer: &Answer<'_>) -> String {
    match answer {
        Answer::Write(Ok(done)) => format!("{} octets are written", done.count),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_compound_that_goes_on_in_slices_gets_the_reply_of_one_that_goes_on_at_once() {
    let at_once = in_slices(Gateway::new(memory()), b"memory", 0);
    assert_eq!(in_slices(Gateway::new(memory()), b"memory", 300_000), at_once);
    let (home, other) = (Home::new(), Home::new());
    let at_once = in_slices(home.gateway(), b"data", 0);
    assert_eq!(in_slices(other.gateway(), b"data", 300_000), at_once);
}
