//! Calls in the reverse direction (RFC 8167), between a shard and a peer whose messages are made by
//! hand.

use crate::support::{
    self, AtClient, AtServer, GRANT, echo_head, message, no_message, pattern, reply, results, rpc,
    with_header,
};
use stag_echo::{Caller, ECHO, NULL, REGISTER, Twin};
use stag_engine::{
    App, CallFault, Cause, ClientName, Config, Cx, Outcome, PeerId, ShortRequest, Token,
};
use stag_pools::Access;
use stag_protocol::{
    rpc::{Auth, CallHeader, Credential, MessageType},
    rpcrdma::{Body, ChunkLists, Credits, ErrorBody, Header, Position, Xid},
    xdr::Reader,
};
use stag_verbs::{Provider, Time};
use std::time::Duration;

/// Calls that the shards of these tests make in the reverse direction, and take.
const CALLS: u32 = 3;
const NAME: u32 = 77;

fn config() -> Config {
    Config { reverse_calls_max: CALLS, reverse_grant: CALLS, ..support::config() }
}

fn server() -> AtServer<Twin> {
    AtServer::serving(Twin::default(), config())
}

/// The raw end says that it takes calls; returns whom to call.
fn register(at: &mut AtServer<Twin>) -> PeerId {
    let call = rpc(1, REGISTER, &NAME.to_be_bytes());
    let (answer, _) = at.ask(&message(1, &ChunkLists::new(), &call)).unwrap();
    assert_eq!(results(&reply(&answer).2), []);
    at.shard.app().client(NAME).unwrap()
}

fn call(at: &mut AtServer<Twin>, peer: PeerId, token: u64, octets: Option<&[u8]>) {
    assert!(at.shard.with_app(|_, cx| Caller::call(cx, peer, Token(token), octets)));
    at.settle();
}

/// A reply of the raw end to a call of this transaction.
fn answer(at: &mut AtServer<Twin>, xid: Xid, credits: u32, results: &[u8]) {
    let header = Header { xid, credits: Credits(credits), body: Body::Msg };
    let payload = [&xid.0.to_be_bytes()[..], &[0, 0, 0, 1], &[0; 16], results].concat();
    at.raw.send(&with_header(&header, &ChunkLists::new(), &payload), None);
    at.settle();
}

/// The next call that came to the raw end.
fn called(at: &mut AtServer<Twin>) -> Option<Header> {
    let (octets, _) = at.raw.received.pop_front()?;
    let (header, lists, payload) = reply(&octets);
    assert!(lists.is_empty(), "no chunks in the reverse direction");
    let (xid, kind) = MessageType::peek(&Reader::new(&payload)).unwrap();
    assert_eq!((xid, kind), (header.xid, MessageType::Call));
    Some(header)
}

type Echo = Result<Option<Vec<u8>>, CallFault>;

fn outcome(at: &mut AtServer<Twin>) -> Option<(u64, Echo)> {
    let done = at.shard.with_app(|app, _| app.caller().take())?;
    Some((done.token.0, done.echo.map(|echo| echo.map(|octets| octets.to_vec()))))
}

/// A NULL call that is written where it is sent from, with a reply of at most `reply_max` octets.
fn call_short(at: &mut AtServer<Twin>, peer: PeerId, token: u64, reply_max: usize) {
    let header = CallHeader {
        xid: Xid(0),
        program: stag_echo::PROGRAM,
        version: stag_echo::VERSION,
        procedure: NULL,
        credential: Credential::None,
        verifier: Auth::NONE,
    };
    let (timeout, token) = (Duration::from_secs(10), Token(token));
    let request = ShortRequest { header, reply_max, timeout, token };
    at.shard.with_app(|_, cx| cx.call_short(peer, &request, |_| Ok(()))).unwrap();
    at.settle();
}

