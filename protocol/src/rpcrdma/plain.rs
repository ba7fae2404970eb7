//! Messages as most are: an RDMA_MSG without chunks, with a whole RPC message behind it, in a version that is settled.
//!
//! [`Connection::handle_message`] and [`Connection::emit`] know every message. What is here reads and writes the usual ones as the
//! few words they are, to the same effect, and leaves all others to them.

use super::{Connection, Credits, InlineThreshold, RequesterCredits, Version, Version2, Xid, v1, v2, wire};

/// Octets of a plain header: RDMA_MSG and three empty lists (RFC 8166 §4.3).
pub const HEADER_LEN: usize = wire::HEADER_LEN_MIN;
/// With the XID and the type of the RPC message behind it.
const HEAD_LEN: usize = HEADER_LEN + 8;

/// What a plain message is. Its lists are empty, and its payload stands at [`HEADER_LEN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plain {
    /// A call, as [`Incoming::Call`](super::Incoming::Call).
    Call {
        /// The transaction.
        xid: Xid,
        /// Credits requested.
        credits: Credits,
    },
    /// A reply, as [`Incoming::Reply`](super::Incoming::Reply).
    Reply {
        /// The transaction.
        xid: Xid,
        /// Credits granted.
        credits: Credits,
    },
}

/// What plain messages are on one connection, if there are any: not before its version is settled, nor where every header says
/// what its message is (draft 001 §4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// Their version word; zero where there are none.
    version: u32,
    /// Octets of the longest RPC message behind a plain header, to the peer and from it.
    send_max: u32,
    receive_max: u32,
}

impl Path {
    pub(super) fn of(connection: &Connection) -> Self {
        let version = match connection.version().filter(|_| connection.negotiation.is_over()) {
            Some(Version::One) => v1::VERSION,
            Some(Version::Two(Version2::Plain)) => v2::VERSION,
            Some(Version::Two(Version2::Directed)) | None => return Self::default(),
        };
        let rest = |threshold: InlineThreshold| {
            u32::try_from(threshold.octets().saturating_sub(HEADER_LEN)).unwrap_or(0)
        };
        let (send, receive) = (connection.send_threshold(), connection.receive_threshold());
        Self { version, send_max: rest(send), receive_max: rest(receive) }
    }

    /// Whether there are any.
    #[inline]
    pub const fn exists(&self) -> bool {
        self.version != 0
    }

    /// Whether an RPC call message of `call` octets, and its reply of `reply` octets at most, are plain messages.
    #[inline]
    pub const fn fits_call(&self, call: usize, reply: usize) -> bool {
        self.exists() && call <= self.send_max as usize && reply <= self.receive_max as usize
    }

    /// Whether an RPC reply message of `reply` octets is.
    #[inline]
    pub const fn fits_reply(&self, reply: usize) -> bool {
        self.exists() && reply <= self.send_max as usize
    }
}

impl Connection {
    /// Does what [`handle_message`](Self::handle_message) does, if `message` is plain and nothing is wrong with it. `None`: nothing was
    /// done, and that one knows better.
    #[inline]
    pub fn handle_plain(&mut self, message: &[u8]) -> Option<Plain> {
        let head: &[u8; HEAD_LEN] = message.first_chunk().filter(|_| self.plain.exists())?;
        let (header, rpc): (&[u8; HEADER_LEN], _) = head.split_first_chunk()?;
        let (xid, credits) = wire::parse_plain(header, self.plain.version)?;
        let ([own, message_type], _) = rpc.as_chunks::<4>() else { return None };
        // RFC 8166 §4.2.1 [8166-31]
        if u32::from_be_bytes(*own) != xid.0 {
            return None;
        }
        match u32::from_be_bytes(*message_type) {
            0 => {
                self.serves.as_mut()?.handle_call().ok()?;
                Some(Plain::Call { xid, credits })
            }
            1 => {
                self.calls.as_mut()?.handle_grant(credits);
                Some(Plain::Reply { xid, credits })
            }
            _ => None,
        }
    }

    /// What plain messages are at this moment.
    #[inline]
    pub const fn plain(&self) -> &Path {
        &self.plain
    }

