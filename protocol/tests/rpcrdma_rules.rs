//! Rules of drafts 000 and 001 and of RFC 8167 beyond RFC 8166, end against end.

use stag_protocol::rpcrdma::option::{Exchange, Message, health};
use stag_protocol::rpcrdma::responder::plan_pull;
use stag_protocol::rpcrdma::{
    Body, ChunkLists, Connection, Credits, Direction, ErrorBody, ErrorReply, Header, Incoming,
    InlineSize, PeerFault, PeerMemory, PrivateData, Segment, Setup, Side, Version, Version2,
    Versions, Xid, emit_error,
};
use std::time::Duration;

const BOTH: Versions = Versions::Both(Version2::Directed);
const XID: Xid = Xid(0x7e57);

fn offer(octets: u32, remote_invalidation: bool) -> PrivateData {
    PrivateData {
        remote_invalidation,
        send: InlineSize::at_most(octets),
        receive: InlineSize::at_most(octets),
    }
}

/// An end that calls and serves, and whose peer said nothing.
fn end(side: Side, versions: Versions) -> Connection {
    let setup =
        Setup { side, own: offer(4096, true), peer: PrivateData::SILENT, calls_max: 8, grant: 4 };
    Connection::speaking(setup, versions)
}

/// A message of `from` with these lists; RDMA_MSG is followed by the first words of an RPC message
/// of that type.
fn message(from: &Connection, header: Header, lists: &ChunkLists, rpc_type: u32) -> Vec<u8> {
    let mut out = vec![0; 1024];
    let len = from.emit(&header, lists, &mut out).unwrap();
    out.truncate(len);
    if header.body == Body::Msg {
        out.extend(header.xid.0.to_be_bytes());
        out.extend(rpc_type.to_be_bytes());
        out.extend([0; 16]);
    }
    out
}

fn call_with(from: &mut Connection, body: Body, mut lists: ChunkLists) -> Vec<u8> {
    from.mark_call(&mut lists);
    let header = from.call_header(XID, body);
    message(from, header, &lists, 0)
}

fn call(from: &mut Connection) -> Vec<u8> {
    call_with(from, Body::Msg, ChunkLists::new())
}

/// A reply to a call whose lists are in `lists`, as its receiver left them there.
fn reply(from: &Connection, lists: &ChunkLists) -> Vec<u8> {
    let mut returned = ChunkLists::new();
    returned.return_unused(lists);
    message(from, from.reply_header(XID, Body::Msg), &returned, 1)
}

/// Two ends that have settled their version by a call and its reply.
fn settled(client: Versions, server: Versions) -> (Connection, Connection) {
    let (mut client, mut server) = (end(Side::Client, client), end(Side::Server, server));
    client.take_credit().unwrap();
    let mut lists = ChunkLists::new();
    let mut octets = call(&mut client);
    if let Incoming::Answer(error, _) = server.handle_message(&octets, &mut lists) {
        let mut out = [0; 28];
        let len = emit_error(&error, &mut out).unwrap();
        assert_eq!(client.handle_message(&out[..len], &mut lists), Incoming::Again { xid: XID });
        octets = call(&mut client);
        assert!(matches!(server.handle_message(&octets, &mut lists), Incoming::Call { .. }));
    }
    let octets = reply(&server, &lists);
    server.handle_replied();
    assert!(matches!(client.handle_message(&octets, &mut lists), Incoming::Reply { .. }));
    client.give_credit();
    (client, server)
}

fn word(message: &[u8], index: usize) -> u32 {
    u32::from_be_bytes(message[4 * index..4 * index + 4].try_into().unwrap())
}

fn set_word(message: &mut [u8], index: usize, value: u32) {
    message[4 * index..4 * index + 4].copy_from_slice(&value.to_be_bytes());
}

fn segment(handle: u32, length: u32) -> Segment {
    Segment { handle, length, offset: 4096 * u64::from(handle) }
}

fn write_chunk(handles: &[(u32, u32)]) -> ChunkLists {
    let mut lists = ChunkLists::new();
    lists.begin_write().unwrap();
    handles
        .iter()
        .for_each(|(handle, length)| lists.push_write(segment(*handle, *length)).unwrap());
    lists
}

// Draft 000.

