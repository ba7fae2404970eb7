//! A store in memory that outlives its servers. Its calls take time. Calls in progress when a
//! server is killed are carried out, or not.

use super::{
    ledger::Deed,
    scene::{Looks, Scene, Stage},
};
use fastrand::Rng;
use stag_nfs::Gateway;
use stag_nfs_store::{
    Begun, Effort, ExportRoot, Procedures as _, Store, StoreCall, StoreCallDone, StoreOutcome,
    StoreRequest, User, WaitTicket,
    memory::{Memory, MemoryConfig, MemoryExport},
    perform,
};
use stag_protocol::nfs::v3::{FileHandle, Verifier};
use stag_verbs::Time;
use std::{
    cell::RefCell,
    io,
    rc::{Rc, Weak},
    time::Duration,
};

/// User of the first client; the others follow.
pub const FIRST_UID: u32 = 1_000;

struct Pending {
    due: Time,
    ticket: WaitTicket,
    call: StoreCall,
    /// The store whose shard asked for it.
    by: u64,
}

/// The files that several stores serve.
pub struct Disk {
    memory: RefCell<Memory>,
    pending: RefCell<Vec<Pending>>,
    stores: RefCell<u64>,
    scene: RefCell<Weak<Scene>>,
}

fn memory() -> Memory {
    let export = MemoryExport { name: "slow".to_owned(), read_only: false, copy_of: None };
    Memory::new(&MemoryConfig::new(vec![export], 1 << 20), &mut |_| {}).unwrap()
}

impl Disk {
    /// The scene of one, and stores of it.
    pub fn stage(seed: u64) -> Stage<SlowDisk> {
        let mut memory = memory();
        let directory = memory.mount(b"/slow").unwrap();
        let disk = Rc::new(Self {
            memory: RefCell::new(memory),
            pending: RefCell::default(),
            stores: RefCell::default(),
            scene: RefCell::default(),
        });
        let (looked, due) = (Rc::clone(&disk), Rc::clone(&disk));
        let look =
            move |file: &FileHandle| Looks::of(&mut *looked.memory.borrow_mut(), &directory, file);
        let (ledger, look) = (RefCell::default(), Box::new(look));
        let scene = Rc::new(Scene { ledger, directory, look, is_at_once: false });
        *disk.scene.borrow_mut() = Rc::downgrade(&scene);
        let build = move || [0, 1].map(|_| Gateway::new(SlowDisk::new(&disk, seed)));
        Stage { scene, build: Box::new(build), next_due: Box::new(move || due.next_due()) }
    }

    /// The time at which the next call is over.
    fn next_due(&self) -> Option<Time> {
        self.pending.borrow().iter().map(|pending| pending.due).min()
    }

    fn lookup(&self, directory: &FileHandle, name: &[u8]) -> Option<FileHandle> {
        self.memory.borrow_mut().lookup(directory, name).ok().map(|found| found.handle)
    }

    /// Files that an operation changes, and how. Reads are left out: they may end when their caller
    /// waits no more.
    fn deeds(&self, operation: &StoreRequest) -> Vec<(FileHandle, Deed)> {
        let named = |at: &FileHandle, name: &[u8]| self.lookup(at, name);
        match operation {
            StoreRequest::Write { file, .. } => vec![(*file, Deed::Write)],
            StoreRequest::SetAttr { file, set, .. } => {
                let deed = if set.size.is_some() { Deed::Write } else { Deed::Change };
                vec![(*file, deed)]
            }
            StoreRequest::Link { file, .. } => vec![(*file, Deed::Change)],
            StoreRequest::Remove { directory, name } => named(directory, name.octets())
                .map(|file| (file, Deed::Change))
                .into_iter()
                .collect(),
            StoreRequest::Rename { from, to } => {
                let files = [from, to].map(|at| named(&at.directory, at.name.octets()));
                let is_same = files[0] == files[1];
                let files = files.into_iter().flatten().filter(|_| !is_same);
                files.map(|file| (file, Deed::Change)).collect()
            }
            _ => vec![],
        }
    }

    /// Returns true for a change of a client that is to take longer than its lease.
    fn hangs(&self, call: &StoreCall) -> bool {
        let scene = self.scene.borrow().upgrade();
        let is_change = !call.operation.is_harmless();
        scene.is_some_and(|it| is_change && it.ledger.borrow_mut().hanging.remove(&who(call)))
    }

