//! Two processes: one is killed, stopped, or was never what it said. The other one goes on.
//!
//! The peer is this program, started again for one of its ignored tests.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

mod support;

use rustix::process::{Pid, Signal, kill_process};
use stag_pools::{Access, Buf, Class, Pool};
use stag_shm::{Shm, ShmAddress, ShmConfig};
use stag_verbs::{
    Cause, Event, FabricFault, Limits, Memory, Provider, Qp, RemoteSpan, Status, Tag,
};
use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use support::Place;

const LIMITS: Limits = Limits {
    connections: 8,
    send_queue: 64,
    receives: 64,
    receives_each: None,
    receive_len: 4096,
    windows: 16,
    read_spans: 64,
    private_data_len: 64,
    sends_invalidation: true,
    bears_invalidation: true,
};
const PATIENCE: Duration = Duration::from_secs(20);

/// One end with its memory.
struct End {
    shm: Shm,
    pool: Pool,
}

impl End {
    fn new(trust: bool) -> Self {
        let classes = [Class { slot_len: 4096, count: 128 }, Class { slot_len: 1 << 20, count: 8 }];
        let pool = if trust { Pool::shared(&classes) } else { Pool::new(&classes) }.unwrap();
        let config = ShmConfig { trust, ..ShmConfig::new(LIMITS, [7; 32], support::now()) };
        let mut shm = Shm::new(config).unwrap();
        shm.register(&pool).unwrap();
        for _ in 0..16 {
            shm.post_receive(pool.take(4096).unwrap()).unwrap();
        }
        Self { shm, pool }
    }

    fn buf(&self, octets: &[u8]) -> Buf {
        let mut buf = self.pool.take(octets.len()).unwrap();
        buf.append(octets).unwrap();
        buf
    }

    /// The next event; none within `patience`.
    fn event(&mut self, patience: Duration) -> Option<Event> {
        let start = Instant::now();
        loop {
            if let Some(event) = self.shm.poll(support::now()) {
                return Some(event);
            }
            self.shm.ring();
            if start.elapsed() > patience {
                return None;
            }
            std::thread::yield_now();
        }
    }

    fn until<T>(&mut self, what: &str, mut found: impl FnMut(&mut Self, Event) -> Option<T>) -> T {
        let start = Instant::now();
        while let Some(event) = self.event(PATIENCE.saturating_sub(start.elapsed())) {
            if let Some(found) = found(self, event) {
                return found;
            }
        }
        panic!("not within {PATIENCE:?}: {what}");
    }

    fn accept(&mut self) -> Qp {
        let qp = self.until("a connect request", |_, event| match event {
            Event::ConnectRequest { qp } => Some(qp),
            _ => None,
        });
        self.shm.accept(qp, b"").unwrap();
        qp
    }

    fn end_of(&mut self, qp: Qp) -> Cause {
        self.until("the end of the connection", |_, event| match event {
            Event::Disconnected { qp: of, cause } if of == qp => Some(cause),
            _ => None,
        })
    }

    /// Everything but the receives is back.
    fn is_whole(&self) -> bool {
        self.pool.taken() == self.shm.receives_posted() && self.shm.windows_bound() == 0
    }
}

/// This program again, as `role`, killed at the latest when the value goes.
struct Peer(Child);

