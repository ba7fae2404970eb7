//! Whole connections over the simulated fabric: a peer made by hand at a server's shard, and at a caller's.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
};

use stag_echo::Caller;
use stag_engine::{App, Config, PeerId, Shard, Time, Token};
use stag_nfs::{
    Gateway,
    store::memory::{self, Memory, MemoryExport},
};
use stag_pools::{Access, Buf, Class, Pool, RemoteKey};
use stag_protocol::{
    nfs::{mount, v3},
    rpc::{Auth, CallHeader, Credential, MessageType, ReplyHeader},
    rpcrdma::{Body, ChunkLists, Credits, Header, Segment, Xid, v1, v2},
    xdr::{Codec, Reader},
};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Cause, Event, Limits, Memory as Held, Provider, Qp, Tag};

use super::Verdict;
use crate::{
    make::written,
    mutate::{parts, push_part},
};

/// Stands for the handle of the exported directory.
pub const ROOT: [u8; HANDLE_LEN] = [b'R'; HANDLE_LEN];
/// Stands for the handle of a file in it.
pub const FILE: [u8; HANDLE_LEN] = [b'F'; HANDLE_LEN];
/// Octets of the memory store's handles.
const HANDLE_LEN: usize = 40;
/// Handles of segments that are to be memory of the peer begin with this octet.
const OWN: u32 = 0xf0;
/// Octets of the longest piece of such memory.
const WINDOW_MAX: u32 = 1 << 14;

const LIMITS: Limits = Limits { send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };
const RECEIVES: usize = 32;
const MESSAGE_MAX: usize = 4096;
/// What a new connection says: 4 KiB both ways, and remote invalidation.
const OFFER: [u8; 16] = *b"\xf6\xab\x0e\x18\x01\x01\x03\x03Stag\x01\x01\0\0";

fn config() -> Config {
    Config {
        receives: 64,
        peers: 2,
        inbound: 64,
        outbound: 16,
        calls_max: 4,
        slots: [64, 4, 2],
        ..Config::small()
    }
}

/// The end made by hand.
struct Raw {
    end: Sim,
    pool: Pool,
    qp: Option<Qp>,
    received: VecDeque<Vec<u8>>,
    /// Windows that were bound and have not ended.
    windows: usize,
    ended: Option<Cause>,
}

impl Raw {
    fn new(fabric: &Fabric) -> Self {
        let mut end = fabric.end("raw", LIMITS);
        let classes = [
            Class { slot_len: MESSAGE_MAX, count: 192 },
            Class { slot_len: WINDOW_MAX as usize, count: 192 },
        ];
        let pool = Pool::new(&classes).expect("a few MiB");
        for _ in 0..RECEIVES {
            let receive = pool.take(MESSAGE_MAX).expect("there are more");
            end.post_receive(receive).expect("there is room");
        }
        Self { end, pool, qp: None, received: VecDeque::new(), windows: 0, ended: None }
    }

    fn poll(&mut self, now: Time, private_data: &[u8]) -> bool {
        let mut worked = false;
        while let Some(event) = self.end.poll(now) {
            worked = true;
            match event {
                Event::ConnectRequest { qp } => {
                    self.qp = Some(qp);
                    let accepted = self.end.accept(qp, private_data);
                    assert_eq!(accepted, Ok(()), "the request was not answered yet");
                }
                Event::Received { buf, invalidated, .. } => {
                    self.windows -= usize::from(invalidated.is_some());
                    self.received.push_back(buf.to_vec());
                    self.end.post_receive(buf).expect("it came from there");
                }
                Event::Completed { memory: Held::Fenced(_), .. } | Event::Unbound { .. } => self.windows -= 1,
                Event::Established { .. } | Event::Completed { .. } => {}
                Event::Disconnected { cause, .. } => {
                    (self.ended, self.qp) = (Some(cause), None);
                    assert_eq!(self.windows, 0, "every window ends with its connection");
                }
            }
        }
        self.end.ring();
        worked
    }

    fn buf(&self, octets: &[u8]) -> Option<Buf> {
        let mut buf = self.pool.take(octets.len().max(1))?;
        buf.append(octets).ok()?;
        Some(buf)
    }

    fn send(&mut self, octets: &[u8], invalidate: Option<RemoteKey>) {
        let (Some(qp), Some(message)) = (self.qp, self.buf(&octets[..octets.len().min(MESSAGE_MAX)])) else {
            return;
        };
        // Refused when too much is under way.
        let _ = self.end.post_send(qp, Tag(0), message, invalidate);
        self.end.ring();
    }

