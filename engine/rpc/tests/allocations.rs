//! Heap allocations per call: none on either side, once the first call was made.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

#[path = "../../../bench/tests/counting/mod.rs"]
mod counting;

use counting::allocations;
use stag_rpc::{Bulk, Octets, Replied, Replier, Server, Text, program};

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
        assert_eq!((after.0 - before.0, after.1 - before.1), (0, 0), "server and client over {url}");
    }
}
