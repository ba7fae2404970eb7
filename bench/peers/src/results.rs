//! Results of comparisons: a file that runs add to, and a table.

use crate::{
    contender::ReadingQuantity,
    cores::Cores,
    goal::{GoalBound, GoalRound, GoalRow},
    host::{self, HostDescription},
    statistics::Spread,
};
use serde::{Deserialize, Serialize};
use std::{fmt::Write, fs, io::ErrorKind, path::Path};

/// The form of the file. A member that changes its meaning changes this; one that comes does not.
pub const SCHEMA: &str = "stag-peers/1";

/// Verdict on a goal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GoalVerdict {
    /// The median keeps the bound.
    Met,
    /// It does not.
    NotMet,
    /// There is no bound to keep.
    Beside,
    /// It could not be measured, for this reason.
    NotMeasured(String),
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultLine {
    /// The goal, as in G4.
    pub goal: String,
    /// Description of the measurement.
    pub what: String,
    /// Name of our contender.
    pub ours: String,
    /// Name of the contender that ours was compared with.
    pub against: String,
    /// Unit of the numbers.
    pub unit: String,
    /// Bound that the median has to keep.
    pub bound: GoalBound,
    /// The distance of the cores; none where nothing depends on it, and where no round counts.
    #[serde(default)]
    pub cores: Option<Cores>,
    /// Verdict on the goal.
    pub verdict: GoalVerdict,
    /// Of the rounds that count: ours ÷ theirs, or ours where nothing is beside it.
    pub figure: Option<Spread>,
    /// Ours, in the unit.
    pub ours_median: Option<f64>,
    /// Theirs, in the unit.
    pub theirs_median: Option<f64>,
    /// Commands that were run for ours.
    pub our_commands: Vec<String>,
    /// Commands that were run for theirs.
    pub their_commands: Vec<String>,
    /// All rounds, those with a floor that moved included.
    pub rounds: Vec<GoalRound>,
    /// Time of the measurement, in seconds since 1970-01-01 UTC.
    pub measured_unix_s: u64,
    /// The commit that was measured; a plus says that files differed from it.
    pub revision: String,
}

impl ResultLine {
    /// The lines of `row`: one for each state of the cores in which some rounds count.
    pub fn all(row: &GoalRow, rounds: Vec<GoalRound>, failure: Option<String>) -> Vec<Self> {
        let failure = failure
            .unwrap_or_else(|| "the host was busy, or its floor moved, in every round".to_owned());
        let line = Self {
            goal: row.goal.to_owned(),
            what: row.what.clone(),
            ours: row.ours.name(),
            against: row.against(),
            unit: row.quantity.unit().to_owned(),
            bound: row.bound,
            cores: None,
            verdict: GoalVerdict::NotMeasured(failure),
            figure: None,
            ours_median: None,
            theirs_median: None,
            our_commands: row.ours.commands(),
            their_commands: row.theirs.as_ref().map(|theirs| theirs.commands()).unwrap_or_default(),
            rounds,
            measured_unix_s: host::now(),
            revision: host::revision(),
        };
        line.by_cores(row.quantity)
    }

    /// The line of each state of the cores, the nearest first. Rounds that do not count stay with
    /// those of the state with most.
    fn by_cores(mut self, quantity: ReadingQuantity) -> Vec<Self> {
        let rounds = std::mem::take(&mut self.rounds);
        let count =
            |state| rounds.iter().filter(|round| round.counts && round.cores() == state).count();
        let states =
            [None].into_iter().chain(Cores::all().map(Some)).filter(|state| count(*state) > 0);
        let most = states.clone().rev().max_by_key(|state| count(*state));
        let mut lines: Vec<Self> = states
            .map(|state| {
                let is_of = |round: &&GoalRound| {
                    if round.counts { round.cores() == state } else { most == Some(state) }
                };
                Self {
                    cores: state,
                    rounds: rounds.iter().filter(is_of).cloned().collect(),
                    ..self.clone()
                }
            })
            .collect();
        if lines.is_empty() {
            lines.push(Self { rounds, ..self });
        }
        lines.iter_mut().for_each(|line| line.judge(quantity));
        lines
    }

