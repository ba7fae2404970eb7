//! Compounds of version 4 for a gateway's interpreter: a client with a session, whose operations
//! are those of an input.

use std::cell::RefCell;

use stag_nfs::{Gateway, Nfs4Config};
use stag_nfs_store::memory::Memory;
use stag_nfs4_state::DelegationPolicy;
use stag_protocol::{
    nfs::v4::{
        self, Answer, AnswerSet, Array, CallbackSecurity, ChannelAttributes, ClientOwner,
        CompoundHead, CompoundReply, CreateHow4, CreateSessionArgs, ExchangeIdArgs, Open4Args,
        OpenClaim, OpenHow, Operation, RawAttributes, Request, SequenceArgs, SessionId, StateOwner,
        StateProtection, Status4, Text, share,
    },
    rpc::{Accepted, Auth, Credential, MessageType, Outcome, ReplyHeader},
    rpcrdma::{Body, ChunkLists, Credits, Header, Xid, v1},
    xdr::{Codec as _, Reader},
};
use stag_sim::Port;
use stag_verbs::Provider as _;

use super::{OFFER, ShardWorld, gateway_store};
use crate::{
    mutate::parts,
    octets::{Called, emitted, written},
    targets::{InputVerdict, class, nfs4},
};

/// Stand-ins for values that the server gave: the handles of the export and of a file, the session,
/// the stateid of an open, the client ID. None begins as another one does.
pub const STAND_INS: StandIns = StandIns {
    root: [b'R'; 40],
    file: [b'F'; 40],
    session: [b'S'; 16],
    open: [b'O'; 16],
    client: [b'C'; 8],
};

/// Names that the server gave, or octets in place of them.
#[derive(Clone, Copy, Debug)]
pub struct StandIns {
    /// The export's directory.
    pub root: [u8; 40],
    /// A file in it.
    pub file: [u8; 40],
    /// The session.
    pub session: SessionId,
    /// An open of the file, for reading and writing.
    pub open: [u8; 16],
    /// The client ID.
    pub client: [u8; 8],
}

/// The reply is to be cached.
pub const CACHE_THIS: u8 = 1;
/// The octets are whole arguments of COMPOUND, and not operations after a SEQUENCE.
pub const WHOLE: u8 = 2;
/// The request is sent again, and has to have the same reply.
pub const TWICE: u8 = 4;

/// Octets of the longest reply that the session allows.
const REPLY_MAX: u32 = 3_000;

struct CompoundServer {
    world: ShardWorld<Gateway<Memory>>,
    port: Port,
    xid: u32,
    verifier: u64,
    given: StandIns,
    sequence: u32,
}

thread_local! {
    static SERVER: RefCell<Option<CompoundServer>> = const { RefCell::new(None) };
}

pub(super) fn forget() {
    SERVER.set(None);
}

/// Compounds of one client, each after two octets: what is done with it, and how many operations
/// it says to have. A client with a new verifier begins: nothing is left of the one before.
pub fn compound(input: &[u8]) -> InputVerdict {
    let mut server = SERVER.take().unwrap_or_else(CompoundServer::new);
    server.connect();
    if !server.set_up() {
        // Records of clients that inputs made up are in the way.
        server = CompoundServer::new();
        server.connect();
        assert!(server.set_up(), "a fresh server takes a client");
    }
    let mut seen = Vec::new();
    for part in parts(input).take(16) {
        let Some(([flags, count], octets)) = part.split_first_chunk::<2>() else { continue };
        match server.run(*flags, u32::from(*count), octets) {
            Some(status) => seen.push(status),
            None => break,
        }
    }
    server.world.settle();
    let report = server.world.shard.snapshot().app.nfs4;
    assert_eq!(report.busy_slots, 0, "every compound has given its slot back");
    server.world.end();
    SERVER.set(Some(server));
    let last = seen.last().copied();
    match seen.contains(&Status4::Ok) {
        true => InputVerdict::accepted((seen.len().min(4), last)),
        false => InputVerdict::Refused(class(last)),
    }
}

impl CompoundServer {
    fn new() -> Self {
        let config = Nfs4Config {
            lease: std::time::Duration::from_secs(90),
            epoch: 7,
            identity: [5; 16],
            delegations: DelegationPolicy::ReadWrite,
            started: 1_000,
            key: [3; 16],
            cluster: None,
        };
        let mut world = ShardWorld::new(Gateway::new(gateway_store()).with_nfs4(config));
        let port = world.shard.listen(&Port(0)).expect("nobody else listens");
        Self { world, port, xid: 0, verifier: 0, given: STAND_INS, sequence: 0 }
    }

    fn connect(&mut self) {
        let raw = &mut self.world.raw;
        raw.qp = Some(raw.end.connect(&self.port, &OFFER).expect("there is room"));
        raw.ended = None;
        raw.received.clear();
        self.world.settle();
    }