#[test]
fn with_version_2_both_ends_take_4096_octets_of_a_peer_that_said_nothing() {
    for versions in [BOTH, Versions::Two(Version2::Directed), Versions::Two(Version2::Undirected)] {
        let (client, server) = settled(versions, versions);
        for end in [client, server] {
            assert!(matches!(end.version(), Some(Version::Two(_))));
            assert_eq!(
                (end.send_threshold().octets(), end.receive_threshold().octets()),
                (4096, 4096)
            );
        }
    }
}

#[test]
fn the_first_message_fits_1024_octets_and_the_threshold_changes_with_the_version() {
    let client = end(Side::Client, BOTH);
    assert_eq!(client.send_threshold().octets(), 1024);
    let (client, server) = settled(BOTH, Versions::One);
    for end in [client, server] {
        assert_eq!(end.version(), Some(Version::One));
        assert_eq!((end.send_threshold().octets(), end.receive_threshold().octets()), (1024, 1024));
    }
    // A peer whose private data offers more gets no larger messages at first.
    let setup = Setup {
        side: Side::Client,
        own: offer(8192, true),
        peer: offer(8192, true),
        calls_max: 1,
        grant: 0,
    };
    assert_eq!(Connection::speaking(setup, BOTH).send_threshold().octets(), 1024);
}

#[test]
fn an_option_that_nobody_knows_gets_inval_option_with_its_xid() {
    let (client, mut server) = settled(BOTH, BOTH);
    let mut known = vec![0; 64];
    let ask = Message::Health(Exchange::Request(health::Request));
    let len = client.emit_option(Xid(9), &ask, &mut known).unwrap();
    known.truncate(len);
    for opttype in [0, 1, health::REQUEST ^ 1, health::REQUEST - 1, u32::MAX] {
        for extra in [0, 4, 400] {
            let mut unknown = known.clone();
            set_word(&mut unknown, 4, opttype);
            unknown.resize(known.len() + extra, 7);
            let got = server.handle_message(&unknown, &mut ChunkLists::new());
            let error = ErrorReply {
                xid: Xid(9),
                version: 2,
                credits: Credits(4),
                error: ErrorBody::Option,
            };
            assert_eq!(got, Incoming::Answer(error, PeerFault::UnknownOption(opttype)));
            let mut out = [0; 28];
            let len = emit_error(&error, &mut out).unwrap();
            assert_eq!(
                (len, word(&out, 0), word(&out, 1), word(&out, 3), word(&out, 4)),
                (20, 9, 2, 4, 3)
            );
        }
    }
    // The one that is known is answered, and no payload may follow it.
    let mut followed = known.clone();
    followed.extend([0; 8]);
    let got = server.handle_message(&followed, &mut ChunkLists::new());
    assert!(matches!(
        got,
        Incoming::Answer(ErrorReply { error: ErrorBody::Chunk, .. }, PeerFault::BadOption(_))
    ));
    let got = server.handle_message(&known, &mut ChunkLists::new());
    assert_eq!(got, Incoming::Option { xid: Xid(9), message: ask });
}

#[test]
fn behind_rdma_msg_there_is_a_payload_and_behind_rdma_nomsg_there_is_none() {
    let (mut client, mut server) = settled(BOTH, BOTH);
    let whole = call(&mut client);
    for len in 0..whole.len() {
        let got = server.handle_message(&whole[..len], &mut ChunkLists::new());
        let is_call = len >= whole.len() - 16;
        assert_eq!(matches!(got, Incoming::Call { .. }), is_call, "{len} octets");
        if is_call {
            server.handle_replied();
        }
    }
    let mut lists = ChunkLists::new();
    lists.push_read(Default::default(), segment(1, 100)).unwrap();
    let mut long = call_with(&mut client, Body::NoMsg, lists);
    for extra in [0_usize, 4, 40] {
        let mut lists = ChunkLists::new();
        let Incoming::Call { header, payload_at, .. } = server.handle_message(&long, &mut lists)
        else {
            panic!("a Long call of version 2");
        };
        let pulled =
            plan_pull(&header, &lists, long.len() - payload_at, 1000).map(|pull| pull.total());
        assert_eq!(pulled, if extra == 0 { Ok(100) } else { Err(PeerFault::PayloadTwice) });
        server.handle_replied();
        long.resize(long.len() + 4, 0);
    }
}

