//! Arena: one memory mapping that holds every slot of a pool.
//!
//! It uses the best pages that the host offers ([`Pages`]): reserved huge pages spare the core most
//! of its TLB misses, base pages always work. Only a failure of the last kind of pages is an error.
//! The arena is unmapped when the last buffer, extent and pool that refer to it are gone.

use crate::host::{HUGE_PAGE, HostMemory, MissingPages, NODES_MAX};
use std::{
    alloc::Layout,
    fmt,
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr::NonNull,
};

/// Pages that back an arena, best first: the rungs of the page ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pages {
    /// Reserved 2 MiB pages, in a sealed memory file.
    HugeMemfd,
    /// Reserved 2 MiB pages from `hugepage_rs::alloc`: where memory files are refused.
    HugePrivate,
    /// The kernel took the advice to use transparent huge pages; it uses them where it finds some.
    Transparent,
    /// A sealed memory file in pages of the kernel's choice: shared memory where no huge pages are
    /// reserved.
    Memfd,
    /// Pages of the base size (4 KiB on x86-64).
    Base,
}

impl Pages {
    /// The ladder, from the top.
    const LADDER: [Self; 4] = [Self::HugeMemfd, Self::HugePrivate, Self::Transparent, Self::Base];
    /// The rungs of memory that other processes can map.
    const SHARED: [Self; 2] = [Self::HugeMemfd, Self::Memfd];

    /// Pages that the administrator set aside for mappings like this.
    const fn is_reserved(self) -> bool {
        matches!(self, Self::HugeMemfd | Self::HugePrivate)
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HugeMemfd => "huge pages (memfd)",
            Self::HugePrivate => "huge pages (hugepage-rs)",
            Self::Transparent => "transparent huge pages",
            Self::Memfd => "pages of a memory file",
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
    /// The NUMA node it prefers, where there is more than one.
    node: Option<u32>,
    /// Set if it could fill huge pages and has none reserved.
    _missing: Option<MissingPages>,
    /// File that another process can map to read the arena.
    file: Option<File>,
}

/// Octets of a base page; the kernel rounds up where its pages are larger.
const BASE_PAGE: usize = 4096;

/// Returns the result of the first rung that succeeds, or the error of the last one.
fn first<T>(
    rungs: impl IntoIterator<Item = Pages>,
    mut on: impl FnMut(Pages) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = Err(io::ErrorKind::OutOfMemory.into());
    for rung in rungs {
        last = on(rung);
        if last.is_ok() {
            break;
        }
    }
    last
}

impl Arena {
    /// Maps at least `len` octets near the calling core. Less than a huge page stays on base pages:
    /// it would waste the rest. Fails as `mmap(2)` fails on the last rung, usually with `ENOMEM`.
    pub(crate) fn map(len: usize) -> io::Result<Self> {
        Self::climb(HostMemory::here(), len, &Pages::LADDER)
    }

    /// The same in a file that other processes may map read-only.
    pub(crate) fn share(len: usize) -> io::Result<Self> {
        Self::climb(HostMemory::here(), len, &Pages::SHARED)
    }

    fn climb(host: &HostMemory, len: usize, ladder: &[Pages]) -> io::Result<Self> {
        let node = host.node();
        let len =
            len.max(1).checked_next_multiple_of(BASE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        if len < HUGE_PAGE {
            let last = ladder.last().expect("a ladder has rungs");
            return Self::on(*last, len, node);
        }
        let rungs = ladder.iter().copied().filter(|rung| host.offers(*rung, len, node));
        let mut arena = first(rungs, |rung| Self::on(rung, len, node))?;
        if !arena.pages.is_reserved() {
            arena._missing = Some(MissingPages::count(len.div_ceil(HUGE_PAGE), arena.node));
        }
        Ok(arena)
    }

    /// Maps at least `len` octets on this rung or not at all. Reserved pages are allocated at once,
    /// because a missing one would be a SIGBUS later; memory of the other rungs stays untouched
    /// until it is used. A child process gets no reserved pages: it would share the file's pages,
    /// and need more as soon as it writes to private ones.
    fn on(rung: Pages, len: usize, node: Option<u32>) -> io::Result<Self> {
        let huge = len.checked_next_multiple_of(HUGE_PAGE).ok_or(io::ErrorKind::OutOfMemory);
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        match rung {
            Pages::HugeMemfd => {
                let file = memory_file(huge?, libc::MFD_HUGETLB | libc::MFD_HUGE_2MB)?;
                let mut arena = Self::mmap(rung, huge?, libc::MAP_SHARED, Some(&file))?.near(node);
                // Before Linux 5.14 the file can be filled, although not near a node of our choice.
                arena.touch().or_else(|_| fill(&file, arena.len))?;
                arena.advise(libc::MADV_DONTFORK)?;
                arena.file = Some(keep_readers_out_of_writing(file)?);
                Ok(arena)
            }
            Pages::Memfd => {
                let file = memory_file(len, 0)?;
                let mut arena = Self::mmap(rung, len, libc::MAP_SHARED, Some(&file))?.near(node);
                // Where the administrator lets memory files have them.
                let _ = arena.advise(libc::MADV_HUGEPAGE);
                arena.advise(libc::MADV_DONTFORK)?;
                arena.file = Some(keep_readers_out_of_writing(file)?);
                Ok(arena)
            }
            Pages::HugePrivate => {
                let arena = Self::hugepage_rs(huge?)?.near(node);
                arena.touch()?;
                arena.advise(libc::MADV_DONTFORK)?;
                Ok(arena)
            }
            Pages::Transparent => {
                let arena = Self::mmap(rung, huge?, anonymous, None)?.near(node);
                arena.advise(libc::MADV_HUGEPAGE)?;
                Ok(arena)
            }
            Pages::Base => Ok(Self::mmap(rung, len, anonymous, None)?.near(node)),
        }
    }

    fn mmap(pages: Pages, len: usize, flags: libc::c_int, file: Option<&File>) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let fd = file.map_or(-1, AsRawFd::as_raw_fd);
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours; a
        // file was made for it alone and cannot shrink.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len, pages, node: None, _missing: None, file: None })
    }

