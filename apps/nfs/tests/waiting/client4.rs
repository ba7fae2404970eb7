//! A client of version 4 in virtual time: one session, whose slots have a request each at a time.

use crate::waiting::world::{CONNECTIONS, World};
use stag_engine::{Cx, Request as CallRequest, RequestItem, Token};
use stag_nfs::Nfs4Config;
use stag_nfs4_state::DelegationPolicy;
use stag_protocol::{
    nfs::{
        Bulk,
        v3::{Call, FileHandle},
        v4::*,
    },
    rpc::{Auth, AuthSys, CallHeader, Credential, Gids, ReplyHeader, Xid},
    xdr::{Reader, Writer},
};
use std::time::Duration;

/// Properties of version 4 in the tests.
pub const CONFIG: Nfs4Config = Nfs4Config {
    // Calls hang for longer than a lease usually is.
    lease: Duration::from_secs(3_600),
    epoch: 7,
    identity: [5; 16],
    delegations: DelegationPolicy::Never,
    started: 1_000,
    key: [3; 16],
    cluster: None,
};

/// Time that a call may take, all reconnections included: longer than any call here takes.
const PATIENCE: Duration = Duration::from_secs(3_600);
/// Octets of a result that may come in a Write chunk.
pub const RESULT_MAX: usize = 20_000;

/// A session.
#[derive(Clone, Debug)]
pub struct Session4 {
    pub id: SessionId,
    client_id: u64,
    /// Sequence ID of the last CREATE_SESSION.
    created: u32,
    /// The last sequence ID of each slot.
    pub sequences: Vec<u32>,
}

impl Session4 {
    /// A session that was made by this CREATE_SESSION.
    pub fn of(made: &CreateSessionOk, client_id: u64) -> Self {
        let sequences = vec![0; made.fore.requests_max as usize];
        Self { id: made.session, client_id, created: made.sequence, sequences }
    }

    /// Makes a client and its session, in a world without losses.
    pub fn open(world: &mut World, client: usize) -> Self {
        Self::open_as(world, client, 0)
    }

    /// The same with flags of CREATE_SESSION.
    pub fn open_as(world: &mut World, client: usize, flags: u32) -> Self {
        Self::open_over(world, client, flags, 0)
    }

    /// The same over one of the client's connections.
    pub fn open_over(world: &mut World, client: usize, flags: u32, connection: u64) -> Self {
        Self::made(world, client, flags, connection, 1)
    }

    /// As [`open`](Self::open) by a client that has restarted.
    pub fn restart(world: &mut World, client: usize) -> Self {
        Self::made(world, client, 0, 0, 2)
    }

    fn made(world: &mut World, client: usize, flags: u32, connection: u64, life: u8) -> Self {
        // A connection has one credit before its first reply.
        for token in 0..CONNECTIONS as u64 {
            world.call(client, token, &Call::Null);
        }
        world.pass_time(Duration::from_millis(50));
        while world.take(client).is_some() {}
        let owner = [client as u8; 4];
        let args = ExchangeIdArgs {
            client: ClientOwner { verifier: [life; 8], owner: Text(&owner) },
            flags: 0,
            protection: StateProtection::None,
            implementation: None,
        };
        let exchange = |world: &mut World, requests: &[Request<'_>]| {
            exchange_over(world, client, connection, requests)
        };
        let reply = exchange(world, &[Request::ExchangeId(args)]);
        let Answer::ExchangeId(Ok(known)) = reply.last() else { panic!("{reply:?}") };
        let (client_id, created) = (known.client_id, known.sequence);
        let mut session = Self { id: [0; 16], client_id, created, sequences: vec![] };
        session.create(world, client, flags, connection);
        let complete = [session.next(0, false), Request::ReclaimComplete(false)];
        assert_eq!(exchange(world, &complete).status(), Status4::Ok);
        session
    }

    /// Makes another session of the same client.
    pub fn another(&self, world: &mut World, client: usize) -> Self {
        self.another_over(world, client, 0)
    }

    /// The same over one of the client's connections.
    pub fn another_over(&self, world: &mut World, client: usize, connection: u64) -> Self {
        let mut other = Self { created: self.created + 1, ..self.clone() };
        other.create(world, client, 0, connection);
        other
    }

    fn create(&mut self, world: &mut World, client: usize, flags: u32, connection: u64) {
        let create = CreateSessionArgs { flags, ..session_args(self.client_id, self.created) };
        let create = [Request::CreateSession(create)];
        let mut reply = exchange_over(world, client, connection, &create);
        while reply.status() == Status4::Delay {
            reply = exchange_over(world, client, connection, &create);
        }
        let Answer::CreateSession(Ok(made)) = reply.last() else { panic!("{reply:?}") };
        (self.id, self.sequences) = (made.session, vec![0; made.fore.requests_max as usize]);
    }

    /// SEQUENCE of a new request.
    pub fn next(&mut self, slot: usize, cache_this: bool) -> Request<'static> {
        self.sequences[slot] += 1;
        self.again(slot, cache_this)
    }

    /// SEQUENCE of the last request.
    pub fn again(&self, slot: usize, cache_this: bool) -> Request<'static> {
        let sequence = self.sequences[slot];
        let slot = slot as u32;
        let highest_slot = self.sequences.len() as u32 - 1;
        let session = self.id;
        Request::Sequence(SequenceArgs { session, sequence, slot, highest_slot, cache_this })
    }
}

