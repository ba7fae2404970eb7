//! A shard that serves a directory of this host, `/data`, and one of a FUSE file system, `/slow`,
//! to callers over TCP.

use super::*;

pub const LIMITS: Limits =
    Limits { send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };

/// Properties of version 4 in the tests.
pub const NFS4: Nfs4Config = Nfs4Config {
    lease: Duration::from_secs(90),
    epoch: 7,
    identity: [5; 16],
    delegations: DelegationPolicy::Never,
    started: 1_000,
    key: [3; 16],
    cluster: None,
};

pub struct World {
    pub shard: Shard<Sim, Gateway>,
    pub port: SocketAddr,
    pub data: FileHandle,
    pub slow: FileHandle,
    _home: TempDir,
    began: Instant,
    _fabric: Fabric,
    pub fuse: Fuse,
}

/// Writes into a directory of this host and into one of a FUSE file system.
pub fn homes(files: &[(&str, &[u8])]) -> Option<(TempDir, Fuse)> {
    let home = tempfile::tempdir().unwrap();
    for name in ["data", "slow", "state"] {
        std::fs::create_dir(home.path().join(name)).unwrap();
    }
    std::fs::write(home.path().join("data/file"), b"of this host").unwrap();
    let fuse = Fuse::mount(&home.path().join("slow"), files)?;
    Some((home, fuse))
}

pub fn config(home: &Path, callers: Callers) -> FilesConfig {
    let export = |name: &str| ExportConfig {
        name: name.to_owned(),
        path: home.join(name),
        read_only: false,
        is_mountpoint: false,
    };
    FilesConfig {
        state_dir: home.join("state"),
        exports: vec![export("data"), export("slow")],
        callers,
        shards: 1,
        sync_directories: true,
        open_files: Some(512),
        cluster: None,
    }
}

impl World {
    pub fn new(files: &[(&str, &[u8])], callers: Callers) -> Option<Self> {
        Self::waiting(files, callers, SlowExports::ByFileSystem)
    }

    /// As [`new`](Self::new), with other exports taken for slow.
    pub fn waiting(files: &[(&str, &[u8])], callers: Callers, slow: SlowExports) -> Option<Self> {
        let (home, fuse) = homes(files)?;
        let config = config(home.path(), callers);
        let waiting = WaitingConfig { slow, ..WaitingConfig::USUAL };
        let shared = SharedFiles::open_waiting(&config, &waiting).unwrap();
        let backend = FilesBackend::of(&shared);
        assert_eq!(backend.is_some(), waiting.slow != SlowExports::None, "FUSE may wait");
        let backend = backend.map(|files| Arc::new(files) as Arc<dyn Backend>);
        let mut ways =
            Helpers::start_for(HelperConfig { backend, ..HelperConfig::new(1) }).unwrap();
        let store = Files::open(&shared, 0).unwrap().with_helpers(ways.remove(0));
        let fabric = Fabric::new(1, Faults::DELAYS);
        let config = Config { slots: [1024, 256, 192], streams: 128, ..Config::small() };
        let gateway = Gateway::new(store).with_nfs4(NFS4).with_slots(config.slots);
        let end = fabric.end("server", LIMITS);
        let mut shard = Shard::new(end, gateway, config, Box::new(|_| true)).unwrap();
        let port = shard.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let none = FileHandle::new(&[]).unwrap();
        let began = Instant::now();
        let mut world =
            Self { shard, port, data: none, slow: none, _home: home, began, _fabric: fabric, fuse };
        let mut caller = world.connect();
        world.data = world.mount(&mut caller, b"/data");
        world.slow = world.mount(&mut caller, b"/slow");
        Some(world)
    }

    fn mount(&mut self, caller: &mut Caller, path: &[u8]) -> FileHandle {
        let header = call_header(caller.next_xid(), 100_005, 1, user());
        caller.send(&header, |writer| mount::Call::Mnt(mount::Path(path)).emit(writer));
        let reply = self.await_reply(caller);
        let results = Reader::new(&reply[ReplyHeader::LEN..]);
        match mount::Reply::parse(mount::Procedure::Mnt, results).unwrap() {
            mount::Reply::Mnt(Ok(mounted)) => mounted.handle,
            other => panic!("{other:?}"),
        }
    }

    pub fn pass(&mut self) {
        self.shard.pass(Time(self.began.elapsed().as_nanos() as u64));
    }

