//! The table of metrics, by family.

mod engine;
mod fabrics;
mod gateway;
mod process;

use super::Metric;

/// Metrics that belong together.
pub struct Family {
    /// Heading on the page.
    #[cfg_attr(not(test), expect(dead_code, reason = "the page is made by its test"))]
    pub title: &'static str,
    /// In the order in which they are shown.
    pub metrics: &'static [Metric],
}

/// All families.
pub const FAMILIES: [Family; 9] = [
    Family { title: "The server", metrics: process::SERVER },
    Family { title: "Time of calls", metrics: process::TIMES },
    Family { title: "Connections, limits and cores", metrics: engine::CONNECTIONS },
    Family { title: "RPC-over-RDMA", metrics: engine::RDMA },
    Family { title: "RPC over TCP", metrics: engine::TCP },
    Family { title: "The gateway", metrics: gateway::GATEWAY },
    Family { title: "iWARP (`iwarp://`)", metrics: fabrics::IWARP },
    Family { title: "Shared memory (`shm://`)", metrics: fabrics::SHM },
    Family { title: "RDMA devices (`rdma://`)", metrics: fabrics::RDMA_DEVICES },
];

#[cfg(test)]
mod tests {
    use crate::metrics::{of, path};
    use serde_json::{Value, json};
    use stag_engine::Stats;
    use stag_nfs::GatewayReport;
    use std::{collections::BTreeSet, fs};

    #[test]
    fn every_number_of_a_shard_has_its_metric() {
        let shard = json!({"engine": Stats::default(), "app": GatewayReport::default()});
        let numbers = path::numbers(&shard);
        assert!(numbers.len() > 80);
        for (keys, _) in numbers {
            assert!(of(&keys).is_some(), "{} has a row", keys.join("."));
        }
    }

    /// The names of counters in the source of a provider: a device is not always at hand.
    #[test]
    fn every_counter_of_a_provider_has_its_metric() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../engine/providers/");
        for (folder, scheme) in [("iwarp", "iwarp"), ("shm", "shm"), ("ibverbs", "rdma")] {
            let source = fs::read_to_string(format!("{root}{folder}/src/stats.rs")).unwrap();
            let into = source.split(".into())").filter_map(|before| {
                let (name, field) = before.rsplit_once("(\"")?.1.split_once("\", ")?;
                Some((name.to_owned(), field.split('.').next().unwrap_or_default().to_owned()))
            });
            let found: BTreeSet<_> = into.filter(|(_, owner)| owner != "count").collect();
            assert!(found.len() > 10, "{folder}: {found:?}");
            for (name, owner) in found {
                let group = match owner.as_str() {
                    "handshakes" => Some("handshakes"),
                    "ends" => Some("disconnects"),
                    _ => None,
                };
                if name.contains(['{', '\n']) || owner == "self" && name == "other" {
                    continue;
                }
                let keys: Vec<&str> = [scheme].into_iter().chain(group).chain([&*name]).collect();
                assert!(of(&keys).is_some(), "{} has a row", keys.join("."));
            }
        }
    }

    #[test]
    fn no_number_has_two_metrics() {
        let value: Value = json!({"engine": Stats::default(), "app": GatewayReport::default()});
        for (keys, _) in path::numbers(&value) {
            let rows = super::super::all().filter(|metric| metric.at.matches(&keys));
            assert_eq!(rows.count(), 1, "{}", keys.join("."));
        }
    }
}