impl Peer {
    fn new(role: &str, address: &ShmAddress) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", role, "--ignored", "--nocapture", "--test-threads=1"])
            .env("STAG_SHM_PEER", address.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Stops it, and waits until none of its threads runs any more.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.0.id());
        let is_stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap();
            stat.rsplit(") ").next().unwrap().starts_with('T')
        };
        let start = Instant::now();
        while !std::fs::read_dir(&tasks).unwrap().all(|task| is_stopped(task.unwrap())) {
            assert!(start.elapsed() < PATIENCE, "the peer does not stop");
            std::thread::yield_now();
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the address of the test that started this process; `None` if no test did.
fn peer_address() -> Option<ShmAddress> {
    Some(std::env::var("STAG_SHM_PEER").ok()?.parse().unwrap())
}

fn connect(end: &mut End, to: &ShmAddress) -> Qp {
    let qp = end.shm.connect(to, b"").unwrap();
    end.until("the connection", |_, event| match event {
        Event::Established { .. } => Some(()),
        Event::Disconnected { cause, .. } => panic!("{cause}"),
        _ => None,
    });
    qp
}

/// Connects, opens a window, announces it, and answers whatever comes until it is killed.
#[test]
#[ignore = "the other process of a test"]
fn peer_that_talks() {
    let Some(to) = peer_address() else { return };
    let mut end = End::new(to.is_trusting());
    let qp = connect(&mut end, &to);
    let mut sink = end.pool.take(1 << 20).unwrap();
    sink.extend(1 << 20);
    let window = end.shm.bind(qp, sink, 0..1 << 20, Access::RemoteWrite).unwrap();
    let mut told = window.key.0.to_le_bytes().to_vec();
    told.extend_from_slice(&window.offset.to_le_bytes());
    let told = end.buf(&told);
    end.shm.post_send(qp, Tag(0), told, None).unwrap();
    end.shm.ring();
    loop {
        match end.event(PATIENCE) {
            Some(Event::Received { buf, .. }) => {
                end.shm.post_receive(buf).unwrap();
                let answer = end.buf(b"answer");
                let _ = end.shm.post_send(qp, Tag(1), answer, None);
                end.shm.ring();
            }
            Some(Event::Disconnected { .. }) => {
                // It goes on with another connection.
                let again = connect(&mut end, &to);
                let hello = end.buf(b"again");
                end.shm.post_send(again, Tag(2), hello, None).unwrap();
                end.shm.ring();
            }
            Some(_) => {}
            None => return,
        }
    }
}

/// A server end, its peer in another process, their connection, and the peer's window.
fn meet(trust: bool) -> (End, Peer, Qp, RemoteSpan, Place) {
    let mut place = Place::new();
    let address = if trust { place.address().trusting() } else { place.address() };
    let mut end = End::new(trust);
    end.shm.listen(&address).unwrap();
    let peer = Peer::new("peer_that_talks", &address);
    let qp = end.accept();
    let told = end.until("the peer's window", |_, event| match event {
        Event::Received { buf, .. } => Some(buf),
        _ => None,
    });
    let (key, offset) = (told.first_chunk().unwrap(), told.last_chunk().unwrap());
    let key = stag_pools::RemoteKey(u32::from_le_bytes(*key));
    let span = RemoteSpan { key, offset: u64::from_le_bytes(*offset), len: 1 << 20 };
    end.shm.post_receive(told).unwrap();
    assert_eq!(end.shm.stats().trusting, u64::from(trust));
    (end, peer, qp, span, place)
}

fn talk(end: &mut End, qp: Qp) {
    let call = end.buf(b"call");
    end.shm.post_send(qp, Tag(9), call, None).unwrap();
    end.shm.ring();
    let answer = end.until("an answer", |_, event| match event {
        Event::Received { buf, .. } => Some(buf),
        _ => None,
    });
    assert_eq!(&answer[..], b"answer");
    end.shm.post_receive(answer).unwrap();
}

#[test]
fn a_killed_peer_is_missed_and_everything_comes_back() {
    for trust in [false, true] {
        let (mut end, peer, qp, span, _place) = meet(trust);
        talk(&mut end, qp);
        let window = end.buf(&[1; 100]);
        let window = end.shm.bind(qp, window, 0..100, Access::RemoteRead).unwrap();
        assert!(window.len == 100 && end.shm.windows_bound() == 1);
        let write = end.pool.take(1 << 20).unwrap();
        let write = fill(write);
        end.shm.post_write(qp, Tag(1), write.freeze(), span).unwrap();
        peer.signal(Signal::KILL);
        end.shm.ring();
        let cause = end.end_of(qp);
        assert_eq!(cause, Cause::Fabric(FabricFault::Lost), "trust {trust}");
        assert!(end.is_whole(), "trust {trust}");
        assert_eq!((end.shm.connections(), end.shm.links()), (0, 0));
    }
}

fn fill(mut buf: Buf) -> Buf {
    let len = buf.capacity();
    buf.spare_mut().fill(3);
    buf.extend(len);
    buf
}

/// Time for which the peer is stopped: 30 s in CI, else 1 s.
fn stop_time() -> Duration {
    if std::env::var_os("CI").is_some() { Duration::from_secs(30) } else { Duration::from_secs(1) }
}

#[test]
fn a_stopped_peer_costs_its_own_connection_and_goes_on_later() {
    stop_and_go_on(false);
}

#[test]
fn a_stopped_peer_that_is_trusted_costs_its_own_connection_and_goes_on_later() {
    stop_and_go_on(true);
}

fn stop_and_go_on(trust: bool) {
    let (mut end, peer, qp, span, _place) = meet(trust);
    talk(&mut end, qp);
    peer.stop();
    // As much as there are work requests: the ring is full long before.
    for tag in 0..6 {
        let write = fill(end.pool.take(1 << 20).unwrap());
        end.shm.post_write(qp, Tag(tag), write.freeze(), span).unwrap();
    }
    end.shm.ring();
    let stopped = Instant::now();
    while let Some(event) = end.event(stop_time().saturating_sub(stopped.elapsed())) {
        let is_done = matches!(
            &event,
            Event::Completed { status: Status::Success, memory: Memory::Shared, .. }
        );
        assert!(is_done, "{event:?}");
    }
    // The deadline of whatever was asked of it.
    end.shm.disconnect(qp);
    assert_eq!(end.end_of(qp), Cause::Local);
    // What the ring names is kept for as long as it does.
    let kept = end.pool.taken() - end.shm.receives_posted();
    assert!(if trust { kept > 0 } else { kept == 0 }, "{kept} buffers, trust {trust}");
    peer.signal(Signal::CONT);
    let again = end.accept();
    let hello = end.until("a message", |_, event| match event {
        Event::Received { buf, .. } => Some(buf),
        _ => None,
    });
    assert_eq!(&hello[..], b"again");
    end.shm.post_receive(hello).unwrap();
    end.shm.disconnect(again);
    end.end_of(again);
    let start = Instant::now();
    while !end.is_whole() && start.elapsed() < PATIENCE {
        end.event(Duration::from_millis(1));
    }
    assert!(end.is_whole(), "trust {trust}: {} taken", end.pool.taken());
    drop(peer);
}
