//! The wire format of RPC-over-RDMA version 1, message by message and octet by octet.
//!
//! A second, naive reading of RFC 8166 in this file says what each message is; the library has to
//! agree with it on every mutation of every message.

use crate::rpcrdma_common::{lists, segment, set_word, walk};
use stag_protocol::rpcrdma::chunk::{READS_MAX, SEGMENTS_MAX, WRITES_MAX};
use stag_protocol::rpcrdma::v1::{self, Malformed};
use stag_protocol::rpcrdma::{
    Body, ChunkLists, Connection, Credits, Direction, ErrorBody, ErrorReply, Header, Incoming,
    PeerFault, Position, PrivateData, Segment, Setup, Side, Xid,
};
use stag_protocol::xdr::NoRoom;

const XID: u32 = 0x2770_0cda;

/// A header and, after RDMA_MSG, the first words of an RPC message of the same XID.
fn message(body: Body, lists: &ChunkLists, rpc_type: u32) -> Vec<u8> {
    let mut out = vec![0xee; 2048];
    let header = Header { xid: Xid(XID), credits: Credits(128), body };
    let len = v1::emit(&header, lists, &mut out).unwrap();
    out.truncate(len);
    if body == Body::Msg {
        for word in [XID, rpc_type, 2, 100_003, 3, 1] {
            out.extend(word.to_be_bytes());
        }
    }
    out
}

fn connection(side: Side) -> Connection {
    let (calls_max, grant) = if side == Side::Client { (32, 0) } else { (0, 8) };
    Connection::new(Setup {
        side,
        own: PrivateData::SILENT,
        peer: PrivateData::SILENT,
        calls_max,
        grant,
    })
}

/// Classes of messages, by their fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Call,
    Reply,
    Error,
    ErrVers,
    ErrChunk,
    Discard,
}

fn class(side: Side, message: &[u8]) -> Class {
    let mut lists = ChunkLists::new();
    match connection(side).handle_message(message, &mut lists) {
        Incoming::Call { .. } => Class::Call,
        Incoming::Reply { .. } => Class::Reply,
        Incoming::Error { .. } => Class::Error,
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
                ErrorBody::Version { low: 1, high: 1 } => Class::ErrVers,
                ErrorBody::Version { .. } => panic!("only version 1 is spoken"),
                ErrorBody::Chunk => Class::ErrChunk,
                ErrorBody::Option => panic!("version 1 has no options"),
            }
        }
        Incoming::Discard(_) => Class::Discard,
        Incoming::Close(fault) => panic!("the first message never ends a connection: {fault}"),
        other => panic!("version 1 has nothing like it: {other:?}"),
    }
}

/// The second reading: what RFC 8166 and RFC 8167 §5.3 say of a message, word by word.
fn expected(side: Side, message: &[u8]) -> Class {
    let words: Vec<u32> =
        message.chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
    let bad = |class| if side == Side::Server { class } else { Class::Discard };
    let [xid, version, _, procedure, rest @ ..] = words.as_slice() else { return Class::Discard };
    if *procedure == 4 {
        return match (side, rest) {
            (Side::Client, [1, _, _, ..]) => Class::Error,
            (Side::Client, [2, ..]) if *version == 1 => Class::Error,
            _ => Class::Discard,
        };
    }
    if message.len() < 28 || *version == 1 && *procedure == 3 {
        return Class::Discard;
    }
    if *version != 1 {
        return bad(Class::ErrVers);
    }
    if *procedure > 1 {
        return bad(Class::ErrChunk);
    }
    let Some((end, reads, others)) = walk(&words, 4) else { return bad(Class::ErrChunk) };
    let chunks = reads || others;
    match (procedure, side) {
        (1, _) if !chunks => bad(Class::ErrChunk),
        (1, Side::Server) => Class::Call,
        (1, Side::Client) => {
            if reads {
                Class::ErrChunk
            } else {
                Class::Reply
            }
        }
        _ => match (words.get(end..).unwrap(), side) {
            ([_, 0, ..], Side::Client) => {
                if chunks {
                    Class::ErrChunk
                } else {
                    Class::Discard
                }
            }
            ([rpc_xid, 0, ..], Side::Server) if rpc_xid == xid => Class::Call,
            ([rpc_xid, 1, ..], Side::Client) if rpc_xid == xid => Class::Reply,
            ([_, 1, ..], _) => Class::Discard,
            _ => bad(Class::ErrChunk),
        },
    }
}

