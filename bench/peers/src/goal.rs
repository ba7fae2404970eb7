//! A performance goal, its quantity and bound, and rounds of its measurement.

use crate::{
    contender::{Absence, Contender, Reading, ReadingQuantity},
    cores::Cores,
    floor::ring,
    site::MeasuringSite,
    statistics::is_steady,
    strangers::{PART_MAX, Strangers},
};
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};

/// Time for which the floor is measured before and after a round.
const FLOOR: Duration = Duration::from_millis(20);

/// Bound that a ratio has to keep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GoalBound {
    /// Not more than this.
    AtMost(f64),
    /// Not less than this.
    AtLeast(f64),
    /// Not more than this, with one bound for near cores and one for far cores, between which
    /// transfers cost more. Other cores are judged by neither.
    AtMostBy {
        /// On near cores.
        near: f64,
        /// On far ones.
        far: f64,
    },
    /// None: it is shown next to a goal.
    None,
}

impl GoalBound {
    /// The bound on cores at this distance; none where nothing depends on it.
    #[must_use]
    pub fn on(self, cores: Option<Cores>) -> Self {
        match (self, cores) {
            (Self::AtMostBy { far, .. }, Some(Cores::Far)) => Self::AtMost(far),
            (Self::AtMostBy { near, .. }, Some(Cores::Near)) => Self::AtMost(near),
            (Self::AtMostBy { .. }, Some(Cores::OneCore | Cores::Between)) => Self::None,
            (bound, _) => bound,
        }
    }

    /// Returns true if a number keeps the bound; none when there is no bound to keep.
    pub fn is_kept(self, number: f64) -> Option<bool> {
        match self {
            Self::AtMostBy { near, far } => Some(number <= near.min(far)),
            Self::AtMost(limit) => Some(number <= limit),
            Self::AtLeast(limit) => Some(number >= limit),
            Self::None => None,
        }
    }
}

impl fmt::Display for GoalBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(limit) => write!(f, "≤ {limit}"),
            Self::AtLeast(limit) => write!(f, "≥ {limit}"),
            Self::AtMostBy { near, far } => write!(f, "≤ {near} near, {far} far"),
            Self::None => f.write_str("–"),
        }
    }
}

/// A comparison: one line of the table.
pub struct GoalRow {
    /// The goal, as in G4.
    pub goal: &'static str,
    /// Description of the measurement, with its depth or size.
    pub what: String,
    /// Part of a reading that the goal is about.
    pub quantity: ReadingQuantity,
    /// Bound that ours ÷ theirs, or ours alone, has to keep.
    pub bound: GoalBound,
    /// Ours.
    pub ours: Box<dyn Contender>,
    /// Contender that ours is compared with; none when ours is compared with the bound itself.
    pub theirs: Option<Box<dyn Contender>>,
    /// The figures do not depend on time: one round is enough, and no floor is measured.
    pub is_exact: bool,
}

impl fmt::Debug for GoalRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row")
            .field("goal", &self.goal)
            .field("what", &self.what)
            .finish_non_exhaustive()
    }
}

/// The part of a row that says which goal it is and what it has to reach.
#[derive(Clone, Copy, Debug)]
pub struct AboutRow<'a> {
    /// Number of the goal, as `G1`.
    pub goal: &'static str,
    /// The thing that is measured, in words.
    pub what: &'a str,
    /// The number of a reading that counts.
    pub quantity: ReadingQuantity,
    /// The bound that the number has to keep.
    pub bound: GoalBound,
}

/// A goal's number, its words, the number that counts and its bound.
pub const fn about<'a>(
    goal: &'static str,
    what: &'a str,
    quantity: ReadingQuantity,
    bound: GoalBound,
) -> AboutRow<'a> {
    AboutRow { goal, what, quantity, bound }
}

