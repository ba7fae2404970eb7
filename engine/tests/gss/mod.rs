//! Calls with RPCSEC_GSS over the fabric: contexts, protection, refusals.

pub mod client;
mod floods;
mod listed;
mod long;
mod reduced;
mod shares;

use crate::support::{AtServer, GRANT, config, message, no_message, pattern, reply};
use client::{Client, NamedAcceptor, SERVICES, SLOW, denied, init, init_results};
use stag_echo::{ECHO, Echo, NULL, PUSH, part};
use stag_engine::{
    App, Config, Shard, Time,
    gss::{ContextLimits, GssContexts},
};
use stag_gss::Enctype;
use stag_pools::Access;
use stag_protocol::{
    rpc::{
        Accepted, Auth, AuthStatus,
        gss::{GssCredential, GssData, GssService, MAXSEQ, MajorStatus},
        record,
    },
    rpcrdma::{ChunkLists, ErrorBody, Position},
};
use stag_sim::{Fabric, Faults, Sim};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::{Duration, Instant},
};

const ENCTYPE: Enctype = Enctype::Aes256Sha384;

fn contexts(enctype: Enctype, limits: ContextLimits) -> Arc<GssContexts> {
    GssContexts::start(Box::new(NamedAcceptor(enctype)), limits).unwrap()
}

fn serving(contexts: &Arc<GssContexts>) -> AtServer {
    let config = Config { gss: Some(Arc::clone(contexts)), ..config() };
    AtServer::serving(Echo::default(), config)
}

/// Sends a message, and waits for its reply, which another thread may have to prepare.
fn ask<A: App>(at: &mut AtServer<A>, octets: &[u8]) -> Vec<u8> {
    let from = Instant::now();
    let mut answer = at.ask(&message(xid_of(octets), &ChunkLists::new(), octets));
    while answer.is_none() {
        assert!(from.elapsed() < Duration::from_secs(60), "the acceptor answers");
        std::thread::yield_now();
        at.settle();
        answer = at.raw.received.pop_front();
    }
    reply(&answer.unwrap().0).2
}

fn xid_of(octets: &[u8]) -> u32 {
    u32::from_be_bytes(octets[..4].try_into().unwrap())
}

fn client(at: &mut AtServer, enctype: Enctype, token: &str) -> Client {
    Client::of(enctype, &ask(at, &init(1, token.as_bytes())))
}

fn served() -> (AtServer, Client) {
    let mut at = serving(&contexts(ENCTYPE, ContextLimits::default()));
    let client = client(&mut at, ENCTYPE, "alice@REALM");
    (at, client)
}

fn opaque(octets: &[u8]) -> Vec<u8> {
    let mut wire = [&(octets.len() as u32).to_be_bytes()[..], octets].concat();
    wire.resize(wire.len().next_multiple_of(4), 0);
    wire
}

#[test]
fn calls_of_a_context_are_served_under_each_service_and_enctype() {
    for enctype in Enctype::ALL {
        let mut at = serving(&contexts(enctype, ContextLimits::default()));
        let client = client(&mut at, enctype, "alice@REALM");
        let mut sequence = 0;
        for service in SERVICES {
            for len in [0, 1, 3, 4, 500] {
                sequence += 1;
                let octets = pattern(len);
                let call = client.call((sequence, sequence), service, ECHO, &opaque(&octets));
                let answer = ask(&mut at, &call);
                let opened = client.open(sequence, service, &answer);
                assert_eq!(opened, (Accepted::Success, opaque(&octets)), "{service:?} {len}");
            }
            sequence += 1;
            let answer = ask(&mut at, &client.call((9, sequence), service, NULL, &[]));
            let opened = client.open(sequence, service, &answer);
            assert_eq!(opened, (Accepted::Success, vec![]));
            sequence += 1;
            let answer = ask(&mut at, &client.call((9, sequence), service, 77, &[]));
            let opened = client.open(sequence, service, &answer);
            assert_eq!(opened, (Accepted::ProcUnavail, vec![]));
        }
        at.expect_alive();
        let stats = at.shard.snapshot().engine.gss;
        assert_eq!((stats.contexts, stats.calls), (1, 21));
    }
}

