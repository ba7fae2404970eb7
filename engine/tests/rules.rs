//! Rules of RFC 8166 for requesters and responders, as seen from the other end of the wire.

use crate::support::{
    self, AtClient, AtServer, LIMITS, config, echo_head,
    keeper::{Keeper, Wanted, ask, requester},
    message, no_message, pattern,
    refusing::Refusing,
    reply, results, rpc,
};
use stag_echo::{Caller, ECHO, NULL};
use stag_engine::{CallFault, Config, Shard, Token};
use stag_pools::Access;
use stag_protocol::{
    rpc::{Accepted, Outcome as RpcOutcome, ReplyHeader},
    rpcrdma::{Body, ChunkLists, ErrorBody, Header, Position, Segment, Xid},
    xdr::Reader,
};
use stag_sim::{Fabric, Faults, Port};
use stag_verbs::{FabricFault, Provider};
use std::{cell::Cell, rc::Rc};

/// The same octets with the XID of `header`.
fn behind_xid(header: &Header, octets: &[u8]) -> Vec<u8> {
    [&header.xid.0.to_be_bytes()[..], &octets[4..]].concat()
}

#[test]
fn a_read_chunk_has_the_octets_of_its_item_at_its_position_and_no_padding() {
    for (head, len) in [(44, 5_000), (44, 5_001), (48, 5_002), (64, 5_003), (44, 4_097)] {
        let mut at = requester();
        let item = pattern(len);
        let wanted = Wanted { head, item: Some(&item), reply_max: 100, result_max: 0 };
        let (header, lists, payload) = ask(&mut at, wanted);
        assert_eq!(header.body, Body::Msg);
        assert_eq!(
            payload,
            behind_xid(&header, &pattern(head)),
            "the item and its padding are not in the payload"
        );
        let chunks: Vec<_> = lists.reads().collect();
        assert_eq!(
            (chunks.len(), chunks[0].position, chunks[0].total()),
            (1, Position::new(head as u32).unwrap(), len as u64)
        );
        at.raw.fetch(chunks[0].segments[0]);
        at.settle();
        assert_eq!(at.raw.fetched, std::slice::from_ref(&item));
        at.answer(header.xid, &ChunkLists::new(), &[], None);
        assert_eq!(at.shard.app().0[0].item, Some(item), "the item comes back with the reply");
    }
}

#[test]
fn a_write_chunk_has_room_for_the_longest_result_and_for_no_padding() {
    for result_max in [5_000, 5_001, 5_002, 5_003] {
        let mut at = requester();
        let (_, lists, _) =
            ask(&mut at, Wanted { head: 44, item: None, reply_max: 100, result_max });
        let chunks: Vec<_> = lists.writes().map(|chunk| chunk.total()).collect();
        assert_eq!((chunks, lists.reply()), (vec![result_max as u64], None));
    }
}

#[test]
fn an_item_and_its_result_have_a_chunk_each_without_padding() {
    for (len, result_max) in [(5_001, 5_003), (5_002, 5_001)] {
        let mut at = requester();
        let item = pattern(len);
        let wanted = Wanted { head: 44, item: Some(&item), reply_max: 100, result_max };
        let (header, lists, payload) = ask(&mut at, wanted);
        assert_eq!((header.body, payload), (Body::Msg, behind_xid(&header, &pattern(44))));
        let (reads, writes): (Vec<_>, Vec<_>) = (lists.reads().collect(), lists.writes().collect());
        assert_eq!((reads.len(), writes.len(), lists.reply()), (1, 1, None));
        assert_eq!(
            (reads[0].position, reads[0].total(), writes[0].total()),
            (Position::new(44).unwrap(), len as u64, result_max as u64)
        );
        at.raw.fetch(reads[0].segments[0]);
        at.raw.push(&pattern(result_max), writes[0].segments[0]);
        at.settle();
        assert_eq!(at.raw.fetched, std::slice::from_ref(&item));
        let mut returned = ChunkLists::new();
        returned.return_unused(&lists);
        returned.fill_write(0, writes[0], result_max as u64);
        at.answer(header.xid, &returned, &[], None);
        let kept = &at.shard.app().0[0];
        assert_eq!((&kept.item, &kept.result), (&Some(item), &Some(pattern(result_max))));
    }
}

