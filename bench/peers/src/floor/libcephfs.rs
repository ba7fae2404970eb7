//! The floor of a server on CephFS: the same work by libcephfs, with no server around it.

use crate::{
    ceph::SharedCluster,
    contender::{Absence, Contender, Reading},
    processor::used,
    site::{MeasuringSite, shown},
};
use clap::{Args, ValueEnum};
use stag_ceph::{
    CephFile, CephInode, Errno, Library, MountSettings, PreparedMount, StatMask, SyncKind,
    UserPerm, await_unmounts,
};
use stag_load::schedule::Random;
use std::{
    ffi::CString,
    path::PathBuf,
    process::Command,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

/// Octets of a block.
const BLOCK: usize = 4 << 10;
/// Octets of the file.
const FILE_LEN: usize = 2 << 20;
/// The part of the time that is spent before anything counts.
const WARM_UP: f64 = 0.2;

/// Work that is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CephWork {
    /// A block is read, and attributes are asked for.
    Read,
    /// A block is written and synced, and attributes are asked for.
    Write,
}

/// The part of this program that works.
#[derive(Clone, Debug, Args)]
pub struct CephCalls {
    /// The cluster's configuration
    configuration: PathBuf,
    /// Work that is repeated
    work: CephWork,
    /// Threads that do it
    #[arg(long, default_value_t = 16)]
    threads: usize,
    /// Seconds that count
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

impl CephCalls {
    /// Microseconds for which the threads of this process had a core, for each call.
    ///
    /// # Errors
    /// When there is no cluster, or a call fails.
    pub fn processor_us(&self) -> Result<f64, String> {
        let library = Library::installed().map_err(|error| error.to_string())?;
        let settings =
            MountSettings { configuration: Some(&self.configuration), ..MountSettings::default() };
        let prepared = PreparedMount::new(library, &settings).map_err(|error| error.to_string())?;
        let mount = prepared.mount("/", None).map_err(|error| error.to_string())?;
        let root = UserPerm::root(library);
        let name = CString::new(format!("floor-{}", std::process::id())).unwrap_or_default();
        let failed = |errno: Errno| format!("libcephfs: {errno}");
        let top = mount.root().map_err(failed)?;
        let (inode, file, _) = top.create(&name, 0o600, true, &root).map_err(failed)?;
        file.write_at(0, &vec![0x5a; FILE_LEN]).map_err(failed)?;
        let figure = self.repeat(&inode, &file);
        top.unlink(&name, &root).map_err(failed)?;
        drop((file, inode, top, mount));
        await_unmounts(Duration::from_secs(5));
        figure
    }

    fn repeat(&self, inode: &CephInode, file: &CephFile) -> Result<f64, String> {
        let (is_over, calls) = (AtomicBool::new(false), AtomicU64::new(0));
        let work = |seed: usize| {
            let (mut random, mut block) = (Random::new(seed as u64), vec![0x5a; BLOCK]);
            let root = UserPerm::root(inode.library());
            while !is_over.load(Ordering::Relaxed) {
                let offset = random.below((FILE_LEN / BLOCK) as u64) * BLOCK as u64;
                match self.work {
                    CephWork::Read => file.read_at(offset, &mut block).map(drop)?,
                    CephWork::Write => {
                        file.write_at(offset, &block)?;
                        file.sync(SyncKind::All)?;
                    }
                }
                inode.attributes(StatMask::ALL, &root)?;
                calls.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let look = || Ok((used(std::process::id())?, calls.load(Ordering::Relaxed)));
        thread::scope(|scope| {
            let threads: Vec<_> =
                (0..self.threads.max(1)).map(|seed| scope.spawn(move || work(seed))).collect();
            thread::sleep(Duration::from_secs_f64(self.seconds * WARM_UP));
            let before: Result<_, String> = look();
            thread::sleep(Duration::from_secs_f64(self.seconds));
            let after: Result<_, String> = look();
            is_over.store(true, Ordering::Relaxed);
            for thread in threads {
                let done: Result<(), Errno> = thread.join().map_err(|_| "a thread panicked")?;
                done.map_err(|errno| format!("libcephfs: {errno}"))?;
            }
            let ((used_before, first), (used_after, last)) = (before?, after?);
            let used = used_after.saturating_sub(used_before);
            Ok(used.as_secs_f64() * 1e6 / last.saturating_sub(first).max(1) as f64)
        })
    }
}

/// libcephfs as one side of a comparison: as many threads as the other side has calls in flight.
#[derive(Debug)]
pub struct CephFloor {
    cluster: SharedCluster,
    work: CephWork,
    threads: usize,
    configuration: PathBuf,
    commands: Vec<String>,
}

impl CephFloor {
    /// Runs `threads` threads on `cluster`.
    pub fn new(cluster: &SharedCluster, work: CephWork, threads: usize) -> Self {
        let (cluster, configuration) = (cluster.clone(), PathBuf::new());
        Self { cluster, work, threads, configuration, commands: Vec::new() }
    }

    fn command(&self, site: &MeasuringSite) -> Command {
        let work = self.work.to_possible_value().map(|value| value.get_name().to_owned());
        let mut command = site.part(site.server, "ceph-calls");
        command.arg(&self.configuration).arg(work.unwrap_or_default());
        command.arg("--threads").arg(self.threads.to_string());
        command.arg("--seconds").arg(format!("{:.3}", site.turn.as_secs_f64()));
        command
    }
}

impl Contender for CephFloor {
    fn name(&self) -> String {
        "libcephfs alone".to_owned()
    }

    fn commands(&self) -> Vec<String> {
        self.commands.clone()
    }

    fn start(&mut self, site: &MeasuringSite) -> Result<(), Absence> {
        self.configuration = self.cluster.configuration(site)?;
        self.commands = vec![shown(&self.command(site))];
        Ok(())
    }

    fn measure(&mut self, site: &MeasuringSite) -> Result<Reading, String> {
        let said = site.run(self.command(site))?;
        let figure = said.trim().parse().map_err(|_| format!("{said:?} is no number"))?;
        Ok(Reading::counted(figure))
    }
}
