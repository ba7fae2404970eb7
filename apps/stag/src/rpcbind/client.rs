//! Calls of rpcbind, version 4 (RFC 1833 §2.2.1), over its socket: each is answered before the next
//! is made.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

const PROGRAM: u32 = 100_000;
const VERSION: u32 = 4;
const SET: u32 = 1;
const UNSET: u32 = 2;
const DUMP: u32 = 4;
/// Time for one answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Octets of the longest answer that is read.
const REPLY_MAX: usize = 1 << 18;
/// Words of a reply in front of its results: XID, REPLY, accepted, an empty verifier, success.
const ACCEPTED: [u32; 5] = [1, 0, 0, 0, 0];

/// One registration: a program's version, and its address on a transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    pub program: u32,
    pub version: u32,
    pub netid: String,
    /// The universal address.
    pub address: String,
}

impl Binding {
    /// True if rpcbind can have only one of the two.
    pub fn names_the_same(&self, other: &Self) -> bool {
        let key = |binding: &Self| (binding.program, binding.version);
        key(self) == key(other) && self.netid == other.netid
    }
}

/// A connection to rpcbind.
#[derive(Debug)]
pub struct RpcBind {
    stream: UnixStream,
    xid: u32,
}

impl RpcBind {
    /// Connects to its socket.
    pub fn open(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, xid: std::process::id() })
    }

    /// Registers; false when rpcbind refuses, as it does for what is registered already.
    pub fn set(&mut self, binding: &Binding) -> io::Result<bool> {
        self.asked(SET, binding)
    }

    /// Takes a registration back.
    pub fn unset(&mut self, binding: &Binding) -> io::Result<bool> {
        self.asked(UNSET, binding)
    }

    /// True if exactly this is registered.
    pub fn has(&mut self, binding: &Binding) -> io::Result<bool> {
        let reply = self.call(DUMP, &[])?;
        let mut results = Results(&reply);
        while results.word()? != 0 {
            let (program, version) = (results.word()?, results.word()?);
            let (netid, address) = (results.text()?, results.text()?);
            results.text()?; // its owner
            let found = Binding { program, version, netid, address };
            if found == *binding {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn asked(&mut self, procedure: u32, binding: &Binding) -> io::Result<bool> {
        let mut arguments = Vec::new();
        put(&mut arguments, &[binding.program, binding.version]);
        for text in [&binding.netid, &binding.address, "stag"] {
            put_text(&mut arguments, text);
        }
        let reply = self.call(procedure, &arguments)?;
        Results(&reply).word().map(|word| word != 0)
    }

    /// Makes a call without a credential: the kernel says who is at the other end of the socket.
    fn call(&mut self, procedure: u32, arguments: &[u8]) -> io::Result<Vec<u8>> {
        self.xid = self.xid.wrapping_add(1);
        let mut message = Vec::new();
        put(&mut message, &[self.xid, 0, 2, PROGRAM, VERSION, procedure, 0, 0, 0, 0]);
        message.extend_from_slice(arguments);
        let len = u32::try_from(message.len()).map_err(|_| garbled())?;
        let mut record = Vec::new();
        put(&mut record, &[1 << 31 | len]);
        record.extend(message);
        self.stream.write_all(&record)?;
        let reply = self.record()?;
        let mut results = Results(&reply);
        if results.word()? != self.xid {
            return Err(garbled());
        }
        for expected in ACCEPTED {
            if results.word()? != expected {
                return Err(io::Error::other("rpcbind refuses the call"));
            }
        }
        Ok(results.0.to_vec())
    }

    /// One record, whose fragments may be several (RFC 5531 §11).
    fn record(&mut self) -> io::Result<Vec<u8>> {
        let mut record = Vec::new();
        loop {
            let mut mark = [0; 4];
            self.stream.read_exact(&mut mark)?;
            let mark = u32::from_be_bytes(mark);
            let len = (mark & !(1 << 31)) as usize;
            if len > REPLY_MAX - record.len() {
                return Err(garbled());
            }
            let read = (&self.stream).take(len as u64).read_to_end(&mut record)?;
            if read < len {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if mark >> 31 == 1 {
                return Ok(record);
            }
        }
    }
}

fn garbled() -> io::Error {
    io::Error::other("rpcbind gives an answer that is none")
}

fn put(octets: &mut Vec<u8>, words: &[u32]) {
    octets.extend(words.iter().flat_map(|word| word.to_be_bytes()));
}

fn put_text(octets: &mut Vec<u8>, text: &str) {
    put(octets, &[u32::try_from(text.len()).unwrap_or(0)]);
    octets.extend_from_slice(text.as_bytes());
    octets.resize(octets.len().next_multiple_of(4), 0);
}

/// Results of a call, read from the front.
struct Results<'a>(&'a [u8]);

impl Results<'_> {
    fn word(&mut self) -> io::Result<u32> {
        let (word, rest) = self.0.split_first_chunk().ok_or_else(garbled)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*word))
    }

    fn text(&mut self) -> io::Result<String> {
        let len = self.word()? as usize;
        let padded = len.checked_next_multiple_of(4).ok_or_else(garbled)?;
        let (text, rest) = self.0.split_at_checked(padded).ok_or_else(garbled)?;
        self.0 = rest;
        Ok(String::from_utf8_lossy(text.get(..len).unwrap_or_default()).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_they_are_written_and_no_cut_of_them_is_taken_for_one() {
        let mut octets = Vec::new();
        put_text(&mut octets, "rdma6");
        assert_eq!(Results(&octets).text().unwrap(), "rdma6");
        for len in 0..octets.len() {
            assert!(Results(octets.get(..len).unwrap()).text().is_err(), "{len}");
        }
        assert!(Results(&[0xff; 8]).text().is_err(), "a length beyond all memory");
    }
}
