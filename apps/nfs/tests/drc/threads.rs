//! Shards that sleep, on threads of their own, and a client that moves between them in real time.

use crate::drc::{
    calls::{create, mkdir, remove},
    world::{encode, exports, status},
};
use stag_engine::{Command, Config, Handle, Shard, clock::Clock, control, stats::Snapshot};
use stag_nfs::{Gateway, GatewayReport, reply_cache::CacheHandle};
use stag_nfs_store::files::{Files, SharedFiles};
use stag_protocol::{nfs::v3::Status, rpc::record::Fragment};
use stag_sim::{Fabric, Faults};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

struct Server {
    at: SocketAddr,
    handle: Handle<Snapshot<GatewayReport>>,
    thread: JoinHandle<GatewayReport>,
}

fn serve(shared: &Arc<SharedFiles>, index: usize, cache: CacheHandle, clock: Clock) -> Server {
    let (control, handle) = control::pair().unwrap();
    let waker = handle.waker();
    cache.wakeup().attach(move || waker.wake());
    let (tell, told) = mpsc::channel();
    let shared = Arc::clone(shared);
    let thread = thread::spawn(move || {
        let files = Files::open(&shared, index).unwrap();
        let gateway = Gateway::new(files).with_duplicates(cache, 256);
        let end = Fabric::new(1, Faults::NONE).end("server", stag_sim::LIMITS);
        let config = Config {
            outbound: 64,
            spin: stag_engine::Spin::For(Duration::from_micros(20)),
            ..Config::small()
        };
        let mut shard = Shard::new(end, gateway, config, Box::new(|_| true)).unwrap();
        tell.send(shard.listen_tcp("127.0.0.1:0".parse().unwrap(), false).unwrap()).unwrap();
        shard.run(&control, move || clock.now()).unwrap();
        shard.snapshot().app
    });
    Server { at: told.recv().unwrap(), handle, thread }
}

/// The reply, if it comes within `patience`.
fn ask(at: SocketAddr, octets: &[u8], patience: Option<Duration>) -> Option<Vec<u8>> {
    let mut socket = TcpStream::connect(at).unwrap();
    let mut record = Fragment::new(octets.len() as u32, true).unwrap().emit().to_vec();
    record.extend_from_slice(octets);
    socket.write_all(&record).unwrap();
    socket.set_read_timeout(Some(patience.unwrap_or(Duration::from_secs(20)))).unwrap();
    let mut mark = [0; 4];
    socket.read_exact(&mut mark).ok()?;
    let mut reply = vec![0; Fragment::parse(mark).octets() as usize];
    socket.read_exact(&mut reply).unwrap();
    Some(reply)
}

#[test]
fn shards_that_sleep_wake_each_other_and_carry_each_call_out_once() {
    let home = tempfile::tempdir().unwrap();
    let shared = SharedFiles::open(&exports(&home, 3)).unwrap();
    let root = Files::open(&shared, 0).unwrap().mount(b"/data").unwrap();
    let clock = Clock::start();
    let servers: Vec<_> = CacheHandle::all(3)
        .into_iter()
        .enumerate()
        .map(|(index, handle)| serve(&shared, index, handle, clock))
        .collect();
    let started = std::time::Instant::now();
    for xid in 1..=300_u32 {
        let name = format!("name-{}", (xid - 1) / 3).into_bytes();
        let other = format!("other-{}", xid / 3).into_bytes();
        let call = match xid % 3 {
            1 => create(root, &name),
            2 => remove(root, &name),
            _ => mkdir(root, &other),
        };
        let octets = encode("-", 1000, xid, &call);
        let turn = xid as usize;
        let _lost = ask(
            servers[turn % 3].at,
            &octets,
            Some(Duration::from_micros(1 + u64::from(xid % 5) * 40)),
        );
        let reply = ask(servers[(turn + 1) % 3].at, &octets, None).expect("it is answered");
        assert_eq!(status(&reply), Status::Ok, "call {xid}");
        assert_eq!(ask(servers[(turn + 2) % 3].at, &octets, None), Some(reply));
    }
    let elapsed = started.elapsed();
    servers.iter().for_each(|server| server.handle.tell(Command::Stop));
    let reports: Vec<_> = servers.into_iter().map(|server| server.thread.join().unwrap()).collect();
    let total = |count: fn(&GatewayReport) -> u64| reports.iter().map(count).sum::<u64>();
    assert_eq!(total(|report| report.nfs3.values().map(|served| served.calls).sum()), 300);
    assert_eq!(total(|report| report.duplicates.asked_again + report.duplicates.turned_away), 0);
    assert!(total(|report| report.duplicates.waited) >= 300);
    // A shard without a wakeup sleeps for a second.
    assert!(elapsed < Duration::from_secs(30), "{elapsed:?}");
}
