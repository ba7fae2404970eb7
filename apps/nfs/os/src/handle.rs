//! The kernel's own file handles: `name_to_handle_at(2)`, `open_by_handle_at(2)`.
//!
//! A handle names an inode of a file system and, by the inode's generation, no later file with the
//! same number. It stays valid over renames, restarts and reboots. Opening handles gives access to
//! any file of the file system, so it needs CAP_DAC_READ_SEARCH, and a handle from an untrusted
//! source must be authenticated first.
//!
//! Lengths on file systems (the handle without its parent): ext4 and f2fs 8 bytes, XFS and tmpfs
//! 12, btrfs 20.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::path::Arg;

/// Bytes of the longest supported handle.
const MAX: usize = 32;

/// A kernel handle, which names one file of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KernelHandle {
    kind: u8,
    len: u8,
    octets: [u8; MAX],
}

impl core::fmt::Debug for KernelHandle {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "KernelHandle({:#x}, {:02x?})", self.kind, self.octets())
    }
}

/// `struct file_handle`, followed by room for the handle.
#[repr(C)]
struct RawHandle {
    handle_bytes: libc::c_uint,
    handle_type: libc::c_int,
    f_handle: [u8; MAX],
}

const LEN_MAX: libc::c_uint = MAX as libc::c_uint;

impl KernelHandle {
    /// Bytes of the longest supported handle.
    pub const MAX: usize = MAX;

    /// A handle from its parts; `None` when it is longer than [`KernelHandle::MAX`].
    pub fn new(kind: u8, octets: &[u8]) -> Option<Self> {
        let mut room = [0; MAX];
        room.get_mut(..octets.len())?.copy_from_slice(octets);
        Some(Self { kind, len: u8::try_from(octets.len()).ok()?, octets: room })
    }

    /// Returns the file system's number for this kind of handle.
    pub fn kind(&self) -> u8 {
        self.kind
    }

    /// Returns the file system's bytes.
    pub fn octets(&self) -> &[u8] {
        self.octets
            .get(..usize::from(self.len))
            .expect("the length was checked when the handle was made")
    }

    /// The handle of an open file, opened by path only or not.
    ///
    /// # Errors
    ///
    /// [`Errno::OPNOTSUPP`] when its file system has none, [`Errno::OVERFLOW`] when they do not fit
    /// [`KernelHandle`].
    pub fn of(file: impl AsFd) -> rustix::io::Result<Self> {
        name_to_handle(file, c"", libc::AT_EMPTY_PATH)
    }

    /// The handle of an entry of a directory; of a symbolic link itself, not of its target.
    ///
    /// # Errors
    /// As in [`KernelHandle::of`], and those of a lookup by the thread's user.
    pub fn at(directory: impl AsFd, name: &[u8]) -> rustix::io::Result<Self> {
        name.into_with_c_str(|name| name_to_handle(directory, name, 0))
    }