    /// Judges the rounds.
    fn judge(&mut self, quantity: ReadingQuantity) {
        let counting = || self.rounds.iter().filter(|round| round.counts);
        let median = |of: &dyn Fn(&GoalRound) -> Option<f64>| {
            Spread::of(counting().filter_map(of)).map(|spread| spread.median)
        };
        let ours = median(&|round| quantity.of(&round.ours));
        let theirs = median(&|round| quantity.of(round.theirs.as_ref()?));
        let Some(figure) = Spread::of(counting().map(|round| round.figure)) else { return };
        self.bound = self.bound.on(self.cores);
        self.verdict = match self.bound.is_kept(figure.median) {
            Some(true) => GoalVerdict::Met,
            Some(false) => GoalVerdict::NotMet,
            None => GoalVerdict::Beside,
        };
        (self.figure, self.ours_median, self.theirs_median) = (Some(figure), ours, theirs);
    }

    /// Lines of a file that was written before states were distinguished.
    fn sorted_out(self) -> Vec<Self> {
        let has_floors = self.rounds.iter().any(|round| round.counts && round.floors_ns.is_some());
        match ReadingQuantity::of_unit(&self.unit) {
            Some(quantity) if self.cores.is_none() && has_floors => self.by_cores(quantity),
            _ => vec![self],
        }
    }

    /// The rings of the rounds that count.
    fn rings(&self) -> Option<Spread> {
        let floors =
            self.rounds.iter().filter(|round| round.counts).filter_map(|round| round.floors_ns);
        Spread::of(floors.flatten())
    }

    fn is_of(&self, other: &Self) -> bool {
        (&self.goal, &self.what, &self.against) == (&other.goal, &other.what, &other.against)
    }
}

/// A file of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// Host that the results were taken on.
    pub host: HostDescription,
    /// Results, in the order of the goals.
    pub lines: Vec<ResultLine>,
}

impl Results {
    /// None yet.
    pub fn new(host: HostDescription) -> Self {
        Self { schema: SCHEMA.to_owned(), host, lines: Vec::new() }
    }

