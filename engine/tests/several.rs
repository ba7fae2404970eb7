//! Replies with several items, each in the Write chunk of its place (RFC 8166 §4.3.2), in both
//! directions and both versions of the transport.

use stag_engine::{
    Answer, AnswerItem, App, Call, CallFault, Config, Cx, ExtentLists, ItemLists, Outcome, PeerId,
    PlacedItem, Request, ResultRooms, Shard, Token,
};
use stag_protocol::{
    rpc::{Accepted, Auth, CallHeader, Credential, ReplyHeader},
    rpcrdma::{
        ErrorBody, Version2, Versions, Xid,
        responder::{ITEMS_MAX, ReplyPolicy},
    },
    xdr::{Reader, Writer, padded},
};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Limits, Time};
use std::time::Duration;

const LIMITS: Limits = Limits { send_queue: 256, read_spans: 64, windows: 512, ..stag_sim::LIMITS };
const TEST_PROGRAM: u32 = 0x2000_0077;
/// Octets of one extent of an item.
const PART: usize = 30_001;

/// The octets of an item by its place in the reply.
fn content(place: usize, len: usize) -> Vec<u8> {
    (0..len).map(|number| (number * 7 + number / 253 + place * 31) as u8).collect()
}

/// The end of a call: the message, the room for the results, and the octets in each room.
#[derive(Debug)]
struct Ended {
    reply: Result<Vec<u8>, CallFault>,
    result: Vec<u8>,
    written: Vec<u32>,
}

/// Answers a call by items of the lengths that it names, and keeps how its own calls end.
#[derive(Default)]
struct Several {
    extents: ExtentLists,
    items: ItemLists,
    peers: Vec<PeerId>,
    ended: Vec<Ended>,
}

impl App for Several {
    type Report = ();

    fn report(&self) {}

    fn on_call(&mut self, cx: &mut Cx<'_>, mut call: Call<'_>) {
        let count = call.arguments.u32().unwrap();
        let mut message = cx.message(256).unwrap();
        let mut writer = Writer::new(message.spare_mut());
        call.header.reply(Accepted::Success).emit(&mut writer).unwrap();
        let mut item: Option<AnswerItem> = None;
        for place in 0..count as usize {
            let len = call.arguments.u32().unwrap();
            writer.u32(len).unwrap();
            let position = writer.len();
            let mut octets = self.extents.take();
            for part in content(place, len as usize).chunks(PART) {
                let mut buf = cx.take(part.len()).unwrap();
                buf.append(part).unwrap();
                octets.push(buf.freeze()).unwrap();
            }
            match &mut item {
                None => item = Some(AnswerItem::new(position, octets)),
                Some(item) => {
                    if item.more.is_empty() {
                        item.more = self.items.take();
                    }
                    item.more.push(PlacedItem { position, octets }).unwrap();
                }
            }
        }
        // Something follows the last item.
        writer.u32(count).unwrap();
        let len = writer.len();
        message.extend(len);
        cx.answer(call.id, Answer { message, item });
    }

    fn on_reply(&mut self, _: &mut Cx<'_>, outcome: Outcome<'_>) {
        self.ended.push(Ended {
            reply: outcome.reply.map(<[u8]>::to_vec),
            result: outcome.result.map(|result| result.to_vec()).unwrap_or_default(),
            written: outcome.written.to_vec(),
        });
    }

    fn on_peer_up(&mut self, cx: &mut Cx<'_>, peer: PeerId) {
        cx.ready(peer);
        self.peers.push(peer);
    }
}

