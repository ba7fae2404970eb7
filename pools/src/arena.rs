//! One mapping that holds every slot of a pool.
//!
//! Private anonymous memory with an advice for transparent huge pages. It is mapped once and unmapped when the last
//! buffer, extent and pool that refer to it are gone.

use std::{fmt, io, ptr::NonNull};

/// What the kernel backs an arena with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// The kernel took the advice to use transparent huge pages; it uses them where it finds some.
    Transparent,
    /// Pages of the base size (4 KiB on x86-64).
    Base,
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Transparent => "transparent huge pages",
            Self::Base => "base pages",
        })
    }
}

/// A mapping of `len` octets, zero at first.
#[derive(Debug)]
pub(crate) struct Arena {
    base: NonNull<u8>,
    len: usize,
    pages: Pages,
}

/// Arenas start and end on this boundary, so that a huge page can back each part.
const HUGE_PAGE: usize = 2 << 20;

impl Arena {
    /// Maps at least `len` octets. Fails as `mmap(2)` fails, `ENOMEM` above all.
    pub(crate) fn map(len: usize) -> io::Result<Self> {
        let len = len.max(1).checked_next_multiple_of(HUGE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches no memory of ours.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `base` and `len` are the mapping made above; the advice changes no content.
        let advised = unsafe { libc::madvise(base, len, libc::MADV_HUGEPAGE) };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let pages = if advised == 0 { Pages::Transparent } else { Pages::Base };
        Ok(Self { base, len, pages })
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn pages(&self) -> Pages {
        self.pages
    }

    /// The address of octet `offset`; the caller keeps `offset <= len`.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.len, "slots lie inside their arena");
        // SAFETY: `offset <= len` was just checked, so the result lies in the mapping or at its end.
        unsafe { self.base.add(offset) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and nothing refers to it any more: every slot
        // keeps its pool, and so this arena, alive.
        let unmapped = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert_eq!(unmapped, 0, "a whole mapping can be unmapped");
    }
}
