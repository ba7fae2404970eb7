//! Several shards in one thread and in virtual time, each with a caller of its own. A shard's cost
//! to the others shows as instructions, and the delay that it causes as time.

use stag_echo::{Caller, Echo};
use stag_engine::{Config, PeerId, Shard, Token};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Limits, Time};
use std::{io, time::Duration};

/// Limits of each end.
const LIMITS: Limits = Limits { send_queue: 128, read_spans: 64, windows: 512, ..stag_sim::LIMITS };
/// Calls that each caller has in flight.
pub const DEPTH: u64 = 8;
/// The time from one end to the other on a fabric that all share.
pub const DELAY: Duration = Duration::from_micros(5);

/// A shard that answers, and the one that calls it.
#[derive(Debug)]
struct SimPair {
    server: Shard<Sim, Echo>,
    client: Shard<Sim, Caller>,
    peer: Option<PeerId>,
    called: u64,
    answered: u64,
}

/// Shards, with a caller each.
#[derive(Debug)]
pub struct SimShards {
    pairs: Vec<SimPair>,
    /// The medium: one for all, or one for each pair.
    fabrics: Vec<Fabric>,
    now: Time,
}

impl SimShards {
    /// Makes `shards` pairs, each on a fabric of its own without delay, all from one seed: they
    /// share nothing but this process.
    ///
    /// # Errors
    /// As `mmap(2)` and `epoll_create(2)` fail, and when a pair does not connect.
    pub fn apart(shards: usize) -> io::Result<Self> {
        Self::on((0..shards).map(|_| Fabric::new(1, Faults::NONE)).collect(), shards)
    }

    /// Makes `shards` pairs on one fabric, on which everything takes [`DELAY`].
    ///
    /// # Errors
    /// As [`apart`](Self::apart).
    pub fn together(shards: usize) -> io::Result<Self> {
        let nanos = DELAY.as_nanos() as u64;
        let faults = Faults { delay: nanos..nanos + 1, ..Faults::NONE };
        Self::on(vec![Fabric::new(1, faults)], shards)
    }

    fn on(fabrics: Vec<Fabric>, shards: usize) -> io::Result<Self> {
        let pairs = fabrics.iter().cycle().take(shards).zip(1..);
        let pairs = pairs.map(|(fabric, port)| SimPair::new(fabric, Port(port)));
        let mut all = Self { pairs: pairs.collect::<io::Result<_>>()?, fabrics, now: Time(0) };
        while all.pairs.iter().any(|pair| pair.peer.is_none()) {
            all.turn()?;
            all.pairs.iter_mut().for_each(SimPair::meet);
        }
        Ok(all)
    }

    /// One pass of every shard. Time advances when no shard has work.
    fn turn(&mut self) -> io::Result<()> {
        let now = self.now;
        let mut worked = false;
        for pair in &mut self.pairs {
            worked |= pair.client.pass(now) | pair.server.pass(now);
        }
        if !worked {
            let due = self.fabrics.iter().filter_map(Fabric::next_due).min();
            let due = due.ok_or_else(|| io::Error::other("nothing is under way"))?;
            self.now = self.now.max(due);
        }
        Ok(())
    }

    /// Has every caller make `calls` NULL calls, [`DEPTH`] at a time.
    ///
    /// # Errors
    /// When a call fails.
    pub fn calls(&mut self, calls: u64) -> io::Result<()> {
        let until: Vec<_> = self.pairs.iter().map(|pair| pair.called + calls).collect();
        loop {
            let mut is_over = true;
            for (pair, until) in self.pairs.iter_mut().zip(&until) {
                pair.step(*until)?;
                is_over &= pair.answered == *until;
            }
            if is_over {
                return Ok(());
            }
            self.turn()?;
        }
    }

    /// Calls that are answered in `span` of virtual time, all callers together.
    ///
    /// # Errors
    /// When a call fails.
    pub fn answered_in(&mut self, span: Duration) -> io::Result<u64> {
        let until = self.now + span;
        let answered = |all: &Self| all.pairs.iter().map(|pair| pair.answered).sum::<u64>();
        let before = answered(self);
        while self.now < until {
            for pair in &mut self.pairs {
                pair.step(u64::MAX)?;
            }
            self.turn()?;
        }
        Ok(answered(self) - before)
    }
}

impl SimPair {
    fn new(fabric: &Fabric, at: Port) -> io::Result<Self> {
        let config = Config { grant: 32, grant_first: 32, calls_max: 32, ..Config::small() };
        let admit = || Box::new(|_| true) as Box<_>;
        let end = |name| fabric.end(name, LIMITS);
        let mut server = Shard::new(end("server"), Echo::default(), config.clone(), admit())?;
        let mut client = Shard::new(end("client"), Caller::with_capacity(64), config, admit())?;
        let at = server.listen(&at).map_err(io::Error::other)?;
        client.connect(&at).map_err(io::Error::other)?;
        Ok(Self { server, client, peer: None, called: 0, answered: 0 })
    }

    fn meet(&mut self) {
        self.peer = self.client.app().peers().first().copied();
    }

    /// Takes outcomes, and makes calls up to the one with number `until`.
    fn step(&mut self, until: u64) -> io::Result<()> {
        let peer = self.peer.ok_or_else(|| io::Error::other("there is no connection"))?;
        while let Some(done) = self.client.with_app(|app, _| app.take()) {
            done.echo.map_err(|fault| io::Error::other(format!("a call failed: {fault:?}")))?;
            self.answered += 1;
        }
        let (first, until) = (self.called, until.min(self.answered + DEPTH));
        let made = self
            .client
            .with_app(|_, cx| (first..until).all(|call| Caller::call(cx, peer, Token(call), None)));
        self.called = self.called.max(until);
        made.then_some(()).ok_or_else(|| io::Error::other("there is no memory for a call"))
    }
}