/// Arguments of CREATE_SESSION without a back channel.
pub fn session_args(client_id: u64, sequence: u32) -> CreateSessionArgs<'static> {
    let channel = ChannelAttributes {
        header_pad: 0,
        request_max: 1_049_620,
        response_max: 1_049_480,
        response_cached_max: 2_048,
        operations_max: 16,
        requests_max: 64,
        rdma_ird: None,
    };
    CreateSessionArgs {
        client_id,
        sequence,
        flags: 0,
        fore: channel,
        back: channel,
        program: 0x4000_0000,
        security: Array::of(&[CallbackSecurity::None]),
    }
}

/// A reply from the status of its compound on.
#[derive(Debug)]
pub struct Reply4(Vec<u8>);

impl Reply4 {
    /// Of a whole RPC reply.
    pub fn of(reply: &[u8]) -> Self {
        Self(reply[ReplyHeader::LEN..].to_vec())
    }

    pub fn status(&self) -> Status4 {
        CompoundReply::parse(Reader::new(&self.0)).unwrap().head().status
    }

    pub fn answers(&self) -> Vec<Answer<'_>> {
        CompoundReply::parse(Reader::new(&self.0)).unwrap().map(Result::unwrap).collect()
    }

    pub fn last(&self) -> Answer<'_> {
        self.answers().pop().unwrap()
    }
}

/// A compound as the engine takes it: the octets of a WRITE, which is the last operation then, and
/// the room for those of a READ are items.
pub fn request(cx: &Cx<'_>, token: Token, requests: &[Request<'_>]) -> CallRequest {
    request_by(cx, token, b"client", requests)
}

/// The same with a machine name, which may stand for a proof (`gateway::flavors`).
fn request_by(
    cx: &Cx<'_>,
    token: Token,
    machine_name: &[u8],
    requests: &[Request<'_>],
) -> CallRequest {
    let gids = Gids::new(&[1000]).unwrap();
    let sys = AuthSys { stamp: 1, machine_name, uid: 1000, gid: 1000, gids };
    let header = CallHeader {
        xid: Xid(0),
        program: 100_003,
        version: 4,
        procedure: COMPOUND,
        credential: Credential::Sys(sys),
        verifier: Auth::NONE,
    };
    let mut message = cx.message(4_000).unwrap();
    let mut writer = Writer::new(message.spare_mut());
    header.emit(&mut writer).unwrap();
    writer.opaque(b"").unwrap();
    writer.words([1, requests.len() as u32]).unwrap();
    let mut item = None;
    for request in requests {
        match request {
            Request::Write(args) => {
                item = args.data.octets();
                let data = Bulk::Apart(args.data.len() as u32);
                Request::Write(Write4Args { data, ..*args }).emit(&mut writer).unwrap();
            }
            other => other.emit(&mut writer).unwrap(),
        }
    }
    let position = writer.len();
    message.extend(position);
    let item = item.map(|item| {
        let mut octets = cx.take(item.len()).unwrap();
        octets.append(item).unwrap();
        RequestItem { position, octets }
    });
    let is_read = requests.iter().any(|request| matches!(request, Request::Read(_)));
    let result = is_read.then(|| cx.room(RESULT_MAX).unwrap());
    let (reply_max, timeout) = (12_000, PATIENCE);
    CallRequest { message, item, reply_max, result, timeout, token }
}

/// Sends a compound, and makes steps until its reply is here.
pub fn exchange(world: &mut World, client: usize, requests: &[Request<'_>]) -> Reply4 {
    exchange_over(world, client, 0, requests)
}

/// The same over one of the client's connections.
pub fn exchange_over(
    world: &mut World,
    client: usize,
    connection: u64,
    requests: &[Request<'_>],
) -> Reply4 {
    exchange_by(world, b"client", (client, connection), requests)
}

/// The same with a machine name, which may stand for a proof (`gateway::flavors`).
pub fn exchange_by(
    world: &mut World,
    machine_name: &[u8],
    (client, connection): (usize, u64),
    requests: &[Request<'_>],
) -> Reply4 {
    let number = 1_000_000 + connection;
    world.send(client, number, |cx, token| request_by(cx, token, machine_name, requests));
    loop {
        if let Some((token, reply)) = world.take(client) {
            assert_eq!(token, number, "nothing else is under way");
            return Reply4::of(&reply);
        }
        world.step();
    }
}

/// PUTFH.
pub fn put(handle: &FileHandle) -> Request<'_> {
    Request::PutFh(Text(handle.octets()))
}

/// CREATE of a directory.
pub fn make_directory(name: &[u8]) -> Request<'_> {
    let kind = CreateKind::Directory;
    Request::Create(Create4Args { kind, name: Text(name), attributes: RawAttributes::default() })
}

/// OPEN for both, by a name that must not be there.
pub fn create(name: &[u8]) -> Request<'_> {
    Request::Open(Open4Args {
        seqid: 0,
        share_access: share::BOTH,
        share_deny: 0,
        owner: StateOwner { client_id: 0, owner: Text(b"owner") },
        how: OpenHow::Create(CreateHow4::Guarded(RawAttributes::default())),
        claim: OpenClaim::Null(Text(name)),
    })
}

/// OPEN for both, by a name that is there.
pub fn open(name: &[u8], deny: u32) -> Request<'_> {
    Request::Open(Open4Args {
        seqid: 0,
        share_access: share::BOTH,
        share_deny: deny,
        owner: StateOwner { client_id: 0, owner: Text(b"owner") },
        how: OpenHow::NoCreate,
        claim: OpenClaim::Null(Text(name)),
    })
}

/// READ with no state.
pub fn read(offset: u64, count: u32) -> Request<'static> {
    Request::Read(Read4Args { stateid: Stateid::ANONYMOUS, offset, count })
}

/// GETATTR of what Linux asks each time, nearly.
pub fn look() -> Request<'static> {
    Request::GetAttr(Bitmap::of([1, 3, 4, 8, 20, 33, 35, 36, 37, 45, 47, 52, 53]))
}
