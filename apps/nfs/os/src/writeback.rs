//! Write-back of a file's data without waiting for it (`sync_file_range(2)`): starting it early,
//! and querying its failures.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

/// Past every byte that a file system has: nothing there is written back, so there is nothing to
/// wait for.
const BEHIND_ALL: libc::off64_t = libc::off64_t::MAX - 4096;

/// Starts write-back of the changed bytes among the `len` from `at` on, and does not wait for the
/// disk. The next sync of the file reports a failure.
///
/// # Errors
/// Those of a span that no file has, and of a descriptor without content.
pub fn begin(file: impl AsFd, at: u64, len: u64) -> rustix::io::Result<()> {
    let offset = |octets: u64| libc::off64_t::try_from(octets).map_err(|_| Errno::INVAL);
    let (file, at, len) = (file.as_fd().as_raw_fd(), offset(at)?, offset(len)?);
    // SAFETY: the call takes numbers and touches no memory of ours; the descriptor is open because
    // it is borrowed.
    let returned = unsafe { libc::sync_file_range(file, at, len, libc::SYNC_FILE_RANGE_WRITE) };
    crate::returned(returned.into()).map(drop)
}

/// Reports a write-back of the file's data that failed since this descriptor was opened, or last
/// reported a failure.
///
/// # Errors
/// That of the write-back, each once per descriptor, as with `fsync(2)`; those of a descriptor
/// without content.
pub fn failure(file: impl AsFd) -> rustix::io::Result<()> {
    let file = file.as_fd().as_raw_fd();
    // SAFETY: the call takes numbers and touches no memory of ours; the descriptor is open because
    // it is borrowed.
    let returned =
        unsafe { libc::sync_file_range(file, BEHIND_ALL, 1, libc::SYNC_FILE_RANGE_WAIT_BEFORE) };
    crate::returned(returned.into()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_whose_data_is_being_kept_has_no_failure() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(failure(&file), Ok(()));
        assert_eq!(rustix::io::pwrite(&file, &[7; 10_000], 0), Ok(10_000));
        assert_eq!(failure(&file), Ok(()));
    }

    #[test]
    fn write_back_is_begun_for_what_a_file_has_and_has_not() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(rustix::io::pwrite(&file, &[7; 10_000], 0), Ok(10_000));
        assert_eq!(begin(&file, 4_000, 6_000), Ok(()));
        assert_eq!(begin(&file, 1 << 40, 1), Ok(()));
        assert_eq!(begin(&file, 1 << 63, 1), Err(Errno::INVAL));
        assert_eq!(failure(&file), Ok(()));
    }

    #[test]
    fn what_has_no_content_cannot_be_asked() {
        let path =
            rustix::fs::open("/", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        assert_eq!(failure(&path), Err(Errno::BADF));
        assert_eq!(begin(&path, 0, 1), Err(Errno::BADF));
    }
}
