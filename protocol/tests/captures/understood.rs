//! Every message of the captures is understood, and comes out of our encoders as it went in.

use std::collections::BTreeMap;

use stag_protocol::nfs::{binding, v3};
use stag_protocol::rpc::ReplyHeader;
use stag_protocol::rpcrdma::responder::{ReplyParts, ReplyPolicy, plan_pull, plan_reply};
use stag_protocol::rpcrdma::{Body, ChunkLists, Connection, Direction, InlineThreshold};
use stag_protocol::xdr::Reader;

use crate::calls::{Call, Capture, Message, SERVER_GRANT, capture, connections};
use crate::receive::{Called, Context, Outcome, PULL_MAX, Scratch, receive};
use crate::wire::WireCounts;
use crate::{NFS3, NFS41};

const NFSACL: u32 = 100_227;
/// The client chooses the program number of reverse calls (RFC 8881 §18.36.3): the first of the
/// transient ones.
const CALLBACK: u32 = 0x4000_0000;

/// Returns the content of the first chunk of a message that holds any octets, followed by zeros.
pub fn first_chunk(chunks: &[&[Vec<u8>]]) -> Vec<u8> {
    let mut octets = chunks
        .iter()
        .flat_map(|chunks| chunks.iter())
        .find(|octets| !octets.is_empty())
        .cloned()
        .unwrap_or_default();
    octets.resize(octets.len().max(PULL_MAX as usize), 0);
    octets
}

pub fn receiver(capture: &Capture, direction: Direction, is_call: bool) -> Connection {
    let [client, server] = connections(capture.offers, SERVER_GRANT);
    if (direction == Direction::Forward) == is_call { server } else { client }
}

/// The RPC message in one piece, as it would be without chunks: the chunk's content and its padding
/// where it belongs.
fn whole(message: &Message, at: usize, item: &[u8]) -> Vec<u8> {
    let (front, back) = message.inline().split_at(at);
    [front, item, &[0; 3][..item.len().wrapping_neg() & 3], back].concat()
}

/// Describes the form of a message: procedure of the header, and `R` Read, `W` Write, `P` Reply
/// segments of each chunk.
pub fn shape(message: &Message) -> String {
    let mut shape = format!("{:?}", message.header.procedure());
    message.lists.reads().for_each(|chunk| shape += &format!(" R{}", chunk.segments.len()));
    message.lists.writes().for_each(|chunk| shape += &format!(" W{}", chunk.segments.len()));
    message.lists.reply().iter().for_each(|chunk| shape += &format!(" P{}", chunk.segments.len()));
    shape
}

pub fn name((program, version, procedure): Called) -> String {
    match (program, version) {
        (v3::PROGRAM, 3) => format!("NFS3 {:?}", v3::Procedure::new(procedure).unwrap()),
        (v3::PROGRAM, 4) => format!("NFS4 {}", ["NULL", "COMPOUND"][procedure as usize]),
        (NFSACL, 3) => format!("NFSACL3 {procedure}"),
        (CALLBACK, _) => format!("NFS4 callback {procedure} version {version}"),
        _ => panic!("program {program} version {version}"),
    }
}

/// Takes a call at its responder: it is one to carry out, and what was understood is what came.
pub fn understand_call(capture: &Capture, call: &Call, scratch: &mut Scratch) -> Called {
    let message = &call.call;
    let context = Context {
        direction: call.direction,
        xid: message.header.xid,
        called: (0, 0, 0),
        offered: &ChunkLists::new(),
        memory: &first_chunk(&[&call.pulled]),
    };
    let mut end = receiver(capture, call.direction, true);
    let outcome = receive(&mut end, &message.octets, &context, scratch);
    let Outcome::Called(called) = outcome else { panic!("{outcome:?}") };
    check_emitted(called, scratch.emitted(), &whole_call(call));
    called
}

/// The call in one piece, as it would be without chunks.
pub fn whole_call(call: &Call) -> Vec<u8> {
    let message = &call.call;
    let pull =
        plan_pull(&message.header, &message.lists, message.inline().len(), PULL_MAX).unwrap();
    assert_eq!(pull.position_zero(), None, "Linux had no Long call to make");
    match (pull.items(), &call.pulled[..]) {
        ([], []) => message.inline().to_vec(),
        ([item], [content]) => whole(message, item.position.octets() as usize, content),
        other => panic!("{other:?}"),
    }
}

/// The reply in one piece.
pub fn whole_reply(call: &Call) -> Vec<u8> {
    match (&call.reply.header.body, &call.written[..]) {
        (Body::NoMsg, []) => call.long_reply.clone(),
        (Body::Msg, []) => call.reply.inline().to_vec(),
        // The item is the last of version 3, and Linux makes READ the last of a COMPOUND.
        (Body::Msg, [item]) => whole(&call.reply, call.reply.inline().len(), item),
        other => panic!("{other:?}"),
    }
}