    /// Sends the arguments of a COMPOUND; the results if it was carried out, none if it was
    /// refused, or its caller has no connection any more.
    fn ask(&mut self, arguments: &[u8]) -> Option<Vec<u8>> {
        self.world.raw.qp?;
        self.xid += 1;
        let called = Called { program: 100_003, version: 4, procedure: v4::COMPOUND };
        let header = called.header(self.xid, Credential::None, Auth::NONE);
        let mut payload = written(|writer| header.emit(writer));
        payload.extend(arguments);
        let xid = Xid(self.xid);
        let transport = Header { xid, credits: Credits(1), body: Body::Msg };
        let message = [emitted(&transport, &ChunkLists::new()), payload].concat();
        self.world.raw.send(&message, None);
        self.world.settle();
        let received = std::mem::take(&mut self.world.raw.received);
        let mut replies = received.iter().filter_map(|message| {
            let mut lists = ChunkLists::new();
            let (header, at) = v1::parse(message, &mut lists).expect("the server's own header");
            let peeked = MessageType::peek(&Reader::new(&message[at..]));
            // Callbacks of sessions that an input made are not answered.
            let is_reply = header.body == Body::Msg && peeked == Ok((xid, MessageType::Reply));
            is_reply.then(|| &message[at..])
        });
        let reply = replies.next()?;
        assert!(replies.next().is_none(), "one reply for one call");
        let outcome = ReplyHeader::parse(&mut Reader::new(reply)).expect("a reply").outcome;
        let is_accepted = outcome == Outcome::accepted(Accepted::Success);
        assert!(is_accepted || outcome == Outcome::accepted(Accepted::GarbageArgs));
        is_accepted.then(|| reply[ReplyHeader::LEN..].to_vec())
    }

    /// Arguments of COMPOUND with these operations.
    fn arguments(count: u32, octets: &[u8]) -> Vec<u8> {
        let head = CompoundHead { tag: Text(b""), minor_version: 2, operations: count };
        let mut arguments = written(|writer| head.emit(writer));
        arguments.extend(octets);
        arguments
    }

    fn ask_requests(&mut self, requests: &[Request<'_>]) -> Option<Vec<u8>> {
        let octets = written(|writer| requests.iter().try_for_each(|request| request.emit(writer)));
        self.ask(&Self::arguments(requests.len() as u32, &octets))
    }

    /// A client, a session, and an open file; false if the server refuses one of them.
    fn set_up(&mut self) -> bool {
        self.verifier += 1;
        let verifier = self.verifier.to_be_bytes();
        let exchange = ExchangeIdArgs {
            client: ClientOwner { verifier, owner: Text(b"client") },
            flags: 0,
            protection: StateProtection::None,
            implementation: None,
        };
        let reply = self.ask_requests(&[Request::ExchangeId(exchange)]);
        let Some(Answer::ExchangeId(Ok(ok))) = last(reply.as_deref()) else { return false };
        let create = session_args(ok.client_id, ok.sequence);
        self.given.client = ok.client_id.to_be_bytes();
        let reply = self.ask_requests(&[Request::CreateSession(create)]);
        let Some(Answer::CreateSession(Ok(ok))) = last(reply.as_deref()) else { return false };
        (self.given.session, self.sequence) = (ok.session, 0);
        let complete = [self.next_sequence(false), Request::ReclaimComplete(false)];
        self.sequence += 1;
        self.ask_requests(&complete).is_some_and(|reply| status(&reply) == Some(Status4::Ok))
            && self.open()
    }

    fn open(&mut self) -> bool {
        let open = Open4Args {
            seqid: 0,
            share_access: share::BOTH,
            share_deny: 0,
            owner: StateOwner { client_id: 0, owner: Text(b"owner") },
            how: OpenHow::Create(CreateHow4::Unchecked(RawAttributes::default())),
            claim: OpenClaim::Null(Text(b"file")),
        };
        let requests = [
            self.next_sequence(false),
            Request::PutRootFh(()),
            Request::Lookup(Text(b"data")),
            Request::GetFh(()),
            Request::Open(open),
            Request::GetFh(()),
        ];
        self.sequence += 1;
        let Some(reply) = self.ask_requests(&requests) else { return false };
        let answers = CompoundReply::parse(Reader::new(&reply)).expect("a reply");
        for answer in answers.filter_map(Result::ok) {
            match answer {
                Answer::Open(Ok(ok)) => {
                    let octets = written(|writer| ok.stateid.emit(writer));
                    self.given.open = octets.try_into().expect("a stateid has 16 octets");
                }
                Answer::GetFh(Ok(handle)) => {
                    // The directory's comes first.
                    let handle = handle.0.try_into().expect("the memory store's handles");
                    self.given.root = std::mem::replace(&mut self.given.file, handle);
                }
                _ => {}
            }
        }
        status(&reply) == Some(Status4::Ok)
    }

    /// SEQUENCE of the next request.
    fn next_sequence(&self, cache_this: bool) -> Request<'static> {
        Request::Sequence(SequenceArgs {
            session: self.given.session,
            sequence: self.sequence + 1,
            slot: 0,
            highest_slot: 0,
            cache_this,
        })
    }

