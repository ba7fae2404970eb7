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
    /// Its tests need something that is not here: a guest, a device, a tool.
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
    /// The line when it was broken, counted from 1.
    pub line: usize,
    /// The line's text then.
    pub text: String,
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
        self.row.retain(|old| (&old.rule, &old.file, old.line) != (&row.rule, &row.file, row.line));
        self.row.push(row);
    }

    /// The row of a rule for a line.
    #[must_use]
    pub fn find(&self, rule: &str, site: &MarkSite) -> Option<&BreakRow> {
        self.row
            .iter()
            .find(|row| row.rule == rule && row.file == site.file && row.line == site.line)
    }

    /// Follows lines that moved within their files, drops the rows of those that are gone or read
    /// differently, and brings all rows in the rules' order.
    pub fn follow(&mut self, specifications: &[Specification], jobs: &[BreakJob]) {
        let rules = specifications.iter().flat_map(|specification| &specification.rule);
        let places: BTreeMap<&str, usize> =
            rules.zip(0..).map(|(rule, place)| (rule.id.as_str(), place)).collect();
        let key = |rule: &str, file: &str, text: &str| [rule, file, text].map(str::to_owned);
        let mut lines: BTreeMap<[String; 3], VecDeque<usize>> = BTreeMap::new();
        for job in jobs {
            for rule in job.tests.keys() {
                lines
                    .entry(key(rule, &job.site.file, &job.site.text))
                    .or_default()
                    .push_back(job.site.line);
            }
        }
        let place =
            |row: &BreakRow| (places.get(row.rule.as_str()).copied(), row.file.clone(), row.line);
        self.row.sort_by_key(place);
        self.row.retain_mut(|row| {
            let left = lines.get_mut(&key(&row.rule, &row.file, &row.text));
            let line = left.and_then(VecDeque::pop_front);
            row.line = line.unwrap_or(row.line);
            line.is_some()
        });
        self.row.sort_by_key(place);
        let known: BTreeSet<&str> = self.row.iter().map(|row| row.rule.as_str()).collect();
        let open = jobs.iter().flat_map(|job| job.tests.keys().map(move |rule| (rule, &job.site)));
        let partly: BTreeSet<String> = open
            .filter(|(rule, site)| known.contains(rule.as_str()) && self.find(rule, site).is_none())
            .map(|(rule, _)| rule.clone())
            .collect();
        self.partly = partly.into_iter().collect();
    }

    /// The verdict on a rule at its worst line; none while a line is left that could be worse.
    #[must_use]
    pub fn verdict(&self, rule: &str) -> Option<BreakVerdict> {
        let worst = self.row.iter().filter(|row| row.rule == rule).map(|row| row.verdict).min()?;
        let is_open = self.partly.iter().any(|other| other == rule);
        (worst.is_finding() || !is_open).then_some(worst)
    }

    /// The page: sums, findings, rules that were not run, and all rows.
    #[must_use]
    pub fn page(&self, specifications: &[Specification]) -> String {
        let rules = specifications.iter().flat_map(|specification| &specification.rule);
        let ids: Vec<&str> =
            rules.filter(|rule| !rule.tests.is_empty()).map(|rule| rule.id.as_str()).collect();
        let count = |is: &dyn Fn(BreakVerdict) -> bool| {
            ids.iter().filter(|id| self.verdict(id).is_some_and(is)).count()
        };
        let not_run: Vec<&str> =
            ids.iter().copied().filter(|id| self.verdict(id).is_none()).collect();
        let mut text = format!(
            "<!-- Generated by `cargo run -p stag-requirements -- break` from \
             docs/requirements/broken.toml; a test compares. -->\n\
             # What happens when the line is broken\n\n\
             Each line that a rule cites was changed, one change at a time, in a copy of the \
             workspace, and the rule's tests were run \
             there. *Caught*: a test failed. *Hung*: a test that ends soon otherwise did not end, \
             and was stopped. *Refused*: an \
             assertion that the compiler checks does not hold. *Survived*: the tests pass though \
             the line was changed. *Nothing \
             compiled*: no change of the line is a program. A rule counts by its worst line. [All \
             specifications](README.md)\n\n\
             {} rules have lines and tests: {} noticed their broken lines, {} did not, {} need \
             something that was not there, {} were not \
             run, or not at all lines.\n\n```sh\ncargo run -p stag-requirements -- break --rule \
             8166-12   # one rule, about a minute\n\
             cargo run -p stag-requirements -- break --all --resume   # those that were not \
             noticed or not run\n```\n",
            ids.len(),
            count(&BreakVerdict::is_noticed),
            count(&BreakVerdict::is_finding),
            count(&|verdict| verdict == BreakVerdict::NotRunHere),
            not_run.len(),
        );
        if !not_run.is_empty() {
            push(&mut text, format_args!("\n## Not run\n\n{}\n", not_run.join(", ")));
        }
        self.rows(&mut text, "Not noticed", |verdict| verdict.is_finding());
        self.rows(&mut text, "Noticed", |verdict| !verdict.is_finding());
        text
    }

    fn rows(&self, text: &mut String, title: &str, is: impl Fn(BreakVerdict) -> bool) {
        let rows: Vec<&BreakRow> = self.row.iter().filter(|row| is(row.verdict)).collect();
        if rows.is_empty() {
            return;
        }
        push(
            text,
            format_args!(
                "\n## {title}\n\n| rule | line | change | verdict | test | seconds | commit \
                 |\n|---|---|---|---|---|---:|---|\n"
            ),
        );
        for row in rows {
            let BreakRow { rule, file, line, verdict, seconds, commit, .. } = row;
            let mut change = cell(&row.mutation);
            if !row.unseen.is_empty() {
                push(&mut change, format_args!("<br>not seen: {}", cell(&row.unseen.join("; "))));
            }
            let test = row
                .test
                .rsplit_once("::")
                .map_or_else(String::new, |(file, name)| format!("[{name}](../../{file})"));
            push(
                text,
                format_args!(
                    "| {rule} | [{file}:{line}](../../{file}#L{line}) | {change} | {verdict} | \
                     {test} | {seconds:.1} | {commit} |\n"
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(rule: &str, line: usize, verdict: BreakVerdict) -> BreakRow {
        BreakRow {
            rule: rule.to_owned(),
            file: "a.rs".to_owned(),
            line,
            text: format!("line {line}"),
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

    fn job(line: usize, text: &str) -> BreakJob {
        let site = MarkSite {
            file: "a.rs".to_owned(),
            line,
            text: text.to_owned(),
            rules: vec!["1-1".to_owned()],
        };
        BreakJob {
            site,
            given: Vec::new(),
            tests: BTreeMap::from([("1-1".to_owned(), vec!["t.rs::t".to_owned()])]),
        }
    }

    #[test]
    fn rows_follow_their_lines_and_go_with_them() {
        let rows = [3, 5, 7].map(|line| row("1-1", line, BreakVerdict::Caught));
        let mut table = BreakTable { partly: Vec::new(), row: rows.to_vec() };
        table.row[1].text = "line 3".to_owned();
        let jobs = [job(13, "line 3"), job(15, "line 3"), job(17, "line 7;")];
        table.follow(&[], &jobs);
        assert_eq!(table.row.iter().map(|row| row.line).collect::<Vec<_>>(), [13, 15]);
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
    fn the_page_tells_findings_apart_and_what_was_not_run() {
        let rule = |id: &str| {
            format!(
                "[[rule]]\nid = \"{id}\"\nsection = \"1\"\nlevel = \"MUST\"\nrole = \"both\"\ntext \
                 = \"T.\"\nstatus = \"met\"\ntests = [\"t.rs::t\"]\n"
            )
        };
        let head = "specification = \"S\"\ntitle = \"T\"\nprefix = \"1\"\nwords = \"\"\n";
        let rules = [rule("1-1"), rule("1-2"), rule("1-3")].concat();
        let specifications = [Specification::parse("s", &format!("{head}{rules}")).unwrap()];
        let table = BreakTable {
            partly: Vec::new(),
            row: vec![row("1-1", 3, BreakVerdict::Caught), row("1-2", 4, BreakVerdict::Survived)],
        };
        let page = table.page(&specifications);
        assert!(
            page.contains("3 rules have lines and tests: 1 noticed their broken lines, 1 did not"),
            "{page}"
        );
        assert!(page.contains("## Not run\n\n1-3\n"), "{page}");
        let (findings, rest) = page.split_once("## Noticed").unwrap();
        assert!(findings.contains("| 1-2 |") && !findings.contains("| 1-1 |"), "{page}");
        assert!(rest.contains("`a \\| b` → `a`<br>not seen: without `c()`"), "{page}");
    }
}
