//! The page `docs/metrics.md`, from the table. `STAG_PAGES=1 cargo test -p stag-operate page`
//! writes it.

use crate::metrics::{Across, Kind, table::FAMILIES};
use std::{fmt::Write, fs};

/// The file of the page.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");

const INTRODUCTION: &str = "\
# Metrics

A server shows what it counts in three ways, all from one table: `GET /metrics`, which Prometheus
reads; `stag ctl stats`; and the file of `--stats`. This page is written from that table
(`apps/operate/src/metrics/table/`): `STAG_PAGES=1 cargo test -p stag-operate page`.

Prometheus finds them at the address of `--metrics`, which the READY block names:

```yaml
scrape_configs:
  - job_name: stag
    static_configs:
      - targets: ['127.0.0.1:9464']
```

Each core counts for itself, in plain numbers; they are added when somebody asks, and no call waits
for that. A metric appears with its first number: one with labels when something was counted under
them, one of a fabric when that is served. Numbers begin at zero when the server starts. Labels
never come from a client: their values are few. [stag-dashboard.json](stag-dashboard.json) is a
dashboard for Grafana, and [stag-alerts.yml](stag-alerts.yml) has alerts for Prometheus.

*At* says where the number stands in the statistics (`stag ctl stats --json`): in the object itself,
or in its member `total`, which has the sum of all shards. A part in braces is a label. *largest*:
the value is the largest of all shards', not their sum. *by shard*: each shard has its own, with the
label `shard`.

Only watched calls have their time taken: 1 in 64, or as `--sample` says. Buckets end at powers of
two of nanoseconds. A compound of NFS version 4 is timed as procedure COMPOUND, and again by the
operation that it is sent for: its first one that does more than check a session, name objects and
look at their attributes. The stages: *recv* from the start of the loop's turn that found the
message; *parse* validates its headers; *pull* has its Read chunks pulled; *app* answers it, waiting
for a disk included; *emit* builds the reply's headers; *push* posts RDMA Writes; *send* ends with
the doorbell, or over TCP at the socket.
";

fn page() -> String {
    let mut text = INTRODUCTION.to_owned();
    for family in &FAMILIES {
        let _ = write!(text, "\n## {}\n\n| metric | at | meaning |\n|---|---|---|\n", family.title);
        for metric in family.metrics {
            let kind = match (metric.kind, metric.across) {
                (Kind::Histogram, _) => "histogram, ",
                (_, Across::Largest) => "largest, ",
                (_, Across::Shard) => "by shard, ",
                (_, Across::Sum) => "",
            };
            let at = metric.at.0.replace('|', "\\|");
            let _ = writeln!(text, "| `{}` | {kind}`{at}` | {} |", metric.name, metric.help);
        }
    }
    text
}

#[test]
fn the_page_says_what_the_table_says() {
    if std::env::var_os("STAG_PAGES").is_some() {
        fs::write(FILE, page()).unwrap();
    }
    let found = fs::read_to_string(FILE).unwrap_or_default();
    assert!(
        found == page(),
        "docs/metrics.md is old: STAG_PAGES=1 cargo test -p stag-operate page"
    );
}
