//! Open files.

use crate::{abi::RawFile, mount::MountHandle};
use rustix::io::Errno;
use std::{fmt, sync::Arc};

/// Bytes of the longest transfer of one call: its result is a 32-bit number.
const CALL_MAX: usize = 1 << 30;

/// An open file; closed when it is dropped.
pub struct CephFile {
    mount: Arc<MountHandle>,
    raw: RawFile,
}

// SAFETY: reads and writes of one open file may come from several threads at a time: each says its
// own offset, and the library locks inside.
unsafe impl Send for CephFile {}
// SAFETY: as above.
unsafe impl Sync for CephFile {}

/// Part of a file that must reach stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// The content.
    Data,
    /// Content and all attributes.
    All,
}

impl CephFile {
    /// Takes over the open file that a call gave.
    pub(crate) fn adopt(mount: &Arc<MountHandle>, raw: RawFile) -> Self {
        assert!(!raw.is_null(), "a call that succeeds gives an open file");
        Self { mount: Arc::clone(mount), raw }
    }

    /// Reads from `offset` on, and returns the number of bytes read: fewer at the end of the file.
    ///
    /// # Errors
    /// As the library says; [`Errno::INVAL`] for an offset that no file has.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize, Errno> {
        let offset = i64::try_from(offset).map_err(|_| Errno::INVAL)?;
        let len = into.len().min(CALL_MAX);
        let (library, mount, room) = (self.mount.library, self.mount.raw, into.as_mut_ptr());
        // SAFETY: the file is open, and the room has at least that length and is ours alone.
        let code =
            unsafe { (library.ceph_ll_read)(mount, self.raw, offset, len as u64, room.cast()) };
        self.moved(code, len)
    }

    /// Writes at `offset`, and returns the number of bytes written.
    ///
    /// # Errors
    /// As the library says; [`Errno::FBIG`] for an offset that no file has.
    pub fn write_at(&self, offset: u64, from: &[u8]) -> Result<usize, Errno> {
        let offset = i64::try_from(offset).map_err(|_| Errno::FBIG)?;
        let len = from.len().min(CALL_MAX);
        let (library, mount) = (self.mount.library, self.mount.raw);
        let octets = from.as_ptr().cast();
        // SAFETY: the file is open, and the octets live during the call.
        let code = unsafe { (library.ceph_ll_write)(mount, self.raw, offset, len as u64, octets) };
        self.moved(code, len)
    }

    /// A count that the library returns, never more than was asked for.
    fn moved(&self, code: i32, asked: usize) -> Result<usize, Errno> {
        let moved = self.mount.returned(code)?;
        Ok(usize::try_from(moved).unwrap_or(asked).min(asked))
    }

    /// Waits until written data is stable. After an eviction this may succeed although nothing was
    /// stored: ask for the attributes afterwards, which then fails.
    ///
    /// # Errors
    /// As the library says.
    pub fn sync(&self, kind: SyncKind) -> Result<(), Errno> {
        let data_only = i32::from(kind == SyncKind::Data);
        // SAFETY: the file is open.
        let code =
            unsafe { (self.mount.library.ceph_ll_fsync)(self.mount.raw, self.raw, data_only) };
        self.mount.returned(code).map(drop)
    }
}

impl Drop for CephFile {
    fn drop(&mut self) {
        // SAFETY: the open file is ours, its mount lives, and nothing borrows this.
        let code = unsafe { (self.mount.library.ceph_ll_close)(self.mount.raw, self.raw) };
        // Only to notice that the session is gone.
        let _ = self.mount.returned(code);
    }
}

impl fmt::Debug for CephFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file of {:?}", self.mount)
    }
}
