//! A shard and a peer whose messages are made by hand: what RFC 8166 allows a peer to send, and
//! what it does not.

use crate::support::{
    AtClient, AtServer, GRANT, Raw, config, echo_head, message, no_message, pattern, reply,
    results, rpc, with_header,
};
use stag_echo::{Caller, ECHO, Echo, NULL};
use stag_engine::{CallFault, Config, Token};
use stag_pools::{Access, RemoteKey};
use stag_protocol::{
    rpc::ReplyHeader,
    rpcrdma::{Body, ChunkLists, Credits, ErrorBody, Header, Position, Segment, Xid},
};
use stag_sim::Faults;
use stag_verbs::{Provider, Tag};
use std::time::Duration;

#[test]
fn other_versions_and_bad_headers_are_answered_and_the_connection_lives() {
    let mut at = AtServer::new();
    let call = message(5, &ChunkLists::new(), &rpc(5, NULL, &[]));
    for version in [0, 2, u32::MAX] {
        let mut other = call.clone();
        other[4..8].copy_from_slice(&u32::to_be_bytes(version));
        at.expect_error(&other, 5, ErrorBody::Version { low: 1, high: 1 });
    }
    for procedure in [2_u32, 5, u32::MAX] {
        let mut other = call.clone();
        other[12..16].copy_from_slice(&procedure.to_be_bytes());
        at.expect_error(&other, 5, ErrorBody::Chunk);
    }
    let mut other = call.clone();
    other[19] = 7; // The Read list is neither there nor not there.
    at.expect_error(&other, 5, ErrorBody::Chunk);
    let mut other = call[..28].to_vec();
    other[15] = 1; // RDMA_NOMSG without any chunk.
    at.expect_error(&other, 5, ErrorBody::Chunk);
    at.expect_error(&message(5, &ChunkLists::new(), &rpc(6, NULL, &[])), 5, ErrorBody::Chunk);
    let faults = at.shard.snapshot().engine.peer_faults;
    assert_eq!(
        (faults["Version"], faults["Procedure"], faults["XidMismatch"]),
        (3, 3, 1),
        "{faults:?}"
    );
}

#[test]
fn what_nobody_may_answer_is_met_with_silence() {
    let mut at = AtServer::new();
    let call = message(5, &ChunkLists::new(), &rpc(5, NULL, &[]));
    for cut in 0..28 {
        at.expect_silence(&call[..cut]);
    }
    let mut done = call.clone();
    done[12..16].copy_from_slice(&3_u32.to_be_bytes());
    at.expect_silence(&done);
    let error = Header { xid: Xid(5), credits: Credits(1), body: Body::Error(ErrorBody::Chunk) };
    at.expect_silence(&with_header(&error, &ChunkLists::new(), &[]));
}

#[test]
fn a_peer_above_its_grant_loses_its_connection() {
    let mut at = AtServer::new();
    // Each call waits for memory that is never given: its Read stays open as long as the source
    // does not answer.
    at.fabric.set_faults(Faults { fetch_delay: 1_000_000..2_000_000, ..Faults::NONE });
    for xid in 0..GRANT + 1 {
        let mut lists = ChunkLists::new();
        let source = at.raw.window(&pattern(100), Access::RemoteRead);
        lists.push_read(Position::new(44).unwrap(), source).unwrap();
        at.raw.send(&message(xid, &lists, &rpc(xid, ECHO, &echo_head(100))), None);
    }
    at.expect_end();
    assert_eq!(at.shard.snapshot().engine.peer_faults["CreditsExceeded"], 1);
}