    /// Those of a file, if it exists, to add to.
    ///
    /// # Errors
    /// When it is something else, or was made on another machine.
    pub fn open(file: &Path, host: HostDescription) -> Result<Self, String> {
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::new(host)),
            Err(error) => return Err(format!("{}: {error}", file.display())),
        };
        let results = Self::read(file, &text)?;
        if results.host != host {
            return Err(format!(
                "{}: it was made on another machine: name another file",
                file.display()
            ));
        }
        Ok(results)
    }

    /// Those of a file, whatever machine it is from.
    fn read(file: &Path, text: &str) -> Result<Self, String> {
        let mut results: Self = serde_json::from_str(text).map_err(|error| {
            format!("{}: it is no result of this program: {error}", file.display())
        })?;
        if results.schema != SCHEMA {
            return Err(format!(
                "{}: its schema is {:?}, and this program has {SCHEMA:?}",
                file.display(),
                results.schema
            ));
        }
        results.lines = results.lines.into_iter().flat_map(ResultLine::sorted_out).collect();
        Ok(results)
    }

    /// Writes a file and its table again, as this version would have.
    ///
    /// # Errors
    /// When it is something else, and as files fail.
    pub fn rewrite(file: &Path) -> Result<(), String> {
        let text =
            fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        Self::read(file, &text)?.save(file)
    }

    /// Adds the lines of one row, or replaces earlier lines of that row, and keeps the order of
    /// `goals`. Lines of other states of the cores stay, unless the row could not be measured at
    /// all.
    pub fn put(&mut self, lines: &[ResultLine], goals: &[&str]) {
        let Some(first) = lines.first() else { return };
        let place =
            self.lines.iter().position(|known| known.is_of(first)).unwrap_or(self.lines.len());
        let states: Vec<_> = lines.iter().map(|line| line.cores).collect();
        let (mut row, mut others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.lines).into_iter().partition(|known| known.is_of(first));
        row.retain(|known| {
            !states.contains(&None) && known.cores.is_some() && !states.contains(&known.cores)
        });
        row.extend_from_slice(lines);
        row.sort_by_key(|line| line.cores);
        others.splice(place..place, row);
        others.sort_by_key(|line| goals.iter().position(|goal| *goal == line.goal));
        self.lines = others;
    }

    /// Writes the file, and the table next to it.
    ///
    /// # Errors
    /// As files fail.
    pub fn save(&self, file: &Path) -> Result<(), String> {
        let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let text = serde_json::to_string_pretty(self).map_err(|error| wrong(&error))?;
        let replace = |file: &Path, text: &str| {
            // A signal in the middle leaves what was there.
            let draft = file.with_extension("draft");
            fs::write(&draft, text)
                .and_then(|()| fs::rename(&draft, file))
                .map_err(|error| wrong(&error))
        };
        replace(file, &(text + "\n"))?;
        replace(&file.with_extension("md"), &self.page())
    }

    /// Lists the states that the cores were in, and the states that no round met.
    fn states(&self) -> String {
        let timed = self.lines.iter().filter(|line| line.cores.is_some()).count();
        let mut text =
            "Goals are judged by the state of the cores, as a ring between two threads tells it"
                .to_owned();
        for state in Cores::all() {
            let count = self.lines.iter().filter(|line| line.cores == Some(state)).count();
            if count > 0 || matches!(state, Cores::Near | Cores::Far) {
                let _ = write!(text, "; {state} ({}): {count} of {timed} lines", state.range());
            }
        }
        text.push_str(".\n");
        for state in [Cores::Near, Cores::Far] {
            if timed > 0 && self.lines.iter().all(|line| line.cores != Some(state)) {
                let _ =
                    writeln!(text, "**No round met {state} cores: nothing here is said of them.**");
            }
        }
        text
    }

    /// The table, with the machine above it and the commands below.
    pub fn page(&self) -> String {
        let HostDescription { processor, model, cores, kernel, is_virtual, compiler } = &self.host;
        let guest = if *is_virtual { ", in a virtual machine" } else { "" };
        let mut text = format!(
            "# Goals, measured\n\n{processor} ({model}), {cores} cores{guest}; Linux {kernel}; \
             {compiler}.\n\
             Ours ÷ theirs is the median of the ratios of all rounds that count, with the \
             quartiles and the number of rounds.\n\n{}\n",
            self.states()
        );
        if self.lines.iter().any(|line| line.goal == "G14" && line.verdict == GoalVerdict::NotMet) {
            text.push_str(
                "G14 is not met: rates of calls may be the generator's and not the server's, on \
                 either side.\n\n",
            );
        }
        text.push_str(&self.table());
        text.push_str(
            "\n## Commands\n\nServers run on one core and callers on another; those \
            without a command are threads of `stag-peers`.\n",
        );
        let mut before: Option<&ResultLine> = None;
        for line in &self.lines {
            let is_known = before.is_some_and(|before| before.is_of(line));
            before = Some(line);
            if is_known || line.our_commands.is_empty() && line.their_commands.is_empty() {
                continue;
            }
            let _ = write!(text, "\n{} {}, against {}:\n\n", line.goal, line.what, line.against);
            for command in line.our_commands.iter().chain(&line.their_commands) {
                let _ = writeln!(text, "    {command}");
            }
        }
        text
    }

    /// The table alone.
    pub fn table(&self) -> String {
        let mut text =
            "| # | quantity | against | cores, ring | must reach | ours ÷ theirs | ours | theirs | \
             | commit, day |\n\
                        |---|---|---|---|---|---|---|---|---|---|\n"
                .to_owned();
        for line in &self.lines {
            let spread = line.figure.map_or_else(String::new, |spread| {
                let counting = line.rounds.iter().filter(|round| round.counts).count();
                match counting {
                    1 => figure(spread.median),
                    _ => format!(
                        "**{}** ({}–{}, {counting} of {})",
                        figure(spread.median),
                        figure(spread.q1),
                        figure(spread.q3),
                        line.rounds.len()
                    ),
                }
            });
            let verdict = match &line.verdict {
                GoalVerdict::Met => "met".to_owned(),
                GoalVerdict::NotMet => "**not met**".to_owned(),
                GoalVerdict::Beside => String::new(),
                GoalVerdict::NotMeasured(why) => format!("not measured: {why}"),
            };
            let side = |number: Option<f64>| {
                number.map_or_else(String::new, |number| amount(number, &line.unit))
            };
            let cores = match (line.cores, line.rings()) {
                (Some(state), Some(ring)) => format!("{state}, {:.0}–{:.0} ns", ring.min, ring.max),
                _ => "–".to_owned(),
            };
            let _ = writeln!(
                text,
                "| {} | {} | {} | {cores} | {} | {spread} | {} | {} | {verdict} | {} {} |",
                line.goal,
                line.what,
                line.against,
                line.bound,
                side(line.ours_median),
                side(line.theirs_median),
                line.revision,
                host::date(line.measured_unix_s),
            );
        }
        text
    }
}

