//! Agreement between two ends: the version of a connection, remote invalidation, options; state by
//! state and event by event.

use core::time::Duration;

use stag_protocol::rpcrdma::option::{Exchange, Message, NoOption, OptionName, health};
use stag_protocol::rpcrdma::v2::{Directed, Undirected};
use stag_protocol::rpcrdma::{
    Body, ChunkLists, Connection, Credits, Dialects, ErrorBody, ErrorReply, Header, Incoming,
    InlineSize, Intent, MessageType, NoCredit, PeerFault, PeerMemory, Position, PrivateData,
    Segment, Setup, Side, Version, Version2, Versions, Xid, emit_error, v1, v2,
};

const TWO: Version2 = Version2::Directed;
const V2: Option<Version> = Some(Version::Two(TWO));
const V1: Option<Version> = Some(Version::One);
const ASK: Message = Message::Health(Exchange::Request(health::Request));

fn offer(remote_invalidation: bool, octets: u32) -> PrivateData {
    let size = InlineSize::at_most(octets);
    PrivateData { remote_invalidation, send: size, receive: size }
}

fn setup(side: Side) -> Setup {
    Setup { side, own: offer(true, 4096), peer: PrivateData::SILENT, calls_max: 16, grant: 4 }
}

fn connection(side: Side, versions: Versions) -> Connection {
    Connection::speaking(setup(side), versions)
}

/// A message without chunks in a version, with 10 credits.
fn inline(version: u32, xid: u32, message_type: MessageType) -> Vec<u8> {
    let mut lists = ChunkLists::new();
    let header = Header { xid: Xid(xid), credits: Credits(10), body: Body::Msg };
    let mut out = vec![0; 64];
    let len = if version == 2 {
        lists.set_intent(Some(Intent { message_type, inv_handle: 0 }));
        v2::emit::<Directed>(&header, &lists, &mut out).unwrap()
    } else {
        v1::emit(&header, &lists, &mut out).unwrap()
    };
    out.truncate(len);
    out[4..8].copy_from_slice(&version.to_be_bytes());
    out.extend([xid, message_type as u32].map(u32::to_be_bytes).as_flattened());
    out
}

fn error(version: u32, xid: u32, error: ErrorBody) -> Vec<u8> {
    let mut out = vec![0; 28];
    let reply = ErrorReply { xid: Xid(xid), version, credits: Credits(10), error };
    let len = emit_error(&reply, &mut out).unwrap();
    out.truncate(len);
    out
}

fn err_vers(xid: u32, low: u32, high: u32) -> Vec<u8> {
    error(2, xid, ErrorBody::Version { low, high })
}

/// A call of ours, as the engine makes it.
fn call(end: &mut Connection, xid: u32, lists: &mut ChunkLists) -> Vec<u8> {
    end.mark_call(lists);
    let header = end.call_header(Xid(xid), Body::Msg);
    let mut out = vec![0; 256];
    let len = end.emit(&header, lists, &mut out).unwrap();
    out.truncate(len);
    out.extend([xid, 0].map(u32::to_be_bytes).as_flattened());
    out
}

fn reply(end: &mut Connection, xid: u32, asked: &ChunkLists) -> Vec<u8> {
    let mut returned = ChunkLists::new();
    returned.return_unused(asked);
    let header = end.reply_header(Xid(xid), Body::Msg);
    end.handle_replied();
    let mut out = vec![0; 256];
    let len = end.emit(&header, &returned, &mut out).unwrap();
    out.truncate(len);
    out.extend([xid, 1].map(u32::to_be_bytes).as_flattened());
    out
}

fn arrive(end: &mut Connection, message: &[u8]) -> Incoming {
    end.handle_message(message, &mut ChunkLists::new())
}

// Negotiation.

/// Classes of messages at a client, by their fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Reply,
    Again,
    Error,
    Discard,
}
use Seen::{Again, Discard, Error, Reply};