/// Octets of an item, and of the room for a result: calls with one chunk, and one with both.
const CHUNKS: [(usize, usize); 3] = [(0, 9_000), (9_000, 0), (9_000, 9_000)];

fn ask_with_chunks((len, result_max): (usize, usize)) -> (AtClient<Keeper>, Header, ChunkLists) {
    let mut at = requester();
    let item = (len > 0).then(|| pattern(len));
    let wanted = Wanted { head: 44, item: item.as_deref(), reply_max: 100, result_max };
    let (header, lists, _) = ask(&mut at, wanted);
    (at, header, lists)
}

#[test]
fn a_buffer_is_opened_for_writing_or_for_reading_and_never_for_both() {
    for (chunks, is_right) in CHUNKS.into_iter().flat_map(|it| [(it, true), (it, false)]) {
        let (mut at, _, lists) = ask_with_chunks(chunks);
        let items = lists.reads().map(|chunk| (chunk.segments[0], false));
        let rooms = lists.writes().map(|chunk| (chunk.segments[0], true));
        for (segment, is_room) in items.chain(rooms) {
            match is_room == is_right {
                true => at.raw.push(&pattern(100), segment),
                false => at.raw.fetch(segment),
            }
        }
        at.settle();
        assert_eq!(at.raw.ended.is_none(), is_right, "{chunks:?}");
    }
}

#[test]
fn a_key_dies_with_its_call() {
    for chunks in CHUNKS {
        let (mut at, header, lists) = ask_with_chunks(chunks);
        assert_eq!(at.shard.provider().windows_bound(), lists.segments().len());
        let mut returned = ChunkLists::new();
        returned.return_unused(&lists);
        at.answer(header.xid, &returned, &[], None);
        assert_eq!((at.shard.app().0.len(), at.shard.provider().windows_bound()), (1, 0));
    }
}

#[test]
fn a_call_too_long_for_a_send_is_one_chunk_at_position_zero_with_all_its_padding() {
    for len in [None, Some(5_000), Some(5_001), Some(5_002), Some(5_003)] {
        let mut at = requester();
        let item = len.map(pattern);
        let wanted = Wanted { head: 4_400, item: item.as_deref(), reply_max: 100, result_max: 0 };
        let (header, lists, payload) = ask(&mut at, wanted);
        assert_eq!((header.body, payload.len()), (Body::NoMsg, 0));
        let chunks: Vec<_> = lists.reads().collect();
        let mut whole = [pattern(4_400), item.unwrap_or_default()].concat();
        whole.resize(whole.len().next_multiple_of(4), 0);
        assert_eq!(
            (chunks.len(), chunks[0].position, chunks[0].total()),
            (1, Position::ZERO, whole.len() as u64)
        );
        at.raw.fetch(chunks[0].segments[0]);
        at.settle();
        assert_eq!(
            at.raw.fetched,
            [behind_xid(&header, &whole)],
            "its first word is the header's XID"
        );
    }
}

#[test]
fn a_reply_chunk_is_offered_exactly_when_the_longest_reply_does_not_fit_inline() {
    for (reply_max, expected) in [(4_068, None), (4_069, Some(4_069)), (100_000, Some(100_000))] {
        let mut at = requester();
        let (_, lists, _) = ask(&mut at, Wanted { head: 44, item: None, reply_max, result_max: 0 });
        assert_eq!(lists.reply().map(|chunk| chunk.total()), expected);
        assert_eq!(lists.writes().count(), 0);
    }
}

