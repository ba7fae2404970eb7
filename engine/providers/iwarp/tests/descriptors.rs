//! A process without descriptors. One test only, because the limit is the whole process's.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod support;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use stag_iwarp::IwarpConfig;
use stag_verbs::{FabricFault, Look, Provider};
use std::{
    fs::File,
    net::TcpStream,
    time::{Duration, Instant},
};
use support::{End, LIMITS, PATIENCE, config, join, now, until};

#[test]
fn an_acceptor_without_descriptors_rests_and_goes_on() {
    // No other deadline is due within the test.
    let hour = Duration::from_secs(3_600);
    let (mut end, at) = End::listening(IwarpConfig {
        accept_pause: Duration::from_millis(50),
        request_timeout: hour,
        first_message_timeout: hour,
        ..config()
    });
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

    // Together with a message, which from there on is all that looks report.
    let mut caller = End::new(config());
    end.post_receives(8);
    let (calling, _) = join(&mut caller, &mut end, at);
    until([&mut end], |[end]| end.iwarp.stats().accepted == 2);
    assert!((0..3).all(|_| end.iwarp.look(now(), &mut [0; 8 << 10]) == Look::Nothing));
    let _peer = TcpStream::connect(at.0).unwrap();
    hoard.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
    assert!(caller.iwarp.send_inline(calling, b"a call", None));
    caller.iwarp.ring();
    let mut room = vec![0; LIMITS.receive_len];
    let deadline = Instant::now() + PATIENCE;
    while end.iwarp.stats().accepted == 2 {
        if end.iwarp.look(now(), &mut room) == Look::Other {
            drop(end.iwarp.poll(now()));
        }
        if end.iwarp.stats().accept_paused == 2 {
            hoard.clear();
        }
        assert!(Instant::now() < deadline, "a listener that rests is not forgotten");
    }
}
