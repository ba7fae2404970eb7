//! A plain TCP socket that speaks RPC in records (RFC 5531 §11), with a deadline everywhere.

use crate::{
    peer::{dial, is_end},
    wire::word_at,
};
use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

/// A connection of RPC over TCP.
#[derive(Debug)]
pub struct RecordStream {
    /// The socket.
    pub stream: TcpStream,
    held: Vec<u8>,
}

/// Record or event that a stream brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamRecord {
    /// A record.
    Whole(Vec<u8>),
    /// The end.
    Closed,
    /// Nothing in time.
    Nothing,
}

impl RecordStream {
    /// Connects.
    pub fn open(at: SocketAddr, patience: Duration) -> io::Result<Self> {
        Ok(Self { stream: dial(at, patience)?, held: Vec::new() })
    }

    /// Sends octets. A peer that is gone is seen when it is heard.
    pub fn say(&mut self, octets: &[u8]) -> io::Result<()> {
        match self.stream.write_all(octets) {
            Err(error) if is_end(&error) || error.kind() == ErrorKind::WouldBlock => Ok(()),
            other => other,
        }
    }

    /// The next record; its fragments are joined.
    pub fn hear(&mut self, patience: Duration) -> io::Result<StreamRecord> {
        let until = Instant::now() + patience;
        loop {
            if let Some(record) = self.take_record() {
                return Ok(StreamRecord::Whole(record));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(StreamRecord::Nothing);
            }
            self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            let mut room = vec![0; 65_536];
            match self.stream.read(&mut room) {
                Ok(0) => return Ok(StreamRecord::Closed),
                Ok(len) => self.held.extend(room.iter().take(len)),
                Err(error) if is_end(&error) => return Ok(StreamRecord::Closed),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return Ok(StreamRecord::Nothing);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn take_record(&mut self) -> Option<Vec<u8>> {
        let (mut at, mut record) = (0, Vec::new());
        loop {
            let mark = u32::from_be_bytes(*self.held.get(at..)?.first_chunk()?);
            let len = (mark & 0x7FFF_FFFF) as usize;
            record.extend_from_slice(self.held.get(at + 4..at + 4 + len)?);
            at += 4 + len;
            if mark >> 31 == 1 {
                self.held.drain(..at);
                return Some(record);
            }
        }
    }

    /// The results of a call: the octets after the header of a successful reply.
    pub fn results(&mut self, message: &[u8], patience: Duration) -> io::Result<Vec<u8>> {
        let xid = word_at(message, 0);
        self.say(&crate::wire::record(message))?;
        loop {
            match self.hear(patience)? {
                StreamRecord::Whole(reply) if word_at(&reply, 0) == xid => {
                    let behind = 20 + crate::wire::word_at(&reply, 16).next_multiple_of(4) as usize;
                    if word_at(&reply, 8) != 0 || word_at(&reply, behind) != 0 {
                        return Err(io::Error::other("the server does not carry out a good call"));
                    }
                    return Ok(reply.get(behind + 4..).unwrap_or_default().to_vec());
                }
                StreamRecord::Whole(_) => {}
                StreamRecord::Closed | StreamRecord::Nothing => {
                    return Err(io::Error::other("the server does not answer a good call"));
                }
            }
        }
    }
}
