//! Short messages: an RDMA_MSG without chunks, followed by a whole RPC message, in a version that
//! is settled. Nearly all messages are short.
//!
//! [`Connection::handle_message`] and [`Connection::emit`] handle every message. For short ones the
//! functions of this file do the same with a few words, and leave all others to them.

use super::{
    Connection, Credits, InlineThreshold, MessageType, RequesterCredits, Version, Version2, Xid,
    v1, v2, wire,
};

/// Octets of a short header of version 1, and of version 2 as draft 000 has it: RDMA_MSG and three
/// empty lists (RFC 8166 §4.3).
pub const HEADER_LEN: usize = wire::HEADER_LEN_MIN;
/// Octets of one that says the direction of its message (draft 001 §4.1).
pub const DIRECTED_LEN: usize = wire::DIRECTED_LEN_MIN;

/// The XID and the type of an RPC message, which go first.
const RPC_LEN: usize = 8;

/// A short message. Its lists are empty, and its RPC message follows [`Layout::header_len`] octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShortMessage {
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

/// The layout of short messages on one connection. There is none before its version is settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Octets of the longest RPC message after such a header, to the peer and from it.
    pub(super) send_max: u32,
    pub(super) receive_max: u32,
    /// Octets of their header: [`HEADER_LEN`], [`DIRECTED_LEN`], or zero where there are none.
    pub(super) header_len: u8,
    /// The version word of headers that do not say their direction; zero where there are none.
    version: u8,
    /// There never are any, by the configuration.
    is_off: bool,
}

const _: () = assert!(HEADER_LEN < 256 && DIRECTED_LEN < 256 && v1::VERSION < v2::VERSION);
const _: () = assert!(v2::VERSION < 256);

impl Layout {
    /// That of a connection without short messages.
    pub(super) const OFF: Self =
        Self { send_max: 0, receive_max: 0, header_len: 0, version: 0, is_off: true };

    pub(super) fn of(connection: &Connection) -> Self {
        if connection.short.is_off {
            return Self::OFF;
        }
        let (version, header_len) =
            match connection.version().filter(|_| connection.negotiation.is_over()) {
                Some(Version::One) => (v1::VERSION, HEADER_LEN),
                Some(Version::Two(Version2::Undirected)) => (v2::VERSION, HEADER_LEN),
                Some(Version::Two(Version2::Directed)) => (0, DIRECTED_LEN),
                None => return Self::default(),
            };
        let rest = |threshold: InlineThreshold| {
            u32::try_from(threshold.octets().saturating_sub(header_len)).unwrap_or(0)
        };
        let (send, receive) = (connection.send_threshold(), connection.receive_threshold());
        let (send_max, receive_max) = (rest(send), rest(receive));
        // Both are small: see above.
        let (header_len, version) = (header_len as u8, version as u8);
        Self { send_max, receive_max, header_len, version, is_off: false }
    }

    /// Octets of a short header; zero if there is none on this connection.
    #[inline]
    pub const fn header_len(&self) -> usize {
        self.header_len as usize
    }

    /// Returns true if short messages are of version 2.
    #[inline]
    pub const fn is_two(&self) -> bool {
        self.version != v1::VERSION as u8
    }

    /// Returns true if an RPC call message of `call` octets, and its reply of `reply` octets at
    /// most, are short messages.
    #[inline]
    pub const fn fits_call(&self, call: usize, reply: usize) -> bool {
        self.header_len != 0 && call <= self.send_max as usize && reply <= self.receive_max as usize
    }

    /// Returns true if an RPC reply message of `reply` octets is a short message.
    #[inline]
    pub const fn fits_reply(&self, reply: usize) -> bool {
        self.header_len != 0 && reply <= self.send_max as usize
    }
}