#[test]
fn there_is_one_credit_until_something_else_than_an_error_came() {
    for error in [ErrorBody::Chunk, ErrorBody::Version { low: 1, high: 1 }, ErrorBody::Option] {
        let mut client = end(Side::Client, BOTH);
        client.take_credit().unwrap();
        assert!(client.take_credit().is_err());
        call(&mut client);
        let mut out = [0; 28];
        let reply = ErrorReply { xid: XID, version: 2, credits: Credits(100), error };
        let len = emit_error(&reply, &mut out).unwrap();
        let got = client.handle_message(&out[..len], &mut ChunkLists::new());
        assert!(matches!(got, Incoming::Error { .. } | Incoming::Again { .. }), "{got:?}");
        assert_eq!(client.calls().unwrap().limit(), 1, "{error:?}");
    }
    let (client, _) = settled(BOTH, BOTH);
    assert_eq!(client.calls().unwrap().limit(), 4);
}

#[test]
fn a_responder_answers_in_the_version_of_the_call() {
    for (client, version) in [(Versions::One, 1), (BOTH, 2), (Versions::Two(Version2::Directed), 2)]
    {
        let (mut client, mut server) = (end(Side::Client, client), end(Side::Server, BOTH));
        let mut lists = ChunkLists::new();
        let octets = call(&mut client);
        assert!(matches!(server.handle_message(&octets, &mut lists), Incoming::Call { .. }));
        assert_eq!((word(&octets, 1), word(&reply(&server, &lists), 1)), (version, version));
        assert_eq!(server.chunk_error(XID).version, version);
    }
}

#[test]
fn a_responder_of_version_1_says_so_and_the_same_connection_goes_on() {
    let (mut client, mut server) = settled(BOTH, Versions::One);
    assert_eq!(client.version(), Some(Version::One));
    client.take_credit().unwrap();
    let octets = call(&mut client);
    assert_eq!(word(&octets, 1), 1);
    assert!(matches!(
        server.handle_message(&octets, &mut ChunkLists::new()),
        Incoming::Call { .. }
    ));
}

#[test]
fn a_connection_lost_while_the_version_is_negotiated_marks_the_peer_for_a_while() {
    let now = Duration::from_secs(1);
    let mut memory = PeerMemory::new();
    assert_eq!(memory.versions(BOTH, now), BOTH);
    let mut client = end(Side::Client, BOTH);
    call(&mut client);
    memory.handle_lost(&client, now);
    assert_eq!(memory.versions(BOTH, now), Versions::One);
    assert_eq!(memory.versions(BOTH, now + PeerMemory::VERSION1_FOR), BOTH);
    let mut memory = PeerMemory::new();
    memory.handle_lost(&settled(BOTH, BOTH).0, now);
    assert_eq!(memory.versions(BOTH, now), BOTH, "a settled one that is lost says nothing");
}

// Draft 001.

#[test]
fn a_call_names_one_of_its_own_keys_or_none() {
    let (mut client, _) = settled(BOTH, BOTH);
    for (lists, expected) in [
        (ChunkLists::new(), 0),
        (write_chunk(&[(7, 0)]), 0),
        (write_chunk(&[(7, 100)]), 7),
        (write_chunk(&[(7, 100), (8, 200)]), 8),
    ] {
        let octets = call_with(&mut client, Body::Msg, lists);
        assert_eq!((word(&octets, 4), word(&octets, 5)), (0, expected), "CALL, and the key");
    }
    // An end that bears no remote invalidation names none.
    let setup = Setup {
        side: Side::Client,
        own: offer(4096, false),
        peer: PrivateData::SILENT,
        calls_max: 1,
        grant: 0,
    };
    let mut client = Connection::speaking(setup, Versions::Two(Version2::Directed));
    assert_eq!(word(&call_with(&mut client, Body::Msg, write_chunk(&[(7, 100)])), 5), 0);
}

