//! Figures of all threads, joined second by second.

use super::{
    Measured, RunError,
    host::Ticks,
    worker::{Watched, Worker, WorkerMessage, WorkerReport},
};
use crate::{
    doubts,
    latency::{CallRecord, Times},
    outcome::{ClientSide, HostFacts, Outage, RunOutcome, RunSetup, SCHEMA, SecondFigures},
    stages::{self, ClientStages},
};
use stag_verbs::Time;
use std::{collections::BTreeMap, sync::mpsc::Receiver};

/// Measurements of all threads.
pub(super) struct Gathered {
    all: CallRecord,
    seconds: Vec<SecondFigures>,
    /// Seconds that not every thread has told of.
    open: BTreeMap<u64, CallRecord>,
    /// The next second that each thread tells of.
    next: Vec<u64>,
    reports: Vec<Option<WorkerReport>>,
    ticks: [Option<Ticks>; 2],
    first: Option<Ticks>,
}

impl Gathered {
    pub(super) fn new(workers: usize) -> Self {
        let ticks = Ticks::read();
        Self {
            all: CallRecord::default(),
            seconds: Vec::new(),
            open: BTreeMap::new(),
            next: vec![0; workers],
            reports: (0..workers).map(|_| None).collect(),
            ticks: [ticks; 2],
            first: ticks,
        }
    }

    pub(super) fn take_all(
        &mut self,
        from: &Receiver<WorkerMessage>,
        workers: &[Worker],
        live: &mut dyn FnMut(&SecondFigures),
    ) {
        while let Ok(message) = from.recv() {
            match message {
                WorkerMessage::Ready(_) => {}
                WorkerMessage::Second(part, number, mut record) => {
                    self.open.entry(number).or_default().add(&record);
                    if let Some(next) = self.next.get_mut(part) {
                        *next = number + 1;
                    }
                    record.clear();
                    if let Some(worker) = workers.get(part) {
                        let _ = worker.spare.send(record);
                    }
                }
                WorkerMessage::Over(part, report) => {
                    if let Some(next) = self.next.get_mut(part) {
                        *next = u64::MAX;
                    }
                    if let Some(place) = self.reports.get_mut(part) {
                        *place = Some(report);
                    }
                    if self.reports.iter().all(Option::is_some) {
                        return self.close(live);
                    }
                }
            }
            self.close(live);
        }
    }

    /// Closes the seconds that every thread told of.
    fn close(&mut self, live: &mut dyn FnMut(&SecondFigures)) {
        let known = self.next.iter().copied().min().unwrap_or(0);
        while let Some(entry) = self.open.first_entry().filter(|entry| *entry.key() < known) {
            let (number, record) = entry.remove_entry();
            let [_, last] = self.ticks;
            self.ticks = [last, Ticks::read()];
            let [before, after] = self.ticks;
            let stolen = before.zip(after).and_then(|(before, after)| after.stolen_since(before));
            let second = SecondFigures::new(number, &record, stolen);
            live(&second);
            self.all.add(&record);
            self.seconds.push(second);
        }
    }

    pub(super) fn finish(
        self,
        setup: RunSetup,
        host: HostFacts,
        began_unix_s: f64,
    ) -> Result<Measured, RunError> {
        let stolen =
            self.first.zip(Ticks::read()).and_then(|(before, after)| after.stolen_since(before));
        let mut reports: Vec<_> = self.reports.into_iter().flatten().collect();
        if reports.len() != setup.cores {
            return Err(RunError::Ended);
        }
        let began = reports.iter().map(|report| report.measured.0).min().unwrap_or_default();
        let ended = reports.iter().map(|report| report.measured.1).max().unwrap_or_default();
        let elapsed_s = ended.since(began).as_secs_f64();
        let per_second = |count: u64| if elapsed_s > 0.0 { count as f64 / elapsed_s } else { 0.0 };
        let response = Times::new(&self.all.response);
        let mut client = ClientSide {
            lag: Times::new(&self.all.lag),
            turns: reports.iter().map(|report| report.watch.turns).sum(),
            gap_max_us: self.all.gap as f64 / 1e3,
            preemptions: reports.iter().map(|report| report.preemptions).sum(),
            stolen,
            pinned: reports.iter().filter(|report| report.is_pinned).count(),
            doubts: Vec::new(),
        };
        let run = doubts::DoubtedRun {
            client: &client,
            host: &host,
            response: &response,
            threads: setup.cores,
            ran_s: setup.warm_up_s + elapsed_s,
        };
        client.doubts = run.doubts();
        let gave_up = reports.iter().filter_map(|report| report.watch.gave_up).min();
        let outcome = RunOutcome {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            began_unix_s,
            setup,
            rdma_version: reports.iter().find_map(|report| report.version),
            host,
            elapsed_s,
            calls: self.all.calls,
            failed: self.all.failed,
            failure: None,
            gave_up_s: gave_up.map(|at| (at.0 as f64 - began.0 as f64) / 1e9),
            stopped: false,
            left_behind: None,
            unsent: reports.iter().map(|report| report.watch.unsent).sum(),
            calls_per_s: per_second(self.all.calls),
            octets_per_s: per_second(self.all.octets),
            service: Times::new(&self.all.service),
            response,
            connected: self.all.connected.as_deref().map(Times::new),
            client,
            check: None,
            server_cores: None,
            outages: outages(&reports, began),
            turns: None,
            stages: watched(reports.iter_mut().filter_map(|report| report.stages.take())),
            seconds: self.seconds,
        };
        let failure = reports.iter().find_map(|report| report.failure);
        let written = reports.into_iter().map(|report| report.written).collect();
        Ok(Measured { outcome, failure, written })
    }
}

/// Outages that any thread met, in the order of their beginnings.
fn outages(reports: &[WorkerReport], began: Time) -> Vec<Outage> {
    let seconds = |at: Time| (at.0 as f64 - began.0 as f64) / 1e9;
    let all = reports.iter().flat_map(|report| &report.outages);
    let outage = |(from, until): &(Time, Time)| Outage {
        at_s: seconds(*from),
        lasted_s: until.since(*from).as_secs_f64(),
    };
    let mut outages: Vec<_> = all.map(outage).collect();
    outages.sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
    outages
}

/// Merges the stage times that all threads know.
fn watched(all: impl Iterator<Item = Box<Watched>>) -> Option<stages::Stages> {
    let (mut every, mut client) = (None, ClientStages::default());
    let (mut before, mut after, mut unasked) = (Vec::new(), Vec::new(), None);
    for watched in all {
        every = Some(watched.every);
        client.add(&watched.client);
        match watched.server {
            Ok([first, last]) => {
                before.extend(first);
                after.extend(last);
            }
            Err(error) => unasked = Some(format!("the server does not tell its stages: {error}")),
        }
    }
    let server = stages::between(&before, &after).filter(|_| unasked.is_none());
    let server = server.filter(|server| server.every > 0);
    if server.is_none() {
        unasked.get_or_insert_with(|| {
            "the server watches no calls, or was started again meanwhile".to_owned()
        });
    }
    Some(stages::Stages { every: every?, client: client.times(), server, unasked })
}
