//! A scripted peer: octets over a plain TCP socket, with its own encoders and its own CRC.

use crate::support::{End, PATIENCE};
use stag_iwarp::{IwarpAddress, IwarpConfig};
use stag_verbs::{Cause, Event, Provider, Qp, Terminate};
use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    time::Instant,
};

pub const REQUEST: &[u8; 16] = b"MPA ID Req Frame";
pub const REPLY: &[u8; 16] = b"MPA ID Rep Frame";
pub const M: u8 = 0x80;
pub const C: u8 = 0x40;
pub const R: u8 = 0x20;
pub const S: u8 = 0x10;
pub const SIW: u8 = 0x08;

/// An MPA frame; `data` is all of the private data, the words of revision 2 included.
pub fn frame(key: &[u8; 16], flags: u8, revision: u8, data: &[u8]) -> Vec<u8> {
    let len = (data.len() as u16).to_be_bytes();
    [&key[..], &[flags, revision], &len, data].concat()
}

/// The words of revision 2.
pub fn words(ird: u16, ord: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (ird.to_be_bytes(), ord.to_be_bytes());
    [a, b, c, d]
}

/// Bit by bit, as RFC 5044 §4.4 and RFC 3385 define it.
pub fn crc32c(octets: &[u8]) -> u32 {
    !octets.iter().fold(!0, |crc, octet| {
        (0..8).fold(crc ^ u32::from(*octet), |crc, _| {
            crc >> 1 ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 }
        })
    })
}

/// An FPDU without its CRC field: length, ULPDU, pad.
pub fn open_fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut octets = (ulpdu.len() as u16).to_be_bytes().to_vec();
    octets.extend_from_slice(ulpdu);
    octets.resize(octets.len().next_multiple_of(4), 0);
    octets
}

pub fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut octets = open_fpdu(ulpdu);
    octets.extend_from_slice(&crc32c(&octets).to_le_bytes());
    octets
}

pub fn tagged(opcode: u8, last: bool, stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    let control = 0x81 | if last { 0x40 } else { 0 };
    [&[control, 0x40 | opcode][..], &stag.to_be_bytes(), &to.to_be_bytes(), payload].concat()
}

pub fn write(stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    tagged(0, true, stag, to, payload)
}

/// The header fields of an untagged segment.
#[derive(Clone, Copy)]
pub struct Untagged {
    pub opcode: u8,
    pub last: bool,
    pub word: u32,
    pub queue: u32,
    pub msn: u32,
    pub mo: u32,
}

impl Untagged {
    pub fn with(self, payload: &[u8]) -> Vec<u8> {
        let control = 0x01 | if self.last { 0x40 } else { 0 };
        let mut octets = vec![control, 0x40 | self.opcode];
        for field in [self.word, self.queue, self.msn, self.mo] {
            octets.extend_from_slice(&field.to_be_bytes());
        }
        octets.extend_from_slice(payload);
        octets
    }
}

pub const fn send_header(msn: u32) -> Untagged {
    Untagged { opcode: 3, last: true, word: 0, queue: 0, msn, mo: 0 }
}

pub fn send(msn: u32, payload: &[u8]) -> Vec<u8> {
    send_header(msn).with(payload)
}

pub fn send_invalidate(msn: u32, stag: u32, payload: &[u8]) -> Vec<u8> {
    Untagged { opcode: 4, word: stag, ..send_header(msn) }.with(payload)
}

/// A Read Request: sink, length and source.
#[derive(Clone, Copy)]
pub struct Ask {
    pub sink: u32,
    pub sink_to: u64,
    pub len: u32,
    pub source: u32,
    pub source_to: u64,
}

impl Ask {
    pub fn header(self) -> Vec<u8> {
        let mut octets = self.sink.to_be_bytes().to_vec();
        octets.extend_from_slice(&self.sink_to.to_be_bytes());
        octets.extend_from_slice(&self.len.to_be_bytes());
        octets.extend_from_slice(&self.source.to_be_bytes());
        octets.extend_from_slice(&self.source_to.to_be_bytes());
        octets
    }
}

pub const fn read_header(msn: u32) -> Untagged {
    Untagged { opcode: 1, last: true, word: 0, queue: 1, msn, mo: 0 }
}

