//! RPC-over-RDMA: private data, version 1 headers, and the plans that both roles make.

use std::mem::discriminant;

use stag_protocol::{
    rpcrdma::{
        Body, ChunkLists, Credits, Dialects, Header, InlineSize, InlineThreshold, PeerFault,
        Position, PrivateData, Procedure, Segment, Xid,
        chunk::{CHUNK_SEGMENTS_MAX, READS_MAX, SEGMENTS_MAX, WRITES_MAX},
        form::{CallOffer, CallSizes, Item, Path, ReplyOffer, plan_call as plan},
        option,
        requester::{ReplyPayload, check_reply},
        responder::{ITEMS_MAX, Part, ReplyItem, ReplyParts, ReplyPolicy, plan_pull, plan_reply},
        v1::{self, Malformed},
        v2,
    },
    xdr::{NoRoom, Reader, padded},
};

use super::InputVerdict;
use crate::mutate::parts;

/// CM private data: the offer found is the first one there, by a search of our own.
pub fn cm_private(input: &[u8]) -> InputVerdict {
    let found = PrivateData::find(input);
    let expected = input.windows(PrivateData::LEN).find_map(|octets| {
        let [0xf6, 0xab, 0x0e, 0x18, 1, flags, send, receive] = *octets else { return None };
        let size = |octet: u8| InlineSize::at_most((u32::from(octet) + 1) * 1024);
        Some(PrivateData {
            remote_invalidation: flags & 1 == 1,
            send: size(send),
            receive: size(receive),
        })
    });
    assert_eq!(found, expected.unwrap_or(PrivateData::SILENT));
    let dialects = Dialects::find(input);
    let directed = input.windows(Dialects::LEN).find(|octets| octets.starts_with(b"Stag\x01"));
    assert_eq!(dialects.directed, directed.is_some_and(|octets| octets[5] & 1 == 1));
    let mut out = [0; PrivateData::LEN];
    found.emit(&mut out);
    assert_eq!(PrivateData::find(&out), found);
    let threshold = found.send.threshold(found.receive).octets();
    assert!((1024..=262_144).contains(&threshold) && threshold.is_multiple_of(1024));
    match expected {
        None => InputVerdict::Refused(0),
        Some(offer) => {
            InputVerdict::accepted((offer.remote_invalidation, offer.send < offer.receive))
        }
    }
}

fn word(octets: &[u8], index: usize) -> Option<u32> {
    octets.get(index * 4..)?.first_chunk().map(|word| u32::from_be_bytes(*word))
}

type ParsedHeader = Result<(Header, usize), Malformed>;

/// One layout of headers.
struct FuzzLayout {
    parse: fn(&[u8], &mut ChunkLists) -> ParsedHeader,
    emit: fn(&Header, &ChunkLists, &mut [u8]) -> Result<usize, NoRoom>,
}

const V1: FuzzLayout = FuzzLayout { parse: v1::parse, emit: v1::emit };
const DIRECTED: FuzzLayout =
    FuzzLayout { parse: v2::parse::<v2::Directed>, emit: v2::emit::<v2::Directed> };
const PLAIN: FuzzLayout =
    FuzzLayout { parse: v2::parse::<v2::Undirected>, emit: v2::emit::<v2::Undirected> };

/// A message of version 1.
pub fn v1_header(input: &[u8]) -> InputVerdict {
    header(&V1, input)
}

/// A message of version 2, after a word that says in which dialect.
pub fn v2_header(input: &[u8]) -> InputVerdict {
    match word(input, 0) {
        None => InputVerdict::Refused(0),
        Some(dialect) if dialect.is_multiple_of(2) => header(&DIRECTED, &input[4..]).of(0),
        Some(_) => header(&PLAIN, &input[4..]).of(1),
    }
}

fn header(layout: &FuzzLayout, input: &[u8]) -> InputVerdict {
    let mut lists = ChunkLists::new();
    match (layout.parse)(input, &mut lists) {
        Ok((header, payload_at)) => {
            check_header(layout, input, &header, &lists, payload_at);
            let counts =
                (lists.reads().count(), lists.writes().count(), lists.segments().len().min(20));
            let intent = lists.intent().map(|intent| intent.message_type as u32);
            InputVerdict::accepted((
                discriminant(&header.body),
                counts,
                lists.reply().is_some(),
                intent,
            ))
        }
        Err(malformed) => {
            assert!(lists.is_empty());
            refused(layout, input, malformed)
        }
    }
}

