//! The type of a host check: an id, a reason, and a function that judges a scene.

use crate::{Judged, Scene};
use serde::Serialize;
use std::str::FromStr;

/// Weight of a check that is not met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Severity {
    /// It is good to know.
    Info,
    /// Results suffer.
    Warn,
    /// Something will not work.
    Fail,
}

/// The party that can fix it, and the lifetime of the fix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FixClass {
    /// A process does it for itself.
    Process,
    /// Files of the running kernel: `apply` writes them and `revert` restores them.
    Runtime,
    /// A command at run time that `apply` leaves to the operator.
    Operator,
    /// The next boot, the firmware, or the start of the service.
    Boot,
    /// No fix: it is information, or needs other hardware.
    Nobody,
}

/// Purpose of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TuneProfile {
    /// Round trips of single microseconds, with cores that only poll.
    #[default]
    Latency,
    /// Octets per second.
    Throughput,
    /// Tests: things have to work, and results are not about time.
    Ci,
    /// A container that cannot change its host.
    Container,
}

impl TuneProfile {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
            Self::Ci => "ci",
            Self::Container => "container",
        }
    }
}

impl FromStr for TuneProfile {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let all = [Self::Latency, Self::Throughput, Self::Ci, Self::Container];
        let found = all.into_iter().find(|profile| profile.name() == text);
        found.ok_or("write latency, throughput, ci or container")
    }
}

/// Profiles that a check belongs to.
pub(crate) type Profiles = &'static [TuneProfile];
/// All profiles: without it something does not work, or results are unreliable.
pub(crate) const ALL: Profiles =
    &[TuneProfile::Latency, TuneProfile::Throughput, TuneProfile::Ci, TuneProfile::Container];
/// Settings of a host that is to be fast.
pub(crate) const FAST: Profiles = &[TuneProfile::Latency, TuneProfile::Throughput];
/// Settings of a host that is to be fast, and of a container on it.
pub(crate) const PLACED: Profiles =
    &[TuneProfile::Latency, TuneProfile::Throughput, TuneProfile::Container];
/// Settings that trade throughput or power for time.
pub(crate) const LATENCY: Profiles = &[TuneProfile::Latency];

/// One check.
#[derive(Clone, Copy, Debug)]
pub struct HostCheck {
    /// Family and number: `MEM01`.
    pub id: &'static str,
    /// Its subject, in a few words.
    pub name: &'static str,
    /// Weight when it is not met.
    pub severity: Severity,
    /// The party that can fix it.
    pub class: FixClass,
    /// Profiles that it belongs to.
    pub(crate) profiles: Profiles,
    /// Why it matters.
    pub why: &'static str,
    /// The files that are read, and the source of the reason.
    pub source: &'static str,
    /// The question.
    pub(crate) judge: fn(&Scene) -> Judged,
}

impl HostCheck {
    /// Returns true if the check belongs to `profile`.
    #[must_use]
    pub fn is_of(&self, profile: TuneProfile) -> bool {
        self.profiles.contains(&profile)
    }
}
