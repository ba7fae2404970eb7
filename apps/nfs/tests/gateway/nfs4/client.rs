//! A client of version 4 with one session, whose calls go one after the other.

use crate::gateway::{
    client::{header, user},
    wire::{Message, OverFabric, OverTcp, ReplyInRooms, Wire},
};
use stag_engine::{CallFault, Config};
use stag_nfs::{Gateway, Nfs4Config, serve::start_records};
use stag_nfs_store::{
    files::Files,
    memory::{Memory, MemoryConfig, MemoryExport},
};
use stag_nfs4_state::DelegationPolicy;
use stag_protocol::{
    nfs::{Bulk, v4::*},
    rpc::{Accepted, Credential, Outcome, ReplyHeader},
    rpcrdma::{Version2, Versions},
    xdr::{Reader, Writer},
};
use stag_sim::{Fabric, Faults};
use std::time::Duration;

/// Properties of version 4 in the tests.
pub const CONFIG: Nfs4Config = Nfs4Config {
    lease: Duration::from_secs(90),
    epoch: 7,
    identity: [5; 16],
    delegations: DelegationPolicy::Never,
    started: 1_000,
    key: [3; 16],
    cluster: None,
};

/// An export that can be written to.
pub struct ServedExport {
    pub name: &'static [u8],
    /// Everything that its server needs to stay.
    pub home: Box<dyn std::any::Any>,
}

pub struct Client4 {
    pub wire: Box<dyn Wire>,
    pub minor: u32,
    pub id: u64,
    pub session: SessionId,
    pub credential: Credential<'static>,
    /// Octets of the Write chunk that calls offer. A result in the chunk ends the reply: nothing
    /// may follow it.
    pub result_max: usize,
    /// The last sequence ID of each slot.
    pub sequences: [u32; 64],
    /// The name of an export that can be written to.
    pub export: &'static [u8],
    /// Everything that the server needs to stay.
    _home: Box<dyn std::any::Any>,
}

impl ServedExport {
    pub fn new(name: &'static [u8], home: impl std::any::Any) -> Self {
        Self { name, home: Box::new(home) }
    }
}

/// The difference between clients on the same connection.
pub struct Identity {
    id: u64,
    session: SessionId,
    sequences: [u32; 64],
}

/// A reply: its octets from the status of the compound on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply4(pub Vec<u8>);

impl Reply4 {
    pub fn status(&self) -> Status4 {
        CompoundReply::parse(Reader::new(&self.0)).unwrap().head().status
    }

    /// The results of all operations.
    pub fn answers(&self) -> Vec<Answer<'_>> {
        let mut reply = CompoundReply::parse(Reader::new(&self.0)).unwrap();
        let answers: Vec<_> = reply.by_ref().map(|answer| answer.unwrap()).collect();
        reply.finish().unwrap();
        answers
    }

    /// The results of the last operation.
    pub fn last(&self) -> Answer<'_> {
        self.answers().pop().unwrap()
    }
}

/// A store in memory with an export `memory`, and one `fixed` that is read-only.
pub fn memory() -> Memory {
    let export =
        |name: &str, read_only| MemoryExport { name: name.to_owned(), copy_of: None, read_only };
    let config = MemoryConfig::new(vec![export("memory", false), export("fixed", true)], 8 << 20);
    Memory::new(&config, &mut |_| ()).unwrap()
}

impl Client4 {
    /// On a server in memory, over the fabric.
    pub fn in_memory() -> Self {
        let gateway = Gateway::new(memory()).with_nfs4(CONFIG);
        Self::on(
            Box::new(OverFabric::new(gateway, Config::small())),
            ServedExport::new(b"memory", ()),
            1,
        )
    }

    /// On servers with both kinds of stores, over the fabric, in both versions of RPC-over-RDMA.
    pub fn over_fabric() -> Vec<Self> {
        let both = [Versions::One, Versions::Two(Version2::Directed)];
        let clients = both.into_iter().flat_map(|call_versions| {
            let calling = Config { call_versions, ..Config::small() };
            let fabric = || Fabric::new(1, Faults::DELAYS);
            let gateway = Gateway::new(memory()).with_nfs4(CONFIG);
            let wire = OverFabric::calling(fabric(), gateway, Config::small(), calling.clone());
            let in_memory = Self::on(Box::new(wire), ServedExport::new(b"memory", ()), 1);
            let home = crate::gateway::client::Home::new();
            let gateway: Gateway<Files> = home.gateway().with_nfs4(CONFIG);
            let wire = OverFabric::calling(fabric(), gateway, Config::small(), calling);
            [in_memory, Self::on(Box::new(wire), ServedExport::new(b"data", home), 2)]
        });
        clients.collect()
    }

