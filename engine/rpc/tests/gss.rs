//! Calls in contexts of RPCSEC_GSS, over a simulated fabric and over TCP, against a server that
//! verifies them and misbehaves on demand.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

#[allow(dead_code)] // Of what it can do, some is for other tests.
mod gss_server;

use gss_server::{Defect, ITEM_MAX, PROGRAM, Server, State, Tickets, item};
use stag_engine::Shard;
use stag_protocol::rpc::gss::{GssService, MAXSEQ};
use stag_rpc::{AuthStatus, CallError, Config, Denied, FinishedCall, RawCall, RawClient, Token};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Limits, Time};
use std::{cell::RefCell, collections::BTreeSet, rc::Rc, time::Duration};

const AT: Port = Port(700);
/// In time of the simulation.
const TIMEOUT: Duration = Duration::from_millis(500);
const SERVICES: [GssService; 3] = [GssService::None, GssService::Integrity, GssService::Privacy];

/// A client and the state of its server. It has no context yet.
struct World {
    client: RawClient<Sim>,
    state: Rc<RefCell<State>>,
}

fn world(service: GssService, over_tcp: bool) -> World {
    world_from(service, over_tcp, 1)
}

/// The same; the numbers of each context begin with `first`.
fn world_from(service: GssService, over_tcp: bool, first: u32) -> World {
    let fabric = Fabric::new(1, Faults::NONE);
    let state = Rc::<RefCell<State>>::default();
    let limits = Limits { windows: 256, receives: 256, ..stag_sim::LIMITS };
    let config = Config { grant: 8, ..Config::small() };
    let app = Server(Rc::clone(&state));
    let end = fabric.end("server", limits);
    let mut server = Shard::new(end, app, config, Box::new(|_| true)).unwrap();
    server.listen(&AT).unwrap();
    let tcp = server.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
    let config = Config { outbound: 8, calls_max: 8, ..Config::small() };
    let end = fabric.end("client", config.limits(64));
    let mut time = 0;
    let now = move || {
        time += 500;
        server.pass(Time(time));
        Time(time)
    };
    let mut client = RawClient::new(end, config, TIMEOUT, now).unwrap();
    match over_tcp {
        true => client.connect_tcp(tcp).unwrap(),
        false => client.keep_connected(&AT).unwrap(),
    }
    client.protect(Box::new(Tickets(first)), service);
    World { client, state }
}

impl World {
    /// Begins a call that the server answers with its item.
    fn send(&mut self, octets: &[u8]) -> Result<Token, CallError> {
        let call = RawCall {
            arguments_max: 4,
            results_max: 4,
            item_max: ITEM_MAX,
            item: Some(octets),
            ..RawCall::new(PROGRAM, 1, 1)
        };
        self.client.send_protected(&call, |to| to.u32(octets.len() as u32))
    }

    /// Makes such a call; returns the item.
    fn echo(&mut self, octets: &[u8]) -> Result<Vec<u8>, CallError> {
        let token = self.send(octets)?;
        let finished: FinishedCall = self.client.next_finished()?;
        assert_eq!(finished.token, token);
        finished.read_results(|results| item(results).map(<[u8]>::to_vec))
    }

    fn null(&mut self) -> Result<(), CallError> {
        self.client.send_protected(&RawCall::new(PROGRAM, 1, 0), |_| Ok(()))?;
        self.client.next_finished()?.read_results(|_| Ok(()))
    }

    fn contexts(&self) -> usize {
        self.state.borrow().contexts.len()
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|place| (place * 7 + place / 251) as u8).collect()
}

#[test]
fn calls_of_every_protection_and_length_go_both_ways_in_one_context() {
    for over_tcp in [true, false] {
        for service in SERVICES {
            let mut world = world(service, over_tcp);
            world.null().unwrap();
            for len in [1, 4, 100, 3_500, 4_000, 5_003, 65_536, 90_001] {
                let octets = pattern(len);
                assert_eq!(world.echo(&octets), Ok(octets), "{service:?} {len} tcp {over_tcp}");
            }
            assert_eq!(world.contexts(), 1);
            assert_eq!(world.client.buffers_in_use(), 0);
            world.client.disconnect();
            let state = world.state.borrow();
            assert_eq!(state.destroyed, 1, "{service:?} tcp {over_tcp}");
            let numbers: BTreeSet<_> = state.seen.iter().map(|(_, number)| *number).collect();
            assert_eq!(numbers.len(), state.seen.len(), "each call has a number of its own");
        }
    }
}

#[test]
fn only_calls_without_protected_bodies_have_chunks_for_data() {
    for service in SERVICES {
        let mut world = world(service, false);
        let octets = pattern(90_000);
        assert_eq!(world.echo(&octets), Ok(octets));
        let requester = world.client.snapshot().engine.requester;
        let is_reduced = service == GssService::None;
        // RFC 8166 §8.2.2.3: with integrity or privacy, messages travel whole.
        assert_eq!(requester.chunks.write > 0, is_reduced, "{service:?}");
        assert_eq!(requester.calls.chunked > 0, is_reduced, "{service:?}");
        assert_eq!(requester.calls.long > 0, !is_reduced, "{service:?}");
        assert_eq!(requester.replies.long > 0, !is_reduced, "{service:?}");
    }
}

