//! Replies that are none, say more than they bring, or leave out what they do not need.

use crate::support::{
    AtClient, AtServer, config,
    keeper::{Keeper, Wanted, ask, request, requester, start},
    pattern, rpc,
};
use stag_engine::{App, Call, Config, Cx, Outcome, PeerId};
use stag_protocol::rpcrdma::{
    Body, ChunkLists, Credits, Header, Intent, MessageType, Segment, Version, Version2, Versions,
    Xid, v1, v2,
};

const VERSIONS: [Version; 3] =
    [Version::One, Version::Two(Version2::Undirected), Version::Two(Version2::Directed)];

/// A call whose reply is long.
const LONG: Wanted<'_> = Wanted { head: 44, item: None, reply_max: 9_000, result_max: 0 };
/// A call with room for a result.
const CHUNKED: Wanted<'_> = Wanted { head: 44, item: None, reply_max: 100, result_max: 9_000 };

fn speaking(version: Version) -> Config {
    match version {
        Version::One => config(),
        Version::Two(dialect) => Config {
            call_versions: Versions::Both(dialect),
            serve_versions: Versions::Both(dialect),
            reverse_calls_max: 3,
            ..config()
        },
    }
}

fn parse(version: Version, message: &[u8]) -> (Header, ChunkLists) {
    let mut lists = ChunkLists::new();
    let (header, _) = match version {
        Version::One => v1::parse(message, &mut lists),
        Version::Two(Version2::Undirected) => v2::parse::<v2::Undirected>(message, &mut lists),
        Version::Two(Version2::Directed) => v2::parse::<v2::Directed>(message, &mut lists),
    }
    .unwrap();
    (header, lists)
}

fn message(
    version: Version,
    (xid, body): (Xid, Body),
    lists: &ChunkLists,
    payload: &[u8],
) -> Vec<u8> {
    let header = Header { xid, credits: Credits(3), body };
    let mut out = vec![0; 512];
    let len = match version {
        Version::One => v1::emit(&header, lists, &mut out),
        Version::Two(Version2::Undirected) => v2::emit::<v2::Undirected>(&header, lists, &mut out),
        Version::Two(Version2::Directed) => v2::emit::<v2::Directed>(&header, lists, &mut out),
    };
    out.truncate(len.unwrap());
    [&out, payload].concat()
}

/// A reply in the Reply chunk that the call offered.
fn long_reply(version: Version, xid: Xid, offered: &ChunkLists, len: usize) -> Vec<u8> {
    let mut returned = ChunkLists::new();
    returned.return_unused(offered);
    assert!(returned.fill_reply(offered.reply().unwrap(), len as u64));
    message(version, (xid, Body::NoMsg), &returned, &[])
}

fn right(xid: Xid, len: usize) -> Vec<u8> {
    let mut octets = pattern(len);
    octets[..8].copy_from_slice(&[xid.0.to_be_bytes(), [0, 0, 0, 1]].concat());
    octets
}

