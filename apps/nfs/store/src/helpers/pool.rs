//! The helper threads and their job queue.
//!
//! The most recently busy helper is woken first, so that helpers with open files are used and the
//! others sleep. One wake-up is in flight at a time: when a woken helper takes a job and leaves
//! another one, it wakes the next helper. So waiting jobs run at once, and most of many short ones
//! are executed by a helper that is awake.
//!
//! Helpers are batch threads: a waking one does not preempt a shard, nor the helper that woke it.
//!
//! Jobs of one lane have three quarters of the threads at most: when a file system does not
//! respond, other lanes still find helpers. A job is refused when the queue is full (sooner for one
//! with descriptors), and when its lane uses all its threads without progress for [`PATIENCE`]: it
//! would then queue after hanging calls.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::thread::{CpuSet, sched_setaffinity};
use stag_engine::Time;
use stag_nfs_os::BatchThread;

use super::{
    Fetch, HelperConfig, QUEUE_LEN, THREADS_MAX,
    job::{HelperDesk, HelperJob, HelperLane},
};
use crate::Backend;

/// Time without progress after which a lane counts as stuck.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// Queued jobs of all kinds: the queue is searched under its lock.
const JOBS_MAX: usize = 512;
/// Time between two checks by an idle helper of its open files.
const TIDY_INTERVAL: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct HelperPool {
    state: Mutex<PoolState>,
    /// Indexed by the helper's number.
    bells: Box<[Condvar]>,
    fetch: Arc<Fetch>,
    backend: Option<Arc<dyn Backend>>,
    cores: Vec<usize>,
}

struct PoolState {
    queue: VecDeque<QueuedJob>,
    /// Jobs in the queue that have descriptors.
    files: usize,
    /// Idle helpers, the most recently busy one last.
    idle: Vec<usize>,
    /// True while a woken helper has not checked the queue yet.
    is_coming: bool,
    lanes: Vec<LaneUse>,
    /// Shards that still exist.
    shards: usize,
}

struct QueuedJob {
    lane: HelperLane,
    job: HelperJob,
}

/// The use of helpers by a lane.
struct LaneUse {
    lane: HelperLane,
    running: usize,
    /// Time at which one of its jobs last began or ended.
    moved: Instant,
}

/// The next thing for a helper to do.
enum Next {
    Job(HelperLane, HelperJob),
    Tidy,
    End,
}

impl PoolState {
    fn lane(&mut self, lane: HelperLane) -> &mut LaneUse {
        let place = self.lanes.iter().position(|usage| usage.lane == lane);
        let place = place.unwrap_or_else(|| {
            self.lanes.push(LaneUse { lane, running: 0, moved: Instant::now() });
            self.lanes.len() - 1
        });
        self.lanes.get_mut(place).expect("it was found, or just added")
    }

    /// The index of the first job whose lane may have one more helper.
    fn first(&self, lane_max: usize) -> Option<usize> {
        let is_free = |queued: &QueuedJob| {
            let usage = self.lanes.iter().find(|usage| usage.lane == queued.lane);
            usage.is_none_or(|usage| usage.running < lane_max)
        };
        self.queue.iter().position(is_free)
    }

    /// The helper to wake for a job that can be taken, if there is such a job and no helper is
    /// coming.
    fn next_to_wake(&mut self, lane_max: usize) -> Option<usize> {
        if self.is_coming || self.first(lane_max).is_none() {
            return None;
        }
        let woken = self.idle.pop();
        self.is_coming = woken.is_some();
        woken
    }

    fn push(&mut self, queued: QueuedJob) {
        self.files += usize::from(queued.job.has_files());
        self.queue.push_back(queued);
    }

    fn remove(&mut self, place: usize) -> Option<QueuedJob> {
        let queued = self.queue.remove(place)?;
        self.files -= usize::from(queued.job.has_files());
        Some(queued)
    }

    /// Takes the first job whose lane may have one more helper.
    fn take(&mut self, lane_max: usize) -> Option<QueuedJob> {
        let place = self.first(lane_max)?;
        let queued = self.remove(place)?;
        let usage = self.lane(queued.lane);
        usage.running += 1;
        usage.moved = Instant::now();
        Some(queued)
    }
}

impl HelperPool {
    /// Starts the threads.
    pub(super) fn start(config: HelperConfig) -> io::Result<Arc<Self>> {
        let HelperConfig { shards, threads, backend, cores, fetch } = config;
        let threads = threads.clamp(1, THREADS_MAX);
        let state = PoolState {
            queue: VecDeque::with_capacity(QUEUE_LEN),
            files: 0,
            idle: Vec::with_capacity(threads),
            is_coming: false,
            lanes: Vec::new(),
            shards,
        };
        let bells = (0..threads).map(|_| Condvar::new()).collect();
        let pool = Arc::new(Self { state: Mutex::new(state), bells, fetch, backend, cores });
        for number in 0..threads {
            let pool = Arc::clone(&pool);
            let name = format!("helper-{number}");
            thread::Builder::new().name(name).spawn(move || pool.work(number))?;
        }
        Ok(pool)
    }