#[test]
fn every_call_and_every_reply_names_the_transaction_of_its_header() {
    let mut at = requester();
    for _ in 0..10 {
        let (header, _, payload) =
            ask(&mut at, Wanted { head: 44, item: None, reply_max: 100, result_max: 0 });
        assert_eq!(payload[..4], header.xid.0.to_be_bytes());
        at.answer(header.xid, &ChunkLists::new(), &[], None);
    }
    let mut at = AtServer::new();
    // A reply without results, one with an item in it, and those with their items in chunks.
    for xid in [0, 1, 0x8000_0000, u32::MAX] {
        for (procedure, rooms) in [(NULL, 0), (ECHO, 0), (ECHO, 1), (ECHO, 2)] {
            let mut lists = ChunkLists::new();
            for _ in 0..rooms {
                lists.begin_write().unwrap();
                lists.push_write(at.raw.window(&[0; 500], Access::RemoteWrite)).unwrap();
            }
            let octets = [echo_head(500), pattern(500)].concat();
            let arguments = if procedure == ECHO { &octets[..] } else { &[] };
            let (answer, _) =
                at.ask(&message(xid, &lists, &rpc(xid, procedure, arguments))).unwrap();
            let (header, returned, payload) = reply(&answer);
            assert_eq!((header.xid, &payload[..4]), (Xid(xid), &xid.to_be_bytes()[..]));
            assert_eq!((header.body, returned.writes().count()), (Body::Msg, rooms));
        }
    }
}

#[test]
fn who_cannot_take_the_replies_to_its_calls_does_not_connect() {
    let fabric = Fabric::new(1, Faults::NONE);
    let connect = |calls_max, receives| {
        let config = Config { calls_max, receives, reverse_grant: 0, ..config() };
        let admit = Box::new(|_| true) as Box<_>;
        let mut shard =
            Shard::new(fabric.end("client", LIMITS), Keeper::default(), config, admit).unwrap();
        let outcome = shard.connect(&Port(0)).map(|_| ());
        (outcome, shard.receives_promised())
    };
    assert_eq!(connect(64, 128), (Ok(()), 64), "a receive is kept for each reply that may come");
    assert_eq!(connect(64, 63), (Err(FabricFault::Exhausted), 0));
}

#[test]
fn a_connection_whose_receives_the_fabric_takes_no_more_is_ended() {
    let refuses = Rc::new(Cell::new(false));
    let config = Config { receives: 12, reverse_grant: 0, ..config() };
    let mut at = AtClient::over(Keeper::default(), config, |sim| {
        Refusing::of_receives(sim, refuses.clone())
    });
    refuses.set(true);
    // Each reply takes a receive that is not posted again. Twelve less eight cover the four replies
    // that may come; one fewer does not.
    for left in (3..12).rev() {
        assert!(at.raw.ended.is_none(), "{} receives cover four replies", left + 1);
        assert_eq!(at.shard.receives_promised(), 4);
        let (header, _, _) =
            ask(&mut at, Wanted { head: 44, item: None, reply_max: 100, result_max: 0 });
        at.answer(header.xid, &ChunkLists::new(), &[], None);
        assert_eq!(at.shard.provider().receives_posted(), left);
    }
    assert!(at.raw.ended.is_some(), "three receives cover no four replies");
    assert_eq!(at.shard.receives_promised(), 0);
    assert_eq!(at.shard.snapshot().engine.limits.promises, 1);
}

#[test]
fn octets_that_a_responder_wrote_and_does_not_return_are_shown_to_nobody() {
    let mut at = requester();
    let (header, lists, _) =
        ask(&mut at, Wanted { head: 44, item: None, reply_max: 100, result_max: 9_000 });
    at.raw.push(&pattern(9_000), lists.writes().next().unwrap().segments[0]);
    let mut returned = ChunkLists::new();
    returned.return_unused(&lists);
    at.answer(header.xid, &returned, &[0, 0, 0, 1], None);
    let kept = &at.shard.app().0[0];
    assert!(kept.reply.is_ok());
    assert_eq!(kept.result.as_deref(), Some(&[][..]));
    assert_eq!(at.shard.snapshot().engine.requester.write_chunks_unused, 1);
}

