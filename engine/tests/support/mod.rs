//! A server's shard and a peer whose messages are made by hand.
#![allow(dead_code)] // Each test takes what it needs.

pub mod attacks;
pub mod keeper;
pub mod refusing;

use stag_echo::{Echo, NULL, PROGRAM, VERSION};
use stag_engine::{App, Config, PeerId, Shard};
use stag_pools::{Access, Buf, Class, Pool, RemoteKey};
use stag_protocol::{
    rpc::{Accepted, Auth, CallHeader, Credential, ReplyHeader},
    rpcrdma::{
        Body, ChunkLists, Credits, ErrorBody, Header, PrivateData, Segment, Version2, Versions,
        Xid, v1,
    },
    xdr::{Reader, Writer},
};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Cause, Event, Limits, Memory, Provider, Qp, RemoteSpan, Status, Tag, Time};
use std::collections::VecDeque;

pub const LIMITS: Limits =
    Limits { send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };
pub const GRANT: u32 = 4;
const FETCH: Tag = Tag(1);

/// Passes both shards, and lets the time of the fabric go on, until nothing is left to do.
pub fn settle<P: Provider, A: App, B: App>(
    fabric: &Fabric,
    now: &mut Time,
    one: &mut Shard<P, A>,
    other: &mut Shard<P, B>,
) {
    loop {
        while one.pass(*now) | other.pass(*now) {}
        match fabric.next_due() {
            Some(due) => *now = due.max(*now),
            None => break,
        }
    }
}

pub fn config() -> Config {
    Config { grant: GRANT, calls_max: 4, serve_versions: Versions::One, ..small() }
}

/// Off in the environment, where `ways` runs the tests once more: without the short ways.
pub const WAYS: &str = "STAG_SHORT_WAYS";

/// A small shard, with the short ways of messages or without.
pub fn small() -> Config {
    let short_ways = std::env::var_os(WAYS).is_none_or(|said| said != "off");
    Config { short_ways, ..Config::small() }
}

/// The end made by hand.
pub struct Raw<P: Provider = Sim> {
    pub end: P,
    pub pool: Pool,
    pub qp: Option<Qp>,
    pub received: VecDeque<(Vec<u8>, Option<RemoteKey>)>,
    pub fenced: Vec<(RemoteKey, Vec<u8>)>,
    pub fetched: Vec<Vec<u8>>,
    pub ended: Option<Cause>,
    /// Messages that reached the other end.
    pub delivered: u64,
    /// Private data that this end sends when it accepts or connects.
    pub says: Vec<u8>,
}

impl Raw {
    pub fn new(fabric: &Fabric) -> Self {
        Self::with_slots(fabric, [160, 8])
    }

    /// With `slots` buffers of 4 KiB and of 128 KiB.
    pub fn with_slots(fabric: &Fabric, slots: [usize; 2]) -> Self {
        Self::on(fabric.end("raw", LIMITS), slots)
    }

    pub fn private_data() -> [u8; PrivateData::LEN] {
        // Magic, version 1, R, 4096 both ways.
        [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3]
    }

    /// The same of a peer that speaks `versions`, followed by an announcement if it knows the words
    /// of draft 001.
    pub fn offer_of(versions: Versions) -> Vec<u8> {
        let announced = [b'S', b't', b'a', b'g', 1, 1, 0, 0];
        let directed = matches!(
            versions,
            Versions::Two(Version2::Directed) | Versions::Both(Version2::Directed)
        );
        [&Self::private_data()[..], if directed { &announced } else { &[] }].concat()
    }
}

impl<P: Provider> Raw<P> {
    /// On an end of any fabric, with `short` buffers of 4 KiB and `long` ones of 128 KiB.
    pub fn on(mut end: P, [short, long]: [usize; 2]) -> Self {
        let classes =
            [Class { slot_len: 4096, count: short }, Class { slot_len: 1 << 17, count: long }];
        let pool = Pool::new(&classes).unwrap();
        for _ in 0..32 {
            end.post_receive(pool.take(4096).unwrap()).unwrap();
        }
        Self {
            end,
            pool,
            qp: None,
            received: VecDeque::new(),
            fenced: Vec::new(),
            fetched: Vec::new(),
            ended: None,
            delivered: 0,
            says: Raw::private_data().to_vec(),
        }
    }

