//! Calls of NFS version 3 under AUTH_SYS and under RPCSEC_GSS: a gateway to a store in memory and a
//! client of it in one thread, over shared memory. The context needs no Kerberos: both ends are
//! given its key.

use crate::{
    compounds::{KEY, StoredFile, stored},
    counted::measured,
};
use stag_engine::{
    App, Call, Cause, Config, Cx, Outcome, PeerAddress, PeerId, Request, RequestItem, Shard, Token,
    clock::Clock,
    gss::{AcceptedContext, ContextAcceptor, ContextLimits, GssContexts, RefusedContext},
};
use stag_gss::{AcceptorContext, ContextKey, Enctype, InitiatorContext, Protection};
use stag_nfs::Gateway;
use stag_nfs_store::{Store as _, memory::Memory};
use stag_protocol::{
    nfs::v3::{FileHandle, GetAttrArgs, ReadArgs, StableHow},
    rpc::{
        Accepted, Auth, AuthSys, CallHeader, Credential, Gids, ReplyHeader, UnixUser, Xid,
        gss::{CREDENTIAL_MAX, GssCredential, GssService, InitResults, MajorStatus},
    },
    xdr::{Codec as _, NoRoom, Reader, Writer},
};
use stag_rpc::gss::{CalledProgram, ClientContext, ProtectedCall};
use stag_shm::{Shm, ShmAddress, ShmConfig};
use std::{fmt, hint::black_box, io, rc::Rc, str::FromStr, time::Duration};

/// Calls in flight at a time.
const DEPTH: usize = 8;
/// Octets of the longest READ and WRITE.
const LEN: usize = 1 << 20;
/// The program of NFS, and its version.
const NFS: (u32, u32) = (100_003, 3);
/// Octets of a reply without its data, at most.
const REPLY_MAX: usize = 1_024;
/// Services of RPCSEC_GSS, each of which has a context.
const SERVICES: [GssService; 3] = [GssService::None, GssService::Integrity, GssService::Privacy];

/// A procedure that is called again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecuredProcedure {
    /// NULL.
    Null,
    /// GETATTR of the file.
    GetAttr,
    /// READ of this number of octets.
    Read(usize),
    /// WRITE of this number of octets.
    Write(usize),
}

/// A procedure and the security flavor of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecuredCall {
    /// The procedure.
    pub procedure: SecuredProcedure,
    /// The service of RPCSEC_GSS; none for AUTH_SYS.
    pub service: Option<GssService>,
}

impl FromStr for SecuredCall {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const ERROR: &str = "write null|getattr|read-64k|write-64k|read-1m|write-1m, then \
                             /sys|/krb5|/krb5i|/krb5p";
        let (procedure, flavor) = text.split_once('/').ok_or(ERROR)?;
        let procedure = match procedure {
            "null" => SecuredProcedure::Null,
            "getattr" => SecuredProcedure::GetAttr,
            "read-64k" => SecuredProcedure::Read(64 << 10),
            "write-64k" => SecuredProcedure::Write(64 << 10),
            "read-1m" => SecuredProcedure::Read(LEN),
            "write-1m" => SecuredProcedure::Write(LEN),
            _ => return Err(ERROR),
        };
        let service = match flavor {
            "sys" => None,
            "krb5" => Some(GssService::None),
            "krb5i" => Some(GssService::Integrity),
            "krb5p" => Some(GssService::Privacy),
            _ => return Err(ERROR),
        };
        Ok(Self { procedure, service })
    }
}

/// Octets of every context's key.
const CONTEXT_KEY: [u8; 32] = [0x5a; 32];

fn context_key(enctype: Enctype) -> ContextKey<'static> {
    let octets = CONTEXT_KEY.get(..enctype.key_len()).unwrap_or(&CONTEXT_KEY);
    ContextKey { enctype, octets, acceptor_subkey: true }
}

fn initiator(enctype: Enctype) -> InitiatorContext {
    InitiatorContext::new(&context_key(enctype), 1).expect("the key has the length of its enctype")
}

fn acceptor(enctype: Enctype) -> AcceptorContext {
    AcceptorContext::new(&context_key(enctype)).expect("the key has the length of its enctype")
}

/// Accepts every token.
struct KnownKey(Enctype);