/// Takes a reply at its requester.
fn understand_reply(capture: &Capture, call: &Call, called: Called, scratch: &mut Scratch) {
    let context = reply_context(call, called);
    let memory = first_chunk(&[&call.written, std::slice::from_ref(&call.long_reply)]);
    let mut end = receiver(capture, call.direction, false);
    let outcome =
        receive(&mut end, &call.reply.octets, &Context { memory: &memory, ..context }, scratch);
    assert_eq!(outcome, Outcome::Replied);
    check_emitted(called, scratch.emitted(), &whole_reply(call));
}

fn reply_context(call: &Call, called: Called) -> Context<'_> {
    Context {
        direction: call.direction,
        xid: call.call.header.xid,
        called,
        offered: &call.call.lists,
        memory: &[],
    }
}

/// The same octets: all of NFS 3, else as far as the RPC header. `nfs4.rs` has the rest of NFS 4.1.
fn check_emitted(called: Called, emitted: &[u8], expected: &[u8]) {
    let is_v3 = (called.0, called.1) == (v3::PROGRAM, v3::VERSION);
    let compared = if is_v3 { expected.len() } else { emitted.len() };
    assert!(emitted.len() >= ReplyHeader::LEN);
    assert!(emitted == &expected[..compared], "{}", name(called));
}

/// We answer in the chunks that Linux' server used, and fill them as it did.
fn check_returned(call: &Call) {
    let octets = |octets: &[u8]| u32::try_from(octets.len()).unwrap();
    let item = call.written.first().map_or(0, |written| octets(written));
    let head = octets(call.reply.inline()) + octets(&call.long_reply);
    let mut returned = ChunkLists::new();
    let threshold = InlineThreshold::DEFAULT_V1;
    let parts = ReplyParts::with_item(head, item, 0);
    let plan =
        plan_reply(&call.call.lists, parts, threshold, ReplyPolicy::Chunk, &mut returned).unwrap();
    assert_eq!(returned, call.reply.lists);
    assert_eq!(plan.procedure, call.reply.header.procedure());
    assert_eq!(plan.header_len, call.reply.payload_at);
    assert_eq!(plan.is_reduced(), item > 0);
    let pushed: u64 = plan.pushes(&returned).map(|push| u64::from(push.target.length)).sum();
    assert_eq!(pushed, u64::from(item) + call.long_reply.len() as u64);
}

/// The results are no longer than what our own client would have made room for.
fn check_room(called: Called, call: &Call, arguments: &v3::Call<'_>, results_len: usize) {
    let room = binding::result_len_max(arguments);
    assert!(results_len <= room.whole());
    let eligible = binding::ddp_eligible(called.0, called.1, called.2);
    assert!(call.written.is_empty() || eligible == Some(binding::Eligible::Result));
    assert!(call.pulled.is_empty() || eligible == Some(binding::Eligible::Argument));
    let Some(offered) = call.call.lists.writes().next() else { return };
    assert!(call.written[0].len() <= room.item && offered.total() >= room.item as u64);
}

/// Checks that the values agree with each other, so that no two fields are mistaken for one
/// another.
fn check_sense(arguments: &v3::Call<'_>, results: &v3::Reply<'_>) {
    let check_times = |attributes: &v3::Attributes| {
        let times = [attributes.atime, attributes.mtime, attributes.ctime];
        assert!(
            times.iter().all(|time| time.seconds > 1_700_000_000 && time.nanos < 1_000_000_000)
        );
    };
    match (arguments, results) {
        (v3::Call::Read(asked), v3::Reply::Read(Ok(read))) => {
            let size = read.attributes.unwrap().size;
            assert!(read.data.len() as u64 <= u64::from(asked.count));
            assert_eq!(read.eof, asked.offset + read.data.len() as u64 >= size);
        }
        (v3::Call::Write(asked), v3::Reply::Write(Ok(written))) => {
            assert_eq!(written.count as usize, asked.data.len());
            assert!(written.committed >= asked.stable);
            assert!(written.wcc.after.unwrap().size >= asked.offset + u64::from(written.count));
        }
        (v3::Call::GetAttr(_), v3::Reply::GetAttr(Ok(attributes))) => check_times(attributes),
        (v3::Call::ReadDirPlus(_), v3::Reply::ReadDirPlus(Ok(listing))) => {
            for plus in listing.entries.clone() {
                // Linux gives nothing more of the root's parent.
                let Some(attributes) = plus.attributes else {
                    assert_eq!((plus.entry.name.0, plus.handle), (&b".."[..], None));
                    continue;
                };
                check_times(&attributes);
                assert_eq!(plus.entry.fileid, attributes.fileid);
            }
        }
        _ => {}
    }
}

