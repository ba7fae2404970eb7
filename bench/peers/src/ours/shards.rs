//! One shard with its callers on a core, and two on two cores: the gain from a second shard,
//! compared with the gain from a second core for a loop that needs no memory.

use crate::{
    contender::{Contender, Reading},
    site::{MeasuringSite, pin, shown},
};
use clap::{Args, ValueEnum};
use stag_bench::ends::{self, Ends};
use stag_verbs::Provider;
use std::{
    hint::black_box,
    io,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

/// Calls of one caller at a time.
const DEPTH: u64 = 32;
/// Calls, or turns of the loop, between two looks at the clock.
const BATCH: u64 = 16 * DEPTH;

/// Work of each core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CoreWork {
    /// A shard and its callers, over shared memory.
    Shm,
    /// A shard and its callers, over the software RNIC.
    Iwarp,
    /// A loop of multiplications.
    Loop,
}

/// Cores that work at the same time.
#[derive(Clone, Debug, Args)]
pub struct WorkingCores {
    /// Work of each core
    work: CoreWork,
    /// Cores, as in 0,1
    #[arg(value_delimiter = ',', required = true)]
    cores: Vec<usize>,
    /// Seconds that count
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

impl WorkingCores {
    /// Calls, or turns of the loop, of all cores per second.
    ///
    /// # Errors
    /// As sockets, `mmap(2)` and `sched_setaffinity(2)` fail.
    pub fn rate(&self) -> io::Result<f64> {
        let Self { work, ref cores, seconds } = *self;
        let (start, time) = (&Barrier::new(cores.len()), Duration::from_secs_f64(seconds));
        let done = thread::scope(|scope| {
            let seated = |core| move || on_core(core, work, start, time);
            let threads: Vec<_> = cores.iter().map(|core| scope.spawn(seated(*core))).collect();
            threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
        });
        let rates = done.into_iter().map(|rate| {
            rate.unwrap_or_else(|_| Err(io::Error::other("a thread stopped by a mistake")))
        });
        rates.sum()
    }
}

/// The rate of one core, once all of them are ready.
fn on_core(core: usize, work: CoreWork, start: &Barrier, time: Duration) -> io::Result<f64> {
    let made = pin(core).and_then(|()| batches_of(work));
    // Also where it failed: the others wait for it.
    start.wait();
    let mut batch = made?;
    let (began, mut done) = (Instant::now(), 0);
    loop {
        batch();
        done += BATCH;
        let passed = began.elapsed();
        if passed >= time {
            return Ok(done as f64 / passed.as_secs_f64());
        }
    }
}

/// Makes the closure that carries out one batch.
fn batches_of(work: CoreWork) -> io::Result<Box<dyn FnMut()>> {
    Ok(match work {
        CoreWork::Shm => calls(ends::shm(false)?),
        CoreWork::Iwarp => calls(ends::iwarp()?),
        CoreWork::Loop => Box::new(|| {
            let mut number = 1_u64;
            for _ in 0..BATCH {
                number = black_box(number.wrapping_mul(6_364_136_223_846_793_005));
            }
        }),
    })
}

fn calls<P: Provider + 'static>(mut ends: Ends<P>) -> Box<dyn FnMut()> {
    // Everything a call touches has been touched before.
    ends.calls(BATCH, None, DEPTH);
    Box::new(move || ends.calls(BATCH, None, DEPTH))
}

/// A number of cores at the same work.
#[derive(Debug)]
pub struct Beside {
    work: CoreWork,
    cores: usize,
    commands: Vec<String>,
}

impl Beside {
    /// Puts `cores` cores at `work`.
    pub const fn new(work: CoreWork, cores: usize) -> Self {
        Self { work, cores, commands: Vec::new() }
    }
}

impl Contender for Beside {
    fn name(&self) -> String {
        match self.cores {
            1 => "one core".to_owned(),
            many => format!("{many} cores"),
        }
    }

    fn commands(&self) -> Vec<String> {
        self.commands.clone()
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        let work = self.work.to_possible_value().ok_or("work without a name")?;
        let mut command = site.part(site.server, "shards");
        let seats = [site.server, site.client].map(|core| core.to_string());
        let seats = seats.get(..self.cores).ok_or("there are two cores")?.join(",");
        command.args([work.get_name(), &seats]);
        command.args(["--seconds", &format!("{:.3}", site.turn.as_secs_f64())]);
        self.commands = vec![shown(&command)];
        let said = site.run(command)?;
        let rate = said.trim().parse().map_err(|_| format!("{said:?} is no rate"))?;
        Ok(Reading { calls_per_s: Some(rate), ..Reading::default() })
    }
}