impl ContextAcceptor for KnownKey {
    fn accept(&mut self, _: &[u8], _: PeerAddress) -> Result<AcceptedContext, RefusedContext> {
        let gids = Gids::new(&[]).expect("no groups are few");
        Ok(AcceptedContext {
            context: acceptor(self.0),
            token: Vec::new(),
            principal: "alice@EXAMPLE.ORG".to_owned(),
            unix: Some(UnixUser { uid: 0, gid: 0, gids }),
            ends: u64::MAX,
        })
    }
}

/// The client: it keeps some calls in flight.
pub struct SecuredAsker {
    peer: Option<PeerId>,
    file: FileHandle,
    /// By service, once they are set up.
    contexts: Vec<Rc<ClientContext>>,
    idle: Vec<usize>,
    done: u64,
    /// The reply to the latest INIT.
    reply: Option<Vec<u8>>,
    /// Arguments of a WRITE.
    data: Vec<u8>,
}

impl fmt::Debug for SecuredAsker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecuredAsker").field("done", &self.done).finish_non_exhaustive()
    }
}

const INIT: Token = Token(u64::MAX);

impl App for SecuredAsker {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, _cx: &mut Cx<'_>, _call: Call<'_>) {}

    fn on_peer_up(&mut self, _cx: &mut Cx<'_>, peer: PeerId) {
        self.peer = Some(peer);
    }

    fn on_peer_down(&mut self, _cx: &mut Cx<'_>, _peer: PeerId, cause: Cause) {
        panic!("the connection ended: {cause:?}");
    }

    fn on_reply(&mut self, _cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        let reply = outcome.reply.expect("the gateway answers");
        if outcome.token == INIT {
            self.reply = Some(reply.to_vec());
            return;
        }
        let header = ReplyHeader::parse(&mut Reader::new(reply)).expect("it is a reply");
        let accepted = matches!(
            header.outcome,
            stag_protocol::rpc::Outcome::Accepted { status: Accepted::Success, .. }
        );
        assert!(accepted, "every call succeeds: {header:?}");
        self.done += 1;
        self.idle.push(usize::try_from(outcome.token.0).unwrap_or_default());
    }
}

impl SecuredAsker {
    /// Asks until [`DEPTH`] calls are in flight.
    fn ask(&mut self, cx: &mut Cx<'_>, call: SecuredCall) {
        while let Some(slot) = self.idle.pop() {
            self.send(cx, call, Token(slot as u64));
        }
    }

    fn send(&self, cx: &mut Cx<'_>, call: SecuredCall, token: Token) {
        const MEMORY: &str = "there is memory for every call";
        let Some(peer) = self.peer else { return };
        let SecuredCall { procedure, service } = call;
        let is_reduced = service.is_none_or(|service| service == GssService::None);
        let arguments = self.arguments(procedure, is_reduced);
        let read = if let SecuredProcedure::Read(len) = procedure { len } else { 0 };
        let protected = service.map(|service| {
            let context = self.contexts.get(service as usize - 1).expect("a context each");
            ProtectedCall::new(context, &arguments).expect("numbers are left")
        });
        let room = protected.as_ref().map_or(1_024 + arguments.len(), |call| call.message_len());
        let mut message = cx.message(room).expect(MEMORY);
        let mut writer = Writer::new(message.spare_mut());
        let (program, version) = NFS;
        let number = procedure.number();
        match &protected {
            Some(call) => {
                call.write(CalledProgram { program, version, procedure: number }, &mut writer)
            }
            None => header(number, Credential::Sys(system()))
                .emit(&mut writer)
                .and_then(|()| writer.fixed(&arguments)),
        }
        .expect("a call fits");
        let len = writer.len();
        message.extend(len);
        let item = match procedure {
            SecuredProcedure::Write(len) if is_reduced => {
                let mut octets = cx.take(len).expect(MEMORY);
                octets.reset(0);
                octets.extend(len);
                Some(RequestItem { position: message.len(), octets })
            }
            _ => None,
        };
        let result = (read > 0 && is_reduced).then(|| cx.room(read).expect(MEMORY));
        let reply_max = if is_reduced { REPLY_MAX } else { REPLY_MAX + read };
        let timeout = Duration::from_secs(60);
        let request = Request { message, item, reply_max, result, timeout, token };
        match protected {
            Some(call) => cx.call_signed(peer, request, call.signer()),
            None => cx.call(peer, request),
        }
    }