    fn hugepage_rs(len: usize) -> io::Result<Self> {
        assert!(len > 0, "`map` rounds up to a whole page");
        let layout = layout(len)?;
        // SAFETY: the layout's length was just checked not to be zero.
        let base = unsafe { hugepage_rs::alloc(layout) };
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len, pages: Pages::HugePrivate, node: None, _missing: None, file: None })
    }

    /// Prefers the memory of `node` for all pages not touched yet. A preference, not a binding: a
    /// full node would otherwise kill the process later. If the kernel refuses, its default policy
    /// stays.
    fn near(mut self, node: Option<u32>) -> Self {
        let Some(mask) = node.and_then(|node| 1_u64.checked_shl(node)) else { return self };
        let (base, mode) = (self.base.as_ptr(), libc::c_long::from(libc::MPOL_PREFERRED));
        let bits = libc::c_ulong::from(NODES_MAX) + 1;
        // SAFETY: the range is the mapping of `self`, the mask is as long as `bits` says (mbind(2)
        // does not count the last one), every argument is as wide as the kernel reads it, and a
        // policy changes no content.
        let failed = unsafe {
            libc::syscall(libc::SYS_mbind, base, self.len, mode, &raw const mask, bits, 0)
        };
        self.node = node.filter(|_| failed == 0);
        self
    }

    /// Has the kernel find every page.
    fn touch(&self) -> io::Result<()> {
        self.advise(libc::MADV_POPULATE_WRITE)
    }

    fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        let keep_content = [libc::MADV_HUGEPAGE, libc::MADV_POPULATE_WRITE, libc::MADV_DONTFORK];
        assert!(keep_content.contains(&advice), "other advices may drop what is written");
        // SAFETY: the range is the mapping of `self`; the advice is one that changes no content.
        let failed = unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, advice) };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn pages(&self) -> Pages {
        self.pages
    }

    /// Returns the file that another process maps to read the arena, if the arena is in a file.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    pub(crate) const fn node(&self) -> Option<u32> {
        self.node
    }

    /// The address of octet `offset`; the caller keeps `offset <= len`.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.len, "slots lie inside their arena");
        // SAFETY: `offset <= len` was just checked, so the result is in the mapping or at its end.
        unsafe { self.base.add(offset) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.pages == Pages::HugePrivate {
            let layout = layout(self.len).expect("`hugepage_rs` made the same layout");
            // SAFETY: `hugepage_rs::alloc` gave this address for this layout, and nothing refers to
            // it any more: every slot keeps its pool, and so this arena, alive.
            return unsafe { hugepage_rs::dealloc(self.base.as_ptr(), layout) };
        }
        // SAFETY: the mapping was made by `mmap` with this length, and nothing refers to it any
        // more, as above.
        let unmapped = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert_eq!(unmapped, 0, "a whole mapping can be unmapped");
    }
}

fn layout(len: usize) -> io::Result<Layout> {
    Layout::from_size_align(len, HUGE_PAGE).map_err(|_| io::ErrorKind::OutOfMemory.into())
}

/// Makes a file of `len` octets, sealed at that length. A process that opens it under `/proc`, or
/// receives it, could otherwise truncate memory that buffers use.
fn memory_file(len: usize, pages: libc::c_uint) -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | pages;
    // SAFETY: the name is a string that ends with a zero octet; the call makes a descriptor and
    // touches nothing else.
    let fd = unsafe { libc::memfd_create(c"stag-pool".as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was made above, is open, and has no other owner.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.set_len(u64::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?)?;
    seal(&file, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)?;
    Ok(file)
}

/// Seals the file so that new mappings can only read it; the existing mapping stays writable. On
/// Linux before 5.1, which lacks this seal, the file is not shared.
fn keep_readers_out_of_writing(file: File) -> io::Result<File> {
    seal(&file, libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL)?;
    Ok(file)
}

fn seal(file: &File, seals: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open, and this command takes an integer.
    let failed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Finds every page of the file, without touching it.
fn fill(file: &File, len: usize) -> io::Result<()> {
    let len = libc::off_t::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
    // SAFETY: the descriptor is open; the call touches no memory of ours.
    let failed = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, len) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests;
