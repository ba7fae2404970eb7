//! The standing of a rule on each provider.
//!
//! Code of `protocol/` and `engine/`, of the apps and of the pools runs above every provider: a
//! rule that only such code keeps holds on each of them. A rule kept by a provider's own code, by
//! the table of windows or by the RNIC in software says so for each provider, in `providers`, and
//! is met only where code that runs there carries its id and a test that runs there is named.

use crate::{Rule, RuleStatus, RustSources, Specification};
use serde::Deserialize;
use std::{collections::BTreeMap, fmt};

/// A provider, as a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Column {
    /// The RNIC in software, over TCP.
    Iwarp,
    /// Shared memory of one host.
    Shm,
    /// RDMA devices; shown on rxe, in the guest.
    Ibverbs,
    /// The simulated fabric of the tests.
    Sim,
}

/// A rule's standing on one provider, as its file says it: `met`, or `not met`, `not shown` or `not
/// ours` with a colon and the reason after it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Claim {
    /// The standing.
    pub standing: RuleStanding,
    /// The reason why it is not met; empty when it is, and where the rule gives the reason.
    pub reason: String,
}

/// The standing of a rule on one provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleStanding {
    /// Code that runs there meets it, and a test that runs there fails when it does not.
    Met,
    /// It is not done there.
    NotMet,
    /// It is done there, or the device is said to do it, but no test shows it.
    NotShown,
    /// It binds another party.
    NotOurs,
}

/// Claims of a specification or a rule, for some providers.
pub type Claims = BTreeMap<Column, Claim>;

impl Column {
    /// All, in the order of the tables.
    pub const ALL: [Self; 4] = [Self::Iwarp, Self::Shm, Self::Ibverbs, Self::Sim];

    /// The folder of its code, under `engine/providers`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Iwarp => "iwarp",
            Self::Shm => "shm",
            Self::Ibverbs => "ibverbs",
            Self::Sim => "sim",
        }
    }

    /// True when the code of a file runs with this provider.
    #[must_use]
    pub fn runs(self, file: &str) -> bool {
        match FilePart::of(file) {
            FilePart::Everywhere => true,
            FilePart::Provider(name) => name == self.name(),
            FilePart::Iwarp => self == Self::Iwarp,
            FilePart::Windows | FilePart::Software => self != Self::Ibverbs,
        }
    }

    /// True when a test, `file::function`, runs on this provider.
    #[must_use]
    pub fn runs_test(self, test: &str, sources: &RustSources) -> bool {
        let Some((file, case)) = test.rsplit_once("::") else { return false };
        if file.starts_with("tests/conformance/src/") {
            return !sources.skips(self, case);
        }
        match FilePart::of(file) {
            // Code that runs above a provider is tested above the simulated one.
            FilePart::Everywhere => self == Self::Sim || file.starts_with("pools/"),
            _ => self.runs(file),
        }
    }
}

/// The providers that a file belongs to.
enum FilePart<'a> {
    /// It runs above, or under, each of them.
    Everywhere,
    /// One provider's own.
    Provider(&'a str),
    /// The wire of iWARP.
    Iwarp,
    /// The table of windows of the providers that check accesses themselves.
    Windows,
    /// The part common to the providers that carry out work themselves.
    Software,
}

impl<'a> FilePart<'a> {
    fn of(file: &'a str) -> Self {
        if let Some(rest) = file.strip_prefix("engine/providers/") {
            return Self::Provider(rest.split('/').next().unwrap_or_default());
        }
        let begins = |prefix: &str| file.starts_with(prefix);
        if begins("protocol/src/iwarp/") || begins("protocol/tests/iwarp/") {
            Self::Iwarp
        } else if file == "pools/src/window.rs" || begins("pools/src/window/") {
            Self::Windows
        } else if begins("engine/verbs/src/soft/") {
            Self::Software
        } else {
            Self::Everywhere
        }
    }
}

impl Rule {
    /// True when all of its code runs above the providers.
    #[must_use]
    pub fn is_above_providers(&self) -> bool {
        !self.code.is_empty()
            && self.code.iter().all(|file| matches!(FilePart::of(file), FilePart::Everywhere))
    }
}

impl Specification {
    /// The standing of `rule` on a provider; none when it is not stated.
    #[must_use]
    pub fn claim(&self, rule: &Rule, column: Column) -> Option<Claim> {
        let standing = |standing| Some(Claim { standing, reason: String::new() });
        if let Some(claim) = rule.providers.get(&column) {
            return Some(claim.clone());
        }
        match (rule.status, self.providers.get(&column)) {
            (RuleStatus::NotOurs, _) => standing(RuleStanding::NotOurs),
            (RuleStatus::Met, _) if rule.is_above_providers() => standing(RuleStanding::Met),
            (RuleStatus::NotMet, Some(claim)) if claim.standing != RuleStanding::Met => {
                Some(claim.clone())
            }
            (RuleStatus::NotMet, _) => standing(RuleStanding::NotMet),
            (RuleStatus::Met, claim) => claim.cloned(),
        }
    }

    /// The number of rules that stand as `standing` says on a provider.
    #[must_use]
    pub fn count_on(&self, column: Column, standing: RuleStanding) -> usize {
        let stands =
            |rule: &&Rule| self.claim(rule, column).is_some_and(|claim| claim.standing == standing);
        self.rule.iter().filter(stands).count()
    }
}

impl TryFrom<String> for Claim {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (word, reason) = text.split_once(": ").unwrap_or((&text, ""));
        let standing = RuleStanding::ALL.into_iter().find(|standing| standing.to_string() == word);
        let standing = standing.ok_or_else(|| format!("'{word}' is no standing"))?;
        Ok(Self { standing, reason: reason.trim().to_owned() })
    }
}

impl RuleStanding {
    /// All, the best first.
    pub const ALL: [Self; 4] = [Self::Met, Self::NotShown, Self::NotMet, Self::NotOurs];
}

impl fmt::Display for RuleStanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Met => "met",
            Self::NotMet => "not met",
            Self::NotShown => "not shown",
            Self::NotOurs => "not ours",
        })
    }
}