/// Messages that may be in a Reply chunk instead, each with the rule that it breaks.
fn lies(xid: Xid) -> [(Vec<u8>, &'static str); 5] {
    let with = |octets: [u8; 8]| [&octets[..], &pattern(200)].concat();
    let typed = |word: u8| {
        let [a, b, c, d] = xid.0.to_be_bytes();
        with([a, b, c, d, 0, 0, 0, word])
    };
    [
        (right(Xid(xid.0 ^ 1), 208), "XidMismatch"),
        (right(Xid(0), 4_000), "XidMismatch"),
        (typed(0), "TypeMismatch"),
        (typed(7), "MessageType"),
        (xid.0.to_be_bytes().to_vec(), "NoPayload"),
    ]
}

fn first(at: &mut AtClient<Keeper>, version: Version) -> (Header, ChunkLists) {
    at.settle();
    parse(version, &at.raw.received.pop_front().expect("the call arrives").0)
}

#[test]
fn what_a_reply_chunk_holds_reaches_the_app_only_if_it_is_the_reply_to_its_call() {
    for version in VERSIONS {
        for lie in 0..lies(Xid(0)).len() {
            let mut at = AtClient::new(Keeper::default(), speaking(version));
            at.peer = at.shard.keep_connected(&at.port).unwrap();
            at.settle();
            start(&mut at, LONG);
            let (header, lists) = first(&mut at, version);
            let (octets, fault) = lies(header.xid)[lie].clone();
            at.raw.push(&octets, lists.reply().unwrap().segments[0]);
            at.raw.send(&long_reply(version, header.xid, &lists, octets.len()), None);
            at.settle();
            let told = at.shard.app().0.iter().map(|kept| kept.reply.clone()).collect::<Vec<_>>();
            assert!(told.is_empty(), "{version:?}, {fault}: {told:?}");
            assert_eq!(at.shard.snapshot().engine.peer_faults[fault], 1, "{version:?}");
            // Its keys are dead, so nothing right can follow there: it goes again over the next
            // connection, as any lost call.
            let (again, lists) = first(&mut at, version);
            assert_eq!(again.xid, header.xid, "{version:?}, {fault}");
            let octets = right(again.xid, 8_000);
            at.raw.push(&octets, lists.reply().unwrap().segments[0]);
            at.raw.send(&long_reply(version, again.xid, &lists, octets.len()), None);
            at.settle();
            assert_eq!(at.shard.app().0.len(), 1, "{version:?}, {fault}");
            assert_eq!(at.shard.app().0[0].reply.as_ref().unwrap(), &octets);
            assert_eq!((at.shard.buffers_in_use(), at.shard.provider().windows_bound()), (0, 0));
        }
    }
}

#[test]
fn a_call_whose_long_reply_is_none_ends_with_a_connection_that_is_not_made_again() {
    for cancelled in [false, true] {
        let mut at = requester();
        let (header, lists, _) = ask(&mut at, LONG);
        if cancelled {
            let peer = at.peer;
            at.shard.with_app(|_, cx| cx.cancel(peer, stag_engine::Token(0)));
        }
        let (octets, _) = lies(header.xid)[2].clone();
        at.raw.push(&octets, lists.reply().unwrap().segments[0]);
        at.raw.send(&long_reply(Version::One, header.xid, &lists, octets.len()), None);
        at.settle();
        assert_eq!(at.raw.ended.is_some(), !cancelled, "nobody looks at what nobody wants");
        assert_eq!(at.shard.app().0.len(), 1);
        assert!(at.shard.app().0[0].reply.is_err());
        assert_eq!((at.shard.buffers_in_use(), at.shard.calls_in_progress()), (0, (0, 0)));
    }
}

/// Waits with a call until its client takes calls.
#[derive(Default)]
struct Back(Keeper, Option<PeerId>);

impl App for Back {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, _: &mut Cx<'_>, _: Call<'_>) {}

    fn on_peer_up(&mut self, cx: &mut Cx<'_>, peer: PeerId) {
        cx.ready(peer);
        self.1 = Some(peer);
    }

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        self.0.on_reply(cx, outcome);
    }
}

#[test]
fn so_it_is_in_the_reverse_direction() {
    let version = Version::Two(Version2::Directed);
    for lie in 0..=lies(Xid(0)).len() {
        let mut at = AtServer::serving(Back::default(), speaking(version));
        let mut lists = ChunkLists::new();
        lists.set_intent(Some(Intent { message_type: MessageType::Call, inv_handle: 0 }));
        at.raw.send(&message(version, (Xid(1), Body::Msg), &lists, &rpc(1, 0, &[])), None);
        at.settle();
        let peer = at.shard.app().1.unwrap();
        at.shard.with_app(|_, cx| {
            let request = request(cx, LONG);
            cx.call(peer, request);
        });
        at.settle();
        let (header, lists) = parse(version, &at.raw.received.pop_front().unwrap().0);
        let (octets, is_right) = match lies(header.xid).get(lie) {
            Some((octets, _)) => (octets.clone(), false),
            None => (right(header.xid, 5_000), true),
        };
        at.raw.push(&octets, lists.reply().unwrap().segments[0]);
        at.raw.send(&long_reply(version, header.xid, &lists, octets.len()), None);
        at.settle();
        assert_eq!(at.raw.ended.is_none(), is_right, "lie {lie}");
        assert_eq!(at.shard.app().0.0.len(), 1);
        assert_eq!(
            at.shard.app().0.0[0].reply.as_ref().ok(),
            is_right.then_some(&octets),
            "lie {lie}"
        );
    }
}

