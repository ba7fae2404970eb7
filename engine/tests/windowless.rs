//! A shard on a device without windows: it answers every peer, and lends none memory (DESIGN D1).

use stag_echo::{Caller, Echo};
use stag_engine::{CallFault, Config, Shard, Token};
use stag_sim::{Fabric, Faults, Port};
use stag_verbs::{Limits, Time};

const WITH: Limits = Limits { send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };
const WITHOUT: Limits =
    Limits { windows: 0, sends_invalidation: false, bears_invalidation: false, ..WITH };

/// Returns the outcome of an echo of each of these lengths between two ends with these limits.
fn echoes(server: Limits, client: Limits, lens: &[usize]) -> Vec<Result<(), CallFault>> {
    let fabric = Fabric::new(3, Faults::DELAYS);
    let admit = || Box::new(|_| true) as Box<_>;
    let config = || Config { grant: 8, calls_max: 8, ..crate::support::small() };
    let mut server =
        Shard::new(fabric.end("server", server), Echo::default(), config(), admit()).unwrap();
    let caller = Caller::with_capacity(8);
    let mut client = Shard::new(fabric.end("client", client), caller, config(), admit()).unwrap();
    let port = server.listen(&Port(0)).unwrap();
    client.connect(&port).unwrap();
    let mut now = Time(0);
    let mut settle = |client: &mut Shard<_, Caller>| {
        crate::support::settle(&fabric, &mut now, &mut server, client);
        server.buffers_in_use()
    };
    settle(&mut client);
    let peer = client.app().peers()[0];
    let mut ends = Vec::new();
    for len in lens {
        let octets: Vec<u8> = (0..*len).map(|i| (i * 31 + i / 251) as u8).collect();
        assert!(client.with_app(|_, cx| Caller::call(cx, peer, Token(1), Some(&octets))));
        let held = settle(&mut client);
        let done = client.with_app(|app, _| app.take()).unwrap();
        ends.push(done.echo.map(|echo| assert!(echo.unwrap()[..] == octets[..], "{len} octets")));
        assert_eq!((held, client.buffers_in_use()), (0, 0));
    }
    ends
}

#[test]
fn a_responder_needs_no_windows() {
    assert_eq!(echoes(WITHOUT, WITH, &[0, 100, 4_096, 70_000, 1 << 20]), [Ok(()); 5]);
}

#[test]
fn a_requester_without_windows_calls_what_fits_inline() {
    assert_eq!(
        echoes(WITH, WITHOUT, &[100, 70_000, 100]),
        [Ok(()), Err(CallFault::TooLong), Ok(())]
    );
}