impl Connection {
    /// Does what [`handle_message`](Self::handle_message) does, if `message` is short and valid.
    /// `None`: nothing was done, and that function has to handle it.
    // A function call for each message would cost forty instructions, more than the work itself.
    #[inline(always)]
    pub fn handle_short(&mut self, message: &[u8]) -> Option<ShortMessage> {
        if self.short.version == 0 {
            return self.handle_short_directed(message);
        }
        let head: &[u8; HEADER_LEN + RPC_LEN] = message.first_chunk()?;
        let (header, rpc) = head.split_first_chunk()?;
        let header = parse_short(header, self.short.version.into())?;
        self.handle_rpc(header, rpc.first_chunk()?)
    }

    /// The same with a header that says the direction of its message.
    #[inline(never)]
    fn handle_short_directed(&mut self, message: &[u8]) -> Option<ShortMessage> {
        let head: &[u8; DIRECTED_LEN + RPC_LEN] = message.first_chunk()?;
        let (header, rpc) = head.split_first_chunk()?;
        if self.short.header_len() != DIRECTED_LEN {
            return None;
        }
        let (header, message_type) = parse_short_directed(header, v2::VERSION)?;
        // The header says what the RPC message says.
        if *rpc.last_chunk()? != (message_type as u32).to_be_bytes() {
            return None;
        }
        self.handle_rpc(header, rpc.first_chunk()?)
    }

    #[inline(always)]
    fn handle_rpc(&mut self, header: ShortHeader, rpc: &[u8; RPC_LEN]) -> Option<ShortMessage> {
        let ShortHeader { xid, credits } = header;
        let ([own, message_type], _) = rpc.as_chunks::<4>() else { return None };
        // RFC 8166 §4.2.1 [8166-31] the header has the XID of its RPC message
        if u32::from_be_bytes(*own) != xid.0 {
            return None;
        }
        match u32::from_be_bytes(*message_type) {
            0 => {
                self.serves.as_mut()?.handle_call().ok()?;
                Some(ShortMessage::Call { xid, credits })
            }
            1 => {
                self.calls.as_mut()?.handle_grant(credits);
                Some(ShortMessage::Reply { xid, credits })
            }
            _ => None,
        }
    }

    /// The layout of short messages at this moment.
    #[inline]
    pub const fn short(&self) -> &Layout {
        &self.short
    }

    /// Writes the short header of a call or of a reply, as [`call_header`](Self::call_header) or
    /// [`reply_header`](Self::reply_header), [`mark_call`](Self::mark_call) and
    /// [`emit`](Self::emit) do. Returns false if a short header of this connection has not `LEN`
    /// octets.
    #[inline]
    pub fn emit_short<const LEN: usize>(
        &self,
        message_type: MessageType,
        xid: Xid,
        out: &mut [u8; LEN],
    ) -> bool {
        let credits = match message_type {
            MessageType::Call => self.calls.as_ref().map(RequesterCredits::requested),
            MessageType::Reply => self.serves.as_ref().map(|serves| serves.granted()),
        };
        let header = ShortHeader { xid, credits: credits.unwrap_or_default() };
        let (version, out) = (self.short.version.into(), out.as_mut_slice());
        match LEN {
            HEADER_LEN => emit_short(header, version, out),
            DIRECTED_LEN => emit_short_directed(header, v2::VERSION, message_type, out),
            _ => return false,
        }
        self.short.header_len() == LEN
    }
}

/// The words of a short header that differ from message to message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShortHeader {
    pub(super) xid: Xid,
    pub(super) credits: Credits,
}

/// Reads an RDMA_MSG of this version with three empty lists. `None`: it is something else.
#[inline]
pub(super) fn parse_short(header: &[u8; HEADER_LEN], version: u32) -> Option<ShortHeader> {
    // Read in pairs of words, aligned as the copy of the message just stored them: a load that
    // crosses a boundary of that copy has to wait until the stores have left the core.
    let (pairs, last) = header.as_chunks();
    let [first, second, lists] = pairs else { return None };
    let (first, second) = (u64::from_be_bytes(*first), u64::from_be_bytes(*second));
    // XID and version; credits and the procedure; a word for each list.
    let is_short = first as u32 == version
        && second as u32 == wire::MSG
        && u64::from_be_bytes(*lists) == 0
        && *last == [0; 4];
    is_short.then_some(ShortHeader {
        xid: Xid((first >> 32) as u32),
        credits: Credits((second >> 32) as u32),
    })
}

