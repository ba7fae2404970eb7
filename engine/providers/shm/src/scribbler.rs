//! A peer that writes anything anywhere in the memory it can write, between honest words. The other
//! end reports a clear cause, changes nothing outside the window that it granted, and has all its
//! memory back at the end.
//!
//! `STAG_SCRIBBLES` sets the number of mutations.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::{
    Shm, ShmAddress, ShmConfig,
    record::{RecordKind, ShmRecord},
    ring::{ASLEEP, HEAD, LINE, RING, RingTarget, WORD, Word},
};
use fastrand::Rng;
use stag_pools::{Access, Buf, Class, Pool, Window};
use stag_verbs::{
    Cause, Event, FabricFault, Limits, Memory, Provider, Qp, Refusal, RemoteSpan, Tag, Time,
};
use std::time::{Duration, Instant};

const LIMITS: Limits = Limits {
    connections: 8,
    send_queue: 32,
    receives: 32,
    receives_each: None,
    receive_len: 4096,
    windows: 16,
    read_spans: 4,
    private_data_len: 64,
    sends_invalidation: true,
    bears_invalidation: true,
};
const RING_LEN: usize = 64 << 10;
/// The window; the rest of its buffer holds `GUARD`.
const SPAN: std::ops::Range<usize> = 1024..3072;
const GUARD: u8 = 0xa5;

struct ScribbleClock(Instant);

impl ScribbleClock {
    fn now(&self) -> Time {
        Time(self.0.elapsed().as_nanos() as u64)
    }
}

/// Counts of the ways in which the honest end may fail.
#[derive(Debug, Default)]
struct Ends {
    corrupt: u64,
    faults: u64,
    other: u64,
    /// Messages that the honest end could not answer at once, and messages that it could.
    replies: [u64; 2],
}

/// Long enough for most polls to look at rings only.
const LOOK_INTERVAL: Duration = Duration::from_micros(50);

struct World {
    clock: ScribbleClock,
    pool: Pool,
    honest: Shm,
    scribbler: Shm,
    at: ShmAddress,
    pair: Option<(Qp, Qp)>,
    window: Option<Window>,
    ends: Ends,
}

impl World {
    fn new(trust: bool, at: ShmAddress) -> Self {
        let clock = ScribbleClock(Instant::now());
        let pool = Pool::shared(&[Class { slot_len: 4096, count: 512 }]).unwrap();
        let end = |seed| {
            let config = ShmConfig::new(LIMITS, [seed; 32], clock.now());
            let config =
                ShmConfig { trust, ring_len: RING_LEN, look_interval: LOOK_INTERVAL, ..config };
            let mut shm = Shm::new(config).unwrap();
            shm.register(&pool).unwrap();
            shm
        };
        let (mut honest, scribbler) = (end(1), end(2));
        honest.listen(&at).unwrap();
        Self { clock, pool, honest, scribbler, at, pair: None, window: None, ends: Ends::default() }
    }

    fn guarded(&self) -> Buf {
        let mut buf = self.pool.take(4096).unwrap();
        buf.extend(4096);
        buf.fill(GUARD);
        buf
    }

    /// A buffer that was exposed is what it was outside of the span that was open.
    fn check(buf: &[u8]) {
        assert_eq!(buf.len(), 4096);
        let outside = buf[..SPAN.start].iter().chain(&buf[SPAN.end..]);
        assert!(
            outside.copied().all(|octet| octet == GUARD),
            "an octet outside of the window changed"
        );
    }

