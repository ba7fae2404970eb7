//! The client below the types, and a kept client over TCP.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_rpc::{
    Accepted, Bulk, CallError, CallFault, Client, Clock, Config, ConnectFault, Credential,
    Endpoint, Octets, OptionFault, RawCall, RawClient, Replied, Replier, Server, program,
};
use std::{
    thread,
    time::{Duration, Instant},
};

const TIMEOUT: Duration = Duration::from_secs(20);

program! {
    /// Sends back what it is sent.
    pub mod mirror: 0x2053_5405, version 1 {
        /// The same octets.
        1 => fn echo(octets: Bulk<100_000>) -> Bulk<100_000>;
    }
}

struct Mirror;

impl mirror::Service for Mirror {
    fn echo(&mut self, octets: Octets<'_>, reply: Replier<'_, '_, Bulk<100_000>>) -> Replied {
        reply.send(octets)
    }
}

fn serve(url: &str) -> Server {
    Server::builder().listen(url).serve(|| mirror::Serve(Mirror)).unwrap()
}

fn config() -> Config {
    Config { peers: 2, receives: 64, inbound: 64, outbound: 4, calls_max: 4, ..Config::small() }
}

fn echo(octets: &[u8]) -> RawCall<'_> {
    RawCall {
        arguments_max: 4,
        results_max: 4,
        item_max: 100_000,
        item: Some(octets),
        ..RawCall::new(mirror::PROGRAM, 1, 1)
    }
}

#[test]
fn items_go_both_ways_and_outcomes_carry_the_tokens_of_their_calls() {
    for url in ["sim://0", "iwarp://127.0.0.1:0", "tcp://127.0.0.1:0"] {
        let server = serve(url);
        let at = &server.addresses()[0];
        let mut client = RawClient::connect_url(at, config(), Clock::start(), TIMEOUT).unwrap();
        assert!(client.is_up() && client.has_peer());
        let octets: Vec<u8> = (0..90_000_u32).map(|place| place as u8).collect();
        let parts = [&octets[..50_000], &octets[50_000..]];
        let tokens = parts.map(|part| {
            let len = part.len() as u32;
            client.send(&echo(part), |writer| writer.u32(len)).unwrap()
        });
        for _ in parts {
            let finished = client.next_finished().unwrap();
            let part = parts[tokens.iter().position(|token| *token == finished.token).unwrap()];
            let same = finished.read_results(|mut results| {
                let came = results.item(100_000).map_err(CallError::Garbled)?;
                Ok::<_, CallError>(came == part)
            });
            assert_eq!(same, Ok(true), "over {at}");
            client.give(finished);
        }
        assert_eq!(client.calls(), 2);
        assert_eq!(client.buffers_in_use(), 0);
        client.disconnect();
        assert!(!client.is_up() && !client.has_peer());
        let refused = client.send(&RawCall::new(mirror::PROGRAM, 1, 0), |_| Ok(()));
        assert_eq!(refused, Err(CallError::Failed(CallFault::NoPeer)));
        assert!(matches!(client.health(), Err(OptionFault::NoPeer)));
    }
}

#[test]
fn outcomes_that_nobody_takes_stop_further_calls() {
    let server = serve("sim://0");
    let at = &server.addresses()[0];
    let mut client = RawClient::connect_url(at, config(), Clock::start(), TIMEOUT).unwrap();
    let null = RawCall::new(mirror::PROGRAM, 1, 0);
    // The passes that wait for one outcome bring the others.
    for _ in 0..4 {
        client.send(&null, |_| Ok(())).unwrap();
    }
    let first = client.next_finished().unwrap();
    client.give(first);
    let mut made = 0;
    while client.send(&null, |_| Ok(())).is_ok() {
        made += 1;
        assert!(made < 100, "outcomes pile up");
        assert!(client.health().is_err(), "version 1 has no options");
    }
}