#[test]
fn a_short_reverse_call_does_not_overtake_one_that_waits_for_memory() {
    let mut at = server();
    let peer = register(&mut at);
    call_short(&mut at, peer, 3, 100);
    let header = called(&mut at).expect("it goes out at once");
    answer(&mut at, header.xid, CALLS, &[]);
    assert_eq!(outcome(&mut at).map(|(token, _)| token), Some(3));
    let mut taken = Vec::new();
    at.shard.with_app(|_, cx| taken.extend(std::iter::from_fn(|| cx.take(1))));
    // It does not go the short way, and there is no buffer for another one.
    call_short(&mut at, peer, 1, 5_000);
    assert!(outcome(&mut at).is_none(), "it waits");
    call_short(&mut at, peer, 2, 100);
    assert!(called(&mut at).is_none(), "a credit is free, and it is not its turn");
    taken.clear();
    at.settle();
    assert_eq!(outcome(&mut at), Some((1, Err(CallFault::TooLong))));
    let header = called(&mut at).expect("the second one goes out after the first");
    answer(&mut at, header.xid, CALLS, &[]);
    assert_eq!(outcome(&mut at).map(|(token, _)| token), Some(2));
}

#[test]
fn nothing_is_sent_in_reverse_before_the_peer_is_ready() {
    let mut at = server();
    at.expect_alive(); // The client sends first.
    let peer = at.shard.with_app(|app, _| app.caller().peers()[0]);
    call(&mut at, peer, 1, None);
    assert!(called(&mut at).is_none());
    let before = at.shard.receives_promised();
    assert_eq!(register(&mut at), peer);
    at.settle();
    let header = called(&mut at).expect("the call goes out once the peer is ready");
    assert_eq!(header.credits, Credits(CALLS), "it asks for what it wants");
    assert_eq!(
        at.shard.receives_promised(),
        before + CALLS as usize,
        "every reply has its receive"
    );
    answer(&mut at, header.xid, 1, &[]);
    assert_eq!(outcome(&mut at), Some((1, Ok(None))));
    at.raw.end.disconnect(at.raw.qp.unwrap());
    at.expect_end();
}

#[test]
fn calls_in_reverse_take_one_credit_and_then_what_was_granted() {
    let mut at = server();
    let peer = register(&mut at);
    for token in 0..9 {
        call(&mut at, peer, token, None);
    }
    let first = called(&mut at).unwrap();
    assert!(called(&mut at).is_none(), "one call before the first grant");
    answer(&mut at, first.xid, 2, &[]);
    let second = [called(&mut at).unwrap(), called(&mut at).unwrap()];
    assert!(called(&mut at).is_none(), "two were granted");
    answer(&mut at, second[0].xid, 1_000, &[]);
    let third = [called(&mut at).unwrap(), called(&mut at).unwrap()];
    assert!(called(&mut at).is_none(), "never more than we have receives for");
    for header in [second[1], third[0], third[1]] {
        answer(&mut at, header.xid, CALLS, &[]);
    }
    let mut last = 0;
    while let Some(header) = called(&mut at) {
        answer(&mut at, header.xid, CALLS, &[]);
        last += 1;
    }
    assert_eq!(last, 4);
    let tokens: Vec<_> = std::iter::from_fn(|| outcome(&mut at)).map(|(token, _)| token).collect();
    assert_eq!(tokens, (0..9).collect::<Vec<_>>());
    at.expect_alive();
}

