//! Notes below a result: caveats that its figures alone do not show.

use crate::{
    report::model::{FLOORS_MAX, Outage, RunOutcome},
    steady::{self, Drift},
    workload::Workload,
};

/// Outages that notes list one by one.
const OUTAGES_SAID: usize = 5;

impl RunOutcome {
    /// Returns the caveats that the figures alone do not show, in sentences: reasons for which the
    /// generator or the host may have caused them, and what they leave out.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.stopped {
            notes.push(format!("stopped early, after {:.2} seconds that count", self.elapsed_s));
        }
        self.note_generator_and_host(&mut notes);
        self.note_outages(&mut notes);
        notes.extend(self.missing_calls());
        self.note_meaning(&mut notes);
        if let Some(failure) = &self.failure {
            notes.push(format!("{} calls failed; the first: {failure}", self.failed));
        }
        notes.extend(self.left_behind.clone());
        notes
    }

    /// Reasons for which the generator or the host may have caused the figures.
    fn note_generator_and_host(&self, notes: &mut Vec<String>) {
        let Self { client, setup, .. } = self;
        notes.extend_from_slice(&client.doubts);
        if client.pinned < setup.cores {
            notes.push(format!(
                "{} of {} threads of the generator had no core to themselves",
                setup.cores - client.pinned,
                setup.cores
            ));
        }
        if let [Some(before), Some(after)] = self.host.floors_ns
            && before.max(after) > before.min(after) * FLOORS_MAX
        {
            notes.push(format!(
                "the host changed: a word took {before:.0} ns from one core to another and back \
                 before the run, and {after:.0} ns after it"
            ));
        }
        if let Some(Drift { quantity, change }) = steady::drift(self) {
            notes.push(format!(
                "the run was not steady: {quantity} changed by {:+.0} % from its first third to \
                 its last; a longer --warm-up may help",
                change * 100.0
            ));
        }
    }

    /// Connections that were lost.
    fn note_outages(&self, notes: &mut Vec<String>) {
        for Outage { at_s, lasted_s } in self.outages.iter().take(OUTAGES_SAID) {
            notes.push(format!(
                "a connection was lost {at_s:.3} s after measuring began, and the next reply came \
                 {:.1} ms later",
                lasted_s * 1e3
            ));
        }
        if self.outages.len() > OUTAGES_SAID {
            notes.push(format!("{} outages in all", self.outages.len()));
        }
    }

    /// Calls that were due and were not made.
    fn missing_calls(&self) -> Option<String> {
        let Self { setup, unsent, .. } = self;
        if let Some(at) = self.gave_up_s {
            let when = if at < 0.0 {
                format!("{:.2} s before measuring began", -at)
            } else {
                format!("in second {} ({at:.2} s after measuring began)", at as u64 + 1)
            };
            let due = match setup.rate {
                Some(_) => format!(
                    ": {unsent} calls that were due were never made, and count among the response \
                     times with what they would have \
                     waited until the end, a lower bound"
                ),
                None => String::new(),
            };
            return Some(format!("the run failed {when}, and made no more calls{due}"));
        }
        (*unsent > 0).then(|| {
            format!(
                "{unsent} calls were due and could not be made in time: the server, or --depth, \
                 is too small for this rate; among \
                 the response times they count with what they had waited"
            )
        })
    }

    /// Meanings of the figures that depend on the run.
    fn note_meaning(&self, notes: &mut Vec<String>) {
        let Self { setup, .. } = self;
        if setup.workload.has_payload() && !setup.verified {
            notes.push("the payload was not compared".to_owned());
        }
        notes.extend(self.stages.iter().filter_map(|stages| stages.unasked.clone()));
        if self.connected.is_some() {
            notes.push(
                "each call has a connection of its own: connected is until that stood, service \
                 until the reply to NULL"
                    .to_owned(),
            );
        }
        if setup.workload == Workload::Reverse {
            notes.push(
                "the server called: it measured the times, and this side answered".to_owned(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        latency::Times,
        report::model::{ClientSide, HostFacts, RunSetup, SCHEMA},
    };

    #[test]
    fn what_the_figures_do_not_say_is_noted() {
        let well = RunOutcome {
            schema: SCHEMA.to_owned(),
            version: String::new(),
            began_unix_s: 0.0,
            setup: RunSetup {
                url: String::new(),
                workload: Workload::Read,
                size: 1,
                connections: 1,
                depth: 1,
                cores: 2,
                rate: None,
                arrivals: None,
                warm_up_s: 0.0,
                duration_s: None,
                calls: Some(1),
                verified: true,
                seed: 0,
                names: None,
                rdma_version: None,
                sec: None,
            },
            rdma_version: None,
            host: HostFacts { floors_ns: [Some(100.0), Some(129.0)], ..HostFacts::default() },
            elapsed_s: 1.0,
            stopped: false,
            calls: 1,
            failed: 0,
            failure: None,
            gave_up_s: None,
            unsent: 0,
            left_behind: None,
            calls_per_s: 1.0,
            octets_per_s: 1.0,
            service: Times::default(),
            response: Times::default(),
            connected: None,
            check: None,
            server_cores: None,
            outages: Vec::new(),
            gaps: Vec::new(),
            turns: None,
            contexts: None,
            client: ClientSide { pinned: 2, ..ClientSide::default() },
            stages: None,
            seconds: Vec::new(),
        };
        assert_eq!(well.notes(), Vec::<String>::new());
        let note = |change: fn(&mut RunOutcome)| {
            let mut outcome = well.clone();
            change(&mut outcome);
            <[String; 1]>::try_from(outcome.notes()).unwrap()[0].clone()
        };
        assert_eq!(note(|outcome| outcome.client.doubts.push("why".to_owned())), "why");
        assert!(note(|outcome| outcome.client.pinned = 1).contains("1 of 2 threads"));
        assert!(note(|outcome| outcome.host.floors_ns[1] = Some(131.0)).contains("100 ns"));
        assert!(note(|outcome| outcome.connected = Some(Times::default())).contains("of its own"));
        assert!(note(|outcome| outcome.stopped = true).contains("stopped early, after 1.00"));
        assert!(note(|outcome| outcome.unsent = 7).starts_with("7 calls were due"));
        assert!(note(|outcome| outcome.gave_up_s = Some(1.204)).contains("in second 2 (1.20 s"));
        assert!(note(|outcome| outcome.gave_up_s = Some(-0.5)).contains("0.50 s before"));
        let died = |outcome: &mut RunOutcome| {
            (outcome.gave_up_s, outcome.unsent, outcome.setup.rate) = (Some(0.0), 7, Some(9.0));
        };
        assert!(note(died).contains("7 calls that were due were never made"));
        assert_eq!(note(|outcome| outcome.left_behind = Some("left".to_owned())), "left");
        assert!(note(|outcome| outcome.setup.verified = false).contains("not compared"));
        assert!(
            note(|outcome| (outcome.failed, outcome.failure) = (3, Some("READ".to_owned())))
                .contains("3 calls failed")
        );
    }
}
