//! Version 2 (drafts 000 and 001) between a shard and a peer whose messages are made by hand:
//! negotiation, keys, options.

use crate::support::{
    self, AtClient, AtServer, GRANT, echo_head, message, pattern, reply, results, rpc,
};
use stag_echo::{Caller, ECHO, NULL, REGISTER, Twin};
use stag_engine::{App, CallFault, Config, Cx, OptionFault, PeerId, Token};
use stag_pools::Access;
use stag_protocol::rpcrdma::{
    self, Body, ChunkLists, Credits, ErrorBody, ErrorReply, Header, Intent, MessageType, Position,
    Segment, Version2, Versions, Xid,
    option::{self, Exchange, Message, NoOption, health},
    v1, v2,
};
use stag_verbs::{Provider, Time};

const BOTH: Versions = Versions::Both(Version2::Directed);

fn config() -> Config {
    Config {
        serve_versions: BOTH,
        call_versions: BOTH,
        reverse_grant: 3,
        reverse_calls_max: 3,
        ..support::config()
    }
}

fn server() -> AtServer<Twin> {
    AtServer::serving(Twin::default(), config())
}

fn client(config: Config) -> AtClient<Twin> {
    AtClient::new(Twin::default(), config)
}

/// A message of version 2.
fn two(
    xid: u32,
    body: Body,
    said: (MessageType, u32),
    lists: &ChunkLists,
    payload: &[u8],
) -> Vec<u8> {
    let mut lists = lists.clone();
    lists.set_intent(Some(Intent { message_type: said.0, inv_handle: said.1 }));
    let header = Header { xid: Xid(xid), credits: Credits(3), body };
    let mut out = vec![0; v2::header_len(&lists)];
    v2::emit::<v2::Directed>(&header, &lists, &mut out).unwrap();
    out.extend_from_slice(payload);
    out
}

pub fn call(xid: u32, inv_handle: u32, lists: &ChunkLists, payload: &[u8]) -> Vec<u8> {
    two(xid, Body::Msg, (MessageType::Call, inv_handle), lists, payload)
}

fn answer(xid: u32, lists: &ChunkLists, results: &[u8]) -> Vec<u8> {
    let payload = [&xid.to_be_bytes()[..], &[0, 0, 0, 1], &[0; 16], results].concat();
    two(
        xid,
        Body::Msg,
        (MessageType::Reply, lists.intent().map_or(0, |it| it.inv_handle)),
        lists,
        &payload,
    )
}

fn null(xid: u32) -> Vec<u8> {
    call(xid, 0, &ChunkLists::new(), &rpc(xid, NULL, &[]))
}

pub fn parse(message: &[u8]) -> (Header, ChunkLists, Vec<u8>) {
    let mut lists = ChunkLists::new();
    let (header, at) = v2::parse::<v2::Directed>(message, &mut lists).unwrap();
    (header, lists, message[at..].to_vec())
}

fn error(xid: u32, version: u32, error: ErrorBody) -> Vec<u8> {
    let mut out = vec![0; v2::ERROR_LEN_MAX];
    let reply = ErrorReply { xid: Xid(xid), version, credits: Credits(9), error };
    let len = rpcrdma::emit_error(&reply, &mut out).unwrap();
    out.truncate(len);
    out
}

fn option(xid: u32, message: Message) -> Vec<u8> {
    let mut out = vec![0; 256];
    let len = option::emit(Xid(xid), Credits(3), &message, &mut out).unwrap();
    out.truncate(len);
    out
}

fn ask_health(xid: u32) -> Vec<u8> {
    option(xid, Message::Health(Exchange::Request(health::Request)))
}

/// Parses an option message of the shard.
fn said(octets: &[u8]) -> (Xid, Message) {
    let (header, ..) = parse(octets);
    let Body::Optional { opttype, len } = header.body else { panic!("{header:?}") };
    let info = &octets[v2::OPTION_AT..][..len as usize];
    (header.xid, option::parse(opttype, info, 0).unwrap())
}

fn outcome(at: &mut AtClient<Twin>) -> Option<Result<Option<Vec<u8>>, CallFault>> {
    let done = at.shard.with_app(|app, _| app.caller().take())?;
    Some(done.echo.map(|echo| echo.map(|octets| octets.to_vec())))
}

