//! Digests of reports: short enough to be part of every result, so that figures from hosts in
//! different states are distinguished.

use crate::{CheckState, HostFiles, HostPlan, HostReport, Scene, checks, report::is_quick};
use serde::{Deserialize, Serialize};

/// The state of a host in a few words: the checks that are not met, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostDigest {
    /// Purpose that the host was checked for.
    pub profile: String,
    /// Checks without which something does not work.
    pub fail: Vec<String>,
    /// Checks without which results suffer.
    pub warn: Vec<String>,
    /// Checks that are good to know.
    pub info: Vec<String>,
    /// Checks whose answer this user cannot have.
    pub unknown: Vec<String>,
    /// Number of checks that are met.
    pub pass: usize,
}

impl HostDigest {
    /// The digest of a report.
    #[must_use]
    pub fn of(report: &HostReport) -> Self {
        let ids = |state| {
            let rows = report.checks.iter().filter(|row| row.state == state);
            rows.map(|row| row.id.to_owned()).collect()
        };
        Self {
            profile: report.profile.to_owned(),
            fail: ids(CheckState::Fail),
            warn: ids(CheckState::Warn),
            info: ids(CheckState::Info),
            unknown: ids(CheckState::Unknown),
            pass: report.count(CheckState::Pass),
        }
    }

    /// The digest of this host, by the checks that need no second to watch it.
    #[must_use]
    pub fn of_this_host(plan: HostPlan) -> Self {
        let quick: Vec<_> = checks::of_host().into_iter().filter(|check| is_quick(check)).collect();
        let scene = Scene { host: HostFiles::live(), plan, gaps: None };
        Self::of(&HostReport::of(&scene, &quick))
    }

    /// Checks whose state is another one in `other`, by id.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let lists = |digest: &Self| [&digest.fail, &digest.warn, &digest.info].map(Vec::clone);
        let (one, two) = (lists(self), lists(other));
        let mut differ = Vec::new();
        for (ids, others) in one.iter().zip(&two).chain(two.iter().zip(&one)) {
            differ.extend(ids.iter().filter(|id| !others.contains(id)).cloned());
        }
        // What one user may not see is no difference of the host.
        differ.retain(|id| !self.unknown.contains(id) && !other.unknown.contains(id));
        differ.sort();
        differ.dedup();
        differ
    }
}

impl std::fmt::Display for HostDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lists = [("FAIL", &self.fail), ("WARN", &self.warn)];
        for (name, ids) in lists.into_iter().filter(|(_, ids)| !ids.is_empty()) {
            write!(f, "{} {name} ({}), ", ids.len(), ids.join(" "))?;
        }
        write!(f, "{} PASS", self.pass)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(warn: &[&str], info: &[&str], unknown: &[&str]) -> HostDigest {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
        HostDigest {
            profile: "latency".to_owned(),
            warn: ids(warn),
            info: ids(info),
            unknown: ids(unknown),
            ..HostDigest::default()
        }
    }

    #[test]
    fn a_digest_names_what_is_not_met_and_what_became_another() {
        let one = digest(&["CPU03", "MEM05"], &["MEM10"], &[]);
        assert_eq!(one.to_string(), "2 WARN (CPU03 MEM05), 0 PASS");
        assert!(one.differences(&one).is_empty());
        let other = digest(&["CPU03"], &["MEM10", "PCI01"], &[]);
        assert_eq!(one.differences(&other), ["MEM05", "PCI01"]);
        assert_eq!(other.differences(&one), ["MEM05", "PCI01"]);
        let graver = digest(&["CPU03", "MEM05", "MEM10"], &[], &[]);
        assert_eq!(one.differences(&graver), ["MEM10"]);
        let blind = digest(&["CPU03"], &[], &["MEM05", "MEM10"]);
        assert!(one.differences(&blind).is_empty());
    }

    #[test]
    fn this_host_has_a_digest_that_survives_its_text() {
        let digest = HostDigest::of_this_host(HostPlan::default());
        assert!(digest.pass > 0, "{digest}");
        let text = serde_json::to_string(&digest).unwrap();
        assert_eq!(serde_json::from_str::<HostDigest>(&text).unwrap(), digest);
        let slow = ["CPU06", "CPU07", "CPU15", "NET07"].map(str::to_owned);
        assert!(digest.warn.iter().all(|id| !slow.contains(id)));
    }
}
