//! A store whose calls sleep, finish out of order, or never, in virtual time: a store in memory
//! that acts as one with a slow backend.

use fastrand::Rng;
use stag_nfs_store::{
    Begun, Effort, ExportRoot, Store, StoreCall, StoreCallDone, StoreRequest, WaitTicket,
    memory::{Memory, MemoryConfig, MemoryExport},
    perform,
};
use stag_protocol::nfs::v3::{FileHandle, Status, Verifier};
use stag_verbs::Time;
use std::{cell::RefCell, collections::BTreeMap, io, rc::Rc, time::Duration};

/// The time that calls take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// A moment, or some seconds now and then; some wait in a queue before.
    Mixed,
    /// A millisecond, and none is refused.
    Even,
    /// Without end, until the pace changes.
    Never,
    /// The same for changes alone.
    NoChange,
    /// The same for all others. A change takes a moment.
    ChangesOnly,
}

impl Pace {
    /// Returns true while a call does not end.
    fn hangs(self, call: &StoreCall) -> bool {
        match self {
            Self::Mixed | Self::Even => false,
            Self::Never => true,
            Self::NoChange => !call.operation.is_harmless(),
            Self::ChangesOnly => call.operation.is_harmless(),
        }
    }
}

/// The deeds of the backend, and its pace.
#[derive(Debug)]
pub struct Shared {
    pub pace: Pace,
    /// Executions of each change, by what it was to do.
    pub done: BTreeMap<String, u32>,
    /// The version of each place of a file that was written last.
    pub versions: BTreeMap<u64, u32>,
    /// WRITEs that were carried out again after they were over.
    pub again: u64,
    /// Calls that were begun and took longer than any reader waits.
    pub hung: u64,
}

struct Pending {
    due: Time,
    /// From here on it is begun; before, it can be cancelled.
    starts: Time,
    ticket: WaitTicket,
    call: StoreCall,
}

pub struct SlowStore {
    memory: Memory,
    /// The memory that calls which wait find, where several shards serve one.
    behind: Option<Rc<RefCell<Memory>>>,
    /// Objects whose calls do not wait.
    fast: FileHandle,
    pending: Vec<Pending>,
    dice: Rng,
    now: Time,
    shared: Rc<RefCell<Shared>>,
}

impl SlowStore {
    pub fn new(seed: u64) -> (Self, Rc<RefCell<Shared>>) {
        let export =
            |name: &str| MemoryExport { name: name.to_owned(), read_only: false, copy_of: None };
        let exports = vec![export("slow"), export("fast")];
        let config = MemoryConfig::new(exports, 4 << 20);
        let mut memory = Memory::new(&config, &mut |_| {}).unwrap();
        let shared = Rc::new(RefCell::new(Shared {
            pace: Pace::Mixed,
            done: BTreeMap::new(),
            versions: BTreeMap::new(),
            again: 0,
            hung: 0,
        }));
        let fast = stag_nfs_store::Procedures::mount(&mut memory, b"/fast").unwrap();
        let dice = Rng::with_seed(seed ^ 0x5157);
        let (pending, now, behind) = (vec![], Time(0), None);
        let store = Self { memory, behind, fast, pending, dice, now, shared: Rc::clone(&shared) };
        (store, shared)
    }

    /// The stores of two shards, whose calls that wait find the same objects.
    pub fn pair(seed: u64) -> ([Self; 2], Rc<RefCell<Shared>>) {
        let (mut one, shared) = Self::new(seed);
        let mut other = Self::new(seed ^ 1).0;
        let behind = Rc::new(RefCell::new(Self::new(seed).0.memory));
        one.behind = Some(Rc::clone(&behind));
        (other.behind, other.shared) = (Some(behind), Rc::clone(&shared));
        ([one, other], shared)
    }

    /// Makes changes to what calls find.
    pub fn prepare<T>(&mut self, make: impl FnOnce(&mut Memory) -> T) -> T {
        match &self.behind {
            Some(behind) => make(&mut behind.borrow_mut()),
            None => make(&mut self.memory),
        }
    }

    pub fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// Milliseconds that a call waits in the queue, and that it takes then.
    fn times(&mut self, call: &StoreCall) -> (u64, u64) {
        let pace = self.shared.borrow().pace;
        if pace.hangs(call) {
            return (0, u64::from(u32::MAX));
        }
        if matches!(pace, Pace::ChangesOnly | Pace::Even) {
            return (0, 1);
        }
        let queued = [0, 0, 0, 0, 1, 30, 2_500][self.dice.usize(..7)];
        let taken = [0, 0, 1, 1, 7, 40, 300, 7_000][self.dice.usize(..8)];
        (queued, taken + self.dice.u64(..5))
    }

