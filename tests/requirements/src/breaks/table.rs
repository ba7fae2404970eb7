//! The latest results: `docs/requirements/broken.toml`, and the page `broken.md`.

use super::{plan::BreakJob, site::MarkSite};
use crate::{
    Specification,
    page::{cell, push},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt, fs, io,
    path::Path,
};

/// The name of the table among the specifications' files, without its extension.
pub const NAME: &str = "broken";

/// The answer of a rule's tests to its broken line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BreakVerdict {
    /// No change that compiles makes a test fail.
    #[serde(rename = "survived")]
    Survived,
    /// No change of the line compiles.
    #[serde(rename = "nothing compiled")]
    NothingCompiled,
    /// Its tests fail while all lines are whole.
    #[serde(rename = "fails whole")]
    FailsWhole,
    /// Its tests need something that is not here: a guest, a device, a tool; or its file is built
    /// with a feature only.
    #[serde(rename = "not run here")]
    NotRunHere,
    /// An assertion that the compiler checks refuses the change.
    #[serde(rename = "refused")]
    Refused,
    /// A test that ends soon otherwise did not end.
    #[serde(rename = "hung")]
    Hung,
    /// A test failed.
    #[serde(rename = "caught")]
    Caught,
}

impl BreakVerdict {
    /// Says if a test or the compiler noticed the broken line.
    #[must_use]
    pub fn is_noticed(self) -> bool {
        matches!(self, Self::Caught | Self::Hung | Self::Refused)
    }

    /// Says if the line, its rule or its tests need a look.
    #[must_use]
    pub fn is_finding(self) -> bool {
        matches!(self, Self::Survived | Self::NothingCompiled | Self::FailsWhole)
    }
}

impl fmt::Display for BreakVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Survived => "survived",
            Self::NothingCompiled => "nothing compiled",
            Self::FailsWhole => "fails whole",
            Self::NotRunHere => "not run here",
            Self::Refused => "refused",
            Self::Hung => "hung",
            Self::Caught => "caught",
        })
    }
}

/// One rule at one of its lines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BreakRow {
    /// The rule's id.
    pub rule: String,
    /// The file, by its path in the workspace.
    pub file: String,
    /// Text of the line, which finds it again wherever it moves.
    pub text: String,
    /// Number of cited lines before it in the file that read the same.
    #[serde(default, skip_serializing_if = "is_first")]
    pub nth: usize,
    /// The verdict.
    pub verdict: BreakVerdict,
    /// The change that was noticed, or the last one that was not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mutation: String,
    /// The test that noticed it, as `file::function`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub test: String,
    /// Changes that were tried before and not noticed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<String>,
    /// Seconds for building and testing, for all rules of the line together.
    pub seconds: f64,
    /// The commit; with a `+` when files were changed since.
    pub commit: String,
}

// The signature is serde's.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_first(nth: &usize) -> bool {
    *nth == 0
}

/// Cited lines of one rule that read the same, in their order: file and [`MarkSite::nth`].
type OpenLines<'a> = VecDeque<(&'a str, usize)>;

/// All rows, by the rules' order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BreakTable {
    /// Rules of which some lines have rows and some have none, as [`BreakTable::follow`] last saw
    /// them.
    #[serde(default)]
    pub partly: Vec<String>,
    /// The rows.
    #[serde(default)]
    pub row: Vec<BreakRow>,
}

