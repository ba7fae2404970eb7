//! Gaps that several nodes show, joined.

use crate::{
    report::model::{OutageGap, RunOutcome},
    run::GAPS,
};

/// Most steps of a joined gap: a longer one was not written by us.
const STEPS_MAX: u64 = 10_000;
/// Part of a step by which a time in seconds may differ from a step's.
const BESIDE: f64 = 0.01;

/// The gaps of all nodes, joined: each spans what every node shows around an outage that all of
/// them met. Outside of it the replies of some nodes are known by the second only, so that no gap
/// is drawn there.
pub(super) fn joined<'a>(outcomes: impl Iterator<Item = &'a RunOutcome>) -> Vec<OutageGap> {
    // No node of ours has more.
    let all = outcomes.map(|outcome| outcome.gaps.iter().take(GAPS).cloned().collect());
    let join = |joined: Vec<OutageGap>, gaps: Vec<OutageGap>| {
        let pairs = joined.iter().flat_map(|one| gaps.iter().map(move |other| (one, other)));
        pairs.filter_map(|(one, other)| both(one, other)).take(GAPS).collect()
    };
    all.reduce(join).unwrap_or_default()
}

/// The time that both show; none where they do not overlap.
fn both(one: &OutageGap, other: &OutageGap) -> Option<OutageGap> {
    // A multiple of both: steps are doubled, and begin at multiples of themselves.
    let step_s = one.step_s.max(other.step_s);
    let from = (one.from_s.max(other.from_s) / step_s - BESIDE).ceil();
    let until = (one.until_s().min(other.until_s()) / step_s + BESIDE).floor();
    // They come from other hosts, and may contain values that are no numbers.
    let is_sound = |gap: &OutageGap| gap.step_s > 0.0 && gap.from_s >= 0.0;
    if !(is_sound(one) && is_sound(other) && until > from) {
        return None;
    }
    let (from, until) = (from as u64, until as u64);
    if until - from > STEPS_MAX {
        return None;
    }
    let calls = (from..until).map(|number| {
        [one, other].map(|gap| in_step(gap, number, step_s)).into_iter().sum::<Option<u64>>()
    });
    Some(OutageGap {
        from_s: from as f64 * step_s,
        step_s,
        calls: calls.collect::<Option<Vec<u64>>>()?,
    })
}

/// Replies in the step with this number, if steps were `step_s` long.
fn in_step(gap: &OutageGap, number: u64, step_s: f64) -> Option<u64> {
    let ratio = (step_s / gap.step_s).round() as u64;
    let skipped = (gap.from_s / gap.step_s).round() as u64;
    let first = usize::try_from(number.checked_mul(ratio)?.checked_sub(skipped)?).ok()?;
    let steps = gap.calls.get(first..first.checked_add(usize::try_from(ratio).ok()?)?)?;
    Some(steps.iter().copied().fold(0, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(from_s: f64, step_s: f64, calls: &[u64]) -> OutageGap {
        OutageGap { from_s, step_s, calls: calls.to_vec() }
    }

    #[test]
    fn replies_of_both_are_added_step_by_step_where_both_show_them() {
        let one = gap(0.9, 0.01, &[1, 2, 3, 4, 5]);
        let other = gap(0.92, 0.01, &[10, 20, 30, 40]);
        let joined = both(&one, &other).unwrap();
        assert_eq!((joined.from_s, joined.step_s), (0.92, 0.01));
        assert_eq!(joined.calls, [13, 24, 35]);
        assert_eq!(both(&one, &gap(0.95, 0.01, &[7])), None, "they do not overlap");
    }

    #[test]
    fn steps_of_different_length_are_joined_by_the_longer() {
        // Steps of 10 ms from 0.90 on, and of 40 ms from 0.88 on: 0.92 to 1.00 is in both.
        let fine = gap(0.9, 0.01, &[1; 12]);
        let wide = gap(0.88, 0.04, &[100, 200, 300, 400]);
        for joined in [both(&fine, &wide), both(&wide, &fine)] {
            let joined = joined.unwrap();
            assert_eq!((joined.from_s, joined.step_s), (0.92, 0.04));
            assert_eq!(joined.calls, [204, 304]);
        }
    }

    #[test]
    fn what_no_node_of_ours_tells_is_left_out() {
        let good = gap(1.0, 0.01, &[1; 100]);
        for bad in [
            gap(1.0, 0.0, &[1; 100]),
            gap(1.0, -0.01, &[1; 100]),
            gap(f64::NAN, 0.01, &[1; 100]),
            gap(1.0, f64::NAN, &[1; 100]),
            gap(1.0, f64::INFINITY, &[1; 100]),
            gap(-5.0, 0.01, &[1; 600]),
            gap(1.0, 0.003, &[1; 100]),
            gap(1.0, 1e-300, &[1; 100]),
        ] {
            for joined in [both(&good, &bad), both(&bad, &good)] {
                let fits = |joined: &OutageGap| {
                    joined.calls.len() <= 100 && joined.calls.iter().all(|calls| *calls <= 5)
                };
                assert!(joined.as_ref().is_none_or(fits), "{bad:?}: {joined:?}");
            }
        }
    }
}
