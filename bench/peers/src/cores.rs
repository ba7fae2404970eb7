//! Current distance between the two cores, judged by the ring's round trip. A hypervisor moves its
//! guests' cores between threads of one core, cores that share a cache, and others. The results of
//! a goal differ between them, so each has a line of its own.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The state of the cores in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cores {
    /// Two threads of one core: they share everything, also its time.
    OneCore,
    /// A line goes through a cache that both share.
    Near,
    /// Neither near nor far.
    Between,
    /// A line goes by way of a third place.
    Far,
}

/// Each state, with the shortest round trip in nanoseconds that belongs to it.
const FROM_NS: [(Cores, f64); 4] =
    [(Cores::OneCore, 0.0), (Cores::Near, 60.0), (Cores::Between, 140.0), (Cores::Far, 300.0)];

impl Cores {
    /// The state in which the floor was measured before and after a round. In a round that counts,
    /// both differ little.
    pub fn of(floors_ns: [f64; 2]) -> Self {
        let [before, after] = floors_ns;
        let middle = (before + after) / 2.0;
        let reached = FROM_NS.iter().rev().find(|(_, from)| middle >= *from);
        reached.map_or(Self::OneCore, |(state, _)| *state)
    }

    /// All of them, from the nearest to the farthest.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> + Clone {
        FROM_NS.into_iter().map(|(state, _)| state)
    }

    /// Its round trips, in words.
    pub fn range(self) -> String {
        let place = FROM_NS.iter().position(|(state, _)| *state == self).unwrap_or(0);
        let from = FROM_NS.get(place).map_or(0.0, |(_, from)| *from);
        match FROM_NS.get(place + 1) {
            Some((_, below)) if from == 0.0 => format!("a ring below {below:.0} ns"),
            Some((_, below)) => format!("a ring of {from:.0} to {below:.0} ns"),
            None => format!("a ring of {from:.0} ns and more"),
        }
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneCore => "one core",
            Self::Near => "near",
            Self::Between => "between",
            Self::Far => "far",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_says_how_far_apart_cores_are() {
        for (floors, state) in [
            ([38.0, 39.0], Cores::OneCore),
            ([60.0, 60.0], Cores::Near),
            ([90.0, 130.0], Cores::Near),
            ([130.0, 160.0], Cores::Between),
            ([250.0, 340.0], Cores::Between),
            ([300.0, 300.0], Cores::Far),
            ([310.0, 450.0], Cores::Far),
        ] {
            assert_eq!(Cores::of(floors), state, "{floors:?}");
        }
    }

    #[test]
    fn states_are_shown_with_their_ranges() {
        let shown: Vec<_> =
            Cores::all().map(|state| format!("{state}: {}", state.range())).collect();
        assert_eq!(
            shown,
            [
                "one core: a ring below 60 ns",
                "near: a ring of 60 to 140 ns",
                "between: a ring of 140 to 300 ns",
                "far: a ring of 300 ns and more"
            ]
        );
        assert!(Cores::Near < Cores::Far);
    }
}