fn start(at: &mut AtClient<Twin>, token: u64, octets: Option<&[u8]>) {
    let peer = at.peer;
    assert!(at.shard.with_app(|_, cx| Caller::call(cx, peer, Token(token), octets)));
    at.settle();
}

fn arrived(at: &mut AtClient<Twin>) -> Option<Vec<u8>> {
    at.raw.received.pop_front().map(|(octets, _)| octets)
}

/// Settles version 2 by one call.
fn settle_two(at: &mut AtClient<Twin>) {
    start(at, 1, None);
    let (header, ..) = parse(&arrived(at).unwrap());
    at.raw.send(&answer(header.xid.0, &ChunkLists::new(), &[]), None);
    at.settle();
    assert_eq!(outcome(at), Some(Ok(None)));
}

#[test]
fn one_listener_answers_each_connection_in_its_version() {
    let mut at = server();
    let (two, _) = at.ask(&null(1)).unwrap();
    let (header, lists, payload) = parse(&two);
    assert_eq!(header, Header { xid: Xid(1), credits: Credits(GRANT), body: Body::Msg });
    assert_eq!(lists.intent(), Some(Intent { message_type: MessageType::Reply, inv_handle: 0 }));
    assert_eq!(results(&payload), []);
    // Both directions of a connection keep to one version; both that the listener has are named.
    let (refused, _) = at.ask(&message(2, &ChunkLists::new(), &rpc(2, NULL, &[]))).unwrap();
    let (header, ..) = v1::parse(&refused, &mut ChunkLists::new()).unwrap();
    assert_eq!(header.body, Body::Error(ErrorBody::Version { low: 1, high: 2 }));
    at.connect();
    let (one, _) = at.ask(&message(3, &ChunkLists::new(), &rpc(3, NULL, &[]))).unwrap();
    assert_eq!(reply(&one).0.xid, Xid(3));
    let stats = at.shard.snapshot().engine.responder;
    assert_eq!(
        (stats.versions.v2.forward, stats.versions.v1.forward, stats.version_errors),
        (1, 1, 1)
    );
}

#[test]
fn a_peer_that_announces_nothing_gets_the_words_of_draft_001_where_they_are_forced() {
    for serve_versions in [Versions::BothDirected, Versions::TwoDirected] {
        let mut at = AtServer::serving(Twin::default(), Config { serve_versions, ..config() });
        let (octets, _) = at.ask(&null(1)).unwrap();
        let intent = Intent { message_type: MessageType::Reply, inv_handle: 0 };
        assert_eq!(parse(&octets).1.intent(), Some(intent), "{serve_versions:?}");
        let call_versions = serve_versions;
        settle_two(&mut client(Config { call_versions, ..config() }));
    }
}

#[test]
fn the_reply_that_returns_an_unused_chunk_says_that_it_is_a_reply() {
    let mut at = server();
    let offered = Segment { handle: 7, length: 100, offset: 0x1000 };
    let mut lists = ChunkLists::new();
    lists.set_only_write(offered);
    let (octets, _) = at.ask(&call(1, 0, &lists, &rpc(1, NULL, &[]))).unwrap();
    let (_, returned, _) = parse(&octets);
    let intent = Intent { message_type: MessageType::Reply, inv_handle: 0 };
    assert_eq!(returned.intent(), Some(intent));
    assert_eq!(returned.only_write(), Some(Segment { length: 0, ..offered }));
}

#[test]
fn what_neither_version_is_gets_both_named() {
    let mut at = server();
    let mut other = null(1);
    other[7] = 3;
    let (octets, _) = at.ask(&other).unwrap();
    let (header, ..) = v1::parse(&octets, &mut ChunkLists::new()).unwrap();
    assert_eq!(header.body, Body::Error(ErrorBody::Version { low: 1, high: 2 }));
    assert!(at.ask(&null(2)).is_some(), "the connection lives");
}