/// Messages of every kind: all small shapes of lists, the largest ones, errors of both kinds.
fn corpus() -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    let mut both = |lists: &ChunkLists| {
        messages.push(message(Body::Msg, lists, 0));
        messages.push(message(Body::Msg, lists, 1));
        if !lists.is_empty() {
            messages.push(message(Body::NoMsg, lists, 0));
        }
    };
    for reads in 0..=2 {
        for writes in [&[][..], &[0], &[2], &[1, 0, 2]] {
            for reply in [None, Some(0), Some(1), Some(3)] {
                both(&lists(reads, writes, reply));
            }
        }
    }
    both(&lists(16, &[16], Some(16)));
    both(&lists(3, &[1; WRITES_MAX], None));
    let mut spread = ChunkLists::new();
    for chunk in 0..READS_MAX {
        spread
            .push_read(Position::new(4 * u32::try_from(chunk).unwrap()).unwrap(), segment(chunk))
            .unwrap();
    }
    both(&spread);
    for error in [ErrorBody::Chunk, ErrorBody::Version { low: 1, high: 1 }] {
        messages.push(message(Body::Error(error), &ChunkLists::new(), 0));
    }
    messages
}

fn agree(message: &[u8]) {
    for side in [Side::Client, Side::Server] {
        assert_eq!(class(side, message), expected(side, message), "at a {side:?}: {message:02x?}");
    }
}

#[test]
fn every_shape_of_up_to_sixteen_segments_a_chunk_survives_a_round_trip() {
    let mut parsed = ChunkLists::new();
    for reads in 0..=16 {
        for write in (0..=17_usize).map(|count| count.checked_sub(1)) {
            for reply in (0..=17_usize).map(|count| count.checked_sub(1)) {
                let lists = lists(reads, write.as_slice(), reply);
                let body = if lists.is_empty() { Body::Msg } else { Body::NoMsg };
                let header = Header { xid: Xid(XID), credits: Credits(1), body };
                let mut out = [0; 1500];
                let len = v1::emit(&header, &lists, &mut out).unwrap();
                assert_eq!(len, v1::header_len(&lists));
                assert_eq!(v1::parse(&out[..len], &mut parsed), Ok((header, len)));
                assert_eq!(parsed, lists);
                assert_eq!(
                    v1::parse(&out, &mut parsed),
                    Ok((header, len)),
                    "the payload is left alone"
                );
            }
        }
    }
}

#[test]
fn every_number_of_write_chunks_and_of_positions_survives_a_round_trip() {
    for chunks in 0..=WRITES_MAX {
        for count in 0..=SEGMENTS_MAX / WRITES_MAX {
            let lists = lists(0, &vec![count; chunks], None);
            let bytes = message(Body::Msg, &lists, 0);
            let mut parsed = ChunkLists::new();
            let (_, len) = v1::parse(&bytes, &mut parsed).unwrap();
            assert_eq!((parsed, len), (lists, bytes.len() - 24));
        }
    }
    for chunks in 1..=READS_MAX {
        let mut lists = ChunkLists::new();
        for number in 0..SEGMENTS_MAX {
            let position = u32::try_from(number % chunks * 8).unwrap();
            lists.push_read(Position::new(position).unwrap(), segment(number)).unwrap();
        }
        let mut parsed = ChunkLists::new();
        v1::parse(&message(Body::NoMsg, &lists, 0), &mut parsed).unwrap();
        assert_eq!((parsed.reads().count(), &parsed), (chunks, &lists));
    }
}