    pub fn poll(&mut self, now: Time) -> bool {
        let mut worked = false;
        while let Some(event) = self.end.poll(now) {
            worked = true;
            match event {
                Event::ConnectRequest { qp } => {
                    self.qp = Some(qp);
                    self.end.accept(qp, &self.says).unwrap();
                }
                Event::Established { .. } => {}
                Event::Received { buf, invalidated, .. } => {
                    let key = invalidated.map(|fenced| {
                        let key = fenced.key();
                        self.fenced.push((key, fenced.into_buf().to_vec()));
                        key
                    });
                    self.received.push_back((buf.to_vec(), key));
                    self.end.post_receive(buf).unwrap();
                }
                Event::Completed { memory: Memory::Fenced(fenced), .. }
                | Event::Unbound { fenced, .. } => {
                    self.fenced.push((fenced.key(), fenced.into_buf().to_vec()));
                }
                Event::Completed { tag: FETCH, memory: Memory::Buf(sink), .. } => {
                    self.fetched.push(sink.to_vec())
                }
                Event::Completed { status, .. } => {
                    self.delivered += u64::from(status == Status::Success);
                }
                Event::Disconnected { cause, .. } => self.ended = Some(cause),
            }
        }
        self.end.ring();
        worked
    }

    pub fn buf(&self, octets: &[u8]) -> Buf {
        let mut buf = self.pool.take(octets.len()).unwrap();
        buf.append(octets).unwrap();
        buf
    }

    pub fn send(&mut self, octets: &[u8], invalidate: Option<u32>) {
        let message = self.buf(octets);
        self.end.post_send(self.qp.unwrap(), Tag(0), message, invalidate.map(RemoteKey)).unwrap();
        self.end.ring();
    }

    pub fn window(&mut self, octets: &[u8], access: Access) -> Segment {
        let buf = self.buf(octets);
        let window = self.end.bind(self.qp.unwrap(), buf, 0..octets.len(), access).unwrap();
        Segment { handle: window.key.0, length: window.len, offset: window.offset }
    }

    /// Reads what the peer offers; it comes in `fetched`.
    pub fn fetch(&mut self, segment: Segment) {
        let mut sink = self.pool.take(segment.length as usize).unwrap();
        sink.extend(segment.length as usize);
        self.end.post_read(self.qp.unwrap(), FETCH, sink, 0, &[span(segment)]).unwrap();
        self.end.ring();
    }

    /// Writes to what the peer offers.
    pub fn push(&mut self, octets: &[u8], segment: Segment) {
        let source = self.buf(octets).freeze();
        let to = span(Segment { length: octets.len() as u32, ..segment });
        self.end.post_write(self.qp.unwrap(), Tag(0), source, to).unwrap();
        self.end.ring();
    }

    /// Fences a window by a local invalidation; `content` then returns the octets that the window
    /// held.
    pub fn fence(&mut self, segment: Segment) {
        let key = RemoteKey(segment.handle);
        self.end.post_local_invalidate(self.qp.unwrap(), Tag(0), key).unwrap();
        self.end.ring();
    }

    pub fn content(&self, segment: Segment) -> &[u8] {
        &self
            .fenced
            .iter()
            .find(|(key, _)| key.0 == segment.handle)
            .expect("the window was fenced")
            .1
    }
}

fn span(segment: Segment) -> RemoteSpan {
    RemoteSpan { key: RemoteKey(segment.handle), offset: segment.offset, len: segment.length }
}

pub struct AtServer<A: App = Echo> {
    pub fabric: Fabric,
    pub shard: Shard<Sim, A>,
    pub raw: Raw,
    pub now: Time,
    pub port: Port,
    says: Vec<u8>,
}

impl AtServer {
    pub fn new() -> Self {
        Self::told(&Raw::private_data())
    }

    /// The peer connects with this private data.
    pub fn told(private_data: &[u8]) -> Self {
        Self::begin(Echo::default(), config(), private_data)
    }
}

impl<A: App> AtServer<A> {
    pub fn serving(app: A, config: Config) -> Self {
        let says = Raw::offer_of(config.serve_versions);
        Self::begin(app, config, &says)
    }

