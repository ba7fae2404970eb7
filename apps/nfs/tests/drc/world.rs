//! Shards that serve one directory, and a client whose messages are made by hand, so that it can
//! retransmit and reconnect at will.

use stag_engine::{App, Call as Inbound, Cause, Config, Cx, PeerAddress, PeerId, Shard};
use stag_nfs::{Gateway, GatewayReport, reply_cache::CacheHandle};
use stag_nfs_store::{
    exports::config::ExportConfig,
    files::{self, Files, SharedFiles},
};
use stag_pools::{Access, Buf, Class, Pool, RemoteKey};
use stag_protocol::{
    nfs::v3::{Call, FileHandle, Status},
    rpc::{Auth, AuthSys, CallHeader, Credential, Gids, ReplyHeader, record::Fragment},
    rpcrdma::{
        Body, ChunkLists, Credits, Header, Position, Segment, Xid, responder::ReplyPolicy, v1,
    },
    xdr::{Codec, Reader, Writer},
};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Event, Limits, Memory, Provider, Qp, Tag, Time};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
};
use tempfile::TempDir;

const LIMITS: Limits = Limits { send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };
const NFS: u32 = 100_003;

/// A gateway that takes a caller's address from its credential, where it follows the name of its
/// machine: `NAME@ADDRESS`.
pub struct Placed(Gateway);

impl App for Placed {
    type Report = GatewayReport;

    fn report(&self) -> GatewayReport {
        self.0.report()
    }

    fn wants_idle_passes(&self) -> bool {
        self.0.wants_idle_passes()
    }

    fn on_call(&mut self, cx: &mut Cx<'_>, mut call: Inbound<'_>) {
        if let Credential::Sys(sys) = call.header.credential {
            let machine_name = sys.machine_name;
            let at = machine_name.iter().position(|octet| *octet == b'@').unwrap();
            let (name, address) = machine_name.split_at(at);
            call.from =
                PeerAddress::Ip(std::str::from_utf8(&address[1..]).unwrap().parse().unwrap());
            call.header.credential = Credential::Sys(AuthSys { machine_name: name, ..sys });
        }
        self.0.on_call(cx, call);
    }

    fn on_peer_down(&mut self, cx: &mut Cx<'_>, peer: PeerId, cause: Cause) {
        self.0.on_peer_down(cx, peer, cause);
    }

    fn on_pass_end(&mut self, cx: &mut Cx<'_>) {
        self.0.on_pass_end(cx);
    }
}

/// Way that a call travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Inline, on a connection that receives this many KiB.
    Short(u8),
    /// The whole message in a Read chunk, with a Reply chunk for the reply.
    Long(u8),
    /// Over TCP.
    Tcp,
}

/// Time at which the connection is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Not before the reply is here.
    Never,
    /// Once the call was carried out or answered again, while its reply is in flight.
    Reply,
    /// After this number of steps of everything.
    Step(u32),
}

/// One end of the simulated fabric.
struct Rdma {
    end: Sim,
    pool: Pool,
    received: Option<Vec<u8>>,
    fenced: Vec<(RemoteKey, Buf)>,
    is_gone: bool,
}

impl Rdma {
    fn new(fabric: &Fabric) -> Self {
        let mut end = fabric.end("client", LIMITS);
        let pool = Pool::new(&[Class { slot_len: 16_384, count: 64 }]).unwrap();
        for _ in 0..16 {
            end.post_receive(pool.take(4096).unwrap()).unwrap();
        }
        Self { end, pool, received: None, fenced: vec![], is_gone: false }
    }

    fn poll(&mut self, now: Time) {
        while let Some(event) = self.end.poll(now) {
            match event {
                Event::Received { buf, invalidated, .. } => {
                    self.received = Some(buf.to_vec());
                    self.end.post_receive(buf).unwrap();
                    self.fenced.extend(invalidated.map(|fenced| (fenced.key(), fenced.into_buf())));
                }
                Event::Completed { memory: Memory::Fenced(fenced), .. }
                | Event::Unbound { fenced, .. } => {
                    self.fenced.push((fenced.key(), fenced.into_buf()));
                }
                Event::Disconnected { .. } => self.is_gone = true,
                _ => {}
            }
        }
        self.end.ring();
    }