    /// On servers of all kinds, over both transports, in both minor versions.
    pub fn all() -> Vec<Self> {
        let on_files = |minor| {
            let home = crate::gateway::client::Home::new();
            let gateway: Gateway<Files> = home.gateway().with_nfs4(CONFIG);
            (gateway, home, minor)
        };
        let (gateway, home, minor) = on_files(2);
        let tcp = Box::new(OverTcp::new(gateway, Config::small()));
        let over_tcp = Self::on(tcp, ServedExport::new(b"data", home), minor);
        let (gateway, home, minor) = on_files(1);
        let fabric = Box::new(OverFabric::new(gateway, Config::small()));
        let over_fabric = Self::on(fabric, ServedExport::new(b"data", home), minor);
        vec![Self::in_memory(), over_tcp, over_fabric, super::ceph::client(2)]
    }

    /// On a server in memory that gives delegations, over the fabric.
    pub fn delegated(minor: u32) -> Self {
        let config = Nfs4Config { delegations: DelegationPolicy::ReadWrite, ..CONFIG };
        let gateway = Gateway::new(memory()).with_nfs4(config);
        let fabric = Box::new(OverFabric::new(gateway, Config::small()));
        Self::on(fabric, ServedExport::new(b"memory", ()), minor)
    }

    /// Goes on as another client over the same connection, whose state is kept in `other`; the
    /// first time, that client is made.
    pub fn swap(&mut self, other: &mut Option<Identity>) {
        let made = other.take();
        let now = Identity { id: self.id, session: self.session, sequences: self.sequences };
        *other = Some(now);
        if let Some(Identity { id, session, sequences }) = made {
            (self.id, self.session, self.sequences) = (id, session, sequences);
            return;
        }
        let (id, sequence) = self.exchange_id(b"the other client", 1).unwrap();
        self.id = id;
        self.session = self.create_session(sequence).unwrap().session;
        self.sequences = [0; 64];
        let complete = self.run(&[Request::ReclaimComplete(false)]);
        assert_eq!(complete.status(), Status4::Ok);
    }

    /// On servers of both kinds, in minor version 2.
    pub fn newest() -> Vec<Self> {
        let gateway = Gateway::new(memory()).with_nfs4(CONFIG);
        let fabric = Box::new(OverFabric::new(gateway, Config::small()));
        let home = crate::gateway::client::Home::new();
        let files: Gateway<Files> = home.gateway().with_nfs4(CONFIG);
        let tcp = Box::new(OverTcp::new(files, Config::small()));
        let in_memory = Self::on(fabric, ServedExport::new(b"memory", ()), 2);
        vec![in_memory, Self::on(tcp, ServedExport::new(b"data", home), 2)]
    }

    /// On the files of a home, over TCP.
    pub fn on_files(home: crate::gateway::client::Home) -> Self {
        let gateway: Gateway<Files> = home.gateway().with_nfs4(CONFIG);
        let wire = Box::new(OverTcp::new(gateway, Config::small()));
        Self::on(wire, ServedExport::new(b"data", home), 2)
    }

    /// On the files of a home that only this server changes, over TCP.
    pub fn on_exclusive_files(home: crate::gateway::client::Home) -> Self {
        let gateway: Gateway<Files> = home.gateway().with_nfs4(CONFIG);
        let gateway = gateway.with_exclusive(&["data".to_owned()]);
        let wire = Box::new(OverTcp::new(gateway, Config::small()));
        Self::on(wire, ServedExport::new(b"data", home), 2)
    }

    /// On a server with files whose records a thread keeps, over TCP.
    pub fn recorded() -> Self {
        let home = crate::gateway::client::Home::new();
        let gateway = home.gateway();
        let records = start_records(&home.path("state"), CONFIG.lease).unwrap();
        let config = Nfs4Config { epoch: records.boot.epoch, ..CONFIG };
        let gateway = gateway.with_nfs4(config).with_records(records);
        let wire = Box::new(OverTcp::new(gateway, Config::small()));
        Self::on(wire, ServedExport::new(b"data", home), 2)
    }