    fn window(&mut self, octets: &[u8], access: Access) -> Option<Segment> {
        let (qp, buf) = (self.qp?, self.buf(octets)?);
        let window = self.end.bind(qp, buf, 0..octets.len(), access).ok()?;
        self.windows += 1;
        Some(Segment { handle: window.key.0, length: window.len, offset: window.offset })
    }

    /// The lists with memory of this end where they ask for it; Read chunks hold `content`.
    fn dress(&mut self, lists: &ChunkLists, mut content: &[u8]) -> ChunkLists {
        let mut dressed = ChunkLists::new();
        let mut dress = |segment: &Segment, access| {
            if segment.handle >> 24 != OWN {
                return *segment;
            }
            let mut octets = vec![0x5a; segment.length.min(WINDOW_MAX) as usize];
            if access == Access::RemoteRead {
                let (front, rest) = content.split_at(octets.len().min(content.len()));
                octets[..front.len()].copy_from_slice(front);
                content = rest;
            }
            self.window(&octets, access).unwrap_or(*segment)
        };
        for chunk in lists.reads() {
            for segment in chunk.segments {
                let segment = dress(segment, Access::RemoteRead);
                dressed.push_read(chunk.position, segment).expect("there was room before");
            }
        }
        for chunk in lists.writes() {
            dressed.begin_write().expect("there was room before");
            for segment in chunk.segments {
                dressed.push_write(dress(segment, Access::RemoteWrite)).expect("there was room before");
            }
        }
        if let Some(chunk) = lists.reply() {
            dressed.begin_reply();
            for segment in chunk.segments {
                dressed.push_reply(dress(segment, Access::RemoteWrite)).expect("there was room before");
            }
        }
        dressed
    }
}

/// A shard and a peer.
struct World<A: App> {
    fabric: Fabric,
    shard: Shard<Sim, A>,
    raw: Raw,
    now: Time,
    private_data: Vec<u8>,
}

impl<A: App> World<A> {
    fn new(app: A) -> Self {
        let fabric = Fabric::new(7, Faults::NONE);
        let end = fabric.end("shard", LIMITS);
        let shard = Shard::new(end, app, config(), Box::new(|_| true)).expect("a few MiB");
        let raw = Raw::new(&fabric);
        Self { fabric, shard, raw, now: Time(0), private_data: OFFER.to_vec() }
    }

    /// Everything happens that can happen without a clock.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let worked = self.shard.pass(self.now) | self.raw.poll(self.now, &self.private_data);
            match self.fabric.next_due() {
                _ if worked => {}
                Some(due) => self.now = due.max(self.now),
                None => return,
            }
        }
        panic!("it never comes to rest");
    }

    /// The peer goes away; nothing of it is left.
    fn end(&mut self) {
        if let Some(qp) = self.raw.qp {
            self.raw.end.disconnect(qp);
        }
        self.settle();
        assert_eq!(self.raw.qp, None);
        assert_eq!(self.raw.pool.taken(), RECEIVES, "the peer's memory came back");
        assert_eq!(self.shard.calls_in_progress(), (0, 0));
        assert_eq!((self.shard.buffers_in_use(), self.shard.receives_promised()), (0, 0));
        assert_eq!(self.shard.provider().receives_posted(), config().receives);
    }
}

/// A gateway's shard, which a peer may connect to.
struct Server {
    world: World<Gateway<Memory>>,
    port: Port,
    root: Vec<u8>,
    file: Vec<u8>,
}

/// A gateway over memory, with one export.
pub(super) fn gateway_app() -> Gateway<Memory> {
    let export = MemoryExport { name: "data".to_owned(), copy_of: None, read_only: false };
    let config = memory::Config::new(vec![export], memory::CAPACITY_MIN);
    Gateway::new(Memory::new(&config, &mut |_| ()).expect("a MiB"))
}

/// An RPC call without chunks.
pub(super) fn plain_call(
    xid: u32,
    (program, version, procedure): (u32, u32, u32),
    arguments: &[u8],
) -> Vec<u8> {
    let (credential, verifier) = (Credential::None, Auth::NONE);
    let header = CallHeader { xid: Xid(xid), program, version, procedure, credential, verifier };
    let mut message = written(|writer| header.emit(writer));
    message.extend(arguments);
    message
}

/// The call that mounts the export.
pub(super) fn mount_call(xid: u32) -> Vec<u8> {
    let arguments = written(|writer| mount::Path(b"/data").emit(writer));
    plain_call(xid, (mount::PROGRAM, mount::VERSION, mount::Procedure::Mnt.number()), &arguments)
}

