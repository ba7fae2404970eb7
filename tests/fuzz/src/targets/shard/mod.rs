//! Whole connections over the simulated fabric: a peer made by hand at a server's shard, and at a
//! caller's.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
};

use stag_echo::Caller;
use stag_engine::{App, Config, PeerId, Shard, Time, Token};
use stag_nfs::Gateway;
use stag_nfs_store::memory::{self, Memory, MemoryExport};
use stag_pools::RemoteKey;
use stag_protocol::{
    rpc::{MessageType, ReplyHeader},
    rpcrdma::{Body, ChunkLists, Credits, Header, Xid, v1, v2},
    xdr::Reader,
};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Cause, Limits, Provider};

mod calls;
mod compound;
mod raw;

use calls::HANDLE_LEN;
pub use calls::{FILE, ROOT};
pub(in crate::targets) use calls::{create_call, created, mount_call, mounted, with_handles};
pub use compound::{CACHE_THIS, STAND_INS, TWICE, WHOLE, compound};
use raw::Raw;

use super::InputVerdict;
use crate::{
    mutate::{parts, push_part},
    octets::{emitted, written},
};

/// Handles of segments that are to be memory of the peer begin with this octet.
const OWN: u32 = 0xf0;
/// Octets of the longest piece of such memory.
const WINDOW_MAX: u32 = 1 << 14;

const LIMITS: Limits = Limits { send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };
const RECEIVES: usize = 32;
const MESSAGE_MAX: usize = 4096;
/// Private data of a new connection: 4 KiB both ways, and remote invalidation.
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

/// A shard and a peer.
struct ShardWorld<A: App> {
    fabric: Fabric,
    shard: Shard<Sim, A>,
    raw: Raw,
    now: Time,
    private_data: Vec<u8>,
}

impl<A: App> ShardWorld<A> {
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
struct ShardServer {
    world: ShardWorld<Gateway<Memory>>,
    port: Port,
    root: Vec<u8>,
    file: Vec<u8>,
}

/// A store with one export.
fn gateway_store() -> Memory {
    let export = MemoryExport { name: "data".to_owned(), copy_of: None, read_only: false };
    let config = memory::MemoryConfig::new(vec![export], memory::CAPACITY_MIN);
    Memory::new(&config, &mut |_| ()).expect("a MiB")
}

/// A gateway over memory, with one export.
pub(super) fn gateway_app() -> Gateway<Memory> {
    Gateway::new(gateway_store())
}

impl ShardServer {
    fn new() -> Self {
        let mut world = ShardWorld::new(gateway_app());
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
        (raw.qp, raw.ended) =
            (Some(raw.end.connect(&self.port, private_data).expect("there is room")), None);
        raw.received.clear();
        self.world.settle();
    }

