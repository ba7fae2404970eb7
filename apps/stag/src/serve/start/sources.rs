//! Stores of a server, by its plan: the sources from which shards open their stores, and the
//! threads that wait for file systems.

use super::ceph_start;
use crate::{
    Error,
    serve::plan::{Plan, StorePlan, security},
};
use stag_engine::launch::CoreId;
use stag_nfs::serve::StoreSource;
use stag_nfs_store::{
    Backend,
    files::{self, FilesBackend, SharedFiles},
    helpers::{HelperConfig, Helpers},
    memory::{self, MemoryMail},
};
use std::sync::Arc;

/// Makes the source of the shards' stores.
pub fn source(plan: &Plan) -> Result<StoreSource, Error> {
    match &plan.store {
        StorePlan::Files { state_dir, callers, cluster, waiting } => {
            let config = files::FilesConfig {
                state_dir: state_dir.clone(),
                exports: plan.directories(),
                shards: plan.shards(),
                sync_directories: true,
                callers: callers.clone(),
                open_files: Some(plan.share.files),
                cluster: cluster.clone(),
            };
            SharedFiles::open_waiting(&config, waiting)
                .map(StoreSource::Files)
                .map_err(|error| Error::usage(error.to_string()))
        }
        StorePlan::Ceph { ceph, state_dir, callers, cluster, .. } => {
            ceph_start::open(plan, ceph, state_dir, callers, cluster.as_ref())
                .map(StoreSource::Ceph)
        }
        StorePlan::Memory { capacity, .. } => {
            let security = security::of_memory(&plan.exports)?;
            let config = memory::MemoryConfig::new(plan.copies(), *capacity);
            Ok(StoreSource::Memory(memory::MemoryConfig { security, ..config }))
        }
    }
}

/// The parts of all shards in a memory that several serve.
pub fn memory_mail(plan: &Plan) -> Vec<MemoryMail> {
    match plan.store {
        StorePlan::Memory { .. } if plan.shards() > 1 => MemoryMail::all(plan.shards()),
        _ => Vec::new(),
    }
}

/// Threads that wait for file systems in place of the shards, on the cores that the shards leave
/// free; a store in memory needs none.
pub fn helpers(source: &StoreSource, plan: &Plan, cores: &[CoreId]) -> Result<Vec<Helpers>, Error> {
    let (threads, backend) = match (source, &plan.store) {
        (StoreSource::Files(shared), StorePlan::Files { waiting, .. }) => {
            let backend = FilesBackend::of(shared).map(|files| Arc::new(files) as Arc<dyn Backend>);
            (waiting.helpers, backend)
        }
        (StoreSource::Ceph(backend), StorePlan::Ceph { helpers, .. }) => {
            (*helpers, Some(Arc::new(backend.clone()) as Arc<dyn Backend>))
        }
        _ => return Ok(Vec::new()),
    };
    let shards = plan.shards();
    let cores = cores.iter().skip(shards).map(|core| core.id).collect();
    let config = HelperConfig { threads, backend, cores, ..HelperConfig::new(shards) };
    Helpers::start_for(config).map_err(|error| {
        Error::failure(format!("cannot start threads that wait for file systems: {error}"))
    })
}