#[test]
fn the_first_message_goes_alone_and_is_short() {
    let mut at = client(config());
    for token in 0..4 {
        start(&mut at, token, Some(&pattern(3_000)));
    }
    let first = arrived(&mut at).unwrap();
    assert!(arrived(&mut at).is_none(), "one message until there is a reply");
    assert!(first.len() <= 1_024, "{} octets", first.len());
    let (header, lists, _) = parse(&first);
    assert_eq!(header.credits, Credits(4));
    let mut returned = ChunkLists::new();
    returned.return_unused(&lists);
    at.raw.send(&error(header.xid.0, 2, ErrorBody::Chunk), None);
    at.settle();
    assert_eq!(outcome(&mut at), Some(Err(CallFault::Refused(ErrorBody::Chunk))));
    let second = arrived(&mut at).unwrap();
    assert!(
        second.len() <= 1_024 && arrived(&mut at).is_none(),
        "an error settles nothing and grants nothing"
    );
    let (header, ..) = parse(&second);
    at.raw.send(
        &answer(header.xid.0, &ChunkLists::new(), &[&echo_head(3)[..], b"abc\0"].concat()),
        None,
    );
    at.settle();
    assert_eq!(outcome(&mut at), Some(Ok(Some(b"abc".to_vec()))));
    let third = arrived(&mut at).unwrap();
    assert!(third.len() > 3_000, "from here on 4,096 octets go inline");
    assert!(parse(&third).1.is_empty());
    assert!(arrived(&mut at).is_some(), "three were granted");
}

#[test]
fn a_peer_that_speaks_version_1_gets_the_same_call_again_on_the_same_connection() {
    for octets in [None, Some(pattern(100)), Some(pattern(9_000)), Some(pattern(70_000))] {
        let mut at = client(config());
        start(&mut at, 7, octets.as_deref());
        let first = arrived(&mut at).unwrap();
        let (two, offered, _) = parse(&first);
        at.raw.send(&error(two.xid.0, 2, ErrorBody::Version { low: 1, high: 1 }), None);
        at.settle();
        let (one, lists, _) = reply(&arrived(&mut at).expect("it goes again"));
        assert_eq!(one, Header { xid: two.xid, ..one }, "the same XID");
        assert_eq!(lists.reads().count(), offered.reads().count());
        let windows = offered.segments().len();
        assert_eq!(
            at.shard.provider().windows_bound(),
            lists.segments().len(),
            "the keys of before are dead"
        );
        assert_eq!(at.shard.snapshot().engine.requester.local_invalidations, windows as u64);
        assert!(at.raw.ended.is_none());
        let empty = ChunkLists::new();
        match octets {
            None => at.answer(one.xid, &empty, &[], None),
            Some(_) => {
                let mut returned = ChunkLists::new();
                returned.return_unused(&lists);
                at.answer(one.xid, &returned, &[&echo_head(3)[..], b"xyz\0"].concat(), None);
            }
        }
        let wanted = octets.is_some().then(|| b"xyz".to_vec());
        assert_eq!(outcome(&mut at), Some(Ok(wanted)));
        assert_eq!((at.shard.buffers_in_use(), at.shard.provider().windows_bound()), (0, 0));
        start(&mut at, 8, None);
        assert_eq!(reply(&arrived(&mut at).unwrap()).0.body, Body::Msg, "version 1 from here on");
        let stats = at.shard.snapshot().engine.requester;
        assert_eq!(
            (stats.versions.v2.forward, stats.versions.v1.forward, stats.version_errors),
            (1, 2, 1)
        );
    }
}

#[test]
fn a_call_that_was_cancelled_does_not_go_again() {
    let mut at = client(config());
    start(&mut at, 7, Some(&pattern(9_000)));
    start(&mut at, 8, None);
    let (two, ..) = parse(&arrived(&mut at).unwrap());
    let peer = at.peer;
    at.shard.with_app(|_, cx| cx.cancel(peer, Token(7)));
    at.raw.send(&error(two.xid.0, 2, ErrorBody::Version { low: 1, high: 1 }), None);
    at.settle();
    assert_eq!(outcome(&mut at), Some(Err(CallFault::Cancelled)));
    let (one, ..) = reply(&arrived(&mut at).unwrap());
    assert_ne!(one.xid, two.xid, "the one behind it goes, as version 1");
    assert_eq!(at.shard.provider().windows_bound(), 0);
}

#[test]
fn a_peer_without_version_1_or_2_fails_the_call() {
    let mut at = client(Config { call_versions: Versions::Two(Version2::Directed), ..config() });
    start(&mut at, 7, Some(&pattern(9_000)));
    let (two, ..) = parse(&arrived(&mut at).unwrap());
    let versions = ErrorBody::Version { low: 1, high: 1 };
    at.raw.send(&error(two.xid.0, 2, versions), None);
    at.settle();
    assert_eq!(outcome(&mut at), Some(Err(CallFault::Refused(versions))));
    assert_eq!((at.shard.buffers_in_use(), at.shard.provider().windows_bound()), (0, 0));
}