    fn buf(&self, octets: &[u8]) -> Buf {
        let mut buf = self.pool.take(octets.len()).unwrap();
        buf.append(octets).unwrap();
        buf
    }

    fn window(&mut self, qp: Qp, octets: &[u8], access: Access) -> Segment {
        let window = self.end.bind(qp, self.buf(octets), 0..octets.len(), access).unwrap();
        Segment { handle: window.key.0, length: window.len, offset: window.offset }
    }

    fn send(&mut self, qp: Qp, octets: &[u8], is_long: bool) {
        let mut lists = ChunkLists::new();
        if is_long {
            let call = self.window(qp, octets, Access::RemoteRead);
            let reply = self.window(qp, &[0; 1024], Access::RemoteWrite);
            lists.push_read(Position::ZERO, call).unwrap();
            lists.begin_reply();
            lists.push_reply(reply).unwrap();
        }
        let body = if is_long { Body::NoMsg } else { Body::Msg };
        let xid = Xid(u32::from_be_bytes(*octets.first_chunk().unwrap()));
        let mut message = vec![0; 4096];
        let len =
            v1::emit(&Header { xid, credits: Credits(8), body }, &lists, &mut message).unwrap();
        message.truncate(len);
        if !is_long {
            message.extend_from_slice(octets);
        }
        let message = self.buf(&message);
        self.end.post_send(qp, Tag(0), message, None).unwrap();
        self.end.ring();
    }
}

/// One export, `/data`, and its state.
pub fn exports(home: &TempDir, shards: usize) -> files::FilesConfig {
    for name in ["data", "state"] {
        std::fs::create_dir(home.path().join(name)).unwrap();
    }
    let export = ExportConfig {
        name: "data".to_owned(),
        path: home.path().join("data"),
        read_only: false,
        is_mountpoint: false,
    };
    files::FilesConfig {
        state_dir: home.path().join("state"),
        exports: vec![export],
        callers: files::Callers::UNPRIVILEGED,
        shards,
        sync_directories: false,
        open_files: Some(64),
        cluster: None,
    }
}

pub struct World {
    fabric: Fabric,
    shards: Vec<Shard<Sim, Placed>>,
    ports: Vec<(Port, SocketAddr)>,
    client: Rdma,
    now: Time,
    pub home: TempDir,
    pub root: FileHandle,
    /// The client's host, its address, and its user.
    pub machine: &'static str,
    pub address: &'static str,
    pub uid: u32,
    /// A shard that makes no passes.
    pub stuck: Option<usize>,
}

/// The form of a call over RDMA.
struct RdmaCall {
    /// Size of the client's receives and sends.
    kib: u8,
    /// The call travels in a Read chunk.
    is_long: bool,
}

impl World {
    pub fn new(seed: u64, shards: usize, replies: usize) -> Self {
        let home = tempfile::tempdir().unwrap();
        let shared = SharedFiles::open(&exports(&home, shards)).unwrap();
        let fabric = Fabric::new(seed, Faults::DELAYS);
        let (mut all, mut ports) = (vec![], vec![]);
        let mut root = None;
        for (index, handle) in CacheHandle::all(shards).into_iter().enumerate() {
            let mut files = Files::open(&shared, index).unwrap();
            root = files.mount(b"/data").ok();
            let gateway = Gateway::new(files).with_duplicates(handle, replies);
            // Long calls get long replies.
            let config =
                Config { reply_policy: ReplyPolicy::Chunk, slots: [512, 8, 0], ..Config::small() };
            let end = fabric.end("server", LIMITS);
            let mut shard = Shard::new(end, Placed(gateway), config, Box::new(|_| true)).unwrap();
            let tcp = shard.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
            ports.push((shard.listen(&Port(0)).unwrap(), tcp));
            all.push(shard);
        }
        let client = Rdma::new(&fabric);
        let (now, root) = (Time(0), root.unwrap());
        let address = "10.0.0.1:900";
        let (machine, uid) = ("client", 1000);
        Self {
            fabric,
            shards: all,
            ports,
            client,
            now,
            home,
            root,
            machine,
            address,
            uid,
            stuck: None,
        }
    }