#[test]
fn octets_that_nobody_wrote_are_zeros_and_no_earlier_calls() {
    // What is written of 9,000 octets that the reply claims, by place and length.
    for writes in [&[][..], &[(0, 100)], &[(0, 9_000)], &[(5_000, 1_000)], &[(8_999, 1), (0, 10)]] {
        for chunk in [CHUNKED, LONG] {
            let mut at = requester();
            // An earlier call leaves a secret in the memory that the next one gets.
            let (header, lists, _) = ask(&mut at, chunk);
            let secret = vec![b's'; 9_000];
            answer_with(&mut at, header.xid, &lists, &[(0, 9_000)], &secret);
            let (header, lists, _) = ask(&mut at, chunk);
            answer_with(&mut at, header.xid, &lists, writes, &vec![b'w'; 9_000]);
            let kept = at.shard.app().0.last().unwrap();
            let shown = if chunk.result_max > 0 { &kept.result } else { &kept.reply.clone().ok() };
            let head = if chunk.result_max > 0 { 0 } else { 8 };
            let is_written =
                |place| writes.iter().any(|(at, len)| (*at..at + len).contains(&place));
            let expected = |place| if is_written(place) { b'w' } else { 0 };
            let shown = shown.as_ref().unwrap();
            assert_eq!(shown.len(), 9_000);
            let wrong = (head..9_000).find(|place| shown[*place] != expected(*place));
            assert_eq!(wrong, None, "{writes:?}: {:?}", wrong.map(|place| shown[place]));
            let end = writes.iter().map(|(at, len)| at + len).max().unwrap_or(0).max(head);
            assert_eq!(at.shard.snapshot().engine.requester.unwritten, 9_000 - end as u64);
        }
    }
}

/// Writes parts of `content` into the chunk that waits for 9,000 octets, and claims to have written
/// all of it.
fn answer_with(
    at: &mut AtClient<Keeper>,
    xid: Xid,
    lists: &ChunkLists,
    writes: &[(usize, usize)],
    content: &[u8],
) {
    let is_long = lists.reply().is_some();
    let mut push = |octets: &[u8], at_octet: usize| {
        let segment = lists.segments()[0];
        let offset = segment.offset + at_octet as u64;
        at.raw.push(octets, Segment { offset, ..segment });
    };
    writes.iter().for_each(|(at, len)| push(&content[*at..at + len], *at));
    if is_long {
        push(&right(xid, 8), 0);
        at.raw.send(&long_reply(Version::One, xid, lists, 9_000), None);
        return at.settle();
    }
    let mut returned = ChunkLists::new();
    returned.return_unused(lists);
    assert!(returned.fill_write(0, lists.writes().next().unwrap(), 9_000));
    at.answer(xid, &returned, &[0, 0, 0, 1], None);
}

#[test]
fn a_responder_without_a_result_may_leave_out_the_segments_or_the_whole_list() {
    let (mut empty, mut none) = (ChunkLists::new(), ChunkLists::new());
    empty.begin_write().unwrap();
    for version in VERSIONS {
        for returned in [&mut empty, &mut none] {
            let said = Intent { message_type: MessageType::Reply, inv_handle: 0 };
            returned.set_intent((version == Version::Two(Version2::Directed)).then_some(said));
            let mut at = AtClient::new(Keeper::default(), speaking(version));
            start(&mut at, CHUNKED);
            let (header, _) = first(&mut at, version);
            let payload = [&right(header.xid, 24)[..], &[0, 0, 0, 70]].concat();
            at.raw.send(&message(version, (header.xid, Body::Msg), returned, &payload), None);
            at.settle();
            let [kept] = &at.shard.app().0[..] else { panic!("{version:?}: the call is over") };
            assert_eq!(kept.reply.as_ref().unwrap(), &payload);
            assert_eq!(kept.result.as_deref(), Some(&[][..]), "it has no result");
            assert!(at.raw.ended.is_none());
            assert_eq!((at.shard.buffers_in_use(), at.shard.provider().windows_bound()), (0, 0));
        }
    }
}

#[test]
fn a_short_reply_may_leave_out_the_reply_chunk() {
    let mut at = requester();
    let (header, ..) = ask(&mut at, LONG);
    at.answer(header.xid, &ChunkLists::new(), &[0, 0, 0, 70], None);
    assert_eq!(at.shard.app().0[0].reply.as_ref().unwrap()[24..], [0, 0, 0, 70]);
    // But a long one has to say how long it is.
    let (header, lists, _) = ask(&mut at, LONG);
    at.raw.push(&right(header.xid, 5_000), lists.reply().unwrap().segments[0]);
    let mut other = ChunkLists::new();
    other.begin_reply();
    at.raw.send(&message(Version::One, (header.xid, Body::NoMsg), &other, &[]), None);
    at.settle();
    assert_eq!(at.shard.app().0.len(), 1);
    assert_eq!(at.shard.snapshot().engine.peer_faults["NoPayload"], 1);
}