/// Whatever parses has no illegal state, and is emitted as it came.
fn check_header(
    layout: &FuzzLayout,
    input: &[u8],
    header: &Header,
    lists: &ChunkLists,
    payload_at: usize,
) {
    assert!(payload_at <= input.len() && payload_at.is_multiple_of(4));
    assert_eq!(Some(header.xid.0), word(input, 0));
    assert_eq!(Some(header.credits.0), word(input, 2));
    if let Body::Optional { opttype, len } = header.body {
        return check_option(input, header, opttype, len as usize, payload_at);
    }
    let mut out = vec![0xee; payload_at];
    assert_eq!((layout.emit)(header, lists, &mut out), Ok(payload_at));
    assert_eq!((layout.emit)(header, lists, &mut vec![0; payload_at - 1]), Err(NoRoom));
    let mut again = ChunkLists::new();
    if let Body::Error(_) = header.body {
        assert!(lists.is_empty());
        // An error echoes a version that may be none of ours.
        out[4..8].copy_from_slice(&input[4..8]);
        assert_eq!(out, input[..payload_at]);
        assert_eq!((layout.parse)(&out, &mut again), Ok((*header, payload_at)));
        return;
    }
    assert_eq!(v1::header_len(lists), payload_at);
    assert_eq!((layout.parse)(&out, &mut again), Ok((*header, payload_at)));
    assert_eq!(again, *lists);
    check_lists(lists);
    // Only the segments of several Read chunks can come in another order than ours.
    if lists.reads().count() <= 1 {
        assert_eq!(out, input[..payload_at]);
    }
    for cut in [payload_at - 1, payload_at - 4] {
        assert!((layout.parse)(&out[..cut], &mut again).is_err(), "a cut header is none");
    }
    let mut copy = ChunkLists::new();
    copy.clone_from(lists);
    assert_eq!(copy, *lists);
}

/// A message of an option that we know is emitted as it came.
fn check_option(input: &[u8], header: &Header, opttype: u32, len: usize, payload_at: usize) {
    assert_eq!(payload_at, v2::OPTION_AT + padded(len));
    let info = &input[v2::OPTION_AT..][..len];
    let Ok(message) = option::parse(opttype, info, input.len() - payload_at) else { return };
    let mut out = vec![0; payload_at];
    assert_eq!(option::emit(header.xid, header.credits, &message, &mut out), Ok(payload_at));
    assert_eq!(out, input[..payload_at]);
}

/// Returns true if the segment's end is in the address space; computed here independently of the
/// parser.
fn is_within(segment: &Segment) -> bool {
    u64::MAX - segment.offset >= u64::from(segment.length)
}

fn check_lists(lists: &ChunkLists) {
    let reads: Vec<_> = lists.reads().collect();
    assert!(reads.len() <= READS_MAX && lists.writes().count() <= WRITES_MAX);
    assert!(
        reads.is_sorted_by(|a, b| a.position < b.position),
        "one chunk for each position, in order"
    );
    assert!(reads.iter().all(|chunk| chunk.position.octets().is_multiple_of(4)));
    assert!(reads.iter().all(|chunk| !chunk.segments.is_empty()));
    let writes = lists.writes().chain(lists.reply());
    let all: Vec<Segment> = reads
        .iter()
        .flat_map(|chunk| chunk.segments)
        .chain(writes.flat_map(|chunk| chunk.segments))
        .copied()
        .collect();
    assert_eq!(all, lists.segments());
    assert!(all.len() <= SEGMENTS_MAX && all.iter().all(is_within));
}

fn refused(layout: &FuzzLayout, input: &[u8], malformed: Malformed) -> InputVerdict {
    let fault = match malformed {
        Malformed::Discard(fault) => {
            let may_be_answered =
                word(input, 3).is_some_and(|procedure| !matches!(procedure, 3 | 4));
            assert!(input.len() < v1::HEADER_LEN_MIN || !may_be_answered, "{fault}");
            fault
        }
        Malformed::Answer { xid, version, error, fault } => {
            assert_eq!((Some(xid.0), Some(version)), (word(input, 0), word(input, 1)));
            let reply =
                stag_protocol::rpcrdma::ErrorReply { xid, version, credits: Credits(1), error };
            let mut out = [0; v1::ERROR_LEN_MAX];
            let len = v1::emit_error(&reply, &mut out).unwrap();
            let parsed = (layout.parse)(&out[..len], &mut ChunkLists::new()).unwrap();
            assert_eq!(
                parsed,
                (Header { xid, credits: Credits(1), body: Body::Error(error) }, len)
            );
            fault
        }
    };
    InputVerdict::refused(&fault)
}