    /// Writes the plain header of a call, as [`call_header`](Self::call_header) and [`emit`](Self::emit) do. False: there are
    /// no plain messages on this connection.
    #[inline]
    pub fn emit_plain_call(&self, xid: Xid, out: &mut [u8; HEADER_LEN]) -> bool {
        let credits = self.calls.as_ref().map(RequesterCredits::requested).unwrap_or_default();
        self.emit_plain(xid, credits, out)
    }

    /// The same of a reply: it carries the grant.
    #[inline]
    pub fn emit_plain_reply(&self, xid: Xid, out: &mut [u8; HEADER_LEN]) -> bool {
        let credits = self.serves.as_ref().map(|serves| serves.granted()).unwrap_or_default();
        self.emit_plain(xid, credits, out)
    }

    #[inline]
    fn emit_plain(&self, xid: Xid, credits: Credits, out: &mut [u8; HEADER_LEN]) -> bool {
        wire::emit_plain((xid, credits), self.plain.version, out);
        self.plain.exists()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpcrdma::{Body, ChunkLists, Header, Incoming, Offer, Setup, Side, Versions};
    use std::vec::Vec;

    /// A connection on which a call came in and a reply was awaited, with one credit left in each direction.
    fn connection(side: Side, versions: Versions) -> Connection {
        let receive = crate::rpcrdma::InlineSize::at_most(4096);
        let own = Offer { receive, ..Offer::SILENT };
        let setup = Setup { side, own, peer: Offer::SILENT, calls_max: 4, grant: 2 };
        let mut connection = Connection::speaking(setup, versions);
        if connection.version().is_some() {
            connection.take_credit().unwrap();
        }
        connection
    }

    fn message(version: u32, message_type: u32) -> Vec<u8> {
        let words = [9, version, 3, 0, 0, 0, 0, 9, message_type, 0, 0, 0];
        words.iter().flat_map(|word| u32::to_be_bytes(*word)).collect()
    }

    /// What a plain message is for who reads every message.
    fn expected(incoming: Incoming) -> Option<Plain> {
        match incoming {
            Incoming::Call {
                header: Header { xid, credits, body: Body::Msg },
                payload_at: HEADER_LEN,
                ..
            } => Some(Plain::Call { xid, credits }),
            Incoming::Reply {
                header: Header { xid, credits, body: Body::Msg },
                payload_at: HEADER_LEN,
                ..
            } => Some(Plain::Reply { xid, credits }),
            _ => None,
        }
    }

    #[test]
    fn a_call_before_the_first_reply_settles_the_version_and_grants_nothing() {
        for two in [Version2::Plain, Version2::Directed] {
            let mut client = connection(Side::Client, Versions::Both(two));
            client.call_header(Xid(5), Body::Msg);
            assert!(client.version().is_none() && client.send_threshold().octets() == 1_024);
            let as_said = |mut message: Vec<u8>, message_type: u32| {
                if two == Version2::Directed {
                    message.splice(16..16, [message_type.to_be_bytes(), [0; 4]].concat());
                }
                message
            };
            let mut lists = ChunkLists::new();
            let called = client.handle_message(&as_said(message(2, 0), 0), &mut lists);
            assert!(matches!(called, Incoming::Call { .. }), "{called:?}");
            assert_eq!(client.version(), Some(Version::Two(two)));
            assert!(client.send_threshold().octets() == 4_096 && !client.plain().exists());
            let error: Vec<u8> = [9, 2, 3, 4, 2].iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
            assert!(matches!(client.handle_message(&error, &mut lists), Incoming::Error { .. }));
            assert_eq!(client.calls().unwrap().limit(), 1, "an error grants nothing yet");
            let replied = client.handle_message(&as_said(message(2, 1), 1), &mut lists);
            assert!(matches!(replied, Incoming::Reply { .. }), "{replied:?}");
            assert_eq!(client.calls().unwrap().limit(), 3);
            assert_eq!(client.plain().exists(), two == Version2::Plain);
        }
    }

    #[test]
    fn plain_messages_exist_as_soon_as_a_version_that_has_them_is_settled() {
        for (word, two, exist) in
            [(1, Version2::Directed, true), (2, Version2::Plain, true), (2, Version2::Directed, false)]
        {
            let mut server = connection(Side::Server, Versions::Both(two));
            assert!(!server.plain().exists());
            let mut call = message(word, 0);
            if (word, two) == (2, Version2::Directed) {
                call.splice(16..16, [0; 8]);
            }
            assert!(matches!(server.handle_message(&call, &mut ChunkLists::new()), Incoming::Call { .. }));
            assert_eq!(server.plain().exists(), exist);
            assert_eq!(*server.plain(), Path::of(&server));
        }
    }

    /// Reads `message` both ways. True when it is plain.
    fn compare(connection: &Connection, message: &[u8]) -> bool {
        let (mut quick, mut slow) = (connection.clone(), connection.clone());
        let mut lists = ChunkLists::new();
        let plain = quick.handle_plain(message);
        let incoming = slow.handle_message(message, &mut lists);
        let is_plain = connection.plain().exists() && lists.is_empty();
        assert_eq!(plain, expected(incoming).filter(|_| is_plain), "{message:02x?}");
        let state = if plain.is_some() { &slow } else { connection };
        assert_eq!(std::format!("{quick:?}"), std::format!("{state:?}"), "{message:02x?}");
        plain.is_some()
    }

    #[test]
    fn a_plain_message_is_what_everybody_else_says_it_is_whatever_octet_changes() {
        let two = Version2::Plain;
        let versions = [
            Versions::One,
            Versions::Both(two),
            Versions::Two(two),
            Versions::Two(Version2::Directed),
            Versions::Both(Version2::Directed),
        ];
        let mut plain = 0;
        for (side, versions) in
            [Side::Client, Side::Server].into_iter().flat_map(|side| versions.map(|v| (side, v)))
        {
            let mut full = connection(side, versions);
            let _ = full.handle_plain(&message(1, 0));
            let _ = full.handle_plain(&message(1, 0));
            for connection in [connection(side, versions), full] {
                for mut octets in [message(1, 0), message(1, 1), message(2, 0), message(2, 1)] {
                    for cut in 0..=octets.len() {
                        plain += usize::from(compare(&connection, &octets[..cut]));
                    }
                    for at in 0..octets.len() {
                        let before = octets[at];
                        for value in [0, 1, 2, 3, 4, 9, 0x80, 0xff] {
                            octets[at] = value;
                            plain += usize::from(compare(&connection, &octets));
                        }
                        octets[at] = before;
                    }
                }
            }
        }
        assert!(plain > 1_000, "{plain} messages are plain");
    }

    #[test]
    fn a_plain_header_is_the_one_that_everybody_else_writes() {
        let mut some = 0;
        for versions in [Versions::One, Versions::Two(Version2::Plain), Versions::Two(Version2::Directed)] {
            for side in [Side::Client, Side::Server] {
                let mut connection = connection(side, versions);
                let (mut plain, mut other) = ([0xee; HEADER_LEN], [0xee; HEADER_LEN]);
                let lists = ChunkLists::new();
                let is_plain = connection.plain().exists();
                assert_eq!(
                    connection.emit_plain_call(Xid(7), &mut plain),
                    is_plain && connection.version().is_some()
                );
                if is_plain {
                    let header = connection.call_header(Xid(7), Body::Msg);
                    assert_eq!(connection.emit(&header, &lists, &mut other), Ok(HEADER_LEN));
                    assert_eq!(plain, other);
                    assert!(connection.emit_plain_reply(Xid(8), &mut plain));
                    let header = connection.reply_header(Xid(8), Body::Msg);
                    assert_eq!(connection.emit(&header, &lists, &mut other), Ok(HEADER_LEN));
                    assert_eq!(plain, other);
                    some += 1;
                }
            }
        }
        assert_eq!(some, 3, "a client of version 2 has to settle it first");
        let path = *connection(Side::Client, Versions::One).plain();
        let (most, more) = (1024 - HEADER_LEN, 1025 - HEADER_LEN);
        assert!(path.fits_call(most, most) && path.fits_reply(most));
        assert!(!path.fits_call(more, 0) && !path.fits_call(0, more) && !path.fits_reply(more));
        assert!(!Path::default().fits_call(0, 0) && !Path::default().fits_reply(0));
    }
}