#[test]
fn a_client_that_waits_for_long_sleeps_and_is_woken_by_what_comes() {
    for url in ["iwarp://127.0.0.1:0", "tcp://127.0.0.1:0"] {
        let server = serve(url);
        let at = server.addresses()[0].clone();
        let mut client = RawClient::connect_url(&at, config(), Clock::start(), TIMEOUT).unwrap();
        let started = Instant::now();
        client.serve_for(Duration::from_millis(100));
        assert!(started.elapsed() >= Duration::from_millis(100));
        let slept = client.snapshot().engine.passes.sleeps;
        // Looks between naps of 50 microseconds would be some thousand.
        assert!(slept < 20, "{slept} over {at}");
        let ends = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            drop(server);
        });
        let passes = client.snapshot().engine.passes;
        client.serve_for(TIMEOUT);
        ends.join().unwrap();
        assert!(!client.is_up(), "the end of the connection ends the sleep");
        // Without that, the longest sleeps of a second would follow each other.
        let slept = client.snapshot().engine.passes.sleeps - passes.sleeps;
        assert!(slept < 10, "{slept} over {at}");
    }
}

#[test]
fn a_kept_client_that_only_serves_connects_again() {
    let server = serve("iwarp://127.0.0.1:0");
    let url = server.addresses()[0].clone();
    let at = Endpoint::parse(&url).unwrap();
    let clock = Clock::start();
    let mut client = RawClient::on_fabric(at.fabric(), config(), clock, TIMEOUT).unwrap();
    client.connect_endpoint(&at, true).unwrap();
    let mut serves_until = |is_up: bool| {
        let until = Instant::now() + TIMEOUT;
        while client.is_up() != is_up {
            assert!(Instant::now() < until, "up: {is_up}");
            client.serve_for(Duration::from_millis(1));
        }
    };
    drop(server);
    serves_until(false);
    let _server = serve(&url);
    serves_until(true);
}

#[test]
fn a_call_names_the_mistake_of_its_own_or_of_the_server() {
    let server = serve("sim://0");
    let at = &server.addresses()[0];
    let mut client = RawClient::connect_url(at, config(), Clock::start(), TIMEOUT).unwrap();
    let short = RawCall { arguments_max: 4, ..RawCall::new(mirror::PROGRAM, 1, 1) };
    let long = client.send(&short, |writer| writer.u64(7));
    assert_eq!(long, Err(CallError::TooLong));
    client.send(&RawCall::new(mirror::PROGRAM, 1, 9), |_| Ok(())).unwrap();
    let finished = client.next_finished().unwrap();
    let read = finished.read_results(|_| Ok::<_, CallError>(()));
    assert_eq!(read, Err(CallError::Rejected(Accepted::ProcUnavail)));
    assert_eq!(finished.token.0 & 1, 0, "the call that was never made has no token");
}

#[test]
fn a_connection_that_cannot_be_made_takes_no_place_of_the_next_one() {
    // It listens, and never answers: the kernel takes connections for it.
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = Endpoint::parse(&format!("iwarp://{}", deaf.local_addr().unwrap())).unwrap();
    let server = serve("iwarp://127.0.0.1:0");
    let good = Endpoint::parse(&server.addresses()[0]).unwrap();
    let config = Config { peers: 1, ..config() };
    let timeout = Duration::from_secs(1);
    let mut client = RawClient::on_fabric(at.fabric(), config, Clock::start(), timeout).unwrap();
    for keep in [false, true] {
        assert_eq!(client.connect_endpoint(&at, keep), Err(ConnectFault::TimedOut));
        assert_eq!(client.connect_endpoint(&good, keep), Ok(()));
        client.disconnect();
    }
}

#[test]
fn a_kept_client_over_tcp_connects_again_with_the_next_call() {
    let server = serve("tcp://127.0.0.1:0");
    let at = server.addresses()[0].clone();
    let builder = Client::builder().keep_connected().credential(Credential::None);
    let client = builder.timeout(TIMEOUT).connect(&at).unwrap();
    let mut client = mirror::Client::over(client);
    assert!(client.echo(Octets::from(b"one")).is_ok());
    drop(server);
    assert!(client.echo(Octets::from(b"two")).is_err());
    let _server = serve(&at);
    assert_eq!(client.echo(Octets::from(b"three")).unwrap().as_slice(), b"three");
}
