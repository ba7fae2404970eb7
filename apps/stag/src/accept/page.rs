//! The report of `stag accept` as one page of text, to be sent back.

use super::{
    facts::EndFacts,
    report::{AcceptReport, StepVerdict},
};
use stag_operate::quote;
use std::fmt::Write;

/// Columns of a name in front of its value.
const LABEL: usize = 36;
/// Columns of a line.
const WIDTH: usize = 96;
/// Figures in the order of the page; others come after them.
const ORDER: [&str; 5] = ["p50_us", "p99_us", "max_us", "calls_per_s", "MiB_per_s"];
/// Characters of a reason.
const REASON_MAX: usize = 320;
/// Steps with a reason that are shown one by one.
const REASONS_MAX: usize = 24;

/// The page.
pub fn page(report: &AcceptReport) -> String {
    let mut text = String::new();
    let end = if report.passed { "nothing failed" } else { "SOMETHING FAILED" };
    let _ =
        writeln!(text, "stag accept over {}://: {end}, {:.0} s\n", report.fabric, report.took_s);
    ends(&mut text, report);
    steps(&mut text, report);
    figures(&mut text, report);
    reasons(&mut text, report);
    rules(&mut text, report);
    text.push_str(&next(report));
    // Words of the other end are in it.
    quote::lines(&text).to_string()
}

fn ends(text: &mut String, report: &AcceptReport) {
    for (name, end) in [("caller", &report.caller), ("server", &report.server)] {
        let EndFacts { stag, kernel, processor, cores, user, capabilities, .. } = end;
        let _ = writeln!(text, "{name}: stag {stag}");
        let _ = writeln!(text, "  Linux {kernel}; {cores} cores, {processor}");
        let _ = writeln!(text, "  user {user}, capabilities {capabilities}");
        if let Some(device) = &end.device {
            let _ = writeln!(text, "  device {device}");
        }
        let about: Vec<_> =
            end.about.iter().map(|(name, value)| format!("{name} {value}")).collect();
        if !about.is_empty() {
            let _ = writeln!(text, "  {}", about.join(", "));
        }
        if let Some(limits) = &end.limits {
            let yes = |is: bool| if is { "yes" } else { "no" };
            let _ = writeln!(
                text,
                "  windows {}, connections {}, receives {}, invalidation sent {}, borne {}",
                limits.windows,
                limits.connections,
                limits.receives,
                yes(limits.sends_invalidation),
                yes(limits.bears_invalidation)
            );
        }
        for port in &end.ports {
            let _ = writeln!(text, "  port {port}");
        }
    }
    text.push('\n');
}

fn steps(text: &mut String, report: &AcceptReport) {
    text.push_str("STEPS\n");
    for group in &report.groups {
        let _ = writeln!(text, "  {:<LABEL$} {}", group.name, group.counts());
    }
    text.push('\n');
}

fn figures(text: &mut String, report: &AcceptReport) {
    let mut lines = String::new();
    for group in &report.groups {
        for step in group.steps.iter().filter(|step| !step.figures.is_empty()) {
            let mut figures: Vec<_> = step.figures.iter().collect();
            let place = |name: &str| ORDER.iter().position(|known| *known == name);
            figures.sort_by_key(|(name, _)| place(name).unwrap_or(ORDER.len()));
            let shown = figures.iter().map(|(name, value)| figure(name, **value));
            let line = format!("{:<LABEL$} {}", step.name, shown.collect::<Vec<_>>().join(", "));
            lines.push_str(&wrapped(&line, LABEL + 3));
        }
    }
    if !lines.is_empty() {
        let _ = writeln!(text, "FIGURES\n{lines}");
    }
}

/// A figure with its unit: `p50_us` is `p50 9.8 us`.
fn figure(name: &str, value: f64) -> String {
    if let Some(name) = name.strip_suffix("_us") {
        format!("{} {value:.1} us", name.replace('_', " "))
    } else if let Some(name) = name.strip_suffix("_after_s") {
        format!("{} after {value:.2} s", name.replace('_', " "))
    } else if let Some(name) = name.strip_suffix("_per_s") {
        format!("{value:.0} {name}/s")
    } else {
        format!("{} {value}", name.replace('_', " "))
    }
}

/// Text in lines of [`WIDTH`] columns: two in front of the first one, `indent` in front of others.
fn wrapped(text: &str, indent: usize) -> String {
    let (mut lines, mut line) = (String::new(), "  ".to_owned());
    let mut has_words = false;
    // Several spaces in a row are those of a table.
    for word in text.split_inclusive(' ') {
        let len = line.chars().count() + word.trim_end().chars().count();
        if has_words && len > WIDTH && !word.trim().is_empty() {
            let _ = writeln!(lines, "{}", line.trim_end());
            line = " ".repeat(indent);
        }
        has_words = true;
        line.push_str(word);
    }
    let _ = writeln!(lines, "{}", line.trim_end());
    lines
}

/// The steps that failed, one by one, then reasons for which others were skipped.
fn reasons(text: &mut String, report: &AcceptReport) {
    for (title, verdict) in [("FAILED", StepVerdict::Failed), ("SKIPPED", StepVerdict::Skipped)] {
        // One line for each reason: many steps may share one.
        let mut seen: Vec<(String, String, usize)> = Vec::new();
        for (group, step) in report.steps(verdict) {
            let why = step.reason.clone().unwrap_or_default();
            match seen.iter_mut().find(|(_, known, _)| *known == why) {
                Some((_, _, count)) => *count += 1,
                None => seen.push((format!("{}: {}", group.name, step.name), why, 1)),
            }
        }
        if seen.is_empty() {
            continue;
        }
        let _ = writeln!(text, "{title}");
        for (name, why, count) in seen.iter().take(REASONS_MAX) {
            let others =
                if *count > 1 { format!(" and {} more", count - 1) } else { String::new() };
            text.push_str(&wrapped(&format!("{name}{others}"), 6));
            text.push_str(&wrapped(&format!("    {}", first_lines(why)), 6));
        }
        if seen.len() > REASONS_MAX {
            let _ = writeln!(text, "  {} more are in the JSON file", seen.len() - REASONS_MAX);
        }
        text.push('\n');
    }
}