#[test]
fn an_argument_in_a_chunk_of_many_segments_comes_back_in_a_chunk_of_others() {
    let mut at = AtServer::new();
    for len in [1, 1000, 4096, 9001] {
        let octets = pattern(len);
        let mut lists = ChunkLists::new();
        let position = Position::new(rpc(1, ECHO, &[0; 4]).len() as u32).unwrap();
        let mut pieces = octets.chunks(len.div_ceil(3));
        let sources: Vec<_> =
            pieces.by_ref().map(|piece| at.raw.window(piece, Access::RemoteRead)).collect();
        sources.iter().for_each(|source| lists.push_read(position, *source).unwrap());
        let targets = [len / 2, len - len / 2, 4]
            .map(|len| at.raw.window(&vec![0xee; len], Access::RemoteWrite));
        lists.begin_write().unwrap();
        targets.iter().for_each(|target| lists.push_write(*target).unwrap());
        let (answer, invalidated) =
            at.ask(&message(9, &lists, &rpc(9, ECHO, &echo_head(len)))).unwrap();
        let (header, returned, payload) = reply(&answer);
        assert_eq!((header.credits, header.body), (Credits(GRANT), Body::Msg));
        assert_eq!(returned.reads().count(), 0, "a reply has no Read list");
        assert_eq!(
            results(&payload),
            echo_head(len),
            "the item went into the chunk, its length did not"
        );
        let written: Vec<_> =
            returned.writes().next().unwrap().segments.iter().map(|s| s.length as usize).collect();
        assert_eq!(written, [len / 2, len - len / 2, 0]);
        let longest = sources.iter().chain(&targets[..2]).map(|segment| segment.length).max();
        let invalidated = invalidated.expect("both sides announced remote invalidation");
        let chosen =
            sources.iter().chain(&targets).find(|segment| segment.handle == invalidated.0).unwrap();
        assert_eq!(Some(chosen.length), longest, "the longest segment is invalidated");
        for segment in
            sources.iter().chain(&targets).filter(|segment| segment.handle != invalidated.0)
        {
            at.raw.fence(*segment);
        }
        at.settle();
        let got: Vec<u8> =
            targets[..2].iter().flat_map(|target| at.raw.content(*target).to_vec()).collect();
        assert_eq!(got, octets);
        assert_eq!(at.raw.content(targets[2]), [0xee; 4], "padding is never written");
    }
    at.expect_alive();
}

#[test]
fn a_long_call_and_a_long_reply_travel_in_chunks_of_any_shape() {
    let mut at = AtServer::new();
    let octets = pattern(6_003);
    let mut call = rpc(3, ECHO, &echo_head(octets.len()));
    call.extend_from_slice(&octets);
    call.push(0); // Padding is part of a Position Zero chunk.
    let mut lists = ChunkLists::new();
    for piece in call.chunks(1_999) {
        let source = at.raw.window(piece, Access::RemoteRead);
        lists.push_read(Position::ZERO, source).unwrap();
    }
    let targets =
        [37, 3_000, 4_000].map(|len| at.raw.window(&vec![0xee; len], Access::RemoteWrite));
    lists.begin_reply();
    targets.iter().for_each(|target| lists.push_reply(*target).unwrap());
    let (answer, invalidated) = at.ask(&no_message(3, &lists)).unwrap();
    let (header, returned, payload) = reply(&answer);
    assert_eq!((header.body, payload.len()), (Body::NoMsg, 0));
    let total = ReplyHeader::LEN + 4 + 6_004;
    assert_eq!(returned.reply().unwrap().total(), total as u64);
    assert_eq!(invalidated, Some(RemoteKey(targets[2].handle)));
    targets[..2].iter().for_each(|target| at.raw.fence(*target));
    at.settle();
    let stream: Vec<u8> =
        targets.iter().flat_map(|target| at.raw.content(*target).to_vec()).collect();
    let got = results(&stream[..total]);
    assert_eq!((&got[..4], &got[4..6_007], got[6_007]), (&echo_head(6_003)[..], &octets[..], 0));
    assert!(
        stream[total..].iter().all(|octet| *octet == 0xee),
        "nothing behind the reply is written"
    );
}

#[test]
fn a_short_reply_spares_the_reply_chunk_and_an_empty_write_chunk_means_inline() {
    let mut at = AtServer::new();
    let arguments = [&echo_head(5)[..], b"hello\0\0\0"].concat();
    let room = at.raw.window(&[0xee; 500], Access::RemoteWrite);
    let mut lists = ChunkLists::new();
    lists.begin_reply();
    lists.push_reply(room).unwrap();
    let (answer, _) = at.ask(&message(4, &lists, &rpc(4, ECHO, &arguments))).unwrap();
    let (header, returned, payload) = reply(&answer);
    assert_eq!((header.body, results(&payload)), (Body::Msg, arguments.clone()));
    assert_eq!(returned.reply().unwrap().segments, [Segment { length: 0, ..room }]);
    let mut lists = ChunkLists::new();
    lists.begin_write().unwrap();
    let (answer, _) = at.ask(&message(5, &lists, &rpc(5, ECHO, &arguments))).unwrap();
    let (_, returned, payload) = reply(&answer);
    assert_eq!(results(&payload), arguments);
    assert_eq!(returned.writes().map(|chunk| chunk.segments.len()).collect::<Vec<_>>(), [0]);
}

