//! Outcome of a reload, for the log and for controllers: the changes that it made, or the reason
//! for which everything stays as it was.

use crate::{Error, serve::plan::Plan};
use serde_json::{Value, json};
use stag_engine::Spin;
use stag_nfs_store::files::ExportChanges;
use std::{fmt, time::Duration};

/// Difference that a file made that was read again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub exports: ExportChanges,
    /// True if other clients may connect than before.
    pub clients: bool,
    /// True if the files of TLS were read again, for sessions that begin from then on.
    pub tls: bool,
    /// True if principals of Kerberos may have other users than before: their contexts have ended.
    pub principals: bool,
    /// Times that shards are to keep to from here on, if they differ.
    pub times: Option<ShardTimes>,
}

/// Times of shards that can change while they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardTimes {
    /// Time that calls in progress have at the end.
    pub drain: Duration,
    /// Time of polling without work.
    pub spin: Spin,
}

impl ShardTimes {
    /// Those of a plan.
    pub const fn of(plan: &Plan) -> Self {
        Self { drain: plan.sizes.drain, spin: plan.sizes.spin }
    }
}

impl Changes {
    /// The changes for controllers.
    pub fn json(&self) -> Value {
        let ExportChanges { added, removed, reopened } = &self.exports;
        let paths = |names: &[String]| names.iter().map(|name| format!("/{name}")).collect();
        let [added, removed, changed]: [Vec<_>; 3] =
            [paths(added), paths(removed), paths(reopened)];
        json!({
            "summary": self.to_string(),
            "added": added,
            "removed": removed,
            "changed": changed,
            "clients_changed": self.clients,
            "tls_files_read": self.tls,
            "principals_changed": self.principals,
            "times_changed": self.times.is_some(),
        })
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ExportChanges { added, removed, reopened } = &self.exports;
        let lists = [("added", added), ("removed", removed), ("changed", reopened)];
        let mut parts = Vec::new();
        for (word, names) in lists.into_iter().filter(|(_, names)| !names.is_empty()) {
            let names: Vec<_> = names.iter().map(|name| format!("/{name}")).collect();
            parts.push(format!("{word} {}", names.join(", ")));
        }
        if self.clients {
            parts.push("other clients may connect".to_owned());
        }
        if self.tls {
            parts.push("certificates of TLS as they are now".to_owned());
        }
        if self.principals {
            parts.push("principals of Kerberos as the map has them".to_owned());
        }
        if self.times.is_some() {
            parts.push("drain and spin as they are there".to_owned());
        }
        match parts.as_slice() {
            [] => f.write_str("the same exports, with the options that they have now"),
            parts => f.write_str(&parts.join("; ")),
        }
    }
}

/// Reason for which everything stays as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}
