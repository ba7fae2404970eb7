//! Comparison of two runs: the amount by which one was slower, and the probability that chance
//! explains the difference.
//!
//! Each whole second gives one value of each quantity. A quantity is worse when it is worse by more
//! than the noise threshold *and* its seconds rank so that chance hardly explains it (Mann-Whitney
//! U, two-sided, with the correction for ties).

use crate::{
    floor::middle,
    report::model::{FLOORS_MAX, RunOutcome, SecondFigures},
    schedule::Random,
};
use serde::Serialize;
use statrs::function::erf::erfc;
use std::f64::consts::SQRT_2;

/// Bootstrap samples for an interval.
const DRAWS: usize = 2_000;
/// Whole seconds that each run has to have.
pub const SECONDS_MIN: usize = 5;

/// Thresholds for comparing results.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rules {
    /// A smaller change is noise: 0.05 is 5 %.
    pub noise: f64,
    /// A change that chance explains with a higher probability than this is noise.
    pub alpha: f64,
    /// The runs took turns, so both met the same states of their host.
    pub interleaved: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { noise: 0.05, alpha: 0.01, interleaved: false }
    }
}

/// Verdict on one quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Too little, or explained by chance.
    Same,
    /// The second run is better.
    Better,
    /// The second run is worse.
    Worse,
}

/// One quantity of two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Name of the quantity.
    pub quantity: &'static str,
    /// The middle one of the seconds of the first run.
    pub before: f64,
    /// Of the second run.
    pub after: f64,
    /// `after / before - 1`.
    pub change: f64,
    /// The 95 % confidence interval of the change.
    pub interval: [f64; 2],
    /// Probability that chance alone ranks the seconds at least as clearly.
    pub p: f64,
    /// Verdict on the quantity.
    pub verdict: Verdict,
}