#[test]
fn a_key_that_cannot_be_invalidated_ends_the_connection_before_the_app_hears_of_the_reply() {
    let refuses = Rc::new(Cell::new(false));
    let mut at =
        AtClient::over(Keeper::default(), config(), |sim| Refusing::new(sim, refuses.clone()));
    let (header, lists, _) =
        ask(&mut at, Wanted { head: 44, item: None, reply_max: 100, result_max: 9_000 });
    refuses.set(true);
    let mut returned = ChunkLists::new();
    returned.return_unused(&lists);
    at.answer(header.xid, &returned, &[], None);
    assert!(at.raw.ended.is_some(), "the connection ends");
    assert_eq!(at.shard.app().0.len(), 1, "its end killed the key");
    assert_eq!(at.shard.buffers_in_use(), 0);
}

#[test]
fn towards_a_peer_that_said_nothing_every_message_has_at_most_1024_octets() {
    let mut at = AtServer::told(&[]);
    // Transport header, reply header, length word, item: the longest reply inline, and one that is
    // a word longer.
    let longest = 1024 - 28 - ReplyHeader::LEN - 4;
    for (len, fits) in [(longest, true), (longest + 1, false)] {
        let mut lists = ChunkLists::new();
        let position = Position::new(rpc(1, ECHO, &[0; 4]).len() as u32).unwrap();
        lists.push_read(position, at.raw.window(&pattern(len), Access::RemoteRead)).unwrap();
        let call = message(1, &lists, &rpc(1, ECHO, &echo_head(len)));
        if fits {
            let (answer, _) = at.ask(&call).unwrap();
            assert_eq!(
                (answer.len(), results(&reply(&answer).2)),
                (1024, [echo_head(len), pattern(len)].concat())
            );
        } else {
            at.expect_error(&call, 1, ErrorBody::Chunk);
        }
    }
    // And a call of 1024 octets is taken.
    let len = 1024 - 28 - rpc(1, ECHO, &[0; 4]).len();
    let call =
        message(2, &ChunkLists::new(), &rpc(2, ECHO, &[echo_head(len), pattern(len)].concat()));
    assert_eq!(call.len(), 1024);
    let (answer, _) = at.ask(&call).unwrap();
    assert_eq!(results(&reply(&answer).2), [echo_head(len), pattern(len)].concat());
}

#[test]
fn towards_a_server_that_said_nothing_a_call_of_more_than_1024_octets_goes_in_chunks() {
    let size = |private_data: &[u8], head| {
        let mut at = AtClient::told(Keeper::default(), config(), private_data, |sim| sim);
        ask(&mut at, Wanted { head, item: None, reply_max: 100, result_max: 0 }).0.body
    };
    let offer = support::Raw::private_data();
    assert_eq!((size(&[], 996), size(&[], 1_000)), (Body::Msg, Body::NoMsg));
    assert_eq!((size(&offer, 4_068), size(&offer, 4_072)), (Body::Msg, Body::NoMsg));
    for cut in 0..offer.len() {
        assert_eq!(size(&offer[..cut], 1_000), Body::NoMsg, "an offer of {cut} octets");
    }
}

#[test]
fn what_a_server_says_of_itself_holds_for_one_connection() {
    let mut at = requester();
    at.peer = at.shard.keep_connected(&at.port).unwrap();
    at.settle();
    let wanted = Wanted { head: 2_000, item: None, reply_max: 100, result_max: 0 };
    for (says, expected) in [
        (&support::Raw::private_data()[..], Body::Msg),
        (&[], Body::NoMsg),
        (&support::Raw::private_data(), Body::Msg),
    ] {
        at.raw.says = says.to_vec();
        at.raw.end.disconnect(at.raw.qp.unwrap());
        at.wait(10);
        let (header, ..) = ask(&mut at, wanted);
        assert_eq!(header.body, expected, "the server said {says:?}");
        at.answer(header.xid, &ChunkLists::new(), &[], None);
    }
}