#[test]
fn a_reply_that_fits_nowhere_is_an_error_and_nothing_is_written() {
    let mut at = AtServer::new();
    let octets = pattern(5_000);
    let position = Position::new(rpc(1, ECHO, &[0; 4]).len() as u32).unwrap();
    let source = |at: &mut AtServer, lists: &mut ChunkLists| {
        let source = at.raw.window(&octets, Access::RemoteRead);
        lists.push_read(position, source).unwrap();
        source
    };
    // Nothing is offered for it.
    let mut lists = ChunkLists::new();
    source(&mut at, &mut lists);
    at.expect_error(&message(8, &lists, &rpc(8, ECHO, &echo_head(5_000))), 8, ErrorBody::Chunk);
    // A Write chunk, then a Reply chunk, too small by one octet.
    for reply_chunk in [false, true] {
        let len = if reply_chunk { ReplyHeader::LEN + 4 + 5_000 } else { 5_000 } - 1;
        let mut lists = ChunkLists::new();
        source(&mut at, &mut lists);
        let target = at.raw.window(&vec![0xee; len], Access::RemoteWrite);
        if reply_chunk {
            lists.begin_reply();
            lists.push_reply(target).unwrap();
        } else {
            lists.begin_write().unwrap();
            lists.push_write(target).unwrap();
        }
        at.expect_error(&message(8, &lists, &rpc(8, ECHO, &echo_head(5_000))), 8, ErrorBody::Chunk);
        at.raw.fence(target);
        at.settle();
        assert!(at.raw.content(target).iter().all(|octet| *octet == 0xee));
    }
}

#[test]
fn a_key_that_does_not_fit_its_use_ends_the_connection_and_nothing_else() {
    let bad_keys: [fn(&mut Raw) -> Segment; 4] = [
        |_| Segment { handle: 0x1234_5678, length: 100, offset: 0 },
        |raw| raw.window(&[0; 100], Access::RemoteWrite),
        |raw| {
            let window = raw.window(&[0; 99], Access::RemoteRead);
            Segment { length: 100, ..window }
        },
        |raw| {
            let window = raw.window(&[0; 100], Access::RemoteRead);
            Segment { offset: window.offset.wrapping_sub(1), ..window }
        },
    ];
    for bad_key in bad_keys {
        let mut at = AtServer::new();
        let mut lists = ChunkLists::new();
        let source = bad_key(&mut at.raw);
        lists.push_read(Position::new(44).unwrap(), source).unwrap();
        at.raw.send(&message(1, &lists, &rpc(1, ECHO, &echo_head(100))), None);
        at.expect_end();
    }
}

#[test]
fn wrong_positions_and_too_much_payload_are_refused() {
    let mut at = AtServer::new();
    let call = rpc(2, ECHO, &echo_head(8));
    let source = at.raw.window(&[0; 8], Access::RemoteRead);
    for position in [48, 4_000, u32::MAX - 3] {
        let mut lists = ChunkLists::new();
        lists.push_read(Position::new(position).unwrap(), source).unwrap();
        at.expect_error(&message(2, &lists, &call), 2, ErrorBody::Chunk);
    }
    let mut lists = ChunkLists::new();
    for _ in 0..16 {
        let segment = Segment { handle: 1, length: u32::MAX, offset: 0 };
        lists.push_read(Position::new(44).unwrap(), segment).unwrap();
    }
    at.expect_error(&message(2, &lists, &call), 2, ErrorBody::Chunk);
}

