//! Comparison of two servers measured in turns: whether the second is slower than the first, by the
//! rounds in which both were measured.
//!
//! A shared host changes its state within seconds, so figures that were taken one after the other
//! may say more about the host than about the servers. Here each round gives one ratio of each
//! quantity, of two runs that follow each other. A quantity is worse when the middle of its ratios
//! is worse by more than the noise threshold *and* the ratios rank so that chance hardly explains
//! it (Wilcoxon's signed-rank test, two-sided, exact). Rounds in which the host's floor moved, or
//! no call was answered, are left out.

use crate::{
    compare::{Rules, Verdict},
    floor::middle,
    latency::{Times, histogram},
    report::model::{ContextFigures, RunOutcome},
};
use serde::Serialize;

/// Largest accepted ratio between the floors of a round.
pub const FLOORS_MAX: f64 = 1.5;

/// One run of each server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Round {
    /// Of the first server.
    pub before: RunOutcome,
    /// Of the second one.
    pub after: RunOutcome,
}

impl Round {
    /// The lowest and the highest of its floors, in nanoseconds; none where they cannot be
    /// measured.
    pub fn floors(&self) -> Option<(f64, f64)> {
        let floors = [self.before.host.floors_ns, self.after.host.floors_ns];
        floors.iter().flatten().flatten().fold(None, |known: Option<(f64, f64)>, floor| match known
        {
            Some((low, high)) => Some((low.min(*floor), high.max(*floor))),
            None => Some((*floor, *floor)),
        })
    }

    /// The host stayed in one state.
    pub fn is_steady(&self) -> bool {
        self.floors().is_none_or(|(low, high)| high <= low * FLOORS_MAX)
    }

    /// True if the servers can be compared by it: the host stayed in one state, and each server
    /// answered calls.
    pub fn counts(&self) -> bool {
        self.is_steady() && self.before.calls > 0 && self.after.calls > 0
    }
}

/// One quantity of two servers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Name of the quantity.
    pub quantity: &'static str,
    /// The middle one of the rounds of the first server.
    pub before: f64,
    /// Of the second one.
    pub after: f64,
    /// The middle one of the ratios of the rounds, second to first.
    pub ratio: f64,
    /// The lowest of them.
    pub lowest: f64,
    /// The highest.
    pub highest: f64,
    /// Number of rounds.
    pub rounds: usize,
    /// Probability that chance alone ranks the ratios at least as clearly.
    pub p: f64,
    /// Verdict on the quantity.
    pub verdict: Verdict,
}