/// Octets that one call may bring in [`responder`].
const PULL_MAX: u32 = 1 << 16;
static CONTENT: [u8; PULL_MAX as usize] = [0x5a; PULL_MAX as usize];

/// Four words: head, item and tail of a reply, its policy with the number of further items; then a
/// call. Pulled parts fit together, and pushed octets stay in the memory offered; a requester
/// accepts the reply as planned.
pub fn responder(input: &[u8]) -> InputVerdict {
    let (Some(head), Some(item), Some(tail), Some(policy)) =
        (word(input, 0), word(input, 1), word(input, 2), word(input, 3))
    else {
        return InputVerdict::Refused(0);
    };
    let mut lists = ChunkLists::new();
    let Ok((header, payload_at)) = v1::parse(&input[16..], &mut lists) else {
        return InputVerdict::Refused(1);
    };
    if matches!(header.body, Body::Error(_)) {
        return InputVerdict::Refused(2);
    }
    let pulled = check_pull(&header, &lists, &input[16 + payload_at..]);
    let parts = reply_parts(head, item, tail, policy >> 1);
    let policy = if policy.is_multiple_of(2) { ReplyPolicy::Inline } else { ReplyPolicy::Chunk };
    let mut returned = ChunkLists::new();
    let threshold = InlineSize::at_most(4096).threshold(InlineSize::at_most(4096));
    match plan_reply(&lists, parts, threshold, policy, &mut returned) {
        Err(fault) => InputVerdict::refused(&fault).of(u64::from(pulled.is_ok())),
        Ok(plan) => {
            check_plan(&lists, &plan, &returned, threshold);
            let pulled = pulled.map_err(|fault| discriminant(&fault));
            InputVerdict::accepted((pulled, discriminant(&plan.procedure), plan.is_reduced()))
        }
    }
}

/// A reply with items between head and tail; each is as long as a rotation of `item` says.
fn reply_parts(head: u32, item: u32, tail: u32, more: u32) -> ReplyParts {
    let (head, tail) = (24 + (head & !3) % 4096, (tail & !3) % 4096);
    let more = more % ITEMS_MAX as u32;
    let mut parts = ReplyParts::new(head + 4 * more + tail);
    for place in 0..=more {
        let len = item.rotate_left(5 * place) % (1 << 20);
        parts.push(ReplyItem { position: head + 4 * place, len }).expect("there is room for all");
    }
    let one_more = ReplyItem { position: head + 4 * more, len: 0 };
    assert!(more + 1 < ITEMS_MAX as u32 || parts.push(one_more).is_err());
    parts
}

fn check_pull(
    header: &Header,
    lists: &ChunkLists,
    inline: &[u8],
) -> Result<(usize, bool), PeerFault> {
    let pull = plan_pull(header, lists, inline.len(), PULL_MAX)?;
    assert!(pull.total() <= PULL_MAX && pull.chunks().len() == lists.reads().count());
    assert_eq!(pull.total(), pull.chunks().iter().map(|chunk| chunk.len).sum::<u32>());
    let content = |len: u32| &CONTENT[..len as usize];
    let base = pull.position_zero().map_or(inline, content);
    let mut items = [&[][..]; READS_MAX];
    for (octets, item) in items.iter_mut().zip(pull.items()) {
        *octets = content(item.len);
    }
    let pieces = pull.assemble(base, &items[..pull.items().len()]);
    let mut at = 0_u64;
    let mut planned = pull.items().iter();
    for piece in pieces.as_slice() {
        if let stag_protocol::xdr::Piece::Chunk(octets) = piece {
            let item = planned.next().expect("a chunk for each item");
            assert_eq!((at, octets.len()), (u64::from(item.position.octets()), item.len as usize));
            at += padded(octets.len()) as u64;
        } else {
            at += piece.octets().len() as u64;
        }
    }
    assert_eq!(planned.next(), None);
    let whole = base.len() + pull.items().iter().map(|item| item.len as usize).sum::<usize>();
    assert_eq!(Reader::over(pieces.as_slice()).remaining(), whole);
    Ok((pull.items().len(), pull.position_zero().is_some()))
}

