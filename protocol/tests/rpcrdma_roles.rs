//! Both roles of RPC-over-RDMA against each other, over memory that is an array: what one side
//! offers the other uses, and nothing else.

use stag_protocol::rpcrdma::chunk::{CHUNK_SEGMENTS_MAX, READS_MAX, SEGMENTS_MAX, WRITES_MAX};
use stag_protocol::rpcrdma::form::{self, CallOffer, CallSizes, Form, Item, Path, ReplyOffer};
use stag_protocol::rpcrdma::requester::{ReplyPayload, check_message, check_reply};
use stag_protocol::rpcrdma::responder::{
    self, Part, PayloadPiece, PullChunk, ReplyItem, ReplyParts, ReplyPlan, ReplyPolicy,
    check_inline, fill_one_write, plan_pull, plan_reply,
};
use stag_protocol::rpcrdma::{
    Body, ChunkLists, Connection, Credits, Direction, ErrorBody, ErrorReply, Header, Incoming,
    InlineSize, InlineThreshold, ListsFull, NoCredit, PeerFault, Position, PrivateData, Procedure,
    Segment, Setup, Side, Xid, invalidate, v1,
};
use stag_protocol::xdr::{Reader, padded};

const MSG: Header = Header { xid: Xid(7), credits: Credits(1), body: Body::Msg };
const NOMSG: Header = Header { xid: Xid(7), credits: Credits(1), body: Body::NoMsg };

fn threshold(octets: u32) -> InlineThreshold {
    InlineSize::at_most(octets).threshold(InlineSize::MAX)
}

fn position(octets: u32) -> Position {
    Position::new(octets).unwrap()
}

/// A segment whose handle is its number and whose memory begins at a strange place.
fn segment(handle: u32, length: u32) -> Segment {
    Segment { handle, length, offset: 0xffff_0000_0000_0100 + u64::from(handle) * 0x1_0000 }
}

/// Write chunks and a Reply chunk of these segment lengths; handles count from 1.
fn offer(writes: &[&[u32]], reply: Option<&[u32]>) -> ChunkLists {
    let (mut lists, mut handle) = (ChunkLists::new(), 0);
    let mut next = |length: u32| {
        handle += 1;
        segment(handle, length)
    };
    for chunk in writes {
        lists.begin_write().unwrap();
        chunk.iter().for_each(|length| lists.push_write(next(*length)).unwrap());
    }
    if let Some(chunk) = reply {
        lists.begin_reply();
        chunk.iter().for_each(|length| lists.push_reply(next(*length)).unwrap());
    }
    lists
}

fn lengths(segments: &[Segment]) -> Vec<u32> {
    segments.iter().map(|segment| segment.length).collect()
}

// Chunk lists.

#[test]
fn lists_are_the_same_in_whatever_order_they_are_built() {
    let pushes: [fn(&mut ChunkLists); 3] = [
        |lists| {
            lists.push_read(position(8), segment(1, 10)).unwrap();
            lists.push_read(position(4), segment(2, 20)).unwrap();
            lists.push_read(position(8), segment(3, 30)).unwrap();
        },
        |lists| {
            for handle in [4, 5] {
                lists.begin_write().unwrap();
                lists.push_write(segment(handle, 40)).unwrap();
                lists.push_write(segment(handle + 10, 40)).unwrap();
            }
        },
        |lists| {
            lists.begin_reply();
            lists.push_reply(segment(6, 60)).unwrap();
            lists.push_reply(segment(7, 70)).unwrap();
        },
    ];
    let mut expected = ChunkLists::new();
    pushes.iter().for_each(|push| push(&mut expected));
    assert_eq!(
        expected.segments().iter().map(|segment| segment.handle).collect::<Vec<_>>(),
        [2, 1, 3, 4, 14, 5, 15, 6, 7]
    );
    for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut lists = ChunkLists::new();
        order.into_iter().for_each(|index| pushes[index](&mut lists));
        assert_eq!(lists, expected, "order {order:?}");
        let copy = lists.clone();
        lists.clear();
        assert_eq!((copy, lists), (expected.clone(), ChunkLists::new()));
    }
}

#[test]
fn lists_that_differ_in_any_chunk_are_not_equal() {
    let mut reads = ChunkLists::new();
    reads.push_read(position(4), segment(1, 5)).unwrap();
    let mut elsewhere = ChunkLists::new();
    elsewhere.push_read(position(8), segment(1, 5)).unwrap();
    let all = [
        ChunkLists::new(),
        reads,
        elsewhere,
        offer(&[&[]], None),
        offer(&[&[5]], None),
        offer(&[&[6]], None),
        offer(&[&[5], &[]], None),
        offer(&[], Some(&[])),
        offer(&[], Some(&[5])),
        offer(&[&[5]], Some(&[])),
    ];
    for (first, one) in all.iter().enumerate() {
        for (second, other) in all.iter().enumerate() {
            assert_eq!(one == other, first == second, "{one:?} and {other:?}");
        }
    }
}

#[test]
fn a_full_list_refuses_one_more_and_stays_as_it_is() {
    let mut lists = ChunkLists::new();
    for chunk in 0..READS_MAX {
        lists.push_read(position(4 * chunk as u32), segment(1, 1)).unwrap();
    }
    for _ in 0..WRITES_MAX {
        lists.begin_write().unwrap();
    }
    let before = lists.clone();
    assert_eq!(
        lists.push_read(position(4 * READS_MAX as u32), segment(2, 2)),
        Err(ListsFull::Chunks)
    );
    assert_eq!(lists.begin_write(), Err(ListsFull::Chunks));
    assert_eq!(lists, before);
    lists.begin_reply();
    for _ in READS_MAX..SEGMENTS_MAX {
        lists.push_reply(segment(3, 3)).unwrap();
    }
    let before = lists.clone();
    assert_eq!(lists.push_read(position(4), segment(4, 4)), Err(ListsFull::Segments));
    assert_eq!(lists.push_write(segment(4, 4)), Err(ListsFull::Segments));
    assert_eq!(lists.push_reply(segment(4, 4)), Err(ListsFull::Segments));
    assert_eq!(lists, before);
    lists.begin_reply();
    assert_eq!(
        lists.segments().len(),
        READS_MAX,
        "another Reply chunk takes the place of the first"
    );
}

// The form of a call.

