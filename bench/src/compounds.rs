//! A gateway to a store in memory and a client of it in one thread, for the same request by version
//! 4 and by version 3: SEQUENCE, PUTFH and GETATTR or READ, against GETATTR or READ.

use crate::counted::measured;
use stag_engine::{
    App, Call, Cause, Config, Cx, Outcome, PeerId, Request as CallRequest, Room, Shard, Token,
    clock::Clock,
};
use stag_iwarp::{Iwarp, IwarpConfig};
use stag_nfs::{Gateway, Nfs4Config};
use stag_nfs_store::{
    Procedures as _, Store as _, WritePayload,
    memory::{Memory, MemoryConfig, MemoryExport},
};
use stag_nfs4_state::DelegationPolicy;
use stag_pools::Buf;
use stag_protocol::{
    nfs::{
        v3::{CreateHow, FileHandle, GetAttrArgs, ReadArgs, SetAttributes, StableHow},
        v4::{
            Answer, Array, COMPOUND, CallbackSecurity, ChannelAttributes, ClientOwner,
            CompoundReply, CreateSessionArgs, ExchangeIdArgs, Read4Args, Request, STAT_ATTRIBUTES,
            SequenceArgs, SessionId, StateProtection, Stateid, Text,
        },
    },
    rpc::{Auth, AuthSys, CallHeader, Credential, Gids, ReplyHeader, Xid},
    xdr::{Codec as _, NoRoom, Reader, Writer},
};
use stag_shm::{Shm, ShmAddress, ShmConfig};
use stag_verbs::{Limits, Provider};
use std::{fmt, io, str::FromStr, time::Duration};

/// Calls in flight at a time: each has a slot of its own.
const DEPTH: usize = 32;
/// Octets of the file, and of the longest READ.
pub const LEN: usize = 65_536;
/// Key from which both fabrics make theirs.
pub(crate) const KEY: [u8; 32] = [7; 32];

/// Properties of version 4.
pub const NFS4: Nfs4Config = Nfs4Config {
    lease: Duration::from_secs(3_600),
    epoch: 1,
    identity: [1; 16],
    delegations: DelegationPolicy::Never,
    started: 1,
    key: [3; 16],
    cluster: None,
};

/// The question that is asked again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// By version 4, or by version 3.
    pub is_nfs4: bool,
    /// READ of [`LEN`] octets, or GETATTR.
    pub reads: bool,
}

impl FromStr for Question {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (reads, version) = match text.split_once('/') {
            Some(("read-64k", version)) => (true, version),
            Some(("getattr", version)) => (false, version),
            _ => return Err("write getattr/VERSION or read-64k/VERSION"),
        };
        match version {
            "nfs3" => Ok(Self { is_nfs4: false, reads }),
            "nfs4" => Ok(Self { is_nfs4: true, reads }),
            _ => Err("write nfs3 or nfs4"),
        }
    }
}

/// The client: it keeps 32 calls in flight.
#[derive(Debug)]
pub struct Asker {
    peer: Option<PeerId>,
    file: FileHandle,
    session: SessionId,
    sequences: [u32; DEPTH],
    idle: Vec<usize>,
    done: u64,
    /// The last reply to a call of the preparation.
    reply: Option<Vec<u8>>,
}

/// Token of a call of the preparation.
const PREPARATION: Token = Token(u64::MAX);

impl App for Asker {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, _cx: &mut Cx<'_>, _call: Call<'_>) {}

    fn on_peer_up(&mut self, _cx: &mut Cx<'_>, peer: PeerId) {
        self.peer = Some(peer);
    }

    fn on_peer_down(&mut self, _cx: &mut Cx<'_>, _peer: PeerId, _cause: Cause) {
        self.peer = None;
    }

    fn on_reply(&mut self, _cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        let reply = outcome.reply.expect("the gateway answers");
        if outcome.token == PREPARATION {
            self.reply = Some(reply.to_vec());
            return;
        }
        let status = reply.get(ReplyHeader::LEN..).and_then(<[u8]>::first_chunk);
        assert_eq!(status, Some(&[0; 4]), "every call succeeds");
        self.done += 1;
        self.idle.push(usize::try_from(outcome.token.0).unwrap_or_default());
    }
}

impl Asker {
    /// Asks with every slot that is idle.
    fn ask(&mut self, cx: &mut Cx<'_>, question: Question) {
        let Some(peer) = self.peer else { return };
        while let Some(slot) = self.idle.pop() {
            let message = self.message(cx, question, slot);
            let result =
                question.reads.then(|| cx.room(LEN).expect("there is memory for every call"));
            cx.call(peer, call(message, result, Token(slot as u64)));
        }
    }

