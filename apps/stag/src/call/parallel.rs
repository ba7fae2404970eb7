//! Threads that move files, each over a connection of its own, while the main thread walks trees.

use super::{
    file_end::FileEnd,
    mover::{FileJob, FileMover},
    options::TransferOptions,
    remote::RemotePlan,
};
use crate::{Error, progress::TransferProgress};
use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

/// Files that wait at most: with more, the main thread moves some before it walks on.
const WAITING_MAX: usize = 256;

/// Ends of files by their numbers; a failure has its sentence.
pub type FileEnds = Vec<(usize, Result<FileEnd, String>)>;

/// The state that all threads share.
struct CrewState {
    jobs: VecDeque<(usize, FileJob)>,
    /// No more files will come.
    is_closed: bool,
    /// A connection was lost for good: no more files are begun.
    is_lost: bool,
    ends: FileEnds,
}

/// The parts that all threads share.
struct CrewShared {
    state: Mutex<CrewState>,
    wake: Condvar,
    plan: RemotePlan,
    way: TransferOptions,
    progress: Arc<TransferProgress>,
}

/// Files in transfer, and the threads that move them.
pub struct FileCrew {
    shared: Arc<CrewShared>,
    threads: Vec<JoinHandle<()>>,
}

impl FileCrew {
    /// One that has nothing to do, and no threads yet.
    pub fn new(plan: RemotePlan, way: TransferOptions, progress: Arc<TransferProgress>) -> Self {
        let state =
            CrewState { jobs: VecDeque::new(), is_closed: false, is_lost: false, ends: Vec::new() };
        let (state, wake) = (Mutex::new(state), Condvar::new());
        let shared = Arc::new(CrewShared { state, wake, plan, way, progress });
        Self { shared, threads: Vec::new() }
    }

    /// Has file `number` moved, by `mover` when many wait.
    pub fn submit(&mut self, mover: &mut FileMover<'_>, number: usize, job: FileJob) {
        let waiting = {
            let mut state = self.shared.lock();
            state.jobs.push_back((number, job));
            state.jobs.len()
        };
        self.shared.wake.notify_one();
        // One file alone is worth no further connection.
        if waiting >= 2 && self.threads.len() + 1 < self.shared.way.files.into() {
            self.spawn();
        }
        if waiting > WAITING_MAX {
            self.shared.run_one(mover, false);
        }
    }

    /// If a thread cannot be started, or cannot connect, the others do its work.
    fn spawn(&mut self) {
        let shared = Arc::clone(&self.shared);
        let name = format!("files-{}", self.threads.len() + 1);
        let spawned = thread::Builder::new().name(name).spawn(move || {
            // The error is dropped: other threads move the files.
            let _ = shared.work();
        });
        self.threads.extend(spawned);
    }

    /// Returns true once no file can be moved any more.
    pub fn is_lost(&self) -> bool {
        self.shared.lock().is_lost
    }

    /// Nothing more is begun: the connection is lost.
    pub fn give_up(&self) {
        self.shared.lock().is_lost = true;
        self.shared.wake.notify_all();
    }

    /// Moves the waiting files, together with the threads, until all is over. Returns the ends, and
    /// the number of files that were not begun.
    pub fn finish(self, mover: &mut FileMover<'_>) -> (FileEnds, u64) {
        self.shared.lock().is_closed = true;
        self.shared.wake.notify_all();
        while self.shared.run_one(mover, false) {}
        for thread in self.threads {
            let _ = thread.join();
        }
        let mut state = self.shared.lock();
        (std::mem::take(&mut state.ends), state.jobs.len() as u64)
    }
}

impl CrewShared {
    fn lock(&self) -> MutexGuard<'_, CrewState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of a thread.
    fn work(&self) -> Result<(), Error> {
        let mut remote = self.plan.connect()?;
        let mut mover = FileMover::new(&mut remote, self.way.clone(), &self.progress)?;
        while self.run_one(&mut mover, true) {}
        remote.client.disconnect();
        Ok(())
    }

    /// Moves the next file, waiting for one if `waits`. False when there is none.
    fn run_one(&self, mover: &mut FileMover<'_>, waits: bool) -> bool {
        let Some((number, job)) = self.take(waits) else { return false };
        let end = mover.run(&job).map_err(|error| error.to_string());
        let is_lost = end.is_err() && mover.remote.is_lost();
        self.progress.end_file();
        let mut state = self.lock();
        state.is_lost |= is_lost;
        state.ends.push((number, end));
        true
    }

    fn take(&self, waits: bool) -> Option<(usize, FileJob)> {
        let mut state = self.lock();
        loop {
            if state.is_lost {
                return None;
            }
            match state.jobs.pop_front() {
                None if waits && !state.is_closed => {
                    state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                job => return job,
            }
        }
    }
}