    pub fn begin(app: A, config: Config, private_data: &[u8]) -> Self {
        let fabric = Fabric::new(7, Faults::NONE);
        let admit = Box::new(|_| true) as Box<_>;
        let mut shard = Shard::new(fabric.end("server", LIMITS), app, config, admit).unwrap();
        let port = shard.listen(&Port(0)).unwrap();
        let raw = Raw::new(&fabric);
        let mut this = Self { fabric, shard, raw, now: Time(0), port, says: private_data.to_vec() };
        this.connect();
        this
    }

    /// The end made by hand connects, once more if it did before.
    pub fn connect(&mut self) {
        self.raw.ended = None;
        self.raw.qp = Some(self.raw.end.connect(&self.port, &self.says).unwrap());
        self.settle();
    }

    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            let worked = self.shard.pass(self.now) | self.raw.poll(self.now);
            match self.fabric.next_due() {
                _ if worked => {}
                Some(due) => self.now = due.max(self.now),
                None => return,
            }
        }
        panic!("the fabric never comes to rest");
    }

    /// Sends one message and returns the one that answers it, if any.
    pub fn ask(&mut self, octets: &[u8]) -> Option<(Vec<u8>, Option<RemoteKey>)> {
        self.raw.send(octets, None);
        self.settle();
        self.raw.received.pop_front()
    }

    /// An RDMA_ERROR for `xid`.
    pub fn expect_error(&mut self, octets: &[u8], xid: u32, wanted: ErrorBody) {
        let (answer, invalidated) = self.ask(octets).expect("an RDMA_ERROR comes");
        let mut lists = ChunkLists::new();
        // The version word of ERR_VERS echoes the call's.
        let mut answer = answer;
        answer[4..8].copy_from_slice(&1_u32.to_be_bytes());
        let (header, _) = v1::parse(&answer, &mut lists).unwrap();
        assert_eq!(
            header,
            Header { xid: Xid(xid), credits: Credits(GRANT), body: Body::Error(wanted) }
        );
        assert_eq!(invalidated, None, "an error invalidates nothing");
        self.expect_alive();
    }

    pub fn expect_silence(&mut self, octets: &[u8]) {
        assert_eq!(self.ask(octets), None);
        self.expect_alive();
    }

    pub fn expect_alive(&mut self) {
        let (answer, _) =
            self.ask(&message(0xa11e, &ChunkLists::new(), &rpc(0xa11e, NULL, &[]))).unwrap();
        let (_, _, payload) = reply(&answer);
        assert_eq!(ReplyHeader::parse(&mut Reader::new(&payload)).unwrap().xid, Xid(0xa11e));
        assert_eq!(self.shard.buffers_in_use(), 0);
        assert_eq!(self.shard.provider().receives_posted(), config().receives);
    }

    pub fn expect_end(&mut self) {
        self.settle();
        assert!(self.raw.ended.is_some(), "the connection ended");
        assert_eq!(self.shard.calls_in_progress(), (0, 0));
        assert_eq!((self.shard.buffers_in_use(), self.shard.receives_promised()), (0, 0));
        assert_eq!(self.shard.provider().receives_posted(), config().receives);
    }
}

/// A server made by hand, and our requester.
pub struct AtClient<A: App, P: Provider = Sim> {
    pub fabric: Fabric,
    pub shard: Shard<P, A>,
    pub peer: PeerId,
    pub raw: Raw,
    pub port: Port,
    pub now: Time,
}

impl<A: App> AtClient<A> {
    pub fn new(app: A, config: Config) -> Self {
        Self::over(app, config, |end| end)
    }
}

impl<A: App, P: Provider<Address = Port>> AtClient<A, P> {
    /// Our end is what `wrap` makes of it.
    pub fn over(app: A, config: Config, wrap: impl FnOnce(Sim) -> P) -> Self {
        let says = Raw::offer_of(config.call_versions);
        Self::told(app, config, &says, wrap)
    }

    /// The server accepts with this private data.
    pub fn told(app: A, config: Config, private_data: &[u8], wrap: impl FnOnce(Sim) -> P) -> Self {
        let fabric = Fabric::new(8, Faults::NONE);
        let mut raw = Raw { says: private_data.to_vec(), ..Raw::new(&fabric) };
        let port = raw.end.listen(&Port(0)).unwrap();
        let admit = Box::new(|_| true) as Box<_>;
        let mut shard = Shard::new(wrap(fabric.end("client", LIMITS)), app, config, admit).unwrap();
        let peer = shard.connect(&port).unwrap();
        let mut this = Self { fabric, shard, peer, raw, port, now: Time(0) };
        this.settle();
        this
    }