#[test]
fn a_connection_lost_behind_the_first_message_makes_the_next_one_version_1() {
    let mut at = client(config());
    let port = at.raw.end.listen(&stag_sim::Port(0)).unwrap();
    let kept = at.shard.keep_connected(&port).unwrap();
    at.settle();
    assert!(at.shard.with_app(|_, cx| Caller::call(cx, kept, Token(3), None)));
    at.settle();
    assert_eq!(arrived(&mut at).unwrap()[7], 2);
    at.raw.end.disconnect(at.raw.qp.unwrap());
    at.settle();
    assert_eq!(arrived(&mut at).expect("it goes again over the next connection")[7], 1);
    // After a while it is tried again.
    at.wait(601);
    at.raw.received.clear();
    at.raw.end.disconnect(at.raw.qp.unwrap());
    at.settle();
    at.wait(6);
    assert!(at.shard.with_app(|_, cx| Caller::call(cx, kept, Token(4), None)));
    at.settle();
    assert_eq!(arrived(&mut at).unwrap()[7], 2);
}

/// A call of ECHO with its argument in one chunk and room for the result in another.
fn chunked(at: &mut AtServer<Twin>, octets: &[u8]) -> (ChunkLists, Segment, Segment) {
    let source = at.raw.window(octets, Access::RemoteRead);
    let target = at.raw.window(&vec![0xee; octets.len()], Access::RemoteWrite);
    let mut lists = ChunkLists::new();
    lists.push_read(Position::new(44).unwrap(), source).unwrap();
    lists.begin_write().unwrap();
    lists.push_write(target).unwrap();
    (lists, source, target)
}

#[test]
fn a_responder_invalidates_exactly_the_key_that_the_call_names() {
    let mut at = server();
    at.ask(&null(1)).unwrap();
    let octets = pattern(5_000);
    for named in 0..4 {
        let (lists, source, target) = chunked(&mut at, &octets);
        let inv_handle =
            [0, source.handle, target.handle, source.handle ^ target.handle ^ 0x55][named];
        let sent = call(2, inv_handle, &lists, &rpc(2, ECHO, &echo_head(5_000)));
        let (answered, invalidated) = at.ask(&sent).unwrap();
        let (_, returned, payload) = parse(&answered);
        let intent = Intent { message_type: MessageType::Reply, inv_handle };
        assert_eq!(returned.intent(), Some(intent), "the field comes back as it was");
        assert_eq!(results(&payload), echo_head(5_000));
        let wanted = [None, Some(source.handle), Some(target.handle), None][named];
        assert_eq!(
            invalidated.map(|key| key.0),
            wanted,
            "a key that is not the call's is nobody's to invalidate"
        );
        for segment in [source, target].into_iter().filter(|segment| Some(segment.handle) != wanted)
        {
            at.raw.fence(segment);
        }
        at.settle();
        assert_eq!(at.raw.content(target), octets);
    }
    // Never with an error.
    let (lists, source, target) = chunked(&mut at, &octets);
    let sent = call(3, source.handle, &lists, &rpc(4, ECHO, &echo_head(5_000)));
    let (refused, invalidated) = at.ask(&sent).unwrap();
    assert_eq!((parse(&refused).0.body, invalidated), (Body::Error(ErrorBody::Chunk), None));
    [source, target].into_iter().for_each(|segment| at.raw.fence(segment));
    at.settle();
}

/// The reply of the raw end to the oldest call, with every octet of the result's room written.
fn complete(
    at: &mut AtClient<Twin>,
    octets: &[u8],
    invalidate: impl FnOnce(&ChunkLists) -> Option<u32>,
) -> u32 {
    let (header, lists, _) = parse(&arrived(at).unwrap());
    let target = lists.writes().next().unwrap().segments[0];
    at.raw.push(octets, target);
    let mut returned = ChunkLists::new();
    returned.return_unused(&lists);
    assert!(returned.fill_write(0, lists.writes().next().unwrap(), octets.len() as u64));
    let key = invalidate(&lists);
    at.raw.send(&answer(header.xid.0, &returned, &echo_head(octets.len())), key);
    at.settle();
    lists.intent().unwrap().inv_handle
}

