//! Benchmark of READs that miss the page cache: by the gateway's helper threads, by its io_uring,
//! and by one with registered buffers (DESIGN D11).
//!
//! ```sh
//! cargo run --release -p stag-nfs-os --example read-miss [DIRECTORY [ROUNDS]]
//! ```
//!
//! It makes a file of 128 MiB in DIRECTORY (the system's temporary one), which must be on a disk,
//! and removes it. A thread stands for a shard: it tries `preadv2(RWF_NOWAIT)`, passes misses to
//! the way under test, and sleeps in an epoll until an eventfd fires. All ways read the same places
//! in each round, evicted before, in turn. Every READ is checked at both ends. CPU time is that of
//! all threads of the process, including the kernel's for its io_uring, without interrupts.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod ring;

use std::{
    fs::File,
    io::{IoSliceMut, Write},
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use fastrand::Rng;
use ring::Registered;
use rustix::{
    event::{EventfdFlags, epoll, eventfd},
    fs::{Advice, fadvise},
    io::{Errno, ReadWriteFlags, pread, preadv2, read, write},
    time::{ClockId, clock_gettime},
};
use stag_nfs_os::{ReadRange, Ring};
use stag_nfs_store::{ReadTicket, helpers::Helpers};
use stag_pools::{Class, Pool};

const FILE_LEN: u64 = 128 << 20;
/// Bytes of a READ, READs of one measurement, and READs in flight at once.
const CASES: [(usize, usize, usize); 6] = [
    (4 << 10, 400, 1),
    (64 << 10, 200, 1),
    (1 << 20, 64, 1),
    (4 << 10, 800, 32),
    (64 << 10, 400, 32),
    (1 << 20, 96, 32),
];
const WAYS: [&str; 3] = ["helpers", "io_uring", "io_uring, registered"];

/// Returns the word that fills the file at this offset.
const fn word(offset: u64) -> u64 {
    offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d
}

fn check(octets: &[u8], offset: u64) {
    let at = |place: usize| u64::from_ne_bytes(octets[place..][..8].try_into().unwrap());
    let last = octets.len() - 8;
    assert_eq!(
        (at(0), at(last)),
        (word(offset), word(offset + last as u64)),
        "the octets are the file's"
    );
}

struct Host {
    file: File,
    epoll: OwnedFd,
    bell: Arc<OwnedFd>,
}

impl Host {
    fn new(directory: &std::path::Path) -> Self {
        let mut file = tempfile::tempfile_in(directory).unwrap();
        for offset in (0..FILE_LEN).step_by(1 << 20) {
            let piece: Vec<u8> = (offset..offset + (1 << 20))
                .step_by(8)
                .flat_map(|at| word(at).to_ne_bytes())
                .collect();
            file.write_all(&piece).unwrap();
        }
        file.sync_all().unwrap();
        let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        epoll::add(&epoll, &bell, epoll::EventData::new_u64(0), epoll::EventFlags::IN).unwrap();
        Self { file, epoll, bell }
    }

    fn evict(&self) {
        fadvise(&self.file, 0, None, Advice::DontNeed).unwrap();
    }

    /// False when bytes are missing.
    fn is_read(&self, octets: &mut [u8], offset: u64) -> bool {
        match preadv2(&self.file, &mut [IoSliceMut::new(octets)], offset, ReadWriteFlags::NOWAIT) {
            Ok(count) => count == octets.len(),
            Err(Errno::AGAIN) => false,
            Err(error) => panic!("preadv2(RWF_NOWAIT): {error}; DIRECTORY must be on a disk"),
        }
    }

    fn sleep(&self) {
        let mut events = Vec::with_capacity(1);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) => drop(read(&*self.bell, &mut [0; 8])),
            Err(error) => assert_eq!(error, Errno::INTR),
        }
    }
}

/// A way to fetch bytes to a slot of memory.
trait Way {
    /// Starts a READ; false when the bytes are present already.
    fn begin(&mut self, host: &Host, offset: u64, slot: usize) -> bool;
    /// A slot whose bytes have arrived.
    fn next(&mut self, host: &Host) -> Option<usize>;
}

/// Memory of a shard, for `depth` READs.
fn pool(depth: usize, len: usize) -> Pool {
    Pool::new(&[Class { slot_len: len, count: depth }]).unwrap()
}

struct ByHelpers {
    helpers: Helpers,
    tickets: Vec<ReadTicket>,
    pool: Pool,
    len: usize,
    offsets: Vec<u64>,
}

