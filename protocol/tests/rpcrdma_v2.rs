//! The wire format of RPC-over-RDMA version 2 in both dialects, message by message and octet by
//! octet.
//!
//! As for version 1, a second, naive reading of the drafts in this file says what each message is;
//! the library has to agree with it on every mutation of every message. And what version 1 and
//! version 2 mean by the same chunks is the same.

use crate::rpcrdma_common::{lists, segment, set_word, walk};
use stag_protocol::rpcrdma::chunk::{READS_MAX, SEGMENTS_MAX, WRITES_MAX};
use stag_protocol::rpcrdma::option::{self, Exchange, Message, health};
use stag_protocol::rpcrdma::v2::{self, Dialect, Directed, Malformed, Undirected};
use stag_protocol::rpcrdma::{
    Body, ChunkLists, Connection, Credits, Direction, ErrorBody, ErrorReply, Header, Incoming,
    InlineSize, Intent, MessageType, PeerFault, Position, PrivateData, Setup, Side, Version2,
    Versions, Xid, v1,
};
use stag_protocol::xdr::NoRoom;

const XID: u32 = 0x2770_0cda;
const DIALECTS: [Version2; 2] = [Version2::Directed, Version2::Undirected];
const SIDES: [Side; 2] = [Side::Client, Side::Server];

fn emit(
    dialect: Version2,
    header: &Header,
    lists: &ChunkLists,
    out: &mut [u8],
) -> Result<usize, NoRoom> {
    match dialect {
        Version2::Directed => v2::emit::<Directed>(header, lists, out),
        Version2::Undirected => v2::emit::<Undirected>(header, lists, out),
    }
}

fn parse(
    dialect: Version2,
    message: &[u8],
    lists: &mut ChunkLists,
) -> Result<(Header, usize), Malformed> {
    match dialect {
        Version2::Directed => v2::parse::<Directed>(message, lists),
        Version2::Undirected => v2::parse::<Undirected>(message, lists),
    }
}

/// The lists as `dialect` sends them in a message of this type.
fn marked(
    dialect: Version2,
    lists: &ChunkLists,
    message_type: MessageType,
    inv_handle: u32,
) -> ChunkLists {
    let mut lists = lists.clone();
    let intent = Intent { message_type, inv_handle };
    lists.set_intent((dialect == Version2::Directed).then_some(intent));
    lists
}

/// A message and, after RDMA_MSG, the first words of an RPC message of the same XID and type.
fn message(
    dialect: Version2,
    body: Body,
    lists: &ChunkLists,
    message_type: MessageType,
) -> Vec<u8> {
    let lists = marked(dialect, lists, message_type, 0x100);
    let header = Header { xid: Xid(XID), credits: Credits(128), body };
    let mut out = vec![0xee; 2048];
    let len = emit(dialect, &header, &lists, &mut out).unwrap();
    out.truncate(len);
    if body == Body::Msg {
        for word in [XID, message_type as u32, 2, 100_003, 3, 1] {
            out.extend(word.to_be_bytes());
        }
    }
    out
}

fn optional(message: &Message) -> Vec<u8> {
    let mut out = vec![0xee; 64];
    let len = option::emit(Xid(XID), Credits(7), message, &mut out).unwrap();
    out.truncate(len);
    out
}

const ASK: Message = Message::Health(Exchange::Request(health::Request));
const TELL: Message =
    Message::Health(Exchange::Reply(health::Reply { credits_granted: 64, credits_in_use: 5 }));

/// An end that calls and serves, on a connection of version 2.
fn connection(side: Side, dialect: Version2) -> Connection {
    let size = InlineSize::at_most(4096);
    let own = PrivateData { remote_invalidation: true, send: size, receive: size };
    let setup = Setup { side, own, peer: PrivateData::SILENT, calls_max: 8, grant: 8 };
    Connection::speaking(setup, Versions::Two(dialect))
}

/// Classes of messages, by their fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Call,
    Reply,
    Error,
    Option,
    ErrVers,
    BadHeader,
    InvalOption,
    Discard,
}

