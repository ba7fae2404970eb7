//! Tests of the table as a whole: names, the page, the dashboard, the alerts.

mod alerts;
mod dashboard;
mod page;
pub mod validate;

use super::{Kind, Metric, all};
use std::collections::BTreeSet;

#[test]
fn names_keep_to_the_rules_of_prometheus() {
    let mut names = BTreeSet::new();
    for metric in all() {
        let Metric { name, kind, unit, help, .. } = metric;
        assert!(names.insert(name), "{name} is declared once");
        assert!(name.starts_with("stag_") || name.starts_with("process_"), "{name}");
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(name.chars().all(legal), "{name}");
        assert_eq!(*kind == Kind::Counter, name.ends_with("_total"), "{name}");
        let base = name.strip_suffix("_total").unwrap_or(name);
        match unit.suffix() {
            Some(suffix) => assert!(base.ends_with(suffix), "{name} ends with its unit"),
            None => assert!(!base.ends_with("_bytes") && !base.ends_with("_seconds"), "{name}"),
        }
        assert!(help.ends_with('.') && !help.contains('\n'), "{name}: {help}");
    }
}
