//! Methods that panic: the caller gets SYSTEM_ERR, the server goes on and counts.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use stag_rpc::{
    Accepted, CallError, Client, Cx, LaterReply, PeerAddress, PeerId, Replied, Replier, Server,
    call, program,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

program! {
    /// Panics in all places.
    pub mod fragile: 0x2053_5409, version 1 {
        /// Before the reply.
        1 => fn at_once();
        /// While the reply is written.
        2 => fn while_writing() -> u32;
        /// After the reply.
        3 => fn after() -> u32;
        /// With a reply promised and dropped.
        4 => fn with_promise() -> u32;
        /// With a reply promised and kept.
        5 => fn with_kept_promise() -> u32;
        /// Sends what was kept.
        6 => fn send_kept();
        /// The number of calls.
        7 => fn count() -> u32;
        /// Calls the caller back, and panics at the outcome.
        8 => fn call_back();
    }
}

#[derive(Default)]
struct Fragile {
    calls: u32,
    kept: Vec<LaterReply<u32>>,
}

impl fragile::Service for Fragile {
    fn at_once(&mut self, _: Replier<'_, '_, ()>) -> Replied {
        self.calls += 1;
        panic!("at once")
    }

    fn while_writing(&mut self, reply: Replier<'_, '_, u32>) -> Replied {
        reply.write(|encoder| {
            encoder.put::<u32>(&1)?;
            panic!("while writing")
        })
    }

    fn after(&mut self, reply: Replier<'_, '_, u32>) -> Replied {
        let _replied = reply.send(5);
        panic!("after")
    }

    fn with_promise(&mut self, reply: Replier<'_, '_, u32>) -> Replied {
        let (_later, _) = reply.later();
        panic!("with a promise")
    }

    fn with_kept_promise(&mut self, reply: Replier<'_, '_, u32>) -> Replied {
        self.kept.push(reply.later().0);
        panic!("with a promise that is kept")
    }

    fn send_kept(&mut self, mut reply: Replier<'_, '_, ()>) -> Replied {
        for (kept, value) in self.kept.drain(..).zip(7..) {
            kept.send(reply.cx(), value);
        }
        reply.send(())
    }

    fn count(&mut self, reply: Replier<'_, '_, u32>) -> Replied {
        reply.send(self.calls)
    }

    fn call_back(&mut self, mut reply: Replier<'_, '_, ()>) -> Replied {
        let peer = reply.peer();
        reply.cx().ready(peer);
        let time = Duration::from_secs(5);
        call::<fragile::procedures::count>(reply.cx(), peer, (), time, 1).unwrap();
        reply.send(())
    }

    fn on_reply(&mut self, _: &mut Cx<'_>, _: &stag_rpc::CallOutcome<'_>) {
        panic!("at an outcome")
    }

    fn on_peer_down(&mut self, _: PeerId) {
        panic!("at an end")
    }
}

const URLS: [&str; 3] = ["iwarp://127.0.0.1:0", "tcp://127.0.0.1:0", "sim://0"];

fn serve(url: &str) -> Server {
    Server::builder().listen(url).serve(|| fragile::Serve(Fragile::default())).unwrap()
}

/// Waits until the server has counted `count` panics.
fn await_panics(server: &Server, client: &mut fragile::Client, count: u64) {
    let until = Instant::now() + Duration::from_secs(20);
    while server.panics() < count {
        assert!(Instant::now() < until, "{} of {count} panics", server.panics());
        client.count().unwrap();
    }
    assert_eq!(server.panics(), count);
}

#[test]
fn a_panic_in_a_method_is_system_err_and_all_others_are_served() {
    let failed = CallError::Rejected(Accepted::SystemErr);
    for url in URLS {
        let server = serve(url);
        let url = &server.addresses()[0];
        let mut client = fragile::Client::connect(url).unwrap();
        let mut other = fragile::Client::connect(url).unwrap();
        assert_eq!(client.at_once().unwrap_err(), failed, "over {url}");
        assert_eq!(client.while_writing().unwrap_err(), failed, "over {url}");
        assert_eq!(client.after(), Ok(5), "answered before it panicked, over {url}");
        assert_eq!(client.with_promise().unwrap_err(), failed, "over {url}");
        assert_eq!((client.count(), other.count()), (Ok(1), Ok(1)), "over {url}");
        assert_eq!(server.panics(), 4);
        server.stop().unwrap();
    }
}

#[test]
fn a_promise_that_a_panicking_method_kept_is_answered_once() {
    let server = serve("iwarp://127.0.0.1:0");
    let url = &server.addresses()[0];
    let mut other = fragile::Client::connect(url).unwrap();
    let caller = {
        let url = url.clone();
        std::thread::spawn(move || {
            let mut client = fragile::Client::connect(&url).unwrap();
            let kept = client.with_kept_promise();
            (kept, client.count())
        })
    };
    await_panics(&server, &mut other, 1);
    other.send_kept().unwrap();
    assert_eq!(caller.join().unwrap(), (Ok(7), Ok(0)));
}

#[test]
fn panics_at_outcomes_and_ends_are_counted_and_leave_the_server() {
    let server = serve("iwarp://127.0.0.1:0");
    let url = &server.addresses()[0];
    let mut client = fragile::Client::connect(url).unwrap();
    let builder = Client::builder().serve(fragile::Serve(Fragile::default()));
    let mut serving = builder.connect(url).unwrap();
    fragile::Client::over(&mut serving).call_back().unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while server.panics() < 1 && Instant::now() < until {
        serving.serve_for(Duration::from_millis(1));
    }
    drop(serving);
    await_panics(&server, &mut client, 2);
}

#[test]
fn a_panic_in_admit_refuses_the_peer_and_the_next_one_is_admitted() {
    let first = Arc::new(AtomicBool::new(true));
    let admit = move |_: PeerAddress| {
        assert!(!first.swap(false, Ordering::Relaxed), "the first is none of ours");
        true
    };
    let builder = Server::builder().listen("iwarp://127.0.0.1:0").admit(admit);
    let server = builder.serve(|| fragile::Serve(Fragile::default())).unwrap();
    let url = &server.addresses()[0];
    fragile::Client::connect(url).unwrap_err();
    // The end of a client panics, too: this one stays until the panics are counted.
    let mut client = fragile::Client::connect(url).unwrap();
    assert_eq!(client.count(), Ok(0));
    assert_eq!(server.panics(), 1);
}