#[test]
fn a_requester_names_one_of_its_keys_and_takes_any_of_them_or_none() {
    let mut at = client(config());
    settle_two(&mut at);
    let octets = pattern(9_000);
    let keys: [fn(&ChunkLists) -> Option<u32>; 3] = [
        |_| None,
        |lists| Some(lists.intent().unwrap().inv_handle),
        |lists| {
            lists
                .segments()
                .iter()
                .map(|it| it.handle)
                .find(|it| *it != lists.intent().unwrap().inv_handle)
        },
    ];
    for key in keys {
        start(&mut at, 5, Some(&octets));
        let named = complete(&mut at, &octets, key);
        assert_ne!(named, 0, "it bears remote invalidation, and says of which key");
        assert_eq!(outcome(&mut at), Some(Ok(Some(octets.clone()))));
        assert_eq!((at.shard.provider().windows_bound(), at.shard.buffers_in_use()), (0, 0));
    }
    let stats = at.shard.snapshot().engine.requester;
    assert_eq!((stats.remote_invalidations, stats.local_invalidations), (2, 4));
}

#[test]
fn a_foreign_key_a_late_one_and_one_without_reply_end_the_connection() {
    for case in 0..3 {
        let mut at = client(config());
        settle_two(&mut at);
        let octets = pattern(9_000);
        start(&mut at, 5, Some(&octets));
        let (first, lists, _) = parse(&arrived(&mut at).unwrap());
        start(&mut at, 6, None);
        let (second, ..) = parse(&arrived(&mut at).unwrap());
        let key = Some(lists.intent().unwrap().inv_handle);
        match case {
            0 => at.raw.send(&answer(second.xid.0, &ChunkLists::new(), &[]), key),
            1 => at.raw.send(&answer(first.xid.0 ^ 0x4000_0000, &ChunkLists::new(), &[]), key),
            _ => at.raw.send(&error(first.xid.0, 2, ErrorBody::Chunk), key),
        }
        at.settle();
        assert!(at.raw.ended.is_some(), "case {case}");
        let ends: Vec<_> = std::iter::from_fn(|| outcome(&mut at)).collect();
        assert_eq!(ends.len(), 2, "each call has one outcome: {ends:?}");
        assert_eq!((at.shard.provider().windows_bound(), at.shard.buffers_in_use()), (0, 0));
        assert_eq!(at.shard.calls_in_progress(), (0, 0));
    }
}

#[test]
fn a_cancelled_call_whose_key_the_late_reply_invalidates_ends_cancelled() {
    let mut at = client(config());
    settle_two(&mut at);
    let octets = pattern(9_000);
    start(&mut at, 5, Some(&octets));
    let peer = at.peer;
    at.shard.with_app(|_, cx| cx.cancel(peer, Token(5)));
    at.settle();
    assert!(outcome(&mut at).is_none(), "the peer may still reach its memory");
    complete(&mut at, &octets, |lists| Some(lists.intent().unwrap().inv_handle));
    assert_eq!(outcome(&mut at), Some(Err(CallFault::Cancelled)));
    assert!(at.raw.ended.is_none());
    assert_eq!((at.shard.provider().windows_bound(), at.shard.buffers_in_use()), (0, 0));
    // And one whose connection dies with the reply in flight.
    start(&mut at, 6, Some(&octets));
    at.shard.with_app(|_, cx| cx.cancel(peer, Token(6)));
    let (header, lists, _) = parse(&arrived(&mut at).unwrap());
    let key = lists.intent().unwrap().inv_handle;
    at.raw.send(&answer(header.xid.0, &ChunkLists::new(), &[]), Some(key));
    at.raw.end.disconnect(at.raw.qp.unwrap());
    at.settle();
    assert!(matches!(
        outcome(&mut at),
        Some(Err(CallFault::Disconnected(_) | CallFault::Cancelled))
    ));
    assert!(outcome(&mut at).is_none());
    assert_eq!((at.shard.provider().windows_bound(), at.shard.buffers_in_use()), (0, 0));
}