fn check_plan(
    call: &ChunkLists,
    plan: &stag_protocol::rpcrdma::responder::ReplyPlan,
    returned: &ChunkLists,
    threshold: InlineThreshold,
) {
    let body = if plan.procedure == Procedure::NoMsg { Body::NoMsg } else { Body::Msg };
    let header = Header { xid: Xid(1), credits: Credits(1), body };
    assert_eq!(v1::header_len(returned), plan.header_len);
    let payload: u64 = plan.payload().map(|piece| u64::from(piece.len)).sum();
    let inline = if body == Body::Msg { payload as usize } else { 0 };
    assert!(plan.header_len + inline <= threshold.octets(), "a reply keeps to the threshold");
    let shape = check_reply(call, &header, returned, inline).expect("our own reply is a good one");
    let (mut written, mut message, mut pads) = ([0_u64; ITEMS_MAX], 0, 0);
    for push in plan.pushes(returned) {
        let (from, len) = (push.target.offset, u64::from(push.target.length));
        assert!(len > 0);
        match push.part {
            Part::Message => message += len,
            Part::Item(place) => written[place] += len,
            Part::Pad => pads += len,
        }
        let mut offered = call.writes().chain(call.reply()).flat_map(|chunk| chunk.segments);
        assert!(offered.any(|offered| {
            offered.handle == push.target.handle
                && offered.offset <= from
                && from + len <= offered.offset + u64::from(offered.length)
        }));
    }
    let in_reply_chunk: u64 = match shape.payload {
        ReplyPayload::ReplyChunk(len) => len,
        ReplyPayload::Inline(len) => {
            assert_eq!(len, inline);
            0
        }
    };
    let in_write_chunks: u64 = shape.written().iter().sum();
    let all = written.iter().sum::<u64>() + message + pads;
    assert_eq!(all, in_reply_chunk + in_write_chunks);
    assert_eq!(in_write_chunks > 0, plan.is_reduced());
    for (place, in_chunk) in shape.written().iter().enumerate().filter(|(_, len)| **len > 0) {
        assert!(plan.is_in_chunk(place));
        assert_eq!(*in_chunk, written[place], "an item has the chunk of its place");
    }
    assert_eq!(in_reply_chunk, if body == Body::NoMsg { payload } else { 0 });
    assert!(pads <= 3 * ITEMS_MAX as u64);
}

/// A call and a message that claims to be its reply: accepted chunks were offered.
pub fn requester(input: &[u8]) -> InputVerdict {
    let mut parts = parts(input).map(|part| part.get(4..).unwrap_or_default());
    let (Some(call), Some(reply)) = (parts.next(), parts.next()) else {
        return InputVerdict::Refused(0);
    };
    let (mut offered, mut returned) = (ChunkLists::new(), ChunkLists::new());
    if v1::parse(call, &mut offered).is_err() {
        return InputVerdict::Refused(1);
    }
    let Ok((header, payload_at)) = v1::parse(reply, &mut returned) else {
        return InputVerdict::Refused(2);
    };
    let inline_len = reply.len() - payload_at;
    let shape = match check_reply(&offered, &header, &returned, inline_len) {
        Ok(shape) => shape,
        Err(fault) => return InputVerdict::refused(&fault),
    };
    assert_eq!(returned.reads().count(), 0);
    assert!(
        shape
            .written()
            .iter()
            .zip(offered.writes())
            .all(|(written, chunk)| *written <= chunk.total())
    );
    match shape.payload {
        ReplyPayload::Inline(len) => assert!(len == inline_len && len > 0),
        ReplyPayload::ReplyChunk(len) => {
            assert!(len > 0 && len <= offered.reply().unwrap().total())
        }
    }
    // A reply that says otherwise than what was offered is not believed.
    for segment in 0..returned.segments().len() {
        let mut moved = ChunkLists::new();
        copy(&returned, &mut moved, segment);
        assert!(check_reply(&offered, &header, &moved, inline_len).is_err());
    }
    InputVerdict::accepted((
        discriminant(&header.body),
        shape.written().len(),
        returned.reply().is_some(),
    ))
}