    /// Helpers that one lane may have at most.
    fn lane_max(&self) -> usize {
        self.bells.len() - self.bells.len() / 4
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job, and wakes a helper for it. A refused job is returned.
    #[allow(clippy::result_large_err, reason = "a job that is refused goes back as it came")]
    pub(super) fn submit(&self, lane: HelperLane, job: HelperJob) -> Result<(), HelperJob> {
        let lane_max = self.lane_max();
        let mut state = self.state();
        let usage = state.lane(lane);
        let is_busy = usage.running >= lane_max;
        let is_stuck = is_busy && usage.moved.elapsed() > PATIENCE;
        let is_full =
            state.queue.len() >= JOBS_MAX || (job.has_files() && state.files >= QUEUE_LEN);
        if is_stuck || is_full {
            return Err(job);
        }
        state.push(QueuedJob { lane, job });
        let woken = state.next_to_wake(lane_max);
        drop(state);
        self.ring(woken);
        Ok(())
    }

    /// Wakes a helper.
    fn ring(&self, helper: Option<usize>) {
        if let Some(bell) = helper.and_then(|number| self.bells.get(number)) {
            bell.notify_one();
        }
    }

    /// Returns true if helpers run on cores that shards poll on.
    pub(super) fn shares_cores(&self) -> bool {
        self.cores.is_empty()
    }

    /// Returns true if helpers carry out whole calls.
    pub(super) fn makes_calls(&self) -> bool {
        self.backend.is_some()
    }

    /// Returns true while a lane uses all its helpers and none made progress for a while.
    pub(super) fn is_stuck(&self, lane: HelperLane) -> bool {
        let lane_max = self.lane_max();
        let mut state = self.state();
        let usage = state.lane(lane);
        usage.running >= lane_max && usage.moved.elapsed() > PATIENCE
    }

    /// Withdraws a job that no helper has started.
    pub(super) fn withdraw(&self, is_it: impl Fn(&HelperJob) -> bool) -> Option<HelperJob> {
        let mut state = self.state();
        let place = state.queue.iter().position(|queued| is_it(&queued.job))?;
        state.remove(place).map(|queued| queued.job)
    }

    /// Unregisters a shard. The helpers end with the last one.
    pub(super) fn leave(&self) {
        let mut state = self.state();
        state.shards = state.shards.saturating_sub(1);
        if state.shards == 0 {
            self.bells.iter().for_each(Condvar::notify_one);
        }
    }

    /// Runs a helper until all shards are gone.
    fn work(&self, number: usize) {
        self.keep_off_shards();
        let _batch = BatchThread::begin();
        let mut desk = HelperDesk::new(number, &*self.fetch, self.backend.as_deref());
        let began = Instant::now();
        let mut ended = None;
        loop {
            let tidies = desk.store.as_ref().is_some_and(|store| store.wants_tidying());
            match self.next(number, ended.take(), tidies) {
                Next::Job(lane, job) => {
                    desk.carry_out(job);
                    ended = Some(lane);
                }
                Next::Tidy => {
                    let now = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    if let Some(store) = &mut desk.store {
                        store.tidy(Time(now));
                    }
                }
                Next::End => return,
            }
        }
    }

    /// Keeps the helper off the cores that shards poll on. If there is no other core, or the system
    /// refuses, it runs where the scheduler puts it.
    fn keep_off_shards(&self) {
        if self.cores.is_empty() {
            return;
        }
        let mut set = CpuSet::new();
        self.cores.iter().filter(|core| **core < CpuSet::MAX_CPU).for_each(|core| set.set(*core));
        let _ = sched_setaffinity(None, &set);
    }

    /// Releases the lane of an ended job, and waits for the next job.
    fn next(&self, number: usize, ended: Option<HelperLane>, tidies: bool) -> Next {
        let mut state = self.state();
        if let Some(lane) = ended {
            let usage = state.lane(lane);
            usage.running = usage.running.saturating_sub(1);
            usage.moved = Instant::now();
        }
        loop {
            if let Some(QueuedJob { lane, job }) = state.take(self.lane_max()) {
                let woken = state.next_to_wake(self.lane_max());
                drop(state);
                self.ring(woken);
                return Next::Job(lane, job);
            }
            if state.shards == 0 {
                return Next::End;
            }
            let Some(bell) = self.bells.get(number) else { return Next::End };
            state.idle.push(number);
            let is_over;
            (state, is_over) = if tidies {
                let waited = bell.wait_timeout(state, TIDY_INTERVAL);
                let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                (state, timeout.timed_out())
            } else {
                (bell.wait(state).unwrap_or_else(PoisonError::into_inner), false)
            };
            match state.idle.iter().position(|idle| *idle == number) {
                Some(place) => drop(state.idle.remove(place)),
                // The waker removes the helper's number from the list.
                None => state.is_coming = false,
            }
            if is_over && state.queue.is_empty() {
                return Next::Tidy;
            }
        }
    }
}