fn class(side: Side, dialect: Version2, message: &[u8]) -> Class {
    let mut lists = ChunkLists::new();
    match connection(side, dialect).handle_message(message, &mut lists) {
        Incoming::Call { direction, .. } => {
            assert_eq!(direction, side.serves());
            Class::Call
        }
        Incoming::Reply { direction, .. } => {
            assert_eq!(direction, side.calls());
            Class::Reply
        }
        Incoming::Error { .. } => Class::Error,
        Incoming::Option { .. } => Class::Option,
        Incoming::Answer(reply, _) => {
            assert_eq!(
                reply.xid.0.to_be_bytes(),
                message[..4],
                "an answer names the message's transaction"
            );
            assert_eq!(
                reply.version.to_be_bytes(),
                message[4..8],
                "an answer echoes the message's version"
            );
            match reply.error {
                ErrorBody::Version { low: 2, high: 2 } => Class::ErrVers,
                ErrorBody::Version { .. } => panic!("only version 2 is spoken"),
                ErrorBody::Chunk => Class::BadHeader,
                ErrorBody::Option => Class::InvalOption,
            }
        }
        Incoming::Discard(_) => Class::Discard,
        other => panic!("one message never does this: {other:?}"),
    }
}

/// The second reading: what drafts 000 and 001 say of a message, word by word.
fn expected(side: Side, dialect: Version2, message: &[u8]) -> Class {
    let words: Vec<u32> =
        message.chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
    let [_, version, _, procedure, rest @ ..] = words.as_slice() else { return Class::Discard };
    let at_server = |class| if side == Side::Server { class } else { Class::Discard };
    if *procedure == 4 {
        return match rest {
            [1, _, _, ..] => Class::Error,
            [2 | 3, ..] if *version == 2 => Class::Error,
            _ => Class::Discard,
        };
    }
    let least = match (*version, *procedure) {
        (2, 0 | 1 | 3) => 28,
        (2, 5) => 20,
        // Nothing is known of what follows an unknown procedure.
        (2, _) => 16,
        _ => 28,
    };
    if message.len() < least {
        return Class::Discard;
    }
    match (*version, *procedure) {
        (2, 0 | 1) => expected_message(side, dialect, &words),
        (2, 3) => Class::Discard,
        (2, 5) => expected_option(message.len(), rest),
        (2, _) => at_server(Class::BadHeader),
        _ => at_server(Class::ErrVers),
    }
}

fn expected_option(len: usize, rest: &[u32]) -> Class {
    let content = rest.get(1).map(|content| u64::from(*content));
    match rest[0] {
        health::REQUEST if content == Some(0) && len == 24 => Class::Option,
        health::REQUEST => Class::BadHeader,
        health::REPLY => Class::Discard, // Nobody asked.
        _ => Class::InvalOption,
    }
}

fn expected_message(side: Side, dialect: Version2, words: &[u32]) -> Class {
    let (at, said) = match (dialect, words.get(4), words.get(5)) {
        (Version2::Undirected, ..) => (4, None),
        (_, Some(said @ 0..2), Some(_)) => (6, Some(*said)),
        _ => return if side == Side::Server { Class::BadHeader } else { Class::Discard },
    };
    let bad = match (said, side) {
        (Some(0), _) | (None, Side::Server) => Class::BadHeader,
        _ => Class::Discard,
    };
    let Some((end, reads, others)) = walk(words, at) else { return bad };
    let chunks = reads || others;
    if words[3] == 1 {
        return match (chunks, said, side) {
            (false, ..) => bad,
            (_, Some(0), _) | (_, None, Side::Server) => Class::Call,
            (_, None, Side::Client) if reads => Class::BadHeader,
            _ => Class::Reply,
        };
    }
    let inline = words.get(end..end + 2);
    let xid_fits = inline.is_some_and(|inline| inline[0] == words[0]);
    match (said, inline.map(|inline| inline[1])) {
        (None, Some(0)) if side == Side::Client && chunks => Class::BadHeader,
        (None | Some(0), Some(0)) => {
            if xid_fits {
                Class::Call
            } else {
                Class::BadHeader
            }
        }
        (None | Some(1), Some(1)) => {
            if xid_fits {
                Class::Reply
            } else {
                Class::Discard
            }
        }
        _ => bad,
    }
}

