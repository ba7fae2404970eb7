//! An io_uring that reads files into one block of registered memory: a possible variant of the
//! gateway's ring ([`stag_nfs_os::Ring`]).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use io_uring::{EnterFlags, IoUring, opcode, types};

/// A ring, its block of registered memory, and the eventfd that it rings.
pub struct Registered {
    ring: IoUring,
    block: Box<[u8]>,
    slot_len: usize,
    in_flight: usize,
}

impl Registered {
    /// A ring for one READ per slot.
    ///
    /// # Errors
    /// The system's error.
    pub fn new(slots: u32, slot_len: usize, bell: impl AsFd) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(slots)?;
        let mut block = vec![0; slots as usize * slot_len].into_boxed_slice();
        let whole = libc::iovec { iov_base: block.as_mut_ptr().cast(), iov_len: block.len() };
        // SAFETY: the block has a fixed place on the heap until nothing is in flight (`drop`).
        unsafe { ring.submitter().register_buffers(&[whole]) }?;
        ring.submitter().register_eventfd(bell.as_fd().as_raw_fd())?;
        Ok(Self { ring, block, slot_len, in_flight: 0 })
    }

    /// Starts a read of `file` from `offset` on to a slot, which must not be accessed before it is
    /// complete.
    ///
    /// # Errors
    /// The system's error.
    pub fn read(&mut self, file: BorrowedFd<'_>, offset: u64, slot: usize) -> io::Result<()> {
        let room = self
            .block
            .get_mut(slot * self.slot_len..)
            .and_then(|rest| rest.get_mut(..self.slot_len));
        let room = room.expect("the slot exists");
        let (file, len) = (types::Fd(file.as_raw_fd()), room.len() as u32);
        let read = opcode::ReadFixed::new(file, room.as_mut_ptr(), len, 0).offset(offset).build();
        let read = read.user_data(slot as u64);
        // SAFETY: the memory is the slot's, in the ring's registered block; the slot is looked at
        // again when it is complete.
        unsafe { self.ring.submission().push(&read) }.map_err(io::Error::other)?;
        self.in_flight += 1;
        self.ring.submit().map(drop)
    }

    /// The next complete slot, and its bytes.
    ///
    /// # Errors
    /// The error of the READ.
    pub fn next_complete(&mut self) -> io::Result<Option<(usize, &[u8])>> {
        if self.ring.submission().taskrun() {
            // SAFETY: no argument is passed.
            unsafe { self.ring.submitter().enter::<()>(0, 0, EnterFlags::GETEVENTS.bits(), None) }?;
        }
        let Some(entry) = self.ring.completion().next() else { return Ok(None) };
        self.in_flight -= 1;
        let count = usize::try_from(entry.result())
            .map_err(|_| io::Error::from_raw_os_error(-entry.result()))?;
        let slot = entry.user_data() as usize;
        let octets = self.block.get(slot * self.slot_len..).and_then(|rest| rest.get(..count));
        Ok(Some((slot, octets.expect("a READ stays in its slot"))))
    }
}

impl Drop for Registered {
    /// Waits until the system no longer writes to the block.
    fn drop(&mut self) {
        while self.in_flight > 0 {
            self.ring.submit_and_wait(1).expect("the ring is ours");
            self.in_flight -= self.ring.completion().count();
        }
    }
}
