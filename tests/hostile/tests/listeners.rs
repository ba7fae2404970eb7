//! Listeners that cannot listen.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use stag_engine::clock::Clock;
use stag_iwarp::{Iwarp, IwarpAddress, IwarpConfig};
use stag_verbs::{FabricFault, Limits, Provider};
use std::{fs, net::TcpListener};

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_listener_that_fails_a_thousand_times_costs_no_descriptor() {
    let limits = Limits {
        connections: 4,
        send_queue: 32,
        receives: 16,
        receives_each: None,
        receive_len: 4_096,
        windows: 16,
        read_spans: 4,
        private_data_len: 196,
        sends_invalidation: true,
        bears_invalidation: true,
    };
    let mut iwarp = Iwarp::new(IwarpConfig::new(limits, [1; 32], Clock::start().now())).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = IwarpAddress(taken.local_addr().unwrap());
    assert_eq!(iwarp.listen(&at), Err(FabricFault::AddressInUse));
    let before = descriptors();
    for _ in 0..1_000 {
        assert_eq!(iwarp.listen(&at), Err(FabricFault::AddressInUse));
    }
    assert_eq!(descriptors(), before);
    drop(taken);
    iwarp.listen(&at).expect("the address is free, and the provider as good as before");
}