    pub fn connect(&self) -> Caller {
        let socket = TcpStream::connect(self.port).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.set_nodelay(true).unwrap();
        // Each begins elsewhere: a call with the same XID from the same host is the same call.
        let xid = u32::from(socket.local_addr().unwrap().port()) << 16;
        Caller { socket, input: vec![], xid }
    }

    /// Makes passes until something is true.
    pub fn pass_until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let began = Instant::now();
        loop {
            self.pass();
            if is_so(self) {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "{what}");
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    pub fn await_reply(&mut self, caller: &mut Caller) -> Vec<u8> {
        let mut reply = None;
        self.pass_until("a reply", |_| {
            reply = caller.reply();
            reply.is_some()
        });
        reply.unwrap()
    }

    /// Calls a procedure and waits for its results.
    pub fn call(&mut self, caller: &mut Caller, call: &Call<'_>) -> Vec<u8> {
        caller.call(call);
        self.await_reply(caller)
    }

    pub fn lookup(&mut self, caller: &mut Caller, dir: FileHandle, name: &[u8]) -> FileHandle {
        let what = DirOpArgs { dir, name: Name(name) };
        let reply = self.call(caller, &Call::Lookup(LookupArgs { what }));
        match parsed(Procedure::Lookup, &reply) {
            Reply::Lookup(Ok(found)) => found.object,
            other => panic!("{other:?}"),
        }
    }

    pub fn report(&self) -> GatewayReport {
        self.shard.snapshot().app
    }

    pub fn assert_empty(&mut self) {
        self.pass_until("everything comes back", |world| {
            (world.shard.buffers_in_use(), world.shard.calls_in_progress().0) == (0, 0)
        });
    }
}

pub fn user() -> Credential<'static> {
    let gids = Gids::new(&[1000]).unwrap();
    Credential::Sys(AuthSys { stamp: 1, machine_name: b"client", uid: 1000, gid: 1000, gids })
}

fn call_header(
    xid: u32,
    program: u32,
    procedure: u32,
    credential: Credential<'_>,
) -> CallHeader<'_> {
    CallHeader { xid: Xid(xid), program, version: 3, procedure, credential, verifier: Auth::NONE }
}

pub fn parsed(procedure: Procedure, reply: &[u8]) -> Reply<'_> {
    Reply::parse(procedure, Reader::new(&reply[ReplyHeader::LEN..])).unwrap()
}

pub struct Caller {
    pub socket: TcpStream,
    input: Vec<u8>,
    xid: u32,
}

impl Caller {
    fn next_xid(&mut self) -> u32 {
        self.xid += 1;
        self.xid
    }

    pub fn call(&mut self, call: &Call<'_>) {
        let xid = self.next_xid();
        self.call_as(xid, call);
    }

    /// Calls under an XID of the caller's choice: the same one is the same call.
    pub fn call_as(&mut self, xid: u32, call: &Call<'_>) {
        let header = call_header(xid, 100_003, call.procedure().number(), user());
        self.send(&header, |writer| call.emit(writer));
    }

    /// Sends a compound of version 4.
    pub fn compound(&mut self, requests: &[v4::Request<'_>]) {
        let header = call_header(self.next_xid(), 100_003, v4::COMPOUND, user());
        let header = CallHeader { version: 4, ..header };
        self.send(&header, |writer| {
            writer.opaque(b"")?;
            writer.words([1, requests.len() as u32])?;
            requests.iter().try_for_each(|request| request.emit(writer))
        });
    }

    fn send(
        &mut self,
        header: &CallHeader<'_>,
        arguments: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
    ) {
        let mut octets = vec![0; 300_000];
        let mut writer = Writer::new(&mut octets);
        header.emit(&mut writer).unwrap();
        arguments(&mut writer).unwrap();
        let len = writer.len();
        let mut record = Fragment::new(len as u32, true).unwrap().emit().to_vec();
        record.extend_from_slice(&octets[..len]);
        self.socket.set_nonblocking(false).unwrap();
        self.socket.write_all(&record).unwrap();
        self.socket.set_nonblocking(true).unwrap();
    }

    /// Takes a reply, once all of it is here.
    pub fn reply(&mut self) -> Option<Vec<u8>> {
        let mut staging = [0; 65_536];
        match self.socket.read(&mut staging) {
            Ok(0) => panic!("the connection is closed"),
            Ok(len) => self.input.extend_from_slice(&staging[..len]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        let len = 4 + Fragment::parse(*self.input.first_chunk()?).octets() as usize;
        (self.input.len() >= len).then(|| self.input.drain(..len).skip(4).collect())
    }
}
