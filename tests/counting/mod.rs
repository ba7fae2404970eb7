//! Counts what a thread asks of the system's allocator, for the tests that say how much a call may
//! allocate, which is nothing, and for the tests that say how much is held.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

/// Allocations and reallocations of this thread so far.
#[allow(dead_code)] // some tests ask for what is held alone
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// Octets that this thread has allocated and not given back; below zero where it gave back those of
/// others.
#[allow(dead_code)] // most tests ask for allocations alone
pub fn live_octets() -> i64 {
    LIVE.get()
}

fn live(more: usize, less: usize) {
    LIVE.set(LIVE.get().wrapping_add_unsigned(more as u64).wrapping_sub_unsigned(less as u64));
}

struct Counting;

// SAFETY: every method hands its arguments unchanged to the system's allocator, which keeps the
// contract; the counters are constant-initialised thread-local memory without a destructor, so that
// touching them never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        live(layout.size(), 0);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    // Left out, it would write zeros: large tables would take all their pages before they are used.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        live(layout.size(), 0);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        live(0, layout.size());
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(address, layout) }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        live(len, layout.size());
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(address, layout, len) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;