impl GoalRow {
    /// A comparison of timed figures.
    pub fn timed(
        about: AboutRow<'_>,
        ours: impl Contender + 'static,
        theirs: impl Contender + 'static,
    ) -> Self {
        let AboutRow { goal, what, quantity, bound } = about;
        Self {
            goal,
            what: what.to_owned(),
            quantity,
            bound,
            ours: Box::new(ours),
            theirs: Some(Box::new(theirs)),
            is_exact: false,
        }
    }

    /// A figure that has to keep a bound by itself, in one round.
    pub fn exact(about: AboutRow<'_>, ours: impl Contender + 'static) -> Self {
        let AboutRow { goal, what, quantity, bound } = about;
        let (what, ours) = (what.to_owned(), Box::new(ours));
        Self { goal, what, quantity, bound, ours, theirs: None, is_exact: true }
    }

    /// Returns the name of the contender that ours is compared with, or a dash.
    pub fn against(&self) -> String {
        self.theirs.as_ref().map_or_else(|| "–".to_owned(), |theirs| theirs.name())
    }

    /// The number that the bound is for; none when a side has no such number.
    pub fn ratio(&self, ours: &Reading, theirs: Option<&Reading>) -> Option<f64> {
        let ours = self.quantity.of(ours)?;
        match theirs {
            Some(theirs) => {
                self.quantity.of(theirs).filter(|theirs| *theirs > 0.0).map(|theirs| ours / theirs)
            }
            None => Some(ours),
        }
    }

    /// Starts both sides.
    ///
    /// # Errors
    /// Why one of them cannot be measured here.
    pub fn start(&mut self, site: &MeasuringSite) -> Result<(), Absence> {
        // A rival that is not there need not wait for ours.
        self.theirs.as_mut().map_or(Ok(()), |theirs| theirs.start(site))?;
        self.ours.start(site)
    }

    fn measure_theirs(&mut self, site: &MeasuringSite) -> Result<Option<Reading>, String> {
        self.theirs.as_mut().map(|theirs| theirs.measure(site)).transpose()
    }

    /// The floor at this moment; none where nothing depends on it.
    fn floor_ns(&self, site: &MeasuringSite) -> Result<Option<f64>, String> {
        if self.is_exact {
            return Ok(None);
        }
        let mut trips = ring::trips(site.seats(), FLOOR, ring::Sample::Batches)?;
        let trip = Reading::of_trips(&mut trips).p50_ns;
        trip.map(Some).ok_or_else(|| "the ring's threads made no round trip".to_owned())
    }

    /// One round: the floor, both sides, the floor again. Who is first alternates.
    ///
    /// # Errors
    /// A sentence that names the part that could not be measured.
    pub fn round(&mut self, site: &MeasuringSite, number: usize) -> Result<GoalRound, String> {
        let looked = Strangers::look();
        let before = self.floor_ns(site)?;
        let swapped = number % 2 == 1;
        let early = if swapped { self.measure_theirs(site)? } else { None };
        let ours = self.ours.measure(site)?;
        let theirs = if swapped { early } else { self.measure_theirs(site)? };
        let after = self.floor_ns(site)?;
        let strangers =
            looked.zip(Strangers::look()).and_then(|(before, after)| after.since(before));
        let floors_ns = before.zip(after).map(|(before, after)| [before, after]);
        let figure = self
            .ratio(&ours, theirs.as_ref())
            .ok_or("too few samples for this figure: give more --seconds")?;
        let is_beside_stranger = self.theirs.as_ref().is_some_and(|theirs| theirs.is_stranger());
        let is_quiet =
            self.is_exact || is_beside_stranger || strangers.is_none_or(|part| part <= PART_MAX);
        let counts = is_quiet && floors_ns.is_none_or(is_steady);
        Ok(GoalRound { floors_ns, strangers, ours, theirs, figure, counts })
    }
}

/// Result of one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GoalRound {
    /// The ring's round trip before and after, in nanoseconds; none where nothing depends on it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub floors_ns: Option<[f64; 2]>,
    /// The part of a core that other processes than the two sides used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub strangers: Option<f64>,
    /// Ours.
    pub ours: Reading,
    /// Theirs; none when ours is compared with the bound itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub theirs: Option<Reading>,
    /// Number that the bound is for: ours ÷ theirs, or ours.
    pub figure: f64,
    /// The floor did not move, and no other process was busy.
    pub counts: bool,
}