#[test]
fn both_errors_survive_a_round_trip_and_have_their_length() {
    for (error, expected) in [(ErrorBody::Chunk, 20), (ErrorBody::Version { low: 1, high: 2 }, 28)]
    {
        let header = Header { xid: Xid(9), credits: Credits(64), body: Body::Error(error) };
        let mut out = [0; v1::ERROR_LEN_MAX];
        let mut lists = lists(1, &[1], Some(1));
        let len = v1::emit(&header, &lists, &mut out).unwrap();
        assert_eq!(len, expected);
        assert_eq!(v1::parse(&out[..len], &mut lists), Ok((header, len)));
        assert!(lists.is_empty());
    }
}

#[test]
fn a_header_that_does_not_fit_is_refused_at_every_length() {
    let lists = lists(2, &[2], Some(2));
    for body in [
        Body::Msg,
        Body::Error(ErrorBody::Chunk),
        Body::Error(ErrorBody::Version { low: 1, high: 1 }),
    ] {
        let header = Header { xid: Xid(1), credits: Credits(1), body };
        let len = v1::emit(&header, &lists, &mut [0; 256]).unwrap();
        for room in 0..len {
            assert_eq!(
                v1::emit(&header, &lists, &mut vec![0; room]),
                Err(NoRoom),
                "{body:?} in {room}"
            );
        }
    }
}

#[test]
fn every_message_of_the_corpus_is_what_it_says() {
    for message in corpus() {
        agree(&message);
    }
    let empty = ChunkLists::new();
    assert_eq!(class(Side::Server, &message(Body::Msg, &empty, 0)), Class::Call);
    assert_eq!(class(Side::Client, &message(Body::Msg, &empty, 1)), Class::Reply);
    assert_eq!(
        class(Side::Client, &message(Body::NoMsg, &lists(0, &[], Some(2)), 1)),
        Class::Reply
    );
    assert_eq!(class(Side::Server, &message(Body::NoMsg, &lists(2, &[], None), 0)), Class::Call);
    let error = message(Body::Error(ErrorBody::Chunk), &empty, 0);
    assert_eq!(
        (class(Side::Client, &error), class(Side::Server, &error)),
        (Class::Error, Class::Discard)
    );
}

#[test]
fn every_cut_has_the_right_answer() {
    for message in corpus() {
        for cut in 0..message.len() {
            agree(&message[..cut]);
        }
    }
}

