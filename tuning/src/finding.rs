//! Findings: the measured value beside the one that is wanted, and the command between them.

use serde::Serialize;

/// A file of the kernel, and the value that a check wants in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostChange {
    /// The file.
    pub key: String,
    /// The value.
    pub new: String,
}

/// Commands that are shown of one fix.
const COMMANDS_MAX: usize = 3;

/// Answer to the question of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The host has the wanted value.
    Met,
    /// It has another one.
    Unmet,
    /// The question makes no sense here.
    NotApplicable,
    /// The answer cannot be had by this process.
    Unknown,
}

/// Finding of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Answer to the check's question.
    pub answer: Answer,
    /// The measured value; or the reason why there is none.
    pub measured: String,
    /// The wanted value.
    pub wanted: String,
    /// The exact command that fixes it.
    pub fix: Option<String>,
    /// The same fix as values of files, where it can be undone at run time.
    pub changes: Vec<HostChange>,
}

/// Finding of a check, or one that ended it early: `?` takes both kinds.
pub type Judged = Result<Finding, Finding>;

impl Finding {
    /// A measured value, and the one that is wanted instead unless `is_met`.
    pub fn judge(is_met: bool, measured: impl Into<String>, wanted: impl Into<String>) -> Self {
        Self {
            answer: if is_met { Answer::Met } else { Answer::Unmet },
            measured: measured.into(),
            wanted: wanted.into(),
            fix: None,
            changes: Vec::new(),
        }
    }

    /// A question that makes no sense here, and why.
    pub fn not_applicable(reason: impl Into<String>) -> Self {
        Self { answer: Answer::NotApplicable, ..Self::judge(false, reason, "") }
    }

    /// An answer that this process cannot have, and why.
    pub fn unknown(reason: impl Into<String>) -> Self {
        Self { answer: Answer::Unknown, ..Self::judge(false, reason, "") }
    }

    /// The finding with the command that fixes it, if something is wrong.
    #[must_use]
    pub fn fix(mut self, command: impl Into<String>) -> Self {
        if self.answer == Answer::Unmet {
            self.fix = Some(command.into());
        }
        self
    }

    /// The finding with a file and the value that it should have, if something is wrong.
    #[must_use]
    pub fn set(mut self, key: impl Into<String>, new: impl Into<String>) -> Self {
        if self.answer == Answer::Unmet {
            self.changes.push(HostChange { key: key.into(), new: new.into() });
        }
        self
    }

    /// The finding with several files that should all have the value `new`.
    #[must_use]
    pub fn set_all(self, keys: impl IntoIterator<Item = String>, new: &str) -> Self {
        keys.into_iter().fold(self, |finding, key| finding.set(key, new))
    }

    /// The command that fixes it: as given, or made of the files to change.
    #[must_use]
    pub fn command(&self) -> Option<String> {
        let commands = self.changes.iter().take(COMMANDS_MAX).map(|HostChange { key, new }| {
            match key.strip_prefix("/proc/sys/") {
                // In double quotes a line may be broken.
                Some(name) if new.contains(' ') => {
                    format!("sysctl -w {}=\"{new}\"", name.replace('/', "."))
                }
                Some(name) => format!("sysctl -w {}={new}", name.replace('/', ".")),
                None => format!("echo {new} > {key}"),
            }
        });
        let shown = commands.collect::<Vec<_>>().join("; ");
        let made = match self.changes.len().saturating_sub(COMMANDS_MAX) {
            0 => shown,
            more => format!("{shown}; and {more} more alike: stag tune apply"),
        };
        self.fix.clone().or_else(|| (!made.is_empty()).then_some(made))
    }
}
