//! The report as text of 80 columns.

use stag_tuning::{CheckState, FixClass, HostCheck, HostReport, ReportRow, Severity};
use std::fmt::Write as _;

/// Columns of a terminal.
const WIDTH: usize = 80;
/// Columns in front of what a check has to say.
const INDENT: usize = 14;

/// States, the gravest first.
const ORDER: [CheckState; 6] = [
    CheckState::Fail,
    CheckState::Warn,
    CheckState::Info,
    CheckState::Unknown,
    CheckState::Pass,
    CheckState::NotApplicable,
];

/// Rows of the report, the gravest first, and a line of counts. Without `all` rows that pass or do
/// not apply are left out.
pub fn table(report: &HostReport, all: bool) -> String {
    let mut text = String::new();
    for state in ORDER {
        let is_quiet = matches!(state, CheckState::Pass | CheckState::NotApplicable);
        let rows = report.checks.iter().filter(|row| row.state == state);
        for row in rows.filter(|_| all || !is_quiet) {
            text.push_str(&shown(row));
        }
    }
    let counts: Vec<_> = ORDER
        .into_iter()
        .map(|state| (report.count(state), state.name()))
        .filter(|(count, _)| *count > 0)
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    let _ = writeln!(text, "profile {}: {}", report.profile, counts.join(", "));
    text
}

fn shown(row: &ReportRow) -> String {
    let head = format!("{:<7} {:<5}", row.state.name(), row.id);
    let is_defect = row.fix.is_some();
    let wanted = match (is_defect, row.wanted.is_empty()) {
        (true, false) => format!(" (wanted: {})", row.wanted),
        _ => String::new(),
    };
    let mut text = wrapped(&head, &format!("{}: {}{wanted}", row.name, row.measured));
    if let Some(fix) = &row.fix {
        // A command that is split in two has to remain one for a shell.
        let is_command = !row.changes.is_empty() && !fix.contains("; and ");
        let end = if is_command { " \\" } else { "" };
        text.push_str(&broken("", &format!("fix: {fix}"), end));
    }
    text
}

/// `words` after `head`, on lines of 80 columns with a hanging indent. A word that is longer than a
/// line stays whole.
fn wrapped(head: &str, words: &str) -> String {
    broken(head, words, "")
}

/// The same, with `end` after each line but the last.
fn broken(head: &str, words: &str, end: &str) -> String {
    let mut text = String::new();
    let mut line = format!("{head:<INDENT$}");
    let mut is_empty = true;
    for word in words.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() + end.len() > WIDTH {
            let _ = writeln!(text, "{}{end}", line.trim_end());
            line = " ".repeat(INDENT);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    let _ = writeln!(text, "{}", line.trim_end());
    text
}

/// One sentence about all of the report.
pub fn verdict(report: &HostReport) -> String {
    let named = |state| {
        let rows = report.checks.iter().filter(|row| row.state == state);
        rows.map(|row| row.id).collect::<Vec<_>>().join(", ")
    };
    match (named(CheckState::Fail), named(CheckState::Warn)) {
        (fails, warns) if fails.is_empty() => format!("results will suffer: {warns}"),
        (fails, _) => format!("something will not work: {fails}"),
    }
}

/// Everything that is known about a check.
pub fn explained(check: &HostCheck) -> String {
    let severity = match check.severity {
        Severity::Fail => "FAIL: something will not work",
        Severity::Warn => "WARN: results suffer",
        Severity::Info => "INFO: good to know",
    };
    let class = match check.class {
        FixClass::Process => "a process, for itself",
        FixClass::Runtime => "'stag tune apply', until the next boot; 'stag tune revert' undoes it",
        FixClass::Operator => "the operator, at run time",
        FixClass::Boot => "the operator, at the next boot or start of the service",
        FixClass::Nobody => "nobody here: other hardware, or another host",
    };
    [
        wrapped(check.id, check.name),
        wrapped("why", check.why),
        wrapped("source", check.source),
        wrapped("if not met", severity),
        wrapped("who fixes it", class),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stag_tuning::checks;

    #[test]
    fn every_explanation_fits_a_terminal() {
        for check in checks::all() {
            for line in explained(check).lines() {
                assert!(line.chars().count() <= WIDTH, "{line}");
            }
        }
    }

    #[test]
    fn a_long_word_stays_whole() {
        let word = "x".repeat(90);
        assert_eq!(wrapped("a", &word), format!("a{}{word}\n", " ".repeat(13)));
    }
}
