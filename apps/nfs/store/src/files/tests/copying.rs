//! Tests of COPY by helpers, and of the stability after ALLOCATE, DEALLOCATE and CLONE.

use super::*;
use crate::{
    Begun, FilePlace, FileSpan, Procedures4 as _, Store as _, StoreCall, StoreCallDone,
    StoreOutcome, StoreRequest, contract::tickets::WaitTicket,
};
use stag_engine::PeerAddress;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

impl Lab {
    /// Begins a COPY of everything; returns the call's outcome, and true if a helper made it.
    fn copy(&mut self, from: &FileHandle, to: &FileHandle) -> (StoreCallDone, bool) {
        let caller = Caller::trusted(User::Anyone, PeerAddress::Simulated);
        let place = |file: &FileHandle| FilePlace { file: *file, offset: 0 };
        let operation = StoreRequest::Copy { from: place(from), to: place(to), count: 0 };
        let call = StoreCall { caller, operation, room: None, payload: None };
        match self.files.begin(call, WaitTicket(3)) {
            Begun::Done(done) => return (done, false),
            Begun::Refused(call) => panic!("{call:?}"),
            Begun::Later => {}
        }
        let began = Instant::now();
        loop {
            if let Some(done) = self.files.next_done() {
                return (done, true);
            }
            assert!(began.elapsed() < Duration::from_secs(60), "the copy does not end");
            std::thread::yield_now();
        }
    }
}

fn helped() -> Lab {
    let mut lab = Lab::new();
    let helpers = Helpers::start(1).unwrap().remove(0);
    lab.files = Files::open(lab.files.shared(), 0).unwrap().with_helpers(helpers);
    lab
}

#[test]
fn a_long_copy_is_one_call_and_a_helper_makes_it() {
    let mut lab = helped();
    let octets: Vec<u8> = (0..48 * MIB).map(|at| (at / 777) as u8).collect();
    let source = lab.file("f", &octets);
    let target = lab.file("g", b"");
    let before = lab.files.shared().verifier();
    let (done, is_helped) = lab.copy(&source, &target);
    let StoreOutcome::Copied(Ok(copied)) = done.outcome else { panic!("{done:?}") };
    assert!(is_helped);
    assert!(copied.count > 4 * MIB as u64, "one call copied {} octets", copied.count);
    assert_eq!((copied.committed, copied.verifier), (StableHow::Unstable, before));
    assert_eq!(copied.file.after.unwrap().size, copied.count);
    let copy = fs::read(lab.path("g")).unwrap();
    assert!(copy[..] == octets[..copied.count as usize]);
    // The file is marked for the next COMMIT.
    let slot = lab.files.resolve(&target, Intent::Look).unwrap();
    assert!(lab.files.cache.get(slot).unsynced);
    assert_eq!(done.ticket, WaitTicket(3));
}

#[test]
fn a_short_copy_and_a_refused_one_wait_for_no_helper() {
    let mut lab = helped();
    let source = lab.file("f", b"short");
    let target = lab.file("g", b"");
    let (done, is_helped) = lab.copy(&source, &target);
    assert!(matches!(done.outcome, StoreOutcome::Copied(Ok(copied)) if copied.count == 5));
    assert!(!is_helped);
    let (done, is_helped) = lab.copy(&source, &source);
    let StoreOutcome::Copied(Err(failed)) = done.outcome else { panic!("{done:?}") };
    assert_eq!((failed.status, is_helped), (Status::Inval, false));
}

#[test]
fn a_copy_to_a_file_that_is_closed_meanwhile_is_answered() {
    let mut lab = helped();
    let source = lab.file("f", &vec![7; 2 * MIB]);
    let target = lab.file("g", b"");
    let slot = lab.files.resolve(&target, Intent::Look).unwrap();
    let file = lab.files.cache.get(slot).identity.file;
    let place = |file| FilePlace { file, offset: 0 };
    let begun = lab.files.begin_copy(place(source), place(target), 0);
    let ranges::CopyBegun::Owed { work, target, done } = begun else { panic!("it is long") };
    assert_eq!(target, file);
    lab.files.close(slot);
    let copied = work.copy(crate::helpers::content_copy::CopyBudget::HELPER);
    let answer = lab.files.end_copy(target, done, copied).unwrap();
    assert_eq!((answer.count, answer.file.after), (2 * MIB as u64, None));
}

#[test]
fn room_that_is_taken_or_given_back_is_stable_before_the_answer() {
    let mut lab = Lab::with(|config| config.sync_directories = true);
    let handle = lab.file("f", &[7; 8192]);
    let span = FileSpan { offset: 0, len: 4096 };
    let before = lab.files.shared().verifier();
    for takes in [true, false] {
        lab.files.failing_syncs.set(1);
        let done = if takes {
            lab.files.allocate(&handle, span)
        } else {
            lab.files.deallocate(&handle, span)
        };
        assert_eq!(done.unwrap_err().status, Status::Io, "it was not synced");
        assert_eq!(lab.files.failing_syncs.get(), 0);
        assert_ne!(lab.files.shared().verifier(), before);
    }
    lab.files.allocate(&handle, span).unwrap();
    let slot = lab.files.resolve(&handle, Intent::Look).unwrap();
    assert!(!lab.files.cache.get(slot).unsynced, "nothing is owed");
}
