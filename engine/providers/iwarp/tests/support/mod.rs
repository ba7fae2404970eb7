//! Support for the tests of this crate: an end with memory, driven in the test's own thread.
#![allow(dead_code)]

use stag_iwarp::{Crc, Iwarp, IwarpAddress, IwarpConfig};
use stag_pools::{Buf, Class, Pool};
use stag_verbs::{Cause, Event, Limits, Look, Provider, Qp, Time};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Longest time that a test waits for an event.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub const LIMITS: Limits = Limits {
    connections: 8,
    send_queue: 32,
    receives: 64,
    receives_each: None,
    receive_len: 4096,
    windows: 64,
    read_spans: 4,
    private_data_len: 248,
    sends_invalidation: true,
    bears_invalidation: true,
};

/// The time since the first call.
pub fn now() -> Time {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    Time(1 + u64::try_from(start.elapsed().as_nanos()).unwrap())
}

/// With CRCs for all peers, so that every scripted peer has to compute them.
pub fn config() -> IwarpConfig {
    IwarpConfig { crc: Crc::Always, ..IwarpConfig::new(LIMITS, [7; 32], now()) }
}

pub fn localhost() -> IwarpAddress {
    "127.0.0.1:0".parse().unwrap()
}

/// Octets that differ by index.
pub fn pattern(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) ^ salt.wrapping_mul(197) ^ (i >> 8)) as u8).collect()
}

/// One provider with a pool and the events that the test has not taken yet.
pub struct End {
    pub iwarp: Iwarp,
    pub pool: Pool,
    pub events: VecDeque<Event>,
    /// It looks before each poll.
    pub looks: bool,
    /// The time of its polls, if a test stops its clock.
    pub stopped_at: Option<Time>,
}

impl End {
    pub fn new(config: IwarpConfig) -> Self {
        let class = |slot_len, count| Class { slot_len, count };
        let pool = Pool::new(&[class(4096, 256), class(1 << 20, 16)]).unwrap();
        Self {
            iwarp: Iwarp::new(config).unwrap(),
            pool,
            events: VecDeque::new(),
            looks: false,
            stopped_at: None,
        }
    }

    pub fn listening(config: IwarpConfig) -> (Self, IwarpAddress) {
        let mut end = Self::new(config);
        let at = end.iwarp.listen(&localhost()).unwrap();
        (end, at)
    }

    pub fn buf(&self, octets: &[u8]) -> Buf {
        let mut buf = self.pool.take(octets.len().max(1)).unwrap();
        buf.append(octets).unwrap();
        buf
    }

    pub fn post_receives(&mut self, count: usize) {
        for _ in 0..count {
            let buf = self.pool.take(LIMITS.receive_len).unwrap();
            self.iwarp.post_receive(buf).unwrap();
        }
    }

    /// Polls until there are no more events.
    pub fn pump(&mut self) {
        while let Some(event) = self.ask() {
            self.events.push_back(event);
        }
    }

    /// The next event, if there is one. A message that a look reports takes its receive then.
    fn ask(&mut self) -> Option<Event> {
        let at = self.stopped_at.unwrap_or_else(now);
        if !self.looks {
            return self.iwarp.poll(at);
        }
        let mut room = [0; LIMITS.receive_len];
        match self.iwarp.look(at, &mut room).look() {
            Look::Message { qp, len } => {
                let mut buf = self.iwarp.take_receive().unwrap();
                assert!(buf.is_empty(), "a receive that is taken back is empty");
                buf.append(&room[..len]).unwrap();
                Some(Event::Received { qp, buf, invalidated: None })
            }
            Look::Nothing => None,
            Look::Other => self.iwarp.poll(at),
        }
    }

    /// The next event of any kind, within [`PATIENCE`].
    pub fn next(&mut self) -> Event {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.pump();
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            assert!(Instant::now() < deadline, "nothing happens");
            std::thread::yield_now();
        }
    }

    pub fn next_request(&mut self) -> Qp {
        match self.next() {
            Event::ConnectRequest { qp } => qp,
            other => panic!("{other:?} instead of a connect request"),
        }
    }

    pub fn next_message(&mut self, from: Qp) -> Buf {
        match self.next() {
            Event::Received { qp, buf, .. } if qp == from => buf,
            other => panic!("{other:?} instead of a message"),
        }
    }

    pub fn next_end(&mut self, of: Qp) -> Cause {
        match self.next() {
            Event::Disconnected { qp, cause } if qp == of => cause,
            other => panic!("{other:?} instead of the end"),
        }
    }

    pub fn expect_established(&mut self, of: Qp) {
        match self.next() {
            Event::Established { qp } if qp == of => {}
            other => panic!("{other:?} instead of established"),
        }
    }
}

/// Polls all ends until `done`.
pub fn until<const N: usize>(
    mut ends: [&mut End; N],
    mut done: impl FnMut(&mut [&mut End; N]) -> bool,
) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        ends.iter_mut().for_each(|end| end.pump());
        if done(&mut ends) {
            return;
        }
        let events: Vec<_> = ends.iter().map(|end| &end.events).collect();
        assert!(Instant::now() < deadline, "not in time; events: {events:?}");
        std::thread::yield_now();
    }
}

fn is_established(event: &Event) -> bool {
    matches!(event, Event::Established { .. })
}

/// Connects `a` to `b`, which listens at `at`. Both are established afterwards.
pub fn join(a: &mut End, b: &mut End, at: IwarpAddress) -> (Qp, Qp) {
    let ours = a.iwarp.connect(&at, b"").unwrap();
    until([a, b], |[_, b]| !b.events.is_empty());
    let theirs = b.next_request();
    b.iwarp.accept(theirs, b"").unwrap();
    until([a, b], |[a, b]| {
        a.events.iter().any(is_established) && b.events.iter().any(is_established)
    });
    a.expect_established(ours);
    b.expect_established(theirs);
    (ours, theirs)
}