impl ByHelpers {
    fn new(host: &Host, depth: usize, len: usize) -> Self {
        let helpers = Helpers::start(1).unwrap().remove(0);
        let bell = Arc::clone(&host.bell);
        helpers.wakeup().attach(move || {
            write(&*bell, &1_u64.to_ne_bytes()).unwrap();
        });
        let (tickets, offsets) = (ReadTicket::all().collect(), vec![0; depth]);
        Self { helpers, tickets, pool: pool(depth, len), len, offsets }
    }
}

impl Way for ByHelpers {
    fn begin(&mut self, host: &Host, offset: u64, slot: usize) -> bool {
        if host.is_read(self.pool.take(self.len).unwrap().spare_mut(), offset) {
            return false;
        }
        self.offsets[slot] = offset;
        assert!(self.helpers.fetch(&host.file, offset, self.len, self.tickets[slot]));
        true
    }

    fn next(&mut self, host: &Host) -> Option<usize> {
        let slot = self.helpers.next_fetched()?.index();
        let mut buf = self.pool.take(self.len).unwrap();
        let room = buf.spare_mut();
        if !host.is_read(room, self.offsets[slot]) {
            assert_eq!(pread(&host.file, &mut room[..], self.offsets[slot]), Ok(room.len()));
        }
        check(room, self.offsets[slot]);
        Some(slot)
    }
}

struct ByRing {
    ring: Ring<(usize, u64)>,
    pool: Pool,
    len: usize,
}

impl ByRing {
    fn new(host: &Host, depth: usize, len: usize) -> Self {
        Self { ring: Ring::new(depth as u16, &*host.bell).unwrap(), pool: pool(depth, len), len }
    }
}

impl Way for ByRing {
    fn begin(&mut self, host: &Host, offset: u64, slot: usize) -> bool {
        let mut buf = self.pool.take(self.len).unwrap();
        if host.is_read(buf.spare_mut(), offset) {
            return false;
        }
        assert!(
            self.ring
                .read(&host.file, ReadRange { offset, len: self.len }, buf, (slot, offset))
                .is_ok()
        );
        true
    }

    fn next(&mut self, _: &Host) -> Option<usize> {
        let done = self.ring.next_done()?;
        assert_eq!(done.outcome, Ok(self.len), "a READ is whole");
        check(&done.buf, done.kept.1);
        Some(done.kept.0)
    }
}

struct ByRegistered {
    ring: Registered,
    offsets: Vec<u64>,
    /// Memory for bytes that the first try would find.
    room: Vec<u8>,
}

impl ByRegistered {
    fn new(host: &Host, depth: usize, len: usize) -> Self {
        let ring = Registered::new(depth as u32, len, &*host.bell).unwrap();
        Self { ring, offsets: vec![0; depth], room: vec![0; len] }
    }
}

impl Way for ByRegistered {
    fn begin(&mut self, host: &Host, offset: u64, slot: usize) -> bool {
        if host.is_read(&mut self.room, offset) {
            return false;
        }
        self.offsets[slot] = offset;
        self.ring.read(host.file.as_fd(), offset, slot).unwrap();
        true
    }

    fn next(&mut self, _: &Host) -> Option<usize> {
        let len = self.room.len();
        let (slot, octets) = self.ring.next_complete().unwrap()?;
        assert_eq!(octets.len(), len, "a READ is whole");
        check(octets, self.offsets[slot]);
        Some(slot)
    }
}

/// Cost of one way in one round.
#[derive(Clone, Copy)]
struct Cost {
    /// Median, from the first try to the octets, in nanoseconds.
    latency_ns: f64,
    /// Per READ, in nanoseconds.
    cpu_ns: f64,
    /// Per READ, in nanoseconds.
    wall_ns: f64,
    /// READs that found their bytes in memory; they count in no other number.
    hits: usize,
}

