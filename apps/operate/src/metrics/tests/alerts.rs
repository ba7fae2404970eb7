//! Checks of `docs/stag-alerts.yml`, the alerts for Prometheus: every rule uses metrics and labels
//! that `GET /metrics` has, and, where promtool is installed, the rules are valid and fire when
//! they have to (`alerts.yml`).

use super::dashboard::{known, names};
use std::{collections::BTreeSet, fs, process::Command};

const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stag-alerts.yml");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/metrics/tests/alerts.yml");

/// Values of the lines of the rules that begin with `key`.
fn values(rules: &str, key: &str) -> Vec<String> {
    rules.lines().filter_map(|line| line.trim().strip_prefix(key)).map(str::to_owned).collect()
}

/// The metrics of a query that are ours, each with the labels that it is selected by.
fn selected(query: &str) -> Vec<(&str, BTreeSet<&str>)> {
    let ours = names(query).filter(|it| it.starts_with("stag_") || it.starts_with("process_"));
    let labels = |name: &str| {
        let selector = query.split_once(&format!("{name}{{")).map_or("", |(_, rest)| rest);
        let selector = selector.split_once('}').map_or("", |(selector, _)| selector);
        let labels = selector.split(',').filter_map(|it| it.split(['=', '!']).next());
        labels.filter(|label| !label.is_empty()).collect()
    };
    ours.map(|name| (name, labels(name))).collect()
}

#[test]
fn every_alert_asks_for_metrics_and_labels_that_there_are() {
    let (rules, page, known) =
        (fs::read_to_string(RULES).unwrap(), fs::read_to_string(PAGE).unwrap(), known());
    let (alerts, queries) = (values(&rules, "- alert: "), values(&rules, "expr: "));
    assert_eq!(alerts.iter().collect::<BTreeSet<_>>().len(), queries.len(), "{alerts:?}");
    assert!(queries.len() > 10);
    for query in &queries {
        let ours = selected(query);
        assert!(!ours.is_empty() || query.starts_with("up{"), "{query}");
        for (name, labels) in &ours {
            let has = known.get(*name).unwrap_or_else(|| panic!("{name} of {query}"));
            assert!(labels.iter().all(|label| has.contains(label)), "{labels:?} of {query}");
            assert!(labels.contains("job"), "{query} is about other servers, too");
            let declared = ["_bucket", "_sum", "_count"].into_iter().find_map(|end| {
                name.strip_suffix(end).filter(|it| page.contains(&format!("`{it}`")))
            });
            let declared = declared.unwrap_or(name);
            assert!(
                page.contains(&format!("| `{declared}` |")),
                "{declared} is in docs/metrics.md"
            );
        }
        let by = query.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
        for label in by.flat_map(|by| by.split(", ")) {
            assert!(ours.iter().all(|(name, _)| known[*name].contains(label)), "{label}: {query}");
        }
    }
}

#[test]
fn promtool_takes_the_alerts_and_they_fire() {
    for arguments in [["check", "rules", RULES], ["test", "rules", TESTS]] {
        let Ok(output) = Command::new("promtool").args(arguments).output() else {
            eprintln!("promtool is not installed: the alerts are not checked by it");
            return;
        };
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {out}{err}");
    }
}