    /// Opens the file. `mount` is any file of its file system that is not opened by path only; the
    /// result is on that mount.
    ///
    /// # Errors
    ///
    /// [`Errno::STALE`] when the file is gone or never was, [`Errno::PERM`] without
    /// CAP_DAC_READ_SEARCH, and those of an open.
    pub fn open(&self, mount: impl AsFd, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let mut handle = RawHandle {
            handle_bytes: self.len.into(),
            handle_type: self.kind.into(),
            f_handle: self.octets,
        };
        let mount = mount.as_fd().as_raw_fd();
        let flags = (flags | OFlags::CLOEXEC).bits();
        // SAFETY: `handle` is a `struct file_handle` with at least `handle_bytes` octets after it,
        // and lives through the call; the descriptor is open because it is borrowed.
        let opened =
            unsafe { libc::syscall(libc::SYS_open_by_handle_at, mount, &raw mut handle, flags) };
        let fd = i32::try_from(crate::returned(opened)?).expect("a descriptor is an int");
        // SAFETY: the kernel just made this descriptor for us, and no other code knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

fn name_to_handle(
    directory: impl AsFd,
    name: &CStr,
    flags: libc::c_int,
) -> rustix::io::Result<KernelHandle> {
    let mut handle = RawHandle { handle_bytes: LEN_MAX, handle_type: 0, f_handle: [0; MAX] };
    let mut mount_id: libc::c_int = 0;
    let (directory, name) = (directory.as_fd().as_raw_fd(), name.as_ptr());
    // SAFETY: `handle` has room for the `handle_bytes` octets that it announces, `mount_id` for an
    // int, `name` ends with a zero; all live through the call.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            directory,
            name,
            &raw mut handle,
            &raw mut mount_id,
            flags,
        )
    };
    crate::returned(outcome)?;
    let octets =
        usize::try_from(handle.handle_bytes).ok().and_then(|len| handle.f_handle.get(..len));
    let kind = u8::try_from(handle.handle_type).ok();
    let handle = kind.zip(octets).and_then(|(kind, octets)| KernelHandle::new(kind, octets));
    handle.ok_or(Errno::OVERFLOW)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, openat, stat};
    use std::fs::File;

    /// The mount of the temporary directory; none when this process may not open by handle.
    fn mount(at: &std::path::Path) -> Option<File> {
        let mount = File::open(at).unwrap();
        match KernelHandle::of(&mount).and_then(|handle| handle.open(&mount, OFlags::PATH)) {
            Ok(_) => Some(mount),
            Err(error) => {
                eprintln!("skipped: cannot open by handle here: {error}");
                None
            }
        }
    }

    #[test]
    fn a_handle_opens_the_file_whatever_its_name_until_it_is_gone() {
        let home = tempfile::tempdir().unwrap();
        let Some(mount) = mount(home.path()) else { return };
        let (old, new) = (home.path().join("old"), home.path().join("new"));
        std::fs::write(&old, b"x").unwrap();
        let handle = KernelHandle::at(&mount, b"old").unwrap();
        assert_eq!(KernelHandle::of(File::open(&old).unwrap()).unwrap(), handle);
        std::fs::rename(&old, &new).unwrap();
        let opened = handle.open(&mount, OFlags::RDONLY).unwrap();
        assert_eq!(rustix::fs::fstat(&opened).unwrap().st_ino, stat(&new).unwrap().st_ino);
        drop(opened);
        std::fs::remove_file(&new).unwrap();
        assert_eq!(handle.open(&mount, OFlags::PATH).unwrap_err(), Errno::STALE);
    }

    #[test]
    fn a_symbolic_link_has_a_handle_of_its_own() {
        let home = tempfile::tempdir().unwrap();
        let Some(mount) = mount(home.path()) else { return };
        std::os::unix::fs::symlink("nowhere", home.path().join("l")).unwrap();
        let handle = KernelHandle::at(&mount, b"l").unwrap();
        let link = handle.open(&mount, OFlags::PATH | OFlags::NOFOLLOW).unwrap();
        assert_eq!(rustix::fs::readlinkat(&link, "", Vec::new()).unwrap().as_bytes(), b"nowhere");
    }

    #[test]
    fn a_handle_is_made_of_at_most_32_octets() {
        for len in 0..=KernelHandle::MAX {
            let octets = vec![7; len];
            let handle = KernelHandle::new(1, &octets).unwrap();
            assert_eq!((handle.kind(), handle.octets()), (1, octets.as_slice()));
        }
        assert_eq!(KernelHandle::new(1, &[7; KernelHandle::MAX + 1]), None);
    }

    #[test]
    fn what_cannot_be_opened_is_an_error() {
        let home = tempfile::tempdir().unwrap();
        let root = File::open(home.path()).unwrap();
        assert_eq!(KernelHandle::at(&root, b"none").unwrap_err(), Errno::NOENT);
        assert_eq!(KernelHandle::at(&root, &[b'x'; 256]).unwrap_err(), Errno::NAMETOOLONG);
        assert_eq!(KernelHandle::at(&root, b"a\0b").unwrap_err(), Errno::INVAL);
        let proc = openat(CWD, "/proc/self/status", OFlags::PATH, Mode::empty()).unwrap();
        assert_eq!(KernelHandle::of(&proc).unwrap_err(), Errno::OPNOTSUPP);
        let Some(mount) = mount(home.path()) else { return };
        for (kind, octets) in [(1, vec![0xff; 8]), (0xfe, vec![1; 32]), (1, vec![])] {
            let forged = KernelHandle::new(kind, &octets).unwrap();
            assert!(forged.open(&mount, OFlags::PATH).is_err(), "{forged:?}");
        }
    }
}