fn measure(host: &Host, way: &mut dyn Way, offsets: &[u64], depth: usize) -> Cost {
    host.evict();
    let cpu_time = || Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap();
    let (begun, cpu_before) = (Instant::now(), cpu_time());
    let mut free: Vec<usize> = (0..depth).collect();
    let mut begun_at = vec![begun; depth];
    let mut latencies = Vec::with_capacity(offsets.len());
    let mut rest = offsets.iter();
    let mut hits = 0;
    while latencies.len() + hits < offsets.len() {
        while let Some((slot, offset)) =
            free.last().copied().and_then(|slot| Some((slot, rest.next()?)))
        {
            begun_at[slot] = Instant::now();
            match way.begin(host, *offset, slot) {
                true => drop(free.pop()),
                false => hits += 1,
            }
        }
        let before = latencies.len();
        while let Some(slot) = way.next(host) {
            latencies.push(begun_at[slot].elapsed().as_nanos() as f64);
            free.push(slot);
        }
        if latencies.len() == before && free.len() < depth {
            host.sleep();
        }
    }
    let (wall, cpu) = (begun.elapsed(), cpu_time() - cpu_before);
    let each = |time: Duration| time.as_nanos() as f64 / latencies.len() as f64;
    let (cpu_ns, wall_ns) = (each(cpu), each(wall));
    Cost { latency_ns: median(&mut latencies), cpu_ns, wall_ns, hits }
}

/// Sorts the values and returns their median.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Different places for `count` READs, in random order; never the front of the file, which is read
/// ahead.
fn places(len: usize, count: usize, seed: u64) -> Vec<u64> {
    let mut places: Vec<u64> = (1..FILE_LEN / len as u64).collect();
    Rng::with_seed(seed).shuffle(&mut places);
    places[..count].iter().map(|place| place * len as u64).collect()
}

fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").unwrap().trim().to_owned()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    let rounds: usize =
        arguments.next().map_or(9, |rounds| rounds.parse().expect("ROUNDS is a number"));
    let host = Host::new(&directory);
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    println!("Linux {kernel}; {rounds} rounds; load before: {}", load());
    println!(
        "{:>9} {:>5}  {:<24} {:>10} {:>10} {:>10}   ratios of each round: median (least-most)",
        "octets", "depth", "way", "latency us", "CPU us", "wall us"
    );
    for (len, count, depth) in CASES {
        let case = Case { len, count, depth };
        let costs: Vec<[Cost; 3]> =
            (0..rounds).map(|round| one_round(&host, case, round)).collect();
        report(case, &costs);
    }
    println!("load after: {}", load());
}

/// READs of one length.
#[derive(Clone, Copy)]
struct Case {
    len: usize,
    count: usize,
    /// READs at a time.
    depth: usize,
}

fn one_round(host: &Host, Case { len, count, depth }: Case, round: usize) -> [Cost; 3] {
    let offsets = places(len, count, round as u64);
    let mut costs = [Cost { latency_ns: 0.0, cpu_ns: 0.0, wall_ns: 0.0, hits: 0 }; 3];
    // Each way is first, second and last equally often.
    for turn in 0..WAYS.len() {
        let number = (turn + round) % WAYS.len();
        let mut way: Box<dyn Way> = match number {
            0 => Box::new(ByHelpers::new(host, depth, len)),
            1 => Box::new(ByRing::new(host, depth, len)),
            _ => Box::new(ByRegistered::new(host, depth, len)),
        };
        // All memory was touched before the first READ that counts.
        measure(host, &mut *way, &offsets[..count / 2], depth);
        costs[number] = measure(host, &mut *way, &offsets, depth);
    }
    costs
}

fn report(Case { len, depth, .. }: Case, rounds: &[[Cost; 3]]) {
    let values: [fn(&Cost) -> f64; 3] =
        [|cost| cost.latency_ns, |cost| cost.cpu_ns, |cost| cost.wall_ns];
    for (number, way) in WAYS.into_iter().enumerate() {
        let medians = values.map(|of| {
            median(&mut rounds.iter().map(|round| of(&round[number])).collect::<Vec<_>>()) / 1e3
        });
        print!(
            "{len:>9} {depth:>5}  {way:<24} {:>10.1} {:>10.1} {:>10.1}",
            medians[0], medians[1], medians[2]
        );
        for against in 0..number {
            print!("   against {}:", WAYS[against]);
            for (name, of) in ["latency", "CPU", "wall"].into_iter().zip(values) {
                let mut ratios: Vec<_> =
                    rounds.iter().map(|round| of(&round[number]) / of(&round[against])).collect();
                let median = median(&mut ratios);
                print!(" {name} {median:.2} ({:.2}-{:.2})", ratios[0], ratios[ratios.len() - 1]);
            }
        }
        println!("   {} hits", rounds.iter().map(|round| round[number].hits).sum::<usize>());
    }
}