    /// Keeps the books of what a call is about to change.
    fn note(&mut self, call: &StoreCall) {
        let mut shared = self.shared.borrow_mut();
        if let StoreRequest::Write { offset, .. } = call.operation {
            let version = u32::from_be_bytes(*call.payload().first_chunk().unwrap());
            let before = shared.versions.insert(offset, version).unwrap_or(0);
            // The reply of one that is over may be lost: then it is written again, as it was.
            assert!(version >= before, "version {version} overtakes {before}");
            shared.again += u64::from(version == before);
        } else if !call.operation.is_harmless()
            && !matches!(call.operation, StoreRequest::Commit { .. })
        {
            let what = match &call.operation {
                StoreRequest::Create { name, .. } => format!("create {name:?}"),
                StoreRequest::MkDir { name, .. } => format!("mkdir {name:?}"),
                StoreRequest::Remove { name, .. } => format!("remove {name:?}"),
                StoreRequest::SetAttr { set, .. } => format!("setattr {set:?}"),
                StoreRequest::Rename { from, to } => {
                    format!("rename {:?} {:?}", from.name, to.name)
                }
                other => panic!("{other:?}"),
            };
            *shared.done.entry(what).or_default() += 1;
        }
    }
}

fn later(now: Time, ms: u64) -> Time {
    now + Duration::from_millis(ms)
}

impl Store for SlowStore {
    type Now = Memory;

    const MAY_WAIT: bool = true;

    fn now(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn waits(&self, object: &FileHandle, _effort: Effort) -> bool {
        *object != self.fast
    }

    fn begin(&mut self, call: StoreCall, ticket: WaitTicket) -> Begun {
        let pace = self.shared.borrow().pace;
        if pace == Pace::Mixed && self.dice.usize(..50) == 0 {
            return Begun::Refused(call);
        }
        let is_same = |other: &Pending| {
            let both = [&other.call, &call];
            let [one, other] = both.map(|call| format!("{:?}", call.operation));
            !call.operation.is_harmless()
                && one == other
                && both[0].payload() == both[1].payload()
                && !matches!(call.operation, StoreRequest::Commit { .. })
        };
        assert!(!self.pending.iter().any(is_same), "a call is under way once: {call:?}");
        let (queued, taken) = self.times(&call);
        let starts = later(self.now, queued);
        let pending = Pending { due: later(starts, taken), starts, ticket, call };
        self.pending.push(pending);
        let mut shared = self.shared.borrow_mut();
        shared.hung += u64::from(taken > 5_000);
        Begun::Later
    }

    fn next_done(&mut self) -> Option<StoreCallDone> {
        let pace = self.shared.borrow().pace;
        let is_due = |pending: &Pending| {
            let hung = pending.due > later(self.now, 1 << 30);
            pending.due <= self.now || (hung && !pace.hangs(&pending.call))
        };
        let place = self.pending.iter().position(is_due)?;
        let Pending { ticket, mut call, .. } = self.pending.swap_remove(place);
        self.note(&call);
        let outcome = match &self.behind {
            Some(behind) => perform(&mut *behind.borrow_mut(), &mut call),
            None => perform(&mut self.memory, &mut call),
        };
        Some(StoreCallDone { ticket, call, outcome })
    }

    fn withdraw(&mut self, ticket: WaitTicket) -> Option<StoreCall> {
        let is_it = |pending: &Pending| pending.ticket == ticket && pending.starts > self.now;
        let place = self.pending.iter().position(is_it)?;
        Some(self.pending.swap_remove(place).call)
    }

    fn exports(&self) -> impl Iterator<Item = &str> {
        self.memory.exports()
    }

    fn export_roots(&self) -> Vec<ExportRoot> {
        self.memory.export_roots()
    }

    fn verifier(&self) -> Verifier {
        self.memory.verifier()
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn tidy(&mut self, now: Time) {
        self.now = now;
    }

    fn sink(&self, len: usize) -> Option<stag_pools::Buf> {
        self.memory.sink(len)
    }

    fn pool(&self) -> Option<&stag_pools::Pool> {
        self.memory.pool()
    }
}

/// Statuses that say nothing was done.
pub fn is_refusal(status: Status) -> bool {
    status == Status::Jukebox
}