pub fn read_request(msn: u32, ask: Ask) -> Vec<u8> {
    read_header(msn).with(&ask.header())
}

pub fn read_response(sink: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    tagged(2, true, sink, to, payload)
}

pub fn terminate(payload: &[u8]) -> Vec<u8> {
    Untagged { opcode: 7, last: true, word: 0, queue: 2, msn: 1, mo: 0 }.with(payload)
}

pub struct Peer {
    pub stream: TcpStream,
    /// Octets that arrived and are not consumed by the test.
    pub held: Vec<u8>,
    pub has_ended: bool,
    /// Octets of one read.
    pub gulp: usize,
}

impl Peer {
    pub fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
        Self { stream, held: Vec::new(), has_ended: false, gulp: 65_536 }
    }

    pub fn connect(at: IwarpAddress) -> Self {
        Self::over(TcpStream::connect(at.0).unwrap())
    }

    /// Keeps the peer's window small, and reads `gulp` octets at a time.
    pub fn slow_down(&mut self, gulp: usize) {
        rustix::net::sockopt::set_socket_recv_buffer_size(&self.stream, 1).unwrap();
        self.gulp = gulp;
    }

    /// Writes all of `octets`, with `end` reading meanwhile.
    pub fn say(&mut self, end: &mut End, octets: &[u8]) {
        let deadline = Instant::now() + PATIENCE;
        let mut rest = octets;
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(len) => rest = &rest[len..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => end.pump(),
                Err(error) => panic!("the peer cannot write: {error}"),
            }
            assert!(Instant::now() < deadline, "nobody reads what the peer writes");
        }
        end.pump();
    }

    /// Reads the input. Returns false if there was none.
    fn listen(&mut self, end: &mut End) -> bool {
        end.pump();
        let mut room = [0; 65_536];
        match self.stream.read(&mut room[..self.gulp]) {
            Ok(0) => self.has_ended = true,
            Ok(len) => self.held.extend_from_slice(&room[..len]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => self.has_ended = true,
            Err(error) => panic!("the peer cannot read: {error}"),
        }
        true
    }

    /// The next `len` octets.
    pub fn hear(&mut self, end: &mut End, len: usize) -> Vec<u8> {
        let deadline = Instant::now() + PATIENCE;
        while self.held.len() < len {
            assert!(!self.has_ended, "the end hangs up after {:02x?}", self.held);
            assert!(Instant::now() < deadline, "only {:02x?} arrives", self.held);
            self.listen(end);
        }
        self.held.drain(..len).collect()
    }

    /// Everything until the end closes.
    pub fn hear_all(&mut self, end: &mut End) -> Vec<u8> {
        let deadline = Instant::now() + PATIENCE;
        while !self.has_ended {
            assert!(
                Instant::now() < deadline,
                "the end does not hang up; {:02x?} is there",
                self.held
            );
            self.listen(end);
        }
        std::mem::take(&mut self.held)
    }

    /// Checks that the end sends nothing for a while.
    pub fn hear_nothing(&mut self, end: &mut End) {
        let until = Instant::now() + std::time::Duration::from_millis(30);
        while Instant::now() < until {
            self.listen(end);
        }
        assert!(self.held.is_empty() && !self.has_ended, "{:02x?}", self.held);
    }

    /// Lets some time pass, whether or not the end closes.
    pub fn hear_nothing_or_end(&mut self, end: &mut End) {
        let until = Instant::now() + std::time::Duration::from_millis(60);
        while Instant::now() < until {
            end.pump();
        }
        assert!(self.held.is_empty());
    }

    /// The ULPDU of the next FPDU; its CRC must be right.
    pub fn hear_ulpdu(&mut self, end: &mut End) -> Vec<u8> {
        let (ulpdu, covered, crc) = self.hear_fpdu(end);
        assert_eq!(crc, crc32c(&covered).to_le_bytes());
        ulpdu
    }

    /// The next FPDU: its ULPDU, the octets that the CRC covers, and the CRC field.
    pub fn hear_fpdu(&mut self, end: &mut End) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let length = self.hear(end, 2);
        let len = usize::from(u16::from_be_bytes([length[0], length[1]]));
        let rest = self.hear(end, (2 + len).next_multiple_of(4) - 2);
        let crc = self.hear(end, 4);
        let (ulpdu, pad) = rest.split_at(len);
        assert!(pad.iter().all(|octet| *octet == 0), "pad octets are zero");
        (ulpdu.to_vec(), [&length[..], &rest].concat(), crc)
    }

    /// An MPA frame of the end: flags, revision, private data.
    pub fn hear_frame(&mut self, end: &mut End, key: &[u8; 16]) -> (u8, u8, Vec<u8>) {
        let header = self.hear(end, 20);
        assert_eq!(header[..16], key[..]);
        let len = u16::from_be_bytes([header[18], header[19]]);
        (header[16], header[17], self.hear(end, usize::from(len)))
    }

    /// Checks that the end sends a Terminate with `cause` ("L/E/C"), then its FIN and nothing else.
    /// Returns the Terminate's payload.
    pub fn hear_terminate(&mut self, end: &mut End, cause: &str) -> Vec<u8> {
        let ulpdu = self.hear_ulpdu(end);
        let header = Untagged { opcode: 7, last: true, word: 0, queue: 2, msn: 1, mo: 0 }.with(b"");
        assert_eq!(ulpdu[..18], header[..], "a Terminate, instead of {ulpdu:02x?}");
        let payload = ulpdu[18..].to_vec();
        assert_eq!(said(&payload), cause);
        assert_eq!(self.hear_all(end), b"", "nothing follows a Terminate");
        payload
    }
}

