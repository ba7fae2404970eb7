//! Counts what a thread asks of the system's allocator, for the tests that say how much a call may
//! allocate: nothing.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Allocations and reallocations of this thread so far.
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

struct Counting;

// SAFETY: every method hands its arguments unchanged to the system's allocator, which keeps the
// contract; the counter is constant-initialised thread-local memory without a destructor, so that
// touching it never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(address, layout) }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(address, layout, len) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;