    fn poll(&mut self) {
        while self.honest.receives_posted() < 16 {
            self.honest.post_receive(self.pool.take(4096).unwrap()).unwrap();
        }
        while self.scribbler.receives_posted() < 16 {
            self.scribbler.post_receive(self.pool.take(4096).unwrap()).unwrap();
        }
        while let Some(event) = self.honest.poll(self.clock.now()) {
            match event {
                Event::ConnectRequest { qp } => match self.honest.accept(qp, b"") {
                    // Scribbles after the request have ended it already.
                    Ok(()) | Err(Refusal::Gone) => {}
                    Err(refusal) => panic!("a request is refused: {refusal:?}"),
                },
                Event::Established { qp } => {
                    let buf = self.guarded();
                    self.window = self.honest.bind(qp, buf, SPAN, Access::RemoteWrite).ok();
                }
                Event::Received { qp, buf, invalidated } => {
                    if let Some(fenced) = invalidated {
                        Self::check(&fenced.into_buf());
                    }
                    // Now and then more than the ring takes.
                    let is_burst = self.ends.replies[1].is_multiple_of(16);
                    let (times, len) =
                        if is_burst { (2 * RING_LEN / 4096, buf.len()) } else { (1, 100) };
                    for _ in 0..times {
                        let has_said =
                            self.honest.send_inline(qp, &buf[..buf.len().min(len)], None);
                        self.ends.replies[usize::from(has_said)] += 1;
                    }
                }
                Event::Unbound { fenced, .. } => Self::check(&fenced.into_buf()),
                Event::Completed { memory: Memory::Fenced(fenced), .. } => {
                    Self::check(&fenced.into_buf())
                }
                Event::Completed { .. } => {}
                Event::Disconnected { cause, .. } => {
                    match cause {
                        Cause::Fabric(FabricFault::Corrupt) => self.ends.corrupt += 1,
                        Cause::PeerFault(_) | Cause::Terminated(_) => self.ends.faults += 1,
                        _ => self.ends.other += 1,
                    }
                    self.pair = None;
                }
            }
        }
        while let Some(event) = self.scribbler.poll(self.clock.now()) {
            match event {
                Event::Disconnected { .. } => self.pair = None,
                Event::Unbound { fenced, .. } => drop(fenced.into_buf()),
                Event::Established { qp } => self.pair = Some((qp, qp)),
                _ => {}
            }
        }
        for end in [&mut self.honest, &mut self.scribbler] {
            crate::tests::assert_lanes(end);
            end.ring();
            crate::tests::assert_lanes(end);
        }
    }

    fn connect(&mut self) {
        self.window = None;
        // What it wrote into its own ring may have led the other end astray: it starts from the
        // beginning.
        let links: Vec<_> = self.scribbler.links.iter().map(|(key, _)| key).collect();
        links.into_iter().for_each(|key| self.scribbler.end_link(key, Cause::Local));
        self.poll();
        self.pair = None;
        self.scribbler.connect(&self.at, b"").unwrap();
        for _ in 0..10_000 {
            self.poll();
            if self.pair.is_some() && self.window.is_some() {
                return;
            }
        }
        panic!("no connection: {:?}", self.ends);
    }

    /// Something honest, so that there is something to spoil.
    fn speak(&mut self, random: &mut Rng) {
        let Some((qp, _)) = self.pair else { return };
        let len = 1 + random.usize(..4000);
        let mut buf = self.pool.take(len).unwrap();
        buf.extend(len);
        let key = self.window.map(|window| window.key);
        let _ = match (random.usize(..4), self.window) {
            (0, Some(window)) => {
                let len = len.min(SPAN.len()) as u32;
                buf.truncate(len as usize);
                let to = RemoteSpan { key: window.key, offset: window.offset, len };
                self.scribbler.post_write(qp, Tag(0), buf.freeze(), to).is_ok()
            }
            (1, Some(window)) => {
                let from =
                    RemoteSpan { key: window.key, offset: window.offset, len: 16.min(len as u32) };
                self.scribbler.post_read(qp, Tag(0), buf, 0, &[from]).is_ok()
            }
            (2, _) if random.usize(..16) == 0 => {
                self.scribbler.post_send(qp, Tag(0), buf, key).is_ok()
            }
            (3, _) => self.scribbler.send_inline(qp, &buf, None),
            _ => self.scribbler.post_send(qp, Tag(0), buf, None).is_ok(),
        };
    }