#[test]
fn one_xid_lives_in_both_directions_at_once() {
    let mut at = server();
    let peer = register(&mut at);
    call(&mut at, peer, 5, Some(b"reverse!"));
    let header = called(&mut at).unwrap();
    let own = [&echo_head(8)[..], b"forward!"].concat();
    let forward = message(header.xid.0, &ChunkLists::new(), &rpc(header.xid.0, ECHO, &own));
    let (answered, _) = at.ask(&forward).unwrap();
    assert_eq!(
        reply(&answered).0,
        Header { xid: header.xid, credits: Credits(GRANT), body: Body::Msg }
    );
    assert_eq!(results(&reply(&answered).2), own);
    answer(&mut at, header.xid, 1, &[&echo_head(8)[..], b"REVERSE!"].concat());
    assert_eq!(outcome(&mut at), Some((5, Ok(Some(b"REVERSE!".to_vec())))));
    let (error, body) = (header.xid, Body::Error(ErrorBody::Chunk));
    at.expect_silence(&with_header(
        &Header { xid: error, credits: Credits(1), body },
        &ChunkLists::new(),
        &[],
    ));
}

#[test]
fn what_does_not_fit_inline_is_not_sent_in_reverse() {
    let mut at = server();
    let peer = register(&mut at);
    // The reply has more around the item than the call has not: 28 octets of header, 32 at most of
    // the RPC reply, one word.
    let fits = 4_096 - 28 - 32 - 4;
    call(&mut at, peer, 1, Some(&pattern(fits + 1)));
    assert_eq!(outcome(&mut at), Some((1, Err(CallFault::TooLong))));
    call(&mut at, peer, 2, Some(&pattern(fits / 4 * 4 - 16)));
    let header = called(&mut at).expect("this one fits");
    answer(&mut at, header.xid, 1, &[0; 4]);
    assert_eq!(outcome(&mut at).unwrap().0, 2);
    assert_eq!(at.shard.buffers_in_use(), 0);
}

#[test]
fn calls_without_a_reply_go_out_again_when_the_client_comes_back() {
    let mut at = server();
    let peer = register(&mut at);
    call(&mut at, peer, 1, None);
    let first = called(&mut at).unwrap();
    call(&mut at, peer, 2, Some(b"wait"));
    at.raw.end.disconnect(at.raw.qp.unwrap());
    at.settle();
    assert_eq!(at.shard.receives_promised(), 0, "nothing is kept for a connection that is gone");
    call(&mut at, peer, 3, None);
    assert!(outcome(&mut at).is_none() && called(&mut at).is_none());
    at.connect();
    assert!(called(&mut at).is_none(), "who it is is not known before its upper layer says so");
    assert_eq!(register(&mut at), peer, "its name is that of before");
    at.settle();
    let again = called(&mut at).unwrap();
    assert_eq!(again.xid, first.xid, "the same call, the same XID");
    answer(&mut at, again.xid, CALLS, &[]);
    let rest = [called(&mut at).unwrap(), called(&mut at).unwrap()];
    answer(&mut at, rest[0].xid, CALLS, &[&echo_head(4)[..], b"back"].concat());
    answer(&mut at, rest[1].xid, CALLS, &[]);
    assert_eq!(outcome(&mut at), Some((1, Ok(None))));
    assert_eq!(outcome(&mut at), Some((2, Ok(Some(b"back".to_vec())))));
    assert_eq!(outcome(&mut at), Some((3, Ok(None))));
    at.expect_alive();
}

#[test]
fn a_client_that_comes_back_before_its_old_connection_is_gone_takes_its_calls_along() {
    let mut at = server();
    let peer = register(&mut at);
    call(&mut at, peer, 1, None);
    let first = called(&mut at).unwrap();
    let old = at.raw.qp.unwrap();
    at.connect();
    assert_ne!(at.raw.qp, Some(old));
    at.raw.send(&message(1, &ChunkLists::new(), &rpc(1, REGISTER, &NAME.to_be_bytes())), None);
    at.settle();
    assert_eq!(at.shard.app().client(NAME), Some(peer));
    assert!(at.raw.ended.is_some(), "the old connection is closed");
    let kinds: Vec<_> = at.raw.received.drain(..).map(|(octets, _)| reply(&octets)).collect();
    assert_eq!(kinds.len(), 2, "the reply to REGISTER, and the call once more");
    assert!(kinds.iter().any(|(header, ..)| header.xid == first.xid));
    answer(&mut at, first.xid, 1, &[]);
    assert_eq!(outcome(&mut at), Some((1, Ok(None))));
    assert_eq!(at.shard.calls_in_progress(), (0, 0));
    at.expect_alive();
}

