//! A process without descriptors. One test only, because the limit is the whole process's.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod support;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stag_iwarp::IwarpConfig;
use stag_verbs::{FabricFault, Provider};
use std::{fs::File, net::TcpStream, time::Duration};
use support::{End, config, until};

#[test]
fn an_acceptor_without_descriptors_rests_and_goes_on() {
    let (mut end, at) =
        End::listening(IwarpConfig { accept_pause: Duration::from_millis(50), ..config() });
    let whole = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..whole }).unwrap();
    let _peer = TcpStream::connect(at.0).unwrap();
    let mut hoard: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert_eq!(end.iwarp.connect(&at, b""), Err(FabricFault::Exhausted));

    end.pump();
    assert_eq!((end.iwarp.stats().accept_paused, end.iwarp.stats().accepted), (1, 0));
    assert!(end.iwarp.wake_at().is_some());
    for _ in 0..100 {
        assert!(end.iwarp.arm(), "a listener that rests keeps nobody awake");
    }

    hoard.clear();
    until([&mut end], |[end]| end.iwarp.stats().accepted == 1);
    assert_eq!(end.iwarp.half_open(), 1);
}