#[test]
fn chunks_go_in_the_reverse_direction_too() {
    let mut at = client(config());
    settle_two(&mut at);
    let octets = pattern(6_001);
    let source = at.raw.window(&octets, Access::RemoteRead);
    let target = at.raw.window(&vec![0xee; 6_001], Access::RemoteWrite);
    let mut lists = ChunkLists::new();
    lists.push_read(Position::new(44).unwrap(), source).unwrap();
    lists.begin_write().unwrap();
    lists.push_write(target).unwrap();
    at.raw.send(&call(77, source.handle, &lists, &rpc(77, ECHO, &echo_head(6_001))), None);
    at.settle();
    let (answered, invalidated) = at.raw.received.pop_front().unwrap();
    let (header, returned, payload) = parse(&answered);
    assert_eq!(header, Header { xid: Xid(77), credits: Credits(3), body: Body::Msg });
    assert_eq!(returned.writes().next().unwrap().total(), 6_001);
    assert_eq!(results(&payload), echo_head(6_001));
    assert_eq!(
        invalidated.map(|key| key.0),
        Some(source.handle),
        "remote invalidation in both directions"
    );
    at.raw.fence(target);
    at.settle();
    assert_eq!(at.raw.content(target), octets);
}

#[test]
fn a_server_that_calls_before_its_first_reply_is_answered_as_the_version_allows() {
    let mut at = client(config());
    start(&mut at, 1, None);
    let (first, ..) = parse(&arrived(&mut at).expect("the first call is there"));
    let own = [&echo_head(2_000)[..], &pattern(2_000)].concat();
    at.raw.send(&call(9, 0, &ChunkLists::new(), &rpc(9, ECHO, &own)), None);
    at.settle();
    let (header, _, payload) = parse(&arrived(&mut at).expect("it is answered"));
    assert_eq!((header.xid, header.body), (Xid(9), Body::Msg), "no error");
    assert_eq!(results(&payload), own);
    start(&mut at, 2, None);
    assert!(arrived(&mut at).is_none(), "there is still one credit");
    at.raw.send(&answer(first.xid.0, &ChunkLists::new(), &[]), None);
    at.settle();
    assert_eq!(outcome(&mut at), Some(Ok(None)));
    assert!(arrived(&mut at).is_some());
}

#[test]
fn an_unknown_option_is_refused_with_its_own_xid() {
    let mut at = server();
    at.ask(&null(1)).unwrap();
    let mut unknown = ask_health(0x51);
    unknown[16..20].copy_from_slice(&7_u32.to_be_bytes());
    let (refused, _) = at.ask(&unknown).unwrap();
    let (header, ..) = parse(&refused);
    assert_eq!((header.xid, header.body), (Xid(0x51), Body::Error(ErrorBody::Option)));
    assert!(at.ask(&null(2)).is_some());
    assert_eq!(at.shard.snapshot().engine.peer_faults["UnknownOption"], 1);
}

#[test]
fn a_peer_hears_how_we_are_though_its_credits_are_used_up() {
    let mut at = server();
    at.ask(&null(1)).unwrap();
    let before = at.shard.receives_promised();
    let (octets, _) = at.ask(&ask_health(2)).unwrap();
    let (xid, Message::Health(Exchange::Reply(first))) = said(&octets) else { panic!() };
    assert_eq!((xid, first), (Xid(2), health::Reply { credits_granted: GRANT, credits_in_use: 0 }));
    assert_eq!(
        at.shard.receives_promised(),
        before + 1,
        "one receive more, from the first answer on"
    );
    // Every credit waits for memory that the raw end does not give.
    at.fabric.set_faults(stag_sim::Faults {
        fetch_delay: 1_000_000_000..1_000_000_001,
        ..stag_sim::Faults::NONE
    });
    for xid in 10..10 + GRANT {
        let (lists, ..) = chunked(&mut at, &pattern(5_000));
        at.raw.send(&call(xid, 0, &lists, &rpc(xid, ECHO, &echo_head(5_000))), None);
    }
    at.raw.send(&ask_health(3), None);
    for _ in 0..50 {
        let _ = at.shard.pass(at.now) | at.raw.poll(at.now);
        at.now = Time(at.now.0 + 1_000);
    }
    let (octets, _) = at.raw.received.pop_front().expect("it is answered beyond the credits");
    let (xid, Message::Health(Exchange::Reply(second))) = said(&octets) else { panic!() };
    assert_eq!(
        (xid, second),
        (Xid(3), health::Reply { credits_granted: GRANT, credits_in_use: GRANT })
    );
    at.settle();
    assert_eq!(at.raw.received.len(), GRANT as usize, "every call is answered");
    at.raw.end.disconnect(at.raw.qp.unwrap());
    at.expect_end();
}

