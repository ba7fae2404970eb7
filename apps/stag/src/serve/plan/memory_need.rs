//! Memory need of a server against the limit of its process: a server that is too large fails at
//! start, and not under load.

use crate::Error;
use stag_nfs_store::memory::MemoryConfig;

/// Memory that a server takes at start, in octets.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Shards.
    pub shards: usize,
    /// Of the buffers of all shards.
    pub buffers: usize,
    /// For files in memory.
    pub files: usize,
}

/// Checks that a need fits the limits of this process: the host's memory, its control group's
/// limit, and the configured maximum. Returns the sentence that states need and limit.
///
/// # Errors
/// A sentence with the need, the limit, and the way out.
pub fn check(need: Need, most: Option<usize>) -> Result<String, Error> {
    let all = need.buffers.saturating_add(need.files);
    if let Some(most) = most.filter(|most| all > *most) {
        return Err(Error::usage(format!(
            "this server needs {} MiB, and --memory-max is {} MiB: give more, or fewer --buffers, \
             --cores or --memory",
            all.div_ceil(1 << 20),
            most >> 20
        )));
    }
    need.within(MemoryConfig::host_memory())
}

impl Need {
    fn within(self, limit: usize) -> Result<String, Error> {
        let Self { shards, buffers, files } = self;
        let mib = |octets: usize| octets.div_ceil(1 << 20);
        let files_too =
            if files > 0 { format!(" and {} MiB for files", mib(files)) } else { String::new() };
        let need = format!("{} MiB for buffers{files_too}", mib(buffers));
        let limit_mib = limit >> 20;
        if buffers.saturating_add(files) <= limit {
            return Ok(format!(
                "memory: {need}, of {limit_mib} MiB that this process can have (its host's, or \
                 its control group's memory.max)"
            ));
        }
        let mut ways = Vec::new();
        if files > 0 {
            ways.push("less --memory");
        }
        if shards > 1 {
            ways.push("fewer --cores");
        }
        ways.push("fewer --buffers");
        ways.push("this process more memory (memory.max of its control group)");
        Err(Error::usage(format!(
            "this server needs {need}, and this process can have {limit_mib} MiB: give {}",
            ways.join(", or ")
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_fit_says_its_need_the_limit_and_the_way_out() {
        let need = Need { shards: 2, buffers: 100 << 20, files: 0 };
        let fits = need.within(200 << 20).unwrap();
        assert!(fits.starts_with("memory: 100 MiB for buffers, of 200 MiB"), "{fits}");
        let short = need.within(99 << 20).unwrap_err().to_string();
        assert!(
            short.contains("needs 100 MiB for buffers, and this process can have 99 MiB")
                && short.contains("fewer --cores")
                && !short.contains("--memory"),
            "{short}"
        );
        let files = Need { shards: 1, files: 50 << 20, ..need }.within(149 << 20).unwrap_err();
        let files = files.to_string();
        assert!(
            files.contains("and 50 MiB for files")
                && files.contains("less --memory")
                && !files.contains("--cores"),
            "{files}"
        );
        let endless = Need { files: usize::MAX, ..need };
        assert!(endless.within(usize::MAX - 1).is_err());
    }
}