    /// The octets of a call of the client.
    pub fn encode(&self, xid: u32, call: &Call<'_>) -> Vec<u8> {
        encode(&format!("{}@{}", self.machine, self.address), self.uid, xid, call)
    }

    pub fn report(&self, shard: usize) -> GatewayReport {
        self.shards[shard].snapshot().app
    }

    fn total(&self, count: impl Fn(&GatewayReport) -> u64) -> u64 {
        (0..self.shards.len()).map(|shard| count(&self.report(shard))).sum()
    }

    /// Calls that reached the store.
    pub fn executions(&self) -> u64 {
        self.total(|report| report.nfs3.values().map(|served| served.calls).sum())
    }

    pub fn replays(&self) -> u64 {
        self.total(|report| report.duplicates.replayed)
    }

    fn served(&self) -> u64 {
        self.executions() + self.replays()
    }

    /// Nothing of a call that is over is held.
    pub fn assert_empty(&mut self) {
        self.run(200);
        for shard in &self.shards {
            assert_eq!((shard.buffers_in_use(), shard.calls_in_progress().0), (0, 0));
        }
    }

    /// Some passes of everybody but the client.
    pub fn run(&mut self, passes: u32) {
        (0..passes).for_each(|_| self.step());
    }

    fn step(&mut self) {
        for (index, shard) in self.shards.iter_mut().enumerate() {
            if self.stuck != Some(index) {
                shard.pass(self.now);
            }
        }
        self.now = self.now + std::time::Duration::from_micros(10);
    }

    /// Time goes by.
    pub fn rest(&mut self, time: std::time::Duration) {
        self.now = self.now + time;
    }

    /// Connects, calls once, and takes the reply if it is here before the connection is lost.
    pub fn attempt(
        &mut self,
        shard: usize,
        way: Way,
        loss: Loss,
        octets: &[u8],
    ) -> Option<Vec<u8>> {
        match way {
            Way::Tcp => self.attempt_tcp(shard, loss, octets),
            Way::Short(kib) => {
                self.attempt_rdma(shard, RdmaCall { kib, is_long: false }, loss, octets)
            }
            Way::Long(kib) => {
                self.attempt_rdma(shard, RdmaCall { kib, is_long: true }, loss, octets)
            }
        }
    }

    /// Returns true if the connection is lost after `step` steps.
    fn is_lost(&self, loss: Loss, step: u32, served: u64) -> bool {
        match loss {
            Loss::Never => {
                assert!(step < 1_000_000, "no reply\n{}", self.fabric.trace());
                false
            }
            Loss::Reply => {
                assert!(step < 1_000_000, "nobody serves\n{}", self.fabric.trace());
                self.served() > served
            }
            Loss::Step(at) => step >= at,
        }
    }

    fn attempt_rdma(
        &mut self,
        shard: usize,
        RdmaCall { kib, is_long }: RdmaCall,
        loss: Loss,
        octets: &[u8],
    ) -> Option<Vec<u8>> {
        let served = self.served();
        let offer = [0xf6, 0xab, 0x0e, 0x18, 1, 1, kib - 1, kib - 1];
        let qp = self.client.end.connect(&self.ports[shard].0, &offer).unwrap();
        (self.client.received, self.client.is_gone) = (None, false);
        let mut is_sent = false;
        for step in 0.. {
            self.step();
            // What was answered in this step cannot be here yet.
            if self.is_lost(loss, step, served) {
                break;
            }
            self.client.poll(self.now);
            if !is_sent && self.client.end.send_room(qp) > 0 {
                self.client.send(qp, octets, is_long);
                is_sent = true;
            }
            if self.client.received.is_some() || self.client.is_gone {
                break;
            }
        }
        let received = self.client.received.take();
        self.client.end.lose(qp);
        for _ in 0..1_000 {
            self.step();
            self.client.poll(self.now);
            if self.client.is_gone {
                break;
            }
        }
        assert!(self.client.is_gone, "the connection ends\n{}", self.fabric.trace());
        self.client.received = None;
        let fenced = std::mem::take(&mut self.client.fenced);
        received.map(|message| payload(&message, &fenced))
    }

