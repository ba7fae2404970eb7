//! Failures of write-back, asked for without waiting: `sync_file_range(2)`.

use std::os::fd::{AsFd, AsRawFd};

/// Behind every octet that a file system has: nothing there is written back, so there is nothing to
/// wait for.
const BEHIND_ALL: libc::off64_t = libc::off64_t::MAX - 4096;

/// Tells of a write-back of the file's data that failed since this descriptor was opened, or last
/// told of one.
///
/// # Errors
/// That of the write-back, each once for each descriptor, as `fsync(2)` would; those of a
/// descriptor for no content.
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
    use rustix::io::Errno;

    #[test]
    fn a_file_whose_data_is_being_kept_has_no_failure() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(failure(&file), Ok(()));
        assert_eq!(rustix::io::pwrite(&file, &[7; 10_000], 0), Ok(10_000));
        assert_eq!(failure(&file), Ok(()));
    }

    #[test]
    fn what_has_no_content_cannot_be_asked() {
        let path =
            rustix::fs::open("/", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        assert_eq!(failure(&path), Err(Errno::BADF));
    }
}