#[test]
fn items_travel_in_chunks_under_krb5() {
    let (mut at, client) = served();
    let room = at.raw.window(&[0; 9_000], Access::RemoteWrite);
    let mut lists = ChunkLists::new();
    lists.begin_write().unwrap();
    lists.push_write(room).unwrap();
    let arguments = [3_u32.to_be_bytes(), 9_000_u32.to_be_bytes()].concat();
    let call = client.call((5, 1), GssService::None, PUSH, &arguments);
    let (answer, _) = at.ask(&message(5, &lists, &call)).unwrap();
    let (_, returned, payload) = reply(&answer);
    let opened = client.open(1, GssService::None, &payload);
    assert_eq!(opened, (Accepted::Success, 9_000_u32.to_be_bytes().to_vec()));
    assert_eq!(returned.only_write().map(|segment| segment.length), Some(9_000));
    if at.raw.fenced.is_empty() {
        at.raw.fence(room);
        at.settle();
    }
    assert_eq!(at.raw.content(room), part(3, 9_000).unwrap());
}

#[test]
fn nothing_is_reduced_under_integrity_and_privacy() {
    for service in [GssService::Integrity, GssService::Privacy] {
        let (mut at, client) = served();
        let room = at.raw.window(&[0; 9_000], Access::RemoteWrite);
        let mut lists = ChunkLists::new();
        lists.begin_write().unwrap();
        lists.push_write(room).unwrap();
        let arguments = [3_u32.to_be_bytes(), 9_000_u32.to_be_bytes()].concat();
        let call = client.call((5, 1), service, PUSH, &arguments);
        at.expect_error(&message(5, &lists, &call), 5, ErrorBody::Chunk);
        let item = at.raw.window(&pattern(600), Access::RemoteRead);
        let mut lists = ChunkLists::new();
        let head = client.call((6, 2), service, ECHO, &opaque(&[]));
        let position = Position::new(head.len() as u32).unwrap();
        lists.push_read(position, item).unwrap();
        at.expect_error(&message(6, &lists, &head), 6, ErrorBody::Chunk);
        let pulled = at.shard.snapshot().engine.responder.pulled;
        assert_eq!(pulled, 0, "before any transfer");
    }
}

#[test]
fn long_messages_travel_whole_under_integrity_and_privacy() {
    for enctype in Enctype::ALL {
        for (service, len) in SERVICES[1..].iter().flat_map(|it| [(*it, 9_001), (*it, 100_000)]) {
            let mut at = serving(&contexts(enctype, ContextLimits::default()));
            let client = client(&mut at, enctype, "alice@REALM");
            let octets = pattern(len);
            let call = client.call((7, 1), service, ECHO, &opaque(&octets));
            // Several segments, none of which ends where a part of the message does.
            let (first, rest) = call.split_at(1_000);
            let (first, rest) =
                (at.raw.window(first, Access::RemoteRead), at.raw.window(rest, Access::RemoteRead));
            let room = at.raw.window(&vec![0; len + 400], Access::RemoteWrite);
            let mut lists = ChunkLists::new();
            lists.push_read(Position::ZERO, first).unwrap();
            lists.push_read(Position::ZERO, rest).unwrap();
            lists.begin_reply();
            lists.push_reply(room).unwrap();
            let (answer, _) = at.ask(&no_message(7, &lists)).unwrap();
            let (_, returned, _) = reply(&answer);
            let segments = returned.reply().unwrap().segments;
            let written = segments.iter().map(|segment| segment.length as usize).sum();
            for segment in [first, rest, room] {
                if !at.raw.fenced.iter().any(|(key, _)| key.0 == segment.handle) {
                    at.raw.fence(segment);
                    at.settle();
                }
            }
            let whole: &[u8] = &at.raw.content(room)[..written];
            let opened = client.open(1, service, whole);
            assert!(opened == (Accepted::Success, opaque(&octets)), "{service:?} {len}");
            at.expect_alive();
        }
    }
}

#[test]
fn a_result_outside_its_message_is_protected_with_it() {
    for service in SERVICES {
        let (mut at, client) = served();
        for (sequence, len) in (1..).zip([1_u32, 2, 700, 3_000]) {
            let arguments = [3_u32.to_be_bytes(), len.to_be_bytes()].concat();
            let answer =
                ask(&mut at, &client.call((sequence, sequence), service, PUSH, &arguments));
            let (status, results) = client.open(sequence, service, &answer);
            assert_eq!(status, Accepted::Success);
            assert_eq!(results, opaque(part(3, len as usize).unwrap()), "{service:?} {len}");
        }
    }
}

#[test]
fn a_number_that_was_seen_gets_no_answer_and_its_connection_stays() {
    let (mut at, client) = served();
    for service in SERVICES {
        let sequence = 600 + service as u32;
        let call = client.call((5, sequence), service, NULL, &[]);
        client.open(sequence, service, &ask(&mut at, &call));
        at.expect_silence(&message(5, &ChunkLists::new(), &call));
        let old = client.call((6, 20), service, NULL, &[]);
        at.expect_silence(&message(6, &ChunkLists::new(), &old));
    }
    assert_eq!(at.shard.snapshot().engine.gss.replayed, 6);
    assert_eq!(at.shard.calls_in_progress(), (0, 0));
}

