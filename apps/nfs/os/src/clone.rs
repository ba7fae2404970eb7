//! Sharing of a file's blocks with another without a copy: `ioctl(FICLONERANGE)`.

use std::os::fd::{AsFd, AsRawFd};

/// Makes `to..to + len` of `target` share the blocks of `source` from `from` on; a `len` of 0 means
/// all to the source's end. Both files must be on one file system.
///
/// # Errors
/// That of the call: [`rustix::io::Errno::OPNOTSUPP`] or [`rustix::io::Errno::NOTTY`] if the file
/// system cannot, [`rustix::io::Errno::INVAL`] for places that do not match its blocks.
pub fn clone_range(
    source: impl AsFd,
    from: u64,
    len: u64,
    target: impl AsFd,
    to: u64,
) -> rustix::io::Result<()> {
    let range = libc::file_clone_range {
        src_fd: source.as_fd().as_raw_fd().into(),
        src_offset: from,
        src_length: len,
        dest_offset: to,
    };
    let target = target.as_fd().as_raw_fd();
    // SAFETY: the call reads the structure, which lives until it returns, and touches no other
    // memory of ours; both descriptors are open because they are borrowed.
    let returned = unsafe { libc::ioctl(target, libc::FICLONERANGE, &raw const range) };
    crate::returned(returned.into()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::{Errno, pread, pwrite};

    #[test]
    fn octets_are_cloned_or_the_file_system_says_that_it_cannot() {
        let [source, target] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        pwrite(&source, &[7; 8192], 0).unwrap();
        match clone_range(&source, 4096, 4096, &target, 0) {
            Ok(()) => {
                let mut octets = [0; 8192];
                assert_eq!(pread(&target, &mut octets, 0), Ok(4096));
                assert_eq!(octets[..4096], [7; 4096]);
            }
            Err(error) => assert!(matches!(error, Errno::OPNOTSUPP | Errno::NOTTY), "{error}"),
        }
    }

    #[test]
    fn what_has_no_content_cannot_be_cloned() {
        let path =
            rustix::fs::open("/", rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        let file = tempfile::tempfile().unwrap();
        assert_eq!(clone_range(&path, 0, 0, &file, 0), Err(Errno::BADF));
    }
}