    fn message(&mut self, cx: &Cx<'_>, question: Question, slot: usize) -> Buf {
        let file = self.file;
        if !question.is_nfs4 {
            let procedure = if question.reads { 6 } else { 1 };
            return message(cx, Called { version: 3, procedure }, |writer| match question.reads {
                true => ReadArgs { file, offset: 0, count: LEN as u32 }.emit(writer),
                false => GetAttrArgs { object: file }.emit(writer),
            });
        }
        let sequence = self.sequences.get_mut(slot).map_or(0, |sequence| {
            *sequence += 1;
            *sequence
        });
        let sequence = Request::Sequence(SequenceArgs {
            session: self.session,
            sequence,
            slot: slot as u32,
            highest_slot: DEPTH as u32 - 1,
            cache_this: false,
        });
        let stateid = Stateid::ANONYMOUS;
        let last = match question.reads {
            true => Request::Read(Read4Args { stateid, offset: 0, count: LEN as u32 }),
            false => Request::GetAttr(STAT_ATTRIBUTES),
        };
        let put = Request::PutFh(Text(file.octets()));
        message(cx, COMPOUND_CALL, |writer| compound(writer, &[sequence, put, last]))
    }
}

/// Both ends, connected.
pub struct CompoundEnds<P: Provider> {
    /// Answers.
    pub server: Shard<P, Gateway<Memory>>,
    /// Asks.
    pub client: Shard<P, Asker>,
    clock: Clock,
    /// Directory of the socket; removed with the value.
    _home: Option<tempfile::TempDir>,
}

impl<P: Provider> fmt::Debug for CompoundEnds<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompoundEnds").field("client", self.client.app()).finish_non_exhaustive()
    }
}

/// Both ends over iWARP on loopback.
///
/// # Errors
/// As sockets and `mmap(2)` fail.
pub fn iwarp() -> io::Result<CompoundEnds<Iwarp>> {
    let clock = Clock::start();
    let provider = |limits| Iwarp::new(IwarpConfig::new(limits, KEY, clock.now()));
    let at = "iwarp://127.0.0.1:0".parse().expect("an address");
    CompoundEnds::connect(provider, &at, false, clock, None)
}

/// Both ends over shared memory, where the processes trust each other.
///
/// # Errors
/// As [`iwarp`].
pub fn shm_trusted() -> io::Result<CompoundEnds<Shm>> {
    let clock = Clock::start();
    let home = tempfile::tempdir()?;
    let at = ShmAddress::new(home.path().join("socket")).map_err(io::Error::other)?;
    let provider =
        |limits| Shm::new(ShmConfig { trust: true, ..ShmConfig::new(limits, KEY, clock.now()) });
    CompoundEnds::connect(provider, &at.trusting(), true, clock, Some(home))
}

impl<P: Provider> CompoundEnds<P> {
    fn connect(
        provider: impl Fn(Limits) -> io::Result<P>,
        at: &P::Address,
        shared: bool,
        clock: Clock,
        home: Option<tempfile::TempDir>,
    ) -> io::Result<Self> {
        let (store, StoredFile { file, .. }) = stored(shared)?;
        let config = || Config {
            grant: 64,
            calls_max: 64,
            receives: 512,
            inbound: 512,
            peers: 16,
            outbound: 64,
            slots: [1024, 64, 16],
            ..Config::default()
        };
        let pool = store.pool().cloned();
        let gateway = Gateway::new(store).with_nfs4(NFS4);
        let fabric = provider(config().limits(256))?;
        let mut server = Shard::new(fabric, gateway, config(), Box::new(|_| true))?;
        if let Some(pool) = &pool {
            server.register(pool)?;
        }
        let asker = Asker {
            peer: None,
            file,
            session: [0; 16],
            sequences: [0; DEPTH],
            idle: (0..DEPTH).collect(),
            done: 0,
            reply: None,
        };
        let fabric = provider(config().limits(256))?;
        let mut client = Shard::new(fabric, asker, config(), Box::new(|_| false))?;
        let at = server.listen(at).map_err(io::Error::other)?;
        client.connect(&at).map_err(io::Error::other)?;
        let mut ends = Self { server, client, clock, _home: home };
        while ends.client.app().peer.is_none() {
            ends.turn();
        }
        ends.begin_session();
        Ok(ends)
    }

    fn turn(&mut self) {
        let now = self.clock.now();
        if !(self.server.pass(now) | self.client.pass(now)) {
            std::thread::yield_now();
        }
    }