#[test]
fn a_reply_invalidates_the_key_that_its_call_names_and_nothing_else() {
    let (mut client, mut server) = settled(BOTH, BOTH);
    for named in [0, 1, 7, 8, 9, u32::MAX] {
        let mut octets = call_with(&mut client, Body::Msg, write_chunk(&[(7, 100), (8, 200)]));
        set_word(&mut octets, 5, named);
        let mut lists = ChunkLists::new();
        assert!(matches!(server.handle_message(&octets, &mut lists), Incoming::Call { .. }));
        // A key that is none of the call's is a mistake of the caller: it is not believed.
        assert_eq!(server.invalidates(&lists), [7, 8].contains(&named).then_some(named));
        assert_eq!(word(&reply(&server, &lists), 5), named, "the reply says it again");
        server.handle_replied();
    }
}

#[test]
fn version_2_invalidates_in_both_directions() {
    let (mut client, mut server) = settled(BOTH, BOTH);
    let octets = call_with(&mut server, Body::Msg, write_chunk(&[(7, 100)]));
    let mut lists = ChunkLists::new();
    let got = client.handle_message(&octets, &mut lists);
    assert!(matches!(got, Incoming::Call { direction: Direction::Reverse, .. }), "{got:?}");
    assert_eq!(client.invalidates(&lists), Some(7));
}

// RFC 8167.

#[test]
fn both_directions_of_a_connection_have_one_version() {
    for (versions, expected) in
        [(Versions::One, 1), (BOTH, 2), (Versions::Two(Version2::Undirected), 2)]
    {
        // The server speaks both, in the client's dialect.
        let (mut client, mut server) = settled(
            versions,
            match versions {
                Versions::Two(dialect) => Versions::Both(dialect),
                _ => BOTH,
            },
        );
        let forward = word(&call(&mut client), 1);
        let octets = call(&mut server);
        assert_eq!((forward, word(&octets, 1)), (expected, expected));
        let mut lists = ChunkLists::new();
        assert!(matches!(client.handle_message(&octets, &mut lists), Incoming::Call { .. }));
        assert_eq!(
            word(&reply(&client, &lists), 1),
            expected,
            "a reply has the version of its call"
        );
    }
}

#[test]
fn a_reverse_call_before_the_first_reply_settles_the_version_and_grants_nothing() {
    let (mut client, mut server) = (end(Side::Client, BOTH), end(Side::Server, BOTH));
    let first = call(&mut client);
    let got = server.handle_message(&first, &mut ChunkLists::new());
    assert!(matches!(got, Incoming::Call { .. }), "{got:?}");
    assert_eq!((client.version(), client.send_threshold().octets()), (None, 1024));
    let got = client.handle_message(&call(&mut server), &mut ChunkLists::new());
    assert!(matches!(got, Incoming::Call { .. }), "{got:?}");
    // Its reply may be as long as version 2 allows; the credits come with the answer alone.
    assert_eq!(client.version(), Some(Version::Two(Version2::Directed)));
    assert_eq!(client.send_threshold().octets(), 4096);
    assert_eq!(client.calls().unwrap().limit(), 1);
}

#[test]
fn a_server_calls_nobody_before_the_version_is_known() {
    let mut server = end(Side::Server, BOTH);
    assert!(server.take_credit().is_err());
    let (_, mut server) = settled(BOTH, BOTH);
    assert!(server.take_credit().is_ok());
}

#[test]
fn the_credits_of_a_message_without_direction_change_nothing() {
    let (mut client, server) = settled(BOTH, BOTH);
    let limits = |end: &Connection| (end.calls().unwrap().limit(), end.serves().unwrap().granted());
    let before = (limits(&client), limits(&server));
    let mut out = [0; 64];
    client.ask_option(XID, &Message::Health(Exchange::Request(health::Request))).unwrap();
    for exchange in [Exchange::Request(health::Request), Exchange::Reply(health::Reply::default())]
    {
        let len = client.emit_option(XID, &Message::Health(exchange), &mut out).unwrap();
        for credits in [0, 1, 2, 100, u32::MAX] {
            set_word(&mut out, 2, credits);
            let (mut client, mut server) = (client.clone(), server.clone());
            client.handle_message(&out[..len], &mut ChunkLists::new());
            server.handle_message(&out[..len], &mut ChunkLists::new());
            assert_eq!((limits(&client), limits(&server)), before, "{credits} credits");
        }
    }
}
