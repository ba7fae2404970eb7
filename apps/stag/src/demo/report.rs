//! The demo's result: one table, or one JSON object.

use crate::Error;
use serde::Serialize;
use stag_engine::stats::Requester;
use stag_load::rate::Rate;
use std::{fmt::Write, time::Duration};

/// Columns of the names of the rows.
const LABEL: usize = 44;
/// Columns of a store.
const COLUMN: usize = 26;

/// Everything that was seen.
#[derive(Debug)]
pub struct DemoReport {
    /// Duration of the demo.
    pub elapsed: Duration,
    /// Each store.
    pub stores: Vec<StoreReport>,
}

/// A file of one size.
#[derive(Clone, Debug, Serialize)]
pub struct SizeRow {
    /// Octets.
    pub octets: u64,
    /// The largest form of the calls that wrote it.
    pub write: &'static str,
    /// The largest form of the replies that read it.
    pub read: &'static str,
}

/// Rates. One call after the other, but for `reads` and `large`.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Rates {
    /// NULL.
    pub null: Rate,
    /// READ of 4 KiB.
    pub read: Rate,
    /// WRITE of 4 KiB, UNSTABLE.
    pub write: Rate,
    /// READs of 4 KiB, several at a time.
    pub reads: Rate,
    /// READs of 1 MiB, several at a time.
    pub large: Rate,
}

impl Rates {
    /// Mebibytes per second in READs of 1 MiB.
    pub fn megabytes(&self) -> f64 {
        self.large.calls_per_s
    }
}

/// A connection that was lost while both ends lived, from when it was noticed.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Lost {
    /// Until it was there again.
    pub connected_ms: f64,
    /// Until the first retried call was answered.
    pub answered_ms: f64,
}

/// A server that was killed and started again.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Killed {
    /// From SIGKILL to the end of its process.
    pub gone_ms: f64,
    /// From the start of its process to READY.
    pub start_ms: f64,
    /// From READY to the first reply.
    pub ready_to_answer_ms: f64,
    /// From SIGKILL to the first reply.
    pub without_service_ms: f64,
    /// Octets of unstable WRITEs that went out again.
    pub replayed: u64,
}

/// Observations of one store.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StoreReport {
    /// Its name.
    pub store: &'static str,
    /// The fabric it was called over.
    pub fabric: &'static str,
    /// From the start of its process to READY.
    pub start_ms: f64,
    /// Steps and calls of the functional run.
    pub procedure_steps: usize,
    /// Its calls.
    pub procedure_calls: u64,
    /// Each size.
    pub sizes: Vec<SizeRow>,
    /// Rates.
    pub rates: Rates,
    /// Counters of the requester before the kill.
    pub requester: Requester,
    /// Octets that the server pulled by RDMA Read.
    pub pulled: u64,
    /// Octets that the server pushed by RDMA Write.
    pub pushed: u64,
    /// The lost connection, where one can be cut.
    pub lost: Option<Lost>,
    /// The killed server.
    pub killed: Killed,
    /// Octets compared after the restart.
    pub checked_again: u64,
}

impl DemoReport {
    /// As one JSON object. `failure` is the sentence of what failed.
    pub fn object(&self, failure: Option<String>) -> Result<String, Error> {
        let value = serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "passed": failure.is_none(),
            "failure": failure,
            "elapsed_s": self.elapsed.as_secs_f64(),
            "stores": self.stores,
        });
        serde_json::to_string_pretty(&value)
            .map(|text| text + "\n")
            .map_err(|error| Error::failure(format!("the report cannot be written: {error}")))
    }

    /// As tables of two columns, and what to try next.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for stores in self.stores.chunks(2) {
            let columns = Columns { stores };
            columns.row(&mut text, "store, fabric", |store| {
                format!("{}, {}", store.store, store.fabric)
            });
            let _ = writeln!(text, "{}", "-".repeat(LABEL + stores.len() * (COLUMN + 2)));
            columns.checked(&mut text);
            columns.transport(&mut text);
            columns.rates(&mut text);
            columns.recovery(&mut text);
            text.push('\n');
        }
        let _ = write!(text, "{}\n{}", self.summary(), NEXT);
        text
    }

    fn summary(&self) -> String {
        format!(
            "[1] Of each octet of an item, by our code, not the kernel's: the software RNIC \
             checks the CRC\n    \
             before it places what arrived; over shm the receiver fetches it from the sender's \
             pool. By\n    \
             design; this build does not count it.\n\
             [2] Full round trips on this host. '-': too few samples beyond it.\n\
             Everything was as it should be, in {:.1} s.",
            self.elapsed.as_secs_f64()
        )
    }
}

/// Stores side by side.
struct Columns<'a> {
    stores: &'a [StoreReport],
}

