//! The short path compared with the long one, against the gateway: the same octets of a call and of
//! its reply, by a short call and by one in a buffer, over shared memory and over TCP, where a
//! reply is a message of its own.

use stag_engine::{
    App, Call, CallFault, Cause, Config, Cx, Outcome, PeerId, Shard, Token, clock::Clock,
};
use stag_nfs::{Gateway, GatewayReport};
use stag_nfs_store::{
    Procedures as _,
    memory::{Memory, MemoryConfig, MemoryExport},
};
use stag_pools::Buf;
use stag_protocol::{
    nfs::v3::{
        self, Access, AccessArgs, CommitArgs, CreateHow, DirOpArgs, FileHandle, GetAttrArgs,
        LookupArgs, Name, SetAttributes, SystemArgs,
    },
    rpc::{AuthSys, Credential, Gids, ReplyHeader},
    rpcrdma::Xid,
};
use stag_rpc::RawCall;
use stag_shm::{Shm, ShmAddress, ShmConfig};
use stag_verbs::Limits;
use std::time::Duration;
use tempfile::TempDir;

const LIMITS: Limits = Limits { send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };
const TIMEOUT: Duration = Duration::from_secs(20);

/// The gateway, and the latest call as it was given to it.
struct Recorder {
    gateway: Gateway<Memory>,
    latest: Option<(String, Vec<u8>)>,
}

impl App for Recorder {
    type Report = GatewayReport;

    fn report(&self) -> GatewayReport {
        self.gateway.report()
    }

    fn wants_idle_passes(&self) -> bool {
        self.gateway.wants_idle_passes()
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, call: Call<'_>) {
        let mut header = call.header;
        header.xid = Xid(0);
        let mut arguments = call.arguments.clone();
        let octets = arguments.fixed(arguments.remaining()).unwrap().to_vec();
        self.latest = Some((format!("{header:?}"), octets));
        self.gateway.on_call(cx, call);
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        self.gateway.on_pass_end(cx);
    }
}

/// Keeps how calls ended.
#[derive(Default)]
struct Keeper {
    up: usize,
    ended: Option<Result<Vec<u8>, CallFault>>,
}

impl App for Keeper {
    type Report = ();

    fn report(&self) {}

    fn on_reply(&mut self, _: &mut Cx<'_>, outcome: Outcome<'_>) {
        self.ended = Some(outcome.reply.map(<[u8]>::to_vec));
    }

    fn on_peer_up(&mut self, _: &mut Cx<'_>, _: PeerId) {
        self.up += 1;
    }

    fn on_peer_down(&mut self, _: &mut Cx<'_>, _: PeerId, _: Cause) {}
}

struct World {
    server: Shard<Shm, Recorder>,
    client: Shard<Shm, Keeper>,
    /// Over shared memory, and over TCP.
    peers: [PeerId; 2],
    clock: Clock,
    root: FileHandle,
    file: FileHandle,
    _home: TempDir,
}

impl World {
    fn new() -> Self {
        let (clock, home) = (Clock::start(), tempfile::tempdir().unwrap());
        let exports =
            vec![MemoryExport { name: "data".to_owned(), copy_of: None, read_only: false }];
        let mut store = Memory::new(&MemoryConfig::new(exports, 16 << 20), &mut |_| ()).unwrap();
        let root = store.mount(b"/data").unwrap();
        let how = CreateHow::Guarded(SetAttributes::default());
        let Ok(made) = store.create(&root, b"file", &(&how).into()) else {
            panic!("the store makes a file")
        };
        let end = || Shm::new(ShmConfig::new(LIMITS, [7; 32], clock.now())).unwrap();
        let config = || Config { grant: 32, calls_max: 32, ..Config::small() };
        let recorder = Recorder { gateway: Gateway::new(store), latest: None };
        let mut server = Shard::new(end(), recorder, config(), Box::new(|_| true)).unwrap();
        let mut client =
            Shard::new(end(), Keeper::default(), config(), Box::new(|_| true)).unwrap();
        let at = server.listen(&ShmAddress::new(home.path().join("socket")).unwrap()).unwrap();
        let tcp = server.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let peers = [client.connect(&at).unwrap(), client.connect_tcp(tcp).unwrap()];
        let file = made.handle;
        let mut world = Self { server, client, peers, clock, root, file, _home: home };
        world.turn_until(|client| (client.up == 2).then_some(()));
        world
    }

    fn turn_until<T>(&mut self, mut look: impl FnMut(&mut Keeper) -> Option<T>) -> T {
        let began = self.clock.now();
        loop {
            let now = self.clock.now();
            if !(self.client.pass(now) | self.server.pass(now)) {
                std::thread::yield_now();
            }
            if let Some(found) = self.client.with_app(|app, _| look(app)) {
                return found;
            }
            assert!(now.since(began) < TIMEOUT, "nothing comes");
        }
    }

