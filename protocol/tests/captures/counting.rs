//! Counts the allocations of a thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // The counter of a thread that ends is gone, and is no longer read.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every method hands its arguments on to the system's allocator, which keeps the trait's
// promises; the counter neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the trait's promises about `layout`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller says that `at` came from here, that is from `System`, with this
        // `layout`.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        count();
        // SAFETY: as for `dealloc`; the caller keeps the trait's promises about `len`.
        unsafe { System.realloc(at, layout, len) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the result of `work`, and the number of allocations that this thread made meanwhile.
pub fn allocations<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = ALLOCATIONS.get();
    let result = work();
    (result, ALLOCATIONS.get() - before)
}

#[test]
fn every_allocation_counts() {
    let (octets, count) = allocations(|| {
        let mut octets = vec![1_u8; 8];
        octets.reserve_exact(4096);
        Box::new(octets)
    });
    assert_eq!((octets.len(), count), (8, 3));
    assert_eq!(allocations(|| octets[3]).1, 0);
}