/// Messages of every kind: all small shapes of lists, the largest ones, errors, options.
fn corpus(dialect: Version2) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    let mut all = |lists: &ChunkLists| {
        for message_type in [MessageType::Call, MessageType::Reply] {
            messages.push(message(dialect, Body::Msg, lists, message_type));
            if !lists.is_empty() {
                messages.push(message(dialect, Body::NoMsg, lists, message_type));
            }
        }
    };
    for reads in 0..=2 {
        for writes in [&[][..], &[0], &[1, 0, 2]] {
            for reply in [None, Some(0), Some(2)] {
                all(&lists(reads, writes, reply));
            }
        }
    }
    all(&lists(3, &[1; WRITES_MAX], None));
    messages.extend(
        ERRORS.map(|error| {
            message(dialect, Body::Error(error), &ChunkLists::new(), MessageType::Call)
        }),
    );
    messages.extend([optional(&ASK), optional(&TELL)]);
    let mut unknown = optional(&TELL);
    set_word(&mut unknown, 4, 99);
    messages.push(unknown);
    messages
}

const ERRORS: [ErrorBody; 3] =
    [ErrorBody::Chunk, ErrorBody::Option, ErrorBody::Version { low: 1, high: 2 }];

fn agree(dialect: Version2, message: &[u8]) {
    for side in SIDES {
        let (got, expected) = (class(side, dialect, message), expected(side, dialect, message));
        assert_eq!(got, expected, "{dialect:?} at a {side:?}: {message:02x?}");
    }
}

// Round trips.

#[test]
fn every_shape_of_up_to_sixteen_segments_a_chunk_survives_a_round_trip() {
    let mut parsed = ChunkLists::new();
    for reads in 0..=16 {
        for write in (0..=17_usize).map(|count| count.checked_sub(1)) {
            for reply in (0..=17_usize).map(|count| count.checked_sub(1)) {
                let lists = lists(reads, write.as_slice(), reply);
                let body = if lists.is_empty() { Body::Msg } else { Body::NoMsg };
                let header = Header { xid: Xid(XID), credits: Credits(1), body };
                for dialect in DIALECTS {
                    let lists = marked(dialect, &lists, MessageType::Reply, 0x101);
                    let mut out = [0; 1500];
                    let len = emit(dialect, &header, &lists, &mut out).unwrap();
                    assert_eq!(len, v2::header_len(&lists));
                    assert_eq!(parse(dialect, &out[..len], &mut parsed), Ok((header, len)));
                    assert_eq!(parsed, lists);
                    assert_eq!(
                        parse(dialect, &out, &mut parsed),
                        Ok((header, len)),
                        "the payload is left alone"
                    );
                }
            }
        }
    }
}

#[test]
fn what_stands_before_the_lists_survives_a_round_trip() {
    for message_type in [MessageType::Call, MessageType::Reply] {
        for inv_handle in [0, 1, 0x100, u32::MAX] {
            let lists = marked(Version2::Directed, &lists(1, &[1], None), message_type, inv_handle);
            let header = Header { xid: Xid(XID), credits: Credits(1), body: Body::Msg };
            let (mut out, mut parsed) = ([0; 128], ChunkLists::new());
            let len = v2::emit::<Directed>(&header, &lists, &mut out).unwrap();
            v2::parse::<Directed>(&out[..len], &mut parsed).unwrap();
            assert_eq!(parsed.intent(), Some(Intent { message_type, inv_handle }));
            assert_eq!(
                (out[16..20].to_vec(), &out[20..24]),
                ((message_type as u32).to_be_bytes().to_vec(), &inv_handle.to_be_bytes()[..])
            );
        }
    }
}

#[test]
fn an_unknown_option_is_refused_by_its_type_however_it_is_cut() {
    let mut unknown = optional(&TELL);
    set_word(&mut unknown, 4, 99);
    for side in [Side::Client, Side::Server] {
        for dialect in DIALECTS {
            for cut in 20..=unknown.len() {
                assert_eq!(
                    class(side, dialect, &unknown[..cut]),
                    Class::InvalOption,
                    "cut at {cut}"
                );
            }
            assert_eq!(class(side, dialect, &unknown[..19]), Class::Discard);
            // The same cuts of a request and of an answer that we know.
            for cut in 20..24 {
                assert_eq!(class(side, dialect, &optional(&ASK)[..cut]), Class::BadHeader);
                assert_eq!(class(side, dialect, &optional(&TELL)[..cut]), Class::Discard);
            }
        }
    }
}