#[test]
fn what_no_context_proves_is_denied() {
    let (mut at, client) = served();
    let none = GssService::None;
    let mut expect = |octets: &[u8], status| {
        assert_eq!(denied(&ask(&mut at, octets)), status);
    };
    let call = client.call((5, 1), none, NULL, &[]);
    // Each octet of the header from the program on, but for those of the credential's own rules.
    for at in (12..24).chain(40..44).chain(52..68) {
        let mut changed = call.clone();
        changed[at] ^= 1;
        expect(&changed, AuthStatus::GSS_CREDENTIAL_PROBLEM);
    }
    let mut changed = call.clone();
    *changed.last_mut().unwrap() ^= 1;
    expect(&changed, AuthStatus::GSS_CREDENTIAL_PROBLEM);
    let unsigned = [&call[..68], &[0; 8]].concat();
    expect(&unsigned, AuthStatus::GSS_CREDENTIAL_PROBLEM);
    for handle in [&[][..], &[1; 4], &[0; 16], &[9; 32]] {
        let data = GssData { sequence: 1, service: none, handle };
        let call = client.signed(5, NULL, &GssCredential::Data(data));
        expect(&call, AuthStatus::GSS_CREDENTIAL_PROBLEM);
    }
    let handle = &client.handle;
    let again = client.signed(5, NULL, &GssCredential::ContinueInit { handle });
    expect(&again, AuthStatus::BAD_CREDENTIAL);
    let mut misplaced = init(5, b"alice@REALM");
    misplaced[23] = ECHO as u8;
    expect(&misplaced, AuthStatus::BAD_CREDENTIAL);
    let destroy = client.signed(5, ECHO, &GssCredential::Destroy(client.data(1, none)));
    expect(&destroy, AuthStatus::BAD_CREDENTIAL);
    let mut high = call.clone();
    high[40..44].copy_from_slice(&MAXSEQ.to_be_bytes());
    expect(&high, AuthStatus::GSS_CONTEXT_PROBLEM);
    let mut version = call.clone();
    version[35] = 3;
    expect(&version, AuthStatus::REJECTED_CREDENTIAL);
    // The window has not moved.
    client.open(1, none, &ask(&mut at, &call));
}

#[test]
fn arguments_that_are_not_protected_as_they_say_are_garbage() {
    let (mut at, client) = served();
    for (number, service) in (100..).step_by(100).zip([GssService::Integrity, GssService::Privacy])
    {
        let body = client.body(number, service, &opaque(&[1, 2, 3, 4]));
        // RRC, which nothing covers.
        let counts = |octet: usize| service == GssService::Integrity || !(10..12).contains(&octet);
        let mut sequence = number + 1;
        for octet in (0..body.len()).step_by(3).filter(|octet| counts(*octet)) {
            let mut call = client.call((5, sequence), service, ECHO, &opaque(&[1, 2, 3, 4]));
            let at_octet = call.len() - body.len() + octet;
            call[at_octet] ^= 1;
            let (status, rest) = client.open(sequence, service, &ask(&mut at, &call));
            assert_eq!((status, rest), (Accepted::GarbageArgs, vec![]), "octet {octet}");
            sequence += 1;
        }
        // The arguments of another call, and arguments without protection.
        let head = client.signed(5, ECHO, &GssCredential::Data(client.data(sequence, service)));
        let call = [&head[..], &body].concat();
        assert_eq!(client.open(sequence, service, &ask(&mut at, &call)).0, Accepted::GarbageArgs);
        sequence += 1;
        let head = client.signed(5, ECHO, &GssCredential::Data(client.data(sequence, service)));
        let call = [&head[..], &opaque(&[1, 2, 3, 4])].concat();
        assert_eq!(client.open(sequence, service, &ask(&mut at, &call)).0, Accepted::GarbageArgs);
    }
    at.expect_alive();
}

#[test]
fn a_request_that_is_refused_gets_the_reason_and_no_context() {
    let mut at = serving(&contexts(ENCTYPE, ContextLimits::default()));
    let answer = ask(&mut at, &init(3, b""));
    let (results, verifier) = init_results(&answer);
    assert_eq!((results.major, results.minor), (MajorStatus::NO_CRED, 7));
    assert_eq!((results.handle, results.token, verifier), (&[][..], &b"why"[..], Auth::NONE));
    // Arguments that are no token.
    let mut cut = init(4, b"alice@REALM");
    cut.truncate(cut.len() - 4);
    let answer = ask(&mut at, &cut);
    assert_eq!(answer[20..24], [0, 0, 0, 4], "GARBAGE_ARGS");
    at.expect_alive();
}