    /// The call as the gateway saw it, and its reply without the XID.
    fn call(&mut self, peer: PeerId, call: &v3::Call<'_>, short: bool) -> Seen {
        let gids = Gids::new(&[3, 4, 5]).unwrap();
        let sys = AuthSys { stamp: 9, machine_name: b"a-host", uid: 1, gid: 2, gids };
        let raw = RawCall {
            credential: Credential::Sys(sys),
            arguments_max: 200,
            results_max: 300,
            ..RawCall::new(v3::PROGRAM, v3::VERSION, call.procedure().number())
        };
        assert!(raw.is_short());
        self.client.with_app(|_, cx| {
            if short {
                raw.send_short(cx, peer, TIMEOUT, Token(1), |to| call.emit(to)).unwrap();
            } else {
                let request = raw.write(cx, TIMEOUT, Token(1), |to| call.emit(to)).unwrap();
                cx.call(peer, request);
            }
        });
        let held = self.client.buffers_in_use();
        let reply = self.turn_until(|client| client.ended.take());
        let seen = self.server.with_app(|app, _| app.latest.take());
        Seen { call: seen, reply: reply.map(|octets| octets[4..].to_vec()), held }
    }

    /// All memory of the server that an app can take.
    fn starve(&mut self) -> Vec<Buf> {
        self.server.with_app(|_, cx| std::iter::from_fn(|| cx.message(0)).collect())
    }
}

struct Seen {
    call: Option<(String, Vec<u8>)>,
    reply: Result<Vec<u8>, CallFault>,
    /// Buffers of the client while the call was outstanding.
    held: usize,
}

/// Calls that the gateway answers by few results, some of them by a failure.
fn calls(world: &World) -> [v3::Call<'static>; 9] {
    let (dir, object) = (world.root, world.file);
    let missing = FileHandle::new(&[7; 30]).unwrap();
    let lookup = |name| v3::Call::Lookup(LookupArgs { what: DirOpArgs { dir, name: Name(name) } });
    [
        v3::Call::Null,
        v3::Call::GetAttr(GetAttrArgs { object }),
        v3::Call::GetAttr(GetAttrArgs { object: missing }),
        lookup(b"file"),
        lookup(b"nothing"),
        v3::Call::Access(AccessArgs { object, access: Access::ALL }),
        v3::Call::FsInfo(SystemArgs { object }),
        v3::Call::PathConf(SystemArgs { object }),
        v3::Call::Commit(CommitArgs { file: object, offset: 0, count: 0 }),
    ]
}

#[test]
fn a_call_and_its_reply_are_the_same_octets_by_the_short_way_and_by_the_long_one() {
    let mut world = World::new();
    let [fabric, tcp] = world.peers;
    // The first reply gives more than one credit.
    world.call(fabric, &v3::Call::Null, true);
    for call in calls(&world) {
        let short = world.call(fabric, &call, true);
        assert_eq!(short.held, 0, "{call:?} has no buffer");
        let reply = short.reply.unwrap();
        assert!(reply.len() >= ReplyHeader::LEN - 4);
        for (peer, is_short) in [(fabric, false), (tcp, true), (tcp, false)] {
            let other = world.call(peer, &call, is_short);
            assert_eq!(other.call, short.call, "{call:?}");
            assert_eq!(other.reply.as_ref(), Ok(&reply), "{call:?}");
        }
    }
    assert_eq!((world.server.buffers_in_use(), world.client.buffers_in_use()), (0, 0));
}

#[test]
fn a_small_reply_needs_no_memory_where_it_can_leave_at_once_and_ends_the_connection_elsewhere() {
    let mut world = World::new();
    let [fabric, tcp] = world.peers;
    for peer in [fabric, tcp] {
        world.call(peer, &v3::Call::Null, true).reply.unwrap();
    }
    let held = world.starve();
    assert!(!held.is_empty());
    // Few, because the reply that uses a grant up goes the way of all others.
    for call in calls(&world).iter().take(4) {
        assert!(world.call(fabric, call, true).reply.is_ok(), "{call:?}");
    }
    assert_eq!(world.server.snapshot().app.unanswered, 0);
    // Over TCP a reply is a message.
    assert!(world.call(tcp, &v3::Call::Null, true).reply.is_err());
    assert_eq!(world.server.snapshot().app.unanswered, 1);
    drop(held);
    assert!(world.call(fabric, &v3::Call::Null, true).reply.is_ok());
}
