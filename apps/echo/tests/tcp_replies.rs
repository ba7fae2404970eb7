//! A server over TCP that answers calls that were not made.

use stag_echo::Caller;
use stag_engine::{Config, Shard, Token};
use stag_protocol::{
    rpc::{Accepted, Outcome, ReplyHeader, record::Fragment},
    rpcrdma::Xid,
    xdr::Writer,
};
use stag_sim::{Fabric, Faults, LIMITS};
use stag_verbs::Time;
use std::{
    io::{Read, Write},
    net::TcpListener,
    time::{Duration, Instant},
};

/// A record with an empty reply to `xid`.
fn reply(xid: u32) -> Vec<u8> {
    let mut octets = [0; ReplyHeader::LEN];
    let header = ReplyHeader { xid: Xid(xid), outcome: Outcome::accepted(Accepted::Success) };
    header.emit(&mut Writer::new(&mut octets)).unwrap();
    [&Fragment::new(octets.len() as u32, true).unwrap().emit()[..], &octets].concat()
}

#[test]
fn a_reply_with_the_xid_of_no_call_is_dropped() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let end = Fabric::new(1, Faults::NONE).end("client", LIMITS);
    let mut client =
        Shard::new(end, Caller::default(), Config::small(), Box::new(|_| true)).unwrap();
    let peer = client.connect_tcp(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    server.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let started = Instant::now();
    let pass = |client: &mut Shard<_, Caller>| {
        assert!(started.elapsed() < Duration::from_secs(60), "not in time");
        client.pass(Time(started.elapsed().as_nanos() as u64));
    };
    while client.app().peers().is_empty() {
        pass(&mut client);
    }
    assert!(client.with_app(|_, cx| Caller::call(cx, peer, Token(1), None)));
    let (mut received, mut room) = (Vec::new(), [0; 256]);
    while received.len() < 44 {
        pass(&mut client);
        let len = server.read(&mut room).unwrap_or(0);
        received.extend_from_slice(&room[..len]);
    }
    let xid = u32::from_be_bytes(received[4..8].try_into().unwrap());
    for strange in (0..32).map(|bit| xid ^ 1 << bit) {
        server.write_all(&reply(strange)).unwrap();
    }
    let until = Instant::now() + Duration::from_millis(50);
    while Instant::now() < until {
        pass(&mut client);
        assert!(client.with_app(|app, _| app.take()).is_none(), "nobody made that call");
    }
    server.write_all(&reply(xid)).unwrap();
    loop {
        pass(&mut client);
        if let Some(done) = client.with_app(|app, _| app.take()) {
            return assert_eq!(
                (done.token, done.echo.map(|echo| echo.is_none())),
                (Token(1), Ok(true))
            );
        }
    }
}