/// The major statuses of as many requests as a client may have outstanding, to an acceptor that
/// takes its time.
fn crowd(limits: ContextLimits) -> Vec<MajorStatus> {
    let mut at = serving(&contexts(ENCTYPE, limits));
    let from = Instant::now();
    for xid in 0..GRANT {
        at.raw.send(&message(xid, &ChunkLists::new(), &init(xid, SLOW.as_bytes())), None);
    }
    while at.raw.received.len() < GRANT as usize {
        assert_eq!(at.raw.ended, None, "the connection stays");
        assert!(from.elapsed() < Duration::from_secs(60), "{} answers", at.raw.received.len());
        at.now = at.now + Duration::from_millis(1);
        at.settle();
        std::thread::yield_now();
    }
    assert_eq!(at.shard.calls_in_progress(), (0, 0));
    let answers = at.raw.received.drain(..).map(|(answer, _)| reply(&answer).2);
    answers.map(|answer| init_results(&answer).0.major).collect()
}

#[test]
fn a_crowd_of_requests_of_one_host_waits_for_its_contexts() {
    let limits = ContextLimits { waiting_each_address: 1, ..ContextLimits::default() };
    assert_eq!(crowd(limits), [MajorStatus::COMPLETE; GRANT as usize]);
}

#[test]
fn of_a_larger_crowd_the_rest_is_refused_by_results() {
    let limits = ContextLimits { waiting: 1, ..ContextLimits::default() };
    let majors = crowd(limits);
    let count = |of| majors.iter().filter(|major| **major == of).count();
    let (complete, refused) = (count(MajorStatus::COMPLETE), count(MajorStatus::FAILURE));
    assert!(complete >= 2 && refused >= 1 && complete + refused == GRANT as usize, "{majors:?}");
}

#[test]
fn a_context_ends_with_its_ticket_and_by_the_wish_of_its_client() {
    let (mut at, client) = served();
    let call = client.call((5, 1), GssService::Privacy, NULL, &[]);
    client.open(1, GssService::Privacy, &ask(&mut at, &call));
    for service in SERVICES {
        let client = self::client(&mut at, ENCTYPE, "bob@REALM");
        let end = client.signed(6, NULL, &GssCredential::Destroy(client.data(2, service)));
        let opened = client.open(2, GssService::None, &ask(&mut at, &end));
        assert_eq!(opened, (Accepted::Success, vec![]), "without a body: {service:?}");
        let call = client.call((7, 3), service, NULL, &[]);
        assert_eq!(denied(&ask(&mut at, &call)), AuthStatus::GSS_CREDENTIAL_PROBLEM);
    }
    let late = self::client(&mut at, ENCTYPE, "carol@REALM 1000");
    let call = late.call((8, 1), GssService::None, NULL, &[]);
    assert_eq!(denied(&ask(&mut at, &call)), AuthStatus::GSS_CONTEXT_PROBLEM);
    assert_eq!(denied(&ask(&mut at, &call)), AuthStatus::GSS_CREDENTIAL_PROBLEM, "it is gone");
    let call = client.call((5, 2), GssService::None, NULL, &[]);
    client.open(2, GssService::None, &ask(&mut at, &call));
}

#[test]
fn a_context_serves_at_all_shards_with_one_window() {
    let contexts = contexts(ENCTYPE, ContextLimits::default());
    let (mut one, mut other) = (serving(&contexts), serving(&contexts));
    let client = client(&mut one, ENCTYPE, "alice@REALM");
    let call = client.call((5, 1), GssService::Integrity, NULL, &[]);
    client.open(1, GssService::Integrity, &ask(&mut other, &call));
    one.expect_silence(&message(5, &ChunkLists::new(), &call));
    contexts.forget_all();
    let call = client.call((5, 2), GssService::Integrity, NULL, &[]);
    for at in [&mut one, &mut other] {
        assert_eq!(denied(&ask(at, &call)), AuthStatus::GSS_CREDENTIAL_PROBLEM);
    }
    assert_eq!(contexts.counts().live, 0);
}