#[test]
fn several_calls_at_a_time_have_their_own_numbers_and_replies() {
    for over_tcp in [true, false] {
        for service in SERVICES {
            let mut world = world(service, over_tcp);
            let all: Vec<_> = (1..=6).map(|call| pattern(call * 3_001)).collect();
            let tokens: Vec<_> = all.iter().map(|octets| world.send(octets).unwrap()).collect();
            for _ in &all {
                let finished = world.client.next_finished().unwrap();
                let place = tokens.iter().position(|token| *token == finished.token).unwrap();
                let same = finished.read_results(|results| Ok(item(results)? == all[place]));
                assert_eq!(same, Ok::<_, CallError>(true), "{service:?} tcp {over_tcp}");
            }
            assert_eq!(world.contexts(), 1);
        }
    }
}

#[test]
fn a_reply_that_is_not_protected_as_asked_is_an_error() {
    for over_tcp in [true, false] {
        for service in SERVICES {
            let mut world = world(service, over_tcp);
            let verifiers = [Defect::NoVerifier, Defect::OtherNumber, Defect::WrongMic];
            let bodies = [Defect::ClearResults, Defect::WrongResults];
            let bodies = if service == GssService::None { &[][..] } else { &bodies };
            for defect in verifiers.iter().chain(bodies) {
                world.state.borrow_mut().defect = *defect;
                let refused = world.echo(&pattern(5_000));
                assert!(matches!(refused, Err(CallError::Unproven(_))), "{defect:?} {refused:?}");
                world.state.borrow_mut().defect = Defect::None;
                let octets = pattern(10);
                assert_eq!(world.echo(&octets), Ok(octets), "after {defect:?}");
            }
            assert_eq!(world.contexts(), 1);
        }
    }
}

#[test]
fn a_call_whose_context_is_gone_is_made_again_in_another_one() {
    for over_tcp in [true, false] {
        for service in SERVICES {
            let mut world = world(service, over_tcp);
            let octets = pattern(6_000);
            assert_eq!(world.echo(&octets), Ok(octets.clone()));
            world.state.borrow_mut().contexts[0] = None;
            assert_eq!(world.echo(&octets), Ok(octets.clone()), "{service:?} tcp {over_tcp}");
            assert_eq!(world.contexts(), 2);
            // Several calls of one lost context get one other context.
            world.state.borrow_mut().contexts[1] = None;
            let tokens: BTreeSet<_> = (0..3).map(|_| world.send(&octets).unwrap().0).collect();
            let ended: BTreeSet<_> = (0..3)
                .map(|_| {
                    let finished = world.client.next_finished().unwrap();
                    let same = finished.read_results(|results| Ok(item(results)? == octets));
                    assert_eq!(same, Ok::<_, CallError>(true));
                    finished.token.0
                })
                .collect();
            assert_eq!((tokens, world.contexts()), (ended, 3));
        }
    }
}

#[test]
fn a_server_that_never_knows_a_context_is_asked_twice() {
    for status in [AuthStatus::GSS_CREDENTIAL_PROBLEM, AuthStatus::GSS_CONTEXT_PROBLEM] {
        let mut world = world(GssService::Integrity, true);
        world.state.borrow_mut().defect = Defect::NoContext(status);
        let denied = world.echo(&pattern(10));
        assert_eq!(denied, Err(CallError::Denied(Denied::AuthError(status))));
        assert_eq!(world.contexts(), 2);
    }
    // Any other denial is final.
    let mut world = world(GssService::Integrity, true);
    world.state.borrow_mut().defect = Defect::NoContext(AuthStatus::TOO_WEAK);
    let denied = world.echo(&pattern(10));
    assert_eq!(denied, Err(CallError::Denied(Denied::AuthError(AuthStatus::TOO_WEAK))));
    assert_eq!(world.contexts(), 1);
}

#[test]
fn a_context_whose_numbers_are_used_up_is_renewed() {
    let mut world = world_from(GssService::Privacy, true, MAXSEQ - 2);
    for _ in 0..5 {
        let octets = pattern(10);
        assert_eq!(world.echo(&octets), Ok(octets));
    }
    assert_eq!(world.contexts(), 3);
    assert!(world.state.borrow().seen.iter().all(|(_, number)| *number < MAXSEQ));
}

#[test]
fn a_retransmission_has_the_xid_of_the_call_and_a_number_of_its_own() {
    for service in SERVICES {
        for len in [10, 90_000] {
            let mut world = world(service, false);
            world.null().unwrap();
            world.state.borrow_mut().defect = Defect::Disconnects;
            let octets = pattern(len);
            assert_eq!(world.echo(&octets), Ok(octets), "{service:?} {len}");
            let state = world.state.borrow();
            let [.., (first, one), (second, other)] = state.seen[..] else {
                panic!("it was sent twice: {:?}", state.seen)
            };
            assert_eq!(first, second);
            assert!(one < other, "{one} {other}");
        }
    }
}

#[test]
fn without_a_context_no_call_is_made_and_the_reason_is_a_sentence() {
    for (defect, part) in [
        (Defect::RefusedContext, "the clock is wrong"),
        (Defect::OtherWindow, "does not prove its identity"),
    ] {
        let mut world = world(GssService::None, true);
        world.state.borrow_mut().defect = defect;
        assert_eq!(world.null(), Err(CallError::NoContext));
        let sentence = world.client.take_context_fault().unwrap().to_string();
        assert!(sentence.contains(part), "{sentence}");
        assert_eq!(world.client.take_context_fault(), None);
        assert_eq!(world.state.borrow().seen, []);
        world.state.borrow_mut().defect = Defect::None;
        world.null().unwrap();
    }
}