/// Asks for items of these lengths, and offers these rooms for them.
fn ask(cx: &mut Cx<'_>, peer: PeerId, rooms: &[u32], items: &[u32]) {
    let header = CallHeader {
        xid: Xid(0),
        program: TEST_PROGRAM,
        version: 1,
        procedure: 1,
        credential: Credential::None,
        verifier: Auth::NONE,
    };
    let mut message = cx.message(256).unwrap();
    let mut writer = Writer::new(message.spare_mut());
    header.emit(&mut writer).unwrap();
    writer.u32(items.len() as u32).unwrap();
    items.iter().for_each(|len| writer.u32(*len).unwrap());
    let len = writer.len();
    message.extend(len);
    let total = rooms.iter().sum::<u32>() as usize;
    let result = cx.room(total).unwrap();
    let inline: usize = items.iter().skip(rooms.len()).map(|len| padded(*len as usize)).sum();
    let request = Request {
        message,
        item: None,
        reply_max: ReplyHeader::LEN + 4 * items.len() + 4 + inline,
        result: Some(result),
        timeout: Duration::from_secs(10),
        token: Token(1),
    };
    cx.call_for_results(peer, request, ResultRooms::new(rooms).unwrap());
}

/// Two ends over a simulated fabric.
struct Ends {
    fabric: Fabric,
    server: Shard<Sim, Several>,
    client: Shard<Sim, Several>,
    now: Time,
}

impl Ends {
    fn new(versions: Versions, reply_policy: ReplyPolicy) -> Self {
        let fabric = Fabric::new(7, Faults::DELAYS);
        let config = Config {
            call_versions: versions,
            reply_policy,
            grant: 8,
            grant_first: 8,
            calls_max: 8,
            reverse_calls_max: 4,
            reverse_grant: 4,
            ..crate::support::small()
        };
        let end = |name| {
            let admit = Box::new(|_| true) as Box<_>;
            Shard::new(fabric.end(name, LIMITS), Several::default(), config.clone(), admit).unwrap()
        };
        let (mut server, mut client) = (end("server"), end("client"));
        client.connect(&server.listen(&Port(0)).unwrap()).unwrap();
        let mut ends = Self { fabric, server, client, now: Time(0) };
        ends.settle();
        // The first call settles the version, and makes the peer known at both ends.
        ends.exchange(false, &[1], &[1]);
        ends
    }

    fn settle(&mut self) {
        loop {
            while self.server.pass(self.now) | self.client.pass(self.now) {}
            match self.fabric.next_due() {
                Some(due) => self.now = due.max(self.now),
                None => break,
            }
        }
    }

    /// One call, by the server if it is in reverse, and its end.
    fn exchange(&mut self, in_reverse: bool, rooms: &[u32], items: &[u32]) -> Ended {
        let caller = if in_reverse { &mut self.server } else { &mut self.client };
        let peer = caller.app().peers[0];
        caller.with_app(|_, cx| ask(cx, peer, rooms, items));
        self.settle();
        assert_eq!((self.server.buffers_in_use(), self.client.buffers_in_use()), (0, 0));
        let caller = if in_reverse { &mut self.server } else { &mut self.client };
        caller.with_app(|app, _| app.ended.pop()).expect("a call ends once")
    }
}

/// Finds every item where it belongs: in its room, or else in the message.
fn check(ended: &Ended, rooms: &[u32], items: &[u32]) {
    let message = ended.reply.as_ref().expect("there is a reply");
    let mut reader = Reader::new(message);
    ReplyHeader::parse(&mut reader).unwrap();
    let mut room_at = 0;
    for (place, len) in items.iter().enumerate() {
        assert_eq!(reader.u32(), Ok(*len));
        let expected = content(place, *len as usize);
        match rooms.get(place) {
            Some(room) => {
                assert_eq!(ended.written[place], *len, "{items:?} in {rooms:?}");
                let octets = ended.result.get(room_at..room_at + *len as usize);
                assert!(octets.is_none_or(|octets| octets == expected), "the item of room {place}");
                assert!(octets.is_some() || *len == 0);
                room_at += *room as usize;
            }
            None => {
                assert!(reader.fixed(padded(*len as usize)).unwrap().starts_with(&expected));
            }
        }
    }
    assert_eq!(reader.u32(), Ok(items.len() as u32));
    assert_eq!(reader.remaining(), 0);
    assert!(ended.written.iter().skip(items.len()).all(|written| *written == 0));
    assert_eq!(ended.written.len(), rooms.len());
}

