//! One spare descriptor for opening a new object. If no descriptor is free, a request is deferred
//! before it makes an object and not afterwards, when its retry would find that object.

use rustix::{
    fd::OwnedFd,
    io::{Errno, fcntl_dupfd_cloexec},
};
use stag_protocol::nfs::v3::Status;

use super::{Files, SharedFiles, cache::FileSlotId, errno::status};

/// See the module.
#[derive(Debug)]
pub(super) struct SpareDescriptor {
    held: Option<OwnedFd>,
    /// Number of next opens to fail for lack of a descriptor.
    #[cfg(test)]
    failing: core::cell::Cell<u32>,
}

impl Files {
    /// Reserves a descriptor for [`open_made`](Self::open_made).
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

    /// Opens a new object, releasing the spare descriptor for it if no other is free.
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
    /// Takes the descriptor at the start, so that the number of open ones is constant from then on.
    /// If that fails, the first request takes it.
    pub(super) fn of(shared: &SharedFiles) -> Self {
        Self {
            held: fcntl_dupfd_cloexec(&shared.descriptors, 0).ok(),
            #[cfg(test)]
            failing: core::cell::Cell::default(),
        }
    }

    /// Fails if a test has requested it.
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

    /// Makes the next opens fail for lack of a descriptor.
    #[cfg(test)]
    pub(super) fn fail(&self, times: u32) {
        self.failing.set(times);
    }
}
