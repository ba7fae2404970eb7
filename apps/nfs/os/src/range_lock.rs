//! Byte range locks that belong to an open file description: `fcntl(F_OFD_SETLK)`. They conflict
//! with locks of other descriptions, and with the POSIX locks of every process. They end with the
//! last descriptor of the description, but not when another descriptor of the file is closed.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::{Errno, Result};

/// Bytes of a file, both ends included. No lock exists past the largest offset of Linux (2^63 - 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockedOctets {
    /// Offset of the first byte.
    pub first: u64,
    /// Offset of the last byte; all ones = to the end, however long the file gets.
    pub last: u64,
}

/// A conflicting lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundLock {
    /// Its bytes.
    pub octets: LockedOctets,
    /// True for a write lock.
    pub exclusive: bool,
}

/// Sets a write lock (`Some(true)`), a read lock, or none on the bytes, without waiting. This
/// replaces the description's own lock on them.
///
/// # Errors
/// [`Errno::AGAIN`] or [`Errno::ACCESS`] for a conflicting lock; [`Errno::BADF`] when the
/// descriptor was not opened for the protected access, others from the file system.
pub fn set(file: impl AsFd, octets: LockedOctets, lock: Option<bool>) -> Result<()> {
    let Some(mut asked) = flock(octets, lock) else { return Ok(()) };
    call(file, libc::F_OFD_SETLK, &mut asked)
}

/// Looks for another owner's lock that would conflict with a write lock or a read lock on the
/// bytes.
///
/// # Errors
/// The file system's error.
pub fn find(file: impl AsFd, octets: LockedOctets, exclusive: bool) -> Result<Option<FoundLock>> {
    let Some(mut asked) = flock(octets, Some(exclusive)) else { return Ok(None) };
    call(file, libc::F_OFD_GETLK, &mut asked)?;
    if i32::from(asked.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    let first = u64::try_from(asked.l_start).unwrap_or(0);
    let last = match u64::try_from(asked.l_len) {
        Ok(0) | Err(_) => u64::MAX,
        Ok(len) => first.saturating_add(len - 1),
    };
    let exclusive = i32::from(asked.l_type) == libc::F_WRLCK;
    Ok(Some(FoundLock { octets: LockedOctets { first, last }, exclusive }))
}

/// The structure of the call; none for bytes past the largest offset.
fn flock(octets: LockedOctets, lock: Option<bool>) -> Option<libc::flock> {
    const LARGEST: u64 = i64::MAX.cast_unsigned();
    let LockedOctets { first, last } = octets;
    let kind = match lock {
        Some(true) => libc::F_WRLCK,
        Some(false) => libc::F_RDLCK,
        None => libc::F_UNLCK,
    };
    // Length 0 means to the end.
    let len = if last >= LARGEST { 0 } else { last.checked_sub(first)?.checked_add(1)? };
    Some(libc::flock {
        l_type: libc::c_short::try_from(kind).ok()?,
        l_whence: libc::c_short::try_from(libc::SEEK_SET).ok()?,
        l_start: i64::try_from(first).ok()?,
        l_len: i64::try_from(len).ok()?,
        // Has to be 0 for locks of descriptions.
        l_pid: 0,
    })
}

fn call(file: impl AsFd, command: libc::c_int, lock: &mut libc::flock) -> Result<()> {
    // SAFETY: the call reads and writes the structure, which is ours until it returns, and touches
    // no other memory; the descriptor is open because it is borrowed.
    let returned = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, &raw mut *lock) };
    crate::returned(returned.into()).map(drop)
}

/// Returns true for the errors that report a conflicting lock.
pub const fn is_conflict(error: Errno) -> bool {
    matches!(error, Errno::AGAIN | Errno::ACCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, os::fd::OwnedFd};

    const ALL: LockedOctets = LockedOctets { first: 0, last: u64::MAX };

    fn octets(first: u64, last: u64) -> LockedOctets {
        LockedOctets { first, last }
    }

    /// Two descriptions of one file, which conflict like those of two processes.
    fn both() -> (OwnedFd, OwnedFd, tempfile::NamedTempFile) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(file.path()).unwrap().into();
        (open(), open(), file)
    }

    #[test]
    fn a_lock_of_one_description_is_in_the_way_of_another_s() {
        let (one, other, _file) = both();
        set(&one, octets(10, 19), Some(true)).unwrap();
        let refused = set(&other, octets(19, 30), Some(false)).unwrap_err();
        assert!(is_conflict(refused), "{refused}");
        let found = find(&other, octets(0, u64::MAX), false).unwrap();
        assert_eq!(found, Some(FoundLock { octets: octets(10, 19), exclusive: true }));
        assert_eq!(find(&one, ALL, true).unwrap(), None, "one's own is in nobody's way");
        set(&other, octets(20, u64::MAX), Some(false)).unwrap();
        let found = find(&one, ALL, true).unwrap();
        assert_eq!(found, Some(FoundLock { octets: octets(20, u64::MAX), exclusive: false }));
        set(&one, octets(10, 14), None).unwrap();
        set(&other, octets(0, 14), Some(true)).unwrap();
    }

    #[test]
    fn a_lock_goes_with_its_description_and_with_no_other_descriptor() {
        let (one, other, file) = both();
        set(&one, ALL, Some(true)).unwrap();
        drop(File::open(file.path()).unwrap());
        assert!(is_conflict(set(&other, ALL, Some(true)).unwrap_err()));
        drop(one);
        set(&other, ALL, Some(true)).unwrap();
    }

    #[test]
    fn octets_behind_the_largest_offset_are_locked_by_nobody() {
        let (one, other, _file) = both();
        for first in [1 << 63, u64::MAX] {
            set(&one, octets(first, u64::MAX), Some(true)).unwrap();
        }
        assert_eq!(find(&other, ALL, true).unwrap(), None);
        set(&one, octets((1 << 63) - 1, u64::MAX), Some(true)).unwrap();
        assert!(find(&other, ALL, true).unwrap().is_some());
    }

    #[test]
    fn a_write_lock_needs_a_file_that_is_open_for_writing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let reader = File::open(file.path()).unwrap();
        assert_eq!(set(&reader, ALL, Some(true)), Err(Errno::BADF));
        set(&reader, ALL, Some(false)).unwrap();
    }
}
