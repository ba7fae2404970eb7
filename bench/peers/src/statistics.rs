//! Statistics of rounds: quartiles of their ratios, and the steadiness of the floor.

use serde::{Deserialize, Serialize};

/// By how much the floor may move inside a round that counts.
pub const MOVED_MAX: f64 = 1.5;

/// The middle of numbers, and how far they spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The lowest.
    pub min: f64,
    /// A quarter is lower.
    pub q1: f64,
    /// Half of them are.
    pub median: f64,
    /// Three quarters are.
    pub q3: f64,
    /// The highest.
    pub max: f64,
}

impl Spread {
    /// Of these numbers; none of no numbers.
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let place = part * (sorted.len().checked_sub(1)? as f64);
            let (low, high) =
                (sorted.get(place.floor() as usize)?, sorted.get(place.ceil() as usize)?);
            Some(low + (high - low) * place.fract())
        };
        Some(Self { min: at(0.0)?, q1: at(0.25)?, median: at(0.5)?, q3: at(0.75)?, max: at(1.0)? })
    }
}

/// Returns true if a floor that was measured before and after stayed where it was.
pub fn is_steady([before, after]: [f64; 2]) -> bool {
    before > 0.0 && after > 0.0 && before.max(after) <= before.min(after) * MOVED_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_those_of_the_sorted_numbers() {
        let spread = |numbers: &[f64]| Spread::of(numbers.iter().copied());
        assert_eq!(spread(&[]), None);
        assert_eq!(
            spread(&[7.0]),
            Some(Spread { min: 7.0, q1: 7.0, median: 7.0, q3: 7.0, max: 7.0 })
        );
        let five = Spread { min: 1.0, q1: 2.0, median: 3.0, q3: 4.0, max: 5.0 };
        assert_eq!(spread(&[5.0, 1.0, 4.0, 2.0, 3.0]), Some(five));
        assert_eq!(spread(&[2.0, 1.0]).unwrap().median, 1.5);
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]).unwrap().q1, 1.75);
    }

    #[test]
    fn a_floor_moves_by_half_at_most_in_either_direction() {
        for (before, after, is) in [
            (100.0, 100.0, true),
            (100.0, 150.0, true),
            (150.0, 100.0, true),
            (100.0, 150.1, false),
            (480.0, 90.0, false),
            (0.0, 0.0, false),
            (f64::NAN, 1.0, false),
        ] {
            assert_eq!(is_steady([before, after]), is, "{before} {after}");
        }
    }
}