    fn arguments(&self, procedure: SecuredProcedure, is_reduced: bool) -> Vec<u8> {
        let file = self.file;
        let mut arguments = vec![0; 256];
        let mut writer = Writer::new(&mut arguments);
        let written = match procedure {
            SecuredProcedure::Null => Ok(()),
            SecuredProcedure::GetAttr => GetAttrArgs { object: file }.emit(&mut writer),
            SecuredProcedure::Read(len) => {
                ReadArgs { file, offset: 0, count: len as u32 }.emit(&mut writer)
            }
            SecuredProcedure::Write(len) => write_arguments(&mut writer, file, len as u32),
        };
        written.expect("arguments fit");
        let len = writer.len();
        arguments.truncate(len);
        if let SecuredProcedure::Write(len) = procedure
            && !is_reduced
        {
            arguments.extend_from_slice(self.data.get(..len).unwrap_or_default());
        }
        arguments
    }
}

/// Arguments of a WRITE up to its data.
fn write_arguments(writer: &mut Writer<'_>, file: FileHandle, len: u32) -> Result<(), NoRoom> {
    file.emit(writer)?;
    writer.u64(0)?;
    writer.words([len, StableHow::FileSync as u32, len])
}

impl SecuredProcedure {
    const fn number(self) -> u32 {
        match self {
            Self::Null => 0,
            Self::GetAttr => 1,
            Self::Read(_) => 6,
            Self::Write(_) => 7,
        }
    }
}

fn system() -> AuthSys<'static> {
    let gids = Gids::new(&[]).expect("no groups are few");
    AuthSys { stamp: 1, machine_name: b"client", uid: 0, gid: 0, gids }
}

const fn header(procedure: u32, credential: Credential<'_>) -> CallHeader<'_> {
    let (program, version) = NFS;
    CallHeader { xid: Xid(0), program, version, procedure, credential, verifier: Auth::NONE }
}

/// Both ends, connected, with a context for each service.
pub struct SecuredEnds {
    /// Answers.
    pub server: Shard<Shm, Gateway<Memory>>,
    client: Shard<Shm, SecuredAsker>,
    clock: Clock,
    enctype: Enctype,
    /// Directory of the socket; removed with the value.
    _home: tempfile::TempDir,
}

impl fmt::Debug for SecuredEnds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecuredEnds").field("client", self.client.app()).finish_non_exhaustive()
    }
}

impl SecuredEnds {
    /// Both ends over shared memory, where the processes trust each other. All contexts have keys
    /// of this enctype.
    ///
    /// # Errors
    /// As sockets and `mmap(2)` fail.
    pub fn connect(enctype: Enctype) -> io::Result<Self> {
        let clock = Clock::start();
        let home = tempfile::tempdir()?;
        let at = ShmAddress::new(home.path().join("socket")).map_err(io::Error::other)?;
        let provider = |limits| {
            Shm::new(ShmConfig { trust: true, ..ShmConfig::new(limits, KEY, clock.now()) })
        };
        let (store, StoredFile { file, .. }) = stored(true)?;
        let config = || Config {
            grant: 64,
            calls_max: 64,
            receives: 512,
            inbound: 512,
            peers: 16,
            outbound: 64,
            slots: [1_024, 64, 48],
            ..Config::default()
        };
        let pool = store.pool().cloned();
        let contexts = GssContexts::start(Box::new(KnownKey(enctype)), ContextLimits::default())?;
        let serving = Config { gss: Some(contexts), ..config() };
        let fabric = provider(serving.limits(256))?;
        let gateway = Gateway::new(store);
        let mut server = Shard::new(fabric, gateway, serving, Box::new(|_| true))?;
        if let Some(pool) = &pool {
            server.register(pool)?;
        }
        let asker = SecuredAsker {
            peer: None,
            file,
            contexts: Vec::new(),
            idle: (0..DEPTH).collect(),
            done: 0,
            reply: None,
            data: vec![7; LEN],
        };
        let fabric = provider(config().limits(256))?;
        let mut client = Shard::new(fabric, asker, config(), Box::new(|_| false))?;
        let at = server.listen(&at.trusting()).map_err(io::Error::other)?;
        client.connect(&at).map_err(io::Error::other)?;
        let mut ends = Self { server, client, clock, enctype, _home: home };
        while ends.client.app().peer.is_none() {
            ends.turn();
        }
        for service in SERVICES {
            ends.set_up(service);
        }
        // The file has the length of the longest READ from here on.
        let write = SecuredCall { procedure: SecuredProcedure::Write(LEN), service: None };
        ends.ask(write, 1, &mut |serve| serve());
        Ok(ends)
    }