/// The header that a plan makes, with as many segments per chunk as the path allows.
fn lists_of(plan: &form::CallPlan, segments: usize) -> ChunkLists {
    let mut lists = ChunkLists::new();
    for number in 0..segments as u32 {
        match plan.call {
            CallOffer::Nothing => {}
            CallOffer::ReadChunk(item) => {
                lists.push_read(item.position, segment(number, 1)).unwrap()
            }
            CallOffer::PositionZero(_) => {
                lists.push_read(Position::ZERO, segment(number, 1)).unwrap()
            }
        }
    }
    match plan.reply {
        ReplyOffer::Nothing => {}
        ReplyOffer::WriteChunk(_) => {
            lists.begin_write().unwrap();
            (0..segments as u32).for_each(|number| lists.push_write(segment(number, 1)).unwrap());
        }
        ReplyOffer::ReplyChunk(_) => {
            lists.begin_reply();
            (0..segments as u32).for_each(|number| lists.push_reply(segment(number, 1)).unwrap());
        }
    }
    lists
}

#[test]
fn every_plan_fits_the_threshold_and_the_shortest_form_that_fits_is_taken() {
    for segments in [1, 2, CHUNK_SEGMENTS_MAX] {
        let path = Path {
            call: threshold(1024),
            reply: threshold(2048),
            header: v1::HEADER_LEN_MIN,
            segments,
        };
        for call in (100..1100).step_by(4) {
            for item_len in [None, Some(0), Some(1), Some(39), Some(60)] {
                let item = item_len.map(|len| Item { position: position(40), len });
                for (reply_rest_max, reply_item_max) in
                    [(100, 0), (100, 4000), (2100, 4000), (3000, 0)]
                {
                    let sizes =
                        CallSizes { call, item, reply_rest_max, reply_item_max, reply_items: 1 };
                    let plan = form::plan_call(&sizes, &path).unwrap();
                    let header = v1::header_len(&lists_of(&plan, segments));
                    let read_chunk = 24 * segments;
                    let bare =
                        if plan.form() == Form::Short { header } else { header - read_chunk };
                    let reduced = call - padded(item_len.unwrap_or(0) as usize);
                    let short = bare + call <= 1024;
                    let chunked = item_len.unwrap_or(0) > 0 && bare + read_chunk + reduced <= 1024;
                    let expected = match (short, chunked) {
                        (true, _) => CallOffer::Nothing,
                        (false, true) => CallOffer::ReadChunk(item.unwrap()),
                        (false, false) => CallOffer::PositionZero(call as u32),
                    };
                    assert_eq!(plan.call, expected, "{sizes:?} in {segments} segments");
                    assert!(header <= 1024);
                }
            }
        }
    }
}

#[test]
fn what_waits_for_the_reply_depends_on_the_reply_threshold_to_the_octet() {
    let path = Path {
        call: threshold(4096),
        reply: threshold(1024),
        header: v1::HEADER_LEN_MIN,
        segments: 3,
    };
    let plan = |reply_rest_max, reply_item_max| {
        let sizes =
            CallSizes { call: 100, item: None, reply_rest_max, reply_item_max, reply_items: 0 };
        form::plan_call(&sizes, &path).unwrap().reply
    };
    let inline_max = 1024 - 28;
    let reduced_max = 1024 - 28 - 8 - 3 * 16;
    assert_eq!(plan(inline_max, 0), ReplyOffer::Nothing);
    assert_eq!(plan(inline_max + 1, 0), ReplyOffer::ReplyChunk(inline_max as u32 + 1));
    assert_eq!(plan(inline_max - 4, 1), ReplyOffer::Nothing, "the item's padding counts");
    assert_eq!(plan(inline_max - 3, 1), ReplyOffer::ReplyChunk(inline_max as u32 + 1));
    assert_eq!(plan(reduced_max, 4095), ReplyOffer::WriteChunk(4095), "no room for padding");
    assert_eq!(plan(reduced_max + 1, 4095), ReplyOffer::ReplyChunk(reduced_max as u32 + 1 + 4096));
}

#[test]
fn the_first_call_to_an_unknown_peer_fits_1024_octets() {
    let own =
        PrivateData { receive: InlineSize::MAX, send: InlineSize::MAX, remote_invalidation: true };
    let setup =
        Setup { side: Side::Client, own, peer: PrivateData::SILENT, calls_max: 1, grant: 0 };
    let connection = Connection::new(setup);
    assert_eq!(connection.send_threshold(), InlineThreshold::DEFAULT_V1);
    assert_eq!(connection.receive_threshold(), InlineThreshold::DEFAULT_V1);
}

#[test]
fn a_call_that_no_chunk_can_describe_is_refused() {
    let path = Path {
        call: threshold(1024),
        reply: threshold(1024),
        header: v1::HEADER_LEN_MIN,
        segments: 1,
    };
    let sizes = CallSizes {
        call: u32::MAX as usize + 1,
        item: None,
        reply_rest_max: 100,
        reply_item_max: 0,
        reply_items: 0,
    };
    assert!(form::plan_call(&sizes, &path).is_err());
    let sizes =
        CallSizes { call: 100, reply_rest_max: u32::MAX as usize, reply_item_max: 1, ..sizes };
    assert!(form::plan_call(&sizes, &path).is_err());
    let sizes = CallSizes { reply_rest_max: usize::MAX, ..sizes };
    assert!(form::plan_call(&sizes, &path).is_err());
}

// Pulling a call.

/// An RPC message: four words, then for each item its length word, the item with its padding and
/// four more words.
struct Call {
    whole: Vec<u8>,
    reduced: Vec<u8>,
    items: Vec<(u32, Vec<u8>)>,
}

fn call(item_lens: &[usize]) -> Call {
    let mut call = Call { whole: Vec::new(), reduced: Vec::new(), items: Vec::new() };
    let words = |call: &mut Call, from: u8| {
        for word in from..from + 4 {
            call.whole.extend([word; 4]);
            call.reduced.extend([word; 4]);
        }
    };
    words(&mut call, 1);
    for (number, len) in item_lens.iter().enumerate() {
        let length_word = u32::try_from(*len).unwrap().to_be_bytes();
        call.whole.extend(length_word);
        call.reduced.extend(length_word);
        let item = vec![0xa0 + number as u8; *len];
        call.items.push((call.whole.len() as u32, item.clone()));
        call.whole.extend(item);
        call.whole.resize(padded(call.whole.len()), 0);
        words(&mut call, 0x10 * (number as u8 + 1));
    }
    call
}