#[test]
fn calls_to_a_client_that_stays_away_are_few_and_end_at_their_deadline() {
    let mut at = server();
    let peer = register(&mut at);
    at.raw.end.disconnect(at.raw.qp.unwrap());
    at.settle();
    let most = config().outbound / 4;
    for token in 0..most as u64 + 1 {
        call(&mut at, peer, token, None);
    }
    assert_eq!(outcome(&mut at), Some((most as u64, Err(CallFault::Limit))));
    at.now = Time(at.now.0 + 11_000_000_000);
    at.settle();
    for _ in 0..most {
        assert!(matches!(outcome(&mut at), Some((_, Err(CallFault::TimedOut)))));
    }
    assert_eq!((at.shard.calls_in_progress(), at.shard.buffers_in_use()), ((0, 0), 0));
    // What ended leaves its place to others.
    call(&mut at, peer, 1, None);
    assert!(outcome(&mut at).is_none());
    at.shard.with_app(|_, cx| cx.disconnect(peer));
    assert!(matches!(outcome(&mut at), Some((1, Err(CallFault::Disconnected(_))))));
}

#[test]
fn a_client_that_nobody_calls_is_forgotten_after_a_while() {
    let mut at = server();
    let peer = register(&mut at);
    at.raw.end.disconnect(at.raw.qp.unwrap());
    at.settle();
    let absence = config().absence.as_nanos() as u64;
    at.now = Time(at.now.0 + absence - 2_000_000_000);
    at.settle();
    at.connect();
    assert_eq!(register(&mut at), peer);
    at.raw.end.disconnect(at.raw.qp.unwrap());
    at.settle();
    at.now = Time(at.now.0 + absence + 2_000_000_000);
    at.settle();
    call(&mut at, peer, 1, None);
    assert_eq!(outcome(&mut at), Some((1, Err(CallFault::NoPeer))));
    at.connect();
    assert_ne!(register(&mut at), peer, "it begins anew");
}

/// A client that serves, after its first call.
fn client(config: Config) -> AtClient<Twin> {
    let mut at = AtClient::new(Twin::default(), config);
    let peer = at.peer;
    assert!(at.shard.with_app(|_, cx| Caller::call(cx, peer, Token(1), None)));
    at.next_call();
    at
}

fn ask(at: &mut AtClient<Twin>, octets: &[u8]) -> Option<Vec<u8>> {
    at.raw.send(octets, None);
    at.settle();
    at.raw.received.pop_front().map(|(octets, _)| octets)
}

#[test]
fn a_client_answers_calls_and_grants_what_it_has_receives_for() {
    let mut at = client(config());
    assert_eq!(at.shard.receives_promised(), (config().calls_max + CALLS) as usize);
    for xid in 0..20 {
        let own = [&echo_head(8)[..], b"reversed"].concat();
        let answered =
            ask(&mut at, &message(xid, &ChunkLists::new(), &rpc(xid, ECHO, &own))).unwrap();
        let (header, lists, payload) = reply(&answered);
        assert_eq!(header, Header { xid: Xid(xid), credits: Credits(CALLS), body: Body::Msg });
        assert!(lists.is_empty());
        assert_eq!(results(&payload), own);
    }
    assert_eq!(at.shard.calls_in_progress(), (0, 1), "only its own call is under way");
    // By the short way it stays where it was written.
    assert_eq!(at.shard.buffers_in_use(), usize::from(!config().short_ways));
}

