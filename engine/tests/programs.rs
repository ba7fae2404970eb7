//! Our own programs: items that their bindings allow in chunks (docs/bindings.md), and procedure
//! zero.

use crate::support::{AtServer, config, message, pattern, reply, rpc, rpc_of};
use stag_echo::{ECHO, ECHO_MAX, Echo, NULL, PULL, PUSH, UNCHECKED};
use stag_engine::{Config, stages::service};
use stag_pools::Access;
use stag_protocol::{
    rpc::{
        Accepted, Auth, AuthStatus, AuthSys, CallHeader, Credential, Denied, Gids, Outcome,
        ReplyHeader, flavor,
    },
    rpcrdma::{ChunkLists, Position, Xid},
    xdr::{Reader, Writer},
};

/// Octets of the longest call without arguments.
const CALL_LEN: usize = 64;

/// A call whose octets after `inline` travel in a Read chunk, and which offers a Write chunk of
/// `room` octets. Returns its outcome, its results, and the number of octets in the Write chunk.
fn call(
    procedure: (u32, u32, u32),
    inline: &[u8],
    chunk: &[u8],
    room: usize,
) -> (Outcome<'static>, Vec<u8>, u32) {
    let mut at = AtServer::new();
    let mut lists = ChunkLists::new();
    let octets = rpc_of(procedure, 7, inline);
    if !chunk.is_empty() {
        let source = at.raw.window(chunk, Access::RemoteRead);
        lists.push_read(Position::new(octets.len() as u32).unwrap(), source).unwrap();
    }
    lists.begin_write().unwrap();
    lists.push_write(at.raw.window(&vec![0; room], Access::RemoteWrite)).unwrap();
    let (answer, _) = at.ask(&message(7, &lists, &octets)).expect("each call is answered");
    let (_, returned, payload) = reply(&answer);
    let mut reader = Reader::new(&payload);
    let outcome = match ReplyHeader::parse(&mut reader).unwrap().outcome {
        Outcome::Accepted { status, .. } => Outcome::accepted(status),
        Outcome::Denied(denied) => Outcome::Denied(denied),
    };
    let written =
        returned.writes().next().map_or(0, |chunk| chunk.segments.iter().map(|s| s.length).sum());
    (outcome, payload[payload.len() - reader.remaining()..].to_vec(), written)
}

fn word(value: u32) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

#[test]
fn what_the_bindings_name_travels_in_chunks_and_nothing_else_does() {
    let (program, version) = (stag_echo::PROGRAM, stag_echo::VERSION);
    let octets = pattern(9_000);
    let success = Outcome::accepted(Accepted::Success);
    let garbage = Outcome::accepted(Accepted::GarbageArgs);
    // Echo: the octets of ECHO both ways, those of PULL in, those of PUSH out.
    let echo = |procedure| (program, version, procedure);
    assert_eq!(call(echo(ECHO), &word(9_000), &octets, 9_000), (success, word(9_000), 9_000));
    let pull = [word(UNCHECKED), word(9_000)].concat();
    assert_eq!(call(echo(PULL), &pull, &octets, 9_000), (success, word(1), 0));
    let push = [word(3), word(9_000)].concat();
    assert_eq!(call(echo(PUSH), &push, &[], 9_000), (success, word(9_000), 9_000));
    // Not the words in front of them.
    assert_eq!(
        call(echo(ECHO), &[], &[word(9_000), octets.clone()].concat(), 9_000),
        (garbage, vec![], 0)
    );
    assert_eq!(call(echo(PULL), &[], &pull, 9_000), (garbage, vec![], 0));
    assert_eq!(call(echo(PULL), &word(UNCHECKED), &word(4), 9_000), (garbage, vec![], 0));
    assert_eq!(call(echo(PUSH), &[], &push, 9_000), (garbage, vec![], 0));
    // Longer than the program has it.
    assert_eq!(call(echo(ECHO), &word(ECHO_MAX as u32 + 1), &octets, 9_000), (garbage, vec![], 0));
    // Stages: the histograms.
    let (outcome, results, written) =
        call((service::PROGRAM, service::VERSION, service::ASK), &[], &[], 9_000);
    assert_eq!((outcome, results), (success, word(written)));
    assert!(written > 0, "they went into the chunk");
}

#[test]
fn a_program_without_memory_says_system_err() {
    // No buffer holds the octets that PUSH pushes.
    let mut at = AtServer::serving(Echo::default(), Config { slots: [512, 16, 0], ..config() });
    let push = [word(0), word(10)].concat();
    let (answer, _) = at.ask(&message(7, &ChunkLists::new(), &rpc(7, PUSH, &push))).unwrap();
    let (_, _, payload) = reply(&answer);
    let outcome = ReplyHeader::parse(&mut Reader::new(&payload)).unwrap().outcome;
    assert_eq!(outcome, Outcome::accepted(Accepted::SystemErr));
    at.expect_alive();
}

#[test]
fn procedure_zero_needs_no_credential_and_gives_nothing() {
    for (program, version, procedure) in procedures_zero() {
        let user =
            AuthSys { stamp: 1, machine_name: b"host", uid: 7, gid: 8, gids: Gids::default() };
        for credential in [Credential::None, Credential::Sys(user)] {
            let header = called(program, version, procedure, credential);
            assert_eq!(outcome_of(header), Outcome::accepted(Accepted::Success));
        }
    }
}

#[test]
fn procedure_zero_denies_flavors_that_it_does_not_know() {
    for (program, version, procedure) in procedures_zero() {
        for flavor in [flavor::SHORT, flavor::DH, flavor::GSS, u32::MAX] {
            let credential = Credential::Other(Auth { flavor, body: &[] });
            let header = called(program, version, procedure, credential);
            let too_weak = Outcome::Denied(Denied::AuthError(AuthStatus::TOO_WEAK));
            assert_eq!(outcome_of(header), too_weak);
        }
    }
}

const fn procedures_zero() -> [(u32, u32, u32); 2] {
    [
        (stag_echo::PROGRAM, stag_echo::VERSION, NULL),
        (service::PROGRAM, service::VERSION, service::NULL),
    ]
}

const fn called(
    program: u32,
    version: u32,
    procedure: u32,
    credential: Credential<'_>,
) -> CallHeader<'_> {
    CallHeader { xid: Xid(7), program, version, procedure, credential, verifier: Auth::NONE }
}

/// The outcome of a call without arguments; nothing follows it in the reply.
fn outcome_of(header: CallHeader<'_>) -> Outcome<'static> {
    let mut octets = [0; CALL_LEN];
    let mut writer = Writer::new(&mut octets);
    header.emit(&mut writer).unwrap();
    let len = writer.len();
    let (answer, _) = AtServer::new().ask(&message(7, &ChunkLists::new(), &octets[..len])).unwrap();
    let (_, _, payload) = reply(&answer);
    let mut reader = Reader::new(&payload);
    let outcome = ReplyHeader::parse(&mut reader).unwrap().outcome;
    assert_eq!(reader.remaining(), 0);
    match outcome {
        Outcome::Denied(Denied::AuthError(status)) => Outcome::Denied(Denied::AuthError(status)),
        Outcome::Denied(denied) => panic!("{denied:?}"),
        Outcome::Accepted { status, .. } => Outcome::accepted(status),
    }
}
