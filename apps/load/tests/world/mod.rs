//! Parts that the tests of the load generator share: a server and a generator on the simulated
//! fabric, in virtual time.
#![allow(dead_code)]

use stag_echo::Driver;
use stag_engine::{App, Config, Shard};
use stag_load::{CallRecord, Load, LoadPlan, Pace, RunSpan, To};
use stag_sim::{Fabric, Faults, Port, Sim};
use stag_verbs::{Limits, Time};
use std::time::Duration;

pub const LIMITS: Limits =
    Limits { send_queue: 256, read_spans: 64, windows: 512, ..stag_sim::LIMITS };
pub const MILLI: u64 = 1_000_000;

/// A server and a generator.
pub struct World<A: App = Driver> {
    pub fabric: Fabric,
    pub server: Shard<Sim, A>,
    pub load: Load<Sim>,
    pub now: Time,
    /// The server does nothing within.
    pub stall: std::ops::Range<u64>,
    /// From here on nothing reaches the server: every message breaks its connection, and no new
    /// connection is made.
    pub gone_at: Option<Time>,
    faults: Faults,
}

impl World {
    pub fn new(plan: &LoadPlan, faults: Faults) -> Self {
        Self::with(Driver::default(), plan, faults)
    }
}

impl<A: App> World<A> {
    pub fn with(app: A, plan: &LoadPlan, faults: Faults) -> Self {
        let fabric = Fabric::new(plan.seed, faults.clone());
        let limits =
            Config { grant: 64, grant_first: 64, reverse_calls_max: 32, ..Config::small() };
        let config = Config { sampling: plan.sampling, ..limits };
        let admit = Box::new(|_| true) as Box<_>;
        let mut server = Shard::new(fabric.end("server", LIMITS), app, config, admit).unwrap();
        let port = server.listen(&Port(0)).unwrap();
        let limits = Limits { private_data_len: 56, ..plan.limits() };
        let mut load = Load::new(fabric.end("client", limits), plan).unwrap();
        load.connect(&To::Fabric(port)).unwrap();
        let mut world =
            Self { fabric, server, load, now: Time(0), stall: 0..0, gone_at: None, faults };
        while !world.load.is_connected().unwrap() {
            world.turn();
        }
        world
    }

    /// Runs both ends until nothing is left to do at this time; then time advances to the next
    /// event.
    pub fn turn(&mut self) {
        if self.gone_at.is_some_and(|gone| self.now >= gone) {
            self.gone_at = None;
            self.fabric.set_faults(Faults {
                lost: 1_000_000,
                refused: 1_000_000,
                ..self.faults.clone()
            });
        }
        let is_stalled = self.stall.contains(&self.now.0);
        let worked = self.load.step(self.now) | (!is_stalled && self.server.pass(self.now));
        if worked {
            return;
        }
        let mut due: Vec<_> =
            self.fabric.next_due().into_iter().chain(self.load.generator().wake_at()).collect();
        if is_stalled {
            due.push(Time(self.stall.end));
        }
        // Due calls stay due while the server stalls: time advances in small steps.
        self.now =
            due.into_iter().filter(|due| *due > self.now).min().unwrap_or(Time(self.now.0 + 1_000));
    }

    /// Runs to the end. Returns the measurements, second by second.
    pub fn run(&mut self, pace: Pace, span: RunSpan) -> Vec<CallRecord> {
        let seconds = self.try_run(pace, span);
        assert_eq!(self.load.generator().failure(), None);
        seconds
    }

    /// The same, where calls may fail.
    pub fn try_run(&mut self, pace: Pace, span: RunSpan) -> Vec<CallRecord> {
        self.load.begin(self.now, pace, span);
        let mut seconds = Vec::new();
        while !self.load.generator().is_over() {
            self.turn();
            while let Some((number, record)) =
                self.load.with_generator(|generator| generator.take_second())
            {
                assert_eq!(number, seconds.len() as u64);
                seconds.push(record);
            }
        }
        seconds.push(self.load.with_generator(|generator| generator.take_rest()).1);
        seconds
    }

    /// Nothing is outstanding, lent, or promised at either end.
    pub fn assert_idle(&mut self) {
        let end = self.now + Duration::from_secs(5);
        while self.now < end
            && (self.server.buffers_in_use() > 0 || self.load.shard().buffers_in_use() > 0)
        {
            self.turn();
        }
        assert_eq!((self.server.buffers_in_use(), self.server.calls_in_progress()), (0, (0, 0)));
        let client = self.load.shard();
        assert_eq!((client.buffers_in_use(), client.calls_in_progress()), (0, (0, 0)));
    }
}

pub fn sum(seconds: &[CallRecord]) -> CallRecord {
    let mut sum = CallRecord::default();
    seconds.iter().for_each(|second| sum.add(second));
    sum
}

pub fn calls(from: u64, calls: u64) -> RunSpan {
    RunSpan { from: Time(from), until: Time(u64::MAX), calls: Some(calls) }
}