impl GoalRound {
    /// The state of the cores; none where nothing depends on it.
    pub fn cores(&self) -> Option<Cores> {
        self.floors_ns.map(Cores::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(f64);

    impl Contender for Fixed {
        fn name(&self) -> String {
            "fixed".to_owned()
        }
        fn commands(&self) -> Vec<String> {
            Vec::new()
        }
        fn measure(&mut self, _site: &MeasuringSite) -> Result<Reading, String> {
            Ok(Reading { p50_ns: Some(self.0), p99_ns: Some(self.0 * 3.0), ..Reading::default() })
        }
    }

    fn row(quantity: ReadingQuantity) -> GoalRow {
        GoalRow::timed(
            about("G0", "nothing", quantity, GoalBound::AtMost(2.0)),
            Fixed(300.0),
            Fixed(200.0),
        )
    }

    #[test]
    fn a_bound_is_kept_at_its_limit() {
        assert_eq!(
            [1.9, 2.0, 2.1].map(|number| GoalBound::AtMost(2.0).is_kept(number)),
            [true, true, false].map(Some)
        );
        assert_eq!(
            [1.9, 2.0, 2.1].map(|number| GoalBound::AtLeast(2.0).is_kept(number)),
            [false, true, true].map(Some)
        );
        assert_eq!(GoalBound::None.is_kept(1.0), None);
    }

    #[test]
    fn a_bound_that_depends_on_the_cores_is_that_of_their_distance() {
        let bound = GoalBound::AtMostBy { near: 3.2, far: 1.6 };
        for (cores, limit) in [
            (Cores::OneCore, GoalBound::None),
            (Cores::Near, GoalBound::AtMost(3.2)),
            (Cores::Between, GoalBound::None),
            (Cores::Far, GoalBound::AtMost(1.6)),
        ] {
            assert_eq!(bound.on(Some(cores)), limit, "{cores}");
        }
        assert_eq!((bound.on(None), bound.is_kept(2.0)), (bound, Some(false)));
        assert_eq!(GoalBound::AtLeast(0.8).on(Some(Cores::Far)), GoalBound::AtLeast(0.8));
        assert_eq!(bound.to_string(), "≤ 3.2 near, 1.6 far");
    }

    #[test]
    fn a_figure_is_ours_over_theirs() {
        let reading =
            |ns| Reading { p50_ns: Some(ns), p99_ns: Some(ns * 3.0), ..Reading::default() };
        assert_eq!(
            row(ReadingQuantity::RoundTrip).ratio(&reading(300.0), Some(&reading(200.0))),
            Some(1.5)
        );
        assert_eq!(
            row(ReadingQuantity::Tail).ratio(&reading(300.0), Some(&reading(200.0))),
            Some(1.0)
        );
        assert_eq!(row(ReadingQuantity::RoundTrip).ratio(&reading(300.0), None), Some(300.0));
        assert_eq!(row(ReadingQuantity::Rate).ratio(&reading(300.0), Some(&reading(200.0))), None);
        assert_eq!(
            row(ReadingQuantity::RoundTrip).ratio(&reading(300.0), Some(&reading(0.0))),
            None
        );
    }

    #[test]
    fn an_exact_round_needs_no_floor_and_counts() {
        let mut row = GoalRow::exact(
            about("G0", "nothing", ReadingQuantity::RoundTrip, GoalBound::AtMost(400.0)),
            Fixed(300.0),
        );
        let Ok(site) = MeasuringSite::new(Duration::ZERO) else {
            return println!("skipped: this process may use one core");
        };
        let round = row.round(&site, 0).unwrap();
        assert_eq!((round.floors_ns, round.figure, round.counts), (None, 300.0, true));
        assert_eq!(row.against(), "–");
    }
}
