//! Gathers the figures of all threads, second by second.

use super::{
    Measured, RunError,
    host::Ticks,
    worker::{Watched, Worker, WorkerMessage, WorkerReport},
};
use crate::{
    doubts,
    generator::ReplySeries,
    latency::{CallRecord, Times},
    report::model::{
        ClientSide, ContextFigures, HostFacts, Outage, OutageGap, RunOutcome, RunSetup, SCHEMA,
        SecondFigures,
    },
    stages::{self, ClientStages},
};
use stag_verbs::Time;
use std::{collections::BTreeMap, sync::mpsc::Receiver};

/// Measurements of all threads.
pub(super) struct Gathered {
    all: CallRecord,
    seconds: Vec<SecondFigures>,
    /// Seconds that not every thread has reported.
    open: BTreeMap<u64, CallRecord>,
    /// The next second that each thread reports.
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
                        *place = Some(*report);
                    }
                    if self.reports.iter().all(Option::is_some) {
                        return self.close(live);
                    }
                }
            }
            self.close(live);
        }
    }

    /// Closes the seconds that every thread has reported.
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
        let outages = outages(&reports, began);
        let replies: Vec<_> = reports.iter().filter_map(|report| report.replies.as_ref()).collect();
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
            gaps: gaps(&outages, &replies, elapsed_s),
            outages,
            turns: None,
            contexts: ContextFigures::sum(reports.iter().map(|report| report.contexts)),
            stages: watched(reports.iter_mut().filter_map(|report| report.stages.take())),
            seconds: self.seconds,
        };
        let failure = reports.iter().find_map(|report| report.failure);
        let context_fault = reports.iter_mut().find_map(|report| report.context_fault.take());
        let written = reports.into_iter().map(|report| report.written).collect();
        Ok(Measured { outcome, failure, context_fault, written })
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

/// Gaps that are kept, and steps of each.
pub(crate) const GAPS: usize = 16;
const GAP_STEPS: u64 = 200;
/// Nanoseconds that are shown on both sides of an outage: half of it, within these limits.
const BESIDE: (f64, f64) = (0.25e9, 5e9);

/// Returns the replies of all threads around each outage; gaps that overlap become one.
fn gaps(outages: &[Outage], replies: &[&ReplySeries], elapsed_s: f64) -> Vec<OutageGap> {
    let end = (elapsed_s * 1e9) as u64;
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for Outage { at_s, lasted_s } in outages {
        let (at, lasted) = (at_s * 1e9, lasted_s * 1e9);
        let beside = (lasted / 2.0).clamp(BESIDE.0, BESIDE.1);
        // Below zero is zero.
        let (from, to) = ((at - beside) as u64, ((at + lasted + beside) as u64).min(end));
        match spans.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ if from < to => spans.push((from, to)),
            _ => {}
        }
    }
    spans.into_iter().take(GAPS).map(|(from, to)| gap(replies, from, to)).collect()
}

fn gap(replies: &[&ReplySeries], from: u64, to: u64) -> OutageGap {
    // A multiple of each series' own.
    let mut step = replies.iter().map(|series| series.step()).max().unwrap_or(1);
    while (to - from) / step > GAP_STEPS {
        step = step.saturating_mul(2);
    }
    let steps = from / step..to.div_ceil(step);
    let calls = steps.clone().map(|number| {
        let (from, to) = (number * step, (number + 1).saturating_mul(step));
        replies.iter().map(|series| series.between(from, to)).fold(0, u64::saturating_add)
    });
    OutageGap {
        from_s: (steps.start * step) as f64 / 1e9,
        step_s: step as f64 / 1e9,
        calls: calls.collect(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A series with `count` replies in each of the first `steps` steps of 10 ms, but for
    /// `without`.
    fn series(steps: u64, count: u64, without: std::ops::Range<u64>) -> ReplySeries {
        let mut series = ReplySeries::new();
        let answered = (0..steps).filter(|step| !without.contains(step));
        answered.for_each(|step| series.note(step * 10 * MS, count));
        series
    }

    #[test]
    fn a_gap_has_the_replies_of_all_threads_around_the_outage() {
        let (one, other) = (series(400, 2, 120..180), series(400, 3, 125..185));
        let outages = [Outage { at_s: 1.2, lasted_s: 0.6 }, Outage { at_s: 1.25, lasted_s: 0.6 }];
        let gaps = gaps(&outages, &[&one, &other], 4.0);
        let [gap] = gaps.as_slice() else { panic!("{gaps:?}") };
        assert_eq!((gap.from_s, gap.step_s, gap.calls.len()), (0.9, 0.01, 125));
        assert!((gap.until_s() - 2.15).abs() < 1e-9);
        let at = |ms: usize| gap.calls[(ms - 900) / 10];
        assert_eq!(
            [at(900), at(1_190), at(1_200), at(1_250), at(1_840), at(2_140)],
            [5, 5, 3, 0, 2, 5]
        );
        assert_eq!(gap.calls.iter().sum::<u64>(), (125 - 60) * 2 + (125 - 60) * 3);
    }

    #[test]
    fn a_long_gap_has_wider_steps_and_the_warm_up_none() {
        let one = series(6_000, 1, 1_000..4_000);
        let outage = |at_s, lasted_s| Outage { at_s, lasted_s };
        let long = gaps(&[outage(10.0, 30.0)], &[&one], 60.0);
        assert_eq!((long[0].step_s, long[0].calls[0]), (0.32, 32));
        assert!(long[0].calls.len() <= 202, "{}", long[0].calls.len());
        assert!(gaps(&[outage(-3.0, 1.0)], &[&one], 60.0).is_empty());
        let many: Vec<_> = (0..50).map(|at| outage(f64::from(at), 0.01)).collect();
        assert_eq!(gaps(&many, &[&one], 60.0).len(), GAPS);
        assert!(gaps(&[outage(5.0, 1.0)], &[], 0.0).is_empty());
    }
}
