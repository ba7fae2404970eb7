//! A client of version 4.2 over TCP, which has one session and makes one call at a time.

use crate::{caller::NFS, support::PATIENCE};
use stag_protocol::{
    nfs::v4::*,
    rpc::{Auth, CallHeader, Credential, ReplyHeader, Xid},
    xdr::{Reader, Writer},
};
use std::{
    io::{Read, Write},
    net::TcpStream,
};

/// One such client, by the name that it gives itself.
pub struct Caller4 {
    stream: TcpStream,
    owner: String,
    pub session: SessionId,
    sequence: u32,
    /// Room for calls.
    octets: Vec<u8>,
}

/// Octets of the longest call and reply: 1 MiB of data and what is around it.
const MESSAGE_MAX: u32 = (1 << 20) + 65_536;

/// Results of a compound.
pub struct Results(Vec<u8>);

impl Results {
    pub fn status(&self) -> Status4 {
        CompoundReply::parse(Reader::new(&self.0)).unwrap().head().status
    }

    /// The results of the last operation.
    pub fn last(&self) -> Answer<'_> {
        let reply = CompoundReply::parse(Reader::new(&self.0)).unwrap();
        reply.map(|answer| answer.unwrap()).last().unwrap()
    }
}

impl Caller4 {
    /// One that is connected to a server, and has no session.
    pub fn connect(at: &str, owner: &str) -> Self {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream,
            owner: owner.to_owned(),
            session: [0; 16],
            sequence: 0,
            octets: vec![0; MESSAGE_MAX as usize],
        }
    }

    /// One that has a session, and nothing to reclaim.
    pub fn mounted(at: &str, owner: &str) -> Self {
        let mut client = Self::connect(at, owner);
        client.begin();
        let complete = client.run(&[Request::ReclaimComplete(false)]);
        assert_eq!(complete.status(), Status4::Ok);
        client
    }

    /// Connects again, as to a server that was started again, with the session that there was.
    pub fn reconnect(&mut self, at: &str) {
        self.take_over(TcpStream::connect(at).unwrap());
    }

    /// Goes on over another connection, as to a server that was started again, with the session
    /// that there was.
    pub fn take_over(&mut self, stream: TcpStream) {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        self.stream = stream;
    }

    /// EXCHANGE_ID and CREATE_SESSION.
    pub fn begin(&mut self) {
        let owner = self.owner.clone();
        let args = ExchangeIdArgs {
            client: ClientOwner { verifier: [1; 8], owner: Text(owner.as_bytes()) },
            flags: 0,
            protection: StateProtection::None,
            implementation: None,
        };
        let known = self.send(&[Request::ExchangeId(args)]);
        let Answer::ExchangeId(Ok(known)) = known.last() else { panic!("{:?}", known.last()) };
        let channel = ChannelAttributes {
            header_pad: 0,
            request_max: MESSAGE_MAX,
            response_max: MESSAGE_MAX,
            response_cached_max: 2_048,
            operations_max: 16,
            requests_max: 4,
            rdma_ird: None,
        };
        let create = CreateSessionArgs {
            client_id: known.client_id,
            sequence: known.sequence,
            flags: 0,
            fore: channel,
            back: channel,
            program: 0x4000_0000,
            security: Array::of(&[CallbackSecurity::None]),
        };
        let made = self.send(&[Request::CreateSession(create)]);
        let Answer::CreateSession(Ok(made)) = made.last() else { panic!("{:?}", made.last()) };
        (self.session, self.sequence) = (made.session, 0);
    }

    /// Operations after a SEQUENCE.
    pub fn run(&mut self, requests: &[Request<'_>]) -> Results {
        self.sequence += 1;
        let sequence = SequenceArgs {
            session: self.session,
            sequence: self.sequence,
            slot: 0,
            highest_slot: 0,
            cache_this: false,
        };
        let mut all = vec![Request::Sequence(sequence)];
        all.extend(requests.iter().cloned());
        self.send(&all)
    }

    fn send(&mut self, requests: &[Request<'_>]) -> Results {
        let mut writer = Writer::new(&mut self.octets[4..]);
        let (credential, verifier) = (Credential::None, Auth::NONE);
        let (program, version, procedure) = (NFS, 4, COMPOUND);
        CallHeader { xid: Xid(1), program, version, procedure, credential, verifier }
            .emit(&mut writer)
            .unwrap();
        writer.opaque(b"").unwrap();
        writer.words([2, requests.len() as u32]).unwrap();
        for request in requests {
            request.emit(&mut writer).unwrap();
        }
        let len = writer.len();
        let mark = 0x8000_0000 | len as u32;
        self.octets[..4].copy_from_slice(&mark.to_be_bytes());
        self.stream.write_all(&self.octets[..4 + len]).unwrap();
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark).unwrap();
        let len = u64::from(u32::from_be_bytes(mark) & 0x7fff_ffff);
        let mut header = [0; ReplyHeader::LEN];
        self.stream.read_exact(&mut header).unwrap();
        let len = len - ReplyHeader::LEN as u64;
        let mut results = Vec::with_capacity(len as usize);
        (&self.stream).take(len).read_to_end(&mut results).unwrap();
        assert_eq!(results.len() as u64, len, "a reply is whole");
        Results(results)
    }
}