/// Reads an RDMA_MSG of this version with an [`Intent`] that names no handle, and three empty
/// lists. `None`: it is something else.
#[inline]
pub(super) fn parse_short_directed(
    header: &[u8; DIRECTED_LEN],
    version: u32,
) -> Option<(ShortHeader, MessageType)> {
    let (words, _) = header.as_chunks::<4>();
    let words: &[[u8; 4]; DIRECTED_LEN / 4] = words.try_into().ok()?;
    let [xid, of, credits, procedure, message_type, rest @ ..] = words.map(u32::from_be_bytes);
    let message_type = MessageType::from_word(message_type)?;
    // The handle to invalidate, and a word for each list.
    let is_short = [of, procedure] == [version, wire::MSG] && rest == [0; 4];
    is_short.then_some((ShortHeader { xid: Xid(xid), credits: Credits(credits) }, message_type))
}

/// Writes the header of an RDMA_MSG with three empty lists over octets that are as long.
#[inline]
pub(super) fn emit_short(header: ShortHeader, version: u32, out: &mut [u8]) {
    wire::put_words([header.xid.0, version, header.credits.0, wire::MSG, 0, 0, 0], out);
}

/// Writes the header of an RDMA_MSG with an [`Intent`] that names no handle, and three empty lists.
#[inline]
pub(super) fn emit_short_directed(
    header: ShortHeader,
    version: u32,
    message_type: MessageType,
    out: &mut [u8],
) {
    let said = message_type as u32;
    wire::put_words([header.xid.0, version, header.credits.0, wire::MSG, said, 0, 0, 0, 0], out);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::rpcrdma::{Body, ChunkLists, Header, Incoming, PrivateData, Setup, Side, Versions};
    use std::vec::Vec;

    pub(in super::super) const DIALECTS: [Version2; 2] = [Version2::Undirected, Version2::Directed];

    /// A connection on which a call came in and a reply was awaited, with one credit left in each
    /// direction.
    pub(in super::super) fn connection(side: Side, versions: Versions) -> Connection {
        let receive = crate::rpcrdma::InlineSize::at_most(4096);
        let own = PrivateData { receive, ..PrivateData::SILENT };
        let setup = Setup { side, own, peer: PrivateData::SILENT, calls_max: 4, grant: 2 };
        let mut connection = Connection::speaking(setup, versions);
        if connection.version().is_some() {
            connection.take_credit().unwrap();
        }
        connection
    }

    /// The same, of a client whose version 2 is settled.
    pub(in super::super) fn settled_client(two: Version2) -> Connection {
        let mut client = connection(Side::Client, Versions::Both(two));
        client.take_credit().unwrap();
        client.call_header(Xid(9), Body::Msg);
        client.handle_message(&directed_if(two, message(2, 1), 1), &mut ChunkLists::new());
        assert_eq!(client.version(), Some(Version::Two(two)));
        client
    }

    fn message(version: u32, message_type: u32) -> Vec<u8> {
        let words = [9, version, 3, 0, 0, 0, 0, 9, message_type, 0, 0, 0];
        words.iter().flat_map(|word| u32::to_be_bytes(*word)).collect()
    }

    /// The message as its dialect has it.
    fn directed_if(two: Version2, mut message: Vec<u8>, message_type: u32) -> Vec<u8> {
        if two == Version2::Directed {
            message.splice(16..16, [message_type.to_be_bytes(), [0; 4]].concat());
        }
        message
    }

    /// The short message for an incoming one, if its lists are empty.
    fn expected(incoming: Incoming, header_len: usize) -> Option<ShortMessage> {
        match incoming {
            Incoming::Call {
                header: Header { xid, credits, body: Body::Msg }, payload_at, ..
            } if payload_at == header_len => Some(ShortMessage::Call { xid, credits }),
            Incoming::Reply {
                header: Header { xid, credits, body: Body::Msg },
                payload_at,
                ..
            } if payload_at == header_len => Some(ShortMessage::Reply { xid, credits }),
            _ => None,
        }
    }

    fn has_short(connection: &Connection) -> bool {
        connection.short().header_len() > 0
    }

    #[test]
    fn a_call_before_the_first_reply_settles_the_version_and_grants_nothing() {
        for two in DIALECTS {
            let mut client = connection(Side::Client, Versions::Both(two));
            client.call_header(Xid(5), Body::Msg);
            assert!(client.version().is_none() && client.send_threshold().octets() == 1_024);
            let mut lists = ChunkLists::new();
            let called = client.handle_message(&directed_if(two, message(2, 0), 0), &mut lists);
            assert!(matches!(called, Incoming::Call { .. }), "{called:?}");
            assert_eq!(client.version(), Some(Version::Two(two)));
            assert!(client.send_threshold().octets() == 4_096 && !has_short(&client));
            let error: Vec<u8> =
                [9, 2, 3, 4, 2].iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
            assert!(matches!(client.handle_message(&error, &mut lists), Incoming::Error { .. }));
            assert_eq!(client.calls().unwrap().limit(), 1, "an error grants nothing yet");
            let replied = client.handle_message(&directed_if(two, message(2, 1), 1), &mut lists);
            assert!(matches!(replied, Incoming::Reply { .. }), "{replied:?}");
            assert_eq!(client.calls().unwrap().limit(), 3);
            assert!(has_short(&client));
        }
    }

    #[test]
    fn there_are_short_messages_as_soon_as_the_version_is_settled() {
        for (word, two, header_len) in [
            (1, Version2::Directed, HEADER_LEN),
            (2, Version2::Undirected, HEADER_LEN),
            (2, Version2::Directed, DIRECTED_LEN),
        ] {
            let mut server = connection(Side::Server, Versions::Both(two));
            assert!(!has_short(&server));
            let mut call = message(word, 0);
            if word == 2 {
                call = directed_if(two, call, 0);
            }
            assert!(matches!(
                server.handle_message(&call, &mut ChunkLists::new()),
                Incoming::Call { .. }
            ));
            assert_eq!(server.short().header_len(), header_len);
            assert_eq!(*server.short(), Layout::of(&server));
        }
    }

    /// Reads `message` both ways. Returns true if it is short.
    fn compare(connection: &Connection, message: &[u8]) -> bool {
        let (mut quick, mut slow) = (connection.clone(), connection.clone());
        let mut lists = ChunkLists::new();
        let short = quick.handle_short(message);
        let incoming = slow.handle_message(message, &mut lists);
        let names_no_handle = lists.intent().is_none_or(|intent| intent.inv_handle == 0);
        let is_short = has_short(connection) && lists.is_empty() && names_no_handle;
        assert_eq!(
            short,
            expected(incoming, connection.short().header_len()).filter(|_| is_short),
            "{message:02x?}"
        );
        let state = if short.is_some() { &slow } else { connection };
        assert_eq!(std::format!("{quick:?}"), std::format!("{state:?}"), "{message:02x?}");
        short.is_some()
    }

    /// Reads every cut of `octets`, and the message with each octet changed, both ways; returns the
    /// number of short ones.
    fn compare_changes(connection: &Connection, mut octets: Vec<u8>) -> usize {
        let mut short = 0;
        for cut in 0..=octets.len() {
            short += usize::from(compare(connection, &octets[..cut]));
        }
        for at in 0..octets.len() {
            let before = octets[at];
            for value in [0, 1, 2, 3, 4, 9, 0x80, 0xff] {
                octets[at] = value;
                short += usize::from(compare(connection, &octets));
            }
            octets[at] = before;
        }
        short
    }

    #[test]
    fn a_short_message_reads_as_by_the_long_way_whatever_octet_changes() {
        let versions = [
            Versions::One,
            Versions::Both(Version2::Undirected),
            Versions::Two(Version2::Undirected),
            Versions::Two(Version2::Directed),
            Versions::Both(Version2::Directed),
        ];
        let sides = [Side::Client, Side::Server];
        let mut connections: Vec<_> = sides
            .into_iter()
            .flat_map(|side| versions.map(|versions| connection(side, versions)))
            .collect();
        connections.extend(DIALECTS.map(settled_client));
        for two in DIALECTS {
            let mut server = connection(Side::Server, Versions::Both(two));
            let call = directed_if(two, message(2, 0), 0);
            server.handle_message(&call, &mut ChunkLists::new());
            server.take_credit().unwrap();
            connections.push(server);
        }
        let (mut undirected, mut directed) = (0, 0);
        for connection in connections {
            let mut full = connection.clone();
            for message in [message(1, 0), directed_if(Version2::Directed, message(2, 0), 0)] {
                while full.handle_short(&message).is_some() {}
            }
            for connection in [connection, full] {
                for (version, message_type) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
                    let octets = message(version, message_type);
                    undirected += compare_changes(&connection, octets.clone());
                    let octets = directed_if(Version2::Directed, octets, message_type);
                    directed += compare_changes(&connection, octets);
                }
            }
        }
        assert!(undirected > 1_000, "{undirected} messages without a direction are short");
        assert!(directed > 1_000, "{directed} messages that say their direction are short");
    }

    /// Writes headers both ways.
    fn compare_headers<const LEN: usize>(connection: &mut Connection) {
        let (mut short, mut long) = ([0xee; LEN], [0xee; LEN]);
        let mut lists = ChunkLists::new();
        assert!(connection.emit_short(MessageType::Call, Xid(7), &mut short));
        let header = connection.call_header(Xid(7), Body::Msg);
        connection.mark_call(&mut lists);
        assert_eq!(connection.emit(&header, &lists, &mut long), Ok(LEN));
        assert_eq!(short, long);
        assert!(connection.emit_short(MessageType::Reply, Xid(8), &mut short));
        let header = connection.reply_header(Xid(8), Body::Msg);
        let mut returned = ChunkLists::new();
        returned.return_unused(&lists);
        assert_eq!(connection.emit(&header, &returned, &mut long), Ok(LEN));
        assert_eq!(short, long);
    }

    #[test]
    fn a_short_header_is_written_as_by_the_long_way() {
        let mut connections: Vec<_> = DIALECTS.map(settled_client).into();
        connections
            .extend([Side::Client, Side::Server].map(|side| connection(side, Versions::One)));
        connections.extend(DIALECTS.map(|two| connection(Side::Server, Versions::Two(two))));
        let mut directed = 0;
        for mut connection in connections {
            if connection.version() == Some(Version::Two(Version2::Directed)) {
                directed += 1;
                compare_headers::<DIRECTED_LEN>(&mut connection);
                assert!(!connection.emit_short(MessageType::Call, Xid(7), &mut [0; HEADER_LEN]));
            } else {
                compare_headers::<HEADER_LEN>(&mut connection);
                assert!(!connection.emit_short(MessageType::Reply, Xid(7), &mut [0; DIRECTED_LEN]));
            }
        }
        assert_eq!(directed, 2);
        for two in DIALECTS {
            let client = connection(Side::Client, Versions::Two(two));
            assert!(
                !client.emit_short(MessageType::Call, Xid(7), &mut [0; HEADER_LEN]),
                "it is not settled"
            );
            assert!(!client.emit_short(MessageType::Call, Xid(7), &mut [0; DIRECTED_LEN]));
        }
    }

    #[test]
    fn the_longest_short_message_fills_its_threshold() {
        let layout = *connection(Side::Client, Versions::One).short();
        let (most, more) = (1024 - HEADER_LEN, 1025 - HEADER_LEN);
        assert!(layout.fits_call(most, most) && layout.fits_reply(most));
        assert!(!layout.fits_call(more, 0) && !layout.fits_call(0, more));
        assert!(!layout.fits_reply(more));
        let layout = *settled_client(Version2::Directed).short();
        assert!(layout.fits_reply(4096 - DIRECTED_LEN) && !layout.fits_reply(4097 - DIRECTED_LEN));
        assert!(!Layout::default().fits_call(0, 0) && !Layout::default().fits_reply(0));
    }
}
