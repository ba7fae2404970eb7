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

impl Connection {
    /// Does what [`handle_message`](Self::handle_message) does, if `message` is plain and nothing is wrong with it. `None`: nothing was
    /// done, and that one knows better.
    #[inline]
    pub fn handle_plain(&mut self, message: &[u8]) -> Option<Plain> {
        let head: &[u8; HEAD_LEN] = message.first_chunk()?;
        let (header, rpc): (&[u8; HEADER_LEN], _) = head.split_first_chunk()?;
        let (xid, credits) = wire::parse_plain(header, self.plain_version()?)?;
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

    /// The version word of plain messages, if there are any on this connection: not before its version is settled, nor where every
    /// header says what its message is (draft 001 §4.1).
    #[inline]
    pub const fn plain_version(&self) -> Option<u32> {
        match self.negotiation.settled() {
            Some(Version::One) => Some(v1::VERSION),
            Some(Version::Two(Version2::Plain)) => Some(v2::VERSION),
            Some(Version::Two(Version2::Directed)) | None => None,
        }
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
        let Some(version) = self.plain_version() else { return false };
        wire::emit_plain((xid, credits), version, out);
        true
    }
}

/// Whether `octets` of an RPC message fit `threshold` behind a plain header.
#[inline]
pub const fn fits(octets: usize, threshold: InlineThreshold) -> bool {
    octets <= threshold.octets().saturating_sub(HEADER_LEN)
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

    /// Reads `message` both ways. True when it is plain.
    fn compare(connection: &Connection, message: &[u8]) -> bool {
        let (mut quick, mut slow) = (connection.clone(), connection.clone());
        let mut lists = ChunkLists::new();
        let plain = quick.handle_plain(message);
        let incoming = slow.handle_message(message, &mut lists);
        let is_plain = connection.plain_version().is_some() && lists.is_empty();
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
                let is_plain = connection.plain_version().is_some();
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
        let most = InlineThreshold::DEFAULT_V1;
        assert!(fits(1024 - HEADER_LEN, most) && !fits(1025 - HEADER_LEN, most));
    }
}