/// Three digits.
pub fn figure(number: f64) -> String {
    match number.abs() {
        size if size >= 100.0 => format!("{number:.0}"),
        size if size >= 10.0 => format!("{number:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{number:.2}"),
        _ => format!("{number:.4}"),
    }
}

/// A number with its unit, as people read it.
pub fn amount(number: f64, unit: &str) -> String {
    match unit {
        "ns" if number >= 1e3 => format!("{} us", figure(number / 1e3)),
        "calls/s" if number >= 1e6 => format!("{} M/s", figure(number / 1e6)),
        "calls/s" => format!("{} k/s", figure(number / 1e3)),
        "octets/s" => format!("{} GB/s", figure(number / 1e9)),
        "p99/p50" => figure(number),
        _ => format!("{} {unit}", figure(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::{Contender, Reading, ReadingQuantity};

    struct Named(&'static str);

    impl Contender for Named {
        fn name(&self) -> String {
            self.0.to_owned()
        }
        fn commands(&self) -> Vec<String> {
            vec![format!("run {}", self.0)]
        }
        fn measure(&mut self, _site: &crate::site::MeasuringSite) -> Result<Reading, String> {
            Err("nothing is measured here".to_owned())
        }
    }

    fn row(goal: &'static str, bound: GoalBound) -> GoalRow {
        GoalRow::timed(
            crate::goal::about(goal, "something", ReadingQuantity::RoundTrip, bound),
            Named("ours"),
            Named("theirs"),
        )
    }

    fn round(ours: f64, theirs: f64, counts: bool) -> GoalRound {
        let reading = |ns| Reading { p50_ns: Some(ns), ..Reading::default() };
        let figure = ours / theirs;
        GoalRound {
            floors_ns: Some([90.0, 91.0]),
            strangers: None,
            ours: reading(ours),
            theirs: Some(reading(theirs)),
            figure,
            counts,
        }
    }

    /// The only line of rounds that met one state.
    fn only(row: &GoalRow, rounds: Vec<GoalRound>, failure: Option<&str>) -> ResultLine {
        let [line] =
            <[ResultLine; 1]>::try_from(ResultLine::all(row, rounds, failure.map(str::to_owned)))
                .unwrap();
        line
    }

    fn line(goal: &'static str, ours: f64) -> ResultLine {
        only(&row(goal, GoalBound::AtMost(2.0)), vec![round(ours, 100.0, true)], None)
    }

    /// The same, while the ring takes so long.
    fn at(floor_ns: f64, round: GoalRound) -> GoalRound {
        GoalRound { floors_ns: Some([floor_ns; 2]), ..round }
    }

    #[test]
    fn a_round_whose_floor_moved_changes_nothing() {
        let rounds = vec![
            round(150.0, 100.0, true),
            round(900.0, 100.0, false),
            round(170.0, 100.0, true),
            round(190.0, 100.0, true),
            round(1.0, 100.0, false),
        ];
        let line = only(&row("G1", GoalBound::AtMost(2.0)), rounds, None);
        let figure = line.figure.unwrap();
        assert_eq!((figure.min, figure.median, figure.max), (1.5, 1.7, 1.9));
        assert_eq!((line.ours_median, line.theirs_median), (Some(170.0), Some(100.0)));
        assert_eq!((line.verdict, line.rounds.len()), (GoalVerdict::Met, 5));
    }

    #[test]
    fn the_median_of_ratios_is_not_the_ratio_of_medians() {
        // The host was three times as slow in two of three rounds, for both.
        let rounds =
            vec![round(150.0, 100.0, true), round(600.0, 300.0, true), round(480.0, 300.0, true)];
        let line = only(&row("G1", GoalBound::AtMost(1.6)), rounds, None);
        assert_eq!((line.figure.unwrap().median, line.verdict), (1.6, GoalVerdict::Met));
    }

    #[test]
    fn what_is_not_measured_says_why() {
        let bound = GoalBound::AtMost(2.0);
        let of = |rounds, failure| only(&row("G1", bound), rounds, failure).verdict;
        let missing = GoalVerdict::NotMeasured("x is not installed".to_owned());
        assert_eq!(of(vec![], Some("x is not installed")), missing);
        let none_counts = of(vec![round(1.0, 1.0, false)], None);
        assert!(matches!(none_counts, GoalVerdict::NotMeasured(why) if why.contains("floor")));
        assert_eq!(
            of(vec![round(201.0, 100.0, true)], Some("one round failed")),
            GoalVerdict::NotMet
        );
        assert_eq!(
            only(&row("G1", GoalBound::None), vec![round(1.0, 1.0, true)], None).verdict,
            GoalVerdict::Beside
        );
    }

    #[test]
    fn a_line_replaces_the_one_that_says_the_same_and_goals_keep_their_order() {
        let mut results = Results::new(HostDescription::default());
        let goals = ["G1", "G2", "G10"];
        for (goal, ours) in [("G10", 150.0), ("G1", 150.0), ("G2", 150.0), ("G1", 250.0)] {
            results.put(&[line(goal, ours)], &goals);
        }
        let said: Vec<_> =
            results.lines.iter().map(|line| (line.goal.as_str(), line.ours_median)).collect();
        assert_eq!(said, [("G1", Some(250.0)), ("G2", Some(150.0)), ("G10", Some(150.0))]);
    }

    #[test]
    fn near_and_far_cores_are_judged_by_themselves() {
        let rounds = vec![
            at(90.0, round(650.0, 100.0, true)),
            at(310.0, round(190.0, 100.0, true)),
            at(95.0, round(630.0, 100.0, true)),
            at(320.0, round(180.0, 100.0, true)),
            at(320.0, round(170.0, 100.0, true)),
            round(1.0, 100.0, false),
        ];
        let lines = ResultLine::all(&row("G1", GoalBound::AtMost(2.0)), rounds.clone(), None);
        let said: Vec<_> =
            lines.iter().map(|line| (line.cores, &line.verdict, line.rounds.len())).collect();
        assert_eq!(
            said,
            [
                (Some(Cores::Near), &GoalVerdict::NotMet, 2),
                (Some(Cores::Far), &GoalVerdict::Met, 4)
            ]
        );
        assert_eq!(
            [6.4, 1.8].map(Some),
            [0, 1].map(|line: usize| lines[line].figure.map(|spread| spread.median))
        );
        let mut results = Results::new(HostDescription::default());
        results.put(&lines, &["G1"]);
        let page = results.page();
        assert!(
            page.contains("| near, 90–95 ns | ≤ 2 | **6.40**")
                && page.contains("| far, 310–320 ns | ≤ 2 | **1.80**"),
            "{page}"
        );
        assert!(
            page.contains("near (a ring of 60 to 140 ns): 1 of 2 lines")
                && !page.contains("No round met"),
            "{page}"
        );
        assert_eq!(page.matches("run ours").count(), 1, "{page}");

        // Measured again while the cores are far: what near ones said stays.
        let again = ResultLine::all(
            &row("G1", GoalBound::AtMost(2.0)),
            vec![at(330.0, round(210.0, 100.0, true))],
            None,
        );
        results.put(&again, &["G1"]);
        let said: Vec<_> =
            results.lines.iter().map(|line| (line.cores, line.ours_median)).collect();
        assert_eq!(said, [(Some(Cores::Near), Some(640.0)), (Some(Cores::Far), Some(210.0))]);
        // What cannot be measured any more has no figures.
        results.put(
            &[only(&row("G1", GoalBound::AtMost(2.0)), vec![], Some("x is not installed"))],
            &["G1"],
        );
        assert_eq!(results.lines.len(), 1);
    }

    #[test]
    fn a_page_says_which_cores_no_round_met() {
        let mut results = Results::new(HostDescription::default());
        let far = ResultLine::all(
            &row("G1", GoalBound::AtMost(2.0)),
            vec![at(330.0, round(250.0, 100.0, true))],
            None,
        );
        results.put(&far, &["G1"]);
        assert!(results.page().contains("**No round met near cores"));
        assert!(!results.page().contains("met far cores"));
    }

    #[test]
    fn a_file_without_states_is_read_by_its_rounds() {
        let mut old = line("G1", 150.0);
        old.cores = None;
        old.rounds = vec![
            at(310.0, round(150.0, 100.0, true)),
            at(80.0, round(600.0, 100.0, true)),
            round(1.0, 1.0, false),
        ];
        let results = Results { lines: vec![old], ..Results::new(HostDescription::default()) };
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("results.json");
        let mut value = serde_json::to_value(&results).unwrap();
        value["lines"][0].as_object_mut().unwrap().remove("cores");
        fs::write(&file, value.to_string()).unwrap();
        Results::rewrite(&file).unwrap();
        let read = Results::open(&file, HostDescription::default()).unwrap();
        let said: Vec<_> = read
            .lines
            .iter()
            .map(|line| (line.cores, line.ours_median, line.rounds.len()))
            .collect();
        assert_eq!(said, [(Some(Cores::Near), Some(600.0), 2), (Some(Cores::Far), Some(150.0), 1)]);
        assert_eq!(fs::read_to_string(home.path().join("results.md")).unwrap(), read.page());
    }

    #[test]
    fn a_file_is_read_again_and_added_to_and_others_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("results.json");
        let mut results = Results::open(&file, HostDescription::default()).unwrap();
        results.put(&[line("G1", 150.0)], &["G1"]);
        results.save(&file).unwrap();
        assert_eq!(Results::open(&file, HostDescription::default()).unwrap(), results);
        assert_eq!(fs::read_to_string(home.path().join("results.md")).unwrap(), results.page());
        let other = HostDescription { cores: 64, ..HostDescription::default() };
        assert!(Results::open(&file, other).unwrap_err().contains("another machine"));
        for (text, part) in [("{}", "no result"), ("", "no result")] {
            fs::write(&file, text).unwrap();
            assert!(
                Results::open(&file, HostDescription::default()).unwrap_err().contains(part),
                "{text}"
            );
        }
        let later = Results { schema: "stag-peers/99".to_owned(), ..results };
        later.save(&file).unwrap();
        assert!(
            Results::open(&file, HostDescription::default()).unwrap_err().contains("stag-peers/99")
        );
    }

    #[test]
    fn a_table_has_a_line_for_each_with_every_cell() {
        let mut results = Results::new(HostDescription::default());
        let goals = ["G1", "G2", "G3"];
        let of = |goal, bound, rounds, why| [only(&row(goal, bound), rounds, why)];
        let rounds =
            vec![round(150.0, 100.0, true), round(170.0, 100.0, true), round(9.0, 1.0, false)];
        results.put(&of("G1", GoalBound::AtMost(2.0), rounds, None), &goals);
        results
            .put(&of("G2", GoalBound::AtLeast(4.0), vec![round(150.0, 100.0, true)], None), &goals);
        results.put(&of("G3", GoalBound::AtMost(2.0), vec![], Some("x is not installed")), &goals);
        let table = results.table();
        let cells: Vec<Vec<_>> =
            table.lines().skip(2).map(|line| line.split('|').map(str::trim).collect()).collect();
        assert_eq!(
            cells[0][1..10],
            [
                "G1",
                "something",
                "theirs",
                "near, 90–91 ns",
                "≤ 2",
                "**1.60** (1.55–1.65, 2 of 3)",
                "160 ns",
                "100 ns",
                "met"
            ]
        );
        assert_eq!(cells[1][5..10], ["≥ 4", "1.50", "150 ns", "100 ns", "**not met**"]);
        assert_eq!(cells[2][6..10], ["", "", "", "not measured: x is not installed"]);
        assert!(table.lines().all(|line| line.matches('|').count() == 11), "{table}");
        assert!(results.page().contains("\n    run ours\n    run theirs\n"));
        assert!(!results.page().contains("G14 is not met"));
        results.put(
            &of("G14", GoalBound::AtLeast(4.0), vec![round(150.0, 100.0, true)], None),
            &["G14"],
        );
        assert!(results.page().contains("G14 is not met: rates of calls"));
    }

    #[test]
    fn amounts_are_read_by_people() {
        for (number, unit, text) in [
            (85.4, "ns", "85.4 ns"),
            (1_260.0, "ns", "1.26 us"),
            (812_345.0, "calls/s", "812 k/s"),
            (2_960_000.0, "calls/s", "2.96 M/s"),
            (13.3e9, "octets/s", "13.3 GB/s"),
            (1.27, "p99/p50", "1.27"),
            (0.0123, "% of a core", "0.0123 % of a core"),
            (1_234.0, "octets", "1234 octets"),
        ] {
            assert_eq!(amount(number, unit), text);
        }
    }
}