impl Columns<'_> {
    fn row(&self, text: &mut String, label: &str, value: impl Fn(&StoreReport) -> String) {
        let _ = write!(text, "{label:<LABEL$}");
        for store in self.stores {
            let _ = write!(text, "  {:>COLUMN$}", value(store));
        }
        text.push('\n');
    }

    fn checked(&self, text: &mut String) {
        self.row(text, "sizes written, read and compared", |store| {
            let last = store.sizes.iter().map(|size| size.octets).max().unwrap_or(0);
            format!("{} of 0 to {}", store.sizes.len(), grouped(last))
        });
        self.row(text, "functional run: steps, calls", |store| {
            format!("{}, {}", store.procedure_steps, grouped(store.procedure_calls))
        });
        self.row(text, "WRITE calls: form by octets", |store| forms(store, |size| size.write));
        self.row(text, "READ replies: form by octets", |store| forms(store, |size| size.read));
    }

    fn transport(&self, text: &mut String) {
        let three = |forms: stag_engine::stats::Forms| {
            format!("{} {} {}", grouped(forms.short), grouped(forms.chunked), grouped(forms.long))
        };
        self.row(text, "calls: short, chunked, long", |store| three(store.requester.calls));
        self.row(text, "replies: short, chunked, long", |store| three(store.requester.replies));
        self.row(text, "keys invalidated: by the server, by us", |store| {
            let Requester { remote_invalidations, local_invalidations, .. } = store.requester;
            format!("{}, {}", grouped(remote_invalidations), grouped(local_invalidations))
        });
        self.row(text, "MiB by RDMA Read, by RDMA Write", |store| {
            format!("{}, {}", grouped(store.pulled >> 20), grouped(store.pushed >> 20))
        });
        self.row(text, "payload copies: sender, receiver [1]", |_| "0, 1".to_owned());
    }

    fn rates(&self, text: &mut String) {
        let per_s = |rate: Rate| format!("{}/s", grouped(rate.calls_per_s as u64));
        self.row(text, "NULL, one at a time", |store| per_s(store.rates.null));
        self.row(text, "  round trip us: p50 p90 p99 p99.9 max [2]", |store| {
            trips(store.rates.null)
        });
        self.row(text, "READ of 4 KiB, one at a time", |store| per_s(store.rates.read));
        self.row(text, "  round trip us: p50 p90 p99 p99.9 max", |store| trips(store.rates.read));
        self.row(text, "WRITE of 4 KiB, UNSTABLE, one at a time", |store| per_s(store.rates.write));
        self.row(text, "  round trip us: p50 p90 p99 p99.9 max", |store| trips(store.rates.write));
        self.row(text, "READs of 4 KiB, 16 at a time", |store| per_s(store.rates.reads));
        self.row(text, "READs of 1 MiB, 8 at a time", |store| {
            format!("{} MiB/s", grouped(store.rates.megabytes() as u64))
        });
    }

    fn recovery(&self, text: &mut String) {
        self.row(text, "connection lost, to first retried call", |store| {
            store.lost.map_or_else(|| "-".to_owned(), |lost| ms(lost.answered_ms))
        });
        self.row(text, "server killed: without service", |store| {
            ms(store.killed.without_service_ms)
        });
        self.row(text, "  of that: end of its process", |store| ms(store.killed.gone_ms));
        self.row(text, "  of that: start of the server", |store| ms(store.killed.start_ms));
        self.row(text, "  of that: ready, to first reply", |store| {
            ms(store.killed.ready_to_answer_ms)
        });
        self.row(text, "  unstable octets written again", |store| match store.store {
            "memory" => "none: handles are stale".to_owned(),
            _ => grouped(store.killed.replayed),
        });
        self.row(text, "octets compared again after that", |store| grouped(store.checked_again));
    }
}

const NEXT: &str = "
Try next
  stag serve DIR        serves a directory of yours, and prints the mount command for Linux:
      mount -t nfs 127.0.0.1:/NAME /mnt             over RDMA: -o rdma
                        (give --insecure when root serves: Linux comes from any port over RDMA)
  stag call iwarp://127.0.0.1:20049/NAME ls -l      where one cannot mount
  stag check iwarp://127.0.0.1:20049/NAME            the functional run alone
";

/// Lists the forms and the sizes that went by them: `short to 3,999, then chunked`.
fn forms(store: &StoreReport, of: impl Fn(&SizeRow) -> &'static str) -> String {
    let mut text = String::new();
    let mut sizes = store.sizes.iter().peekable();
    while let Some(size) = sizes.next() {
        let form = of(size);
        match sizes.peek() {
            Some(next) if of(next) == form => {}
            Some(_) => {
                let _ = write!(text, "{form} to {}, ", grouped(size.octets));
            }
            None => text.push_str(form),
        }
    }
    text
}

fn trips(rate: Rate) -> String {
    let trips = rate.round_trips;
    let mut text = String::new();
    for value in [trips.p50_us, trips.p90_us, trips.p99_us, trips.p999_us, Some(trips.max_us)] {
        let _ = match value {
            Some(value) => write!(text, "{value:.0} "),
            None => write!(text, "- "),
        };
    }
    text.trim_end().to_owned()
}

fn ms(millis: f64) -> String {
    format!("{millis:.1} ms")
}

/// A number with its thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")]
        {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn forms_are_told_by_where_they_change() {
        let size = |octets, write| SizeRow { octets, write, read: "short" };
        let sizes =
            vec![size(0, "short"), size(10, "short"), size(20, "chunked"), size(30, "chunked")];
        let store = StoreReport { sizes, ..StoreReport::default() };
        assert_eq!(forms(&store, |size| size.write), "short to 10, chunked");
        assert_eq!(forms(&store, |size| size.read), "short");
    }

    #[test]
    fn no_line_is_longer_than_a_terminal_of_100_columns() {
        let store = StoreReport { store: "files", ..StoreReport::default() };
        let report = DemoReport {
            elapsed: Duration::from_secs(1),
            stores: vec![store.clone(), store.clone(), store],
        };
        for line in report.table().lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}
