//! Steadiness of a run: a median over drifting seconds says little about any of them.
//!
//! The first third of the whole seconds is compared with the last third. A run drifts when the
//! middle moved by more than a tenth *and* the seconds rank so that chance hardly explains it.

use crate::{compare::mann_whitney, floor::middle, report::model::RunOutcome};

/// Whole seconds without which nothing is said.
pub const SECONDS_MIN: usize = 15;
/// A smaller change is none.
const CHANGE: f64 = 0.1;
/// A change that chance explains with a higher probability is none.
const ALPHA: f64 = 0.01;

/// A quantity that changed between the beginning and the end of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// Name of the quantity.
    pub quantity: &'static str,
    /// Last third of the seconds against the first one: 0.1 is a tenth more.
    pub change: f64,
}

/// The drift of a run; none if it is steady, or too short to say.
pub fn drift(outcome: &RunOutcome) -> Option<Drift> {
    let seconds = outcome.whole_seconds();
    if seconds.len() < SECONDS_MIN {
        return None;
    }
    let calls: Vec<_> = seconds.iter().map(|second| second.calls as f64).collect();
    let times: Vec<_> = seconds.iter().filter_map(|second| second.response_p50_us).collect();
    [("calls/s", calls), ("response p50", times)]
        .into_iter()
        .find_map(|(quantity, values)| Some(Drift { quantity, change: change(&values)? }))
}

/// The change from the first third to the last one, if it is one.
fn change(values: &[f64]) -> Option<f64> {
    let third = values.len() / 3;
    let first = values.get(..third)?.to_vec();
    let last = values.get(values.len() - third..)?.to_vec();
    let p = mann_whitney(&first, &last);
    let (first, last) = (middle(first)?, middle(last)?);
    let change = if first > 0.0 { last / first - 1.0 } else { 0.0 };
    (change.abs() > CHANGE && p < ALPHA).then_some(change)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_is_found_and_noise_and_one_slow_second_are_not() {
        let slope: Vec<_> = (0..30).map(|at| 1_000.0 + f64::from(at) * 20.0).collect();
        assert!(change(&slope).unwrap() > 0.3);
        let falls: Vec<_> = slope.iter().rev().copied().collect();
        assert!(change(&falls).unwrap() < -0.2);
        let noise: Vec<_> = (0..30).map(|at| 1_000.0 + f64::from(at * 7 % 11) * 30.0).collect();
        assert_eq!(change(&noise), None);
        let mut one = vec![1_000.0; 30];
        one[29] = 1.0;
        assert_eq!(change(&one), None);
        assert_eq!(change(&[]), None);
    }
}
