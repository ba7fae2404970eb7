//! A specification's rules as `docs/requirements/*.toml` writes them.

use crate::Claims;
use serde::Deserialize;
use std::{fmt, fs, io, path::Path};

/// One specification and what it asks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Specification {
    /// The file's name without its extension; not in the file.
    #[serde(skip)]
    pub name: String,
    /// Common name of the specification, such as "RFC 8166".
    pub specification: String,
    /// Its title.
    pub title: String,
    /// Prefix of its rules' ids.
    pub prefix: String,
    /// Number of times that the text uses each key word, and the places of those without a row of
    /// their own.
    pub words: String,
    /// The standing of rules on a provider that they, or their code, say nothing of.
    #[serde(default)]
    pub providers: Claims,
    /// The rules, in the order of the text.
    #[serde(default)]
    pub rule: Vec<Rule>,
}

/// One demand of a specification.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// `PREFIX-N`; a number is never used twice.
    pub id: String,
    /// Section that demands it; several sections are separated by commas.
    pub section: String,
    /// The key word of the text.
    pub level: Level,
    /// Party that is bound by it.
    pub role: String,
    /// The demand, in our own words.
    pub text: String,
    /// Status of the demand in Stag: met, not met, or not ours.
    pub status: RuleStatus,
    /// Files that carry the id in a comment, at the line that would have to change to break the
    /// rule.
    #[serde(default)]
    pub code: Vec<String>,
    /// Tests that fail when the rule is broken: `file::function`.
    #[serde(default)]
    pub tests: Vec<String>,
    /// Changes of the code that break the rule, where no automatic one does (see
    /// [`crate::breaks`]).
    #[serde(default)]
    pub breaks: Vec<RuleBreak>,
    /// Why it is not met, or not ours.
    #[serde(default)]
    pub reason: String,
    /// The counter that shows a peer's meeting with a rule that is not met: the names on the way to
    /// it, with dots between them.
    #[serde(default)]
    pub counter: String,
    /// Its standing on a provider, where its code does not show it.
    #[serde(default)]
    pub providers: Claims,
}

/// A change of one file that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleBreak {
    /// The file, by its path in the workspace.
    pub file: String,
    /// Text that occurs in it once.
    pub from: String,
    /// The text in its place.
    pub to: String,
}

/// The key word of a demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Level {
    /// An absolute demand.
    #[serde(rename = "MUST")]
    Must,
    /// An absolute prohibition.
    #[serde(rename = "MUST NOT")]
    MustNot,
    /// An absolute demand.
    #[serde(rename = "SHALL")]
    Shall,
    /// An absolute prohibition.
    #[serde(rename = "SHALL NOT")]
    ShallNot,
    /// An absolute demand.
    #[serde(rename = "REQUIRED")]
    Required,
    /// To be done unless there is a good reason.
    #[serde(rename = "SHOULD")]
    Should,
    /// Not to be done unless there is a good reason.
    #[serde(rename = "SHOULD NOT")]
    ShouldNot,
    /// To be done unless there is a good reason.
    #[serde(rename = "RECOMMENDED")]
    Recommended,
    /// Not to be done unless there is a good reason.
    #[serde(rename = "NOT RECOMMENDED")]
    NotRecommended,
    /// The text advises it in words that are no key words.
    #[serde(rename = "advice")]
    Advice,
}

impl Level {
    /// Returns true if the text leaves no choice.
    #[must_use]
    pub fn is_absolute(self) -> bool {
        matches!(self, Self::Must | Self::MustNot | Self::Shall | Self::ShallNot | Self::Required)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Must => "MUST",
            Self::MustNot => "MUST NOT",
            Self::Shall => "SHALL",
            Self::ShallNot => "SHALL NOT",
            Self::Required => "REQUIRED",
            Self::Should => "SHOULD",
            Self::ShouldNot => "SHOULD NOT",
            Self::Recommended => "RECOMMENDED",
            Self::NotRecommended => "NOT RECOMMENDED",
            Self::Advice => "advice",
        })
    }
}

/// Status of a demand in Stag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum RuleStatus {
    /// A line of code meets it, and a test fails when it does not.
    #[serde(rename = "met")]
    Met,
    /// Stag does not do it.
    #[serde(rename = "not met")]
    NotMet,
    /// It binds another party.
    #[serde(rename = "not ours")]
    NotOurs,
}

impl fmt::Display for RuleStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Met => "met",
            Self::NotMet => "not met",
            Self::NotOurs => "not ours",
        })
    }
}

impl Specification {
    /// Reads the text of the file `name`.toml.
    ///
    /// # Errors
    ///
    /// A sentence that names the fault of the text, with its line.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut read: Self =
            toml::from_str(text).map_err(|error| format!("{name}.toml: {error}"))?;
        read.name = name.to_owned();
        Ok(read)
    }

    /// Reads all files of a folder, by name.
    ///
    /// # Errors
    ///
    /// A file that cannot be read or understood.
    pub fn read_all(folder: &Path) -> io::Result<Vec<Self>> {
        let mut files: Vec<_> =
            fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
        let is_table =
            |file: &Path| file.file_stem().is_some_and(|stem| stem == crate::breaks::table::NAME);
        files.retain(|file| {
            file.extension().is_some_and(|extension| extension == "toml") && !is_table(file)
        });
        files.sort();
        let read = |file: &std::path::PathBuf| {
            let name = file.file_stem().unwrap_or_default().to_string_lossy();
            Self::parse(&name, &fs::read_to_string(file)?).map_err(io::Error::other)
        };
        files.iter().map(read).collect()
    }

    /// Number of rules with this `status`.
    #[must_use]
    pub fn count(&self, status: RuleStatus) -> usize {
        self.rule.iter().filter(|rule| rule.status == status).count()
    }
}

impl Rule {
    /// The number at the end of the id.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        self.id.rsplit_once('-')?.1.parse().ok()
    }
}