    /// Runs a compound; its status. None when the connection is gone.
    fn run(&mut self, flags: u8, count: u32, octets: &[u8]) -> Option<Status4> {
        let octets = self.replaced(octets);
        let cache_this = flags & CACHE_THIS != 0;
        let is_whole = flags & WHOLE != 0;
        let arguments = if is_whole {
            octets
        } else {
            let sequence = self.next_sequence(cache_this);
            let sequence = written(|writer| sequence.emit(writer));
            Self::arguments(count + 1, &[sequence, octets].concat())
        };
        let Some(reply) = self.ask(&arguments) else {
            return self.world.raw.qp.map(|_| Status4::BadXdr);
        };
        let begun = check(&arguments, &reply);
        if is_whole {
            return status(&reply);
        }
        assert!(reply.len() <= REPLY_MAX as usize, "{} octets", reply.len());
        self.sequence += u32::from(begun);
        if begun && flags & TWICE != 0 {
            self.retry(cache_this, &arguments, &reply);
        }
        status(&reply)
    }

    /// A retry has the reply of the first request if that is cached, and is never carried out.
    fn retry(&mut self, cache_this: bool, arguments: &[u8], first: &[u8]) {
        let Some(again) = self.ask(arguments) else { return };
        let is_gone = status(&again) == Some(Status4::BadSession);
        let answers = CompoundReply::parse(Reader::new(first)).expect("a reply").count();
        if cache_this || answers == 1 || is_gone {
            assert!(is_gone || again == first, "a retry has another reply");
        } else {
            assert!(CompoundReply::parse(Reader::new(&again)).expect("a reply").count() <= 2);
            assert_ne!(status(&again), Some(Status4::Ok));
        }
    }

    /// Puts names that the server gave in place of their stand-ins.
    fn replaced(&self, octets: &[u8]) -> Vec<u8> {
        let mut octets = octets.to_vec();
        let (from, to) = (&STAND_INS, &self.given);
        let pairs: [(&[u8], &[u8]); 5] = [
            (&from.root, &to.root),
            (&from.file, &to.file),
            (&from.session, &to.session),
            (&from.open, &to.open),
            (&from.client, &to.client),
        ];
        for (stand_in, given) in pairs {
            let mut at = 0;
            while let Some(found) =
                octets[at..].windows(stand_in.len()).position(|octets| octets == stand_in)
            {
                octets[at + found..][..given.len()].copy_from_slice(given);
                at += found + given.len();
            }
        }
        octets
    }
}

/// Checks that results are sound, and those of the operations that were asked for; true if the
/// request has begun: its SEQUENCE has results.
fn check(arguments: &[u8], reply: &[u8]) -> bool {
    // To nothing there are no results, which a client of ours would not take for a reply.
    let mut results = CompoundReply::parse(Reader::new(reply)).expect("a reply");
    let is_empty = results.head().status == Status4::Ok && results.next().is_none();
    let is_sound = is_empty || matches!(nfs4::reply(reply), InputVerdict::Accepted(_));
    assert!(is_sound, "results can be read: {reply:02x?}");
    let answers: Vec<_> =
        CompoundReply::parse(Reader::new(reply)).expect("a reply").map(Result::unwrap).collect();
    let Ok(requests) = v4::Compound::parse(Reader::new(arguments)) else { return false };
    assert!(answers.len() as u64 <= u64::from(requests.head().operations), "one for each at most");
    for (request, answer) in requests.zip(&answers) {
        match request {
            Ok(request) => assert_eq!(Some(request.operation()), operation(answer)),
            Err(fault) => assert_eq!(fault.status, answer.status()),
        }
    }
    matches!(answers.first(), Some(Answer::Sequence(Ok(_))))
}

/// The operation of results; none for one that is not defined.
fn operation(answer: &Answer<'_>) -> Option<Operation> {
    let octets = written(|writer| answer.emit(writer));
    octets.first_chunk().and_then(|number| Operation::new(u32::from_be_bytes(*number)))
}

fn status(reply: &[u8]) -> Option<Status4> {
    Some(CompoundReply::parse(Reader::new(reply)).ok()?.head().status)
}

fn last(reply: Option<&[u8]>) -> Option<Answer<'_>> {
    CompoundReply::parse(Reader::new(reply?)).ok()?.last()?.ok()
}

fn session_args(client_id: u64, sequence: u32) -> CreateSessionArgs<'static> {
    let fore = ChannelAttributes {
        header_pad: 0,
        request_max: 4_000,
        response_max: REPLY_MAX,
        response_cached_max: 2_000,
        operations_max: 64,
        requests_max: 4,
        rdma_ird: None,
    };
    CreateSessionArgs {
        client_id,
        sequence,
        flags: 0,
        fore,
        back: ChannelAttributes { operations_max: 2, response_cached_max: 0, ..fore },
        program: 0x4000_0000,
        security: Array::of(&[CallbackSecurity::None]),
    }
}
