//! Memory windows.

use super::{Domain, is_gone, made};
use crate::sys::{ibv_mw, ibv_mw_type};
use std::{io, ptr, sync::Arc};

/// A type-2 memory window.
#[derive(Debug)]
pub(crate) struct MemoryWindow {
    pub(super) domain: Arc<Domain>,
    /// Null: it was given back.
    pub(super) raw: *mut ibv_mw,
}

// SAFETY: libibverbs lets any thread call for a window; it has one owner at a time.
unsafe impl Send for MemoryWindow {}

/// A window that was to be freed and made again.
#[derive(Debug)]
pub(crate) enum MadeAgain {
    /// It is free, and there is another one, unless the device has none left.
    Freed(Option<MemoryWindow>),
    /// The device keeps it: its key may still open what it was bound to.
    Kept(MemoryWindow),
}

impl MemoryWindow {
    pub(crate) fn new(domain: &Arc<Domain>) -> io::Result<Self> {
        // RFC 5042 §6.1.1 [5042-8]: an STag limited to one stream is refused on others
        // SAFETY: the domain is there.
        let raw = unsafe { domain.device.library.alloc_mw(domain.raw, ibv_mw_type::IBV_MW_TYPE_2) };
        let raw = made(raw.ok_or(io::ErrorKind::Unsupported)?)
            .map_err(|error| domain.device.failed("ibv_alloc_mw", error))?;
        Ok(Self { domain: Arc::clone(domain), raw })
    }

    /// The key it was bound with last.
    pub(crate) fn key(&self) -> u32 {
        // SAFETY: the window is there.
        unsafe { (*self.raw).rkey }
    }

    /// Notes the key of a bind that was handed to the device: the next bind has to name the window
    /// by it.
    pub(crate) fn set_key(&mut self, key: u32) {
        // SAFETY: the window is there, and this is its only owner.
        unsafe { (*self.raw).rkey = key };
    }

    pub(crate) const fn raw(&self) -> *mut ibv_mw {
        self.raw
    }

    /// Frees it; it may be bound. Returns it when the device keeps it: its key may still open the
    /// memory that it was bound to.
    pub(crate) fn free(mut self) -> Result<(), Self> {
        // SAFETY: the window is there, and is not used again when it was freed.
        let code = unsafe { self.domain.device.library.dealloc_mw(self.raw) };
        if !is_gone(code) {
            return Err(self);
        }
        self.raw = ptr::null_mut();
        Ok(())
    }
}

impl MemoryWindow {
    /// Frees it and makes another one.
    pub(crate) fn make_again(self) -> MadeAgain {
        let domain = Arc::clone(&self.domain);
        match self.free() {
            Ok(()) => MadeAgain::Freed(Self::new(&domain).ok()),
            Err(kept) => MadeAgain::Kept(kept),
        }
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: it is freed once. One that the device keeps stays: the code that bound it
            // keeps its memory away from others.
            unsafe { self.domain.device.library.dealloc_mw(self.raw) };
        }
    }
}
