//! A connection over TCP that makes calls before it takes replies, octet by octet.

use crate::support::{PATIENCE, Server};
use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
};

pub const NFS: u32 = 100_003;
pub const MOUNT: u32 = 100_005;
pub const NFS3_OK: u32 = 0;

pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

pub fn opaque(octets: &[u8]) -> Vec<u8> {
    let mut all = words(&[octets.len() as u32]);
    all.extend(octets);
    all.resize(all.len().next_multiple_of(4), 0);
    all
}

pub fn word(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(octets[at..at + 4].try_into().unwrap())
}

/// One such connection.
pub struct Caller(TcpStream);

impl Caller {
    pub fn new(server: &Server) -> Self {
        Self::to(&server.line("TCP"))
    }

    pub fn to(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    pub fn send(&mut self, xid: u32, program: u32, procedure: u32, arguments: &[u8]) {
        let header = words(&[xid, 0, 2, program, 3, procedure, 0, 0, 0, 0]);
        let message = [header, arguments.to_vec()].concat();
        let mark = words(&[0x8000_0000 | message.len() as u32]);
        self.0.write_all(&[mark, message].concat()).unwrap();
    }

    /// XID and results of the next reply.
    pub fn take(&mut self) -> (u32, Vec<u8>) {
        self.take_or_end().expect("the connection stands")
    }

    /// The same; none where the server ended the connection.
    pub fn take_or_end(&mut self) -> Option<(u32, Vec<u8>)> {
        let mut mark = [0; 4];
        match self.0.read_exact(&mut mark) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return None,
            read => read.unwrap(),
        }
        let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        self.0.read_exact(&mut reply).unwrap();
        // REPLY, MSG_ACCEPTED, an empty verifier, SUCCESS.
        assert_eq!(reply[4..24], words(&[1, 0, 0, 0, 0]));
        Some((word(&reply, 0), reply[24..].to_vec()))
    }

    pub fn call(&mut self, program: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        self.send(1, program, procedure, arguments);
        self.take().1
    }

    /// The handle, as an argument, that the results of MNT or LOOKUP begin with.
    pub fn handle(&mut self, program: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        let results = self.call(program, procedure, arguments);
        assert_eq!(word(&results, 0), NFS3_OK);
        let len = word(&results, 4) as usize;
        opaque(&results[8..8 + len])
    }

    /// True if the server ended the connection after its last reply.
    pub fn is_over(&mut self) -> bool {
        matches!(self.0.read(&mut [0; 1]), Ok(0))
    }
}