/// Rooms, and the items that fill them.
const CASES: [(&[u32], &[u32]); 10] = [
    (&[100_000, 100_000], &[100_000, 100_000]),
    (&[100_000, 100_000], &[99_999, 7]),
    // The first one would fit inline.
    (&[40_000, 40_000], &[3, 40_000]),
    // More items than rooms.
    (&[50_000], &[50_000, 300, 0, 5]),
    (&[9_000, 0, 0, 9_000], &[9_000, 0, 0, 8_001, 77, 1]),
    // More rooms than items.
    (&[9_000; 8], &[9_000, 8_999]),
    (&[9_000; 8], &[0]),
    (&[9_000, 9_000, 9_000], &[0, 1, 8_998]),
    (&[4_001; ITEMS_MAX], &[4_001; ITEMS_MAX]),
    (&[4_001, 5, 60_000, 1, 2, 3, 4, 20_000], &[4_001, 5, 60_000, 1, 2, 3, 4, 20_000]),
];

#[test]
fn every_item_comes_in_the_write_chunk_of_its_place_or_inline_without_one() {
    for versions in [Versions::One, Versions::Two(Version2::Directed)] {
        for policy in [ReplyPolicy::Inline, ReplyPolicy::Chunk] {
            let mut ends = Ends::new(versions, policy);
            for (rooms, items) in CASES {
                let before = ends.client.snapshot().engine.requester.chunks.write;
                check(&ends.exchange(false, rooms, items), rooms, items);
                let offered = ends.client.snapshot().engine.requester.chunks.write - before;
                assert_eq!(offered, rooms.len() as u64, "a Write chunk for each room");
            }
        }
    }
}

#[test]
fn a_reverse_call_has_several_write_chunks_where_its_version_takes_chunks() {
    let mut ends = Ends::new(Versions::Two(Version2::Directed), ReplyPolicy::Inline);
    for (rooms, items) in CASES {
        check(&ends.exchange(true, rooms, items), rooms, items);
    }
    let responder = ends.client.snapshot().engine.responder;
    assert!(responder.pushed > 200_000, "the client pushed to the server: {responder:?}");
    let mut ends = Ends::new(Versions::One, ReplyPolicy::Inline);
    let (rooms, items) = CASES[0];
    assert_eq!(ends.exchange(true, rooms, items).reply, Err(CallFault::TooLong));
}

#[test]
fn a_room_too_small_for_its_item_refuses_the_reply_and_the_next_call_is_served() {
    for versions in [Versions::One, Versions::Two(Version2::Directed)] {
        let mut ends = Ends::new(versions, ReplyPolicy::Inline);
        let refused: [(&[u32], &[u32]); 3] = [
            (&[10_000, 4_999], &[10_000, 5_000]),
            (&[10_000, 5_000], &[10_001, 1]),
            (&[0, 20_000], &[1, 20_000]),
        ];
        for (rooms, items) in refused {
            let ended = ends.exchange(false, rooms, items);
            assert_eq!(ended.reply, Err(CallFault::Refused(ErrorBody::Chunk)));
            assert!(ended.written.iter().all(|written| *written == 0), "nothing was written");
        }
        let (rooms, items) = CASES[0];
        check(&ends.exchange(false, rooms, items), rooms, items);
    }
}

#[test]
fn small_results_come_inline_and_no_chunk_is_offered() {
    for versions in [Versions::One, Versions::Two(Version2::Directed)] {
        let mut ends = Ends::new(versions, ReplyPolicy::Inline);
        let ended = ends.exchange(false, &[8, 8], &[5, 8]);
        let message = ended.reply.unwrap();
        let wanted = [&content(0, 5)[..], &[0; 3], &8_u32.to_be_bytes(), &content(1, 8)].concat();
        assert_eq!(message[ReplyHeader::LEN + 4..][..wanted.len()], wanted);
        assert_eq!((ended.result.len(), ended.written), (0, vec![0, 0]));
    }
}

#[test]
fn no_more_rooms_than_write_chunks_can_be_offered() {
    assert!(ResultRooms::new(&[1; ITEMS_MAX]).is_some());
    assert_eq!(ResultRooms::new(&[1; ITEMS_MAX + 1]), None);
    assert_eq!(ResultRooms::new(&[u32::MAX, 1]), None);
}