    fn carry_out(&self, call: &mut StoreCall) -> StoreOutcome {
        let who = who(call);
        let deeds = self.deeds(&call.operation);
        let outcome = perform(&mut *self.memory.borrow_mut(), call);
        let is_done = match &outcome {
            StoreOutcome::Set(done) => done.is_ok(),
            StoreOutcome::Changed(done) => done.is_ok(),
            StoreOutcome::Written(done) => done.is_ok(),
            StoreOutcome::Renamed(done) => done.is_ok(),
            StoreOutcome::Linked(done) => done.is_ok(),
            _ => false,
        };
        let scene = self.scene.borrow().upgrade();
        let Some(scene) = scene else { return outcome };
        for (file, deed) in deeds.iter().filter(|_| is_done) {
            scene.ledger.borrow_mut().note(who, file, *deed);
        }
        outcome
    }
}

/// The client that a call is made for.
fn who(call: &StoreCall) -> usize {
    let User::Unix { uid, .. } = call.caller.user else { panic!("{:?}", call.caller) };
    uid.wrapping_sub(FIRST_UID) as usize
}

/// The store of one shard.
pub struct SlowDisk {
    own: Memory,
    disk: Rc<Disk>,
    number: u64,
    dice: Rng,
    now: Time,
}

impl SlowDisk {
    pub fn new(disk: &Rc<Disk>, seed: u64) -> Self {
        let number = disk.stores.replace_with(|number| *number + 1);
        let dice = Rng::with_seed(seed.wrapping_add(number));
        Self { own: memory(), disk: Rc::clone(disk), number, dice, now: Time(0) }
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let number = self.number;
        let all = self.disk.pending.borrow_mut().extract_if(.., |it| it.by == number).collect();
        let all: Vec<_> = all;
        for mut pending in all {
            if self.dice.bool() && !pending.call.operation.is_harmless() {
                self.disk.carry_out(&mut pending.call);
            }
        }
    }
}

impl Store for SlowDisk {
    type Now = Memory;

    const MAY_WAIT: bool = true;

    fn now(&mut self) -> &mut Memory {
        &mut self.own
    }

    fn waits(&self, _object: &FileHandle, _effort: Effort) -> bool {
        true
    }

    fn begin(&mut self, call: StoreCall, ticket: WaitTicket) -> Begun {
        if self.dice.usize(..200) == 0 {
            return Begun::Refused(call);
        }
        let taken = [0, 0, 0, 0, 0, 1, 1, 5, 30, 1_000][self.dice.usize(..10)];
        // Conflicts arise with changes that take long.
        let taken = if call.operation.is_harmless() { taken / 10 } else { taken };
        let hangs = [0, 0, 0, 8_000, 45_000][self.dice.usize(..5)];
        let taken = if hangs > 0 && self.dice.usize(..120) == 0 { hangs } else { taken };
        let taken = if self.disk.hangs(&call) { 40_000 } else { taken };
        let due = self.now + Duration::from_millis(taken);
        self.disk.pending.borrow_mut().push(Pending { due, ticket, call, by: self.number });
        Begun::Later
    }

    fn next_done(&mut self) -> Option<StoreCallDone> {
        let mut pending = self.disk.pending.borrow_mut();
        let place = pending.iter().position(|it| it.by == self.number && it.due <= self.now)?;
        let Pending { ticket, mut call, .. } = pending.swap_remove(place);
        drop(pending);
        let outcome = self.disk.carry_out(&mut call);
        Some(StoreCallDone { ticket, call, outcome })
    }

    fn withdraw(&mut self, _ticket: WaitTicket) -> Option<StoreCall> {
        None
    }

    fn exports(&self) -> impl Iterator<Item = &str> {
        self.own.exports()
    }

    fn export_roots(&self) -> Vec<ExportRoot> {
        self.own.export_roots()
    }

    fn verifier(&self) -> Verifier {
        self.own.verifier()
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn tidy(&mut self, now: Time) {
        self.now = now;
    }

    fn sink(&self, len: usize) -> Option<stag_pools::Buf> {
        self.own.sink(len)
    }

    fn pool(&self) -> Option<&stag_pools::Pool> {
        self.own.pool()
    }
}