    /// One mutation of the scribbler's file.
    fn scribble(&mut self, random: &mut Rng) {
        let Some((_, link)) = self.scribbler.links.iter().next() else { return };
        let (Some(own), Some(rings)) = (link.own(), &link.rings) else { return };
        // Mostly where the other end looks next.
        let near = rings.producer().head();
        let line = RING + (near as usize + random.usize(..4) * LINE) % RING_LEN;
        let word = random.u64(..);
        match random.usize(..8) {
            0 => own.copy_in(random.usize(..RING + RING_LEN), &[word as u8]),
            1 => own.set_word(HEAD, if random.bool() { word } else { random.u64(..1 << 16) }),
            2 => own.set_word(ASLEEP, word),
            3 => own.copy_in(line + random.usize(..LINE), &[word as u8]),
            4 => {
                // Any kind, and a length that fits.
                own.set_word(line, word & 0x0003_0000_3fff);
            }
            _ => {
                // A whole record that looks right but for one field.
                let kinds = [
                    RecordKind::Send,
                    RecordKind::SendInvalidate,
                    RecordKind::Write,
                    RecordKind::WriteFrom,
                    RecordKind::Read,
                    RecordKind::Answer,
                    RecordKind::AnswerFrom,
                    RecordKind::Close,
                ];
                let window = self.window;
                let mut record = ShmRecord {
                    len: random.u32(..64),
                    key: window.map_or(0, |window| window.key.0),
                    flags: random.u32(..2),
                    offset: window.map_or(0, |window| window.offset),
                    more: 64,
                    ..ShmRecord::new(kinds[random.usize(..kinds.len())], random.u32(..3))
                };
                match random.usize(..6) {
                    0 => record.len = word as u32,
                    1 => record.key ^= 1 << random.usize(..32),
                    2 => record.offset = record.offset.wrapping_add(word >> random.usize(..64)),
                    3 => record.more = word >> random.usize(..64),
                    4 => record.to = word as u32 >> random.usize(..32),
                    _ => record.flags = word as u32 >> random.usize(..32),
                }
                own.copy_in(line + WORD, record.emit().octets());
                let len = word as usize >> random.usize(..64) & 0xff_ffff;
                let spoilt = Word::new(record.kind.octet(), len, record.to);
                let honest = ShmRecord { len: record.len & 0xffff, ..record }.word();
                own.set_word(line, if random.usize(..6) == 0 { spoilt } else { honest }.octets());
            }
        }
    }
}

fn run(trust: bool, mutations: u64) {
    let directory =
        std::env::temp_dir().join(format!("stag-scribbler-{}-{trust}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let at = ShmAddress::new(directory.join("socket")).unwrap();
    let at = if trust { at.trusting() } else { at };
    let mut world = World::new(trust, at);
    let mut random = Rng::with_seed(0x5eed_0000 + u64::from(trust));
    for mutation in 0..mutations {
        // A ring that was led astray may be silent for ever: that is what deadlines are for.
        if world.pair.is_none() || mutation.is_multiple_of(32) {
            world.connect();
        }
        if mutation.is_multiple_of(4) {
            world.speak(&mut random);
            world.scribbler.ring();
        }
        world.scribble(&mut random);
        if mutation.is_multiple_of(2) {
            world.poll();
        }
    }
    println!("{mutations} mutations, trust {trust}: {:?}", world.ends);
    assert!(
        world.ends.corrupt > 0 && world.ends.faults > 0 && !world.ends.replies.contains(&0),
        "the mutations reach what is judged: {:?}",
        world.ends
    );
    let World { pool, mut honest, scribbler, clock, .. } = world;
    drop(scribbler);
    for _ in 0..10_000 {
        while let Some(event) = honest.poll(clock.now()) {
            if let Event::Unbound { fenced, .. } = event {
                World::check(&fenced.into_buf());
            }
        }
        if honest.links() == 0 {
            break;
        }
    }
    assert_eq!((honest.links(), honest.connections(), honest.windows_bound()), (0, 0, 0));
    assert_eq!(pool.taken(), honest.receives_posted(), "everything came back");
    drop(honest);
    assert_eq!(pool.taken(), 0);
    std::fs::remove_dir_all(directory).unwrap();
}

/// More where tests may take their time; a million by hand.
fn mutations() -> u64 {
    let default = if std::env::var_os("CI").is_some() { 250_000 } else { 50_000 };
    std::env::var("STAG_SCRIBBLES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn a_scribbling_peer_harms_nobody_in_isolation() {
    run(false, mutations());
}

#[test]
fn a_scribbling_peer_harms_nobody_where_pools_are_mapped() {
    run(true, mutations());
}
