//! Calls that need no memory of the client's shard.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_rpc::{
    AsyncClient, AuthSys, Bulk, CallError, Client, ClientBuilder, Clock, Config, Credential, Gids,
    Octets, RawCall, RawClient, Replied, Replier, Server, Text, Token, program,
};
use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

const TIMEOUT: Duration = Duration::from_secs(20);

program! {
    /// Short results, and long ones.
    pub mod sizes: 0x2053_5406, version 1 {
        /// The text, and the caller's user.
        1 => fn tell(text: Text<200>) -> (Text<200>, u32);
        /// The same octets.
        2 => fn echo(octets: Bulk<100_000>) -> Bulk<100_000>;
    }
}

struct Sizes;

impl sizes::Service for Sizes {
    fn tell(&mut self, text: &str, reply: Replier<'_, '_, (Text<200>, u32)>) -> Replied {
        let user = match reply.credential() {
            Credential::Sys(sys) => sys.uid,
            _ => 0,
        };
        reply.send((text, user))
    }

    fn echo(&mut self, octets: Octets<'_>, reply: Replier<'_, '_, Bulk<100_000>>) -> Replied {
        reply.send(octets)
    }
}

/// A server over each fabric that takes a copy of what it sends, for the test of this name.
fn servers(test: &str) -> [Server; 2] {
    let name = format!("stag-rpc-short-{test}-{}.sock", std::process::id());
    let shm = format!("shm://{}", std::env::temp_dir().join(name).display());
    [&*shm, "iwarp://127.0.0.1:0"]
        .map(|url| Server::builder().listen(url).serve(|| sizes::Serve(Sizes)).unwrap())
}

fn user() -> Credential<'static> {
    let gids = Gids::new(&[7, 8]).unwrap();
    Credential::Sys(AuthSys { stamp: 0, machine_name: b"short", uid: 5, gid: 6, gids })
}

/// Memory for three messages, and places for many more calls.
fn config() -> Config {
    Config { slots: [1, 1, 1], peers: 2, outbound: 64, calls_max: 64, ..Config::small() }
}

fn builder() -> ClientBuilder {
    Client::builder().config(config()).timeout(TIMEOUT).credential(user())
}

#[test]
fn a_client_tells_who_calls_and_gets_what_it_asks_for() {
    for server in servers("client") {
        let client = builder().connect(&server.addresses()[0]).unwrap();
        let mut client = sizes::Client::over(client);
        for len in [0, 1, 7, 200] {
            let text = "x".repeat(len);
            assert_eq!(client.tell(&text).unwrap(), (&*text, 5));
            assert_eq!(client.echo(Octets::from(&*vec![7; len])).unwrap().len(), len);
        }
    }
}

#[test]
fn short_calls_of_an_asynchronous_client_need_no_buffers() {
    for server in servers("async") {
        let client: AsyncClient = builder().connect_async(&server.addresses()[0]).unwrap();
        let client = sizes::AsyncClient::over(client);
        let texts: Vec<_> = (0..60).map(|len| "x".repeat(len)).collect();
        let calls: Vec<_> = texts.iter().map(|text| client.tell(text)).collect();
        for (call, text) in calls.into_iter().zip(&texts) {
            assert_eq!(wait(call).unwrap().results().unwrap(), (&**text, 5));
        }
        let reply = wait(client.echo(Octets::from(b"octets"))).unwrap();
        assert_eq!(reply.results().unwrap().as_slice(), b"octets");
    }
}

/// The end of a future, which is asked again and again.
fn wait<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

#[test]
fn a_short_call_by_hand_needs_no_buffer_and_says_when_it_is_too_long() {
    for server in servers("raw") {
        let url = &server.addresses()[0];
        let mut client = RawClient::connect_url(url, config(), Clock::start(), TIMEOUT).unwrap();
        let call = RawCall {
            credential: user(),
            arguments_max: 8,
            results_max: 12,
            ..RawCall::new(sizes::PROGRAM, 1, 1)
        };
        assert_eq!(client.send(&call, |to| to.opaque(b"12345")), Err(CallError::TooLong));
        let token = client.send(&call, |to| to.opaque(b"1234")).unwrap();
        assert_eq!((client.buffers_in_use(), client.calls_in_progress()), (0, (0, 1)));
        assert_eq!(tell(&mut client, token), b"1234");
        // Its longest reply does not go inline.
        let listing = RawCall { results_max: 30_000, ..call };
        let token = client.send(&listing, |to| to.opaque(b"1234")).unwrap();
        assert!(client.buffers_in_use() > 0);
        assert_eq!(tell(&mut client, token), b"1234");
    }
}

/// The text in the next reply, which is that of this call.
fn tell(client: &mut RawClient, token: Token) -> Vec<u8> {
    let finished = client.next_finished().unwrap();
    assert_eq!(finished.token, token);
    let told = finished.read_results(|mut results| {
        Ok::<_, CallError>(results.opaque(200).map_err(CallError::Garbled)?.to_vec())
    });
    told.unwrap()
}
