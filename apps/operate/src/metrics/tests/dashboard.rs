//! Checks of `docs/stag-dashboard.json`, the dashboard for Grafana: its shape, and that every query
//! uses metrics that `GET /metrics` has.

use crate::metrics::{Across, Kind, all};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stag-dashboard.json");

fn dashboard() -> Value {
    serde_json::from_str(&fs::read_to_string(FILE).unwrap()).unwrap()
}

/// The metrics that a server shows, each with its labels and the labels that Prometheus adds.
pub fn known() -> BTreeMap<String, BTreeSet<&'static str>> {
    let mut known = BTreeMap::new();
    for metric in all() {
        let mut labels: BTreeSet<_> = ["job", "instance"].into();
        if metric.kind != Kind::Histogram {
            labels.extend(metric.at.labels());
            labels.extend((metric.across == Across::Shard).then_some("shard"));
            known.insert(metric.name.to_owned(), labels);
            continue;
        }
        match metric.at.0.starts_with("operations") {
            true => labels.extend(["operation"]),
            false => labels.extend(["program", "procedure"]),
        }
        labels.extend(metric.at.0.ends_with(".stages").then_some("stage"));
        for end in ["_sum", "_count"] {
            known.insert(format!("{}{end}", metric.name), labels.clone());
        }
        labels.insert("le");
        known.insert(format!("{}_bucket", metric.name), labels);
    }
    known
}

/// The words of a query that are names.
pub fn names(query: &str) -> impl Iterator<Item = &str> {
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
            let all: Vec<_> = asked
                .map(|name| (name, known.get(name).unwrap_or_else(|| panic!("{name}"))))
                .collect();
            assert!(!all.is_empty(), "{query}");
            for (name, labels) in &all {
                let selector = query.split_once(&format!("{name}{{")).map(|(_, rest)| rest);
                let selector = selector.and_then(|rest| rest.split_once('}')).unwrap_or_default().0;
                for matcher in selector.split(',') {
                    let label = matcher.split(['=', '!']).next().unwrap_or_default();
                    assert!(labels.contains(label), "{label} in {query}");
                }
            }
            let by = query.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
            let by: BTreeSet<_> = by.flat_map(|by| by.split(", ")).collect();
            let shown = legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next());
            let shown: BTreeSet<_> = shown.collect();
            for label in by.iter().chain(&shown) {
                assert!(
                    all.iter().all(|(_, labels)| labels.contains(label)),
                    "{label} in {query} {legend}"
                );
            }
            let is_sum = ["sum ", "sum(", "max ", "histogram_quantile"];
            if is_sum.iter().any(|begin| query.starts_with(begin)) {
                assert!(shown.is_subset(&by), "{legend} shows what {query} sums away");
            }
            queries += 1;
        }
    }
    assert!(queries > 30);
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