/// The first two lines of a reason, or less; a panic may have many, and long ones.
fn first_lines(why: &str) -> String {
    let lines: Vec<_> = why.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let whole = lines.iter().take(2).copied().collect::<Vec<_>>().join(" ");
    if whole.chars().count() <= REASON_MAX {
        return whole;
    }
    whole.chars().take(REASON_MAX).chain("…".chars()).collect()
}

/// Rules that failed or were not shown, one by one, with their documented standing if that differs
/// from "met"; of all other rules the ids.
fn rules(text: &mut String, report: &AcceptReport) {
    text.push_str("RULES (docs/requirements)\n");
    let of = |verdict| report.rows.iter().filter(move |row| row.verdict == verdict);
    let passed: Vec<_> = of(StepVerdict::Passed).map(|row| row.id.as_str()).collect();
    for ids in passed.chunks(8) {
        let _ = writeln!(text, "  passed   {}", ids.join(" "));
    }
    for row in of(StepVerdict::Failed).chain(of(StepVerdict::Skipped)) {
        let word = row.verdict.word();
        let line = format!("{word:<9}{} ({}): {}", row.id, row.section, row.rule);
        text.push_str(&wrapped(&line, 11));
    }
    let is_news = |row: &&super::report::RuleRow| {
        row.verdict == StepVerdict::Passed && row.documented != "met"
    };
    for row in report.rows.iter().filter(is_news) {
        let standing = row.documented.split(':').next().unwrap_or_default();
        let _ = writeln!(text, "  {} passed here, and is documented as {standing}", row.id);
    }
    text.push('\n');
}

/// Runs that are missing for a whole picture.
fn next(report: &AcceptReport) -> String {
    let other = match (report.caller.is_root(), report.server.is_root()) {
        (true, true) => "Both ends ran as root: please run them as another user as well.",
        (false, false) => "No end ran as root: please run both as root as well.",
        _ => "One end ran as root: please run both as root, and both as another user.",
    };
    let send = "Please send this page and the JSON file.";
    let has = "They have addresses of RDMA ports, and no names of hosts or users.";
    format!("{other}\n{send}\n{has}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accept::{
        report::{SCHEMA, StepGroup},
        rows,
        steps::{Figures, StepFault, judge},
    };

    fn report() -> AcceptReport {
        let mut group = StepGroup::new("conformance, server");
        let case = "memory::keys_that_are_not_the_peers_cannot_be_invalidated";
        group.steps.push(judge(case, || Err(StepFault::Failed("it did\nand how".to_owned()))));
        let figures = [("max_us", 7.0), ("p50_us", 1.25), ("calls_per_s", 1e6)];
        let figures = figures.map(|(name, value)| (name.to_owned(), value));
        group.steps.push(judge("null", || Ok(Figures::from(figures))));
        for _ in 0..3 {
            let why = "perftest is not installed \u{1b}[2J".to_owned();
            group.steps.push(judge("ib_send_lat", || Err(StepFault::Skipped(why))));
        }
        let steps: Vec<_> = group.steps.iter().collect();
        AcceptReport {
            schema: SCHEMA.to_owned(),
            passed: false,
            began_unix_s: 0.0,
            took_s: 7.2,
            fabric: "rdma".to_owned(),
            caller: EndFacts::of_host(),
            server: EndFacts { user: 1_000, device: Some("mlx5_0".into()), ..EndFacts::default() },
            rows: rows::rows("rdma", &steps).unwrap(),
            groups: vec![group],
        }
    }

    #[test]
    fn a_page_names_what_failed_and_the_rules_that_this_breaks() {
        let page = page(&report());
        for part in [
            "stag accept over rdma://: SOMETHING FAILED, 7 s\n",
            "  device mlx5_0\n",
            "  conformance, server                  1 passed, 1 failed, 3 skipped\n",
            "  null                                 p50 1.2 us, max 7.0 us, 1000000 calls/s\n",
            "FAILED\n  conformance, server: memory::keys_that_are_not_the_peers",
            "\n      it did and how\n",
            "ib_send_lat and 2 more\n      perftest is not installed \\",
            "  failed   5042-18 (RFC 5042 §6.4.5): No STag is enabled",
            "  skipped  5042-9 (RFC 5042 §6.2.1): A peer reaches no memory",
        ] {
            assert!(page.contains(part), "{part:?} is not in\n{page}");
        }
        let longest = page.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(longest <= 100, "{longest} columns:\n{page}");
        assert!(!page.contains('\u{1b}'));
    }

    #[test]
    fn a_long_reason_is_cut() {
        assert_eq!(first_lines("one\n\n two\nthree"), "one two");
        let long = first_lines(&"ä".repeat(1_000));
        assert_eq!(long.chars().count(), REASON_MAX + 1);
        assert!(long.ends_with('…'));
    }

    #[test]
    fn lines_are_wrapped_between_words_and_tables_keep_their_columns() {
        assert_eq!(wrapped("a   b", 4), "  a   b\n");
        let long = "word ".repeat(30);
        let lines = wrapped(&long, 4);
        assert!(lines.lines().all(|line| line.len() <= WIDTH), "{lines}");
        assert!(lines.lines().nth(1).unwrap().starts_with("    word"), "{lines}");
        assert_eq!(lines.split_whitespace().count(), 30);
    }
}