#[test]
fn a_peer_that_goes_away_with_calls_in_progress_takes_nothing_with_it() {
    let mut at = AtServer::new();
    at.fabric.set_faults(Faults { fetch_delay: 1_000_000..2_000_000, ..Faults::NONE });
    for xid in 0..GRANT {
        let mut lists = ChunkLists::new();
        let source = at.raw.window(&pattern(100), Access::RemoteRead);
        lists.push_read(Position::new(44).unwrap(), source).unwrap();
        at.raw.send(&message(xid, &lists, &rpc(xid, ECHO, &echo_head(100))), None);
    }
    for _ in 0..4 {
        at.shard.pass(at.now);
    }
    assert_eq!(at.shard.calls_in_progress(), (GRANT as usize, 0));
    at.raw.end.disconnect(at.raw.qp.unwrap());
    at.expect_end();
}

/// Our requester whose app keeps outcomes.
type Requester = AtClient<Caller>;

fn requester() -> Requester {
    AtClient::new(Caller::default(), config())
}

fn call(at: &mut Requester, octets: Option<&[u8]>) -> (Header, ChunkLists, Vec<u8>) {
    let peer = at.peer;
    assert!(at.shard.with_app(|_, cx| Caller::call(cx, peer, Token(1), octets)));
    at.next_call()
}

fn outcome(at: &mut Requester) -> Option<Result<Option<Vec<u8>>, CallFault>> {
    let done = at.shard.with_app(|app, _| app.take())?;
    Some(done.echo.map(|echo| echo.map(|octets| octets.to_vec())))
}

#[test]
fn a_call_takes_one_credit_until_the_first_grant_and_then_what_was_granted() {
    let mut at = requester();
    let peer = at.peer;
    for token in 0..6 {
        at.shard.with_app(|_, cx| Caller::call(cx, peer, Token(token), None));
    }
    at.settle();
    assert_eq!(at.raw.received.len(), 1, "one call before the first grant");
    let (header, _, _) = reply(&at.raw.received.pop_front().unwrap().0);
    assert_eq!(header.credits, Credits(4), "it asks for what it wants");
    at.answer(header.xid, &ChunkLists::new(), &[], None);
    assert_eq!(at.raw.received.len(), 3, "three were granted");
}

#[test]
fn a_bad_reply_is_discarded_and_its_call_ends_at_its_deadline() {
    let mut at = requester();
    let (header, lists, _) = call(&mut at, Some(&pattern(9_000)));
    // There is a Write chunk too many, then one has another handle.
    let mut more = ChunkLists::new();
    more.return_unused(&lists);
    more.begin_write().unwrap();
    at.answer(header.xid, &more, &echo_head(9_000), None);
    let mut moved = ChunkLists::new();
    moved.begin_write().unwrap();
    let segment = lists.writes().next().unwrap().segments[0];
    moved.push_write(Segment { handle: segment.handle ^ 1, ..segment }).unwrap();
    at.answer(header.xid, &moved, &echo_head(9_000), None);
    at.answer(Xid(header.xid.0 ^ 0x8000_0000), &ChunkLists::new(), &[], None);
    assert!(outcome(&mut at).is_none());
    at.wait(11);
    assert_eq!(outcome(&mut at), Some(Err(CallFault::TimedOut)));
    assert_eq!((at.shard.buffers_in_use(), at.shard.provider().windows_bound()), (0, 0));
    assert!(at.raw.ended.is_some(), "the same connection never carries it again");
}

#[test]
fn an_rdma_error_ends_one_call() {
    let mut at = requester();
    let (header, ..) = call(&mut at, Some(&pattern(9_000)));
    let error = Header { body: Body::Error(ErrorBody::Chunk), ..header };
    at.raw.send(&with_header(&error, &ChunkLists::new(), &[]), None);
    at.settle();
    assert_eq!(outcome(&mut at), Some(Err(CallFault::Refused(ErrorBody::Chunk))));
    assert_eq!((at.shard.buffers_in_use(), at.shard.provider().windows_bound()), (0, 0));
    let (header, ..) = call(&mut at, None);
    at.answer(header.xid, &ChunkLists::new(), &[], None);
    assert_eq!(outcome(&mut at), Some(Ok(None)));
}