/// Write and Reply chunks of `from`, with another handle in the segment of this number.
fn copy(from: &ChunkLists, to: &mut ChunkLists, changed: usize) {
    let mut number = 0;
    let mut next = |segment: &Segment| {
        number += 1;
        Segment { handle: segment.handle ^ u32::from(number == changed + 1), ..*segment }
    };
    for chunk in from.writes() {
        to.begin_write().unwrap();
        chunk.segments.iter().for_each(|segment| to.push_write(next(segment)).unwrap());
    }
    if let Some(chunk) = from.reply() {
        to.begin_reply();
        chunk.segments.iter().for_each(|segment| to.push_reply(next(segment)).unwrap());
    }
}

/// Words: the sizes of a call and its reply, and the thresholds. The plan fits them.
pub fn plan_call(input: &[u8]) -> InputVerdict {
    let words: Vec<u32> = (0..8).map_while(|index| word(input, index)).collect();
    let [call, item, reply_rest, reply_item, send, receive, segments, position] = words[..] else {
        return InputVerdict::Refused(0);
    };
    // Short and long ones, and those at the end of what a chunk can say.
    let size = |word: u32| if word.is_multiple_of(3) { word } else { word % 9000 };
    let call_len = padded(size(call) as usize);
    let len = size(item).min(u32::try_from(call_len & !3).unwrap_or(!3));
    let sizes = CallSizes {
        call: call_len,
        item: (item % 5 > 0).then(|| Item { position: Position::new(position & !3).unwrap(), len }),
        reply_rest_max: size(reply_rest) as usize,
        reply_item_max: size(reply_item),
        reply_items: 1 + reply_item as usize % ITEMS_MAX,
    };
    let threshold = |word: u32| InlineSize::at_most(word % 9000).threshold(InlineSize::MAX);
    let segments = 1 + segments as usize % CHUNK_SEGMENTS_MAX;
    let path = Path {
        call: threshold(send),
        reply: threshold(receive),
        header: v1::HEADER_LEN_MIN,
        segments,
    };
    let Ok(planned) = plan(&sizes, &path) else { return InputVerdict::Refused(1) };
    let mut offered = ChunkLists::new();
    let piece = Segment { handle: 7, length: 1, offset: 0 };
    let (mut inline, mut body) = (sizes.call, Body::Msg);
    match planned.call {
        CallOffer::Nothing => {}
        CallOffer::ReadChunk(item) => {
            (0..segments).for_each(|_| offered.push_read(item.position, piece).unwrap());
            inline -= padded(item.len as usize);
        }
        CallOffer::PositionZero(len) => {
            assert_eq!(len as usize, sizes.call);
            (0..segments).for_each(|_| offered.push_read(Position::ZERO, piece).unwrap());
            (inline, body) = (0, Body::NoMsg);
        }
    }
    let reply = planned.reply;
    match reply {
        ReplyOffer::Nothing => {}
        ReplyOffer::WriteChunk(len) => {
            assert_eq!(len, sizes.reply_item_max);
            let taken = if planned.call == CallOffer::Nothing { 0 } else { segments };
            for _ in 0..sizes.reply_items.min((SEGMENTS_MAX - taken) / segments) {
                offered.begin_write().unwrap();
                (0..segments).for_each(|_| offered.push_write(piece).unwrap());
            }
        }
        ReplyOffer::ReplyChunk(_) => {
            offered.begin_reply();
            (0..segments).for_each(|_| offered.push_reply(piece).unwrap());
        }
    }
    let header = Header { xid: Xid(1), credits: Credits(1), body };
    let mut out = vec![0; path.call.octets()];
    let len = v1::emit(&header, &offered, &mut out).expect("the header fits the threshold");
    assert!(len + inline <= path.call.octets(), "the call fits the threshold");
    let mut returned = ChunkLists::new();
    returned.return_unused(&offered);
    let item = padded(sizes.reply_item_max as usize + 3 * (sizes.reply_items - 1));
    let longest = match reply {
        ReplyOffer::Nothing => sizes.reply_rest_max + item,
        ReplyOffer::WriteChunk(_) => sizes.reply_rest_max,
        ReplyOffer::ReplyChunk(len) => {
            assert_eq!(len as usize, sizes.reply_rest_max + item);
            0
        }
    };
    assert!(
        v1::header_len(&returned) + longest <= path.reply.octets(),
        "the longest reply fits the threshold"
    );
    InputVerdict::accepted((discriminant(&planned.call), discriminant(&planned.reply), segments))
}