fn health(at: &mut AtClient<Twin>) -> Option<Result<stag_engine::Health, OptionFault>> {
    at.shard.with_app(|app, _| app.take_health())
}

fn ask(at: &mut AtClient<Twin>) {
    let peer = at.peer;
    at.shard.with_app(|_, cx| cx.ask_health(peer));
    at.settle();
}

#[test]
fn we_hear_how_a_peer_is_though_our_credits_are_used_up() {
    let mut at = client(config());
    ask(&mut at);
    assert_eq!(
        health(&mut at),
        Some(Err(OptionFault::Option(NoOption::Version))),
        "not before version 2 is settled"
    );
    settle_two(&mut at);
    let before = at.shard.receives_promised();
    let state = health::Reply { credits_granted: 3, credits_in_use: 1 };
    ask(&mut at);
    let (xid, asked) = said(&arrived(&mut at).unwrap());
    assert_eq!(asked, Message::Health(Exchange::Request(health::Request)));
    ask(&mut at);
    assert_eq!(health(&mut at), Some(Err(OptionFault::Option(NoOption::Busy))));
    at.raw.send(&option(xid.0, Message::Health(Exchange::Reply(state))), None);
    at.settle();
    assert_eq!(health(&mut at), Some(Ok(state)));
    // Three were granted.
    (0..5).for_each(|token| start(&mut at, token, None));
    assert_eq!(at.raw.received.drain(..).count(), 3);
    ask(&mut at);
    let (xid, _) = said(&arrived(&mut at).expect("it goes out beyond the credits"));
    assert_eq!(at.shard.receives_promised(), before + 1, "the answer has a receive of its own");
    at.raw.send(&option(xid.0, Message::Health(Exchange::Reply(state))), None);
    at.settle();
    assert_eq!(health(&mut at), Some(Ok(state)));
}

#[test]
fn a_peer_that_does_not_know_the_option_or_does_not_answer_is_told_of() {
    let mut at = client(config());
    settle_two(&mut at);
    ask(&mut at);
    let (xid, _) = said(&arrived(&mut at).unwrap());
    at.raw.send(&error(xid.0, 2, ErrorBody::Option), None);
    at.settle();
    let refused = Some(Err(OptionFault::Option(NoOption::Refused)));
    assert_eq!(health(&mut at), refused);
    ask(&mut at);
    assert_eq!((health(&mut at), arrived(&mut at)), (refused, None), "it is not asked again");
    (0..3).for_each(|token| start(&mut at, token, None));
    assert_eq!(at.raw.received.len(), 3, "the credit came back");

    let mut at = client(config());
    settle_two(&mut at);
    ask(&mut at);
    at.wait(9);
    assert_eq!(health(&mut at), None);
    at.wait(2);
    assert_eq!(health(&mut at), Some(Err(OptionFault::TimedOut)));
    assert!(at.raw.ended.is_some() && health(&mut at).is_none());

    let mut at = client(config());
    settle_two(&mut at);
    ask(&mut at);
    at.raw.end.disconnect(at.raw.qp.unwrap());
    at.settle();
    assert!(matches!(health(&mut at), Some(Err(OptionFault::Disconnected(_)))));
    ask(&mut at);
    assert_eq!(health(&mut at), Some(Err(OptionFault::NoPeer)));
}

