//! Files of NFS workloads: in a directory of their own on the server, made before a run and removed
//! after it.

use super::{options::RunOptions, run};
use crate::{
    Error,
    call::{Remote, Url, failed},
    caller,
    stop::Stop,
};
use stag_load::{
    LoadFiles, Workload,
    workload::{NAMES, block, name},
};
use stag_protocol::nfs::v3::{CreateHow, FileHandle, SetAttributes, StableHow};
use std::time::Duration;

/// Time that a failed server has for each step of the removal.
const PATIENCE: Duration = Duration::from_secs(1);

/// Octets of a WRITE that makes a file, if blocks are shorter.
const PIECE: usize = 256 << 10;

/// Blocks of `size` octets that one WRITE makes.
const fn blocks_at_once(size: usize) -> u64 {
    if size < PIECE { (PIECE / size) as u64 } else { 1 }
}

/// A directory for each core.
pub struct Ground {
    remote: Remote,
    root: FileHandle,
    name: String,
    plots: Vec<FilePlot>,
    size: usize,
}

/// An error if a run is stopped while its files are made.
fn check_stop(stop: &Stop) -> Result<(), Error> {
    match stop.is_asked() {
        true => {
            Err(Error::Stopped("stopped while files were made: nothing was measured".to_owned()))
        }
        false => Ok(()),
    }
}

struct FilePlot {
    files: LoadFiles,
    name: String,
}

impl Ground {
    /// Makes the files that `arguments` need, for calls of `size` octets; removes them if it is
    /// stopped.
    pub fn make(
        arguments: &RunOptions,
        url: &Url,
        size: usize,
        stop: &Stop,
    ) -> Result<Self, Error> {
        let timeout = Duration::from_secs(arguments.timeout.into());
        let tls = arguments.tls.open(&url.server, url.host.as_deref())?;
        let versions = arguments.rdma_version;
        let mut remote = match arguments.workload.is_nfs4() {
            true => Remote::mount_version4(url, 8, timeout, versions, tls.as_ref())?,
            false => Remote::mount_with(url, 8, timeout, versions, tls.as_ref())?,
        };
        let root = remote.target()?.handle;
        let name = format!("stag-bench-{:016x}", u64::from_ne_bytes(caller::random()?));
        let made = remote.client.mkdir(root, name.as_bytes(), 0o700);
        made.map_err(failed(format_args!(
            "MKDIR of {name}, where files are made to measure with"
        )))?;
        let home = remote.client.lookup(root, name.as_bytes()).map_err(failed("LOOKUP"))?.object;
        let mut ground = Self { remote, root, name, plots: Vec::new(), size };
        for part in 0..arguments.cores {
            if let Err(error) = ground.add(arguments, home, part, stop) {
                let is_stopped = matches!(error, Error::Stopped(_));
                let _ = ground.remove(is_stopped);
                return Err(error);
            }
        }
        Ok(ground)
    }

    /// Returns the files that the generators work on.
    pub fn files(&self) -> Vec<LoadFiles> {
        self.plots.iter().map(|plot| plot.files).collect()
    }

    fn add(
        &mut self,
        arguments: &RunOptions,
        home: FileHandle,
        part: u16,
        stop: &Stop,
    ) -> Result<(), Error> {
        let label = format!("core{part}");
        let client = &mut self.remote.client;
        client.mkdir(home, label.as_bytes(), 0o700).map_err(failed("MKDIR"))?;
        let dir = client.lookup(home, label.as_bytes()).map_err(failed("LOOKUP"))?.object;
        let names = run::names(arguments);
        let file = match names {
            // A directory that is listed has only names that are counted.
            Some(_) => dir,
            None => {
                let how = CreateHow::Unchecked(SetAttributes::default());
                client.create(dir, b"data", how).map_err(failed("CREATE"))?;
                client.lookup(dir, b"data").map_err(failed("LOOKUP"))?.object
            }
        };
        // Two, so that a mixture has one to read and one to write.
        let blocks = if arguments.workload.has_payload() {
            (arguments.file_size / self.size).max(2)
        } else {
            1
        };
        let files = LoadFiles { dir, file, blocks: blocks as u64, names: names.unwrap_or(0) };
        self.plots.push(FilePlot { files, name: label });
        let is_looked_up = arguments.workload.by_nfs3() == Workload::Lookup;
        for number in 0..if is_looked_up { NAMES } else { files.names.into() } {
            check_stop(stop)?;
            let how = CreateHow::Unchecked(SetAttributes::default());
            client.create(dir, name(number).octets(), how).map_err(failed("CREATE"))?;
        }
        if arguments.workload.has_payload() {
            let mut number = 0;
            while number < files.blocks {
                check_stop(stop)?;
                let piece = number..files.blocks.min(number + blocks_at_once(self.size));
                let octets = piece.map(|number| block(number, self.size, false));
                let octets = octets.collect::<Vec<_>>().concat();
                let offset = number * self.size as u64;
                let done = client
                    .write(file, offset, &octets, StableHow::Unstable)
                    .map_err(failed("WRITE"))?;
                // If a server takes less at once, the next WRITE sends the rest.
                match done.count as usize / self.size {
                    0 => {
                        return Err(Error::failure(format!(
                            "WRITE took less than {} octets: give a lower --size",
                            self.size
                        )));
                    }
                    whole => number += whole as u64,
                }
            }
            client.commit(file, 0, 0).map_err(failed("COMMIT"))?;
        }
        Ok(())
    }

    /// Reads every block again that generator `part` wrote. Returns their number.
    pub fn compare(&mut self, part: usize, written: &[bool]) -> Result<u64, Error> {
        let Some(plot) = self.plots.get(part) else { return Ok(0) };
        let (mut room, mut compared) = (vec![0; self.size], 0);
        for (number, _) in (0_u64..).zip(written).filter(|(_, written)| **written) {
            let offset = number * self.size as u64;
            let done = self
                .remote
                .client
                .read(plot.files.file, offset, &mut room)
                .map_err(failed("READ"))?;
            if done.count != self.size || room != block(number, self.size, true) {
                return Err(Error::failure(format!(
                    "what was written at {offset} of {}/{}/data is not what is read there",
                    self.name, plot.name
                )));
            }
            compared += 1;
        }
        Ok(compared)
    }

    /// Removes all files. A server that failed before gets little time.
    pub fn remove(mut self, is_alive: bool) -> Result<(), Error> {
        if !is_alive {
            self.remote.client.limit_timeout(PATIENCE);
        }
        let left = format!("{} could not be removed at the server", self.name);
        self.clear().map_err(|error| Error::failure(format!("{left}: {error}")))
    }

    fn clear(&mut self) -> Result<(), Error> {
        let client = &mut self.remote.client;
        let home = client.lookup(self.root, self.name.as_bytes()).map_err(failed("LOOKUP"))?.object;
        for plot in &self.plots {
            let entries = client.readdir(plot.files.dir, 65_536).map_err(failed("READDIR"))?;
            for entry in entries.iter().filter(|entry| entry.name != b"." && entry.name != b"..") {
                client.remove(plot.files.dir, &entry.name).map_err(failed("REMOVE"))?;
            }
            client.rmdir(home, plot.name.as_bytes()).map_err(failed("RMDIR"))?;
        }
        client.rmdir(self.root, self.name.as_bytes()).map_err(failed("RMDIR"))?;
        client.disconnect();
        Ok(())
    }
}