#[test]
fn an_unknown_procedure_is_answered_by_its_four_words() {
    for dialect in DIALECTS {
        for procedure in [2, 6, 7, 99, u32::MAX] {
            let mut message = optional(&ASK);
            set_word(&mut message, 3, procedure);
            for cut in 16..=message.len() {
                assert_eq!(class(Side::Server, dialect, &message[..cut]), Class::BadHeader);
                assert_eq!(class(Side::Client, dialect, &message[..cut]), Class::Discard);
            }
            assert_eq!(class(Side::Server, dialect, &message[..15]), Class::Discard);
            // Version 1 has a shortest header, and leaves what is shorter unanswered.
            set_word(&mut message, 1, 1);
            assert_eq!(class(Side::Server, dialect, &message[..24]), Class::Discard);
        }
    }
}

#[test]
fn every_error_survives_a_round_trip_and_has_its_length_and_number() {
    for (error, len, number) in [
        (ErrorBody::Version { low: 1, high: 2 }, 28, 1),
        (ErrorBody::Chunk, 20, 2),
        (ErrorBody::Option, 20, 3),
    ] {
        for dialect in DIALECTS {
            let header = Header { xid: Xid(9), credits: Credits(64), body: Body::Error(error) };
            let (mut out, mut parsed) = ([0; v2::ERROR_LEN_MAX], lists(1, &[1], Some(1)));
            let got = emit(dialect, &header, &parsed, &mut out).unwrap();
            assert_eq!((got, u32::from_be_bytes(out[16..20].try_into().unwrap())), (len, number));
            assert_eq!(parse(dialect, &out[..len], &mut parsed), Ok((header, len)));
            assert!(parsed.is_empty());
        }
    }
}

#[test]
fn every_option_survives_a_round_trip_and_every_cut_and_every_shorter_room_is_refused() {
    for (message, len) in [(ASK, 24), (TELL, 32)] {
        let whole = optional(&message);
        assert_eq!(whole.len(), len);
        for dialect in DIALECTS {
            let mut lists = lists(1, &[1], Some(1));
            let (header, consumed) = parse(dialect, &whole, &mut lists).unwrap();
            let Body::Optional { opttype, len: content } = header.body else {
                panic!("{header:?}")
            };
            assert_eq!(
                (header.xid, header.credits, consumed, lists.is_empty()),
                (Xid(XID), Credits(7), len, true)
            );
            let info = &whole[v2::OPTION_AT..][..content as usize];
            assert_eq!(option::parse(opttype, info, 0), Ok(message));
            assert_eq!(
                option::parse(opttype, info, 1),
                Err(PeerFault::BadOption(opttype)),
                "no payload follows"
            );
            for cut in 0..info.len() {
                assert_eq!(
                    option::parse(opttype, &info[..cut], 0),
                    Err(PeerFault::BadOption(opttype))
                );
            }
            let longer = [info, &[0; 4]].concat();
            assert_eq!(option::parse(opttype, &longer, 0), Err(PeerFault::BadOption(opttype)));
        }
        for room in 0..len {
            assert_eq!(option::emit(Xid(1), Credits(1), &message, &mut vec![0; room]), Err(NoRoom));
        }
    }
}

#[test]
fn a_header_that_does_not_fit_is_refused_at_every_length() {
    for dialect in DIALECTS {
        let lists = marked(dialect, &lists(2, &[2], Some(2)), MessageType::Call, 1);
        for body in [Body::Msg, Body::Error(ErrorBody::Option)] {
            let header = Header { xid: Xid(1), credits: Credits(1), body };
            let len = emit(dialect, &header, &lists, &mut [0; 256]).unwrap();
            for room in 0..len {
                assert_eq!(
                    emit(dialect, &header, &lists, &mut vec![0; room]),
                    Err(NoRoom),
                    "{body:?} in {room}"
                );
            }
        }
    }
}

// Every mutation.

#[test]
fn every_message_of_the_corpus_and_every_cut_of_it_has_the_right_answer() {
    for dialect in DIALECTS {
        for message in corpus(dialect) {
            for cut in 0..=message.len() {
                agree(dialect, &message[..cut]);
            }
        }
    }
}

