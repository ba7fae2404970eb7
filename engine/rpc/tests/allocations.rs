//! Heap allocations per call: none on either side, once the first call was made.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

#[path = "../../../tests/counting/mod.rs"]
mod counting;

use counting::allocations;
use stag_rpc::{Bulk, Client, Octets, Replied, Replier, Server, Text, program};
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

program! {
    /// Answers, and counts what that allocates.
    pub mod counted: 0x2053_5404, version 1 {
        /// Both arguments.
        1 => fn echo(name: Text<64>, octets: Bulk<100_000>) -> (Text<64>, Bulk<100_000>);
        /// Allocations of the server's thread.
        2 => fn allocations() -> u64;
    }
}

struct Counted;

impl counted::Service for Counted {
    fn echo(
        &mut self,
        name: &str,
        octets: Octets<'_>,
        reply: Replier<'_, '_, (Text<64>, Bulk<100_000>)>,
    ) -> Replied {
        reply.send((name, octets))
    }

    fn allocations(&mut self, reply: Replier<'_, '_, u64>) -> Replied {
        reply.send(allocations())
    }
}

#[test]
fn no_call_allocates() {
    let path = std::env::temp_dir().join(format!("stag-rpc-counted-{}.sock", std::process::id()));
    let shm = format!("shm://{}", path.display());
    for url in [&*shm, "iwarp://127.0.0.1:0", "tcp://127.0.0.1:0"] {
        let server = Server::builder().listen(url).serve(|| counted::Serve(Counted)).unwrap();
        let mut client = counted::Client::connect(&server.addresses()[0]).unwrap();
        let octets = vec![7; 100_000];
        let mut calls = |rounds: u32| {
            for _ in 0..rounds {
                for len in [0, 100, 5_000, 100_000] {
                    let (name, back) = client.echo("name", Octets::from(&octets[..len])).unwrap();
                    assert!(name == "name" && back.as_slice() == &octets[..len]);
                }
            }
            (client.allocations().unwrap(), allocations())
        };
        let before = calls(50);
        let after = calls(200);
        assert_eq!(
            (after.0 - before.0, after.1 - before.1),
            (0, 0),
            "server and client over {url}"
        );
    }
}

/// Wakes the test, and notes the allocations of the thread that does.
struct Noting {
    test: Thread,
    allocations: AtomicU64,
}

impl Wake for Noting {
    fn wake(self: Arc<Self>) {
        self.allocations.store(allocations(), Ordering::Relaxed);
        self.test.unpark();
    }
}

fn block_on<F: Future>(future: F, waker: &Waker) -> F::Output {
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn no_call_of_an_asynchronous_client_allocates() {
    let noting = Arc::new(Noting { test: thread::current(), allocations: AtomicU64::new(0) });
    let waker = Waker::from(Arc::clone(&noting));
    for url in ["iwarp://127.0.0.1:0", "tcp://127.0.0.1:0"] {
        let server = Server::builder().listen(url).serve(|| counted::Serve(Counted)).unwrap();
        let client = counted::AsyncClient::connect(&server.addresses()[0]).unwrap();
        let octets = vec![7; 100_000];
        let calls = |rounds: u32| {
            for _ in 0..rounds {
                for len in [0, 100, 5_000, 100_000] {
                    // Two at a time.
                    let pair = [&octets[..len], &octets[len..]]
                        .map(|octets| client.echo("name", octets.into()));
                    for (call, len) in pair.into_iter().zip([len, octets.len() - len]) {
                        let reply = block_on(call, &waker).unwrap();
                        let (name, back) = reply.results().unwrap();
                        assert!(name == "name" && back.as_slice() == &octets[..len]);
                    }
                }
            }
            // A call that is polled before it can end, so that the client's thread notes itself.
            let of_server = loop {
                noting.allocations.store(u64::MAX, Ordering::Relaxed);
                let reply = block_on(client.allocations(), &waker).unwrap();
                if noting.allocations.load(Ordering::Relaxed) < u64::MAX {
                    break reply.results().unwrap();
                }
            };
            (of_server, allocations(), noting.allocations.load(Ordering::Relaxed))
        };
        let before = calls(50);
        let after = calls(200);
        assert_eq!(
            (after.0 - before.0, after.1 - before.1, after.2 - before.2),
            (0, 0, 0),
            "server, caller and the client's thread over {url}"
        );
    }
}

#[test]
fn no_call_of_a_local_client_allocates() {
    for url in ["iwarp://127.0.0.1:0", "tcp://127.0.0.1:0"] {
        let server = Server::builder().listen(url).serve(|| counted::Serve(Counted)).unwrap();
        let client = Client::builder().connect_local(&server.addresses()[0]).unwrap();
        let client = counted::AsyncClient::over(client);
        let octets = vec![7; 100_000];
        let calls = async |rounds: u32| {
            for _ in 0..rounds {
                for len in [0, 100, 5_000, 100_000] {
                    // Two at a time.
                    let calls = [&octets[..len], &octets[len..]]
                        .map(|octets| client.echo("name", octets.into()));
                    for call in calls {
                        call.await.unwrap();
                    }
                }
            }
            allocations()
        };
        let counts = async { (calls(50).await, calls(200).await) };
        let (before, after) = client.connection().block_on(counts);
        assert_eq!(after - before, 0, "over {url}");
    }
}