#[test]
fn a_key_of_another_call_that_is_invalidated_ends_the_connection() {
    let mut at = requester();
    let (first, ..) = call(&mut at, None);
    at.answer(first.xid, &ChunkLists::new(), &[], None);
    outcome(&mut at).unwrap().unwrap();
    let (_, lists, _) = call(&mut at, Some(&pattern(9_000)));
    let (other, ..) = call(&mut at, None);
    let foreign = lists.writes().next().unwrap().segments[0].handle;
    at.answer(other.xid, &ChunkLists::new(), &[], Some(foreign));
    assert!(at.raw.ended.is_some());
    for _ in 0..2 {
        assert!(matches!(outcome(&mut at), Some(Err(CallFault::Disconnected(_)))));
    }
    assert_eq!((at.shard.buffers_in_use(), at.shard.provider().windows_bound()), (0, 0));
}

#[test]
fn the_app_hears_of_a_reply_only_when_every_key_is_dead() {
    let mut at = requester();
    let octets = pattern(9_000);
    let (header, lists, _) = call(&mut at, Some(&octets));
    let target = lists.writes().next().unwrap().segments[0];
    let qp = at.raw.qp.unwrap();
    let source = at.raw.buf(&octets).freeze();
    let to =
        stag_verbs::RemoteSpan { key: RemoteKey(target.handle), offset: target.offset, len: 9_000 };
    at.raw.end.post_write(qp, Tag(0), source, to).unwrap();
    at.fabric.set_faults(Faults { completion_delay: 5_000..5_001, ..Faults::NONE });
    let mut returned = ChunkLists::new();
    returned.return_unused(&lists);
    returned.fill_write(0, lists.writes().next().unwrap(), 9_000);
    let sent_at = at.now;
    at.send_answer(header.xid, &returned, &echo_head(9_000), Some(target.handle));
    let heard = loop {
        match outcome(&mut at) {
            None => assert!(at.step(), "the app hears of the reply"),
            Some(heard) => break heard,
        }
    };
    assert_eq!(heard, Ok(Some(octets)));
    assert!(
        at.now.0 >= sent_at.0 + 5_000,
        "the Read chunk's key is invalidated before the app hears of the reply"
    );
    assert_eq!(at.shard.provider().windows_bound(), 0);
    let stats = at.shard.snapshot().engine.requester;
    assert_eq!((stats.remote_invalidations, stats.local_invalidations), (1, 1));
}

#[test]
fn a_server_that_says_nothing_sends_1024_octets_inline_and_invalidates_nothing() {
    for (private_data, inline_max) in [(true, 4096), (false, 1024)] {
        let mut at = AtServer::serving(Echo::default(), Config { private_data, ..config() });
        assert_eq!(at.raw.end.private_data(at.raw.qp.unwrap()).is_empty(), !private_data);
        // The longest reply that fits, and the shortest that does not: transport header with a
        // Reply chunk, RPC header, length word.
        let head = 28 + 20 + ReplyHeader::LEN + 4;
        for (len, is_inline) in [(inline_max - head, true), (inline_max - head + 4, false)] {
            let mut lists = ChunkLists::new();
            let position = Position::new(rpc(1, ECHO, &[0; 4]).len() as u32).unwrap();
            lists.push_read(position, at.raw.window(&pattern(len), Access::RemoteRead)).unwrap();
            let room = at.raw.window(&[0; 8192], Access::RemoteWrite);
            lists.begin_reply();
            lists.push_reply(room).unwrap();
            let (answer, invalidated) =
                at.ask(&message(1, &lists, &rpc(1, ECHO, &echo_head(len)))).unwrap();
            let (header, _, _) = reply(&answer);
            assert_eq!(header.body == Body::Msg, is_inline, "{len} octets, {header:?}");
            assert!(answer.len() <= inline_max);
            assert_eq!(invalidated.is_some(), private_data);
        }
    }
}

#[test]
fn a_call_at_a_time_counts_from_then_on_and_leaves_without_a_pass() {
    let mut at = AtClient::new(Caller::default(), config());
    // So long that a call which counted from the latest pass would be over.
    let later = at.now + Duration::from_secs(600);
    let peer = at.peer;
    at.shard.with_app_at(later, |_, cx| assert!(Caller::call(cx, peer, Token(1), None)));
    at.now = at.fabric.next_due().unwrap().max(later);
    assert!(at.raw.poll(at.now), "its call is there and no pass was made");
    at.shard.pass(at.now);
    assert_eq!(at.shard.calls_in_progress(), (0, 1));
    assert!(at.shard.with_app(|caller, _| caller.take()).is_none());
}