    fn attempt_tcp(&mut self, shard: usize, loss: Loss, octets: &[u8]) -> Option<Vec<u8>> {
        let served = self.served();
        let mut socket = TcpStream::connect(self.ports[shard].1).unwrap();
        let mut record = Fragment::new(octets.len() as u32, true).unwrap().emit().to_vec();
        record.extend_from_slice(octets);
        socket.write_all(&record).unwrap();
        socket.set_nonblocking(true).unwrap();
        let (mut input, mut staging) = (vec![], [0; 4096]);
        for step in 0.. {
            self.step();
            if self.is_lost(loss, step, served) {
                return None;
            }
            if loss == Loss::Reply {
                continue;
            }
            match socket.read(&mut staging) {
                Ok(0) => return None,
                Ok(len) => input.extend_from_slice(&staging[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
            if let Some(mark) = input.first_chunk::<4>()
                && input.len() == 4 + Fragment::parse(*mark).octets() as usize
            {
                return Some(input.split_off(4));
            }
        }
        unreachable!("steps are not limited")
    }

    /// Sends many calls at once over one TCP connection, and takes no reply.
    pub fn pour(&mut self, shard: usize, calls: &[Vec<u8>]) -> TcpStream {
        let mut socket = TcpStream::connect(self.ports[shard].1).unwrap();
        for octets in calls {
            socket.write_all(&Fragment::new(octets.len() as u32, true).unwrap().emit()).unwrap();
            socket.write_all(octets).unwrap();
        }
        self.run(100);
        socket
    }

    /// Returns the number of shards.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// A call that nothing happens to.
    pub fn call(&mut self, xid: u32, call: &Call<'_>) -> Vec<u8> {
        let octets = self.encode(xid, call);
        self.attempt(0, Way::Short(4), Loss::Never, &octets).unwrap()
    }
}

/// The RPC message of a reply, wherever it is.
fn payload(message: &[u8], fenced: &[(RemoteKey, Buf)]) -> Vec<u8> {
    let mut lists = ChunkLists::new();
    let (header, at) = v1::parse(message, &mut lists).unwrap();
    match header.body {
        Body::Msg => message[at..].to_vec(),
        Body::NoMsg => {
            let segment = lists.reply().unwrap().segments[0];
            let (_, room) =
                fenced.iter().find(|(key, _)| key.0 == segment.handle).expect("it is fenced");
            room[..segment.length as usize].to_vec()
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the status in the reply of a procedure.
pub fn status(reply: &[u8]) -> Status {
    Status::parse(&mut Reader::new(&reply[ReplyHeader::LEN..])).unwrap()
}

/// The octets of a call by this user of a machine of this name.
pub fn encode(machine_name: &str, uid: u32, xid: u32, call: &Call<'_>) -> Vec<u8> {
    let gids = Gids::new(&[uid, 27]).unwrap();
    let sys = AuthSys { stamp: xid, machine_name: machine_name.as_bytes(), uid, gid: uid, gids };
    let header = CallHeader {
        xid: Xid(xid),
        program: NFS,
        version: 3,
        procedure: call.procedure().number(),
        credential: Credential::Sys(sys),
        verifier: Auth::NONE,
    };
    let mut octets = vec![0; 16_384];
    let mut writer = Writer::new(&mut octets);
    header.emit(&mut writer).unwrap();
    call.emit(&mut writer).unwrap();
    let len = writer.len();
    octets.truncate(len);
    octets
}
