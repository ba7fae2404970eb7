//! Two ends in one thread, step by step: what a peer does between two steps of ours, and what a
//! hostile one may say.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod sleep;
mod turns;
mod words;

use crate::{
    Shm, ShmAddress, ShmConfig,
    lane::Lane,
    link::ShmLink,
    record::{LONG, RecordKind, ShmRecord},
    ring::{LINE, PART, RETRACTED, RING, RecordParts, RingTarget, WORD},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use stag_pools::{Access, Buf, Class, Pool, RemoteKey};
use stag_verbs::{
    Cause, Event, FabricFault, Limits, Look, Memory, Provider, Qp, RemoteSpan, Status, Tag, Time,
};
use std::{path::PathBuf, time::Duration};

pub(crate) const LIMITS: Limits = Limits {
    connections: 4,
    send_queue: 64,
    receives: 64,
    receives_each: None,
    receive_len: 4096,
    windows: 16,
    read_spans: 8,
    private_data_len: 64,
    sends_invalidation: true,
    bears_invalidation: true,
};
const RING_LEN: usize = 64 << 10;

/// A directory with one socket.
struct SocketHome(PathBuf);

impl SocketHome {
    fn new(test: &str) -> Self {
        let directory =
            std::env::temp_dir().join(format!("stag-shm-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    fn address(&self, trust: bool) -> ShmAddress {
        let address = ShmAddress::new(self.0.join("socket")).unwrap();
        if trust { address.trusting() } else { address }
    }
}

impl Drop for SocketHome {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct ShmEnd {
    shm: Shm,
    pool: Pool,
    now: Time,
}

impl ShmEnd {
    fn new(trust: bool, limits: Limits) -> Self {
        let pool = Pool::shared(&[Class { slot_len: 4096, count: 512 }]).unwrap();
        let config =
            ShmConfig { trust, ring_len: RING_LEN, ..ShmConfig::new(limits, [7; 32], Time(0)) };
        let mut shm = Shm::new(config).unwrap();
        shm.register(&pool).unwrap();
        for _ in 0..32 {
            shm.post_receive(pool.take(4096).unwrap()).unwrap();
        }
        Self { shm, pool, now: Time(0) }
    }

    fn buf(&self, octets: &[u8]) -> Buf {
        let mut buf = self.pool.take(octets.len()).unwrap();
        buf.append(octets).unwrap();
        buf
    }

    fn send(&mut self, qp: Qp, octets: &[u8]) {
        let message = self.buf(octets);
        self.shm.post_send(qp, Tag(0), message, None).map_err(|refused| refused.why).unwrap();
        assert_lanes(&self.shm);
        self.shm.ring();
        assert_lanes(&self.shm);
    }

    /// One poll, later than the last look at the sockets.
    fn poll(&mut self) -> Option<Event> {
        self.now = self.now + Duration::from_millis(2);
        let event = self.shm.poll(self.now);
        assert_lanes(&self.shm);
        event
    }

    /// All pending events. Nothing is sent but what needs no doorbell.
    fn events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..4 {
            while let Some(event) = self.poll() {
                events.push(event);
            }
        }
        events
    }

    fn link(&mut self) -> &mut ShmLink {
        let key = self.shm.links.key_at(0).unwrap();
        self.shm.links.get_mut(key).unwrap()
    }
}

/// A server and a client that are connected.
fn meet(place: &SocketHome, trust: bool) -> (ShmEnd, Qp, ShmEnd, Qp) {
    let (mut server, mut client) = (ShmEnd::new(trust, LIMITS), ShmEnd::new(trust, LIMITS));
    server.shm.listen(&place.address(trust)).unwrap();
    let (at_client, at_server) = connect(&mut client, &mut server, &place.address(trust));
    (server, at_server, client, at_client)
}

fn connect(client: &mut ShmEnd, server: &mut ShmEnd, to: &ShmAddress) -> (Qp, Qp) {
    let qp = client.shm.connect(to, b"").unwrap();
    let mut at_server = None;
    for _ in 0..100 {
        for event in server.events() {
            let Event::ConnectRequest { qp } = event else { panic!("{event:?}") };
            server.shm.accept(qp, b"").unwrap();
            at_server = Some(qp);
            assert!(matches!(server.poll(), Some(Event::Established { .. })));
        }
        if let Some(event) = client.poll() {
            assert!(matches!(event, Event::Established { qp: of } if of == qp), "{event:?}");
            // Both have read everything, and said so.
            assert!(client.events().is_empty() && server.events().is_empty());
            return (qp, at_server.unwrap());
        }
    }
    panic!("no connection");
}

/// Lanes agree with their connections.
pub(crate) fn assert_lanes(shm: &Shm) {
    for place in 0..shm.conns.capacity() {
        let expected = shm.conns.at(place).map_or(Lane::SHUT, |conn| conn.lane());
        assert_eq!(shm.shared.lanes.at(place), expected, "connection {place}");
    }
}

fn is_readable(end: &Shm) -> bool {
    let fd = end.wait_fd().unwrap();
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&Timespec::default())).unwrap() == 1
}

/// Fills the ring to `qp`, which is not read any more, and posts more than it takes.
fn overfill(end: &mut ShmEnd, qp: Qp) {
    let (message, take) = ([1; 4000], RING_LEN / 4096 + 1);
    (0..take).for_each(|_| end.send(qp, &message));
    assert!(end.shm.links.iter().any(|(_, link)| link.is_full));
}

/// Lengths of Reads, the first of which is fetched from the pool and the others are copied.
const FETCHED: usize = 1024;

/// Sends a record that no end of ours sends.
fn say(end: &mut ShmEnd, record: ShmRecord) {
    let link = end.link();
    let head = record.emit();
    let parts = RecordParts { head: head.octets(), body: &[] };
    let put = link.rings.as_mut().unwrap().put(record.word(), parts).unwrap();
    assert!(put.is_some(), "the ring is full");
}

/// Number of octets that the server has written to its ring.
fn server_tail(server: &mut ShmEnd) -> u64 {
    server.link().rings.as_ref().unwrap().producer().tail()
}