#[test]
fn every_flipped_bit_has_the_right_answer() {
    for dialect in DIALECTS {
        for mut message in corpus(dialect) {
            for bit in 0..message.len() * 8 {
                message[bit / 8] ^= 1 << (bit % 8);
                agree(dialect, &message);
                message[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}

#[test]
fn every_word_set_to_an_extreme_has_the_right_answer() {
    let extremes = [0, 1, 2, 3, 4, 5, 17, 64, 65, 1 << 31, u32::MAX - 3, u32::MAX];
    for dialect in DIALECTS {
        for message in corpus(dialect) {
            for index in 0..message.len() / 4 {
                for value in extremes.into_iter().chain([health::REQUEST, health::REPLY]) {
                    let mut other = message.clone();
                    set_word(&mut other, index, value);
                    agree(dialect, &other);
                }
            }
        }
    }
}

#[test]
fn every_octet_of_every_fixed_field_set_to_every_value_has_the_right_answer() {
    for dialect in DIALECTS {
        for mut message in corpus(dialect) {
            for at in 0..message.len().min(36) {
                let before = message[at];
                for value in 0..=255 {
                    message[at] = value;
                    agree(dialect, &message);
                }
                message[at] = before;
            }
        }
    }
}

#[test]
fn a_message_of_one_dialect_does_no_harm_to_the_other() {
    for (from, to) in
        [(Version2::Directed, Version2::Undirected), (Version2::Undirected, Version2::Directed)]
    {
        corpus(from).iter().for_each(|message| agree(to, message));
    }
}

// Rules of their own.

#[test]
fn a_header_and_an_rpc_message_that_differ_on_call_and_reply_are_no_message() {
    for (said, rpc_type, expected) in [
        (0, 0, Class::Call),
        (0, 1, Class::BadHeader),
        (1, 0, Class::Discard),
        (1, 1, Class::Reply),
    ] {
        let mut message =
            message(Version2::Directed, Body::Msg, &lists(0, &[1], None), MessageType::Call);
        let payload_at = message.len() / 4 - 6;
        set_word(&mut message, 4, said);
        set_word(&mut message, payload_at + 1, rpc_type);
        for side in SIDES {
            assert_eq!(
                class(side, Version2::Directed, &message),
                expected,
                "{said} and {rpc_type}"
            );
        }
    }
}

#[test]
fn chunks_go_both_ways_with_a_direction_and_forward_only_without() {
    for body in [Body::Msg, Body::NoMsg] {
        for chunks in [lists(1, &[], None), lists(0, &[1], None), lists(0, &[], Some(1))] {
            let at = |side, dialect| {
                class(side, dialect, &message(dialect, body, &chunks, MessageType::Call))
            };
            assert_eq!(at(Side::Server, Version2::Directed), Class::Call);
            assert_eq!(at(Side::Client, Version2::Directed), Class::Call);
            assert_eq!(at(Side::Server, Version2::Undirected), Class::Call);
            assert_ne!(
                at(Side::Client, Version2::Undirected),
                Class::Call,
                "without a direction word: RFC 8167 §5.3"
            );
        }
    }
}

#[test]
fn more_than_we_hold_gets_bad_header_and_leaves_no_chunk_behind() {
    let mut full = message(
        Version2::Directed,
        Body::NoMsg,
        &lists(SEGMENTS_MAX, &[], None),
        MessageType::Call,
    );
    assert_eq!(class(Side::Server, Version2::Directed, &full), Class::Call);
    let one_more: Vec<_> = full[24..48].to_vec();
    full.splice(24..24, one_more);
    let mut parsed = ChunkLists::new();
    let refused = v2::parse::<Directed>(&full, &mut parsed);
    assert!(
        matches!(refused, Err(Malformed::Answer { fault: PeerFault::TooManySegments, .. })),
        "{refused:?}"
    );
    assert!(parsed.is_empty());
    assert_eq!(parsed.intent().map(|intent| intent.message_type), Some(MessageType::Call));
}

#[test]
fn an_unknown_option_gets_inval_option_with_its_xid_from_either_side() {
    for opttype in [0, 1, health::REQUEST - 1, health::REPLY + 1, u32::MAX] {
        for content in [0, 4, 8] {
            let mut message = vec![0; 24 + content];
            for (index, word) in [XID, 2, 5, 5, opttype, content as u32].into_iter().enumerate() {
                set_word(&mut message, index, word);
            }
            for (side, dialect) in
                SIDES.into_iter().flat_map(|side| DIALECTS.map(|dialect| (side, dialect)))
            {
                let mut end = connection(side, dialect);
                let answer = end.handle_message(&message, &mut ChunkLists::new());
                let reply = ErrorReply {
                    xid: Xid(XID),
                    version: 2,
                    credits: Credits(8),
                    error: ErrorBody::Option,
                };
                assert_eq!(answer, Incoming::Answer(reply, PeerFault::UnknownOption(opttype)));
                let mut out = [0; 20];
                assert_eq!(v2::emit_error(&reply, &mut out), Ok(20));
                let words = [XID, 2, 8, 4, 3].map(u32::to_be_bytes);
                assert_eq!(out, words.as_flattened());
            }
        }
    }
}

#[test]
fn the_shortest_headers_are_28_and_36_octets() {
    assert_eq!((Undirected::HEADER_LEN_MIN, Directed::HEADER_LEN_MIN), (28, 36));
    let empty = ChunkLists::new();
    for (dialect, len) in [(Version2::Undirected, 28), (Version2::Directed, 36)] {
        let whole = message(dialect, Body::Msg, &empty, MessageType::Call);
        assert_eq!(whole.len(), len + 24);
        assert_eq!(connection(Side::Client, dialect).path(1).header, len);
    }
}

// One meaning.

#[test]
fn the_same_message_means_the_same_in_all_versions() {
    let size = InlineSize::at_most(4096);
    let own = PrivateData { remote_invalidation: true, send: size, receive: size };
    let shapes = (0..=2).flat_map(|reads| {
        [&[][..], &[0], &[1, 0, 2]].into_iter().flat_map(move |writes| {
            [None, Some(0), Some(2)].map(|reply| lists(reads, writes, reply))
        })
    });
    let mut spread = ChunkLists::new();
    for chunk in (0..READS_MAX).rev() {
        spread.push_read(Position::new(4 * chunk as u32).unwrap(), segment(chunk)).unwrap();
    }
    for shape in shapes.chain([spread, lists(16, &[16], Some(16))]) {
        for (body, message_type) in [Body::Msg, Body::NoMsg].into_iter().flat_map(|body| {
            [MessageType::Call, MessageType::Reply].map(|message_type| (body, message_type))
        }) {
            // A Long reply has no Read list; RDMA_NOMSG has some list (RFC 8166 §4.2.4, §4.3.1).
            let long_reply = body == Body::NoMsg && message_type == MessageType::Reply;
            if body == Body::NoMsg && shape.is_empty()
                || long_reply && shape.reads().next().is_some()
            {
                continue;
            }
            let side = if message_type == MessageType::Call { Side::Server } else { Side::Client };
            let setup = Setup { side, own, peer: own, calls_max: 8, grant: 8 };
            let header = Header { xid: Xid(XID), credits: Credits(128), body };
            let mut first = vec![0; 2048];
            let len = v1::emit(&header, &shape, &mut first).unwrap();
            first.truncate(len);
            if body == Body::Msg {
                first.extend([XID, message_type as u32].map(u32::to_be_bytes).as_flattened());
            }
            let mut in_one = ChunkLists::new();
            let one = Connection::new(setup).handle_message(&first, &mut in_one);
            for dialect in DIALECTS {
                let second = message(dialect, body, &shape, message_type);
                let mut in_two = ChunkLists::new();
                let two = connection(side, dialect).handle_message(&second, &mut in_two);
                assert_eq!(without_length(one), without_length(two), "{dialect:?}");
                assert!(in_one.same_chunks(&in_two));
                assert_eq!(in_one.segments(), in_two.segments());
            }
        }
    }
}

/// Header, direction and type of a call or a reply, without the length of its header.
fn without_length(incoming: Incoming) -> (Header, Direction, bool) {
    match incoming {
        Incoming::Call { header, direction, .. } => (header, direction, true),
        Incoming::Reply { header, direction, .. } => (header, direction, false),
        other => panic!("{other:?}"),
    }
}