#[test]
fn every_flipped_bit_has_the_right_answer() {
    for mut message in corpus() {
        for bit in 0..message.len() * 8 {
            message[bit / 8] ^= 1 << (bit % 8);
            agree(&message);
            message[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn every_word_set_to_an_extreme_has_the_right_answer() {
    let extremes =
        [0, 1, 2, 3, 4, 17, 64, 65, 1 << 28, 1 << 31, u32::MAX - 3, u32::MAX - 1, u32::MAX];
    for message in corpus() {
        for index in 0..message.len() / 4 {
            for value in extremes {
                let mut other = message.clone();
                set_word(&mut other, index, value);
                agree(&other);
            }
        }
    }
}

#[test]
fn f49_every_octet_of_every_fixed_field_set_to_every_value_has_the_right_answer() {
    for mut message in corpus() {
        for at in 0..message.len().min(28) {
            let before = message[at];
            for value in 0..=255 {
                message[at] = value;
                agree(&message);
            }
            message[at] = before;
        }
    }
}

#[test]
fn f50_every_other_version_gets_err_vers_with_the_same_xid_and_version() {
    let empty = ChunkLists::new();
    for version in [0, 2, 3, 0x0100_0000, u32::MAX] {
        for procedure in [0, 1, 2, 3, 5, u32::MAX] {
            let mut call = message(Body::Msg, &empty, 0);
            set_word(&mut call, 1, version);
            set_word(&mut call, 3, procedure);
            let mut lists = ChunkLists::new();
            let error = ErrorBody::Version { low: 1, high: 1 };
            let reply = ErrorReply { xid: Xid(XID), version, credits: Credits(8), error };
            let answer = Incoming::Answer(reply, PeerFault::Version(version));
            assert_eq!(connection(Side::Server).handle_message(&call, &mut lists), answer);
            let mut out = [0; 28];
            assert_eq!(v1::emit_error(&reply, &mut out), Ok(28));
            let mut expected = [0; 28];
            for (index, word) in [XID, version, 8, 4, 1, 1, 1].into_iter().enumerate() {
                set_word(&mut expected, index, word);
            }
            assert_eq!(out, expected);
        }
    }
}

#[test]
fn f51_reserved_and_unknown_procedures_get_err_chunk_and_done_and_errors_get_silence() {
    let empty = ChunkLists::new();
    let mut call = message(Body::Msg, &empty, 0);
    for (procedure, expected) in [
        (2, Class::ErrChunk),
        (3, Class::Discard),
        (4, Class::Discard),
        (5, Class::ErrChunk),
        (256, Class::ErrChunk),
        (u32::MAX, Class::ErrChunk),
    ] {
        set_word(&mut call, 3, procedure);
        assert_eq!(class(Side::Server, &call), expected, "procedure {procedure}");
        assert_eq!(class(Side::Client, &call), Class::Discard, "procedure {procedure}");
    }
    for error in [ErrorBody::Chunk, ErrorBody::Version { low: 1, high: 1 }] {
        assert_eq!(class(Side::Server, &message(Body::Error(error), &empty, 0)), Class::Discard);
    }
}

#[test]
fn f51_an_error_of_another_version_is_read_only_as_far_as_all_versions_agree() {
    let empty = ChunkLists::new();
    let mut err_vers = message(Body::Error(ErrorBody::Version { low: 1, high: 1 }), &empty, 0);
    let mut err_chunk = message(Body::Error(ErrorBody::Chunk), &empty, 0);
    set_word(&mut err_vers, 1, 2);
    set_word(&mut err_chunk, 1, 2);
    assert_eq!(class(Side::Client, &err_vers), Class::Error);
    assert_eq!(class(Side::Client, &err_chunk), Class::Discard);
    assert_eq!(class(Side::Server, &err_vers), Class::Discard);
}

#[test]
fn f52_rdma_nomsg_without_any_list_gets_err_chunk() {
    let mut call = message(Body::Msg, &ChunkLists::new(), 0);
    set_word(&mut call, 3, 1);
    call.truncate(28);
    assert_eq!(class(Side::Server, &call), Class::ErrChunk);
    assert_eq!(class(Side::Client, &call), Class::Discard);
}

#[test]
fn f53_another_xid_in_the_rpc_message_gets_err_chunk_and_in_a_reply_silence() {
    let mut call = message(Body::Msg, &ChunkLists::new(), 0);
    let mut reply = message(Body::Msg, &ChunkLists::new(), 1);
    for bit in 0..32 {
        set_word(&mut call, 7, XID ^ (1 << bit));
        set_word(&mut reply, 7, XID ^ (1 << bit));
        assert_eq!(class(Side::Server, &call), Class::ErrChunk);
        assert_eq!(class(Side::Client, &reply), Class::Discard);
    }
}

#[test]
fn f54_positions_off_a_multiple_of_four_get_err_chunk_and_any_order_is_grouped() {
    let mut call = message(Body::Msg, &lists(1, &[], None), 0);
    for position in 0..64 {
        set_word(&mut call, 5, position);
        let expected = if position % 4 == 0 { Class::Call } else { Class::ErrChunk };
        assert_eq!(class(Side::Server, &call), expected, "position {position}");
    }
    let mut call = message(Body::Msg, &lists(5, &[], None), 0);
    for (index, position) in [40, 8, 40, 24, 8].into_iter().enumerate() {
        set_word(&mut call, 5 + 6 * index, position);
    }
    let mut parsed = ChunkLists::new();
    v1::parse(&call, &mut parsed).unwrap();
    let grouped: Vec<_> =
        parsed.reads().map(|chunk| (chunk.position.octets(), chunk.segments.to_vec())).collect();
    let expected = [
        (8, vec![segment(1), segment(4)]),
        (24, vec![segment(3)]),
        (40, vec![segment(0), segment(2)]),
    ];
    assert_eq!(grouped, expected);
}

#[test]
fn f55_any_length_is_legal_and_an_offset_that_wraps_is_not() {
    for (length, offset, legal) in [
        (0, 0, true),
        (1, 0, true),
        (3, u64::MAX - 3, true),
        (4, u64::MAX - 3, false),
        (0, u64::MAX, true),
        (1, u64::MAX, false),
        (1 << 31, 1 << 63, true),
        (u32::MAX, 0, true),
        (u32::MAX, u64::MAX - u64::from(u32::MAX), true),
        (u32::MAX, u64::MAX - u64::from(u32::MAX) + 1, false),
    ] {
        let segment = Segment { handle: 1, length, offset };
        for kind in 0..3 {
            let mut lists = ChunkLists::new();
            match kind {
                0 => lists.push_read(Position::ZERO, segment).unwrap(),
                1 => {
                    lists.begin_write().unwrap();
                    lists.push_write(segment).unwrap();
                }
                _ => {
                    lists.begin_reply();
                    lists.push_reply(segment).unwrap();
                }
            }
            let expected = if legal { Class::Call } else { Class::ErrChunk };
            assert_eq!(
                class(Side::Server, &message(Body::NoMsg, &lists, 0)),
                expected,
                "{segment:?}"
            );
        }
    }
}

#[test]
fn f56_lengths_that_wrap_32_bits_are_summed_in_64() {
    let mut lists = ChunkLists::new();
    lists.begin_write().unwrap();
    lists.begin_reply();
    for number in 0..16 {
        let segment = Segment { handle: number, length: 1 << 28, offset: 0 };
        lists.push_read(Position::ZERO, segment).unwrap();
        lists.push_write(segment).unwrap();
        lists.push_reply(segment).unwrap();
    }
    let mut parsed = ChunkLists::new();
    v1::parse(&message(Body::NoMsg, &lists, 0), &mut parsed).unwrap();
    assert_eq!(parsed.reads().next().unwrap().total(), 1 << 32);
    assert_eq!(parsed.writes().next().unwrap().total(), 1 << 32);
    assert_eq!(parsed.reply().unwrap().total(), 1 << 32);
}

#[test]
fn f57_a_write_chunk_without_segments_is_legal_and_kept() {
    let mut parsed = ChunkLists::new();
    v1::parse(&message(Body::Msg, &lists(0, &[0, 1, 0], Some(0)), 0), &mut parsed).unwrap();
    let counts: Vec<_> = parsed.writes().map(|chunk| chunk.segments.len()).collect();
    assert_eq!(counts, [0, 1, 0]);
    assert_eq!(parsed.reply().unwrap().segments, []);
}

#[test]
fn f58_no_count_is_trusted_and_one_segment_more_than_we_hold_gets_err_chunk() {
    for count in [3, 17, 64, 65, 1_000_000, u32::MAX] {
        for (lists, word) in [(lists(0, &[2], None), 6), (lists(0, &[], Some(2)), 7)] {
            let mut call = message(Body::Msg, &lists, 0);
            set_word(&mut call, word, count);
            call.truncate(v1::header_len(&lists));
            assert_eq!(class(Side::Server, &call), Class::ErrChunk, "count {count}");
        }
    }
    // Sixty-five segments that are really there, in each list; nine Write chunks; nine positions.
    let full = lists(SEGMENTS_MAX, &[], None);
    let mut reads = message(Body::NoMsg, &full, 0);
    assert_eq!(class(Side::Server, &reads), Class::Call);
    let one_more: Vec<_> = reads[16..40].to_vec();
    reads.splice(16..16, one_more.clone());
    assert_eq!(fault(&reads), PeerFault::TooManySegments);
    let mut writes = message(Body::NoMsg, &lists(0, &[SEGMENTS_MAX], None), 0);
    assert_eq!(class(Side::Server, &writes), Class::Call);
    writes.splice(28..28, one_more[8..].to_vec());
    set_word(&mut writes, 6, 65);
    assert_eq!(fault(&writes), PeerFault::TooManySegments);
    let mut chunks = message(Body::NoMsg, &lists(0, &[0; WRITES_MAX], None), 0);
    assert_eq!(class(Side::Server, &chunks), Class::Call);
    chunks.splice(20..20, [0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(fault(&chunks), PeerFault::TooManyChunks);
    let mut positions = message(Body::NoMsg, &lists(READS_MAX + 1, &[], None), 0);
    assert_eq!(class(Side::Server, &positions), Class::Call);
    (0..=READS_MAX).for_each(|chunk| set_word(&mut positions, 5 + 6 * chunk, 4 * chunk as u32));
    assert_eq!(fault(&positions), PeerFault::TooManyChunks);
}

fn fault(message: &[u8]) -> PeerFault {
    let mut lists = ChunkLists::new();
    match v1::parse(message, &mut lists) {
        Err(Malformed::Answer { fault, error: ErrorBody::Chunk, .. }) => {
            assert!(lists.is_empty(), "a refused message leaves no chunks behind");
            fault
        }
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn f59_every_discriminator_that_is_neither_0_nor_1_gets_err_chunk() {
    let lists = lists(2, &[1], Some(1));
    let call = message(Body::Msg, &lists, 0);
    // The words before: two read segments and their end; one Write chunk and the end; the Reply
    // chunk.
    for index in [4, 10, 16, 17, 23, 24] {
        for value in (2..=255).chain([1 << 8, 1 << 16, 1 << 24, u32::MAX]) {
            let mut other = call.clone();
            set_word(&mut other, index, value);
            assert_eq!(fault(&other), PeerFault::Discriminator(value), "word {index}");
        }
    }
}

#[test]
fn a_message_shorter_than_28_octets_gets_silence_whatever_it_says() {
    for procedure in 0..=5 {
        for version in 0..=2 {
            for len in 0..28 {
                let mut message = [0xff; 28];
                set_word(&mut message, 1, version);
                set_word(&mut message, 3, procedure);
                assert_eq!(class(Side::Server, &message[..len]), Class::Discard, "{len} octets");
            }
        }
    }
}

#[test]
fn rdma_msg_without_the_beginning_of_an_rpc_message_gets_err_chunk() {
    let whole = message(Body::Msg, &ChunkLists::new(), 0);
    for len in 28..36 {
        assert_eq!(class(Side::Server, &whole[..len]), Class::ErrChunk);
        assert_eq!(class(Side::Client, &whole[..len]), Class::Discard);
    }
    assert_eq!(class(Side::Server, &whole[..36]), Class::Call);
    for rpc_type in [2, 3, u32::MAX] {
        let message = message(Body::Msg, &ChunkLists::new(), rpc_type);
        assert_eq!(class(Side::Server, &message), Class::ErrChunk);
        assert_eq!(class(Side::Client, &message), Class::Discard);
    }
}

fn octets(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks_exact(2).map(|pair| u8::try_from(16 * pair[0] + pair[1]).unwrap()).collect()
}

/// Messages that Linux 6.1 sent: headers and the first two words of the RPC message.
const LINUX: [(&str, Side, Direction); 8] = [
    // NULL, the first call of a mount.
    (
        "27700cda 00000001 00000080 00000000 00000000 00000000 00000000 27700cda 00000000",
        Side::Server,
        Direction::Forward,
    ),
    // READ with a Write chunk, and its answer of three octets.
    (
        "ddd67ec3 00000001 00000080 00000000 00000000 00000001 00000001 b53cfb01 00001000 \
         ddd67ec3059e5000 \
         00000000 00000000 ddd67ec3 00000000",
        Side::Server,
        Direction::Forward,
    ),
    (
        "ddd67ec3 00000001 00000040 00000000 00000000 00000001 00000001 b53cfb01 00000003 \
         ddd67ec3059e5000 \
         00000000 00000000 ddd67ec3 00000001",
        Side::Client,
        Direction::Forward,
    ),
    // READDIRPLUS with a Reply chunk of three segments, and its answer in that chunk.
    (
        "e0d67ec3 00000001 00000080 00000000 00000000 00000000 00000001 00000003 c8624a02 00000100 \
         e0d67ec30579c000 6261f202 00007000 e0d67ec304822000 de7b1101 00000004 e0d67ec30579c100 \
         e0d67ec3 00000000",
        Side::Server,
        Direction::Forward,
    ),
    (
        "e0d67ec3 00000001 00000040 00000001 00000000 00000000 00000001 00000003 c8624a02 000000b8 \
         e0d67ec30579c000 6261f202 00000000 e0d67ec304822000 de7b1101 00000000 e0d67ec30579c100",
        Side::Client,
        Direction::Forward,
    ),
    // WRITE of 4095 octets in a Read chunk at position 112.
    (
        "43d97ec3 00000001 00000080 00000000 00000001 00000070 b53cfb02 00000fff 43d97ec305a98000 \
         00000000 \
         00000000 00000000 43d97ec3 00000000",
        Side::Server,
        Direction::Forward,
    ),
    // EXCHANGE_ID with a Reply chunk, and its answer.
    (
        "5ca34d4d 00000001 00000080 00000000 00000000 00000000 00000001 00000001 dcdcd201 00001090 \
         5ca34d4d037a4000 5ca34d4d 00000000",
        Side::Server,
        Direction::Forward,
    ),
    (
        "5ca34d4d 00000001 00000040 00000001 00000000 00000000 00000001 00000001 dcdcd201 00000064 \
         5ca34d4d037a4000",
        Side::Client,
        Direction::Forward,
    ),
];

#[test]
fn what_linux_sent_parses_and_is_emitted_again_octet_by_octet() {
    for (hex, side, expected) in LINUX {
        let message = octets(hex);
        let mut lists = ChunkLists::new();
        let (header, payload_at) = match connection(side).handle_message(&message, &mut lists) {
            Incoming::Call { header, direction, payload_at } if side == Side::Server => {
                assert_eq!((direction, header.credits), (expected, Credits(128)));
                (header, payload_at)
            }
            Incoming::Reply { header, direction, payload_at } if side == Side::Client => {
                assert_eq!((direction, header.credits), (expected, Credits(64)));
                (header, payload_at)
            }
            other => panic!("{other:?}: {hex}"),
        };
        let mut out = [0; 128];
        let len = v1::emit(&header, &lists, &mut out).unwrap();
        assert_eq!((&out[..len], len), (&message[..payload_at], payload_at));
    }
}

#[test]
fn every_mutation_of_what_linux_sent_has_the_right_answer() {
    for (hex, ..) in LINUX {
        let mut message = octets(hex);
        for at in 0..message.len() {
            agree(&message[..at]);
            let before = message[at];
            for value in 0..=255 {
                message[at] = value;
                agree(&message);
            }
            message[at] = before;
        }
    }
}
