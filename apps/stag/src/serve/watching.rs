//! Facts of a plan for those who watch the server, and the sockets that they use.

use super::{
    Addresses,
    exports::Exported,
    plan::{Plan, StorePlan},
};
use crate::{
    Error,
    ctl::answers::{ExportFacts, ExportList, Facts},
    metrics::{Gathered, object},
    observe::{Bound, options::ObserveOptions},
};
use stag_nfs::serve::Started;
use std::path::Path;

/// Binds the sockets of those who watch.
///
/// # Errors
/// A sentence about one that was asked for and cannot be used.
pub fn bind(options: &ObserveOptions, plan: &Plan) -> Result<Bound, Error> {
    let first = plan.fabrics.iter().flat_map(|fabric| fabric.group.ips()).next();
    Bound::new(options, first.is_some_and(|at| at.port() == 0), state_dir(plan))
}

/// The directory of what must survive a restart; a store in memory has none.
fn state_dir(plan: &Plan) -> Option<&Path> {
    match &plan.store {
        StorePlan::Files { state_dir, .. } | StorePlan::Ceph { state_dir, .. } => Some(state_dir),
        StorePlan::Memory { .. } => None,
    }
}

/// The exports of a plan, for controllers.
pub fn exports(plan: &Plan) -> ExportList {
    let source = |export: &Exported| {
        export.path.as_ref().map_or_else(|| "memory".to_owned(), |path| path.display().to_string())
    };
    let export = |export: &Exported| ExportFacts {
        name: format!("/{}", export.name),
        source: source(export),
        mode: if export.read_only { "ro" } else { "rw" },
    };
    ExportList::new(plan.exports.iter().map(export).collect())
}

/// Facts for controllers.
pub fn facts(found: &Addresses, exports: ExportList) -> Facts {
    Facts {
        listen: found.listen.iter().map(ToString::to_string).collect(),
        tcp: found.tcp.map(|at| at.to_string()),
        metrics: None,
        exports,
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
