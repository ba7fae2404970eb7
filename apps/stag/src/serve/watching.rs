//! Facts of a plan for those who watch the server, and the sockets that they use.

use super::{
    Addresses,
    plan::{Exported, Plan, StorePlan},
    watchdog,
};
use crate::{
    Error,
    ctl::answers::{ExportFacts, Facts},
    metrics::{Gathered, Shards, object},
    observe::{Bound, Watched, Watching, options::ObserveOptions},
};
use stag_fabrics::FabricGroup;
use stag_nfs::serve::Started;
use std::{path::Path, sync::Arc};

/// Binds the sockets of those who watch.
///
/// # Errors
/// A sentence about one that was asked for and cannot be used.
pub fn bind(options: &ObserveOptions, plan: &Plan) -> Result<Bound, Error> {
    let first = plan.fabrics.iter().flat_map(FabricGroup::ips).next();
    Bound::new(options, first.is_some_and(|at| at.port() == 0), state_dir(plan))
}

/// The directory of what must survive a restart; a store in memory has none.
fn state_dir(plan: &Plan) -> Option<&Path> {
    match &plan.store {
        StorePlan::Files { state_dir, .. } | StorePlan::Ceph { state_dir, .. } => Some(state_dir),
        StorePlan::Memory { .. } => None,
    }
}

/// Answers those who watch from here on, for as long as what is returned with the addresses lives.
///
/// # Errors
/// A sentence when a thread cannot be started.
pub fn start(
    bound: Bound,
    plan: &Plan,
    found: &Addresses,
    shards: &Arc<Shards>,
) -> Result<(Watched, Watching), Error> {
    watchdog::start(shards)?;
    // There is no file to read again.
    bound.start(shards, facts(plan, found), None)
}

/// Facts for controllers.
fn facts(plan: &Plan, found: &Addresses) -> Facts {
    let source = |export: &Exported| {
        export.path.as_ref().map_or_else(|| "memory".to_owned(), |path| path.display().to_string())
    };
    let exports = plan.exports.iter().map(|export| ExportFacts {
        name: format!("/{}", export.name),
        source: source(export),
        mode: if export.read_only { "ro" } else { "rw" },
    });
    Facts {
        listen: found.listen.iter().map(ToString::to_string).collect(),
        tcp: found.tcp.map(|at| at.to_string()),
        metrics: None,
        exports: exports.collect(),
    }
}

/// Octets that a shard took at start, by what they are for.
pub fn memory(started: &Started) -> Vec<(&'static str, usize)> {
    let [buffers, receives] = &started.budgets;
    let files = started.memory.as_ref().map(|files| ("files", files.octets));
    [("buffers", buffers.octets), ("receives", receives.octets)].into_iter().chain(files).collect()
}

/// Writes statistics to `file`, as a whole.
///
/// # Errors
/// A sentence about the file.
pub fn write(file: &Path, gathered: &Gathered) -> Result<(), Error> {
    object::write(file, &object::object(gathered)).map_err(|error| {
        Error::failure(format!("cannot write statistics to {}: {error}", file.display()))
    })
}