#[test]
fn every_event_in_every_state_of_a_client_has_its_outcome() {
    let both = Versions::Both(TWO);
    let sent = |versions| {
        let mut client = connection(Side::Client, versions);
        client.take_credit().unwrap();
        call(&mut client, 7, &mut ChunkLists::new());
        client
    };
    let after = |mut client: Connection, message: &[u8]| {
        arrive(&mut client, message);
        client
    };
    let (one_reply, two_reply) =
        (inline(1, 7, MessageType::Reply), inline(2, 7, MessageType::Reply));
    let refused = || after(sent(both), &err_vers(7, 1, 1));
    let states = [
        ("await first", connection(Side::Client, both)),
        ("await answer", sent(both)),
        ("await version 1", refused()),
        ("settled on 2", after(sent(both), &two_reply)),
        ("settled on 1", after(refused(), &one_reply)),
        ("2 only", sent(Versions::Two(TWO))),
        ("1 only", sent(Versions::One)),
    ];
    let two_chunk = error(2, 7, ErrorBody::Chunk);
    let (one_chunk, two_option) = (error(1, 7, ErrorBody::Chunk), error(2, 7, ErrorBody::Option));
    // In the order of the states: what it is, and the version that is settled afterwards.
    type Row = (&'static str, Vec<u8>, [(Seen, Option<Version>); 7]);
    let table: [Row; 10] = [
        (
            "version 2 reply",
            two_reply,
            [
                (Reply, None),
                (Reply, V2),
                (Discard, None),
                (Reply, V2),
                (Discard, V1),
                (Reply, V2),
                (Discard, V1),
            ],
        ),
        (
            "version 2 reply to another",
            inline(2, 8, MessageType::Reply),
            [
                (Reply, None),
                (Reply, None),
                (Discard, None),
                (Reply, V2),
                (Discard, V1),
                (Reply, None),
                (Discard, V1),
            ],
        ),
        (
            "version 1 reply",
            one_reply,
            [
                (Discard, None),
                (Discard, None),
                (Reply, V1),
                (Discard, V2),
                (Reply, V1),
                (Discard, None),
                (Reply, V1),
            ],
        ),
        (
            "ERR_VERS 1 to 1",
            err_vers(7, 1, 1),
            [
                (Error, None),
                (Again, None),
                (Error, None),
                (Error, V2),
                (Error, V1),
                (Error, None),
                (Error, V1),
            ],
        ),
        (
            "ERR_VERS 0 to 9",
            err_vers(7, 0, 9),
            [
                (Error, None),
                (Again, None),
                (Error, None),
                (Error, V2),
                (Error, V1),
                (Error, None),
                (Error, V1),
            ],
        ),
        (
            "ERR_VERS 2 to 3",
            err_vers(7, 2, 3),
            [
                (Error, None),
                (Error, None),
                (Error, None),
                (Error, V2),
                (Error, V1),
                (Error, None),
                (Error, V1),
            ],
        ),
        (
            "ERR_VERS 1 to 0",
            err_vers(7, 1, 0),
            [
                (Error, None),
                (Error, None),
                (Error, None),
                (Error, V2),
                (Error, V1),
                (Error, None),
                (Error, V1),
            ],
        ),
        (
            "ERR_VERS to another",
            err_vers(8, 1, 1),
            [
                (Error, None),
                (Error, None),
                (Error, None),
                (Error, V2),
                (Error, V1),
                (Error, None),
                (Error, V1),
            ],
        ),
        (
            "BAD_HEADER",
            two_chunk,
            [
                (Error, None),
                (Error, None),
                (Discard, None),
                (Error, V2),
                (Discard, V1),
                (Error, None),
                (Discard, V1),
            ],
        ),
        (
            "INVAL_OPTION",
            two_option,
            [
                (Error, None),
                (Error, None),
                (Discard, None),
                (Error, V2),
                (Discard, V1),
                (Error, None),
                (Discard, V1),
            ],
        ),
    ];
    for (event, message, outcomes) in &table {
        for ((state, client), expected) in states.iter().zip(outcomes) {
            let mut client = client.clone();
            let seen = match arrive(&mut client, message) {
                Incoming::Reply { .. } => Reply,
                Incoming::Again { xid: Xid(7) } => Again,
                Incoming::Error { .. } => Error,
                Incoming::Discard(_) => Discard,
                other => panic!("{other:?}"),
            };
            assert_eq!((seen, client.version()), *expected, "{event}, {state}");
            let limit = client.calls().unwrap().limit();
            assert!(
                client.version().is_some() || limit == 1,
                "one credit until the version is settled"
            );
        }
    }
    let mut one = states[6].1.clone();
    assert!(matches!(
        arrive(&mut one, &one_chunk),
        Incoming::Error { error: ErrorBody::Chunk, .. }
    ));
}

#[test]
fn an_error_that_is_no_err_vers_leaves_the_first_message_to_be_sent() {
    let mut client = connection(Side::Client, Versions::Both(TWO));
    client.take_credit().unwrap();
    call(&mut client, 7, &mut ChunkLists::new());
    arrive(&mut client, &error(2, 7, ErrorBody::Chunk));
    client.give_credit();
    client.take_credit().unwrap();
    let second = call(&mut client, 9, &mut ChunkLists::new());
    assert_eq!(second[4..8], 2_u32.to_be_bytes());
    assert_eq!(client.take_credit(), Err(NoCredit));
    assert!(
        matches!(arrive(&mut client, &err_vers(7, 1, 1)), Incoming::Error { .. }),
        "that call is over"
    );
    assert_eq!(arrive(&mut client, &err_vers(9, 1, 1)), Incoming::Again { xid: Xid(9) });
}

#[test]
fn a_server_keeps_to_the_version_of_the_first_message_it_can_read() {
    let range = |low, high| Err((low, high));
    let calls = [1, 2, 3, 0].map(|version| (version, inline(version, 7, MessageType::Call)));
    // Which versions are spoken, the first message, and what becomes of a second one in version 1,
    // 2, 3, 0.
    let both = Versions::Both(TWO);
    let one = [Ok(V1), range(1, 1), range(1, 1), range(1, 1)];
    let two = [range(2, 2), Ok(V2), range(2, 2), range(2, 2)];
    let any = [Ok(V1), Ok(V2), range(1, 2), range(1, 2)];
    for (versions, first, expected) in [
        (Versions::One, None, one),
        (Versions::One, Some(2), one),
        (Versions::Two(TWO), None, two),
        (Versions::Two(TWO), Some(1), two),
        (both, None, any),
        (both, Some(3), any),
        // Both are supported still, though one is settled (RFC 8166 §4.5.1).
        (both, Some(1), [Ok(V1), range(1, 2), range(1, 2), range(1, 2)]),
        (both, Some(2), [range(1, 2), Ok(V2), range(1, 2), range(1, 2)]),
    ] {
        for ((version, message), expected) in calls.iter().zip(expected) {
            let mut server = connection(Side::Server, versions);
            if let Some(first) = first {
                arrive(&mut server, &inline(first, 6, MessageType::Call));
            }
            let seen = match arrive(&mut server, message) {
                Incoming::Call { .. } => Ok(server.version()),
                Incoming::Answer(reply, PeerFault::Version(refused)) => {
                    assert_eq!((reply.xid, reply.version, refused), (Xid(7), *version, *version));
                    let ErrorBody::Version { low, high } = reply.error else { panic!("{reply:?}") };
                    Err((low, high))
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(seen, expected, "{versions:?}, {first:?}, then {version}");
        }
    }
}

#[test]
fn a_message_that_cannot_be_read_settles_nothing() {
    for message in [
        &inline(2, 7, MessageType::Call)[..30],
        &err_vers(7, 1, 1),
        &inline(2, 7, MessageType::Call)[..20],
    ] {
        let mut server = connection(Side::Server, Versions::Both(TWO));
        arrive(&mut server, message);
        assert_eq!(server.version(), None);
        assert_eq!(
            server.take_credit(),
            Err(NoCredit),
            "nothing goes in reverse before the version is settled"
        );
    }
}

/// Runs one call between two ends; the version word of each message, or the error that ended it.
fn converse(client: Versions, server: Versions) -> Result<Vec<u32>, ErrorBody> {
    let mut words = Vec::new();
    let mut word =
        |message: &[u8]| words.push(u32::from_be_bytes(message[4..8].try_into().unwrap()));
    let (mut client, mut server) =
        (connection(Side::Client, client), connection(Side::Server, server));
    client.take_credit().unwrap();
    let mut lists = ChunkLists::new();
    lists.begin_write().unwrap();
    lists.push_write(Segment { handle: 5, length: 4096, offset: 0 }).unwrap();
    let mut sent = call(&mut client, 7, &mut lists);
    loop {
        word(&sent);
        assert!(sent.len() <= 1024, "the first message fits the threshold of any version");
        let mut received = ChunkLists::new();
        let answer = match server.handle_message(&sent, &mut received) {
            Incoming::Call { .. } => {
                assert!(received.same_chunks(&lists));
                reply(&mut server, 7, &received)
            }
            Incoming::Answer(answer, _) => {
                let mut out = vec![0; 28];
                let len = emit_error(&answer, &mut out).unwrap();
                out.truncate(len);
                out
            }
            other => panic!("{other:?}"),
        };
        word(&answer);
        let mut returned = ChunkLists::new();
        match client.handle_message(&answer, &mut returned) {
            Incoming::Reply { .. } => break,
            Incoming::Again { xid } => sent = call(&mut client, xid.0, &mut lists),
            Incoming::Error { error, .. } => return Err(error),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(client.version(), server.version());
    assert_eq!(client.calls().unwrap().limit(), 4, "the grant of the reply");
    Ok(words)
}

#[test]
fn every_two_ends_agree_on_the_highest_version_that_both_speak() {
    let (one, two, both) = (Versions::One, Versions::Two(TWO), Versions::Both(TWO));
    assert_eq!(converse(one, one), Ok(vec![1, 1]));
    assert_eq!(converse(one, both), Ok(vec![1, 1]));
    assert_eq!(converse(two, two), Ok(vec![2, 2]));
    assert_eq!(converse(two, both), Ok(vec![2, 2]));
    assert_eq!(converse(both, both), Ok(vec![2, 2]));
    assert_eq!(converse(both, two), Ok(vec![2, 2]));
    // The same call twice: ERR_VERS echoes the version of the first one (RFC 8166 §4.5).
    assert_eq!(converse(both, one), Ok(vec![2, 2, 1, 1]));
    assert_eq!(converse(one, two), Err(ErrorBody::Version { low: 2, high: 2 }));
    assert_eq!(converse(two, one), Err(ErrorBody::Version { low: 1, high: 1 }));
    let plain = Version2::Undirected;
    assert_eq!(converse(Versions::Both(plain), Versions::Both(plain)), Ok(vec![2, 2]));
    assert_eq!(converse(Versions::Both(plain), one), Ok(vec![2, 2, 1, 1]));
}

#[test]
fn the_words_of_draft_001_are_forced_on_a_peer_that_announces_nothing() {
    let silent = Dialects::default();
    for (versions, agreed) in
        [(Versions::TwoDirected, Versions::Two(TWO)), (Versions::BothDirected, Versions::Both(TWO))]
    {
        assert_eq!(versions.dialects(), silent, "nothing is announced");
        for theirs in [silent, Dialects { directed: true }] {
            assert_eq!(versions.agreed(theirs), agreed);
        }
        assert_eq!(converse(versions, Versions::Two(TWO)), Ok(vec![2, 2]));
        assert!(versions.include_two());
    }
    assert_eq!(converse(Versions::BothDirected, Versions::One), Ok(vec![2, 2, 1, 1]));
    let refused = Err(ErrorBody::Version { low: 1, high: 1 });
    assert_eq!(converse(Versions::TwoDirected, Versions::One), refused);
}

#[test]
fn thresholds_change_when_the_version_is_settled() {
    for (peer, first, one, two) in [
        (PrivateData::SILENT, 1024, 1024, 4096),
        (offer(false, 2048), 1024, 2048, 4096),
        (offer(false, 8192), 1024, 4096, 4096),
        (offer(true, 65_536), 1024, 4096, 4096),
    ] {
        let setup = Setup { peer, ..setup(Side::Client) };
        let mut client = Connection::speaking(setup, Versions::Both(TWO));
        let sizes = |client: &Connection| {
            let path = client.path(3);
            assert_eq!(
                (path.call, path.reply, path.segments),
                (client.send_threshold(), client.receive_threshold(), 3)
            );
            (path.call.octets(), path.reply.octets(), path.header)
        };
        client.take_credit().unwrap();
        assert_eq!(sizes(&client), (first, one, 36), "whichever version answers");
        call(&mut client, 7, &mut ChunkLists::new());
        assert_eq!(sizes(&client), (first, one, 36));
        let mut refused = client.clone();
        arrive(&mut client, &inline(2, 7, MessageType::Reply));
        assert_eq!(sizes(&client), (two, two, 36));
        arrive(&mut refused, &err_vers(7, 1, 1));
        assert_eq!(sizes(&refused), (one, one, 28));
        arrive(&mut refused, &inline(1, 7, MessageType::Reply));
        assert_eq!(sizes(&refused), (one, one, 28));
    }
    let large = Setup { own: offer(true, 16_384), peer: offer(true, 8192), ..setup(Side::Server) };
    let mut server = Connection::speaking(large, Versions::Both(TWO));
    arrive(&mut server, &inline(2, 7, MessageType::Call));
    assert_eq!(
        (server.send_threshold().octets(), server.receive_threshold().octets()),
        (8192, 8192)
    );
}

#[test]
fn a_peer_lost_right_after_the_first_message_is_asked_for_version_1_for_a_while() {
    let both = Versions::Both(TWO);
    let now = Duration::from_secs(1000);
    let lost = |steps: &[&dyn Fn(&mut Connection)]| {
        let mut client = connection(Side::Client, both);
        client.take_credit().unwrap();
        steps.iter().for_each(|step| step(&mut client));
        let mut memory = PeerMemory::new();
        memory.handle_lost(&client, now);
        memory
    };
    let send = |client: &mut Connection| drop(call(client, 7, &mut ChunkLists::new()));
    let refuse = |client: &mut Connection| {
        arrive(client, &err_vers(7, 1, 1));
    };
    let answer = |client: &mut Connection| {
        arrive(client, &inline(2, 7, MessageType::Reply));
    };
    let answer_one = |client: &mut Connection| {
        arrive(client, &inline(1, 7, MessageType::Reply));
    };
    for (memory, marked) in [
        (lost(&[]), false),
        (lost(&[&send]), true),
        (lost(&[&send, &refuse]), true),
        (lost(&[&send, &answer]), false),
        (lost(&[&send, &refuse, &answer_one]), false),
    ] {
        let expected = if marked { Versions::One } else { both };
        assert_eq!(memory.versions(both, now), expected);
        let end = now + PeerMemory::VERSION1_FOR;
        assert_eq!(memory.versions(both, end - Duration::from_nanos(1)), expected);
        assert_eq!(memory.versions(both, end), both);
        assert_eq!(
            memory.versions(Versions::Two(TWO), now),
            Versions::Two(TWO),
            "there is no other"
        );
    }
    let mut memory = PeerMemory::new();
    memory.handle_lost(&connection(Side::Client, Versions::One), now);
    assert_eq!(memory, PeerMemory::new());
}

// Remote invalidation.

fn chunks(lengths: &[u32]) -> ChunkLists {
    let mut lists = ChunkLists::new();
    lists.begin_write().unwrap();
    for (number, length) in lengths.iter().enumerate() {
        lists
            .push_write(Segment { handle: 1 + number as u32, length: *length, offset: 0 })
            .unwrap();
    }
    lists
        .push_read(Position::new(8).unwrap(), Segment { handle: 9, length: 10, offset: 0 })
        .unwrap();
    lists
}

fn settled(side: Side, dialect: Version2, own: bool) -> Connection {
    let setup = Setup { own: offer(own, 4096), ..setup(side) };
    Connection::speaking(setup, Versions::Two(dialect))
}

#[test]
fn a_call_names_its_longest_key_if_this_end_bears_it_and_its_reply_copies_that() {
    for side in [Side::Client, Side::Server] {
        for (own, dialect, expected) in [
            (true, Version2::Directed, Some(2)),
            (false, Version2::Directed, Some(0)),
            (true, Version2::Undirected, None),
        ] {
            let mut lists = chunks(&[100, 200, 4]);
            settled(side, dialect, own).mark_call(&mut lists);
            let intent =
                expected.map(|inv_handle| Intent { message_type: MessageType::Call, inv_handle });
            assert_eq!(lists.intent(), intent);
            let mut returned = ChunkLists::new();
            returned.return_unused(&lists);
            let answer =
                expected.map(|inv_handle| Intent { message_type: MessageType::Reply, inv_handle });
            assert_eq!(returned.intent(), answer);
        }
    }
    let mut without = ChunkLists::new();
    settled(Side::Client, TWO, true).mark_call(&mut without);
    assert_eq!(without.intent().map(|intent| intent.inv_handle), Some(0), "no chunk, no key");
}

#[test]
fn exactly_the_named_key_is_invalidated_in_both_directions_whatever_was_announced() {
    for side in [Side::Client, Side::Server] {
        for own in [false, true] {
            for (inv_handle, expected) in
                [(0, None), (1, Some(1)), (2, Some(2)), (9, Some(9)), (77, None)]
            {
                let mut lists = chunks(&[100, 200]);
                lists.set_intent(Some(Intent { message_type: MessageType::Call, inv_handle }));
                assert_eq!(settled(side, Version2::Directed, own).invalidates(&lists), expected);
            }
            assert_eq!(settled(side, Version2::Undirected, own).invalidates(&chunks(&[100])), None);
        }
    }
}

#[test]
fn a_call_that_goes_again_says_only_what_its_version_has() {
    let mut client = connection(Side::Client, Versions::Both(TWO));
    client.take_credit().unwrap();
    let mut lists = chunks(&[100]);
    let first = call(&mut client, 7, &mut lists);
    assert_eq!(arrive(&mut client, &err_vers(7, 1, 1)), Incoming::Again { xid: Xid(7) });
    let again = call(&mut client, 7, &mut lists);
    assert_eq!((first.len(), lists.intent()), (again.len() + Intent::LEN, None));
    let mut parsed = ChunkLists::new();
    v1::parse(&again, &mut parsed).unwrap();
    assert_eq!(parsed, chunks(&[100]));
    assert_eq!(client.take_credit(), Err(NoCredit), "the call keeps its credit");
}

// Options.

/// Two ends of version 2 with this grant each way.
fn pair(grant: u32) -> (Connection, Connection) {
    let end = |side| Connection::speaking(Setup { grant, ..setup(side) }, Versions::Two(TWO));
    let (mut client, mut server) = (end(Side::Client), end(Side::Server));
    client.take_credit().unwrap();
    let null = call(&mut client, 1, &mut ChunkLists::new());
    let mut lists = ChunkLists::new();
    assert!(matches!(server.handle_message(&null, &mut lists), Incoming::Call { .. }));
    let answer = reply(&mut server, 1, &lists);
    assert!(matches!(arrive(&mut client, &answer), Incoming::Reply { .. }));
    client.give_credit();
    (client, server)
}

fn send(from: &Connection, to: &mut Connection, xid: u32, message: &Message) -> Incoming {
    let mut out = vec![0; 64];
    let len = from.emit_option(Xid(xid), message, &mut out).unwrap();
    arrive(to, &out[..len])
}

fn ask(from: &mut Connection, to: &mut Connection, xid: u32) -> Incoming {
    from.ask_option(Xid(xid), &ASK).unwrap();
    let seen = send(from, to, xid, &ASK);
    assert_eq!(seen, Incoming::Option { xid: Xid(xid), message: ASK });
    let answer = to.answer_option(&ASK);
    let seen = send(to, from, xid, &answer);
    assert_eq!(seen, Incoming::Option { xid: Xid(xid), message: answer });
    seen
}

#[test]
fn health_is_learnt_within_the_credits_and_then_works_without_any() {
    let (mut client, mut server) = pair(2);
    let receives = |client: &Connection, server: &Connection| {
        (client.option_receives(), server.option_receives())
    };
    assert_eq!(receives(&client, &server), (0, 0));
    let in_use = |credits| {
        let reply = health::Reply { credits_granted: 2, credits_in_use: credits };
        Message::Health(Exchange::Reply(reply))
    };
    assert_eq!(
        ask(&mut client, &mut server, 2),
        Incoming::Option { xid: Xid(2), message: in_use(0) }
    );
    assert_eq!(receives(&client, &server), (1, 1), "one for the answer, one for the next request");
    assert_eq!(
        (client.calls().unwrap().in_flight(), server.serves().unwrap().outstanding()),
        (0, 0)
    );
    for xid in [3, 4] {
        client.take_credit().unwrap();
        arrive(&mut server, &call(&mut client, xid, &mut ChunkLists::new()));
    }
    assert_eq!(client.take_credit(), Err(NoCredit));
    for xid in 5..10 {
        assert_eq!(
            ask(&mut client, &mut server, xid),
            Incoming::Option { xid: Xid(xid), message: in_use(2) }
        );
        assert_eq!(receives(&client, &server), (1, 1));
    }
    assert_eq!(server.serves().unwrap().outstanding(), 2, "options take no credits any more");
}

#[test]
fn health_goes_both_ways_at_once() {
    let (mut client, mut server) = pair(1);
    ask(&mut client, &mut server, 2);
    ask(&mut server, &mut client, 2);
    assert_eq!((client.option_receives(), server.option_receives()), (2, 2));
    ask(&mut server, &mut client, 3);
    ask(&mut client, &mut server, 3);
}

#[test]
fn the_first_request_waits_for_a_credit_and_one_is_outstanding_at_a_time() {
    let (mut client, mut server) = pair(1);
    client.take_credit().unwrap();
    assert_eq!(client.ask_option(Xid(2), &ASK), Err(NoOption::Credit));
    client.give_credit();
    client.ask_option(Xid(2), &ASK).unwrap();
    assert_eq!(client.take_credit(), Err(NoCredit), "the request holds the credit");
    assert_eq!(client.ask_option(Xid(3), &ASK), Err(NoOption::Busy));
    assert!(matches!(send(&client, &mut server, 2, &ASK), Incoming::Option { .. }));
    assert_eq!(server.option_receives(), 1, "posted before the answer goes out");
    assert_eq!(
        send(&client, &mut server, 3, &ASK),
        Incoming::Close(PeerFault::CreditsExceeded),
        "the peer keeps to one as well"
    );
    let mut reverse =
        Connection::speaking(Setup { calls_max: 0, ..setup(Side::Server) }, Versions::Two(TWO));
    let asked = reverse.ask_option(Xid(1), &ASK);
    assert_eq!(asked, Err(NoOption::Credit), "a side that does not call has none");
}

#[test]
fn a_peer_that_refuses_is_asked_once() {
    let (mut client, mut server) = pair(1);
    client.ask_option(Xid(2), &ASK).unwrap();
    assert!(matches!(send(&client, &mut server, 2, &ASK), Incoming::Option { .. }));
    let refusal = server.refuse_option(Xid(2), OptionName::Health);
    let mut out = [0; 28];
    let len = emit_error(&refusal, &mut out).unwrap();
    let refused = Incoming::OptionRefused { xid: Xid(2), option: OptionName::Health };
    assert_eq!(arrive(&mut client, &out[..len]), refused);
    assert_eq!((client.option_receives(), server.option_receives()), (0, 0));
    assert_eq!(client.ask_option(Xid(3), &ASK), Err(NoOption::Refused));
    assert_eq!(client.take_credit(), Ok(()), "the credit came back");
    assert!(matches!(
        arrive(&mut client, &out[..len]),
        Incoming::Error { error: ErrorBody::Option, .. }
    ));
}

#[test]
fn an_end_that_takes_no_calls_refuses_options_and_unasked_answers_are_forgotten() {
    let (mut server_asks, mut client) = (pair(1).1, connection(Side::Client, Versions::Two(TWO)));
    let tell = Message::Health(Exchange::Reply(health::Reply::default()));
    assert_eq!(
        send(&server_asks, &mut client, 2, &tell),
        Incoming::Discard(PeerFault::UnexpectedOption(health::REPLY))
    );
    let mut deaf =
        Connection::speaking(Setup { grant: 0, ..setup(Side::Client) }, Versions::Two(TWO));
    server_asks.ask_option(Xid(2), &ASK).unwrap();
    let reply =
        ErrorReply { xid: Xid(2), version: 2, credits: Credits(1), error: ErrorBody::Option };
    let refused = Incoming::Answer(reply, PeerFault::UnknownOption(health::REQUEST));
    assert_eq!(send(&server_asks, &mut deaf, 2, &ASK), refused);
    let wrong = send(&client, &mut server_asks, 3, &tell);
    assert_eq!(wrong, Incoming::Discard(PeerFault::UnexpectedOption(health::REPLY)), "another XID");
}

#[test]
fn version_1_has_no_options() {
    let mut one = connection(Side::Client, Versions::One);
    assert_eq!(one.ask_option(Xid(1), &ASK), Err(NoOption::Version));
    let mut open = connection(Side::Client, Versions::Both(TWO));
    assert_eq!(open.ask_option(Xid(1), &ASK), Err(NoOption::Version));
    let (asker, _) = pair(1);
    let mut server = connection(Side::Server, Versions::One);
    let mut out = [0; 64];
    let len = asker.emit_option(Xid(1), &ASK, &mut out).unwrap();
    out[7] = 1;
    // Padded to the shortest header of version 1: an unknown procedure there (RFC 8166 §4.6).
    let answer = arrive(&mut server, &out[..len + 4]);
    assert!(matches!(
        answer,
        Incoming::Answer(ErrorReply { error: ErrorBody::Chunk, .. }, PeerFault::Procedure(5))
    ));
}

#[test]
fn the_undirected_dialect_serves_version_2_without_a_word_more() {
    let mut out = [0; 64];
    let header = Header { xid: Xid(7), credits: Credits(1), body: Body::Msg };
    let len = v2::emit::<Undirected>(&header, &ChunkLists::new(), &mut out).unwrap();
    let mut one = [0; 64];
    v1::emit(&header, &ChunkLists::new(), &mut one).unwrap();
    one[7] = 2;
    assert_eq!((len, out), (28, one));
}

#[test]
fn the_page_about_health_has_the_numbers_of_the_code() {
    let page = include_str!("../../docs/options/health.md");
    for (name, opttype) in [("REQUEST", health::REQUEST), ("REPLY", health::REPLY)] {
        assert!(
            page.contains(&format!("/// const STAG_HEALTH_{name} = {opttype:#010x};")),
            "{name}"
        );
    }
    // As its XDR says: two words.
    let reply = health::Reply { credits_granted: 2, credits_in_use: 3 };
    let mut out = [0; 64];
    let len =
        pair(1).0.emit_option(Xid(9), &Message::Health(Exchange::Reply(reply)), &mut out).unwrap();
    let words = [9, 2, 1, 5, health::REPLY, 8, 2, 3].map(u32::to_be_bytes);
    assert_eq!(&out[..len], words.as_flattened());
}
