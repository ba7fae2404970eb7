//! Checks of `docs/stag-dashboard.json`, the dashboard for Grafana: its shape, and that every query
//! asks for what `GET /metrics` has.

use super::{Kind, all};
use serde_json::Value;
use std::{collections::BTreeSet, fs};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stag-dashboard.json");

fn dashboard() -> Value {
    serde_json::from_str(&fs::read_to_string(FILE).unwrap()).unwrap()
}

/// The metrics that a server shows, each with its labels and those that Prometheus adds.
fn known() -> Vec<(String, BTreeSet<&'static str>)> {
    let mut known = Vec::new();
    for metric in all() {
        let mut labels: BTreeSet<_> = ["job", "instance", "shard"].into();
        if metric.kind == Kind::Histogram {
            labels.extend(["program", "procedure", "stage", "le"]);
            known.extend(
                ["_bucket", "_sum", "_count"]
                    .map(|end| (format!("{}{end}", metric.name), labels.clone())),
            );
        } else {
            labels.extend(metric.at.labels());
            known.push((metric.name.to_owned(), labels));
        }
    }
    known
}

/// The words of a query that are names.
fn names(query: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    let outside_of_quotes = query.split('"').step_by(2);
    outside_of_quotes.flat_map(move |part| part.split(move |c: char| !is_part(c)))
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[test]
fn every_query_asks_for_metrics_and_labels_that_there_are() {
    let (dashboard, known) = (dashboard(), known());
    let mut queries = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let (query, legend) = (text(target, "/expr"), text(target, "/legendFormat"));
            let asked =
                names(query).filter(|it| it.starts_with("stag_") || it.starts_with("process_"));
            let found: Vec<_> = asked
                .map(|name| {
                    known.iter().find(|it| it.0 == name).unwrap_or_else(|| panic!("{name}"))
                })
                .collect();
            assert_eq!(found.len(), 1, "{query}");
            let labels = &found[0].1;
            let by = query.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
            let matched = query.split(['{', ',']).filter_map(|it| it.split(['=']).next());
            let matched =
                matched.filter(|it| query.contains(&format!("{it}=")) && !it.contains(' '));
            let shown = legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next());
            let used = by.flat_map(|by| by.split(", ")).chain(matched).chain(shown);
            for label in used.filter(|label| !label.is_empty() && !label.contains('(')) {
                assert!(labels.contains(label), "{label} in {query} {legend}");
            }
            queries += 1;
        }
    }
    assert!(queries > 20);
}

#[test]
fn the_dashboard_has_the_shape_that_grafana_loads() {
    let dashboard = dashboard();
    for member in ["title", "uid"] {
        assert!(!text(&dashboard, &format!("/{member}")).is_empty());
    }
    assert!(dashboard["uid"].as_str().unwrap().len() <= 40, "Grafana's limit");
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 30);
    assert!(dashboard["time"]["from"].is_string() && dashboard["time"]["to"].is_string());
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let variables: BTreeSet<_> = variables.iter().map(|it| it["name"].as_str().unwrap()).collect();
    let (mut ids, mut places) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "ids differ");
        assert!(["timeseries", "stat"].contains(&panel["type"].as_str().unwrap()));
        assert!(!panel["title"].as_str().unwrap().is_empty());
        let [h, w, x, y] = ["h", "w", "x", "y"].map(|it| panel["gridPos"][it].as_u64().unwrap());
        assert!(h > 0 && w > 0 && x + w <= 24, "a row has 24 columns");
        for column in x..x + w {
            assert!((y..y + h).all(|line| places.insert((column, line))), "panels do not overlap");
        }
        let mut refs = BTreeSet::new();
        for target in panel["targets"].as_array().unwrap() {
            assert!(refs.insert(target["refId"].as_str().unwrap()));
            let asked = names(text(target, "/expr")).filter(|it| it.starts_with('$'));
            let of_grafana = ["$__rate_interval"];
            for variable in asked.filter(|it| !of_grafana.contains(it)) {
                assert!(variables.contains(&variable[1..]), "{variable}");
            }
        }
    }
}
