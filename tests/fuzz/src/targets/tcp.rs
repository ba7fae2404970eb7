//! A whole connection over TCP: octets to a gateway's listener on loopback.

use std::{
    cell::RefCell,
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
};

use stag_engine::{Config, Shard, Time};
use stag_nfs::Gateway;
use stag_nfs_store::memory::Memory;
use stag_pools::steps;
use stag_protocol::{
    rpc::{MessageType, ReplyHeader, record::Fragment},
    xdr::Reader,
};
use stag_sim::{Fabric, Faults, Sim};
use stag_verbs::Limits;

use super::{
    InputVerdict, STEPS_PER_MESSAGE,
    shard::{create_call, created, gateway_app, mount_call, mounted, with_handles},
};

const LIMITS: Limits = Limits { send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };

/// A gateway that listens.
struct TcpServer {
    root: Vec<u8>,
    file: Vec<u8>,
    shard: Shard<Sim, Gateway<Memory>>,
    at: SocketAddr,
    now: Time,
}

/// Records of a stream; the rest of it is no whole one.
fn records(mut stream: &[u8]) -> (Vec<Vec<u8>>, usize) {
    let (mut records, mut record) = (Vec::new(), Vec::new());
    while let Some((word, rest)) = stream.split_first_chunk() {
        let fragment = Fragment::parse(*word);
        let Some((octets, rest)) = rest.split_at_checked(fragment.octets() as usize) else { break };
        record.extend_from_slice(octets);
        stream = rest;
        if fragment.last {
            records.push(std::mem::take(&mut record));
        }
    }
    (records, stream.len() + record.len())
}

impl TcpServer {
    fn new() -> Self {
        let end = Fabric::new(7, Faults::NONE).end("server", LIMITS);
        let config = Config {
            receives: 64,
            peers: 2,
            inbound: 64,
            outbound: 16,
            slots: [64, 4, 2],
            ..Config::small()
        };
        let mut shard =
            Shard::new(end, gateway_app(), config, Box::new(|_| true)).expect("a few MiB");
        let at =
            shard.listen_tcp(SocketAddr::from(([127, 0, 0, 1], 0)), false).expect("a port is free");
        let mut server = Self { root: Vec::new(), file: Vec::new(), shard, at, now: Time(0) };
        server.root = mounted(&server.ask(&mount_call(1)));
        server.file = created(&server.ask(&create_call(2, &server.root)));
        server
    }

    /// Connects, says `octets`, and listens until the server has no more to say.
    fn converse(&mut self, mut octets: &[u8]) -> Vec<u8> {
        let mut socket = TcpStream::connect(self.at).expect("it listens");
        // No TIME-WAIT: ports would run out.
        rustix::net::sockopt::set_socket_linger(&socket, Some(std::time::Duration::ZERO))
            .expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
        let mut said = Vec::new();
        let mut room = [0; 16 << 10];
        // Loopback is quick, but the other end of it is another thread of the kernel.
        for turn in 0..1_000_000_u64 {
            if !octets.is_empty() {
                match socket.write(octets) {
                    Ok(len) => octets = &octets[len..],
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => octets = &[],
                }
                if octets.is_empty() {
                    // Fails when the server closed already.
                    let _ = socket.shutdown(Shutdown::Write);
                }
            }
            self.now = Time(self.now.0 + 100_000);
            self.shard.pass(self.now);
            match socket.read(&mut room) {
                Ok(0) => return said,
                Ok(len) => said.extend_from_slice(&room[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return said,
            }
            if turn % 64 == 63 {
                std::thread::yield_now();
            }
        }
        panic!("the connection never ends");
    }

    fn ask(&mut self, call: &[u8]) -> Vec<u8> {
        let fragment = Fragment::new(call.len() as u32, true).expect("it is short").emit();
        let said = self.converse(&[&fragment[..], call].concat());
        records(&said).0.pop().expect("a reply")
    }
}

thread_local! {
    static SERVER: RefCell<Option<TcpServer>> = const { RefCell::new(None) };
}

/// Drops what this thread kept of the inputs before.
pub(super) fn forget() {
    SERVER.set(None);
}

/// Octets of one TCP connection to a gateway: records or not.
pub fn gateway(input: &[u8]) -> InputVerdict {
    let mut server = SERVER.take().unwrap_or_else(TcpServer::new);
    let mut octets = input.to_vec();
    with_handles(&mut octets, &server.root, &server.file);
    // At least one octet, so that the end of the stream is said.
    octets.extend(octets.is_empty().then_some(0));
    // The octets have as many messages as there are records in them.
    let messages = records(&octets).0.len() as u64 + 1;
    steps::limit(Some(messages * STEPS_PER_MESSAGE));
    let said = server.converse(&octets);
    let (replies, rest) = records(&said);
    let (calls, _) = records(&octets);
    let mut xids: Vec<_> = calls.iter().filter_map(|call| call.first_chunk::<4>()).collect();
    let mut class = 0;
    for reply in &replies {
        let place = xids.iter().position(|xid| **xid == reply[..4]);
        xids.swap_remove(place.expect("one reply for one call"));
        let (_, kind) = MessageType::peek(&Reader::new(reply)).expect("the server's own");
        assert_eq!(kind, MessageType::Reply);
        let header = ReplyHeader::parse(&mut Reader::new(reply)).expect("the server's own");
        let status = reply.get(ReplyHeader::LEN..).and_then(<[u8]>::first_chunk::<4>);
        class ^= super::class((format!("{:?}", header.outcome), status));
    }
    // The server closed the connection: at a record's end, unless it had a reason to break it.
    assert!(rest == 0 || replies.len() < calls.len() || replies.is_empty());
    for _ in 0..4 {
        server.shard.pass(server.now);
    }
    assert_eq!(server.shard.calls_in_progress(), (0, 0));
    assert_eq!(server.shard.buffers_in_use(), 0);
    SERVER.set(Some(server));
    if replies.is_empty() {
        InputVerdict::Refused(calls.len().min(4) as u64)
    } else {
        InputVerdict::accepted((class, replies.len().min(4)))
    }
}