#[test]
fn a_lost_connection_is_made_again_though_nothing_is_to_be_called() {
    let mut at = requester();
    at.raw.end.disconnect(at.raw.qp.unwrap());
    at.wait(10);
    let once = at.raw.qp;
    at.shard.keep_connected(&at.port).unwrap();
    at.settle();
    let mut seen = vec![once, at.raw.qp];
    for _ in 0..3 {
        at.raw.end.disconnect(at.raw.qp.unwrap());
        at.settle();
        at.wait(10);
        seen.push(at.raw.qp);
    }
    seen.dedup();
    assert_eq!(seen.len(), 5, "each connection is another one");
}

#[test]
fn a_peer_that_announced_no_remote_invalidation_sees_none() {
    let mut silent = support::Raw::private_data();
    silent[5] = 0;
    for (offer, expected) in [(support::Raw::private_data(), true), (silent, false)] {
        let mut at = AtServer::told(&offer);
        let mut lists = ChunkLists::new();
        let target = at.raw.window(&[0; 500], Access::RemoteWrite);
        lists.begin_write().unwrap();
        lists.push_write(target).unwrap();
        let call = message(1, &lists, &rpc(1, ECHO, &[echo_head(500), pattern(500)].concat()));
        let (_, invalidated) = at.ask(&call).unwrap();
        assert_eq!(invalidated.map(|key| key.0), expected.then_some(target.handle));
    }
}

#[test]
fn a_call_as_complex_as_every_server_has_to_take_is_taken() {
    let mut at = AtServer::new();
    let (head, item) = (rpc(1, ECHO, &echo_head(9_000)), pattern(9_000));
    let mut lists = ChunkLists::new();
    for piece in head.chunks(head.len().div_ceil(11)) {
        lists.push_read(Position::ZERO, at.raw.window(piece, Access::RemoteRead)).unwrap();
    }
    while lists.segments().len() < 16 {
        lists.push_read(Position::ZERO, Segment { handle: 1, length: 0, offset: 0 }).unwrap();
    }
    for piece in item.chunks(item.len().div_ceil(16)) {
        let position = Position::new(head.len() as u32).unwrap();
        lists.push_read(position, at.raw.window(piece, Access::RemoteRead)).unwrap();
    }
    lists.begin_write().unwrap();
    let targets: Vec<_> = (0..16).map(|_| at.raw.window(&[0; 563], Access::RemoteWrite)).collect();
    targets.iter().for_each(|target| lists.push_write(*target).unwrap());
    assert_eq!(lists.segments().len(), 48);
    let (answer, invalidated) = at.ask(&no_message(1, &lists)).unwrap();
    assert_eq!(results(&reply(&answer).2), echo_head(9_000));
    targets
        .iter()
        .filter(|target| invalidated.unwrap().0 != target.handle)
        .for_each(|target| at.raw.fence(*target));
    at.settle();
    let written: Vec<u8> =
        targets.iter().flat_map(|target| at.raw.content(*target).to_vec()).collect();
    assert_eq!(written[..9_000], item);
}

#[test]
fn a_call_that_the_responder_refused_is_not_sent_again() {
    let mut at = requester();
    at.peer = at.shard.keep_connected(&at.port).unwrap();
    at.settle();
    let (header, ..) = ask(&mut at, Wanted { head: 44, item: None, reply_max: 100, result_max: 0 });
    let error = Header { body: Body::Error(ErrorBody::Chunk), ..header };
    at.raw.send(&support::with_header(&error, &ChunkLists::new(), &[]), None);
    at.settle();
    assert_eq!(at.shard.app().0[0].reply, Err(CallFault::Refused(ErrorBody::Chunk)));
    at.wait(20);
    at.raw.end.disconnect(at.raw.qp.unwrap());
    at.wait(20);
    assert_eq!(at.raw.received.len(), 0, "neither on this connection nor on the next");
}

/// The outcome in the payload of a reply.
fn outcome(answer: &[u8]) -> RpcOutcome<'static> {
    let (_, _, payload) = reply(answer);
    match ReplyHeader::parse(&mut Reader::new(&payload)).unwrap().outcome {
        RpcOutcome::Accepted { status, .. } => RpcOutcome::accepted(status),
        RpcOutcome::Denied(denied) => RpcOutcome::Denied(denied),
    }
}