#[test]
fn a_client_whose_calls_all_wait_still_answers_what_does_not_fit_an_inline_send() {
    let calls = 100;
    let mut at = AtClient::new(Twin::default(), Config { calls_max: calls, ..config() });
    let peer = at.peer;
    let null = |at: &mut AtClient<Twin>, token| {
        assert!(at.shard.with_app(|_, cx| Caller::call(cx, peer, Token(token), None)));
    };
    null(&mut at, 0);
    let (header, ..) = at.next_call();
    let payload = [&header.xid.0.to_be_bytes()[..], &[0, 0, 0, 1], &[0; 16]].concat();
    let granted = Header { credits: Credits(calls), ..header };
    at.raw.send(&with_header(&granted, &ChunkLists::new(), &payload), None);
    (1..=u64::from(calls)).for_each(|token| null(&mut at, token));
    at.settle();
    let called = at.raw.received.drain(..).count();
    assert!(called > 30, "{called} calls are under way");
    // The server has to receive this before it can answer any of them, as it must receive the
    // return of a delegation that it recalls.
    let own = [&echo_head(2_000)[..], &pattern(2_000)].concat();
    let answered = ask(&mut at, &message(9, &ChunkLists::new(), &rpc(9, ECHO, &own)));
    assert_eq!(results(&reply(&answered.expect("it is answered")).2), own);
}

#[test]
fn chunks_in_reverse_are_refused_and_the_connection_lives() {
    let mut at = client(config());
    let source = at.raw.window(&pattern(100), Access::RemoteRead);
    let target = at.raw.window(&pattern(100), Access::RemoteWrite);
    let mut reads = ChunkLists::new();
    reads.push_read(Position::new(44).unwrap(), source).unwrap();
    let mut writes = ChunkLists::new();
    writes.begin_write().unwrap();
    writes.push_write(target).unwrap();
    let mut zero = ChunkLists::new();
    zero.push_read(Position::ZERO, source).unwrap();
    let call = rpc(9, ECHO, &echo_head(100));
    for octets in [message(9, &reads, &call), message(9, &writes, &call), no_message(9, &zero)] {
        let answered = ask(&mut at, &octets).expect("RFC 8167 §5.3: an answer is owed");
        let wanted = Body::Error(ErrorBody::Chunk);
        assert_eq!(
            reply(&answered).0,
            Header { xid: Xid(9), credits: Credits(CALLS), body: wanted }
        );
    }
    assert_eq!(at.shard.snapshot().engine.peer_faults["ReverseChunks"], 3);
    assert!(
        ask(&mut at, &message(10, &ChunkLists::new(), &rpc(10, NULL, &[]))).is_some(),
        "the connection lives"
    );
}

#[test]
fn a_client_that_serves_nothing_lets_calls_go_by() {
    let mut at = client(Config { reverse_grant: 0, ..config() });
    assert_eq!(at.shard.receives_promised(), config().calls_max as usize);
    assert!(ask(&mut at, &message(9, &ChunkLists::new(), &rpc(9, NULL, &[]))).is_none());
    assert_eq!(at.shard.snapshot().engine.peer_faults["UnexpectedCall"], 1);
}

#[test]
fn a_connection_that_is_adopted_twice_leads_to_the_same_client() {
    let mut at = server();
    let known = register(&mut at);
    at.connect();
    let second = at.shard.with_app(|app, _| *app.caller().peers().last().unwrap());
    assert_ne!(second, known);
    let name = ClientName(NAME.into());
    let adopted = at.shard.with_app(|_, cx| [cx.adopt(second, name), cx.adopt(second, name)]);
    assert_eq!(adopted, [known, known]);
    at.settle();
    at.expect_alive();
}