    /// One turn of both ends. When there was nothing to do, the next thing that is due; false when
    /// nothing is.
    pub fn step(&mut self) -> bool {
        let worked = self.shard.pass(self.now) | self.raw.poll(self.now);
        match self.fabric.next_due() {
            _ if worked => true,
            Some(due) => {
                self.now = due.max(self.now);
                true
            }
            None => false,
        }
    }

    pub fn settle(&mut self) {
        assert!((0..10_000).any(|_| !self.step()), "the fabric comes to rest");
    }

    /// The next call that arrives.
    pub fn next_call(&mut self) -> (Header, ChunkLists, Vec<u8>) {
        self.settle();
        reply(&self.raw.received.pop_front().expect("the call arrives").0)
    }

    /// A reply that grants three credits.
    pub fn answer(
        &mut self,
        xid: Xid,
        lists: &ChunkLists,
        results: &[u8],
        invalidate: Option<u32>,
    ) {
        self.send_answer(xid, lists, results, invalidate);
        self.settle();
    }

    /// As [`answer`](Self::answer), but it has not arrived yet.
    pub fn send_answer(
        &mut self,
        xid: Xid,
        lists: &ChunkLists,
        results: &[u8],
        invalidate: Option<u32>,
    ) {
        let mut payload = [&xid.0.to_be_bytes()[..], &[0, 0, 0, 1], &[0; 16]].concat();
        payload.extend_from_slice(results);
        let header = Header { xid, credits: Credits(3), body: Body::Msg };
        self.raw.send(&with_header(&header, lists, &payload), invalidate);
    }

    pub fn wait(&mut self, seconds: u64) {
        self.now = Time(self.now.0 + seconds * 1_000_000_000);
        self.settle();
    }
}

/// An RPC call of the echo program with these arguments.
pub fn rpc(xid: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    rpc_of((PROGRAM, VERSION, procedure), xid, arguments)
}

/// The same of any program, version and procedure.
pub fn rpc_of(
    (program, version, procedure): (u32, u32, u32),
    xid: u32,
    arguments: &[u8],
) -> Vec<u8> {
    let header = CallHeader {
        xid: Xid(xid),
        program,
        version,
        procedure,
        credential: Credential::None,
        verifier: Auth::NONE,
    };
    let mut out = [0; 64];
    let mut writer = Writer::new(&mut out);
    header.emit(&mut writer).unwrap();
    let len = writer.len();
    [&out[..len], arguments].concat()
}

pub fn with_header(header: &Header, lists: &ChunkLists, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; v1::header_len(lists)];
    v1::emit(header, lists, &mut out).unwrap();
    out.extend_from_slice(payload);
    out
}

pub fn message(xid: u32, lists: &ChunkLists, payload: &[u8]) -> Vec<u8> {
    with_header(&Header { xid: Xid(xid), credits: Credits(99), body: Body::Msg }, lists, payload)
}

pub fn no_message(xid: u32, lists: &ChunkLists) -> Vec<u8> {
    with_header(&Header { xid: Xid(xid), credits: Credits(99), body: Body::NoMsg }, lists, &[])
}

pub fn reply(message: &[u8]) -> (Header, ChunkLists, Vec<u8>) {
    let mut lists = ChunkLists::new();
    let (header, at) = v1::parse(message, &mut lists).unwrap();
    (header, lists, message[at..].to_vec())
}

/// Everything after the header of a successful reply.
pub fn results(payload: &[u8]) -> Vec<u8> {
    let mut reader = Reader::new(payload);
    let header = ReplyHeader::parse(&mut reader).unwrap();
    assert_eq!(header.outcome, stag_protocol::rpc::Outcome::accepted(Accepted::Success));
    payload[ReplyHeader::LEN..].to_vec()
}

pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 13 + i / 256) as u8).collect()
}

pub fn echo_head(len: usize) -> Vec<u8> {
    (len as u32).to_be_bytes().to_vec()
}
