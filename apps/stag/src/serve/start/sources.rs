//! Parts that all shards of a server need for its store: memory that several serve, and the threads
//! that wait for file systems.

use crate::{Error, serve::plan::Plan};
use stag_engine::launch::CoreId;
use stag_nfs::serve::StoreSource;
use stag_nfs_store::{
    helpers::{HelperConfig, Helpers},
    memory::MemoryMail,
};

/// The parts of all shards in a memory that several serve.
pub fn memory_mail(plan: &Plan) -> Vec<MemoryMail> {
    match plan.store.is_in_first_shard() && plan.shards() > 1 {
        true => MemoryMail::all(plan.shards()),
        false => Vec::new(),
    }
}

/// Threads that wait for file systems in place of the shards, on the cores that the shards leave
/// free; none for a store whose calls never wait.
///
/// # Errors
/// When the system gives no threads.
pub fn helpers(source: &StoreSource, plan: &Plan, cores: &[CoreId]) -> Result<Vec<Helpers>, Error> {
    let Some(threads) = plan.store.helper_threads() else { return Ok(Vec::new()) };
    let shards = plan.shards();
    let cores = cores.iter().skip(shards).map(|core| core.id).collect();
    let backend = source.backend();
    let config = HelperConfig { threads, backend, cores, ..HelperConfig::new(shards) };
    Helpers::start_for(config).map_err(|error| {
        Error::failure(format!("cannot start threads that wait for file systems: {error}"))
    })
}
