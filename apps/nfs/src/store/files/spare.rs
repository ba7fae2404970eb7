//! One descriptor that is kept for opening what was just made: where there are no others, a request
//! is put off before it makes an object and not afterwards, when its retry would find that.

use rustix::fd::OwnedFd;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use stag_protocol::nfs::v3::Status;

use super::cache::FileSlotId;
use super::errno::status;
use super::{Files, SharedFiles};

/// See the module.
#[derive(Debug)]
pub(super) struct SpareDescriptor {
    held: Option<OwnedFd>,
    /// Number of the next opens that find no descriptor.
    #[cfg(test)]
    failing: core::cell::Cell<u32>,
}

impl Files {
    /// Holds a descriptor for [`open_made`](Self::open_made).
    ///
    /// # Errors
    /// [`Status::Jukebox`] when there is none.
    pub(super) fn await_spare(&mut self, keep: FileSlotId) -> Result<(), Status> {
        if self.spare.held.is_none() {
            let open = |files: &Self| fcntl_dupfd_cloexec(&files.shared.descriptors, 0);
            self.spare.held = Some(self.insist(&[keep], open).map_err(status)?);
        }
        Ok(())
    }

    /// Opens what was just made, in the place of the spare descriptor if there is no other.
    ///
    /// # Errors
    /// As `open` fails.
    pub(super) fn open_made<T>(
        &mut self,
        keep: FileSlotId,
        open: impl Fn(&Self) -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        let opened = self.insist(&[keep], |files| {
            files.spare.check()?;
            open(files)
        });
        match opened {
            Err(Errno::MFILE | Errno::NFILE) if self.spare.held.take().is_some() => open(self),
            opened => opened,
        }
    }
}

impl SpareDescriptor {
    /// Takes the descriptor at the start, so that the number of open ones stays the same from then
    /// on. Where there is none, the first request takes it.
    pub(super) fn of(shared: &SharedFiles) -> Self {
        Self {
            held: fcntl_dupfd_cloexec(&shared.descriptors, 0).ok(),
            #[cfg(test)]
            failing: core::cell::Cell::default(),
        }
    }

    /// Fails as a test has asked for.
    #[cfg(test)]
    fn check(&self) -> rustix::io::Result<()> {
        let failing = self.failing.get();
        self.failing.set(failing.saturating_sub(1));
        if failing > 0 { Err(Errno::MFILE) } else { Ok(()) }
    }

    #[cfg(not(test))]
    #[inline]
    const fn check(&self) -> rustix::io::Result<()> {
        Ok(())
    }

    /// Makes the next opens find no descriptor.
    #[cfg(test)]
    pub(super) fn fail(&self, times: u32) {
        self.failing.set(times);
    }
}