    fn ask(&mut self, payload: Vec<u8>) -> Vec<u8> {
        let xid = Xid(u32::from_be_bytes(*payload.first_chunk().expect("a call")));
        let header = Header { xid, credits: Credits(1), body: Body::Msg };
        let message = [emitted(&header, &ChunkLists::new()), payload].concat();
        self.world.raw.send(&message, None);
        self.world.settle();
        let reply = self.world.raw.received.pop_front().expect("a reply");
        reply[v1::HEADER_LEN_MIN..].to_vec()
    }
}

thread_local! {
    // Taking the memory of a shard takes longer than a connection. After a panic there is a fresh
    // one.
    static SERVER: RefCell<Option<ShardServer>> = const { RefCell::new(None) };
    static CALLER: RefCell<Option<ShardWorld<Caller>>> = const { RefCell::new(None) };
}

/// Drops what this thread kept of the inputs before: what a gateway stores, the numbers that a
/// fabric drew.
pub(super) fn forget() {
    SERVER.set(None);
    CALLER.set(None);
    compound::forget();
}

/// A connection to a gateway's shard: private data, then messages. The first of the four octets in
/// front of a message says whether its answer is awaited (1), whether the next part is what its
/// Read chunks hold (2), and whether the peer leaves then (4).
pub fn gateway(input: &[u8]) -> InputVerdict {
    let mut server = SERVER.take().unwrap_or_else(ShardServer::new);
    let mut parts = parts(input);
    server.connect(parts.next().unwrap_or_default());
    let mut sent: BTreeMap<u32, usize> = BTreeMap::new();
    let mut answers = PeerAnswers::default();
    while let Some(part) = parts.next() {
        let Some(([flags, ..], message)) = part.split_first_chunk::<4>() else { continue };
        let mut content =
            if flags & 2 == 2 { parts.next().unwrap_or_default().to_vec() } else { Vec::new() };
        with_handles(&mut content, &server.root, &server.file);
        let mut lists = ChunkLists::new();
        let mut octets = match v1::parse(message, &mut lists) {
            Ok((header, at)) if !matches!(header.body, Body::Error(_)) => {
                let lists = server.world.raw.dress(&lists, &content);
                [emitted(&header, &lists), message[at..].to_vec()].concat()
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

/// Answers that came back.
#[derive(Default)]
struct PeerAnswers {
    replies: usize,
    errors: usize,
    /// Digest of the replies, independent of their order.
    class: u64,
}

impl PeerAnswers {
    /// Each is for a message that was sent, and for none twice (RFC 8166 §4.5).
    fn take(&mut self, received: &mut VecDeque<Vec<u8>>, sent: &mut BTreeMap<u32, usize>) {
        for message in received.drain(..) {
            let xid = u32::from_be_bytes(*message.first_chunk().expect("a header"));
            let left =
                sent.get_mut(&xid).filter(|left| **left > 0).expect("one reply for one call");
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
                    self.class ^= super::class((
                        format!("{:?}", reply.outcome),
                        status,
                        lists.segments().len(),
                    ));
                    self.replies += 1;
                }
            }
        }
    }

    fn verdict(&self, ended: Option<Cause>) -> InputVerdict {
        let ended = ended.map(|cause| format!("{cause:?}"));
        if self.replies == 0 {
            InputVerdict::Refused(super::class((self.errors.min(3), ended)))
        } else {
            InputVerdict::accepted((self.class, self.replies.min(4), self.errors.min(3), ended))
        }
    }
}

/// Calls that are made in [`requester`]: octets to echo.
const CALLS: [Option<usize>; 4] = [None, Some(100), Some(4_000), Some(9_000)];

/// A connection of a caller's shard: private data, then what claims to be replies. The four octets
/// in front of each: the first says whether the call's XID goes in front (1), into the RPC message
/// (2), whether the call's chunks are returned (4), whether the reply invalidates a key of the call
/// (8) or another one (16), and whether what happens is awaited (32); the fourth says which call.
pub fn requester(input: &[u8]) -> InputVerdict {
    let mut parts = parts(input);
    let mut world = CALLER.take().unwrap_or_else(|| ShardWorld::new(Caller::default()));
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
        InputVerdict::accepted((class, lost))
    } else {
        InputVerdict::Refused(super::class((class, lost)))
    }
}

fn call(world: &mut ShardWorld<Caller>, peer: PeerId) {
    let octets = [0x33; 9_000];
    world.shard.with_app(|_, cx| {
        for (number, len) in (0..).zip(CALLS) {
            assert!(
                Caller::call(cx, peer, Token(number), len.map(|len| &octets[..len])),
                "there is memory"
            );
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
    let Ok((mut header, at)) = v1::parse(message, &mut lists) else {
        return (message.to_vec(), key);
    };
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
    let mut out = emitted(&header, &lists);
    out.append(&mut payload);
    (out, key)
}

/// Makes the answers of a well-behaved peer, so that a session begins with accepted replies.
pub fn good_replies() -> Vec<u8> {
    let mut input = Vec::new();
    push_part(&mut input, &OFFER);
    for (which, len) in (0..).zip(CALLS) {
        let header = Header { xid: Xid(0), credits: Credits(8), body: Body::Msg };
        let mut part = vec![1 | 2 | 4 | 8 | 32, 0, 0, which];
        part.extend(emitted(&header, &ChunkLists::new()));
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