/// Name of a quantity, true if more of it is better, and the function that takes it from a second.
type Quantity = (&'static str, bool, fn(&SecondFigures) -> Option<f64>);

const QUANTITIES: [Quantity; 3] = [
    ("response p50 us", false, |second| second.response_p50_us),
    ("response p99 us", false, |second| second.response_p99_us),
    ("calls/s", true, |second| Some(second.calls as f64)),
];

/// Compares the second run with the first.
///
/// # Errors
/// Reason for which the two cannot be compared, as a sentence.
pub fn compare(
    before: &RunOutcome,
    after: &RunOutcome,
    rules: Rules,
) -> Result<Vec<Change>, String> {
    same_setup(before, after)?;
    let took_turns = before.turns.is_some() && before.turns == after.turns;
    if !rules.interleaved && !took_turns {
        same_floor(before, after)?;
    }
    for (name, outcome) in [("first", before), ("second", after)] {
        if outcome.failed > 0 || outcome.failure.is_some() {
            return Err(format!("calls of the {name} run failed"));
        }
        let seconds = outcome.whole_seconds().len();
        if seconds < SECONDS_MIN {
            return Err(format!(
                "the {name} run has {seconds} whole seconds, and {SECONDS_MIN} are needed"
            ));
        }
    }
    Ok(QUANTITIES.iter().filter_map(|quantity| change(before, after, rules, *quantity)).collect())
}

/// Returns true if any quantity is worse.
pub fn is_worse(changes: &[Change]) -> bool {
    changes.iter().any(|change| change.verdict == Verdict::Worse)
}

/// Checks of the host (`stag tune check`) that had another state in the other run, by id.
pub fn settings(before: &RunOutcome, after: &RunOutcome) -> Vec<String> {
    let both = before.check.as_ref().zip(after.check.as_ref());
    both.map(|(one, other)| one.differences(other)).unwrap_or_default()
}

/// The number of names in the directory of a run.
fn names(names: Option<u32>) -> String {
    names.map_or_else(|| "none".to_owned(), |names| names.to_string())
}

/// The runs were made alike, wherever the server was.
fn same_setup(before: &RunOutcome, after: &RunOutcome) -> Result<(), String> {
    let (one, other) = (&before.setup, &after.setup);
    // Versions of NFS are compared with each other.
    let are_twins = one.workload.by_nfs3() == other.workload.by_nfs3();
    let workload = if are_twins { one.workload } else { other.workload };
    let pairs = [
        ("workload", one.workload.to_string(), workload.to_string()),
        ("size", one.size.to_string(), other.size.to_string()),
        ("connections", one.connections.to_string(), other.connections.to_string()),
        ("depth", one.depth.to_string(), other.depth.to_string()),
        ("cores", one.cores.to_string(), other.cores.to_string()),
        ("rate", format!("{:?}", one.rate), format!("{:?}", other.rate)),
        ("arrivals", format!("{:?}", one.arrivals), format!("{:?}", other.arrivals)),
        ("names", names(one.names), names(other.names)),
        ("verified", one.verified.to_string(), other.verified.to_string()),
    ];
    match pairs.iter().find(|(_, one, other)| one != other) {
        Some((what, one, other)) => {
            Err(format!("the runs were made differently: {what} is {one} and {other}"))
        }
        None => Ok(()),
    }
}

/// Checks that the host was in the same state: figures from different states say nothing about the
/// server.
fn same_floor(before: &RunOutcome, after: &RunOutcome) -> Result<(), String> {
    let floors = [before, after].map(|outcome| outcome.host.floors_ns);
    let known: Vec<f64> = floors.iter().flatten().flatten().copied().collect();
    let (low, high) = known
        .iter()
        .fold((f64::MAX, 0.0_f64), |(low, high), floor| (low.min(*floor), high.max(*floor)));
    if known.len() > 1 && high > low * FLOORS_MAX {
        return Err(format!(
            "the host was not in the same state: its floor (a word's round trip between two \
             cores) was {low:.0} ns and {high:.0} ns; \
             let the runs take turns by 'stag bench versus', or say --interleaved if they did"
        ));
    }
    Ok(())
}

fn change(
    before: &RunOutcome,
    after: &RunOutcome,
    rules: Rules,
    (quantity, more_is_better, of): Quantity,
) -> Option<Change> {
    let values =
        |outcome: &RunOutcome| outcome.whole_seconds().iter().filter_map(of).collect::<Vec<_>>();
    let (one, other) = (values(before), values(after));
    if one.len() < SECONDS_MIN || other.len() < SECONDS_MIN {
        return None;
    }
    let (p, interval) = (mann_whitney(&one, &other), interval(&one, &other));
    let (before, after) = (middle(one)?, middle(other)?);
    let change = if before > 0.0 { after / before - 1.0 } else { 0.0 };
    let verdict = match change.abs() > rules.noise && p < rules.alpha {
        false => Verdict::Same,
        true if (change > 0.0) == more_is_better => Verdict::Better,
        true => Verdict::Worse,
    };
    Some(Change { quantity, before, after, change, interval, p, verdict })
}

/// The 95 % confidence interval of the change between the middles of two samples: both are
/// resampled many times, and the middle 95 % of the results are taken (the percentile bootstrap).
/// The same samples give the same interval.
fn interval(one: &[f64], other: &[f64]) -> [f64; 2] {
    let mut random = Random::new(0);
    let mut again = |values: &[f64]| {
        let draw = |_| values.get(random.below(values.len() as u64) as usize).copied();
        middle((0..values.len()).filter_map(draw).collect()).unwrap_or(0.0)
    };
    let change = |(one, other): (f64, f64)| if one > 0.0 { other / one - 1.0 } else { 0.0 };
    let mut changes: Vec<_> = (0..DRAWS).map(|_| change((again(one), again(other)))).collect();
    changes.sort_by(f64::total_cmp);
    let at = |part: f64| changes.get((part * DRAWS as f64) as usize).copied().unwrap_or(0.0);
    [at(0.025), at(0.975)]
}

/// The probability that two samples of one population rank at least as differently as these
/// (Mann-Whitney U, two-sided): by the normal distribution, with corrections for ties and for
/// continuity, which is good from about five values a side.
pub fn mann_whitney(one: &[f64], other: &[f64]) -> f64 {
    let mut all: Vec<(f64, bool)> = one
        .iter()
        .map(|value| (*value, true))
        .chain(other.iter().map(|value| (*value, false)))
        .collect();
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut rank, mut ranks_of_one, mut ties) = (0.0, 0.0, 0.0);
    for equal in all.chunk_by(|one, other| one.0 == other.0) {
        let count = equal.len() as f64;
        // All of them have the middle of their ranks.
        let shared = rank + (count + 1.0) / 2.0;
        ranks_of_one += shared * equal.iter().filter(|(_, is_one)| *is_one).count() as f64;
        ties += count.powi(3) - count;
        rank += count;
    }
    let (n, m) = (one.len() as f64, other.len() as f64);
    let u = ranks_of_one - n * (n + 1.0) / 2.0;
    let both = n + m;
    let variance = n * m / 12.0 * (both + 1.0 - ties / (both * (both - 1.0)).max(1.0));
    if variance <= 0.0 {
        return 1.0;
    }
    let z = ((u - n * m / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    (2.0 * upper_tail(z)).min(1.0)
}

/// The part of the normal distribution above `z >= 0`.
fn upper_tail(z: f64) -> f64 {
    erfc(z / SQRT_2) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_chance_hardly_gives_have_a_small_probability() {
        let numbers = |from: u32| (from..from + 10).map(f64::from).collect::<Vec<_>>();
        // With 10 values a side, none of which overlap, U is 0: z = 49.5 / 13.229.
        assert!((mann_whitney(&numbers(0), &numbers(100)) - 1.83e-4).abs() < 1e-6);
        assert!(mann_whitney(&numbers(0), &numbers(0)) > 0.99);
        assert_eq!(mann_whitney(&numbers(0), &numbers(7)), mann_whitney(&numbers(7), &numbers(0)));
        assert_eq!(mann_whitney(&[1.0; 8], &[1.0; 8]), 1.0, "all tied");
        assert_eq!(mann_whitney(&[], &[]), 1.0);
        let interleaved: (Vec<_>, Vec<_>) =
            (0..20).map(f64::from).partition(|value| value % 2.0 == 0.0);
        assert!(mann_whitney(&interleaved.0, &interleaved.1) > 0.5);
    }

    #[test]
    fn an_interval_holds_the_change_and_shrinks_with_its_samples() {
        let values = |count: u32, scale: f64| -> Vec<_> {
            (0..count).map(|at| (100.0 + f64::from(at * 7 % 10)) * scale).collect()
        };
        let width = |count| {
            let [low, high] = interval(&values(count, 1.0), &values(count, 1.2));
            assert!(low < 0.2 && 0.2 < high, "{low} {high}");
            high - low
        };
        assert!(width(200) < width(10));
        assert_eq!(interval(&[1.0; 5], &[2.0; 5]), [1.0, 1.0]);
        assert_eq!(interval(&[0.0; 5], &[2.0; 5]), [0.0, 0.0]);
    }

    #[test]
    fn the_normal_distribution_is_that_of_the_tables() {
        for (z, part) in [(0.0, 0.5), (1.0, 0.158_655_3), (1.959_964, 0.025), (3.0, 0.001_349_9)] {
            assert!((upper_tail(z) - part).abs() < 1e-6, "{z}: {}", upper_tail(z));
        }
    }
}
