//! A store in memory, which copies directories of this host or begins without content.

use super::PlannedStore;
use crate::{
    Error,
    args::size,
    serve::plan::{Plan, exports::Exported, security},
};
use stag_nfs::serve::StoreSource;
use stag_nfs_store::memory::{CAPACITY_MIN, MemoryConfig, MemoryExport};
use std::path::{Path, PathBuf};

/// Memory of `capacity` octets.
#[derive(Debug)]
pub struct PlannedMemory {
    pub capacity: usize,
    /// The directory of the control socket, if one was named.
    pub state_dir: Option<PathBuf>,
}

impl PlannedStore for PlannedMemory {
    fn headline(&self) -> String {
        let mib = self.capacity >> 20;
        format!(
            "memory, {mib} MiB for content: everybody may do everything, and a restart loses it"
        )
    }

    fn state_dir(&self) -> Option<&Path> {
        self.state_dir.as_deref()
    }

    fn records_dir(&self) -> Option<&Path> {
        None
    }

    fn claimable(&self, _: &Plan, _: bool) -> Result<Option<&'static str>, Error> {
        Ok(None)
    }

    fn is_in_first_shard(&self) -> bool {
        true
    }

    fn not_watched(&self, _: Option<&Exported>) -> Option<&'static str> {
        Some("a store in memory gives delegations in any case: leave this out")
    }

    fn source(&self, export: &Exported) -> String {
        let path = export.path.as_ref();
        path.map_or_else(|| "memory".to_owned(), |path| path.display().to_string())
    }

    fn described(&self, export: &Exported) -> String {
        let path = export.path.as_ref();
        path.map_or_else(
            || "nothing yet".to_owned(),
            |path| format!("a copy of {}", path.display()),
        )
    }

    fn fixed_settings(&self) -> Vec<(&'static str, String)> {
        vec![("memory", format!("{}", self.capacity))]
    }

    fn open(&self, plan: &Plan) -> Result<StoreSource, Error> {
        let security = security::of_memory(&plan.exports)?;
        let copies = plan.exports.iter().map(copy).collect();
        let config = MemoryConfig::new(copies, self.capacity);
        Ok(StoreSource::Memory(MemoryConfig { security, ..config }))
    }
}

/// An export in the form for the store.
fn copy(export: &Exported) -> MemoryExport {
    let Exported { name, path, read_only, .. } = export;
    MemoryExport { name: name.clone(), copy_of: path.clone(), read_only: *read_only }
}

/// Octets for a store in memory.
///
/// # Errors
/// A sentence about a size that is none, or more than this host has.
pub fn capacity(text: &str) -> Result<usize, Error> {
    if text == "auto" {
        return Ok(MemoryConfig::default_capacity());
    }
    let octets = size::octets(text);
    match octets {
        Ok(octets) if octets >= CAPACITY_MIN => {
            let host = MemoryConfig::host_memory();
            if octets > host {
                return Err(Error::usage(format!(
                    "--memory {text} is {} MiB, and this process can have {} MiB: give less, or \
                     auto",
                    octets >> 20,
                    host >> 20
                )));
            }
            Ok(octets)
        }
        Ok(_) => {
            Err(Error::usage(format!("--memory {text} is less than 1M, the least there can be")))
        }
        Err(why) => Err(Error::usage(format!("--memory: {why}; or auto"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_the_host_has_at_most() {
        let host = MemoryConfig::host_memory();
        assert_eq!((capacity("8M"), capacity("1.5m")), (Ok(8 << 20), Ok(3 << 19)));
        assert!(capacity("auto").unwrap() >= CAPACITY_MIN);
        assert!(matches!(capacity("1023K"), Err(Error::Usage(_))));
        let much = format!("{}M", (host >> 20) + 1);
        let sentence = capacity(&much).unwrap_err().to_string();
        assert!(
            sentence.contains(&much) && sentence.contains(&format!("can have {} MiB", host >> 20)),
            "{sentence}"
        );
    }
}