/// The call that makes the file.
pub(super) fn create_call(xid: u32, root: &[u8]) -> Vec<u8> {
    let dir = v3::FileHandle::new(root).expect("the server's own");
    let place = v3::DirOpArgs { dir, name: v3::Name(b"file") };
    let how = v3::CreateHow::Unchecked(v3::SetAttributes { size: Some(5000), ..Default::default() });
    let arguments = written(|writer| v3::CreateArgs { place, how }.emit(writer));
    plain_call(xid, (v3::PROGRAM, v3::VERSION, v3::Procedure::Create.number()), &arguments)
}

/// The export's handle in the reply to [`mount_call`].
pub(super) fn mounted(reply: &[u8]) -> Vec<u8> {
    let results = Reader::new(&reply[ReplyHeader::LEN..]);
    let Ok(mount::Reply::Mnt(Ok(mounted))) = mount::Reply::parse(mount::Procedure::Mnt, results) else {
        panic!("the export can be mounted")
    };
    mounted.handle.octets().to_vec()
}

/// The file's handle in the reply to [`create_call`].
pub(super) fn created(reply: &[u8]) -> Vec<u8> {
    let results = Reader::new(&reply[ReplyHeader::LEN..]);
    let Ok(v3::Reply::Create(Ok(created))) = v3::Reply::parse(v3::Procedure::Create, results) else {
        panic!("the file can be made")
    };
    created.object.expect("a server gives it").octets().to_vec()
}

/// Puts the server's handles where others stand for them.
pub(super) fn with_handles(octets: &mut [u8], root: &[u8], file: &[u8]) {
    for (stand_in, handle) in [(&ROOT, root), (&FILE, file)] {
        let mut at = 0;
        while let Some(found) = octets[at..].windows(HANDLE_LEN).position(|octets| octets == stand_in) {
            octets[at + found..][..HANDLE_LEN].copy_from_slice(handle);
            at += found + HANDLE_LEN;
        }
    }
}

impl Server {
    fn new() -> Self {
        let mut world = World::new(gateway_app());
        let port = world.shard.listen(&Port(0)).expect("nobody else listens");
        let mut server = Self { world, port, root: Vec::new(), file: Vec::new() };
        server.connect(&OFFER);
        server.root = mounted(&server.ask(mount_call(1)));
        server.file = created(&server.ask(create_call(2, &server.root)));
        assert_eq!([server.root.len(), server.file.len()], [HANDLE_LEN; 2]);
        server.world.end();
        server
    }

    fn connect(&mut self, private_data: &[u8]) {
        let private_data = &private_data[..private_data.len().min(LIMITS.private_data_len)];
        let raw = &mut self.world.raw;
        (raw.qp, raw.ended) = (Some(raw.end.connect(&self.port, private_data).expect("there is room")), None);
        raw.received.clear();
        self.world.settle();
    }

    fn ask(&mut self, payload: Vec<u8>) -> Vec<u8> {
        let xid = Xid(u32::from_be_bytes(*payload.first_chunk().expect("a call")));
        let header = Header { xid, credits: Credits(1), body: Body::Msg };
        let message = [crate::make::emitted(&header, &ChunkLists::new()), payload].concat();
        self.world.raw.send(&message, None);
        self.world.settle();
        let reply = self.world.raw.received.pop_front().expect("a reply");
        reply[v1::HEADER_LEN_MIN..].to_vec()
    }
}

thread_local! {
    // Taking the memory of a shard takes longer than a connection. After a panic there is a fresh one.
    static SERVER: RefCell<Option<Server>> = const { RefCell::new(None) };
    static CALLER: RefCell<Option<World<Caller>>> = const { RefCell::new(None) };
}

/// Drops what this thread kept of the inputs before: what a gateway stores, the numbers that a fabric drew.
pub(super) fn forget() {
    SERVER.set(None);
    CALLER.set(None);
}