#[test]
fn a_server_calls_back_with_chunks_and_asks_how_its_client_is() {
    let mut at = server();
    at.ask(&call(1, 0, &ChunkLists::new(), &rpc(1, REGISTER, &5_u32.to_be_bytes()))).unwrap();
    let peer = at.shard.app().client(5).unwrap();
    at.shard.with_app(|_, cx| assert!(Caller::call(cx, peer, Token(1), Some(&pattern(9_000)))));
    at.settle();
    let (octets, _) = at.raw.received.pop_front().unwrap();
    let (header, lists, _) = parse(&octets);
    assert_eq!((lists.reads().count(), lists.writes().count()), (1, 1));
    let named = lists.intent().unwrap().inv_handle;
    assert_ne!(named, 0);
    let mut returned = ChunkLists::new();
    returned.return_unused(&lists);
    let short = [&echo_head(3)[..], b"abc\0"].concat();
    at.raw.send(&answer(header.xid.0, &returned, &short), Some(named));
    at.settle();
    let done = at.shard.with_app(|app, _| app.caller().take()).unwrap();
    assert_eq!(done.echo.unwrap().unwrap()[..], *b"abc");
    assert_eq!(at.shard.provider().windows_bound(), 0);
    at.shard.with_app(|_, cx| cx.ask_health(peer));
    at.settle();
    let (xid, _) = said(&at.raw.received.pop_front().unwrap().0);
    at.raw.send(&option(xid.0, Message::Health(Exchange::Reply(health::Reply::default()))), None);
    at.settle();
    assert_eq!(at.shard.with_app(|app, _| app.take_health()), Some(Ok(health::Reply::default())));
    let stats = at.shard.snapshot().engine;
    assert_eq!((stats.requester.versions.v2.reverse, stats.requester.options), (1, 1));
}

/// Calls every peer that connects.
struct Hasty;

impl App for Hasty {
    type Report = ();

    fn report(&self) {}

    fn on_peer_up(&mut self, cx: &mut Cx<'_>, peer: PeerId) {
        cx.ready(peer);
        assert!(Caller::call(cx, peer, Token(1), None));
    }
}

#[test]
fn a_call_back_that_waits_for_the_version_goes_out_once_that_is_settled() {
    let mut at = AtServer::serving(Hasty, config());
    at.raw.send(&null(1), None);
    at.settle();
    let kinds: Vec<_> = at.raw.received.drain(..).map(|(octets, _)| parse(&octets)).collect();
    let said = |kind| {
        move |it: &&(Header, ChunkLists, Vec<u8>)| it.1.intent().unwrap().message_type == kind
    };
    assert_eq!(kinds.iter().filter(said(MessageType::Reply)).count(), 1);
    assert_eq!(
        kinds.iter().filter(said(MessageType::Call)).count(),
        1,
        "nothing else will send it"
    );
}

#[test]
fn a_peer_that_cannot_read_the_question_gives_the_credit_back() {
    let mut at = client(config());
    settle_two(&mut at);
    ask(&mut at);
    let (xid, _) = said(&arrived(&mut at).unwrap());
    at.raw.send(&error(xid.0, 2, ErrorBody::Chunk), None);
    at.settle();
    assert_eq!(health(&mut at), Some(Err(OptionFault::Option(NoOption::Refused))));
    (0..3).for_each(|token| start(&mut at, token, None));
    assert_eq!(at.raw.received.len(), 3, "every credit is there");
    at.wait(11);
    assert_eq!(health(&mut at), None);
}

/// The answer waits for room, as a reply does.
#[test]
fn a_peer_may_ask_while_the_send_queue_is_full() {
    let mut at = server();
    at.ask(&null(1)).unwrap();
    at.ask(&ask_health(2)).unwrap();
    // Completions are late, so that two replies of 63 Writes and a Send each fill the queue.
    let late = 1_000_000_000..1_000_000_001;
    at.fabric.set_faults(stag_sim::Faults { completion_delay: late, ..stag_sim::Faults::NONE });
    for xid in 10..10 + GRANT {
        let mut lists = ChunkLists::new();
        lists.begin_write().unwrap();
        let target = at.raw.window(&[0xee; 504], Access::RemoteWrite);
        for piece in 0..63 {
            let offset = target.offset + 8 * piece;
            lists.push_write(Segment { length: 8, offset, ..target }).unwrap();
        }
        let arguments = [&echo_head(504)[..], &pattern(504)].concat();
        at.raw.send(&call(xid, 0, &lists, &rpc(xid, ECHO, &arguments)), None);
    }
    for _ in 0..50 {
        let _ = at.shard.pass(at.now) | at.raw.poll(at.now);
        at.now = Time(at.now.0 + 1_000);
    }
    assert!(at.shard.snapshot().engine.limits.send_queue > 0, "a reply waits for room");
    at.raw.send(&ask_health(3), None);
    at.settle();
    assert!(at.raw.ended.is_none(), "asking ends no connection");
    let options = at.raw.received.iter().filter(|(octets, _)| octets[15] == 5).count();
    assert_eq!((at.raw.received.len(), options), (GRANT as usize + 1, 1));
}
