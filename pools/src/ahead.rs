//! Prefetch hints: cache lines requested before they are needed.

/// Octets of a cache line on all supported machines.
const LINE: usize = 64;

/// Prefetches the cache line at `address`. This is a hint: it changes nothing, and any address is
/// allowed.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch loads nothing that the program sees, and faults nowhere.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Prefetches the cache lines from the start of `value` to its octet `last`, which may be past its
/// end. Call it before another access that takes as long as memory does.
#[inline(always)]
pub fn prefetch_lines<T>(value: &T, last: usize) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    for line in (0..=last).step_by(LINE) {
        prefetch(start.wrapping_add(line));
    }
    prefetch(start.wrapping_add(last)); // the line of the last octet, if the start is amid a line
}