/// Understands all calls: how often each procedure goes in which shapes.
fn understand(capture: &Capture) -> BTreeMap<String, usize> {
    let mut scratch = Scratch::new();
    let mut table = BTreeMap::new();
    for call in &capture.calls {
        let called = understand_call(capture, call, &mut scratch);
        let arguments = scratch.emitted_body().to_vec();
        understand_reply(capture, call, called, &mut scratch);
        check_returned(call);
        if called.1 == v3::VERSION && called.0 == v3::PROGRAM {
            let procedure = v3::Procedure::new(called.2).unwrap();
            let arguments = v3::Call::parse(procedure, Reader::new(&arguments)).unwrap();
            let results = v3::Reply::parse(procedure, Reader::new(scratch.emitted_body())).unwrap();
            check_room(called, call, &arguments, scratch.emitted_body().len());
            check_sense(&arguments, &results);
        }
        let (call_shape, reply_shape) = (shape(&call.call), shape(&call.reply));
        *table.entry(format!("{}: {call_shape} -> {reply_shape}", name(called))).or_default() += 1;
    }
    for (line, count) in &table {
        println!("{count:5}  {line}");
    }
    table
}

fn check_table(table: BTreeMap<String, usize>, expected: &[(&str, usize)]) {
    let expected = expected.iter().map(|(line, count)| (line.to_string(), *count)).collect();
    assert_eq!(table, expected);
}

#[test]
fn every_message_of_nfs_3_is_understood() {
    let capture = capture(NFS3);
    assert_eq!(capture.wire, WireCounts { fpdus: [727, 1414], sent_again: 2128, larger: 3 });
    assert_eq!((capture.calls.len(), capture.invalidations), (706, 32));
    let expected = [
        ("NFS3 Access: Msg -> Msg", 13),
        ("NFS3 Commit: Msg -> Msg", 1),
        ("NFS3 Create: Msg -> Msg", 7),
        ("NFS3 FsInfo: Msg -> Msg", 2),
        ("NFS3 FsStat: Msg -> Msg", 1),
        ("NFS3 GetAttr: Msg -> Msg", 13),
        ("NFS3 Link: Msg -> Msg", 1),
        ("NFS3 Lookup: Msg -> Msg", 11),
        ("NFS3 MkDir: Msg -> Msg", 2),
        ("NFS3 MkNod: Msg -> Msg", 1),
        ("NFS3 Null: Msg -> Msg", 1),
        ("NFS3 PathConf: Msg -> Msg", 1),
        ("NFS3 Read: Msg W1 -> Msg W1", 21),
        ("NFS3 ReadDirPlus: Msg P3 -> NoMsg P3", 4),
        ("NFS3 Remove: Msg -> Msg", 1),
        ("NFS3 Rename: Msg -> Msg", 1),
        ("NFS3 SetAttr: Msg -> Msg", 5),
        ("NFS3 Symlink: Msg -> Msg", 2),
        ("NFS3 Write: Msg -> Msg", 2),
        ("NFS3 Write: Msg R1 -> Msg", 11),
        ("NFSACL3 0: Msg -> Msg", 1),
        ("NFSACL3 1: Msg P3 -> NoMsg P3", 604),
    ];
    check_table(understand(&capture), &expected);
}

#[test]
fn every_message_of_nfs_4_1_is_understood_as_far_as_its_rpc_header() {
    let capture = capture(NFS41);
    assert_eq!(capture.wire, WireCounts { fpdus: [176, 277], sent_again: 437, larger: 2 });
    assert_eq!((capture.calls.len(), capture.invalidations), (151, 55));
    let reverse = capture.calls.iter().filter(|call| call.direction == Direction::Reverse);
    assert_eq!(reverse.count(), 1);
    let expected = [
        ("NFS4 COMPOUND: Msg -> Msg", 90),
        ("NFS4 COMPOUND: Msg P1 -> NoMsg P1", 21),
        ("NFS4 COMPOUND: Msg P3 -> NoMsg P3", 4),
        ("NFS4 COMPOUND: Msg R1 -> Msg", 11),
        ("NFS4 COMPOUND: Msg W1 -> Msg W1", 23),
        ("NFS4 NULL: Msg -> Msg", 1),
        ("NFS4 callback 1 version 1: Msg -> Msg", 1),
    ];
    check_table(understand(&capture), &expected);
}