#[test]
fn a_restarted_server_knows_no_handle_of_before() {
    let (_, client) = served();
    let mut at = serving(&contexts(ENCTYPE, ContextLimits::default()));
    let other = self::client(&mut at, ENCTYPE, "alice@REALM");
    assert_eq!(client.handle[..8], other.handle[..8], "the same place");
    let call = client.call((5, 1), GssService::None, NULL, &[]);
    assert_eq!(denied(&ask(&mut at, &call)), AuthStatus::GSS_CREDENTIAL_PROBLEM);
}

#[test]
fn the_context_that_was_unused_for_longest_makes_room() {
    let limits = ContextLimits { each_principal: 2, contexts: 3, ..ContextLimits::default() };
    let contexts = contexts(ENCTYPE, limits);
    let mut at = serving(&contexts);
    let bob = client(&mut at, ENCTYPE, "bob@REALM");
    let alices: Vec<_> = (0..2).map(|_| client(&mut at, ENCTYPE, "alice@REALM")).collect();
    let mut sequence = 0;
    let mut works = |at: &mut AtServer, client: &Client| {
        sequence += 1;
        at.now = Time(at.now.0 + 1_000);
        let call = client.call((sequence, sequence), GssService::None, NULL, &[]);
        let answer = ask(at, &call);
        answer[8..12] == [0; 4]
    };
    assert!(works(&mut at, &alices[0]));
    let third = client(&mut at, ENCTYPE, "alice@REALM");
    assert!(!works(&mut at, &alices[1]), "the other one of alice was used later");
    assert!(works(&mut at, &alices[0]) && works(&mut at, &third) && works(&mut at, &bob));
    at.now = Time(at.now.0 + 1_000);
    let carol = client(&mut at, ENCTYPE, "carol@REALM");
    assert!(works(&mut at, &carol) && works(&mut at, &bob) && !works(&mut at, &alices[0]));
    assert_eq!(contexts.counts().displaced, 2);
}

/// A connection over TCP, and its server.
struct Stream {
    shard: Shard<Sim, Echo>,
    socket: TcpStream,
    now: Time,
}

impl Stream {
    fn new() -> Self {
        let gss = Some(contexts(ENCTYPE, ContextLimits::default()));
        let config = Config { gss, ..config() };
        let end = Fabric::new(1, Faults::NONE).end("server", stag_sim::LIMITS);
        let mut shard = Shard::new(end, Echo::default(), config, Box::new(|_| true)).unwrap();
        let at = shard.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let socket = TcpStream::connect(at).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { shard, socket, now: Time(0) }
    }

    fn send(&mut self, octets: &[u8]) {
        let fragment = record::Fragment::new(octets.len() as u32, true).unwrap();
        self.socket.write_all(&[&fragment.emit()[..], octets].concat()).unwrap();
    }

    fn receive(&mut self) -> Vec<u8> {
        let (from, mut octets) = (Instant::now(), Vec::new());
        loop {
            assert!(from.elapsed() < Duration::from_secs(60), "a reply comes");
            self.now = self.now + Duration::from_micros(10);
            self.shard.pass(self.now);
            let mut part = [0; 4_096];
            if let Ok(len) = self.socket.read(&mut part) {
                octets.extend_from_slice(&part[..len]);
            }
            if let Some((head, rest)) = octets.split_first_chunk::<4>()
                && rest.len() == (u32::from_be_bytes(*head) & 0x7fff_ffff) as usize
            {
                return rest.to_vec();
            }
        }
    }

    fn ask(&mut self, octets: &[u8]) -> Vec<u8> {
        self.send(octets);
        self.receive()
    }
}

#[test]
fn calls_over_tcp_are_protected_too() {
    let mut at = Stream::new();
    let client = Client::of(ENCTYPE, &at.ask(&init(1, b"alice@REALM")));
    let mut sequence = 0;
    for service in SERVICES {
        for len in [0, 3, 20_000] {
            sequence += 1;
            let arguments = [3_u32.to_be_bytes(), 50_u32.to_be_bytes()].concat();
            let call = client.call((sequence, sequence), service, PUSH, &arguments);
            let opened = client.open(sequence, service, &at.ask(&call));
            assert_eq!(opened, (Accepted::Success, opaque(part(3, 50).unwrap())));
            // It gets no answer, unlike the one after it.
            at.send(&call);
            sequence += 1;
            let octets = pattern(len);
            let call = client.call((sequence, sequence), service, ECHO, &opaque(&octets));
            let opened = client.open(sequence, service, &at.ask(&call));
            assert!(opened == (Accepted::Success, opaque(&octets)), "{service:?} {len}");
        }
    }
    let stats = at.shard.snapshot().engine;
    assert_eq!((stats.gss.calls, stats.gss.replayed), (18, 9));
    assert_eq!(at.shard.calls_in_progress(), (0, 0));
}