/// A connection to a gateway's shard: private data, then messages. The first of the four octets in front of a message says whether
/// its answer is awaited (1), whether the next part is what its Read chunks hold (2), and whether the peer leaves then (4).
pub fn gateway(input: &[u8]) -> Verdict {
    let mut server = SERVER.take().unwrap_or_else(Server::new);
    let mut parts = parts(input);
    server.connect(parts.next().unwrap_or_default());
    let mut sent: BTreeMap<u32, usize> = BTreeMap::new();
    let mut answers = Answers::default();
    while let Some(part) = parts.next() {
        let Some(([flags, ..], message)) = part.split_first_chunk::<4>() else { continue };
        let mut content = if flags & 2 == 2 { parts.next().unwrap_or_default().to_vec() } else { Vec::new() };
        with_handles(&mut content, &server.root, &server.file);
        let mut lists = ChunkLists::new();
        let mut octets = match v1::parse(message, &mut lists) {
            Ok((header, at)) if !matches!(header.body, Body::Error(_)) => {
                let lists = server.world.raw.dress(&lists, &content);
                [crate::make::emitted(&header, &lists), message[at..].to_vec()].concat()
            }
            _ => message.to_vec(),
        };
        with_handles(&mut octets, &server.root, &server.file);
        if let Some(xid) = octets.first_chunk() {
            *sent.entry(u32::from_be_bytes(*xid)).or_default() += 1;
        }
        server.world.raw.send(&octets, None);
        if flags & 1 == 1 {
            server.world.settle();
            answers.take(&mut server.world.raw.received, &mut sent);
        }
        if flags & 4 == 4 || server.world.raw.qp.is_none() {
            break;
        }
    }
    if parts.next().is_none() {
        server.world.settle();
    }
    answers.take(&mut server.world.raw.received, &mut sent);
    let outcome = answers.verdict(server.world.raw.ended);
    server.world.end();
    SERVER.set(Some(server));
    outcome
}

/// What came back.
#[derive(Default)]
struct Answers {
    replies: usize,
    errors: usize,
    /// What the replies were, in any order.
    class: u64,
}

impl Answers {
    /// Each is for a message that was sent, and for none twice (RFC 8166 §4.5).
    fn take(&mut self, received: &mut VecDeque<Vec<u8>>, sent: &mut BTreeMap<u32, usize>) {
        for message in received.drain(..) {
            let xid = u32::from_be_bytes(*message.first_chunk().expect("a header"));
            let left = sent.get_mut(&xid).filter(|left| **left > 0).expect("one reply for one call");
            *left -= 1;
            let mut lists = ChunkLists::new();
            let parsed = match message[4..8] {
                [0, 0, 0, 2] => v2::parse::<v2::Directed>(&message, &mut lists),
                _ => v1::parse(&message, &mut lists),
            };
            let (header, at) = parsed.expect("the server's own header");
            assert!((1..=config().grant).contains(&header.credits.0), "a grant is never zero");
            assert_eq!(lists.reads().count(), 0, "no reply has a Read list");
            match header.body {
                Body::Error(_) => self.errors += 1,
                Body::NoMsg | Body::Optional { .. } => self.replies += 1,
                Body::Msg => {
                    let payload = &message[at..];
                    let peeked = MessageType::peek(&Reader::new(payload));
                    assert_eq!(peeked, Ok((Xid(xid), MessageType::Reply)));
                    let mut reader = Reader::new(payload);
                    let reply = ReplyHeader::parse(&mut reader).expect("the server's own reply");
                    let status = payload.get(ReplyHeader::LEN..).and_then(<[u8]>::first_chunk::<4>);
                    self.class ^=
                        super::class((format!("{:?}", reply.outcome), status, lists.segments().len()));
                    self.replies += 1;
                }
            }
        }
    }

    fn verdict(&self, ended: Option<Cause>) -> Verdict {
        let ended = ended.map(|cause| format!("{cause:?}"));
        if self.replies == 0 {
            Verdict::Refused(super::class((self.errors.min(3), ended)))
        } else {
            Verdict::accepted((self.class, self.replies.min(4), self.errors.min(3), ended))
        }
    }
}

/// Calls that are made in [`requester`]: octets to echo.
const CALLS: [Option<usize>; 4] = [None, Some(100), Some(4_000), Some(9_000)];