impl BreakTable {
    /// Reads `broken.toml` of a folder; without it the table is empty.
    ///
    /// # Errors
    ///
    /// A file that cannot be read or understood.
    pub fn read(folder: &Path) -> io::Result<Self> {
        match fs::read_to_string(folder.join(format!("{NAME}.toml"))) {
            Ok(text) => toml::from_str(&text).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Writes `broken.toml` and its page.
    ///
    /// # Errors
    ///
    /// Files that cannot be written.
    pub fn write(&self, folder: &Path, specifications: &[Specification]) -> io::Result<()> {
        let text = toml::to_string(self).map_err(io::Error::other)?;
        let text = format!(
            "# Written by `cargo run -p stag-requirements -- break`; not to be edited.\n\n{text}"
        );
        let file = folder.join(format!("{NAME}.toml"));
        // In one step: a run that is killed leaves the rows that it had.
        let beside = folder.join(format!(".{NAME}.toml"));
        fs::write(&beside, text)?;
        fs::rename(beside, file)?;
        fs::write(folder.join(format!("{NAME}.md")), self.page(specifications))
    }

    /// Takes a row in place of an older one of the same rule and line.
    pub fn put(&mut self, row: BreakRow) {
        fn key(row: &BreakRow) -> (&str, &str, &str, usize) {
            (&row.rule, &row.file, &row.text, row.nth)
        }
        self.row.retain(|old| key(old) != key(&row));
        self.row.push(row);
    }

    /// The row of a rule for a line.
    #[must_use]
    pub fn find(&self, rule: &str, site: &MarkSite) -> Option<&BreakRow> {
        self.row.iter().find(|row| {
            (row.rule.as_str(), &row.file, &row.text, row.nth)
                == (rule, &site.file, &site.text, site.nth)
        })
    }

    /// Follows lines and tests that moved, within a file or to another one. Drops the rows of lines
    /// that are gone or read differently, and of tests that their rule does not name any longer.
    /// Brings all rows in the rules' order.
    pub fn follow(&mut self, specifications: &[Specification], jobs: &[BreakJob]) {
        let rules = specifications.iter().flat_map(|specification| &specification.rule);
        let places: BTreeMap<&str, usize> =
            rules.zip(0..).map(|(rule, place)| (rule.id.as_str(), place)).collect();
        let place = |row: &BreakRow| {
            let rule = places.get(row.rule.as_str()).copied();
            (rule, row.file.clone(), row.text.clone(), row.nth)
        };
        self.follow_tests(jobs);
        self.row.sort_by_key(place);
        self.follow_lines(jobs);
        self.row.sort_by_key(place);
        let known: BTreeSet<&str> = self.row.iter().map(|row| row.rule.as_str()).collect();
        let open = jobs.iter().flat_map(|job| job.tests.keys().map(move |rule| (rule, &job.site)));
        let partly: BTreeSet<String> = open
            .filter(|(rule, site)| known.contains(rule.as_str()) && self.find(rule, site).is_none())
            .map(|(rule, _)| rule.clone())
            .collect();
        self.partly = partly.into_iter().collect();
    }

    /// Gives each row the present file of its test.
    fn follow_tests(&mut self, jobs: &[BreakJob]) {
        let tests: BTreeMap<&str, &[String]> = jobs
            .iter()
            .flat_map(|job| &job.tests)
            .map(|(rule, tests)| (rule.as_str(), tests.as_slice()))
            .collect();
        self.row.retain_mut(|row| {
            let named = tests.get(row.rule.as_str()).copied().unwrap_or_default();
            if row.test.is_empty() || named.contains(&row.test) {
                return true;
            }
            let name = |test: &str| test.rsplit("::").next().map(str::to_owned);
            let Some(moved) = named.iter().find(|test| name(test) == name(&row.test)) else {
                return false;
            };
            row.test.clone_from(moved);
            true
        });
    }

    /// Gives each row the present place of its line: in its own file first, and then, for lines
    /// that are left, in any other.
    fn follow_lines(&mut self, jobs: &[BreakJob]) {
        let key = |rule: &str, text: &str| [rule, text].map(str::to_owned);
        let mut open: BTreeMap<[String; 2], OpenLines<'_>> = BTreeMap::new();
        for job in jobs {
            let MarkSite { file, text, nth, .. } = &job.site;
            for rule in job.tests.keys() {
                open.entry(key(rule, text)).or_default().push_back((file, *nth));
            }
        }
        let mut take = |row: &mut BreakRow, own_file: bool| {
            let Some(lines) = open.get_mut(&key(&row.rule, &row.text)) else { return false };
            let Some(at) = lines.iter().position(|(file, _)| !own_file || *file == row.file) else {
                return false;
            };
            let Some((file, nth)) = lines.remove(at) else { return false };
            (row.file, row.nth) = (file.to_owned(), nth);
            true
        };
        let is_here: Vec<bool> = self.row.iter_mut().map(|row| take(row, true)).collect();
        let mut is_here = is_here.into_iter();
        self.row.retain_mut(|row| is_here.next().unwrap_or(false) || take(row, false));
    }

    /// The verdict on a rule at its worst line; none while a line is left that could be worse.
    #[must_use]
    pub fn verdict(&self, rule: &str) -> Option<BreakVerdict> {
        let worst = self.row.iter().filter(|row| row.rule == rule).map(|row| row.verdict).min()?;
        let is_open = self.partly.iter().any(|other| other == rule);
        (worst.is_finding() || !is_open).then_some(worst)
    }

    /// The page: sums, rules that were not run, and rows that need a look. All rows are in the
    /// table.
    #[must_use]
    pub fn page(&self, specifications: &[Specification]) -> String {
        let rules = specifications.iter().flat_map(|specification| &specification.rule);
        let ids: Vec<&str> =
            rules.filter(|rule| !rule.tests.is_empty()).map(|rule| rule.id.as_str()).collect();
        let count = |is: &dyn Fn(BreakVerdict) -> bool| {
            ids.iter().filter(|id| self.verdict(id).is_some_and(is)).count()
        };
        let not_run = ids.iter().filter(|id| self.verdict(id).is_none()).count();
        let mut text = format!(
            "<!-- Generated by `cargo run -p stag-requirements -- break` from \
             docs/requirements/broken.toml; a test compares. -->\n\
             # What happens when the line is broken\n\n\
             Each line that a rule cites was changed, one change at a time, in a copy of the \
             workspace, and the rule's tests were run there. \
             [broken.toml](broken.toml) has every line with its change, verdict, test and commit; \
             this page has the lines that need a look. [All specifications](README.md)\n\n\
             {} rules have lines and tests: {} noticed their broken lines, {} did not, {} need \
             something that was not there, {not_run} were not run, or not at all lines. A rule \
             counts by its worst line.\n\n\
             | verdict | lines | meaning |\n|---|---:|---|\n{}\n\
             ```sh\ncargo run -p stag-requirements -- break --rule 8166-12   # one rule, about a \
             minute\n\
             cargo run -p stag-requirements -- break --all --resume   # rules not noticed or not \
             run\n```\n",
            ids.len(),
            count(&BreakVerdict::is_noticed),
            count(&BreakVerdict::is_finding),
            count(&|verdict| verdict == BreakVerdict::NotRunHere),
            self.verdicts(),
        );
        if not_run > 0 {
            push(&mut text, format_args!("\n## Not run\n\n{}\n", self.not_run(&ids).join(", ")));
        }
        self.rows(&mut text, "Not noticed", BreakVerdict::is_finding);
        self.rows(&mut text, "Not run here", |verdict| verdict == BreakVerdict::NotRunHere);
        text
    }

    /// Rows of a table: each verdict, the number of its lines, and its meaning.
    fn verdicts(&self) -> String {
        let mut text = String::new();
        for (verdict, meaning) in MEANINGS {
            let lines = self.row.iter().filter(|row| row.verdict == verdict).count();
            push(&mut text, format_args!("| {verdict} | {lines} | {meaning} |\n"));
        }
        text
    }

    /// Rules without a verdict; neighbours are one entry, from the first to the last.
    fn not_run(&self, ids: &[&str]) -> Vec<String> {
        let prefix = |id: &str| id.rsplit_once('-').map(|(prefix, _)| prefix.to_owned());
        ids.chunk_by(|one, next| {
            self.verdict(one).is_none() == self.verdict(next).is_none()
                && prefix(one) == prefix(next)
        })
        .filter_map(|run| match run {
            [id, ..] if self.verdict(id).is_some() => None,
            [first, .., last] => Some(format!("{first} to {last}")),
            [id] => Some((*id).to_owned()),
            [] => None,
        })
        .collect()
    }

    fn rows(&self, text: &mut String, title: &str, is: impl Fn(BreakVerdict) -> bool) {
        let rows: Vec<&BreakRow> = self.row.iter().filter(|row| is(row.verdict)).collect();
        if rows.is_empty() {
            return;
        }
        push(
            text,
            format_args!(
                "\n## {title}\n\n| rule | line | change | verdict | commit \
                 |\n|---|---|---|---|---|\n"
            ),
        );
        for row in rows {
            let BreakRow { rule, file, text: code, verdict, commit, .. } = row;
            let code = cell(&format!("`{code}`"));
            let mut change = cell(&row.mutation);
            if !row.unseen.is_empty() {
                push(&mut change, format_args!("<br>not seen: {}", cell(&row.unseen.join("; "))));
            }
            push(
                text,
                format_args!(
                    "| {rule} | [{file}](../../{file})<br>{code} | {change} | {verdict} | {commit} \
                     |\n"
                ),
            );
        }
    }
}

/// Each verdict and its meaning, from the best to the worst.
const MEANINGS: [(BreakVerdict, &str); 7] = [
    (BreakVerdict::Caught, "a test failed"),
    (BreakVerdict::Hung, "a test that ends soon otherwise did not end, and was stopped"),
    (BreakVerdict::Refused, "an assertion that the compiler checks does not hold"),
    (
        BreakVerdict::NotRunHere,
        "the tests need a guest, a device or a tool that was not there, or are not built of the \
         line's file",
    ),
    (BreakVerdict::FailsWhole, "the tests fail while all lines are whole"),
    (BreakVerdict::NothingCompiled, "no change of the line is a program"),
    (BreakVerdict::Survived, "the tests pass although the line was changed"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn row(rule: &str, line: usize, verdict: BreakVerdict) -> BreakRow {
        BreakRow {
            rule: rule.to_owned(),
            file: "a.rs".to_owned(),
            text: format!("line {line}"),
            nth: 0,
            verdict,
            mutation: "`a | b` → `a`".to_owned(),
            test: "t.rs::t".to_owned(),
            unseen: vec!["without `c()`".to_owned()],
            seconds: 1.5,
            commit: "abc".to_owned(),
        }
    }

    #[test]
    fn a_table_survives_writing_and_reading() {
        let table = BreakTable {
            partly: Vec::new(),
            row: vec![row("1-1", 3, BreakVerdict::Caught), row("1-2", 4, BreakVerdict::Survived)],
        };
        let text = toml::to_string(&table).unwrap();
        assert_eq!(toml::from_str::<BreakTable>(&text).unwrap(), table);
    }

    #[test]
    fn a_rule_counts_by_its_worst_line() {
        let mut table = BreakTable::default();
        table.put(row("1-1", 3, BreakVerdict::Caught));
        table.put(row("1-1", 4, BreakVerdict::Survived));
        assert_eq!(table.verdict("1-1"), Some(BreakVerdict::Survived));
        table.put(row("1-1", 4, BreakVerdict::Hung));
        assert_eq!((table.row.len(), table.verdict("1-1")), (2, Some(BreakVerdict::Hung)));
        assert_eq!(table.verdict("1-2"), None);
    }

    fn job(file: &str, (text, nth): (&str, usize)) -> BreakJob {
        let site = MarkSite {
            file: file.to_owned(),
            // Rows know nothing of it.
            line: 1000,
            text: text.to_owned(),
            nth,
            rules: vec!["1-1".to_owned()],
        };
        BreakJob {
            site,
            given: Vec::new(),
            tests: BTreeMap::from([("1-1".to_owned(), vec!["t.rs::t".to_owned()])]),
        }
    }

    fn places(table: &BreakTable) -> Vec<(&str, &str, usize)> {
        table.row.iter().map(|row| (row.file.as_str(), row.text.as_str(), row.nth)).collect()
    }

    #[test]
    fn rows_follow_their_lines_and_go_with_them() {
        let rows = [3, 5, 7].map(|line| row("1-1", line, BreakVerdict::Caught));
        let mut table = BreakTable { partly: Vec::new(), row: rows.to_vec() };
        (table.row[1].text, table.row[1].nth) = ("line 3".to_owned(), 2);
        let jobs = [("line 3", 0), ("line 3", 1), ("line 7;", 0)].map(|line| job("a.rs", line));
        table.follow(&[], &jobs);
        assert_eq!(places(&table), [("a.rs", "line 3", 0), ("a.rs", "line 3", 1)]);
        // A line is left that could be worse.
        assert_eq!(
            (table.partly.as_slice(), table.verdict("1-1")),
            (&["1-1".to_owned()][..], None)
        );
        assert!(table.find("1-1", &jobs[1].site).is_some());
        assert!(table.find("1-1", &jobs[2].site).is_none());
        assert!(table.find("1-2", &jobs[1].site).is_none());
    }

    #[test]
    fn rows_follow_their_lines_to_another_file_and_prefer_their_own() {
        let mut table = BreakTable::default();
        table.put(row("1-1", 3, BreakVerdict::Caught));
        table.put(BreakRow { file: "b.rs".to_owned(), ..row("1-1", 3, BreakVerdict::Survived) });
        // The code of a.rs is in a folder, and the code of b.rs stayed.
        table.follow(&[], &["a/new.rs", "b.rs"].map(|file| job(file, ("line 3", 0))));
        assert_eq!(places(&table), [("a/new.rs", "line 3", 0), ("b.rs", "line 3", 0)]);
        let verdicts: Vec<_> = table.row.iter().map(|row| row.verdict).collect();
        assert_eq!(verdicts, [BreakVerdict::Caught, BreakVerdict::Survived]);
        assert_eq!(table.partly, [""; 0]);
        // A line that is cited once has one row.
        table.follow(&[], &[job("c.rs", ("line 3", 0))]);
        assert_eq!(table.row.len(), 1);
    }

    #[test]
    fn rows_follow_their_tests_and_go_with_them() {
        let rows = [3, 5].map(|line| row("1-1", line, BreakVerdict::Caught));
        let mut table = BreakTable { partly: Vec::new(), row: rows.to_vec() };
        table.row[0].test = "old/t.rs::t".to_owned();
        table.row[1].test = "old/t.rs::gone".to_owned();
        let jobs = [("line 3", 0), ("line 5", 0)].map(|line| job("a.rs", line));
        table.follow(&[], &jobs);
        let tests: Vec<_> = table.row.iter().map(|row| row.test.as_str()).collect();
        assert_eq!((tests, table.partly.as_slice()), (vec!["t.rs::t"], &["1-1".to_owned()][..]));
    }

    #[test]
    fn a_table_knows_no_line_numbers() {
        let table =
            BreakTable { partly: Vec::new(), row: vec![row("1-1", 3, BreakVerdict::Survived)] };
        let text = toml::to_string(&table).unwrap();
        assert!(!text.contains("line =") && !text.contains("nth ="), "{text}");
        assert!(table.page(&[]).contains("| [a.rs](../../a.rs)<br>`line 3` |"));
    }

    #[test]
    fn the_page_tells_findings_apart_and_what_was_not_run() {
        let rule = |id: &str| {
            format!(
                "[[rule]]\nid = \"{id}\"\nsection = \"1\"\nlevel = \"MUST\"\nrole = \"both\"\ntext \
                 = \"T.\"\nstatus = \"met\"\ntests = [\"t.rs::t\"]\n"
            )
        };
        let head = "specification = \"S\"\ntitle = \"T\"\nprefix = \"1\"\nwords = \"\"\n";
        let rules = ["1-1", "1-2", "1-3", "1-5", "1-6"].map(rule).concat();
        let specifications = [Specification::parse("s", &format!("{head}{rules}")).unwrap()];
        let table = BreakTable {
            partly: Vec::new(),
            row: vec![
                row("1-1", 3, BreakVerdict::Caught),
                row("1-2", 4, BreakVerdict::Survived),
                row("1-6", 5, BreakVerdict::NotRunHere),
            ],
        };
        let page = table.page(&specifications);
        assert!(
            page.contains("5 rules have lines and tests: 1 noticed their broken lines, 1 did not"),
            "{page}"
        );
        assert!(page.contains("| survived | 1 | the tests pass although"), "{page}");
        assert!(page.contains("## Not run\n\n1-3 to 1-5\n"), "{page}");
        let (findings, rest) = page.split_once("## Not run here").unwrap();
        assert!(findings.contains("| 1-2 |") && !findings.contains("| 1-1 |"), "{page}");
        assert!(findings.contains("`a \\| b` → `a`<br>not seen: without `c()`"), "{page}");
        assert!(rest.contains("| 1-6 |"), "{page}");
    }
}