#[test]
fn a_client_that_is_away_takes_no_name_from_one_that_is_there() {
    let mut at = server();
    let away = register(&mut at);
    at.raw.end.disconnect(at.raw.qp.unwrap());
    at.settle();
    at.connect();
    at.ask(&message(1, &ChunkLists::new(), &rpc(1, REGISTER, &1_u32.to_be_bytes()))).unwrap();
    let here = at.shard.app().client(1).unwrap();
    assert_ne!(here, away);
    // Its upper layer took so long that its connection is gone.
    assert_eq!(at.shard.with_app(|_, cx| cx.adopt(away, ClientName(1))), away);
    at.settle();
    call(&mut at, here, 1, None);
    let header = called(&mut at).expect("it has its connection");
    answer(&mut at, header.xid, 1, &[]);
    at.expect_alive();
}

#[test]
fn a_client_has_the_number_that_it_gave_last_and_no_other() {
    let mut at = server();
    let peer = register(&mut at);
    for name in 100..200_u32 {
        at.ask(&message(1, &ChunkLists::new(), &rpc(1, REGISTER, &name.to_be_bytes()))).unwrap();
        assert_eq!(at.shard.app().client(name), Some(peer));
    }
    assert!((0..199).all(|name| at.shard.app().client(name).is_none()));
    at.expect_alive();
}

/// Ends a client that does not answer.
#[derive(Default)]
struct Strict {
    downs: usize,
    named: Option<PeerId>,
}

impl App for Strict {
    type Report = ();

    fn report(&self) {}

    fn on_peer_up(&mut self, cx: &mut Cx<'_>, peer: PeerId) {
        let peer = cx.adopt(peer, ClientName(1));
        cx.ready(peer);
        self.named = Some(peer);
    }

    fn on_reply(&mut self, cx: &mut Cx<'_>, outcome: Outcome<'_>) {
        if outcome.reply.is_err() {
            cx.disconnect(outcome.peer);
        }
    }

    fn on_peer_down(&mut self, _: &mut Cx<'_>, _: PeerId, _: Cause) {
        self.downs += 1;
    }
}

#[test]
fn a_client_that_the_app_ends_while_its_connection_ends_is_gone_once() {
    let mut at = AtServer::serving(Strict::default(), config());
    at.ask(&message(1, &ChunkLists::new(), &rpc(1, NULL, &[]))).expect("it is refused");
    let peer = at.shard.app().named.unwrap();
    assert!(at.shard.with_app(|_, cx| Caller::call(cx, peer, Token(1), None)));
    at.settle();
    assert_eq!(at.raw.received.len(), 1);
    at.now = Time(at.now.0 + 11_000_000_000);
    at.settle();
    assert!(at.raw.ended.is_some(), "no reply came");
    assert_eq!(at.shard.app().downs, 1);
    assert_eq!((at.shard.calls_in_progress(), at.shard.buffers_in_use()), ((0, 0), 0));
}

#[test]
fn a_client_without_memory_to_refuse_a_call_connects_again() {
    let mut at = AtClient::new(Caller::default(), config());
    let kept = at.shard.keep_connected(&at.port).unwrap();
    at.settle();
    let null = |cx: &mut Cx<'_>| assert!(Caller::call(cx, kept, Token(1), None));
    at.shard.with_app(|_, cx| null(cx));
    let (header, ..) = at.next_call();
    at.answer(header.xid, &ChunkLists::new(), &[], None);
    let all: Vec<_> = at.shard.with_app(|_, cx| std::iter::from_fn(|| cx.message(64)).collect());
    at.raw.send(&message(9, &ChunkLists::new(), &rpc(9, NULL, &[])), None);
    at.settle();
    assert!(at.raw.ended.is_some(), "who is not answered must not wait for ever");
    drop(all);
    at.wait(1);
    at.shard.with_app(|_, cx| null(cx));
    at.next_call();
}

#[test]
fn a_server_that_makes_no_calls_says_so_at_once() {
    let mut at = AtServer::serving(Twin::default(), Config { reverse_calls_max: 0, ..config() });
    let peer = register(&mut at);
    call(&mut at, peer, 1, None);
    assert_eq!(outcome(&mut at), Some((1, Err(CallFault::Limit))));
    at.expect_alive();
}
