//! Doubts: signs that the generator or its host distorted the measurement (DESIGN D13).

use crate::{
    latency::Times,
    report::model::{ClientSide, HostFacts},
};

/// Preemptions of a thread per second: the kernel's own threads cause a few.
const PREEMPTIONS_PER_S: f64 = 10.0;
/// Microseconds between two turns that only the host can have caused.
const GAP_US: f64 = 1_000.0;
/// Runnable threads for each core: a server of ours and the generator of a run before fill two.
const LOAD_PER_CORE: f64 = 1.25;
/// The part of the host's time that others may take.
const STOLEN: f64 = 0.01;

/// The circumstances of a run.
#[derive(Clone, Copy, Debug)]
pub struct DoubtedRun<'a> {
    /// The generator.
    pub client: &'a ClientSide,
    /// Its host, with the floors of before and after.
    pub host: &'a HostFacts,
    /// Its response times.
    pub response: &'a Times,
    /// Threads of the generator.
    pub threads: usize,
    /// Seconds that they ran for, warm-up included.
    pub ran_s: f64,
}

impl DoubtedRun<'_> {
    /// Reasons for which the generator or its host may have caused the figures, in sentences.
    pub fn doubts(&self) -> Vec<String> {
        let stolen = self.client.stolen.filter(|stolen| *stolen > STOLEN);
        let stolen =
            stolen.map(|part| format!("the host lost {:.1} % of its time to others", part * 100.0));
        let others = [stolen, self.preempted(), self.paused(), self.crowded(), self.floorless()];
        self.late().chain(others.into_iter().flatten()).collect()
    }

    fn late(&self) -> impl Iterator<Item = String> {
        ["p50", "p99", "p99.9"].into_iter().filter_map(|name| {
            let (lag, response) =
                (self.client.lag.percentile(name)?, self.response.percentile(name)?);
            // The clock is read once in a turn, so a lag below a microsecond is normal.
            let is_late = lag > 1.0 && lag > response * 0.1;
            is_late.then(|| {
                format!(
                    "the generator was late: its lag at {name} is {lag:.1} us of {response:.1} us \
                     of response"
                )
            })
        })
    }

    fn preempted(&self) -> Option<String> {
        let preemptions = self.client.preemptions?;
        let allowed = (PREEMPTIONS_PER_S * self.threads as f64 * self.ran_s).max(PREEMPTIONS_PER_S);
        (preemptions as f64 > allowed).then(|| {
            format!(
                "others took the generator's core {preemptions} times: give it a core that \
                 nothing else uses"
            )
        })
    }

    fn paused(&self) -> Option<String> {
        let gap = self.client.gap_max_us;
        (gap > GAP_US).then(|| {
            format!(
                "the generator stood still for {:.1} ms: the longest times may be its own",
                gap / 1e3
            )
        })
    }

    fn crowded(&self) -> Option<String> {
        let HostFacts { load, cores, .. } = *self.host;
        (load > LOAD_PER_CORE * cores as f64).then(|| {
            format!(
                "the host was busy before the run: its load average was {load:.1} on {cores} cores"
            )
        })
    }

    /// A sentence if a floor is missing although there are cores for it: the second of two threads
    /// did not get to run.
    fn floorless(&self) -> Option<String> {
        let [before, after] = self.host.floors_ns.map(|floor| floor.is_some());
        let when = match (before, after) {
            (true, true) => return None,
            (false, false) if self.host.cores < 2 => return None,
            (false, false) => "before and after the run",
            (false, true) => "before the run",
            (true, false) => "after the run",
        };
        Some(format!(
            "a word's round trip between two cores could not be measured {when}: the cores were \
             taken"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::histogram;

    fn times(micros: u64) -> Times {
        let mut histogram = histogram();
        histogram.record_n(micros * 1_000, 10_000).unwrap();
        Times::new(&histogram)
    }

    fn doubts(client: &ClientSide, host: &HostFacts, response: u64) -> Vec<String> {
        DoubtedRun { client, host, response: &times(response), threads: 1, ran_s: 10.0 }.doubts()
    }

    fn quiet() -> HostFacts {
        HostFacts {
            cores: 2,
            load: 2.0,
            floors_ns: [Some(100.0), Some(300.0)],
            ..HostFacts::default()
        }
    }

    #[test]
    fn a_late_generator_is_doubted_and_a_punctual_one_is_not() {
        let client = |lag| ClientSide { lag: times(lag), ..ClientSide::default() };
        assert_eq!(doubts(&client(5), &quiet(), 100), Vec::<String>::new());
        assert_eq!(doubts(&client(11), &quiet(), 100).len(), 3);
        assert_eq!(doubts(&client(1), &quiet(), 2), Vec::<String>::new());
        let robbed = ClientSide { stolen: Some(0.02), ..client(0) };
        assert_eq!(doubts(&robbed, &quiet(), 100), ["the host lost 2.0 % of its time to others"]);
    }

    #[test]
    fn a_generator_that_lost_its_core_is_doubted() {
        let of = |preemptions, gap_max_us| {
            let client = ClientSide { preemptions, gap_max_us, ..ClientSide::default() };
            doubts(&client, &quiet(), 100)
        };
        assert_eq!(of(None, 0.0), Vec::<String>::new());
        assert_eq!(of(Some(100), 1_000.0), Vec::<String>::new());
        assert!(<[String; 1]>::try_from(of(Some(101), 0.0)).unwrap()[0].contains("101 times"));
        assert!(<[String; 1]>::try_from(of(None, 4_100.0)).unwrap()[0].contains("4.1 ms"));
    }

    #[test]
    fn a_host_that_does_other_work_is_doubted() {
        let of = |host: HostFacts| doubts(&ClientSide::default(), &host, 100);
        assert!(of(HostFacts { load: 6.0, ..quiet() })[0].contains("6.0 on 2 cores"));
        for (floors_ns, part) in [
            ([Some(100.0), None], "measured after"),
            ([None, Some(100.0)], "measured before the"),
            ([None; 2], "before and after"),
        ] {
            let said = of(HostFacts { floors_ns, ..quiet() });
            assert!(said.len() == 1 && said[0].contains(part), "{said:?}");
        }
        let single = HostFacts { cores: 1, load: 1.0, floors_ns: [None; 2], ..quiet() };
        assert_eq!(of(single), Vec::<String>::new(), "there are no two cores");
    }
}