/// The cause in a Terminate's payload, "L/E/C", as the RFC encodes it.
pub fn said(payload: &[u8]) -> String {
    format!("{:x}/{:x}/{:02x}", payload[0] >> 4, payload[0] & 0xF, payload[1])
}

/// The cause that an event names.
pub fn named(terminate: Terminate) -> String {
    terminate.to_string()
}

/// A connection of `end` that a peer of revision 2 with CRCs opened, after its first FPDU.
pub fn accepted(config: IwarpConfig) -> (End, Peer, Qp) {
    accepted_by(config, &frame(REQUEST, C | S, 2, &words(128, 128)))
}

/// The same with this Request.
pub fn accepted_by(config: IwarpConfig, request: &[u8]) -> (End, Peer, Qp) {
    let (mut end, mut peer, qp) = answered(config, request);
    peer.hear_frame(&mut end, REPLY);
    peer.say(&mut end, &fpdu(&write(1, 0, b"")));
    end.expect_established(qp);
    (end, peer, qp)
}

/// A connection that `end` has accepted, its Reply not read.
pub fn answered(config: IwarpConfig, request: &[u8]) -> (End, Peer, Qp) {
    let (mut end, at) = End::listening(config);
    end.post_receives(16);
    let mut peer = Peer::connect(at);
    peer.say(&mut end, request);
    let qp = end.next_request();
    end.iwarp.accept(qp, b"").unwrap();
    (end, peer, qp)
}

/// A connection that `end` requested, its Request read.
pub fn asked(config: IwarpConfig) -> (End, Peer, Qp) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut end = End::new(config);
    end.post_receives(16);
    let at = IwarpAddress(listener.local_addr().unwrap());
    let qp = end.iwarp.connect(&at, b"").unwrap();
    let mut peer = Peer::over(listener.accept().unwrap().0);
    peer.hear_frame(&mut end, REQUEST);
    (end, peer, qp)
}

/// Checks that the connection ended because of the peer, which got `cause`; work and windows that
/// ended with it are dropped.
pub fn expect_fault(end: &mut End, of: Qp, cause: &str) {
    loop {
        match end.next() {
            Event::Disconnected { qp, cause: Cause::PeerFault(terminate) } if qp == of => {
                return assert_eq!(named(terminate), cause);
            }
            Event::Completed { .. } | Event::Unbound { .. } => {}
            other => panic!("{other:?} instead of a fault of the peer"),
        }
    }
}

/// Checks that the peer gets the Terminate and the engine the cause.
pub fn expect_terminate(end: &mut End, peer: &mut Peer, qp: Qp, cause: &str) -> Vec<u8> {
    let payload = peer.hear_terminate(end, cause);
    expect_fault(end, qp, cause);
    payload
}