/// A connection of a caller's shard: private data, then what claims to be replies. The four octets in front of each: the first says
/// whether the call's XID goes in front (1), into the RPC message (2), whether the call's chunks are returned (4), whether the reply
/// invalidates a key of the call (8) or another one (16), and whether what happens is awaited (32); the fourth says which call.
pub fn requester(input: &[u8]) -> Verdict {
    let mut parts = parts(input);
    let mut world = CALLER.take().unwrap_or_else(|| World::new(Caller::default()));
    (world.raw.ended, world.raw.received) = (None, VecDeque::new());
    world.private_data = parts.next().unwrap_or_default().to_vec();
    world.private_data.truncate(LIMITS.private_data_len);
    let port = world.raw.end.listen(&Port(0)).expect("nobody else listens");
    let peer = world.shard.connect(&port).expect("there is room");
    world.settle();
    let mut answered = [false; CALLS.len()];
    call(&mut world, peer);
    world.settle();
    let mut calls: Vec<Vec<u8>> = world.raw.received.drain(..).collect();
    for part in parts {
        let Some(([flags, .., which], message)) = part.split_first_chunk::<4>() else { continue };
        // With more credits come more calls.
        calls.extend(world.raw.received.drain(..));
        let Some(call) = calls.get(usize::from(*which) % calls.len().max(1)) else { break };
        let (message, key) = dress_reply(*flags, call, message);
        let invalidate = match flags & 24 {
            8 => key,
            16 => Some(RemoteKey(0xdead_beef)),
            _ => None,
        };
        world.raw.send(&message, invalidate);
        if flags & 32 == 32 {
            world.settle();
        }
    }
    world.settle();
    let lost = world.raw.ended;
    world.raw.received.clear();
    // The connection's end is every call's end.
    if let Some(qp) = world.raw.qp {
        world.raw.end.disconnect(qp);
    }
    world.settle();
    let mut class = Vec::new();
    while let Some(done) = world.shard.with_app(|app, _| app.take()) {
        let index = done.token.0 as usize;
        assert!(!std::mem::replace(&mut answered[index], true), "a call ends once");
        let echo = done.echo.as_ref().map(|echo| echo.as_ref().map_or(0, |echo| echo.len()));
        assert!(CALLS[index].is_some() || !matches!(echo, Ok(1..)), "NULL has no result");
        class.push((index, echo.map_err(|fault| format!("{fault:?}"))));
    }
    assert_eq!(answered, [true; CALLS.len()], "every call ends");
    world.raw.end.stop_listening();
    world.end();
    CALLER.set(Some(world));
    let lost = lost.map(|cause| format!("{cause:?}"));
    if class.iter().any(|(_, echo)| echo.is_ok()) {
        Verdict::accepted((class, lost))
    } else {
        Verdict::Refused(super::class((class, lost)))
    }
}

fn call(world: &mut World<Caller>, peer: PeerId) {
    let octets = [0x33; 9_000];
    world.shard.with_app(|_, cx| {
        for (number, len) in (0..).zip(CALLS) {
            assert!(Caller::call(cx, peer, Token(number), len.map(|len| &octets[..len])), "there is memory");
        }
    });
}

/// The reply as its flags want it, and a key of the call.
fn dress_reply(flags: u8, call: &[u8], message: &[u8]) -> (Vec<u8>, Option<RemoteKey>) {
    let mut offered = ChunkLists::new();
    let parsed = v1::parse(call, &mut offered);
    let (asked, _) = parsed.expect("the caller's own header");
    let key = offered.segments().first().map(|segment| RemoteKey(segment.handle));
    let mut lists = ChunkLists::new();
    let Ok((mut header, at)) = v1::parse(message, &mut lists) else { return (message.to_vec(), key) };
    let mut payload = message[at..].to_vec();
    if flags & 1 == 1 {
        header.xid = asked.xid;
    }
    if flags & 2 == 2
        && let Some(xid) = payload.first_chunk_mut()
    {
        *xid = header.xid.0.to_be_bytes();
    }
    if flags & 4 == 4 && !matches!(header.body, Body::Error(_)) {
        lists.return_unused(&offered);
        for (index, chunk) in offered.writes().enumerate() {
            lists.fill_write(index, chunk, chunk.total());
        }
        if let (Body::NoMsg, Some(chunk)) = (header.body, offered.reply()) {
            lists.fill_reply(chunk, chunk.total());
        }
        if lists.is_empty() {
            header.body = Body::Msg;
        }
    }
    let mut out = crate::make::emitted(&header, &lists);
    out.append(&mut payload);
    (out, key)
}

/// What a peer that answers well would send: so that a session begins with something that is accepted.
pub fn good_replies() -> Vec<u8> {
    let mut input = Vec::new();
    push_part(&mut input, &OFFER);
    for (which, len) in (0..).zip(CALLS) {
        let header = Header { xid: Xid(0), credits: Credits(8), body: Body::Msg };
        let mut part = vec![1 | 2 | 4 | 8 | 32, 0, 0, which];
        part.extend(crate::make::emitted(&header, &ChunkLists::new()));
        let header = ReplyHeader {
            xid: Xid(0),
            outcome: stag_protocol::rpc::Outcome::accepted(stag_protocol::rpc::Accepted::Success),
        };
        part.extend(written(|writer| header.emit(writer)));
        if let Some(len) = len {
            part.extend((len as u32).to_be_bytes());
            if len < 200 {
                part.resize(part.len() + len, 0x33);
            }
        }
        push_part(&mut input, &part);
    }
    input
}