#[test]
fn a_chunk_that_is_not_one_whole_item_gets_garbage_args() {
    let mut at = AtServer::new();
    let whole = rpc(1, ECHO, &[echo_head(100), pattern(100)].concat());
    let item_at = whole.len() - 100;
    for from in (24..whole.len()).step_by(4) {
        for len in [4, 8, 12, 96, 100, 104] {
            let Some(chunk) = whole.get(from..from + len) else { continue };
            let rest = [&whole[..from], &whole[from + len..]].concat();
            let mut lists = ChunkLists::new();
            let source = at.raw.window(chunk, Access::RemoteRead);
            lists.push_read(Position::new(from as u32).unwrap(), source).unwrap();
            let (answer, _) = at.ask(&message(1, &lists, &rest)).unwrap();
            if from == item_at && len == 100 {
                assert_eq!(outcome(&answer), RpcOutcome::accepted(Accepted::Success));
            } else if from >= rpc(1, ECHO, &[]).len() || from < 24 {
                assert_eq!(
                    outcome(&answer),
                    RpcOutcome::accepted(Accepted::GarbageArgs),
                    "{len} octets from {from}"
                );
            } else {
                // In the credential or the verifier: RPC has an answer of its own.
                assert!(
                    matches!(outcome(&answer), RpcOutcome::Denied(_)),
                    "{len} octets from {from}"
                );
            }
        }
    }
    at.expect_alive();
}

#[test]
fn a_long_call_with_another_transaction_inside_gets_err_chunk() {
    let mut at = AtServer::new();
    let mut lists = ChunkLists::new();
    lists.push_read(Position::ZERO, at.raw.window(&rpc(6, NULL, &[]), Access::RemoteRead)).unwrap();
    at.expect_error(&no_message(5, &lists), 5, ErrorBody::Chunk);
}

#[test]
fn a_reply_in_a_version_that_nobody_asked_for_is_discarded() {
    let mut at = AtClient::new(Caller::default(), config());
    let peer = at.peer;
    at.shard.with_app(|_, cx| Caller::call(cx, peer, Token(0), None));
    let (header, ..) = at.next_call();
    let reply = [&header.xid.0.to_be_bytes()[..], &[0, 0, 0, 1], &[0; 16]].concat();
    for (word, value) in [(1, 2), (1, 0), (3, 2), (3, 3), (3, 5), (4, 7)] {
        let mut bad =
            support::with_header(&Header { body: Body::Msg, ..header }, &ChunkLists::new(), &reply);
        bad[4 * word..4 * word + 4].copy_from_slice(&u32::to_be_bytes(value));
        at.raw.send(&bad, None);
        at.settle();
        assert_eq!(at.raw.received.len(), 0, "a requester answers nothing");
        assert!(at.shard.with_app(|app, _| app.take()).is_none(), "word {word} is {value}");
    }
    at.answer(header.xid, &ChunkLists::new(), &[], None);
    assert!(at.shard.with_app(|app, _| app.take()).is_some());
}

#[test]
fn segments_beyond_what_was_written_come_back_empty() {
    let mut at = AtServer::new();
    let mut lists = ChunkLists::new();
    let targets: Vec<Segment> =
        [7, 5, 9].map(|len| at.raw.window(&vec![0xee; len], Access::RemoteWrite)).to_vec();
    lists.begin_write().unwrap();
    targets.iter().for_each(|target| lists.push_write(*target).unwrap());
    let (answer, _) =
        at.ask(&message(3, &lists, &rpc(3, ECHO, &[echo_head(8), pattern(8)].concat()))).unwrap();
    let (_, returned, _) = reply(&answer);
    let lens: Vec<_> = returned.writes().flat_map(|chunk| chunk.segments.to_vec()).collect();
    assert_eq!(
        lens,
        [
            Segment { length: 7, ..targets[0] },
            Segment { length: 1, ..targets[1] },
            Segment { length: 0, ..targets[2] }
        ]
    );
}