    /// Of a server over this wire that has an export.
    pub fn on(wire: Box<dyn Wire>, export: ServedExport, minor: u32) -> Self {
        let mut client = Self {
            wire,
            minor,
            id: 0,
            session: [0; 16],
            credential: user(),
            result_max: 0,
            sequences: [0; 64],
            export: export.name,
            _home: export.home,
        };
        client.id = client.exchange_id(b"client", 1).unwrap().0;
        client.session = client.create_session(1).unwrap().session;
        let complete = client.run(&[Request::ReclaimComplete(false)]);
        assert_eq!(complete.status(), Status4::Ok);
        client
    }

    /// The name of an export that can be written to.
    pub fn export(&self) -> &'static [u8] {
        self.export
    }

    /// Sends a compound as it stands, and takes its reply.
    pub fn send(&mut self, requests: &[Request<'_>]) -> Reply4 {
        let octets = self.encode(requests);
        self.send_octets(&octets)
    }

    pub fn encode(&self, requests: &[Request<'_>]) -> Vec<u8> {
        encode(self.credential, self.minor, requests)
    }

    pub fn send_octets(&mut self, octets: &[u8]) -> Reply4 {
        let reply = self.exchange(octets);
        let mut reader = Reader::new(&reply);
        let outcome = ReplyHeader::parse(&mut reader).unwrap().outcome;
        assert_eq!(outcome, Outcome::accepted(Accepted::Success));
        Reply4(reply[ReplyHeader::LEN..].to_vec())
    }

    /// The whole RPC reply.
    pub fn exchange(&mut self, octets: &[u8]) -> Vec<u8> {
        // Beside a Write chunk the reply goes inline; else there is a Reply chunk.
        let reply_max = if self.result_max > 0 { 2_000 } else { 20_000 };
        let message = Message { octets, item: None, reply_max, result_max: self.result_max };
        self.wire.exchange(message).unwrap()
    }

    /// Carries out operations after a SEQUENCE, with room for their results: the message of the
    /// reply from the status on, and what came in each room.
    pub fn run_in_rooms(
        &mut self,
        is_kept: bool,
        requests: &[Request<'_>],
        rooms: &[u32],
    ) -> Result<ReplyInRooms, CallFault> {
        let all: Vec<_> =
            std::iter::once(self.sequence(is_kept)).chain(requests.iter().cloned()).collect();
        self.send_in_rooms(&all, rooms)
    }

    /// The same of operations as they are.
    pub fn send_in_rooms(
        &mut self,
        requests: &[Request<'_>],
        rooms: &[u32],
    ) -> Result<ReplyInRooms, CallFault> {
        let octets = self.encode(requests);
        let message = Message { octets: &octets, item: None, reply_max: 2_000, result_max: 0 };
        let (mut message, filled) = self.wire.exchange_in_rooms(message, rooms)?;
        message.drain(..ReplyHeader::LEN);
        Ok((message, filled))
    }

    /// SEQUENCE of the first slot, for the next request.
    pub fn sequence(&mut self, cache_this: bool) -> Request<'static> {
        self.sequences[0] += 1;
        self.sequence_of(0, self.sequences[0], cache_this)
    }

    pub fn sequence_of(&self, slot: u32, sequence: u32, cache_this: bool) -> Request<'static> {
        let session = self.session;
        Request::Sequence(SequenceArgs { session, sequence, slot, highest_slot: slot, cache_this })
    }

    /// Carries out operations after a SEQUENCE.
    pub fn run(&mut self, requests: &[Request<'_>]) -> Reply4 {
        self.send_next(false, requests.iter().cloned())
    }

    /// Carries out operations after a SEQUENCE that says if the reply is to be kept.
    pub fn send_next<'a>(
        &mut self,
        is_kept: bool,
        requests: impl IntoIterator<Item = Request<'a>>,
    ) -> Reply4 {
        let mut all: Vec<Request<'a>> = vec![self.sequence(is_kept)];
        all.extend(requests);
        self.send(&all)
    }

    /// The same at the root of the export.
    pub fn at_export(&mut self, requests: &[Request<'_>]) -> Reply4 {
        let mut all = vec![Request::PutRootFh(()), Request::Lookup(Text(self.export()))];
        all.extend(requests.iter().cloned());
        self.run(&all)
    }

    /// EXCHANGE_ID: client ID, and the sequence ID for CREATE_SESSION.
    pub fn exchange_id(&mut self, owner: &[u8], verifier: u8) -> Result<(u64, u32), Status4> {
        let args = ExchangeIdArgs {
            client: ClientOwner { verifier: [verifier; 8], owner: Text(owner) },
            flags: 0,
            protection: StateProtection::None,
            implementation: None,
        };
        let reply = self.send(&[Request::ExchangeId(args)]);
        match reply.last() {
            Answer::ExchangeId(done) => done.map(|ok| (ok.client_id, ok.sequence)),
            other => panic!("{other:?}"),
        }
    }

    /// CREATE_SESSION of this client.
    pub fn create_session(&mut self, sequence: u32) -> Result<CreateSessionOk, Status4> {
        let args = session_args(self.id, sequence);
        self.create_session_of(args)
    }

    pub fn create_session_of(
        &mut self,
        args: CreateSessionArgs<'_>,
    ) -> Result<CreateSessionOk, Status4> {
        match self.send(&[Request::CreateSession(args)]).last() {
            Answer::CreateSession(done) => done,
            other => panic!("{other:?}"),
        }
    }

    /// Opens a file of the export for reading and writing, made if need be: stateid and handle.
    pub fn open(&mut self, name: &[u8]) -> (Stateid, Vec<u8>) {
        let open = open_args(name, share::BOTH, true);
        let reply = self.at_export(&[Request::Open(open), Request::GetFh(())]);
        let answers = reply.answers();
        match &answers[answers.len() - 2..] {
            [Answer::Open(Ok(open)), Answer::GetFh(Ok(handle))] => {
                (open.stateid, handle.0.to_vec())
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Arguments of OPEN for a name of the current directory.
pub fn open_args(name: &[u8], access: u32, create: bool) -> Open4Args<'_> {
    let how = match create {
        true => OpenHow::Create(CreateHow4::Unchecked(RawAttributes::default())),
        false => OpenHow::NoCreate,
    };
    Open4Args {
        seqid: 0,
        share_access: access,
        share_deny: 0,
        owner: StateOwner { client_id: 0, owner: Text(b"owner") },
        how,
        claim: OpenClaim::Null(Text(name)),
    }
}

/// Arguments as Linux has them over RDMA, but for more operations.
pub fn session_args(client_id: u64, sequence: u32) -> CreateSessionArgs<'static> {
    let fore = ChannelAttributes {
        header_pad: 0,
        request_max: 1_049_620,
        response_max: 1_049_480,
        response_cached_max: 7_584,
        operations_max: 16,
        requests_max: 64,
        rdma_ird: None,
    };
    let back = ChannelAttributes {
        request_max: 4_068,
        response_max: 4_068,
        response_cached_max: 0,
        operations_max: 2,
        requests_max: 16,
        ..fore
    };
    CreateSessionArgs {
        client_id,
        sequence,
        flags: session_flag::PERSIST | session_flag::CONN_BACK_CHAN,
        fore,
        back,
        program: 0x4000_0000,
        security: Array::of(&[CallbackSecurity::None]),
    }
}

/// The octets of a call.
pub fn encode(credential: Credential<'_>, minor: u32, requests: &[Request<'_>]) -> Vec<u8> {
    let mut octets = vec![0; 65_536];
    let mut writer = Writer::new(&mut octets);
    header(100_003, 4, COMPOUND, credential).emit(&mut writer).unwrap();
    writer.opaque(b"").unwrap();
    writer.words([minor, requests.len() as u32]).unwrap();
    for request in requests {
        request.emit(&mut writer).unwrap();
    }
    let len = writer.len();
    octets.truncate(len);
    octets
}

/// Arguments of WRITE.
pub fn write_args(stateid: Stateid, offset: u64, octets: &[u8]) -> Request<'_> {
    let stable = stag_protocol::nfs::v3::StableHow::FileSync;
    Request::Write(Write4Args { stateid, offset, stable, data: Bulk::Inline(octets) })
}

/// Arguments of READ.
pub fn read_args(stateid: Stateid, offset: u64, count: u32) -> Request<'static> {
    Request::Read(Read4Args { stateid, offset, count })
}