    fn turn(&mut self) {
        let now = self.clock.now();
        if !(self.server.pass(now) | self.client.pass(now)) {
            std::thread::yield_now();
        }
    }

    /// Sets a context up (RFC 2203 §5.2).
    fn set_up(&mut self, service: GssService) {
        self.client.with_app(|app, cx| {
            let mut room = [0; CREDENTIAL_MAX];
            let body = GssCredential::Init.emit(&mut room).expect("a credential fits");
            let mut message = cx.message(256).expect("there is memory for every call");
            let mut writer = Writer::new(message.spare_mut());
            let header = header(0, Credential::Other(Auth::gss(body)));
            header.emit(&mut writer).and_then(|()| writer.opaque(b"token")).expect("it fits");
            let len = writer.len();
            message.extend(len);
            let timeout = Duration::from_secs(60);
            let request = Request {
                message,
                item: None,
                reply_max: REPLY_MAX,
                result: None,
                timeout,
                token: INIT,
            };
            cx.call(app.peer.expect("it is connected"), request);
        });
        let reply = loop {
            self.turn();
            if let Some(reply) = self.client.with_app(|app, _| app.reply.take()) {
                break reply;
            }
        };
        let mut reader = Reader::new(&reply);
        ReplyHeader::parse(&mut reader).expect("it is a reply");
        let results = InitResults::parse(&mut reader).expect("it has results");
        assert_eq!(results.major, MajorStatus::COMPLETE, "every token is accepted");
        let context = ClientContext::granted(initiator(self.enctype), results.handle, service);
        self.client.with_app(|app, _| app.contexts.push(Rc::new(context)));
    }

    /// Makes `calls` calls, of which callgrind counts the work of the server's loop, including
    /// passes that find nothing.
    pub fn run(&mut self, call: SecuredCall, calls: u64) {
        self.ask(call, 4 * DEPTH as u64, &mut |serve| serve());
        self.ask(call, calls, &mut measured);
    }

    /// Makes `calls` calls; every pass of the server goes through `watch`.
    pub fn ask(&mut self, call: SecuredCall, calls: u64, watch: &mut dyn FnMut(&mut dyn FnMut())) {
        let until = self.client.app().done + calls;
        while self.client.app().done < until {
            let now = self.clock.now();
            self.client.with_app(|app, cx| app.ask(cx, call));
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

    /// Nanoseconds that the server takes for each of `calls` calls.
    pub fn server_time(&mut self, call: SecuredCall, calls: u64) -> u64 {
        self.ask(call, 4 * DEPTH as u64, &mut |serve| serve());
        let (clock, mut spent) = (self.clock, Duration::ZERO);
        let before = self.client.app().done;
        self.ask(call, calls, &mut |serve| {
            let begun = clock.now();
            serve();
            spent += clock.now().since(begun);
        });
        let made = (self.client.app().done - before).max(1);
        spent.as_nanos() as u64 / made
    }

    /// Nanoseconds that the protection alone of each of `calls` calls takes.
    pub fn floor(&self, call: SecuredCall, calls: u64) -> u64 {
        floor(&self.clock, call, self.enctype, calls).as_nanos() as u64 / calls.max(1)
    }
}

/// The time that the protection of `calls` results, or of arguments, takes by itself.
fn floor(clock: &Clock, call: SecuredCall, enctype: Enctype, calls: u64) -> Duration {
    let Some(service) = call.service else { return Duration::ZERO };
    let (client, server) = (initiator(enctype), acceptor(enctype));
    let room = server.keys().room(service);
    let (len, is_read) = match call.procedure {
        SecuredProcedure::Read(len) => (len, true),
        SecuredProcedure::Write(len) => (len, false),
        SecuredProcedure::Null | SecuredProcedure::GetAttr => return Duration::ZERO,
    };
    let mut body = vec![7; room.front + len + room.back];
    let protection = Protection { service, sequence: 1, token_sequence: 1 };
    let mut spent = Duration::ZERO;
    for _ in 0..calls {
        if is_read {
            let begun = clock.now();
            server.keys().protect(&protection, &mut body, &[1; 16]).expect("it has its room");
            spent += clock.now().since(begun);
        } else {
            client.keys().protect(&protection, &mut body, &[1; 16]).expect("it has its room");
            let begun = clock.now();
            let opened = server.keys().unprotect(service, 1, &mut body);
            spent += clock.now().since(begun);
            assert!(opened.is_ok(), "it is opened by the same key");
        }
        black_box(&mut body);
    }
    spent
}