    fn prepare(&mut self, requests: &[Request<'_>]) -> Vec<u8> {
        self.client.with_app(|app, cx| {
            let message = message(cx, COMPOUND_CALL, |writer| compound(writer, requests));
            let peer = app.peer.expect("it is connected");
            cx.call(peer, call(message, None, PREPARATION));
        });
        loop {
            self.turn();
            if let Some(reply) = self.client.with_app(|app, _| app.reply.take()) {
                return reply.get(ReplyHeader::LEN..).unwrap_or_default().to_vec();
            }
        }
    }

    fn begin_session(&mut self) {
        let exchange = Request::ExchangeId(ExchangeIdArgs {
            client: ClientOwner { verifier: [1; 8], owner: Text(b"counted") },
            flags: 0,
            protection: StateProtection::None,
            implementation: None,
        });
        let reply = self.prepare(&[exchange]);
        let Some(Answer::ExchangeId(Ok(known))) = last(&reply) else { panic!("EXCHANGE_ID") };
        let channel = ChannelAttributes {
            header_pad: 0,
            request_max: 1_049_620,
            response_max: 1_049_480,
            response_cached_max: 2_048,
            operations_max: 8,
            requests_max: DEPTH as u32,
            rdma_ird: None,
        };
        let create = Request::CreateSession(CreateSessionArgs {
            client_id: known.client_id,
            sequence: known.sequence,
            flags: 0,
            fore: channel,
            back: channel,
            program: 0x4000_0000,
            security: Array::of(&[CallbackSecurity::None]),
        });
        let reply = self.prepare(&[create]);
        let Some(Answer::CreateSession(Ok(made))) = last(&reply) else { panic!("CREATE_SESSION") };
        self.client.with_app(|app, _| app.session = made.session);
    }

    /// Makes `calls` calls, of which callgrind counts the work of the server's loop, including
    /// passes that find nothing.
    pub fn run(&mut self, question: Question, calls: u64) {
        self.ask(question, 4 * DEPTH as u64, &mut |serve| serve());
        self.ask(question, calls, &mut measured);
    }

    /// Makes `calls` calls; every pass of the server goes through `watch`.
    pub fn ask(&mut self, question: Question, calls: u64, watch: &mut dyn FnMut(&mut dyn FnMut())) {
        let until = self.client.app().done + calls;
        while self.client.app().done < until {
            let now = self.clock.now();
            self.client.with_app(|app, cx| app.ask(cx, question));
            self.client.pass(now);
            let server = &mut self.server;
            watch(&mut || {
                server.pass(now);
            });
        }
        while self.client.app().idle.len() < DEPTH {
            self.turn();
        }
    }
}

/// The last result of a reply.
fn last(reply: &[u8]) -> Option<Answer<'_>> {
    CompoundReply::parse(Reader::new(reply)).ok()?.last()?.ok()
}

/// A gateway that speaks version 4, to a store in memory with one file of [`LEN`] octets; and the
/// file.
///
/// # Errors
/// As `mmap(2)` fails.
pub fn gateway() -> io::Result<(Gateway<Memory>, StoredFile)> {
    let (store, stored) = stored(false)?;
    Ok((Gateway::new(store).with_nfs4(NFS4), stored))
}

/// Handles of the one file of a store.
#[derive(Clone, Copy, Debug)]
pub struct StoredFile {
    /// Its directory, where it has the only name.
    pub dir: FileHandle,
    /// The file, of [`LEN`] octets.
    pub file: FileHandle,
}

/// A store with one file.
pub(crate) fn stored(shared: bool) -> io::Result<(Memory, StoredFile)> {
    let failed = |status| io::Error::other(format!("the store says {status:?}"));
    let exports = vec![MemoryExport { name: "memory".to_owned(), copy_of: None, read_only: false }];
    let config = MemoryConfig { shared, ..MemoryConfig::new(exports, 16 << 20) };
    let mut store = Memory::new(&config, &mut |_| ()).map_err(io::Error::other)?;
    let dir = store.mount(b"/memory").map_err(failed)?;
    let how = CreateHow::Guarded(SetAttributes::default());
    let made = store.create(&dir, b"data", &(&how).into()).map_err(|made| failed(made.status))?;
    let payload = WritePayload::from(&[7; LEN][..]);
    store
        .write(&made.handle, 0, payload, StableHow::FileSync)
        .map_err(|done| failed(done.status))?;
    Ok((store, StoredFile { dir, file: made.handle }))
}

/// Version and procedure of a call of NFS.
#[derive(Clone, Copy, Debug)]
struct Called {
    version: u32,
    procedure: u32,
}

const COMPOUND_CALL: Called = Called { version: 4, procedure: COMPOUND };

fn message(
    cx: &Cx<'_>,
    Called { version, procedure }: Called,
    arguments: impl FnOnce(&mut Writer<'_>) -> Result<(), NoRoom>,
) -> Buf {
    let gids = Gids::new(&[]).expect("no groups are few");
    let sys = AuthSys { stamp: 1, machine_name: b"client", uid: 0, gid: 0, gids };
    let header = CallHeader {
        xid: Xid(0),
        program: 100_003,
        version,
        procedure,
        credential: Credential::Sys(sys),
        verifier: Auth::NONE,
    };
    let mut message = cx.message(1_024).expect("there is memory for every call");
    let mut writer = Writer::new(message.spare_mut());
    header.emit(&mut writer).and_then(|()| arguments(&mut writer)).expect("a call fits");
    let len = writer.len();
    message.extend(len);
    message
}

fn compound(writer: &mut Writer<'_>, requests: &[Request<'_>]) -> Result<(), NoRoom> {
    writer.opaque(b"")?;
    writer.words([1, u32::try_from(requests.len()).unwrap_or(u32::MAX)])?;
    requests.iter().try_for_each(|request| request.emit(writer))
}

fn call(message: Buf, result: Option<Room>, token: Token) -> CallRequest {
    let timeout = Duration::from_secs(60);
    CallRequest { message, item: None, reply_max: 1_024, result, timeout, token }
}