/// Reads a call back, item by item.
fn read_back(pieces: &[stag_protocol::xdr::Piece<'_>], items: usize) -> Vec<u8> {
    let mut reader = Reader::over(pieces);
    let mut whole = Vec::new();
    whole.extend(reader.array::<16>().unwrap());
    for _ in 0..items {
        let item = reader.item(64).unwrap();
        whole.extend((item.len() as u32).to_be_bytes());
        whole.extend(item);
        whole.resize(padded(whole.len()), 0);
        whole.extend(reader.array::<16>().unwrap());
    }
    reader.finish().unwrap();
    whole
}

#[test]
fn what_a_requester_reduces_is_put_back_in_its_place_inline_and_long_with_and_without_padding() {
    let mut only_chunks = 0;
    for lens in
        [vec![], vec![0], vec![1], vec![4], vec![7], vec![5, 8], vec![3, 0, 6], vec![1, 2, 3, 4, 5]]
    {
        let call = call(&lens);
        for pads in 0..1 << lens.len() {
            for long in [false, true] {
                let mut lists = ChunkLists::new();
                let mut contents = Vec::new();
                for (number, (at, item)) in call.items.iter().enumerate().rev() {
                    let mut content = item.clone();
                    if pads >> number & 1 == 1 {
                        content.resize(padded(content.len()), 0);
                    }
                    let (first, second) =
                        (content.len() as u32 / 2, content.len().div_ceil(2) as u32);
                    lists.push_read(position(*at), segment(1, first)).unwrap();
                    lists.push_read(position(*at), segment(2, second)).unwrap();
                    contents.insert(0, content);
                }
                let (header, inline) = if long {
                    lists.push_read(Position::ZERO, segment(3, call.reduced.len() as u32)).unwrap();
                    (NOMSG, 0)
                } else {
                    (MSG, call.reduced.len())
                };
                let pull = plan_pull(&header, &lists, inline, 1000).unwrap();
                let planned: Vec<_> = pull.items().iter().map(|item| item.len as usize).collect();
                assert_eq!(planned, contents.iter().map(Vec::len).collect::<Vec<_>>());
                assert_eq!(pull.position_zero(), long.then_some(call.reduced.len() as u32));
                assert_eq!(pull.total(), pull.chunks().iter().map(|chunk| chunk.len).sum());
                assert_eq!(pull.chunks().len(), lists.reads().count());
                let slices: Vec<_> = contents.iter().map(Vec::as_slice).collect();
                let pieces = pull.assemble(&call.reduced, &slices);
                assert_eq!(
                    read_back(pieces.as_slice(), lens.len()),
                    call.whole,
                    "{lens:?} {pads:b} {long}"
                );
                if let ([only], [octets], false) = (pull.chunks(), &slices[..], long) {
                    let pieces = only.insert(&call.reduced, octets);
                    assert_eq!(read_back(&pieces, 1), call.whole, "the only chunk, {lens:?}");
                    only_chunks += 1;
                }
            }
        }
    }
    assert!(only_chunks > 0);
}

#[test]
fn f54_a_position_outside_the_payload_or_inside_another_chunk_is_refused() {
    let place = |chunks: &[(u32, u32)]| {
        let mut lists = ChunkLists::new();
        chunks
            .iter()
            .for_each(|(at, len)| lists.push_read(position(*at), segment(1, *len)).unwrap());
        plan_pull(&MSG, &lists, 40, 1000).map(|pull| pull.total())
    };
    for at in (4..=40).step_by(4) {
        assert_eq!(place(&[(at, 9)]), Ok(9), "up to the end of the payload");
    }
    for at in [44, 48, 1 << 31, u32::MAX - 3] {
        assert_eq!(place(&[(at, 9)]), Err(PeerFault::PositionOutside(at)));
    }
    // The first chunk takes twelve octets from position 8 on.
    for at in [12, 16] {
        assert_eq!(place(&[(8, 9), (at, 4)]), Err(PeerFault::PositionOutside(at)));
    }
    for at in (20..=52).step_by(4) {
        assert_eq!(place(&[(at, 4), (8, 9)]), Ok(13), "the second chunk counts the first one");
    }
    assert_eq!(place(&[(8, 9), (56, 4)]), Err(PeerFault::PositionOutside(56)));
}

#[test]
fn f55_an_empty_chunk_is_legal_and_a_payload_of_nothing_is_not() {
    let mut lists = ChunkLists::new();
    lists.push_read(position(8), segment(1, 0)).unwrap();
    let pull = plan_pull(&MSG, &lists, 40, 0).unwrap();
    assert_eq!(pull.chunks(), [PullChunk { position: position(8), len: 0 }]);
    assert_eq!(plan_pull(&MSG, &lists, 0, 0), Err(PeerFault::NoPayload));
    let mut lists = ChunkLists::new();
    lists.push_read(Position::ZERO, segment(1, 0)).unwrap();
    assert_eq!(plan_pull(&NOMSG, &lists, 0, 1000), Err(PeerFault::NoPayload));
}

#[test]
fn f56_a_call_is_limited_in_all_its_chunks_together_and_no_sum_wraps() {
    let mut lists = ChunkLists::new();
    (0..16).for_each(|_| lists.push_read(position(8), segment(1, 1 << 28)).unwrap());
    for limit in [0, 1 << 20, u32::MAX] {
        assert_eq!(plan_pull(&MSG, &lists, 40, limit), Err(PeerFault::TooLong));
    }
    let mut lists = ChunkLists::new();
    lists.push_read(Position::ZERO, segment(1, 600)).unwrap();
    lists.push_read(position(8), segment(1, 400)).unwrap();
    assert_eq!(plan_pull(&NOMSG, &lists, 0, 999), Err(PeerFault::TooLong));
    assert_eq!(plan_pull(&NOMSG, &lists, 0, 1000).map(|pull| pull.total()), Ok(1000));
    let mut lists = ChunkLists::new();
    (0..SEGMENTS_MAX).for_each(|_| lists.push_read(position(8), segment(1, u32::MAX)).unwrap());
    assert_eq!(plan_pull(&MSG, &lists, 40, u32::MAX), Err(PeerFault::TooLong));
}

#[test]
fn f65_a_payload_that_comes_twice_or_not_at_all_is_refused() {
    let mut lists = ChunkLists::new();
    lists.push_read(Position::ZERO, segment(1, 40)).unwrap();
    assert_eq!(plan_pull(&MSG, &lists, 40, 1000), Err(PeerFault::PayloadTwice));
    assert_eq!(plan_pull(&NOMSG, &lists, 4, 1000), Err(PeerFault::PayloadTwice));
    assert!(plan_pull(&NOMSG, &lists, 0, 1000).is_ok());
    for lists in [offer(&[&[100]], None), offer(&[], Some(&[100])), offer(&[&[100]], Some(&[100]))]
    {
        assert_eq!(plan_pull(&NOMSG, &lists, 0, 1000), Err(PeerFault::NoPayload));
    }
    let mut lists = ChunkLists::new();
    lists.push_read(position(8), segment(1, 40)).unwrap();
    assert_eq!(plan_pull(&NOMSG, &lists, 0, 1000), Err(PeerFault::NoPayload));
}

#[test]
fn f53_the_payload_of_a_long_call_names_its_headers_transaction() {
    assert_eq!(responder::check_xid(&NOMSG, &[0, 0, 0, 7, 0]), Ok(()));
    assert_eq!(responder::check_xid(&NOMSG, &[0, 0, 0, 8]), Err(PeerFault::XidMismatch));
    for len in 0..4 {
        assert_eq!(
            responder::check_xid(&NOMSG, &[0, 0, 7][..len.min(3)]),
            Err(PeerFault::NoPayload)
        );
    }
}

// Replying, and judging the reply.

/// The content of each part of a reply.
fn content(part: Part, parts: &ReplyParts) -> Vec<u8> {
    let (first, len) = match part {
        Part::Message => (1, parts.message()),
        Part::Item(place) => (101 + place, parts.items().get(place).map_or(0, |item| item.len)),
        Part::Pad => return vec![0; 3],
    };
    (0..len).map(|number| first as u8 + (number % 90) as u8).collect()
}

/// The unreduced reply, but for the items of which `keeps` is false, and their padding.
fn stream_of(parts: &ReplyParts, keeps: impl Fn(usize) -> bool) -> Vec<u8> {
    let (message, mut stream, mut from) = (content(Part::Message, parts), Vec::new(), 0);
    for (place, item) in parts.items().iter().enumerate() {
        stream.extend(&message[from..item.position as usize]);
        from = item.position as usize;
        if keeps(place) {
            stream.extend(content(Part::Item(place), parts));
            stream.resize(padded(stream.len()), 0);
        }
    }
    stream.extend(&message[from..]);
    stream
}

fn gather(plan: &ReplyPlan, parts: &ReplyParts) -> Vec<u8> {
    let octets = |piece: PayloadPiece| {
        let span = piece.from as usize..(piece.from + piece.len) as usize;
        content(piece.part, parts)[span].to_vec()
    };
    plan.payload().flat_map(octets).collect()
}

/// Performs the writes of a plan into the memory that `call` offers; every octet is written once,
/// in order, inside its segment.
fn perform(
    plan: &ReplyPlan,
    parts: &ReplyParts,
    call: &ChunkLists,
    returned: &ChunkLists,
) -> Vec<Vec<u8>> {
    let mut memory: Vec<Vec<u8>> = call.segments().iter().map(|_| Vec::new()).collect();
    for push in plan.pushes(returned) {
        assert!(push.target.length > 0, "no empty RDMA Write");
        let index = call
            .segments()
            .iter()
            .position(|segment| segment.handle == push.target.handle)
            .unwrap();
        let offered = call.segments()[index];
        assert_eq!(
            push.target.offset - offered.offset,
            memory[index].len() as u64,
            "written in order"
        );
        let from = push.from as usize;
        let octets = content(push.part, parts)[from..from + push.target.length as usize].to_vec();
        memory[index].extend(octets);
        assert!(memory[index].len() <= offered.length as usize, "inside the segment");
    }
    memory
}

/// One exchange: plans the reply, performs its writes, checks it as the requester does, and reads
/// it back.
fn exchange(
    call: &ChunkLists,
    parts: ReplyParts,
    threshold: InlineThreshold,
    policy: ReplyPolicy,
) -> Result<ReplyPlan, PeerFault> {
    let mut returned = ChunkLists::new();
    let plan = plan_reply(call, parts, threshold, policy, &mut returned)?;
    let memory = perform(&plan, &parts, call, &returned);
    let (header, inline) = match plan.procedure {
        Procedure::Msg => (MSG, gather(&plan, &parts)),
        _ => (NOMSG, Vec::new()),
    };
    assert_eq!(plan.header_len, v1::header_len(&returned));
    assert!(plan.header_len + inline.len() <= threshold.octets(), "the message fits the threshold");
    let shape = check_reply(call, &header, &returned, inline.len()).unwrap();
    assert_eq!(shape.written().len(), call.writes().count());
    // The Write chunks' segments come before the Reply chunk's.
    let write_segments = call.writes().map(|chunk| chunk.segments.len()).sum();
    let mut chunks = memory[..write_segments].iter();
    let in_chunks: Vec<Vec<u8>> = call
        .writes()
        .map(|chunk| chunks.by_ref().take(chunk.segments.len()).flatten().copied().collect())
        .collect();
    let payload = match shape.payload {
        ReplyPayload::Inline(len) => inline[..len].to_vec(),
        ReplyPayload::ReplyChunk(len) => {
            let written = memory[write_segments..].concat();
            assert_eq!(written.len() as u64, len);
            written
        }
    };
    assert_eq!(
        lengths(returned.segments()),
        memory.iter().map(|m| m.len() as u32).collect::<Vec<_>>()
    );
    for (place, (in_chunk, written)) in in_chunks.iter().zip(shape.written()).enumerate() {
        let item = content(Part::Item(place), &parts);
        let expected = if plan.is_in_chunk(place) { item } else { Vec::new() };
        assert_eq!(*in_chunk, expected, "the item without padding, and nothing else");
        assert_eq!(*written, expected.len() as u64);
    }
    let rest = stream_of(&parts, |place| !plan.is_in_chunk(place));
    assert_eq!(payload, rest, "{parts:?} to {call:?}");
    Ok(plan)
}

#[test]
fn every_reply_arrives_whole_or_is_refused_for_want_of_room() {
    let write_lists: [&[&[u32]]; 8] = [
        &[],
        &[&[]],
        &[&[9]],
        &[&[8, 4]],
        &[&[0, 5, 0, 3, 1]],
        &[&[900, 200]],
        &[&[], &[900]],
        &[&[9], &[9]],
    ];
    let replies: [Option<&[u32]>; 6] = [
        None,
        Some(&[]),
        Some(&[40]),
        Some(&[17, 0, 1, 30]),
        Some(&[2000]),
        Some(&[3, 1, 4, 1, 5, 900, 2000]),
    ];
    for writes in write_lists {
        for reply in replies {
            let call = offer(writes, reply);
            for item in [0, 1, 3, 4, 8, 9, 10, 12, 13, 899, 1000] {
                for (head, tail) in [(24, 0), (24, 16), (40, 0), (900, 0), (900, 100), (1000, 1000)]
                {
                    for policy in [ReplyPolicy::Inline, ReplyPolicy::Chunk] {
                        let parts = ReplyParts::with_item(head, item, tail);
                        compare(&call, parts, policy);
                    }
                }
            }
        }
    }
}

/// Compares a reply with what RFC 8166 says of it. Returns true if it can be sent.
fn compare(call: &ChunkLists, parts: ReplyParts, policy: ReplyPolicy) -> bool {
    let got = exchange(call, parts, threshold(1024), policy).map(|plan| plan.procedure);
    assert_eq!(got, judge(call, parts, policy), "{parts:?} to {call:?} by {policy:?}");
    got.is_ok()
}

/// A reply with these items, each after one more word of the message.
fn several(head: u32, items: &[u32]) -> ReplyParts {
    let mut parts = ReplyParts::new(head + 4 * items.len() as u32);
    for (place, len) in items.iter().enumerate() {
        parts.push(ReplyItem { position: head + 4 * place as u32, len: *len }).unwrap();
    }
    parts
}

#[test]
fn each_item_of_a_reply_has_the_write_chunk_of_its_place() {
    let chunks: [&[u32]; 6] = [&[], &[0], &[9], &[5, 0, 300], &[1, 2, 3], &[900]];
    let (mut sent, mut refused) = (0, 0);
    for choice in 0..6 * 6 * 6 * 4 {
        let count = choice / 216;
        let offered = [choice % 6, choice / 6 % 6, choice / 36 % 6].map(|at| chunks[at]);
        for reply in [None, Some(&[700_u32, 600][..])] {
            let call = offer(&offered[..count], reply);
            for items in [&[0, 8][..], &[9, 9], &[1, 0, 5], &[6, 305, 800], &[300, 6, 2, 7, 9]] {
                for policy in [ReplyPolicy::Inline, ReplyPolicy::Chunk] {
                    let is_sent = compare(&call, several(40, items), policy);
                    *if is_sent { &mut sent } else { &mut refused } += 1;
                }
            }
        }
    }
    assert!(sent > 1_000 && refused > 1_000, "{sent} sent, {refused} refused");
}

#[test]
fn as_many_items_as_write_chunks_go_out_and_not_one_more() {
    let (chunks, sizes) = ([&[300_u32][..]; WRITES_MAX], [299; WRITES_MAX]);
    let mut parts = several(40, &sizes);
    let plan =
        exchange(&offer(&chunks, None), parts, threshold(1024), ReplyPolicy::Inline).unwrap();
    assert!((0..WRITES_MAX).all(|place| plan.is_in_chunk(place)));
    assert!(!plan.is_in_chunk(WRITES_MAX) && !plan.is_in_chunk(usize::MAX));
    let more = ReplyItem { position: parts.message(), len: 1 };
    assert_eq!(parts.push(more), Err(ListsFull::Chunks));
}

/// Applies RFC 8166 §4.3 to a reply, at a threshold of 1024 octets.
fn judge(
    call: &ChunkLists,
    parts: ReplyParts,
    policy: ReplyPolicy,
) -> Result<Procedure, PeerFault> {
    let mut payload = u64::from(parts.message());
    for (place, item) in parts.items().iter().enumerate() {
        match call.writes().nth(place).filter(|chunk| !chunk.segments.is_empty() && item.len > 0) {
            Some(chunk) if chunk.total() < u64::from(item.len) => {
                return Err(PeerFault::WriteChunkTooSmall);
            }
            Some(_) => {}
            None => payload += u64::from(item.len.next_multiple_of(4)),
        }
    }
    let inline = v1::header_len(call) as u64 + payload <= 1024;
    match call.reply().map(|chunk| chunk.total() >= payload) {
        Some(true) if policy == ReplyPolicy::Chunk || !inline => Ok(Procedure::NoMsg),
        _ if inline => Ok(Procedure::Msg),
        Some(_) => Err(PeerFault::ReplyChunkTooSmall),
        None => Err(PeerFault::NoReplyChunk),
    }
}

#[test]
fn an_item_goes_into_the_write_chunk_and_its_padding_nowhere() {
    // As Linux offers it: the exact length, then four octets of padding whose key all calls share.
    let call = offer(&[&[4096, 3, 4]], None);
    let mut returned = ChunkLists::new();
    let parts = ReplyParts::with_item(128, 4099, 0);
    let plan =
        plan_reply(&call, parts, threshold(1024), ReplyPolicy::Inline, &mut returned).unwrap();
    assert!(plan.is_in_chunk(0));
    assert_eq!(lengths(returned.writes().next().unwrap().segments), [4096, 3, 0]);
    assert!(
        plan.pushes(&returned).all(|push| push.part == Part::Item(0) && push.target.handle != 3)
    );
    let payload: Vec<_> = plan.payload().filter(|piece| piece.len > 0).collect();
    assert_eq!(payload, [PayloadPiece { part: Part::Message, from: 0, len: 128 }]);
}

#[test]
fn f57_a_write_chunk_without_segments_asks_for_the_item_inline_and_comes_back_empty() {
    let call = offer(&[&[], &[100]], None);
    let mut returned = ChunkLists::new();
    let parts = ReplyParts::with_item(128, 99, 4);
    let plan =
        plan_reply(&call, parts, threshold(1024), ReplyPolicy::Inline, &mut returned).unwrap();
    assert!(!plan.is_reduced());
    assert_eq!(plan.pushes(&returned).count(), 0);
    let counts: Vec<_> = returned.writes().map(|chunk| lengths(chunk.segments)).collect();
    assert_eq!(counts, [vec![], vec![0]]);
}

#[test]
fn f60_chunks_without_a_result_come_back_unused() {
    let call = offer(&[&[100, 4], &[200]], Some(&[300]));
    let mut returned = ChunkLists::new();
    for item in [0, 50] {
        let parts = ReplyParts::with_item(128, item, 0);
        let plan =
            plan_reply(&call, parts, threshold(1024), ReplyPolicy::Inline, &mut returned).unwrap();
        assert_eq!(plan.is_reduced(), item > 0, "an empty item consumes nothing");
        assert_eq!(lengths(returned.segments()), [item, 0, 0, 0]);
        let handles =
            |lists: &ChunkLists| lists.segments().iter().map(|s| (s.handle, s.offset)).collect();
        let (given, taken): (Vec<_>, Vec<_>) = (handles(&call), handles(&returned));
        assert_eq!(given, taken);
    }
}

#[test]
fn the_only_write_chunk_of_a_call_comes_back_as_long_as_its_item_or_unused() {
    let offered = segment(5, 200);
    for item in [0, 1, 200] {
        assert_eq!(fill_one_write(offered, item), Ok(Segment { length: item, ..offered }));
    }
    assert_eq!(fill_one_write(offered, 201), Err(PeerFault::WriteChunkTooSmall));
}

#[test]
fn a_reply_without_chunks_fits_its_room_to_the_octet() {
    for room in [0, 1, 996] {
        for len in [0, room.max(1) - 1, room] {
            assert_eq!(check_inline(len, room), Ok(()), "{len} octets in {room}");
        }
        assert_eq!(check_inline(room + 1, room), Err(PeerFault::NoReplyChunk));
    }
}

#[test]
fn f61_a_reply_one_octet_too_long_for_inline_needs_a_reply_chunk() {
    for (head, expected) in [(996, Ok(Procedure::Msg)), (1000, Err(PeerFault::NoReplyChunk))] {
        let parts = ReplyParts::new(head);
        let got = exchange(&ChunkLists::new(), parts, threshold(1024), ReplyPolicy::Inline);
        assert_eq!(got.map(|plan| plan.procedure), expected);
    }
    // The Reply chunk that comes back unused counts too: 20 octets.
    for (head, expected) in [(976, Procedure::Msg), (980, Procedure::NoMsg)] {
        let parts = ReplyParts::new(head);
        let got = exchange(&offer(&[], Some(&[2000])), parts, threshold(1024), ReplyPolicy::Inline);
        assert_eq!(got.unwrap().procedure, expected);
    }
}

#[test]
fn f62_a_chunk_one_octet_too_small_is_refused_before_anything_is_written() {
    let parts = ReplyParts::with_item(128, 1001, 0);
    for (room, expected) in [(1001, Ok(())), (1000, Err(PeerFault::WriteChunkTooSmall))] {
        let call = offer(&[&[room - 300, 300]], Some(&[5000]));
        let got = exchange(&call, parts, threshold(1024), ReplyPolicy::Inline).map(|_| ());
        assert_eq!(got, expected);
    }
    for (room, expected) in [(1132, Ok(())), (1131, Err(PeerFault::ReplyChunkTooSmall))] {
        let call = offer(&[], Some(&[300, room - 300]));
        for policy in [ReplyPolicy::Inline, ReplyPolicy::Chunk] {
            assert_eq!(exchange(&call, parts, threshold(1024), policy).map(|_| ()), expected);
        }
    }
}

#[test]
fn a_header_that_alone_exceeds_the_threshold_is_refused() {
    let call = offer(&[], Some(&[100; 63]));
    let parts = ReplyParts::new(128);
    for policy in [ReplyPolicy::Inline, ReplyPolicy::Chunk] {
        assert_eq!(
            exchange(&call, parts, threshold(1024), policy).map(|_| ()),
            Err(PeerFault::NoReplyChunk)
        );
        assert!(exchange(&call, parts, threshold(2048), policy).is_ok());
    }
}

#[test]
fn f68_a_returned_chunk_is_valid_exactly_when_it_is_filled_from_the_front() {
    let call = offer(&[&[2, 0, 2, 1]], None);
    let mut valid = 0;
    for pattern in 0..4_u32.pow(4) {
        let got: Vec<u32> = (0..4).map(|digit| pattern / 4_u32.pow(digit) % 4).collect();
        let returned = offer(&[&got], None);
        let total: u32 = got.iter().sum();
        let filled = (0..=5).find(|fill: &u32| {
            got == [(*fill).min(2), 0, fill.saturating_sub(2).min(2), fill.saturating_sub(4)]
        });
        match check_reply(&call, &MSG, &returned, 40) {
            Ok(shape) => {
                assert_eq!((filled, shape.written()), (Some(total), &[u64::from(total)][..]));
                valid += 1;
            }
            Err(fault) => {
                assert!(filled.is_none(), "{got:?}: {fault}");
                let grew = got.iter().zip([2, 0, 2, 1]).any(|(got, offered)| *got > offered);
                let gap = fault == PeerFault::SegmentGap;
                assert!(gap || grew && fault == PeerFault::SegmentGrew, "{got:?}: {fault}");
            }
        }
    }
    assert_eq!(valid, 6);
}

#[test]
fn f68_a_reply_that_names_other_chunks_than_were_offered_is_refused() {
    let call = offer(&[&[10, 10], &[10]], Some(&[100]));
    let check = |returned: &ChunkLists| check_reply(&call, &MSG, returned, 40).map(|_| ());
    let mut unused = ChunkLists::new();
    unused.return_unused(&call);
    assert_eq!(check(&unused), Ok(()));
    assert_eq!(check(&offer(&[&[0, 0]], Some(&[0]))), Err(PeerFault::ChunkCount));
    assert_eq!(check(&offer(&[&[0, 0], &[0], &[]], Some(&[0]))), Err(PeerFault::ChunkCount));
    assert_eq!(check(&offer(&[&[0], &[0]], Some(&[0]))), Err(PeerFault::SegmentCount));
    assert_eq!(check(&offer(&[&[0, 0], &[0]], Some(&[0, 0]))), Err(PeerFault::SegmentCount));
    let mut with_read = unused.clone();
    with_read.push_read(position(4), segment(9, 0)).unwrap();
    assert_eq!(check(&with_read), Err(PeerFault::ReadListInReply));
    let nothing = ChunkLists::new();
    assert_eq!(check_reply(&nothing, &MSG, &offer(&[], Some(&[])), 40), Err(PeerFault::ChunkCount));
    for changed in 0..4 {
        for other in [
            Segment { handle: 99, length: 0, ..call.segments()[changed] },
            Segment { offset: 99, length: 0, ..call.segments()[changed] },
        ] {
            let pick =
                |index: usize| if index == changed { other } else { unused.segments()[index] };
            let mut returned = ChunkLists::new();
            returned.begin_write().unwrap();
            returned.push_write(pick(0)).unwrap();
            returned.push_write(pick(1)).unwrap();
            returned.begin_write().unwrap();
            returned.push_write(pick(2)).unwrap();
            returned.begin_reply();
            returned.push_reply(pick(3)).unwrap();
            assert_eq!(check(&returned), Err(PeerFault::SegmentMoved), "segment {changed}");
        }
    }
}

#[test]
fn chunks_without_a_result_may_come_back_without_segments_or_not_at_all() {
    let call = offer(&[&[10, 10], &[10]], Some(&[100]));
    let mut reply_alone = ChunkLists::new();
    reply_alone.begin_reply();
    reply_alone.push_reply(Segment { length: 0, ..call.segments()[3] }).unwrap();
    for (returned, written) in [
        (reply_alone, [0, 0]),
        (offer(&[&[], &[]], None), [0, 0]),
        (offer(&[&[], &[]], Some(&[])), [0, 0]),
        (ChunkLists::new(), [0, 0]),
        (unlike(&call), [0, 7]),
    ] {
        let shape = check_reply(&call, &MSG, &returned, 40).unwrap();
        assert_eq!(shape.written(), written, "{returned:?}");
        assert_eq!(shape.payload, ReplyPayload::Inline(40));
        assert_eq!(
            check_reply(&call, &NOMSG, &returned, 0),
            Err(PeerFault::NoPayload),
            "{returned:?}"
        );
    }
}

/// Lists that return the first Write chunk without segments, and 7 octets in the second one.
fn unlike(call: &ChunkLists) -> ChunkLists {
    let mut returned = ChunkLists::new();
    returned.begin_write().unwrap();
    returned.begin_write().unwrap();
    returned.push_write(Segment { length: 7, ..call.segments()[2] }).unwrap();
    returned
}

#[test]
fn a_message_in_a_reply_chunk_is_the_reply_to_its_call() {
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
    assert_eq!(check_message(Xid(7), &words(&[7, 1])), Ok(()));
    assert_eq!(check_message(Xid(7), &words(&[7, 1, 9])), Ok(()));
    assert_eq!(check_message(Xid(7), &words(&[8, 1])), Err(PeerFault::XidMismatch));
    assert_eq!(check_message(Xid(7), &words(&[7, 0])), Err(PeerFault::TypeMismatch));
    assert_eq!(check_message(Xid(7), &words(&[7, 2])), Err(PeerFault::MessageType(2)));
    for len in 0..8 {
        assert_eq!(check_message(Xid(7), &words(&[7, 1])[..len]), Err(PeerFault::NoPayload));
    }
}

#[test]
fn a_reply_has_its_payload_in_exactly_one_place() {
    let call = offer(&[], Some(&[100]));
    let check =
        |header, written, inline| check_reply(&call, header, &offer(&[], Some(&[written])), inline);
    assert_eq!(check(&MSG, 0, 40).unwrap().payload, ReplyPayload::Inline(40));
    assert_eq!(check(&NOMSG, 60, 0).unwrap().payload, ReplyPayload::ReplyChunk(60));
    assert_eq!(check(&MSG, 1, 40), Err(PeerFault::ReplyChunkUsed));
    assert_eq!(check(&MSG, 0, 0), Err(PeerFault::NoPayload));
    assert_eq!(check(&NOMSG, 0, 0), Err(PeerFault::NoPayload));
    assert_eq!(check(&NOMSG, 60, 4), Err(PeerFault::PayloadTwice));
    let nothing = ChunkLists::new();
    assert_eq!(check_reply(&nothing, &NOMSG, &nothing, 0), Err(PeerFault::NoPayload));
    let error = Header { body: Body::Error(ErrorBody::Chunk), ..MSG };
    assert_eq!(check_reply(&nothing, &error, &nothing, 0), Err(PeerFault::NoPayload));
}

// Invalidation.

#[test]
fn the_longest_segment_is_invalidated_and_never_a_padding() {
    let choose = |lists: &ChunkLists| invalidate::choose(lists);
    assert_eq!(choose(&ChunkLists::new()), None);
    assert_eq!(choose(&offer(&[&[4096]], None)), Some(1));
    assert_eq!(choose(&offer(&[&[4096, 3, 4]], None)), Some(1));
    assert_eq!(choose(&offer(&[&[3, 4]], None)), Some(1), "the longest is a padding");
    assert_eq!(
        choose(&offer(&[&[4]], None)),
        Some(1),
        "a chunk of one segment has no padding segment"
    );
    assert_eq!(choose(&offer(&[&[0, 4]], None)), None, "an empty segment names nothing");
    assert_eq!(choose(&offer(&[&[4, 5]], None)), Some(2));
    assert_eq!(choose(&offer(&[], Some(&[256, 28_672, 4]))), Some(2));
    assert_eq!(choose(&offer(&[&[8, 4]], Some(&[3, 4]))), Some(1));
    assert_eq!(choose(&offer(&[&[0]], Some(&[0]))), None);
}

#[test]
fn among_equals_the_write_chunk_goes_first_then_the_reply_chunk_then_the_read_chunk() {
    let mut lists = offer(&[&[100, 100]], Some(&[100]));
    lists.push_read(position(8), segment(9, 100)).unwrap();
    assert_eq!(invalidate::choose(&lists), Some(1));
    let mut lists = offer(&[&[99, 4]], Some(&[100, 100]));
    lists.push_read(position(8), segment(9, 100)).unwrap();
    assert_eq!(invalidate::choose(&lists), Some(3));
    let mut lists = offer(&[&[99, 4]], Some(&[99]));
    lists.push_read(position(8), segment(9, 100)).unwrap();
    assert_eq!(invalidate::choose(&lists), Some(9));
}

#[test]
fn nothing_is_invalidated_unless_both_sides_announced_it_and_only_by_the_server() {
    let lists = offer(&[&[4096]], None);
    for (own, peer) in [(false, false), (false, true), (true, false), (true, true)] {
        for side in [Side::Client, Side::Server] {
            let offer =
                |remote_invalidation| PrivateData { remote_invalidation, ..PrivateData::SILENT };
            let setup = Setup { side, own: offer(own), peer: offer(peer), calls_max: 1, grant: 1 };
            let expected = (own && peer && side == Side::Server).then_some(1);
            assert_eq!(Connection::new(setup).invalidates(&lists), expected);
        }
    }
}

// A connection.

fn connection(side: Side, calls_max: u32, grant: u32) -> Connection {
    Connection::new(Setup {
        side,
        own: PrivateData::SILENT,
        peer: PrivateData::SILENT,
        calls_max,
        grant,
    })
}

fn inline(header: &Header, rpc_type: u32) -> Vec<u8> {
    let mut out = vec![0; 64];
    let len = v1::emit(header, &ChunkLists::new(), &mut out).unwrap();
    out.truncate(len);
    out.extend(header.xid.0.to_be_bytes());
    out.extend(rpc_type.to_be_bytes());
    out
}

#[test]
fn calls_count_against_the_grant_until_their_reply_and_one_more_closes() {
    let mut server = connection(Side::Server, 0, 3);
    let mut lists = ChunkLists::new();
    let call = inline(&MSG, 0);
    let expected = Incoming::Call { header: MSG, direction: Direction::Forward, payload_at: 28 };
    for _ in 0..3 {
        assert_eq!(server.handle_message(&call, &mut lists), expected);
    }
    // What is answered at once or discarded holds nothing.
    let mut bad = call.clone();
    bad[7] = 2;
    for _ in 0..10 {
        assert!(matches!(server.handle_message(&bad, &mut lists), Incoming::Answer(..)));
        assert!(matches!(server.handle_message(&call[..20], &mut lists), Incoming::Discard(_)));
    }
    assert_eq!(
        server.handle_message(&call, &mut lists),
        Incoming::Close(PeerFault::CreditsExceeded)
    );
    assert_eq!(server.reply_header(Xid(7), Body::Msg).credits, Credits(3));
    server.handle_replied();
    assert_eq!(server.handle_message(&call, &mut lists), expected);
    assert_eq!(server.serves().unwrap().outstanding(), 3);
    let error =
        ErrorReply { xid: Xid(7), version: 1, credits: Credits(3), error: ErrorBody::Chunk };
    assert_eq!(server.chunk_error(Xid(7)), error);
}

#[test]
fn replies_and_errors_bring_grants_and_calls_do_not() {
    let mut client = connection(Side::Client, 32, 4);
    let mut lists = ChunkLists::new();
    let limit = |client: &Connection| client.calls().unwrap().limit();
    assert_eq!(client.call_header(Xid(1), Body::Msg).credits, Credits(32));
    let header = |credits| Header { credits: Credits(credits), ..MSG };
    client.handle_message(&inline(&header(20), 0), &mut lists);
    assert_eq!(limit(&client), 1, "a reverse-direction call asks for credits and grants none");
    let got = client.handle_message(&inline(&header(20), 1), &mut lists);
    assert_eq!(
        got,
        Incoming::Reply { header: header(20), direction: Direction::Forward, payload_at: 28 }
    );
    assert_eq!(limit(&client), 20);
    let mut error = [0; 28];
    let reply =
        ErrorReply { xid: Xid(5), version: 1, credits: Credits(0), error: ErrorBody::Chunk };
    let len = v1::emit_error(&reply, &mut error).unwrap();
    let got = client.handle_message(&error[..len], &mut lists);
    let expected =
        Incoming::Error { xid: Xid(5), error: ErrorBody::Chunk, direction: Direction::Forward };
    assert_eq!((got, limit(&client)), (expected, 1));
    assert_eq!(client.take_credit(), Ok(()));
    assert_eq!(client.take_credit(), Err(NoCredit));
    client.give_credit();
    assert_eq!(client.take_credit(), Ok(()));
    assert_eq!(connection(Side::Server, 0, 1).take_credit(), Err(NoCredit));
}

#[test]
fn a_server_calls_once_it_is_allowed_to_and_not_more_than_that() {
    let mut server = connection(Side::Server, 0, 8);
    assert_eq!(server.take_credit(), Err(NoCredit));
    server.allow_calls(0);
    assert!(server.calls().is_none());
    server.allow_calls(3);
    server.allow_calls(9);
    assert_eq!((server.take_credit(), server.take_credit()), (Ok(()), Err(NoCredit)));
    assert_eq!(server.call_header(Xid(1), Body::Msg).credits, Credits(3));
}

#[test]
fn each_direction_has_its_own_credits_and_the_same_xid_may_live_in_both() {
    let mut server = connection(Side::Server, 2, 8);
    let mut lists = ChunkLists::new();
    server.take_credit().unwrap();
    let call = server.handle_message(&inline(&MSG, 0), &mut lists);
    assert_eq!(call, Incoming::Call { header: MSG, direction: Direction::Forward, payload_at: 28 });
    let granted = Header { credits: Credits(100), ..MSG };
    let reply = server.handle_message(&inline(&granted, 1), &mut lists);
    assert_eq!(
        reply,
        Incoming::Reply { header: granted, direction: Direction::Reverse, payload_at: 28 }
    );
    assert_eq!(server.calls().unwrap().limit(), 2);
    assert_eq!(
        (server.calls().unwrap().in_flight(), server.serves().unwrap().outstanding()),
        (1, 1)
    );
}

#[test]
fn a_reverse_call_with_chunks_gets_err_chunk_and_without_service_silence() {
    let mut lists = ChunkLists::new();
    for grant in [0, 4] {
        let mut client = connection(Side::Client, 1, grant);
        let call = client.handle_message(&inline(&MSG, 0), &mut lists);
        match grant {
            0 => assert_eq!(call, Incoming::Discard(PeerFault::UnexpectedCall)),
            _ => {
                let direction = Direction::Reverse;
                assert_eq!(call, Incoming::Call { header: MSG, direction, payload_at: 28 });
            }
        }
        let mut out = [0; 256];
        let len = v1::emit(&MSG, &offer(&[&[100]], None), &mut out).unwrap();
        out[len..len + 4].copy_from_slice(&7_u32.to_be_bytes());
        let credits = Credits(grant.max(1));
        let error = ErrorReply { xid: Xid(7), version: 1, credits, error: ErrorBody::Chunk };
        let answer = Incoming::Answer(error, PeerFault::ReverseChunks);
        assert_eq!(client.handle_message(&out[..len + 8], &mut lists), answer);
    }
}

#[test]
fn thresholds_are_the_smaller_of_sender_and_receiver_in_each_direction() {
    let size = InlineSize::at_most;
    let own = PrivateData { remote_invalidation: true, send: size(8192), receive: size(4096) };
    let peer = PrivateData { remote_invalidation: true, send: size(16_384), receive: size(2048) };
    let connection =
        Connection::new(Setup { side: Side::Server, own, peer, calls_max: 0, grant: 1 });
    assert_eq!(connection.send_threshold().octets(), 2048);
    assert_eq!(connection.receive_threshold().octets(), 4096);
    assert_eq!(
        (Side::Server.calls(), Side::Client.serves()),
        (Direction::Reverse, Direction::Reverse)
    );
}

#[test]
fn every_fault_is_a_sentence_of_its_own() {
    let faults = [
        PeerFault::ShortHeader { len: 3 },
        PeerFault::Version(2),
        PeerFault::Procedure(2),
        PeerFault::Done,
        PeerFault::ErrorAtResponder,
        PeerFault::UnreadableError,
        PeerFault::CutLists,
        PeerFault::Discriminator(2),
        PeerFault::Position(2),
        PeerFault::OffsetWraps,
        PeerFault::TooManySegments,
        PeerFault::TooManyChunks,
        PeerFault::NoLists,
        PeerFault::XidMismatch,
        PeerFault::NoPayload,
        PeerFault::MessageType(2),
        PeerFault::PayloadTwice,
        PeerFault::PositionOutside(2),
        PeerFault::TooLong,
        PeerFault::UnexpectedReply,
        PeerFault::UnexpectedCall,
        PeerFault::ReverseChunks,
        PeerFault::ReadListInReply,
        PeerFault::ChunkCount,
        PeerFault::SegmentCount,
        PeerFault::SegmentMoved,
        PeerFault::SegmentGrew,
        PeerFault::SegmentGap,
        PeerFault::ReplyChunkUsed,
        PeerFault::WriteChunkTooSmall,
        PeerFault::ReplyChunkTooSmall,
        PeerFault::NoReplyChunk,
        PeerFault::CreditsExceeded,
        PeerFault::TypeMismatch,
        PeerFault::UnknownOption(2),
        PeerFault::BadOption(2),
        PeerFault::UnexpectedOption(2),
    ];
    let sentences: std::collections::BTreeSet<String> =
        faults.iter().map(|fault| format!("{fault}")).collect();
    assert_eq!(sentences.len(), faults.len());
    assert!(sentences.iter().all(|sentence| sentence.len() > 20));
}