/// Name of a quantity, true if more of it is better, and the function that takes it from a run.
type VersusQuantity = (&'static str, bool, fn(&RunOutcome) -> Option<f64>);

const QUANTITIES: [VersusQuantity; 3] = [
    ("response p50 us", false, |outcome| outcome.response.percentile("p50")),
    ("response p99 us", false, |outcome| outcome.response.percentile("p99")),
    ("calls/s", true, |outcome| Some(outcome.calls_per_s)),
];

/// Fewest rounds for a significant result: if all agree, chance explains that with a probability of
/// one half to their power, in either direction.
pub fn rounds_min(alpha: f64) -> usize {
    (1..=64).find(|rounds| 0.5_f64.powi(rounds - 1) < alpha).map_or(64, |rounds| rounds as usize)
}

/// Compares the second server with the first, by the rounds in which the host stayed in one state.
///
/// # Errors
/// Reason for which the two cannot be compared, as a sentence.
pub fn ratios(rounds: &[Round], rules: Rules) -> Result<Vec<Ratio>, String> {
    for (name, of) in [("first", before as fn(&Round) -> &RunOutcome), ("second", after)] {
        if rounds.iter().map(of).any(|outcome| outcome.failed > 0 || outcome.failure.is_some()) {
            return Err(format!("calls of the {name} server failed"));
        }
    }
    let counted: Vec<_> = rounds.iter().filter(|round| round.counts()).collect();
    let needed = rounds_min(rules.alpha);
    if counted.len() < needed {
        return Err(format!(
            "{} of {} rounds can be used: in the others the host's floor (a word's round trip \
             between two cores) moved by more than \
             {FLOORS_MAX} times, or no call was answered in time; {needed} are needed to say \
             anything with --alpha {}",
            counted.len(),
            rounds.len(),
            rules.alpha
        ));
    }
    Ok(QUANTITIES.iter().filter_map(|quantity| ratio(&counted, rules, *quantity)).collect())
}

/// Returns true if any quantity is worse.
pub fn is_worse(ratios: &[Ratio]) -> bool {
    ratios.iter().any(|ratio| ratio.verdict == Verdict::Worse)
}

const fn before(round: &Round) -> &RunOutcome {
    &round.before
}

const fn after(round: &Round) -> &RunOutcome {
    &round.after
}

fn ratio(
    rounds: &[&Round],
    rules: Rules,
    (quantity, more_is_better, of): VersusQuantity,
) -> Option<Ratio> {
    let pair = |round: &&Round| {
        Some((of(&round.before)?, of(&round.after)?)).filter(|(one, _)| *one > 0.0)
    };
    let pairs: Vec<_> = rounds.iter().filter_map(pair).collect();
    if pairs.len() < rounds_min(rules.alpha) {
        return None; // Too few calls for this percentile.
    }
    let ratios: Vec<_> = pairs.iter().map(|(one, other)| other / one).collect();
    let p = signed_rank(&ratios.iter().map(|ratio| ratio.ln()).collect::<Vec<_>>());
    let lowest = ratios.iter().copied().fold(f64::MAX, f64::min);
    let highest = ratios.iter().copied().fold(0.0, f64::max);
    let rounds = ratios.len();
    let ratio = middle(ratios)?;
    let verdict = match (ratio - 1.0).abs() > rules.noise && p < rules.alpha {
        false => Verdict::Same,
        true if (ratio > 1.0) == more_is_better => Verdict::Better,
        true => Verdict::Worse,
    };
    let (before, after) = (
        middle(pairs.iter().map(|pair| pair.0).collect())?,
        middle(pairs.iter().map(|pair| pair.1).collect())?,
    );
    Some(Ratio { quantity, before, after, ratio, lowest, highest, rounds, p, verdict })
}

/// The probability that differences which are as often above zero as below rank at least as
/// one-sidedly as these (Wilcoxon's signed-rank test, two-sided, exact). Zeros say nothing and are
/// left out; equal ones share the middle of their ranks.
pub fn signed_rank(differences: &[f64]) -> f64 {
    let mut ordered: Vec<f64> =
        differences.iter().copied().filter(|difference| *difference != 0.0).collect();
    ordered.sort_by(|one, other| one.abs().total_cmp(&other.abs()));
    // Twice the ranks are whole numbers, ties or not.
    let (mut ranks, mut positive, mut behind) = (Vec::new(), 0, 0);
    for equal in ordered.chunk_by(|one, other| one.abs() == other.abs()) {
        let rank = 2 * behind + equal.len() + 1;
        ranks.extend(equal.iter().map(|_| rank));
        positive += rank * equal.iter().filter(|difference| **difference > 0.0).count();
        behind += equal.len();
    }
    // The part of all signs that gives each sum of positive ranks.
    let all: usize = ranks.iter().sum();
    let mut parts = vec![0.0; all + 1];
    parts.iter_mut().take(1).for_each(|part| *part = 1.0);
    for rank in ranks {
        for sum in (0..=all).rev() {
            let with =
                sum.checked_sub(rank).and_then(|rest| parts.get(rest).copied()).unwrap_or(0.0);
            if let Some(part) = parts.get_mut(sum) {
                *part = (*part + with) / 2.0;
            }
        }
    }
    let low: f64 = parts.iter().take(positive + 1).sum();
    let high: f64 = parts.iter().skip(positive).sum();
    (2.0 * low.min(high)).min(1.0)
}

/// The runs of one server as one result; `turns` says with which other results they took turns.
/// None without runs.
///
/// # Errors
/// A sentence that names the fault of a histogram.
pub fn merged<'a>(
    runs: impl Iterator<Item = &'a RunOutcome> + Clone,
    turns: &str,
) -> Result<Option<RunOutcome>, String> {
    let Some(first) = runs.clone().next() else { return Ok(None) };
    let times = |of: fn(&RunOutcome) -> Option<&Times>| {
        let mut sum = histogram();
        for run in runs.clone() {
            if let Some(times) = of(run).filter(|times| times.samples > 0) {
                sum.add(times.histogram()?).map_err(|error| error.to_string())?;
            }
        }
        Ok::<_, String>(Times::new(&sum))
    };
    let mut all = first.clone();
    all.service = times(|run| Some(&run.service))?;
    all.response = times(|run| Some(&run.response))?;
    all.connected = match first.connected {
        Some(_) => Some(times(|run| run.connected.as_ref())?),
        None => None,
    };
    all.client.lag = times(|run| Some(&run.client.lag))?;
    all.seconds = runs.clone().flat_map(|run| run.whole_seconds()).cloned().collect();
    (0..).zip(&mut all.seconds).for_each(|(number, second)| second.second = number);
    all.stages = None;
    for run in runs.clone().skip(1) {
        all.elapsed_s += run.elapsed_s;
        all.calls += run.calls;
        all.failed += run.failed;
        all.unsent += run.unsent;
        all.client.turns += run.client.turns;
        all.contexts = ContextFigures::sum([all.contexts, run.contexts]);
        all.client.gap_max_us = all.client.gap_max_us.max(run.client.gap_max_us);
        all.client.doubts.extend_from_slice(&run.client.doubts);
        all.failure = all.failure.or_else(|| run.failure.clone());
        all.gave_up_s = all.gave_up_s.or(run.gave_up_s);
        all.left_behind = all.left_behind.or_else(|| run.left_behind.clone());
        all.stopped |= run.stopped;
        all.host.floors_ns[1] = run.host.floors_ns[1];
    }
    all.client.doubts.sort();
    all.client.doubts.dedup();
    let octets: f64 = runs.map(|run| run.octets_per_s * run.elapsed_s).sum();
    let per_second = |count: f64| if all.elapsed_s > 0.0 { count / all.elapsed_s } else { 0.0 };
    (all.calls_per_s, all.octets_per_s) = (per_second(all.calls as f64), per_second(octets));
    all.turns = Some(turns.to_owned());
    Ok(Some(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_that_chance_hardly_gives_have_a_small_probability() {
        // With n differences of one sign the probability is twice 2^-n.
        for n in 1..=12 {
            let all: Vec<_> = (1..=n).map(f64::from).collect();
            assert!((signed_rank(&all) - 2.0 * 0.5_f64.powi(n)).abs() < 1e-12, "{n}");
            let negative: Vec<_> = all.iter().map(|one| -one).collect();
            assert_eq!(signed_rank(&negative), signed_rank(&all));
        }
        // Of the tables: n = 10, the smaller sum of ranks 8 has a two-sided probability of 0.0488.
        let mut ten: Vec<_> = (1..=10).map(f64::from).collect();
        (ten[2], ten[4]) = (-3.0, -5.0);
        assert!((signed_rank(&ten) - 0.048_828).abs() < 1e-5, "{}", signed_rank(&ten));
        assert_eq!(signed_rank(&[]), 1.0);
        assert_eq!(signed_rank(&[0.0; 9]), 1.0);
        assert_eq!(signed_rank(&[1.0, -1.0, 1.0, -1.0]), 1.0, "ties share their rank");
    }

    #[test]
    fn rounds_that_all_agree_are_significant_from_so_many_on() {
        assert_eq!([0.05, 0.01, 0.001].map(rounds_min), [6, 8, 11]);
        for alpha in [0.05, 0.01, 0.001] {
            let agree = |rounds: usize| signed_rank(&vec![0.1; rounds]);
            assert!(agree(rounds_min(alpha)) < alpha && agree(rounds_min(alpha) - 1) >= alpha);
        }
    }
}
